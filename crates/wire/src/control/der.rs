//! Control of a dynamically extensible router: messages in AAL5 between its processors, and single cells to its
//! hardware.
//!
//! ```text
//! message  type 2 | operation 2 | port 1 | zero 1 | sequence 4 | length 2 | body
//! cell     operation 2 | sequence 2 | port 1 | length 1 | zero 2 | body 40
//! ```
//!
//! Source: WUCS description of the router, §3.1 to §3.3, which gives the circuits and the messages on them; layout
//! and numbers are our choice.
//!
//! ```
//! use lastmeter_wire::control::der::{self, Message, Operation, Type};
//! let (message_type, operation) = (Type::Request, Operation::Discover);
//! let message = Message { message_type, operation, port: 3, sequence: 9, body: b"" };
//! assert_eq!(Message::parse(&message.emit()?)?, message);
//! assert_eq!(der::vci_ip_to(3)?, 43);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::atm::PAYLOAD_LEN;
use crate::error::{Error, fit, split};

/// Ports of the switch.
pub const PORTS: u8 = 8;
/// IP from input i to output j is sent on this plus j, and arrives on this plus i.
pub const VCI_IP: u16 = 40;
/// The control processor sends to port j's processor on this plus j.
pub const VCI_CONTROL: u16 = 84;
/// A port's processor receives on this.
pub const VCI_LISTEN: u16 = 62;
/// Bytes before a message's body.
pub const MESSAGE_HEADER_LEN: usize = 12;
/// The longest body of a message, limited by the longest AAL5 payload.
pub const BODY_LEN_MAX: usize = 65_535 - MESSAGE_HEADER_LEN;
/// The longest body of a cell.
pub const CELL_BODY_LEN: usize = 40;

/// The channel on which an input sends IP to output `port`.
///
/// # Errors
/// If there is no such port.
pub fn vci_ip_to(port: u8) -> Result<u16, Error> {
    Ok(VCI_IP + fit::<u16>(port.into(), u64::from(PORTS) - 1, "router port")?)
}
/// The channel on which the control processor sends to the processor of `port`.
///
/// # Errors
/// If there is no such port.
pub fn vci_control_to(port: u8) -> Result<u16, Error> {
    Ok(VCI_CONTROL + fit::<u16>(port.into(), u64::from(PORTS) - 1, "router port")?)
}

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A request.
    Request,
    /// A response: success.
    Reply,
    /// A response: failure.
    Refusal,
    /// An unsolicited report.
    Notice,
}

const TYPES: [Type; 4] = [Type::Request, Type::Reply, Type::Refusal, Type::Notice];

/// The operation. The number on the wire is its position, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Discover the type of the line card and the rate of its link.
    Discover,
    /// Tell a processor its port.
    SetIdentity,
    /// Update words of the forwarding table.
    ForwardingUpdate,
    /// Add a filter.
    FilterAdd,
    /// Remove a filter.
    FilterRemove,
    /// Set the parameters of a queue.
    QueueConfigure,
    /// Load the code of a plugin.
    PluginLoad,
    /// Create an instance of a plugin.
    PluginCreate,
    /// Bind an instance to a filter.
    PluginBind,
    /// Send a message to an instance.
    PluginMessage,
    /// Remove an instance.
    PluginFree,
    /// Turn distributed queueing on or off.
    DistributedQueueing,
    /// Read counters.
    Statistics,
    /// Turn debug messages on or off.
    Debug,
}

const OPERATIONS: [Operation; 14] = [
    Operation::Discover,
    Operation::SetIdentity,
    Operation::ForwardingUpdate,
    Operation::FilterAdd,
    Operation::FilterRemove,
    Operation::QueueConfigure,
    Operation::PluginLoad,
    Operation::PluginCreate,
    Operation::PluginBind,
    Operation::PluginMessage,
    Operation::PluginFree,
    Operation::DistributedQueueing,
    Operation::Statistics,
    Operation::Debug,
];

/// The item at position `number`, from 1.
fn named<T: Copy>(items: &[T], number: u16, what: &'static str) -> Result<T, Error> {
    let item = usize::from(number).checked_sub(1).and_then(|at| items.get(at));
    item.copied().ok_or(Error::Invalid { what, found: number.into() })
}

/// A message in AAL5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message<'a> {
    /// The type.
    pub message_type: Type,
    /// The operation.
    pub operation: Operation,
    /// The port.
    pub port: u8,
    /// Matches responses to requests.
    pub sequence: u32,
    /// Arguments of the operation.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// # Errors
    /// If the bytes end early or are too many, or a number is unknown.
    pub fn parse(payload: &'a [u8]) -> Result<Message<'a>, Error> {
        let (&[t0, t1, o0, o1, port, zero, s0, s1, s2, s3, l0, l1], body) =
            split::<MESSAGE_HEADER_LEN>(payload, "router message")?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        if body.len() < len {
            return Err(Error::Truncated {
                what: "router message's body",
                need: len,
                have: body.len(),
            });
        }
        if body.len() > len || zero != 0 {
            let found = body.len() as u64;
            return Err(Error::Invalid { what: "router message's length", found });
        }
        let number = u16::from_be_bytes([o0, o1]);
        Ok(Message {
            message_type: named(&TYPES, u16::from_be_bytes([t0, t1]), "router message's type")?,
            operation: named(&OPERATIONS, number, "router message's operation")?,
            port,
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            body,
        })
    }

    /// # Errors
    /// If the body is too long for AAL5.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        let len: u16 = fit(self.body.len(), BODY_LEN_MAX as u64, "router message's body")?;
        let message_type = self.message_type as u16 + 1;
        let operation = self.operation as u16 + 1;
        let mut bytes = Vec::with_capacity(MESSAGE_HEADER_LEN + self.body.len());
        bytes.extend(message_type.to_be_bytes());
        bytes.extend(operation.to_be_bytes());
        bytes.extend([self.port, 0]);
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend(self.body);
        Ok(bytes)
    }
}

/// A single cell to hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControlCell {
    /// The operation: the hardware's own numbers.
    pub operation: u16,
    /// Matches responses to requests.
    pub sequence: u16,
    /// The port.
    pub port: u8,
    /// How many bytes of the body are used.
    pub len: u8,
    /// Arguments of the operation.
    pub body: [u8; CELL_BODY_LEN],
}

impl ControlCell {
    /// # Errors
    /// If the length is beyond the body or reserved bytes are not zero.
    pub fn parse(payload: &[u8; PAYLOAD_LEN]) -> Result<ControlCell, Error> {
        let [o0, o1, s0, s1, port, len, z0, z1, body @ ..] = payload;
        let len = fit((*len).into(), CELL_BODY_LEN as u64, "router control cell's length")?;
        if (*z0, *z1) != (0, 0) {
            let found = u16::from_be_bytes([*z0, *z1]).into();
            return Err(Error::Invalid { what: "router control cell's reserved bytes", found });
        }
        let (operation, sequence) =
            (u16::from_be_bytes([*o0, *o1]), u16::from_be_bytes([*s0, *s1]));
        Ok(ControlCell { operation, sequence, port: *port, len, body: *body })
    }
    /// The cell's payload.
    pub fn emit(&self) -> [u8; PAYLOAD_LEN] {
        let mut payload = [0; PAYLOAD_LEN];
        payload[..2].copy_from_slice(&self.operation.to_be_bytes());
        payload[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        (payload[4], payload[5]) = (self.port, self.len);
        payload[PAYLOAD_LEN - CELL_BODY_LEN..].copy_from_slice(&self.body);
        payload
    }
}
