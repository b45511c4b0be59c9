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

/// A room where nothing happens costs its watcher little, and what happens is seen at once.
#[test]
fn an_idle_room_costs_a_twentieth_and_wakes_within_a_frame_time() {
    let rows = bench("camera/idle", "2");
    // Bytes do not depend on how busy the machine is; that all come does.
    tried(|| {
        let share = rows[0]["value"].as_f64().unwrap();
        in_time!(share <= 0.05, "{}", rows[0]);
    });
    tried(|| {
        let rows = bench("camera/wake", "2");
        let median = rows[0]["value"].as_f64().unwrap();
        in_time!(median <= 1.0 / 30.0, "{}", rows[0]);
    });
}

/// A receiver that loses half of its core: both loops in one chart, of which only the open one loses frames.
#[test]
fn a_slowed_receiver_gets_what_it_can_take_and_loses_nothing_in_the_closed_loop() {
    tried(|| {
        let folder = tempfile::tempdir().unwrap();
        let line =
            ["bench", "camera/closed-loop", "--seconds", "6", "--chart", "loops.html", "--json"];
        let told = said(&camera(folder.path(), &line), 0);
        let Some(row) = told.lines().find_map(|it| serde_json::from_str::<Value>(it).ok()) else {
            println!("SKIP: {told} (root and control groups)");
            return;
        };
        let of = |name: &str| row[name].as_f64().unwrap();
        let chart = std::fs::read_to_string(folder.path().join("loops.html")).unwrap();
        for curve in ["closed loop: frames that came", "closed loop: frames lost"] {
            assert!(chart.contains(curve) && chart.contains(&curve.replace("closed", "open")));
        }
        // What half a core can do, at the CPU time that each of its frames took.
        in_time!((0.85..1.15).contains(&of("share_of_most")), "{row}");
        in_time!(of("lost") == 0.0 && of("peer_lost") > 0.5, "{row}");
    });
}

/// From the time in the picture until it is decoded, beside the same pictures by HTTP of `ffmpeg` and of GStreamer.
#[test]
fn a_picture_is_there_sooner_than_by_other_streamers() {
    tried(|| {
        let rows = bench("camera/glass-to-glass", "3");
        let row = &rows[0];
        let ours = row["value"].as_f64().unwrap();
        let peers = ["peer_value", "gstreamer", "relayed"].map(|name| (name, row[name].as_f64()));
        let known = peers.iter().filter_map(|(name, value)| Some((name, (*value)?)));
        assert!(ours > 0.0 && row["late"].as_f64() >= Some(ours), "{row}");
        for (name, value) in known {
            in_time!(ours < value, "{name}: {row}");
        }
    });
}

/// The rows of a benchmark.
fn bench(name: &str, seconds: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let output = camera(folder.path(), &["bench", name, "--seconds", seconds, "--json"]);
    said(&output, 0).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
