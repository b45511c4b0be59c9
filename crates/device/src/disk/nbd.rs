//! A session of NBD: options, then requests, each asked of the client's policies before it reaches the medium.
//!
//! ```text
//! greeting --> [TLS] --> options --> requests --> end
//!                          |            ^  receive, policy, medium, answer: stages of the disk's account
//!                    export's name: who the client is
//! ```
//!
//! The name of the export says who the client is: its token, or nothing for anyone. A client sees a disk of the size
//! that the owner gave it, or of the medium. Where the disk has a certificate a client may encrypt, and one of another
//! host must, before it says its token. In TLS a certificate of its own may say who it is.
//!
//! Rows: N-30.

use super::gate::{Gate, Refusal};
use super::medium::Medium;
use super::{ANSWER, Disk, End, MEDIUM, POLICY, RECEIVE};
use crate::access::ANYONE;
use crate::account::Lap;
use crate::tls::{Half, Secured};
use lastmeter_plugin::request::block;
use lastmeter_wire::nbd::{
    self, CHUNK_LEN, Command, Kind, OPTION_LEN, REQUEST_LEN, Request, Wanted, can, chunk, error,
    flag, reply,
};
use rustls::ServerConfig;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

/// The longest request.
pub const REQUEST_MAX: u32 = 32 << 20;
/// Reads of memory from so many bytes on are sent from where they are.
const DIRECT_MIN: usize = 16 << 10;
/// Bytes of data that a session keeps room for.
const KEPT_MAX: usize = 1 << 20;
/// Bytes of an encrypted session's buffers: a few records of TLS.
const SECURED: usize = 64 << 10;
/// Options of a session, at most.
const OPTIONS_MAX: usize = 64;
/// Extents of a reply, at most.
const EXTENTS_MAX: usize = 1024;
/// The context of what is allocated, and its number.
const ALLOCATION: &str = "base:allocation";
const ALLOCATION_NUMBER: u32 = 1;

/// Where answers go.
pub trait Sink: Write {
    /// Sends a part of the medium after all that was written before.
    ///
    /// # Errors
    /// If the medium or the connection fails.
    fn send(&mut self, medium: &Medium, at: u64, length: usize) -> io::Result<()>;
}

impl<S: Write + AsFd> Sink for BufWriter<S> {
    fn send(&mut self, medium: &Medium, at: u64, length: usize) -> io::Result<()> {
        self.flush()?;
        medium.send(at, length, self.get_ref())
    }
}

impl<R: Read, W: Write> Sink for BufWriter<Half<'_, R, W>> {
    fn send(&mut self, medium: &Medium, at: u64, length: usize) -> io::Result<()> {
        let mut piece = vec![0; length.min(SECURED)];
        let end = at + length as u64;
        for at in (at..end).step_by(SECURED) {
            let piece = &mut piece[..((end - at) as usize).min(SECURED)];
            medium.read(at, piece)?;
            self.write_all(piece)?;
        }
        Ok(())
    }
}

impl Sink for Vec<u8> {
    fn send(&mut self, medium: &Medium, at: u64, length: usize) -> io::Result<()> {
        let len = self.len();
        self.resize(len + length, 0);
        medium.read(at, &mut self[len..])
    }
}

impl Disk {
    /// The client of an export's name.
    pub(super) fn client<'a>(&'a self, export: &str) -> Option<&'a str> {
        let anyone = || self.access.client(ANYONE).map(|_| ANYONE);
        if export.is_empty() || export == ANYONE { anyone() } else { self.access.shown(export) }
    }
    fn flags(&self) -> u16 {
        let mut flags = can::FLAGS | can::FLUSH | can::FUA | can::DF | can::MULTI;
        flags |= can::TRIM | can::ZEROES;
        if self.medium.is_read_only() {
            flags |= can::READ_ONLY;
        }
        flags
    }
}

/// Whether and when a client encrypts.
#[derive(Clone, Default)]
pub enum Encryption {
    /// It cannot: the disk has no certificate.
    #[default]
    Absent,
    /// It may.
    Offered(Arc<ServerConfig>),
    /// It does, or is told nothing.
    Required(Arc<ServerConfig>),
}

