//! Packets of Wave Video: each carries a piece of one sub-band of one frame.
//!
//! ```text
//!  0  component 2 | level 3 | orientation 2 | frame 8 | slice 6 | last 1 | priority 6 | zero 4     the tag
//!  4  number of the frame 4, whose low 8 bits are those of the tag
//!  8  width 1 | height 1      of the frame, in units of 16 pixels
//! 10  first row 2 | rows 2    of the piece in its band
//! 14  step 1                  of the quantiser; 1 loses nothing
//! 15  planes 4 | floor 4      bit-planes of the largest value, and those left out at the bottom
//! 16  the piece's code
//! ```
//!
//! A router needs only the tag, at a fixed place, and mostly its priority: 0 is what a picture cannot do without,
//! 32 the finest detail.
//!
//! There are 33 sub-bands: four levels of luma and three of each chroma, as luma has twice as many samples each
//! way. The order of priority: the lowest band of luma and those of both chromas, so that no colour is ever wrong;
//! then level by level from the coarsest, luma before chroma.
//!
//! Source: Kuhns et al. §5 (D-95) has 33 sub-bands and forwards the lower ones first; their layout was not published
//! and this one is ours.
//!
//! ```
//! use lastmeter_wire::wave::{Band, Packet};
//! let band = Band::of_priority(0)?;
//! let packet = Packet {
//!     band, frame: 300, slice: 0, last: false, width: 11, height: 9, row: 0, rows: 9, step: 1, planes: 8,
//!     floor: 0, code: b"code",
//! };
//! assert_eq!(Packet::parse(&packet.emit()?)?, packet);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, split};

/// Bytes before the code.
pub const HEADER_LEN: usize = 16;
/// Sub-bands of a frame.
pub const BANDS: usize = 33;
/// The first priorities: the lowest band of each component.
pub const BASE: u8 = 3;
/// Levels of luma and of each chroma.
pub const LEVELS: [u8; 3] = [4, 3, 3];
/// Pixels of a unit of width and height: what four levels need.
pub const UNIT: u16 = 16;
/// The most pieces of a band.
pub const SLICES_MAX: u8 = 64;
/// The most bit-planes of a coefficient.
pub const PLANES_MAX: u8 = 15;

/// A component of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// Brightness.
    Luma,
    /// Blue less brightness, at half the resolution each way.
    Blue,
    /// Red less brightness, at half the resolution each way.
    Red,
}

/// Which of the four bands of a level; only the coarsest level has the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Orientation {
    /// Low both ways: a small picture.
    Low,
    /// High across, low down: upright edges.
    Across,
    /// Low across, high down: level edges.
    Down,
    /// High both ways.
    Both,
}

/// A sub-band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Band {
    /// Its component.
    pub component: Component,
    /// Its level, from 1, the finest.
    pub level: u8,
    /// Its place in the level.
    pub orientation: Orientation,
}

const COMPONENTS: [Component; 3] = [Component::Luma, Component::Blue, Component::Red];
const ORIENTATIONS: [Orientation; 4] =
    [Orientation::Low, Orientation::Across, Orientation::Down, Orientation::Both];

impl Band {
    /// All, by priority.
    pub fn all() -> impl Iterator<Item = Band> {
        let low = COMPONENTS.into_iter().map(|component| Band {
            component,
            level: LEVELS[component as usize],
            orientation: Orientation::Low,
        });
        let high = (1..=LEVELS[0]).rev().flat_map(|level| {
            let with = move |component: &Component| level <= LEVELS[*component as usize];
            COMPONENTS.into_iter().filter(with).flat_map(move |component| {
                let band = move |orientation| Band { component, level, orientation };
                ORIENTATIONS.into_iter().skip(1).map(band)
            })
        });
        low.chain(high)
    }
    /// The band of this priority.
    ///
    /// # Errors
    /// If there are not that many.
    pub fn of_priority(priority: u8) -> Result<Band, Error> {
        let wrong = Error::Invalid { what: "Wave Video priority", found: priority.into() };
        Band::all().nth(priority.into()).ok_or(wrong)
    }
    /// Its priority: 0 is the most important.
    pub fn priority(self) -> u8 {
        let Band { component, level, orientation } = self;
        if orientation == Orientation::Low {
            return component as u8;
        }
        // Each coarser level has three bands of each component that reaches it.
        let coarser: u8 = LEVELS.iter().map(|levels| 3 * levels.saturating_sub(level)).sum();
        BASE + coarser + 3 * component as u8 + (orientation as u8 - 1)
    }
    /// Its width and height, in a frame of this many units.
    pub fn size(self, width: u8, height: u8) -> (usize, usize) {
        let shift = self.level + u8::from(self.component != Component::Luma);
        let side = |units: u8| (usize::from(units) * usize::from(UNIT)) >> shift;
        (side(width), side(height))
    }
    fn of_bits(tag: u32) -> Result<Band, Error> {
        let wrong = |found: u32| Error::Invalid { what: "Wave Video band", found: found.into() };
        let component = COMPONENTS.get((tag >> 30) as usize).ok_or(wrong(tag >> 30))?;
        let level = (tag >> 27 & 7) as u8;
        let orientation = ORIENTATIONS[(tag >> 25 & 3) as usize];
        let levels = LEVELS[*component as usize];
        let exists =
            (1..=levels).contains(&level) && (orientation != Orientation::Low || level == levels);
        match exists {
            true => Ok(Band { component: *component, level, orientation }),
            false => Err(wrong(tag >> 25)),
        }
    }
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its sub-band.
    pub band: Band,
    /// Number of the frame.
    pub frame: u32,
    /// Number of the piece in its band, from 0.
    pub slice: u8,
    /// Whether it is the last one of the frame.
    pub last: bool,
    /// Width of the frame, in [`UNIT`].
    pub width: u8,
    /// Height of the frame, in [`UNIT`].
    pub height: u8,
    /// First row of the piece in its band.
    pub row: u16,
    /// Its rows, at least one.
    pub rows: u16,
    /// Step of the quantiser, at least 1.
    pub step: u8,
    /// Bit-planes of its largest quantised value.
    pub planes: u8,
    /// How many of these, at the bottom, were left out.
    pub floor: u8,
    /// The code of its coefficients.
    pub code: &'a [u8],
}

