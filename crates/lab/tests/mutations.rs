//! Whatever the checks accept runs: values of every bundled experiment and of every example on a page are replaced
//! by extreme ones, and what is accepted runs for some thousand events.
//!
//! `LASTMETER_MUTATIONS=100000` tries as many, `LASTMETER_MUTATIONS=5000..6000` those of these numbers: the mutation of
//! a number is always the same. With `ulimit -v` beforehand, one that takes too much memory ends the test.

use lastmeter_base::kind::Family;
use lastmeter_base::{Bytes, Duration, Quantity, Rate, Stream};
use lastmeter_engine::Serial;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::fuzz::fuzz_run;
use lastmeter_lab::kinds::Registry;
use lastmeter_lab::library::{Builtin, experiment, texts};
use lastmeter_lab::run::{Runner, Watch, ledger};

/// How many mutations a test run tries.
const MUTATIONS: u64 = 600;
/// Most values that a mutation replaces.
const REPLACED_MAX: u64 = 4;

const TIMES: &[&str] = &["0 s", "1 ps", "999 ps", "1 us", "1 s", "61 s", "3600 s", "100000 s"];
const RATES: &[&str] = &["1 kbit/s", "1001 bit/s", "1 Gbit/s", "999999 Tbit/s"];
const SIZES: &[&str] = &["0 B", "1 B", "40 B", "65535 B", "65536 B", "16 MiB", "1 TiB"];
const DRAWS: &[&str] = &[
    "{ exponential = \"100000 s\" }",
    "{ pareto = \"100000 s\", shape = 1.001 }",
    "{ log-normal = \"100000 s\", sigma = 20.0 }",
    "{ uniform = [\"0 s\", \"100000 s\"] }",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "255",
    "256",
    "65535",
    "65536",
    "1048576",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "0.0",
    "1.0",
    "0.000001",
    "1e308",
];

fn pick<'a>(stream: &mut Stream, all: &[&'a str]) -> &'a str {
    all[stream.below(all.len() as u64) as usize]
}

/// The places of values: quoted quantities, and numbers after `=`, `[` or `,`.
fn places(text: &str) -> Vec<std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let mut places = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begins = match bytes[at] {
            b'#' => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
                continue;
            }
            b'"' => {
                let end = text[at + 1..].find('"').map_or(text.len(), |len| at + len + 2);
                if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
                    places.push(at..end);
                }
                at = end;
                continue;
            }
            byte => {
                byte.is_ascii_digit()
                    && matches!(bytes[..at].trim_ascii_end().last(), Some(b'=' | b'[' | b','))
            }
        };
        let number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'e');
        let end =
            bytes[at..].iter().position(|byte| !number(byte)).map_or(bytes.len(), |len| at + len);
        if begins {
            places.push(at..end);
        }
        at = end.max(at + 1);
    }
    places
}

/// An extreme value in place of `old`.
fn extreme(old: &str, stream: &mut Stream) -> String {
    let quantity = old.trim_matches('"');
    let known = |times: bool, rates: bool| match (times, rates) {
        (true, _) if stream.chance(0.2) => pick(stream, DRAWS).to_owned(),
        (true, _) => format!("\"{}\"", pick(stream, TIMES)),
        (_, true) => format!("\"{}\"", pick(stream, RATES)),
        _ if Bytes::parse(quantity).is_ok() => format!("\"{}\"", pick(stream, SIZES)),
        _ => pick(stream, NUMBERS).to_owned(),
    };
    let mut known = known;
    known(Duration::parse(quantity).is_ok(), Rate::parse(quantity).is_ok())
}

/// Values that once ended a run by a panic: a timer above its greatest, draws of hours, the words of a port.
#[test]
fn values_that_once_ended_a_run_are_refused_or_run() {
    let replaced = |name: &str, old: &str, new: &str| {
        let text = experiment(name).unwrap();
        assert!(text.contains(old), "{name}: {old}");
        text.replace(old, new)
    };
    let timer = replaced("dumbbell", "timeout-min = \"1 s\"", "timeout-min = \"61 s\"");
    assert!(fuzz_run(timer.as_bytes()));
    assert!(fuzz_run(replaced("mm1", "\"1 us\"", "\"1000 s\"").as_bytes()));
    let text = experiment("spc-router").unwrap();
    let words = |value: &str| {
        let set = format!("profiles.ports/spc.constants.send_words.value={value}");
        let set = [Override::parse(&set).unwrap()];
        let parsed = Experiment::parse("spc-router", text, &set, &Builtin);
        let mut short = parsed.map_err(|problems| problems[0].to_string())?;
        short.duration = Duration::from_ms(1);
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
        let done = ledger(&short, runner).map_err(|failure| failure.to_string())?;
        Ok::<u64, String>(done.paths.iter().map(|path| path.totals.delivered.packets).sum())
    };
    // What is set arrives, and is not silently left out.
    assert!(words("[4000, 1, 1]").unwrap() < words("[4, 1, 1]").unwrap());
    for huge in ["[9223372036854775807, 1, 1]", "[4294967295, 1, 1]", "[1, 1, -1]"] {
        let done = words(huge);
        assert!(done.is_err() || done == Ok(0), "{huge}: {done:?}");
    }
}

#[test]
fn whatever_the_checks_accept_runs() {
    let numbers = std::env::var("LASTMETER_MUTATIONS").map_or(0..MUTATIONS, |text| {
        let (first, end) = text.split_once("..").unwrap_or(("0", &text));
        first.parse().unwrap()..end.parse().unwrap()
    });
    let count = numbers.end - numbers.start;
    let families = [Family::Experiment, Family::Node, Family::Traffic, Family::Queue];
    let kinds = families.into_iter().flat_map(|family| Registry::builtin().family(family));
    let examples = kinds.map(|kind| (kind.page.name.to_owned(), kind.page.example.to_owned()));
    let subjects: Vec<(String, String)> = texts().into_iter().chain(examples).collect();
    let mut ran = 0;
    for number in numbers {
        let mut stream = Stream::new(number, "mutations");
        let (name, text) = &subjects[stream.below(subjects.len() as u64) as usize];
        let mut text = text.clone();
        for _ in 0..=stream.below(REPLACED_MAX) {
            let places = places(&text);
            if places.is_empty() {
                break;
            }
            let place = places[stream.below(places.len() as u64) as usize].clone();
            let new = extreme(&text[place.clone()], &mut stream);
            text.replace_range(place, &new);
        }
        let done = std::panic::catch_unwind(|| fuzz_run(text.as_bytes()));
        match done {
            Ok(accepted) => ran += u64::from(accepted),
            Err(_) => panic!("mutation {number} of {name}:\n{text}"),
        }
    }
    // Else nothing was tested.
    assert!(ran * 10 > count || count < MUTATIONS, "only {ran} of {count} were accepted");
}
