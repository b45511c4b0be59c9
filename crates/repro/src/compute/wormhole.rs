//! Wormhole networks (N-41, N-46 to N-49, N-52, N-63 to N-66, N-76, N-77).

use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::machines::admission::Reservations;
use crate::machines::failover::{Dual, Network, sweep};
use crate::machines::shares::{Rates, lengths};
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{self, Builtin};
use lastmeter_lan::wormhole::dependency::Dependencies;
use lastmeter_lan::wormhole::lan::{Lan, Options, all_to_all, around};
use lastmeter_lan::wormhole::multicast::{meetings, schedule, tree_path};
use lastmeter_lan::wormhole::routes::{Faults, Path, Routes, Routing};
use lastmeter_lan::wormhole::topology::{End, Topology};

const METRES_PER_FOOT: f64 = 0.3048;

fn count(value: usize, unit: &'static str) -> Value {
    Value::Number(value as f64, unit)
}

/// The installation, read from the experiment that runs it.
fn installation() -> Result<Topology, Error> {
    let broken = |what: String| Error::file("experiments/atomic-lan/experiment.toml", 1, what);
    let text = library::experiment("atomic-lan").ok_or_else(|| broken("it is not here".into()))?;
    let experiment =
        Experiment::parse("experiments/atomic-lan/experiment.toml", text, &[], &Builtin)
            .map_err(Error::Problems)?;
    let lan = experiment.nodes.iter().find(|node| node.name == "lan");
    let lan = lan.ok_or_else(|| broken("it has no node `lan`".into()))?;
    let topology: String = lan.kind.values.get("topology");
    Topology::parse(&topology).map_err(|error| broken(error.to_string()))
}

fn options(setting: &Setting<'_>) -> Result<Options, Error> {
    let constants = setting.constants;
    Ok(Options {
        rate: constants.get("rate")?,
        hop: constants.get("hop")?,
        slack: constants.get("slack")?,
        timeout: None,
        framing: Bytes(8),
    })
}

/// A flow that always sends: source, destination, packet length.
type Flow = (usize, usize, Bytes);

#[derive(Clone, Copy, Default)]
struct Came {
    worms: u64,
    bytes: u64,
    /// Whether every worm was as fast as in an empty network.
    kept: bool,
}

/// Simulates flows that always have a packet to send.
fn saturate(
    topology: &Topology,
    routes: &Routes,
    options: Options,
    flows: &[Flow],
    length: Duration,
) -> Vec<Came> {
    let mut lan = Lan::new(topology.clone(), routes.clone(), options);
    let mut came = vec![Came { kept: true, ..Came::default() }; flows.len()];
    for (flow, &(from, to, len)) in flows.iter().enumerate() {
        // The next packet is always ready. One that cannot be sent is discarded.
        for _ in 0..2 {
            let _ = lan.send(Time::START, from, to, len, flow as u64);
        }
    }
    let end = Time::START + length;
    while let Some(at) = lan.ready_at().filter(|&at| at <= end) {
        let mut done = Vec::new();
        lan.advance(at, &mut |passed| done.push(passed));
        for passed in done {
            let came = &mut came[passed.id as usize];
            came.worms += 1;
            came.bytes += passed.len.0;
            came.kept &= passed.ended - passed.started == passed.alone;
            let (from, to, len) = flows[passed.id as usize];
            let _ = lan.send(at, from, to, len, passed.id);
        }
    }
    came
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let topology = installation()?;
    let computed = [
        installed(&topology),
        channels(setting, &topology)?,
        failures(setting, &topology)?,
        lock_up(setting)?,
        service(setting)?,
        reserved(setting)?,
        coordinated(setting)?,
        booked(setting, &topology)?,
        calls(setting, &topology)?,
        copies(setting),
    ]
    .concat();
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}

/// The installed hosts and switches (N-46, N-49).
fn installed(topology: &Topology) -> Vec<Computed> {
    let hosts =
        |prefix: &str| topology.hosts().iter().filter(|name| name.starts_with(prefix)).count();
    let ceiling = topology.switches().iter().filter(|(name, _)| name.starts_with('c')).count();
    let longest = topology.cables().iter().map(|cable| cable.metres).max().unwrap_or(0);
    let feet = longest as f64 / METRES_PER_FOOT;
    vec![
        row("N-46/offices", count(hosts("office") + hosts("outlet"), "offices")),
        row("N-46/switches-ceiling", count(ceiling, "switches")),
        row("N-46/office-workstations", count(hosts("office"), "hosts")),
        row("N-46/lab-workstations", count(hosts("lab"), "hosts")),
        row("N-49", (feet, "ft")),
    ]
}

