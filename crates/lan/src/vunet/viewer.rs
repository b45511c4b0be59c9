//! An application that displays a camera's video: it opens its connection, requests video, reassembles frames,
//! requests the next frame when it is done with one, and maintains its connection.
//!
//! ```text
//! out 0 <-- control cells, command cells <-- [ connection | frames ] <-- video, answers <-- in 0
//! ```
//!
//! | timer | what |
//! |---|---|
//! | request | opens at the start; requests the next frame `think` after the last |
//! | verify | reads back the entries of every link, and refreshes those that are wrong |
//! | timeout | nothing arrived for `timeout`: requests again |
//!
//! So the rate adapts to network and application (closed loop, §3.5.2). Source: Aurora report §3.5.2, §3.6, §4.3;
//! the timeout is ours.

use super::camera::{check, line_len};
use super::connection::Connection;
use super::element::{cell_of, put_cell, set_requester};
use super::ends;
use super::{control_in, data_cell, is_control};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Packet, PathId, Time, here, one_way};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};
use lastmeter_wire::aal::reassembly::{CircuitOptions, Event, Options, Reassembler};
use lastmeter_wire::aal::vidboard::FrameHeader;
use lastmeter_wire::atm::vunet::{PORT_MAX, VUNET_CELL_LEN, VunetCell};
use lastmeter_wire::atm::{Circuit, Interface};
use lastmeter_wire::control::vidboard::{Code, Command, Mode};

const PIXELS: ParamKind = ParamKind::Integer { min: 1, max: 4096 };
const CELLS: ParamKind = ParamKind::Integer { min: 1, max: u16::MAX as u64 };

const COUNTERS: &[(&str, &str)] = &[
    ("frames", "frames received completely"),
    ("incomplete", "frames with something missing"),
    ("frame_latency_max_ps", "longest time from capture until a frame was complete"),
    ("frame_latency_sum_ps", "the same, summed over all frames"),
    ("requests", "commands sent for video and frames"),
    ("answers", "status cells received"),
    ("timeouts", "commands sent again because nothing had arrived"),
    ("verified", "reads of a link's entries that were correct"),
    ("refreshed", "links that were written again"),
    ("peer", "whether the camera has answered a ping"),
    ("set_up_ps", "time from the first control cell until the camera's answer; zero without one"),
];

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "vidboard",
    family: Family::Traffic,
    what: "Video of a camera on the VuNet, sent as the viewing application requests it.",
    ports: "camera out --> cells of video --> viewer\n\
            camera in <-- control and command cells <-- viewer",
    params: &[
        Param::or("width", PIXELS, "640").is("pixels per line"),
        Param::or("height", PIXELS, "480").is("lines per frame"),
        Param::or("depth", ParamKind::Integer { min: 8, max: 24 }, "8").is("bits per pixel"),
        Param::or("lines", PIXELS, "16").is("scan lines per PDU (LT)"),
        Param::or("burst", CELLS, "28").is("cells per burst (CB)"),
        Param::or("burst-delay", ParamKind::Time, "240 us")
            .is("from the start of a burst to the next, in whole us"),
        Param::or("frame-delay", ParamKind::Time, "0 s").is("delay after a frame, in whole us"),
        Param::or("mode", ParamKind::Choice(&["on-request", "free-run"]), "on-request")
            .is("whether each frame is requested"),
        Param::or("answer", ParamKind::Choice(&["newest", "next"]), "newest")
            .is("the answer to a request: the newest frame not yet sent, or the next one captured"),
        Param::or("dither", ParamKind::Time, "0 s").is("time of the board's firmware per pixel"),
        Param::or("phase", ParamKind::Time, "0 s").is("when the camera's first frame is complete"),
        Param::or("diagnose", ParamKind::Flag, "false")
            .is("whether it first requests the board's status"),
        Param::or("think", ParamKind::Time, "0 s").is("time of the application per frame"),
        Param::or("timeout", ParamKind::Time, "100 ms")
            .is("requests again when nothing has arrived for this long"),
        Param::or("verify", ParamKind::Time, "30 s").is("interval between verifications of links"),
        Param::optional(
            "channel",
            ParamKind::Integer { min: 0, max: PORT_MAX as u64 },
            "zebra channels in turn",
        )
        .is("the channel of a zebra that its connection uses"),
    ],
    source: "Aurora report, §3.3, §3.5.2, §3.6",
    deviations: &[
        "The viewer opens the connection; applications of its host access their file in turn.",
        "In a profile of the viewer's host, a cell is a packet. The last cell of a group of lines \
         ends a PDU, and so does a request for the next frame: `per-pdu` of a send stage is \
         the cost per frame.",
    ],
    counters: COUNTERS,
    drops: &[
        ("not a cell", "packets that are not a cell of the VuNet"),
        ("no command", "cells to the camera that are not a command"),
    ],
    example: one_way! {
        "100 ms", "camera" ["switch" = "vunet-switch = {}"] "alpha",
        [r#"rate = "500 Mbit/s""#, "queue = { drop-tail = { packets = 256 } }"],
        "video" ["vidboard = { width = 160, height = 120 }"]
    },
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &ends::MAKER);

