//! An X screen on a display: what X says was drawn is sent as commands, a scroll as a copy, and its cursor for viewers
//! to draw; keys and the pointer come back (Netstation's X server, whose framebuffer was elsewhere: N-09; scrolls as
//! copies: N-15). A viewer that may change the display's size changes that of the X screen.

mod input;
mod size;
mod source;

use super::client::{Connection, Place};
use super::scroll;
use crate::{Complaint, Report};
use lastmeter_device::display::commands::Program;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::{Operation, status};
use serde_json::json;
use source::Source;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Feed {
    #[command(flatten)]
    place: Place,
    /// The X screen [default: that of DISPLAY]
    #[arg(long)]
    x: Option<String>,
    /// End after so many seconds [default: when the X server or the display ends]
    #[arg(long)]
    seconds: Option<f64>,
    /// Send scrolls as pixels
    #[arg(long)]
    no_copies: bool,
    /// Leave the X screen's size as it is, also when a viewer changes that of the display
    #[arg(long)]
    keep_size: bool,
}

/// What was sent.
#[derive(Default)]
struct Sent {
    updates: u64,
    copies: u64,
    cursors: u64,
    bytes: u64,
}

/// The display's size, which this program and viewers change.
struct Told {
    size: Mutex<(u16, u16)>,
    /// What this program last asked for, until it is told of it.
    asked: Mutex<Option<(u16, u16)>>,
}

impl Told {
    fn new(size: (u16, u16)) -> Told {
        Told { size: Mutex::new(size), asked: Mutex::default() }
    }
    fn size(&self) -> (u16, u16) {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn set(&self, size: (u16, u16)) {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner) = size;
    }
    fn ask(&self, size: (u16, u16)) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(size);
    }
    /// Whether this program had asked for it.
    fn is_own(&self, size: (u16, u16)) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.take_if(|asked| *asked == size).is_some()
    }
}

struct Feeder {
    source: Source,
    display: Program<Box<dyn Connection>>,
    /// Its size, as far as this program was told.
    told: Arc<Told>,
    /// The picture that the display has.
    shown: Vec<u32>,
    /// Of a part of it: what was there, what is there now, and the same as a command has it.
    old: Vec<u32>,
    new: Vec<u32>,
    data: Vec<u8>,
    copies: bool,
    /// Whether the display lets this program set the cursor.
    points: bool,
    sent: Sent,
}

pub(crate) fn feed(arguments: &Feed) -> Result<Report, Complaint> {
    let source = Source::open(arguments.x.as_deref())?;
    let display = arguments.place.program()?;
    let told = Arc::new(Told::new(display.size));
    input::listen(&source, arguments, told.clone())?;
    let (copies, sent) = (!arguments.no_copies, Sent::default());
    let (shown, old, new, data) = Default::default();
    let points = true;
    let mut feeder = Feeder { source, display, told, shown, old, new, data, copies, points, sent };
    feeder.begin()?;
    feeder.point()?;
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    while let Some(news) = feeder.source.wait(until)? {
        if news.size {
            feeder.source.measure()?;
            feeder.begin()?;
        }
        if news.cursor {
            feeder.point()?;
        }
        for part in feeder.source.drawn()? {
            feeder.show(part)?;
        }
    }
    let Sent { updates, copies, cursors, bytes } = feeder.sent;
    let text =
        format!("{updates} updates, {copies} of them scrolls, {cursors} cursors, {bytes} bytes\n");
    let shared = feeder.source.shares();
    let json = json!({
        "updates": updates, "copies": copies, "cursors": cursors, "bytes": bytes, "shared": shared
    });
    Ok(Report { text, json: vec![json], good: true })
}

