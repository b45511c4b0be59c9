//! The processes of a live VuNet, in a namespace for each switch, and how they are told what to do.
//!
//! ```text
//! namespace of a switch:  [ switch ]--lo--[ halves of its links ]--veth--> namespace of another
//!                             '----lo--[ cameras, hosts ]
//! ```
//!
//! Nothing of this can be reached from elsewhere: sockets are bound to addresses of the namespaces and hear only their
//! other end, and the namespaces end with this process.

use super::file::Channels;
use super::line::Ends;
use super::part::{Clock, MARKER, Report, Request, Role};
use super::plan::{Attached, ClientPlan, LinkPlan, Plan};
use crate::Complaint;
use lastmeter_lan::vunet::vci::Block;
use lastmeter_linux::cores;
use lastmeter_live::site::{FRAME_MTU, Site};
use lastmeter_live::worker;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Where programs of the host at a switch's port ask for cameras, of its namespace's loopback.
const PROGRAMS: u16 = 23_000;
/// Ports of a namespace's loopback: two for each port of its switch.
const NEAR: u16 = 20_000;
/// The port of both ends of a wire between namespaces.
const WIRE: u16 = 21_000;
/// Ports of the switch that is measured alone.
const ALONE: u16 = 22_000;

/// A process of the network.
pub(super) struct Part {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Part {
    fn tell(&mut self, value: &impl serde::Serialize) -> Result<(), Complaint> {
        let text = serde_json::to_string(value)?;
        Ok(writeln!(self.input, "{text}")?)
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Complaint> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(Complaint("a process of the network has ended".into()));
        }
        let wrong = |_| Complaint(format!("a process of the network says: {}", line.trim()));
        serde_json::from_str(&line).map_err(wrong)
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Complaint> {
        self.tell(request)?;
        self.hear()
    }

    /// Asks; the answer is fetched later.
    pub(super) fn begin(&mut self, request: &Request) -> Result<(), Complaint> {
        self.tell(request)
    }

    pub(super) fn end<T: DeserializeOwned>(&mut self) -> Result<T, Complaint> {
        self.hear()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process is in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    Switch(usize),
    /// A link and its end.
    Half(usize, usize),
    /// The wide area within a link.
    Wide(usize),
    Client(usize),
}

/// The running network.
pub(super) struct Net {
    /// Ends before the namespaces do.
    pub(super) parts: BTreeMap<Id, Part>,
    roles: BTreeMap<Id, (usize, Role)>,
    site: Site,
    pub(super) clock: Clock,
    cores: Vec<usize>,
}

impl Net {
    /// Starts all processes; the files of hosts are in `folder`.
    pub(super) fn start(plan: &Plan, folder: &Path) -> Result<Net, Complaint> {
        let mut names: Vec<String> = plan.switches.iter().map(|one| one.name.clone()).collect();
        let mut wide = BTreeMap::new();
        for (place, link) in plan.links.iter().enumerate() {
            if let Some(area) = &link.wide {
                wide.insert(place, names.len());
                names.push(area.name.clone());
            }
        }
        let site = Site::apart(&names)?;
        let cores = cores::allowed().unwrap_or_default();
        let clock = Clock::begin();
        let (parts, roles) = (BTreeMap::new(), BTreeMap::new());
        let mut net = Net { parts, roles, site, clock, cores };
        for (place, link) in plan.links.iter().enumerate() {
            net.link(plan, place, link, wide.get(&place).copied())?;
        }
        for (place, switch) in plan.switches.iter().enumerate() {
            let ends = |(port, attached): (usize, &Option<Attached>)| attached.map(|_| near(port));
            let ports = switch.ports.iter().enumerate().map(ends).collect();
            net.roles.insert(Id::Switch(place), (place, Role::Switch { ports }));
        }
        let hosts = plan.clients.len();
        for (place, client) in plan.clients.iter().enumerate() {
            let file = folder.join(&client.name);
            // The last block of channels is that of reserved paths.
            Channels::create(&file, place, hosts + 1).map_err(Complaint)?;
            net.client(place, client, file);
        }
        let all: Vec<Id> = net.roles.keys().copied().collect();
        for id in all {
            net.spawn(id)?;
        }
        Ok(net)
    }

