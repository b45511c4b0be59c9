//! Reception under load on this machine: sources that blast, a receiver on a core of its own, a second program that
//! wants what is left of that core.
//!
//! ```text
//! core 0: source ----- eth0 | lm..0 -----> core 1: [softirq] socket --> receiver (work for each datagram)
//!         source ----- eth0 | lm..1 ----->         or AF_XDP ring       second program, at the lowest priority
//! ```
//!
//! [`Place::socket`] measures a program on a UDP socket, behind the kernel's stack with the settings of [`Kernel`].
//! [`Place::port`] gives a ring of AF_XDP to a receiver of the caller's own; [`Place::begin`] and [`Place::end`] make
//! the load around it. The adapter of the thesis has a processor of its own; a veth pair has none, so its work, and
//! that of the XDP program, is done on the source's core, except where [`Kernel`] moves it.
//!
//! Needs root, for AF_XDP and the settings, and two cores. All is in network namespaces of its own, and gone with it.
//!
//! Source: Indiresan 1997, chapter 7; the kernel's `Documentation/networking/napi.rst` and `scaling.rst`.
//!
//! Rows: E-96, E-103, E-106, E-120.

mod knobs;
mod sink;
mod work;

pub use knobs::{Busy, Kernel, Softirq};
pub use sink::{FLOWS, Taken, Tally};
pub use work::Work;

use crate::flood::{Flood, Flooded, Target};
use crate::namespace::Enter;
use crate::worker::{Reply, Request, Worker, reply};
use lastmeter_linux::clock::Precedence;
use lastmeter_linux::cores;
use lastmeter_linux::link::Offloads;
use lastmeter_linux::port::{Port, Xdp};
use lastmeter_linux::{Doing, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The port of the socket, and the length of a frame: 64 bytes of payload.
const PORT: u16 = 9000;
/// Bytes of a frame: headers of Ethernet, IPv4 and UDP, and 64 of payload.
pub const LEN: usize = 14 + 20 + 8 + PAYLOAD;
pub(crate) const PAYLOAD: usize = 64;
const MTU: u32 = 1500;
/// Most interfaces of the receiver.
pub const INTERFACES_MAX: usize = 2;
/// Until all have begun; nothing counts before.
pub const WARM: Duration = Duration::from_millis(60);
/// How much longer sources send than the receiver counts.
const TAIL: Duration = Duration::from_millis(40);

/// What a source sends to an interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Datagrams a second.
    pub rate: f64,
    /// The flows of the datagrams, in turn.
    pub flows: Vec<u8>,
}

/// A program on a socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) address: Ipv4Addr,
    pub(crate) core: usize,
    /// Before other programs.
    pub(crate) first: bool,
    /// Nanoseconds of work for each datagram.
    pub(crate) work: u64,
    pub(crate) lasts: Duration,
    pub(crate) merged: bool,
    pub(crate) busy: Option<Busy>,
    /// Waits with `epoll`, whose polling suspends interrupts.
    pub(crate) suspends: bool,
}

/// What became of a load.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// What each source sent.
    pub flooded: Vec<Flooded>,
    /// Seconds that sources sent.
    pub lasted: f64,
    /// The share of the core that the second program got.
    pub left: f64,
}

impl Around {
    /// Datagrams a second that were sent to interface `at`.
    pub fn offered(&self, at: usize) -> f64 {
        self.flooded.get(at).map_or(0.0, |flooded| flooded.sent as f64 / self.lasted)
    }
}

impl Place {
    /// Runs on the receiver's core, with the precedence of receivers here, and restores the thread after it.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn on_core<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _first = self.first.then(Precedence::take);
        cores::pinned(self.cores.1, work)
    }
}

/// The namespaces, and the cores.
pub struct Place {
    sources: Vec<Worker>,
    receiver: Worker,
    rival: Worker,
    interfaces: Vec<(String, [u8; 6])>,
    cores: (usize, usize),
    first: bool,
    /// Steps a second of the second program when it has the core to itself.
    alone: f64,
}

/// Addresses of interface `at`: the source's and the receiver's.
fn addresses(at: usize) -> (Ipv4Addr, Ipv4Addr) {
    let net = at as u8;
    (Ipv4Addr::new(10, 92, net, 1), Ipv4Addr::new(10, 92, net, 2))
}

impl Place {
    /// Makes it, with so many interfaces at the receiver. Where other programs are busy, receiver and second program
    /// come `first`, before them; else all that matter are these two, at the usual priority and the lowest.
    ///
    /// # Errors
    /// Without root, or a second core.
    pub fn open(interfaces: usize, first: bool) -> Result<Place> {
        let allowed = cores::allowed()?;
        let [source, core, ..] = allowed[..] else {
            let found = "one core".to_owned();
            return Err(Error::Worker { doing: "find two cores".to_owned(), found });
        };
        let mut receiver = Worker::spawn()?;
        receiver.done(&Request::Enter(Enter::NetworkOnly))?;
        receiver.done(&Request::OnlyIpv4)?;
        receiver.done(&Request::SeeInterfaces)?;
        let mut sources = Vec::new();
        let mut made = Vec::new();
        for at in 0..interfaces.clamp(1, INTERFACES_MAX) {
            let mut worker = Worker::spawn()?;
            worker.done(&Request::Enter(Enter::NetworkOnly))?;
            worker.done(&Request::OnlyIpv4)?;
            // The kernel's thread of an interface is found by its name, so it must be the only one.
            let name = format!("lm{:x}{at}", receiver.pid());
            let here = crate::site::INTERFACE.to_owned();
            let (from, to) = addresses(at);
            let peer = receiver.pid();
            let (name_here, peer_name) = (here.clone(), name.clone());
            worker.done(&Request::Pair { name: name_here, peer_name, peer, mtu: MTU })?;
            let offloads = Offloads { segmentation: false, gro: false, checksum: false };
            for (end, interface, address) in
                [(&mut worker, &here, from), (&mut receiver, &name, to)]
            {
                let interface = interface.clone();
                end.done(&Request::Offloads { interface: interface.clone(), offloads })?;
                let prefix = 24;
                end.done(&Request::Address { interface: interface.clone(), address, prefix })?;
                end.done(&Request::BringUp { interface, mtu: MTU })?;
            }
            receiver.ask(&Request::Mac { interface: name.clone() })?;
            let mac = reply!(receiver, "read an address", Reply::Mac(mac) => mac);
            made.push((name, mac));
            sources.push(worker);
        }
        let rival = Worker::spawn()?;
        let cores = (source, core);
        let mut place =
            Place { sources, receiver, rival, interfaces: made, cores, first, alone: 1.0 };
        place.compete(Duration::from_millis(150))?;
        place.alone = place.competed()?.max(1.0);
        Ok(place)
    }

