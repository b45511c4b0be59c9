//! The description of a kind, that is, anything that experiments can name: one page, from which everything
//! about its parameters is generated.
//!
//! ```text
//!            +--> decoding a TOML file, with its messages
//!     Page --+--> the JSON Schema that editors check with
//!            +--> the page that `lastmeter kinds NAME` prints
//! ```
//!
//! A page is in the file of the kind that it describes, so that the two change together.

use crate::{Bytes, Draw, Duration, PerByte, Rate};
use std::any::Any;
use std::collections::BTreeMap;

/// A kind that experiments can name: a line of the registry.
pub struct Kind {
    /// What it is.
    pub page: &'static Page,
    /// Checks that values which are each valid are also valid together; [`always`] for most kinds.
    pub fit: fn(&Values) -> Result<(), Misfit>,
    /// Builds one; the family fixes its type. `&()` for kinds that are only read.
    pub maker: &'static (dyn Any + Send + Sync),
}

impl Kind {
    /// A kind whose parameters do not constrain each other.
    pub const fn new(page: &'static Page, maker: &'static (dyn Any + Send + Sync)) -> Kind {
        Kind { page, fit: always, maker }
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.page.name)
    }
}

/// For kinds whose parameters do not constrain each other.
///
/// # Errors
/// None.
pub fn always(_values: &Values) -> Result<(), Misfit> {
    Ok(())
}

/// The description of a kind. It ends with `..Page::at(here!())`, which leaves all other fields empty.
#[derive(Debug)]
pub struct Page {
    /// Its name in experiments.
    pub name: &'static str,
    /// What it can be used as.
    pub family: Family,
    /// What it is, in one sentence.
    pub what: &'static str,
    /// A drawing of its ports.
    pub ports: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// Its source, with the section; empty where it needs none.
    pub source: &'static str,
    /// Where it differs from its source, and why.
    pub deviations: &'static [&'static str],
    /// Its counters, with their meanings.
    pub counters: &'static [(&'static str, &'static str)],
    /// Why it drops packets, in the ledger's words, with their meanings.
    pub drops: &'static [(&'static str, &'static str)],
    /// A runnable example experiment.
    pub example: &'static str,
    /// Its place in the source code.
    pub place: SourcePlace,
}

impl Page {
    /// An empty page located at `place`, for a kind to fill in.
    pub const fn at(place: SourcePlace) -> Page {
        Page {
            name: "",
            family: Family::Experiment,
            what: "",
            ports: "",
            params: &[],
            source: "",
            deviations: &[],
            counters: &[],
            drops: &[],
            example: "",
            place,
        }
    }
}

/// What a kind can be used as. In a file, exactly one kind of a family is the key of a table:
/// `queue = { drop-tail = { packets = 200 } }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The file itself, and parts that come in one kind only.
    Experiment,
    /// A node of the network.
    Node,
    /// A queue discipline.
    Queue,
    /// A source of packets.
    Traffic,
    /// A file that describes something, and parts of it that come in one kind only.
    Profile,
    /// A resource that a host's stages compete for.
    Resource,
    /// A host's reception policy.
    Reception,
}

impl Family {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Family::Experiment => "part of an experiment",
            Family::Node => "node",
            Family::Queue => "queue",
            Family::Traffic => "traffic",
            Family::Profile => "part of a profile",
            Family::Resource => "resource",
            Family::Reception => "reception",
        }
    }
}

/// A place in the source of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// From the root of the repository.
    pub file: &'static str,
    /// From 1.
    pub line: u32,
}

/// The [`SourcePlace`] of the invocation.
#[macro_export]
macro_rules! here {
    () => {
        $crate::kind::SourcePlace { file: file!(), line: line!() }
    };
}

