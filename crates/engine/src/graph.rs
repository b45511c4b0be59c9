//! Elements connected by edges, and the ledger's resources, stages and paths.

use crate::books::{PathInfo, ResourceId, ResourceInfo, StageInfo};
use crate::{Element, ElementId, Error, PortId};
use lastmeter_base::{Duration, PathId, StageId, Visits};
use std::collections::{BTreeMap, BTreeSet};

/// A graph holds at most this many elements: an event's origin has 24 bits.
pub const ELEMENTS_MAX: usize = 1 << 24;
/// A graph holds at most this many edges.
pub const EDGES_MAX: usize = 1 << 30;

/// A graph to run.
///
/// ```
/// use lastmeter_base::{Duration, Packet};
/// use lastmeter_engine::{Context, Element, Graph, PortId};
/// # struct Null;
/// # impl Element for Null {
/// #     fn receive(&mut self, _: &mut Context<'_>, _: PortId, _: Packet) {}
/// # }
/// let mut graph = Graph::new(1);
/// let left = graph.add("left", Null)?;
/// let right = graph.add("right", Null)?;
/// graph.connect(left, PortId(0), right, PortId(0))?;
/// graph.connect_after(right, PortId(0), left, PortId(0), Duration::from_us(10), None)?;
/// # Ok::<(), lastmeter_engine::Error>(())
/// ```
pub struct Graph {
    pub(crate) seed: u64,
    pub(crate) elements: Vec<(String, Box<dyn Element>)>,
    names: BTreeMap<String, ElementId>,
    /// The names that elements draw random numbers under, where these are not their own.
    pub(crate) draws: BTreeMap<ElementId, String>,
    outputs: BTreeSet<(ElementId, PortId)>,
    pub(crate) edges: Vec<EdgeSpec>,
    pub(crate) stages: Vec<StageInfo>,
    pub(crate) resources: Vec<ResourceInfo>,
    pub(crate) paths: Vec<PathInfo>,
    /// Whether stages are recorded in the books; on unless a benchmark turns it off.
    pub collecting: bool,
    /// Whether the run keeps a trace of its events.
    pub tracing: bool,
    /// If not zero, simultaneous events run in a random order seeded by this number.
    pub shuffle_ties: u64,
}

pub(crate) struct EdgeSpec {
    pub(crate) from: ElementId,
    pub(crate) output: PortId,
    pub(crate) to: ElementId,
    pub(crate) input: PortId,
    pub(crate) delay: Duration,
    pub(crate) stage: Option<StageId>,
}

impl Graph {
    /// An empty graph with random streams derived from `seed`.
    pub fn new(seed: u64) -> Graph {
        Graph {
            seed,
            elements: Vec::new(),
            names: BTreeMap::new(),
            draws: BTreeMap::new(),
            outputs: BTreeSet::new(),
            edges: Vec::new(),
            stages: Vec::new(),
            resources: Vec::new(),
            paths: Vec::new(),
            collecting: true,
            tracing: false,
            shuffle_ties: 0,
        }
    }

    /// Adds an element under a name of its own.
    ///
    /// # Errors
    /// If the name is taken or the graph is full.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        element: impl Element + 'static,
    ) -> Result<ElementId, Error> {
        self.add_boxed(name.into(), Box::new(element))
    }

    /// Adds a boxed element.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn add_boxed(
        &mut self,
        name: String,
        element: Box<dyn Element>,
    ) -> Result<ElementId, Error> {
        if self.elements.len() >= ELEMENTS_MAX {
            return Err(Error::TooLarge { what: "elements", limit: ELEMENTS_MAX as u64 });
        }
        let id = ElementId(self.elements.len() as u32);
        if self.names.insert(name.clone(), id).is_some() {
            return Err(Error::NameTaken(name));
        }
        self.elements.push((name, element));
        Ok(id)
    }

    /// An element draws its random numbers, and breaks ties, as if it had this name.
    pub fn draw_as(&mut self, element: ElementId, name: String) {
        self.draws.insert(element, name);
    }

    /// Connects an output to an input: packets arrive at the same instant.
    ///
    /// # Errors
    /// If the output is connected already or the graph is full.
    pub fn connect(
        &mut self,
        from: ElementId,
        output: PortId,
        to: ElementId,
        input: PortId,
    ) -> Result<(), Error> {
        self.connect_after(from, output, to, input, Duration::ZERO, None)
    }

    /// Connects an output to an input with a `delay`. Order is kept, any number of packets may be in flight,
    /// and a `stage` makes the delay a row of the ledger.
    ///
    /// # Errors
    /// As [`Graph::connect`].
    pub fn connect_after(
        &mut self,
        from: ElementId,
        output: PortId,
        to: ElementId,
        input: PortId,
        delay: Duration,
        stage: Option<StageId>,
    ) -> Result<(), Error> {
        if self.edges.len() >= EDGES_MAX {
            return Err(Error::TooLarge { what: "edges", limit: EDGES_MAX as u64 });
        }
        if !self.outputs.insert((from, output)) {
            let element = self.elements[from.0 as usize].0.clone();
            return Err(Error::PortTaken { element, port: output.0 });
        }
        self.edges.push(EdgeSpec { from, output, to, input, delay, stage });
        Ok(())
    }

    /// Declares a resource of the ledger.
    pub fn resource(&mut self, info: ResourceInfo) -> ResourceId {
        self.resources.push(info);
        ResourceId(self.resources.len() as u32 - 1)
    }

    /// Declares a stage of the ledger. Panics beyond [`Visits::STAGES_MAX`] stages.
    pub fn stage(&mut self, info: StageInfo) -> StageId {
        assert!(self.stages.len() < Visits::STAGES_MAX as usize, "a stage beyond the millionth");
        self.stages.push(info);
        StageId(self.stages.len() as u32 - 1)
    }

    /// Declares a path and class of traffic.
    pub fn path(&mut self, name: impl Into<String>, class: impl Into<String>) -> PathId {
        self.paths.push(PathInfo { name: name.into(), class: class.into() });
        PathId(self.paths.len() as u32 - 1)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }
}
