//! Networks built from queues, servers and cells, each a single node between hosts.
//!
//! * [`vunet`]: Aurora's VuNet, its switches, links, cards and viewers;
//! * [`timed_token`]: rings with a timed token, FDDI's and Jetstream's;
//! * [`fabric`]: cell switches with distributed queueing, multistage networks, fat trees;
//! * [`wormhole`]: local networks without switch queues, whose packets hold the links that they cross;
//! * [`stripe`]: one circuit over several links;
//! * [`paths`]: routers that keep no tables, because packets carry their paths;
//! * [`preempt`]: links on which an urgent unit interrupts another;
//! * [`labels`]: reservations that travel hop by hop between routers (RSVP), and the labels of their packets (MPLS).

pub mod fabric;
pub mod fuzz;
pub mod labels;
pub mod paths;
pub mod preempt;
pub mod stripe;
pub mod timed_token;
pub mod vunet;
pub mod wormhole;

use lastmeter_base::kind::Kind;

/// All nodes of this crate that experiments can name.
pub static NODES: &[Kind] = &[
    timed_token::element::KIND,
    fabric::network::KIND,
    fabric::fat_tree::KIND,
    vunet::element::SWITCH_KIND,
    vunet::element::LINK_KIND,
    vunet::element::BRIDGE_KIND,
    vunet::element::ZEBRA_KIND,
    stripe::element::KIND,
    wormhole::element::KIND,
    preempt::element::KIND,
    paths::KIND,
    labels::node::KIND,
];

/// All kinds of traffic in this crate.
pub static TRAFFIC: &[Kind] = &[vunet::viewer::KIND];
