//! Flows of a running router: reservations, routes and functions of their own, policies, copies. Needs root and `ip`.
//!
//! Rows: D-24, D-29, D-32, D-36, D-42, D-43, D-44, D-45, D-46, D-47, D-48, D-66.

use super::fetch::shop;
use super::router::{Net, ip};
use super::{PROGRAM, has, said};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// UDP to port 5004 of b.
const FILM: &str = "@10.1.0.1/32 10.2.0.2/32 0 : 65535 5004 : 5004 0x11/0xFF";
/// All of a's packets to b.
const ALL: &str = "@10.1.0.1/32 10.2.0.2/32 0 : 65535 0 : 65535 0x00/0x00";

impl Net {
    /// Both lines are shaped to this rate.
    fn write_lines(&self, rate: &str, more: &str) {
        let text = format!(
            "{more}\n[ports.west]\ninterface = 'west'\nrate = '{rate}'\n\
             [ports.east]\ninterface = 'east'\nrate = '{rate}'\n"
        );
        std::fs::write(self.file(), text).unwrap();
    }
    fn reserve(&self, name: &str, packets: &str, more: &[&str], status: i32) -> String {
        said(&self.router("reserve", &[&[name, "--match", packets], more].concat()), status)
    }
    /// What the router says of a flow.
    pub(crate) fn flow(&self, name: &str) -> Value {
        let flows = self.json("flows");
        let all = flows["flows"].as_array().unwrap();
        all.iter().find(|flow| flow["name"] == name).cloned().unwrap_or(Value::Null)
    }
    pub(crate) fn inside(&self, which: usize, command: &[&str]) -> Command {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.names[which]]).args(command);
        program
    }
}

/// Sends for 2 s to 10.2.0.2 from 10.1.0.1, each 5 ms what is due: 1000-byte packets to port 9 at ten times the line, and
/// to port 5004 at 0.9 Mbit/s.
const FLOOD: &str = "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
began, sent, film = time.time(), 0, 0
while True:
    now = time.time() - began
    if now > 2:
        break
    while sent * 8000 < now * 50e6:
        s.sendto(bytes(972), ('10.2.0.2', 9)); sent += 1
    while film * 8000 < now * 0.9e6:
        s.sendto(bytes(972), ('10.2.0.2', 5004)); film += 1
    time.sleep(0.005)
print(film, sent)
";

/// Counts packets to ports 5004 and 9 until none has come for a second.
const COUNT: &str = "
import select, socket
counts = {}
all = []
for port in (5004, 9):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    s.bind(('10.2.0.2', port))
    all.append(s); counts[port] = 0
print('ready', flush=True)
patience = 20
while True:
    ready = select.select(all, [], [], patience)[0]
    if not ready:
        break
    patience = 1
    for s in ready:
        s.recv(65536); counts[s.getsockname()[1]] += 1
print(counts[5004], counts[9])
";

/// What arrives under a flood: the share of the film's packets, and of all others.
fn flooded(net: &Net) -> (f64, f64) {
    let listener = net.inside(2, &["python3", "-c", COUNT]).stdout(Stdio::piped()).spawn();
    let mut listener = listener.unwrap();
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let numbers = |line: &str| -> Vec<f64> {
        line.split_whitespace().map(|word| word.parse().unwrap()).collect()
    };
    let sent = numbers(&said(&net.inside(0, &["python3", "-c", FLOOD]).output().unwrap(), 0));
    let arrived = numbers(&lines.next().unwrap().unwrap());
    listener.wait().unwrap();
    (arrived[0] / sent[0], arrived[1] / sent[1])
}

