//! Queues, servers, forwarders, sources and sinks: the elements of networks.
//!
//! Queues are machines: they take `now` and own no timer, and the element that serves them does.
//! So the same queue works in a model, in a host, and in front of a real interface.

pub mod bench;
pub mod classify;
pub mod demultiplexer;
pub mod fifo;
pub mod forwarder;
pub mod fuzz;
pub mod imagine;
pub mod impair;
pub mod lookup;
pub mod mpeg;
pub mod plugin;
pub mod queue;
pub mod request;
pub mod sar;
pub mod server;
pub mod sink;
pub mod source;
pub mod traffic;

/// Every node of this crate that experiments can name, besides [`impair::KINDS`].
pub static NODES: &[lastmeter_base::kind::Kind] =
    &[forwarder::KIND, server::KIND, sar::KIND, plugin::KIND];

/// Compiles the Rust code of the pages on adding things.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/add-a-queue.md")]
    mod queue {}
    #[doc = include_str!("../../../docs/add-an-element.md")]
    mod element {}
    #[doc = include_str!("../../../docs/add-a-format.md")]
    mod format {}
    #[doc = include_str!("../../../docs/adding.md")]
    mod adding {}
}