    /// The core of the receiver.
    pub fn core(&self) -> usize {
        self.cores.1
    }

    /// A ring of interface `at`, until it is dropped.
    ///
    /// # Errors
    /// When the kernel has no AF_XDP.
    pub fn port(&mut self, at: usize) -> Result<Box<dyn Port>> {
        self.set(at, &Kernel::default())?;
        let interface = self.interfaces[at].0.clone();
        let index = self.receiver.count(&Request::Index { interface: interface.clone() })?;
        let link = self.receiver.descriptor(&Request::XdpLink { interface: interface.clone() })?;
        let fd = self.receiver.descriptor(&Request::XdpSocket)?;
        let port = Xdp::new(fd, link, index as u32, false);
        Ok(Box::new(port.doing(|| format!("a ring for {interface}"))?))
    }

    fn set(&mut self, at: usize, kernel: &Kernel) -> Result<()> {
        let (interface, _) = self.interfaces[at].clone();
        self.receiver.done(&Request::Knobs {
            interface,
            kernel: *kernel,
            core: self.cores.1,
            first: self.first,
        })
    }

    /// Starts sources and the second program.
    ///
    /// # Errors
    /// When a helper has ended.
    pub fn begin(&mut self, loads: &[Load], lasts: Duration) -> Result<()> {
        for (at, (load, source)) in loads.iter().zip(&mut self.sources).enumerate() {
            let ((src, dst), mac) = (addresses(at), self.interfaces[at].1);
            source.ask(&Request::Flood(Flood {
                rate: load.rate,
                len: LEN,
                lasts: (WARM + lasts + TAIL).as_secs_f64(),
                hostile: false,
                core: Some(self.cores.0),
                flows: load.flows.clone(),
                to: Some(Target { mac, src, dst, port: PORT }),
            }))?;
        }
        self.compete(lasts)
    }

    fn compete(&mut self, lasts: Duration) -> Result<()> {
        self.rival.ask(&Request::Compete {
            core: self.cores.1,
            after: WARM,
            lasts,
            first: self.first,
        })
    }

    fn competed(&mut self) -> Result<f64> {
        Ok(reply!(self.rival, "count", Reply::Rate(rate) => rate))
    }

    /// Waits for the end of as many sources as there were loads.
    ///
    /// # Errors
    /// When a helper has ended.
    pub fn end(&mut self, loads: usize, lasts: Duration) -> Result<Around> {
        let mut flooded = Vec::new();
        for source in self.sources.iter_mut().take(loads) {
            flooded.push(reply!(source, "send frames", Reply::Flooded(flooded) => flooded));
        }
        let left = (self.competed()? / self.alone).min(1.0);
        Ok(Around { flooded, lasted: (WARM + lasts + TAIL).as_secs_f64(), left })
    }

    /// A program on a socket of interface 0, behind the kernel's stack, with `work` for each datagram.
    ///
    /// # Errors
    /// When the kernel refuses the settings.
    pub fn socket(
        &mut self,
        kernel: &Kernel,
        load: &Load,
        work: Duration,
        lasts: Duration,
    ) -> Result<(Taken, Around)> {
        self.set(0, kernel)?;
        self.receiver.ask(&Request::Take(Job {
            address: addresses(0).1,
            core: self.cores.1,
            first: self.first,
            work: work.as_nanos() as u64,
            lasts,
            merged: kernel.merged,
            busy: kernel.busy,
            suspends: kernel.suspended.is_some(),
        }))?;
        reply!(self.receiver, "listen", Reply::Done => ());
        self.begin(std::slice::from_ref(load), lasts)?;
        let around = self.end(1, lasts)?;
        let taken = reply!(self.receiver, "receive", Reply::Taken(taken) => taken);
        Ok((taken, around))
    }
}

/// Waits until one of these has frames, or for so long.
///
/// # Errors
/// When the kernel refuses.
pub fn wait<'a>(ports: impl Iterator<Item = BorrowedFd<'a>>, lasts: Duration) -> Result<()> {
    let mut polled: Vec<PollFd<'_>> =
        ports.map(|port| PollFd::from_borrowed_fd(port, PollFlags::IN)).collect();
    let lasts = Timespec { tv_sec: lasts.as_secs() as i64, tv_nsec: lasts.subsec_nanos().into() };
    match poll(&mut polled, Some(&lasts)) {
        Err(error) if error != rustix::io::Errno::INTR => {
            Err(std::io::Error::from(error)).doing("waiting for frames")
        }
        _ => Ok(()),
    }
}

pub(crate) use knobs::{mac, set};
pub(crate) use sink::take;
pub(crate) use work::compete;
