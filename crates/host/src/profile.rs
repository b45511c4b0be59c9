//! A host as data: its resources, and the stages that packets pass in each direction.
//!
//! ```text
//! host:     send [socket] ----------------> [protocol] -----------> network
//! adapter:            `--> [copy to card] --^        `--> [card] --^
//! ```
//!
//! An adapter's stages are between the host's stages and the network, or after the stage of the host that they
//! name: where a socket layer copies to the card, the copy precedes the protocol.

use crate::machine::Full;
use crate::resource::{Discipline, Priority};
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Cost, Draw, Duration, PerByte, Rate};
use lastmeter_engine::ResourceKind;

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name: "HP 9000/730, 66 MHz, HP-UX 8.07".
    pub what: String,
    /// Where its constants come from.
    pub source: String,
    /// The resources that its stages compete for.
    pub resources: Vec<ResourceProfile>,
    /// Stages from the application to the network; at least one.
    pub send: Vec<StageProfile>,
    /// Stages from the network to the application; at least one.
    pub receive: Vec<StageProfile>,
    /// What a socket accepts before its peer has acknowledged any of it, if known.
    pub socket_buffer: Option<Bytes>,
}

/// An adapter between a host and a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// Its name.
    pub what: String,
    /// Where its constants come from.
    pub source: String,
    /// Rate of its link.
    pub rate: Rate,
    /// Propagation delay from one adapter to the other.
    pub delay: Duration,
    /// Link overhead of each packet, besides its data.
    pub framing: Bytes,
    /// The longest packet that it accepts.
    pub packet_max: Bytes,
    /// Cost to the host in dollars, if known.
    pub price: Option<u64>,
    /// Its power in watts, if known.
    pub power: Option<f64>,
    /// What else connects a host to the network.
    pub connection: Vec<Part>,
    /// Its resources, in addition to those of the host.
    pub resources: Vec<ResourceProfile>,
    /// Its transmit stages.
    pub send: Vec<AdapterStage>,
    /// Its receive stages.
    pub receive: Vec<AdapterStage>,
}

/// A part of what connects a host to the network, besides its adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is.
    pub name: String,
    /// How many hosts share it.
    pub hosts: u64,
    /// Its price in dollars, if known.
    pub price: Option<f64>,
    /// Its power in watts, if known.
    pub power: Option<f64>,
}

/// A stage of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterStage {
    /// The host's stage that it directly follows; `None` if it is next to the network.
    pub after: Option<String>,
    /// The stage.
    pub stage: StageProfile,
}

impl Profile {
    /// The host with `adapter` in it. Panics if the adapter names a stage that the host does not have: reading the
    /// adapter checks that.
    pub fn with(&self, adapter: &Adapter) -> Profile {
        let mut host = self.clone();
        host.what = format!("{}, with {}", self.what, adapter.what);
        host.resources.extend(adapter.resources.iter().cloned());
        host.send = joined(&self.send, &adapter.send, self.send.len());
        host.receive = joined(&self.receive, &adapter.receive, 0);
        host
    }
}

/// One direction with the adapter's stages inserted, each run of them in its own order. Those next to the network
/// go before the host's stage of number `network`.
fn joined(host: &[StageProfile], adapter: &[AdapterStage], network: usize) -> Vec<StageProfile> {
    let of = |place: Option<&str>| {
        let here = adapter.iter().filter(move |added| added.after.as_deref() == place);
        here.map(|added| added.stage.clone()).collect::<Vec<_>>()
    };
    let mut stages = Vec::new();
    for (number, stage) in host.iter().enumerate() {
        if number == network {
            stages.extend(of(None));
        }
        stages.push(stage.clone());
        stages.extend(of(Some(&stage.name)));
    }
    if network == host.len() {
        stages.extend(of(None));
    }
    assert_eq!(
        stages.len(),
        host.len() + adapter.len(),
        "an adapter names a stage that the host does not have"
    );
    stages
}

/// A resource of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceProfile {
    /// Its name, unique in the host.
    pub name: String,
    /// What sort of resource it is.
    pub kind: ResourceKind,
    /// Whether it is memory, whose crossings the ledger counts.
    pub memory: bool,
    /// How many packets it can serve at once.
    pub units: u32,
    /// How jobs share it.
    pub discipline: Discipline,
    /// Time to switch from one thread to another.
    pub context_switch: Duration,
    /// Time to enter and leave an interrupt handler.
    pub interrupt: Duration,
    /// Cost per byte if stages use it as a bus.
    pub per_byte: PerByte,
    /// Where its constants come from: document and table.
    pub source: String,
}

impl ResourceProfile {
    /// Its role.
    pub fn role(&self) -> &'static str {
        if self.memory { "memory" } else { self.kind.name() }
    }
}

