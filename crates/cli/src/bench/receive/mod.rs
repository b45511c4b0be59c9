//! `lastmeter bench receive`: throughput, latency and what is left of a core, by offered load and way to receive.
//!
//! Capacity is what the application's work alone would allow; loads are multiples of it. The models of these are
//! `lastmeter repro livelock --modern`. `receive/guest` asks a guest's kernel instead ([`guest`]).
//!
//! Rows: E-96, E-99 to E-106, E-120, E-131, E-132.

mod guest;
mod own;
mod ways;

use super::{Arguments, Measurement};
use crate::{Common, Complaint, Ended, output, progress, results};
use indicatif::ProgressBar;
use lastmeter_base::Duration;
use lastmeter_host::receive::{Admission, Costs, Policy};
use lastmeter_ledger::figures;
use lastmeter_linux::load;
use lastmeter_linux::port::Port;
use lastmeter_live::receive::{self, Around, Load, Place, Taken, Work};
use lastmeter_repro::reception::sweep::{self, Curve, Machine, Point};
use lastmeter_repro::reception::{chart, of_1997, of_today};
use own::Interface;
use std::time::Duration as Wait;
use ways::{BUDGETED, How, OF_KERNEL, OF_THESIS, OF_TODAY, TAGGED, Way};

/// The application's work for a datagram: a few times what the kernel's stack takes for it.
const WORK: Wait = Wait::from_micros(5);
/// Offered loads, in multiples of the capacity; the last is more than most sources can make.
const LOADS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const LOADS_QUICK: [f64; 3] = [0.5, 1.0, 4.0];
/// How long each is measured.
const LASTS: Wait = Wait::from_millis(350);
const LASTS_QUICK: Wait = Wait::from_millis(120);
/// Of two interfaces, the first gets this load, and the second the rest.
const FIRST: f64 = 0.4;
/// How long it looks for other programs.
const LOOK: Wait = Wait::from_millis(300);

/// A way at a load.
struct Measured {
    load: f64,
    taken: Taken,
    around: Around,
}

impl Measured {
    /// Datagrams a second that were processed.
    fn rate(&self) -> f64 {
        self.taken.flows.iter().sum::<u64>() as f64 / self.taken.lasted
    }

    /// Datagrams a second that were sent, to all interfaces.
    fn offered(&self) -> f64 {
        (0..self.around.flooded.len()).map(|at| self.around.offered(at)).sum()
    }

    /// The share of a flow's datagrams that were processed; `of` are the flows of the load.
    fn share(&self, flow: u8, of: &[u8]) -> f64 {
        let sent = of.iter().filter(|&&one| one == flow).count() as f64 / of.len() as f64;
        let taken = self.taken.flows.get(usize::from(flow)).copied().unwrap_or(0) as f64;
        taken / self.taken.lasted / (self.offered() * sent)
    }

    fn point(&self) -> Point {
        Point {
            load: self.offered() / capacity(),
            throughput: self.rate() / capacity(),
            p50: self.taken.p50,
            p99: self.taken.p99,
            idle: self.around.left,
            interrupts: self.taken.wakes as f64 / self.taken.lasted / self.offered(),
        }
    }
}

fn capacity() -> f64 {
    1.0 / WORK.as_secs_f64()
}

/// How an interface is received from.
type Receives = (Box<dyn Policy>, Option<Box<dyn Admission>>);

/// What is measured, and shown to the end.
struct Bench<'a> {
    common: &'a Common,
    place: Place,
    /// The rings that were opened, by interface. Ways of the kernel come before them.
    ports: Vec<Box<dyn Port>>,
    work: Work,
    lasts: Wait,
    loads: &'static [f64],
    bar: ProgressBar,
    /// Said with every figure.
    busy: &'static str,
    results: Vec<Measurement>,
}

