//! `lastmeter bench units`: data units of an application, forwarded whole or packet by packet (A-168).
//!
//! ```text
//! source --packets, apart in time--> forwarder --> end-node: reads until it has a unit
//!                                    packets: each at once
//!                                    units:   reads the header, waits for the rest, hands the unit on as one
//! ```
//!
//! Three namespaces, TCP without Nagle's rule between them. The end-node's program is the same in both cases. What is
//! counted does not depend on how fast the machine is: packets that reach the end-node's interface, each of which would
//! interrupt it, and how often its program is scheduled. A unit that a forwarder hands on as one crosses a veth pair as
//! one.
//!
//! Source: ANA §3.6: "a slight increase in overhead in processing ALF in a forwarder", but "it will reduce the
//! interrupt rate and process scheduling rate" of an end-node.
//!
//! Rows: A-168.

use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_linux::clock::thread_cpu;
use lastmeter_linux::{Doing, load};
use lastmeter_live::site::Site;
use lastmeter_live::task::{Entry, Parent, Task};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

pub(crate) const ALL: &[(&str, Bench)] = &[
    ("units/forwarder", |setting| bench(setting, Of::Forwarder)),
    ("units/interrupts", |setting| bench(setting, Of::Interrupts)),
    ("units/scheduled", |setting| bench(setting, Of::Scheduled)),
];

/// The nodes, in their order.
const NAMES: [&str; 3] = ["source", "forwarder", "end-node"];
const MTU: u32 = 1500;
const PORT: u16 = 8168;
/// Bytes of a unit, with its header: its length and its number.
const LEN: usize = 8192;
const HEADER: usize = 8;
/// Bytes of a packet, and the least time between two: long enough that the end-node sleeps.
const PIECE: usize = 1448;
const APART: Duration = Duration::from_micros(200);
const UNITS: u32 = 400;
const UNITS_QUICK: u32 = 100;
const PASSES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Part {
    Source { to: Ipv4Addr },
    Forwarder { from: Ipv4Addr, to: Ipv4Addr, whole: bool },
    End { at: Ipv4Addr },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Job {
    part: Part,
    units: u32,
}

/// What a node did.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Done {
    /// Units that were right.
    units: u32,
    /// CPU seconds.
    cpu: f64,
    /// How often its thread slept and was scheduled again.
    scheduled: u64,
    /// Packets that reached its interface.
    packets: u64,
    /// Seconds that its thread was ready, and something else ran.
    waited: f64,
}

/// Counters of this thread and of an interface of this namespace.
struct Before {
    cpu: f64,
    scheduled: u64,
    packets: u64,
    waited: f64,
    interface: &'static str,
}

fn field(path: &str, name: &str, at: usize) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
    let number = line.and_then(|line| line.split_ascii_whitespace().nth(at)?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{path} has no {name}")))
}

impl Before {
    fn now(interface: &'static str) -> io::Result<Before> {
        let scheduled = field("/proc/thread-self/status", "voluntary_ctxt_switches:", 0)?;
        // Received bytes come first, then packets.
        let packets = field("/proc/thread-self/net/dev", &format!("{interface}:"), 1)?;
        let waited = field("/proc/thread-self/schedstat", "", 1)? as f64 * 1e-9;
        Ok(Before { cpu: thread_cpu(), scheduled, packets, waited, interface })
    }
    fn since(&self, units: u32) -> io::Result<Done> {
        let now = Before::now(self.interface)?;
        Ok(Done {
            units,
            cpu: now.cpu - self.cpu,
            scheduled: now.scheduled - self.scheduled,
            packets: now.packets - self.packets,
            waited: now.waited - self.waited,
        })
    }
}

/// A unit: its length, its number, and data that depend on it.
fn unit(number: u32) -> Vec<u8> {
    let mut bytes = (LEN as u32).to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.resize(LEN, number as u8);
    bytes
}

struct Passing;

impl Task for Passing {
    const NAME: &'static str = "pass data units on";
    type Job = Job;
    type Word = ();
    type Report = Done;

    fn run(job: &Job, parent: &mut Parent<'_>) -> lastmeter_linux::Result<Done> {
        let what = "passing units on";
        match job.part {
            Part::Source { to } => {
                parent.ready()?;
                source(to, job.units).doing(what)
            }
            Part::Forwarder { from, to, whole } => {
                let listener = TcpListener::bind((from, PORT)).doing(what)?;
                parent.ready()?;
                forward(&listener, to, whole).doing(what)
            }
            Part::End { at } => {
                let listener = TcpListener::bind((at, PORT)).doing(what)?;
                parent.ready()?;
                end(&listener).doing(what)
            }
        }
    }
}

/// For the table of a program whose helpers may do this.
pub(crate) const TASK: Entry = Entry::of::<Passing>();

fn source(to: Ipv4Addr, units: u32) -> io::Result<Done> {
    let mut connection = TcpStream::connect((to, PORT))?;
    connection.set_nodelay(true)?;
    // Late pieces are not made up for, as those would come together.
    for number in 0..units {
        for piece in unit(number).chunks(PIECE) {
            connection.write_all(piece)?;
            std::thread::sleep(APART);
        }
    }
    Ok(Done { units, ..Done::default() })
}

