//! The network usage classes of Table 11 as generators.

use super::super::{Computed, Setting, Value, row};
use super::wrong;
use crate::Error;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_net::traffic::Subsessions;

const NAME: &str = "aurora-traffic-classes";

/// The data of a component.
#[derive(Clone, Copy)]
enum Kind {
    /// Pictures of 320x240x8 per second, given as a bit rate in the table.
    Pictures(u64),
    /// A file, given in bits in the table.
    File(u64),
}

/// Component, its data, length of a subsession, time between two.
type Class = (&'static str, Kind, &'static str, &'static str);

const MEGA: u64 = 1_000_000;
const GIGA: u64 = 1_000_000_000;

/// Table 11.
const CLASSES: [Class; 22] = {
    use Kind::{File, Pictures};
    [
        ("Room Monitor, capture", Pictures(10), "days", "none"),
        ("Room Monitor, storage", File(100 * MEGA), "seconds", "minutes"),
        ("Room Monitor, retrieval", File(100 * MEGA), "seconds", "seconds"),
        ("Room Monitor, display", Pictures(10), "seconds", "seconds"),
        ("Whiteboard Recorder, capture", Pictures(1), "days", "none"),
        ("Whiteboard Recorder, storage", File(0), "frame", "minutes"),
        ("Whiteboard Recorder, retrieval", File(0), "frame", "seconds"),
        ("Whiteboard Recorder, display", File(0), "frame", "seconds"),
        ("Video Rover, capture", Pictures(10), "minutes", "minutes"),
        ("Video Rover, display", Pictures(10), "minutes", "minutes"),
        ("News Browser, capture", Pictures(10), "half_hour", "daily"),
        ("News Browser, storage", File(10 * GIGA), "half_hour", "daily"),
        ("News Browser, retrieval", File(500 * MEGA), "minutes", "minutes"),
        ("News Browser, display", Pictures(10), "minutes", "minutes"),
        ("Sports Highlights, capture", Pictures(10), "half_hour", "daily"),
        ("Sports Highlights, storage", File(10 * GIGA), "half_hour", "daily"),
        ("Sports Highlights, retrieval", File(100 * MEGA), "seconds", "seconds"),
        ("Sports Highlights, display", Pictures(10), "seconds", "seconds"),
        ("Joke Browser, capture", Pictures(10), "ten_minutes", "daily"),
        ("Joke Browser, storage", File(3 * GIGA), "ten_minutes", "daily"),
        ("Joke Browser, retrieval", File(100 * MEGA), "seconds", "seconds"),
        ("Joke Browser, display", Pictures(10), "seconds", "seconds"),
    ]
};

/// The generator of a class, and whether the table's figure is a bit rate.
fn generator(setting: &Setting<'_>, class: &Class) -> Result<(Subsessions, bool), Error> {
    let constants = setting.constants;
    let &(_, kind, lasting, between) = class;
    let length = |name: &str| -> Result<Duration, Error> {
        match name {
            "none" | "frame" => Ok(Duration::ZERO),
            name => constants.get(name),
        }
    };
    let (picture, packet): (Bytes, Bytes) = (constants.get("picture")?, constants.get("packet")?);
    let rate: Rate = constants.get("available")?;
    let (unit, every, lasting, periodic) = match kind {
        Kind::Pictures(a_second) => {
            let every = Duration::from_ps(1_000_000_000_000 / a_second);
            (picture, every, length(lasting)?, true)
        }
        Kind::File(0) => (picture, Duration::from_secs(1), Duration::ZERO, false),
        // A file goes as fast as the network accepts it, whatever the length of its video.
        Kind::File(bits) => (Bytes(bits / 8), Duration::from_secs(1), Duration::ZERO, false),
    };
    Ok((Subsessions { unit, packet, rate, every, lasting, between: length(between)? }, periodic))
}

/// Bits sent by a generator until `end`, or in its first subsession.
fn bits(class: Subsessions, end: Option<Duration>) -> Result<(f64, f64), Error> {
    let packets = class.packets().map_err(|why| wrong(NAME, why))?;
    let end = end.unwrap_or(class.period());
    let (mut bytes, mut count) = (0u64, 0u64);
    for (_, len) in packets.take_while(|&(at, _)| at < end) {
        (bytes, count) = (bytes + len.0, count + 1);
    }
    Ok((bytes as f64 * 8.0, count as f64))
}

pub(in super::super) fn classes(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let ten: Duration = Duration::from_secs(10);
    let available: Rate = setting.constants.get("available")?;
    let mut computed = Vec::new();
    let (mut captured, mut others, mut short, mut long) = (0.0, 0.0, 0.0f64, 0.0f64);
    let mut peaks = true;
    for class in &CLASSES {
        let (generator, periodic) = generator(setting, class)?;
        let name = class.0;
        let value = match periodic {
            // Ten seconds of a subsession suffice for its rate.
            true => bits(generator, Some(ten))?.0 / 10.0 / 1e6,
            false => bits(generator, None)?.0 / 1e6,
        };
        let unit = if periodic { "Mbit/s" } else { "Mbit" };
        computed.push(Computed::new("A-117", name, Value::Number(value, unit)));
        // One day.
        let day = Duration::from_secs(86_400);
        let sessions = (day.as_ps() / generator.period().as_ps().max(1)).max(1) as f64;
        let a_day = sessions * generator.bytes().0 as f64 * 8.0;
        if name.starts_with("News Browser") {
            if name.ends_with("capture") { captured += a_day } else { others += a_day }
        }
        let a_second = 1e12 / generator.period().as_ps() as f64;
        match class.2 {
            "seconds" | "frame" => short = short.max(a_second),
            _ => long = long.max(a_second),
        }
        peaks &= available.as_bits() as f64 > 10.0 * a_day / 86_400.0;
    }
    computed.extend([
        row("A-117/classes", (CLASSES.len() as f64, "classes")),
        row("A-127/transferred", others > captured),
        row("A-127/class-bursts", peaks),
        row("A-128/ask", short > 10.0 * long),
    ]);
    Ok(computed)
}
