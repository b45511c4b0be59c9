//! The ledger: the balanced account of a run, the one output of every command, and how it looks: in
//! the terminal, as one offline HTML file, as JSON, as Parquet.
//!
//! Writers use no file and no clock: they return text or write to what they are given.
//!
//! | module       | for whom                                  | makes                          |
//! |--------------|-------------------------------------------|--------------------------------|
//! | [`terminal`] | the person at the terminal                | a table of a stated width      |
//! | [`html`]     | readers on any screen, years later        | one file that works offline    |
//! | [`json`]     | programs                                  | the documented, versioned JSON |
//! | [`plots`]    | readers who compare with a document       | a page of figures and rows     |
//! | [`parquet`]  | data frames, over one run or thousands    | ten tables that join           |
//! | [`mod@compare`] | readers of two                         | both side by side              |
//! | [`columns`]  | tables                                    | Parquet from columns, and back |

pub mod columns;
pub mod compare;
mod connection;
pub mod drawing;
pub mod figures;
pub mod html;
pub mod json;
pub mod layers;
mod observations;
pub mod parquet;
pub mod plots;
mod shape;
pub mod terminal;
mod types;
mod waits;

pub use connection::{Connection, Part};
pub use observations::{
    Counter, Estimate, Level, Quantile, Rates, Series, Step, TRANSFERS_MAX, Transfer, Transfers,
};
pub use types::*;
pub use waits::{Wait, Waits};
