//! A host as data: its resources, and the stages that packets pass on the way out and in.
//!
//! ```text
//! host:     send [socket] ----------------> [protocol] -----------> network
//! adapter:            `--> [copy to card] --^        `--> [card] --^
//! ```
//!
//! An adapter's stages stand between the host's and the network, or after the stage of the host
//! that they name: where a socket layer copies to the card, the copy goes before the protocol.

use crate::machine::Full;
use crate::resource::{Discipline, Priority};
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Cost, Draw, Duration, PerByte, Rate};
use lastmeter_engine::ResourceKind;

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What it is: "HP 9000/730, 66 MHz, HP-UX 8.07".
    pub what: String,
    /// Where its constants come from.
    pub source: String,
    /// What its stages compete for.
    pub resources: Vec<ResourceProfile>,
    /// From the application to the network; at least one.
    pub send: Vec<StageProfile>,
    /// From the network to the application; at least one.
    pub receive: Vec<StageProfile>,
    /// What a socket takes before its peer has acknowledged it, where that is known.
    pub socket_buffer: Option<Bytes>,
}

/// An adapter between a host and a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// What it is.
    pub what: String,
    /// Where its constants come from.
    pub source: String,
    /// How fast its link is.
    pub rate: Rate,
    /// How long bits take from one adapter to the other.
    pub delay: Duration,
    /// What goes over the link with each packet, besides its data.
    pub framing: Bytes,
    /// The longest packet that it takes.
    pub packet_max: Bytes,
    /// What a host pays for it, in dollars, where that is known.
    pub price: Option<u64>,
    /// Its resources, in addition to the host's.
    pub resources: Vec<ResourceProfile>,
    /// Its stages on the way out.
    pub send: Vec<AdapterStage>,
    /// Its stages on the way in.
    pub receive: Vec<AdapterStage>,
}

/// A stage of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterStage {
    /// The host's stage that it comes right after; `None` if it stands at the network.
    pub after: Option<String>,
    /// What it is.
    pub stage: StageProfile,
}

impl Profile {
    /// The host with `adapter` in it. Panics if the adapter names a stage that the host does not
    /// have: whoever reads the adapter has checked that.
    pub fn with(&self, adapter: &Adapter) -> Profile {
        let mut host = self.clone();
        host.what = format!("{}, with {}", self.what, adapter.what);
        host.resources.extend(adapter.resources.iter().cloned());
        host.send = joined(&self.send, &adapter.send, self.send.len());
        host.receive = joined(&self.receive, &adapter.receive, 0);
        host
    }
}

/// A way with the adapter's stages in it, each run of them in its own order. Those at the network
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
    assert_eq!(stages.len(), host.len() + adapter.len(), "an adapter names no stage of the host");
    stages
}

/// A resource of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceProfile {
    /// Unique in the host.
    pub name: String,
    /// What sort of thing it is.
    pub kind: ResourceKind,
    /// Whether it is memory, whose crossings the ledger counts.
    pub memory: bool,
    /// How many packets it can serve at once.
    pub units: u32,
    /// How jobs get at it.
    pub discipline: Discipline,
    /// Time to go from one thread to another.
    pub context_switch: Duration,
    /// Time to enter and leave an interrupt handler.
    pub interrupt: Duration,
    /// What a byte costs where stages use it as a bus.
    pub per_byte: PerByte,
    /// Where its constants come from: document and table.
    pub source: String,
}

impl ResourceProfile {
    /// What it is for.
    pub fn role(&self) -> &'static str {
        if self.memory { "memory" } else { self.kind.name() }
    }
}

/// A stage of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct StageProfile {
    /// Unique in the host.
    pub name: String,
    /// The primary resource.
    pub resource: String,
    /// Who goes first.
    pub priority: Priority,
    /// Whether it may interrupt lower stages.
    pub preemptive: bool,
    /// What a packet costs the primary resource.
    pub cost: Cost,
    /// What each message of the application costs it: packets share that by their length.
    pub per_message: Duration,
    /// What the last packet of each PDU costs it besides: where packets are cells.
    pub per_pdu: Duration,
    /// A random time that each packet costs it besides.
    pub random: Option<Draw>,
    /// Whether a handler continues with what arrived meanwhile, without another interrupt.
    pub batch: bool,
    /// Of how many interrupts `cost` is the cost; 0 where it is that of work on a packet.
    pub interrupts: u32,
    /// Buses that its bytes cross, and how often each byte does.
    pub buses: Vec<(String, u32)>,
    /// How often it copies each byte.
    pub copies: u32,
    /// How often a processor reads or writes each byte.
    pub touches: u32,
    /// Where packets wait for it; `None` for a queue without limit.
    pub queue: Option<Nested>,
    /// What happens to a packet that finds the queue full.
    pub full: Full,
    /// Where its constants come from: document and table.
    pub source: String,
}

impl StageProfile {
    /// What a packet costs the primary resource, where the application sends or reads `message`
    /// at a time; `None` for a packet at a time.
    ///
    /// A message's cost is spread evenly over its bytes, so that a packet bears its share of the
    /// messages that it carries, or that carry it. Deviation: in truth one packet of several bears
    /// the whole; throughput is the same, and single latencies are not.
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
    fn an_adapters_stages_stand_at_the_network_or_after_the_stage_that_they_name() {
        let whole = host().with(&adapter("call"));
        let names = |stages: &[StageProfile]| {
            stages.iter().map(|stage| stage.name.clone()).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(names(&whole.send), "call, copy, out, card, port");
        assert_eq!(names(&whole.receive), "port in, card in, in, loop, read");
    }

    #[test]
    #[should_panic(expected = "names no stage")]
    fn an_adapter_that_names_a_stage_of_another_host_does_not_get_in() {
        host().with(&adapter("elsewhere"));
    }

    #[test]
    fn packets_share_the_cost_of_a_message_by_their_length() {
        let stage = stage("call");
        let time = |message, len| stage.cost(message).time_for(Bytes(len));
        assert_eq!(time(None, 3000), Duration::from_us(14));
        // A packet of 3000 B carries three messages of 1000 B, or a quarter of one of 12000 B.
        assert_eq!(time(Some(Bytes(1000)), 3000), Duration::from_us(22));
        assert_eq!(time(Some(Bytes(12_000)), 3000).as_ps().div_ceil(1000), 11_001);
    }
}
