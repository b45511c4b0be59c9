//! Connections that the kernel reports when they are gone: those that began and ended between two looks.
//!
//! `sock_diag` multicasts the last state of each TCP connection when it destroys it
//! (`SKNLGRP_INET_TCP_DESTROY`). By then nobody holds the socket, so its owner is not known: it counts as the
//! program's if it went to an address and port, or came to one, of a connection that a look saw in the
//! program's hands.

use super::diag::{self, Connection};
use super::tally;
use lastmeter_linux::Result;
use lastmeter_linux::netlink::Netlink;
use rustix::net::netlink as protocols;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// `SKNLGRP_INET_TCP_DESTROY` and `SKNLGRP_INET6_TCP_DESTROY`: groups 1 and 3, as bits.
const GROUPS: u32 = 0b101;
/// The most that are kept; later ones are only counted.
const KEPT_MAX: usize = 65_536;

/// Connections that no look saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// How many.
    pub connections: u64,
    /// Bytes that their other ends acknowledged.
    pub sent: u64,
    /// Bytes that arrived.
    pub received: u64,
    /// Reports of this network namespace that were lost, because they came too fast.
    pub lost: u64,
}

/// One that is gone.
#[derive(Clone, Copy, Debug)]
struct Gone {
    local: SocketAddr,
    remote: SocketAddr,
    sent: u64,
    received: u64,
}

/// The reports of one network namespace.
pub(super) struct Closings {
    reports: Netlink,
    gone: Vec<Gone>,
    lost: u64,
}

impl Closings {
    /// Those of the network namespace of this process, or in which process `pid` is.
    pub(super) fn open(pid: Option<u32>) -> Result<Closings> {
        let open: fn() -> Result<Netlink> = || Netlink::subscribe(protocols::SOCK_DIAG, GROUPS);
        let reports = match pid {
            None => open()?,
            Some(pid) => diag::within(pid, open)?,
        };
        Ok(Closings { reports, gone: Vec::new(), lost: 0 })
    }

    /// Takes what was reported since the last time.
    pub(super) fn take(&mut self) {
        let (gone, lost) = (&mut self.gone, &mut self.lost);
        *lost += self.reports.events(|report| {
            let Some(Connection { local, remote, tcp, .. }) = diag::parse(report) else { return };
            if gone.len() < KEPT_MAX {
                let (sent, received) = (tcp.bytes_acked, tcp.bytes_received);
                gone.push(Gone { local, remote, sent, received });
            }
        });
    }
}

/// Of what is gone, what was the program's and no look saw.
pub(super) fn of<'a>(
    all: impl Iterator<Item = &'a Closings> + Clone,
    seen: impl Iterator<Item = &'a tally::Connection>,
) -> Closed {
    let (mut pairs, mut ends) = (BTreeSet::new(), BTreeSet::new());
    for one in seen {
        let (local, remote) = one.ends();
        pairs.insert((local, remote));
        // Of a server's connections the local end is the same, of a client's the remote one.
        ends.insert((true, local));
        ends.insert((false, remote));
    }
    let mut closed = Closed { lost: all.clone().map(|one| one.lost).sum(), ..Closed::default() };
    for gone in all.flat_map(|one| &one.gone) {
        let known = ends.contains(&(true, gone.local)) || ends.contains(&(false, gone.remote));
        if known && !pairs.contains(&(gone.local, gone.remote)) {
            closed.connections += 1;
            closed.sent = closed.sent.saturating_add(gone.sent);
            closed.received = closed.received.saturating_add(gone.received);
        }
    }
    closed
}
