//! `lastmeter bench delivery`: what it costs to deliver the same data to a native socket, and through IP (A-67).
//!
//! ```text
//! this program --frames--> veth | eth0 --+--> AF_PACKET's ring --------+
//!                                        +--> AF_XDP's ring -----------+--> a program, which compares every byte
//!                                        +--> IP --> UDP's socket -----+
//!                                        +--> IP --> TCP's socket -----+
//! ```
//!
//! All frames carry 1400 bytes, and are sent by the same calls; those of TCP come from the models' TCP. A veth pair
//! hands a frame over within the sender's call, so what the kernel does up to the socket is in the sender's CPU time.
//! There, what a frame costs that nobody takes is subtracted; the program's own CPU time is added. Both ends share a
//! core, so the program runs when a window of frames has come, and is not woken for each. CPU time, unlike a rate, is
//! much the same on a busy machine; the best of a few turns counts.
//!
//! Rows: A-67.

use crate::far::{Far, HOST};
use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_base::Time;
use lastmeter_linux::clock::{Epoch, thread_cpu};
use lastmeter_linux::port::{Counts, Port};
use lastmeter_linux::{Doing, cores, load};
use lastmeter_live::receive;
use lastmeter_live::site::{self, Kind};
use lastmeter_live::task::{Entry, Parent, Task};
use lastmeter_transport::tcp::{Config, Connection};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

pub(crate) const ALL: &[(&str, Bench)] = &[
    ("delivery/packet", |setting| bench(setting, Way::Packet)),
    ("delivery/udp", |setting| bench(setting, Way::Udp)),
    ("delivery/tcp", |setting| bench(setting, Way::Tcp)),
    ("delivery/xdp", |setting| bench(setting, Way::Xdp)),
];

/// Bytes of data in a frame, and at most.
pub(crate) const LEN: usize = 1400;
/// Frames on the way, except TCP's, and sent by one call.
const WINDOW: u32 = 32;
pub(crate) const FRAMES: u32 = 20_000;
pub(crate) const FRAMES_QUICK: u32 = 3_000;
const TURNS: usize = 3;
/// Types for local experiments (IEEE 802-2014 §9.2.4): of data and acknowledgements, and of what nobody takes.
const NATIVE: u16 = 0x88b5;
const UNKNOWN: u16 = 0x88b6;
/// The period of the data: no power of two, so that a shifted frame is noticed.
const PERIOD: usize = 251;
const PORT: u16 = 8067;
/// Nothing has come for so long.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// Where data are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// Nowhere: the frames end at the interface.
    Nobody,
    Packet,
    Xdp,
    Udp,
    Tcp,
}

impl Way {
    fn what(self) -> &'static str {
        match self {
            Way::Nobody => "frames that nobody takes",
            Way::Packet => "a native socket: AF_PACKET's ring",
            Way::Xdp => "a native socket: AF_XDP's ring",
            Way::Udp => "through IP to a UDP socket",
            Way::Tcp => "through IP to a TCP socket",
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Job {
    way: Way,
    /// Bytes of data in a frame.
    len: usize,
    frames: u32,
    core: usize,
}

/// What the program got.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Got {
    /// Bytes that were right, in their order.
    bytes: u64,
    /// Seconds of CPU time.
    cpu: f64,
}

/// All data: those of frame `n` begin at `n % PERIOD`.
fn pattern() -> Vec<u8> {
    (0..PERIOD + LEN).map(|at| (at % PERIOD) as u8).collect()
}

/// The data of a frame.
fn data(pattern: &[u8], number: u32, len: usize) -> &[u8] {
    let from = number as usize % PERIOD;
    &pattern[from..from + len]
}

struct Receiving;

impl Task for Receiving {
    const NAME: &'static str = "receive what is delivered";
    type Job = Job;
    type Word = ();
    type Report = Got;

