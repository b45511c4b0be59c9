//! `lastmeter sweep` as a user runs it: interrupted, resumed, refused.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const RATES: &str = "traffic.customers.poisson.rate=1 Gbit/s..7 Gbit/s / 60";

fn lastmeter(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastmeter"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    lastmeter(arguments).output().unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn an_interrupted_sweep_keeps_finished_runs_and_can_be_resumed() {
    let (cut, whole) = (folder("sweep-cut"), folder("sweep-whole"));
    let sweep = |out: &PathBuf| {
        let out = out.to_str().unwrap();
        lastmeter(&["sweep", "mm1", "--set", "duration=40 ms", "--over", RATES, "--out", out])
    };
    let mut child = sweep(&cut).stdout(Stdio::null()).spawn().unwrap();
    // Runs begin once the plan is written; some finish within the sleep below.
    let began = Instant::now();
    while !cut.join("plan.json").is_file() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(150));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    let result = |folder: &PathBuf| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(folder.join("sweep.json")).unwrap()).unwrap()
    };
    let before = result(&cut);
    match before["complete"].as_bool().unwrap() {
        // A fast machine finished before the signal arrived.
        true => assert_eq!(status.code(), Some(0)),
        false => assert_eq!(status.code(), Some(1)),
    }
    let on = run(&["sweep", "--resume", "--out", cut.to_str().unwrap()]);
    assert_eq!(on.status.code(), Some(0), "{}", String::from_utf8_lossy(&on.stderr));
    assert!(sweep(&whole).output().unwrap().status.success());
    assert_eq!(result(&cut), result(&whole));
    assert_eq!(result(&cut)["runs"].as_u64(), Some(60));
}

#[test]
fn a_folder_never_mixes_two_sweeps() {
    let out = folder("sweep-other");
    let out = out.to_str().unwrap();
    let sweep = |rate: &str, resume: &[&str]| {
        let over = format!("traffic.customers.poisson.rate={rate}");
        let mut arguments =
            vec!["sweep", "mm1", "--set", "duration=1 ms", "--over", &over, "--out", out];
        arguments.extend(resume);
        run(&arguments)
    };
    assert_eq!(sweep("1 Gbit/s", &[]).status.code(), Some(0));
    let again = sweep("1 Gbit/s", &[]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("continue with --resume"));
    assert_eq!(sweep("1 Gbit/s", &["--resume"]).status.code(), Some(0));
    let other = sweep("2 Gbit/s", &["--resume"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("holds another sweep"));
}

#[test]
fn a_damaged_part_is_not_continued_with() {
    let out = folder("sweep-damaged");
    let (path, out) = (out.clone(), out.to_str().unwrap());
    let over = "traffic.customers.poisson.rate=1 Gbit/s,2 Gbit/s";
    let sweep = ["sweep", "mm1", "--set", "duration=1 ms", "--over", over, "--out", out];
    assert_eq!(run(&sweep).status.code(), Some(0));
    let resume = |status: i32, words: &str| {
        let on = run(&["sweep", "--resume", "--out", out]);
        let said = String::from_utf8_lossy(&on.stderr);
        assert_eq!(on.status.code(), Some(status), "{said}");
        assert!(said.contains(words), "{said}");
    };
    resume(0, "");
    let tables = ["paths", "runs"].map(|table| path.join(table).join("part-00000.parquet"));
    for table in &tables {
        let whole = std::fs::read(table).unwrap();
        // A bit of a value: a Parquet file with it is still read.
        let mut flipped = whole.clone();
        flipped[40] ^= 1;
        std::fs::write(table, flipped).unwrap();
        resume(2, "differs from its checksum in parts.sha256");
        std::fs::write(table, whole).unwrap();
    }
    for table in &tables {
        let foreign = table.with_file_name("part-00007.parquet");
        std::fs::copy(table, &foreign).unwrap();
        resume(2, "has no checksum");
        std::fs::remove_file(foreign).unwrap();
    }
    // As the message says: what is deleted is run again.
    let before = std::fs::read(path.join("sweep.json")).unwrap();
    for table in &tables {
        std::fs::remove_file(table).unwrap();
    }
    resume(0, "");
    assert_eq!(std::fs::read(path.join("sweep.json")).unwrap(), before);
}

#[test]
fn json_output_is_a_single_object() {
    let over = ["--over", "traffic.customers.poisson.rate=1 Gbit/s,2 Gbit/s"];
    let out = run(&[&["sweep", "mm1", "--seeds", "3", "--quick", "--json"], &over[..]].concat());
    assert_eq!(out.status.code(), Some(0));
    let result: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(result["schema"], "lastmeter.sweep/1");
    assert_eq!(result["points"].as_array().unwrap().len(), 2);
    let latency = &result["points"][0]["measures"]["latency"];
    assert!(latency["half_width"].as_f64().unwrap() > 0.0, "{latency}");
}
