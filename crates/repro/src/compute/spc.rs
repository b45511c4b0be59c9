//! The Smart Port Card (D-09 to D-16, D-60 to D-70, D-106 to D-116), simulated packet by packet.

use super::{Computed, Setting, Value, row};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Draw, Duration, FlowId, NodeId, PerByte, Time};
use lastmeter_engine::{Graph, PortId, ResourceInfo, ResourceKind, StageInfo, VirtualClock};
use lastmeter_host::port_processor::{CELL, Machine, Names, Options, Port};
use lastmeter_lab::close::{Close, close};
use lastmeter_lab::profile::port_options;
use lastmeter_ledger::{Ledger, Provenance};
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};

const NAME: &str = "spc";
/// At least ten thousand packets; the start-up transient is far below 1 %.
const LENGTH: Duration = Duration::from_ms(100);
/// Processor clocks of SPC and SPC 2 in MHz, and the forwarding rate of SPC 2 (sections 2.3, 6.2).
const CLOCK: (u64, u64) = (166, 500);
const SPC_2: f64 = 140_000.0;
/// The packet size whose curve collapses in Fig 12.
const COLLAPSING: Bytes = Bytes(1500);
/// Rates that differ by less count as equal.
const SAME: f64 = 0.01;
/// Our threshold for "some collapse": the drop below the highest rate.
const COLLAPSED: f64 = 0.95;

/// A port as the document describes it.
pub(super) struct Card {
    pub(super) options: Options,
}

/// The result of a run at one rate.
pub(super) struct Point {
    /// Packets per second.
    pub(super) rate: f64,
    ledger: Ledger,
}

impl Card {
    pub(super) fn read(constants: &Constants) -> Result<Card, Error> {
        Ok(Card { options: port_options(constants)? })
    }
    /// SPC 2: the same with faster memory.
    pub(super) fn second(constants: &Constants) -> Result<Card, Error> {
        Ok(Card::read(constants)?.with_memory(constants.get("memory_2")?))
    }
    pub(super) fn with(&self, change: impl Fn(&mut Options)) -> Card {
        let mut options = self.options.clone();
        change(&mut options);
        Card { options }
    }
    pub(super) fn without_queueing(&self) -> Card {
        self.with(|options| options.clock = None)
    }
    pub(super) fn without_lookup(&self) -> Card {
        self.with(|options| options.lookup = Duration::ZERO)
    }
    /// A card without the fault, which swaps no headers either.
    fn repaired(&self) -> Card {
        let header = self.options.swap.unwrap_or(Bytes::ZERO);
        let saved = self.options.memory.time_for(Bytes(2 * header.0));
        self.without_swap()
            .with(|options| options.software = options.software.saturating_sub(saved))
    }
    /// The header is still swapped: that is in `software`.
    pub(super) fn without_swap(&self) -> Card {
        self.with(|options| options.swap = None)
    }
    /// With another memory, on which all of the processor's work depends.
    pub(super) fn with_memory(&self, memory: PerByte) -> Card {
        let speed = (self.options.memory.as_fs(), memory.as_fs());
        Card { options: self.options.clone().with_memory_speed(speed) }
    }
    fn with_software(&self, scaled: impl Fn(Duration) -> Duration) -> Card {
        self.with(|options| {
            options.software = scaled(options.software);
            options.lookup = scaled(options.lookup);
            options.clock = options.clock.map(|(period, work)| (period, scaled(work)));
        })
    }

    /// Offers packets at this rate, with evenly spaced cells.
    fn offer(&self, len: Bytes, offered: u64) -> Result<Point, Error> {
        self.offer_for(LENGTH, len, offered)
    }

