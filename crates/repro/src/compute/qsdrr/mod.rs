//! Queue-state DRR beside its rivals (D-73 to D-87): what a hundred TCP connections get.
//!
//! ```text
//! single   100 hosts --10 Mbit/s--> r1 ==500 Mbit/s==> r2 --10 Mbit/s--> 100 hosts      (Fig 15)
//! hops      50 hosts --> r1 ==> r2 ==> r3 ==> r4 --> 50 hosts, 50 others through each ==>
//! mixed     50 near and 50 far hosts --> r1 ==> r2 --> 100 hosts
//! ```
//!
//! The networks are files beside the published values, in `experiments/qsdrr`, and `lastmeter run`
//! runs them too. What varies, and what constants say, goes over them as `--set` does.

mod figures;
mod network;
mod unsaid;

use super::{Computed, Setting, Value};
use crate::Error;
use lastmeter_base::{Bytes, Duration};
use network::{Case, Discipline, Network, PUBLISHED, RIVALS, Shares, Tables, Unsaid};

pub(super) use figures::plots;

const NAME: &str = "qsdrr";

/// Runs and what came of them.
#[derive(Default)]
struct Study {
    found: Vec<(Case, Shares)>,
}

impl Study {
    /// Runs those that have not been run for the same job, for its figures or for its rows.
    fn run(tables: &Tables, setting: &Setting<'_>, cases: Vec<Case>) -> Result<Study, Error> {
        let mut study: Study = setting.kept.take();
        let mut missing: Vec<Case> = Vec::new();
        for case in cases {
            if study.get(&case).is_none() && !missing.contains(&case) {
                missing.push(case);
            }
        }
        let shares = tables.run_all(&missing, setting.means)?;
        study.found.extend(missing.into_iter().zip(shares));
        Ok(study)
    }
    fn get(&self, case: &Case) -> Option<&Shares> {
        self.found.iter().find(|(found, _)| found == case).map(|(_, shares)| shares)
    }
    /// Of those in which everything is as in the network's file, the longest.
    fn of(&self, network: Network, discipline: Discipline, packets: u64) -> Result<&Shares, Error> {
        let is = |case: &Case| {
            (case.network, case.discipline, case.packets) == (network, discipline, packets)
                && case.unsaid == Unsaid::default()
        };
        let found = self.found.iter().filter(|(case, _)| is(case));
        found.max_by_key(|(case, _)| case.length).map(|(_, shares)| shares).ok_or_else(|| {
            Error::Computation {
                name: NAME,
                message: format!("{} with {packets} packets was not run", discipline.name()),
            }
        })
    }
    /// Of exactly this one.
    fn in_case(&self, case: &Case) -> Result<&Shares, Error> {
        self.get(case).ok_or_else(|| Error::Computation {
            name: NAME,
            message: format!("{case:?} was not run"),
        })
    }
    fn single(&self, discipline: Discipline, packets: u64) -> Result<&Shares, Error> {
        self.of(Network::Single, discipline, packets)
    }
}

/// Rows that are read off Figs 16 to 18.
const FIGURES: &[&str] = &["D-73", "D-84", "D-85", "D-86"];

