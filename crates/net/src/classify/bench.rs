//! The benchmarks of `lastmeter bench classify`.

use super::generate::{ACCESS_LIST, FIREWALL, IP_CHAIN, Kind, headers, rules};
use super::{General, Header, Match, Rule};
use lastmeter_base::bench::{Case, Work};

const HEADERS: usize = 1 << 18;
const HEADERS_QUICK: usize = 1 << 10;
const RULES_QUICK: u32 = 100;
/// A forwarder's batch size.
const BATCH: usize = 64;
const UPDATES: usize = 2_000;

const WHAT: &str = "packets matching random rules of a synthetic set, 64 at a time";
const UPDATE: &str = "removes and installs rules of a synthetic set of 10,000";

macro_rules! case {
    ($name:literal, $kind:expr, $count:literal) => {
        Case {
            name: $name,
            unit: "packets",
            what: WHAT,
            prepare: |quick| batched(&$kind, $count, quick),
        }
    };
}

/// The benchmarks of this module.
pub const CASES: &[Case] = &[
    case!("classify/acl@1000", ACCESS_LIST, 1_000),
    case!("classify/fw@1000", FIREWALL, 1_000),
    case!("classify/ipc@1000", IP_CHAIN, 1_000),
    case!("classify/acl@10000", ACCESS_LIST, 10_000),
    case!("classify/fw@10000", FIREWALL, 10_000),
    case!("classify/ipc@10000", IP_CHAIN, 10_000),
    changes("classify/acl-updates", |quick| updates(&ACCESS_LIST, quick)),
    changes("classify/fw-updates", |quick| updates(&FIREWALL, quick)),
    changes("classify/ipc-updates", |quick| updates(&IP_CHAIN, quick)),
];

const fn changes(name: &'static str, prepare: fn(bool) -> Rounds) -> Case {
    Case { name, unit: "updates", what: UPDATE, prepare }
}

type Rounds = Box<dyn FnMut() -> Work>;

fn install(rules: &[Rule]) -> (General, Vec<super::RuleId>) {
    let mut general = General::new();
    let ids = rules.iter().map(|rule| general.install(rule.clone()).expect("there is room"));
    let ids = ids.collect();
    (general, ids)
}

/// The rules and packets of a classifying case, such as `classify/acl@1000`, so that others can use the
/// same ones; `None` for any other name. The case's hash is the sum of 1 + the index of the matching rule.
pub fn input(name: &str, quick: bool) -> Option<(Vec<Rule>, Vec<Header>)> {
    let (kind, count) = name.strip_prefix("classify/")?.split_once('@')?;
    let kind = [ACCESS_LIST, FIREWALL, IP_CHAIN].into_iter().find(|known| known.name == kind)?;
    Some(made(&kind, count.parse().ok()?, quick))
}

fn made(kind: &Kind, count: u32, quick: bool) -> (Vec<Rule>, Vec<Header>) {
    let rules = rules(kind, if quick { RULES_QUICK } else { count }, 1);
    let headers = headers(&rules, if quick { HEADERS_QUICK } else { HEADERS }, 2);
    (rules, headers)
}

fn batched(kind: &Kind, count: u32, quick: bool) -> Rounds {
    let (rules, headers) = made(kind, count, quick);
    let (general, _) = install(&rules);
    let mut found = [None; BATCH];
    Box::new(move || {
        let mut hash = 0_u64;
        for headers in headers.chunks_exact(BATCH) {
            general.classify_batch(headers, &mut found);
            let number = |found: &Option<Match>| found.map_or(0, |found| 1 + found.rule.number());
            hash = hash.wrapping_add(found.iter().map(|found| u64::from(number(found))).sum());
        }
        Work { units: headers.len() as u64, hash }
    })
}

fn updates(kind: &Kind, quick: bool) -> Rounds {
    let rules = rules(kind, if quick { RULES_QUICK } else { 10_000 }, 1);
    let (mut general, mut ids) = install(&rules);
    Box::new(move || {
        let mut hash = 0_u64;
        for step in 0..UPDATES / 2 {
            // A stride coprime to the count visits every rule.
            let at = step * 7_919 % rules.len();
            let rule = general.remove(ids[at]).expect("it was installed");
            hash = hash.wrapping_add(u64::from(rule.priority) + 1);
            ids[at] = general.install(rule).expect("it was installed before");
        }
        Work { units: UPDATES as u64, hash }
    })
}

#[cfg(test)]
mod tests {
    use super::{CASES, input};

    #[test]
    fn every_round_of_a_case_gives_the_same_result() {
        for case in CASES {
            let mut work = (case.prepare)(true);
            let first = work();
            assert_eq!((work(), first.hash != 0), (first, true), "{}", case.name);
            assert_eq!(input(case.name, true).is_some(), case.name.contains('@'));
        }
    }
}
