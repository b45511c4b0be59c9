//! What losses cost TCP, and Hoe's cures: one connection over a long, fast line.
//!
//! The network is a file beside the published values, in `experiments/tcp-recovery`, and `lastmeter
//! run` runs it too. Windows are as large as the line holds, so that nothing is lost but what is to
//! be; packets that are to be lost are named by their place in the order of arrival.

use super::runs::{self, File, Found};
use super::{Computed, Setting, Value};
use crate::Error;
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_engine::TraceKind;

const NAME: &str = "tcp-recovery";
const FILE: File = File {
    name: NAME,
    text: include_str!("../../../../experiments/tcp-recovery/network.toml"),
    collecting: false,
    tracing: false,
};
const SENDER: &str = "a sends stream";
/// The packets of the handshake, which the lossy node meets first.
const HANDSHAKE: u64 = 2;
/// Of IPv4 and TCP, without options.
const HEADERS: u64 = 40;
/// Windows that the receiver has room for.
const ROOM: u64 = 4;
/// More than any acknowledgement lets go: a burst without limit.
const UNLIMITED: u64 = 1 << 20;

/// The line and what goes over it.
struct Line {
    packet: Bytes,
    round_trip: Duration,
    transfer: Bytes,
    rates: Vec<Rate>,
}

/// What varies from one run to the next.
#[derive(Clone)]
struct Case {
    rate: Rate,
    recovery: &'static str,
    /// Which packets are lost.
    lost: Vec<u64>,
    /// Further settings.
    sets: Vec<String>,
}

impl Line {
    fn read(setting: &Setting<'_>) -> Result<Line, Error> {
        let constants = setting.constants;
        let rates: Vec<u64> = constants.get("rates")?;
        Ok(Line {
            packet: constants.get("packet")?,
            round_trip: constants.get("round_trip")?,
            transfer: constants.get("transfer")?,
            rates: rates.into_iter().map(|kbit| Rate::from_bits(kbit * 1000)).collect(),
        })
    }

    /// Packets that fill the line, and one that is being sent.
    fn window(&self, rate: Rate) -> u64 {
        let held = rate.as_bits() as f64 * self.round_trip.as_secs_f64() / 8.0;
        (held / self.packet.0 as f64) as u64 + 1
    }

    /// So many packets in a row, after three windows: the line is full by then.
    fn lost(&self, rate: Rate, count: u64) -> Vec<u64> {
        let first = HANDSHAKE + 3 * self.window(rate);
        (first..first + count).collect()
    }

    /// `losses` packets of one window are lost from a transfer.
    fn case(&self, rate: Rate, recovery: &'static str, losses: u64) -> Case {
        Case { rate, recovery, lost: self.lost(rate, losses), sets: Vec::new() }
    }

    fn run(&self, case: &Case, file: File) -> Result<Found, Error> {
        let (mss, window) = (self.packet.0 - HEADERS, self.window(case.rate));
        let mut sets = vec![
            format!("links.0.rate=\"{} bit/s\"", case.rate.as_bits()),
            format!("traffic.stream.tcp.mss=\"{mss} B\""),
            format!("traffic.stream.tcp.recovery=\"{}\"", case.recovery),
            // Slow start ends when the line is full; the peer's window never limits.
            format!("traffic.stream.tcp.initial-threshold=\"{} B\"", window * mss),
            format!("traffic.stream.tcp.receive-buffer=\"{} B\"", ROOM * window * mss),
            format!("traffic.stream.tcp.bytes=\"{} B\"", self.transfer.0),
        ];
        if !case.lost.is_empty() {
            sets.push(format!("nodes.r2.loss-list.packets={:?}", case.lost));
        }
        sets.extend(case.sets.iter().cloned());
        file.run(&sets)
    }

