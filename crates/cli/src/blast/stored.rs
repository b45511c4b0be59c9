//! Packets with times of their own: drawn by a kind of traffic of the models, or those of a capture.

use lastmeter_base::kind::{Nested, Values};
use lastmeter_base::{Bytes, Duration, Stream};
use lastmeter_engine::site::TrafficKind;
use lastmeter_lab::document::Fault;
use lastmeter_lab::library::Library;
use lastmeter_lab::replay::{self, Slot};
use lastmeter_live::blast::traffic::{Format, Pace, Pattern, STORED_MAX, Sizes, Traffic};
use lastmeter_net::source::{self, Span};
use lastmeter_net::traffic::{self, Maker, Setting};

const KINDS: &str = "write tcplib, replay, subsessions or mpeg: of the others, blast has its own \
                     forms, like rate = \"1 Gbit/s\" with pattern = \"poisson\"";

/// Of each packet of a flow, nanoseconds since the one before it, and its size.
///
/// # Errors
/// If the kind has no such packets, or too many; or if its capture cannot be read.
pub(super) fn packets(
    kind: &Nested,
    values: &Values,
    format: Format,
    seed: u64,
    library: &dyn Library,
) -> Result<Vec<(u64, u32)>, Fault> {
    let name: String = values.given("name").unwrap_or_default();
    let mut slot = Slot::default();
    let mut open = |path: &str, bytes: bool| {
        let (records, broken) = replay::open(library.open(path)?, path, bytes)?;
        slot = broken;
        Ok(records)
    };
    let stream = Stream::new(seed, &format!("{name}: stored"));
    let mut setting = Setting { span: Span::ALWAYS, stream, capture: &mut open };
    let maker = kind.maker::<TrafficKind>().own.downcast_ref::<Maker>();
    let made = maker.map(|Maker(build)| build(&kind.values, &mut setting));
    let right = "name a pcap or pcapng capture that can be read";
    let packets: Box<dyn Iterator<Item = (Duration, Bytes)>> =
        match made.transpose().map_err(|error| Fault::new(error, right))? {
            Some(traffic::Traffic::Source(source::Pattern::Replay(packets))) => packets,
            Some(traffic::Traffic::Source(source::Pattern::Recorded(records))) => {
                Box::new(records.map(|(at, len, _)| (at, len)))
            }
            _ => return Err(Fault::new("these packets have no times of their own", KINDS)),
        };
    let most = values.given::<Duration>("duration");
    let count = values.given::<u64>("count").unwrap_or(u64::MAX);
    let (least, longest) = format.sizes();
    let (mut stored, mut last) = (Vec::new(), Duration::ZERO);
    for (at, len) in packets.take_while(|&(at, _)| most.is_none_or(|most| at < most)) {
        if stored.len() as u64 == count {
            break;
        }
        if stored.len() == STORED_MAX {
            let found = format!("there are more than {STORED_MAX} packets");
            return Err(Fault::new(found, "write a shorter duration, or a count"));
        }
        let size = u32::try_from(len.0).unwrap_or(u32::MAX).clamp(least, longest);
        stored.push((at.saturating_sub(last).as_ps() / 1000, size));
        last = at.max(last);
    }
    match slot.failure() {
        Some(error) => Err(Fault::new(error, right)),
        None if stored.is_empty() => {
            Err(Fault::new("there are no packets in this time", "write a longer duration"))
        }
        None => Ok(stored),
    }
}

/// A flow of them.
pub(super) fn traffic(stored: Vec<(u64, u32)>, values: &Values, format: Format) -> Traffic {
    let sizes = stored.iter().map(|&(_, size)| size);
    let (low, high) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    Traffic {
        size: Sizes::Between(low, high),
        pace: Pace::Stored,
        pattern: Pattern::Periodic,
        format,
        start: values.given("start").unwrap_or(Duration::ZERO),
        duration: values.given("duration"),
        count: values.given("count").or(Some(stored.len() as u64)),
        offload: values.given("offload").unwrap_or(true),
        stored,
    }
}
