//! Running a graph, and the outcome.

use crate::arrivals::Arrival;
use crate::books::{Books, PathInfo, ResourceInfo, ResourceUse, StageInfo};
use crate::clock::{Clock, Wake};
use crate::edges::End;
use crate::ends::Ending;
use crate::events::{Key, Target};
use crate::trace::{TraceEvent, TraceKind};
use crate::world::World;
use crate::{
    Context, Distribution, Element, ElementId, Error, Graph, PortId, Report, Series, TimerId,
    Transfer,
};
use lastmeter_base::{Packet, Time};

/// Handlers that may run at one instant before the run counts as making no progress.
pub const PROGRESS_LIMIT: u64 = 10_000_000;
/// Events handled between two calls of a clock that jumps: a call for each would cost a twentieth of a run.
const EVENTS_BETWEEN_WAITS: usize = 4096;

/// A graph that is ready to run.
pub struct Engine {
    pub(crate) partitions: Vec<Partition>,
    /// Shortest delay of an edge between two partitions; `None` where there is none.
    pub(crate) lookahead: Option<lastmeter_base::Duration>,
    pub(crate) names: Vec<String>,
    stages: Vec<StageInfo>,
    resources: Vec<ResourceInfo>,
    paths: Vec<PathInfo>,
    pub(crate) now: Time,
    pub(crate) stopped: bool,
    /// How often the partitions have waited for one another.
    pub(crate) rounds: u64,
    warm_up: WarmUp,
}

/// What the outcome leaves out: the beginning of the run.
#[derive(Default)]
struct WarmUp {
    until: Time,
    resources: Vec<ResourceUse>,
    levels: Vec<Levels>,
}

/// The elements that one thread runs. Each event writes to it: no two share a cache line, nor an adjacent
/// one that a processor fetches with it.
#[repr(align(128))]
pub(crate) struct Partition {
    pub(crate) elements: Vec<Box<dyn Element>>,
    pub(crate) world: World,
    pub(crate) handled: u64,
    /// Handlers before the present instant.
    handled_before: u64,
    /// Handlers until there is more to do for one than to run it; zero if each is traced.
    attend_after: u64,
    /// The elements that take input.
    inputs: Vec<usize>,
    started: bool,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// When it ended.
    pub now: Time,
    /// Until when books, resources and levels were left out; counters, series and transfers never are.
    pub since: Time,
    /// Whether it was stopped before its end.
    pub stopped: bool,
    /// Number of handlers run.
    pub handled: u64,
    /// The balanced books.
    pub books: Books,
    /// Packets that elements and edges still held.
    pub held: u64,
    /// Each element's report, in the order in which they were added.
    pub elements: Vec<ElementReport>,
    /// The stages in the books.
    pub stages: Vec<StageInfo>,
    /// The resources in the books.
    pub resources: Vec<ResourceInfo>,
    /// The paths in the books.
    pub paths: Vec<PathInfo>,
    /// The trace, if requested.
    pub trace: Vec<TraceEvent>,
    /// Events that did not fit in the trace.
    pub trace_left_out: u64,
}

/// Quantities with their names and units, and how many picoseconds each had which value.
pub type Levels = Vec<(&'static str, &'static str, Distribution)>;

/// An element's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementReport {
    /// Its name.
    pub name: String,
    /// Packets it still held.
    pub held: u64,
    /// Its counters.
    pub counters: Vec<(&'static str, u64)>,
    /// How long quantities had which value, each with its name and unit.
    pub levels: Levels,
    /// Quantities over time, each with its name and unit.
    pub series: Vec<(&'static str, &'static str, Series)>,
    /// Its transfers, in the order in which it reported them.
    pub transfers: Vec<Transfer>,
}

impl Graph {
    /// Prepares the graph to run in at most `partitions` concurrent parts, cut at edges with delay. The result
    /// of a run does not depend on their number.
    ///
    /// # Errors
    /// If an element has more timers than events can address.
    pub fn build(self, partitions: usize) -> Result<Engine, Error> {
        crate::parallel::partition(self, partitions)
    }
}

impl Engine {
    pub(crate) fn new(
        partitions: Vec<Partition>,
        lookahead: Option<lastmeter_base::Duration>,
        names: Vec<String>,
        (stages, resources, paths): (Vec<StageInfo>, Vec<ResourceInfo>, Vec<PathInfo>),
    ) -> Engine {
        Engine {
            partitions,
            lookahead,
            names,
            stages,
            resources,
            paths,
            now: Time::START,
            stopped: false,
            rounds: 0,
            warm_up: WarmUp::default(),
        }
    }

