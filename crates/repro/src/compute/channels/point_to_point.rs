//! The point-to-point network of §6.3 (E-81 to E-85): three real-time channels and best effort over an
//! adapter of two stages, with the link scheduled on it or on the host.

use super::super::{Computed, Setting};
use super::DRIFT;
use super::spread::{Spread, deviation, seeds};
use super::system::{Flow, Host, Run, run};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Draw, Duration, PerByte, Stream, Time};
use lastmeter_host::adapter::description::{Description, Discipline};
use lastmeter_transport::channel::admission::host::{HandlerCosts, Pace};
use lastmeter_transport::channel::admission::{Method, Reservations, host};
use lastmeter_transport::channel::contract::Contract;
use lastmeter_transport::channel::handlers::Regulation;

const MS: Duration = Duration::from_ms(1);
const WARM: Duration = Duration::from_secs(1);
/// Some 30,000 packets per point (§6.3.1), at some 2000 per second.
const SPAN: Duration = Duration::from_secs(15);
/// The speed factor of a faster network.
const FASTER: u64 = 10;
/// More than the number of packets that exist.
const UNBOUNDED: u64 = 1 << 40;
/// Offered best effort, in bytes per second (§6.3.2).
const LOADS: [u64; 6] = [235_000, 1_000_000, 2_000_000, 3_000_000, 4_500_000, 7_500_000];

struct Bench<'a> {
    constants: &'a Constants,
    seed: u64,
    packet: Bytes,
    message: Bytes,
}

/// The quantities of Figs 6.2 and 6.3 for one run.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Best effort: bytes per second, and mean delay in seconds.
    throughput: f64,
    delay: f64,
    /// Real time: percent of packets late or lost, mean laxity and its deviation in seconds.
    missed: f64,
    laxity: f64,
    jitter: f64,
}

impl Bench<'_> {
    fn list(&self, name: &str) -> Result<Vec<u64>, Error> {
        self.constants.get(name)
    }

    /// The contracts of Table 6.2.
    fn contracts(&self) -> Result<Vec<Contract>, Error> {
        let (intervals, deadlines, bursts) =
            (self.list("intervals")?, self.list("deadlines")?, self.list("bursts")?);
        let of = |((&i, &d), &burst_max): ((&u64, &u64), &u64)| Contract {
            message_max: self.message,
            interval_min: MS * i,
            burst_max,
            packet_max: self.packet,
            deadline: MS * d,
        };
        Ok(intervals.iter().zip(&deadlines).zip(&bursts).map(of).collect())
    }

    fn flows(&self, load: u64) -> Result<Vec<Flow>, Error> {
        let end = Time::START + WARM + SPAN;
        let mut flows = Vec::new();
        for (n, contract) in self.contracts()?.into_iter().enumerate() {
            let mut stream = Stream::new(self.seed, &format!("channel {n}"));
            let interval = contract.interval_min;
            let mut at = Time::START + Duration::from_ps(stream.below(interval.as_ps()));
            let (mut messages, mut sent) = (Vec::new(), 0);
            while at < end {
                let burst = 1 + stream.below(contract.burst_max);
                messages.extend((0..burst).map(|_| (at, self.message)));
                at += interval * burst;
                sent += burst;
                if sent >= DRIFT {
                    at += Duration::from_ps(stream.below(interval.as_ps()));
                    sent = 0;
                }
            }
            let waiting = contract.deadline.as_ps().div_ceil(interval.as_ps());
            flows.push(Flow {
                interval,
                deadline: Some(contract.deadline),
                packet_max: self.packet,
                slots: (contract.burst_max + waiting) * contract.packets(),
                messages,
            });
        }
        let mut stream = Stream::new(self.seed, "best effort");
        let gap = Draw::Exponential(Duration::from_secs_f64(self.message.0 as f64 / load as f64));
        let mut at = Time::START + gap.sample(&mut stream);
        let mut messages = Vec::new();
        while at < end {
            messages.push((at, self.message));
            at += gap.sample(&mut stream);
        }
        let bursts: u64 = self.constants.get("best_effort_burst")?;
        flows.push(Flow {
            interval: Duration::ZERO,
            deadline: None,
            packet_max: self.packet,
            slots: bursts * self.message.0.div_ceil(self.packet.0),
            messages,
        });
        Ok(flows)
    }

    /// A handler's costs; if the adapter schedules the link, the host saves `saved`.
    fn costs(&self, packet: &str, saved: Option<&str>) -> Result<HandlerCosts, Error> {
        let time = |name: &str| self.constants.get::<Duration>(name);
        let saved = saved.map_or(Ok(Duration::ZERO), time)?;
        Ok(HandlerCosts {
            per_message: time("per_message")?,
            per_packet: time(packet)? - saved,
            switch: Duration::ZERO,
            packets_between: self.constants.get("packets_between")?,
        })
    }

    /// Table 6.1: the link is scheduled on the adapter, or on the host with at most `depth` packets on the adapter.
    fn host(&self, depth: Option<u64>) -> Result<Host, Error> {
        let mut card = Description::plain("END, DMA and network");
        card.host.qos = true;
        card.queueing.queues = 2;
        card.queueing.discipline = if depth.is_some() { Discipline::Fifo } else { Discipline::Edd };
        if depth.is_some() {
            card.queueing.queues = 1;
        }
        card.queueing.at_network = Some(Discipline::Fifo);
        card.queueing.depth = UNBOUNDED;
        card.buffers.memory = Bytes::from_mib(1024);
        let overhead: Duration = self.constants.get("fifo")?;
        card.transfer.setup = overhead;
        card.transfer.per_byte = self.constants.get::<PerByte>("dma")?;
        // The network's time per byte is modelled as the cost of a frame of the longest packet.
        let network: PerByte = self.constants.get("network")?;
        card.network.processing = overhead;
        card.network.frame = self.packet;
        card.network.per_frame = network.time_for(self.packet);
        let saved = |name| if depth.is_some() { None } else { Some(name) };
        Ok(Host {
            regulation: Regulation::FlowControl,
            real_time: self.costs("real_time_packet", saved("host_heap"))?,
            best_effort: self.costs("best_effort_packet", saved("host_fifo"))?,
            schedules: depth,
            adapter: card,
        })
    }

    fn point(&self, depth: Option<u64>, load: u64) -> Result<Point, Error> {
        self.point_of(&self.host(depth)?, load)
    }

    fn point_of(&self, host: &Host, load: u64) -> Result<Point, Error> {
        let span = (Time::START + WARM, Time::START + WARM + SPAN);
        let run: Run = run(host, &self.flows(load)?, span, MS);
        let [real_time @ .., best_effort] = run.flows.as_slice() else {
            unreachable!("best effort comes last")
        };
        // The document does not say of which channel; we take the middle one (README).
        let periodic = &real_time[2].laxity;
        Ok(Point {
            throughput: run.throughput(|at| at == real_time.len()),
            delay: best_effort.delay.mean(),
            missed: run.missed(|at| at < real_time.len()),
            laxity: periodic.mean(),
            jitter: deviation(periodic),
        })
    }
}

