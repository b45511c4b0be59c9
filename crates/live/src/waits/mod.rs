//! How long data and threads wait between the stages, by the kernel's tracepoints: privilege level L1.
//!
//! ```text
//! sched:  waking .. wakeup .. switch       a woken thread waits for a CPU
//! irq:    softirq_raise .. softirq_entry   a softirq waits for its turn
//! net:    dev_queue .. dev_start_xmit      a packet waits in a queue of its interface
//!         netif_rx .. netif_receive_skb    ... in the backlog of a CPU
//! skb:    netif_receive_skb .. copy        ... in its socket, for the reader
//! ```
//!
//! Recording costs whoever passes a tracepoint near a microsecond, so it is done for a short look, and a look ends
//! early where there are many events. A transfer of one's own is repeated for that, so that its figures stay those of
//! one without; a command is looked at a few times, more rarely the longer it runs.
//!
//! | parameter | |
//! |---|---|
//! | rights | root, or `CAP_PERFMON` and tracefs readable |
//! | look | 0.3 s of an own transfer; of a command 0.1 s each, 0.1, 0.6, 1.6, 3.6 and 7.6 s after its start |
//! | events | at most [`EVENTS_MAX`], then the look ends |
//! | cost | measured: [`Waits::cost`] |
//!
//! A tracepoint that a kernel does not have is left out, and with it what it would tell.

mod event;
mod matcher;
mod own;
mod summary;
mod watching;

pub(crate) use own::Looking;
pub use summary::{Busy, Wait, Waits};
pub(crate) use watching::Watching;

use crate::sample::online;
use event::{Decoder, Event, What};
use lastmeter_linux::clock::{nanoseconds, thread_cpu};
use lastmeter_linux::trace::{self, Format, Record, Tracer};
use matcher::Delays;
use std::time::{Duration, Instant};

/// Events of all looks together, about: what is in the rings when there are more still counts.
pub const EVENTS_MAX: usize = 100_000;
/// Between two readings of the rings.
const READ_EVERY: Duration = Duration::from_millis(5);

/// The tracepoints, opened.
pub(crate) struct Tracing {
    tracer: Tracer,
    decoder: Decoder,
    /// Seconds of CPU time that an event costs whoever passes it.
    price: Option<f64>,
}

/// What was seen, and what seeing it cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    delays: Delays,
    looks: u32,
    /// Seconds of CPU time of recording, where it is known, and of reading.
    spent: Option<f64>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.spent = match self.looks {
            0 => other.spent,
            _ => self.spent.zip(other.spent).map(|(sum, more)| sum + more),
        };
        self.looks += other.looks;
        self.delays.add(other.delays);
    }
}

impl Tracing {
    /// Opens them; `Err` says in words why this user may not.
    pub(crate) fn open() -> Result<Tracing, String> {
        let decoder = Decoder::new(Format::of).ok_or_else(trace::absent)?;
        let tracer = Tracer::open(&online()?, &decoder.wanted());
        let tracer = tracer.map_err(|error| trace::refused(&error))?;
        Ok(Tracing { tracer, decoder, price: trace::price() })
    }

    /// Looks for so long, until there were so many events, or until it is over.
    pub(crate) fn look(
        &mut self,
        lasts: Duration,
        most: usize,
        is_over: impl Fn() -> bool,
    ) -> Result<Seen, String> {
        let refused = |error| trace::refused(&error);
        let before = thread_cpu();
        let mut events = Vec::new();
        let mut lost = 0;
        // What an earlier look left behind.
        self.tracer.drain(|_| {});
        self.tracer.count(true).map_err(refused)?;
        let (from, end) = (nanoseconds(), Instant::now() + lasts);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            std::thread::park_timeout(left.min(READ_EVERY));
            self.read(&mut events, &mut lost);
            // What was lost cost nearly as much.
            let enough = events.len() as u64 + lost >= most as u64;
            if left.is_zero() || enough || is_over() {
                break;
            }
        }
        let until = nanoseconds();
        self.tracer.count(false).map_err(refused)?;
        self.read(&mut events, &mut lost);
        let passed = events.iter().filter(|event| event.what != What::Gap).count() as u64 + lost;
        let mut delays = matcher::matched(events, (from, until), self.decoder.devices());
        delays.lost = lost;
        let reading = thread_cpu() - before;
        let spent = self.price.map(|price| price * passed as f64 + reading);
        Ok(Seen { delays, looks: 1, spent })
    }

    fn read(&mut self, events: &mut Vec<Event>, lost: &mut u64) {
        let Tracing { tracer, decoder, .. } = self;
        tracer.drain(|record| take(decoder, record, events, lost));
    }

    /// Closes them, which takes the kernel some tenths of a second, in a thread of its own.
    pub(crate) fn close(self) {
        let closing = std::thread::Builder::new().name("closing".to_owned());
        // Without another thread they were closed here already.
        let _ = closing.spawn(move || drop(self));
    }
}

