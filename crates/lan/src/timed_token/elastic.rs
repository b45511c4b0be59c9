//! The elastic buffer between two clocks: a few words that let a node read, at its own rate, what its neighbour
//! sends at another.
//!
//! ```text
//! receiver's clock --> [ words ] --> own clock, which starts when `start` words are there
//! ```
//!
//! A frame must end before the difference of the clocks uses up the buffered words (if the reader is faster) or
//! the free space (if the writer is faster). The buffer restarts between frames.
//!
//! Source: HPL-93-37 §3.4: four words of 16 bits at 60 MHz.

use lastmeter_base::{Bytes, Duration, Rate};

/// An elastic buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elastic {
    /// Words in the buffer before the first is read.
    pub start: u64,
    /// Capacity in words.
    pub depth: u64,
    /// Bytes per word.
    pub word: Bytes,
}

impl Elastic {
    /// Jetstream's buffer, with as much room above the starting mark as below it (the document gives only the
    /// mark).
    pub const JETSTREAM: Elastic = Elastic { start: 4, depth: 8, word: Bytes(2) };

    /// Words by which the clocks may slip: the reader needs a whole word, and the writer room for one.
    fn slip(&self) -> u64 {
        self.start.saturating_sub(1).min(self.depth.saturating_sub(self.start))
    }

    /// The longest frame without underrun or overrun if the clocks differ by at most `ppm` parts per million.
    /// `None` if unlimited.
    pub fn frame_max(&self, ppm: u64) -> Option<Bytes> {
        let words = self.slip();
        // After 1/ppm million words the clocks have slipped by one.
        (ppm > 0).then(|| Bytes(words * 1_000_000 / ppm * self.word.0))
    }

    /// The largest difference of clocks, in parts per million, at which a frame of `len` passes.
    pub fn ppm_max(&self, len: Bytes) -> u64 {
        let words = self.slip();
        words * 1_000_000 / len.0.div_ceil(self.word.0).max(1)
    }

    /// Latency of waiting for the first words.
    pub fn latency(&self, rate: Rate) -> Duration {
        rate.time_for(self.word * self.start)
    }

    /// Passes a frame of `words`; the reader takes `reader` ticks per word and the writer `writer`.
    ///
    /// # Errors
    /// The number of the word at the underrun or overrun.
    pub fn pass(&self, words: u64, writer: u64, reader: u64) -> Result<(), u64> {
        for read in 0..words {
            // Reading begins when `start` words are there, or all words of a short frame.
            let now = self.start.min(words) * writer + read * reader;
            let written = (now / writer).min(words);
            let held = written.saturating_sub(read);
            if held == 0 || held > self.depth {
                return Err(read);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest frame, with its headers.
    const FRAME: Bytes = Bytes(65_576);

    #[test]
    fn four_words_carry_the_longest_frame_while_clocks_differ_by_91_ppm() {
        let elastic = Elastic::JETSTREAM;
        assert_eq!(elastic.ppm_max(FRAME), 91);
        assert_eq!(elastic.frame_max(100), Some(Bytes(60_000)));
        // 4 words of 16 bits at 960 Mbit/s: less than a quarter of a node's 300 ns.
        assert_eq!(elastic.latency(Rate::from_mbit(960)), Duration::from_ps(66_667));
    }

    #[test]
    fn a_simulation_by_words_fails_where_the_formula_says() {
        let elastic = Elastic::JETSTREAM;
        for ppm in [50, 100, 200, 1000] {
            let words = elastic.frame_max(ppm).unwrap().0 / 2;
            let (slow, fast) = (1_000_000, 1_000_000 - ppm);
            assert_eq!(elastic.pass(words, slow, fast), Ok(()), "dry at {ppm}");
            assert!(elastic.pass(words + words / 10, slow, fast).is_err());
            assert_eq!(elastic.pass(words, fast, slow), Ok(()), "over at {ppm}");
            assert!(elastic.pass(words * 2, fast, slow).is_err());
        }
    }
}
