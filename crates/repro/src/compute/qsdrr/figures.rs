//! Figs 16 to 18 from our runs, those that came later beside them, and what is not published varied.

use super::network::{Case, Discipline, Network, PUBLISHED, RIVALS, Shares, Tables};
use super::{Reading, Setting, Study, unsaid};
use crate::Error;
use lastmeter_ledger::plots::{Plot, Series};

/// One plot for each; with `full` also what the range is in which orderings hold.
pub(in crate::compute) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let tables = Tables::read(setting.constants, setting.seed)?;
    let reading = Reading::read(setting)?;
    let mut cases = super::cases(setting, &reading)?;
    if setting.means.full {
        cases.extend(unsaid::cases(&reading));
    }
    let study = Study::run(&tables, setting, cases)?;
    let small = reading.small;
    let mut plots = vec![
        distribution(
            &study,
            "Fig 16: what each connection gets, 200 packets",
            "The flatter, the fairer; QSDRR published near the fair share for all.",
            (&[Discipline::Qsdrr, Discipline::Red], small),
        )?,
        by_buffer(
            &study,
            "Fig 17: mean goodput by buffer",
            "Published: TDRR and QSDRR above RED below 500 packets, Blue lowest at 5000.",
            (&reading, Shares::mean),
        )?,
        by_buffer(
            &study,
            "Fig 18: standard deviation of goodput by buffer",
            "Published: 2 to 4 with many queues, Blue 6, RED 10, tail drop 12.",
            (&reading, Shares::deviation),
        )?,
    ];
    let all: Vec<Discipline> = [Discipline::Qsdrr].into_iter().chain(RIVALS).collect();
    plots.push(distribution(
        &study,
        "The set-up of Fig 16 with disciplines that came later (D-79)",
        "Mean and deviation, per cent of the fair share:",
        (&all, small),
    )?);
    if setting.means.full {
        plots.push(by_buffer(
            &study,
            "Mean goodput by buffer without the first quarter of each run",
            "§7.3 does not say whether the start counts.",
            (&reading, Shares::mean_later),
        )?);
        plots.extend(unsaid::plots(&study, &reading)?);
    }
    setting.kept.put(study);
    Ok(plots)
}

fn plot(title: &str, caption: String, x: &str, series: Vec<Series>) -> Plot {
    Plot::new(title, caption, (x, "% of the fair share"), series)
}

/// Connections from the least to the greatest.
fn distribution(
    study: &Study,
    title: &str,
    caption: &str,
    (disciplines, packets): (&[Discipline], u64),
) -> Result<Plot, Error> {
    let mut caption = caption.to_owned();
    let mut series = Vec::new();
    for &discipline in disciplines {
        let shares = study.single(discipline, packets)?;
        let (mean, deviation) = (shares.mean(), shares.deviation());
        caption += &format!(" {} {mean:.1}, {deviation:.1};", discipline.name());
        let points = shares.sorted().into_iter().zip(1..).map(|(y, x)| (f64::from(x), y)).collect();
        series.push(Series { name: discipline.name().to_owned(), points });
    }
    let caption = caption.trim_end_matches(';').to_owned() + ".";
    Ok(plot(title, caption, "connections, from the least goodput to the greatest", series))
}

/// The buffers that §7.3 draws: up to 5000.
fn by_buffer(
    study: &Study,
    title: &str,
    caption: &str,
    (reading, value): (&Reading, fn(&Shares) -> f64),
) -> Result<Plot, Error> {
    let mut series = Vec::new();
    for discipline in PUBLISHED {
        let drawn = reading.buffers.iter().filter(|&&packets| packets <= reading.large);
        let point = |&packets: &u64| -> Result<(f64, f64), Error> {
            Ok((packets as f64, value(study.single(discipline, packets)?)))
        };
        let points = drawn.map(point).collect::<Result<_, _>>()?;
        series.push(Series { name: discipline.name().to_owned(), points });
    }
    Ok(plot(title, caption.to_owned(), "buffer, packets", series))
}

/// A figure of means over something that the paper does not say: `at` gives the place and the case.
pub(super) fn means_over(
    study: &Study,
    (title, caption, x): (&str, String, &str),
    at: &[(f64, Case)],
) -> Result<Plot, Error> {
    let mut series = Vec::new();
    for discipline in PUBLISHED {
        let point = |&(x, case): &(f64, Case)| -> Result<(f64, f64), Error> {
            Ok((x, study.in_case(&Case { discipline, ..case })?.mean()))
        };
        let points = at.iter().map(point).collect::<Result<_, _>>()?;
        series.push(Series { name: discipline.name().to_owned(), points });
    }
    debug_assert!(at.iter().all(|(_, case)| case.network == Network::Single), "Fig 15");
    Ok(plot(title, caption, x, series))
}
