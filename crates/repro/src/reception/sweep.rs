//! Offered load from a quarter to ten times the host's capacity, under every reception policy.
//!
//! The host is one measured by `lastmeter calibrate`, or that of Table 7.2. Load is in multiples of the host's
//! capacity, which counts the protocol and application work of packets without any overhead of interrupts.

use super::{Setup, Way};
use lastmeter_base::{Bytes, Duration};
use lastmeter_host::receive::kind::{BUFFERS, DEFAULT, TRANSFER};
use lastmeter_host::receive::{Commands, Costs, Scheduling};
use serde::Serialize;

/// The version of a point's JSON.
pub const SCHEMA: &str = "lastmeter.livelock/1";
/// The loads, in multiples of the capacity.
pub const LOADS: [f64; 14] =
    [0.1, 0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
/// Length of each point's run, in packets at capacity.
const PACKETS: u64 = 8_000;

/// A host, and its capacity if reception cost nothing but its work.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its description.
    pub what: String,
    /// Its costs and its interface.
    pub setup: Setup,
    /// The equivalent of a millisecond on the host of 1997, whose packets take 747 us.
    pub unit: Duration,
}

impl Machine {
    /// The host of Table 7.2, with the buffers of §7.2.3 and the assumptions of `experiments/livelock`.
    pub fn of_1997() -> Machine {
        let setup = Setup {
            costs: DEFAULT,
            scheduling: Scheduling::Cooperative,
            commands: Commands::Two,
            adapter_buffers: BUFFERS,
            announced_max: 16,
            host_buffers: BUFFERS,
            transfer: TRANSFER,
            len: Bytes(1024),
        };
        Machine {
            what: "25 MHz MC68040, x-kernel, 1997".to_owned(),
            setup,
            unit: Duration::from_ms(1),
        }
    }

    /// A host as measured by `lastmeter calibrate`, receiving datagrams of 64 B; `seconds` returns a constant of the
    /// calibration.
    ///
    /// | cost | from |
    /// |---|---|
    /// | protocol | a segment received, and 64 bytes of it, on the receiver's core |
    /// | application | a call of the receiver |
    /// | switch, wake | a context switch |
    /// | interrupt | a context switch: calibration does not measure interrupts (assumed) |
    /// | look | a system call |
    ///
    /// Also assumed: a tenth of the protocol work for the socket look-up; 1024 descriptors in the ring, 256 packets in
    /// the socket buffer (212992 bytes at 768 or more each), time slices of at least 100 us.
    ///
    /// # Errors
    /// A constant is missing.
    pub fn calibrated(
        what: String,
        seconds: &dyn Fn(&str) -> Result<f64, String>,
    ) -> Result<Machine, String> {
        let time = |name: &str| -> Result<Duration, String> {
            Ok(Duration::from_secs_f64(seconds(name)?.max(0.0)))
        };
        let len = Bytes(64);
        let per_byte = time("path.other-core.receiver.per-byte")?;
        let protocol = time("path.other-core.receiver.per-segment")? + per_byte * len.0;
        let application = time("path.other-core.receiver.per-call")?;
        let switch = time("context.switch")?;
        let costs = Costs {
            interrupt: switch,
            switch,
            wake: switch,
            accept: Duration::ZERO,
            demultiplex: protocol / 10,
            protocol,
            application,
            cache_miss: Duration::ZERO,
            look: time("system.call")?,
        };
        if (protocol + application).is_zero() {
            return Err("the calibration says that a packet costs nothing".to_owned());
        }
        let setup = Setup {
            costs,
            scheduling: Scheduling::Fair(Duration::from_us(100)),
            commands: Commands::One,
            adapter_buffers: 1024,
            announced_max: 1024,
            host_buffers: 256,
            transfer: Duration::ZERO,
            len,
        };
        Ok(Machine::with(what, setup))
    }

    /// Another host, whose times are to that of 1997's as the work for a packet.
    pub fn with(what: String, setup: Setup) -> Machine {
        let machine = Machine { what, setup, unit: Duration::ZERO };
        let then = Duration::from_us(747).as_ps();
        let unit = Duration::from_ms(1).scale_ceil(machine.work().as_ps(), then);
        Machine { unit, ..machine }
    }

    /// Packets per second if reception cost nothing but its work.
    pub fn capacity(&self) -> f64 {
        1.0 / self.work().as_secs_f64()
    }

