//! `lastmeter why --truth`: bottlenecks made on purpose, and whether the verdicts name them.

use crate::{Common, Complaint, Ended, output};
use lastmeter_why::truth::{self, CASES, SEVERITIES, Score};

pub(super) fn truth(
    common: &Common,
    name: Option<&str>,
    severity: Option<u32>,
) -> Result<Ended, Complaint> {
    let cases: Vec<_> = CASES.iter().filter(|case| name.is_none_or(|n| n == case.name)).collect();
    if cases.is_empty() {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        let (found, right) = (name.unwrap_or_default(), names.join(", "));
        return Err(Complaint(format!("there is no case `{found}`; there are {right}")));
    }
    let severities = severity.map_or(1..=SEVERITIES, |one| one..=one);
    let mut lines = Vec::new();
    for case in cases {
        for severity in severities.clone() {
            for line in truth::run(case, severity)? {
                let json = || serde_json::to_string(&line);
                output::print(&if common.json { json()? } else { truth::row(&line) });
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
