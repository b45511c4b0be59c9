//! What Linux says of this machine's interfaces and routes, in /sys and /proc.

use crate::Complaint;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};

/// More interfaces than this are not listed.
const INTERFACES_MAX: usize = 32;

/// An interface.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interface {
    pub(super) name: String,
    /// `up`, `down`, `unknown`.
    pub(super) state: String,
    /// Mbit/s; virtual ones state none.
    pub(super) megabits: Option<u64>,
    pub(super) mtu: Option<u64>,
}

impl Interface {
    /// In a comment.
    pub(super) fn words(&self) -> String {
        let rate = self.megabits.map_or("no rate stated".to_owned(), |one| format!("{one} Mbit/s"));
        let mtu = self.mtu.map_or("unknown".to_owned(), |mtu| format!("{mtu} B"));
        format!("{}: {}, {rate}, MTU {mtu}", self.name, self.state)
    }
}

/// How packets leave for the peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    /// The peer, as it is called in the experiment.
    pub(super) peer: String,
    pub(super) interface: String,
    /// The next hop, unless the peer is directly connected.
    pub(super) gateway: Option<IpAddr>,
}

/// The interfaces of this machine, by name.
pub(super) fn interfaces() -> Vec<Interface> {
    let folder = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        folder.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names.truncate(INTERFACES_MAX);
    let read = |name: &str, what: &str| {
        let text = fs::read_to_string(format!("/sys/class/net/{name}/{what}")).ok()?;
        Some(text.trim().to_owned())
    };
    let one = |name: String| Interface {
        state: read(&name, "operstate").unwrap_or_else(|| "unknown".to_owned()),
        // Some drivers say 2^32 - 1 or -1 for none.
        megabits: read(&name, "speed")
            .and_then(|text| text.parse().ok())
            .filter(|&speed| speed > 0 && speed < u64::from(u32::MAX)),
        mtu: read(&name, "mtu").and_then(|text| text.parse().ok()),
        name,
    };
    names.into_iter().map(one).collect()
}

/// The route to a peer, or to the first router.
///
/// # Errors
/// The peer's name is not known, or nothing leads there.
pub(super) fn route(peer: Option<&str>) -> Result<Route, Complaint> {
    let v4 = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    let Some(peer) = peer else {
        let found = match to_v4(&v4, Ipv4Addr::UNSPECIFIED) {
            Some((interface, Some(gateway))) => Some((interface, gateway)),
            _ => None,
        };
        let hint = "name a host to describe the path to it: lastmeter init --from-host PEER";
        let (interface, gateway) =
            found.ok_or_else(|| Complaint(format!("this machine has no default route: {hint}")))?;
        return Ok(Route { peer: gateway.to_string(), interface, gateway: None });
    };
    let address = address(peer)?;
    // A socket that is connected, which sends nothing, tells whether the address is this machine's own.
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).and_then(|one| one.connect((address, 9)).map(|()| one));
    let own = socket.and_then(|one| one.local_addr());
    let complain = |error: &dyn std::fmt::Display| {
        Complaint(format!("there is no route to {peer} ({address}): {error}"))
    };
    let own = own.map_err(|error| complain(&error))?.ip();
    if own == address || address.is_loopback() {
        return Ok(Route { peer: clean(peer), interface: "lo".to_owned(), gateway: None });
    }
    let found = match address {
        IpAddr::V4(address) => to_v4(&v4, address),
        IpAddr::V6(address) => to_v6(&v6, address),
    };
    let (interface, gateway) = found.ok_or_else(|| complain(&"no line of its table matches"))?;
    Ok(Route { peer: clean(peer), interface, gateway })
}

fn address(peer: &str) -> Result<IpAddr, Complaint> {
    if let Ok(address) = peer.parse() {
        return Ok(address);
    }
    let found = (peer, 9).to_socket_addrs();
    let hint = "write a name that this machine can resolve, or an address";
    let mut found =
        found.map_err(|error| Complaint(format!("--from-host {peer}: {error}: {hint}")))?;
    found
        .next()
        .map(|one| one.ip())
        .ok_or_else(|| Complaint(format!("--from-host {peer}: it has no address: {hint}")))
}

