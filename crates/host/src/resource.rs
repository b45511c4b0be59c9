//! A resource that stages compete for: a CPU with some cores, a bus, an engine.
//!
//! ```text
//! submit --> [ waiting, by priority ] --> unit 0 .. unit n-1 --> complete
//!                     ^---- pre-empted, with the time left -----'
//! ```
//!
//! Two disciplines. *Priority*: each unit serves one job; a pre-emptive job takes the unit of a lower one, whose
//! completion is postponed by the time it loses (END's time device, E-48; Indiresan 1997, §4.3.3). *Share*: all
//! jobs are served at once and equally fast, which is the limit of round-robin arbitration with short bursts.
//!
//! | State of a job | a higher, pre-emptive job arrives   | its work is done | hold     | release |
//! |----------------|-------------------------------------|------------------|----------|---------|
//! | waiting        | stays                               | -                | -        | -       |
//! | running        | waits with the time left            | completes        | held     | -       |
//! | held           | stays                               | -                | -        | gone    |

use lastmeter_base::{Bytes, Duration, StageId, Time};
use lastmeter_engine::{Meter, ResourceId};
use std::collections::BTreeMap;

/// Priority. An interrupt goes before a soft interrupt, which goes before every thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Idle work: any other job takes its unit.
    Idle,
    /// A thread of this priority; higher goes first.
    Thread(u8),
    /// Deferred interrupt work.
    Softirq,
    /// More work of an interrupt handler already entered: no cost of entry.
    Handler,
    /// An interrupt handler.
    Interrupt,
}

/// How jobs share a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// One job per unit, the highest priority first.
    Priority,
    /// All jobs at once, equally fast; only for resources of one unit.
    Share,
}

/// Parameters of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many jobs it can serve at once: cores.
    pub units: u32,
    /// How jobs share it.
    pub discipline: Discipline,
    /// Time to switch from one thread to another.
    pub context_switch: Duration,
    /// Time to enter and leave an interrupt handler.
    pub interrupt: Duration,
}

/// Work for a resource.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Identifies the job to its submitter.
    pub id: usize,
    /// The stage that the time is accounted to.
    pub stage: StageId,
    /// Who goes first.
    pub priority: Priority,
    /// Whether it may pre-empt a lower one.
    pub preemptive: bool,
    /// Service time, without interruptions and switching.
    pub work: Duration,
}

/// A completed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its identifier.
    pub id: usize,
    /// When service began.
    pub started: Time,
    /// When its work was done.
    pub at: Time,
    /// Time in service, including its switching cost.
    pub served: Duration,
}

/// A resource and its jobs.
///
/// ```
/// use lastmeter_base::{Duration, StageId, Time};
/// use lastmeter_engine::ResourceId;
/// use lastmeter_host::resource::{Discipline, Job, Options, Priority, Resource};
/// let options = Options {
///     units: 1,
///     discipline: Discipline::Priority,
///     context_switch: Duration::ZERO,
///     interrupt: Duration::ZERO,
/// };
/// let mut cpu = Resource::new(ResourceId(0), options);
/// let at = |us| Time::START + Duration::from_us(us);
/// let job = |id, priority, preemptive, us| Job {
///     id, stage: StageId(0), priority, preemptive, work: Duration::from_us(us),
/// };
/// cpu.submit(at(0), job(0, Priority::Thread(0), false, 10));
/// cpu.submit(at(4), job(1, Priority::Interrupt, true, 3));
/// assert_eq!(cpu.ready_at(), Some(at(7)));
/// assert_eq!(cpu.complete(at(7)).map(|done| done.id), Some(1));
/// assert_eq!(cpu.ready_at(), Some(at(13))); // 6 us were left.
/// ```
#[derive(Debug)]
pub struct Resource {
    options: Options,
    units: Vec<Unit>,
    /// Waiting jobs, highest priority first, then in order of arrival.
    waiting: BTreeMap<(std::cmp::Reverse<Priority>, u64), Pending>,
    sharing: Sharing,
    submitted: u64,
    first_served: Vec<usize>,
}

