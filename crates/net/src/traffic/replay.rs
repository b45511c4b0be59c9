//! Replay: the packets of a capture, at their recorded times.

use super::{Maker, Setting, Traffic, packets};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{here, one_way};

const PAGE: &Page = &Page {
    name: "replay",
    family: Family::Traffic,
    what: "The packets of a pcap or pcapng capture, with their own times and sizes.",
    ports: "(capture) --> out",
    params: &[
        Param::required("capture", ParamKind::Text)
            .is("the capture file, relative to the experiment file"),
        Param::or("bytes", ParamKind::Flag, "false").is(
            "whether packets carry the captured bytes, for a plugin: then only IP packets are \
             sent, without the header of their link",
        ),
    ],
    source: "draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng",
    counters: &[("sent", "packets made")],
    example: one_way! {
        "1 s", "alice" [] "bob",
        [r#"rate = "100 Mbit/s""#],
        "recorded" [r#"replay = { capture = "transfer.pcapng" }"#]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let bytes = values.get("bytes");
    let records = (setting.capture)(&values.get::<String>("capture"), bytes)?;
    Ok(Traffic::Source(match bytes {
        true => Pattern::Recorded(records),
        false => Pattern::Replay(Box::new(records.map(|(at, len, _)| (at, len)))),
    }))
}
