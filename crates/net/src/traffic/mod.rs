//! Kinds of traffic that experiments can name: each is a source, or a client with its responder.
//!
//! To add one: write its file, with its [`Page`] and its `build`, and one line in [`KINDS`].

mod bulk;
mod constant;
mod mpeg;
mod on_off;
mod poisson;
mod replay;
mod request;
mod subsessions;
pub mod tcplib;

pub use subsessions::Subsessions;

use crate::request::ClientOptions;
use crate::source::{Pattern, Sizes, Span};
use lastmeter_base::kind::{Nested, Page, Values};
use lastmeter_base::{Bytes, Duration, Rate, Stream};

/// Every kind of traffic that experiments can name.
pub const KINDS: &[Kind] = &[
    Kind { page: constant::PAGE, build: constant::build },
    Kind { page: poisson::PAGE, build: poisson::build },
    Kind { page: on_off::PAGE, build: on_off::build },
    Kind { page: replay::PAGE, build: replay::build },
    Kind { page: mpeg::PAGE, build: mpeg::build },
    Kind { page: request::PAGE, build: request::build },
    Kind { page: bulk::PAGE, build: bulk::build },
    Kind { page: subsessions::PAGE, build: subsessions::build },
    Kind { page: tcplib::PAGE, build: tcplib::build },
];

/// A line of [`KINDS`].
pub struct Kind {
    /// What it is.
    pub page: &'static Page,
    build: fn(&Values, &mut Setting<'_>) -> Result<Traffic, String>,
}

/// Times and lengths of the packets of a capture.
pub type Records = Box<dyn Iterator<Item = (Duration, Bytes)> + Send>;

/// What traffic is built in, besides its own parameters.
pub struct Setting<'a> {
    /// When it begins and ends.
    pub span: Span,
    /// What is drawn before the packets themselves.
    pub stream: Stream,
    /// Opens a capture.
    pub capture: &'a mut dyn FnMut(&str) -> Result<Records, String>,
}

/// What sends the packets of one flow.
pub enum Traffic {
    /// A source, whatever comes back.
    Source(Pattern),
    /// A client, and the length of the responses that it waits for.
    Client(ClientOptions, Bytes),
}

/// Whether this kind of traffic has responses.
pub fn responds(traffic: &Nested) -> bool {
    traffic.values.given::<Bytes>("response").is_some()
}

/// The traffic that an experiment describes. Panics where the page describes none: decoding has
/// checked that.
///
/// # Errors
/// If a capture cannot be opened.
pub fn build(traffic: &Nested, setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let kind = KINDS.iter().find(|kind| kind.page.name == traffic.page.name);
    (kind.expect("a traffic's parameters name registered traffic").build)(&traffic.values, setting)
}

/// Lengths as a source draws them.
fn sizes(values: &Values) -> Sizes {
    match values.get::<Vec<(Bytes, u64)>>("size").as_slice() {
        [(len, _)] => Sizes::Constant(*len),
        mix => Sizes::Mix(mix.to_vec()),
    }
}

/// The gap between packets of these lengths, on average, at `rate`: exact, rounded up once.
fn gap(rate: Rate, sizes: &Sizes) -> Duration {
    match sizes {
        Sizes::Constant(len) => rate.time_for(*len),
        Sizes::Mix(mix) => {
            let total = mix.iter().map(|&(_, weight)| weight).sum();
            let sum = mix.iter().map(|&(len, weight)| len * weight).sum();
            rate.time_for(sum).scale_ceil(1, total)
        }
    }
}
