//! Settings of the kernel's reception, by interface: where its softirq runs, what it merges and defers.

use lastmeter_linux::link::{self, Offloads};
use lastmeter_linux::netlink::{Message, Netlink};
use lastmeter_linux::{Doing, Error, Result};
use lastmeter_wire::netlink::attributes;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::fs;

/// Where the protocol stack runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Softirq {
    /// On the source's core, as veth does: as if on an adapter's processor.
    #[default]
    Apart,
    /// In softirqs on the receiver's core, told by RPS.
    Steered,
    /// In a thread of the kernel, pinned to the receiver's core (threaded NAPI).
    Threaded,
}

/// Busy polling by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// Microseconds for which a receiver that finds nothing polls (`SO_BUSY_POLL`).
    pub lasts: u32,
    /// Packets for each poll (`SO_BUSY_POLL_BUDGET`).
    pub budget: u32,
}

/// How the kernel receives; by default as veth does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Where the stack runs.
    pub softirq: Softirq,
    /// GRO, and datagrams of a flow merged up to the socket (`UDP_GRO`). A veth end has NAPI only with GRO.
    pub merged: bool,
    /// `napi_defer_hard_irqs` and nanoseconds of `gro_flush_timeout`.
    pub deferred: Option<(u32, u64)>,
    /// Busy polling, preferred to softirqs.
    pub busy: Option<Busy>,
    /// Nanoseconds for which interrupts stay suspended while a program that waits with `epoll` finds something
    /// (`irq-suspend-timeout`, since Linux 6.13). With `deferred` and `busy`.
    pub suspended: Option<u64>,
}

impl Kernel {
    fn needs_napi(&self) -> bool {
        let threaded = self.softirq == Softirq::Threaded;
        threaded || self.merged || self.deferred.is_some() || self.busy.is_some()
    }
}

fn path(interface: &str, file: &str) -> String {
    format!("/sys/class/net/{interface}/{file}")
}

fn write(interface: &str, file: &str, value: &str) -> Result<()> {
    let path = path(interface, file);
    fs::write(&path, value).doing(|| format!("writing {value:?} into {path}"))
}

/// An interface's Ethernet address.
pub(crate) fn mac(interface: &str) -> Result<[u8; 6]> {
    let path = path(interface, "address");
    let text = fs::read_to_string(&path).doing(|| format!("reading {path}"))?;
    let bytes = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    let bytes: Option<Vec<u8>> = bytes.collect();
    let address = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    address.ok_or_else(|| Error::Worker { doing: format!("read {path}"), found: text })
}

/// Sets an interface of this namespace, whatever it was set to before.
pub(crate) fn set(interface: &str, kernel: &Kernel, core: usize, first: bool) -> Result<()> {
    let napi = kernel.needs_napi();
    // In this order: without GRO there is no NAPI, and nothing of it can be set.
    let offloads = |gro| Offloads { segmentation: false, gro, checksum: false };
    offloads(true).apply(interface)?;
    write(interface, "threaded", "0")?;
    let (defer, flush) = kernel.deferred.unwrap_or((0, 0));
    write(interface, "napi_defer_hard_irqs", &defer.to_string())?;
    write(interface, "gro_flush_timeout", &flush.to_string())?;
    match suspend(interface, kernel.suspended.unwrap_or(0)) {
        // An older kernel cannot be told, and suspends nothing.
        Err(_) if kernel.suspended.is_none() => {}
        told => told?,
    }
    let steered = kernel.softirq == Softirq::Steered;
    let cores = if steered { crate::steer::mask(&[core]) } else { "0".to_owned() };
    write(interface, "queues/rx-0/rps_cpus", &cores)?;
    if !napi {
        return offloads(false).apply(interface);
    }
    if kernel.softirq == Softirq::Threaded {
        write(interface, "threaded", "1")?;
        let mut set = CpuSet::new();
        set.set(core);
        for thread in threads(interface)? {
            sched_setaffinity(Some(thread), &set)
                .doing(|| format!("moving the kernel's thread of {interface} to core {core}"))?;
            if first {
                let _ = rustix::process::setpriority_process(Some(thread), FIRST);
            }
        }
    }
    Ok(())
}

/// Sets for how long the interrupts of an interface's NAPIs stay suspended, in nanoseconds: `NAPI_SET` of the generic
/// netlink family `netdev` (`Documentation/netlink/specs/netdev.yaml`).
fn suspend(interface: &str, nanoseconds: u64) -> Result<()> {
    const CONTROL: u16 = 16;
    const GET_FAMILY: u8 = 3;
    const FAMILY_ID: u16 = 1;
    const FAMILY_NAME: u16 = 2;
    const NAPI_GET: u8 = 11;
    const NAPI_SET: u8 = 14;
    const IFINDEX: u16 = 1;
    const ID: u16 = 2;
    const SUSPEND: u16 = 7;
    /// `NETLINK_GENERIC`.
    const GENERIC: u32 = 16;
    let what = format!("suspending the interrupts of {interface}");
    let protocol = std::num::NonZero::new(GENERIC).map(rustix::net::Protocol::from_raw);
    let mut netlink = Netlink::open(protocol)?;
    // `struct genlmsghdr`: a command and a version.
    let message = |kind, command| Message::new(kind, 0).fixed(&[command, 1, 0, 0]);
    let mut family = None;
    let asked = message(CONTROL, GET_FAMILY).attribute(FAMILY_NAME, b"netdev\0");
    netlink.ask(asked, &what, |payload| {
        attributes(payload.get(4..).unwrap_or_default(), |kind, value| {
            if let (FAMILY_ID, [low, high]) = (kind, value) {
                family = Some(u16::from_ne_bytes([*low, *high]));
            }
        });
    })?;
    let missing = || Error::Worker { doing: what.clone(), found: "no such family".to_owned() };
    let family = family.ok_or_else(missing)?;
    let index = link::index_of(interface)?.to_ne_bytes();
    let mut found = Vec::new();
    netlink.dump(message(family, NAPI_GET).attribute(IFINDEX, &index), &what, |payload| {
        attributes(payload.get(4..).unwrap_or_default(), |kind, value| {
            if kind == ID {
                found.push(value.to_vec());
            }
        });
    })?;
    for id in found {
        let set = message(family, NAPI_SET).attribute(ID, &id);
        netlink.change(set.attribute(SUSPEND, &nanoseconds.to_ne_bytes()), &what)?;
    }
    Ok(())
}

/// The priority of the kernel's thread where receivers come first, as theirs.
const FIRST: i32 = -20;

/// The kernel's threads of an interface: `napi/NAME-NUMBER`, cut to 15 characters.
fn threads(interface: &str) -> Result<Vec<Pid>> {
    let wanted = format!("napi/{interface}-");
    let wanted = &wanted[..wanted.len().min(15)];
    let entries = fs::read_dir("/proc").doing("looking for the kernel's threads")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_one = |pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with(wanted))
    };
    let found: Vec<Pid> = numbers.filter(is_one).filter_map(Pid::from_raw).collect();
    if found.is_empty() {
        let doing = format!("find the kernel's thread of {interface}");
        return Err(Error::Worker { doing, found: "there is none".to_owned() });
    }
    Ok(found)
}
