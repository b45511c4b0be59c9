//! `lastmeter bench disk/separation`: what it adds to a command that its device is on a network and not in the host: a
//! disk, a display, a camera, each with its ledger, beside the model.
//!
//! ```text
//! program --call--> device                                      local
//! program --message--> [stack, a thread wakes up] --> device    here: stages of the device's own ledger
//!         <--answer---
//! model   client --> [link: half an echo] --> disk: the stages of the live ledger
//! ```
//!
//! The link's delay and rate are an echo's of this machine, of 28 bytes answered by 16 and by 4112, over TCP and UDP;
//! the device's time is what its ledger says. Nothing is from the times from command to answer that it is compared
//! with. One command at a time.
//!
//! Rows: N-04.

use crate::disk::client::{self, Place};
use crate::disk::modelled::{Asked, Costs, Link, predict};
use crate::measured::{Bench, line};
use crate::sandbox::Ticking;
use crate::{Complaint, Report};
use lastmeter_device::camera::receiver::Receiver;
use lastmeter_device::camera::server as camera;
use lastmeter_device::disk::datagrams::Remote;
use lastmeter_device::disk::server as disk;
use lastmeter_device::display::commands::Program;
use lastmeter_device::display::datagrams::Transactions;
use lastmeter_device::display::server as display;
use lastmeter_ledger::Ledger;
use lastmeter_plugin::host::Limits;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::camera::{Code, Command as Asking};
use lastmeter_wire::framebuffer::{Operation, status};
use lastmeter_wire::nbd::{Command, Request};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a block, and of the echo's messages.
const BLOCK: usize = 4096;
const COMMAND: usize = 28;
const ANSWER: usize = 16;
/// Until an answer has come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of the device's name in the ledgers.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The median time of an action that is repeated for so long, at least ten times.
fn median(seconds: f64, mut act: impl FnMut() -> Result<(), Complaint>) -> Result<f64, Complaint> {
    let (began, mut all) = (Instant::now(), Vec::new());
    while all.len() < 10 || began.elapsed().as_secs_f64() < seconds {
        let before = Instant::now();
        act()?;
        all.push(before.elapsed().as_secs_f64());
    }
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

/// A message's way to another thread of this host: seconds of none of its bytes, and of each.
#[derive(Clone, Copy)]
struct Way {
    base: f64,
    byte: f64,
}

impl Way {
    /// From echoes of a command with a short and a long answer.
    fn of([short, long]: [f64; 2]) -> Way {
        let byte = ((long - short) / BLOCK as f64).max(1e-15);
        let bytes = (COMMAND + ANSWER) as f64 * byte;
        Way { base: ((short - bytes) / 2.0).max(0.0), byte }
    }
}

fn patient(stream: &TcpStream) -> Result<(), Complaint> {
    stream.set_nodelay(true)?;
    Ok(stream.set_read_timeout(Some(PATIENCE))?)
}

/// The time of an echo over TCP, whose answer has so many bytes.
fn by_tcp(answer: usize, seconds: f64) -> Result<f64, Complaint> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    patient(&stream)?;
    let (mut other, _) = listener.accept()?;
    other.set_nodelay(true)?;
    std::thread::spawn(move || {
        let (mut command, answer) = ([0; COMMAND], vec![0; answer]);
        while other.read_exact(&mut command).is_ok() && other.write_all(&answer).is_ok() {}
    });
    let mut bytes = vec![0; answer];
    median(seconds, || {
        stream.write_all(&[0; COMMAND])?;
        Ok(stream.read_exact(&mut bytes)?)
    })
}

