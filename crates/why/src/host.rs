//! A calibration as a table, beside published figures of hosts of the 1990s.

use lastmeter_live::calibrate::{Calibration, Value};
use lastmeter_live::predict::predict;
use lastmeter_live::transfer::{Placement, Setting};

/// What was published: a row per figure and host, with its source.
const PUBLISHED: &str = include_str!("../../../profiles/published.csv");
/// In that file, the one figure that is not a host's constant: throughput of a whole stream.
const STREAM: &str = "stream";

/// One published figure.
#[derive(Debug, serde::Deserialize)]
struct Published {
    figure: String,
    /// Today's counterpart; empty where this level of privilege measures none.
    constant: String,
    host: String,
    value: String,
    /// In the document's own unit.
    published: String,
    source: String,
}

/// Every constant with unit, spread and method.
pub fn table(calibration: &Calibration, width: usize) -> String {
    let host = &calibration.host;
    let mut out = format!(
        "{}, {} cores, Linux {}\nisolation: {:?}; other programs used {:.2} CPUs meanwhile\n",
        host.model, host.cores, host.kernel, host.isolation, host.others
    );
    let caches: Vec<String> =
        host.caches.iter().map(|(name, size)| format!("{name} {}", size.to_text())).collect();
    if !caches.is_empty() {
        out.push_str(&format!("caches: {}\n", caches.join(", ")));
    }
    out.push_str(&format!("\n{:<40} {:>11} {:>7}  method\n", "constant", "value", "spread"));
    let room = width.saturating_sub(62).max(16);
    for (name, constant) in &calibration.constants {
        out.push_str(&format!(
            "{name:<40} {:>11} {:>5.1} %  {}\n",
            constant.value.to_text(),
            constant.spread * 100.0,
            cut(&constant.method, room)
        ));
    }
    out.push_str("The profile describes the methods in full.\n");
    out
}

fn cut(text: &str, room: usize) -> String {
    match text.chars().count() > room {
        true => text.chars().take(room - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Today's counterpart of a published figure.
fn today(calibration: &Calibration, constant: &str) -> Option<Value> {
    if constant != STREAM {
        return calibration.constants.get(constant).map(|constant| constant.value);
    }
    let several = calibration.host.cores > 1;
    let placement = if several { Placement::OtherCore } else { Placement::SameCore };
    let setting = Setting { placement, ..Setting::PLAIN };
    predict(calibration, &setting).ok().map(|p| Value::Rate(p.goodput / 8.0))
}

/// Improvement factor of today's value: a rate that grew or a time that shrank.
fn times(today: Value, then: Value) -> Option<f64> {
    let ratio = match (today, then) {
        (Value::Time(today), Value::Time(then)) => then / today,
        (Value::Rate(today), Value::Rate(then)) => today / then,
        _ => return None,
    };
    ratio.is_finite().then_some(ratio)
}

/// The published figures with this host's beside them.
///
/// # Errors
/// When the published figures cannot be read.
pub fn beside(calibration: &Calibration) -> Result<String, String> {
    let mut out = String::from(
        "THIS HOST BESIDE THE 1990s  HARTS: 25 MHz MC68040; DEC 3000/400 and /800; HP 9000/730\n",
    );
    out.push_str(&format!(
        "{:<36} {:>11}  {:<12} {:>11} {:>9}  {}\n",
        "", "this host", "host", "then", "better", "as published, source"
    ));
    let mut reader = csv::Reader::from_reader(PUBLISHED.as_bytes());
    for row in reader.deserialize() {
        let row: Published = row.map_err(|error| format!("published.csv: {error}"))?;
        let then = Value::parse(&row.value).map_err(|error| format!("published.csv: {error}"))?;
        let now = today(calibration, &row.constant);
        let better = now.and_then(|now| times(now, then));
        out.push_str(&format!(
            "{:<36} {:>11}  {:<12} {:>11} {:>9}  {}; {}\n",
            row.figure,
            now.map_or("-".to_owned(), |now| now.to_text()),
            row.host,
            then.to_text(),
            better.map_or("-".to_owned(), |better| format!("{better:.0} x")),
            row.published,
            row.source
        ));
    }
    out.push_str(
        "- is not measured: without privileges no interrupt, bus or adapter is visible.\n\
         The stream of this host is predicted from its constants and crosses no wire.\n",
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_figure_parses_and_has_a_source() {
        let mut reader = csv::Reader::from_reader(PUBLISHED.as_bytes());
        for row in reader.deserialize() {
            let row: Published = row.unwrap();
            assert!(Value::parse(&row.value).is_ok(), "{row:?}");
            assert!(row.source.contains("-"), "{row:?}");
        }
    }
}
