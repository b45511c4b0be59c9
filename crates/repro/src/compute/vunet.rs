//! The VuNet: its deployment simulated as a whole, its
//! switch alone, and its signalling without time.

use super::{Computed, Setting, Value, row};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_engine::Outcome;
use lastmeter_lab::experiment::Network;
use lastmeter_lan::vunet::card::{Action, Card, ENTRIES, Side};
use lastmeter_lan::vunet::connection::{Connection, Hop, Route};
use lastmeter_lan::vunet::crossbar::Crossbar;
use lastmeter_lan::vunet::discovery::discover;
use lastmeter_lan::vunet::edge::{Class, Edge};
use lastmeter_lan::vunet::element::{BRIDGE, LINK, SWITCH};
use lastmeter_lan::vunet::site::{End, Site};
use lastmeter_lan::vunet::vci::{Block, Choice, SharedFile};
use lastmeter_lan::vunet::{OnBus, control_cell, data_cell};
use lastmeter_wire::atm::vunet::{VUNET_CELL_LEN, VunetCell};
use lastmeter_wire::control::vunet::{Control, ENTRIES_MAX, Entry, Op, VCI_CONTROL, VCI_DROP};
use std::collections::{BTreeMap, HashSet};

const NAME: &str = "vunet";
const CELL: Bytes = Bytes(VUNET_CELL_LEN as u64);

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut rows = Vec::new();
    rows.extend(deployment(setting)?);
    rows.extend(switch(setting)?);
    rows.push(largest_burst(setting)?);
    rows.extend(tables(setting.seed));
    rows.extend(signalling(setting.seed)?);
    Ok(rows)
}

pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::Computation { name: NAME, message: message.into() }
}

/// A counter of the elements whose names contain `part`, in their order.
pub(super) fn counters(outcome: &Outcome, part: &str, counter: &str) -> Vec<u64> {
    let named = outcome.elements.iter().filter(|element| element.name.contains(part));
    let found = named.flat_map(|element| element.counters.iter());
    found.filter(|(name, _)| *name == counter).map(|&(_, value)| value).collect()
}

fn count(key: &str, number: usize, unit: &'static str) -> Computed {
    row(key, Value::Number(number as f64, unit))
}

