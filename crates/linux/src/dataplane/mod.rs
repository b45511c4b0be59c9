//! What a router needs of the kernel: its ports' frames without copies of ours, a program that sorts them, and the
//! state of its links, neighbours and routes.
//!
//! ```text
//! interface --> program --> kernel (ARP, addresses of ours) | the other port (known flows) | frames --> port processor
//! ```

pub mod announce;
pub mod bench;
pub mod frames;
pub mod program;
pub mod routing;

pub use bench::{Generator, Standing};
pub use frames::{Frame, Frames, Lent, Lost, Returned, Socket};
pub use program::{FlowCount, FlowHop, FlowKey, FlowTo, Handled, Interface, Shared};