/// A stage of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct StageProfile {
    /// Its name, unique in the host.
    pub name: String,
    /// The primary resource.
    pub resource: String,
    /// Its priority.
    pub priority: Priority,
    /// Whether it may pre-empt stages of lower priority.
    pub preemptive: bool,
    /// Cost of a packet on the primary resource.
    pub cost: Cost,
    /// Additional cost of each message of the application; packets share it in proportion to their length.
    pub per_message: Duration,
    /// Additional cost of the last packet of each PDU, if packets are cells.
    pub per_pdu: Duration,
    /// A random additional cost per packet.
    pub random: Option<Draw>,
    /// Whether a handler continues with packets that arrived meanwhile, without another interrupt.
    pub batch: bool,
    /// The number of interrupts that `cost` covers; 0 if it is the cost of work on a packet.
    pub interrupts: u32,
    /// Buses that its bytes cross, and how many times each byte does.
    pub buses: Vec<(String, u32)>,
    /// How many times it copies each byte.
    pub copies: u32,
    /// How many times a processor reads or writes each byte.
    pub touches: u32,
    /// Capacity of its queue; `None` if unlimited.
    pub queue: Option<Nested>,
    /// What happens to a packet that finds the queue full.
    pub full: Full,
    /// Where its constants come from: document and table.
    pub source: String,
}

impl StageProfile {
    /// Cost of a packet on the primary resource, if the application sends or reads `message` at a time; `None` for
    /// one packet at a time.
    ///
    /// The cost of a message is spread evenly over its bytes: a packet bears its share for the messages in it, or
    /// for the message that it is part of. Deviation: in reality one of several packets bears the whole cost;
    /// throughput is the same, individual latencies are not.
    pub fn cost(&self, message: Option<Bytes>) -> Cost {
        let Cost { per_packet, per_byte } = self.cost;
        let Some(message) = message.filter(|_| !self.per_message.is_zero()) else {
            return Cost { per_packet: per_packet + self.per_message, per_byte };
        };
        let share = u128::from(self.per_message.as_ps()) * 1_000;
        let share = share.div_ceil(u128::from(message.0.max(1)));
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        let per_byte = PerByte::from_fs(per_byte.as_fs().saturating_add(share));
        Cost { per_packet, per_byte }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str) -> StageProfile {
        StageProfile {
            name: name.to_owned(),
            resource: "cpu".to_owned(),
            priority: Priority::Thread(0),
            preemptive: false,
            cost: Cost { per_packet: Duration::from_us(10), per_byte: PerByte::ZERO },
            per_message: Duration::from_us(4),
            per_pdu: Duration::ZERO,
            random: None,
            batch: false,
            interrupts: 0,
            buses: Vec::new(),
            copies: 0,
            touches: 0,
            queue: None,
            full: Full::Drop,
            source: String::new(),
        }
    }

    fn host() -> Profile {
        Profile {
            what: "host".to_owned(),
            source: String::new(),
            resources: Vec::new(),
            send: ["call", "out"].map(stage).to_vec(),
            receive: ["in", "read"].map(stage).to_vec(),
            socket_buffer: None,
        }
    }

    fn adapter(after: &str) -> Adapter {
        let added = |after: Option<&str>, name: &str| AdapterStage {
            after: after.map(str::to_owned),
            stage: stage(name),
        };
        Adapter {
            what: "card".to_owned(),
            source: String::new(),
            rate: Rate::from_gbit(1),
            delay: Duration::ZERO,
            framing: Bytes(0),
            packet_max: Bytes(1500),
            price: None,
            power: None,
            connection: Vec::new(),
            resources: Vec::new(),
            send: vec![added(None, "card"), added(Some(after), "copy"), added(None, "port")],
            receive: vec![
                added(None, "port in"),
                added(Some("in"), "loop"),
                added(None, "card in"),
            ],
        }
    }

    #[test]
    fn an_adapters_stages_are_at_the_network_or_after_the_stage_that_they_name() {
        let whole = host().with(&adapter("call"));
        let names = |stages: &[StageProfile]| {
            stages.iter().map(|stage| stage.name.clone()).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(names(&whole.send), "call, copy, out, card, port");
        assert_eq!(names(&whole.receive), "port in, card in, in, loop, read");
    }

    #[test]
    #[should_panic(expected = "that the host does not have")]
    fn an_adapter_that_names_a_stage_of_another_host_is_refused() {
        host().with(&adapter("elsewhere"));
    }

    #[test]
    fn packets_share_the_cost_of_a_message_in_proportion_to_their_length() {
        let stage = stage("call");
        let time = |message, len| stage.cost(message).time_for(Bytes(len));
        assert_eq!(time(None, 3000), Duration::from_us(14));
        // A packet of 3000 B carries three messages of 1000 B, or a quarter of one of 12000 B.
        assert_eq!(time(Some(Bytes(1000)), 3000), Duration::from_us(22));
        assert_eq!(time(Some(Bytes(12_000)), 3000).as_ps().div_ceil(1000), 11_001);
    }
}
