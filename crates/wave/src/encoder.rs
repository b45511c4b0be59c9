//! The encoder: a picture to packets, in order of priority.
//!
//! A band whose code is longer than a packet is cut into pieces of whole rows. A single row that is too long loses its
//! lowest bit-planes.

use crate::lifting::{self, Plane};
use crate::picture::Picture;
use crate::piece::{self, Code};
use lastmeter_wire::Error;
use lastmeter_wire::wave::{BANDS, Band, Component, LEVELS, Packet, SLICES_MAX};

/// How finely bands are coded, and into how long packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The quantiser's step of each band, by priority; 1 loses nothing.
    pub steps: [u8; BANDS],
    /// The most bytes of code in a packet.
    pub code_len: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { steps: [1; BANDS], code_len: 1400 }
    }
}

/// Codes pictures of any size.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    /// Its options.
    pub options: Options,
}

/// A piece before it is a packet: its first row and its code.
type Piece = (u16, u16, Code);

impl Encoder {
    /// The packets of a frame.
    ///
    /// # Errors
    /// If the picture has no pixels.
    pub fn encode(&self, frame: u32, picture: &Picture) -> Result<Vec<Vec<u8>>, Error> {
        let planes = [Component::Luma, Component::Blue, Component::Red].map(|component| {
            let mut plane = picture.plane(component);
            lifting::forward(&mut plane, LEVELS[component as usize]);
            plane
        });
        let mut packets = Vec::with_capacity(2 * BANDS);
        let (mut values, mut pieces): (Vec<i32>, Vec<Piece>) = Default::default();
        for (band, &step) in Band::all().zip(&self.options.steps) {
            let (width, height) = band.size(picture.width, picture.height);
            values.clear();
            gather(&planes[band.component as usize], band, |row| {
                values.extend(row.iter().map(|&value| piece::quantise(value, step.max(1))));
            });
            pieces.clear();
            self.cut(&values, width, 0, &mut pieces);
            debug_assert_eq!(values.len(), width * height);
            for (slice, (row, rows, code)) in pieces.drain(..).enumerate() {
                let packet = Packet {
                    band,
                    frame,
                    slice: slice as u8,
                    last: usize::from(band.priority()) + 1 == BANDS
                        && usize::from(row + rows) == height,
                    width: picture.width,
                    height: picture.height,
                    row,
                    rows,
                    step: step.max(1),
                    planes: code.planes,
                    floor: code.floor,
                    code: &code.bytes,
                };
                packets.push(packet.emit()?);
            }
        }
        Ok(packets)
    }

    /// Codes rows of a band, the first of them `from`, as few pieces that fit.
    fn cut(&self, values: &[i32], width: usize, from: usize, pieces: &mut Vec<Piece>) {
        let rows = values.len() / width;
        let mut code = piece::encode(values, width);
        let most = self.options.code_len;
        if code.bytes.len() <= most || rows == 1 || pieces.len() + 2 > usize::from(SLICES_MAX) {
            code.cut(most);
            return pieces.push((from as u16, rows as u16, code));
        }
        // A little more than its share each, as rows differ.
        let parts = (code.bytes.len() * 17 / 16).div_ceil(most).clamp(2, rows);
        let mut row = 0;
        for part in 0..parts {
            let end = rows * (part + 1) / parts;
            self.cut(&values[row * width..end * width], width, from + row, pieces);
            row = end;
        }
    }
}

/// Each row of a band in a transformed plane.
fn gather(plane: &Plane, band: Band, mut row: impl FnMut(&[i32])) {
    let place = Place::new(plane, band);
    for y in 0..place.height {
        row(&plane.values[place.at(y)..][..place.width]);
    }
}

/// Where a band lies in a transformed plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    x: usize,
    y: usize,
    stride: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Place {
    pub(crate) fn new(plane: &Plane, band: Band) -> Place {
        let (width, height) = (plane.width >> band.level, plane.height >> band.level);
        let orientation = band.orientation as usize;
        let (x, y) = (width * (orientation & 1), height * (orientation >> 1));
        Place { x, y, stride: plane.width, width, height }
    }
    /// The first coefficient of a row.
    pub(crate) fn at(&self, row: usize) -> usize {
        (self.y + row) * self.stride + self.x
    }
}
