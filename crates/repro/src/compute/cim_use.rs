//! The CIM as the end host used it: fragments, its best operating point, and what features that it lacks
//! would bring (E-14, E-28 to E-30, E-33, E-34, E-42, E-73, E-74, E-76).

use super::{Computed, Setting, Value, row};
use crate::Error;
use lastmeter_base::{Bytes, Duration, PerByte, Time};
use lastmeter_host::adapter::description::{Description, Discipline};
use lastmeter_host::adapter::operating::{FLAT, choose, grid, modelled};
use lastmeter_host::adapter::pipeline::run;
use lastmeter_host::adapter::transmitter::{Order, Transmitter, Variation, What};
use lastmeter_lab::library::Builtin;
use lastmeter_lab::profile::device;

const NAME: &str = "cim-in-use";
/// Packets per measurement; the document sends 12,000.
const PACKETS: usize = 6_000;
/// Headers of a packet: §4.4.2 does not give their length; as in `end-platform`.
const HEADERS: Bytes = Bytes(64);
/// Bytes of a word in Table 3.1.
const WORD: u64 = 4;
/// Our threshold for §3.3.1's "no further increase"; that for "roughly constant" is the tuner's.
const NO_GAIN: f64 = 0.15;
/// Our threshold for §5.1.3.3's "virtually unchanged".
const UNCHANGED: f64 = 0.25;

struct Bench {
    cim: Description,
    seed: u64,
    /// The scheduler's time per fragment, spent while the adapter idles. FRAG runs earlier, in parallel with the
    /// adapter (§3.2.4).
    scheduler: Duration,
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let cim = device::read("cim", &Builtin)
        .map_err(|message| Error::Computation { name: NAME, message })?;
    let scheduler = setting.constants.get("fragment_scheduler")?;
    let bench = Bench { cim, seed: setting.seed, scheduler };
    let computed = [
        transfer(&bench),
        operating_point(&bench),
        fragments(&bench),
        jitter(&bench),
        features(&bench),
        headers(&bench, setting.constants.get("copy")?),
    ]
    .concat();
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}

/// DMA into the CIM: Table 3.1 compared with Table 5.1.
fn transfer(bench: &Bench) -> Vec<Computed> {
    let word = |len: u64| {
        let time = bench.cim.transfer_time(Bytes(len)).as_secs_f64();
        time * 1e9 / (len / WORD) as f64
    };
    let per_word = |value| Value::Number(value, "ns/word");
    vec![
        row("E-14/cim-dma", per_word(word(2048))),
        row("E-14/cim-dma-4", per_word(word(4096))),
        row("E-14/cim-dma-mean", per_word((word(2048) + word(4096)) / 2.0)),
    ]
}

impl Bench {
    fn rate(&self, card: &Description, len: u64, depth: u64) -> f64 {
        let outcome = run(card, Bytes(len), (depth, PACKETS), Variation::Exponential, self.seed);
        1.0 / outcome.mean.as_secs_f64()
    }

    /// Standard deviation of a message's delay in seconds, the document's measure.
    fn deviation(&self, card: &Description, len: u64, depth: u64) -> f64 {
        run(card, Bytes(len), (depth, PACKETS), Variation::Exponential, self.seed).deviation
    }

    fn latency(&self, len: u64, depth: u64) -> f64 {
        run(&self.cim, Bytes(len), (depth, PACKETS), Variation::Exponential, self.seed)
            .latency
            .mean()
    }

    /// Messages of `len` in fragments: fragments per second, and latency of a message.
    fn fragmented(&self, len: u64, fragment: u64) -> (f64, f64) {
        let count = len.div_ceil(fragment);
        let mut card = self.cim.clone();
        if count > 1 {
            card.host.per_message += self.scheduler;
        }
        let rate = self.rate(&card, fragment.min(len), 2);
        // The last fragment starts when those before it have made room.
        let alone = self.latency(fragment.min(len), 2);
        (rate, (count - 1) as f64 / rate + alone)
    }
}

