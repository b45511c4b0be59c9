//! Broken plans of `lastmeter blast`: each gives a message that a newcomer understands.

use crate::golden;
use lastmeter_lab::document::Problem;
use lastmeter_lab::library::Builtin;

fn shown(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{}\n\n", problem.render(false))).collect()
}

/// Each plan of `lastmeter blast` in `tests/broken-plans` beside the messages that it gives.
#[test]
fn each_broken_plan_gives_the_message_beside_it() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/broken-plans");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(files.len() >= 6);
    for path in files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read(&path).unwrap();
        let plan = lastmeter::blast::plan::plan(&format!("{name}.toml"), &text, &Builtin);
        golden::check(&format!("tests/broken-plans/{name}.txt"), &shown(&plan.err().unwrap()));
    }
}
