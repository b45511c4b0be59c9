//! The forwarder between two null devices: what forwarding costs when devices cost nothing (A-129).
//!
//! ```text
//! null device --> parse --> lookup --> forward --> queue --> null device
//! ```
//!
//! It is the port processor of a running router, with its tables, hops and queues; only its lines are others. ANA §3.1
//! did that with the x-kernel's IP: 30,000 packets/s on a 33 MHz R3000, half of the instructions in IP.

use super::count::{Counters, STAGES, Stages};
use super::hop::{FIRST, Next};
use super::line::{Line, Null};
use super::policy::Policies;
use super::reception::Receive;
use super::structure::Lookup;
use super::tables::{Network, Tables};
use super::{Change, Event, Parts, PortProcessor, PortSetup, Setup};
use lastmeter_base::Bytes;
use lastmeter_linux::dataplane::Frames;
use lastmeter_net::queue::DropTail;
use lastmeter_wire::internet::ipv4;
use rustix::event::{EventfdFlags, eventfd};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Bytes of a frame: the shortest of Ethernet, without its check sequence.
const FRAME_LEN: usize = 60;
/// Frames in memory.
const FRAMES: usize = 8192;
/// The next router.
pub(super) const NEXT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 9));
/// Packets that wait at most.
const QUEUE: u64 = 1000;

/// What was measured between null devices.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Packets taken, or made of these (errors), sent, and dropped.
    pub received: u64,
    /// See above.
    pub sent: u64,
    /// See above.
    pub dropped: u64,
    /// CPU time of the port processor, in seconds.
    pub cpu: f64,
    /// Each stage's share of a packet's time.
    pub shares: Vec<(&'static str, f64)>,
}

impl Measured {
    /// Packets for each second of the CPU.
    pub fn rate(&self) -> f64 {
        self.sent as f64 / self.cpu.max(1e-9)
    }
    /// The share of IP: all that is neither a device's work nor a queue's.
    pub fn share_of_ip(&self) -> f64 {
        let ip = ["parse", "classify", "plugins", "lookup", "forward"];
        let own = self.shares.iter().filter(|(stage, _)| ip.contains(stage));
        own.map(|(_, share)| share).sum()
    }
}

/// A UDP packet in the shortest frame.
pub(super) fn frame(to: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let payload = FRAME_LEN - 14 - 20;
    // The length fits.
    let _ = ipv4::Header::new([10, 1, 0, 1].into(), to, 17).emit(payload, &mut frame);
    frame.extend([0, 9, 0, 9, 0, payload as u8, 0, 0]);
    frame.resize(FRAME_LEN, 0);
    frame
}

/// A port processor with two null devices, all of whose routes lead to the same next router at the second.
pub(super) struct Made {
    pub(super) processor: PortProcessor,
    changes: Sender<Change>,
    pending: Arc<AtomicBool>,
    pub(super) counts: Arc<Vec<Counters>>,
    stages: Arc<Stages>,
    pub(super) events: Receiver<Event>,
}

/// What the file would say of it.
pub(super) fn setup() -> Setup {
    let port = || PortSetup {
        queue: Some(Box::new(DropTail::new(QUEUE, Bytes(u64::MAX)))),
        reserved: Vec::new(),
        rate: None,
        framing: Bytes::ZERO,
        flows: 1,
        in_band: false,
        labels: false,
        plugins: Vec::new(),
        departing: Vec::new(),
    };
    Setup {
        rules: None,
        treatments: Vec::new(),
        policies: Policies::default(),
        receive: Receive::default(),
        plugins: Vec::new(),
        ports: vec![port(), port()],
    }
}

impl Made {
    /// Makes it; the next router's Ethernet address is not known yet.
    pub(super) fn new(routes: &[Network], arriving: Vec<Vec<u8>>) -> Result<Made, String> {
        Made::with(routes, arriving, false, |_| ())
    }
    /// The same, with or without a fast path, and with another setup.
    pub(super) fn with(
        routes: &[Network],
        arriving: Vec<Vec<u8>>,
        fast: bool,
        change: impl FnOnce(&mut Setup),
    ) -> Result<Made, String> {
        let said = |error: std::io::Error| error.to_string();
        let bell = || eventfd(0, EventfdFlags::NONBLOCK).map_err(|error| said(error.into()));
        let mut tables = Tables::new(Lookup::default());
        routes.iter().try_for_each(|network| tables.route(*network, FIRST))?;
        let lines = [Null::new(arriving), Null::new(Vec::new())];
        let mut setup = setup();
        change(&mut setup);
        let (changes, from_changes) = channel();
        let (events, from_events) = channel();
        let pending = Arc::new(AtomicBool::new(false));
        let counts: Arc<Vec<Counters>> = Arc::new(vec![Counters::default(), Counters::default()]);
        let stages = Arc::<Stages>::default();
        let processor = PortProcessor::new(Parts {
            names: vec!["in".to_owned(), "out".to_owned()],
            own_core: false,
            lines: lines.map(|null| Some(Line::Null(null))).into(),
            frames: Frames::new(FRAMES).map_err(said)?,
            readers: tables.readers(),
            setup,
            fast,
            generation: Arc::default(),
            changes: from_changes,
            pending: pending.clone(),
            wake: bell()?,
            events,
            attention: bell()?,
            counts: counts.clone(),
            stages: stages.clone(),
            copied: Arc::default(),
            crossing: None,
        });
        let made = Made { processor, changes, pending, counts, stages, events: from_events };
        made.change(Change::Hop(FIRST, vec![Next { port: 1, address: Some(NEXT) }]))?;
        Ok(made)
    }
    pub(super) fn change(&self, change: Change) -> Result<(), String> {
        self.changes.send(change).map_err(|_| "it has ended")?;
        self.pending.store(true, Release);
        Ok(())
    }
    /// The next router has answered.
    pub(super) fn resolve(&self) -> Result<(), String> {
        self.change(Change::Neighbour(1, NEXT, Some([2, 0, 0, 0, 0, 9])))
    }
}

