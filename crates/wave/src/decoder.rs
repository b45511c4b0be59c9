//! The decoder: packets to pictures, whatever is missing.
//!
//! A piece of a lowest band that is missing is taken from the frame before; missing detail is zero, which blurs. A
//! frame of which nothing came shows the one before it. Packets of a frame that has been shown are too late.

use crate::encoder::Place;
use crate::lifting::{self, Plane};
use crate::picture::Picture;
use crate::piece;
use lastmeter_wire::wave::{BANDS, Band, Component, LEVELS, Orientation, Packet};
use std::sync::Arc;

/// What came of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its number.
    pub frame: u32,
    /// The picture.
    pub picture: Arc<Picture>,
    /// Rows that came of each band, by priority.
    pub rows: [u16; BANDS],
    /// Which bands came whole.
    pub whole: [bool; BANDS],
}

impl Shown {
    /// Whether anything came.
    pub fn any(&self) -> bool {
        self.rows.iter().any(|&rows| rows > 0)
    }
}

/// Decodes a stream of frames of one size.
#[derive(Clone, Debug)]
pub struct Decoder {
    width: u8,
    height: u8,
    /// The frame that packets are being taken for.
    frame: Option<u32>,
    planes: [Plane; 3],
    rows: [u16; BANDS],
    /// The row after the last one that came, by band.
    next: [u16; BANDS],
    shown: Arc<Picture>,
    values: Vec<i32>,
    /// Packets that did not fit: of another size, of frames already shown, or rows that came twice.
    pub refused: u64,
}

const COMPONENTS: [Component; 3] = [Component::Luma, Component::Blue, Component::Red];
/// Frames of which nothing came that are shown in one go; after more, only the last ones are.
pub const GAP_MAX: u32 = 1024;

impl Decoder {
    /// For frames of this size, in units of 16 pixels.
    pub fn new(width: u8, height: u8) -> Decoder {
        let shown = Picture::new(width, height);
        let planes = COMPONENTS.map(|component| {
            let (width, height) = shown.sides(component);
            Plane::new(width, height)
        });
        let shown = Arc::new(shown);
        Decoder {
            width,
            height,
            frame: None,
            planes,
            rows: [0; BANDS],
            next: [0; BANDS],
            shown,
            values: Vec::new(),
            refused: 0,
        }
    }

    /// Takes a packet. Frames that it ends are appended to `shown`.
    pub fn take(&mut self, packet: &Packet<'_>, shown: &mut Vec<Shown>) {
        if (packet.width, packet.height) != (self.width, self.height) {
            self.refused += 1;
            return;
        }
        self.show_before(packet.frame, shown);
        if self.frame.is_some_and(|frame| packet.frame < frame) {
            self.refused += 1;
            return;
        }
        self.frame = Some(packet.frame);
        self.place(packet);
    }

    /// Shows all frames before this one.
    pub fn show_before(&mut self, next: u32, shown: &mut Vec<Shown>) {
        let Some(frame) = self.frame.filter(|&frame| frame < next) else { return };
        shown.push(self.show(frame));
        for lost in (frame + 1).max(next.saturating_sub(GAP_MAX))..next {
            shown.push(self.show(lost));
        }
        self.frame = Some(next);
    }

    /// Shows the frame that packets were taken for, if there is one.
    pub fn finish(&mut self) -> Option<Shown> {
        let frame = self.frame.take()?;
        Some(self.show(frame))
    }

    fn place(&mut self, packet: &Packet<'_>) {
        let plane = &mut self.planes[packet.band.component as usize];
        let place = Place::new(plane, packet.band);
        let priority = usize::from(packet.band.priority());
        if packet.row < self.next[priority] {
            self.refused += 1;
            return;
        }
        self.next[priority] = packet.row + packet.rows;
        self.rows[priority] += packet.rows;
        let rows = usize::from(packet.rows);
        self.values.resize(place.width * rows, 0);
        piece::decode(packet.code, packet.planes, packet.floor, place.width, &mut self.values);
        for (y, row) in (usize::from(packet.row)..).zip(self.values.chunks_exact(place.width)) {
            let to = &mut plane.values[place.at(y)..][..place.width];
            for (to, &value) in to.iter_mut().zip(row) {
                *to = piece::restore(value, packet.step);
            }
        }
    }

    fn show(&mut self, frame: u32) -> Shown {
        let rows = std::mem::replace(&mut self.rows, [0; BANDS]);
        self.next = [0; BANDS];
        if rows.iter().any(|&rows| rows > 0) {
            for component in COMPONENTS {
                let mut plane = self.planes[component as usize].clone();
                lifting::inverse(&mut plane, LEVELS[component as usize]);
                Arc::make_mut(&mut self.shown).set(component, &plane);
            }
            self.forget_detail();
        }
        let mut whole = [false; BANDS];
        for (priority, band) in Band::all().enumerate() {
            whole[priority] = usize::from(rows[priority]) >= band.size(self.width, self.height).1;
        }
        Shown { frame, picture: Arc::clone(&self.shown), rows, whole }
    }

    /// Keeps the lowest bands only.
    fn forget_detail(&mut self) {
        for band in Band::all().filter(|band| band.orientation != Orientation::Low) {
            let plane = &mut self.planes[band.component as usize];
            let place = Place::new(plane, band);
            for y in 0..place.height {
                plane.values[place.at(y)..][..place.width].fill(0);
            }
        }
    }
}
