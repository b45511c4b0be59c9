//! Kinds of traffic that experiments can name: each is a source, or a client with its responder.
//!
//! To add one: write its file, with its page and its `build`, and one line in [`KINDS`].

mod bulk;
mod constant;
mod ends;
mod mpeg;
mod on_off;
mod poisson;
mod renewal;
mod replay;
mod request;
mod subsessions;
pub mod tcplib;
mod time_sliced;

pub use subsessions::Subsessions;

use crate::request::ClientOptions;
use crate::source::{Pattern, Sizes, Span};
use lastmeter_base::kind::{Kind, Values};
use lastmeter_base::{Bytes, Duration, Rate, Stream};
use lastmeter_engine::site::{Records, TrafficKind};

/// Every kind of traffic that experiments can name.
pub static KINDS: &[Kind] = &[
    constant::KIND,
    poisson::KIND,
    renewal::KIND,
    on_off::KIND,
    replay::KIND,
    mpeg::KIND,
    request::KIND,
    bulk::KIND,
    subsessions::KIND,
    tcplib::KIND,
    time_sliced::KIND,
];

/// Builds the source or client of a flow of its kind.
pub struct Maker(pub fn(&Values, &mut Setting<'_>) -> Result<Traffic, String>);

/// A kind of traffic whose packets a source or a client sends.
pub const fn packets(maker: &'static Maker) -> TrafficKind {
    let responds = |values: &Values| values.given::<Bytes>("response").is_some();
    TrafficKind { responds, ends: ends::ends, together: "packets", own: maker }
}

/// The surroundings of traffic, besides its own parameters.
pub struct Setting<'a> {
    /// When it begins and ends.
    pub span: Span,
    /// The random stream for draws before the packets themselves.
    pub stream: Stream,
    /// Opens a capture: all its records, or its IP packets with their bytes.
    pub capture: &'a mut dyn FnMut(&str, bool) -> Result<Records, String>,
}

/// What sends the packets of one flow.
pub enum Traffic {
    /// A source, which ignores whatever comes back.
    Source(Pattern),
    /// A client, and the length of the responses that it waits for.
    Client(ClientOptions, Bytes),
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
