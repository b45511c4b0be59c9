//! Flows that their own first packet sets up, over two routers: a - r - b - far. Needs root, `ip`, `python3`.
//!
//! Rows: D-49.

use super::flows::{Far, second};
use super::router::Net;
use super::{has, said};
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The flow's name at a router.
const FLOW: &str = "in-band-10-1-0-1-5000-10-3-0-2-5004-17";
/// Packets after the first, 5 ms apart.
const COUNT: usize = 200;
/// How long a router, and a busy machine, may take for a change.
const PATIENCE: Duration = Duration::from_secs(15);

/// Sends a packet with an option of IPv4, and then some without.
const SEND: &str = "
import socket, sys, time
option, count = bytes.fromhex(sys.argv[1]), int(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('10.1.0.1', 5000))
s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, option)
s.sendto((0).to_bytes(4, 'big') + bytes(200), ('10.3.0.2', 5004))
s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b'')
for number in range(1, count + 1):
    time.sleep(0.005)
    s.sendto(number.to_bytes(4, 'big') + bytes(200), ('10.3.0.2', 5004))
";

/// Receives so many of them, or until nothing has come for five seconds; prints their numbers.
const RECEIVE: &str = "
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.3.0.2', 5004))
print('ready', flush=True)
numbers = []
while len(numbers) < int(sys.argv[1]) and select.select([s], [], [], 5)[0]:
    numbers.append(int.from_bytes(s.recv(2048)[:4], 'big'))
print(*numbers)
";

/// Waits for a refusal; prints where it came from and of which flow it is.
const REFUSED: &str = "
import select, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 253)
print('ready', flush=True)
if select.select([s], [], [], 15)[0]:
    packet, (who, _) = s.recvfrom(2048)
    flow = packet[(packet[0] & 15) * 4:]
    print(who, socket.inet_ntoa(flow[:4]), socket.inet_ntoa(flow[4:8]), *struct.unpack('!HHB', flow[8:13]))
";

/// Two routers that take part, and the second one's host.
struct Row {
    net: Net,
    far: Far,
}

