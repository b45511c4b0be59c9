//! The kernel's TCP behind the emulated link of a scenario: iperf3 sends, the link's ports record every frame.
//!
//! ```text
//! iperf3 -c --> eth0 of alice --> [queue, link] --> eth0 of bob --> iperf3 -s
//!                      arrivals kept         departures kept: wait, loss      goodput
//! ```
//!
//! Rows: A-161.

use super::{Demand, Options, Report, Started, run};
use crate::world::Disk;
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_engine::Control;
use lastmeter_judge::linux::{Found, Scenario};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::run::Failure;
use lastmeter_linux::clock::WaitOptions;
use lastmeter_linux::port::{Arrived, Departure, Offload};
use lastmeter_live::site::Kind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

/// Frames at least this long carry data.
const DATA_MIN: u32 = 1000;
/// What must have left in time: late frames in a hundred, by a twentieth of the round trip, move no mean by as much as
/// is tolerated.
const DEMAND: Demand = Demand { share: 0.99, tolerance: Duration::from_ms(2) };

/// The kernel's name, such as `6.18.44`.
pub fn release() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().split('-').next().unwrap_or_default().to_owned()
}

/// Runs a scenario of whole seconds, of which `left_out` come first and do not count. `None` if the emulator did not
/// keep up, iperf3 gave nothing, or `control` ended it.
///
/// # Errors
/// What the machine refuses.
pub fn measure(
    scenario: &Scenario,
    left_out: Duration,
    lasts: Duration,
    control: &Arc<Control>,
) -> Result<Option<Found>, Failure> {
    let experiment = scenario.live();
    let file = format!("lastmeter-kernel-{}.json", std::process::id());
    let file = std::env::temp_dir().join(file);
    let whole = |time: Duration| time.as_secs_f64().round() as u64;
    let (seconds, omitted) = (whole(lasts - left_out), whole(left_out));
    let hosts = experiment.live_hosts();
    let (sender, receiver) = (&hosts[0], &hosts[1]);
    let (address, many) = (receiver.address, scenario.connections);
    let (name, shown) = (scenario.control, file.display());
    // What an earlier connection learned must not help a later one.
    let fresh = "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save;";
    let client = format!(
        "{fresh} sleep 0.5; \
         exec iperf3 -c {address} -P {many} -t {seconds} -O {omitted} -C {name} -J > {shown}"
    );
    let server = format!("{fresh} exec iperf3 -s -1");
    let shell = |host: &str, script: &str, leads| Started {
        host: Some(host.to_owned()),
        words: ["sh", "-c", script].map(str::to_owned).to_vec(),
        leads,
        silent: true,
    };
    let options = Options {
        kind: Kind::Tap(Offload::Checksum),
        attached: Vec::new(),
        manner: WaitOptions::SLEEPING,
        demand: DEMAND,
        programs: vec![shell(&receiver.name, &server, false), shell(&sender.name, &client, true)],
        // The ports then record what arrives and leaves.
        twin: true,
        flood: None,
    };
    let disk = Disk::new(None);
    let report = run(&experiment, &options, &disk, control);
    let answer = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let _ = fs::remove_file(&file);
    let (report, answer): (_, Value) = (report?, answer.unwrap_or_default());
    let kept_up = report.ledger.certificate.as_ref().is_some_and(|one| one.kept_up);
    let goodput = answer["end"]["sum_received"]["bits_per_second"].as_f64();
    let goodput = goodput.filter(|_| kept_up && !report.ledger.provenance.partial);
    Ok(goodput.and_then(|goodput| found(&experiment, &report, left_out, goodput)))
}

/// What the ports recorded, beside what iperf3 reported.
fn found(
    experiment: &Experiment,
    report: &Report,
    left_out: Duration,
    goodput: f64,
) -> Option<Found> {
    let link = &experiment.links[0].values;
    let (rate, delay) = (link.get::<Rate>("rate"), link.get::<Duration>("delay"));
    let framing = link.get::<Bytes>("framing");
    let passage = |len: u32| delay + rate.time_for(Bytes(u64::from(len) + framing.0));
    let measured = &report.measured;
    let (arrived, left) = (measured.arrivals.first()?, measured.departures.get(1)?);
    let (served, dropped, wait) = fates(arrived, left, left_out, &passage)?;
    Some(Found { goodput, served, dropped, wait })
}

/// Of the frames that arrived later than `left_out` after the first with data: how many left and how many did not,
/// and how long those that left waited, in seconds. `passage` is the time that a frame takes without waiting.
fn fates(
    arrived: &[Arrived],
    left: &[Departure],
    left_out: Duration,
    passage: &dyn Fn(u32) -> Duration,
) -> Option<(u64, u64, f64)> {
    let from = arrived.iter().find(|frame| frame.len >= DATA_MIN)?.at + left_out;
    let due: BTreeMap<u64, Time> = left.iter().map(|frame| (frame.seq, frame.due)).collect();
    // What came after the last departure may still be on the way.
    let last = *due.keys().next_back()?;
    let (mut served, mut dropped, mut waited) = (0, 0, 0.0);
    for (seq, frame) in (0..).zip(arrived).take_while(|(seq, _)| *seq <= last) {
        if frame.at < from {
            continue;
        }
        match due.get(&seq) {
            Some(due) => {
                served += 1;
                waited += due.saturating_since(frame.at + passage(frame.len)).as_secs_f64();
            }
            None => dropped += 1,
        }
    }
    (served > 0).then(|| (served, dropped, waited / served as f64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;
    use lastmeter_base::Ecn;

    #[test]
    fn a_frame_that_does_not_leave_is_lost_and_the_others_wait() {
        let at = |ms: u64| Time::START + Duration::from_ms(ms);
        let frame = |ms, len| Arrived {
            at: at(ms),
            peer: Some(0),
            len,
            flow: 0,
            ecn: Ecn::NotCapable,
            class: 0,
            hash: 0,
        };
        let departure = |seq, ms| {
            let (due, left) = (at(ms), at(ms));
            Departure { from: 0, seq, due, left, hash: 0 }
        };
        // The first with data at 100 ms: what comes before 10.1 s does not count, and the last is on its way.
        let arrived =
            [(0, 60), (100, 1514), (10_200, 1514), (10_201, 1514), (10_202, 60), (10_210, 60)];
        let arrived = arrived.map(|(ms, len)| frame(ms, len));
        let left = [(0, 25), (1, 125), (2, 10_224), (4, 10_235)];
        let left = left.map(|(seq, ms)| departure(seq, ms));
        let (passage, left_out) = (|_| Duration::from_ms(21), Duration::from_secs(10));
        let (served, dropped, wait) = fates(&arrived, &left, left_out, &passage).unwrap();
        assert_eq!((served, dropped), (2, 1));
        assert!((wait - 0.0075).abs() < 1e-9, "3 and 12 ms: {wait}");
        assert_eq!(fates(&arrived[..1], &left, left_out, &passage), None);
    }
}
