//! What is measured of a stream, by hand.

use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_engine::{ElementReport, Series};
use lastmeter_wave::measure::{Shot, arrival_rate, histogram, psnr_in_bursts, settled, shots};
use lastmeter_wave::sequence::Sequence;
use lastmeter_wave::stream::Options;

const BURST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));

fn video() -> Options {
    Options::new(Sequence::Panning, 4)
}

/// A packet of 1000 bytes every `gap` ms.
fn packets(from: u64, to: u64, gap: u64) -> impl Iterator<Item = (Time, Bytes)> {
    let times = (from..to).step_by(gap as usize);
    times.map(|ms| (Time::START + Duration::from_ms(ms), Bytes(1000)))
}

#[test]
fn a_stream_has_settled_when_the_rest_of_the_burst_fits() {
    // 2 Mbit/s, then 1 Mbit/s from 1.5 s on, with 1 Mbit/s granted; after the burst it may be what it likes.
    let granted = Rate::from_mbit(1);
    let calm: Vec<_> = packets(0, 1500, 4).chain(packets(1500, 3000, 8)).collect();
    let loud: Vec<_> = calm.iter().copied().chain(packets(3000, 4000, 1)).collect();
    let after = settled(&loud, BURST, granted);
    // What was too much in the last moments before 1.5 s may wait.
    assert!(Duration::from_ms(430) < after && after <= Duration::from_ms(500), "{after:?}");
    assert_eq!(settled(&calm[375..], BURST, granted), Duration::ZERO);
    let never: Vec<_> = packets(0, 3000, 4).collect();
    assert!(settled(&never, BURST, granted) > Duration::from_ms(1800));
    assert_eq!(settled(&[], BURST, granted), Duration::ZERO);
}

#[test]
fn rates_and_means_are_those_of_their_spans() {
    let arrived: Vec<_> = packets(0, 3000, 8).collect();
    let rate = arrival_rate(&arrived, BURST.0, BURST.1);
    assert!((rate - 1e6).abs() < 1e4, "{rate}");
    let shot = |frame: u32, psnr| Shot { frame, psnr, bands: 0 };
    // Frames 12 to 35 begin in it.
    let shown = [shot(11, 99.0), shot(12, 20.0), shot(35, 30.0), shot(36, 99.0)];
    assert_eq!(psnr_in_bursts(&video(), &[BURST], &shown), 25.0);
    assert_eq!(psnr_in_bursts(&video(), &[BURST], &[]), 0.0);
}

#[test]
fn d_105_windows_count_the_frames_that_had_a_band() {
    let shot = |frame| Shot { frame, psnr: 0.0, bands: 1 | u64::from(frame & 1) << 32 };
    let counts = histogram(&(0..17).map(shot).collect::<Vec<_>>());
    assert_eq!(counts.len(), 2, "the last window is not full");
    assert_eq!((counts[0][0], counts[0][1], counts[0][32]), (8, 0, 4));
}

#[test]
fn frames_of_a_model_are_read_from_its_series_unless_these_are_too_coarse() {
    let report = |frames: u32| {
        let (mut psnr, mut bands) = (Series::whole_run(), Series::whole_run());
        for frame in (0..frames).filter(|frame| frame % 7 != 3) {
            psnr.record(Time::START + video().begins(frame), 1000 * u64::from(frame));
            bands.record(Time::START + video().begins(frame), u64::from(frame));
        }
        let series = vec![("psnr", "mdB", psnr), ("bands", "set of bands", bands)];
        let (counters, levels, transfers) = (Vec::new(), Vec::new(), Vec::new());
        ElementReport { name: String::new(), held: 0, counters, levels, series, transfers }
    };
    let shown = shots(&video(), &report(240)).unwrap();
    let wanted = (0..240).filter(|frame| frame % 7 != 3);
    let wanted =
        wanted.map(|frame| Shot { frame, psnr: f64::from(frame), bands: u64::from(frame) });
    assert_eq!(shown, wanted.collect::<Vec<_>>());
    assert_eq!(shots(&video(), &report(4000)), None);
}
