//! The shared network of §6.4 (E-86 to E-94): 6 real-time channels, 68 films and best effort, on a tenth of 1 Gbit/s.

use super::super::{Computed, Setting};
use super::spread::{Spread, seeds_of};
use super::system::{Flow, Host, Run, run};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Duration, PerByte, Rate, Stream, Time};
use lastmeter_host::adapter::description::{Description, Discipline, NetworkModel};
use lastmeter_net::mpeg::{Moments, frames};
use lastmeter_transport::channel::admission::host::HandlerCosts;
use lastmeter_transport::channel::handlers::Regulation;

const PACKET: Bytes = Bytes(4096);
/// A frame every 33 ms (§6.4.3).
const FRAME: Duration = Duration::from_ms(33);
/// Frames of a minute at 33 ms each, by which instances of a film are staggered.
pub(super) const MINUTE: u64 = 60_000 / 33;
const FILMS: u64 = 68;
pub(super) const NAMES: [&str; 6] = ["dino", "lambs", "atp", "race", "news", "talk"];
/// Some 26,000 real-time packets per point, at some 3700 per second.
const SPAN: Duration = Duration::from_secs(7);
/// Long enough for a link that is overloaded by a few per cent to fill its queues.
const WARM: Duration = Duration::from_secs(5);
/// Seeds of a quick run: films and channel phases change the late share by a few per cent.
const SEEDS: u64 = 5;
/// More than the number of packets that exist.
const UNBOUNDED: u64 = 1 << 40;

/// Configuration of adapter and host (§6.4.4, §6.4.5).
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) regulation: Regulation,
    /// Most packets on the adapter, if the host schedules the link.
    pub(super) depth: Option<u64>,
    pub(super) queues: Queues,
    pub(super) optimised: bool,
    /// C_sf, in hundredths.
    pub(super) speed: u64,
    pub(super) rotation: Duration,
    pub(super) holding: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Queues {
    /// One FIFO.
    One,
    /// A FIFO for real time, ahead of one for best effort.
    Two,
    /// The first of the two in deadline order.
    Deadlines,
}

const MS: Duration = Duration::from_ms(1);
/// In hundredths.
pub(super) const SPEED: u64 = 100;
/// EQoS.
pub(super) const EQOS: Plan = Plan {
    regulation: Regulation::FlowControl,
    depth: None,
    queues: Queues::Deadlines,
    optimised: true,
    speed: 12 * SPEED,
    rotation: Duration::from_ms(10),
    holding: MS,
};
pub(super) const HQOS_1: Plan = Plan { depth: Some(UNBOUNDED), queues: Queues::One, ..EQOS };
pub(super) const HQOS_2: Plan = Plan { depth: Some(UNBOUNDED), queues: Queues::Two, ..EQOS };

pub(super) struct Bench<'a> {
    constants: &'a Constants,
    seed: u64,
    films: Vec<Vec<u64>>,
    /// The frame of the films at which a run starts.
    begins: u64,
    unsaid: Unsaid,
}

/// Traffic parameters that the document does not give, where they differ from the constants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsaid {
    /// The deadline of channels 4 and 5, the tightest, in ms.
    pub(super) tightest: Option<u64>,
    /// B_max of channels 0 to 5 in twelfths of Table 6.2's; `None` for the constants'.
    pub(super) bursts: Option<u64>,
    /// Frames between two instances of a film.
    pub(super) stagger: u64,
}

impl Unsaid {
    /// As in the constants.
    pub(super) const NONE: Unsaid = Unsaid { tightest: None, bursts: None, stagger: MINUTE };
}

/// B_max of channels 0 to 5 in Table 6.2.
const BURSTS: [u64; 6] = [12, 12, 12, 12, 8, 1];

/// The six films of Table 6.4.
fn films(constants: &Constants, seed: u64) -> Result<Vec<Vec<u64>>, Error> {
    NAMES
        .iter()
        .enumerate()
        .map(|(film, name)| {
            let row: Vec<u64> = constants.get(name)?;
            let [least, most, mean, deviation] = row[..] else {
                return Err(Error::Computation {
                    name: "channels-token-network",
                    message: format!("`{name}` needs min, max, mean and deviation"),
                });
            };
            let moments = Moments { least, most, mean: mean as f64, deviation: deviation as f64 };
            let count = 12 * MINUTE as usize;
            frames(&moments, count, seed * 6 + film as u64).ok_or(Error::Computation {
                name: "channels-token-network",
                message: format!("no frames have the moments of `{name}`"),
            })
        })
        .collect()
}