#[test]
fn a_reserved_flow_gets_its_rate_under_ten_times_the_line_d_32_d_45() {
    let Some(mut net) = Net::new("flood") else { return };
    if !has("python3") || !has("ethtool") {
        return;
    }
    for name in [&net.names[0], &net.names[2]] {
        let mut program = Command::new("ip");
        let arguments = ["netns", "exec", name, "ethtool", "-K", "e0", "tx", "off"];
        said(&program.args(arguments).output().unwrap(), 0);
    }
    net.write_lines("5 Mbit/s", "");
    net.start();
    net.pings("-c 1 10.2.0.2");
    let (film, others) = flooded(&net);
    assert!(film < 0.5 && others < 0.5, "without a reservation: {film} {others}");
    let told = net.reserve("film", FILM, &["--rate", "1 Mbit/s", "--json"], 0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["output"]["port"], "east", "{told:#}");
    assert_eq!(told["output"]["free"], 3_000_000, "{told:#}");
    // A router that gets no CPU time may lose some before they are taken.
    let mut tries = (0..3).map(|_| flooded(&net).0);
    let best = tries.find(|film| *film > 0.98);
    let flow = net.flow("film");
    assert!(best.is_some(), "{flow:#}");
    assert_eq!(flow["reserved"]["dropped"], 0, "{flow:#}");
    assert!(flow["packets"].as_u64().unwrap() > 200, "{flow:#}");
    // Nothing is lost in the account.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(net.json("ledger")["balance"]["packets_residual"], 0);
    // What it waited at most is within the bound, and what this machine's scheduler adds.
    let waited = flow["reserved"]["waited-most"].as_f64().unwrap();
    let bound = told["delay-bound"].as_f64().unwrap();
    println!("waited at most {:.1} ms, promised {:.1} ms", waited * 1e3, bound * 1e3);
    assert!(waited < bound + 0.2, "{waited} {bound}");
}

#[test]
fn both_ports_admit_or_neither_and_flows_end_by_themselves_d_44() {
    let Some(mut net) = Net::new("admit") else { return };
    net.write_lines("10 Mbit/s", "");
    // The output has less to give than the input.
    let text = std::fs::read_to_string(net.file()).unwrap();
    std::fs::write(net.file(), format!("{text}reservable = 0.5\n")).unwrap();
    net.start();
    net.pings("-c 1 10.2.0.2");
    let told = net.reserve("film", FILM, &["--rate", "4 Mbit/s"], 0);
    assert!(told.contains("output  east: 4 Mbit/s of 5 Mbit/s reserved, 1 Mbit/s free"), "{told}");
    let before = net.json("flows");
    let wrong = net.reserve("call", ALL, &["--rate", "2 Mbit/s"], 2);
    assert!(wrong.contains("flows.call: output port east refuses 2 Mbit/s"), "{wrong}");
    assert!(wrong.contains("1 Mbit/s is free; what input port west had granted"), "{wrong}");
    assert_eq!(net.json("flows")["accounts"], before["accounts"], "it left no trace");
    assert!(said(&net.router("get", &["flows.call"]), 2).contains("nothing is called"));
    let wrong = net.reserve("call", ALL, &["--rate", "9 Mbit/s"], 2);
    assert!(wrong.contains("input port west refuses 9 Mbit/s"), "{wrong}");
    let wrong = net.reserve("call", ALL, &["--from", "wset"], 2);
    assert!(wrong.contains("the ports are east, west"), "{wrong}");
    // Changes are taken back as any others; a line cannot be made shorter than what it has promised.
    let wrong = said(&net.router("set", &["ports.east.rate", "1 Mbit/s"]), 2);
    assert!(wrong.contains("flows.film: output port east refuses"), "{wrong}");
    said(&net.router("rollback", &[]), 0);
    assert_eq!(net.flow("film"), Value::Null);
    net.reserve("call", ALL, &["--rate", "5 Mbit/s", "--ttl", "1 s"], 0);
    net.pings("-c 2 10.2.0.2");
    assert_eq!(net.flow("call")["packets"], 2);
    // It is there as long as somebody wants it.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1600) {
        said(&net.router("refresh", &["call"]), 0);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_ne!(net.flow("call"), Value::Null);
    while net.flow("call") != Value::Null {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let audit = std::fs::read_to_string(net.folder.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"reserve\"") && audit.contains("\"expire\""), "{audit}");
    net.reserve("film", FILM, &["--rate", "4 Mbit/s"], 0);
    said(&net.router("release", &["film"]), 0);
    assert!(said(&net.router("release", &["film"]), 2).contains("there is no flow"));
    let boot = net.json("boot");
    let stages: Vec<_> = boot.as_array().unwrap().iter().map(|stage| &stage["stage"]).collect();
    assert!(stages.contains(&&Value::from("flows")), "{stages:?}");
    let ports = net.json("neighbours");
    let east = &ports["ports"][0];
    assert_eq!((&east["port"], &east["line"]), (&"east".into(), &10_000_000.into()));
    assert_eq!(east["neighbours"][0]["address"], "10.2.0.2", "{ports:#}");
}