    /// As [`Card::offer`], for this long.
    pub(super) fn offer_for(
        &self,
        length: Duration,
        len: Bytes,
        offered: u64,
    ) -> Result<Point, Error> {
        let failed = |error: lastmeter_engine::Error| Error::Computation {
            name: NAME,
            message: error.to_string(),
        };
        let mut graph = Graph::new(1);
        let mut resource = |name: &str, kind: ResourceKind| {
            graph.resource(ResourceInfo::new(name.to_owned(), kind))
        };
        let resources = [
            resource("pci", ResourceKind::Bus),
            resource("memory", ResourceKind::Bus),
            resource("cpu", ResourceKind::Cpu),
        ];
        // The resource of each stage, and how often a packet's bytes cross the memory in it.
        let stages = [
            ("card to memory", 0, 1),
            ("software", 2, 0),
            ("lookup", 2, 0),
            ("word swap", 2, 2),
            ("memory to card", 0, 1),
            ("distributed queueing", 2, 0),
        ];
        let stages = stages.map(|(name, resource, memory)| {
            let (name, resource) = (name.to_owned(), Some(resources[resource]));
            graph.stage(StageInfo { memory, ..StageInfo::new(name, resource) })
        });
        let names = Names::of(resources, stages);
        let gap = Duration::from_ps(1_000_000_000_000 / offered.max(1));
        let cell_gap = (gap / Options::cells(len)).max(Duration::from_ps(1));
        let machine = Machine::new(Options { cell_gap, ..self.options.clone() }, names);
        let path = graph.path("card to card", "packets");
        let header = Header::PLAIN;
        let flow = Flow { path, flow: FlowId(0), destination: NodeId(0), header };
        let pattern = Pattern::Gaps { gap: Draw::Constant(gap), sizes: Sizes::Constant(len) };
        let source =
            graph.add("source", Source::new(flow, pattern, Span::ALWAYS)).map_err(failed)?;
        let port = graph.add("port", Port::new(machine)).map_err(failed)?;
        let sink = graph.add("sink", Sink::default()).map_err(failed)?;
        graph.connect(source, PortId(0), port, PortId(0)).map_err(failed)?;
        graph.connect(port, PortId(0), sink, PortId(0)).map_err(failed)?;
        let mut engine = graph.build(1).map_err(failed)?;
        engine.run_until(Time::START + length, &mut VirtualClock::default()).map_err(failed)?;
        let provenance =
            Provenance { seed: Some(1), level: "model".to_owned(), ..Provenance::default() };
        let close_as = Close { title: "Smart Port Card".to_owned(), provenance };
        let ledger = close(&engine.finish().map_err(failed)?, close_as);
        let rate = ledger.paths[0].totals.delivered.packets as f64 / length.as_secs_f64();
        Ok(Point { rate, ledger })
    }

    /// The highest rate: that of a port which is offered slightly more than it can carry.
    pub(super) fn most(&self, len: Bytes) -> Result<f64, Error> {
        let mut offered = 1.05 / self.options.time_alone(len).as_secs_f64();
        loop {
            let rate = self.offer(len, offered as u64)?.rate;
            if rate < 0.98 * offered || offered > f64::from(u32::MAX) {
                return Ok(rate);
            }
            offered *= 1.1; // Some of the work overlaps.
        }
    }
}

/// Figs 10 to 14 and section 6.4.
pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let bench = Bench {
        card: Card::read(setting.constants)?,
        second: Card::second(setting.constants)?,
        sizes: setting.constants.get::<Vec<u64>>("sizes")?.into_iter().map(Bytes).collect(),
        small: setting.constants.get("small")?,
    };
    Ok([
        bus(setting, &bench)?,
        ladder(&bench)?,
        second(&bench)?,
        overload(setting, &bench)?,
        by_size(&bench)?,
        limits(&bench)?,
        super::spc_set_up::rows(setting)?,
    ]
    .concat())
}

struct Bench {
    card: Card,
    second: Card,
    sizes: Vec<Bytes>,
    small: Bytes,
}

fn kpps(rate: f64) -> Value {
    Value::Number(rate / 1e3, "kpps")
}

fn mbit(rate: f64, len: Bytes) -> Value {
    Value::Number(rate * len.0 as f64 * 8.0 / 1e6, "Mbit/s")
}

