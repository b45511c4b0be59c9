//! What queueing theory says in closed form: the formulas alone, of plain numbers in seconds.

/// The mean wait of M/G/1, first come first served: customers arrive as a Poisson process of rate
/// `lambda`, and the time of service has these two moments.
///
/// Pollaczek 1930, Khinchin 1932; Kleinrock, Queueing Systems, Volume 1, 1975, §5.5 and 5.7. With a constant
/// service it is M/D/1.
///
/// ```
/// use lastmeter_judge::theory::formulas::{Moments, wait};
/// // Half loaded, a constant service of 1 s: half of what an exponential one has.
/// assert_eq!(wait(0.5, Moments::constant(1.0)), 0.5);
/// assert_eq!(wait(0.5, Moments { first: 1.0, second: 2.0 }), 1.0);
/// ```
pub fn wait(lambda: f64, service: Moments) -> f64 {
    lambda * service.second / (2.0 * (1.0 - lambda * service.first))
}

/// The mean of a time of service and of its square.
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

    /// Of several values, each with its share.
    pub fn mix(values: impl IntoIterator<Item = (f64, f64)>) -> Moments {
        values.into_iter().fold(Moments { first: 0.0, second: 0.0 }, |sum, (time, share)| Moments {
            first: sum.first + share * time,
            second: sum.second + share * time * time,
        })
    }
}

/// The share of the customers of M/M/1/K that find `room` others there, and are lost; `load` is the arrival
/// rate times the mean service.
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

/// The share of time with each number of customers: p(n) = p(0) load^n, which also holds at a load of one.
fn states(load: f64, room: u64) -> Vec<f64> {
    let weights: Vec<f64> = (0..=room).map(|n| load.powi(n as i32)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// The mean wait of Geo/D/1 in slots: at the beginning of each slot a customer arrives with probability
/// `arrival`, independently of all others, and is served for `service` whole slots, from that very
/// instant if nobody is before it. A customer who leaves at an instant is not met by one who arrives
/// then.
///
/// From E\[S(S-1)\] in the discrete formula of Pollaczek and Khinchin: Meisling, Discrete-Time Queuing Theory,
/// Operations Research 6(1), 1958; Takagi, Queueing Analysis, Volume 3, 1993. Two customers never
/// arrive at once, so with a service of one slot nobody waits.
///
/// ```
/// use lastmeter_judge::theory::formulas::wait_in_slots;
/// assert_eq!(wait_in_slots(0.9, 1.0), 0.0);
/// assert!((wait_in_slots(0.2, 4.0) - 6.0).abs() < 1e-12);
/// ```
pub fn wait_in_slots(arrival: f64, service: f64) -> f64 {
    arrival * service * (service - 1.0) / (2.0 * (1.0 - arrival * service))
}

/// The mean wait of class `of` under priorities that are not pre-emptive, the first class being served
/// first: Poisson arrivals, each class with its rate and its moments of service.
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

/// The mean time in which a job of M/G/1 under processor sharing has had `work` done: it depends on the
/// distribution of work through the load alone.
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

/// What circulates in a closed network.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// Customers that go round, per second.
    pub throughput: f64,
    /// How long one stays at each station, over all its visits in a round.
    pub stays: Vec<f64>,
}

/// Exact mean-value analysis of `window` customers and stations with exponential service, first come
/// first served; `demands` is how long each serves a customer in a round, over all visits.
///
/// A customer who arrives finds the network as it would be without it: Reiser and Lavenberg, Mean-Value Analysis
/// of Closed Multichain Queuing Networks, JACM 27(2), 1980.
///
/// ```
/// use lastmeter_judge::theory::formulas::closed;
/// // Two like stations: window / (window + 1) of the rate of one.
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

/// More than this a window does not carry, whatever the distributions of service: one round at a time for each
/// customer, and the slowest server without a pause. Where each server is visited once in a round and
/// all times are constant, exactly this.
///
/// Denning and Buzen, The Operational Analysis of Queueing Network Models, Computing Surveys 10(3), 1978; that it is
/// reached: Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992 (the greatest
/// mean weight of a circuit).
///
/// ```
/// use lastmeter_judge::theory::formulas::bound;
/// assert_eq!(bound(10.0, 2.0, 4), 0.4);
/// assert_eq!(bound(10.0, 2.0, 9), 0.5);
/// ```
pub fn bound(round: f64, slowest: f64, window: u64) -> f64 {
    (window as f64 / round).min(1.0 / slowest)
}
