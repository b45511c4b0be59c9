//! The receiver of a striped stream: a FIFO for each stripe to absorb skew, and the order in which they are read.
//!
//! | synchronisation | waits for | detects a loss |
//! |---|---|---|
//! | none | nothing | never |
//! | numbers | the cell with the next number | when every stripe has a later one, or a FIFO is full |
//! | markers | the stripe whose turn it is | at the next marker at the latest, or when a FIFO is full |
//! | PDU | the last cell on each stripe | by the length, when the PDU is reassembled |
//!
//! A loss is reported where the cell is missing ([`Out::Lost`]), or, with markers, when it is detected: between a
//! loss and the next marker, cells may be out of order, and [`Out::Resynchronised`] reports that. Numbers
//! determine the order while the stripes are less than 128 cells apart, so all FIFOs together hold at most that
//! many.

use super::split::{Sent, Tag, Turn};
use super::{Balance, Sync, Unit};
use std::collections::VecDeque;

/// An output of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out<T> {
    /// A cell.
    Cell(T),
    /// A cell of an incomplete or late PDU: to be discarded.
    Refused(T),
    /// This many cells are missing here (with PDUs: one PDU).
    Lost(u64),
    /// Cells since the last marker may be out of order.
    Resynchronised,
}

/// A cell in a FIFO.
#[derive(Clone, Debug)]
enum Held<T> {
    Cell { item: T, tag: Tag, len: u64, last: bool },
    Marker { round: u64 },
}

/// A receiver, generic in the type of cells.
#[derive(Clone, Debug)]
pub struct Merger<T> {
    unit: Unit,
    balance: Balance,
    sync: Sync,
    depth: usize,
    fifos: Vec<VecDeque<Held<T>>>,
    /// The next number expected: of a cell, or of a PDU.
    number: u64,
    turn: Turn,
    /// For each stripe that a marker has shown to be ahead: the round that it is in.
    ahead: Vec<u64>,
    out: VecDeque<Out<T>>,
    /// Cells waiting.
    waiting: usize,
    /// Most cells that waited in one FIFO.
    pub depth_max: usize,
    /// Losses and resynchronisations reported.
    pub reports: u64,
}

/// Most stripes with numbers: each needs room for at least one of the 128 cells.
pub const NUMBERED_MAX: usize = 64;

impl<T> Merger<T> {
    /// A receiver of `stripes`, each with a FIFO of `depth` cells.
    ///
    /// # Errors
    /// If numbers cannot distinguish that many cells, or the unit is incompatible.
    pub fn new(
        stripes: usize,
        unit: Unit,
        balance: Balance,
        sync: Sync,
        depth: usize,
    ) -> Result<Merger<T>, String> {
        let most = 128 / stripes.max(1);
        if sync == Sync::Numbers && (stripes > NUMBERED_MAX || depth > most) {
            return Err(format!(
                "numbers of eight bits distinguish {most} cells of each of {stripes} stripes, not \
                 {depth}"
            ));
        }
        if unit == Unit::Flow && sync != Sync::None {
            return Err("flows stay on their stripes and need no synchronisation".to_owned());
        }
        if depth == 0 {
            return Err("a stripe needs room for at least one cell".to_owned());
        }
        Ok(Merger {
            unit,
            balance,
            sync,
            depth,
            fifos: (0..stripes.max(1)).map(|_| VecDeque::new()).collect(),
            number: 0,
            turn: Turn::FIRST,
            ahead: vec![0; stripes.max(1)],
            out: VecDeque::new(),
            waiting: 0,
            depth_max: 0,
            reports: 0,
        })
    }

    /// Cells waiting.
    pub fn waiting(&self) -> usize {
        self.waiting
    }
    /// Cells waiting on one stripe.
    pub fn depth(&self, stripe: usize) -> usize {
        self.fifos[stripe].len()
    }
    /// The next output; to be called until `None`.
    pub fn take(&mut self) -> Option<Out<T>> {
        self.out.pop_front()
    }

    /// A cell arrives from a stripe, with its tag, length and whether it ends its PDU.
    pub fn cell(&mut self, stripe: usize, sent: Sent, item: T, len: u64, last: bool) {
        let Sent::Cell(tag) = sent else { return };
        if self.sync == Sync::None {
            return self.out.push_back(Out::Cell(item));
        }
        self.push(stripe, Held::Cell { item, tag, len, last });
        self.waiting += 1;
        self.depth_max = self.depth_max.max(self.fifos[stripe].len());
        self.read();
        while self.fifos[stripe].len() > self.depth {
            self.give_up();
            self.read();
        }
    }

    /// A marker arrives from a stripe.
    pub fn marker(&mut self, stripe: usize, round: u64) {
        self.push(stripe, Held::Marker { round });
        self.read();
    }

