//! Real-time channels as a kind of traffic: how experiments describe them, and what runs at their hosts.

use super::admission::buffers;
use super::contract::Contract;
use super::element::{Labels, Options, Receiver, Sender};
use super::policing::Excess;
use lastmeter_base::kind::{Family, Kind, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{Ends, TrafficKind};

/// How experiments describe it.
pub const PAGE: &Page = &Page {
    name: "channel",
    family: Family::Traffic,
    what: "A real-time channel: messages with a deadline guaranteed by every link of the path.",
    ports: "application --> police --> packets --> links with `edd` --> reassembly",
    params: &[
        Param::required("message", ParamKind::BUFFER).is("S_max: the length of its messages"),
        Param::required("interval", ParamKind::Time).is("I_min: least time between messages"),
        Param::or("burst", ParamKind::Integer { min: 1, max: 1 << 20 }, "1")
            .is("B_max: messages that may arrive at once"),
        Param::or("packet", ParamKind::PACKET, "1500 B").is("longest packet of a message"),
        Param::or("bursty", ParamKind::Flag, "false")
            .is("its source makes bursts of 1 to `burst` messages, at the same rate"),
        Param::or("times", ParamKind::Number { min: 0.001, max: 1000.0 }, "1.0")
            .is("factor by which its source exceeds the contract"),
        Param::or("excess", ParamKind::Choice(&["drop", "delay", "relax"]), "drop").is(
            "messages in excess of the contract that find no buffer are dropped, wait at their \
             source, or continue with a later deadline",
        ),
        Param::or("promised", ParamKind::Flag, "true").is(
            "whether each link must guarantee its part of the deadline; if not, the channel runs \
             without guarantees",
        ),
        Param::or("shaped", ParamKind::Flag, "false")
            .is("messages wait at their source for their logical arrival"),
        Param::or("sender", ParamKind::Time, "0 s")
            .is("the sending host's share of the deadline: admission knows only links"),
        Param::or("receiver", ParamKind::Time, "0 s").is("the same for the receiving host"),
    ],
    source: "Indiresan, University of Michigan, 1997, §3.2; Kandlur, Shin & Ferrari, IEEE TPDS \
             5(10), 1994",
    deviations: &[
        "Channels are established before the run, in the order of the file; a channel whose \
         deadline a link cannot guarantee is an error that says why.",
        "A packet's slot at the source is freed when the packet must have left by its bound, not \
         when the link has sent it.",
    ],
    counters: &[
        ("messages", "complete messages"),
        ("late", "of these, after their deadline"),
        ("incomplete", "messages received in part"),
        ("refused", "packets that the policer dropped"),
    ],
    drops: &[
        ("beyond contract", "packets that the policer dropped"),
        ("nobody receives here", "packets sent to its source"),
    ],
    example: one_way! {
        "1 s", "camera" ["switch" = "router = {}"] "screen",
        [r#"rate = "100 Mbit/s""#, r#"framing = "24 B""#, "queue = { edd = {} }"],
        "video" [
            r#"deadline = "20 ms""#,
            r#"channel = { message = "60 KiB", interval = "33 ms", burst = 2, bursty = true }"#,
        ],
        "files" [r#"poisson = { rate = "95 Mbit/s", size = "1500 B" }"#]
    },
    ..Page::at(here!())
};

/// Its line.
pub const KIND: Kind =
    Kind::new(PAGE, &TrafficKind { responds: |_| false, ends, together: "channel", own: &Channel });

/// What identifies its kind.
struct Channel;

/// Whether a traffic is one.
pub fn is(traffic: &Nested) -> bool {
    traffic.maker::<TrafficKind>().own.is::<Channel>()
}

/// A sender for each channel, and one receiver for all.
fn ends(ends: &mut Ends<'_>) -> Result<(), Error> {
    let host = ends.site.name;
    for flow in std::mem::take(&mut ends.sent) {
        // One that was refused has been reported.
        let Some(leaves) = flow.leaves else { continue };
        let values = &flow.kind.values;
        let contract = contract(values, flow.common.get("deadline"));
        let options = Options {
            contract,
            slots: buffers::slots(&contract, buffers::at_source(&contract, leaves)),
            leaves,
            excess: excess(values),
            gap: gap(values),
            bursty: values.get("bursty"),
            shaped: values.get("shaped"),
            start: flow.start(),
            random_phase: flow.random_phase(),
            stop: flow.stop(),
            messages: flow.packets_max(),
        };
        let labels = Labels {
            path: flow.there,
            flow: flow.id(),
            destination: flow.to,
            class: flow.service(),
            hops: flow.hops(),
        };
        let peer = ends.site.network.name(flow.to);
        let name = |class: &str| format!("{host} sends {class} to {peer}");
        let sender = ends.add(&flow, name, Sender::new(options, labels))?;
        ends.sends(sender);
    }
    let received = std::mem::take(&mut ends.received);
    if received.is_empty() {
        return Ok(());
    }
    let mut receiver = Receiver::default();
    received.iter().for_each(|flow| receiver.add(flow.there, flow.id()));
    let element = ends.site.graph.add(format!("{host} receives channels"), receiver)?;
    let takes = received.iter().map(|flow| (flow.there, Some(flow.id()))).collect();
    ends.receives(element, takes);
    Ok(())
}

/// The contract of a channel that is to arrive within `deadline`.
pub fn contract(values: &Values, deadline: Duration) -> Contract {
    Contract {
        message_max: values.get("message"),
        interval_min: values.get("interval"),
        burst_max: values.get("burst"),
        packet_max: values.get::<Bytes>("packet"),
        deadline,
    }
}

/// What happens to messages in excess of the contract.
fn excess(values: &Values) -> Excess {
    match values.get::<String>("excess").as_str() {
        "delay" => Excess::Delay,
        "relax" => Excess::Relax,
        _ => Excess::Drop,
    }
}

/// The interval between the source's messages.
pub fn gap(values: &Values) -> Duration {
    let interval: Duration = values.get("interval");
    let gap = interval.as_secs_f64() / values.get::<f64>("times");
    Duration::from_secs_f64(gap).max(Duration::from_ps(1))
}
