//! Where routes of the file, the kernel and FRR lead: through which of our ports.

use super::State;
use crate::config::Config;
use crate::port_processor::hop::Next;
use crate::port_processor::tables::Network;
use crate::rib::To;
use lastmeter_linux::files;
use lastmeter_wire::netlink::{Gateway, Route, masked};
use lastmeter_wire::routes::Routes;
use std::net::IpAddr;
use std::path::Path;

/// Limit on the size of a file of routes.
const TABLE_LEN_MAX: usize = 512 << 20;

pub(super) fn port_of(attached: &[(Network, u16)], address: IpAddr) -> Option<u16> {
    let holds = |(network, len): &Network| {
        network.is_ipv4() == address.is_ipv4() && masked(address, *len) == *network
    };
    let of = attached.iter().filter(|(network, _)| holds(network));
    of.max_by_key(|((_, len), _)| *len).map(|(_, port)| *port)
}

/// The target of a route of the kernel or FRR; `None` if not through our ports.
pub(super) fn to(state: &State, route: &Route) -> Option<To> {
    match route.kind {
        6 => return Some(To::Blackhole),
        7 => return Some(To::Unreachable),
        8 => return Some(To::Prohibited),
        _ => {}
    }
    let next = |gateway: &Gateway| {
        let port = match gateway.interface {
            0 => state.port_of(gateway.address?)?,
            interface => *state.ports.get(&interface)?,
        };
        Some(Next { port, address: gateway.address })
    };
    let next: Vec<Next> = route.gateways.iter().filter_map(next).collect();
    (!next.is_empty()).then_some(To::Next(next))
}

/// A next router, on a network to which a port is attached.
pub(super) fn reach(attached: &[(Network, u16)], via: IpAddr) -> Result<Next, String> {
    let port = port_of(attached, via);
    port.map(|port| Next { port, address: Some(via) })
        .ok_or(format!("{via} is on no network to which a port is attached"))
}

/// Routes of the file and of its table.
pub(super) fn own_routes(
    config: &Config,
    folder: &Path,
    attached: &[(Network, u16)],
) -> Result<Vec<(Network, To)>, String> {
    let reach = |via| reach(attached, via);
    let mut all = Vec::new();
    for route in config.routes.iter().filter(|route| route.table.is_none()) {
        let to = match route.via {
            Some(via) => To::Next(vec![reach(via).map_err(|why| format!("routes.via: {why}"))?]),
            None => To::Blackhole,
        };
        all.push(((route.prefix, route.len), to));
    }
    if let Some(file) = &config.table {
        let place = |why: String| format!("{file}: {why}");
        let bytes = files::read(&folder.join(file), TABLE_LEN_MAX)?;
        let routes = Routes::parse(&bytes).map_err(|error| place(error.to_string()))?;
        if routes.next_hops.is_empty() && !routes.routes.is_empty() {
            return Err(place("next hops must be addresses of routers: 10.2.0.9".to_owned()));
        }
        let hops = routes.next_hops.iter().map(|via| Ok(To::Next(vec![reach(*via)?])));
        let hops: Vec<To> = hops.collect::<Result<_, String>>().map_err(place)?;
        for route in &routes.routes {
            let network = (route.prefix.address(), route.prefix.len());
            all.push((network, hops[route.next_hop as usize - 1].clone()));
        }
    }
    Ok(all)
}
