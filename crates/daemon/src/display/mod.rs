//! `lastmeterd display`: a screen on the network, what draws on it, what it looks like, and what it costs beside
//! another server.

mod bench;
mod client;
mod delay;
mod fair;
mod feed;
mod picture;
mod profile;
mod scroll;

use crate::device::{File, Run, tell, until_ended, value};
use crate::measured::Bench;
use crate::sandbox::Ticking;
use crate::{Complaint, Report, ticket};
use lastmeter_device::display::server::{Config, Server};
use lastmeter_plugin::host::{Host, Limits};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Serve a display as its file says, until interrupted; its ledger is printed at the end
    Run(Run),
    /// Say whether a display's file is right, and if not, what is wrong
    Check(File),
    /// A ledger of a running display
    Show(Show),
    /// The device's key and address, by which tickets name it
    Identity(File),
    /// Save what a viewer sees as a picture (PNG)
    Shot(client::Shot),
    /// Draw: a colour, a picture, a copy
    Draw(client::Draw),
    /// Show an X screen on a display, and send keys and the pointer back
    Feed(feed::Feed),
    /// What a display on the network must carry: the X packets of a program, and how many wait for an answer
    Profile(profile::Profile),
    /// Measure it beside Xtigervnc where that is installed; `delay`: a key to its glyph, beside the X screen itself;
    /// `fair`: what viewers of unequal appetite get
    Bench(Bench),
}

#[derive(clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    file: File,
    /// Of updates, from what was drawn to what was sent; or of commands
    #[arg(default_value = "updates", value_parser = ["updates", "commands"])]
    which: String,
}

pub(crate) fn run(command: Command, quick: bool) -> Result<Report, Complaint> {
    match command {
        Command::Run(arguments) => serve(&arguments),
        Command::Check(file) => check(&file),
        Command::Show(arguments) => arguments.file.show(&arguments.which),
        Command::Identity(file) => ticket::identity(&file, read(&file)?.transfer.as_ref()),
        Command::Shot(arguments) => client::shot(&arguments),
        Command::Draw(arguments) => client::draw(&arguments),
        Command::Feed(arguments) => feed::feed(&arguments),
        Command::Profile(arguments) => profile::profile(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments, quick),
    }
}

fn read(file: &File) -> Result<Config, Complaint> {
    Config::parse(&file.text()?).map_err(|error| file.place(error))
}

fn check(file: &File) -> Result<Report, Complaint> {
    let host = Arc::new(Host::new(Limits::default())?);
    let display = read(file)?.display(file.folder(), host).map_err(|error| file.place(error))?;
    Ok(file.good(display.access.names()))
}

fn serve(arguments: &Run) -> Result<Report, Complaint> {
    let file = &arguments.file;
    let config = read(file)?;
    let sandbox = Ticking::new(Limits::default())?;
    let host = sandbox.host.clone();
    let display = config.display(file.folder(), host).map_err(|error| file.place(error))?;
    let ended = crate::signals()?;
    let server = Server::start(&config, file.folder(), display, tell).map_err(|e| file.place(e))?;
    if let Some(address) = server.viewers {
        crate::print(&format!("serving vnc://{address}\n"))?;
    }
    if let Some(address) = server.programs {
        crate::print(&format!("drawn on at {address}\n"))?;
    }
    if let Some(socket) = &config.socket {
        crate::print(&format!("drawn on at {}\n", file.folder().join(socket).display()))?;
    }
    ticket::tell(server.transfers)?;
    let (display, clients) = (server.display.clone(), server.clients.clone());
    let title = format!("display {}", file.file.display());
    let ledger = move |which: &str| {
        let account = if which == "commands" { &display.commands } else { &display.updates };
        let cpu = crate::sandbox::cpu().as_secs_f64();
        account.ledger(&format!("{title}: {which}"), env!("CARGO_PKG_VERSION"), cpu)
    };
    let asked = ledger.clone();
    let answer = move |what: &str| match what {
        "updates" | "commands" => value(&asked(what)),
        "clients" => {
            let [viewers, programs] = clients.each_ref().map(|count| count.load(Ordering::Relaxed));
            Ok(json!({ "viewers": viewers, "programs": programs }))
        }
        _ => Err("show updates, commands or clients".to_owned()),
    };
    until_ended(arguments, &ended, answer, || Ok(ledger("updates")))
}
