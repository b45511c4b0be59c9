//! One initiator's connection: reads PDUs, executes commands, sends what the session says.

use super::{Door, QUEUE, Session, Step, Work, chap};
use crate::account::Lap;
use crate::disk::gate::Gate;
use crate::disk::scsi::{Close, Nexus, Task, is_unit};
use crate::disk::{ANSWER, Disk, End, MEDIUM, RECEIVE};
use lastmeter_plugin::request::block;
use lastmeter_wire::iscsi::{self, HEADER_LEN, function, managed};
use std::io::{BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of writes that all sessions together may hold while they wait for the rest.
pub const MEMORY_MAX: u64 = 1 << 30;
/// The most data of a PDU of a login, where nothing was agreed yet.
const LOGIN_DATA_MAX: usize = 8192;
/// Answers are sent when there are so many bytes of them.
const ANSWERS_MAX: usize = 512 << 10;
/// Room that a session keeps.
const KEPT_MAX: usize = 1 << 20;

/// What a session needs to know of its connection.
pub struct Connection {
    /// The address that the initiator reached.
    pub portal: String,
    /// Unpredictable bytes.
    pub challenge: [u8; chap::LEN],
    /// Its number among all connections.
    pub number: u64,
    /// Connections that there are.
    pub clients: Arc<AtomicUsize>,
    /// Ends the connection.
    pub close: Close,
}

/// Serves one initiator until it goes. `ready` is called when it has logged in.
pub fn serve(
    disk: &Arc<Disk>,
    reader: &mut BufReader<impl Read>,
    writer: &mut impl Write,
    connection: Connection,
    ready: impl FnOnce(),
) -> End {
    let Connection { portal, challenge, number, clients, close } = connection;
    let door = Door {
        access: &disk.access,
        target: disk.unit.name(),
        secret: disk.secret.as_deref(),
        portal: &portal,
        challenge,
        tsih: (number % 0xffff + 1) as u16,
    };
    let mut pipe = Pipe { reader, writer, out: Vec::new(), data: Vec::new() };
    let mut session = Session::new(disk.medium.block());
    // Until it has logged in.
    let identity = loop {
        let header = match pipe.read(&session, LOGIN_DATA_MAX, &mut || ()) {
            Ok(header) => header,
            Err(Lost::Session(end)) => return end,
            Err(Lost::Data(_)) => return End::Wrong("a digest in a login".to_owned()),
        };
        let step = session.receive(&header, &pipe.data, &door, &mut pipe.out);
        // A refusal is said, too.
        if let Err(end) = pipe.send() {
            return end;
        }
        match step {
            Ok(Step::Begin(identity)) => break identity,
            Ok(_) => {}
            Err(end) => return end,
        }
    };
    ready();
    let gate = match Gate::new(disk, &identity.client) {
        Ok(gate) => gate,
        Err(why) => return End::Wrong(why),
    };
    let nexus = disk.unit.join(&identity.client, &identity.port, close);
    let mut initiator = Initiator { disk, gate, nexus, session, clients };
    let ended = initiator.run(&mut pipe, &door);
    disk.unit.leave(&initiator.nexus);
    match ended {
        Ok(()) => End::Closed,
        Err(end) => end,
    }
}

/// What cannot be read.
enum Lost {
    /// The data of this PDU.
    Data([u8; HEADER_LEN]),
    /// Anything more.
    Session(End),
}

impl<T: Into<End>> From<T> for Lost {
    fn from(error: T) -> Lost {
        Lost::Session(error.into())
    }
}

/// Bytes in both directions.
struct Pipe<'a, R, W> {
    reader: &'a mut BufReader<R>,
    writer: &'a mut W,
    /// What is to be sent.
    out: Vec<u8>,
    /// The data of the last PDU.
    data: Vec<u8>,
}

impl<R: Read, W: Write> Pipe<'_, R, W> {
    fn send(&mut self) -> Result<(), End> {
        self.writer.write_all(&self.out)?;
        self.writer.flush()?;
        self.out.clear();
        if self.out.capacity() > 2 * KEPT_MAX {
            self.out.shrink_to(KEPT_MAX);
        }
        Ok(())
    }
    /// Answers leave before we wait for bytes.
    fn await_bytes(&mut self, bytes: usize) -> Result<(), End> {
        let waits = self.reader.buffer().len() < bytes;
        if !self.out.is_empty() && (waits || self.out.len() > ANSWERS_MAX) {
            self.send()?;
        }
        Ok(())
    }
    /// The next PDU: its header, with its data in `data`. `begun` is called when the header is there.
    fn read(
        &mut self,
        session: &Session,
        most: usize,
        begun: &mut dyn FnMut(),
    ) -> Result<[u8; HEADER_LEN], Lost> {
        let parameters = session.parameters();
        let digest = |used: bool| if used { iscsi::DIGEST_LEN } else { 0 };
        self.await_bytes(HEADER_LEN)?;
        let mut header = [0; HEADER_LEN];
        self.reader.read_exact(&mut header)?;
        begun();
        let (more, len) = iscsi::lengths(&header);
        if len > most {
            let why = format!("a PDU with {len} bytes of data; {most} were agreed");
            return Err(Lost::Session(End::Wrong(why)));
        }
        let padded = iscsi::padded(len);
        let rest = more + digest(parameters.header_digest) + padded;
        let rest = rest + if len > 0 { digest(parameters.data_digest) } else { 0 };
        self.await_bytes(rest)?;
        let mut more_headers = [0; 4 * 255];
        self.reader.read_exact(&mut more_headers[..more])?;
        if parameters.header_digest {
            let mut found = [0; iscsi::DIGEST_LEN];
            self.reader.read_exact(&mut found)?;
            let expected = match more {
                0 => iscsi::digest(&header),
                _ => iscsi::digest(&[&header[..], &more_headers[..more]].concat()),
            };
            if found != expected {
                return Err(Lost::Session(End::Wrong("a header was corrupted".to_owned())));
            }
        }
        self.data.resize(padded, 0);
        self.reader.read_exact(&mut self.data)?;
        if parameters.data_digest && len > 0 {
            let mut found = [0; iscsi::DIGEST_LEN];
            self.reader.read_exact(&mut found)?;
            if found != iscsi::digest(&self.data) {
                return Err(Lost::Data(header));
            }
        }
        self.data.truncate(len);
        Ok(header)
    }
}

