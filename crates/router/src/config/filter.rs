//! `[[filters]]`: which packets a filter selects, and what happens to them.

use super::{listed, parsed, place, unknown, unknown_plugin};
use lastmeter_base::kind::{Param, ParamKind};
use lastmeter_lab::document::{Decoder, Fault, Item, Shape};
use lastmeter_net::classify::Filter as General;
use lastmeter_net::classify::text::{Either, parse_any};
use lastmeter_net::lookup::{Concatenated, Key, Prefix};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// A filter.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Which packets.
    pub packets: Packets,
    /// What happens.
    pub action: Action,
    /// The next router of these packets, whatever the routing table says.
    pub via: Option<IpAddr>,
    /// Whether the control processor gets a copy.
    pub copy: bool,
}

/// The packets that a filter matches.
#[derive(Clone, Debug)]
pub enum Packets {
    /// By ranges of each field; the first in the file that matches applies.
    General(General),
    /// The same for IPv6.
    GeneralV6(General<u128>),
    /// By the first bits of all fields side by side; where no general one matches, the longest applies.
    Longest(Prefix<Concatenated>),
}

/// What a filter does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drops.
    Deny,
    /// Forwards.
    Permit,
    /// Sends through a plugin.
    Plugin(String),
    /// Treats as packets of this flow.
    Flow(String),
}

const FILTER: &[Param] = &[
    Param::optional("match", ParamKind::Text, "a prefix")
        .is("source, destination, ports and protocol as ClassBench writes them"),
    Param::optional("prefix", ParamKind::Text, "a match")
        .is("the first bits of destination, source, their ports and the protocol, in this order: \
         192.0.2.1 10.1.0.0/16"),
    Param::optional("from", ParamKind::Text, "any").is("the port where the packets arrive"),
    Param::or("action", ParamKind::Choice(&["deny", "permit"]), "permit").is("what happens"),
    Param::optional("plugin", ParamKind::Text, "none").is("a plugin that decides instead"),
    Param::optional("flow", ParamKind::Text, "none").is("a flow whose packets they are"),
    Param::optional("via", ParamKind::Text, "the routing table says").is("the next router"),
    Param::or("copy", ParamKind::Flag, "false").is("whether the control processor gets a copy"),
];

/// The names that a filter may use.
pub(super) struct Names<'a> {
    pub(super) ports: &'a [String],
    pub(super) plugins: &'a BTreeSet<String>,
    pub(super) flows: &'a BTreeSet<String>,
}

pub(super) fn filter(decoder: &mut Decoder<'_>, item: &Item, names: &Names<'_>) -> Option<Filter> {
    let shape = Shape { what: "a filter", params: FILTER, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, item, "filters");
    let from = values.given::<String>("from");
    let from = from.map(|name| port(decoder, item, "filters.from", &name, names.ports));
    let (general, first): (Option<String>, Option<String>) =
        (values.given("match"), values.given("prefix"));
    let packets = match (general, first) {
        (Some(text), None) => {
            let found = any_match(decoder, item, "filters.match", &text)?;
            let interface = from.transpose_port()?;
            match found {
                Either::V4(filter) => Packets::General(General { interface, ..filter }),
                Either::V6(filter) => Packets::GeneralV6(General { interface, ..filter }),
            }
        }
        (None, Some(text)) => match first_bits(&text) {
            Ok(_) if from.is_some() => {
                let fault =
                    Fault::new("a prefix of all fields has no port", "give `match` instead");
                decoder.report(&place(item, "from"), "filters.from", fault);
                return None;
            }
            Ok(prefix) => Packets::Longest(prefix),
            Err(why) => {
                let fault = Fault::new(why, PREFIX_EXAMPLE);
                decoder.report(&place(item, "prefix"), "filters.prefix", fault);
                return None;
            }
        },
        _ => {
            let fault =
                Fault::new("a filter has either `match` or `prefix`", "give one of the two");
            decoder.report(&item.mark, "filters", fault);
            return None;
        }
    };
    let action = match (values.given::<String>("plugin"), values.given::<String>("flow")) {
        (Some(_), Some(_)) => {
            let fault = Fault::new("a filter has either `plugin` or `flow`", "give one of the two");
            decoder.report(&item.mark, "filters", fault);
            return None;
        }
        (Some(name), None) if names.plugins.contains(&name) => Action::Plugin(name),
        (Some(name), None) => {
            unknown_plugin(decoder, &place(item, "plugin"), "filters.plugin", &name, names.plugins);
            return None;
        }
        (None, Some(name)) if names.flows.contains(&name) => Action::Flow(name),
        (None, Some(name)) => {
            let known = listed(names.flows);
            unknown(decoder, &place(item, "flow"), "filters.flow", ("flow", &name), &known);
            return None;
        }
        (None, None) if values.get::<String>("action") == "deny" => Action::Deny,
        (None, None) => Action::Permit,
    };
    let via = match values.given::<String>("via") {
        None => None,
        Some(text) => Some(parsed(decoder, item, "via", &text, "an address: 10.2.0.9")?),
    };
    Some(Filter { packets, action, via, copy: values.get("copy") })
}

trait Transpose {
    fn transpose_port(self) -> Option<Option<u16>>;
}

