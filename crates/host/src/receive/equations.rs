//! Eqs 7.1 to 7.5: the receive capacity of a host, computed from its costs.
//!
//! Source: Indiresan 1997, §7.3 and §7.4.2. Rates are packets per second.

use super::Costs;
use super::kind::DEFAULT;
use lastmeter_base::Duration;

/// Table 7.2 with `Load = 1000`, `C_ri` undivided.
///
/// ```
/// use lastmeter_host::receive::equations::{TABLE_7_2, interrupt, livelock};
/// assert_eq!(interrupt(&TABLE_7_2).round(), 1245.0);
/// assert_eq!(livelock(&TABLE_7_2).round(), 2193.0);
/// ```
pub const TABLE_7_2: Costs = Costs {
    accept: Duration::ZERO,
    demultiplex: Duration::ZERO,
    protocol: Duration::from_ps(DEFAULT.accept.as_ps() + DEFAULT.protocol.as_ps()),
    ..DEFAULT
};

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn receive(costs: &Costs) -> f64 {
    seconds(costs.accept + costs.protocol)
}

/// Eq 7.1: the maximum loss-free rate with an interrupt for each command (E-109).
pub fn interrupt(costs: &Costs) -> f64 {
    1.0 / (2.0 * seconds(costs.interrupt) + receive(costs) + seconds(costs.application))
}

/// Eq 7.2: the rate at which packets are processed beyond saturation, at the given rate of arrivals (E-110).
pub fn processed(costs: &Costs, arrivals: f64) -> f64 {
    let left = 1.0 - arrivals * (2.0 * seconds(costs.interrupt) + receive(costs));
    left.max(0.0) / seconds(costs.application)
}

/// §7.3.2: the rate of arrivals at which no packets are processed any more (E-110).
pub fn livelock(costs: &Costs) -> f64 {
    1.0 / (2.0 * seconds(costs.interrupt) + receive(costs))
}

/// Eq 7.3: the maximum rate with continuous polling of `quota` packets (E-112).
pub fn polling(costs: &Costs, quota: u64) -> f64 {
    let switch = seconds(costs.switch) / quota as f64;
    1.0 / (receive(costs) + seconds(costs.application) + switch)
}

/// Eq 7.4: the maximum rate with `quota` commands every `period` (E-114).
pub fn timed(costs: &Costs, quota: u64, period: Duration) -> f64 {
    let period = seconds(period);
    let fetched = quota as f64 / 2.0 / period;
    let overhead = seconds(costs.interrupt + costs.switch) / period;
    fetched.min((1.0 - overhead) / (receive(costs) + seconds(costs.application)))
}

/// §7.4.2: the rate guaranteed to an interface, `Q / (2 I_max)` (E-121).
pub fn guarantee(quota: u64, period_max: Duration) -> f64 {
    quota as f64 / 2.0 / seconds(period_max)
}

/// Eq 7.5: whether a host of this capacity, in packets per second, can keep all guarantees (E-121).
pub fn admissible(capacity: f64, guarantees: &[f64]) -> bool {
    guarantees.iter().sum::<f64>() <= capacity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_109_e_110_interrupts_by_hand() {
        let load_1 = Costs { application: Duration::from_us(73), ..TABLE_7_2 };
        // 1 / (56 + 400 + 347), 1 / (56 + 400 + 73) and 1 / 456 us.
        assert_eq!(interrupt(&TABLE_7_2), 1.0 / 803e-6);
        assert!((interrupt(&load_1) - 1e6 / 529.0).abs() < 1e-9);
        assert!((livelock(&TABLE_7_2) - 1e6 / 456.0).abs() < 1e-9);
        // At saturation, Eq 7.2 gives the same as Eq 7.1.
        let rate = interrupt(&TABLE_7_2);
        assert!((processed(&TABLE_7_2, rate) - rate).abs() < 1e-6);
        assert_eq!(processed(&TABLE_7_2, 3000.0), 0.0);
    }

    #[test]
    fn e_112_e_114_polling_as_printed() {
        assert_eq!(polling(&TABLE_7_2, 1).floor(), 1303.0);
        assert_eq!(polling(&TABLE_7_2, 8).floor(), 1334.0);
        let ms = Duration::from_ms;
        assert_eq!(timed(&TABLE_7_2, 8, ms(1)).floor(), 1274.0);
        assert_eq!(timed(&TABLE_7_2, 8, ms(2)).floor(), 1306.0);
        // Too small a quota starves it: Q / 2 packets per period.
        assert_eq!(timed(&TABLE_7_2, 2, ms(1)), 1000.0);
        assert_eq!(timed(&TABLE_7_2, 5, ms(2)), 1250.0);
    }

    #[test]
    fn e_121_a_quota_of_12_guarantees_300_packets_per_second() {
        assert_eq!(guarantee(12, Duration::from_ms(20)), 300.0);
        assert!(admissible(1500.0, &[300.0, 1200.0]) && !admissible(1500.0, &[301.0, 1200.0]));
    }
}
