//! The codec as a whole, and beside an oracle.

mod codec;
mod oracle;
