//! A cell switch with tables of virtual circuits, copies, recycling, and counters at its inputs.
//!
//! ```text
//! (port, VCI) --> counter --> table --> (port, VCI)            one copy, or several
//!       ^                          '--> (recycling port, VCI) --.
//!       '-------------------------------------------------------'
//! ```
//!
//! A cell takes a cell time of its output; outputs serve in arrival order. Cells sent to the recycling port come in
//! there again on their new circuit: with two copies each time, a circuit doubles cells, and n of them multiply by
//! 2^n. Nothing keeps cells of two packets apart, so this is for single-cell packets. The switch counts the cells of
//! each input, and its clock ticks once per cell time: two readings of both give a rate, without any other clock.
//!
//! Source: description of the Dynamically Extensible Router, §2, §6.1 (D-106); the document gives no sizes of tables
//! or queues, so queues here are unlimited and tables grow as needed.

use lastmeter_base::{Duration, Time};
use std::collections::BTreeMap;

/// A port and a circuit on it.
pub type Circuit = (u16, u16);

/// A departing cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left<T> {
    /// When its last bit leaves.
    pub at: Time,
    /// Its port and circuit.
    pub on: Circuit,
    /// Its payload.
    pub item: T,
}

/// Readings of the switch's counter and clock (D-106).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Cells that have come in on the port.
    pub cells: u64,
    /// Cell times that have passed.
    pub ticks: u64,
}

/// A switch whose cells carry `T`.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// use lastmeter_repro::machines::switch::cells::CellSwitch;
/// let mut switch = CellSwitch::new(8, 7, Duration::from_ns(177));
/// // Two copies on each of three circuits: eight of each cell leave by port 2.
/// switch.connect((4, 50), &[(7, 51), (7, 51)])?;
/// switch.connect((7, 51), &[(7, 52), (7, 52)])?;
/// switch.connect((7, 52), &[(2, 60), (2, 60)])?;
/// switch.receive(Time::START, (4, 50), "cell");
/// assert_eq!(switch.run_until(Time::START + Duration::from_us(10)).len(), 8);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
pub struct CellSwitch<T> {
    recycling: u16,
    cell: Duration,
    tables: BTreeMap<Circuit, Vec<Circuit>>,
    counters: Vec<u64>,
    out_free: Vec<Time>,
    /// Recycled cells by arrival time.
    recycled: BTreeMap<(Time, u64), (Circuit, T)>,
    order: u64,
    left: Vec<Left<T>>,
    /// Cells on circuits without a table entry.
    pub unknown: u64,
}

impl<T: Clone> CellSwitch<T> {
    /// A switch with these ports, one of which recycles, and this cell time.
    pub fn new(ports: u16, recycling: u16, cell: Duration) -> CellSwitch<T> {
        CellSwitch {
            recycling,
            cell,
            tables: BTreeMap::new(),
            counters: vec![0; ports.into()],
            out_free: vec![Time::START; ports.into()],
            recycled: BTreeMap::new(),
            order: 0,
            left: Vec::new(),
            unknown: 0,
        }
    }

    /// Cells on `from` leave on each of `to`.
    ///
    /// # Errors
    /// If the circuit is in use, has no destination, or a port does not exist.
    pub fn connect(&mut self, from: Circuit, to: &[Circuit]) -> Result<(), String> {
        let ports = self.counters.len();
        let missing =
            std::iter::once(&from).chain(to).find(|(port, _)| usize::from(*port) >= ports);
        match missing {
            Some((port, _)) => Err(format!("there is no port {port} of {ports}")),
            None if to.is_empty() => Err(format!("circuit {} leads nowhere", from.1)),
            None if self.tables.contains_key(&from) => {
                Err(format!("circuit {} of port {} is taken", from.1, from.0))
            }
            None => {
                self.tables.insert(from, to.to_vec());
                Ok(())
            }
        }
    }

    /// A cell arrives, not before any earlier one.
    pub fn receive(&mut self, now: Time, on: Circuit, item: T) {
        self.recycle(now);
        self.enter(now, on, item);
    }

    fn enter(&mut self, now: Time, on: Circuit, item: T) {
        if let Some(counter) = self.counters.get_mut(usize::from(on.0)) {
            *counter += 1;
        }
        let Some(copies) = self.tables.get(&on).cloned() else {
            self.unknown += 1;
            return;
        };
        for copy in copies {
            let free = &mut self.out_free[usize::from(copy.0)];
            let at = now.max(*free) + self.cell;
            *free = at;
            if copy.0 == self.recycling {
                self.recycled.insert((at, self.order), (copy, item.clone()));
                self.order += 1;
            } else {
                self.left.push(Left { at, on: copy, item: item.clone() });
            }
        }
    }

