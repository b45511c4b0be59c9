//! The network of an experiment as namespaces: hosts, routers of ours, a veth pair for each link.
//!
//! ```text
//! s ---- r1 ---- r2 ---- d2        a plugin node between a router and a host is the router's plugin for that port
//!         |       |  \--- d3
//!         d1      x
//! ```
//!
//! Link number `n` is the network 10.80.n.0/24, whose .1 is the end written first. The namespaces, and what runs in
//! them, end when the value is dropped.

use crate::Complaint;
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Rate};
use lastmeter_lab::experiment::{Experiment, Network};
use lastmeter_linux::control;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The most links: one byte of their addresses.
const LINKS_MAX: usize = 250;
/// How long a router may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// In real time (round robin), the lowest but for nine.
const PRIORITY: u32 = 10;
/// Flows that routers tell apart.
const FLOWS: u32 = 1 << 16;

/// A link between two namespaces.
struct Link {
    ends: [String; 2],
    rate: Option<Rate>,
    /// The queue in front of it, as `router.toml` has it.
    queue: Option<String>,
}

/// A plugin node.
pub(super) struct Owned {
    pub(super) name: String,
    /// Its module, as the experiment names it.
    pub(super) module: String,
    pub(super) config: String,
    /// The router that it belongs to.
    pub(super) router: String,
    /// The host behind it.
    pub(super) host: String,
}

/// The network of an experiment.
pub(super) struct Plan {
    hosts: Vec<String>,
    pub(super) routers: Vec<String>,
    links: Vec<Link>,
    pub(super) plugins: Vec<Owned>,
}

impl Plan {
    /// What an experiment's nodes and links become.
    pub(super) fn of(experiment: &Experiment) -> Result<Plan, Complaint> {
        let network = Network::new(experiment);
        let kind = |node: usize| &experiment.nodes[network.nodes[node].declared].kind;
        let name = |node: usize| network.nodes[node].name.clone();
        let of = |wanted: &str| -> Vec<String> {
            let nodes = (0..network.nodes.len()).filter(|&node| kind(node).page.name == wanted);
            nodes.map(name).collect()
        };
        let mut plan = Plan {
            hosts: of("host"),
            routers: of("router"),
            links: Vec::new(),
            plugins: Vec::new(),
        };
        for node in 0..network.nodes.len() {
            let known = ["host", "router", "plugin"];
            if !known.contains(&kind(node).page.name) {
                let (name, found) = (name(node), kind(node).page.name);
                return Err(Complaint(format!(
                    "`{name}` is a {found}: a live run has hosts, routers, and plugins between them"
                )));
            }
        }
        for hop in network.hops.iter().filter(|hop| !hop.back) {
            let ends = [hop.from, hop.to];
            if ends.iter().all(|&end| kind(end).page.name != "plugin") {
                let values = experiment.links[hop.link].values(false);
                plan.links.push(Link {
                    ends: ends.map(name),
                    rate: values.given("rate"),
                    queue: queue(values.given("queue"))?,
                });
            }
        }
        for node in (0..network.nodes.len()).filter(|&node| kind(node).page.name == "plugin") {
            let leaving = |wanted: &str| {
                let hops = network.leaving[node].iter().map(|&hop| &network.hops[hop]);
                hops.filter(|hop| kind(hop.to).page.name == wanted).collect::<Vec<_>>()
            };
            let (routers, hosts) = (leaving("router"), leaving("host"));
            let ([router], [host]) = (&routers[..], &hosts[..]) else {
                let name = name(node);
                return Err(Complaint(format!(
                    "`{name}` stands between a router and a host in a live run, and not here"
                )));
            };
            let values = experiment.links[host.link].values(host.back);
            let plugin = &kind(node).values;
            let Some(module) = plugin.given::<String>("module") else {
                return Err(Complaint(format!("`{}` has no module", name(node))));
            };
            plan.plugins.push(Owned {
                name: name(node),
                module,
                config: plugin.get("config"),
                router: name(router.to),
                host: name(host.to),
            });
            plan.links.push(Link {
                ends: [name(router.to), name(host.to)],
                rate: values.given("rate"),
                queue: queue(values.given("queue"))?,
            });
        }
        if plan.links.len() > LINKS_MAX {
            return Err(Complaint(format!("a live run has at most {LINKS_MAX} links")));
        }
        Ok(plan)
    }

    /// The address of a node: that on its first link.
    pub(super) fn address(&self, node: &str) -> Option<Ipv4Addr> {
        let mut ends = self.links.iter().enumerate();
        ends.find_map(|(link, one)| {
            let side = one.ends.iter().position(|end| end == node)?;
            Some(address(link, side))
        })
    }

    /// The rate of a host's line.
    pub(super) fn rate(&self, host: &str) -> Option<Rate> {
        self.links.iter().find(|link| link.ends[1] == host || link.ends[0] == host)?.rate
    }

    /// The links at a node: which, and on which side it is.
    fn at(&self, node: &str) -> Vec<(usize, usize)> {
        let links = self.links.iter().enumerate();
        let sides = links.flat_map(|(link, one)| [(link, 0, one), (link, 1, one)]);
        sides
            .filter(|(_, side, one)| one.ends[*side] == node)
            .map(|(at, side, _)| (at, side))
            .collect()
    }