/// A page's example: one chain of links from a host to another with nodes between them. Where only a
/// node is given, `alice` sends to `bob` through it.
#[macro_export]
macro_rules! one_way {
    ($node:literal, $kind:literal) => {
        $crate::one_way! {
            "10 ms", "alice" [$node = $kind] "bob",
            [r#"rate = "1 Gbit/s""#],
            "transfer" [r#"constant = { rate = "100 Mbit/s", size = "1500 B" }"#]
        }
    };
    ($duration:literal, $from:literal [$($node:literal = $kind:literal),* $(,)?] $to:literal,
     [$($link:expr),* $(,)?], $($name:literal [$($traffic:expr),* $(,)?]),+) => {
        concat!(
            "\nduration = \"", $duration, "\"\n[nodes]\n",
            $from, " = { host = {} }\n", $($node, " = { ", $kind, " }\n",)*
            $to, " = { host = {} }\n",
            "[[links]]\nbetween = [\"", $from, "\", \"", $($node, "\", \"",)* $to, "\"]\n",
            $($link, "\n",)*
            $("[[traffic]]\nname = \"", $name, "\"\nfrom = \"", $from, "\"\nto = \"", $to, "\"\n",
            $($traffic, "\n",)*)+
        )
    };
}

/// A parameter of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Param {
    /// The key in the file.
    pub name: &'static str,
    /// What may be written.
    pub kind: ParamKind,
    /// The default.
    pub default: Fallback,
    /// What it means.
    pub what: &'static str,
}

/// The meaning of an omitted parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// It is required.
    Required,
    /// This default.
    Written(&'static str),
    /// No value; the text says what that means.
    Absent(&'static str),
}

/// What may be written for a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// `"10 us"`.
    Time,
    /// `"1500 B"`, both bounds included.
    Size {
        /// The minimum in bytes.
        min: u64,
        /// The maximum in bytes.
        max: u64,
    },
    /// `"10 Gbit/s"`.
    Rate,
    /// `"0.42 us/B"`, or a rate: `"32.3 MB/s"`.
    PerByte,
    /// A whole number, both bounds included.
    Integer {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A number, both bounds included.
    Number {
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A distribution of times: `"5 us"`, `{ exponential = "5 us" }`, `{ uniform = ["1 us", "9 us"] }`,
    /// `{ either = ["1 us", "31 us"], first = 0.9 }`, `{ hyper-exponential = ["1 us", "31 us"], first = 0.9 }`,
    /// `{ geometric = "5 us", slot = "1 us" }`, `{ pareto = "5 us", shape = 1.5 }`,
    /// `{ log-normal = "5 us", sigma = 1.0 }`, or `{ mix = [["1 us", 7], ["9 us", 1]] }`.
    Draw,
    /// The same of bytes: `"1 MB"`, `{ exponential = "1 MB" }`.
    DrawBytes,
    /// Packet lengths: `"1500 B"`, or several with their weights: `[["64 B", 7], ["1500 B", 1]]`.
    Sizes,
    /// A kind of this family, with its own parameters.
    Nested(Family),
    /// The name of a profile of this folder: `hosts`, `adapters`, `links`, `switches`.
    Profile(&'static str),
    /// The name of a node, or of one of several: `s.3`.
    Node,
    /// Names of nodes, at least this many.
    Nodes(usize),
    /// Names of two nodes or more in a chain, or a list of such lists.
    Chains,
    /// Rates with their start times: `[["0 s", "10 Mbit/s"], ["2 s", "0 bit/s"]]`.
    Rates,
    /// Time intervals: `[["1 s", "2 s"], ["5 s", "6 s"]]`.
    Windows,
    /// Whole numbers in a list, both bounds included: `[1, 3]`.
    Integers {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
}

/// The longest packet allowed in an experiment. With [`RATE_MIN`] and [`TIME_MAX`] it keeps every sum of
/// times within the 213 days that an instant can express.
pub const PACKET_MAX: Bytes = Bytes::from_mib(16);
/// The slowest rate allowed in an experiment.
pub const RATE_MIN: Rate = Rate::from_bits(1_000);
/// The most framing overhead allowed in an experiment, in bytes of line time.
pub const FRAMING_MAX: u64 = 65_536;
/// The longest time allowed in an experiment.
pub const TIME_MAX: Duration = Duration::from_secs(100_000);

impl ParamKind {
    /// The length of a packet.
    pub const PACKET: ParamKind = ParamKind::Size { min: 1, max: PACKET_MAX.0 };
    /// The length of a buffer or a burst.
    pub const BUFFER: ParamKind = ParamKind::Size { min: 1, max: 1 << 30 };
    /// A count, at least one.
    pub const COUNT: ParamKind = ParamKind::Integer { min: 1, max: i64::MAX as u64 };
}

impl Param {
    /// A required parameter; [`Param::is`] adds its meaning.
    pub const fn required(name: &'static str, kind: ParamKind) -> Param {
        Param { name, kind, default: Fallback::Required, what: "" }
    }
    /// A parameter with the default `written`.
    pub const fn or(name: &'static str, kind: ParamKind, written: &'static str) -> Param {
        Param { name, kind, default: Fallback::Written(written), what: "" }
    }
    /// An optional parameter; `absent` says what leaving it out means.
    pub const fn optional(name: &'static str, kind: ParamKind, absent: &'static str) -> Param {
        Param { name, kind, default: Fallback::Absent(absent), what: "" }
    }
    /// The parameter with its meaning.
    #[must_use]
    pub const fn is(self, what: &'static str) -> Param {
        Param { what, ..self }
    }
}

/// The value of one parameter, decoded.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`ParamKind::Time`].
    Time(Duration),
    /// Of [`ParamKind::Size`].
    Size(Bytes),
    /// Of [`ParamKind::Rate`].
    Rate(Rate),
    /// Of [`ParamKind::PerByte`].
    PerByte(PerByte),
    /// Of [`ParamKind::Integer`].
    Integer(u64),
    /// Of [`ParamKind::Number`].
    Number(f64),
    /// Of [`ParamKind::Text`], [`ParamKind::Choice`], [`ParamKind::Profile`], [`ParamKind::Node`].
    Text(String),
    /// Of [`ParamKind::Flag`].
    Flag(bool),
    /// Of [`ParamKind::Draw`].
    Draw(Draw),
    /// Of [`ParamKind::DrawBytes`].
    DrawBytes(Draw<Bytes>),
    /// Of [`ParamKind::Sizes`], each with its weight; the weights sum to more than zero.
    Sizes(Vec<(Bytes, u64)>),
    /// Of [`ParamKind::Nested`].
    Nested(Box<Nested>),
    /// Of [`ParamKind::Nodes`].
    Texts(Vec<String>),
    /// Of [`ParamKind::Integers`].
    Integers(Vec<u64>),
    /// Of [`ParamKind::Rates`]; `None` is a rate of zero.
    Rates(Vec<(Duration, Option<Rate>)>),
    /// Of [`ParamKind::Windows`]; each ends after it begins.
    Windows(Vec<(Duration, Duration)>),
}

/// A kind with its parameters.
#[derive(Clone, Debug)]
pub struct Nested {
    /// Which kind.
    pub page: &'static Page,
    maker: &'static (dyn Any + Send + Sync),
    /// Its parameters.
    pub values: Values,
}

impl Nested {
    /// A kind with parameters that fit it.
    pub fn new(kind: &Kind, values: Values) -> Nested {
        Nested { page: kind.page, maker: kind.maker, values }
    }

    /// What makes one.
    ///
    /// Panics if it is not of the family's type: decoding accepts each kind only where its family is expected.
    pub fn maker<T: Any>(&self) -> &'static T {
        let maker = self.made_by();
        maker.unwrap_or_else(|| panic!("`{}` cannot be made here", self.page.name))
    }

    /// What makes one, if it is of type `T`.
    pub fn made_by<T: Any>(&self) -> Option<&'static T> {
        self.maker.downcast_ref()
    }
}

impl PartialEq for Nested {
    fn eq(&self, other: &Nested) -> bool {
        std::ptr::eq(self.page, other.page) && self.values == other.values
    }
}

/// Why values that are each valid cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The parameter at fault, which is given.
    pub param: &'static str,
    /// The index of the item, from 0, if the parameter is a list.
    pub index: Option<usize>,
    /// What is wrong with it.
    pub found: String,
    /// What would be right.
    pub right: String,
}

impl Misfit {
    /// The parameter as a whole is wrong.
    pub fn new(param: &'static str, found: String, right: impl Into<String>) -> Misfit {
        Misfit { param, index: None, found, right: right.into() }
    }
    /// Its item `index`, from 0, is wrong.
    pub fn at(self, index: usize) -> Misfit {
        Misfit { index: Some(index), ..self }
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; {}", self.param, self.found, self.right)
    }
}

impl std::error::Error for Misfit {}

/// The values of a kind's parameters, by name.
///
/// ```
/// use lastmeter_base::Rate;
/// use lastmeter_base::kind::{Value, Values};
/// let mut values = Values::default();
/// values.insert("rate", Value::Rate(Rate::from_gbit(1)));
/// assert_eq!(values.get::<Rate>("rate"), Rate::from_gbit(1));
/// assert_eq!(values.given::<Rate>("peak"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(BTreeMap<&'static str, Value>);

impl Values {
    /// Sets a value.
    pub fn insert(&mut self, name: &'static str, value: Value) {
        self.0.insert(name, value);
    }
    /// Sets those of `others`.
    pub fn extend(&mut self, others: Values) {
        self.0.extend(others.0);
    }
    /// Whether there is a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
    /// The value of a parameter that is required or has a default.
    ///
    /// Panics otherwise: then the page and the code that builds from it disagree.
    pub fn get<T: Typed>(&self, name: &str) -> T {
        self.given(name).unwrap_or_else(|| panic!("no page declares a default for `{name}`"))
    }
    /// The value of a parameter that may be absent.
    ///
    /// Panics if it has another type: then the page and the code that builds from it disagree.
    pub fn given<T: Typed>(&self, name: &str) -> Option<T> {
        self.0.get(name).map(|value| {
            T::typed(value).unwrap_or_else(|| panic!("`{name}` is declared as another type"))
        })
    }
}

/// A type of parameter values.
pub trait Typed: Sized {
    /// The value, if it is of this type.
    fn typed(value: &Value) -> Option<Self>;
}

macro_rules! typed {
    ($($kind:ident: $type:ty,)*) => {$(
        impl Typed for $type {
            fn typed(value: &Value) -> Option<$type> {
                match value {
                    Value::$kind(value) => Some(value.clone()),
                    _ => None,
                }
            }
        }
    )*};
}
typed! {
    Time: Duration, Size: Bytes, Rate: Rate, PerByte: PerByte, Integer: u64, Number: f64,
    Text: String, Flag: bool, Draw: Draw, DrawBytes: Draw<Bytes>, Sizes: Vec<(Bytes, u64)>,
    Texts: Vec<String>, Integers: Vec<u64>, Rates: Vec<(Duration, Option<Rate>)>,
    Windows: Vec<(Duration, Duration)>,
}
impl Typed for Nested {
    fn typed(value: &Value) -> Option<Nested> {
        match value {
            Value::Nested(nested) => Some((**nested).clone()),
            _ => None,
        }
    }
}