#[test]
fn a_flow_waits_for_its_route_and_follows_it_d_45() {
    let Some(mut net) = Net::new("waits") else { return };
    let packets = "@10.1.0.0/16 203.0.113.0/24 0 : 65535 0 : 65535 0x00/0x00";
    net.write_lines(
        "10 Mbit/s",
        &format!("kernel-routes = true\n[flows.film]\nmatch = '{packets}'\nrate = '1 Mbit/s'"),
    );
    net.start();
    assert!(net.flow("film")["waits"].as_str().unwrap().contains("no route leads"));
    // It holds up nobody else.
    net.pings("-c 1 10.2.0.2");
    net.reserve("other", ALL, &["--rate", "1 Mbit/s"], 0);
    said(&net.router("release", &["other"]), 0);
    let wrong = net.reserve("far", packets, &["--rate", "1 Mbit/s"], 2);
    assert!(wrong.contains("flows.far: no route leads to its destination"), "{wrong}");
    ip(&format!("-n {} route add 203.0.113.0/24 via 10.2.0.2", net.names[1]));
    let began = Instant::now();
    while net.flow("film")["to"] != "east" {
        assert!(began.elapsed() < Duration::from_secs(10), "{:#}", net.flow("film"));
        std::thread::sleep(Duration::from_millis(50));
    }
    net.pings("-c 2 203.0.113.1");
    let flow = net.flow("film");
    assert_eq!(flow["reserved"]["within"], 2, "{flow:#}");
}

#[test]
fn what_is_not_in_the_destination_chooses_the_way_d_42_d_46() {
    let Some(mut net) = Net::new("policy") else { return };
    // Nothing leads to 203.0.113.1 but what a policy or a flow says.
    net.write(
        "policies = [\n{ from = '10.1.0.0/16', dscp = 46, via = '10.2.0.2' },\n\
         { port = 'west', dscp = 10, table = 'other' }]\n\
         [[routes]]\nprefix = '203.0.113.0/24'\n\
         [[routes]]\ntable = 'other'\nprefix = '203.0.113.1/32'\nvia = '10.2.0.2'\n\
         [nodes.b]\naddress = '10.2.0.2'",
    );
    net.start();
    net.pings("-c 1 10.2.0.2");
    assert!(!net.ping("-c 1 203.0.113.1").0);
    net.pings("-c 2 -Q 0xb8 203.0.113.1");
    net.pings("-c 2 -Q 0x28 203.0.113.1");
    assert!(!net.ping("-c 1 -Q 0x28 203.0.113.2").0, "that table has no route to it");
    net.pings("-c 1 -Q 0x28 10.2.0.2");
    // A flow with a route through a named node, and one with a next router of its own.
    let packets = "@10.1.0.1/32 203.0.113.1/32 0 : 65535 0 : 65535 0x01/0xFF";
    for way in [["--route", "b"], ["--via", "10.2.0.2"]] {
        let told = net.reserve("visit", packets, &way, 0);
        assert!(told.contains("leaves by east via 10.2.0.2"), "{told}");
        net.pings("-c 2 203.0.113.1");
        said(&net.router("release", &["visit"]), 0);
        assert!(!net.ping("-c 1 203.0.113.1").0);
    }
    let wrong = net.reserve("visit", packets, &["--route", "c"], 2);
    assert!(wrong.contains("there is no node `c`"), "{wrong}");
    let wrong = net.reserve("visit", packets, &["--via", "192.0.2.1"], 2);
    assert!(wrong.contains("is on no network to which a port is attached"), "{wrong}");
}

