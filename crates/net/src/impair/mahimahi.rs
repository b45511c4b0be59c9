//! A link that delivers at the instants of a recorded trace, as mahimahi's does, with any queue discipline.
//!
//! ```text
//! any in --> [ queue ] --> (opportunities: 1500 bytes each) --> out 0      drops: the queue's
//! ```
//!
//! An opportunity carries the rest of the packet in transmission, and then packets from the
//! queue, until its bytes are used up: several short packets leave with it, and a long one needs
//! several. Unused bytes are lost. A packet that arrives at the instant of an opportunity has
//! missed it.
//!
//! Opportunities occur at their own times, whenever the clock wakes up; there is one timer, for
//! the next of them, and none while nothing waits.
//!
//! Source: as `opportunities`; the order of steps is `LinkQueue::rationalize` of `link_queue.cc`.

use super::{Opportunities, TOWARD, TRACE_LEN_MAX, stand};
use crate::queue::{self, Queue};
use lastmeter_base::kind::{Family, Kind, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, StageId, Time, here, one_way};
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{Context, Element, Meter, PortId, Report, ResourceId, TimerId};
use lastmeter_engine::{Error, ResourceKind};

const PAGE: &Page = &Page {
    name: "mahimahi",
    family: Family::Node,
    what: "A wire that delivers 1500 bytes at each instant of a recorded mahimahi trace.",
    ports: "any in --> [ queue ] --> (opportunities) --> link towards the destination",
    params: &[
        Param::required("trace", ParamKind::Text).is("the file: a time in milliseconds a line"),
        Param::or("opportunity", ParamKind::PACKET, "1500 B").is("what each of them carries"),
        Param::or("queue", ParamKind::Nested(Family::Queue), "{ drop-tail = {} }")
            .is("where packets wait for opportunities"),
        TOWARD,
    ],
    source: "Netravali et al., Mahimahi, USENIX ATC 2015, §4.1; mm-link(1)",
    deviations: &[
        "Mahimahi refuses packets longer than an opportunity; here they take several.",
        "Mahimahi's opportunities carry 1504 bytes, 4 of which are its tunnel's.",
    ],
    counters: &[
        ("served", "packets delivered"),
        ("refused", "packets that the queue had no room for"),
        ("dropped", "packets that the queue accepted and dropped later, or instead of others"),
        ("opportunities", "opportunities that occurred while packets waited"),
        ("packets_most", "most packets that waited"),
    ],
    example: one_way! {
        "1 s", "alice" [
            "cell" = r#"mahimahi = { trace = "../../examples/traces/cell.up", toward = ["bob"] }"#,
        ] "bob",
        [r#"delay = "10 ms""#],
        "transfer" [r#"constant = { rate = "5 Mbit/s", size = "1500 B" }"#]
    },
    ..Page::at(here!())
};

/// Serves a queue at the instants of a trace.
pub struct OpportunityServer<Q> {
    queue: Q,
    trace: Opportunities,
    /// The bytes of an opportunity.
    opportunity: Bytes,
    stage: StageId,
    meter: Meter,
    /// The packet in transmission, and its bytes still to be sent.
    going: Option<(Packet, u64)>,
    /// When the last packet left.
    free_at: Time,
    busy: bool,
    served: u64,
    refused: u64,
    dropped: u64,
    opportunities: u64,
    packets_most: u64,
}

const NEXT: TimerId = TimerId(0);

impl<Q: Queue> OpportunityServer<Q> {
    /// An idle server. Its time is accounted to `stage` and `resource`, which is busy while anything
    /// waits.
    pub fn new(
        queue: Q,
        trace: Opportunities,
        opportunity: Bytes,
        stage: StageId,
        resource: ResourceId,
    ) -> OpportunityServer<Q> {
        OpportunityServer {
            queue,
            trace,
            opportunity,
            stage,
            meter: Meter::new(resource),
            going: None,
            free_at: Time::START,
            busy: false,
            served: 0,
            refused: 0,
            dropped: 0,
            opportunities: 0,
            packets_most: 0,
        }
    }

    fn waits(&self) -> bool {
        self.going.is_some() || self.queue.packets() > 0
    }

    fn take_dropped(&mut self, cx: &mut Context<'_>) {
        while let Some((packet, reason)) = self.queue.dropped() {
            self.dropped += 1;
            cx.drop(packet, Some(self.stage), reason);
        }
    }

    /// Uses every opportunity up to now, each at its own time.
    fn deliver(&mut self, cx: &mut Context<'_>) {
        while self.waits() && self.trace.next() <= cx.now() {
            let due = self.trace.take();
            self.opportunities += 1;
            let mut left = self.opportunity.0;
            while left > 0 {
                let Some((packet, rest)) = self.going.take().or_else(|| self.begin(cx, due)) else {
                    break;
                };
                let carried = left.min(rest);
                left -= carried;
                match rest - carried {
                    0 => self.end(cx, packet, due),
                    rest => self.going = Some((packet, rest)),
                }
            }
            self.rest_if_idle(due);
        }
        self.trace.pass(cx.now());
    }

    fn begin(&mut self, cx: &mut Context<'_>, due: Time) -> Option<(Packet, u64)> {
        let packet = self.queue.dequeue(due);
        self.take_dropped(cx);
        let packet = packet?;
        let len = packet.len.0;
        Some((packet, len))
    }

    fn end(&mut self, cx: &mut Context<'_>, mut packet: Packet, due: Time) {
        let started = self.free_at.max(packet.entered);
        self.free_at = due;
        self.served += 1;
        self.meter.moved(packet.len);
        packet.visit(self.stage, started - packet.entered, due - started, Duration::ZERO);
        cx.send_at(PortId(0), packet, due);
    }

    fn rest_if_idle(&mut self, now: Time) {
        if self.busy && !self.waits() {
            self.busy = false;
            self.meter.rest(now);
        }
    }

    fn arm(&mut self, cx: &mut Context<'_>) {
        let ready = self.going.as_ref().map(|_| cx.now()).or(self.queue.ready_at(cx.now()));
        if let Some(ready) = ready {
            // While the queue holds packets back, opportunities pass unused.
            if ready > cx.now() && self.trace.next() < ready {
                self.trace.pass(Time::from_ps(ready.as_ps() - 1));
            }
            cx.arm(NEXT, self.trace.next());
        }
    }
}

impl<Q: Queue> Element for OpportunityServer<Q> {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let now = cx.now();
        self.deliver(cx);
        packet.entered = now;
        let enqueued = self.queue.enqueue(now, packet);
        self.take_dropped(cx);
        if let Err(packet) = enqueued {
            self.refused += 1;
            cx.drop(packet, Some(self.stage), "full");
        }
        if !self.busy && self.waits() {
            self.busy = true;
            self.meter.serve(now, self.stage);
        }
        self.rest_if_idle(now);
        self.packets_most = self.packets_most.max(self.queue.packets());
        self.arm(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.deliver(cx);
        self.arm(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.queue.packets() + u64::from(self.going.is_some()));
        out.meter(&self.meter);
        out.count("served", self.served);
        out.count("refused", self.refused);
        out.count("dropped", self.dropped);
        out.count("opportunities", self.opportunities);
        out.count("packets_most", self.packets_most);
        self.queue.counts(&mut |name, value| out.count(name, value));
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let path: String = values.get("trace");
    let wire = site.resource("wire", "", ResourceKind::Wire);
    let stage = site.stage(PAGE.name, Some(&wire));
    let text = site.read(&path, TRACE_LEN_MAX)?;
    let trace = Opportunities::parse(&text).map_err(|error| format!("`{path}`, {error}"))?;
    let (numerator, denominator) = wire.speed;
    let trace = trace.scale(numerator, denominator);
    let described: Nested = values.get("queue");
    let queue = queue::build(&described, &queue::Site::of(site));
    // If its time costs nothing, the first opportunity carries everything.
    let opportunity = if stage.free { Bytes(u64::MAX) } else { values.get("opportunity") };
    let server = OpportunityServer::new(queue, trace, opportunity, stage.id, wire.id);
    stand(values, site, Box::new(server))
}

#[cfg(test)]
mod tests {
    use super::super::check::{Arrival, Trial};
    use super::*;
    use crate::queue::DropTail;

    /// When packets leave, in milliseconds.
    fn departures(trial: Trial, trace: &str, packets: u64) -> (Vec<(u64, u64)>, u64) {
        let trace = Opportunities::parse(trace.as_bytes()).unwrap();
        let (outcome, arrivals) = Trial { wire: true, ..trial }.arrivals(|stage, wire| {
            let queue = DropTail::new(packets, Bytes(u64::MAX));
            Box::new(OpportunityServer::new(queue, trace, Bytes(1500), stage, wire))
        });
        let ms = |one: &Arrival| (one.seq, one.at.as_ps() / 1_000_000_000);
        (arrivals.iter().map(ms).collect(), outcome.books.dropped)
    }

    const BURST: Trial = Trial { packets: 6, gap: Duration::from_us(1), ..Trial::USUAL };

    #[test]
    fn a_backlog_leaves_at_exactly_the_opportunities() {
        // Those at 0 ms have passed when the first packet arrives.
        let (left, _) = departures(BURST, "0\n5\n5\n12\n", 100);
        assert_eq!(left, [(0, 5), (1, 5), (2, 12), (3, 12), (4, 17), (5, 17)]);
    }

    #[test]
    fn short_packets_share_an_opportunity_and_long_ones_take_several() {
        let (left, _) = departures(Trial { len: Bytes(500), ..BURST }, "2\n9\n", 100);
        assert_eq!(left, [(0, 2), (1, 2), (2, 2), (3, 9), (4, 9), (5, 9)]);
        let long = Trial { len: Bytes(2000), packets: 3, ..BURST };
        let (left, _) = departures(long, "1\n2\n3\n4\n", 100);
        assert_eq!(left, [(0, 2), (1, 3), (2, 4)]);
    }

    #[test]
    fn unused_opportunities_are_lost_and_a_full_queue_refuses() {
        let sparse = Trial { packets: 3, gap: Duration::from_ms(10), ..Trial::USUAL };
        let (left, _) = departures(sparse, "1\n4\n", 100);
        assert_eq!(left, [(0, 1), (1, 12), (2, 21)]);
        let (left, dropped) = departures(BURST, "3\n7\n", 2);
        assert_eq!((left.len(), dropped), (2, 4));
    }

    #[test]
    fn a_late_clock_delivers_the_same_packets_at_no_earlier_time() {
        let trial = Trial { packets: 400, gap: Duration::from_us(700), ..Trial::USUAL };
        let trace = "0\n1\n1\n3\n3\n3\n8\n9\n";
        let (on_time, _) = departures(trial, trace, 1000);
        let (late, _) = departures(Trial { late: true, ..trial }, trace, 1000);
        assert_eq!((on_time.len(), late.len()), (400, 400));
        assert!(on_time.iter().zip(&late).all(|(a, b)| a.0 == b.0));
    }
}