/// One flow, and deadlock (N-41).
fn channels(setting: &Setting<'_>, topology: &Topology) -> Result<Vec<Computed>, Error> {
    let (options, large) = (options(setting)?, setting.constants.get::<Bytes>("large")?);
    let routes = |manner| Routes::new(topology, manner, &Faults::default());
    let cycle = |routes: &Routes| {
        let paths = routes.paths().map(|path| &path[..]);
        Dependencies::of(topology.channels(), paths).cycle()
    };
    let length = Duration::from_ms(20);
    let far = topology.hosts().len() - 1;
    let came = saturate(topology, &routes(Routing::UpDown), options, &[(0, far, large)], length);
    let goodput = came[0].bytes as f64 * 8.0 / length.as_secs_f64() / 1e6;
    let mut ring = Topology::default();
    let made = (0..4)
        .try_for_each(|at| {
            ring.add_switch(&format!("s{at}"), 8)?;
            ring.add_host(&format!("h{at}"), at, 2)
        })
        .and_then(|()| (0..4).try_for_each(|at| ring.add_cable(at, (at + 1) % 4, 24)));
    made.map_err(|error| Error::file("a ring of four switches", 1, error))?;
    let circle = all_to_all(&ring, &around(&ring, &[0, 1, 2, 3]), options, large, 3);
    let safe = cycle(&routes(Routing::UpDown)).is_none()
        && all_to_all(topology, &routes(Routing::UpDown), options, large, 1).is_ok();
    let unsafe_ones = cycle(&routes(Routing::Shortest)).is_some() && circle.is_err();
    Ok(vec![
        row("N-41/flow-large", (goodput, "Mbit/s")),
        row("N-41/routes-up", safe),
        row("N-41/routes-fewest", unsafe_ones),
    ])
}

/// The effect of every single failure (N-47, N-48).
fn failures(setting: &Setting<'_>, topology: &Topology) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (interval, wait): (Duration, Duration) = (constants.get("probe")?, constants.get("wait")?);
    let misses: u64 = constants.get("misses")?;
    let left = sweep(topology);
    let cables = topology.cables().len();
    let (by_cable, by_switch) = left.split_at(cables);
    let inside = topology.cables().iter().zip(by_cable);
    let mut inside = inside.filter(|(cable, _)| matches!(cable.ends[1], End::Switch(..)));
    let whole = inside.all(|(_, left)| left.parted == 0 && left.alone.is_empty());
    let at_switch = |switch: usize| {
        (0..topology.hosts().len()).filter(|&host| topology.switch_of(host) == switch).count()
    };
    let dual = by_switch
        .iter()
        .enumerate()
        .all(|(switch, left)| left.parted == 0 && left.alone.len() == at_switch(switch));
    // An isolated host uses the Ethernet, and so do all that communicate with it.
    let survived = left.iter().all(|left| left.parted == 0);
    let bound = Dual::new(misses as u32, 2).recovery_max(interval, wait);
    let by_hand = interval * misses + wait;
    let noticed = (0..100).all(|phase| {
        // The failure precedes the next probe by this much.
        let mut at = interval.scale_ceil(phase + 1, 100) + wait;
        let mut host = Dual::new(misses as u32, 2);
        while host.probed(false) == Network::First {
            at += interval;
        }
        at <= bound
    });
    let safe = left.iter().all(|left| !left.deadlock);
    Ok(vec![
        row("N-47/pairs-failure", whole),
        row("N-47/failed-switch", dual),
        row("N-47/routes-around", safe),
        row("N-48/ethernet-single", survived),
        row("N-48/noticed-within", noticed && bound == by_hand),
    ])
}

fn two_switches() -> Result<Topology, Error> {
    let text = "switch s 8\nswitch t 8\ncable s t 24 m\nhost a s 5 m\nhost b s 5 m\nhost c t 5 m\n\
                host d t 5 m";
    Topology::parse(text)
        .map_err(|error| Error::file("two switches", error.line as u64, error.reason))
}