#[test]
fn all_that_a_rule_may_say_of_a_packet_d_29_d_36_d_66() {
    let Some(mut net) = Net::new("rules") else { return };
    net.write(
        "[plugins.no-ping]\nexpression = '(not (= protocol 1))'\n\
         [plugins.no-telnet]\nexpression = '(not (= destination-port 23))'\n\
         [plugins.short]\nexpression = '(< length 1000)'",
    );
    net.start();
    net.pings("-c 1 10.2.0.2");
    let set = |filters: &str| said(&net.router("set", &["filters", filters]), 0);
    // The longest prefix over all fields decides; a general filter comes first.
    set("[{ prefix = '10.2.0.0/16', action = 'deny' }]");
    assert!(!net.ping("-c 1 10.2.0.2").0);
    set("[{ prefix = '10.2.0.0/16', action = 'deny' }, { prefix = '10.2.0.2 10.1.0.0/16' }]");
    net.pings("-c 1 10.2.0.2");
    set(&format!(
        "[{{ prefix = '10.2.0.2 10.1.0.0/16' }}, {{ match = '{ALL}', action = 'deny' }}]"
    ));
    assert!(!net.ping("-c 1 10.2.0.2").0);
    // A filter of another port does not matter; copies go to the control processor, whole.
    set(&format!(
        "[{{ match = '{ALL}', from = 'east', action = 'deny' }}, {{ match = '{ALL}', copy = true }}]"
    ));
    net.pings("-c 3 -s 500 10.2.0.2");
    let out = net.folder.path().join("copies.pcapng");
    let arguments = ["--seconds", "0", "--out", out.to_str().unwrap()];
    let told = said(&net.router("copies", &arguments), 0);
    assert!(told.contains("3 packets; 0 were not copied"), "{told}");
    let bytes = std::fs::read(&out).unwrap();
    assert!(bytes.len() > 3 * 542 && bytes.windows(4).any(|part| part == b"west"));
    // A filter's packets are those of a flow, with its functions.
    net.reserve("mice", FILM, &["--function", "short"], 0);
    set(&format!("[{{ match = '{ALL}', flow = 'mice' }}]"));
    net.pings("-c 1 10.2.0.2");
    assert!(!net.ping("-c 2 -s 1200 10.2.0.2").0);
    assert_eq!(net.flow("mice")["packets"], 3);
    said(&net.router("rollback", &["2"]), 0);
    // Plugins where packets leave.
    said(&net.router("set", &["ports.east.departing", "['no-ping']"]), 0);
    assert!(!net.ping("-c 2 10.2.0.2").0);
    said(&net.router("set", &["ports.east.departing", "['short']"]), 0);
    net.pings("-c 2 10.2.0.2");
    assert!(!net.ping("-c 1 -s 1200 10.2.0.2").0);
    let plugins = net.json("plugins");
    assert_eq!(plugins["plugins"][0]["denied"], 2, "{plugins:#}");
    // An error about a packet at one output passes the plugins of the other.
    said(&net.router("set", &["ports.east.departing", "['no-telnet']"]), 0);
    said(&net.router("set", &["ports.west.departing", "['no-telnet']"]), 0);
    ip(&format!("-n {} link set west mtu 1300", net.names[1]));
    std::thread::sleep(Duration::from_millis(200));
    let arguments = ["ping", "-n", "-c", "1", "-W", "3", "-M", "do", "-s", "1400", "10.1.0.1"];
    let told = net.inside(2, &arguments).output().unwrap();
    assert!(String::from_utf8_lossy(&told.stdout).contains("1300"), "{told:?}");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(net.json("ledger")["balance"]["packets_residual"], 0);
}

