//! The books: every packet and every picosecond of a run, by path, stage and resource.
//!
//! A packet carries the record of its stages and is entered when it is delivered. So the stages of a path sum to
//! the latency of exactly the packets that arrived, to the picosecond, regardless of packets dropped or in flight.

use crate::pairs::{Pairs, pair};
use crate::{Distribution, Error, Meter};
use lastmeter_base::{Bytes, Duration, Packet, PathId, StageId, Time, Visit, prefetch};
use std::collections::BTreeMap;

/// A resource of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// The kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// A processor of a host or an adapter.
    Cpu,
    /// A memory or I/O bus.
    Bus,
    /// A DMA engine, a segmentation chip, a lookup engine.
    Engine,
    /// A link's transmitter.
    Wire,
}

impl ResourceKind {
    /// Its name in the ledger.
    pub fn name(self) -> &'static str {
        match self {
            ResourceKind::Cpu => "cpu",
            ResourceKind::Bus => "bus",
            ResourceKind::Engine => "engine",
            ResourceKind::Wire => "wire",
        }
    }
}

/// A resource declared by the graph.
#[derive(Clone, Debug)]
pub struct ResourceInfo {
    /// Unique in the graph.
    pub name: String,
    /// Its kind.
    pub kind: ResourceKind,
    /// How many packets it can serve at once.
    pub units: u32,
    /// Where it is.
    pub place: Place,
}

impl ResourceInfo {
    /// One that serves a packet at a time.
    pub fn new(name: impl Into<String>, kind: ResourceKind) -> ResourceInfo {
        ResourceInfo { name: name.into(), kind, units: 1, place: Place::default() }
    }
}

/// Where a resource or a stage belongs in the model, so that nothing has to be parsed from its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The node that it belongs to: `s.3`; `None` for a link's.
    pub host: Option<String>,
    /// The name that it shares with its counterparts at the other members of a counted node: `s.cpu`
    /// for `s.3.cpu`; `None` if it has none.
    pub group: Option<String>,
    /// What it is for, in the words of its kind: `reception`, `application`, `propagation`.
    pub role: Option<&'static str>,
    /// Where its constants come from: document and table.
    pub source: Option<String>,
}

/// A stage declared by the graph.
#[derive(Clone, Debug)]
pub struct StageInfo {
    /// Unique in the graph.
    pub name: String,
    /// What serves it; `None` for pure delay.
    pub resource: Option<ResourceId>,
    /// How often it copies each byte.
    pub copies: u32,
    /// How often a processor reads or writes each byte.
    pub touches: u32,
    /// How often each byte crosses memory.
    pub memory: u32,
    /// Where it is.
    pub place: Place,
}

impl StageInfo {
    /// A stage that moves no bytes over memory.
    pub fn new(name: impl Into<String>, resource: Option<ResourceId>) -> StageInfo {
        let (copies, touches, memory) = (0, 0, 0);
        StageInfo { name: name.into(), resource, copies, touches, memory, place: Place::default() }
    }
}

/// A path and class of traffic declared by the graph.
#[derive(Clone, Debug)]
pub struct PathInfo {
    /// Unique in the graph together with the class.
    pub name: String,
    /// The class of traffic.
    pub class: String,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many packets.
    pub packets: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

impl Count {
    #[inline]
    fn add(&mut self, len: Bytes) {
        self.packets += 1;
        self.bytes += len.0;
    }
    fn merge(&mut self, other: Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Messages with deadlines, where sources and sinks report any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Messages that sources made.
    pub made: u64,
    /// Those complete at their sinks in time.
    pub met: u64,
    /// Those complete after their deadline.
    pub late: u64,
}

/// Where and why packets were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DropKey {
    /// The stage that dropped them; `None` outside any stage.
    pub stage: Option<StageId>,
    /// Why.
    pub reason: &'static str,
}

/// One stage of one path, over the packets that were delivered. What every visit reads and writes is
/// in the first of its cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Row {
    /// Which stage.
    pub stage: StageId,
    /// Sum over visits of the visit's index in its packet's record, used to order rows.
    position: u64,
    /// Packets and bytes that passed.
    pub passed: Count,
    /// A repeated time not yet counted below: at a constant rate all are equal.
    last_service: Repeated,
    /// Waiting times. Packets that neither waited nor were blocked are counted when the books are closed.
    pub wait: Distribution,
    /// Service times.
    pub service: Distribution,
    /// Blocked times.
    pub blocked: Distribution,
}

