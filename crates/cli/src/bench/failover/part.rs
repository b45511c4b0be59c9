//! What each namespace does while links fail: a prober that changes routes over, a program that asks, one that answers.
//!
//! ```text
//! prober:  probe --first way--> peer --answer--> [Dual of the model] --changed?--> `ip route replace`
//! asker:   a datagram each millisecond --> echo --> when was it answered?
//! ```
//!
//! The decision is made by the model's own machine.

use lastmeter_base::{Duration, Time};
use lastmeter_linux::{Doing, Result};
use lastmeter_live::task::{Entry, Parent, Task};
use lastmeter_repro::machines::failover::{Dual, Network};
use lastmeter_rtc::Epoch;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Ports of probes and of the asker's datagrams.
const PROBES: u16 = 7700;
const ECHO: u16 = 7701;
/// From one question to the next: the resolution of what is measured.
pub(super) const EVERY: Duration = Duration::from_ms(1);
/// How often threads look whether they should end.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);
const LOOK_AT: Duration = Duration::from_ms(50);
/// Most questions of a run, which bounds the report.
const QUESTIONS_MAX: usize = 200_000;
/// The least that a wait can be: zero would mean no limit.
const WAIT_MIN: std::time::Duration = std::time::Duration::from_micros(10);
/// After so many answered probes in a row the first way is used again.
pub(super) const ANSWERS: u32 = 2;

/// How a node finds out that its first way has failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench) struct Probing {
    /// Its own address on the first way, and the one that it probes.
    pub(super) ends: [Ipv4Addr; 2],
    /// From one probe to the next, which is also how long an answer may take, in microseconds.
    pub(super) every: u64,
    /// So many unanswered ones in a row mean a failure.
    pub(super) misses: u32,
    /// Lines for `ip -batch` that make the first way the one that is used, and the second.
    pub(super) routes: [String; 2],
}

impl Probing {
    fn dual(&self) -> Dual {
        Dual::new(self.misses, ANSWERS)
    }

    fn every(&self) -> Duration {
        Duration::from_us(self.every)
    }

    /// The longest time from a failure to the change, by the model.
    pub(super) fn bound(&self) -> Duration {
        self.dual().recovery_max(self.every(), self.every())
    }
}

/// What one namespace has to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench) struct Job {
    /// Lines for `ip -batch` that set its routes up.
    pub(super) routes: String,
    /// If it has two ways.
    pub(super) probing: Option<Probing>,
    /// Its own address and the one of the other host, if it asks.
    pub(super) asks: Option<[Ipv4Addr; 2]>,
    /// Its own address, if it answers.
    pub(super) answers: Option<Ipv4Addr>,
}

/// When traffic begins.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::bench) enum Word {
    /// After this instant.
    Begin(Epoch),
    /// It ends.
    End,
}

/// What one namespace reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::bench) struct Report {
    /// When it changed over, in microseconds, and whether to the second way.
    pub(super) changes: Vec<(u64, bool)>,
    /// Questions that were sent.
    pub(super) asked: u64,
    /// When each answer came, in microseconds, in order.
    pub(super) answered: Vec<u64>,
}

/// Doing it, as a helper process.
pub(in crate::bench) struct Homed;

impl Task for Homed {
    const NAME: &'static str = "have two ways to another host";
    type Job = Job;
    type Word = Word;
    type Report = Report;

