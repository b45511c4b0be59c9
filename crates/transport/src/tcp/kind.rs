//! TCP connections as a kind of traffic: how experiments describe them, and what runs at their hosts.

use super::control::Kind as Control;
use super::{Application, Config, Labels, Recovery, TcpHost};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Draw, Duration, FlowId, PathId, Rate, Stream, Time, here};
use lastmeter_engine::Error;
use lastmeter_engine::site::{Ends, Flow, TrafficKind};
use std::collections::BTreeMap;

const CLASS: ParamKind = ParamKind::Integer { min: 0, max: 255 };
const SEGMENTS: ParamKind = ParamKind::Integer { min: 1, max: 1 << 20 };
/// Most connections between two hosts: they are distinguished by ports.
pub const CONNECTIONS_MAX: u64 = 50_000;

/// How experiments describe it.
pub const PAGE: &Page = &Page {
    name: "tcp",
    family: Family::Traffic,
    what: "TCP connections that send data one way, with every mechanism as a switch.",
    ports: "source out --> segments --> sink
source in <-- acknowledgements <-- sink",
    params: &[
        Param::or("connections", ParamKind::Integer { min: 1, max: CONNECTIONS_MAX }, "1")
            .is("between each pair of hosts"),
        Param::optional("bytes", ParamKind::DrawBytes, "no end")
            .is("data that each sends before it closes; each draws its own"),
        Param::optional("gap", ParamKind::Draw, "all at `start`")
            .is("from the start of one connection of a pair to that of the next"),
        Param::optional("rate", ParamKind::Rate, "no limit")
            .is("rate at which each application writes"),
        Param::or("spread", ParamKind::Time, "0 s")
            .is("each starts at a random time within this after `start`"),
        Param::or("control", ParamKind::Choice(CONTROLS), "reno").is("congestion control"),
        Param::or("recovery", ParamKind::Choice(RECOVERIES), "newreno")
            .is("loss recovery without SACK"),
        Param::or("sack", ParamKind::Flag, "true")
            .is("selective acknowledgements (RFC 2018, 6675)"),
        Param::or("proportional", ParamKind::Flag, "false")
            .is("with SACK, proportional rate reduction (RFC 9937)"),
        Param::or("timestamps", ParamKind::Flag, "true").is("timestamps (RFC 7323)"),
        Param::or("scaling", ParamKind::Flag, "true").is("window scaling (RFC 7323)"),
        Param::or("ecn", ParamKind::Flag, "false").is("ECN marks instead of drops (RFC 3168)"),
        Param::or("mss", ParamKind::Size { min: 64, max: 65_495 }, "1460 B")
            .is("largest segment, including options"),
        Param::or("send-buffer", ParamKind::BUFFER, "1 MiB").is("limit on unacknowledged data"),
        Param::or("receive-buffer", ParamKind::BUFFER, "1 MiB")
            .is("limit of the advertised window"),
        Param::or("initial-window", SEGMENTS, "10").is("segments (RFC 6928)"),
        Param::optional("initial-threshold", ParamKind::BUFFER, "no limit")
            .is("ssthresh of the first slow start"),
        Param::or("growth-max", SEGMENTS, "2")
            .is("segments added per acknowledgement in slow start (RFC 3465)"),
        Param::or("counts", ParamKind::Choice(&["bytes", "acknowledgements"]), "bytes")
            .is("what the window grows by: bytes, as in Linux, or acknowledgements (RFC 5681)"),
        Param::or("halves", ParamKind::Choice(&["window", "flight"]), "window")
            .is("what a loss halves: the window, as in Linux and BSD, or what is in flight"),
        Param::or("catches-up", ParamKind::Flag, "true")
            .is("CUBIC: grows as Reno beyond the window before a loss (RFC 9438), unlike Linux's"),
        Param::or("hystart", ParamKind::Flag, "false")
            .is("slow start ends when round-trip times rise (RFC 9406); needs timestamps"),
        Param::or("acknowledge-every", ParamKind::Integer { min: 1, max: 255 }, "2")
            .is("full segments per acknowledgement (RFC 1122)"),
        Param::optional("acknowledge-writes", ParamKind::BUFFER, "no writes end")
            .is("size of a program's writes, whose ends are acknowledged at once, as by Linux"),
        Param::or("acknowledge-within", ParamKind::Time, "40 ms")
            .is("maximum delay of an acknowledgement"),
        Param::or("acknowledge-first", ParamKind::Flag, "false")
            .is("acknowledge the first segment at once"),
        Param::or("acknowledge-opening", ParamKind::Flag, "false")
            .is("the handshake's last acknowledgement travels without data, as in Linux"),
        Param::or("limited-transmit", ParamKind::Flag, "true").is("limited transmit (RFC 3042)"),
        Param::or("nagle", ParamKind::Flag, "true").is("small segments wait (RFC 9293 3.7.4)"),
        Param::or("timeout-initial", ParamKind::Time, "1 s")
            .is("RTO before the first sample (RFC 6298)"),
        Param::or("timeout-min", ParamKind::Time, "200 ms").is("minimum RTO"),
        Param::or("granularity", ParamKind::Time, "1 ms")
            .is("resolution of the timer and timestamp clock"),
        Param::or("careful", ParamKind::Flag, "false")
            .is("Tahoe, Reno: ignore duplicates for data sent before a timeout"),
        Param::or("one-for-two", ParamKind::Flag, "false").is("Hoe: half rate in recovery"),
        Param::optional("burst-max", SEGMENTS, "no limit")
            .is("Hoe: most segments sent per acknowledgement"),
        Param::or("estimates-start", ParamKind::Flag, "false")
            .is("Hoe: ssthresh from the spacing of the first acknowledgements"),
        Param::or("class", CLASS, "0").is("class of packets with data"),
        Param::or("class-acknowledging", CLASS, "0").is("class of packets without data"),
    ],
    source: "RFC 9293, 5681, 6298, 6582, 6675, 7323, 3168, 9438, 9406, 8257; Hoe, MIT 1995; \
             draft-cardwell-iccrg-bbr-congestion-control-00",
    deviations: &[
        "One segment is timed at a time, exactly; timestamps give samples only during loss \
         recovery.",
        "A closed window is probed with a sequence number below it and no data.",
        "The window is not reduced after an idle period.",
        "BBR is version 1 as in its draft, without Linux's additions: models of policers and of \
         aggregated acknowledgements.",
    ],
    counters: &[
        ("connections", "ends at this host"),
        ("segments", "segments sent, of any kind"),
        ("acknowledged", "bytes acknowledged by peers"),
        ("consumed", "bytes read by applications here"),
        ("least", "fewest bytes of a connection"),
        ("most", "most bytes of a connection"),
        ("deviation", "standard deviation of the bytes of connections"),
        ("retransmissions", "segments retransmitted"),
        ("recoveries", "loss events detected by acknowledgements"),
        ("timeouts", "expiries of the retransmission timer"),
        ("waited_ps", "total running time of expired timers, in picoseconds"),
        ("repairing_ps", "time from detecting losses to their repair, in picoseconds"),
        ("burst_most", "most segments sent at one event"),
        ("reductions", "window reductions due to marks"),
        ("window", "congestion windows at the end, in bytes"),
        ("rtt_mean_ps", "mean of the smoothed round-trip times, in picoseconds"),
    ],
    drops: &[("no connection", "segments of no connection")],
    example: r#"
duration = "1 s"
[nodes]
alice = { host = {} }
router = { router = {} }
bob = { host = {} }
[[links]]
between = ["alice", "router"]
rate = "100 Mbit/s"
delay = "1 ms"
[[links]]
between = ["router", "bob"]
rate = "10 Mbit/s"
delay = "10 ms"
queue = { drop-tail = { packets = 30 } }
[[traffic]]
name = "transfer"
from = "alice"
to = "bob"
tcp = { connections = 2, control = "cubic" }
"#,
    ..Page::at(here!())
};