/// Serves one client until it goes. `ready` is called when its options are done.
pub fn serve(
    disk: &Arc<Disk>,
    reader: &mut BufReader<impl Read>,
    writer: &mut impl Sink,
    encryption: &Encryption,
    ready: impl FnOnce(),
) -> End {
    match Session::new(disk).run(reader, writer, encryption, ready) {
        Ok(()) => End::Closed,
        Err(end) => end,
    }
}

/// Fills `data`: with what was read ahead, then with no copy between.
fn receive(reader: &mut BufReader<impl Read>, data: &mut [u8]) -> io::Result<()> {
    let ahead = reader.buffer().len();
    let (first, rest) = data.split_at_mut(ahead);
    first.copy_from_slice(reader.buffer());
    reader.consume(ahead);
    reader.get_mut().read_exact(rest)
}

/// What a medium that failed is to a client, and to the account.
pub(super) fn failure(failed: &io::Error) -> (u32, &'static str) {
    match failed.kind() {
        io::ErrorKind::StorageFull => (error::SPACE, "the medium is full"),
        _ => (error::MEDIUM, "the medium failed"),
    }
}

/// How options end.
enum Chosen {
    /// The client has gone.
    Nothing,
    /// It wants to encrypt and begin again.
    Encryption(Arc<ServerConfig>),
    /// It has chosen the export of this client.
    Client(String),
}

pub(super) struct Session<'a> {
    disk: &'a Disk,
    structured: bool,
    allocation: bool,
    /// Whose certificate it has shown.
    certified: Option<String>,
}

impl<'a> Session<'a> {
    pub(super) fn new(disk: &'a Disk) -> Session<'a> {
        Session { disk, structured: false, allocation: false, certified: None }
    }
    /// The client of an export's name, which must not contradict a certificate.
    fn client(&self, export: &str) -> Option<&'a str> {
        match &self.certified {
            Some(client) => self.disk.access.agreeing(client, export),
            None => self.disk.client(export),
        }
    }
    fn run(
        mut self,
        reader: &mut BufReader<impl Read>,
        writer: &mut impl Sink,
        encryption: &Encryption,
        ready: impl FnOnce(),
    ) -> Result<(), End> {
        writer.write_all(&nbd::GREETING)?;
        writer.write_all(&nbd::GREETING_FLAGS.to_be_bytes())?;
        writer.flush()?;
        let mut flags = [0; 4];
        reader.read_exact(&mut flags)?;
        const NO_ZEROES: u32 = 2;
        let flags = u32::from_be_bytes(flags);
        if flags & 1 == 0 || flags & !3 != 0 {
            return Err(End::Wrong(format!("client flags {flags:#x}")));
        }
        let zeroes = flags & NO_ZEROES == 0;
        let config = match self.options(reader, writer, zeroes, encryption)? {
            Chosen::Nothing => return Ok(()),
            Chosen::Client(client) => return self.chosen(reader, writer, &client, ready),
            Chosen::Encryption(config) => config,
        };
        // What came before encryption counts for nothing.
        self = Session::new(self.disk);
        let secured = Secured::new(&config, reader, writer)?;
        self.certified = secured.shake(&self.disk.access)?;
        let mut reader = BufReader::with_capacity(SECURED, secured.reader());
        let mut writer = BufWriter::with_capacity(SECURED, secured.writer());
        match self.options(&mut reader, &mut writer, zeroes, &Encryption::Absent)? {
            Chosen::Client(client) => self.chosen(&mut reader, &mut writer, &client, ready),
            _ => Ok(()),
        }
    }

    /// What follows when the client has chosen its export.
    fn chosen(
        &self,
        reader: &mut BufReader<impl Read>,
        writer: &mut impl Sink,
        client: &str,
        ready: impl FnOnce(),
    ) -> Result<(), End> {
        ready();
        let gate = Gate::new(self.disk, client).map_err(End::Wrong)?;
        self.requests(reader, writer, gate)
    }