/// Parameters of a viewer.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// The video.
    pub command: Command,
    /// Time per frame.
    pub think: Duration,
    /// Whether it first requests the board's status.
    pub diagnose: bool,
    /// The silence after which it requests again.
    pub timeout: Duration,
    /// The interval at which it verifies its connection.
    pub verify: Duration,
    /// When it starts.
    pub start: Time,
}

impl Wishes {
    /// Parameters from an experiment, for a connection.
    ///
    /// # Errors
    /// If a group of scan lines does not fit into a PDU, or a delay into its field.
    pub fn new(values: &Values, start: Time, connection: &Connection) -> Result<Wishes, String> {
        let number = |name: &str| values.get::<u64>(name) as u16;
        let us = |name: &str| values.get::<Duration>(name).as_ps() / 1_000_000;
        let wide = |name: &str| format!("`{name}` is too long for its field in a command cell");
        let (reply_vci, reply_port) = connection.peer_sends_on();
        let command = Command {
            code: Code::VideoRequest,
            depth: number("depth") as u8,
            sequence: 0,
            reply_vci,
            width: number("width"),
            height: number("height"),
            lines: number("lines"),
            burst: number("burst"),
            burst_delay: u16::try_from(us("burst-delay")).map_err(|_| wide("burst-delay"))?,
            frame_delay: u32::try_from(us("frame-delay")).map_err(|_| wide("frame-delay"))?,
            mode: match values.get::<String>("mode").as_str() {
                "free-run" => Mode::FreeRun,
                _ => Mode::OnRequest,
            },
            source: 0,
            crop: (0, 0),
            reply_port,
        };
        check(&command)?;
        let (think, timeout, verify) =
            (values.get("think"), values.get("timeout"), values.get("verify"));
        let diagnose = values.get("diagnose");
        Ok(Wishes { command, think, diagnose, timeout, verify, start })
    }
}

/// The frame being reassembled.
#[derive(Clone, Copy, Default)]
struct Frame {
    number: u32,
    lines: u16,
}

/// A whole frame, for a viewer that keeps what it sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// The frame's number.
    pub number: u32,
    /// Its pixels, line by line, in the command's format.
    pub pixels: Vec<u8>,
}

/// A viewer.
pub struct Viewer {
    path: PathId,
    flow: FlowId,
    me: NodeId,
    camera: NodeId,
    wishes: Wishes,
    connection: Connection,
    reassembler: Reassembler,
    frame: Frame,
    /// The pixels of that frame, if they are kept.
    canvas: Option<Vec<u8>>,
    /// When its first control cell left.
    opened: Option<Time>,
    set_up: Option<Duration>,
    sent: u64,
    frames: u64,
    incomplete: u64,
    latency_max: Duration,
    latency_sum: Duration,
    requests: u64,
    answers: u64,
    timeouts: u64,
}

/// What a viewer wants done.
#[derive(Default)]
pub struct Wants {
    /// Cells to send now, each of which ends a request for a frame or does not.
    pub cells: Vec<(VunetCell, bool)>,
    /// When the timers that were set or restarted expire: request, verify, timeout.
    pub timers: [Option<Time>; TIMERS],
    /// Whole frames, of a viewer that keeps them.
    pub pictures: Vec<Picture>,
}

/// Number of a viewer's timers.
pub const TIMERS: usize = 3;
const REQUEST: usize = 0;
const VERIFY: usize = 1;
const TIMEOUT: usize = 2;
/// Those timers of [`Wants::timers`] by which it asks for frames: who delays them sets the camera's pace.
pub const REQUESTS: [usize; 2] = [REQUEST, TIMEOUT];

