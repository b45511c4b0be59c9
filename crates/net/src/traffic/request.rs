//! Requests and responses.

use super::{Maker, Setting, Traffic, packets};
use crate::request::ClientOptions;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{here, one_way};

const PAGE: &Page = &Page {
    name: "request",
    family: Family::Traffic,
    what: "Requests, each sent a think time after a response arrives.",
    ports: "client out --> requests --> responder
client in <-- responses <-- responder",
    params: &[
        Param::required("size", ParamKind::PACKET).is("length of a request"),
        Param::required("response", ParamKind::PACKET).is("length of a response"),
        Param::or("window", super::bulk::WINDOW, "1").is("most requests in flight"),
        Param::or("think", ParamKind::Draw, "0 s")
            .is("think time from a response to the next request"),
        Param::or("timeout", ParamKind::Time, "1 s")
            .is("time after which a request is given up as lost"),
    ],
    counters: super::bulk::COUNTERS,
    example: one_way! {
        "100 ms", "client" [] "server",
        [r#"rate = "1 Gbit/s""#, r#"delay = "50 us""#],
        "lookups" [
        r#"request = { size = "128 B", response = "4 KiB", think = { exponential = "200 us" } }"#,
        ]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let options = ClientOptions {
        size: values.get("size"),
        window: values.get("window"),
        think: values.get("think"),
        timeout: values.get("timeout"),
        start: setting.span.start,
        stop: setting.span.stop,
        packets: setting.span.packets,
    };
    Ok(Traffic::Client(options, values.get("response")))
}