/// The option: what, kilobits a second, seconds.
fn option(what: u8, kbits: u32, seconds: u8) -> String {
    let [a, b, c, d] = kbits.to_be_bytes();
    let option = [158, 12, 1, what, a, b, c, d, 0, 24, seconds, 0];
    option.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Row {
    fn new(test: &str) -> Option<Row> {
        let mut net = Net::new(test)?;
        if !has("python3") || !has("ethtool") {
            return None;
        }
        let far = second(&mut net, "in-band = true");
        for name in [&net.names[0], &far.namespace] {
            let mut program = Command::new("ip");
            let arguments = ["netns", "exec", name, "ethtool", "-K", "e0", "tx", "off"];
            said(&program.args(arguments).output().unwrap(), 0);
        }
        let text = "[ports.west]\ninterface = 'west'\nrate = '20 Mbit/s'\nin-band = true\n\
             [ports.east]\ninterface = 'east'\nrate = '20 Mbit/s'\nin-band = true\n\
             [[routes]]\nprefix = '10.3.0.0/24'\nvia = '10.2.0.2'\n";
        std::fs::write(net.file(), text).unwrap();
        net.start();
        let began = Instant::now();
        while !far.router("show", &[]).status.success() {
            assert!(began.elapsed() < PATIENCE, "the second router did not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        let row = Row { net, far };
        row.net.waits("10.3.0.2");
        Some(row)
    }
    /// A program in a's or far's namespace that has said that it is ready.
    fn listens(&self, far: bool, program: &[&str]) -> Child {
        let name = if far { &self.far.namespace } else { &self.net.names[0] };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, "python3", "-c"]).args(program);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        child
    }
    fn sends(&self, option: &str, count: usize) {
        let count = count.to_string();
        let mut sender = self.net.inside(0, &["python3", "-c", SEND, option, &count]);
        said(&sender.output().unwrap(), 0);
    }
    /// What both routers say of flows.
    fn flows(&self) -> [Value; 2] {
        let theirs = said(&self.far.router("show", &["flows", "--json"]), 0);
        [self.net.json("flows"), serde_json::from_str(&theirs).unwrap()]
    }
    /// Waits until so many flows are set up at the first router, and at the second.
    fn has(&self, wanted: [usize; 2]) -> [Value; 2] {
        let began = Instant::now();
        loop {
            let flows = self.flows();
            let counts = flows.each_ref().map(|own| own["flows"].as_array().unwrap().len());
            if counts == wanted {
                return flows;
            }
            assert!(began.elapsed() < PATIENCE, "{wanted:?}: {flows:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    fn audits(&self) -> [String; 2] {
        let read = |folder: &std::path::Path| {
            std::fs::read_to_string(folder.join("audit.jsonl")).unwrap_or_default()
        };
        [read(self.net.folder.path()), read(&self.far.folder)]
    }
}

/// What a listener printed.
fn told(child: Child) -> String {
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

/// Rates that a router has granted: of each port, input and output.
fn taken(flows: &Value) -> Vec<u64> {
    let accounts = flows["accounts"].as_array().unwrap();
    accounts.iter().map(|own| own["taken"].as_u64().unwrap()).collect()
}

#[test]
fn the_first_packet_sets_its_flow_up_and_waits_for_nobody_d_49() {
    let Some(row) = Row::new("inband") else { return };
    let receiver = row.listens(true, &[RECEIVE, &(COUNT + 1).to_string()]);
    row.sends(&option(0, 1000, 60), COUNT);
    let numbers = told(receiver);
    let numbers: Vec<usize> = numbers.split_whitespace().map(|n| n.parse().unwrap()).collect();
    // Nothing was sent back: the first packet came without a round trip before it, and the others behind it.
    assert_eq!(numbers, (0..=COUNT).collect::<Vec<_>>());
    let flows = row.has([1, 1]);
    for (own, out) in flows.iter().zip(["east", "south"]) {
        let flow = &own["flows"][0];
        assert_eq!((&flow["name"], &flow["to"]), (&FLOW.into(), &out.into()), "{own:#}");
        assert_eq!(flow["rate"], 1_000_000, "{own:#}");
        assert_eq!(taken(own).iter().sum::<u64>(), 2_000_000, "input and output: {own:#}");
        let served = flow["packets"].as_u64().unwrap() as usize;
        println!("{out}: {served} of {} packets found the reservation", COUNT + 1);
        // One at least went before it was there; a busy machine may take half of the second.
        assert!(served <= COUNT && served > COUNT / 2, "{own:#}");
    }
    // It ends by its last packet, everywhere; and another by itself, if nobody asks again.
    row.sends(&option(1, 0, 0), 0);
    row.has([0, 0]);
    row.sends(&option(0, 1000, 2), 0);
    row.has([1, 1]);
    row.has([0, 0]);
    assert!(row.audits().iter().all(|audit| audit.contains("\"expire\"")), "{:?}", row.audits());
    // None of that is a change of people's, and a port that does not take part hears nothing.
    let none = row.net.router("rollback", &[]);
    assert!(said(&none, 2).contains("only 0 changes"));
    said(&row.net.router("set", &["ports.west.in-band", "false"]), 0);
    row.sends(&option(0, 1000, 60), 0);
    row.has([0, 1]);
    assert_eq!(row.net.json("ledger")["balance"]["packets_residual"], 0);
}

#[test]
fn a_router_that_refuses_has_both_sides_of_it_take_back_what_they_granted_d_49() {
    let Some(row) = Row::new("inbandno") else { return };
    // The second router's line to far has 4 Mbit/s for reservations.
    let [near, beyond] = [false, true].map(|far| row.listens(far, &[REFUSED]));
    let receiver = row.listens(true, &[RECEIVE, "11"]);
    row.sends(&option(0, 4500, 60), 10);
    let refusal = "10.1.0.1 10.3.0.2 5000 5004 17";
    assert_eq!(told(near), format!("10.2.0.2 {refusal}"));
    assert_eq!(told(beyond), format!("10.2.0.2 {refusal}"));
    assert_eq!(told(receiver).split_whitespace().count(), 11, "its packets arrive nevertheless");
    let flows = row.has([0, 0]);
    assert!(flows.iter().all(|own| taken(own).iter().all(|taken| *taken == 0)), "{flows:#?}");
    let [first, second] = row.audits();
    assert!(first.contains("\"reserve\"") && first.contains("refused elsewhere"), "{first}");
    assert!(second.contains("in-band refused") && second.contains("output port south"), "{second}");

    // The first one has no room: the second has granted it, and takes it back.
    let other = "@10.1.0.9/32 10.3.0.9/32 0 : 65535 0 : 65535 0x11/0xFF";
    let by_hand = ["other", "--match", other, "--rate", "14 Mbit/s"];
    said(&row.net.router("reserve", &by_hand), 0);
    let near = row.listens(false, &[REFUSED]);
    row.sends(&option(0, 3500, 60), 0);
    assert_eq!(told(near), format!("10.1.0.2 {refusal}"));
    let began = Instant::now();
    while !row.audits()[1].contains("refused elsewhere") {
        assert!(began.elapsed() < PATIENCE, "{:?}", row.audits());
        std::thread::sleep(Duration::from_millis(50));
    }
    let flows = row.has([1, 0]);
    assert_eq!(flows[0]["flows"][0]["name"], "other");
}