#[derive(Debug)]
struct Unit {
    meter: Meter,
    state: State,
    /// The stage of the thread that ran here last.
    thread: Option<StageId>,
}

#[derive(Debug)]
enum State {
    Free,
    /// Switches to the job until `turned`, if that takes time and is not over, and serves it until `done`.
    Running {
        pending: Pending,
        since: Time,
        turned: Option<Time>,
        done: Time,
    },
    Held {
        id: usize,
    },
}

/// A job and its progress.
#[derive(Clone, Copy, Debug)]
struct Pending {
    job: Job,
    order: u64,
    left: Duration,
    started: Option<Time>,
    /// The remaining switching time.
    turning: Duration,
    /// Whether its own work has begun.
    begun: bool,
    served: Duration,
}

impl Resource {
    /// An idle resource. Panics if it has no units, or if several units are to share.
    pub fn new(id: ResourceId, options: Options) -> Resource {
        assert!(options.units > 0, "a resource without units");
        assert!(options.units == 1 || options.discipline == Discipline::Priority);
        let unit = || Unit { meter: Meter::new(id), state: State::Free, thread: None };
        Resource {
            options,
            units: (0..options.units).map(|_| unit()).collect(),
            waiting: BTreeMap::new(),
            sharing: Sharing::default(),
            submitted: 0,
            first_served: Vec::new(),
        }
    }

