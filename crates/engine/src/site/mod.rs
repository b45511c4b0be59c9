//! What a kind of node is given to build itself into a graph, and what it returns.
//!
//! ```text
//!            neighbours, routes, names, seed
//!                        |
//! Values --build(&values, &mut Site)--> Ports: where packets enter and leave, by neighbour
//!                        |
//!           elements, stages, resources (with the changes of a what-if applied)
//! ```
//!
//! A kind declares its stages and resources by role, and passes each of its times and rates through the
//! [`Stage`] that it belongs to. "Twice as fast" and "at no cost" are applied there, so kinds are independent
//! of what-ifs.

mod ends;
mod host;
mod names;
mod program;

pub use ends::{Ends, Flow, Receiver, Records, TrafficKind};
pub use host::{Applications, Between, HostKind};
pub use names::{Changes, FREE, Names, Resource, Speed, Stage};
pub use program::{Asked, Code, Gauge, Granted, Order, Program, Programs, Waiting, Wish};

use crate::books::{Place, ResourceInfo, ResourceKind, StageInfo};
use crate::{Element, ElementId, Error, Graph, PortId};
use lastmeter_base::kind::{Nested, Values};
use lastmeter_base::text::shorten;
use lastmeter_base::{Bytes, NodeId, Rate, Stream};
use std::any::Any;
use std::io::Read;
use std::sync::Arc;

/// Builds a node from its parameters, which have been checked together.
pub type Build = fn(&Values, &mut Site<'_>) -> Result<Ports, Error>;

/// Builds a node that forwards packets.
pub struct NodeKind {
    /// Builds one.
    pub build: Build,
    /// Its type as seen by others: [`Router`], [`Fabric`], [`Speaks`], or a type of its own crate.
    pub own: &'static (dyn Any + Send + Sync),
}

impl NodeKind {
    /// A kind that no other code needs to distinguish.
    pub const fn new(build: Build) -> NodeKind {
        NodeKind { build, own: &() }
    }
}

/// Marks kinds that forward packets at once, so that admission only has to consider links.
pub struct Router;

/// Marks kinds that are the inside of a router: a packet that leaves one is on its way out, and ideal output
/// queueing can replace it.
pub struct Fabric {
    /// Whether it is ideal output queueing already.
    pub is_ideal: fn(&Values) -> bool,
}

/// Marks kinds whose nodes send packets to one another: each has routes to all others.
pub struct Speaks;

/// A node's [`NodeKind::own`], if it is of type `T`.
pub fn own<T: Any>(kind: &Nested) -> Option<&'static T> {
    kind.made_by::<NodeKind>()?.own.downcast_ref()
}

/// Where packets enter something.
pub type Input = (ElementId, PortId);
/// Where packets leave something.
pub type Output = (ElementId, PortId);

/// Where a node is connected to its neighbours.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Where packets enter.
    pub inputs: Inputs,
    /// Where they leave.
    pub outputs: Outputs,
}

/// Where packets enter a node.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// All packets enter here.
    One(Input),
    /// An input for each neighbour.
    Each(Vec<Input>),
}

/// Where packets leave a node.
#[derive(Clone, Debug)]
pub enum Outputs {
    /// Packets to any neighbour leave here: if there are several links, a forwarder follows.
    Any(Vec<Output>),
    /// An output for each neighbour.
    Each(Vec<Output>),
}

impl Ports {
    /// All packets enter an element at its input 0 and leave it at its output 0.
    pub fn through(element: ElementId) -> Ports {
        let port = (element, PortId(0));
        Ports { inputs: Inputs::One(port), outputs: Outputs::Any(vec![port]) }
    }

    /// An element with an input and an output of the same number for each neighbour.
    pub fn each(element: ElementId, ports: impl IntoIterator<Item = usize>) -> Ports {
        let ports = ports.into_iter().map(|port| (element, PortId(port as u16)));
        Ports::places(ports.map(|port| (port, port)))
    }

    /// An input and an output for each neighbour.
    pub fn places(places: impl IntoIterator<Item = (Input, Output)>) -> Ports {
        let (inputs, outputs) = places.into_iter().unzip();
        Ports { inputs: Inputs::Each(inputs), outputs: Outputs::Each(outputs) }
    }
}

/// The node at the other end of one of a node's links.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour<'a> {
    /// Its number in packets.
    pub node: NodeId,
    /// Its own name: `s.3`.
    pub name: &'a str,
    /// The name under which it was declared: `s`.
    pub group: &'a str,
    /// Its kind and parameters.
    pub kind: &'a Nested,
}