/// The length of frame `at` of instance `n` of the 68.
fn frame(films: &[Vec<u64>], n: u64, at: u64) -> Bytes {
    let film = &films[(n % films.len() as u64) as usize];
    Bytes(film[(at % film.len() as u64) as usize].div_ceil(8))
}

/// The frame at which a run starts: the one with which the films' load comes nearest to that of Table 6.3.
fn begins(films: &[Vec<u64>], stagger: u64, used: Rate) -> u64 {
    let of_all = |at: u64| {
        let instance = |n: u64| frame(films, n, at + (n / films.len() as u64) * stagger).0;
        (0..FILMS).map(instance).sum::<u64>()
    };
    let all: Vec<u64> = (0..films[0].len() as u64).map(of_all).collect();
    let run = ((WARM + SPAN).as_ps() / FRAME.as_ps()) as usize;
    let wanted = used.as_bits() as f64 / 8.0 * FRAME.as_secs_f64() * run as f64;
    let mut sent: u64 = all.iter().cycle().take(run).sum();
    let mut best = (f64::INFINITY, 0);
    for at in 0..all.len() {
        let off = (sent as f64 - wanted).abs();
        if off < best.0 {
            best = (off, at as u64);
        }
        sent = sent + all[(at + run) % all.len()] - all[at];
    }
    best.1
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        constants: &'a Constants,
        seed: u64,
        unsaid: Unsaid,
    ) -> Result<Bench<'a>, Error> {
        let films = films(constants, seed)?;
        let begins = begins(&films, unsaid.stagger, constants.get("films_used")?);
        Ok(Bench { constants, seed, films, begins, unsaid })
    }

    /// The frame number `at` that film `n` of the 68 sends.
    fn frame(&self, n: u64, at: u64) -> Bytes {
        frame(&self.films, n, self.begins + (n / 6) * self.unsaid.stagger + at)
    }

    /// Channels 0 to 5 of Table 6.3: bursts at their contracted rate.
    fn channels(&self) -> Result<Vec<Flow>, Error> {
        let message: Bytes = self.constants.get("message")?;
        let list = |name| self.constants.get::<Vec<u64>>(name);
        let (intervals, mut deadlines, mut bursts) =
            (list("intervals")?, list("deadlines")?, list("bursts")?);
        let tightest = match self.unsaid.tightest {
            Some(tightest) => tightest,
            None => self.constants.get("tightest")?,
        };
        deadlines.resize(intervals.len(), tightest);
        if let Some(twelfths) = self.unsaid.bursts {
            // Rounded to whole messages, at least one.
            bursts = BURSTS.map(|most| ((most * twelfths + 6) / 12).max(1)).into();
        }
        let of = |(n, ((&i, &d), &b)): (usize, ((&u64, &u64), &u64))| {
            let mut stream = Stream::new(self.seed, &format!("channel {n}"));
            let interval = MS * i;
            let mut at = Time::START + Duration::from_ps(stream.below(interval.as_ps()));
            let mut messages = Vec::new();
            while at < self.end() {
                let burst = 1 + stream.below(b);
                messages.extend((0..burst).map(|_| (at, message)));
                at += interval * burst;
            }
            let slots = (b + d.div_ceil(i)) * message.0.div_ceil(PACKET.0);
            Flow { interval, deadline: Some(MS * d), packet_max: PACKET, slots, messages }
        };
        Ok(intervals.iter().zip(&deadlines).zip(&bursts).enumerate().map(of).collect())
    }

    /// Channels 7 to 74: each film repeats, with instances a minute apart and random phases.
    fn films(&self) -> Vec<Flow> {
        let of = |n: u64| {
            let film = &self.films[(n % 6) as usize];
            let mut stream = Stream::new(self.seed, &format!("film {n}"));
            let mut at = Time::START + Duration::from_ps(stream.below(FRAME.as_ps()));
            let mut messages = Vec::new();
            while at < self.end() {
                messages.push((at, self.frame(n, messages.len() as u64)));
                at += FRAME;
            }
            let most = film.iter().max().copied().unwrap_or(0).div_ceil(8).div_ceil(PACKET.0);
            let (interval, deadline) = (FRAME, Some(FRAME));
            Flow { interval, deadline, packet_max: PACKET, slots: 2 * most, messages }
        };
        (0..FILMS).map(of).collect()
    }

    fn end(&self) -> Time {
        Time::START + WARM + SPAN
    }

    /// Messages at random times, of which at most B_max wait.
    fn best_effort(&self, load: f64) -> Result<Flow, Error> {
        let message: Bytes = self.constants.get("message")?;
        let bursts: u64 = self.constants.get("best_effort_burst")?;
        let mut stream = Stream::new(self.seed, "best effort");
        let gap =
            lastmeter_base::Draw::Exponential(Duration::from_secs_f64(message.0 as f64 / load));
        let mut at = Time::START + gap.sample(&mut stream);
        let mut messages = Vec::new();
        while at < self.end() {
            messages.push((at, message));
            at += gap.sample(&mut stream);
        }
        Ok(Flow {
            interval: Duration::ZERO,
            deadline: None,
            packet_max: PACKET,
            slots: bursts * message.0.div_ceil(PACKET.0),
            messages,
        })
    }

    fn host(&self, plan: &Plan) -> Result<Host, Error> {
        let time = |name: &str| self.constants.get::<Duration>(name);
        let scaled = |time: Duration| time.scale_ceil(SPEED, plan.speed);
        let heap = plan.queues == Queues::Deadlines;
        let per_packet = match (plan.optimised, heap) {
            (true, true) => time("heap_overlapped")?,
            (true, false) => time("fifo_overlapped")?,
            (false, true) => time("heap")?,
            (false, false) => time("fifo")?,
        };
        // If the adapter sorts, the host need not.
        let saved = |name: &str| match plan.depth {
            Some(_) => Ok(Duration::ZERO),
            None => time(name),
        };
        let costs = |whole: Duration, saved: Duration| -> Result<HandlerCosts, Error> {
            Ok(HandlerCosts {
                per_message: scaled(time("per_message")?),
                per_packet: scaled(whole - saved),
                switch: Duration::ZERO,
                packets_between: self.constants.get("packets_between")?,
            })
        };
        let mut card = Description::plain("END on a token network");
        card.host.qos = true;
        card.queueing.depth = UNBOUNDED;
        let two = plan.queues != Queues::One;
        card.queueing.queues = if two { 2 } else { 1 };
        let discipline = match plan.queues {
            Queues::One => Discipline::Fifo,
            Queues::Two => Discipline::Priority,
            Queues::Deadlines => Discipline::Edd,
        };
        (card.queueing.discipline, card.queueing.at_network) = (discipline, Some(discipline));
        card.buffers.memory = Bytes::from_mib(1024);
        // Without the token it moves data; with it "it dedicates its entire capacity to transmit" (§6.4.4), so the
        // network pre-empts transfers from memory.
        (card.buffers.banks, card.transfer.preemptible) = (1, true);
        card.transfer.per_byte = self.constants.get::<PerByte>("dma")?;
        card.network.rate = Some(self.constants.get::<Rate>("rate")?);
        card.network.processing = scaled(per_packet);
        let token = scaled(time("token")?);
        card.network.model = NetworkModel::Intermittent {
            rotation: plan.rotation,
            holding: plan.holding.saturating_sub(token),
        };
        Ok(Host {
            regulation: plan.regulation,
            real_time: costs(time("real_time_packet")?, saved("host_heap")?)?,
            best_effort: costs(time("best_effort_packet")?, saved("host_fifo")?)?,
            schedules: plan.depth,
            adapter: card,
        })
    }

    pub(super) fn run(&self, plan: &Plan, flows: &[Flow]) -> Result<Run, Error> {
        let span = (Time::START + WARM, self.end());
        let away = plan.rotation - plan.holding;
        Ok(run(&self.host(plan)?, flows, span, away / 2))
    }

    /// Simulates all of Table 6.3 with this much best effort, in bytes per second.
    pub(super) fn whole(&self, plan: &Plan, load: f64) -> Result<Point, Error> {
        let mut flows = self.channels()?;
        let channels = flows.len();
        flows.extend(self.films());
        flows.push(self.best_effort(load)?);
        let best_effort = flows.len() - 1;
        let run = self.run(plan, &flows)?;
        Ok(Point {
            missed: run.missed(|at| at < best_effort),
            real_time: run.throughput(|at| at < best_effort),
            channels: run.throughput(|at| at < channels),
            best_effort: run.throughput(|at| at == best_effort),
            total: run.throughput(|_| true),
            turns: run.turns,
        })
    }
}

