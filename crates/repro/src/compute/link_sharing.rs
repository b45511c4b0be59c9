//! Link sharing: a hierarchy of fair queues, and one flat queue with the same weights.
//!
//! Both disciplines are driven cell by cell, as by the output port of a switch: one cell leaves in each cell
//! time. Leaves are on or off; an active one always has cells waiting.

use super::{Computed, Setting, Value, row};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Duration, Packet, Stream, Time};
use lastmeter_net::queue::{
    By, DropTail, FlatOptions, FlatWfq, HPfq, Pifo, Queue, Rank, Room, Tree,
};

const CELL: Bytes = Bytes(53);
/// Backlog of an active leaf, in cells.
const DEPTH: u64 = 3;

/// The tree, and how long a cell takes.
struct Port {
    parents: Vec<u64>,
    weights: Vec<u64>,
    cell_time: Duration,
    cells: u64,
}

impl Port {
    fn new(constants: &Constants) -> Result<Port, Error> {
        Ok(Port {
            parents: constants.get("parents")?,
            weights: constants.get("weights")?,
            cell_time: constants.get("cell_time")?,
            cells: constants.get("cells")?,
        })
    }
    fn tree(&self) -> Result<Tree, Error> {
        Tree::new(&self.parents, &self.weights).map_err(|misfit| Error::Computation {
            name: "link-sharing",
            message: misfit.to_string(),
        })
    }
    fn at(&self, cell: u64) -> Time {
        Time::START + self.cell_time * cell
    }
    /// The hierarchy.
    fn hierarchy(&self) -> Result<HPfq, Error> {
        Ok(HPfq::new(self.tree()?, Room::UNLIMITED, u64::MAX))
    }
    /// The flat weights, updated every `period` cells.
    fn flat(&self, period: u64, pipelined: bool) -> Result<FlatWfq, Error> {
        Ok(FlatWfq::new(FlatOptions {
            tree: self.tree()?,
            period: self.cell_time * period,
            every: None,
            pipelined,
            room: Room::UNLIMITED,
            each: u64::MAX,
        }))
    }
    /// In closed form, from the two goals of §3.4: at each node the link's rate is divided among the active
    /// children in proportion to their weights.
    fn shares(&self, active: &[bool]) -> Vec<f64> {
        let nodes = self.parents.len() + 1;
        let parent = |node: usize| self.parents[node - 1] as usize;
        let is_leaf = |node: usize| !self.parents.contains(&(node as u64));
        let mut busy = vec![false; nodes];
        (1..nodes)
            .filter(|&node| is_leaf(node))
            .zip(active)
            .for_each(|(node, &on)| busy[node] = on);
        let mut sums = vec![0.0; nodes];
        for node in (1..nodes).rev() {
            if busy[node] {
                busy[parent(node)] = true;
                sums[parent(node)] += self.weights[node - 1] as f64;
            }
        }
        let mut rates = vec![0.0; nodes];
        rates[0] = 1.0;
        for node in (1..nodes).filter(|&node| busy[node]) {
            rates[node] = rates[parent(node)] * self.weights[node - 1] as f64 / sums[parent(node)];
        }
        (1..nodes).filter(|&node| is_leaf(node)).map(|node| rates[node]).collect()
    }
    fn leaves(&self) -> usize {
        (1..=self.parents.len() as u64).filter(|node| !self.parents.contains(node)).count()
    }
}

/// A discipline, and for each leaf its backlog and how many cells it has sent.
struct Driven<Q> {
    queue: Q,
    waiting: Vec<u64>,
    sent: Vec<u64>,
}

