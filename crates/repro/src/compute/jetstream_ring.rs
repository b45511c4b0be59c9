//! Jetstream's ring, run: rotations, access delays, recovery and bring-up (J-08 to J-61).

use super::jetstream::ring_options;
use super::{Computed, Setting, Value, row};
use crate::Error;
use lastmeter_base::{Bytes, Duration, Packet, Rate, Stream, Time};
use lastmeter_lan::timed_token::medium::{Class, Medium, Options};
use lastmeter_lan::timed_token::node::{Node, Signal, bring_up};
use lastmeter_wire::jetstream::{Header, RID_MAX};
use std::ops::Range;

/// Number of frames that arrive one at a time.
const LONE: u64 = 1000;

/// A ring with its load.
struct Load {
    options: Options,
    /// The longest asynchronous frame.
    frame_max: Bytes,
    /// The synchronous frame of each station.
    synchronous: Bytes,
    seed: u64,
    length: Duration,
    /// The stations that send asynchronous frames.
    senders: Range<usize>,
}

impl Load {
    /// Runs with more asynchronous frames than the ring carries, of random lengths up to the longest, and as many
    /// synchronous ones as the allotments carry. `lose` tokens are lost.
    fn saturate(&self, lose: u32) -> Result<Medium, Error> {
        let invalid = |message| Error::Computation { name: "jetstream-ring", message };
        let mut ring = Medium::new(self.options.clone(), Time::START).map_err(invalid)?;
        let mut random = Stream::new(self.seed, "jetstream-ring");
        let end = Time::START + self.length;
        let (mut now, mut lost) = (Time::START, 0);
        while now < end {
            for station in 0..self.options.hops.len() {
                let len = match random.chance(0.5) {
                    true => self.frame_max,
                    false => Bytes(64 + random.below(self.frame_max.0 - 63)),
                };
                // Full queues refuse frames: there is always something to send.
                if self.senders.contains(&station) {
                    drop(ring.enqueue(now, station, Class::Asynchronous, Packet::new(len)));
                }
                if self.synchronous > Bytes::ZERO {
                    let packet = Packet::new(self.synchronous);
                    drop(ring.enqueue(now, station, Class::Synchronous, packet));
                }
            }
            let next = self.length / u64::from(lose + 1) * u64::from(lost + 1);
            if lost < lose && now > Time::START + next {
                ring.lose_token();
                lost += 1;
            }
            now = ring.ready_at().map_or(end, |wake| wake.max(now));
            ring.advance(now, drop);
        }
        Ok(ring)
    }

    /// Bits per second that each host gets of a port if all always send the longest frame (J-06, J-54).
    fn share(&self, hosts: u64) -> Result<Rate, Error> {
        let ring = self.saturate(0)?;
        let sent = ring.services[Class::Asynchronous as usize].time;
        Ok(self.options.rate.scale_floor(sent.as_ps(), self.length.as_ps() * hosts))
    }

    /// Mean wait of an occasional frame for the token (J-86).
    fn lone_wait(&self) -> Result<Duration, Error> {
        let invalid = |message| Error::Computation { name: "jetstream-ring", message };
        let mut ring = Medium::new(self.options.clone(), Time::START).map_err(invalid)?;
        let mut random = Stream::new(self.seed, "jetstream-ring alone");
        let (mut now, mut waited) = (Time::START, Duration::ZERO);
        for _ in 0..LONE {
            now += self.options.target + Duration::from_ns(random.below(1_000_000));
            ring.advance(now, drop);
            let refused = |_| invalid("a lone frame is refused".to_owned());
            let packet = Packet::new(self.frame_max);
            ring.enqueue(now, 1, Class::Asynchronous, packet).map_err(refused)?;
            while let Some(wake) = ring.ready_at() {
                ring.advance(wake, |sent| waited += sent.started - now);
            }
        }
        Ok(waited / LONE)
    }
}

