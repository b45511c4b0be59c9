//! A slotted ring for cells: the access methods compared with Jetstream's token (J-65).
//!
//! ```text
//!        slots -->  [cell] [    ] [cell] [cell] [    ] [cell] --.
//!          ^        station 0         station 1                 |
//!          '----------------------------------------------------'
//!
//! emptied by its source:       a cell goes all the way around; its source empties the slot and leaves it to
//!                              the stations downstream: the Cambridge rings
//! emptied by its destination:  a slot carries several cells per rotation, and the first station behind a sink
//!                              takes all; a signal that goes around gives each station a quota: Metaring
//! ```
//!
//! | option | meaning |
//! |---|---|
//! | `stations` | number of stations, evenly spaced |
//! | `slots` | cells on the ring at once: its latency over a cell's time |
//! | `release` | who empties a slot, and the quota |
//! | `cells_max` | waiting cells per station; one more is refused |
//!
//! With a quota, a station that has used it sends no more until the signal has left it; the signal leaves a station
//! that has used its quota, or has nothing to send. It travels against the slots.
//!
//! Source: Needham and Herbert, The Cambridge Distributed Computing System, 1982; Cidon and Ofek, "Metaring",
//! INFOCOM 1990, whose two thresholds are one here. HPL-93-37, §2.3, cites both. Deviations: one of Metaring's two
//! rings; no response bits or monitor of the Cambridge rings.

use std::collections::VecDeque;

/// Who empties a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The station that filled it, which leaves it to the next.
    Source,
    /// The cell's destination; cells per station between two visits of the signal, if there is one.
    Destination(Option<u64>),
}

/// Parameters of a ring; see the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of stations, at least two.
    pub stations: usize,
    /// Slots on the ring, at least one for each station.
    pub slots: usize,
    /// Who empties them.
    pub release: Release,
    /// Most waiting cells per station.
    pub cells_max: usize,
}

/// A cell in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its source.
    pub from: usize,
    /// Its destination.
    pub to: usize,
}

/// A ring in steps of a cell time.
///
/// ```
/// use lastmeter_repro::machines::ring::slotted::{Cell, Options, Release, Slotted};
/// let release = Release::Destination(None);
/// let options = Options { stations: 4, slots: 8, release, cells_max: 1 };
/// let mut ring = Slotted::new(options).unwrap();
/// ring.enqueue(Cell { from: 1, to: 3 }).unwrap();
/// let mut steps = 0;
/// let mut arrived = None;
/// while arrived.is_none() {
///     ring.step(|cell| arrived = Some(cell));
///     steps += 1;
/// }
/// // It gets a slot at once, and travels half around.
/// assert_eq!((steps, arrived), (5, Some(Cell { from: 1, to: 3 })));
/// ```
#[derive(Clone, Debug)]
pub struct Slotted {
    options: Options,
    slots: Vec<Option<Cell>>,
    /// How far the ring has turned.
    turned: usize,
    waiting: Vec<VecDeque<Cell>>,
    /// Cells of each station since the signal left it.
    since: Vec<u64>,
    /// The signal's next station, and in how many steps it arrives there.
    signal: (usize, usize),
}

impl Slotted {
    /// An empty ring.
    ///
    /// # Errors
    /// If there are too few stations or slots, or the quota is 0.
    pub fn new(options: Options) -> Result<Slotted, String> {
        let Options { stations, slots, release, .. } = options;
        if stations < 2 {
            return Err(format!("a ring has at least 2 stations, not {stations}"));
        }
        if slots < stations {
            return Err(format!("{stations} stations need {stations} slots, not {slots}"));
        }
        if release == Release::Destination(Some(0)) {
            return Err("with a quota of 0 no station sends".to_owned());
        }
        Ok(Slotted {
            slots: vec![None; slots],
            turned: 0,
            waiting: vec![VecDeque::new(); stations],
            since: vec![0; stations],
            signal: (0, 0),
            options,
        })
    }

    /// A cell joins the queue of its source.
    ///
    /// # Errors
    /// The cell, if the queue is full, a station does not exist, or source and destination are the same.
    pub fn enqueue(&mut self, cell: Cell) -> Result<(), Cell> {
        let stations = self.options.stations;
        let known = cell.from < stations && cell.to < stations && cell.from != cell.to;
        if !known || self.waiting[cell.from].len() >= self.options.cells_max {
            return Err(cell);
        }
        self.waiting[cell.from].push_back(cell);
        Ok(())
    }

    /// Cells waiting or in flight; with [`Release::Source`] delivered ones are still on the ring.
    pub fn cells(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(VecDeque::len).sum();
        waiting + self.slots.iter().flatten().count()
    }

    /// Turns the ring by a slot: cells for this position arrive, and empty slots are filled.
    pub fn step(&mut self, mut arrived: impl FnMut(Cell)) {
        let Options { stations, slots, release, .. } = self.options;
        self.turned = (self.turned + 1) % slots;
        for station in 0..stations {
            let place = station * slots / stations;
            let slot = &mut self.slots[(place + slots - self.turned) % slots];
            let mut usable = true;
            if let Some(cell) = *slot {
                if cell.to == station {
                    arrived(cell);
                }
                let (source, destination) = (cell.from == station, cell.to == station);
                match release {
                    Release::Source if source => (*slot, usable) = (None, false),
                    Release::Destination(_) if destination => *slot = None,
                    _ => usable = false,
                }
            }
            let quota = match release {
                Release::Destination(Some(quota)) => quota,
                _ => u64::MAX,
            };
            if usable
                && self.since[station] < quota
                && let Some(cell) = self.waiting[station].pop_front()
            {
                *slot = Some(cell);
                self.since[station] += 1;
            }
        }
        self.signal();
    }

