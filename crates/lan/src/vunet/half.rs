//! Half of a link: the card at one switch, joined by a wire to the card at the other.
//!
//! ```text
//! switch A --> [ half A ] --> wire --> [ half B: table ] --> switch B
//!          <-- [ table  ] <------- <-- [               ] <--
//! ```
//!
//! A half maps the cells that come over the wire, just before they enter its switch: so the wire needs no ports, and
//! may be an ATM network (AVlink). Both control channels end here, one in each direction:
//!
//! | control cell from the switch | what the half does | what crosses the wire |
//! |---|---|---|
//! | write | sets the entries marked `BACK`, which are its own | the cell, if it has other entries |
//! | read | fills in the entries marked `BACK` | the cell, if it has others: it comes back with these filled in |
//! | ping | answers with its number and side | nothing |
//! | reservation | [`super::reserve`] | the cell, changed |
//!
//! So an application sees one link with a table for each direction, as if it wrote both at once. On the wire, the
//! reserved channels carry only what halves say to each other: a cell of the switch that is mapped to the control
//! channel of the next link is mapped after the wire.
//!
//! Source: Aurora report §3.1.2. That the table is at the receiving half, and who answers what, is ours.

use super::card::{ENTRIES, Side};
use super::vci::Block;
use super::{control_cell, control_in};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::reservation::VCI_RESERVATION;
use lastmeter_wire::control::vunet::{Control, Entry, Op, VCI_CONTROL, VCI_DROP};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) new_vci: u16,
    pub(super) port: u8,
    pub(super) used: bool,
    pub(super) token: u32,
}

/// The fate of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It leaves into the switch.
    Switch(VunetCell),
    /// It leaves over the wire.
    Wire(VunetCell),
    /// It was for this half.
    Taken,
    /// It is dropped, for this reason.
    Drop(&'static str),
}

/// Totals of a half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Totals {
    /// Data cells mapped.
    pub mapped: u64,
    /// Data cells without an entry.
    pub unknown: u64,
    /// Control cells received from the switch.
    pub controls: u64,
    /// Entries set or cleared.
    pub written: u64,
    /// Writes to entries that belong to another token.
    pub refused: u64,
}

/// A half.
///
/// ```
/// use lastmeter_lan::vunet::card::Side;
/// use lastmeter_lan::vunet::half::{Fate, Half};
/// use lastmeter_lan::vunet::{control_cell, data_cell};
/// use lastmeter_wire::control::vunet::{Control, Entry, Op, VCI_CONTROL};
/// let (mut near, mut far) = (Half::new(1, Side::A), Half::new(1, Side::B));
/// let entries = vec![Entry { vci: 40, new_vci: 41, port: 3, flags: Entry::VALID }];
/// let write = Control { op: Op::Write, sequence: 1, token: 7, entries };
/// let Fate::Wire(cell) = near.from_switch(control_cell(VCI_CONTROL, 0, &write)?) else {
///     panic!("the entry is the other half's")
/// };
/// assert_eq!(far.from_wire(cell), Fate::Taken);
/// let Fate::Wire(cell) = near.from_switch(data_cell(40, 0, true, &[9; 48])) else { panic!() };
/// let Fate::Switch(cell) = far.from_wire(cell) else { panic!("the entry is in use") };
/// assert_eq!((cell.vci(), cell.port()), (41, 3));
/// # Ok::<(), lastmeter_wire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Half {
    pub(super) number: u16,
    side: Side,
    /// Grows to its full size when it is first written.
    pub(super) table: Vec<Slot>,
    /// The channels that it gives to reservations, if it takes any.
    pub(super) labels: Option<Block>,
    /// Its totals.
    pub totals: Totals,
}

impl Half {
    /// Half of the link with this number, with an empty table.
    pub fn new(number: u16, side: Side) -> Half {
        Half { number, side, table: Vec::new(), labels: None, totals: Totals::default() }
    }

    /// One that also reserves paths hop by hop, with these channels for the data that comes over its wire.
    pub fn reserving(number: u16, side: Side, labels: Block) -> Half {
        Half { labels: Some(labels), ..Half::new(number, side) }
    }

    /// Switches the power off and on: the table is lost (A-71).
    pub fn restart(&mut self) {
        self.table.clear();
    }

    /// Entries in use.
    pub fn used(&self) -> usize {
        self.table.iter().filter(|slot| slot.used).count()
    }

