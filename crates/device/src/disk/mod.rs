//! A disk on the network (N-01, N-18 to N-22, N-30, N-31): iSCSI and NBD over TCP or a Unix socket, with the owner's
//! policies in front of every command.
//!
//! ```text
//! client --> NBD session ----------------+--> gate: size, policies --> medium: file or memory
//! client --> iSCSI session --> SCSI unit +
//! client --> transactions over UDP ------+
//! ```

pub mod datagrams;
pub mod gate;
pub mod iscsi;
pub mod medium;
pub mod nbd;
mod party;
pub mod scsi;
pub mod server;
pub mod timing;

use crate::access::Access;
use crate::account::Account;
use lastmeter_base::{Duration, Time};
use medium::Medium;
use scsi::Unit;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

/// Stages of a disk's requests.
pub const STAGES: [(&str, &str); 4] =
    [("receive", "cpu"), ("policy", "cpu"), ("medium", "disk"), ("answer", "cpu")];
const RECEIVE: usize = 0;
const POLICY: usize = 1;
const MEDIUM: usize = 2;
const ANSWER: usize = 3;

/// The policies' clock ends here, in nanoseconds: after two hundred days.
const NOW_MAX: u64 = u64::MAX / 1000;

/// What sessions share.
pub struct Disk {
    /// The blocks.
    pub medium: Medium,
    /// Who may do what.
    pub access: Access,
    /// Sizes of clients' disks, in bytes, where they are not that of the medium.
    pub sizes: BTreeMap<String, u64>,
    /// What SCSI's initiators share.
    pub unit: Unit,
    /// The target's own secret, for initiators that want to know who it is.
    pub secret: Option<String>,
    /// The account.
    pub account: Account,
    /// When it started: the zero of the policies' clock.
    pub began: Instant,
}

impl Disk {
    /// The policies' clock.
    pub fn now(&self) -> Time {
        let elapsed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::START + Duration::from_ns(elapsed.min(NOW_MAX))
    }
    /// Bytes of a client's disk.
    pub fn size(&self, client: &str) -> u64 {
        self.sizes.get(client).copied().unwrap_or(self.medium.size())
    }
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client said so, or went.
    Closed,
    /// It said something that makes no sense.
    Wrong(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => End::Closed,
            _ => End::Wrong(error.to_string()),
        }
    }
}

impl From<lastmeter_wire::Error> for End {
    fn from(error: lastmeter_wire::Error) -> End {
        End::Wrong(error.to_string())
    }
}
