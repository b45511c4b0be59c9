//! Cells of packets: drop-tail, partial packet discard, early packet discard.
//!
//! ```text
//! in --> first cell of a packet and `threshold` or more waiting: early discard of all its cells
//!    --> no room: this cell, and (partial) the rest of its packet except the last
//!    --> [ newest | ... | oldest ] --> out
//! ```
//!
//! | Parameter   | Unit  | Default         | Meaning                                           |
//! |-------------|-------|-----------------|---------------------------------------------------|
//! | `cells`     | cells | required        | Q, limit on cells held                            |
//! | `policy`    | word  | `early`         | `tail`, `partial`, or `early` (which includes it) |
//! | `threshold` | cells | half of `cells` | T, from which new packets are discarded whole     |
//!
//! The virtual circuit is that of the cell's header, if it has one ([`crate::sar`]), else a path and
//! flow; a cell whose `ends` is set is the last of its packet, and the
//! next cell of its circuit begins another. The last cell of a packet that lost others is admitted if
//! there is room, so that the reassembler can tell packets apart; an early discard takes the whole packet.
//!
//! Source: Romanow & Floyd, Dynamics of TCP Traffic over ATM Networks, IEEE JSAC 13(4), 1995, §4
//! (A-162). Deviation: the default threshold does not count active circuits (ours).

use super::flows::{By, Classifier};
use super::{Described, DropTail, FULL, Queue, Site};
use crate::sar::circuit_of;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, Time, here};
use lastmeter_wire::atm::Circuit;
use std::collections::VecDeque;

/// Separates the keys of circuits from those of paths and flows: no run has this many paths.
const CELLS: u64 = 1 << 63;

/// What happens to the cells of a packet that lost one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellPolicy {
    /// Nothing.
    Tail,
    /// The rest is discarded, except the last cell.
    Partial,
    /// The same, and packets that begin at or above the threshold are discarded whole.
    Early,
}

/// Where a circuit is in its packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Between,
    Inside,
    /// Cells are discarded, except the last.
    Partial,
    /// All cells are discarded.
    Early,
}

