//! The questions of chapter 6 on a modern host and its links (E-83 to E-85, E-95): the channels of Table 6.2 a
//! hundred times as fast, on a dedicated 10 Gbit/s link and on time windows of a tenth of one.

use super::super::{Computed, Setting};
use super::spread::{Spread, deviation, seeds};
use super::system::{Flow, Host, Run, run};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Draw, Duration, PerByte, Rate, Stream, Time};
use lastmeter_host::adapter::description::{Description, Discipline, NetworkModel};
use lastmeter_transport::channel::admission::host::HandlerCosts;
use lastmeter_transport::channel::handlers::Regulation;

const WARM: Duration = Duration::from_ms(5);
/// Some 14,000 real-time packets, at some 350,000 per second.
const SPAN: Duration = Duration::from_ms(40);
const UNBOUNDED: u64 = 1 << 40;
/// Best-effort loads below and above the free capacity, as shares of the link.
const LIGHT: f64 = 0.1;
const HEAVY: f64 = 0.8;

struct Bench<'a> {
    constants: &'a Constants,
    seed: u64,
    packet: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    /// Percent of real-time packets late or lost.
    missed: f64,
    /// Best effort, in bits per second.
    throughput: f64,
    /// Deviation of the periodic channel's laxity, in seconds.
    jitter: f64,
}

/// Where the link is scheduled, and how.
#[derive(Clone, Copy)]
enum Link {
    /// By the host, in order, with a limited number of packets on the adapter.
    Host(u64),
    /// By the adapter, in deadline order.
    Adapter,
    /// By the host, into two rings of the adapter.
    TwoRings,
}

impl Bench<'_> {
    /// The channels, with messages of length `message`.
    fn flows(&self, message: Bytes, load: f64) -> Result<Vec<Flow>, Error> {
        let list = |name| self.constants.get::<Vec<u64>>(name);
        let (intervals, deadlines, bursts) =
            (list("intervals")?, list("deadlines")?, list("bursts")?);
        let end = Time::START + WARM + SPAN;
        let packets = message.0.div_ceil(self.packet.0);
        let mut flows = Vec::new();
        for (n, ((&i, &d), &b)) in intervals.iter().zip(&deadlines).zip(&bursts).enumerate() {
            let (interval, deadline) = (Duration::from_us(i), Duration::from_us(d));
            let mut stream = Stream::new(self.seed, &format!("channel {n}"));
            let mut at = Time::START + Duration::from_ps(stream.below(interval.as_ps()));
            let mut messages = Vec::new();
            while at < end {
                let burst = 1 + stream.below(b);
                messages.extend((0..burst).map(|_| (at, message)));
                at += interval * burst;
            }
            flows.push(Flow {
                interval,
                deadline: Some(deadline),
                packet_max: self.packet,
                slots: (b + d.div_ceil(i)) * packets,
                messages,
            });
        }
        let rate = self.constants.get::<Rate>("rate")?.as_bits() as f64 / 8.0;
        let gap = Draw::Exponential(Duration::from_secs_f64(message.0 as f64 / (rate * load)));
        let mut stream = Stream::new(self.seed, "best effort");
        let mut at = Time::START + gap.sample(&mut stream);
        let mut messages = Vec::new();
        while at < end {
            messages.push((at, message));
            at += gap.sample(&mut stream);
        }
        flows.push(Flow {
            interval: Duration::ZERO,
            deadline: None,
            packet_max: self.packet,
            slots: self.constants.get::<u64>("best_effort_slots")?,
            messages,
        });
        Ok(flows)
    }

    fn host(&self, link: Link, network: NetworkModel) -> Result<Host, Error> {
        let time = |name: &str| self.constants.get::<Duration>(name);
        let heap = match link {
            // If the adapter sorts, the host need not.
            Link::Adapter => Duration::ZERO,
            Link::Host(_) | Link::TwoRings => time("heap")?,
        };
        let bytes: PerByte = self.constants.get("sender_byte")?;
        let packet = time("sender_segment")? + bytes.time_for(self.packet);
        let costs = |sorting: Duration| -> Result<HandlerCosts, Error> {
            Ok(HandlerCosts {
                per_message: time("sender_call")?,
                per_packet: packet + sorting,
                switch: time("switch")?,
                packets_between: self.constants.get("packets_between")?,
            })
        };
        let mut card = Description::plain("an adapter of today");
        card.host.qos = true;
        let (queues, discipline) = match link {
            Link::Host(_) => (1, Discipline::Fifo),
            Link::TwoRings => (2, Discipline::Priority),
            Link::Adapter => (2, Discipline::Edd),
        };
        (card.queueing.queues, card.queueing.discipline) = (queues, discipline);
        card.queueing.at_network = Some(discipline);
        card.queueing.depth = UNBOUNDED;
        card.buffers.memory = Bytes::from_mib(1024);
        card.transfer.setup = time("descriptor")?;
        card.transfer.per_byte = self.constants.get::<PerByte>("bus")?;
        card.network.rate = Some(self.constants.get::<Rate>("rate")?);
        card.network.processing = time("framing")?;
        card.network.model = network;
        let schedules = match link {
            Link::Host(depth) => Some(depth),
            Link::TwoRings => Some(UNBOUNDED),
            Link::Adapter => None,
        };
        Ok(Host {
            regulation: Regulation::FlowControl,
            real_time: costs(heap)?,
            best_effort: costs(Duration::ZERO)?,
            schedules,
            adapter: card,
        })
    }

    fn point(&self, host: &Host, flows: &[Flow]) -> Point {
        let span = (Time::START + WARM, Time::START + WARM + SPAN);
        let run: Run = run(host, flows, span, Duration::from_us(50));
        let best_effort = flows.len() - 1;
        Point {
            missed: run.missed(|at| at < best_effort),
            throughput: 8.0 * run.throughput(|at| at == best_effort),
            jitter: deviation(&run.flows[best_effort - 1].laxity),
        }
    }
}