/// A time repeated since a given packet count: while it repeats, nothing is written.
#[derive(Clone, Copy, Debug, Default)]
struct Repeated {
    time: Duration,
    since: u64,
}

impl Repeated {
    /// A packet has `time`, after `passed` others.
    #[inline]
    fn record(&mut self, time: Duration, passed: u64, into: &mut Distribution) {
        if time != self.time {
            self.settle(passed, into);
            self.time = time;
        }
    }

    /// Counts the times of the `passed` packets that are not counted yet.
    #[inline]
    fn settle(&mut self, passed: u64, into: &mut Distribution) {
        into.record_many(self.time, passed - self.since);
        self.since = passed;
    }
}

impl Row {
    fn new(stage: StageId) -> Row {
        Row {
            stage,
            position: 0,
            passed: Count::default(),
            wait: Distribution::default(),
            service: Distribution::default(),
            blocked: Distribution::default(),
            last_service: Repeated::default(),
        }
    }

    #[inline(always)]
    fn enter(&mut self, position: u32, visit: Visit, len: Bytes) {
        let passed = self.passed.packets;
        if !visit.wait.is_zero() {
            self.wait.record(visit.wait);
        }
        self.last_service.record(visit.service, passed, &mut self.service);
        if !visit.blocked.is_zero() {
            self.blocked.record(visit.blocked);
        }
        self.position += u64::from(position);
        self.passed.add(len);
    }

    /// Counts the pending repeated visits.
    fn settle(&mut self) {
        let passed = self.passed.packets;
        self.last_service.settle(passed, &mut self.service);
        // Only the other visits are in there.
        self.wait.record_many(Duration::ZERO, passed - self.wait.count());
        self.blocked.record_many(Duration::ZERO, passed - self.blocked.count());
    }

    fn merge(&mut self, mut theirs: Row) {
        theirs.settle();
        self.settle();
        self.position += theirs.position;
        self.passed.merge(theirs.passed);
        self.wait.merge(&theirs.wait);
        self.service.merge(&theirs.service);
        self.blocked.merge(&theirs.blocked);
        self.last_service.since = self.passed.packets;
    }

    /// Picoseconds that delivered packets spent here, exact.
    pub fn time(&self) -> u128 {
        self.wait.sum() + self.service.sum() + self.blocked.sum()
    }
}

/// The books of one path.
#[derive(Clone, Debug, Default)]
pub struct PathBook {
    /// Offered by sources.
    pub offered: Count,
    /// Delivered to sinks.
    pub delivered: Count,
    /// Bytes of these that applications could use: without headers, acknowledgements and duplicates, where
    /// the sink knows of them.
    pub useful: u64,
    /// End-to-end latencies of delivered packets.
    pub latency: Distribution,
    /// Differences of latency between consecutive packets of a flow (RFC 3393, absolute value).
    pub variation: Distribution,
    /// When the first packet was made; `None` before that.
    pub first_offered: Option<Time>,
    /// When the last packet was delivered.
    pub last_delivered: Time,
    /// Packets already on their way when the books were opened anew.
    pub carried: i64,
    /// Packets that arrived after a later one of their flow.
    pub reordered: u64,
    /// Packets whose content was not what their source sent.
    pub corrupted: u64,
    /// Messages with deadlines.
    pub deadlines: Deadlines,
    /// Drops, by place and reason.
    pub dropped: BTreeMap<DropKey, Count>,
    rows: Vec<Row>,
    /// The index of a stage's row plus one, by stage.
    row_of_stage: Vec<u32>,
    /// By flow: its previous packet where its first one ended.
    previous: Vec<Previous>,
    /// Latency of its previous packet, plus one picosecond, at other elements where it ends, by element and flow.
    previous_elsewhere: Pairs,
}

/// The previous packet of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Previous {
    /// The element where it ended.
    end: u32,
    /// Its latency plus one picosecond; zero before the first.
    latency: u64,
}

impl PathBook {
    /// Rows in path order.
    pub fn rows(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        // Compares mean positions as exact fractions.
        rows.sort_by(|a, b| {
            let a_first = u128::from(a.position) * u128::from(b.passed.packets);
            let b_first = u128::from(b.position) * u128::from(a.passed.packets);
            a_first.cmp(&b_first).then(a.stage.cmp(&b.stage))
        });
        rows
    }
    /// Packets and bytes dropped, for any reason.
    pub fn dropped_total(&self) -> Count {
        let mut total = Count::default();
        self.dropped.values().for_each(|&count| total.merge(count));
        total
    }

    /// Packets still on their way.
    pub fn held(&self) -> u64 {
        self.on_the_way().max(0) as u64
    }

