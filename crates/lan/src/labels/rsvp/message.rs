//! Messages of RSVP-TE (RFC 2205 §3.1 and appendix A, RFC 2210 §3, RFC 3209 §4).
//!
//! ```text
//! version 1, flags | type | checksum 2 | hops 1 | 0 | length 2 |  objects: length 2 | class 1 | type 1 | value
//! ```
//!
//! Each object is there once at most. Unknown classes are skipped where their number says so, and refused where not;
//! of the known ones ADSPEC, RECORD_ROUTE, INTEGRITY, POLICY_DATA, SCOPE and RESV_CONFIRM are not read.
//!
//! ```
//! use lastmeter_lan::labels::rsvp::message::{Kind, Message, Session};
//! let session = Session { end: [10, 3, 0, 1].into(), tunnel: 7, extended: [10, 1, 0, 2].into() };
//! let message = Message::new(Kind::PathTear, session);
//! assert_eq!(Message::parse(&message.emit())?, message);
//! # Ok::<(), lastmeter_lan::labels::rsvp::message::Wrong>(())
//! ```

use lastmeter_wire::internet::checksum::Sum;
use std::net::Ipv4Addr;

/// The longest message: of one packet on a line of 1500 bytes, options included.
pub const LEN_MAX: usize = 1472;
/// Limit on the steps of a route.
pub const STEPS_MAX: usize = 32;
/// Limit on the length of a tunnel's name.
pub const NAME_MAX: usize = 64;
/// The payload of a tunnel whose packets are of IPv4 and IPv6.
pub const PAYLOAD_IP: u16 = 0x0800;

const HEADER_LEN: usize = 8;
const VERSION: u8 = 1;
const SESSION: (u8, u8) = (1, 7);
const HOP: (u8, u8) = (3, 1);
const TIME_VALUES: (u8, u8) = (5, 1);
const ERROR_SPEC: (u8, u8) = (6, 1);
const STYLE: (u8, u8) = (8, 1);
const FLOWSPEC: (u8, u8) = (9, 2);
const FILTER_SPEC: (u8, u8) = (10, 7);
const SENDER_TEMPLATE: (u8, u8) = (11, 7);
const SENDER_TSPEC: (u8, u8) = (12, 2);
const LABEL: (u8, u8) = (16, 1);
const LABEL_REQUEST: (u8, u8) = (19, 1);
const EXPLICIT_ROUTE: (u8, u8) = (20, 1);
const SESSION_ATTRIBUTE: (u8, u8) = (207, 7);
/// Classes that are known and not read: INTEGRITY, SCOPE, ADSPEC, POLICY_DATA, RESV_CONFIRM, RECORD_ROUTE.
const NOT_READ: [u8; 6] = [4, 7, 13, 14, 15, 21];
/// Fixed filter: each sender has a reservation of its own.
const FIXED_FILTER: u32 = 0x0a;
/// Shared explicit: the same, with one sender.
const SHARED_EXPLICIT: u32 = 0x12;
/// Services and parameters of RFC 2210 and RFC 2215.
const GENERAL: u8 = 1;
const GUARANTEED: u8 = 2;
const CONTROLLED_LOAD: u8 = 5;
const TOKEN_BUCKET: u8 = 127;
const GUARANTEED_RATE: u8 = 130;
/// Words of a token bucket, and of a guaranteed rate.
const BUCKET_WORDS: u16 = 5;
const RATE_WORDS: u16 = 2;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Fewer bytes than a length says, or a length that cannot be.
    Length,
    /// Not version 1.
    Version,
    /// A type that is not known.
    Kind,
    /// The checksum does not fit.
    Checksum,
    /// An object of a class that must be known.
    Class(u8),
    /// An object that has another form than is known, by its class.
    Object(u8),
    /// The message has two of a class.
    Twice(u8),
    /// The message lacks an object of this class.
    Lacks(u8),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::Length => f.write_str("a length that cannot be"),
            Wrong::Version => f.write_str("not version 1"),
            Wrong::Kind => f.write_str("a type that is not known"),
            Wrong::Checksum => f.write_str("a wrong checksum"),
            Wrong::Class(class) => write!(f, "an object of class {class}, which is not known"),
            Wrong::Object(class) => write!(f, "an object of class {class} in a form not known"),
            Wrong::Twice(class) => write!(f, "two objects of class {class}"),
            Wrong::Lacks(class) => write!(f, "no object of class {class}"),
        }
    }
}

