//! `lastmeter live` of an experiment with a VuNet: its switches, links, appliances and hosts as processes that exchange
//! cells, beside the model of the same file.
//!
//! | phase | what |
//! |---|---|
//! | discovery | one host's daemon, then all others at once (A-72) |
//! | set-up | one host along the longest way, by the application and hop by hop in turn (A-69) |
//! | video | every viewer at once, on its own map; the model beside it (A-01, A-89) |
//! | restart | half a link is killed under numbered cells, and started again (A-71) |
//! | switch | a switch alone, with hosts that send as much as they can (A-24) |
//!
//! With programs of the user's, they take the place of all but discovery ([`programs`], A-05).

mod board;
mod file;
mod film;
mod host;
mod line;
mod model;
mod net;
pub(crate) mod part;
mod plan;
mod probe;
mod programs;
mod report;
mod shows;

pub(super) use plan::is_vunet;

use crate::emulate::Started;
use crate::world::Disk;
use crate::{Common, Complaint, Ended, output, results};
use host::{Counted, Discovered, Done, Once, Seen, Streamed};
use lastmeter_engine::Control;
use lastmeter_lab::experiment::Experiment;
use line::Lateness;
use net::{Id, Net};
use part::{Report, Request};
use plan::{Job, Plan};
use programs::Program;
use shows::Shown;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Connections made at each distance, each way; and with `--quick`.
const TIMES: (u32, u32) = (40, 10);
/// How often the refresher verifies, in ns, in the phase of the restart.
const REFRESH: u64 = 1_000_000_000;
/// How often a numbered cell leaves, in ns.
const EVERY: u64 = 1_000_000;
/// When half a link is killed, and for how long it is gone, in ns.
const KILLED_AT: u64 = 1_300_000_000;
const GONE: u64 = 300_000_000;
/// How long numbered cells are sent, in ns.
const STREAM: u64 = 4_000_000_000;
/// How long a switch alone is measured, in ns; and with `--quick`.
const BLAST: (u64, u64) = (1_000_000_000, 200_000_000);

/// Set-up along ways of this many links.
pub(super) struct Distance {
    links: usize,
    wide: bool,
    application: Vec<Once>,
    hop_by_hop: Vec<Once>,
    failed: u32,
    /// Cells of the application, with the ping.
    cells: usize,
    /// The same in the model, in seconds.
    model: Option<f64>,
}

/// Half a link that was killed.
pub(super) struct Restart {
    link: String,
    links: usize,
    /// Instants of the run's clock, in ns.
    killed: u64,
    restarted: u64,
    streamed: Streamed,
    counted: Counted,
}

/// A switch alone.
pub(super) struct Alone {
    ports: usize,
    /// Cells in a datagram.
    cells: usize,
    sent: u64,
    received: u64,
    /// Seconds, and CPU seconds of the switch in them.
    lasted: f64,
    cpu: f64,
}

/// All that was measured.
#[derive(Default)]
pub(super) struct Measured {
    discovered: Discovered,
    /// Hosts that have found something else than what the file says.
    wrong: Vec<String>,
    distances: Vec<Distance>,
    seen: Vec<Seen>,
    modelled: BTreeMap<String, BTreeMap<String, u64>>,
    /// During the video: CPU seconds by kind of process, and how long it was.
    cpu: BTreeMap<&'static str, f64>,
    lasted: f64,
    /// Seconds for which frames were counted.
    duration: f64,
    restart: Option<Restart>,
    alone: Vec<Alone>,
    reports: BTreeMap<Id, Report>,
    late: Lateness,
    /// Programs, what they were shown, and how many cells each switch took meanwhile.
    programs: Vec<Program>,
    shown: Vec<Shown>,
    crossed: Vec<(String, u64)>,
}

/// What the user has besides the experiment.
pub(super) struct Wishes<'a> {
    pub(super) out: Option<&'a Path>,
    /// `CAMERA=FILE` each.
    pub(super) films: &'a [String],
    pub(super) programs: Vec<Started>,
}