    /// How long the transfer takes.
    fn time(&self, case: &Case) -> Result<f64, Error> {
        let found = self.run(case, FILE)?;
        let received = found.count("b receives stream", "consumed")?;
        if received < self.transfer.0 {
            let message = format!("only {received} bytes of the transfer have arrived");
            return Err(Error::Computation { name: NAME, message });
        }
        let books = &found.outcome.books.paths;
        let data = books.iter().max_by_key(|path| path.delivered.bytes);
        let last = data.map_or(Time::START, |path| path.last_delivered);
        Ok(last.saturating_since(Time::START).as_secs_f64())
    }
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let line = Line::read(setting)?;
    let mut rows = Vec::new();
    let wants = |ids: &[&str]| ids.iter().any(|id| setting.wants(id));
    if wants(&["A-163", "A-164", "A-165"]) {
        rows.extend(costs(&line, setting)?);
    }
    if wants(&["A-163"]) {
        rows.extend(start_up(&line, setting)?);
    }
    if wants(&["A-164"]) {
        rows.extend(window_of_one(&line, setting)?);
    }
    if wants(&["A-165"]) {
        rows.extend(partial(&line, setting)?);
    }
    if wants(&["A-166"]) {
        rows.extend(bursts(&line, setting)?);
    }
    rows.retain(|row| setting.wants(row.id));
    Ok(rows)
}

fn holds(id: &'static str, item: &str, holds: bool) -> Computed {
    Computed::new(id, item, Value::Holds(holds))
}

fn rising(values: impl IntoIterator<Item = f64>) -> bool {
    let values: Vec<f64> = values.into_iter().collect();
    values.windows(2).all(|pair| pair[0] < pair[1])
}

/// What a transfer takes longer with losses, at each rate, as a share of what it takes without.
fn costs(line: &Line, setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    const WAYS: [(&str, u64); 5] =
        [("reno", 0), ("reno", 4), ("newreno", 4), ("reno", 1), ("tahoe", 1)];
    let cases: Vec<Case> = line
        .rates
        .iter()
        .flat_map(|&rate| WAYS.map(|(recovery, losses)| line.case(rate, recovery, losses)))
        .collect();
    let times = runs::all(NAME, &cases, setting.means, |case| line.time(case))?;
    // Shares by way, and in each by rate.
    let share = |way: usize| -> Vec<f64> {
        times.chunks(WAYS.len()).map(|times| times[way] / times[0] - 1.0).collect()
    };
    let [timer, partial, halved, one] = [share(1), share(2), share(3), share(4)];
    let above = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a > b);
    Ok(vec![
        holds("A-163", "costs more of a transfer the faster the link", rising(timer.clone())),
        holds("A-163", "costs more than losses found without the timer", above(&timer, &partial)),
        holds("A-164", "costs more of a transfer the faster the link", rising(one.clone())),
        holds("A-164", "costs more than halving the window", above(&one, &halved)),
        holds("A-165", "faster than fast retransmission alone", above(&timer, &partial)),
    ])
}

/// What is lost before a sender has learnt what the path holds.
fn start_up(line: &Line, setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let rate: Rate = constants.get("start_rate")?;
    let (way, room): (Duration, u64) = (constants.get("start_way")?, constants.get("start_room")?);
    let timer = line.case(rate, "reno", 4);
    let found = line.run(&timer, FILE)?;
    let timeouts = found.count(SENDER, "timeouts")?;
    let once = line.run(&line.case(rate, "reno", 1), FILE)?.count(SENDER, "timeouts")?;
    let lost = |estimates: bool| -> Result<u64, Error> {
        let sets = vec![
            format!("links.0.delay=\"{} ps\"", way.as_ps()),
            format!("links.0.queue={{ drop-tail = {{ packets = {room} }} }}"),
            format!("traffic.stream.tcp.estimates-start={estimates}"),
            "traffic.stream.tcp.receive-buffer=\"1 MiB\"".to_owned(),
            "traffic.stream.tcp.initial-threshold=\"1 MiB\"".to_owned(),
            "duration=\"2 s\"".to_owned(),
        ];
        let case = Case { rate, recovery: "newreno", lost: Vec::new(), sets };
        line.run(&case, FILE)?.count("r1->r2", "refused")
    };
    let number = |item: &str, value: u64| {
        Computed::new("A-163", item, Value::Number(value as f64, "packets"))
    };
    Ok(vec![
        holds("A-163", "only the timer finds four losses in a window", timeouts > 0),
        holds("A-163", "acknowledgements find one loss in a window", once == 0),
        number("start-up: lost without an estimate", lost(false)?),
        number("start-up: lost with Hoe's estimate", lost(true)?),
    ])
}

