//! How often the network interrupted the host, beside how often it can be (J-04).
//!
//! ```text
//! samples in softirqs / receive softirqs  = what one takes         1 / that = how many fit on a CPU
//! samples in softirqs / segments received = what an event would take at least, if each interrupted by itself
//! ```
//!
//! An adapter that interrupts for each packet or cell needs an answer before the next one comes. Events that come
//! faster than the least that one takes cannot each interrupt, however little else the host does; those that come
//! slower than a whole interruption can. Between the two nothing is known.
//!
//! Nothing is said where softirqs take less than [`MATTERS`] of a CPU: nobody would gain by fewer of them.
//!
//! Softirqs are those of the whole machine, samples those of the transfer: other programs' traffic makes one look
//! shorter, and leaves what a segment takes as it is.
//!
//! Source: HPL-93-37, §2.1: a cell of STS-12c every 0.7 us, and 20 us or more to interrupt a host.
//!
//! Rows: J-04.

use lastmeter_ledger::figures;
use lastmeter_live::transfer::Measurement;

/// The share of a CPU from which interruptions are worth a note.
pub const MATTERS: f64 = 0.25;
/// Fewer samples in softirqs say nothing.
const SAMPLES_MIN: u64 = 50;
/// Headers of a packet of IPv4: TCP's with time stamps (RFC 7323).
const HEADERS: f64 = 52.0;
/// Data of a cell, in bytes (ITU-T I.361).
const CELL: f64 = 48.0;

/// What was counted and sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Interrupted {
    /// Receive softirqs a second.
    rate: f64,
    /// Seconds of CPU time that one takes, with all that it finds.
    each: f64,
    /// Segments that it finds.
    found: f64,
    /// Segments a second.
    segments: f64,
    /// Bytes a second of data.
    data: f64,
    /// Bytes of a packet.
    mtu: u32,
}

/// Whether events that come so often can each interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    TooFast,
    InTime,
    Unknown,
}

impl Interrupted {
    fn of(m: &Measurement) -> Option<Interrupted> {
        let sampled = m.sampled.as_ref().filter(|sampled| sampled.whole)?;
        let groups: u64 = sampled.groups.iter().map(|group| group.softirq.total()).sum();
        let samples = groups + sampled.outside.total();
        let softirqs = m.counters.softirqs.get("NET_RX").copied().unwrap_or(0) as f64;
        let segments = (m.sender.tcp.segments_in + m.receiver.tcp.segments_in) as f64;
        if samples < SAMPLES_MIN || softirqs == 0.0 || segments == 0.0 {
            return None;
        }
        Some(Interrupted {
            rate: softirqs / m.elapsed,
            each: samples as f64 * sampled.period / softirqs,
            found: segments / softirqs,
            segments: segments / m.elapsed,
            data: m.goodput.mean / 8.0,
            mtu: m.setting.mtu,
        })
    }

    /// Of a CPU.
    fn share(&self) -> f64 {
        self.rate * self.each
    }

    /// The least that an event of its own takes.
    fn least(&self) -> f64 {
        self.each / self.found.max(1.0)
    }

    fn can(&self, events: f64) -> Answer {
        match 1.0 / events {
            apart if apart < self.least() => Answer::TooFast,
            apart if apart >= self.each => Answer::InTime,
            _ => Answer::Unknown,
        }
    }

    fn words(&self) -> String {
        let comes = |what: String, events: f64| {
            let answer = match self.can(events) {
                Answer::TooFast => "faster than the host can be interrupted",
                Answer::InTime => "each could interrupt the host",
                Answer::Unknown => "whether each could interrupt the host is not known",
            };
            format!("{what} every {}: {answer}", figures::time(1.0 / events))
        };
        let packets = self.data / (f64::from(self.mtu) - HEADERS).max(1.0);
        format!(
            "Receive softirqs took {:.0} % of a CPU: {:.0} a second, {} each, with {:.1} segments. \
             {}. {}. {}.",
            self.share() * 100.0,
            self.rate,
            figures::time(self.each),
            self.found,
            comes("Segments came".to_owned(), self.segments),
            comes(format!("In packets of {} B the data would come", self.mtu), packets),
            comes("In ATM cells".to_owned(), self.data / CELL)
        )
    }
}

/// What a ledger of a transfer of our own says of it; through a relay there are others' softirqs, too.
pub(super) fn note(m: &Measurement) -> Option<String> {
    let found = Interrupted::of(m).filter(|found| m.relay.is_none() && found.share() >= MATTERS)?;
    Some(found.words())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// STS-12c in cells of 53 bytes, beside a host that takes 20 us for an interrupt, as published.
    const PUBLISHED: Interrupted = Interrupted {
        rate: 10_000.0,
        each: 20e-6,
        found: 1.0,
        segments: 10_000.0,
        data: 622.08e6 / 8.0 * 48.0 / 53.0,
        mtu: 1500,
    };

    #[test]
    fn the_published_cells_come_too_fast_and_the_published_packets_do_not_j_04() {
        assert!((CELL / PUBLISHED.data - 0.7e-6).abs() < 0.05e-6, "0.7 us, as printed");
        assert_eq!(PUBLISHED.can(PUBLISHED.data / CELL), Answer::TooFast);
        assert_eq!(PUBLISHED.can(PUBLISHED.segments), Answer::InTime);
        let words = PUBLISHED.words();
        assert!(words.contains("20 % of a CPU: 10000 a second, 20 us each"), "{words}");
        assert!(words.contains("In ATM cells every 681.6 ns: faster than the host"), "{words}");
    }

    #[test]
    fn what_lies_between_a_part_of_an_interruption_and_a_whole_one_is_not_known() {
        let merged = Interrupted { found: 10.0, ..PUBLISHED };
        assert_eq!(merged.can(1.0 / 1.9e-6), Answer::TooFast);
        assert_eq!(merged.can(1.0 / 10e-6), Answer::Unknown);
        assert_eq!(merged.can(1.0 / 20.1e-6), Answer::InTime);
    }
}