impl Viewer {
    /// A viewer on node `me` of the camera on node `camera`, with commands accounted to a flow of `path`.
    pub fn new(
        (path, flow): (PathId, FlowId),
        (me, camera): (NodeId, NodeId),
        wishes: Wishes,
        connection: Connection,
    ) -> Viewer {
        let mut reassembler = Reassembler::new(Options::default_at(Interface::Uni));
        let circuit = Circuit { vpi: 0, vci: connection.hear_on() };
        reassembler.open(circuit, CircuitOptions::VIDBOARD).expect("one circuit of an empty table");
        Viewer {
            path,
            flow,
            me,
            camera,
            wishes,
            connection,
            reassembler,
            frame: Frame::default(),
            canvas: None,
            opened: None,
            set_up: None,
            sent: 0,
            frames: 0,
            incomplete: 0,
            latency_max: Duration::ZERO,
            latency_sum: Duration::ZERO,
            requests: 0,
            answers: 0,
            timeouts: 0,
        }
    }

    /// The same, which keeps what it sees: each whole frame is among what it wants done.
    pub fn keeping(self) -> Viewer {
        let Command { height, .. } = self.wishes.command;
        let len = line_len(&self.wishes.command) * usize::from(height);
        Viewer { canvas: Some(vec![0; len]), ..self }
    }

    fn request(&mut self, now: Time, code: Code, wants: &mut Wants) {
        self.requests += 1;
        self.command(code, wants);
        self.wait(now, wants);
    }

    fn command(&mut self, code: Code, wants: &mut Wants) {
        let sequence = self.requests as u16;
        let command = Command { code, sequence, ..self.wishes.command };
        let (vci, port) = self.connection.send_on();
        let cell = data_cell(vci, port, true, &command.emit());
        wants.cells.push((cell, code == Code::FrameRequest));
    }

    fn wait(&self, now: Time, wants: &mut Wants) {
        wants.timers[TIMEOUT] = Some(now + self.wishes.timeout + self.wishes.think);
    }

    /// A group of scan lines has arrived.
    fn group(&mut self, now: Time, header: FrameHeader) -> bool {
        if header.frame != self.frame.number {
            self.incomplete += u64::from(self.frame.lines > 0);
            self.frame = Frame { number: header.frame, lines: 0 };
        }
        self.frame.lines = self.frame.lines.saturating_add(header.lines);
        let whole = self.frame.lines >= self.wishes.command.height;
        if whole {
            self.frames += 1;
            self.frame.lines = 0;
            let captured = Duration::from_us(header.timestamp.into());
            let latency = now.since_start().saturating_sub(captured);
            self.latency_max = self.latency_max.max(latency);
            self.latency_sum += latency;
        }
        whole
    }

    fn data(&mut self, now: Time, cell: &VunetCell, wants: &mut Wants) {
        // No hop has checked the header, and each changed the channel, so the checksum is recomputed.
        let header = match self.reassembler.receive(now, &cell.to_atm_checked()) {
            Event::Pdu(pdu) => FrameHeader::parse(pdu.payload).ok().map(|(header, pixels)| {
                if let Some(canvas) = &mut self.canvas {
                    let from = usize::from(header.line) * line_len(&self.wishes.command);
                    // A group beyond the picture is not drawn.
                    if let Some(lines) = canvas.get_mut(from..from + pixels.len()) {
                        lines.copy_from_slice(pixels);
                    }
                }
                header
            }),
            Event::Held | Event::Lost(_) => None,
        };
        let Some(header) = header else { return };
        self.wait(now, wants);
        let whole = self.group(now, header);
        if let Some(canvas) = self.canvas.as_ref().filter(|_| whole) {
            wants.pictures.push(Picture { number: header.frame, pixels: canvas.clone() });
        }
        if whole && self.wishes.command.mode == Mode::OnRequest {
            wants.timers[REQUEST] = Some(now + self.wishes.think);
        }
    }

    /// Opens the connection, and requests video at the same time.
    fn open(&mut self, now: Time, wants: &mut Wants) {
        self.opened = Some(now);
        wants.cells.extend(self.connection.open().into_iter().map(|cell| (cell, false)));
        if self.wishes.diagnose {
            self.command(Code::Diagnose, wants);
        }
        self.ask_anew(now, wants);
        wants.timers[VERIFY] = Some(now + self.wishes.verify);
    }

