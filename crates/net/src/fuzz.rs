//! Entry points for fuzzing the text formats that this crate reads: no input causes a panic, and whatever
//! parses is emitted unchanged.

use crate::classify::text::Either;
use crate::classify::{self, Address, Filter, General, Header, Rule, Verdict};
use crate::impair::{Opportunities, RateTable};
use lastmeter_base::kind::TIME_MAX;
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_wire::fuzz::Target;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_classbench", run: fuzz_classbench },
    Target { name: "fuzz_mahimahi", run: fuzz_mahimahi },
    Target { name: "fuzz_rate_table", run: fuzz_rate_table },
];

/// Rules in ClassBench's format.
pub fn fuzz_classbench(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match classify::text::parse_any(&text) {
        Err(error) => assert!(error.line > 0 && !error.reason.is_empty()),
        Ok(filters) => {
            let emitted: String = filters
                .iter()
                .map(|filter| match filter {
                    Either::V4(filter) => classify::text::emit([filter]),
                    Either::V6(filter) => classify::text::emit([filter]),
                })
                .collect();
            assert_eq!(classify::text::parse_any(&emitted).as_ref(), Ok(&filters));
            let (mut v4, mut v6) = (General::<u32>::new(), General::<u128>::new());
            for (priority, filter) in (0..).zip(filters) {
                match filter {
                    Either::V4(filter) => matches_its_own(&mut v4, filter, priority),
                    Either::V6(filter) => matches_its_own(&mut v6, filter, priority),
                }
            }
        }
    }
}

fn matches_its_own<A: Address>(general: &mut General<A>, filter: Filter<A>, priority: u32) {
    let within = Header {
        dst: filter.dst.key(),
        src: filter.src.key(),
        dst_port: *filter.dst_ports.start(),
        src_port: *filter.src_ports.end(),
        protocol: filter.protocol.unwrap_or(1),
        interface: 0,
    };
    let rule = Rule { filter, priority, verdict: Verdict::PERMIT };
    if general.install(rule).is_ok() {
        assert!(general.classify(&within).is_some(), "it matches its own rule");
    }
}

/// Traces of delivery opportunities.
pub fn fuzz_mahimahi(bytes: &[u8]) {
    match Opportunities::parse(bytes) {
        Err(error) => assert!(error.line > 0 && !error.reason.is_empty()),
        Ok(mut trace) => {
            let again = Opportunities::parse(trace.emit().as_bytes());
            assert_eq!(again.as_ref(), Ok(&trace));
            let mut last = Time::START;
            for _ in 0..1000 {
                // No run asks for opportunities after its longest time.
                if trace.next().since_start() > TIME_MAX {
                    return;
                }
                assert!(trace.next() >= last, "opportunities come in order");
                last = trace.take();
            }
            let later = last + Duration::from_secs(1);
            trace.pass(later);
            assert!(trace.next() > later);
        }
    }
}

/// Tables of rates.
pub fn fuzz_rate_table(bytes: &[u8]) {
    match RateTable::parse(bytes) {
        Err(error) => assert!(error.line > 0 && !error.reason.is_empty()),
        Ok(steps) => {
            assert_eq!(RateTable::parse(RateTable::emit(&steps).as_bytes()).as_ref(), Ok(&steps));
            let end = steps[steps.len() - 1].0 + Duration::from_ms(1);
            for period in [None, Some(end)] {
                if let Ok(table) = RateTable::new(steps.clone(), period) {
                    let short = table.time_for(Time::START, Bytes(1));
                    assert!(short <= table.time_for(Time::START, Bytes(1500)));
                }
            }
        }
    }
}