/// the deployment's file, counted and simulated.
fn deployment(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let experiment = setting.experiment("deployment", &[])?;
    let network = Network::new(&experiment);
    let page = |node: usize| experiment.nodes[network.nodes[node].declared].kind.page.name;
    let nodes = 0..network.nodes.len();
    let of = |name: &str| nodes.clone().filter(|&node| page(node) == name).count();
    let group = |name: &str| {
        let is = |&node: &usize| network.nodes[node].name.starts_with(name);
        nodes.clone().filter(is).count()
    };
    let attached = |node: usize| network.leaving[node].iter().map(|&hop| network.hops[hop].to);
    let ports: Vec<usize> =
        nodes.clone().filter(|&node| page(node) == SWITCH.name).flat_map(attached).collect();
    let mapped = ports.iter().filter(|&&peer| [LINK.name, BRIDGE.name].contains(&page(peer)));
    let outcome = setting.run("deployment", &[])?.outcome;
    let frames = counters(&outcome, " sees ", "frames");
    let incomplete = counters(&outcome, " sees ", "incomplete");
    let peers = counters(&outcome, " sees ", "peer");
    // The viewers whose video crosses the wide area.
    let far = |place: &usize| {
        let (from, to) =
            (&experiment.traffic[*place].from.name, &experiment.traffic[*place].to.name);
        (from == "board.10") != (to == "host.10")
    };
    let viewers: Vec<String> = outcome
        .elements
        .iter()
        .map(|element| &element.name)
        .filter(|name| name.contains(" sees "))
        .cloned()
        .collect();
    let across: Vec<usize> = (0..viewers.len())
        .filter(|&place| {
            let traffic = experiment.traffic.iter().position(|traffic| {
                viewers[place].contains(&format!(" sees {} of ", traffic.name))
            });
            traffic.as_ref().is_some_and(far)
        })
        .collect();
    let cells = |place: &usize| {
        let name = &viewers[*place];
        let ends = outcome.paths.iter().zip(&outcome.books.paths).find(|(path, _)| {
            // `host.0 sees video 0 of board.4` belongs to the path `board.4->host.0`.
            let (host, board) = (name.split(' ').next(), name.rsplit(' ').next());
            path.name.split_once("->").map(|(from, to)| (Some(to), Some(from)))
                == Some((host, board))
        });
        ends.map_or(0, |(_, book)| book.delivered.packets)
    };
    let mut near: Vec<u64> =
        (0..frames.len()).filter(|place| !across.contains(place)).map(|p| cells(&p)).collect();
    near.sort_unstable();
    let median = near[near.len() / 2];
    let as_many = across.iter().all(|place| 10 * cells(place) >= 9 * median);
    let seen = outcome.books.dropped == 0
        && frames.iter().all(|&frames| frames >= 5)
        && incomplete.iter().all(|&incomplete| incomplete == 0);
    let cameras = counters(&outcome, "board.4->", "packets_most");
    let wide = setting.run("wide_bursts", &[])?.outcome;
    let wide = counters(&wide, "board.4->", "packets_most");
    // The backlog behind the cell in service.
    let shaped = cameras.iter().all(|&most| most <= 28) && wide.iter().any(|&most| most > 28);
    let mut rows = vec![
        count("A-01/switches", of(SWITCH.name), "switches"),
        count("A-01/video-appliances", group("board"), "appliances"),
        count("A-01/hosts", group("host"), "hosts"),
        row("A-01/viewer-sees", seen),
        row("A-89", as_many),
        row("A-90", across.len() == 2 && across.iter().all(|&place| peers[place] == 1)),
        count("A-118/ports-need", mapped.count(), "ports"),
        row("A-121", shaped),
    ];
    rows.extend(discovered(&network, &page)?);
    Ok(rows)
}

/// a topology daemon on the deployment's network.
fn discovered(
    network: &Network,
    page: &dyn Fn(usize) -> &'static str,
) -> Result<Vec<Computed>, Error> {
    let nodes = 0..network.nodes.len();
    let switches: Vec<usize> = nodes.clone().filter(|&node| page(node) == SWITCH.name).collect();
    let place = |node: usize| switches.iter().position(|&switch| switch == node);
    let neighbours = |node: usize| network.leaving[node].iter().map(|&hop| network.hops[hop].to);
    let mut site = Site::new(switches.len());
    for node in nodes.clone().filter(|&node| page(node) == LINK.name) {
        let ends: Vec<usize> = neighbours(node).filter_map(place).collect();
        site.link(ends[0], ends[1]).ok_or(failed("a switch has too few ports"))?;
    }
    // The two bridges and the network between them count as one link.
    let bridged: Vec<usize> = nodes
        .clone()
        .filter(|&node| page(node) == BRIDGE.name)
        .flat_map(neighbours)
        .filter_map(place)
        .collect();
    site.link(bridged[0], bridged[1]).ok_or(failed("a switch has too few ports"))?;
    for node in nodes.filter(|&node| page(node) == "host") {
        let switch = neighbours(node).find_map(place).ok_or(failed("a host without a switch"))?;
        site.client(switch).ok_or(failed("a switch has too few ports"))?;
    }
    let mut file = SharedFile::new(0, Block::of(0, 1).map_err(failed)?);
    let map = discover(&mut site, 11, &mut file).map_err(failed)?;
    Ok(vec![
        count("A-72/switches-daemon", map.switches.len(), "switches"),
        count("A-72/appliances", map.clients().len(), "clients"),
    ])
}