    fn link(
        &mut self,
        plan: &Plan,
        place: usize,
        link: &LinkPlan,
        wide: Option<usize>,
    ) -> Result<(), Complaint> {
        let spaces = link.ends.map(|(switch, _)| switch);
        let number = |n: usize| {
            u8::try_from(n)
                .map_err(|_| Complaint("there are too many wires between switches".into()))
        };
        let wires = match wide {
            None => {
                let [a, b] = self.site.join(number(2 * place)?, spaces, FRAME_MTU)?;
                [wire(a, b), wire(b, a)]
            }
            Some(space) => {
                let [a, to_a] =
                    self.site.join(number(2 * place)?, [spaces[0], space], FRAME_MTU)?;
                let [b, to_b] =
                    self.site.join(number(2 * place + 1)?, [spaces[1], space], FRAME_MTU)?;
                let ends = [wire(to_a, a), wire(to_b, b)];
                let area = link.wide.as_ref().expect("it has a namespace");
                let (delay, rate) = (area.delay.as_ps() / 1000, area.rate.min(1e12));
                self.roles.insert(Id::Wide(place), (space, Role::Wide { ends, delay, rate }));
                [wire(a, to_a), wire(b, to_b)]
            }
        };
        let hosts = plan.clients.len();
        let Block { first, count } = Block::of(hosts, hosts + 1).map_err(Complaint)?;
        for (end, (switch, port)) in link.ends.into_iter().enumerate() {
            let role = Role::Half {
                number: link.number,
                side: end as u8,
                labels: (first, count),
                near: near(port.into()).swapped(),
                wire: wires[end],
                atm: link.wide.is_some(),
            };
            self.roles.insert(Id::Half(place, end), (switch, role));
        }
        Ok(())
    }

    fn client(&mut self, place: usize, client: &ClientPlan, file: std::path::PathBuf) {
        let port = near(client.port.into()).swapped();
        let role = match client.board {
            Some(plan) => Role::Board { plan, film: client.film.clone(), port, file },
            None => Role::Host { number: client.number, port, file },
        };
        self.roles.insert(Id::Client(place), (client.switch, role));
    }

    /// Starts a process, for the first time or again.
    pub(super) fn spawn(&mut self, id: Id) -> Result<(), Complaint> {
        let (space, role) = self.roles.get(&id).expect("every process has a role").clone();
        let part = self.part(space, &role)?;
        self.parts.insert(id, part);
        Ok(())
    }

    /// A process in a namespace that plays this role.
    fn part(&mut self, space: usize, role: &Role) -> Result<Part, Complaint> {
        let mut command = worker::again()?;
        command.env(MARKER, self.clock.epoch.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = self.site.spawn(space, command, true, &self.cores)?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = child.stdout.take().ok_or("no standard output")?;
        let mut part = Part { child, input, output: BufReader::new(output) };
        part.tell(role)?;
        let _: String = part.hear()?;
        Ok(part)
    }

    /// The port of the loopback at which a host shows cameras.
    pub(super) fn shows_at(client: &ClientPlan) -> u16 {
        PROGRAMS + u16::from(client.port)
    }

    /// Starts a program at a host: in its namespace, with its own group of processes, and without priority.
    pub(super) fn program(
        &mut self,
        client: &ClientPlan,
        command: Command,
    ) -> Result<Child, Complaint> {
        Ok(self.site.spawn(client.switch, command, true, &self.cores)?)
    }

    /// Kills a process, as if its power failed.
    pub(super) fn kill(&mut self, id: Id) {
        self.parts.remove(&id);
    }

    pub(super) fn get(&mut self, id: Id) -> Result<&mut Part, Complaint> {
        self.parts.get_mut(&id).ok_or(Complaint(format!("{id:?} does not run")))
    }

    /// What every process has done so far.
    pub(super) fn reports(&mut self) -> Result<BTreeMap<Id, Report>, Complaint> {
        let mut reports = BTreeMap::new();
        for (&id, part) in &mut self.parts {
            reports.insert(id, part.ask(&Request::Report)?);
        }
        Ok(reports)
    }

    /// A switch with a host at each port, beside the network: the switch first.
    pub(super) fn alone(&mut self, ports: usize, folder: &Path) -> Result<Vec<Part>, Complaint> {
        let ends = |port: usize| ends(ALONE, port);
        let all = (0..ports).map(|port| Some(ends(port))).collect();
        let mut parts = vec![self.part(0, &Role::Switch { ports: all })?];
        for port in 0..ports {
            let (number, file) = (port as u16, folder.join("none"));
            let role = Role::Host { number, port: ends(port).swapped(), file };
            parts.push(self.part(0, &role)?);
        }
        Ok(parts)
    }
}

/// The ends of the wire at a switch's port, the switch's first.
fn near(port: usize) -> Ends {
    ends(NEAR, port)
}

fn ends(first: u16, port: usize) -> Ends {
    let at = |number: u16| SocketAddrV4::new(Ipv4Addr::LOCALHOST, first + number);
    let port = port as u16;
    Ends { local: at(2 * port), remote: at(2 * port + 1) }
}

fn wire(local: Ipv4Addr, remote: Ipv4Addr) -> Ends {
    Ends { local: SocketAddrV4::new(local, WIRE), remote: SocketAddrV4::new(remote, WIRE) }
}
