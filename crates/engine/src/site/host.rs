//! What a kind of node provides if traffic begins and ends there: the stages between its applications and its
//! links.
//!
//! ```text
//! applications --> send ----> links
//! applications <-- receive <-- links
//! ```

use super::{Input, Inputs, Output, Site};
use crate::Error;
use lastmeter_base::kind::Values;

/// Builds a node at which traffic begins and ends.
pub struct HostKind {
    /// Builds the stages between its applications and its links.
    pub build: fn(&Values, &mut Site<'_>, Applications) -> Result<Between, Error>,
}

/// The applications of a host.
#[derive(Clone, Copy, Debug)]
pub struct Applications {
    /// Whether any receives packets.
    pub receive: bool,
    /// Whether they are real programs, which receive as the machine that runs them does.
    pub live: bool,
    /// How many links bring packets to the host.
    pub links: usize,
}

/// What lies between a host's applications and its links, in each direction; `None`: nothing.
#[derive(Clone, Debug, Default)]
pub struct Between {
    /// Where packets enter from applications, and where they leave to the links.
    pub send: Option<(Input, Output)>,
    /// Where packets enter, from all links together or from each, and where they leave to the applications.
    pub receive: Option<(Inputs, Vec<Output>)>,
}