/// A name as it may stand in the experiment's strings and comments.
fn clean(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || ".-_:".contains(*c)).take(80).collect()
}

type Hop = (String, Option<IpAddr>);

/// The longest match in the text of /proc/net/route: interface, destination, gateway, flags, ..., mask, addresses in
/// hexadecimal and the machine's byte order.
fn to_v4(table: &str, address: Ipv4Addr) -> Option<Hop> {
    let number = |text: &str| Some(u32::from_be(u32::from_str_radix(text, 16).ok()?.to_be()));
    let native = |address: u32| Ipv4Addr::from(address.to_ne_bytes());
    let wanted = u32::from_ne_bytes(address.octets());
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, destination, gateway, _, _, _, metric, mask, ..] = fields[..] else {
            return None;
        };
        let (destination, gateway, mask) = (number(destination)?, number(gateway)?, number(mask)?);
        let metric: u32 = metric.parse().ok()?;
        let gateway = (gateway != 0).then(|| IpAddr::V4(native(gateway)));
        (wanted & mask == destination)
            .then(|| ((mask.count_ones(), std::cmp::Reverse(metric)), (name.to_owned(), gateway)))
    };
    table.lines().skip(1).filter_map(line).max_by_key(|one| one.0).map(|one| one.1)
}

/// The longest match in the text of /proc/net/ipv6_route: destination, its length, source, its length, next hop,
/// metric, ..., interface.
fn to_v6(table: &str, address: Ipv6Addr) -> Option<Hop> {
    let number = |text: &str| u128::from_str_radix(text, 16).ok();
    let wanted = u128::from(address);
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, length, _, _, hop, metric, _, _, _, name] = fields[..] else {
            return None;
        };
        let (destination, hop) = (number(destination)?, number(hop)?);
        let length = u32::from_str_radix(length, 16).ok()?;
        let metric = u32::from_str_radix(metric, 16).ok()?;
        let differs = (wanted ^ destination).leading_zeros() < length;
        let gateway = (hop != 0).then(|| IpAddr::V6(Ipv6Addr::from(hop)));
        (!differs && name != "lo")
            .then(|| ((length, std::cmp::Reverse(metric)), (name.to_owned(), gateway)))
    };
    table.lines().filter_map(line).max_by_key(|one| one.0).map(|one| one.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 0100A8C0 0003 0 0 100 00000000 0 0 0
wlan0 00000000 0101A8C0 0003 0 0 600 00000000 0 0 0
eth0 0000A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0
";

    #[cfg(target_endian = "little")]
    #[test]
    fn the_longest_match_and_the_least_metric_win() {
        let gateway = Some("192.168.0.1".parse().unwrap());
        assert_eq!(to_v4(V4, "9.9.9.9".parse().unwrap()), Some(("eth0".to_owned(), gateway)));
        assert_eq!(to_v4(V4, "192.168.0.7".parse().unwrap()), Some(("eth0".to_owned(), None)));
        assert_eq!(to_v4("Iface\nnonsense 1 2\n", "9.9.9.9".parse().unwrap()), None);
    }

    #[test]
    fn ipv6_is_matched_by_prefix() {
        let none = "00000000000000000000000000000000";
        let line = |to: &str, length: &str, hop: &str, metric: &str, name: &str| {
            format!("{to} {length} {none} 00 {hop} {metric} 00000001 00000000 00000003 {name}\n")
        };
        let router = "fe800000000000000000000000000001";
        let table = line(none, "00", router, "00000400", "eth0")
            + &line("20010db8000000000000000000000000", "20", none, "00000100", "eth1")
            + &line(none, "00", none, "ffffffff", "lo");
        let near = to_v6(&table, "2001:db8::7".parse().unwrap());
        assert_eq!(near, Some(("eth1".to_owned(), None)));
        let far = to_v6(&table, "2001:db9::7".parse().unwrap());
        assert_eq!(far, Some(("eth0".to_owned(), Some("fe80::1".parse().unwrap()))));
    }

    #[test]
    fn names_cannot_leave_their_string() {
        assert_eq!(clean("a\"\n[nodes]\u{1b}b.example"), "anodesb.example");
    }
}
