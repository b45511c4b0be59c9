//! A real transfer between two processes, with measurements of both ends, the kernel and the path.

mod measurement;
pub(crate) mod meter;
pub(crate) mod receiver;
pub(crate) mod sender;
mod setting;

pub use measurement::{Activity, Goodput, Latency, Measurement, Side, TcpChange};
pub use setting::{CopyIn, MESSAGE_MAX, Pause, Placement, Relay, STREAMS_MAX, Setting, Workload};

use crate::namespace::{Hosts, Isolation};
use crate::relay;
use crate::sample::{Sampled, Sampler};
use crate::worker::{Reply, Request, Worker, reply};
use lastmeter_linux::cores;
use lastmeter_linux::counters::{CounterChange, Counters};
use lastmeter_linux::sys;
use lastmeter_linux::tcp_info::TcpInfo;
use lastmeter_linux::{Doing, Error, Result, wrong};
use serde::{Deserialize, Serialize};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The congestion control available in every kernel and to every user. BBR would add pacing timers and
/// probing; between hosts joined by a veth pair there is nothing to probe.
const CONGESTION: &str = "reno";

/// Load of other programs allowed in a quiet run, in CPUs: two ticks in a fifth of a second.
const QUIET: f64 = 0.1;

/// Most other threads ready to run on a quiet machine.
const CROWD: f64 = 0.25;
/// Between two checks for others while waiting.
const CROWD_EVERY: Duration = Duration::from_millis(20);

/// Other threads ready to run, mean of a few samples over some milliseconds.
fn crowd() -> Result<f64> {
    const LOOKS: u32 = 4;
    let mut sum = 0;
    for _ in 0..LOOKS {
        sum += lastmeter_linux::counters::runnable_others()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(sum as f64 / f64::from(LOOKS))
}

/// A thread's sample of itself: counts and seconds since it started.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds of the monotonic clock, the same on both sides.
    pub at: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Messages finished.
    pub messages: u64,
    /// System calls that moved data.
    pub calls: u64,
    /// Seconds run on a CPU.
    pub run: f64,
    /// Seconds ready to run while something else ran.
    pub wait: f64,
    /// Seconds in the application's own delays.
    pub paused: f64,
    /// The connection.
    pub tcp: TcpInfo,
}

/// One thread's measurements.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Thread {
    /// Seconds in user mode. The kernel splits by its tick: coarse below 0.1 s.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
    /// The core it ended on.
    pub core: usize,
    /// Seconds from request to reply.
    pub latencies: Vec<f64>,
    /// Of its zero-copy sends, the fraction copied after all.
    pub zero_copy_copied: Option<f64>,
    /// In order of time; the first at the start, the last at the end.
    pub samples: Vec<Sample>,
}

/// One end's measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    /// The buffer that the kernel granted, bytes of memory.
    pub(crate) buffer: u64,
    pub(crate) threads: Vec<Thread>,
}

/// Creates two hosts, runs one transfer, and removes them.
///
/// # Errors
/// A wrong setting, missing privileges (a relay requires namespaces), or a helper that failed.
pub fn run(setting: &Setting) -> Result<Measurement> {
    setting.check()?;
    Hosts::open(setting.relay.is_some())?.run(setting)
}

/// The cores of senders and receivers, one per stream; empty leaves them free.
pub(crate) fn place(setting: &Setting, allowed: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
    let streams = setting.streams as usize;
    match setting.placement {
        Placement::Free => Ok((Vec::new(), Vec::new())),
        Placement::SameCore => {
            let core = *allowed.last().expect("a process may run somewhere");
            Ok((vec![core; streams], vec![core; streams]))
        }
        Placement::OtherCore if allowed.len() < 2 => {
            wrong("placement", "OtherCore on a machine with one core", "SameCore or Free")
        }
        Placement::OtherCore => {
            let pairs = allowed.len() / 2;
            let of = |side: usize| (0..streams).map(|i| allowed[2 * (i % pairs) + side]).collect();
            Ok((of(0), of(1)))
        }
    }
}

impl Hosts {
    /// Runs one transfer between the hosts.
    ///
    /// # Errors
    /// A wrong setting (a relay in the setting must be there), or a helper that failed.
    pub fn run(&mut self, setting: &Setting) -> Result<Measurement> {
        setting.check()?;
        if setting.relay.is_some() != self.relay.is_some() {
            let found = format!("{:?}", setting.relay);
            return wrong("relay", found, "what the hosts were opened with");
        }
        self.configure(setting.mtu, setting.offload, setting.own_checksums)?;
        let before = crowd()?;
        let (senders, receivers) = place(setting, &cores::allowed()?)?;
        let competitor = self.start_competitor(setting, &receivers)?;
        self.start_relay(setting)?;
        let job = receiver::Job {
            setting: setting.clone(),
            address: self.receiver_address(),
            cores: receivers,
        };
        self.receiver.ask(&Request::Receive(job))?;
        let port = reply!(self.receiver, "listen", Reply::Listening { port } => port);
        let to = SocketAddrV4::new(self.receiver_address(), port);
        let congestion = CONGESTION.to_owned();
        let job = sender::Job { setting: setting.clone(), to, cores: senders, congestion };
        self.sender.ask(&Request::Send(job))?;
        reply!(self.sender, "connect", Reply::Connected => ());
        let (counters, sampled) = self.watch(setting)?;
        let sender = end_of(&mut self.sender, "send")?;
        let receiver = end_of(&mut self.receiver, "receive")?;
        drop(competitor);
        let relayed = self.stop_relay()?;
        let crowd = f64::midpoint(before, crowd()?);
        let m =
            measurement::summarise(setting, self.isolation, sender, receiver, counters, relayed)?;
        Ok(Measurement { crowd, sampled, ..m })
    }

