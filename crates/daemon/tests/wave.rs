//! Wave Video, as users run it: in the model, as a reproduction, with live routers.

use crate::attempts::{attempt, in_time};
use crate::{PROGRAM, has, said};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn lastmeterd(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

fn lines(output: &Output, status: i32) -> Vec<Value> {
    said(output, status).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The compiler whose output is in the repository; others may arrange instructions differently.
const CLANG: &str = "clang version 14.0.6";

#[test]
fn the_bundled_module_is_what_its_source_builds() {
    let version = Command::new("clang").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !version.is_ok_and(|text| text.contains(CLANG)) || !has("wasm-ld") {
        println!("SKIP: no {CLANG}");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("built.wasm");
    let source = root.join("plugins/wave-scaler/plugin.c");
    let (source, out_name) = (source.to_str().unwrap(), out.to_str().unwrap());
    said(&lastmeterd(&["plugin", "build", source, "--kind", "packet", "--out", out_name]), 0);
    let bundled = std::fs::read(root.join("examples/plugins/wave-scaler.wasm")).unwrap();
    assert!(std::fs::read(out).unwrap() == bundled, "build it again, into examples/plugins");
}

#[test]
fn the_network_runs_in_the_model_with_the_plugin() {
    let short = ["--set", "duration=7 s", "--no-what-ifs", "--json", "--quiet"];
    let told = said(&lastmeterd(&[&["model", "--", "run", "wave-video"], &short[..]].concat()), 0);
    let ledger: Value = serde_json::from_str(&told).unwrap();
    let count = |element: &str, name: &str| {
        let counters = ledger["counters"].as_array().unwrap().iter();
        let mut found = counters.filter(|one| one["element"] == element);
        let value = found.find_map(|one| {
            one["counts"][name]
                .as_u64()
                .or((one["name"] == name).then(|| one["value"].as_u64()).flatten())
        });
        value.unwrap_or_else(|| panic!("{element}: {name}"))
    };
    let (all, exact) = ("d1 shows undisturbed", "exact");
    assert!(count(all, "frames") > 80 && count(all, exact) == count(all, "frames"));
    for (host, stream) in [("d2", "beside-one"), ("d3", "beside-two")] {
        let name = format!("{host} shows {stream}");
        assert!(count(&name, exact) < count(&name, "frames"), "it was scaled");
        assert_eq!((count(&name, "broken"), count(&name, "nothing")), (0, 0), "{name}");
    }
    assert!(count("scale3", "denied") > count("scale2", "denied"));
}

/// Drops of plain queueing keep step with the frames, so that some bands are hit more often than others.
#[rustfmt::skip]
const SHORT: &[(&str, &str)] = &[
    ("D-105", "plain queueing forwards all sub-bands with about the same probability in a burst"),
];

#[test]
fn published_values_are_reproduced_but_one() {
    let rows = lines(&lastmeterd(&["model", "--", "repro", "wave-video", "--json"]), 1);
    let rows: Vec<&Value> = rows.iter().filter(|row| row["id"].is_string()).collect();
    assert_eq!(rows.len(), 17);
    let short = rows.iter().filter(|row| row["pass"] != true);
    let short = short.filter_map(|row| Some((row["id"].as_str()?, row["item"].as_str()?)));
    assert_eq!(short.collect::<Vec<_>>(), SHORT);
}

/// A burst that begins after 2 s: by then the plugin is there, unless the machine is very busy.
const BURST: [&str; 8] = [
    "--set",
    "duration=5 s",
    "--set",
    "traffic.cross-2.start=2 s",
    "--set",
    "traffic.cross-3a.start=2 s",
    "--set",
    "traffic.cross-3b.start=2.002 s",
];

/// D-95 to D-105, with one burst: plain queueing, then with the plugins, in real time.
#[test]
fn live_routers_do_what_the_model_says() {
    let root = Command::new("ip").args(["netns", "add", "lm-wave-probe"]).output();
    if !root.is_ok_and(|output| output.status.success()) || !has("ethtool") {
        println!("SKIP: no right to make network namespaces, or no `ip`");
        return;
    }
    said(&Command::new("ip").args(["netns", "del", "lm-wave-probe"]).output().unwrap(), 0);
    attempt(one_burst).settle();
}

fn one_burst() {
    let mut command = Command::new(PROGRAM);
    command.args(["--json", "wave", "live"]).args(BURST);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let own = format!("lm-wave-{}-", child.id());
    let output = child.wait_with_output().unwrap();
    let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&left.stdout).contains(&own), "namespaces are left");
    let status = output.status.code().unwrap();
    let lines = lines(&output, status);
    let receivers: Vec<&Value> = lines.iter().filter(|line| line["receiver"].is_string()).collect();
    assert_eq!(receivers.len(), 3, "{}", said(&output, status));
    let way = lines.iter().find(|line| line["download"].is_number()).unwrap();
    let times = ["noticed", "fetched", "loaded", "passed"].map(|name| way[name].as_f64().unwrap());
    assert!(times.is_sorted() && times[0] > 0.0 && way["download"].as_f64() > Some(0.0), "{way:#}");
    for receiver in receivers {
        let number = |pointer: &str| receiver.pointer(pointer).unwrap().as_f64().unwrap();
        let apart = |way: &str| {
            (number(&format!("/psnr/{way}/live")) - number(&format!("/psnr/{way}/model"))).abs()
        };
        in_time!(number("/frames") > 50.0 && number("/broken/scaled") == 0.0, "{receiver:#}");
        in_time!(apart("scaled") <= 0.5, "{receiver:#}");
        // In so short a burst, a frame more before the queue of plain queueing is full is worth a dB.
        in_time!(apart("plain") <= 2.0, "{receiver:#}");
        if receiver["cross"] != 0 {
            in_time!(number("/gain") >= 2.0, "{receiver:#}");
            let settled = receiver["settled"].as_array().unwrap();
            assert_eq!(settled.len(), 1, "{receiver:#}");
            in_time!(settled[0].as_f64() < Some(0.05), "{receiver:#}");
        }
    }
}
