//! Packets that the kernel sends when they are due (`SO_TXTIME`), where the interface has the queueing discipline `fq`.
//! Others send at once.

use rustix::net::sockopt::set_txtime;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, TxTimeFlags, sendmsg_addr,
};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How long before its time the kernel gets a packet.
pub const AHEAD: Duration = Duration::from_millis(2);

/// Who keeps the gaps of a frame's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// The camera's own clock.
    #[default]
    Clock,
    /// The kernel, by `fq`.
    Fq,
}

impl Pacing {
    fn clock(self) -> Option<ClockId> {
        match self {
            Pacing::Clock => None,
            Pacing::Fq => Some(ClockId::Monotonic),
        }
    }
    /// How long before its time a packet is handed over.
    pub fn ahead(self) -> Duration {
        if self == Pacing::Clock { Duration::ZERO } else { AHEAD }
    }
    /// Prepares the socket.
    ///
    /// # Errors
    /// If the kernel knows no times of packets.
    pub fn begin(self, socket: &UdpSocket) -> io::Result<()> {
        self.clock().map_or(Ok(()), |clock| Ok(set_txtime(socket, clock, TxTimeFlags::empty())?))
    }
    /// Sends a datagram, at this time if that is to come.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn send(
        self,
        socket: &UdpSocket,
        to: SocketAddr,
        datagram: &[u8],
        at: Instant,
    ) -> io::Result<()> {
        let left = at.saturating_duration_since(Instant::now());
        let Some(clock) = self.clock().filter(|_| !left.is_zero()) else {
            return socket.send_to(datagram, to).map(drop);
        };
        let now = clock_gettime(clock);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(TxTime(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::TxTime(now + left.as_nanos() as u64));
        let data = [IoSlice::new(datagram)];
        sendmsg_addr(socket, &to, &data, &mut control, SendFlags::empty())?;
        Ok(())
    }
}
