//! The programs of a play. Each runs until it is killed; only what cannot be started is an error.

use super::work::{Work, Worker};
use super::{Part, Pattern, Role};
use crate::channel;
use crate::worker::Reply;
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Result};
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// This namespace's TCP without RACK, and without learning how far segments overtake each other.
const RIGID: [(&str, &str); 2] = [("tcp_recovery", "0"), ("tcp_max_reordering", "3")];
/// Where names are looked up.
const NAME_SERVER: u16 = 53;
/// Bytes of a question and of its answer.
const QUESTION: usize = 40;
/// Bytes of the first of two writes.
const HEADER: usize = 64;
/// Bytes of a datagram at most.
const DATAGRAM: usize = 1400;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Bytes of the stack of a thread, of which there may be many.
const STACK: usize = 256 << 10;

/// Plays a part.
pub(crate) fn act(role: &Role, parent: &mut UnixStream) -> Result<()> {
    lastmeter_linux::cores::pin(role.core)?;
    // A sleep of 100 us should not take 150.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    match role.part {
        Part::Receiver(address) => receiver(role, address, parent),
        Part::Proxy(address, to) => proxy(role, address, to, parent),
        Part::Sender(to) => sender(role, to, parent),
    }
}

fn tell(parent: &mut UnixStream, reply: &Reply) -> Result<()> {
    channel::send(parent, reply).doing("telling the parent")
}

fn listener(address: Ipv4Addr, buffer: Option<usize>) -> Result<TcpListener> {
    let what = || format!("listening on {address}");
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).doing(what)?;
    if let Some(size) = buffer {
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, size as i32).doing(what)?;
    }
    bind(&fd, &SocketAddrV4::new(address, 0)).doing(what)?;
    listen(&fd, BACKLOG).doing(what)?;
    Ok(TcpListener::from(fd))
}

/// Runs `work` in threads of its own; the caller's thread runs the first, as a plain program would.
fn in_threads(count: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        for _ in 1..count {
            let thread = std::thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, &work).doing("starting a thread")?;
        }
        work()
    })
}

fn receiver(role: &Role, address: Ipv4Addr, parent: &mut UnixStream) -> Result<()> {
    let (play, side) = (&role.play, role.play.receiver);
    if play.pattern == Pattern::Udp {
        let socket = UdpSocket::bind((address, 0)).doing("opening a UDP socket")?;
        if let Some(size) = side.buffer {
            sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, size as i32)
                .doing("setting the receive buffer")?;
        }
        let port = socket.local_addr().doing("reading its address")?.port();
        tell(parent, &Reply::Listening { port })?;
        let mut worker = Worker::new(side.work, play.message, true)?;
        let mut data = vec![0; play.message];
        loop {
            socket.recv(&mut data).doing("receiving a datagram")?;
            worker.run(&mut data, true)?;
        }
    }
    if let Pattern::LookUp { us } = play.pattern {
        name_server(address, us)?;
    }
    let listener = listener(address, side.buffer)?;
    let port = listener.local_addr().doing("reading its address")?.port();
    tell(parent, &Reply::Listening { port })?;
    if play.pattern == Pattern::Alone {
        return alone(side.work, play.message);
    }
    in_threads(play.connections, || {
        loop {
            let (stream, _) = listener.accept().doing("accepting")?;
            serve(role, stream)?;
        }
    })
}

fn alone(work: Work, message: usize) -> Result<()> {
    let mut worker = Worker::new(work, message, false)?;
    let mut data = vec![0; message];
    loop {
        worker.run(&mut data, false)?;
    }
}

/// Answers every question after `us`, in a thread of its own.
fn name_server(address: Ipv4Addr, us: u64) -> Result<()> {
    let socket = UdpSocket::bind((address, NAME_SERVER)).doing("opening a name server's socket")?;
    std::thread::spawn(move || {
        let mut data = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut data) {
            std::thread::sleep(std::time::Duration::from_micros(us));
            let _ = socket.send_to(&data[..len], from);
        }
    });
    Ok(())
}

/// Receives on one connection until its sender closes it.
fn serve(role: &Role, mut stream: TcpStream) -> Result<()> {
    let (play, side) = (&role.play, role.play.receiver);
    let what = "receiving";
    stream.set_nodelay(side.no_delay).doing(what)?;
    let mut worker = Worker::new(side.work, play.message, true)?;
    let mut data = vec![0; side.piece.unwrap_or(play.message)];
    let reply = match play.pattern {
        Pattern::Request { reply } => Some(reply),
        Pattern::TwoWrites | Pattern::Connect | Pattern::LookUp { .. } => Some(1),
        _ => None,
    };
    let answer = vec![0; reply.unwrap_or(0)];
    loop {
        let len = match reply {
            Some(_) if stream.read_exact(&mut data).is_err() => 0,
            Some(_) => data.len(),
            None => stream.read(&mut data).unwrap_or(0),
        };
        if len == 0 {
            return Ok(());
        }
        worker.run(&mut data[..len], true)?;
        if reply.is_some() && stream.write_all(&answer).is_err() {
            return Ok(());
        }
    }
}

