//! Routes from a second FRR: OSPF and BGP between the zebra of our router and another one, two links between them, a
//! cut that no interface notices, and every part killed in turn. Needs root, `ip`, `ping`, FRR.
//!
//! ```text
//! a --- west r east --- switch --- e0 b     OSPF on both links, east the cheaper one
//!            r south ------------- e1 b     BGP between loopback addresses, found by OSPF
//! ```
//!
//! Rows: D-05, D-39, D-40.

use super::router::{Net, ip};
use super::said;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where Debian has FRR's daemons.
const DAEMONS: &str = "/usr/lib/frr";
/// RouterDeadInterval: a neighbour that has not been heard for so long is gone (RFC 2328 appendix C.3).
const DEAD: f64 = 4.0;
/// What may pass from there to packets that arrive: SPF and its hold-down of up to 0.5 s, zebra, our tables, and the
/// resolution of a neighbour. Set before the first run.
const CONVERGES: f64 = 1.5;
/// An address that OSPF announces, and one that BGP does.
const OSPF: &str = "203.0.113.1";
const BGP: &str = "198.51.100.1";

/// `zebra.conf` of a router that tells ours its routes.
const FPM: &str = "fpm address 127.0.0.1 port 2620\nno fpm use-next-hop-groups\n";

/// Whether FRR is there, with its module for FPM.
fn installed() -> bool {
    let module = format!("ls {DAEMONS}/ospfd /usr/lib/*/frr/modules/dplane_fpm_nl.so");
    Command::new("sh").args(["-c", &module]).output().unwrap().status.success()
}

