//! Wave Video as a kind of traffic: a sender that plays a sequence, and receivers that show it and say how good it is.
//!
//! ```text
//! frame n --> its packets, the most important first, evenly over the frame's time --> out
//! in --> decoder --> picture beside the original --> PSNR, bands
//! ```

use crate::Decoder;
use crate::decoder::Shown;
use crate::measure::SERIES;
use crate::picture::{CIF, QCIF};
use crate::sequence::Sequence;
use crate::stream::{Film, HEADERS_LEN, Judge, Options, emit, mask, renumbered};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, FlowId, NodeId, Packet, PathId, Time, content_tag, here};
use lastmeter_engine::site::{Ends, Flow, TrafficKind};
use lastmeter_engine::{Context, Element, Error, PortId, Report, Series, TimerId};
use lastmeter_wire::wave;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// How experiments describe it.
pub const PAGE: &Page = &Page {
    name: "wave-video",
    family: Family::Traffic,
    what: "Wave Video: frames in 33 sub-bands, each packet a piece of one; the receiver measures \
           what it shows.",
    ports: "(frames) --> out, in --> (screen)",
    params: &[
        Param::or("sequence", ParamKind::Choice(&["talking-head", "panning"]), "panning")
            .is("what it shows: little motion, or more"),
        Param::or("frames", ParamKind::Integer { min: 1, max: 4096 }, "36")
            .is("frames after which the sequence repeats"),
        Param::or("size", ParamKind::Choice(&["qcif", "cif"]), "qcif")
            .is("176 by 144 pixels, or 352 by 288"),
        Param::or("rate", ParamKind::Integer { min: 1, max: 1000 }, "12").is("frames a second"),
        Param::or("step", ParamKind::Integer { min: 1, max: 255 }, "1")
            .is("of the quantiser; 1 loses nothing"),
        Param::or("code", ParamKind::Size { min: 64, max: 1400 }, "1400 B")
            .is("most code in a packet"),
        Param::or("spread", ParamKind::Integer { min: 0, max: 100 }, "90")
            .is("per cent of a frame's time over which its packets are sent"),
    ],
    source: "Kuhns et al., Design of a High Performance Dynamically Extensible Router, §5",
    deviations: &[
        "Sequences and codec are our own; the rates are the document's.",
        "Each receiver gets packets of its own: no node here copies packets for several.",
    ],
    drops: &[("sent to a source", "packets sent to its sender, which expects none")],
    counters: &[
        ("frames", "frames shown"),
        ("exact", "frames that were the original"),
        ("nothing", "frames of which nothing came"),
        ("broken", "frames of which something came, but not all of the lowest bands"),
        ("psnr", "mean PSNR of luma, in thousandths of a dB"),
        ("psnr_least", "the worst frame's"),
        ("sent", "packets made"),
    ],
    example: r#"
duration = "1 s"
[nodes]
camera = { host = {} }
screen = { host = {} }
[[links]]
between = ["camera", "screen"]
rate = "3 Mbit/s"
[[traffic]]
name = "street"
from = "camera"
to = "screen"
wave-video = { sequence = "panning", frames = 4 }
"#,
    ..Page::at(here!())
};

/// Its line.
pub const KIND: Kind =
    Kind::new(PAGE, &TrafficKind { responds: |_| false, ends, together: "wave-video", own: &() });

/// What a traffic's values say.
pub fn options(values: &Values) -> Options {
    let sequence: String = values.get("sequence");
    Options {
        sequence: Sequence::named(&sequence).expect("it is one of the choices"),
        frames: values.get::<u64>("frames") as u32,
        size: if values.get::<String>("size") == "cif" { CIF } else { QCIF },
        rate: values.get("rate"),
        step: values.get::<u64>("step") as u8,
        code_len: values.get::<Bytes>("code").0 as usize,
        spread: values.get("spread"),
    }
}

fn ends(ends: &mut Ends<'_>) -> Result<(), Error> {
    let host = ends.site.name;
    let mut films: Vec<(Options, Arc<Film>)> = Vec::new();
    for flow in std::mem::take(&mut ends.sent) {
        let options = options(&flow.kind.values);
        let known = films.iter().find(|film| film.0 == options).map(|film| Arc::clone(&film.1));
        let film = known.unwrap_or_else(|| {
            films.push((options, Arc::new(options.film())));
            Arc::clone(&films[films.len() - 1].1)
        });
        let peer = ends.site.network.name(flow.to);
        let name = |class: &str| format!("{host} sends {class} to {peer}");
        let sender = ends.add(&flow, name, Sender::new(&flow, options, film))?;
        ends.sends(sender);
    }
    for flow in std::mem::take(&mut ends.received) {
        let options = options(&flow.kind.values);
        let name = |class: &str| format!("{host} shows {class}");
        let screen = ends.add(&flow, name, Screen::new(options, flow.start()))?;
        ends.receives(screen, vec![(flow.there, Some(flow.id()))]);
    }
    Ok(())
}

