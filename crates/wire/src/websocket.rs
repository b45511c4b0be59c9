//! Frames of WebSocket (RFC 6455), as a server receives and sends them: binary messages, in pieces or whole.
//!
//! ```text
//! final 1 bit | reserved 3 | opcode 4 | masked 1 bit | length 7, 7+16 or 7+64 | mask 4, from a client | data
//! ```
//!
//! ```
//! use lastmeter_wire::websocket::{Head, Incoming, opcode};
//! let head = Head { last: true, opcode: opcode::BINARY, mask: Some([1, 2, 3, 4]), len: 2 };
//! let frame = [head.emit(), vec![b'h' ^ 1, b'i' ^ 2]].concat();
//! let (mut incoming, mut data) = (Incoming::default(), Vec::new());
//! // However the bytes of a frame arrive.
//! for byte in frame {
//!     assert_eq!(incoming.take(&[byte], &mut data)?, None);
//! }
//! assert_eq!(data, b"hi");
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::Error;

/// The most bytes of a frame's head.
pub const HEAD_MAX: usize = 14;
/// The most data of a control frame.
pub const CONTROL_MAX: usize = 125;

/// What a frame is.
pub mod opcode {
    /// A continuation of the previous message.
    pub const CONTINUATION: u8 = 0;
    /// A message of bytes.
    pub const BINARY: u8 = 2;
    /// Closes the connection.
    pub const CLOSE: u8 = 8;
    /// A ping, to be answered.
    pub const PING: u8 = 9;
    /// The answer to a ping.
    pub const PONG: u8 = 10;
}

/// A frame without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whether the message ends with it.
    pub last: bool,
    /// One of [`opcode`].
    pub opcode: u8,
    /// The mask that a client has applied to its data.
    pub mask: Option<[u8; 4]>,
    /// Bytes of data.
    pub len: u64,
}

impl Head {
    /// The head at the beginning of `bytes` and its own length; nothing if more bytes are needed.
    ///
    /// # Errors
    /// If it is neither binary nor a control frame, or its form is not allowed.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Error> {
        let &[first, second, ref rest @ ..] = bytes else { return Ok(None) };
        let invalid = |what, found: u64| Err(Error::Invalid { what, found });
        if first & 0x70 != 0 {
            return invalid("WebSocket reserved bits", (first >> 4 & 7).into());
        }
        let (last, kind) = (first & 0x80 != 0, first & 15);
        let controls = matches!(kind, opcode::CLOSE | opcode::PING | opcode::PONG);
        if !controls && !matches!(kind, opcode::CONTINUATION | opcode::BINARY) {
            return invalid("WebSocket opcode", kind.into());
        }
        let short = second & 0x7f;
        if controls && (!last || usize::from(short) > CONTROL_MAX) {
            return invalid("WebSocket control frame, its length", short.into());
        }
        let (len, used) = match short {
            126 => match rest.first_chunk::<2>() {
                Some(len) => (u64::from(u16::from_be_bytes(*len)), 2),
                None => return Ok(None),
            },
            127 => match rest.first_chunk::<8>() {
                Some(len) => (u64::from_be_bytes(*len), 8),
                None => return Ok(None),
            },
            short => (short.into(), 0),
        };
        if len >> 63 != 0 {
            return invalid("WebSocket length", len);
        }
        let rest = &rest[used..];
        let mask = match (second & 0x80 != 0, rest.first_chunk::<4>()) {
            (false, _) => None,
            (true, None) => return Ok(None),
            (true, mask) => mask.copied(),
        };
        let own = 2 + used + if mask.is_some() { 4 } else { 0 };
        Ok(Some((Head { last, opcode: kind, mask, len }, own)))
    }
    /// Its bytes.
    pub fn emit(&self) -> Vec<u8> {
        let masked = if self.mask.is_some() { 0x80 } else { 0 };
        let mut bytes = vec![u8::from(self.last) << 7 | self.opcode & 15];
        match (u8::try_from(self.len), u16::try_from(self.len)) {
            (Ok(len @ 0..=125), _) => bytes.push(masked | len),
            (_, Ok(len)) => {
                bytes.push(masked | 126);
                bytes.extend(len.to_be_bytes());
            }
            _ => {
                bytes.push(masked | 127);
                bytes.extend(self.len.to_be_bytes());
            }
        }
        bytes.extend(self.mask.into_iter().flatten());
        bytes
    }
}

/// What a client sends besides its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is to be answered with the same bytes.
    Ping(Vec<u8>),
    /// It closes the connection.
    Close,
}

/// What a client sends, frame by frame. Nothing is kept of a frame's data, except a ping's.
#[derive(Debug, Default)]
pub struct Incoming {
    head: Vec<u8>,
    /// The frame that has begun, and how much of it is left.
    frame: Option<(Head, u64)>,
    control: Vec<u8>,
}