/// The rows of the modern host.
pub(in super::super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut spread = Spread::default();
    for seed in seeds(setting) {
        let packet = setting.constants.get("packet")?;
        let bench = Bench { constants: setting.constants, seed, packet };
        alone(&bench, &mut spread)?;
        shared(&bench, &mut spread)?;
    }
    Ok(spread.computed())
}

/// A dedicated link (§6.3).
fn alone(bench: &Bench<'_>, spread: &mut Spread) -> Result<(), Error> {
    let message: Bytes = bench.constants.get("message")?;
    let (light, heavy) = (bench.flows(message, LIGHT)?, bench.flows(message, HEAVY)?);
    let ring: u64 = bench.constants.get("ring")?;
    let links = [Link::Adapter, Link::Host(2), Link::Host(6), Link::Host(ring)];
    let mut points = Vec::new();
    for link in links {
        let host = bench.host(link, NetworkModel::PointToPoint)?;
        points.push((bench.point(&host, &light), bench.point(&host, &heavy)));
    }
    let most = points.iter().map(|(light, heavy)| light.missed.max(heavy.missed));
    let most = most.fold(0.0, f64::max);
    spread.add("E-84", "modern, a link of its own: deadlines missed", most, "% of packets");
    let [adapter, two, six, ring] = [0, 1, 2, 3].map(|at| points[at].1);
    let item = "modern: scheduled on the adapter, best effort gets more";
    let host = two.throughput.max(six.throughput).max(ring.throughput);
    spread.holds("E-83", item, adapter.throughput > 1.05 * host);
    let item = "modern: more than two on the adapter gain nothing";
    spread.holds("E-85", item, six.throughput <= 1.01 * two.throughput);
    let item = "modern: scheduling on the adapter saves jitter";
    spread.holds("E-84", item, adapter.jitter < two.jitter);
    spread.holds("E-95", "modern: on a link of its own the host is enough", two.missed == 0.0);
    Ok(())
}

/// A tenth of a link, in time windows (§6.4).
fn shared(bench: &Bench<'_>, spread: &mut Spread) -> Result<(), Error> {
    let message: Bytes = bench.constants.get("message_shared")?;
    let time = |name: &str| bench.constants.get::<Duration>(name);
    let window = NetworkModel::Intermittent { rotation: time("cycle")?, holding: time("window")? };
    let heavy = bench.flows(message, HEAVY / 4.0)?;
    let ring: u64 = bench.constants.get("ring")?;
    let point = |link: Link| -> Result<Point, Error> {
        Ok(bench.point(&bench.host(link, window)?, &heavy))
    };
    let id = "E-95";
    let sorted = point(Link::Adapter)?.missed;
    spread.add(id, "modern, windows: late with deadlines on the adapter", sorted, "% of packets");
    let rings = point(Link::TwoRings)?.missed;
    spread.add(id, "modern, windows: late with two rings", rings, "% of packets");
    let long = point(Link::Host(ring))?.missed;
    spread.holds(id, "modern, windows: almost all late with one ring", long > 90.0);
    let few: u64 = bench.constants.get("few")?;
    let short = point(Link::Host(few))?.missed;
    spread.holds(id, "modern, windows: a short ring saves most of them", short < long / 2.0);
    Ok(())
}
