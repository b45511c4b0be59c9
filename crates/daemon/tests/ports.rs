//! Ports of a running router: plugins exchanged while packets pass, other queues on a line, several virtual interfaces on one
//! port. Needs root, `ip`, `ping`, `python3`.
//!
//! Rows: D-17, D-20, D-79, E-133.

use super::processors::{Star, receive, received, send, sum};
use super::said;

/// Packets of one flow lose none while the plugin of another is exchanged. What the interface lost because the machine was
/// busy has its own counter; an attempt in which it lost some decides nothing.
#[test]
fn a_plugin_is_exchanged_while_packets_pass_and_other_flows_lose_none_d_17() {
    let Some(mut star) = Star::new("swap", 2) else { return };
    const COUNT: u64 = 3000;
    let plugin = |least: u64| format!("{{ expression = '(< {least} length)' }}");
    star.write(
        "[plugins.x]\nexpression = '(< 0 length)'\n[[filters]]\nplugin = 'x'\n\
         match = '@10.1.0.0/24 10.2.0.9/32 0 : 65535 0 : 65535 0x00/0x00'",
        "",
    );
    star.start();
    star.reaches(1, 2);
    // The other flow's destination: its packets pass the plugin.
    super::router::ip(&format!("-n {} addr add 10.2.0.9/24 dev e0", star.hosts[1]));
    for attempt in 1..=4 {
        let before = star.json("plugins");
        let receiver = receive(&star, 2, u64::MAX / 2, 6.0);
        let others = send(&star, 1, "10.2.0.1", [COUNT / 8, 8, 1000, 200]);
        let passing = send(&star, 1, "10.2.0.9", [COUNT / 2, 1, 500, 200]);
        let (mut exchanged, mut children) = (0, [others, passing]);
        while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            said(&star.router("set", &["plugins.x", &plugin(exchanged % 50)]), 0);
            exchanged += 1;
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let told = received(receiver);
        let shown = star.json("plugins");
        let overrun = |shown: &serde_json::Value| -> u64 {
            let ports = shown["ports"].as_array().unwrap().iter();
            ports.map(|port| port["counts"]["overrun"].as_u64().unwrap_or(0)).sum()
        };
        let (came, lost) = (sum(&told["came"]), overrun(&shown) - overrun(&before));
        println!("attempt {attempt}: {came} packets, {exchanged} exchanges, {lost} overrun");
        assert!(exchanged >= 10, "{exchanged}");
        assert_eq!(sum(&told["late"]), 0, "{told}");
        // The plugin saw packets after the last exchange as well: it is the new one that runs.
        assert_eq!(shown["plugins"][0]["failures"], 0, "{shown:#}");
        if lost == 0 {
            assert_eq!(came, COUNT / 8 * 8 + COUNT / 2, "{told} {shown:#}");
            return assert_eq!(star.residual(), 0);
        }
    }
    println!("UNDECIDED: the machine was busy, packets were lost before the router took them");
}

/// How far from equal the shares of two flows may be: set before the first run.
const FAIR: f64 = 0.1;
/// For how long both have to have packets waiting before that is judged, in seconds.
const TOGETHER: f64 = 2.0;

/// Sends numbered packets that say when they were sent: to, packets a second, bytes.
const SEND: &str = "
import socket, sys, time
to, rate, size = sys.argv[1], *map(int, sys.argv[2:4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((to, 7000))
fill = bytes(size - 12)
began, sent = time.monotonic(), 0
while time.monotonic() - began < 120:
    # Before somebody listens there, packets are refused.
    try: s.send(sent.to_bytes(4, 'big') + time.time_ns().to_bytes(8, 'big') + fill)
    except OSError: pass
    sent += 1
    ahead = sent / rate - (time.monotonic() - began)
    if ahead > 0.002: time.sleep(ahead)
";

/// Receives them for some seconds; prints who sent each, its number, when it was sent, and when this kernel got it.
const RECEIVE: &str = "
import json, select, socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35
s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
s.bind(('0.0.0.0', 7000))
came, end = [], time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    if not select.select([s], [], [], 0.1)[0]: continue
    data, stamps, _, who = s.recvmsg(2048, 64)
    seconds, ns = struct.unpack('qq', stamps[0][2][:16])
    number, sent = int.from_bytes(data[:4], 'big'), int.from_bytes(data[4:12], 'big')
    came.append([who[0], number, sent, seconds * 10**9 + ns])
print(json.dumps(came))
";

/// When something was, in ns: times that do not meet, in order.
type Times = Vec<(u64, u64)>;

/// When at least one of these was on its way.
fn union(mut times: Times) -> Times {
    times.sort_unstable();
    let mut all = Times::new();
    for (from, until) in times {
        match all.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => all.push((from, until)),
        }
    }
    all
}

/// What is in both.
fn both(one: &[(u64, u64)], other: &[(u64, u64)]) -> Times {
    let meet = |a: &(u64, u64)| {
        let a = *a;
        let of = other.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1)));
        of.filter(|(from, until)| from < until)
    };
    one.iter().flat_map(meet).collect()
}

