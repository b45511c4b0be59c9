//! Policing: what happens to messages in excess of the contract (E-26), and to those that find no buffer.
//!
//! ```text
//! message --> logical arrival --> room for its packets? --> scheduler
//!                                   | no: drop the rest of it | wait | relax
//! ```
//!
//! | Parameter | Unit    | Default | Meaning                                                       |
//! |-----------|---------|---------|---------------------------------------------------------------|
//! | `slots`   | packets | -       | packets of this channel that may wait at this link            |
//! | `excess`  | -       | drop    | what to do with a message that exceeds them                   |
//!
//! - **Drop**: packets that find a slot are kept; from the first that finds none, the rest of the message
//!   is dropped (§3.5.1). The next message may use what a truncated one left of its logical arrival, while
//!   that is still in the future: so excess costs a channel no more than the excess.
//! - **Delay**: the message waits at its source until all its packets find slots.
//! - **Relax**: it continues beyond the slots. Its logical time is later by its own excess, so it waits
//!   longer downstream, and only its own channel pays.
//!
//! Source: Indiresan 1997, §3.2.4, §3.5.1.
//!
//! ```
//! use lastmeter_base::{Duration, Time};
//! use lastmeter_transport::channel::policing::{Excess, Police, Verdict};
//! let mut police = Police::new(Duration::from_ms(10), 6, Excess::Drop);
//! let logical = Time::START;
//! assert_eq!(police.message(Time::START, 4), Verdict::Enter { logical, packets: 4 });
//! // Two slots are left: two packets enter, two are dropped.
//! let logical = logical + Duration::from_ms(10);
//! assert_eq!(police.message(Time::START, 4), Verdict::Enter { logical, packets: 2 });
//! assert_eq!(police.message(Time::START, 4), Verdict::Drop);
//! ```

use super::arrival::LogicalArrivals;
use lastmeter_base::{Duration, Time};

/// What happens to a message that exceeds its channel's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Excess {
    /// It is dropped, from the first packet that finds no slot.
    Drop,
    /// It waits at its source.
    Delay,
    /// It continues, with a later logical time.
    Relax,
}

/// The decision on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its first `packets` packets enter with this logical arrival; the others are dropped.
    Enter {
        /// l.
        logical: Time,
        /// How many enter, at least one.
        packets: u64,
    },
    /// None enters. It has no logical arrival, so it costs the channel's later messages nothing.
    Drop,
    /// Offer it again when slots are freed.
    Wait,
}

/// The policer of one channel at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Police {
    arrivals: LogicalArrivals,
    slots: u64,
    held: u64,
    excess: Excess,
    /// A logical arrival at which fewer packets entered than its message had, and the difference.
    spare: Option<(Time, u64)>,
}

impl Police {
    /// Of a channel with this I_min and this many slots.
    pub fn new(interval: Duration, slots: u64, excess: Excess) -> Police {
        Police { arrivals: LogicalArrivals::new(interval), slots, held: 0, excess, spare: None }
    }

    /// A message of `packets`, at least one, arrives at `now`.
    pub fn message(&mut self, now: Time, packets: u64) -> Verdict {
        let packets = packets.max(1);
        let free = self.slots.saturating_sub(self.held);
        let packets = match self.excess {
            Excess::Relax => packets,
            Excess::Delay if free < packets.min(self.slots) => return Verdict::Wait,
            Excess::Drop | Excess::Delay if free == 0 => return Verdict::Drop,
            Excess::Drop | Excess::Delay => {
                if let Some((logical, spare)) = self.spare.filter(|&(logical, _)| logical > now) {
                    let packets = packets.min(free).min(spare);
                    self.held += packets;
                    self.spare = (spare > packets).then(|| (logical, spare - packets));
                    return Verdict::Enter { logical, packets };
                }
                if free < packets {
                    self.spare = Some((self.arrivals.peek(now), packets - free));
                }
                packets.min(free)
            }
        };
        self.held += packets;
        Verdict::Enter { logical: self.arrivals.arrive(now), packets }
    }

    /// A packet of this channel has left its slot.
    pub fn left(&mut self) {
        self.held = self.held.checked_sub(1).expect("only what entered leaves");
    }

    /// Packets in slots.
    pub fn held(&self) -> u64 {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_26_each_policy_does_what_it_says() {
        let ms = Duration::from_ms;
        let at = |n| Time::START + ms(n);
        let mut delay = Police::new(ms(10), 4, Excess::Delay);
        assert_eq!(delay.message(at(0), 4), Verdict::Enter { logical: at(0), packets: 4 });
        assert_eq!(delay.message(at(0), 4), Verdict::Wait);
        (0..4).for_each(|_| delay.left());
        assert_eq!(delay.message(at(30), 4), Verdict::Enter { logical: at(30), packets: 4 });

        let mut relax = Police::new(ms(10), 4, Excess::Relax);
        for n in 0..5 {
            let logical = at(10 * n);
            assert_eq!(relax.message(at(0), 4), Verdict::Enter { logical, packets: 4 });
        }
        assert_eq!(relax.held(), 20);

        let mut drop = Police::new(ms(10), 4, Excess::Drop);
        assert_eq!(drop.message(at(0), 6), Verdict::Enter { logical: at(0), packets: 4 });
        assert_eq!(drop.message(at(0), 1), Verdict::Drop);
        drop.left();
        // The dropped message has not moved logical time; the cut one's is past.
        assert_eq!(drop.message(at(1), 3), Verdict::Enter { logical: at(10), packets: 1 });
        (0..3).for_each(|_| drop.left());
        // Two packets of the message at 10 ms did not enter; these may take their place.
        assert_eq!(drop.message(at(2), 4), Verdict::Enter { logical: at(10), packets: 2 });
    }
}
