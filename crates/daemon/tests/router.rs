//! A router between two hosts in network namespaces: what users and neighbours see of it. Needs root, `ip` and `ping`.
//!
//! Rows: D-28, D-30, D-33, D-39, D-93.

use super::model::{built, bytes_of, capture, decided, numbered, replayed};
use super::{PROGRAM, has, said};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Two hosts and a router between them: 10.1.0.1 - 10.1.0.2 10.2.0.1 - 10.2.0.2, and fd01::/64, fd02::/64.
pub(crate) struct Net {
    pub(crate) names: [String; 3],
    pub(crate) folder: tempfile::TempDir,
    pub(crate) children: Vec<Child>,
}

pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    said(&output, 0);
}

impl Net {
    pub(crate) fn new(test: &str) -> Option<Net> {
        let own = std::process::id();
        let probe = format!("lm-probe-{test}-{own}");
        let root = Command::new("ip").args(["netns", "add", &probe]).output();
        if !root.is_ok_and(|output| output.status.success()) || !has("ping") {
            println!("SKIP: no right to make network namespaces, or no `ip`");
            return None;
        }
        ip(&format!("netns del {probe}"));
        let names = ["a", "r", "b"].map(|part| format!("lm-{test}-{own}-{part}"));
        let [a, r, b] = &names;
        for name in [a, r, b] {
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
        }
        ip(&format!("link add e0 netns {a} type veth peer name west netns {r}"));
        ip(&format!("link add east netns {r} type veth peer name e0 netns {b}"));
        for (name, port, v4, v6) in [
            (a, "e0", "10.1.0.1/16", "fd01::1/64"),
            (r, "west", "10.1.0.2/16", "fd01::2/64"),
            (r, "east", "10.2.0.1/16", "fd02::1/64"),
            (b, "e0", "10.2.0.2/16", "fd02::2/64"),
        ] {
            ip(&format!("-n {name} addr add {v4} dev {port}"));
            ip(&format!("-n {name} addr add {v6} dev {port} nodad"));
            ip(&format!("-n {name} link set {port} up"));
        }
        for (name, v4, v6) in [(a, "10.1.0.2", "fd01::2"), (b, "10.2.0.1", "fd02::1")] {
            ip(&format!("-n {name} route add default via {v4}"));
            ip(&format!("-n {name} -6 route add default via {v6}"));
        }
        // Another address of b, in a network of which only a routing protocol would tell.
        ip(&format!("-n {b} addr add 203.0.113.1/24 dev lo"));
        let folder = tempfile::tempdir().unwrap();
        Some(Net { names, folder, children: Vec::new() })
    }
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("router.toml")
    }
    pub(crate) fn write(&self, more: &str) {
        let text =
            format!("{more}\n[ports.west]\ninterface = 'west'\n[ports.east]\ninterface = 'east'\n");
        std::fs::write(self.file(), text).unwrap();
    }
    /// `lastmeterd router COMMAND FILE ...` of this router.
    pub(crate) fn router(&self, command: &str, arguments: &[&str]) -> Output {
        let mut program = Command::new(PROGRAM);
        program.args(["router", command]).arg(self.file()).arg("--run").arg(self.folder.path());
        program.args(arguments).output().unwrap()
    }
    pub(crate) fn json(&self, what: &str) -> serde_json::Value {
        let told = said(&self.router("show", &[what, "--json"]), 0);
        serde_json::from_str(&told).unwrap()
    }
    /// Starts it, and waits until it answers.
    pub(crate) fn start(&mut self) {
        let child = Command::new("ip")
            .args(["netns", "exec", &self.names[1], PROGRAM, "router", "run"])
            .arg(self.file())
            .arg("--run")
            .arg(self.folder.path())
            .stdout(Stdio::null())
            .spawn();
        self.children.push(child.unwrap());
        let began = Instant::now();
        while !self.router("show", &[]).status.success() {
            assert!(began.elapsed() < Duration::from_secs(20), "the router did not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    pub(crate) fn kill(&self, which: &str) {
        let pattern = format!("router {which} {}", self.file().display());
        said(&Command::new("pkill").args(["-9", "-f", &pattern]).output().unwrap(), 0);
    }
    /// What `ping` from a says; whether every packet came back.
    pub(crate) fn ping(&self, arguments: &str) -> (bool, String) {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.names[0], "ping", "-n", "-i", "0.05", "-W", "1"]);
        let output = program.args(arguments.split_whitespace()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        (told.contains(" 0% packet loss"), told)
    }
    /// Waits until an address answers: IPv6 addresses of new links do after a second or two.
    pub(crate) fn waits(&self, address: &str) {
        let began = Instant::now();
        while !self.ping(&format!("-c 1 {address}")).0 {
            assert!(began.elapsed() < Duration::from_secs(10), "{address} does not answer");
        }
    }
    /// All must come back, which may take a while on a busy machine.
    pub(crate) fn pings(&self, arguments: &str) {
        let (all, told) = self.ping(&format!("-W 5 {arguments}"));
        assert!(all, "{told}");
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = self.router("end", &[]);
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let pattern = self.file().display().to_string();
        let _ = Command::new("pkill").args(["-9", "-f", &pattern]).output();
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn hosts_see_a_router_as_any_other() {
    let Some(mut net) = Net::new("see") else { return };
    net.write("");
    net.start();
    net.pings("-c 5 10.2.0.2");
    net.waits("fd02::2");
    net.pings("-c 5 fd02::2");
    let (_, told) = net.ping("-c 1 -t 1 10.2.0.2");
    assert!(told.contains("10.1.0.2") && told.contains("Time to live exceeded"), "{told}");
    let (_, told) = net.ping("-c 1 192.0.2.1");
    assert!(told.contains("10.1.0.2") && told.contains("Net Unreachable"), "{told}");
    let (_, told) = net.ping("-c 1 -t 1 fd02::2");
    assert!(told.contains("fd01::2") && told.contains("Hop limit"), "{told}");
    // A shorter link: what may be cut is cut, about what may not the source is told.
    ip(&format!("-n {} link set east mtu 1300", net.names[1]));
    ip(&format!("-n {} link set e0 mtu 1300", net.names[2]));
    std::thread::sleep(Duration::from_millis(200));
    net.pings("-c 3 -M dont -s 1400 10.2.0.2");
    let (_, told) = net.ping("-c 2 -M do -s 1400 10.2.0.2");
    assert!(told.contains("1300"), "{told}");
    // Every packet is explained.
    std::thread::sleep(Duration::from_millis(200));
    let ledger = net.json("ledger");
    assert_eq!(ledger["balance"]["packets_residual"], 0, "{ledger:#}");
    let drops = &net.json("ports")["ports"][1]["counts"];
    assert_eq!(
        (&drops["dropped/expired"], &drops["dropped/no-route"]),
        (&2.into(), &1.into()),
        "{drops:#}"
    );
    assert_eq!(drops["dropped/too-big"], 1, "{drops:#}");
}

/// A switch may send us frames of others, and hosts send to everybody: neither is for a router to forward.
#[test]
fn frames_to_others_are_left_alone() {
    let Some(mut net) = Net::new("others") else { return };
    net.write("");
    net.start();
    net.pings("-c 1 10.2.0.2");
    let gateway = |mac: &str| {
        let a = &net.names[0];
        ip(&format!("-n {a} neigh replace 10.1.0.2 lladdr {mac} dev e0 nud permanent"));
    };
    let received = || net.json("ports")["ports"][1]["counts"]["received"].clone();
    let before = received();
    for mac in ["02:00:00:00:00:77", "ff:ff:ff:ff:ff:ff"] {
        gateway(mac);
        assert!(!net.ping("-c 2 10.2.0.2").0, "{mac}");
    }
    assert_eq!(received(), before);
}

#[test]
fn routes_of_the_kernel_are_followed() {
    let Some(mut net) = Net::new("kernel") else { return };
    net.write("kernel-routes = true");
    net.start();
    assert!(!net.ping("-c 1 203.0.113.1").0);
    ip(&format!("-n {} route add 203.0.113.0/24 via 10.2.0.2", net.names[1]));
    net.waits("203.0.113.1");
    ip(&format!("-n {} route del 203.0.113.0/24", net.names[1]));
    let began = Instant::now();
    while net.ping("-c 1 203.0.113.1").0 {
        assert!(began.elapsed() < Duration::from_secs(10), "the route is still there");
    }
}

#[test]
fn known_flows_take_the_fast_path() {
    let Some(mut net) = Net::new("fast") else { return };
    if !has("iperf3") || !has("ethtool") {
        return;
    }
    let inside = |name: &str, command: &str| {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", name]).args(command.split_whitespace());
        program.stdout(Stdio::null());
        program
    };
    // What is redirected to a veth pair arrives if its other end merges packets.
    for name in [&net.names[0], &net.names[2]] {
        said(&inside(name, "ethtool -K e0 tx off tso off gro on").output().unwrap(), 0);
    }
    net.write("fast = true");
    net.start();
    net.pings("-c 1 10.2.0.2");
    let mut server = inside(&net.names[2], "iperf3 -s -1").spawn().unwrap();
    let began = Instant::now();
    while !inside(&net.names[0], "iperf3 -c 10.2.0.2 -n 40M").status().unwrap().success() {
        assert!(began.elapsed() < Duration::from_secs(10), "nothing passes");
    }
    server.wait().unwrap();
    let ports = net.json("ports");
    let received = ports["ports"][1]["counts"]["received"].as_u64().unwrap();
    // 40 MB are 28,000 packets of 1448 bytes.
    assert!(received < 5000, "{received} packets passed the port processor");
}

#[test]
fn each_half_lives_when_the_other_is_killed() {
    let Some(mut net) = Net::new("kill") else { return };
    net.write("[[routes]]\nprefix = '203.0.113.0/24'\nvia = '10.2.0.2'");
    net.start();
    net.pings("-c 2 203.0.113.1");
    net.kill("run");
    net.pings("-c 10 203.0.113.1");
    net.start();
    assert_eq!(net.json("ports")["control"]["port-processors-started"], 0, "it was adopted");
    net.pings("-c 2 203.0.113.1");
    net.kill("port-processor");
    net.waits("203.0.113.1");
    let audit = std::fs::read_to_string(net.folder.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("adopt"), "{audit}");
    assert_eq!(audit.matches("starting another").count(), 1, "{audit}");
}

#[test]
fn a_running_router_is_changed_and_changed_back() {
    let Some(mut net) = Net::new("change") else { return };
    net.write("[plugins.ping]\nexpression = '(not (= protocol 1))'");
    net.start();
    net.pings("-c 2 10.2.0.2");
    let set = |key: &str, value: &str, status: i32| said(&net.router("set", &[key, value]), status);
    let structure = |net: &Net| net.json("routes")["routes"]["lookup"]["v4"].clone();
    assert!(structure(&net)["why"].as_str().unwrap().contains("fewer than"), "{}", structure(&net));
    set("lookup", "direct", 0);
    assert_eq!(structure(&net)["structure"], "direct");
    net.pings("-c 2 10.2.0.2");
    set("lookup", "trie", 2);
    said(&net.router("rollback", &[]), 0);
    assert_eq!(structure(&net)["structure"], "tree-bitmap");
    net.pings("-c 2 10.2.0.2");
    set("ports.west.plugins", "['ping']", 0);
    assert!(!net.ping("-c 2 10.2.0.2").0, "the plugin denies it");
    let plugin = &net.json("plugins")["plugins"][0];
    assert_eq!(plugin["denied"], 2, "{plugin:#}");
    // What has not changed goes on as it was.
    set("ports.east.rate", "1 Gbit/s", 0);
    assert_eq!(net.json("plugins")["plugins"][0]["denied"], 2);
    // What cannot be done leaves everything as it is.
    let wrong = set("plugins.other", "{ module = 'missing.wasm' }", 2);
    assert!(wrong.contains("missing.wasm"), "{wrong}");
    assert!(said(&net.router("get", &["plugins.other"]), 2).contains("nothing is called"));
    said(&net.router("rollback", &["2"]), 0);
    assert!(said(&net.router("rollback", &[]), 2).contains("only 0 changes"));
    net.pings("-c 2 10.2.0.2");
    set(
        "filters",
        "[{ match = '@10.1.0.0/16 10.2.0.2/32 0 : 65535 0 : 65535 0x01/0xFF', action = 'deny' }]",
        0,
    );
    assert!(!net.ping("-c 2 10.2.0.2").0, "the filter denies it");
    assert_eq!(net.json("ports")["ports"][1]["counts"]["dropped/filtered"], 2);
    said(&net.router("reload", &[]), 0);
    net.pings("-c 2 10.2.0.2");
    let wrong = set("ports.east.rat", "1 Mbit/s", 2);
    assert!(wrong.contains("did you mean `rate`"), "{wrong}");
    set("ports.east.rate", "100 kbit/s", 0);
    let began = Instant::now();
    let (_, told) = net.ping("-c 6 -w 5 -s 1400 10.2.0.2");
    assert!(told.contains("6 received"), "{told}");
    assert!(began.elapsed() > Duration::from_millis(550), "six packets, each 117 ms on the line");
    assert_eq!(said(&net.router("get", &["ports.east.rate"]), 0).trim(), "100 kbit/s");
    net.pings("-c 1 10.2.0.2");
}

/// Sends the packets of files named by hexadecimal lines on `e0`, ten each 3 ms, to a neighbour.
const SEND: &str = "
import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('e0', 0))
to = bytes.fromhex(sys.argv[1].replace(':', ''))
for at, line in enumerate(open(sys.argv[2])):
    s.send(to + s.getsockname()[4] + bytes.fromhex('0800' + line))
    if at % 10 == 9:
        time.sleep(0.003)
";

/// Prints the IPv4 packets that arrive on `e0`, as hexadecimal lines: so many, what comes within 0.2 s after them, and
/// nothing after 20 s without any.
const LISTEN: &str = "
import select, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
SO_RCVBUFFORCE = 33
s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
s.bind(('e0', 0x800))
print('ready', flush=True)
left = int(sys.argv[1])
while select.select([s], [], [], 20 if left > 0 else 0.2)[0]:
    data, at = s.recvfrom(65536)
    if at[2] != socket.PACKET_OUTGOING:
        print(data[14:].hex(), flush=True)
        left -= 1
";

impl Net {
    /// Sends packets from a to b, where `count` are expected; those that arrived there, by number. A router that gets no
    /// CPU time may lose some, so that they are sent again.
    fn pass(&self, packets: &BTreeMap<u16, Vec<u8>>, count: usize) -> BTreeMap<u16, Vec<u8>> {
        let mut tries = (0..3).map(|_| self.pass_once(packets, count));
        let mut last = BTreeMap::new();
        tries.find(|arrived| {
            last.clone_from(arrived);
            arrived.len() == count
        });
        last
    }
    pub(crate) fn pass_once(
        &self,
        packets: &BTreeMap<u16, Vec<u8>>,
        count: usize,
    ) -> BTreeMap<u16, Vec<u8>> {
        let mut listener = self.python(2, &[LISTEN, &count.to_string()]);
        let mut listener = listener.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        self.send(packets);
        let packets = lines.map(|line| bytes_of(&line.unwrap()));
        let arrived = packets.map(|data| (u16::from_be_bytes([data[4], data[5]]), data)).collect();
        listener.wait().unwrap();
        arrived
    }
    fn python(&self, host: usize, arguments: &[&str]) -> Command {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.names[host], "python3", "-c"]).args(arguments);
        program
    }
    /// Sends packets from a to the router.
    pub(crate) fn send(&self, packets: &BTreeMap<u16, Vec<u8>>) {
        self.send_from(0, "west", packets);
    }
    /// Sends packets from a host to a port of the router.
    pub(crate) fn send_from(&self, host: usize, port: &str, packets: &BTreeMap<u16, Vec<u8>>) {
        let file = self.folder.path().join("packets");
        let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: Vec<String> = packets.values().map(hex).collect();
        std::fs::write(&file, text.join("\n")).unwrap();
        let told = Command::new("ip")
            .args(["-n", &self.names[1], "-j", "link", "show", port])
            .output()
            .unwrap();
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let mac = told[0]["address"].as_str().unwrap();
        let mut sender = self.python(host, &[SEND, mac, file.to_str().unwrap()]);
        said(&sender.output().unwrap(), 0);
    }
}

