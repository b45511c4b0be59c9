//! How long data and threads waited between the stages, as a part of the ledger and its notes.
//!
//! The figures are those of looks of their own, which recording made slower: they say where waiting happens, and are no
//! part of the path's sums. A note says where waiting for a CPU is more than the work that follows.

use lastmeter_ledger::{Ledger, figures};
use lastmeter_live::sample::Sampled;
use lastmeter_live::waits::{Busy, Waits};

/// Waiting for a CPU that takes less than this share of the time is worth no note.
const MATTERS: f64 = 0.05;

/// Packets that are not seen to leave a queue are worth a note from this share on.
const UNSEEN: f64 = 0.1;

/// Adds what was seen to wait, or why nothing was.
pub(super) fn add(ledger: &mut Ledger, sampled: Option<&Sampled>) {
    let Some(sampled) = sampled else { return };
    if let Some(why) = &sampled.unseen {
        let words = "How long data waits between the stages was not seen, because";
        ledger.notes.push(format!("{words} {why}."));
    }
    let Some(waits) = &sampled.waits else { return };
    ledger.waits = Some(table(waits));
    ledger.notes.extend(waits.busy.iter().filter_map(|busy| starved(busy, waits.observed)));
    if waits.lost > 0 {
        let events = figures::plural(waits.lost, "event");
        let words = "found no room: what waited meanwhile is left out of the waits";
        ledger.notes.push(format!("{events} {words}."));
    }
    ledger.notes.extend(unseen(waits.queued));
    if waits.full > 0 {
        let packets = figures::plural(waits.full, "packet");
        let words = "found no room in a socket, of whatever program, and were dropped";
        ledger.notes.push(format!("{packets} {words}."));
    }
}

/// What was seen, as the ledger has it.
fn table(waits: &Waits) -> lastmeter_ledger::Waits {
    let row = |wait: &lastmeter_live::waits::Wait| lastmeter_ledger::Wait {
        name: wait.name.clone(),
        count: wait.count,
        mean: wait.mean,
        p50: wait.p50,
        p99: wait.p99,
        max: wait.max,
    };
    lastmeter_ledger::Waits {
        observed: waits.observed,
        looks: waits.looks,
        events: waits.events,
        lost: waits.lost,
        cost: waits.cost,
        packets: waits.packets,
        socket_full: waits.full,
        rows: waits.rows.iter().map(row).collect(),
    }
}

/// A note where many packets that were queued were not seen to leave.
fn unseen([seen, unseen]: [u64; 2]) -> Option<String> {
    let all = seen + unseen;
    (unseen > 0 && unseen as f64 >= UNSEEN * all as f64).then(|| {
        format!(
            "Of {} in the queues of interfaces {} were not seen to leave, and have no wait: they \
             were dropped, cut into segments, or sent while nothing was recorded, as by some \
             virtual machines' CPUs in interrupts out of idleness.",
            figures::plural(all, "packet"),
            figures::count(unseen)
        )
    })
}

/// A note where threads waited for a CPU longer than they ran on one.
fn starved(busy: &Busy, observed: f64) -> Option<String> {
    let Busy { name, ran, waited } = busy;
    (*waited > *ran && *waited >= MATTERS * observed).then(|| {
        format!(
            "Waiting for a CPU dominates: the threads of the {name} were ready for {} and ran for \
             {} of the {} that was looked at. A core of its own would help it.",
            figures::time(*waited),
            figures::time(*ran),
            figures::time(observed)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_ledger::Provenance;
    use lastmeter_live::waits::Wait;

    fn ledger(sampled: Option<&Sampled>) -> Ledger {
        let provenance = Provenance::new("1", "L1");
        let mut ledger = Ledger::new("any", 1.0, Vec::new(), Vec::new(), provenance);
        add(&mut ledger, sampled);
        ledger
    }

    fn seen(ran: f64, waited: f64, lost: u64) -> Sampled {
        let name = "receiver for a CPU, woken".to_owned();
        let (mean, p50, p99, max) = (2e-3, 1e-3, 4e-3, 5e-3);
        let rows = vec![Wait { name, count: 7, mean, p50, p99, max }];
        let busy = vec![Busy { name: "receiver".to_owned(), ran, waited }];
        let (observed, looks, events, packets, full) = (0.3, 1, 900, 80, 0);
        let cost = Some(0.02);
        let queued = [91, 9];
        let waits =
            Waits { observed, looks, events, lost, cost, packets, full, queued, rows, busy };
        Sampled { waits: Some(waits), ..Sampled::default() }
    }

    #[test]
    fn many_packets_that_were_not_seen_to_leave_are_said() {
        assert_eq!([unseen([0, 0]), unseen([91, 9])], [None, None]);
        let words = unseen([1, 1]).unwrap();
        assert!(
            words.starts_with("Of 2 packets in the queues of interfaces 1 were not"),
            "{words}"
        );
    }

    #[test]
    fn what_was_seen_is_in_the_ledger_and_what_was_not_is_absent() {
        let with = ledger(Some(&seen(0.2, 0.01, 0)));
        let waits = with.waits.as_ref().unwrap();
        assert_eq!((waits.observed, waits.cost, waits.events), (0.3, Some(0.02), 900));
        let row = &waits.rows[0];
        assert_eq!((row.count, row.p50, row.p99, row.max), (7, 1e-3, 4e-3, 5e-3));
        assert_eq!(with.notes, Vec::<String>::new());
        assert_eq!(ledger(None), ledger(Some(&Sampled::default())));
        let unseen = Some("tracepoints need root".to_owned());
        let without = ledger(Some(&Sampled { unseen, ..Sampled::default() }));
        assert_eq!(without.waits, None);
        assert_eq!(without.notes.len(), 1);
        assert!(
            without.notes[0].ends_with("because tracepoints need root."),
            "{:?}",
            without.notes
        );
    }

    #[test]
    fn a_note_says_where_waiting_for_a_cpu_is_more_than_the_work_and_what_was_lost() {
        let notes = |ran, waited, lost| ledger(Some(&seen(ran, waited, lost))).notes;
        let words = notes(0.08, 0.21, 0);
        assert_eq!(words.len(), 1);
        assert!(
            words[0]
                .contains("of the receiver were ready for 210 ms and ran for 80 ms of the 300 ms"),
            "{words:?}"
        );
        assert_eq!(notes(0.21, 0.2, 0), Vec::<String>::new());
        assert_eq!(notes(0.001, 0.01, 0), Vec::<String>::new(), "hardly anything happens");
        assert!(notes(0.2, 0.1, 5)[0].starts_with("5 events found no room"));
    }
}