impl<Q: Queue> Driven<Q> {
    fn new(queue: Q, leaves: usize) -> Driven<Q> {
        Driven { queue, waiting: vec![0; leaves], sent: vec![0; leaves] }
    }
    /// One cell time: active leaves refill their backlog, then a cell leaves.
    fn step(&mut self, now: Time, on: &[bool]) {
        for leaf in (0..on.len()).filter(|&leaf| on[leaf]) {
            while self.waiting[leaf] < DEPTH {
                self.arrive(now, leaf);
            }
        }
        self.depart(now);
    }
    fn arrive(&mut self, now: Time, leaf: usize) {
        let mut cell = Packet::new(CELL);
        cell.class = leaf as u8;
        self.waiting[leaf] += u64::from(self.queue.enqueue(now, cell).is_ok());
    }
    fn depart(&mut self, now: Time) {
        if let Some(cell) = self.queue.dequeue(now) {
            self.waiting[usize::from(cell.class)] -= 1;
            self.sent[usize::from(cell.class)] += 1;
        }
    }
    fn count(&self, wanted: &str) -> u64 {
        let mut found = 0;
        self.queue.counts(&mut |name, count| found += if name == wanted { count } else { 0 });
        found
    }
}

/// Which leaves are active in each cell time: on and off for exponential times with one mean.
fn activity(setting: &Setting<'_>, leaves: usize, mean: u64, cells: u64) -> Vec<Vec<bool>> {
    let mut random = Stream::new(setting.seed, "link sharing");
    let mut draw = move || (-(1.0 - random.unit()).ln() * mean as f64).ceil() as u64;
    let mut states: Vec<(bool, u64)> = (0..leaves).map(|leaf| (leaf % 2 == 0, draw())).collect();
    (0..cells)
        .map(|cell| {
            for (on, until) in &mut states {
                if *until <= cell {
                    (*on, *until) = (!*on, cell + draw());
                }
            }
            states.iter().map(|&(on, _)| on).collect()
        })
        .collect()
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let port = Port::new(setting.constants)?;
    let wants = |ids: &[&str]| ids.iter().any(|id| setting.wants(id));
    let mut rows = instructions(setting.constants)?;
    if wants(&["A-151", "A-152", "A-155"]) {
        rows.extend(shares(&port)?);
    }
    if wants(&["A-151", "A-153"]) {
        rows.extend(properties(setting, &port)?);
    }
    if wants(&["A-149", "A-150"]) {
        rows.extend(services(setting, &port)?);
    }
    if wants(&["A-154", "A-160"]) {
        rows.extend(path_lengths(&port)?);
    }
    if wants(&["A-160"]) {
        rows.extend(sequencer(&port)?);
    }
    if wants(&["A-156"]) {
        rows.extend(periods(setting, &port)?);
    }
    if wants(&["A-158", "A-159"]) {
        rows.extend(worst_case(&port)?);
        rows.extend(pipeline(&port)?);
    }
    Ok(rows)
}

/// Share of the link that each leaf gets, in per cent, while `on` stays constant.
fn steady<Q: Queue>(port: &Port, queue: Q, on: &[bool]) -> Vec<f64> {
    let mut driven = Driven::new(queue, on.len());
    (0..port.cells).for_each(|cell| driven.step(port.at(cell), on));
    driven.sent.iter().map(|&sent| 100.0 * sent as f64 / port.cells as f64).collect()
}

/// shares in the example tree.
fn shares(port: &Port) -> Result<Vec<Computed>, Error> {
    const CASES: [(&str, &str, [bool; 4]); 3] = [
        ("A-151", "all active", [true; 4]),
        ("A-152", "a2 idle", [true, false, true, true]),
        ("A-152", "A idle", [false, false, true, true]),
    ];
    let mut rows = Vec::new();
    for (id, case, on) in CASES {
        for (leaf, share) in steady(port, port.hierarchy()?, &on).into_iter().enumerate() {
            let name = ["a1", "a2", "b1", "b2"][leaf];
            if on[leaf] {
                rows.push(Computed::new(id, format!("share of {name}, {case}"), percent(share)));
            }
        }
    }
    // Every activity pattern, in both disciplines.
    let mut near = [true; 2];
    for pattern in 1u32..16 {
        let on: Vec<bool> = (0..4).map(|leaf| pattern >> leaf & 1 == 1).collect();
        let ideal = port.shares(&on);
        let flat = steady(port, port.flat(64, true)?, &on);
        let tree = steady(port, port.hierarchy()?, &on);
        for (near, got) in near.iter_mut().zip([tree, flat]) {
            *near &= got.iter().zip(&ideal).all(|(got, ideal)| (got - 100.0 * ideal).abs() < 0.5);
        }
    }
    rows.push(row("A-152/unused-shares", near[0]));
    rows.push(row("A-155/shares-flat", near[1]));
    Ok(rows)
}

