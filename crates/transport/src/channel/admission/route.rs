//! Admission along a route with central knowledge of every link: the forward and the reverse phase in one
//! call (Fig 3.3).
//!
//! [`super::super::manager`] does the same with messages between nodes that know only their own links.
//!
//! ```
//! use lastmeter_base::{Bytes, Duration, Rate};
//! use lastmeter_transport::channel::admission::{Method, route};
//! use lastmeter_transport::channel::contract::{Contract, Link};
//! let contract = Contract {
//!     message_max: Bytes(1250), interval_min: Duration::from_ms(10), burst_max: 1,
//!     packet_max: Bytes(1250), deadline: Duration::from_ms(9),
//! };
//! let link = Link {
//!     rate: Rate::from_mbit(10), per_packet: Duration::ZERO, packet_max: Bytes(1250), outstanding: 1,
//!     propagation: Duration::from_ms(1), horizon: Duration::ZERO, skew: Duration::ZERO,
//! };
//! let mut links = [(link, Method::Edf), (link, Method::Edf)].map(route::Admission::from);
//! // 2 ms each (its own 1 and 1 of blocking) and 1 of propagation; the 3 ms left are shared.
//! let bounds = route::establish(&mut links, &[0, 1], &contract);
//! assert_eq!(bounds, Ok(vec![Duration::from_us(3500); 2]));
//! ```

use super::super::contract::{Contract, Link};
use super::{Demand, Method, Reservations};
use lastmeter_base::Duration;

/// A link and its reservations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Admission {
    /// The link.
    pub link: Link,
    /// Its reservations.
    pub reservations: Reservations,
}

impl From<(Link, Method)> for Admission {
    fn from((link, method): (Link, Method)) -> Admission {
        Admission { link, reservations: Reservations::new(method, link.blocking()) }
    }
}

impl Admission {
    /// A channel's demand on this link.
    pub fn demand(&self, contract: &Contract) -> Demand {
        Demand { cost: self.link.cost(contract), interval: contract.interval_min }
    }
    /// The part of the end-to-end deadline that this link takes in addition to the local bound.
    pub fn fixed(&self) -> Duration {
        self.link.propagation + self.link.skew
    }
    /// The least local bound for a channel.
    pub fn bound(&self, contract: &Contract) -> Option<Duration> {
        match self.is_too_long(contract) {
            false => self.reservations.bound(self.demand(contract)),
            true => None,
        }
    }
    /// Whether its packets would block others for longer than assumed when those were admitted.
    fn is_too_long(&self, contract: &Contract) -> bool {
        contract.packet_max > self.link.packet_max
    }
}

/// Why a link cannot admit a channel. `at` is the link's index in the route, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The channel's packets are longer than this link's longest.
    TooLong {
        /// Which link.
        at: usize,
    },
    /// The link can guarantee no bound up to the channel's interval.
    Full {
        /// Which link.
        at: usize,
    },
    /// It can guarantee `least`, including propagation and skew, and only `left` of the deadline remains.
    Late {
        /// Which link.
        at: usize,
        /// The least bound that it can guarantee.
        least: Duration,
        /// What is left of the deadline there.
        left: Duration,
    },
}

/// A local bound plus an equal share, for each link, of the slack in the deadline; at most the interval.
pub fn with_slack(bound: Duration, slack: Duration, links: u64, interval: Duration) -> Duration {
    (bound + slack / links.max(1)).min(interval.max(bound))
}

/// Reserves on every link of `route`, or on none: the local bounds in order.
///
/// # Errors
/// The first link that cannot, and why.
pub fn establish(
    links: &mut [Admission],
    route: &[usize],
    contract: &Contract,
) -> Result<Vec<Duration>, Refusal> {
    let mut left = contract.deadline;
    let mut bounds = Vec::with_capacity(route.len());
    for (at, &link) in route.iter().enumerate() {
        let link = &links[link];
        if link.is_too_long(contract) {
            return Err(Refusal::TooLong { at });
        }
        let bound = link.bound(contract).ok_or(Refusal::Full { at })?;
        let least = bound + link.fixed();
        if least > left {
            return Err(Refusal::Late { at, least, left });
        }
        left = left - least;
        bounds.push(bound);
    }
    for (bound, &at) in bounds.iter_mut().zip(route) {
        *bound = with_slack(*bound, left, route.len() as u64, contract.interval_min);
        let demand = links[at].demand(contract);
        links[at].reservations.reserve(demand, *bound);
    }
    Ok(bounds)
}

/// Releases what [`establish`] reserved.
pub fn release(links: &mut [Admission], route: &[usize], contract: &Contract, bounds: &[Duration]) {
    for (&at, &bound) in route.iter().zip(bounds) {
        let demand = links[at].demand(contract);
        links[at].reservations.release(demand, bound);
    }
}