/// Fills every input with cells for other outputs; returns when the last has crossed.
fn saturated(ports: usize, rate: Rate, cells: u64, both: bool) -> Time {
    saturated_in(ports, rate.time_for(CELL), cells, both)
}

fn saturated_in(ports: usize, cell_time: Duration, cells: u64, both: bool) -> Time {
    let mut crossbar = Crossbar::new(ports, cells as usize, cell_time);
    for cell in 0..cells {
        for port in 0..if both { ports } else { ports / 2 } {
            // In one direction only, half of the ports receive and do not send.
            let to = if both {
                (port + 1 + cell as usize % (ports - 1)) % ports
            } else {
                port + ports / 2
            };
            crossbar.enqueue(Time::START, port, to, cell).expect("there is room for all");
        }
    }
    let (mut now, mut last) = (Time::START, Time::START);
    while let Some(wake) = crossbar.ready_at() {
        now = now.max(wake);
        while let Some(moved) = crossbar.advance(now) {
            last = last.max(moved.done);
        }
    }
    last
}

/// the switch alone, and what its clients add.
fn switch(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let rate: Rate = constants.get("port_rate")?;
    let fast: Rate = constants.get("port_rate_demonstrated")?;
    const CELLS: u64 = 5_000;
    let capacity = |ports: usize, rate: Rate| {
        let bits = CELL * (CELLS * ports as u64);
        let seconds = saturated(ports, rate, CELLS, true).since_start().as_secs_f64();
        Value::Rate(Rate::from_bits((bits.0 as f64 * 8.0 / seconds) as u64))
    };
    let one_way = saturated(6, rate, CELLS, false);
    let both_ways = saturated(6, rate, CELLS, true);
    Ok(vec![
        count("A-14", on_bus(56, 32).words() as usize, "words"),
        row("A-14/padding-53", on_bus_padding(53, 64)),
        row("A-14/padding-56", on_bus_padding(56, 64)),
        row("A-10/multicast", copies_at_the_edge()),
        row("A-10/back-pressure", credits(rate)),
        row("A-10/classes", classes_at_the_edge(rate)),
        row("A-18", ideal(constants)?),
        row("A-19", in_order(setting)?),
        row("A-22", both_ways == one_way),
        count("A-23", on_bus(56, 64).words() as usize, "words"),
        row("A-23/wider", wider(rate)),
        row("A-24/capacity-four", capacity(4, rate)),
        row("A-24/capacity-six", capacity(6, rate)),
        row("A-24/capacity-six-ports", capacity(6, fast)),
    ])
}

/// the crossbar knows no multicast; a client that sends a copy to each of three has it.
fn copies_at_the_edge() -> bool {
    let mut edge = Edge::new(None);
    (0..100u64).for_each(|cell| edge.send(Class(0), &[1, 2, 3], cell));
    let mut got = [const { Vec::new() }; 4];
    while let Some((to, cell)) = edge.take() {
        got[to].push(cell);
    }
    let whole: Vec<u64> = (0..100).collect();
    got[0].is_empty() && got[1..].iter().all(|cells| *cells == whole)
}

/// three clients send to a fourth, each at the rate of a port. Whether cells are lost without credits, and
/// none with credits for a third of a FIFO, while the receiver's port stays busy.
fn credits(rate: Rate) -> bool {
    const DEPTH: usize = 240;
    const CELLS: u64 = 3000;
    let run = |credits: Option<u64>| {
        // The client at the output takes cells at half the rate at which they cross.
        let cell_time = rate.time_for(CELL);
        let mut crossbar = Crossbar::new(4, DEPTH, cell_time * 2);
        let mut edges: Vec<Edge<u64>> = (0..3).map(|_| Edge::new(credits)).collect();
        for edge in &mut edges {
            (0..CELLS).for_each(|cell| edge.send(Class(0), &[3], cell));
        }
        let (mut now, mut lost, mut got, mut last) = (Time::START, 0u64, 0u64, Time::START);
        while lost + got < 3 * CELLS {
            for (port, edge) in edges.iter_mut().enumerate() {
                if let Some((to, cell)) = edge.take() {
                    lost += u64::from(crossbar.enqueue(now, port, to, (port, cell)).is_err());
                }
            }
            while let Some(moved) = crossbar.advance(now) {
                (got, last) = (got + 1, moved.done);
                edges[moved.item.0].credit(3, 1);
            }
            now += cell_time;
        }
        (lost, got as f64 * (cell_time * 2).as_secs_f64() / last.since_start().as_secs_f64())
    };
    let ((lost, _), (none, busy)) = (run(None), run(Some(DEPTH as u64 / 3)));
    lost > 0 && none == 0 && busy > 0.999
}