    /// The entry for cells that come over the wire, in the form in which a read returns it.
    pub fn entry(&self, vci: u16) -> Entry {
        let slot = self.slot(vci);
        let flags = if slot.used { Entry::VALID } else { 0 };
        Entry { vci, new_vci: slot.new_vci, port: slot.port, flags }
    }

    #[inline]
    pub(super) fn slot(&self, vci: u16) -> Slot {
        self.table.get(usize::from(vci)).copied().unwrap_or_default()
    }

    /// A cell arrives from the switch.
    #[inline]
    pub fn from_switch(&mut self, cell: VunetCell) -> Fate {
        match cell.vci() {
            VCI_CONTROL => self.control(cell),
            VCI_RESERVATION if self.labels.is_some() => self.asked(cell),
            _ => Fate::Wire(cell),
        }
    }

    /// A cell arrives over the wire.
    #[inline]
    pub fn from_wire(&mut self, mut cell: VunetCell) -> Fate {
        let vci = cell.vci();
        match vci {
            VCI_CONTROL => return self.told(&cell),
            VCI_RESERVATION if self.labels.is_some() => return self.passed(cell),
            _ => {}
        }
        let slot = self.slot(vci);
        if !slot.used || vci == VCI_DROP {
            self.totals.unknown += 1;
            return Fate::Drop("no table entry");
        }
        self.totals.mapped += 1;
        cell.rewrite_vci(slot.new_vci);
        cell.set_port(slot.port);
        Fate::Switch(cell)
    }

    fn control(&mut self, cell: VunetCell) -> Fate {
        let Some(mut control) = control_in(&cell) else {
            return Fate::Drop("damaged control cell");
        };
        self.totals.controls += 1;
        let own = |entry: &&mut Entry| entry.flags & Entry::BACK != 0;
        match control.op {
            Op::Write => {
                for entry in control.entries.iter_mut().filter(own) {
                    self.write(control.token, entry);
                }
                let others = control.entries.iter().any(|entry| entry.flags & Entry::BACK == 0);
                if others { Fate::Wire(cell) } else { Fate::Taken }
            }
            Op::Read => {
                let Some((_, asked)) = control.entries.split_first_mut() else {
                    return Fate::Drop("request without a way back");
                };
                let others = asked.iter().any(|entry| entry.flags & Entry::BACK == 0);
                asked.iter_mut().filter(own).for_each(|entry| {
                    let found = self.entry(entry.vci);
                    *entry = Entry { flags: found.flags | Entry::BACK, ..found };
                });
                if others { over_the_wire(&control) } else { answer(control) }
            }
            Op::Ping => {
                let Some(&to) = control.entries.first() else {
                    return Fate::Drop("request without a way back");
                };
                let me = Entry { vci: self.number, new_vci: 0, port: self.side as u8, flags: 0 };
                answer(Control { entries: vec![to, me], ..control })
            }
            Op::ReadReply => Fate::Drop("answer to a link"),
        }
    }

    /// What the other half says.
    fn told(&mut self, cell: &VunetCell) -> Fate {
        let Some(mut control) = control_in(cell) else { return Fate::Drop("damaged control cell") };
        let own = |entry: &&mut Entry| entry.flags & Entry::BACK == 0;
        match control.op {
            Op::Write => {
                for entry in control.entries.iter_mut().filter(own) {
                    self.write(control.token, entry);
                }
                Fate::Taken
            }
            Op::Read => {
                control.entries.iter_mut().skip(1).filter(own).for_each(|entry| {
                    *entry = self.entry(entry.vci);
                });
                over_the_wire(&Control { op: Op::ReadReply, ..control })
            }
            Op::ReadReply => answer(control),
            Op::Ping => Fate::Drop("ping to the other half"),
        }
    }

    /// The slot of a channel, in a table that has its full size.
    pub(super) fn slot_mut(&mut self, vci: u16) -> &mut Slot {
        if self.table.is_empty() {
            self.table.resize(ENTRIES, Slot::default());
        }
        &mut self.table[usize::from(vci)]
    }

    fn write(&mut self, token: u32, entry: &Entry) {
        let slot = self.slot_mut(entry.vci);
        if slot.used && slot.token != token {
            self.totals.refused += 1;
            return;
        }
        *slot = match entry.flags & Entry::VALID {
            0 => Slot::default(),
            _ => Slot { new_vci: entry.new_vci, port: entry.port, used: true, token },
        };
        self.totals.written += 1;
    }
}

