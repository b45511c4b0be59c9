//! The channels of a bridge to AN2: each carries the connections whose entries name it.
//!
//! ```text
//! cell, port of its entry --> [ FIFO of channel 0 ] --> OC-3c --.
//!                             [ FIFO of channel 1 ] --> OC-3c --+--> multiplexed line
//!                             [ ... ]                         --'
//! ```
//!
//! A channel serves in order of arrival, so each departure is known when a cell arrives. Cells of one connection
//! stay in order; those of different channels may overtake each other by their skew. A cell that finds its FIFO
//! full is lost.
//!
//! Source: Aurora report §3.4.2, §4.1.2: VuNet hosts "were able to set up connections through each of the OC-3c
//! channels, which they could use as stripes".

use lastmeter_base::{Duration, Packet, Rate, StageId, Time};
use lastmeter_engine::{Context, Meter, PortId, Report, ResourceId, TimerId};
use std::collections::BTreeMap;

/// Where the multiplexed line is attached.
const LINE: PortId = PortId(1);
/// When the first cell of all channels leaves.
pub(super) const LEAVE: TimerId = TimerId(1);

/// Parameters of the channels.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of channels.
    pub channels: usize,
    /// Rate of each channel.
    pub rate: Rate,
    /// Most cells waiting for a channel.
    pub cells: u64,
    /// Additional delay of each channel over the previous one.
    pub skew: Duration,
}

/// The stages of channels in the books.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// Waiting for a channel and transmission on it.
    pub transmit: StageId,
    /// The additional delay of longer channels.
    pub skew: StageId,
}

/// Channels with their FIFOs.
#[derive(Debug)]
pub struct Channels {
    options: Options,
    stages: Stages,
    /// One for each channel, with the end of the work given to it.
    wires: Vec<(Meter, Time)>,
    /// Cells on a channel or waiting for one, by departure time.
    flights: BTreeMap<(Time, u64), Packet>,
    launched: u64,
    full: u64,
}

impl Channels {
    /// Idle channels, the units of `resource`.
    pub fn new(options: Options, stages: Stages, resource: ResourceId) -> Channels {
        let wires = (0..options.channels).map(|_| (Meter::new(resource), Time::START)).collect();
        Channels { options, stages, wires, flights: BTreeMap::new(), launched: 0, full: 0 }
    }