    fn run(job: &Job, parent: &mut Parent<'_>) -> lastmeter_linux::Result<Got> {
        cores::pinned(job.core, || take(job, parent))
    }
}

/// What the program does.
fn take(job: &Job, parent: &mut Parent<'_>) -> lastmeter_linux::Result<Got> {
    let what = "receiving";
    match job.way {
        Way::Nobody => {
            parent.ready()?;
            parent.hear::<Receiving>()?;
            Ok(Got::default())
        }
        Way::Packet => native(site::attach(site::INTERFACE, Kind::Packet)?, job, parent),
        Way::Xdp => native(site::attach(site::INTERFACE, Kind::Xdp)?, job, parent),
        Way::Udp => {
            let socket = UdpSocket::bind((HOST, PORT)).doing(what)?;
            socket.set_read_timeout(Some(PATIENCE)).doing(what)?;
            parent.ready()?;
            datagrams(&socket, job).doing(what)
        }
        Way::Tcp => {
            let listener = TcpListener::bind((HOST, PORT)).doing(what)?;
            parent.ready()?;
            stream(&listener, job).doing(what)
        }
    }
}

/// For the table of a program whose helpers may do this.
pub(crate) const TASK: Entry = Entry::of::<Receiving>();

fn native(
    mut port: Box<dyn Port>,
    job: &Job,
    parent: &mut Parent<'_>,
) -> lastmeter_linux::Result<Got> {
    let what = "receiving from a ring";
    parent.ready()?;
    let (began, pattern, mut counts) = (thread_cpu(), pattern(), Counts::default());
    let (mut next, mut right, mut last) = (0, 0, Instant::now());
    while next < job.frames {
        receive::wait([port.fd()].into_iter(), LOOK)?;
        let mut from = None;
        let taken = port.receive(WINDOW as usize, &mut counts, &mut |arrival| {
            let [frame, ..] = arrival.parts;
            let Some((header, payload)) = frame.split_at_checked(14) else { return };
            if header[12..] != NATIVE.to_be_bytes() {
                return;
            }
            let expected = data(&pattern, next, job.len);
            right += if payload == expected { job.len as u64 } else { 0 };
            next += 1;
            if next % WINDOW == 0 || next == job.frames {
                from = Some([header[6..12].to_vec(), header[..6].to_vec()].concat());
            }
        });
        if taken.doing(what)? > 0 {
            last = Instant::now();
        }
        if let Some(mut acknowledges) = from {
            acknowledges.extend(NATIVE.to_be_bytes());
            acknowledges.extend(next.to_be_bytes());
            // Shorter frames than an Ethernet's pass a veth pair; other ports pad.
            acknowledges.resize(60, 0);
            port.send(&[acknowledges], &mut counts).doing(what)?;
        }
        if last.elapsed() > PATIENCE {
            return Err(io::Error::from(ErrorKind::TimedOut)).doing(what);
        }
    }
    Ok(Got { bytes: right, cpu: thread_cpu() - began })
}

fn datagrams(socket: &UdpSocket, job: &Job) -> io::Result<Got> {
    let (began, pattern, mut buffer) = (thread_cpu(), pattern(), [0; LEN + 1]);
    let (mut next, mut right) = (0, 0);
    while next < job.frames {
        let (len, sender) = socket.recv_from(&mut buffer)?;
        let expected = data(&pattern, next, job.len);
        right += if buffer[..len] == *expected { job.len as u64 } else { 0 };
        next += 1;
        if next % WINDOW == 0 || next == job.frames {
            socket.send_to(&next.to_be_bytes(), sender)?;
        }
    }
    Ok(Got { bytes: right, cpu: thread_cpu() - began })
}

fn stream(listener: &TcpListener, job: &Job) -> io::Result<Got> {
    let (mut connection, _) = listener.accept()?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let (began, pattern) = (thread_cpu(), pattern());
    let unit = job.len;
    let (mut buffer, mut right) = (vec![0; WINDOW as usize * unit], 0);
    let all = u64::from(job.frames) * unit as u64;
    let mut read = 0;
    while read < all {
        let len = connection.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        let mut rest = &buffer[..len];
        while !rest.is_empty() {
            let (number, at) = (read / unit as u64, (read % unit as u64) as usize);
            let (piece, others) = rest.split_at(rest.len().min(unit - at));
            let expected = &data(&pattern, number as u32, unit)[at..at + piece.len()];
            right += if piece == expected { piece.len() as u64 } else { 0 };
            read += piece.len() as u64;
            rest = others;
        }
    }
    Ok(Got { bytes: right, cpu: thread_cpu() - began })
}

/// Sends frames of a type or datagrams, a window at a time, and waits until each is acknowledged, if it is; CPU seconds
/// of the calls that send.
fn windows(far: &mut Far, way: Way, len: usize, frames: u32) -> Result<f64, Complaint> {
    let (pattern, mut spent, mut sent) = (pattern(), 0.0, 0);
    while sent < frames {
        let until = frames.min(sent + WINDOW);
        let batch = (sent..until).map(|number| {
            let data = data(&pattern, number, len);
            match way {
                Way::Udp => far.datagram(PORT, data),
                Way::Packet | Way::Xdp => far.framed(NATIVE, data),
                _ => far.framed(UNKNOWN, data),
            }
        });
        let batch = batch.collect::<Result<Vec<_>, _>>()?;
        let before = thread_cpu();
        far.send_all(&batch)?;
        spent += thread_cpu() - before;
        sent = until;
        let (began, mut acknowledged) = (Instant::now(), way == Way::Nobody);
        while !acknowledged {
            far.wait(LOOK)?;
            let number = sent.to_be_bytes();
            far.take_frames(&mut |kind, payload| {
                acknowledged |= kind == NATIVE && payload.starts_with(&number);
                // The headers of IPv4 and UDP come first.
                acknowledged |= way == Way::Udp && payload.get(28..32) == Some(&number);
            })?;
            if began.elapsed() > PATIENCE {
                return Err(Complaint(format!("{way:?}: frame {sent} was not acknowledged")));
            }
        }
    }
    Ok(spent)
}

/// The same as a stream of the models' TCP.
fn segments(far: &mut Far, len: usize, frames: u32) -> Result<f64, Complaint> {
    let config = Config {
        mss: len as u16,
        timestamps: false,
        initial_window: WINDOW,
        content: true,
        ..Config::modern()
    };
    let (ports, all) = ((PORT, PORT), u64::from(frames) * len as u64);
    let mut tcp = Connection::connect(Time::START, config, 1);
    let (pattern, mut spent, mut number) = (pattern(), 0.0, 0);
    let epoch = Epoch::start();
    while tcp.acknowledged() < all {
        let now = epoch.now();
        far.take(&mut |arrived| tcp.receive(now, &arrived.segment, &arrived.payload))?;
        if tcp.ready_at().is_some_and(|due| due <= now) {
            tcp.expire(now);
        }
        while number < frames && tcp.writable() >= len as u64 {
            tcp.write(data(&pattern, number, len));
            number += 1;
        }
        let mut batch = Vec::new();
        while let Some(segment) = tcp.transmit(now) {
            let mut payload = Vec::new();
            tcp.payload(&segment, &mut payload);
            batch.push(far.segment(ports, &segment, &payload)?);
        }
        for some in batch.chunks(WINDOW as usize) {
            let before = thread_cpu();
            far.send_all(some)?;
            spent += thread_cpu() - before;
        }
        if now.since_start().as_secs_f64() > PATIENCE.as_secs_f64() {
            return Err(Complaint("TCP: not all was acknowledged".to_owned()));
        }
        far.wait(Duration::from_millis(1))?;
    }
    Ok(spent)
}

/// CPU seconds of the sending calls, and what the program got.
fn deliver(way: Way, len: usize, frames: u32) -> Result<(f64, Got), Complaint> {
    let core = cores::allowed()?.last().copied().unwrap_or(0);
    let mut far = Far::by_wire()?;
    far.site.begin::<Receiving>(0, &Job { way, len, frames, core })?;
    let mut complaint = None;
    let spent = cores::pinned(core, || {
        let sent = match way {
            Way::Tcp => segments(&mut far, len, frames),
            _ => windows(&mut far, way, len, frames),
        };
        Ok(sent.map_err(|wrong| complaint = Some(wrong)).unwrap_or(0.0))
    })?;
    if let Some(wrong) = complaint {
        return Err(wrong);
    }
    if way == Way::Nobody {
        far.site.tell::<Receiving>(0, &())?;
    }
    Ok((spent, far.site.report::<Receiving>(0)?))
}

/// CPU seconds that a frame takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// From the interface to the socket.
    pub(crate) kernel: f64,
    /// In the program.
    pub(crate) program: f64,
}

