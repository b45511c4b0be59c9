//! What the VuNet's switch leaves to its clients: copies for several receivers, credits, classes of service.
//!
//! ```text
//! application --class, receivers--> [ class 0 ]--+
//!                                   [ class 1 ]--+--> first class whose receiver has granted a credit --> port
//!                                      ^ credits from receivers
//! ```
//!
//! * Multicast: a cell is copied for each receiver by whoever sends it.
//! * Back-pressure: a receiver grants as many cells as it has room for; each cell that it takes out of its FIFO is
//!   another credit. If the grants of all senders to a receiver together fit into a FIFO of the switch, no cell is
//!   lost there.
//! * Classes: cells of a lower class number go first; within a class, and to one receiver, in order. A cell that
//!   waits for a credit does not keep back those for other receivers.
//!
//! Source: Aurora report §3.1: "sophisticated functions" (multicast, back-pressure, adaptation, classes) belong to
//! the edge, so that the switch can be simple. How clients do them is our choice. (A-10)
//!
//! ```
//! use lastmeter_lan::vunet::edge::{Class, Edge};
//! let mut edge = Edge::new(Some(1));
//! edge.send(Class(1), &[2, 3], "a picture");
//! edge.send(Class(0), &[2], "a voice");
//! assert_eq!(edge.take(), Some((2, "a voice")));
//! assert_eq!(edge.take(), Some((3, "a picture")));
//! assert_eq!(edge.take(), None, "receiver 2 has not granted another cell");
//! edge.credit(2, 1);
//! assert_eq!(edge.take(), Some((2, "a picture")));
//! ```

use std::collections::{BTreeMap, VecDeque};

/// A class of service; 0 goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(pub u8);

/// A client's side of the network.
#[derive(Clone, Debug)]
pub struct Edge<T> {
    /// By class and receiver.
    waiting: BTreeMap<(Class, usize), VecDeque<T>>,
    /// The receiver served last in each class: receivers take turns.
    turn: BTreeMap<Class, usize>,
    /// What each receiver has granted; `None`: no back-pressure.
    first: Option<u64>,
    credits: BTreeMap<usize, u64>,
}

impl<T: Clone> Edge<T> {
    /// An edge to receivers that first grant this many cells; `None`: without back-pressure.
    pub fn new(first: Option<u64>) -> Edge<T> {
        Edge { waiting: BTreeMap::new(), turn: BTreeMap::new(), first, credits: BTreeMap::new() }
    }
    /// Sends a copy to each of these receivers.
    pub fn send(&mut self, class: Class, receivers: &[usize], item: T) {
        for &to in receivers {
            self.waiting.entry((class, to)).or_default().push_back(item.clone());
        }
    }
    /// A receiver grants this many more cells.
    pub fn credit(&mut self, receiver: usize, cells: u64) {
        if let Some(first) = self.first {
            *self.credits.entry(receiver).or_insert(first) += cells;
        }
    }
    fn granted(&self, receiver: usize) -> bool {
        self.first.is_none_or(|first| *self.credits.get(&receiver).unwrap_or(&first) > 0)
    }
    /// The next cell for the port, and its receiver.
    pub fn take(&mut self) -> Option<(usize, T)> {
        let ready = self.waiting.keys().copied().filter(|&(_, to)| self.granted(to));
        // Of the first class, the receiver after the one served last.
        let key = |(class, to): &(Class, usize)| {
            (*class, self.turn.get(class).is_some_and(|last| to <= last), *to)
        };
        let (class, to) = ready.min_by_key(key)?;
        let items = self.waiting.get_mut(&(class, to))?;
        let item = items.pop_front()?;
        if items.is_empty() {
            self.waiting.remove(&(class, to));
        }
        self.turn.insert(class, to);
        if let Some(first) = self.first {
            *self.credits.entry(to).or_insert(first) -= 1;
        }
        Some((to, item))
    }
    /// Cells that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_10_receivers_take_turns_and_each_gets_its_cells_in_order() {
        let mut edge = Edge::new(None);
        (0..3).for_each(|cell| edge.send(Class(0), &[5, 1], cell));
        let all: Vec<(usize, i32)> = std::iter::from_fn(|| edge.take()).collect();
        assert_eq!(all, [(1, 0), (5, 0), (1, 1), (5, 1), (1, 2), (5, 2)]);
        assert_eq!(edge.waiting(), 0);
    }

    #[test]
    fn a_10_a_receiver_without_credits_holds_nobody_else_back() {
        let mut edge = Edge::new(Some(2));
        (0..5).for_each(|cell| edge.send(Class(0), &[1], cell));
        edge.send(Class(7), &[2], 9);
        let all: Vec<(usize, i32)> = std::iter::from_fn(|| edge.take()).collect();
        assert_eq!(all, [(1, 0), (1, 1), (2, 9)]);
        edge.credit(1, 2);
        assert_eq!((edge.take(), edge.take(), edge.take()), (Some((1, 2)), Some((1, 3)), None));
        assert_eq!(edge.waiting(), 1);
    }
}