impl Neighbour<'_> {
    /// Whether this is its name or that of its group.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.group == name
    }
}

/// The network around a site, and the files that the experiment names.
pub trait Network {
    /// How many nodes there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The node of this name.
    fn find(&self, name: &str) -> Option<NodeId>;
    /// Its name.
    fn name(&self, node: NodeId) -> &str;
    /// The name under which it was declared.
    fn group(&self, node: NodeId) -> &str;
    /// Its kind and parameters.
    fn kind(&self, node: NodeId) -> &Nested;
    /// Its neighbours, in the order of their links.
    fn neighbours(&self, node: NodeId) -> Vec<Neighbour<'_>>;
    /// The route of packets from one node to another, both included.
    fn way(&self, from: NodeId, to: NodeId) -> Vec<NodeId>;
    /// The decoded profile that a parameter of a node names; `None` if it could not be read.
    fn profile(&self, node: NodeId, param: &str) -> Option<Arc<dyn Any + Send + Sync>>;
    /// Opens a file that the experiment names.
    ///
    /// # Errors
    /// If it cannot be opened: says why.
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String>;
    /// The rate of a node's link to its neighbour of this index; `None` if it has none, and no queue.
    fn rate(&self, node: NodeId, neighbour: usize) -> Option<Rate>;
    /// Line time of each packet beyond its length on that link.
    fn framing(&self, node: NodeId, neighbour: usize) -> Bytes;
    /// What runs owners' programs; `None` if this program cannot.
    fn programs(&self) -> Option<&dyn Programs>;
}

/// Where a node is built.
pub struct Site<'a> {
    /// The graph that it becomes part of.
    pub graph: &'a mut Graph,
    /// The stages and resources declared so far, and the changes of a what-if.
    pub names: &'a mut Names,
    /// The network around it.
    pub network: &'a dyn Network,
    /// The seed of the experiment.
    pub seed: u64,
    /// Its number in packets.
    pub node: NodeId,
    /// Its own name: `s.3`.
    pub name: &'a str,
    /// The name under which it was declared: `s`.
    pub group: &'a str,
    /// Whether its group has several members: they share stages, and each has resources of its own.
    pub shared: bool,
    /// The node at the other end of each link, in the order in which links are declared.
    pub neighbours: Vec<Neighbour<'a>>,
    /// For each destination of packets from here, the index of the neighbour that leads to it.
    pub routes: Vec<(NodeId, usize)>,
    /// The source of the constants of what is declared next, if a profile states one.
    pub source: Option<String>,
}

/// How often a stage does what to each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Copies it.
    pub copies: u32,
    /// Reads or writes it with a processor.
    pub touches: u32,
    /// Moves it over the memory bus.
    pub memory: u32,
}

