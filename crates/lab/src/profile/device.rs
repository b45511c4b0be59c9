//! Adapters in five sections, read from `profiles/devices/NAME.toml` (E-38, E-46, E-126).
//!
//! ```text
//! what, source   [host-interface]   [transfer]   [queueing]   [buffers]   [network]
//! ```
//!
//! Each key of a section is one of the options of Table 4.1 (Indiresan 1997), or belongs to a ring of descriptors.
//! Errors are reported at their place.

use super::ProfileKind;
use crate::document::{Decoder, Document, Fault, Item, Override, Problem, Shape, join};
use crate::library::Library;
use lastmeter_base::kind::{
    FRAMING_MAX, Family, Kind, PACKET_MAX, Page, Param, ParamKind, TIME_MAX, Values,
};
use lastmeter_base::{Bytes, Duration, here};
use lastmeter_host::adapter::description::{
    Batch, BufferPlace, Buffers, Description, Discipline, Driver, HostInterface, InterfaceKind,
    Network, NetworkModel, Overload, Queueing, Synchronisation, Transfer, TransferMode,
};
use lastmeter_host::adapter::hardware::{Bench, Needs, verilog as hardware};
use lastmeter_host::adapter::pcie::Link;
use lastmeter_host::adapter::transmitter::Variation;
use lastmeter_host::adapter::{firmware, picture, pipeline};
use std::sync::Arc;

/// The folder of their profiles.
pub const FOLDER: &str = "devices";

const PAGE: &Page = &Page {
    name: "device-profile",
    family: Family::Profile,
    what: "An adapter in five sections, for `adapter = { device = ... }`.",
    ports: "[host-interface] --> [transfer] --> [network], with [queueing] and [buffers]",
    params: HEADER,
    source: "Indiresan 1997, Fig 4.1 and Table 4.1",
    example: include_str!("../../../../profiles/devices/cim.toml"),
    ..Page::at(here!())
};

pub(super) const KIND: Kind = Kind::new(
    PAGE,
    &ProfileKind {
        folder: FOLDER,
        within: None,
        read: |file| Ok(Arc::new(device(file.name, file.text.as_bytes(), file.library)?)),
    },
);

const fn count(min: u64, max: u64) -> ParamKind {
    ParamKind::Integer { min, max }
}
const SIZE: ParamKind = ParamKind::Size { min: 0, max: 1 << 40 };
/// Descriptors, headers and framing of a packet.
const SMALL: ParamKind = ParamKind::Size { min: 0, max: FRAMING_MAX };
/// The longest slot of a collision: sixteen of them end within the time of a run.
const SLOT_MAX: Duration = Duration::from_secs(1);
/// Limit on the transfer or transmission of the longest packet, as a multiple of the longest time: with it every sum
/// of the phases of messages fits in an instant.
const PHASE_MAX: u128 = 10;
const DISCIPLINE: ParamKind = ParamKind::Choice(&["fifo", "priority", "edd"]);
const SYNCHRONISATION: ParamKind = ParamKind::Choice(&["interrupt", "poll", "mixed"]);

