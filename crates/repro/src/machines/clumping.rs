//! Acknowledgements that accumulate behind large units, under three policies: equal treatment, acknowledgements
//! first, or all small units first.
//!
//! ```text
//! A --- data of 8 KB, a window of them ---> B
//!   <--- acknowledgements, behind: ---
//!   <--- B's own units of 64 KB ---
//! ```
//!
//! Each arriving unit is acknowledged, which lets its sender send the next. Acknowledgements accumulate behind a
//! large unit, arrive together, and release data in a burst.
//!
//! Source: Aurora, §3.7 (A-172). Units have a window and no congestion control: how TCP reacts is a separate question.

use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_lan::preempt::link::{Link, Way};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which units have priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// None.
    Equal,
    /// Acknowledgements, which the link has to recognise.
    Acknowledgements,
    /// Units no longer than [`SMALL`].
    Small,
}

/// The longest small unit.
pub const SMALL: Bytes = Bytes(256);
/// Length of an acknowledgement.
pub const ACK: Bytes = Bytes(64);

impl Policy {
    /// The priority of a unit.
    pub fn priority(self, len: Bytes, ack: bool) -> u8 {
        match self {
            Policy::Equal => 0,
            Policy::Acknowledgements => ack.into(),
            Policy::Small => (len <= SMALL).into(),
        }
    }
}

/// A sender of units from one end to the other.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// The sending end: 0 or 1.
    pub end: usize,
    /// Length of each unit.
    pub len: Bytes,
    /// Most unacknowledged bytes.
    pub window: Bytes,
}

/// Both directions of the link.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Rate of each direction.
    pub rate: Rate,
    /// How units share the link.
    pub way: Way,
    /// Propagation delay.
    pub delay: Duration,
    /// Which units have priority.
    pub policy: Policy,
    /// Length of the run.
    pub length: Duration,
}

/// The result for a sender.
#[derive(Clone, Debug, Default)]
pub struct Came {
    /// Units delivered.
    pub units: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Arrival times of acknowledgements.
    pub acks: Vec<Time>,
    /// The longest time from offering a unit to its acknowledgement.
    pub round_max: Duration,
}

impl Came {
    /// The mean number of acknowledgements per clump: less than `gap` apart.
    pub fn clump(&self, gap: Duration) -> f64 {
        let apart = self.acks.windows(2).filter(|pair| pair[1] - pair[0] >= gap).count();
        self.acks.len() as f64 / (apart + 1) as f64
    }
    /// The most acknowledgements within any `window`.
    pub fn most_within(&self, window: Duration) -> usize {
        let (mut first, mut most) = (0, 0);
        for (at, &time) in self.acks.iter().enumerate() {
            while time - self.acks[first] > window {
                first += 1;
            }
            most = most.max(at - first + 1);
        }
        most
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A unit or an acknowledgement has arrived.
    Arrive { sender: usize, ack: bool, offered: Time },
}

/// Simulates competing senders.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate};
/// use lastmeter_repro::machines::clumping::{Options, Policy, Sender, run};
/// use lastmeter_lan::preempt::link::Way;
/// let sender = Sender { end: 0, len: Bytes(8192), window: Bytes(65_536) };
/// let came = run(&[sender], Options {
///     rate: Rate::from_mbit(155),
///     way: Way::Whole { header: Bytes(6), quantum: Bytes(64) },
///     delay: Duration::from_us(100),
///     policy: Policy::Equal,
///     length: Duration::from_ms(10),
/// });
/// assert!(came[0].units > 20);
/// ```
pub fn run(senders: &[Sender], options: Options) -> Vec<Came> {
    let mut links = [0; 2].map(|_| Link::new(options.rate, options.way));
    let mut came = vec![Came::default(); senders.len()];
    let mut arrivals: BinaryHeap<Reverse<(Time, u64, Event)>> = BinaryHeap::new();
    // For each unit on a link: its sender, whether it is an acknowledgement, and the start of its round trip.
    let mut units: Vec<(usize, bool, Time)> = Vec::new();
    let offer =
        |links: &mut [Link; 2], units: &mut Vec<_>, now, sender: usize, ack: Option<Time>| {
            let Sender { end, len, .. } = senders[sender];
            let (end, len) = if ack.is_some() { (1 - end, ACK) } else { (end, len) };
            let priority = options.policy.priority(len, ack.is_some());
            let flow = 2 * sender as u64 + u64::from(ack.is_some());
            links[end].offer(now, units.len() as u64, flow, priority, len);
            units.push((sender, ack.is_some(), ack.unwrap_or(now)));
        };
    for (number, sender) in senders.iter().enumerate() {
        for _ in 0..(sender.window.0 / sender.len.0.max(1)).max(1) {
            offer(&mut links, &mut units, Time::START, number, None);
        }
    }
    let end = Time::START + options.length;
    let mut order = 0;
    loop {
        let next = links.iter().filter_map(Link::ready_at).min();
        let arrival = arrivals.peek().map(|&Reverse((at, ..))| at);
        let Some(now) = next.into_iter().chain(arrival).min().filter(|&now| now <= end) else {
            return came;
        };
        for link in &mut links {
            link.advance(now, &mut |sent| {
                let (sender, ack, offered) = units[sent.id as usize];
                order += 1;
                let event = Event::Arrive { sender, ack, offered };
                arrivals.push(Reverse((sent.ended + options.delay, order, event)));
            });
        }
        while let Some(&Reverse((at, _, event))) = arrivals.peek() {
            if at > now {
                break;
            }
            arrivals.pop();
            let Event::Arrive { sender, ack, offered } = event;
            let came = &mut came[sender];
            if ack {
                came.acks.push(now);
                came.round_max = came.round_max.max(now - offered);
                offer(&mut links, &mut units, now, sender, None);
            } else {
                came.units += 1;
                came.bytes += senders[sender].len.0;
                offer(&mut links, &mut units, now, sender, Some(offered));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: Bytes = Bytes(65_536);
    const DATA: Bytes = Bytes(8_192);

    fn options(policy: Policy) -> Options {
        Options {
            rate: Rate::from_mbit(155),
            way: Way::Whole { header: Bytes(6), quantum: Bytes(64) },
            delay: Duration::from_us(500),
            policy,
            length: Duration::from_ms(500),
        }
    }

    fn two_way(policy: Policy) -> Came {
        let data = Sender { end: 0, len: DATA, window: Bytes(16 * DATA.0) };
        let large = Sender { end: 1, len: LARGE, window: Bytes(4 * LARGE.0) };
        run(&[data, large], options(policy)).swap_remove(0)
    }

    #[test]
    fn acknowledgements_clump_behind_large_units_unless_they_go_first() {
        let gap = options(Policy::Equal).rate.time_for(DATA) / 2;
        let equal = two_way(Policy::Equal).clump(gap);
        let first = two_way(Policy::Acknowledgements).clump(gap);
        assert!(equal > 3.0 && first < 1.1, "{equal} {first}");
    }

    #[test]
    fn small_first_gives_the_link_to_whoever_sends_small_units() {
        let share = |policy| {
            let fair = Sender { end: 0, len: DATA, window: Bytes(16 * DATA.0) };
            let greedy = Sender { end: 0, len: Bytes(64), window: Bytes(16 * DATA.0) };
            let came = run(&[fair, greedy], options(policy));
            came[1].bytes as f64 / (came[0].bytes + came[1].bytes) as f64
        };
        let (equal, small) = (share(Policy::Equal), share(Policy::Small));
        assert!(equal < 0.6 && small > 0.9, "{equal} {small}");
    }
}