/// behind a client's port that is overloaded by half, the first class waits for a cell at most.
fn classes_at_the_edge(rate: Rate) -> bool {
    let cell_time = rate.time_for(CELL);
    let mut edge = Edge::new(None);
    let (mut waited, mut behind) = (Duration::ZERO, 0u64);
    for cell in 0..3000u64 {
        let now = Time::START + cell_time * cell;
        (0..1 + cell % 2).for_each(|_| edge.send(Class(1), &[1], None));
        if cell % 5 == 0 {
            edge.send(Class(0), &[1], Some(now));
        }
        match edge.take() {
            Some((_, Some(sent))) => waited = waited.max(now.saturating_since(sent)),
            _ => behind += 1,
        }
    }
    waited <= cell_time && behind > 0 && edge.waiting() > 1000
}

fn on_bus(cell: u64, bits: u64) -> OnBus {
    OnBus { cell, bits }
}

fn on_bus_padding(cell: u64, bits: u64) -> Value {
    Value::Number(on_bus(cell, bits).padding() as f64, "B")
}

/// how much more ports with a bus of 64 bits carry than those with 32, at the same clock.
fn wider(rate: Rate) -> Value {
    const CELLS: u64 = 5_000;
    let took = |bits: u64| {
        let cell_time = on_bus(CELL.0, bits).time(rate);
        saturated_in(6, cell_time, CELLS, true).since_start().as_secs_f64()
    };
    Value::Number(took(32) / took(64), "times")
}

/// Six hosts each send to another at a host's full rate; whether each gets within 1 % of that.
fn ideal(constants: &Constants) -> Result<bool, Error> {
    let rate: Rate = constants.get("port_rate")?;
    let peak: Rate = constants.get("host_peak")?;
    let mut crossbar = Crossbar::new(6, 256, rate.time_for(CELL));
    let gap = peak.time_for(CELL);
    let (mut got, mut last) = ([0u64; 6], Time::START);
    const CELLS: u64 = 10_000;
    for cell in 0..CELLS {
        let now = Time::START + gap * cell;
        for port in 0..6 {
            let lost = crossbar.enqueue(now, port, (port + 2) % 6, ()).is_err();
            if lost {
                return Ok(false);
            }
        }
        while let Some(at) = crossbar.ready_at().filter(|&at| at < now + gap) {
            while let Some(moved) = crossbar.advance(at.max(now)) {
                got[moved.output] += 1;
                last = last.max(moved.done);
            }
        }
    }
    let ideal = peak.as_bits() as f64;
    let seconds = last.since_start().as_secs_f64();
    Ok(got.iter().all(|&cells| (cells * CELL.0 * 8) as f64 / seconds >= 0.99 * ideal))
}