impl Transpose for Option<Option<u16>> {
    /// `None` if a port was named that is not there.
    fn transpose_port(self) -> Option<Option<u16>> {
        self.map_or(Some(None), |found| found.map(Some))
    }
}

/// The number of a port that a value names; an unknown one is reported.
pub(super) fn port(
    decoder: &mut Decoder<'_>,
    item: &Item,
    key: &str,
    name: &str,
    ports: &[String],
) -> Option<u16> {
    let found = ports.iter().position(|port| port == name).map(|at| at as u16);
    if found.is_none() {
        let last = key.rsplit('.').next().unwrap_or(key);
        let known: Vec<&str> = ports.iter().map(String::as_str).collect();
        unknown(decoder, &place(item, last), key, ("port", name), &known);
    }
    found
}

/// One line of ClassBench's format, for IPv4.
pub(super) fn general_match(
    decoder: &mut Decoder<'_>,
    item: &Item,
    key: &str,
    text: &str,
) -> Option<General> {
    let found = any_match(decoder, item, key, text)?.v4();
    if found.is_none() {
        let fault = Fault::new("addresses of IPv6", "give addresses of IPv4: flows have no others");
        decoder.report(&place(item, "match"), key, fault);
    }
    found
}

/// One line of ClassBench's format.
fn any_match(decoder: &mut Decoder<'_>, item: &Item, key: &str, text: &str) -> Option<Either> {
    let found = match parse_any(text) {
        Ok(found) if found.len() == 1 => return found.into_iter().next(),
        Ok(_) => "not one filter".to_owned(),
        Err(error) => error.reason,
    };
    decoder.report(&place(item, "match"), key, Fault::new(found, MATCH_EXAMPLE));
    None
}

pub(super) const MATCH_EXAMPLE: &str = "write match = \
     \"@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\": \
     source, destination, source ports, destination ports, protocol";
const PREFIX_EXAMPLE: &str = "write destination, source, destination port, source port and \
     protocol, each whole but the last: \"192.0.2.0/24\", \"192.0.2.1 10.1.0.0/16\", \
     \"192.0.2.1 10.1.0.1 80\"";

/// Fields side by side, of which the last may have a length: `192.0.2.1 10.1.0.0/16`.
///
/// # Errors
/// What is wrong with them.
pub fn first_bits(text: &str) -> Result<Prefix<Concatenated>, String> {
    const WIDTHS: [u8; 5] = [32, 32, 16, 16, 8];
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || words.len() > WIDTHS.len() {
        return Err(format!("{} fields", words.len()));
    }
    let (mut fields, mut len) = ([0u32; 5], 0);
    for (at, word) in words.iter().enumerate() {
        let quoted: String = word.chars().take(60).collect();
        let (value, bits) = match word.split_once('/') {
            Some((value, bits)) => (value, bits.parse::<u8>().ok()),
            None => (*word, Some(WIDTHS[at])),
        };
        let bits = bits.filter(|bits| *bits <= WIDTHS[at]);
        let value = match at {
            0 | 1 => value.parse().ok().map(Ipv4Addr::to_bits),
            _ => value.parse().ok().filter(|value| *value < 1 << WIDTHS[at]),
        };
        let (Some(value), Some(bits)) = (value, bits) else {
            return Err(format!("{quoted:?} is none of the {} bits of its field", WIDTHS[at]));
        };
        if bits < WIDTHS[at] && at + 1 < words.len() {
            return Err(format!("{quoted:?} is cut short, and another field follows"));
        }
        fields[at] = value;
        len += bits;
    }
    let [dst, src, dst_port, src_port, protocol] = fields;
    let key = Concatenated::new(dst, src, dst_port as u16, src_port as u16, protocol as u8);
    debug_assert!(len <= Concatenated::BITS);
    Prefix::new(key, len).ok_or_else(|| format!("{len} bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_bits_of_all_fields_are_read_in_the_filter_s_order_d_36() {
        let key = |dst, src, port| Concatenated::new(dst, src, port, 0, 0);
        let (dst, src) = (0xc000_0201, 0x0a01_0000);
        let right = |text: &str| first_bits(text).expect("bits");
        assert_eq!(right("192.0.2.1/24"), Prefix::new(key(dst, 0, 0), 24).expect("at most 104"));
        assert_eq!(right("192.0.2.1 10.1.0.0/16").len(), 48);
        assert!(right("192.0.2.1 10.1.0.0 80/10").contains(key(dst, src, 64)));
        assert!(!right("192.0.2.1 10.1.0.0 80/10").contains(key(dst, src, 128)));
        assert_eq!(right("192.0.2.1 10.1.0.0 80 9 6").len(), 104);
        for (wrong, why) in [
            ("", "0 fields"),
            ("192.0.2.0/24 10.1.0.0", "another field follows"),
            ("192.0.2.0/33", "32 bits"),
            ("192.0.2.1 10.1.0.0 65536", "16 bits"),
            ("1.1.1.1 1.1.1.1 1 1 6 7", "6 fields"),
        ] {
            let told = first_bits(wrong).expect_err("wrong");
            assert!(told.contains(why), "{wrong}: {told}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,80}", numbers in prop::collection::vec(any::<u16>(), 0..7)) {
            let _ = first_bits(&text);
            let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            let _ = first_bits(&format!("1.2.3.4 4.3.2.1 {}", words.join(" ")));
        }
    }
}
