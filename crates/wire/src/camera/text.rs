//! Requests in text, of which HTTP/1.1 (RFC 9112) and RTSP (RFC 2326) have the same form, and RTSP's transports.
//!
//! ```
//! use lastmeter_wire::camera::text::{Item, parse};
//! let bytes = b"DESCRIBE rtsp://host/camera RTSP/1.0\r\nCSeq: 2\r\n\r\n";
//! let Some((Item::Request(request), len)) = parse(bytes)? else { panic!("it is complete") };
//! assert_eq!((request.method, request.header("cseq")), ("DESCRIBE", Some("2")));
//! assert_eq!(len, bytes.len());
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::Error;

/// The longest head of a request.
pub const HEAD_MAX: usize = 8192;
/// The most header fields.
pub const FIELDS_MAX: usize = 64;
/// The longest body, which is skipped.
pub const BODY_MAX: usize = 4096;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// `GET`, `SETUP`.
    pub method: &'a str,
    /// A path or an address.
    pub target: &'a str,
    /// `HTTP/1.1`, `RTSP/1.0`.
    pub version: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

impl Request<'_> {
    /// The first field of this name, in capitals or not.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value)
    }
}

/// What comes on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A request.
    Request(Request<'a>),
    /// RTSP's binary data between requests (RFC 2326, section 10.12).
    Data {
        /// Its channel.
        channel: u8,
        /// The data.
        bytes: &'a [u8],
    },
}

fn invalid(what: &'static str, found: usize) -> Error {
    Error::Invalid { what, found: found as u64 }
}

/// The first item and its length with its body; `None` if more bytes must come.
///
/// # Errors
/// If it is not text, too long, or has another form.
pub fn parse(bytes: &[u8]) -> Result<Option<(Item<'_>, usize)>, Error> {
    if let [b'$', rest @ ..] = bytes {
        let [channel, l0, l1, rest @ ..] = rest else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let data = rest.get(..len);
        return Ok(data.map(|bytes| (Item::Data { channel: *channel, bytes }, 4 + len)));
    }
    let window = &bytes[..bytes.len().min(HEAD_MAX)];
    let Some(len) = window.windows(4).position(|four| four == b"\r\n\r\n") else {
        let is_full = bytes.len() >= HEAD_MAX;
        return if is_full { Err(invalid("request's head", bytes.len())) } else { Ok(None) };
    };
    let head = std::str::from_utf8(&bytes[..len])
        .map_err(|error| invalid("request's text, at byte", error.valid_up_to()))?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let mut word = || words.next().filter(|word| !word.is_empty());
    let (method, target, version) = (word(), word(), word());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Err(invalid("request's first line", len));
    };
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(invalid("request's field", line.len()))?;
        fields.push((name.trim(), value.trim()));
        if fields.len() > FIELDS_MAX {
            return Err(invalid("request's fields", fields.len()));
        }
    }
    let request = Request { method, target, version, fields };
    let body = match request.header("content-length") {
        None => 0,
        Some(text) => text.parse().ok().filter(|len| *len <= BODY_MAX).ok_or(Error::Invalid {
            what: "request's body: its length",
            found: text.len() as u64,
        })?,
    };
    let whole = len + 4 + body;
    Ok((bytes.len() >= whole).then_some((Item::Request(request), whole)))
}

/// How RTSP's frames travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Between the answers, on a channel.
    Interleaved(u8),
    /// To this UDP port of the client, and reports to the next one.
    Udp(u16),
}

impl Transport {
    /// The first of a list (RFC 2326, section 12.39) that is possible here.
    pub fn choose(list: &str) -> Option<Transport> {
        list.split(',').find_map(|one| {
            let mut parts = one.trim().split(';');
            let kind = parts.next()?.trim().to_ascii_uppercase();
            let value = |name: &str| {
                let range = parts.clone().find_map(|part| part.trim().strip_prefix(name));
                range.and_then(|range| range.split('-').next())
            };
            match kind.as_str() {
                "RTP/AVP/TCP" => {
                    let channel = value("interleaved=").map_or(Some(0), |text| text.parse().ok());
                    channel.filter(|channel| *channel < u8::MAX).map(Transport::Interleaved)
                }
                "RTP/AVP" | "RTP/AVP/UDP" if !one.contains("multicast") => {
                    let port: u16 = value("client_port=")?.parse().ok()?;
                    (1..u16::MAX).contains(&port).then_some(Transport::Udp(port))
                }
                _ => None,
            }
        })
    }
}
