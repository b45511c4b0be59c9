//! The program `lastmeterd`: what runs on devices. `lastmeter plugin` starts `lastmeterd plugin`.
//!
//! Exit status: 0 done; 1 ran, but the result fell short; 2 bad input.
//!
//! Rows: N-26.

mod audio;
mod camera;
mod device;
mod disk;
mod display;
mod measured;
mod model;
mod plugin;
mod router;
mod sandbox;
mod separation;
mod ticket;
mod wave;

use clap::{Parser, Subcommand};
use lastmeter_ledger::terminal::escaped;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Runs what belongs on devices: a router, a disk, a display, a camera, a speaker and microphone, owners' plugins.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Print only a machine-readable result on standard output
    #[arg(long, global = true)]
    json: bool,
    /// Do less: shorter benchmarks
    #[arg(long, global = true)]
    quick: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make, check, sign, fetch and measure plugins
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Serve a disk over iSCSI and NBD, with its owner's policies in front of every command
    #[command(subcommand)]
    Disk(disk::Command),
    /// Serve a screen to viewers and programs, each in its part of it
    #[command(subcommand)]
    Display(display::Command),
    /// Wave Video: figures and films of its studies, and its network with live routers
    #[command(subcommand)]
    Wave(wave::Command),
    /// Run an experiment whose nodes have plugins: what `lastmeter run` and `sweep` start
    #[command(hide = true)]
    Model(model::Arguments),
    /// Serve frames to receivers that set the pace, and to viewers with HTTP and RTSP
    #[command(subcommand)]
    Camera(camera::Command),
    /// Serve a speaker and a microphone, to which programs send and listen by RTSP and RTP
    #[command(subcommand)]
    Audio(audio::Command),
    /// Forward packets, with filters, plugins, queues and routes that change while it runs
    #[command(subcommand)]
    Router(router::Command),
}

/// What a command has to say: for people, and for programs.
struct Report {
    text: String,
    /// A line of JSON each.
    json: Vec<serde_json::Value>,
    /// Whether the result is what was asked for.
    good: bool,
}

/// Bad input or a fault, as a message for the user.
struct Complaint(String);

impl<T: std::fmt::Display> From<T> for Complaint {
    fn from(error: T) -> Complaint {
        Complaint(error.to_string())
    }
}

/// Prints. Control characters in names that clients and files chose do not reach the terminal.
fn print(text: &str) -> Result<(), Complaint> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(escaped(text, false).as_bytes()).and_then(|()| out.flush()))
}

/// A closed pipe is not an error: the reader has all it wants.
fn written(done: std::io::Result<()>) -> Result<(), Complaint> {
    match done {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Complaint(format!("cannot write standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Becomes true when the user or the system asks the program to end.
fn signals() -> Result<std::sync::Arc<std::sync::atomic::AtomicBool>, Complaint> {
    let ended = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
    let told = ended.clone();
    ctrlc::set_handler(move || told.store(true, std::sync::atomic::Ordering::Relaxed))?;
    Ok(ended)
}

#[global_allocator]
static HEAP: lastmeter_linux::heap::HugePages = lastmeter_linux::heap::HugePages;

fn main() -> ExitCode {
    let Arguments { json, quick, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let status = error.exit_code().try_into().unwrap_or(2);
            return written(error.print()).map_or_else(complain, |()| ExitCode::from(status));
        }
    };
    let done = match command {
        Command::Model(arguments) => return model::run(arguments),
        Command::Plugin(command) => plugin::run(command, quick),
        Command::Disk(command) => disk::run(command, quick),
        Command::Display(command) => display::run(command, quick),
        Command::Camera(command) => camera::run(command, quick),
        Command::Audio(command) => audio::run(command),
        Command::Router(command) => router::run(command, quick, json),
        Command::Wave(command) => wave::run(command),
    };
    let printed = done.and_then(|report| {
        match json {
            true => report.json.iter().try_for_each(|line| print(&format!("{line}\n")))?,
            false => print(&report.text)?,
        }
        Ok(report.good)
    });
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(complaint) => complain(complaint),
    }
}

fn complain(Complaint(words): Complaint) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "lastmeterd: {}", escaped(words.trim_end(), false));
    ExitCode::from(2)
}
