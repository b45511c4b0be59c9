//! What a disk costs beside the model of both hosts (N-33), over links beside the model's (N-80), and what it adds to
//! a command that its device is elsewhere (N-04).
//!
//! Tolerances, of figures of half a second on whatever else the machine does: what the model's constants are from within
//! a factor of two; CPU time that it predicts, too, of long commands of four; rates over a link within a fifth. Rates and
//! times without a link are told, not judged: on two cores they are what client, disk and others leave one another.

use super::attempts::in_time;
use super::camera::tried;
use super::{PROGRAM, said};
use serde_json::Value;
use std::process::Command;

fn lines(name: &str) -> Vec<Value> {
    let mut bench = Command::new(PROGRAM);
    bench.args(["disk", "bench", name, "--quick", "--json"]);
    let told = said(&bench.output().unwrap(), 0);
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["bench"].as_str().unwrap()).collect()
}

/// Whether the model's constants are from this very figure.
fn model_is_from(line: &Value) -> bool {
    line["model"]["fitted"] == true
}

#[test]
fn n_33_rate_time_and_processor_of_each_command_stand_beside_the_model() {
    tried(|| {
        let lines = lines("disk/matrix");
        let wanted = ["nbd", "iscsi"].iter().flat_map(|protocol| {
            [1, 4, 32].into_iter().flat_map(move |depth| {
                ["4k", "64k"].into_iter().flat_map(move |size| {
                    ["read", "write"]
                        .map(|what| format!("disk/matrix-{protocol}-{what}-{size}@{depth}"))
                })
            })
        });
        assert_eq!(names(&lines), wanted.collect::<Vec<_>>());
        let fitted = lines.iter().filter(|line| model_is_from(line)).count();
        assert_eq!(fitted, 10, "one at a time, and reads of 4 KiB 32 at a time");
        for line in &lines {
            let model = &line["model"];
            let pairs = [
                ("rate", number(&line["value"]), number(&model["rate"])),
                ("time", number(&line["latency"]["mean"]), number(&model["latency"]["mean"])),
                (
                    "CPU",
                    number(&line["cpu_per_io"]["server"]),
                    number(&model["cpu_per_io"]["server"]),
                ),
            ];
            assert!(number(&line["cpu_per_io"]["client"]) > 0.0, "{line}");
            let name = line["bench"].as_str().unwrap();
            let most = if name.contains("64k") && !name.ends_with("@1") { 4.0 } else { 2.0 };
            for (what, here, model) in pairs {
                assert!(here > 0.0 && model > 0.0, "{line}");
                let off = (here / model).max(model / here);
                // Single short commands cost a sleeping processor its waking, which the model takes off those that come
                // together: how much, an idle machine does not tell.
                let long = name.contains("64k");
                if model_is_from(line) || what == "CPU" && long {
                    in_time!(off < most, "{name}: {what}: {here}, the model {model}");
                } else {
                    println!("{name}: {what}: {here}, the model {model}");
                }
            }
        }
    });
}

/// Whether a file system can be mounted here on a file of nbdfuse; else why not.
fn can_mount() -> Result<(), String> {
    if !std::path::Path::new("/dev/fuse").exists() {
        return Err("no /dev/fuse".to_owned());
    }
    let programs = ["unshare --version", "nbdfuse --version", "mke2fs -V", "mount --version"];
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    for program in programs {
        let (name, option) = program.split_once(' ').unwrap();
        let ran = Command::new(name).arg(option).env("PATH", &path).output();
        ran.map_err(|error| format!("{name}: {error}"))?;
    }
    let root = Command::new("unshare").args(["--mount", "true"]).output().unwrap();
    if root.status.success() { Ok(()) } else { Err("no right to mount".to_owned()) }
}

