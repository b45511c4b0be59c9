//! The Vidboard and the hosts that display its pictures: frames on request, in shaped bursts of cells.
//!
//! ```text
//! camera --> [frame store] --(colours)--> bursts of cells --> [switch port, 256] --interrupt--> cells
//!                 ^                       CB cells each interburst delay    |                     |
//!                 '------ frame request <-- application <-- [t-frames] <----+---------------------'
//!                                        one processor: handler over t-frames over frames
//! ```
//!
//! | state of a board | request | the next frame is captured | firmware done | last burst sent |
//! |---|---|---|---|---|
//! | idle | waits, or colours at once | - | - | - |
//! | waits | - | colours | - | - |
//! | colours | - | - | sends | - |
//! | sends | - | - | - | idle |
//!
//! A stream's application requests a frame, the board sends it, the host's processor reads each burst in one
//! interrupt, reassembles transmission frames (t-frames), displays the frame, and requests the next one. So at most
//! one frame of a stream is in flight, and streams that share a host only slow each other down (A-48, A-54).
//!
//! Four parameters shape the traffic (A-52): scan lines per t-frame, cells per burst, interburst delay, interframe
//! delay. The interburst delay counts from the start of a burst: our reading.
//!
//! Source: "Aurora at MIT", §3.3, §3.5.2 with Fig 10, §4.3 (A-45 to A-54, A-103 to A-106).
//! Deviations: command cells take no time; a burst arrives at one instant; a frame with lost cells counts as
//! damaged, and the application treats it as complete.

use lastmeter_base::{Duration, StageId, Time};
use lastmeter_engine::ResourceId;
use lastmeter_host::resource::{Discipline, Job, Options as ResourceOptions, Priority, Resource};
use std::collections::{BTreeMap, VecDeque};

/// Payload of a cell in bytes.
const CELL: u64 = 48;

/// A picture of 8 bits a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels of a scan line.
    pub width: u64,
    /// Scan lines.
    pub height: u64,
}

impl Picture {
    /// Cells of a scan line: 14 for 640 pixels.
    ///
    /// ```
    /// use lastmeter_repro::machines::vidboard::Picture;
    /// assert_eq!(Picture { width: 640, height: 480 }.cells_per_line(), 14);
    /// ```
    pub fn cells_per_line(&self) -> u64 {
        self.width.div_ceil(CELL)
    }
    /// Number of pixels.
    pub fn pixels(&self) -> u64 {
        self.width * self.height
    }
    /// Number of cells.
    pub fn cells(&self) -> u64 {
        self.cells_per_line() * self.height
    }
}

/// How a board shapes its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaping {
    /// LT: scan lines per t-frame.
    pub lines: u64,
    /// CB: cells per burst.
    pub burst: u64,
    /// From the start of one burst to the start of the next.
    pub interburst: Duration,
    /// Pause between frames.
    pub interframe: Duration,
}

/// Which frame answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// The newest in the store, unless already sent.
    Newest,
    /// The next that the camera completes.
    Next,
}

/// A board and its picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// The picture.
    pub picture: Picture,
    /// From one frame of the camera to the next.
    pub camera: Duration,
    /// When its first frame is complete.
    pub phase: Duration,
    /// Which frame answers a request.
    pub capture: Capture,
    /// Time of the firmware's dithering per pixel; zero without.
    pub dither: Duration,
    /// Its shaping.
    pub shaping: Shaping,
}

/// A host's processing costs for video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Capacity of its switch port in cells.
    pub port: u64,
    /// Entering and leaving the handler, once per burst.
    pub interrupt: Duration,
    /// Reading a cell in the handler.
    pub read: Duration,
    /// Reassembly and delivery per cell, when its t-frame is complete.
    pub cell: Duration,
    /// Per t-frame.
    pub t_frame: Duration,
    /// Per frame: display.
    pub frame: Duration,
    /// Dithering per pixel for a screen of 8 bits; zero without.
    pub dither: Duration,
}

