//! A tunnel over three routers: RSVP reserves at each, and packets go by labels. a - r1 - r2 - [bridge] - r3 - d. Needs
//! root, `ip`, `ping`; with `tshark` what passes the bridge is read by it, too.
//!
//! Rows: D-43.

use super::router::{Net, ip};
use super::{PROGRAM, has, said};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// a's echo requests to d.
const FILM: &str = "@10.1.0.1/32 10.4.0.2/32 0 : 65535 0 : 65535 0x01/0xFF";
/// What a router, and a busy machine, may take for a change.
const PATIENCE: Duration = Duration::from_secs(30);
/// Refreshes come each second on average, so nothing lives longer without one.
const LIFETIME: Duration = Duration::from_millis(5250);

/// Writes the frames that pass an interface to a file, until its input is closed.
const CAPTURE: &str = "
import select, socket, struct, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
out = open(sys.argv[2], 'wb')
out.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
print('ready', flush=True)
while True:
    ready = select.select([s, sys.stdin], [], [])[0]
    if s in ready:
        data, now = s.recv(65536), time.time()
        out.write(struct.pack('<IIII', int(now), int(now % 1 * 1e6), len(data), len(data)) + data)
    elif sys.stdin.read() == '':
        break
out.close()
";

/// A router beside that of [`Net`].
struct Router {
    namespace: String,
    folder: PathBuf,
    child: Option<Child>,
}

