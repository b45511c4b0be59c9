//! A display on the network: one framebuffer, programs that draw on it, viewers that see it, and its owner's policies
//! in front of what each of them does.
//!
//! ```text
//! programs --commands--> policy --> screen --damage--> policy --> encoding --> viewers (RFB 3.8)
//!          <--events---- policy <-------------------------------------------- keys, pointer
//! ```
//!
//! A client may have a part of the screen as its own: a derived display, whose corner is its origin, and outside of
//! which it neither draws nor sees.

pub mod commands;
pub mod damage;
pub mod encoding;
pub mod gate;
pub mod screen;
pub mod server;
mod session;
pub mod viewer;