impl std::error::Error for Wrong {}

/// What a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Asks routers on the way to the end.
    Path,
    /// Reserves, from the end back.
    Resv,
    /// Tells the sender that its path cannot be.
    PathErr,
    /// Tells the receiver that its reservation cannot be.
    ResvErr,
    /// Ends a path.
    PathTear,
    /// Ends a reservation.
    ResvTear,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Path, Kind::Resv, Kind::PathErr, Kind::ResvErr, Kind::PathTear, Kind::ResvTear];
    /// Whether it is about a sender; else about a reservation for it.
    fn is_of_sender(self) -> bool {
        matches!(self, Kind::Path | Kind::PathErr | Kind::PathTear)
    }
    /// Whether it goes to the end of the tunnel, and routers on the way take it.
    pub fn is_alert(self) -> bool {
        matches!(self, Kind::Path | Kind::PathTear)
    }
}

/// A tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session {
    /// The router where it ends.
    pub end: Ipv4Addr,
    /// Its number at the router where it begins.
    pub tunnel: u16,
    /// That router.
    pub extended: Ipv4Addr,
}

/// One path of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sender {
    /// The router where it begins.
    pub from: Ipv4Addr,
    /// Its number.
    pub path: u16,
}

/// The router that sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its name for the interface, which comes back in answers.
    pub handle: u32,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Bytes a second.
    pub rate: f32,
    /// Bytes at once.
    pub bucket: f32,
    /// Bytes a second at most.
    pub peak: f32,
    /// Shorter packets count as this long.
    pub shortest: u32,
    /// The longest packet.
    pub longest: u32,
}

/// What is reserved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// The traffic.
    pub traffic: Traffic,
    /// For guaranteed service, the rate in bytes a second and the slack in microseconds; else it is controlled load.
    pub guaranteed: Option<(f32, u32)>,
}

impl Wanted {
    /// What has to be reserved, in bytes a second.
    pub fn rate(&self) -> f32 {
        let Wanted { traffic, guaranteed } = self;
        guaranteed.map_or(traffic.rate, |(rate, _)| rate.max(traffic.rate))
    }
}

/// A step of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whether other routers may come before it.
    pub loose: bool,
    /// First bits of its address.
    pub address: Ipv4Addr,
    /// How many.
    pub len: u8,
}

/// What is wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The router that found it.
    pub at: Ipv4Addr,
    /// Flags.
    pub flags: u8,
    /// What.
    pub code: u8,
    /// More precisely.
    pub value: u16,
}

/// Codes of [`Fault`].
pub mod fault {
    /// It was not admitted; value 2: there is not the bandwidth.
    pub const ADMISSION: u8 = 1;
    /// The bandwidth is not there.
    pub const BANDWIDTH: u16 = 2;
    /// A reservation without a path.
    pub const NO_PATH: u8 = 3;
    /// A route cannot be taken.
    pub const ROUTING: u8 = 24;
    /// Its first step is not at this router.
    pub const BAD_FIRST: u16 = 4;
    /// Its next step is not a neighbour.
    pub const BAD_STRICT: u16 = 2;
    /// There is no route.
    pub const NO_ROUTE: u16 = 5;
    /// The label is none.
    pub const BAD_LABEL: u16 = 6;
    /// No label is free.
    pub const NO_LABEL: u16 = 9;
    /// The payload is not known.
    pub const BAD_PAYLOAD: u16 = 10;
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fault { at, code, value, .. } = self;
        let what = match (*code, *value) {
            (fault::ADMISSION, fault::BANDWIDTH) => "it has not the bandwidth",
            (fault::ADMISSION, _) => "it does not admit the flow",
            (fault::NO_PATH, _) => "it knows no path for the reservation",
            (fault::ROUTING, fault::BAD_FIRST) => "the route does not begin there",
            (fault::ROUTING, fault::BAD_STRICT) => "the next step of the route is no neighbour",
            (fault::ROUTING, fault::NO_ROUTE) => "it has no route to the end of the tunnel",
            (fault::ROUTING, fault::BAD_LABEL) => "the label is none that may be told",
            (fault::ROUTING, fault::NO_LABEL) => "it has no label left",
            (fault::ROUTING, fault::BAD_PAYLOAD) => "the tunnel's packets are not of IP",
            _ => "it refuses",
        };
        write!(f, "router {at}: {what} (RSVP error {code}, {value})")
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What it does.
    pub kind: Kind,
    /// Hops that it may still go.
    pub hops: u8,
    /// The tunnel.
    pub session: Session,
    /// The router that sends it.
    pub hop: Option<Hop>,
    /// Milliseconds between refreshes.
    pub refresh: Option<u32>,
    /// What is wrong.
    pub fault: Option<Fault>,
    /// The way that it is to take.
    pub route: Option<Vec<Step>>,
    /// A label is wanted for packets of this type of Ethernet.
    pub payload: Option<u16>,
    /// The tunnel's name.
    pub name: Option<String>,
    /// What is reserved.
    pub wanted: Option<Wanted>,
    /// The path.
    pub sender: Option<Sender>,
    /// What is sent.
    pub traffic: Option<Traffic>,
    /// The label to be used.
    pub label: Option<u32>,
}

