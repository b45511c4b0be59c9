//! Rules as text, one per line, in ClassBench's format.
//!
//! ```text
//! @SRC/LEN  DST/LEN  LOW : HIGH  LOW : HIGH  PROTOCOL/MASK [FLAGS/MASK]     ports: source, destination
//! @10.0.0.0/8 192.0.2.1/32 0 : 65535 80 : 80 0x06/0xFF
//! ```
//!
//! Addresses may also be IPv6, but both of a rule must be of one family. Earlier rules have higher priority. A
//! protocol's mask is 0xFF, or 0x00 for any; flags are
//! ignored. A file is read whole or not at all.
//!
//! ```
//! use lastmeter_net::classify::text;
//! let filters = text::parse("@10.0.0.0/8 192.0.2.1/32 0 : 65535 80 : 80 0x06/0xFF")?;
//! assert_eq!(filters[0].dst_ports, 80..=80);
//! let wrong = text::parse("\n@10.0.0.0/8 192.0.2.1/32 0 : 65535 80 : 79 0x06/0xFF").unwrap_err();
//! assert!(wrong.to_string().starts_with("line 2: ports 80 : 79"));
//! # Ok::<(), text::Error>(())
//! ```

use super::rule::{Address, Filter};
use crate::lookup::Prefix;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Limit on the rules of a file.
pub const RULES_MAX: usize = 1 << 20;
/// Limit on how much of a wrong word an error quotes.
const QUOTED_MAX: usize = 60;

/// Why a text is not a valid set of rules, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line, from 1.
    pub line: u64,
    /// What was found and what would be right.
    pub reason: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for Error {}

/// A filter of either family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Either {
    /// For IPv4.
    V4(Filter),
    /// For IPv6.
    V6(Filter<u128>),
}

impl Either {
    /// The filter, if it is for IPv4.
    pub fn v4(self) -> Option<Filter> {
        if let Either::V4(filter) = self { Some(filter) } else { None }
    }
}

/// Reads the filters of IPv4 rules, the first with the highest priority.
///
/// # Errors
/// At the first line that is wrong.
pub fn parse(text: &str) -> Result<Vec<Filter>, Error> {
    parsed(text, |text| {
        filter(text)?.v4().ok_or_else(|| "IPv6 addresses: only IPv4 is possible here".to_owned())
    })
}

/// Reads the filters of rules of both families.
///
/// # Errors
/// At the first line that is wrong.
pub fn parse_any(text: &str) -> Result<Vec<Either>, Error> {
    parsed(text, filter)
}

fn parsed<F>(text: &str, filter: impl Fn(&str) -> Result<F, String>) -> Result<Vec<F>, Error> {
    let mut filters = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or("").trim();
        if text.is_empty() {
            continue;
        }
        let filter = filter(text).map_err(|reason| Error { line, reason })?;
        if filters.len() == RULES_MAX {
            return Err(Error { line, reason: format!("more than {RULES_MAX} rules") });
        }
        filters.push(filter);
    }
    Ok(filters)
}

/// Writes a line for each filter, as [`parse`] reads it; the format has no interfaces.
pub fn emit<'a, A: Address>(filters: impl IntoIterator<Item = &'a Filter<A>>) -> String {
    let mut text = String::new();
    for Filter { src, dst, src_ports, dst_ports, protocol, .. } in filters {
        let prefix = |prefix: &Prefix<A>| format!("{}/{}", prefix.key().ip(), prefix.len());
        let ports = |ports: &RangeInclusive<u16>| format!("{} : {}", ports.start(), ports.end());
        let (value, mask) = protocol.map_or((0, 0), |value| (value, 0xff));
        let (src, dst) = (prefix(src), prefix(dst));
        let (src_ports, dst_ports) = (ports(src_ports), ports(dst_ports));
        text += &format!("@{src} {dst} {src_ports} {dst_ports} 0x{value:02X}/0x{mask:02X}\n");
    }
    text
}

fn filter(text: &str) -> Result<Either, String> {
    let is_v6 = text.split_whitespace().next().is_some_and(|word| word.contains(':'));
    Ok(if is_v6 { Either::V6(filter_of(text)?) } else { Either::V4(filter_of(text)?) })
}

