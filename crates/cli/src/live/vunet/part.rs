//! A process of the live VuNet: a switch, half of a link, the wide area, an appliance or a host.
//!
//! ```text
//! standard input: its role, then requests, a line each --> [ part ] --> standard output: an answer for each
//! wires: connected UDP sockets in its namespace
//! ```
//!
//! Each turn takes what has arrived, has the machine decide about each cell, and sends what it has decided: as many
//! cells a datagram as came together.

use super::board::Board;
use super::host::Host;
use super::line::{Delayed, Ends, FIFO_CELLS, Lateness, Line, Passed};
use super::plan::{BoardPlan, Job};
use lastmeter_base::{Duration, Time};
use lastmeter_lan::vunet::card::Side;
use lastmeter_lan::vunet::crossbar::Crossbar;
use lastmeter_lan::vunet::half::{Fate, Half, Totals};
use lastmeter_lan::vunet::vci::Block;
use lastmeter_wire::atm::train::Form;
use lastmeter_wire::atm::vunet::VunetCell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

/// Tells this program that it is a part.
pub(super) const MARKER: &str = "LASTMETER_VUNET_PART";
/// The longest request.
const REQUEST_MAX: usize = 1 << 20;

/// What a process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Role {
    Switch { ports: Vec<Option<Ends>> },
    Half { number: u16, side: u8, labels: (u16, u16), near: Ends, wire: Ends, atm: bool },
    Wide { ends: [Ends; 2], delay: u64, rate: f64 },
    Board { plan: BoardPlan, film: Option<PathBuf>, port: Ends, file: PathBuf },
    Host { number: u16, port: Ends, file: PathBuf },
}

/// What it is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Report,
    Job(Job),
}

/// What it has done so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// CPU time in ns, and the time now.
    pub(super) cpu: u64,
    pub(super) now: u64,
    /// All its wires.
    pub(super) passed: Passed,
    /// Of half a link.
    pub(super) totals: [u64; 5],
    pub(super) used: u64,
    /// Cells that its machine dropped, by reason.
    pub(super) dropped: BTreeMap<String, u64>,
    /// How late what it paces was.
    pub(super) late: Lateness,
    /// Frames sent by a board.
    pub(super) frames: u64,
}

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The clock of a run, the same in all its processes: ns since its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) epoch: u64,
}

impl Clock {
    /// A clock that begins now.
    pub(super) fn begin() -> Clock {
        Clock { epoch: ns(ClockId::Monotonic) }
    }
    pub(super) fn now(self) -> u64 {
        ns(ClockId::Monotonic).saturating_sub(self.epoch)
    }
    /// The same for machines.
    pub(super) fn time(self) -> Time {
        Time::START + Duration::from_ns(self.now())
    }
    /// When an instant of a machine has come.
    pub(super) fn ns_of(time: Time) -> u64 {
        time.since_start().as_ps().div_ceil(1000)
    }
    /// What a process knows about itself, besides its machine.
    pub(super) fn report(self, passed: Passed) -> Report {
        let cpu = ns(ClockId::ProcessCPUTime);
        Report { cpu, now: self.now(), passed, ..Report::default() }
    }
    /// Sleeps until there is input on one of these sockets, or a request, or until an instant; returns which have
    /// input, a bit for each socket in order, and [`REQUEST`].
    pub(super) fn wait(
        self,
        sockets: &[&std::net::UdpSocket],
        until: Option<u64>,
        requests: bool,
    ) -> Result<u64, String> {
        let polled = sockets.iter().map(|socket| PollFd::new(*socket, PollFlags::IN));
        self.wait_for(polled.collect(), until, requests)
    }
    /// The same for whatever these descriptors wait for.
    pub(super) fn wait_for(
        self,
        polled: Vec<PollFd<'_>>,
        until: Option<u64>,
        requests: bool,
    ) -> Result<u64, String> {
        let stdin = io::stdin();
        let (stdin, others) = (stdin.as_fd(), polled.len());
        let mut polled: Vec<PollFd<'_>> = polled;
        if requests {
            polled.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let left = until.map(|until| until.saturating_sub(self.now()));
        let timeout = left.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.to_string()),
        }
        let has = |(place, one): (usize, &PollFd<'_>)| match one.revents().is_empty() {
            true => 0,
            false if place == others => REQUEST,
            false => 1 << place,
        };
        Ok(polled.iter().enumerate().map(has).fold(0, |all, bit| all | bit))
    }
}

