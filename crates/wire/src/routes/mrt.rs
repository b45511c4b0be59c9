//! MRT dumps of a router's table: TABLE_DUMP_V2 (RFC 6396 §4.3, RFC 8050 for several paths).
//!
//! ```text
//! record   time 4 | type 2 | subtype 2 | length 4 | body
//! peers    collector 4 | name length 2 | name | count 2 | { type 1, id 4, address 4|16, AS 2|4 }
//! routes   sequence 4 | prefix length 1 | prefix | count 2 | entries
//! entry    peer 2 | time 4 | [path 4] | attributes' length 2 | attributes
//! ```
//!
//! The best of a prefix's entries is used: highest LOCAL_PREF (100 if absent), then the shortest AS path, then the
//! first (RFC 4271 §9.1.1, §9.1.2.2 a). Its next hop's address gets a number. Records of other types, and routes
//! of families other than IPv4 and IPv6 unicast, are skipped.

use super::{Builder, Error, Prefix, Route, Routes, address};
use std::net::IpAddr;

/// Bytes before a record's body.
pub const HEADER_LEN: usize = 12;

const TABLE_DUMP_V2: u16 = 13;
const PEER_INDEX_TABLE: u16 = 1;
const RIB_IPV4_UNICAST: u16 = 2;
const RIB_IPV6_UNICAST: u16 = 4;
/// RFC 8050 §4: the same with a path identifier in each entry.
const RIB_IPV4_UNICAST_ADDPATH: u16 = 8;
const RIB_IPV6_UNICAST_ADDPATH: u16 = 10;

/// Attributes (RFC 4271 §5.1, RFC 4760 §3).
const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const LOCAL_PREF: u8 = 5;
const MP_REACH_NLRI: u8 = 14;
/// The attribute's length has two bytes.
const EXTENDED_LENGTH: u8 = 0x10;
/// An unordered segment of the path (AS_SET) counts as one AS (RFC 4271 §9.1.2.2 a).
const AS_SET: u8 = 1;
/// LOCAL_PREF of a route without one.
const LOCAL_PREF_DEFAULT: u32 = 100;

/// Parses a dump.
///
/// # Errors
/// At the first record that is wrong, or at a repeated prefix.
pub fn parse(file: &[u8]) -> Result<Routes, Error> {
    let mut builder = Builder::default();
    let mut peers = None;
    let mut rest = Bytes { bytes: file, offset: 0 };
    while !rest.bytes.is_empty() {
        let offset = rest.offset;
        let wrong = |reason: String| Error::at_offset(offset, reason);
        let (kind, subtype, mut body) = record(&mut rest).map_err(wrong)?;
        if kind != TABLE_DUMP_V2 {
            continue;
        }
        let (v6, paths) = match subtype {
            PEER_INDEX_TABLE => {
                peers = Some(peer_count(&mut body).map_err(wrong)?);
                continue;
            }
            RIB_IPV4_UNICAST => (false, false),
            RIB_IPV6_UNICAST => (true, false),
            RIB_IPV4_UNICAST_ADDPATH => (false, true),
            RIB_IPV6_UNICAST_ADDPATH => (true, true),
            _ => continue,
        };
        let peers = peers.ok_or_else(|| wrong("routes before the peer table".to_owned()))?;
        if let Some(route) = routes(&mut body, peers, v6, paths, &mut builder).map_err(wrong)? {
            builder.push(route, offset).map_err(wrong)?;
        }
    }
    builder.finish().map_err(|(offset, reason)| Error::at_offset(offset, reason))
}

/// Bytes, and their offset in the file.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize, what: &str) -> Result<Bytes<'a>, String> {
        let (offset, have) = (self.offset, self.bytes.len());
        let (bytes, rest) = self.bytes.split_at_checked(len).ok_or_else(|| {
            format!("{what} at offset {offset}: {have} bytes where {len} are needed")
        })?;
        *self = Bytes { bytes: rest, offset: offset + len as u64 };
        Ok(Bytes { bytes, offset })
    }
    fn number(&mut self, len: usize, what: &str) -> Result<u32, String> {
        let bytes = self.take(len, what)?.bytes;
        Ok(bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }
}

fn record<'a>(rest: &mut Bytes<'a>) -> Result<(u16, u16, Bytes<'a>), String> {
    rest.number(4, "record's time")?;
    let kind = rest.number(2, "record's type")? as u16;
    let subtype = rest.number(2, "record's subtype")? as u16;
    let len = rest.number(4, "record's length")? as usize;
    Ok((kind, subtype, rest.take(len, "record's body")?))
}

