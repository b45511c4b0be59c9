//! Running the parts of a graph, round by round.
//!
//! ```text
//!     part 0:  take in | decide | run | hand over and tell | wait .
//!     part 1:  take in | decide | run | hand over and tell | wait ' all have told
//! ```
//!
//! In each round every part runs up to the earliest event of all parts plus the shortest delay
//! between two parts; nothing sent in a round can arrive within it. What crosses carries its
//! (time, origin, count), so parts see it exactly where one thread would. Each part decides by
//! itself how far to run, and all decide the same: from what all have told.

use crate::Error;
use crate::clock::{Control, VirtualClock};
use crate::edges::Crossing;
use crate::parallel::Parallel;
use crate::run::{Engine, Partition, Stuck};
use lastmeter_base::{Duration, Time};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// A run is looked at for progress and stopping at least this often.
const ROUNDS_MIN: u64 = 256;
/// How often a part looks whether all others have come before it falls asleep: for at most 200 us,
/// since parts of the same weight mostly differ by less in a round, and to be woken takes 50 us.
const LOOKS_MAX: usize = 8000;
/// The same when it has slept again and again, each time half as long: where another program keeps a
/// processor from the others, they come no earlier because somebody looks.
const LOOKS_MIN: usize = LOOKS_MAX / 16;

impl Engine {
    /// Runs several parts up to and including `end`.
    pub(crate) fn run_parts(
        &mut self,
        end: Time,
        control: &Control,
        parallel: &dyn Parallel,
    ) -> Result<(), Error> {
        for number in 0..self.partitions.len() {
            let started = self.partitions[number].start();
            started.map_err(|stuck| self.no_progress(number, stuck))?;
        }
        let pace = Duration::from_ps((end.as_ps() / ROUNDS_MIN).max(1));
        let window = self.lookahead.unwrap_or(Duration::MAX).min(pace);
        let rounds = Rounds::new(self.partitions.len(), end, window, control);
        let new = |(number, partition)| Part {
            partition,
            number,
            rounds: &rounds,
            round: 0,
            now: self.now,
            over: false,
            looks: LOOKS_MAX,
            result: Ok(()),
        };
        let mut parts: Vec<Part<'_>> = self.partitions.iter_mut().enumerate().map(new).collect();
        parts.iter_mut().for_each(Part::tell);
        if !at_once(&mut parts, Part::run_all, |tasks| parallel.run_together(tasks)) {
            parallel.within(&mut || {
                while !parts[0].over {
                    at_once(&mut parts, Part::run_one, |tasks| parallel.run(tasks));
                }
            });
        }
        let now = parts[0].now;
        let results: Vec<_> = parts.into_iter().map(|part| part.result).collect();
        for (number, result) in results.into_iter().enumerate() {
            result.map_err(|stuck| self.no_progress(number, stuck))?;
        }
        self.now = now;
        // Only a request makes a run end before its time.
        self.stopped |= now < end;
        Ok(())
    }
}

/// Makes `work` on each part a task, and has `run` run these.
fn at_once<'a, R>(
    parts: &mut [Part<'a>],
    work: fn(&mut Part<'a>),
    run: impl FnOnce(&mut [&mut (dyn FnMut() + Send)]) -> R,
) -> R {
    let mut tasks: Vec<_> = parts.iter_mut().map(|part| move || work(part)).collect();
    let mut tasks: Vec<&mut (dyn FnMut() + Send)> =
        tasks.iter_mut().map(|task| task as &mut (dyn FnMut() + Send)).collect();
    run(&mut tasks)
}

/// One part in a run.
struct Part<'a> {
    partition: &'a mut Partition,
    number: usize,
    rounds: &'a Rounds<'a>,
    /// Rounds that it has run.
    round: usize,
    /// Up to when it has run.
    now: Time,
    over: bool,
    /// How often it looks for others before it falls asleep.
    looks: usize,
    result: Result<(), Stuck>,
}

impl<'a> Part<'a> {
    /// Runs every round, while all others do so in threads of their own.
    fn run_all(&mut self) {
        let meeting = &self.rounds.meeting;
        let guard = CallsOff(meeting);
        loop {
            self.run_one();
            if self.over || !meeting.wait(self.round, &mut self.looks) {
                break;
            }
        }
        std::mem::forget(guard); // It did not panic.
    }

    /// Runs one round, if there is one more. All parts have told of the one before.
    fn run_one(&mut self) {
        let told = self.told();
        for from in 0..self.rounds.parts {
            self.partition.world.take_in(&mut told.open(from, self.number));
        }
        let Some(last) = self.rounds.last(self.now, told) else {
            self.over = true;
            return;
        };
        self.round += 1;
        self.result = self.partition.run(&mut VirtualClock::default(), last).map(drop);
        self.now = last;
        self.tell();
    }

