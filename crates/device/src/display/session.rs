//! A viewer: RFB 3.8 (RFC 6143), with continuous updates and fences.
//!
//! One thread serves it, and sleeps until the viewer sends something or something is drawn. What is drawn while the
//! viewer receives an update is part of the next one, so a slow viewer gets fewer updates, and delays nobody.

use super::encoding::{Encoder, area, rect};
use super::gate::{Display, Gate, Refusal};
use super::screen::{Event, Update, Watcher};
use crate::access::ANYONE;
use crate::link::unpredictable;
use des::cipher::{BlockEncrypt, KeyInit};
use lastmeter_plugin::request::{Rect, framebuffer as operation};
use lastmeter_wire::rfb::{self, Message, Rectangle, VERSION, encoding, security};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a viewer has to authenticate.
const PATIENCE: Duration = Duration::from_secs(15);
/// A viewer that reads nothing for this long is disconnected.
const STUCK: Duration = Duration::from_secs(30);
/// Time after which a policy that denied an update is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// Limit on updates in flight to a viewer that supports fences.
const AHEAD_MAX: u32 = 3;
/// Bytes read at once.
const READ: usize = 64 << 10;
/// The flag of a fence that requests an answer.
const FENCE_REQUEST: u32 = 1 << 31;
/// The other flags of fences, which a server that works sequentially always satisfies.
const FENCE_KNOWN: u32 = 7;

/// A connection and what was read of it.
struct Link {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Link {
    /// Waits until there is something to read, `wake` is readable, or the time is over; reads what is available.
    /// False if the viewer has disconnected.
    fn wait(&mut self, wake: Option<&Watcher>, until: Option<Instant>) -> Result<bool, String> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::new(&self.stream, PollFlags::IN)];
        let woken = wake.map(Watcher::wake);
        if let Some(woken) = &woken {
            fds.push(PollFd::new(woken, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.to_string()),
        }
        if fds[0].revents().is_empty() {
            return Ok(true);
        }
        let start = self.input.len();
        self.input.resize(start + READ, 0);
        let read = self.stream.read(&mut self.input[start..]);
        let len = *read.as_ref().unwrap_or(&0);
        self.input.truncate(start + len);
        match read {
            Ok(0) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) => Err(error.to_string()),
        }
    }
    /// The next bytes, which must arrive before an instant.
    fn take<const N: usize>(&mut self, until: Instant) -> Result<[u8; N], String> {
        while self.input.len() < N {
            if Instant::now() >= until {
                return Err("a viewer did not say who it is".to_owned());
            }
            if !self.wait(None, Some(until))? {
                return Err("a viewer went before it said who it is".to_owned());
            }
        }
        let bytes = std::array::from_fn(|at| self.input[at]);
        self.input.drain(..N);
        Ok(bytes)
    }
    fn say(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| error.to_string())
    }
}

/// Serves a viewer until it goes.
///
/// # Errors
/// Why it ended, if abnormally.
pub(super) fn serve(display: &Display, stream: TcpStream) -> Result<(), String> {
    stream.set_write_timeout(Some(STUCK)).map_err(|error| error.to_string())?;
    let mut link = Link { stream, input: Vec::new() };
    let client = welcome(display, &mut link)?;
    let gate = Gate::new(display, &client)?;
    let init = rfb::Init {
        w: gate.region.w,
        h: gate.region.h,
        format: rfb::PixelFormat::NATIVE,
        name: display.name.clone(),
    };
    link.say(&init.emit())?;
    let watcher = display.screen.watch(gate.region).map_err(|error| error.to_string())?;
    let mut session = Session {
        display,
        gate,
        link,
        watcher,
        encoder: Encoder::default(),
        copies: false,
        fences: false,
        continuous_known: false,
        wanted: None,
        continuous: None,
        ahead: 0,
        retry: None,
        update: Update::default(),
        bytes: Vec::new(),
    };
    let ended = session.run();
    display.screen.forget(&session.watcher);
    ended
}

