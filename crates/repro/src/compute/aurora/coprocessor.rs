//! The study of the cell coprocessor: Tables 2 to 5 from word times.

use super::super::{Computed, Setting, row};
use super::{alike, bus, wrong};
use crate::Error;
use crate::machines::coprocessor::{Direction, Model, Operation, Processor, WORDS, program};
use crate::machines::turbochannel::{Bus, Way};
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::Builtin;
use lastmeter_ledger::plots::{Plot, Series};

const NAME: &str = "aurora-coprocessor";

/// Cells of a run: all take the same time, so more would not change a rate.
const CELLS: u64 = 1000;
/// Payload of a cell.
const DATA: Bytes = Bytes(48);
/// A packet reassembled on the board.
const PACKET: Bytes = Bytes::from_kib(4);

const DIRECTIONS: [(&str, Direction); 2] =
    [("receive", Direction::Receive), ("transmit", Direction::Transmit)];

struct Host {
    name: &'static str,
    profile: &'static str,
    processor: Processor,
}

impl Host {
    fn read(setting: &Setting<'_>, name: &'static str) -> Result<Host, Error> {
        let constants = setting.constants;
        let (profile, suffix) = match name {
            "5000/200" => ("dec5000-200", "200"),
            _ => ("dec5000-240", "240"),
        };
        let of = |constant: &str| constants.get::<Duration>(&format!("{constant}_{suffix}"));
        let turbo: Duration = constants.get("turbo_cycle")?;
        let processor = Processor {
            cycle: of("cycle")?,
            bus_read: turbo * constants.get::<u64>("read_cycles_measured")?,
            bus_write: turbo * constants.get::<u64>("write_cycles_assumed")?,
            load: of("load")?,
            store: constants.get("store")?,
            swap: constants.get("swap")?,
        };
        let host = Host { name, profile, processor };
        host.agrees()?;
        Ok(host)
    }

    /// Checks that the profile that `why` uses has the same word times.
    fn agrees(&self) -> Result<(), Error> {
        let pair = Pair::read(self.profile, "vup", &Builtin).map_err(Error::Problems)?;
        let Processor { cycle, bus_read, bus_write, load, store, .. } = self.processor;
        let words =
            |time: Duration| PerByte::from_fs(time.as_ps() * 1000).scale_ceil(WORDS as u64, DATA.0);
        let times = [
            ("store", words(store)),
            ("load", words(load)),
            ("bus-read", words(bus_read)),
            ("bus-write", words(bus_write)),
            ("instructions", PerByte::from_fs(cycle.as_ps() * 1000).scale_ceil(1, DATA.0)),
        ];
        for (name, time) in times {
            let resource = pair.host.resources.iter().find(|resource| resource.name == name);
            if !resource.is_some_and(|resource| alike(resource.per_byte, time)) {
                return Err(wrong(
                    NAME,
                    format!(
                        "`{name}` of the profile {} is not {time}, as the constants have it",
                        self.profile
                    ),
                ));
            }
        }
        Ok(())
    }

    fn rate(&self, model: Model, swapped: bool, direction: Direction) -> Rate {
        self.processor.run(&program(model, swapped, direction), CELLS).rate()
    }

    /// Rates of the five models, in the tables' order.
    fn rates(&self, swapped: bool, direction: Direction) -> Vec<(&'static str, Rate)> {
        let models = Model::TABLE_2.into_iter().filter(|&(_, _, swaps)| swaps == swapped);
        models.map(|(name, model, _)| (name, self.rate(model, swapped, direction))).collect()
    }
}

pub(in super::super) fn tables(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let hosts = [Host::read(setting, "5000/200")?, Host::read(setting, "5000/240")?];
    let count = Model::TABLE_2.len() as f64;
    let mut computed = vec![row("A-97", (count, "models"))];
    // Bus time of a cell under programmed transfer.
    let words = |direction, word| {
        let cell = program(Model::Bus, false, direction);
        cell.iter().filter(|&&operation| operation == word).count() as f64
    };
    let (reads, writes) = (
        words(Direction::Receive, Operation::BusRead),
        words(Direction::Transmit, Operation::BusWrite),
    );
    computed.push(row("A-33/reads-received", (reads, "reads")));
    computed.push(row("A-33/writes-sent", (writes, "writes")));
    for (id, swapped) in [("A-98", true), ("A-99", false)] {
        for host in &hosts {
            for (way, direction) in DIRECTIONS {
                let rates = host.rates(swapped, direction);
                computed.extend(rates.iter().map(|(model, rate)| {
                    Computed::new(id, format!("{} {way} {model}", host.name), *rate)
                }));
                let falls = [3, 2, 1, 4, 0].windows(2).all(|w| rates[w[0]].1 > rates[w[1]].1);
                computed.push(Computed::new(id, format!("{} {way}: ranking", host.name), falls));
            }
        }
        let vup = |host: &Host| host.rate(Model::Bus, swapped, Direction::Receive);
        let slower = vup(&hosts[1]) < vup(&hosts[0]);
        computed.push(Computed::new(
            id,
            "programmed reception is slower on the faster host",
            slower,
        ));
    }
    computed.extend(plug_points(&hosts));
    computed.extend(table_5(setting, &hosts[1])?);
    computed.extend(corrected(setting, &hosts[1])?);
    computed.extend(bounds(setting, &hosts[1])?);
    computed.extend(attached(setting, &hosts[1])?);
    Ok(computed)
}