const HEADER: &[Param] = &[
    Param::required("what", ParamKind::Text).is("what it is: card, bus, memory"),
    Param::required("source", ParamKind::Text).is("where its constants come from"),
];
const HOST: &[Param] = &[
    Param::required("kind", ParamKind::Choice(&["mailbox", "fifo", "rings"]))
        .is("how commands reach the adapter"),
    Param::or("driver", ParamKind::Choice(&["own", "virtio"]), "own")
        .is("whose registers and rings a guest finds with `live --guest --bus vfio`"),
    Param::or("queues", count(1, 4096), "1").is("number of command queues"),
    Param::or("synchronisation", SYNCHRONISATION, "interrupt")
        .is("how the host is notified of a response"),
    Param::or("qos", ParamKind::Flag, "false")
        .is("whether commands state the service that a packet wants"),
    Param::or("handshake", ParamKind::Flag, "false").is("whether identifiers are exchanged first"),
    Param::or("transfer-ack", ParamKind::Flag, "false")
        .is("whether the end of the transfer is signalled"),
    Param::or("per-message", ParamKind::Time, "0 s").is("cost of a message to host and interface"),
    Param::or("saved-when-simple", ParamKind::Time, "0 s").is("part of it saved without both"),
    Param::or("gather-per-byte", ParamKind::PerByte, "0 ns/B")
        .is("cost to the host of gathering a packet in one buffer, per byte"),
    Param::or("descriptor", SMALL, "0 B").is("length of a descriptor"),
    Param::or("doorbell-batch", count(1, 4096), "1").is("packets per doorbell"),
    Param::or("fetch-batch", count(1, 4096), "1").is("descriptors fetched at once"),
    Param::or("write-back-batch", count(1, 4096), "1").is("descriptors written back at once"),
    Param::or("coalescing", count(1, 65_536), "1").is("packets per interrupt"),
    Param::or("coalescing-time", ParamKind::Time, "0 s")
        .is("longest that an interrupt waits for them; 0: while the adapter has more in progress"),
];
const TRANSFER: &[Param] = &[
    Param::required("mode", ParamKind::Choice(&["dma", "pio", "hybrid"])).is("what moves data"),
    Param::or("pio-max", SIZE, "0 B").is("with `hybrid`: longest packet moved by the processor"),
    Param::or("pio-per-byte", ParamKind::PerByte, "0 ns/B").is("processor's cost per byte"),
    Param::or("setup", ParamKind::Time, "0 s").is("time before the first byte of a transfer"),
    Param::or("block", SIZE, "4096 B").is("length of one DMA transfer"),
    Param::or("per-block", ParamKind::Time, "0 s").is("cost of each block, even partly filled"),
    Param::or("small", SIZE, "0 B").is("number of leading bytes at `per-byte-small`"),
    Param::or("per-byte-small", ParamKind::PerByte, "0 ns/B").is("cost of each of these bytes"),
    Param::or("per-byte", ParamKind::PerByte, "0 ns/B").is("cost of each further byte"),
    Param::or("preemptible", ParamKind::Flag, "false")
        .is("whether the network can pre-empt it at the memory"),
    Param::or("urgent-first", ParamKind::Flag, "false")
        .is("whether a more urgent packet's transfer interrupts a less urgent one's"),
];
const PCIE: &[Param] = &[
    Param::required("generation", count(3, 5)).is("3, 4 or 5"),
    Param::required("lanes", count(1, 16)).is("number of lanes"),
    Param::or("payload", ParamKind::Size { min: 128, max: 4096 }, "256 B").is("longest payload"),
    Param::or("request", ParamKind::Size { min: 128, max: 4096 }, "512 B")
        .is("longest read request"),
];
const QUEUEING: &[Param] = &[
    Param::or("stages", count(1, 3), "3").is(
        "3: interface, transfer, network in parallel; 2: network beside the others; 1: in turn",
    ),
    Param::or("queues", count(1, 256), "1").is("queues per stage; class 1 waits in the second"),
    Param::or("discipline", DISCIPLINE, "fifo").is("order of service"),
    Param::optional("at-network", DISCIPLINE, "the same").is("order of service at the network"),
    Param::or("depth", count(1, 65_536), "1").is("messages in flight at once"),
];
const BUFFERS: &[Param] = &[
    Param::required("place", ParamKind::Choice(&["shared", "per-connection", "host"]))
        .is("which memory holds buffers"),
    Param::required("memory", SIZE).is("buffer memory"),
    Param::or("banks", count(1, 16), "1").is("banks, each with its own bus"),
    Param::or("threshold", count(0, 100), "0").is("free percentage below which it is overloaded"),
    Param::or("overload", ParamKind::Choice(&["drop", "block", "priority"]), "drop")
        .is("policy when no buffer is free"),
    Param::or("separate-headers", ParamKind::Flag, "false")
        .is("whether headers have buffers of their own, so that nothing is gathered"),
    Param::optional("header", SMALL, "not known")
        .is("length of a packet's headers, with `separate-headers`"),
];
const NETWORK: &[Param] = &[
    Param::required("model", ParamKind::Choice(&["point-to-point", "intermittent", "statistical"]))
        .is("when it may send"),
    Param::optional("rotation", ParamKind::Time, "always there").is("rotation time of the token"),
    Param::optional("holding", ParamKind::Time, "always there")
        .is("part of the rotation for which it holds the token"),
    Param::optional("slot", ParamKind::Time, "none collide").is("duration of a collision"),
    Param::optional("collisions", count(0, 99), "none").is("percentage of attempts that collide"),
    Param::or("processing", ParamKind::Time, "0 s").is("cost of a message to its own processor"),
    Param::or("synchronisation", SYNCHRONISATION, "interrupt")
        .is("how it is notified that a packet has left"),
    Param::or("setup", ParamKind::Time, "0 s").is("time before the first frame of a message"),
    Param::or("overlap", count(0, 100), "0")
        .is("percentage of `setup` that needs no memory; 33 means a third"),
    Param::or("frame", SIZE, "4096 B").is("payload of a frame"),
    Param::or("per-frame", ParamKind::Time, "0 s").is("cost of each frame, even partly filled"),
    Param::optional("rate", ParamKind::Rate, "frames have their time").is("bit rate of its link"),
    Param::or("framing", SMALL, "0 B").is("overhead of a frame on the link"),
];