/// Authenticates the viewer.
fn welcome(display: &Display, link: &mut Link) -> Result<String, String> {
    let until = Instant::now() + PATIENCE;
    link.say(&VERSION)?;
    let version = link.take::<12>(until)?;
    let old = match &version {
        b"RFB 003.003\n" => true,
        b"RFB 003.007\n" | b"RFB 003.008\n" => false,
        _ => return Err("a viewer speaks another version than 3.3, 3.7, 3.8".to_owned()),
    };
    let local = link.stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let mut types = Vec::new();
    if display.access.client(ANYONE).is_some() {
        types.push(security::NONE);
    }
    // VNC's passwords are 8 characters under DES: not secure beyond this host.
    if local && display.access.names().any(|name| name != ANYONE) {
        types.push(security::VNC);
    }
    if types.is_empty() {
        let why = "this display is for viewers on its own host";
        let head: &[u8] = if old { &[0; 4] } else { &[0] };
        link.say(&[head, &(why.len() as u32).to_be_bytes(), why.as_bytes()].concat())?;
        return Err("a viewer from elsewhere, and no [clients.anyone]".to_owned());
    }
    let chosen = if old {
        // The server chooses: a password, if there are any.
        let chosen = types[types.len() - 1];
        link.say(&u32::from(chosen).to_be_bytes())?;
        chosen
    } else {
        link.say(&[&[types.len() as u8], types.as_slice()].concat())?;
        link.take::<1>(until)?[0]
    };
    let client = match chosen {
        security::NONE if types.contains(&security::NONE) => Some(ANYONE.to_owned()),
        security::VNC if types.contains(&security::VNC) => {
            let challenge = unpredictable()?;
            link.say(&challenge)?;
            let response = link.take::<16>(until)?;
            display.access.matching(|token| answer(token, challenge) == response)
        }
        _ => None,
    };
    // Version 3.8 sends a result even without authentication; older ones only after a password.
    let tells = &version == b"RFB 003.008\n" || chosen != security::NONE;
    let Some(client) = client else {
        let why = "no such password";
        let reason = [&(why.len() as u32).to_be_bytes(), why.as_bytes()].concat();
        link.say(&[&[0, 0, 0, 1][..], if old { &[][..] } else { &reason }].concat())?;
        return Err("a viewer did not know a password".to_owned());
    };
    if tells {
        link.say(&[0; 4])?;
    }
    // The shared flag: the screen is always shared.
    link.take::<1>(until)?;
    Ok(client)
}

/// The expected response of a viewer: the key is the password's first 8 bytes, each with its bits reversed.
pub(super) fn answer(password: &str, challenge: [u8; 16]) -> [u8; 16] {
    let mut key = [0; 8];
    for (to, from) in key.iter_mut().zip(password.bytes()) {
        *to = from.reverse_bits();
    }
    let cipher = des::Des::new(&key.into());
    let mut answer = challenge;
    for block in answer.chunks_exact_mut(8) {
        cipher.encrypt_block(des::cipher::generic_array::GenericArray::from_mut_slice(block));
    }
    answer
}

struct Session<'a> {
    display: &'a Display,
    gate: Gate<'a>,
    link: Link,
    watcher: Arc<Watcher>,
    encoder: Encoder,
    /// Whether the viewer supports CopyRect.
    copies: bool,
    /// Whether the viewer supports fences.
    fences: bool,
    continuous_known: bool,
    /// The requested part of its screen.
    wanted: Option<Rect>,
    /// The part with continuous updates.
    continuous: Option<Rect>,
    /// Updates whose fence has not been answered.
    ahead: u32,
    /// When a policy is asked again.
    retry: Option<Instant>,
    update: Update,
    bytes: Vec<u8>,
}