/// The rows of E-80 to E-85, E-32 and E-95.
pub(in super::super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut spread = Spread::default();
    for seed in seeds(setting) {
        let bench = Bench {
            constants: setting.constants,
            seed,
            packet: setting.constants.get("packet")?,
            message: setting.constants.get("message")?,
        };
        one(&bench, &mut spread)?;
    }
    Ok(spread.computed())
}

fn one(bench: &Bench<'_>, spread: &mut Spread) -> Result<(), Error> {
    // The adapter alone, fed at its capacity: the host costs nothing.
    let mut host = bench.host(Some(UNBOUNDED))?;
    let free = HandlerCosts {
        per_message: Duration::ZERO,
        per_packet: Duration::from_us(1),
        ..host.best_effort
    };
    (host.best_effort, host.real_time) = (free, free);
    let flood = bench.flows(40_000_000)?.split_off(3);
    let span = (Time::START + WARM, Time::START + WARM + SPAN / 5);
    let capacity = run(&host, &flood, span, MS).throughput(|_| true);
    spread.add("E-83", "capacity of the network", capacity / 1e6, "MB/s");

    let depths: Vec<Option<u64>> =
        std::iter::once(None).chain(bench.list("depths")?.into_iter().map(Some)).collect();
    let mut figures: Vec<Vec<Point>> = Vec::new();
    for &depth in &depths {
        figures.push(LOADS.iter().map(|&load| bench.point(depth, load)).collect::<Result<_, _>>()?);
    }
    let last = |of: usize| figures[of][LOADS.len() - 1];
    let kb = |bytes: f64| bytes / bench.packet.0 as f64;
    spread.add(
        "E-83",
        "best effort at saturation, scheduled on the host",
        kb(last(1).throughput),
        "packets/s",
    );
    spread.holds(
        "E-83",
        "scheduled on END saturates later",
        (1..4).all(|of| last(0).throughput > 1.05 * last(of).throughput),
    );
    spread.holds(
        "E-83",
        "delays rise rapidly at saturation",
        (0..4).all(|of| last(of).delay > 3.0 * figures[of][0].delay),
    );
    let most =
        (0..4).flat_map(|of| figures[of].iter().map(|point| point.missed)).fold(0.0, f64::max);
    spread.add("E-84", "deadlines missed in all four experiments", most, "% of packets");
    spread.holds(
        "E-84",
        "a longer queue leaves less laxity",
        last(1).laxity >= last(2).laxity && last(2).laxity >= last(3).laxity,
    );
    spread.holds(
        "E-84",
        "a longer queue does not reduce jitter",
        last(3).jitter >= 0.98 * last(1).jitter,
    );
    let worst = (1..4).map(|of| last(of).jitter).fold(0.0, f64::max);
    spread.add("E-84", "jitter that scheduling on END saves", (worst - last(0).jitter) * 1e3, "ms");
    spread.holds(
        "E-85",
        "more than two on the adapter gain nothing",
        (2..4).all(|of| last(of).throughput <= 1.01 * last(1).throughput),
    );
    spread.holds("E-95", "point to point the host is enough", most == 0.0);
    // The claim of chapter 1 on this network, with two packets on the adapter.
    let host = bench.host(Some(2))?;
    let mut faster_link = host.clone();
    faster_link.adapter.network.per_frame = host.adapter.network.per_frame / FASTER;
    faster_link.adapter.transfer.per_byte = host.adapter.transfer.per_byte.scale_ceil(1, FASTER);
    let mut faster_host = host;
    for costs in [&mut faster_host.real_time, &mut faster_host.best_effort] {
        costs.per_message = costs.per_message / 2;
        costs.per_packet = costs.per_packet / 2;
    }
    let most = |host: &Host| bench.point_of(host, LOADS[LOADS.len() - 1]);
    let (link, host) = (most(&faster_link)?.throughput, most(&faster_host)?.throughput);
    let now = last(1).throughput;
    let item = "a link and a bus ten times as fast gain nothing";
    spread.holds("E-01", item, (link / now - 1.0).abs() < 0.01);
    spread.holds("E-01", "a processor twice as fast more than doubles it", host > 2.0 * now);
    spread.holds("E-80", "admission of processor and link admits Table 6.2", admits(bench)?);
    for (n, contract) in bench.contracts()?.iter().enumerate() {
        let rate = contract.bytes_per_second() / 1024.0;
        spread.add("E-82", &format!("R_max of channel {n}"), rate, "KB/s");
    }
    let load = LOADS[2];
    let at_once = Host { regulation: Regulation::RealTimePriority, ..bench.host(Some(2))? };
    let (waits, at_once) = (bench.point(Some(2), load)?, bench.point_of(&at_once, load)?);
    let item = "early messages at once: best effort waits longer";
    spread.holds("E-32", item, at_once.delay > waits.delay);
    Ok(())
}