/// The bottleneck of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The camera: every frame that it takes is sent.
    Camera,
    /// The board's dithering firmware.
    Firmware,
    /// The host's processor.
    Processor,
    /// The host's processor, with dithering.
    HostDither,
    /// None is busy most of the time: board and host wait for each other.
    RoundTrip,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Frames displayed, per board.
    pub frames: Vec<u64>,
    /// Of those, frames with lost cells.
    pub damaged: u64,
    /// Cells lost at the full port.
    pub lost: u64,
    /// Largest backlog of the port in cells.
    pub port_most: u64,
    /// Length of the run.
    pub time: Duration,
    /// Utilisation of the processor by handler, t-frames, frames and dithering.
    pub processor: [f64; 4],
    /// Largest utilisation of a board's firmware by dithering.
    pub firmware: f64,
    /// Largest share of a camera's frames that were displayed.
    pub camera: f64,
}

/// Cumulative progress of the first board's frames in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Time,
    /// Sent by the board.
    pub sent: u64,
    /// Read by the handler.
    pub read: u64,
    /// In t-frames that are put together.
    pub reassembled: u64,
    /// In displayed frames.
    pub shown: u64,
}

/// The utilisation above which a part counts as the bottleneck: our threshold.
const IN_USE: f64 = 0.6;

impl Outcome {
    /// Frame rate of a board's stream.
    pub fn rate(&self, board: usize) -> f64 {
        self.frames[board] as f64 / self.time.as_secs_f64()
    }
    /// Total frame rate.
    pub fn total(&self) -> f64 {
        self.frames.iter().sum::<u64>() as f64 / self.time.as_secs_f64()
    }
    /// The bottleneck: the busiest of camera, firmware and processor.
    pub fn limit(&self) -> Limit {
        let processor: f64 = self.processor.iter().sum();
        let dithers = self.processor[3] > processor / 2.0;
        let host = if dithers { Limit::HostDither } else { Limit::Processor };
        let shares =
            [(self.camera, Limit::Camera), (self.firmware, Limit::Firmware), (processor, host)];
        let most = shares.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        most.filter(|&(share, _)| share > IN_USE).map_or(Limit::RoundTrip, |(_, limit)| limit)
    }
}

const STAGES: [Priority; 4] =
    [Priority::Interrupt, Priority::Softirq, Priority::Thread(0), Priority::Thread(0)];
const HANDLER: usize = 0;
const T_FRAMES: usize = 1;
const FRAMES: usize = 2;
const DITHER: usize = 3;

/// Boards and the host that displays their pictures.
pub struct Site {
    boards: Vec<Stream>,
    host: Host,
    cpu: Resource,
    jobs: BTreeMap<usize, Work>,
    submitted: usize,
    /// Bursts in the port: board, cells, and how many of them arrived intact.
    port: VecDeque<(usize, u64, u64)>,
    port_cells: u64,
    port_most: u64,
    reading: bool,
    lost: u64,
    damaged: u64,
    /// Progress of the first board's frames over time, if recorded.
    progress: Moment,
    watched: Option<Vec<Moment>>,
}

/// A board, its current frame, and the application that displays it.
struct Stream {
    board: Board,
    state: State,
    /// Number of the last frame that was sent.
    last: Option<u64>,
    /// Cells of the current frame that have been read.
    read: u64,
    /// T-frames of the current frame that were queued for the processor, and that are done.
    begun: u64,
    done: u64,
    whole: bool,
    frames: u64,
    firmware: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The current frame has been sent; the next may start from this instant on.
    Idle(Time),
    /// Waiting for the camera or the firmware until then.
    Until(Time),
    /// Sends burst `burst` then.
    Sends { at: Time, burst: u64 },
}

/// A job of the processor.
enum Work {
    Handler { stream: usize, cells: u64, taken: u64 },
    TFrame(usize),
    Frame(usize),
}

impl Stream {
    /// The frame that answers a request at `now`, and when it is complete.
    fn frame(&self, now: Time) -> (u64, Time) {
        let Board { camera, phase, capture, .. } = self.board;
        let since = now.saturating_since(Time::START + phase);
        let newest = since.as_ps() / camera.as_ps();
        let newest_is_new = now >= Time::START + phase && self.last.is_none_or(|l| newest > l);
        match capture {
            Capture::Newest if newest_is_new => (newest, now),
            _ if now < Time::START + phase => (0, Time::START + phase),
            _ => (newest + 1, Time::START + phase + camera * (newest + 1)),
        }
    }

    fn cells_of_t_frame(&self) -> u64 {
        self.board.picture.cells_per_line() * self.board.shaping.lines
    }

