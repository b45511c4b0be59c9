//! The test set-up of the Smart Port Card (D-106), and the card behind an FPX (D-14 to D-16).

use super::spc::Card;
use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::machines::switch::cells::{CellSwitch, Left};
use lastmeter_base::{Bytes, Duration, Packet, Rate, StageId, Time};
use lastmeter_engine::{PortId, ResourceId};
use lastmeter_host::machine::Output;
use lastmeter_host::port_processor::fpx::{
    BANKS_A_REGION, Classified, Control, Fpx, NODES_MOST, Nid, NidPort, REGIONS, fipl,
};
use lastmeter_host::port_processor::{Machine, Names, Side};

/// Circuits that copy and recycle cells (sections 6.1 and 6.2).
const CIRCUITS: u32 = 3;
/// Ports of the set-up (Fig 9): the source's, the measured ones, and the recycling one.
const SENDER: u16 = 4;
const INPUT: u16 = 2;
const OUTPUT: u16 = 3;
const BACK: u16 = 7;
const RECYCLING: u16 = 6;
/// A cell with its header.
const CELL: Bytes = Bytes(53);
/// Length of a run, and engines of the FPX.
const LENGTH: Duration = Duration::from_ms(100);
const ENGINES: usize = 8;
/// Our threshold for "the same".
const SAME: f64 = 0.01;

fn failed(message: String) -> Error {
    Error::Computation { name: "spc", message }
}

fn port(card: &Card) -> Machine {
    let names = Names::of([0, 1, 2].map(ResourceId), [0, 1, 2, 3, 4, 5].map(StageId));
    Machine::new(card.options.clone(), names)
}

/// A switch whose circuits multiply the sender's cells by 2^n, and lead through the ports under test.
fn switch(circuits: u32, rate: Rate) -> Result<CellSwitch<u64>, String> {
    let mut switch = CellSwitch::new(8, RECYCLING, rate.time_for(CELL));
    for at in 0..circuits as u16 {
        let from = if at == 0 { (SENDER, 40) } else { (RECYCLING, 40 + at) };
        let last = u32::from(at) + 1 == circuits;
        let to = if last { (INPUT, 60) } else { (RECYCLING, 41 + at) };
        switch.connect(from, &[to, to])?;
    }
    // The input side forwards to the output side, whose cells return to be counted.
    switch.connect((INPUT, 61), &[(OUTPUT, 62)])?;
    switch.connect((BACK, 63), &[(SENDER, 64)])?;
    Ok(switch)
}

/// Counters and true values: cells per second sent to the port under test, forwarded by its input side, and
/// forwarded by the output side.
struct Measured {
    counted: [f64; 3],
    real: [f64; 3],
}

/// Single-cell packets, evenly spaced, multiplied, and forwarded by two cards.
fn measure(card: &Card, offered: u64, core: Rate) -> Result<Measured, Error> {
    let mut switch = switch(CIRCUITS, core).map_err(failed)?;
    let (mut input, mut output) = (port(card), port(card));
    let gap = Duration::from_ps(1_000_000_000_000 * 2_u64.pow(CIRCUITS) / offered);
    let end = Time::START + LENGTH;
    let step = Duration::from_us(1);
    let (mut now, mut next, mut sent) = (Time::START, Time::START, 0_u64);
    let (mut to_input, mut forwarded, mut returned) = (0_u64, 0_u64, 0_u64);
    let first = [SENDER, INPUT, BACK].map(|port| switch.read(now, port));
    while now < end {
        while next <= now {
            switch.receive(next, (SENDER, 40), sent);
            (sent, next) = (sent + 1, next + gap);
        }
        for Left { at, on, .. } in switch.run_until(now) {
            let packet = Packet::new(Bytes(40));
            match on.0 {
                INPUT => {
                    to_input += 1;
                    input.arrive(at.max(now), Side::Input, packet);
                }
                OUTPUT => output.arrive(at.max(now), Side::Output, packet),
                _ => {}
            }
        }
        let (mut through, mut out) = (0, 0);
        let sends = |one: &Output| matches!(one, Output::Send(PortId(0), _));
        input.advance(now);
        through += input.outputs().filter(sends).count() as u64;
        output.advance(now);
        out += output.outputs().filter(sends).count() as u64;
        (0..through).for_each(|_| switch.receive(now, (INPUT, 61), 0));
        (0..out).for_each(|_| switch.receive(now, (BACK, 63), 0));
        (forwarded, returned) = (forwarded + through, returned + out);
        now += step;
    }
    let last = [SENDER, INPUT, BACK].map(|port| switch.read(now, port));
    let rate = |at: usize| switch.rate(first[at], last[at]);
    let seconds = LENGTH.as_secs_f64();
    Ok(Measured {
        // Each cell that the source sends is multiplied.
        counted: [rate(0) * f64::from(2_u32.pow(CIRCUITS)), rate(1), rate(2)],
        real: [to_input, forwarded, returned].map(|cells| cells as f64 / seconds),
    })
}