#[test]
fn a_flow_s_functions_come_from_a_code_server_or_it_is_refused_whole_d_47_d_48() {
    let Some(mut net) = Net::new("server") else { return };
    let shop = shop();
    let server = Near::new(&net, shop.path());
    let keys = shop.path().join("keys");
    net.write("");
    net.start();
    net.pings("-c 1 -s 1200 10.2.0.2");
    let from = |function: &str, status: i32| {
        let own = ["--function", function, "--server", &server.1, "--keys", keys.to_str().unwrap()];
        net.reserve("mice", ALL, &own, status)
    };
    let wrong = from("nothing", 2);
    assert!(wrong.contains("plugins.mice--nothing: the server has no nothing"), "{wrong}");
    assert_eq!(net.flow("mice"), Value::Null);
    let told = from("small", 0);
    for stage in ["index", "signature", "module", "verify", "instantiate"] {
        assert!(told.contains(&format!("  {stage} mice--small ")), "{stage} is not in:\n{told}");
    }
    assert!(told.contains("  bind "), "{told}");
    net.pings("-c 2 10.2.0.2");
    assert!(!net.ping("-c 2 -s 1200 10.2.0.2").0);
    assert_eq!(net.json("plugins")["plugins"][0]["denied"], 2);
    // What was fetched is still there when the port processor is started again, with the server gone.
    drop(server);
    let pattern = format!("router port-processor {}", net.file().display());
    said(&Command::new("pkill").args(["-9", "-f", &pattern]).output().unwrap(), 0);
    net.waits("10.2.0.2");
    let began = Instant::now();
    while net.ping("-c 1 -s 1200 10.2.0.2").0 {
        assert!(began.elapsed() < Duration::from_secs(10), "its function is gone");
    }
    assert!(
        said(&net.router("show", &["metrics"]), 0).contains("{flow=\"mice\",count=\"packets\"}")
    );
    said(&net.router("release", &["mice"]), 0);
    net.pings("-c 1 -s 1200 10.2.0.2");
    assert_eq!(net.json("plugins")["plugins"], Value::Array(Vec::new()), "it went with the flow");
    // A module that was touched is refused, and nothing is changed.
    let module = shop.path().join("shop/small/1.1.0.wasm");
    let good = std::fs::read(&module).unwrap();
    std::fs::write(&module, &good[..good.len() - 1]).unwrap();
    let server = Near::new(&net, shop.path());
    let own =
        ["--function", "small@1.1.0", "--server", &server.1, "--keys", keys.to_str().unwrap()];
    let wrong = net.reserve("mice", ALL, &own, 2);
    assert!(wrong.contains("does not fit"), "{wrong}");
    assert_eq!(net.flow("mice"), Value::Null);
    let wrong = said(&net.router("get", &["plugins"]), 0);
    assert!(!wrong.contains("small"), "{wrong}");
}

/// A code server in the router's namespace, ended with the test.
struct Near(Child, String);

