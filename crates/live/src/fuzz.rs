//! Entry points for fuzzing what agents and drivers receive: any bytes in, no panic.
//!
//! | target | what it reads |
//! |---|---|
//! | [`fuzz_blast_control`] | a line from a driver or an agent |
//! | [`fuzz_blast_header`] | a packet sent to a sink |
//! | `fuzz_why_control` | a line from the driver or the agent of `why` between two machines |
//! | `fuzz_sample_records` | a ring of the sampling clock |
//! | `fuzz_sample_symbols` | /proc/kallsyms |
//! | `fuzz_descriptors` | the descriptors that a call waits for, from a process or from procfs |
//! | `fuzz_trace_format` | a tracepoint's `format` file |
//! | `fuzz_trace_records` | a ring of tracepoints, and what waited by them |

use crate::blast::header::{self, Header, Kind};
use crate::blast::message::{self, Reply, Request, SourceJob};
use crate::blast::tally::Tally;
use crate::blast::traffic::{Format, Schedule};
use lastmeter_wire::fuzz::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_blast_control", run: fuzz_blast_control },
    Target { name: "fuzz_blast_header", run: fuzz_blast_header },
    Target { name: "fuzz_descriptors", run: crate::observe::fuzz_descriptors },
    Target { name: "fuzz_sample_records", run: crate::sample::fuzz_records },
    Target { name: "fuzz_sample_symbols", run: crate::sample::fuzz_symbols },
    Target { name: "fuzz_trace_format", run: lastmeter_linux::trace::fuzz_format },
    Target { name: "fuzz_trace_records", run: fuzz_trace_records },
    Target { name: "fuzz_why_control", run: crate::remote::fuzz },
];

/// Departures drawn from accepted traffic.
const DEPARTURES: usize = 100;

/// A line: refused with a printable message, or a message that round-trips; its traffic is refused, or its
/// departures are in order and of the sizes it declares.
pub fn fuzz_blast_control(bytes: &[u8]) {
    match message::parse::<Request>(bytes) {
        Err(why) => assert!(why.chars().count() <= 200 && !why.contains(char::is_control)),
        Ok(ask) => {
            let line = message::emit(&ask).expect("what was short stays so");
            assert_eq!(message::parse::<Request>(&line).as_ref(), Ok(&ask));
            if let Request::Aim { sources } = ask {
                sources.iter().for_each(departures);
            }
        }
    }
    if let Ok(answer) = message::parse::<Reply>(bytes) {
        let line = message::emit(&answer).expect("what was short stays so");
        assert!(message::parse::<Reply>(&line).is_ok());
    }
}

fn departures(job: &SourceJob) {
    if job.traffic.check().is_err() {
        return;
    }
    let (low, high) = job.traffic.size.bounds().expect("checked traffic has a size");
    let mut before = lastmeter_base::Duration::ZERO;
    for departure in Schedule::new(&job.traffic, job.seed, &job.name).take(DEPARTURES) {
        assert!((low..=high).contains(&departure.size) && departure.at >= before);
        before = departure.at;
        for ipv6 in [false, true] {
            let payload = job.traffic.format.payload(departure.size, ipv6);
            assert!(payload.is_none_or(|len| (header::LEN..=65_507).contains(&len)));
        }
    }
}

/// A ring: records lie within it, and what waits has two events.
pub fn fuzz_trace_records(bytes: &[u8]) {
    lastmeter_linux::trace::fuzz_records(bytes);
    crate::waits::fuzz(bytes);
}

/// A packet: what is parsed is emitted unchanged, and a sink counts it once.
pub fn fuzz_blast_header(bytes: &[u8]) {
    if let Ok(found) = Header::parse(bytes) {
        assert_eq!(found.emit(), bytes[..header::LEN]);
    }
    for format in [Format::Udp, Format::Aal5] {
        let read = header::read(format, bytes);
        let mut tally = Tally::new(0, 0, true, 28);
        let probe = tally.take(1, read);
        let report = tally.report(0);
        let counted = report.packets + report.damaged + report.foreign;
        assert_eq!(counted, u64::from(probe.is_none()));
        assert!(read.is_ok() || probe.is_none());
        assert!(read.is_err() || probe.is_none_or(|probe| probe.kind == Kind::Probe));
    }
}
