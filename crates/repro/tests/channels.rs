//! Guarantees of admitted channels hold under any other load (E-18, E-22, E-23): random sets of channels over one
//! to eight links, admitted one by one, then run against adversarial phases, bursts, floods and neighbours that
//! break their contracts.

use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_repro::machines::channels::{Channel, Network};
use lastmeter_transport::channel::admission::{Method, Reservations, route};
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::policing::Excess;

/// Links of a set, at most.
const LINKS_MAX: u64 = 8;
/// Requested channels, of which some are admitted.
const CHANNELS_MAX: u64 = 20;
/// Messages per channel.
const MESSAGES: u64 = 8;

/// Deliberate errors in admission.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Not,
    /// Ignores non-preemptible packets.
    NoBlocking,
    /// Takes messages for half their length.
    HalfCost,
    /// Grants any request, and checks only utilisation.
    Utilisation,
}

struct Set {
    links: Vec<Link>,
    channels: Vec<(Contract, Vec<usize>)>,
}

fn set(random: &mut Stream) -> Set {
    let base = [10, 155, 1000, 10_000][random.below(4) as usize];
    let links = (0..1 + random.below(LINKS_MAX)).map(|_| Link {
        rate: Rate::from_mbit(base * (1 + random.below(3))),
        per_packet: Duration::from_ns(random.below(3) * random.below(50_000) / base),
        packet_max: Bytes(1500),
        outstanding: 1 + random.below(2),
        propagation: Duration::from_us(random.below(2) * random.below(100)),
        horizon: Duration::from_us(random.below(2) * random.below(5000)),
        skew: Duration::ZERO,
    });
    let links: Vec<Link> = links.collect();
    let slowest =
        links.iter().map(|link| link.time_for(Bytes(1500))).max().expect("there is a link");
    let channels = (0..1 + random.below(CHANNELS_MAX)).map(|_| {
        let first = random.below(links.len() as u64) as usize;
        let hops = 1 + random.below((links.len() - first) as u64) as usize;
        let packets = 1 + random.below(6);
        // Periods from harmonic to coprime, some so short that little else fits.
        let interval =
            slowest * (packets + random.below(120)) + Duration::from_ps(random.bits() % 1_000_003);
        let contract = Contract {
            message_max: Bytes(1500 * packets - random.below(1400)),
            interval_min: interval,
            burst_max: 1 + random.below(4),
            packet_max: Bytes(1500 - random.below(2) * random.below(1000)),
            deadline: interval * hops as u64 * (1 + random.below(8)) / 6 + slowest,
        };
        (contract, (first..first + hops).collect())
    });
    let channels = channels.collect();
    Set { links, channels }
}