fn peer_count(body: &mut Bytes<'_>) -> Result<u32, String> {
    body.number(4, "collector's identifier")?;
    let name = body.number(2, "length of the view's name")?;
    body.take(name as usize, "view's name")?;
    let count = body.number(2, "count of peers")?;
    for _ in 0..count {
        // RFC 6396 §4.3.1: bit 0 an IPv6 address, bit 1 an AS of four bytes.
        let kind = body.number(1, "peer's type")?;
        let address = if kind & 1 != 0 { 16 } else { 4 };
        let system = if kind & 2 != 0 { 4 } else { 2 };
        body.take(4 + address + system, "peer")?;
    }
    Ok(count)
}

/// A route's rank: the greatest is the best.
type Rank = (u32, std::cmp::Reverse<u32>);

fn routes(
    body: &mut Bytes<'_>,
    peers: u32,
    v6: bool,
    paths: bool,
    builder: &mut Builder,
) -> Result<Option<Route>, String> {
    body.number(4, "sequence number")?;
    let len = body.number(1, "prefix' length")? as u8;
    let bytes = body.take(usize::from(len).div_ceil(8), "prefix")?.bytes;
    let prefix = address(bytes, v6).and_then(|address| Prefix::new(address, len));
    let prefix = prefix.ok_or_else(|| format!("an invalid prefix of {len} bits"))?;
    let count = body.number(2, "count of entries")?;
    let mut best: Option<(Rank, IpAddr)> = None;
    for _ in 0..count {
        let peer = body.number(2, "peer's index")?;
        if peer >= peers {
            return Err(format!("`{prefix}` from peer {peer}, of {peers}"));
        }
        body.number(4, "time of the route")?;
        if paths {
            body.number(4, "path's identifier")?;
        }
        let len = body.number(2, "length of attributes")?;
        let mut attributes = body.take(len as usize, "attributes")?;
        let (rank, next_hop) = judge(&mut attributes)?;
        let Some(next_hop) = next_hop else { continue };
        if best.is_none_or(|(than, _)| rank > than) {
            best = Some((rank, next_hop));
        }
    }
    Ok(best.map(|(_, next_hop)| Route { prefix, next_hop: builder.number(next_hop) }))
}

/// The rank of an entry, and its next hop.
fn judge(attributes: &mut Bytes<'_>) -> Result<(Rank, Option<IpAddr>), String> {
    let (mut preference, mut length, mut next_hop) = (LOCAL_PREF_DEFAULT, 0, None);
    while !attributes.bytes.is_empty() {
        let flags = attributes.number(1, "attribute's flags")? as u8;
        let kind = attributes.number(1, "attribute's type")? as u8;
        let size = if flags & EXTENDED_LENGTH != 0 { 2 } else { 1 };
        let len = attributes.number(size, "attribute's length")?;
        let mut value = attributes.take(len as usize, "attribute")?;
        match kind {
            AS_PATH => length = path_length(&mut value)?,
            LOCAL_PREF => preference = value.number(4, "LOCAL_PREF")?,
            NEXT_HOP => next_hop = address(value.take(4, "NEXT_HOP")?.bytes, false),
            MP_REACH_NLRI => next_hop = Some(reach(&mut value)?),
            _ => {}
        }
    }
    Ok(((preference, std::cmp::Reverse(length)), next_hop))
}

fn path_length(value: &mut Bytes<'_>) -> Result<u32, String> {
    let mut length = 0_u32;
    while !value.bytes.is_empty() {
        let kind = value.number(1, "AS_PATH segment's type")? as u8;
        let count = value.number(1, "AS_PATH segment's count")?;
        // RFC 6396 §4.3.4: ASes in a table have four bytes.
        value.take(4 * count as usize, "AS_PATH segment")?;
        length = length.saturating_add(if kind == AS_SET { 1 } else { count });
    }
    Ok(length)
}

/// The next hop of MP_REACH_NLRI: RFC 6396 §4.3.4 has only its length and address, some writers the whole of RFC
/// 4760.
fn reach(value: &mut Bytes<'_>) -> Result<IpAddr, String> {
    let what = "next hop in MP_REACH_NLRI";
    if value.bytes.first() == Some(&0) {
        // A length is not zero, so this is the first byte of an address family.
        value.take(3, what)?;
    }
    let len = value.number(1, what)? as usize;
    let bytes = value.take(len, what)?.bytes;
    // A global address may be followed by a link-local one.
    match len {
        4 => address(bytes, false),
        16 | 32 => address(&bytes[..16], true),
        _ => None,
    }
    .ok_or_else(|| format!("{what}: {len} bytes are not an address"))
}

