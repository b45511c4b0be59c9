//! Owners' programs (plugins) in a model: what a node asks about its packets, and who runs them.
//!
//! ```text
//! Order --Programs::load--> Program <--decide-- node:  packet, link, queues behind it --> Wish
//! ```
//!
//! A program is a WebAssembly module or an expression, and its sandbox compiles machine code; so models only know
//! these traits, and the outermost program provides the sandbox where it has one.

use lastmeter_base::{Bytes, Duration, Packet, Rate, Time};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs owners' programs.
pub trait Programs: Send + Sync {
    /// Checks a program, and makes an instance of it.
    ///
    /// # Errors
    /// Why it is refused, and what would be right.
    fn load(&self, order: &Order<'_>) -> Result<Box<dyn Program>, String>;
    /// What a decision of this module costs, from the text in which a measurement of it was kept.
    ///
    /// # Errors
    /// If the text is not such a measurement, or is one of another module.
    fn measured(&self, module: &[u8], text: &str) -> Result<Duration, String>;
}

/// A program, and how it is to run.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The name of the instance.
    pub name: &'a str,
    /// What it consists of.
    pub code: Code<'a>,
    /// What it is initialised with.
    pub config: &'a str,
    /// What becomes of packets when it fails: `open`, `closed` or `reload`.
    pub fail: &'a str,
    /// With its name, this determines its random numbers.
    pub seed: u64,
}

/// What a program consists of.
#[derive(Clone, Copy, Debug)]
pub enum Code<'a> {
    /// A WebAssembly module.
    Module(&'a [u8]),
    /// An expression.
    Expression(&'a str),
}

/// A packet as a program is asked about it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The link on which it arrived, as an index among its node's links.
    pub link: u16,
    /// When it arrived.
    pub arrival: Time,
    /// Its length, from the IP header on.
    pub len: u32,
    /// Its first bytes, from the IP header on.
    pub bytes: &'a [u8],
}

/// The queue of a link behind a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waiting {
    /// What waits in it.
    pub len: Bytes,
    /// The share of the line that it is granted, in parts of a million.
    pub share: u64,
    /// The rate of the whole line.
    pub rate: Rate,
}

/// What a program wants done with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing in particular.
    Pass,
    /// It is dropped.
    Deny,
    /// These bytes replace its first `seen` ones.
    Changed {
        /// How many are replaced.
        seen: usize,
        /// By what.
        bytes: Vec<u8>,
    },
    /// It leaves on this link.
    Link(u16),
    /// It joins this flow.
    Flow(u32),
    /// It passes, and a copy leaves on this link.
    Copy(u16),
}

/// A program that runs.
pub trait Program: Send {
    /// Decides about a packet. `queues` are those of the node's links, in their order; `None` where a link has none.
    fn decide(&mut self, now: Time, packet: &Asked<'_>, queues: &[Option<Waiting>]) -> Wish;
    /// Reports how often it was asked, what it decided, and how it failed.
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64));
}

/// What a packet's flow has in a queue, and what is granted to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What waits: of its flow where each flow has a queue of its own, else of all.
    pub len: Bytes,
    /// The share of the line that is granted to it now, in parts of a million.
    pub share: u64,
}

impl Granted {
    /// The share of the whole line.
    pub const WHOLE: u64 = 1_000_000;
}

/// How much waits in a queue and what it grants, as seen from elsewhere in its node. Elements of a node are in the same
/// part of a graph, so reading it depends on no thread.
#[derive(Clone, Default)]
pub struct Gauge(Arc<Mutex<Option<Reader>>>);

type Reader = Box<dyn Fn(&Packet) -> Granted + Send>;

impl Gauge {
    /// From now on, `reader` says it.
    pub fn connect(&self, reader: impl Fn(&Packet) -> Granted + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(reader));
    }
    /// What this packet's flow has there; nothing, and all of the line, if there is no queue.
    pub fn granted(&self, packet: &Packet) -> Granted {
        let reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = Granted { len: Bytes::ZERO, share: Granted::WHOLE };
        reader.as_ref().map_or(nothing, |reader| reader(packet))
    }
}

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauge").finish_non_exhaustive()
    }
}
