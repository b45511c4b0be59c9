//! Distributed queueing as seen in its own cells: captures of backlog cells, and the figures drawn from a capture
//! (D-122, D-124, D-125).
//!
//! ```text
//! ports --cells--> [ capture ] --> pcap file --> [ replay ] --> backlogs, rates of every port --> figures
//! ```
//!
//! A capture is a pcap file of SunATM records on [`VCI_BACKLOGS`], which Wireshark reads.

use crate::compute::fabric::{figures, table_4};
use crate::{Error, Shelf};
use lastmeter_base::{Bytes, Time};
use lastmeter_lan::fabric::allocation::Allocation;
use lastmeter_lan::fabric::model::Options;
use lastmeter_lan::fabric::prototype::Replay;
use lastmeter_lan::fabric::stress::{Load, Sample};
use lastmeter_ledger::plots::Plot;
use lastmeter_wire::atm::capture::{Sunatm, Traffic};
use lastmeter_wire::atm::{Circuit, PAYLOAD_LEN};
use lastmeter_wire::capture::{LinkType, Reader, Record, Writer};
pub use lastmeter_wire::control::dq::{Backlogs, VCI_BACKLOGS};

/// A cell's payload.
pub type Cell = [u8; PAYLOAD_LEN];

/// Table 4: the router and its stress load (D-118).
///
/// # Errors
/// The bundled experiment is wrong.
pub fn table() -> Result<(Options, Load), Error> {
    table_4(&Shelf::builtin().constants("dq-stress")?, false)
}

/// Cells as a capture, each with its arrival time (D-124).
///
/// # Errors
/// Never in memory; otherwise the format's message.
pub fn capture(cells: &[(Time, Cell)]) -> Result<Vec<u8>, String> {
    let circuit = Circuit { vpi: 0, vci: VCI_BACKLOGS };
    let header = Sunatm { sent: false, traffic: Traffic::Unknown, circuit };
    let header = header.emit().map_err(|error| error.to_string())?;
    let snap = Bytes((header.len() + PAYLOAD_LEN) as u64);
    let failed = |error: lastmeter_wire::capture::CaptureError| error.to_string();
    let mut writer = Writer::pcap(Vec::new(), LinkType::SUNATM, snap).map_err(failed)?;
    for (at, cell) in cells {
        let record = [&header[..], cell].concat();
        writer.write(*at, 0, Bytes(record.len() as u64), &record).map_err(failed)?;
    }
    writer.finish().map_err(failed)
}

/// The backlog cells of a capture; other cells are skipped.
///
/// ```
/// use lastmeter_base::Time;
/// use lastmeter_repro::dq::{Backlogs, capture, read};
/// let told = Backlogs { port: 1, sequence: 0, output: 520, inputs: [0; 8] };
/// let file = capture(&[(Time::START, told.emit())])?;
/// assert_eq!(read(&file)?, [told]);
/// assert!(read(b"no capture").is_err());
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// It is not a SunATM capture, it is truncated, or a cell on the circuit carries no backlogs.
pub fn read(file: &[u8]) -> Result<Vec<Backlogs>, String> {
    let mut reader = Reader::open(file).map_err(|error| error.to_string())?;
    if reader.link_type() != LinkType::SUNATM {
        return Err("this is a capture of another link type than SunATM".to_owned());
    }
    let (mut cells, mut record) = (Vec::new(), Record::default());
    while reader.read(&mut record).map_err(|error| error.to_string())? {
        let number = reader.records();
        let wrong = |error: lastmeter_wire::Error| format!("record {number}: {error}");
        let (header, payload) = Sunatm::parse(&record.data).map_err(wrong)?;
        if header.circuit.vci != VCI_BACKLOGS {
            continue;
        }
        let payload = payload.first_chunk::<PAYLOAD_LEN>();
        let payload = payload.ok_or(format!("record {number}: a cell has 48 bytes of payload"))?;
        cells.push(Backlogs::parse(payload).map_err(wrong)?);
    }
    Ok(cells)
}

/// The samples at the end of each period, with rates recomputed from the cells. The stage follows from the load's
/// rule, as in the document's visualiser.
pub fn samples(cells: &[Backlogs], options: Options, load: Load) -> Vec<Sample> {
    let Some(rule) = options.rule else { return Vec::new() };
    let allocation = Allocation { rule, ports: options.ports, capacity: options.capacity() };
    let mut replay = Replay::new(allocation);
    let (mut stage, mut samples) = (1, Vec::new());
    for period in cells.iter().filter_map(|cell| replay.cell(cell)) {
        let number = period.number + 1;
        let input = &period.inputs[0];
        let over = match stage {
            1 => number >= load.first,
            _ if stage == load.stages => false,
            _ => input[stage - 1] >= input[stage - 2],
        };
        samples.push(Sample {
            period: number,
            stage,
            output: period.output.clone(),
            input: input.clone(),
            rate: period.rates[0].clone(),
        });
        stage += usize::from(over);
    }
    samples
}

