//! JPEG in RTP (RFC 2435): a baseline JPEG is taken apart, and its scan travels in packets.
//!
//! ```text
//! RTP 12 | specific 1 | offset 3 | type 1 | Q 1 | width/8 1 | height/8 1 |
//!          first packet: zero 1 | precision 1 | length 2 | tables |  scan
//! ```
//!
//! Tables travel with each frame (Q 255). Pictures have three components, 4:2:2 (type 0) or 4:2:0 (type 1), sides that
//! are multiples of 8 up to 2040, and the Huffman tables of ITU-T T.81, annex K, which receivers assume: the encoder
//! must use these.

use crate::error::{Error, split};
pub use crate::rtp::{RTP_LEN, header};

/// The static payload type of JPEG.
pub const JPEG: u8 = 26;
/// The clock of video, in hertz.
pub const CLOCK: u32 = 90_000;
/// The longest scan: offsets have 24 bits.
pub const SCAN_MAX: usize = (1 << 24) - 1;
const HEADER_LEN: usize = 8;
const TABLES_LEN: usize = 128;
/// The tables are in the packet.
const OWN_TABLES: u8 = 255;

/// What RTP carries of a JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// 0: 4:2:2; 1: 4:2:0.
    pub kind: u8,
    /// In pixels.
    pub width: u16,
    /// In pixels.
    pub height: u16,
    /// Those of luminance and of chrominance, in zigzag order.
    pub tables: [&'a [u8; 64]; 2],
    /// The entropy-coded bytes.
    pub data: &'a [u8],
}

fn wrong(what: &'static str, found: impl Into<u64>) -> Error {
    Error::Invalid { what, found: found.into() }
}

/// The size and the sampling in a frame header, if RTP can carry it: type, width, height.
fn frame(segment: &[u8]) -> Result<(u8, u16, u16), Error> {
    let (head, _) = split::<15>(segment, "JPEG frame header")?;
    let [
        bits,
        h0,
        h1,
        w0,
        w1,
        components,
        _,
        sampling,
        first,
        _,
        second,
        of_blue,
        _,
        third,
        of_red,
    ] = *head;
    if (bits, components) != (8, 3) {
        return Err(wrong("JPEG components", components));
    }
    let kind = match (sampling, second, third) {
        (0x21, 0x11, 0x11) => 0,
        (0x22, 0x11, 0x11) => 1,
        _ => return Err(wrong("JPEG sampling", sampling)),
    };
    if (first, of_blue, of_red) != (0, 1, 1) {
        return Err(wrong("JPEG component's table", of_blue));
    }
    let (width, height) = (u16::from_be_bytes([w0, w1]), u16::from_be_bytes([h0, h1]));
    for side in [width, height] {
        if side == 0 || side % 8 != 0 || side > 2040 {
            return Err(wrong("JPEG side", side));
        }
    }
    Ok((kind, width, height))
}

