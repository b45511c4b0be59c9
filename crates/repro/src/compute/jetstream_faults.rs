//! Jetstream's ring, a hub, and a port for each host under the same faults (J-61); a shared ring that carries cells
//! under other access methods (J-65); and what lost cells do to PDUs that travel in cells, or whole (J-27).

use super::jetstream::ring_options;
use super::{Computed, Setting, Value, row};
use crate::machines::ring::slotted::{Cell, Options as Slots, Release, Slotted};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Duration, Packet, Rate, Stream, Time};
use lastmeter_lan::timed_token::faults::{Faults, Part, Rates, Wiring};
use lastmeter_lan::timed_token::medium::{Class, Medium};
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_wire::aal::aal5::{self, Segmenter};
use lastmeter_wire::aal::reassembly::{CircuitOptions, Event, Options, Reassembler};
use lastmeter_wire::atm::{Circuit, Header, Interface};
use lastmeter_wire::jetstream::{self, Frame};

const NAME: &str = "jetstream-faults";
const WIRINGS: [Wiring; 3] = [Wiring::Ring, Wiring::Hub, Wiring::Ports];
/// Length of a cell (J-65).
const CELL: Bytes = Bytes(53);
/// Length of a slotted ring's run in cell times: 44 ms.
const STEPS: u64 = 100_000;

/// Availability of each wiring, and what single faults disconnected.
struct Served {
    /// Share of time for which a host reached the switch, over all hosts.
    shares: [f64; 3],
    /// Fewest and most hosts that a single fault disconnected; faults of the hub itself are excluded.
    taken: [(usize, usize); 3],
    /// Most hosts that a fault disconnected besides the one whose part failed.
    others: [usize; 3],
    /// Whether a host on the ring was ever missing behind a working hub.
    beaten: bool,
}

fn count(reach: &[bool]) -> usize {
    reach.iter().filter(|&&works| works).count()
}

fn rates(constants: &Constants) -> Result<Rates, Error> {
    Ok(Rates { between: constants.get("between")?, repair: constants.get("repair")? })
}

/// Lets the parts of this many hosts fail and recover, and evaluates all wirings after every change.
fn serve(hosts: usize, rates: Rates, length: Duration, seed: u64) -> Served {
    let mut faults = Faults::new(hosts, rates, seed, Time::START);
    let end = Time::START + length;
    let mut served =
        Served { shares: [0.0; 3], taken: [(usize::MAX, 0); 3], others: [0; 3], beaten: false };
    let (mut now, mut broken) = (Time::START, 0_usize);
    let mut reach = WIRINGS.map(|wiring| faults.reach(wiring));
    while now < end {
        let next = faults.ready_at().min(end);
        let seconds = (next - now).as_secs_f64();
        for (share, reach) in served.shares.iter_mut().zip(&reach) {
            *share += seconds * count(reach) as f64;
        }
        now = next;
        while let Some((part, breaks)) = faults.advance(now) {
            let after = WIRINGS.map(|wiring| faults.reach(wiring));
            for (at, wiring) in WIRINGS.into_iter().enumerate() {
                // A part that this wiring lacks disconnects nothing.
                let has = match part {
                    Part::Hub => false,
                    Part::Link(0) => wiring == Wiring::Ring,
                    _ => true,
                };
                let lost = count(&reach[at]).saturating_sub(count(&after[at]));
                if breaks && has && broken == 0 {
                    let (least, most) = &mut served.taken[at];
                    (*least, *most) = ((*least).min(lost), (*most).max(lost));
                    served.others[at] = served.others[at].max(lost.saturating_sub(1));
                }
            }
            broken = if breaks { broken + 1 } else { broken - 1 };
            let hub = !faults.is_broken(Part::Hub);
            served.beaten |=
                hub && after[0].iter().zip(&after[1]).any(|(&ring, &hub)| ring && !hub);
            reach = after;
        }
    }
    let whole = length.as_secs_f64() * hosts as f64;
    served.shares = served.shares.map(|share| share / whole);
    served
}

