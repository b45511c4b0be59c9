//! The benchmarks of `lastmeter bench wave`: frames a second, of which a film needs 30.

use crate::picture::CIF;
use crate::sequence::Sequence;
use crate::{Decoder, Encoder, Picture};
use lastmeter_base::bench::{Case, Work};
use lastmeter_wire::wave::{BANDS, Packet};

/// The benchmarks of this crate.
pub const CASES: &[Case] = &[
    Case {
        name: "wave/both-lossless",
        unit: "frames",
        what: "encodes and decodes CIF without loss on one core, a panning sequence",
        prepare: |quick| both(quick, 1),
    },
    Case {
        name: "wave/both-coarse",
        unit: "frames",
        what: "the same with a quantiser step of 8",
        prepare: |quick| both(quick, 8),
    },
    Case {
        name: "wave/encode-lossless",
        unit: "frames",
        what: "encodes CIF without loss, a panning sequence",
        prepare: |quick| encode(quick, 1),
    },
    Case {
        name: "wave/decode-lossless",
        unit: "frames",
        what: "decodes the same packets",
        prepare: |quick| decode(quick, 1),
    },
    Case {
        name: "wave/encode-coarse",
        unit: "frames",
        what: "encodes the same pictures with a quantiser step of 8",
        prepare: |quick| encode(quick, 8),
    },
    Case {
        name: "wave/decode-coarse",
        unit: "frames",
        what: "decodes these packets",
        prepare: |quick| decode(quick, 8),
    },
];

fn frames(quick: bool) -> Vec<Picture> {
    let many = if quick { 1 } else { 8 };
    (0..many).map(|frame| Sequence::Panning.frame(frame, CIF.0, CIF.1)).collect()
}

fn encoder(step: u8) -> Encoder {
    let mut encoder = Encoder::default();
    encoder.options.steps = [step; BANDS];
    encoder
}

fn coded(encoder: &Encoder, frame: usize, picture: &Picture) -> Vec<Vec<u8>> {
    encoder.encode(frame as u32, picture).expect("CIF has pixels")
}

/// FNV-1a.
fn mix(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn encode(quick: bool, step: u8) -> Box<dyn FnMut() -> Work> {
    let (pictures, encoder) = (frames(quick), encoder(step));
    Box::new(move || {
        let packets =
            pictures.iter().enumerate().flat_map(|(n, picture)| coded(&encoder, n, picture));
        let hash = packets.fold(0, |hash, packet| mix(hash, &packet[packet.len() / 2..]));
        Work { units: pictures.len() as u64, hash }
    })
}

fn both(quick: bool, step: u8) -> Box<dyn FnMut() -> Work> {
    let (pictures, encoder) = (frames(quick), encoder(step));
    Box::new(move || {
        let (mut decoder, mut shown) = (Decoder::new(CIF.0, CIF.1), Vec::new());
        for (frame, picture) in pictures.iter().enumerate() {
            for bytes in coded(&encoder, frame, picture) {
                decoder.take(&Packet::parse(&bytes).expect("the encoder made it"), &mut shown);
            }
        }
        shown.extend(decoder.finish());
        let hash = shown.iter().fold(0, |hash, shown| mix(hash, &shown.picture.samples[0]));
        Work { units: shown.len() as u64, hash }
    })
}

fn decode(quick: bool, step: u8) -> Box<dyn FnMut() -> Work> {
    let (pictures, encoder) = (frames(quick), encoder(step));
    let pictures = pictures.iter().enumerate();
    let packets: Vec<Vec<u8>> =
        pictures.flat_map(|(n, picture)| coded(&encoder, n, picture)).collect();
    Box::new(move || {
        let (mut decoder, mut shown) = (Decoder::new(CIF.0, CIF.1), Vec::new());
        for bytes in &packets {
            decoder.take(&Packet::parse(bytes).expect("the encoder made it"), &mut shown);
        }
        shown.extend(decoder.finish());
        let hash = shown.iter().fold(0, |hash, shown| mix(hash, &shown.picture.samples[0]));
        Work { units: shown.len() as u64, hash }
    })
}