/// Length of the messages whose phases an adapter's page draws: as in Fig 5.6.
const DRAWN: Bytes = Bytes(4096);
/// The message rate that a card's control must sustain: that of the shortest Ethernet frames.
const SHORTEST: Bytes = Bytes(64);
/// 250 MHz, typical of an FPGA today.
const CLOCK: Duration = Duration::from_ns(4);

/// The sections, with their parameters.
const SECTIONS: [(&str, &[Param]); 5] = [
    ("host-interface", HOST),
    ("transfer", TRANSFER),
    ("queueing", QUEUEING),
    ("buffers", BUFFERS),
    ("network", NETWORK),
];

/// Reads an adapter.
///
/// # Errors
/// All errors in it, in the order of the file.
///
/// ```
/// use lastmeter_lab::{library::Builtin, profile::device};
/// let text = include_bytes!("../../../../profiles/devices/pcie4.toml");
/// let card = device::device("pcie4.toml", text, &Builtin).unwrap();
/// assert_eq!(card.host.queues, 4);
/// ```
pub fn device(
    file_name: &str,
    text: &[u8],
    library: &dyn Library,
) -> Result<Description, Vec<Problem>> {
    changed(file_name, text, &[], library)
}

/// Reads an adapter, with overrides.
///
/// # Errors
/// As [`device`], and those of the overrides.
pub fn changed(
    file_name: &str,
    text: &[u8],
    overrides: &[Override],
    library: &dyn Library,
) -> Result<Description, Vec<Problem>> {
    let mut document = Document::parse(file_name, text)?;
    overrides.iter().for_each(|change| change.apply(&mut document));
    let Document { root, reporter } = document;
    let mut decoder = Decoder { reporter, library };
    let besides = SECTIONS.map(|(name, _)| name);
    let shape = Shape { what: "the adapter", params: HEADER, kind: None, besides: &besides };
    let (_, header) = decoder.table(&shape, &root, "");
    let [host, transfer, queueing, buffers, network] =
        SECTIONS.map(|(name, params)| section(&mut decoder, &root, name, params));
    let pcie = pcie(&mut decoder, root.get("transfer"));
    let model = network_model(&mut decoder, &root, &network);
    disciplines(&mut decoder, &root, &host, &queueing);
    headers(&mut decoder, &root, &buffers);
    phases(&mut decoder, &root, ("transfer", &transfer), ("block", "per-block"));
    phases(&mut decoder, &root, ("network", &network), ("frame", "per-frame"));
    if !decoder.reporter.is_empty() {
        return Err(decoder.reporter.into_problems());
    }
    Ok(Description {
        what: header.get("what"),
        source: header.get("source"),
        host: host_interface(&host),
        transfer: Transfer { pcie, ..transfer_control(&transfer) },
        queueing: Queueing {
            stages: queueing.get("stages"),
            queues: queueing.get("queues"),
            discipline: discipline(&queueing.get::<String>("discipline")),
            at_network: queueing.given::<String>("at-network").map(|word| discipline(&word)),
            depth: queueing.get("depth"),
        },
        buffers: buffer_management(&buffers),
        network: Network { model, ..network_interface(&network) },
    })
}

fn discipline(word: &str) -> Discipline {
    match word {
        "fifo" => Discipline::Fifo,
        "priority" => Discipline::Priority,
        _ => Discipline::Edd,
    }
}