    /// The signal leaves a station that has used its quota, or has nothing to send.
    fn signal(&mut self) {
        let Release::Destination(Some(quota)) = self.options.release else { return };
        let Options { stations, slots, .. } = self.options;
        let (at, steps) = self.signal;
        self.signal = match steps {
            0 if self.since[at] >= quota || self.waiting[at].is_empty() => {
                self.since[at] = 0;
                ((at + stations - 1) % stations, slots / stations)
            }
            0 => (at, 0),
            _ => (at, steps - 1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;
    use proptest::prelude::*;

    /// Delivered cells per step of each station if all always send, to destinations drawn by `to`.
    fn saturated(
        options: Options,
        steps: u32,
        to: impl Fn(&mut Stream, usize) -> usize,
    ) -> Vec<f64> {
        let mut ring = Slotted::new(options).unwrap_or_else(|error| panic!("{error}"));
        let mut random = Stream::new(1, "slotted");
        let mut arrived = vec![0_u32; options.stations];
        for _ in 0..steps {
            for from in 0..options.stations {
                let to = to(&mut random, from);
                // Refused cells wait outside; a cell for its own source is not sent.
                let _ = ring.enqueue(Cell { from, to });
            }
            ring.step(|cell| arrived[cell.from] += 1);
        }
        arrived.into_iter().map(|cells| f64::from(cells) / f64::from(steps)).collect()
    }

    fn options(release: Release) -> Options {
        Options { stations: 16, slots: 48, release, cells_max: 4 }
    }

    fn other(random: &mut Stream, from: usize) -> usize {
        (from + 1 + random.below(15) as usize) % 16
    }

    #[test]
    fn j_65_emptied_by_their_sources_slots_are_used_in_16_of_17_hops() {
        // A rotation of 16 hops, and one empty slot passed to the next station.
        let shares = saturated(options(Release::Source), 20_000, other);
        let all: f64 = shares.iter().sum();
        assert!((all - 16.0 / 17.0).abs() < 0.01, "{all}");
        assert!(shares.iter().all(|share| (share * 16.0 / all - 1.0).abs() < 0.02), "{shares:?}");
    }

    #[test]
    fn j_65_emptied_by_their_destinations_slots_carry_two_cells_a_rotation() {
        // Half around on average, and every link is always in use.
        let all: f64 = saturated(options(Release::Destination(None)), 20_000, other).iter().sum();
        assert!((all - 2.0).abs() < 0.06, "{all}");
    }

    #[test]
    fn j_65_before_a_sink_the_first_takes_all_unless_there_are_quotas() {
        let sink = |_: &mut Stream, _| 0;
        let free = saturated(options(Release::Destination(None)), 20_000, sink);
        assert!(free[1] > 0.99 && free[2..].iter().all(|&share| share < 0.01), "{free:?}");
        let fair = saturated(options(Release::Destination(Some(64))), 200_000, sink);
        let all: f64 = fair.iter().sum();
        let mean = all / 15.0;
        assert!(fair[1..].iter().all(|share| (share / mean - 1.0).abs() < 0.05), "{fair:?}");
        assert!(all > 0.9, "{all}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let ring = |stations, slots, release| {
            Slotted::new(Options { stations, slots, release, cells_max: 1 })
        };
        assert!(ring(1, 8, Release::Source).is_err());
        assert!(ring(9, 8, Release::Source).is_err());
        assert!(ring(2, 8, Release::Destination(Some(0))).is_err());
        let mut ring = ring(2, 8, Release::Source).unwrap_or_else(|error| panic!("{error}"));
        assert!(ring.enqueue(Cell { from: 1, to: 1 }).is_err());
        assert!(ring.enqueue(Cell { from: 2, to: 1 }).is_err());
        assert_eq!(ring.enqueue(Cell { from: 0, to: 1 }), Ok(()));
        assert!(ring.enqueue(Cell { from: 0, to: 1 }).is_err(), "one waits already");
    }

    proptest! {
        #[test]
        fn every_cell_arrives_once(
            stations in 2_usize..17,
            extra in 0_usize..40,
            kind in 0_u8..3,
            cells in prop::collection::vec((0_usize..16, 0_usize..16), 0..100),
        ) {
            let release = match kind {
                0 => Release::Source,
                1 => Release::Destination(None),
                _ => Release::Destination(Some(3)),
            };
            let options = Options { stations, slots: stations + extra, release, cells_max: 100 };
            let mut ring = Slotted::new(options).unwrap_or_else(|error| panic!("{error}"));
            let taken: Vec<Cell> = cells
                .into_iter()
                .map(|(from, to)| Cell { from, to })
                .filter(|&cell| ring.enqueue(cell).is_ok())
                .collect();
            let mut arrived = Vec::new();
            let mut steps = 0;
            while ring.cells() > 0 {
                ring.step(|cell| arrived.push(cell));
                steps += 1;
                prop_assert!(steps < 100_000, "{} cells stay", ring.cells());
            }
            let key = |cell: &Cell| (cell.from, cell.to);
            let (mut sent, mut got) = (taken, arrived);
            sent.sort_by_key(key);
            got.sort_by_key(key);
            prop_assert_eq!(sent, got);
        }
    }
}
