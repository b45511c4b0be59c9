//! `lastmeterd plugin`: tools for those who write plugins, and the way from a code server to an instance.

mod bench;
pub(crate) mod fetch;
mod keys;
mod replay;
mod server;
mod source;
mod workshop;

use crate::sandbox::Ticking;
use crate::{Complaint, Report};
use lastmeter_plugin::Kind;
use std::path::{Path, PathBuf};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Begin a plugin: a folder with a source that builds, and cases that test it
    New(workshop::New),
    /// Compile a plugin's folder, or an expression
    Build(workshop::Build),
    /// Say whether a module would be loaded, and if not, why
    Check(workshop::Check),
    /// Ask a plugin about the requests of a file, and compare its verdicts
    Test(workshop::Test),
    /// Ask a plugin about the packets of a capture
    Replay(replay::Replay),
    /// Make an owner's pair of keys
    Key(keys::Make),
    /// Sign a module, and put it into a code server's folder
    Sign(keys::Sign),
    /// Serve a folder of signed modules over HTTP
    Serve(server::Serve),
    /// Fetch a plugin from a code server, verify it and make an instance, with the time of each stage
    Fetch(fetch::Fetch),
    /// Measure what a request costs: native code, batches, one call each
    Bench(bench::Bench),
}

pub(crate) fn run(command: Command, quick: bool) -> Result<Report, Complaint> {
    match command {
        Command::New(arguments) => workshop::new(&arguments),
        Command::Build(arguments) => workshop::build(&arguments),
        Command::Check(arguments) => workshop::check(&arguments),
        Command::Test(arguments) => workshop::test(&arguments),
        Command::Replay(arguments) => replay::replay(&arguments),
        Command::Key(arguments) => keys::make(&arguments),
        Command::Sign(arguments) => keys::sign(&arguments),
        Command::Serve(arguments) => server::serve(&arguments),
        Command::Fetch(arguments) => fetch::fetch(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments, quick),
    }
}

/// A plugin that counts packets, for measurements of others.
pub(crate) fn counter() -> Result<Vec<u8>, Complaint> {
    Ok(wat::parse_str(bench::COUNTER)?)
}

/// By its name, for the command line.
fn kind(name: &str) -> Result<Kind, String> {
    let names = Kind::ALL.map(Kind::name).join(", ");
    Kind::named(name).ok_or(format!("{name:?} is no kind of request: {names}"))
}

/// Reads a file of at most so many bytes.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, Complaint> {
    Ok(lastmeter_linux::files::read(path, most)?)
}

fn read_text(path: &Path, most: usize) -> Result<String, Complaint> {
    let text = String::from_utf8(read(path, most)?);
    text.map_err(|error| Complaint(format!("{}: {error}", path.display())))
}

/// Writes a whole file, or none.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Complaint> {
    let place = |error| Complaint(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(place)?;
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}", std::process::id()));
    let part = PathBuf::from(part);
    std::fs::write(&part, bytes).map_err(place)?;
    std::fs::rename(&part, path).map_err(place)
}

/// Seconds since 1970.
fn seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
