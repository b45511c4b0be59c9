//! A link that sends application data units, as an element.
//!
//! ```text
//! any in --> [ units by class ] --> one at a time, interrupted by more urgent ones --> out 0
//! ```

use super::link::{Link, Sent, Way};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, StageId, here};
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{
    Context, Element, Error, Meter, PortId, Report, ResourceId, ResourceKind, TimerId,
};
use std::collections::BTreeMap;

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "adu-link",
    family: Family::Node,
    what: "A link that sends whole application data units, and interrupts them for more urgent \
           ones.",
    ports: "any in --> [ units by class ] --> (line) --> link towards the destination",
    params: &[
        Param::required("rate", ParamKind::Rate).is("rate of the line"),
        Param::or("way", ParamKind::Choice(&["whole", "continue", "cells", "packets"]), "whole")
            .is("whole units, cells of one unit until a more urgent one arrives, cells in turn, \
             packets in turn"),
        Param::or("quantum", ParamKind::PACKET, "64 B")
            .is("whole: the smallest fragment before an interruption"),
        Param::or("payload", ParamKind::PACKET, "1500 B").is("packets: most data per packet"),
        Param::or("header", ParamKind::Size { min: 0, max: 1024 }, "11 B")
            .is("whole, packets: header and gap of each fragment"),
        Param::or("units", ParamKind::COUNT, "10000").is("limit on units held"),
    ],
    source: "The Aurora final report, MIT part, §2.5, §3.7; Lefelhocz, MIT/LCS/TR-621, 1994",
    deviations: &["Each packet is a unit; its class is its priority; higher is more urgent."],
    counters: &[
        ("served", "units sent"),
        ("decisions", "scheduling decisions"),
        ("interruptions", "units that were interrupted"),
        ("fragments", "fragments, cells or packets on the line"),
        ("refused", "units dropped by a full queue"),
    ],
    drops: &[("full", "units that the full queue refused")],
    example: r#"
duration = "50 ms"
[nodes]
camera = { host = {} }
control = { host = {} }
switch = { adu-link = { rate = "155 Mbit/s" } }
display = { host = {} }
[[links]]
between = ["camera", "switch"]
[[links]]
between = ["control", "switch"]
[[links]]
between = ["switch", "display"]
[[traffic]]
name = "frames"
from = "camera"
to = "display"
constant = { rate = "120 Mbit/s", size = "64 KiB" }
[[traffic]]
name = "commands"
from = "control"
to = "display"
class = 7
constant = { rate = "1 Mbit/s", size = "64 B" }
"#,
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

/// A link as an experiment describes it.
fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let resource = site.resource("line", "", ResourceKind::Wire);
    let stage = site.stage("line", Some(&resource));
    let link = Link::new(stage.rate(values.get("rate")), way(values));
    let element = site.add(AduLink::new(link, values.get("units"), stage.id, resource.id))?;
    Ok(Ports::through(element))
}

fn way(values: &Values) -> Way {
    let (header, payload): (Bytes, Bytes) = (values.get("header"), values.get("payload"));
    match values.get::<String>("way").as_str() {
        "continue" => Way::Continue,
        "cells" => Way::Cells,
        "packets" => Way::Packets { payload, header },
        _ => Way::Whole { header, quantum: values.get("quantum") },
    }
}

/// The link as an element.
pub struct AduLink {
    link: Link,
    packets: BTreeMap<u64, Packet>,
    next: u64,
    units_max: u64,
    stage: StageId,
    meter: Meter,
    busy: bool,
    sent: Vec<Sent>,
    served: u64,
    refused: u64,
}

const END: TimerId = TimerId(0);

impl AduLink {
    /// An idle link with a queue of this many units.
    pub fn new(link: Link, units_max: u64, stage: StageId, resource: ResourceId) -> AduLink {
        AduLink {
            link,
            packets: BTreeMap::new(),
            next: 0,
            units_max,
            stage,
            meter: Meter::new(resource),
            busy: false,
            sent: Vec::new(),
            served: 0,
            refused: 0,
        }
    }

    fn advance(&mut self, cx: &mut Context<'_>) {
        let mut all = std::mem::take(&mut self.sent);
        self.link.advance(cx.now(), &mut |one| all.push(one));
        for one in all.drain(..) {
            let mut packet = self.packets.remove(&one.id).expect("each unit has its packet");
            self.served += 1;
            self.meter.moved(packet.len);
            if cx.collecting() {
                let took = one.ended - one.started;
                let service = self.link.alone(one.len).min(took);
                let wait = one.started - packet.entered;
                packet.visit(self.stage, wait, service, took - service);
            }
            cx.send(PortId(0), packet);
        }
        self.sent = all;
    }

    fn wait(&mut self, cx: &mut Context<'_>) {
        match self.link.ready_at() {
            Some(wake) => {
                cx.arm(END, wake);
                if !self.busy {
                    self.meter.serve(cx.now(), self.stage);
                }
                self.busy = true;
            }
            None if self.busy => {
                self.meter.rest(cx.now());
                self.busy = false;
            }
            None => {}
        }
    }
}

impl Element for AduLink {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        if self.packets.len() as u64 >= self.units_max {
            self.refused += 1;
            cx.drop(packet, Some(self.stage), "full");
            return;
        }
        self.advance(cx);
        packet.entered = cx.now();
        self.next += 1;
        let flow = u64::from(packet.path.0) << 32 | u64::from(packet.flow.0);
        self.link.offer(cx.now(), self.next, flow, packet.class, packet.len);
        self.packets.insert(self.next, packet);
        self.wait(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.advance(cx);
        self.wait(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.packets.len() as u64);
        out.meter(&self.meter);
        let counts = self.link.counts();
        out.count("served", self.served);
        out.count("decisions", counts.decisions);
        out.count("interruptions", counts.interruptions);
        out.count("fragments", counts.fragments);
        out.count("refused", self.refused);
    }
}
