//! Programs that draw, with framebuffer commands (`wire::framebuffer`) over TCP or a Unix socket; and their side of it
//! (N-10).

use super::encoding::{from_jpeg, rect};
use super::gate::{Display, Gate, Refusal};
use super::screen::{CURSOR_MAX, Cursor, Event, Rows};
use crate::access::ANYONE;
use crate::account::Lap;
use lastmeter_plugin::request::{Rect, framebuffer as operation};
use lastmeter_wire::framebuffer::{
    ANSWER, ANSWERED, DATA_MAX, GREETING, HEADER_LEN, Header, Operation, pixels, status,
};
use lastmeter_wire::rfb::Area;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The answer to a program of another host that does not begin TLS, which it must.
pub(super) const ENCRYPT: u8 = 2;
/// How often a thread that waits for events checks whether its program is still connected.
const LOOK: Duration = Duration::from_secs(1);

fn words(error: &io::Error) -> String {
    format!("the connection ended: {error}")
}

/// Reads `len` bytes into the beginning of a buffer, which is kept for the next ones; it grows as they arrive.
fn fill<'a>(reader: &mut impl Read, len: usize, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    /// Bytes by which it grows, at most, before they arrive.
    const GROWTH: usize = 1 << 20;
    let mut at = 0;
    while at < len {
        let end = len.min(buffer.len().max(at + GROWTH));
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        reader.read_exact(&mut buffer[at..end])?;
        at = end;
    }
    Ok(&buffer[..len])
}

/// Serves a program until it disconnects. `certified` knows whose certificate it has shown; `ready` is called once it
/// has authenticated.
///
/// # Errors
/// Why it ended, if abnormally.
pub fn serve(
    display: &Display,
    reader: impl Read,
    writer: impl Write + Send + 'static,
    certified: impl FnOnce() -> Result<Option<String>, String>,
    ready: impl FnOnce(),
) -> Result<(), String> {
    /// Bytes that are read at once.
    const BUFFER: usize = 64 << 10;
    let mut reader = BufReader::with_capacity(BUFFER, reader);
    let writer = Arc::new(Mutex::new(io::BufWriter::new(writer)));
    let say = |bytes: &[&[u8]]| {
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.iter().try_for_each(|part| writer.write_all(part)).map_err(|error| words(&error))
    };
    let flush = || {
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.flush().map_err(|error| words(&error))
    };
    // A program that only tried whether something listens here.
    if reader.fill_buf().map_err(|error| words(&error))?.is_empty() {
        return Ok(());
    }
    let mut greeting = [0; GREETING.len() + 1];
    reader.read_exact(&mut greeting).map_err(|error| words(&error))?;
    if greeting[..GREETING.len()] != GREETING {
        return Err("no program that draws: it did not begin with LMFB and version 1".to_owned());
    }
    let mut buffer = Vec::new();
    let token = fill(&mut reader, greeting[GREETING.len()].into(), &mut buffer);
    let token = token.map_err(|error| words(&error))?;
    let certified = certified()?;
    let client = match (&certified, token) {
        (Some(own), []) => Some(own.as_str()),
        (own, token) => {
            let agrees = |client: &&str| own.as_ref().is_none_or(|own| own == client);
            who(display, token).filter(agrees)
        }
    };
    let Some(client) = client else {
        say(&[&[1]])?;
        flush()?;
        return Err("a program showed no known token".to_owned());
    };
    let mut gate = Gate::new(display, client)?;
    let (w, h) = (gate.region.w.to_be_bytes(), gate.region.h.to_be_bytes());
    say(&[&[0], &w, &h])?;
    flush()?;
    ready();
    let mut listening = false;
    loop {
        let mut head = [0; HEADER_LEN];
        if reader.buffer().is_empty() {
            flush()?;
        }
        match reader.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(words(&error)),
        }
        let mut lap = display.commands.begin();
        let header = Header::parse(&head);
        if header.length as usize > DATA_MAX {
            return Err(format!("a command with more than {DATA_MAX} bytes"));
        }
        let data = fill(&mut reader, header.length as usize, &mut buffer);
        let data = data.map_err(|error| words(&error))?;
        lap.served(0);
        if header.operation == Operation::LISTEN {
            let may = display.input.iter().any(|name| name == client);
            say(&[&header.answer(u8::from(!may), 0).emit()])?;
            if may && !std::mem::replace(&mut listening, true) {
                listen(display, &writer, gate.number);
            }
            display.commands.end(lap, 0);
            continue;
        }
        gate.fit();
        let (state, back) = execute(display, &mut gate, client, (&header, data), lap);
        if header.flags & ANSWER != 0 || header.operation == Operation::READ {
            say(&[&header.answer(state, back.len() as u32).emit(), &back])?;
        }
    }
}

/// The client that shows a token; an empty one is shown by anyone.
pub(super) fn who<'a>(display: &'a Display, token: &[u8]) -> Option<&'a str> {
    match token {
        [] => display.access.client(ANYONE).map(|_| ANYONE),
        token => display.access.shown(&String::from_utf8_lossy(token)),
    }
}

