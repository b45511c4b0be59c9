//! `lastmeter bench tune`: how long packets should be, and how many in flight, searched on real sockets through an
//! adapter that does not exist (E-28).
//!
//! ```text
//! namespace of the host                        namespace of the adapter
//! a program: at most `depth` in flight --UDP--> [ the description, on this machine's clock ]
//!       '<----------------- sent: the adapter's interrupt --------------------'
//! ```
//!
//! The program sends as fast as it may, and takes the time from its call until it learns that the packet has been
//! sent, as the document's test application does. The adapter is `lastmeter_host`'s machine, which the model runs in
//! virtual time with the same seed: service times are the same, packet by packet, and what differs is this host. Each
//! event of the adapter counts at its own instant; what is late is only that the host learns of it, and how late is
//! measured. [`operating::choose`] chooses.
//!
//! Source: Indiresan 1997, §3.3.1: 12,000 packets a point, here fewer.
//!
//! Rows: E-28.

use crate::{Complaint, Measurement};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_host::adapter::description::Description;
use lastmeter_host::adapter::operating::{self, Choice, Point};
use lastmeter_host::adapter::transmitter::{Order, Transmitter, Variation, What};
use lastmeter_lab::library::Builtin;
use lastmeter_lab::profile::device;
use lastmeter_linux::clock::Epoch;
use lastmeter_linux::{Doing, load};
use lastmeter_live::receive::wait;
use lastmeter_live::site::Site;
use lastmeter_live::task::{Entry, Parent, Task};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration as Real, Instant};

/// Packets of a point.
const PACKETS: u32 = 400;
const PACKETS_QUICK: u32 = 100;
const SEED: u64 = 1;
const PORT: u16 = 8028;
/// The longest packet travels as one frame.
const MTU: u32 = 9000;
/// A datagram begins with the numbers of its point and packet; an answer also says whether it was sent.
const HEADER: usize = 8;
const ANSWER: usize = 9;
/// The point of the datagram that ends all.
const END: u32 = u32::MAX;
/// Packets that a point may lose, for each that it is to send.
const LOSSES_MAX: u32 = 10;
/// The adapter does not sleep for less.
const SPIN: Duration = Duration::from_us(100);
/// Nothing has come for so long.
const PATIENCE: Real = Real::from_secs(10);
const LOOK: Real = Real::from_millis(100);
/// From this mean lateness on, as a share of the shortest latency, the surface is rather that of a busy machine.
const LATE_MAX: f64 = 0.05;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Part {
    Host { adapter: Ipv4Addr },
    Adapter { at: Ipv4Addr },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Job {
    part: Part,
    /// A bundled adapter.
    device: String,
    /// Lengths and depths.
    points: Vec<(u64, u64)>,
    packets: u32,
}

/// What a helper did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Done {
    /// Bytes a second and mean seconds of latency, for each point: the host's.
    points: Vec<(f64, f64)>,
    /// Mean seconds by which the host learned late of a packet that had been sent: the adapter's.
    late: f64,
}

struct Tuning;

impl Task for Tuning {
    const NAME: &'static str = "tune an adapter";
    type Job = Job;
    type Word = ();
    type Report = Done;

    fn run(job: &Job, parent: &mut Parent<'_>) -> lastmeter_linux::Result<Done> {
        let what = "tuning an adapter";
        match job.part {
            Part::Adapter { at } => {
                let card = device::read(&job.device, &Builtin);
                let card = card.map_err(io::Error::other).doing(what)?;
                let socket = UdpSocket::bind((at, PORT)).doing(what)?;
                parent.ready()?;
                serve(&socket, &card, job).doing(what)
            }
            Part::Host { adapter } => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing(what)?;
                socket.connect((adapter, PORT)).doing(what)?;
                socket.set_read_timeout(Some(PATIENCE)).doing(what)?;
                parent.ready()?;
                Ok(Done { points: drive(&socket, job).doing(what)?, late: 0.0 })
            }
        }
    }
}

