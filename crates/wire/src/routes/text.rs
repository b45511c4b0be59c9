//! A routing table as text: `PREFIX NEXT-HOP` on each line; `#` starts a comment.
//!
//! ```text
//! 10.0.0.0/8      1              a next hop is a number from 1 on,
//! 2001:db8::/32   2
//!
//! 10.0.0.0/8      192.0.2.1      or, in all lines, an address
//! ```

use super::{Builder, Error, Prefix, Route, Routes};
use std::fmt::Write;
use std::net::IpAddr;

/// Longest part of a wrong word that an error quotes.
const QUOTED_MAX: usize = 60;

/// Parses a table.
///
/// # Errors
/// At the first line that is wrong, or at a repeated prefix.
pub fn parse(file: &[u8]) -> Result<Routes, Error> {
    let mut builder = Builder::default();
    let mut numbered = None;
    for (line, bytes) in (1..).zip(file.split(|&byte| byte == b'\n')) {
        let text = str::from_utf8(bytes).map_err(|_| wrong(line, "not text".to_owned()))?;
        let text = text.split('#').next().unwrap_or("").trim();
        if text.is_empty() {
            continue;
        }
        let route = route(text, &mut builder, &mut numbered).map_err(|why| wrong(line, why))?;
        builder.push(route, line).map_err(|why| wrong(line, why))?;
    }
    builder.finish().map_err(|(line, reason)| wrong(line, reason))
}

fn wrong(line: u64, reason: String) -> Error {
    Error::at_line(line, reason)
}

fn route(text: &str, builder: &mut Builder, numbered: &mut Option<bool>) -> Result<Route, String> {
    let mut words = text.split_whitespace();
    let (Some(first), second) = (words.next(), words.next()) else {
        return Err("empty".to_owned());
    };
    let prefix = prefix(first)?;
    let second = second.ok_or_else(|| {
        format!("`{}` has no next hop: write a number from 1 on, or an address", quoted(first))
    })?;
    if let Some(more) = words.next() {
        return Err(format!("`{}` is extra: a line has a prefix and a next hop", quoted(more)));
    }
    let number = second.parse::<u32>().ok().filter(|&number| number > 0);
    let address = second.parse::<IpAddr>().ok();
    let is_number = number.is_some();
    if !is_number && address.is_none() {
        let second = quoted(second);
        return Err(format!(
            "`{second}` is not a next hop: write a number from 1 on, or an address"
        ));
    }
    if *numbered.get_or_insert(is_number) != is_number {
        let second = quoted(second);
        return Err(format!("`{second}`: earlier lines have the other kind of next hop"));
    }
    let next_hop = number.or_else(|| address.map(|address| builder.number(address)));
    Ok(Route { prefix, next_hop: next_hop.unwrap_or(1) })
}

/// Parses a prefix like `10.0.0.0/8`.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn prefix(word: &str) -> Result<Prefix, String> {
    let form = || format!("`{}` is not a prefix: write one as `10.0.0.0/8`", quoted(word));
    let (address, len) = word.split_once('/').ok_or_else(form)?;
    let address: IpAddr = address.parse().map_err(|_| form())?;
    let len: u8 = len.parse().map_err(|_| form())?;
    Prefix::new(address, len).ok_or_else(|| {
        let width = if address.is_ipv4() { 32 } else { 128 };
        match len > width {
            true => format!("`{word}`: an address has {width} bits"),
            false => format!("`{word}`: bits beyond the first {len} must be zero"),
        }
    })
}

fn quoted(word: &str) -> String {
    word.chars().take(QUOTED_MAX).collect()
}

/// Writes a table.
pub fn emit(routes: &Routes) -> String {
    let mut text = String::new();
    for Route { prefix, next_hop } in &routes.routes {
        let address = routes.next_hops.get((*next_hop as usize).wrapping_sub(1));
        let _ = match address {
            Some(address) => writeln!(text, "{prefix} {address}"),
            None => writeln!(text, "{prefix} {next_hop}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_numbers_and_addresses() {
        let numbers = parse(b"# a table\n10.0.0.0/8 7\n\n::/0 8 # default\n").expect("right");
        assert_eq!(numbers.routes[1].next_hop, 8);
        assert_eq!(emit(&numbers), "10.0.0.0/8 7\n::/0 8\n");
        let addresses = b"10.0.0.0/8 192.0.2.1\n10.1.0.0/16 ::1\n10.2.0.0/16 192.0.2.1\n";
        let addresses = parse(addresses).expect("right");
        let hops: Vec<u32> = addresses.routes.iter().map(|route| route.next_hop).collect();
        assert_eq!((hops, addresses.next_hops.len()), (vec![1, 2, 1], 2));
        assert_eq!(parse(emit(&addresses).as_bytes()), Ok(addresses));
    }

    #[test]
    fn an_error_names_line_and_reason_and_nothing_is_loaded() {
        let cases: [(&[u8], u64, &str); 10] = [
            (b"10.0.0.0/8 1\n10.0.0.0 1", 2, "is not a prefix"),
            (b"10.0.0.0/8", 1, "has no next hop"),
            (b"10.0.0.0/8 0", 1, "number from 1 on"),
            (b"10.0.0.0/8 4294967296", 1, "number from 1 on"),
            (b"10.0.0.0/33 1", 1, "has 32 bits"),
            (b"::1/127 1", 1, "must be zero"),
            (b"::/0 1 2", 1, "is extra"),
            (b"::/0 1\n0.0.0.0/0 ::1", 2, "other kind"),
            (b"::/0 1\n\xff", 2, "not text"),
            (b"::/0 1\n0.0.0.0/0 1\n::/0 1", 3, "again, first at 1"),
        ];
        for (file, line, reason) in cases {
            let error = parse(file).expect_err("wrong");
            assert_eq!(error.line, Some(line), "{error}");
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    proptest! {
        #[test]
        fn parses_what_it_emits(
            routes in prop::collection::btree_map((any::<u128>(), any::<bool>(), 0..=32_u8), 1_u32.., 0..40)
        ) {
            let mut all = Routes::default();
            for ((bits, v6, len), next_hop) in routes {
                let mask = !u128::MAX.checked_shr(len.into()).unwrap_or(0);
                let bytes = (bits & mask).to_be_bytes();
                let address = super::super::address(&bytes[..if v6 { 16 } else { 4 }], v6);
                let prefix = Prefix::new(address.expect("fits"), len).expect("masked");
                if all.routes.iter().all(|route| route.prefix != prefix) {
                    all.routes.push(Route { prefix, next_hop });
                }
            }
            prop_assert_eq!(parse(emit(&all).as_bytes()), Ok(all));
        }
    }
}
