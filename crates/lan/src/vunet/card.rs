//! A link between two switches: a card at each end, and a table for each direction.
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

use super::{control_cell, control_in};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::vunet::{Control, ENTRIES_MAX, Entry, Op, VCI_CONTROL, VCI_DROP};

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    new_vci: u16,
    port: u8,
    used: bool,
    token: u32,
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
    number: u16,
    tables: [Vec<Slot>; 2],
    counts: [u64; 5],
}

impl Card {
    /// A link with this number and empty tables.
    pub fn new(number: u16) -> Card {
        // Tables grow to their full size when they are written.
        Card { number, tables: [Vec::new(), Vec::new()], counts: [0; 5] }
    }

    /// Its number, by which discovery identifies it.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Switches the power off and on: the tables are lost (A-71).
    pub fn restart(&mut self) {
        self.tables.iter_mut().for_each(Vec::clear);
    }

    /// Its totals.
    pub fn counts(&self) -> Counts {
        let [forwarded, unknown, controls, written, refused] = self.counts;
        Counts { forwarded, unknown, controls, written, refused }
    }

    /// The entry for cells that arrive on `side`, in the form in which a read returns it.
    pub fn entry(&self, side: Side, vci: u16) -> Entry {
        let slot = self.slot(side, vci);
        let flags = if slot.used { Entry::VALID } else { 0 };
        Entry { vci, new_vci: slot.new_vci, port: slot.port, flags }
    }

    /// Entries in use, in both tables.
    pub fn used(&self) -> usize {
        self.tables.iter().flatten().filter(|slot| slot.used).count()
    }

    #[inline]
    fn slot(&self, side: Side, vci: u16) -> Slot {
        self.tables[side as usize].get(usize::from(vci)).copied().unwrap_or_default()
    }

    /// A cell arrives on `side`.
    #[inline]
    pub fn receive(&mut self, side: Side, mut cell: VunetCell) -> Action {
        let vci = cell.vci();
        if vci == VCI_CONTROL {
            return self.control(side, &cell);
        }
        let slot = self.slot(side, vci);
        if !slot.used || vci == VCI_DROP {
            self.counts[1] += 1;
            return Action::Drop("no table entry");
        }
        self.counts[0] += 1;
        cell.rewrite_vci(slot.new_vci);
        cell.set_port(slot.port);
        Action::Forward(cell)
    }

    fn control(&mut self, side: Side, cell: &VunetCell) -> Action {
        let Some(control) = control_in(cell) else { return Action::Drop("damaged control cell") };
        self.counts[2] += 1;
        match control.op {
            Op::Write => {
                control.entries.iter().for_each(|entry| self.write(side, control.token, entry));
                Action::Taken
            }
            Op::Read | Op::Ping => match control.entries.split_first() {
                Some((&to, asked)) => self.answer(side, &control, to, asked),
                None => Action::Drop("request without a way back"),
            },
            Op::ReadReply => Action::Drop("answer to a link"),
        }
    }

    /// The side on which the cells of an entry arrive.
    fn about(side: Side, flags: u8) -> Side {
        if flags & Entry::BACK == 0 { side } else { side.other() }
    }

    fn write(&mut self, side: Side, token: u32, entry: &Entry) {
        let table = &mut self.tables[Card::about(side, entry.flags) as usize];
        if table.is_empty() {
            table.resize(ENTRIES, Slot::default());
        }
        let slot = &mut table[usize::from(entry.vci)];
        if slot.used && slot.token != token {
            self.counts[4] += 1;
            return;
        }
        self.counts[3] += 1;
        *slot = match entry.flags & Entry::VALID {
            0 => Slot::default(),
            _ => Slot { new_vci: entry.new_vci, port: entry.port, used: true, token },
        };
    }

    fn answer(&self, side: Side, control: &Control, to: Entry, asked: &[Entry]) -> Action {
        let entries = match control.op {
            Op::Ping => vec![Entry { vci: self.number, new_vci: 0, port: side as u8, flags: 0 }],
            _ => asked
                .iter()
                .map(|entry| {
                    let back = entry.flags & Entry::BACK;
                    let found = self.entry(Card::about(side, back), entry.vci);
                    Entry { flags: found.flags | back, ..found }
                })
                .collect(),
        };
        let answer = Control { op: Op::ReadReply, entries, ..*control };
        match control_cell(to.new_vci, to.port, &answer) {
            Ok(cell) => Action::Answer(cell),
            Err(_) => Action::Drop("answer that does not fit"),
        }
    }
}

/// Most entries that one read can request: the first slot names the return path.
pub const READ_MAX: usize = ENTRIES_MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vunet::data_cell;
    use lastmeter_base::Stream;
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