    fn run(job: &Job, parent: &mut Parent<'_>) -> Result<Report> {
        for (key, value) in
            [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/all/arp_announce", "2")]
        {
            let path = format!("/proc/sys/net/ipv4/{key}");
            std::fs::write(&path, value).doing(|| format!("writing {path}"))?;
        }
        ip(&job.routes)?;
        let probes = job.probing.as_ref().map(|probing| socket(probing.ends[0], PROBES));
        let asks = job.asks.map(|[own, _]| socket(own, ECHO));
        let echoes = job.answers.map(|own| socket(own, ECHO));
        let (probes, asks, echoes) = (probes.transpose()?, asks.transpose()?, echoes.transpose()?);
        parent.ready()?;
        let Word::Begin(epoch) = parent.hear::<Homed>()? else { return Ok(Report::default()) };
        let stop = &AtomicBool::new(false);
        let mut report = Report::default();
        thread::scope(|scope| {
            let prober = job.probing.as_ref().zip(probes.as_ref());
            let prober = prober.map(|(how, on)| scope.spawn(move || probe(how, on, epoch, stop)));
            let asker = job.asks.zip(asks.as_ref()).map(|([_, of], on)| {
                let heard = scope.spawn(move || answers(on, epoch, stop));
                (scope.spawn(move || ask(on, of, epoch, stop)), heard)
            });
            if let Some(on) = &echoes {
                scope.spawn(move || answer(on, stop));
            }
            // Anything that comes now means the end.
            while !parent.speaks(LOOK) {}
            stop.store(true, Ordering::Relaxed);
            if let Some(changes) = prober.and_then(|thread| thread.join().ok()) {
                report.changes = changes;
            }
            if let Some((asked, heard)) = asker {
                report.asked = asked.join().unwrap_or_default();
                report.answered = heard.join().unwrap_or_default();
            }
        });
        parent.hear::<Homed>()?;
        Ok(report)
    }
}

/// For the table of a program whose helpers may do this.
pub(crate) const TASK: Entry = Entry::of::<Homed>();

fn socket(own: Ipv4Addr, port: u16) -> Result<UdpSocket> {
    UdpSocket::bind((own, port)).doing(|| format!("taking {own}:{port}"))
}

/// Has `ip` do what these lines say.
pub(in crate::bench) fn ip(lines: &str) -> Result<()> {
    let what = "changing routes with `ip`";
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .doing(what)?;
    let mut input = child.stdin.take().expect("its input is piped");
    input.write_all(lines.as_bytes()).doing(what)?;
    drop(input);
    match child.wait().doing(what)?.success() {
        true => Ok(()),
        false => lastmeter_linux::wrong("ip -batch", lines, "lines that the kernel accepts"),
    }
}

/// Receives until `until`; `None` when it has come. What the network reports of earlier datagrams is not ours to judge.
fn receive(on: &UdpSocket, epoch: Epoch, until: Time) -> Option<([u8; 16], usize, SocketAddr)> {
    let mut bytes = [0; 16];
    loop {
        let left = until.saturating_since(epoch.now());
        if left == Duration::ZERO {
            return None;
        }
        let left = std::time::Duration::from_nanos(left.as_ps() / 1000);
        on.set_read_timeout(Some(left.max(WAIT_MIN))).ok()?;
        if let Ok((len, from)) = on.recv_from(&mut bytes) {
            return Some((bytes, len, from));
        }
    }
}

/// A datagram: whether it is an answer, and its number.
fn datagram(answer: bool, number: u64) -> [u8; 9] {
    let mut bytes = [u8::from(answer); 9];
    bytes[1..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn read(bytes: &[u8]) -> Option<(bool, u64)> {
    let number = u64::from_be_bytes(bytes.get(1..9)?.try_into().ok()?);
    (bytes.len() == 9 && bytes[0] < 2).then_some((bytes[0] == 1, number))
}

/// Probes the first way and changes over; returns when it did.
fn probe(how: &Probing, on: &UdpSocket, epoch: Epoch, stop: &AtomicBool) -> Vec<(u64, bool)> {
    let (mut dual, mut used) = (how.dual(), Network::First);
    let mut changes = Vec::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        // A failed interface refuses it; so it stays unanswered.
        let _ = on.send_to(&datagram(false, number), (how.ends[1], PROBES));
        // An answer gets its time however late the probe was.
        let due = epoch.now() + how.every();
        let mut answered = false;
        while let Some((bytes, len, from)) = receive(on, epoch, due) {
            match read(&bytes[..len]) {
                Some((false, number)) => drop(on.send_to(&datagram(true, number), from)),
                Some((true, of)) => answered |= of == number,
                None => {}
            }
        }
        let now = dual.probed(answered);
        if now != used {
            used = now;
            let second = now == Network::Second;
            // If the kernel refuses, nothing is answered, and the measurement shows it.
            let _ = ip(&how.routes[usize::from(second)]);
            changes.push((micros(epoch.now()), second));
        }
    }
    changes
}

/// Asks each millisecond; returns how often.
fn ask(on: &UdpSocket, of: Ipv4Addr, epoch: Epoch, stop: &AtomicBool) -> u64 {
    let (mut number, mut due) = (0, epoch.now());
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let _ = on.send_to(&datagram(false, number), (of, ECHO));
        due += EVERY;
        epoch.sleep_until(due);
    }
    number
}

/// When the answers came.
fn answers(on: &UdpSocket, epoch: Epoch, stop: &AtomicBool) -> Vec<u64> {
    let mut answered = Vec::new();
    while !stop.load(Ordering::Relaxed) && answered.len() < QUESTIONS_MAX {
        if let Some((bytes, len, _)) = receive(on, epoch, epoch.now() + LOOK_AT)
            && let Some((true, _)) = read(&bytes[..len])
        {
            answered.push(micros(epoch.now()));
        }
    }
    answered
}

/// Answers whatever is asked.
fn answer(on: &UdpSocket, stop: &AtomicBool) {
    let mut bytes = [0; 16];
    let _ = on.set_read_timeout(Some(LOOK));
    while !stop.load(Ordering::Relaxed) {
        let Ok((len, from)) = on.recv_from(&mut bytes) else { continue };
        if let Some((false, number)) = read(&bytes[..len]) {
            let _ = on.send_to(&datagram(true, number), from);
        }
    }
}

fn micros(at: Time) -> u64 {
    at.saturating_since(Time::START).as_ps() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_read_as_it_was_and_others_are_not() {
        assert_eq!(read(&datagram(true, 77)), Some((true, 77)));
        assert_eq!(read(&datagram(false, u64::MAX)), Some((false, u64::MAX)));
        assert_eq!(read(&[2; 9]), None);
        assert_eq!(read(&[1; 8]), None);
        assert_eq!(read(&[1; 16]), None);
    }
}
