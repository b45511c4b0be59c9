//! The framebuffer: drawn on by several programs, seen by several viewers. A pixel is `0x00RRGGBB`, 32 bits (N-12).

use super::damage::{Copy, Damage, TILE};
use lastmeter_plugin::request::Rect;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// Limit on the pixels of a side.
pub const SIDE_MAX: u16 = 8192;

/// An input event of a viewer, for subscribed programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key was pressed or released.
    Key {
        /// Down.
        down: bool,
        /// Its X keysym.
        key: u32,
        /// The client of the viewer.
        client: u32,
    },
    /// The pointer moved, or its buttons.
    Pointer {
        /// One bit per button.
        buttons: u8,
        /// Position on the screen.
        at: (u16, u16),
        /// The client of the viewer.
        client: u32,
    },
    /// Text on the clipboard.
    Cut(Vec<u8>),
    /// The screen has another size.
    Size(u16, u16),
}

/// Limit on the pixels of a cursor's side.
pub const CURSOR_MAX: u16 = 256;

/// What a viewer draws where its pointer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Width; none if it is 0.
    pub w: u16,
    /// Height.
    pub h: u16,
    /// The place in it that points.
    pub hot: (u16, u16),
    /// Its pixels, seen where the highest byte is at least 128.
    pub words: Vec<u32>,
}

/// A pixel as the screen has it, or as a command has it.
pub trait Pixel: std::marker::Copy {
    /// Its colour, and above that its share when it is blended.
    fn word(self) -> u32;
}

impl Pixel for u32 {
    fn word(self) -> u32 {
        self
    }
}

impl Pixel for [u8; 4] {
    fn word(self) -> u32 {
        u32::from_le_bytes(self)
    }
}

/// Rows of pixels, one after another.
#[derive(Clone, Copy)]
pub struct Rows<'a, P> {
    pixels: &'a [P],
    width: usize,
    /// Columns and rows that are left out at the beginning.
    left: (usize, usize),
}

impl<'a, P: Pixel> Rows<'a, P> {
    /// Of this width.
    pub fn new(pixels: &'a [P], width: usize) -> Rows<'a, P> {
        Rows { pixels, width, left: (0, 0) }
    }
    /// Without the first columns and rows.
    pub fn after(self, columns: u16, rows: u16) -> Rows<'a, P> {
        Rows { left: (columns.into(), rows.into()), ..self }
    }
    fn row(&self, number: usize) -> &'a [P] {
        let start = (self.left.1 + number) * self.width;
        self.pixels.get(start + self.left.0..start + self.width).unwrap_or(&[])
    }
}

/// Replaces pixels by their mixture with others; whether that changed any.
fn mixed<P: Pixel>(old: &mut [u32], new: &[P], mix: &impl Fn(u32, u32) -> u32) -> bool {
    const SIDE: usize = TILE as usize;
    let each = |old: &mut [u32], new: &[P]| {
        let mut differs = 0;
        for (old, new) in old.iter_mut().zip(new) {
            let mixture = mix(*old, new.word());
            differs |= mixture ^ *old;
            *old = mixture;
        }
        differs != 0
    };
    // Most tiles are whole: their length is known to the compiler.
    match (old.first_chunk_mut::<SIDE>(), new.first_chunk::<SIDE>()) {
        (Some(old), Some(new)) => each(old, new),
        _ => each(old, new),
    }
}

struct Pixels {
    w: u16,
    h: u16,
    words: Vec<u32>,
}

/// A viewer, as the screen knows it.
pub struct Watcher {
    /// The part of the screen that it has, if not all of it.
    part: Option<Rect>,
    state: Mutex<State>,
    /// Readable when there is an update.
    wake: OwnedFd,
}

struct State {
    /// The part of the screen that it has.
    seen: Rect,
    /// The same, until the viewer has heard of it.
    resized: Option<Rect>,
    damage: Damage,
    /// When the oldest pending damage happened.
    since: Option<Instant>,
    /// Whether the eventfd has been written since the last wait.
    woken: bool,
}

