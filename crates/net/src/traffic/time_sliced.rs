//! A process that sends only while it runs: bursts made by the operating system's time slices.
//!
//! ```text
//! produced   | | | | | | | | | | | | | | | | | | | |    at `rate`, whoever runs
//! it runs    |=slice=|                   |=slice=|      one of `processes`, in turn
//! sent       |||||| | |                   |||||| | |    what has accumulated, at `speed`; then as it is produced
//! ```
//!
//! | Parameter   | Unit      | Default  | Meaning                                          |
//! |-------------|-----------|----------|--------------------------------------------------|
//! | `rate`      | rate      | required | what it has to send, on average                  |
//! | `size`      | size      | required | length of its packets                            |
//! | `speed`     | rate      | required | how fast it sends while it runs                  |
//! | `slice`     | time      | 10 ms    | how long a process runs before the next has its turn |
//! | `processes` | processes | 4        | processes that take turns, itself included       |
//!
//! With n processes it is away for (n - 1) slices, and then sends rate x (n - 1) slices of data at `speed`: the burst
//! that a sink, or a queue on the way, has to absorb. If what follows drains at `out`, rate x (n - 1) slices x
//! (speed - out) / (speed - rate) of it waits there. It keeps up only if `speed` is more than n times `rate`. (A-12)
//!
//! Source: Aurora report §3.1: traffic is bursty because processes run in time slices, at sources as at sinks.
//! Deviation: slices have one length, and a process that has nothing to send keeps its turn.

use super::{Maker, Setting, Traffic, packets};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Rate, here, one_way};