/// Files on ext4 on the disk: what was written is read and the file system is whole, which the work itself checks; the
/// disk was asked for all of it, once in either direction; and figures of host, disk and model are told.
#[test]
fn n_33_a_file_systems_work_stands_beside_a_local_disk_and_the_model() {
    if let Err(why) = can_mount() {
        println!("SKIP: {why}");
        return;
    }
    tried(|| {
        let lines = lines("disk/files");
        assert_eq!(names(&lines), ["make", "read", "remove"].map(|it| format!("disk/files-{it}")));
        for line in &lines {
            let [here, model, local] =
                ["value", "peer_value", "local"].map(|key| number(&line[key]));
            assert!(here > 0.0 && model > 0.0 && local > 0.0, "{line}");
            // The model has what a local disk takes, and the disk's requests besides.
            assert!(model < local, "{line}");
            assert!(
                number(&line["requests"]) > 0.0
                    && number(&line["disk_cpu_per_request"]["here"]) > 0.0
            );
            println!("{line}");
        }
        const FILES: f64 = 100.0 * 100_000.0;
        for line in &lines[..2] {
            let asked = number(&line["bytes"]);
            assert!((FILES..1.6 * FILES).contains(&asked), "{line}");
            let cpu = &line["disk_cpu_per_request"];
            let (here, model) = (number(&cpu["here"]), number(&cpu["model"]));
            in_time!((here / model).max(model / here) < 4.0, "{here}, the model {model}");
        }
    });
}

#[test]
fn n_80_more_at_a_time_bring_over_a_network_what_the_model_says() {
    tried(|| {
        let lines = lines("disk/pipelined");
        let wanted = ["read", "write"].into_iter().flat_map(|what| {
            ["lan", "wan"].into_iter().flat_map(move |network| {
                [1, 4, 16].map(|depth| format!("disk/pipelined-{network}-{what}@{depth}"))
            })
        });
        assert_eq!(names(&lines), wanted.collect::<Vec<_>>());
        for line in &lines {
            let wide = line["bench"].as_str().unwrap().contains("wan");
            in_time!(
                line["kept_up"] == true || !wide,
                "the machine was later than the link: {line}"
            );
            // A LAN takes a machine that has nothing else to do.
            if line["kept_up"] != true {
                println!("UNDECIDED: the machine was later than the link: {}", line["bench"]);
                continue;
            }
            let (here, model) = (number(&line["value"]), number(&line["peer_value"]));
            in_time!((here / model - 1.0).abs() < 0.2, "{}: {here}, {model}", line["bench"]);
        }
        // One more in flight, one more in each round trip, until the LAN is full.
        for each in lines.chunks(3).filter(|each| each.iter().all(|one| one["kept_up"] == true)) {
            let gain = number(&each[1]["value"]) / number(&each[0]["value"]);
            in_time!((3.0..=4.2).contains(&gain), "4 beside 1: {gain}");
        }
    });
}

#[test]
fn n_04_a_command_takes_longer_by_its_way_as_the_model_says() {
    tried(|| {
        let lines = lines("disk/separation");
        let all = ["disk-tcp", "disk-udp", "display-tcp", "display-udp", "camera-udp"];
        assert_eq!(names(&lines), all.map(|name| format!("disk/separation-{name}")));
        for line in &lines {
            let (here, model) = (number(&line["value"]), number(&line["peer_value"]));
            assert!(here > 0.0 && model > 0.0, "{line}");
            // A command takes no less than the device does, and a call in the same host nearly nothing.
            if line["device"].is_number() {
                assert!(model > number(&line["device"]), "{line}");
                let stages = line["ledgers"]["here"]["paths"][0]["stages"].as_array().unwrap();
                let names: Vec<&str> =
                    stages.iter().map(|stage| stage["name"].as_str().unwrap()).collect();
                assert!(names.contains(&"receive") && names.contains(&"policy"), "{names:?}");
                in_time!(here > number(&line["call"]), "{line}");
            }
            let stages = line["ledgers"]["model"]["paths"].as_array().unwrap();
            assert!(stages.len() >= 2, "there and back");
            in_time!((here / model).max(model / here) < 2.0, "{}: {here}, {model}", line["bench"]);
        }
    });
}
