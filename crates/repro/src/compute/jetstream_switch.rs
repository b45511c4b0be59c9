//! What Jetstream's rings and long frames mean for switches and the network (J-07 to J-10, J-30, J-58, J-61 to J-64).

use super::jetstream::ring_options;
use super::{Computed, Setting, Value, row};
use crate::machines::switch::line::{Frame, Line, Preemption};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Duration, Packet, Rate, Stream, Time};
use lastmeter_lan::timed_token::medium::{Class, Medium, Options};
use lastmeter_lan::timed_token::node::{Attached, Node, Signal, bring_up};
use lastmeter_lan::timed_token::unit::AtmUnit;
use lastmeter_lan::wormhole::dependency::Dependencies;
use lastmeter_wire::aal::aal5;
use lastmeter_wire::atm::{Circuit, Header};
use lastmeter_wire::jetstream;

const NAME: &str = "jetstream-switch";

fn failed(message: impl Into<String>) -> Error {
    Error::Computation { name: NAME, message: message.into() }
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let hosts: u64 = constants.get("hosts")?;
    Ok([
        ports(hosts as u8),
        medium(setting, hosts as usize)?,
        mesh(setting)?,
        blocking(constants, setting.seed)?,
        cut_through(constants)?,
        vec![row("J-30", atm_unit()?)],
    ]
    .concat())
}

fn count(key: &str, number: u64, unit: &'static str) -> Computed {
    row(key, Value::Number(number as f64, unit))
}

fn powered(masters: &[bool]) -> Vec<Node> {
    let mut nodes: Vec<Node> = masters.iter().map(|&master| Node::new(master)).collect();
    for node in &mut nodes {
        node.power();
    }
    nodes
}

/// J-09, J-10, J-61: what a port detects, a ring without a switch, and a dead host.
fn ports(hosts: u8) -> Vec<Computed> {
    let attached = |masters: &[bool]| {
        let mut nodes = powered(masters);
        bring_up(&mut nodes).and_then(|_| nodes[0].attached())
    };
    let ring: Vec<bool> = (0..=hosts).map(|at| at == 0).collect();
    let told_apart = attached(&[true, false]) == Some(Attached::Host)
        && attached(&ring) == Some(Attached::Ring(hosts))
        && attached(&[true, true]) == Some(Attached::Switch);
    // Without a switch, one host is the master, and every other receives what is addressed to it.
    let mut lan = powered(&ring[..usize::from(hosts)]);
    let mut whole = bring_up(&mut lan).is_some();
    for from in 0..lan.len() {
        for to in (0..lan.len()).filter(|&to| to != from) {
            lan[to].read = 0;
            let sender = Node { holds: true, ..lan[from].clone() };
            let (mut at, mut signal) = (from, sender.send(to as u8));
            while let Some(under_way) = signal {
                at = (at + 1) % lan.len();
                signal = lan[at].receive(under_way);
                if at == from && signal.is_some_and(|signal| matches!(signal, Signal::Frame(_))) {
                    whole = false;
                    break;
                }
            }
            whole &= lan[to].read == 1;
        }
    }
    // One host without power.
    let mut broken = powered(&ring);
    broken[3] = Node::new(false);
    let lost_with_ring = if bring_up(&mut broken).is_none() { u64::from(hosts) } else { 1 };
    broken.remove(3);
    let left = bring_up(&mut broken).and_then(|_| broken[0].hosts).unwrap_or(0);
    vec![
        row("J-09", told_apart),
        row("J-10", whole),
        count("J-61/hosts-dead", lost_with_ring, "hosts"),
        count("J-61/hosts-dead-host", u64::from(hosts - left), "hosts"),
    ]
}