const PAGE: &Page = &Page {
    name: "time-sliced",
    family: Family::Traffic,
    what: "A process that sends only in its time slices, and then what has accumulated.",
    ports: "(produced at a rate) --> [ accumulated ] --> (while it runs) --> out",
    params: &[
        Param::required("rate", ParamKind::Rate).is("what it has to send, on average"),
        Param::required("size", ParamKind::PACKET).is("length of its packets"),
        Param::required("speed", ParamKind::Rate).is("how fast it sends while it runs"),
        Param::or("slice", ParamKind::Time, "10 ms")
            .is("how long a process runs before the next has its turn"),
        Param::or("processes", ParamKind::Integer { min: 1, max: 1000 }, "4")
            .is("processes that take turns, itself included"),
    ],
    source: "\"Aurora at MIT\", §3.1",
    deviations: &[
        "Slices have one length, and a process keeps its turn when it has nothing to send.",
    ],
    counters: &[("sent", "packets made")],
    example: one_way! {
        "1 s", "workstation" [] "screen",
        [r#"rate = "100 Mbit/s""#],
        "bursts of a process" [
            r#"time-sliced = { rate = "8 Mbit/s", size = "1000 B", speed = "80 Mbit/s" }"#
        ]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind { fit, ..Kind::new(PAGE, &packets(&Maker(build))) };

fn fit(values: &Values) -> Result<(), Misfit> {
    let (rate, speed) = (values.get::<Rate>("rate"), values.get::<Rate>("speed"));
    let processes = values.get::<u64>("processes");
    if values.get::<Duration>("slice").is_zero() {
        return Err(Misfit::new(
            "slice",
            "nobody runs in a slice of 0 s".to_owned(),
            "write slice = \"10 ms\"",
        ));
    }
    if rate.as_bits().saturating_mul(processes) <= speed.as_bits() {
        return Ok(());
    }
    let found = format!("{speed} in one of {processes} slices is less than {rate}");
    Err(Misfit::new("speed", found, "make it at least `processes` times `rate`"))
}

fn build(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let size = values.get("size");
    let sliced = TimeSliced {
        size,
        produced: values.get::<Rate>("rate").time_for(size),
        sent: values.get::<Rate>("speed").time_for(size),
        slice: values.get("slice"),
        processes: values.get("processes"),
    };
    Ok(Traffic::Source(Pattern::Replay(Box::new(sliced.packets()?))))
}

/// A process and its turns.
#[derive(Clone, Copy, Debug)]
struct TimeSliced {
    size: Bytes,
    /// Time in which a packet is produced.
    produced: Duration,
    /// Time in which it is sent.
    sent: Duration,
    slice: Duration,
    processes: u64,
}

/// Packets that would leave later are not made, so that no sum overflows the range of time.
const FAR: u64 = u64::MAX / 4;

impl TimeSliced {
    /// When each packet leaves, and how long it is.
    fn packets(self) -> Result<impl Iterator<Item = (Duration, Bytes)> + Send, String> {
        let (slice, sent, produced) =
            (self.slice.as_ps(), self.sent.as_ps(), self.produced.as_ps());
        let turns = slice.saturating_mul(self.processes);
        if turns > FAR || produced > FAR {
            return Err("its turns are too far apart: write a shorter slice".to_owned());
        }
        if sent > slice {
            return Err("no packet fits into a slice: write a longer one".to_owned());
        }
        let (mut number, mut free) = (0u64, 0u64);
        Ok(std::iter::from_fn(move || {
            // A packet is ready when all of it has been produced.
            number += 1;
            let ready = number.checked_mul(produced).filter(|&ready| ready < FAR)?;
            let mut at = ready.max(free);
            if at % turns + sent > slice {
                at = (at / turns + 1) * turns;
            }
            free = at + sent;
            (at < FAR).then_some((Duration::from_ps(at), self.size))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Mbit/s in packets of 1000 bytes, one a millisecond, sent at ten times that; five processes of 20 ms.
    const SLICED: TimeSliced = TimeSliced {
        size: Bytes(1000),
        produced: Duration::from_ms(1),
        sent: Duration::from_us(100),
        slice: Duration::from_ms(20),
        processes: 5,
    };

    fn until(end: Duration) -> Vec<u64> {
        let packets = SLICED.packets().unwrap().take_while(|&(at, _)| at < end);
        packets.map(|(at, _)| at.as_ps() / 1_000_000).collect()
    }

    #[test]
    fn a_12_a_process_sends_only_in_its_slices_and_at_its_rate() {
        let sent = until(Duration::from_secs(10));
        assert!(sent.iter().all(|us| us % 100_000 + 100 <= 20_000));
        // 10 s of a packet a millisecond; those of the last 80 ms have not been sent.
        assert!((sent.len() as i64 - 9920).abs() <= 1, "{}", sent.len());
        assert!(sent.windows(2).all(|pair| pair[1] >= pair[0] + 100));
    }

    /// The burst by hand: 80 packets accumulate in four slices, and another for each ten that are sent: 80 / 0.9.
    #[test]
    fn a_12_a_burst_is_what_accumulates_while_others_run() {
        let sent = until(Duration::from_ms(200));
        let second: Vec<u64> = sent.into_iter().filter(|&us| us >= 100_000).collect();
        let burst = 1 + second.windows(2).take_while(|pair| pair[1] == pair[0] + 100).count();
        assert!((88..=90).contains(&burst), "{burst}");
    }

    /// The backlog behind it at a drain rate of 16 Mbit/s: 80 packets x (80 - 16) / (80 - 8) = 71.
    #[test]
    fn a_12_a_sink_absorbs_what_it_cannot_take_at_once() {
        let (mut free, mut most) = (0u64, 0u64);
        for us in until(Duration::from_secs(5)) {
            free = free.max(us) + 500;
            most = most.max((free - us) / 500);
        }
        assert!((70..=73).contains(&most), "{most}");
    }

    #[test]
    fn what_cannot_keep_up_is_refused() {
        let turns = TimeSliced { slice: Duration::from_us(50), ..SLICED };
        assert!(turns.packets().err().unwrap().contains("longer one"));
    }
}