/// Writes a dump with one peer, whose routes have these next hops.
///
/// Next hops that are numbers become the addresses 0.0.0.1 and so on.
pub fn emit(routes: &Routes) -> Vec<u8> {
    let mut file = Vec::new();
    // One IPv4 peer with a four-byte AS; address and AS are from RFC 5737 and RFC 5398.
    let peers = [
        &[192, 0, 2, 1, 0, 0, 0, 1, 2][..],
        &[192, 0, 2, 1, 192, 0, 2, 1],
        &64_496_u32.to_be_bytes(),
    ];
    put(&mut file, PEER_INDEX_TABLE, &peers.concat());
    for (sequence, Route { prefix, next_hop }) in (0_u32..).zip(&routes.routes) {
        let hop = routes.next_hops.get((*next_hop as usize).wrapping_sub(1));
        let hop = hop.copied().unwrap_or(IpAddr::V4((*next_hop).into()));
        let attribute = match hop {
            IpAddr::V4(hop) => [&[0x40, NEXT_HOP, 4][..], &hop.octets()].concat(),
            IpAddr::V6(hop) => [&[0x80, MP_REACH_NLRI, 17, 16][..], &hop.octets()].concat(),
        };
        let (subtype, bytes) = match prefix.address() {
            IpAddr::V4(address) => (RIB_IPV4_UNICAST, address.octets().to_vec()),
            IpAddr::V6(address) => (RIB_IPV6_UNICAST, address.octets().to_vec()),
        };
        let body = [
            &sequence.to_be_bytes()[..],
            &[prefix.len()],
            &bytes[..usize::from(prefix.len()).div_ceil(8)],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &(attribute.len() as u16).to_be_bytes(),
            &attribute,
        ];
        put(&mut file, subtype, &body.concat());
    }
    file
}

fn put(file: &mut Vec<u8>, subtype: u16, body: &[u8]) {
    file.extend(0_u32.to_be_bytes());
    file.extend(TABLE_DUMP_V2.to_be_bytes());
    file.extend(subtype.to_be_bytes());
    file.extend((body.len() as u32).to_be_bytes());
    file.extend(body);
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    fn table() -> Routes {
        let text =
            b"10.0.0.0/8 192.0.2.7\n0.0.0.0/0 192.0.2.8\n2001:db8::/33 ::7\n::/0 192.0.2.7\n";
        text::parse(text).expect("right")
    }

    #[test]
    fn parses_what_it_emits() {
        assert_eq!(Routes::parse(&emit(&table())), Ok(table()));
        assert_eq!(parse(&[]), Ok(Routes::default()));
    }

    #[test]
    fn the_best_entry_is_used() {
        let entry = |peer: u8, attributes: &[u8]| {
            [&[0, peer, 0, 0, 0, 0, 0, attributes.len() as u8], attributes].concat()
        };
        let path = |count: u8| {
            [&[0x40, AS_PATH, 2 + 4 * count, 2, count][..], &vec![9; 4 * count as usize]].concat()
        };
        let hop = |last: u8| vec![0x40, NEXT_HOP, 4, 192, 0, 2, last];
        let body = |entries: &[Vec<u8>]| {
            [&[0, 0, 0, 0, 8, 10, 0, entries.len() as u8][..], &entries.concat()].concat()
        };
        let best = |entries: &[Vec<u8>]| {
            let mut file = emit(&Routes::default());
            put(&mut file, RIB_IPV4_UNICAST, &body(entries));
            parse(&file).map(|routes| routes.next_hops[0].to_string())
        };
        let long = entry(0, &[path(3), hop(1)].concat());
        let short = entry(0, &[path(1), hop(2)].concat());
        let preferred = [0x40, LOCAL_PREF, 4, 0, 0, 0, 200];
        let preferred = entry(0, &[path(9), hop(3), preferred.to_vec()].concat());
        assert_eq!(best(&[long.clone(), short.clone()]), Ok("192.0.2.2".to_owned()));
        assert_eq!(best(&[long, preferred, short]), Ok("192.0.2.3".to_owned()));
        let stranger = best(&[entry(1, &hop(1))]).expect_err("there is one peer");
        assert!(stranger.reason.contains("from peer 1, of 1"), "{stranger}");
    }

    #[test]
    fn an_error_names_record_and_reason_wherever_a_file_ends() {
        let file = emit(&table());
        for len in 1..file.len() {
            match parse(&file[..len]) {
                Ok(routes) => assert!(routes.routes.len() < 4),
                Err(error) => assert!(error.to_string().contains("bytes where"), "{error}"),
            }
        }
        let gzip = Routes::parse(&[0x1f, 0x8b, 8, 0]).expect_err("compressed");
        assert_eq!(gzip.to_string(), "offset 0: compressed with gzip: decompress it first");
        let mut early = Vec::new();
        put(&mut early, RIB_IPV4_UNICAST, &[0; 8]);
        assert!(parse(&early).is_err_and(|error| error.reason.contains("before the peer table")));
        let twice = [file.clone(), file].concat();
        assert!(parse(&twice).is_err_and(|error| error.reason.contains("appears again")));
    }
}
