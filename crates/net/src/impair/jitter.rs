//! Jitter: each packet is delayed by a time of its own, and may or may not overtake others.
//!
//! ```text
//! any in --> [ drawn delay ] --> out 0        drops: `full`
//! ```
//!
//! In order, a packet leaves no earlier than the one before it. Where overtaking is allowed,
//! packets leave at their own times; of equal ones the first to arrive leaves first. Deadlines are
//! arrivals plus delays, so a clock that wakes up late delays only packets that were due.

use super::{TOWARD, stand};
use crate::queue::Buffers;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Draw, Duration, Packet, StageId, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};
use std::collections::BTreeMap;

/// Default limit on the packets held.
const PACKETS: &str = "100000";

const PAGE: &Page = &Page {
    name: "jitter",
    family: Family::Node,
    what: "Delays each packet by a random time, with or without keeping their order.",
    ports: "any in --> [ drawn delay ] --> link towards the destination",
    params: &[
        Param::required("delay", ParamKind::Draw).is("delay of a packet"),
        Param::or("in-order", ParamKind::Flag, "true").is("whether no packet overtakes another"),
        Param::or("packets", ParamKind::COUNT, PACKETS).is("limit on packets held"),
        TOWARD,
    ],
    deviations: &["In order, a packet waits for those before it, on top of its own delay."],
    counters: &[
        ("delayed", "packets accepted"),
        ("overtaken", "packets that left after a later one"),
        ("refused", "packets that arrived when it held the most allowed"),
    ],
    drops: &[("full", "packets that arrived when it held the most allowed")],
    example: one_way! {
        "100 ms", "alice" ["wan" = r#"jitter = { delay = { uniform = ["5 ms", "7 ms"] } }"#] "bob",
        [r#"rate = "1 Gbit/s""#],
        "transfer" [r#"constant = { rate = "10 Mbit/s", size = "1500 B" }"#]
    },
    ..Page::at(here!())
};

/// Delays packets.
pub struct Jitter {
    delay: Draw,
    in_order: bool,
    packets_max: u64,
    stage: StageId,
    /// Packets held, by due time and then in order of arrival.
    held: BTreeMap<(Time, u64), Packet>,
    /// When the last of those that have arrived is due.
    last: Time,
    /// The latest arrival among those that have left.
    newest: u64,
    delayed: u64,
    overtaken: u64,
    refused: u64,
}

const DUE: TimerId = TimerId(0);

impl Jitter {
    /// Holds at most `packets_max`; packets' time in it is accounted to `stage`.
    pub fn new(delay: Draw, in_order: bool, packets_max: u64, stage: StageId) -> Jitter {
        Jitter {
            delay,
            in_order,
            packets_max,
            stage,
            held: BTreeMap::new(),
            last: Time::START,
            newest: 0,
            delayed: 0,
            overtaken: 0,
            refused: 0,
        }
    }

    /// Sends all packets that are due.
    fn release(&mut self, cx: &mut Context<'_>) {
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= cx.now()) {
            let ((due, number), mut packet) = first.remove_entry();
            self.overtaken += u64::from(number < self.newest);
            self.newest = self.newest.max(number);
            // Lateness of the clock is not part of the delay.
            packet.visit(self.stage, Duration::ZERO, due - packet.entered, cx.now() - due);
            cx.send(PortId(0), packet);
        }
        if let Some((&(due, _), _)) = self.held.first_key_value() {
            cx.arm(DUE, due);
        }
    }
}

impl Element for Jitter {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        if self.held.len() as u64 >= self.packets_max {
            self.refused += 1;
            cx.drop(packet, Some(self.stage), "full");
            return;
        }
        let now = cx.now();
        let mut due = now + self.delay.sample(cx.rng());
        if self.in_order {
            due = due.max(self.last);
            self.last = due;
        }
        packet.entered = now;
        self.held.insert((due, self.delayed), packet);
        self.delayed += 1;
        self.release(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.release(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.held.len() as u64);
        out.count("delayed", self.delayed);
        out.count("overtaken", self.overtaken);
        out.count("refused", self.refused);
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let stage = site.stage(PAGE.name, None);
    let delay = stage.draw(&values.get("delay"));
    let packets_max = Buffers::of(site.names).scale(values.get("packets"));
    let jitter = Jitter::new(delay, values.get("in-order"), packets_max, stage.id);
    stand(values, site, Box::new(jitter))
}

#[cfg(test)]
mod tests {
    use super::super::check::{Arrival, Trial, binomial_agrees};
    use super::*;

    const MS: Duration = Duration::from_ms(1);

    fn delays(draw: &Draw, in_order: bool, gap: Duration) -> Vec<Arrival> {
        let trial = Trial { packets: 20_000, gap, ..Trial::USUAL };
        let jitter = |stage, _| {
            let element: Box<dyn Element> =
                Box::new(Jitter::new(draw.clone(), in_order, u64::MAX, stage));
            element
        };
        trial.arrivals(jitter).1
    }

    fn is_in_order(arrivals: &[Arrival]) -> bool {
        arrivals.windows(2).all(|pair| pair[0].seq < pair[1].seq)
    }

    #[test]
    fn delays_are_distributed_as_they_are_drawn() {
        // Kolmogorov's distance to the uniform distribution, at one in a thousand: 1.95/sqrt(n).
        for in_order in [true, false] {
            let arrivals = delays(&Draw::Uniform(MS, MS * 3), in_order, MS * 2);
            let mut spent: Vec<f64> =
                arrivals.iter().map(|one| (one.at - one.born).as_secs_f64()).collect();
            spent.sort_by(f64::total_cmp);
            let n = spent.len() as f64;
            let distance = spent.iter().enumerate().map(|(rank, &time)| {
                let formula = (time - 1e-3) / 2e-3;
                (rank as f64 / n - formula).abs().max(((rank + 1) as f64 / n - formula).abs())
            });
            assert!(distance.fold(0.0, f64::max) < 1.95 / n.sqrt());
        }
    }

    #[test]
    fn exponential_delays_have_their_mean_and_share_above_it() {
        let arrivals = delays(&Draw::Exponential(MS), false, MS / 10);
        let n = arrivals.len() as f64;
        let spent = arrivals.iter().map(|one| (one.at - one.born).as_secs_f64());
        let mean = spent.clone().sum::<f64>() / n;
        assert!((mean - 1e-3).abs() < 4.0 * 1e-3 / n.sqrt(), "{mean}");
        let longer = spent.filter(|&time| time > 1e-3).count() as u64;
        binomial_agrees(longer, arrivals.len() as u64, (-1.0f64).exp());
    }

    #[test]
    fn order_is_kept_or_not() {
        let draw = Draw::Uniform(MS, MS * 3);
        assert!(is_in_order(&delays(&draw, true, MS / 10)));
        assert!(!is_in_order(&delays(&draw, false, MS / 10)));
    }

    #[test]
    fn no_packet_leaves_before_its_time_or_twice_on_a_late_clock() {
        for in_order in [true, false] {
            let trial = Trial { packets: 5000, ..Trial::USUAL };
            let draw = Draw::Uniform(MS, MS * 3);
            let run = |late| {
                let trial = Trial { late, ..trial };
                trial.arrivals(|stage, _| {
                    Box::new(Jitter::new(draw.clone(), in_order, u64::MAX, stage))
                })
            };
            let ((_, virtually), (_, late)) = (run(false), run(true));
            assert_eq!((virtually.len(), late.len()), (5000, 5000));
            assert!(!in_order || is_in_order(&late));
        }
    }

    #[test]
    fn it_refuses_what_it_has_no_room_for() {
        let trial = Trial { packets: 100, gap: MS / 100, ..Trial::USUAL };
        let outcome =
            trial.run(|stage, _| Box::new(Jitter::new(Draw::Constant(MS * 50), true, 10, stage)));
        assert_eq!((outcome.books.delivered, outcome.books.dropped), (10, 90));
    }
}