/// An update for a viewer.
#[derive(Default)]
pub struct Update {
    /// First.
    pub copy: Option<Copy>,
    /// Then.
    pub rects: Vec<Rect>,
    /// Pixels of the rectangles, one after another.
    pub pixels: Vec<u32>,
    /// When its oldest pixels were drawn.
    pub since: Option<Instant>,
}

impl Update {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.copy.is_none() && self.rects.is_empty()
    }
}

/// The framebuffer.
pub struct Screen {
    pixels: RwLock<Pixels>,
    /// Width and height, in the upper and lower half.
    size: AtomicU32,
    cursor: Mutex<(u64, Arc<Cursor>)>,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    listeners: Mutex<Vec<std::sync::mpsc::SyncSender<Event>>>,
}

fn packed(w: u16, h: u16) -> u32 {
    u32::from(w) << 16 | u32::from(h)
}

/// The pixels of a black screen.
fn blank(w: u16, h: u16) -> Result<Vec<u32>, String> {
    if w == 0 || h == 0 || w > SIDE_MAX || h > SIDE_MAX {
        return Err(format!("{w} by {h}: a screen has 1 to {SIDE_MAX} pixels along each side"));
    }
    Ok(vec![0; usize::from(w) * usize::from(h)])
}

impl Screen {
    /// A black one.
    ///
    /// # Errors
    /// If a side has no pixels or too many.
    pub fn new(w: u16, h: u16) -> Result<Screen, String> {
        let words = blank(w, h)?;
        Ok(Screen {
            pixels: RwLock::new(Pixels { w, h, words }),
            size: AtomicU32::new(packed(w, h)),
            cursor: Mutex::default(),
            watchers: Mutex::default(),
            listeners: Mutex::default(),
        })
    }
    /// All of it.
    pub fn whole(&self) -> Rect {
        let size = self.size.load(Relaxed);
        Rect { x: 0, y: 0, w: (size >> 16) as u16, h: size as u16 }
    }
    /// Changes its size. What was on it and still fits stays; the rest is black.
    ///
    /// # Errors
    /// As [`Screen::new`].
    pub fn resize(&self, w: u16, h: u16) -> Result<(), String> {
        let mut words = blank(w, h)?;
        let mut pixels = self.pixels.write().unwrap_or_else(PoisonError::into_inner);
        if (pixels.w, pixels.h) == (w, h) {
            return Ok(());
        }
        let (old, width) = (usize::from(pixels.w), usize::from(w));
        let both = old.min(width);
        let rows = words.chunks_exact_mut(width).zip(pixels.words.chunks_exact(old));
        rows.for_each(|(to, from)| to[..both].copy_from_slice(&from[..both]));
        *pixels = Pixels { w, h, words };
        self.size.store(packed(w, h), Relaxed);
        let whole = Rect { x: 0, y: 0, w, h };
        for watcher in self.watchers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let mut state = watcher.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.seen = watcher.part.map_or(whole, |part| part.meet(whole));
            state.resized = Some(state.seen);
            state.damage = Damage::all(state.seen);
            state.since.get_or_insert_with(Instant::now);
            watcher.call(&mut state);
        }
        drop(pixels);
        self.tell(&Event::Size(w, h));
        Ok(())
    }
    /// Changes the cursor.
    pub fn point(&self, cursor: Cursor) {
        {
            let mut own = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
            *own = (own.0 + 1, Arc::new(cursor));
        }
        for watcher in self.watchers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            watcher.call(&mut watcher.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
    /// The cursor and its number, which is another one for each; 0 if there never was one.
    pub fn cursor(&self) -> (u64, Arc<Cursor>) {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// A viewer of a part of the screen, or all of it, which has not had an update yet.
    ///
    /// # Errors
    /// If the system is out of file descriptors.
    pub fn watch(&self, part: Option<Rect>) -> std::io::Result<Arc<Watcher>> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        // The size does not change until the viewer is among those that are told.
        let pixels = self.pixels.read().unwrap_or_else(PoisonError::into_inner);
        let whole = Rect { x: 0, y: 0, w: pixels.w, h: pixels.h };
        let seen = part.map_or(whole, |part| part.meet(whole));
        let (damage, since) = (Damage::all(seen), Some(Instant::now()));
        let state = State { seen, resized: None, damage, since, woken: false };
        let watcher = Arc::new(Watcher { part, state: Mutex::new(state), wake });
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.push(watcher.clone());
        Ok(watcher)
    }
    /// The viewer has gone.
    pub fn forget(&self, watcher: &Arc<Watcher>) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|other| !Arc::ptr_eq(other, watcher));
    }
    /// Subscribes a program to events. If it does not read them, some are lost.
    pub fn listen(&self) -> std::sync::mpsc::Receiver<Event> {
        /// Events that may wait.
        const WAITING_MAX: usize = 1024;
        let (sender, receiver) = std::sync::mpsc::sync_channel(WAITING_MAX);
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(sender);
        receiver
    }
    /// Notifies all subscribed programs.
    pub fn tell(&self, event: &Event) {
        use std::sync::mpsc::TrySendError::Disconnected;
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|to| !matches!(to.try_send(event.clone()), Err(Disconnected(_))));
    }
    fn damaged(&self, mark: impl Fn(&mut Damage)) {
        for watcher in self.watchers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let mut state = watcher.state.lock().unwrap_or_else(PoisonError::into_inner);
            mark(&mut state.damage);
            state.since.get_or_insert_with(Instant::now);
            watcher.call(&mut state);
        }
    }
    /// Replaces pixels, as many as `rows` has of them. Only what differs is seen as changed. If `rect` is not on the
    /// screen, as that became smaller, nothing happens.
    pub fn put<P: Pixel>(&self, rect: Rect, rows: Rows<'_, P>) {
        self.mix(rect, |number| rows.row(number), |_, new| new & 0x00ff_ffff);
    }
    /// Blends pixels in, each with the share in its highest byte.
    pub fn blend<P: Pixel>(&self, rect: Rect, rows: Rows<'_, P>) {
        self.mix(
            rect,
            |number| rows.row(number),
            |old, new| {
                let share = new >> 24;
                (0..3).fold(0, |mixed, at| {
                    let part = |pixel: u32| pixel >> (8 * at) & 255;
                    let sum = part(new) * share + part(old) * (255 - share);
                    mixed | (((sum + 127) / 255) << (8 * at))
                })
            },
        );
    }
    /// Gives pixels one colour.
    pub fn fill(&self, rect: Rect, colour: u32) {
        let row = vec![colour; rect.w.into()];
        self.mix(rect, |_| row.as_slice(), |_, new| new & 0x00ff_ffff);
    }
    fn mix<'a, P: Pixel + 'a>(
        &self,
        rect: Rect,
        rows: impl Fn(usize) -> &'a [P],
        mix: impl Fn(u32, u32) -> u32,
    ) {
        let mut pixels = self.pixels.write().unwrap_or_else(PoisonError::into_inner);
        let whole = Rect { x: 0, y: 0, w: pixels.w, h: pixels.h };
        if rect.is_empty() || !rect.within(whole) {
            return;
        }
        let (width, tile) = (usize::from(pixels.w), usize::from(TILE));
        // Columns of tiles that changed in this row of tiles.
        let (first, last) = (usize::from(rect.x) / tile, usize::from(rect.x + rect.w - 1) / tile);
        let mut changed = vec![false; last - first + 1];
        let mut bands: Vec<Rect> = Vec::new();
        for y in rect.y..rect.y + rect.h {
            let start = usize::from(y) * width + usize::from(rect.x);
            let mut old = &mut pixels.words[start..start + usize::from(rect.w)];
            let mut new = rows(usize::from(y - rect.y));
            let mut len = tile - usize::from(rect.x) % tile;
            for changed in &mut changed {
                let (here, there) = (len.min(old.len()), len.min(new.len()));
                let (part, rest) = std::mem::take(&mut old).split_at_mut(here);
                let (now, later) = new.split_at(there);
                *changed |= mixed(part, now, &mix);
                (old, new, len) = (rest, later, tile);
            }
            if (y + 1) % TILE == 0 || y + 1 == rect.y + rect.h {
                let top = (y / TILE * TILE).max(rect.y);
                let mut column = 0;
                while column < changed.len() {
                    let run = changed[column..].iter().take_while(|it| **it).count();
                    if run > 0 {
                        let (left, wide) = ((first + column) * tile, run * tile);
                        let (x, w) = (left as u16, wide as u16);
                        bands.push(Rect { x, y: top, w, h: y + 1 - top }.meet(rect));
                    }
                    column += run + 1;
                }
                changed.fill(false);
            }
        }
        if !bands.is_empty() {
            self.damaged(|damage| bands.iter().for_each(|rect| damage.change(*rect)));
        }
    }
    /// Copies pixels to `rect` from `from`; both are on the screen, and may overlap.
    pub fn copy(&self, rect: Rect, from: (u16, u16)) {
        let mut pixels = self.pixels.write().unwrap_or_else(PoisonError::into_inner);
        let whole = Rect { x: 0, y: 0, w: pixels.w, h: pixels.h };
        let source = Rect { x: from.0, y: from.1, ..rect };
        let by = (i32::from(rect.x) - i32::from(from.0), i32::from(rect.y) - i32::from(from.1));
        let inside = rect.within(whole) && source.within(whole);
        if rect.is_empty() || by == (0, 0) || !inside {
            return;
        }
        let width = usize::from(pixels.w);
        let place = |x: u16, y: u16| usize::from(y) * width + usize::from(x);
        let mut row = |line: u16| {
            let start = place(from.0, from.1 + line);
            let to = place(rect.x, rect.y + line);
            pixels.words.copy_within(start..start + usize::from(rect.w), to);
        };
        if by.1 > 0 {
            (0..rect.h).rev().for_each(&mut row)
        } else {
            (0..rect.h).for_each(&mut row)
        }
        self.damaged(|damage| damage.copied(rect, by));
    }
    /// The pixels of a rectangle, row by row; what is outside the screen is left out.
    pub fn read(&self, rect: Rect) -> Vec<u32> {
        let pixels = self.pixels.read().unwrap_or_else(PoisonError::into_inner);
        let mut words = Vec::new();
        pixels.read(rect, &mut words);
        words
    }
    /// The pending update of `part`, with the current pixels. Call it when [`Watcher::waits`] is true.
    pub fn update(&self, watcher: &Watcher, part: Rect, copies: bool, update: &mut Update) {
        let pixels = self.pixels.read().unwrap_or_else(PoisonError::into_inner);
        let mut state = watcher.state.lock().unwrap_or_else(PoisonError::into_inner);
        update.pixels.clear();
        (update.copy, update.rects, update.since) = (None, Vec::new(), None);
        if state.resized.is_some() {
            // The viewer must hear of its new screen first.
            return;
        }
        (update.copy, update.rects) = state.damage.take(part, copies);
        update.since = state.since.take();
        if !state.damage.is_empty(state.seen) {
            state.since = update.since;
        }
        for rect in &update.rects {
            pixels.read(*rect, &mut update.pixels);
        }
    }
}