    /// The next router from `node` towards each link that is not at it: its address.
    fn routes(&self, node: &str) -> BTreeMap<usize, Ipv4Addr> {
        let mut found = BTreeMap::new();
        let own: BTreeSet<usize> = self.at(node).into_iter().map(|(link, _)| link).collect();
        let mut known = BTreeSet::from([node.to_owned()]);
        let mut queue: VecDeque<(String, Ipv4Addr)> = VecDeque::new();
        let mut meet = |from: &str, first: Option<Ipv4Addr>, queue: &mut VecDeque<_>| {
            for (link, side) in self.at(from) {
                if let Some(first) = first.filter(|_| !own.contains(&link)) {
                    found.entry(link).or_insert(first);
                }
                let other = &self.links[link].ends[1 - side];
                if self.routers.contains(other) && known.insert(other.clone()) {
                    let first = first.unwrap_or(address(link, 1 - side));
                    queue.push_back((other.clone(), first));
                }
            }
        };
        meet(node, None, &mut queue);
        while let Some((at, first)) = queue.pop_front() {
            meet(&at, Some(first), &mut queue);
        }
        found
    }

    /// The number of a router's port towards a node: ports are in the order of their names.
    fn port(&self, router: &str, towards: &str) -> usize {
        let ports: BTreeSet<&str> = self.ports(router).map(|(peer, _)| peer).collect();
        ports.iter().position(|peer| *peer == towards).unwrap_or(0)
    }

    fn ports<'a>(&'a self, router: &'a str) -> impl Iterator<Item = (&'a str, &'a Link)> {
        self.at(router).into_iter().map(|(link, side)| {
            let link = &self.links[link];
            (link.ends[1 - side].as_str(), link)
        })
    }

    /// A router's file. With `plugins`, packets to a host behind one, to the UDP port that its configuration names
    /// first, pass it; the second number of the configuration, a queue's, becomes that of the port.
    pub(super) fn router_file(&self, router: &str, plugins: bool) -> String {
        let mut text = String::new();
        for (peer, link) in self.ports(router) {
            let _ = write!(
                text,
                "[ports.{peer}]\ninterface = \"{peer}\"\nflows = {FLOWS}\nframing = \"0 B\"\n"
            );
            if let Some(rate) = link.rate {
                let _ = writeln!(text, "rate = \"{} bit/s\"", rate.as_bits());
            }
            if let Some(queue) = &link.queue {
                let _ = writeln!(text, "queue = {queue}");
            }
        }
        for (link, via) in self.routes(router) {
            let _ = write!(text, "[[routes]]\nprefix = \"10.80.{link}.0/24\"\nvia = \"{via}\"\n");
        }
        for own in self.plugins.iter().filter(|own| plugins && own.router == router) {
            let port = own.config.split_whitespace().next().unwrap_or("0");
            let mut words: Vec<String> = own.config.split_whitespace().map(str::to_owned).collect();
            if let Some(queue) = words.get_mut(1) {
                *queue = self.port(router, &own.host).to_string();
            }
            let (name, config) = (&own.name, words.join(" "));
            let Some(to) = self.address(&own.host) else { continue };
            let _ = write!(
                text,
                "[plugins.{name}]\nmodule = \"{name}.wasm\"\nconfig = \"{config}\"\n\
                 [[filters]]\nmatch = \"@0.0.0.0/0 {to}/32 0 : 65535 {port} : {port} 0x11/0xFF\"\n\
                 plugin = \"{name}\"\n"
            );
        }
        text
    }
}

fn address(link: usize, side: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 80, link as u8, 1 + side as u8)
}

/// A queue as `router.toml` has it.
fn queue(queue: Option<Nested>) -> Result<Option<String>, Complaint> {
    let Some(queue) = queue else { return Ok(None) };
    let values = &queue.values;
    if queue.page.name != "drr" {
        let found = queue.page.name;
        return Err(Complaint(format!("a live run knows the queue `drr`, and not `{found}`")));
    }
    let mut words = vec![
        format!("quantum = \"{} B\"", values.get::<Bytes>("quantum").0),
        format!("unit = \"{}\"", values.get::<String>("unit")),
        format!("drop = \"{}\"", values.get::<String>("drop")),
    ];
    if let Some(bytes) = values.given::<Bytes>("bytes") {
        words.push(format!("bytes = \"{} B\"", bytes.0));
    }
    if let Some(packets) = values.given::<u64>("packets") {
        words.push(format!("packets = {packets}"));
    }
    Ok(Some(format!("{{ drr = {{ {} }} }}", words.join(", "))))
}

/// Namespaces, and the programs in them.
pub(super) struct Live {
    folder: PathBuf,
    own: u32,
    nodes: Vec<String>,
    routers: Vec<String>,
    children: Vec<Child>,
}

