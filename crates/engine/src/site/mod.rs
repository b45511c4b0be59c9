//! What a kind of node gets to build itself into a graph, and what it gives back.
//!
//! ```text
//!            neighbours, routes, names, seed
//!                        |
//! Values --build(&values, &mut Site)--> Ports: where packets enter and leave, by neighbour
//!                        |
//!           elements, stages, resources (with what a what-if changes already in them)
//! ```
//!
//! A kind asks for its stages and resources by what they are for, and takes each of its times and rates
//! through the [`Stage`] that it belongs to: there "twice as fast" and "at no cost" are applied, so no kind
//! knows that there are what-ifs.

mod ends;
mod host;
mod names;

pub use ends::{Ends, Flow, Receiver, Records, TrafficKind};
pub use host::{Applications, Between, HostKind};
pub use names::{Changes, FREE, Names, Resource, Speed, Stage};

use crate::books::{Place, ResourceInfo, ResourceKind, StageInfo};
use crate::{Element, ElementId, Error, Graph, PortId};
use lastmeter_base::kind::{Nested, Values};
use lastmeter_base::text::shorten;
use lastmeter_base::{Bytes, NodeId, Stream};
use std::any::Any;
use std::io::Read;
use std::sync::Arc;

/// What builds a node from its parameters, which fit each other.
pub type Build = fn(&Values, &mut Site<'_>) -> Result<Ports, Error>;

/// What makes a node of its kind, which packets pass.
pub struct NodeKind {
    /// Builds one.
    pub build: Build,
    /// What others tell it by: [`Router`], [`Fabric`], or a type of its crate's own.
    pub own: &'static (dyn Any + Send + Sync),
}

impl NodeKind {
    /// One that nobody has to tell from others.
    pub const fn new(build: Build) -> NodeKind {
        NodeKind { build, own: &() }
    }
}

/// What kinds are told by that pass packets on at once, so that admission has to know only links.
pub struct Router;

/// What kinds are told by that are the inside of a router: what comes from one is on its way out, and
/// ideal output queueing can stand in its place.
pub struct Fabric {
    /// Whether it does already.
    pub is_ideal: fn(&Values) -> bool,
}

/// What a kind of node is told by, where that is of this type.
pub fn own<T: Any>(kind: &Nested) -> Option<&'static T> {
    kind.made_by::<NodeKind>()?.own.downcast_ref()
}

/// Where packets enter something.
pub type Input = (ElementId, PortId);
/// Where packets leave something.
pub type Output = (ElementId, PortId);

/// Where a node is joined to its neighbours.
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
    /// All at one place.
    One(Input),
    /// From each neighbour at a place of its own.
    Each(Vec<Input>),
}

/// Where packets leave a node.
#[derive(Clone, Debug)]
pub enum Outputs {
    /// Here, wherever they go: where several links lead on, a forwarder is put behind.
    Any(Vec<Output>),
    /// To each neighbour at a place of its own.
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

/// Someone at the other end of one of a node's links.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour<'a> {
    /// What packets call it.
    pub node: NodeId,
    /// Its own name: `s.3`.
    pub name: &'a str,
    /// The name that it was declared by: `s`.
    pub group: &'a str,
    /// What it is.
    pub kind: &'a Nested,
}

impl Neighbour<'_> {
    /// Whether it, or the group that it is a member of, has this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.group == name
    }
}

/// The network around a site, and what files it may read.
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
    /// The name that it was declared by.
    fn group(&self, node: NodeId) -> &str;
    /// What it is.
    fn kind(&self, node: NodeId) -> &Nested;
    /// Its neighbours, in the order of their links.
    fn neighbours(&self, node: NodeId) -> Vec<Neighbour<'_>>;
    /// The nodes from one to another on the way that packets take, both included.
    fn way(&self, from: NodeId, to: NodeId) -> Vec<NodeId>;
    /// What the profile describes that a parameter of a node names, where it could be read.
    fn profile(&self, node: NodeId, param: &str) -> Option<Arc<dyn Any + Send + Sync>>;
    /// Opens a file that the experiment names.
    ///
    /// # Errors
    /// Says why it cannot be opened.
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String>;
}

/// Where a node will stand.
pub struct Site<'a> {
    /// What it is built into.
    pub graph: &'a mut Graph,
    /// The stages and resources that there are, and what is changed of them.
    pub names: &'a mut Names,
    /// What is around it.
    pub network: &'a dyn Network,
    /// The experiment's.
    pub seed: u64,
    /// What packets call it.
    pub node: NodeId,
    /// Its own name: `s.3`.
    pub name: &'a str,
    /// The name that it was declared by: `s`.
    pub group: &'a str,
    /// Whether there are others like it: they share its stages, and have resources of their own.
    pub shared: bool,
    /// Who is at the other end of each of its links, in the order in which these are declared.
    pub neighbours: Vec<Neighbour<'a>>,
    /// Which neighbour leads to each node that packets go to from here.
    pub routes: Vec<(NodeId, usize)>,
    /// Where the constants come from of what is declared next, where a profile says so.
    pub source: Option<String>,
}

