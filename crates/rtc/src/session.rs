//! A live run: a process in a network namespace for each node of a plan, and their reports.
//!
//! ```text
//! [ node 0 ] 10.79.0.1 ----link 0---- 10.79.0.2 [ node 1 ] 10.79.1.1 ----link 1---- 10.79.1.2 [ node 2 ]
//! ```
//!
//! Each link is a veth pair, and each namespace ends with the process that holds it ([`Site`]).

use crate::clock::Epoch;
use crate::datagram::{HEADER_LEN, TAG_LEN};
use crate::part::{Job, Part, Playing, Word};
use crate::plan::{BEGINS, Plan};
use crate::simulation::Outcome;
use lastmeter_linux::Result;
use lastmeter_linux::link::MTU_MAX;
use lastmeter_live::namespace::Isolation;
use lastmeter_live::site::Site;
use lastmeter_transport::channel::message::Node as NodeId;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The port of every host.
const PORT: u16 = 7766;
/// From when all hosts listen until the epoch.
const PREPARES: Duration = Duration::from_millis(200);
/// How long after the end of a run its hosts may take to report.
const LAST: Duration = Duration::from_secs(2);
/// How often the run checks whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// Headers of IPv4 and UDP.
const HEADERS_LEN: usize = 28;
/// The least MTU of a link.
const MTU_LEAST: u32 = 1500;

/// The result of a live run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What each flow did.
    pub flows: Vec<Outcome>,
    /// What each host saw.
    pub hosts: Vec<Part>,
    /// How the hosts are isolated.
    pub isolation: Isolation,
    /// Whether it was stopped early.
    pub stopped: bool,
}

/// Runs a plan in namespaces of its own, until its end or until told to stop.
///
/// # Errors
/// The plan is impossible, or the user may not make namespaces.
pub fn run(plan: &Plan, stop: &dyn Fn() -> bool) -> Result<Measured> {
    plan.check()?;
    // Only root may enlarge the kernel's buffers for what arrives while a host sleeps.
    let mut site = match rustix::process::geteuid().is_root() {
        true => Site::apart_as(&plan.nodes, Isolation::Root)?,
        false => Site::apart(&plan.nodes)?,
    };
    let mut links = Vec::new();
    for (number, line) in plan.links.iter().enumerate() {
        let longest = line.packet_max as usize + HEADER_LEN + TAG_LEN + HEADERS_LEN;
        let mtu = (longest as u32).clamp(MTU_LEAST, MTU_MAX);
        links.push(site.join(number as u8, line.ends.map(|end| end as usize), mtu)?);
    }
    let hosts = 0..plan.nodes.len();
    for host in hosts.clone() {
        site.begin::<Playing>(host, &job(plan, host as NodeId, &links))?;
    }
    let begin = Word::Begin(Epoch::after(PREPARES));
    for host in hosts.clone() {
        site.tell::<Playing>(host, &begin)?;
    }
    let length = Duration::from_nanos((BEGINS.as_ps() + plan.length) / 1000) + PREPARES + LAST;
    let began = std::time::Instant::now();
    let mut stopped = false;
    while began.elapsed() < length && !stopped {
        std::thread::sleep(LOOK);
        stopped = stop();
    }
    if stopped {
        // A host that has already ended ignores it.
        hosts.clone().for_each(|host| drop(site.tell::<Playing>(host, &Word::End)));
    }
    let parts = hosts.map(|host| site.report::<Playing>(host)).collect::<Result<Vec<Part>>>()?;
    let mut flows = vec![Outcome::default(); plan.flows.len()];
    for part in &parts {
        for (&flow, sent) in &part.sent {
            flows[flow].sent = sent.clone();
        }
        for (&flow, received) in &part.received {
            flows[flow].received = received.clone();
        }
    }
    Ok(Measured { flows, hosts: parts, isolation: site.isolation(), stopped })
}

/// What a node has to know; links have these addresses.
fn job(plan: &Plan, node: NodeId, links: &[[Ipv4Addr; 2]]) -> Job {
    let neighbours = plan
        .neighbours(node)
        .map(|(to, link, side)| (to, SocketAddr::from((links[link][1 - side], PORT))));
    let neighbours = neighbours.collect();
    // Nobody but the neighbours reaches this namespace.
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    Job { plan: plan.clone(), node, listen, neighbours }
}
