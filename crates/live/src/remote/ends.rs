//! One end of a transfer between two machines, in a helper process: it connects or is connected to, and then sends or
//! receives as the ends of a transfer on one machine do.
//!
//! The connecting side begins each connection with a key that it learnt over the control connection, so that nobody
//! else takes a place.

use super::KEY_LEN;
use crate::channel;
use crate::transfer::{End, Setting, Workload, receiver, sender};
use crate::worker::Reply;
use lastmeter_linux::sys;
use lastmeter_linux::token::same;
use lastmeter_linux::{Doing, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Timeout for all connections to come.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Places for connections of others while they wait to be accepted.
const SPARE: i32 = 16;
/// Timeout for the key of one.
const KEY_MAX: Duration = Duration::from_secs(2);

/// One end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) setting: Setting,
    /// It sends; else it receives.
    pub(crate) sends: bool,
    pub(crate) at: At,
    pub(crate) key: String,
}

/// Where the connections come from.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum At {
    /// Listens here, at a port of the kernel's choice.
    Listen(IpAddr),
    Connect(SocketAddr),
}

/// Plays an end until the transfer is over; tells `parent` its port, and when it is connected.
pub(crate) fn play(job: &Job, parent: &mut UnixStream) -> Result<End> {
    let streams = match job.at {
        At::Listen(address) => {
            let listener = listening(job, address)?;
            let port = listener.local_addr().doing("reading the port")?.port();
            channel::send(parent, &Reply::Listening { port }).doing("telling the port")?;
            accepted(job, &listener)?
        }
        At::Connect(to) => {
            let streams = (0..job.setting.streams).map(|_| connected(job, to));
            streams.collect::<Result<Vec<_>>>()?
        }
    };
    if job.setting.workload != Workload::Stream {
        let all = streams.iter().try_for_each(|stream| stream.set_nodelay(true));
        all.doing("setting TCP_NODELAY")?;
    }
    channel::send(parent, &Reply::Connected).doing("telling the parent")?;
    match job.sends {
        true => sender::on(&job.setting, &streams, &[]),
        false => receiver::on(&job.setting, &streams, &[]),
    }
}

/// A socket for this address, with the buffer of this end: the window scale is fixed when connecting.
fn opened(job: &Job, address: IpAddr) -> Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket(family, SocketType::STREAM, None).doing("opening a socket")?;
    let (option, size) = match job.sends {
        true => (libc::SO_SNDBUF, job.setting.send_buffer),
        false => (libc::SO_RCVBUF, job.setting.receive_buffer),
    };
    if let Some(size) = size {
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, option, size.0 as i32)
            .doing(|| format!("setting a buffer to {size}"))?;
    }
    Ok(fd)
}

fn listening(job: &Job, address: IpAddr) -> Result<TcpListener> {
    let what = || format!("listening on {address}");
    let fd = opened(job, address)?;
    bind(&fd, &SocketAddr::new(address, 0)).doing(what)?;
    listen(&fd, job.setting.streams as i32 + SPARE).doing(what)?;
    Ok(TcpListener::from(fd))
}

fn connected(job: &Job, to: SocketAddr) -> Result<TcpStream> {
    let what = || format!("connecting to {to}, where the test's data goes");
    let fd = opened(job, to.ip())?;
    connect(&fd, &to).doing(what)?;
    let mut stream = TcpStream::from(fd);
    stream.write_all(job.key.as_bytes()).doing(what)?;
    Ok(stream)
}

/// As many connections as there are streams, each with the key; others are closed.
fn accepted(job: &Job, listener: &TcpListener) -> Result<Vec<TcpStream>> {
    let what = "waiting for the other end to connect";
    let until = Instant::now() + CONNECT_MAX;
    let mut streams = Vec::new();
    while streams.len() < job.setting.streams as usize {
        let left = until.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let found =
            poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)).doing(what)?;
        if found == 0 {
            let found = format!("the other end did not within {} s", CONNECT_MAX.as_secs());
            return Err(Error::Worker { doing: "accept the test's connections".into(), found });
        }
        // One that is gone already was not the other end's.
        let Ok((mut stream, _)) = listener.accept() else { continue };
        if has_key(job, &mut stream, until).is_ok_and(|has| has) {
            streams.push(stream);
        }
    }
    Ok(streams)
}

fn has_key(job: &Job, stream: &mut TcpStream, until: Instant) -> std::io::Result<bool> {
    let until = until.min(Instant::now() + KEY_MAX);
    let mut key = [0; KEY_LEN];
    let mut known = 0;
    while known < KEY_LEN {
        let left = until.saturating_duration_since(Instant::now());
        // A timeout of zero would mean none.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut key[known..])? {
            0 => return Ok(false),
            _ if left.is_zero() => return Ok(false),
            len => known += len,
        }
    }
    stream.set_read_timeout(None)?;
    Ok(same(&String::from_utf8_lossy(&key), &job.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::Placement;

    #[test]
    fn who_does_not_know_the_key_takes_no_place() {
        let setting = Setting { placement: Placement::Free, ..Setting::PLAIN };
        let at = At::Listen("127.0.0.1".parse().unwrap());
        let job = Job { setting, sends: false, at, key: "k".repeat(KEY_LEN) };
        let listener = listening(&job, "127.0.0.1".parse().unwrap()).unwrap();
        let to = listener.local_addr().unwrap();
        let mut strangers: Vec<_> = (0..3).map(|_| TcpStream::connect(to).unwrap()).collect();
        strangers[0].write_all(&[b'x'; KEY_LEN]).unwrap();
        strangers[1].shutdown(std::net::Shutdown::Both).unwrap();
        // The third says nothing; the right one comes last.
        let right = connected(&job, to).unwrap();
        let streams = accepted(&job, &listener).unwrap();
        assert_eq!(streams[0].peer_addr().unwrap(), right.local_addr().unwrap());
        assert_eq!(strangers[0].read(&mut [0]).unwrap_or(0), 0, "it was left open");
    }
}