/// A host that is powered off but still cabled (N-52).
fn lock_up(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let topology = two_switches()?;
    let (options, large) = (options(setting)?, setting.constants.get::<Bytes>("large")?);
    let timeout: Duration = setting.constants.get("timeout")?;
    let arrives = |timeout| {
        let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
        let mut lan = Lan::new(topology.clone(), routes, Options { timeout, ..options });
        lan.kill(3);
        let later = Time::START + Duration::from_us(10);
        let mut arrived = false;
        let first = lan.send(Time::START, 0, 3, large, 1);
        lan.advance(later, &mut |_| ());
        let second = lan.send(later, 1, 2, large, 2);
        lan.advance(
            Time::START + timeout.unwrap_or(Duration::ZERO) + Duration::from_secs(1),
            &mut |passed| arrived |= passed.id == 2 && passed.arrived,
        );
        first.is_ok() && second.is_ok() && arrived
    };
    Ok(vec![
        row("N-52/host-switched", !arrives(None)),
        row("N-52/throwing-away", arrives(Some(timeout))),
    ])
}

/// How competing flows share a channel (N-63).
fn service(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let topology = two_switches()?;
    let options = options(setting)?;
    let (large, small): (Bytes, Bytes) =
        (setting.constants.get("large")?, setting.constants.get("small")?);
    let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
    let share = |a: Bytes, b: Bytes| {
        let flows = [(0, 2, a), (1, 3, b)];
        let came = saturate(&topology, &routes, options, &flows, Duration::from_ms(50));
        came[0].bytes as f64 / came[1].bytes as f64
    };
    Ok(vec![
        row("N-63/goodput-large", (share(large, small), "times")),
        row("N-63/equal-lengths", (share(large, large) - 1.0).abs() < 0.02),
    ])
}

/// Shares that differ by less count as equal.
const AGREED: f64 = 0.03;

/// Shares of a channel by packet length, and what one uncoordinated sender does to them (N-66).
fn coordinated(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let options = options(setting)?;
    let large: Bytes = setting.constants.get("large")?;
    let text = "switch s 8\nswitch t 8\ncable s t 24 m\nhost a s 5 m\nhost b s 5 m\nhost c s 5 m\n\
                host d s 5 m\nhost e t 5 m\nhost f t 5 m\nhost g t 5 m\nhost h t 5 m";
    let topology = Topology::parse(text)
        .map_err(|error| Error::file("two switches", error.line as u64, error.reason))?;
    let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
    let shares = |lens: &[Bytes]| -> Vec<f64> {
        let flows: Vec<Flow> =
            lens.iter().enumerate().map(|(host, &len)| (host, host + 4, len)).collect();
        let came = saturate(&topology, &routes, options, &flows, Duration::from_ms(50));
        let all: u64 = came.iter().map(|came| came.bytes).sum();
        came.iter().map(|came| came.bytes as f64 / all.max(1) as f64).collect()
    };
    let (mut kept, mut broken) = (true, true);
    for agreed in [[4, 2, 1], [1, 1, 1], [8, 3, 5], [10, 1, 1]] {
        // Lengths that leave room for longer ones.
        let Some(mut lens) = lengths(&agreed, Bytes(large.0 / 2)) else { continue };
        let total = agreed.iter().sum::<u64>() as f64;
        let near = |measured: &[f64]| {
            let pairs = measured.iter().zip(agreed);
            pairs
                .into_iter()
                .all(|(measured, share)| (measured / (share as f64 / total) - 1.0).abs() < AGREED)
        };
        kept &= near(&shares(&lens));
        lens.push(large);
        broken &= !near(&shares(&lens)[..3]);
    }
    Ok(vec![row("N-66/packet-lengths", kept), row("N-66/sender-was", broken)])
}

/// The share of a booked rate that must arrive; the last packets are in flight at the end.
const BOOKED: f64 = 0.97;

