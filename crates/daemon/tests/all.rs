//! The tests of the program, as users run it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say what they skip")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;
mod audio;
mod camera;
mod camera_tables;
mod camera_viewers;
mod certificates;
mod detour;
mod disk;
mod disk_costs;
mod disk_guest;
mod disk_model;
mod display;
mod display_elsewhere;
mod display_viewers;
mod docs;
mod fetch;
mod flows;
#[path = "../../cli/tests/follow.rs"]
mod follow;
mod frr;
mod in_band;
mod in_driver;
mod initiator;
mod labels;
mod model;
mod overload;
mod ports;
mod processors;
mod router;
mod rude;
mod soak;
mod transfer;
mod twin;
mod useful;
mod watch;
mod wave;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_lastmeterd");

/// Runs `lastmeterd plugin` in a folder.
fn plugin(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("plugin").args(arguments).current_dir(folder).output().unwrap()
}

/// Both outputs of a command that ended with this status.
fn said(output: &Output, status: i32) -> String {
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    said.into_owned()
}

/// Whether a program can be run; if not, the test says that it skips.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("SKIP: no {program}");
    }
    found
}

/// The lines of `lastmeterd router bench NAME --quick`; none, said aloud, without the rights or programs that it needs.
fn router_bench(name: &str) -> Option<Vec<serde_json::Value>> {
    let mut command = Command::new(PROGRAM);
    command.args(["router", "bench", name, "--quick", "--json"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let lacks = ["not permitted", "is it installed", "failed to set pid"];
    if !output.status.success() && lacks.iter().any(|words| said.contains(words)) {
        println!("SKIP: {said}");
        return None;
    }
    if said.contains("others kept the router from its core") {
        println!("UNDECIDED: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}