impl<'a> Scan<'a> {
    /// Takes a JPEG apart.
    ///
    /// # Errors
    /// If it is not a JPEG, or RTP cannot carry it.
    pub fn of(jpeg: &'a [u8]) -> Result<Scan<'a>, Error> {
        let (start, mut rest) = split::<2>(jpeg, "JPEG")?;
        if *start != [0xff, 0xd8] {
            return Err(wrong("JPEG first bytes", start[0]));
        }
        let (mut tables, mut size) = ([None; 2], None);
        loop {
            let ([mark, kind, l0, l1], _) = split::<4>(rest, "JPEG marker")?;
            if *mark != 0xff {
                return Err(wrong("JPEG marker", *mark));
            }
            let len = usize::from(u16::from_be_bytes([*l0, *l1]));
            let need = 2 + len;
            let short = Error::Truncated { what: "JPEG segment", need, have: rest.len() };
            let segment = rest.get(4..need.max(4)).ok_or(short)?;
            rest = &rest[need.max(4)..];
            match *kind {
                0xdb => {
                    let mut left = segment;
                    while !left.is_empty() {
                        let (one, more) = split::<65>(left, "JPEG quantization table")?;
                        let at = usize::from(one[0]);
                        let slot = tables.get_mut(at).ok_or(wrong("JPEG table", one[0]))?;
                        *slot = one[1..].first_chunk::<64>();
                        left = more;
                    }
                }
                0xc0 => size = Some(frame(segment)?),
                0xc1..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                    return Err(wrong("JPEG process", *kind));
                }
                0xdd if segment != [0, 0] => return Err(wrong("JPEG restart interval", *kind)),
                0xda => break,
                _ => {}
            }
        }
        let (Some((kind, width, height)), [Some(luminance), Some(chrominance)]) = (size, tables)
        else {
            return Err(wrong("JPEG without tables or frame", 0u8));
        };
        let data = rest.strip_suffix(&[0xff, 0xd9]).unwrap_or(rest);
        if data.len() > SCAN_MAX {
            return Err(wrong("JPEG scan's length", data.len() as u64));
        }
        Ok(Scan { kind, width, height, tables: [luminance, chrominance], data })
    }
    /// Bytes of its packets after the RTP header, each at most `most` long, and whether it is the last.
    pub fn payloads(&self, most: usize) -> impl Iterator<Item = (Vec<u8>, bool)> + use<'a> {
        let (scan, mut offset) = (*self, 0);
        let most = most.max(HEADER_LEN + 4 + TABLES_LEN + 8);
        std::iter::from_fn(move || {
            if offset > 0 && offset >= scan.data.len() {
                return None;
            }
            let mut bytes = (offset as u32).to_be_bytes().to_vec();
            let sides = [scan.width, scan.height].map(|side| (side / 8) as u8);
            bytes.extend([scan.kind, OWN_TABLES, sides[0], sides[1]]);
            if offset == 0 {
                bytes.extend([0, 0, 0, TABLES_LEN as u8]);
                scan.tables.iter().for_each(|table| bytes.extend(*table));
            }
            let end = (offset + most - bytes.len()).min(scan.data.len());
            bytes.extend(&scan.data[offset..end]);
            offset = end.max(1);
            Some((bytes, end == scan.data.len()))
        })
    }
}

/// A packet after its RTP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Where in the scan its bytes belong.
    pub offset: u32,
    /// 0: 4:2:2; 1: 4:2:0.
    pub kind: u8,
    /// In pixels.
    pub width: u16,
    /// In pixels.
    pub height: u16,
    /// Both quantization tables, in the first packet.
    pub tables: &'a [u8],
    /// Of the scan.
    pub data: &'a [u8],
}

impl<'a> Payload<'a> {
    /// # Errors
    /// If it is too short, of another type, or without tables of its own.
    pub fn parse(bytes: &'a [u8]) -> Result<Payload<'a>, Error> {
        let ([_, o0, o1, o2, kind, q, w, h], mut data) =
            split::<HEADER_LEN>(bytes, "RTP JPEG header")?;
        if *kind > 1 {
            return Err(wrong("RTP JPEG type", *kind));
        }
        if *q != OWN_TABLES {
            return Err(wrong("RTP JPEG quality", *q));
        }
        let offset = u32::from_be_bytes([0, *o0, *o1, *o2]);
        let mut tables = &data[..0];
        if offset == 0 {
            let ([_, precision, l0, l1], rest) = split::<4>(data, "RTP JPEG tables")?;
            let len = usize::from(u16::from_be_bytes([*l0, *l1]));
            if (*precision, len) != (0, TABLES_LEN) {
                return Err(wrong("RTP JPEG tables' length", len as u64));
            }
            let need = len;
            let what = "RTP JPEG tables";
            let short = Error::Truncated { what, need, have: rest.len() };
            (tables, data) = rest.split_at_checked(len).ok_or(short)?;
        }
        let [width, height] = [*w, *h].map(|side| u16::from(side) * 8);
        Ok(Payload { offset, kind: *kind, width, height, tables, data })
    }
}
