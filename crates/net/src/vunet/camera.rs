//! The Vidboard: a camera on the network, which captures all the time and sends frames as it is told
//! to.
//!
//! ```text
//! in 0 --> command cell --> [ captured frame ] --> groups of scan lines --> bursts of cells --> out 0
//!          answers pings
//! ```
//!
//! A frame is sent in PDUs of `lines` scan lines, and these in bursts of `burst` cells, one burst each
//! `burst delay` from the beginning of one to that of the next; cells of a burst follow each other as
//! fast as the line takes them. On request it sends the newest whole frame that it has not sent yet.
//!
//! Source: Aurora report §3.3, §3.5.2, §4.3. The delay between bursts is from start to start (ours).

use super::connection::pong;
use super::data_cell;
use super::element::{cell_of, put_cell};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Packet, PathId, Time};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};
use lastmeter_wire::aal::vidboard::{self, FrameHeader};
use lastmeter_wire::atm::{PAYLOAD_LEN, vunet::VUNET_CELL_LEN};
use lastmeter_wire::control::vidboard::{Code, Command, Mode};

/// From one captured frame to the next: the camera's 30 frames a second (§4.3).
pub const CAPTURE: Duration = Duration::from_ps(33_333_333_333);

/// A camera.
pub struct Camera {
    path: PathId,
    flow: FlowId,
    viewer: NodeId,
    number: u16,
    video: Option<Video>,
    sent: u64,
    commands: u64,
    frames: u64,
}

/// What it was told to send.
struct Video {
    command: Command,
    /// The frame that is being sent, or was sent last.
    frame: u32,
    /// The next scan line; `height` where the frame is over.
    line: u16,
    /// The PDU that is being sent, and how much of it was.
    pdu: Vec<u8>,
    at: usize,
    /// Whether another frame is asked for.
    wanted: bool,
    /// When the next burst, or the next frame, begins.
    due: Time,
}

const BURST: TimerId = TimerId(0);

/// When captured frame `frame` is whole; the first is frame 1.
fn captured(frame: u32) -> Time {
    Time::START + CAPTURE * u64::from(frame)
}

impl Video {
    fn sends(&self) -> bool {
        self.line < self.command.height || self.at < self.pdu.len()
    }

    /// The next group of scan lines.
    fn load(&mut self) {
        let Command { width, height, lines, depth, .. } = self.command;
        let lines = lines.max(1).min(height - self.line);
        let header = FrameHeader {
            frame: self.frame,
            line: self.line,
            lines,
            width,
            depth,
            timestamp: (captured(self.frame).as_ps() / 1_000_000) as u32,
        };
        let pixels = usize::from(lines) * line_len(&self.command);
        let mut payload = header.emit().to_vec();
        // Grey levels that differ from frame to frame and from group to group.
        payload.resize(payload.len() + pixels, (self.frame as u8).wrapping_add(self.line as u8));
        self.pdu = vidboard::emit(&payload, 0).expect("commands are checked for their length");
        self.at = 0;
        self.line += lines;
    }
}

/// Bytes of a scan line.
pub fn line_len(command: &Command) -> usize {
    usize::from(command.width) * usize::from(command.depth) / 8
}

/// Whether a group of scan lines fits a PDU.
///
/// # Errors
/// What does not fit.
pub fn check(command: &Command) -> Result<(), String> {
    let len = vidboard::FRAME_HEADER_LEN + usize::from(command.lines) * line_len(command);
    match len {
        _ if command.lines == 0 || command.burst == 0 || command.width == 0 => {
            Err("lines, cells of a burst and pixels are at least one".to_owned())
        }
        0..=65_535 => Ok(()),
        len => Err(format!("{} lines are {len} bytes, and a PDU has at most 65535", command.lines)),
    }
}

impl Camera {
    /// A camera that waits for commands, and accounts what it sends to a flow of `path`; its cells go to
    /// the node `viewer`.
    pub fn new((path, flow): (PathId, FlowId), viewer: NodeId, number: u16) -> Camera {
        let (video, sent, commands, frames) = (None, 0, 0, 0);
        Camera { path, flow, viewer, number, video, sent, commands, frames }
    }

