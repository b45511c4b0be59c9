//! `lastmeter bench failover`: hosts on two networks, the first with two paths; each link and each switch fails.
//!
//! ```text
//!           .-w1- a -w3-.
//! alice -w0- s1         s2 -w5- bob      the first network: s1 and s2 change over from a to b
//!      |    '-w2- b -w4-'        |
//!      '-------w6- ether -w7-----'       the second: alice and bob change over from w0, w5 to it
//! ```
//!
//! All are network namespaces, their links veth pairs, their routes the kernel's. A link fails silently: its far end
//! is taken down, and nobody is told. Who decides is the model's machine
//! ([`Dual`](lastmeter_repro::machines::failover::Dual)) in a process of each node. What is measured is for how long
//! alice's questions, one each millisecond, get no answer.
//!
//! Rows: N-47, N-48.

mod part;

use crate::{Common, Complaint, Ended, output};
use lastmeter_base::Duration;
use lastmeter_linux::{Doing, cores, wrong};
use lastmeter_live::site::Site;
use lastmeter_rtc::Epoch;
pub(crate) use part::TASK;
use part::{ANSWERS, EVERY, Probing, Report};
pub(super) use part::{Homed, Job, Word, ip};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration as Wait;

/// The nodes and the links between them, as drawn.
const NODES: [&str; 7] = ["alice", "bob", "s1", "s2", "a", "b", "ether"];
const ALICE: usize = 0;
const BOB: usize = 1;
const S1: usize = 2;
const S2: usize = 3;
const A: usize = 4;
const B: usize = 5;
const ETHER: usize = 6;
const LINKS: [[usize; 2]; 8] =
    [[ALICE, S1], [S1, A], [S1, B], [A, S2], [B, S2], [S2, BOB], [ALICE, ETHER], [ETHER, BOB]];
/// The end of each link that is taken down: that of a switch.
const FAR: [usize; 8] = [S1, A, B, A, B, S2, ETHER, ETHER];
const MTU: u32 = 1500;

/// Probes between the switches and between the hosts: in this time each, and so many unanswered mean a failure. The
/// switches are quicker, so that hosts stay where a path is left.
const SWITCHES: (Duration, u32) = (Duration::from_ms(20), 3);
const HOSTS: (Duration, u32) = (Duration::from_ms(100), 3);
/// From when everybody is ready until the first question.
const PREPARES: Wait = Wait::from_millis(200);
/// Before a failure, while it lasts, and until everything is as before.
const BEFORE: Wait = Wait::from_millis(400);
const FAILED: Wait = Wait::from_millis(900);
const AFTER: Wait = Wait::from_millis(700);

/// The result of one failure.
#[derive(Clone, Debug, Serialize)]
struct Failure {
    /// Always `lastmeter.failover/1`.
    schema: &'static str,
    /// The link or the switch.
    failed: String,
    /// Who changed over because of it.
    changed: Vec<&'static str>,
    /// Who should have.
    expected: Vec<&'static str>,
    /// Seconds without an answer.
    silent: f64,
    /// The longest that the model allows; without a change, the time between two questions.
    bound: f64,
    /// Whether answers came again before the repair.
    survived: bool,
}

/// The routes that lead to the hosts' own addresses, and to those which they probe.
fn to_alice(via: Ipv4Addr) -> String {
    format!("route replace 10.80.0.1/32 via {via}\n")
}
fn to_bob(via: Ipv4Addr) -> String {
    format!("route replace 10.80.0.2/32 via {via}\n")
}

fn own(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 80, 0, host as u8 + 1)
}

