//! `lastmeterd camera`: frames for those who ask, what they get, and what it costs.

mod bench;
mod client;
mod loops;
mod relay;
mod sizes;

use crate::device::{File, Run, tell, until_ended, value};
use crate::sandbox::Ticking;
use crate::{Complaint, Report, ticket};
use lastmeter_device::camera::gate::Camera;
use lastmeter_device::camera::server::{Config, Server};
use lastmeter_plugin::host::{Host, Limits};
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Serve a camera as its file says, until interrupted; its ledger is printed at the end
    Run(Run),
    /// Say whether a camera's file is right, and if not, what is wrong
    Check(File),
    /// The ledger of a running camera, its traffic, or how well its packets were shaped
    Show(Show),
    /// The device's key and address, by which tickets name it
    Identity(File),
    /// Ask for frames and save them: ask 127.0.0.1:8555 --frames 1 --out frame.jpg
    Ask(client::Ask),
    /// Receive for some time, and count: frames, losses, latency from the picture's own time
    Watch(client::Watch),
    /// Look for cameras that announce themselves: find --interface 127.0.0.1
    Find(client::Find),
    /// Measure glass to glass beside ffmpeg, the traffic of a room where nothing happens, both loops at a receiver that
    /// is slowed down, how shaping spares its buffer, and published tables of frame rates again: bench sizes
    Bench(bench::Bench),
}

#[derive(clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    file: File,
    /// Of frames, from when they are wanted until they are sent; or counters
    #[arg(default_value = "frames", value_parser = ["frames", "traffic", "shaping"])]
    which: String,
}

pub(crate) fn run(command: Command, quick: bool) -> Result<Report, Complaint> {
    match command {
        Command::Run(arguments) => serve(&arguments),
        Command::Check(file) => check(&file),
        Command::Show(arguments) if arguments.which == "frames" => arguments.file.show("frames"),
        Command::Show(arguments) => {
            let value = arguments.file.ask(&arguments.which)?;
            let text = format!("{}\n", serde_json::to_string_pretty(&value)?);
            Ok(Report { text, json: vec![value], good: true })
        }
        Command::Identity(file) => ticket::identity(&file, read(&file)?.transfer.as_ref()),
        Command::Ask(arguments) => client::ask(&arguments),
        Command::Watch(arguments) => client::watch(&arguments),
        Command::Find(arguments) => client::look(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments, quick),
    }
}

fn read(file: &File) -> Result<Config, Complaint> {
    Config::parse(&file.text()?).map_err(|error| file.place(error))
}

fn check(file: &File) -> Result<Report, Complaint> {
    let host = Arc::new(Host::new(Limits::default())?);
    let camera = read(file)?.camera(file.folder(), host).map_err(|error| file.place(error))?;
    Ok(file.good(camera.access.names()))
}

/// What was sent, and what it took.
fn traffic(camera: &Camera) -> Value {
    json!({
        "packets": camera.packets.load(Relaxed),
        "bytes": camera.bytes.load(Relaxed),
        "captured": camera.store.captured(),
        "sent": camera.account.done(),
        "viewers": camera.viewers.load(Relaxed),
    })
}

fn serve(arguments: &Run) -> Result<Report, Complaint> {
    let file = &arguments.file;
    let config = read(file)?;
    let sandbox = Ticking::new(Limits::default())?;
    let host = sandbox.host.clone();
    let camera = config.camera(file.folder(), host).map_err(|error| file.place(error))?;
    let ended = crate::signals()?;
    let server = Server::start(&config, file.folder(), camera, tell).map_err(|e| file.place(e))?;
    if let Some(address) = server.viewers {
        crate::print(&format!("serving http://{address}/ and rtsp://{address}/\n"))?;
    }
    if let Some(address) = server.receivers {
        crate::print(&format!("receivers ask {address}\n"))?;
    }
    ticket::tell(server.transfers)?;
    let camera = server.camera;
    let title = format!("camera {}", file.file.display());
    let own = camera.clone();
    let ledger = move || {
        let cpu = crate::sandbox::cpu().as_secs_f64();
        let mut ledger = own.account.ledger(&title, env!("CARGO_PKG_VERSION"), cpu);
        ledger.verdict = Some(own.cycle.verdict());
        ledger
    };
    let asked = ledger.clone();
    let answer = move |what: &str| match what {
        "frames" => value(&asked()),
        "traffic" => Ok(traffic(&camera)),
        "shaping" => Ok(camera.certificate.lock().unwrap_or_else(PoisonError::into_inner).value()),
        _ => Err("show frames, traffic or shaping".to_owned()),
    };
    until_ended(arguments, &ended, answer, || Ok(ledger()))
}