    /// Takes the jobs whose own work has begun since the last call, each once in its life: after the time to
    /// switch to them.
    pub fn first_served(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.first_served)
    }

    /// Submits a job.
    pub fn submit(&mut self, now: Time, job: Job) {
        self.submitted += 1;
        let pending = Pending {
            job,
            order: self.submitted,
            left: job.work,
            started: None,
            turning: Duration::ZERO,
            begun: false,
            served: Duration::ZERO,
        };
        if self.options.discipline == Discipline::Share {
            self.first_served.push(job.id);
            self.sharing.join(now, pending, &mut self.units[0].meter);
            return;
        }
        if let Some(free) = self.units.iter().position(|unit| matches!(unit.state, State::Free)) {
            self.start(now, free, pending);
            return;
        }
        match self.victim(&job) {
            Some(unit) => {
                self.preempt(now, unit);
                self.start(now, unit, pending);
            }
            None => self.wait(pending),
        }
    }

    /// The unit that `job` may take: the one serving the lowest priority, and of those the latest job.
    fn victim(&self, job: &Job) -> Option<usize> {
        let rank = |unit: &Unit| match &unit.state {
            State::Running { pending, .. }
                if job.preemptive || pending.job.priority == Priority::Idle =>
            {
                (pending.job.priority < job.priority)
                    .then_some((pending.job.priority, std::cmp::Reverse(pending.order)))
            }
            _ => None,
        };
        let ranked = self.units.iter().enumerate().filter_map(|(at, unit)| Some((rank(unit)?, at)));
        ranked.min().map(|(_, at)| at)
    }

    fn wait(&mut self, pending: Pending) {
        self.waiting.insert((std::cmp::Reverse(pending.job.priority), pending.order), pending);
    }

    fn preempt(&mut self, now: Time, unit: usize) {
        let state = std::mem::replace(&mut self.units[unit].state, State::Free);
        if let State::Running { mut pending, since, turned, done } = state {
            let begins = turned.unwrap_or(now).max(now);
            (pending.turning, pending.left) = (begins - now, done - begins);
            pending.served += now - since;
            self.wait(pending);
        }
    }

    fn start(&mut self, now: Time, unit: usize, mut pending: Pending) {
        let switching = self.switching(unit, &pending) + pending.turning;
        let unit = &mut self.units[unit];
        if let Priority::Thread(_) = pending.job.priority {
            unit.thread = Some(pending.job.stage);
        }
        pending.started.get_or_insert(now);
        unit.meter.serve(now, pending.job.stage);
        let turned = now + switching;
        let done = turned + pending.left;
        let turned = Some(turned).filter(|&turned| !pending.begun && turned > now);
        if turned.is_none() && !std::mem::replace(&mut pending.begun, true) {
            self.first_served.push(pending.job.id);
        }
        unit.state = State::Running { pending, since: now, turned, done };
    }

    /// Notes the jobs to which units have finished switching by `now`.
    fn turn(&mut self, now: Time) {
        for unit in &mut self.units {
            let State::Running { pending, turned, .. } = &mut unit.state else { continue };
            if turned.is_some_and(|turned| turned <= now) {
                (*turned, pending.begun) = (None, true);
                self.first_served.push(pending.job.id);
            }
        }
    }

    /// The cost of switching this unit to a job.
    fn switching(&self, unit: usize, pending: &Pending) -> Duration {
        match pending.job.priority {
            Priority::Interrupt if pending.started.is_none() => self.options.interrupt,
            Priority::Thread(_) if self.units[unit].thread != Some(pending.job.stage) => {
                self.options.context_switch
            }
            _ => Duration::ZERO,
        }
    }

    /// When the next job will be done or its own work begins, if nothing else happens.
    pub fn ready_at(&self) -> Option<Time> {
        match self.options.discipline {
            Discipline::Share => self.sharing.ready_at(),
            Discipline::Priority => self.units.iter().filter_map(Unit::due).min(),
        }
    }

    /// A job that is done by `now`, the earliest first; its unit starts the next job. `None` if only the own work
    /// of a job has begun.
    pub fn complete(&mut self, now: Time) -> Option<Done> {
        let (done, unit) = self.take_done(now, false)?;
        if let Some(unit) = unit {
            self.start_next(done.at, unit);
        }
        Some(done)
    }

    /// As [`Resource::complete`], but the job keeps its unit, which is blocked until [`Resource::release`]. Jobs
    /// of a shared resource hold no unit.
    pub fn complete_and_hold(&mut self, now: Time) -> Option<Done> {
        self.take_done(now, true).map(|(done, _)| done)
    }

    fn take_done(&mut self, now: Time, hold: bool) -> Option<(Done, Option<usize>)> {
        if self.options.discipline == Discipline::Share {
            return Some((self.sharing.complete(now, &mut self.units[0].meter)?, None));
        }
        self.turn(now);
        let due = self.units.iter().enumerate().filter_map(|(at, unit)| Some((unit.done()?, at)));
        let (at, unit) = due.min().filter(|&(at, _)| at <= now)?;
        let state = std::mem::replace(&mut self.units[unit].state, State::Free);
        let State::Running { pending, since, .. } = state else {
            unreachable!("only a running job can be done")
        };
        let id = pending.job.id;
        if hold {
            self.units[unit].meter.block(at);
            self.units[unit].state = State::Held { id };
        }
        let started = pending.started.unwrap_or(since);
        let served = pending.served + (at - since);
        Some((Done { id, started, at, served }, Some(unit)))
    }

    /// Ends the hold of job `id`; its unit starts the next job.
    pub fn release(&mut self, now: Time, id: usize) {
        let holds = |unit: &Unit| matches!(unit.state, State::Held { id: held } if held == id);
        if let Some(unit) = self.units.iter().position(holds) {
            self.units[unit].state = State::Free;
            self.start_next(now, unit);
        }
    }

    fn start_next(&mut self, now: Time, unit: usize) {
        match self.waiting.pop_first() {
            Some((_, pending)) => self.start(now, unit, pending),
            None => self.units[unit].meter.rest(now),
        }
    }

    /// The jobs in service.
    pub fn serving(&self) -> impl Iterator<Item = usize> + '_ {
        let running = self.units.iter().filter_map(|unit| match &unit.state {
            State::Running { pending, .. } => Some(pending.job.id),
            State::Free | State::Held { .. } => None,
        });
        running.chain(self.sharing.jobs.values().map(|(pending, _)| pending.job.id))
    }

    /// Counts `bytes` as moved by the resource.
    pub fn moved(&mut self, bytes: Bytes) {
        self.units[0].meter.moved(bytes);
    }

    /// The times of each unit.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.units.iter().map(|unit| &unit.meter)
    }
}