fn operating_point(bench: &Bench) -> Vec<Computed> {
    let rate = |depth: u64| bench.rate(&bench.cim, 2048, depth);
    let gains = [1, 2, 3].map(|depth| rate(depth + 1) / rate(depth) - 1.0);
    let depth = gains.iter().position(|&gain| gain < NO_GAIN).map_or(0, |at| at + 1);
    let flat = |len: &u64| bench.latency(*len, 1) < FLAT * bench.latency(44, 1);
    let sizes = [512, 1024, 2048, 4096, 8192, 16_384];
    let packet = sizes.into_iter().take_while(flat).last().unwrap_or(0);
    let point = |at| modelled(&bench.cim, at, PACKETS, Variation::Exponential, bench.seed);
    let tuned = choose(&grid().map(point).collect::<Vec<_>>()).map(|choice| choice.point);
    let (len, tuned) = tuned.map_or((Bytes(0), 0), |point| (point.len, point.depth));
    vec![
        row("E-28/tuned-packet", len),
        row("E-28/tuned-depth", (tuned as f64, "packets")),
        row("E-28/depth-beyond", (depth as f64, "packets")),
        row("E-28/longest-packet", Bytes(packet)),
        row("E-28/2-kb", (100.0 * allowed(&bench.cim, Bytes(2048)), "percent")),
        row(
            "E-28/4-kb",
            [4096, 8192, 16_384].iter().all(|&len| {
                bench.rate(&bench.cim, len, 3) / bench.rate(&bench.cim, len, 2) - 1.0 < NO_GAIN
            }),
        ),
        row("E-27", gains[0] > 3.0 * gains[1]),
    ]
}

/// The gain of depth 2 over depth 1 by the formulas: Eq 5.2 over Eq 5.5, less one.
fn allowed(cim: &Description, len: Bytes) -> f64 {
    let (free, rest) = cim.network_time(len);
    let transfer = cim.transfer_time(len);
    let alone = cim.host.per_message + transfer + free + rest;
    alone.as_secs_f64() / (transfer.max(free) + rest).as_secs_f64() - 1.0
}

fn fragments(bench: &Bench) -> Vec<Computed> {
    let throughput = |len: u64, fragment: u64| {
        let bytes = len.div_ceil(len.div_ceil(fragment));
        bench.fragmented(len, fragment).0 * bytes as f64 / 1e6
    };
    let megabytes = |value| Value::Number(value, "MB/s");
    let whole = bench.rate(&bench.cim, 16_384, 2) * 16_384.0 / 1e6;
    let (one, two, four) =
        (throughput(16_384, 1024), throughput(16_384, 2048), throughput(16_384, 4096));
    let settled = |fragment| {
        let of = |len| throughput(len, fragment);
        [16_384, 32_768].iter().all(|&len| (of(len) / of(8192) - 1.0).abs() < 0.1)
    };
    let latencies = [2048, 4096, 8192, 16_384].map(|len| bench.fragmented(len, 2048).1);
    // Eq 5.3 and the frames both need the memory: no overlap makes it faster.
    let frames = bench.cim.network.per_frame * 16_384u64.div_ceil(bench.cim.network.frame.0);
    let least = (bench.cim.transfer_time(Bytes(16_384)) + frames).as_secs_f64();
    vec![
        row("E-33/16-kb", megabytes(whole)),
        row("E-33/16-kb-whole", megabytes(16_384e-6 / least)),
        row("E-33/16-kb-fragments", megabytes(four)),
        row("E-33/throughput", settled(1024) && settled(2048) && settled(4096)),
        row("E-33/1-2", two / one > four / two && four > two),
        row("E-33/latency-rises", latencies.windows(2).all(|pair| pair[1] > pair[0])),
        row("E-34", (bench.fragmented(8192, 2048).0, "packets/s")),
    ]
}

fn jitter(bench: &Bench) -> Vec<Computed> {
    let simple = bench.cim.with_simple_interface();
    let of = |card: &Description, len, depth| bench.deviation(card, len, depth);
    let less = |len: u64| 1.0 - of(&simple, len, 1) / of(&bench.cim, len, 1);
    // As a share of the delay itself, which is less for a small message.
    let share = |len: u64| {
        let saved = of(&bench.cim, len, 1) - of(&simple, len, 1);
        saved / bench.latency(len, 1)
    };
    let deeper = |len: u64| {
        let shallow = of(&bench.cim, len, 1);
        [2, 3, 4].map(|depth| of(&bench.cim, len, depth) / shallow - 1.0)
    };
    let unchanged = |len| deeper(len).iter().all(|change| change.abs() < UNCHANGED);
    let grows = |&len: &u64| deeper(len).iter().any(|&change| change > UNCHANGED);
    vec![
        row("E-73/4-kb", unchanged(4096)),
        row("E-73/1-kb", unchanged(1024)),
        row("E-73/jitter-grows", ![44, 256, 1024, 2048, 4096, 16_384].iter().any(grows)),
        row("E-74", less(44) > 0.0 && less(4096) > 0.0 && share(44) > share(4096)),
    ]
}

