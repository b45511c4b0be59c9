//! What a live VuNet consists of, from the same file as its model: switches, links, the wide area, and their clients.
//!
//! Numbers of links and clients are those of the model's nodes, and a neighbour's port is its place in the order of the
//! switch's links, as there. Two AVlinks and what is between them are one link here, whose wire carries ATM cells.

use crate::Complaint;
use lastmeter_base::kind::Values;
use lastmeter_base::{Duration, FlowId, NodeId, PathId, Rate, StageId, Time};
use lastmeter_engine::ResourceId;
use lastmeter_lab::experiment::{Experiment, Network};
use lastmeter_lan::vunet::camera::{Answer, Board, CAPTURE, Camera};
use lastmeter_lan::vunet::connection::{Connection, Hop, Route};
use lastmeter_lan::vunet::element::{BRIDGE, LINK, SWITCH};
use lastmeter_lan::vunet::viewer::{PAGE, Wishes};
use lastmeter_wire::control::vidboard::{Code, Command, Mode};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Most switches and links of a live run: each is a process or two.
const PARTS_MAX: usize = 64;

/// What is at a port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attached {
    /// An end of a link, by its place.
    Link(usize, usize),
    /// A client, by its place.
    Client(usize),
}

pub(super) struct SwitchPlan {
    pub(super) name: String,
    pub(super) ports: Vec<Option<Attached>>,
}

/// The network between two AVlinks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WidePlan {
    pub(super) name: String,
    pub(super) delay: Duration,
    pub(super) rate: f64,
}

pub(super) struct LinkPlan {
    pub(super) name: String,
    pub(super) number: u16,
    /// Switch and port at each end.
    pub(super) ends: [(usize, u8); 2],
    pub(super) wide: Option<WidePlan>,
}

pub(super) struct ClientPlan {
    pub(super) name: String,
    pub(super) number: u16,
    pub(super) switch: usize,
    pub(super) port: u8,
    /// If it is a camera.
    pub(super) board: Option<BoardPlan>,
    /// What it sees then.
    pub(super) film: Option<PathBuf>,
}

/// A camera's parameters, in ps.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct BoardPlan {
    pub(super) number: u16,
    phase: u64,
    next: bool,
    dither: u64,
}

impl BoardPlan {
    /// Its machine; what it would write into the books of a model goes nowhere.
    pub(super) fn camera(&self) -> Camera {
        let nowhere = (ResourceId(0), StageId(0));
        let dither = Duration::from_ps(self.dither);
        let board = Board {
            period: CAPTURE,
            phase: Duration::from_ps(self.phase),
            answer: if self.next { Answer::Next } else { Answer::Newest },
            dither,
            signal: nowhere,
            firmware: (!dither.is_zero()).then_some(nowhere),
        };
        Camera::new((PathId(0), FlowId(0)), NodeId(0), self.number, board)
    }
}

/// What a viewer wants to see, in ps where it is a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ViewPlan {
    pub(super) name: String,
    /// Client numbers.
    pub(super) camera: u16,
    pub(super) host: u16,
    start: u64,
    size: (u16, u16),
    depth: u8,
    lines: u16,
    burst: u16,
    burst_delay: u16,
    frame_delay: u32,
    free_run: bool,
    think: u64,
    timeout: u64,
    verify: u64,
    diagnose: bool,
}

impl ViewPlan {
    fn new(
        (name, camera, host): (&str, u16, u16),
        values: &Values,
        start: Duration,
    ) -> Result<ViewPlan, String> {
        let number = |name: &str| values.get::<u64>(name) as u16;
        let ps = |name: &str| values.get::<Duration>(name).as_ps();
        let wide = |name: &str| format!("`{name}` is too long for its field in a command cell");
        Ok(ViewPlan {
            name: name.to_owned(),
            camera,
            host,
            start: start.as_ps(),
            size: (number("width"), number("height")),
            depth: number("depth") as u8,
            lines: number("lines"),
            burst: number("burst"),
            burst_delay: u16::try_from(ps("burst-delay") / 1_000_000)
                .map_err(|_| wide("burst-delay"))?,
            frame_delay: u32::try_from(ps("frame-delay") / 1_000_000)
                .map_err(|_| wide("frame-delay"))?,
            free_run: values.get::<String>("mode") == "free-run",
            think: ps("think"),
            timeout: ps("timeout"),
            verify: ps("verify"),
            diagnose: values.get("diagnose"),
        })
    }

    /// Pixels of a line, and lines.
    pub(super) fn size(&self) -> (u16, u16) {
        self.size
    }