/// Points of attachment, from the bus to the registers: the plug-points of Fig 17 that were built.
const PLUG_POINTS: [(&str, Model); 3] =
    [("I/O bus", Model::Bus), ("memory", Model::Memory), ("registers", Model::Registers)];

/// Throughput rises towards the processor.
fn plug_points(hosts: &[Host]) -> Vec<Computed> {
    DIRECTIONS
        .map(|(way, direction)| {
            let rises = hosts.iter().all(|host| {
                let rates = PLUG_POINTS.map(|(_, model)| host.rate(model, false, direction));
                rates.windows(2).all(|pair| pair[0] < pair[1])
            });
            Computed::new("A-32", format!("{way}: faster the nearer it is to the processor"), rises)
        })
        .into()
}

/// Fig 17 with the throughput of each plug-point.
pub(in super::super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let hosts = [Host::read(setting, "5000/200")?, Host::read(setting, "5000/240")?];
    let mut series = Vec::new();
    for host in &hosts {
        for (way, direction) in DIRECTIONS {
            let rate = |(at, (_, model)): (usize, (&str, Model))| {
                let rate = host.rate(model, false, direction).as_bits() as f64 / 1e6;
                [at, at + 1].map(|end| (end as f64, rate))
            };
            let points = PLUG_POINTS.into_iter().enumerate().flat_map(rate).collect();
            series.push(Series { name: format!("{} {way}", host.name), points });
        }
    }
    let place = |(at, (name, _)): (usize, (&str, Model))| (at as f64 + 0.5, name.to_owned());
    Ok(vec![
        Plot::new(
            "Fig 17: throughput by point of attachment",
            "With our word times and without swapping the header: from a device on TURBOchannel, \
             from data that DMA left in memory, from a coprocessor's registers. Nobody built a \
             network in the cache.",
            ("plug-point, from the bus to the processor", "Mbit/s"),
            series,
        )
        .marked(PLUG_POINTS.into_iter().enumerate().map(place).collect()),
    ])
}

/// The network at the processor's registers: in a workstation, and as a switch.
fn attached(setting: &Setting<'_>, host: &Host) -> Result<Vec<Computed>, Error> {
    use Direction::{Receive, Transmit};
    let Processor { cycle, .. } = host.processor;
    let to_memory = program(Model::Registers, false, Receive);
    let off_the_bus = to_memory
        .iter()
        .chain(&program(Model::Registers, false, Transmit))
        .all(|&word| !matches!(word, Operation::BusRead | Operation::BusWrite));
    let magnitudes = |direction, swapped| {
        let rate = |model| host.rate(model, swapped, direction).as_bits() as f64;
        (rate(Model::Registers) / rate(Model::Bus)).log10().round()
    };
    // Alone, a word that enters one register leaves by another.
    let moves = |direction| {
        let words = program(Model::Registers, false, direction);
        words.into_iter().filter(|&word| word == Operation::Move)
    };
    let alone: Vec<Operation> = moves(Receive).chain(moves(Transmit)).collect();
    let through = host.processor.run(&alone, CELLS).rate();
    let link: Rate = setting.constants.get("link")?;
    let clock = 1e6 / cycle.as_ps() as f64;
    let faster =
        |direction| [false, true].map(|swapped| magnitudes(direction, swapped)) == [1.0; 2];
    Ok(vec![
        row("A-39/clock-processor", (clock, "MHz")),
        row("A-39/none-words", off_the_bus),
        row("A-39/receives-order", faster(Receive)),
        row("A-39/sends-order", faster(Transmit)),
        row("A-40/cells-network", through),
        row("A-40/link-carries", through > link),
    ])
}

