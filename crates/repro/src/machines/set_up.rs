//! Setting up flows over a row of routers: with a round trip before the first packet, or in band, without one (D-49).
//!
//! ```text
//! round trip  source --request--> [r1 admits] --> [r2 admits] --> destination --answer--> source: data begins
//! in band     source --data, the first with the request--> r1 --> r2 --> destination: each forwards at once, and
//!                                                          admits meanwhile; what follows finds the rule
//! ```
//!
//! A router needs `work` to admit a flow and to install its rule; a line's admission is that of channels
//! ([`Reservations`]). In band, packets that pass a router before its rule is there are best effort. A router that
//! refuses marks the flow's packets from then on; routers further on release what they have granted when a marked
//! packet passes, those before when the destination's answer to it does. The last packet of a flow releases it on its
//! way.
//!
//! Lines have delay and no queues: what is compared is set-up, not load.
//!
//! Source: the description of the router names such a set-up as planned, §10, without a protocol; this one is ours.
//!
//! ```
//! use lastmeter_base::{Duration, Time};
//! use lastmeter_repro::machines::set_up::{Flow, Line, Way, run};
//! use lastmeter_transport::channel::admission::Demand;
//! let ms = Duration::from_ms;
//! let lines = [Line { delay: ms(5), work: ms(1) }; 3];
//! let demand = Demand { cost: ms(1), interval: ms(10) };
//! let flow = Flow { start: Time::START, enters: 0, packets: 100, demand };
//! let first = |way| run(way, ms(5), &lines, &[flow]).outcomes[0].first.expect("it arrives");
//! // 20 ms one way; a round trip more, and the work of three routers, or nothing more.
//! assert_eq!(first(Way::InBand), Time::START + ms(20));
//! assert_eq!(first(Way::RoundTrip), Time::START + ms(20 + 40 + 3));
//! ```

use lastmeter_base::{Duration, Time};
use lastmeter_transport::channel::admission::{Demand, Method, Reservations};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How flows are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The source waits until all routers have admitted it.
    RoundTrip,
    /// The source sends at once.
    InBand,
}

/// A router and the line that leaves it.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Of the line.
    pub delay: Duration,
    /// Time to admit a flow and to install its rule.
    pub work: Duration,
}

/// A flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// When its source wants to send.
    pub start: Time,
    /// The router where its packets enter the row.
    pub enters: usize,
    /// How many packets, at the interval of its demand.
    pub packets: u64,
    /// What it asks of each line.
    pub demand: Demand,
}

/// What became of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When its first packet arrived.
    pub first: Option<Time>,
    /// Packets that found its rule at every router.
    pub reserved: u64,
    /// Packets that did not.
    pub effort: u64,
    /// Whether a router refused it.
    pub refused: bool,
}

/// What became of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Each flow.
    pub outcomes: Vec<Outcome>,
    /// Time for which lines held reservations of flows that were refused elsewhere, all lines together.
    pub in_vain: Duration,
    /// The largest share of a line that was reserved.
    pub utilisation: f64,
    /// Reservations left when all flows are over.
    pub left: u64,
}

/// A flow at a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    None,
    /// Being admitted.
    Pending,
    Granted(Time, Duration),
    Refused,
    /// Its last packet has passed.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request or a packet reaches a router, or the destination: flow, number, router, marked. Packets count from 1;
    /// 0 is a request.
    Forward(usize, u64, usize, bool),
    /// A router has decided about a flow.
    Decided(usize, usize),
    /// An answer passes a router on its way back: flow, router, whether all have admitted it.
    Back(usize, usize, bool),
    /// A source hears that it may send.
    Go(usize),
}

struct Machine<'a> {
    way: Way,
    access: Duration,
    lines: &'a [Line],
    flows: &'a [Flow],
    due: BinaryHeap<Reverse<(Time, u64, Event)>>,
    count: u64,
    accounts: Vec<Reservations>,
    rules: Vec<Vec<Rule>>,
    answered: Vec<bool>,
    /// For each flow the packets that have been best effort somewhere, until they arrive.
    effort: Vec<Vec<bool>>,
    report: Report,
}