impl Near {
    fn new(net: &Net, shop: &Path) -> Near {
        let serve = [PROGRAM, "plugin", "serve", "shop", "--listen", "127.0.0.1:0"];
        let mut program = net.inside(1, &serve);
        let mut child = program.current_dir(shop).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Near(child, line.trim().to_owned())
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A second router, whose port processor ends and whose network goes with the test.
pub(crate) struct Far {
    pub(crate) namespace: String,
    pub(crate) folder: PathBuf,
}

impl Far {
    /// `lastmeterd router COMMAND FILE ...` of this router.
    pub(crate) fn router(&self, command: &str, arguments: &[&str]) -> Output {
        let mut program = Command::new(PROGRAM);
        program.args(["router", command]).arg(self.folder.join("router.toml"));
        program.arg("--run").arg(&self.folder).args(arguments).output().unwrap()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.router("end", &[]);
        // Its port processor goes on where its control processor was killed before.
        let pattern = self.folder.display().to_string();
        let _ = Command::new("pkill").args(["-9", "-f", &pattern]).output();
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

/// A second router in b's namespace, with a third network behind it: 10.3.0.1 - 10.3.0.2. `port` is added to each port.
pub(crate) fn second(net: &mut Net, port: &str) -> Far {
    let (b, far) = (net.names[2].clone(), format!("{}f", net.names[2]));
    ip(&format!("netns add {far}"));
    ip(&format!("link add south netns {b} type veth peer name e0 netns {far}"));
    ip(&format!("-n {b} addr add 10.3.0.1/24 dev south"));
    ip(&format!("-n {far} addr add 10.3.0.2/24 dev e0"));
    ip(&format!("-n {b} link set south up"));
    ip(&format!("-n {far} link set e0 up"));
    ip(&format!("-n {far} route add default via 10.3.0.1"));
    let folder = net.folder.path().join("second");
    std::fs::create_dir(&folder).unwrap();
    let text = format!(
        "lldp = true\n[ports.north]\ninterface = 'e0'\nrate = '10 Mbit/s'\n{port}\n\
         [ports.south]\ninterface = 'south'\nrate = '5 Mbit/s'\n{port}\n\
         [[routes]]\nprefix = '10.1.0.0/16'\nvia = '10.2.0.1'\n"
    );
    std::fs::write(folder.join("router.toml"), text).unwrap();
    let child = Command::new("ip")
        .args(["netns", "exec", &b, PROGRAM, "router", "run"])
        .arg(folder.join("router.toml"))
        .arg("--run")
        .arg(&folder)
        .stdout(Stdio::null())
        .spawn();
    net.children.push(child.unwrap());
    Far { namespace: far, folder }
}

#[test]
fn a_route_s_nodes_are_asked_in_turn_and_one_refusal_undoes_all_d_46() {
    let Some(mut net) = Net::new("nodes") else { return };
    let far = second(&mut net, "");
    net.write_lines(
        "20 Mbit/s",
        "lldp = true\n[nodes.b]\naddress = '10.2.0.2'\ncontrol = 'second/control.sock'\n",
    );
    net.start();
    let there = |command: &str, arguments: &[&str]| far.router(command, arguments);
    let began = Instant::now();
    while !there("show", &[]).status.success() {
        assert!(began.elapsed() < Duration::from_secs(20), "the second router did not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Each has heard of the other, and of the port that it is connected to.
    let routers = || net.json("neighbours")["ports"][0]["routers"].clone();
    let theirs = || said(&there("show", &["neighbours"]), 0);
    while routers()[0]["description"] != "north" || !theirs().contains("its port east (east)") {
        assert!(began.elapsed() < Duration::from_secs(30), "{:#}", routers());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(routers()[0]["port"], "e0");
    let packets = "@10.1.0.1/32 10.3.0.2/32 0 : 65535 0 : 65535 0x00/0x00";
    let own = ["--route", "b", "--rate", "4 Mbit/s", "--ttl", "60 s"];
    let told = net.reserve("film", packets, &own, 0);
    assert!(told.contains("output  east: 4 Mbit/s of 16 Mbit/s"), "{told}");
    assert!(told.contains("output  south: 4 Mbit/s of 4 Mbit/s"), "{told}");
    // There is no route to it but the flow's.
    net.waits("10.3.0.2");
    let own = ["--route", "b", "--rate", "1 Mbit/s"];
    let wrong = net.reserve("more", packets, &own, 2);
    assert!(wrong.contains("node b: flows.more: output port south refuses 1 Mbit/s"), "{wrong}");
    assert!(wrong.contains("what this router had granted was taken back"), "{wrong}");
    assert_eq!(net.flow("more"), Value::Null);
    let taken = |flows: &Value| flows["accounts"][1]["taken"].clone();
    assert_eq!(taken(&net.json("flows")), 4_000_000);
    said(&net.router("refresh", &["film"]), 0);
    said(&net.router("release", &["film"]), 0);
    let flows: Value =
        serde_json::from_str(&said(&there("show", &["flows", "--json"]), 0)).unwrap();
    assert_eq!((taken(&flows), &flows["flows"]), (0.into(), &Value::Array(Vec::new())));
    // One that goes says so.
    said(&there("end", &[]), 0);
    let began = Instant::now();
    while routers() != Value::Array(Vec::new()) {
        assert!(began.elapsed() < Duration::from_secs(10), "{:#}", routers());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_example_is_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/routers");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let mut program = Command::new(PROGRAM);
        program.args(["router", "check"]).arg(entry.unwrap().path());
        assert!(said(&program.output().unwrap(), 0).contains(" ports, "));
        count += 1;
    }
    assert!(count >= 4, "{count}");
}
