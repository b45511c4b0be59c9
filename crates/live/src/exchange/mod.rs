//! Short exchanges between two hosts, as real programs: transactions with a device (DTP over UDP), and requests of
//! HTTP, each on a connection of its own.
//!
//! ```text
//! client: window of transactions --UDP--> device: each executed once, in order       transactions, round_trip
//! client: connect, request, close --TCP--> server: answer, close                      connections
//! ```
//!
//! Who closes a connection of TCP first keeps its state for a minute (TIME_WAIT). [`Closes`] says who; the count is the
//! kernel's own (`/proc/net/sockstat`).
//!
//! Rows: N-05, N-06, N-07, N-72, N-73, N-74.

pub mod dtp;
mod http;

pub use http::Closes;

use crate::namespace::Hosts;
use crate::worker::{Reply, Request, reply};
use lastmeter_linux::Result;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How much longer the answering side listens.
const LINGERS: Duration = Duration::from_millis(200);

/// What a helper does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    Device { address: Ipv4Addr, lasts: Duration },
    Owner { address: Ipv4Addr, port: u16, window: u16, len: usize, lasts: Duration },
    Server { address: Ipv4Addr, closes: Closes, lasts: Duration },
    Client { address: Ipv4Addr, port: u16, closes: Closes, lasts: Duration },
}

/// What an end did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exchanged {
    /// Transactions, or connections with a whole answer.
    pub done: u64,
    /// Those that failed, or requests that were sent again.
    pub again: u64,
    /// Seconds.
    pub lasted: f64,
    /// Seconds of a transaction: half took less, and 99 of 100.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// Connections of this host in TIME_WAIT at the end.
    pub time_wait: u64,
}

impl Exchanged {
    /// How many a second.
    pub fn rate(&self) -> f64 {
        self.done as f64 / self.lasted.max(f64::MIN_POSITIVE)
    }
}

/// Runs in a helper.
pub(crate) fn play(part: Part, parent: &mut UnixStream) -> Result<Exchanged> {
    match part {
        Part::Device { address, lasts } => dtp::device(address, lasts, parent),
        Part::Owner { address, port, window, len, lasts } => {
            dtp::owner(address, port, window, len, lasts)
        }
        Part::Server { address, closes, lasts } => http::server(address, closes, lasts, parent),
        Part::Client { address, port, closes, lasts } => http::client(address, port, closes, lasts),
    }
}

impl Hosts {
    fn exchange(
        &mut self,
        answers: Part,
        asks: impl FnOnce(u16) -> Part,
    ) -> Result<(Exchanged, Exchanged)> {
        self.receiver.ask(&Request::Exchange(answers))?;
        let port = reply!(self.receiver, "listen", Reply::Listening { port } => port);
        self.sender.ask(&Request::Exchange(asks(port)))?;
        let asked = reply!(self.sender, "exchange", Reply::Exchanged(exchanged) => exchanged);
        let answered = reply!(self.receiver, "exchange", Reply::Exchanged(exchanged) => exchanged);
        Ok((asked, answered))
    }

    /// Transactions of DTP with `len` bytes in each direction, up to `window` at a time: as seen by the owner and by
    /// the device.
    ///
    /// # Errors
    /// When a helper fails.
    pub fn transactions(
        &mut self,
        window: u16,
        len: usize,
        lasts: Duration,
    ) -> Result<(Exchanged, Exchanged)> {
        let address = self.receiver_address();
        self.exchange(Part::Device { address, lasts: lasts + LINGERS }, |port| Part::Owner {
            address,
            port,
            window,
            len,
            lasts,
        })
    }

    /// Requests of HTTP as fast as the two can, each on its own connection: as seen by clients and by the server.
    ///
    /// # Errors
    /// When a helper fails.
    pub fn connections(
        &mut self,
        closes: Closes,
        lasts: Duration,
    ) -> Result<(Exchanged, Exchanged)> {
        let address = self.receiver_address();
        self.exchange(Part::Server { address, closes, lasts: lasts + LINGERS }, |port| {
            Part::Client { address, port, closes, lasts }
        })
    }
}