/// A first-in, first-out queue of cells.
#[derive(Debug)]
pub struct CellDiscard {
    cells: DropTail,
    circuits: Classifier,
    places: Vec<Place>,
    policy: CellPolicy,
    threshold: u64,
    victims: VecDeque<(Packet, &'static str)>,
}

impl CellDiscard {
    /// Empty, for at most `cells`.
    pub fn new(cells: u64, policy: CellPolicy, threshold: u64) -> CellDiscard {
        CellDiscard {
            cells: DropTail::new(cells, Bytes(u64::MAX)),
            circuits: Classifier::new(By::Flow, None),
            places: Vec::new(),
            policy,
            threshold,
            victims: VecDeque::new(),
        }
    }
}

impl Queue for CellDiscard {
    fn enqueue(&mut self, now: Time, cell: Packet) -> Result<(), Packet> {
        let circuit = match circuit_of(&cell) {
            Some(Circuit { vpi, vci }) => {
                self.circuits.queue_of_key(CELLS | u64::from(vpi) << 16 | u64::from(vci))
            }
            None => self.circuits.queue_of(&cell),
        };
        if circuit >= self.places.len() {
            self.places.resize(circuit + 1, Place::default());
        }
        let place = &mut self.places[circuit];
        let crowded = self.cells.packets() >= self.threshold;
        if *place == Place::Between {
            let early = self.policy == CellPolicy::Early && crowded;
            *place = if early { Place::Early } else { Place::Inside };
        }
        let ends = cell.ends;
        let discards = match *place {
            Place::Early => Some("early discard"),
            Place::Partial if !ends => Some("partial discard"),
            _ => None,
        };
        let result = match discards {
            Some(reason) => {
                self.victims.push_back((cell, reason));
                Ok(())
            }
            None => self.cells.enqueue(now, cell),
        };
        if result.is_err() && self.policy >= CellPolicy::Partial {
            *place = Place::Partial;
        }
        if ends {
            *place = Place::Between;
        }
        result
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.cells.dequeue(now)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        self.cells.ready_at(now)
    }
    fn packets(&self) -> u64 {
        self.cells.packets()
    }
    fn bytes(&self) -> Bytes {
        self.cells.bytes()
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.victims.pop_front()
    }
}

impl Described for CellDiscard {
    const PAGE: &'static Page = &Page {
        name: "cell-discard",
        family: Family::Queue,
        what: "Cells of packets: drop-tail, partial packet discard, or early packet discard.",
        ports: "in --> (early, partial) --> [ newest | ... | oldest ] --> out",
        params: &[
            Param::required("cells", ParamKind::COUNT).is("limit on cells held"),
            Param::or("policy", ParamKind::Choice(&["tail", "partial", "early"]), "early")
                .is("what happens to packets that lose a cell, or would"),
            Param::optional("threshold", ParamKind::COUNT, "half of `cells`")
                .is("number of cells from which new packets are discarded whole"),
        ],
        source: "Romanow & Floyd, IEEE JSAC 13(4), 1995, §4",
        deviations: &["The default threshold does not count active circuits."],
        drops: &[
            FULL,
            ("early discard", "cells of packets that began at or above the threshold"),
            ("partial discard", "cells of packets that had lost one, up to their last"),
        ],
        example: one_queue!("cell-discard = { cells = 512 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> CellDiscard {
        let policy = match values.get::<String>("policy").as_str() {
            "tail" => CellPolicy::Tail,
            "partial" => CellPolicy::Partial,
            _ => CellPolicy::Early,
        };
        let cells = values.get::<u64>("cells");
        let threshold = values.given("threshold").unwrap_or(cells.div_ceil(2));
        let scale = |limit| site.buffers.scale(limit);
        CellDiscard::new(scale(cells), policy, scale(threshold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet, victims};

    /// Sends a packet of `cells` on a circuit; returns how many did not fit.
    fn send(queue: &mut CellDiscard, circuit: u32, cells: u64) -> usize {
        let cell = |n| {
            let mut cell = packet(circuit, 53);
            cell.ends = n + 1 == cells;
            cell
        };
        (0..cells).filter(|&n| queue.enqueue(Time::START, cell(n)).is_err()).count()
    }

    #[test]
    fn partial_discard_drops_the_rest_of_a_packet_except_its_last_cell() {
        let mut queue = CellDiscard::new(4, CellPolicy::Partial, 2);
        let mut cells = (0..6).map(|n| {
            let mut cell = packet(0, 53);
            cell.ends = n == 5;
            cell
        });
        (0..4).for_each(|_| queue.enqueue(Time::START, cells.next().unwrap()).unwrap());
        let _ = queue.dequeue(Time::START);
        queue.enqueue(Time::START, packet(1, 53)).unwrap();
        assert!(queue.enqueue(Time::START, cells.next().unwrap()).is_err());
        let _ = queue.dequeue(Time::START);
        queue.enqueue(Time::START, cells.next().unwrap()).unwrap();
        assert_eq!((queue.packets(), victims(&mut queue)), (4, vec![]));
    }

    #[test]
    fn early_discard_takes_whole_packets_and_never_a_part() {
        let mut queue = CellDiscard::new(30, CellPolicy::Early, 15);
        assert_eq!((send(&mut queue, 0, 10), send(&mut queue, 1, 10)), (0, 0));
        assert_eq!(send(&mut queue, 2, 10), 0);
        assert_eq!(victims(&mut queue), [(2, "early discard"); 10]);
        assert_eq!(queue.packets(), 20);
    }

    #[test]
    fn drop_tail_keeps_the_other_cells_of_a_packet_that_lost_one() {
        let mut queue = CellDiscard::new(10, CellPolicy::Tail, 5);
        assert_eq!((send(&mut queue, 0, 8), send(&mut queue, 1, 8)), (0, 6));
        assert_eq!(queue.packets(), 10);
    }

    #[test]
    fn accounts_for_every_packet() {
        for policy in [CellPolicy::Tail, CellPolicy::Partial, CellPolicy::Early] {
            check::holds(CellDiscard::new(30, policy, 15), &check::USUAL);
        }
    }
}
