//! What a kind of node gives at which traffic begins and ends: what stands between its applications
//! and its links.
//!
//! ```text
//! applications --> send ----> links
//! applications <-- receive <-- links
//! ```

use super::{Input, Inputs, Output, Site};
use crate::Error;
use lastmeter_base::kind::Values;

/// What makes a node of its kind, at which traffic begins and ends.
pub struct HostKind {
    /// Builds what stands between its applications and its links.
    pub build: fn(&Values, &mut Site<'_>, Applications) -> Result<Between, Error>,
}

/// The applications of a host.
#[derive(Clone, Copy, Debug)]
pub struct Applications {
    /// Whether any takes packets.
    pub receive: bool,
    /// Whether they are real programs, which receive as the machine does on which they run.
    pub live: bool,
    /// How many links bring packets.
    pub links: usize,
}

/// What stands between a host's applications and its links, in each direction; `None`: nothing.
#[derive(Clone, Debug, Default)]
pub struct Between {
    /// Where applications send into it, and where that leaves to the links.
    pub send: Option<(Input, Output)>,
    /// Where packets enter it, from all links that bring any or from each of them, and where they leave
    /// to the applications.
    pub receive: Option<(Inputs, Vec<Output>)>,
}
