//! The engine's guarantees: order, timers, conservation, progress, and the same result in any number of parts.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use lastmeter_base::{Bytes, Duration, FlowId, Packet, PathId, StageId, Stream, Time, content_tag};
use lastmeter_engine::{
    Clock, Context, Control, Element, Engine, Error, Graph, Meter, Outcome, Parallel, PortId,
    Report, ResourceInfo, ResourceKind, Serial, StageInfo, TimerId, TraceKind, VirtualClock, Wake,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

fn us(us: u64) -> Duration {
    Duration::from_us(us)
}

fn at(n: u64) -> Time {
    Time::START + us(n)
}

fn run(graph: Graph, end: Time) -> Result<Outcome, Error> {
    let mut engine = graph.build(1)?;
    engine.run_until(end, &mut VirtualClock::default())?;
    engine.finish()
}

/// Runs a closure at each expiry, and logs the times.
struct Timed<F> {
    plan: Vec<(u32, Time)>,
    act: F,
    log: Arc<Mutex<Vec<(u32, Time)>>>,
}

impl<F: FnMut(&mut Context<'_>, u32) + Send> Element for Timed<F> {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.plan.iter().for_each(|&(timer, at)| cx.arm(TimerId(timer), at));
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        cx.deliver(packet);
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        self.log.lock().unwrap().push((timer.0, cx.now()));
        (self.act)(cx, timer.0);
    }
    fn timers(&self) -> u32 {
        4
    }
}

fn timed(
    plan: &[(u32, u64)],
    act: impl FnMut(&mut Context<'_>, u32) + Send + 'static,
) -> Vec<(u32, Time)> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let plan = plan.iter().map(|&(timer, n)| (timer, at(n))).collect();
    let mut graph = Graph::new(1);
    graph.add("timed", Timed { plan, act, log: log.clone() }).unwrap();
    run(graph, at(100)).unwrap();
    log.lock().unwrap().clone()
}

#[test]
fn timers_expire_in_order_and_simultaneous_ones_in_the_order_of_arming() {
    assert_eq!(
        timed(&[(0, 30), (1, 10), (2, 10), (3, 100)], |_, _| {}),
        [(1, at(10)), (2, at(10)), (0, at(30)), (3, at(100))]
    );
}

#[test]
fn arming_again_replaces_the_earlier_setting_in_both_directions() {
    let log = timed(&[(0, 10), (1, 50), (2, 60)], |cx, timer| {
        if timer == 0 {
            cx.arm(TimerId(1), at(70)); // later
            cx.arm(TimerId(2), at(20)); // earlier
        }
    });
    assert_eq!(log, [(0, at(10)), (2, at(20)), (1, at(70))]);
}

#[test]
fn a_disarmed_timer_does_not_expire_and_can_be_armed_again() {
    let log = timed(&[(0, 10), (1, 20)], |cx, timer| {
        if timer == 0 && cx.now() == at(10) {
            cx.disarm(TimerId(1));
            cx.arm(TimerId(0), at(30));
        } else if cx.now() == at(30) {
            cx.arm(TimerId(1), at(40));
        }
    });
    assert_eq!(log, [(0, at(10)), (0, at(30)), (1, at(40))]);
}

#[test]
fn a_timer_armed_for_its_old_time_again_expires_once_and_in_order() {
    // The first event for 50 us is still pending when the timer is set for then again.
    let log = timed(&[(0, 10), (1, 50)], |cx, timer| match timer {
        0 => cx.arm(TimerId(1), at(20)),
        1 if cx.now() == at(20) => {
            cx.arm(TimerId(2), at(50));
            cx.arm(TimerId(1), at(50));
        }
        _ => {}
    });
    assert_eq!(log, [(0, at(10)), (1, at(20)), (2, at(50)), (1, at(50))]);
}

#[test]
fn a_past_deadline_means_now() {
    let log = timed(&[(0, 10)], |cx, timer| {
        if timer == 0 {
            cx.arm(TimerId(1), Time::START);
        }
    });
    assert_eq!(log, [(0, at(10)), (1, at(10))]);
}

/// Runs a closure at 5 us; keeps no log.
struct Acting<F>(F);