/// under random activity no active leaf ever has less than its share.
fn properties(setting: &Setting<'_>, port: &Port) -> Result<Vec<Computed>, Error> {
    let leaves = port.leaves();
    let mean: u64 = setting.constants.get("activity")?;
    let owned = port.shares(&vec![true; leaves]);
    let mut driven = Driven::new(port.hierarchy()?, leaves);
    // Since when each leaf has been active, and how much it had sent by then.
    let mut since: Vec<Option<(u64, u64)>> = vec![None; leaves];
    let mut lag = 0f64;
    for (cell, on) in activity(setting, leaves, mean, port.cells).iter().enumerate() {
        let cell = cell as u64;
        for leaf in 0..leaves {
            since[leaf] = on[leaf].then(|| since[leaf].unwrap_or((cell, driven.sent[leaf])));
        }
        driven.step(port.at(cell), on);
        for (leaf, since) in since.iter().enumerate() {
            if let Some((from, sent)) = since {
                let due = owned[leaf] * (cell + 1 - from) as f64;
                lag = lag.max(due - (driven.sent[leaf] - sent) as f64);
            }
        }
    }
    // The lag bound: one packet for each level of the tree.
    let allowed: u64 = setting.constants.get("lag_allowed")?;
    let first = lag <= allowed as f64;
    Ok(vec![row("A-151/active-leaf", first), row("A-153", first)])
}

/// a customer within its share beside one that floods the link; a deep tree.
fn services(setting: &Setting<'_>, port: &Port) -> Result<Vec<Computed>, Error> {
    // Leaf 0 sends every fourth cell time, below its share of 30 %; leaf 3 two cells in each. Their order is
    // random: otherwise one of them would always get the room that a departure leaves.
    let lost = |queue: &mut dyn Queue| {
        let mut random = Stream::new(setting.seed, "flood");
        let (mut offered, mut sent) = (0u64, 0u64);
        for cell in 0..port.cells {
            let now = port.at(cell);
            let place = random.below(3);
            for turn in 0..3 {
                let leaf = if turn == place { 0 } else { 3 };
                if leaf == 3 || cell % 4 == 0 {
                    let mut packet = Packet::new(CELL);
                    packet.class = leaf;
                    offered += u64::from(leaf == 0);
                    // Refusals are counted.
                    drop(queue.enqueue(now, packet));
                }
            }
            sent += u64::from(queue.dequeue(now).is_some_and(|packet| packet.class == 0));
        }
        1.0 - sent as f64 / offered as f64
    };
    const EACH: u64 = 64;
    let first_come = lost(&mut DropTail::new(4 * EACH, Bytes(u64::MAX)));
    let mut shared = HPfq::new(port.tree()?, Room::UNLIMITED, EACH);
    let shared = lost(&mut shared);
    let kept = shared < 0.01 && first_come > 0.1;
    let (deep, weights) = binary(5);
    let deep = Port { parents: deep, weights, cell_time: port.cell_time, cells: port.cells };
    let on = vec![true; deep.leaves()];
    let got = steady(&deep, deep.hierarchy()?, &on);
    let nested =
        got.iter().zip(deep.shares(&on)).all(|(got, ideal)| (got - 100.0 * ideal).abs() < 0.1);
    Ok(vec![row("A-149", kept), row("A-150", nested)])
}

/// A full binary tree of this depth with unequal weights.
fn binary(depth: u32) -> (Vec<u64>, Vec<u64>) {
    let nodes = (1u64 << (depth + 1)) - 2;
    let parents = (1..=nodes).map(|node| (node - 1) / 2).collect();
    let weights = (1..=nodes).map(|node| 1 + node % 3).collect();
    (parents, weights)
}