/// What a stage does to each byte, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// It copies it.
    pub copies: u32,
    /// A processor reads or writes it.
    pub touches: u32,
    /// It crosses memory.
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

    /// A resource of the node's own, called as the node is, with `suffix` behind it: `""` for its only one,
    /// `" pci"`, `".cpu"`.
    pub fn resource(&mut self, role: &'static str, suffix: &str, kind: ResourceKind) -> Resource {
        self.units(role, suffix, kind, 1)
    }

    /// A resource that serves so many packets at once.
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

    /// A resource for each of several other nodes, called as this node is, with `suffix` and the
    /// other's name behind it.
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

    /// Where something of this node's own stands, for what is declared through [`Site::names`].
    pub fn place(&self, role: &'static str) -> Place {
        let (host, source) = (Some(self.name.to_owned()), self.source.clone());
        Place { host, group: None, role: Some(role), source }
    }

    /// The stage of what happens here to packets, which all nodes of its group share: `s transmit`. Where
    /// `resource` serves it, it is as fast as that.
    pub fn stage(&mut self, role: &'static str, resource: Option<&Resource>) -> Stage {
        self.moving(role, role, resource, Moves::default())
    }

    /// A stage of another name than its role that moves each byte.
    pub fn moving(
        &mut self,
        name: &str,
        role: &'static str,
        resource: Option<&Resource>,
        moves: Moves,
    ) -> Stage {
        // Members of a group share the stage, and then it names no resource: each has its own.
        let of = resource.filter(|_| !self.shared).map(|resource| resource.id);
        let host = if self.shared { self.group } else { self.name };
        let place = Place { host: Some(host.to_owned()), ..self.place(role) };
        let Moves { copies, touches, memory } = moves;
        let info = StageInfo::new(format!("{} {name}", self.group), of);
        let info = StageInfo { copies, touches, memory, place, ..info };
        let stage = self.names.stage(self.graph, info);
        resource.map_or(stage, |resource| stage.on(resource))
    }

    /// A stage of this node alone, whatever its group: `s.3 access`.
    pub fn own_stage(&mut self, role: &'static str, resource: Option<&Resource>) -> Stage {
        let group = (self.group != self.name).then(|| format!("{} {role}", self.group));
        let place = Place { group, ..self.place(role) };
        let of = resource.map(|resource| resource.id);
        let info = StageInfo { place, ..StageInfo::new(format!("{} {role}", self.name), of) };
        let stage = self.names.stage(self.graph, info);
        resource.map_or(stage, |resource| stage.on(resource))
    }

    /// A random stream of the node's own besides its element's.
    pub fn stream(&self, what: &str) -> Stream {
        Stream::new(self.seed, &format!("{}{what}", self.name))
    }

    /// The neighbours that packets leave to, in the order of their links.
    pub fn leads_to(&self) -> Vec<usize> {
        let mut used: Vec<usize> = self.routes.iter().map(|&(_, neighbour)| neighbour).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Two neighbours, for what stands between two.
    ///
    /// # Errors
    /// If there are more or fewer.
    pub fn between_two(&self) -> Result<[Neighbour<'_>; 2], String> {
        let attached = self.neighbours.len();
        <[Neighbour<'_>; 2]>::try_from(self.neighbours.as_slice())
            .map_err(|_| format!("it joins two neighbours, not {attached}"))
    }

    /// The nodes of these names.
    ///
    /// # Errors
    /// The name that is none.
    pub fn nodes(&self, names: &[String]) -> Result<Vec<NodeId>, String> {
        let node = |name: &String| {
            let wrong = || format!("there is no node `{}`", shorten(name));
            self.network.find(name).ok_or_else(wrong)
        };
        names.iter().map(node).collect()
    }

    /// What the profile describes that a parameter names.
    ///
    /// # Errors
    /// If it could not be read, or describes something else.
    pub fn profile<T: Any + Send + Sync>(&self, param: &str) -> Result<Arc<T>, String> {
        let profile = self.network.profile(self.node, param).and_then(|any| any.downcast().ok());
        profile.ok_or_else(|| "its profile could not be read".to_owned())
    }

    /// A file that a parameter names, as far as it is not longer than `most`.
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
