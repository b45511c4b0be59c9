//! The sending application: one thread per connection, on the core it was given.

use super::meter::{self, Meter, pause};
use super::{CopyIn, End, Setting, Thread, Workload, on_threads};
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsFd;
use std::thread;

/// Notifications of finished zero-copy sends are taken this often, in sends.
const DRAIN_EVERY: u64 = 64;

/// The sender's settings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) setting: Setting,
    pub(crate) to: SocketAddrV4,
    /// A core per stream; empty leaves them free.
    pub(crate) cores: Vec<usize>,
    /// `TCP_CONGESTION`.
    pub(crate) congestion: String,
}

/// Connects every stream.
pub(crate) fn connect(job: &Job) -> Result<Vec<TcpStream>> {
    (0..job.setting.streams).map(|_| connect_one(job)).collect()
}

fn connect_one(job: &Job) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None)
        .doing("opening the sender's socket")?;
    // The window scale is fixed when connecting, so buffers come first.
    if let Some(size) = job.setting.send_buffer {
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, size.0 as i32)
            .doing(|| format!("setting the send buffer to {size}"))?;
    }
    sys::set_text(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, &job.congestion)
        .doing(|| format!("choosing congestion control {}", job.congestion))?;
    if job.setting.copy_in == CopyIn::ZeroCopy {
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
            .doing("allowing zero-copy sends")?;
    }
    connect(&fd, &job.to).doing(|| format!("connecting to {}", job.to))?;
    let stream = TcpStream::from(fd);
    if job.setting.workload != Workload::Stream {
        stream.set_nodelay(true).doing("setting TCP_NODELAY")?;
    }
    Ok(stream)
}

/// Sends until the time is over, then shuts down.
pub(crate) fn run(job: &Job, streams: Vec<TcpStream>) -> Result<End> {
    on(&job.setting, &streams, &job.cores)
}

/// The same on these connections.
pub(crate) fn on(setting: &Setting, streams: &[TcpStream], cores: &[usize]) -> Result<End> {
    on_threads(streams, libc::SO_SNDBUF, cores, |stream, core| one(setting, stream, core))
}

fn one(setting: &Setting, mut stream: &TcpStream, core: Option<usize>) -> Result<Thread> {
    setting.placement.take(core)?;
    let mut source = Source::new(setting)?;
    let mut answer = vec![0u8; setting.message.0 as usize];
    let mut latencies = Vec::new();
    let mut meter = Meter::start(stream)?;
    let from = meter::now();
    let until = from + setting.warm_up.as_secs_f64() + setting.duration.as_secs_f64();
    let gap = setting
        .sender_rate
        .map(|rate| rate.time_for(setting.message).as_secs_f64() * f64::from(setting.streams));
    let mut ended = None;
    while ended.is_none() {
        let sent_at =
            if setting.workload == Workload::RequestResponse { meter::now() } else { 0.0 };
        let mut left = setting.message.0 as usize;
        while left > 0 {
            let n = source.send(stream, left).doing("sending")?;
            left -= n;
            meter.bytes += n as u64;
            meter.calls += 1;
            ended = meter.tick()?.filter(|&at| at >= until).or(ended);
            if ended.is_some() && left > 0 && setting.workload != Workload::RequestResponse {
                break;
            }
        }
        meter.messages += 1;
        if setting.workload == Workload::RequestResponse {
            stream.read_exact(&mut answer).doing("reading the reply")?;
            latencies.push(meter::now() - sent_at);
        }
        meter.paused += pause(setting.sender_pause);
        if let Some(gap) = gap {
            meter.paused += wait_until((from + meter.messages as f64 * gap).min(until));
        }
    }
    let copied = source.finish(stream);
    let thread = meter.finish(latencies, copied)?;
    let _ = stream.flush();
    let _ = stream.shutdown(std::net::Shutdown::Write);
    Ok(thread)
}

/// Sleeps until `at`, if in the future; returns the seconds it took.
fn wait_until(at: f64) -> f64 {
    let from = meter::now();
    if at <= from {
        return 0.0;
    }
    thread::sleep(std::time::Duration::from_secs_f64(at - from));
    meter::now() - from
}

/// Where the data comes from.
enum Source {
    Copy(Vec<u8>),
    ZeroCopy { data: &'static [u8], sends: u64, done: sys::ZeroCopyDone },
    File(File),
}

impl Source {
    fn new(setting: &Setting) -> Result<Source> {
        let data: Vec<u8> = (0..setting.message.0).map(|i| i as u8).collect();
        Ok(match setting.copy_in {
            CopyIn::Copy => Source::Copy(data),
            // The kernel may reference it after the call, so it lives as long as the process.
            CopyIn::ZeroCopy => Source::ZeroCopy {
                data: Vec::leak(data),
                sends: 0,
                done: sys::ZeroCopyDone::default(),
            },
            CopyIn::SendFile => {
                let what = "making a file in memory";
                let flags = rustix::fs::MemfdFlags::CLOEXEC;
                let fd = rustix::fs::memfd_create("message", flags).doing(what)?;
                let mut file = File::from(fd);
                file.write_all(&data).doing(what)?;
                Source::File(file)
            }
        })
    }

    /// Sends the last `left` bytes of the message, or some of them.
    fn send(&mut self, mut stream: &TcpStream, left: usize) -> std::io::Result<usize> {
        match self {
            Source::Copy(data) => stream.write(&data[data.len() - left..]),
            Source::ZeroCopy { data, sends, done } => {
                *sends += 1;
                if sends.is_multiple_of(DRAIN_EVERY) {
                    drain(stream, done);
                }
                loop {
                    match sys::send_zero_copy(stream.as_fd(), &data[data.len() - left..]) {
                        // Too many notifications are pending.
                        Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => drain(stream, done),
                        Err(e) if e.kind() == ErrorKind::Interrupted => {}
                        other => return other,
                    }
                }
            }
            Source::File(file) => {
                let len = file.metadata()?.len() as usize;
                let mut offset = (len - left) as u64;
                Ok(rustix::fs::sendfile(stream, file, Some(&mut offset), left)?)
            }
        }
    }

    /// Of the zero-copy sends, the fraction that the kernel copied after all.
    fn finish(&mut self, stream: &TcpStream) -> Option<f64> {
        let Source::ZeroCopy { done, .. } = self else { return None };
        drain(stream, done);
        (done.sends > 0).then(|| done.copied as f64 / done.sends as f64)
    }
}

fn drain(stream: &TcpStream, done: &mut sys::ZeroCopyDone) {
    // An error here counts as an empty queue; the figures are then incomplete.
    while let Ok(Some(more)) = sys::zero_copy_done(stream.as_fd()) {
        done.sends += more.sends;
        done.copied += more.copied;
    }
}
