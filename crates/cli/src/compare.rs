//! `lastmeter compare`: two ledgers side by side.

use crate::{Common, Complaint, Ended, output, results};
use lastmeter_ledger::compare::Comparison;
use lastmeter_ledger::{Ledger, html, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Compare two ledgers side by side: totals, stages and resources, largest change first.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A ledger.json, or a folder of results that contains one
    first: PathBuf,
    /// The ledger to compare it with
    second: PathBuf,
    /// Write the comparison as one HTML file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter run first-path --out before
  lastmeter run first-path --set links.0.rate='1 Gbit/s' --out after
  lastmeter compare before after --out compared.html";

pub(crate) fn compare(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let Arguments { first, second, out } = arguments;
    let (one, other) = (read(first)?, read(second)?);
    let names = [first, second].map(|path| path.display().to_string());
    let comparison = Comparison::new([&names[0], &names[1]], [&one, &other]);
    match common.json {
        true => output::print(&serde_json::to_string_pretty(&comparison)?),
        false => output::print(&comparison.text(output::width())),
    }
    if let Some(out) = out {
        let name = out.file_name().and_then(|name| name.to_str());
        let name =
            name.ok_or_else(|| Complaint(format!("`{}` is not a file name", out.display())))?;
        let folder = out.parent().unwrap_or(Path::new(""));
        results::save(folder, name, html::compare::render(&comparison).as_bytes())?;
        output::note(&format!("Written to {}", out.display()));
    }
    Ok(Ended::Done)
}

fn read(path: &Path) -> Result<Ledger, Complaint> {
    let file = if path.is_dir() { path.join("ledger.json") } else { path.to_owned() };
    if path.is_dir() && !file.exists() {
        let hint = "name a ledger, or a folder of results (`--out`)";
        return Err(Complaint(format!(
            "`{}` is a folder without ledger.json: {hint}",
            path.display()
        )));
    }
    let complain =
        |error: &dyn std::fmt::Display| Complaint(format!("`{}`: {error}", file.display()));
    let text = fs::read_to_string(&file).map_err(|error| complain(&error))?;
    if file.extension().is_some_and(|end| end == "toml") {
        let hint = format!(
            "run it first, `lastmeter run {} --out FOLDER`, and compare the folders",
            file.display()
        );
        return Err(complain(&format!("not a ledger but an experiment: {hint}")));
    }
    json::from_json(&text).map_err(|error| complain(&format!("not a ledger: {error}")))
}
