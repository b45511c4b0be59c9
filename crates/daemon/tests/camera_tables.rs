//! What reports measured with their cameras, measured again here by `camera bench`: small, beside the published values.

use super::attempts::in_time;
use super::camera::{camera, tried};
use super::said;
use serde_json::Value;

#[test]
fn a_104_frame_rates_by_size_stand_beside_the_published_ones() {
    tried(|| {
        let rows = bench("camera/sizes", "1.5");
        assert_eq!(rows.len(), 6);
        for row in rows {
            // What Table 7 has, and its model within the tolerance.
            let published: f64 = row["published"].as_str().unwrap().parse().unwrap();
            assert!((row["model"].as_f64().unwrap() / published - 1.0).abs() < 0.03, "{row}");
            let (here, free) = (row["value"].as_f64().unwrap(), row["free"].as_f64().unwrap());
            assert!((0.0..=45.0).contains(&here), "30 frames/s in 0.3 s: {row}");
            let large = row["bench"].as_str().unwrap().contains("640x480");
            // A megabyte for each frame is much for a busy machine.
            in_time!(large || (here > 20.0 && free > here && row["limit"] == "source"), "{row}");
        }
    });
}

#[test]
fn a_105_all_cameras_at_one_workstation_share_its_processor() {
    tried(|| {
        let rows = bench("camera/together", "2");
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row["published"], "74");
            // By its own CPU time, so that other programs do not count.
            let core = row["mbit_of_a_core"].as_f64().unwrap();
            assert!(core < 75.0, "33.2 ms a picture: {row}");
            in_time!(core > 60.0, "{row}");
            let limits = row["limits"].as_array().unwrap();
            in_time!(limits.iter().all(|limit| limit == "receiver"), "{row}");
        }
    });
}

#[test]
fn n_71_raw_video_gains_by_large_packets_what_compression_costs() {
    tried(|| {
        let rows = bench("camera/packets", "3");
        let row = |name: &str| rows.iter().find(|row| row["bench"] == name).unwrap();
        let (compressed, large) =
            (row("camera/packets/compressed/0"), row("camera/packets/raw/8192"));
        let small = row("camera/packets/raw/512");
        assert_eq!(
            (&compressed["published"], &large["published"]),
            (&"8".into(), &"20..22".into())
        );
        let of = |row: &Value, key: &str| row[key].as_f64().unwrap();
        let bits = |row: &Value| of(row, "mbit") / of(row, "value");
        in_time!(bits(compressed) < bits(large) / 2.0, "{compressed} {large}");
        // By the camera's CPU time for a frame, so that other programs count less.
        let costs = |row: &Value| of(row, "cpu") > 1.5 * of(large, "cpu");
        in_time!(costs(compressed) && costs(small), "{compressed} {small} {large}");
    });
}

/// The rows of a benchmark.
fn bench(name: &str, seconds: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let output = camera(folder.path(), &["bench", name, "--seconds", seconds, "--json"]);
    said(&output, 0).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
