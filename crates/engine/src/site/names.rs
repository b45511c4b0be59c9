//! The stages and resources of a graph by name, and the changes that a what-if makes to them.

use super::Gauge;
use crate::Graph;
use crate::books::{ResourceId, ResourceInfo, StageInfo};
use lastmeter_base::{Draw, Duration, NodeId, PerByte, Rate, StageId};
use std::collections::{BTreeMap, BTreeSet};

/// A factor on speed: numerator and denominator.
pub type Speed = (u64, u64);

/// The factor on a rate that stands for "at no cost".
pub const FREE: Speed = (1_000_000, 1);

/// The changes of a what-if to the experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Resources by name, with the factor on their speed.
    pub speed: BTreeMap<String, Speed>,
    /// Stages that cost nothing.
    pub free: BTreeSet<String>,
    /// The factor on every limit of every queue: numerator and denominator.
    pub buffers: (u64, u64),
    /// Fabrics, by declared name, that ideal output queueing replaces.
    pub ideal: BTreeSet<String>,
    /// Nodes, by declared name, that owners' programs are taken out of.
    pub without: BTreeSet<String>,
}

impl Changes {
    /// The experiment without changes.
    pub const NONE: Changes = Changes {
        speed: BTreeMap::new(),
        free: BTreeSet::new(),
        buffers: (1, 1),
        ideal: BTreeSet::new(),
        without: BTreeSet::new(),
    };
}

/// A resource of the ledger, and how fast it is.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// Its number in the books.
    pub id: ResourceId,
    /// The factor on the speed that the experiment describes.
    pub speed: Speed,
}

impl Resource {
    /// A time of the resource at its changed speed.
    #[must_use]
    pub fn time(&self, time: Duration) -> Duration {
        let (numerator, denominator) = self.speed;
        time.scale_ceil(denominator, numerator)
    }

    /// A time per byte of the resource at its changed speed.
    #[must_use]
    pub fn per_byte(&self, time: PerByte) -> PerByte {
        let (numerator, denominator) = self.speed;
        time.scale_ceil(denominator, numerator)
    }
}

/// A stage of the ledger. Its costs pass through it, so that the changes of a what-if apply.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Its number in the books.
    pub id: StageId,
    /// Whether it costs nothing.
    pub free: bool,
    /// The factor on the speed of its resource.
    speed: Speed,
}

impl Stage {
    /// The same stage, served by this resource.
    #[must_use]
    pub fn on(self, resource: &Resource) -> Stage {
        Stage { speed: resource.speed, ..self }
    }

    /// The factor on its speed, for stages that have only rates; [`FREE`] if it costs nothing.
    pub fn speed(&self) -> Speed {
        if self.free { FREE } else { self.speed }
    }

    /// A rate at the changed speed; times [`FREE`] if the stage costs nothing.
    #[must_use]
    pub fn rate(&self, rate: Rate) -> Rate {
        let (numerator, denominator) = self.speed();
        rate.scale_floor(numerator, denominator)
    }

    /// A time at the changed speed; zero if the stage costs nothing.
    #[must_use]
    pub fn time(&self, time: Duration) -> Duration {
        let (numerator, denominator) = self.speed;
        if self.free { Duration::ZERO } else { time.scale_ceil(denominator, numerator) }
    }

    /// A time per byte at the changed speed; zero if the stage costs nothing.
    #[must_use]
    pub fn per_byte(&self, time: PerByte) -> PerByte {
        let (numerator, denominator) = self.speed;
        match self.free || time == PerByte::ZERO {
            true => PerByte::ZERO,
            false => time.scale_ceil(denominator, numerator),
        }
    }

    /// A distribution of times at the changed speed; zero if the stage costs nothing.
    #[must_use]
    pub fn draw(&self, draw: &Draw) -> Draw {
        let (numerator, denominator) = self.speed;
        match self.free {
            true => Draw::Constant(Duration::ZERO),
            false => draw.scale(denominator, numerator),
        }
    }
}

/// The stages and resources declared in a graph so far.
#[derive(Debug)]
pub struct Names {
    changes: Changes,
    stages: BTreeMap<String, StageId>,
    resources: BTreeSet<String>,
    /// Queues that their node wants to read, by node and neighbour.
    gauges: BTreeMap<(NodeId, usize), Gauge>,
}

impl Names {
    /// None yet; `changes` apply to those that will be declared.
    pub fn new(changes: Changes) -> Names {
        let (stages, resources) = (BTreeMap::new(), BTreeSet::new());
        Names { changes, stages, resources, gauges: BTreeMap::new() }
    }

    /// Declares a resource.
    pub fn resource(&mut self, graph: &mut Graph, info: ResourceInfo) -> Resource {
        let (numerator, denominator) =
            self.changes.speed.get(&info.name).copied().unwrap_or((1, 1));
        let speed = (numerator.max(1), denominator.max(1));
        self.resources.insert(info.name.clone());
        Resource { id: graph.resource(info), speed }
    }

    /// The stage of this name, declared if it is new; no resource serves it yet.
    pub fn stage(&mut self, graph: &mut Graph, info: StageInfo) -> Stage {
        let free = self.changes.free.contains(&info.name);
        let id = *self.stages.entry(info.name.clone()).or_insert_with(|| graph.stage(info));
        Stage { id, free, speed: (1, 1) }
    }

    /// Whether ideal output queueing replaces the fabrics declared under this name.
    pub fn is_ideal(&self, group: &str) -> bool {
        self.changes.ideal.contains(group)
    }

    /// Whether owners' programs are taken out of the nodes declared under this name.
    pub fn is_without(&self, group: &str) -> bool {
        self.changes.without.contains(group)
    }

    /// How much waits in the queue of a node's link to its neighbour of this index: to be read by the node.
    pub fn gauge(&mut self, node: NodeId, neighbour: usize) -> Gauge {
        self.gauges.entry((node, neighbour)).or_default().clone()
    }

    /// The same, for the queue to set; `None` if nobody reads it.
    pub fn gauged(&self, node: NodeId, neighbour: usize) -> Option<Gauge> {
        self.gauges.get(&(node, neighbour)).cloned()
    }

    /// The factor on every limit of every queue.
    pub fn buffers(&self) -> (u64, u64) {
        let (numerator, denominator) = self.changes.buffers;
        (numerator, denominator.max(1))
    }

    /// The changed rate of a resource, which need not be declared yet.
    pub fn rate(&self, resource: &str, rate: Rate) -> Rate {
        let (numerator, denominator) = self.changes.speed.get(resource).copied().unwrap_or((1, 1));
        rate.scale_floor(numerator, denominator)
    }

    /// Whether a stage costs nothing; it need not be declared yet.
    pub fn is_free(&self, stage: &str) -> bool {
        self.changes.free.contains(stage)
    }

    /// The names of all resources.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(String::as_str)
    }

    /// The names of all stages.
    pub fn stages(&self) -> impl Iterator<Item = &str> {
        self.stages.keys().map(String::as_str)
    }

    /// Changed resources, then stages, that do not exist.
    pub fn missing(&self) -> (Vec<&str>, Vec<&str>) {
        let speeds = self.changes.speed.keys().filter(|name| !self.resources.contains(*name));
        let free = self.changes.free.iter().filter(|name| !self.stages.contains_key(*name));
        (speeds.map(String::as_str).collect(), free.map(String::as_str).collect())
    }
}
