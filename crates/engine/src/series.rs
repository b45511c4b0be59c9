//! A quantity over time, in a bounded number of steps whatever the run's length.

use lastmeter_base::{Duration, Time};

/// Most steps of a series.
pub const STEPS_MAX: usize = 512;

/// A quantity's minimum and maximum in each time step, in whole units defined by its owner.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// use lastmeter_engine::Series;
/// let mut series = Series::whole_run();
/// for us in 0..10_000 {
///     series.record(Time::START + Duration::from_us(us), us % 7);
/// }
/// assert!(series.steps().count() <= 512);
/// assert_eq!(series.steps().next().unwrap().1, (0, 6));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    width: Duration,
    /// Whether steps become wider when there are too many, or the rest is left out.
    widens: bool,
    steps: Vec<Option<(u64, u64)>>,
}

impl Series {
    /// Of a run of any length: steps become twice as wide when there would be too many.
    pub fn whole_run() -> Series {
        Series { width: Duration::from_us(1), widens: true, steps: Vec::new() }
    }
    /// Only of the beginning, in steps of `width`.
    pub fn beginning(width: Duration) -> Series {
        Series { width: width.max(Duration::from_ps(1)), widens: false, steps: Vec::new() }
    }

    /// The quantity is `value` at `now`.
    #[inline]
    pub fn record(&mut self, now: Time, value: u64) {
        let mut place = (now.as_ps() / self.width.as_ps()) as usize;
        if place >= STEPS_MAX {
            if !self.widens {
                return;
            }
            while place >= STEPS_MAX {
                self.halve();
                place /= 2;
            }
        }
        if place >= self.steps.len() {
            self.steps.resize(place + 1, None);
        }
        let (least, most) = self.steps[place].get_or_insert((value, value));
        (*least, *most) = ((*least).min(value), (*most).max(value));
    }

    /// The quantity is `value` from one time to another.
    pub fn record_span(&mut self, from: Time, to: Time, value: u64) {
        self.record(to, value);
        // In steps as wide as that has made them.
        let mut at = from;
        while at < to && ((at.as_ps() / self.width.as_ps()) as usize) < STEPS_MAX {
            self.record(at, value);
            at += self.width;
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.width = self.width * 2;
        let join = |pair: &[Option<(u64, u64)>]| {
            let both = pair.iter().flatten().copied();
            both.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        };
        self.steps = self.steps.chunks(2).map(join).collect();
    }

    /// The length of a step.
    pub fn width(&self) -> Duration {
        self.width
    }
    /// The start of each non-empty step, with its minimum and maximum.
    pub fn steps(&self) -> impl Iterator<Item = (Time, (u64, u64))> + '_ {
        let starts = (0..).map(|place| Time::START + self.width * place);
        starts.zip(&self.steps).filter_map(|(at, step)| Some((at, (*step)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_series_of_the_beginning_leaves_out_the_rest() {
        let mut series = Series::beginning(Duration::from_us(1));
        (0..1000).for_each(|us| series.record(Time::START + Duration::from_us(us), us));
        let all: Vec<_> = series.steps().collect();
        assert_eq!(all.len(), STEPS_MAX);
        assert_eq!(all[511], (Time::START + Duration::from_us(511), (511, 511)));
    }

    #[test]
    fn a_span_is_recorded_in_every_step_that_it_touches() {
        let us = |us| Time::START + Duration::from_us(us);
        let mut series = Series::beginning(Duration::from_us(10));
        series.record_span(us(25), us(61), 7);
        let starts: Vec<Time> = series.steps().map(|(at, _)| at).collect();
        assert_eq!(starts, [us(20), us(30), us(40), us(50), us(60)]);
    }

    proptest! {
        #[test]
        fn minima_and_maxima_are_those_recorded(
            gaps in prop::collection::vec((0u64..10_000_000_000, 0u64..1000), 1..200),
        ) {
            let mut series = Series::whole_run();
            let mut now = Time::START;
            let mut all = Vec::new();
            for (gap, value) in gaps {
                now += Duration::from_ps(gap);
                series.record(now, value);
                all.push((now, value));
            }
            prop_assert!(series.steps().count() <= STEPS_MAX);
            for (at, (least, most)) in series.steps() {
                let within = all.iter().filter(|(t, _)| *t >= at && *t < at + series.width());
                let values: Vec<u64> = within.map(|&(_, value)| value).collect();
                prop_assert_eq!(values.iter().min(), Some(&least));
                prop_assert_eq!(values.iter().max(), Some(&most));
            }
        }
    }
}
