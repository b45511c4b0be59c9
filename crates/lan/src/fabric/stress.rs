//! The stress load of distributed queueing: sources overload one output after another, and the last one tries to
//! starve an output.
//!
//! ```text
//! stage 1: K sources --> output 1      until period T
//! stage j: K sources --> output j      until input 1 has as much for j as for j - 1
//! stage R: 1 source  --> output R      to the end
//! ```
//!
//! Source: Kuhns et al., §8.1, Fig 19, Table 4 (D-117 to D-121).

use super::model::{Model, Options};
use lastmeter_base::{Bytes, Time};

/// The load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// M.
    pub len: Bytes,
    /// K.
    pub sources: usize,
    /// R.
    pub stages: usize,
    /// T, in periods.
    pub first: u64,
    /// Length of the run, in periods.
    pub periods: u64,
}

/// State at the end of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How many periods have passed.
    pub period: u64,
    /// The current stage of the sources.
    pub stage: usize,
    /// B(j), in bytes.
    pub output: Vec<u64>,
    /// B(1,j), in bytes.
    pub input: Vec<u64>,
    /// r(1,j), in bits per second; zero without distributed queueing.
    pub rate: Vec<u64>,
}

/// The result.
#[derive(Debug)]
pub struct Record {
    /// When each stage but the last ended, in periods.
    pub ends: Vec<u64>,
    /// One for each period.
    pub samples: Vec<Sample>,
    /// The router at the end.
    pub router: Model,
    /// For each output, bytes carried and bytes that the ideal carried when the last stage began.
    pub last_began: Vec<(u64, u64)>,
}

impl Record {
    /// The mean of a value over periods `from..to`.
    pub fn mean(&self, from: u64, to: u64, of: impl Fn(&Sample) -> u64) -> f64 {
        let within = |sample: &&Sample| (from..to).contains(&sample.period);
        let (mut sum, mut count) = (0.0, 0.0);
        for sample in self.samples.iter().filter(within) {
            sum += of(sample) as f64;
            count += 1.0;
        }
        sum / count
    }
    /// A value at the end of `period`.
    pub fn at(&self, period: u64, of: impl Fn(&Sample) -> u64) -> f64 {
        let sample = self.samples.iter().find(|sample| sample.period == period);
        sample.map_or(f64::NAN, |sample| of(sample) as f64)
    }
    /// The first period, from `from` on, at whose end a condition holds.
    pub fn first(&self, from: u64, holds: impl Fn(&Sample) -> bool) -> Option<u64> {
        let found = self.samples.iter().find(|sample| sample.period >= from && holds(sample));
        found.map(|sample| sample.period)
    }
}

/// Applies the load to a router. Panics if there are fewer ports than sources or stages.
pub fn run(options: Options, load: Load) -> Record {
    assert!(
        load.sources <= options.ports && load.stages <= options.ports,
        "there are ports for all sources and stages"
    );
    let mut router = Model::new(options);
    let gap = options.link.time_for(load.len);
    let (mut stage, mut next) = (0, Time::START);
    let (mut ends, mut samples, mut last_began) = (Vec::new(), Vec::new(), Vec::new());
    for period in 1..=load.periods {
        let end = Time::START + options.period * period;
        while next < end {
            router.advance(next);
            let sources = if stage + 1 == load.stages { 1 } else { load.sources };
            (0..sources).for_each(|source| router.offer(source, stage, load.len));
            next += gap;
        }
        router.advance(end);
        let over = match stage {
            0 => period >= load.first,
            _ if stage + 1 == load.stages => false,
            _ => router.input_backlog(0, stage) >= router.input_backlog(0, stage - 1),
        };
        if over {
            ends.push(period);
            stage += 1;
            if stage + 1 == load.stages {
                let both = |output| (router.output(output).carried, router.ideal_carried(output));
                last_began = (0..options.ports).map(both).collect();
            }
        }
        let ports = 0..options.ports;
        samples.push(Sample {
            period,
            stage: stage + 1,
            output: ports.clone().map(|output| router.backlog(output)).collect(),
            input: ports.clone().map(|output| router.input_backlog(0, output)).collect(),
            rate: ports.map(|output| router.rate(0, output).unwrap_or(0)).collect(),
        });
    }
    Record { ends, samples, router, last_began }
}

#[cfg(test)]
mod tests {
    use super::super::allocation::Rule;
    use super::*;
    use lastmeter_base::{Duration, Rate};

    /// Table 4 (D-118), with a tenth of T.
    #[test]
    fn stages_end_where_backlogs_meet_and_nothing_is_lost() {
        for rule in [Rule::Base, Rule::Responsive { backlog_min: Bytes(1000) }] {
            let options = Options {
                ports: 8,
                link: Rate::from_mbit(70),
                speed_up: (2, 1),
                period: Duration::from_us(500),
                rule: Some(rule),
                room: Bytes::from_mib(8),
            };
            let load = Load { len: Bytes(520), sources: 4, stages: 5, first: 40, periods: 400 };
            let record = run(options, load);
            for (end, right) in record.ends.iter().zip([40.0, 60.0, 70.0, 75.0]) {
                assert!((*end as f64 / right - 1.0).abs() < 0.1, "{:?}", record.ends);
            }
            assert_eq!((record.ends.len(), record.samples.len()), (4, 400));
            for output in 0..5 {
                assert_eq!(record.router.output(output).lost, 0);
            }
        }
    }
}
