//! Requests and answers as text, which have the same form in HTTP/1.1 (RFC 9112) and RTSP (RFC 2326), and RTSP's
//! transports.
//!
//! ```
//! use lastmeter_wire::requests::{Item, parse};
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
/// The longest body.
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
    /// What follows the fields.
    pub body: &'a [u8],
}

impl Request<'_> {
    /// The first field of this name, in capitals or not.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// 200, 401.
    pub status: u16,
    /// The same in words.
    pub reason: &'a str,
    fields: Vec<(&'a str, &'a str)>,
    /// What follows the fields.
    pub body: &'a [u8],
}

impl Response<'_> {
    /// The first field of this name, in capitals or not.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
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

/// The first item and its length with its body; `None` if more bytes are needed.
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
    let Some(head) = head(bytes)? else { return Ok(None) };
    let mut words = head.first.split(' ');
    let mut word = || words.next().filter(|word| !word.is_empty());
    let (method, target, version) = (word(), word(), word());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Err(invalid("request's first line", head.first.len()));
    };
    let request = Request { method, target, version, fields: head.fields, body: head.body };
    Ok(Some((Item::Request(request), head.len)))
}

/// The first answer and its length with its body; `None` if more bytes must come.
///
/// # Errors
/// If it is not text, too long, or has another form.
pub fn response(bytes: &[u8]) -> Result<Option<(Response<'_>, usize)>, Error> {
    let Some(head) = head(bytes)? else { return Ok(None) };
    let (_, rest) = head.first.split_once(' ').unwrap_or_default();
    let (status, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let status = status.parse().ok().filter(|status| (100..1000).contains(status));
    let status = status.ok_or(invalid("answer's status", head.first.len()))?;
    let response = Response { status, reason, fields: head.fields, body: head.body };
    Ok(Some((response, head.len)))
}

/// What requests and answers have in common.
struct Head<'a> {
    first: &'a str,
    fields: Vec<(&'a str, &'a str)>,
    body: &'a [u8],
    /// With its body.
    len: usize,
}

fn field<'a>(fields: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
    let found = fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| *value)
}

fn head(bytes: &[u8]) -> Result<Option<Head<'_>>, Error> {
    let window = &bytes[..bytes.len().min(HEAD_MAX)];
    let Some(len) = window.windows(4).position(|four| four == b"\r\n\r\n") else {
        let is_full = bytes.len() >= HEAD_MAX;
        return if is_full { Err(invalid("request's head", bytes.len())) } else { Ok(None) };
    };
    let head = std::str::from_utf8(&bytes[..len])
        .map_err(|error| invalid("request's text, at byte", error.valid_up_to()))?;
    let mut lines = head.split("\r\n");
    let (first, mut fields) = (lines.next().unwrap_or(""), Vec::new());
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(invalid("request's field", line.len()))?;
        fields.push((name.trim(), value.trim()));
        if fields.len() > FIELDS_MAX {
            return Err(invalid("request's fields", fields.len()));
        }
    }
    let body = match field(&fields, "content-length") {
        None => 0,
        Some(text) => text.parse().ok().filter(|len| *len <= BODY_MAX).ok_or(Error::Invalid {
            what: "request's body: its length",
            found: text.len() as u64,
        })?,
    };
    let (start, len) = (len + 4, len + 4 + body);
    let whole = bytes.get(start..len);
    Ok(whole.map(|body| Head { first, fields, body, len }))
}

/// The port that a device names in an answer's field `Transport`.
pub fn server_port(transport: &str) -> Option<u16> {
    let range = transport.split(';').find_map(|part| part.trim().strip_prefix("server_port="))?;
    range.split('-').next()?.parse().ok().filter(|port| *port > 0)
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
    /// The first in a list (RFC 2326, section 12.39) that is supported here.
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
