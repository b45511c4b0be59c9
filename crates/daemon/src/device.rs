//! What the commands of all devices share: their file, their control socket, and running until they are ended.

use crate::{Complaint, Report};
use lastmeter_ledger::Ledger;
use lastmeter_ledger::json::{from_json, to_json};
use lastmeter_ledger::terminal::{Style, escaped, render};
use lastmeter_linux::control::{Control, ask};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(clap::Args)]
pub(crate) struct File {
    /// The device's file
    pub(crate) file: PathBuf,
    /// The control socket [default: beside the file, NAME.control]
    #[arg(long)]
    control: Option<PathBuf>,
}

impl File {
    /// A device's file, its control socket beside it.
    pub(crate) fn at(file: PathBuf) -> File {
        File { file, control: None }
    }
    fn control(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(|| self.file.with_extension("control"))
    }
    /// The folder in which what it names is looked for.
    pub(crate) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }
    /// An error, with the file's name.
    pub(crate) fn place(&self, error: impl std::fmt::Display) -> Complaint {
        Complaint(format!("{}: {error}", self.file.display()))
    }
    /// What it says.
    pub(crate) fn text(&self) -> Result<String, Complaint> {
        std::fs::read_to_string(&self.file).map_err(|error| self.place(error))
    }
    /// The answer of `check`: nothing is wrong, and these are the device's clients.
    pub(crate) fn good<'a>(&self, clients: impl Iterator<Item = &'a str>) -> Report {
        let names: Vec<&str> = clients.collect();
        let text = format!("{}: clients {}\n", self.file.display(), names.join(", "));
        Report { text, json: vec![json!({ "good": true, "clients": names })], good: true }
    }
    /// What the running device says when it is asked for this.
    pub(crate) fn ask(&self, which: &str) -> Result<Value, Complaint> {
        Ok(ask(&self.control(), &json!({ "show": which }))?)
    }
    /// A ledger of the running device.
    pub(crate) fn show(&self, which: &str) -> Result<Report, Complaint> {
        let shown = self.ask(which)?;
        let ledger = from_json(&shown.to_string()).map_err(|error| error.to_string())?;
        Ok(report(&ledger, shown))
    }
}

#[derive(clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) file: File,
    /// Save the ledger here at the end
    #[arg(long)]
    ledger: Option<PathBuf>,
}

/// A ledger for people and programs.
pub(crate) fn report(ledger: &Ledger, json: Value) -> Report {
    let style = Style { width: 100, color: false, unicode: true };
    Report { text: render(ledger, style), json: vec![json], good: true }
}

/// A ledger as JSON.
pub(crate) fn value(ledger: &Ledger) -> Result<Value, String> {
    serde_json::from_str(&to_json(ledger)).map_err(|error| error.to_string())
}

/// Says why a client was given up.
pub(crate) fn tell(why: &str) {
    use std::io::Write;
    // Among the words are names that the client chose.
    let _ = writeln!(std::io::stderr(), "lastmeterd: {}", escaped(why, false));
}

/// Answers on the control socket until the user ends the device; then its ledger. `answer` gives what is asked for by
/// name; `close` is the ledger at the end.
pub(crate) fn until_ended(
    arguments: &Run,
    ended: &Arc<AtomicBool>,
    answer: impl Fn(&str) -> Result<Value, String> + Send + Sync + 'static,
    close: impl Fn() -> Result<Ledger, Complaint>,
) -> Result<Report, Complaint> {
    let answer = move |question: &Value| match question["show"].as_str() {
        Some(what) => answer(what),
        None => Err("ask with {\"show\": \"ledger\"}".to_owned()),
    };
    let control = Control::serve(&arguments.file.control(), answer)?;
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(control);
    let ledger = close()?;
    let json = value(&ledger)?;
    if let Some(path) = &arguments.ledger {
        std::fs::write(path, to_json(&ledger))
            .map_err(|error| Complaint(format!("{}: {error}", path.display())))?;
    }
    Ok(report(&ledger, json))
}