/// A packet without what each router changes: its time to live and the checksum over it.
fn without_hop(packet: &[u8]) -> Vec<u8> {
    [&packet[..8], &packet[9..10], &packet[12..]].concat()
}

#[test]
fn a_router_decides_about_a_capture_as_a_model_does_packet_by_packet() {
    let Some(mut net) = Net::new("decide") else { return };
    if ["clang", "wasm-ld", "python3"].iter().any(|program| !has(program)) {
        return;
    }
    // No time matters to these plugins: `plugin replay` and a model decide alike about all of them, see `model.rs`.
    let plugins = [
        ("counter", ""),
        ("dscp", "46"),
        ("source-nat", "10.1.1.0/24 198.18.0.0"),
        ("tcp-mss", "1400"),
        ("rtp-sequence", "5001"),
    ];
    let captured = capture(400, [10, 1, 1], [203, 0, 113]);
    std::fs::write(net.folder.path().join("in.pcapng"), &captured).unwrap();
    let sent = numbered(&captured);
    let mut text = "[[routes]]\nprefix = '203.0.113.0/24'\nvia = '10.2.0.2'\n\
         [plugins.short]\nexpression = '(< length 1000)'\n"
        .to_owned();
    for (name, config) in plugins {
        let module = built(net.folder.path(), name);
        text += &format!("[plugins.{name}]\nmodule = '{module}'\nconfig = '{config}'\n");
    }
    net.write(&text);
    net.start();
    net.pings("-c 1 203.0.113.1");
    let mut changed = 0;
    for (name, config) in plugins {
        said(&net.router("set", &["ports.west.plugins", &format!("['{name}']")]), 0);
        let decisions = replayed(net.folder.path(), &format!("{name}/{name}.wasm"), config);
        changed += decisions.iter().filter(|decision| decision["verdict"] == "changed").count();
        let each = sent.iter().zip(&decisions);
        let after: Vec<_> = each.map(|((_, before), verdict)| decided(before, verdict)).collect();
        let arrived = net.pass(&sent, after.iter().flatten().count());
        for (number, after) in sent.keys().zip(after) {
            let found = arrived.get(number).map(|packet| without_hop(packet));
            assert_eq!(found, after.map(|packet| without_hop(&packet)), "{name}: {number}");
        }
    }
    assert!(changed > 300, "{changed}");
    said(&net.router("set", &["ports.west.plugins", "['short']"]), 0);
    let short = sent.values().filter(|packet| packet.len() < 1000).count();
    let arrived = net.pass(&sent, short);
    for (number, packet) in &sent {
        assert_eq!(arrived.contains_key(number), packet.len() < 1000, "{number}");
    }
    assert_eq!(net.json("ledger")["balance"]["packets_residual"], 0);
}