/// Among what has input: the requests.
pub(super) const REQUEST: u64 = 1 << 63;

/// Becomes a part if this process was started as one; then it never returns.
pub(crate) fn enter_if_asked() {
    let Ok(epoch) = std::env::var(MARKER) else { return };
    // Latency is measured: all parts alike go before what else runs here, as far as the kernel allows.
    lastmeter_live::worker::take_priority();
    let ended = match epoch.parse() {
        Ok(epoch) => play(Clock { epoch }),
        Err(error) => Err(format!("{MARKER}: {error}")),
    };
    if let Err(words) = &ended {
        let words = serde_json::json!({ "Failed": words });
        let _ = writeln!(io::stdout(), "{words}");
    }
    std::process::exit(i32::from(ended.is_err()));
}

fn play(clock: Clock) -> Result<(), String> {
    let mut control = Asked::new()?;
    let role = loop {
        clock.wait(&[], None, true)?;
        if let Some(line) = control.line()? {
            break serde_json::from_str(&line).map_err(|error| error.to_string())?;
        }
    };
    let io = |error: io::Error| error.to_string();
    match role {
        Role::Switch { ports } => {
            let open = |ends: Option<Ends>| ends.map(|ends| Line::open(ends, Form::Vunet));
            let lines = ports.into_iter().map(|ends| open(ends).transpose());
            let lines = lines.collect::<io::Result<Vec<_>>>().map_err(io)?;
            answer(&"Ready")?;
            switch(clock, lines, &mut control)
        }
        Role::Half { number, side, labels, near, wire, atm } => {
            let side = if side == 0 { Side::A } else { Side::B };
            let form = if atm { Form::Atm } else { Form::Vunet };
            let near = Line::open(near, Form::Vunet).map_err(io)?;
            let wire = Line::open(wire, form).map_err(io)?;
            let labels = Block { first: labels.0, count: labels.1 };
            answer(&"Ready")?;
            half(clock, Half::reserving(number, side, labels), [near, wire], &mut control)
        }
        Role::Wide { ends, delay, rate } => {
            let delayed = Delayed::open(clock, ends, delay, rate).map_err(io)?;
            answer(&"Ready")?;
            wide(clock, delayed, &mut control)
        }
        Role::Board { plan, film, port, file } => {
            let line = Line::open(port, Form::Vunet).map_err(io)?;
            answer(&"Ready")?;
            let client = Client::new(clock, plan.number, line, &file);
            Board::new(plan, film, client).run(&mut control)
        }
        Role::Host { number, port, file } => {
            let line = Line::open(port, Form::Vunet).map_err(io)?;
            answer(&"Ready")?;
            Host::new(Client::new(clock, number, line, &file)).run(&mut control)
        }
    }
}

/// Requests, as they come over standard input.
pub(super) struct Asked {
    bytes: Vec<u8>,
}

impl Asked {
    fn new() -> Result<Asked, String> {
        let flags = rustix::fs::fcntl_getfl(io::stdin()).map_err(|error| error.to_string())?;
        let flags = flags | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(io::stdin(), flags).map_err(|error| error.to_string())?;
        Ok(Asked { bytes: Vec::new() })
    }

