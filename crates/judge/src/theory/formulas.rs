//! Closed formulas of queueing theory, of plain numbers in seconds.

/// The mean queueing delay of M/G/1, first come first served: Poisson arrivals at rate `lambda`, and service times
/// with these two moments.
///
/// Pollaczek 1930, Khinchin 1932; Kleinrock, Queueing Systems, Volume 1, 1975, §5.5 and 5.7. With constant service
/// it is M/D/1.
///
/// ```
/// use lastmeter_judge::theory::formulas::{Moments, wait};
/// // At half load, a constant service of 1 s gives half the delay of an exponential one.
/// assert_eq!(wait(0.5, Moments::constant(1.0)), 0.5);
/// assert_eq!(wait(0.5, Moments { first: 1.0, second: 2.0 }), 1.0);
/// ```
pub fn wait(lambda: f64, service: Moments) -> f64 {
    lambda * service.second / (2.0 * (1.0 - lambda * service.first))
}

/// The mean of a service time and of its square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// The mean.
    pub first: f64,
    /// The mean square.
    pub second: f64,
}

impl Moments {
    /// Of a constant.
    pub fn constant(time: f64) -> Moments {
        Moments { first: time, second: time * time }
    }

    /// Of several values, each with its probability.
    pub fn mix(values: impl IntoIterator<Item = (f64, f64)>) -> Moments {
        values.into_iter().fold(Moments { first: 0.0, second: 0.0 }, |sum, (time, share)| Moments {
            first: sum.first + share * time,
            second: sum.second + share * time * time,
        })
    }
}

/// The probability that a customer of M/M/1/K finds `room` others there and is lost; `load` is the arrival rate
/// times the mean service time.
///
/// Kleinrock, Volume 1, 1975, §3.6.
///
/// ```
/// assert_eq!(lastmeter_judge::theory::formulas::loss(1.0, 4), 0.2);
/// assert!((lastmeter_judge::theory::formulas::loss(0.5, 1) - 1.0 / 3.0).abs() < 1e-15);
/// ```
pub fn loss(load: f64, room: u64) -> f64 {
    states(load, room).last().copied().unwrap_or(1.0)
}

/// The mean number of customers in M/M/1/K.
///
/// ```
/// assert_eq!(lastmeter_judge::theory::formulas::number(1.0, 4), 2.0);
/// ```
pub fn number(load: f64, room: u64) -> f64 {
    states(load, room).iter().enumerate().map(|(customers, share)| customers as f64 * share).sum()
}

/// The probability of each number of customers: p(n) = p(0) load^n, which also holds at a load of one.
fn states(load: f64, room: u64) -> Vec<f64> {
    let weights: Vec<f64> = (0..=room).map(|n| load.powi(n as i32)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// The mean queueing delay of Geo/D/1 in slots: at the start of each slot a customer arrives with probability
/// `arrival`, independently of all others, and is served for `service` whole slots, at once if the server is idle. A
/// customer that arrives at the instant of a departure does not see the departing one.
///
/// From E\[S(S-1)\] in the discrete formula of Pollaczek and Khinchin: Meisling, Discrete-Time Queuing Theory,
/// Operations Research 6(1), 1958; Takagi, Queueing Analysis, Volume 3, 1993. Two customers never arrive at once, so
/// with a service of one slot there is no queueing.
///
/// ```
/// use lastmeter_judge::theory::formulas::wait_in_slots;
/// assert_eq!(wait_in_slots(0.9, 1.0), 0.0);
/// assert!((wait_in_slots(0.2, 4.0) - 6.0).abs() < 1e-12);
/// ```
pub fn wait_in_slots(arrival: f64, service: f64) -> f64 {
    arrival * service * (service - 1.0) / (2.0 * (1.0 - arrival * service))
}

/// The mean queueing delay of class `of` under non-pre-emptive priorities, the first class having the highest:
/// Poisson arrivals, each class with its rate and its moments of service.
///
/// Cobham, Priority Assignment in Waiting Line Problems, Operations Research 2(1), 1954; Kleinrock,
/// Volume 2, 1976, §3.6.
///
/// ```
/// use lastmeter_judge::theory::formulas::{Moments, wait, wait_of_class};
/// let all = (0.5, Moments::constant(1.0));
/// assert_eq!(wait_of_class(&[all], 0), wait(0.5, Moments::constant(1.0)));
/// ```
pub fn wait_of_class(classes: &[(f64, Moments)], of: usize) -> f64 {
    let residual: f64 = classes.iter().map(|(lambda, service)| lambda * service.second / 2.0).sum();
    let load = |classes: &[(f64, Moments)]| -> f64 {
        classes.iter().map(|(lambda, service)| lambda * service.first).sum()
    };
    residual / ((1.0 - load(&classes[..of])) * (1.0 - load(&classes[..=of])))
}

/// The mean time in which a job of M/G/1 under processor sharing completes `work`: it depends on the distribution of
/// work only through the load.
///
/// Kleinrock, Time-shared Systems: A Theoretical Treatment, JACM 14(2), 1967; for general work Sakata, Noguchi
/// and Oizumi, Operations Research 19(2), 1971; Kleinrock, Volume 2, 1976, chapter 4.
///
/// ```
/// assert_eq!(lastmeter_judge::theory::formulas::shared(3.0, 0.5), 6.0);
/// ```
pub fn shared(work: f64, load: f64) -> f64 {
    work / (1.0 - load)
}

/// The result for a closed network.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// Cycles per second of all customers.
    pub throughput: f64,
    /// Mean time of a customer at each station, over all its visits in a cycle.
    pub stays: Vec<f64>,
}

/// Exact mean-value analysis of `window` customers and stations with exponential service, first come first served;
/// `demands` is the service time of a customer at each station per cycle, over all visits.
///
/// An arriving customer sees the network as it would be without that customer: Reiser and Lavenberg, Mean-Value
/// Analysis of Closed Multichain Queuing Networks, JACM 27(2), 1980.
///
/// ```
/// use lastmeter_judge::theory::formulas::closed;
/// // Two equal stations: window / (window + 1) of the rate of one.
/// assert!((closed(&[1.0, 1.0], 3).throughput - 0.75).abs() < 1e-15);
/// assert_eq!(closed(&[1.0, 2.0, 5.0], 1).throughput, 1.0 / 8.0);
/// ```
pub fn closed(demands: &[f64], window: u64) -> Closed {
    let mut queues = vec![0.0; demands.len()];
    let mut found = Closed { throughput: 0.0, stays: demands.to_vec() };
    for customers in 1..=window {
        found.stays =
            demands.iter().zip(&queues).map(|(demand, queue)| demand * (1.0 + queue)).collect();
        found.throughput = customers as f64 / found.stays.iter().sum::<f64>();
        queues = found.stays.iter().map(|stay| found.throughput * stay).collect();
    }
    found
}

/// The highest throughput of a window, for any distributions of service: each customer does one cycle at a time, and
/// the slowest server never idles. If each server is visited once per cycle and all times are constant, the
/// throughput itself.
///
/// Denning and Buzen, The Operational Analysis of Queueing Network Models, Computing Surveys 10(3), 1978; that the
/// bound is reached: Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992 (the greatest mean
/// weight of a circuit).
///
/// ```
/// use lastmeter_judge::theory::formulas::bound;
/// assert_eq!(bound(10.0, 2.0, 4), 0.4);
/// assert_eq!(bound(10.0, 2.0, 9), 0.5);
/// ```
pub fn bound(round: f64, slowest: f64, window: u64) -> f64 {
    (window as f64 / round).min(1.0 / slowest)
}
