//! Broken experiment files: each gives a message that a newcomer can act on, and none a panic.

use crate::golden;
use lastmeter_lab::document::{FILE_LEN_MAX, Override, PROBLEMS_MAX, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{Builtin, Library};
use proptest::prelude::*;
use std::io::Read;
use std::sync::LazyLock;

fn problems(text: impl AsRef<[u8]>, overrides: &[Override]) -> Vec<Problem> {
    Experiment::parse("experiment.toml", text, overrides, &Builtin).err().unwrap_or_default()
}

fn shown(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{}\n\n", problem.render(false))).collect()
}

/// A library without profiles and captures.
struct TwoHosts;

impl Library for TwoHosts {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        Err(format!("{folder}/{name} has no text"))
    }
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String> {
        Err(format!("{path} has no text"))
    }
    fn names(&self, folder: &str) -> Vec<String> {
        let names = ["alpha-3000", "decstation-5000"].map(str::to_owned);
        if folder == "hosts" { names.to_vec() } else { Vec::new() }
    }
}

/// `base.toml` changed by a case: without the lines marked `-`, with those marked `+`.
fn changed(case: &str) -> String {
    let mut base = include_str!("broken/base.toml").lines();
    let mut lines = Vec::new();
    for line in case.lines() {
        let (mark, line) = line.split_at(1);
        match mark {
            "+" => lines.push(line),
            _ => {
                lines.extend(base.by_ref().take_while(|one| *one != line));
                lines.extend((mark == " ").then_some(line));
            }
        }
    }
    lines.into_iter().chain(base).map(|line| format!("{line}\n")).collect()
}

/// The broken files: those of `tests/broken/cases.diff`, and two unrelated to `base.toml`.
fn broken() -> impl Iterator<Item = (&'static str, String)> {
    let cases = include_str!("broken/cases.diff").split("== ").skip(1);
    let cases = cases.map(|case| case.split_once('\n').unwrap());
    let json = "{ \"duration\": \"1 s\", \"nodes\": {} }\n".to_owned();
    cases
        .map(|(name, case)| (name, changed(case)))
        .chain([("empty", String::new()), ("not_toml", json)])
}

/// Each broken file with the messages that it gives.
#[test]
fn each_broken_file_gives_the_message_beside_it() {
    assert_eq!(broken().count(), 39);
    for (name, text) in broken() {
        let problems =
            Experiment::parse(&format!("{name}.toml"), text, &[], &TwoHosts).err().unwrap();
        assert!(!problems.is_empty(), "{name} has no problem");
        golden::check(&format!("tests/broken/{name}.txt"), &shown(&problems));
    }
}

#[test]
fn a_binary_or_huge_file_is_refused_as_a_whole() {
    let binary = problems(b"duration = \"1 s\"\n\xff\xfe", &[]);
    assert_eq!(
        binary[0].to_string(),
        "experiment.toml:2:1: byte 17 (in line 2) is not UTF-8 text; an experiment file is TOML \
         in UTF-8: save it as UTF-8, or name another file"
    );
    let enormous = problems(vec![b'#'; FILE_LEN_MAX + 1], &[]);
    assert!(enormous[0].found.starts_with("the file has 4194305 bytes"), "{}", enormous[0].found);
}

#[test]
fn a_file_that_is_wrong_everywhere_gives_a_limited_number_of_messages() {
    let keys: String = (0..10_000).map(|key| format!("key{key} = 1\n")).collect();
    assert_eq!(problems(keys, &[]).len(), PROBLEMS_MAX);
    // The depth of nesting is limited, so that recursion cannot overflow the stack.
    assert!(!problems("a = ".to_owned() + &"[".repeat(100_000), &[]).is_empty());
    assert!(!problems("a.".repeat(100_000) + "b = 1", &[]).is_empty());
}

#[test]
fn overrides_that_cannot_be_applied_say_why() {
    let text = include_str!("../../../experiments/chain/experiment.toml");
    let cases = [
        "links.1.rate=10 Gbit/s",
        "links.0.rate=10",
        "links.0.rat=10 Gbit/s",
        "traffic.bulk.constant.rate=1 Mbit/s",
        "traffic.constnat.constant.rate=1 Mbit/s",
        "seed.one=1",
        "nodes.r1={ router = {}",
        "nodes.r1.count=3",
        "duraton=3 s",
    ];
    let mut all = String::new();
    for case in cases {
        let problems = problems(text, &[Override::parse(case).unwrap()]);
        assert!(!problems.is_empty(), "{case}");
        all += &shown(&problems);
    }
    for case in ["links.0.rate", "=1", "links..rate=1"] {
        all += &shown(&Override::parse(case).unwrap_err());
    }
    golden::check("tests/goldens/overrides.txt", &all);
}

static SEEDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let whole = [
        include_str!("../../../experiments/chain/experiment.toml"),
        include_str!("../../../experiments/mm1/experiment.toml"),
        include_str!("../../../experiments/first-path/experiment.toml"),
        include_str!("../../../profiles/hosts/harts.toml"),
    ];
    let broken = broken().filter(|(name, _)| ["wrong_types", "bad_distribution"].contains(name));
    whole.map(str::to_owned).into_iter().chain(broken.map(|(_, text)| text)).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Files with pieces changed, moved and cut out are refused or run; none crashes the program.
    #[test]
    fn no_mutation_of_a_file_causes_a_panic(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<u16>(), 0usize..12, "[ -~\n\u{e9}]{0,6}"), 0..6),
    ) {
        let mut text = SEEDS[seed].clone();
        for (at, len, piece) in edits {
            let from = text.floor_char_boundary(usize::from(at) % (text.len() + 1));
            let to = text.floor_char_boundary((from + len).min(text.len()));
            text.replace_range(from..to, &piece);
        }
        lastmeter_lab::fuzz::fuzz_experiment(text.as_bytes());
    }

    #[test]
    fn no_bytes_and_no_override_cause_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        text in "[ -~]{0,30}",
    ) {
        lastmeter_lab::fuzz::fuzz_experiment(&bytes);
        if let Ok(change) = Override::parse(&text) {
            let _ = shown(&problems(&SEEDS[0], &[change]));
        }
    }
}
