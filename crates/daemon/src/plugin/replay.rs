//! `plugin replay`: what a plugin would have decided about the packets of a capture.
//!
//! It is asked as a router asks it, about up to 64 packets at once, each with its own time of arrival. A model that
//! replays the same capture through the same module decides the same.

use super::workshop::stem;
use super::{Complaint, Report, Ticking, read};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_lab::replay;
use lastmeter_plugin::Kind;
use lastmeter_plugin::abi::BATCH_MAX;
use lastmeter_plugin::host::{Limits, MODULE_LEN_MAX};
use lastmeter_plugin::instance::{Fail, Instance};
use lastmeter_plugin::request::{Answers, Body, Policy, Request, flow};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::PathBuf;

/// The most packets whose verdicts are kept for `--json`.
const PACKETS_MAX: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Replay {
    /// The module
    module: PathBuf,
    /// A pcap or pcapng capture; packets that are not IP are left out
    capture: PathBuf,
    /// The number of the interface on which its packets arrived
    #[arg(long, default_value_t = 0)]
    interface: u16,
    /// Its configuration
    #[arg(long, default_value = "")]
    config: String,
    /// The seed of its random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn replay(arguments: &Replay) -> Result<Report, Complaint> {
    let Replay { module, capture, interface, config, seed } = arguments;
    let place = |error: &dyn std::fmt::Display| format!("{}: {error}", capture.display());
    let file = std::fs::File::open(capture).map_err(|error| place(&error))?;
    let reader = Box::new(BufReader::new(file));
    let (records, broken) = replay::open(reader, &capture.display().to_string(), true)?;
    let bytes = read(module, MODULE_LEN_MAX)?;
    let sandbox = Ticking::new(Limits { instances: 2, ..Limits::default() })?;
    let class = sandbox.host.load(&stem(module), &bytes, Some(Kind::Packet))?;
    let (name, config) = (stem(module), config.as_bytes());
    let mut instance = Instance::new(class, &name, config, Fail::Closed, *seed, Time::START)?;
    let records: Vec<(Duration, Bytes, Vec<u8>)> = records.take(PACKETS_MAX).collect();
    if let Some(failure) = broken.failure() {
        return Err(Complaint(failure));
    }
    let (mut marks, mut answers) = (BTreeMap::new(), Answers::default());
    let (mut verdicts, mut kinds) = (Vec::new(), BTreeMap::<String, u64>::new());
    for batch in records.chunks(BATCH_MAX) {
        let requests = batch.iter().map(|(at, len, bytes)| Request {
            body: Body::Packet { interface: *interface },
            flow: flow(bytes),
            arrival: Time::START + *at,
            mark: marks.get(&flow(bytes)).copied().unwrap_or(0),
            length: len.0.min(u32::MAX.into()) as u32,
            data: bytes,
        });
        let requests: Vec<Request<'_>> = requests.collect();
        let now = requests.last().map_or(Time::START, |last| last.arrival);
        instance.process(now, &requests, &mut answers);
        for (request, answer) in requests.iter().zip(&answers.answers) {
            marks.insert(request.flow, answer.mark);
            let verdict = answer.verdict.to_string();
            *kinds.entry(verdict.clone()).or_default() += 1;
            let changed = answers.data(answer).iter().map(|byte| format!("{byte:02x}"));
            verdicts.push(json!({
                "at": (request.arrival - Time::START).as_secs_f64(),
                "length": request.length,
                "verdict": verdict,
                "seen": answer.seen,
                "changed": changed.collect::<String>(),
            }));
        }
    }
    let failed = instance.last_failure().map(ToString::to_string);
    let mut text = format!("{}: {} packets\n", capture.display(), verdicts.len());
    for (verdict, count) in &kinds {
        text.push_str(&format!("{count:9} {verdict}\n"));
    }
    if let Some(why) = &failed {
        text.push_str(&format!("the plugin failed: {why}\n"));
    }
    Ok(Report { text, json: verdicts, good: failed.is_none() })
}