/// Runs a set: how many channels were admitted, and how many packets missed their guarantee.
fn misses(seed: u64, method: Method, broken: Broken) -> (u64, u64) {
    let mut random = Stream::new(seed, "channels");
    let Set { links, channels } = set(&mut random);
    let mut admission: Vec<route::Admission> = links
        .iter()
        .map(|&link| {
            let mut admission = route::Admission::from((link, method));
            if broken == Broken::NoBlocking {
                admission.reservations = Reservations::new(method, Duration::ZERO);
            }
            if broken == Broken::HalfCost {
                // Twice as fast, as the broken admission believes.
                admission.link.rate = Rate::from_bits(link.rate.as_bits() * 2);
                admission.link.per_packet = link.per_packet / 2;
            }
            admission
        })
        .collect();
    let mut network = Network::new(&links);
    let mut admitted = Vec::new();
    for (contract, route) in channels {
        let bounds = match broken {
            Broken::Utilisation => {
                let each = contract.deadline / route.len() as u64;
                let part = |at: &usize| {
                    each.saturating_sub(admission[*at].fixed()).min(contract.interval_min)
                };
                let parts: Vec<Duration> = route.iter().map(part).collect();
                let fits = route.iter().zip(&parts).all(|(&at, &part)| {
                    let demand = admission[at].demand(&contract);
                    let share = demand.cost.as_ps() as f64 / demand.interval.as_ps() as f64;
                    admission[at].reservations.utilisation() + share < 0.99 && part > demand.cost
                });
                fits.then(|| {
                    for (&at, &part) in route.iter().zip(&parts) {
                        let demand = admission[at].demand(&contract);
                        admission[at].reservations.reserve(demand, part);
                    }
                    parts
                })
            }
            _ => route::establish(&mut admission, &route, &contract).ok(),
        };
        let Some(bounds) = bounds else { continue };
        let misbehaves = random.below(5) == 0;
        let excess = [Excess::Drop, Excess::Delay, Excess::Relax][random.below(3) as usize];
        // Room for its bursts; channels that break their contracts have unlimited room.
        let slots = contract.packets() * 4 * MESSAGES;
        let number = network.channel(Channel {
            contract,
            route: route.clone(),
            bounds: bounds.clone(),
            slots,
            excess,
        });
        admitted.push((number, contract, route, bounds, misbehaves));
    }
    // All channels that cross it meet at one link, at one instant.
    let target = random.below(links.len() as u64) as usize;
    let instant = Time::START + Duration::from_secs(3);
    let (mut begin, mut end) = (instant, instant);
    for (number, contract, route, bounds, misbehaves) in &admitted {
        let before: Duration = route
            .iter()
            .zip(bounds)
            .take_while(|&(&at, _)| at != target)
            .map(|(&at, &bound)| bound + links[at].propagation)
            .sum();
        let passes = route.contains(&target) && random.below(8) > 0;
        let phase = match passes {
            true => before,
            false => Duration::from_ps(random.below(contract.interval_min.as_ps())),
        };
        let first = Time::from_ps(instant.as_ps() - phase.as_ps());
        let mut at = first;
        begin = begin.min(first);
        // The worst LBAP at an instant is periodic; bursts come on top where it conforms.
        let burst = random.below(2) * (contract.burst_max - 1);
        for n in 0..MESSAGES {
            let wanted = match (misbehaves, n <= burst) {
                (true, _) => at + contract.interval_min / (2 + random.below(4)),
                (false, true) => first,
                (false, false) => first + contract.interval_min * (n - burst),
            };
            at = wanted.max(at);
            let len = match random.below(4) {
                0 => Bytes(1 + random.below(contract.message_max.0)),
                _ => contract.message_max,
            };
            network.message(at, *number, len);
            end = end.max(at + contract.interval_min * contract.burst_max + contract.deadline);
        }
    }
    network.run(Time::from_ps(begin.as_ps() - 1));
    for (at, link) in links.iter().enumerate() {
        match random.below(3) {
            0 => network.flood(at, link.packet_max),
            1 => {
                // Just before the instant, as many packets as cannot be recalled.
                let flow = network.best_effort(vec![at], link.packet_max, u64::MAX);
                let before = Time::from_ps(instant.as_ps() - 1);
                network.effort(before, flow, link.packet_max * link.outstanding);
            }
            _ => {}
        }
    }
    network.run(end);
    let late = admitted.iter().map(|(number, _, _, _, misbehaves)| {
        let outcome = &network.outcomes[*number];
        // A channel that breaks its contract is late in real time, never in logical time.
        let lost = if *misbehaves { 0 } else { outcome.messages - outcome.delivered };
        assert!(outcome.delivered > 0, "seed {seed}: nothing arrived");
        outcome.late_at_links + outcome.late + lost
    });
    (admitted.len() as u64, late.sum())
}

/// Of `seeds`: the number of sets with an admitted channel, and of those with a miss.
fn run(seeds: std::ops::Range<u64>, method: Method, broken: Broken) -> (u64, u64) {
    seeds.map(|seed| misses(seed, method, broken)).fold((0, 0), |(sets, missed), (n, late)| {
        (sets + u64::from(n > 0), missed + u64::from(late > 0))
    })
}

fn holds(seeds: std::ops::Range<u64>) {
    for method in [Method::DOrder, Method::Edf] {
        let all = seeds.end - seeds.start;
        let (sets, missed) = run(seeds.clone(), method, Broken::Not);
        assert_eq!(missed, 0, "{method:?}");
        assert!(sets > all * 8 / 10, "{sets} of {all} sets have channels");
    }
}

#[test]
fn e_22_no_admitted_conforming_packet_is_ever_late() {
    holds(0..700);
}

#[test]
#[ignore = "100,000 sets, minutes: make test-long"]
fn e_22_no_admitted_conforming_packet_is_ever_late_in_100_000_sets() {
    holds(0..50_000);
}

#[test]
fn e_22_the_same_test_catches_admission_that_is_broken() {
    for broken in [Broken::NoBlocking, Broken::HalfCost, Broken::Utilisation] {
        for method in [Method::DOrder, Method::Edf] {
            let (_, missed) = run(0..300, method, broken);
            assert!(missed > 0, "{method:?} is broken, and nothing is missed");
        }
    }
}