    /// Waits until other programs are quiet and runs a transfer, repeating it while they disturb it, until
    /// `deadline`; returns the least disturbed run. Others can only add to a cost, so this is the
    /// machine's own cost.
    ///
    /// # Errors
    /// As [`Hosts::run`].
    pub fn run_quiet(&mut self, setting: &Setting, deadline: Instant) -> Result<Measurement> {
        let mut best: Option<Measurement> = None;
        loop {
            while crowd()? > CROWD && Instant::now() < deadline {
                std::thread::sleep(CROWD_EVERY);
            }
            let next = self.run(setting)?;
            let noise = |m: &Measurement| m.others + m.crowd;
            if best.as_ref().is_none_or(|best| noise(&next) < noise(best)) {
                best = Some(next);
            }
            let quiet = |m: &Measurement| m.others <= QUIET && m.crowd <= CROWD;
            match best {
                Some(best) if quiet(&best) || Instant::now() >= deadline => return Ok(best),
                _ => {}
            }
        }
    }

    /// Runs each setting once per round, one after the other, so that drift of the machine's speed affects all of them
    /// and shows in their spread. A run that other programs disturb is retried for `patience`.
    ///
    /// # Errors
    /// As [`Hosts::run`].
    pub fn run_in_turn(
        &mut self,
        settings: &[Setting],
        rounds: usize,
        patience: std::time::Duration,
    ) -> Result<Vec<Vec<Measurement>>> {
        let mut runs: Vec<Vec<Measurement>> = settings.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (runs, setting) in runs.iter_mut().zip(settings) {
                runs.push(self.run_quiet(setting, Instant::now() + patience)?);
            }
        }
        Ok(runs)
    }

    fn start_competitor(&self, setting: &Setting, receivers: &[usize]) -> Result<Option<Worker>> {
        if !setting.competitor {
            return Ok(None);
        }
        let mut worker = Worker::spawn()?;
        worker.done(&Request::Spin { core: receivers.first().copied() })?;
        Ok(Some(worker))
    }

    fn start_relay(&mut self, setting: &Setting) -> Result<()> {
        let (Some(relay), Some(what)) = (&mut self.relay, setting.relay) else { return Ok(()) };
        let rate = what.rate.map(|r| r.as_bits() as f64);
        let way = relay::Way { rate, ..relay::Way::wire(what.delay.as_secs_f64()) };
        relay.done(&Request::Relay(relay::Job { out: way, back: way }))
    }

    fn stop_relay(&mut self) -> Result<Option<relay::Relayed>> {
        let Some(relay) = &mut self.relay else { return Ok(None) };
        relay.ask(&Request::Stop)?;
        Ok(Some(reply!(relay, "stop relaying", Reply::Relayed(relayed) => relayed)))
    }

    /// Sleeps through the transfer, samples its measured part or looks at what waits there, and reads the counters when
    /// that starts and ends.
    fn watch(&mut self, setting: &Setting) -> Result<(CounterChange, Option<Sampled>)> {
        let seconds = |d: lastmeter_base::Duration| Duration::from_secs_f64(d.as_secs_f64());
        let processes: &[u32] = match self.isolation {
            Isolation::Loopback => &[self.sender.pid()],
            _ => &[self.sender.pid(), self.receiver.pid()],
        };
        std::thread::sleep(seconds(setting.warm_up));
        let before = Counters::now(processes)?;
        self.sampler.as_ref().map(Sampler::begin).transpose()?;
        match &mut self.looking {
            Some(looking) => looking.look(seconds(setting.duration)),
            None => std::thread::sleep(seconds(setting.duration)),
        }
        let sampled = self.sampler.as_ref().map(Sampler::end).transpose()?;
        Ok((Counters::now(processes)?.since(&before), sampled))
    }
}

/// Runs one end of a transfer: `one` moves the data of a stream, each in its own thread and on its own
/// core. `buffer` is the option for the size of the socket's buffer.
fn on_threads(
    streams: &[TcpStream],
    buffer: i32,
    cores: &[usize],
    one: impl Fn(&TcpStream, Option<usize>) -> Result<Thread> + Sync,
) -> Result<End> {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let buffer = sys::option(streams[0].as_fd(), libc::SOL_SOCKET, buffer)
        .doing("reading the size of the buffer")?;
    let panicked = |_| {
        let (doing, found) = ("move data".to_owned(), "its thread panicked".to_owned());
        Err(Error::Worker { doing, found })
    };
    let threads = std::thread::scope(|scope| {
        let start = |(i, stream)| {
            let one = &one;
            scope.spawn(move || one(stream, cores.get(i).copied()))
        };
        let running: Vec<_> = streams.iter().enumerate().map(start).collect();
        let joined = running.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
        joined.collect::<Result<_>>()
    })?;
    Ok(End { buffer: buffer as u64, threads })
}

fn end_of(worker: &mut Worker, doing: &str) -> Result<End> {
    Ok(reply!(worker, doing, Reply::End(end) => end))
}

/// Seconds since 1970.
pub(crate) fn date() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// The kernel's release, as `uname -r` prints it.
pub(crate) fn kernel() -> Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .doing("reading the kernel's release")
        .map(|s| s.trim().to_owned())
}