pub(super) fn ring(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (nodes, metres): (u64, u64) = (constants.get("nodes")?, constants.get("metres")?);
    let (target, rate): (Duration, Rate) =
        (constants.get("rotation_target")?, constants.get("rate")?);
    let (node_delay, metre_delay): (Duration, Duration) =
        (constants.get("node_delay")?, constants.get("metre_delay")?);
    let allotted: Duration = constants.get("synchronous")?;
    let handler: Duration = constants.get("handler")?;
    let mut hops = vec![node_delay + metre_delay * (metres / nodes); nodes as usize];
    // The remainder of the division is behind the master.
    hops[0] += metre_delay * (metres % nodes);
    // The master, station 0, only switches; hosts share the capacity.
    let hosts = nodes - 1;
    let mut allotments = vec![allotted / hosts; nodes as usize];
    allotments[0] = Duration::ZERO;
    let load = Load {
        options: Options { handler, ..ring_options(target, rate, hops, allotments, 4) },
        frame_max: constants.get("frame_max")?,
        synchronous: Bytes((allotted / hosts).as_ps() / rate.time_for(Bytes(1)).as_ps()),
        seed: setting.seed,
        length: constants.get("length")?,
        senders: 0..nodes as usize,
    };
    let loaded = load.saturate(0)?;
    // As the document counts: every rotation takes TTRT, nothing overruns and nothing is reserved. Then with
    // reserved time, and with longer frames.
    let wait = |frame: &str, reserved: bool| -> Result<Duration, Error> {
        let options = load.options.clone();
        let none = vec![Duration::ZERO; nodes as usize];
        let one = Load {
            options: if reserved { options } else { Options { allotments: none, ..options } },
            frame_max: constants.get(frame)?,
            synchronous: if reserved { load.synchronous } else { Bytes::ZERO },
            senders: load.senders.clone(),
            ..load
        };
        Ok(one.saturate(0)?.services[Class::Asynchronous as usize].access_max)
    };
    let counted = wait("frame_short", false)?;
    let beside = wait("frame_short", true)?;
    let of_ip = wait("frame_ip", false)?;
    let long = wait("frame_max", false)?;
    // Hosts behind one port, to which they send; and the ring's nodes as they were built.
    let port = |hosts: u64| {
        let stations = hosts as usize + 1;
        let mut options = load.options.clone();
        options.hops.truncate(stations);
        options.allotments = vec![Duration::ZERO; stations];
        Load { options, synchronous: Bytes::ZERO, senders: 1..stations, ..load }
    };
    let alone = Load { senders: 1..2, ..port(hosts) };
    let built: Duration = constants.get("node_latency")?;
    let mut quick = Load { frame_max: constants.get("frame_ip")?, ..port(hosts) };
    for hop in &mut quick.options.hops {
        *hop = built + (*hop - node_delay);
    }
    let losing = load.saturate(constants.get::<u64>("losses")? as u32)?;
    let [synchronous, asynchronous] = loaded.services;
    let rotations = loaded.rotations;
    let mean = (rotations.sum / u128::from(rotations.count.max(1))) as u64;
    let carried = rate.scale_floor(synchronous.time.as_ps(), load.length.as_ps());
    let accepted = |&stations: &usize| {
        let (hops, allotments) = (vec![node_delay; stations], vec![Duration::ZERO; stations]);
        Medium::new(Options { hops, allotments, ..load.options.clone() }, Time::START).is_ok()
    };
    let most = (2..).take_while(accepted).last().unwrap_or(1);
    let mut computed = vec![
        row("J-06/share-15", port(hosts).share(hosts)?),
        row("J-06/share-2", port(2).share(2)?),
        row("J-54", alone.share(1)?),
        row("J-86", quick.lone_wait()?),
        row("J-08", count(most as u64 - 1, "hosts")),
        row("J-15/longest-rotation", rotations.max),
        row("J-15/mean-rotation", Duration::from_ps(mean)),
        row("J-18", loaded.latency()),
        row("J-20/synchronous", carried),
        row("J-20/longest-wait", synchronous.access_max),
        row("J-21/longest-wait", counted),
        row("J-21/longest-wait-short", beside),
        row("J-21/longest-wait-frames", of_ip),
        row("J-21/longest-wait-frames-up", long),
        row("J-21/longest-wait-token", asynchronous.access_max),
        row("J-42", losing.rotations.recovery_max.saturating_sub(handler)),
        row("J-59", synchronous.access_max),
    ];
    computed.extend(protocol(hosts as u8));
    Ok(computed)
}

fn count(number: u64, unit: &'static str) -> Value {
    Value::Number(number as f64, unit)
}

/// A ring of powered nodes.
fn powered(hosts: u8) -> Vec<Node> {
    let mut nodes: Vec<Node> = (0..=hosts).map(|at| Node::new(at == 0)).collect();
    for node in &mut nodes {
        node.power();
    }
    nodes
}

/// Functions of the nodes: identities, stripping, and a fault.
fn protocol(hosts: u8) -> Vec<Computed> {
    let mut nodes = powered(hosts);
    let messages = bring_up(&mut nodes);
    let in_order = nodes.iter().zip(0..).all(|(node, place)| node.rid == Some(place));
    let counted = nodes[0].hosts.unwrap_or(0);
    // A frame of the last host, and one whose source is not on the ring.
    let own = nodes[usize::from(hosts)].clone();
    let sent = Node { holds: true, ..own }.send(1);
    let passed = visits(&mut nodes, usize::from(hosts), sent);
    let orphan = sent.map(|signal| match signal {
        Signal::Frame(header) => Signal::Frame(orphan_of(header)),
        other => other,
    });
    let mut short = powered(hosts - 1);
    bring_up(&mut short);
    let rotations = visits(&mut short, usize::from(hosts) - 1, orphan) as f64 / f64::from(hosts);
    let mut broken = powered(hosts);
    broken[3] = Node::new(false);
    let down = bring_up(&mut broken).is_none();
    broken.remove(3);
    let around = bring_up(&mut broken).is_some() && broken[0].hosts == Some(hosts - 1);
    vec![
        row("J-33", (rotations, "rotations")),
        row("J-35", count(passed, "stations")),
        row("J-39/ring_up-messages", count(messages.unwrap_or(0).into(), "messages")),
        row("J-39/identities", in_order),
        row("J-41", count(counted.into(), "hosts")),
        row("J-43", around),
        row("J-61", down && around),
    ]
}

/// A source that a ring with one host fewer does not have.
fn orphan_of(header: Header) -> Header {
    Header { src: RID_MAX, ..header }
}

/// Nodes that a frame reaches before it is stripped, the stripping one included.
fn visits(nodes: &mut [Node], from: usize, frame: Option<Signal>) -> u64 {
    let (mut signal, mut at, mut reached) = (frame, from, 0);
    while let Some(frame) = signal.filter(|_| reached < 1000) {
        at = (at + 1) % nodes.len();
        reached += 1;
        signal = nodes[at].receive(frame);
    }
    reached
}
