//! A router's switching fabric: virtual output queues in front of it, a multistage cell fabric with a small
//! speed-up, output queues after it, and distributed queueing between them.
//!
//! ```text
//! in i --> [ VOQ i,0 | ... | VOQ i,N-1 ] --S L--> (fabric) --S L--> [ output j ] --L--> out j
//!               ^                                                       |
//!               '------ rates r(i,j), each period D <------ backlogs <--'
//! ```
//!
//! * [`allocation`]: the equations of distributed queueing, both sets.
//! * [`voq`]: one input's virtual output queues, each served at its rate.
//! * [`model`]: a whole router in virtual time, compared with ideal output queueing.
//! * [`vc`]: the virtual circuits inside a router.
//! * [`multistage`]: the fabric's cells, stage by stage, with back-pressure.
//! * [`multicast`]: copies by recycling.
//! * [`prototype`]: a port that reports its backlogs in cells, for ports on threads of their own; replays.
//! * [`stress`]: the load with which the document tries to defeat distributed queueing.
//! * [`port`], [`trunk`], [`output`], [`network`]: inputs, trunks and outputs as elements, and a fabric
//!   of them in a graph.
//! * [`fat_tree`]: a network of hosts in three levels of switches.
//!
//! Source: Kuhns et al., Design of a High Performance Dynamically Extensible Router, §2.2, §3.1,
//! §3.6, §8 (D-04, D-07, D-19, D-21, D-22, D-50 to D-59, D-117 to D-122,
//! D-124 to D-126).

pub mod allocation;
pub mod bench;
pub mod demultiplex;
pub mod fat_tree;
pub mod model;
pub mod multicast;
pub mod multistage;
pub mod network;
pub mod output;
pub mod port;
pub mod prototype;
pub mod stress;
pub mod trunk;
pub mod vc;
pub mod voq;
