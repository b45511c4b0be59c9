//! What can be emulated on a platform slower than the hardware being emulated (E-49, E-51, E-53 to E-55).
//!
//! ```text
//! node 1 --[header]--+                        T_m - T_h
//! node 2 --[header]--+== one I/O bus ==> --[ pure delay ]--> received
//! ```
//!
//! Nodes that share a bus move only headers over it. A delay makes up the rest of the message's time on the
//! emulated network; it occupies no resource, so nodes do not wait for each other. And processors appear faster by
//! `C_sf` if everything else is slowed down.
//!
//! Source: Indiresan 1997, §4.3.5, §4.4.1, §4.4.2, Eqs 4.1 and 4.2.

use crate::resource::{Discipline, Job, Options, Priority, Resource};
use lastmeter_base::{Duration, StageId, Time};
use lastmeter_engine::ResourceId;

/// What remains of a message's time on the network after its header has crossed the bus; `None` if the header
/// alone takes longer, because this network is then too fast for this bus.
///
/// ```
/// use lastmeter_base::Duration;
/// use lastmeter_host::adapter::emulation::residual;
/// let (header, message) = (Duration::from_us(2), Duration::from_us(33));
/// assert_eq!(residual(header, message), Some(Duration::from_us(31)));
/// assert_eq!(residual(message, header), None);
/// ```
pub fn residual(header: Duration, message: Duration) -> Option<Duration> {
    (header <= message).then(|| message - header)
}

/// Eqs 4.1 and 4.2: the share of `delay` in an operation that also takes `processing`, on a processor `speed_up`
/// times as fast (1 for Eq 4.1).
pub fn utilisation(processing: Duration, delay: Duration, speed_up: f64) -> f64 {
    let (processing, delay) = (processing.as_secs_f64(), delay.as_secs_f64());
    delay / (processing / speed_up + delay)
}

/// A counter of limited width, extended beyond its wrap-around by reading it often enough: END's time device with
/// its VME StopWatch (E-49; §4.3.3).
///
/// ```
/// use lastmeter_base::Duration;
/// use lastmeter_host::adapter::emulation::Stopwatch;
/// let mut watch = Stopwatch::new(Duration::from_ns(25), 24);
/// assert_eq!(watch.wraps_after(), Duration::from_ns(25 * (1 << 24)));
/// assert_eq!(watch.read(0xff_fff0), Duration::from_ns(25 * 0xff_fff0));
/// assert_eq!(watch.read(0x10), Duration::from_ns(25 * 0x100_0010)); // It has wrapped around.
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    tick: Duration,
    bits: u32,
    last: u64,
    wraps: u64,
}

impl Stopwatch {
    /// A counter at zero. Panics if it has no bits, or more than 63.
    pub fn new(tick: Duration, bits: u32) -> Stopwatch {
        assert!((1..64).contains(&bits), "a counter of {bits} bits");
        Stopwatch { tick, bits, last: 0, wraps: 0 }
    }

    /// The time until it wraps around.
    pub fn wraps_after(&self) -> Duration {
        self.tick * (1 << self.bits)
    }

    /// The time since it was first zero, if the counter now reads `raw`. Correct if it is read at least once per
    /// wrap-around.
    pub fn read(&mut self, raw: u64) -> Duration {
        let raw = raw & ((1 << self.bits) - 1);
        self.wraps += u64::from(raw < self.last);
        self.last = raw;
        self.tick * ((self.wraps << self.bits) + raw)
    }
}

/// Messages per second from each of `nodes` sending back to back over one bus. Each message takes `bus` on it and
/// then `delay` off it. Measured over `messages` of all nodes together.
///
/// Panics if `nodes` or `messages` is zero.
pub fn over_one_bus(nodes: usize, bus: Duration, delay: Duration, messages: u64) -> f64 {
    assert!(nodes > 0 && messages > 0, "nothing to send");
    let options = Options {
        units: 1,
        discipline: Discipline::Priority,
        context_switch: Duration::ZERO,
        interrupt: Duration::ZERO,
    };
    let mut resource = Resource::new(ResourceId(0), options);
    let (stage, priority) = (StageId(0), Priority::Thread(0));
    let job = |id| Job { id, stage, priority, preemptive: false, work: bus };
    (0..nodes).for_each(|id| resource.submit(Time::START, job(id)));
    let mut delays: Vec<Option<Time>> = vec![None; nodes];
    let (mut received, mut now) = (0, Time::START);
    while received < messages {
        let delayed = delays.iter().enumerate().filter_map(|(id, at)| Some(((*at)?, id))).min();
        match (resource.ready_at(), delayed) {
            (Some(at), other) if other.is_none_or(|(other, _)| at <= other) => {
                let Some(done) = resource.complete(at) else { break };
                delays[done.id] = Some(at + delay);
            }
            (_, Some((at, id))) => {
                delays[id] = None;
                (received, now) = (received + 1, at);
                resource.submit(at, job(id));
            }
            (_, None) => break,
        }
    }
    received as f64 / nodes as f64 / now.since_start().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_us(us)
    }

    #[test]
    fn e_51_moving_only_headers_frees_the_bus_and_takes_the_same_time() {
        // A message of 100 us on the network occupies the bus for 100 us as a whole, and for 5 us as a header.
        let delay = residual(us(5), us(100)).unwrap_or_default();
        let alone = over_one_bus(1, us(100), Duration::ZERO, 1000);
        assert!((over_one_bus(1, us(5), delay, 1000) / alone - 1.0).abs() < 1e-9);
        let (whole, headers) =
            (over_one_bus(4, us(100), Duration::ZERO, 4000), over_one_bus(4, us(5), delay, 4000));
        assert!((whole / alone - 0.25).abs() < 0.01, "{whole}");
        assert!((headers / alone - 1.0).abs() < 0.01, "{headers}");
        // As many nodes as headers fit into the time of a message; with one more, the bus is the limit.
        assert!(over_one_bus(25, us(5), delay, 25_000) < 0.9 * alone);
    }

    #[test]
    fn e_55_eqs_4_1_and_4_2() {
        assert_eq!(utilisation(us(48), us(32), 1.0), 0.4);
        assert!((utilisation(us(48), us(32), 12.0) - 8.0 / 9.0).abs() < 1e-12);
        assert!(utilisation(us(48), us(32), 1e9) > 0.999_999);
    }
}
