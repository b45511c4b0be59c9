//! Broken plans of `lastmeter blast`: each gets a message that a newcomer understands.

use crate::golden;
use lastmeter_lab::document::Problem;
use lastmeter_lab::library::Builtin;

fn shown(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{}\n\n", problem.render(false))).collect()
}

/// A plan whose flows differ from a plain one as a case of `flows.cases` says. An empty line separates
/// flows; a line replaces or adds a key, and `-KEY` removes it.
fn flows(case: &str) -> String {
    let mut text = "[[host]]\nname = \"a\"\nat = \"10.0.0.1:7400\"\n".to_owned();
    for (changes, name) in case.trim_end().split("\n\n").zip('f'..) {
        let name = format!("name = \"{name}\"");
        let mut flow = vec![name.as_str(), "from = \"a\"", "to = \"a\"", "size = \"1500 B\""];
        flow.extend(["rate = \"1 Gbit/s\"", "duration = \"1 s\""]);
        for change in changes.lines() {
            let key = change.trim_start_matches('-').split(' ').next().unwrap();
            let at = flow.iter().position(|line| line.starts_with(&format!("{key} =")));
            match at {
                Some(at) if change.starts_with('-') => drop(flow.remove(at)),
                Some(at) => flow[at] = change,
                None => flow.push(change),
            }
        }
        text += &format!("\n[[flow]]\n{}\n", flow.join("\n"));
    }
    text
}

/// The messages for each plan of `tests/broken-plans` are those in the file beside it.
#[test]
fn each_broken_plan_gives_the_message_beside_it() {
    let cases = include_str!("broken-plans/flows.cases").split("== ").skip(1);
    let cases = cases.map(|case| case.split_once('\n').unwrap());
    let mut plans: Vec<_> = cases.map(|(name, case)| (name, flows(case))).collect();
    plans.extend([
        ("drain", include_str!("broken-plans/drain.toml").to_owned()),
        ("empty", "seed = 1\n".to_owned()),
        ("hosts", include_str!("broken-plans/hosts.toml").to_owned()),
    ]);
    assert_eq!(plans.len(), 7);
    for (name, text) in plans {
        let plan = lastmeter::blast::plan::plan(&format!("{name}.toml"), text.as_bytes(), &Builtin);
        golden::check(&format!("tests/broken-plans/{name}.txt"), &shown(&plan.err().unwrap()));
    }
}