/// An initiator that has logged in.
struct Initiator<'a> {
    disk: &'a Disk,
    gate: Gate<'a>,
    nexus: Arc<Nexus>,
    session: Session,
    clients: Arc<AtomicUsize>,
}

impl Initiator<'_> {
    fn run<R: Read, W: Write>(&mut self, pipe: &mut Pipe<R, W>, door: &Door) -> Result<(), End> {
        let mut cleared = self.nexus.cleared();
        loop {
            let mut lap = None;
            let most = super::RECEIVE_MAX as usize;
            let header = pipe.read(&self.session, most, &mut || {
                lap = Some(self.disk.account.begin());
            });
            let header = match header {
                Err(Lost::Data(header)) => {
                    // At this level of recovery the session ends (RFC 7143, section 7.8).
                    self.session.corrupted(&header, &mut pipe.out);
                    pipe.send()?;
                    return Err(End::Wrong("data were corrupted".to_owned()));
                }
                Err(Lost::Session(end)) => return Err(end),
                Ok(header) => header,
            };
            let mut lap = lap.unwrap_or_else(|| self.disk.account.begin());
            if self.nexus.cleared() != cleared {
                cleared = self.nexus.cleared();
                self.session.clear();
            }
            let clients = self.clients.load(Relaxed).max(QUEUE as usize / 16) as u64;
            self.session.allot(MEMORY_MAX / clients);
            let step = self.session.receive(&header, &pipe.data, door, &mut pipe.out);
            lap.served(RECEIVE);
            match step {
                Ok(Step::Go | Step::Begin(_)) => {}
                Ok(Step::Execute(work)) => {
                    let data = std::mem::take(&mut pipe.data);
                    self.execute(&work, work.data.as_deref().unwrap_or(&data), lap, &mut pipe.out);
                    pipe.data = data;
                }
                Ok(Step::Manage { task, lun, function }) => {
                    if self.manage(task, lun, function, &mut pipe.out) {
                        return pipe.send();
                    }
                }
                Ok(Step::End) => return pipe.send(),
                Err(end) => {
                    pipe.send()?;
                    return Err(end);
                }
            }
        }
    }

    fn execute(&mut self, work: &Work, data: &[u8], mut lap: Lap, out: &mut Vec<u8>) {
        let offered = if work.writes { work.expected } else { 0 };
        let mut task = Task { gate: &mut self.gate, nexus: &self.nexus, offered, lap: &mut lap };
        let reply = task.execute(work.lun, &work.cdb, data);
        let refused = reply.refused;
        let (before, medium) = (out.len(), &self.disk.medium);
        let mut fill = |at: u64, bytes: &mut [u8]| medium.read(at, bytes);
        let describes = self.disk.unit.describes();
        let from_medium = matches!(reply.data, crate::disk::scsi::Data::Medium { .. });
        let done = self.session.finish(work, reply, describes, out, &mut fill);
        // Of a read, copying from the medium is nearly all.
        lap.served(if from_medium { MEDIUM } else { ANSWER });
        match (refused, done) {
            (Some(why), _) => self.disk.account.refuse(why),
            (None, Err(_)) => self.disk.account.refuse("the medium failed"),
            (None, Ok(())) => {
                let read =
                    if work.reads { (out.len() - before).saturating_sub(HEADER_LEN) } else { 0 };
                let moved = if work.takes > 0 { data.len() } else { read };
                self.disk.account.end(lap, moved as u64);
            }
        }
    }

    /// Does what task management asks; whether the session ends.
    fn manage(&mut self, task: u32, lun: u64, function: u8, out: &mut Vec<u8>) -> bool {
        let of_unit = matches!(function, function::CLEAR_TASK_SET | function::LUN_RESET);
        if of_unit && !is_unit(lun) {
            self.session.managed(task, managed::NO_LUN, out);
            return false;
        }
        // They take the unit from others.
        if let Err(refusal) = self.gate.pass(block::RESERVE) {
            self.disk.account.refuse(refusal.words());
            self.session.managed(task, managed::DENIED, out);
            return false;
        }
        self.session.clear();
        match function {
            function::CLEAR_TASK_SET => self.disk.unit.clear(&self.nexus),
            _ => self.disk.unit.reset(&self.nexus),
        }
        self.session.managed(task, managed::COMPLETE, out);
        let cold = function == function::COLD_RESET;
        if cold {
            self.disk.unit.end_others(&self.nexus);
        }
        cold
    }
}