/// Forwards packets to these addresses from one null device to another for so long; all `routes` lead to the same next
/// router.
///
/// # Errors
/// If there is no memory, or a route is impossible.
pub fn forward(
    routes: &[Network],
    destinations: &[Ipv4Addr],
    seconds: Duration,
) -> Result<Measured, String> {
    let made = Made::new(routes, destinations.iter().map(|to| frame(*to)).collect())?;
    made.resolve()?;
    let Made { mut processor, changes, pending, counts, stages, events: _events } = made;
    let clock = rustix::time::ClockId::ThreadCPUTime;
    let thread = std::thread::spawn(move || {
        let before = super::state::cpu_of(clock);
        processor.run();
        super::state::cpu_of(clock) - before
    });
    std::thread::sleep(seconds);
    changes.send(Change::End).map_err(|_| "it has ended")?;
    pending.store(true, Release);
    let cpu = thread.join().map_err(|_| "it has failed")?;
    let spent: Vec<u64> = stages.spent.iter().map(|spent| spent.load(Relaxed)).collect();
    let all = spent.iter().sum::<u64>().max(1) as f64;
    let shares = STAGES.into_iter().zip(spent);
    let sum = |of: fn(&Counters) -> u64| counts.iter().map(of).sum();
    Ok(Measured {
        received: sum(|count| count.received.load(Relaxed) + count.made.load(Relaxed)),
        sent: sum(|count| count.sent.load(Relaxed)),
        dropped: sum(Counters::dropped_sum),
        cpu,
        shares: shares.map(|(stage, spent)| (stage, spent as f64 / all)).collect(),
    })
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "the rate beside the published one")]
mod tests {
    use super::*;
    use crate::port_processor::BATCH;

    #[test]
    fn packets_that_wait_for_a_neighbour_leave_before_newer_ones() {
        // Each frame is told by the end of its destination.
        let to = |at: u32| Ipv4Addr::from(0xc000_0200 + at);
        let arriving = (0..256).map(|at| frame(to(at))).collect();
        let made = Made::new(&[([192, 0, 2, 0].into(), 24)], arriving);
        let mut made = made.expect("there is memory");
        // Two batches wait; a third arrives when the neighbour has answered.
        made.processor.turn();
        made.processor.turn();
        assert_eq!(made.processor.held.len(), 2 * BATCH);
        made.resolve().expect("it runs");
        made.processor.turn();
        made.processor.turn();
        assert!(made.processor.held.is_empty());
        let Some(Line::Null(out)) = &made.processor.lines[1] else { panic!("a null device") };
        let left: Vec<u32> = out.departed.iter().map(|(_, last)| u32::from(*last)).collect();
        assert_eq!(left, (0..4 * BATCH as u32).collect::<Vec<_>>());
    }

    #[test]
    fn packets_go_from_one_null_device_to_another_beside_the_documents_rate_a_129() {
        let routes = [([192, 0, 2, 0].into(), 24), ([198, 51, 0, 0].into(), 16)];
        let to = [[192, 0, 2, 7].into(), [198, 51, 100, 7].into(), [203, 0, 113, 1].into()];
        let measured = forward(&routes, &to, Duration::from_millis(300)).expect("it runs");
        // A third has no route; the rest is sent or waits in the queue at the end.
        let Measured { received, sent, dropped, .. } = measured;
        assert!(received >= sent + dropped && received - sent - dropped <= QUEUE, "{measured:?}");
        assert!(dropped * 3 <= received + 3 * QUEUE && sent > 0, "{measured:?}");
        assert!((0.0..=1.0).contains(&measured.share_of_ip()), "{measured:?}");
        let rate = forward(&routes, &to[..2], Duration::from_millis(300)).expect("it runs");
        assert_eq!(rate.dropped, 0, "{rate:?}");
        println!(
            "{:.2} M packets/CPU s, {:.0} % IP; published 30,000 packets/s, 50 % IP",
            rate.rate() / 1e6,
            rate.share_of_ip() * 100.0
        );
        // A processor of today is at least ten times as fast as one of 1993, also a busy one: its own time counts.
        assert!(rate.rate() > 300_000.0, "{rate:?}");
    }
}
