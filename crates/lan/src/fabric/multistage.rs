//! A multistage fabric, cell by cell: stages of small switches that first distribute cells over all paths and then
//! route them to their outputs, with back-pressure from stage to stage.
//!
//! ```text
//!        spread       route to the output
//! in --> [ s 0 ] --> [ s 1 ] --> [ s 2 ] --> out      9 ports of radix 3: a line has two digits
//! in --> [  "  ] --> [  "  ] --> [  "  ] --> out
//! ```
//!
//! A line is named by its digits. A switch of a stage connects the lines that differ in one digit, and may change
//! it: the first `levels - 1` stages to the line with the shortest queue (dynamic routing), the last `levels`
//! stages to the digit of the output. In each slot every line carries one cell, and a cell moves only if the next
//! switch, whose buffer all its lines share, has room. Cells of one pair may overtake each other; [`Resequencer`]
//! restores their order by age.
//!
//! Source: Kuhns et al., §2 ("a multistage interconnection network with dynamic routing and a small
//! internal speed advantage"), §2.2 (D-04); the switches' buffers are ours: the document gives none.
//!
//! ```
//! use lastmeter_lan::fabric::multistage::{Cell, Fabric};
//! let mut fabric = Fabric::new(4, 2, 32); // 16 ports, switches of 4 x 4
//! fabric.inject(Cell { input: 3, output: 14, id: 0, entered: 0 }).unwrap();
//! let out: Vec<Cell> = (0..3).flat_map(|_| fabric.step()).collect();
//! assert_eq!(out[0].output, 14);
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Most lines of a stage.
pub const LINES_MAX: usize = 1 << 20;

/// A cell in the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The slot in which it entered; first, so that older cells sort first.
    pub entered: u64,
    /// Its sequence number at its sender.
    pub id: u64,
    /// Where it entered.
    pub input: u32,
    /// Where it leaves.
    pub output: u32,
}

/// Lines and switches, and the cells in them.
#[derive(Debug)]
pub struct Fabric {
    radix: usize,
    levels: usize,
    lines: usize,
    /// Capacity of a switch in cells.
    buffer: usize,
    /// Queues of each stage's lines.
    queues: Vec<Vec<VecDeque<Cell>>>,
    /// Cells in each switch of each stage.
    held: Vec<Vec<usize>>,
    slot: u64,
    /// Most cells ever held by a switch.
    held_max: usize,
}

impl Fabric {
    /// A fabric of `radix` to the power of `levels` ports. Panics if that is more than [`LINES_MAX`], if switches
    /// have fewer than two lines, or if there is no room for cells.
    pub fn new(radix: usize, levels: usize, buffer: usize) -> Fabric {
        assert!(radix >= 2 && levels >= 1 && buffer >= 1, "a fabric has switches with room");
        let lines = radix.checked_pow(levels as u32).filter(|&lines| lines <= LINES_MAX);
        let lines = lines.expect("a fabric has at most a million ports");
        let stages = 2 * levels - 1;
        Fabric {
            radix,
            levels,
            lines,
            buffer,
            queues: vec![vec![VecDeque::new(); lines]; stages],
            held: vec![vec![0; lines / radix]; stages],
            slot: 0,
            held_max: 0,
        }
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.lines
    }
    /// Number of switches that a cell passes through.
    pub fn stages(&self) -> usize {
        self.queues.len()
    }
    /// The slot that is about to run.
    pub fn slot(&self) -> u64 {
        self.slot
    }
    /// Cells in all switches.
    pub fn held(&self) -> usize {
        self.held.iter().flatten().sum()
    }
    /// Most cells ever held by a switch.
    pub fn held_max(&self) -> usize {
        self.held_max
    }

    /// Whether an input's switch has room.
    pub fn has_room(&self, input: usize) -> bool {
        self.held[0][self.switch(0, input)] < self.buffer
    }

    /// A cell enters, or is returned if its switch's buffer is full.
    ///
    /// # Errors
    /// The cell.
    pub fn inject(&mut self, cell: Cell) -> Result<(), Cell> {
        if !self.has_room(cell.input as usize) {
            return Err(cell);
        }
        self.place(0, cell.input as usize, cell);
        Ok(())
    }

    /// One slot: every line carries one cell if it can, the last stage first, so that freed buffers are reused at
    /// once. Returns the cells that leave.
    pub fn step(&mut self) -> Vec<Cell> {
        let last = self.stages() - 1;
        let mut left = Vec::new();
        for line in 0..self.lines {
            left.extend(self.take(last, line));
        }
        // A different line goes first each time, so that none starves.
        let first = self.slot as usize % self.lines;
        for stage in (0..last).rev() {
            for line in (first..self.lines).chain(0..first) {
                let next = self.switch(stage + 1, line);
                if !self.queues[stage][line].is_empty() && self.held[stage + 1][next] < self.buffer
                {
                    let cell = self.take(stage, line).expect("the line is not empty");
                    self.place(stage + 1, line, cell);
                }
            }
        }
        self.slot += 1;
        left
    }

    /// The digit that a stage may change.
    fn digit(&self, stage: usize) -> usize {
        match stage.checked_sub(self.levels - 1) {
            None => stage,
            Some(routing) => self.levels - 1 - routing,
        }
    }

    fn weight(&self, stage: usize) -> usize {
        self.radix.pow(self.digit(stage) as u32)
    }

    /// The switch at the end of a line in a stage, identified by all digits but one.
    fn switch(&self, stage: usize, line: usize) -> usize {
        let weight = self.weight(stage);
        line / (weight * self.radix) * weight + line % weight
    }