/// The quantities of Figs 6.5 and 6.6 for one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Percent of real-time packets that were late or dropped.
    pub(super) missed: f64,
    /// Bytes per second.
    real_time: f64,
    channels: f64,
    best_effort: f64,
    total: f64,
    turns: (u64, u64),
}

/// Best-effort loads below and above the free capacity, in bytes per second.
const LIGHT: f64 = 0.5e6;
pub(super) const HEAVY: f64 = 8e6;
const PACKETS: &str = "% of packets";
const MB: &str = "MB/s";
const LINK: &str = "% of the link";

/// The rows of E-88 to E-95 for the shared network.
pub(in super::super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut spread = Spread::default();
    for seed in seeds_of(setting, SEEDS) {
        let bench = Bench::new(setting.constants, seed, Unsaid::NONE)?;
        let wants = |ids: &[&str]| ids.iter().any(|id| setting.wants(id));
        if wants(&["E-88", "E-89", "E-90", "E-93"]) {
            capacity(&bench, &mut spread)?;
        }
        if wants(&["E-92", "E-95"]) {
            queues(&bench, &mut spread)?;
        }
        if wants(&["E-94"]) {
            processors(&bench, &mut spread)?;
        }
    }
    Ok(spread.computed())
}

/// Usable share of the network, by kind of traffic (§6.4.2, Tables 6.3 and 6.4).
fn capacity(bench: &Bench<'_>, spread: &mut Spread) -> Result<(), Error> {
    let rate: Rate = bench.constants.get("rate")?;
    // A tenth of the link, in bytes per second.
    let share = rate.as_bits() as f64 / 80.0;
    let percent = |bytes: f64| 100.0 * bytes / share;
    let cost: Duration = bench.constants.get("fifo_overlapped")?;
    let wire = rate.time_for(PACKET).as_secs_f64();
    let used = |speed: f64| 100.0 * wire / (wire + cost.as_secs_f64() / speed);
    spread.add("E-88", "Eq 4.1: speed-up 1", used(1.0), LINK);
    spread.add("E-88", "Eq 4.2: speed-up 12", used(12.0), LINK);
    let alone = bench.run(&HQOS_2, &[bench.best_effort(2.0 * share)?])?;
    spread.add("E-88", "best effort alone", percent(alone.throughput(|_| true)), LINK);
    let point = bench.whole(&EQOS, HEAVY)?;
    spread.add("E-88", "all of Table 6.3", percent(point.total), LINK);
    spread.add("E-93", "fewest packets in a holding time", point.turns.0 as f64, "packets");
    spread.add("E-93", "most packets in a holding time", point.turns.1 as f64, "packets");
    spread.add("E-89", "used by channels 0-5", percent(point.channels), LINK);
    let (mut used, mut reserved) = (0.0, 0.0);
    for (n, name) in NAMES.iter().enumerate() {
        let row: Vec<u64> = bench.constants.get(name)?;
        let instances = (FILMS - n as u64).div_ceil(6) as f64;
        let each = instances / 8.0 / FRAME.as_secs_f64();
        used += each * row[2] as f64;
        reserved += each * (row[2] + row[3]) as f64;
        let sizes = &bench.films[n];
        let count = sizes.len() as f64;
        let mean = sizes.iter().sum::<u64>() as f64 / count;
        let square = sizes.iter().map(|&size| (size as f64 - mean).powi(2)).sum::<f64>() / count;
        let mut add = |what: &str, value: f64| {
            spread.add("E-90", &format!("{name}, {what}"), value, "bit");
        };
        add("min", sizes.iter().min().copied().unwrap_or(0) as f64);
        add("max", sizes.iter().max().copied().unwrap_or(0) as f64);
        add("mean", mean);
        add("std. dev.", square.sqrt());
    }
    spread.add("E-89", "used by films", percent(used), LINK);
    spread.add("E-89", "sent by films", percent(point.real_time - point.channels), LINK);
    spread.add("E-89", "reserved for films", percent(reserved), LINK);
    Ok(())
}