    /// How many handlers have run.
    pub fn handled(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.handled).sum()
    }

    /// The present instant.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Leaves what has happened so far out of the outcome: the warm-up of a run whose steady state counts.
    pub fn leave_out(&mut self) {
        let Collected { books, elements, .. } = self.collect();
        let levels = elements.into_iter().map(|element| element.levels).collect();
        self.warm_up = WarmUp { until: self.now, resources: books.resources, levels };
        self.partitions.iter_mut().for_each(|partition| partition.world.books.reopen());
    }

    /// Runs up to and including `end`, on any clock, in this thread.
    ///
    /// # Errors
    /// If events continue without end at one instant. Panics if the graph was built in several parts.
    pub fn run_until(&mut self, end: Time, clock: &mut impl Clock) -> Result<(), Error> {
        assert_eq!(self.partitions.len(), 1, "several partitions run with `run_parallel`");
        let partition = &mut self.partitions[0];
        let result = partition.run(clock, end);
        self.now = partition.world.now;
        match result {
            Ok(stopped) => self.stopped |= stopped,
            Err(stuck) => return Err(self.no_progress(0, stuck)),
        }
        Ok(())
    }

    pub(crate) fn no_progress(&self, partition: usize, stuck: NoProgress) -> Error {
        let world = &self.partitions[partition].world;
        let element = self.names[world.places[stuck.element].id.0 as usize].clone();
        Error::NoProgress { at: world.now, element, handlers: PROGRESS_LIMIT }
    }

    /// The outcome so far, as [`Engine::finish`] would return it now, without the trace; the run can continue.
    ///
    /// # Errors
    /// If packets, latencies or resources do not balance: a bug in an element.
    pub fn so_far(&self) -> Result<Outcome, Error> {
        let infos = (self.stages.clone(), self.resources.clone(), self.paths.clone());
        self.collect().outcome(self, infos)
    }

    /// Ends the run: collects every report, closes the books and proves that they balance.
    ///
    /// # Errors
    /// If packets, latencies or resources do not balance: a bug in an element.
    pub fn finish(mut self) -> Result<Outcome, Error> {
        let collected = self.collect();
        let (mut trace, mut trace_left_out) = (Vec::new(), 0);
        for partition in &mut self.partitions {
            if let Some(part) = partition.world.trace.take() {
                trace.extend(part.events);
                trace_left_out += part.left_out;
            }
        }
        trace.sort_unstable();
        let infos = (
            std::mem::take(&mut self.stages),
            std::mem::take(&mut self.resources),
            std::mem::take(&mut self.paths),
        );
        let outcome = collected.outcome(&self, infos)?;
        Ok(Outcome { trace, trace_left_out, ..outcome })
    }

    /// The combined reports of the partitions and elements.
    fn collect(&self) -> Collected {
        let now = self.now;
        let mut books = Books::new(self.paths.len(), self.resources.len(), true);
        let mut reports: Vec<Option<ElementReport>> = vec![None; self.names.len()];
        let (mut held, mut handled) = (0, 0);
        for partition in &self.partitions {
            held += partition.world.on_the_way();
            handled += partition.handled;
            for (element, place) in partition.elements.iter().zip(&partition.world.places) {
                let mut report = Report { now, ..Report::default() };
                element.report(&mut report);
                report.meters.iter().for_each(|meter| books.enter_meter(meter));
                held += report.held;
                let name = self.names[place.id.0 as usize].clone();
                let Report { held, waiting, counters, levels, series, transfers, .. } = report;
                let held = held + waiting;
                let report = ElementReport { name, held, counters, levels, series, transfers };
                reports[place.id.0 as usize] = Some(report);
            }
            books.merge(&partition.world.books);
        }
        Collected { books, held, handled, elements: reports.into_iter().flatten().collect() }
    }
}

/// The combined reports of an engine's partitions.
struct Collected {
    books: Books,
    held: u64,
    handled: u64,
    elements: Vec<ElementReport>,
}

impl Collected {
    fn outcome(
        self,
        engine: &Engine,
        (stages, resources, paths): (Vec<StageInfo>, Vec<ResourceInfo>, Vec<PathInfo>),
    ) -> Result<Outcome, Error> {
        let Collected { mut books, held, handled, mut elements } = self;
        books.check(engine.now, held, &paths, &resources)?;
        let WarmUp { until, resources: before, levels } = &engine.warm_up;
        books.subtract(before);
        for (element, before) in elements.iter_mut().zip(levels) {
            for ((_, _, level), (_, _, before)) in element.levels.iter_mut().zip(before) {
                level.subtract(before);
            }
        }
        Ok(Outcome {
            now: engine.now,
            since: *until,
            stopped: engine.stopped,
            handled,
            books,
            held,
            elements,
            stages,
            resources,
            paths,
            trace: Vec::new(),
            trace_left_out: 0,
        })
    }
}