/// What the rows that are asked for need, some of it more than once.
fn cases(setting: &Setting<'_>, reading: &Reading) -> Result<Vec<Case>, Error> {
    let wants = |ids: &[&str]| ids.iter().any(|id| setting.wants(id));
    let mut cases = Vec::new();
    let mut add = |network, disciplines: &[Discipline], buffers: &[u64]| {
        for &packets in buffers {
            let length = reading.length(network, packets);
            cases.extend(disciplines.iter().map(|&discipline| Case {
                network,
                discipline,
                packets,
                length,
                unsaid: Unsaid::default(),
            }));
        }
    };
    let small = reading.small;
    let figures = wants(FIGURES);
    if figures {
        add(Network::Single, &PUBLISHED, &reading.buffers);
        let small: Vec<u64> = reading.small_buffers().collect();
        add(Network::Single, &[Discipline::Red1993], &small);
    }
    if wants(&["D-79"]) {
        add(Network::Single, &RIVALS, &[small]);
        add(Network::Single, &[Discipline::Qsdrr], &[small]);
    }
    if wants(&["D-73", "D-87"]) {
        add(Network::Hops, &PAPERS_MAIN, &[small]);
        add(Network::Mixed, &PAPERS_MAIN, &[small]);
    }
    if wants(&["D-87"]) {
        let own = Discipline::Hashed(setting.constants.get("queues")?);
        add(Network::Single, &[own, Discipline::Qsdrr], &[small]);
    }
    Ok(cases)
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let tables = Tables::read(setting.constants, setting.seed)?;
    let reading = Reading::read(setting)?;
    let wants = |ids: &[&str]| ids.iter().any(|id| setting.wants(id));
    let small = reading.small;
    let figures = wants(FIGURES);
    let cases = cases(setting, &reading)?;
    let study = Study::run(&tables, setting, cases)?;
    let mut rows = given(&tables, setting)?;
    if wants(&["D-84"]) {
        rows.extend(figure_16(&study, &reading)?);
    }
    if figures {
        rows.extend(figure_17(&study, &reading)?);
    }
    if wants(&["D-86"]) {
        rows.extend(figure_18(&study, &reading)?);
    }
    if wants(&["D-79"]) {
        rows.extend(rivals(&study, &reading)?);
    }
    if wants(&["D-73", "D-87"]) {
        rows.extend(others(&study, small)?);
    }
    if wants(&["D-87"]) {
        let own = Discipline::Hashed(setting.constants.get("queues")?);
        let (shared, each) =
            (study.single(own, small)?.mean(), study.single(Discipline::Qsdrr, small)?.mean());
        let holds = (shared - each).abs() <= reading.comparable;
        rows.push(Computed::new("D-87", "as good with shared queues", Value::Holds(holds)));
    }
    rows.retain(|row| setting.wants(row.id));
    setting.kept.put(study);
    Ok(rows)
}

/// QSDRR and the two that §7.3 names with several hops and mixed traffic.
const PAPERS_MAIN: [Discipline; 3] = [Discipline::Qsdrr, Discipline::Red, Discipline::Blue];

/// What is run, and how words of §7.3 are read; all in per cent of the fair share.
struct Reading {
    buffers: Vec<u64>,
    /// Of Fig 16, below 500.
    small: u64,
    /// 5000.
    large: u64,
    length: Duration,
    length_small: Duration,
    length_others: Duration,
    /// Where what is not published varies.
    length_swept: Duration,
    significant: f64,
    comparable: f64,
    below: u64,
}

impl Reading {
    fn read(setting: &Setting<'_>) -> Result<Reading, Error> {
        let constants = setting.constants;
        let number = |name: &str| constants.get::<u64>(name).map(|value| value as f64);
        let full = setting.means.full;
        Ok(Reading {
            buffers: constants.get(if full { "buffers_full" } else { "buffers" })?,
            small: constants.get("buffer_small")?,
            large: constants.get("buffer_large")?,
            length: constants.get(if full { "observation" } else { "observation_short" })?,
            length_small: constants.get(if full { "observation" } else { "observation_small" })?,
            length_others: constants.get(if full {
                "observation"
            } else {
                "observation_others"
            })?,
            length_swept: constants.get("observation_swept")?,
            significant: number("significant")?,
            comparable: number("comparable")?,
            below: constants.get("buffer_below")?,
        })
    }
}

impl Reading {
    /// How long a run is. A large buffer takes longest to settle.
    fn length(&self, network: Network, packets: u64) -> Duration {
        match network {
            Network::Hops | Network::Mixed => self.length_others,
            Network::Single if packets < self.large => self.length_small,
            Network::Single => self.length,
        }
    }
    fn small_buffers(&self) -> impl Iterator<Item = u64> + '_ {
        self.buffers.iter().copied().filter(|&packets| packets < self.below)
    }
}

