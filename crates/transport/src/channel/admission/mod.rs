//! Admission: the bound that a resource can guarantee to one more channel without violating other
//! guarantees (E-18).
//!
//! ```text
//! (C, T) --bound--> d, the least local bound, if any --reserve(d' >= d)--> [(C, T, d'), ...]
//! ```
//!
//! C is how long the resource is busy with a message, T its least interval, d <= T the bound from
//! logical arrival until it is complete, and C_p the longest non-preemptible section. Links and
//! processors are treated alike. There are two tests:
//!
//! | Test | Admits | Source |
//! |---|---|---|
//! | [`Method::DOrder`] | sets schedulable by fixed priorities | Kandlur, Shin & Ferrari 1994 |
//! | [`Method::Edf`] | sets schedulable by earliest due date: exact | Zheng & Shin 1994 |
//!
//! At run time both are served by earliest due date, so a set that the first admits is safe, and the
//! second admits a superset. Channels of the same (d, T) form one class, whose costs add: so ten thousand
//! channels of a hundred kinds cost as much as a hundred.
//!
//! Sources: Kandlur, Shin & Ferrari, IEEE TPDS 5(10), 1994 (algorithm D_Order); Zheng & Shin, IEEE
//! Trans. Comm. 42, 1994, solved backwards as in Zhang & Burns, IEEE Trans. Comp. 58(9), 2009.
//! Deviation: utilisation is kept in 2^-64, rounded up, and stays below 1; the tests themselves are in
//! whole picoseconds.
//!
//! ```
//! use lastmeter_base::Duration;
//! use lastmeter_transport::channel::admission::{Demand, Method, Reservations};
//! let us = Duration::from_us;
//! let mut link = Reservations::new(Method::DOrder, us(1));
//! let demand = Demand { cost: us(1), interval: us(10) };
//! // Three alike that each require 3 us: response times would be 2, 3 and 4 us.
//! for _ in 0..2 {
//!     assert!(link.bound(demand).is_some_and(|d| d <= us(3)));
//!     link.reserve(demand, us(3));
//! }
//! assert_eq!(link.bound(demand), Some(us(4)));
//! ```

pub mod buffers;
mod d_order;
mod edf;
pub mod host;
pub mod route;

use lastmeter_base::Duration;

/// A channel's demand on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand {
    /// C: how long its longest message keeps the resource busy.
    pub cost: Duration,
    /// T: the least logical time between messages.
    pub interval: Duration,
}

/// The schedulability test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// By response times under fixed priorities.
    DOrder,
    /// By the demand of every interval: exact for earliest due date.
    Edf,
}

/// 1 in the fixed point of utilisations.
const ONE: u128 = 1 << 64;

/// Channels with the same bound and interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    /// d, in picoseconds.
    bound: u64,
    /// T, in picoseconds.
    interval: u64,
    /// Sum of their C, in picoseconds.
    cost: u64,
    /// Sum of their C / T, each rounded up, in 2^-64.
    share: u128,
    channels: u64,
    /// For D_Order, the slack at t = d below the classes above; see there.
    room: i128,
}

/// The reservations of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reservations {
    method: Method,
    /// C_p, in picoseconds.
    blocking: u64,
    /// In order of (d, T).
    classes: Vec<Class>,
    share: u128,
    /// For the exact test, a sum over the classes; see there.
    early: u128,
}

impl Reservations {
    /// No reservations yet, on a resource with non-preemptible sections of up to `blocking`.
    pub fn new(method: Method, blocking: Duration) -> Reservations {
        Reservations { method, blocking: blocking.as_ps(), classes: Vec::new(), share: 0, early: 0 }
    }

