//! What Linux offers to programs that measure and move packets, each behind safe functions.
//!
//! | module      | gives                                                                           |
//! |-------------|---------------------------------------------------------------------------------|
//! | `sys`       | system calls without a safe wrapper elsewhere                                   |
//! | `port`      | interfaces as elements of a graph: TAP, AF_PACKET, AF_XDP                        |
//! | `clock`     | the wall clock on which a graph runs                                            |
//! | `dataplane` | a router's ports: frames shared with the kernel, its programs, its neighbours   |
//! | `datagrams` | several datagrams with one system call                                           |
//! | `shared`    | memory of another process that may change it at any time                        |
//! | `link`      | interfaces of a network namespace: pairs, addresses, MTU, offloads              |
//! | `netlink`   | requests to the kernel, and its answers                                         |
//! | `tcp_info`  | what the kernel knows of a TCP connection                                       |
//! | `perf`      | the sampling clock: who runs, and in which functions of the kernel              |
//! | `trace`     | the kernel's tracepoints: records of their passes, with time                    |
//! | `counters`  | CPU time, interrupts and troubles of the machine                                |
//! | `load`      | what other programs use of the machine                                          |
//! | `cores`     | the allowed cores, and pinning to one                                           |
//! | `quota`     | a limit on the CPU time of a process                                            |
//! | `memory`    | the memory of this machine, and a limit on that of this process                 |
//! | `heap`      | the heap of this program in huge pages                                          |
//! | `files`     | files that links, pipes and other users cannot turn into something else         |
//! | `token`     | secrets that two programs share, and proofs of knowing them                     |
//! | `control`   | a Unix socket on which a running daemon is asked and told                        |
//!
//! Nothing here starts a process or measures by itself: that is `live`.

mod bpf;
pub mod clock;
pub mod control;
pub mod cores;
pub mod counters;
pub mod datagrams;
pub mod dataplane;
mod error;
pub mod files;
pub mod heap;
pub mod link;
pub mod load;
pub mod memory;
pub mod netlink;
pub mod perf;
pub mod port;
pub mod quota;
pub mod shared;
pub mod sys;
pub mod tcp_info;
pub mod token;
pub mod trace;

pub use error::{Doing, Error, Result, What, wrong};