const CONTROLS: &[&str] = &["reno", "cubic", "dctcp", "bbr"];
const RECOVERIES: &[&str] = &["tahoe", "reno", "newreno"];

/// Its line.
pub const KIND: Kind =
    Kind::new(PAGE, &TrafficKind { responds: |_| true, ends, together: "tcp", own: &() });

/// One element for each traffic that a host takes part in: first those that send data.
fn ends(ends: &mut Ends<'_>) -> Result<(), Error> {
    let name = ends.site.name;
    for (sends, what) in [(true, "sends"), (false, "receives")] {
        let flows = std::mem::take(if sends { &mut ends.sent } else { &mut ends.received });
        let mut by_traffic: BTreeMap<usize, Vec<Flow<'_>>> = BTreeMap::new();
        flows.into_iter().for_each(|flow| by_traffic.entry(flow.traffic).or_default().push(flow));
        for pairs in by_traffic.into_values() {
            let Flow { there, .. } = pairs[0];
            let back = pairs[0].back.expect("connections have a way back");
            let (out, taken) = if sends { (there, back) } else { (back, there) };
            let host =
                host(&pairs, (sends, out), ends.site.stream(&format!("/{}", pairs[0].stream())));
            let (first, count) = (host.first(), host.connections().count() as u32);
            let element = ends.add(&pairs[0], |class| format!("{name} {what} {class}"), host)?;
            let takes = (first.0..first.0 + count).map(|flow| (taken, Some(FlowId(flow))));
            ends.receives(element, takes.collect());
            ends.sends(element);
        }
    }
    Ok(())
}

