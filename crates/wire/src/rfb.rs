//! RFB 3.8, the remote framebuffer protocol of VNC (RFC 6143), with the extensions that today's viewers use: desktop
//! size, continuous updates, fences.
//!
//! ```text
//! client: type 1 | body                                   a viewer's message
//! server: 0 | pad 1 | rectangles 2 | rectangle ...        an update
//! rectangle: x 2 | y 2 | width 2 | height 2 | encoding 4 | pixels
//! ```
//!
//! Numbers are big-endian. Numbers of extensions are those of the IANA registry of RFB.
//!
//! ```
//! use lastmeter_wire::rfb::{Area, Message};
//! let message = Message::Update { incremental: true, area: Area { x: 0, y: 0, w: 640, h: 480 } };
//! let bytes = message.emit();
//! assert_eq!(Message::parse(&bytes)?, Some((message, bytes.len())));
//! assert_eq!(Message::parse(&bytes[..9])?, None, "a byte is missing");
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

mod pixel;

pub use pixel::{FORMAT_LEN, PixelFormat};

use crate::error::Error;

/// What each side sends first.
pub const VERSION: [u8; 12] = *b"RFB 003.008\n";
/// The longest text of a clipboard.
pub const CUT_MAX: usize = 1 << 20;
/// The longest payload of a fence.
pub const FENCE_MAX: usize = 64;
/// Bytes of a rectangle's header.
pub const RECTANGLE_LEN: usize = 12;

/// How a client authenticates.
pub mod security {
    /// Not at all.
    pub const NONE: u8 = 1;
    /// A challenge, encrypted with DES under the password (section 7.2.2).
    pub const VNC: u8 = 2;
    /// VeNCrypt: one of the following, within TLS.
    pub const VENCRYPT: u8 = 19;
    /// Of VeNCrypt: the server's certificate, and nothing else.
    pub const X509_NONE: u32 = 260;
    /// Of VeNCrypt: a certificate, and [`VNC`].
    pub const X509_VNC: u32 = 261;
    /// Of VeNCrypt: a certificate, and a name with a password.
    pub const X509_PLAIN: u32 = 262;
}

/// Encodings and pseudo-encodings.
pub mod encoding {
    /// Uncompressed pixels.
    pub const RAW: i32 = 0;
    /// A copy from elsewhere on the screen.
    pub const COPY: i32 = 1;
    /// Tiles of 16 by 16 with rectangles.
    pub const HEXTILE: i32 = 5;
    /// zlib or JPEG.
    pub const TIGHT: i32 = 7;
    /// Tiles of 64 by 64 with runs and palettes, in zlib.
    pub const ZRLE: i32 = 16;
    /// The client's screen follows the size of the server's.
    pub const DESKTOP_SIZE: i32 = -223;
    /// An update may end with a mark instead of saying first how many rectangles it has.
    pub const LAST_RECTANGLE: i32 = -224;
    /// The client draws the pointer.
    pub const CURSOR: i32 = -239;
    /// Either side may change the size.
    pub const EXTENDED_DESKTOP_SIZE: i32 = -308;
    /// Fences are supported.
    pub const FENCE: i32 = -312;
    /// Updates without requests are supported.
    pub const CONTINUOUS: i32 = -313;
    /// JPEG at quality 0; the next nine are for 1 to 9.
    pub const QUALITY_0: i32 = -32;
}

/// A rectangle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// Its left edge.
    pub x: u16,
    /// Its upper edge.
    pub y: u16,
    /// Its width.
    pub w: u16,
    /// Its height.
    pub h: u16,
}

/// A viewer's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The pixel format that it wants.
    Format(PixelFormat),
    /// The encodings that it supports, the best first.
    Encodings(Vec<i32>),
    /// It asks for pixels.
    Update {
        /// Only what changed.
        incremental: bool,
        /// Where.
        area: Area,
    },
    /// A key was pressed or released.
    Key {
        /// Whether it is down.
        down: bool,
        /// X's number for the symbol (keysym).
        key: u32,
    },
    /// The pointer moved, or its buttons.
    Pointer {
        /// One bit for each.
        buttons: u8,
        /// Where.
        x: u16,
        /// Where.
        y: u16,
    },
    /// Text on the clipboard, in Latin-1.
    Cut(Vec<u8>),
    /// Turns updates without requests on or off.
    Continuous {
        /// On.
        enable: bool,
        /// Where.
        area: Area,
    },
    /// A fence to be sent back, or one that comes back.
    Fence {
        /// What it asks for.
        flags: u32,
        /// What is sent back.
        payload: Vec<u8>,
    },
    /// It would like a screen of this size.
    SetSize {
        /// Width.
        w: u16,
        /// Height.
        h: u16,
        /// How many monitors follow.
        screens: u8,
    },
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) << 16 | u32::from(short(bytes, at + 2))
}

