//! Programs on the live VuNet: each runs at a host, and gets its pictures from cameras over switches and links (A-05).
//!
//! ```text
//! lastmeter live site.toml --film board.0=room.mp4 --in host.3 -- lastmeter media room vunet:board.0
//! ```
//!
//! `vunet:` and a camera's name in a program's words become the address at which its host shows that camera
//! ([`super::shows`]).

use super::net::{Id, Net};
use super::part::{Report, Request};
use super::plan::{Job, Offer, Plan, ViewPlan};
use super::shows::Shown;
use super::{Done, Lateness, Measured, Run, film, unexpected, used};
use crate::Complaint;
use crate::emulate::Started;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What names a camera among a program's words.
const SCHEME: &str = "vunet:";
/// How often it is looked whether programs have ended.
const LOOK: Duration = Duration::from_millis(20);

/// A program to run, at a client.
pub(super) struct Wanted {
    client: usize,
    words: Vec<String>,
    leads: bool,
    silent: bool,
}

/// A program that has run.
pub(super) struct Program {
    pub(super) host: String,
    pub(super) words: String,
    pub(super) leads: bool,
    /// As a shell reports it; `None` if it ran until the end.
    pub(super) status: Option<i32>,
}

/// A program that runs; it ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn status(&mut self) -> Result<Option<i32>, Complaint> {
        let status = self.0.try_wait()?;
        Ok(status.and_then(|it| it.code().or_else(|| it.signal().map(|signal| 128 + signal))))
    }
}

/// The cameras that programs may look at: those of which the file has traffic.
fn offers(plan: &Plan) -> Vec<Offer> {
    let camera = |view: &ViewPlan| plan.client(view.camera).map(|client| client.name.clone());
    let offer = |view: &ViewPlan| Some(Offer { camera: camera(view)?, view: view.clone() });
    plan.views.iter().filter_map(offer).collect()
}

/// Has cameras see films: `CAMERA=FILE` each.
pub(super) fn films(plan: &mut Plan, films: &[String]) -> Result<(), Complaint> {
    for text in films {
        let right = "write a camera and a film, like --film board.0=room.mp4";
        let (camera, path) = text
            .split_once('=')
            .ok_or_else(|| Complaint(format!("`{text}` does not name a film: {right}")))?;
        let path = std::path::Path::new(path);
        film::check(path).map_err(Complaint)?;
        let mut clients = plan.clients.iter_mut();
        let client = clients.find(|client| client.name == camera && client.board.is_some());
        let client = client.ok_or_else(|| {
            Complaint(format!("`{camera}` is no camera: name the `from` of vidboard traffic"))
        })?;
        client.film = Some(path.canonicalize()?);
    }
    Ok(())
}

/// Where programs run: those of no host at the first that the file has look at a camera.
pub(super) fn places(plan: &Plan, started: Vec<Started>) -> Result<Vec<Wanted>, Complaint> {
    let place = |one: Started| {
        let first = || plan.client(plan.views.first()?.host).map(|client| client.name.clone());
        let name = one.host.clone().or_else(first).unwrap_or_default();
        let client = plan.clients.iter().position(|it| it.name == name && it.board.is_none());
        let client = client.ok_or_else(|| {
            Complaint(format!("programs cannot run at `{name}`: name a host that is no camera"))
        })?;
        let words = one.words.iter().map(|word| addressed(plan, client, word));
        let words = words.collect::<Result<_, _>>()?;
        Ok(Wanted { client, words, leads: one.leads, silent: one.silent })
    };
    started.into_iter().map(place).collect()
}

/// A word with the addresses of the cameras that it names.
fn addressed(plan: &Plan, client: usize, word: &str) -> Result<String, Complaint> {
    let (mut parts, offers) = (word.split(SCHEME), offers(plan));
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_name = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
        let end = part.find(|letter| !is_of_name(letter)).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let Some(offer) = offers.iter().find(|offer| offer.camera == name) else {
            let known: Vec<&str> = offers.iter().map(|offer| offer.camera.as_str()).collect();
            let known = known.join(", ");
            return Err(Complaint(format!("{SCHEME}{name}: there are cameras {known}")));
        };
        if !offer.view.is_grey() {
            return Err(Complaint(format!(
                "{SCHEME}{name}: programs take pictures of depth 8: `{}` has another",
                offer.view.name
            )));
        }
        let port = Net::shows_at(&plan.clients[client]);
        text += &format!("http://127.0.0.1:{port}/{name}{rest}");
    }
    Ok(text)
}