    /// A cell arrives for this channel.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, channel: u8, mut packet: Packet) {
        let Options { rate, cells, skew, .. } = self.options;
        let now = cx.now();
        let Some((meter, busy_until)) = self.wires.get_mut(usize::from(channel)) else {
            return cx.drop(packet, Some(self.stages.transmit), "no such channel");
        };
        let time = rate.time_for(packet.len);
        let start = now.max(*busy_until);
        // The cell in transmission does not wait.
        if start - now > time * cells {
            self.full += 1;
            return cx.drop(packet, Some(self.stages.transmit), "channel full");
        }
        if start > *busy_until {
            meter.rest(*busy_until);
        }
        if start > *busy_until || start == Time::START {
            meter.serve(start, self.stages.transmit);
        }
        let end = start + time;
        *busy_until = end;
        meter.moved(packet.len);
        let longer = skew * u64::from(channel);
        if cx.collecting() {
            packet.visit(self.stages.transmit, start - now, time, Duration::ZERO);
            packet.visit(self.stages.skew, Duration::ZERO, longer, Duration::ZERO);
        }
        self.flights.insert((end + longer, self.launched), packet);
        self.launched += 1;
        self.arm(cx);
    }

    /// Forwards the cells that have reached the end of their channel.
    pub(super) fn expire(&mut self, cx: &mut Context<'_>) {
        while let Some(first) = self.flights.first_entry().filter(|one| one.key().0 <= cx.now()) {
            cx.send(LINE, first.remove());
        }
        self.arm(cx);
    }

    fn arm(&self, cx: &mut Context<'_>) {
        if let Some((&(at, _), _)) = self.flights.first_key_value() {
            cx.arm(LEAVE, at);
        }
    }

    pub(super) fn report(&self, out: &mut Report) {
        out.held(self.flights.len() as u64);
        for (meter, busy_until) in &self.wires {
            let mut meter = meter.clone();
            if *busy_until <= out.now() {
                meter.rest(*busy_until);
            }
            out.meter(&meter);
        }
        out.count("full", self.full);
        let used = self.wires.iter().filter(|(_, busy_until)| *busy_until > Time::START).count();
        out.count("channels_used", used as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{Bytes, FlowId, NodeId, PathId};
    use lastmeter_engine::{
        Element, Graph, Outcome, ResourceInfo, ResourceKind, StageInfo, VirtualClock,
    };

    /// Sends cells on its channels in turn, each a given time after the last.
    struct Cells {
        channels: Channels,
        path: PathId,
        gap: Duration,
        left: u64,
        over: u8,
    }

    impl Element for Cells {
        fn timers(&self) -> u32 {
            2
        }
        fn start(&mut self, cx: &mut Context<'_>) {
            cx.arm(TimerId(0), Time::START);
        }
        fn receive(&mut self, _: &mut Context<'_>, _: PortId, _: Packet) {}
        fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
            if timer == LEAVE {
                return self.channels.expire(cx);
            }
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let channel = (self.left % u64::from(self.over)) as u8;
            let mut packet = cx.make(self.path, Bytes(53));
            packet.flow = FlowId(channel.into());
            packet.destination = NodeId(0);
            self.channels.send(cx, channel, packet);
            cx.arm(timer, cx.now() + self.gap);
        }
        fn report(&self, out: &mut Report) {
            self.channels.report(out);
        }
    }

    fn run(gap: Duration, over: u8, cells: u64, skew: Duration) -> Outcome {
        let mut graph = Graph::new(1);
        let info = ResourceInfo { units: 4, ..ResourceInfo::new("channels", ResourceKind::Wire) };
        let resource = graph.resource(info);
        let mut stage = |name: &str, resource| {
            let name = name.to_owned();
            graph.stage(StageInfo::new(name, resource))
        };
        let stages =
            Stages { transmit: stage("channel", Some(resource)), skew: stage("skew", None) };
        let rate = Rate::from_mbit(150);
        let options = Options { channels: 4, rate, cells, skew };
        let channels = Channels::new(options, stages, resource);
        let path = graph.path("cells", "cells");
        let source = Cells { channels, path, gap, left: 10_000, over };
        let source = graph.add("source", source).unwrap();
        let sink = graph.add("sink", lastmeter_net::sink::Sink::default()).unwrap();
        graph.connect(source, LINE, sink, PortId(0)).unwrap();
        let mut engine = graph.build(1).unwrap();
        let end = Time::START + Duration::from_ms(100);
        engine.run_until(end, &mut VirtualClock::default()).unwrap();
        engine.finish().unwrap()
    }

    #[test]
    fn a_57_four_channels_carry_four_times_as_much_as_one_and_the_books_balance() {
        // A cell takes 2.83 us on a channel: one every 0.75 us is more than one channel carries, and less than
        // four.
        let gap = Duration::from_ns(750);
        let four = run(gap, 4, 16, Duration::from_us(30)).books;
        assert_eq!(four.delivered, 10_000);
        let one = run(gap, 1, 16, Duration::ZERO).books;
        let share = one.delivered as f64 / 10_000.0;
        assert!((0.25..0.28).contains(&share), "{share}");
    }

    #[test]
    fn a_cell_for_a_channel_that_does_not_exist_is_dropped_with_its_reason() {
        let outcome = run(Duration::from_us(5), 5, 16, Duration::ZERO);
        assert_eq!(outcome.books.delivered, 8000);
    }
}