impl Message {
    /// One that says nothing more.
    pub fn new(kind: Kind, session: Session) -> Message {
        Message {
            kind,
            hops: 64,
            session,
            hop: None,
            refresh: None,
            fault: None,
            route: None,
            payload: None,
            name: None,
            wanted: None,
            sender: None,
            traffic: None,
            label: None,
        }
    }

    /// Its bytes, which follow the header of IP.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![VERSION << 4, 0, 0, 0, self.hops, 0, 0, 0];
        out[1] = Kind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u8 + 1;
        let Session { end, tunnel, extended } = self.session;
        let (tunnel, path) = (u32::from(tunnel), |sender: Sender| u32::from(sender.path));
        object(&mut out, SESSION, &words([end.into(), tunnel, extended.into()]));
        if let Some(Hop { address, handle }) = self.hop {
            object(&mut out, HOP, &words([address.into(), handle]));
        }
        if let Some(refresh) = self.refresh {
            object(&mut out, TIME_VALUES, &words([refresh]));
        }
        if let Some(Fault { at, flags, code, value }) = self.fault {
            let rest = u32::from(flags) << 24 | u32::from(code) << 16 | u32::from(value);
            object(&mut out, ERROR_SPEC, &words([at.into(), rest]));
        }
        if let Some(route) = &self.route {
            let step = |step: &Step| {
                let [a, b, c, d] = step.address.octets();
                [u8::from(step.loose) << 7 | 1, 8, a, b, c, d, step.len, 0]
            };
            let steps: Vec<u8> = route.iter().take(STEPS_MAX).flat_map(step).collect();
            object(&mut out, EXPLICIT_ROUTE, &steps);
        }
        if let Some(payload) = self.payload {
            object(&mut out, LABEL_REQUEST, &words([payload.into()]));
        }
        if let Some(name) = &self.name {
            // Middle priorities, as there is no pre-emption.
            let name = &name.as_bytes()[..name.len().min(NAME_MAX)];
            let mut value = vec![4, 4, 0, name.len() as u8];
            value.extend(name);
            value.resize(value.len().next_multiple_of(4), 0);
            object(&mut out, SESSION_ATTRIBUTE, &value);
        }
        if self.wanted.is_some() || self.kind == Kind::ResvTear {
            object(&mut out, STYLE, &words([FIXED_FILTER]));
        }
        if let Some(Wanted { traffic, guaranteed }) = &self.wanted {
            let mut value = match guaranteed {
                None => bucket(CONTROLLED_LOAD, traffic, 0),
                Some(_) => bucket(GUARANTEED, traffic, RATE_WORDS + 1),
            };
            if let Some((rate, slack)) = guaranteed {
                let head = u32::from(GUARANTEED_RATE) << 24 | u32::from(RATE_WORDS);
                value.extend(words([head, rate.to_bits(), *slack]));
            }
            object(&mut out, FLOWSPEC, &value);
        }
        if let Some(sender) = self.sender {
            let class = if self.kind.is_of_sender() { SENDER_TEMPLATE } else { FILTER_SPEC };
            object(&mut out, class, &words([sender.from.into(), path(sender)]));
        }
        if let Some(traffic) = &self.traffic {
            object(&mut out, SENDER_TSPEC, &bucket(GENERAL, traffic, 0));
        }
        if let Some(label) = self.label {
            object(&mut out, LABEL, &words([label]));
        }
        let len = (out.len() as u16).to_be_bytes();
        out[6..8].copy_from_slice(&len);
        let sum = Sum::of(&out).checksum();
        out[2..4].copy_from_slice(&sum.to_be_bytes());
        out
    }

    /// Reads what follows the header of IP.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Message, Wrong> {
        let head = bytes.first_chunk::<HEADER_LEN>().ok_or(Wrong::Length)?;
        if head[0] >> 4 != VERSION {
            return Err(Wrong::Version);
        }
        let len = usize::from(u16::from_be_bytes([head[6], head[7]]));
        let whole = bytes.get(..len).filter(|_| (HEADER_LEN..=LEN_MAX).contains(&len));
        let whole = whole.ok_or(Wrong::Length)?;
        // Without a checksum it is 0.
        if head[2..4] != [0, 0] && !Sum::of(whole).is_intact() {
            return Err(Wrong::Checksum);
        }
        let kind = usize::from(head[1]).checked_sub(1).and_then(|at| Kind::ALL.get(at));
        let kind = *kind.ok_or(Wrong::Kind)?;
        let nobody = Ipv4Addr::UNSPECIFIED;
        let none = Session { end: nobody, tunnel: 0, extended: nobody };
        let mut message = Message { hops: head[4], ..Message::new(kind, none) };
        let (mut rest, mut seen) = (&whole[HEADER_LEN..], [false; 256]);
        while !rest.is_empty() {
            let head = rest.first_chunk::<4>().ok_or(Wrong::Length)?;
            let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
            if len < 4 || !len.is_multiple_of(4) {
                return Err(Wrong::Length);
            }
            let (object, after) = rest.split_at_checked(len).ok_or(Wrong::Length)?;
            rest = after;
            let read = message.read((head[2], head[3]), &object[4..])?;
            if read && std::mem::replace(&mut seen[usize::from(head[2])], true) {
                return Err(Wrong::Twice(head[2]));
            }
        }
        if !seen[usize::from(SESSION.0)] {
            return Err(Wrong::Lacks(SESSION.0));
        }
        Ok(message)
    }

    /// Reads an object; whether it means anything here.
    fn read(&mut self, class: (u8, u8), value: &[u8]) -> Result<bool, Wrong> {
        let wrong = Wrong::Object(class.0);
        let of_sender = self.kind.is_of_sender();
        match class {
            SESSION => {
                let [end, tunnel, extended] = fixed(value).ok_or(wrong)?;
                let tunnel = tunnel as u16;
                self.session = Session { end: end.into(), tunnel, extended: extended.into() };
            }
            HOP => {
                let [address, handle] = fixed(value).ok_or(wrong)?;
                self.hop = Some(Hop { address: address.into(), handle });
            }
            TIME_VALUES => self.refresh = Some(fixed::<1>(value).ok_or(wrong)?[0]),
            ERROR_SPEC => {
                let [at, rest] = fixed(value).ok_or(wrong)?;
                let (flags, code) = ((rest >> 24) as u8, (rest >> 16) as u8);
                self.fault = Some(Fault { at: at.into(), flags, code, value: rest as u16 });
            }
            STYLE => {
                let [style] = fixed(value).ok_or(wrong)?;
                if !matches!(style & 0x00ff_ffff, FIXED_FILTER | SHARED_EXPLICIT) {
                    return Err(wrong);
                }
            }
            FLOWSPEC => self.wanted = Some(read_wanted(value).ok_or(wrong)?),
            SENDER_TEMPLATE if of_sender => self.sender = Some(read_sender(value).ok_or(wrong)?),
            FILTER_SPEC if !of_sender => self.sender = Some(read_sender(value).ok_or(wrong)?),
            SENDER_TSPEC => {
                let (traffic, rest) = read_bucket(GENERAL, value).ok_or(wrong)?;
                self.traffic = Some(traffic).filter(|_| rest.is_empty());
                self.traffic.ok_or(wrong)?;
            }
            LABEL => self.label = Some(fixed::<1>(value).ok_or(wrong)?[0]),
            LABEL_REQUEST => self.payload = Some(fixed::<1>(value).ok_or(wrong)?[0] as u16),
            EXPLICIT_ROUTE => self.route = Some(read_route(value).ok_or(wrong)?),
            SESSION_ATTRIBUTE => self.name = Some(read_name(value).ok_or(wrong)?),
            // Of a class with its highest bit set it is left out.
            (class, _) if NOT_READ.contains(&class) || class & 0x80 != 0 => return Ok(false),
            (1 | 3 | 5 | 6 | 8..=12 | 16 | 19 | 20, _) => return Err(wrong),
            (class, _) => return Err(Wrong::Class(class)),
        }
        Ok(true)
    }
}

