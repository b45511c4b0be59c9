//! A session of iSCSI, without input or output: PDUs in, PDUs out.
//!
//! ```text
//! PDU --> login --> command, with the data that it needs --> Step::Execute --> (SCSI) --> finish --> PDUs
//!                   data that it does not have yet: R2T
//! ```
//!
//! One connection a session, error recovery level 0. Commands are executed in the order of their numbers as soon as
//! their data are there. Memory is bounded: a session holds the data of at most [`QUEUE`] commands, and of not more
//! bytes than its share; what exceeds it is answered with TASK SET FULL.
//!
//! Source: RFC 7143.
//!
//! Rows: N-30.

pub mod chap;
mod login;
mod parameters;
pub mod serve;
mod tasks;

pub use login::{Door, Identity};
pub use parameters::{Parameters, RECEIVE_MAX};

use super::End;
use super::scsi::{Data, Reply, TRANSFER_MAX};
use lastmeter_wire::iscsi::{
    self, Answer, Ask, HEADER_LEN, NO_TAG, Request, Residual, Response, managed, reject, status,
    text,
};
use lastmeter_wire::scsi::{CDB_LEN, Command};
use login::Login;
use std::cmp::Ordering;
use std::io;
use tasks::{Arrived, Tasks};

/// Commands that an initiator may have in flight.
pub const QUEUE: u32 = 64;
/// The longest ping that is returned.
const PING_MAX: usize = 8192;

/// A command whose data are there.
#[derive(Debug)]
pub struct Work {
    /// Its tag.
    pub task: u32,
    /// The logical unit.
    pub lun: u64,
    /// The command.
    pub cdb: [u8; CDB_LEN],
    /// Its data, if they were gathered; else they are those of the PDU.
    pub data: Option<Vec<u8>>,
    /// What the initiator expects to transfer.
    pub expected: u32,
    /// It expects to read.
    pub reads: bool,
    /// It expects to write.
    pub writes: bool,
    /// Bytes that the command takes.
    pub takes: u64,
}

/// What the caller does after a PDU.
#[derive(Debug)]
pub enum Step {
    /// Nothing.
    Go,
    /// Somebody has logged in.
    Begin(Identity),
    /// Executes a command, and passes its reply to [`Session::finish`].
    Execute(Work),
    /// Does what task management asks, and passes its answer to [`Session::managed`].
    Manage {
        /// The request's tag.
        task: u32,
        /// The logical unit.
        lun: u64,
        /// One of [`function`](iscsi::function).
        function: u8,
    },
    /// Sends what there is and ends.
    End,
}

/// A session.
pub struct Session {
    login: Option<Login>,
    discovery: bool,
    parameters: Parameters,
    block: u32,
    status_number: u32,
    command_expected: Option<u32>,
    tasks: Tasks,
    text: Vec<u8>,
}

impl Session {
    /// Before its login, with a disk of such blocks.
    pub fn new(block: u32) -> Session {
        Session {
            login: Some(Login::new()),
            discovery: false,
            parameters: Parameters::default(),
            block,
            status_number: 1,
            command_expected: None,
            tasks: Tasks::default(),
            text: Vec::new(),
        }
    }
    /// What was agreed, which says whether PDUs have digests. Those of a login have none.
    pub fn parameters(&self) -> Parameters {
        match self.login {
            Some(_) => Parameters::default(),
            None => self.parameters,
        }
    }
    /// Forgets commands that wait for data: another initiator has cleared them.
    pub fn clear(&mut self) {
        self.tasks.clear();
    }
    /// Sets the bytes of data that it may hold.
    pub fn allot(&mut self, bytes: u64) {
        self.tasks.share = bytes;
    }

    fn expected(&self) -> u32 {
        self.command_expected.unwrap_or(0)
    }

    /// Adds a PDU to `out`; its data are already there if `data` is none.
    fn say(&mut self, out: &mut Vec<u8>, task: u32, answer: Answer, data: &[u8]) {
        self.head(out, task, 0, answer, data.len() as u32);
        self.body(out, data);
    }
    fn head(&mut self, out: &mut Vec<u8>, task: u32, lun: u64, answer: Answer, data_len: u32) {
        let counts = !matches!(answer, Answer::DataIn { status: None, .. } | Answer::Ready { .. });
        let command_max = self.expected().wrapping_add(QUEUE).wrapping_sub(1 + self.tasks.len());
        let status_number = match answer {
            Answer::DataIn { status: None, .. } => 0,
            _ => self.status_number,
        };
        let command_expected = self.expected();
        let response =
            Response { lun, task, status_number, command_expected, command_max, data_len, answer };
        if counts {
            self.status_number = self.status_number.wrapping_add(1);
        }
        let header = response.emit();
        out.extend_from_slice(&header);
        if self.parameters().header_digest {
            out.extend_from_slice(&iscsi::digest(&header));
        }
    }
    fn body(&self, out: &mut Vec<u8>, data: &[u8]) {
        let at = out.len();
        out.extend_from_slice(data);
        self.seal(out, at);
    }
    /// Pads and digests the data from here on.
    fn seal(&self, out: &mut Vec<u8>, at: usize) {
        let len = out.len() - at;
        out.resize(at + iscsi::padded(len), 0);
        if self.parameters().data_digest && len > 0 {
            let digest = iscsi::digest(&out[at..]);
            out.extend_from_slice(&digest);
        }
    }

