//! Pre-emptive transmission of whole application data units.

use super::{Computed, Setting, Value, row, together};
use crate::Error;
use crate::machines::clumping::{self, Came, Policy, Sender};
use lastmeter_base::{Bytes, Draw, Duration, Rate, Stream, Time};
use lastmeter_lan::preempt::link::{Counts, Link, Way};
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_wire::framing::{Fragment, Reassembler};

fn number(value: f64, unit: &'static str) -> Value {
    Value::Number(value, unit)
}

/// The four policies, with the constants of the experiment.
struct Ways {
    whole: Way,
    packets: Way,
}

impl Ways {
    fn of(setting: &Setting<'_>) -> Result<Ways, Error> {
        let header = setting.constants.get("header")?;
        let quantum = setting.constants.get("quantum")?;
        let payload = setting.constants.get("packet")?;
        Ok(Ways {
            whole: Way::Whole { header, quantum },
            packets: Way::Packets { payload, header },
        })
    }
}

struct Load {
    counts: Counts,
    /// Latencies of urgent units in seconds, sorted.
    urgent: Vec<f64>,
    /// Number of urgent units.
    units: u64,
}

impl Load {
    fn mean(&self) -> f64 {
        self.urgent.iter().sum::<f64>() / self.urgent.len().max(1) as f64
    }
    fn p99(&self) -> f64 {
        let place = self.urgent.len() * 99 / 100;
        self.urgent.get(place).copied().unwrap_or(f64::NAN)
    }
}

/// Units of mixed sizes and small urgent ones on one link: the same arrivals for each policy.
fn mixed(setting: &Setting<'_>, way: Way) -> Result<Load, Error> {
    let constants = setting.constants;
    let rate: Rate = constants.get("rate")?;
    let (small, file, image): (Bytes, Bytes, Bytes) =
        (constants.get("small")?, constants.get("file")?, constants.get("image")?);
    let percent: u64 = constants.get("load")?;
    let times = if setting.means.full { 10 } else { 1 };
    let length = constants.get::<Duration>("length")? * times;
    // Of ten units six are small, three are file blocks and one is an image.
    let sizes = [small, small, small, small, small, small, file, file, file, image];
    let bytes: u64 = sizes.iter().map(|size| size.0).sum();
    let mean = rate.time_for(Bytes(bytes)).scale_ceil(100, percent * sizes.len() as u64);
    let gap = Draw::Exponential(mean);
    let mut random = Stream::new(setting.seed, "units");
    let mut link = Link::new(rate, way);
    let (mut at, mut id) = (Time::START, 0);
    let mut urgent = Vec::new();
    let mut is_urgent = Vec::new();
    let end = Time::START + length;
    loop {
        at += gap.sample(&mut random);
        let size = sizes[random.below(sizes.len() as u64) as usize];
        let mut tell = |sent: lastmeter_lan::preempt::link::Sent| {
            if is_urgent[sent.id as usize] {
                urgent.push((sent.ended - sent.offered).as_secs_f64());
            }
        };
        link.advance(at.min(end), &mut tell);
        if at >= end {
            break;
        }
        is_urgent.push(size == small);
        link.offer(at, id, id, u8::from(size == small), size);
        id += 1;
    }
    urgent.sort_by(f64::total_cmp);
    Ok(Load { counts: link.counts(), urgent, units: id })
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let computed = together(setting, &[framed, multiplexed, clumped])?;
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}

/// The same units over a link, whole and as packets: the work of forwarder and end node.
fn framed(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let unit: Bytes = setting.constants.get("file")?;
    let packet: Bytes = setting.constants.get("packet")?;
    let data: Vec<u8> = (0..unit.0).map(|place| (place * 7 % 251) as u8).collect();
    let (units, cut) = (64u16, packet.0 as usize);
    let mut receiver = Reassembler::default();
    let (mut whole, mut first) = (true, 0u64);
    for number in 0..units {
        // Each unit is pre-empted once by a small urgent one, at a different point.
        let at = 1 + usize::from(number) * 97 % (data.len() - 1);
        let parts = [0..at, at..data.len()];
        for (place, range) in parts.into_iter().enumerate() {
            let fragment = Fragment::part(number, 0, &data, range);
            first += u64::from(fragment.start);
            let arrived = receiver.take(&fragment);
            whole &= arrived.is_none_or(|arrived| arrived.data == data);
            if place == 0 {
                let urgent = Fragment::part(number, 7, b"urgent", 0..6);
                first += 1;
                whole &= receiver.take(&urgent).is_some();
            }
        }
    }
    let counts = receiver.counts;
    let packets = u64::from(units) * (data.len().div_ceil(cut) as u64 + 1);
    // A forwarder parses every fragment's header, and routes a unit once.
    let forwarder = counts.fragments + first;
    Ok(vec![
        row("A-167", whole && counts.units == 2 * u64::from(units) && counts.discarded == 0),
        row("A-168/forwarder", forwarder > counts.fragments && forwarder <= 2 * counts.fragments),
        row("A-168/end-node", counts.units < packets),
        row("A-168/interrupts", number(packets as f64 / counts.units as f64, "times")),
    ])
}

