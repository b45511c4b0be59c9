//! The codec as a whole, and beside an oracle; what is measured of a stream.

mod codec;
mod measure;
mod oracle;