/// The same in closed form: every required part works.
fn by_hand(wiring: Wiring, hosts: usize, part: f64) -> f64 {
    let needed = match wiring {
        Wiring::Ring => 2 * hosts + 1,
        Wiring::Hub => 3,
        Wiring::Ports => 2,
    };
    part.powi(needed as i32)
}

/// Jain's fairness index over stations that always have cells to send, and whether no synchronous rotation
/// exceeded twice the target (J-65).
fn cells(setting: &Setting<'_>) -> Result<(f64, bool, f64), Error> {
    let constants = setting.constants;
    let hosts: u64 = constants.get("hosts")?;
    let rate: Rate = constants.get("rate")?;
    let target: Duration = constants.get("rotation_target")?;
    let hops = vec![constants.get("hop")?; hosts as usize + 1];
    let options = ring_options(target, rate, hops, vec![Duration::ZERO; hosts as usize + 1], 4096);
    let failed = |message| Error::Computation { name: NAME, message };
    let mut ring = Medium::new(options, Time::START).map_err(failed)?;
    let end = Time::START + target * 200;
    let (mut now, mut sent) = (Time::START, vec![0_u64; hosts as usize + 1]);
    while now < end {
        for station in 1..=hosts as usize {
            while ring.enqueue(now, station, Class::Asynchronous, Packet::new(CELL)).is_ok() {}
        }
        now = ring.ready_at().map_or(end, |wake| wake.max(now));
        ring.advance(now, |one| sent[one.station] += one.packet.len.0);
    }
    let carried: u64 = sent.iter().sum();
    let squares: f64 = sent[1..].iter().map(|&sent| (sent as f64).powi(2)).sum();
    let fair = (carried as f64).powi(2) / (hosts as f64 * squares);
    let used = carried as f64 * 8.0 / (end - Time::START).as_secs_f64() / rate.as_bits() as f64;
    Ok((fair, ring.rotations.max < target * 2 && sent[1..].iter().all(|&sent| sent > 0), used))
}

/// Cells per step of each host on a slotted ring if all always send: to random hosts, or all to the switch, station 0.
fn slotted(setting: &Setting<'_>, release: Release, to_switch: bool) -> Result<Vec<f64>, Error> {
    let constants = setting.constants;
    let stations = constants.get::<u64>("hosts")? as usize + 1;
    let (rate, hop): (Rate, Duration) = (constants.get("rate")?, constants.get("hop")?);
    let slots = ((hop * stations as u64).as_ps() / rate.time_for(CELL).as_ps()) as usize;
    let failed = |message| Error::Computation { name: NAME, message };
    let options = Slots { stations, slots, release, cells_max: 4 };
    let mut ring = Slotted::new(options).map_err(failed)?;
    let mut random = Stream::new(setting.seed, "slotted");
    let mut arrived = vec![0_u64; stations];
    for _ in 0..STEPS {
        for from in 0..stations {
            let other = (from + 1 + random.below(stations as u64 - 1) as usize) % stations;
            let to = if to_switch { 0 } else { other };
            // A cell that finds no room waits outside.
            let _ = ring.enqueue(Cell { from, to });
        }
        ring.step(|cell| arrived[cell.from] += 1);
    }
    Ok(arrived.into_iter().map(|cells| cells as f64 / STEPS as f64).collect())
}

/// J-65: the access methods for fixed-size cells that the document cites.
fn slots(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let all = |shares: &[f64]| shares.iter().sum::<f64>();
    let fair = |shares: &[f64]| {
        let mean = all(shares) / shares.len() as f64;
        shares.iter().all(|share| (share / mean - 1.0).abs() < 0.05)
    };
    let source = slotted(setting, Release::Source, false)?;
    let destination = slotted(setting, Release::Destination(None), false)?;
    let free = slotted(setting, Release::Destination(None), true)?;
    let cells: u64 = setting.constants.get("quota")?;
    let quota = slotted(setting, Release::Destination(Some(cells)), true)?;
    let number = |item, value, unit| Computed::new("J-65", item, Value::Number(value, unit));
    Ok(vec![
        row(
            "J-65/cells-share",
            fair(&source) && fair(&destination) && fair(&quota[1..]) && all(&quota) > 0.9,
        ),
        number("slots emptied by their source: in use", 100.0 * all(&source), "%"),
        number("slots emptied by their destination: cells a slot", all(&destination), "cells"),
        number("all to the switch: share of the first host", 100.0 * free[1] / all(&free), "%"),
        number("the same with quotas", 100.0 * quota[1] / all(&quota), "%"),
    ])
}

