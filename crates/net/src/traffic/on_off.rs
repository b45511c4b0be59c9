//! On and off: bursts at a constant rate, with silence in between.

use super::{Maker, Setting, Traffic, gap, packets, sizes};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Draw, Rate, here};

const PAGE: &Page = &Page {
    name: "on-off",
    family: Family::Traffic,
    what: "Bursts of packets at a constant rate, with silence in between.",
    ports: "(clock, while on) --> out",
    params: &[
        Param::required("rate", ParamKind::Rate).is("bit rate of the packets within a burst"),
        Param::required("size", ParamKind::Sizes).is("lengths of the packets"),
        Param::required("on", ParamKind::Draw).is("how long a burst lasts"),
        Param::required("off", ParamKind::Draw).is("how long the silence lasts"),
    ],
    counters: &[("sent", "packets made")],
    example: r#"
duration = "100 ms"
[nodes]
camera = { host = {} }
screen = { host = {} }
[[links]]
between = ["camera", "screen"]
rate = "100 Mbit/s"
[[traffic]]
name = "frames"
from = "camera"
to = "screen"
on-off = { rate = "80 Mbit/s", size = "1500 B", on = { uniform = ["1 ms", "3 ms"] }, off = "8 ms" }
"#,
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind { page: PAGE, fit, maker: &packets(&Maker(build)) };

/// The shortest mean burst, relative to the gap between packets.
const BURST_LEAST: f64 = 1e-3;

fn fit(values: &Values) -> Result<(), Misfit> {
    let gap = gap(values.get::<Rate>("rate"), &sizes(values)).as_secs_f64();
    let on = values.get::<Draw>("on").mean();
    match on < gap * BURST_LEAST {
        false => Ok(()),
        true => Err(Misfit::new(
            "on",
            format!("bursts of {on:e} s are too short for packets that are {gap:e} s apart"),
            "a mean of at least a thousandth of that",
        )),
    }
}

fn build(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let sizes = sizes(values);
    let gap = gap(values.get("rate"), &sizes);
    let (on, off) = (values.get("on"), values.get("off"));
    Ok(Traffic::Source(Pattern::OnOff { on, off, gap, sizes }))
}
