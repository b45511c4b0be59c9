//! PDUs of targets.

use super::{CONTINUES, FINAL, HEADER_LEN, NO_TAG, half, lun, put, put_half, word};
use crate::error::Error;

const STATUS: u8 = 0x01;

/// A response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The logical unit, in responses that have one.
    pub lun: u64,
    /// The tag of the request.
    pub task: u32,
    /// The status number; meaningless in data without status.
    pub status_number: u32,
    /// The number of the next command that the target expects.
    pub command_expected: u32,
    /// The highest that it accepts.
    pub command_max: u32,
    /// Bytes of data.
    pub data_len: u32,
    /// What it says.
    pub answer: Answer,
}

/// By how much the transfer of a command differs from what its initiator expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// Not at all.
    #[default]
    None,
    /// This many bytes fewer.
    Under(u32),
    /// This many bytes more.
    Over(u32),
}

impl Residual {
    fn parse(flags: u8, count: u32) -> Residual {
        match flags & 6 {
            2 => Residual::Under(count),
            4 => Residual::Over(count),
            _ => Residual::None,
        }
    }
    fn emit(self) -> (u8, u32) {
        match self {
            Residual::None => (0, 0),
            Residual::Under(count) => (2, count),
            Residual::Over(count) => (4, count),
        }
    }
}

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer to a ping, or a ping.
    NopIn {
        /// The target's tag, if it wants an answer.
        transfer: u32,
    },
    /// A command has ended.
    Command {
        /// 0: it was completed; 1: the target failed.
        response: u8,
        /// SCSI's status.
        status: u8,
        /// What was not transferred.
        residual: Residual,
        /// How many PDUs of data or requests for data it had.
        data_expected: u32,
    },
    /// Tasks were managed.
    Manage {
        /// One of [`managed`](super::managed).
        response: u8,
    },
    /// A step of a login.
    Login {
        /// To the next stage.
        transit: bool,
        /// More text follows.
        continues: bool,
        /// The stage it is in.
        current: u8,
        /// The next one.
        next: u8,
        /// The highest version.
        version_max: u8,
        /// The version in use.
        version_active: u8,
        /// As in the request.
        isid: [u8; 6],
        /// The target's part of the session's identity.
        tsih: u16,
        /// One of [`status`](super::status).
        status: u16,
    },
    /// Negotiation.
    Text {
        /// It has nothing to add.
        last: bool,
        /// More text follows.
        continues: bool,
        /// The target's tag, if the initiator must continue.
        transfer: u32,
    },
    /// Data of a read.
    DataIn {
        /// The last of its sequence.
        last: bool,
        /// SCSI's status, if this ends the command.
        status: Option<u8>,
        /// What was not transferred.
        residual: Residual,
        /// Its number.
        number: u32,
        /// Where it belongs.
        offset: u32,
    },
    /// The answer to a logout.
    Logout {
        /// 0: done; 1: there is no such connection; 2: no recovery.
        response: u8,
    },
    /// Ready to transfer: send this part of a write's data.
    Ready {
        /// To be returned with the data.
        transfer: u32,
        /// Its number.
        number: u32,
        /// Where it begins.
        offset: u32,
        /// Bytes.
        length: u32,
    },
    /// An asynchronous event.
    Event {
        /// 1: log out, please; 2: this connection ends; 3: all connections end.
        event: u8,
        /// The shortest time before another login, in seconds.
        wait: u16,
    },
    /// A PDU was refused; its header is the data.
    Reject {
        /// One of [`reject`](super::reject).
        reason: u8,
    },
}