    /// The same in a partition's account: negative where packets end that are made in another.
    fn on_the_way(&self) -> i64 {
        let ended = self.delivered.packets + self.dropped_total().packets;
        self.carried + self.offered.packets as i64 - ended as i64
    }

    /// Begins anew; packets on their way will be entered with all that has happened to them.
    fn reopen(&mut self) {
        let carried = self.on_the_way();
        let old = std::mem::take(self);
        let PathBook { previous, previous_elsewhere, .. } = old;
        *self = PathBook { carried, previous, previous_elsewhere, ..PathBook::default() };
    }

    #[inline]
    fn row(&mut self, stage: StageId) -> &mut Row {
        let place = match self.row_of_stage.get(stage.0 as usize) {
            Some(&place) if place > 0 => place,
            _ => self.add_row(stage),
        };
        &mut self.rows[place as usize - 1]
    }

    #[cold]
    fn add_row(&mut self, stage: StageId) -> u32 {
        let slot = stage.0 as usize;
        self.row_of_stage.resize(self.row_of_stage.len().max(slot + 1), 0);
        self.rows.push(Row::new(stage));
        self.row_of_stage[slot] = self.rows.len() as u32;
        self.row_of_stage[slot]
    }

    #[inline(always)]
    fn enter_visits(&mut self, visits: impl Iterator<Item = Visit>, len: Bytes) {
        for (position, visit) in visits.enumerate() {
            self.row(visit.stage).enter(position as u32, visit, len);
        }
    }

    /// The variation is between consecutive packets of a flow that end at the same element, so that it
    /// does not depend on which elements share a partition.
    fn enter_variation(&mut self, end: u32, packet: &Packet, latency: Duration) {
        let flow = packet.flow.0;
        if flow as usize >= self.previous.len() {
            self.previous.resize(flow as usize + 1, Previous::default());
        }
        let here = &mut self.previous[flow as usize];
        if here.latency == 0 {
            here.end = end;
        }
        let previous = match here.end == end {
            true => &mut here.latency,
            false => self.previous_elsewhere.entry(pair(end, flow)).or_default(),
        };
        let current = latency.as_ps() + 1;
        let previous = std::mem::replace(previous, current);
        if previous > 0 {
            self.variation.record(Duration::from_ps(current.abs_diff(previous)));
        }
    }

    fn merge(&mut self, other: &PathBook) {
        self.offered.merge(other.offered);
        self.delivered.merge(other.delivered);
        self.carried += other.carried;
        self.useful += other.useful;
        self.latency.merge(&other.latency);
        self.variation.merge(&other.variation);
        self.first_offered = match (self.first_offered, other.first_offered) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.last_delivered = self.last_delivered.max(other.last_delivered);
        self.reordered += other.reordered;
        self.corrupted += other.corrupted;
        self.deadlines.made += other.deadlines.made;
        self.deadlines.met += other.deadlines.met;
        self.deadlines.late += other.deadlines.late;
        for (&key, &count) in &other.dropped {
            self.dropped.entry(key).or_default().merge(count);
        }
        for theirs in &other.rows {
            self.row(theirs.stage).merge(theirs.clone());
        }
    }
}

/// A resource's use, over all its units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceUse {
    /// Picoseconds served, by stage.
    pub by_stage: BTreeMap<StageId, u128>,
    /// Picoseconds blocked.
    pub blocked: u128,
    /// Picoseconds idle.
    pub idle: u128,
    /// Bytes moved.
    pub moved: u128,
}

impl ResourceUse {
    /// Picoseconds served for all stages.
    pub fn busy(&self) -> u128 {
        self.by_stage.values().sum()
    }

    /// Takes away what was used before.
    fn subtract(&mut self, before: &ResourceUse) {
        for (stage, busy) in &before.by_stage {
            *self.by_stage.entry(*stage).or_default() -= busy;
        }
        self.by_stage.retain(|_, busy| *busy > 0);
        self.blocked -= before.blocked;
        self.idle -= before.idle;
        self.moved -= before.moved;
    }
}

/// The books of a run, or of one of its partitions.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Whether stages are recorded; counts always are.
    pub(crate) collecting: bool,
    /// One for each path, by [`PathId`].
    pub paths: Vec<PathBook>,
    /// One for each resource, by [`ResourceId`].
    pub resources: Vec<ResourceUse>,
    /// Packets made, over all paths.
    pub made: u64,
    /// Packets delivered, over all paths.
    pub delivered: u64,
    /// Packets dropped, over all paths.
    pub dropped: u64,
}

