//! `router/beside`: a full table, 1000 filters and a queue for each of 1000 flows beside the kernel with the same
//! table, and what each part costs.
//!
//! | row                  | the router has                      | packets       | asked for at least      |
//! |----------------------|-------------------------------------|---------------|-------------------------|
//! | `full-table@60`      | table, filters, QSDRR               | to all routes | 1.6 times the kernel    |
//! | `plugin@60`          | and a plugin that sees each packet  | to all routes | 0.9 of that             |
//! | `fast@60`            | table, filters, QSDRR, fast path    | of 1024 flows | 2 million a CPU second  |
//! | `full-table@1514`    | table, filters, QSDRR               | to all routes | 9 Gbit/s a core         |
//! | `ladder/complete`    | all, and distributed queueing       | to all routes |                         |
//! | `ladder/without-...` | the rung above, less one thing      | to all routes |                         |
//! | `kernel...`          | (the kernel forwards)               | the same      |                         |
//! | `xdp@60`             | (XDP with the kernel's lookup)      | of 1024 flows |                         |
//! | `peer/...`           | (another forwarder, `peer.rs`)      | to all routes |                         |
//! | `beside-click@60`    | table, filters, QSDRR               | to all routes | twice Click             |
//!
//! All are started and measured in turn, several times, in namespaces of their own (`search.rs`). The kernel is given
//! its table by `ip -batch`: how long that takes and what memory it takes is told, as is our router's. All of it is
//! gone before the next begins. What forwards in the driver (`fast@60`, `xdp@60`) has a sink that drops in its own, so
//! that it is not the sink that is measured.
//!
//! Source of the ladder: description of the Dynamically Extensible Router, Fig 10, which leaves out distributed
//! queueing, then the lookup as well, then what its adapter made it do. Rows: D-108.

use super::files::{BARE, BATCH, COMPLETE, Case, FEW, Files, RANDOM};
use super::peer::Peer;
use super::place::{Place, kernel_memory, offered};
use super::search::{Several, Starts, highest, in_turn};
use super::{Bench, Complaint, Line, boot};
use std::fmt::Write as _;
use std::time::Instant;

/// The name of all rows together.
pub(super) const ALL: &str = "router/beside";
/// Flows of the fast path are known after some packets each: so many a second are sent, for so many seconds, before
/// anything is measured.
const KNOWN_BY: (f64, f64) = (1.0e5, 2.0);
/// Rates that are offered besides those of the search: what is cheap to drop, and the fast path, are at their best.
const MORE: &[f64] = &[5.0e6];

/// Packets that are offered.
#[derive(Clone, Copy, PartialEq)]
struct Load {
    len: usize,
    list: &'static str,
}

const SHORT: Load = Load { len: 60, list: RANDOM };
const LONG: Load = Load { len: 1514, list: RANDOM };
const KNOWN: Load = Load { len: 60, list: FEW };

#[derive(Clone, Copy, PartialEq)]
enum Who {
    Kernel,
    /// A program in the driver that asks the kernel.
    Xdp,
    /// Another forwarder.
    Peer(Peer),
    Router(Case),
}

impl Who {
    /// Why it cannot be measured here, if so.
    fn lacks(self) -> Option<String> {
        match self {
            Who::Peer(peer) => peer.lacks(),
            Who::Kernel | Who::Xdp | Who::Router(_) => None,
        }
    }
}

/// What is asked of a row, at least.
#[derive(Clone, Copy)]
enum Asked {
    Nothing,
    /// Times what it is beside.
    Times(f64),
    /// Packets for each second of CPU.
    Packets(f64),
    /// Bits a second of a core.
    Bits(f64),
}

