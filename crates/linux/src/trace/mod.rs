//! The kernel's tracepoints: each pass as a record with its time, from all CPUs, for a short look.
//!
//! ```text
//! CPU 0  sched, irq, net, ... --ring--+
//! CPU 1  sched, irq, net, ... --ring--+--> records, each CPU's in its own order
//! ```
//!
//! Events of a CPU share a ring (`PERF_EVENT_IOC_SET_OUTPUT`), so that their order is kept and losses are known with
//! their time. Times are those of the monotonic clock ([`crate::clock::nanoseconds`]),
//! which is one for all CPUs.
//!
//! | parameter | |
//! |---|---|
//! | rights | root, or `CAP_PERFMON` and tracefs readable |
//! | ring | 1 MiB for each CPU, less where the kernel grants less; what finds no room is counted as lost |
//! | cost | [`price`] measures what a record costs whoever passes the tracepoint |
//!
//! Source: perf_event_open(2), the kernel's `Documentation/trace/events.rst`.

mod format;
pub mod made;
mod record;

pub use format::{Field, Format};
pub use record::{Record, read};

use crate::clock::thread_cpu;
use crate::perf::{Ring, Traced, are_readable, tracepoint};
use std::ffi::CString;
use std::io;

/// Pages of a CPU's ring, a power of two, and the fewest that are tried.
const PAGES: usize = 256;
/// See [`PAGES`].
const PAGES_MIN: usize = 16;

/// What a user without the rights needs.
pub const NEEDED: &str = "root, or CAP_PERFMON and tracefs readable at /sys/kernel/tracing \
                          (mount -t tracefs nodev /sys/kernel/tracing)";

/// Tracepoints of all CPUs.
pub struct Tracer {
    cpus: Vec<Cpu>,
    buffer: Vec<u8>,
}

/// Those of one CPU; they are closed before their ring is unmapped.
struct Cpu {
    events: Vec<Traced>,
    ring: Ring,
    /// The time of its last record.
    last: u64,
}

impl Cpu {
    fn open(cpu: usize, wanted: &[(u16, &str)]) -> io::Result<Cpu> {
        let open = |(id, filter): &(u16, &str)| {
            let event = Traced::open(u64::from(*id), Some(cpu))?;
            if !filter.is_empty() {
                event.filter(&CString::new(*filter)?)?;
            }
            Ok(event)
        };
        let events: Vec<Traced> = wanted.iter().map(open).collect::<io::Result<_>>()?;
        let first = events.first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut pages = PAGES;
        let ring = loop {
            match first.ring(pages) {
                Err(_) if pages > PAGES_MIN => pages /= 2,
                other => break other?,
            }
        };
        events[1..].iter().try_for_each(|event| event.write_to(first))?;
        Ok(Cpu { events, ring, last: 0 })
    }
}

impl Tracer {
    /// Opens tracepoints by their numbers, each with an expression of its fields or none, on these CPUs; not yet
    /// recording.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open(cpus: &[usize], wanted: &[(u16, &str)]) -> io::Result<Tracer> {
        let cpus = cpus.iter().map(|&cpu| Cpu::open(cpu, wanted)).collect::<io::Result<_>>()?;
        Ok(Tracer { cpus, buffer: Vec::new() })
    }

    /// Starts or stops recording.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn count(&self, on: bool) -> io::Result<()> {
        let mut events = self.cpus.iter().flat_map(|cpu| &cpu.events);
        events.try_for_each(|event| event.count(on))
    }

    /// Hands what was recorded since the last call to `each`, one CPU after the other.
    pub fn drain(&mut self, mut each: impl FnMut(Record<'_>)) {
        for cpu in &mut self.cpus {
            self.buffer.clear();
            cpu.ring.drain(&mut self.buffer);
            record::read(&self.buffer, &mut cpu.last, &mut each);
        }
    }
}

