//! Measurements on this machine: real transfers, real hosts, other people's programs, and the hosts of graphs that
//! run in real time. What they need of the kernel is in `linux`.
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
//! | `waits`     | how long data and threads wait between the stages, by tracepoints            |
//! | `observe`   | what limited another program's connections                                   |
//! | `staged`    | two programs with one thing wrong, made on purpose                           |
//! | `limit`     | which side and resource limited it, or that the data are inconclusive        |
//! | `site`      | the hosts of a live run, and their removal                                   |
//! | `session`   | a live run except for its graph                                              |
//! | `blast`     | traffic between agents on several hosts, under remote control                |
//! | `remote`    | both ends of a connection, each observed on its own host                     |
//! | `flood`     | frames at a steady rate, to find out what a run can carry                    |
//! | `exchange`  | transactions with a device, requests of HTTP, between the two hosts          |
//! | `task`      | what helper processes do for other crates                                    |
//! | `fit`       | least squares with non-negative factors                                      |
//! | `receive`   | reception under load: sources, settings of the kernel, a second program      |
//!
//! Everything is measured at privilege level L0 (own timestamps, `TCP_INFO`, procfs, resource usage), and
//! where sampling the kernel is allowed at L1 (`sample`, `waits`). No performance counters. Results are in SI
//! units: seconds, bits per second, bytes.
//! Only interfaces that this crate creates are ever changed.

mod agent;
pub mod blast;
pub mod calibrate;
mod channel;
pub mod exchange;
pub mod fit;
pub mod flood;
pub mod fuzz;
pub mod limit;
mod lines;
pub mod namespace;
pub mod observe;
pub mod predict;
pub mod receive;
pub mod reference;
pub mod relay;
pub mod remote;
pub mod sample;
pub mod session;
pub mod site;
pub mod staged;
pub mod stages;
pub mod statistics;
mod steer;
pub mod task;
mod text;
pub mod transfer;
pub mod validate;
pub mod waits;
pub mod worker;