    /// Receives recycled cells due by now.
    fn recycle(&mut self, now: Time) {
        while let Some(first) = self.recycled.first_entry().filter(|first| first.key().0 <= now) {
            let ((at, _), (on, item)) = first.remove_entry();
            self.enter(at, on, item);
        }
    }

    /// Departures up to now, in order.
    pub fn run_until(&mut self, now: Time) -> Vec<Left<T>> {
        self.recycle(now);
        self.left.sort_by_key(|left| left.at);
        let later = self.left.partition_point(|left| left.at <= now);
        self.left.drain(..later).collect()
    }

    /// Readings of counter and clock (D-106).
    pub fn read(&self, now: Time, port: u16) -> Reading {
        let cells = self.counters.get(usize::from(port)).copied().unwrap_or(0);
        Reading { cells, ticks: now.as_ps() / self.cell.as_ps() }
    }

    /// Cells per second between two readings.
    pub fn rate(&self, first: Reading, second: Reading) -> f64 {
        let ticks = second.ticks.saturating_sub(first.ticks).max(1);
        let cells = second.cells.saturating_sub(first.cells);
        cells as f64 / (ticks as f64 * self.cell.as_secs_f64())
    }
}

/// A permanent circuit from one site to another (N-56).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permanent {
    /// Its first site.
    pub from: usize,
    /// Its last site.
    pub to: usize,
    /// The nodes on its path, ends included, each with the circuit's number on the link to the next.
    pub links: Vec<(usize, usize, u16)>,
}

/// The lowest unreserved circuit (ITU-T I.361).
pub const VCI_FIRST: u16 = 32;

/// Circuits in both directions between all pairs of sites, over the fewest links; nodes `0..sites` are sites, which
/// do not forward, and all others switches (N-56).
///
/// # Errors
/// If two sites are not connected, or a link has no circuits left.
///
/// ```
/// use lastmeter_repro::machines::switch::cells::mesh;
/// // Two sites on switch 2, one on switch 4.
/// let plan = mesh(4, &[(0, 4), (1, 4), (2, 5), (3, 5), (4, 5)])?;
/// assert_eq!(plan.len(), 12);
/// # Ok::<(), String>(())
/// ```
pub fn mesh(sites: usize, links: &[(usize, usize)]) -> Result<Vec<Permanent>, String> {
    let mut used: BTreeMap<(usize, usize), u16> = BTreeMap::new();
    let mut plan = Vec::new();
    for from in 0..sites {
        for to in (0..sites).filter(|&to| to != from) {
            let way = way(sites, links, from, to)
                .ok_or_else(|| format!("no links lead from site {from} to site {to}"))?;
            let mut numbered = Vec::new();
            for pair in way.windows(2) {
                let next = used.entry((pair[0], pair[1])).or_insert(VCI_FIRST);
                let full = || format!("the link from {} to {} is full", pair[0], pair[1]);
                numbered.push((pair[0], pair[1], *next));
                *next = next.checked_add(1).ok_or_else(full)?;
            }
            plan.push(Permanent { from, to, links: numbered });
        }
    }
    Ok(plan)
}

