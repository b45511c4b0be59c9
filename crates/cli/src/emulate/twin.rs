//! The twin of a live run: the same graph in virtual time, with the arrivals recorded at the ports,
//! compared departure by departure. The difference is the error of the emulation itself.
//!
//! ```text
//! arrivals (port, time, length, flow) --> the same graph, virtual clock --> departures
//!                                                                      compared with those recorded
//! ```
//!
//! Content does not affect where a packet goes or how long it takes, so only a hash is kept; a frame whose
//! content changed is counted.

use lastmeter_base::{Bytes, Ecn, FlowId, Packet, Time};
use lastmeter_engine::{Context, Distribution, Element, PortId, TimerId, VirtualClock};
use lastmeter_lab::build::Peer;
use lastmeter_lab::build::{Changes, LiveEnd, build_between};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;
use lastmeter_lab::run::Failure;
use lastmeter_linux::port::{Arrived, Departure};
use lastmeter_live::session::Measured;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A live run compared with the same run in virtual time.
#[derive(Clone, Debug)]
pub struct Twin {
    /// Departures found in both.
    pub both: u64,
    /// Departures of the live run alone, and of the virtual run alone.
    pub alone: (u64, u64),
    /// Whether every port's frames left in the same order.
    pub order_identical: bool,
    /// How much later they left live.
    pub differences: Distribution,
    /// Departures that left earlier live: there should be none.
    pub early: u64,
    /// Frames whose content changed on the way, other than by an ECN mark.
    pub changed: u64,
}

/// Of no departures.
impl Default for Twin {
    fn default() -> Twin {
        let differences = Distribution::default();
        Twin { both: 0, alone: (0, 0), order_identical: true, differences, early: 0, changed: 0 }
    }
}

impl Twin {
    /// In a sentence or two.
    pub fn words(&self) -> String {
        let order = if self.order_identical { "in the same order" } else { "in a different order" };
        let differences = &self.differences;
        format!(
            "Twin: {} departures of the same run in virtual time, {order}; median lateness of the \
             live ones {}, p99 {}, worst {}. {} left only live, {} only in virtual time, {} early, \
             {} with different content.",
            self.both,
            differences.percentile(0.5),
            differences.percentile(0.99),
            differences.max(),
            self.alone.0,
            self.alone.1,
            self.early,
            self.changed,
        )
    }
    /// For programs; times in seconds.
    pub fn json(&self) -> serde_json::Value {
        let differences = &self.differences;
        let at = |share| differences.percentile(share).as_secs_f64();
        serde_json::json!({
            "both": self.both,
            "only_live": self.alone.0,
            "only_virtual": self.alone.1,
            "order_identical": self.order_identical,
            "later": {
                "p50": at(0.5), "p90": at(0.9), "p99": at(0.99),
                "max": differences.max().as_secs_f64(),
            },
            "early": self.early,
            "changed": self.changed,
        })
    }
}

/// The hash of a frame in which the live run set an ECN mark.
const MARKED: u64 = 0;

/// The departures from a port in virtual time.
type Left = Arc<Mutex<Vec<Departure>>>;

/// Replays the arrivals of one port, and records its departures.
struct Player {
    arrivals: Vec<Arrived>,
    next: usize,
    peers: Vec<Peer>,
    left: Left,
}

impl Player {
    fn arm(&self, cx: &mut Context<'_>) {
        if let Some(arrived) = self.arrivals.get(self.next) {
            cx.arm(TimerId(0), arrived.at);
        }
    }
}