    /// Until the client has chosen its export or encryption, or ends.
    fn options(
        &mut self,
        reader: &mut BufReader<impl Read>,
        writer: &mut impl Sink,
        zeroes: bool,
        encryption: &Encryption,
    ) -> Result<Chosen, End> {
        for _ in 0..OPTIONS_MAX {
            let mut header = [0; OPTION_LEN];
            reader.read_exact(&mut header)?;
            let option = nbd::Option::parse(&header)?;
            let length = option.length as usize;
            if length > nbd::OPTION_DATA_MAX {
                return Err(End::Wrong(format!("an option of {length} bytes")));
            }
            let mut data = vec![0; length];
            reader.read_exact(&mut data)?;
            let mut say = |reply: u32, data: &[u8]| {
                writer.write_all(&nbd::option_reply(option.kind, reply, data))
            };
            let required = matches!(encryption, Encryption::Required(_));
            match option.kind {
                Kind::START_TLS => match encryption {
                    _ if !data.is_empty() => say(reply::INVALID, &[])?,
                    Encryption::Absent => say(reply::POLICY, b"no encryption (any more)")?,
                    Encryption::Offered(config) | Encryption::Required(config) => {
                        say(reply::ACK, &[])?;
                        writer.flush()?;
                        // A client waits for the answer; what came before could be somebody else's.
                        if !reader.buffer().is_empty() {
                            return Err(End::Wrong("bytes in front of TLS".to_owned()));
                        }
                        return Ok(Chosen::Encryption(config.clone()));
                    }
                },
                Kind::EXPORT_NAME if required => return Ok(Chosen::Nothing),
                kind if required && kind != Kind::ABORT => {
                    say(reply::TLS_REQUIRED, b"encrypt first: nbds://")?;
                }
                Kind::EXPORT_NAME => {
                    let name = String::from_utf8_lossy(&data).into_owned();
                    // There is no reply that says no.
                    let Some(client) = self.client(&name) else {
                        return Ok(Chosen::Nothing);
                    };
                    writer.write_all(&self.disk.size(client).to_be_bytes())?;
                    writer.write_all(&self.disk.flags().to_be_bytes())?;
                    if zeroes {
                        writer.write_all(&[0; 124])?;
                    }
                    writer.flush()?;
                    return Ok(Chosen::Client(client.to_owned()));
                }
                Kind::ABORT => {
                    say(reply::ACK, &[])?;
                    writer.flush()?;
                    return Ok(Chosen::Nothing);
                }
                Kind::LIST => {
                    // Tokens are secrets: only what anyone may use is listed.
                    if self.client("").is_some() {
                        say(reply::SERVER, &[0; 4])?;
                    }
                    say(reply::ACK, &[])?;
                }
                Kind::STRUCTURED if data.is_empty() => {
                    self.structured = true;
                    say(reply::ACK, &[])?;
                }
                Kind::INFO | Kind::GO => match Wanted::parse(&data) {
                    Err(_) => say(reply::INVALID, &[])?,
                    Ok(wanted) => match self.client(&wanted.name) {
                        None => say(reply::UNKNOWN, b"no such export: its name is your token")?,
                        Some(client) => {
                            let size = self.disk.size(client);
                            say(reply::INFO, &nbd::export_information(size, self.disk.flags()))?;
                            let block = self.disk.medium.block();
                            say(reply::INFO, &nbd::block_information(block, 4096, REQUEST_MAX))?;
                            say(reply::ACK, &[])?;
                            if option.kind == Kind::GO {
                                writer.flush()?;
                                return Ok(Chosen::Client(client.to_owned()));
                            }
                        }
                    },
                },
                Kind::LIST_CONTEXTS | Kind::SET_CONTEXTS => match nbd::contexts(&data) {
                    _ if !self.structured => say(reply::INVALID, b"structured replies first")?,
                    Err(_) => say(reply::INVALID, &[])?,
                    Ok((name, _)) if self.client(&name).is_none() => say(reply::UNKNOWN, &[])?,
                    Ok((_, queries)) => {
                        let list = option.kind == Kind::LIST_CONTEXTS;
                        let matches =
                            |query: &String| query == ALLOCATION || list && (query == "base:");
                        let found = queries.iter().any(matches) || list && queries.is_empty();
                        if found {
                            let mut context = ALLOCATION_NUMBER.to_be_bytes().to_vec();
                            context.extend(ALLOCATION.as_bytes());
                            say(reply::CONTEXT, &context)?;
                        }
                        if !list {
                            self.allocation = found;
                        }
                        say(reply::ACK, &[])?;
                    }
                },
                _ => say(reply::UNSUPPORTED, &[])?,
            }
            writer.flush()?;
        }
        Err(End::Wrong(format!("more than {OPTIONS_MAX} options")))
    }

