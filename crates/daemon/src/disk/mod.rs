//! `lastmeterd disk`: a disk on the network with its owner's policies, and what it costs beside other servers.

mod bench;
pub(crate) mod client;
mod emulated;
mod files;
mod initiator;
mod local;
mod matrix;
mod model;
pub(crate) mod modelled;
mod pipelined;

use crate::device::{File, Run, tell, until_ended, value};
use crate::sandbox::Ticking;
use crate::{Complaint, Report, ticket};
use lastmeter_device::disk::server::{Config, Server};
use lastmeter_plugin::host::{Host, Limits};
use model::Model;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Serve a disk as its file says, until interrupted; its ledger is printed at the end
    Run(Served),
    /// Say whether a disk's file is right, and if not, what is wrong
    Check(File),
    /// The ledger of a running disk
    Show(File),
    /// Make a ticket: whoever has it may have one device send something of yours straight to another
    Ticket(ticket::Make),
    /// Show a ticket to the device that gives, and wait until all has arrived
    Transfer(ticket::Use),
    /// The device's key and address, by which tickets name it
    Identity(File),
    /// Measure it beside nbdkit, qemu-nbd and tgt where they are installed, or beside a local file
    Bench(bench::Arguments),
    /// Serve memory for a benchmark
    #[command(hide = true)]
    Memory(bench::Memory),
    /// Do a file system's work for a benchmark
    #[command(hide = true)]
    Files(files::work::Work),
}

#[derive(clap::Args)]
pub(crate) struct Served {
    #[command(flatten)]
    run: Run,
    /// Take as long as a disk of 1995 (`1995`), an NVMe drive (`flash`), or what a file describes
    #[arg(long)]
    model: Option<String>,
}

pub(crate) fn run(command: Command, quick: bool) -> Result<Report, Complaint> {
    match command {
        Command::Run(arguments) => serve(&arguments),
        Command::Check(file) => check(&file),
        Command::Show(file) => file.show("ledger"),
        Command::Ticket(arguments) => ticket::make(&arguments),
        Command::Transfer(arguments) => ticket::apply(&arguments),
        Command::Identity(file) => ticket::identity(&file, read(&file)?.transfer.as_ref()),
        Command::Bench(arguments) => bench::bench(&arguments, quick),
        Command::Memory(arguments) => bench::memory(&arguments),
        Command::Files(arguments) => files::work::run(&arguments),
    }
}

fn read(file: &File) -> Result<Config, Complaint> {
    Config::parse(&file.text()?).map_err(|error| file.place(error))
}

fn check(file: &File) -> Result<Report, Complaint> {
    let config = read(file)?;
    // With memory of the same size instead of the file, so that nothing is made.
    let size = config.size.clone().or(Some("4 KiB".to_owned()));
    let tried = Config { file: None, memory: true, size, ..config };
    let host = Arc::new(Host::new(Limits::default())?);
    let disk = tried.disk(file.folder(), host).map_err(|error| file.place(error))?;
    tried.encryption(file.folder(), &disk.access).map_err(|error| file.place(error))?;
    Ok(file.good(disk.access.names()))
}

fn serve(Served { run: arguments, model }: &Served) -> Result<Report, Complaint> {
    let file = &arguments.file;
    let model = model.as_deref().map(Model::of).transpose()?;
    let config = read(file)?;
    let sandbox = Ticking::new(Limits::default())?;
    let fit = |size: u64| model.as_ref().map_or(Err("no model".to_owned()), |own| own.timing(size));
    let host = sandbox.host.clone();
    let disk = match &model {
        Some(_) => config.disk_like(file.folder(), host, Some(&fit)),
        None => config.disk(file.folder(), host),
    };
    let disk = disk.map_err(|error| file.place(error))?;
    let ended = crate::signals()?;
    let server = Server::start(&config, file.folder(), disk, tell).map_err(|e| file.place(e))?;
    let (disk, clients) = (server.disk.clone(), server.clients.clone());
    let title = format!("disk {}", file.file.display());
    let shared = disk.clone();
    let ledger = move || {
        let cpu = crate::sandbox::cpu().as_secs_f64();
        shared.account.ledger(&title, env!("CARGO_PKG_VERSION"), cpu)
    };
    if let Some(model) = &model {
        crate::print(&format!("as slow as {}\n", model.words()))?;
    }
    if let Some(address) = server.address {
        crate::print(&format!("serving nbd://{address}\n"))?;
    }
    if let Some(address) = server.datagrams {
        crate::print(&format!("serving transactions over UDP at {address}\n"))?;
    }
    if let Some(portal) = server.portal {
        crate::print(&format!("serving iscsi://{portal}/{}/0\n", disk.unit.name()))?;
    }
    if let Some(socket) = &config.socket {
        let socket = file.folder().join(socket);
        crate::print(&format!("serving nbd+unix://?socket={}\n", socket.display()))?;
    }
    ticket::tell(server.transfers)?;
    let asked = ledger.clone();
    let answer = move |what: &str| match what {
        "ledger" => value(&asked()),
        "clients" => Ok(json!(clients.load(Ordering::Relaxed))),
        _ => Err("ask with {\"show\": \"ledger\"} or {\"show\": \"clients\"}".to_owned()),
    };
    until_ended(arguments, &ended, answer, || {
        server.disk.medium.flush()?;
        Ok(ledger())
    })
}
