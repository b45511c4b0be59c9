//! The Vidboard: a camera on the network, which captures continuously and sends frames as commanded.
//!
//! ```text
//! in 0 --> command cell --> [ captured frame ] --> (dithering) --> groups of scan lines --> bursts --> out 0
//!          answers pings
//! ```
//!
//! | activity | until |
//! |---|---|
//! | idle | a frame has been requested, and the delay after the last one is over |
//! | waiting | the camera's signal has completed the frame |
//! | dithering | the firmware has processed it; not in grey |
//! | sending | its last burst has left |
//!
//! A frame is sent in PDUs of `lines` scan lines, and these in bursts of `burst` cells, one burst every `burst
//! delay` from start to start; the cells of a burst follow each other as fast as the line accepts them. A request
//! is answered with the newest complete frame that has not been sent, or with the next that the camera completes.
//! The camera's signal and the firmware are resources in the books: the signal is in use while the board waits for
//! it. A diagnostic command, and a request for something that the board cannot send, are answered with a status
//! cell that contains the board's last command.
//!
//! Source: Aurora report §3.3, §3.5.2, §4.3 (A-45 to A-53, A-106). That the delay between bursts is from start to
//! start is ours.
//!
//! Rows: A-51.

use super::connection::pong;
use super::element::{cell_of, put_cell};
use super::{answer_cell, data_cell};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Packet, PathId, StageId, Time};
use lastmeter_engine::{Context, Element, Meter, PortId, Report, ResourceId, TimerId};
use lastmeter_wire::aal::vidboard::{self, FrameHeader};
use lastmeter_wire::atm::PAYLOAD_LEN;
use lastmeter_wire::atm::vunet::{VUNET_CELL_LEN, VunetCell};
use lastmeter_wire::control::vidboard::{Code, Command, Mode};

/// Frame period: the camera's 30 frames per second (§4.3).
pub const CAPTURE: Duration = Duration::from_ps(33_333_333_333);

/// Which frame is sent for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The newest complete one, unless it has been sent before.
    Newest,
    /// The next that the camera completes.
    Next,
}

/// Parameters of a board.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    /// Frame period of the camera's signal.
    pub period: Duration,
    /// When frame 0 of the signal is complete.
    pub phase: Duration,
    /// Which frame is sent for a request.
    pub answer: Answer,
    /// Firmware time to dither a pixel; zero without dithering.
    pub dither: Duration,
    /// The camera's signal, and the stage that uses it.
    pub signal: (ResourceId, StageId),
    /// The firmware's processor, if it dithers, and the stage that uses it.
    pub firmware: Option<(ResourceId, StageId)>,
}

/// What a camera sees, where that matters.
pub trait Pictures: Send {
    /// Fills `pixels` with the scan lines from `line` on of frame `frame` of the signal, in the command's format.
    fn lines(&mut self, frame: u32, command: &Command, line: u16, pixels: &mut [u8]);
}

/// A camera.
pub struct Camera {
    path: PathId,
    flow: FlowId,
    viewer: NodeId,
    number: u16,
    board: Board,
    video: Option<Video>,
    pictures: Option<Box<dyn Pictures>>,
    signal: Meter,
    firmware: Option<Meter>,
    sent: u64,
    commands: u64,
    frames: u64,
}

/// The current command and its progress.
struct Video {
    command: Command,
    /// The frame in progress, or the last one sent.
    frame: u32,
    /// The next scan line; `height` if the frame is done.
    line: u16,
    /// The current PDU, and how much of it has been sent.
    pdu: Vec<u8>,
    at: usize,
    /// Whether another frame has been requested.
    wanted: bool,
    activity: Activity,
    /// When its activity ends, its next burst begins, or it may begin the next frame.
    due: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Idle,
    Waiting,
    Dithering,
    Sending,
}

const DUE: TimerId = TimerId(0);

impl Board {
    /// When frame `frame` of the signal is complete.
    fn captured(&self, frame: u32) -> Time {
        Time::START + self.phase + self.period * u64::from(frame)
    }
    /// The newest frame that is complete at `now`.
    fn newest(&self, now: Time) -> u32 {
        let since = now.saturating_since(Time::START + self.phase);
        (since.as_ps() / self.period.as_ps().max(1)) as u32
    }
}

impl Video {
    fn sends(&self) -> bool {
        self.line < self.command.height || self.at < self.pdu.len()
    }