impl Element for Player {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.arm(cx);
    }

    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        while let Some(arrived) = self.arrivals.get(self.next).filter(|a| a.at <= cx.now()) {
            let peers = match arrived.peer {
                Some(peer) => &self.peers[usize::from(peer)..=usize::from(peer)],
                None => &self.peers[..],
            };
            for peer in peers {
                let mut packet = cx.make(peer.path, Bytes(arrived.len.into()));
                packet.destination = peer.node;
                packet.flow = FlowId(arrived.flow);
                packet.ecn = arrived.ecn;
                packet.class = arrived.class;
                packet.seq = self.next as u64;
                packet.deadline = cx.now();
                packet.entered = cx.now();
                packet.tag = arrived.hash;
                cx.send(PortId(0), packet);
            }
            self.next += 1;
        }
        self.arm(cx);
    }

    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, from) = (cx.now(), packet.path.0);
        let hash = if packet.ecn == Ecn::Ce { MARKED } else { packet.tag };
        left.push(Departure { from, seq: packet.seq, due, left: due, hash });
        drop(left);
        cx.deliver(packet);
    }
}

/// Runs the twin of the measured run, until `end`, and compares.
pub(super) fn replay(
    experiment: &Experiment,
    measured: &Measured,
    end: Time,
) -> Result<Twin, Failure> {
    let mut outputs: Vec<Left> = Vec::new();
    let mut ends = |LiveEnd { index, peers, .. }: LiveEnd| -> Box<dyn Element> {
        let left = Left::default();
        outputs.push(Arc::clone(&left));
        let arrivals = measured.arrivals.get(index).cloned().unwrap_or_default();
        Box::new(Player { arrivals, next: 0, peers, left })
    };
    let built = build_between(experiment, &Changes::NONE, &Builtin, Some(&mut ends));
    let built = built.map_err(Failure::Problems)?;
    let mut engine = built.graph.build(1).map_err(Failure::Engine)?;
    engine.run_until(end, &mut VirtualClock::default()).map_err(Failure::Engine)?;
    engine.finish().map_err(Failure::Engine)?;
    let mut twin = Twin::default();
    for (live, output) in measured.departures.iter().zip(&outputs) {
        let virtually = output.lock().unwrap_or_else(PoisonError::into_inner);
        compare(live, &virtually, &mut twin);
    }
    Ok(twin)
}

/// Compares the departures from one port.
fn compare(live: &[Departure], virtually: &[Departure], twin: &mut Twin) {
    let key = |departure: &Departure| (departure.from, departure.seq);
    let places: BTreeMap<_, usize> =
        virtually.iter().enumerate().map(|(place, departure)| (key(departure), place)).collect();
    let mut last = None;
    let mut both = 0;
    for departure in live {
        let Some(&place) = places.get(&key(departure)) else {
            twin.alone.0 += 1;
            continue;
        };
        both += 1;
        twin.order_identical &= last.is_none_or(|last| last < place);
        last = Some(place);
        let due = virtually[place].due;
        match departure.left >= due {
            true => twin.differences.record(departure.left - due),
            false => twin.early += 1,
        }
        let expected = virtually[place].hash;
        twin.changed += u64::from(expected != MARKED && departure.hash != expected);
    }
    twin.both += both;
    twin.alone.1 += virtually.len() as u64 - both;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departure(seq: u64, due: u64, left: u64) -> Departure {
        let at = |us: u64| Time::from_ps(us * 1_000_000);
        Departure { from: 1, seq, due: at(due), left: at(left), hash: seq }
    }

    fn compared(live: &[Departure], virtually: &[Departure]) -> Twin {
        let mut twin = Twin::default();
        compare(live, virtually, &mut twin);
        twin
    }

    #[test]
    fn reordered_and_missing_frames_are_found() {
        let virtually = [departure(0, 10, 10), departure(1, 20, 20), departure(2, 30, 30)];
        let same = compared(&[departure(0, 10, 12), departure(1, 20, 25)], &virtually);
        assert!(same.order_identical);
        assert_eq!((same.both, same.alone, same.early), (2, (0, 1), 0));
        assert_eq!(same.differences.max(), lastmeter_base::Duration::from_us(5));
        let other = compared(&[departure(1, 20, 20), departure(0, 10, 21)], &virtually);
        assert!(!other.order_identical);
        let strange = compared(&[departure(9, 10, 12), departure(2, 30, 29)], &virtually);
        assert_eq!((strange.alone, strange.early), ((1, 2), 1));
    }
}