    fn push(&mut self, stripe: usize, held: Held<T>) {
        self.fifos[stripe].push_back(held);
    }

    fn report(&mut self, out: Out<T>) {
        self.reports += 1;
        self.out.push_back(out);
    }

    /// Outputs everything that can be output.
    fn read(&mut self) {
        match self.sync {
            Sync::None => {}
            Sync::Numbers => while self.read_number() {},
            Sync::Markers { .. } => while self.read_turn() {},
            Sync::Pdu => while self.read_pdu() {},
        }
    }

    fn pop(&mut self, stripe: usize) -> Option<(T, u64, bool)> {
        match self.fifos[stripe].pop_front()? {
            Held::Cell { item, len, last, .. } => {
                self.waiting -= 1;
                Some((item, len, last))
            }
            Held::Marker { .. } => None,
        }
    }

    fn number_of(&self, stripe: usize) -> Option<u64> {
        match self.fifos[stripe].front() {
            // How far it is ahead of the number expected.
            Some(&Held::Cell { tag: Tag::Number(number), .. }) => {
                Some(u64::from(number.wrapping_sub(self.number as u8)))
            }
            _ => None,
        }
    }

    fn read_number(&mut self) -> bool {
        let stripes = 0..self.fifos.len();
        let firsts: Vec<Option<u64>> = stripes.map(|stripe| self.number_of(stripe)).collect();
        if let Some(stripe) = firsts.iter().position(|&first| first == Some(0)) {
            let (item, ..) = self.pop(stripe).expect("a first cell was seen");
            self.out.push_back(Out::Cell(item));
            self.number += 1;
            return true;
        }
        // A cell that arrived after it had been given up.
        if let Some(stripe) = firsts.iter().position(|first| first.is_some_and(|by| by >= 128)) {
            let (item, ..) = self.pop(stripe).expect("a first cell was seen");
            self.out.push_back(Out::Refused(item));
            return true;
        }
        // Stripes preserve order: if all have a later cell, the one expected is lost.
        match firsts.iter().copied().collect::<Option<Vec<u64>>>() {
            Some(firsts) => self.skip_to(firsts),
            None => false,
        }
    }

    fn skip_to(&mut self, firsts: Vec<u64>) -> bool {
        let Some(&missing) = firsts.iter().filter(|&&by| by > 0).min() else { return false };
        self.number += missing;
        self.report(Out::Lost(missing));
        true
    }

    fn read_turn(&mut self) -> bool {
        let stripe = self.turn.stripe;
        // A stripe that is ahead, because of losses, skips its turns.
        if self.ahead[stripe] > self.turn.round {
            self.turn.next(self.fifos.len());
            return true;
        }
        match self.fifos[stripe].front() {
            None => false,
            Some(&Held::Marker { round }) => {
                self.fifos[stripe].pop_front();
                if round != self.turn.round {
                    // Fewer cells than rounds have arrived: it has lost some. More is impossible.
                    self.ahead[stripe] = round;
                    self.report(Out::Resynchronised);
                }
                true
            }
            Some(Held::Cell { .. }) => {
                let (item, len, last) = self.pop(stripe).expect("a cell was seen");
                self.out.push_back(Out::Cell(item));
                let ends = self.unit == Unit::Cell || last;
                self.turn.pass(self.fifos.len(), self.balance, len, ends);
                true
            }
        }
    }

    fn read_pdu(&mut self) -> bool {
        let expected = self.number as u8;
        for stripe in 0..self.fifos.len() {
            // Cells of a PDU that was given up.
            while self.fifos[stripe].front().is_some_and(|held| is_before(held, expected)) {
                let (item, ..) = self.pop(stripe).expect("a first cell was seen");
                self.out.push_back(Out::Refused(item));
            }
        }
        let parts: Vec<Part> = self.fifos.iter().map(|fifo| Part::first(fifo, expected)).collect();
        // The last cell carries the length, which determines how many stripes the PDU uses.
        let length = parts.iter().find_map(|part| part.length);
        let used = length.map_or(parts.len(), |length| parts.len().min(length as usize));
        if !parts[..used].iter().all(|part| part.over) {
            return false;
        }
        let cells: usize = parts[..used].iter().map(|part| part.cells).sum();
        let whole = length.is_some_and(|length| length as usize == cells);
        let rows = parts[..used].iter().map(|part| part.cells).max().unwrap_or(0);
        if !whole {
            self.report(Out::Lost(1));
        }
        for row in 0..rows {
            for stripe in (0..used).filter(|&stripe| parts[stripe].cells > row) {
                let (item, ..) = self.pop(stripe).expect("they were counted");
                self.out.push_back(if whole { Out::Cell(item) } else { Out::Refused(item) });
            }
        }
        self.number += 1;
        true
    }