fn in_order(setting: &Setting<'_>) -> Result<bool, Error> {
    let rate: Rate = setting.constants.get("port_rate")?;
    let fifo: u64 = setting.constants.get("fifo")?;
    let mut random = Stream::new(setting.seed, "crossbar");
    let mut crossbar = Crossbar::new(6, fifo as usize, rate.time_for(CELL));
    let mut last: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    let mut now = Time::START;
    let mut crossed = 0;
    for cell in 1..=50_000u64 {
        now += Duration::from_ns(random.below(250));
        while let Some(moved) = crossbar.advance(now) {
            let (input, cell): (usize, u64) = moved.item;
            let before = last.insert((input, moved.output), cell).unwrap_or(0);
            if before >= cell {
                return Ok(false);
            }
            crossed += 1;
        }
        let (input, output) = (random.below(6) as usize, random.below(6) as usize);
        let _ = crossbar.enqueue(now, input, output, (input, cell));
    }
    Ok(crossed > 10_000)
}

/// the largest lossless burst to a client that does not read.
fn largest_burst(setting: &Setting<'_>) -> Result<Computed, Error> {
    let (mut without, mut with) = (1, 1000_u64);
    while with - without > 1 {
        let middle = (without + with) / 2;
        let lost = setting.run("burst", &[("cells", middle.into())])?.outcome.books.dropped > 0;
        if lost { with = middle } else { without = middle }
    }
    Ok(row("A-20", without as f64))
}

/// channel tables, and the parts of a cell that survive a switch.
fn tables(seed: u64) -> Vec<Computed> {
    let mut random = Stream::new(seed, "tables");
    let mut card = Card::new(1);
    let new: Vec<(u16, u8)> =
        (0..ENTRIES).map(|_| (random.bits() as u16, random.below(16) as u8)).collect();
    let entries: Vec<Entry> = (0..=u16::MAX)
        .zip(&new)
        .map(|(vci, &(new_vci, port))| Entry { vci, new_vci, port, flags: Entry::VALID })
        .collect();
    for chunk in entries.chunks(ENTRIES_MAX) {
        let control = Control { op: Op::Write, sequence: 0, token: 1, entries: chunk.to_vec() };
        let cell = control_cell(VCI_CONTROL, 0, &control).expect("a chunk fits");
        card.receive(Side::A, cell);
    }
    let is_used = |vci: &u16| card.entry(Side::A, *vci).flags & Entry::VALID != 0;
    let mapped = (0..=u16::MAX).filter(is_used).count();
    let read = read_back(&mut card, &entries[..4]);
    let (mut others_stay, mut unnoticed, mut same_check, mut boundary) = (true, true, true, true);
    for _ in 0..10_000 {
        let mut bytes = [0; VUNET_CELL_LEN];
        bytes.iter_mut().for_each(|byte| *byte = random.bits() as u8);
        // Of the second word only the error control and the port carry information.
        (bytes[5], bytes[6], bytes[7]) = (0, 0, bytes[7] & 15);
        let cell = VunetCell(bytes);
        if [VCI_CONTROL, VCI_DROP].contains(&cell.vci()) {
            continue;
        }
        // The error control is random here: nearly always wrong, and not checked.
        let Action::Forward(after) = card.receive(Side::A, cell) else {
            unnoticed = false;
            continue;
        };
        let mut back = after;
        back.rewrite_vci(cell.vci());
        back.set_port(cell.port());
        others_stay &= back == cell && (after.vci(), after.port()) == new[usize::from(cell.vci())];
        boundary &= VunetCell::from_atm(&after.to_atm()).payload() == after.payload()
            && VunetCell::from_atm(&after.to_atm_checked()).header_bytes() == after.header_bytes();
        let sent = data_cell(cell.vci(), 0, true, cell.payload());
        same_check &= sent.to_atm().is_intact();
    }
    vec![
        row("A-27/channels-table", (mapped as f64 / 1024.0, "K channels")),
        row("A-27/bits-stay", others_stay),
        row("A-28/damaged-header", unnoticed),
        row("A-28/error-control", same_check),
        row("A-29", read),
        row("A-119", boundary),
    ]
}