/// An adapter can give packets priority only if commands state their service.
fn disciplines(decoder: &mut Decoder<'_>, root: &Item, host: &Values, queueing: &Values) {
    if !host.has("qos") || host.get::<bool>("qos") {
        return;
    }
    let Some(section) = root.get("queueing") else { return };
    for key in ["discipline", "at-network"] {
        let Some(word) = queueing.given::<String>(key) else { continue };
        if let (Some(item), "priority" | "edd") = (section.get(key), word.as_str()) {
            let found = format!("`{word}` needs commands that state a packet's service");
            let right = "write `qos = true` in [host-interface], or `fifo`".to_owned();
            decoder.report(&item.mark, &join("queueing", key), Fault::new(found, right));
        }
    }
}

/// Headers can have buffers of their own only if their length is known.
fn headers(decoder: &mut Decoder<'_>, root: &Item, buffers: &Values) {
    let separate = buffers.given("separate-headers") == Some(true);
    let known = buffers.given("header").is_some_and(|len: Bytes| len > Bytes::ZERO);
    let wrong = match (separate, known) {
        (true, false) => ("separate-headers", "separate headers without a length"),
        (false, true) => ("header", "the length of headers that have no separate buffers"),
        _ => return,
    };
    let item = root.get("buffers").and_then(|section| section.get(wrong.0));
    let Some(item) = item else { return };
    let right = "write separate-headers = true and header = \"54 B\", or neither".to_owned();
    let fault = Fault::new(wrong.1.to_owned(), right);
    decoder.report(&item.mark, &join("buffers", wrong.0), fault);
}

/// Limits the number and cost of blocks and frames, so that no packet takes forever.
fn phases(
    decoder: &mut Decoder<'_>,
    root: &Item,
    (section, values): (&str, &Values),
    (of, cost): (&str, &str),
) {
    let (Some(len), Some(each)) = (values.given::<Bytes>(of), values.given::<Duration>(cost))
    else {
        return;
    };
    let count = PACKET_MAX.0.div_ceil(len.0.max(1));
    if u128::from(count) * u128::from(each.as_ps()) <= PHASE_MAX * u128::from(TIME_MAX.as_ps()) {
        return;
    }
    let Some(section_item) = root.get(section) else { return };
    let mark = section_item.get(cost).map_or(&section_item.mark, |item| &item.mark);
    let found = format!("{each} for each {len} of a packet is too long");
    let right = format!("a packet of {PACKET_MAX} may take {TIME_MAX} {PHASE_MAX} times at most");
    decoder.report(mark, &join(section, cost), Fault::new(found, right));
}

/// When the adapter may send: a token needs both times, and other networks have neither.
fn network_model(decoder: &mut Decoder<'_>, root: &Item, network: &Values) -> NetworkModel {
    let times = (network.given("rotation"), network.given("holding"));
    let luck = (network.given("slot"), network.given("collisions"));
    let (Some(section), true) = (root.get("network"), network.has("model")) else {
        return NetworkModel::PointToPoint;
    };
    let model: String = network.get("model");
    if let Some(fault) = collisions(&model, luck) {
        let mark = section.get(fault.0).map_or(&section.mark, |item| &item.mark);
        let right = "write model = \"statistical\", slot = \"51.2 us\", collisions = 10";
        decoder.report(mark, &join("network", fault.0), Fault::new(fault.1, right));
    }
    if let ("statistical", (Some(slot), Some(collisions)), (None, None)) =
        (model.as_str(), luck, times)
    {
        if slot > SLOT_MAX {
            let mark = section.get("slot").map_or(&section.mark, |item| &item.mark);
            let fault =
                Fault::new(format!("{slot} is too long"), format!("write at most {SLOT_MAX}"));
            decoder.report(mark, &join("network", "slot"), fault);
        }
        return NetworkModel::Statistical { slot, collisions };
    }
    let shared = model == "intermittent";
    let wrong = match times {
        (Some(rotation), Some(holding)) if shared => {
            let part = holding > Duration::ZERO && holding < rotation;
            if part {
                return NetworkModel::Intermittent { rotation, holding };
            }
            Some(("holding", format!("the token is held for {holding} of {rotation}")))
        }
        _ if shared => {
            Some(("model", "an intermittent network without `rotation` or `holding`".into()))
        }
        (None, None) => None,
        (rotation, _) => {
            let key = if rotation.is_some() { "rotation" } else { "holding" };
            Some((key, format!("a {model} network has no token")))
        }
    };
    if let Some((key, found)) = wrong {
        let right = "write model = \"intermittent\", rotation = \"10 ms\", holding = \"1 ms\"";
        let mark = section.get(key).map_or(&section.mark, |item| &item.mark);
        decoder.report(mark, &join("network", key), Fault::new(found, right));
    }
    NetworkModel::PointToPoint
}

