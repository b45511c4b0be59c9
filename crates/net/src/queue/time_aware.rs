//! Time-aware shaper: gates that open and close each class by the clock (IEEE 802.1Qbv).
//!
//! ```text
//!      /-> class 0 --/ gate /--\
//! in --+-> class 1 --/ gate /--+--> the lowest class whose gate is open for all of its packet
//!      \-> ...     --/ gate /--/
//!            gates: |0 0|1 1 1 1 1|0 0|1 1 1 1 1|   a cycle, again and again
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                           |
//! |-----------|---------|----------|-------------------------------------------------------------------|
//! | `cycle`   | time    | -        | length of the gate control list                                   |
//! | `offset`  | time    | 0        | when the first cycle begins                                       |
//! | `gate-N`  | windows | the rest | windows within the cycle in which class N may send, N from 0 to 7 |
//! | `packets` | packets | no limit | limit on packets in all classes                                   |
//! | `bytes`   | size    | no limit | limit on bytes in all classes                                     |
//!
//! A class without windows may send while no window of another class is open. A packet is sent
//! only if its last bit leaves before the gate closes, so that no packet extends into another's window:
//! the guard band is as long as the packet that has to wait, and no longer. A packet that fits no window
//! is dropped. Windows of several classes may overlap; then the lower class goes first.
//!
//! Source: IEEE 802.1Q-2018 §8.6.8.4, §8.6.9 and Annex Q (802.1Qbv-2015). Deviation: gate control
//! lists do not change while they run; preemption (802.1Qbu) is not modelled here.
//!
//! ```
//! use lastmeter_base::{Bytes, Duration, Packet, Rate, Time};
//! use lastmeter_net::queue::{Queue, Room, TimeAware};
//! let us = Duration::from_us;
//! // Class 0 has the first 20 us of every 100; at 1 Gbit/s 1250 bytes take 10 us.
//! let gates = [(0, vec![(us(0), us(20))])];
//! let port = Some((Rate::from_gbit(1), Bytes::ZERO));
//! let mut queue = TimeAware::new(us(100), us(0), &gates, port, Room::UNLIMITED);
//! let mut other = Packet::new(Bytes(1250));
//! other.class = 1;
//! queue.enqueue(Time::START, other)?;
//! assert_eq!(queue.ready_at(Time::START), Some(Time::START + us(20)));
//! # Ok::<(), Packet>(())
//! ```

use super::flows::{BYTES, PACKETS, Room};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, Rate, Time, here, one_way};
use std::collections::VecDeque;

/// Traffic classes of a port (802.1Q Table 8-5).
const CLASSES: usize = 8;
const GATES: [&str; CLASSES] =
    ["gate-0", "gate-1", "gate-2", "gate-3", "gate-4", "gate-5", "gate-6", "gate-7"];

/// Start and end within a cycle, in picoseconds, in order.
type Windows = Vec<(u64, u64)>;

/// Time-aware shaper.
#[derive(Debug)]
pub struct TimeAware {
    waiting: [VecDeque<Packet>; CLASSES],
    gates: [Windows; CLASSES],
    cycle: u64,
    /// From the start of the run to the start of a cycle; less than one cycle.
    offset: u64,
    /// portTransmitRate, and the framing of each packet.
    port: Option<(Rate, Bytes)>,
    /// When the port finishes the packet that it was given last.
    busy: Time,
    room: Room,
    held: Bytes,
    dropped: VecDeque<Packet>,
}