fn options(constants: &Constants, hosts: usize) -> Result<Options, Error> {
    let synchronous: Duration = constants.get("synchronous")?;
    let hop: Duration = constants.get("hop")?;
    let mut allotments = vec![synchronous / hosts as u64; hosts + 1];
    allotments[0] = Duration::ZERO;
    let (target, rate) = (constants.get("rotation_target")?, constants.get("rate")?);
    Ok(ring_options(target, rate, vec![hop; hosts + 1], allotments, 8))
}

/// J-07, J-58: a host alone, and voice beside saturating traffic.
fn medium(setting: &Setting<'_>, hosts: usize) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let new = |options: &Options| Medium::new(options.clone(), Time::START).map_err(failed);
    let options = options(constants, hosts)?;
    let frame_max: Bytes = constants.get("frame_max")?;
    let mut random = Stream::new(setting.seed, NAME);
    // Alone: an occasional frame.
    let mut ring = new(&options)?;
    let mut now = Time::START;
    for _ in 0..1000 {
        now += Duration::from_us(1000 + random.below(1000));
        ring.advance(now, drop);
        // Queues never fill here: there is one frame at a time.
        drop(ring.enqueue(now, 1, Class::Asynchronous, Packet::new(Bytes(1500))));
        while let Some(wake) = ring.ready_at() {
            ring.advance(wake, drop);
        }
    }
    let alone = ring.services[Class::Asynchronous as usize].access_max;
    // Every host sends voice while all send as much other traffic as they can.
    let voice: Bytes = constants.get("voice")?;
    let mut ring = new(&options)?;
    let period: Duration = constants.get("voice_period")?;
    let mut due: Vec<Time> =
        (0..=hosts).map(|_| Time::START + Duration::from_us(random.below(20_000))).collect();
    let (mut now, end) = (Time::START, Time::START + Duration::from_secs(1));
    while now < end {
        for (station, due) in due.iter_mut().enumerate().skip(1) {
            drop(ring.enqueue(now, station, Class::Asynchronous, Packet::new(frame_max)));
            if *due <= now {
                *due += period;
                drop(ring.enqueue(now, station, Class::Synchronous, Packet::new(voice)));
            }
        }
        let next = due[1..].iter().copied().min().unwrap_or(end);
        now = ring.ready_at().map_or(next, |wake| wake.min(next)).max(now + Duration::from_ps(1));
        ring.advance(now, drop);
    }
    let spoken = ring.services[Class::Synchronous as usize];
    if spoken.frames < 500 {
        return Err(failed("nobody spoke"));
    }
    Ok(vec![row("J-07/alone", alone), row("J-58", spoken.access_max)])
}

/// Hosts of one switch among themselves, and to those of another over the link between the two (J-07).
fn mesh(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let rate: Rate = setting.constants.get("rate")?;
    let goodput = |run: &str| setting.ledger(run, &[]).map(|ledger| ledger.goodput());
    let senders = 4.0;
    Ok(vec![
        row("J-07/mesh", (goodput("mesh")? / rate.as_bits() as f64, "times")),
        row("J-07/mesh-across", (goodput("across")? / senders / 1e6, "Mbit/s")),
    ])
}

/// The longest wait of a priority frame behind a long frame, and the longest time from first to last byte of
/// a long frame.
fn waits(rate: Rate, preemption: Preemption, long: Bytes, seed: u64) -> (Duration, Duration) {
    let mut random = Stream::new(seed, "blocking");
    let (mut most, mut longest) = (Duration::ZERO, Duration::ZERO);
    for trial in 0..2000 {
        let mut line = Line::new(rate, preemption);
        line.enqueue(Time::START, Frame { id: 0, len: long, priority: false });
        // At a random point of the long frame, its very beginning included.
        let whole = rate.time_for(long).as_ps();
        let at = if trial == 0 { 1 } else { random.below(whole) };
        let at = Time::from_ps(at);
        line.advance(at, drop);
        line.enqueue(at, Frame { id: 1, len: Bytes(1500), priority: true });
        line.advance(Time::START + Duration::from_secs(1), |one| match one.frame.priority {
            true => most = most.max(one.started - one.ready),
            false => longest = longest.max(one.ended - one.started),
        });
    }
    (most, longest)
}