    /// Whether its pictures are grey, a byte for each pixel.
    pub(super) fn is_grey(&self) -> bool {
        self.depth == 8
    }

    /// Bytes of a frame.
    pub(super) fn frame_len(&self) -> u64 {
        u64::from(self.size.0) * u64::from(self.size.1) * u64::from(self.depth) / 8
    }

    /// The same for the machine, over a connection; it begins its own start after `from`.
    pub(super) fn wishes(&self, connection: &Connection, from: Time) -> Wishes {
        let (reply_vci, reply_port) = connection.peer_sends_on();
        let command = Command {
            code: Code::VideoRequest,
            depth: self.depth,
            sequence: 0,
            reply_vci,
            width: self.size.0,
            height: self.size.1,
            lines: self.lines,
            burst: self.burst,
            burst_delay: self.burst_delay,
            frame_delay: self.frame_delay,
            mode: if self.free_run { Mode::FreeRun } else { Mode::OnRequest },
            source: 0,
            crop: (0, 0),
            reply_port,
        };
        Wishes {
            command,
            think: Duration::from_ps(self.think),
            diagnose: self.diagnose,
            timeout: Duration::from_ps(self.timeout),
            verify: Duration::from_ps(self.verify),
            start: from + Duration::from_ps(self.start),
        }
    }
}

/// A route, as it is told to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ports {
    first: u8,
    hops: Vec<(u8, u8)>,
    last_back: u8,
}

impl Ports {
    pub(super) fn route(&self) -> Route {
        let hops = self.hops.iter().map(|&(ahead, back)| Hop { ahead, back }).collect();
        Route { first: self.first, hops, last_back: self.last_back }
    }
}

/// A camera that programs of a host may look at: its name, and as what its video comes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) camera: String,
    pub(super) view: ViewPlan,
}

/// What a host is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Job {
    /// Find out what the network consists of.
    Discover,
    /// Make and close connections by this way, in turn by the application and hop by hop.
    SetUp { ports: Ports, times: u32 },
    /// Watch a camera, for so many ns.
    View { plan: ViewPlan, lasts: u64 },
    /// Send a numbered cell every so many ns, and verify the links as often as this says.
    Stream { ports: Ports, every: u64, refresh: u64, lasts: u64 },
    /// What has arrived of such cells.
    Counted,
    /// Send full datagrams to this port for so many ns, and count what arrives.
    Blast { port: u8, cells: usize, lasts: u64 },
    /// Wait for programs at this port of the loopback.
    Listen { port: u16 },
    /// Show them these cameras, until there is another request.
    Show { offers: Vec<Offer> },
}

pub(super) struct Plan {
    pub(super) switches: Vec<SwitchPlan>,
    pub(super) links: Vec<LinkPlan>,
    pub(super) clients: Vec<ClientPlan>,
    pub(super) views: Vec<ViewPlan>,
}

/// Whether an experiment is about a VuNet, all of which can run live.
pub(crate) fn is_vunet(experiment: &Experiment) -> bool {
    experiment.nodes.iter().any(|node| node.kind.page.name == SWITCH.name)
}

impl Plan {
    pub(super) fn of(experiment: &Experiment) -> Result<Plan, Complaint> {
        let network = Network::new(experiment);
        let mut reading = Reading { experiment, network: &network, switches: Vec::new() };
        let of = |page: &str| -> Vec<usize> {
            (0..network.nodes.len()).filter(|&node| reading.page(node) == page).collect()
        };
        let (links, bridges, hosts) = (of(LINK.name), of(BRIDGE.name), of("host"));
        reading.switches = of(SWITCH.name);
        let parts = reading.switches.len() + 2 * links.len() + hosts.len();
        if parts > 4 * PARTS_MAX || reading.switches.len() > PARTS_MAX {
            let right = format!("at most {PARTS_MAX} switches and {} processes", 4 * PARTS_MAX);
            return Err(Complaint(format!("{parts} processes are too many: {right}")));
        }
        let mut plan = Plan {
            switches: reading.switches.iter().map(|&node| reading.switch(node)).collect(),
            links: links.iter().map(|&node| reading.link(node)).collect::<Result<_, _>>()?,
            clients: Vec::new(),
            views: Vec::new(),
        };
        for &node in &bridges {
            plan.links.extend(reading.bridge(node)?);
        }
        plan.clients = hosts.iter().map(|&node| reading.client(node)).collect::<Result<_, _>>()?;
        plan.attach();
        plan.watch(experiment, &network, &hosts)?;
        Ok(plan)
    }