    /// The next line, if it has come whole. The end of the input ends the process.
    fn line(&mut self) -> Result<Option<String>, String> {
        let mut room = [0; 4096];
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            match rustix::io::read(io::stdin(), &mut room) {
                Ok(0) => std::process::exit(0),
                Ok(len) if self.bytes.len() + len <= REQUEST_MAX => {
                    self.bytes.extend_from_slice(&room[..len]);
                }
                Ok(_) => return Err("a request that is too long".into()),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// The next request, if there is one among what has input.
    pub(super) fn request(&mut self, ready: u64) -> Result<Option<Request>, String> {
        let line = if ready & REQUEST != 0 { self.line()? } else { None };
        line.map(|line| serde_json::from_str(&line).map_err(|error| error.to_string())).transpose()
    }
}

/// Writes an answer.
pub(super) fn answer(value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

fn count(dropped: &mut BTreeMap<String, u64>, reason: &str) {
    match dropped.get_mut(reason) {
        Some(count) => *count += 1,
        None => {
            dropped.insert(reason.to_owned(), 1);
        }
    }
}

/// A switch: cells go to the port that they name, and nothing else is known of them (A-17).
fn switch(clock: Clock, mut lines: Vec<Option<Line>>, control: &mut Asked) -> Result<(), String> {
    // A cell crosses as fast as the processor moves it.
    let mut crossbar = Crossbar::new(lines.len(), FIFO_CELLS, Duration::ZERO);
    let mut dropped = BTreeMap::new();
    let mut cells = Vec::with_capacity(FIFO_CELLS);
    let wired: Vec<usize> = (0..lines.len()).filter(|&port| lines[port].is_some()).collect();
    loop {
        let sockets: Vec<_> = lines.iter().flatten().map(Line::socket).collect();
        let ready = clock.wait(&sockets, None, true)?;
        let time = clock.time();
        for (place, &port) in wired.iter().enumerate() {
            let Some(line) = lines[port].as_mut().filter(|_| ready & 1 << place != 0) else {
                continue;
            };
            cells.clear();
            line.receive(&mut cells);
            for &cell in &cells {
                let output = usize::from(cell.port());
                let to_nobody = lines.get(output).is_none_or(Option::is_none);
                if to_nobody || crossbar.enqueue(time, port, output, cell).is_err() {
                    count(&mut dropped, if to_nobody { "no such port" } else { "FIFO full" });
                }
            }
        }
        while let Some(moved) = crossbar.advance(time) {
            if let Some(line) = &mut lines[moved.output] {
                line.push(moved.item);
            }
        }
        lines.iter_mut().flatten().for_each(Line::flush);
        if let Some(Request::Report) = control.request(ready)? {
            let passed = sum(lines.iter().flatten());
            answer(&Report { dropped: dropped.clone(), ..clock.report(passed) })?;
        }
    }
}

pub(super) fn sum<'a>(lines: impl Iterator<Item = &'a Line>) -> Passed {
    let mut all = Passed::default();
    lines.for_each(|line| all += line.passed);
    all
}

/// Half of a link: maps what comes over the wire, and serves its control channel (A-26, A-27, A-29).
fn half(clock: Clock, mut half: Half, lines: [Line; 2], control: &mut Asked) -> Result<(), String> {
    let [mut near, mut wire] = lines;
    let mut dropped = BTreeMap::new();
    let mut cells = Vec::new();
    loop {
        let ready = clock.wait(&[near.socket(), wire.socket()], None, true)?;
        cells.clear();
        if ready & 1 != 0 {
            near.receive(&mut cells);
        }
        let from_switch = cells.len();
        if ready & 2 != 0 {
            wire.receive(&mut cells);
        }
        for (place, &cell) in cells.iter().enumerate() {
            let fate = match place < from_switch {
                true => half.from_switch(cell),
                false => half.from_wire(cell),
            };
            match fate {
                Fate::Switch(cell) => near.push(cell),
                Fate::Wire(cell) => wire.push(cell),
                Fate::Taken => {}
                Fate::Drop(reason) => count(&mut dropped, reason),
            }
        }
        near.flush();
        wire.flush();
        if let Some(Request::Report) = control.request(ready)? {
            let Totals { mapped, unknown, controls, written, refused } = half.totals;
            let mut passed = near.passed;
            passed += wire.passed;
            answer(&Report {
                totals: [mapped, unknown, controls, written, refused],
                used: half.used() as u64,
                dropped: dropped.clone(),
                ..clock.report(passed)
            })?;
        }
    }
}

/// The wide area: a rate and a delay.
fn wide(clock: Clock, mut delayed: Delayed, control: &mut Asked) -> Result<(), String> {
    let mut due = None;
    loop {
        let [a, b] = delayed.sockets();
        let ready = clock.wait(&[a, b], due, true)?;
        due = delayed.turn();
        if let Some(Request::Report) = control.request(ready)? {
            let mut dropped = BTreeMap::new();
            if delayed.full > 0 {
                dropped.insert("wide area full".to_owned(), delayed.full);
            }
            let late = delayed.late.clone();
            answer(&Report { late, dropped, ..clock.report(Passed::default()) })?;
        }
    }
}

/// A part that is attached to one port of a switch.
pub(super) struct Client {
    pub(super) clock: Clock,
    pub(super) number: u16,
    pub(super) line: Line,
    pub(super) file: super::file::Channels,
    /// Channels for paths that are reserved to here, so that none waits for the file.
    free: Vec<u16>,
    /// For each such path: its channel, and where answers go.
    reserved: Vec<Reserved>,
}

struct Reserved {
    token: u32,
    label: u16,
    sends_on: (u16, u8),
}

/// Most reserved paths that end at a client.
const RESERVED_MAX: usize = 16;

impl Client {
    pub(super) fn new(clock: Clock, number: u16, line: Line, file: &std::path::Path) -> Client {
        let file = super::file::Channels::at(file);
        let take = |file: &mut lastmeter_lan::vunet::vci::SharedFile| {
            let free = file.allocate(u32::from(number) << 16, RESERVED_MAX);
            free.ok_or_else(|| "no channel left".to_owned())
        };
        // One without a file takes no reservations.
        let free = file.with(take).unwrap_or_default();
        Client { clock, number, line, file, free, reserved: Vec::new() }
    }

    /// Takes what has arrived, and answers what every client answers; returns the rest.
    pub(super) fn take(&mut self) -> Vec<VunetCell> {
        let (mut cells, mut rest) = (Vec::new(), Vec::new());
        self.line.receive(&mut cells);
        for cell in cells {
            match self.reply(&cell) {
                Some(answer) => self.line.push(answer),
                None => rest.push(cell),
            }
        }
        self.line.flush();
        rest
    }

    fn reply(&mut self, cell: &VunetCell) -> Option<VunetCell> {
        use super::probe::{Kind, Probe};
        use lastmeter_lan::vunet::{connection, data_cell, is_control, reserve};
        use lastmeter_wire::control::reservation::Op;
        if let Some(message) = reserve::message_in(cell) {
            return match message.op {
                Op::Path => self.admit(cell, message.token),
                Op::Tear => {
                    self.forget(message.token);
                    None
                }
                Op::Reserved => None,
            };
        }
        if is_control(cell) {
            return connection::pong(cell, self.number);
        }
        let ask = Probe::parse(cell.payload()).filter(|probe| probe.kind == Kind::Ask)?;
        let (vci, port) = match ask.vci {
            0 => self.reserved.iter().find(|one| one.label == cell.vci())?.sends_on,
            vci => (vci, ask.port),
        };
        let answer = Probe { kind: Kind::Answer, arrived: self.clock.now(), ..ask };
        Some(data_cell(vci, port, true, &answer.emit()))
    }

    /// Answers the request for a path that ends here.
    fn admit(&mut self, cell: &VunetCell, token: u32) -> Option<VunetCell> {
        self.forget(token);
        let &label = self.free.last()?;
        let (answer, sends_on) = lastmeter_lan::vunet::reserve::reply(cell, label)?;
        self.free.pop();
        self.reserved.push(Reserved { token, label, sends_on });
        Some(answer)
    }

    fn forget(&mut self, token: u32) {
        let gone = self.reserved.extract_if(.., |one| one.token == token);
        self.free.extend(gone.map(|one| one.label));
    }
}