/// Section 6.4, and what the profile repeats from the document.
fn bus(setting: &Setting<'_>, bench: &Bench) -> Result<Vec<Computed>, Error> {
    let options = &bench.card.options;
    let constants = setting.constants;
    let (own, all) = options.cycles();
    let time = options.cycle * all;
    let software: Duration = constants.get("software_published")?;
    let number = |value: u64, unit| Value::Number(value as f64, unit);
    let times = options.memory.as_fs() as f64 / bench.second.options.memory.as_fs() as f64;
    let peak = options.word.0 as f64 * 8.0 / options.cycle.as_secs_f64() / 1e9;
    let offered: u64 = constants.get("offered_most")?;
    Ok(vec![
        // A cost per byte is a whole number of femtoseconds.
        row("D-10", ((times * 1e6).round() / 1e6, "times")),
        row("D-12/peak", (peak, "Gbit/s")),
        row("D-68", constants.get::<Bytes>("buffer")?),
        row("D-107", kpps(offered as f64)),
        row("D-114/operations", number(options.operations(), "operations")),
        row("D-114/cycles-packet", number(own, "cycles")),
        row("D-114/cycles-packet-2", number(all, "cycles")),
        row("D-114/time-bus", time),
        row("D-115", time + software),
    ])
}

/// Fig 10.
fn ladder(bench: &Bench) -> Result<Vec<Computed>, Error> {
    let small = bench.small;
    let card = &bench.card;
    let bare = card.without_queueing().without_lookup();
    let cards =
        [card.with(|_| ()), card.without_queueing(), bare.with(|_| ()), bare.without_swap()];
    let rates: Vec<f64> = cards.iter().map(|card| card.most(small)).collect::<Result<_, _>>()?;
    let all_of_80 = card.offer(small, 80_000)?.rate / 80_000.0;
    let items = [
        "complete processing",
        "without distributed queueing",
        "without FIPL as well",
        "without word swap as well",
    ];
    let steps = items.into_iter().zip(&rates);
    let mut computed: Vec<Computed> =
        steps.map(|(item, &rate)| Computed::new("D-108", item, kpps(rate))).collect();
    computed.extend([
        row("D-108/starts-slope", all_of_80 > 1.0 - SAME),
        row("D-108/component", rates.windows(2).all(|pair| pair[1] > pair[0] * (1.0 + SAME))),
    ]);
    Ok(computed)
}

/// Fig 11.
fn second(bench: &Bench) -> Result<Vec<Computed>, Error> {
    let small = bench.small;
    let longest = bench.sizes.last().copied().unwrap_or(small);
    let repaired = bench.card.without_queueing().without_lookup().repaired();
    let most = bench.second.most(small)?;
    let gain = bench.second.most(longest)? / bench.card.most(longest)?;
    Ok(vec![
        row("D-109/repaired-card", kpps(repaired.most(small)?)),
        row("D-109/spc-2", kpps(most)),
        row("D-109/spc-2-maximum", kpps(most)),
        row("D-109/spc-2-maximum-bits", mbit(most, small)),
        row("D-109/spc-2-time", Duration::from_secs_f64(1.0 / most)),
        row("D-109/spc-2-larger", (gain, "times")),
    ])
}

/// Throughput far above capacity (D-69, D-110).
fn overload(setting: &Setting<'_>, bench: &Bench) -> Result<Vec<Computed>, Error> {
    let small = bench.small;
    let [stable, most] = ["offered_stable", "offered_most"].map(|name| setting.constants.get(name));
    let highest = bench.card.most(small)?;
    let remains = bench.card.offer(small, stable?)?.rate / highest;
    let output = bench.card.without_lookup();
    let flooded = bench.card.offer(small, most?)?.ledger;
    let drops = flooded.paths.iter().flat_map(|path| &path.stages).flat_map(|stage| &stage.drops);
    let refused = drops.clone().all(|(reason, _)| reason == "no buffer") && drops.count() > 0;
    let balance = &flooded.balance;
    let balances = balance.latency_residual == 0.0 && balance.packets_residual == 0;
    Ok(vec![
        row("D-69", refused),
        row("D-110/share-highest", (100.0 * remains, "%")),
        row("D-110/output-port", output.most(small)? > highest * (1.0 + SAME)),
        row("D-116/ledger-balances", balances),
    ])
}

