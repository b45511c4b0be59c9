//! The operating point of an adapter: how long packets should be, and how many of them in flight (E-28).
//!
//! ```text
//! latency alone    longest packet for which it is still flat         --> length
//! at that length   depth of the greatest power, throughput / latency --> depth
//! ```
//!
//! | limit  | value | meaning                                                                  |
//! |--------|-------|--------------------------------------------------------------------------|
//! | `FLAT` | 1.5   | latency alone, over that of the shortest packet, that still counts as flat |
//!
//! A choice at the edge of what was tried says so: a longer packet or a deeper pipeline might be better still.
//!
//! Source: Indiresan 1997, §3.3.1: depth and length are set "to achieve the highest possible throughput while keeping
//! the medium access latency under reasonable bounds", which is "roughly constant for packet sizes up to 2 KB". The
//! document gives no rule; this one is ours. Power is that of Giessler et al. 1978 and Kleinrock 1979, and has no
//! parameter. The length is not chosen by power, as packets are cut to it once, and bound the wait of an urgent one.
//!
//! ```
//! use lastmeter_base::Bytes;
//! use lastmeter_host::adapter::operating::{Point, choose};
//! let point = |len, depth, throughput, latency| Point { len: Bytes(len), depth, throughput, latency };
//! let tried = [
//!     point(44, 1, 4.4e4, 1.0e-3),
//!     point(1024, 1, 8e5, 1.3e-3), // Flat.
//!     point(1024, 2, 1.3e6, 1.6e-3), // 62 % more for 23 % more.
//!     point(1024, 3, 1.4e6, 2.2e-3), // 8 % more for 38 % more.
//!     point(4096, 1, 1.5e6, 2.7e-3), // No longer flat.
//! ];
//! let choice = choose(&tried).unwrap();
//! assert_eq!((choice.point.len, choice.point.depth, choice.at_edge), (Bytes(1024), 2, false));
//! ```

use super::description::Description;
use super::pipeline::run;
use super::transmitter::Variation;
use lastmeter_base::Bytes;

/// Our reading of "roughly constant".
pub const FLAT: f64 = 1.5;
/// What is tried by default: the published lengths, of which the last are too long on purpose, and depths.
pub const LENGTHS: [Bytes; 6] =
    [Bytes(44), Bytes(512), Bytes(1024), Bytes(2048), Bytes(4096), Bytes(8192)];
/// As [`LENGTHS`].
pub const DEPTHS: [u64; 4] = [1, 2, 3, 4];

/// What an adapter did with packets of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Length of a packet.
    pub len: Bytes,
    /// Packets in flight at most.
    pub depth: u64,
    /// Bytes a second.
    pub throughput: f64,
    /// Mean seconds from the host's command until the packet has been sent.
    pub latency: f64,
}

impl Point {
    /// Throughput over latency, bytes/s².
    pub fn power(&self) -> f64 {
        self.throughput / self.latency
    }
}

/// The chosen point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Length, depth, and what they bring.
    pub point: Point,
    /// Whether it is the longest packet or the deepest pipeline that was tried.
    pub at_edge: bool,
}

/// Chooses; `None` if nothing was tried with one packet in flight.
pub fn choose(tried: &[Point]) -> Option<Choice> {
    let mut alone: Vec<&Point> = tried.iter().filter(|point| point.depth == 1).collect();
    alone.sort_by_key(|point| point.len);
    let flat = FLAT * alone.first()?.latency;
    let len = alone.iter().take_while(|point| point.latency <= flat).last()?.len;
    let mut depths: Vec<&Point> = tried.iter().filter(|point| point.len == len).collect();
    // Of equal ones the smallest, which is better for urgent packets.
    depths.sort_by_key(|point| std::cmp::Reverse(point.depth));
    let point = **depths.iter().max_by(|a, b| a.power().total_cmp(&b.power()))?;
    let longest = alone.last().map(|point| point.len) == Some(len);
    let at_edge = longest || depths.first().map(|deepest| deepest.depth) == Some(point.depth);
    Some(Choice { point, at_edge })
}

/// What the model of an adapter does with this many packets. Panics as [`run`] does.
pub fn modelled(
    card: &Description,
    (len, depth): (Bytes, u64),
    packets: usize,
    variation: Variation,
    seed: u64,
) -> Point {
    let outcome = run(card, len, (depth, packets), variation, seed);
    let throughput = len.0 as f64 / outcome.mean.as_secs_f64();
    Point { len, depth, throughput, latency: outcome.latency.mean() }
}

/// All default lengths with all default depths.
pub fn grid() -> impl Iterator<Item = (Bytes, u64)> {
    LENGTHS.into_iter().flat_map(|len| DEPTHS.map(|depth| (len, depth)))
}

#[cfg(test)]
mod tests {
    use super::super::description::cim;
    use super::*;

    fn chosen(card: &Description, variation: Variation) -> (u64, u64, bool) {
        let points: Vec<Point> = grid().map(|at| modelled(card, at, 6_000, variation, 1)).collect();
        let choice = choose(&points).expect("each length was tried alone");
        (choice.point.len.0, choice.point.depth, choice.at_edge)
    }

    #[test]
    fn e_28_the_operating_point_of_the_cim_is_two_packets_of_2_kb() {
        assert_eq!(chosen(&cim(), Variation::Exponential), (2048, 2, false));
    }

    #[test]
    fn e_28_the_choice_follows_the_adapter() {
        // An adapter that does one thing at a time gains nothing from a second packet.
        let mut card = cim();
        card.queueing.stages = 1;
        assert_eq!(chosen(&card, Variation::None), (2048, 1, false));
        // Without fixed costs, no other packet has the latency of the shortest.
        let mut card = Description::plain("bytes alone");
        card.network.rate = Some(lastmeter_base::Rate::from_mbit(1));
        assert_eq!(chosen(&card, Variation::None).0, 44);
    }

    #[test]
    fn nothing_is_chosen_of_nothing_and_one_point_is_at_the_edge() {
        assert_eq!(choose(&[]), None);
        let only = Point { len: Bytes(1), depth: 1, throughput: 1.0, latency: 1.0 };
        assert_eq!(choose(&[only]), Some(Choice { point: only, at_edge: true }));
        assert_eq!(choose(&[Point { depth: 2, ..only }]), None);
    }
}