pub(super) fn live(
    common: &Common,
    experiment: &Experiment,
    wishes: Wishes<'_>,
    disk: &Disk,
    control: &Arc<Control>,
) -> Result<Ended, Complaint> {
    let mut plan = Plan::of(experiment)?;
    programs::films(&mut plan, wishes.films)?;
    let wanted = programs::places(&plan, wishes.programs)?;
    let folder = Folder::new()?;
    let mut run = Run { common, plan: &plan, net: Net::start(&plan, &folder.0)?, control };
    run.note(&format!("{} processes in {} namespaces", run.net.parts.len(), plan.namespaces()));
    let measured = if wanted.is_empty() {
        run.all(experiment, disk, &folder.0)?
    } else {
        let (measured, views) = run.programs(&wanted)?;
        drop(run);
        plan.views = views;
        measured
    };
    let report = report::Report::new(experiment, &plan, &measured);
    match common.json {
        true => output::print(&format!("{:#}", report.json())),
        false => output::print(&report.words()),
    }
    results::offer(wishes.out, &report.ledger)?;
    let mut leaders = measured.programs.iter().filter(|one| one.leads);
    let failed = leaders.find_map(|one| one.status.filter(|&status| status != 0));
    Ok(match failed {
        Some(status) => Ended::Status(status as u8),
        None if report.good => Ended::Done,
        None => Ended::Short,
    })
}

struct Run<'a> {
    common: &'a Common,
    plan: &'a Plan,
    net: Net,
    control: &'a Arc<Control>,
}

