//! iSCSI: SCSI commands over TCP, in protocol data units (PDUs).
//!
//! ```text
//! PDU: basic header 48 | additional headers | header digest 4 | data, padded to words | data digest 4
//! header: opcode 1 | flags 3 | words of additional headers 1 | bytes of data 3 | LUN 8 | task tag 4 | 28 by opcode
//! ```
//!
//! Numbers are big-endian; digests are CRC-32C, little-endian, and present only where both ends agreed on them.
//! Source: RFC 7143, section 11.
//!
//! ```
//! use lastmeter_wire::iscsi::{Ask, Request};
//! let ping = Request { task: 7, ..Request::new(Ask::NopOut { transfer: u32::MAX }) };
//! assert_eq!(Request::parse(&ping.emit())?, ping);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

mod request;
mod response;
pub mod text;

pub use request::{Ask, Request};
pub use response::{Answer, Residual, Response};

use crate::crc;

/// The last PDU of a request or of a sequence; in a login, the transit to the next stage.
const FINAL: u8 = 0x80;
/// More text follows.
const CONTINUES: u8 = 0x40;
/// Bytes of a basic header.
pub const HEADER_LEN: usize = 48;
/// Bytes of a digest.
pub const DIGEST_LEN: usize = 4;
/// The most data of a PDU: its length has three bytes.
pub const DATA_MAX: u32 = (1 << 24) - 1;
/// Its assigned port.
pub const PORT: u16 = 3260;
/// The reserved tag, which identifies nothing.
pub const NO_TAG: u32 = u32::MAX;

/// Bytes of data with its padding.
pub const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// The digest of a header or of data with its padding.
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_LEN] {
    crc::crc32c(bytes).to_le_bytes()
}

/// Lengths of what follows a header, at the same place in every header: additional headers, and data without
/// its padding.
pub fn lengths(header: &[u8; HEADER_LEN]) -> (usize, usize) {
    let data = u32::from_be_bytes([0, header[5], header[6], header[7]]);
    (4 * usize::from(header[4]), data as usize)
}

/// Stages of a login.
pub mod stage {
    /// Security negotiation: who the initiator is.
    pub const SECURITY: u8 = 0;
    /// Operational negotiation: how the session works.
    pub const OPERATIONAL: u8 = 1;
    /// The full feature phase: commands.
    pub const FULL: u8 = 3;
}

/// How a login ended: class and detail (section 11.13.5).
pub mod status {
    /// Success: it continues, or is complete.
    pub const SUCCESS: u16 = 0;
    /// An initiator error.
    pub const INITIATOR: u16 = 0x0200;
    /// Authentication failed.
    pub const AUTHENTICATION: u16 = 0x0201;
    /// There is no such target.
    pub const NOT_FOUND: u16 = 0x0203;
    /// Unsupported version.
    pub const VERSION: u16 = 0x0205;
    /// Too many connections.
    pub const TOO_MANY_CONNECTIONS: u16 = 0x0206;
    /// A required parameter is missing.
    pub const MISSING: u16 = 0x0207;
    /// Unsupported session type.
    pub const SESSION_TYPE: u16 = 0x0209;
    /// There is no such session.
    pub const NO_SESSION: u16 = 0x020a;
    /// An invalid PDU during login.
    pub const INVALID: u16 = 0x020b;
    /// A target error.
    pub const TARGET: u16 = 0x0300;
}

/// Functions of task management (section 11.5.1).
pub mod function {
    /// Abort one task.
    pub const ABORT_TASK: u8 = 1;
    /// Abort all tasks of this initiator.
    pub const ABORT_TASK_SET: u8 = 2;
    /// Abort all tasks of all initiators.
    pub const CLEAR_TASK_SET: u8 = 4;
    /// Reset the logical unit.
    pub const LUN_RESET: u8 = 5;
    /// Reset all logical units.
    pub const WARM_RESET: u8 = 6;
    /// The same, and end all sessions.
    pub const COLD_RESET: u8 = 7;
    /// Reassign a task to another connection.
    pub const REASSIGN: u8 = 8;
}

/// Answers to task management (section 11.6.1).
pub mod managed {
    /// Done.
    pub const COMPLETE: u8 = 0;
    /// There is no such task.
    pub const NO_TASK: u8 = 1;
    /// There is no such logical unit.
    pub const NO_LUN: u8 = 2;
    /// Task reassignment is not supported.
    pub const NO_REASSIGNMENT: u8 = 4;
    /// The function is not supported.
    pub const UNSUPPORTED: u8 = 5;
    /// Not permitted for this initiator.
    pub const DENIED: u8 = 6;
}

/// Reasons of rejects (section 11.17.1).
pub mod reject {
    /// Data were corrupted.
    pub const DATA_DIGEST: u8 = 2;
    /// Selective acknowledgements are not supported at this recovery level.
    pub const SNACK: u8 = 3;
    /// A protocol error.
    pub const PROTOCOL: u8 = 4;
    /// An unsupported command.
    pub const UNSUPPORTED: u8 = 5;
    /// A field has a wrong value.
    pub const INVALID: u8 = 9;
}

fn word(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
fn half(bytes: &[u8; HEADER_LEN], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
fn put(bytes: &mut [u8; HEADER_LEN], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
fn put_half(bytes: &mut [u8; HEADER_LEN], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
fn lun(bytes: &[u8; HEADER_LEN]) -> u64 {
    u64::from(word(bytes, 8)) << 32 | u64::from(word(bytes, 12))
}

#[cfg(test)]
mod tests;