impl Unit {
    fn due(&self) -> Option<Time> {
        match self.state {
            State::Running { turned, done, .. } => Some(turned.unwrap_or(done)),
            State::Free | State::Held { .. } => None,
        }
    }
    fn done(&self) -> Option<Time> {
        match self.state {
            State::Running { done, .. } => Some(done),
            State::Free | State::Held { .. } => None,
        }
    }
}

/// Jobs served at once. Each has had `attained` since some origin; a job is done when that reaches its own mark.
/// So each change costs one comparison, however many jobs there are.
#[derive(Debug, Default)]
struct Sharing {
    /// Service that every present job has had, in units of 2^-16 picoseconds.
    attained: u128,
    since: Time,
    jobs: BTreeMap<(u128, u64), (Pending, Time)>,
}

const ATTAINED_BITS: u32 = 16;

impl Sharing {
    fn advance(&mut self, now: Time) {
        let elapsed = u128::from((now - self.since).as_ps()) << ATTAINED_BITS;
        self.attained += elapsed / (self.jobs.len().max(1) as u128);
        self.since = now;
    }

    fn join(&mut self, now: Time, pending: Pending, meter: &mut Meter) {
        self.advance(now);
        let mark = self.attained + (u128::from(pending.left.as_ps()) << ATTAINED_BITS);
        self.jobs.insert((mark, pending.order), (pending, now));
        self.note(now, meter);
    }

    fn ready_at(&self) -> Option<Time> {
        let (&(mark, _), _) = self.jobs.first_key_value()?;
        let wanted = (mark.saturating_sub(self.attained)) * self.jobs.len() as u128;
        let wanted = wanted.div_ceil(1 << ATTAINED_BITS);
        Some(self.since + Duration::from_ps(u64::try_from(wanted).unwrap_or(u64::MAX)))
    }

    fn complete(&mut self, now: Time, meter: &mut Meter) -> Option<Done> {
        let at = self.ready_at().filter(|&at| at <= now)?;
        self.advance(at);
        let (_, (pending, started)) = self.jobs.pop_first()?;
        self.note(at, meter);
        Some(Done { id: pending.job.id, started, at, served: at - started })
    }