/// Fig 6.5: the queues of the adapter (§6.4.4).
fn queues(bench: &Bench<'_>, spread: &mut Spread) -> Result<(), Error> {
    let id = "E-92";
    let (low, high) = (bench.whole(&EQOS, LIGHT)?, bench.whole(&EQOS, HEAVY)?);
    spread.add(id, "EQoS: in time", 100.0 - high.missed, PACKETS);
    let unmoved = |low: Point, high: Point| (high.real_time / low.real_time - 1.0).abs() < 0.01;
    spread.holds(id, "EQoS: best effort does not move real-time throughput", unmoved(low, high));
    let (two_low, two) = (bench.whole(&HQOS_2, LIGHT)?, bench.whole(&HQOS_2, HEAVY)?);
    spread.add(id, "HQoS2: late", two.missed, PACKETS);
    let item = "HQoS2: best effort does not move real-time throughput";
    spread.holds(id, item, unmoved(two_low, two));
    let item = "HQoS2: misses do not grow with best effort";
    spread.holds(id, item, two.missed - two_low.missed < 1.0);
    let films = bench.run(&HQOS_2, &[bench.films(), vec![bench.best_effort(HEAVY)?]].concat())?;
    let only = films.missed(|at| at < FILMS as usize);
    spread.holds(id, "HQoS2: almost none late with films alone", only < 0.1);
    let one = bench.whole(&HQOS_1, HEAVY)?;
    spread.holds(id, "HQoS1: almost all late under heavy load", one.missed > 90.0);
    spread.holds(id, "HQoS1: real-time throughput declines", one.real_time < 0.97 * high.real_time);
    let others = two.best_effort.max(high.best_effort);
    spread.holds(id, "HQoS1: best effort rises further", one.best_effort > 1.1 * others);
    spread.holds(id, "HQoS1: more throughput than EQoS", one.total > high.total);
    spread.add(id, "TTRT 10 ms: total", high.total / 1e6, MB);
    let plain = bench.whole(&Plan { optimised: false, ..EQOS }, HEAVY)?;
    spread.holds(id, "EQoS no opt: best effort gets nothing", plain.best_effort < 0.01e6);
    spread.holds(id, "EQoS no opt: less than offered", plain.total < 0.95 * high.real_time);
    let sixty = bench.whole(&Plan { depth: Some(60), ..HQOS_1 }, HEAVY)?;
    spread.add(id, "HQoS1 depth 60: late", sixty.missed, PACKETS);
    let six = Plan { depth: Some(6), rotation: MS, holding: MS / 10, ..HQOS_1 };
    let six = bench.whole(&six, HEAVY)?;
    spread.add(id, "HQoS1 depth 6 TTRT 1 ms: late", six.missed, PACKETS);
    spread.add(id, "HQoS1 depth 6 TTRT 1 ms: total", six.total / 1e6, MB);
    let decides = high.missed < 1.0 && one.missed > 50.0;
    spread.holds("E-95", "on a shared network the adapter decides", decides);
    Ok(())
}