    fn requests(
        &self,
        reader: &mut BufReader<impl Read>,
        writer: &mut impl Sink,
        mut gate: Gate,
    ) -> Result<(), End> {
        let disk = self.disk;
        let mut buffer = Vec::new();
        loop {
            // Answers leave before we wait.
            if reader.buffer().len() < REQUEST_LEN {
                writer.flush()?;
            }
            let mut header = [0; REQUEST_LEN];
            reader.read_exact(&mut header)?;
            let mut lap = disk.account.begin();
            let request = Request::parse(&header)?;
            let length = request.length as usize;
            if request.command == Command::DISCONNECT {
                writer.flush()?;
                return Ok(());
            }
            let has_data = matches!(request.command, Command::READ | Command::WRITE);
            if has_data && request.length > REQUEST_MAX {
                return Err(End::Wrong(format!("a request of {length} bytes")));
            }
            // Data that came with others are written from where they are.
            let writes = request.command == Command::WRITE;
            let there = writes && reader.buffer().len() >= length;
            let copies = has_data && !there && !self.sends_directly(&request);
            let room = if copies { length } else { 0 };
            if buffer.len() < room {
                buffer.resize(room, 0);
            } else if buffer.len() > KEPT_MAX && room <= KEPT_MAX {
                // Room for one long request is not kept.
                buffer.truncate(KEPT_MAX);
                buffer.shrink_to_fit();
            }
            if writes && !there {
                receive(reader, &mut buffer[..length])?;
            }
            lap.served(RECEIVE);
            let data = match (writes, there) {
                (true, true) => &reader.buffer()[..length],
                (true, false) => &buffer[..length],
                _ => &[],
            };
            let allowed = Session::place(&mut gate, &request, data);
            lap.served(POLICY);
            match allowed {
                Err((code, why)) => {
                    self.fail(writer, &request, code, why)?;
                    disk.account.refuse(why);
                }
                Ok(at) => {
                    let done = match writes {
                        true => disk.medium.write(at, data, request.flags & flag::FUA != 0),
                        false => self.execute(&request, at, &mut buffer),
                    };
                    lap.served(MEDIUM);
                    self.answer(writer, &request, at, done, &buffer, lap)?;
                }
            }
            if there {
                reader.consume(length);
            }
        }
    }

    /// Where the request goes, or why it goes nowhere.
    pub(super) fn place(
        gate: &mut Gate,
        request: &Request,
        data: &[u8],
    ) -> Result<u64, (u32, &'static str)> {
        let operation = match request.command {
            Command::READ | Command::CACHE | Command::STATUS => block::READ,
            Command::WRITE => block::WRITE,
            Command::FLUSH => block::FLUSH,
            Command::TRIM => block::TRIM,
            Command::ZEROES => block::ZERO,
            _ => return Err((error::UNSUPPORTED, "unknown command")),
        };
        let placed = match operation {
            _ if !gate.disk().unit.allows_others(block::writes(operation)) => {
                Err(Refusal::Reserved)
            }
            block::FLUSH => gate.pass(operation).map(|()| 0),
            _ => gate.bytes(operation, request.offset, request.length, data),
        };
        placed.map_err(|refusal| {
            let code = match refusal {
                Refusal::Beyond if block::writes(operation) => error::SPACE,
                Refusal::Beyond | Refusal::Unaligned => error::INVALID,
                _ => error::PERMISSION,
            };
            (code, refusal.words())
        })
    }

    /// Whether a read is answered from where the medium has it: memory, which does not fail when it is promised.
    fn sends_directly(&self, request: &Request) -> bool {
        let long = request.length as usize >= DIRECT_MIN;
        request.command == Command::READ && long && self.disk.medium.is_memory()
    }

