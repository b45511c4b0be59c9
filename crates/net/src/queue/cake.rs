//! CAKE: a queue for each flow under COBALT (CoDel with BLUE beside it), served by deficit round robin that is also
//! fair to hosts.
//!
//! ```text
//!      /-> queue 0 [ ... ] COBALT -\      sparse queues first; a turn's quantum is divided by how many
//! in --+-> queue 1 [ ... ] COBALT --+-->  queues the busier of the two hosts has
//!      \-> ...             COBALT -/
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                                |
//! |-----------|---------|----------|------------------------------------------------------------------------|
//! | `queues`  | queues  | 1024     | number of queues onto which flows are hashed                           |
//! | `hosts`   | flag    | true     | whether a turn's quantum is divided among the queues of a host         |
//! | `rtt`     | time    | 100 ms   | interval of COBALT; its target is a twentieth, at least 1.5 packet times |
//! | `mtu`     | size    | 1500 B   | packet whose transmission time limits the target                       |
//! | `ecn`     | flag    | true     | mark if both ends support ECN                                          |
//! | `packets` | packets | no limit | limit on packets in all queues                                         |
//! | `bytes`   | size    | 4 MiB    | limit on bytes in all queues                                           |
//!
//! The quantum is what the line sends in 1/4096 s, but at least 300 and at most 1514 B. When full, the oldest packet
//! of the queue with the most bytes is dropped, and that queue's BLUE drops more from then on. (D-79)
//!
//! Source: Høiland-Jørgensen, Täht & Morton, Piece of CAKE, LANMAN 2018, §3 (flow isolation, COBALT), and the
//! constants of `sch_cake` in Linux: BLUE adds 1/256 when its queue overflows, at most once per target time, and
//! subtracts 1/4096 when it is empty. Deviations: there is one tin and no shaper, because the link has its own rate
//! (for classes and shapers, see `priority`, `h-pfq` and `token-bucket`). The hash is plain, not 8-way
//! set-associative. A packet has no source, so a flow's hosts are its path and its destination. Decaying queues are
//! kept like any others.

use super::codel;
use super::flows::{Bank, By, Classifier, End, PACKETS, QUEUES_MAX, Room, Unit, of_bank};
use super::red::MARKED;
use super::turns::Turns;
use super::{Described, LONG, Queue, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Ecn, Packet, Rate, Stream, Time, here};
use std::collections::BTreeMap;

/// What BLUE adds when its queue overflows.
const INCREMENT: f64 = 1.0 / 256.0;
/// What it takes away when its queue is empty.
const DECREMENT: f64 = 1.0 / 4096.0;
/// Bounds of the quantum.
const QUANTUM: (u64, u64) = (300, 1514);
/// A quantum is what the line sends in a second, divided by this.
const QUANTA_PER_SECOND: u64 = 4096;

/// Options of CAKE; see the table above.
#[derive(Clone, Copy, Debug)]
pub struct CakeOptions {
    /// The number of queues; `None`: one for each flow.
    pub queues: Option<usize>,
    /// Whether hosts share the line, and each host's flows its share.
    pub hosts: bool,
    /// The round-trip time for which it is tuned.
    pub rtt: Duration,
    /// The packet whose transmission time limits the target.
    pub mtu: Bytes,
    /// Whether packets are marked.
    pub ecn: bool,
    /// Limit on all queues together.
    pub room: Room,
    /// The rate of the line; `None` if that is not constant.
    pub rate: Option<Rate>,
}

impl CakeOptions {
    /// The values of Linux.
    pub fn usual() -> CakeOptions {
        CakeOptions {
            queues: Some(1024),
            hosts: true,
            rtt: Duration::from_ms(100),
            mtu: Bytes(1500),
            ecn: true,
            room: Room { packets: u64::MAX, bytes: Bytes::from_mib(4) },
            rate: None,
        }
    }
    fn quantum(&self) -> Bytes {
        let (least, most) = QUANTUM;
        let bytes = self.rate.map_or(most, |rate| rate.as_bits() / 8 / QUANTA_PER_SECOND);
        Bytes(bytes.clamp(least, most))
    }
}

/// COBALT's times.
#[derive(Clone, Copy, Debug)]
struct Times {
    target: Duration,
    interval: Duration,
    /// Transmission time of a packet.
    packet: Duration,
    ecn: bool,
}

impl Times {
    fn of(options: &CakeOptions) -> Times {
        let packet = options.rate.map_or(Duration::ZERO, |rate| rate.time_for(options.mtu));
        let usual = options.rtt / 20;
        let target = usual.max(packet * 3 / 2);
        let interval = (options.rtt + target.saturating_sub(usual)).max(target * 2);
        Times { target, interval, packet, ecn: options.ecn }
    }
}