const NEXT: TimerId = TimerId(0);

/// Plays a film.
struct Sender {
    options: Options,
    film: Arc<Film>,
    path: PathId,
    flow: FlowId,
    destination: NodeId,
    class: u8,
    hops: u8,
    start: Time,
    stop: Time,
    packets_max: u64,
    frame: u32,
    packet: usize,
    sent: u64,
}

impl Sender {
    fn new(flow: &Flow<'_>, options: Options, film: Arc<Film>) -> Sender {
        Sender {
            options,
            film,
            path: flow.there,
            flow: flow.id(),
            destination: flow.to,
            class: flow.service(),
            hops: flow.hops(),
            start: flow.start(),
            stop: flow.stop(),
            packets_max: flow.packets_max(),
            frame: 0,
            packet: 0,
            sent: 0,
        }
    }
    fn packets(&self) -> &[Vec<u8>] {
        &self.film[(self.frame % self.options.frames) as usize]
    }
    fn due(&self) -> Time {
        self.start + self.options.due(self.frame, self.packets(), self.packet)
    }
    fn send(&mut self, cx: &mut Context<'_>) {
        let payload = renumbered(&self.packets()[self.packet], self.frame);
        let len = Bytes((HEADERS_LEN + payload.len()) as u64);
        let mut packet = cx.make(self.path, len);
        packet.flow = self.flow;
        packet.destination = self.destination;
        packet.seq = self.sent;
        packet.class = self.class;
        packet.hops = self.hops;
        packet.ends = true;
        packet.tag = content_tag(self.path.0, self.flow.0, self.sent);
        let (path, to) = (self.path.0, self.destination.0);
        let address =
            |net: u8, number: u32| Ipv4Addr::new(10, net, (number >> 8) as u8, number as u8);
        emit(address(128, path), address(0, to), self.flow.0 as u16, &payload, &mut packet.content);
        self.sent += 1;
        cx.send(PortId(0), packet);
    }
    fn next(&mut self) {
        self.packet += 1;
        if self.packet >= self.packets().len() {
            (self.frame, self.packet) = (self.frame + 1, 0);
        }
    }
}

impl Element for Sender {
    fn start(&mut self, cx: &mut Context<'_>) {
        cx.arm(NEXT, self.due());
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        cx.drop(packet, None, "sent to a source");
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        while self.due() <= cx.now() {
            if cx.now() >= self.stop || self.sent >= self.packets_max {
                return;
            }
            self.send(cx);
            self.next();
        }
        cx.arm(NEXT, self.due());
    }
    fn report(&self, out: &mut Report) {
        out.count("sent", self.sent);
    }
}

/// Shows a film.
struct Screen {
    options: Options,
    decoder: Decoder,
    judge: Judge,
    start: Time,
    shown: Vec<Shown>,
    psnr: Series,
    bands: Series,
}

impl Screen {
    fn new(options: Options, start: Time) -> Screen {
        Screen {
            options,
            decoder: Decoder::new(options.size.0, options.size.1),
            judge: Judge::new(options),
            start,
            shown: Vec::new(),
            psnr: Series::whole_run(),
            bands: Series::whole_run(),
        }
    }
}

/// A thousandth of a dB.
fn thousandths(decibels: f64) -> u64 {
    (decibels * 1000.0).round() as u64
}

impl Element for Screen {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let payload = packet.content.get(HEADERS_LEN..).unwrap_or_default();
        match wave::Packet::parse(payload) {
            Ok(piece) => self.decoder.take(&piece, &mut self.shown),
            Err(_) => cx.note_corrupted(packet.path),
        }
        for shown in self.shown.drain(..) {
            let at = self.start + self.options.begins(shown.frame);
            self.psnr.record(at, thousandths(self.judge.see(&shown)));
            self.bands.record(at, mask(&shown));
        }
        cx.deliver(packet);
    }
    fn timers(&self) -> u32 {
        0
    }
    fn report(&self, out: &mut Report) {
        let judge = &self.judge;
        out.count("frames", judge.frames);
        out.count("exact", judge.exact);
        out.count("nothing", judge.nothing);
        out.count("broken", judge.broken);
        if judge.frames > 0 {
            out.count("psnr", thousandths(judge.psnr / judge.frames as f64));
            out.count("psnr_least", thousandths(judge.least));
        }
        out.series(SERIES[0], "mdB", &self.psnr);
        out.series(SERIES[1], "set of bands", &self.bands);
    }
}
