//! A viewer: RFB 3.8 (RFC 6143), with continuous updates, fences, cursors and sizes.
//!
//! One thread serves it, and sleeps until the viewer sends something or something is drawn. What is drawn while the
//! viewer receives an update is part of the next one, so a slow viewer gets fewer updates, and delays nobody.

use super::adapt::{Adapt, Sent};
use super::encoding::{Encoder, area, rect};
use super::gate::{Display, Gate, Refusal, VIEW};
use super::lossy::Lossy;
use super::screen::{Event, Update, Watcher};
use super::transport::Link;
use super::welcome::welcome;
use crate::account::Lap;
use lastmeter_plugin::request::{Rect, framebuffer as operation};
use lastmeter_wire::rfb::{self, Area, Message, Rectangle, encoding};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which a policy that denied an update is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// Limit on updates in flight to a viewer that supports fences.
const AHEAD_MAX: u32 = 3;
/// Limit on updates whose fence a viewer owes; the time of older ones is given up.
const OWED_MAX: usize = 64;
/// Limit on the pixels of an update that makes exact what was sent as JPEG, however much room there is.
const EXACT_MAX: usize = 1 << 18;
/// Bytes of a pixel that is sent exactly, at most.
const PIXEL: usize = 3;
/// The flag of a fence that requests an answer.
const FENCE_REQUEST: u32 = 1 << 31;
/// The flag of a fence that is answered when all before it is done.
const FENCE_BEFORE: u32 = 1;
/// The other flags of fences, which a server that works sequentially always satisfies.
const FENCE_KNOWN: u32 = 7;

/// How a viewer is told the size of its screen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    /// Not at all: it keeps the first one.
    Kept,
    /// By DesktopSize.
    Told,
    /// By ExtendedDesktopSize; it may wish for another.
    Wished,
}

/// Why an ExtendedDesktopSize is sent, and with what result.
mod size {
    pub(super) const BY_SERVER: u16 = 0;
    pub(super) const BY_VIEWER: u16 = 1;
    pub(super) const DONE: u16 = 0;
    pub(super) const PROHIBITED: u16 = 1;
    pub(super) const INVALID: u16 = 3;
}

/// Serves a viewer until it goes.
///
/// # Errors
/// Why it ended, if abnormally.
pub(super) fn serve(display: &Display, mut link: Link) -> Result<(), String> {
    let client = welcome(display, &mut link)?;
    let gate = Gate::new(display, &client)?;
    let watcher = display.screen.watch(gate.part()).map_err(|error| error.to_string())?;
    let told = (gate.region.w, gate.region.h);
    let init = rfb::Init {
        w: told.0,
        h: told.1,
        format: rfb::PixelFormat::NATIVE,
        name: display.name.clone(),
    };
    link.say(&init.emit())?;
    let lossy = Lossy::new(gate.region);
    let mut session = Session {
        display,
        may_resize: display.resize.contains(&client) && gate.part().is_none(),
        gate,
        link,
        watcher,
        encoder: Encoder::default(),
        told,
        sizes: Sizes::Kept,
        size: None,
        copies: false,
        adapt: Adapt::new(display.adapt.clone()),
        lossy,
        began: Instant::now(),
        still: None,
        exact: 0,
        cursor: None,
        fences: false,
        continuous_known: false,
        wanted: None,
        continuous: None,
        ahead: 0,
        owed: VecDeque::new(),
        last: None,
        had: Instant::now(),
        retry: None,
        update: Update::default(),
        bytes: Vec::new(),
    };
    let ended = session.run();
    session.owed.drain(..).for_each(|(lap, way)| display.updates.end(lap, way.sent.bytes as u64));
    display.screen.forget(&session.watcher);
    ended
}

/// An update on its way.
#[derive(Clone, Copy)]
struct Way {
    sent: Sent,
    began: Instant,
}