/// Sets up `flows` over routers in a row; each source is `access` away from the router where its flow enters.
pub fn run(way: Way, access: Duration, lines: &[Line], flows: &[Flow]) -> Report {
    let account = || Reservations::new(Method::Edf, Duration::ZERO);
    let report = Report {
        outcomes: vec![Outcome::default(); flows.len()],
        in_vain: Duration::ZERO,
        utilisation: 0.0,
        left: 0,
    };
    let mut machine = Machine {
        way,
        access,
        lines,
        flows,
        due: BinaryHeap::new(),
        count: 0,
        accounts: lines.iter().map(|_| account()).collect(),
        rules: vec![vec![Rule::None; lines.len()]; flows.len()],
        answered: vec![false; flows.len()],
        effort: flows.iter().map(|flow| vec![false; flow.packets as usize]).collect(),
        report,
    };
    for (at, flow) in flows.iter().enumerate() {
        match way {
            Way::RoundTrip => {
                machine.add(flow.start + access, Event::Forward(at, 0, flow.enters, false));
            }
            Way::InBand => machine.send(flow.start, at),
        }
    }
    while let Some(Reverse((now, _, event))) = machine.due.pop() {
        machine.happens(now, event);
    }
    machine.report.left = machine.accounts.iter().map(Reservations::channels).sum();
    machine.report
}

