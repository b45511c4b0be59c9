//! What changes in the kernel, told to the port processors: links, addresses, neighbours.

use super::House;
use crate::port_processor::Change;
use crate::port_processor::answer::Own;
use crate::port_processor::parse::ETHERNET;
use lastmeter_linux::dataplane::frames::FRAME_MAX;
use lastmeter_wire::netlink::{Message, masked};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The kernel's state.
#[derive(Default)]
pub(super) struct Known {
    /// Addresses of each port.
    addresses: BTreeMap<u16, BTreeSet<(IpAddr, u8)>>,
    /// Ethernet addresses of neighbours.
    neighbours: BTreeMap<(u16, IpAddr), [u8; 6]>,
}

/// Handles a change in the kernel.
pub(super) fn heard(house: &House, known: &mut Known, message: Message) {
    let port =
        |interface: u32| house.indices().position(|index| index == interface).map(|at| at as u16);
    match message {
        Message::Link(there, link) => {
            let (Some(port), Some(mac)) = (port(link.interface), link.mac) else { return };
            let longest = (FRAME_MAX - ETHERNET) as u32;
            let mtu = link.mtu.min(longest) as u16;
            house.tell(|| Change::Link(port, there && link.up, mtu, mac));
            house.forget();
        }
        Message::Neighbour(there, neighbour) => {
            let Some(port) = port(neighbour.interface) else { return };
            let mac = neighbour.reachable().filter(|_| there);
            house.tell(|| Change::Neighbour(port, neighbour.address, mac));
            let before = match mac {
                Some(mac) => known.neighbours.insert((port, neighbour.address), mac),
                None => known.neighbours.remove(&(port, neighbour.address)),
            };
            // The fast path still has the neighbour's old address.
            if before.is_some() && before != mac {
                house.forget();
            }
        }
        Message::Address(there, address) => {
            // An address of any interface is for this host.
            match there {
                true => drop(house.shared.add_local(address.address)),
                false => house.shared.remove_local(address.address),
            }
            let Some(port) = port(address.interface) else { return };
            let own = known.addresses.entry(port).or_default();
            match there {
                true => own.insert((address.address, address.len)),
                false => own.remove(&(address.address, address.len)),
            };
            let network = (masked(address.address, address.len), address.len);
            let is_local = matches!(address.address, IpAddr::V6(v6) if v6.segments()[0] == 0xfe80);
            if !is_local {
                let _ = house.change(|tables| tables.attach(network, there.then_some(port)));
            }
            let first =
                |wanted: fn(&IpAddr) -> bool| own.iter().map(|(address, _)| *address).find(wanted);
            let v4 = first(IpAddr::is_ipv4);
            let v6 = own
                .iter()
                .map(|(address, _)| *address)
                .find(|address| matches!(address, IpAddr::V6(v6) if v6.segments()[0] != 0xfe80));
            let own = Own {
                v4: v4.and_then(|a| if let IpAddr::V4(a) = a { Some(a) } else { None }),
                v6: v6.and_then(|a| if let IpAddr::V6(a) = a { Some(a) } else { None }),
            };
            house.tell(|| Change::Own(port, own));
            house.forget();
        }
        _ => {}
    }
}
