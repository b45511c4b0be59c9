//! Ledgers made from what two ends might have seen.

use super::network::delays;
use super::*;
use lastmeter_ledger::terminal;
use lastmeter_linux::tcp_info::TcpInfo;
use lastmeter_live::observe::{Mark, Witnesses};
use lastmeter_live::remote::Offset;
use proptest::prelude::*;

/// Bytes a second.
const RATE: f64 = 1e6;

/// Marks every 20 ms of a stream at [`RATE`] whose data had left by `sent`, arrived by `received` and was known to
/// have by `acked`, in seconds.
fn marks(offset: f64, [sent, received, acked]: [f64; 3]) -> Vec<Mark> {
    let come = |at: f64, late: f64| (RATE * (at - late)).max(0.0) as u64;
    let mark = |number: i32| {
        let at = 1.0 + 0.02 * f64::from(number);
        let (sent, acked, received) = (come(at, sent), come(at, acked), come(at, received));
        Mark { at: at + offset, sent, acked, received }
    };
    (0..100).map(mark).collect()
}

fn tcp(segments: u32) -> TcpInfo {
    TcpInfo {
        data_segments_out: segments,
        data_segments_in: segments,
        bytes_acked: 2_000_000,
        bytes_received: 2_000_000,
        ..TcpInfo::default()
    }
}

fn end(sends: bool, marks: Vec<Mark>, held: [f64; 3]) -> Seen {
    let [not_sent, in_flight, unread] = held;
    let (one, other) = ("10.0.0.1:5000".to_owned(), "[::ffff:10.0.0.2]:6000".to_owned());
    let (local, remote) = if sends { (one, other) } else { (other, one) };
    let bytes = |is: bool| if is { 2_000_000 } else { 0 };
    let connection = Observed {
        local,
        remote,
        seen: 2.0,
        sent: bytes(sends),
        received: bytes(!sends),
        rtt: 0.03,
        not_sent,
        in_flight,
        unread,
        first: TcpInfo::default(),
        last: tcp(1400),
        marks,
    };
    let witnesses = Witnesses {
        sends,
        connections: 1,
        looks: 100,
        program_looks: 100,
        seconds: 2.0,
        bytes: 2_000_000,
        not_attributed: if sends { 0.0 } else { 1.0 },
        timer: if sends { 0.9 } else { 0.0 },
        ..Witnesses::default()
    };
    let observation = Observation {
        elapsed: 2.0,
        status: None,
        signal: None,
        looks: 100,
        cost: 0.001,
        processes: usize::from(sends),
        user: 0.0,
        system: 0.0,
        connections: vec![connection],
        witnesses: Some(witnesses),
        pipeline: Vec::new(),
        closed: lastmeter_live::observe::Closed::default(),
        timeline: None,
        reading: 0.0,
    };
    Seen { observation, sampled: None, unsampled: None, busy: None }
}

fn clocks(offset: f64, error: f64) -> Clocks {
    let one = Offset { seconds: offset, error, round_trip: 2.0 * error };
    Clocks { before: one, after: one, apart: 2.0, wall: one }
}

fn joined(ours: &Seen, theirs: &Seen, clocks: &Clocks) -> Ledger {
    let ours = End { name: "a", machine: "m", seen: ours };
    let theirs = End { name: "b", machine: "n", seen: theirs };
    ledger(&Both { title: "A test".to_owned(), ours, theirs, clocks }).unwrap()
}

/// The stages of the first path: name, host, and wait in units of 0.1 ms.
fn summary(ledger: &Ledger) -> Vec<(&str, Option<&str>, i32)> {
    let of = |stage: &'_ lastmeter_ledger::Stage| (1e4 * stage.wait_mean()).round() as i32;
    let stages = ledger.paths[0].stages.iter();
    stages.map(|s| (s.name.as_str(), s.place.host.as_deref(), of(s))).collect()
}

