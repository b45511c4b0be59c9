//! Striping: the four freedoms of the reference model, and bridges. Runs of the environment of
//! Fig 8 are in `experiments/striping/repro.toml`.

use super::vunet::failed;
use super::{Computed, Setting, row};
use crate::Error;
use lastmeter_base::Stream;
use lastmeter_lan::stripe::merge::{Merger, Out};
use lastmeter_lan::stripe::split::{Cell, Sent, Splitter};
use lastmeter_lan::stripe::{Balance, Sync, Unit};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::atm::{CELL_LEN, Cell as AtmCell, Circuit, Header, Interface};

const UNITS: [Unit; 3] = [Unit::Cell, Unit::Pdu, Unit::Flow];
const BALANCES: [Balance; 2] = [Balance::RoundRobin, Balance::Surplus { quantum: 500 }];
const SYNCS: [Sync; 4] = [Sync::None, Sync::Numbers, Sync::Markers { every: 16 }, Sync::Pdu];

/// Channels with individual delays, in cell times, between a sender and a receiver.
struct Channels {
    splitter: Splitter,
    merger: Merger<u64>,
    delays: Vec<u64>,
    busy: Vec<u64>,
    /// Items in flight: arrival time, order, stripe, item, flow, and whether it ends a PDU.
    flying: Vec<(u64, usize, usize, Sent, u64, bool)>,
    items: u64,
}

impl Channels {
    fn new(
        stripes: usize,
        (unit, balance, sync): (Unit, Balance, Sync),
        delays: Vec<u64>,
    ) -> Result<Channels, Error> {
        let fifo = if sync == Sync::Numbers { 128 / stripes } else { 1 << 16 };
        let merger = Merger::new(stripes, unit, balance, sync, fifo).map_err(failed)?;
        let splitter = Splitter::new(stripes, unit, balance, sync);
        let (busy, flying) = (vec![0; stripes], Vec::new());
        Ok(Channels { splitter, merger, delays, busy, flying, items: 0 })
    }

    fn send(&mut self, now: u64, cell: Cell, lost: impl Fn(u64) -> bool) {
        let stripes = self.busy.len() as u64;
        for (stripe, sent) in self.splitter.send(cell) {
            self.busy[stripe] = (self.busy[stripe] + stripes).max(now + stripes);
            let at = self.busy[stripe] + self.delays[stripe];
            let is_cell = matches!(sent, Sent::Cell(_));
            if !(is_cell && lost(self.items)) {
                self.flying.push((at, self.flying.len(), stripe, sent, self.items, cell.last));
            }
            self.items += u64::from(is_cell);
        }
    }

    fn receive(mut self) -> (Vec<Out<u64>>, u64) {
        self.flying.sort_unstable_by_key(|&(at, place, ..)| (at, place));
        let mut out = Vec::new();
        for (_, _, stripe, sent, item, last) in self.flying {
            match sent {
                Sent::Marker { round } => self.merger.marker(stripe, round),
                Sent::Cell(_) => self.merger.cell(stripe, sent, item, CELL_LEN as u64, last),
            }
            out.extend(std::iter::from_fn(|| self.merger.take()));
        }
        (out, self.merger.reports)
    }
}

fn cells(out: &[Out<u64>]) -> Vec<u64> {
    let cell = |one: &Out<u64>| if let Out::Cell(cell) = one { Some(*cell) } else { None };
    out.iter().filter_map(cell).collect()
}

/// Sends cells of one flow, in PDUs of ten cells, over stripes with this skew.
fn pass(
    setting: (Unit, Balance, Sync),
    delays: &[u64],
    lost: impl Fn(u64) -> bool,
    count: u64,
) -> Result<(Vec<u64>, u64), Error> {
    let mut channels = Channels::new(delays.len(), setting, delays.to_vec())?;
    for cell in 0..count {
        let last = cell % 10 == 9;
        channels.send(cell, Cell { len: CELL_LEN as u64, last, flow: 1 }, &lost);
    }
    let (out, reports) = channels.receive();
    Ok((cells(&out), reports))
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    Ok([bridges(setting.seed)?, freedoms(setting)?].concat())
}

/// cells into and out of an ATM network.
fn bridges(seed: u64) -> Result<Vec<Computed>, Error> {
    let mut random = Stream::new(seed, "bridge");
    let mut same = true;
    for _ in 0..10_000 {
        let mut payload = [0; 48];
        payload.iter_mut().for_each(|byte| *byte = random.bits() as u8);
        let header =
            Header::data(Circuit { vpi: random.below(256) as u16, vci: random.bits() as u16 });
        let cell = AtmCell::new(&header, Interface::Uni, &payload);
        let cell = cell.map_err(|error| failed(error.to_string()))?;
        let inside = VunetCell::from_atm(&cell);
        same &= inside.to_atm() == cell && inside.to_atm_checked() == cell;
    }
    Ok(vec![row("A-55", same)])
}