impl Live {
    /// Makes the namespaces and their links; nothing runs in them yet.
    pub(super) fn new(plan: &Plan, folder: &Path) -> Result<Live, Complaint> {
        let mut live = Live {
            folder: folder.to_owned(),
            own: std::process::id(),
            nodes: Vec::new(),
            routers: plan.routers.clone(),
            children: Vec::new(),
        };
        for node in plan.hosts.iter().chain(&plan.routers) {
            ip(&format!("netns add {}", live.namespace(node)))?;
            live.nodes.push(node.clone());
            ip(&format!("-n {} link set lo up", live.namespace(node)))?;
            let quiet = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; \
                         echo 0 > /proc/sys/net/ipv4/ip_forward; \
                         echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
            run(live.inside(node).args(["sh", "-c", quiet]))?;
        }
        for (number, link) in plan.links.iter().enumerate() {
            let [a, b] = &link.ends;
            let [first, second] = [a, b].map(|node| live.namespace(node));
            ip(&format!("link add {b} netns {first} type veth peer name {a} netns {second}"))?;
            for (side, (node, peer)) in [(a, b), (b, a)].into_iter().enumerate() {
                let (name, address) = (live.namespace(node), address(number, side));
                ip(&format!("-n {name} addr add {address}/24 dev {peer}"))?;
                ip(&format!("-n {name} link set {peer} up"))?;
                // Packets reach a router in the driver, so their checksums must be there already.
                run(live.inside(node).args(["ethtool", "-K", peer, "tx", "off"]))?;
            }
        }
        for host in &plan.hosts {
            if let Some(&(link, side)) = plan.at(host).first() {
                let via = address(link, 1 - side);
                ip(&format!("-n {} route add default via {via}", live.namespace(host)))?;
            }
        }
        Ok(live)
    }
    fn namespace(&self, node: &str) -> String {
        format!("lm-wave-{}-{node}", self.own)
    }
    /// A program in a node's namespace.
    fn inside(&self, node: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(node)]).stdin(Stdio::null());
        command
    }
    /// This program in a node's namespace, for as long as this value.
    pub(super) fn start(&mut self, node: &str, arguments: &[&str]) -> Result<usize, Complaint> {
        let log = std::fs::File::create(self.folder.join(format!("{node}.{}.log", arguments[1])))?;
        let mut command = self.inside(node);
        command.arg(std::env::current_exe()?).args(arguments);
        let child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        self.children.push(child);
        Ok(self.children.len() - 1)
    }
    /// Has all programs run before others of this machine: hosts and routers have processors of their own, and here
    /// they share some. Without the right to that, they run like others.
    pub(super) fn hurry(&self) {
        for child in &self.children {
            let (priority, pid) = (PRIORITY.to_string(), child.id().to_string());
            let chrt = ["--all-tasks", "--rr", "--pid", &priority, &pid];
            let _ = run(Command::new("chrt").args(chrt));
        }
    }
    /// Waits for a program's end.
    pub(super) fn wait(&mut self, child: usize) -> Result<bool, Complaint> {
        Ok(self.children[child].wait()?.success())
    }
    /// Runs this program in a node's namespace to its end; what it prints.
    pub(super) fn output(&self, node: &str, arguments: &[&str]) -> Result<Vec<u8>, Complaint> {
        let mut command = self.inside(node);
        run(command.arg(std::env::current_exe()?).args(arguments))
    }
    /// The file of a router.
    pub(super) fn file(&self, router: &str) -> PathBuf {
        self.folder.join(format!("{router}.toml"))
    }
    fn run_folder(&self, router: &str) -> PathBuf {
        self.folder.join(format!("run-{router}"))
    }
    /// Starts a router, and waits until it answers.
    pub(super) fn router(&mut self, router: &str) -> Result<(), Complaint> {
        let (file, run) = (self.file(router), self.run_folder(router));
        let (file, run) = (file.to_string_lossy().into_owned(), run.to_string_lossy().into_owned());
        let child = self.start(router, &["router", "run", &file, "--run", &run])?;
        let began = Instant::now();
        while self.ask(router, &json!({ "show": "ports" })).is_err() {
            let ended = self.children[child].try_wait()?.is_some();
            if ended || began.elapsed() > PATIENCE {
                let said = std::fs::read_to_string(self.folder.join(format!("{router}.run.log")));
                return Err(Complaint(format!(
                    "the router {router} did not begin: {}",
                    said.unwrap_or_default().trim()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
    /// Asks a router.
    pub(super) fn ask(&self, router: &str, question: &Value) -> Result<Value, Complaint> {
        Ok(control::ask(&self.run_folder(router).join("control.sock"), question)?)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for router in &self.routers {
            let _ = self.ask(router, &json!({ "end": true }));
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for node in &self.nodes {
            let _ = ip(&format!("netns del {}", self.namespace(node)));
        }
    }
}

fn ip(arguments: &str) -> Result<(), Complaint> {
    run(Command::new("ip").args(arguments.split_whitespace())).map(|_| ())
}

fn run(command: &mut Command) -> Result<Vec<u8>, Complaint> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| Complaint(format!("{program}: {error}; is it installed?")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    Err(Complaint(format!("{program} {}: {said}", words.join(" "))))
}
