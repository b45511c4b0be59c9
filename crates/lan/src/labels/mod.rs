//! Reservations between routers, and the labels of their packets: what a router on Linux and one in a model do with the
//! same code (D-43).
//!
//! * [`rsvp`]: messages, and what a router does with them and with time;
//! * [`mpls`]: labels in front of packets;
//! * [`admission`]: what may be reserved of a router's lines;
//! * [`reserved`]: queues of flows with a reservation;
//! * [`node`]: the router of a model, which runs all of these in virtual time.

pub mod admission;
mod element;
mod ground;
mod line;
pub mod mpls;
pub mod node;
pub mod reserved;
pub mod rsvp;