    /// A FIFO is full: the cell or PDU that all wait for is given up.
    fn give_up(&mut self) {
        match self.sync {
            Sync::None => {}
            Sync::Numbers => {
                let stripes = 0..self.fifos.len();
                let firsts: Vec<u64> =
                    stripes.filter_map(|stripe| self.number_of(stripe)).collect();
                self.skip_to(firsts);
            }
            Sync::Markers { .. } => {
                self.report(Out::Resynchronised);
                self.turn.next(self.fifos.len());
            }
            Sync::Pdu => {
                self.report(Out::Lost(1));
                for stripe in 0..self.fifos.len() {
                    let cells = Part::first(&self.fifos[stripe], self.number as u8).cells;
                    for _ in 0..cells {
                        let (item, ..) = self.pop(stripe).expect("they were counted");
                        self.out.push_back(Out::Refused(item));
                    }
                }
                self.number += 1;
            }
        }
    }
}

fn is_before<T>(held: &Held<T>, expected: u8) -> bool {
    match held {
        Held::Cell { tag: Tag::Part { pdu, .. }, .. } => pdu.wrapping_sub(expected) >= 128,
        _ => false,
    }
}

/// The part of a PDU on one stripe.
struct Part {
    cells: usize,
    /// Whether it is complete.
    over: bool,
    length: Option<u32>,
}