impl Feeder {
    /// Shows all of the screen, on a display that has its size, if this program may change that.
    fn begin(&mut self) -> Result<(), Complaint> {
        let (w, h) = self.source.size;
        let whole = Rect { x: 0, y: 0, w, h };
        if self.told.size() != (w, h) {
            self.told.ask((w, h));
            let (state, _) = self.display.ask(Operation::RESIZE, whole, &[])?;
            if state == status::DONE {
                self.told.set((w, h));
            }
        }
        let (wide, high) = self.told.size();
        if wide < w || high < h {
            return Err(Complaint(format!(
                "the X screen has {w} by {h} pixels, the display only {wide} by {high}; \
                 with `resize` it may change"
            )));
        }
        // The display may show anything so far.
        self.shown = vec![0; usize::from(w) * usize::from(h)];
        self.display.add(Operation::FILL, whole, &[0; 4]);
        self.show(whole)
    }
    /// Sends the cursor, until the display denies it.
    fn point(&mut self) -> Result<(), Complaint> {
        if !self.points {
            return Ok(());
        }
        let (at, pixels) = self.source.cursor()?;
        let (state, _) = self.display.ask(Operation::CURSOR, at, &pixels)?;
        self.points = state != status::DENIED;
        if state == status::DONE {
            self.sent.cursors += 1;
            self.sent.bytes += pixels.len() as u64;
        }
        Ok(())
    }
    /// Brings a rectangle of the display up to date.
    fn show(&mut self, part: Rect) -> Result<(), Complaint> {
        let (w, h) = self.source.size;
        let part = part.meet(Rect { x: 0, y: 0, w, h });
        if part.is_empty() {
            return Ok(());
        }
        let (mut old, mut new) = (std::mem::take(&mut self.old), std::mem::take(&mut self.new));
        let seen = self.source.pixels(part, &mut new)?;
        if seen {
            self.shown(part, &mut old);
            self.bring(part, &mut old, &new);
        }
        (self.old, self.new) = (old, new);
        if !seen {
            return Ok(());
        }
        self.sent.updates += 1;
        // One update on its way: what is drawn meanwhile is sent together.
        match self.display.ask(Operation::SYNC, Rect::default(), &[])? {
            (status::DONE, _) => Ok(()),
            _ => Err(Complaint("the display gave no answer".to_owned())),
        }
    }
    /// Draws what is new in a part.
    fn bring(&mut self, part: Rect, old: &mut [u32], new: &[u32]) {
        let width = usize::from(part.w);
        if self.copies
            && let Some(found) = scroll::find(old, new, width)
        {
            let row = |row: usize| part.y + row as u16;
            let to = Rect { y: row(found.to), h: found.rows as u16, ..part };
            let from = [part.x.to_be_bytes(), row(found.from).to_be_bytes()].concat();
            self.add(Operation::COPY, to, &from);
            self.sent.copies += 1;
            let start = found.from * width;
            old.copy_within(start..start + found.rows * width, found.to * width);
        }
        // Bands of rows that differ.
        let differs = |row: usize| {
            let at = row * width..(row + 1) * width;
            old[at.clone()] != new[at]
        };
        let mut row = 0;
        while row < usize::from(part.h) {
            let rows = (row..usize::from(part.h)).take_while(|row| differs(*row)).count();
            if rows > 0 {
                let at = Rect { y: part.y + row as u16, h: rows as u16, ..part };
                let pixels = &new[row * width..(row + rows) * width];
                let mut data = std::mem::take(&mut self.data);
                data.resize(4 * pixels.len(), 0);
                let words = data.as_chunks_mut().0.iter_mut().zip(pixels);
                words.for_each(|(word, pixel)| *word = pixel.to_le_bytes());
                self.add(Operation::PUT, at, &data);
                self.data = data;
            }
            row += rows + 1;
        }
        let wide = usize::from(self.source.size.0);
        for (row, pixels) in new.chunks_exact(width).enumerate() {
            let start = (usize::from(part.y) + row) * wide + usize::from(part.x);
            self.shown[start..start + width].copy_from_slice(pixels);
        }
    }
    fn add(&mut self, operation: Operation, at: Rect, data: &[u8]) {
        self.sent.bytes += data.len() as u64;
        self.display.add(operation, at, data);
    }
    /// What the display has there.
    fn shown(&self, part: Rect, pixels: &mut Vec<u32>) {
        let width = usize::from(self.source.size.0);
        pixels.clear();
        for y in usize::from(part.y)..usize::from(part.y + part.h) {
            let start = y * width + usize::from(part.x);
            pixels.extend_from_slice(&self.shown[start..start + usize::from(part.w)]);
        }
    }
}