/// What a ring of cells and Jetstream make of the same PDUs when each cell's worth of the line is lost with the same
/// probability (J-27): PDUs in a hundred that arrive, and PDUs that lack cells, of cells; and the same of frames.
fn missing(setting: &Setting<'_>) -> Result<[(f64, f64); 2], Error> {
    const PDUS: usize = 10_000;
    /// 31 cells.
    const LEN: usize = 1460;
    let lost = 1.0 / setting.constants.get::<u64>("cell_lost_in")? as f64;
    let failed = |error: lastmeter_wire::Error| Error::Computation {
        name: NAME,
        message: error.to_string(),
    };
    let circuit = Circuit { vpi: 0, vci: jetstream::vci(3, 9).map_err(failed)? };
    let header = Header::data(circuit);
    let segmenter = Segmenter::new(&header, Interface::Uni).map_err(failed)?;
    let mut reassembler = Reassembler::new(Options::default_at(Interface::Uni));
    let faulty = CircuitOptions { deliver_faulty: true, ..CircuitOptions::AAL5 };
    reassembler.open(circuit, faulty).map_err(failed)?;
    let mut random = Stream::new(setting.seed, "missing cells");
    let mut of_cells = (0u64, 0u64);
    let mut of_frames = (0u64, 0u64);
    for number in 0..PDUS {
        let payload: Vec<u8> = (0..LEN).map(|at| (at * 7 + number) as u8).collect();
        let mut cells = Vec::new();
        segmenter.segment(&payload, 0, &mut cells).map_err(failed)?;
        let kept: Vec<bool> = cells.iter().map(|_| !random.chance(lost)).collect();
        for (cell, _) in cells.iter().zip(&kept).filter(|(_, kept)| **kept) {
            match reassembler.receive(Time::START, cell) {
                Event::Pdu(pdu) if pdu.fault.is_none() && pdu.payload == payload => of_cells.0 += 1,
                Event::Pdu(_) | Event::Lost(_) => of_cells.1 += 1,
                Event::Held => {}
            }
        }
        // The same losses hit the frame as a whole.
        if kept.iter().all(|&kept| kept) {
            let pdu = aal5::emit(&payload, 0).map_err(failed)?;
            let bytes = jetstream::emit_aal5(3, &header, &pdu).map_err(failed)?;
            let frame = Frame::parse(&bytes).map_err(failed)?;
            match aal5::parse(frame.pdu) {
                Ok(pdu) if pdu.payload == payload => of_frames.0 += 1,
                _ => of_frames.1 += 1,
            }
        }
    }
    Ok([of_cells, of_frames].map(|(whole, lacking)| {
        (100.0 * whole as f64 / PDUS as f64, 100.0 * lacking as f64 / PDUS as f64)
    }))
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let hosts = constants.get::<u64>("hosts")? as usize;
    let served = serve(hosts, rates(constants)?, constants.get("length")?, setting.seed);
    let [ring, hub, ports] = served.shares;
    let [of_ring, of_hub, _] = served.taken;
    let percent = |share: f64| Value::Number(100.0 * share, "%");
    let number = |number: usize| Value::Number(number as f64, "hosts");
    let sets = |sets: usize| Value::Number(sets as f64, "sets");
    let (fair, bounded, used) = cells(setting)?;
    let cell = |key: &str, value| row(key, value);
    let mut rows = vec![
        cell("J-61/fewest-hosts", number(of_ring.0)),
        cell("J-61/most-hosts", number(of_hub.1)),
        cell("J-61/fault-takes", number(served.others[2])),
        row("J-61/ring-never", !served.beaten),
        row("J-61/ports-serve", ports > hub && hub > ring),
        cell("J-61/host-reaches", percent(ring)),
        cell("J-61/host-reaches-switch", percent(hub)),
        cell("J-61/host-reaches-switch-port", percent(ports)),
        cell("J-61/sets-transceivers", sets(transceivers(Wiring::Ring, hosts))),
        cell("J-61/sets-transceivers-hub", sets(transceivers(Wiring::Hub, hosts))),
        row("J-65/cells-share-ring", bounded && fair > 0.95 && used > 0.9),
    ];
    rows.extend(slots(setting)?);
    let [of_cells, of_frames] = missing(setting)?;
    let per_cent = |number: f64| Value::Number(number, "%");
    rows.extend([
        row("J-27/cells-arrive", per_cent(of_cells.0)),
        row("J-27/cells-lack", of_cells.1 > 10.0),
        row("J-27/frames-arrive", per_cent(of_frames.0)),
        row("J-27/frames-lack", per_cent(of_frames.1)),
    ]);
    Ok(rows)
}

