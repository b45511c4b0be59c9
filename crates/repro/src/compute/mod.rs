//! The computations that experiments name, and what they give.
//!
//! A computation is a function from constants to values. It evaluates formulas, or builds and runs whole
//! experiments; it has no clock and opens no file.

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
mod wave_video;
mod wormhole;

use super::{Constants, Effort, Error};
use crate::sweep::{RunCache, Sweep};
use lastmeter_base::{Bytes, Duration, PerByte, Quantity, Rate};
use lastmeter_ledger::drawing::Drawing;
use lastmeter_ledger::plots::Plot;
use std::borrow::Cow;

/// The input of a computation.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The experiment's constants, and those of its profile.
    pub constants: &'a Constants,
    /// Seed of a simulation's random streams.
    pub seed: u64,
    /// The requested row; `None` for all.
    pub id: Option<&'a str>,
    /// Ids of rows that only a full run judges; empty in a full run.
    pub later: &'a [String],
    /// Threads, and whether the run is full.
    pub means: Effort<'a>,
    /// The runs and rows that `repro.toml` describes.
    pub sweep: &'a Sweep,
    /// Results of those runs so far.
    pub kept: &'a RunCache,
}

impl Setting<'_> {
    /// Whether rows of `id` are requested, so that a long computation can skip the others.
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
    /// The row's item, for a row without a key.
    pub item: String,
    /// The row's key; empty for the only row of an id, `None` for a row named by its item.
    pub key: Option<String>,
    /// The value; the row says in which unit it is shown.
    pub value: Value,
    /// What the run adds to the row's note, such as the spread over seeds; usually nothing.
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

/// A value with its quantity.
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
    /// A number in the row's unit.
    Plain(f64),
    /// An ordering or a shape: whether it is as published.
    Holds(bool),
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value::$variant(value)
            }
        })*
    };
}
value_from!(Duration => Time, Rate => Rate, Bytes => Size);
value_from!(PerByte => PerByte, f64 => Plain, bool => Holds);

impl From<(f64, &'static str)> for Value {
    fn from((number, unit): (f64, &'static str)) -> Value {
        Value::Number(number, unit)
    }
}

impl Value {
    /// The value in `unit`, or `None` if it has another quantity. A truth is 1 or 0, without unit.
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

    /// The units in which it can be given.
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

/// A computation: from its setting to the rows' values.
pub type Compute = fn(&Setting<'_>) -> Result<Vec<Computed>, Error>;

/// The values of several computations.
fn together(setting: &Setting<'_>, parts: &[Compute]) -> Result<Vec<Computed>, Error> {
    let parts = parts.iter().map(|part| part(setting)).collect::<Result<Vec<_>, _>>()?;
    Ok(parts.concat())
}

/// Draws the figures of a document.
pub type Figures = fn(&Setting<'_>) -> Result<Vec<Plot>, Error>;

/// One line for each computation, under the name that experiments give it, with its figures if it draws any.
const ALL: &[(&str, Compute, Option<Figures>)] = &[
    ("adapter-pcie", cim_model::modern, None),
    ("afterburner-card", afterburner_card::card, None),
    ("afterburner-stacks", afterburner_stacks::rows, Some(afterburner_stacks::plots)),
    ("afterburner-stream", afterburner::stream, Some(afterburner::plots)),
    (
        "atomic2-authentication",
        atomic_authentication::authentication,
        Some(atomic_authentication::plots),
    ),
    ("atomic2-hash", atomic_authentication::hashes, None),
    ("atomic2-hosts", atomic::hosts, Some(atomic_plots::plots)),
    ("atomic2-services", atomic_services::services, Some(atomic_services::plots)),
    ("aurora-coprocessor", aurora::coprocessor::tables, Some(aurora::coprocessor::plots)),
    ("aurora-florb", aurora::florb::florb, Some(aurora::florb::plots)),
    ("aurora-forwarding", aurora::forwarding::forwarders, None),
    ("aurora-host-interfaces", aurora::interfaces::rows, Some(aurora::interfaces::plots)),
    ("aurora-memory-multiple", aurora::memory::multiple, None),
    ("aurora-traffic-classes", aurora::traffic::classes, None),
    ("aurora-vidboard", aurora::vidboard::tables, Some(aurora::vidboard::plots)),
    ("bbr", bbr::rows, Some(bbr::plots)),
    ("channels-link", channels::link::rows, None),
    ("channels-modern", channels::modern::rows, None),
    ("channels-point-to-point", channels::point_to_point::rows, None),
    ("channels-token-network", channels::token::rows, Some(channels::plots)),
    ("channels-tsn", channels::tsn::rows, None),
    ("cim-equations", cim::equations, None),
    ("cim-in-use", cim_use::rows, None),
    ("cim-model", cim_model::model, Some(cim_plots::plots)),
    ("dq-speedup", fabric::speed_up, Some(fabric::speed_up_plots)),
    ("dq-stress", fabric::stress, Some(fabric::stress_plots)),
    ("end-platform", end::rows, None),
    ("fipl", fipl::rows, Some(fipl::plots)),
    ("ip-cycles", ip::cycles, None),
    ("jetstream-budgets", jetstream::budgets, None),
    ("jetstream-faults", jetstream_faults::rows, Some(jetstream_faults::plots)),
    ("jetstream-ring", jetstream_ring::ring, None),
    ("jetstream-switch", jetstream_switch::rows, None),
    ("link-sharing", link_sharing::rows, None),
    ("livelock", livelock::figures, Some(livelock::plots)),
    ("livelock-equations", livelock::equations, None),
    ("livelock-interfaces", interfaces::two, None),
    ("preempt", preempt::rows, Some(preempt::plots)),
    ("router-overload", router::rows, Some(router::plots)),
    ("spc", spc::rows, Some(spc_plots::plots)),
    ("striping", striping::rows, None),
    ("tcp-recovery", tcp_recovery::rows, None),
    ("time-wait", time_wait::rows, None),
    ("vunet", vunet::rows, None),
    ("wave-video", wave_video::rows, Some(wave_video::plots)),
    ("wormhole", wormhole::rows, None),
];

/// The function that draws the figures of this computation, if any.
pub fn figures(name: &str) -> Option<Figures> {
    ALL.iter().find(|&&(known, ..)| known == name)?.2
}

/// Draws figures that are not curves.
pub type Drawings = fn(&Setting<'_>) -> Result<Vec<Drawing>, Error>;

/// Functions that draw something other than curves, by the experiment's name.
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
/// There is none; the message suggests similar names.
pub fn find(name: &str) -> Result<Compute, Error> {
    let known = || ALL.iter().map(|&(known, ..)| known.to_owned());
    let compute = ALL.iter().find(|&&(known, ..)| known == name).map(|&(_, compute, _)| compute);
    compute.ok_or_else(|| Error::unknown("computation", name, known()))
}