#[test]
fn times_are_joined_and_intersected() {
    let one = union(vec![(5, 9), (0, 2), (8, 12), (2, 3)]);
    assert_eq!(one, [(0, 3), (5, 12)]);
    assert_eq!(both(&one, &[(1, 6), (11, 20)]), [(1, 3), (5, 6), (11, 12)]);
}

/// Of the packets of hosts 1 and 2 that came while both had some on their way, the share of the first; and for how many
/// seconds both had. How late the senders begin, and how evenly a busy machine lets them send, does not matter to that.
fn share(star: &Star, packets: &[(u64, u64, u64, u64)]) -> (f64, f64) {
    let of = |k: u64| packets.iter().filter(move |packet| packet.0 == k);
    let waiting = |k| union(of(k).map(|(_, _, sent, came)| (*sent, *came)).collect());
    let together = both(&waiting(1), &waiting(2));
    let within = |k| {
        let in_it = |at: u64| together.iter().any(|(from, until)| (*from..=*until).contains(&at));
        of(k).filter(|packet| in_it(packet.3)).count() as f64
    };
    for k in [1, 2] {
        let numbers: Vec<u64> = of(k).map(|packet| packet.1).collect();
        assert!(numbers.is_sorted(), "packets of host {k} out of order: {:#}", star.json("ports"));
    }
    let seconds = together.iter().map(|(from, until)| until - from).sum::<u64>() as f64 / 1e9;
    (within(1) / (within(1) + within(2)).max(1.0), seconds)
}

/// On a line of 2 Mbit/s, a flow that offers four times as much as another gets no more, with today's disciplines for that,
/// as long as both have packets waiting. Without them a second flow that offers less than half of the line loses most of
/// it; with them it would lose none.
#[test]
fn cake_fq_pie_and_fq_codel_share_the_line_of_a_running_port_d_79() {
    let Some(mut star) = Star::new("cake", 3) else { return };
    star.write("", "rate = '2 Mbit/s'");
    star.start();
    for from in [1, 2] {
        star.reaches(from, 3);
    }
    // 1000 bytes and the headers of UDP, IPv4 and the line.
    const LINE: f64 = 2e6 / (8.0 * (1000.0 + 8.0 + 20.0 + 38.0));
    const SECONDS: f64 = 5.0;
    let set = |queue: &str| said(&star.router("set", &["ports.p3.queue", queue]), 0);
    let once = |queue: &str, rates: [u64; 2]| {
        // Nothing of the last one waits any longer.
        set("{ drop-tail = { packets = 1 } }");
        std::thread::sleep(std::time::Duration::from_millis(50));
        set(queue);
        let mut senders = [1, 2].map(|k: usize| {
            let rate = rates[k - 1].to_string();
            let program = ["python3", "-c", SEND, "10.3.0.1", &rate, "1000"];
            star.at(k, &program).spawn().unwrap()
        });
        let receiver = star.at(3, &["python3", "-c", RECEIVE, &SECONDS.to_string()]).output();
        for sender in &mut senders {
            sender.kill().unwrap();
            sender.wait().unwrap();
        }
        let told: Vec<(String, u64, u64, u64)> =
            serde_json::from_slice(&receiver.unwrap().stdout).unwrap();
        let from = |address: &str| if address == "10.1.0.1" { 1 } else { 2 };
        let packets =
            told.iter().map(|(who, number, sent, came)| (from(who), *number, *sent, *came));
        packets.collect::<Vec<_>>()
    };
    for (queue, fair, rates) in [
        ("{ cake = {} }", true, [1600, 400]),
        ("{ fq-pie = {} }", true, [1600, 400]),
        ("{ fq-codel = {} }", true, [1600, 400]),
        // Evenly spaced packets of both keep a phase, so equal queues can favour either; sixteen times as many cannot hide.
        ("{ drop-tail = { packets = 50 } }", false, [1600, 100]),
    ] {
        let mut decided = false;
        for _ in 0..4 {
            let packets = once(queue, rates);
            // A shaper that was kept from running makes up for 50 ms.
            let most = LINE * (SECONDS + 0.2) * 1.05;
            assert!((packets.len() as f64) < most, "{queue}: {} of {most}", packets.len());
            let (share, seconds) = share(&star, &packets);
            println!(
                "{queue}: the flow that offers {} of {} gets {share:.3} of {seconds:.1} s",
                rates[0],
                rates[0] + rates[1]
            );
            if seconds < TOGETHER {
                continue;
            }
            match fair {
                true => assert!((share - 0.5).abs() <= FAIR, "{queue}: {share}"),
                // Fair shares would be 135 and 100 of the 235 packets a second that the line takes.
                false => assert!(share > 135.0 / 235.0 + FAIR, "{queue}: {share}"),
            }
            decided = true;
            break;
        }
        if !decided {
            println!("UNDECIDED: {queue}: both flows never had packets waiting for {TOGETHER} s");
        }
    }
    assert_eq!(star.residual(), 0);
}