/// For the table of a program whose helpers may do this.
pub(crate) const TASK: Entry = Entry::of::<Tuning>();

/// The numbers that a datagram begins with.
fn numbers(datagram: &[u8]) -> Option<(u32, u32)> {
    let &[p0, p1, p2, p3, n0, n1, n2, n3] = datagram.first_chunk::<HEADER>()?;
    Some((u32::from_be_bytes([p0, p1, p2, p3]), u32::from_be_bytes([n0, n1, n2, n3])))
}

fn header(point: u32, number: u32) -> [u8; HEADER] {
    (u64::from(point) << 32 | u64::from(number)).to_be_bytes()
}

/// The program: all points, one after the other.
fn drive(socket: &UdpSocket, job: &Job) -> io::Result<Vec<(f64, f64)>> {
    let mut points = Vec::new();
    for (at, &(len, depth)) in job.points.iter().enumerate() {
        points.push(point(socket, at as u32, (len as usize, depth as usize), job.packets)?);
    }
    socket.send(&header(END, 0))?;
    Ok(points)
}

/// The throughput and the latency of one point.
fn point(
    socket: &UdpSocket,
    at: u32,
    (len, depth): (usize, usize),
    packets: u32,
) -> io::Result<(f64, f64)> {
    let mut datagram = vec![0; len.max(HEADER)];
    let (mut begun, mut number, mut lost) = (BTreeMap::new(), 0, 0);
    let (mut done, mut latency) = (Vec::new(), 0.0);
    while done.len() < packets as usize {
        while begun.len() < depth {
            datagram[..HEADER].copy_from_slice(&header(at, number));
            begun.insert(number, Instant::now());
            socket.send(&datagram)?;
            number += 1;
        }
        let mut answer = [0; ANSWER];
        let len = socket.recv(&mut answer)?;
        // An answer to the point before is late, and nothing to this one.
        let Some((of, number)) = numbers(&answer[..len]).filter(|&(of, _)| of == at) else {
            continue;
        };
        let Some(from) = begun.remove(&number) else { continue };
        debug_assert_eq!(of, at, "filtered");
        if answer[HEADER] == 1 {
            latency += from.elapsed().as_secs_f64();
            done.push(Instant::now());
        } else {
            lost += 1;
            if lost > LOSSES_MAX * packets {
                return Err(io::Error::other("the adapter loses what it is to send"));
            }
        }
    }
    // As in the model: without the first fifth.
    let (last, first) = (done.len() - 1, (done.len() - 1) / 5);
    let apart = (done[last] - done[first]).as_secs_f64() / (last - first).max(1) as f64;
    Ok((len as f64 / apart, latency / done.len() as f64))
}