    /// Takes a PDU.
    ///
    /// # Errors
    /// If the session cannot go on; what is in `out` is still to be sent.
    pub fn receive(
        &mut self,
        header: &[u8; HEADER_LEN],
        data: &[u8],
        door: &Door,
        out: &mut Vec<u8>,
    ) -> Result<Step, End> {
        let request = match Request::parse(header) {
            Ok(request) => request,
            Err(error) if self.login.is_some() => return Err(error.into()),
            Err(_) => {
                self.reject(out, header, reject::UNSUPPORTED);
                return Ok(Step::Go);
            }
        };
        if self.login.is_some() {
            return self.log_in(&request, data, door, out);
        }
        if !self.admit(&request)? {
            return Ok(Step::Go);
        }
        match request.ask {
            Ask::Command { .. } if self.discovery => {
                self.reject(out, header, reject::PROTOCOL);
                Ok(Step::Go)
            }
            Ask::Command { last, reads, writes, expected, cdb, .. } => {
                let takes = Command::parse(&cdb).map_or(0, |command| command.data_out(self.block));
                // What is too long is refused when it is executed, without its data.
                let gathers = if takes > (2 * TRANSFER_MAX).into() { 0 } else { takes };
                let total = if writes { gathers.min(expected.into()) as u32 } else { 0 };
                let work = Work {
                    task: request.task,
                    lun: request.lun,
                    cdb,
                    data: None,
                    expected,
                    reads,
                    writes,
                    takes,
                };
                self.command(work, total, writes && !last, data, out)
            }
            Ask::DataOut { last, transfer, number, offset } => {
                let arrived = self.tasks.data(request.task, transfer, (number, offset), last, data);
                self.arrived(arrived, out)
            }
            Ask::NopOut { .. } => {
                if request.task != NO_TAG {
                    let most = PING_MAX.min(self.parameters.send_max as usize);
                    let data = &data[..data.len().min(most)];
                    self.say(out, request.task, Answer::NopIn { transfer: NO_TAG }, data);
                }
                Ok(Step::Go)
            }
            Ask::Manage { function, referenced, .. } => {
                Ok(self.manage(&request, function, referenced, out))
            }
            Ask::Text { continues, .. } => self.negotiate(&request, continues, data, door, out),
            Ask::Logout { reason, .. } => {
                const NO_RECOVERY: u8 = 2;
                let response = if reason > 1 { NO_RECOVERY } else { 0 };
                self.say(out, request.task, Answer::Logout { response }, &[]);
                Ok(if response == 0 { Step::End } else { Step::Go })
            }
            Ask::Login { .. } => {
                self.reject(out, header, reject::PROTOCOL);
                Err(End::Wrong("a login in a session".to_owned()))
            }
            Ask::Snack => {
                self.reject(out, header, reject::SNACK);
                Ok(Step::Go)
            }
        }
    }

    /// Whether a request has the number that is next, or needs none.
    fn admit(&mut self, request: &Request) -> Result<bool, End> {
        let numbered = !matches!(request.ask, Ask::DataOut { .. } | Ask::Snack);
        if !numbered || request.immediate {
            return Ok(true);
        }
        let ahead = request.command_number.wrapping_sub(self.expected());
        match ahead {
            // Also beyond the window: it is told that the task set is full.
            0 => {
                self.command_expected = Some(self.expected().wrapping_add(1));
                Ok(true)
            }
            // Within the window, a command is missing that nobody can send any more.
            ahead if ahead < QUEUE - self.tasks.len() => Err(End::Wrong(format!(
                "command {} after {ahead} that are missing",
                request.command_number
            ))),
            // Outside of it, it is ignored (RFC 7143, section 4.2.2.1).
            _ => Ok(false),
        }
    }