/// Every policy of reception forwards all that a line takes, is changed while packets pass, and changed back.
#[test]
fn every_policy_of_reception_forwards_e_133() {
    let Some(mut star) = Star::new("receive", 2) else { return };
    star.write("receive = 'interrupts'", "");
    star.start();
    star.reaches(1, 2);
    const COUNT: u64 = 1000;
    let overrun = || -> u64 {
        let ports = star.json("ports");
        let ports = ports["ports"].as_array().unwrap().iter();
        ports.map(|port| port["counts"]["overrun"].as_u64().unwrap_or(0)).sum()
    };
    for policy in ["interrupts", "polling", "timed", "explicit", "backoff", "mixed"] {
        said(&star.router("set", &["receive", policy]), 0);
        let before = overrun();
        let receiver = receive(&star, 2, COUNT, 40.0);
        let sender = send(&star, 1, "10.2.0.1", [COUNT / 4, 4, 2000, 200]);
        assert!(sender.wait_with_output().unwrap().status.success());
        let told = received(receiver);
        let (came, lost) = (sum(&told["came"]), overrun() - before);
        println!("{policy}: {came} packets, {lost} overrun");
        assert_eq!(sum(&told["late"]), 0, "{policy}: {told}");
        // A machine that is busy for a moment makes the interface lose some.
        assert!(came + lost >= COUNT && came > 0, "{policy}: {told}");
    }
    let wrong = said(&star.router("set", &["receive", "sometimes"]), 2);
    assert!(wrong.contains("mixed"), "{wrong}");
    said(&star.router("rollback", &["3"]), 0);
    assert_eq!(said(&star.router("get", &["receive"]), 0).trim(), "timed");
    assert!(star.pings(1, 2));
    assert_eq!(star.residual(), 0);
}

/// Two virtual interfaces on one port, each a port of the router with its own network, filters and line.
#[test]
fn a_port_has_several_virtual_interfaces_d_20() {
    let Some(mut star) = Star::new("virtual", 2) else { return };
    let (router, host) = (star.router.clone(), star.hosts[1].clone());
    super::router::ip(&format!("-n {router} addr flush dev p2"));
    for v in 1..=2 {
        let add = format!("-n {router} link add v{v} link p2 type macvlan mode bridge");
        let made = std::process::Command::new("ip").args(add.split_whitespace()).output().unwrap();
        if !made.status.success() {
            return println!("SKIP: no macvlan: {}", String::from_utf8_lossy(&made.stderr));
        }
        super::router::ip(&format!("-n {router} addr add 10.2{v}.0.2/24 dev v{v}"));
        super::router::ip(&format!("-n {router} link set v{v} up"));
        super::router::ip(&format!("-n {host} addr add 10.2{v}.0.1/24 dev e0"));
    }
    super::router::ip(&format!("-n {host} route replace default via 10.21.0.2"));
    let text = "[ports.p1]\ninterface = 'p1'\n[ports.v1]\ninterface = 'v1'\n\
                [ports.v2]\ninterface = 'v2'\nrate = '1 Mbit/s'\n";
    std::fs::write(star.folder.path().join("router.toml"), text).unwrap();
    star.start();
    let ping = |to: &str| {
        let ping = ["ping", "-n", "-i", "0.05", "-W", "1", "-c", "3", to];
        star.at(1, &ping).output().unwrap().status.success()
    };
    let began = std::time::Instant::now();
    while !(ping("10.21.0.1") && ping("10.22.0.1")) {
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:#}", star.json("ports"));
    }
    let sent = |port: usize| star.json("ports")["ports"][port]["counts"]["sent"].as_u64().unwrap();
    assert!(sent(1) > 0 && sent(2) > 0, "each has its own counts");
    // A filter of the one does not touch the other.
    let deny =
        "[{ match = '@0.0.0.0/0 10.22.0.0/24 0 : 65535 0 : 65535 0x01/0xFF', action = 'deny' }]";
    said(&star.router("set", &["filters", deny]), 0);
    assert!(ping("10.21.0.1") && !ping("10.22.0.1"));
    assert_eq!(star.residual(), 0);
}
