//! A link between two switches: a card at each end ([`super::half`]), and a table for each direction. Here both are
//! one, without a wire between them.
//!
//! ```text
//! side A: cell on VCI v --> table A->B [v] = new VCI, port --> side B's switch
//!         control channel --> write (both tables), read, ping --> answers leave on the same side
//! ```
//!
//! | event | effect |
//! |---|---|
//! | data, entry in use | VCI and port rewritten, all other bits kept; leaves on the other side |
//! | data, no entry | dropped and counted |
//! | write | entries that are free, or have the same token, are set; others are refused and counted |
//! | read | a cell with the entries goes back, on the VCI and port that the request names |
//! | ping | a cell with the card's number goes back |
//! | power cycle | both tables are empty |
//!
//! A bridge to an ATM network (AVlink, Zebra) is the same card without a switch on its other side, so ports in its
//! table have no meaning there. Source: Aurora report §3.1.2, §3.4.1. That each entry belongs to a token is ours;
//! the report relies on a library to keep applications from using each other's channels (§3.6).

use super::half::{Fate, Half, Totals};
use super::vci::Block;
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::vunet::{ENTRIES_MAX, Entry};

/// Entries of each table: every VCI of 16 bits (A-27).
pub const ENTRIES: usize = 1 << 16;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl Side {
    /// The other end.
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// The fate of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It leaves on the other side.
    Forward(VunetCell),
    /// This answer leaves on the side of the request.
    Answer(VunetCell),
    /// It was for the card itself.
    Taken,
    /// It is dropped, for this reason.
    Drop(&'static str),
}

/// Totals of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Data cells forwarded.
    pub forwarded: u64,
    /// Data cells without an entry.
    pub unknown: u64,
    /// Control cells received.
    pub controls: u64,
    /// Entries set or cleared.
    pub written: u64,
    /// Writes to entries that belong to another token.
    pub refused: u64,
}

/// The two cards of a link.
///
/// ```
/// use lastmeter_lan::vunet::card::{Action, Card, Side};
/// use lastmeter_lan::vunet::{control_cell, data_cell};
/// use lastmeter_wire::control::vunet::{Control, Entry, Op, VCI_CONTROL};
/// let mut card = Card::new(1);
/// let entries = vec![Entry { vci: 40, new_vci: 41, port: 3, flags: Entry::VALID }];
/// let write = Control { op: Op::Write, sequence: 1, token: 7, entries };
/// assert_eq!(card.receive(Side::A, control_cell(VCI_CONTROL, 0, &write)?), Action::Taken);
/// let Action::Forward(cell) = card.receive(Side::A, data_cell(40, 0, true, &[9; 48])) else {
///     panic!("the entry is in use")
/// };
/// assert_eq!((cell.vci(), cell.port()), (41, 3));
/// # Ok::<(), lastmeter_wire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Card {
    halves: [Half; 2],
}

impl Card {
    /// A link with this number and empty tables.
    pub fn new(number: u16) -> Card {
        Card { halves: [Side::A, Side::B].map(|side| Half::new(number, side)) }
    }

    /// One that also reserves paths hop by hop, with these channels in each direction.
    pub fn reserving(number: u16, labels: Block) -> Card {
        Card { halves: [Side::A, Side::B].map(|side| Half::reserving(number, side, labels)) }
    }

    /// Its number, by which discovery identifies it.
    pub fn number(&self) -> u16 {
        self.halves[0].number
    }

    /// Switches the power off and on: the tables are lost (A-71).
    pub fn restart(&mut self) {
        self.halves.iter_mut().for_each(Half::restart);
    }

    /// Its totals.
    pub fn counts(&self) -> Counts {
        let sum = |of: fn(&Totals) -> u64| self.halves.iter().map(|half| of(&half.totals)).sum();
        Counts {
            forwarded: sum(|totals| totals.mapped),
            unknown: sum(|totals| totals.unknown),
            controls: sum(|totals| totals.controls),
            written: sum(|totals| totals.written),
            refused: sum(|totals| totals.refused),
        }
    }

    /// The entry for cells that arrive on `side`, in the form in which a read returns it.
    pub fn entry(&self, side: Side, vci: u16) -> Entry {
        self.halves[side.other() as usize].entry(vci)
    }

    /// Entries in use, in both tables.
    pub fn used(&self) -> usize {
        self.halves.iter().map(Half::used).sum()
    }

    /// A cell arrives on `side`.
    #[inline]
    pub fn receive(&mut self, side: Side, cell: VunetCell) -> Action {
        let (near, far) = (side as usize, side.other() as usize);
        let crossing = match self.halves[near].from_switch(cell) {
            Fate::Wire(cell) => cell,
            Fate::Switch(cell) => return Action::Answer(cell),
            Fate::Taken => return Action::Taken,
            Fate::Drop(reason) => return Action::Drop(reason),
        };
        let returning = match self.halves[far].from_wire(crossing) {
            Fate::Switch(cell) => return Action::Forward(cell),
            Fate::Wire(cell) => cell,
            Fate::Taken => return Action::Taken,
            Fate::Drop(reason) => return Action::Drop(reason),
        };
        match self.halves[near].from_wire(returning) {
            Fate::Switch(cell) => Action::Answer(cell),
            Fate::Drop(reason) => Action::Drop(reason),
            Fate::Wire(_) | Fate::Taken => Action::Taken,
        }
    }
}

