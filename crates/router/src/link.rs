//! The control processor's way to the port processor: a Unix socket, and how that process is found or started.

use crate::in_band::Asked;
use crate::message::{self, Command, Report};
use std::io::{BufReader, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the control processor waits for a port processor to begin.
const BEGINS: Duration = Duration::from_secs(20);
/// How a port processor is started: the program and its arguments.
pub type Start = Box<dyn Fn() -> std::process::Command + Send + Sync>;

/// The way to the port processor.
pub(crate) struct Link {
    writer: BufWriter<UnixStream>,
    reader: BufReader<UnixStream>,
    /// How long the stages of the last command took, in seconds.
    pub(crate) took: Vec<(String, f64)>,
    /// Port processors that have ended.
    pub(crate) ended: Vec<String>,
}

impl Link {
    pub(crate) fn open(socket: &Path) -> std::io::Result<Link> {
        let stream = UnixStream::connect(socket)?;
        let reader = BufReader::new(stream.try_clone()?);
        let writer = BufWriter::with_capacity(1 << 18, stream);
        Ok(Link { writer, reader, took: Vec::new(), ended: Vec::new() })
    }
    pub(crate) fn send(&mut self, commands: &[Command]) -> std::io::Result<()> {
        commands.iter().try_for_each(|command| message::write(&mut self.writer, command))?;
        self.writer.flush()
    }
    /// Sends, and waits until all is in effect; what the port processor could not do, of this and of what was sent
    /// before.
    ///
    /// # Errors
    /// If it is gone.
    pub(crate) fn sync(&mut self, commands: &[Command]) -> std::io::Result<Vec<String>> {
        self.send(commands)?;
        self.send(&[Command::Sync])?;
        let mut wrong = Vec::new();
        self.took.clear();
        loop {
            match message::read::<Report>(&mut self.reader)? {
                Some(Report::Done) => return Ok(wrong),
                Some(Report::Wrong(why)) => wrong.push(why),
                Some(Report::Took(stages)) => self.took = stages,
                Some(Report::Ended(which)) => self.ended.push(which),
                Some(_) => {}
                None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
    /// As [`Link::sync`]; what could not be done is an error, too.
    pub(crate) fn order(&mut self, commands: &[Command]) -> Result<(), String> {
        let gone = |error: std::io::Error| format!("the port processor is gone: {error}");
        let wrong = self.sync(commands).map_err(gone)?;
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
    /// The hops of addresses, 0 where there is no route.
    pub(crate) fn lookup(&mut self, addresses: Vec<IpAddr>) -> Result<Vec<u32>, String> {
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        let gone = |error: std::io::Error| format!("the port processor is gone: {error}");
        self.send(&[Command::Lookup(addresses)]).map_err(gone)?;
        loop {
            match message::read::<Report>(&mut self.reader).map_err(gone)? {
                Some(Report::Found(hops)) => return Ok(hops),
                Some(_) => {}
                None => return Err("the port processor has ended".to_owned()),
            }
        }
    }
    /// What packets have asked since the last time.
    pub(crate) fn asked(&mut self) -> Result<Vec<(u16, Asked)>, String> {
        self.send(&[Command::Asked]).map_err(|error| error.to_string())?;
        loop {
            match message::read::<Report>(&mut self.reader) {
                Ok(Some(Report::Asked(asked))) => return Ok(asked),
                Ok(Some(_)) => {}
                Ok(None) => return Err("the port processor has ended".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    /// The messages of RSVP that have arrived since the last time.
    pub(crate) fn signals(&mut self) -> Result<Vec<(u16, Vec<u8>)>, String> {
        self.send(&[Command::Signals]).map_err(|error| error.to_string())?;
        loop {
            match message::read::<Report>(&mut self.reader) {
                Ok(Some(Report::Signals(signals))) => return Ok(signals),
                Ok(Some(_)) => {}
                Ok(None) => return Err("the port processor has ended".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    /// Asks for a part of its state.
    pub(crate) fn show(&mut self, what: &str) -> Result<serde_json::Value, String> {
        self.send(&[Command::Show(what.to_owned())]).map_err(|error| error.to_string())?;
        loop {
            match message::read::<Report>(&mut self.reader) {
                Ok(Some(Report::Shown(text))) => {
                    return serde_json::from_str(&text).map_err(|error| error.to_string());
                }
                Ok(Some(_)) => {}
                Ok(None) => return Err("the port processor has ended".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// Finds the port processor, or starts one, in a session of its own so that it outlives us.
pub(crate) fn connect(run: &Path, start: &Start) -> Result<Link, String> {
    let socket = run.join("data.sock");
    // One that is being killed may still be reached, and no longer answers.
    let found = Link::open(&socket).and_then(|mut link| link.sync(&[]).map(|_| link));
    if let Ok(link) = found {
        return Ok(link);
    }
    let log = run.join("port-processor.log");
    let place = |error: std::io::Error| format!("{}: {error}", log.display());
    let output = std::fs::File::create(&log).map_err(place)?;
    let mut command = start();
    command.stdin(std::process::Stdio::null());
    command.stdout(output.try_clone().map_err(place)?).stderr(output);
    let mut child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
    let began = Instant::now();
    while began.elapsed() < BEGINS {
        if let Ok(link) = Link::open(&socket) {
            // Nobody waits for it here: whoever ends first leaves the other alone.
            std::thread::spawn(move || child.wait());
            return Ok(link);
        }
        if let Ok(Some(_)) = child.try_wait() {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("the port processor did not begin: {}", said.trim()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    Err("the port processor did not begin in time".to_owned())
}
