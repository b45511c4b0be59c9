//! Two network namespaces joined by a veth pair, held only by helper processes.
//!
//! ```text
//! sender worker            (relay worker)             receiver worker
//! [ lm0 10.91.0.1 ]------[ lm-in | lm-out ]--------[ lm0 10.91.0.2 ]
//! ```
//!
//! The namespaces have no names: when their processes end, in whatever way, the kernel removes the
//! namespaces and their interfaces. Privileges are tried in this order: an unprivileged user namespace,
//! root, else plain loopback without namespaces; [`Isolation`] says which was used.

use crate::sample::{Prepared, Sampler};
use crate::waits::Looking;
use crate::worker::{Request, Worker};
use lastmeter_linux::link::{self, Offloads};
use lastmeter_linux::{Doing, Error, Result};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

/// The hosts' interface, which has the same name in both namespaces.
pub(crate) const INTERFACE: &str = "lm0";
/// The relay's interface towards the sender.
pub(crate) const RELAY_IN: &str = "lm-in";
/// The relay's interface towards the receiver.
pub(crate) const RELAY_OUT: &str = "lm-out";
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);
const PREFIX: u8 = 24;
/// A link's default.
const MTU_FIRST: u32 = 1500;

/// How the two hosts are isolated from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// Network namespaces in an unprivileged user namespace.
    UserNamespace,
    /// Network namespaces made as root.
    Root,
    /// No namespaces: two processes over the loopback interface with its MTU and offloads.
    Loopback,
}

/// How a worker gets its namespaces.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Enter {
    /// A new user namespace and a network namespace in it.
    NewUser,
    /// The user namespace of this process, and a new network namespace in it.
    JoinUser(u32),
    /// A new network namespace, with the present privileges.
    NetworkOnly,
    /// The network namespace of this process, and its user namespace if `user`.
    Join { pid: u32, user: bool },
}

/// Shows this process the interfaces of its network namespace in `/sys`, by a mount that nobody else sees. Needs root.
pub(crate) fn see_interfaces() -> Result<()> {
    let what = "seeing the interfaces";
    lastmeter_linux::sys::unshare(UnshareFlags::NEWNS).doing(what)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).doing(what)?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).doing(what)
}

/// Runs in a worker, which has one thread, as the kernel requires.
pub(crate) fn enter(how: Enter) -> Result<()> {
    match how {
        Enter::NewUser => {
            // The identity outside must be read before it is hidden by the new namespace.
            let uid = rustix::process::geteuid().as_raw();
            let gid = rustix::process::getegid().as_raw();
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
            // The kernel accepts a group map from an ordinary user only after this.
            let _ = fs::write("/proc/self/setgroups", "deny");
            fs::write("/proc/self/uid_map", format!("0 {uid} 1\n"))
                .doing("mapping the user into the namespace")?;
            fs::write("/proc/self/gid_map", format!("0 {gid} 1\n"))
                .doing("mapping the group into the namespace")?;
        }
        Enter::JoinUser(pid) => {
            let path = format!("/proc/{pid}/ns/user");
            let file = fs::File::open(&path).doing(|| format!("opening {path}"))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::User))
                .doing("joining the other host's user namespace")?;
            unshare(UnshareFlags::NEWNET)?;
        }
        Enter::NetworkOnly => unshare(UnshareFlags::NEWNET)?,
        Enter::Join { pid, user } => {
            let all = [("user", LinkNameSpaceType::User), ("net", LinkNameSpaceType::Network)];
            for (name, kind) in all.into_iter().skip(usize::from(!user)) {
                let path = format!("/proc/{pid}/ns/{name}");
                let file = fs::File::open(&path).doing(|| format!("opening {path}"))?;
                move_into_link_name_space(file.as_fd(), Some(kind))
                    .doing("joining the other host's namespaces")?;
            }
        }
    }
    link::bring_up("lo", None)
}

/// Tries `open` in each isolation by namespaces, the fewest privileges first.
pub(crate) fn with_fewest_privileges<T>(
    doing: &str,
    mut open: impl FnMut(Isolation) -> Result<T>,
) -> Result<T> {
    let mut refusals = Vec::new();
    for isolation in [Isolation::UserNamespace, Isolation::Root] {
        match open(isolation) {
            Ok(opened) => return Ok(opened),
            Err(error) => refusals.push(format!("{isolation:?}: {error}")),
        }
    }
    let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    Err(Error::System { doing: format!("{doing} ({})", refusals.join("; ")), source })
}

fn unshare(flags: UnshareFlags) -> Result<()> {
    lastmeter_linux::sys::unshare(flags).doing(|| format!("making namespaces ({flags:?})"))
}

