//! The receiving application: one thread per connection, on the core it was given.

use super::meter::{self, Meter, pause};
use super::{End, Setting, Thread, Workload, on_threads};
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;

/// Timeout for the sender to connect, in seconds: a few round trips of the slowest path.
const CONNECT_WITHIN: i64 = 20;

/// Seconds after the sender's end for which the receiver's own delays continue.
const PATIENCE: f64 = 0.1;

/// The receiver's settings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) setting: Setting,
    pub(crate) address: Ipv4Addr,
    /// A core per stream; empty leaves them free.
    pub(crate) cores: Vec<usize>,
}

/// A listening socket and where it is.
pub(crate) struct Listening {
    pub(crate) port: u16,
    listener: TcpListener,
}

/// Opens the socket to which the sender will connect.
pub(crate) fn listen(job: &Job) -> Result<Listening> {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let what = || format!("listening on {}", job.address);
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).doing(what)?;
    // Connections inherit the buffer and with it the window scale.
    if let Some(size) = job.setting.receive_buffer {
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, size.0 as i32)
            .doing(|| format!("setting the receive buffer to {size}"))?;
    }
    bind(&fd, &SocketAddrV4::new(job.address, 0)).doing(what)?;
    listen(&fd, job.setting.streams as i32).doing(what)?;
    let listener = TcpListener::from(fd);
    let port = listener.local_addr().doing(what)?.port();
    Ok(Listening { port, listener })
}

/// Accepts every stream and receives until the sender shuts down.
pub(crate) fn run(job: &Job, listening: Listening) -> Result<End> {
    let streams = (0..job.setting.streams)
        .map(|_| accept(&listening.listener, job))
        .collect::<Result<Vec<_>>>()?;
    on(&job.setting, &streams, &job.cores)
}

/// Receives on these connections until the sender shuts down.
pub(crate) fn on(setting: &Setting, streams: &[TcpStream], cores: &[usize]) -> Result<End> {
    on_threads(streams, libc::SO_RCVBUF, cores, |stream, core| one(setting, stream, core))
}

fn accept(listener: &TcpListener, job: &Job) -> Result<TcpStream> {
    let what = "waiting for the sender to connect";
    let timeout = Timespec { tv_sec: CONNECT_WITHIN, tv_nsec: 0 };
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    if poll(&mut polled, Some(&timeout)).doing(what)? == 0 {
        let found = format!("it did not within {CONNECT_WITHIN} s");
        return Err(Error::Worker { doing: "connect".to_owned(), found });
    }
    let (stream, _) = listener.accept().doing(what)?;
    if job.setting.workload != Workload::Stream {
        stream.set_nodelay(true).doing("setting TCP_NODELAY")?;
    }
    Ok(stream)
}

fn one(setting: &Setting, mut stream: &TcpStream, core: Option<usize>) -> Result<Thread> {
    setting.placement.take(core)?;
    let size = setting.message.0 as usize;
    let mut buffer = vec![0u8; size];
    let mut meter = Meter::start(stream)?;
    let mut into_message = 0;
    let over = setting.warm_up.as_secs_f64() + setting.duration.as_secs_f64() + PATIENCE;
    let mut patience = Some(meter::now() + over);
    loop {
        let n = if setting.copy_out {
            stream.read(&mut buffer)
        } else {
            sys::receive_discard(stream.as_fd(), size)
        }
        .doing("receiving")?;
        if n == 0 {
            break;
        }
        meter.bytes += n as u64;
        meter.calls += 1;
        // The measurement is over: only data in flight is left, and nobody waits for it.
        if let (Some(at), Some(end)) = (meter.tick()?, patience)
            && at > end
        {
            patience = None;
        }
        into_message += n;
        while into_message >= size {
            into_message -= size;
            meter.messages += 1;
            if patience.is_some() {
                meter.paused += pause(setting.receiver_pause);
            }
            if setting.workload == Workload::RequestResponse {
                stream.write_all(&buffer).doing("answering")?;
            }
        }
    }
    meter.finish(Vec::new(), None)
}