    fn attach(&mut self) {
        for (place, link) in self.links.iter().enumerate() {
            for (end, &(switch, port)) in link.ends.iter().enumerate() {
                self.switches[switch].ports[usize::from(port)] = Some(Attached::Link(place, end));
            }
        }
        for (place, client) in self.clients.iter().enumerate() {
            self.switches[client.switch].ports[usize::from(client.port)] =
                Some(Attached::Client(place));
        }
    }

    fn watch(
        &mut self,
        experiment: &Experiment,
        network: &Network,
        hosts: &[usize],
    ) -> Result<(), Complaint> {
        for traffic in &experiment.traffic {
            if traffic.kind.page.name != PAGE.name {
                let (name, other) = (&traffic.name, traffic.kind.page.name);
                return Err(Complaint(format!(
                    "`{name}` is `{other}` traffic: a live VuNet carries vidboard traffic"
                )));
            }
            let find = |name: &str| {
                let node = hosts.iter().find(|&&node| network.nodes[node].name == name);
                let number = node.map(|&node| node as u16);
                let place = self.clients.iter().position(|client| Some(client.number) == number);
                place.ok_or_else(|| {
                    let right = "name one host at each end, such as `board.4`";
                    Complaint(format!("`{name}` of traffic `{}`: {right}", traffic.name))
                })
            };
            let (camera, host) = (find(&traffic.from.name)?, find(&traffic.to.name)?);
            let numbers = (self.clients[camera].number, self.clients[host].number);
            if self.views.iter().any(|view| view.host == numbers.1) {
                let name = &traffic.name;
                return Err(Complaint(format!(
                    "the host of `{name}` watches another camera already: a live host watches one"
                )));
            }
            let start = traffic.values.given::<Duration>("start").unwrap_or(Duration::ZERO);
            let values = &traffic.kind.values;
            let name = (traffic.name.as_str(), numbers.0, numbers.1);
            self.views.push(ViewPlan::new(name, values, start).map_err(Complaint)?);
            let board = BoardPlan {
                number: numbers.0,
                phase: values.get::<Duration>("phase").as_ps(),
                next: values.get::<String>("answer") == "next",
                dither: values.get::<Duration>("dither").as_ps(),
            };
            self.clients[camera].board = Some(board);
        }
        let both = self
            .views
            .iter()
            .find(|view| self.client(view.host).is_some_and(|c| c.board.is_some()));
        match both {
            Some(view) => Err(Complaint(format!(
                "the viewer of `{}` is a camera itself: a live node is one or the other",
                view.name
            ))),
            None => Ok(()),
        }
    }

    /// One for each switch, and one for each wide area.
    pub(super) fn namespaces(&self) -> usize {
        self.switches.len() + self.links.iter().filter(|link| link.wide.is_some()).count()
    }

    pub(super) fn client(&self, number: u16) -> Option<&ClientPlan> {
        self.clients.iter().find(|client| client.number == number)
    }

    /// The way from a client to another through these switches, by the first link between each two.
    pub(super) fn way(&self, from: usize, to: usize, switches: &[usize]) -> Option<Ports> {
        let (from, to) = (&self.clients[from], &self.clients[to]);
        let link = |pair: &[usize]| {
            self.links.iter().find_map(|link| match link.ends {
                [a, b] if [a.0, b.0] == *pair => Some((a.1, b.1)),
                [a, b] if [b.0, a.0] == *pair => Some((b.1, a.1)),
                _ => None,
            })
        };
        let passed: Option<Vec<(u8, u8)>> = switches.windows(2).map(link).collect();
        let passed = passed?;
        let mut ahead: Vec<u8> = passed.iter().map(|&(out, _)| out).collect();
        ahead.push(to.port);
        let mut back = vec![from.port];
        back.extend(passed.iter().map(|&(_, into)| into));
        let hops = ahead[1..].iter().copied().zip(back.iter().copied()).collect();
        Some(Ports { first: ahead[0], hops, last_back: back[passed.len()] })
    }

    /// The longest way from a switch that passes none twice, and no wide area.
    pub(super) fn longest(&self, start: usize) -> Vec<usize> {
        let mut way = vec![start];
        // The first neighbour not yet passed, as long as there is one: around a ring, or along a row.
        while let Some(next) = self.links.iter().find_map(|link| {
            let [(a, _), (b, _)] = link.ends;
            let last = *way.last().expect("it has a start");
            let next = if a == last { b } else { a };
            let leads = (a == last || b == last) && link.wide.is_none();
            (leads && !way.contains(&next)).then_some(next)
        }) {
            way.push(next);
        }
        way
    }
}