/// Transceivers: one at each end of each link (J-05). A hub inside the switch's port needs none towards the switch.
fn transceivers(wiring: Wiring, hosts: usize) -> usize {
    match wiring {
        Wiring::Ring => hosts + 1,
        Wiring::Hub | Wiring::Ports => 2 * hosts,
    }
}

/// Reachability over time, and availability by number of hosts.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let constants = setting.constants;
    let hosts = constants.get::<u64>("hosts")? as usize;
    let (rates, length): (Rates, Duration) = (rates(constants)?, constants.get("length")?);
    let names = ["ring", "hub", "a port for each host"];
    // Three mean intervals between faults of each part.
    let shown = Time::START + rates.between * 3;
    let mut faults = Faults::new(hosts, rates, setting.seed, Time::START);
    let mut curves: [Vec<(f64, f64)>; 3] = [const { Vec::new() }; 3];
    let mut now = Time::START;
    while now < shown {
        for (curve, wiring) in curves.iter_mut().zip(WIRINGS) {
            curve.push(((now - Time::START).as_secs_f64(), count(&faults.reach(wiring)) as f64));
        }
        now = faults.ready_at();
        for (curve, wiring) in curves.iter_mut().zip(WIRINGS) {
            // Until then unchanged: a step, not a slope.
            curve.push(((now - Time::START).as_secs_f64(), count(&faults.reach(wiring)) as f64));
        }
        while faults.advance(now).is_some() {}
    }
    let series = |(name, points): (&str, Vec<(f64, f64)>)| Series { name: name.to_owned(), points };
    let mut by_number: [Vec<(f64, f64)>; 3] = [const { Vec::new() }; 3];
    let mut expected: [Vec<(f64, f64)>; 3] = [const { Vec::new() }; 3];
    for number in 1..=hosts {
        let shares = serve(number, rates, length / 10, setting.seed).shares;
        for (at, wiring) in WIRINGS.into_iter().enumerate() {
            by_number[at].push((number as f64, 100.0 * shares[at]));
            let share = by_hand(wiring, number, rates.availability());
            expected[at].push((number as f64, 100.0 * share));
        }
    }
    let mut shares: Vec<Series> = names.into_iter().zip(by_number).map(series).collect();
    let [ring, ..] = expected;
    shares.push(series(("ring, by hand", ring)));
    Ok(vec![
        Plot::new(
            "Hosts that reach the switch (§3.5)",
            "The same faults of hosts and links: any fault takes down the ring, a hub bypasses it.",
            ("time, s", "hosts"),
            names.into_iter().zip(curves).map(series).collect(),
        )
        .over_time(),
        Plot::new(
            "Availability of the switch to a host, by number of hosts",
            "Each host adds two parts that can take a ring down; hub and port do not depend on \
             others.",
            ("hosts", "share of time, %"),
            shares,
        ),
    ])
}