/// Table 5: the authors' index numbers, and the models beside the observed rates.
fn table_5(setting: &Setting<'_>, host: &Host) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let turbo: Duration = constants.get("turbo_cycle")?;
    let index = Processor {
        bus_read: turbo * constants.get::<u64>("read_cycles_assumed")?,
        bus_write: turbo * constants.get::<u64>("write_cycles_assumed")?,
        load: constants.get("index_load")?,
        store: constants.get("index_store")?,
        ..host.processor
    };
    let mut computed = Vec::new();
    for (way, direction) in DIRECTIONS {
        let rate = |model| -> Rate {
            match (model, direction) {
                // The index numbers charge every load as one from memory.
                (Model::Memory, Direction::Receive) => {
                    index.run(&program(model, false, Direction::Transmit), CELLS).rate()
                }
                _ => index.run(&program(model, false, direction), CELLS).rate(),
            }
        };
        let paths = [("IO1", Model::Bus), ("IO3", Model::Memory), ("REG1", Model::Registers)];
        computed.extend(paths.map(|(path, model)| {
            Computed::new("A-100", format!("predicted, {way} {path}"), rate(model))
        }));
        let models = [("Vup1", Model::Bus), ("DMA1", Model::Memory), ("Cop4", Model::Registers)];
        computed.extend(models.map(|(name, model)| {
            let rate = host.rate(model, false, direction);
            Computed::new("A-100", format!("observed, {way} {name}"), rate)
        }));
    }
    Ok(computed)
}

/// How the prediction depends on one parameter, the cost of a read over the bus.
fn corrected(setting: &Setting<'_>, host: &Host) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let turbo: Duration = constants.get("turbo_cycle")?;
    let with = |cycles: u64| {
        let processor = Processor { bus_read: turbo * cycles, ..host.processor };
        processor.run(&program(Model::Bus, false, Direction::Receive), CELLS)
    };
    let assumed = with(constants.get("read_cycles_assumed")?);
    let measured = with(constants.get("read_cycles_measured")?);
    let observed: Rate = constants.get("observed")?;
    let off = |rate: Rate| (rate.as_bits() as f64 / observed.as_bits() as f64 - 1.0).abs();
    let reads = measured.most();
    Ok(vec![
        row("A-101/reception", assumed.rate()),
        row("A-101/reception-14", measured.rate()),
        row("A-101/corrected", off(measured.rate()) < off(assumed.rate())),
        row(
            "A-101/bus-reads",
            reads.is_some_and(|(most, share)| most == Operation::BusRead && share > 0.5),
        ),
    ])
}

/// Osiris, and the memory bandwidth behind any board that moves cells by DMA.
fn bounds(setting: &Setting<'_>, host: &Host) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let bus = bus(constants)?;
    let to = bus.rate(DATA, Way::ToMemory);
    let from = bus.rate(DATA, Way::FromMemory);
    let memory = |direction| host.rate(Model::Memory, false, direction);
    // Packet-sized transfers arbitrate for the bus less often than cell-sized ones.
    let (cell, packet) = (to.as_bits() as f64, bus.rate(PACKET, Way::ToMemory).as_bits() as f64);
    let mut rows = vec![
        row("A-44/packets", packet > 1.2 * cell),
        row("A-102/osiris-memory", to),
        row("A-102/osiris-memory-2", from),
        row("A-102/memory-path", memory(Direction::Receive) < to),
        row("A-102/transmission", memory(Direction::Transmit) < from),
    ];
    rows.extend(transfer_sizes(constants.get("link")?, &bus));
    Ok(rows)
}

/// What transfers of several cells cost: the share of the bus that goes into arbitration, how long the first
/// cell of one takes until it is in memory, and how much the board has to hold for each circuit.
fn transfer_sizes(link: Rate, bus: &Bus) -> Vec<Computed> {
    /// Cells of a transfer; ten are the longest burst.
    const SIZES: [u64; 5] = [1, 2, 4, 10, 85];
    let arrives = link.time_for(Bytes(4 * WORDS as u64));
    let costs = SIZES.map(|cells| {
        let bytes = DATA * cells;
        let overhead =
            1.0 - bus.rate(bytes, Way::ToMemory).as_bits() as f64 / bus.peak().as_bits() as f64;
        let latency = arrives * (cells - 1) + bus.holds(bytes, Way::ToMemory);
        (100.0 * overhead, latency, bytes)
    });
    let falls = costs.windows(2).all(|pair| pair[0].0 > pair[1].0);
    let rises = costs.windows(2).all(|pair| pair[0].1 < pair[1].1 && pair[0].2 < pair[1].2);
    let gain = |from: usize, to: usize| costs[from].0 - costs[to].0;
    let mut rows = vec![
        row("A-44/falls", falls),
        row("A-44/rises", rises),
        // From one burst on, arbitration is nearly all gone, and the rest of a packet buys nothing.
        row("A-44/burst", gain(0, 3) > 30.0 && gain(3, 4) < 1.0),
    ];
    for (cells, (overhead, latency, bytes)) in SIZES.into_iter().zip(costs) {
        let key = |what: &str| format!("A-44/{what}-{cells}");
        if matches!(cells, 1 | 10) {
            rows.push(row(key("overhead"), (overhead, "%")));
            rows.push(row(key("latency"), (latency.as_secs_f64() * 1e6, "us")));
            rows.push(row(key("memory"), (bytes.0 as f64, "B")));
        }
    }
    rows
}