/// The parameter of collisions that is wrong, and why.
fn collisions(
    model: &str,
    (slot, collisions): (Option<Duration>, Option<u64>),
) -> Option<(&'static str, &'static str)> {
    match (model == "statistical", slot, collisions) {
        (true, Some(_), Some(_)) | (false, None, None) => None,
        (true, ..) => Some(("model", "a network with collisions without `slot` or `collisions`")),
        (false, Some(_), _) => Some(("slot", "a network without collisions")),
        (false, None, Some(_)) => Some(("collisions", "a network without collisions")),
    }
}

fn section(
    decoder: &mut Decoder<'_>,
    root: &Item,
    name: &'static str,
    params: &'static [Param],
) -> Values {
    let Some(item) = root.get(name) else {
        let found = format!("the adapter has no section `{name}`");
        let fault = Fault::new(found, format!("add `[{name}]`"));
        decoder.report(&root.mark, name, fault);
        return Values::default();
    };
    let what = format!("section `{name}`");
    let besides: &[&str] = if name == "transfer" { &["pcie"] } else { &[] };
    decoder.table(&Shape { what: &what, params, kind: None, besides }, item, name).1
}

fn pcie(decoder: &mut Decoder<'_>, transfer: Option<&Item>) -> Option<Link> {
    let item = transfer?.get("pcie")?;
    let shape = Shape { what: "the bus", params: PCIE, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, item, &join("transfer", "pcie"));
    Some(Link {
        generation: values.given("generation")?,
        lanes: values.given("lanes")?,
        payload: values.given("payload")?,
        request: values.given("request")?,
    })
}

fn synchronisation(values: &Values) -> Synchronisation {
    match values.get::<String>("synchronisation").as_str() {
        "interrupt" => Synchronisation::Interrupt,
        "poll" => Synchronisation::Poll,
        _ => Synchronisation::Mixed,
    }
}

fn host_interface(values: &Values) -> HostInterface {
    HostInterface {
        kind: match values.get::<String>("kind").as_str() {
            "mailbox" => InterfaceKind::Mailbox,
            "fifo" => InterfaceKind::Fifo,
            _ => InterfaceKind::Rings,
        },
        driver: match values.get::<String>("driver").as_str() {
            "virtio" => Driver::Virtio,
            _ => Driver::Own,
        },
        queues: values.get("queues"),
        synchronisation: synchronisation(values),
        qos: values.get("qos"),
        handshake: values.get("handshake"),
        transfer_ack: values.get("transfer-ack"),
        per_message: values.get("per-message"),
        saved_when_simple: values.get("saved-when-simple"),
        gather_per_byte: values.get("gather-per-byte"),
        descriptor: values.get("descriptor"),
        batch: Batch {
            doorbell: values.get("doorbell-batch"),
            fetch: values.get("fetch-batch"),
            write_back: values.get("write-back-batch"),
        },
        coalescing: values.get("coalescing"),
        coalescing_time: values.get("coalescing-time"),
    }
}

fn transfer_control(values: &Values) -> Transfer {
    Transfer {
        mode: match values.get::<String>("mode").as_str() {
            "dma" => TransferMode::Dma,
            "pio" => TransferMode::Pio,
            _ => TransferMode::Hybrid,
        },
        pio_max: values.get("pio-max"),
        pio_per_byte: values.get("pio-per-byte"),
        setup: values.get("setup"),
        block: Bytes(values.get::<Bytes>("block").0.max(1)),
        per_block: values.get("per-block"),
        small: values.get("small"),
        per_byte_small: values.get("per-byte-small"),
        per_byte: values.get("per-byte"),
        preemptible: values.get("preemptible"),
        urgent_first: values.get("urgent-first"),
        pcie: None,
    }
}