impl Bench<'_> {
    /// What a source sends at a multiple of the capacity.
    fn offer(load: f64, flows: &[u8]) -> Load {
        Load { rate: ways::periodic(load * capacity()), flows: flows.to_vec() }
    }

    /// A way at a load.
    fn at(&mut self, way: &Way, load: f64, flows: &[u8]) -> Result<Measured, Complaint> {
        self.bar.set_message(way.name);
        let offered = Self::offer(load, flows);
        let measured = match way.how {
            How::Kernel(kernel) => {
                let (taken, around) = self.place.socket(&kernel, &offered, WORK, self.lasts)?;
                Measured { load, taken, around }
            }
            How::Own(policy, admission) => {
                let how = vec![(policy(), admission.map(|new| new()))];
                let (taken, around) = self.own(how, &[offered])?;
                Measured { load, taken, around }
            }
        };
        self.bar.inc(1);
        Ok(measured)
    }

    /// Our own receiver, with a ring for each load.
    fn own(&mut self, how: Vec<Receives>, offered: &[Load]) -> Result<(Taken, Around), Complaint> {
        // A ring is released some time after it was closed, so each is kept.
        for at in self.ports.len()..how.len() {
            self.ports.push(self.place.port(at)?);
        }
        let rings = self.ports.drain(..how.len()).zip(how);
        let new = |(port, (policy, admission))| Interface::new(port, policy, admission);
        let mut interfaces: Vec<Interface> = rings.map(new).collect();
        self.place.begin(offered, self.lasts)?;
        let (core, work, lasts) = (self.place.core(), self.work, self.lasts);
        let taken = self.place.on_core(|| own::receive(&mut interfaces, work, core, lasts));
        self.ports.splice(0..0, interfaces.into_iter().map(|interface| interface.port));
        // Sources are waited for whatever the receiver says: their answers come.
        let around = self.place.end(offered.len(), self.lasts)?;
        Ok((taken?, around))
    }

    /// A way at all loads.
    fn curve(&mut self, way: &Way) -> Result<Vec<Measured>, Complaint> {
        let all: Result<Vec<Measured>, Complaint> =
            self.loads.iter().map(|load| self.at(way, *load, &[0])).collect();
        let all = all?;
        let peak = all.iter().map(Measured::rate).fold(0.0, f64::max).max(1.0);
        for one in &all {
            let note = format!(
                "{}; {:.0} of {:.0} packets/s, p99 {}, {:.0} % of the core left, {:.2} wakes a \
                 packet{}",
                way.what,
                one.rate(),
                one.offered(),
                figures::time(one.taken.p99),
                100.0 * one.around.left,
                one.point().interrupts,
                self.busy,
            );
            let name = format!("receive/{}@{}", way.name, one.load);
            self.add(Measurement::new(
                name,
                one.rate() / peak,
                "share of peak",
                String::new(),
                note,
            ));
        }
        if let Some(half) = all.iter().find(|one| one.load == 0.5) {
            let name = format!("receive/{}/cpu-left", way.name);
            let note = format!("at half of the capacity{}", self.busy);
            self.add(Measurement::new(name, half.around.left, "share", String::new(), note));
        }
        Ok(all)
    }

    fn add(&mut self, result: Measurement) {
        if self.common.json {
            output::print(&serde_json::to_string(&result).unwrap_or_default());
        }
        self.results.push(result);
    }

    /// What one of several flows gets, at the highest load.
    fn unequal(&mut self, way: &Way, flows: &[u8]) -> Result<String, Complaint> {
        let load = self.loads.last().copied().unwrap_or(1.0);
        let one = self.at(way, load, flows)?;
        let mut each: Vec<u8> = flows.to_vec();
        each.dedup();
        let mut words = format!("{:24}", way.name);
        for flow in each {
            let share = one.share(flow, flows);
            words += &format!("  flow {flow}: {:>5.1} %", 100.0 * share);
            let name = format!("receive/{}/flow-{flow}@{load}", way.name);
            let note = format!("{}{}", way.what, self.busy);
            self.add(Measurement::new(name, share, "share of offered", String::new(), note));
        }
        Ok(words + "\n")
    }

    /// Two interfaces: what the one within its share gets while the other is flooded.
    fn two(&mut self, way: &Way) -> Result<String, Complaint> {
        let How::Own(policy, admission) = way.how else { return Ok(String::new()) };
        self.bar.set_message("two interfaces");
        let load = self.loads.last().copied().unwrap_or(1.0);
        let offered = [Self::offer(FIRST, &[0]), Self::offer(load - FIRST, &[1])];
        let how = (0..offered.len()).map(|_| (policy(), admission.map(|new| new()))).collect();
        let (taken, around) = self.own(how, &offered)?;
        self.bar.inc(1);
        let share = |at: usize| taken.flows[at] as f64 / taken.lasted / around.offered(at);
        let [first, second] = [share(0), share(1)];
        let name = format!("receive/two/{}@{load}", way.name);
        let note = format!(
            "what the first of two interfaces gets, at {FIRST} of the capacity; the second {:.1} % \
             of {:.0} packets/s{}",
            100.0 * second,
            around.offered(1),
            self.busy,
        );
        self.add(Measurement::new(name, first, "share of offered", String::new(), note));
        Ok(format!(
            "{:24}  first: {:>5.1} %  second: {:>5.1} %\n",
            way.name,
            100.0 * first,
            100.0 * second
        ))
    }
}

