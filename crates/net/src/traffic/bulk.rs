//! Bulk: as fast as the path allows, within a window.

use super::{Maker, Setting, Traffic, packets};
use crate::request::ClientOptions;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Draw, Duration, here, one_way};

/// Limit on a window, each of whose requests is remembered.
pub(super) const WINDOW: ParamKind = ParamKind::Integer { min: 1, max: 1_000_000 };

pub(super) const COUNTERS: &[(&str, &str)] = &[
    ("requests", "packets sent"),
    ("responses", "responses received in time"),
    ("given_up", "packets without a response within the timeout"),
    ("response_time_mean_ps", "mean time from packet to response, in picoseconds"),
    ("response_time_p99_ps", "99th percentile of that time, in picoseconds"),
];

const PAGE: &Page = &Page {
    name: "bulk",
    family: Family::Traffic,
    what: "A transfer as fast as the path allows, with at most a window in flight.",
    ports: "client out --> packets --> responder
client in <-- acknowledgements <-- responder",
    params: &[
        Param::required("size", ParamKind::PACKET).is("length of a packet"),
        Param::required("window", WINDOW).is("most packets in flight"),
        Param::or("response", ParamKind::PACKET, "64 B").is("length of an acknowledgement"),
        Param::or("timeout", ParamKind::Time, "1 s")
            .is("time after which a packet is given up as lost"),
    ],
    deviations: &["Nothing is retransmitted: a lost packet is counted, and its place in the \
                   window used for the next."],
    counters: COUNTERS,
    example: one_way! {
        "100 ms", "alice" [] "bob",
        [r#"rate = "1 Gbit/s""#, r#"delay = "1 ms""#],
        "backup" [r#"bulk = { size = "1500 B", window = 100 }"#]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let options = ClientOptions {
        size: values.get("size"),
        window: values.get("window"),
        think: Draw::Constant(Duration::ZERO),
        timeout: values.get("timeout"),
        start: setting.span.start,
        stop: setting.span.stop,
        packets: setting.span.packets,
    };
    Ok(Traffic::Client(options, values.get("response")))
}