/// Appends what a record says.
fn take(decoder: &mut Decoder, record: Record<'_>, events: &mut Vec<Event>, lost: &mut u64) {
    match record {
        Record::Pass { at, cpu, process, data } => {
            events.extend(decoder.event(at, cpu, process, data));
        }
        Record::Lost { count, from, until } => {
            *lost = lost.saturating_add(count);
            let gap = |at| Event { at, cpu: 0, process: 0, thread: 0, what: What::Gap };
            events.extend([gap(from), gap(until)]);
        }
    }
}

/// Any bytes as a ring of tracepoints of this kind: each wait has two events, and none is longer than the look.
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut decoder = Decoder::new(event::made::format).expect("the made formats have all fields");
    let (mut events, mut lost, mut last) = (Vec::new(), 0, 0);
    trace::read(bytes, &mut last, |record| take(&mut decoder, record, &mut events, &mut lost));
    let count = events.len();
    let delays = matcher::matched(events, (0, u64::MAX), decoder.devices());
    let waits = Seen { delays, looks: 1, spent: None }.waits(&["any"], |_| Some(0), |_| true);
    let pairs: u64 = waits.rows.iter().map(|row| row.count).sum();
    assert!(pairs as usize <= count);
    let in_order = |row: &Wait| 0.0 <= row.p50 && row.p50 <= row.p99 && row.p99 <= row.max;
    assert!(waits.rows.iter().all(in_order));
}

#[cfg(test)]
mod tests {
    use super::event::made::{data, format};
    use super::*;
    use lastmeter_linux::trace::made;

    /// The rings of two CPUs, read one after the other; the second lost events.
    fn read(rings: [&[Vec<u8>]; 2]) -> (Vec<Event>, u64) {
        let mut decoder = Decoder::new(format).unwrap();
        let (mut events, mut lost) = (Vec::new(), 0);
        for ring in rings {
            let mut last = 0;
            trace::read(&ring.concat(), &mut last, |record| {
                take(&mut decoder, record, &mut events, &mut lost);
            });
        }
        (events, lost)
    }

    fn pass(at: u64, cpu: u32, thread: u32, name: &str, fields: [u64; 3]) -> Vec<u8> {
        made::pass(at, cpu, thread, &data(name, thread, fields, b""))
    }

    #[test]
    fn rings_of_two_cpus_are_put_together_and_what_was_lost_ends_what_waited() {
        let waker = [
            pass(110, 0, 70, "sched/sched_waking", [71, 0, 0]),
            pass(112, 0, 70, "sched/sched_wakeup", [71, 0, 0]),
            pass(300, 0, 70, "sched/sched_waking", [71, 0, 0]),
            pass(310, 0, 70, "sched/sched_wakeup", [71, 0, 0]),
            pass(320, 0, 70, "a tracepoint that nobody asked for", [0; 3]),
        ];
        let mut reader = vec![
            pass(100, 1, 71, "sched/sched_switch", [71, 1, 0]),
            pass(130, 1, 0, "sched/sched_switch", [0, 0, 71]),
            pass(200, 1, 71, "sched/sched_switch", [71, 1, 0]),
            pass(350, 1, 0, "sched/sched_switch", [0, 0, 71]),
        ];
        let woken = |reader: &[Vec<u8>]| {
            let (events, lost) = read([&waker, reader]);
            let delays = matcher::matched(events, (0, 1000), &[]);
            (delays.threads[&71].woken.clone(), lost)
        };
        assert_eq!(woken(&reader), (vec![20, 50], 0));
        // Between 200 and 340 the reader may have run and slept once more.
        reader.insert(3, made::lost(9, 340));
        assert_eq!(woken(&reader), (vec![20], 9));
    }

    #[test]
    fn a_ring_of_a_corpus_and_what_is_cut_from_it_is_read() {
        let ring = [pass(1, 0, 7, "net/netif_rx", [5, 0, 0]), made::lost(3, 9)].concat();
        (0..=ring.len()).for_each(|len| fuzz(&ring[..len]));
    }
}