/// Rates booked on channels, and senders that keep to them or not (N-77).
fn booked(setting: &Setting<'_>, topology: &Topology) -> Result<Vec<Computed>, Error> {
    let options = options(setting)?;
    let (large, small): (Bytes, Bytes) =
        (setting.constants.get("large")?, setting.constants.get("small")?);
    let bookable: u64 = setting.constants.get("bookable")?;
    let routes = Routes::new(topology, Routing::UpDown, &Faults::default());
    let hosts = topology.hosts().len() as u64;
    let mut random = Stream::new(setting.seed, "booked");
    let (mut kept, mut met, mut broken) = (true, 0, 0);
    for _ in 0..setting.constants.get::<u64>("trials")? / 10 {
        let mut rates = Rates::new(options.rate.scale_floor(bookable, 100));
        let mut paths = Reservations::default();
        let mut flows: Vec<(Flow, Rate)> = Vec::new();
        for _ in 0..40 {
            let (from, to) = (random.below(hosts) as usize, random.below(hosts) as usize);
            let rate = Rate::from_mbit(5 + random.below(60));
            let Some(path) = routes.path(from, to).filter(|_| from != to) else { continue };
            if flows.iter().all(|((other, ..), _)| *other != from)
                && rates.admit(path, rate).is_ok()
            {
                met += usize::from(paths.admit(path).is_err());
                flows.push(((from, to, small * 16 + Bytes(random.below(large.0 - 2048))), rate));
            }
        }
        let all = |came: Vec<f64>| came.into_iter().all(|share| share >= BOOKED);
        kept &= all(paced(topology, &routes, options, &flows, None));
        // Another sender sends all it can over booked channels.
        let Some(&((_, to, _), _)) = flows.first() else { continue };
        let other = (0..hosts as usize)
            .find(|host| *host != to && flows.iter().all(|((from, ..), _)| from != host));
        let Some(other) = other else { continue };
        let greedy = Some((other, to, large));
        broken += usize::from(!all(paced(topology, &routes, options, &flows, greedy)));
    }
    Ok(vec![row("N-77/booked-rates", kept && met > 20), row("N-77/sender-keeps", broken > 0)])
}

/// The delivered share of each flow's rate, if each sends a packet whenever its rate allows; `greedy` sends
/// without limit.
fn paced(
    topology: &Topology,
    routes: &Routes,
    options: Options,
    flows: &[(Flow, Rate)],
    greedy: Option<Flow>,
) -> Vec<f64> {
    let length = Duration::from_ms(30);
    let (end, mut lan) =
        (Time::START + length, Lan::new(topology.clone(), routes.clone(), options));
    let mut next: Vec<Time> = vec![Time::START; flows.len()];
    let mut came = vec![0; flows.len()];
    let mut again = greedy.is_some();
    loop {
        let due = next.iter().enumerate().min_by_key(|&(_, at)| *at);
        let wake = lan.ready_at().unwrap_or(Time::MAX);
        let at = due.map_or(wake, |(_, &at)| at.min(wake));
        if at >= end {
            break;
        }
        lan.advance(at, &mut |passed| match came.get_mut(passed.id as usize) {
            Some(bytes) => *bytes += passed.len.0,
            None => again = true,
        });
        if let Some((flow, _)) = due.filter(|&(_, &due)| due == at) {
            let ((from, to, len), rate) = flows[flow];
            let _ = lan.send(at, from, to, len, flow as u64);
            next[flow] += rate.time_for(len);
        }
        if let Some((from, to, len)) = greedy.filter(|_| std::mem::take(&mut again)) {
            let _ = lan.send(at, from, to, len, flows.len() as u64);
        }
    }
    let expected = |rate: Rate, len: Bytes| {
        // Packets that started a few packet times before the end may be in flight.
        let bytes = rate.as_bits() as f64 / 8.0 * length.as_secs_f64() - 2.0 * len.0 as f64;
        bytes.max(len.0 as f64)
    };
    let pairs = flows.iter().zip(came);
    pairs.map(|(&((.., len), rate), came)| came as f64 / expected(rate, len)).collect()
}

/// Random reserved paths, and whether their guarantee holds (N-64).
fn reserved(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let topology = installation()?;
    let options = options(setting)?;
    let trials: u64 = setting.constants.get("trials")?;
    let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
    let hosts = topology.hosts().len() as u64;
    let mut random = Stream::new(setting.seed, "reserved");
    let (mut broken, mut kept, mut crossing) = (true, true, false);
    let (mut met, mut apart) = (0, 0);
    for _ in 0..trials {
        let mut flows: Vec<Flow> = Vec::new();
        while flows.len() < 2 + random.below(4) as usize {
            let (from, to) = (random.below(hosts) as usize, random.below(hosts) as usize);
            if from != to && flows.iter().all(|&(other, ..)| other != from) {
                flows.push((from, to, Bytes(500 + random.below(7500))));
            }
        }
        let paths: Vec<&Path> =
            flows.iter().filter_map(|&(from, to, _)| routes.path(from, to)).collect();
        let mut reservations = Reservations::default();
        let admitted = paths.iter().all(|path| reservations.admit(path).is_ok());
        let came = saturate(&topology, &routes, options, &flows, Duration::from_ms(3));
        let all = came.iter().all(|came| came.kept && came.worms > 0);
        match admitted {
            true => (kept, apart) = (kept && all, apart + 1),
            false => (broken, met) = (broken && !all, met + 1),
        }
        crossing |= admitted && all && cross_a_switch(&topology, &paths);
    }
    Ok(vec![
        row("N-64/reserved-paths", broken && met > 20),
        row("N-64/reserved-paths-meet", kept && apart > 20),
        row("N-64/paths-cross", crossing),
    ])
}