impl Run<'_> {
    fn note(&self, words: &str) {
        if !self.common.json {
            output::note(words);
        }
    }

    fn all(
        &mut self,
        experiment: &Experiment,
        disk: &Disk,
        folder: &Path,
    ) -> Result<Measured, Complaint> {
        self.note("discovery");
        let (discovered, wrong) = self.discovery()?;
        self.note("set-up");
        let distances = self.set_up(disk)?;
        self.note("video");
        let before = self.net.reports()?;
        let lasts = experiment.duration.as_ps() / 1000;
        let seen = self.video(lasts)?;
        let reports = self.net.reports()?;
        let (cpu, lasted) = used(&before, &reports);
        let mut late = Lateness::default();
        reports.values().for_each(|report| late += &report.late);
        self.note("the model");
        let modelled = model::viewers(experiment, disk, self.control)?;
        self.note("restart");
        let restart = self.restart()?;
        self.note("a switch alone");
        let alone = self.alone(folder)?;
        Ok(Measured {
            discovered,
            wrong,
            distances,
            seen,
            modelled,
            cpu,
            lasted,
            restart,
            alone,
            reports,
            late,
            duration: experiment.duration.as_secs_f64(),
            ..Measured::default()
        })
    }

    fn go_on(&self) -> Result<(), Complaint> {
        match self.control.stopped() {
            true => Err(Complaint("interrupted; nothing is left behind".into())),
            false => Ok(()),
        }
    }

    /// Hosts, by their place among clients.
    fn hosts(&self) -> Vec<usize> {
        let clients = self.plan.clients.iter().enumerate();
        clients.filter(|(_, client)| client.board.is_none()).map(|(place, _)| place).collect()
    }

    fn job(&mut self, client: usize, job: Job) -> Result<Done, Complaint> {
        self.go_on()?;
        let done = self.net.get(Id::Client(client))?.ask(&Request::Job(job))?;
        sound(done)
    }

    fn begin(&mut self, client: usize, job: Job) -> Result<(), Complaint> {
        self.go_on()?;
        self.net.get(Id::Client(client))?.begin(&Request::Job(job))
    }

    fn end(&mut self, client: usize) -> Result<Done, Complaint> {
        sound(self.net.get(Id::Client(client))?.end()?)
    }

    fn discovery(&mut self) -> Result<(Discovered, Vec<String>), Complaint> {
        let hosts = self.hosts();
        let Some((&first, others)) = hosts.split_first() else {
            return Err(Complaint("a live VuNet needs a host that is not a camera".into()));
        };
        let Done::Discovered(discovered) = self.job(first, Job::Discover)? else {
            return Err(unexpected());
        };
        let mut all = vec![(first, self.is_right(&discovered))];
        others.iter().try_for_each(|&host| self.begin(host, Job::Discover))?;
        for &host in others {
            let Done::Discovered(found) = self.end(host)? else { return Err(unexpected()) };
            all.push((host, self.is_right(&found)));
        }
        let wrong = all.into_iter().filter(|(_, right)| !right);
        let name = |(host, _): (usize, bool)| self.plan.clients[host].name.clone();
        Ok((discovered, wrong.map(name).collect()))
    }

    /// Whether a daemon has found exactly what the file says.
    fn is_right(&self, found: &Discovered) -> bool {
        type Ports = BTreeMap<u8, (u16, Option<u8>)>;
        let mut expected: Vec<Ports> = self
            .plan
            .switches
            .iter()
            .map(|switch| {
                let of = |(port, attached): (usize, &Option<plan::Attached>)| {
                    let what = match (*attached)? {
                        plan::Attached::Link(link, end) => {
                            (self.plan.links[link].number, Some(end as u8))
                        }
                        plan::Attached::Client(place) => (self.plan.clients[place].number, None),
                    };
                    Some((port as u8, what))
                };
                switch.ports.iter().enumerate().filter_map(of).collect()
            })
            .collect();
        let mut found = found.switches.clone();
        expected.sort_unstable();
        found.sort_unstable();
        expected == found
    }

    /// Set-up at every distance along the longest way, and across the wide area.
    fn set_up(&mut self, disk: &Disk) -> Result<Vec<Distance>, Complaint> {
        let host = self.hosts()[0];
        let plan = self.plan;
        let way = plan.longest(plan.clients[host].switch);
        let at = |switch: usize| {
            let mut places = 0..plan.clients.len();
            places.find(|&place| place != host && plan.clients[place].switch == switch)
        };
        let mut ways: Vec<(Vec<usize>, bool)> =
            (1..=way.len()).map(|switches| (way[..switches].to_vec(), false)).collect();
        for link in &plan.links {
            let ends = link.ends.map(|(switch, _)| switch);
            let far = match ends {
                _ if link.wide.is_none() => None,
                [a, b] if a == way[0] => Some(b),
                [a, b] if b == way[0] => Some(a),
                _ => None,
            };
            ways.extend(far.map(|far| (vec![way[0], far], true)));
        }
        let mut distances = Vec::new();
        for (way, wide) in ways {
            let last = *way.last().expect("a way has a switch");
            let Some(ports) = at(last).and_then(|peer| plan.way(host, peer, &way)) else {
                continue;
            };
            let times = if self.common.quick { TIMES.1 } else { TIMES.0 };
            let job = Job::SetUp { ports, times };
            let Done::SetUp { application, hop_by_hop, failed, cells } = self.job(host, job)?
            else {
                return Err(unexpected());
            };
            let links = way.len() - 1;
            let model = match wide {
                true => None,
                false => Some(model::set_up(links, disk, self.control)?),
            };
            distances.push(Distance { links, wide, application, hop_by_hop, failed, cells, model });
        }
        Ok(distances)
    }

    fn video(&mut self, lasts: u64) -> Result<Vec<Seen>, Complaint> {
        let plan = self.plan;
        let place = |number: u16| {
            let found = plan.clients.iter().position(|client| client.number == number);
            found.expect("viewers are clients")
        };
        let viewers: Vec<usize> = plan.views.iter().map(|view| place(view.host)).collect();
        for (view, &host) in plan.views.iter().zip(&viewers) {
            self.begin(host, Job::View { plan: view.clone(), lasts })?;
        }
        let mut seen = Vec::new();
        for &host in &viewers {
            let Done::Viewed(one) = self.end(host)? else { return Err(unexpected()) };
            seen.push(one);
        }
        Ok(seen)
    }

    /// Kills the last link's half at the far end of a way, while cells pass it.
    fn restart(&mut self) -> Result<Option<Restart>, Complaint> {
        let (hosts, plan) = (self.hosts(), self.plan);
        let from = hosts[0];
        let way = plan.longest(plan.clients[from].switch);
        let far = |&place: &usize| {
            let at = plan.clients[place].switch;
            way.iter().position(|&switch| switch == at).filter(|&links| links > 0)
        };
        // The farthest host within four links: every further link costs one verification more.
        let near = hosts.iter().copied().filter_map(|place| Some((far(&place)?, place)));
        let Some((links, to)) = near.filter(|(links, _)| *links <= 4).max() else {
            return Ok(None);
        };
        let ports = plan.way(from, to, &way[..=links]).ok_or_else(unexpected)?;
        let last = way[links];
        let find = plan.links.iter().enumerate().find_map(|(place, link)| {
            let ends = link.ends.map(|(switch, _)| switch);
            let joins = ends.contains(&last) && ends.contains(&way[links - 1]);
            (joins && link.wide.is_none()).then(|| (place, usize::from(ends[1] == last)))
        });
        let (link, end) = find.ok_or_else(unexpected)?;
        let id = Id::Half(link, end);
        self.job(to, Job::Counted)?;
        self.begin(from, Job::Stream { ports, every: EVERY, refresh: REFRESH, lasts: STREAM })?;
        std::thread::sleep(Duration::from_nanos(KILLED_AT));
        let killed = self.net.clock.now();
        self.net.kill(id);
        std::thread::sleep(Duration::from_nanos(GONE));
        self.net.spawn(id)?;
        let restarted = self.net.clock.now();
        let Done::Streamed(streamed) = self.end(from)? else { return Err(unexpected()) };
        let Done::Counted(counted) = self.job(to, Job::Counted)? else {
            return Err(unexpected());
        };
        let link = plan.links[link].name.clone();
        Ok(Some(Restart { link, links, killed, restarted, streamed, counted }))
    }

    fn alone(&mut self, folder: &Path) -> Result<Vec<Alone>, Complaint> {
        let lasts = if self.common.quick { BLAST.1 } else { BLAST.0 };
        let mut all = Vec::new();
        for (ports, cells) in [(4, 1), (4, 64), (6, 64)] {
            self.go_on()?;
            let mut parts = self.net.alone(ports, folder)?;
            let (switch, hosts) = parts.split_first_mut().ok_or_else(unexpected)?;
            let before: Report = switch.ask(&Request::Report)?;
            for (host, next) in hosts.iter_mut().zip(1..) {
                let port = (next % ports) as u8;
                host.begin(&Request::Job(Job::Blast { port, cells, lasts }))?;
            }
            let (mut sent, mut received, mut lasted) = (0, 0, 0);
            for host in hosts {
                let Done::Blasted { sent: one, received: other, lasted: ns } = sound(host.end()?)?
                else {
                    return Err(unexpected());
                };
                sent += one;
                received += other;
                lasted = lasted.max(ns);
            }
            let after: Report = switch.ask(&Request::Report)?;
            let (lasted, cpu) = (lasted as f64 / 1e9, (after.cpu - before.cpu) as f64 / 1e9);
            all.push(Alone { ports, cells, sent, received, lasted, cpu });
        }
        Ok(all)
    }
}

