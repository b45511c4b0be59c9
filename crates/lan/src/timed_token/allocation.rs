//! Allocation of synchronous time in a rotation, and admission control.
//!
//! ```text
//! tau = ring latency + token + at most one asynchronous frame
//!
//! admitted if   sum of SA <= TTRT - tau          otherwise the token may be later than 2 TTRT
//!               P >= 2 TTRT                      otherwise a message may see no token in time
//!               (floor(P/TTRT) - 1) SA >= C      otherwise a message is not sent within its period
//! ```
//!
//! | scheme | SA of a station that sends C in every P; U is the sum of C/P |
//! |---|---|
//! | full length | C |
//! | proportional | C/P (TTRT - tau) |
//! | equal partition | (TTRT - tau)/n |
//! | normalised proportional | C/P/U (TTRT - tau) |
//! | local | C/(floor(P/TTRT) - 1) |
//!
//! The last two admit every set of demands with U of at most a third of (TTRT - tau)/TTRT; `local` needs no
//! knowledge of other stations.
//!
//! Source: Agrawal, Chen, Zhao & Davari, Guaranteeing synchronous message deadlines with the timed
//! token protocol, ICDCS 1992 (schemes); Chen, Agrawal & Zhao, 1992 (service of a rotation);
//! Johnson, Proof that timing requirements of the FDDI token ring protocol are satisfied, IEEE
//! Trans. Comm. 35(6), 1987 (2 TTRT). Rounding: each SA is rounded down to a picosecond if a budget is shared, and
//! up if a demand has to be met.

use lastmeter_base::Duration;

/// Demand of a station: `send` of line time in every `period`, by the end of the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// C.
    pub send: Duration,
    /// P; the deadline is the end of the period.
    pub period: Duration,
}

/// How synchronous time is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The whole message in one visit.
    FullLength,
    /// In proportion to the station's utilisation.
    Proportional,
    /// The same for each.
    EqualPartition,
    /// In proportion to utilisation, using the whole budget.
    NormalisedProportional,
    /// From the station's own demand alone.
    Local,
}

/// All schemes.
pub const SCHEMES: [Scheme; 5] = [
    Scheme::FullLength,
    Scheme::Proportional,
    Scheme::EqualPartition,
    Scheme::NormalisedProportional,
    Scheme::Local,
];

/// The time budget of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// TTRT.
    pub target: Duration,
    /// tau: overhead that cannot be allocated.
    pub overhead: Duration,
}

/// Why a set of demands is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The ring's own overhead uses up the whole target.
    NoTime,
    /// This station's period is shorter than two rotations.
    Period(usize),
    /// This station's allotment is less than it needs in a period.
    Service(usize),
    /// The allotments exceed the budget by this much.
    Sum(Duration),
}

impl Budget {
    /// The total that all stations may be allotted, TTRT - tau.
    pub fn synchronous(&self) -> Duration {
        self.target.saturating_sub(self.overhead)
    }

    /// Token visits guaranteed in a period: floor(P/TTRT) - 1.
    fn visits(&self, period: Duration) -> u64 {
        (period.as_ps() / self.target.as_ps()).saturating_sub(1)
    }

    /// The allotments of a scheme, whether or not they are admitted. `None` if a period is too short for any.
    pub fn share(&self, scheme: Scheme, demands: &[Demand]) -> Option<Vec<Duration>> {
        let whole = u128::from(self.synchronous().as_ps());
        // C/P as whole numbers of 2^-64.
        let share = |demand: &Demand| {
            (u128::from(demand.send.as_ps()) << 64) / u128::from(demand.period.as_ps().max(1))
        };
        let total: u128 = demands.iter().map(share).sum();
        let part = |numerator: u128, denominator: u128| {
            // Both scaled down so that the product fits.
            let shift = (128 - numerator.leading_zeros()).saturating_sub(64);
            let (numerator, denominator) = (numerator >> shift, (denominator >> shift).max(1));
            Duration::from_ps(u64::try_from(whole * numerator / denominator).unwrap_or(u64::MAX))
        };
        demands
            .iter()
            .map(|demand| match scheme {
                Scheme::FullLength => Some(demand.send),
                Scheme::Proportional => Some(part(share(demand), 1 << 64)),
                Scheme::EqualPartition => Some(part(1, demands.len() as u128)),
                Scheme::NormalisedProportional => Some(part(share(demand), total.max(1))),
                Scheme::Local => match self.visits(demand.period) {
                    0 => None,
                    visits => Some(demand.send.scale_ceil(1, visits)),
                },
            })
            .collect()
    }

