//! What drivers and agents say to each other, and what is refused of it.

use crate::lines;
use crate::observe::Observation;
use crate::sample::Sampled;
use crate::transfer::{Placement, STREAMS_MAX, Setting};
use lastmeter_base::Duration;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};

/// The version of the protocol.
pub const VERSION: u32 = 1;
/// The longest measured part of a transfer that an agent takes part in.
pub const DURATION_MAX: Duration = Duration::from_secs(60);
/// The most memory that the messages of a transfer take at an end.
const MEMORY_MAX: u64 = 256 << 20;
/// The most connections whose other ends are asked for.
pub(super) const PAIRS_MAX: usize = 1024;
/// The most addresses of a driver.
pub(super) const ADDRESSES_MAX: usize = 16;
/// The least number that a report may have: differences of times are rounded.
const NUMBER_MIN: f64 = -1e-6;
/// The greatest: sums of a thousand of them have room.
const NUMBER_MAX: f64 = (1u64 << 48) as f64;
/// The most members of a list or an object of a report.
const MEMBERS_MAX: usize = 1024;
/// The longest text of a report.
const TEXT_MAX: usize = 300;
/// How deep a report may nest.
const DEPTH_MAX: usize = 12;

/// What a driver asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// The driver's part of showing that both have the token.
    Hello { version: u32, nonce: String, proof: String },
    /// What time is it?
    Clock {},
    /// Be one end of a transfer, observed.
    Transfer {
        setting: Box<Setting>,
        /// The agent sends; else it receives.
        sends: bool,
        /// Its address for the data; where the driver reached it if not given.
        #[serde(default)]
        at: Option<IpAddr>,
        /// Whether to sample the CPUs, where that is allowed.
        sample: bool,
    },
    /// The transfer is over.
    Stop {},
    /// Look at the sockets whose other end is at one of these addresses.
    Watch { from: Vec<IpAddr> },
    /// Enough; report these connections: the agent's end and the driver's.
    Report { pairs: Vec<(SocketAddr, SocketAddr)> },
}

/// What an agent answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Reply {
    /// The first message of a connection.
    Challenge { version: u32, nonce: String },
    /// The agent's part of showing that both have the token; and what it is.
    Hello { proof: String, name: String, machine: String },
    /// Its monotonic clock and its wall clock, in seconds.
    Clock { at: f64, wall: f64 },
    /// Where the data of the transfer goes, and what a connection begins with.
    Listening { port: u16, key: String },
    /// It looks.
    Watching {},
    /// What it has seen.
    Seen(Box<Seen>),
    /// It refuses.
    Refused { why: String },
}

/// What was seen at one end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The connections, the process that has them, and its surroundings.
    pub observation: Observation,
    /// What the CPU time of that process went into.
    pub sampled: Option<Sampled>,
    /// Or why that is not known.
    pub unsampled: Option<String>,
    /// That the machine was busy, in words.
    pub busy: Option<String>,
}

/// Whether an agent takes part in such a transfer.
pub(super) fn check(setting: &Setting) -> Result<(), String> {
    setting.check().map_err(|error| error.to_string())?;
    if setting.duration > DURATION_MAX || setting.warm_up > DURATION_MAX {
        return Err(format!("a transfer of {}; at most {DURATION_MAX}", setting.duration));
    }
    if setting.relay.is_some() || setting.competitor || setting.placement != Placement::Free {
        return Err("relay, competitor and placement are for two ends on one machine".to_owned());
    }
    if setting.message.0.saturating_mul(setting.streams.into()) > MEMORY_MAX {
        return Err(format!("messages of {} in all; at most {MEMORY_MAX} B", setting.streams));
    }
    Ok(())
}

/// Reads a line of an agent, whose figures are then in bounds and whose texts are safe to print.
pub(super) fn reply(line: Value) -> Result<Reply, String> {
    bounded(&line, 0)?;
    let reply: Reply =
        serde_json::from_value(line).map_err(|error| lines::shown(&error.to_string()))?;
    if let Reply::Seen(seen) = &reply {
        plausible(seen)?;
    }
    Ok(reply)
}

