//! Partitioning a graph at edges with delay, so that its parts can run concurrently.

use crate::arrivals::{Arrivals, Runner};
use crate::books::Books;
use crate::clock::{Control, VirtualClock};
use crate::edges::{Edge, End, Flight, NO_FLIGHT, NO_STAGE};
use crate::ends::Ends;
use crate::events::{Events, Key, Prefetch};
use crate::graph::EdgeSpec;
use crate::ready::Ready;
use crate::run::{Engine, Partition};
use crate::trace::Trace;
use crate::world::{Maker, NOBODY, ORIGIN_BITS, Place, Timer, World, caused_by};
use crate::{Element, ElementId, Error, Foresight, Graph, PortId};
use lastmeter_base::{Duration, Pool, Stream, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

/// Runs tasks concurrently and returns when all are done. The implementation provides the threads.
pub trait Parallel: Sync {
    /// Runs every task once.
    fn run(&self, tasks: &mut [&mut (dyn FnMut() + Send)]);
    /// Runs all tasks at the same time, each in a thread of its own, so that they may wait for one another;
    /// returns `false`, having run none, if it cannot.
    fn run_together(&self, _tasks: &mut [&mut (dyn FnMut() + Send)]) -> bool {
        false
    }
    /// Runs `work`, which calls [`Parallel::run`] many times, on the thread where that is cheapest.
    fn within(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

/// One task after the other.
pub struct Serial;

impl Parallel for Serial {
    fn run(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) {
        tasks.iter_mut().for_each(|task| task());
    }
}

/// With fewer outputs, what is behind them is in a near cache anyway.
const LOOKS_FROM: u32 = 8;
/// An element's timers and a partition's edges are named with 31 bits.
const SLOTS_MAX: u64 = 1 << 31;

impl Engine {
    /// Number of partitions.
    pub fn parts(&self) -> usize {
        self.partitions.len()
    }

    /// Runs up to and including `end` in virtual time, all partitions concurrently.
    ///
    /// # Errors
    /// If events continue without end at one instant.
    pub fn run_parallel(
        &mut self,
        end: Time,
        control: &Arc<Control>,
        parallel: &dyn Parallel,
    ) -> Result<(), Error> {
        if self.partitions.len() == 1 {
            return self.run_until(end, &mut VirtualClock::watched(control.clone()));
        }
        self.run_parts(end, control, parallel)
    }
}

/// Cuts `graph` into at most `parts` partitions.
pub(crate) fn partition(graph: Graph, parts: usize) -> Result<Engine, Error> {
    let part_of = assign(&graph, parts.clamp(1, u16::MAX.into()));
    let parts = part_of.iter().max().map_or(1, |&part| part as usize + 1);
    let lookahead = graph
        .edges
        .iter()
        .filter(|edge| part_of[edge.from.0 as usize] != part_of[edge.to.0 as usize])
        .map(|edge| edge.delay)
        .min();
    let Graph { seed, elements, draws, mut edges, stages, resources, paths, collecting, .. } =
        graph;
    // By output, so that each element's edges are contiguous.
    edges.sort_by_key(|edge| (edge.from, edge.output));
    let mut builders: Vec<Builder> =
        (0..parts).map(|_| Builder { collecting, ..Builder::default() }).collect();
    let (names, mut elements): (Vec<String>, Vec<_>) =
        elements.into_iter().map(|(name, element)| (name, Some(element))).unzip();
    let draw = |(index, name)| draws.get(&ElementId(index as u32)).unwrap_or(name);
    let draw_names: Vec<&String> = names.iter().enumerate().map(draw).collect();
    let origins = origins(seed, &draw_names);
    let mut local = vec![0; elements.len()];
    for index in in_pairs(elements.len(), &edges) {
        let element = elements[index].take().expect("each comes once");
        let builder = &mut builders[part_of[index] as usize];
        local[index] = builder.elements.len() as u32;
        let (id, stream) = (ElementId(index as u32), Stream::new(seed, draw_names[index]));
        builder.add(id, origins[index], element, stream)?;
    }
    for edge in edges {
        let (from, to) = (edge.from.0 as usize, edge.to.0 as usize);
        let here = End::Here(local[to], edge.input);
        let end = match part_of[from] == part_of[to] {
            true => (here, NO_FLIGHT),
            false => {
                let there = part_of[to];
                let flight = builders[there as usize].far_flight(here);
                (End::There(there as u16), flight) // It is at most that.
            }
        };
        builders[part_of[from] as usize].connect(local[from] as usize, &edge, end);
    }
    let partitions = builders
        .into_iter()
        .map(|builder| {
            let books = Books::new(paths.len(), resources.len(), collecting);
            let trace = graph.tracing.then(Trace::default);
            builder.build(books, trace, graph.shuffle_ties, parts)
        })
        .collect();
    Ok(Engine::new(partitions, lookahead, names, (stages, resources, paths)))
}

/// A partition under construction.
#[derive(Default)]
struct Builder {
    elements: Vec<Box<dyn Element>>,
    places: Vec<Place>,
    makers: Vec<Maker>,
    timers: Vec<Timer>,
    /// Edges by the element that they start from.
    outputs: Vec<Vec<Edge>>,
    /// Those of edges that start in other partitions.
    far: Vec<Flight>,
    collecting: bool,
}

/// A number of [`ORIGIN_BITS`] for each element, no two the same: a hash of its name, or the next that is
/// free. So a tie is broken in the same way wherever in a file a node is declared, and whatever else is.
fn origins(seed: u64, names: &[impl AsRef<str>]) -> Vec<u32> {
    const ALL: u32 = (1 << ORIGIN_BITS) - 1;
    let mut by_name: Vec<usize> = (0..names.len()).collect();
    by_name.sort_unstable_by_key(|&index| names[index].as_ref());
    let mut taken = HashSet::with_capacity(names.len());
    let mut origins = vec![0; names.len()];
    for index in by_name {
        // Not the stream that the element itself draws from.
        let mut origin = Stream::new(!seed, names[index].as_ref()).bits() as u32 & ALL;
        while !taken.insert(origin) {
            origin = (origin + 1) & ALL;
        }
        origins[index] = origin;
    }
    origins
}

impl Builder {
    fn add(
        &mut self,
        id: ElementId,
        origin: u32,
        element: Box<dyn Element>,
        stream: Stream,
    ) -> Result<(), Error> {
        let timers = element.timers();
        let first_timer = self.timers.len() as u32;
        if self.timers.len() as u64 + u64::from(timers) >= SLOTS_MAX {
            return Err(Error::TooLarge { what: "timers", limit: SLOTS_MAX });
        }
        let owner = self.elements.len() as u32;
        let prefetch = Prefetch::new(owner, element.foresees());
        let timer = Timer { owner, prefetch, due: Key::NEVER, queued: Time::MAX };
        self.timers.extend((0..timers).map(|_| timer));
        let (first_edge, edges) = (0, 0);
        let (runs_ahead, caused) = (element.runs_ahead(), caused_by(origin));
        self.places.push(Place { id, first_edge, edges, first_timer, timers, runs_ahead, caused });
        self.makers.push(Maker { made: 0, stream });
        self.elements.push(element);
        self.outputs.push(Vec::new());
        Ok(())
    }

    /// Reserves the flight of an edge from another partition. These come before all others, so that their
    /// numbers are known at once.
    fn far_flight(&mut self, to: End) -> u32 {
        self.far.push(Flight::new(to, Prefetch::new(0, Foresight::None)));
        self.far.len() as u32 - 1
    }

    fn connect(&mut self, from: usize, edge: &EdgeSpec, (to, flight): (End, u32)) {
        let outputs = &mut self.outputs[from];
        // Unconnected outputs.
        let port = edge.output.0 as usize;
        outputs.resize_with(outputs.len().max(port + 1), || Edge::NOWHERE);
        // Only collected data is recorded.
        let stage = edge.stage.filter(|_| self.collecting).unwrap_or(NO_STAGE);
        outputs[port] = Edge { delay: edge.delay, stage, flight, to };
    }

    fn build(self, books: Books, trace: Option<Trace>, salt: u64, parts: usize) -> Partition {
        let (mut flights, mut edges, mut places) = (self.far, Vec::new(), self.places);
        for (place, outputs) in places.iter_mut().zip(self.outputs) {
            place.first_edge = edges.len() as u32;
            place.edges = outputs.len() as u32;
            edges.extend(outputs);
        }
        let foresees = |element: u32| self.elements[element as usize].foresees();
        if salt != 0 {
            // Then only an edge knows the order of its packets at one instant.
            places.iter_mut().for_each(|place| place.runs_ahead = false);
        }
        if salt == 0 && trace.is_none() {
            // A trace records arrivals in order with all other events.
            for to in ends(&mut edges, &mut flights) {
                if let End::Here(element, input) = *to
                    && self.elements[element as usize].is_end()
                {
                    *to = End::Last(element, input);
                }
            }
        }
        let arrivals = arrivals(&mut edges, &mut flights, &mut places, &self.elements, salt == 0);
        for edge in &mut edges {
            if let End::Here(..) | End::Ahead(..) = edge.to {
                edge.flight = flights.len() as u32;
                flights.push(Flight::new(edge.to, Prefetch::new(0, Foresight::None)));
            }
        }
        for flight in &mut flights {
            if let End::Here(to, _) = flight.to {
                flight.prefetch = Prefetch::new(to, foresees(to));
            }
        }
        let mut timers = self.timers;
        for timer in &mut timers {
            let place = &places[timer.owner as usize];
            if foresees(timer.owner) == Foresight::None
                && place.edges > 0
                && let Edge { delay: Duration::ZERO, to: End::Here(to, _), .. } =
                    edges[place.first_edge as usize]
                && foresees(to) == Foresight::Steps
            {
                timer.prefetch = Prefetch::new(to, Foresight::Steps);
            }
        }
        for place in places.iter().filter(|place| !place.runs_ahead && trace.is_none()) {
            let outputs = &mut edges[place.first_edge as usize..][..place.edges as usize];
            outputs.iter_mut().for_each(Edge::pass_on);
        }
        let foresight = match timers.is_empty() {
            true => Foresight::None, // Prefetch steps need some timer.
            false => self.elements.iter().map(|one| one.foresees()).max().unwrap_or_default(),
        };
        let world = World {
            now: Time::START,
            cause: 0,
            ready: Ready::default(),
            events: Events::new(foresight > Foresight::None),
            edges,
            flights,
            places,
            makers: self.makers,
            timers,
            arrivals,
            timer_changes: 0,
            ahead_until: Time::START,
            ends: Ends::default(),
            pool: Pool::default(),
            books,
            trace,
            outboxes: (0..parts).map(|_| Vec::new()).collect(),
            crosses_at: Time::MAX,
            salt,
            foresight,
            sends_along: NOBODY,
        };
        Partition::new(self.elements, world)
    }
}

/// The destinations of edges and flights.
fn ends<'a>(edges: &'a mut [Edge], flights: &'a mut [Flight]) -> impl Iterator<Item = &'a mut End> {
    let of_edges = edges.iter_mut().map(|edge| &mut edge.to);
    of_edges.chain(flights.iter_mut().map(|flight| &mut flight.to))
}

/// Directs all edges to elements that may run ahead to their arrivals, and returns these, each with a flight
/// of its own. Elements with an input without delay may not, and elements where packets end have none. What
/// the first `flights` bring from other partitions comes after the end of a round, and so is harmless.
fn arrivals(
    edges: &mut [Edge],
    flights: &mut Vec<Flight>,
    places: &mut [Place],
    elements: &[Box<dyn Element>],
    in_order: bool,
) -> Vec<Arrivals> {
    // The shortest and the longest of each element's inputs.
    let mut delays = vec![(Duration::MAX, Duration::ZERO); places.len()];
    let mut has_arrivals = vec![false; places.len()];
    for edge in &*edges {
        if let End::Here(to, _) | End::Last(to, _) = edge.to {
            let (shortest, longest) = &mut delays[to as usize];
            *shortest = edge.delay.min(*shortest);
            *longest = edge.delay.max(*longest);
            has_arrivals[to as usize] = matches!(edge.to, End::Here(..));
        }
    }
    let passes_on = match in_order {
        true => passing_on(edges, flights, places, elements),
        false => vec![false; places.len()],
    };
    let (mut all, mut own) = (Vec::new(), Vec::new());
    let mut number = vec![None; places.len()];
    for (to, (place, &delay)) in places.iter_mut().zip(&delays).enumerate() {
        let is_later = !delay.0.is_zero();
        place.runs_ahead &= is_later;
        let may = place.runs_ahead || (passes_on[to] && is_later);
        if may && has_arrivals[to] {
            let (me, flight) = (all.len() as u32, (flights.len() + own.len()) as u32);
            let foresees = elements[to].foresees();
            let prefetch = Prefetch::new(to as u32, foresees);
            number[to] = Some(me);
            let looks = foresees > Foresight::None || place.edges >= LOOKS_FROM;
            let (looks_again, may_give_up) = (prefetch.late(), !place.runs_ahead);
            let runner = Runner { me: to, looks, looks_again, may_give_up };
            all.push(Arrivals::new(runner, delay, flight, prefetch));
            own.push(Flight::new(End::Ahead(me, PortId(0)), prefetch));
        }
    }
    for to in ends(edges, flights) {
        if let End::Here(element, input) = *to
            && let Some(number) = number[element as usize]
        {
            *to = End::Ahead(number, input);
        }
    }
    flights.append(&mut own);
    all
}

/// The elements that only pass packets on, as do those that receive them at the same instant, from nobody else.
fn passing_on(
    edges: &[Edge],
    flights: &[Flight],
    places: &[Place],
    elements: &[Box<dyn Element>],
) -> Vec<bool> {
    /// Several, or with a delay.
    const OTHERS: usize = usize::MAX;
    let outputs = |place: &Place| &edges[place.first_edge as usize..][..place.edges as usize];
    let mut only_from = vec![None; places.len()];
    for flight in flights {
        if let End::Here(to, _) = flight.to {
            only_from[to as usize] = Some(OTHERS);
        }
    }
    for (from, place) in places.iter().enumerate() {
        for edge in outputs(place) {
            if let End::Here(to, _) = edge.to {
                let from = if edge.delay.is_zero() { from } else { OTHERS };
                let only = &mut only_from[to as usize];
                *only = Some(only.map_or(from, |only| if only == from { from } else { OTHERS }));
            }
        }
    }
    let passes = |element: usize| elements[element].passes_on() && places[element].timers == 0;
    let alone = |place: &Place| outputs(place).iter().all(|edge| !edge.delay.is_zero());
    let follows = |from, to: u32| {
        let to = to as usize;
        only_from[to] == Some(from) && passes(to) && alone(&places[to])
    };
    let lead = |(from, place): (usize, &Place)| {
        let follow = |edge: &Edge| match edge.to {
            End::Here(to, _) => !edge.delay.is_zero() || follows(from, to),
            End::Last(..) => !edge.delay.is_zero(),
            _ => true,
        };
        passes(from) && outputs(place).iter().all(follow)
    };
    places.iter().enumerate().map(lead).collect()
}

/// All elements, each next to the first that sends to it without delay: an event of one is then usually also
/// one of the other, and the engine's data on both shares cache lines.
fn in_pairs(count: usize, edges: &[EdgeSpec]) -> Vec<usize> {
    let mut pair: Vec<Option<u32>> = vec![None; count];
    for edge in edges.iter().filter(|edge| edge.delay.is_zero() && edge.output == PortId(0)) {
        let (from, to) = (edge.from.0, edge.to.0);
        if from != to && pair[from as usize].is_none() && pair[to as usize].is_none() {
            (pair[from as usize], pair[to as usize]) = (Some(from.min(to)), Some(from.min(to)));
        }
    }
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&element| (pair[element].unwrap_or(element as u32), element));
    order
}

/// Assigns each element to a part. Elements connected without delay stay together; these groups are put in a
/// sequence, neighbours next to each other, which is cut by weight.
fn assign(graph: &Graph, parts: usize) -> Vec<u32> {
    let count = graph.len();
    if parts == 1 || count == 0 {
        return vec![0; count];
    }
    let mut groups = Groups::new(count);
    for edge in graph.edges.iter().filter(|edge| edge.delay.is_zero()) {
        groups.join(edge.from.0, edge.to.0);
    }
    let group_of: Vec<u32> = (0..count as u32).map(|element| groups.find(element)).collect();
    let mut weight = vec![0u64; count];
    group_of.iter().for_each(|&group| weight[group as usize] += 1);
    let mut neighbours: Vec<Vec<u32>> = vec![Vec::new(); count];
    for edge in &graph.edges {
        let (a, b) = (group_of[edge.from.0 as usize], group_of[edge.to.0 as usize]);
        let from = &graph.elements[edge.from.0 as usize].1;
        weight[a as usize] += u64::from(!from.is_seldom_busy());
        if a != b {
            neighbours[a as usize].push(b);
            neighbours[b as usize].push(a);
        }
    }
    let row = in_a_row(&group_of, &neighbours);
    let total: u64 = row.iter().map(|&group| weight[group as usize]).sum();
    let mut part_of_group = vec![0u32; count];
    let (mut before, mut used) = (0u64, Vec::new());
    for group in row {
        let middle = before + weight[group as usize] / 2;
        let part = (u128::from(middle) * parts as u128 / u128::from(total.max(1))) as u32;
        part_of_group[group as usize] = part;
        before += weight[group as usize];
        if used.last() != Some(&part) {
            used.push(part);
        }
    }
    // Empty parts are left out.
    let dense = |part: u32| used.iter().position(|&used| used == part).unwrap_or(0) as u32;
    group_of.iter().map(|&group| dense(part_of_group[group as usize])).collect()
}

/// Orders groups greedily: next comes the one with most neighbours before it and fewest after it, so that a
/// cut anywhere separates few neighbours. Restarts at each connected component.
fn in_a_row(group_of: &[u32], neighbours: &[Vec<u32>]) -> Vec<u32> {
    let mut seen = vec![false; group_of.len()];
    let mut before = vec![0i64; group_of.len()];
    let (mut row, mut next) = (Vec::new(), BinaryHeap::new());
    for &start in group_of {
        next.push((i64::MIN, Reverse(start)));
        while let Some((_, Reverse(group))) = next.pop() {
            if std::mem::replace(&mut seen[group as usize], true) {
                continue;
            }
            row.push(group);
            for &other in neighbours[group as usize].iter().filter(|&&n| !seen[n as usize]) {
                before[other as usize] += 1;
                let after = neighbours[other as usize].len() as i64 - before[other as usize];
                next.push((before[other as usize] - after, Reverse(other)));
            }
        }
    }
    row
}

/// Disjoint sets of elements, each named by its least member.
struct Groups(Vec<u32>);

impl Groups {
    fn new(count: usize) -> Groups {
        Groups((0..count as u32).collect())
    }
    fn find(&mut self, element: u32) -> u32 {
        let mut root = element;
        while self.0[root as usize] != root {
            let above = self.0[self.0[root as usize] as usize];
            self.0[root as usize] = above;
            root = above;
        }
        root
    }
    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::{Element, Graph, assign, in_pairs, origins};
    use crate::{Context, PortId};
    use lastmeter_base::{Duration, Packet};

    struct Hub {
        is_seldom_busy: bool,
    }

    impl Element for Hub {
        fn receive(&mut self, cx: &mut Context<'_>, _: PortId, packet: Packet) {
            cx.deliver(packet);
        }
        fn is_seldom_busy(&self) -> bool {
            self.is_seldom_busy
        }
    }

    #[test]
    fn an_origin_is_of_its_name_alone_and_nobody_elses() {
        let names = |from: u32, to: u32| (from..to).map(|n| format!("n{n}")).collect::<Vec<_>>();
        let few = origins(1, &names(0, 100));
        let mut backwards: Vec<String> = names(0, 100);
        backwards.reverse();
        let mut turned = origins(1, &backwards);
        turned.reverse();
        assert_eq!(few, turned);
        assert_eq!(few[..50], origins(1, &names(0, 50)));
        assert_ne!(few, origins(2, &names(0, 100)));
        // So many that some names have the same hash.
        let mut many = origins(1, &names(0, 20_000));
        many.sort_unstable();
        assert!(many.windows(2).all(|two| two[0] != two[1]));
    }

    #[test]
    fn a_sender_without_delay_is_placed_beside_its_first_receiver() {
        let mut graph = Graph::new(1);
        let mut add = |name| graph.add(name, Hub { is_seldom_busy: false }).expect("it is new");
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(&mut add);
        let zero = Duration::ZERO;
        // `d` sends to `a` at once, and so does `e`, which comes too late; `b` sends to `c` later.
        for (from, to, delay) in [(d, a, zero), (e, a, zero), (b, c, Duration::from_us(1))] {
            let input = PortId(u16::from(from == e));
            graph.connect_after(from, PortId(0), to, input, delay, None).expect("it is free");
        }
        assert_eq!(in_pairs(5, &graph.edges), [0, 3, 1, 2, 4]);
    }

    #[test]
    fn outputs_count_as_load_unless_they_are_seldom_used() {
        for (is_seldom_busy, with_hub) in [(false, 1), (true, 5)] {
            let mut graph = Graph::new(1);
            let hub = graph.add("hub", Hub { is_seldom_busy }).expect("it is new");
            for port in 0..8 {
                let leaf = graph.add(format!("leaf {port}"), Hub { is_seldom_busy: false });
                let (leaf, delay) = (leaf.expect("it is new"), Duration::from_us(1));
                let joined = graph.connect_after(hub, PortId(port), leaf, PortId(0), delay, None);
                joined.expect("the port is free");
            }
            let parts = assign(&graph, 2);
            assert_eq!(parts.iter().filter(|&&part| part == parts[0]).count(), with_hub);
        }
    }
}