fn over_the_wire(control: &Control) -> Fate {
    control_cell(VCI_CONTROL, 0, control).map_or(Fate::Drop("answer that does not fit"), Fate::Wire)
}

/// The answer to a request whose first entry names the return path.
fn answer(mut control: Control) -> Fate {
    if control.entries.is_empty() {
        return Fate::Drop("request without a way back");
    }
    let to = control.entries.remove(0);
    let reply = Control { op: Op::ReadReply, ..control };
    control_cell(to.new_vci, to.port, &reply)
        .map_or(Fate::Drop("answer that does not fit"), Fate::Switch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vunet::data_cell;
    use proptest::prelude::*;

    #[test]
    fn a_26_each_half_loses_its_own_table_and_a_read_shows_which() {
        let (mut near, mut far) = (Half::new(4, Side::A), Half::new(4, Side::B));
        let entry = |vci, flags| Entry { vci, new_vci: vci + 1, port: 2, flags };
        let entries = vec![entry(40, Entry::VALID), entry(50, Entry::VALID | Entry::BACK)];
        let write = Control { op: Op::Write, sequence: 1, token: 3, entries: entries.clone() };
        let cell = control_cell(VCI_CONTROL, 0, &write).unwrap();
        let Fate::Wire(cell) = near.from_switch(cell) else { panic!("one is the other half's") };
        assert_eq!(far.from_wire(cell), Fate::Taken);
        assert_eq!((near.used(), far.used()), (1, 1));
        let read = |near: &mut Half, far: &mut Half| {
            let to = Entry { vci: 0, new_vci: 77, port: 5, flags: 0 };
            let entries = [&[to], &entries[..]].concat();
            let read = Control { op: Op::Read, sequence: 9, token: 3, entries };
            let cell = control_cell(VCI_CONTROL, 0, &read).unwrap();
            let Fate::Wire(cell) = near.from_switch(cell) else { panic!("it asks both") };
            let Fate::Wire(cell) = far.from_wire(cell) else { panic!("it answers the half") };
            let Fate::Switch(cell) = near.from_wire(cell) else { panic!("it answers") };
            assert_eq!((cell.vci(), cell.port()), (77, 5));
            control_in(&cell).unwrap().entries
        };
        assert_eq!(read(&mut near, &mut far), entries);
        far.restart();
        let gone = read(&mut near, &mut far);
        assert_eq!((gone[0].flags, gone[1]), (0, entries[1]));
    }

    proptest! {
        #[test]
        fn a_29_no_cell_of_a_switch_writes_another_tokens_entry_or_grows_a_table(
            cells in prop::collection::vec(
                (any::<bool>(), any::<bool>(), prop::collection::vec(any::<u8>(), 48), 0u8..6), 1..60),
        ) {
            let labels = Block { first: 1000, count: 4 };
            let mut halves =
                [Side::A, Side::B].map(|side| Half::reserving(1, side, labels));
            let owned = Entry { vci: 40, new_vci: 41, port: 3, flags: Entry::VALID };
            let write = Control { op: Op::Write, sequence: 1, token: 0xdead_beef, entries: vec![owned] };
            let cell = control_cell(VCI_CONTROL, 0, &write).unwrap();
            prop_assert_eq!(halves[1].from_wire(cell), Fate::Taken);
            for (side, signal, mut bytes, op) in cells {
                (bytes[0], bytes[1]) = (op, bytes[1] % 6);
                // An attacker aims at somebody else's entry, with a token of its own.
                bytes[4..12].copy_from_slice(&[0, 0, 0, 9, 0, 40, 0, 9]);
                for at in [13, 14, 15, 21, 22, 23, 29, 30, 31, 37, 38, 39, 45, 46, 47] {
                    bytes[at] = 0;
                }
                let payload = bytes.first_chunk().unwrap();
                let vci = if signal { VCI_RESERVATION } else { VCI_CONTROL };
                let mut cell = data_cell(vci, 0, true, payload);
                // End-to-end OAM, as control cells are.
                cell.0[3] = 0x0a;
                cell.rewrite_vci(vci);
                let near = usize::from(side);
                if let Fate::Wire(cell) = halves[near].from_switch(cell)
                    && let Fate::Wire(cell) = halves[1 - near].from_wire(cell) {
                    prop_assert!(!matches!(halves[near].from_wire(cell), Fate::Wire(_)));
                }
            }
            prop_assert_eq!(halves[1].entry(40), owned);
            prop_assert!(halves.iter().all(|half| half.table.len() <= ENTRIES));
        }
    }
}