    /// Hands over what crosses to other parts, and tells when something is due next.
    fn tell(&mut self) {
        let (told, world) = (self.told(), &mut self.partition.world);
        for (to, outbox) in world.outboxes.iter_mut().enumerate() {
            std::mem::swap(&mut *told.open(self.number, to), outbox);
        }
        let crosses_at = std::mem::replace(&mut world.crosses_at, Time::MAX);
        let next = self.partition.next().map_or(crosses_at, |next| next.min(crosses_at));
        told.next[self.number].store(next.as_ps(), Ordering::Relaxed);
        if self.number == 0 {
            self.rounds.control.reached(self.now);
        }
        // One asks for all: a request may come while some have told and others have not.
        if self.result.is_err() || self.number == 0 && self.rounds.control.stopped() {
            told.enough.store(true, Ordering::Relaxed);
        }
    }

    fn told(&self) -> &'a Told {
        &self.rounds.told[self.round % 2]
    }
}

/// What the parts of a run share.
struct Rounds<'a> {
    parts: usize,
    end: Time,
    /// How much later than the first event a round ends.
    window: Duration,
    control: &'a Control,
    /// Of this round and of the one before, which some may still read.
    told: [Told; 2],
    meeting: Meeting,
}

impl Rounds<'_> {
    fn new(parts: usize, end: Time, window: Duration, control: &Control) -> Rounds<'_> {
        let told = [Told::new(parts), Told::new(parts)];
        Rounds { parts, end, window, control, told, meeting: Meeting::new(parts) }
    }

    /// Up to when all run that have run up to `now`; `None` at the end.
    fn last(&self, now: Time, told: &Told) -> Option<Time> {
        if now >= self.end || told.enough.load(Ordering::Relaxed) {
            return None;
        }
        let nexts = told.next.iter().map(|next| next.load(Ordering::Relaxed));
        let next = Time::from_ps(nexts.fold(self.end.as_ps(), u64::min)).max(now);
        // Events before `next + window` cannot be affected by what is yet to cross.
        let last = (next.saturating_add(self.window).as_ps() - 1).max(next.as_ps());
        Some(Time::from_ps(last).min(self.end))
    }
}

/// What the parts have told after a round.
struct Told {
    /// When the first event of each is due, or what it has sent to another.
    next: Vec<AtomicU64>,
    /// Whether the run shall end.
    enough: AtomicBool,
    /// What crosses, by from where and by where to.
    boxes: Vec<Mutex<Vec<Crossing>>>,
}

impl Told {
    fn new(parts: usize) -> Told {
        Told {
            next: (0..parts).map(|_| AtomicU64::default()).collect(),
            enough: AtomicBool::default(),
            boxes: (0..parts * parts).map(|_| Mutex::default()).collect(),
        }
    }

    fn open(&self, from: usize, to: usize) -> MutexGuard<'_, Vec<Crossing>> {
        let crossing = &self.boxes[from * self.next.len() + to];
        crossing.lock().expect("nothing panics that has a box open")
    }
}

/// Where threads wait for each other: at first awake, since it mostly takes longer to fall asleep
/// and be woken.
struct Meeting {
    parts: usize,
    /// How often parts have come, all together.
    came: AtomicUsize,
    /// Whether one never will again.
    off: AtomicBool,
    /// How many sleep.
    asleep: Mutex<usize>,
    bell: Condvar,
}

impl Meeting {
    fn new(parts: usize) -> Meeting {
        let (came, off) = (AtomicUsize::default(), AtomicBool::default());
        Meeting { parts, came, off, asleep: Mutex::default(), bell: Condvar::default() }
    }

    /// Waits until all have come so many times; says whether they have, or the meeting is off.
    fn wait(&self, times: usize, looks: &mut usize) -> bool {
        let all = times * self.parts;
        let all_came = || self.came.load(Ordering::Acquire) >= all;
        if self.came.fetch_add(1, Ordering::AcqRel) + 1 == all {
            self.wake();
            return true;
        }
        for _ in 0..*looks {
            if all_came() {
                *looks = (*looks * 2).min(LOOKS_MAX);
                return true;
            }
            std::hint::spin_loop();
        }
        *looks = (*looks / 2).max(LOOKS_MIN);
        let mut asleep = self.asleep();
        while !all_came() && !self.off.load(Ordering::Acquire) {
            *asleep += 1;
            asleep = self.bell.wait(asleep).expect("nothing panics that holds the lock");
            *asleep -= 1;
        }
        all_came()
    }

    /// Wakes those that sleep. Who is about to fall asleep either counts when the lock is free here, or
    /// sees what has changed.
    fn wake(&self) {
        let some_sleep = *self.asleep() > 0;
        if some_sleep {
            self.bell.notify_all();
        }
    }

    fn asleep(&self) -> MutexGuard<'_, usize> {
        self.asleep.lock().expect("nothing panics that holds the lock")
    }
}

/// Calls a meeting off when its owner panics, who drops it then: the others would wait for ever.
struct CallsOff<'a>(&'a Meeting);

impl Drop for CallsOff<'_> {
    fn drop(&mut self) {
        self.0.off.store(true, Ordering::Release);
        self.0.wake();
    }
}