impl<'a> Packet<'a> {
    /// # Errors
    /// If the bytes end early, the band or priority does not exist, the rows are not in the band, or fields that
    /// occur twice differ.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Error> {
        let (head, code) = split::<HEADER_LEN>(bytes, "Wave Video header")?;
        let &[t0, t1, t2, t3, f0, f1, f2, f3, width, height, r0, r1, n0, n1, step, planes] = head;
        let tag = u32::from_be_bytes([t0, t1, t2, t3]);
        let packet = Packet {
            band: Band::of_bits(tag)?,
            frame: u32::from_be_bytes([f0, f1, f2, f3]),
            slice: (tag >> 11 & 0x3f) as u8,
            last: tag >> 10 & 1 == 1,
            width,
            height,
            row: u16::from_be_bytes([r0, r1]),
            rows: u16::from_be_bytes([n0, n1]),
            step,
            planes: planes >> 4,
            floor: planes & 15,
            code,
        };
        packet.check()?;
        match packet.tag() == tag {
            true => Ok(packet),
            false => Err(Error::Invalid { what: "Wave Video tag", found: tag.into() }),
        }
    }
    fn check(&self) -> Result<(), Error> {
        let wrong = |what, found: u64| Err(Error::Invalid { what, found });
        let (_, height) = self.band.size(self.width, self.height);
        let end = usize::from(self.row) + usize::from(self.rows);
        if self.width == 0 || self.height == 0 {
            return wrong("Wave Video width or height", 0);
        }
        if self.rows == 0 || end > height {
            return wrong("Wave Video last row", end as u64);
        }
        if self.step == 0 {
            return wrong("Wave Video step", 0);
        }
        if self.planes > PLANES_MAX || self.floor > self.planes {
            return wrong("Wave Video planes", (self.planes << 4 | self.floor & 15).into());
        }
        match self.slice < SLICES_MAX {
            true => Ok(()),
            false => wrong("Wave Video slice", self.slice.into()),
        }
    }
    fn tag(&self) -> u32 {
        let Band { component, level, orientation } = self.band;
        (component as u32) << 30
            | u32::from(level) << 27
            | (orientation as u32) << 25
            | (self.frame & 0xff) << 17
            | u32::from(self.slice) << 11
            | u32::from(self.last) << 10
            | u32::from(self.band.priority()) << 4
    }
    /// # Errors
    /// As [`Packet::parse`].
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        self.check()?;
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.code.len());
        bytes.extend(self.tag().to_be_bytes());
        bytes.extend(self.frame.to_be_bytes());
        bytes.extend([self.width, self.height]);
        bytes.extend(self.row.to_be_bytes());
        bytes.extend(self.rows.to_be_bytes());
        bytes.extend([self.step, self.planes << 4 | self.floor]);
        bytes.extend(self.code);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn d_95_there_are_33_sub_bands_and_priorities_count_them() {
        let bands: Vec<Band> = Band::all().collect();
        assert_eq!(bands.len(), BANDS);
        for (priority, band) in bands.iter().enumerate() {
            assert_eq!(usize::from(band.priority()), priority, "{band:?}");
        }
        assert!(Band::of_priority(BANDS as u8).is_err());
    }

    #[test]
    fn bands_of_a_frame_hold_as_many_samples_as_its_pixels() {
        // QCIF, 4:2:0.
        let samples: usize = Band::all().map(|band| band.size(11, 9)).map(|(w, h)| w * h).sum();
        assert_eq!(samples, 176 * 144 * 3 / 2);
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses(
            priority in 0..BANDS as u8, frame: u32, slice in 0..SLICES_MAX, last: bool,
            (width, height) in (1u8.., 1u8..), (from, rows) in (0.0..1.0, 0.0..1.0), step in 1u8..,
            (planes, floor) in (0..=PLANES_MAX, 0..=PLANES_MAX), code: Vec<u8>,
        ) {
            let band = Band::of_priority(priority).expect("it exists");
            let (_, tall) = band.size(width, height);
            let row = (from * tall as f64) as u16;
            let rows = 1 + (rows * (tall as f64 - 1.0 - f64::from(row)).max(0.0)) as u16;
            let packet = Packet {
                band, frame, slice, last, width, height, row, rows, step, planes,
                floor: floor.min(planes), code: &code,
            };
            let bytes = packet.emit().expect("its rows are in the band");
            prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
        }

        #[test]
        fn what_parses_is_emitted_alike(
            priority in 0..BANDS as u8, changes: Vec<(u8, u8)>, len in 0usize..32,
        ) {
            let band = Band::of_priority(priority).expect("it exists");
            let packet = Packet {
                band, frame: 7, slice: 1, last: false, width: 11, height: 9, row: 1, rows: 2, step: 1,
                planes: 8, floor: 0, code: &[5; 16],
            };
            let mut bytes = packet.emit().expect("its rows are in the band");
            for (at, change) in changes {
                bytes[usize::from(at) % 32] ^= 1 << (change & 7);
            }
            crate::fuzz::fuzz_wave(&bytes);
            crate::fuzz::fuzz_wave(&bytes[..len]);
        }
    }
}
