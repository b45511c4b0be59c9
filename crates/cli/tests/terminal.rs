//! What terminals, pipes and interrupts get: rows as they come, lines that fit, colours and progress only where they
//! can be shown and are wanted.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lastmeter");
const RATES: &str = "traffic.customers.poisson.rate=1 Gbit/s,2 Gbit/s";

fn lastmeter(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// What a terminal of this kind and width receives of a command; `None` where there is no program that makes one.
fn on_terminal(term: &str, columns: u32, arguments: &[&str]) -> Option<String> {
    let quoted: Vec<String> = arguments.iter().map(|one| format!("'{one}'")).collect();
    let line = format!("stty cols {columns} rows 40; exec {PROGRAM} {}", quoted.join(" "));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", term);
    script.env_remove("NO_COLOR").env_remove("COLUMNS");
    let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut script) = script else {
        println!("SKIP: `script` of util-linux is not installed");
        return None;
    };
    // The end of its input would be typed at the terminal, too.
    let input = script.stdin.take();
    let mut shown = String::new();
    script.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    drop(input);
    assert_eq!(script.wait().unwrap().code(), Some(0), "{arguments:?}: {shown}");
    Some(shown)
}

/// Commands that print tables, after `run` has made the folder `one`.
const TABLES: &[&[&str]] = &[
    &["run", "first-path", "--set", "duration=1 s"],
    &["run", "first-path", "--quick", "--layers"],
    &["compare", "one", "one"],
    &["sweep", "mm1", "--quick", "--seeds", "2", "--over", RATES],
    &["repro", "cim-equations"],
];

/// A folder with the results of a run.
fn space() -> tempfile::TempDir {
    let space = tempfile::tempdir().unwrap();
    let run = ["run", "first-path", "--quick", "--out", "one"];
    let made = lastmeter(space.path(), &run).output().unwrap();
    assert!(made.status.success(), "{}", words(&made));
    space
}

/// The program alone in a folder, without `lastmeterd` beside it.
fn alone() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("lastmeter");
    std::fs::hard_link(PROGRAM, &program).unwrap();
    (folder, program)
}

/// `lastmeter disk` and the like become `lastmeterd`: what ends them reaches it.
#[test]
fn a_signal_reaches_the_program_that_runs_devices() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, program) = alone();
    let other = folder.path().join("lastmeterd");
    let text = "#!/bin/sh\ntrap 'exit 7' TERM\necho \"$@\"\nwhile :; do sleep 0.05; done\n";
    std::fs::write(&other, text).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    let command = command.args(["disk", "run", "disk.toml", "--token"]).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "disk run disk.toml --token\n");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn rows_of_repro_come_as_they_are_done_and_an_interrupt_keeps_them() {
    let (folder, program) = alone();
    let mut child = Command::new(program)
        .args(["repro", "--threads", "1"])
        .env("PATH", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let is_sum = |line: &str| line.contains("rows within tolerance");
    // Into a pipe, and long before the end.
    let mut seen: Vec<String> = lines.by_ref().take_while(|line| !is_sum(line)).collect();
    assert!(child.try_wait().unwrap().is_none(), "all came at the end: {seen:?}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    seen.extend(lines);
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{told}");
    assert!(told.contains("Stopped: this is of the runs that were done."), "{told}");
    let experiments = seen.iter().filter(|line| is_sum(line)).count();
    assert!(experiments < 40, "it went on to the end");
    let summaries = seen.iter().filter(|line| line.contains("predicted numbers")).count();
    assert!(summaries > 0, "no summary of what is done: {seen:?}");
}

#[test]
fn below_60_columns_figures_are_below_names_and_lines_fit() {
    let space = space();
    for arguments in TABLES {
        let output = lastmeter(space.path(), arguments).env("COLUMNS", "50").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.lines().count() > 8, "{arguments:?}: {text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 50, "{arguments:?}: {line}");
        }
    }
    // Nothing is lost: a line that is broken still has all its words.
    let compared = lastmeter(space.path(), TABLES[2]).env("COLUMNS", "50").output().unwrap();
    let text = words(&compared);
    assert!(
        text.contains("\n  all paths: goodput\n    A ") && text.contains("change same"),
        "{text}"
    );
    let swept = words(&lastmeter(space.path(), TABLES[3]).env("COLUMNS", "50").output().unwrap());
    assert!(swept.contains("\n  runs 2, goodput ") && swept.contains("p99 "), "{swept}");
}

#[test]
fn a_dumb_terminal_gets_neither_colours_nor_progress() {
    let space = space();
    for arguments in TABLES {
        let one = space.path().join("one").display().to_string();
        let arguments: Vec<&str> =
            arguments.iter().map(|word| if *word == "one" { one.as_str() } else { word }).collect();
        let Some(shown) = on_terminal("dumb", 90, &arguments) else { return };
        let odd = shown.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
        assert_eq!(odd, None, "{arguments:?}: {shown:?}");
        // A carriage return is only the terminal's own, at the end of a line.
        let moved = shown.split("\r\n").find(|line| line.contains('\r'));
        assert_eq!(moved, None, "{arguments:?}");
    }
    let colourful = on_terminal("xterm", 90, TABLES[0]).unwrap();
    assert!(colourful.contains("\u{1b}[1m"), "other terminals get colours: {colourful:?}");
    let narrow = on_terminal("dumb", 50, TABLES[0]).unwrap();
    assert!(narrow.lines().all(|line| line.trim_end().chars().count() <= 50), "{narrow}");
}

#[test]
fn quiet_leaves_results_and_errors() {
    let space = space();
    let long = "duration=30 s";
    for arguments in [
        &["repro", "tcp-recovery", "--quiet"][..],
        &["run", "first-path", "--set", long, "--no-what-ifs", "--quiet"],
        &["sweep", "mm1", "--quick", "--seeds", "2", "--over", RATES, "--quiet"],
    ] {
        let Some(shown) = on_terminal("xterm", 90, arguments) else { return };
        // Progress moves the cursor; colours do not.
        let moves = |part: &str| {
            !part.trim_start_matches(|c: char| c == ';' || c.is_ascii_digit()).starts_with('m')
        };
        let odd = shown.split("\u{1b}[").skip(1).find(|part| moves(part));
        assert_eq!(odd, None, "{arguments:?}: {shown:?}");
    }
    let out = ["run", "mm1", "--quick", "--no-what-ifs", "--out", "two"];
    let noted = lastmeter(space.path(), &out).output().unwrap();
    assert!(!noted.stderr.is_empty(), "without it there is a note");
    let quiet = lastmeter(space.path(), &[&out[..], &["--quiet"]].concat()).output().unwrap();
    assert_eq!((quiet.status.code(), quiet.stderr.len()), (Some(0), 0), "{}", words(&quiet));
    let wrong = lastmeter(space.path(), &["run", "mm2", "--quiet"]).output().unwrap();
    assert!(words(&wrong).contains("did you mean `mm1`"), "{}", words(&wrong));
}