impl Site<'_> {
    /// Adds its only element, under its own name.
    ///
    /// # Errors
    /// If the name is taken or the graph is full.
    pub fn add(&mut self, element: impl Element + 'static) -> Result<ElementId, Error> {
        self.graph.add(self.name, element)
    }

    /// As [`Site::add`].
    ///
    /// # Errors
    /// As [`Site::add`].
    pub fn add_boxed(&mut self, element: Box<dyn Element>) -> Result<ElementId, Error> {
        self.graph.add_boxed(self.name.to_owned(), element)
    }

    /// A resource of this node, named after the node plus `suffix`: `""` for its only one, `" pci"`, `".cpu"`.
    pub fn resource(&mut self, role: &'static str, suffix: &str, kind: ResourceKind) -> Resource {
        self.units(role, suffix, kind, 1)
    }

    /// A resource that serves up to `units` packets at once.
    pub fn units(
        &mut self,
        role: &'static str,
        suffix: &str,
        kind: ResourceKind,
        units: u32,
    ) -> Resource {
        let names = [self.name, self.group].map(|name| format!("{name}{suffix}"));
        self.declare(role, names, kind, units)
    }

    /// A resource dedicated to another node, named after this node, `suffix` and the other node.
    pub fn towards(
        &mut self,
        role: &'static str,
        suffix: &str,
        other: NodeId,
        kind: ResourceKind,
    ) -> Resource {
        let name = format!("{}{suffix}{}", self.name, self.network.name(other));
        let group = format!("{}{suffix}{}", self.group, self.network.group(other));
        self.declare(role, [name, group], kind, 1)
    }

    fn declare(
        &mut self,
        role: &'static str,
        [name, group]: [String; 2],
        kind: ResourceKind,
        units: u32,
    ) -> Resource {
        let group = (group != name).then_some(group);
        let place = Place { group, ..self.place(role) };
        self.names
            .resource(self.graph, ResourceInfo { units, place, ..ResourceInfo::new(name, kind) })
    }

    /// The place of something in this node, for declaring it through [`Site::names`].
    pub fn place(&self, role: &'static str) -> Place {
        let (host, source) = (Some(self.name.to_owned()), self.source.clone());
        Place { host, group: None, role: Some(role), source }
    }

    /// A stage of this node, shared by all nodes of its group: `s transmit`. It is as fast as the `resource`
    /// that serves it.
    pub fn stage(&mut self, role: &'static str, resource: Option<&Resource>) -> Stage {
        self.moving(role, role, resource, Moves::default())
    }

    /// A stage whose name differs from its role and which moves bytes.
    pub fn moving(
        &mut self,
        name: &str,
        role: &'static str,
        resource: Option<&Resource>,
        moves: Moves,
    ) -> Stage {
        // Members of a group share the stage, so it names no resource: each has its own.
        let of = resource.filter(|_| !self.shared).map(|resource| resource.id);
        let host = if self.shared { self.group } else { self.name };
        let place = Place { host: Some(host.to_owned()), ..self.place(role) };
        let Moves { copies, touches, memory } = moves;
        let info = StageInfo::new(format!("{} {name}", self.group), of);
        let info = StageInfo { copies, touches, memory, place, ..info };
        let stage = self.names.stage(self.graph, info);
        resource.map_or(stage, |resource| stage.on(resource))
    }

    /// A stage of this node alone, not of its group: `s.3 access`.
    pub fn own_stage(&mut self, role: &'static str, resource: Option<&Resource>) -> Stage {
        let group = (self.group != self.name).then(|| format!("{} {role}", self.group));
        let place = Place { group, ..self.place(role) };
        let of = resource.map(|resource| resource.id);
        let info = StageInfo { place, ..StageInfo::new(format!("{} {role}", self.name), of) };
        let stage = self.names.stage(self.graph, info);
        resource.map_or(stage, |resource| stage.on(resource))
    }

    /// A random stream of the node, besides those of its elements.
    pub fn stream(&self, what: &str) -> Stream {
        Stream::new(self.seed, &format!("{}{what}", self.name))
    }

    /// The neighbours to which packets leave, in the order of their links.
    pub fn leads_to(&self) -> Vec<usize> {
        let mut used: Vec<usize> = self.routes.iter().map(|&(_, neighbour)| neighbour).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// The two neighbours of a node that connects exactly two.
    ///
    /// # Errors
    /// If there are more or fewer.
    pub fn between_two(&self) -> Result<[Neighbour<'_>; 2], String> {
        let attached = self.neighbours.len();
        <[Neighbour<'_>; 2]>::try_from(self.neighbours.as_slice())
            .map_err(|_| format!("it joins two neighbours, not {attached}"))
    }

    /// How much waits in the queue of the link to the neighbour of this index.
    pub fn gauge(&mut self, neighbour: usize) -> Gauge {
        self.names.gauge(self.node, neighbour)
    }

    /// The nodes of these names.
    ///
    /// # Errors
    /// Names the first that does not exist.
    pub fn nodes(&self, names: &[String]) -> Result<Vec<NodeId>, String> {
        let node = |name: &String| {
            let wrong = || format!("there is no node `{}`", shorten(name));
            self.network.find(name).ok_or_else(wrong)
        };
        names.iter().map(node).collect()
    }

    /// The decoded profile that a parameter names.
    ///
    /// # Errors
    /// If it could not be read, or describes something else.
    pub fn profile<T: Any + Send + Sync>(&self, param: &str) -> Result<Arc<T>, String> {
        let profile = self.network.profile(self.node, param).and_then(|any| any.downcast().ok());
        profile.ok_or_else(|| "its profile could not be read".to_owned())
    }

    /// Reads a file that a parameter names, of at most `most` bytes.
    ///
    /// # Errors
    /// If it cannot be read or is too long: says which and why.
    pub fn read(&self, path: &str, most: Bytes) -> Result<Vec<u8>, String> {
        let wrong = |error: String| format!("`{}`: {error}", shorten(path));
        let file = self.network.open(path).map_err(wrong)?;
        let mut text = Vec::new();
        let len = file.take(most.0 + 1).read_to_end(&mut text);
        match len.map_err(|error| wrong(error.to_string()))? as u64 > most.0 {
            true => Err(wrong(format!("it is longer than {most}"))),
            false => Ok(text),
        }
    }
}