/// An urgent packet every 50 ms among back-to-back ones: mean and maximum delay of the urgent ones in seconds.
/// Each is due `due` after its arrival.
fn urgent(card: &Description, due: impl Fn(u64) -> Duration) -> (f64, f64) {
    const URGENT: u64 = 400;
    let mut adapter = Transmitter::new(card.clone());
    let mut delays = lastmeter_engine::Distribution::default();
    let (mut next, mut others, mut now) = (0, URGENT, Time::START);
    let mut waiting: Option<(Order, Time)> = None;
    let mut arrived = std::collections::BTreeMap::new();
    while delays.count() < URGENT {
        let arrival = Time::START + Duration::from_ms(50) * (next + 1);
        if waiting.is_none() && now >= arrival && next < URGENT {
            let order =
                Order { class: 1, due: arrival + due(next), ..Order::new(next, Bytes(1024)) };
            (waiting, next) = (Some((order, arrival)), next + 1);
        }
        if let Some((order, at)) = waiting
            && adapter.submit(now, order).is_ok()
        {
            arrived.insert(order.id, at);
            waiting = None;
        }
        while waiting.is_none() {
            let late = now + Duration::from_secs(1);
            let other = Order { due: late, ..Order::new(others, Bytes(4096)) };
            if adapter.submit(now, other).is_err() {
                break;
            }
            others += 1;
        }
        let arrival = Time::START + Duration::from_ms(50) * (next + 1);
        let coming = (next < URGENT).then_some(arrival).filter(|&at| at > now);
        let Some(due) = adapter.ready_at().into_iter().chain(coming).min() else { break };
        now = due;
        adapter.advance(now);
        for event in adapter.events().filter(|event| event.what == What::TransmitAck) {
            if let Some(at) = arrived.remove(&event.order.id) {
                delays.record(event.at - at);
            }
        }
    }
    (delays.mean(), delays.max().as_secs_f64())
}

/// §3.3.2: what an adapter for real-time traffic should have, each a switch of the description.
fn features(bench: &Bench) -> Vec<Computed> {
    let even = |_| Duration::from_ms(50);
    let with = |depth: u64, discipline: Discipline, urgent_first: bool| {
        let mut card = bench.cim.clone();
        card.host.qos = true;
        card.queueing.queues = if discipline == Discipline::Fifo { 1 } else { 2 };
        card.queueing.discipline = discipline;
        card.queueing.depth = depth;
        card.transfer.urgent_first = urgent_first;
        urgent(&card, even)
    };
    let deep = with(8, Discipline::Fifo, false);
    let shallow = with(2, Discipline::Fifo, false);
    let queues = with(8, Discipline::Priority, false);
    let first = with(8, Discipline::Priority, true);
    let by_date = with(8, Discipline::Edd, false);
    let simple = urgent(&bench.cim.with_simple_interface(), even);
    let base = urgent(&bench.cim, even);
    vec![
        row("E-29/simpler-interface", simple.0 < base.0),
        row("E-29/limited-depth", shallow.1 < deep.1 / 2.0),
        row("E-29/queue-own", queues.0 < deep.0 / 2.0),
        row("E-29/transfer-can", first.0 < queues.0),
        row("E-30", by_date.0 < deep.0 / 2.0),
    ]
}

/// §4.2.2: separate headers save the host a copy, and cost the adapter a block.
fn headers(bench: &Bench, copy: PerByte) -> Vec<Computed> {
    let mut together = bench.cim.clone();
    together.host.gather_per_byte = copy;
    together.buffers.header = HEADERS;
    let mut apart = together.clone();
    apart.buffers.separate_headers = true;
    let mean =
        |card: &Description| run(card, Bytes(4096), (1, 1000), Variation::None, bench.seed).mean;
    vec![row("E-42", mean(&together).saturating_sub(mean(&apart)))]
}
