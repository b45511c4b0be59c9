//! BBR over one bottleneck, compared with CUBIC: rate, round trip, packets in flight.
//!
//! Runs, and rows from counters, are in `experiments/bbr/repro.toml`. This file reads round trips and packets
//! in flight from the trace.

use super::{Computed, Setting, row};
use crate::Error;
use crate::sweep::run::{self, Found};
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_engine::TraceKind;
use lastmeter_ledger::plots::{Plot, Series};
use std::collections::HashMap;

const SENDER: &str = "a sends first";
const RECEIVER: &str = "b receives first";
/// The link is full from here on; the end of the interval without PROBE_RTT. In milliseconds.
const WARM: u64 = 2000;
const BEFORE_PROBE_RTT: u64 = 9500;
/// Length in seconds of the run with PROBE_RTT.
const MINUTE: u64 = 60;
/// Sampling step of the trace.
const STEP: Duration = Duration::from_ms(1);
/// Plotted length in seconds, and the averaging window of its rate in milliseconds.
const PLOTTED: u64 = 12;
const RATE_STEP: u64 = 100;

struct Path {
    rate: Rate,
    round_trip: Duration,
    packet: Bytes,
    data: Bytes,
}

impl Path {
    fn read(setting: &Setting<'_>) -> Result<Path, Error> {
        let constants = setting.constants;
        Ok(Path {
            rate: constants.get("rate")?,
            round_trip: constants.get("round_trip")?,
            packet: constants.get("packet")?,
            data: constants.get("data")?,
        })
    }

    /// Payload that the link carries in `seconds`, in bytes.
    fn carries(&self, seconds: f64) -> f64 {
        let share = self.data.0 as f64 / self.packet.0 as f64;
        self.rate.as_bits() as f64 / 8.0 * seconds * share
    }

    /// The bandwidth-delay product, in packets.
    fn product(&self) -> u64 {
        let bits = self.rate.as_bits() as f64 * self.round_trip.as_secs_f64();
        (bits / 8.0 / self.packet.0 as f64) as u64
    }

    /// The trace of the first connection over `length`.
    fn trace(
        &self,
        setting: &Setting<'_>,
        length: Duration,
        (control, room): (&str, u64),
    ) -> Result<Packets, Error> {
        let length = length.as_secs_f64();
        let given = [("length", length.into()), ("control", control.into()), ("room", room.into())];
        Packets::of(&setting.run("traced", &given)?, self)
    }
}

/// When the first connection's packets were sent, delivered or dropped.
struct Packets {
    sent: Vec<Time>,
    /// Delivery time and delay of each delivered packet.
    came: Vec<(Time, Duration)>,
    dropped: Vec<Time>,
    back: Duration,
}

impl Packets {
    fn of(found: &Found, path: &Path) -> Result<Packets, Error> {
        let sent = found.times(SENDER, TraceKind::Make)?;
        let elements = &found.outcome.elements;
        let number = |name| elements.iter().position(|report| report.name == name);
        let (from, to) = (number(SENDER), number(RECEIVER));
        let mut on_way = HashMap::new();
        let (mut came, mut dropped) = (Vec::new(), Vec::new());
        for event in &found.outcome.trace {
            let element = Some(event.element.0 as usize);
            match event.kind {
                TraceKind::Make if element == from => {
                    on_way.insert(event.packet, event.at);
                }
                TraceKind::Deliver if element == to => {
                    if let Some(sent) = on_way.remove(&event.packet) {
                        came.push((event.at, event.at.saturating_since(sent)));
                    }
                }
                TraceKind::Drop(_) if on_way.remove(&event.packet).is_some() => {
                    dropped.push(event.at);
                }
                _ => {}
            }
        }
        Ok(Packets { sent, came, dropped, back: path.round_trip / 2 })
    }

    /// Goodput between two instants in bytes per second, if all packets are full.
    fn rate(&self, from: Time, to: Time, data: Bytes) -> f64 {
        let count = self.came.iter().filter(|(at, _)| (from..to).contains(at)).count();
        count as f64 * data.0 as f64 / to.saturating_since(from).as_secs_f64()
    }