///
fn freedoms(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let stripes: u64 = setting.constants.get("stripes")?;
    let skew_max: u64 = setting.constants.get("skew_max")?;
    let mut random = Stream::new(setting.seed, "skew");
    let mut draw = |most: u64| (0..stripes).map(|_| random.below(most + 1)).collect::<Vec<u64>>();
    // Without synchronisation, skew alone reorders cells.
    let (plain, _) = pass((Unit::Cell, BALANCES[0], Sync::None), &[0, 9, 30, 50], |_| false, 1000)?;
    let reorders = plain.windows(2).any(|pair| pair[0] > pair[1]);
    // All compatible combinations, each with random skews.
    let (mut in_order, mut combinations) = (true, 0);
    for unit in UNITS {
        for balance in BALANCES {
            for sync in SYNCS {
                let ordered = (unit == Unit::Flow) == (sync == Sync::None);
                // Sequence numbers and PDUs are per cell; a quantum exceeds a cell only with markers.
                let with_numbers = unit == Unit::Cell && balance == BALANCES[0];
                if !ordered || (matches!(sync, Sync::Numbers | Sync::Pdu) && !with_numbers) {
                    continue;
                }
                combinations += 1;
                for _ in 0..20 {
                    let most = if sync == Sync::Numbers { 25 } else { skew_max };
                    let (got, reports) = pass((unit, balance, sync), &draw(most), |_| false, 1000)?;
                    in_order &= reports == 0 && got == (0..1000).collect::<Vec<_>>();
                }
            }
        }
    }
    let mut resynchronised = true;
    let mut reported = true;
    for lost in 100..200 {
        let lose = |cell: u64| cell == lost;
        for sync in [Sync::Numbers, Sync::Markers { every: 16 }, Sync::Pdu] {
            let setting = (Unit::Cell, BALANCES[0], sync);
            let (got, reports) = pass(setting, &draw(20), lose, 1000)?;
            reported &= reports >= 1;
            // From two marker periods after the loss, all is in order to the end.
            let tail: Vec<u64> = got.iter().copied().filter(|&cell| cell >= lost + 128).collect();
            let all: Vec<u64> = (lost + 128..1000).collect();
            let whole = tail.len() + 20 >= all.len();
            resynchronised &= whole && tail.windows(2).all(|pair| pair[0] < pair[1]);
        }
    }
    // Both ends split and merge: an inner trunk within one stripe of an outer one.
    let mixed = mixed(&draw(skew_max), &draw(skew_max))?;
    Ok(vec![
        row("A-56", reorders),
        row("A-58", mixed && in_order),
        row("A-60", in_order),
        row("A-61/combinations", (f64::from(combinations), "combinations")),
        row("A-61/lost-cell", reported),
        row("A-61/order-found", resynchronised),
    ])
}

/// An outer trunk between hosts whose first stripe is itself striped within the network.
fn mixed(outer: &[u64], inner: &[u64]) -> Result<bool, Error> {
    let setting = (Unit::Cell, Balance::RoundRobin, Sync::Markers { every: 16 });
    let mut channels = Channels::new(outer.len(), setting, outer.to_vec())?;
    let mut within = Channels::new(inner.len(), setting, inner.to_vec())?;
    for cell in 0..1000 {
        channels.send(cell, Cell { len: CELL_LEN as u64, last: false, flow: 1 }, |_| false);
    }
    // Whatever is sent on stripe 0, markers included, is a cell of the inner trunk.
    let (mut striped, mut others) = (Vec::new(), Vec::new());
    for flight in std::mem::take(&mut channels.flying) {
        if flight.2 == 0 {
            within.send(flight.0, Cell { len: CELL_LEN as u64, last: false, flow: 1 }, |_| false);
            striped.push(flight);
        } else {
            others.push(flight);
        }
    }
    let slowest = inner.iter().max().copied().unwrap_or(0) + 16 * inner.len() as u64;
    let (out, reports) = within.receive();
    for (place, index) in cells(&out).into_iter().enumerate() {
        let (at, _, stripe, sent, item, last) = striped[index as usize];
        // In the order of arrival, plus the longest delay of the inner trunk.
        others.push((at + slowest, place, stripe, sent, item, last));
    }
    channels.flying = others;
    let (out, outer_reports) = channels.receive();
    Ok(reports + outer_reports == 0 && cells(&out) == (0..1000).collect::<Vec<_>>())
}