fn buffer_management(values: &Values) -> Buffers {
    Buffers {
        place: match values.get::<String>("place").as_str() {
            "shared" => BufferPlace::Shared,
            "per-connection" => BufferPlace::PerConnection,
            _ => BufferPlace::Host,
        },
        memory: values.get("memory"),
        banks: values.get("banks"),
        threshold: values.get("threshold"),
        overload: match values.get::<String>("overload").as_str() {
            "drop" => Overload::Drop,
            "block" => Overload::Block,
            _ => Overload::Priority,
        },
        separate_headers: values.get("separate-headers"),
        header: values.given("header").unwrap_or_default(),
    }
}

fn network_interface(values: &Values) -> Network {
    let overlap = match values.get::<u64>("overlap") {
        33 => (1, 3),
        percent => (percent, 100),
    };
    Network {
        model: NetworkModel::PointToPoint,
        synchronisation: synchronisation(values),
        processing: values.get("processing"),
        setup: values.get("setup"),
        setup_overlap: overlap,
        frame: Bytes(values.get::<Bytes>("frame").0.max(1)),
        per_frame: values.get("per-frame"),
        rate: values.given("rate"),
        framing: values.get("framing"),
    }
}

/// The page of a bundled adapter, with its drawing.
///
/// # Errors
/// If there is no such adapter: lists their names; else the errors in its file.
pub fn page(name: &str, library: &dyn Library) -> Result<String, String> {
    Ok(describe(name, &read(name, library)?))
}

/// The page of an adapter.
pub(crate) fn describe(name: &str, card: &Description) -> String {
    let mut text = format!("{name} (adapter)\n\n{}\n\n", card.what);
    text += &picture::text(card);
    text += &format!("\nSOURCE\n    {}\n", card.source);
    for (what, commands) in
        [("TRANSMISSION", card.transmission()), ("RECEPTION", card.reception(1))]
    {
        let words: Vec<&str> = commands.iter().map(|&(_, word)| word).collect();
        text += &format!("\n{what}\n    {}\n", words.join(", "));
    }
    text += "\nFIRMWARE, A SKELETON IN C\n";
    for line in firmware::skeleton(card).lines() {
        text += format!("    {line}").trim_end();
        text += "\n";
    }
    let needs = Needs::of(card, SHORTEST, CLOCK);
    text += "\nHARDWARE AT 250 MHz\n";
    for line in needs.lines(SHORTEST) {
        text += &format!("    {line}\n");
    }
    let drawn = DRAWN.min(card.buffers.memory);
    let sent = pipeline::run(card, drawn, (2, 3), Variation::None, 0);
    text += &format!("\nTWO MESSAGES OF {drawn} AT A TIME: host, transfer, set-up, network\n");
    for line in picture::timeline(&sent.timeline, card.buffers.banks).lines() {
        text += &format!("    {line}\n");
    }
    text
}

/// The control of an adapter in Verilog, with a test bench that sends messages of 4 KB (E-130).
///
/// # Errors
/// Names the options that have no hardware.
pub fn verilog(card: &Description) -> Result<String, String> {
    let len = DRAWN.min(card.buffers.memory);
    hardware(card, &Bench { len, depth: card.queueing.depth, messages: 100, period: CLOCK })
}

/// An adapter drawn as SVG.
pub fn svg(card: &Description) -> String {
    picture::svg(card)
}