/// D-80 to D-83: what goes in, and what follows from it without a run.
fn given(tables: &Tables, setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let number =
        |id, item: &str, value: f64, unit| Computed::new(id, item, Value::Number(value, unit));
    let buffer = |id, item: &str, packets: u64| {
        Computed::new(id, item, tables.link.time_for(Bytes(packets * tables.packet.0)))
    };
    let offered = tables.connections * tables.access.as_bits();
    let mut rows = vec![
        number("D-80", "N, TCP sources", tables.connections as f64, "sources"),
        Computed::new("D-80", "M, packet", tables.packet),
        Computed::new("D-80", "L_R, inter-router link", tables.link),
        Computed::new("D-80", "L_A, access link", tables.access),
        Computed::new("D-80", "T, observation", setting.constants.get::<Duration>("observation")?),
        number("D-81", "max_p", 1.0 / tables.red.drop_one_in as f64, "1"),
        number("D-81", "w_q", 1.0 / tables.red.mean_over as f64, "1"),
        number("D-81", "min_th", tables.red.min as f64, "% of buffer"),
        number("D-82", "overload", offered as f64 / tables.link.as_bits() as f64, "1"),
    ];
    rows.push(buffer("D-83", "buffer of 100 packets", 100));
    rows.push(buffer("D-83", "buffer of 5000 packets", 5000));
    rows.push(buffer("D-83", "buffer of 20,000 packets", 20_000));
    Ok(rows)
}

/// D-84: each connection's goodput with the small buffer.
fn figure_16(study: &Study, reading: &Reading) -> Result<Vec<Computed>, Error> {
    let qsdrr = study.single(Discipline::Qsdrr, reading.small)?;
    let red = study.single(Discipline::Red, reading.small)?;
    let percent = |item: &str, value| Computed::new("D-84", item, Value::Number(value, "%"));
    Ok(vec![
        percent("QSDRR: farthest connection from the mean", qsdrr.farthest()),
        percent("QSDRR: mean goodput", qsdrr.mean()),
        holds("D-84", "RED more variable than QSDRR", red.deviation() > qsdrr.deviation()),
    ])
}

/// D-73, D-85: mean goodput by buffer.
fn figure_17(study: &Study, reading: &Reading) -> Result<Vec<Computed>, Error> {
    let mut rows = Vec::new();
    let mean = |discipline, packets| study.single(discipline, packets).map(Shares::mean);
    let mut at_small = |item: &str, is: &dyn Fn(u64) -> Result<bool, Error>| {
        let all: Result<Vec<bool>, Error> = reading.small_buffers().map(is).collect();
        all.map(|all| rows.push(holds("D-85", item, all.into_iter().all(|is| is))))
    };
    for red in [Discipline::Red, Discipline::Red1993] {
        let gain = |above, packets| Ok(mean(above, packets)? - mean(red, packets)?);
        for above in [Discipline::Tdrr, Discipline::Qsdrr] {
            let item = format!("{} above {} under 500 packets", above.name(), red.name());
            at_small(&item, &|packets| Ok(gain(above, packets)? > reading.significant))?;
        }
        let item = format!("DRR comparable to {} under 500 packets", red.name());
        at_small(&item, &|packets| {
            gain(Discipline::Drr, packets).map(|gain: f64| gain.abs() < reading.comparable)
        })?;
    }
    for above in PUBLISHED.into_iter().filter(|&discipline| discipline != Discipline::Blue) {
        let item = format!("{} above Blue at 5000 packets", above.name());
        let gain = mean(above, reading.large)? - mean(Discipline::Blue, reading.large)?;
        rows.push(holds("D-85", &item, gain > reading.significant));
    }
    // Goal 2: of disciplines whose buffer is changed, goodput changes least.
    let change = |discipline| -> Result<f64, Error> {
        Ok((mean(discipline, reading.large)? - mean(discipline, reading.small)?).abs())
    };
    let own = change(Discipline::Qsdrr)?;
    let least = own < change(Discipline::Red)? && own < change(Discipline::Blue)?;
    rows.push(holds("D-73", "goodput depends less on the buffer than RED's and Blue's", least));
    let own = mean(Discipline::Qsdrr, reading.small)?;
    let high =
        own > mean(Discipline::Red, reading.small)? && own > mean(Discipline::Blue, reading.small)?;
    rows.push(holds("D-73", "higher goodput than RED and Blue with a small buffer", high));
    Ok(rows)
}

