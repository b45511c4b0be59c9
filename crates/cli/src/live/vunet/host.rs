//! A host of the live VuNet: its programs discover the network, make their own connections, watch cameras and measure.
//!
//! Each program of a host takes its channels from the host's file ([`super::file`]) and has a token of its own. A host
//! answers what every client answers at any time, also while a program runs.

use super::part::{Asked, Client, Clock, Request, answer};
use super::plan::{Job, Ports, ViewPlan};
use super::probe::{Kind, Probe};
use super::shows::Shown;
use lastmeter_base::{FlowId, NodeId, PathId, Time};
use lastmeter_lan::vunet::connection::{Connection, Route};
use lastmeter_lan::vunet::discovery::{Found, Map, Reach, explore};
use lastmeter_lan::vunet::viewer::{TIMERS, Viewer, Wants};
use lastmeter_lan::vunet::{control_in, data_cell, is_control, reserve};
use lastmeter_wire::atm::train::CELLS_MAX;
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::reservation;
use lastmeter_wire::control::vunet::{Control, Op};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::TcpListener;

/// How long a daemon waits for the answer to a ping, in ns, and how often it asks: most ports lead nowhere.
const PING: u64 = 70_000_000;
const PINGS: usize = 2;
/// How long anything else is waited for, in ns.
const PATIENCE: u64 = 2_000_000_000;
/// What a connection is given to disappear from the links before its channels are used again, in ns.
const REST: u64 = 3_000_000;
/// How long after the last numbered cell late ones are waited for, in ns.
const AFTER: u64 = 300_000_000;

/// The times of one set-up, in ns: until the host had its answer, and until the first data was at the peer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Once {
    pub(super) answered: u64,
    pub(super) there: u64,
}

/// What a daemon found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Discovered {
    pub(super) lasted: u64,
    pub(super) cells: u64,
    /// The ports of each switch: a client, or a link and its side.
    pub(super) switches: Vec<BTreeMap<u8, (u16, Option<u8>)>>,
}

/// What a stream of numbered cells was like for its sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Streamed {
    pub(super) sent: u64,
    /// Links that were written again, and when, in ns of the run's clock.
    pub(super) refreshed: Vec<u64>,
}

/// The same for its receiver.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) arrived: u64,
    /// The longest gap: cells that are missing, and the instants of the cells before and after.
    pub(super) missing: u64,
    pub(super) before: u64,
    pub(super) after: u64,
}

/// What a viewer saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) links: usize,
}

/// What came of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Done {
    Discovered(Discovered),
    SetUp { application: Vec<Once>, hop_by_hop: Vec<Once>, failed: u32, cells: usize },
    Viewed(Seen),
    Streamed(Streamed),
    Counted(Counted),
    Blasted { sent: u64, received: u64, lasted: u64 },
    Listening,
    Shown(Vec<Shown>),
    Failed(String),
}

/// A host.
pub(super) struct Host {
    pub(super) client: Client,
    tokens: u32,
    pub(super) map: Map,
    /// Where programs ask for cameras.
    pub(super) listener: Option<TcpListener>,
    counted: Counted,
    /// The next number, and when the last numbered cell came.
    next: Option<u32>,
    last: u64,
    arrived: u64,
}

impl Host {
    pub(super) fn new(client: Client) -> Host {
        let (map, counted) = (Map::default(), Counted::default());
        Host { client, tokens: 0, map, listener: None, counted, next: None, last: 0, arrived: 0 }
    }

    pub(super) fn run(mut self, control: &mut Asked) -> Result<(), String> {
        loop {
            let ready = self.client.clock.wait(&[self.client.line.socket()], None, true)?;
            self.hear();
            match control.request(ready)? {
                None => {}
                Some(Request::Report) => {
                    answer(&self.client.clock.report(self.client.line.passed))?;
                }
                Some(Request::Job(job)) => {
                    answer(&self.work(job).unwrap_or_else(Done::Failed))?;
                }
            }
        }
    }