fn filter_of<A: Address>(text: &str) -> Result<Filter<A>, String> {
    let text = text.strip_prefix('@').ok_or("a rule begins with `@`")?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let (&[src, dst, s0, ":", s1, d0, ":", d1, protocol]
    | &[src, dst, s0, ":", s1, d0, ":", d1, protocol, _]) = words.as_slice()
    else {
        return Err(
            "not of the form `@SRC/LEN DST/LEN LOW : HIGH LOW : HIGH PROTOCOL/MASK`".to_owned()
        );
    };
    Ok(Filter {
        src: prefix(src)?,
        dst: prefix(dst)?,
        src_ports: ports(s0, s1)?,
        dst_ports: ports(d0, d1)?,
        protocol: protocol_of(protocol)?,
        interface: None,
    })
}

fn quoted(word: &str) -> String {
    word.chars().take(QUOTED_MAX).collect()
}

fn prefix<A: Address>(word: &str) -> Result<Prefix<A>, String> {
    let example = if A::BITS == 32 { "10.0.0.0/8" } else { "2001:db8::/32" };
    let form = || format!("`{}` is not a prefix: write one as `{example}`", quoted(word));
    let (address, len) = word.split_once('/').ok_or_else(form)?;
    let address: IpAddr = address.parse().map_err(|_| form())?;
    let address = A::of(address).ok_or_else(form)?;
    // ClassBench does not clear the bits beyond the length.
    Prefix::new(address, len.parse().map_err(|_| form())?).ok_or_else(form)
}

fn ports(low: &str, high: &str) -> Result<RangeInclusive<u16>, String> {
    match (low.parse(), high.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "ports {} : {}: write 0 to 65535, the lower first",
            quoted(low),
            quoted(high)
        )),
    }
}

fn protocol_of(word: &str) -> Result<Option<u8>, String> {
    let hexadecimal = |digits: &str| u8::from_str_radix(digits.strip_prefix("0x")?, 16).ok();
    let both =
        word.split_once('/').and_then(|(value, mask)| hexadecimal(value).zip(hexadecimal(mask)));
    match both {
        Some((value, 0xff)) => Ok(Some(value)),
        Some((_, 0)) => Ok(None),
        _ => {
            Err(format!("`{}`: write a protocol as `0x06/0xFF`, any as `0x00/0x00`", quoted(word)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RIGHT: &str = "@10.0.0.0/8 192.0.2.1/32 0 : 65535 80 : 81 0x06/0xFF 0x0000/0x0200";

    #[test]
    fn says_the_line_and_the_reason_and_loads_nothing() {
        assert_eq!(parse(RIGHT).map(|filters| filters.len()), Ok(1));
        for (from, to, reason) in [
            ("@", "", "begins with"),
            ("/8", "/33", "not a prefix"),
            ("10.0.0.0", "10.0.0", "not a prefix"),
            ("80 :", "82 :", "lower first"),
            ("65535", "65536", "0 to 65535"),
            ("0x06/0xFF", "0x06/0xF0", "0x06/0xFF"),
            (" : ", " - ", "of the form"),
        ] {
            let text = format!("{RIGHT}\n# remark\n{}", RIGHT.replacen(from, to, 1));
            let error = parse(&text).expect_err("wrong");
            assert_eq!(error.line, 3);
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    #[test]
    fn rules_of_ipv6_are_read_where_both_families_may_be_told() {
        let v6 = "@2001:db8:1::/48 2001:db8::9/128 0 : 65535 443 : 443 0x06/0xFF";
        let both = parse_any(&format!("{RIGHT}\n{v6}")).expect("rules");
        let [Either::V4(_), Either::V6(filter)] = &both[..] else { panic!("{both:?}") };
        assert_eq!(filter.dst.key(), 0x2001_0db8 << 96 | 9);
        assert_eq!(emit([filter]).trim(), v6);
        let told = parse(v6).expect_err("only IPv4").reason;
        assert!(told.contains("IPv6"), "{told}");
        let mixed = v6.replace("2001:db8::9/128", "10.0.0.1/32");
        assert!(parse_any(&mixed).expect_err("mixed").reason.contains("2001:db8::/32"));
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,200}", cut in 0..70_usize) {
            let _ = parse_any(&text);
            let _ = parse_any(&format!("{}{text}", &RIGHT[..cut.min(RIGHT.len())]));
        }
    }
}
