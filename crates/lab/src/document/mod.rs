//! Documents: TOML text with the place of every key and value, so that whatever is wrong with one is
//! said where it is.
//!
//! ```text
//! text --parse--> Document --decode against Params--> Values
//! --set --------^                    '--> Problems, all of them, each with file, line and key
//! ```

mod decode;
mod overrides;
mod problem;
mod tree;

pub use overrides::Override;
pub use problem::{Fault, Problem, Reporter, nearest};

pub(crate) use decode::{Decoder, Shape, expected, join};
pub(crate) use problem::shorten;
pub(crate) use tree::{Content, Document, Item, Mark, value_or_text_json};

/// A larger file is refused: experiments are written by people.
pub const FILE_LEN_MAX: usize = 4 << 20;
/// After this many problems no more are looked for.
pub const PROBLEMS_MAX: usize = 100;