/// How a window of one grows back to what it was.
fn window_of_one(line: &Line, setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let rates: Vec<u64> = setting.constants.get("rates_traced")?;
    let rates: Vec<Rate> = rates.into_iter().map(|kbit| Rate::from_bits(kbit * 1000)).collect();
    let rounds = |&rate: &Rate| -> Result<(u64, u64, u64), Error> {
        let window = line.window(rate);
        let mut case = line.case(rate, "tahoe", 1);
        // Until everything is as it was: half the window in steps of one, and what goes before.
        let (mss, bytes) = (line.packet.0 - HEADERS, window * (window + 40) * 1000);
        case.sets.push(format!("traffic.stream.tcp.bytes=\"{bytes} B\""));
        // No queue builds up later, whose silence at the end would be longer.
        case.sets.push(format!("traffic.stream.tcp.receive-buffer=\"{} B\"", window * mss));
        let found = line.run(&case, File { tracing: true, ..FILE })?;
        let sent = found.times(SENDER, TraceKind::Make)?;
        // The first retransmission: before the longest silence after the loss.
        let after = case.lost[0] as usize;
        let gap = |&at: &usize| sent[at + 1].saturating_since(sent[at]);
        let begins =
            (after..sent.len() - 1).rev().max_by_key(gap).map_or(Time::START, |at| sent[at]);
        // A round trip of one packet, and rounds about the instants at which they begin.
        let ack = rate.time_for(Bytes(HEADERS));
        let round = line.round_trip + rate.time_for(line.packet) + ack;
        let mut counts = Vec::new();
        for &at in sent.iter().filter(|&&at| at >= begins) {
            let place = (at.saturating_since(begins) + round / 2).as_ps() / round.as_ps();
            counts.resize(counts.len().max(place as usize + 1), 0);
            counts[place as usize] += 1;
        }
        let reaches = |many: u64| {
            let found = counts.iter().position(|&count| count >= many);
            found.map_or(u64::MAX, |place| place as u64)
        };
        Ok((counts[0], reaches(window / 2), reaches(window - 1)))
    };
    let found = runs::all(NAME, &rates, setting.means, rounds)?;
    let mut rows = Vec::new();
    for (rate, &(first, half, whole)) in rates.iter().zip(&found) {
        let mbit = rate.as_bits() / 1_000_000;
        let mut number = |item: String, value: u64, unit| {
            rows.push(Computed::new("A-164", item, Value::Number(value as f64, unit)));
        };
        number(format!("{mbit} Mbit/s: packets in the first round trip"), first, "packets");
        number(format!("{mbit} Mbit/s: round trips to half the window"), half, "round trips");
        number(format!("{mbit} Mbit/s: round trips to the whole window"), whole, "round trips");
    }
    let later = rising(found.iter().map(|&(_, _, whole)| whole as f64));
    rows.push(holds("A-164", "regained later the faster the link", later));
    Ok(rows)
}