impl Session<'_> {
    fn run(&mut self) -> Result<(), String> {
        loop {
            let mut used = 0;
            while let Some((message, len)) =
                Message::parse(&self.link.input[used..]).map_err(|error| error.to_string())?
            {
                used += len;
                self.handle(message)?;
            }
            self.link.input.drain(..used);
            self.watcher.rest();
            if self.retry.is_none_or(|at| Instant::now() >= at) {
                self.retry = None;
                self.show()?;
            }
            if !self.link.wait(Some(&self.watcher), self.retry)? {
                return Ok(());
            }
        }
    }
    fn own(&self) -> Rect {
        Rect { x: 0, y: 0, ..self.gate.region }
    }
    fn handle(&mut self, message: Message) -> Result<(), String> {
        match message {
            Message::Format(format) => self.encoder.format = format,
            Message::Encodings(list) => {
                self.encoder.choose(&list, self.display.quality);
                self.copies = list.contains(&encoding::COPY);
                self.fences = list.contains(&encoding::FENCE);
                if list.contains(&encoding::CONTINUOUS)
                    && !std::mem::replace(&mut self.continuous_known, true)
                {
                    // Announces support for continuous updates.
                    self.link.say(&[150])?;
                }
            }
            Message::Update { incremental, area } => {
                let area = rect(area).meet(self.own());
                if !incremental {
                    let region = self.gate.region;
                    let (x, y) = (area.x + region.x, area.y + region.y);
                    self.watcher.again(Rect { x, y, ..area });
                }
                self.wanted = Some(area);
            }
            Message::Continuous { enable, area } => {
                self.continuous = enable.then(|| rect(area).meet(self.own()));
                if !enable {
                    self.link.say(&[150])?;
                }
            }
            Message::Fence { flags, payload } => {
                if flags & FENCE_REQUEST != 0 {
                    self.link.say(&rfb::fence(flags & FENCE_KNOWN, &payload))?;
                } else {
                    self.ahead = self.ahead.saturating_sub(1);
                }
            }
            Message::Key { down, key } => {
                let number = if down { operation::KEY_DOWN } else { operation::KEY_UP };
                if self.may(number, Rect::default(), key, &[]).is_some() {
                    let client = self.gate.number;
                    self.display.screen.tell(&Event::Key { down, key, client });
                }
            }
            Message::Pointer { buttons, x, y } => {
                let at = Rect { x, y, w: 1, h: 1 };
                if let Some(at) = self.may(operation::POINTER, at, buttons.into(), &[]) {
                    let (at, client) = ((at.x, at.y), self.gate.number);
                    self.display.screen.tell(&Event::Pointer { buttons, at, client });
                }
            }
            Message::Cut(text) => {
                if self.may(operation::CUT, Rect::default(), 0, &text).is_some() {
                    self.display.screen.tell(&Event::Cut(text));
                }
            }
            // The owner sets the screen's size.
            Message::SetSize { .. } => {}
        }
        Ok(())
    }
    /// The part of the screen where the viewer may do this.
    fn may(&mut self, number: u16, at: Rect, value: u32, data: &[u8]) -> Option<Rect> {
        let mut lap = self.display.commands.begin();
        let asked = self.gate.ask(number, at, (0, 0), value, data);
        lap.served(1);
        match asked {
            Ok((at, _)) => {
                self.display.commands.end(lap, 0);
                Some(at)
            }
            Err(refusal) => {
                self.display.commands.refuse(refusal.words());
                None
            }
        }
    }
    /// Sends what has changed, if the viewer wants it.
    fn show(&mut self) -> Result<(), String> {
        let Some(part) = self.wanted.or(self.continuous.filter(|_| self.ahead < AHEAD_MAX)) else {
            return Ok(());
        };
        let (x, y) = (part.x + self.gate.region.x, part.y + self.gate.region.y);
        if part.is_empty() || !self.watcher.waits(Rect { x, y, ..part }) {
            return Ok(());
        }
        let mut lap = self.display.updates.begin_at(self.watcher.since());
        lap.served(0);
        let allowed = match self.gate.ask(operation::UPDATE, part, (0, 0), 0, &[]) {
            Ok((allowed, _)) => allowed,
            Err(Refusal::Denied(name)) => {
                self.display.updates.refuse(&name);
                self.retry = Some(Instant::now() + AGAIN);
                return Ok(());
            }
            Err(Refusal::Outside) => {
                self.display.updates.refuse(Refusal::Outside.words());
                return Ok(());
            }
        };
        lap.served(1);
        self.display.screen.update(&self.watcher, allowed, self.copies, &mut self.update);
        if self.update.is_empty() {
            // All changes are outside the part that the viewer may see.
            self.retry = Some(Instant::now() + AGAIN);
            return Ok(());
        }
        self.encode();
        lap.served(2);
        self.wanted = None;
        if self.fences && self.continuous.is_some() {
            self.bytes.extend(rfb::fence(FENCE_REQUEST, &[]));
            self.ahead += 1;
        }
        self.link.stream.write_all(&self.bytes).map_err(|error| error.to_string())?;
        lap.served(3);
        self.display.updates.end(lap, self.bytes.len() as u64);
        Ok(())
    }
    /// The update's bytes.
    fn encode(&mut self) {
        let (bytes, update) = (&mut self.bytes, &self.update);
        bytes.clear();
        bytes.extend([0; 4]);
        let mut count = 0;
        if let Some(copy) = update.copy {
            let at = self.gate.own(copy.area);
            bytes.extend(Rectangle { area: area(at), encoding: encoding::COPY }.emit());
            let from = |at: u16, by: i32| (i32::from(at) - by) as u16;
            bytes.extend(from(at.x, copy.by.0).to_be_bytes());
            bytes.extend(from(at.y, copy.by.1).to_be_bytes());
            count += 1;
        }
        let mut rest = update.pixels.as_slice();
        for rect in &update.rects {
            let (pixels, more) = rest.split_at(usize::from(rect.w) * usize::from(rect.h));
            rest = more;
            count += self.encoder.put(self.gate.own(*rect), pixels, bytes);
        }
        bytes[2..4].copy_from_slice(&(count as u16).to_be_bytes());
    }
}