#[test]
fn a_changed_destination_is_looked_up_again() {
    let Some(mut net) = Net::new("again") else { return };
    if ["clang", "wasm-ld"].iter().any(|program| !has(program)) {
        return;
    }
    let module = built(net.folder.path(), "source-nat");
    net.write(&format!(
        "[[routes]]\nprefix = '203.0.113.0/24'\nvia = '10.2.0.2'\n[plugins.nat]\n\
         module = '{module}'\nconfig = '203.0.113.0/24 198.18.0.0'\n"
    ));
    net.start();
    // There is a route only to what the plugin makes of this address.
    assert!(!net.ping("-c 1 198.18.0.1").0);
    for port in ["west", "east"] {
        said(&net.router("set", &[&format!("ports.{port}.plugins"), "['nat']"]), 0);
    }
    net.waits("198.18.0.1");
    net.pings("-c 3 198.18.0.1");
}

/// A netlink message in an FPM frame, as FRR sends it: a route to 203.0.113.0/24 via 10.2.0.2, new or gone.
fn fpm(new: bool) -> Vec<u8> {
    let mut message = vec![0; 16];
    message[4..6].copy_from_slice(&(if new { 24u16 } else { 25 }).to_ne_bytes());
    message.extend([2, 24, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0]);
    message.extend([8, 0, 1, 0, 203, 0, 113, 0, 8, 0, 5, 0, 10, 2, 0, 2]);
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    let mut frame = vec![1, 1];
    frame.extend((len as u16 + 4).to_be_bytes());
    frame.extend(message);
    frame
}

