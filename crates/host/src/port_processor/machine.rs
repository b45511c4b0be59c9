//! The port processor itself: arbitration of bus and memory.

use super::{CELL, Names, Options, Side};
use crate::machine::Output;
use lastmeter_base::{Bytes, Duration, Packet, StageId, Time};
use lastmeter_engine::{Meter, PortId};
use std::collections::VecDeque;

/// Most packets waiting for the end of the one that is arriving.
const LINE_MAX: usize = 64;

/// A port processor.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Packet, PerByte, StageId, Time};
/// use lastmeter_engine::ResourceId;
/// use lastmeter_host::port_processor::{Machine, Names, Options, Side};
/// let options = Options {
///     cycle: Duration::from_ns(30),
///     operation: 3,
///     wait: 8,
///     word: Bytes(4),
///     memory: PerByte::from_fs(7_500_000),
///     receive: vec![4, 1, 1],
///     send: vec![4, 1, 1],
///     batch: 8,
///     fifo: 32,
///     buffers: 2,
///     cell_gap: Duration::from_ns(350),
///     software: Duration::from_us(4),
///     lookup: Duration::ZERO,
///     swap: None,
///     clock: None,
///     quantum: Duration::from_us(1),
///     free: [false; 2],
/// };
/// assert_eq!(options.cycles(), (60, 124));
/// let resources = [0, 1, 2].map(ResourceId);
/// let names = Names::of(resources, [0, 1, 2, 3, 4, 5].map(StageId));
/// let mut port = Machine::new(options, names);
/// port.arrive(Time::START, Side::Input, Packet::new(Bytes(40)));
/// port.advance(Time::START + Duration::from_us(8));
/// // 124 cycles of 30 ns and 4 us.
/// assert_eq!(port.outputs().count(), 1);
/// assert_eq!(port.held(), 0);
/// ```
pub struct Machine {
    options: Options,
    names: Names,
    /// When the next cell of the arriving packet is due, and how many are left.
    arriving: Option<(Time, u64)>,
    line: VecDeque<(Packet, Side)>,
    /// Packets with cells in the FIFO; the last one may still be arriving.
    receiving: VecDeque<Receiving>,
    /// Cells in the FIFO when the current burst out of it began, plus those that have arrived since.
    fifo: u64,
    /// When the burst out of the FIFO began, and its duration.
    leaving: Option<(Time, Duration)>,
    buffers_free: u64,
    received: VecDeque<(Packet, Side, Fate)>,
    work: Option<Work>,
    clock_next: Option<Time>,
    clock_left: Duration,
    sending: VecDeque<Sending>,
    /// Until when bus and memory are held.
    bus: Option<Time>,
    memory: Option<Time>,
    /// When the burst or step of each of the three ends.
    running: [Option<Time>; 3],
    /// Whose turn it is.
    turn: usize,
    meters: Meters,
    outputs: Vec<Output>,
    overruns: u64,
}

struct Meters {
    bus: Meter,
    memory: Meter,
    cpu: Meter,
}

const RECEIVE: usize = 0;
const SEND: usize = 1;
const CPU: usize = 2;

/// Whether a packet that has been received is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Whole,
    Damaged,
}

struct Receiving {
    packet: Packet,
    side: Side,
    /// Cells that found room, and how many of them are still in the FIFO.
    kept: u64,
    in_fifo: u64,
    fate: Fate,
    /// Whether its last cell has arrived.
    complete: bool,
    /// Bursts so far, and the cells of the current one.
    served: Duration,
    moving: u64,
}

/// The processor's work on a packet.
struct Work {
    packet: Packet,
    fate: Fate,
    started: Time,
    /// When its last step ended.
    since: Time,
    /// For each of the processor's stages, in the order of [`Names::process`], how long the packet was served and
    /// how long it waited between steps.
    spent: [(Duration, Duration); 3],
    steps: VecDeque<(usize, Step)>,
}

#[derive(Clone, Copy)]
enum Step {
    /// Waits for a number of bus operations, one after the other, with this many words in all.
    Operations(u64, u64),
    /// Computes, and uses the memory, for this long.
    Software(Duration),
}

/// Indices of the processor's stages in [`Names::process`].
const SOFTWARE: usize = 0;
const LOOKUP: usize = 1;
const SWAP: usize = 2;

struct Sending {
    packet: Packet,
    cells_left: u64,
    /// When its first burst began.
    started: Option<Time>,
    served: Duration,
    moving: u64,
}