    /// The least bound that can be guaranteed to one more channel, at most its interval; `None` if
    /// there is none.
    pub fn bound(&self, demand: Demand) -> Option<Duration> {
        let new = class(demand)?;
        if self.share + new.share >= ONE {
            return None;
        }
        let bound = match self.method {
            Method::DOrder => d_order::bound(&self.classes, self.blocking, &new),
            Method::Edf => edf::bound(&self.classes, self.blocking, &new, (self.share, self.early)),
        };
        bound.filter(|&bound| bound <= new.interval).map(Duration::from_ps)
    }

    /// Reserves `bound` for a channel. A bound below that of [`Reservations::bound`] violates guarantees.
    /// Panics if the bound exceeds the interval, or the utilisation 1.
    pub fn reserve(&mut self, demand: Demand, bound: Duration) {
        assert!(bound <= demand.interval, "a bound beyond the interval");
        let new = class(demand).expect("an interval of no time has no bound");
        self.share += new.share;
        assert!(self.share < ONE, "more was reserved than there is");
        let key = (bound.as_ps(), new.interval);
        let at = self.find(key);
        match at {
            Ok(at) => {
                self.early -= edf::early(&self.classes[at]);
                self.classes[at].cost += new.cost;
                self.classes[at].share += new.share;
                self.classes[at].channels += 1;
                self.early += edf::early(&self.classes[at]);
                self.move_room(at, &new, -1);
            }
            Err(at) => {
                let mut class = Class { bound: bound.as_ps(), ..new };
                if self.method == Method::DOrder {
                    class.room = d_order::room(&self.classes[..at], self.blocking, &class);
                }
                self.early += edf::early(&class);
                self.classes.insert(at, class);
                self.move_room(at + 1, &new, -1);
            }
        }
    }

    /// A channel of the class at `from`, or above it, is added (`sign` -1) or removed (1).
    fn move_room(&mut self, from: usize, channel: &Class, sign: i128) {
        if self.method == Method::DOrder {
            for class in &mut self.classes[from..] {
                class.room += sign * d_order::taken(class, channel);
            }
        }
    }

    /// Releases what was reserved with the same arguments. Panics if it was not.
    pub fn release(&mut self, demand: Demand, bound: Duration) {
        let old = class(demand).expect("an interval of no time has no bound");
        let at = self.find((bound.as_ps(), old.interval)).expect("only a reservation is released");
        self.share -= old.share;
        self.early -= edf::early(&self.classes[at]);
        let class = &mut self.classes[at];
        class.cost -= old.cost;
        class.share -= old.share;
        class.channels -= 1;
        self.early += edf::early(&self.classes[at]);
        self.move_room(at, &old, 1);
        let class = &self.classes[at];
        if class.channels == 0 {
            assert!(class.cost == 0, "what was released is not what was reserved");
            self.classes.remove(at);
        }
    }

    /// Channels with a reservation.
    pub fn channels(&self) -> u64 {
        self.classes.iter().map(|class| class.channels).sum()
    }

    /// The reserved share of the resource, in 0..1.
    pub fn utilisation(&self) -> f64 {
        self.share as f64 / ONE as f64
    }

    fn find(&self, key: (u64, u64)) -> Result<usize, usize> {
        self.classes.binary_search_by_key(&key, |class| (class.bound, class.interval))
    }
}

/// One channel as a class of its own; `None` for an interval of no time.
fn class(demand: Demand) -> Option<Class> {
    let (cost, interval) = (demand.cost.as_ps(), demand.interval.as_ps());
    let share = (u128::from(cost) << 64).div_ceil(u128::from(interval).max(1));
    (interval > 0).then_some(Class { bound: interval, interval, cost, share, channels: 1, room: 0 })
}

/// `work` divided by what a utilisation of `share` leaves, rounded up: an upper bound on how long work takes
/// in competition with channels of that utilisation.
fn stretched(work: u128, share: u128) -> u128 {
    let left = ONE - share;
    // 64 bits of fraction beside up to 64 bits of picoseconds fill 128 bits exactly.
    match work < 1 << 63 {
        true => (work << 64).div_ceil(left),
        false => u128::MAX,
    }
}

#[cfg(test)]
mod tests;
