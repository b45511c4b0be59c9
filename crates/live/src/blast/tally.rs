//! A sink's counts: a machine that takes packets with their arrival times.
//!
//! | count        | of                                                                          |
//! |--------------|-----------------------------------------------------------------------------|
//! | `packets`    | received, without duplicates                                                |
//! | `duplicated` | received before                                                             |
//! | `reordered`  | with a number below an earlier one's (RFC 4737 §3), not duplicates          |
//! | `ancient`    | too far behind the newest to tell whether they are duplicates; not received |
//! | `damaged`    | with a wrong length, fill or check                                          |
//! | `foreign`    | that are not of this flow                                                   |
//!
//! Jitter is that of RFC 3550 §6.4.1 and appendix A.8: differences of transit times, which need no common
//! clock. The one-way delay needs one, and is unknown without.

use super::header::{Fault, Header, Kind};
use super::report::{Percentiles, SinkReport};
use lastmeter_base::Duration;
use lastmeter_engine::Distribution;

/// How far behind the newest a packet may be and still be distinguished from a duplicate.
const WINDOW: u64 = 1 << 20;
const WORDS: usize = (WINDOW / 64) as usize;

/// Which of the latest sequence numbers were received.
#[derive(Clone, Debug)]
struct Window {
    seen: Vec<u64>,
    greatest: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    New,
    Late,
    Duplicate,
    Ancient,
}

impl Window {
    fn bit(seq: u64) -> (usize, u64) {
        ((seq % WINDOW / 64) as usize, 1 << (seq % 64))
    }

    fn enter(&mut self, seq: u64) -> Place {
        let (word, bit) = Window::bit(seq);
        let greatest = self.greatest.unwrap_or(seq);
        if self.greatest.is_none() || seq > greatest {
            if seq - greatest >= WINDOW {
                self.seen.fill(0);
            } else {
                for skipped in greatest + 1..seq {
                    let (word, bit) = Window::bit(skipped);
                    self.seen[word] &= !bit;
                }
            }
            self.seen[word] |= bit;
            self.greatest = Some(seq);
            return Place::New;
        }
        if greatest - seq >= WINDOW {
            return Place::Ancient;
        }
        if self.seen[word] & bit != 0 {
            return Place::Duplicate;
        }
        self.seen[word] |= bit;
        Place::Late
    }
}

/// The counts of one flow.
#[derive(Clone, Debug)]
pub struct Tally {
    flow: u16,
    run: u64,
    same_clock: bool,
    /// Bytes of a size that the header's length does not count.
    around: u64,
    window: Window,
    report: SinkReport,
    first: Option<(u64, u64)>,
    last: u64,
    transit: Option<i64>,
    /// Nanoseconds.
    jitter: f64,
    variation: Distribution,
    delay: Distribution,
}

impl Tally {
    /// Of `flow` in `run`; `same_clock` says whether source and sink share a clock, and `around` how many
    /// bytes of headers a packet's size includes.
    pub fn new(flow: u16, run: u64, same_clock: bool, around: u64) -> Tally {
        Tally {
            flow,
            run,
            same_clock,
            around,
            window: Window { seen: vec![0; WORDS], greatest: None },
            report: SinkReport { flow, ..SinkReport::default() },
            first: None,
            last: 0,
            transit: None,
            jitter: 0.0,
            variation: Distribution::default(),
            delay: Distribution::default(),
        }
    }

    /// Takes a packet that arrived at `now`, in nanoseconds of the sink's clock. Returns its header if it is
    /// a probe, which must be answered.
    pub fn take(&mut self, now: u64, read: Result<Header, Fault>) -> Option<Header> {
        let header = match read {
            Err(Fault::Damaged) => {
                self.report.damaged += 1;
                return None;
            }
            Ok(header) if header.run == self.run && header.flow == self.flow => header,
            _ => {
                self.report.foreign += 1;
                return None;
            }
        };
        match header.kind {
            Kind::Data => self.count(now, &header),
            Kind::Probe => return Some(header),
            Kind::Echo => self.report.foreign += 1,
        }
        None
    }

    fn count(&mut self, now: u64, header: &Header) {
        match self.window.enter(header.seq) {
            Place::New => {}
            Place::Late => self.report.reordered += 1,
            Place::Duplicate => {
                self.report.duplicated += 1;
                return;
            }
            Place::Ancient => {
                self.report.ancient += 1;
                return;
            }
        }
        let size = u64::from(header.len) + self.around;
        self.report.packets += 1;
        self.report.bytes += size;
        self.first.get_or_insert((now, size));
        self.last = now;
        // Clocks may have any offset; only differences count.
        let transit = now.wrapping_sub(header.sent) as i64;
        if let Some(before) = self.transit.replace(transit) {
            let difference = transit.wrapping_sub(before).unsigned_abs();
            self.jitter += (difference as f64 - self.jitter) / 16.0;
            self.variation.record(nanoseconds(difference));
        }
        if self.same_clock {
            self.delay.record(nanoseconds(now.saturating_sub(header.sent)));
        }
    }

