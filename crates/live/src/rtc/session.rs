//! A live run: a process in a network namespace for each node of a plan, and what they have to say at their end.
//!
//! ```text
//! [ node 0 ] lm0 10.92.0.1 ---- 10.92.0.2 lm0 [ node 1 ] lm1 10.92.1.1 ---- 10.92.1.2 lm1 [ node 2 ]
//! ```
//!
//! Link number `n` is the network 10.92.n.0/24 and the interface `lm<n>` at both ends. The namespaces have no names,
//! and go with their processes.

use super::clock::Epoch;
use super::datagram::{HEADER_LEN, TAG_LEN};
use super::part::{Job, Part};
use super::plan::{BEGINS, Plan};
use super::simulation::Outcome;
use crate::error::Result;
use crate::link::{MTU_MAX, MTU_MIN};
use crate::namespace::{Enter, Isolation, with_fewest_privileges};
use crate::worker::{Reply, Request, Worker, reply};
use lastmeter_transport::channel::message::Node as NodeId;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The port of every host.
const PORT: u16 = 7766;
/// From when all hosts listen to the epoch.
const PREPARES: Duration = Duration::from_millis(200);
/// How long after the end of a run its hosts may take to say what they saw.
const LAST: Duration = Duration::from_secs(2);
/// How often the run looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// Headers of IPv4 and UDP.
const HEADERS_LEN: usize = 28;

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
    let open = |isolation| Ok((isolation, hosts(plan, isolation)?));
    // Only root gets more room in the kernel for what arrives while a host sleeps.
    let (isolation, mut hosts) = match rustix::process::geteuid().is_root() {
        true => open(Isolation::Root)?,
        false => with_fewest_privileges("making namespaces for channels", open)?,
    };
    for (node, host) in hosts.iter_mut().enumerate() {
        let job = Box::new(job(plan, node as NodeId));
        host.done(&Request::Channels(job))?;
    }
    let epoch = Epoch::after(PREPARES);
    for host in &mut hosts {
        host.ask(&Request::Begin(epoch))?;
    }
    let length = Duration::from_nanos((BEGINS.as_ps() + plan.length) / 1000) + PREPARES + LAST;
    let began = std::time::Instant::now();
    let mut stopped = false;
    while began.elapsed() < length && !stopped {
        std::thread::sleep(LOOK);
        stopped = stop();
    }
    if stopped {
        // One that has ended by itself does not hear it.
        hosts.iter_mut().for_each(|host| drop(host.ask(&Request::Stop)));
    }
    let mut parts = Vec::new();
    for host in &mut hosts {
        parts.push(reply!(host, "run channels", Reply::Channels(part) => *part));
    }
    let mut flows = vec![Outcome::default(); plan.flows.len()];
    for part in &parts {
        for (&flow, sent) in &part.sent {
            flows[flow].sent = sent.clone();
        }
        for (&flow, received) in &part.received {
            flows[flow].received = received.clone();
        }
    }
    Ok(Measured { flows, hosts: parts, isolation, stopped })
}

/// The namespaces and their links.
fn hosts(plan: &Plan, isolation: Isolation) -> Result<Vec<Worker>> {
    let mut hosts: Vec<Worker> = Vec::new();
    for _ in &plan.nodes {
        let enter = match (isolation, hosts.first()) {
            (Isolation::UserNamespace, None) => Enter::NewUser,
            (Isolation::UserNamespace, Some(first)) => Enter::JoinUser(first.pid()),
            _ => Enter::NetworkOnly,
        };
        let mut host = Worker::spawn()?;
        host.done(&Request::Enter(enter))?;
        hosts.push(host);
    }
    for (number, line) in plan.links.iter().enumerate() {
        let interface = format!("lm{number}");
        let longest = line.packet_max as usize + HEADER_LEN + TAG_LEN + HEADERS_LEN;
        let mtu = (longest as u32).clamp(MTU_MIN.max(1500), MTU_MAX);
        let [first, second] = line.ends.map(|end| end as usize);
        let (name, peer) = (interface.clone(), hosts[second].pid());
        hosts[first].done(&Request::Pair { name, peer_name: interface.clone(), peer, mtu })?;
        for (side, end) in [first, second].into_iter().enumerate() {
            let host = &mut hosts[end];
            host.done(&Request::OnlyIpv4)?;
            let (interface, address) = (interface.clone(), address(number, side));
            let name = interface.clone();
            host.done(&Request::Address { interface, address, prefix: 24 })?;
            host.done(&Request::BringUp { interface: name, mtu })?;
        }
    }
    Ok(hosts)
}

fn address(link: usize, side: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 92, link as u8, 1 + side as u8)
}

/// What a node has to know.
fn job(plan: &Plan, node: NodeId) -> Job {
    let neighbours = plan
        .neighbours(node)
        .map(|(to, link, side)| (to, SocketAddr::from((address(link, 1 - side), PORT))));
    let neighbours = neighbours.collect();
    // Nobody but the neighbours reaches this namespace.
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    Job { plan: plan.clone(), node, listen, neighbours }
}