/// What each node does; `at` has the addresses of the links' ends.
fn jobs(at: &[[Ipv4Addr; 2]]) -> Vec<Job> {
    let net = |link: usize, via: Ipv4Addr| format!("route replace 10.79.{link}.0/24 via {via}\n");
    // From s1 towards bob over a or b, and from s2 towards alice.
    let east = |via: Ipv4Addr| to_bob(via) + &net(5, via);
    let west = |via: Ipv4Addr| to_alice(via) + &net(0, via);
    let middle = |left: usize, right: usize| west(at[left][0]) + &east(at[right][1]);
    let with_own =
        |host: usize, routes: String| format!("address add {}/32 dev lo\n{routes}", own(host));
    let from = |host: usize, via: Ipv4Addr| {
        let to = own(1 - host);
        format!("route replace {to}/32 via {via} src {}\n", own(host))
    };
    let probing = |ends, (every, misses): (Duration, u32), routes| {
        Some(Probing { ends, every: every.as_ps() / 1_000_000, misses, routes })
    };
    let job = |routes, probing| Job { probing, ..Job::routes(routes) };
    let mut jobs = vec![job(String::new(), None); NODES.len()];
    let alice = [from(ALICE, at[0][1]), from(ALICE, at[6][1])];
    let bob = [from(BOB, at[5][0]), from(BOB, at[7][0])];
    let ends = [at[0][0], at[5][1]];
    jobs[ALICE] = Job {
        asks: Some([own(ALICE), own(BOB)]),
        ..job(with_own(ALICE, alice[0].clone() + &net(5, at[0][1])), probing(ends, HOSTS, alice))
    };
    jobs[BOB] = Job {
        answers: Some(own(BOB)),
        ..job(
            with_own(BOB, bob[0].clone() + &net(0, at[5][0])),
            probing([ends[1], ends[0]], HOSTS, bob),
        )
    };
    // s1 probes the end of a's other link at s2, and s2 the end of a's first link at s1.
    let ends = [at[1][0], at[3][1]];
    let (s1, s2) = ([east(at[1][1]), east(at[2][1])], [west(at[3][0]), west(at[4][0])]);
    jobs[S1] = job(to_alice(at[0][0]) + &s1[0] + &net(3, at[1][1]), probing(ends, SWITCHES, s1));
    jobs[S2] = job(
        to_bob(at[5][1]) + &s2[0] + &net(1, at[3][0]),
        probing([ends[1], ends[0]], SWITCHES, s2),
    );
    jobs[A] = job(middle(1, 3), None);
    jobs[B] = job(middle(2, 4), None);
    jobs[ETHER] = job(to_alice(at[6][0]) + &to_bob(at[7][1]), None);
    jobs
}

/// What fails: its name, the ends that are taken down (node and link), who must change over.
type Fails = (String, Vec<(usize, usize)>, Vec<usize>);

/// Each link and each switch, or a few of them.
fn failures(quick: bool) -> Vec<Fails> {
    let changes = |link: usize| match link {
        0 | 5 => vec![ALICE, BOB],
        1 | 3 => vec![S1, S2],
        _ => Vec::new(),
    };
    let links = (0..LINKS.len()).map(|link| {
        let [x, y] = LINKS[link].map(|end| NODES[end]);
        (format!("{x}-{y}"), vec![(FAR[link], link)], changes(link))
    });
    let switches = [S1, A, B, S2, ETHER].map(|switch| {
        let of_it = (0..LINKS.len()).filter(|&link| LINKS[link].contains(&switch));
        let changes = match switch {
            // Its own prober goes on, finds no answers, and changes over as well.
            S1 | S2 => vec![ALICE, BOB, S1, S2],
            A => vec![S1, S2],
            _ => Vec::new(),
        };
        (NODES[switch].to_owned(), of_it.map(|link| (switch, link)).collect(), changes)
    });
    // A host's link, one of each path, the Ethernet's, and the switch of the path that is used.
    let is_chosen = |number: &usize| !quick || [0, 1, 2, 6, 9].contains(number);
    let all = links.chain(switches).enumerate();
    all.filter(|(number, _)| is_chosen(number)).map(|(_, failure)| failure).collect()
}

/// Lets each link and each switch fail, one after the other.
///
/// # Errors
/// The user may not make namespaces, or there is no `ip`.
fn measure(quick: bool, tell: &mut dyn FnMut(&str)) -> lastmeter_linux::Result<Vec<Failure>> {
    let names = NODES.map(str::to_owned);
    let mut site = Site::apart(&names)?;
    let mut at = Vec::new();
    for (number, ends) in LINKS.into_iter().enumerate() {
        at.push(site.join(number as u8, ends, MTU)?);
    }
    let jobs = jobs(&at);
    for (node, job) in jobs.iter().enumerate() {
        site.begin::<Homed>(node, job)?;
    }
    let epoch = Epoch::after(PREPARES);
    for node in 0..NODES.len() {
        site.tell::<Homed>(node, &Word::Begin(epoch))?;
    }
    sleep(PREPARES);
    let now = || epoch.now().as_ps() / 1_000_000;
    let failures = failures(quick);
    let mut phases = Vec::new();
    for (failed, ends, _) in &failures {
        tell(failed);
        sleep(BEFORE);
        let from = now();
        for (node, link) in ends {
            set(&mut site, *node, &format!("link set w{link} down\n"))?;
        }
        sleep(FAILED);
        let to = now();
        for (node, link) in ends {
            set(&mut site, *node, &format!("link set w{link} up\n"))?;
        }
        // Routes over an interface go with it.
        for (node, _) in ends {
            set(&mut site, *node, &jobs[*node].routes_again())?;
        }
        sleep(AFTER);
        phases.push((from, to, now()));
    }
    let mut reports = Vec::new();
    for node in 0..NODES.len() {
        site.tell::<Homed>(node, &Word::End)?;
        reports.push(site.report::<Homed>(node)?);
    }
    let outcome = failures
        .iter()
        .zip(&phases)
        .map(|((failed, _, expected), phase)| outcome(failed, expected, *phase, &jobs, &reports));
    Ok(outcome.collect())
}