impl Part {
    /// The cells of PDU `expected` at the head of a FIFO.
    fn first<T>(fifo: &VecDeque<Held<T>>, expected: u8) -> Part {
        let mut part = Part { cells: 0, over: false, length: None };
        for held in fifo {
            match held {
                Held::Cell { tag: Tag::Part { pdu, ends_stripe, cells }, .. }
                    if *pdu == expected =>
                {
                    part.cells += 1;
                    part.length = part.length.or(*cells);
                    part.over |= ends_stripe;
                }
                // A later PDU: stripes preserve order.
                _ => part.over = true,
            }
            if part.over {
                break;
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::super::split::{Cell, Splitter};
    use super::*;
    use lastmeter_base::Stream;
    use proptest::prelude::*;

    /// Sends `count` cells over stripes with random skew of up to `skew` cell times, and loses some. Returns the
    /// output.
    fn pass(
        seed: u64,
        (stripes, unit, balance, sync): (usize, Unit, Balance, Sync),
        (skew, loss): (u64, f64),
        count: u64,
    ) -> (Vec<Out<u64>>, Merger<u64>) {
        let mut random = Stream::new(seed, "stripes");
        let depth = if sync == Sync::Numbers { 128 / stripes } else { 4096 };
        let mut splitter = Splitter::new(stripes, unit, balance, sync);
        let mut merger = Merger::new(stripes, unit, balance, sync, depth).unwrap();
        let delays: Vec<u64> = (0..stripes).map(|_| random.below(skew + 1)).collect();
        let (mut flying, mut left) = (Vec::new(), 0);
        let mut busy = vec![0; stripes];
        for cell in 0..count {
            let last = random.chance(0.1) || cell + 1 == count;
            let sent = splitter.send(Cell { len: 53, last, flow: 0 });
            let mut first = left;
            for (stripe, sent) in sent {
                // A cell takes `stripes` cell times on one stripe; stripes preserve order.
                busy[stripe] = (busy[stripe] + stripes as u64).max(cell + stripes as u64);
                let at = busy[stripe] + delays[stripe];
                let is_cell = matches!(sent, Sent::Cell(_));
                if !(is_cell && random.chance(loss)) {
                    flying.push((at, flying.len(), stripe, sent, first, last));
                }
                first += u64::from(is_cell);
            }
            left = first;
        }
        flying.sort_unstable_by_key(|&(at, place, ..)| (at, place));
        let mut out = Vec::new();
        for (_, _, stripe, sent, item, last) in flying {
            match sent {
                Sent::Marker { round } => merger.marker(stripe, round),
                // Tags do not say where a PDU ends, but cells do; for units split late, the tag does.
                Sent::Cell(_) => merger.cell(stripe, sent, item, 53, last),
            }
            out.extend(std::iter::from_fn(|| merger.take()));
        }
        (out, merger)
    }

    fn cells(out: &[Out<u64>]) -> Vec<u64> {
        out.iter()
            .filter_map(|one| match one {
                Out::Cell(cell) => Some(*cell),
                _ => None,
            })
            .collect()
    }

    const SYNCS: [Sync; 3] = [Sync::Numbers, Sync::Markers { every: 16 }, Sync::Pdu];

    proptest! {
        #[test]
        fn a_56_random_skew_without_loss_delivers_all_in_order(
            seed: u64, stripes in 1usize..9, which in 0usize..3, skew in 0u64..60,
        ) {
            let sync = SYNCS[which];
            // Numbers distinguish 128 cells.
            let skew = if sync == Sync::Numbers { skew.min(100 / stripes as u64) } else { skew };
            let setting = (stripes, Unit::Cell, Balance::RoundRobin, sync);
            let (out, merger) = pass(seed, setting, (skew, 0.0), 2000);
            prop_assert_eq!(merger.reports, 0);
            prop_assert_eq!(cells(&out), (0..2000).collect::<Vec<_>>());
        }

        #[test]
        fn a_61_with_loss_order_is_kept_and_every_gap_is_reported(
            seed: u64, stripes in 1usize..9, which in 0usize..2, loss in 0.0..0.05f64,
        ) {
            let sync = [Sync::Numbers, Sync::Pdu][which];
            let setting = (stripes, Unit::Cell, Balance::RoundRobin, sync);
            let (out, _) = pass(seed, setting, (5, loss), 2000);
            let (mut next, mut reported) = (0, false);
            for one in out {
                match one {
                    Out::Cell(cell) => {
                        prop_assert!(cell >= next, "{} after {}", cell, next);
                        prop_assert!(cell == next || reported, "an unreported gap before {}", cell);
                        (next, reported) = (cell + 1, false);
                    }
                    Out::Lost(_) | Out::Resynchronised => reported = true,
                    Out::Refused(_) => {}
                }
            }
        }

        #[test]
        fn a_61_the_next_marker_corrects_a_single_loss(
            seed: u64, stripes in 2usize..9, lost in 200u64..1000,
        ) {
            const EVERY: u64 = 16;
            let sync = Sync::Markers { every: EVERY };
            let mut random = Stream::new(seed, "single");
            let (balance, unit) = (Balance::RoundRobin, Unit::Cell);
            let mut splitter = Splitter::new(stripes, unit, balance, sync);
            let mut merger = Merger::new(stripes, unit, balance, sync, 4096).unwrap();
            let mut lines: Vec<VecDeque<(Sent, u64)>> = vec![VecDeque::new(); stripes];
            let mut out = Vec::new();
            for cell in 0..2000 {
                for (stripe, sent) in splitter.send(Cell { len: 53, last: false, flow: 0 }) {
                    if cell != lost || matches!(sent, Sent::Marker { .. }) {
                        lines[stripe].push_back((sent, cell));
                    }
                }
                while random.chance(0.8) {
                    let stripe = random.below(stripes as u64) as usize;
                    match lines[stripe].pop_front() {
                        Some((Sent::Marker { round }, _)) => merger.marker(stripe, round),
                        Some((sent, cell)) => merger.cell(stripe, sent, cell, 53, false),
                        None => {}
                    }
                }
                out.extend(std::iter::from_fn(|| merger.take()));
            }
            for (stripe, line) in lines.into_iter().enumerate() {
                for (sent, cell) in line {
                    match sent {
                        Sent::Marker { round } => merger.marker(stripe, round),
                        Sent::Cell(_) => merger.cell(stripe, sent, cell, 53, false),
                    }
                }
            }
            out.extend(std::iter::from_fn(|| merger.take()));
            prop_assert_eq!(merger.reports, 1);
            let got = cells(&out);
            // In order before the loss, and again from two marker periods after it.
            let good = lost + 2 * EVERY * stripes as u64;
            let expected = |cell: &u64| *cell < lost || *cell >= good;
            let kept: Vec<u64> = got.iter().copied().filter(|cell| expected(cell)).collect();
            prop_assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(got.len(), 1999);
        }
    }

    #[test]
    fn a_58_without_synchronisation_skew_reorders() {
        let setting = (4, Unit::Cell, Balance::RoundRobin, Sync::None);
        let (out, _) = pass(1, setting, (40, 0.0), 500);
        assert_eq!(out.len(), 500);
        assert!(cells(&out).windows(2).any(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn more_cells_than_numbers_distinguish_are_refused() {
        let new = |stripes, depth| {
            Merger::<()>::new(stripes, Unit::Cell, Balance::RoundRobin, Sync::Numbers, depth)
        };
        assert!(new(4, 33).is_err() && new(4, 32).is_ok() && new(4, 0).is_err());
        assert!(new(100, 1).is_err());
    }

    #[test]
    fn a_60_whole_pdus_stay_on_their_stripes_and_arrive_in_order() {
        for balance in [Balance::RoundRobin, Balance::Surplus { quantum: 2000 }] {
            let setting = (4, Unit::Pdu, balance, Sync::Markers { every: 8 });
            let (out, merger) = pass(3, setting, (30, 0.0), 3000);
            assert_eq!(merger.reports, 0);
            let got = cells(&out);
            assert_eq!(got, (0..got.len() as u64).collect::<Vec<_>>());
            assert!(got.len() > 2800, "{}", got.len());
        }
    }
}
