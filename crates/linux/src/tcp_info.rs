//! The kernel's state of a TCP connection: `struct tcp_info` of `linux/tcp.h`.
//!
//! Read by offset, because the structure grows with the kernel; fields that an older kernel does not fill
//! stay zero.

use crate::error::{Doing, Result};
use crate::sys;
use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;

/// One sample of a connection. Times in seconds, rates in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: f64,
    /// Minimum round-trip time.
    pub rtt_min: f64,
    /// Congestion window in segments.
    pub congestion_window: u32,
    /// Segments in flight.
    pub unacked: u32,
    /// Payload of a segment, bytes.
    pub segment: u32,
    /// The peer's window in bytes.
    pub send_window: u32,
    /// Time with data to send or in flight.
    pub busy: f64,
    /// Of that, time in which the receiver's window was the limit.
    pub receiver_window_limited: f64,
    /// Of that, time in which the send buffer was the limit.
    pub send_buffer_limited: f64,
    /// The last measured delivery rate.
    pub delivery_rate: f64,
    /// Whether that rate was limited by the application.
    pub application_limited: bool,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes in the send buffer that were never sent.
    pub not_sent: u32,
    /// Segments retransmitted so far.
    pub retransmits: u32,
    /// Segments sent, pure acknowledgements included.
    pub segments_out: u32,
    /// Segments received, pure acknowledgements included.
    pub segments_in: u32,
    /// Segments with data sent.
    pub data_segments_out: u32,
    /// Segments with data received.
    pub data_segments_in: u32,
    /// The pacing rate that the program allows at most, bits per second; 0 if it set none.
    pub pacing_max: f64,
    /// Segments that the peer reported as received twice: they were retransmitted for nothing.
    pub spurious: u32,
    /// Times that segments were seen to overtake each other.
    pub reordered: u32,
    /// Bytes sent, those sent again included.
    #[serde(default)]
    pub bytes_sent: u64,
    /// Of these, bytes sent again.
    #[serde(default)]
    pub bytes_repeated: u64,
    /// Segments that arrived before one that was sent earlier.
    #[serde(default)]
    pub out_of_order: u32,
    /// The receiver's own estimate of the round trip.
    pub receive_rtt: f64,
    /// The window that this end advertises, in bytes.
    pub receive_window: u32,
}

impl TcpInfo {
    /// Reads the state of the connection `fd`.
    pub fn of(fd: BorrowedFd<'_>) -> Result<TcpInfo> {
        let (bytes, len) = sys::tcp_info(fd).doing("reading TCP_INFO")?;
        Ok(TcpInfo::parse(&bytes[..len]))
    }

    /// Everything in the send buffer is in flight, although both windows would allow more: a sender waiting
    /// for room is then limited by the buffer's size, not by the network.
    pub fn all_in_flight(&self) -> bool {
        let in_flight = u64::from(self.unacked) * u64::from(self.segment);
        self.unacked > 0
            && self.not_sent < self.segment
            && self.unacked < self.congestion_window
            && in_flight + u64::from(self.segment) < u64::from(self.send_window)
    }

    /// Bytes that have left for the first time; before Linux 5.5, an estimate by segments in flight.
    pub fn departed(&self) -> u64 {
        match self.bytes_sent {
            0 => self.bytes_acked + u64::from(self.unacked) * u64::from(self.segment),
            // The kernel counts the handshake as an acknowledged byte.
            sent => sent.saturating_sub(self.bytes_repeated).max(self.bytes_acked),
        }
    }

    /// Reads the kernel's structure.
    pub fn parse(bytes: &[u8]) -> TcpInfo {
        let word = |at: usize| {
            bytes.get(at..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| u32::from_ne_bytes(*b))
        };
        let long = |at: usize| {
            bytes.get(at..).and_then(|b| b.first_chunk::<8>()).map_or(0, |b| u64::from_ne_bytes(*b))
        };
        let microseconds = |count: u64| count as f64 * 1e-6;
        TcpInfo {
            application_limited: bytes.get(7).is_some_and(|b| b & 1 != 0),
            segment: word(16),
            unacked: word(24),
            rtt: microseconds(word(68).into()),
            congestion_window: word(80),
            retransmits: word(100),
            bytes_acked: long(120),
            bytes_received: long(128),
            segments_out: word(136),
            segments_in: word(140),
            not_sent: word(144),
            rtt_min: microseconds(word(148).into()),
            data_segments_in: word(152),
            data_segments_out: word(156),
            delivery_rate: long(160) as f64 * 8.0,
            busy: microseconds(long(168)),
            receiver_window_limited: microseconds(long(176)),
            send_buffer_limited: microseconds(long(184)),
            send_window: word(228),
            pacing_max: match long(112) {
                0 | u64::MAX => 0.0,
                bytes => bytes as f64 * 8.0,
            },
            spurious: word(216),
            reordered: word(220),
            bytes_sent: long(200),
            bytes_repeated: long(208),
            out_of_order: word(224),
            receive_rtt: microseconds(word(92).into()),
            receive_window: word(232),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_structure_leaves_zeros() {
        let mut bytes = [0u8; 104];
        bytes[68..72].copy_from_slice(&1500u32.to_ne_bytes());
        let info = TcpInfo::parse(&bytes);
        assert!((info.rtt - 0.0015).abs() < 1e-12);
        assert_eq!(info.busy, 0.0);
    }

    #[test]
    fn a_sample_without_a_pacing_cap_passes_between_processes() {
        let info = TcpInfo::parse(&[0xff; 280]);
        assert_eq!(info.pacing_max, 0.0);
        let json = serde_json::to_string(&info).unwrap();
        assert_eq!(serde_json::from_str::<TcpInfo>(&json).unwrap(), info);
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        for len in 0..300 {
            TcpInfo::parse(&vec![0xff; len]);
        }
    }
}