fn read_back(card: &mut Card, wanted: &[Entry]) -> bool {
    let to = Entry { vci: 0, new_vci: 99, port: 1, flags: 0 };
    let entries = [&[to], wanted].concat();
    let read = Control { op: Op::Read, sequence: 9, token: 1, entries };
    let cell = control_cell(VCI_CONTROL, 0, &read).expect("four entries and the way back fit");
    match card.receive(Side::A, cell) {
        Action::Answer(answer) => {
            let reply = Control::parse(answer.payload());
            answer.vci() == 99 && reply.is_ok_and(|reply| reply.entries == wanted)
        }
        _ => false,
    }
}

/// application cells through three switches, without time.
fn signalling(seed: u64) -> Result<Vec<Computed>, Error> {
    let mut site = Site::new(3);
    site.client(0);
    site.link(0, 1);
    site.link(1, 2);
    site.client(2);
    let port = |link: usize, end: usize| site.ends[link][end].1;
    let (host, peer) = (site.clients[0].1, site.clients[1].1);
    let hops = vec![Hop { ahead: port(1, 0), back: host }, Hop { ahead: peer, back: port(0, 1) }];
    let route = Route { first: port(0, 0), hops, last_back: port(1, 1) };
    let mut file = SharedFile::new(0, Block::of(0, 2).map_err(failed)?);
    let mut connection = Connection::new(route, 1, &mut file).map_err(failed)?;
    let (vci, first) = connection.send_on();
    let data = data_cell(vci, first, true, &[7; 48]);
    let before = site.send(0, data);
    // A switch reads only the port: an unknown channel crosses a switch, but not a link.
    let beside = site.client(0).ok_or(failed("a switch has too few ports"))?;
    let to_beside = site.send(0, data_cell(vci, site.clients[beside].1, true, &[7; 48]));
    let by_port = matches!(to_beside[..], [End::Client(client, _)] if client == beside)
        && before == [End::Lost("no table entry")];
    let mut train = connection.open();
    train.push(data);
    let heard = site.converse(0, train);
    let arrived = heard.iter().find(|(at, _)| *at == 1).map(|(_, cell)| *cell);
    let mapped = arrived.is_some_and(|cell| {
        cell.vci() == connection.peer_hears_on()
            && cell.vci() != vci
            && cell.payload() == data.payload()
    });
    Ok(vec![
        row("A-17", by_port),
        row("A-25", mapped),
        row("A-69", arrived.is_some()),
        count("A-70", collisions(seed)?, "channels"),
    ])
}

/// Applications on 22 hosts take and release channels in random order; others write the file between an
/// application's read and its write.
fn collisions(seed: u64) -> Result<usize, Error> {
    const HOSTS: usize = 22;
    const APPLICATIONS: usize = 8;
    let mut random = Stream::new(seed, "channels");
    let mut files = (0..HOSTS)
        .map(|host| Ok(SharedFile::new(host as u16, Block::of(host, HOSTS)?)))
        .collect::<Result<Vec<_>, String>>()
        .map_err(failed)?;
    let mut choices: Vec<Option<Choice>> = vec![None; HOSTS * APPLICATIONS];
    let mut held: Vec<Vec<u16>> = vec![Vec::new(); HOSTS * APPLICATIONS];
    let (mut taken, mut collisions) = (HashSet::new(), 0);
    for _ in 0..100_000 {
        let place = random.below((HOSTS * APPLICATIONS) as u64) as usize;
        let (file, who) = (&mut files[place / APPLICATIONS], (place % APPLICATIONS) as u32);
        if random.chance(0.3) && !held[place].is_empty() {
            let vci = held[place].swap_remove(0);
            file.give_back(who, &[vci]).map_err(|refusal| failed(format!("{refusal:?}")))?;
            taken.remove(&vci);
        } else if let Some(choice) = choices[place].take() {
            if file.take(who, &choice).is_ok() {
                collisions += choice.vcis.iter().filter(|&&vci| !taken.insert(vci)).count();
                held[place].extend(choice.vcis);
            }
        } else {
            choices[place] = file.choose(1 + random.below(20) as usize);
        }
    }
    Ok(collisions)
}