impl Machine {
    /// A port at rest. Panics if an option is out of range.
    pub fn new(options: Options, names: Names) -> Machine {
        assert!(options.batch > 0 && options.fifo >= options.batch, "the FIFO holds a burst");
        assert!(options.buffers > 0, "a port needs at least one buffer");
        assert!(
            !options.quantum.is_zero() && !options.cell_gap.is_zero(),
            "quantum and cell gap are more than zero"
        );
        Machine {
            arriving: None,
            line: VecDeque::new(),
            receiving: VecDeque::new(),
            fifo: 0,
            leaving: None,
            buffers_free: options.buffers,
            received: VecDeque::new(),
            work: None,
            clock_next: options.clock.map(|(period, _)| Time::START + period),
            clock_left: Duration::ZERO,
            sending: VecDeque::new(),
            bus: None,
            memory: None,
            running: [None; 3],
            turn: RECEIVE,
            meters: Meters {
                bus: Meter::new(names.pci),
                memory: Meter::new(names.memory),
                cpu: Meter::new(names.cpu),
            },
            outputs: Vec::new(),
            overruns: 0,
            options,
            names,
        }
    }

    /// The first cell of a packet arrives, after everything due earlier has been handled. Its circuit determines
    /// the side of the router (D-63).
    pub fn arrive(&mut self, now: Time, side: Side, packet: Packet) {
        self.advance(now);
        if self.line.len() >= LINE_MAX {
            self.outputs.push(Output::Drop(packet, self.names.receive, "line full"));
            return;
        }
        self.line.push_back((packet, side));
        self.begin(now);
        self.grant(now);
    }

    /// When the next event is due.
    pub fn ready_at(&self) -> Option<Time> {
        let cell = self.arriving.map(|(next, _)| next);
        let ends =
            self.running.iter().copied().chain([self.bus, self.memory, self.clock_next, cell]);
        ends.flatten().min()
    }