    /// The next group of scan lines, of a frame that was complete at `captured`.
    fn load(&mut self, captured: Time, pictures: Option<&mut Box<dyn Pictures>>) {
        let Command { width, height, lines, depth, .. } = self.command;
        let lines = lines.max(1).min(height - self.line);
        let header = FrameHeader {
            frame: self.frame,
            line: self.line,
            lines,
            width,
            depth,
            timestamp: (captured.as_ps() / 1_000_000) as u32,
        };
        let pixels = usize::from(lines) * line_len(&self.command);
        let mut payload = header.emit().to_vec();
        // Grey levels that differ from frame to frame and from group to group.
        payload.resize(payload.len() + pixels, (self.frame as u8).wrapping_add(self.line as u8));
        if let Some(pictures) = pictures {
            let pixels = payload.get_mut(vidboard::FRAME_HEADER_LEN..).unwrap_or_default();
            pictures.lines(self.frame, &self.command, self.line, pixels);
        }
        self.pdu = vidboard::emit(&payload, 0).expect("the command's lines were checked to fit");
        self.at = 0;
        self.line += lines;
    }
}

/// Bytes of a scan line.
pub fn line_len(command: &Command) -> usize {
    usize::from(command.width) * usize::from(command.depth) / 8
}

/// Whether a group of scan lines fits into a PDU.
///
/// # Errors
/// What does not fit.
pub fn check(command: &Command) -> Result<(), String> {
    let len = vidboard::FRAME_HEADER_LEN + usize::from(command.lines) * line_len(command);
    match len {
        _ if command.lines == 0 || command.burst == 0 || command.width == 0 => {
            Err("lines, cells per burst and pixels must be at least one".to_owned())
        }
        0..=65_535 => Ok(()),
        len => Err(format!("{} lines are {len} bytes; a PDU has at most 65535", command.lines)),
    }
}

impl Camera {
    /// A camera that waits for commands, and accounts its cells to a flow of `path`; they go to the node `viewer`.
    pub fn new(
        (path, flow): (PathId, FlowId),
        viewer: NodeId,
        number: u16,
        board: Board,
    ) -> Camera {
        Camera {
            path,
            flow,
            viewer,
            number,
            board,
            video: None,
            pictures: None,
            signal: Meter::new(board.signal.0),
            firmware: board.firmware.map(|(resource, _)| Meter::new(resource)),
            sent: 0,
            commands: 0,
            frames: 0,
        }
    }

    /// The same, of something to be seen; without it its pictures are grey levels that change.
    pub fn of(self, pictures: Box<dyn Pictures>) -> Camera {
        Camera { pictures: Some(pictures), ..self }
    }

    /// Executes a command; returns its answer, if any.
    pub fn command(&mut self, now: Time, command: Command) -> Option<Command> {
        self.commands += 1;
        let told = self.video.as_ref().map_or(command, |video| video.command);
        let Command { sequence, reply_vci, reply_port, .. } = command;
        let status = Command { code: Code::Status, sequence, reply_vci, reply_port, ..told };
        match command.code {
            Code::VideoRequest if check(&command).is_ok() => {
                self.rest(now);
                let line = command.height;
                let wanted = command.mode == Mode::FreeRun;
                let (pdu, frame) = (Vec::new(), self.video.as_ref().map_or(0, |old| old.frame));
                let activity = Activity::Idle;
                let video = Video { command, frame, line, pdu, at: 0, wanted, activity, due: now };
                self.video = Some(video);
            }
            Code::FrameRequest => {
                if let Some(video) = &mut self.video {
                    // A frame in progress also satisfies it: at most one request is outstanding.
                    video.wanted |= video.activity == Activity::Idle;
                }
            }
            Code::Stop => {
                self.rest(now);
                self.video = None;
            }
            Code::VideoRequest | Code::Diagnose => return Some(status),
            Code::SetSource | Code::Status => {}
        }
        None
    }

    fn rest(&mut self, now: Time) {
        self.signal.rest(now);
        self.firmware.iter_mut().for_each(|meter| meter.rest(now));
    }

