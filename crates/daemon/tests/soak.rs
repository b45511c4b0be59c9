//! A router that is changed at random while packets pass: configuration, plugins, queues, links, FRR's restarts. And
//! one that somebody floods with all that a header may have wrong. Needs root, `ip`, `ping`, `python3`; FRR if it is
//! there.
//!
//! `LASTMETER_SOAK` and `LASTMETER_HOSTILE` say for how many seconds: ten minutes and one in `scripts/test-long`.
//!
//! Rows: D-27, D-40, D-79.

use super::frr::Frr;
use super::processors::{Star, came_from, receive, received, send, sum};
use super::router::ip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// How much memory may grow after the first third, however long it runs: room for what the allocator keeps. Set before
/// the first run.
const GROWS: u64 = 8 << 20;

/// Seconds from the environment.
fn seconds(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A sequence of choices that is the same in each run.
struct Chance(u64);

impl Chance {
    /// One of so many (Knuth's MMIX constants).
    fn of(&mut self, count: u64) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % count) as usize
    }
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.of(of.len() as u64)]
    }
}

/// Bytes in memory of each process of this router, by what it is.
fn memory(star: &Star) -> BTreeMap<&'static str, u64> {
    let folder = star.folder.path().display().to_string();
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |what| std::fs::read_to_string(entry.path().join(what)).unwrap_or_default();
        let line = read("cmdline").replace('\0', " ");
        if !line.contains(&folder) || !read("comm").starts_with("lastmeterd") {
            continue;
        }
        let part = ["router run", "router port-processor"].into_iter().find(|p| line.contains(p));
        let status = read("status");
        let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let size = size.and_then(|text| text.trim().strip_suffix(" kB"));
        if let (Some(part), Some(size)) = (part, size.and_then(|text| text.parse::<u64>().ok())) {
            found.insert(part, size << 10);
        }
    }
    found
}

/// The ledger balances, unless a port processor was too busy to be looked at with the others.
fn balances(star: &Star) -> bool {
    let ledger = star.json("ledger");
    if ledger["notes"].to_string().contains("not of one moment") {
        return false;
    }
    assert_eq!(ledger["balance"]["packets_residual"], 0, "{ledger:#}");
    true
}

/// Sums of all counters of all ports.
fn counts(star: &Star) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for port in star.json("ports")["ports"].as_array().unwrap() {
        for (name, count) in port["counts"].as_object().unwrap() {
            *all.entry(name.clone()).or_insert(0) += count.as_u64().unwrap_or(0);
        }
    }
    all
}

/// Whether a change was made; one may be refused, and says why.
fn made(output: &Output) -> bool {
    let status = output.status.code();
    assert!(matches!(status, Some(0 | 2)), "{output:?}");
    if status == Some(2) {
        assert!(!output.stderr.is_empty(), "refused without a word");
    }
    status == Some(0)
}