/// The ends of one traffic's connections, which are numbered pair by pair.
fn host(pairs: &[Flow<'_>], (sends, path): (bool, PathId), mut stream: Stream) -> TcpHost {
    let values = &pairs[0].kind.values;
    let connections = values.get::<u64>("connections") as u32;
    let class = |name| values.get::<u64>(name) as u8;
    let (class, class_acknowledging) = (class("class"), class("class-acknowledging"));
    let labels = Labels { path, class, class_acknowledging };
    let first = FlowId(pairs[0].number * connections);
    let mut host = TcpHost::new(labels, config(values), first);
    for flow in pairs {
        let mut start = flow.start();
        for _ in 0..connections {
            let (peer, application) = match sends {
                true => (flow.to, source(values, &mut start, &mut stream)),
                false => (flow.from, Application::Sink),
            };
            host.add(peer, application);
        }
    }
    host
}

/// The options set in the experiment.
fn config(values: &Values) -> Config {
    let flag = |name| values.get::<bool>(name);
    let count = |name| values.get::<u64>(name);
    Config {
        mss: values.get::<Bytes>("mss").0 as u16,
        control: match values.get::<String>("control").as_str() {
            "cubic" => Control::Cubic,
            "dctcp" => Control::Dctcp,
            "bbr" => Control::Bbr,
            _ => Control::Reno,
        },
        recovery: match values.get::<String>("recovery").as_str() {
            "tahoe" => Recovery::Tahoe,
            "reno" => Recovery::Reno,
            _ => Recovery::NewReno,
        },
        sack: flag("sack"),
        proportional: flag("proportional"),
        timestamps: flag("timestamps"),
        scaling: flag("scaling"),
        ecn: flag("ecn"),
        send_buffer: values.get("send-buffer"),
        receive_buffer: values.get("receive-buffer"),
        initial_window: count("initial-window") as u32,
        initial_threshold: values.given("initial-threshold"),
        growth_max: count("growth-max") as u32,
        counts_bytes: values.get::<String>("counts") == "bytes",
        halves_window: values.get::<String>("halves") == "window",
        catches_up: flag("catches-up"),
        hystart: flag("hystart"),
        acknowledge_every: count("acknowledge-every") as u8,
        acknowledge_writes: values.given("acknowledge-writes"),
        acknowledge_within: values.get("acknowledge-within"),
        acknowledge_first: flag("acknowledge-first"),
        acknowledge_opening: flag("acknowledge-opening"),
        limited_transmit: flag("limited-transmit"),
        nagle: flag("nagle"),
        timeout_initial: values.get("timeout-initial"),
        timeout_min: values.get("timeout-min"),
        timeout_max: Config::modern().timeout_max.max(values.get("timeout-min")),
        granularity: values.get("granularity"),
        careful: flag("careful"),
        one_for_two: flag("one-for-two"),
        burst_max: values.given::<u64>("burst-max").map(|count| count as u32),
        estimates_start: flag("estimates-start"),
        ..Config::modern()
    }
}

/// One connection's source; `stream` draws its start, to which `start` is set, and its bytes.
fn source(values: &Values, start: &mut Time, stream: &mut Stream) -> Application {
    if let Some(gap) = values.given::<Draw>("gap") {
        *start += gap.sample(stream);
    }
    let spread = values.get::<Duration>("spread").as_ps();
    let start = *start + Duration::from_ps(stream.below(spread.max(1)));
    let chunk = values.get::<Bytes>("mss");
    let paced = values.given::<Rate>("rate").map(|rate| (chunk, rate.time_for(chunk)));
    let bytes = values.given::<Draw<Bytes>>("bytes").map(|bytes| bytes.sample(stream));
    Application::Source { start, bytes, paced }
}
