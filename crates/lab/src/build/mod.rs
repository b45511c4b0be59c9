//! From an experiment to a graph that runs.
//!
//! ```text
//!  host                        router           host
//! (source)-->[server]==delay==>(forwarder)-->[server]==delay==>(sink)
//!            alice->r1                       r1->bob
//! ```
//!
//! Only what some traffic needs is built: the directions of links and the table entries on the way
//! of a flow. Names in the ledger: a wire is a resource `alice->r1`, with stages `alice->r1
//! transmit` and `alice->r1 propagation`; counted nodes share the stages of their group
//! (`s->r1 transmit`), and each has its own resource (`s.0->r1`).

mod adapter;
mod channel;
mod fabric;
mod flows;
mod hops;
pub(crate) mod host;
mod impair;
mod machine;
mod port;
mod preempt;
mod reception;
mod ring;
mod tcp;
mod vunet;
mod wormhole;

use crate::document::{Fault, Mark, Problem, Reporter};
use crate::experiment::{Experiment, Network};
use crate::library::Library;
use crate::replay::Slot;
use flows::Flows;
use lastmeter_base::{Bytes, Duration, NodeId, PathId, Rate, StageId, Time};
use lastmeter_engine::{Element, ElementId, Error, Graph, Place, PortId, ResourceId, StageInfo};
use lastmeter_lan::vunet::vci::SharedFile;
use lastmeter_net::queue::{Buffers, Promise, Site};
use lastmeter_net::tap::Tape;
use std::collections::{BTreeMap, BTreeSet};

/// What is different from the experiment, to see what it would buy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Resources that are so many times as fast, as numerator and denominator.
    pub speed: BTreeMap<String, (u64, u64)>,
    /// Stages that cost nothing.
    pub free: BTreeSet<String>,
    /// By how much every limit of every queue is multiplied, as numerator and denominator.
    pub buffers: (u64, u64),
    /// Fabrics, as declared, in whose place ideal output queueing stands.
    pub ideal: BTreeSet<String>,
}

impl Changes {
    /// The experiment as it is.
    pub const NONE: Changes = Changes {
        speed: BTreeMap::new(),
        free: BTreeSet::new(),
        buffers: (1, 1),
        ideal: BTreeSet::new(),
    };
}

/// Another live host, and the path of the ledger that leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The host.
    pub node: NodeId,
    /// From here to there.
    pub path: PathId,
}

/// A host of a live run, for whoever makes its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveEnd {
    /// Its place among the live hosts, in order of declaration.
    pub index: usize,
    /// What it is called in the graph.
    pub node: NodeId,
    /// The other live hosts.
    pub peers: Vec<Peer>,
}

/// Makes the element that stands at a live host.
pub type Ends<'a> = dyn FnMut(LiveEnd) -> Box<dyn Element> + 'a;

/// A graph that is ready to run.
pub struct Built {
    /// What runs.
    pub graph: Graph,
    /// Until when.
    pub end: Time,
    captures: Vec<Capture>,
    tapes: Vec<(String, Tape)>,
    reporter: Reporter,
}

/// A capture that is being replayed.
struct Capture {
    mark: Mark,
    key: String,
    slot: Slot,
}

impl Built {
    /// Takes from a built experiment what tells, after the run, whether every capture could be
    /// read to where the run needed it.
    pub fn captures(&mut self) -> Captures {
        let captures = std::mem::take(&mut self.captures);
        let tapes = std::mem::take(&mut self.tapes);
        Captures { captures, tapes, reporter: self.reporter.clone() }
    }
}

/// The captures that a run replays and those that it writes.
pub struct Captures {
    captures: Vec<Capture>,
    tapes: Vec<(String, Tape)>,
    reporter: Reporter,
}

