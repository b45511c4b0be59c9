//! A trial: a given load offered to a receiving host for a given time, and the results.
//!
//! Arrivals are periodic, as from END's traffic device (`CTRL_CREATE_PERIODIC`, E-52, E-99), or random. The
//! warm-up is not counted.

use crate::machine::{Machine, Output};
use lastmeter_base::{Bytes, Draw, Duration, FlowId, Packet, Stream, Time};
use lastmeter_engine::{Distribution, PortId};

/// The traffic of one interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// Time between packets.
    pub gap: Draw,
    /// Length of a packet.
    pub len: Bytes,
    /// The number of flows, at least one: packets belong to them in turn; a flow's number is also its class.
    pub flows: u32,
    /// Arrival of the first packet.
    pub start: Time,
}

/// Results of a trial.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Packets per second that the application processed, for each interface.
    pub processed: Vec<f64>,
    /// The same for each flow of all interfaces.
    pub by_flow: Vec<f64>,
    /// Seconds from the arrival of a packet until it is processed.
    pub latency: Distribution,
    /// Idle share of the CPU.
    pub idle: f64,
    /// Interrupts per second.
    pub interrupts: f64,
    /// Packets neither processed, dropped nor held: zero.
    pub unaccounted: i64,
}

impl Outcome {
    /// Packets per second over all interfaces.
    pub fn total(&self) -> f64 {
        self.processed.iter().sum()
    }
}

/// Offers `arrivals`, one entry for each interface, for `warm_up` and then for `length`.
pub fn run(
    mut host: Machine,
    arrivals: &[Arrivals],
    seed: u64,
    warm_up: Duration,
    length: Duration,
) -> Outcome {
    let begin = Time::START + warm_up;
    let end = begin + length;
    let stream = |at: usize| Stream::new(seed, &format!("arrivals {at}"));
    let mut streams: Vec<Stream> = (0..arrivals.len()).map(stream).collect();
    let mut next: Vec<Time> = arrivals.iter().map(|one| one.start).collect();
    let mut made = vec![0u64; arrivals.len()];
    let flows = arrivals.iter().map(|one| one.flows.max(1)).max().unwrap_or(1);
    let mut counts = Tally {
        processed: vec![0; arrivals.len()],
        by_flow: vec![0; flows as usize],
        ..Tally::default()
    };
    let mut idle_before = None;
    let mut interrupts_before = 0;
    let interrupts =
        |host: &Machine| (0..arrivals.len()).map(|at| host.counts(at).interrupts).sum::<u64>();
    loop {
        let arrival = next.iter().copied().enumerate().min_by_key(|&(_, at)| at);
        let Some((interface, at)) = arrival else { break };
        let now = at.min(host.ready_at().unwrap_or(Time::MAX));
        if idle_before.is_none() && now >= begin {
            idle_before = Some(idle(&host));
            interrupts_before = interrupts(&host);
        }
        if now >= end {
            break;
        }
        host.advance(now);
        if now == at {
            let one = &arrivals[interface];
            let mut packet = counts.pool.pop().unwrap_or_else(|| Packet::new(one.len));
            packet.visits.clear();
            (packet.len, packet.born) = (one.len, now);
            let flow = (made[interface] % u64::from(one.flows.max(1))) as u32;
            (packet.flow, packet.class) = (FlowId(flow), flow as u8);
            host.arrive(now, PortId(interface as u16), packet);
            made[interface] += 1;
            let gap = one.gap.sample(&mut streams[interface]);
            next[interface] = at + gap.max(Duration::from_ps(1));
        }
        counts.take(&mut host, now, now >= begin);
    }
    let seconds = length.as_secs_f64();
    let rates = |counts: &[u64]| counts.iter().map(|&count| count as f64 / seconds).collect();
    let made: u64 = made.iter().sum();
    let idle_all = idle(&host) - idle_before.unwrap_or(0.0);
    Outcome {
        processed: rates(&counts.processed),
        by_flow: rates(&counts.by_flow),
        latency: counts.latency,
        idle: (idle_all / seconds).clamp(0.0, 1.0),
        interrupts: (interrupts(&host) - interrupts_before) as f64 / seconds,
        unaccounted: made as i64 - (counts.ended + host.held()) as i64,
    }
}

/// Idle time of the CPU in seconds.
fn idle(host: &Machine) -> f64 {
    host.meters().map(|meter| meter.time_idle().as_secs_f64()).sum()
}

#[derive(Default)]
struct Tally {
    processed: Vec<u64>,
    by_flow: Vec<u64>,
    latency: Distribution,
    ended: u64,
    pool: Vec<Packet>,
}

impl Tally {
    fn take(&mut self, host: &mut Machine, now: Time, counts: bool) {
        for output in host.outputs() {
            self.ended += 1;
            let packet = match output {
                Output::Send(port, packet) => {
                    if counts {
                        self.processed[usize::from(port.0)] += 1;
                        self.by_flow[packet.flow.0 as usize] += 1;
                        self.latency.record(now - packet.born);
                    }
                    packet
                }
                Output::Drop(packet, ..) => packet,
            };
            self.pool.push(packet);
        }
    }
}