impl Machine<'_> {
    fn add(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.due.push(Reverse((at, self.count, event)));
    }
    /// All packets of a flow leave, from now on.
    fn send(&mut self, now: Time, flow: usize) {
        let Flow { packets, demand, enters, .. } = self.flows[flow];
        let mut at = now + self.access;
        for number in 1..=packets {
            self.add(at, Event::Forward(flow, number, enters, false));
            at += demand.interval;
        }
    }
    fn happens(&mut self, now: Time, event: Event) {
        match event {
            Event::Go(flow) => self.send(now, flow),
            Event::Decided(flow, router) => self.decided(now, flow, router),
            Event::Back(flow, router, good) => {
                if !good {
                    self.take_back(now, flow, router, Rule::Refused);
                }
                match (router == self.flows[flow].enters, good) {
                    (true, true) => self.add(now + self.access, Event::Go(flow)),
                    (true, false) => {}
                    (false, _) => {
                        let at = now + self.lines[router - 1].delay;
                        self.add(at, Event::Back(flow, router - 1, good));
                    }
                }
            }
            Event::Forward(flow, 0, router, _) if router < self.lines.len() => {
                self.rules[flow][router] = Rule::Pending;
                self.add(now + self.lines[router].work, Event::Decided(flow, router));
            }
            // All have admitted it.
            Event::Forward(flow, 0, router, _) => {
                self.add(now + self.lines[router - 1].delay, Event::Back(flow, router - 1, true));
            }
            Event::Forward(flow, number, router, marked) => {
                self.packet(now, flow, number, router, marked);
            }
        }
    }
    fn decided(&mut self, now: Time, flow: usize, router: usize) {
        // It is over, or was refused elsewhere, before anybody decided.
        if self.rules[flow][router] != Rule::Pending {
            return;
        }
        let (demand, account) = (self.flows[flow].demand, &mut self.accounts[router]);
        let granted = account.bound(demand).inspect(|bound| account.reserve(demand, *bound));
        self.report.utilisation = self.report.utilisation.max(account.utilisation());
        match granted {
            Some(bound) => {
                self.rules[flow][router] = Rule::Granted(now, bound);
                if self.way == Way::RoundTrip {
                    let at = now + self.lines[router].delay;
                    self.add(at, Event::Forward(flow, 0, router + 1, false));
                }
            }
            None => {
                self.rules[flow][router] = Rule::Refused;
                self.report.outcomes[flow].refused = true;
                // In band, the flow's next packet says so.
                if self.way == Way::RoundTrip && router > self.flows[flow].enters {
                    let at = now + self.lines[router - 1].delay;
                    self.add(at, Event::Back(flow, router - 1, false));
                }
            }
        }
    }
    /// A router's reservation ends, because of a refusal elsewhere or at the flow's end.
    fn take_back(&mut self, now: Time, flow: usize, router: usize, to: Rule) {
        if let Rule::Granted(since, bound) = self.rules[flow][router] {
            self.accounts[router].release(self.flows[flow].demand, bound);
            if to == Rule::Refused {
                self.report.in_vain += now.saturating_since(since);
            }
        }
        self.rules[flow][router] = to;
    }
    fn packet(&mut self, now: Time, flow: usize, number: u64, router: usize, mut marked: bool) {
        let last = number == self.flows[flow].packets;
        let at = number as usize - 1;
        let Some(line) = self.lines.get(router).copied() else {
            let outcome = &mut self.report.outcomes[flow];
            outcome.first = outcome.first.or(Some(now));
            match self.effort[flow][at] {
                true => outcome.effort += 1,
                false => outcome.reserved += 1,
            }
            // The first marked packet is answered; routers before the one that refused hear of it.
            if marked && !std::mem::replace(&mut self.answered[flow], true) {
                let at = now + self.lines[router - 1].delay;
                self.add(at, Event::Back(flow, router - 1, false));
            }
            return;
        };
        if self.way == Way::InBand && number == 1 {
            self.rules[flow][router] = Rule::Pending;
            self.add(now + line.work, Event::Decided(flow, router));
        }
        self.effort[flow][at] |= !matches!(self.rules[flow][router], Rule::Granted(..));
        match self.rules[flow][router] {
            Rule::Refused => marked = true,
            _ if marked => self.take_back(now, flow, router, Rule::Refused),
            _ => {}
        }
        if last {
            self.take_back(now, flow, router, Rule::Over);
        }
        self.add(now + line.delay, Event::Forward(flow, number, router + 1, marked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_ms;

    fn flow(start: u64, packets: u64, share: u64) -> Flow {
        let demand = Demand { cost: Duration::from_us(100 * share), interval: MS(10) };
        Flow { start: Time::START + MS(start), enters: 0, packets, demand }
    }

    #[test]
    fn in_band_nothing_waits_for_the_set_up_and_few_packets_go_without_it_d_49() {
        let lines = [Line { delay: MS(8), work: MS(25) }; 4];
        let alone = |way| run(way, MS(8), &lines, &[flow(0, 200, 10)]);
        let (trip, band) = (alone(Way::RoundTrip), alone(Way::InBand));
        let one_way = MS(5 * 8);
        assert_eq!(band.outcomes[0].first, Some(Time::START + one_way));
        assert_eq!(trip.outcomes[0].first, Some(Time::START + one_way + MS(2 * 5 * 8 + 4 * 25)));
        // Three packets in 25 ms, at all routers the same ones.
        assert_eq!((band.outcomes[0].reserved, band.outcomes[0].effort), (197, 3));
        assert_eq!((trip.outcomes[0].reserved, trip.outcomes[0].effort), (200, 0));
        assert_eq!((trip.left, band.left), (0, 0));
        // A flow of fewer packets than that gets nothing of it, and leaves nothing behind.
        let short = run(Way::InBand, MS(8), &lines, &[flow(0, 2, 10)]);
        assert_eq!((short.outcomes[0].effort, short.left, short.utilisation), (2, 0, 0.0));
    }

    #[test]
    fn a_refusal_further_on_takes_back_what_was_granted_before_d_49() {
        // The lines of the second and third router are taken by a flow that entered there before.
        let lines = [Line { delay: MS(10), work: MS(5) }; 3];
        let there = Flow { enters: 1, ..flow(0, 1000, 60) };
        for (way, in_vain) in [(Way::RoundTrip, MS(25)), (Way::InBand, MS(65))] {
            let report = run(way, MS(10), &lines, &[there, flow(1000, 100, 60)]);
            assert!(!report.outcomes[0].refused && report.outcomes[1].refused, "{way:?}");
            assert_eq!((report.left, report.outcomes[1].reserved), (0, 0));
            // In band its packets arrive nevertheless.
            assert_eq!(report.outcomes[1].effort, if way == Way::InBand { 100 } else { 0 });
            // With a round trip the first router holds it until the answer is back; in band until the destination has
            // answered the first packet that is marked.
            assert_eq!(report.in_vain, in_vain, "{way:?}");
        }
    }

    proptest! {
        /// However flows come: no line promises more than it has, nothing is left at the end, in band every packet
        /// arrives and the first without delay.
        #[test]
        fn accounts_balance_and_nothing_waits_in_band(
            flows in prop::collection::vec((0..400u64, 1..40u64, 1..50u64, 0..5usize), 1..25),
            works in prop::collection::vec(0..40u64, 1..5),
        ) {
            let flows: Vec<Flow> = flows.iter().map(|(start, packets, share, enters)| {
                Flow { enters: enters % works.len(), ..flow(*start, *packets, *share) }
            }).collect();
            let line = |work: &u64| Line { delay: MS(7), work: MS(*work) };
            let lines: Vec<Line> = works.iter().map(line).collect();
            for way in [Way::RoundTrip, Way::InBand] {
                let report = run(way, MS(7), &lines, &flows);
                prop_assert_eq!(report.left, 0);
                prop_assert!(report.utilisation < 1.0);
                for (flow, outcome) in flows.iter().zip(&report.outcomes) {
                    let sent = outcome.reserved + outcome.effort;
                    let one_way = MS(7 * (1 + (lines.len() - flow.enters) as u64));
                    match way {
                        Way::InBand => {
                            prop_assert_eq!(outcome.first, Some(flow.start + one_way));
                            prop_assert_eq!(sent, flow.packets);
                        }
                        Way::RoundTrip => {
                            prop_assert_eq!(outcome.effort, 0);
                            prop_assert_eq!(sent, if outcome.refused { 0 } else { flow.packets });
                        }
                    }
                }
            }
        }
    }
}
