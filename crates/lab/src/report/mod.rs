//! How a ledger looks: in the terminal and as JSON.
//!
//! Writers know no file and no clock: they return text or write to what they are given.
//!
//! | module       | for whom                                  | makes                          |
//! |--------------|-------------------------------------------|--------------------------------|
//! | [`terminal`] | who asked, now                            | a table of a stated width      |
//! | [`json`]     | programs                                  | the documented, versioned JSON |

mod figures;
pub mod json;
mod shape;
pub mod terminal;
