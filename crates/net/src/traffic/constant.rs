//! Constant rate: packets at equal intervals.

use super::{Maker, Setting, Traffic, gap, packets, sizes};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Draw, here, one_way};

const PAGE: &Page = &Page {
    name: "constant",
    family: Family::Traffic,
    what: "Packets at a constant rate, without feedback.",
    ports: "(clock) --> out",
    params: &[
        Param::required("rate", ParamKind::Rate).is("bit rate of the packets"),
        Param::required("size", ParamKind::Sizes).is("lengths of the packets"),
    ],
    counters: &[("sent", "packets made")],
    example: one_way! {
        "10 ms", "alice" [] "bob",
        [r#"rate = "1 Gbit/s""#],
        "measurement" [r#"constant = { rate = "18 Mbit/s", size = "1500 B" }"#]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let sizes = sizes(values);
    let gap = Draw::Constant(gap(values.get("rate"), &sizes));
    Ok(Traffic::Source(Pattern::Gaps { gap, sizes }))
}