/// Executes a command and accounts for it: its status, and the pixels it reads.
pub(super) fn execute(
    display: &Display,
    gate: &mut Gate<'_>,
    client: &str,
    (header, data): (&Header, &[u8]),
    mut lap: Lap,
) -> (u8, Vec<u8>) {
    let done = match header.operation {
        Operation::CURSOR | Operation::RESIZE => {
            let allowed = match header.operation {
                Operation::CURSOR => &display.input,
                _ => &display.resize,
            };
            let may = allowed.iter().any(|name| name == client) && gate.part().is_none();
            let done = if may { whole_screen(display, header, data) } else { Err(not_the_owner()) };
            lap.served(1);
            done.map(|()| (status::DONE, Vec::new()))
        }
        _ => carry_out(display, gate, header, data, &mut lap),
    };
    match done {
        Ok((state, back)) => {
            display.commands.end(lap, (data.len() + back.len()) as u64);
            (state, back)
        }
        Err(refusal) => {
            display.commands.refuse(refusal.words());
            let denied = matches!(refusal, Refusal::Denied(_));
            (if denied { status::DENIED } else { status::INVALID }, Vec::new())
        }
    }
}

fn not_the_owner() -> Refusal {
    Refusal::Denied("the owner has not named this client".to_owned())
}

/// What concerns all of the screen: its size, and the cursor.
fn whole_screen(display: &Display, header: &Header, data: &[u8]) -> Result<(), Refusal> {
    let Area { x, y, w, h } = header.area;
    if header.operation == Operation::RESIZE {
        return display.screen.resize(w, h).map_err(|_| Refusal::Outside);
    }
    let count = usize::from(w) * usize::from(h);
    let points = (x < w && y < h) || count == 0;
    if w > CURSOR_MAX || h > CURSOR_MAX || data.len() != 4 * count || !points {
        return Err(Refusal::Outside);
    }
    let (w, h) = if count == 0 { (0, 0) } else { (w, h) };
    let hot = if count == 0 { (0, 0) } else { (x, y) };
    display.screen.point(Cursor { w, h, hot, words: pixels(data).collect() });
    Ok(())
}

/// Executes a command as far as it is allowed: its status, and the pixels it reads.
fn carry_out(
    display: &Display,
    gate: &mut Gate<'_>,
    header: &Header,
    data: &[u8],
    lap: &mut Lap,
) -> Result<(u8, Vec<u8>), Refusal> {
    let asked = rect(header.area);
    let count = usize::from(asked.w) * usize::from(asked.h);
    let word = || data.first_chunk::<4>().copied().ok_or(Refusal::Outside);
    let (number, from, value, length) = match header.operation {
        Operation::SYNC => return Ok((status::DONE, Vec::new())),
        Operation::READ if 4 * count > DATA_MAX => return Err(Refusal::Outside),
        Operation::READ => (operation::UPDATE, (0, 0), 0, 0),
        Operation::PUT | Operation::BLEND => (operation::DRAW, (0, 0), 0, 4 * count),
        Operation::JPEG => (operation::DRAW, (0, 0), 1, data.len()),
        Operation::FILL => (operation::FILL, (0, 0), u32::from_le_bytes(word()?), 4),
        Operation::COPY => {
            let [a, b, c, d] = word()?;
            let from = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            (operation::COPY, from, 0, 4)
        }
        _ => return Err(Refusal::Outside),
    };
    if data.len() != length {
        return Err(Refusal::Outside);
    }
    let allowed = gate.ask(number, asked, from, value, data);
    lap.served(1);
    let (at, from) = allowed?;
    let screen = &display.screen;
    let mut back = Vec::new();
    // The allowed part within the requested one; a policy that moves a command moves all of it.
    let own = gate.own(at);
    let whole = (at.w, at.h) == (asked.w, asked.h);
    let offset = match whole {
        true => (0, 0),
        false => (own.x.saturating_sub(asked.x), own.y.saturating_sub(asked.y)),
    };
    let part = |pixels| Rows::<[u8; 4]>::new(pixels, asked.w.into()).after(offset.0, offset.1);
    match header.operation {
        Operation::READ => {
            back.reserve(4 * count);
            screen.read(at).iter().for_each(|pixel| back.extend(pixel.to_le_bytes()));
        }
        Operation::PUT => screen.put(at, part(data.as_chunks::<4>().0)),
        Operation::BLEND => screen.blend(at, part(data.as_chunks::<4>().0)),
        Operation::JPEG => {
            let decoded = from_jpeg(data, asked.w.into(), asked.h.into());
            let decoded = decoded.map_err(|_| Refusal::Outside)?;
            screen.put(at, Rows::new(&decoded, asked.w.into()).after(offset.0, offset.1));
        }
        Operation::FILL => screen.fill(at, value),
        _ => screen.copy(at, from),
    }
    lap.served(2);
    Ok((if whole { status::DONE } else { status::CLIPPED }, back))
}