struct Reading<'a> {
    experiment: &'a Experiment,
    network: &'a Network,
    switches: Vec<usize>,
}

impl Reading<'_> {
    fn page(&self, node: usize) -> &'static str {
        self.experiment.nodes[self.network.nodes[node].declared].kind.page.name
    }
    fn neighbours(&self, node: usize) -> Vec<usize> {
        self.network.leaving[node].iter().map(|&hop| self.network.hops[hop].to).collect()
    }
    fn name(&self, node: usize) -> String {
        self.network.nodes[node].name.clone()
    }

    fn switch(&self, node: usize) -> SwitchPlan {
        let values = &self.experiment.nodes[self.network.nodes[node].declared].kind.values;
        let ports = (values.get::<u64>("ports") as usize).max(self.neighbours(node).len());
        SwitchPlan { name: self.name(node), ports: vec![None; ports] }
    }

    /// The switch beside a node, and the port there.
    fn end(&self, node: usize, beside: usize) -> Option<(usize, u8)> {
        let switch = self.switches.iter().position(|&switch| switch == beside)?;
        let port = self.neighbours(beside).iter().position(|&known| known == node)?;
        Some((switch, u8::try_from(port).ok()?))
    }

    fn wrong(&self, node: usize, right: &str) -> Complaint {
        Complaint(format!("`{}` cannot run live: {right}", self.name(node)))
    }

    fn link(&self, node: usize) -> Result<LinkPlan, Complaint> {
        let right = "a link joins two switches";
        let ends: Option<Vec<_>> =
            self.neighbours(node).into_iter().map(|beside| self.end(node, beside)).collect();
        let ends = ends.and_then(|ends| <[_; 2]>::try_from(ends).ok());
        let ends = ends.ok_or_else(|| self.wrong(node, right))?;
        Ok(LinkPlan { name: self.name(node), number: node as u16, ends, wide: None })
    }

    /// The link of which this AVlink is one end; `None` at the end with the higher number.
    fn bridge(&self, node: usize) -> Result<Option<LinkPlan>, Complaint> {
        let right = "two AVlinks face each other, directly or through one router";
        let wrong = || self.wrong(node, right);
        let near = self.neighbours(node).into_iter().find_map(|beside| self.end(node, beside));
        let mut way = vec![node];
        let next = |way: &[usize]| {
            let last = *way.last()?;
            let onwards = |beside: &usize| !way.contains(beside) && !self.switches.contains(beside);
            self.neighbours(last).into_iter().find(onwards)
        };
        while let Some(onwards) = next(&way).filter(|_| way.len() < 3) {
            way.push(onwards);
            if self.page(onwards) == BRIDGE.name {
                break;
            }
        }
        let far = *way.last().expect("it holds this node");
        if self.page(far) != BRIDGE.name || far == node {
            return Err(wrong());
        }
        if far < node {
            return Ok(None);
        }
        let end = self.neighbours(far).into_iter().find_map(|beside| self.end(far, beside));
        let ends = [near.ok_or_else(wrong)?, end.ok_or_else(wrong)?];
        let (mut delay, mut rate) = (Duration::ZERO, f64::INFINITY);
        for pair in way.windows(2) {
            let hops = self.network.leaving[pair[0]].iter().map(|&hop| &self.network.hops[hop]);
            for hop in hops.filter(|hop| hop.to == pair[1]) {
                let values = self.experiment.links[hop.link].values(hop.back);
                delay += values.get::<Duration>("delay");
                rate = rate.min(values.given::<Rate>("rate").map_or(f64::INFINITY, rate_of));
            }
        }
        let middle = if way.len() == 3 { way[1] } else { node };
        let wide = WidePlan { name: self.name(middle), delay, rate };
        let name = format!("{}+{}", self.name(node), self.name(far));
        Ok(Some(LinkPlan { name, number: node as u16, ends, wide: Some(wide) }))
    }

    fn client(&self, node: usize) -> Result<ClientPlan, Complaint> {
        let beside = self.neighbours(node);
        let [switch] = beside[..] else {
            return Err(self.wrong(node, "a host has one link, to a switch"));
        };
        let end = self.end(node, switch);
        let (switch, port) = end.ok_or_else(|| self.wrong(node, "it is attached to no switch"))?;
        let (name, number) = (self.name(node), node as u16);
        Ok(ClientPlan { name, number, switch, port, board: None, film: None })
    }
}

fn rate_of(rate: Rate) -> f64 {
    rate.as_bits() as f64
}