/// Fig 6.6: the processor and its policies, without link scheduling on the host (§6.4.5).
fn processors(bench: &Bench<'_>, spread: &mut Spread) -> Result<(), Error> {
    use Queues::{Deadlines, Two};
    use Regulation::{FlowControl, RealTimePriority, Unregulated};
    let id = "E-94";
    let missed = |speed, regulation, queues| -> Result<f64, Error> {
        let plan = Plan { regulation, queues, speed: speed * SPEED, ..EQOS };
        Ok(bench.whole(&plan, HEAVY)?.missed)
    };
    let policies = [FlowControl, RealTimePriority, Unregulated];
    let all = |speed, queues| -> Result<Vec<f64>, Error> {
        policies.iter().map(|&policy| missed(speed, policy, queues)).collect()
    };
    let sorted = all(12, Deadlines)?;
    spread.holds(id, "12 EDF: few late with any policy", sorted.iter().all(|&late| late < 1.0));
    let two = all(12, Two)?;
    spread.add(id, "12 TwoQ FlowCtrl: late", two[0], PACKETS);
    spread.add(id, "12 TwoQ RT Pri: late", two[1], PACKETS);
    spread.add(id, "12 TwoQ Unregulated: late", two[2], PACKETS);
    spread.add(id, "8 TwoQ RT Pri: late", missed(8, RealTimePriority, Two)?, PACKETS);
    spread.add(id, "7 EDF FlowCtrl: missed", missed(7, FlowControl, Deadlines)?, PACKETS);
    let mut weak: f64 = 0.0;
    for regulation in [RealTimePriority, Unregulated] {
        for queues in [Deadlines, Two] {
            weak = weak.max(missed(7, regulation, queues)?);
        }
    }
    spread.add(id, "7 less policing: missed", weak, PACKETS);
    let slow = missed(6, FlowControl, Deadlines)?.min(missed(6, FlowControl, Two)?);
    spread.holds(id, "6: almost all missed whatever the queues", slow > 90.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shelf;

    /// Mean and deviation of each film in bits, from Table 6.4.
    const FILMS_6_4: [[f64; 2]; 6] = [
        [13_078.0, 14_749.0],
        [7_311.0, 11_195.0],
        [21_889.0, 20_408.0],
        [30_749.0, 21_167.0],
        [20_664.0, 25_992.0],
        [14_536.0, 16_519.0],
    ];

    /// Bits per 33 ms as a percentage of 100 Mbit/s.
    fn share(bits: f64) -> f64 {
        100.0 * bits / FRAME.as_secs_f64() / 100e6
    }

    /// A line below all six points (mean, deviation), through the two films where it is tightest, is a lower bound
    /// on what any mix of instances reserves as "one standard deviation more than their mean".
    #[test]
    fn e_89_no_mix_of_68_films_reserves_what_table_6_3_says() {
        let slope = (21_167.0 - 11_195.0) / (30_749.0 - 7_311.0);
        let at_zero = 11_195.0 - slope * 7_311.0;
        for [mean, deviation] in FILMS_6_4 {
            assert!(deviation >= at_zero + slope * mean - 1e-6, "the line is below every film");
        }
        let used = 36.8;
        let least = share(FILMS as f64 * at_zero) + (1.0 + slope) * used;
        assert!((69.0..69.2).contains(&least), "{least} % at least, and not 64.8 %");
        // Equally many of each: their usage is as printed, their reservation is not.
        let instances = |n: u64| (FILMS - n).div_ceil(6) as f64;
        let sum = |of: usize| (0..6).map(|n| instances(n) * FILMS_6_4[n as usize][of]).sum::<f64>();
        let (mean, deviation) = (share(sum(0)), share(sum(1)));
        assert!((mean / used - 1.0).abs() < 0.01, "{mean}");
        assert!((74.1..74.2).contains(&(mean + deviation)), "{}", mean + deviation);
        let deviations = (64.8 - mean) / deviation;
        assert!((0.74..0.76).contains(&deviations), "64.8 % would be {deviations} deviations");
    }

    /// E-87: the adapter gets its share of the link and no more, at any load. E-91: films have 33 ms per frame,
    /// start at random within it, and their instances are a minute apart.
    #[test]
    fn e_87_e_91_the_token_gives_its_share_and_films_are_staggered() {
        let shelf = Shelf::builtin();
        let reproductions = shelf.reproductions().expect("the folders are right");
        let is = |name: &str| name == "channels-token-network";
        let constants =
            &reproductions.iter().find(|of| is(&of.name)).expect("it is there").constants;
        let bench = Bench::new(constants, 1, Unsaid::NONE).expect("constants are there");
        let all = bench.best_effort(25e6).expect("constants are there");
        let sent = bench.run(&HQOS_2, &[all]).expect("it runs").throughput(|_| true);
        assert!((10.8e6..12.5e6).contains(&sent), "{sent} B/s of 12.5 MB/s");
        let films = bench.films();
        assert_eq!(films.len(), 68);
        let apart = |film: &Flow| film.messages.windows(2).all(|two| two[1].0 - two[0].0 == FRAME);
        assert!(films.iter().all(apart));
        let mut phases: Vec<Time> = films.iter().map(|film| film.messages[0].0).collect();
        phases.sort();
        phases.dedup();
        assert!(phases.len() > 60, "phases are random");
        let frames = |film: usize| films[film].messages.iter().map(|&(_, len)| len);
        let later = (0..).map(|at| frame(&bench.films, 0, bench.begins + MINUTE + at));
        assert!(frames(6).eq(later.take(films[6].messages.len())), "the same film, a minute on");
        // Table 6.3: 36.8 % of 12.5 MB/s.
        let all = films.iter().flat_map(|film| &film.messages);
        let span = (WARM + SPAN).as_secs_f64();
        let used = all.map(|&(_, len)| len.0).sum::<u64>() as f64 / span / 12.5e6;
        assert!((used / 0.368 - 1.0).abs() < 0.005, "{used}");
    }
}