impl Response {
    /// # Errors
    /// If its opcode is not that of a response.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Response, Error> {
        let (flags, transfer) = (bytes[1], word(bytes, 20));
        let (last, continues) = (flags & FINAL != 0, flags & CONTINUES != 0);
        let residual = Residual::parse(flags, word(bytes, 44));
        let answer = match bytes[0] & 0x3f {
            0x20 => Answer::NopIn { transfer },
            0x21 => Answer::Command {
                response: bytes[2],
                status: bytes[3],
                residual,
                data_expected: word(bytes, 36),
            },
            0x22 => Answer::Manage { response: bytes[2] },
            0x23 => Answer::Login {
                transit: last,
                continues,
                current: flags >> 2 & 3,
                next: flags & 3,
                version_max: bytes[2],
                version_active: bytes[3],
                isid: std::array::from_fn(|at| bytes[8 + at]),
                tsih: half(bytes, 14),
                status: half(bytes, 36),
            },
            0x24 => Answer::Text { last, continues, transfer },
            0x25 => Answer::DataIn {
                last,
                status: (flags & STATUS != 0).then_some(bytes[3]),
                residual,
                number: word(bytes, 36),
                offset: word(bytes, 40),
            },
            0x26 => Answer::Logout { response: bytes[2] },
            0x31 => Answer::Ready {
                transfer,
                number: word(bytes, 36),
                offset: word(bytes, 40),
                length: word(bytes, 44),
            },
            0x32 => Answer::Event { event: bytes[36], wait: half(bytes, 40) },
            0x3f => Answer::Reject { reason: bytes[2] },
            other => return Err(Error::Invalid { what: "iSCSI opcode", found: other.into() }),
        };
        let has_lun = matches!(
            answer,
            Answer::NopIn { .. }
                | Answer::Text { .. }
                | Answer::DataIn { .. }
                | Answer::Ready { .. }
                | Answer::Event { .. }
        );
        let task = if answer.has_task() { word(bytes, 16) } else { NO_TAG };
        Ok(Response {
            lun: if has_lun { lun(bytes) } else { 0 },
            task,
            status_number: word(bytes, 24),
            command_expected: word(bytes, 28),
            command_max: word(bytes, 32),
            data_len: u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]),
            answer,
        })
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        put(&mut bytes, 4, self.data_len & super::DATA_MAX);
        put(&mut bytes, 8, (self.lun >> 32) as u32);
        put(&mut bytes, 12, self.lun as u32);
        put(&mut bytes, 16, if self.answer.has_task() { self.task } else { NO_TAG });
        put(&mut bytes, 24, self.status_number);
        put(&mut bytes, 28, self.command_expected);
        put(&mut bytes, 32, self.command_max);
        (bytes[0], bytes[1]) = self.answer.emit(&mut bytes);
        bytes
    }
}

impl Answer {
    fn has_task(&self) -> bool {
        !matches!(self, Answer::Event { .. } | Answer::Reject { .. })
    }
    /// Writes its fields; opcode and flags.
    fn emit(self, bytes: &mut [u8; HEADER_LEN]) -> (u8, u8) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let ends = |last, continues| flag(last, FINAL) | flag(continues, CONTINUES);
        match self {
            Answer::NopIn { transfer } => {
                put(bytes, 20, transfer);
                (0x20, FINAL)
            }
            Answer::Command { response, status, residual, data_expected } => {
                (bytes[2], bytes[3]) = (response, status);
                let (flags, count) = residual.emit();
                put(bytes, 36, data_expected);
                put(bytes, 44, count);
                (0x21, FINAL | flags)
            }
            Answer::Manage { response } => {
                bytes[2] = response;
                (0x22, FINAL)
            }
            Answer::Login {
                transit,
                continues,
                current,
                next,
                version_max,
                version_active,
                isid,
                tsih,
                status,
            } => {
                (bytes[2], bytes[3]) = (version_max, version_active);
                bytes[8..14].copy_from_slice(&isid);
                put_half(bytes, 14, tsih);
                put_half(bytes, 36, status);
                (0x23, ends(transit, continues) | (current & 3) << 2 | next & 3)
            }
            Answer::Text { last, continues, transfer } => {
                put(bytes, 20, transfer);
                (0x24, ends(last, continues))
            }
            Answer::DataIn { last, status, residual, number, offset } => {
                put(bytes, 20, NO_TAG);
                bytes[3] = status.unwrap_or(0);
                let (flags, count) = residual.emit();
                put(bytes, 36, number);
                put(bytes, 40, offset);
                put(bytes, 44, count);
                (0x25, ends(last, false) | flags | flag(status.is_some(), STATUS))
            }
            Answer::Logout { response } => {
                bytes[2] = response;
                (0x26, FINAL)
            }
            Answer::Ready { transfer, number, offset, length } => {
                put(bytes, 20, transfer);
                put(bytes, 36, number);
                put(bytes, 40, offset);
                put(bytes, 44, length);
                (0x31, FINAL)
            }
            Answer::Event { event, wait } => {
                bytes[36] = event;
                put_half(bytes, 40, wait);
                (0x32, FINAL)
            }
            Answer::Reject { reason } => {
                bytes[2] = reason;
                (0x3f, FINAL)
            }
        }
    }
}
