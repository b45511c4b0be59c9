//! Wave Video: a wavelet video whose packets are sub-bands, so that a router can scale it by dropping packets.
//!
//! ```text
//! Sequence -> Picture -> Encoder (lifting, bit-planes) -> packets (`wire::wave`) -> ... -> Decoder -> Picture, PSNR
//! ```
//!
//! Every frame is coded by itself, without motion: what is lost costs one frame. The packets of a frame come in order
//! of priority, the lowest band first. [`kind`] is a traffic of experiments, [`study`] the congested link by itself.

pub mod bench;
pub mod bits;
pub mod decoder;
pub mod encoder;
pub mod kind;
pub mod layered;
pub mod lifting;
pub mod measure;
pub mod picture;
pub mod piece;
pub mod sequence;
pub mod stream;
pub mod study;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use picture::Picture;

/// The kinds of traffic of this crate.
pub static TRAFFIC: &[lastmeter_base::kind::Kind] = &[kind::KIND];