    fn t_frames(&self) -> u64 {
        self.board.picture.height.div_ceil(self.board.shaping.lines)
    }

    fn request(&mut self, now: Time) {
        let State::Idle(from) = self.state else { return };
        let (number, complete) = self.frame(now.max(from));
        let colours = self.board.dither * self.board.picture.pixels();
        (self.last, self.firmware) = (Some(number), self.firmware + colours);
        (self.read, self.begun, self.done, self.whole) = (0, 0, 0, true);
        self.state = State::Until(complete + colours);
    }

    fn ready_at(&self) -> Option<Time> {
        match self.state {
            State::Idle(_) => None,
            State::Until(at) | State::Sends { at, .. } => Some(at),
        }
    }
}

impl Site {
    /// Idle boards, and a host that has just requested a frame of each.
    ///
    /// Panics if a board's picture, t-frame, burst or camera period is zero.
    pub fn new(boards: &[Board], host: Host) -> Site {
        let sensible = |board: &Board| {
            let Shaping { lines, burst, .. } = board.shaping;
            lines > 0 && burst > 0 && board.picture.pixels() > 0 && !board.camera.is_zero()
        };
        assert!(boards.iter().all(sensible), "a board sends something");
        let stream = |&board: &Board| Stream {
            board,
            state: State::Idle(Time::START),
            last: None,
            read: 0,
            begun: 0,
            done: 0,
            whole: true,
            frames: 0,
            firmware: Duration::ZERO,
        };
        let options = ResourceOptions {
            units: 1,
            discipline: Discipline::Priority,
            context_switch: Duration::ZERO,
            interrupt: Duration::ZERO,
        };
        let mut site = Site {
            boards: boards.iter().map(stream).collect(),
            host,
            cpu: Resource::new(ResourceId(0), options),
            jobs: BTreeMap::new(),
            submitted: 0,
            port: VecDeque::new(),
            port_cells: 0,
            port_most: 0,
            reading: false,
            lost: 0,
            damaged: 0,
            progress: Moment { at: Time::START, sent: 0, read: 0, reassembled: 0, shown: 0 },
            watched: None,
        };
        site.boards.iter_mut().for_each(|stream| stream.request(Time::START));
        site
    }

    /// The time of the next event.
    pub fn ready_at(&self) -> Option<Time> {
        self.boards.iter().filter_map(Stream::ready_at).chain(self.cpu.ready_at()).min()
    }

    /// Processes all events due by `now`, in order; the processor before the boards.
    pub fn advance(&mut self, now: Time) {
        while let Some(due) = self.ready_at().filter(|&due| due <= now) {
            match self.cpu.ready_at() == Some(due) {
                true => self.done(due),
                false => self.send(due),
            }
            let moment = Moment { at: due, ..self.progress };
            self.watched.iter_mut().for_each(|moments| moments.push(moment));
        }
    }

    /// Runs for `time`; returns the progress of the first board's frames after each event.
    pub fn watched(mut self, time: Duration) -> Vec<Moment> {
        self.watched = Some(Vec::new());
        self.advance(Time::START + time);
        self.watched.unwrap_or_default()
    }

    /// Advances the first board that is due.
    fn send(&mut self, now: Time) {
        let due = self.boards.iter().position(|stream| stream.ready_at() == Some(now));
        let Some(index) = due else { return };
        let stream = &mut self.boards[index];
        let Shaping { burst: cells, interburst, interframe, .. } = stream.board.shaping;
        let burst = match stream.state {
            State::Sends { burst, .. } => burst,
            _ => 0,
        };
        let all = stream.board.picture.cells();
        let cells = cells.min(all - burst * cells);
        let sent = burst * stream.board.shaping.burst + cells;
        stream.state = match sent == all {
            true => State::Idle(now + interframe),
            false => State::Sends { at: now + interburst, burst: burst + 1 },
        };
        self.progress.sent += if index == 0 { cells } else { 0 };
        self.arrive(now, index, cells);
    }

    fn arrive(&mut self, now: Time, stream: usize, cells: u64) {
        let taken = cells.min(self.host.port - self.port_cells);
        self.lost += cells - taken;
        self.port_cells += taken;
        self.port_most = self.port_most.max(self.port_cells);
        self.boards[stream].whole &= taken == cells;
        // Lost cells cost no work, but the frame continues without them.
        self.port.push_back((stream, cells, taken));
        if !self.reading {
            self.handle(now, self.host.interrupt);
        }
    }

