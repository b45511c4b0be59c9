//! Video frames in groups of pictures, with sizes of given moments, split into packets.

use super::{Maker, Setting, Traffic, packets};
use crate::mpeg::{Moments, frames};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, here, one_way};

const SIZE: ParamKind = ParamKind::Size { min: 1, max: 1 << 30 };
const FRAMES: ParamKind = ParamKind::Integer { min: 24, max: 1 << 20 };

const PAGE: &Page = &Page {
    name: "mpeg",
    family: Family::Traffic,
    what: "Video frames in groups IBBPBBPBBPBB, with sizes of given moments, split into packets.",
    ports: "(frames) --> out",
    params: &[
        Param::required("mean", SIZE).is("mean size of a frame"),
        Param::required("deviation", SIZE).is("standard deviation of the sizes"),
        Param::required("least", SIZE).is("the smallest frame"),
        Param::required("most", SIZE).is("the largest frame"),
        Param::or("interval", ParamKind::Time, "33 ms").is("from one frame to the next"),
        Param::or("packet", ParamKind::PACKET, "1500 B")
            .is("longest packet; those of a frame are sent at once"),
        Param::or("frames", FRAMES, "21600").is("number of frames after which the film repeats"),
        Param::or("film", ParamKind::Integer { min: 0, max: 1 << 32 }, "1").is("seed of the film"),
        Param::or("from", ParamKind::Integer { min: 0, max: 1 << 20 }, "0")
            .is("first frame to send"),
    ],
    source: "moments and pattern: Indiresan 1997, Table 6.4, §6.4.3",
    deviations: &["The models of scenes and noise are ours; there is no long-range dependence."],
    counters: &[("sent", "packets made")],
    example: one_way! {
        "1 s", "camera" [] "screen",
        [r#"rate = "10 Mbit/s""#],
        "dino" [
        r#"mpeg = { mean = "1635 B", deviation = "1844 B", least = "110 B", most = "14954 B" }"#,
        ]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let bits = |name: &str| values.get::<Bytes>(name).0 * 8;
    let moments = Moments {
        least: bits("least"),
        most: bits("most"),
        mean: bits("mean") as f64,
        deviation: bits("deviation") as f64,
    };
    let (count, film, from): (u64, u64, u64) =
        (values.get("frames"), values.get("film"), values.get("from"));
    let sizes = frames(&moments, count as usize, film)
        .ok_or("no sizes between `least` and `most` have this `mean` and `deviation`")?;
    let (interval, packet): (Duration, Bytes) = (values.get("interval"), values.get("packet"));
    if interval.is_zero() {
        return Err("the interval between frames must be longer than zero".to_owned());
    }
    let packets = (0u64..).flat_map(move |n| {
        let at = interval * n;
        let size = sizes[((from + n) % sizes.len() as u64) as usize].div_ceil(8).max(1);
        let cut = (0..size.div_ceil(packet.0)).map(move |k| (size - k * packet.0).min(packet.0));
        cut.map(move |len| (at, Bytes(len)))
    });
    Ok(Traffic::Source(Pattern::Replay(Box::new(packets))))
}