impl Captures {
    /// Every capture that broke while it was replayed, with the record and byte at which it did. A
    /// run in which one did is no result.
    pub fn problems(mut self) -> Vec<Problem> {
        for Capture { mark, key, slot } in &self.captures {
            if let Some(failure) = slot.failure() {
                let right = "replay a complete capture";
                self.reporter.report(mark, key, Fault::new(failure, right));
            }
        }
        for (link, tape) in &self.tapes {
            if let Err(error) = tape.end() {
                let right = "choose a place with room for the capture";
                let fault = Fault::new(format!("capture of `{link}`: {error}"), right);
                self.reporter.report(&Mark { source: 0, span: 0..0 }, "", fault);
            }
        }
        self.reporter.into_problems()
    }
}

/// Builds the graph of an experiment, with something changed or not.
///
/// # Errors
/// What cannot be known before: captures that cannot be opened, changes of what is not there.
pub fn build(
    experiment: &Experiment,
    changes: &Changes,
    library: &dyn Library,
) -> Result<Built, Vec<Problem>> {
    build_between(experiment, changes, library, None)
}

/// As [`build`], with something else at the live hosts, where `ends` makes it: ports, or what
/// plays back what ports have seen.
///
/// # Errors
/// As [`build`].
pub fn build_between(
    experiment: &Experiment,
    changes: &Changes,
    library: &dyn Library,
    ends: Option<&mut Ends<'_>>,
) -> Result<Built, Vec<Problem>> {
    let network = Network::new(experiment);
    let flows = Flows::new(experiment, &network, ends.is_some());
    let mut builder = Builder {
        experiment,
        network: &network,
        flows: &flows,
        changes,
        library,
        ends,
        live_paths: BTreeMap::new(),
        graph: Graph::new(experiment.seed),
        stages: BTreeMap::new(),
        resources: BTreeSet::new(),
        ports: BTreeMap::new(),
        files: BTreeMap::new(),
        promises: BTreeMap::new(),
        leaves: BTreeMap::new(),
        captures: Vec::new(),
        tapes: Vec::new(),
        reporter: experiment.reporter.clone(),
    };
    if let Err(error) = builder.build() {
        let right = "make the experiment smaller, or rename what has this name";
        builder.report_whole(Fault::new(error.to_string(), right));
    }
    builder.check_changes();
    builder.place_resources();
    match builder.reporter.is_empty() {
        true => Ok(Built {
            graph: builder.graph,
            end: Time::START + experiment.duration,
            captures: builder.captures,
            tapes: builder.tapes,
            reporter: builder.reporter,
        }),
        false => Err(builder.reporter.into_problems()),
    }
}

/// Where packets enter something.
type Input = (ElementId, PortId);
/// Where packets leave something.
type Output = (ElementId, PortId);

/// A graph in the making.
struct Builder<'a, 'e> {
    experiment: &'a Experiment,
    network: &'a Network,
    flows: &'a Flows,
    changes: &'a Changes,
    library: &'a dyn Library,
    ends: Option<&'a mut Ends<'e>>,
    /// For each live host, the paths to the others.
    live_paths: BTreeMap<usize, Vec<(usize, PathId)>>,
    graph: Graph,
    stages: BTreeMap<String, StageId>,
    resources: BTreeSet<String>,
    /// The input that a hop leads to, where its node has one for each.
    ports: BTreeMap<usize, Input>,
    /// Who has which channels of the VuNet, for each host.
    files: BTreeMap<usize, SharedFile>,
    /// What each link has promised to channels, by its name.
    promises: BTreeMap<String, Vec<Promise>>,
    /// When the packets of each channel have surely left its first link, after their logical arrival, by
    /// its flow.
    leaves: BTreeMap<usize, Duration>,
    captures: Vec<Capture>,
    tapes: Vec<(String, Tape)>,
    reporter: Reporter,
}

impl Builder<'_, '_> {
    fn build(&mut self) -> Result<(), Error> {
        let paths = self.declare_paths();
        self.establish(&paths);
        let mut inputs = BTreeMap::new();
        let mut outputs = Vec::new();
        for node in self.flows.nodes() {
            let made = match self.network.nodes[node].forwards {
                true => self.forwarding_node(node)?,
                false => self.host(node, &paths)?,
            };
            inputs.extend(made.input.map(|input| (node, input)));
            outputs.extend(made.outputs);
        }
        self.join(&inputs, &outputs)
    }