    /// Handles everything due, up to the sending of bursts.
    fn turn(&mut self, now: Time) {
        let Some(video) = self.video.as_mut() else { return };
        let Board { answer, dither, signal, firmware, .. } = self.board;
        if video.activity == Activity::Idle && video.wanted && video.due <= now {
            let newest = self.board.newest(now);
            let fresh = answer == Answer::Newest && newest > video.frame;
            video.frame = if fresh { newest } else { newest.max(video.frame) + 1 };
            (video.wanted, video.activity) = (false, Activity::Waiting);
            video.due = self.board.captured(video.frame).max(now);
            self.signal.serve(now, signal.1);
        }
        if video.activity == Activity::Waiting && video.due <= now {
            self.signal.rest(now);
            let pixels = u64::from(video.command.width) * u64::from(video.command.height);
            (video.activity, video.due) = (Activity::Dithering, now + dither * pixels);
            if let (Some(meter), Some((_, stage))) = (&mut self.firmware, firmware) {
                meter.serve(now, stage);
            }
        }
        if video.activity == Activity::Dithering && video.due <= now {
            self.firmware.iter_mut().for_each(|meter| meter.rest(now));
            (video.activity, video.line, video.due) = (Activity::Sending, 0, now);
        }
    }

    /// The cells of a burst if one is due, each of which ends a group of scan lines or does not.
    fn burst(&mut self, now: Time) -> Vec<(VunetCell, bool)> {
        let sends = |video: &&mut Video| video.activity == Activity::Sending && video.due <= now;
        let Some(video) = self.video.as_mut().filter(sends) else { return Vec::new() };
        let Command { reply_vci, reply_port, burst, burst_delay, frame_delay, mode, .. } =
            video.command;
        let mut cells = Vec::with_capacity(burst.into());
        for _ in 0..burst {
            if video.at >= video.pdu.len() {
                if video.line >= video.command.height {
                    break;
                }
                video.load(self.board.captured(video.frame), self.pictures.as_mut());
            }
            let end = video.at + PAYLOAD_LEN;
            let last = end == video.pdu.len();
            let payload = video.pdu[video.at..end].first_chunk().expect("PDUs are whole cells");
            let cell = data_cell(reply_vci, reply_port, last, payload);
            video.at = end;
            cells.push((cell, last));
        }
        video.due += Duration::from_us(burst_delay.into());
        if !video.sends() {
            self.frames += 1;
            (video.activity, video.wanted) = (Activity::Idle, mode == Mode::FreeRun);
            video.due = video.due.max(now + Duration::from_us(frame_delay.into()));
        }
        cells
    }

    /// Does what is due; returns the cells to send now, each of which ends a group of scan lines or does not.
    pub fn act(&mut self, now: Time) -> Vec<(VunetCell, bool)> {
        self.turn(now);
        let cells = self.burst(now);
        self.turn(now);
        cells
    }

    /// When [`Camera::act`] has something to do next; `None` until the next command.
    pub fn due(&self) -> Option<Time> {
        let busy = |video: &&Video| video.activity != Activity::Idle || video.wanted;
        self.video.as_ref().filter(busy).map(|video| video.due)
    }

    /// Whether it is sending a frame, so that the next burst is due at [`Camera::due`].
    pub fn is_sending(&self) -> bool {
        self.video.as_ref().is_some_and(|video| video.activity == Activity::Sending)
    }