    /// Handles everything due by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some(due) = self.ready_at().filter(|&due| due <= now) {
            self.step(due);
        }
    }

    /// The machine's effects on the outside world, in order.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// Packets inside.
    pub fn held(&self) -> u64 {
        let waiting = self.line.len() + self.receiving.len() + self.received.len();
        (waiting + usize::from(self.work.is_some()) + self.sending.len()) as u64
    }

    /// Packets that lost a cell in the FIFO.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// The times of bus, memory and processor.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        [&self.meters.bus, &self.meters.memory, &self.meters.cpu].into_iter()
    }

    /// One instant: first what ends, then what can begin.
    fn step(&mut self, now: Time) {
        if self.bus == Some(now) {
            self.bus = None;
            self.meters.bus.rest(now);
        }
        if self.memory == Some(now) {
            self.memory = None;
            self.meters.memory.rest(now);
        }
        if self.arriving.is_some_and(|(next, _)| next == now) {
            self.cell(now);
        }
        for who in [RECEIVE, SEND, CPU] {
            if self.running[who] == Some(now) {
                self.running[who] = None;
                match who {
                    RECEIVE => self.received_burst(now),
                    SEND => self.sent_burst(now),
                    _ => self.worked(now),
                }
            }
        }
        if let Some((period, work)) = self.options.clock.filter(|_| self.clock_next == Some(now)) {
            self.clock_next = Some(now + period);
            self.clock_left += work;
        }
        self.grant(now);
    }

    /// Begins the next packet on the line, if the previous one has arrived.
    fn begin(&mut self, now: Time) {
        while self.arriving.is_none() {
            let Some((mut packet, side)) = self.line.pop_front() else { return };
            if self.buffers_free == 0 {
                self.outputs.push(Output::Drop(packet, self.names.receive, "no buffer"));
                continue;
            }
            self.buffers_free -= 1;
            packet.entered = now;
            self.arriving = Some((now, Options::cells(packet.len)));
            self.receiving.push_back(Receiving {
                packet,
                side,
                kept: 0,
                in_fifo: 0,
                fate: Fate::Whole,
                complete: false,
                served: Duration::ZERO,
                moving: 0,
            });
            self.cell(now);
        }
    }

    /// A cell arrives.
    fn cell(&mut self, now: Time) {
        let Some((_, left)) = self.arriving else { return };
        let left = left - 1;
        let room = self.fifo - self.gone(now) < self.options.fifo;
        let Some(packet) = self.receiving.back_mut() else { return };
        if room {
            self.fifo += 1;
            packet.kept += 1;
            packet.in_fifo += 1;
        } else {
            packet.fate = Fate::Damaged;
        }
        packet.complete = left == 0;
        if left > 0 {
            self.arriving = Some((now + self.options.cell_gap, left));
            return;
        }
        self.arriving = None;
        // A packet that has lost all of its cells never reaches the memory.
        if let Some(lost) = self.receiving.pop_back_if(|last| last.kept == 0) {
            self.overrun(lost.packet);
        }
        self.finish_receiving(now);
        self.begin(now);
    }

    /// Cells that the current burst has taken out of the FIFO by now: they leave it one by one.
    fn gone(&self, now: Time) -> u64 {
        let moving = self.receiving.front().map_or(0, |front| front.moving);
        let gone = |(began, took): (Time, Duration)| {
            let share = u128::from((now - began).as_ps()) * u128::from(moving);
            (share / u128::from(took.as_ps().max(1))) as u64
        };
        self.leaving.map_or(0, gone).min(moving)
    }

    /// A packet that lost cells ends, and its buffer is free.
    fn overrun(&mut self, packet: Packet) {
        self.buffers_free += 1;
        self.overruns += 1;
        self.outputs.push(Output::Drop(packet, self.names.receive, "overrun"));
    }

    fn received_burst(&mut self, now: Time) {
        self.leaving = None;
        if let Some(packet) = self.receiving.front_mut() {
            packet.in_fifo -= packet.moving;
            self.fifo -= packet.moving;
            packet.moving = 0;
        }
        self.finish_receiving(now);
    }

    /// The first packet of those in the FIFO is in memory, if all of its cells have arrived and left the FIFO.
    fn finish_receiving(&mut self, now: Time) {
        let done = |front: &mut Receiving| front.complete && front.in_fifo == 0;
        let Some(front) = self.receiving.pop_front_if(done) else { return };
        let Receiving { mut packet, side, fate, served, .. } = front;
        let wait = (now - packet.entered).saturating_sub(served);
        packet.visit(self.names.receive, wait, served, Duration::ZERO);
        packet.entered = now;
        self.received.push_back((packet, side, fate));
    }

    fn sent_burst(&mut self, now: Time) {
        let Some(front) = self.sending.front_mut() else { return };
        front.cells_left -= front.moving;
        front.moving = 0;
        if front.cells_left > 0 {
            return;
        }
        let Some(Sending { mut packet, started, served, .. }) = self.sending.pop_front() else {
            return;
        };
        let started = started.unwrap_or(now);
        let (wait, blocked) = (started - packet.entered, (now - started) - served);
        packet.visit(self.names.send, wait, served, blocked);
        self.buffers_free += 1;
        self.outputs.push(Output::Send(PortId(0), packet));
    }

    /// A step of the processor has ended; after its last step the packet proceeds.
    fn worked(&mut self, now: Time) {
        self.meters.cpu.rest(now);
        let Some(work) = self.work.take_if(|work| work.steps.is_empty()) else { return };
        let Work { mut packet, fate, started, spent, .. } = work;
        if fate == Fate::Damaged {
            self.overrun(packet);
            return;
        }
        let mut wait = started - packet.entered;
        for (stage, (served, blocked)) in self.names.process.into_iter().zip(spent) {
            if !(wait + served + blocked).is_zero() {
                packet.visit(stage, wait, served, blocked);
            }
            wait = Duration::ZERO;
        }
        packet.entered = now;
        let cells_left = Options::cells(packet.len);
        let served = Duration::ZERO;
        self.sending.push_back(Sending { packet, cells_left, started: None, served, moving: 0 });
    }

    /// Starts whatever can begin, in turn.
    fn grant(&mut self, now: Time) {
        let mut idle = 0;
        while idle < 3 {
            let who = (self.turn + idle) % 3;
            let began = self.running[who].is_none()
                && match who {
                    RECEIVE => self.receive_burst(now),
                    SEND => self.send_burst(now),
                    _ => self.work(now),
                };
            if began {
                self.turn = (who + 1) % 3;
                idle = 0;
            } else {
                idle += 1;
            }
        }
        let waits = self.work.is_some() || !self.received.is_empty() || !self.clock_left.is_zero();
        if self.running[CPU].is_none() && waits {
            self.meters.cpu.block(now);
        }
    }

    fn receive_burst(&mut self, now: Time) -> bool {
        let batch = self.options.batch;
        let ready = self.receiving.front().filter(|front| front.complete || front.in_fifo >= batch);
        let Some(cells) = ready.map(|front| front.in_fifo.min(batch)).filter(|&cells| cells > 0)
        else {
            return false;
        };
        let Some(took) = self.burst(now, cells, RECEIVE) else { return false };
        if let Some(front) = self.receiving.front_mut() {
            front.moving = cells;
            front.served += took;
        }
        self.leaving = Some((now, took));
        self.running[RECEIVE] = Some(now + took);
        true
    }

    fn send_burst(&mut self, now: Time) -> bool {
        let Some(left) = self.sending.front().map(|front| front.cells_left) else { return false };
        let cells = left.min(self.options.batch);
        let Some(took) = self.burst(now, cells, SEND) else { return false };
        if let Some(front) = self.sending.front_mut() {
            front.moving = cells;
            front.served += took;
            front.started.get_or_insert(now);
        }
        self.running[SEND] = Some(now + took);
        true
    }

    /// A burst of the card, if bus and memory are free: its duration.
    fn burst(&mut self, now: Time, cells: u64, who: usize) -> Option<Duration> {
        if self.bus.is_some() || self.memory.is_some() {
            return None;
        }
        let bytes = Bytes(cells * CELL.0);
        let (bus, memory) = match self.options.free[who] {
            true => (Options::INSTANT, Options::INSTANT),
            false => self.options.burst(bytes.0.div_ceil(self.options.word.0)),
        };
        let stage = if who == RECEIVE { self.names.receive } else { self.names.send };
        self.hold_bus(now, bus, bytes, stage);
        self.hold_memory(now, memory, bytes, stage);
        Some(bus)
    }

    fn hold_bus(&mut self, now: Time, took: Duration, bytes: Bytes, stage: StageId) {
        self.bus = Some(now + took);
        self.meters.bus.serve(now, stage);
        self.meters.bus.moved(bytes);
    }

    fn hold_memory(&mut self, now: Time, took: Duration, bytes: Bytes, stage: StageId) {
        self.memory = Some(now + took);
        self.meters.memory.serve(now, stage);
        self.meters.memory.moved(bytes);
    }

    /// The processor's next step: clock work first, then the packet's.
    fn work(&mut self, now: Time) -> bool {
        if !self.clock_left.is_zero() {
            let Some(took) = self.software(now, self.clock_left, self.names.clock) else {
                return false;
            };
            self.clock_left = self.clock_left - took;
            return true;
        }
        if self.work.is_none() {
            self.work = self.received.pop_front().map(|(packet, side, fate)| {
                let steps = self.steps(packet.len, side, fate);
                if fate == Fate::Whole {
                    // Swapped data is read and written.
                    self.meters.memory.moved(Bytes(2 * self.options.swapped(packet.len).0));
                }
                let spent = [(Duration::ZERO, Duration::ZERO); 3];
                Work { steps, packet, fate, started: now, since: now, spent }
            });
        }
        let Some(&(stage, step)) = self.work.as_ref().and_then(|work| work.steps.front()) else {
            return false;
        };
        let took = match step {
            Step::Operations(count, words) => self.operations(now, count, words),
            Step::Software(left) => self.software(now, left, self.names.process[stage]),
        };
        let (Some(took), Some(work)) = (took, &mut self.work) else { return false };
        let (served, blocked) = &mut work.spent[stage];
        *served += took;
        *blocked += now - work.since;
        work.since = now + took;
        match work.steps.front_mut() {
            Some((_, Step::Software(left))) if *left > took => *left = *left - took,
            _ => drop(work.steps.pop_front()),
        }
        true
    }

    /// The processor's work on a packet; a damaged one is only read and discarded. The output side does no lookup:
    /// the input side has, and the circuit gives the result.
    fn steps(&self, len: Bytes, side: Side, fate: Fate) -> VecDeque<(usize, Step)> {
        let Options { receive, send, software, lookup, memory, .. } = &self.options;
        let operations = |words: &[u64]| {
            (SOFTWARE, Step::Operations(words.len() as u64, words.iter().sum::<u64>()))
        };
        let mut steps = VecDeque::from([operations(receive)]);
        if fate == Fate::Damaged {
            steps.push_back((SOFTWARE, Step::Software(*software / 2)));
            return steps;
        }
        let swap = memory.time_for(Bytes(2 * self.options.swapped(len).0));
        let lookup = if side == Side::Input { *lookup } else { Duration::ZERO };
        let software = [(SWAP, swap), (LOOKUP, lookup), (SOFTWARE, *software)];
        let costs = software.into_iter().filter(|(_, cost)| !cost.is_zero());
        steps.extend(costs.map(|(stage, cost)| (stage, Step::Software(cost))));
        steps.push_back(operations(send));
        steps
    }

    fn operations(&mut self, now: Time, count: u64, words: u64) -> Option<Duration> {
        if self.bus.is_some() {
            return None;
        }
        let Options { operation, wait, .. } = self.options;
        let took = self.options.cycle * (count * (operation + wait) + words);
        let stage = self.names.process[SOFTWARE];
        self.hold_bus(now, took, Bytes(words * self.options.word.0), stage);
        self.meters.cpu.serve(now, stage);
        self.running[CPU] = Some(now + took);
        Some(took)
    }

    fn software(&mut self, now: Time, left: Duration, stage: StageId) -> Option<Duration> {
        if self.memory.is_some() {
            return None;
        }
        let took = left.min(self.options.quantum);
        self.hold_memory(now, took, Bytes::ZERO, stage);
        self.meters.cpu.serve(now, stage);
        self.running[CPU] = Some(now + took);
        Some(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::PerByte;
    use lastmeter_engine::ResourceId;
    use proptest::prelude::*;

    fn options() -> Options {
        Options {
            cycle: Duration::from_ps(30_300),
            operation: 3,
            wait: 8,
            word: Bytes(4),
            memory: PerByte::from_fs(7_575_758),
            receive: vec![4, 1, 1],
            send: vec![4, 1, 1],
            batch: 32,
            fifo: 64,
            buffers: 128,
            cell_gap: Duration::from_ns(350),
            software: Duration::from_ns(4746),
            lookup: Duration::ZERO,
            swap: Some(Bytes(20)),
            clock: Some((Duration::from_us(500), Duration::from_ns(31_250))),
            quantum: Duration::from_ns(500),
            free: [false; 2],
        }
    }

    fn port(options: Options) -> Machine {
        let names = Names::of([0, 1, 2].map(ResourceId), [0, 1, 2, 3, 4, 5].map(StageId));
        Machine::new(options, names)
    }

    /// Packets sent and dropped of `count` with these lengths, one every `gap`, and packets held at the end.
    fn offer(options: Options, lens: &[u64], gap: Duration) -> (u64, u64, u64) {
        let mut port = port(options);
        let (mut sent, mut dropped, mut now) = (0, 0, Time::START);
        for &len in lens {
            port.arrive(now, Side::Input, Packet::new(Bytes(len)));
            now += gap;
            port.advance(now);
            for output in port.outputs() {
                match output {
                    Output::Send(..) => sent += 1,
                    Output::Drop(..) => dropped += 1,
                }
            }
        }
        (sent, dropped, port.held())
    }

    #[test]
    fn the_rate_at_900_thousand_packets_per_second_is_that_at_saturation_d_110() {
        let rate = |offered: u64| {
            let count = offered as usize / 20;
            let gap = Duration::from_ps(1_000_000_000_000 / offered);
            offer(options(), &vec![40; count], gap).0 as f64 * 20.0
        };
        let (knee, flood) = (rate(110_000), rate(900_000));
        assert!((flood / knee - 1.0).abs() < 0.01, "{knee} {flood}");
    }

    /// The cost of word swap and memory accesses for a packet of 1912 bytes (D-113).
    #[test]
    fn without_word_swap_and_with_twice_the_memory_more_is_forwarded() {
        let rate = |options: Options| {
            let gap = Duration::from_us(20);
            let cell_gap = gap / Options::cells(Bytes(1912));
            let (sent, ..) = offer(Options { cell_gap, ..options }, &[1912; 5_000], gap);
            sent as f64 * 1912.0 * 8.0 / 0.1 / 1e6
        };
        let as_it_is = rate(options());
        let without = rate(Options { swap: None, ..options() });
        let software = options().software / 2;
        let clock = options().clock.map(|(period, work)| (period, work / 2));
        let twice =
            rate(Options { memory: PerByte::from_fs(3_787_879), software, clock, ..options() });
        assert!(without > 1.6 * as_it_is && twice > 1.3 * as_it_is, "{as_it_is} {without} {twice}");
    }

    proptest! {
        #[test]
        fn every_packet_is_sent_dropped_or_held(
            lens in prop::collection::vec(1_u64..1913, 1..200),
            gap in 1_u64..60_000,
            fifo in 32_u64..80,
            buffers in 1_u64..20,
        ) {
            let options = Options { fifo, buffers, ..options() };
            let (sent, dropped, held) = offer(options, &lens, Duration::from_ns(gap));
            prop_assert_eq!(sent + dropped + held, lens.len() as u64);
        }
    }
}