/// The same over UDP.
fn by_udp(answer: usize, seconds: f64) -> Result<f64, Complaint> {
    let (own, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    own.connect(other.local_addr()?)?;
    other.connect(own.local_addr()?)?;
    own.set_read_timeout(Some(PATIENCE))?;
    std::thread::spawn(move || {
        let (mut command, answer) = ([0; COMMAND], vec![0; answer]);
        // The last one is empty.
        while other.recv(&mut command).is_ok_and(|len| len > 0) && other.send(&answer).is_ok() {}
    });
    let mut bytes = vec![0; answer];
    let found = median(seconds, || {
        own.send(&[0; COMMAND])?;
        own.recv(&mut bytes)?;
        Ok(())
    });
    own.send(&[])?;
    found
}

/// A command of a device.
struct Case {
    name: &'static str,
    udp: bool,
    /// Bytes of the command and of its answer.
    bytes: [usize; 2],
    /// Seconds of a call that does the same in this host; none where there is nothing to call.
    local: Option<f64>,
    /// Seconds from the command to its answer.
    here: f64,
    /// What the device says of it.
    ledger: Option<Ledger>,
}

impl Case {
    /// Seconds that the device itself takes.
    fn device(&self) -> f64 {
        let path = self.ledger.as_ref().and_then(|ledger| ledger.paths.first());
        path.and_then(|path| path.totals.latency.as_ref()).map_or(0.0, |own| own.mean)
    }
}

fn disks(sandbox: &Ticking, seconds: f64) -> Result<Vec<Case>, Complaint> {
    let here = Path::new(".");
    let start = |key: &str| -> Result<disk::Server, Complaint> {
        let text = format!("memory = true\nsize = \"16 MiB\"\n{key} = \"127.0.0.1:0\"\n");
        let config = disk::Config::parse(&text)?;
        let made = config.disk(here, sandbox.host.clone())?;
        Ok(disk::Server::start(&config, here, made, |_| ())?)
    };
    let server = start("listen")?;
    let mut block = vec![0; BLOCK];
    let local = median(seconds, || {
        server.disk.medium.read(0, black_box(&mut block))?;
        Ok(())
    })?;
    let address = server.address.ok_or("the disk has no address")?;
    let (mut stream, mut reader, _) = client::open(Place::Address(address), "")?;
    let (flags, command, length) = (0, Command::READ, BLOCK as u32);
    let request = Request { flags, command, cookie: 1, offset: 0, length }.emit();
    let mut answer = vec![0; ANSWER + BLOCK];
    let tcp = median(seconds, || {
        stream.write_all(&request)?;
        Ok(reader.read_exact(&mut answer)?)
    })?;
    client::close(&mut stream)?;
    let by_tcp = server.disk.account.ledger("a disk", VERSION, 0.0);
    let server = start("datagrams")?;
    let address = server.datagrams.ok_or("the disk has no address")?;
    let mut remote = Remote::greet(address, "", length)?;
    let udp = median(seconds, || Ok(remote.execute(command, 0, 0, length, &[]).map(|_| ())?))?;
    let by_udp = server.disk.account.ledger("a disk", VERSION, 0.0);
    let bytes = [COMMAND, ANSWER + BLOCK];
    let case = |name, udp, here, ledger| Case {
        name,
        udp,
        bytes,
        local: Some(local),
        here,
        ledger: Some(ledger),
    };
    Ok(vec![
        case("disk/separation-disk-tcp", false, tcp, by_tcp),
        case("disk/separation-disk-udp", true, udp, by_udp),
    ])
}

fn displays(sandbox: &Ticking, seconds: f64) -> Result<Vec<Case>, Complaint> {
    let here = Path::new(".");
    let start = |key: &str| -> Result<display::Server, Complaint> {
        let config =
            display::Config::parse(&format!("size = \"640x480\"\n{key} = \"127.0.0.1:0\"\n"))?;
        let made = config.display(here, sandbox.host.clone())?;
        Ok(display::Server::start(&config, here, made, |_| ())?)
    };
    let done = |(state, _): (u8, Vec<u8>)| match state {
        status::DONE => Ok(()),
        other => Err(Complaint(format!("the display refuses a command: {other}"))),
    };
    let (area, colour) = (Rect { x: 8, y: 8, w: 8, h: 8 }, [1, 2, 3, 0]);
    let server = start("commands")?;
    let local = median(seconds, || {
        server.display.screen.fill(black_box(area), u32::from_le_bytes(colour));
        Ok(())
    })?;
    let stream = TcpStream::connect(server.programs.ok_or("the display has no address")?)?;
    patient(&stream)?;
    let mut program = Program::greet(stream, "")?;
    let tcp = median(seconds, || done(program.ask(Operation::FILL, area, &colour)?))?;
    let by_tcp = server.display.commands.ledger("a display", VERSION, 0.0);
    let server = start("datagrams")?;
    let address = server.datagrams.ok_or("the display has no address")?;
    let mut program = Transactions::greet(address, "", 1, 1400)?;
    let udp = median(seconds, || done(program.ask(Operation::FILL, area, &colour)?))?;
    let by_udp = server.display.commands.ledger("a display", VERSION, 0.0);
    let case = |name, udp, here, ledger| Case {
        name,
        udp,
        bytes: [20, 16],
        local: Some(local),
        here,
        ledger: Some(ledger),
    };
    Ok(vec![
        case("disk/separation-display-tcp", false, tcp, by_tcp),
        case("disk/separation-display-udp", true, udp, by_udp),
    ])
}

/// A camera that is asked how it is, which has no stages: frames wait for the next one that there is.
fn cameras(sandbox: &Ticking, seconds: f64) -> Result<Vec<Case>, Complaint> {
    let here = Path::new(".");
    let config =
        camera::Config::parse("size = \"160x48\"\nrate = 10\nreceivers = \"127.0.0.1:0\"\n")?;
    let made = config.camera(here, sandbox.host.clone())?;
    let server = camera::Server::start(&config, here, made, |_| ())?;
    let address: SocketAddr = server.receivers.ok_or("the camera has no address")?;
    let mut receiver = Receiver::new(address, Asking::default())?;
    let udp = median(seconds, || {
        receiver.ask(Code::Diagnose)?;
        receiver.next(PATIENCE)?.map(|_| ()).ok_or(Complaint("the camera is silent".to_owned()))
    })?;
    let (name, bytes) = ("disk/separation-camera-udp", [72, 56]);
    Ok(vec![Case { name, udp: true, bytes, local: None, here: udp, ledger: None }])
}

pub(crate) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let seconds = if quick { 0.1 } else { arguments.seconds };
    let sandbox = Ticking::new(Limits::default())?;
    let echoes = [by_tcp, by_udp].map(|echo| -> Result<Way, Complaint> {
        Ok(Way::of([echo(ANSWER, seconds)?, echo(ANSWER + BLOCK, seconds)?]))
    });
    let [tcp, udp] = echoes;
    let (tcp, udp) = (tcp?, udp?);
    let mut cases = disks(&sandbox, seconds)?;
    cases.extend(displays(&sandbox, seconds)?);
    cases.extend(cameras(&sandbox, seconds)?);
    let (mut text, mut json) = (String::new(), Vec::<Value>::new());
    let _ = writeln!(
        text,
        "{:28} {:>9} {:>9} {:>9} {:>9} {:>12} {:>12}",
        "us, median", "call", "device", "here", "model", "adds, here", "adds, model"
    );
    for case in &cases {
        let way = if case.udp { udp } else { tcp };
        let costs = Costs { work: [0.0, case.device()], wake: [0.0; 2], delay: way.base };
        let link = Link { rate: 8.0 / way.byte, framing: (0, u64::MAX) };
        let asked = Asked { bytes: case.bytes.map(|bytes| bytes as u64), depth: 1, batch: 1 };
        let model = predict(costs, Some(link), asked)?;
        let local = case.local.unwrap_or(0.0);
        let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
        let _ = writeln!(
            text,
            "{:28} {:>9} {:>9} {:>9} {:>9} {:>12} {:>12}",
            case.name.trim_start_matches("disk/separation-"),
            case.local.map_or("-".to_owned(), us),
            case.ledger.as_ref().map_or("-".to_owned(), |_| us(case.device())),
            us(case.here),
            us(model.latency),
            us(case.here - local),
            us(model.latency - local),
        );
        let note = "a command to its answer over loopback, one at a time, beside the model";
        let mut told = line(case.name, case.here, "s", Some(("model", model.latency)), note);
        told["higher_is_better"] = false.into();
        told["call"] = case.local.into();
        told["device"] = case.ledger.as_ref().map(|_| case.device()).into();
        told["adds"] = json!({ "here": case.here - local, "model": model.latency - local });
        told["ledgers"] = json!({
            "here": case.ledger.as_ref().map(crate::device::value).transpose()?,
            "model": crate::device::value(&model.ledger)?,
        });
        json.push(told);
    }
    let _ = writeln!(
        text,
        "\nAn echo of {COMMAND} B answered by {ANSWER} B: {:.2} us over TCP, {:.2} us over UDP; \
         each byte {:.3} and {:.3} ns.",
        (2.0 * tcp.base + (COMMAND + ANSWER) as f64 * tcp.byte) * 1e6,
        (2.0 * udp.base + (COMMAND + ANSWER) as f64 * udp.byte) * 1e6,
        tcp.byte * 1e9,
        udp.byte * 1e9,
    );
    Ok(Report { text, json, good: true })
}