/// Figs 12 to 14.
fn by_size(bench: &Bench) -> Result<Vec<Computed>, Error> {
    let card = &bench.card;
    let highest: Vec<(Bytes, f64)> =
        bench.sizes.iter().map(|&len| Ok((len, card.most(len)?))).collect::<Result<_, Error>>()?;
    let bits = |&(len, rate): &(Bytes, f64)| rate * len.0 as f64;
    let mut shaped = true;
    for &(len, most) in highest.iter().filter(|(len, _)| *len < COLLAPSING) {
        let at = |share: f64| -> Result<f64, Error> {
            Ok(card.offer(len, (most * share) as u64)?.rate / most)
        };
        let (rising, flat) = (at(0.5)? / 0.5, [at(1.2)?, at(2.0)?]);
        shaped &=
            (rising - 1.0).abs() < SAME && flat.iter().all(|rate| (rate - 1.0).abs() < 2.0 * SAME);
    }
    let most = card.most(COLLAPSING)?;
    let collapses = around(card, COLLAPSING, most)?;
    let longest = bench.sizes.last().copied().unwrap_or(COLLAPSING);
    let crossings = |card: &Card, resource: &str| -> Result<f64, Error> {
        let ledger = card.offer(longest, card.most(longest)? as u64)?.ledger;
        let moved = ledger.resources.iter().find(|known| known.name == resource);
        let bytes = moved.and_then(|moved| moved.bytes_per_delivered_byte).unwrap_or(0.0);
        Ok(bytes * longest.0 as f64 / (Options::cells(longest) * CELL.0) as f64)
    };
    let number = |value, unit| Value::Number(value, unit);
    let plain = card.without_swap();
    Ok(vec![
        row("D-09", number(crossings(card, "pci")?, "crossings")),
        row("D-70/crossings", number(crossings(card, "memory")?, "crossings")),
        row("D-70/crossings-memory", number(crossings(&plain, "memory")?, "crossings")),
        row("D-111/slope-knee", shaped),
        row("D-111/saturation", highest.windows(2).all(|pair| pair[1].1 < pair[0].1)),
        row("D-111/1500-bytes", collapses),
        row("D-112", highest.windows(2).all(|pair| bits(&pair[1]) > bits(&pair[0]))),
        row("D-113/highest-throughput", mbit(card.most(longest)?, longest)),
        row("D-113/highest-throughput-word", mbit(plain.most(longest)?, longest)),
    ])
}

/// Whether the forwarding rate drops below its maximum anywhere from 40 to 60 kpps.
fn around(card: &Card, len: Bytes, most: f64) -> Result<bool, Error> {
    for offered in (40_000..=60_000).step_by(5_000) {
        if card.offer(len, offered)?.rate < most * COLLAPSED {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The gain of a bus, memory or processor that is 10 % faster (D-116).
fn limits(bench: &Bench) -> Result<Vec<Computed>, Error> {
    let card = &bench.card;
    let faster = |cost: u64| cost * 10 / 11;
    let gains = |len: Bytes| -> Result<(f64, f64), Error> {
        let most = card.most(len)?;
        let cycle = Duration::from_ps(faster(card.options.cycle.as_ps()));
        let bus = card.with(|options| options.cycle = cycle).most(len)? / most - 1.0;
        let memory = PerByte::from_fs(faster(card.options.memory.as_fs()));
        Ok((bus, card.with_memory(memory).most(len)? / most - 1.0))
    };
    let longest = bench.sizes.last().copied().unwrap_or(bench.small);
    // SPC 2 separates the two: its clock is three times as fast, its memory 1.6 times.
    let by_clock = card.with_software(|time| time * CLOCK.0 / CLOCK.1).most(bench.small)?;
    let distance = |rate: f64| (rate - SPC_2).abs();
    let (bus_small, memory_small) = gains(bench.small)?;
    let (bus_large, memory_large) = gains(longest)?;
    let clock = card.with_software(|time| time * 10 / 11).most(bench.small)?;
    let clock_small = clock / card.most(bench.small)? - 1.0;
    let each = bus_small.min(memory_small).min(clock_small);
    let by_memory = distance(bench.second.most(bench.small)?) < distance(by_clock);
    Ok(vec![
        row("D-116/each", each > SAME),
        row("D-116/pci-memory", bus_small > SAME && memory_small > SAME),
        row("D-116/memory-limits", memory_large > SAME && memory_large > bus_large),
        row("D-116/processor", by_memory),
    ])
}
