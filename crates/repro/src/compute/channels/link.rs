//! Link scheduling on HARTS (E-34 to E-37): two periodic channels, a bursty one and best effort, on a
//! link that carries 500 packets per second.

use super::super::{Computed, Setting};
use super::DRIFT;
use super::spread::{Spread, seeds};
use crate::machines::channels::{Channel, Network, Outcome};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::policing::Excess;

/// Some 12,000 packets per channel.
const SPAN: Duration = Duration::from_secs(150);
/// Best effort, in packets per second (§3.5.1).
const LOADS: [u64; 6] = [80, 160, 240, 320, 400, 480];

struct Bench<'a> {
    constants: &'a Constants,
    seed: u64,
    packet: Bytes,
    deadline: Duration,
    /// Packets per second of each channel.
    rate: u64,
    /// Slots of each traffic source.
    slots: u64,
    link: Link,
}

/// For each source of a run: message length, a factor on its packet rate, and messages that arrive at once.
#[derive(Clone, Copy)]
struct Source {
    times: u64,
    burst: u64,
}

impl<'a> Bench<'a> {
    fn new(constants: &'a Constants, seed: u64) -> Result<Bench<'a>, Error> {
        let packet: Bytes = constants.get("packet")?;
        let saturation: u64 = constants.get("saturation")?;
        // All of a packet's time is modelled as a cost per packet.
        let per_packet = Duration::from_secs(1) / saturation;
        let link = Link {
            rate: Rate::from_gbit(1_000_000),
            per_packet,
            packet_max: packet,
            outstanding: constants.get("depth")?,
            propagation: Duration::ZERO,
            horizon: Duration::ZERO,
            skew: Duration::ZERO,
        };
        let (deadline, rate, slots) =
            (constants.get("deadline")?, constants.get("channel_rate")?, constants.get("slots")?);
        Ok(Bench { constants, seed, packet, deadline, rate, slots, link })
    }

    /// Results for three channels and best effort.
    fn run(&self, message: Bytes, sources: [Source; 3], load: u64) -> Result<Vec<Outcome>, Error> {
        let mut network = Network::new(&[self.link]);
        let packets = message.0.div_ceil(self.packet.0);
        let interval = Duration::from_secs(packets) / self.rate;
        let end = Time::START + SPAN;
        for (n, source) in sources.iter().enumerate() {
            let contract = Contract {
                message_max: message,
                interval_min: interval,
                burst_max: source.burst,
                packet_max: self.packet,
                deadline: self.deadline,
            };
            let (route, bounds) = (vec![0], vec![self.deadline]);
            let (slots, excess) = (self.slots, Excess::Drop);
            let channel = network.channel(Channel { contract, route, bounds, slots, excess });
            let mut stream = Stream::new(self.seed, &format!("channel {n}"));
            let mut at = Time::START + Duration::from_ps(stream.below(interval.as_ps()));
            let mut sent = 0;
            while at < end {
                let burst = 1 + stream.below(source.burst);
                (0..burst).for_each(|_| network.message(at, channel, message));
                at += interval * burst / source.times;
                sent += burst;
                if sent >= DRIFT {
                    at += Duration::from_ps(stream.below(interval.as_ps()));
                    sent = 0;
                }
            }
        }
        let effort = network.best_effort(vec![0], self.packet, self.slots);
        let bursts: u64 = self.constants.get("bursts")?;
        let mut stream = Stream::new(self.seed, "best effort");
        let gap = Duration::from_secs(packets) / load;
        let mut at = Time::START + Duration::from_ps(stream.below(gap.as_ps()));
        while at < end {
            let burst = 1 + stream.below(bursts);
            (0..burst).for_each(|_| network.effort(at, effort, message));
            at += gap * burst;
        }
        network.run(end + Duration::from_secs(5));
        let mut outcomes = network.outcomes;
        outcomes.append(&mut network.effort_outcomes);
        Ok(outcomes)
    }
}

/// The rows of E-34 to E-37.
pub(in super::super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut spread = Spread::default();
    for seed in seeds(setting) {
        let bench = Bench::new(setting.constants, seed)?;
        behaved(&bench, &mut spread)?;
        burstiness(&bench, &mut spread)?;
    }
    Ok(spread.computed())
}

fn behaved(bench: &Bench<'_>, spread: &mut Spread) -> Result<(), Error> {
    let message: Bytes = bench.constants.get("message")?;
    let bursts: u64 = bench.constants.get("bursts")?;
    let (periodic, bursty) = (Source { times: 1, burst: 1 }, Source { times: 1, burst: bursts });
    let well = [periodic, bursty, periodic];
    let ill = [periodic, bursty, Source { times: 2, burst: 1 }];
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for load in LOADS {
        good.push(bench.run(message, well, load)?);
        bad.push(bench.run(message, ill, load)?);
    }
    let real_time = || good.iter().flat_map(|run| &run[..3]);
    let missed: u64 = real_time().map(|of| of.late + of.late_at_links).sum();
    let dropped: u64 = real_time().map(|of| of.dropped).sum();
    spread.add("E-35", "real-time packets late", missed as f64, "packets");
    spread.add("E-35", "real-time packets dropped", dropped as f64, "packets");
    let worst = |run: &Vec<Outcome>, of: usize| run[of].latency.max().as_secs_f64();
    let mean = |run: &Vec<Outcome>, of: usize| run[of].latency.mean();
    let last = LOADS.len() - 1;
    // Our threshold for "very similar": within a quarter.
    let alike = |of: usize| (mean(&good[last], of) / mean(&good[last], 1) - 1.0).abs() < 0.25;
    spread.holds("E-35", "periodic and bursty channels are alike", alike(0) && alike(2));
    // Best effort can only add what is outstanding when a packet becomes current.
    let blocking = bench.link.blocking().as_secs_f64();
    let flat = (0..3).all(|of| worst(&good[last], of) - worst(&good[0], of) <= blocking);
    spread.holds("E-35", "worst latency does not grow with best effort", flat);
    let effort = |run: &Vec<Outcome>| run[3].bytes as f64 / SPAN.as_secs_f64();
    let offered = |load: u64| (load * bench.packet.0) as f64;
    let low = effort(&good[0]) / offered(LOADS[0]);
    let full = (effort(&good[last]) / effort(&good[last - 1]) - 1.0).abs() < 0.02;
    spread.holds("E-35", "best effort rises with load until saturation", low > 0.95 && full);
    let lost = good[last][3].dropped as f64 > 0.3 * good[last][3].packets as f64;
    spread.holds("E-35", "beyond saturation most of what is more is dropped", lost);
    let occupancy = |run: &Vec<Outcome>, of: usize| run[of].occupancy.mean();
    let longer = occupancy(&good[last], 1) > 1.5 * occupancy(&good[last], 0);
    spread.holds("E-35", "the bursty channel occupies slots longer", longer);

    let neighbours = || bad.iter().flat_map(|run| [&run[0], &run[1]]);
    let harmed: u64 = neighbours().map(|of| of.late + of.late_at_links + of.dropped).sum();
    spread.add(
        "E-36",
        "packets of well-behaved channels late or dropped",
        harmed as f64,
        "packets",
    );
    let late: u64 = bad.iter().map(|run| run[2].late + run[2].late_at_links).sum();
    spread.add("E-36", "delivered packets of the ill-behaved channel late", late as f64, "packets");
    let excess = bad.iter().map(|run| run[2].dropped as f64 / run[2].packets as f64);
    let share = 100.0 * excess.sum::<f64>() / bad.len() as f64;
    spread.add("E-36", "packets of the ill-behaved channel dropped", share, "% of packets");
    let kept = (effort(&bad[last]) / effort(&good[last]) - 1.0).abs() < 0.05;
    spread.holds("E-36", "best effort is as before", kept);
    let stands = occupancy(&bad[0], 2) > 5.0 * occupancy(&good[0], 2);
    spread.holds("E-36", "queueing delay of the ill-behaved channel shoots up", stands);
    Ok(())
}

/// The same loads in longer messages (§3.5.3).
fn burstiness(bench: &Bench<'_>, spread: &mut Spread) -> Result<(), Error> {
    let bursts: u64 = bench.constants.get("bursts")?;
    let sizes: Vec<u64> = bench.constants.get("sizes")?;
    let (periodic, bursty) = (Source { times: 1, burst: 1 }, Source { times: 1, burst: bursts });
    let lost = |size: &u64, load: u64| -> Result<[f64; 3], Error> {
        let run = bench.run(Bytes::from_kib(*size), [periodic, bursty, periodic], load)?;
        let share = |of: &Outcome| 100.0 * of.dropped as f64 / of.packets as f64;
        Ok([share(&run[0]), share(&run[1]), share(&run[2])])
    };
    let light: Vec<[f64; 3]> = sizes.iter().map(|size| lost(size, 80)).collect::<Result<_, _>>()?;
    let heavy: Vec<[f64; 3]> =
        sizes.iter().map(|size| lost(size, 480)).collect::<Result<_, _>>()?;
    let grows = heavy.windows(2).all(|pair| pair[1][1] >= pair[0][1]);
    let some = heavy.last().is_some_and(|last| last[1] > 0.0);
    spread.holds("E-37", "loss of the bursty channel grows with the message", grows && some);
    let own = heavy.iter().all(|lost| lost[0] == 0.0 && lost[2] == 0.0);
    spread.holds("E-37", "it depends only on the bursty source", own);
    let near = light.iter().zip(&heavy).all(|(light, heavy)| (light[1] - heavy[1]).abs() < 2.0);
    spread.holds("E-37", "the system's load matters little", near);
    Ok(())
}