impl TimeAware {
    /// Empty, with these windows of classes. Panics with a cycle of zero.
    pub fn new(
        cycle: Duration,
        offset: Duration,
        gates: &[(usize, Vec<(Duration, Duration)>)],
        port: Option<(Rate, Bytes)>,
        room: Room,
    ) -> TimeAware {
        let cycle = cycle.as_ps();
        assert!(cycle > 0, "a cycle of zero");
        let of = |class: usize| gates.iter().find(|gate| gate.0 == class).map(|gate| &gate.1);
        let all = gates.iter().flat_map(|gate| &gate.1);
        let rest = complement(&joined(all, cycle), cycle);
        let windows = |class: usize| of(class).map_or(rest.clone(), |own| joined(own, cycle));
        TimeAware {
            waiting: [const { VecDeque::new() }; CLASSES],
            gates: std::array::from_fn(windows),
            cycle,
            offset: offset.as_ps() % cycle,
            port,
            busy: Time::START,
            room,
            held: Bytes::ZERO,
            dropped: VecDeque::new(),
        }
    }

    fn class(packet: &Packet) -> usize {
        usize::from(packet.class).min(CLASSES - 1)
    }

    /// How long the port is busy with a packet.
    fn time_for(&self, packet: &Packet) -> u64 {
        self.port.map_or(0, |(rate, framing)| rate.time_for(packet.len + framing).as_ps())
    }

    /// The position of an instant within its cycle.
    fn phase(&self, at: Time) -> u64 {
        (at.as_ps() % self.cycle + self.cycle - self.offset) % self.cycle
    }

    /// How long a gate that is open at `phase` stays open, also across the end of the cycle.
    fn open_for(&self, class: usize, phase: u64) -> u64 {
        let windows = &self.gates[class];
        let Some(&(_, until)) = windows.iter().find(|&&(from, to)| from <= phase && phase < to)
        else {
            return 0;
        };
        match windows.first() {
            Some(&(0, to)) if to == self.cycle => u64::MAX,
            Some(&(0, to)) if until == self.cycle => until - phase + to,
            _ => until - phase,
        }
    }

    /// The earliest time from `at` at which a packet of the class that takes `time` may be sent; `None`: never.
    fn begins(&self, class: usize, time: u64, at: Time) -> Option<Time> {
        let phase = self.phase(at);
        let fits =
            |phase: u64| self.open_for(class, phase) > 0 && self.open_for(class, phase) >= time;
        if fits(phase) {
            return Some(at);
        }
        // The start of the next window that is long enough.
        let waits = self.gates[class].iter().filter(|&&(from, _)| fits(from));
        let wait =
            waits.map(|&(from, _)| (from + self.cycle - phase - 1) % self.cycle + 1).min()?;
        Some(at + Duration::from_ps(wait))
    }

    /// When the first packet of a class may be sent.
    fn first(&self, class: usize, now: Time) -> Option<Time> {
        let packet = self.waiting[class].front()?;
        self.begins(class, self.time_for(packet), now.max(self.busy))
    }
}

