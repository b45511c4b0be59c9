//! `lastmeterd disk`: a disk on the network with its owner's policies, and what it costs beside other servers.

mod bench;
mod client;

use crate::sandbox::Ticking;
use crate::{Complaint, Report};
use lastmeter_device::disk::server::{Config, Server};
use lastmeter_ledger::Ledger;
use lastmeter_ledger::json::{from_json, to_json};
use lastmeter_ledger::terminal::{Style, render};
use lastmeter_live::control::{Control, ask};
use lastmeter_plugin::host::{Host, Limits};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Serve a disk as its file says, until interrupted; its ledger is printed at the end
    Run(Run),
    /// Say whether a disk's file is right, and if not, what is wrong
    Check(File),
    /// The ledger of a running disk
    Show(File),
    /// Measure it beside nbdkit and qemu-nbd where they are installed
    Bench(bench::Bench),
    /// Serve memory for a benchmark
    #[command(hide = true)]
    Memory(bench::Memory),
}

#[derive(clap::Args)]
pub(crate) struct File {
    /// The disk's file
    file: PathBuf,
    /// The control socket [default: beside the file, NAME.control]
    #[arg(long)]
    control: Option<PathBuf>,
}

impl File {
    fn control(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(|| self.file.with_extension("control"))
    }
}

#[derive(clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    file: File,
    /// Save the ledger here at the end
    #[arg(long)]
    ledger: Option<PathBuf>,
}

pub(crate) fn run(command: Command, quick: bool) -> Result<Report, Complaint> {
    match command {
        Command::Run(arguments) => serve(&arguments),
        Command::Check(file) => check(&file),
        Command::Show(file) => {
            let shown = ask(&file.control(), &json!({ "show": "ledger" }))?;
            let ledger = from_json(&shown.to_string()).map_err(|error| error.to_string())?;
            Ok(report(&ledger, shown))
        }
        Command::Bench(arguments) => bench::bench(&arguments, quick),
        Command::Memory(arguments) => bench::memory(&arguments),
    }
}

fn report(ledger: &Ledger, json: Value) -> Report {
    let style = Style { width: 100, color: false, unicode: true };
    Report { text: render(ledger, style), json: vec![json], good: true }
}

fn read(path: &Path) -> Result<Config, Complaint> {
    let place = |error: String| Complaint(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| place(error.to_string()))?;
    Config::parse(&text).map_err(place)
}

fn check(file: &File) -> Result<Report, Complaint> {
    let config = read(&file.file)?;
    // With memory of the same size instead of the file, so that nothing is made.
    let size = config.size.clone().or(Some("4 KiB".to_owned()));
    let tried = Config { file: None, memory: true, size, ..config };
    let host = Host::new(Limits::default())?;
    let folder = file.file.parent().unwrap_or(Path::new("."));
    let disk = tried.disk(folder, Arc::new(host))?;
    let names: Vec<&str> = disk.access.names().collect();
    let text = format!("{}: clients {}\n", file.file.display(), names.join(", "));
    Ok(Report { text, json: vec![json!({ "good": true, "clients": names })], good: true })
}

fn serve(arguments: &Run) -> Result<Report, Complaint> {
    let path = &arguments.file.file;
    let config = read(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let sandbox = Ticking::new(Limits::default())?;
    let place = |error: String| Complaint(format!("{}: {error}", path.display()));
    let disk = config.disk(folder, sandbox.host.clone()).map_err(place)?;
    let ended = crate::signals()?;
    let tell = |why: &str| {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "lastmeterd: {why}");
    };
    let server = Server::start(&config, folder, disk, tell).map_err(place)?;
    let close = {
        let (disk, title) = (server.disk.clone(), format!("disk {}", path.display()));
        move || {
            disk.account.ledger(
                &title,
                env!("CARGO_PKG_VERSION"),
                crate::sandbox::cpu().as_secs_f64(),
            )
        }
    };
    let (asked, clients) = (close.clone(), server.clients.clone());
    let _control =
        Control::serve(&arguments.file.control(), move |question| {
            match question["show"].as_str() {
                Some("ledger") => {
                    let text = to_json(&asked());
                    serde_json::from_str(&text).map_err(|error| error.to_string())
                }
                Some("clients") => Ok(json!(clients.load(Ordering::Relaxed))),
                _ => Err("ask with {\"show\": \"ledger\"} or {\"show\": \"clients\"}".to_owned()),
            }
        })?;
    if let Some(address) = server.address {
        crate::print(&format!("serving nbd://{address}\n"));
    }
    if let Some(socket) = &config.socket {
        crate::print(&format!("serving nbd+unix://?socket={}\n", folder.join(socket).display()));
    }
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    server.disk.medium.flush()?;
    let ledger = close();
    let text = to_json(&ledger);
    if let Some(path) = &arguments.ledger {
        std::fs::write(path, &text).map_err(|e| Complaint(format!("{}: {e}", path.display())))?;
    }
    Ok(report(&ledger, serde_json::from_str(&text)?))
}