impl Cost {
    pub(crate) fn sum(self) -> f64 {
        self.kernel + self.program
    }
}

/// What a frame costs with so many bytes of data, each number of them in turn: the best of a few turns.
pub(crate) fn costs<const N: usize>(
    way: Way,
    lens: [usize; N],
    frames: u32,
) -> Result<[Cost; N], Complaint> {
    let mut best = [[f64::INFINITY; 3]; N];
    for _ in 0..TURNS {
        for (len, [nobody, sending, program]) in lens.into_iter().zip(&mut best) {
            *nobody = nobody.min(deliver(Way::Nobody, len, frames)?.0);
            let (spent, got) = deliver(way, len, frames)?;
            let all = u64::from(frames) * len as u64;
            if got.bytes != all {
                let found = format!("{way:?}: of {all} B the program got {} as sent", got.bytes);
                return Err(Complaint(found));
            }
            (*sending, *program) = (sending.min(spent), program.min(got.cpu));
        }
    }
    let each = |seconds: f64| seconds / f64::from(frames);
    Ok(best.map(|[nobody, sending, program]| Cost {
        kernel: each((sending - nobody).max(0.0)),
        program: each(program),
    }))
}

/// Words for a note, where others use the machine.
pub(crate) fn busy() -> Result<&'static str, Complaint> {
    Ok(if load::others(LOOK)?.is_busy() { "; BUSY machine" } else { "" })
}

fn bench(setting: &Setting, way: Way) -> Result<Measurement, Complaint> {
    let frames = if setting.quick { FRAMES_QUICK } else { FRAMES };
    let busy = busy()?;
    let [cost] = costs(way, [LEN], frames)?;
    let note = format!(
        "{}, {LEN} B a frame, {} B as sent: CPU time from the interface to the socket {:.2} us, \
         in the program {:.2} us{busy}",
        way.what(),
        u64::from(frames) * LEN as u64,
        cost.kernel * 1e6,
        cost.program * 1e6
    );
    let name = format!("delivery/{}", format!("{way:?}").to_lowercase());
    Ok(Measurement::new(name, cost.sum(), "s", String::new(), note).lower_is_better())
}
