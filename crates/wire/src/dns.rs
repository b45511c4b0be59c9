//! DNS messages, as far as needed to find services by multicast (RFC 1035, RFC 6762, RFC 6763).
//!
//! ```text
//! id 2 | flags 2 | questions 2 | answers 2 | authorities 2 | additional 2 |
//! question: name | type 2 | class 2        record: name | type 2 | class 2 | seconds 4 | length 2 | data
//! ```
//!
//! Names are written without compression, and read with it. Types other than those of services are skipped.
//!
//! ```
//! use lastmeter_wire::dns::{Message, Name, POINTER, Question};
//! let name = Name::of("_rtsp._tcp.local")?;
//! let asked = Message { questions: vec![Question { name, kind: POINTER }], ..Message::default() };
//! assert_eq!(Message::parse(&asked.emit()?)?, asked);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, fit, split};
use std::fmt;
use std::net::Ipv4Addr;

/// The longest name, as encoded.
pub const NAME_MAX: usize = 255;
/// The longest label.
pub const LABEL_MAX: usize = 63;
/// The most questions, and the most records, of a message.
pub const ITEMS_MAX: usize = 64;
/// Types: an address.
pub const ADDRESS: u16 = 1;
/// A name to which another name points (PTR).
pub const POINTER: u16 = 12;
/// Text (TXT).
pub const TEXT: u16 = 16;
/// Host and port of a service (SRV).
pub const SERVICE: u16 = 33;
/// All records of a name.
pub const ANY: u16 = 255;
/// The Internet class; the first bit has other meanings.
const INTERNET: u16 = 1;
const FIRST_BIT: u16 = 0x8000;
/// An authoritative response.
const RESPONSE: u16 = 0x8400;

/// A name of labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name(Vec<Vec<u8>>);