    fn work(&mut self, job: Job) -> Result<Done, String> {
        match job {
            Job::Discover => self.discover().map(Done::Discovered),
            Job::SetUp { ports, times } => self.set_up(&ports, times),
            Job::View { plan, lasts } => self.view(&plan, lasts).map(Done::Viewed),
            Job::Stream { ports, every, refresh, lasts } => {
                self.stream(&ports.route(), every, refresh, lasts).map(Done::Streamed)
            }
            Job::Counted => {
                self.next = None;
                Ok(Done::Counted(std::mem::take(&mut self.counted)))
            }
            Job::Blast { port, cells, lasts } => self.blast(port, cells, lasts),
            Job::Listen { port } => self.listen(port),
            Job::Show { offers } => self.show(&offers),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.client.clock.now()
    }

    /// A token that no other connection of any host has.
    fn token(&mut self) -> u32 {
        self.tokens = self.tokens.wrapping_add(1);
        u32::from(self.client.number) << 16 | (self.tokens & 0xffff)
    }

    /// Takes what has arrived; numbered cells are counted here, the rest is returned.
    pub(super) fn hear(&mut self) -> Vec<VunetCell> {
        let now = self.now();
        let mut rest = self.client.take();
        self.arrived += rest.len() as u64;
        rest.retain(|cell| {
            let probe = Probe::parse(cell.payload()).filter(|probe| probe.kind == Kind::Count);
            let Some(probe) = probe.filter(|_| !is_control(cell)) else { return true };
            let expected = self.next.unwrap_or(probe.number);
            let missing = u64::from(probe.number.saturating_sub(expected));
            if missing > self.counted.missing {
                let Counted { arrived, .. } = self.counted;
                self.counted = Counted { arrived, missing, before: self.last, after: now };
            }
            self.counted.arrived += 1;
            self.last = now;
            self.next = Some(probe.number.wrapping_add(1));
            false
        });
        rest
    }

    /// Sends what waits, sleeps until something comes or an instant, and takes it.
    fn wait(&mut self, until: u64) -> Result<Vec<VunetCell>, String> {
        self.client.line.flush();
        self.client.clock.wait(&[self.client.line.socket()], Some(until), false)?;
        Ok(self.hear())
    }

    pub(super) fn send(&mut self, cells: Vec<VunetCell>) {
        cells.into_iter().for_each(|cell| self.client.line.push(cell));
    }

    pub(super) fn open(&mut self, route: Route, control: bool) -> Result<Connection, String> {
        let token = self.token();
        self.client.file.with(|file| match control {
            true => Connection::to_control(route, token, file),
            false => Connection::new(route, token, file),
        })
    }

    /// Closes a connection, and gives its channels back when its cells have passed.
    fn end(&mut self, connection: &mut Connection, rest: u64) -> Result<(), String> {
        self.send(connection.close());
        let until = self.now() + rest;
        while self.now() < until {
            self.wait(until)?;
        }
        self.client.line.flush();
        self.give_back(connection)
    }

    /// Gives the channels of a closed connection back.
    pub(super) fn give_back(&mut self, connection: &Connection) -> Result<(), String> {
        let (token, vcis) = (connection.token(), connection.vcis());
        let give = self
            .client
            .file
            .with(|file| file.give_back(token, &vcis).map_err(|refusal| format!("{refusal:?}")));
        give.map_err(|why| format!("channels are not its own: {why}"))
    }

    fn discover(&mut self) -> Result<Discovered, String> {
        let (began, number) = (self.now(), self.client.number);
        self.map = explore(self, number)?;
        let port = |(&port, &found): (&u8, &Found)| match found {
            Found::Client(number) => (port, (number, None)),
            Found::Link(number, side) => (port, (number, Some(side))),
        };
        let switches = self.map.switches.iter().map(|ports| ports.iter().map(port).collect());
        let lasted = self.now() - began;
        Ok(Discovered { lasted, cells: self.map.cells, switches: switches.collect() })
    }

    fn set_up(&mut self, ports: &Ports, times: u32) -> Result<Done, String> {
        let route = ports.route();
        let (mut application, mut hop_by_hop) = (Vec::new(), Vec::new());
        let (mut failed, mut cells) = (0, 0);
        for _ in 0..times {
            match self.by_application(&route)? {
                Some((once, sent)) => {
                    application.push(once);
                    cells = sent;
                }
                None => failed += 1,
            }
            match self.by_hops(&route)? {
                Some(once) => hop_by_hop.push(once),
                None => failed += 1,
            }
        }
        Ok(Done::SetUp { application, hop_by_hop, failed, cells })
    }

    /// The application writes every table itself, and sends data behind.
    fn by_application(&mut self, route: &Route) -> Result<Option<(Once, usize)>, String> {
        let mut connection = self.open(route.clone(), false)?;
        let cells = connection.open();
        let sent = cells.len();
        let began = self.now();
        self.send(cells);
        let (vci, port) = connection.send_on();
        let back = connection.peer_sends_on();
        self.client.line.push(ask(began, (vci, port), back));
        let (mut answered, mut there) = (None, None);
        while (answered.is_none() || there.is_none()) && self.now() < began + PATIENCE {
            for cell in self.wait(began + PATIENCE)? {
                if is_control(&cell) {
                    connection.receive(&cell);
                    if connection.seen.peer && answered.is_none() {
                        answered = Some(self.now() - began);
                    }
                } else if cell.vci() == connection.hear_on() {
                    there = there.or(arrival(&cell, began));
                }
            }
        }
        self.end(&mut connection, REST)?;
        Ok(answered.zip(there).map(|(answered, there)| (Once { answered, there }, sent)))
    }

    /// The links reserve the path, and the application sends data when they have.
    fn by_hops(&mut self, route: &Route) -> Result<Option<Once>, String> {
        let token = self.token();
        let label = self
            .client
            .file
            .with(|file| file.allocate(token, 1).ok_or_else(|| "no channel is left".to_owned()))?;
        let label = *label.first().ok_or("no channel is left")?;
        let request =
            |op| reserve::request(op, route, token, label).map_err(|error| error.to_string());
        let (path, tear) = (request(reservation::Op::Path)?, request(reservation::Op::Tear)?);
        let began = self.now();
        self.client.line.push(path);
        let (mut answered, mut there) = (None, None);
        while there.is_none() && self.now() < began + PATIENCE {
            for cell in self.wait(began + PATIENCE)? {
                let reserved = reserve::message_in(&cell)
                    .filter(|one| one.op == reservation::Op::Reserved && one.token == token);
                if let Some(reserved) = reserved {
                    answered = Some(self.now() - began);
                    self.client.line.push(ask(began, (reserved.label, route.first), (0, 0)));
                } else if cell.vci() == label && !is_control(&cell) {
                    there = there.or(arrival(&cell, began));
                }
            }
        }
        self.client.line.push(tear);
        let until = self.now() + REST;
        while self.now() < until {
            self.wait(until)?;
        }
        self.client.file.with(|file| {
            file.give_back(token, &[label]).map_err(|refusal| format!("{refusal:?}"))
        })?;
        Ok(answered.zip(there).map(|(answered, there)| Once { answered, there }))
    }

    /// Watches a camera: the machine of the model's viewer, with this host's own map of the network.
    fn view(&mut self, plan: &ViewPlan, lasts: u64) -> Result<Seen, String> {
        if self.map.switches.is_empty() {
            self.discover()?;
        }
        let route = self.map.route(plan.camera);
        let route = route.ok_or_else(|| format!("client {} was not found", plan.camera))?;
        let connection = self.open(route, false)?;
        let links = connection.links();
        let wishes = plan.wishes(&connection, self.client.clock.time());
        let (nowhere, node) = ((PathId(0), FlowId(0)), NodeId(0));
        let mut viewer = Viewer::new(nowhere, (node, node), wishes, connection);
        let mut due: [Option<Time>; TIMERS] = [None; TIMERS];
        let mut wants = Wants::default();
        viewer.begin(&mut wants);
        let end = self.now() + lasts;
        loop {
            let Wants { cells, timers, .. } = std::mem::take(&mut wants);
            self.send(cells.into_iter().map(|(cell, _)| cell).collect());
            due.iter_mut().zip(timers).for_each(|(due, timer)| *due = timer.or(*due));
            if self.now() >= end {
                break;
            }
            let first = due.iter().flatten().min().map_or(end, |&due| Clock::ns_of(due));
            for cell in self.wait(first.min(end))? {
                viewer.hear(self.client.clock.time(), &cell, &mut wants);
            }
            let time = self.client.clock.time();
            for (timer, at) in due.iter_mut().enumerate() {
                if at.is_some_and(|at| at <= time) && wants.timers[timer].is_none() {
                    *at = None;
                    viewer.expire(time, timer, &mut wants);
                }
            }
        }
        self.send(vec![viewer.stop()]);
        let counts = viewer.counts().map(|(name, count)| (name.to_owned(), count)).into();
        let mut connection = viewer.connection().clone();
        self.end(&mut connection, REST)?;
        Ok(Seen { counts, links })
    }

    /// Sends numbered cells, while a refresher reads every link back and writes what is wrong.
    fn stream(
        &mut self,
        route: &Route,
        every: u64,
        refresh: u64,
        lasts: u64,
    ) -> Result<Streamed, String> {
        let mut connection = self.open(route.clone(), false)?;
        let opening = connection.open();
        self.send(opening);
        let (began, mut streamed) = (self.now(), Streamed::default());
        let (mut next, mut verify, end) = (began, began + refresh, began + lasts);
        let mut refreshed = 0;
        while self.now() < end {
            for cell in self.wait(next.min(verify).min(end))? {
                let cells = connection.receive(&cell);
                self.send(cells);
            }
            let now = self.now();
            if now >= verify {
                let cells = connection.verify();
                self.send(cells);
                verify += refresh;
            }
            let more = connection.seen.refreshed - refreshed;
            streamed.refreshed.extend((0..more).map(|_| now));
            refreshed += more;
            while next <= now && next < end {
                let (vci, port) = connection.send_on();
                let (number, kind) = (streamed.sent as u32, Kind::Count);
                let probe = Probe { kind, port: 0, vci: 0, number, sent: now, arrived: 0 };
                self.client.line.push(data_cell(vci, port, true, &probe.emit()));
                streamed.sent += 1;
                next += every;
            }
        }
        self.client.line.flush();
        self.end(&mut connection, AFTER)?;
        Ok(streamed)
    }

    /// Sends as much as it can to a port of its switch, `cells` a datagram, and counts what others send here.
    fn blast(&mut self, port: u8, cells: usize, lasts: u64) -> Result<Done, String> {
        let train = vec![data_cell(40, port, false, &[0; 48]); cells.clamp(1, CELLS_MAX)];
        let (began, before, mut sent) = (self.now(), self.arrived, 0);
        while self.now() < began + lasts {
            train.iter().for_each(|&cell| self.client.line.push(cell));
            self.client.line.flush();
            sent += train.len() as u64;
            self.hear();
        }
        let lasted = self.now() - began;
        Ok(Done::Blasted { sent, received: self.arrived - before, lasted })
    }
}

/// A cell to be answered at once.
fn ask(sent: u64, (vci, port): (u16, u8), (back, back_port): (u16, u8)) -> VunetCell {
    let probe = Probe { kind: Kind::Ask, port: back_port, vci: back, number: 0, sent, arrived: 0 };
    data_cell(vci, port, true, &probe.emit())
}

/// When the cell sent at `began` was at the peer, as its answer says.
fn arrival(cell: &VunetCell, began: u64) -> Option<u64> {
    let probe = Probe::parse(cell.payload())?;
    let right = probe.kind == Kind::Answer && probe.sent == began;
    right.then(|| probe.arrived.saturating_sub(began))
}

impl Reach for Host {
    fn connect(&mut self, route: Route) -> Result<Connection, String> {
        self.open(route, true)
    }

    fn ask(&mut self, cells: Vec<VunetCell>) -> Vec<Control> {
        let token = cells.last().and_then(control_in).map(|control| control.token);
        let mine = |one: &Control| Some(one.token) == token && one.op == Op::ReadReply;
        for _ in 0..PINGS {
            // Writing the same entries once more changes nothing.
            self.send(cells.clone());
            let until = self.now() + PING;
            while self.now() < until {
                let Ok(heard) = self.wait(until) else { break };
                let answers: Vec<Control> =
                    heard.iter().filter_map(control_in).filter(mine).collect();
                if !answers.is_empty() {
                    return answers;
                }
            }
        }
        Vec::new()
    }

    fn close(&mut self, connection: &mut Connection) -> Result<(), String> {
        self.end(connection, 0)
    }
}