    /// So far: packets and bytes.
    pub fn so_far(&self) -> (u64, u64) {
        (self.report.packets, self.report.bytes)
    }

    /// The counts; `overrun` is how many packets the kernel dropped because the sink fell behind.
    pub fn report(&self, overrun: u64) -> SinkReport {
        let mut report = self.report.clone();
        report.overrun = overrun;
        if let Some((first, size)) = self.first
            && self.last > first
        {
            // From the first arrival on: what came with it came before.
            let elapsed = (self.last - first) as f64 * 1e-9;
            report.rate = (report.bytes - size) as f64 * 8.0 / elapsed;
            report.packet_rate = (report.packets - 1) as f64 / elapsed;
        }
        report.jitter = self.jitter * 1e-9;
        report.variation = Percentiles::of(&self.variation);
        report.delay = self.same_clock.then(|| Percentiles::of(&self.delay)).flatten();
        report
    }
}

/// Clamped, so that no sum leaves the range of times.
const NANOSECONDS_MAX: u64 = 1 << 53;

fn nanoseconds(count: u64) -> Duration {
    Duration::from_ns(count.min(NANOSECONDS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(seq: u64, sent: u64) -> Result<Header, Fault> {
        Ok(Header { kind: Kind::Data, flow: 0, len: 72, run: 9, seq, sent })
    }

    fn tally() -> Tally {
        Tally::new(0, 9, true, 28)
    }

    #[test]
    fn loss_reordering_and_duplication_are_distinguished() {
        let mut tally = tally();
        for seq in [0, 1, 4, 2, 4, 2, 5] {
            tally.take(seq, packet(seq, 0));
        }
        tally.take(0, Err(Fault::Damaged));
        tally.take(0, Ok(Header { run: 8, ..packet(6, 0).unwrap() }));
        let report = tally.report(0);
        assert_eq!((report.packets, report.bytes), (5, 500));
        assert_eq!((report.reordered, report.duplicated), (1, 2));
        assert_eq!((report.damaged, report.foreign), (1, 1));
    }

    #[test]
    fn a_packet_far_behind_is_neither_received_nor_a_duplicate() {
        let mut tally = tally();
        tally.take(0, packet(WINDOW, 0));
        tally.take(0, packet(1, 0));
        tally.take(0, packet(0, 0));
        assert_eq!(tally.report(0).ancient, 1);
        tally.take(0, packet(u64::MAX, 0));
        tally.take(0, packet(u64::MAX, 0));
        assert_eq!(tally.report(0).duplicated, 1);
    }

    /// RFC 3550 A.8: J += (|D| - J) / 16.
    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let mut tally = tally();
        // Sent every 100 ns; transit 50, 66, 50: |D| = 16, 16.
        for (seq, arrived) in [(0, 50), (1, 166), (2, 250)] {
            tally.take(arrived, packet(seq, seq * 100));
        }
        let report = tally.report(0);
        let expected = (1.0 + (16.0 - 1.0) / 16.0) * 1e-9;
        assert!((report.jitter - expected).abs() < 1e-15, "{}", report.jitter);
        let delay = report.delay.unwrap();
        assert!((delay.mean - (50.0 + 66.0 + 50.0) / 3.0 * 1e-9).abs() < 1e-15);
        // 200 B after the first within 200 ns.
        assert!((report.rate - 8e9).abs() < 1.0, "{}", report.rate);
    }

    #[test]
    fn without_a_common_clock_the_delay_is_unknown() {
        let mut tally = Tally::new(0, 9, false, 28);
        tally.take(5, packet(0, u64::MAX));
        tally.take(9, packet(1, 2));
        let report = tally.report(0);
        assert!(report.delay.is_none() && report.variation.is_some());
    }

    proptest! {
        #[test]
        fn every_packet_is_counted_once(
            packets in prop::collection::vec((0u64..40, any::<u64>(), any::<u64>()), 0..300)
        ) {
            let mut tally = tally();
            let mut distinct = std::collections::BTreeSet::new();
            for &(seq, now, sent) in &packets {
                tally.take(now, packet(seq, sent));
                distinct.insert(seq);
            }
            let report = tally.report(0);
            prop_assert_eq!(report.packets, distinct.len() as u64);
            prop_assert_eq!(report.packets + report.duplicated, packets.len() as u64);
        }

        #[test]
        fn any_sequence_numbers_and_times_are_accepted(
            packets in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..20)
        ) {
            let mut tally = tally();
            packets.iter().for_each(|&(seq, now, sent)| {
                tally.take(now, packet(seq, sent));
            });
            let report = tally.report(0);
            let all = report.packets + report.duplicated + report.ancient;
            prop_assert_eq!(all, packets.len() as u64);
        }
    }
}