pub(super) fn bench(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let part = arguments.name.split_once('/').map_or("", |(_, part)| part);
    if let Some(rest) = part.strip_prefix("guest") {
        return guest::bench(common, arguments, rest.trim_start_matches('/'));
    }
    let wanted = |way: &&Way| {
        let part = part.split(['@', '/']).next().unwrap_or_default();
        way.name.starts_with(part)
    };
    let all = || OF_KERNEL.iter().chain(OF_TODAY).chain(OF_THESIS);
    let ways: Vec<Way> = all().filter(wanted).copied().collect();
    let others = part.is_empty();
    if ways.is_empty() {
        let names: Vec<&str> = all().map(|way| way.name).collect();
        return Err(Complaint(format!(
            "no way to receive is called {part:?}: {}",
            names.join(", ")
        )));
    }
    let surroundings = load::others(LOOK)?;
    let place = Place::open(receive::INTERFACES_MAX, surroundings.is_busy())
        .map_err(|error| Complaint(format!("{error}; `bench receive` needs root and two cores")))?;
    let loads: &[f64] = if common.quick { &LOADS_QUICK } else { &LOADS };
    let two = OF_THESIS.iter().filter(|way| others && !matches!(way.how, How::Own(_, None)));
    let two: Vec<Way> = two.copied().collect();
    let steps = ways.len() * loads.len() + two.len() + if others { 2 } else { 0 };
    let mut bench = Bench {
        common,
        work: place.on_core(|| Ok(Work::lasting(WORK)))?,
        ports: Vec::new(),
        place,
        lasts: if common.quick { LASTS_QUICK } else { LASTS },
        loads,
        bar: progress::bar(steps as u64),
        busy: if surroundings.is_busy() { "; BUSY machine" } else { "" },
        results: Vec::new(),
    };
    let mut curves = Vec::new();
    for way in &ways {
        curves.push((*way, bench.curve(way)?));
    }
    let mut unequal = String::new();
    if others {
        unequal += "\nshare of each flow's packets that is processed, at the highest load\n";
        unequal += &bench.unequal(&TAGGED.0, TAGGED.1)?;
        unequal += &bench.unequal(&BUDGETED.0, BUDGETED.1)?;
        unequal += "\ntwo interfaces: the first at 0.4 of the capacity, the second flooded\n";
        for way in &two {
            unequal += &bench.two(way)?;
        }
    }
    bench.bar.finish_and_clear();
    if !common.json {
        output::print(&(table(&curves) + &unequal));
    }
    if let Some(words) = load::words(surroundings) {
        output::note(&words);
    }
    if let Some(path) = &arguments.out {
        results::file(path, page(&curves, common.seed.unwrap_or(1))?.as_bytes())?;
    }
    Ok(Ended::Done)
}

/// The curves: throughput by load, latency, and what is left of the core.
fn table(curves: &[(Way, Vec<Measured>)]) -> String {
    let mut text = format!(
        "{:.0} us of work a packet: capacity {:.0} packets/s\n",
        WORK.as_secs_f64() * 1e6,
        capacity()
    );
    let Some((_, first)) = curves.first() else { return text };
    let loads: String = first.iter().map(|one| format!("{:>6}", one.load)).collect();
    text += &format!(
        "{:24}{loads}   p99 at 0.5  at most  left at 0.5  at most\n",
        "processed, of capacity, at"
    );
    for (way, all) in curves {
        let each: String =
            all.iter().map(|one| format!("{:>6.2}", one.rate() / capacity())).collect();
        let half = all.iter().find(|one| one.load == 0.5);
        let (half, last) = (half.or(all.first()), all.last());
        let p99 = |one: Option<&Measured>| {
            one.map_or(String::new(), |one| figures::time_cell(one.taken.p99))
        };
        let left =
            |one: Option<&Measured>| one.map_or(0.0, |one: &Measured| 100.0 * one.around.left);
        text += &format!(
            "{:26}{each}   {:>10} {:>8} {:>9.0} % {:>6.0} %\n",
            way.name,
            p99(half),
            p99(last),
            left(half),
            left(last)
        );
    }
    let sent = curves.iter().flat_map(|(_, all)| all.last()).map(Measured::offered);
    let most = sent.fold(0.0, f64::max);
    text + &format!("the source sent at most {:.2} times the capacity\n", most / capacity())
}

/// This machine, its model, and that of 1997, on one page.
fn page(curves: &[(Way, Vec<Measured>)], seed: u64) -> Result<String, Complaint> {
    let today = crate::repro::today(None)?;
    let then = Machine::of_1997();
    let here: Vec<Curve> = curves
        .iter()
        .map(|(way, all)| Curve {
            name: way.name,
            era: way.era(),
            points: all.iter().map(Measured::point).collect(),
        })
        .collect();
    let mut live = Machine { what: "this machine, measured".to_owned(), ..then.clone() };
    live.setup.costs =
        Costs { application: Duration::from_secs_f64(WORK.as_secs_f64()), ..Costs::NOTHING };
    let ways = || of_1997().into_iter();
    let modelled: Vec<Curve> =
        ways().chain(of_today()).map(|way| sweep::curve(&today, &way, seed)).collect();
    let before: Vec<Curve> = ways().map(|way| sweep::curve(&then, &way, seed)).collect();
    Ok(chart::html(&[(&live, &here), (&today, &modelled), (&then, &before)]))
}
