//! Jetstream's CRC-32 generator, which both directions of a card share.
//!
//! ```text
//!   outbound words --[ 4 ]--+
//!                           +--> one word of 32 bits at each tick of 30 MHz --> the CRC of each frame
//!   inbound words  --[ 4 ]--+
//! ```
//!
//! Each direction has a CRC register that the generator continues; if both have a word, they alternate. A
//! direction whose buffer is full refuses the next word: its line would have to stall.
//!
//! Source: Watson et al., HPL-93-37, §3.4. That frames alternate word by word, and the four words of buffer, are
//! our reading: on a ring, which is half-duplex, it does not happen.
//!
//! ```
//! use lastmeter_repro::machines::crc_generator::{Direction, Generator};
//! let mut generator = Generator::default();
//! assert!(generator.offer(Direction::Out, *b"1234", true));
//! assert_eq!(generator.tick(), Some((Direction::Out, Some(lastmeter_wire::crc::crc32(b"1234")))));
//! ```

use lastmeter_wire::crc::Crc32;
use std::collections::VecDeque;

/// Buffer of each direction, in words.
const ROOM: usize = 4;

/// Direction of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the line.
    Out,
    /// From the line to the host.
    In,
}

/// A direction's words, and the CRC of its frame so far.
#[derive(Debug, Default)]
struct Path {
    words: VecDeque<([u8; 4], bool)>,
    register: Crc32,
}

/// The generator.
#[derive(Debug, Default)]
pub struct Generator {
    paths: [Path; 2],
    /// Whether the last word taken was inbound.
    inbound: bool,
    /// Ticks at which both directions had a word.
    pub conflicts: u64,
}

impl Generator {
    /// A word arrives, the last of its frame or not; `false` if there is no room for it.
    pub fn offer(&mut self, direction: Direction, word: [u8; 4], last: bool) -> bool {
        let words = &mut self.paths[direction as usize].words;
        let fits = words.len() < ROOM;
        if fits {
            words.push_back((word, last));
        }
        fits
    }

    /// Takes a word, and returns its direction and, after the last one, the frame's CRC.
    pub fn tick(&mut self) -> Option<(Direction, Option<u32>)> {
        let [out, inbound] = [0, 1].map(|path| !self.paths[path].words.is_empty());
        let direction = match (out, inbound) {
            (false, false) => return None,
            (true, true) => {
                self.conflicts += 1;
                if self.inbound { Direction::Out } else { Direction::In }
            }
            (true, false) => Direction::Out,
            (false, true) => Direction::In,
        };
        self.inbound = direction == Direction::In;
        let path = &mut self.paths[direction as usize];
        let (word, last) = path.words.pop_front()?;
        path.register.update(&word);
        let whole = last.then(|| std::mem::take(&mut path.register).value());
        Some((direction, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_take_turns_and_one_alone_goes_on() {
        let mut generator = Generator::default();
        for word in 0..2 {
            assert!(generator.offer(Direction::Out, [word; 4], false));
            assert!(generator.offer(Direction::In, [word; 4], false));
        }
        let taken: Vec<Direction> =
            std::iter::from_fn(|| generator.tick().map(|(direction, _)| direction)).collect();
        assert_eq!(taken, [Direction::In, Direction::Out, Direction::In, Direction::Out]);
        assert_eq!(generator.conflicts, 3);
    }

    #[test]
    fn a_direction_that_is_full_refuses_a_word_and_the_other_does_not() {
        let mut generator = Generator::default();
        let offered = (0..6).filter(|&word| generator.offer(Direction::In, [word; 4], false));
        assert_eq!(offered.count(), ROOM);
        assert!(generator.offer(Direction::Out, [0; 4], false));
    }
}