fn object(out: &mut Vec<u8>, (class, kind): (u8, u8), value: &[u8]) {
    out.extend((value.len() as u16 + 4).to_be_bytes());
    out.extend([class, kind]);
    out.extend(value);
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A value of so many words.
fn fixed<const N: usize>(value: &[u8]) -> Option<[u32; N]> {
    let (words, []) = value.as_chunks::<4>() else { return None };
    let words: &[[u8; 4]; N] = words.try_into().ok()?;
    Some(words.map(u32::from_be_bytes))
}

/// A service's token bucket; `more` words of other parameters follow.
fn bucket(service: u8, traffic: &Traffic, more: u16) -> Vec<u8> {
    let own = BUCKET_WORDS + 1 + more;
    words([
        u32::from(own + 1),
        u32::from(service) << 24 | u32::from(own),
        u32::from(TOKEN_BUCKET) << 24 | u32::from(BUCKET_WORDS),
        traffic.rate.to_bits(),
        traffic.bucket.to_bits(),
        traffic.peak.to_bits(),
        traffic.shortest,
        traffic.longest,
    ])
}

/// A token bucket, and what follows it.
fn read_bucket(service: u8, value: &[u8]) -> Option<(Traffic, &[u8])> {
    let (head, rest) = value.split_at_checked(32)?;
    let [all, own, parameter, rate, bucket, peak, shortest, longest] = fixed(head)?;
    let more = rest.len() as u32 / 4;
    let own_words = u32::from(BUCKET_WORDS) + 1 + more;
    let fits = all == own_words + 1
        && own & 0xff00_ffff == u32::from(service) << 24 | own_words
        && parameter & 0xff00_ffff == u32::from(TOKEN_BUCKET) << 24 | u32::from(BUCKET_WORDS);
    let number = |bits: u32| Some(f32::from_bits(bits)).filter(|number| is_amount(*number));
    // Whoever has no peak says infinity.
    let peak = Some(f32::from_bits(peak)).filter(|peak| is_amount(*peak) || *peak == f32::INFINITY);
    let (rate, bucket, peak) = (number(rate)?, number(bucket)?, peak?);
    fits.then_some((Traffic { rate, bucket, peak, shortest, longest }, rest))
}

fn is_amount(number: f32) -> bool {
    number.is_finite() && number >= 0.0 && number.is_sign_positive()
}

fn read_wanted(value: &[u8]) -> Option<Wanted> {
    match *value.get(4)? {
        CONTROLLED_LOAD => {
            let (traffic, rest) = read_bucket(CONTROLLED_LOAD, value)?;
            rest.is_empty().then_some(Wanted { traffic, guaranteed: None })
        }
        GUARANTEED => {
            let (traffic, rest) = read_bucket(GUARANTEED, value)?;
            let [head, rate, slack] = fixed(rest)?;
            let known =
                head & 0xff00_ffff == u32::from(GUARANTEED_RATE) << 24 | u32::from(RATE_WORDS);
            let rate = Some(f32::from_bits(rate)).filter(|rate| known && is_amount(*rate))?;
            Some(Wanted { traffic, guaranteed: Some((rate, slack)) })
        }
        _ => None,
    }
}

fn read_sender(value: &[u8]) -> Option<Sender> {
    let [from, path] = fixed(value)?;
    Some(Sender { from: from.into(), path: path as u16 })
}

fn read_route(mut value: &[u8]) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while !value.is_empty() {
        let (step, rest) = value.split_first_chunk::<8>()?;
        let [kind, 8, a, b, c, d, len @ 0..=32, _] = *step else { return None };
        if kind & 0x7f != 1 || steps.len() == STEPS_MAX {
            return None;
        }
        steps.push(Step { loose: kind & 0x80 != 0, address: [a, b, c, d].into(), len });
        value = rest;
    }
    Some(steps)
}

/// A name that disturbs no terminal.
fn read_name(value: &[u8]) -> Option<String> {
    let (head, rest) = value.split_first_chunk::<4>()?;
    let name = rest.get(..usize::from(head[3]))?;
    let name: String = name.iter().take(NAME_MAX).map(|byte| char::from(*byte)).collect();
    Some(name.chars().filter(|c| c.is_ascii_graphic()).collect())
}

#[cfg(test)]
mod tests;
