//! Explaining a run: what each change would buy, what limits it, and whether ties were decisive.

mod once;
mod rounds;
mod shuffle;
mod verdict;
mod what_if;

pub use once::{Decides, once};
pub use rounds::{
    Beginning, CHANGES_MAX, LOOKS, Round, Rounds, Sums, beginnings, is_free, promising,
};
pub use shuffle::{Shuffle, TOLERANCE, shuffled};
pub use verdict::verdict;
pub use what_if::{Change, Effect, WHAT_IFS_MAX, candidates, is_alone, rank, together};
