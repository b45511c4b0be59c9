//! From an experiment to a runnable graph.
//!
//! ```text
//!  host                        router           host
//! (source)-->[server]==delay==>(forwarder)-->[server]==delay==>(sink)
//!            alice->r1                       r1->bob
//! ```
//!
//! Only what traffic needs is built: link directions in use, and table entries along the route of a flow. Names in
//! the ledger: a wire is a resource `alice->r1`, with stages `alice->r1 transmit` and `alice->r1 propagation`;
//! counted nodes share the stages of their group (`s->r1 transmit`), and each has its own resource (`s.0->r1`).

#[cfg(test)]
mod adapter_tests;
mod channel;
mod ends;
mod flows;
mod hops;
mod host;
mod node;
#[cfg(test)]
mod place_tests;

pub use lastmeter_engine::site::Changes;

use crate::document::{Fault, Mark, Problem, Reporter};
use crate::experiment::{Experiment, Network};
use crate::library::Library;
use crate::replay::Slot;
use crate::tap::Tape;
use flows::Flows;
use lastmeter_base::{Bytes, Duration, NodeId, PathId, Rate, Time};
use lastmeter_engine::site::{Input, Names, Output};
use lastmeter_engine::{Element, Error, Graph};
use lastmeter_net::queue::{self, Buffers, Promise};
use std::collections::BTreeMap;

/// Another live host, and the ledger path that leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The host.
    pub node: NodeId,
    /// From here to there.
    pub path: PathId,
}

/// A host of a live run, as passed to the maker of its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveEnd {
    /// Its place among the live hosts, in order of declaration.
    pub index: usize,
    /// Its name in the graph.
    pub node: NodeId,
    /// The other live hosts.
    pub peers: Vec<Peer>,
}

/// Makes the element that takes the place of a live host.
pub type Ends<'a> = dyn FnMut(LiveEnd) -> Box<dyn Element> + 'a;

/// A graph ready to run.
pub struct Built {
    /// The graph.
    pub graph: Graph,
    /// The time at which the run ends.
    pub end: Time,
    captures: Vec<Capture>,
    tapes: Vec<(String, Tape)>,
    reporter: Reporter,
}

/// A capture being replayed.
struct Capture {
    mark: Mark,
    key: String,
    slot: Slot,
}

impl Built {
    /// Takes the captures of a built experiment, to check after the run whether each could be read as far as the
    /// run needed.
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
    /// Every capture that broke while it was replayed, with the record and byte at which it did. A run with a broken
    /// capture has no valid result.
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

/// Builds the graph of an experiment with `changes`.
///
/// # Errors
/// What could not be checked earlier: captures that cannot be opened, changes of things that do not exist.
pub fn build(
    experiment: &Experiment,
    changes: &Changes,
    library: &dyn Library,
) -> Result<Built, Vec<Problem>> {
    build_between(experiment, changes, library, None)
}

/// As [`build`], but `ends` makes the elements of live hosts: ports, or what plays back the packets that ports have
/// seen.
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
        library,
        ends,
        live_paths: BTreeMap::new(),
        graph: Graph::new(experiment.seed),
        names: Names::new(changes.clone()),
        ports: BTreeMap::new(),
        promises: BTreeMap::new(),
        leaves: BTreeMap::new(),
        captures: Vec::new(),
        tapes: Vec::new(),
        reporter: experiment.reporter.clone(),
    };
    if let Err(error) = builder.build() {
        let right = "make the experiment smaller, or rename the node with this name";
        builder.report_whole(Fault::new(error.to_string(), right));
    }
    builder.check_changes();
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

/// A graph under construction.
struct Builder<'a, 'e> {
    experiment: &'a Experiment,
    network: &'a Network,
    flows: &'a Flows,
    library: &'a dyn Library,
    ends: Option<&'a mut Ends<'e>>,
    /// For each live host, the paths to the others.
    live_paths: BTreeMap<usize, Vec<(usize, PathId)>>,
    graph: Graph,
    names: Names,
    /// The input that a hop leads to, if its node has one for each.
    ports: BTreeMap<usize, Input>,
    /// The guarantees of each link to channels, by the link's name.
    promises: BTreeMap<String, Vec<Promise>>,
    /// The time after their logical arrival by which the packets of each channel have left its first link, by
    /// flow.
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
                true => self.node(node)?,
                false => self.host(node, &paths)?,
            };
            inputs.extend(made.input.map(|input| (node, input)));
            outputs.extend(made.outputs);
        }
        self.join(&inputs, &outputs)
    }

    /// The place of the queue of `name`.
    fn site<'n>(&'n self, name: &'n str, rate: Option<Rate>, framing: Bytes) -> queue::Site<'n> {
        let promises = self.promises.get(name).map_or(&[][..], Vec::as_slice);
        let (buffers, seed) = (Buffers::of(&self.names), self.experiment.seed);
        queue::Site { buffers, rate, framing, promises, seed, name, records_length: false }
    }

    fn report_whole(&mut self, fault: Fault) {
        self.reporter.report(&Mark { source: 0, span: 0..0 }, "", fault);
    }

    /// Changes must be of something that exists: else a what-if would say that it has no effect.
    fn check_changes(&mut self) {
        let mut faults = Vec::new();
        let (resources, stages) = self.names.missing();
        for name in resources {
            let found = format!("there is no resource `{name}`");
            let right = "name a resource of the ledger";
            faults.push(Fault::unknown(found, right, name, self.names.resources()));
        }
        for name in stages {
            let found = format!("there is no stage `{name}`");
            let right = "name a stage of the ledger";
            faults.push(Fault::unknown(found, right, name, self.names.stages()));
        }
        faults.into_iter().for_each(|fault| self.report_whole(fault));
    }
}

/// A node that has been built.
struct Made {
    /// Where packets enter it; `None` if none do.
    input: Option<Input>,
    /// Where packets leave it, and the hop that they take from there.
    outputs: Vec<(Output, usize)>,
}