#[test]
fn random_changes_while_packets_pass_cost_no_memory_and_no_packet_is_unexplained() {
    let Some(mut star) = Star::new("soak", 3) else { return };
    let lasts = seconds("LASTMETER_SOAK", 12);
    star.write(
        "fpm = '127.0.0.1:2620'\n[plugins.x]\nexpression = '(< 0 length)'",
        "rate = '50 Mbit/s'",
    );
    let mut frr = Frr::alone(&star.router, star.folder.path());
    if frr.is_none() {
        println!("without restarts of FRR: there is none");
    }
    star.start();
    for (from, to) in [(1, 2), (1, 3)] {
        star.reaches(from, to);
    }
    const RATE: u64 = 2000;
    const FLOWS: u64 = 4;
    let count = lasts * RATE / FLOWS;
    let there = [2, 3].map(|k| receive(&star, k, u64::MAX / 2, lasts as f64 + 4.0));
    let mut senders =
        ["10.2.0.1", "10.3.0.1"].map(|to| send(&star, 1, to, [count, FLOWS, RATE, 200]));
    let (mut chance, mut tried, mut done, mut looked) = (Chance(lasts), 0, 0, 0);
    let (began, mut before) = (Instant::now(), None);
    let mut by_kind = [0; 9];
    while began.elapsed() < Duration::from_secs(lasts) {
        let port = format!("ports.p{}", 1 + chance.of(3));
        let kind = chance.of(by_kind.len() as u64);
        let set = |key: &str, value: &str| made(&star.router("set", &[key, value]));
        let good = match kind {
            0 => set(&format!("{port}.rate"), chance.one(&["20 Mbit/s", "50 Mbit/s", "90 Mbit/s"])),
            1 => {
                let queues = ["{ fq-codel = {} }", "{ qsdrr = { queues = 64, packets = 400 } }"];
                let others = ["{ drop-tail = { packets = 200 } }", "{ cake = {} }"];
                set(&format!("{port}.queue"), chance.one(&[queues, others].concat()))
            }
            2 => set("plugins.x", &format!("{{ expression = '(< {} length)' }}", chance.of(20))),
            3 => set(&format!("{port}.plugins"), chance.one(&["['x']", "[]"])),
            4 => {
                let deny = "[{ match = '@10.9.0.0/16 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF', \
                            action = 'deny' }]";
                set("filters", chance.one(&[deny, "[]"]))
            }
            5 => {
                ip(&format!("-n {} link set p3 down", star.router));
                std::thread::sleep(Duration::from_millis(50));
                ip(&format!("-n {} link set p3 up", star.router));
                true
            }
            6 => frr.as_mut().is_some_and(|frr| {
                frr.kill("zebra");
                frr.start("zebra");
                true
            }),
            7 => {
                let film = "@10.1.0.0/16 10.2.0.0/16 0 : 65535 5004 : 5004 0x11/0xFF";
                let flow = ["film", "--match", film, "--rate", "1 Mbit/s", "--ttl", "5 s"];
                made(&star.router("reserve", &flow))
            }
            _ => made(&star.router("rollback", &[])),
        };
        tried += 1;
        done += u64::from(good);
        by_kind[kind] += u64::from(good);
        if tried % 16 == 0 {
            looked += u64::from(balances(&star));
        }
        if before.is_none() && began.elapsed() > Duration::from_secs(lasts) / 3 {
            before = Some(memory(&star));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = memory(&star);
    println!("{done} of {tried} changes, by kind {by_kind:?}; {looked} looks at the ledger");
    for sender in &mut senders {
        assert!(sender.wait().unwrap().success());
    }
    let [stays, flaps] = there.map(received);
    assert!(done > tried / 3 && done > lasts / 2, "{done} of {tried}");
    // Both processes are the ones that began, and have not grown.
    let before = before.unwrap();
    println!("memory after a third {before:?}, at the end {after:?}");
    assert_eq!(before.len(), 2, "{before:?}");
    for (part, size) in &after {
        assert!(*size <= before[part] + GROWS, "{part}: {before:?} {after:?}");
    }
    let shown = star.json("ports");
    assert_eq!(shown["control"]["port-processors-started"], 1, "{shown:#}");
    assert_eq!(star.residual(), 0);
    // No route of these flows changed: their packets are in order, also those that waited for a neighbour behind a link
    // that came back, and those that are missing have a reason.
    for flows in [&stays, &flaps] {
        assert_eq!(sum(&flows["late"]), 0, "{flows}");
    }
    println!("{} came over the link that flaps", came_from(&flaps, 1));
    let all = counts(&star);
    let dropped: u64 = all
        .iter()
        .filter(|(name, _)| name.starts_with("dropped/") || *name == "overrun")
        .map(|(_, count)| count)
        .sum();
    let came = came_from(&stays, 1);
    println!("{came} of {} to where no link flaps, {dropped} were dropped", count * FLOWS);
    assert!(came + dropped >= count * FLOWS, "{all:#?}");
}

/// Sends what no host should, for some seconds, and prints how many: headers with fields at random, fragments, packets
/// that have come too far, source routes, and floods of ARP, neighbour discovery, ICMP and SYN.
const HOSTILE: &str = "
import random, socket, struct, sys, time
seconds, mac = float(sys.argv[1]), bytes.fromhex(sys.argv[2].replace(':', ''))
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('e0', 0))
own = s.getsockname()[4]
r = random.Random(7)
def total(data):
    data += bytes(len(data) % 2)
    n = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return n ^ 0xffff
def v4(body, protocol, to, ttl=64, fragment=0, options=b'', src=(10, 3, 0, 1)):
    head = struct.pack('!BBHHHBBH4s4s', 0x45 + len(options) // 4, 0, 20 + len(options) + len(body), r.getrandbits(16),
        fragment, ttl, protocol, 0, bytes(src), bytes(to)) + options
    return head[:10] + struct.pack('!H', total(head)) + head[12:] + body
def frame(kind, body, to=mac): return to + own + struct.pack('!H', kind) + body
def fuzzed():
    data = bytearray(frame(0x800, v4(bytes(r.randrange(80)), r.choice((1, 6, 17)), (10, 2, 0, 1))))
    for _ in range(r.randrange(1, 4)): data[r.randrange(12, len(data))] = r.getrandbits(8)
    return bytes(data[:r.randrange(14, len(data) + 1)])
every, all = b'\\xff' * 6, (10, 2, 0, 1)
kinds = [
    fuzzed, fuzzed, fuzzed,
    lambda: frame(0x800, v4(bytes(64), 17, all, fragment=r.getrandbits(16) & 0x3fff)),
    lambda: frame(0x800, v4(bytes(8), 17, all, ttl=r.randrange(3))),
    lambda: frame(0x800, v4(bytes(8), 17, all, options=bytes((r.choice((131, 137)), 7, 4, 10, 2, 0, 1, 0)))),
    lambda: frame(0x800, v4(bytes(8), 17, all, src=(r.choice((0, 127, 224, 240)), 0, 0, 1))),
    lambda: frame(0x800, v4(bytes(8), 17, (192, 0, 2, r.getrandbits(8)))),
    lambda: frame(0x806, struct.pack('!HHBBH', 1, 0x800, 6, 4, 1) + own + bytes((10, 3, 0, r.getrandbits(8))) +
        bytes(6) +
        bytes((10, 3, 0, 2)), every),
    lambda: frame(0x86dd, struct.pack('!IHBB', 6 << 28, 24, 58, 255) + r.randbytes(32) +
        struct.pack('!BBHI', 135, 0, 0, 0) +
        r.randbytes(16)),
    lambda: frame(0x800, v4(struct.pack('!BBHI', 8, 0, 0xf7ff, 0), 1, all)),
    lambda: frame(0x800, v4(struct.pack('!HHIIBBHHH', r.getrandbits(16), 80, 1, 0, 0x50, 2, 1024, 0, 0), 6, all)),
]
ready = [r.choice(kinds)() for _ in range(20000)]
print('ready', flush=True)
end, sent = time.monotonic() + seconds, 0
while time.monotonic() < end:
    for one in ready[:200]:
        try: s.send(one)
        except OSError: pass
    sent += 200
    ready = ready[200:] + ready[:200]
print(sent)
";

#[test]
fn hostile_packets_on_one_port_leave_the_others_alone_and_are_all_explained() {
    let Some(mut star) = Star::new("hostile", 3) else { return };
    let lasts = seconds("LASTMETER_HOSTILE", 4);
    star.write("", "");
    star.start();
    for (from, to) in [(1, 2), (3, 2)] {
        star.reaches(from, to);
    }
    let told = std::process::Command::new("ip")
        .args(["-n", &star.router, "-j", "link", "show", "p3"])
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let mac = told[0]["address"].as_str().unwrap().to_owned();
    let mut flood = star.at(3, &["python3", "-c", HOSTILE, &lasts.to_string(), &mac]);
    let mut flood = flood.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(flood.stdout.as_mut().unwrap(), &mut ready).unwrap();
    const RATE: u64 = 1000;
    const FLOWS: u64 = 4;
    let count = lasts * RATE / FLOWS;
    let receiver = receive(&star, 2, count * FLOWS, lasts as f64 + 4.0);
    let mut sender = send(&star, 1, "10.2.0.1", [count, FLOWS, RATE, 200]);
    let mut looked = 0;
    while flood.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(300));
        looked += u64::from(balances(&star));
    }
    assert!(sender.wait().unwrap().success());
    let told = received(receiver);
    let sent = String::from_utf8(flood.wait_with_output().unwrap().stdout).unwrap();
    let all = counts(&star);
    let dropped = all.iter().filter(|(name, count)| name.starts_with("dropped/") && **count > 0);
    let reasons: Vec<String> = dropped.map(|(name, count)| format!("{name} {count}")).collect();
    println!(
        "{} hostile frames; {}; {looked} looks at the ledger",
        sent.trim(),
        reasons.join(", ")
    );
    assert_eq!(star.residual(), 0);
    for reason in ["checksum", "source-route", "martian", "expired", "no-route", "truncated"] {
        assert!(all.get(&format!("dropped/{reason}")) > Some(&0), "{reason}: {all:#?}");
    }
    let shown = star.json("processors");
    let alive = |one: &Value| one["ended"].is_null();
    assert!(shown["processors"].as_array().unwrap().iter().all(alive), "{shown:#}");
    // The others: all arrive, in order, but what their interface lost because the machine was busy.
    assert_eq!(sum(&told["late"]), 0, "{told}");
    let (came, overrun) = (came_from(&told, 1), all.get("overrun").copied().unwrap_or(0));
    println!("{came} of {} of the others' packets", count * FLOWS);
    let explained = overrun
        + ["queue-full", "queue-drop", "input-full", "no-frame"]
            .map(|reason| all.get(&format!("dropped/{reason}")).copied().unwrap_or(0))
            .iter()
            .sum::<u64>();
    if came < count * FLOWS && explained > 0 {
        return println!("UNDECIDED: the machine was busy, {explained} packets did not get in");
    }
    assert_eq!(came, count * FLOWS, "{all:#?}");
    assert!(star.pings(3, 2), "and the port itself is still there");
}
