//! `[processors.NAME]`, `[fabric]`: which port processors there are, and how packets get from one to another.

use super::{at_most, named, place, texts, unknown};
use lastmeter_base::kind::{Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration};
use lastmeter_lab::document::{Decoder, Fault, Item, Shape, join};

/// Limit on port processors: each has memory and tables of its own.
pub const PROCESSORS_MAX: usize = 16;
/// What waits at an input for an output by default, framing counted in: 170 long packets.
pub const ROOM: Bytes = Bytes(256 << 10);
/// The name of the only one of a router whose file names none.
const ONLY: &str = "all";

/// A port processor: a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Its name.
    pub name: String,
    /// The ports that it serves.
    pub ports: Vec<u16>,
    /// Its core; any if absent.
    pub core: Option<usize>,
}

/// Distributed queueing between ports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    /// S: what all inputs together may send to an output, relative to its line.
    pub speed_up: f64,
    /// Whether Eqs 5 and 6 apply, else Eqs 1 and 2.
    pub responsive: bool,
    /// D, from one exchange of backlogs to the next.
    pub period: Duration,
    /// Bmin, the backlog that each input has in Eq 5.
    pub backlog_min: Bytes,
    /// Limit on the packets of an input that wait for an output, framing counted in.
    pub room: Bytes,
}

const PROCESSOR: &[Param] =
    &[Param::optional("core", ParamKind::Integer { min: 0, max: 4095 }, "any")
        .is("the core on which it runs")];

const FABRIC: &[Param] = &[
    Param::or("speed-up", ParamKind::Number { min: 1.0, max: 64.0 }, "1.25")
        .is("S: what all inputs together may send to an output, relative to its line"),
    Param::or("scheduling", ParamKind::Choice(&["responsive", "base"]), "responsive")
        .is("rate control: Eqs 5 and 6, or Eqs 1 and 2"),
    Param::or("period", ParamKind::Time, "500 us")
        .is("D, from one exchange of backlogs to the next"),
    Param::or("backlog-min", ParamKind::BUFFER, "1500 B")
        .is("Bmin, the backlog that each input has in Eq 5"),
    Param::or("room", ParamKind::BUFFER, "256 KiB")
        .is("limit on what waits at an input for an output, framing counted in"),
];

/// The port processors in the order of their names; one for all ports, if none is named.
pub(super) fn processors(
    decoder: &mut Decoder<'_>,
    root: &Item,
    values: &Values,
    ports: &[&str],
) -> Vec<Processor> {
    let core = values.given::<u64>("core").map(|core| core as usize);
    let entries = named(decoder, root, "processors");
    if entries.is_empty() {
        let all = (0..ports.len() as u16).collect();
        return vec![Processor { name: ONLY.to_owned(), ports: all, core }];
    }
    if core.is_some() {
        let found = "there are several port processors";
        let right = "give each its own core, below [processors.NAME]";
        decoder.report(&place(root, "core"), "core", Fault::new(found, right));
    }
    at_most(decoder, root, "processors", entries.len(), PROCESSORS_MAX);
    let mut served: Vec<Option<String>> = vec![None; ports.len()];
    let mut all = Vec::new();
    for entry in entries {
        let key = join("processors", &entry.key);
        let shape =
            Shape { what: "a port processor", params: PROCESSOR, kind: None, besides: &["ports"] };
        let (_, values) = decoder.table(&shape, &entry.item, &key);
        let core = values.given::<u64>("core").map(|core| core as usize);
        let key = join(&key, "ports");
        let mut own = Vec::new();
        for (name, mark) in texts(decoder, &entry.item, &join("processors", &entry.key), "ports") {
            let Some(at) = ports.iter().position(|port| *port == name) else {
                unknown(decoder, &mark, &key, ("port", &name), ports);
                continue;
            };
            if let Some(other) = &served[at] {
                let found = format!("port `{name}` is served by `{other}`");
                decoder.report(&mark, &key, Fault::new(found, "name each port once"));
            }
            served[at] = Some(entry.key.clone());
            own.push(at as u16);
        }
        if own.is_empty() {
            let right = format!("write ports = [\"{}\"]", ports.first().unwrap_or(&"NAME"));
            decoder.report(&entry.mark, &key, Fault::new("it serves no port", right));
        }
        own.sort_unstable();
        all.push(Processor { name: entry.key.clone(), ports: own, core });
    }
    for (port, served) in ports.iter().zip(served) {
        if served.is_none() {
            let found = format!("no port processor serves port `{port}`");
            let right = "name it in the `ports` of one";
            decoder.report(&place(root, "processors"), "processors", Fault::new(found, right));
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Distributed queueing, if the file has it. It shares out lines, so each has to have a rate.
pub(super) fn fabric(
    decoder: &mut Decoder<'_>,
    root: &Item,
    ports: &[super::Port],
) -> Option<Fabric> {
    let item = root.get("fabric")?;
    let shape = Shape { what: "the fabric", params: FABRIC, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, item, "fabric");
    if let Some(port) = ports.iter().find(|port| port.rate.is_none()) {
        let found = format!("port `{}` has no rate to be shared out", port.name);
        let right = format!("give it one: rate = \"1 Gbit/s\" below [ports.{}]", port.name);
        decoder.report(&item.mark, "fabric", Fault::new(found, right));
    }
    let period = values.given("period").unwrap_or(Duration::from_us(500));
    if period < PERIOD_MIN {
        let fault = Fault::new(format!("a period of {period}"), format!("at least {PERIOD_MIN}"));
        decoder.report(&place(item, "period"), "fabric.period", fault);
    }
    Some(Fabric {
        speed_up: values.given("speed-up").unwrap_or(1.25),
        responsive: values.given::<String>("scheduling").is_none_or(|own| own == "responsive"),
        period,
        backlog_min: values.given("backlog-min").unwrap_or(Bytes(1500)),
        room: values.given("room").unwrap_or(ROOM),
    })
}

/// Threads do not wake up more often.
const PERIOD_MIN: Duration = Duration::from_us(50);
