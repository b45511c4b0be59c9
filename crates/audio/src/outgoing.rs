//! A stream of RTP packets and the reports about it, as its sender makes them.

use lastmeter_device::link::unpredictable;
use lastmeter_wire::rtp::{REPORT_LEN, Report, SAMPLE_LEN, emit_samples, header};
use std::io;
use std::time::{Duration, Instant};

/// Time between two reports of when sound was taken.
const REPORTS: Duration = Duration::from_secs(1);

/// What a sender knows of its stream.
pub(crate) struct Outgoing {
    kind: u8,
    source: u32,
    offset: u32,
    sequence: u16,
    packets: u32,
    bytes: u32,
    reported: Option<Instant>,
}

impl Outgoing {
    /// Its source, its first time and its first sequence number cannot be predicted (RFC 3550, section 5.1).
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub(crate) fn new(kind: u8) -> io::Result<Outgoing> {
        let random = unpredictable().map_err(io::Error::other)?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| random[at + byte]));
        let (source, offset, sequence) = (word(0), word(4), word(8) as u16);
        Ok(Outgoing { kind, source, offset, sequence, packets: 0, bytes: 0, reported: None })
    }
    /// A report, if one is due: the frame with this number was taken at this time since 1970.
    pub(crate) fn report(&mut self, frame: u64, taken: Duration) -> Option<[u8; REPORT_LEN]> {
        if self.reported.is_some_and(|last| last.elapsed() < REPORTS) {
            return None;
        }
        self.reported = Some(Instant::now());
        let Outgoing { source, packets, bytes, .. } = *self;
        let (clock, timestamp) = (Report::clock_of(taken), self.timestamp(frame));
        Some(Report { source, clock, timestamp, packets, bytes }.emit())
    }
    /// The next packet: samples from the frame with this number on.
    pub(crate) fn packet(&mut self, frame: u64, samples: &[i16]) -> Vec<u8> {
        // The marker begins what comes after silence (RFC 3551, section 4.1).
        let (begins, timestamp) = (self.packets == 0, self.timestamp(frame));
        let mut packet = header(self.kind, begins, self.sequence, timestamp, self.source).to_vec();
        emit_samples(samples, &mut packet);
        self.sequence = self.sequence.wrapping_add(1);
        packet
    }
    /// A packet with so many samples was sent; their bytes.
    pub(crate) fn sent(&mut self, samples: usize) -> u64 {
        let len = samples * SAMPLE_LEN;
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len as u32);
        len as u64
    }
    fn timestamp(&self, frame: u64) -> u32 {
        self.offset.wrapping_add(frame as u32)
    }
}
