//! What a display on the network must carry: the packets between a program and its X server, and how many of them wait
//! for an answer (Netstation's profile of X: N-08).

use crate::{Complaint, Report};
use serde_json::json;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Profile {
    /// The X screen on which the program runs [default: that of DISPLAY]
    #[arg(long)]
    x: Option<String>,
    /// End the program after so many seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// The most bytes of a packet: what TCP carries over Ethernet.
const SEGMENT: usize = 1448;
/// Displays' numbers that are tried for the one in between.
const NUMBERS: std::ops::Range<u16> = 90..200;
/// How often rates are noted.
const TICK: Duration = Duration::from_millis(250);

/// What passed so far.
#[derive(Default)]
struct Passed {
    /// Packets from the program.
    packets: AtomicU64,
    /// Answers to it.
    answers: AtomicU64,
    /// Both ways.
    bytes: AtomicU64,
}

/// Counts answers in what an X server says: it begins with its setup; then come answers, events and errors of 32 bytes
/// each, answers with more (X11 protocol, sections 1 and 8).
#[derive(Default)]
struct Server {
    little: bool,
    greeted: bool,
    /// Bytes of the head that is being read.
    head: Vec<u8>,
    /// Bytes that are skipped.
    skip: u64,
}

impl Server {
    /// How many answers begin in these bytes.
    fn answers(&mut self, mut bytes: &[u8]) -> u64 {
        let mut count = 0;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len() as u64);
            self.skip -= skipped;
            bytes = &bytes[skipped as usize..];
            let wanted = if self.greeted { 32 } else { 8 };
            let taken = (wanted - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.head.len() < wanted {
                break;
            }
            let order = |bytes: &[u8]| {
                let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
                if self.little {
                    bytes.iter().rev().fold(0, join)
                } else {
                    bytes.iter().fold(0, join)
                }
            };
            self.skip = match (self.greeted, self.head[0]) {
                (false, _) => 4 * order(&self.head[6..8]),
                (true, 1 | 35) => 4 * order(&self.head[4..8]),
                _ => 0,
            };
            count += u64::from(self.greeted && self.head[0] == 1);
            self.greeted = true;
            self.head.clear();
        }
        count
    }
}

/// The socket of an X screen on this host.
fn socket(screen: &str) -> Result<PathBuf, Complaint> {
    let number = screen.strip_prefix(':').and_then(|rest| rest.split('.').next());
    let number = number.filter(|text| text.parse::<u16>().is_ok());
    let number = number.ok_or(format!("{screen:?}: an X screen of this host is written :1"))?;
    Ok(PathBuf::from(format!("/tmp/.X11-unix/X{number}")))
}