impl Router {
    fn new(net: &Net, name: &str, namespace: &str, text: &str) -> Router {
        let folder = net.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("router.toml"), text).unwrap();
        let mut router = Router { namespace: namespace.to_owned(), folder, child: None };
        router.start();
        router
    }
    fn start(&mut self) {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.namespace, PROGRAM, "router", "run"]);
        program.arg(self.folder.join("router.toml")).arg("--run").arg(&self.folder);
        self.child = Some(program.stdout(Stdio::null()).spawn().unwrap());
        waits_until(|| self.router("show", &[]).status.success(), || "it began".to_owned());
    }
    fn router(&self, command: &str, arguments: &[&str]) -> Output {
        let mut program = Command::new(PROGRAM);
        program.args(["router", command]).arg(self.folder.join("router.toml"));
        program.arg("--run").arg(&self.folder).args(arguments).output().unwrap()
    }
    fn json(&self, what: &str) -> Value {
        serde_json::from_str(&said(&self.router("show", &[what, "--json"]), 0)).unwrap()
    }
    /// Both of its processes end at once.
    fn kill(&mut self) {
        let pattern = self.folder.display().to_string();
        let _ = Command::new("pkill").args(["-9", "-f", &pattern]).output();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.router("end", &[]);
        self.kill();
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

fn waits_until(mut done: impl FnMut() -> bool, state: impl Fn() -> String) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{}", state());
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct Row {
    net: Net,
    second: Router,
    third: Router,
    /// The bridge and d.
    others: [String; 2],
}

impl Drop for Row {
    fn drop(&mut self) {
        for name in &self.others {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

impl Row {
    fn new(test: &str) -> Option<Row> {
        let mut net = Net::new(test)?;
        if !has("python3") {
            return None;
        }
        let b = net.names[2].clone();
        let [w, c, d] = ["w", "c", "d"].map(|part| format!("{b}{part}"));
        for name in [&w, &c, &d] {
            ip(&format!("netns add {name}"));
        }
        ip(&format!("link add south netns {b} type veth peer name w0 netns {w}"));
        ip(&format!("link add w1 netns {w} type veth peer name e0 netns {c}"));
        ip(&format!("link add south netns {c} type veth peer name e0 netns {d}"));
        ip(&format!("-n {w} link add br0 type bridge"));
        for port in ["w0", "w1"] {
            ip(&format!("-n {w} link set {port} master br0 up"));
        }
        ip(&format!("-n {w} link set br0 up"));
        for (name, port, address) in [
            (&b, "south", "10.3.0.1/24"),
            (&c, "e0", "10.3.0.2/24"),
            (&c, "south", "10.4.0.1/24"),
            (&d, "e0", "10.4.0.2/24"),
        ] {
            ip(&format!("-n {name} addr add {address} dev {port}"));
            ip(&format!("-n {name} link set {port} up"));
        }
        ip(&format!("-n {d} route add default via 10.4.0.1"));
        let port = |name: &str, interface: &str, rate: &str| {
            format!("[ports.{name}]\ninterface = '{interface}'\nrate = '{rate}'\nlabels = true\n")
        };
        let route = |to: &str, via: &str| format!("[[routes]]\nprefix = '{to}'\nvia = '{via}'\n");
        let head = "refresh = '1 s'\n";
        let text = [
            head,
            &port("west", "west", "20 Mbit/s"),
            &port("east", "east", "20 Mbit/s"),
            &route("10.3.0.0/24", "10.2.0.2"),
            &route("10.4.0.0/24", "10.2.0.2"),
        ];
        std::fs::write(net.file(), text.concat()).unwrap();
        net.start();
        // Packets of the second cross from one port processor to another.
        let two = "[processors.one]\nports = ['north']\n[processors.two]\nports = ['south']\n";
        let text = [
            head,
            two,
            &port("north", "e0", "20 Mbit/s"),
            &port("south", "south", "5 Mbit/s"),
            &route("10.1.0.0/16", "10.2.0.1"),
            &route("10.4.0.0/24", "10.3.0.2"),
        ];
        let second = Router::new(&net, "second", &b, &text.concat());
        let text = [
            head,
            &port("north", "e0", "20 Mbit/s"),
            &port("south", "south", "20 Mbit/s"),
            &route("10.1.0.0/16", "10.3.0.1"),
            &route("10.2.0.0/16", "10.3.0.1"),
        ];
        let third = Router::new(&net, "third", &c, &text.concat());
        let row = Row { net, second, third, others: [w, d] };
        row.net.waits("10.4.0.2");
        Some(row)
    }
    /// What all three say.
    fn shown(&self, what: &str) -> [Value; 3] {
        [self.net.json(what), self.second.json(what), self.third.json(what)]
    }
    /// Rates that each has granted.
    fn taken(&self) -> [Vec<u64>; 3] {
        let of = |shown: &Value| {
            let accounts = shown["accounts"].as_array().unwrap();
            accounts.iter().map(|own| own["taken"].as_u64().unwrap()).collect()
        };
        self.shown("labels").each_ref().map(of)
    }
    fn balances(&self) {
        std::thread::sleep(Duration::from_millis(200));
        for (at, ledger) in self.shown("ledger").iter().enumerate() {
            assert_eq!(ledger["balance"]["packets_residual"], 0, "router {at}: {ledger:#}");
        }
    }
    fn reserve(&self, name: &str, packets: &str, rate: &str, more: &[&str], status: i32) -> String {
        let own = [name, "--match", packets, "--rate", rate, "--rsvp", "10.3.0.2"];
        said(&self.net.router("reserve", &[&own[..], more].concat()), status)
    }
    fn capture(&self, file: &Path) -> Child {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.others[0], "python3", "-c", CAPTURE, "w1"]);
        program.arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        child
    }
}

/// The labels of a router's only flow: where its packets arrive with which, and leave with which; how many.
fn labels(shown: &Value) -> (Value, Value, Value) {
    let flows = shown["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 1, "{shown:#}");
    let flow = &flows[0];
    (flow["label"].clone(), flow["next-label"].clone(), flow["packets"].clone())
}

/// Lines of a capture as tshark reads it; none without tshark.
fn read(file: &Path, filter: &str, fields: &[&str]) -> Option<Vec<String>> {
    if Command::new("tshark").arg("-v").output().is_err() {
        println!("SKIP: tshark is not installed; what passed the bridge is not looked at");
        return None;
    }
    let mut program = Command::new("tshark");
    program.args(["-n", "-Y", filter, "-T", "fields", "-r"]).arg(file);
    fields.iter().for_each(|field| {
        program.args(["-e", field]);
    });
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[test]
fn a_reservation_through_three_routers_sets_labels_and_packets_go_by_them_d_43() {
    let Some(row) = Row::new("labels") else { return };
    let before = row.taken();
    let file = row.net.folder.path().join("bridge.pcap");
    let mut capture = row.capture(&file);
    let told = row.reserve("film", FILM, "3 Mbit/s", &[], 0);
    assert!(told.contains("output  east: 3 Mbit/s of 16 Mbit/s"), "{told}");
    assert!(told.contains("to 10.2.0.2, reserved as far as 10.3.0.2"), "{told}");
    assert!(told.contains("  rsvp as far as 10.3.0.2 "), "{told}");
    row.net.pings("-c 5 10.4.0.2");
    // Each router's next label is the one that the router behind told.
    let [first, second, third] = row.shown("labels").each_ref().map(labels);
    assert_eq!((&first.0, &first.1), (&Value::Null, &second.0));
    assert_eq!((&second.1, &third.1), (&third.0, &Value::Null));
    assert_eq!((first.2, second.2, third.2), (5.into(), 5.into(), 5.into()));
    let taken = row.taken();
    let sums = taken.each_ref().map(|own| own.iter().sum::<u64>());
    assert_eq!(sums, [6_000_000, 6_000_000, 3_000_000], "in and out; at the end in: {taken:?}");
    let text = said(&row.second.router("show", &["labels"]), 0);
    assert!(text.contains("south > 10.3.0.2") && text.contains("tunnel "), "{text}");
    // The hops between labels count as all others, and so does the room that a label takes.
    for (hops, who) in [("2", "From 10.2.0.2"), ("3", "From 10.3.0.2")] {
        let (_, told) = row.net.ping(&format!("-c 1 -t {hops} 10.4.0.2"));
        assert!(told.contains(who) && told.contains("Time to live exceeded"), "{told}");
    }
    let (_, told) = row.net.ping("-c 2 -M do -s 1472 10.4.0.2");
    assert!(told.contains("1496"), "{told}");
    row.balances();
    drop(capture.stdin.take());
    capture.wait().unwrap();
    if let Some(lines) = read(&file, "mpls && icmp.type == 8", &["mpls.label", "mpls.ttl"]) {
        // 64 hops less two; and one that ended behind.
        let expected = format!("{}\t62", second.1);
        let count = lines.iter().filter(|line| **line == expected).count();
        assert_eq!((count, lines.len()), (5, 6), "{lines:?}");
    }
    if let Some(lines) = read(&file, "rsvp", &["_ws.col.Info", "_ws.malformed", "_ws.expert"]) {
        for kind in ["PATH Message", "RESV Message"] {
            assert!(lines.iter().any(|line| line.contains(kind)), "{kind}: {lines:?}");
        }
        assert!(lines.iter().all(|line| line.ends_with("\t\t")), "{lines:?}");
    }

    // The second router has no room for another: nobody keeps anything.
    let other = "@10.1.0.1/32 10.4.0.2/32 0 : 65535 9 : 9 0x11/0xFF";
    let wrong = row.reserve("other", other, "2 Mbit/s", &[], 2);
    assert!(wrong.contains("router 10.2.0.2: it has not the bandwidth"), "{wrong}");
    assert!(wrong.contains("what this router had granted was taken back"), "{wrong}");
    waits_until(|| row.taken() == taken, || format!("{:?}", row.taken()));
    let paths = || row.shown("labels").map(|own| own["rsvp"]["paths"].as_array().unwrap().len());
    waits_until(|| paths() == [1, 1, 1], || format!("{:?}", paths()));
    let audit = std::fs::read_to_string(row.second.folder.join("audit.jsonl")).unwrap();
    assert!(audit.contains("rsvp refused") && audit.contains("output port south"), "{audit}");

    // It ends everywhere at once, not by silence.
    said(&row.net.router("release", &["film"]), 0);
    let began = Instant::now();
    waits_until(|| row.taken() == before, || format!("{:?}", row.taken()));
    println!("released everywhere after {:.1} s", began.elapsed().as_secs_f64());
    let expired = row.shown("labels").map(|own| own["rsvp"]["expired"].clone());
    assert_eq!(expired, [0, 0, 0].map(Value::from));
    row.net.pings("-c 2 10.4.0.2");

    // Labels by hand, and the second router sends packets on without one.
    let fixed = format!("{{ match = '{FILM}', next-label = 700, via = '10.2.0.2' }}");
    said(&row.net.router("set", &["flows.film", &fixed]), 0);
    let fixed = "{ label = 700, from = 'north', via = '10.3.0.2', next-label = 3 }";
    assert!(!row.net.ping("-c 1 10.4.0.2").0, "nobody knows the label");
    let counts = row.second.json("ports")["ports"][0]["counts"].clone();
    assert_eq!(counts["dropped/label"], 1, "{counts:#}");
    said(&row.second.router("set", &["flows.film", fixed]), 0);
    row.net.pings("-c 4 10.4.0.2");
    let second = labels(&row.second.json("labels"));
    assert_eq!(second, (700.into(), Value::Null, 4.into()));
    row.balances();
}

#[test]
fn a_tunnel_lives_by_refreshes_and_ends_by_silence_d_43() {
    let Some(mut row) = Row::new("refresh") else { return };
    row.reserve("film", FILM, "3 Mbit/s", &[], 0);
    let state = |row: &Row| row.shown("labels").each_ref().map(labels);
    let before = state(&row);
    std::thread::sleep(LIFETIME + Duration::from_secs(2));
    let after = state(&row);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((&before.0, &before.1), (&after.0, &after.1), "nothing has changed");
    }
    // A router without notice: what it had told is forgotten before it, what it had asked behind.
    row.second.kill();
    let ends = |row: &Row| {
        let (first, third) = (row.net.flow("film"), row.third.json("labels"));
        let waits = first["waits"].as_str().is_some_and(|why| why.contains("not refreshed"));
        let gone = third["flows"].as_array().is_some_and(Vec::is_empty);
        waits && gone && first["next-label"].is_null()
    };
    let began = Instant::now();
    waits_until(|| ends(&row), || format!("{:#}", row.net.flow("film")));
    println!("missed on both sides after {:.1} s", began.elapsed().as_secs_f64());
    let taken: u64 = row.third.json("labels")["accounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["taken"].as_u64().unwrap())
        .sum();
    assert_eq!(taken, 0);
    // It comes back with nothing, and is told all.
    row.second.start();
    let is_up = |row: &Row| row.net.flow("film")["next-label"].is_u64();
    waits_until(|| is_up(&row), || format!("{:#}", row.net.flow("film")));
    row.net.waits("10.4.0.2");
    let again = state(&row);
    assert_eq!((&again[0].1, &again[1].1), (&again[1].0, &again[2].0));
    let count = || labels(&row.second.json("labels")).2.as_u64().unwrap();
    let seen = count();
    row.net.pings("-c 3 10.4.0.2");
    assert_eq!(count(), seen + 3);
    row.balances();
    // One that ends by itself says so: nobody waits for its silence.
    let expired = |router: &Value| router["rsvp"]["expired"].as_u64().unwrap();
    let both = |row: &Row| [row.net.json("labels"), row.third.json("labels")];
    let before: Vec<u64> = both(&row).iter().map(expired).collect();
    said(&row.second.router("end", &[]), 0);
    let gone = |row: &Row| {
        let [first, third] = both(row);
        first["flows"][0]["next-label"].is_null() && third["flows"] == Value::Array(Vec::new())
    };
    waits_until(|| gone(&row), || format!("{:#?}", both(&row)));
    assert_eq!(both(&row).iter().map(expired).collect::<Vec<_>>(), before);
}