impl Area {
    /// Bytes of one.
    pub const LEN: usize = 8;
    /// From 8 bytes.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Area {
        let [x, y, w, h] = [0, 2, 4, 6].map(|at| short(bytes, at));
        Area { x, y, w, h }
    }
    /// Its bytes.
    pub fn emit(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (at, value) in [self.x, self.y, self.w, self.h].into_iter().enumerate() {
            bytes[2 * at..2 * at + 2].copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }
}

/// A rectangle's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// Where.
    pub area: Area,
    /// How its pixels are encoded, or what else it says.
    pub encoding: i32,
}

impl Rectangle {
    /// From its bytes.
    pub fn parse(bytes: &[u8; RECTANGLE_LEN]) -> Rectangle {
        let area: [u8; Area::LEN] = std::array::from_fn(|at| bytes[at]);
        Rectangle { area: Area::parse(&area), encoding: word(bytes, 8) as i32 }
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; RECTANGLE_LEN] {
        let mut bytes = [0; RECTANGLE_LEN];
        bytes[..8].copy_from_slice(&self.area.emit());
        bytes[8..].copy_from_slice(&self.encoding.to_be_bytes());
        bytes
    }
}

impl Message {
    /// The message at the beginning of `bytes` and its length; nothing if more bytes are needed.
    ///
    /// # Errors
    /// If its type is unknown, or a length beyond its bound.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Message, usize)>, Error> {
        let Some(kind) = bytes.first() else { return Ok(None) };
        let fixed = match kind {
            0 => 4 + FORMAT_LEN,
            2 => 4,
            3 | 150 => 10,
            4 | 6 | 251 => 8,
            5 => 6,
            248 => 9,
            kind => {
                return Err(Error::Invalid { what: "RFB message", found: u64::from(*kind) });
            }
        };
        if bytes.len() < fixed {
            return Ok(None);
        }
        let counted = match kind {
            2 => 4 * usize::from(short(bytes, 2)),
            6 => bounded("RFB clipboard", word(bytes, 4), CUT_MAX)?,
            248 => bounded("RFB fence", u32::from(bytes[8]), FENCE_MAX)?,
            251 => 16 * usize::from(bytes[6]),
            _ => 0,
        };
        let Some(rest) = bytes.get(fixed..fixed + counted) else { return Ok(None) };
        let area = |at: usize| Area::parse(&std::array::from_fn(|byte| bytes[at + byte]));
        let message = match kind {
            0 => Message::Format(PixelFormat::parse(&std::array::from_fn(|at| bytes[4 + at]))?),
            2 => Message::Encodings(rest.chunks_exact(4).map(|b| word(b, 0) as i32).collect()),
            3 => Message::Update { incremental: bytes[1] != 0, area: area(2) },
            4 => Message::Key { down: bytes[1] != 0, key: word(bytes, 4) },
            5 => Message::Pointer { buttons: bytes[1], x: short(bytes, 2), y: short(bytes, 4) },
            6 => Message::Cut(rest.to_vec()),
            150 => Message::Continuous { enable: bytes[1] != 0, area: area(2) },
            248 => Message::Fence { flags: word(bytes, 4), payload: rest.to_vec() },
            _ => Message::SetSize { w: short(bytes, 2), h: short(bytes, 4), screens: bytes[6] },
        };
        Ok(Some((message, fixed + counted)))
    }
    /// Its bytes. Monitors of [`Message::SetSize`] are all zero.
    pub fn emit(&self) -> Vec<u8> {
        match self {
            Message::Format(format) => [&[0; 4][..], &format.emit()].concat(),
            Message::Encodings(list) => {
                let count = list.len().min(u16::MAX.into());
                let mut bytes = vec![2, 0];
                bytes.extend((count as u16).to_be_bytes());
                list[..count].iter().for_each(|encoding| bytes.extend(encoding.to_be_bytes()));
                bytes
            }
            Message::Update { incremental, area } => {
                [&[3, u8::from(*incremental)][..], &area.emit()].concat()
            }
            Message::Key { down, key } => {
                [&[4, u8::from(*down), 0, 0][..], &key.to_be_bytes()].concat()
            }
            Message::Pointer { buttons, x, y } => {
                [&[5, *buttons][..], &x.to_be_bytes(), &y.to_be_bytes()].concat()
            }
            Message::Cut(text) => {
                let text = &text[..text.len().min(CUT_MAX)];
                [&[6, 0, 0, 0][..], &(text.len() as u32).to_be_bytes(), text].concat()
            }
            Message::Continuous { enable, area } => {
                [&[150, u8::from(*enable)][..], &area.emit()].concat()
            }
            Message::Fence { flags, payload } => fence(*flags, payload),
            Message::SetSize { w, h, screens } => {
                let head = [&[251, 0][..], &w.to_be_bytes(), &h.to_be_bytes(), &[*screens, 0]];
                [head.concat(), vec![0; 16 * usize::from(*screens)]].concat()
            }
        }
    }
}

