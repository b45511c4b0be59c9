//! Partition: windows of time in which nothing passes.

use super::{Judge, TOWARD, Verdict, filter};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Duration, Stream, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};

const PAGE: &Page = &Page {
    name: "partition",
    family: Family::Node,
    what: "Loses every packet that arrives within windows of time.",
    ports: "any in --> (in a window?) --> link towards the destination",
    params: &[
        Param::required("windows", ParamKind::Windows)
            .is("start and end of each window; the end is not included"),
        Param::optional("every", ParamKind::Time, "once")
            .is("period after which the windows repeat"),
        TOWARD,
    ],
    counters: &[("passed", "packets sent on"), ("cut off", "packets lost")],
    drops: &[("cut off", "packets that arrived within a window")],
    example: one_way! {
        "100 ms", "alice" [
            "wan" = r#"partition = { windows = [["20 ms", "25 ms"], ["60 ms", "61 ms"]] }"#,
        ] "bob",
        [r#"rate = "1 Gbit/s""#],
        "transfer" [r#"constant = { rate = "10 Mbit/s", size = "1500 B" }"#]
    },
    ..Page::at(here!())
};

/// Loses packets that arrive within windows.
#[derive(Clone, Debug)]
pub struct Partition {
    /// In order, with time between them.
    windows: Vec<(Duration, Duration)>,
    every: Option<Duration>,
}

impl Partition {
    /// Lost from the first to the second time of each window, the second not included; all windows
    /// repeat after `every`.
    ///
    /// # Errors
    /// If they last longer than `every`.
    pub fn new(
        mut windows: Vec<(Duration, Duration)>,
        every: Option<Duration>,
    ) -> Result<Partition, String> {
        windows.retain(|(from, to)| from < to);
        windows.sort_unstable();
        windows.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            if touches {
                last.1 = last.1.max(next.1);
            }
            touches
        });
        let end = windows.last().map_or(Duration::ZERO, |window| window.1);
        match every.filter(|&every| every < end || every.is_zero()) {
            Some(every) => Err(format!("the windows end at {end}, after their period of {every}")),
            None => Ok(Partition { windows, every }),
        }
    }

    /// Whether nothing passes at `now`.
    pub fn is_cut(&self, now: Time) -> bool {
        let since = match self.every {
            Some(every) => Duration::from_ps(now.as_ps() % every.as_ps()),
            None => now.since_start(),
        };
        let begun = self.windows.partition_point(|&(from, _)| from <= since);
        begun > 0 && since < self.windows[begun - 1].1
    }
}

impl Judge for Partition {
    const HIT: &'static str = "cut off";
    fn judge(&mut self, now: Time, _random: &mut Stream) -> Verdict {
        match self.is_cut(now) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let partition = Partition::new(values.get("windows"), values.given("every"))?;
    filter(PAGE, values, site, partition)
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::check::Trial;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_passes_within_a_window_and_all_outside() {
        let ms = Duration::from_ms;
        let partition = Partition::new(vec![(ms(30), ms(40)), (ms(10), ms(20))], None).unwrap();
        let trial = Trial { packets: 100, gap: ms(1), ..Trial::USUAL };
        let (_, arrivals) = trial.arrivals(|stage, _| Box::new(Filter::new(partition, stage)));
        let seqs: Vec<u64> = arrivals.iter().map(|arrival| arrival.seq).collect();
        assert_eq!(seqs, (0..10).chain(20..30).chain(40..100).collect::<Vec<u64>>());
    }

    #[test]
    fn windows_longer_than_what_repeats_them_are_refused() {
        let us = Duration::from_us;
        let error = Partition::new(vec![(us(1), us(9))], Some(us(5))).unwrap_err();
        assert_eq!(error, "the windows end at 9 us, after their period of 5 us");
    }

    proptest! {
        #[test]
        fn it_is_cut_exactly_where_some_window_says_so(
            windows in prop::collection::vec((0u64..50, 0u64..50), 0..8),
            every in prop::option::of(50u64..80), now in 0u64..300,
        ) {
            let ps = Duration::from_ps;
            let given = windows.iter().map(|&(from, to)| (ps(from), ps(to))).collect();
            let partition = Partition::new(given, every.map(ps)).unwrap();
            let since = every.map_or(now, |every| now % every);
            let cut = windows.iter().any(|&(from, to)| from <= since && since < to);
            prop_assert_eq!(partition.is_cut(Time::from_ps(now)), cut);
        }
    }
}