/// Whether the exact test admits the three channels with these costs (§6.3.2: "all real-time traffic is
/// guaranteed to meet its deadline").
fn admits(bench: &Bench<'_>) -> Result<bool, Error> {
    let costs = bench.costs("real_time_packet", None)?;
    let best_effort = bench.costs("best_effort_packet", None)?;
    let overhead: Duration = bench.constants.get("fifo")?;
    let stage = |name: &str| -> Result<Duration, Error> {
        Ok(bench.constants.get::<PerByte>(name)?.time_for(bench.packet) + overhead)
    };
    let (packet, network) = (stage("dma")?, stage("network")?);
    let made_every = costs.per_packet.min(best_effort.per_packet);
    let pace = Pace { made_every, stages: vec![packet, network] };
    let blocking = costs.blocking().max(best_effort.blocking());
    let mut processor = Reservations::new(Method::Edf, blocking);
    let mut link = Reservations::new(Method::Edf, packet * 2);
    let mut contracts = bench.contracts()?;
    contracts.sort_by_key(|contract| contract.deadline);
    for contract in contracts {
        let wire = lastmeter_transport::channel::admission::Demand {
            cost: packet * contract.packets(),
            interval: contract.interval_min,
        };
        let cpu = costs.demand(&contract);
        let within = contract.deadline;
        let Some((d_cpu, d_link)) = host::bounds((&processor, cpu), (&link, wire), &pace, within)
        else {
            return Ok(false);
        };
        processor.reserve(cpu, d_cpu.min(cpu.interval));
        // If packets never wait for the link, only its utilisation counts.
        link.reserve(wire, if pace.crossing().is_some() { wire.interval } else { d_link });
    }
    Ok(true)
}