/// how often a cell is inserted into a sorted list.
fn path_lengths(port: &Port) -> Result<Vec<Computed>, Error> {
    let mut proportional = true;
    let mut flattest = 0f64;
    for depth in 1..=6 {
        let (parents, weights) = binary(depth);
        let tree = Port { parents, weights, cell_time: port.cell_time, cells: port.cells };
        let on = vec![true; tree.leaves()];
        let mut hierarchy = Driven::new(tree.hierarchy()?, on.len());
        let mut flat = Driven::new(tree.flat(64, true)?, on.len());
        for cell in 0..tree.cells {
            hierarchy.step(tree.at(cell), &on);
            flat.step(tree.at(cell), &on);
        }
        let per_cell = |count: u64| count as f64 / tree.cells as f64;
        let levels = per_cell(hierarchy.count("insertions"));
        proportional &= (levels / f64::from(depth) - 1.0).abs() < 0.02;
        flattest = flattest.max(per_cell(flat.count("insertions")));
    }
    Ok(vec![row("A-154", proportional), row("A-160", (flattest, "insertions"))])
}

/// A-160, what if: a sorted queue in hardware in place of the one in software. It has an operation for each arrival and
/// each departure, whose cost does not depend on how many cells wait.
fn sequencer(port: &Port) -> Result<Vec<Computed>, Error> {
    const FEW: u64 = 3;
    const MANY: u64 = 3000;
    const LEVELS: u64 = 8;
    let on = vec![true; port.leaves()];
    let weights = port.shares(&on);
    let weights: Vec<u64> = weights.iter().map(|share| (share * 1000.0).round() as u64).collect();
    let sorted =
        || Pifo::new(Rank::Fair, (4, LEVELS), Room::UNLIMITED).weighted(By::Class, &weights);
    let shares = steady(port, sorted(), &on);
    let ideal = port.shares(&on);
    let alike = shares.iter().zip(&ideal).all(|(got, ideal)| (got - 100.0 * ideal).abs() < 0.1);
    // Two arrivals and a departure, over and over, with few or many cells behind them: the most operations of such a
    // cycle, and the most levels that they visit.
    let cost = |waiting: u64| {
        let mut driven = Driven::new(sorted(), on.len());
        (0..waiting).for_each(|cell| driven.arrive(port.at(0), cell as usize % on.len()));
        let count = |driven: &Driven<Pifo>| (driven.count("operations"), driven.count("levels"));
        let mut worst = (0, 0);
        for cell in 0..waiting {
            let before = count(&driven);
            (0..2).for_each(|n| driven.arrive(port.at(cell), (2 * cell + n) as usize % on.len()));
            driven.depart(port.at(cell));
            let after = count(&driven);
            worst = (worst.0.max(after.0 - before.0), worst.1.max(after.1 - before.1));
            // As many wait as before.
            driven.depart(port.at(cell));
        }
        worst
    };
    let ((few, _), (many, levels)) = (cost(FEW), cost(MANY));
    let bounded = few == many && levels <= LEVELS * many;
    let worst = Value::Number(many as f64, "operations");
    Ok(vec![
        row("A-160/sequencer-shares", alike),
        row("A-160/sequencer-worst", worst),
        row("A-160/sequencer-cells", bounded),
    ])
}

/// the share of the link that goes to other leaves than under the hierarchy, by update period.
fn periods(setting: &Setting<'_>, port: &Port) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (window, mean): (u64, u64) = (constants.get("window")?, constants.get("activity")?);
    let leaves = port.leaves();
    let activity = activity(setting, leaves, mean, port.cells);
    let periods: Vec<u64> = constants.get("periods")?;
    let mut errors = Vec::new();
    for &period in &periods {
        let mut hierarchy = Driven::new(port.hierarchy()?, leaves);
        let mut flat = Driven::new(port.flat(period, true)?, leaves);
        let (mut moved, mut cells) = (0u64, 0u64);
        for (cell, on) in activity.iter().enumerate() {
            hierarchy.step(port.at(cell as u64), on);
            flat.step(port.at(cell as u64), on);
            if (cell as u64 + 1).is_multiple_of(window) {
                let pairs = hierarchy.sent.iter().zip(&flat.sent);
                // What one leaf gets too much, another gets too little.
                moved += pairs.map(|(a, b)| a.abs_diff(*b)).sum::<u64>() / 2;
                cells += hierarchy.sent.iter().sum::<u64>();
                (hierarchy.sent, flat.sent) = (vec![0; leaves], vec![0; leaves]);
            }
        }
        errors.push(100.0 * moved as f64 / cells.max(1) as f64);
    }
    let (same, good): (u64, u64) = (constants.get("almost_same")?, constants.get("good")?);
    let (first, last) = (errors[0], errors[errors.len() - 1]);
    let falls = errors.windows(2).all(|pair| pair[0] <= pair[1]);
    Ok(vec![
        row("A-156/almost-small", first < same as f64),
        row("A-156/good-approximation", last < good as f64),
        row("A-156/error-grows", falls),
    ])
}

