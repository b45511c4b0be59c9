//! Pictures through encoder, losses and decoder.

use lastmeter_wave::decoder::Shown;
use lastmeter_wave::picture::{PSNR_MAX, QCIF};
use lastmeter_wave::sequence::{FRAMES_PER_SECOND, Sequence};
use lastmeter_wave::{Decoder, Encoder, Picture};
use lastmeter_wire::wave::{BANDS, BASE, Packet};
use proptest::prelude::*;

/// Headers of IPv4 and UDP.
const HEADERS: usize = 28;

fn show(packets: &[Vec<u8>], take: impl Fn(&Packet<'_>) -> bool) -> Vec<Shown> {
    let (mut decoder, mut shown) = (Decoder::new(QCIF.0, QCIF.1), Vec::new());
    for bytes in packets {
        let packet = Packet::parse(bytes).expect("the encoder made it");
        if take(&packet) {
            decoder.take(&packet, &mut shown);
        }
    }
    shown.extend(decoder.finish());
    shown
}

#[test]
fn d_100_rates_are_those_of_the_document() {
    for sequence in Sequence::ALL {
        let second = |second: u32| -> usize {
            let frames = (0..FRAMES_PER_SECOND as u32).map(|frame| {
                let picture = sequence.frame(second * 12 + frame, QCIF.0, QCIF.1);
                let packets = Encoder::default().encode(frame, &picture).expect("it has pixels");
                packets.iter().map(|packet| 8 * (packet.len() + HEADERS)).sum::<usize>()
            });
            frames.sum()
        };
        let rates: Vec<usize> = [0, 3, 6, 9].map(second).into();
        let mean = rates.iter().sum::<usize>() as f64 / rates.len() as f64;
        let wanted = sequence.rate().as_bits() as f64;
        assert!((mean / wanted - 1.0).abs() < 0.02, "{}: {rates:?}", sequence.name());
    }
}

#[test]
fn d_95_without_loss_a_frame_comes_back_exactly() {
    for sequence in Sequence::ALL {
        let picture = sequence.frame(5, QCIF.0, QCIF.1);
        let packets = Encoder::default().encode(5, &picture).expect("it has pixels");
        let mut priorities: Vec<u8> = packets
            .iter()
            .map(|bytes| Packet::parse(bytes).expect("the encoder made it").band.priority())
            .collect();
        assert!(priorities.is_sorted(), "the most important first");
        priorities.dedup();
        assert_eq!(priorities.len(), BANDS);
        assert!(packets.iter().all(|packet| packet.len() <= 1416));
        let last: Vec<bool> =
            packets.iter().map(|bytes| Packet::parse(bytes).expect("as above").last).collect();
        assert_eq!(last.iter().filter(|&&last| last).count(), 1);
        assert!(last.last() == Some(&true));
        let shown = show(&packets, |_| true);
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].whole, [true; BANDS]);
        assert!(*shown[0].picture == picture, "{}", sequence.name());
    }
}

#[test]
fn each_band_less_costs_quality_and_the_lowest_ones_are_a_picture() {
    let picture = Sequence::Panning.frame(3, QCIF.0, QCIF.1);
    let packets = Encoder::default().encode(3, &picture).expect("it has pixels");
    let mut before = PSNR_MAX;
    // Luma's bands, from the finest.
    for bands in [BANDS as u8 - 6, 26, 25, 24, 18, 6, BASE] {
        let shown = show(&packets, |packet| packet.band.priority() < bands);
        let psnr = shown[0].picture.psnr(&picture);
        assert!(psnr <= before, "{bands} bands: {psnr} dB after {before} dB");
        before = psnr;
    }
    assert!((14.0..30.0).contains(&before), "the lowest bands alone: {before} dB");
}

#[test]
fn what_is_quantised_is_smaller_and_nearly_the_same() {
    let picture = Sequence::TalkingHead.frame(3, QCIF.0, QCIF.1);
    let size = |packets: &[Vec<u8>]| packets.iter().map(Vec::len).sum::<usize>();
    let exact = Encoder::default().encode(3, &picture).expect("it has pixels");
    let mut encoder = Encoder::default();
    encoder.options.steps = [6; BANDS];
    let coarse = encoder.encode(3, &picture).expect("it has pixels");
    assert!(size(&coarse) * 2 < size(&exact), "{} and {}", size(&coarse), size(&exact));
    let psnr = show(&coarse, |_| true)[0].picture.psnr(&picture);
    assert!((35.0..50.0).contains(&psnr), "{psnr} dB");
}

#[test]
fn a_frame_that_is_lost_shows_the_one_before_it() {
    let frames: Vec<Picture> = (0..3).map(|n| Sequence::Panning.frame(n, 11, 9)).collect();
    let code = |n: usize| Encoder::default().encode(n as u32, &frames[n]).expect("it has pixels");
    let packets: Vec<Vec<u8>> = (0..3).flat_map(code).collect();
    let shown = show(&packets, |packet| packet.frame != 1);
    assert_eq!(shown.iter().map(|shown| shown.frame).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(*shown[1].picture == frames[0]);
    assert!(!shown[1].any());
    assert!(*shown[2].picture == frames[2]);
    // A packet of a frame that has been shown changes nothing.
    let (mut decoder, mut shown) = (Decoder::new(11, 9), Vec::new());
    for bytes in [&packets[0], packets.last().expect("there are some"), &packets[1]] {
        decoder.take(&Packet::parse(bytes).expect("the encoder made it"), &mut shown);
    }
    assert_eq!(decoder.refused, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_lost_or_changed_there_is_a_picture(
        losses in proptest::collection::vec(0u8..8, 100), changed in any::<[u16; 8]>(), twice: bool,
    ) {
        let picture = Sequence::Panning.frame(3, QCIF.0, QCIF.1);
        let mut packets = Encoder::default().encode(3, &picture).expect("it has pixels");
        for (packet, change) in packets.iter_mut().zip(changed) {
            let at = usize::from(change >> 4) % packet.len();
            packet[at] ^= (change & 15) as u8;
        }
        let (mut decoder, mut shown) = (Decoder::new(QCIF.0, QCIF.1), Vec::new());
        for (bytes, loss) in packets.iter().zip(losses.iter().cycle()) {
            for _ in 0..1 + usize::from(twice) {
                if let Ok(packet) = Packet::parse(bytes) && *loss > 0 {
                    decoder.take(&packet, &mut shown);
                }
            }
        }
        shown.extend(decoder.finish());
        prop_assert!(shown.len() <= 20_000);
        for shown in &shown {
            for (rows, band) in shown.rows.iter().zip(lastmeter_wire::wave::Band::all()) {
                prop_assert!(usize::from(*rows) <= band.size(QCIF.0, QCIF.1).1);
            }
        }
    }
}
