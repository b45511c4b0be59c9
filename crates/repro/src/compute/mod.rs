//! The computations that experiments name, and what they give.
//!
//! A computation is a function from constants to values. It may evaluate formulas, or build and run
//! whole experiments; it owns no clock and no file either way.

mod afterburner;
mod afterburner_card;
mod afterburner_stacks;
mod atomic;
mod atomic_authentication;
mod atomic_plots;
mod atomic_services;
pub(crate) mod aurora;
mod bbr;
mod channels;
mod cim;
mod cim_model;
mod cim_plots;
mod cim_use;
mod end;
pub(crate) mod fabric;
pub mod fipl;
mod interfaces;
mod ip;
mod jetstream;
mod jetstream_faults;
mod jetstream_ring;
mod jetstream_switch;
mod link_sharing;
mod livelock;
mod preempt;
mod router;
mod spc;
mod spc_plots;
mod spc_set_up;
mod striping;
mod tcp_recovery;
mod time_wait;
mod vunet;
mod wormhole;

use super::{Constants, Effort, Error};
use crate::sweep::{RunCache, Sweep};
use lastmeter_base::{Bytes, Duration, PerByte, Quantity, Rate};
use lastmeter_ledger::drawing::Drawing;
use lastmeter_ledger::plots::Plot;
use std::borrow::Cow;

/// What a computation is given.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Those of the experiment and of its profile.
    pub constants: &'a Constants,
    /// Names the random streams of a simulation.
    pub seed: u64,
    /// The requested row; `None` for all.
    pub id: Option<&'a str>,
    /// Ids of rows that only a full run judges, where this is none.
    pub later: &'a [String],
    /// Threads, and how much to do.
    pub means: Effort<'a>,
    /// The runs and rows that `repro.toml` describes.
    pub sweep: &'a Sweep,
    /// What those runs have given before.
    pub kept: &'a RunCache,
}

impl Setting<'_> {
    /// Whether rows of `id` are requested, so that a long computation can leave out the others.
    pub fn wants(&self, id: &str) -> bool {
        let later = self.later.iter().any(|later| later.eq_ignore_ascii_case(id));
        !later && self.id.is_none_or(|wanted| wanted.eq_ignore_ascii_case(id))
    }
}

/// A value to compare with a published one.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    /// The row's id.
    pub id: Cow<'static, str>,
    /// The row's item, where it is not named by its key.
    pub item: String,
    /// The row's key, where it is named by that; empty for the only row of the id.
    pub key: Option<String>,
    /// The value; the row says in which unit it is shown.
    pub value: Value,
    /// What the run adds to the row's note, as how far seeds lie apart; mostly nothing.
    pub remark: String,
}

impl Computed {
    /// A value for the row `item` of `id`.
    pub fn new(id: &'static str, item: impl Into<String>, value: impl Into<Value>) -> Computed {
        let (item, value) = (item.into(), value.into());
        Computed { id: id.into(), item, key: None, value, remark: String::new() }
    }
    /// The same with a remark for the row's note.
    #[must_use]
    pub fn with_remark(self, remark: String) -> Computed {
        Computed { remark, ..self }
    }
}

/// A value for the row `E-64/mean`: the id, and the key that `expected.csv` gives the row.
pub(crate) fn row(row: impl Into<String>, value: impl Into<Value>) -> Computed {
    let row = row.into();
    let (id, key) = row.split_once('/').unwrap_or((&row, ""));
    let (id, key) = (id.to_owned().into(), Some(key.to_owned()));
    Computed { id, item: String::new(), key, value: value.into(), remark: String::new() }
}

/// A value with what it measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A length of time.
    Time(Duration),
    /// A bit rate.
    Rate(Rate),
    /// A count of bytes.
    Size(Bytes),
    /// A cost per byte.
    PerByte(PerByte),
    /// Anything else, in this unit: `packets/s`.
    Number(f64, &'static str),
    /// A number in the unit that the row has.
    Plain(f64),
    /// An ordering or a shape: whether it is as published.
    Holds(bool),
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Value {
        Value::Time(time)
    }
}
impl From<Rate> for Value {
    fn from(rate: Rate) -> Value {
        Value::Rate(rate)
    }
}
impl From<Bytes> for Value {
    fn from(size: Bytes) -> Value {
        Value::Size(size)
    }
}
impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Plain(number)
    }
}
impl From<bool> for Value {
    fn from(holds: bool) -> Value {
        Value::Holds(holds)
    }
}
impl From<PerByte> for Value {
    fn from(cost: PerByte) -> Value {
        Value::PerByte(cost)
    }
}

impl Value {
    /// The value in `unit`, or `None` where it cannot be in it. What holds is 1, without unit.
    ///
    /// ```
    /// use lastmeter_base::Duration;
    /// use lastmeter_repro::compute::Value;
    /// assert_eq!(Value::from(Duration::from_ns(1_509_500)).in_unit("us"), Some(1509.5));
    /// assert_eq!(Value::from(Duration::from_ns(1_509_500)).in_unit("B"), None);
    /// ```
    pub fn in_unit(self, unit: &str) -> Option<f64> {
        fn scaled<Q: Quantity>(smallest: u64, unit: &str) -> Option<f64> {
            let &(_, size) = Q::UNITS.iter().find(|&&(name, _)| name == unit)?;
            Some(smallest as f64 / size as f64)
        }
        match self {
            Value::Time(time) => scaled::<Duration>(time.as_ps(), unit),
            Value::Rate(rate) => scaled::<Rate>(rate.as_bits(), unit),
            Value::Size(size) => scaled::<Bytes>(size.0, unit),
            Value::PerByte(cost) => scaled::<PerByte>(cost.as_fs(), unit),
            Value::Number(value, of) => (of == unit).then_some(value),
            Value::Plain(value) => (!unit.is_empty()).then_some(value),
            Value::Holds(holds) => unit.is_empty().then_some(f64::from(u8::from(holds))),
        }
    }

