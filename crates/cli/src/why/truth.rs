//! `lastmeter why --truth`: bottlenecks made on purpose, and whether the verdicts and what-ifs are right.

use crate::{Common, Complaint, Ended, output};
use lastmeter_linux::Error;
use lastmeter_why::truth::{self, CASES, SEVERITIES, Score, prove};

pub(super) fn truth(
    common: &Common,
    name: Option<&str>,
    severity: Option<u32>,
    load: bool,
) -> Result<Ended, Complaint> {
    let cases: Vec<_> = CASES.iter().filter(|case| name.is_none_or(|n| n == case.name)).collect();
    if cases.is_empty() {
        return Err(unknown(name, CASES.iter().map(|case| case.name)));
    }
    let severities = severity.map_or(1..=SEVERITIES, |one| one..=one);
    let mut lines = Vec::new();
    for case in cases {
        for severity in severities.clone() {
            let found = match truth::run(case, severity, load) {
                // Such as fewer cores than it needs.
                Err(error @ Error::Setting { .. }) => {
                    output::note(&format!("SKIP {} {severity}: {error}", case.name));
                    continue;
                }
                found => found?,
            };
            for line in found {
                let json = || serde_json::to_string(&line);
                output::print(&if common.json {
                    json()?
                } else {
                    truth::row(&line, name.is_some())
                });
                lines.push(line);
            }
        }
    }
    if !common.json {
        output::print(&truth::summary(&lines));
    }
    let wrong = lines.iter().any(|line| line.score == Score::Wrong);
    Ok(if wrong { Ended::Short } else { Ended::Done })
}

fn unknown<'a>(name: Option<&str>, names: impl Iterator<Item = &'a str>) -> Complaint {
    let (found, right) = (name.unwrap_or_default(), names.collect::<Vec<_>>().join(", "));
    Complaint(format!("there is no case `{found}`; there are {right}"))
}

/// What-ifs: predicted beside measured, and how many are right.
pub(super) fn score(
    common: &Common,
    name: Option<&str>,
    severity: Option<u32>,
) -> Result<Ended, Complaint> {
    let all = prove::named(name);
    if all.is_empty() {
        return Err(unknown(name, prove::named(None).into_iter().map(|one| one.name)));
    }
    let mut proofs = Vec::new();
    for one in all {
        let proof = prove::prove(one, severity)?;
        let json = || serde_json::to_string(&proof);
        output::print(&if common.json { json()? } else { prove::row(&proof) });
        proofs.push(proof);
    }
    let sum = prove::Sum::of(&proofs);
    output::print(&if common.json { serde_json::to_string(&sum)? } else { sum.words() });
    Ok(if sum.is_enough() { Ended::Done } else { Ended::Short })
}