impl Run<'_> {
    /// Runs programs until the leading one ends, or all; what was measured, and who saw which camera.
    pub(super) fn programs(
        &mut self,
        wanted: &[Wanted],
    ) -> Result<(Measured, Vec<ViewPlan>), Complaint> {
        let (plan, offers) = (self.plan, offers(self.plan));
        self.note("discovery");
        let (discovered, wrong) = self.discovery()?;
        let mut hosts: Vec<usize> = wanted.iter().map(|one| one.client).collect();
        hosts.sort_unstable();
        hosts.dedup();
        for &host in &hosts {
            let port = Net::shows_at(&plan.clients[host]);
            let Done::Listening = self.job(host, Job::Listen { port })? else {
                return Err(unexpected());
            };
        }
        self.note("programs");
        let before = self.net.reports()?;
        for &host in &hosts {
            self.begin(host, Job::Show { offers: offers.clone() })?;
        }
        let programs = self.run_all(wanted)?;
        let (mut views, mut shown) = (Vec::new(), Vec::<Shown>::new());
        let mut reports = std::collections::BTreeMap::new();
        for &host in &hosts {
            // Another request ends the show; both are answered.
            self.net.get(Id::Client(host))?.begin(&Request::Report)?;
            let Done::Shown(all) = self.end(host)? else { return Err(unexpected()) };
            let report: Report = self.net.get(Id::Client(host))?.end()?;
            reports.insert(Id::Client(host), report);
            for one in all {
                let offer = offers.iter().find(|offer| offer.view.name == one.view);
                let mut view = offer.ok_or_else(unexpected)?.view.clone();
                view.host = plan.clients[host].number;
                views.push(view);
                shown.push(one);
            }
        }
        reports.extend(self.net.reports()?);
        let (cpu, lasted) = used(&before, &reports);
        let mut late = Lateness::default();
        reports.values().for_each(|report| late += &report.late);
        let switch = |(place, switch): (usize, &super::plan::SwitchPlan)| {
            let id = Id::Switch(place);
            let cells = |all: &std::collections::BTreeMap<Id, Report>| {
                all.get(&id).map_or(0, |report| report.passed.received)
            };
            (switch.name.clone(), cells(&reports).saturating_sub(cells(&before)))
        };
        let measured = Measured {
            discovered,
            wrong,
            seen: shown.iter().map(|one| one.seen.clone()).collect(),
            cpu,
            lasted,
            duration: lasted,
            late,
            programs,
            shown,
            crossed: plan.switches.iter().enumerate().map(switch).collect(),
            reports,
            ..Measured::default()
        };
        Ok((measured, views))
    }

    fn run_all(&mut self, wanted: &[Wanted]) -> Result<Vec<Program>, Complaint> {
        let plan = self.plan;
        let mut running = Vec::new();
        for one in wanted {
            let (program, arguments) = one.words.split_first().ok_or("there is no command")?;
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::null());
            if one.silent {
                command.stdout(Stdio::null());
            }
            running.push(Running(self.net.program(&plan.clients[one.client], command)?));
        }
        let led = wanted.iter().any(|one| one.leads);
        let began = Instant::now();
        loop {
            self.go_on()?;
            let statuses =
                running.iter_mut().map(Running::status).collect::<Result<Vec<_>, _>>()?;
            let mut both = wanted.iter().zip(&statuses);
            if both.all(|(one, status)| status.is_some() || (led && !one.leads)) {
                self.note(&format!("{:.1} s", began.elapsed().as_secs_f64()));
                let program = |(one, status): (&Wanted, Option<i32>)| Program {
                    host: plan.clients[one.client].name.clone(),
                    words: one.words.join(" "),
                    leads: one.leads || !led,
                    status,
                };
                return Ok(wanted.iter().zip(statuses).map(program).collect());
            }
            std::thread::sleep(LOOK);
        }
    }
}