impl Incoming {
    /// Takes bytes as they come, and appends the data in them, up to the first [`Said`]; call it again with nothing
    /// until it returns `None`.
    ///
    /// # Errors
    /// If a frame is not allowed, or not masked as those of a client must be.
    pub fn take(&mut self, bytes: &[u8], data: &mut Vec<u8>) -> Result<Option<Said>, Error> {
        self.head.extend_from_slice(bytes);
        let waiting = std::mem::take(&mut self.head);
        let mut rest = waiting.as_slice();
        loop {
            let (frame, left) = match self.frame {
                Some(begun) => begun,
                None => {
                    let Some((frame, used)) = Head::parse(rest)? else { break };
                    if frame.mask.is_none() {
                        let found = frame.opcode.into();
                        return Err(Error::Invalid { what: "WebSocket frame without mask", found });
                    }
                    rest = &rest[used..];
                    (frame, frame.len)
                }
            };
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            let (part, more) = rest.split_at(now);
            rest = more;
            let done = (frame.len - left) as usize;
            let mask = frame.mask.unwrap_or_default();
            let plain = part.iter().zip(done..).map(|(byte, at)| byte ^ mask[at % 4]);
            if frame.opcode < opcode::CLOSE { &mut *data } else { &mut self.control }.extend(plain);
            let left = left - now as u64;
            if left > 0 {
                self.frame = Some((frame, left));
                break;
            }
            self.frame = None;
            let control = std::mem::take(&mut self.control);
            let said = match frame.opcode {
                opcode::PING => Some(Said::Ping(control)),
                opcode::CLOSE => Some(Said::Close),
                _ => None,
            };
            if said.is_some() {
                self.head = rest.to_vec();
                return Ok(said);
            }
        }
        self.head = rest.to_vec();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(last: bool, opcode: u8, mask: [u8; 4], data: &[u8]) -> Vec<u8> {
        let head = Head { last, opcode, mask: Some(mask), len: data.len() as u64 };
        let mixed = data.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]);
        head.emit().into_iter().chain(mixed).collect()
    }

    proptest! {
        #[test]
        fn heads_are_parsed_as_emitted(last: bool, masked: Option<[u8; 4]>, len in 0..1u64 << 63, at in 0usize..5) {
            let kinds = [opcode::CONTINUATION, opcode::BINARY, opcode::CLOSE, opcode::PING, opcode::PONG];
            let controls = at > 1;
            let len = if controls { len % 126 } else { len >> (len % 60) };
            let head = Head { last: last || controls, opcode: kinds[at], mask: masked, len };
            let bytes = head.emit();
            prop_assert!(bytes.len() <= HEAD_MAX);
            for short in 0..bytes.len() {
                prop_assert_eq!(Head::parse(&bytes[..short]), Ok(None));
            }
            prop_assert_eq!(Head::parse(&bytes), Ok(Some((head, bytes.len()))));
        }
        /// However the bytes are cut, they give the same data and the same pings.
        #[test]
        fn frames_are_taken_in_any_pieces(
            messages in proptest::collection::vec((any::<[u8; 4]>(), proptest::collection::vec(any::<u8>(), 0..300), any::<bool>()), 1..8),
            piece in 1usize..50,
        ) {
            let (mut bytes, mut expected, mut pings) = (Vec::new(), Vec::new(), Vec::new());
            for (mask, data, ping) in &messages {
                let data = &data[..if *ping { data.len().min(CONTROL_MAX) } else { data.len() }];
                bytes.extend(frame(true, if *ping { opcode::PING } else { opcode::BINARY }, *mask, data));
                if *ping { pings.push(data.to_vec()) } else { expected.extend_from_slice(data) }
            }
            let (mut incoming, mut data, mut heard) = (Incoming::default(), Vec::new(), Vec::new());
            for part in bytes.chunks(piece) {
                let mut part = part;
                while let Some(Said::Ping(said)) = incoming.take(part, &mut data).expect("sound") {
                    heard.push(said);
                    part = &[];
                }
            }
            prop_assert_eq!(data, expected);
            prop_assert_eq!(heard, pings);
        }
        #[test]
        fn any_bytes_are_taken_or_refused(bytes: Vec<u8>) {
            let (mut incoming, mut data) = (Incoming::default(), Vec::new());
            let _ = incoming.take(&bytes, &mut data);
            prop_assert!(data.len() <= bytes.len());
        }
    }

    #[test]
    fn what_a_client_may_not_send_is_refused() {
        let refused = |bytes: &[u8]| Incoming::default().take(bytes, &mut Vec::new()).is_err();
        assert!(refused(&[0x82, 1, 0]), "without a mask");
        assert!(refused(&[0x81, 0x80]), "text");
        assert!(refused(&[0x09, 0x80]), "a ping in pieces");
        assert!(refused(&[0xc2, 0x80]), "a reserved bit");
        assert!(refused(&[0x89, 0xfe, 0, 200]), "a long ping");
        let mut incoming = Incoming::default();
        let close = frame(true, opcode::CLOSE, [0; 4], &[3, 232]);
        assert_eq!(incoming.take(&close, &mut Vec::new()), Ok(Some(Said::Close)));
    }
}
