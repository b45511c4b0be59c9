//! The switch: FIFOs at its inputs and a crossbar that moves whole cells, faster than its clients.
//!
//! ```text
//! in 0 --> [ cells ] --+
//! in 1 --> [ cells ] --+--> crossbar --> output o: one cell at a time --> client's FIFO
//! in 2 --> [ cells ] --+
//! ```
//!
//! Each input and each output moves one cell at a time; an input whose first cell waits for its output blocks the
//! cells behind it (head-of-line blocking). Inputs take turns at an output. There is no back-pressure: a cell that
//! finds its FIFO full is lost (A-20). The client at an output reads from its own FIFO with its own clock, so
//! neither waits for the other (A-21); sending and receiving do not interfere (A-22).
//!
//! Source: Aurora report §3.1.1. The report does not say in which order inputs are served; round robin is ours.
//!
//! Rows: A-10, A-13, A-15.

use lastmeter_base::{Duration, Time};
use std::collections::VecDeque;

/// A crossbar for items that each leave by one output.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// use lastmeter_lan::vunet::crossbar::Crossbar;
/// let mut crossbar = Crossbar::new(4, 256, Duration::from_ns(640));
/// crossbar.enqueue(Time::START, 0, 3, "a").unwrap();
/// crossbar.enqueue(Time::START, 1, 3, "b").unwrap();
/// let moved = crossbar.advance(Time::START).unwrap();
/// assert_eq!((moved.item, moved.output), ("a", 3));
/// assert!(crossbar.advance(Time::START).is_none(), "the output is busy");
/// assert_eq!(crossbar.ready_at(), Some(Time::START + Duration::from_ns(640)));
/// ```
#[derive(Clone, Debug)]
pub struct Crossbar<T> {
    inputs: Vec<VecDeque<(Time, usize, T)>>,
    in_free: Vec<Time>,
    out_free: Vec<Time>,
    /// The input with the first choice next time.
    turn: usize,
    depth: usize,
    cell_time: Duration,
    waiting: usize,
    /// Most cells at one input.
    pub depth_max: usize,
}

/// A cell that starts to cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved<T> {
    /// The cell.
    pub item: T,
    /// Its output.
    pub output: usize,
    /// When it arrived at the input.
    pub entered: Time,
    /// When it has crossed.
    pub done: Time,
}

impl<T> Crossbar<T> {
    /// A crossbar with this many ports, with room for `depth` cells at each input; a cell crosses in `cell_time`.
    pub fn new(ports: usize, depth: usize, cell_time: Duration) -> Crossbar<T> {
        Crossbar {
            inputs: (0..ports).map(|_| VecDeque::new()).collect(),
            in_free: vec![Time::START; ports],
            out_free: vec![Time::START; ports],
            turn: 0,
            depth,
            cell_time,
            waiting: 0,
            depth_max: 0,
        }
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.inputs.len()
    }
    /// Cells waiting at inputs.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A cell arrives at an input.
    ///
    /// # Errors
    /// The cell, if the FIFO is full or there is no such output.
    #[inline]
    pub fn enqueue(&mut self, now: Time, input: usize, output: usize, item: T) -> Result<(), T> {
        if output >= self.inputs.len() || self.inputs[input].len() >= self.depth {
            return Err(item);
        }
        self.inputs[input].push_back((now, output, item));
        self.waiting += 1;
        self.depth_max = self.depth_max.max(self.inputs[input].len());
        Ok(())
    }

    /// The next cell that starts to cross now; to be called until there is none.
    #[inline]
    pub fn advance(&mut self, now: Time) -> Option<Moved<T>> {
        if self.waiting == 0 {
            return None;
        }
        let ports = self.inputs.len();
        for step in 0..ports {
            let input = (self.turn + step) % ports;
            let Some(&(entered, output, _)) = self.inputs[input].front() else { continue };
            if self.in_free[input] > now || self.out_free[output] > now {
                continue;
            }
            let (_, _, item) =
                self.inputs[input].pop_front().expect("the queue was found not empty");
            let done = now + self.cell_time;
            (self.in_free[input], self.out_free[output]) = (done, done);
            self.waiting -= 1;
            self.turn = (input + 1) % ports;
            return Some(Moved { item, output, entered, done });
        }
        None
    }

