//! What hosts send each other: a packet of a stream, or a message between managers.
//!
//! ```text
//!  0  "lmrt" 4 | version 1 | kind 1 | zero 2
//!  8  from 4 | to 4                      neighbours
//! 16  source 4 | number 8                the channel; for best effort its sender, and zero
//! 28  packet: node 4 | queue 4 | message 8 | index 4 | count 4 | logical 8 | due 8 | content
//!     control: what 1 | its fields
//!  -  tag 32                             with a key: BLAKE3 of all before it
//! ```
//!
//! | kind | is a | what | fields |
//! |---|---|---|---|
//! | 0 | packet of a channel | 0 | request: message 4, interval 8, burst 4, packet 4, deadline 8, |
//! |   |                     |   | left 8, horizon 8, at 1, nodes 1, a node 4 each |
//! | 1 | packet of best effort | 1 | accept: slack 8 |
//! | 2 | control | 2 to 6 | reject, release, released, refresh, refreshed: none |
//!
//! Numbers are big-endian; times are in picoseconds, instants since the epoch of the network. Everything else is
//! refused: datagrams that are too short or too long, times beyond [`INSTANT_MAX`] or a day, a part beyond its message,
//! a route with more nodes than a route may have.

use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_transport::channel::contract::{Contract, TIME_MAX};
use lastmeter_transport::channel::message::{ChannelId, Envelope, Message, Node, ROUTE_MAX};
use lastmeter_transport::channel::node::{Address, Frame, Stream};
use lastmeter_transport::channel::reassembly::Part;

/// The longest datagram: well below what UDP allows.
pub const DATAGRAM_LEN_MAX: usize = 60_000;
/// Bytes before the content of a packet.
pub const HEADER_LEN: usize = 68;
/// Bytes of the tag.
pub const TAG_LEN: usize = blake3::OUT_LEN;
/// The longest content of a packet.
pub const CONTENT_LEN_MAX: usize = DATAGRAM_LEN_MAX - HEADER_LEN - TAG_LEN;
/// The longest message.
pub const MESSAGE_LEN_MAX: u64 = 16 << 20;
/// The latest instant: some 100 days after the epoch.
pub const INSTANT_MAX: Time = Time::from_ps(1 << 63);

const MAGIC: &[u8; 4] = b"lmrt";
const VERSION: u8 = 1;

/// What authenticates datagrams among the hosts that have it.
pub type Key = [u8; blake3::KEY_LEN];

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datagram {
    /// A packet.
    Packet {
        /// The last node.
        from: Node,
        /// The next node.
        to: Node,
        /// The packet, with its logical arrival at the next node.
        frame: Frame<Vec<u8>>,
    },
    /// A message between managers.
    Control(Envelope),
}

/// Why a datagram is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// It ends before its fields do, or goes on after them.
    Length,
    /// It is not one of ours, or of another version.
    Foreign,
    /// Its tag is wrong or missing.
    Tag,
    /// A field has a value that it cannot have.
    Value,
}

impl Refused {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Refused::Length => "length",
            Refused::Foreign => "foreign",
            Refused::Tag => "tag",
            Refused::Value => "value",
        }
    }
}