    /// Frames sent.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    fn send(&mut self, cx: &mut Context<'_>, cell: &VunetCell, last: bool) {
        let mut packet = cx.make(self.path, Bytes(VUNET_CELL_LEN as u64));
        put_cell(&mut packet, cell);
        (packet.flow, packet.destination, packet.ends) = (self.flow, self.viewer, last);
        packet.seq = self.sent;
        self.sent += 1;
        cx.send(PortId(0), packet);
    }

    fn go_on(&mut self, cx: &mut Context<'_>) {
        let cells = self.act(cx.now());
        cells.iter().for_each(|(cell, last)| self.send(cx, cell, *last));
        if let Some(due) = self.due() {
            cx.arm(DUE, due);
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
                if let Some(status) = self.command(cx.now(), command) {
                    let Command { reply_vci, reply_port, .. } = status;
                    let cell = answer_cell(reply_vci, reply_port, &status.emit());
                    self.send(cx, &cell, true);
                }
                self.go_on(cx);
            }
            Err(_) => cx.drop(packet, None, "no command"),
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.go_on(cx);
    }
    fn report(&self, out: &mut Report) {
        out.count("cells", self.sent);
        out.count("frames", self.frames);
        out.count("commands", self.commands);
        out.meter(&self.signal);
        self.firmware.iter().for_each(|meter| out.meter(meter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMAND: Command = Command {
        code: Code::VideoRequest,
        depth: 8,
        sequence: 7,
        reply_vci: 100,
        width: 160,
        height: 120,
        lines: 16,
        burst: 28,
        burst_delay: 100,
        frame_delay: 0,
        mode: Mode::OnRequest,
        source: 0,
        crop: (0, 0),
        reply_port: 2,
    };

    fn camera(answer: Answer, dither: Duration) -> Camera {
        let firmware = (!dither.is_zero()).then_some((ResourceId(1), StageId(1)));
        let signal = (ResourceId(0), StageId(0));
        let (period, phase) = (Duration::from_ms(30), Duration::ZERO);
        let board = Board { period, phase, answer, dither, signal, firmware };
        Camera::new((PathId(0), FlowId(0)), NodeId(1), 0, board)
    }

    fn ask(camera: &mut Camera, now: Time, code: Code) -> Option<Command> {
        let answer = camera.command(now, Command { code, ..COMMAND });
        camera.turn(now);
        answer
    }

    fn at(ms: u64) -> Time {
        Time::START + Duration::from_ms(ms)
    }

    #[test]
    fn a_47_a_request_gets_the_newest_frame_however_late_it_is() {
        let mut camera = camera(Answer::Newest, Duration::ZERO);
        assert_eq!(ask(&mut camera, at(0), Code::VideoRequest), None);
        ask(&mut camera, at(100), Code::FrameRequest);
        let video = camera.video.as_ref().expect("it has a command");
        assert_eq!((video.activity, video.frame, video.due), (Activity::Sending, 3, at(100)));
    }

    #[test]
    fn a_53_a_request_waits_for_the_next_frame_and_for_the_firmware() {
        // 19,200 pixels of 1 us each.
        let mut camera = camera(Answer::Next, Duration::from_us(1));
        ask(&mut camera, at(0), Code::VideoRequest);
        ask(&mut camera, at(100), Code::FrameRequest);
        let state =
            |camera: &Camera| camera.video.as_ref().map(|video| (video.activity, video.due));
        assert_eq!(state(&camera), Some((Activity::Waiting, at(120))));
        camera.turn(at(120));
        let coloured = at(120) + Duration::from_us(19_200);
        assert_eq!(state(&camera), Some((Activity::Dithering, coloured)));
        camera.turn(coloured);
        assert_eq!(state(&camera), Some((Activity::Sending, coloured)));
        assert_eq!(camera.signal.busy(), Duration::from_ms(20));
        assert_eq!(camera.firmware.as_ref().map(Meter::busy), Some(Duration::from_us(19_200)));
    }

    #[test]
    fn a_50_diagnostics_and_impossible_requests_are_answered() {
        let mut camera = camera(Answer::Newest, Duration::ZERO);
        let answer = ask(&mut camera, at(0), Code::Diagnose).expect("it answers");
        assert_eq!((answer.code, answer.sequence, answer.reply_vci), (Code::Status, 7, 100));
        let too_long = Command { width: 4096, lines: 17, ..COMMAND };
        assert!(camera.command(at(1), too_long).is_some_and(|answer| answer.code == Code::Status));
        assert!(camera.video.is_none());
    }

    proptest! {
        #[test]
        fn a_53_at_most_one_frame_is_in_progress_and_none_before_its_capture(
            steps in proptest::collection::vec((0u64..40, 0usize..5), 1..100), next in proptest::bool::ANY,
        ) {
            let answer = if next { Answer::Next } else { Answer::Newest };
            let mut camera = camera(answer, Duration::from_us(1));
            let (mut now, mut last) = (Time::START, 0);
            for (wait, what) in steps {
                now += Duration::from_ms(wait);
                let codes =
                    [Code::VideoRequest, Code::FrameRequest, Code::Stop, Code::Diagnose, Code::FrameRequest];
                ask(&mut camera, now, codes[what]);
                let Some(video) = &mut camera.video else {
                    last = 0;
                    continue;
                };
                prop_assert!(!(video.wanted && video.activity != Activity::Idle));
                if video.activity == Activity::Sending {
                    prop_assert!(camera.board.captured(video.frame) <= now && video.frame > last);
                    // It is sent at once.
                    (last, video.line) = (video.frame, video.command.height);
                    video.activity = Activity::Idle;
                    video.due = now;
                }
            }
        }
    }
}