#[test]
fn routes_come_and_go_with_frr() {
    let Some(mut net) = Net::new("fpm") else { return };
    if !has("python3") {
        return;
    }
    net.write("fpm = '127.0.0.1:2620'");
    net.start();
    assert!(!net.ping("-c 1 203.0.113.1").0);
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // In pieces, as TCP brings them.
    let script = format!(
        "import socket,sys,time\ns=socket.create_connection(('127.0.0.1',2620))\n\
         new=bytes.fromhex('{}')\ngone=bytes.fromhex('{}')\n\
         s.sendall(new[:7]); time.sleep(0.05); s.sendall(new[7:])\nsys.stdin.readline()\n\
         s.sendall(gone+new+gone)\nsys.stdin.readline()\n",
        hex(fpm(true)),
        hex(fpm(false))
    );
    let mut frr = Command::new("ip")
        .args(["netns", "exec", &net.names[1], "python3", "-c", &script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while net.json("routes")["control"]["fpm-messages"] != 1 {
        assert!(began.elapsed() < Duration::from_secs(10), "no route arrived");
        std::thread::sleep(Duration::from_millis(20));
    }
    net.pings("-c 2 203.0.113.1");
    assert_eq!(net.json("route 203.0.113.9")["next"][0]["via"], "10.2.0.2");
    use std::io::Write;
    frr.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    while net.json("routes")["control"]["fpm-messages"] != 4 {
        assert!(began.elapsed() < Duration::from_secs(20), "no change arrived");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!net.ping("-c 1 203.0.113.1").0, "it is gone");
    // How long the tables took to be in step (D-40): less than the second in which a route would be missed.
    let steps = net.json("routes")["control"]["in-step"].clone();
    let seconds = |key: &str| steps[key].as_f64().unwrap();
    assert!(steps["measured"].as_u64() >= Some(1), "{steps}");
    assert!(seconds("mean") > 0.0 && seconds("most") < 1.0, "{steps}");
    let text = said(&net.router("show", &["routes"]), 0);
    assert!(text.contains("changes are in all tables after"), "{text}");
    println!("tables are in step after {:.3} ms", seconds("mean") * 1e3);
    drop(frr.stdin.take());
    frr.wait().unwrap();
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str, status: i32| {
        let file = folder.path().join("router.toml");
        std::fs::write(&file, text).unwrap();
        said(&Command::new(PROGRAM).args(["router", "check"]).arg(&file).output().unwrap(), status)
    };
    assert!(check("[ports.a]\ninterface = 'eth0'", 0).contains("1 ports"));
    let wrong = check("[ports.a]\ninterfce = 'eth0'", 2);
    assert!(
        wrong.contains("router.toml:2:1") && wrong.contains("did you mean `interface`"),
        "{wrong}"
    );
    let nobody = Command::new(PROGRAM)
        .args(["router", "show"])
        .arg(Path::new("router.toml"))
        .arg("--run")
        .arg(folder.path())
        .output();
    assert!(said(&nobody.unwrap(), 2).contains("nothing is running there"));
}

/// Passes a packet if its flow is granted all of east's 10 Mbit/s, or half of them, and nothing is known of the other
/// port, whose line is not shaped.
const ASKS: &str = r#"(module
  (import "lastmeter:request/1" "lm_queue" (func $queue (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global (export "lm_plugin") i32 (i32.const 16))
  (data (i32.const 16) "LMRQ\01\00\01\00\00\04\00\00\10\20\00\00\40\00\00\00")
  (func (export "lm_process") (param $batch i32) (result i32)
    (if (i32.ne (call $queue (i32.const 0) (i32.const 512)) (i32.const 0)) (then unreachable))
    (if (i32.eq (call $queue (i32.const 1) (i32.const 544)) (i32.const 0)) (then unreachable))
    (if (i64.ne (i64.load (i32.const 528)) (i64.const 10000000)) (then unreachable))
    (i32.store8 offset=17 (local.get $batch)
      (i32.add (i32.const 1) (i64.ne (i64.load (i32.const 520)) (i64.const SHARE))))
    (i32.const 0)))"#;

#[test]
fn a_plugin_is_told_what_the_queue_grants() {
    let Some(mut net) = Net::new("asks") else { return };
    let write = |net: &Net, share: &str| {
        let module = wat::parse_str(ASKS.replace("SHARE", share)).unwrap();
        std::fs::write(net.folder.path().join(format!("asks-{share}.wasm")), module).unwrap();
        let text = format!(
            "[plugins.asks]\nmodule = 'asks-{share}.wasm'\nfail = 'closed'\n\
             [ports.west]\ninterface = 'west'\nplugins = ['asks']\n\
             [ports.east]\ninterface = 'east'\nrate = '10 Mbit/s'\nframing = '0 B'\n\
             queue = {{ drr = {{ bytes = '64 KiB' }} }}\n"
        );
        std::fs::write(net.file(), text).unwrap();
    };
    write(&net, "1000000");
    net.start();
    net.pings("-c 5 10.2.0.2");
    // A flow alone is never granted half.
    write(&net, "500000");
    said(&net.router("reload", &[]), 0);
    assert!(!net.ping("-c 2 10.2.0.2").0);
    let plugin = &net.json("plugins")["plugins"][0];
    assert_eq!((&plugin["denied"], &plugin["failures"]), (&2.into(), &0.into()), "{plugin:#}");
}