    fn work(&self) -> Duration {
        let Costs { accept, protocol, application, .. } = self.setup.costs;
        accept + protocol + application
    }
}

/// The result at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Offered load, in multiples of the capacity.
    pub load: f64,
    /// Throughput, in multiples of the capacity.
    pub throughput: f64,
    /// Median latency in seconds, from arrival until processed.
    pub p50: f64,
    /// 99th percentile of the latency, in seconds.
    pub p99: f64,
    /// CPU share left for other work.
    pub idle: f64,
    /// Interrupts per offered packet.
    pub interrupts: f64,
}

/// A policy and its results by load.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The policy's name.
    pub name: &'static str,
    /// Its era.
    pub era: super::Era,
    /// By load.
    pub points: Vec<Point>,
}

/// Simulates a policy at all loads, with Poisson arrivals: regular ones would stay in phase with clocks.
pub fn curve(machine: &Machine, way: &Way, seed: u64) -> Curve {
    let length = machine.work() * PACKETS;
    let point = |&load: &f64| {
        let capacity = machine.capacity();
        let arrivals = machine.setup.poisson(load * capacity);
        let interface = (way.interface)(&machine.setup, machine.unit);
        let outcome = machine.setup.offer(interface, arrivals, seed, length);
        debug_assert_eq!(outcome.unaccounted, 0);
        Point {
            load,
            throughput: outcome.total() / capacity,
            p50: outcome.latency.percentile(0.5).as_secs_f64(),
            p99: outcome.latency.percentile(0.99).as_secs_f64(),
            idle: outcome.idle,
            interrupts: outcome.interrupts / (load * capacity),
        }
    };
    Curve { name: way.name, era: way.era, points: LOADS.iter().map(point).collect() }
}

/// One JSON object per point, one per line.
pub fn json_lines(machine: &Machine, curves: &[Curve]) -> String {
    let mut text = String::new();
    for curve in curves {
        for point in &curve.points {
            let mut value = serde_json::json!(point);
            value["schema"] = SCHEMA.into();
            value["way"] = curve.name.into();
            value["host"] = machine.what.clone().into();
            value["capacity"] = machine.capacity().into();
            text += &format!("{value}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reception::{Era, of_1997, of_today};

    fn machine() -> Machine {
        let text = include_str!("../../../../profiles/calibrated/epyc-2-cores.toml");
        let calibration = lastmeter_live::calibrate::Calibration::from_toml(text);
        let calibration = calibration.expect("the bundled file is valid");
        let seconds = |name: &str| calibration.si(name).map_err(|error| error.to_string());
        Machine::calibrated("today".to_owned(), &seconds).expect("it has all constants")
    }

    #[test]
    fn e_106_every_way_is_compared_and_interrupts_alone_livelock() {
        let machine = machine();
        let ways: Vec<Way> = of_1997().into_iter().chain(of_today()).collect();
        let curves: Vec<Curve> = ways.iter().map(|way| curve(&machine, way, 1)).collect();
        for Curve { name, points, .. } in &curves {
            let end = points.last().expect("there are loads");
            // An interrupt per packet exceeds the host's capacity, whatever follows.
            let each = ["interrupts", "interrupts, early drop", "lazy processing, software"];
            let livelocked = each.contains(name);
            assert_eq!(end.throughput < 0.02, livelocked, "{name}: {}", end.throughput);
            assert!(points.iter().all(|p| p.throughput <= p.load * 1.1 + 0.02), "{name}");
        }
        let polls = curves.iter().find(|curve| curve.name == "continuous polling");
        assert!(polls.is_some_and(|curve| curve.points.iter().all(|point| point.idle == 0.0)));
        assert!(curves.iter().any(|curve| curve.era == Era::Ours));
        assert_eq!(json_lines(&machine, &curves).lines().count(), curves.len() * LOADS.len());
    }

    #[test]
    fn the_host_of_1997_livelocks_where_its_equation_says() {
        let machine = Machine::of_1997();
        let interrupts = curve(&machine, &of_1997()[0], 1);
        // 2193 packets/s are 1.64 times a capacity of 1339.
        let alive = |point: &&Point| point.throughput > 0.01;
        let last =
            interrupts.points.iter().filter(alive).map(|point| point.load).fold(0.0, f64::max);
        assert_eq!(last, 1.5);
    }
}