fn bounded(value: &Value, depth: usize) -> Result<(), String> {
    let fits = depth <= DEPTH_MAX
        && match value {
            Value::Null | Value::Bool(_) => true,
            Value::Number(number) => {
                number.as_f64().is_some_and(|number| (NUMBER_MIN..=NUMBER_MAX).contains(&number))
            }
            Value::String(text) => is_safe(text),
            Value::Array(members) => members.len() <= MEMBERS_MAX,
            Value::Object(members) => {
                members.len() <= MEMBERS_MAX && members.keys().all(|key| is_safe(key))
            }
        };
    if !fits {
        return Err("a figure or a text of its report is out of bounds".to_owned());
    }
    match value {
        Value::Array(members) => members.iter().try_for_each(|one| bounded(one, depth + 1)),
        Value::Object(members) => members.values().try_for_each(|one| bounded(one, depth + 1)),
        _ => Ok(()),
    }
}

fn is_safe(text: &str) -> bool {
    text.len() <= TEXT_MAX && !text.contains(char::is_control)
}

/// Shares of a time do not exceed it.
fn plausible(seen: &Seen) -> Result<(), String> {
    let Some(w) = &seen.observation.witnesses else { return Ok(()) };
    let fits = |share: f64| share <= 1.0 + 1e-6;
    let shares = [w.run, w.wait, w.run + w.wait, w.not_attributed, w.queue_full, w.unread, w.empty];
    match shares.into_iter().all(fits) && w.looks <= 1 << 30 {
        true => Ok(()),
        false => Err("shares of its report add up to more than all".to_owned()),
    }
}

/// Any bytes as a line of a driver and of an agent: refused in printable words, or bounded.
pub(crate) fn fuzz(bytes: &[u8]) {
    let printable = |why: &str| {
        assert!(why.chars().count() <= TEXT_MAX && !why.contains(char::is_control));
    };
    match lines::parse::<Request>(bytes) {
        Err(why) => printable(&why),
        Ok(request) => {
            let line = lines::emit(&request).expect("what was short stays so");
            assert_eq!(lines::parse::<Request>(&line).as_ref(), Ok(&request));
            if let Request::Transfer { setting, .. } = request
                && check(&setting).is_ok()
            {
                assert!(setting.duration <= DURATION_MAX && setting.streams <= STREAMS_MAX);
            }
        }
    }
    match parsed::<Value>(bytes).and_then(reply) {
        Err(why) => printable(&why),
        Ok(reply) => _ = lines::emit(&reply),
    }
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    lines::parse(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn seen() -> Seen {
        Seen {
            observation: serde_json::from_value(json!({
                "elapsed": 1.0, "status": null, "signal": null, "looks": 5, "cost": 0.001,
                "processes": 1, "user": 0.1, "system": 0.2, "connections": [], "witnesses": null,
            }))
            .unwrap(),
            sampled: None,
            unsampled: None,
            busy: None,
        }
    }

    #[test]
    fn a_report_is_read_and_one_out_of_bounds_is_refused() {
        let good = serde_json::to_value(Reply::Seen(Box::new(seen()))).unwrap();
        assert!(reply(good.clone()).is_ok());
        for (place, bad) in [
            ("looks", json!(-1)),
            ("elapsed", json!(1e300)),
            ("pipeline", json!(vec![0; MEMBERS_MAX + 1])),
            ("status", json!("\u{1b}[2J")),
        ] {
            let mut line = good.clone();
            line["observation"][place] = bad;
            let why = reply(line).unwrap_err();
            assert!(why.contains("out of bounds"), "{place}: {why}");
        }
        let mut twice = seen();
        twice.observation.witnesses =
            Some(crate::observe::Witnesses { run: 0.7, wait: 0.7, ..Default::default() });
        let twice = serde_json::to_value(Reply::Seen(Box::new(twice))).unwrap();
        assert!(reply(twice).unwrap_err().contains("more than all"));
    }

    #[test]
    fn an_agent_refuses_what_would_take_too_long_or_too_much() {
        let plain = Setting { placement: Placement::Free, ..Setting::PLAIN };
        assert_eq!(check(&plain), Ok(()));
        let long = Setting { duration: Duration::from_secs(61), ..plain.clone() };
        assert!(check(&long).unwrap_err().contains("at most 60 s"), "{:?}", check(&long));
        let large =
            Setting { message: crate::transfer::MESSAGE_MAX, streams: STREAMS_MAX, ..plain };
        assert!(check(&large).unwrap_err().contains("at most"));
        assert!(check(&Setting::PLAIN).unwrap_err().contains("placement"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            fuzz(&bytes);
        }

        /// A report with one byte changed is still read or refused.
        #[test]
        fn a_damaged_report_is_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut line = lines::emit(&Reply::Seen(Box::new(seen()))).unwrap();
            let at = at.index(line.len());
            line[at] = byte;
            fuzz(&line);
        }
    }
}