    /// When [`Crossbar::advance`] has another cell; `None` while none waits.
    pub fn ready_at(&self) -> Option<Time> {
        let firsts = self.inputs.iter().zip(&self.in_free);
        let ready = |(input, &free): (&VecDeque<(Time, usize, T)>, &Time)| {
            input.front().map(|&(_, output, _)| free.max(self.out_free[output]))
        };
        firsts.filter_map(ready).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{Bytes, Rate, Stream};

    /// A cell of 56 bytes at 700 Mbit/s.
    fn cell_time() -> Duration {
        Rate::from_mbit(700).time_for(Bytes(56))
    }

    /// Runs to the end; returns input, output and time of each cell.
    fn drain(crossbar: &mut Crossbar<u64>, mut now: Time) -> Vec<(usize, u64, Time)> {
        let mut all = Vec::new();
        while let Some(at) = crossbar.ready_at() {
            now = now.max(at);
            while let Some(moved) = crossbar.advance(now) {
                all.push((moved.output, moved.item, moved.done));
            }
        }
        all
    }

    #[test]
    fn a_24_every_port_carries_its_rate_without_contention() {
        let mut crossbar = Crossbar::new(6, 1000, cell_time());
        for cell in 0..1000 {
            for port in 0..6 {
                crossbar.enqueue(Time::START, port, (port + 1) % 6, cell).unwrap();
            }
        }
        let all = drain(&mut crossbar, Time::START);
        assert_eq!(all.last().unwrap().2, Time::START + cell_time() * 1000);
    }

    #[test]
    fn inputs_take_turns_and_cells_of_one_input_stay_in_order() {
        let mut crossbar = Crossbar::new(4, 300, cell_time());
        for cell in 0..300 {
            (0..3).for_each(|port| crossbar.enqueue(Time::START, port, 3, cell).unwrap());
        }
        let all = drain(&mut crossbar, Time::START);
        assert!(all.chunks(3).zip(0..).all(|(turn, cell)| turn.iter().all(|one| one.1 == cell)));
    }

    #[test]
    fn a_waiting_first_cell_blocks_those_behind_it() {
        let mut crossbar = Crossbar::new(3, 10, cell_time());
        crossbar.enqueue(Time::START, 0, 2, 1).unwrap();
        crossbar.enqueue(Time::START, 1, 2, 2).unwrap();
        crossbar.enqueue(Time::START, 1, 0, 3).unwrap();
        let ends: Vec<Time> = drain(&mut crossbar, Time::START).iter().map(|one| one.2).collect();
        assert_eq!(ends, [1, 2, 3].map(|cells| Time::START + cell_time() * cells));
    }

    #[test]
    fn a_20_a_full_fifo_loses_arriving_cells_and_nothing_else_is_lost() {
        let mut random = Stream::new(1, "crossbar");
        for depth in [1, 7, 256] {
            let mut crossbar = Crossbar::new(4, depth, cell_time());
            let (mut now, mut refused, mut made, mut moved) = (Time::START, 0, 0, 0);
            for _ in 0..5000 {
                now += Duration::from_ps(random.below(560_000));
                while let Some(_cell) = crossbar.advance(now) {
                    moved += 1;
                }
                let (input, output) = (random.below(4) as usize, random.below(4) as usize);
                made += 1;
                refused += usize::from(crossbar.enqueue(now, input, output, 0).is_err());
            }
            assert_eq!(made, moved + refused + crossbar.waiting());
            assert!((refused > 0) == (depth < 256) && crossbar.depth_max <= depth);
        }
    }
}