    /// Whether these allotments keep the token within 2 TTRT and meet the demands.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn admit(&self, allotments: &[Duration], demands: &[Demand]) -> Result<(), Refusal> {
        if self.overhead >= self.target {
            return Err(Refusal::NoTime);
        }
        let sum: u128 = allotments.iter().map(|allotment| u128::from(allotment.as_ps())).sum();
        let most = u128::from(self.synchronous().as_ps());
        if sum > most {
            let excess = u64::try_from(sum - most).unwrap_or(u64::MAX);
            return Err(Refusal::Sum(Duration::from_ps(excess)));
        }
        for (station, (demand, allotment)) in demands.iter().zip(allotments).enumerate() {
            let visits = self.visits(demand.period);
            if visits == 0 {
                return Err(Refusal::Period(station));
            }
            let given = u128::from(visits) * u128::from(allotment.as_ps());
            if given < u128::from(demand.send.as_ps()) {
                return Err(Refusal::Service(station));
            }
        }
        Ok(())
    }

    /// Allocates, then admits or refuses.
    ///
    /// # Errors
    /// As [`Budget::admit`].
    pub fn allocate(&self, scheme: Scheme, demands: &[Demand]) -> Result<Vec<Duration>, Refusal> {
        let Some(allotments) = self.share(scheme, demands) else {
            let short = |demand: &Demand| self.visits(demand.period) == 0;
            return Err(Refusal::Period(demands.iter().position(short).unwrap_or(0)));
        };
        self.admit(&allotments, demands).map(|()| allotments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: fn(u64) -> Duration = Duration::from_us;
    /// TTRT 1 ms; 21 us of ring latency and one frame of 546 us.
    const JETSTREAM: Budget = Budget { target: US_1000, overhead: Duration::from_us(567) };
    const US_1000: Duration = Duration::from_us(1000);

    #[test]
    fn j_14_each_scheme_allocates_by_its_formula() {
        let demands = [
            Demand { send: US(100), period: US(4000) },
            Demand { send: US(100), period: US(10_000) },
        ];
        let share = |scheme| JETSTREAM.share(scheme, &demands).unwrap();
        assert_eq!(share(Scheme::FullLength), [US(100), US(100)]);
        // 433 us x 0.025 and x 0.01, rounded down.
        assert_eq!(
            share(Scheme::Proportional)[0],
            Duration::from_ns(10_825) - Duration::from_ps(1)
        );
        assert_eq!(share(Scheme::EqualPartition), [Duration::from_ns(216_500); 2]);
        let normalised = share(Scheme::NormalisedProportional);
        assert!(normalised[0].as_ps().abs_diff(433_000_000 * 5 / 7) <= 1);
        assert_eq!(share(Scheme::Local)[0].as_ps(), 100_000_000u64.div_ceil(3));
        assert_eq!(JETSTREAM.allocate(Scheme::Proportional, &demands), Err(Refusal::Service(0)));
        assert!(JETSTREAM.allocate(Scheme::Local, &demands).is_ok());
    }

    #[test]
    fn a_demand_that_cannot_be_met_is_refused_with_a_reason() {
        let demand = |send, period| Demand { send: US(send), period: US(period) };
        let refused =
            |demands: &[Demand]| JETSTREAM.allocate(Scheme::FullLength, demands).unwrap_err();
        assert_eq!(refused(&[demand(300, 5000), demand(200, 5000)]), Refusal::Sum(US(67)));
        assert_eq!(refused(&[demand(10, 5000), demand(10, 1999)]), Refusal::Period(1));
        let none = Budget { overhead: US(1000), ..JETSTREAM };
        assert_eq!(none.allocate(Scheme::Local, &[demand(1, 9000)]), Err(Refusal::NoTime));
    }

    proptest! {
        #[test]
        fn up_to_a_third_of_the_budget_is_always_admitted(
            weights in prop::collection::vec(1u64..100, 1..16),
            periods in prop::collection::vec(2_000u64..50_000, 16),
        ) {
            // Demands with a total utilisation of a third of the budget.
            let total: u64 = weights.iter().sum();
            let third = JETSTREAM.synchronous().as_ps() / 3;
            let demands: Vec<Demand> = weights.iter().zip(&periods).map(|(&weight, &period)| {
                let budget = third as f64 / US_1000.as_ps() as f64;
                let utilisation = budget * weight as f64 / total as f64;
                let period = US(period);
                let send = Duration::from_ps((period.as_ps() as f64 * utilisation) as u64);
                Demand { send, period }
            }).collect();
            for scheme in [Scheme::NormalisedProportional, Scheme::Local] {
                prop_assert!(JETSTREAM.allocate(scheme, &demands).is_ok(), "{:?}", scheme);
            }
        }
    }
}