/// Most entries that one read can request: the first slot names the return path.
pub const READ_MAX: usize = ENTRIES_MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vunet::{control_cell, control_in, data_cell};
    use lastmeter_base::Stream;
    use lastmeter_wire::control::vunet::{Control, Op, VCI_CONTROL, VCI_DROP};
    use proptest::prelude::*;

    fn write(card: &mut Card, side: Side, token: u32, entries: &[Entry]) {
        for entries in entries.chunks(ENTRIES_MAX) {
            let entries = entries.to_vec();
            let control = Control { op: Op::Write, sequence: 0, token, entries };
            let cell = control_cell(VCI_CONTROL, 0, &control).unwrap();
            assert_eq!(card.receive(side, cell), Action::Taken);
        }
    }

    #[test]
    fn a_27_the_whole_vci_space_is_mapped() {
        let mut card = Card::new(1);
        let mut random = Stream::new(1, "map");
        let new: Vec<(u16, u8)> =
            (0..ENTRIES).map(|_| (random.bits() as u16, random.below(16) as u8)).collect();
        let all: Vec<Entry> = (0..=u16::MAX)
            .zip(&new)
            .map(|(vci, &(new_vci, port))| Entry { vci, new_vci, port, flags: Entry::VALID })
            .collect();
        write(&mut card, Side::A, 1, &all);
        for vci in (0..=u16::MAX).filter(|&vci| vci != VCI_CONTROL && vci != VCI_DROP) {
            let Action::Forward(cell) = card.receive(Side::A, data_cell(vci, 0, false, &[0; 48]))
            else {
                panic!("{vci} has an entry")
            };
            assert_eq!((cell.vci(), cell.port()), new[usize::from(vci)]);
        }
        assert_eq!(card.used(), ENTRIES);
    }

    #[test]
    fn a_29_written_entries_are_read_back_for_either_direction() {
        let mut card = Card::new(9);
        let entry = |vci, flags| Entry { vci, new_vci: vci + 1, port: 2, flags };
        let entries = [entry(40, Entry::VALID), entry(50, Entry::VALID | Entry::BACK)];
        write(&mut card, Side::B, 3, &entries);
        assert_eq!(card.entry(Side::A, 50).new_vci, 51);
        let to = Entry { vci: 0, new_vci: 77, port: 5, flags: 0 };
        let asked = vec![to, entry(40, 0), entry(50, Entry::BACK), entry(60, 0)];
        let read = Control { op: Op::Read, sequence: 4, token: 3, entries: asked };
        let cell = control_cell(VCI_CONTROL, 0, &read).unwrap();
        let Action::Answer(answer) = card.receive(Side::B, cell) else {
            panic!("it was sent a request")
        };
        assert_eq!((answer.vci(), answer.port()), (77, 5));
        let reply = control_in(&answer).unwrap();
        assert_eq!((reply.op, reply.sequence), (Op::ReadReply, 4));
        let nothing = Entry { vci: 60, new_vci: 0, port: 0, flags: 0 };
        assert_eq!(reply.entries, [entries[0], entries[1], nothing]);
        card.restart();
        assert_eq!(card.used(), 0);
    }

    #[test]
    fn an_entry_belongs_to_the_token_that_wrote_it() {
        let mut card = Card::new(1);
        let entry = Entry { vci: 40, new_vci: 1, port: 0, flags: Entry::VALID };
        write(&mut card, Side::A, 1, &[entry]);
        write(&mut card, Side::A, 2, &[Entry { new_vci: 2, ..entry }]);
        write(&mut card, Side::A, 2, &[Entry { flags: 0, ..entry }]);
        assert_eq!((card.entry(Side::A, 40).new_vci, card.counts().refused), (1, 2));
        write(&mut card, Side::A, 1, &[Entry { flags: 0, ..entry }]);
        assert_eq!(card.used(), 0);
    }

    proptest! {
        #[test]
        fn a_27_all_other_bits_of_header_and_payload_are_unchanged(
            bytes in prop::collection::vec(any::<u8>(), 56), new_vci: u16, port in 0u8..16,
        ) {
            let (cell, _) = VunetCell::parse(&bytes).unwrap();
            prop_assume!(cell.vci() != VCI_CONTROL && cell.vci() != VCI_DROP);
            let mut card = Card::new(1);
            let entry = Entry { vci: cell.vci(), new_vci, port, flags: Entry::VALID };
            write(&mut card, Side::A, 1, &[entry]);
            let Action::Forward(after) = card.receive(Side::A, cell) else { panic!("an entry") };
            prop_assert_eq!((after.vci(), after.port()), (new_vci, port));
            let mut back = after;
            back.rewrite_vci(cell.vci());
            back.set_port(cell.port());
            // Bits of the port byte outside the port are zero in every emitted cell.
            prop_assert_eq!(&back.0[..7], &cell.0[..7]);
            prop_assert_eq!(back.payload(), cell.payload());
        }

        #[test]
        fn any_cell_ends_exactly_once(cells in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 56)), 1..40)) {
            let mut card = Card::new(1);
            for (side, mut bytes) in cells {
                // Most cells are for the card itself.
                bytes[..4].copy_from_slice(&[0, 0, 0, 0x5a]);
                let (cell, _) = VunetCell::parse(&bytes).unwrap();
                let side = if side { Side::A } else { Side::B };
                let action = card.receive(side, cell);
                prop_assert!(!matches!(action, Action::Forward(_)));
            }
        }
    }
}