    /// Where the queue of `name` will stand.
    fn site<'n>(&'n self, name: &'n str, rate: Option<Rate>, framing: Bytes) -> Site<'n> {
        let (numerator, denominator) = self.changes.buffers;
        let buffers = Buffers { numerator, denominator: denominator.max(1) };
        let promises = self.promises.get(name).map_or(&[][..], Vec::as_slice);
        Site { buffers, rate, framing, promises, seed: self.experiment.seed, name }
    }

    /// How many times as fast a resource is.
    fn speed(&self, resource: &str) -> (u64, u64) {
        let (numerator, denominator) = self.changes.speed.get(resource).copied().unwrap_or((1, 1));
        (numerator.max(1), denominator.max(1))
    }

    /// Says of each resource which host it is in, and which of other members are its like.
    fn place_resources(&mut self) {
        let hosts = self.network.nodes.iter().map(|node| node.name.as_str());
        let hosts: BTreeSet<&str> = hosts.collect();
        for (name, place) in self.graph.places() {
            let mut dots = name.match_indices('.').map(|(at, _)| &name[..at]);
            let host = dots.rfind(|host| hosts.contains(host)).map(str::to_owned);
            place.host = place.host.take().or(host);
            let group = Some(group_of(name)).filter(|group| group != name);
            place.group = place.group.take().or(group);
        }
    }

    fn is_free(&self, stage: &str) -> bool {
        self.changes.free.contains(stage)
    }

    /// The stage of this name; members of a counted node share it, and then it names no resource,
    /// because each has its own.
    fn stage(&mut self, name: String, resource: Option<ResourceId>) -> StageId {
        self.stage_for(name, None, resource)
    }

    /// [`Builder::stage`] with a role.
    fn stage_for(
        &mut self,
        name: String,
        role: Option<&'static str>,
        resource: Option<ResourceId>,
    ) -> StageId {
        let graph = &mut self.graph;
        *self.stages.entry(name.clone()).or_insert_with(|| {
            let place = Place { role, ..Place::default() };
            graph.stage(StageInfo { place, ..StageInfo::new(name, resource) })
        })
    }

    fn report_whole(&mut self, fault: Fault) {
        self.reporter.report(&Mark { source: 0, span: 0..0 }, "", fault);
    }

    /// Changes must be of something that is there: else a what-if would say that nothing matters.
    fn check_changes(&mut self) {
        let mut faults = Vec::new();
        for name in self.changes.speed.keys().filter(|name| !self.resources.contains(*name)) {
            let known = self.resources.iter().map(String::as_str);
            let found = format!("there is no resource `{name}`");
            faults.push(Fault::unknown(found, "name a resource of the ledger", name, known));
        }
        for name in self.changes.free.iter().filter(|name| !self.stages.contains_key(*name)) {
            let known = self.stages.keys().map(String::as_str);
            let found = format!("there is no stage `{name}`");
            faults.push(Fault::unknown(found, "name a stage of the ledger", name, known));
        }
        faults.into_iter().for_each(|fault| self.report_whole(fault));
    }
}

/// A node that has been built.
struct Made {
    /// Where packets enter it; `None` where none ever do.
    input: Option<Input>,
    /// Where packets leave it, and the hop that they take there.
    outputs: Vec<(Output, usize)>,
}

/// The name of a resource without the numbers of replicas: `s.3->r1` belongs to `s->r1`.
fn group_of(resource: &str) -> String {
    let mut group = String::with_capacity(resource.len());
    let mut rest = resource;
    while let Some(dot) = rest.find('.') {
        group.push_str(&rest[..dot]);
        let after = &rest[dot + 1..];
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            group.push('.');
        }
        rest = &after[digits..];
    }
    group + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_belong_to_one_group() {
        let cases = [
            ("s.3->r1", "s->r1"),
            ("r1->d.12", "r1->d"),
            ("alice.cpu", "alice.cpu"),
            ("s.3.cpu", "s.cpu"),
            ("a.b.", "a.b."),
        ];
        for (name, group) in cases {
            assert_eq!(group_of(name), group);
        }
    }
}