/// The adapter, until it is told to end.
fn serve(socket: &UdpSocket, card: &Description, job: &Job) -> io::Result<Done> {
    socket.set_nonblocking(true)?;
    let mut buffer = vec![0; MTU as usize];
    let (epoch, mut heard) = (Epoch::start(), Instant::now());
    let mut running: Option<(u32, Transmitter, SocketAddr)> = None;
    let (mut late, mut sent) = (Duration::ZERO, 0_u64);
    loop {
        if let Some((at, adapter, host)) = &mut running {
            while let Some(due) = adapter.ready_at().filter(|&due| due <= epoch.now()) {
                adapter.advance(due);
            }
            for event in adapter.events() {
                let was_sent = match event.what {
                    What::WriteAck | What::AddressAck => continue,
                    What::TransmitAck => 1,
                    What::Dropped | What::GivenUp => 0,
                };
                answer(socket, (*at, event.order.id as u32, was_sent), *host)?;
                late += epoch.now().saturating_since(event.at);
                sent += 1;
            }
        }
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                heard = Instant::now();
                let Some((at, number)) = numbers(&buffer[..len]) else { continue };
                if at == END {
                    let late = late.as_secs_f64() / sent.max(1) as f64;
                    return Ok(Done { points: Vec::new(), late });
                }
                if running.as_ref().is_none_or(|(now, ..)| *now != at) {
                    let Some(&(_, depth)) = job.points.get(at as usize) else { continue };
                    running = Some((at, adapter(card, depth), from));
                }
                let Some((_, adapter, host)) = &mut running else { continue };
                let order = Order::new(u64::from(number), Bytes(len as u64));
                if adapter.submit(epoch.now(), order).is_err() {
                    answer(socket, (at, number, 0), *host)?;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if heard.elapsed() > PATIENCE {
                    return Err(ErrorKind::TimedOut.into());
                }
                sleep(socket, running.as_ref().and_then(|(_, one, _)| one.ready_at()), epoch)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The adapter with this depth, idle, with the same service times as in the model.
fn adapter(card: &Description, depth: u64) -> Transmitter {
    let mut card = card.clone();
    card.queueing.depth = depth;
    Transmitter::varying(card, Variation::Exponential, SEED)
}

fn answer(
    socket: &UdpSocket,
    (point, number, was_sent): (u32, u32, u8),
    to: SocketAddr,
) -> io::Result<()> {
    let mut answer = header(point, number).to_vec();
    answer.push(was_sent);
    socket.send_to(&answer, to).map(|_| ())
}

/// Until a datagram comes or the adapter is nearly due.
fn sleep(socket: &UdpSocket, due: Option<Time>, epoch: Epoch) -> io::Result<()> {
    let left = match due {
        Some(due) => due.saturating_since(epoch.now()).saturating_sub(SPIN),
        None => Duration::from_ms(100),
    };
    if left == Duration::ZERO {
        std::hint::spin_loop();
        return Ok(());
    }
    let left = Real::from_nanos(left.as_ps() / 1000);
    wait([socket.as_fd()].into_iter(), left).map_err(io::Error::other)
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The adapter's name.
    pub device: String,
    /// Here, and in the model.
    pub points: Vec<[Point; 2]>,
    /// Mean seconds by which the host learned late that a packet had been sent.
    pub late: f64,
    packets: u32,
    busy: bool,
}

/// Tries all lengths and depths on a bundled adapter.
///
/// # Errors
/// Without such an adapter, or network namespaces.
pub fn measure(device: &str, quick: bool) -> Result<Tuned, Complaint> {
    let card = device::read(device, &Builtin)?;
    let busy = load::others(LOOK)?.is_busy();
    let packets = if quick { PACKETS_QUICK } else { PACKETS };
    let grid: Vec<(Bytes, u64)> =
        operating::grid().filter(|(len, _)| *len <= card.buffers.memory).collect();
    let mut site = Site::apart(&["host", "adapter"].map(str::to_owned))?;
    let [_, at] = site.join(0, [0, 1], MTU)?;
    let job = |part| Job {
        part,
        device: device.to_owned(),
        points: grid.iter().map(|&(len, depth)| (len.0, depth)).collect(),
        packets,
    };
    site.begin::<Tuning>(1, &job(Part::Adapter { at }))?;
    site.begin::<Tuning>(0, &job(Part::Host { adapter: at }))?;
    let host = site.report::<Tuning>(0)?;
    let late = site.report::<Tuning>(1)?.late;
    let model = |at| operating::modelled(&card, at, packets as usize, Variation::Exponential, SEED);
    let beside = |(&(len, depth), (throughput, latency))| {
        [Point { len, depth, throughput, latency }, model((len, depth))]
    };
    let points = grid.iter().zip(host.points).map(beside).collect();
    Ok(Tuned { device: device.to_owned(), points, late, packets, busy })
}

impl Tuned {
    /// Chosen by what was measured here, and by the model of the same packets.
    pub fn chosen(&self) -> [Option<Choice>; 2] {
        [0, 1].map(|at| {
            let points: Vec<Point> = self.points.iter().map(|both| both[at]).collect();
            operating::choose(&points)
        })
    }

    /// Whether the adapter was so late that the machine and not the adapter may have decided.
    pub fn is_late(&self) -> bool {
        let shortest = self.points.iter().map(|both| both[0].latency);
        self.late > LATE_MAX * shortest.fold(f64::INFINITY, f64::min)
    }

    fn words(&self) -> String {
        let late =
            if self.is_late() { "; UNDECIDED: it should be less than a twentieth" } else { "" };
        let busy = if self.busy { "; BUSY machine" } else { "" };
        let (packets, late_us) = (self.packets, self.late * 1e6);
        format!("{packets} packets a point, answered {late_us:.0} us late on average{late}{busy}")
    }

    /// A line for each quantity.
    pub fn measurements(&self) -> Vec<Measurement> {
        let name = |what: &str| format!("tune/{}/{what}", self.device);
        let line = |what: String, values: [f64; 2], unit: &str| {
            let mut one = Measurement::new(what, values[0], unit, String::new(), self.words());
            one.beside("model", values[1]);
            one
        };
        let mut lines = Vec::new();
        for both in &self.points {
            let at = |what: &str| name(&format!("{what}/{}@{}", both[0].len.0, both[0].depth));
            lines.push(line(at("throughput"), both.map(|one| one.throughput), "B/s"));
            let latency = line(at("latency"), both.map(|one| one.latency), "s");
            lines.push(latency.lower_is_better());
        }
        if let [Some(here), Some(model)] = self.chosen() {
            let both = [here.point, model.point];
            lines.push(line(name("packet"), both.map(|one| one.len.0 as f64), "B"));
            lines.push(line(name("depth"), both.map(|one| one.depth as f64), "packets"));
        }
        lines
    }

    /// The surface and the chosen point, in words.
    pub fn table(&self) -> String {
        let [here, model] = self.chosen();
        let mut text = format!(
            "OPERATING POINT of {}: packets sent as fast as may be, here (and in the model)\n\n\
             {:>9} {:>9}  {:<22} {:<20} {}\n",
            self.device, "packet", "in flight", "throughput", "latency", "power"
        );
        let best = |len| {
            let of = self.points.iter().filter(|both| both[0].len == len);
            of.map(|both| both[0].power()).fold(f64::MIN_POSITIVE, f64::max)
        };
        for &[ours, theirs] in &self.points {
            let throughput =
                format!("{:.3} ({:.3}) MB/s", ours.throughput / 1e6, theirs.throughput / 1e6);
            let latency = format!("{:.2} ({:.2}) ms", ours.latency * 1e3, theirs.latency * 1e3);
            let is_chosen = here.is_some_and(|choice| choice.point == ours);
            let (len, depth) = (ours.len.to_string(), ours.depth);
            let power = ours.power() / best(ours.len);
            let mark = if is_chosen { "  <-- chosen" } else { "" };
            let row =
                format!("{len:>9} {depth:>9}  {throughput:<22} {latency:<20} {power:.2}{mark}");
            let _ = writeln!(text, "{row}");
        }
        let said = |choice: Option<Choice>| match choice {
            Some(Choice { point, at_edge }) => format!(
                "{} in flight of {}{}",
                point.depth,
                point.len,
                if at_edge { ", at the edge of what was tried" } else { "" }
            ),
            None => "nothing".to_owned(),
        };
        let flat = operating::FLAT;
        let _ = write!(
            text,
            "\nChosen: {}; by the model {}.\n\
             The longest packet whose latency alone is at most {flat} times that of the shortest,\n\
             then the depth of the greatest power: throughput / latency, here as a share of the\n\
             greatest with packets of this length.\n{}",
            said(here),
            said(model),
            self.words()
        );
        text
    }
}