    fn note(&self, now: Time, meter: &mut Meter) {
        let stages = self.jobs.values().map(|(pending, _)| pending.job.stage);
        match self.jobs.is_empty() {
            true => meter.rest(now),
            false => meter.share(now, stages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }
    fn us(us: u64) -> Duration {
        Duration::from_us(us)
    }
    fn resource(units: u32, discipline: Discipline) -> Resource {
        let options = Options { units, discipline, context_switch: us(0), interrupt: us(0) };
        Resource::new(ResourceId(0), options)
    }
    fn job(id: usize, priority: Priority, preemptive: bool, work: u64) -> Job {
        Job { id, stage: StageId(id as u32), priority, preemptive, work: us(work) }
    }
    /// Completes everything; returns (job, microsecond).
    fn drain(resource: &mut Resource) -> Vec<(usize, u64)> {
        let mut done = Vec::new();
        while let Some(next) = resource.ready_at() {
            let one = resource.complete(next);
            done.extend(one.map(|one| (one.id, one.at.as_ps() / 1_000_000)));
        }
        done
    }

    #[test]
    fn a_preempted_job_ends_later_by_exactly_the_time_it_lost() {
        // E-48: the completion time of the lower-priority event is adjusted.
        let mut bus = resource(1, Discipline::Priority);
        bus.submit(at(0), job(0, Priority::Thread(0), false, 100));
        bus.submit(at(30), job(1, Priority::Thread(9), true, 50));
        bus.submit(at(40), job(2, Priority::Interrupt, true, 5));
        assert_eq!(drain(&mut bus), [(2, 45), (1, 85), (0, 155)]);
    }

    #[test]
    fn without_preemption_a_higher_job_waits_but_goes_next() {
        let mut cpu = resource(1, Discipline::Priority);
        cpu.submit(at(0), job(0, Priority::Thread(0), false, 100));
        cpu.submit(at(1), job(1, Priority::Thread(0), false, 10));
        cpu.submit(at(2), job(2, Priority::Thread(1), false, 10));
        assert_eq!(drain(&mut cpu), [(0, 100), (2, 110), (1, 120)]);
    }

    #[test]
    fn the_lowest_job_of_several_units_is_preempted_and_resumes_on_any() {
        let mut cpu = resource(2, Discipline::Priority);
        cpu.submit(at(0), job(0, Priority::Thread(5), false, 20));
        cpu.submit(at(0), job(1, Priority::Thread(1), false, 20));
        cpu.submit(at(10), job(2, Priority::Softirq, true, 15));
        assert_eq!(drain(&mut cpu), [(0, 20), (2, 25), (1, 30)]);
    }

    #[test]
    fn switching_costs_occur_once_and_not_after_an_interrupt() {
        let options = Options {
            units: 1,
            discipline: Discipline::Priority,
            context_switch: us(20),
            interrupt: us(28),
        };
        let mut cpu = Resource::new(ResourceId(0), options);
        cpu.submit(at(0), job(0, Priority::Thread(0), false, 100)); // 20 + 100
        cpu.submit(at(60), job(1, Priority::Interrupt, true, 10)); // 28 + 10, in between
        assert_eq!(drain(&mut cpu), [(1, 98), (0, 158)]);
    }

    #[test]
    fn a_jobs_own_work_begins_after_the_switch_to_it() {
        let options = Options {
            units: 1,
            discipline: Discipline::Priority,
            context_switch: us(20),
            interrupt: us(28),
        };
        let mut cpu = Resource::new(ResourceId(0), options);
        cpu.submit(at(0), job(0, Priority::Thread(0), false, 100));
        assert_eq!(cpu.first_served(), Vec::<usize>::new());
        // 15 of its 20 us had passed when it was interrupted for 28 + 10.
        cpu.submit(at(15), job(1, Priority::Interrupt, true, 10));
        assert_eq!((cpu.ready_at(), cpu.complete(at(43))), (Some(at(43)), None));
        assert_eq!(cpu.first_served(), [1]);
        assert_eq!(cpu.complete(at(53)).map(|done| done.id), Some(1));
        assert_eq!(cpu.ready_at(), Some(at(58)));
        assert_eq!(drain(&mut cpu), [(0, 158)]);
        assert_eq!(cpu.first_served(), [0]);
    }

    #[test]
    fn more_handler_work_costs_no_entry_and_precedes_soft_interrupts() {
        let options = Options { interrupt: us(28), ..resource(1, Discipline::Priority).options };
        let mut cpu = Resource::new(ResourceId(0), options);
        cpu.submit(at(0), job(0, Priority::Interrupt, true, 10));
        cpu.submit(at(1), job(1, Priority::Softirq, false, 5));
        cpu.submit(at(2), job(2, Priority::Handler, true, 10));
        assert_eq!(drain(&mut cpu), [(0, 38), (2, 48), (1, 53)]);
    }

    #[test]
    fn sharing_jobs_slow_each_other_down_equally() {
        let mut bus = resource(1, Discipline::Share);
        bus.submit(at(0), job(0, Priority::Thread(0), false, 10));
        bus.submit(at(5), job(1, Priority::Thread(0), false, 20));
        // 5 alone, 5 more take 10 us shared; then 15 of the second are left, alone.
        assert_eq!(drain(&mut bus), [(0, 15), (1, 30)]);
        let meter = bus.meters().next().unwrap();
        assert_eq!(meter.by_stage(), [(StageId(0), us(10)), (StageId(1), us(20))]);
    }

    #[test]
    fn a_held_unit_is_blocked_until_it_is_released() {
        let mut cpu = resource(1, Discipline::Priority);
        cpu.submit(at(0), job(0, Priority::Thread(0), false, 10));
        cpu.submit(at(0), job(1, Priority::Thread(0), false, 10));
        assert_eq!(cpu.complete_and_hold(at(10)).map(|done| done.id), Some(0));
        assert_eq!(cpu.ready_at(), None);
        cpu.release(at(25), 0);
        assert_eq!(drain(&mut cpu), [(1, 35)]);
        assert_eq!(cpu.meters().next().unwrap().time_blocked(), us(15));
    }
}
