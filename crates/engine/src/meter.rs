//! The use of one unit of a resource from the start of a run to its end.

use crate::ResourceId;
use lastmeter_base::{Bytes, Duration, StageId, Time};

/// Accounts for one unit of a resource (one core, one wire): busy for a stage, blocked, or idle.
///
/// The three are measured independently, from the changes between them, so that the balance at the end of a
/// run is a check and not a tautology.
///
/// ```
/// use lastmeter_base::{Duration, StageId, Time};
/// use lastmeter_engine::{Meter, ResourceId};
/// let mut meter = Meter::new(ResourceId(0));
/// meter.serve(Time::from_ps(10), StageId(3));
/// meter.rest(Time::from_ps(25));
/// assert_eq!(meter.busy(), Duration::from_ps(15));
/// ```
#[derive(Clone, Debug)]
pub struct Meter {
    resource: ResourceId,
    state: State,
    since: Time,
    by_stage: Vec<(StageId, Duration)>,
    blocked: Duration,
    idle: Duration,
    moved: Bytes,
    /// The stages served concurrently, one entry per job, as indices of `by_stage`.
    shared: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Blocked,
    /// Serving the stage at this index of `by_stage`.
    Busy(usize),
    /// Serving all stages of `shared` at once.
    Shared,
}

impl Meter {
    /// A meter of a unit that has been idle since the start.
    pub fn new(resource: ResourceId) -> Meter {
        Meter {
            resource,
            state: State::Idle,
            since: Time::START,
            by_stage: Vec::new(),
            blocked: Duration::ZERO,
            idle: Duration::ZERO,
            moved: Bytes::ZERO,
            shared: Vec::new(),
        }
    }
    /// A meter of a unit that until `now` has served one stage for a known time and otherwise been idle;
    /// `served` is `None` if it has served nothing.
    pub fn of(
        resource: ResourceId,
        now: Time,
        served: Option<(StageId, Duration)>,
        idle: Duration,
        moved: Bytes,
    ) -> Meter {
        let by_stage = served.into_iter().collect();
        Meter { since: now, by_stage, idle, moved, ..Meter::new(resource) }
    }
    /// From `now` on the unit serves `stage`.
    #[inline]
    pub fn serve(&mut self, now: Time, stage: StageId) {
        let index = self.index(stage);
        self.change(now, State::Busy(index));
    }
    /// From `now` on the unit serves several jobs concurrently, one for each of `stages`. Time is divided equally
    /// between them.
    pub fn share(&mut self, now: Time, stages: impl Iterator<Item = StageId>) {
        self.settle(now);
        let mut shared = std::mem::take(&mut self.shared);
        shared.clear();
        shared.extend(stages.map(|stage| self.index(stage)));
        self.shared = shared;
        self.state = State::Shared;
    }
    #[inline]
    fn index(&mut self, stage: StageId) -> usize {
        let known = self.by_stage.iter().position(|&(known, _)| known == stage);
        known.unwrap_or_else(|| {
            self.by_stage.push((stage, Duration::ZERO));
            self.by_stage.len() - 1
        })
    }
    /// From `now` on the unit is idle.
    #[inline]
    pub fn rest(&mut self, now: Time) {
        self.change(now, State::Idle);
    }
    /// From `now` on the unit is blocked: taken, but unable to continue.
    pub fn block(&mut self, now: Time) {
        self.change(now, State::Blocked);
    }
    /// The unit moved `bytes`.
    pub fn moved(&mut self, bytes: Bytes) {
        self.moved += bytes;
    }

    #[inline]
    fn change(&mut self, now: Time, next: State) {
        self.settle(now);
        self.state = next;
    }

    #[inline]
    fn settle(&mut self, now: Time) {
        let elapsed = now - self.since;
        match self.state {
            State::Idle => self.idle += elapsed,
            State::Blocked => self.blocked += elapsed,
            State::Busy(index) => self.by_stage[index].1 += elapsed,
            State::Shared => self.divide(elapsed),
        }
        self.since = now;
    }

    fn divide(&mut self, elapsed: Duration) {
        let jobs = self.shared.len() as u64;
        let mut left = elapsed;
        for (place, &index) in self.shared.iter().enumerate() {
            // The remainder goes to the first ones, a picosecond each.
            let part = left.scale_ceil(1, jobs - place as u64);
            self.by_stage[index].1 += part;
            left = left - part;
        }
    }

    /// The same meter with the time up to `now` accounted for.
    pub(crate) fn closed_at(&self, now: Time) -> Meter {
        let mut closed = self.clone();
        // A live service may end slightly before the handler that notices it.
        closed.settle(now.max(self.since));
        closed
    }

    /// The resource of this unit.
    pub fn resource(&self) -> ResourceId {
        self.resource
    }
    /// Time served up to the last change.
    pub fn busy(&self) -> Duration {
        self.by_stage.iter().map(|&(_, busy)| busy).sum()
    }
    /// Time served for each stage up to the last change.
    pub fn by_stage(&self) -> &[(StageId, Duration)] {
        &self.by_stage
    }
    /// Time blocked up to the last change.
    pub fn time_blocked(&self) -> Duration {
        self.blocked
    }
    /// Time idle up to the last change.
    pub fn time_idle(&self) -> Duration {
        self.idle
    }
    /// Bytes moved.
    pub fn bytes(&self) -> Bytes {
        self.moved
    }
}