impl Datagram {
    /// Its bytes.
    pub fn emit(&self, key: Option<&Key>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + TAG_LEN + self.content_len());
        bytes.extend(MAGIC);
        let (kind, from, to, id) = match self {
            Datagram::Packet { from, to, frame } => match frame.stream {
                Stream::Channel(id) => (0, *from, *to, id),
                Stream::Data(source) => (1, *from, *to, ChannelId { source, local: 0 }),
            },
            Datagram::Control(Envelope { from, to, id, .. }) => (2, *from, *to, *id),
        };
        bytes.extend([VERSION, kind, 0, 0]);
        for node in [from, to, id.source] {
            bytes.extend(node.to_be_bytes());
        }
        bytes.extend(id.local.to_be_bytes());
        match self {
            Datagram::Packet { frame, .. } => emit_packet(frame, &mut bytes),
            Datagram::Control(envelope) => emit_control(&envelope.message, &mut bytes),
        }
        if let Some(key) = key {
            let tag = blake3::keyed_hash(key, &bytes);
            bytes.extend(tag.as_bytes());
        }
        bytes
    }

    fn content_len(&self) -> usize {
        match self {
            Datagram::Packet { frame, .. } => frame.content.len(),
            Datagram::Control(_) => 0,
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn parse(bytes: &[u8], key: Option<&Key>) -> Result<Datagram, Refused> {
        if bytes.len() > DATAGRAM_LEN_MAX {
            return Err(Refused::Length);
        }
        let bytes = match key {
            None => bytes,
            Some(key) => {
                let (bytes, tag) = bytes.split_last_chunk::<TAG_LEN>().ok_or(Refused::Length)?;
                // Compared in constant time.
                match blake3::keyed_hash(key, bytes) == *tag {
                    true => bytes,
                    false => return Err(Refused::Tag),
                }
            }
        };
        let mut reader = Reader(bytes);
        if reader.array()? != *MAGIC || reader.u8()? != VERSION {
            return Err(Refused::Foreign);
        }
        let kind = reader.u8()?;
        if reader.array()? != [0, 0] {
            return Err(Refused::Value);
        }
        let (from, to) = (reader.u32()?, reader.u32()?);
        let id = ChannelId { source: reader.u32()?, local: reader.u64()? };
        match (kind, id.local) {
            (0, _) => parse_packet(reader, Stream::Channel(id)),
            (1, 0) => parse_packet(reader, Stream::Data(id.source)),
            (2, _) => {
                let message = parse_control(&mut reader)?;
                let envelope = Envelope { from, to, id, message };
                return match reader.0 {
                    [] => Ok(Datagram::Control(envelope)),
                    _ => Err(Refused::Length),
                };
            }
            _ => Err(Refused::Value),
        }
        .map(|frame| Datagram::Packet { from, to, frame })
    }
}

fn emit_packet(frame: &Frame<Vec<u8>>, bytes: &mut Vec<u8>) {
    let Frame { stream, to, part, logical, due, content, .. } = frame;
    bytes.extend(to.node.to_be_bytes());
    bytes.extend(to.queue.to_be_bytes());
    bytes.extend(part.message.to_be_bytes());
    bytes.extend(part.index.to_be_bytes());
    bytes.extend(part.count.to_be_bytes());
    bytes.extend(logical.as_ps().to_be_bytes());
    let due = if let Stream::Data(_) = stream { 0 } else { due.as_ps() };
    bytes.extend(due.to_be_bytes());
    bytes.extend(content);
}

fn parse_packet(mut reader: Reader<'_>, stream: Stream) -> Result<Frame<Vec<u8>>, Refused> {
    let to = Address { node: reader.u32()?, queue: reader.u32()? };
    let part = Part { message: reader.u64()?, index: reader.u32()?, count: reader.u32()? };
    let (logical, due) = (reader.u64()?, reader.u64()?);
    let (logical, due) = match stream {
        Stream::Channel(_) => (instant(logical)?, instant(due)?),
        Stream::Data(_) if due == 0 => (instant(logical)?, Time::MAX),
        Stream::Data(_) => return Err(Refused::Value),
    };
    let len = Bytes(reader.0.len() as u64);
    if part.index >= part.count || len.0 == 0 {
        return Err(Refused::Value);
    }
    Ok(Frame { stream, to, part, len, logical, due, content: reader.0.to_vec() })
}

fn emit_control(message: &Message, bytes: &mut Vec<u8>) {
    match message {
        Message::Request { contract, route, at, left, horizon } => {
            bytes.push(0);
            // What does not fit is more than any node admits.
            let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
            bytes.extend(short(contract.message_max.0));
            bytes.extend(contract.interval_min.as_ps().to_be_bytes());
            bytes.extend(short(contract.burst_max));
            bytes.extend(short(contract.packet_max.0));
            for time in [contract.deadline, *left, *horizon] {
                bytes.extend(time.as_ps().to_be_bytes());
            }
            bytes.extend([*at as u8, route.len() as u8]);
            route.iter().for_each(|node| bytes.extend(node.to_be_bytes()));
        }
        Message::Accept { slack } => {
            bytes.push(1);
            bytes.extend(slack.as_ps().to_be_bytes());
        }
        Message::Reject => bytes.push(2),
        Message::Release => bytes.push(3),
        Message::Released => bytes.push(4),
        Message::Refresh => bytes.push(5),
        Message::Refreshed => bytes.push(6),
    }
}

fn parse_control(reader: &mut Reader<'_>) -> Result<Message, Refused> {
    Ok(match reader.u8()? {
        0 => {
            let message_max = Bytes(reader.u32()?.into());
            let interval_min = span(reader.u64()?)?;
            let burst_max = reader.u32()?.into();
            let packet_max = Bytes(reader.u32()?.into());
            let deadline = span(reader.u64()?)?;
            let (left, horizon) = (span(reader.u64()?)?, span(reader.u64()?)?);
            let contract = Contract { message_max, interval_min, burst_max, packet_max, deadline };
            let (at, nodes) = (usize::from(reader.u8()?), usize::from(reader.u8()?));
            if message_max.0 > MESSAGE_LEN_MAX || nodes > ROUTE_MAX || at >= nodes {
                return Err(Refused::Value);
            }
            let route = (0..nodes).map(|_| reader.u32()).collect::<Result<Vec<_>, _>>()?;
            Message::Request { contract, route, at, left, horizon }
        }
        1 => Message::Accept { slack: span(reader.u64()?)? },
        2 => Message::Reject,
        3 => Message::Release,
        4 => Message::Released,
        5 => Message::Refresh,
        6 => Message::Refreshed,
        _ => return Err(Refused::Value),
    })
}

fn instant(ps: u64) -> Result<Time, Refused> {
    let at = Time::from_ps(ps);
    if at <= INSTANT_MAX { Ok(at) } else { Err(Refused::Value) }
}

fn span(ps: u64) -> Result<Duration, Refused> {
    let span = Duration::from_ps(ps);
    if span <= TIME_MAX { Ok(span) } else { Err(Refused::Value) }
}

/// Has the middle one of three hosts in a line hear a datagram from the first: for fuzzing.
pub(crate) fn hear(datagram: Datagram) {
    use crate::plan::{Line, Plan};
    let line = |ends| Line {
        ends,
        rate: 1_000_000,
        per_packet: 0,
        packet_max: 2000,
        delay: 0,
        horizon: 0,
        outstanding: 2,
        exact: false,
    };
    let (nodes, links) = (vec![String::new(); 3], vec![line([0, 1]), line([1, 2])]);
    let plan = Plan { nodes, links, flows: Vec::new(), room: 9, seed: 1, length: 0 };
    let now = Time::START + Duration::from_secs(1);
    let mut station = crate::simulation::station::<Vec<u8>>(&plan, 1);
    station.node.init(2);
    for _ in 0..3 {
        match datagram.clone() {
            Datagram::Control(envelope) => station.node.control(now, envelope),
            Datagram::Packet { from, frame, .. } => station.node.arrive_from(now, from, frame),
        }
        station.advance(now);
    }
    assert!(station.node.messages().len() <= 6 && station.node.notices().len() <= 3);
    station.advance(now + TIME_MAX);
}

/// The rest of a datagram.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Refused::Length)?;
        self.0 = rest;
        Ok(*first)
    }
    fn u8(&mut self) -> Result<u8, Refused> {
        self.array().map(u8::from_be_bytes)
    }
    fn u32(&mut self) -> Result<u32, Refused> {
        self.array().map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> Result<u64, Refused> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packets() -> impl Strategy<Value = Datagram> {
        let numbers = (any::<[u32; 5]>(), any::<[u64; 2]>(), 1u32..70_000, any::<bool>());
        let times = (0..=INSTANT_MAX.as_ps(), 0..=INSTANT_MAX.as_ps());
        let content = prop::collection::vec(any::<u8>(), 1..3000);
        (numbers, times, content).prop_map(|(numbers, (logical, due), content)| {
            let ([from, to, source, node, queue], [local, message], count, real_time) = numbers;
            let (stream, due) = match real_time {
                true => (Stream::Channel(ChannelId { source, local }), Time::from_ps(due)),
                false => (Stream::Data(source), Time::MAX),
            };
            let part = Part { message, index: queue % count, count };
            let (to_queue, len) = (Address { node, queue }, Bytes(content.len() as u64));
            let logical = Time::from_ps(logical);
            let frame = Frame { stream, to: to_queue, part, len, logical, due, content };
            Datagram::Packet { from, to, frame }
        })
    }

    fn controls() -> impl Strategy<Value = Datagram> {
        let day = 0..=TIME_MAX.as_ps();
        let times = (day.clone(), day.clone(), day.clone(), day);
        let sizes = (0..=MESSAGE_LEN_MAX, any::<[u32; 2]>(), any::<[u32; 3]>(), any::<u64>());
        let route = prop::collection::vec(any::<u32>(), 1..=ROUTE_MAX);
        (0u8..7, sizes, times, route).prop_map(|(what, sizes, times, route)| {
            let (message, [burst, packet], [from, to, source], local) = sizes;
            let span = Duration::from_ps;
            let contract = Contract {
                message_max: Bytes(message),
                interval_min: span(times.0),
                burst_max: burst.into(),
                packet_max: Bytes(packet.into()),
                deadline: span(times.1),
            };
            let at = burst as usize % route.len();
            let message = match what {
                0 => {
                    let (left, horizon) = (span(times.2), span(times.3));
                    Message::Request { contract, route, at, left, horizon }
                }
                1 => Message::Accept { slack: span(times.0) },
                2 => Message::Reject,
                3 => Message::Release,
                4 => Message::Released,
                5 => Message::Refresh,
                _ => Message::Refreshed,
            };
            let id = ChannelId { source, local };
            Datagram::Control(Envelope { from, to, id, message })
        })
    }

    proptest! {
        #[test]
        fn e_15_datagrams_are_read_as_they_were_written(
            datagram in prop_oneof![packets(), controls()], with_key in any::<bool>(),
        ) {
            let key = with_key.then_some([7; 32]);
            let bytes = datagram.emit(key.as_ref());
            prop_assert_eq!(Datagram::parse(&bytes, key.as_ref()), Ok(datagram));
        }

        /// Any change, cut or addition is noticed by a host that has a key.
        #[test]
        fn what_was_changed_on_its_way_is_refused(
            datagram in prop_oneof![packets(), controls()], at in any::<usize>(), by in 1u8..,
        ) {
            let mut bytes = datagram.emit(Some(&[7; 32]));
            prop_assert_eq!(Datagram::parse(&bytes, Some(&[8; 32])), Err(Refused::Tag));
            let at = at % bytes.len();
            prop_assert!(Datagram::parse(&bytes[..at], Some(&[7; 32])).is_err());
            bytes[at] ^= by;
            prop_assert_eq!(Datagram::parse(&bytes, Some(&[7; 32])), Err(Refused::Tag));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzz::fuzz_rtc_datagram(&bytes);
        }
    }

    #[test]
    fn impossible_values_are_refused() {
        let contract = Contract {
            message_max: Bytes(MESSAGE_LEN_MAX + 1),
            interval_min: Duration::from_ms(1),
            burst_max: 1,
            packet_max: Bytes(1000),
            deadline: Duration::from_ms(1),
        };
        let (left, horizon) = (Duration::ZERO, Duration::ZERO);
        let message = Message::Request { contract, route: vec![1, 2], at: 1, left, horizon };
        let id = ChannelId { source: 1, local: 5 };
        let long = Datagram::Control(Envelope { from: 1, to: 2, id, message }).emit(None);
        assert_eq!(Datagram::parse(&long, None), Err(Refused::Value));
        let mut foreign = long.clone();
        foreign[4] = 2;
        assert_eq!(Datagram::parse(&foreign, None), Err(Refused::Foreign));
        assert_eq!(Datagram::parse(&[0; DATAGRAM_LEN_MAX + 1], None), Err(Refused::Length));
    }
}
