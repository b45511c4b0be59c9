//! An X screen on a display: what X says was drawn is sent as commands, a scroll as a copy, and its cursor for viewers
//! to draw; keys and the pointer come back (Netstation's X server, whose framebuffer was elsewhere: N-09; scrolls as
//! copies: N-15).

mod input;
mod source;

use super::client::{Connection, program};
use super::scroll;
use crate::{Complaint, Report};
use lastmeter_device::display::commands::Program;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::{Operation, status};
use serde_json::json;
use source::Source;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Feed {
    /// Where programs connect to: 127.0.0.1:5899, or the path of a socket
    address: String,
    /// The X screen [default: that of DISPLAY]
    #[arg(long)]
    x: Option<String>,
    /// Who draws
    #[arg(long, default_value = "")]
    token: String,
    /// End after so many seconds [default: when the X server or the display ends]
    #[arg(long)]
    seconds: Option<f64>,
    /// Send scrolls as pixels
    #[arg(long)]
    no_copies: bool,
}

/// What was sent.
#[derive(Default)]
struct Sent {
    updates: u64,
    copies: u64,
    cursors: u64,
    bytes: u64,
}

struct Feeder {
    source: Source,
    display: Program<Box<dyn Connection>>,
    /// The picture that the display has.
    shown: Vec<u32>,
    copies: bool,
    /// Whether the display lets this program set the cursor.
    points: bool,
    sent: Sent,
}

pub(crate) fn feed(arguments: &Feed) -> Result<Report, Complaint> {
    let source = Source::open(arguments.x.as_deref())?;
    let display = program(&arguments.address, &arguments.token)?;
    input::listen(&source, arguments)?;
    let (copies, sent) = (!arguments.no_copies, Sent::default());
    let mut feeder = Feeder { source, display, shown: Vec::new(), copies, points: true, sent };
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
        if self.display.size != (w, h) {
            let (state, _) = self.display.ask(Operation::RESIZE, whole, &[])?;
            if state == status::DONE {
                self.display.size = (w, h);
            }
        }
        let (wide, high) = self.display.size;
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
        let Some(new) = self.source.pixels(part)? else { return Ok(()) };
        let width = usize::from(part.w);
        let mut old = self.old(part);
        if self.copies
            && let Some(found) = scroll::find(&old, &new, width)
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
                let data: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
                self.add(Operation::PUT, at, &data);
            }
            row += rows + 1;
        }
        for (row, pixels) in new.chunks_exact(width).enumerate() {
            let start = (usize::from(part.y) + row) * usize::from(w) + usize::from(part.x);
            self.shown[start..start + width].copy_from_slice(pixels);
        }
        self.sent.updates += 1;
        // One update on its way: what is drawn meanwhile is sent together.
        match self.display.ask(Operation::SYNC, Rect::default(), &[])? {
            (status::DONE, _) => Ok(()),
            _ => Err(Complaint("the display gave no answer".to_owned())),
        }
    }
    fn add(&mut self, operation: Operation, at: Rect, data: &[u8]) {
        self.sent.bytes += data.len() as u64;
        self.display.add(operation, at, data);
    }
    /// What the display has there.
    fn old(&self, part: Rect) -> Vec<u32> {
        let width = usize::from(self.source.size.0);
        let rows = usize::from(part.y)..usize::from(part.y + part.h);
        let row = |y: usize| {
            let start = y * width + usize::from(part.x);
            &self.shown[start..start + usize::from(part.w)]
        };
        rows.flat_map(row).copied().collect()
    }
}