impl<F: FnMut(&mut Context<'_>) + Send> Element for Acting<F> {
    fn start(&mut self, cx: &mut Context<'_>) {
        cx.arm(TimerId(0), at(5));
    }
    fn receive(&mut self, cx: &mut Context<'_>, _: PortId, packet: Packet) {
        cx.deliver(packet);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _: TimerId) {
        (self.0)(cx);
    }
}

/// Never lets time advance.
fn spin(cx: &mut Context<'_>) {
    cx.arm(TimerId(0), Time::START);
}

fn assert_spins(result: Result<(), Error>) {
    match result {
        Err(Error::NoProgress { at: when, element, .. }) => {
            assert_eq!((when, element.as_str()), (at(5), "acting"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn endless_events_at_one_instant_are_an_error_that_names_the_element() {
    let mut graph = Graph::new(1);
    let log = Arc::new(Mutex::new(Vec::new()));
    graph.add("quiet", Timed { plan: vec![], act: |_: &mut Context<'_>, _| {}, log }).unwrap();
    graph.add("acting", Acting(spin)).unwrap();
    assert_spins(run(graph, at(10)).map(drop));
}

/// Makes packets at random times for random outputs, and takes or forwards those that arrive.
struct Gossip {
    path: PathId,
    stage: StageId,
    outputs: u16,
    meter: Meter,
    sent: u64,
    manner: Way,
}

/// The configuration of a gossip.
#[derive(Clone, Copy, Default)]
struct Way {
    runs_ahead: bool,
    role: Role,
    /// Whether it declares that packets end here.
    is_end: bool,
}

/// What a gossip does with packets that it does not drop.
#[derive(Clone, Copy, Default, PartialEq)]
enum Role {
    #[default]
    TakesOrPasses,
    Passes,
    Takes,
}

impl Gossip {
    fn next(&mut self, cx: &mut Context<'_>) {
        // Coarse times, so that ties between elements are common.
        let gap = us(1 + cx.rng().below(4));
        let due = cx.now() + gap;
        cx.arm(TimerId(0), due);
    }
    fn pick(&self, cx: &mut Context<'_>) -> PortId {
        PortId(cx.rng().below(u64::from(self.outputs)) as u16)
    }
}

impl Element for Gossip {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.next(cx);
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        // One that only takes packets draws no random number: what it makes must not depend on what it takes.
        let what = match self.manner.role {
            Role::TakesOrPasses => cx.rng().below(4),
            Role::Passes => 1 + cx.rng().below(3),
            Role::Takes => packet.id % 2,
        };
        match what {
            0 => cx.deliver(packet),
            1 => cx.drop(packet, Some(self.stage), "gossip"),
            _ => {
                packet.visit(self.stage, Duration::ZERO, Duration::ZERO, Duration::ZERO);
                let port = self.pick(cx);
                cx.send(port, packet);
            }
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        let mut packet = cx.make(self.path, Bytes(100 + self.sent % 7));
        packet.flow = FlowId(0);
        packet.seq = self.sent;
        packet.tag = content_tag(self.path.0, 0, self.sent);
        self.sent += 1;
        match self.sent % 2 {
            0 => self.meter.serve(cx.now(), self.stage),
            _ => self.meter.rest(cx.now()),
        }
        let port = self.pick(cx);
        cx.send(port, packet);
        self.next(cx);
    }
    fn runs_ahead(&self) -> bool {
        self.manner.runs_ahead
    }
    fn is_end(&self) -> bool {
        self.manner.is_end
    }
    fn report(&self, out: &mut Report) {
        out.count("sent", self.sent);
        out.meter(&self.meter);
    }
}

/// A random graph of gossips, with delays of 0 to 3 us.
fn gossips(seed: u64, shuffle: u64) -> Graph {
    gossips_with(seed, shuffle, Duration::ZERO, |_| Way::default())
}

/// The same with delays of at least `least`; `manner` configures each.
fn gossips_with(seed: u64, shuffle: u64, least: Duration, manner: impl Fn(usize) -> Way) -> Graph {
    let mut stream = Stream::new(seed, "graph");
    let count = 3 + stream.below(12);
    let mut graph = Graph::new(seed);
    graph.tracing = true;
    graph.shuffle_ties = shuffle;
    let outputs: Vec<u16> = (0..count).map(|_| 1 + stream.below(3) as u16).collect();
    let ids: Vec<_> = outputs
        .iter()
        .enumerate()
        .map(|(index, &outputs)| {
            let name = format!("gossip {index}");
            let path = graph.path(name.clone(), "gossip");
            let (copies, touches, memory) = (0, 0, 0);
            let info = StageInfo { copies, touches, memory, ..StageInfo::new(name.clone(), None) };
            let stage = graph.stage(info);
            let kind = ResourceKind::Engine;
            let resource = graph.resource(ResourceInfo::new(name.clone(), kind));
            let meter = Meter::new(resource);
            let (sent, manner) = (0, manner(index));
            graph.add(name, Gossip { path, stage, outputs, meter, sent, manner }).unwrap()
        })
        .collect();
    for (from, &outputs) in ids.iter().zip(&outputs) {
        for output in 0..outputs {
            let to = ids[stream.below(count) as usize];
            let delay = us([0, 1, 1, 2, 3][stream.below(5) as usize]).max(least);
            // A loop without delay would end only by chance.
            let delay = if to <= *from { delay.max(us(1)) } else { delay };
            let name = format!("edge {} {output}", from.0);
            let stage = graph.stage(StageInfo::new(name, None));
            graph.connect_after(*from, PortId(output), to, PortId(0), delay, Some(stage)).unwrap();
        }
    }
    graph
}

fn in_parts(graph: Graph, parts: usize) -> (Outcome, usize) {
    let mut engine: Engine = graph.build(parts).unwrap();
    let parts = engine.parts();
    engine.run_parallel(at(400), &Arc::new(Control::default()), &Serial).unwrap();
    (engine.finish().unwrap(), parts)
}

/// All results of two runs must be the same.
fn assert_same(one: &Outcome, other: &Outcome, what: &str) {
    // Reports where they differ, instead of both traces.
    let mut pairs = one.trace.iter().zip(&other.trace);
    assert_eq!(pairs.find(|(one, other)| one != other), None, "{what}");
    assert_eq!(one.trace.len(), other.trace.len(), "{what}");
    assert_eq!(one.elements, other.elements, "{what}");
    assert_eq!(one.books.resources, other.books.resources, "{what}");
    for (a, b) in one.books.paths.iter().zip(&other.books.paths) {
        assert_eq!((a.offered, a.delivered), (b.offered, b.delivered));
        assert_eq!((a.first_offered, a.last_delivered), (b.first_offered, b.last_delivered));
        assert_eq!(a.dropped, b.dropped);
        assert_eq!(a.latency.sum(), b.latency.sum());
        let times = |book: &lastmeter_engine::PathBook| {
            let rows = book.rows().into_iter();
            rows.map(|row| (row.stage, row.time(), row.passed)).collect::<Vec<_>>()
        };
        assert_eq!(times(a), times(b));
    }
}

/// A thread for each task, for at most `most` tasks.
struct Threads {
    most: usize,
    /// Whether tasks ran one after the other.
    fell_back: AtomicBool,
}

impl Threads {
    fn new(most: usize) -> Threads {
        Threads { most, fell_back: AtomicBool::default() }
    }
}

impl Parallel for Threads {
    fn run(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) {
        self.fell_back.store(true, Ordering::Relaxed);
        Serial.run(tasks);
    }
    fn run_together(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) -> bool {
        let is_possible = tasks.len() <= self.most;
        if is_possible {
            let (first, others) = tasks.split_first_mut().unwrap();
            std::thread::scope(|scope| {
                others.iter_mut().for_each(|task| drop(scope.spawn(task)));
                first();
            });
        }
        is_possible
    }
}

#[test]
fn any_number_of_parts_gives_the_same_trace_and_the_same_books() {
    let mut most = 0;
    for seed in 0..40 {
        for (shuffle, ahead) in [(0, 0), (77, 0), (0, 1), (77, 2)] {
            // None, every other one, all.
            let runs_ahead = |index: usize| ahead > 0 && (index + ahead) % 2 < ahead;
            let manner = |index| Way { runs_ahead: runs_ahead(index), ..Way::default() };
            let graph = || gossips_with(seed, shuffle, Duration::ZERO, manner);
            let (whole, _) = in_parts(graph(), 1);
            assert!(whole.trace.len() > 300);
            for parts in [2, 3, 5] {
                let (cut, parts) = in_parts(graph(), parts);
                most = most.max(parts);
                assert_same(&whole, &cut, &format!("seed {seed}, {parts} parts, ahead {ahead}"));
            }
        }
    }
    assert!(most >= 3, "no graph was cut: the test proves nothing");
}

#[test]
fn running_ahead_changes_no_result() {
    for seed in 0..40 {
        let plain = run(gossips_with(seed, 0, us(1), |_| Way::default()), at(400)).unwrap();
        let manner = |index| Way { runs_ahead: index % 3 != 1, ..Way::default() };
        let ahead = || gossips_with(seed, 0, us(1), manner);
        assert_same(&plain, &run(ahead(), at(400)).unwrap(), &format!("seed {seed}"));
        // In steps that end within what it knows ahead.
        let mut engine = ahead().build(1).unwrap();
        for end in [7, 8, 100, 101, 333, 400].map(at) {
            engine.run_until(end, &mut VirtualClock::default()).unwrap();
            engine.so_far().unwrap();
        }
        assert_same(&plain, &engine.finish().unwrap(), &format!("seed {seed} in steps"));
    }
}

#[test]
fn ending_late_changes_no_result() {
    for seed in 0..60 {
        // In half of the graphs every edge has a delay, and some elements run ahead.
        let least = us(seed % 2);
        let graph = |is_end: bool| {
            let mut graph = gossips_with(seed, 0, least, |index| {
                let role = if index % 2 == 0 { Role::Takes } else { Role::Passes };
                let is_end = is_end && role == Role::Takes;
                Way { runs_ahead: index % 3 == 1, role, is_end }
            });
            // A trace records who received what, and disables ending late.
            graph.tracing = false;
            graph
        };
        let plain = run(graph(false), at(400)).unwrap();
        let delivered: u64 = plain.books.paths.iter().map(|path| path.delivered.packets).sum();
        assert!(delivered > 50, "seed {seed}: {delivered}");
        let ends = run(graph(true), at(400)).unwrap();
        assert_same(&plain, &ends, &format!("seed {seed}"));
        assert_eq!(plain.handled, ends.handled);
        if least.is_zero() {
            // Jitter depends on the order in which the packets of a flow end at different elements.
            let variations = |outcome: &Outcome| -> Vec<u128> {
                outcome.books.paths.iter().map(|path| path.variation.sum()).collect()
            };
            assert_eq!(variations(&plain), variations(&ends), "seed {seed}");
        }
        // In steps: at the end of each, everything due has been entered.
        let (mut steps, mut engine) = (Vec::new(), graph(true).build(1).unwrap());
        for end in [7, 8, 100, 101, 333, 400].map(at) {
            engine.run_until(end, &mut VirtualClock::default()).unwrap();
            steps.push((end, engine.so_far().unwrap().books.delivered));
        }
        assert_same(&plain, &engine.finish().unwrap(), &format!("seed {seed} in steps"));
        for (end, delivered) in steps {
            assert_eq!(run(graph(false), end).unwrap().books.delivered, delivered, "{seed} {end}");
        }
        let (cut, _) = in_parts(graph(true), 3);
        assert_eq!(plain.handled, cut.handled);
        assert_eq!(plain.elements, cut.elements);
    }
}

/// Stops the run at its n-th call.
struct StopsAfter(u32);

impl Clock for StopsAfter {
    fn wait(&mut self, deadline: Option<Time>) -> Wake {
        self.0 -= 1;
        match deadline {
            Some(at) if self.0 > 0 => Wake::At(at),
            _ => Wake::Stop,
        }
    }
    fn jumps(&self) -> bool {
        true
    }
}

#[test]
fn concurrent_parts_give_the_same_trace_even_in_steps() {
    for seed in [2, 4, 6] {
        let (whole, _) = in_parts(gossips(seed, 0), 1);
        for (parts, most) in [(2, 2), (3, 3), (3, 2)] {
            let mut engine = gossips(seed, 0).build(parts).unwrap();
            assert_eq!(engine.parts(), parts);
            let threads = Threads::new(most);
            for end in [at(0), at(3), at(77), at(77), at(400)] {
                engine.run_parallel(end, &Arc::default(), &threads).unwrap();
                // Packets that have crossed but not arrived are accounted for.
                assert_eq!(engine.so_far().unwrap().now, end);
            }
            assert_eq!(threads.fell_back.into_inner(), parts > most);
            let cut = engine.finish().unwrap();
            assert_eq!(whole.trace, cut.trace, "seed {seed}, {parts} parts");
            assert_eq!(whole.elements, cut.elements);
            assert!(!cut.stopped);
        }
    }
}

/// Two parts: one acts at 5 us, the other every microsecond from then on.
fn two_parts(act: impl FnMut(&mut Context<'_>) + Send + 'static, acting_first: bool) -> Engine {
    let mut graph = Graph::new(1);
    let acting = Acting(act);
    let other = Acting(|cx: &mut Context<'_>| cx.arm(TimerId(0), cx.now() + us(1)));
    let ids = match acting_first {
        true => [graph.add("acting", acting).unwrap(), graph.add("other", other).unwrap()],
        false => [graph.add("other", other).unwrap(), graph.add("acting", acting).unwrap()],
    };
    for (from, to) in [(ids[0], ids[1]), (ids[1], ids[0])] {
        graph.connect_after(from, PortId(0), to, PortId(0), us(1), None).unwrap();
    }
    let engine = graph.build(2).unwrap();
    assert_eq!(engine.parts(), 2);
    engine
}

#[test]
fn a_part_without_progress_ends_the_others_too() {
    for acting_first in [true, false] {
        let mut engine = two_parts(spin, acting_first);
        assert_spins(engine.run_parallel(at(1000), &Arc::default(), &Threads::new(2)));
    }
}

#[test]
fn a_stopped_run_includes_all_that_elements_ran_ahead() {
    for seed in 0..20 {
        for looks in [2, 4] {
            let ahead =
                gossips_with(seed, 0, us(1), |_| Way { runs_ahead: true, ..Way::default() });
            let mut engine = ahead.build(1).unwrap();
            engine.run_until(at(100_000), &mut StopsAfter(looks)).unwrap();
            let stopped = engine.finish().unwrap();
            assert!(stopped.stopped && stopped.now < at(100_000));
            let plain = run(gossips_with(seed, 0, us(1), |_| Way::default()), stopped.now).unwrap();
            assert_same(&plain, &stopped, &format!("seed {seed}, {looks} looks"));
        }
    }
}

#[test]
fn a_part_that_panics_does_not_leave_the_others_waiting() {
    for acting_first in [true, false] {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let mut engine = two_parts(|_| panic!("a fault in a model"), acting_first);
            let run = || engine.run_parallel(at(1000), &Arc::default(), &Threads::new(2));
            done.send(catch_unwind(AssertUnwindSafe(run)).is_err()).unwrap();
        });
        let has_panicked = ended.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(has_panicked, Ok(true));
    }
}

#[test]
fn all_parts_stop_in_the_same_round() {
    for acting_first in [true, false] {
        let control = Arc::new(Control::default());
        let asked = control.clone();
        let mut engine = two_parts(move |_| asked.stop(), acting_first);
        engine.run_parallel(at(1000), &control, &Threads::new(2)).unwrap();
        let outcome = engine.finish().unwrap();
        // At once, or at the end of a round that had already begun.
        assert!(outcome.stopped && (at(5)..at(10)).contains(&outcome.now), "{}", outcome.now);
    }
}

#[test]
fn shuffling_ties_changes_the_order_of_simultaneous_events() {
    let order = |shuffle| run(gossips(4, shuffle), at(400)).unwrap().trace;
    assert_eq!(order(0), order(0));
    assert_ne!(order(0), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn adding_an_element_changes_no_other_elements_draws() {
    let sends = |extra: bool| {
        let mut graph = Graph::new(9);
        graph.tracing = true;
        let path = graph.path("a", "b");
        let info = StageInfo::new("s", None);
        let stage = graph.stage(info);
        let info = ResourceInfo { units: 2, ..ResourceInfo::new("r", ResourceKind::Engine) };
        let resource = graph.resource(info);
        let gossip = || Gossip {
            path,
            stage,
            outputs: 1,
            meter: Meter::new(resource),
            sent: 0,
            manner: Way::default(),
        };
        let first = graph.add("first", gossip()).unwrap();
        let name = if extra { "second" } else { "another" };
        graph.add(name, gossip()).unwrap();
        let outcome = run(graph, at(100)).unwrap();
        let of_first = outcome.trace.iter().filter(|event| event.element == first);
        of_first
            .filter(|event| event.kind == TraceKind::Make)
            .map(|event| event.at)
            .collect::<Vec<_>>()
    };
    assert_eq!(sends(false), sends(true));
}

#[test]
fn an_element_that_loses_a_packet_is_detected() {
    struct Leak(PathId);
    impl Element for Leak {
        fn start(&mut self, cx: &mut Context<'_>) {
            let _lost = cx.make(self.0, Bytes(1));
        }
        fn receive(&mut self, cx: &mut Context<'_>, _: PortId, packet: Packet) {
            cx.deliver(packet);
        }
    }
    let mut graph = Graph::new(1);
    let path = graph.path("leak", "leak");
    graph.add("leak", Leak(path)).unwrap();
    let error = run(graph, at(1)).unwrap_err();
    let expected = Error::PacketsUnbalanced { made: 1, delivered: 0, dropped: 0, held: 0 };
    assert_eq!(error, expected);
}

#[test]
fn an_element_that_hides_time_is_detected() {
    struct Late(PathId);
    impl Element for Late {
        fn start(&mut self, cx: &mut Context<'_>) {
            let packet = cx.make(self.0, Bytes(1));
            cx.send_at(PortId(0), packet, at(5)); // No visit accounts for the 5 us.
        }
        fn receive(&mut self, cx: &mut Context<'_>, _: PortId, packet: Packet) {
            cx.deliver(packet);
        }
    }
    let mut graph = Graph::new(1);
    let path = graph.path("late", "late");
    let late = graph.add("late", Late(path)).unwrap();
    graph.connect(late, PortId(0), late, PortId(0)).unwrap();
    match run(graph, at(10)) {
        Err(Error::LatencyUnbalanced { latency, stages, .. }) => {
            assert_eq!((latency, stages), (5_000_000, 0));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_resource_without_account_is_detected() {
    let mut graph = Graph::new(1);
    let info = ResourceInfo::new("cpu", ResourceKind::Cpu);
    graph.resource(info);
    let error = run(graph, at(1)).unwrap_err();
    let resource = "cpu".to_owned();
    let expected = Error::ResourceUnbalanced { resource, accounted: 0, elapsed: 1_000_000 };
    assert_eq!(error, expected);
}

#[test]
fn packets_sent_to_an_unconnected_port_are_dropped_and_counted() {
    let mut graph = gossips(1, 0);
    let path = graph.path("lost", "lost");
    struct Lost(PathId);
    impl Element for Lost {
        fn start(&mut self, cx: &mut Context<'_>) {
            let packet = cx.make(self.0, Bytes(1));
            cx.send(PortId(3), packet);
        }
        fn receive(&mut self, _: &mut Context<'_>, _: PortId, _: Packet) {}
    }
    graph.add("lost", Lost(path)).unwrap();
    let outcome = run(graph, at(10)).unwrap();
    let book = outcome.books.paths.last().unwrap();
    assert_eq!(book.dropped_total().packets, 1);
    assert_eq!(book.dropped.keys().next().unwrap().reason, "unconnected");
}

#[test]
fn a_stopped_run_keeps_its_results_and_balances() {
    let control = Arc::new(Control::default());
    control.stop();
    for (parts, threads) in [(1, 1), (4, 1), (4, 4)] {
        let mut engine = gossips(2, 0).build(parts).unwrap();
        let end = Time::START + Duration::from_secs(3600);
        engine.run_parallel(end, &control, &Threads::new(threads)).unwrap();
        let outcome = engine.finish().unwrap();
        assert!(outcome.stopped && outcome.now < end);
    }
}

#[test]
fn a_name_or_an_output_cannot_be_used_twice() {
    let mut graph = Graph::new(1);
    let log = Arc::new(Mutex::new(Vec::new()));
    let quiet = || Timed { plan: vec![], act: |_: &mut Context<'_>, _| {}, log: log.clone() };
    let a = graph.add("a", quiet()).unwrap();
    assert_eq!(graph.add("a", quiet()).unwrap_err(), Error::NameTaken("a".into()));
    graph.connect(a, PortId(1), a, PortId(0)).unwrap();
    let again = graph.connect(a, PortId(1), a, PortId(0)).unwrap_err();
    assert_eq!(again, Error::PortTaken { element: "a".into(), port: 1 });
}