/// A bundled adapter by name.
///
/// # Errors
/// As [`page`].
pub fn read(name: &str, library: &dyn Library) -> Result<Description, String> {
    let names = || library.names(FOLDER).join(", ");
    let text = library
        .profile(FOLDER, name)
        .map_err(|_| format!("there is no adapter `{name}`: they are {}", names()))?;
    let file = format!("profiles/{FOLDER}/{name}.toml");
    device(&file, text.as_bytes(), library).map_err(|problems| {
        problems.iter().map(|problem| problem.render(false)).collect::<String>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Builtin;

    #[test]
    fn e_126_each_bundled_adapter_takes_fewer_than_100_lines_and_has_a_page() {
        let names = Builtin.names(FOLDER);
        assert_eq!(names, ["cim", "disk", "osiris-board", "pcie4", "simple-nic"]);
        for name in names {
            let text = Builtin.profile(FOLDER, &name).unwrap_or_default();
            assert!(text.lines().count() < 100, "{name}");
            let page = page(&name, &Builtin).unwrap_or_else(|error| panic!("{error}"));
            assert!(page.contains("network interface") && page.contains("message 2 |"), "{page}");
        }
    }

    #[test]
    fn e_46_errors_are_reported_at_their_place() {
        let text = Builtin.profile(FOLDER, "cim").unwrap_or_default();
        let wrong = |from: &str, to: &str| {
            let changed = text.replace(from, to);
            assert_ne!(text, changed, "the change must change something");
            match device("card.toml", changed.as_bytes(), &Builtin) {
                Ok(_) => panic!("`{to}` is accepted"),
                Err(problems) => problems.iter().map(|p| p.render(false)).collect::<String>(),
            }
        };
        for (from, to, said) in [
            ("kind = \"fifo\"", "kind = \"pipe\"", "pipe"),
            ("block = \"256 B\"", "block = 256", "card.toml"),
            ("[queueing]", "[queuing]", "queuing"),
            ("banks = 1", "banks = 0", "banks"),
            ("depth = 2", "deep = 2", "deep"),
            ("stages = 3", "stages = 4", "4"),
            ("banks = 1", "banks = 1\nseparate-headers = true", "without a length"),
            ("banks = 1", "banks = 1\nheader = \"54 B\"", "no separate buffers"),
            ("discipline = \"fifo\"", "discipline = \"edd\"", "qos = true"),
            ("model = \"point-to-point\"", "model = \"intermittent\"", "without `rotation`"),
            ("overlap = 33", "overlap = 33\nholding = \"1 ms\"", "no token"),
            ("model = \"point-to-point\"", "model = \"statistical\"", "without `slot`"),
            ("overlap = 33", "overlap = 33\nslot = \"1 ms\"", "without collisions"),
            (
                "model = \"point-to-point\"",
                "model = \"intermittent\"\nrotation = \"1 ms\"\nholding = \"1 ms\"",
                "1 ms of 1 ms",
            ),
            ("per-block = \"1.76 us\"", "per-block = \"1000 s\"", "for each 256 B"),
            ("per-byte = \"0.31 us/B\"", "per-byte = \"9000 us/B\"", "too slow"),
            ("overlap = 33", "overlap = 33\nframing = \"1 GiB\"", "out of range"),
            (
                "model = \"point-to-point\"",
                "model = \"statistical\"\ncollisions = 9\nslot = \"2 s\"",
                "write at most 1 s",
            ),
        ] {
            let message = wrong(from, to);
            assert!(message.contains(said) && message.contains("card.toml:"), "{message}");
        }
    }

    /// Replaces runs of digits in a text: each change gives the index of the run and the new number.
    fn renumbered(text: &str, changes: &[(u16, u64)]) -> String {
        let mut text = text.to_owned();
        for &(which, number) in changes {
            let starts: Vec<usize> = text
                .char_indices()
                .filter(|&(at, c)| {
                    let before = at > 0 && text.as_bytes()[at - 1].is_ascii_digit();
                    c.is_ascii_digit() && !before
                })
                .map(|(at, _)| at)
                .collect();
            let Some(&from) = starts.get(usize::from(which) % starts.len().max(1)) else {
                continue;
            };
            let len = text[from..].bytes().take_while(u8::is_ascii_digit).count();
            text.replace_range(from..from + len, &number.to_string());
        }
        text
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

        /// Whatever numbers a description has, it is either refused at its place or has a page.
        #[test]
        fn e_46_no_number_in_a_description_causes_a_panic(
            which in 0usize..4,
            changes in proptest::collection::vec((proptest::prelude::any::<u16>(), 0u32..64), 1..5),
            low in proptest::prelude::any::<u64>(),
        ) {
            let name = &Builtin.names(FOLDER)[which];
            let text = Builtin.profile(FOLDER, name).unwrap_or_default();
            // Numbers of every magnitude.
            let changes: Vec<(u16, u64)> =
                changes.into_iter().map(|(which, bits)| (which, low >> bits)).collect();
            crate::fuzz::fuzz_device(renumbered(&text, &changes).as_bytes());
        }
    }
}