impl Job {
    /// Of a node that only forwards, by these lines for `ip`.
    pub(super) fn routes(routes: String) -> Job {
        Job { routes, probing: None, asks: None, answers: None }
    }

    /// The routes without the addresses, which stay.
    fn routes_again(&self) -> String {
        let lines = self.routes.lines().filter(|line| line.starts_with("route "));
        lines.map(|line| format!("{line}\n")).collect()
    }
}

/// Has `ip` do this in a namespace.
fn set(site: &mut Site, node: usize, lines: &str) -> lastmeter_linux::Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("printf '{lines}' | ip -batch -")]);
    let mut child = site.spawn(node, command, true, &cores::allowed()?)?;
    let status = child.wait().doing("waiting for `ip`")?;
    match status.success() {
        true => Ok(()),
        false => wrong("ip -batch", lines, "lines that the kernel accepts"),
    }
}

/// What came of a failure between two instants; `end` is when everything was as before.
fn outcome(
    failed: &str,
    expected: &[usize],
    (from, to, end): (u64, u64, u64),
    jobs: &[Job],
    reports: &[Report],
) -> Failure {
    let during = |at: u64| (from..to).contains(&at);
    let changed = (0..NODES.len())
        .filter(|&node| reports[node].changes.iter().any(|&(at, second)| second && during(at)));
    let bound = expected.iter().filter_map(|&node| jobs[node].probing.as_ref());
    let bound = bound.map(Probing::bound).max().unwrap_or(EVERY).as_secs_f64();
    let answered = &reports[ALICE].answered;
    // Silence begins with the last answer before the failure, if not later.
    let near: Vec<u64> = answered
        .iter()
        .copied()
        .filter(|at| (from.saturating_sub(BEFORE.as_micros() as u64)..end).contains(at))
        .collect();
    let silent = near.windows(2).filter(|pair| pair[1] >= from && pair[0] < to);
    let silent = silent.map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX / 2);
    Failure {
        schema: "lastmeter.failover/1",
        failed: failed.to_owned(),
        changed: changed.map(|node| NODES[node]).collect(),
        expected: expected.iter().map(|&node| NODES[node]).collect(),
        silent: silent as f64 * 1e-6,
        bound,
        survived: answered
            .iter()
            .any(|&at| during(at) && at >= from + (bound * 1e6) as u64 && at < to),
    }
}

/// Falls short if a failure is not survived.
pub(super) fn bench(common: &Common) -> Result<Ended, Complaint> {
    let quiet = common.json;
    let mut tell = |failed: &str| {
        if !quiet {
            output::note(&format!("{failed} fails"));
        }
    };
    let results = measure(common.quick, &mut tell)?;
    if !common.json {
        let every = |(every, misses): (Duration, u32)| format!("{misses} probes, one each {every}");
        output::print(&format!(
            "switches change over after {}, hosts after {}, and back after {ANSWERS} answers\n",
            every(SWITCHES),
            every(HOSTS)
        ));
        output::print("failed          changed over         no answer for   at most by the model");
    }
    for result in &results {
        let Failure { failed, changed, silent, bound, survived, .. } = result;
        let changed = if changed.is_empty() { "nobody".to_owned() } else { changed.join(" ") };
        let lost = if *survived { "" } else { "  NOT SURVIVED" };
        output::print(&match common.json {
            true => serde_json::to_string(result)?,
            false => format!(
                "{failed:<15} {changed:<20} {:>9.1} ms   {:>9.1} ms{lost}",
                1e3 * silent,
                1e3 * bound
            ),
        });
    }
    Ok(if results.iter().all(|one| one.survived) { Ended::Done } else { Ended::Short })
}