    fn ask_anew(&mut self, now: Time, wants: &mut Wants) {
        self.request(now, Code::VideoRequest, wants);
        if self.wishes.command.mode == Mode::OnRequest {
            self.request(now, Code::FrameRequest, wants);
        }
    }

    /// It begins.
    pub fn begin(&self, wants: &mut Wants) {
        wants.timers[REQUEST] = Some(self.wishes.start);
    }

    /// A cell arrives.
    pub fn hear(&mut self, now: Time, cell: &VunetCell, wants: &mut Wants) {
        if control_in(cell).is_some() {
            let cells = self.connection.receive(cell);
            wants.cells.extend(cells.into_iter().map(|cell| (cell, false)));
            if let (true, None, Some(opened)) =
                (self.connection.seen.peer, self.set_up, self.opened)
            {
                self.set_up = Some(now.saturating_since(opened));
            }
        } else if is_control(cell) {
            let answer = Command::parse(cell.payload());
            self.answers += u64::from(answer.is_ok_and(|answer| answer.code == Code::Status));
        } else {
            self.data(now, cell, wants);
        }
    }

    /// A timer, by its place in [`Wants::timers`], expires.
    pub fn expire(&mut self, now: Time, timer: usize, wants: &mut Wants) {
        match timer {
            REQUEST if self.opened.is_none() => self.open(now, wants),
            REQUEST => self.request(now, Code::FrameRequest, wants),
            VERIFY => {
                let cells = self.connection.verify();
                wants.cells.extend(cells.into_iter().map(|cell| (cell, false)));
                wants.timers[VERIFY] = Some(now + self.wishes.verify);
            }
            _ => {
                self.timeouts += 1;
                self.ask_anew(now, wants);
            }
        }
    }

    /// The cell by which it stops its camera, at its end.
    pub fn stop(&self) -> VunetCell {
        let command = Command { code: Code::Stop, ..self.wishes.command };
        let (vci, port) = self.connection.send_on();
        data_cell(vci, port, true, &command.emit())
    }

    /// What it has counted, by name.
    pub fn counts(&self) -> [(&'static str, u64); COUNTERS.len()] {
        let seen = self.connection.seen;
        let set_up = self.set_up.map_or(0, Duration::as_ps);
        let counts = [
            self.frames,
            self.incomplete,
            self.latency_max.as_ps(),
            self.latency_sum.as_ps(),
            self.requests,
            self.answers,
            self.timeouts,
            seen.right,
            seen.refreshed,
            u64::from(seen.peer),
            set_up,
        ];
        std::array::from_fn(|place| (COUNTERS[place].0, counts[place]))
    }

    /// Its connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    fn perform(&mut self, cx: &mut Context<'_>, wants: Wants) {
        for (cell, ends) in wants.cells {
            let mut packet = cx.make(self.path, Bytes(VUNET_CELL_LEN as u64));
            put_cell(&mut packet, &cell);
            set_requester(&mut packet, self.me);
            (packet.flow, packet.destination, packet.ends) = (self.flow, self.camera, ends);
            packet.seq = self.sent;
            self.sent += 1;
            cx.send(PortId(0), packet);
        }
        for (timer, at) in (0..).zip(wants.timers) {
            if let Some(at) = at {
                cx.arm(TimerId(timer), at);
            }
        }
    }
}

impl Element for Viewer {
    fn start(&mut self, cx: &mut Context<'_>) {
        let mut wants = Wants::default();
        self.begin(&mut wants);
        self.perform(cx, wants);
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let Some(cell) = cell_of(&packet) else { return cx.drop(packet, None, "not a cell") };
        cx.deliver(packet);
        let mut wants = Wants::default();
        self.hear(cx.now(), &cell, &mut wants);
        self.perform(cx, wants);
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        let mut wants = Wants::default();
        Viewer::expire(self, cx.now(), timer.0 as usize, &mut wants);
        self.perform(cx, wants);
    }
    fn timers(&self) -> u32 {
        TIMERS as u32
    }
    fn report(&self, out: &mut Report) {
        self.counts().into_iter().for_each(|(name, count)| out.count(name, count));
    }
}