/// CoDel's law with a drop probability beside it.
#[derive(Clone, Copy, Debug, Default)]
struct Cobalt {
    count: u64,
    drop_next: Time,
    dropping: bool,
    p: f64,
    p_changed: Time,
}

/// What happens to a packet at the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Marked,
    /// Dropped, and why.
    Dropped(&'static str),
}

impl Cobalt {
    fn schedule(&mut self, from: Time, times: &Times) {
        self.drop_next = codel::next(from, times.interval, self.count);
    }
    /// Its queue overflowed.
    fn overflowed(&mut self, now: Time, times: &Times) {
        if now.saturating_since(self.p_changed) > times.target {
            self.p = (self.p + INCREMENT).min(1.0);
            self.p_changed = now;
        }
        (self.dropping, self.drop_next) = (true, now);
        self.count = self.count.max(1);
    }
    /// Its queue is empty.
    fn emptied(&mut self, now: Time, times: &Times) {
        if self.p > 0.0 && now.saturating_since(self.p_changed) > times.target {
            self.p = (self.p - DECREMENT).max(0.0);
            self.p_changed = now;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.schedule(self.drop_next, times);
        }
    }
    /// Decides about the packet at the head, while `busy` queues are backlogged.
    fn fate(
        &mut self,
        now: Time,
        packet: &Packet,
        times: &Times,
        busy: u64,
        random: &mut Stream,
    ) -> Fate {
        let sojourn = now.saturating_since(packet.entered);
        let due = self.count > 0 && now >= self.drop_next;
        let over = sojourn > times.target && sojourn > times.packet * (2 * busy).max(4);
        if over && !self.dropping {
            self.dropping = true;
            self.schedule(now, times);
        }
        self.dropping = over;
        self.count = self.count.max(u64::from(over));
        let mut fate = Fate::Sent;
        if due {
            if over {
                let marks = times.ecn && packet.ecn.is_capable();
                fate = if marks { Fate::Marked } else { Fate::Dropped("codel") };
                self.count = self.count.saturating_add(1);
                self.schedule(self.drop_next, times);
            } else {
                // The drop rate falls in the same steps as it rose.
                while self.count > 0 && now >= self.drop_next {
                    self.count -= 1;
                    self.schedule(self.drop_next, times);
                }
            }
        }
        if self.p > 0.0 && random.chance(self.p) {
            fate = Fate::Dropped("blue");
        }
        match (self.count, fate) {
            (0, _) => self.drop_next = now + times.interval,
            (_, Fate::Sent | Fate::Marked) if now > self.drop_next => self.drop_next = now,
            _ => {}
        }
        fate
    }
}

/// The two ends of each flow, and how many backlogged queues each end has.
#[derive(Debug, Default)]
struct Loads {
    /// The path and the destination of each backlogged queue.
    of: Vec<[u64; 2]>,
    busy: BTreeMap<u64, u64>,
}

impl Loads {
    /// Distinct from the number of any path.
    const DESTINATION: u64 = 1 << 32;

    fn ends(packet: &Packet) -> [u64; 2] {
        [u64::from(packet.path.0), Loads::DESTINATION | u64::from(packet.destination.0)]
    }
    fn begins(&mut self, at: usize, packet: &Packet) {
        self.of[at] = Loads::ends(packet);
        self.of[at].iter().for_each(|end| *self.busy.entry(*end).or_default() += 1);
    }
    fn ended(&mut self, at: usize) {
        for end in self.of[at] {
            if let Some(count) = self.busy.get_mut(&end) {
                *count -= 1;
                if *count == 0 {
                    self.busy.remove(&end);
                }
            }
        }
    }
    fn load(&self, at: usize) -> u64 {
        let busy = self.of[at].iter().map(|end| self.busy.get(end).copied().unwrap_or(1));
        busy.max().unwrap_or(1).max(1)
    }
}

/// Queues under COBALT.
#[derive(Debug)]
pub struct Cake {
    bank: Bank,
    classifier: Classifier,
    laws: Vec<Cobalt>,
    turns: Turns,
    loads: Loads,
    /// How many queues are not empty.
    busy: u64,
    quantum: Bytes,
    times: Times,
    hosts: bool,
    random: Stream,
    marked: u64,
}