/// Windows in order, with adjacent ones merged.
fn joined<'a>(windows: impl IntoIterator<Item = &'a (Duration, Duration)>, cycle: u64) -> Windows {
    let cut = |time: Duration| time.as_ps().min(cycle);
    let mut sorted: Windows = windows.into_iter().map(|&(from, to)| (cut(from), cut(to))).collect();
    sorted.sort_unstable();
    let mut joined: Windows = Vec::new();
    for (from, to) in sorted.into_iter().filter(|window| window.0 < window.1) {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// The parts of a cycle outside merged windows.
fn complement(windows: &Windows, cycle: u64) -> Windows {
    let mut rest = Vec::new();
    let mut at = 0;
    for &(from, to) in windows {
        if at < from {
            rest.push((at, from));
        }
        at = to;
    }
    if at < cycle {
        rest.push((at, cycle));
    }
    rest
}

impl Queue for TimeAware {
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        let class = Self::class(&packet);
        if self.begins(class, self.time_for(&packet), Time::START).is_none() {
            self.dropped.push_back(packet);
            return Ok(());
        }
        let held = self.held + packet.len;
        if self.packets() >= self.room.packets || held > self.room.bytes {
            return Err(packet);
        }
        self.held = held;
        self.waiting[class].push_back(packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        let class = (0..CLASSES).find(|&class| self.first(class, now) == Some(now))?;
        let packet = self.waiting[class].pop_front()?;
        self.busy = now + Duration::from_ps(self.time_for(&packet));
        self.held -= packet.len;
        Some(packet)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        (0..CLASSES).filter_map(|class| self.first(class, now)).min()
    }
    fn packets(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.len() as u64).sum()
    }
    fn bytes(&self) -> Bytes {
        self.held
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.dropped.pop_front().map(|packet| (packet, "no window"))
    }
}

const fn gate(name: &'static str) -> Param {
    let absent = "while no window of another class is open";
    Param::optional(name, ParamKind::Windows, absent)
        .is("windows within the cycle in which this class may send")
}

impl Described for TimeAware {
    const PAGE: &'static Page = &Page {
        name: "time-aware",
        family: Family::Queue,
        what: "Time-aware shaper: classes whose gates open and close by the clock (IEEE 802.1Qbv).",
        ports: "in --> [ class 0 ] gate ... [ class 7 ] gate --> lowest open class --> out",
        params: &[
            Param::required("cycle", ParamKind::Time).is("length of the gate control list"),
            Param::or("offset", ParamKind::Time, "0 s").is("when the first cycle begins"),
            gate(GATES[0]),
            gate(GATES[1]),
            gate(GATES[2]),
            gate(GATES[3]),
            gate(GATES[4]),
            gate(GATES[5]),
            gate(GATES[6]),
            gate(GATES[7]),
            PACKETS,
            BYTES,
        ],
        source: "IEEE 802.1Q-2018 §8.6.8.4, §8.6.9, Annex Q (802.1Qbv-2015)",
        deviations: &["Gate control lists do not change while they run."],
        drops: &[FULL, ("no window", "packets longer than any window of their class")],
        example: one_way! {
            "100 ms", "controller" ["switch" = "router = {}"] "motor",
            [
                r#"rate = "1 Gbit/s""#,
                r#"framing = "24 B""#,
                r#"queue = { time-aware = { cycle = "500 us", gate-0 = [["0 us", "50 us"]] } }"#,
            ],
            "commands" [r#"constant = { rate = "4 Mbit/s", size = "250 B" }"#],
            "files" ["class = 1", r#"poisson = { rate = "700 Mbit/s", size = "1500 B" }"#]
        },
        ..Page::at(here!())
    };

    fn fit(values: &Values) -> Result<(), Misfit> {
        let cycle: Duration = values.get("cycle");
        if cycle.is_zero() {
            return Err(Misfit::new("cycle", "a cycle of zero".to_owned(), "write \"1 ms\""));
        }
        for name in GATES {
            let windows = values.given::<Vec<(Duration, Duration)>>(name).unwrap_or_default();
            if let Some(at) = windows.iter().position(|window| window.1 > cycle) {
                let found = format!("it ends at {}, after the cycle of {cycle}", windows[at].1);
                return Err(Misfit::new(name, found, "end it within the cycle").at(at));
            }
        }
        Ok(())
    }

    fn build(values: &Values, site: &Site<'_>) -> TimeAware {
        let gates = GATES.iter().enumerate();
        let gates: Vec<_> =
            gates.filter_map(|(class, name)| Some((class, values.given(name)?))).collect();
        let port = site.rate.map(|rate| (rate, site.framing));
        let room = Room::from_values(values, site);
        TimeAware::new(values.get("cycle"), values.get("offset"), &gates, port, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};
    use lastmeter_base::Stream;

    const PORT: Rate = Rate::from_gbit(1);

    fn us(n: u64) -> Duration {
        Duration::from_us(n)
    }
    fn at(n: u64) -> Time {
        Time::START + us(n)
    }
    fn shaper(gates: &[(usize, Vec<(Duration, Duration)>)], offset: u64) -> TimeAware {
        TimeAware::new(us(100), us(offset), gates, Some((PORT, Bytes::ZERO)), Room::UNLIMITED)
    }

    /// Nothing is on the port outside the windows of its class, whatever arrives: no two gates are ever
    /// open together where windows do not overlap, and the guard band keeps each packet within its own.
    #[test]
    fn no_packet_extends_beyond_the_windows_of_its_class() {
        for seed in 0..30 {
            let mut random = Stream::new(seed, "gates");
            let first = 1 + random.below(40);
            let second = first + random.below(30);
            let last = second + 15 + random.below(20);
            let gates = [(0, vec![(us(0), us(first))]), (1, vec![(us(second), us(last))])];
            let offset = random.below(300);
            let mut queue = shaper(&gates, offset);
            let (mut now, mut sent, mut rest) = (Time::START, [0; 3], 0);
            for _ in 0..4000 {
                if random.chance(0.4) {
                    let packet = packet(random.below(3) as u32, 64 + random.below(1437));
                    queue.enqueue(now, packet).unwrap();
                    while queue.dropped().is_some() {}
                }
                let Some(packet) = queue.dequeue(now) else {
                    now += Duration::from_ns(random.below(3000));
                    continue;
                };
                let end = now + PORT.time_for(packet.len);
                let cycle = us(100).as_ps();
                let phase = |at: Time| (at.as_ps() + 3 * cycle - us(offset).as_ps()) % cycle;
                let (from, to) = (phase(now), phase(now) + (end - now).as_ps());
                let inside = |a: u64, b: u64| us(a).as_ps() <= from && to <= us(b).as_ps();
                let ok = match packet.class {
                    0 => inside(0, first),
                    1 => inside(second, last),
                    _ => inside(first, second) || inside(last, 100),
                };
                assert!(ok, "class {} from {from} to {to}, seed {seed}", packet.class);
                sent[usize::from(packet.class)] += 1;
                rest += u64::from(to == us(first).as_ps());
                now = end;
            }
            assert!(sent[1] > 50 && sent[2] > 50, "{sent:?} {rest}");
        }
    }

    #[test]
    fn a_packet_waits_for_a_window_that_fits_it_and_a_shorter_one_may_go() {
        let gates = [(0, vec![(us(0), us(20)), (us(60), us(65))])];
        let mut queue = shaper(&gates, 0);
        // 1500 bytes take 12 us, 500 take 4.
        for (class, len) in [(0, 1500), (0, 1500), (1, 1500), (1, 500)] {
            queue.enqueue(at(0), packet(class, len)).unwrap();
        }
        assert_eq!(queue.dequeue(at(0)).map(|packet| packet.class), Some(0));
        assert_eq!((queue.dequeue(at(5)).is_some(), queue.ready_at(at(5))), (false, Some(at(20))));
        assert_eq!(queue.dequeue(at(20)).map(|packet| packet.class), Some(1));
        assert_eq!(queue.dequeue(at(57)).map(|packet| packet.class), None, "4 us do not fit in 3");
        assert_eq!(queue.ready_at(at(57)), Some(at(65)), "nor 12 in a window of 5");
        assert_eq!(queue.dequeue(at(65)).map(|packet| packet.class), Some(1));
        assert_eq!(queue.ready_at(at(69)), Some(at(100)));
    }

    #[test]
    fn a_gate_open_across_the_end_of_a_cycle_does_not_close_there() {
        let gates = [(0, vec![(us(90), us(100)), (us(0), us(10))]), (1, vec![(us(20), us(30))])];
        let mut queue = shaper(&gates, 0);
        queue.enqueue(at(95), packet(0, 1500)).unwrap();
        assert!(queue.dequeue(at(95)).is_some());
        queue.enqueue(at(120), packet(1, 1500)).unwrap();
        assert_eq!(check::victims(&mut queue), [(1, "no window")]);
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = check::Options { work_conserving: false, ..check::USUAL };
        let gates = [(0, vec![(us(0), us(20))]), (3, vec![(us(40), us(60))])];
        check::holds(shaper(&gates, 7), &options);
        check::holds(TimeAware::new(us(9), us(0), &[], None, Room::packets(9)), &check::USUAL);
    }
}