fn sound(done: Done) -> Result<Done, Complaint> {
    match done {
        Done::Failed(words) => Err(Complaint(format!("a host of the network: {words}"))),
        done => Ok(done),
    }
}

fn unexpected() -> Complaint {
    Complaint("a process of the network has answered something else".into())
}

/// CPU seconds by kind of process between two reports, and how long that was.
fn used(
    before: &BTreeMap<Id, Report>,
    after: &BTreeMap<Id, Report>,
) -> (BTreeMap<&'static str, f64>, f64) {
    let (mut cpu, mut lasted) = (BTreeMap::new(), 0.0_f64);
    for (id, report) in after {
        let Some(old) = before.get(id) else { continue };
        let kind = match id {
            Id::Switch(_) => "switches",
            Id::Half(..) => "links",
            Id::Wide(_) => "wide area",
            Id::Client(_) => "appliances and hosts",
        };
        *cpu.entry(kind).or_insert(0.0) += (report.cpu - old.cpu) as f64 / 1e9;
        lasted = lasted.max((report.now - old.now) as f64 / 1e9);
    }
    (cpu, lasted)
}

/// A folder for the files of the hosts, which ends with the run.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Result<Folder, Complaint> {
        let path = std::env::temp_dir().join(format!("lastmeter-vunet-{}", std::process::id()));
        lastmeter_linux::files::private_folder(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