impl Books {
    pub(crate) fn new(paths: usize, resources: usize, collecting: bool) -> Books {
        Books {
            collecting,
            paths: vec![PathBook::default(); paths],
            resources: vec![ResourceUse::default(); resources],
            ..Books::default()
        }
    }

    /// Begins the books of all paths anew, as at the end of a warm-up.
    pub(crate) fn reopen(&mut self) {
        self.paths.iter_mut().for_each(PathBook::reopen);
    }

    /// Prefetches what is read and written if the packet ends at the element that it has reached.
    #[inline(always)]
    pub(crate) fn prefetch(&self, packet: &Packet) {
        let book = self.paths.get(packet.path.0 as usize);
        let previous = book.and_then(|book| book.previous.get(packet.flow.0 as usize));
        previous.into_iter().for_each(prefetch);
    }

    #[inline]
    pub(crate) fn offer(&mut self, now: Time, path: PathId, len: Bytes) {
        self.made += 1;
        let book = &mut self.paths[path.0 as usize];
        book.offered.add(len);
        book.first_offered = Some(book.first_offered.map_or(now, |first| first.min(now)));
    }

    #[inline]
    pub(crate) fn deliver(&mut self, now: Time, end: u32, packet: &Packet, useful: u64) {
        self.delivered += 1;
        let book = &mut self.paths[packet.path.0 as usize];
        book.delivered.add(packet.len);
        book.useful += useful;
        // Not always in order: an element may run ahead of the others.
        book.last_delivered = book.last_delivered.max(now);
        if !self.collecting {
            return;
        }
        let latency = now - packet.born;
        book.latency.record(latency);
        book.enter_variation(end, packet, latency);
        match packet.visits.iter_few() {
            Some(visits) => book.enter_visits(visits, packet.len),
            None => book.enter_visits(packet.visits.iter(), packet.len),
        }
    }

    pub(crate) fn drop(&mut self, packet: &Packet, key: DropKey) {
        self.dropped += 1;
        self.paths[packet.path.0 as usize].dropped.entry(key).or_default().add(packet.len);
    }

    pub(crate) fn enter_meter(&mut self, meter: &Meter) {
        let used = &mut self.resources[meter.resource().0 as usize];
        for &(stage, busy) in meter.by_stage() {
            *used.by_stage.entry(stage).or_default() += u128::from(busy.as_ps());
        }
        used.blocked += u128::from(meter.time_blocked().as_ps());
        used.idle += u128::from(meter.time_idle().as_ps());
        used.moved += u128::from(meter.bytes().0);
    }

    pub(crate) fn merge(&mut self, other: &Books) {
        self.made += other.made;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.paths.iter_mut().zip(&other.paths).for_each(|(mine, theirs)| mine.merge(theirs));
        for (mine, theirs) in self.resources.iter_mut().zip(&other.resources) {
            mine.blocked += theirs.blocked;
            mine.idle += theirs.idle;
            mine.moved += theirs.moved;
            for (&stage, &busy) in &theirs.by_stage {
                *mine.by_stage.entry(stage).or_default() += busy;
            }
        }
    }

    /// Takes away what each resource was used `before`, as at the end of a warm-up.
    pub(crate) fn subtract(&mut self, before: &[ResourceUse]) {
        self.resources.iter_mut().zip(before).for_each(|(used, before)| used.subtract(before));
    }

    /// Checks every balance that the ledger guarantees.
    pub(crate) fn check(
        &self,
        now: Time,
        held: u64,
        paths: &[PathInfo],
        resources: &[ResourceInfo],
    ) -> Result<(), Error> {
        if self.made != self.delivered + self.dropped + held {
            let (made, delivered, dropped) = (self.made, self.delivered, self.dropped);
            return Err(Error::PacketsUnbalanced { made, delivered, dropped, held });
        }
        for (book, info) in self.paths.iter().zip(paths) {
            let stages = book.rows.iter().map(Row::time).sum();
            let latency = book.latency.sum();
            if latency != stages {
                let path = format!("{} {}", info.name, info.class);
                return Err(Error::LatencyUnbalanced { path, latency, stages });
            }
        }
        for (used, info) in self.resources.iter().zip(resources) {
            let accounted = used.busy() + used.blocked + used.idle;
            let elapsed = u128::from(now.as_ps()) * u128::from(info.units);
            if accounted != elapsed {
                let resource = info.name.clone();
                return Err(Error::ResourceUnbalanced { resource, accounted, elapsed });
            }
        }
        Ok(())
    }
}
