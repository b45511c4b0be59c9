//! Guests of Debian's kernel under QEMU. Without `make guest` each test prints `SKIP` and why.

use lastmeter_guest::kit::{Error, Guest, Kit, Options};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A busy machine takes several times what a quiet one does.
const LIMIT: Duration = Duration::from_secs(90);

fn kit() -> Option<Kit> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest");
    Kit::at(&folder).map_err(|error| println!("SKIP: {error}")).ok()
}

fn runs(process: u32) -> bool {
    let path = PathBuf::from(format!("/proc/{process}/cmdline"));
    std::fs::read(path).is_ok_and(|line| line.windows(4).any(|word| word == b"qemu"))
}

#[test]
fn a_command_runs_and_its_status_output_and_samples_come_back() {
    let Some(kit) = kit() else { return };
    let command = "echo hello from $(uname -s); cat /given; sleep 1; exit 3".to_owned();
    let options = Options {
        command,
        files: vec![(
            "given".to_owned(),
            b"a file
"
            .to_vec(),
        )],
        interval: Some(Duration::from_millis(200)),
        limit: LIMIT,
        ..Options::default()
    };
    let ended = Guest::start(&kit, &options).unwrap().wait().unwrap();
    println!("{:.1} s from start to end", ended.lasted.as_secs_f64());
    assert_eq!(
        (ended.status, ended.output.as_str()),
        (3, "hello from Linux\na file\n"),
        "{}",
        ended.console
    );
    let samples = &ended.report.samples;
    assert_eq!(ended.report.odd, 0);
    assert!(samples.len() >= 3 && samples.iter().any(|sample| sample.when == "during"));
    let counted = |at: usize| samples[at].number("stat", "cpu ", 3).unwrap();
    let idle = counted(samples.len() - 1) - counted(0);
    // The command slept for a second; how much of it the agent had depends on the host.
    assert!((1..3000).contains(&idle), "{idle}");
    assert!(samples[samples.len() - 1].uptime - samples[0].uptime >= 1.0);
}

#[test]
fn a_guest_that_hangs_is_ended_at_its_limit() {
    let Some(kit) = kit() else { return };
    let limit = Duration::from_secs(3);
    let options = Options { command: "sleep 1000".to_owned(), limit, ..Options::default() };
    let began = Instant::now();
    let guest = Guest::start(&kit, &options).unwrap();
    let process = guest.process();
    let error = guest.wait().unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    assert!(began.elapsed() >= limit && !runs(process));
}

#[test]
fn a_guest_ends_with_its_handle_and_with_its_program() {
    let Some(kit) = kit() else { return };
    let options = Options { command: "sleep 1000".to_owned(), limit: LIMIT, ..Options::default() };
    let guest = Guest::start(&kit, &options).unwrap();
    let process = guest.process();
    assert!(runs(process));
    drop(guest);
    assert!(!runs(process));
    // A thread that ends takes the guest with it, as a program that is killed does.
    let process = std::thread::spawn(move || {
        let guest = Guest::start(&kit, &options).unwrap();
        let process = guest.process();
        std::mem::forget(guest);
        process
    });
    let process = process.join().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while runs(process) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!runs(process));
}
