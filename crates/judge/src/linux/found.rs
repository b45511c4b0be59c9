//! What a run gave, here or with Linux, and how Linux's runs are kept.

use super::CLASS;
use crate::interval::Interval;
use crate::kept;
use lastmeter_base::Duration;
use lastmeter_engine::Row;
use lastmeter_lab::experiment::Experiment;
use lastmeter_repro::Error;
use std::collections::BTreeMap;

/// What a run gave after its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Bits that applications got, in a second.
    pub goodput: f64,
    /// Packets that the link sent, and that its queue dropped.
    pub served: u64,
    /// See `served`.
    pub dropped: u64,
    /// Seconds that a packet waited in the queue, in the mean.
    pub wait: f64,
}

/// What is compared: its name, its unit, its value of a run, and by what share it may be off.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) of: fn(&Found) -> f64,
    pub(super) tolerance: f64,
}

pub(super) const METRICS: [Metric; 3] = [
    Metric { name: "goodput", unit: "Mbit/s", of: |run| 1e-6 * run.goodput, tolerance: 0.05 },
    Metric { name: "wait", unit: "ms", of: |run| 1e3 * run.wait, tolerance: 0.10 },
    Metric { name: "loss", unit: "%", of: Found::loss, tolerance: 0.20 },
];

impl Found {
    /// Per cent of the packets.
    fn loss(&self) -> f64 {
        100.0 * self.dropped as f64 / (self.dropped + self.served) as f64
    }

    /// Of a run here.
    pub(super) fn ours(
        experiment: &Experiment,
        seed: u64,
        left_out: Duration,
    ) -> Result<Found, Error> {
        let run = Interval::run(experiment, seed, left_out)?;
        let ends = &experiment.links[0].between;
        let name = format!("{}->{}", ends[0].name, ends[1].name);
        let stage = format!("{name} transmit");
        let named =
            |wanted: &str| {
                run.to.elements.iter().position(|element| element.name == wanted).ok_or_else(|| {
                    Error::file(&experiment.title, 1, format!("no element `{wanted}`"))
                })
            };
        let (link, sink) = (named(&name)?, named(&format!("{} receives {CLASS}", ends[1].name))?);
        let of = |of: fn(&Row) -> f64| run.at(CLASS, &stage, of);
        Ok(Found {
            goodput: 8.0 * run.counted(sink, "consumed") as f64 / run.seconds(),
            served: run.counted(link, "served"),
            dropped: run.counted(link, "refused") + run.counted(link, "dropped"),
            wait: of(|row| row.wait.sum() as f64 * 1e-12) / of(|row| row.passed.packets as f64),
        })
    }
}

/// The top of a file that holds what Linux gave.
pub const HEADER: &str = "\
# What Linux's TCP gave behind an emulated link: measurements, not published values.
# By `lastmeter repro linux --measure FILE`: iperf3 in namespaces, path.toml's link between them.
scenario;run;kernel;goodput in bit/s;served;dropped;wait in s
";

/// A run of Linux: the scenario's name and its number, and what it gave.
pub(super) type Kept = BTreeMap<(String, u64), Found>;

/// One line of the file.
pub fn line(scenario: &str, run: u64, kernel: &str, found: &Found) -> String {
    let Found { goodput, served, dropped, wait } = found;
    format!("{scenario};{run};{kernel};{goodput:.0};{served};{dropped};{wait:.9}\n")
}

/// Reads the file.
pub(super) fn kept(text: &str, file: &str) -> Result<Kept, Error> {
    kept::read(text, file, "Linux", run)
}

fn run(line: &str) -> Option<((String, u64), Found)> {
    let [scenario, run, _kernel, goodput, served, dropped, wait] =
        line.split(';').collect::<Vec<_>>().try_into().ok()?;
    let found = Found {
        goodput: goodput.parse().ok()?,
        served: served.parse().ok()?,
        dropped: dropped.parse().ok()?,
        wait: wait.parse().ok()?,
    };
    let sane = [found.goodput, found.wait].iter().all(|value| value.is_finite() && *value >= 0.0);
    sane.then_some(((scenario.to_owned(), run.parse().ok()?), found))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let found = Found { goodput: 9.25e6, served: 90, dropped: 10, wait: 0.125 };
        let text = format!("{HEADER}{}", line("a, b 1/2", 3, "6.18", &found));
        let read = kept(&text, "here").unwrap();
        assert_eq!(read[&("a, b 1/2".to_owned(), 3)], found);
        assert_eq!(METRICS.map(|metric| (metric.of)(&found)), [9.25, 125.0, 10.0]);
    }

    #[test]
    fn a_line_that_is_no_run_says_where_it_is() {
        for wrong in ["nothing", "a;1;6.18;NaN;1;1;0.1", "a;1;6.18;1;-1;1;0.1", "a;1;6.18;1;1;1"] {
            let error = kept(&format!("{HEADER}{wrong}\n"), "here").unwrap_err().to_string();
            assert!(error.contains("here") && error.contains(wrong), "{error}");
        }
    }
}
