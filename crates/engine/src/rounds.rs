//! Running the partitions of a graph, round by round.
//!
//! ```text
//!     part 0:  take in | decide | run | hand over, announce | wait .
//!     part 1:  take in | decide | run | hand over, announce | wait ' all have announced
//! ```
//!
//! In each round every part runs up to the earliest event of all parts plus the shortest delay
//! between two parts (the lookahead); nothing sent in a round can arrive within it. A packet that crosses
//! carries its key, so parts handle it exactly where one thread would. Each part decides by itself how far
//! to run, and all decide the same, from what all have announced.

use crate::Error;
use crate::clock::{Control, VirtualClock};
use crate::edges::Crossing;
use crate::parallel::Parallel;
use crate::run::{Engine, NoProgress, Partition};
use lastmeter_base::{Duration, Time};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// A run is checked for progress and stopping at least this often.
const ROUNDS_MIN: u64 = 256;
/// How often a part spins waiting for the others before it sleeps: for at most 200 us, since parts of equal
/// weight usually differ by less in a round, and waking up takes 50 us.
const LOOKS_MAX: usize = 8000;
/// The lower limit, reached by halving each time it has slept: if another program occupies a processor,
/// spinning does not help.
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
        let rounds = Rounds::new(self.partitions.len(), end, self.window(end), control);
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
        let (now, round) = (parts[0].now, parts[0].round);
        let results: Vec<_> = parts.into_iter().map(|part| part.result).collect();
        for (number, result) in results.into_iter().enumerate() {
            result.map_err(|stuck| self.no_progress(number, stuck))?;
        }
        self.now = now;
        self.rounds += round as u64;
        // A run ends early only on request.
        self.stopped |= now < end;
        Ok(())
    }

    /// How long a round lasts at most in a run until `end`.
    fn window(&self, end: Time) -> Duration {
        let pace = Duration::from_ps((end.as_ps() / ROUNDS_MIN).max(1));
        self.lookahead.unwrap_or(Duration::MAX).min(pace)
    }

    /// How many handlers a part will run in a round of a run until `end`, judged by the run so far, whose rounds may
    /// have been shorter.
    pub fn handled_at_once(&self, end: Time) -> f64 {
        let longer = self.window(end).as_secs_f64() / self.window(self.now).as_secs_f64();
        let each = self.rounds.max(1) as f64 * self.partitions.len() as f64;
        self.handled() as f64 / each * longer
    }
}

/// Makes `work` on each part a task, and passes these to `run`.
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
    /// Rounds run.
    round: usize,
    /// The time up to which it has run.
    now: Time,
    over: bool,
    /// How often it spins before it sleeps.
    looks: usize,
    result: Result<(), NoProgress>,
}

impl<'a> Part<'a> {
    /// Runs every round, while all others do so in threads of their own.
    fn run_all(&mut self) {
        let barrier = &self.rounds.barrier;
        let guard = BreaksOnPanic(barrier);
        loop {
            self.run_one();
            if self.over || !barrier.wait(self.round, &mut self.looks) {
                break;
            }
        }
        std::mem::forget(guard); // It did not panic.
    }

    /// Runs one round, if there is one more. All parts have announced the previous one.
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

    /// Hands over packets that cross to other parts, and announces when its next event is due.
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
        // One decides for all: a request may come between the announcements of parts.
        if self.result.is_err() || self.number == 0 && self.rounds.control.stopped() {
            told.enough.store(true, Ordering::Relaxed);
        }
    }

    fn told(&self) -> &'a Announced {
        &self.rounds.told[self.round % 2]
    }
}

/// State shared by the parts of a run.
struct Rounds<'a> {
    parts: usize,
    end: Time,
    /// The lookahead: how long after the first event a round ends.
    window: Duration,
    control: &'a Control,
    /// Of this round and of the previous one, which some may still be reading.
    told: [Announced; 2],
    barrier: Barrier,
}

impl Rounds<'_> {
    fn new(parts: usize, end: Time, window: Duration, control: &Control) -> Rounds<'_> {
        let told = [Announced::new(parts), Announced::new(parts)];
        Rounds { parts, end, window, control, told, barrier: Barrier::new(parts) }
    }

    /// The end of the next round, after `now`; `None` at the end.
    fn last(&self, now: Time, told: &Announced) -> Option<Time> {
        if now >= self.end || told.enough.load(Ordering::Relaxed) {
            return None;
        }
        let nexts = told.next.iter().map(|next| next.load(Ordering::Relaxed));
        let next = Time::from_ps(nexts.fold(self.end.as_ps(), u64::min)).max(now);
        // Events before `next + window` cannot be affected by what is yet to cross.
        let last = ((next + self.window).as_ps() - 1).max(next.as_ps());
        Some(Time::from_ps(last).min(self.end))
    }
}

/// The parts' announcements after a round.
struct Announced {
    /// When the first event of each part is due, or its first packet to another.
    next: Vec<AtomicU64>,
    /// Whether the run must end.
    enough: AtomicBool,
    /// Crossing packets, by source and by destination.
    boxes: Vec<Mutex<Vec<Crossing>>>,
}

impl Announced {
    fn new(parts: usize) -> Announced {
        Announced {
            next: (0..parts).map(|_| AtomicU64::default()).collect(),
            enough: AtomicBool::default(),
            boxes: (0..parts * parts).map(|_| Mutex::default()).collect(),
        }
    }

    fn open(&self, from: usize, to: usize) -> MutexGuard<'_, Vec<Crossing>> {
        let crossing = &self.boxes[from * self.next.len() + to];
        crossing.lock().expect("nothing panics while it holds an outbox")
    }
}

/// A barrier at which threads first spin, since sleeping and waking usually take longer.
struct Barrier {
    parts: usize,
    /// Total arrivals of all parts.
    came: AtomicUsize,
    /// Whether one has panicked.
    off: AtomicBool,
    /// How many are asleep.
    asleep: Mutex<usize>,
    bell: Condvar,
}

impl Barrier {
    fn new(parts: usize) -> Barrier {
        let (came, off) = (AtomicUsize::default(), AtomicBool::default());
        Barrier { parts, came, off, asleep: Mutex::default(), bell: Condvar::default() }
    }

    /// Waits until all have arrived this many times; returns whether they have, or the barrier is broken.
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
            asleep = self.bell.wait(asleep).expect("nothing panics while holding the lock");
            *asleep -= 1;
        }
        all_came()
    }

    /// Wakes sleepers. A thread about to sleep either is counted once the lock is free here, or sees the change.
    fn wake(&self) {
        let some_sleep = *self.asleep() > 0;
        if some_sleep {
            self.bell.notify_all();
        }
    }

    fn asleep(&self) -> MutexGuard<'_, usize> {
        self.asleep.lock().expect("nothing panics while holding the lock")
    }
}

/// Breaks a barrier when its owner panics, which drops it: otherwise the others would wait forever.
struct BreaksOnPanic<'a>(&'a Barrier);

impl Drop for BreaksOnPanic<'_> {
    fn drop(&mut self) {
        self.0.off.store(true, Ordering::Release);
        self.0.wake();
    }
}
