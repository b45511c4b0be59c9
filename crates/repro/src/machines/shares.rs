//! Reservations where paths meet: shares of a channel by packet length, and contracted rates.
//!
//! Worms of several saturating senders take a channel in turn, so each sender's share is in proportion to its
//! packet length: [`lengths`]. If every sender keeps to a rate, rates can be booked on the channels of a path:
//! [`Rates`]. Neither is a guarantee. A blocked worm holds the channels behind it, and one sender that breaks its
//! contract takes away what others were promised: both need coordination of all senders (N-66, N-77).
//!
//! Source: Touch et al., §2 ("this requires global coordination, and is difficult to guarantee") and §4.a,
//! after Kwan et al., Best-Effort Bandwidth Reservation in High Speed LANs using Wormhole Routing, ICCCN
//! 1996, whose algorithm is not printed there: the rules here are ours.

use lastmeter_base::{Bytes, Rate};
use lastmeter_lan::wormhole::routes::Path;
use lastmeter_lan::wormhole::topology::Channel;
use std::collections::BTreeMap;

/// Packet lengths that give saturating senders these shares of one channel: the largest share gets the longest
/// packets. `None` if there is no share, or one is too small for a packet of a byte.
///
/// ```
/// use lastmeter_base::Bytes;
/// use lastmeter_repro::machines::shares::lengths;
/// assert_eq!(lengths(&[4, 1, 2], Bytes(8192)), Some([8192, 2048, 4096].map(Bytes).into()));
/// assert_eq!(lengths(&[100_000, 1], Bytes(8192)), None);
/// ```
pub fn lengths(shares: &[u64], longest: Bytes) -> Option<Vec<Bytes>> {
    let most = u128::from(*shares.iter().max()?);
    let length = |&share: &u64| {
        let len = (u128::from(longest.0) * u128::from(share)).checked_div(most)?;
        (len > 0).then_some(Bytes(len as u64))
    };
    shares.iter().map(length).collect()
}

/// Rates booked on channels.
///
/// ```
/// use lastmeter_base::Rate;
/// use lastmeter_repro::machines::shares::Rates;
/// let mut rates = Rates::new(Rate::from_mbit(320));
/// let (a, b): (&[usize], &[usize]) = (&[0, 4, 7], &[1, 4, 9]);
/// assert_eq!(rates.admit(&a.into(), Rate::from_mbit(200)), Ok(()));
/// let refused = rates.admit(&b.into(), Rate::from_mbit(200)).unwrap_err();
/// assert_eq!((refused.channel, refused.left), (4, Some(Rate::from_mbit(120))));
/// ```
#[derive(Clone, Debug)]
pub struct Rates {
    /// The bookable rate of a channel.
    bookable: Rate,
    booked: BTreeMap<Channel, Rate>,
}

/// Why a rate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overbooked {
    /// The first channel with too little left.
    pub channel: Channel,
    /// The rate left on it, if any.
    pub left: Option<Rate>,
}

impl Rates {
    /// Nothing booked yet, and this rate bookable on each channel.
    pub fn new(bookable: Rate) -> Rates {
        Rates { bookable, booked: BTreeMap::new() }
    }

    /// Books a rate on all channels of a path, or on none.
    ///
    /// # Errors
    /// A channel has too little left.
    pub fn admit(&mut self, path: &Path, rate: Rate) -> Result<(), Overbooked> {
        let left = |channel: &Channel| {
            let booked = self.booked.get(channel).map_or(0, |booked| booked.as_bits());
            self.bookable.as_bits() - booked
        };
        if let Some(&channel) = path.iter().find(|channel| left(channel) < rate.as_bits()) {
            let left = left(&channel);
            return Err(Overbooked { channel, left: (left > 0).then(|| Rate::from_bits(left)) });
        }
        for &channel in path.iter() {
            let booked = self.booked.get(&channel).map_or(0, |booked| booked.as_bits());
            self.booked.insert(channel, Rate::from_bits(booked + rate.as_bits()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_channel_is_ever_booked_beyond_what_may_be(
            asked in prop::collection::vec((prop::collection::btree_set(0usize..12, 1..5), 1u64..200), 1..40),
        ) {
            let mut rates = Rates::new(Rate::from_mbit(320));
            let mut sums = [0u64; 12];
            for (path, mbit) in asked {
                let path: Path = path.into_iter().collect::<Vec<usize>>().as_slice().into();
                let fits = path.iter().all(|&channel| sums[channel] + mbit <= 320);
                prop_assert_eq!(rates.admit(&path, Rate::from_mbit(mbit)).is_ok(), fits);
                if fits {
                    path.iter().for_each(|&channel| sums[channel] += mbit);
                }
            }
        }
    }
}
