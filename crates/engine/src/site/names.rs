//! The stages and resources of a graph by their names, and what a what-if changes of them.

use crate::Graph;
use crate::books::{ResourceId, ResourceInfo, StageInfo};
use lastmeter_base::{Draw, Duration, PerByte, Rate, StageId};
use std::collections::{BTreeMap, BTreeSet};

/// How many times as fast something is, as numerator and denominator.
pub type Speed = (u64, u64);

/// How many times as fast something with a rate is that shall cost nothing.
pub const FREE: Speed = (1_000_000, 1);

/// What is different from the experiment, to see what it would buy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Resources that are so many times as fast, as numerator and denominator.
    pub speed: BTreeMap<String, Speed>,
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

/// A resource of the ledger, and how fast it is.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// Its own in the books.
    pub id: ResourceId,
    /// How many times as fast as it is described.
    pub speed: Speed,
}

impl Resource {
    /// A time of its own, as much shorter.
    #[must_use]
    pub fn time(&self, time: Duration) -> Duration {
        let (numerator, denominator) = self.speed;
        time.scale_ceil(denominator, numerator)
    }

    /// A time per byte of its own, as much shorter.
    #[must_use]
    pub fn per_byte(&self, time: PerByte) -> PerByte {
        let (numerator, denominator) = self.speed;
        time.scale_ceil(denominator, numerator)
    }
}

/// A stage of the ledger. What it costs is asked of it, because it knows what is changed.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Its own in the books.
    pub id: StageId,
    /// Whether it costs nothing.
    pub free: bool,
    /// Of what serves it.
    speed: Speed,
}

impl Stage {
    /// The same where another resource serves it.
    #[must_use]
    pub fn on(self, resource: &Resource) -> Stage {
        Stage { speed: resource.speed, ..self }
    }

    /// How many times as fast it is, for what has no time but only rates: [`FREE`] for at no cost.
    pub fn speed(&self) -> Speed {
        if self.free { FREE } else { self.speed }
    }

    /// A rate, as much faster; [`FREE`] times where it costs nothing.
    #[must_use]
    pub fn rate(&self, rate: Rate) -> Rate {
        let (numerator, denominator) = self.speed();
        rate.scale_floor(numerator, denominator)
    }

    /// A time, as much shorter; none where it costs nothing.
    #[must_use]
    pub fn time(&self, time: Duration) -> Duration {
        let (numerator, denominator) = self.speed;
        if self.free { Duration::ZERO } else { time.scale_ceil(denominator, numerator) }
    }

    /// A time per byte, as much shorter; none where it costs nothing.
    #[must_use]
    pub fn per_byte(&self, time: PerByte) -> PerByte {
        let (numerator, denominator) = self.speed;
        match self.free || time == PerByte::ZERO {
            true => PerByte::ZERO,
            false => time.scale_ceil(denominator, numerator),
        }
    }

    /// A distribution of times, as much shorter; none where it costs nothing.
    #[must_use]
    pub fn draw(&self, draw: &Draw) -> Draw {
        let (numerator, denominator) = self.speed;
        match self.free {
            true => Draw::Constant(Duration::ZERO),
            false => draw.scale(denominator, numerator),
        }
    }
}

/// The stages and resources that a graph has so far.
#[derive(Debug)]
pub struct Names {
    changes: Changes,
    stages: BTreeMap<String, StageId>,
    resources: BTreeSet<String>,
}

impl Names {
    /// None yet, of which so much is changed.
    pub fn new(changes: Changes) -> Names {
        Names { changes, stages: BTreeMap::new(), resources: BTreeSet::new() }
    }

    /// Declares a resource.
    pub fn resource(&mut self, graph: &mut Graph, info: ResourceInfo) -> Resource {
        let (numerator, denominator) =
            self.changes.speed.get(&info.name).copied().unwrap_or((1, 1));
        let speed = (numerator.max(1), denominator.max(1));
        self.resources.insert(info.name.clone());
        Resource { id: graph.resource(info), speed }
    }

    /// The stage of this name, declared where there is none yet, with nothing that serves it.
    pub fn stage(&mut self, graph: &mut Graph, info: StageInfo) -> Stage {
        let free = self.changes.free.contains(&info.name);
        let id = *self.stages.entry(info.name.clone()).or_insert_with(|| graph.stage(info));
        Stage { id, free, speed: (1, 1) }
    }

    /// Whether ideal output queueing stands in the place of the fabrics of this name.
    pub fn is_ideal(&self, group: &str) -> bool {
        self.changes.ideal.contains(group)
    }

    /// By how much every limit is changed.
    pub fn buffers(&self) -> (u64, u64) {
        let (numerator, denominator) = self.changes.buffers;
        (numerator, denominator.max(1))
    }

    /// The names of all resources.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(String::as_str)
    }

    /// The names of all stages.
    pub fn stages(&self) -> impl Iterator<Item = &str> {
        self.stages.keys().map(String::as_str)
    }

    /// What is changed of things that are not there: resources, then stages.
    pub fn missing(&self) -> (Vec<&str>, Vec<&str>) {
        let speeds = self.changes.speed.keys().filter(|name| !self.resources.contains(*name));
        let free = self.changes.free.iter().filter(|name| !self.stages.contains_key(*name));
        (speeds.map(String::as_str).collect(), free.map(String::as_str).collect())
    }
}
