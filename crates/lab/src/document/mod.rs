//! Documents: TOML text with the position of every key and value, so that errors are reported where they are.
//!
//! ```text
//! text --parse--> Document --decode against Params--> Values
//! --set --------^                    '--> Problems: all errors, each with file, line and key
//! ```

mod decode;
mod draw;
mod overrides;
mod problem;
mod timed;
mod tree;

pub use overrides::Override;
pub(crate) use problem::whole_file;
pub use problem::{Fault, Problem, Reporter, nearest};

pub use decode::{Decoder, Shape, expected, join, quantity};
pub(crate) use lastmeter_base::text::shorten;
pub use tree::{Content, Document, Entry, Item, Mark, value_or_text_json};

/// A larger file is refused: experiments are written by hand.
pub const FILE_LEN_MAX: usize = 4 << 20;
/// The most problems that are reported.
pub const PROBLEMS_MAX: usize = 100;

/// A problem with an option of the command line, or with the corresponding argument of a function.
pub(crate) fn of_option(option: &str, value: &str, found: &str, right: &str) -> Problem {
    problem::whole_file(option, Fault::new(format!("`{}` {found}", shorten(value)), right))
}
