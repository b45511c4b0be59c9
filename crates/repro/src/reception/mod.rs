//! Reception under load: every policy of 1997 and of today on one host, its ledger, its curves.
//!
//! ```text
//! source of regular or random packets --> receiving host, one policy --> sink
//! ```
//!
//! A [`Setup`] is a host and its interface; a [`Way`] is a policy with its name and parameters.

pub mod chart;
mod ledger;
pub mod sweep;
mod ways;

pub use ledger::{Explained, explain};
pub use ways::{Era, Way, of_1997, of_today};

use lastmeter_base::{Bytes, Draw, Duration, StageId, Time};
use lastmeter_engine::ResourceId;
use lastmeter_host::machine::Machine;
use lastmeter_host::receive::admission::EarlyDrop;
use lastmeter_host::receive::trial::{self, Arrivals, Outcome};
use lastmeter_host::receive::{
    Commands, Costs, InterfaceOptions, Options, Policy, Reception, Scheduling, Stages, alone,
};

/// A host and its interface, without the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Costs of reception.
    pub costs: Costs,
    /// How threads share the CPU.
    pub scheduling: Scheduling,
    /// Commands per packet.
    pub commands: Commands,
    /// Capacity of the adapter or its ring in packets.
    pub adapter_buffers: u64,
    /// Packets announced at once.
    pub announced_max: u64,
    /// Receive buffers of the host.
    pub host_buffers: u64,
    /// Time from acceptance into memory.
    pub transfer: Duration,
    /// Length of a packet.
    pub len: Bytes,
}

/// Stage numbers for runs whose books are not read.
const STAGES: Stages = Stages {
    interrupt: StageId(0),
    switch: StageId(1),
    accept: StageId(2),
    transfer: StageId(3),
    protocol: StageId(4),
    application: StageId(5),
    polling: StageId(6),
};

impl Setup {
    /// An interface with early drop, under `policy`.
    pub fn interface(&self, policy: Box<dyn Policy>) -> InterfaceOptions {
        InterfaceOptions {
            policy,
            accepts: Some(Box::new(EarlyDrop)),
            takes: None,
            commands: self.commands,
            adapter_buffers: self.adapter_buffers,
            announced_max: self.announced_max,
            host_buffers: self.host_buffers,
            transfer: self.transfer,
            reservation: None,
        }
    }

    /// A host with these interfaces, and names of its CPU and stages in the books.
    pub fn named(
        &self,
        cpu: ResourceId,
        stages: Stages,
        interfaces: Vec<InterfaceOptions>,
    ) -> Machine {
        let (costs, scheduling) = (self.costs, self.scheduling);
        let options = Options { costs, scheduling, stages, parts: Vec::new(), kernel: 0 };
        alone(cpu, Reception::new(options, interfaces))
    }

    /// A host with these interfaces.
    pub fn host(&self, interfaces: Vec<InterfaceOptions>) -> Machine {
        self.named(ResourceId(0), STAGES, interfaces)
    }

    /// Packets at regular intervals, at this rate per second.
    pub fn periodic(&self, rate: f64) -> Arrivals {
        // The first is off the grid of clocks, which start with the run.
        let start = Time::START + Duration::from_us(7);
        Arrivals { gap: Draw::Constant(gap(rate)), len: self.len, flows: 1, start }
    }

    /// Poisson arrivals at this mean rate per second.
    pub fn poisson(&self, rate: f64) -> Arrivals {
        Arrivals { gap: Draw::Exponential(gap(rate)), ..self.periodic(rate) }
    }

    /// Offers `arrivals` to one interface, after a warm-up of a fifth of `length`.
    pub fn offer(
        &self,
        interface: InterfaceOptions,
        arrivals: Arrivals,
        seed: u64,
        length: Duration,
    ) -> Outcome {
        let host = self.host(vec![interface]);
        trial::run(host, &[arrivals], seed, length / 5, length)
    }
}

/// The interval between packets at `rate` per second, to the picosecond.
pub fn gap(rate: f64) -> Duration {
    Duration::from_ps((1e12 / rate).round() as u64)
}
