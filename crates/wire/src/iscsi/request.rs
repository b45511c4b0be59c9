//! PDUs of initiators.

use super::{CONTINUES, FINAL, HEADER_LEN, half, lun, put, put_half, word};
use crate::error::Error;

const IMMEDIATE: u8 = 0x40;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether it is done at once, and takes no command number.
    pub immediate: bool,
    /// The logical unit, in requests that have one.
    pub lun: u64,
    /// Returned with each answer.
    pub task: u32,
    /// The command number; data have none.
    pub command_number: u32,
    /// The number of the next status that the initiator expects.
    pub status_expected: u32,
    /// Words of additional headers.
    pub more_headers: u8,
    /// Bytes of data.
    pub data_len: u32,
    /// What it asks.
    pub ask: Ask,
}

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A ping, or the answer to one from the target.
    NopOut {
        /// The target's tag.
        transfer: u32,
    },
    /// Execute a SCSI command.
    Command {
        /// No unsolicited data follow in PDUs of their own.
        last: bool,
        /// It reads.
        reads: bool,
        /// It writes.
        writes: bool,
        /// The task attribute: how it is ordered.
        attribute: u8,
        /// Bytes that the initiator expects to transfer.
        expected: u32,
        /// The command.
        cdb: [u8; 16],
    },
    /// Manage tasks.
    Manage {
        /// One of [`function`](super::function).
        function: u8,
        /// The tag of the referenced task.
        referenced: u32,
        /// The number of the referenced command.
        number: u32,
    },
    /// Log in.
    Login {
        /// To the next stage.
        transit: bool,
        /// More text follows.
        continues: bool,
        /// The stage it is in.
        current: u8,
        /// The stage it wants next.
        next: u8,
        /// The highest version it supports.
        version_max: u8,
        /// The lowest.
        version_min: u8,
        /// The initiator's part of the session's identity.
        isid: [u8; 6],
        /// The target's part; zero for a new session.
        tsih: u16,
        /// The connection.
        connection: u16,
    },
    /// Negotiate.
    Text {
        /// It has nothing to add.
        last: bool,
        /// More text follows.
        continues: bool,
        /// The target's tag.
        transfer: u32,
    },
    /// Data of a write.
    DataOut {
        /// The last of its sequence.
        last: bool,
        /// The tag of the target's request, if any.
        transfer: u32,
        /// Its number in the sequence.
        number: u32,
        /// Where it belongs.
        offset: u32,
    },
    /// Log out.
    Logout {
        /// 0: the session ends; 1: the connection; 2: the connection, for recovery.
        reason: u8,
        /// The connection.
        connection: u16,
    },
    /// Request retransmission of lost PDUs.
    Snack,
}

impl Ask {
    /// Log in to version 0 on connection 1 of a new session, with nothing to follow.
    pub fn login(current: u8, next: u8, isid: [u8; 6]) -> Ask {
        Ask::Login {
            transit: true,
            continues: false,
            current,
            next,
            version_max: 0,
            version_min: 0,
            isid,
            tsih: 0,
            connection: 1,
        }
    }
}