    /// Does what is neither a write nor refused; what is read comes to `buffer`.
    pub(super) fn execute(&self, request: &Request, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let medium = &self.disk.medium;
        let (length, fua) = (request.length as usize, request.flags & flag::FUA != 0);
        match request.command {
            Command::READ if self.sends_directly(request) => Ok(()),
            Command::READ => medium.read(at, &mut buffer[..length]),
            Command::FLUSH => medium.flush(),
            Command::TRIM => {
                let done = medium.trim(at, request.length.into());
                if fua { done.and_then(|()| medium.flush()) } else { done }
            }
            Command::ZEROES => {
                let hole = request.flags & flag::NO_HOLE == 0;
                medium.zero(at, request.length.into(), hole, fua)
            }
            _ => Ok(()),
        }
    }

    /// Answers what the medium has done, or not.
    fn answer(
        &self,
        writer: &mut impl Sink,
        request: &Request,
        at: u64,
        done: io::Result<()>,
        data: &[u8],
        mut lap: Lap,
    ) -> Result<(), End> {
        let extents = request.command == Command::STATUS;
        if let Err(failed) = done {
            let (code, why) = failure(&failed);
            self.fail(writer, request, code, why)?;
            self.disk.account.refuse(why);
            return Ok(());
        }
        if extents && !(self.structured && self.allocation) {
            self.fail(writer, request, error::INVALID, "no context was chosen")?;
            self.disk.account.refuse("no context was chosen");
            return Ok(());
        }
        if extents {
            self.status(writer, request, at)?;
        } else if request.command == Command::READ {
            if self.structured {
                let header = nbd::last_chunk(chunk::DATA, request.cookie, request.length + 8);
                let mut head = [0; CHUNK_LEN + 8];
                head[..CHUNK_LEN].copy_from_slice(&header);
                head[CHUNK_LEN..].copy_from_slice(&request.offset.to_be_bytes());
                writer.write_all(&head)?;
            } else {
                writer.write_all(&nbd::simple(0, request.cookie))?;
            }
            match self.sends_directly(request) {
                true => writer.send(&self.disk.medium, at, request.length as usize)?,
                false => writer.write_all(&data[..request.length as usize])?,
            }
        } else {
            self.done(writer, request)?;
        }
        lap.served(ANSWER);
        let bytes = match request.command {
            Command::READ | Command::WRITE => request.length.into(),
            _ => 0,
        };
        self.disk.account.end(lap, bytes);
        Ok(())
    }

    fn done(&self, writer: &mut impl Sink, request: &Request) -> io::Result<()> {
        match self.structured {
            true => writer.write_all(&nbd::last_chunk(chunk::NONE, request.cookie, 0)),
            false => writer.write_all(&nbd::simple(0, request.cookie)),
        }
    }

    fn fail(
        &self,
        writer: &mut impl Sink,
        request: &Request,
        code: u32,
        why: &str,
    ) -> io::Result<()> {
        if !self.structured {
            return writer.write_all(&nbd::simple(code, request.cookie));
        }
        let length = 6 + why.len() as u32;
        writer.write_all(&nbd::last_chunk(chunk::ERROR, request.cookie, length))?;
        writer.write_all(&code.to_be_bytes())?;
        writer.write_all(&(why.len() as u16).to_be_bytes())?;
        writer.write_all(why.as_bytes())
    }

    fn status(&self, writer: &mut impl Sink, request: &Request, at: u64) -> io::Result<()> {
        let most = if request.flags & flag::ONE != 0 { 1 } else { EXTENTS_MAX };
        let extents = self.disk.medium.extents(at, request.length.into(), most);
        let length = 4 + 8 * extents.len() as u32;
        writer.write_all(&nbd::last_chunk(chunk::STATUS, request.cookie, length))?;
        writer.write_all(&ALLOCATION_NUMBER.to_be_bytes())?;
        for extent in extents {
            const HOLE_AND_ZERO: u32 = 3;
            let flags = if extent.hole { HOLE_AND_ZERO } else { 0 };
            writer.write_all(&(extent.length as u32).to_be_bytes())?;
            writer.write_all(&flags.to_be_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