    /// The handler starts on the next burst in the port.
    fn handle(&mut self, now: Time, before: Duration) {
        self.reading = false;
        let Some((stream, cells, taken)) = self.port.pop_front() else { return };
        self.reading = true;
        let work = before + self.host.read * taken;
        self.submit(now, HANDLER, work, Work::Handler { stream, cells, taken });
    }

    fn submit(&mut self, now: Time, stage: usize, time: Duration, work: Work) {
        let id = self.submitted;
        self.submitted += 1;
        self.jobs.insert(id, work);
        let priority = STAGES[stage];
        let preemptive = stage == HANDLER;
        let stage = StageId(stage as u32);
        self.cpu.submit(now, Job { id, stage, priority, preemptive, work: time });
    }

    /// The processor has finished a job.
    fn done(&mut self, now: Time) {
        let done = self.cpu.complete(now);
        match done.and_then(|done| self.jobs.remove(&done.id)) {
            Some(Work::Handler { stream, cells, taken }) => {
                self.port_cells -= taken;
                self.boards[stream].read += cells;
                self.progress.read += if stream == 0 { cells } else { 0 };
                self.reassemble(now, stream);
                // A burst that arrived meanwhile is read without another interrupt.
                self.handle(now, Duration::ZERO);
            }
            Some(Work::TFrame(stream)) => {
                if stream == 0 {
                    let done = self.boards[stream].done;
                    self.progress.reassembled += stream_cells(&self.boards[stream], done);
                }
                self.boards[stream].done += 1;
                if self.boards[stream].done == self.boards[stream].t_frames() {
                    let dither = self.host.dither * self.boards[stream].board.picture.pixels();
                    let stage = if dither > self.host.frame { DITHER } else { FRAMES };
                    self.submit(now, stage, self.host.frame + dither, Work::Frame(stream));
                }
            }
            Some(Work::Frame(stream)) => {
                self.boards[stream].frames += 1;
                if stream == 0 {
                    self.progress.shown += self.boards[stream].board.picture.cells();
                }
                self.damaged += u64::from(!self.boards[stream].whole);
                self.boards[stream].request(now);
            }
            None => {}
        }
    }

    /// Queues the t-frames whose cells have all been read.
    fn reassemble(&mut self, now: Time, index: usize) {
        let stream = &self.boards[index];
        let (all, each) = (stream.t_frames(), stream.cells_of_t_frame());
        let complete = match stream.read == stream.board.picture.cells() {
            true => all,
            false => stream.read / each,
        };
        for number in stream.begun..complete {
            let whole = stream_cells(&self.boards[index], number);
            let work = self.host.t_frame + self.host.cell * whole;
            self.submit(now, T_FRAMES, work, Work::TFrame(index));
        }
        self.boards[index].begun = complete;
    }

    /// Runs for `time`.
    pub fn run(mut self, time: Duration) -> Outcome {
        self.advance(Time::START + time);
        let share = |part: Duration| part.as_ps() as f64 / time.as_ps().max(1) as f64;
        let mut processor = [0.0; 4];
        for meter in self.cpu.meters() {
            for &(stage, busy) in meter.by_stage() {
                processor[stage.0 as usize] += share(busy);
            }
        }
        let most =
            |shares: &dyn Fn(&Stream) -> f64| self.boards.iter().map(shares).fold(0.0, f64::max);
        Outcome {
            frames: self.boards.iter().map(|stream| stream.frames).collect(),
            damaged: self.damaged,
            lost: self.lost,
            port_most: self.port_most,
            time,
            processor,
            firmware: most(&|stream| share(stream.firmware)),
            camera: most(&|stream| share(stream.board.camera * stream.frames)),
        }
    }
}