fn bounded(what: &'static str, len: u32, max: usize) -> Result<usize, Error> {
    let found = u64::from(len);
    usize::try_from(len).ok().filter(|len| *len <= max).ok_or(Error::Invalid { what, found })
}

/// A fence, which has the same form from both sides.
pub fn fence(flags: u32, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(FENCE_MAX)];
    [&[248, 0, 0, 0][..], &flags.to_be_bytes(), &[payload.len() as u8], payload].concat()
}

/// What a server says about its screen once the client is let in (section 7.3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// Width.
    pub w: u16,
    /// Height.
    pub h: u16,
    /// Its pixel format.
    pub format: PixelFormat,
    /// Its name.
    pub name: String,
}

impl Init {
    /// Bytes before the name.
    pub const LEN: usize = 8 + FORMAT_LEN;
    /// All but the name, and how long that is.
    ///
    /// # Errors
    /// If the format is impossible or the name is too long.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<(Init, usize), Error> {
        let format = PixelFormat::parse(&std::array::from_fn(|at| bytes[4 + at]))?;
        let len = bounded("RFB name", word(bytes, 4 + FORMAT_LEN), 4096)?;
        let name = String::new();
        Ok((Init { w: short(bytes, 0), h: short(bytes, 2), format, name }, len))
    }
    /// Its bytes.
    pub fn emit(&self) -> Vec<u8> {
        let (name, format) = (self.name.as_bytes(), self.format.emit());
        let len = (name.len() as u32).to_be_bytes();
        [&self.w.to_be_bytes()[..], &self.h.to_be_bytes(), &format, &len, name].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_area() -> impl Strategy<Value = Area> {
        any::<[u16; 4]>().prop_map(|[x, y, w, h]| Area { x, y, w, h })
    }

    fn any_message() -> impl Strategy<Value = Message> {
        prop_oneof![
            Just(Message::Format(PixelFormat::NATIVE)),
            proptest::collection::vec(any::<i32>(), 0..20).prop_map(Message::Encodings),
            (any::<bool>(), any_area())
                .prop_map(|(incremental, area)| Message::Update { incremental, area }),
            (any::<bool>(), any::<u32>()).prop_map(|(down, key)| Message::Key { down, key }),
            any::<(u8, u16, u16)>().prop_map(|(buttons, x, y)| Message::Pointer { buttons, x, y }),
            proptest::collection::vec(any::<u8>(), 0..50).prop_map(Message::Cut),
            (any::<bool>(), any_area())
                .prop_map(|(enable, area)| Message::Continuous { enable, area }),
            (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..=FENCE_MAX))
                .prop_map(|(flags, payload)| Message::Fence { flags, payload }),
            any::<(u16, u16, u8)>().prop_map(|(w, h, screens)| Message::SetSize { w, h, screens }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(message in any_message(), rest in any::<[u8; 3]>()) {
            let mut bytes = message.emit();
            let len = bytes.len();
            for short in 0..len {
                prop_assert_eq!(Message::parse(&bytes[..short]), Ok(None));
            }
            bytes.extend(rest);
            prop_assert_eq!(Message::parse(&bytes), Ok(Some((message, len))));
        }
    }

    #[test]
    fn lengths_are_bounded() {
        assert!(Message::parse(&[6, 0, 0, 0, 0xff, 0, 0, 0]).is_err());
        assert!(Message::parse(&[248, 0, 0, 0, 0, 0, 0, 0, 65]).is_err());
        assert!(Message::parse(&[1]).is_err());
    }

    #[test]
    fn a_screen_is_announced_as_in_the_rfc() {
        let init = Init { w: 640, h: 480, format: PixelFormat::NATIVE, name: "x".to_owned() };
        let bytes = init.emit();
        assert_eq!(bytes[..4], [2, 128, 1, 224]);
        let (parsed, len) = Init::parse(bytes.first_chunk().expect("long enough")).expect("sound");
        assert_eq!((parsed.w, parsed.h, len), (640, 480, 1));
    }
}
