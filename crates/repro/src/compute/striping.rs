//! Striping: the four freedoms of the reference model, bridges, and a run of the
//! environment of Fig 8.

use super::vunet::{counters, failed, holds, parse, run};
use super::{Computed, Setting, Value};
use crate::Error;
use lastmeter_base::{Duration, Rate, Stream};
use lastmeter_lan::stripe::merge::{Merger, Out};
use lastmeter_lan::stripe::split::{Cell, Sent, Splitter};
use lastmeter_lan::stripe::{Balance, Sync, Topology, Unit};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::atm::{CELL_LEN, Cell as AtmCell, Circuit, Header, Interface};

const TOPOLOGIES: [Topology; 3] = [Topology::EndToEnd, Topology::Internal, Topology::Mixed];
const UNITS: [Unit; 3] = [Unit::Cell, Unit::Pdu, Unit::Flow];
const BALANCES: [Balance; 2] = [Balance::RoundRobin, Balance::Surplus { quantum: 500 }];
const SYNCS: [Sync; 4] = [Sync::None, Sync::Numbers, Sync::Markers { every: 16 }, Sync::Pdu];

/// Channels with their own delays, in cell times, between a sender and a receiver.
struct Channels {
    splitter: Splitter,
    merger: Merger<u64>,
    delays: Vec<u64>,
    busy: Vec<u64>,
    /// What is on its way: when it comes, its place, the stripe, what, whose, whether it is a PDU's last.
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

/// Sends cells of one flow, of PDUs of ten cells, over stripes with this skew.
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
    let mut rows = bridges(setting.seed)?;
    rows.extend(freedoms(setting)?);
    rows.extend(environment(setting)?);
    Ok(rows)
}

/// cells into an ATM network and out again.
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
    Ok(vec![holds("A-55", "a cell comes out of the bridge as it went in", same)])
}

///
fn freedoms(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let stripes: u64 = setting.constants.get("stripes")?;
    let skew_max: u64 = setting.constants.get("skew_max")?;
    let mut random = Stream::new(setting.seed, "skew");
    let mut draw = |most: u64| (0..stripes).map(|_| random.below(most + 1)).collect::<Vec<u64>>();
    // Without synchronisation, skew alone puts cells in another order.
    let (plain, _) = pass((Unit::Cell, BALANCES[0], Sync::None), &[0, 9, 30, 50], |_| false, 1000)?;
    let reorders = plain.windows(2).any(|pair| pair[0] > pair[1]);
    // All combinations that go together, each with random skews.
    let (mut in_order, mut combinations) = (true, 0);
    for unit in UNITS {
        for balance in BALANCES {
            for sync in SYNCS {
                let ordered = (unit == Unit::Flow) == (sync == Sync::None);
                // Numbers and PDUs are of cells; a quantum is more than a cell only with markers.
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
            // From two marker periods behind the loss all is in order again, to the end.
            let tail: Vec<u64> = got.iter().copied().filter(|&cell| cell >= lost + 128).collect();
            let all: Vec<u64> = (lost + 128..1000).collect();
            let whole = tail.len() + 20 >= all.len();
            resynchronised &= whole && tail.windows(2).all(|pair| pair[0] < pair[1]);
        }
    }
    // Both ends split and join: an inner trunk within one stripe of an outer one.
    let mixed = mixed(&draw(skew_max), &draw(skew_max))?;
    let hosts = TOPOLOGIES.map(Topology::hosts);
    let networks = TOPOLOGIES.map(Topology::networks);
    Ok(vec![
        holds("A-56", "skew between channels reorders cells", reorders),
        holds("A-58", "end to end, internal and mixed: in order at any skew", mixed && in_order),
        holds(
            "A-59",
            "hosts, networks or both take part",
            hosts == [true, false, true] && networks == [false, true, true],
        ),
        holds("A-60", "units of cells, PDUs and flows: in order at any skew", in_order),
        Computed::new(
            "A-61",
            "combinations of balance and synchronisation",
            Value::Number(f64::from(combinations), "combinations"),
        ),
        holds("A-61", "a lost cell is reported", reported),
        holds("A-61", "the order is found again after a lost cell", resynchronised),
    ])
}

/// An outer trunk between hosts, the first of whose stripes is striped again within the network.
fn mixed(outer: &[u64], inner: &[u64]) -> Result<bool, Error> {
    let setting = (Unit::Cell, Balance::RoundRobin, Sync::Markers { every: 16 });
    let mut channels = Channels::new(outer.len(), setting, outer.to_vec())?;
    let mut within = Channels::new(inner.len(), setting, inner.to_vec())?;
    for cell in 0..1000 {
        channels.send(cell, Cell { len: CELL_LEN as u64, last: false, flow: 1 }, |_| false);
    }
    // What is sent on stripe 0, markers included, are the cells of the inner trunk.
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
        // In the order in which they came out, later by what the inner trunk takes at most.
        others.push((at + slowest, place, stripe, sent, item, last));
    }
    channels.flying = others;
    let (out, outer_reports) = channels.receive();
    Ok(reports + outer_reports == 0 && cells(&out) == (0..1000).collect::<Vec<_>>())
}