/// Whether cells of two multi-cell packets interleave after multiplication.
fn interleaves(core: Rate) -> Result<bool, Error> {
    let mut switch = switch(1, core).map_err(failed)?;
    // A packet of two cells, marked 0 and 1.
    switch.receive(Time::START, (SENDER, 40), 0);
    switch.receive(Time::START, (SENDER, 40), 1);
    let left = switch.run_until(Time::START + Duration::from_ms(1));
    let cells: Vec<u64> = left.iter().map(|one| one.item).collect();
    Ok(cells != [0, 1, 0, 1])
}

/// Traffic past and through a card behind an FPX, if one packet in `one_in` is active: forwarded shares of
/// plain and active packets, and active packets per second.
fn behind_fpx(card: &Card, offered: u64, one_in: u64) -> [f64; 3] {
    let mut fpx = Fpx::new(fipl(ENGINES), NODES_MOST, StageId(6));
    let mut port = port(card);
    let gap = Duration::from_ps(1_000_000_000_000 / offered);
    let count = LENGTH.as_ps() / gap.as_ps();
    let (mut plain, mut active) = ((0_u64, 0_u64), (0_u64, 0_u64));
    for at in 0..count {
        let now = Time::START + gap * at;
        let mut packet = Packet::new(Bytes(40));
        packet.class = u8::from(at % one_in == 0);
        match packet.class {
            0 => plain.0 += 1,
            _ => active.0 += 1,
        }
        fpx.arrive(now, packet);
        for one in fpx.outputs() {
            match one {
                Classified::Plain(_) => plain.1 += 1,
                Classified::Active(packet) => port.arrive(now, Side::Classified, packet),
                _ => {}
            }
        }
        port.advance(now);
        let sent = port.outputs().filter(|one| matches!(one, Output::Send(..))).count();
        active.1 += sent as u64;
    }
    let share = |(of, done): (u64, u64)| done as f64 / of.max(1) as f64;
    [share(plain), share(active), active.1 as f64 / LENGTH.as_secs_f64()]
}

/// Whether each port routes by circuit with its own table, all four ports reach each other, and a module is
/// loaded without interrupting another one's flow.
fn nid() -> Result<(bool, bool, bool), Error> {
    let mut nid = Nid::default();
    for region in 0..REGIONS {
        nid.control(Control::Load { offset: 0, bytes: vec![1] }).map_err(failed)?;
        nid.control(Control::Reprogram { region }).map_err(failed)?;
    }
    let (mut reach, mut own) = (true, true);
    for from in NidPort::ALL {
        for (vci, to) in (40..).zip(NidPort::ALL) {
            let others = NidPort::ALL.iter().filter(|&&port| port != from);
            let before: Vec<_> = others.clone().map(|&port| nid.route(port, vci)).collect();
            nid.control(Control::Route { from, vci, to: Some(to) }).map_err(failed)?;
            reach &= nid.route(from, vci) == Some(to);
            own &= before == others.map(|&port| nid.route(port, vci)).collect::<Vec<_>>();
            nid.control(Control::Route { from, vci, to: None }).map_err(failed)?;
        }
    }
    let flow = Control::Route { from: NidPort::Line, vci: 50, to: Some(NidPort::Region0) };
    nid.control(flow).map_err(failed)?;
    let mut undisturbed = true;
    for piece in 0..100 {
        nid.load(piece * 48, vec![2; 48]).map_err(failed)?;
        undisturbed &= nid.route(NidPort::Line, 50) == Some(NidPort::Region0);
    }
    nid.control(Control::Reprogram { region: 1 }).map_err(failed)?;
    undisturbed &= nid.route(NidPort::Line, 50) == Some(NidPort::Region0)
        && nid.regions[1].as_ref().is_some_and(|module| module.program.len() == 4800)
        && nid.regions[0].as_ref().is_some_and(|module| module.program.len() == 1);
    Ok((reach, own, undisturbed))
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let card = Card::read(constants)?;
    let core: Rate = constants.get("core")?;
    let most: u64 = constants.get("offered_most")?;
    let measured = measure(&card, most, core)?;
    let number = |value: f64, unit| Value::Number(value, unit);
    let near = |pair: (&f64, &f64)| (pair.0 / pair.1 - 1.0).abs() < SAME;
    let (reach, own, undisturbed) = nid()?;
    let few = behind_fpx(&card, most, 10);
    let many = behind_fpx(&card, most, 2);
    let alone = measured.real[1];
    let copies = measured.counted[0] / (most as f64 / f64::from(2_u32.pow(CIRCUITS)));
    let banks = REGIONS * BANKS_A_REGION;
    Ok(vec![
        row("D-106/copies-cell", number(copies.round(), "copies")),
        row("D-106/packets-second", number(measured.counted[0] / 1e3, "kpps")),
        row("D-106/counters-cell", measured.counted.iter().zip(&measured.real).all(near)),
        row("D-106/cells-two", interleaves(core)?),
        row(
            "D-14/plain-packets",
            few[0] > 1.0 - SAME && many[0] > 1.0 - SAME && alone < 0.2 * most as f64,
        ),
        row("D-14/ten-goes", few[1] > 1.0 - SAME),
        row("D-14/card-rate", number(many[2] / 1e3, "kpps")),
        row("D-15/ports-nid", number(NidPort::ALL.len() as f64, "ports")),
        row("D-15/reaches", reach),
        row("D-15/table-belongs", own),
        row("D-15/module-loaded", undisturbed),
        row("D-16", number(banks as f64, "banks")),
    ])
}