struct Session<'a> {
    display: &'a Display,
    may_resize: bool,
    gate: Gate<'a>,
    link: Link,
    watcher: Arc<Watcher>,
    encoder: Encoder,
    /// Width and height of the screen as the viewer knows them.
    told: (u16, u16),
    sizes: Sizes,
    /// An ExtendedDesktopSize to be sent: why, and the result.
    size: Option<(u16, u16)>,
    /// Whether the viewer supports CopyRect.
    copies: bool,
    /// The JPEG quality that its link carries.
    adapt: Adapt,
    /// What it has been sent as JPEG.
    lossy: Lossy,
    /// Times of `lossy` are since then.
    began: Instant,
    /// When some of that may have to be sent exactly.
    still: Option<Instant>,
    /// The pixels of that in the next update.
    exact: usize,
    /// The cursor that the viewer has, by its number; 0 for none; absent if it supports none.
    cursor: Option<u64>,
    /// Whether the viewer supports fences.
    fences: bool,
    continuous_known: bool,
    /// The requested part of its screen.
    wanted: Option<Rect>,
    /// The part with continuous updates.
    continuous: Option<Rect>,
    /// Updates whose fence has not been answered.
    ahead: u32,
    /// Their times.
    owed: VecDeque<(Lap, Way)>,
    /// The last update of a viewer that does not support fences, until it asks for the next one.
    last: Option<Way>,
    /// When the viewer had the last one.
    had: Instant,
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
            self.fit();
            if self.retry.is_none_or(|at| Instant::now() >= at) {
                self.retry = None;
                self.show()?;
            }
            let wanted = self.asked().is_some_and(|part| !part.meet(self.own()).is_empty());
            let until = self.retry.or(self.still.filter(|_| wanted));
            if !self.link.wait(Some(self.watcher.wake()), until)? {
                return Ok(());
            }
        }
    }
    /// A part of the viewer's screen on the whole screen. One without pixels may have been asked for anywhere.
    fn placed(&self, part: Rect) -> Rect {
        let region = self.gate.region;
        match part.is_empty() {
            true => Rect { w: 0, h: 0, ..region },
            false => Rect { x: part.x + region.x, y: part.y + region.y, ..part },
        }
    }
    /// The viewer's screen, as far as it knows of it.
    fn own(&self) -> Rect {
        let (w, h) = (self.gate.region.w.min(self.told.0), self.gate.region.h.min(self.told.1));
        Rect { x: 0, y: 0, w, h }
    }
    /// Takes over a new size of the screen.
    fn fit(&mut self) {
        let Some(region) = self.watcher.resized() else { return };
        self.gate.region = region;
        (self.lossy, self.still, self.exact) = (Lossy::new(region), None, 0);
        if self.sizes != Sizes::Kept && self.told != (region.w, region.h) {
            match self.size {
                // A wish that was refused is answered first, and then this is told.
                Some((size::BY_VIEWER, _)) => {}
                _ => self.size = Some((size::BY_SERVER, size::DONE)),
            }
        }
    }
    fn handle(&mut self, message: Message) -> Result<(), String> {
        match message {
            Message::Format(format) => self.encoder.format = format,
            Message::Encodings(list) => {
                self.encoder.choose(&list, self.display.quality);
                self.adapt.ask(self.encoder.quality);
                self.copies = list.contains(&encoding::COPY);
                self.cursor = list.contains(&encoding::CURSOR).then(|| self.cursor.unwrap_or(0));
                let had = self.sizes;
                self.sizes = match () {
                    () if list.contains(&encoding::EXTENDED_DESKTOP_SIZE) => Sizes::Wished,
                    () if list.contains(&encoding::DESKTOP_SIZE) => Sizes::Told,
                    () => Sizes::Kept,
                };
                let has = (self.gate.region.w, self.gate.region.h);
                let late = self.sizes == Sizes::Told && self.told != has && self.size.is_none();
                if self.sizes == Sizes::Wished && had != Sizes::Wished || late {
                    // This tells the viewer that it may wish, or what has changed before it wanted to know.
                    self.size = Some((size::BY_SERVER, size::DONE));
                }
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
                if let Some(way) = self.last.take() {
                    self.arrived(way, area);
                }
                if !incremental {
                    self.watcher.again(self.placed(area));
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
                    if let Some((mut lap, way)) = self.owed.pop_front() {
                        lap.served(VIEW);
                        self.display.updates.end(lap, way.sent.bytes as u64);
                        let part = self.wanted.or(self.continuous).unwrap_or(self.own());
                        self.arrived(way, part);
                    }
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
            Message::SetSize { w, h, .. } => {
                let result = match self.may_resize {
                    false => size::PROHIBITED,
                    true if self.display.screen.resize(w, h).is_ok() => size::DONE,
                    true => size::INVALID,
                };
                self.size = Some((size::BY_VIEWER, result));
            }
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
    /// Sends the size of the screen or the cursor, if the viewer has another one.
    fn announce(&mut self) -> Result<bool, String> {
        let bytes = &mut self.bytes;
        bytes.clear();
        bytes.extend([0, 0, 0, 1]);
        if let Some((why, result)) = self.size.take() {
            let (w, h) = (self.gate.region.w, self.gate.region.h);
            if result == size::DONE {
                self.told = (w, h);
            } else if self.told != (w, h) {
                self.size = Some((size::BY_SERVER, size::DONE));
            }
            let at = if self.sizes == Sizes::Wished { (why, result) } else { (0, 0) };
            let number = match self.sizes {
                Sizes::Wished => encoding::EXTENDED_DESKTOP_SIZE,
                _ => encoding::DESKTOP_SIZE,
            };
            let area = Area { x: at.0, y: at.1, w, h };
            bytes.extend(Rectangle { area, encoding: number }.emit());
            if self.sizes == Sizes::Wished {
                // One monitor, which is all of it.
                let monitor = [&[0; 8][..], &w.to_be_bytes(), &h.to_be_bytes(), &[0; 4]].concat();
                bytes.extend([1, 0, 0, 0]);
                bytes.extend(monitor);
            }
        } else {
            let Some(had) = self.cursor else { return Ok(false) };
            let (number, cursor) = self.display.screen.cursor();
            if number == had {
                return Ok(false);
            }
            self.cursor = Some(number);
            let (w, h) = (cursor.w, cursor.h);
            let area = Area { x: cursor.hot.0, y: cursor.hot.1, w, h };
            bytes.extend(Rectangle { area, encoding: encoding::CURSOR }.emit());
            let format = self.encoder.format;
            cursor.words.iter().for_each(|word| format.put(format.pixel(*word), bytes));
            for row in cursor.words.chunks(usize::from(w).max(1)) {
                bytes.extend(row.chunks(8).map(|eight| {
                    let seen = |(at, word): (usize, &u32)| u8::from(*word >> 31 != 0) << (7 - at);
                    eight.iter().enumerate().map(seen).fold(0, |all, bit| all | bit)
                }));
            }
        }
        self.link.say(&self.bytes)?;
        Ok(true)
    }
    /// The part of its screen of which the viewer would take an update now.
    fn asked(&self) -> Option<Rect> {
        self.wanted.or(self.continuous.filter(|_| self.ahead < AHEAD_MAX))
    }
    /// Milliseconds since it began.
    fn now(&self) -> u32 {
        self.began.elapsed().as_millis() as u32
    }
    /// The viewer has an update, and asks for this part of its screen.
    fn arrived(&mut self, way: Way, part: Rect) {
        let now = Instant::now();
        // Those before it were on their way first.
        let seconds = (now - way.began.max(self.had)).as_secs_f64();
        self.had = now;
        let queued = self.watcher.waits(self.placed(part));
        self.adapt.done(way.sent, seconds, queued);
    }
    /// Whether something in this part of the screen was sent as JPEG and has not changed for long. As much of that as
    /// the link carries soon is part of the next update.
    fn stands_still(&mut self, part: Rect) -> bool {
        let Some(still) = self.adapt.still() else { return false };
        if self.still.is_none_or(|at| Instant::now() < at) {
            return false;
        }
        let pixels = (self.adapt.room() / PIXEL).clamp(1, EXACT_MAX);
        let (due, next) = self.lossy.due(part, self.now(), still.as_millis() as u32, pixels);
        due.iter().for_each(|rect| self.watcher.again(*rect));
        self.still = next.map(|wait| Instant::now() + Duration::from_millis(wait.into()));
        self.exact = due.iter().map(|rect| usize::from(rect.w) * usize::from(rect.h)).sum();
        self.exact > 0
    }
    /// Sends what has changed, if the viewer wants it.
    fn show(&mut self) -> Result<(), String> {
        let Some(part) = self.asked() else { return Ok(()) };
        if self.announce()? {
            // That was the answer to its request.
            if self.wanted.take().is_some() {
                return Ok(());
            }
        }
        let part = part.meet(self.own());
        if part.is_empty() {
            return Ok(());
        }
        let place = self.placed(part);
        if self.lossy.ask(place, self.now()) {
            self.still = Some(Instant::now());
        }
        if !self.watcher.waits(place) && !self.stands_still(place) {
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
                self.retry = Some(Instant::now() + AGAIN);
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
        let quality = self.encode();
        lap.served(2);
        self.wanted = None;
        if self.fences {
            self.bytes.extend(rfb::fence(FENCE_REQUEST | FENCE_BEFORE, &[]));
            self.ahead += 1;
        }
        let sent = Sent { bytes: self.bytes.len(), quality };
        let way = Way { sent, began: Instant::now() };
        self.link.say(&self.bytes)?;
        lap.served(3);
        if !self.fences {
            self.display.updates.end(lap, sent.bytes as u64);
            self.last = Some(way);
            return Ok(());
        }
        if self.owed.len() == OWED_MAX
            && let Some((lap, way)) = self.owed.pop_front()
        {
            self.display.updates.end(lap, way.sent.bytes as u64);
        }
        self.owed.push_back((lap, way));
        Ok(())
    }
    /// The update's bytes; the quality of what of it is JPEG.
    fn encode(&mut self) -> Option<u8> {
        let (bytes, update) = (&mut self.bytes, &self.update);
        // If much more was drawn meanwhile, it comes as usual.
        let exact = 2 * std::mem::take(&mut self.exact) >= update.pixels.len();
        let quality = self.adapt.quality().filter(|_| !exact);
        self.encoder.quality = quality;
        self.encoder.lossy().clear();
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
        let (region, now) = (self.gate.region, self.now());
        let jpeg = self.encoder.lossy();
        if let Some(still) = self.adapt.still() {
            jpeg.iter_mut()
                .for_each(|rect| (rect.x, rect.y) = (rect.x + region.x, rect.y + region.y));
            self.lossy.sent(self.update.copy, &self.update.rects, jpeg, now);
            if !jpeg.is_empty() {
                self.still.get_or_insert_with(|| Instant::now() + still);
            }
        }
        quality.filter(|_| !self.encoder.lossy().is_empty())
    }
}