/// instruction counts.
fn instructions(constants: &Constants) -> Result<Vec<Computed>, Error> {
    let get = |name: &str| constants.get::<u64>(name);
    let audited = |key: &str, count: u64| row(key, Value::Number(count as f64, "instructions"));
    let (receive, send) = (get("receive")?, get("send")?);
    let saved = (get("receive_saved")?, get("send_saved")?);
    let arrivals = get("arrivals")?;
    let clock = Value::Number(get("clock")? as f64, "MHz");
    Ok(vec![
        audited("A-155/receive-cell", get("receive_estimate")?),
        audited("A-155/send-cell", get("send_estimate")?),
        row("A-157/processor", clock),
        audited("A-157/cell-time", get("in_cell_time")?),
        audited("A-157/receive-cell", receive),
        audited("A-157/send-cell", send),
        audited("A-157/worst-cycle", arrivals * receive + send),
        audited("A-157/worst-cycle-shortened", arrivals * (receive - saved.0) + send - saved.1),
    ])
}

/// two cells arrive for each that leaves, at queues of limited length.
fn worst_case(port: &Port) -> Result<Vec<Computed>, Error> {
    const EACH: u64 = 64;
    let leaves = port.leaves();
    let options = FlatOptions {
        tree: port.tree()?,
        period: port.cell_time * 64,
        every: None,
        pipelined: true,
        room: Room::UNLIMITED,
        each: EACH,
    };
    let mut driven = Driven::new(FlatWfq::new(options), leaves);
    for cell in 0..port.cells {
        (0..2).for_each(|n| driven.arrive(port.at(cell), (2 * cell + n) as usize % leaves));
        driven.depart(port.at(cell));
    }
    // Each of four leaves offers half a link, more than its share.
    let ideal = port.shares(&vec![true; leaves]);
    let sent = driven.sent.iter().map(|&sent| sent as f64 / port.cells as f64);
    let kept = sent.zip(ideal).all(|(got, share)| (got - share).abs() < 0.01);
    Ok(vec![row("A-158", kept)])
}

/// tree traversals for each map of the weights.
fn pipeline(port: &Port) -> Result<Vec<Computed>, Error> {
    const PERIOD: u64 = 64;
    let on = vec![true; port.leaves()];
    let walk = |pipelined: bool| -> Result<(u64, f64), Error> {
        let mut driven = Driven::new(port.flat(PERIOD, pipelined)?, on.len());
        let mut first = None;
        for cell in 0..100 * PERIOD {
            driven.step(port.at(cell), &on);
            if driven.count("maps") > 0 {
                first.get_or_insert(driven.count("traversals"));
            }
        }
        let first = first.unwrap_or(0);
        let later = (driven.count("traversals") - first) as f64;
        Ok((first, later / (driven.count("maps") - 1) as f64))
    };
    let ((first, each), (_, phased)) = (walk(true)?, walk(false)?);
    let row =
        |item: &str, count: f64| Computed::new("A-159", item, Value::Number(count, "traversals"));
    Ok(vec![
        row("until the first map, pipelined", first as f64),
        row("for each map after it, pipelined", each),
        row("for each map, in two phases", phased),
    ])
}

fn percent(share: f64) -> Value {
    Value::Number(share, "%")
}