/// Passes one connection after the other on.
fn proxy(role: &Role, address: Ipv4Addr, to: SocketAddrV4, parent: &mut UnixStream) -> Result<()> {
    let listener = listener(address, None)?;
    let port = listener.local_addr().doing("reading its address")?.port();
    tell(parent, &Reply::Listening { port })?;
    let work = role.play.proxy.unwrap_or(Work::None);
    in_threads(role.play.connections, || {
        loop {
            let (mut from, _) = listener.accept().doing("accepting")?;
            let mut to = TcpStream::connect(to).doing("connecting")?;
            let mut worker = Worker::new(work, role.play.message, true)?;
            let mut data = vec![0; role.play.message];
            while let Ok(len @ 1..) = from.read(&mut data) {
                worker.run(&mut data[..len], true)?;
                if to.write_all(&data[..len]).is_err() {
                    break;
                }
            }
        }
    })
}

fn connected(role: &Role, to: SocketAddrV4) -> Result<TcpStream> {
    let (side, what) = (role.play.sender, || format!("connecting to {to}"));
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).doing(what)?;
    if let Some(size) = side.buffer {
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, size as i32).doing(what)?;
    }
    if let Some(bits) = side.pacing {
        let bytes = i32::try_from(bits / 8).unwrap_or(i32::MAX);
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes)
            .doing(what)?;
    }
    let control = if role.play.bbr { "bbr" } else { "cubic" };
    sys::set_text(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, control).doing(what)?;
    connect(&fd, &to).doing(what)?;
    let stream = TcpStream::from(fd);
    stream.set_nodelay(side.no_delay).doing(what)?;
    Ok(stream)
}

fn sender(role: &Role, to: SocketAddrV4, parent: &mut UnixStream) -> Result<()> {
    let (play, work) = (&role.play, role.play.sender.work);
    if play.rigid {
        for (name, value) in RIGID {
            let path = format!("/proc/sys/net/ipv4/{name}");
            std::fs::write(&path, value).doing(|| format!("writing {path}"))?;
        }
    }
    match play.pattern {
        Pattern::Alone => {
            tell(parent, &Reply::Connected)?;
            alone(work, play.message)
        }
        Pattern::Udp => {
            let socket = UdpSocket::bind("0.0.0.0:0").doing("opening a UDP socket")?;
            socket.connect(to).doing("connecting a UDP socket")?;
            tell(parent, &Reply::Connected)?;
            let mut worker = Worker::new(work, play.message, false)?;
            let mut data = vec![0; play.message.min(DATAGRAM)];
            loop {
                worker.run(&mut data, false)?;
                // A refusal is a full queue: the datagram is lost, as it would be further on.
                let _ = socket.send(&data);
            }
        }
        Pattern::Connect | Pattern::LookUp { .. } => {
            tell(parent, &Reply::Connected)?;
            in_threads(play.connections, || connect_for_each(role, to))
        }
        Pattern::Stream | Pattern::Request { .. } | Pattern::TwoWrites => {
            let streams: Vec<_> =
                (0..play.connections).map(|_| connected(role, to)).collect::<Result<_>>()?;
            let next = std::sync::atomic::AtomicUsize::new(0);
            tell(parent, &Reply::Connected)?;
            in_threads(play.connections, || {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                talk(role, &streams[index])
            })
        }
    }
}

fn connect_for_each(role: &Role, to: SocketAddrV4) -> Result<()> {
    let play = &role.play;
    let mut worker = Worker::new(play.sender.work, play.message, false)?;
    let mut data = vec![0; play.message];
    loop {
        if let Pattern::LookUp { .. } = play.pattern {
            let what = "looking a name up";
            let socket = UdpSocket::bind("0.0.0.0:0").doing(what)?;
            socket.connect((*to.ip(), NAME_SERVER)).doing(what)?;
            socket.send(&[1; QUESTION]).doing(what)?;
            socket.recv(&mut [0; QUESTION]).doing(what)?;
        }
        worker.run(&mut data, false)?;
        let mut stream = connected(role, to)?;
        stream.write_all(&data).doing("sending")?;
        stream.read_exact(&mut [0]).doing("reading the reply")?;
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn talk(role: &Role, mut stream: &TcpStream) -> Result<()> {
    let play = &role.play;
    let mut worker = Worker::new(play.sender.work, play.message, false)?;
    let mut data = vec![0; play.message];
    let mut answer = match play.pattern {
        Pattern::Request { reply } => vec![0; reply],
        Pattern::TwoWrites => vec![0; 1],
        _ => Vec::new(),
    };
    loop {
        worker.run(&mut data, false)?;
        if play.pattern == Pattern::TwoWrites {
            let (header, rest) = data.split_at(HEADER.min(data.len() / 2));
            stream.write_all(header).doing("sending")?;
            stream.write_all(rest).doing("sending")?;
        } else {
            stream.write_all(&data).doing("sending")?;
        }
        if !answer.is_empty() {
            stream.read_exact(&mut answer).doing("reading the reply")?;
        }
    }
}