    /// Mean round trip in seconds of packets delivered between two instants; the return path has no queue.
    fn round_trip(&self, from: Time, to: Time) -> f64 {
        let within = self.came.iter().filter(|(at, _)| (from..to).contains(at));
        let (sum, count) = within.fold((0.0, 0), |(sum, count), (_, took)| {
            (sum + (*took + self.back).as_secs_f64(), count + 1)
        });
        sum / f64::from(count.max(1))
    }

    /// Packets in flight at each step: sent, and neither acknowledged nor dropped.
    fn on_way(&self, length: Duration) -> Vec<(Time, i64)> {
        let mut changes: Vec<(Time, i64)> = self.sent.iter().map(|&at| (at, 1)).collect();
        changes.extend(self.came.iter().map(|&(at, _)| (at + self.back, -1)));
        changes.extend(self.dropped.iter().map(|&at| (at, -1)));
        changes.sort_unstable();
        let (mut next, mut count) = (changes.iter().peekable(), 0);
        let steps = length.as_ps() / STEP.as_ps();
        let at_step = |step: u64| {
            let now = Time::START + STEP * step;
            while let Some((_, change)) = next.next_if(|(at, _)| *at <= now) {
                count += change;
            }
            (now, count)
        };
        (0..steps).map(at_step).collect()
    }
}

fn ms(ms: u64) -> Time {
    Time::START + Duration::from_ms(ms)
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let path = Path::read(setting)?;
    let wants = |ids: &[&str]| ids.iter().any(|id| setting.wants(id));
    let mut rows = Vec::new();
    if wants(&["BBR-1", "BBR-2", "BBR-3"]) {
        rows.extend(operating_point(&path, setting)?);
    }
    if wants(&["BBR-1", "BBR-4"]) {
        rows.extend(minute(&path, setting)?);
    }
    rows.retain(|row| setting.wants(&row.id));
    Ok(rows)
}

/// Rate and round trip between PROBE_RTTs, which should not depend on the buffer.
fn operating_point(path: &Path, setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let rooms: Vec<u64> = setting.constants.get("rooms")?;
    let deep: u64 = setting.constants.get("room_deep")?;
    let mut cases: Vec<(&str, u64)> = rooms.iter().map(|&room| ("bbr", room)).collect();
    cases.push(("cubic", deep));
    let (from, to) = (ms(WARM), ms(BEFORE_PROBE_RTT));
    let length = to.since_start();
    let found = run::all(&cases, setting.means, |&case| path.trace(setting, length, case))?;
    let seconds = to.saturating_since(from).as_secs_f64();
    let mut rows = Vec::new();
    for (packets, room) in found.iter().zip(&rooms) {
        let share = packets.rate(from, to, path.data) / (path.carries(seconds) / seconds);
        rows.push(row(format!("BBR-1/between-{room}"), 100.0 * share));
    }
    let least = path.round_trip.as_secs_f64();
    let trips: Vec<f64> = found.iter().map(|found| found.round_trip(from, to) / least).collect();
    let (cubic, bbr) = (trips[rooms.len()], &trips[1..rooms.len()]);
    let spread = bbr.iter().all(|trip| (trip / bbr[0] - 1.0).abs() < 0.02);
    rows.push(row("BBR-2/round-trip", bbr[0]));
    rows.push(row("BBR-2/any-buffer", spread));
    rows.push(row("BBR-2/cubic", cubic > 3.0 && bbr[0] < 1.3));
    rows.push(cycle(&found[1], path, (from, to)));
    Ok(rows)
}

/// A probe is where more is in flight than at any time half a cycle before or after.
fn cycle(packets: &Packets, path: &Path, (from, to): (Time, Time)) -> Computed {
    let on_way = packets.on_way(to.since_start());
    let apart = (path.round_trip * 4).as_ps() / STEP.as_ps();
    let count = |step: u64| on_way.get(step as usize).map_or(0, |found| found.1);
    let first = from.as_ps() / STEP.as_ps();
    let mut peaks: Vec<u64> = Vec::new();
    for step in first..on_way.len() as u64 - apart {
        let most = (step - apart..=step + apart).map(count).max();
        let begins = peaks.last().is_none_or(|last| step - last > apart);
        if begins && most == Some(count(step)) {
            peaks.push(step);
        }
    }
    let trips = match peaks.as_slice() {
        [first, .., last] => {
            let steps = (last - first) as f64 / (peaks.len() - 1) as f64;
            steps * STEP.as_secs_f64() / path.round_trip.as_secs_f64()
        }
        _ => f64::NAN,
    };
    row("BBR-3", trips)
}

