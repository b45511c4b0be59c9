//! What a thread did over time, in at most [`BINS`] intervals of equal length.
//!
//! Between two looks the scheduler says for how long a thread ran and waited for a CPU. The rest it was asleep,
//! divided by where it was at those looks of the interval (or else of all) at which it was asleep; if it was so
//! at none, that is unknown. When the intervals are used up, two become one: so a command of any length has between
//! half of [`BINS`] and [`BINS`] of them.

use super::EVERY;
use super::processes::{State, ThreadLook};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most intervals.
const BINS: usize = 32;

/// What the thread that moves the data did, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Seconds of an interval.
    pub step: f64,
    /// The intervals; the last may be shorter.
    pub intervals: Vec<Interval>,
}

/// Seconds of an interval, by what the thread did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Seconds from the first look to its beginning.
    pub at: f64,
    /// On a CPU.
    pub run: f64,
    /// Ready for one.
    pub wait: f64,
    /// Asleep, by where.
    pub asleep: BTreeMap<String, f64>,
    /// Not known.
    pub unknown: f64,
}

impl Interval {
    /// All of it.
    pub fn seconds(&self) -> f64 {
        self.run + self.wait + self.unknown + self.asleep.values().sum::<f64>()
    }
}

/// Where a thread is asleep, in words; `None` where it is not asleep.
fn words(state: State) -> Option<&'static str> {
    Some(match state {
        State::Ready => return None,
        State::Timer => "asleep by its own choice",
        State::Disk => "waiting for a disk",
        State::PipeRead => "waiting for data from a pipe",
        State::PipeWrite => "waiting for room in a pipe",
        State::Send => "waiting for room in a socket",
        State::Receive => "waiting for data from a socket",
        State::Poll => "waiting for one of several descriptors",
        State::PipeOrSocket => "waiting for data from a pipe or a socket",
        State::Connect => "connecting",
        State::Accept => "waiting for a connection",
        State::Others => "waiting for another thread or process",
        State::Other => "asleep elsewhere",
    })
}

/// Seconds of one interval.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    run: f32,
    wait: f32,
    asleep: f32,
    /// Looks at which it was asleep, by where; the first is never counted.
    looks: [u16; State::COUNT],
}

impl Bin {
    fn add(&mut self, more: &Bin) {
        self.run += more.run;
        self.wait += more.wait;
        self.asleep += more.asleep;
        let looks = self.looks.iter_mut().zip(more.looks);
        looks.for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

/// The history of one thread.
#[derive(Clone, Debug)]
pub(super) struct History {
    from: f64,
    last: f64,
    step: f64,
    bins: Vec<Bin>,
}

impl History {
    /// Of a thread that is seen for the first time.
    pub(super) fn new(at: f64) -> History {
        History { from: at, last: at, step: EVERY, bins: Vec::new() }
    }

    /// How long it has been followed.
    pub(super) fn seconds(&self) -> f64 {
        self.last - self.from
    }

    /// Notes the time since the last look: `before` then, `look` now.
    pub(super) fn note(&mut self, at: f64, before: &ThreadLook, look: &ThreadLook) {
        let seconds = at - self.last;
        if seconds <= 0.0 {
            return;
        }
        // Both looks are in the middle of the pass that reads them, so the counts may be a little more.
        let run = (look.run - before.run).clamp(0.0, seconds);
        let wait = (look.wait - before.wait).clamp(0.0, seconds - run);
        let middle = self.last + seconds / 2.0 - self.from;
        while middle >= self.step * BINS as f64 {
            self.widen();
        }
        let place = (middle / self.step) as usize;
        if self.bins.len() <= place {
            self.bins.resize(place + 1, Bin::default());
        }
        let bin = &mut self.bins[place];
        bin.run += run as f32;
        bin.wait += wait as f32;
        // What is left of rounding is no sleep.
        let asleep = seconds - run - wait;
        bin.asleep += if asleep < 1e-9 { 0.0 } else { asleep as f32 };
        if look.state != State::Ready {
            let count = &mut bin.looks[look.state as usize];
            *count = count.saturating_add(1);
        }
        self.last = at;
    }

    /// Makes one interval of each two.
    fn widen(&mut self) {
        self.step *= 2.0;
        let joined = self.bins.chunks(2).map(|pair| {
            let mut sum = pair[0];
            pair[1..].iter().for_each(|more| sum.add(more));
            sum
        });
        self.bins = joined.collect();
    }

    /// As it is reported.
    pub(super) fn timeline(&self) -> Timeline {
        let mut all = Bin::default();
        self.bins.iter().for_each(|bin| all.add(bin));
        let count = |bin: &Bin| bin.looks.iter().map(|&count| f64::from(count)).sum::<f64>();
        let interval = |(place, bin): (usize, &Bin)| {
            let looks = if count(bin) > 0.0 { bin } else { &all };
            let known = count(looks);
            let named = STATES.into_iter().filter_map(|state| {
                let share = f64::from(looks.looks[state as usize]) / known;
                let seconds = f64::from(bin.asleep) * share;
                words(state).filter(|_| seconds > 0.0).map(|words| (words.to_owned(), seconds))
            });
            Interval {
                at: place as f64 * self.step,
                run: bin.run.into(),
                wait: bin.wait.into(),
                asleep: named.collect(),
                unknown: if known > 0.0 { 0.0 } else { bin.asleep.into() },
            }
        };
        let intervals = self.bins.iter().enumerate().map(interval).collect();
        Timeline { step: self.step, intervals }
    }
}

/// All states.
const STATES: [State; State::COUNT] = [
    State::Ready,
    State::Timer,
    State::Disk,
    State::PipeRead,
    State::PipeWrite,
    State::Send,
    State::Receive,
    State::Poll,
    State::PipeOrSocket,
    State::Connect,
    State::Accept,
    State::Others,
    State::Other,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn look(run: f64, state: State) -> ThreadLook {
        ThreadLook { pid: 1, run, wait: 0.0, user: 0.0, system: 0.0, state }
    }

    /// Half the time computing, then half asleep in a socket, in steps of 20 ms.
    fn halves(seconds: f64) -> Timeline {
        let mut history = History::new(0.0);
        let count = (seconds / 0.02) as u32;
        let mut before = look(0.0, State::Ready);
        for number in 1..=count {
            let now = match number <= count / 2 {
                true => look(before.run + 0.02, State::Ready),
                false => look(before.run, State::Send),
            };
            history.note(f64::from(number) * 0.02, &before, &now);
            before = now;
        }
        history.timeline()
    }

    #[test]
    fn a_command_of_any_length_has_at_least_ten_intervals_that_sum_to_it() {
        for seconds in [0.4, 1.0, 9.0, 100.0] {
            let timeline = halves(seconds);
            assert!((10..=BINS).contains(&timeline.intervals.len()), "{seconds} s");
            let sum: f64 = timeline.intervals.iter().map(Interval::seconds).sum();
            assert!((sum - seconds).abs() < 1e-3 * seconds + 1e-6, "{sum} of {seconds}");
            let (first, last) = (&timeline.intervals[0], timeline.intervals.last().unwrap());
            assert!(first.run > 0.0 && first.asleep.is_empty(), "{first:?}");
            assert!(last.run == 0.0 && last.asleep.len() == 1, "{last:?}");
        }
    }
}
