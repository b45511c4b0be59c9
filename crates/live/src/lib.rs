//! This machine: real transfers, real hosts, other people's programs, and graphs between real
//! interfaces in real time.
//!
//! | module      | gives                                                                        |
//! |-------------|------------------------------------------------------------------------------|
//! | `namespace` | two hosts on this machine, joined by a veth pair, gone when it ends          |
//! | `transfer`  | one transfer between them under a [`transfer::Setting`], fully accounted     |
//! | `calibrate` | this host's constants, as a profile                                          |
//! | `predict`   | what a transfer will do, from those constants                                |
//! | `validate`  | predictions compared with measurements                                       |
//! | `stages`    | the cost of each stage, by leaving it out                                    |
//! | `sample`    | what CPU time went into, by sampling the kernel's call chains                |
//! | `observe`   | what limited another program's connections                                   |
//! | `staged`    | two programs with one thing wrong, made on purpose                           |
//! | `load`      | what other programs use of the machine                                       |
//! | `limit`     | which side and resource limited it, or that the data are inconclusive        |
//! | `control`   | a Unix socket on which a running daemon is asked and told                     |
//! | `clock`     | the wall clock on which a graph runs                                         |
//! | `port`      | interfaces as elements: TAP, AF_PACKET, AF_XDP                               |
//! | `site`      | the hosts of a live run, and their removal                                   |
//! | `session`   | a live run except for its graph                                              |
//! | `blast`     | traffic between agents on several hosts, under remote control                |
//! | `remote`    | both ends of a connection, each observed on its own host                     |
//! | `dataplane` | a router's ports: frames shared with the kernel, its programs, its neighbours   |
//! | `files`     | files that links, pipes and other users cannot turn into something else      |
//! | `memory`    | the memory of this machine, and a limit on that of this process              |
//! | `flood`     | frames at a steady rate, to find out what a run can carry                    |
//! | `exchange`  | transactions with a device, requests of HTTP, between the two hosts          |
//! | `shared`    | memory of another process that may change it at any time                     |
//! | `task`      | what helper processes do for other crates                                    |
//! | `fit`       | least squares with non-negative factors                                      |
//! | `receive`   | reception under load: sources, settings of the kernel, a second program      |
//!
//! Everything is measured at privilege level L0 (own timestamps, `TCP_INFO`, procfs, resource usage), and
//! where sampling the kernel is allowed at L1 (`sample`). No performance counters; eBPF only to redirect
//! frames to an AF_XDP socket. Results
//! are in SI units: seconds, bytes, bits per second.
//! Only interfaces that this crate creates are ever changed.

mod agent;
pub mod blast;
mod bpf;
pub mod calibrate;
mod channel;
pub mod clock;
pub mod control;
pub mod cores;
pub mod counters;
pub mod dataplane;
mod error;
pub mod exchange;
pub mod files;
pub mod fit;
pub mod flood;
pub mod fuzz;
pub mod heap;
pub mod limit;
mod lines;
pub mod link;
pub mod load;
pub mod memory;
pub mod namespace;
mod netlink;
pub mod observe;
pub mod port;
pub mod predict;
pub mod quota;
pub mod receive;
pub mod reference;
pub mod relay;
pub mod remote;
pub mod sample;
pub mod session;
pub mod shared;
pub mod site;
pub mod staged;
pub mod stages;
pub mod statistics;
mod steer;
mod sys;
pub mod task;
pub mod tcp_info;
mod text;
pub mod token;
pub mod transfer;
pub mod validate;
pub mod worker;

pub use error::{Doing, Error, Result, What, wrong};
pub use sys::stamp;