/// Two hosts, ready for transfers.
pub struct Hosts {
    pub(crate) isolation: Isolation,
    pub(crate) sender: Worker,
    pub(crate) receiver: Worker,
    pub(crate) relay: Option<Worker>,
    /// Of both ends, while transfers are measured.
    pub(crate) sampler: Option<Sampler>,
    /// While a transfer is looked at for what waits.
    pub(crate) looking: Option<Looking>,
}

impl Hosts {
    /// Makes the hosts with the fewest privileges that work, with a relay between them if `relay`.
    ///
    /// # Errors
    /// A relay requires namespaces. Loopback always works.
    pub fn open(relay: bool) -> Result<Hosts> {
        let open = |isolation| Hosts::open_as(isolation, relay);
        match with_fewest_privileges("making namespaces for a relay", open) {
            Err(_) if !relay => Hosts::open_as(Isolation::Loopback, false),
            opened => opened,
        }
    }

    /// Makes the hosts with exactly this isolation.
    ///
    /// # Errors
    /// When privileges are missing.
    pub fn open_as(isolation: Isolation, relay: bool) -> Result<Hosts> {
        let mut sender = Worker::spawn()?;
        let mut receiver = Worker::spawn()?;
        if isolation == Isolation::Loopback {
            return Ok(Hosts {
                isolation,
                sender,
                receiver,
                relay: None,
                sampler: None,
                looking: None,
            });
        }
        let (first, others) = match isolation {
            Isolation::UserNamespace => (Enter::NewUser, Enter::JoinUser(sender.pid())),
            _ => (Enter::NetworkOnly, Enter::NetworkOnly),
        };
        sender.done(&Request::Enter(first))?;
        receiver.done(&Request::Enter(others))?;
        let relay = if relay {
            let mut relay = Worker::spawn()?;
            relay.done(&Request::Enter(others))?;
            relay.done(&pair(RELAY_IN, &sender))?;
            relay.done(&pair(RELAY_OUT, &receiver))?;
            for interface in [RELAY_IN, RELAY_OUT] {
                relay
                    .done(&Request::BringUp { interface: interface.to_owned(), mtu: MTU_FIRST })?;
            }
            Some(relay)
        } else {
            sender.done(&pair(INTERFACE, &receiver))?;
            None
        };
        for (worker, address) in [(&mut sender, SENDER), (&mut receiver, RECEIVER)] {
            worker.done(&Request::Address {
                interface: INTERFACE.to_owned(),
                address,
                prefix: PREFIX,
            })?;
            let interface = INTERFACE.to_owned();
            worker.done(&Request::BringUp { interface, mtu: MTU_FIRST })?;
        }
        Ok(Hosts { isolation, sender, receiver, relay, sampler: None, looking: None })
    }

    /// Samples both ends during each transfer from now on; `Err` says in words why this user may not.
    ///
    /// # Errors
    /// See above.
    pub fn sample(&mut self) -> std::result::Result<(), String> {
        let ends = [self.sender.pid(), self.receiver.pid()];
        self.sampler = Some(Sampler::open(Prepared::new()?, &ends)?);
        Ok(())
    }

    /// Whether transfers are sampled.
    pub fn samples(&self) -> bool {
        self.sampler.is_some()
    }

    /// Samples no longer.
    pub fn stop_sampling(&mut self) {
        self.sampler = None;
    }

    /// How they are isolated.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The address at which the receiver listens.
    pub(crate) fn receiver_address(&self) -> Ipv4Addr {
        match self.isolation {
            Isolation::Loopback => Ipv4Addr::LOCALHOST,
            _ => RECEIVER,
        }
    }

    /// Sets MTU and offloads of every interface on the path; loopback is left alone.
    pub(crate) fn configure(&mut self, mtu: u32, segmentation: bool, sums: bool) -> Result<()> {
        link::check_mtu(mtu)?;
        if self.isolation == Isolation::Loopback {
            return Ok(());
        }
        // A frame that passes through a packet socket loses its partial-checksum flag, and a
        // super-packet would pass as one frame: a relay forwards plain frames only. Batches need checksum offload.
        let plain = sums || self.relay.is_some();
        let offloads =
            Offloads { segmentation: segmentation && !plain, gro: false, checksum: !plain };
        if let Some(relay) = &mut self.relay {
            for interface in [RELAY_IN, RELAY_OUT] {
                relay.done(&Request::BringUp { interface: interface.to_owned(), mtu })?;
            }
        }
        for worker in [&mut self.sender, &mut self.receiver] {
            let interface = INTERFACE.to_owned();
            worker.done(&Request::BringUp { interface: interface.clone(), mtu })?;
            worker.done(&Request::Offloads { interface, offloads })?;
        }
        Ok(())
    }
}

/// Requests a pair with `name` at the worker and [`INTERFACE`] at `peer`.
fn pair(name: &str, peer: &Worker) -> Request {
    Request::Pair {
        name: name.to_owned(),
        peer_name: INTERFACE.to_owned(),
        peer: peer.pid(),
        mtu: MTU_FIRST,
    }
}