/// A minute, PROBE_RTTs included.
fn minute(path: &Path, setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let length = Duration::from_secs(MINUTE);
    let packets = path.trace(setting, length, ("bbr", path.product()))?;
    let share = packets.rate(ms(WARM), Time::START + length, path.data) / path.carries(1.0);
    let on_way = packets.on_way(length);
    let full = on_way.iter().filter(|(at, _)| *at > ms(WARM));
    // A PROBE_RTT is where less than half of the bandwidth-delay product is in flight.
    let half = path.product() as i64 / 2;
    let mut visits: Vec<(Time, Time, i64)> = Vec::new();
    for &(at, count) in full.filter(|(_, count)| *count < half) {
        match visits.last_mut() {
            Some((_, last, least)) if at.saturating_since(*last) < path.round_trip * 2 => {
                (*last, *least) = (at, count.min(*least));
            }
            _ => visits.push((at, at, count)),
        }
    }
    let least: Vec<i64> = visits.iter().map(|visit| visit.2).collect();
    let fewest = least.iter().copied().max().map_or(f64::NAN, |count| count as f64);
    let apart = match visits.as_slice() {
        [first, .., last] => {
            last.0.saturating_since(first.0).as_secs_f64() / (visits.len() - 1) as f64
        }
        _ => f64::NAN,
    };
    Ok(vec![
        row("BBR-1/minute", 100.0 * share),
        row("BBR-4/fewest", fewest),
        row("BBR-4/apart", apart),
    ])
}

/// Rate, round trip and packets in flight over time, compared with CUBIC.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let path = Path::read(setting)?;
    let deep: u64 = setting.constants.get("room_deep")?;
    let length = Duration::from_secs(PLOTTED);
    let (mut rates, mut trips, mut on_way) = (Vec::new(), Vec::new(), Vec::new());
    for (control, name) in [("bbr", "BBR"), ("cubic", "CUBIC")] {
        let packets = path.trace(setting, length, (control, deep))?;
        let curve = |points: Vec<(f64, f64)>| Series { name: name.to_owned(), points };
        let rate = |from: u64| {
            let bytes = packets.rate(ms(from), ms(from + RATE_STEP), path.data);
            ((from + RATE_STEP) as f64 / 1e3, bytes * 8.0 / 1e6)
        };
        rates.push(curve((0..PLOTTED * 1000).step_by(RATE_STEP as usize).map(rate).collect()));
        let trip = |from: u64| {
            let trip = packets.round_trip(ms(from), ms(from + 20));
            ((from + 10) as f64 / 1e3, trip * 1e3)
        };
        let some = |&(_, trip): &(f64, f64)| trip > 0.0;
        trips.push(curve((0..PLOTTED * 1000).step_by(20).map(trip).filter(some).collect()));
        let count = |&(at, count): &(Time, i64)| (at.since_start().as_secs_f64(), count as f64);
        on_way.push(curve(packets.on_way(length).iter().step_by(10).map(count).collect()));
    }
    let over_time = |title: &str, caption: &str, y: &str, series| {
        Plot::new(title, caption, ("time, s", y), series).over_time()
    };
    Ok(vec![
        over_time(
            "Rate",
            "Both fill the link; every 10 s BBR leaves it idle for 200 ms.",
            "goodput, Mbit/s",
            rates,
        ),
        over_time(
            "Round trip",
            "CUBIC fills the buffer of 167 packets; BBR queues during a probe and then drains.",
            "ms",
            trips,
        ),
        over_time(
            "In flight",
            "The path holds 33 packets. BBR probes with a quarter more every eight round trips.",
            "packets",
            on_way,
        ),
    ])
}