/// Figs 19 to 21 of a capture.
pub fn plots(samples: &[Sample], load: Load) -> Vec<Plot> {
    figures(samples, load)
}

/// Published values of the stress load beside those of samples.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Reading {
    /// Its name.
    pub item: &'static str,
    /// In the document's simulation (§8.2).
    pub published: f64,
    /// Here.
    pub measured: f64,
    /// The unit of both.
    pub unit: &'static str,
}

/// Ends of stages, slopes and rates.
pub fn readings(samples: &[Sample], options: Options, load: Load) -> Vec<Reading> {
    let ends: Vec<u64> =
        samples.windows(2).filter(|s| s[1].stage > s[0].stage).map(|s| s[0].period).collect();
    let end = |stage: usize| ends.get(stage - 1).map_or(f64::NAN, |&end| end as f64);
    let within = |from: u64, to: u64| {
        samples.iter().filter(move |sample| (from..to).contains(&sample.period))
    };
    let mean = |from: u64, to: u64, of: &dyn Fn(&Sample) -> f64| {
        let values: Vec<f64> = within(from, to).map(of).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    let slope = |of: &dyn Fn(&Sample) -> u64| {
        let mut loaded = within(10, load.first + 1);
        let (first, last) = (loaded.next(), loaded.next_back());
        first.zip(last).map_or(f64::NAN, |(first, last)| {
            let seconds = (options.period * (last.period - first.period)).as_secs_f64();
            (of(last) as f64 - of(first) as f64) * 8.0 / seconds / 1e6
        })
    };
    let one = |item, published, measured, unit| Reading { item, published, measured, unit };
    let last = end(load.stages - 1);
    let after = if last.is_finite() { last as u64 + 20 } else { u64::MAX - 60 };
    vec![
        one("end of stage 1", 400.0, end(1), "periods"),
        one("end of stage 2", 600.0, end(2), "periods"),
        one("end of stage 3", 700.0, end(3), "periods"),
        one("end of stage 4", 750.0, end(4), "periods"),
        one("B(1) grows by", 70.0, slope(&|sample| sample.output[0]), "Mbit/s"),
        one("B(1,1) grows by", 35.0, slope(&|sample| sample.input[0]), "Mbit/s"),
        one("r(1,1) in stage 1", 35.0, mean(10, load.first, &|s| s.rate[0] as f64 / 1e6), "Mbit/s"),
        one("r(1,8), idle", 15.0, mean(50, load.first, &|s| s.rate[7] as f64 / 1e6), "Mbit/s"),
        one(
            "r(1,5) at the end",
            70.0,
            mean(after, after + 50, &|s| s.rate[4] as f64 / 1e6),
            "Mbit/s",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_lan::fabric::prototype::{Port, Sent};

    /// The stress load on eight ports that only exchange cells, in virtual time: their cells show what the
    /// document's figures show.
    #[test]
    fn the_figures_can_be_drawn_from_captured_cells_alone() {
        let (options, load) = table().expect("it is bundled");
        let new = |number| Port::new(options, number).expect("eight ports");
        let mut ports: Vec<Port> = (0..options.ports).map(new).collect();
        let gap = options.link.time_for(load.len);
        let (mut stage, mut next, mut cells) = (0, Time::START, Vec::new());
        for period in 1..=1000 {
            for tenth in 1..=10_u64 {
                let at = Time::START + options.period * (period - 1) + options.period * tenth / 10;
                while next < at {
                    let sources = if stage + 1 == load.stages { 1 } else { load.sources };
                    (0..sources).for_each(|source| ports[source].offer(next, stage, load.len));
                    next += gap;
                }
                let mut sent = Vec::new();
                ports.iter_mut().for_each(|port| port.advance(at, &mut sent));
                for sent in sent {
                    match sent {
                        Sent::Packet { output, len } => ports[output].arrive(at, len),
                        Sent::Cell(cell) => {
                            ports.iter_mut().for_each(|port| port.hear(&cell));
                            cells.push((at, cell));
                        }
                    }
                }
            }
            stage += usize::from(match stage {
                0 => period >= load.first,
                _ if stage + 1 == load.stages => false,
                _ => ports[0].waiting(stage) >= ports[0].waiting(stage - 1),
            });
        }
        let read = read(&capture(&cells).expect("memory holds it")).expect("it was written here");
        assert_eq!(read.len(), 8 * 1000);
        for reading in readings(&samples(&read, options, load), options, load) {
            let Reading { item, published, measured, .. } = reading;
            let near = if item.contains("idle") { 0.15 } else { 0.1 };
            assert!((measured / published - 1.0).abs() < near, "{item}: {measured}");
        }
    }
}