fn accepted(listener: &TcpListener) -> io::Result<TcpStream> {
    let (connection, _) = listener.accept()?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

fn forward(listener: &TcpListener, to: Ipv4Addr, whole: bool) -> io::Result<Done> {
    let mut from = accepted(listener)?;
    let mut to = TcpStream::connect((to, PORT))?;
    to.set_nodelay(true)?;
    let before = Before::now("w0")?;
    let (mut buffer, mut units, mut bytes) = (vec![0; LEN], 0, 0);
    loop {
        let len = if whole {
            match read_unit(&mut from, &mut buffer)? {
                Some(len) => len,
                None => break,
            }
        } else {
            from.read(&mut buffer[..PIECE])?
        };
        if len == 0 {
            break;
        }
        to.write_all(&buffer[..len])?;
        bytes += len;
        units = (bytes / LEN) as u32;
    }
    before.since(units)
}

/// Reads a header and the unit behind it; `None` at the end.
fn read_unit(from: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match from.read_exact(&mut buffer[..HEADER]) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]) as usize;
    let Some(rest) = buffer.get_mut(HEADER..len) else {
        return Err(ErrorKind::InvalidData.into());
    };
    from.read_exact(rest)?;
    Ok(Some(len))
}

fn end(listener: &TcpListener) -> io::Result<Done> {
    let mut from = accepted(listener)?;
    let before = Before::now("w1")?;
    let (mut buffer, mut filled, mut units) = (vec![0; LEN], 0, 0);
    loop {
        let len = from.read(&mut buffer[filled..])?;
        filled += len;
        if len == 0 {
            break;
        }
        if filled == LEN {
            if buffer != unit(units) {
                return Err(ErrorKind::InvalidData.into());
            }
            (filled, units) = (0, units + 1);
        }
    }
    before.since(units)
}

/// The forwarder and the end-node.
fn pass(whole: bool, units: u32) -> Result<[Done; 2], Complaint> {
    let mut site = Site::apart(&NAMES.map(str::to_owned))?;
    let [_, from] = site.join(0, [0, 1], MTU)?;
    let [_, at] = site.join(1, [1, 2], MTU)?;
    let job = |part| Job { part, units };
    site.begin::<Passing>(2, &job(Part::End { at }))?;
    site.begin::<Passing>(1, &job(Part::Forwarder { from, to: at, whole }))?;
    site.begin::<Passing>(0, &job(Part::Source { to: from }))?;
    site.report::<Passing>(0)?;
    let forwarder = site.report::<Passing>(1)?;
    let end = site.report::<Passing>(2)?;
    match end.units == units && forwarder.units == units {
        true => Ok([forwarder, end]),
        false => Err(Complaint(format!("of {units} units {} arrived", end.units))),
    }
}

/// The one of a few passes in which other programs kept both nodes from their cores for the shortest time.
fn least_disturbed(whole: bool, units: u32) -> Result<[Done; 2], Complaint> {
    let mut best: Option<[Done; 2]> = None;
    for _ in 0..PASSES {
        let nodes = pass(whole, units)?;
        let waited = |nodes: &[Done; 2]| nodes[0].waited + nodes[1].waited;
        if best.as_ref().is_none_or(|best| waited(&nodes) < waited(best)) {
            best = Some(nodes);
        }
    }
    best.ok_or_else(|| Complaint("no pass".to_owned()))
}

/// Of what.
#[derive(Clone, Copy)]
enum Of {
    Forwarder,
    Interrupts,
    Scheduled,
}

fn bench(setting: &Setting, of: Of) -> Result<Measurement, Complaint> {
    let units = if setting.quick { UNITS_QUICK } else { UNITS };
    let busy = if load::others(LOOK)?.is_busy() { "; BUSY machine" } else { "" };
    let packets = least_disturbed(false, units)?;
    let whole = least_disturbed(true, units)?;
    let (name, what, unit, value): (_, _, _, fn(&[Done; 2]) -> f64) = match of {
        Of::Forwarder => {
            ("forwarder", "CPU time of the forwarder's program", "s", |[at, _]| at.cpu)
        }
        Of::Interrupts => {
            let what = "packets that reach the end-node's interface";
            ("interrupts", what, "packets/unit", |[_, end]| end.packets as f64)
        }
        Of::Scheduled => {
            let what = "times that the end-node's program is scheduled";
            ("scheduled", what, "times/unit", |[_, end]| end.scheduled as f64)
        }
    };
    let each = |nodes| value(nodes) / f64::from(units);
    let note =
        format!("{what}, for each of {units} units of {LEN} B that are forwarded whole{busy}");
    let result = Measurement::new(format!("units/{name}"), each(&whole), unit, String::new(), note);
    let mut result = result.lower_is_better();
    result.beside("packet by packet", each(&packets));
    Ok(result)
}