/// J-62, J-63.
fn blocking(constants: &Constants, seed: u64) -> Result<Vec<Computed>, Error> {
    let line: Rate = constants.get("line")?;
    let bus: Rate = constants.get("bus")?;
    let long: Bytes = constants.get("frame_max")?;
    let implied: Bytes = constants.get("frame_implied")?;
    let wait = |rate, preemption, long| waits(rate, preemption, long, seed).0;
    let none = Preemption::None;
    let suspended = waits(line, Preemption::Suspension, long, seed);
    let fragments = waits(line, Preemption::ETHERNET, long, seed);
    let short = line.time_for(Bytes(1500));
    let whole = line.time_for(long);
    Ok(vec![
        row("J-62/wait-behind", wait(bus, none, long)),
        row("J-62/wait-behind-longest", wait(line, none, long)),
        row("J-62/85-000", wait(bus, none, implied)),
        row("J-62/85-000-bytes", wait(line, none, implied)),
        row("J-63/wait-frame", suspended.0),
        row("J-63/wait-frame-cuts", fragments.0),
        row(
            "J-63/suspended", // Each fragment adds a header.
            suspended.1 == whole + short && fragments.1 <= whole + short + line.time_for(Bytes(24)),
        ),
    ])
}

/// J-64: the gain of cut-through, and where it can deadlock.
fn cut_through(constants: &Constants) -> Result<Vec<Computed>, Error> {
    let line: Rate = constants.get("line")?;
    let long: Bytes = constants.get("frame_max")?;
    // Through one switch: a whole frame, or its two headers, must arrive before the first byte leaves.
    let stored = line.time_for(long);
    let cut = line.time_for(Bytes(jetstream::OVERHEAD as u64));
    // Channel n leads from switch n to the next; routes go two hops.
    let ring: Vec<Vec<usize>> = (0..4).map(|n| vec![n, (n + 1) % 4]).collect();
    // Channels 0, 1, 2 up to a root, and 3, 4, 5 down from it.
    let tree: Vec<Vec<usize>> =
        (0..3).flat_map(|up| (3..6).map(move |down| vec![up, down])).collect();
    Ok(vec![
        row("J-64/cut-through", stored > Duration::from_us(500) && cut < Duration::from_us(1)),
        row("J-64/switches-ring", circular(&ring)),
        row("J-64/switches-tree", !circular(&tree)),
    ])
}

/// Whether frames on these routes, given as channels from 0, can deadlock.
fn circular(routes: &[Vec<usize>]) -> bool {
    let channels = routes.iter().flatten().max().map_or(0, |last| last + 1);
    Dependencies::of(channels, routes.iter().map(Vec::as_slice)).cycle().is_some()
}

fn atm_unit() -> Result<bool, Error> {
    let wrong = |error: lastmeter_wire::Error| failed(error.to_string());
    let vci = jetstream::vci(3, 9).map_err(wrong)?;
    let circuit = Circuit { vpi: 0, vci };
    let mut unit = AtmUnit::new(1).map_err(wrong)?;
    unit.open(vci);
    let pdu = aal5::emit(&[7; 9180], 0).map_err(wrong)?;
    let frame = jetstream::emit_aal5(3, &Header::data(circuit), &pdu).map_err(wrong)?;
    let cells = unit.to_network(&frame).map_err(wrong)?;
    let payloads: Vec<u8> = cells.iter().flat_map(|cell| *cell.payload()).collect();
    let back = cells.iter().map(|cell| unit.to_ring(cell)).collect::<Result<Vec<_>, _>>();
    let back = back.map_err(wrong)?;
    Ok(payloads == pdu && back.iter().all(|frame| frame.len() == 56) && cells.len() == 192)
}