    fn command(&mut self, now: Time, command: Command) {
        self.commands += 1;
        match command.code {
            Code::VideoRequest if check(&command).is_ok() => {
                let line = command.height;
                let wanted = command.mode == Mode::FreeRun;
                let (pdu, frame) = (Vec::new(), self.video.as_ref().map_or(0, |old| old.frame));
                self.video = Some(Video { command, frame, line, pdu, at: 0, wanted, due: now });
            }
            Code::FrameRequest => {
                if let Some(video) = &mut self.video {
                    // One that is being sent answers as well: at most one is outstanding.
                    video.wanted |= !video.sends();
                }
            }
            Code::Stop => self.video = None,
            Code::VideoRequest | Code::SetSource | Code::Diagnose | Code::Status => {}
        }
        self.begin(now);
    }

    /// Takes the newest frame, if one is wanted and none is being sent.
    fn begin(&mut self, now: Time) {
        let Some(video) = self.video.as_mut().filter(|video| video.wanted && !video.sends()) else {
            return;
        };
        let newest = (now.as_ps() / CAPTURE.as_ps()) as u32;
        if newest <= video.frame {
            video.due = video.due.max(captured(video.frame + 1));
        } else if video.due <= now {
            (video.frame, video.line, video.wanted, video.due) = (newest, 0, false, now);
        }
    }

    /// Sends a burst where one is due.
    fn burst(&mut self, cx: &mut Context<'_>) {
        let Some(video) = self.video.as_mut().filter(|video| video.sends()) else { return };
        if video.due > cx.now() {
            return;
        }
        let Command { reply_vci, reply_port, burst, burst_delay, frame_delay, mode, .. } =
            video.command;
        for _ in 0..burst {
            if video.at >= video.pdu.len() {
                if video.line >= video.command.height {
                    break;
                }
                video.load();
            }
            let end = video.at + PAYLOAD_LEN;
            let last = end == video.pdu.len();
            let payload = video.pdu[video.at..end].first_chunk().expect("PDUs are whole cells");
            let cell = data_cell(reply_vci, reply_port, last, payload);
            video.at = end;
            let mut packet = cx.make(self.path, Bytes(VUNET_CELL_LEN as u64));
            put_cell(&mut packet, &cell);
            (packet.flow, packet.destination, packet.ends) = (self.flow, self.viewer, last);
            packet.seq = self.sent;
            self.sent += 1;
            cx.send(PortId(0), packet);
        }
        video.due += Duration::from_us(burst_delay.into());
        if !video.sends() {
            self.frames += 1;
            video.wanted = mode == Mode::FreeRun;
            video.due = video.due.max(cx.now() + Duration::from_us(frame_delay.into()));
        }
    }

    fn arm(&self, cx: &mut Context<'_>) {
        if let Some(video) = self.video.as_ref().filter(|video| video.sends() || video.wanted) {
            cx.arm(BURST, video.due);
        }
    }
}

impl Element for Camera {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let Some(cell) = cell_of(&packet) else { return cx.drop(packet, None, "not a cell") };
        if let Some(answer) = pong(&cell, self.number) {
            put_cell(&mut packet, &answer);
            packet.destination = self.viewer;
            return cx.send(PortId(0), packet);
        }
        match Command::parse(cell.payload()) {
            Ok(command) => {
                cx.deliver(packet);
                self.command(cx.now(), command);
                self.burst(cx);
                self.arm(cx);
            }
            Err(_) => cx.drop(packet, None, "no command"),
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.begin(cx.now());
        self.burst(cx);
        self.begin(cx.now());
        self.arm(cx);
    }
    fn report(&self, out: &mut Report) {
        out.count("cells", self.sent);
        out.count("frames", self.frames);
        out.count("commands", self.commands);
    }
}