    /// The units that it can be in.
    pub fn units(self) -> Vec<&'static str> {
        let names = |units: &[(&'static str, u64)]| units.iter().map(|&(name, _)| name).collect();
        match self {
            Value::Time(_) => names(Duration::UNITS),
            Value::Rate(_) => names(Rate::UNITS),
            Value::Size(_) => names(Bytes::UNITS),
            Value::PerByte(_) => names(PerByte::UNITS),
            Value::Number(_, unit) => vec![unit],
            Value::Plain(_) => vec!["(the row's)"],
            Value::Holds(_) => vec!["(no unit)"],
        }
    }
}

/// A computation.
pub type Compute = fn(&Setting<'_>) -> Result<Vec<Computed>, Error>;

/// One line for each computation, under the name that experiments give it.
pub const ALL: &[(&str, Compute)] = &[
    ("adapter-pcie", cim_model::modern),
    ("afterburner-card", afterburner_card::card),
    ("afterburner-stacks", afterburner_stacks::rows),
    ("afterburner-stream", afterburner::stream),
    ("atomic2-authentication", atomic_authentication::authentication),
    ("atomic2-hash", atomic_authentication::hashes),
    ("atomic2-hosts", atomic::hosts),
    ("atomic2-services", atomic_services::services),
    ("aurora-coprocessor", aurora::coprocessor::tables),
    ("aurora-florb", aurora::florb::florb),
    ("aurora-forwarding", aurora::forwarding::forwarders),
    ("aurora-host-interfaces", aurora::interfaces::rows),
    ("aurora-memory-multiple", aurora::memory::multiple),
    ("aurora-traffic-classes", aurora::traffic::classes),
    ("aurora-vidboard", aurora::vidboard::tables),
    ("bbr", bbr::rows),
    ("channels-link", channels::link::rows),
    ("channels-modern", channels::modern::rows),
    ("channels-point-to-point", channels::point_to_point::rows),
    ("channels-token-network", channels::token::rows),
    ("channels-tsn", channels::tsn::rows),
    ("cim-equations", cim::equations),
    ("cim-in-use", cim_use::rows),
    ("cim-model", cim_model::model),
    ("dq-speedup", fabric::speed_up),
    ("dq-stress", fabric::stress),
    ("fipl", fipl::rows),
    ("end-platform", end::rows),
    ("ip-cycles", ip::cycles),
    ("jetstream-budgets", jetstream::budgets),
    ("jetstream-faults", jetstream_faults::rows),
    ("link-sharing", link_sharing::rows),
    ("jetstream-ring", jetstream_ring::ring),
    ("jetstream-switch", jetstream_switch::rows),
    ("livelock", livelock::figures),
    ("livelock-equations", livelock::equations),
    ("livelock-interfaces", interfaces::two),
    ("preempt", preempt::rows),
    ("router-overload", router::rows),
    ("striping", striping::rows),
    ("vunet", vunet::rows),
    ("spc", spc::rows),
    ("wormhole", wormhole::rows),
    ("tcp-recovery", tcp_recovery::rows),
    ("time-wait", time_wait::rows),
];

/// Draws the figures of a document.
pub type Figures = fn(&Setting<'_>) -> Result<Vec<Plot>, Error>;

/// Who draws figures, under the computation's name.
const FIGURES: &[(&str, Figures)] = &[
    ("aurora-coprocessor", aurora::coprocessor::plots),
    ("aurora-florb", aurora::florb::plots),
    ("aurora-host-interfaces", aurora::interfaces::plots),
    ("aurora-vidboard", aurora::vidboard::plots),
    ("afterburner-stacks", afterburner_stacks::plots),
    ("afterburner-stream", afterburner::plots),
    ("atomic2-authentication", atomic_authentication::plots),
    ("atomic2-hosts", atomic_plots::plots),
    ("atomic2-services", atomic_services::plots),
    ("bbr", bbr::plots),
    ("channels-token-network", channels::plots),
    ("cim-model", cim_plots::plots),
    ("dq-speedup", fabric::speed_up_plots),
    ("dq-stress", fabric::stress_plots),
    ("fipl", fipl::plots),
    ("jetstream-faults", jetstream_faults::plots),
    ("livelock", livelock::plots),
    ("preempt", preempt::plots),
    ("spc", spc_plots::plots),
    ("router-overload", router::plots),
];

/// The function that draws the figures of this computation, if any.
pub fn figures(name: &str) -> Option<Figures> {
    FIGURES.iter().find(|&&(known, _)| known == name).map(|&(_, figures)| figures)
}

/// Draws figures that are not curves.
pub type Drawings = fn(&Setting<'_>) -> Result<Vec<Drawing>, Error>;

/// Who draws something else, under the experiment's name.
const DRAWINGS: &[(&str, Drawings)] = &[
    ("afterburner-stacks", afterburner_stacks::drawings),
    ("atomic2-hosts", atomic_plots::drawings),
];

/// The function that draws them for this experiment, if any.
pub fn drawings(name: &str) -> Option<Drawings> {
    DRAWINGS.iter().find(|&&(known, _)| known == name).map(|&(_, drawings)| drawings)
}

/// The computation of this name.
///
/// # Errors
/// There is none; says which are called nearly so.
pub fn find(name: &str) -> Result<Compute, Error> {
    let known = || ALL.iter().map(|&(known, _)| known.to_owned());
    let compute = ALL.iter().find(|&&(known, _)| known == name).map(|&(_, compute)| compute);
    compute.ok_or_else(|| Error::unknown("computation", name, known()))
}