    fn take(&mut self, stage: usize, line: usize) -> Option<Cell> {
        let cell = self.queues[stage][line].pop_front()?;
        let switch = self.switch(stage, line);
        self.held[stage][switch] -= 1;
        Some(cell)
    }

    /// Enqueues a cell from `line` for the line by which it leaves the stage.
    fn place(&mut self, stage: usize, line: usize, cell: Cell) {
        let (weight, radix) = (self.weight(stage), self.radix);
        let base = line - line / weight % radix * weight;
        let digit = match stage + 1 < self.levels {
            // The shortest queue; equal ones in turn.
            true => {
                let turn = (self.slot as usize + line) % radix;
                let shortest =
                    |&at: &usize| self.queues[stage][base + (turn + at) % radix * weight].len();
                (turn + (0..radix).min_by_key(shortest).unwrap_or(0)) % radix
            }
            false => cell.output as usize / weight % radix,
        };
        self.queues[stage][base + digit * weight].push_back(cell);
        let switch = self.switch(stage, line);
        self.held[stage][switch] += 1;
        self.held_max = self.held_max.max(self.held[stage][switch]);
    }
}

/// Holds cells until they reach a fixed age, so that they leave in the order in which they entered.
#[derive(Debug)]
pub struct Resequencer {
    age: u64,
    waiting: BinaryHeap<Reverse<Cell>>,
    /// Cells that were already older on arrival.
    pub late: u64,
}

impl Resequencer {
    /// A resequencer that releases cells `age` slots after they entered.
    pub fn new(age: u64) -> Resequencer {
        Resequencer { age, waiting: BinaryHeap::new(), late: 0 }
    }
    /// A cell has left the fabric.
    pub fn put(&mut self, slot: u64, cell: Cell) {
        self.late += u64::from(slot.saturating_sub(cell.entered) > self.age);
        self.waiting.push(Reverse(cell));
    }
    /// The next cell that is old enough.
    pub fn take(&mut self, slot: u64) -> Option<Cell> {
        let old = |cell: &Reverse<Cell>| cell.0.entered + self.age <= slot;
        self.waiting.peek().filter(|cell| old(cell))?;
        self.waiting.pop().map(|Reverse(cell)| cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;

    /// Random cells at `load` of a line for `slots`, to outputs drawn by `pick`. Returns how many left, how many
    /// entered, and how many were late at the resequencers.
    fn run(
        fabric: &mut Fabric,
        load: f64,
        slots: u64,
        pick: impl Fn(&mut Stream, u32) -> u32,
    ) -> (u64, u64, u64) {
        let ports = fabric.ports();
        let age = fabric.stages() as u64 + 24;
        let mut random = Stream::new(5, "cells");
        let mut order: Vec<Resequencer> = (0..ports).map(|_| Resequencer::new(age)).collect();
        let mut ids = vec![0u64; ports];
        let mut last = vec![vec![0; ports]; ports];
        let (mut left, mut entered) = (0, 0);
        for slot in 0..slots + 10 * age {
            for input in 0..ports as u32 {
                if slot < slots && random.chance(load) {
                    let output = pick(&mut random, input);
                    ids[input as usize] += 1;
                    let id = ids[input as usize];
                    let cell = Cell { entered: slot, id, input, output };
                    entered += u64::from(fabric.inject(cell).is_ok());
                }
            }
            for cell in fabric.step() {
                order[cell.output as usize].put(slot, cell);
            }
            for (output, order) in order.iter_mut().enumerate() {
                while let Some(cell) = order.take(slot) {
                    assert_eq!(cell.output as usize, output);
                    left += 1;
                    let last = &mut last[output][cell.input as usize];
                    assert!(order.late > 0 || cell.id > *last, "overtaken");
                    *last = cell.id;
                }
            }
        }
        (left, entered, order.iter().map(|order| order.late).sum())
    }

    #[test]
    fn every_cell_reaches_its_output_once_and_in_order() {
        for (radix, levels) in [(2, 3), (3, 2), (4, 2), (8, 1), (4, 3)] {
            let mut fabric = Fabric::new(radix, levels, 8 * radix);
            let ports = fabric.ports() as u64;
            let uniform = |random: &mut Stream, _| random.below(ports) as u32;
            let (left, entered, late) = run(&mut fabric, 0.5, 500, uniform);
            assert_eq!((left, late, fabric.held()), (entered, 0, 0), "{radix} {levels}");
            assert!(entered > 200 * ports);
        }
    }

    #[test]
    fn a_permutation_passes_at_the_full_rate_because_cells_are_distributed() {
        let mut fabric = Fabric::new(4, 3, 32);
        // Digits reversed: the worst case without distribution.
        let reversed = |_: &mut Stream, input: u32| input % 4 * 16 + input / 4 % 4 * 4 + input / 16;
        let (left, entered, _) = run(&mut fabric, 1.0, 500, reversed);
        assert_eq!((left, entered), (64 * 500, 64 * 500));
    }

    /// §3.6: "Under sustained overload, the internal links of the WUGS can become congested leading to
    /// substantially reduced throughput."
    #[test]
    fn overload_of_one_output_reduces_the_throughput_of_all_others() {
        let pick = |share: f64| {
            move |random: &mut Stream, _| {
                if random.chance(share) { 0 } else { 1 + random.below(63) as u32 }
            }
        };
        let carried = |share: f64| {
            let mut fabric = Fabric::new(4, 3, 32);
            let (_, entered, _) = run(&mut fabric, 0.9, 2000, pick(share));
            entered as f64 / (0.9 * 2000.0 * 64.0)
        };
        let (even, hot) = (carried(1.0 / 64.0), carried(0.1));
        assert!(even > 0.95 && hot < 0.6 * even, "{even} {hot}");
    }
}