/// The daemons of one router; killed with the test.
pub(crate) struct Frr {
    namespace: String,
    folder: PathBuf,
    feeds: bool,
    daemons: Vec<(&'static str, Child)>,
}

impl Frr {
    /// In a folder of its own, to which users other than root have a way: daemons give up root's rights.
    fn make(namespace: &str, folder: PathBuf, feeds: bool, texts: &[(&str, &str)]) -> Frr {
        std::fs::create_dir(&folder).unwrap();
        for (daemon, text) in texts {
            std::fs::write(folder.join(daemon).with_extension("conf"), text).unwrap();
        }
        let run = |arguments: &[&str]| {
            let mut program = Command::new(arguments[0]);
            said(&program.args(&arguments[1..]).output().unwrap(), 0);
        };
        run(&["chown", "-R", "frr:frr", folder.to_str().unwrap()]);
        run(&["chmod", "755", folder.parent().unwrap().to_str().unwrap()]);
        Frr { namespace: namespace.to_owned(), folder, feeds, daemons: Vec::new() }
    }
    /// Starts zebra, ospfd and bgpd with these configurations; zebra `feeds` our router.
    fn new(net: &Net, which: usize, ospf: &str, bgp: &str, feeds: bool) -> Frr {
        let folder = net.folder.path().join(format!("frr-{which}"));
        let fpm = if feeds { FPM } else { "" };
        let texts = [("zebra", fpm), ("ospfd", ospf), ("bgpd", bgp)];
        let mut frr = Frr::make(&net.names[which], folder, feeds, &texts);
        for daemon in ["zebra", "ospfd", "bgpd"] {
            frr.start(daemon);
        }
        frr
    }
    /// zebra alone, with what it finds in the kernel, if FRR is installed.
    pub(crate) fn alone(namespace: &str, folder: &Path) -> Option<Frr> {
        if !installed() {
            return None;
        }
        let mut frr = Frr::make(namespace, folder.join("frr"), true, &[("zebra", FPM)]);
        frr.start("zebra");
        Some(frr)
    }
    pub(crate) fn start(&mut self, daemon: &'static str) {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.namespace, &format!("{DAEMONS}/{daemon}")]);
        if self.feeds && daemon == "zebra" {
            program.args(["-M", "dplane_fpm_nl"]);
        }
        let of = |end: &str| self.folder.join(format!("{daemon}.{end}"));
        let log = std::fs::File::create(of("out")).unwrap();
        program.arg("-f").arg(of("conf")).arg("-i").arg(of("pid"));
        program.arg("-z").arg(self.folder.join("zserv.api"));
        program.arg("--vty_socket").arg(&self.folder).args(["-P", "0"]);
        program.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = program.spawn().unwrap();
        self.daemons.push((daemon, child));
        // Who comes first asks again for the others' socket, but seldom.
        let began = Instant::now();
        let socket = of("vty");
        while !socket.exists() {
            assert!(began.elapsed() < Duration::from_secs(20), "{}", self.told(daemon));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    /// What a daemon said.
    fn told(&self, daemon: &str) -> String {
        std::fs::read_to_string(self.folder.join(daemon).with_extension("out")).unwrap_or_default()
    }
    pub(crate) fn kill(&mut self, daemon: &str) {
        let at = self.daemons.iter().position(|(name, _)| *name == daemon).unwrap();
        let (_, mut child) = self.daemons.remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = std::fs::remove_file(self.folder.join(daemon).with_extension("vty"));
    }
    /// Changes the configuration while it runs.
    fn configure(&self, lines: &[&str]) {
        let mut program = Command::new("vtysh");
        program.arg("--vty_socket").arg(&self.folder).args(["-c", "configure terminal"]);
        for line in lines {
            program.args(["-c", line]);
        }
        said(&program.output().unwrap(), 0);
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for (_, child) in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The switch's namespace.
struct Switch(String);

impl Switch {
    /// A frame that arrives at the port of `b` goes nowhere, and both interfaces stay up.
    fn cut(&self, cut: bool) {
        let state = if cut { "0" } else { "3" };
        let set = ["netns", "exec", &self.0, "bridge", "link", "set", "dev", "s1", "state", state];
        said(&Command::new("ip").args(set).output().unwrap(), 0);
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// `ospfd.conf`: two links with costs of 10 and 20, and networks that are announced.
fn ospf(links: [&str; 2], id: &str, networks: &[&str]) -> String {
    let mut text = String::new();
    for (link, cost) in links.iter().zip([10, 20]) {
        let _ = write!(
            text,
            "interface {link}\n ip ospf network point-to-point\n ip ospf hello-interval 1\n \
             ip ospf dead-interval {DEAD}\n ip ospf retransmit-interval 1\n ip ospf cost {cost}\n"
        );
    }
    let _ = write!(
        text,
        "router ospf\n ospf router-id {id}\n timers throttle spf 0 50 500\n \
         timers throttle lsa all 0\n timers lsa min-arrival 0\n"
    );
    for network in networks {
        let _ = writeln!(text, " network {network} area 0");
    }
    text
}

/// `bgpd.conf`: one neighbour beyond a link.
fn bgp((own, id): (u32, &str), (other, address): (u32, &str), network: &str) -> String {
    format!(
        "router bgp {own}\n bgp router-id {id}\n no bgp ebgp-requires-policy\n \
         no bgp network import-check\n neighbor {address} remote-as {other}\n \
         neighbor {address} update-source {id}\n neighbor {address} ebgp-multihop 3\n \
         neighbor {address} timers 3 9\n neighbor {address} timers connect 1\n \
         neighbor {address} advertisement-interval 0\n address-family ipv4 unicast\n  \
         {network}\n exit-address-family\n"
    )
}

/// Two links between the router and b, one of them through a switch, and addresses that only routing tells.
fn wire(net: &Net) -> Switch {
    let [_, r, b] = &net.names;
    let switch = Switch(format!("{b}s"));
    let s = &switch.0;
    ip(&format!("netns add {s}"));
    ip(&format!("-n {r} link del east"));
    ip(&format!("link add east netns {r} type veth peer name s0 netns {s}"));
    ip(&format!("link add s1 netns {s} type veth peer name e0 netns {b}"));
    ip(&format!("link add south netns {r} type veth peer name e1 netns {b}"));
    ip(&format!("-n {s} link add name switch type bridge"));
    for port in ["s0", "s1"] {
        ip(&format!("-n {s} link set {port} master switch"));
        ip(&format!("-n {s} link set {port} up"));
    }
    ip(&format!("-n {s} link set switch up"));
    for (name, address, port) in [
        (r, "10.2.0.1/16", "east"),
        (b, "10.2.0.2/16", "e0"),
        (r, "10.3.0.1/16", "south"),
        (b, "10.3.0.2/16", "e1"),
    ] {
        ip(&format!("-n {name} addr add {address} dev {port}"));
        ip(&format!("-n {name} link set {port} up"));
    }
    ip(&format!("-n {r} addr add 192.0.2.1/32 dev lo"));
    ip(&format!("-n {b} addr add 192.0.2.2/32 dev lo"));
    ip(&format!("-n {b} addr add {BGP}/24 dev lo"));
    switch
}

/// Packets to and fro while something is done: how long none came, if they were evenly spaced.
fn outage(net: &Net, to: &str, seconds: f64, act: impl FnOnce()) -> f64 {
    const EACH: f64 = 0.02;
    let count = (seconds / EACH).ceil().to_string();
    let each = EACH.to_string();
    let mut ping = Command::new("ip");
    ping.args(["netns", "exec", &net.names[0], "ping", "-n", "-q", "-i", &each, "-c", &count]);
    let ping = ping.args(["-W", "1", to]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    act();
    let told = ping.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    // "500 packets transmitted, 287 received, +53 errors, 42.6% packet loss, time 12796ms"
    let line = told.lines().find(|line| line.contains("transmitted")).unwrap();
    let before = |word: &str| -> f64 {
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let at = words.iter().position(|one| *one == word).unwrap();
        words[at - 1].parse().unwrap_or_else(|_| words[at - 2].parse().unwrap())
    };
    let (sent, came) = (before("transmitted"), before("received"));
    let took = line.split("time ").nth(1).and_then(|time| time.strip_suffix("ms")).unwrap();
    (sent - came) / sent * took.parse::<f64>().unwrap() / 1e3
}

/// Waits until the router sends packets for an address out of a port.
fn leaves_by(net: &Net, address: &str, port: &str) {
    let began = Instant::now();
    loop {
        let shown = net.json(&format!("route {address}"));
        if shown["next"][0]["port"] == port {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{address} by {port}: {shown:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn ospf_and_bgp_of_a_second_frr_survive_a_cut_link_and_every_kill_d_39() {
    let Some(mut net) = Net::new("frr") else { return };
    if !installed() {
        return println!("SKIP: no FRR in {DAEMONS}");
    }
    let switch = wire(&net);
    let text = "fpm = '127.0.0.1:2620'\n[ports.west]\ninterface = 'west'\n\
                [ports.east]\ninterface = 'east'\n[ports.south]\ninterface = 'south'\n";
    std::fs::write(net.file(), text).unwrap();
    net.start();
    let networks = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "192.0.2.1/32"];
    let near = ospf(["east", "south"], "192.0.2.1", &networks);
    let networks = ["10.2.0.0/16", "10.3.0.0/16", "192.0.2.2/32", "203.0.113.0/24"];
    let far = ospf(["e0", "e1"], "192.0.2.2", &networks);
    let (we, they) = ((65001, "192.0.2.1"), (65002, "192.0.2.2"));
    let mut frr = Frr::new(&net, 1, &near, &bgp(we, they, ""), true);
    let other = Frr::new(&net, 2, &far, &bgp(they, we, "network 198.51.100.0/24"), false);

    // Both protocols bring their routes, the one of BGP through what OSPF says of its next router.
    for address in [OSPF, BGP] {
        leaves_by(&net, address, "east");
        net.waits(address);
    }

    // A cut that no interface notices: FRR's timers do. BGP's session goes on by the other link.
    let mut outages = Vec::new();
    let in_time = (0..3).any(|_| {
        let took = outage(&net, BGP, DEAD + 2.0 * CONVERGES + 1.0, || switch.cut(true));
        leaves_by(&net, OSPF, "south");
        leaves_by(&net, BGP, "south");
        net.waits(BGP);
        switch.cut(false);
        leaves_by(&net, BGP, "east");
        net.waits(BGP);
        outages.push(took);
        took <= DEAD + CONVERGES
    });
    println!("a cut link: nothing passed for {outages:.2?} s");
    if !in_time {
        println!("UNDECIDED: the machine was busy, or FRR's timers are not what decides");
    }
    // A cut is noticed by silence alone, not before.
    assert!(outages.iter().all(|took| *took > 1.0), "{outages:?}");

    // The control processor dies: nothing is lost. What changes meanwhile comes when it is back.
    let mut control = net.children.pop().unwrap();
    let lost = outage(&net, OSPF, 3.0, || {
        control.kill().unwrap();
        control.wait().unwrap();
    });
    println!("control killed: {lost:.2} s lost");
    assert!(lost < 0.5, "{lost}");
    let network = |no: &str| {
        let network = format!("{no}network 198.51.100.0/24");
        other.configure(&["router bgp 65002", "address-family ipv4 unicast", &network]);
    };
    network("no ");
    std::thread::sleep(Duration::from_millis(500));
    net.pings(&format!("-c 3 {BGP}"));
    net.start();
    let lost = outage(&net, OSPF, 2.0, || ());
    assert!(lost < 0.5, "{lost}");
    // It is removed when FRR has told all others, and has been silent for a while.
    let began = Instant::now();
    while net.ping(&format!("-c 1 {BGP}")).0 {
        assert!(began.elapsed() < Duration::from_secs(60), "a route that is gone is still used");
    }
    let control = net.json("routes")["control"].clone();
    assert_eq!(control["port-processors-started"], 0, "it was adopted: {control:#}");
    network("");
    net.waits(BGP);

    // zebra dies: packets go on by the routes that it told last, even into a link that is cut; when it is back, it
    // knows better.
    let lost = outage(&net, BGP, 3.0, || frr.kill("zebra"));
    println!("zebra killed: {lost:.2} s lost");
    assert!(lost < 0.5, "{lost}");
    switch.cut(true);
    std::thread::sleep(Duration::from_secs_f64(DEAD + CONVERGES));
    assert!(!net.ping(&format!("-c 2 {OSPF}")).0, "nobody says that the link is cut");
    // The other daemons do not tell another zebra what they told the first: watchfrr starts all of them again.
    for daemon in ["ospfd", "bgpd"] {
        frr.kill(daemon);
    }
    for daemon in ["zebra", "ospfd", "bgpd"] {
        frr.start(daemon);
    }
    leaves_by(&net, OSPF, "south");
    net.waits(OSPF);
    leaves_by(&net, BGP, "south");
    switch.cut(false);
    leaves_by(&net, BGP, "east");
    net.waits(BGP);

    // A port processor dies: another has its tables at once.
    let lost = outage(&net, BGP, 4.0, || net.kill("port-processor"));
    println!("port processor killed: {lost:.2} s lost");
    assert!(lost > 0.0 && lost < 3.0, "{lost}");
    net.pings(&format!("-c 3 {OSPF}"));
    let audit = std::fs::read_to_string(net.folder.path().join("audit.jsonl")).unwrap();
    assert_eq!(audit.matches("starting another").count(), 1, "{audit}");
}

/// Connects to a router as zebra does, tells it routes to 203.0.113.0/24 and, if asked, 198.51.100.0/24 by 10.2.0.2, and
/// stays.
const TELLS: &str = "
import socket, struct, sys, time
def attribute(kind, data): return struct.pack('<HH', 4 + len(data), kind) + data
def route(prefix):
    body = struct.pack('<8BI', 2, 24, 0, 0, 254, 186, 0, 1, 0)
    body += attribute(1, bytes(prefix)) + attribute(5, bytes((10, 2, 0, 2)))
    message = struct.pack('<IHHII', 16 + len(body), 24, 0x405, 1, 0) + body
    return struct.pack('!BBH', 1, 1, 4 + len(message)) + message
s = socket.create_connection(('127.0.0.1', 2620))
s.send(route((203, 0, 113, 0)))
if sys.argv[1] == 'both': s.send(route((198, 51, 100, 0)))
print('told', flush=True)
time.sleep(60)
";

#[test]
fn routes_that_are_not_told_again_go_after_the_silence_that_the_file_says() {
    use std::io::Read;
    let Some(mut net) = Net::new("stale") else { return };
    net.write("fpm = '127.0.0.1:2620'\nstale-routes = '700 ms'");
    net.start();
    let tells = |which: &str| {
        let mut zebra = net.inside(1, &["python3", "-c", TELLS, which]);
        let mut zebra = zebra.stdout(Stdio::piped()).spawn().unwrap();
        let mut told = [0; 5];
        zebra.stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
        zebra
    };
    let reached = |address: &str| net.json(&format!("route {address}"))["hop"].is_number();
    let waits = |address: &str, wanted: bool| {
        let began = Instant::now();
        while reached(address) != wanted {
            assert!(began.elapsed() < Duration::from_secs(8), "{address}: {wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
        began.elapsed()
    };
    let mut zebra = tells("both");
    for address in ["203.0.113.1", "198.51.100.1"] {
        waits(address, true);
    }
    zebra.kill().unwrap();
    zebra.wait().unwrap();
    let mut zebra = tells("one");
    // Long before the 10 s of a file that says nothing.
    let took = waits("198.51.100.1", false);
    println!("gone after {:.1} s", took.as_secs_f64());
    assert!(reached("203.0.113.1"), "it was told again");
    zebra.kill().unwrap();
    zebra.wait().unwrap();
}