/// The shortest path; among equals, that through the lowest nodes.
fn way(sites: usize, links: &[(usize, usize)], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut ways = std::collections::VecDeque::from([vec![from]]);
    let mut seen = std::collections::BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let at = *way.last()?;
        if at == to {
            return Some(way);
        }
        // A site does not forward.
        if at < sites && at != from {
            continue;
        }
        let mut next: Vec<usize> = links
            .iter()
            .filter_map(|&(a, b)| [(a, b), (b, a)].into_iter().find(|pair| pair.0 == at))
            .map(|(_, next)| next)
            .collect();
        next.sort_unstable();
        for next in next {
            if seen.insert(next) {
                ways.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}

/// Whether every cell on each circuit of a plan reaches the circuit's last site and no other, through switches whose
/// tables hold only the plan.
///
/// # Errors
/// If there are more nodes than a switch can have ports.
pub fn proven(plan: &[Permanent], nodes: usize) -> Result<bool, String> {
    let port = |node: usize| u16::try_from(node).map_err(|_| format!("there is no port {node}"));
    let links: Vec<&(usize, usize, u16)> = plan.iter().flat_map(|one| &one.links).collect();
    let distinct: std::collections::BTreeSet<_> = links.iter().collect();
    if distinct.len() < links.len() {
        return Ok(false);
    }
    // The port number of a node is the number of the neighbour behind it.
    let ports = port(nodes)?;
    let mut switches: Vec<CellSwitch<usize>> =
        (0..nodes).map(|_| CellSwitch::new(ports, u16::MAX, Duration::from_us(1))).collect();
    for circuit in plan {
        for pair in circuit.links.windows(2) {
            let ((before, at, came), (_, after, goes)) = (pair[0], pair[1]);
            switches[at].connect((port(before)?, came), &[(port(after)?, goes)])?;
        }
    }
    let mut now = Time::START;
    for circuit in plan {
        let Some(&(mut before, mut at, mut vci)) = circuit.links.first() else { return Ok(false) };
        for _ in 1..circuit.links.len() {
            now += Duration::from_ms(1);
            switches[at].receive(now, (port(before)?, vci), circuit.to);
            let left = switches[at].run_until(now + Duration::from_us(500));
            let [one] = &left[..] else { return Ok(false) };
            (before, at, vci) = (at, usize::from(one.on.0), one.on.1);
        }
        if at != circuit.to || circuit.links.last() != Some(&(before, at, vci)) {
            return Ok(false);
        }
    }
    Ok(switches.iter().all(|switch| switch.unknown == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CELL: Duration = Duration::from_ns(177);

    fn amplifier(circuits: u16) -> CellSwitch<u64> {
        let mut switch = CellSwitch::new(8, 7, CELL);
        for at in 0..circuits {
            let from = if at == 0 { (4, 50) } else { (7, 50 + at) };
            let to = if at + 1 == circuits { (2, 90) } else { (7, 51 + at) };
            switch.connect(from, &[to, to]).unwrap();
        }
        switch
    }

    #[test]
    fn d_106_n_circuits_make_two_to_the_n_of_every_cell() {
        for circuits in 1..=6 {
            let mut switch = amplifier(circuits);
            switch.receive(Time::START, (4, 50), 1);
            let left = switch.run_until(Time::START + Duration::from_ms(1));
            assert_eq!(left.len(), 1 << circuits);
            assert!(left.windows(2).all(|pair| pair[1].at - pair[0].at >= CELL), "one at a time");
        }
    }

    #[test]
    fn d_106_counters_and_the_cell_clock_give_the_rate() {
        let mut switch = amplifier(3);
        let first = switch.read(Time::START, 4);
        for cell in 0..1000 {
            switch.receive(Time::START + Duration::from_us(10) * cell, (4, 50), cell);
        }
        let end = Time::START + Duration::from_ms(10);
        switch.run_until(end);
        let rate = switch.rate(first, switch.read(end, 4));
        assert!((rate / 100_000.0 - 1.0).abs() < 0.001, "{rate}");
        // Two and four copies were recycled.
        assert_eq!(switch.read(end, 7).cells, 6000);
    }

    #[test]
    fn a_circuit_is_given_once_and_leads_somewhere() {
        let mut switch = CellSwitch::<()>::new(2, 1, CELL);
        assert!(switch.connect((0, 40), &[]).is_err());
        assert!(switch.connect((0, 40), &[(2, 40)]).unwrap_err().contains("port 2"));
        switch.connect((0, 40), &[(0, 41)]).unwrap();
        assert!(switch.connect((0, 40), &[(0, 42)]).unwrap_err().contains("taken"));
        switch.receive(Time::START, (0, 99), ());
        assert_eq!(switch.unknown, 1);
    }

    proptest! {
        #[test]
        fn n_56_a_mesh_over_any_tree_of_switches_connects_every_pair_and_nobody_else(
            sites in 2_usize..9,
            parents in prop::collection::vec(0_usize..100, 1..5),
            places in prop::collection::vec(0_usize..100, 9),
        ) {
            let switches = parents.len();
            let mut links: Vec<(usize, usize)> =
                (1..switches).map(|at| (sites + parents[at] % at, sites + at)).collect();
            links.extend((0..sites).map(|site| (site, sites + places[site] % switches)));
            let plan = mesh(sites, &links).unwrap();
            prop_assert_eq!(plan.len(), sites * (sites - 1));
            let mut all: Vec<_> = plan.iter().flat_map(|circuit| circuit.links.clone()).collect();
            let before = all.len();
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len(), before, "no circuit of a link is given twice");
            prop_assert!(proven(&plan, sites + switches).unwrap());
            // The same number for two circuits of a link, at either end, would be detected.
            if sites > 2 {
                let mut begins = plan.clone();
                begins[1].links[0].2 = begins[0].links[0].2;
                prop_assert!(!proven(&begins, sites + switches).unwrap_or(false));
                let mut ends = plan.clone();
                let other = ends.iter().rposition(|circuit| circuit.to == ends[0].to).unwrap();
                let number = ends[0].links.last().unwrap().2;
                ends[other].links.last_mut().unwrap().2 = number;
                prop_assert!(!proven(&ends, sites + switches).unwrap_or(false));
            }
        }
    }

    #[test]
    fn n_56_sites_without_a_way_are_named() {
        assert!(mesh(3, &[(0, 3), (1, 3)]).unwrap_err().contains("site 2"));
    }
}