/// Decisions and latencies under the four policies.
fn multiplexed(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let ways = Ways::of(setting)?;
    let whole = mixed(setting, ways.whole)?;
    let continues = mixed(setting, Way::Continue)?;
    let cells = mixed(setting, Way::Cells)?;
    let packets = mixed(setting, ways.packets)?;
    let share = |load: &Load, of: &Load| load.counts.decisions as f64 / of.counts.decisions as f64;
    let enough = whole.units > 1000;
    Ok(vec![
        row("A-170/decisions", number(share(&whole, &cells), "of one")),
        row(
            "A-170/latencies",
            enough && whole.mean() <= 1.1 * cells.mean() && whole.p99() <= 1.1 * cells.p99(),
        ),
        row("A-170/fewer-decisions", share(&whole, &packets) < 1.0),
        row(
            "A-170/shorter-latencies",
            whole.mean() < packets.mean() && whole.p99() < packets.p99(),
        ),
        row("A-171/cells-circuit", share(&continues, &cells) < 1.0),
        row(
            "A-171/latencies",
            continues.mean() <= 1.1 * cells.mean() && continues.p99() <= 1.1 * cells.p99(),
        ),
    ])
}

fn two_way(setting: &Setting<'_>, way: Way, policy: Policy) -> Result<(Came, Duration), Error> {
    let constants = setting.constants;
    let (file, image): (Bytes, Bytes) = (constants.get("file")?, constants.get("image")?);
    let rate: Rate = constants.get("rate")?;
    let options = clumping::Options {
        rate,
        way,
        delay: constants.get("delay")?,
        policy,
        length: constants.get("length")?,
    };
    let data = Sender { end: 0, len: file, window: Bytes(16 * file.0) };
    let large = Sender { end: 1, len: image, window: Bytes(4 * image.0) };
    let came = clumping::run(&[data, large], options).swap_remove(0);
    // Data packets leave at least this far apart; acknowledgements with the same spacing are not clumped.
    Ok((came, rate.time_for(file) / 2))
}

/// Acknowledgements behind large units.
fn clumped(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let ways = Ways::of(setting)?;
    let clump = |way, policy| -> Result<f64, Error> {
        let (came, gap) = two_way(setting, way, policy)?;
        Ok(came.clump(gap))
    };
    let (fifo, alone) = (clump(ways.whole, Policy::Equal)?, 1.1);
    let in_packets = clump(ways.packets, Policy::Equal)?;
    let share = |policy, len: Bytes| -> Result<f64, Error> {
        let constants = setting.constants;
        let file: Bytes = constants.get("file")?;
        let options = clumping::Options {
            rate: constants.get("rate")?,
            way: ways.whole,
            delay: constants.get("delay")?,
            policy,
            length: constants.get("length")?,
        };
        let window = Bytes(16 * file.0);
        let fair = Sender { end: 0, len: file, window };
        let other = Sender { end: 0, len, window };
        let came = clumping::run(&[fair, other], options);
        Ok(came[1].bytes as f64 / (came[0].bytes + came[1].bytes).max(1) as f64)
    };
    let tiny: Bytes = setting.constants.get("tiny")?;
    let file: Bytes = setting.constants.get("file")?;
    let (honest, abused) = (share(Policy::Small, file)?, share(Policy::Small, tiny)?);
    let (by_acks, equal) = (share(Policy::Acknowledgements, tiny)?, share(Policy::Equal, tiny)?);
    Ok(vec![
        row("A-172/priority-acknowledgements", fifo > 2.0),
        row("A-172/acknowledgements", clump(ways.whole, Policy::Acknowledgements)? < alone),
        row(
            "A-172/acknowledgements-first",
            clump(ways.packets, Policy::Acknowledgements)? < alone && in_packets >= 1.0,
        ),
        row("A-172/small-units", clump(ways.whole, Policy::Small)? < alone),
        row("A-172/small-units-first", abused > 0.9 && (honest - 0.5).abs() < 0.05),
        row("A-172/acknowledgements-go", by_acks < 0.6 && equal < 0.6),
    ])
}

/// Acknowledgements by arrival time, for each policy.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let ways = Ways::of(setting)?;
    let mut series = Vec::new();
    // After the windows have settled.
    let (from, to) = (0.1, 0.13);
    for (policy, name) in [
        (Policy::Equal, "all alike"),
        (Policy::Acknowledgements, "acknowledgements first"),
        (Policy::Small, "small units first"),
    ] {
        let (came, _) = two_way(setting, ways.whole, policy)?;
        let seconds = came.acks.iter().map(|at| at.since_start().as_secs_f64());
        let times: Vec<f64> = seconds.filter(|at| (from..to).contains(at)).collect();
        // Steps: the count before each acknowledgement and after it.
        let steps = times
            .iter()
            .enumerate()
            .flat_map(|(count, &at)| [(1e3 * at, count as f64), (1e3 * at, count as f64 + 1.0)]);
        let ends = [(1e3 * from, 0.0), (1e3 * to, times.len() as f64)];
        let points = ends[..1].iter().copied().chain(steps).chain(ends[1..].iter().copied());
        series.push(Series { name: name.to_owned(), points: points.collect() });
    }
    Ok(vec![
        Plot::new(
            "Acknowledgements that have come back",
            "Behind units of 64 KB they accumulate and arrive together, a whole window at once. \
             With priority, for them alone or for all small units, they arrive one by one.",
            ("ms", "acknowledgements since 100 ms"),
            series,
        )
        .over_time(),
    ])
}