/// A partition that made no progress, and the element that acted last.
pub(crate) struct NoProgress {
    element: usize,
}

impl Partition {
    pub(crate) fn new(elements: Vec<Box<dyn Element>>, world: World) -> Partition {
        let takes_input = |&index: &usize| elements[index].takes_input();
        let inputs = (0..elements.len()).filter(takes_input).collect();
        let attend_after = if world.trace.is_some() { 0 } else { PROGRESS_LIMIT };
        let (handled, handled_before, started) = (0, 0, false);
        Partition { elements, world, handled, handled_before, attend_after, inputs, started }
    }

    /// When the next event is due.
    pub(crate) fn next(&mut self) -> Option<Time> {
        self.world.events.next()
    }

    /// Calls every element's `start`, once.
    pub(crate) fn start(&mut self) -> Result<(), NoProgress> {
        if !std::mem::replace(&mut self.started, true) {
            // Each `start` counts as an event of its own, in the order of the elements.
            let mut order: Vec<usize> = (0..self.elements.len()).collect();
            order.sort_by_key(|&me| self.world.places[me].id);
            for me in order {
                self.begin(u64::from(self.world.places[me].id.0));
                self.elements[me].start(&mut Context::new(me, &mut self.world));
                self.deliver_ready()?;
            }
        }
        Ok(())
    }

    /// Runs up to and including `end`; returns whether the clock stopped it before.
    pub(crate) fn run(&mut self, clock: &mut impl Clock, end: Time) -> Result<bool, NoProgress> {
        self.start()?;
        loop {
            let next = self.world.events.next();
            let deadline = next.map_or(end, |next| next.min(end));
            match clock.wait(Some(deadline)) {
                Wake::Stop => {
                    // At the latest instant to which any element has run ahead.
                    let until = self.world.ahead_until.max(self.world.now);
                    self.handle_due(until, usize::MAX)?;
                    self.advance(until);
                    return Ok(true);
                }
                // Due events come first, each at its own time: a late wake-up moves no event.
                Wake::Input(now) => {
                    let now = now.min(end);
                    self.handle_due(now, usize::MAX)?;
                    self.advance(now);
                    self.handle_input()?;
                }
                Wake::At(now) if now < end && clock.jumps() => {
                    self.handle_due(end, EVENTS_BETWEEN_WAITS)?;
                }
                Wake::At(now) => {
                    // Events due at `end` itself are still handled.
                    self.handle_due(now.min(end), usize::MAX)?;
                    self.advance(now.min(end));
                    if now >= end {
                        return Ok(false);
                    }
                }
            }
        }
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        debug_assert!(now >= self.world.now, "time never goes back");
        if now > self.world.now {
            self.world.now = now;
            self.handled_before = self.handled;
        }
    }

    /// Handles the events due by `until`, each at its own instant; at most `events_max` of them.
    #[inline]
    fn handle_due(&mut self, until: Time, events_max: usize) -> Result<(), NoProgress> {
        for _ in 0..events_max {
            let Some(event) = self.world.events.pop(until) else {
                return self.end_due(until, true);
            };
            if self.world.ends.has_ended(event.key.at()) {
                self.end_due(event.key.at(), false)?;
            }
            self.world.look_ahead(&self.elements);
            self.advance(event.key.at());
            self.begin(event.key.order());
            match event.target.as_flight() {
                Some(flight) => self.land(flight, event.key, until)?,
                None => {
                    if let Some((owner, timer)) = self.world.expires(event) {
                        self.expire(owner as usize, TimerId(timer))?;
                    }
                }
            }
            self.deliver_ready()?;
            self.end_next()?;
        }
        Ok(())
    }

    /// The oldest packet in flight on an edge arrives.
    #[inline]
    fn land(&mut self, flight: usize, key: Key, until: Time) -> Result<(), NoProgress> {
        let state = &mut self.world.flights[flight];
        let (to, input) = match state.to {
            End::Here(to, input) => (to, input),
            End::Ahead(arrivals, _) => return self.run_ahead(arrivals as usize, key, until),
            _ => unreachable!("packets that end have no events"),
        };
        let (packet, next) = state.land();
        if let Some(key) = next {
            if !self.world.events.will_know(key.at()) {
                state.prefetch();
            }
            let target = Target::flight(flight as u32, state.prefetch);
            self.world.events.push(crate::events::Event { key, target });
        }
        self.world.books.prefetch(&packet);
        self.receive(to, input, packet)
    }