/// Recovery by acknowledgements of a part.
fn partial(line: &Line, setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let rate: Rate = setting.constants.get("start_rate")?;
    let losses: u64 = setting.constants.get("losses")?;
    let mut without = true;
    for count in 2..=losses {
        let found = line.run(&line.case(rate, "newreno", count), FILE)?;
        without &= found.count(SENDER, "timeouts")? == 0;
    }
    let found = line.run(&line.case(rate, "newreno", losses), FILE)?;
    let repairing = found.count(SENDER, "repairing_ps")? as f64;
    let trips = repairing / line.round_trip.as_ps() as f64;
    let reno = line.run(&line.case(rate, "reno", losses), FILE)?.count(SENDER, "timeouts")?;
    // Losses of a start-up that doubles until the buffer overflows.
    let overflow = |&rate: &Rate| -> Result<f64, Error> {
        // The buffer holds as much as the line, so that a round trip doubles once it is full.
        let window = line.window(rate);
        let rounds = u64::from((8 * window).ilog2()) + 3;
        let length = line.round_trip * 2 * rounds;
        let sets = vec![
            format!("links.0.queue={{ drop-tail = {{ packets = {window} }} }}"),
            "traffic.stream.tcp.receive-buffer=\"64 MiB\"".to_owned(),
            "traffic.stream.tcp.initial-threshold=\"64 MiB\"".to_owned(),
            format!("duration=\"{} ps\"", length.as_ps()),
        ];
        let case = Case { rate, recovery: "newreno", lost: Vec::new(), sets };
        Ok(line.run(&case, FILE)?.count("r1->r2", "refused")? as f64)
    };
    let lost = runs::all(NAME, &line.rates, setting.means, overflow)?;
    Ok(vec![
        holds("A-165", "several losses in a window repaired without the timer", without),
        holds("A-165", "fast retransmission alone needs the timer for them", reno > 0),
        Computed::new(
            "A-165",
            "five losses in a window: round trips to repair them",
            Value::Number(trips, "round trips"),
        ),
        holds("A-165", "more losses in a window the more the line holds", rising(lost)),
    ])
}

/// A larger window after a loss, with and without a limit on bursts.
fn bursts(line: &Line, setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let rate: Rate = constants.get("start_rate")?;
    let (limit, losses): (u64, u64) = (constants.get("burst_max")?, constants.get("burst_losses")?);
    let (room, begin): (u64, u64) = (constants.get("burst_room")?, constants.get("burst_begin")?);
    let mss = line.packet.0 - HEADERS;
    // Slow start ends early, so that the small buffer does not overflow before the loss.
    let first = HANDSHAKE + line.window(rate) * line.window(rate);
    let lost: Vec<u64> = (first..first + losses).collect();
    let case = |burst: Option<u64>| {
        let mut sets = vec![
            format!("links.0.queue={{ drop-tail = {{ packets = {room} }} }}"),
            format!("traffic.stream.tcp.initial-threshold=\"{} B\"", begin * mss),
            // Nothing new goes while a window is being repaired: little is on its way at the end.
            format!("traffic.stream.tcp.receive-buffer=\"{} B\"", line.window(rate) * mss),
            "traffic.stream.tcp.one-for-two=true".to_owned(),
        ];
        sets.extend(burst.map(|most| format!("traffic.stream.tcp.burst-max={most}")));
        Case { rate, recovery: "newreno", lost: lost.clone(), sets }
    };
    let [small, large, limited] = [case(None), case(Some(UNLIMITED)), case(Some(limit))];
    let longest = |case: &Case| line.run(case, FILE)?.count(SENDER, "burst_most");
    let refused = |case: &Case| line.run(case, FILE)?.count("r1->r2", "refused");
    let burst = longest(&limited)?;
    let (free, free_lost) = (longest(&large)?, refused(&large)?);
    let sooner = line.time(&limited)? < line.time(&small)?;
    Ok(vec![
        Computed::new(
            "A-166",
            "longest burst with a limit",
            Value::Number(burst as f64, "packets"),
        ),
        holds("A-166", "bursts beyond the limit without it", free > limit),
        holds("A-166", "the larger window loses more without a limit", free_lost > 0),
        holds("A-166", "the larger window loses nothing with it", refused(&limited)? == 0),
        holds("A-166", "the larger window with a limit is faster than a small one", sooner),
    ])
}
