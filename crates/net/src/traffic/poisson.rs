//! Poisson: packets that know nothing of one another.

use super::{Maker, Setting, Traffic, gap, packets, sizes};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Draw, here, one_way};

const PAGE: &Page = &Page {
    name: "poisson",
    family: Family::Traffic,
    what: "Packets at random, with exponential gaps: many independent users.",
    ports: "(random clock) --> out",
    params: &[
        Param::required("rate", ParamKind::Rate).is("bits per second, of packets, on average"),
        Param::required("size", ParamKind::Sizes).is("lengths of the packets"),
    ],
    source: "Kleinrock, Queueing Systems, Volume 1, 1975, section 2.4",
    deviations: &["Gaps are rounded to whole picoseconds."],
    counters: &[("sent", "packets made")],
    example: one_way! {
        "10 ms", "alice" [] "bob",
        [r#"rate = "1 Gbit/s""#],
        "many users" [
        r#"poisson = { rate = "800 Mbit/s", size = [["64 B", 7], ["576 B", 4], ["1500 B", 1]] }"#,
        ]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let sizes = sizes(values);
    let gap = Draw::Exponential(gap(values.get("rate"), &sizes));
    Ok(Traffic::Source(Pattern::Gaps { gap, sizes }))
}
