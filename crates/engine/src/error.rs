//! Errors of a graph or a run.

use lastmeter_base::Time;
use std::fmt;

/// Why a graph cannot be built or a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Two elements have the same name: rename one.
    NameTaken(String),
    /// An output was connected twice: add an element that copies.
    PortTaken {
        /// The element whose output it is.
        element: String,
        /// The output.
        port: u16,
    },
    /// More elements, edges or ports than a graph can hold.
    TooLarge {
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A node does not fit its place in the network; the text tells the user why.
    Misfit(String),
    /// Events continued without end at one instant; the named element was the last to act.
    NoProgress {
        /// The instant.
        at: Time,
        /// The element.
        element: String,
        /// Handlers that ran at that instant.
        handlers: u64,
    },
    /// Packets were made that were neither delivered, dropped nor held: a bug in an element.
    PacketsUnbalanced {
        /// Packets that sources made.
        made: u64,
        /// Packets delivered to sinks.
        delivered: u64,
        /// Packets dropped, each with a reason.
        dropped: u64,
        /// Packets that elements and edges still hold.
        held: u64,
    },
    /// A path's stages do not add up to its latency: a bug in an element.
    LatencyUnbalanced {
        /// The path.
        path: String,
        /// Sum of end-to-end latencies, picoseconds.
        latency: u128,
        /// Sum over all stages, picoseconds.
        stages: u128,
    },
    /// A resource was not accounted for from start to end: a bug in an element.
    ResourceUnbalanced {
        /// The resource.
        resource: String,
        /// Busy, blocked and idle time, picoseconds.
        accounted: u128,
        /// Units times the length of the run, picoseconds.
        elapsed: u128,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NameTaken(name) => write!(f, "two elements are named `{name}`"),
            Error::PortTaken { element, port } => {
                write!(f, "output {port} of `{element}` is connected twice")
            }
            Error::TooLarge { what, limit } => write!(f, "more than {limit} {what}"),
            Error::Misfit(found) => f.write_str(found),
            Error::NoProgress { at, element, handlers } => write!(
                f,
                "no progress: {handlers} handlers ran at {at} without time advancing; \
                 `{element}` was the last"
            ),
            Error::PacketsUnbalanced { made, delivered, dropped, held } => write!(
                f,
                "packets do not balance: {made} made, but {delivered} delivered + {dropped} \
                 dropped + {held} held"
            ),
            Error::LatencyUnbalanced { path, latency, stages } => write!(
                f,
                "path `{path}` does not balance: latencies sum to {latency} ps, its stages to \
                 {stages} ps"
            ),
            Error::ResourceUnbalanced { resource, accounted, elapsed } => write!(
                f,
                "resource `{resource}` does not balance: {accounted} ps busy, blocked or idle of \
                 {elapsed} ps"
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(found: String) -> Error {
        Error::Misfit(found)
    }
}