impl Pixels {
    fn read(&self, rect: Rect, words: &mut Vec<u32>) {
        let rect = rect.meet(Rect { x: 0, y: 0, w: self.w, h: self.h });
        words.reserve(usize::from(rect.w) * usize::from(rect.h));
        for y in rect.y..rect.y + rect.h {
            let start = usize::from(y) * usize::from(self.w) + usize::from(rect.x);
            words.extend_from_slice(&self.words[start..start + usize::from(rect.w)]);
        }
    }
}

impl Watcher {
    /// Makes its descriptor readable.
    fn call(&self, state: &mut State) {
        if !std::mem::replace(&mut state.woken, true) {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
    /// Its part of the screen, if that has become another one since the last call.
    pub fn resized(&self) -> Option<Rect> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).resized.take()
    }
    /// Marks all of this part as damaged.
    pub fn again(&self, part: Rect) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.damage.change(part);
        state.since.get_or_insert_with(Instant::now);
    }
    /// When the oldest pending damage was drawn.
    pub fn since(&self) -> Option<Instant> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).since
    }
    /// Whether an update of this part is pending.
    pub fn waits(&self, part: Rect) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        !state.damage.is_empty(part)
    }
    /// The descriptor that becomes readable when something is drawn.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
    /// Re-arms it.
    pub fn rest(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.woken) {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rect(x: u16, y: u16, w: u16, h: u16) -> Rect {
        Rect { x, y, w, h }
    }

    #[test]
    fn what_did_not_change_is_not_shown_again() {
        let screen = Screen::new(100, 60).expect("a screen");
        let watcher = screen.watch(None).expect("a viewer");
        let mut update = Update::default();
        screen.update(&watcher, screen.whole(), true, &mut update);
        assert_eq!(update.pixels.len(), 6000);
        assert!(!watcher.waits(screen.whole()));
        screen.fill(rect(0, 0, 100, 60), 0);
        assert!(!watcher.waits(screen.whole()), "it was black before");
        screen.fill(rect(20, 20, 10, 10), 7);
        assert!(watcher.waits(screen.whole()));
        screen.update(&watcher, screen.whole(), true, &mut update);
        assert_eq!(update.rects, [rect(16, 16, 16, 16)]);
        assert_eq!(update.pixels.iter().filter(|pixel| **pixel == 7).count(), 100);
    }

    #[test]
    fn colours_mix() {
        let screen = Screen::new(2, 1).expect("a screen");
        screen.fill(screen.whole(), 0x0000_ff80);
        screen.blend(screen.whole(), Rows::new(&[0xffff_0000u32, 0x80ff_0000], 2));
        assert_eq!(screen.read(screen.whole()), [0x00ff_0000, 0x0080_7f40]);
    }

    #[test]
    fn copies_may_overlap() {
        for (to, from) in [((1, 1), (0, 0)), ((0, 0), (1, 1)), ((1, 0), (0, 0)), ((0, 0), (1, 0))] {
            let screen = Screen::new(4, 4).expect("a screen");
            screen.put(screen.whole(), Rows::new(&(0..16).collect::<Vec<u32>>(), 4));
            screen.copy(rect(to.0, to.1, 3, 3), from);
            let pixels = screen.read(rect(to.0, to.1, 3, 3));
            let expected: Vec<u32> = (0..3)
                .flat_map(|y| (0..3).map(move |x| (x, y)))
                .map(|(x, y)| u32::from(from.1 + y) * 4 + u32::from(from.0 + x))
                .collect();
            assert_eq!(pixels, expected, "{from:?} to {to:?}");
        }
    }

    #[test]
    fn programs_hear_what_viewers_do() {
        let screen = Screen::new(4, 4).expect("a screen");
        let events = screen.listen();
        let event = Event::Key { down: true, key: 97, client: 1 };
        screen.tell(&event);
        assert_eq!(events.try_recv(), Ok(event));
    }

    #[test]
    fn a_screen_grows_and_shrinks_under_its_viewers() {
        let screen = Screen::new(40, 30).expect("a screen");
        screen.fill(screen.whole(), 5);
        let all = screen.watch(None).expect("a viewer");
        let part = screen.watch(Some(rect(20, 10, 20, 20))).expect("a viewer");
        let mut update = Update::default();
        screen.update(&all, screen.whole(), true, &mut update);
        assert_eq!(all.resized(), None);
        screen.resize(30, 50).expect("resized");
        assert_eq!(screen.whole(), rect(0, 0, 30, 50));
        screen.update(&all, screen.whole(), true, &mut update);
        assert!(update.is_empty(), "it has not heard of it");
        assert_eq!(all.resized(), Some(rect(0, 0, 30, 50)));
        assert_eq!(part.resized(), Some(rect(20, 10, 10, 20)));
        screen.update(&all, screen.whole(), true, &mut update);
        assert_eq!(update.pixels.iter().filter(|pixel| **pixel == 5).count(), 30 * 30);
        assert_eq!(update.pixels.len(), 30 * 50);
        // What was meant for the larger screen.
        screen.fill(rect(0, 0, 40, 30), 9);
        screen.copy(rect(0, 0, 10, 10), (30, 0));
        assert!(!all.waits(screen.whole()));
        assert!(screen.resize(0, 5).is_err() && screen.resize(5, SIDE_MAX + 1).is_err());
    }
}