    /// An element receives its known arrivals, each at its own instant, until one of its own timers comes first.
    #[inline(never)]
    fn run_ahead(&mut self, arrivals: usize, key: Key, until: Time) -> Result<(), NoProgress> {
        let World { arrivals: all, flights, .. } = &mut self.world;
        let began = all[arrivals].begin(key, until, flights);
        let Some((mut waiting, known)) = began else { return Ok(()) };
        let (now, runner) = (self.world.now, self.world.arrivals[arrivals].runner);
        let me = runner.me;
        let mut sends = self.world.begin_look_ahead(&waiting[..known], runner, &self.elements);
        let (mut received, mut result) = (0, Ok(()));
        let mut timer = (self.world.timer_changes, self.world.first_timer(me));
        while received < known && result.is_ok() {
            let next = &mut waiting[received..known];
            let Arrival { due, input, .. } = next[0];
            if timer.0 != self.world.timer_changes {
                timer = (self.world.timer_changes, self.world.first_timer(me));
            }
            if timer.1 < due {
                break;
            }
            self.world.look_ahead_of(next, runner, &mut sends, &self.elements);
            self.world.now = due.at();
            self.begin(due.order());
            if let Some(packet) = next[0].packet.take() {
                result = self.receive(me as u32, input, packet).and_then(|()| self.deliver_ready());
            }
            received += 1;
        }
        self.world.ahead_until = self.world.ahead_until.max(self.world.now);
        self.world.now = now;
        let World { arrivals: all, events, .. } = &mut self.world;
        all[arrivals].end(waiting, received, events);
        if all[arrivals].gives_up() {
            self.world.give_up(arrivals);
        }
        result
    }

    /// Receives packets that end by `until`: those of buckets that have ended, and with `all` the others, too.
    #[inline(never)]
    fn end_due(&mut self, until: Time, all: bool) -> Result<(), NoProgress> {
        loop {
            while self.end_next()? {}
            if !self.world.ends.load(until, all) || !all {
                return Ok(());
            }
        }
    }

    /// Receives the next ending packet, at its own instant, if it is known which.
    #[inline(always)]
    fn end_next(&mut self) -> Result<bool, NoProgress> {
        let Some(Ending { due, to, input, packet }) = self.world.ends.next() else {
            return Ok(false);
        };
        let now = std::mem::replace(&mut self.world.now, due.at());
        self.begin(due.order());
        self.receive(to, input, packet)?;
        self.world.now = now;
        Ok(true)
    }

    #[inline]
    fn expire(&mut self, me: usize, timer: TimerId) -> Result<(), NoProgress> {
        self.count(me, TraceKind::Expire(timer.0), 0)?;
        self.elements[me].expire(&mut Context::new(me, &mut self.world), timer);
        Ok(())
    }

    fn handle_input(&mut self) -> Result<(), NoProgress> {
        for index in 0..self.inputs.len() {
            self.begin(self.world.cause);
            self.expire(self.inputs[index], TimerId::INPUT)?;
            self.deliver_ready()?;
        }
        Ok(())
    }

    /// Delivers packets sent without delay, in the order of sending.
    #[inline(always)]
    fn deliver_ready(&mut self) -> Result<(), NoProgress> {
        while let Some((to, port, packet)) = self.world.ready.pop() {
            self.receive(to, port, packet)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, to: u32, port: PortId, packet: Packet) -> Result<(), NoProgress> {
        let me = to as usize;
        self.count(me, TraceKind::Receive(port), packet.id)?;
        self.elements[me].receive(&mut Context::new(me, &mut self.world), port, packet);
        Ok(())
    }

    #[inline(always)]
    fn count(&mut self, me: usize, kind: TraceKind, packet: u64) -> Result<(), NoProgress> {
        // One counter, not two: a processor would stall on the second's reset.
        self.handled += 1;
        match self.handled > self.attend_after {
            true => self.attend(me, kind, packet),
            false => Ok(()),
        }
    }

    /// Traces a handler, and finds out whether too many have run at this instant.
    #[cold]
    fn attend(&mut self, me: usize, kind: TraceKind, packet: u64) -> Result<(), NoProgress> {
        if self.handled - self.handled_before > PROGRESS_LIMIT {
            return Err(NoProgress { element: me });
        }
        match &mut self.world.trace {
            Some(trace) => {
                let element: ElementId = self.world.places[me].id;
                trace.add(self.world.now, self.world.cause, element, kind, packet);
            }
            None => self.attend_after = self.handled_before + PROGRESS_LIMIT,
        }
        Ok(())
    }

    #[inline]
    fn begin(&mut self, order: u64) {
        self.world.cause = order;
        if let Some(trace) = &mut self.world.trace {
            trace.begin();
        }
    }
}