#[test]
fn one_path_leads_through_both_hosts() {
    // The agent's clock is 50 s ahead; 20 ms there, 10 ms back.
    let times = [0.0, 0.02, 0.03];
    let ours = end(true, marks(0.0, times), [5_000.0, 30_000.0, 0.0]);
    let theirs = end(false, marks(50.0, times), [0.0, 0.0, 7_000.0]);
    let found = joined(&ours, &theirs, &clocks(50.0, 0.001));
    let all = summary(&found);
    let expected = [
        ("waiting to be sent", Some("sender"), 50),
        ("network, there", None, 200),
        ("unread", Some("receiver"), 70),
    ];
    assert_eq!(all, expected);
    assert!(found.balance.latency_residual.abs() < 1e-12);
    // The sender's sleep is its cause; the receiver's process was not to be seen.
    let verdict = found.verdict.clone().unwrap();
    assert_eq!(verdict.resource.as_deref(), Some("sender: the program's own sleep"));
    let notes = found.notes.join("\n");
    assert!(notes.contains("At the receiver only the socket's counters are known"), "{notes}");
    assert!(notes.contains("wall clock is 50 s ±1 ms ahead of"), "{notes}");
    // The same if the driver is the receiver.
    let reversed = joined(&theirs, &ours, &clocks(-50.0, 0.001));
    assert_eq!(summary(&reversed), expected);
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&json).unwrap(), found);
}

#[test]
fn one_way_delays_are_not_told_if_the_clocks_are_too_far_apart() {
    let times = [0.0, 0.02, 0.03];
    let ours = end(true, marks(0.0, times), [5_000.0, 30_000.0, 0.0]);
    let theirs = end(false, marks(50.0, times), [0.0, 0.0, 7_000.0]);
    let found = joined(&ours, &theirs, &clocks(50.0, 0.01));
    let stage = &found.paths[0].stages[1];
    assert_eq!(stage.name, "network, until acknowledged");
    assert!((stage.wait_mean() - 0.03).abs() < 1e-9);
    assert!(found.notes.iter().any(|note| note.contains("One-way delays are not told")));
}

#[test]
fn ends_without_a_common_connection_have_no_ledger() {
    let ours = end(true, Vec::new(), [0.0; 3]);
    let mut theirs = end(false, Vec::new(), [0.0; 3]);
    theirs.observation.connections[0].remote = "10.0.0.9:5000".to_owned();
    let (ours, theirs) = (
        End { name: "a", machine: "m", seen: &ours },
        End { name: "b", machine: "n", seen: &theirs },
    );
    let both = Both { title: String::new(), ours, theirs, clocks: &clocks(0.0, 0.1) };
    assert!(ledger(&both).unwrap_err().contains("addresses are translated"));
}

proptest! {
    /// The delays are those that were made, whatever the clocks, and shift with their error.
    #[test]
    fn delays_are_found(there in 0.001..0.1_f64, back in 0.001..0.1_f64, wrong in -0.01..0.01_f64) {
        let times = [0.0, there, there + back];
        let found = delays(&marks(0.0, times), &marks(wrong, times), 0.0).unwrap();
        prop_assert!((found.there - there - wrong).abs() < 1e-3, "{found:?}");
        prop_assert!((found.back - back + wrong).abs() < 1e-3, "{found:?}");
    }

    /// Whatever an agent reports within the bounds of its messages, there is a ledger that can be written and read.
    #[test]
    fn any_report_makes_a_ledger(
        numbers in prop::collection::vec(0.0..2.8e14_f64, 12),
        counts in prop::collection::vec(any::<u32>(), 6),
        at in -1e-6..2.8e14_f64,
    ) {
        let ours = end(true, marks(0.0, [0.0, 0.02, 0.03]), [5_000.0, 30_000.0, 0.0]);
        let held = [numbers[0], numbers[1], numbers[2]];
        let mut theirs = end(false, marks(at, [0.0, 0.02, 0.03]), held);
        let one = &mut theirs.observation.connections[0];
        (one.seen, one.rtt, one.received) = (numbers[3], numbers[4], numbers[5] as u64);
        one.last = TcpInfo {
            receive_rtt: numbers[6],
            bytes_sent: numbers[7] as u64,
            data_segments_in: counts[0],
            out_of_order: counts[1],
            ..one.last
        };
        (theirs.observation.reading, theirs.observation.elapsed) = (numbers[8], numbers[9]);
        let w = theirs.observation.witnesses.as_mut().unwrap();
        (w.rate, w.rtt_min, w.receive_rtt) = (numbers[10], numbers[11], numbers[0]);
        (w.looks, w.window, w.receive_window) = (counts[2] >> 2, counts[3], counts[4]);
        for reverse in [false, true] {
            let clocks = clocks(at, numbers[1]);
            let found = match reverse {
                false => joined(&ours, &theirs, &clocks),
                true => joined(&theirs, &ours, &clocks),
            };
            let json = serde_json::to_string(&found).unwrap();
            prop_assert!(serde_json::from_str::<Ledger>(&json).is_ok(), "{json}");
            let style = terminal::Style { width: 100, color: false, unicode: true };
            prop_assert!(!terminal::render(&found, style).is_empty());
        }
    }
}