/// Cells of t-frame `number`: the last may be shorter.
fn stream_cells(stream: &Stream, number: u64) -> u64 {
    let each = stream.cells_of_t_frame();
    each.min(stream.board.picture.cells() - number * each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(us: u64) -> Duration {
        Duration::from_us(us)
    }

    fn board() -> Board {
        Board {
            picture: Picture { width: 480, height: 100 },
            camera: us(33_333),
            phase: Duration::ZERO,
            capture: Capture::Next,
            dither: Duration::ZERO,
            shaping: Shaping {
                lines: 10,
                burst: 20,
                interburst: us(100),
                interframe: Duration::ZERO,
            },
        }
    }

    fn host() -> Host {
        Host {
            port: 256,
            interrupt: us(10),
            read: us(1),
            cell: us(1),
            t_frame: us(50),
            frame: us(1000),
            dither: Duration::ZERO,
        }
    }

    fn run(board: Board, host: Host) -> Outcome {
        Site::new(&[board], host).run(Duration::from_secs(2))
    }

    #[test]
    fn a_106_four_kinds_of_video_have_four_bottlenecks() {
        // 1000 cells, 50 bursts: 5 ms to send, 2 + 0.5 ms for cells and bursts, 1.5 ms besides.
        let outcome = run(board(), host());
        assert_eq!((outcome.limit(), outcome.rate(0).round()), (Limit::Camera, 30.0));
        // 29 ms more to show a frame: the next request comes just too late.
        let late = run(board(), Host { frame: us(30_000), ..host() });
        assert_eq!((late.limit(), late.rate(0).round()), (Limit::RoundTrip, 15.0));
        // 48,000 pixels in 4 us each: 192 ms, so that every sixth frame is sent.
        let dithered = run(Board { dither: us(4), ..board() }, host());
        assert_eq!((dithered.limit(), dithered.rate(0).round()), (Limit::Firmware, 5.0));
        let host_dithers = run(board(), Host { dither: us(2), ..host() });
        assert_eq!(host_dithers.limit(), Limit::HostDither);
        let slow = run(board(), Host { cell: us(200), ..host() });
        assert_eq!(slow.limit(), Limit::Processor);
    }

    #[test]
    fn what_is_watched_goes_through_the_pipeline_in_order() {
        let moments = Site::new(&[board()], host()).watched(Duration::from_ms(300));
        let ordered = |moment: &Moment| {
            let Moment { sent, read, reassembled, shown, .. } = *moment;
            sent >= read && read >= reassembled && reassembled >= shown
        };
        assert!(moments.iter().all(ordered));
        // 30 frames a second of 1000 cells, the first captured after 33 ms.
        assert_eq!(moments.last().map(|moment| moment.shown), Some(8000));
    }

    #[test]
    fn a_54_a_second_window_halves_the_first() {
        let slow = Host { frame: us(80_000), ..host() };
        let newest = Board { capture: Capture::Newest, ..board() };
        let one = Site::new(&[newest], slow).run(Duration::from_secs(4)).rate(0);
        let other = Board { phase: us(10_000), ..newest };
        let two = Site::new(&[newest, other], slow).run(Duration::from_secs(4));
        assert!((two.rate(0) / one - 0.5).abs() < 0.05, "{one} {two:?}");
        assert!((two.rate(1) / one - 0.5).abs() < 0.05, "{one} {two:?}");
    }

    #[test]
    fn what_comes_faster_than_it_is_read_is_lost_beyond_the_port() {
        let outcome = run(board(), Host { read: us(8), ..host() });
        assert!(outcome.lost > 0 && outcome.damaged > 0);
        assert_eq!(outcome.port_most, 256);
    }

    #[test]
    fn longer_t_frames_cost_the_processor_less() {
        let share = |lines: u64| {
            let shaping = Shaping { lines, ..board().shaping };
            let outcome = run(Board { shaping, ..board() }, host());
            outcome.processor[T_FRAMES]
        };
        assert!(share(1) > share(10) && share(10) > share(100));
    }

    proptest! {
        #[test]
        fn no_stream_is_faster_than_its_camera_and_every_frame_shown_was_sent(
            lines in 1u64..120, burst in 1u64..300, interburst in 1u64..400, frame in 0u64..50_000,
            newest in proptest::bool::ANY,
        ) {
            let shaping =
                Shaping { lines, burst, interburst: us(interburst), interframe: us(10) };
            let capture = if newest { Capture::Newest } else { Capture::Next };
            let outcome = run(Board { shaping, capture, ..board() }, Host { frame: us(frame), ..host() });
            prop_assert!(outcome.frames[0] <= 61);
            prop_assert!(outcome.processor.iter().sum::<f64>() <= 1.0 + 1e-9);
            prop_assert!(outcome.damaged <= outcome.frames[0]);
        }
    }
}