/// Sends events from now on, on a separate thread, until the program disconnects.
fn listen(display: &Display, writer: &Arc<Mutex<impl Write + Send + 'static>>, tag: u32) {
    let (events, writer) = (display.screen.listen(), Arc::downgrade(writer));
    std::thread::spawn(move || {
        loop {
            let event = events.recv_timeout(LOOK);
            // The program may have disconnected without an event.
            let Some(writer) = writer.upgrade() else { return };
            let event = match event {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let (header, data) = told(&event, tag);
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let sent = writer.write_all(&header.emit()).and_then(|()| writer.write_all(&data));
            if sent.and_then(|()| writer.flush()).is_err() {
                return;
            }
        }
    });
}

/// An event in wire format.
fn told(event: &Event, tag: u32) -> (Header, Vec<u8>) {
    let (kind, (x, y), data) = match event {
        Event::Key { down, key, client } => {
            let head = [u8::from(*down), 0, 0, 0];
            (Operation::KEY, (0, 0), [head, key.to_be_bytes(), client.to_be_bytes()].concat())
        }
        Event::Pointer { buttons, at, client } => {
            (Operation::POINTER, *at, [[*buttons, 0, 0, 0], client.to_be_bytes()].concat())
        }
        Event::Cut(text) => (Operation::CUT, (0, 0), text.clone()),
        Event::Size(..) => (Operation::SIZE, (0, 0), Vec::new()),
    };
    let operation = Operation(kind.0 | ANSWERED);
    let (w, h) = if let Event::Size(w, h) = event { (*w, *h) } else { (1, 1) };
    let area = Area { x, y, w, h };
    let length = data.len() as u32;
    (Header { operation, flags: 0, tag: tag as u16, area, length }, data)
}

/// The client side, for programs.
pub struct Program<S: Read + Write> {
    stream: BufReader<S>,
    /// Width and height of its screen.
    pub size: (u16, u16),
    tag: u16,
    waiting: Vec<u8>,
}

impl<S: Read + Write> Program<S> {
    /// Connects; an empty token means none.
    ///
    /// # Errors
    /// If it is refused.
    pub fn greet(mut stream: S, token: &str) -> Result<Program<S>, String> {
        let len = u8::try_from(token.len()).map_err(|_| "a token has at most 255 bytes")?;
        let greeting = [&GREETING[..], &[len], token.as_bytes()].concat();
        stream.write_all(&greeting).map_err(|error| words(&error))?;
        let mut stream = BufReader::new(stream);
        let mut answer = [0; 5];
        stream.read_exact(&mut answer[..1]).map_err(|error| words(&error))?;
        match answer[0] {
            0 => {}
            ENCRYPT => return Err("the display wants TLS from other hosts".to_owned()),
            _ => return Err("the display knows no such token".to_owned()),
        }
        stream.read_exact(&mut answer[1..]).map_err(|error| words(&error))?;
        let short = |at: usize| u16::from_be_bytes([answer[at], answer[at + 1]]);
        let size = (short(1), short(3));
        Ok(Program { stream, size, tag: 0, waiting: Vec::new() })
    }
    /// Queues a command.
    pub fn add(&mut self, operation: Operation, at: Rect, data: &[u8]) {
        self.queue(operation, 0, at, data);
    }
    fn queue(&mut self, operation: Operation, flags: u8, at: Rect, data: &[u8]) {
        self.tag = self.tag.wrapping_add(1);
        let area = super::encoding::area(at);
        let header = Header { operation, flags, tag: self.tag, area, length: data.len() as u32 };
        self.waiting.extend(header.emit());
        self.waiting.extend_from_slice(data);
    }
    /// Sends the queued commands.
    ///
    /// # Errors
    /// If the connection ended.
    pub fn send(&mut self) -> Result<(), String> {
        let sent = self.stream.get_mut().write_all(&self.waiting);
        self.waiting.clear();
        sent.map_err(|error| words(&error))
    }
    /// Sends the queued commands and this one, and waits for its answer: the status and the pixels read.
    ///
    /// # Errors
    /// If the connection ended.
    pub fn ask(
        &mut self,
        operation: Operation,
        at: Rect,
        data: &[u8],
    ) -> Result<(u8, Vec<u8>), String> {
        self.queue(operation, ANSWER, at, data);
        self.send()?;
        loop {
            let (header, data) = self.receive()?;
            if header.operation.0 == operation.0 | ANSWERED && header.tag == self.tag {
                return Ok((header.flags, data));
            }
        }
    }
    /// The next answer or event.
    ///
    /// # Errors
    /// If the connection ended.
    pub fn receive(&mut self) -> Result<(Header, Vec<u8>), String> {
        let (mut head, mut data) = ([0; HEADER_LEN], Vec::new());
        self.stream.read_exact(&mut head).map_err(|error| words(&error))?;
        let header = Header::parse(&head);
        let len = (header.length as usize).min(DATA_MAX);
        fill(&mut self.stream, len, &mut data).map_err(|error| words(&error))?;
        data.truncate(len);
        Ok((header, data))
    }
}