/// A camera in the VuNet, watched across a trunk of OC-3c channels between two bridges.
fn network(stripes: u64, rate: Rate, skew: Duration, loss: f64, video: &str) -> String {
    let (rate, skew) = (rate.as_bits(), skew.as_ps());
    format!(
        "duration = \"300 ms\"\n[nodes]\ncamera = {{ host = {{}} }}\nclient = {{ host = {{}} }}\n\
         near = {{ vunet-switch = {{}} }}\nfar = {{ vunet-switch = {{}} }}\n\
         near-bridge = {{ avlink = {{}} }}\nfar-bridge = {{ avlink = {{}} }}\n\
         trunk = {{ striped-trunk = {{ stripes = {stripes}, rate = \"{rate} bit/s\", \
         delay = \"1 ms\", skew = \"{skew} ps\", loss = {loss}, marker-every = 64, \
         fifo = 4096 }} }}\n\
         [[links]]\nbetween = [\"camera\", \"near\", \"near-bridge\"]\nrate = \"700 Mbit/s\"\n\
         queue = {{ drop-tail = {{ packets = 4096 }} }}\n\
         [[links]]\nbetween = [\"near-bridge\", \"trunk\", \"far-bridge\"]\n\
         [[links]]\nbetween = [\"far-bridge\", \"far\", \"client\"]\nrate = \"700 Mbit/s\"\n\
         queue = {{ drop-tail = {{ packets = 4096 }} }}\n\
         [[traffic]]\nname = \"video\"\nfrom = \"camera\"\nto = \"client\"\nvidboard = {video}\n"
    )
}

/// So many cameras, each watched across two zebras by the channel that is given for it.
fn zebras(channels: &[u64], stripes: u64, rate: Rate, skew: Duration) -> String {
    let zebra = format!(
        "{{ zebra = {{ channels = {stripes}, rate = \"{} bit/s\", skew = \"{} ps\" }} }}",
        rate.as_bits(),
        skew.as_ps()
    );
    let count = channels.len();
    let mut text = format!(
        "duration = \"300 ms\"\n[nodes]\ncamera = {{ host = {{}}, count = {count} }}\n\
         client = {{ host = {{}}, count = {count} }}\nnear = {{ vunet-switch = {{}} }}\n\
         far = {{ vunet-switch = {{}} }}\nzebra-1 = {zebra}\nzebra-2 = {zebra}\n\
         [[links]]\nbetween = [\"zebra-1\", \"zebra-2\"]\ndelay = \"1 ms\"\n"
    );
    for ends in ["\"camera\", \"near\", \"zebra-1\"", "\"zebra-2\", \"far\", \"client\""] {
        text += &format!(
            "[[links]]\nbetween = [{ends}]\nrate = \"700 Mbit/s\"\n\
             queue = {{ drop-tail = {{ packets = 4096 }} }}\n"
        );
    }
    for (place, channel) in channels.iter().enumerate() {
        text += &format!(
            "[[traffic]]\nname = \"video {place}\"\nfrom = \"camera.{place}\"\n\
             to = \"client.{place}\"\nvidboard = {{ width = 640, height = 480, \
             burst-delay = \"100 us\", channel = {channel} }}\n"
        );
    }
    text
}

/// connections through zebras, each by a channel of its own, and all by one.
fn by_channel(stripes: u64, rate: Rate, skew: Duration) -> Result<bool, Error> {
    let watched = |channels: &[u64]| -> Result<[u64; 3], Error> {
        let outcome = run(&parse(&zebras(channels, stripes, rate, skew), &[])?, false)?;
        let sum = |part: &str, counter: &str| counters(&outcome, part, counter).iter().sum();
        // Video leaves by the near zebra's channels.
        Ok([sum(" sees ", "frames"), sum(" sees ", "incomplete"), sum("zebra-1", "channels_used")])
    };
    let each: Vec<u64> = (0..stripes).collect();
    let [whole, damaged, used] = watched(&each)?;
    let [by_one, _, one] = watched(&vec![0; each.len()])?;
    Ok(damaged == 0 && whole >= 5 * stripes && used == stripes && one == 1 && by_one < whole / 2)
}

///
fn environment(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let stripes: u64 = constants.get("stripes")?;
    let rate: Rate = constants.get("rate")?;
    let skew: Duration = constants.get("skew")?;
    let video = "{ width = 1280, height = 960, burst = 28, burst-delay = \"40 us\" }";
    let frames = |text: &str| -> Result<(u64, u64), Error> {
        let outcome = run(&parse(text, &[])?, false)?;
        let one = |counter: &str| {
            counters(&outcome, " sees ", counter).first().copied().ok_or(failed("nobody looks"))
        };
        Ok((one("frames")?, one("incomplete")?))
    };
    let straight = frames(&network(stripes, rate, Duration::ZERO, 0.0, video))?;
    let skewed = frames(&network(stripes, rate, skew, 0.0, video))?;
    let fat = frames(&network(1, rate.scale_floor(stripes, 1), Duration::ZERO, 0.0, video))?;
    let single = frames(&network(1, rate, Duration::ZERO, 0.0, video))?;
    let losing = frames(&network(stripes, rate, skew, 2e-5, video))?;
    Ok(vec![
        Computed::new("A-62", "channels", Value::Number(stripes as f64, "channels")),
        holds(
            "A-57",
            "a connection opens itself through the bridge to striped channels",
            straight.0 > 3,
        ),
        holds(
            "A-57",
            "connections through each channel of a zebra have it for themselves",
            by_channel(stripes, rate, skew)?,
        ),
        holds("A-63", "frames cross stripes whole at any skew", skewed.1 == 0 && skewed.0 > 3),
        holds("A-63", "cells lost on a stripe damage frames and do not end the stream", {
            losing.1 > 0 && losing.0 > 0
        }),
        holds("A-120", "stripes carry what a fat link would", straight.0 + 1 >= fat.0),
        holds("A-120", "one channel alone does not", single.0 < straight.0 || single.1 > 0),
    ])
}