    fn log_in(
        &mut self,
        request: &Request,
        data: &[u8],
        door: &Door,
        out: &mut Vec<u8>,
    ) -> Result<Step, End> {
        let Some(login) = &mut self.login else { return Ok(Step::Go) };
        let first = self.command_expected.is_none();
        let stepped = login.receive(request, data, door, &mut self.parameters);
        if first {
            self.command_expected = Some(request.command_number);
            // So that initiators take the numbers that follow.
            self.status_number = request.status_expected.max(1);
        }
        let failed = match stepped.answer {
            Answer::Login { status: status::SUCCESS, .. } => None,
            Answer::Login { status, .. } => Some(status),
            _ => None,
        };
        self.say(out, request.task, stepped.answer, &stepped.text);
        match (failed, stepped.done) {
            (Some(status), _) => Err(End::Wrong(format!("a login was refused: {status:#06x}"))),
            (None, Some(identity)) => {
                self.login = None;
                self.discovery = identity.discovery;
                Ok(Step::Begin(identity))
            }
            (None, None) => Ok(Step::Go),
        }
    }

    /// A command, of which `total` bytes are needed before it is executed.
    fn command(
        &mut self,
        work: Work,
        total: u32,
        more: bool,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, End> {
        if self.tasks.knows(work.task) {
            return Err(End::Wrong(format!("two commands with the tag {:#x}", work.task)));
        }
        let parameters = self.parameters;
        let unasked = (!parameters.immediate && !data.is_empty())
            || (parameters.asks_first && more)
            || data.len() > parameters.first_burst as usize;
        if unasked {
            const UNEXPECTED: lastmeter_wire::scsi::Sense =
                lastmeter_wire::scsi::Sense::new(11, 0x0c, 0x0c);
            self.fail(&work, UNEXPECTED, out);
            return Ok(Step::Go);
        }
        if data.len() >= total as usize {
            return Ok(Step::Execute(work));
        }
        let arrived = self.tasks.begin(work, total, more, data, parameters.first_burst);
        self.arrived(arrived, out)
    }

    fn fail(&mut self, work: &Work, sense: lastmeter_wire::scsi::Sense, out: &mut Vec<u8>) {
        let reply = Reply::check(sense);
        let fill = &mut |_: u64, _: &mut [u8]| Ok(());
        // Nothing is read.
        let _ = self.finish(work, reply, false, out, fill);
    }

    fn arrived(&mut self, arrived: Arrived, out: &mut Vec<u8>) -> Result<Step, End> {
        match arrived {
            Arrived::Waits => {}
            Arrived::Full(work) => {
                let full = lastmeter_wire::scsi::status::TASK_SET_FULL;
                let reply = Reply::only(full, "too many data wait");
                let fill = &mut |_: u64, _: &mut [u8]| Ok(());
                let _ = self.finish(&work, reply, false, out, fill);
            }
            Arrived::Wrong(work) => {
                const INCORRECT: lastmeter_wire::scsi::Sense =
                    lastmeter_wire::scsi::Sense::new(11, 0x0c, 0x0d);
                self.fail(&work, INCORRECT, out);
            }
            Arrived::Complete(work) => {
                self.ask(out);
                return Ok(Step::Execute(work));
            }
        }
        self.ask(out);
        Ok(Step::Go)
    }

    /// Asks for data of commands that wait for it.
    fn ask(&mut self, out: &mut Vec<u8>) {
        while let Some((task, lun, ready)) = self.tasks.next(self.parameters.burst) {
            self.head(out, task, lun, ready, 0);
        }
    }

    fn manage(
        &mut self,
        request: &Request,
        function: u8,
        referenced: u32,
        out: &mut Vec<u8>,
    ) -> Step {
        use iscsi::function as manage;
        let response = match function {
            // A task that is not there was completed, and its response is on the way.
            manage::ABORT_TASK => match self.tasks.abort(referenced) {
                true => managed::COMPLETE,
                false => managed::NO_TASK,
            },
            manage::ABORT_TASK_SET => {
                self.tasks.clear();
                managed::COMPLETE
            }
            manage::CLEAR_TASK_SET
            | manage::LUN_RESET
            | manage::WARM_RESET
            | manage::COLD_RESET => {
                let (task, lun) = (request.task, request.lun);
                return Step::Manage { task, lun, function };
            }
            manage::REASSIGN => managed::NO_REASSIGNMENT,
            _ => managed::UNSUPPORTED,
        };
        self.managed(request.task, response, out);
        Step::Go
    }

    /// The answer to task management.
    pub fn managed(&mut self, task: u32, response: u8, out: &mut Vec<u8>) {
        self.say(out, task, Answer::Manage { response }, &[]);
    }

    fn negotiate(
        &mut self,
        request: &Request,
        continues: bool,
        data: &[u8],
        door: &Door,
        out: &mut Vec<u8>,
    ) -> Result<Step, End> {
        if self.text.len() + data.len() > text::TEXT_MAX {
            return Err(End::Wrong("text without end".to_owned()));
        }
        self.text.extend_from_slice(data);
        if continues {
            let answer = Answer::Text { last: false, continues: false, transfer: 1 };
            self.say(out, request.task, answer, &[]);
            return Ok(Step::Go);
        }
        let whole = std::mem::take(&mut self.text);
        let mut said = Vec::new();
        for (key, value) in text::parse(&whole)? {
            match key {
                "SendTargets" => said.extend(login::send_targets(value, door.target, door.portal)),
                "MaxRecvDataSegmentLength" => {
                    let _ = self.parameters.offer(key, value);
                }
                // All else was agreed at the login.
                _ => text::emit(&mut said, key, "Reject"),
            }
        }
        said.truncate(self.parameters.send_max as usize);
        let answer = Answer::Text { last: true, continues: false, transfer: NO_TAG };
        self.say(out, request.task, answer, &said);
        Ok(Step::Go)
    }

    fn reject(&mut self, out: &mut Vec<u8>, header: &[u8; HEADER_LEN], reason: u8) {
        self.say(out, NO_TAG, Answer::Reject { reason }, header);
    }

    /// A PDU whose data were corrupted.
    pub fn corrupted(&mut self, header: &[u8; HEADER_LEN], out: &mut Vec<u8>) {
        self.reject(out, header, reject::DATA_DIGEST);
    }

    /// A command's reply. `fill` reads parts of the medium.
    ///
    /// # Errors
    /// If the medium cannot be read after a part of its data was said: `out` then has all that was said of the command,
    /// and its end.
    pub fn finish(
        &mut self,
        work: &Work,
        mut reply: Reply,
        describes: bool,
        out: &mut Vec<u8>,
        fill: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (length, good) = (reply.data.length(), reply.status == 0);
        let mut residual = residual(work, length, good);
        let send = if work.reads && good { length.min(work.expected.into()) as u32 } else { 0 };
        let (said, failed) = self.data_in(work, &reply, (send, residual), out, fill);
        if failed.is_err() {
            reply = Reply::check(lastmeter_wire::scsi::Sense::READ_ERROR);
            residual = Residual::Under(work.expected - said.bytes);
        } else if send > 0 {
            // The last of the data had the status.
            return Ok(());
        }
        let sense = reply.sense.map(|sense| {
            let sense = if describes { sense.descriptors() } else { sense.fixed() };
            [&(sense.len() as u16).to_be_bytes()[..], &sense].concat()
        });
        let (status, data_expected) = (reply.status, said.pdus);
        let answer = Answer::Command { response: 0, status, residual, data_expected };
        self.say(out, work.task, answer, &sense.unwrap_or_default());
        failed
    }

    /// The data of a reply, `send` bytes in PDUs of which the last has the status; what was said, also if the medium
    /// then failed.
    fn data_in(
        &mut self,
        work: &Work,
        reply: &Reply,
        (send, residual): (u32, Residual),
        out: &mut Vec<u8>,
        fill: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> (Said, io::Result<()>) {
        let mut said = Said { bytes: 0, pdus: 0 };
        let mut in_burst = 0;
        while said.bytes < send {
            let room = self.parameters.send_max.min(self.parameters.burst - in_burst);
            let part = room.min(send - said.bytes);
            let ends = said.bytes + part == send;
            in_burst = (in_burst + part) % self.parameters.burst;
            let answer = Answer::DataIn {
                last: ends || in_burst == 0,
                status: ends.then_some(reply.status),
                residual: if ends { residual } else { Residual::None },
                number: said.pdus,
                offset: said.bytes,
            };
            let (start, before) = (out.len(), self.status_number);
            self.head(out, work.task, work.lun, answer, part);
            let at = out.len();
            match &reply.data {
                Data::Bytes(bytes) => {
                    out.extend_from_slice(&bytes[said.bytes as usize..][..part as usize]);
                }
                Data::Medium { at: place, .. } => {
                    out.resize(at + part as usize, 0);
                    if let Err(error) = fill(place + u64::from(said.bytes), &mut out[at..]) {
                        // This PDU was not said.
                        out.truncate(start);
                        self.status_number = before;
                        return (said, Err(error));
                    }
                }
            }
            self.seal(out, at);
            said.bytes += part;
            said.pdus += 1;
        }
        (said, Ok(()))
    }
}

/// How much of a reply's data was said.
struct Said {
    bytes: u32,
    pdus: u32,
}

/// How much more or less a command moves than its initiator expected: `length` bytes to it, or what the command takes.
fn residual(work: &Work, length: u64, good: bool) -> Residual {
    let (moved, expected) =
        (if work.takes > 0 { work.takes } else { length }, work.expected.into());
    match (good, moved.cmp(&expected)) {
        (true, Ordering::Less) => Residual::Under((expected - moved) as u32),
        (true, Ordering::Greater) => {
            Residual::Over(u32::try_from(moved - expected).unwrap_or(u32::MAX))
        }
        (false, _) if work.expected > 0 => Residual::Under(work.expected),
        _ => Residual::None,
    }
}
