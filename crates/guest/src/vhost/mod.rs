//! vhost-user: how QEMU hands a guest's memory, rings, doorbells and interrupts to another process.
//!
//! | module      | gives                                                                    |
//! |-------------|--------------------------------------------------------------------------|
//! | [`message`] | the messages, parsed and emitted                                         |
//! | [`session`] | what they add up to: features, memory, the state of each ring; no socket |
//! | [`socket`]  | a socket with descriptors                                                |
//! | [`front`]   | a session over a socket, as an end of a cable                            |
//!
//! Source: QEMU's "Vhost-user Protocol" (docs/interop/vhost-user.rst). QEMU 7.2 enables rings before it sets the
//! features, so either order is accepted. Live migration and device IOTLBs are not offered.

pub mod front;
pub mod message;
pub mod session;
pub mod socket;
