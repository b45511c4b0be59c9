//! `lastmeter why --truth`: bottlenecks made on purpose, and whether the verdicts name them.

use crate::{Common, Complaint, Ended, output};
use lastmeter_linux::Error;
use lastmeter_why::truth::{self, CASES, Case, SEVERITIES, Score};

pub(super) fn truth(
    common: &Common,
    name: Option<&str>,
    severity: Option<u32>,
    load: bool,
    prove: bool,
) -> Result<Ended, Complaint> {
    let cases: Vec<_> = CASES.iter().filter(|case| name.is_none_or(|n| n == case.name)).collect();
    if cases.is_empty() {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        let (found, right) = (name.unwrap_or_default(), names.join(", "));
        return Err(Complaint(format!("there is no case `{found}`; there are {right}")));
    }
    let severities = severity.map_or(1..=SEVERITIES, |one| one..=one);
    let mut lines = Vec::new();
    let (mut proofs, mut held) = (0, 0);
    for case in cases {
        for severity in severities.clone() {
            if prove {
                if let Some(holds) = lift(common, case, severity)? {
                    (proofs, held) = (proofs + 1, held + u32::from(holds));
                }
                continue;
            }
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
    if prove {
        output::note(&format!(
            "{held} of {proofs} made bottlenecks lifted within the predicted band"
        ));
    } else if !common.json {
        output::print(&truth::summary(&lines));
    }
    let wrong = lines.iter().any(|line| line.score == Score::Wrong);
    Ok(if wrong { Ended::Short } else { Ended::Done })
}

/// Takes a made bottleneck away for a while; whether the gain was as predicted, if it can be lifted.
fn lift(common: &Common, case: &Case, severity: u32) -> Result<Option<bool>, Complaint> {
    let Some(proof) = truth::prove::prove(case, severity)? else {
        let words = "its verdict names nothing that can be lifted from outside";
        output::note(&format!("{} {severity}: {words}", case.name));
        return Ok(None);
    };
    let line = || serde_json::to_string(&proof);
    output::print(&if common.json { line()? } else { truth::prove::row(&proof) });
    Ok(Some(proof.holds))
}
