//! Reserved paths: with switches that have no queues, a path's latency is guaranteed only if no other reserved
//! path shares a channel with it.
//!
//! Two paths that cross one switch through different ports do not conflict: a switch has no queue, and its ports
//! are interconnected without shared parts. So we read "intersect at switches" as: leave one switch by the same
//! port (or enter one host).
//!
//! Source: Touch et al., §4.a, after Kwan et al., ICCCN 1996 (N-64).

use lastmeter_lan::wormhole::routes::Path;
use lastmeter_lan::wormhole::topology::Channel;
use std::collections::BTreeMap;

/// Admitted paths.
///
/// ```
/// use lastmeter_repro::machines::admission::Reservations;
/// let mut reservations = Reservations::default();
/// let (a, b): (&[usize], &[usize]) = (&[0, 4, 7], &[1, 4, 9]);
/// assert_eq!(reservations.admit(&a.into()), Ok(0));
/// assert_eq!(reservations.admit(&b.into()).unwrap_err().channel, 4);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    /// The path that holds each channel.
    holders: BTreeMap<Channel, usize>,
    paths: Vec<Path>,
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meets {
    /// The admitted path with which it conflicts.
    pub with: usize,
    /// Their first common channel.
    pub channel: Channel,
}

impl Reservations {
    /// Reserves a path and returns its number.
    ///
    /// # Errors
    /// It conflicts with an admitted path.
    pub fn admit(&mut self, path: &Path) -> Result<usize, Meets> {
        if let Some(meets) = self.meets(path) {
            return Err(meets);
        }
        let number = self.paths.len();
        self.holders.extend(path.iter().map(|&channel| (channel, number)));
        self.paths.push(path.clone());
        Ok(number)
    }
    /// The first conflict of a path.
    pub fn meets(&self, path: &Path) -> Option<Meets> {
        path.iter()
            .find_map(|&channel| self.holders.get(&channel).map(|&with| Meets { with, channel }))
    }
    /// Number of admitted paths.
    pub fn len(&self) -> usize {
        self.paths.len()
    }
    /// Whether no path is admitted.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
    use lastmeter_lan::wormhole::lan::{Lan, Options};
    use lastmeter_lan::wormhole::routes::{Faults, Routes, Routing};
    use lastmeter_lan::wormhole::topology::Topology;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// N-64: the guarantee holds exactly when reserved paths do not conflict. Every reserved flow sends all it
        /// can; the promised latency is that of an empty network.
        #[test]
        fn the_guarantee_holds_exactly_when_reserved_paths_do_not_meet(
            seed in 0u64..10_000, switches in 3usize..10, more in 0usize..10, flows in 2usize..6,
        ) {
            let topology = Topology::random(seed, switches, more);
            let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
            let options = Options {
                rate: Rate::from_mbit(640),
                hop: Duration::from_ns(550),
                slack: Bytes(80),
                timeout: None,
                framing: Bytes::ZERO,
            };
            let mut draw = Stream::new(seed, "flows");
            let mut senders: Vec<usize> = (0..switches).collect();
            let flows: Vec<(usize, usize, u64)> = (0..flows.min(switches))
                .map(|_| {
                    let from = senders.swap_remove(draw.below(senders.len() as u64) as usize);
                    let to = (from + 1 + draw.below(switches as u64 - 1) as usize) % switches;
                    (from, to, 500 + draw.below(8000))
                })
                .collect();
            let mut reservations = Reservations::default();
            let admitted = flows
                .iter()
                .all(|&(from, to, _)| reservations.admit(routes.path(from, to).unwrap()).is_ok());
            let mut lan = Lan::new(topology, routes, options);
            let end = Time::START + Duration::from_ms(5);
            for (flow, &(from, to, len)) in flows.iter().enumerate() {
                lan.send(Time::START, from, to, Bytes(len), flow as u64).unwrap();
            }
            let mut kept = true;
            while let Some(at) = lan.ready_at().filter(|&at| at <= end) {
                let mut done = Vec::new();
                lan.advance(at, &mut |passed| done.push(passed));
                for passed in done {
                    kept &= passed.ended - passed.started == passed.alone;
                    let (from, to, len) = flows[passed.id as usize];
                    lan.send(at, from, to, Bytes(len), passed.id).unwrap();
                }
            }
            prop_assert_eq!(kept, admitted);
        }
    }
}