struct Row {
    name: &'static str,
    who: Who,
    load: Load,
    beside: Option<(&'static str, Who, Load)>,
    asked: Asked,
}

const PLUGIN: Case = Case { plugin: true, ..COMPLETE };
/// Shaped lines, as distributed queueing needs them: all rungs have them.
const ALL_PARTS: Case = Case { shaped: true, fabric: true, ..PLUGIN };
const LADDER: [(&str, Case); 6] = [
    ("router/ladder/complete@60", ALL_PARTS),
    ("router/ladder/without-distributed@60", Case { fabric: false, ..ALL_PARTS }),
    ("router/ladder/without-lookup@60", Case { fabric: false, table: false, ..ALL_PARTS }),
    (
        "router/ladder/without-classifier@60",
        Case { fair: true, plugin: true, shaped: true, ..BARE },
    ),
    ("router/ladder/without-plugin@60", Case { fair: true, shaped: true, ..BARE }),
    ("router/ladder/without-queues@60", Case { shaped: true, ..BARE }),
];

fn rows() -> Vec<Row> {
    let row = |name, who, load, beside, asked| Row { name, who, load, beside, asked };
    let complete = Who::Router(COMPLETE);
    let fast = Who::Router(Case { fast: true, ..COMPLETE });
    let kernel = |load| Some(("kernel", Who::Kernel, load));
    let without = Some(("without plugin", complete, SHORT));
    let peer = |name, peer, load| row(name, Who::Peer(peer), load, None, Asked::Nothing);
    let click = Some(("Click", Who::Peer(Peer::Click), SHORT));
    let mut rows = vec![
        row("router/kernel@60", Who::Kernel, SHORT, None, Asked::Nothing),
        row("router/full-table@60", complete, SHORT, kernel(SHORT), Asked::Times(1.6)),
        row("router/plugin@60", Who::Router(PLUGIN), SHORT, without, Asked::Times(0.9)),
        row("router/kernel-known@60", Who::Kernel, KNOWN, None, Asked::Nothing),
        row("router/xdp@60", Who::Xdp, KNOWN, None, Asked::Nothing),
        row("router/fast@60", fast, KNOWN, Some(("XDP", Who::Xdp, KNOWN)), Asked::Packets(2e6)),
        row("router/kernel@1514", Who::Kernel, LONG, None, Asked::Nothing),
        row("router/full-table@1514", complete, LONG, kernel(LONG), Asked::Bits(9e9)),
        peer("router/peer/frames@60", Peer::Frames, SHORT),
        peer("router/peer/frames@1514", Peer::Frames, LONG),
        peer("router/peer/packets@60", Peer::Packets, SHORT),
        peer("router/peer/testpmd@60", Peer::Testpmd, SHORT),
        peer("router/peer/click@60", Peer::Click, SHORT),
        row("router/beside-click@60", complete, SHORT, click, Asked::Times(2.0)),
    ];
    let mut above = None;
    for (name, case) in LADDER {
        let who = Who::Router(case);
        rows.push(row(name, who, SHORT, above, Asked::Nothing));
        above = Some(("the rung above", who, SHORT));
    }
    rows
}

/// What has to be measured for some rows: who, with which loads.
fn plan(rows: &[Row]) -> Vec<(Who, Vec<Load>)> {
    let mut plan: Vec<(Who, Vec<Load>)> = Vec::new();
    let beside = |row: &Row| row.beside.map(|(_, who, load)| (who, load));
    for (who, load) in
        rows.iter().flat_map(|row| [Some((row.who, row.load)), beside(row)]).flatten()
    {
        match plan.iter_mut().find(|(known, _)| *known == who) {
            None => plan.push((who, vec![load])),
            Some((_, loads)) if !loads.contains(&load) => loads.push(load),
            Some(_) => {}
        }
    }
    plan
}

/// What the start of one took.
#[derive(Clone, Copy)]
struct SetUp {
    seconds: f64,
    /// Memory of the kernel for its routes, or of the router's processes.
    bytes: u64,
}

fn start(who: Who, files: &Files) -> Result<(Place, SetUp), Complaint> {
    match who {
        Who::Kernel | Who::Xdp => {
            let mut place = Place::new(true)?;
            let (before, began) = (kernel_memory(), Instant::now());
            place.routes(&files.folder.join(BATCH))?;
            let seconds = began.elapsed().as_secs_f64();
            let bytes = kernel_memory().saturating_sub(before);
            if who == Who::Xdp {
                place.kernel_lookup()?;
                place.sink()?;
            }
            place.threaded()?;
            Ok((place, SetUp { seconds, bytes }))
        }
        Who::Peer(peer) => {
            let mut place = Place::new(false)?;
            let began = Instant::now();
            peer.start(&mut place)?;
            let seconds = began.elapsed().as_secs_f64();
            let bytes = place.memory();
            place.threaded()?;
            Ok((place, SetUp { seconds, bytes }))
        }
        Who::Router(case) => {
            let file = files.router(case)?;
            let mut place = Place::new(false)?;
            let began = Instant::now();
            boot(&mut place, &file)?;
            let seconds = began.elapsed().as_secs_f64();
            let bytes = place.memory();
            if case.fast {
                place.sink()?;
            }
            place.threaded()?;
            if case.fast {
                let (rate, seconds) = KNOWN_BY;
                let source = place.source(KNOWN.len, rate, &files.folder.join(FEW), seconds)?;
                offered(source)?;
            }
            Ok((place, SetUp { seconds, bytes }))
        }
    }
}

/// Whether a row is wanted, by its name or as one of all.
fn is_wanted(bench: &Bench, name: &str) -> bool {
    bench.name.as_ref().is_none_or(|part| name.contains(part.as_str()) || part == ALL)
}

/// The lines of the rows that are wanted.
pub(super) fn lines(bench: &Bench, files: &Files, quick: bool) -> Result<Vec<Line>, Complaint> {
    let mut rows = rows();
    rows.retain(|row| is_wanted(bench, row.name));
    rows.retain(|row| {
        let both = [Some(row.who), row.beside.map(|(_, who, _)| who)];
        let lacks = both.into_iter().flatten().find_map(Who::lacks);
        if let Some(why) = &lacks {
            super::say(&format!("skipped: {}: {why}", row.name));
        }
        lacks.is_none()
    });
    let plan = plan(&rows);
    let mut set_ups: Vec<Vec<SetUp>> = vec![Vec::new(); plan.len()];
    let found = in_turn(plan.len(), Starts::of(bench, quick), |number| {
        let (who, loads) = &plan[number];
        let name = rows.iter().find(|row| row.who == *who).map_or("the kernel", |row| row.name);
        super::eprint_line(name);
        let (mut place, set_up) = start(*who, files)?;
        set_ups[number].push(set_up);
        let load = |load: &Load| {
            let list = files.folder.join(load.list);
            highest(&mut place, bench.seconds, load.len, if quick { &[] } else { MORE }, &list)
        };
        loads.iter().map(load).collect()
    })?;
    let at = |who: Who, load: Load| {
        let number = plan.iter().position(|(known, _)| *known == who).expect("it was planned");
        let load = plan[number].1.iter().position(|own| *own == load).expect("with this load");
        (&found[number][load], &set_ups[number])
    };
    let line = |row: &Row| {
        let (several, set_ups) = at(row.who, row.load);
        let beside = row.beside.map(|(name, who, load)| (name, at(who, load).0));
        told(row, several, set_ups, beside, files.prefixes)
    };
    Ok(rows.iter().map(line).collect())
}

fn told(
    row: &Row,
    several: &Several,
    set_ups: &[SetUp],
    beside: Option<(&'static str, &Several)>,
    prefixes: usize,
) -> Line {
    let own = several.fastest();
    let peer = beside.map(|(name, other)| (name, other.fastest().per_cpu));
    let asked = match row.asked {
        Asked::Nothing => None,
        Asked::Times(times) => {
            let ratio = peer.map_or(0.0, |(_, other)| own.per_cpu / other.max(1e-9));
            Some((ratio >= times, format!("{times} x {}", peer.map_or("", |(name, _)| name))))
        }
        Asked::Packets(rate) => Some((own.per_cpu >= rate, format!("{:.0} M", rate / 1e6))),
        Asked::Bits(rate) => {
            Some((own.bits_per_cpu >= rate, format!("{:.0} Gbit/s a core", rate / 1e9)))
        }
    };
    let mut note = String::new();
    if let Some((met, asked)) = asked {
        let _ = write!(note, "asked for {asked}: {}; ", if met { "met" } else { "SHORT" });
    }
    let _ = write!(
        note,
        "{:.2} M/s on the wall, {:.1} Gbit/s a core, {:.2} cores; {}",
        own.rate / 1e6,
        own.bits_per_cpu / 1e9,
        own.cores,
        several.words()
    );
    if let Some((_, other)) = beside.filter(|(_, other)| other.words().contains("UNDECIDED")) {
        let _ = write!(note, "; beside: {}", other.words());
    }
    let mut seconds: Vec<f64> = set_ups.iter().map(|one| one.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let seconds = seconds.get(seconds.len() / 2).copied().unwrap_or(0.0);
    let most = set_ups.iter().map(|one| one.bytes).max().unwrap_or(0) >> 20;
    let _ = match row.who {
        Who::Peer(_) => write!(note, "; {most} MiB"),
        Who::Router(case) if !case.table => {
            write!(note, "; set up in {seconds:.1} s, {most} MiB")
        }
        _ => write!(note, "; set up with {prefixes} routes in {seconds:.1} s, {most} MiB"),
    };
    Line { name: row.name.to_owned(), value: own.per_cpu, unit: "packets/CPU s", peer, note }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_started_once_for_all_its_rows_and_the_ladder_loses_one_thing_a_rung() {
        let rows = rows();
        let plan = plan(&rows);
        let kernel = plan.iter().find(|(who, _)| *who == Who::Kernel).expect("the kernel");
        assert_eq!(kernel.1.len(), 3);
        assert_eq!(plan.len(), 9 + LADDER.len());
        let parts = |case: &Case| {
            [case.table, case.filters, case.fair, case.plugin, case.fabric]
                .iter()
                .filter(|has| **has)
                .count()
        };
        let counts: Vec<usize> = LADDER.iter().map(|(_, case)| parts(case)).collect();
        assert_eq!(counts, [5, 4, 3, 2, 1, 0]);
        assert!(LADDER.iter().all(|(_, case)| case.shaped && !case.fast && !case.split));
    }
}