impl Request {
    /// A request without data.
    pub fn new(ask: Ask) -> Request {
        Request {
            immediate: false,
            lun: 0,
            task: 0,
            command_number: 0,
            status_expected: 0,
            more_headers: 0,
            data_len: 0,
            ask,
        }
    }
    /// # Errors
    /// If its opcode is not that of a request.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Request, Error> {
        let (flags, transfer) = (bytes[1], word(bytes, 20));
        let last = flags & FINAL != 0;
        let ask = match bytes[0] & 0x3f {
            0x00 => Ask::NopOut { transfer },
            0x01 => Ask::Command {
                last,
                reads: flags & READS != 0,
                writes: flags & WRITES != 0,
                attribute: flags & 7,
                expected: transfer,
                cdb: std::array::from_fn(|at| bytes[32 + at]),
            },
            0x02 => Ask::Manage {
                function: flags & 0x7f,
                referenced: transfer,
                number: word(bytes, 32),
            },
            0x03 => Ask::Login {
                transit: last,
                continues: flags & CONTINUES != 0,
                current: flags >> 2 & 3,
                next: flags & 3,
                version_max: bytes[2],
                version_min: bytes[3],
                isid: std::array::from_fn(|at| bytes[8 + at]),
                tsih: half(bytes, 14),
                connection: half(bytes, 20),
            },
            0x04 => Ask::Text { last, continues: flags & CONTINUES != 0, transfer },
            0x05 => {
                Ask::DataOut { last, transfer, number: word(bytes, 36), offset: word(bytes, 40) }
            }
            0x06 => Ask::Logout { reason: flags & 0x7f, connection: half(bytes, 20) },
            0x10 => Ask::Snack,
            other => return Err(Error::Invalid { what: "iSCSI opcode", found: other.into() }),
        };
        let has_lun = !matches!(ask, Ask::Login { .. } | Ask::Logout { .. } | Ask::Snack);
        let has_number = !matches!(ask, Ask::DataOut { .. } | Ask::Snack);
        Ok(Request {
            immediate: bytes[0] & IMMEDIATE != 0,
            lun: if has_lun { lun(bytes) } else { 0 },
            task: word(bytes, 16),
            command_number: if has_number { word(bytes, 24) } else { 0 },
            status_expected: word(bytes, 28),
            more_headers: bytes[4],
            data_len: u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]),
            ask,
        })
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        put(&mut bytes, 4, self.data_len);
        bytes[4] = self.more_headers;
        put(&mut bytes, 8, (self.lun >> 32) as u32);
        put(&mut bytes, 12, self.lun as u32);
        put(&mut bytes, 16, self.task);
        put(&mut bytes, 24, self.command_number);
        put(&mut bytes, 28, self.status_expected);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let (opcode, flags) = match self.ask {
            Ask::NopOut { transfer } => {
                put(&mut bytes, 20, transfer);
                (0x00, FINAL)
            }
            Ask::Command { last, reads, writes, attribute, expected, cdb } => {
                put(&mut bytes, 20, expected);
                bytes[32..].copy_from_slice(&cdb);
                let flags = flag(last, FINAL) | flag(reads, READS) | flag(writes, WRITES);
                (0x01, flags | attribute & 7)
            }
            Ask::Manage { function, referenced, number } => {
                put(&mut bytes, 20, referenced);
                put(&mut bytes, 32, number);
                (0x02, FINAL | function & 0x7f)
            }
            Ask::Login {
                transit,
                continues,
                current,
                next,
                version_max,
                version_min,
                isid,
                tsih,
                connection,
            } => {
                (bytes[2], bytes[3]) = (version_max, version_min);
                bytes[8..14].copy_from_slice(&isid);
                put_half(&mut bytes, 14, tsih);
                put_half(&mut bytes, 20, connection);
                let flags = flag(transit, FINAL) | flag(continues, CONTINUES);
                (0x03, flags | (current & 3) << 2 | next & 3)
            }
            Ask::Text { last, continues, transfer } => {
                put(&mut bytes, 20, transfer);
                (0x04, flag(last, FINAL) | flag(continues, CONTINUES))
            }
            Ask::DataOut { last, transfer, number, offset } => {
                put(&mut bytes, 20, transfer);
                put(&mut bytes, 36, number);
                put(&mut bytes, 40, offset);
                (0x05, flag(last, FINAL))
            }
            Ask::Logout { reason, connection } => {
                put_half(&mut bytes, 20, connection);
                (0x06, FINAL | reason & 0x7f)
            }
            Ask::Snack => (0x10, FINAL),
        };
        bytes[0] = opcode | flag(self.immediate, IMMEDIATE);
        bytes[1] = flags;
        bytes
    }
}