/// Why tracepoints cannot be recorded, in words.
pub fn refused(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!("tracepoints need {NEEDED}"),
        Some(libc::EMFILE) => "there are more CPUs than this process may open events of \
                               (`ulimit -n`)"
            .to_owned(),
        _ => format!("the kernel's tracepoints: {error}"),
    }
}

/// Why no tracepoint was found, in words.
pub fn absent() -> String {
    match are_readable() {
        true => "this kernel has no such tracepoints".to_owned(),
        false => format!("tracepoints need {NEEDED}"),
    }
}

/// Seconds of CPU time that a record costs whoever passes the tracepoint: the thread is given the name that it has,
/// which passes `task/task_rename`, with and without recording. `None` where that cannot be done.
pub fn price() -> Option<f64> {
    /// Fewer than find room in the ring.
    const CALLS: u32 = 400;
    /// Of each kind; the cheapest counts, so that nobody else's time does.
    const ROUNDS: usize = 9;
    let name = rustix::thread::name().ok()?;
    let event = Traced::open(tracepoint("task/task_rename")?, None).ok()?;
    let mut ring = event.ring(PAGES_MIN).ok()?;
    let mut records = Vec::new();
    let mut round = || {
        let before = thread_cpu();
        for _ in 0..CALLS {
            rustix::thread::set_name(&name).ok()?;
        }
        records.clear();
        let took = thread_cpu() - before;
        ring.drain(&mut records);
        Some((took / f64::from(CALLS), records.len()))
    };
    let mut least = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for (on, least) in [false, true].into_iter().zip(&mut least) {
            event.count(on).ok()?;
            let (took, read) = round()?;
            // A round whose calls left no records measured nothing.
            if (read > 0) == on {
                *least = least.min(took);
            }
        }
    }
    let [off, on] = least;
    (on.is_finite() && off.is_finite()).then(|| (on - off).max(0.0))
}

/// Any bytes as a tracepoint's `format` file.
pub fn fuzz_format(bytes: &[u8]) {
    format::fuzz(bytes);
}

/// Any bytes as a ring of tracepoints.
pub fn fuzz_records(bytes: &[u8]) {
    record::fuzz(bytes);
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
mod tests {
    use super::*;
    use crate::clock::nanoseconds;

    /// The tracepoint of this process's own names: nobody else's passes are counted.
    #[test]
    fn a_pass_is_recorded_with_its_time_and_fields_between_start_and_stop() {
        let Some(format) = Format::of("task/task_rename") else {
            println!("SKIP: a pass of a tracepoint: {}", absent());
            return;
        };
        let cpus = crate::cores::allowed().unwrap();
        let mut tracer = match Tracer::open(&cpus, &[(format.id, ""), (format.id, "pid == 0")]) {
            Ok(tracer) => tracer,
            Err(error) => {
                println!("SKIP: a pass of a tracepoint: {}", refused(&error));
                return;
            }
        };
        let names = [c"passes-one", c"passes-two"];
        rustix::thread::set_name(names[0]).unwrap();
        tracer.count(true).unwrap();
        let from = nanoseconds();
        rustix::thread::set_name(names[1]).unwrap();
        let until = nanoseconds();
        tracer.count(false).unwrap();
        rustix::thread::set_name(names[0]).unwrap();
        let new = format.field("newcomm").unwrap();
        let mut seen = Vec::new();
        tracer.drain(|record| {
            if let Record::Pass { at, process, data, .. } = record
                && process == std::process::id()
                && let Some(name) = new.text(data).filter(|name| name.starts_with(b"passes-"))
            {
                assert!((from..=until).contains(&at), "{at} is not within {from} to {until}");
                seen.push(name.to_vec());
            }
        });
        assert_eq!(seen, [names[1].to_bytes().to_vec()]);
    }

    #[test]
    fn a_record_has_a_price() {
        let Some(price) = price() else {
            println!("SKIP: the price of a record: {}", absent());
            return;
        };
        assert!((1e-9..1e-4).contains(&price), "{price} s");
    }
}
