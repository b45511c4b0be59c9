//! Predictions compared with measurements: ten settings to which no constant was fitted.

use crate::calibrate::Calibration;
use crate::namespace::Hosts;
use crate::predict::predict;
use crate::statistics::Spread;
use crate::transfer::{Placement, Setting};
use lastmeter_base::{Bytes, Duration};
use lastmeter_linux::Result;
use serde::{Deserialize, Serialize};

/// Measured time of each run.
const DURATION: Duration = Duration::from_ms(300);
/// Runs of each setting; the median counts.
const RUNS: usize = 3;
/// How long a run is retried while other programs disturb it.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(4);

/// Predicted and measured goodput of one setting, bits per second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Validated {
    /// The setting.
    pub setting: Setting,
    /// From the constants.
    pub predicted: f64,
    /// Median of the runs and their spread.
    pub measured: Spread,
    /// Predicted over measured, minus one.
    pub error: f64,
    /// The prediction's own expected error.
    pub uncertainty: f64,
    /// The resource that the prediction names.
    pub limit: String,
    /// Load of other programs, in CPUs including ready threads, the worst of the runs: above 0.3 the
    /// measurement says as much about them as about this setting.
    pub others: f64,
}

/// Messages of 256 B to 1 MiB, MTU 576 to 65,535, buffers of 16 KiB to 4 MiB, GSO on and off, one and
/// two streams, the same and different cores.
pub fn settings() -> Vec<(&'static str, Setting)> {
    let plain = Setting { duration: DURATION, ..Setting::PLAIN };
    let buffered = |size, setting: &Setting| Setting {
        send_buffer: Some(size),
        receive_buffer: Some(size),
        ..setting.clone()
    };
    let of = |message| Setting { message, ..plain.clone() };
    let kib = Bytes::from_kib;
    let placement = Placement::SameCore;
    let packets = Setting { offload: false, ..plain.clone() };
    let large = Setting { mtu: 65_535, ..of(Bytes::from_mib(1)) };
    let shared = Setting { streams: 2, placement, ..of(kib(256)) };
    vec![
        ("64 KiB", plain.clone()),
        ("256 B", of(Bytes(256))),
        ("1 MiB, MTU 65535, buffers 4 MiB", buffered(Bytes::from_mib(4), &large)),
        ("64 KiB, no GSO", packets.clone()),
        ("16 KiB, MTU 576, no GSO", Setting { message: kib(16), mtu: 576, ..packets.clone() }),
        ("64 KiB, MTU 9000, no GSO, same core", Setting { mtu: 9000, placement, ..packets }),
        ("4 KiB, buffers 16 KiB", buffered(kib(16), &of(kib(4)))),
        ("64 KiB, two streams", Setting { streams: 2, ..plain.clone() }),
        ("1 KiB, same core", Setting { placement, ..of(kib(1)) }),
        ("256 KiB, two streams, same core, buffers 256 KiB", buffered(kib(256), &shared)),
    ]
}

/// Predicts and measures settings to be compared, in turn.
///
/// # Errors
/// As [`predict`] and [`Hosts::run`].
pub fn together(
    hosts: &mut Hosts,
    calibration: &Calibration,
    settings: &[Setting],
) -> Result<Vec<Validated>> {
    let predictions: Result<Vec<_>> = settings.iter().map(|s| predict(calibration, s)).collect();
    let predictions = predictions?;
    let runs = hosts.run_in_turn(settings, RUNS, PATIENCE)?;
    let all = settings.iter().zip(predictions).zip(runs);
    let validated = all.map(|((setting, prediction), runs)| {
        let measured = Spread::of(runs.iter().map(|m| m.goodput.windows.median).collect());
        let others = runs.iter().map(|m| m.others + m.crowd).fold(0.0, f64::max);
        Validated {
            setting: setting.clone(),
            predicted: prediction.goodput,
            measured,
            error: prediction.goodput / measured.median - 1.0,
            uncertainty: prediction.uncertainty,
            limit: prediction.uses.first().map_or_else(String::new, |u| u.resource.clone()),
            others,
        }
    });
    Ok(validated.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ten_settings_can_run() {
        let all = settings();
        assert_eq!(all.len(), 10);
        for (name, setting) in all {
            assert!(setting.check().is_ok(), "{name}");
        }
    }
}