/// Whether two of the paths share a switch.
fn cross_a_switch(topology: &Topology, paths: &[&Path]) -> bool {
    let switches = |path: &Path| -> std::collections::BTreeSet<usize> {
        let ends = path.iter().map(|&channel| topology.to(channel));
        ends.filter_map(|end| match end {
            End::Switch(switch, _) => Some(switch),
            End::Host(_) => None,
        })
        .collect()
    };
    let sets: Vec<_> = paths.iter().map(|path| switches(path)).collect();
    (0..sets.len()).any(|a| (0..a).any(|b| !sets[a].is_disjoint(&sets[b])))
}

/// A call from every workstation to another one (N-65).
fn calls(setting: &Setting<'_>, topology: &Topology) -> Result<Vec<Computed>, Error> {
    let (options, large) = (options(setting)?, setting.constants.get::<Bytes>("large")?);
    let routes = Routes::new(topology, Routing::UpDown, &Faults::default());
    let stations = |name: &&usize| {
        let name = &topology.hosts()[**name];
        name.starts_with("office") || name.starts_with("lab")
    };
    let hosts: Vec<usize> = (0..topology.hosts().len()).collect();
    let mut stations: Vec<usize> = hosts.iter().filter(stations).copied().collect();
    let mut random = Stream::new(setting.seed, "calls");
    let mut calls: Vec<Flow> = Vec::new();
    while stations.len() >= 2 {
        let mut draw = || stations.swap_remove(random.below(stations.len() as u64) as usize);
        calls.push((draw(), draw(), large));
    }
    // Each call goes to the first network in which its path meets no other.
    let mut networks: Vec<(Reservations, Vec<Flow>)> = Vec::new();
    for &call in &calls {
        let Some(path) = routes.path(call.0, call.1) else { continue };
        let room = networks
            .iter_mut()
            .find_map(|(reserved, flows)| reserved.admit(path).is_ok().then_some(flows));
        match room {
            Some(flows) => flows.push(call),
            None => {
                let mut reserved = Reservations::default();
                let admitted = reserved.admit(path);
                debug_assert!(admitted.is_ok(), "an empty network has room");
                networks.push((reserved, vec![call]));
            }
        }
    }
    let length = Duration::from_ms(3);
    let kept = networks.iter().all(|(_, flows)| {
        saturate(topology, &routes, options, flows, length).iter().all(|came| came.kept)
    });
    // One hop: the hosts of a call are at one switch, and a router with queues is between switches.
    let mut hub = Topology::default();
    let made = hub
        .add_switch("hub", 8)
        .and_then(|()| (0..8).try_for_each(|host| hub.add_host(&format!("h{host}"), 0, 5)));
    made.map_err(|error| Error::file("a hub", 1, error))?;
    let by_hub = Routes::new(&hub, Routing::UpDown, &Faults::default());
    let hops: Vec<Flow> = (0..4).map(|host| (host, host + 4, large)).collect();
    let single = saturate(&hub, &by_hub, options, &hops, length).iter().all(|came| came.kept);
    Ok(vec![
        row("N-65/network-call", kept),
        row("N-65/network-room", networks.len() > 1 && calls.len() == 24),
        row("N-65/single-hops", single),
    ])
}

/// Multicast by software (N-76).
fn copies(setting: &Setting<'_>) -> Vec<Computed> {
    const RADIX: usize = 4;
    let Ok(tree) = Topology::tree(RADIX, 3) else { return Vec::new() };
    let mut random = Stream::new(setting.seed, "copies");
    let (mut fewest, mut apart) = (true, true);
    for _ in 0..200 {
        let source = random.below(64) as usize;
        let others: std::collections::BTreeSet<usize> = (0..1 + random.below(40))
            .map(|_| random.below(64) as usize)
            .filter(|&other| other != source)
            .collect();
        let others: Vec<usize> = others.into_iter().collect();
        let steps = schedule(source, &others);
        let doublings = (others.len() as u32 + 1).next_power_of_two().trailing_zeros();
        fewest &= steps.len() as u32 == doublings;
        apart &= steps.iter().all(|step| {
            let paths: Vec<Path> =
                step.iter().map(|&(from, to)| tree_path(&tree, RADIX, from, to)).collect();
            meetings(&paths) == 0
        });
    }
    vec![row("N-76/multicast", fewest), row("N-76/messages-meet", apart)]
}