impl Cake {
    /// Empty, drawing from `random`.
    pub fn new(options: CakeOptions, random: Stream) -> Cake {
        Cake {
            bank: Bank::ranked(options.room, Unit::Bytes, false),
            classifier: Classifier::new(By::Flow, options.queues),
            laws: Vec::new(),
            turns: Turns::default(),
            loads: Loads::default(),
            busy: 0,
            quantum: options.quantum(),
            times: Times::of(&options),
            hosts: options.hosts,
            random,
            marked: 0,
        }
    }
    /// Queue `at` may have become empty.
    fn settle(&mut self, at: usize) {
        if self.bank.fifo(at).is_empty() {
            self.busy -= 1;
            self.loads.ended(at);
        }
    }
    #[cold]
    fn make_room(&mut self, now: Time) {
        while self.bank.is_over() {
            let longest = self.bank.longest().expect("a buffer that is too full is not empty");
            self.laws[longest].overflowed(now, &self.times);
            self.bank.drop_from(longest, End::Front, "longest queue");
            self.settle(longest);
        }
    }
}

impl Queue for Cake {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        if packet.len > self.bank.room.bytes {
            return Err(packet);
        }
        packet.entered = now;
        let at = self.classifier.queue_of(&packet);
        if at >= self.laws.len() {
            let count = self.bank.reach(at);
            self.laws.resize(count, Cobalt::default());
            self.turns.reach(count);
            self.loads.of.resize(count, [0; 2]);
        }
        if self.bank.fifo(at).is_empty() {
            self.busy += 1;
            self.loads.begins(at, &packet);
        }
        self.bank.push(at, packet);
        self.turns.arrived(at, self.quantum);
        self.make_room(now);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        loop {
            let (loads, hosts, quantum) = (&self.loads, self.hosts, self.quantum);
            let share = |at| Bytes(quantum.0 / if hosts { loads.load(at) } else { 1 });
            let at = self.turns.next(share)?;
            let law = &mut self.laws[at];
            let Some(mut packet) = self.bank.pop(at) else {
                law.emptied(now, &self.times);
                self.turns.found_empty();
                continue;
            };
            let fate = law.fate(now, &packet, &self.times, self.busy, &mut self.random);
            self.settle(at);
            match fate {
                // The last packet of a queue is not dropped.
                Fate::Dropped(why) if !self.bank.fifo(at).is_empty() => {
                    self.bank.discard(packet, why);
                    continue;
                }
                Fate::Marked => {
                    packet.ecn = Ecn::Ce;
                    self.marked += 1;
                }
                _ => {}
            }
            self.turns.sent(at, packet.len);
            return Some(packet);
        }
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

impl Described for Cake {
    const PAGE: &'static Page = &Page {
        name: "cake",
        family: Family::Queue,
        what: "CAKE: a queue for each flow under COBALT, fair to flows and to hosts.",
        ports: "in --> [ queue per flow, COBALT ] --> sparse queues, then others in turn --> out",
        params: &[
            Param::or("queues", ParamKind::Integer { min: 1, max: QUEUES_MAX as u64 }, "1024")
                .is("number of queues onto which flows are hashed"),
            Param::or("hosts", ParamKind::Flag, "true")
                .is("whether a turn's quantum is divided among the queues of a host"),
            Param::or("rtt", ParamKind::Time, "100 ms")
                .is("interval of COBALT; its target is a twentieth, at least 1.5 packet times"),
            Param::or("mtu", ParamKind::PACKET, "1500 B").is("packet whose time limits the target"),
            Param::or("ecn", ParamKind::Flag, "true").is("mark if both ends support ECN"),
            PACKETS,
            Param::or("bytes", ParamKind::BUFFER, "4 MiB").is("limit on bytes in all queues"),
        ],
        source: "Høiland-Jørgensen, Täht & Morton, Piece of CAKE, LANMAN 2018; sch_cake of Linux",
        deviations: &[
            "One tin, and no shaper.",
            "The hash has no random key and is not set-associative.",
            "The hosts of a flow are its path and its destination.",
        ],
        counters: &[MARKED],
        drops: &[
            LONG,
            ("codel", "packets that COBALT's CoDel dropped from a standing queue"),
            ("blue", "packets that COBALT's BLUE dropped from an unresponsive flow"),
            ("longest queue", "packets of the longest queue, dropped to make room"),
        ],
        example: one_queue!("cake = {}"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Cake {
        let options = CakeOptions {
            queues: values.given::<u64>("queues").map(|queues| queues as usize),
            hosts: values.get("hosts"),
            rtt: values.get::<Duration>("rtt").max(Duration::from_us(1)),
            mtu: values.get("mtu"),
            ecn: values.get("ecn"),
            room: Room::from_values(values, site),
            rate: site.rate,
        };
        Cake::new(options, site.stream())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet, victims};
    use lastmeter_base::NodeId;

    fn cake(options: CakeOptions) -> Cake {
        Cake::new(CakeOptions { queues: None, ..options }, Stream::new(1, "cake"))
    }
    fn at(ms: u64) -> Time {
        Time::START + Duration::from_ms(ms)
    }
    fn to(flow: u32, host: u32) -> Packet {
        let mut packet = packet(flow, 1500);
        (packet.path.0, packet.destination) = (flow, NodeId(host));
        packet
    }

    /// D-79: the quantum and the target at three rates, by hand.
    #[test]
    fn d_79_the_quantum_and_the_target_follow_the_rate() {
        let of = |rate| {
            let options = CakeOptions { rate, ..CakeOptions::usual() };
            let Times { target, interval, .. } = Times::of(&options);
            (options.quantum().0, target.as_ps() / 1_000_000, interval.as_ps() / 1_000_000)
        };
        // 10 Mbit/s are 1.25 MB/s: 305 bytes in 1/4096 s; a packet takes 1.2 ms.
        assert_eq!(of(Some(Rate::from_mbit(10))), (305, 5_000, 100_000));
        assert_eq!(of(Some(Rate::from_gbit(1))), (1514, 5_000, 100_000));
        // A packet takes 12 ms, and the target is 18.
        assert_eq!(of(Some(Rate::from_mbit(1))), (300, 18_000, 113_000));
    }

    /// §3.2: a host with three flows gets as much as one with one.
    #[test]
    fn hosts_share_alike_however_many_flows_they_have() {
        let share = |hosts: bool| {
            let mut queue = cake(CakeOptions { hosts, ..CakeOptions::usual() });
            let flows = [(0, 7), (1, 8), (2, 8), (3, 8)];
            for (flow, host) in flows {
                (0..3).for_each(|_| queue.enqueue(at(0), to(flow, host)).unwrap());
            }
            let mut got = 0;
            for _ in 0..6000 {
                let out = queue.dequeue(at(0)).unwrap();
                got += u32::from(out.destination == NodeId(7));
                queue.enqueue(at(0), to(out.flow.0, out.destination.0)).unwrap();
            }
            got
        };
        assert!((2950..3050).contains(&share(true)), "{}", share(true));
        assert!((1450..1550).contains(&share(false)), "{}", share(false));
    }

    /// A standing queue loses a packet after an interval, then after interval / sqrt(n), n = 2, 3, ...
    #[test]
    fn drops_from_a_standing_queue_follow_the_square_root_law() {
        let mut queue = cake(CakeOptions::usual());
        let mut drops = Vec::new();
        for ms in 0..700 {
            let extra = u64::from(ms < 60);
            (0..=extra).for_each(|_| queue.enqueue(at(ms), packet(0, 1000)).unwrap());
            queue.dequeue(at(ms));
            drops.extend(victims(&mut queue).iter().map(|_| ms));
        }
        assert!((105..=115).contains(&drops[0]), "{drops:?}");
        let mut due = drops[0] as f64;
        for (n, &drop) in drops.iter().enumerate().skip(1).take(6) {
            due += 100.0 / ((n + 1) as f64).sqrt();
            assert!((drop as f64 - due).abs() <= 2.0, "drop {n} at {drop}, due {due}");
        }
    }

    /// BLUE contains a flood that CoDel's law is too slow for: after 256 overflows, each in its own target time,
    /// every packet is dropped; while idle, it takes 4096 target times to recover.
    #[test]
    fn blue_rises_with_each_overflow_and_falls_while_empty() {
        let times = Times::of(&CakeOptions::usual());
        let mut law = Cobalt::default();
        (1..=256).for_each(|n| law.overflowed(at(6 * n), &times));
        assert!((law.p - 1.0).abs() < 1e-9, "{}", law.p);
        law.overflowed(at(6 * 256 + 1), &times);
        (1..=4095).for_each(|n| law.emptied(at(6 * (256 + n)), &times));
        assert!((law.p - DECREMENT).abs() < 1e-9, "{}", law.p);
        law.emptied(at(6 * 4352), &times);
        assert!(law.p < 1e-9);
    }

    #[test]
    fn an_overflow_drops_from_the_queue_with_the_most_bytes() {
        let mut queue = cake(CakeOptions { room: Room::packets(30), ..CakeOptions::usual() });
        (0..20).for_each(|_| queue.enqueue(at(0), packet(0, 100)).unwrap());
        (0..11).for_each(|_| queue.enqueue(at(0), packet(1, 1500)).unwrap());
        assert_eq!(victims(&mut queue), [(1, "longest queue")]);
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = CakeOptions {
            rtt: Duration::from_us(100),
            room: Room::packets(30),
            ..CakeOptions::usual()
        };
        check::holds(cake(options), &check::USUAL);
        let hashed = CakeOptions { queues: Some(3), hosts: false, ..options };
        check::holds(Cake::new(hashed, Stream::new(2, "cake")), &check::USUAL);
    }
}