/// D-86: standard deviations with the large buffer, and their order.
fn figure_18(study: &Study, reading: &Reading) -> Result<Vec<Computed>, Error> {
    let deviation = |discipline| study.single(discipline, reading.large).map(Shares::deviation);
    let [qsdrr, drr, tdrr, red, blue, tail] = PUBLISHED.map(deviation);
    let (qsdrr, drr, tdrr) = (qsdrr?, drr?, tdrr?);
    let (red, blue, tail) = (red?, blue?, tail?);
    let number = |item: &str, value, unit| Computed::new("D-86", item, Value::Number(value, unit));
    let multi = (qsdrr.powi(2) + drr.powi(2)) / 2.0;
    let several = [qsdrr, drr, tdrr];
    let least = several.iter().copied().fold(f64::MAX, f64::min);
    let most = several.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        number("DRR: deviation over fair share", drr / 100.0, "1"),
        number("QSDRR: deviation over fair share", qsdrr / 100.0, "1"),
        number("multi-queue policies: least deviation", least, "%"),
        number("multi-queue policies: greatest deviation", most, "%"),
        number("Blue: deviation", blue, "%"),
        number("RED: deviation", red, "%"),
        number("Tail Drop: deviation", tail, "%"),
        number("variance of RED over that of QSDRR and DRR", red.powi(2) / multi, "times"),
        number("variance of Blue over that of QSDRR and DRR", blue.powi(2) / multi, "times"),
        holds("D-86", "TDRR above DRR and QSDRR", tdrr > drr && tdrr > qsdrr),
        holds("D-86", "TDRR below Blue, RED and Tail Drop", tdrr < blue.min(red).min(tail)),
        holds(
            "D-86",
            "multi-queue < Blue < RED < Tail Drop",
            most < blue && blue < red && red < tail,
        ),
    ])
}

/// D-79: no discipline that came later is better in both with the small buffer.
fn rivals(study: &Study, reading: &Reading) -> Result<Vec<Computed>, Error> {
    let own = study.single(Discipline::Qsdrr, reading.small)?;
    let rows = RIVALS.into_iter().map(|rival| {
        let theirs = study.single(rival, reading.small)?;
        let better = theirs.mean() > own.mean() && theirs.deviation() < own.deviation();
        Ok(holds("D-79", &format!("{} not better in both", rival.name()), !better))
    });
    rows.collect()
}

/// D-73, D-87: several bottlenecks, several round-trip times.
fn others(study: &Study, packets: u64) -> Result<Vec<Computed>, Error> {
    let mut rows = Vec::new();
    for (network, words) in [(Network::Hops, "three hops"), (Network::Mixed, "mixed")] {
        let [own, red, blue] = PAPERS_MAIN.map(|discipline| study.of(network, discipline, packets));
        let own = own?;
        let mut long = true;
        for (name, theirs) in [("RED", red?), ("Blue", blue?)] {
            let more = own.mean() > theirs.mean();
            let evener = own.deviation() < theirs.deviation();
            rows.push(holds("D-87", &format!("{words}: more goodput than {name}"), more));
            rows.push(holds("D-87", &format!("{words}: lower variance than {name}"), evener));
            let share = own.mean_first() > theirs.mean_first();
            rows.push(holds(
                "D-87",
                &format!("{words}: long paths get more than with {name}"),
                share,
            ));
            long &= share && evener;
        }
        if network == Network::Mixed {
            rows.push(holds("D-73", "fairer than RED and Blue to connections that differ", long));
        }
    }
    Ok(rows)
}

fn holds(id: &'static str, item: &str, holds: bool) -> Computed {
    Computed::new(id, item, Value::Holds(holds))
}