/// The other side of a connection: bytes pass, and are counted.
fn pass(passed: &Arc<Passed>, program: UnixStream, server: UnixStream) -> std::io::Result<()> {
    let little = Arc::new(AtomicBool::new(true));
    let (mut from, mut to) = (program.try_clone()?, server.try_clone()?);
    let (counted, order) = (passed.clone(), little.clone());
    std::thread::spawn(move || {
        let (mut bytes, mut first) = (vec![0; 64 << 10], true);
        while let Ok(len) = from.read(&mut bytes) {
            if std::mem::take(&mut first) && len > 0 {
                order.store(bytes[0] == b'l', Relaxed);
            }
            counted.packets.fetch_add(len.div_ceil(SEGMENT) as u64, Relaxed);
            counted.bytes.fetch_add(len as u64, Relaxed);
            if len == 0 || to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to, passed) = (server, program, passed.clone());
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        let mut parser: Option<Server> = None;
        while let Ok(len) = from.read(&mut bytes) {
            let little = little.load(Relaxed);
            let parser = parser.get_or_insert_with(|| Server { little, ..Server::default() });
            passed.answers.fetch_add(parser.answers(&bytes[..len]), Relaxed);
            passed.bytes.fetch_add(len as u64, Relaxed);
            if len == 0 || to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    Ok(())
}

/// A listening screen, whose socket goes at its end.
struct Between {
    path: PathBuf,
    number: u16,
}

impl Drop for Between {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(crate) fn profile(arguments: &Profile) -> Result<Report, Complaint> {
    let own = std::env::var("DISPLAY").ok();
    let screen = arguments.x.clone().or(own).ok_or("give the X screen with --x :1")?;
    let real = socket(&screen)?;
    UnixStream::connect(&real).map_err(|error| format!("{}: {error}", real.display()))?;
    let made = NUMBERS.into_iter().find_map(|number| {
        let path = PathBuf::from(format!("/tmp/.X11-unix/X{number}"));
        UnixListener::bind(&path).ok().map(|listener| (listener, Between { path, number }))
    });
    let (listener, between) = made.ok_or("no free X screen from :90 on")?;
    let passed = Arc::<Passed>::default();
    let accepted = passed.clone();
    let wrong = Arc::new(Mutex::new(None));
    let told = wrong.clone();
    std::thread::spawn(move || {
        for program in listener.incoming().flatten() {
            let joined = UnixStream::connect(&real);
            let joined = joined.and_then(|server| pass(&accepted, program, server));
            if let Err(error) = joined {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        }
    });
    let name = arguments.program[0].to_string_lossy().into_owned();
    let mut child = Command::new(&arguments.program[0])
        .args(&arguments.program[1..])
        .env("DISPLAY", format!(":{}", between.number))
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    let (began, mut rates, mut before) = (Instant::now(), Vec::new(), [0; 3]);
    let now = || [&passed.packets, &passed.answers, &passed.bytes].map(|count| count.load(Relaxed));
    let mut last = began;
    while child.try_wait()?.is_none() {
        let over = |seconds| began.elapsed().as_secs_f64() >= seconds;
        if arguments.seconds.is_some_and(over) {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(TICK);
        let (counts, elapsed) = (now(), last.elapsed().as_secs_f64());
        last = Instant::now();
        rates.push([0, 1, 2].map(|at| (counts[at] - before[at]) as f64 / elapsed));
        before = counts;
    }
    if let Some(error) = wrong.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(Complaint(format!("{screen}: {error}")));
    }
    let (total, seconds) = (now(), began.elapsed().as_secs_f64());
    let mean = total.map(|count| count as f64 / seconds);
    let peak = [0, 1, 2].map(|at| rates.iter().map(|rate| rate[at]).fold(0.0, f64::max));
    Ok(report(&name, mean, peak))
}

fn report(name: &str, mean: [f64; 3], peak: [f64; 3]) -> Report {
    let bits = |bytes: f64| bytes * 8e-6;
    let [mean_packets, mean_answers, mean_bytes] = mean;
    let [peak_packets, peak_answers, peak_bytes] = peak;
    let text = format!(
        "{name}                     mean      peak   published, up to\n\
         packets a second     {mean_packets:>9.0} {peak_packets:>9.0}       2000\n\
         that wait for answer {mean_answers:>9.0} {peak_answers:>9.0}       1000\n\
         Mbit/s               {:>9.2} {:>9.2}          2\n",
        bits(mean_bytes),
        bits(peak_bytes),
    );
    let rates = |rates: [f64; 3]| {
        let [packets, answers, bytes] = rates;
        let bits = bytes * 8.0;
        json!({ "packets": packets, "answers": answers, "bits": bits })
    };
    let json = json!({ "program": name, "mean": rates(mean), "peak": rates(peak) });
    Report { text, json: vec![json], good: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_however_bytes_are_cut() {
        let setup = [&[1, 0, 11, 0, 0, 0, 2, 0][..], &[9; 8]].concat();
        let answer = |len: u32| {
            let head = [&[1, 0, 0, 0][..], &len.to_le_bytes(), &[1; 24]].concat();
            [head, vec![1; 4 * len as usize]].concat()
        };
        let event = [&[28][..], &[1; 31]].concat();
        let all = [setup, answer(0), event.clone(), answer(5), event, answer(1)].concat();
        for cut in 1..all.len() {
            let mut server = Server { little: true, ..Server::default() };
            let count: u64 = all.chunks(cut).map(|bytes| server.answers(bytes)).sum();
            assert_eq!(count, 3, "in pieces of {cut}");
        }
    }
}
