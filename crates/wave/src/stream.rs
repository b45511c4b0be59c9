//! A stream: a sequence as packets, when each is sent, and how good is what a receiver shows of it.

use crate::decoder::Shown;
use crate::picture::QCIF;
use crate::sequence::{FRAMES_PER_SECOND, Sequence};
use crate::{Encoder, Picture};
use lastmeter_base::Duration;
use lastmeter_wire::internet::ipv4;
use lastmeter_wire::wave::{self, BANDS, BASE};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The UDP port that receivers listen on.
pub const PORT: u16 = 5005;
/// Bytes of the headers of IPv4 and UDP.
pub const HEADERS_LEN: usize = ipv4::HEADER_LEN + UDP_LEN;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;
const PER_CENT: u64 = 100;

/// The packets of each frame.
pub type Film = Vec<Vec<Vec<u8>>>;

/// How a sequence is coded and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What it shows.
    pub sequence: Sequence,
    /// Frames after which it repeats.
    pub frames: u32,
    /// Width and height in units of 16 pixels.
    pub size: (u8, u8),
    /// Frames a second.
    pub rate: u64,
    /// Step of the quantiser.
    pub step: u8,
    /// The most bytes of code in a packet.
    pub code_len: usize,
    /// Per cent of a frame's time over which its packets are sent.
    pub spread: u64,
}

impl Options {
    /// As in the document, without loss.
    pub fn new(sequence: Sequence, frames: u32) -> Options {
        let code_len = crate::encoder::Options::default().code_len;
        let rate = FRAMES_PER_SECOND;
        Options { sequence, frames, size: QCIF, rate, step: 1, code_len, spread: 90 }
    }
    /// When a frame begins, after the first one.
    pub fn begins(&self, frame: u32) -> Duration {
        Duration::from_secs(1).scale_ceil(frame.into(), self.rate)
    }
    /// When a packet of a frame is sent, after the first frame began: after each, a time in proportion to its length.
    pub fn due(&self, frame: u32, packets: &[Vec<u8>], packet: usize) -> Duration {
        let time = self.begins(1).scale_ceil(self.spread, PER_CENT);
        let len = |packets: &[Vec<u8>]| -> u64 {
            packets.iter().map(|packet| (HEADERS_LEN + packet.len()) as u64).sum()
        };
        self.begins(frame) + time.scale_ceil(len(&packets[..packet]), len(packets).max(1))
    }
    /// The packets of each frame, until it repeats.
    pub fn film(&self) -> Film {
        self.film_of((0..self.frames).map(|frame| self.picture(frame)))
    }
    /// The same of other pictures.
    pub fn film_of(&self, pictures: impl Iterator<Item = Picture>) -> Film {
        let mut encoder = Encoder::default();
        encoder.options.steps = [self.step; BANDS];
        encoder.options.code_len = self.code_len;
        let code = |(frame, picture): (u32, Picture)| {
            encoder.encode(frame, &picture).expect("a picture has pixels")
        };
        (0..).zip(pictures).map(code).collect()
    }
    /// A frame as it was before it was coded.
    pub fn picture(&self, frame: u32) -> Picture {
        self.sequence.frame(frame % self.frames, self.size.0, self.size.1)
    }
}

/// The packet of a film, made one of a later frame.
pub fn renumbered(bytes: &[u8], frame: u32) -> Vec<u8> {
    let packet = wave::Packet::parse(bytes).expect("the encoder made it");
    wave::Packet { frame, ..packet }.emit().expect("only its number changed")
}

/// Appends a packet's headers and its payload.
pub fn emit(src: Ipv4Addr, dst: Ipv4Addr, port: u16, payload: &[u8], bytes: &mut Vec<u8>) {
    let len = UDP_LEN + payload.len();
    ipv4::Header::new(src, dst, UDP).emit(len, bytes).expect("a packet is short");
    // No checksum: RFC 768 allows it.
    for half in [port, PORT, len as u16, 0] {
        bytes.extend(half.to_be_bytes());
    }
    bytes.extend(payload);
}

/// What a receiver has found out about the frames that it showed.
#[derive(Clone, Debug)]
pub struct Judge {
    options: Options,
    originals: BTreeMap<u32, Picture>,
    /// Frames shown.
    pub frames: u64,
    /// Frames that were the original.
    pub exact: u64,
    /// Frames of which nothing came.
    pub nothing: u64,
    /// Frames of which something came, but not all of the lowest bands.
    pub broken: u64,
    /// Sum of their PSNR in dB.
    pub psnr: f64,
    /// The worst one's.
    pub least: f64,
}

impl Judge {
    /// Before the first frame.
    pub fn new(options: Options) -> Judge {
        let (frames, exact, nothing, broken) = (0, 0, 0, 0);
        let (psnr, least) = (0.0, f64::INFINITY);
        Judge { options, originals: BTreeMap::new(), frames, exact, nothing, broken, psnr, least }
    }
    /// The same of other pictures than those of the sequence: `options.frames` of them.
    pub fn of(options: Options, pictures: &[Picture]) -> Judge {
        Judge { originals: (0..).zip(pictures.iter().cloned()).collect(), ..Judge::new(options) }
    }
    /// The PSNR of a frame in dB.
    pub fn see(&mut self, shown: &Shown) -> f64 {
        let options = self.options;
        let place = shown.frame % options.frames;
        let original = self.originals.entry(place).or_insert_with(|| options.picture(place));
        let psnr = original.psnr(&shown.picture);
        self.frames += 1;
        self.exact += u64::from(*shown.picture == *original);
        self.nothing += u64::from(!shown.any());
        let low = shown.whole[..usize::from(BASE)].iter().all(|&whole| whole);
        self.broken += u64::from(shown.any() && !low);
        self.psnr += psnr;
        self.least = self.least.min(psnr);
        psnr
    }
}

/// The bands of which all came, as bits by priority.
pub fn mask(shown: &Shown) -> u64 {
    let bits = shown.whole.iter().enumerate().map(|(band, &whole)| u64::from(whole) << band);
    bits.sum()
}