impl Name {
    /// From labels between dots.
    ///
    /// # Errors
    /// If a label is empty or too long, or the name is.
    pub fn of(text: &str) -> Result<Name, Error> {
        Name::default().under(text)
    }
    /// This name below a label of any bytes: an instance of a service may have dots in it.
    ///
    /// # Errors
    /// If the label is empty or too long, or the name is.
    pub fn below(&self, label: &str) -> Result<Name, Error> {
        let labels = std::iter::once(label.as_bytes().to_vec()).chain(self.0.iter().cloned());
        Name(labels.collect()).checked()
    }
    fn under(mut self, text: &str) -> Result<Name, Error> {
        self.0.extend(text.split('.').map(|label| label.as_bytes().to_vec()));
        self.checked()
    }
    fn checked(self) -> Result<Name, Error> {
        let wrong = |found: usize| Error::Invalid { what: "DNS name", found: found as u64 };
        if let Some(label) = self.0.iter().find(|it| it.is_empty() || it.len() > LABEL_MAX) {
            return Err(wrong(label.len()));
        }
        let len = self.0.iter().map(|label| label.len() + 1).sum::<usize>() + 1;
        if len > NAME_MAX { Err(wrong(len)) } else { Ok(self) }
    }
    /// Its first label, as text.
    pub fn first(&self) -> String {
        String::from_utf8_lossy(self.0.first().map_or(&[][..], Vec::as_slice)).into_owned()
    }
    /// Whether it is the same, ignoring case.
    pub fn is(&self, other: &Name) -> bool {
        let same = |(one, two): (&Vec<u8>, &Vec<u8>)| one.eq_ignore_ascii_case(two);
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
    fn emit(&self, bytes: &mut Vec<u8>) {
        for label in &self.0 {
            bytes.push(label.len() as u8);
            bytes.extend(label);
        }
        bytes.push(0);
    }
    /// The name at an offset in a message, and the offset after it.
    fn parse(message: &[u8], mut at: usize) -> Result<(Name, usize), Error> {
        let short = |need| Error::Truncated { what: "DNS name", need, have: message.len() };
        let (mut name, mut end, mut limit) = (Name::default(), None, message.len());
        loop {
            let len = usize::from(*message.get(at).ok_or(short(at + 1))?);
            match len {
                0 => return Ok((name.checked()?, end.unwrap_or(at + 1))),
                1..=LABEL_MAX => {
                    let label = message.get(at + 1..at + 1 + len).ok_or(short(at + 1 + len))?;
                    name.0.push(label.to_vec());
                    if name.0.len() > NAME_MAX / 2 {
                        let found = name.0.len() as u64;
                        return Err(Error::Invalid { what: "DNS name's labels", found });
                    }
                    at += 1 + len;
                }
                0xc0.. => {
                    let low = usize::from(*message.get(at + 1).ok_or(short(at + 2))?);
                    end.get_or_insert(at + 2);
                    let to = (len & 0x3f) << 8 | low;
                    // Only backwards, so that it terminates.
                    if to >= limit.min(at) {
                        return Err(Error::Invalid {
                            what: "DNS name's pointer",
                            found: to as u64,
                        });
                    }
                    (at, limit) = (to, to);
                }
                _ => return Err(Error::Invalid { what: "DNS label", found: len as u64 }),
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, label) in self.0.iter().enumerate() {
            write!(out, "{}{}", if at > 0 { "." } else { "" }, String::from_utf8_lossy(label))?;
        }
        Ok(())
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Of whom.
    pub name: Name,
    /// The type of records.
    pub kind: u16,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// An instance of a service.
    Pointer(Name),
    /// Where a service is.
    Service {
        /// Its port.
        port: u16,
        /// Its host.
        host: Name,
    },
    /// Further information: `key=value`.
    Text(Vec<Vec<u8>>),
    /// A host's address.
    Address(Ipv4Addr),
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of whom.
    pub name: Name,
    /// Its time to live, in seconds.
    pub seconds: u32,
    /// What it says.
    pub data: Data,
}

/// A message. Answers and additional records are one list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Chosen by the requester; zero in multicast.
    pub id: u16,
    /// Whether it answers.
    pub is_response: bool,
    /// What is asked.
    pub questions: Vec<Question>,
    /// What is said.
    pub records: Vec<Record>,
}

fn half(message: &[u8], at: usize) -> Result<u16, Error> {
    let rest = message.get(at..).unwrap_or_default();
    split::<2>(rest, "DNS message").map(|(bytes, _)| u16::from_be_bytes(*bytes))
}

impl Message {
    /// A whole datagram.
    ///
    /// # Errors
    /// If it is too short, has a wrong name, or too many questions or records.
    pub fn parse(message: &[u8]) -> Result<Message, Error> {
        let counts = [4, 6, 8, 10].map(|at| half(message, at).map(usize::from));
        let [questions, answers, authorities, more] = counts;
        let (questions, records) = (questions?, answers? + authorities? + more?);
        if questions.max(records) > ITEMS_MAX {
            let found = questions.max(records) as u64;
            return Err(Error::Invalid { what: "DNS message's records", found });
        }
        let is_response = half(message, 2)? & FIRST_BIT != 0;
        let mut parsed = Message { id: half(message, 0)?, is_response, ..Message::default() };
        let mut at = 12;
        for _ in 0..questions {
            let (name, end) = Name::parse(message, at)?;
            parsed.questions.push(Question { name, kind: half(message, end)? });
            half(message, end + 2)?;
            at = end + 4;
        }
        for _ in 0..records {
            let (name, end) = Name::parse(message, at)?;
            let kind = half(message, end)?;
            let seconds =
                u32::from(half(message, end + 4)?) << 16 | u32::from(half(message, end + 6)?);
            let (from, len) = (end + 10, usize::from(half(message, end + 8)?));
            at = from + len;
            let short = Error::Truncated { what: "DNS record", need: at, have: message.len() };
            message.get(from..at).ok_or(short)?;
            if let Some(data) = Data::parse(kind, message, from, at)? {
                parsed.records.push(Record { name, seconds, data });
            }
        }
        Ok(parsed)
    }
    /// The datagram.
    ///
    /// # Errors
    /// If it has too many questions or records, or a record is too long.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        let most = ITEMS_MAX as u64;
        let questions: u16 = fit(self.questions.len(), most, "DNS message's questions")?;
        let records: u16 = fit(self.records.len(), most, "DNS message's records")?;
        let flags = if self.is_response { RESPONSE } else { 0 };
        let head = [self.id, flags, questions, records, 0, 0];
        let mut bytes: Vec<u8> = head.iter().flat_map(|half| half.to_be_bytes()).collect();
        for question in &self.questions {
            question.name.emit(&mut bytes);
            bytes.extend(question.kind.to_be_bytes());
            bytes.extend(INTERNET.to_be_bytes());
        }
        for record in &self.records {
            record.name.emit(&mut bytes);
            let (kind, data) = record.data.emit()?;
            bytes.extend(kind.to_be_bytes());
            bytes.extend(INTERNET.to_be_bytes());
            bytes.extend(record.seconds.to_be_bytes());
            let len: u16 = fit(data.len(), u16::MAX.into(), "DNS record")?;
            bytes.extend(len.to_be_bytes());
            bytes.extend(data);
        }
        Ok(bytes)
    }
}

impl Data {
    /// `None` of another type.
    fn parse(kind: u16, message: &[u8], from: usize, to: usize) -> Result<Option<Data>, Error> {
        let whole = |end: usize| {
            let wrong = Error::Invalid { what: "DNS record's length", found: (to - from) as u64 };
            if end == to { Ok(()) } else { Err(wrong) }
        };
        Ok(Some(match kind {
            POINTER => {
                let (name, end) = Name::parse(message, from)?;
                whole(end)?;
                Data::Pointer(name)
            }
            SERVICE => {
                let (host, end) = Name::parse(message, from + 6)?;
                whole(end)?;
                Data::Service { port: half(message, from + 4)?, host }
            }
            TEXT => {
                let (mut texts, mut at) = (Vec::new(), from);
                while at < to {
                    let len = usize::from(message[at]);
                    let wrong = Error::Truncated { what: "DNS text", need: at + 1 + len, have: to };
                    if at + 1 + len > to {
                        return Err(wrong);
                    }
                    texts.push(message[at + 1..at + 1 + len].to_vec());
                    at += 1 + len;
                }
                Data::Text(texts)
            }
            ADDRESS => {
                whole(from + 4)?;
                let ([a, b, c, d], _) = split::<4>(&message[from..to], "DNS address")?;
                Data::Address(Ipv4Addr::new(*a, *b, *c, *d))
            }
            _ => return Ok(None),
        }))
    }
    fn emit(&self) -> Result<(u16, Vec<u8>), Error> {
        let mut bytes = Vec::new();
        let kind = match self {
            Data::Pointer(name) => {
                name.emit(&mut bytes);
                POINTER
            }
            Data::Service { port, host } => {
                bytes.extend([0; 4]);
                bytes.extend(port.to_be_bytes());
                host.emit(&mut bytes);
                SERVICE
            }
            Data::Text(texts) => {
                for text in texts {
                    bytes.push(fit(text.len(), 255, "DNS text")?);
                    bytes.extend(text);
                }
                TEXT
            }
            Data::Address(address) => {
                bytes.extend(address.octets());
                ADDRESS
            }
        };
        Ok((kind, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_comes_back() {
        let kind = Name::of("_rtsp._tcp.local").expect("short");
        let name = kind.below("the door, 2.0").expect("short");
        let host = Name::of("door.local").expect("short");
        let record = |name: &Name, data| Record { name: name.clone(), seconds: 120, data };
        let records = vec![
            record(&kind, Data::Pointer(name.clone())),
            record(&name, Data::Service { port: 8554, host: host.clone() }),
            record(&name, Data::Text(vec![b"path=/".to_vec(), Vec::new()])),
            record(&host, Data::Address(Ipv4Addr::LOCALHOST)),
        ];
        let said = Message { is_response: true, records, ..Message::default() };
        let bytes = said.emit().expect("few records");
        assert_eq!(Message::parse(&bytes), Ok(said));
        assert!(Message::parse(&bytes[..bytes.len() - 1]).is_err());
        assert!(kind.is(&Name::of("_RTSP._tcp.Local").expect("short")));
    }

    #[test]
    fn compressed_names_are_read_and_pointer_loops_are_not() {
        let mut bytes = vec![0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"\x05local\0\0\x0c\0\x01");
        bytes.extend(b"\x04door\xc0\x0c\0\x01\0\x01");
        let parsed = Message::parse(&bytes).expect("it is right");
        assert_eq!(parsed.questions[1].name.to_string(), "door.local");
        let at = bytes.len() - 5;
        bytes[at] = 23;
        assert!(Message::parse(&bytes).is_err(), "to itself");
    }
}
