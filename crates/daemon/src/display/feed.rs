//! An X screen on a display: what X says was drawn is sent as commands, a scroll as a copy; keys and the pointer come
//! back (Netstation's X server, whose framebuffer was elsewhere: N-09; scrolls as copies: N-15).

use super::client::{Connection, program};
use super::scroll;
use crate::{Complaint, Report};
use lastmeter_device::display::commands::Program;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::{ANSWERED, Operation, status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::damage::{ConnectionExt as _, ReportLevel};
use x11rb::protocol::xfixes::{ConnectionExt as _, Region};
use x11rb::protocol::xproto::{ConnectionExt as _, ImageFormat, ImageOrder, Screen};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;

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

/// Rectangles that are fetched by themselves; more are fetched as one.
const RECTANGLES_MAX: usize = 8;

/// What was sent.
#[derive(Default)]
struct Sent {
    updates: u64,
    copies: u64,
    bytes: u64,
}

struct Feeder {
    x: Arc<RustConnection>,
    screen: Screen,
    damage: u32,
    region: Region,
    display: Program<Box<dyn Connection>>,
    /// The picture that the display has.
    shown: Vec<u32>,
    copies: bool,
    sent: Sent,
}

pub(crate) fn feed(arguments: &Feed) -> Result<Report, Complaint> {
    let (x, number) = x11rb::connect(arguments.x.as_deref())
        .map_err(|error| format!("X: {error}; give its screen with --x :1"))?;
    let x = Arc::new(x);
    let screen = x.setup().roots[number].clone();
    let format = x.setup().pixmap_formats.iter().find(|one| one.depth == screen.root_depth);
    if format.is_none_or(|format| format.bits_per_pixel != 32)
        || x.setup().image_byte_order != ImageOrder::LSB_FIRST
    {
        return Err(Complaint(
            "the X screen has no 32-bit pixels in this machine's order".to_owned(),
        ));
    }
    x.damage_query_version(1, 1)?.reply()?;
    x.xfixes_query_version(5, 0)?.reply()?;
    let (damage, region) = (x.generate_id()?, x.generate_id()?);
    x.damage_create(damage, screen.root, ReportLevel::NON_EMPTY)?;
    x.xfixes_create_region(region, &[])?;
    let display = program(&arguments.address, &arguments.token)?;
    let (w, h) = (screen.width_in_pixels, screen.height_in_pixels);
    if display.size.0 < w || display.size.1 < h {
        let (wide, high) = display.size;
        return Err(Complaint(format!(
            "the X screen has {w} by {h} pixels, the display only {wide} by {high}"
        )));
    }
    listen(&x, &screen, arguments)?;
    let mut feeder = Feeder {
        shown: vec![0; usize::from(w) * usize::from(h)],
        x,
        screen,
        damage,
        region,
        display,
        copies: !arguments.no_copies,
        sent: Sent::default(),
    };
    // The display may show anything so far.
    let whole = Rect { x: 0, y: 0, w, h };
    feeder.display.add(Operation::FILL, whole, &[0; 4]);
    feeder.show(whole)?;
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    while feeder.wait(until)? {
        feeder.take()?;
    }
    let Sent { updates, copies, bytes } = feeder.sent;
    let text = format!("{updates} updates, {copies} of them scrolls, {bytes} bytes\n");
    let json = json!({ "updates": updates, "copies": copies, "bytes": bytes });
    Ok(Report { text, json: vec![json], good: true })
}

impl Feeder {
    /// Waits until something was drawn; false if the time is over.
    fn wait(&self, until: Option<Instant>) -> Result<bool, Complaint> {
        self.x.flush()?;
        loop {
            let mut drawn = false;
            while let Some(event) = self.x.poll_for_event()? {
                drawn |= matches!(event, Event::DamageNotify(_));
            }
            if drawn {
                return Ok(true);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            let timeout = left.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let socket = self.x.stream().as_fd();
            poll(&mut [PollFd::new(&socket, PollFlags::IN)], timeout.as_ref())?;
        }
    }
    /// Sends all that was drawn.
    fn take(&mut self) -> Result<(), Complaint> {
        self.x.damage_subtract(self.damage, x11rb::NONE, self.region)?;
        let drawn = self.x.xfixes_fetch_region(self.region)?.reply()?;
        let side = |at: i16| u16::try_from(at).unwrap_or(0);
        let rect = |one: &x11rb::protocol::xproto::Rectangle| Rect {
            x: side(one.x),
            y: side(one.y),
            w: one.width,
            h: one.height,
        };
        if drawn.rectangles.len() > RECTANGLES_MAX {
            return self.show(rect(&drawn.extents));
        }
        for one in &drawn.rectangles {
            self.show(rect(one))?;
        }
        Ok(())
    }
    /// Brings a rectangle of the display up to date.
    fn show(&mut self, part: Rect) -> Result<(), Complaint> {
        let (w, h) = (self.screen.width_in_pixels, self.screen.height_in_pixels);
        let part = part.meet(Rect { x: 0, y: 0, w, h });
        if part.is_empty() {
            return Ok(());
        }
        let (x, y) = (part.x as i16, part.y as i16);
        let image =
            self.x.get_image(ImageFormat::Z_PIXMAP, self.screen.root, x, y, part.w, part.h, !0);
        let image = image?.reply()?.data;
        let new: Vec<u32> =
            lastmeter_wire::framebuffer::pixels(&image).map(|pixel| pixel & 0x00ff_ffff).collect();
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
        let width = usize::from(self.screen.width_in_pixels);
        let rows = usize::from(part.y)..usize::from(part.y + part.h);
        let row = |y: usize| {
            let start = y * width + usize::from(part.x);
            &self.shown[start..start + usize::from(part.w)]
        };
        rows.flat_map(row).copied().collect()
    }
}

/// X's numbers of events that it is told to act out.
const KEY_PRESS: u8 = 2;
const KEY_RELEASE: u8 = 3;
const BUTTON_PRESS: u8 = 4;
const BUTTON_RELEASE: u8 = 5;
const MOTION: u8 = 6;

/// Acts out viewers' keys and pointers, on a connection and a thread of its own, if the display lets this program have
/// them.
fn listen(x: &Arc<RustConnection>, screen: &Screen, arguments: &Feed) -> Result<(), Complaint> {
    let mut events = program(&arguments.address, &arguments.token)?;
    let (state, _) = events.ask(Operation::LISTEN, Rect::default(), &[])?;
    if state != status::DONE || x.xtest_get_version(2, 2)?.reply().is_err() {
        return Ok(());
    }
    let (low, high) = (x.setup().min_keycode, x.setup().max_keycode);
    let mapping = x.get_keyboard_mapping(low, high - low + 1)?.reply()?;
    let per = usize::from(mapping.keysyms_per_keycode).max(1);
    let code = move |key: u32| {
        let at = mapping.keysyms.iter().position(|symbol| *symbol == key)?;
        u8::try_from(usize::from(low) + at / per).ok()
    };
    let (x, root) = (x.clone(), screen.root);
    std::thread::spawn(move || {
        let mut buttons = 0u8;
        while let Ok((header, data)) = events.receive() {
            let kind = Operation(header.operation.0 & !ANSWERED);
            let acted = match kind {
                Operation::KEY if data.len() >= 8 => {
                    let key = u32::from_be_bytes([data[4], data[5], data[6], data[7]]);
                    let kind = if data[0] != 0 { KEY_PRESS } else { KEY_RELEASE };
                    let Some(code) = code(key) else { continue };
                    x.xtest_fake_input(kind, code, 0, root, 0, 0, 0).map(drop)
                }
                Operation::POINTER if !data.is_empty() => {
                    let (to_x, to_y) = (header.area.x as i16, header.area.y as i16);
                    let moved = x.xtest_fake_input(MOTION, 0, 0, root, to_x, to_y, 0);
                    let changed = std::mem::replace(&mut buttons, data[0]) ^ data[0];
                    let pressed = (0..8).filter(|at| changed >> at & 1 != 0).try_for_each(|at| {
                        let down = data[0] >> at & 1 != 0;
                        let kind = if down { BUTTON_PRESS } else { BUTTON_RELEASE };
                        x.xtest_fake_input(kind, at + 1, 0, root, 0, 0, 0).map(drop)
                    });
                    moved.map(drop).and(pressed)
                }
                _ => continue,
            };
            if acted.is_err() || x.flush().is_err() {
                return;
            }
        }
    });
    Ok(())
}
