//! Paths that links reserve hop by hop, as RSVP does, beside the connections that applications make themselves.
//!
//! ```text
//! host --path--> [ link 1 ] --path--> [ link 2 ] --path--> peer
//!      <-------- [ label  ] <-------- [ label  ] <-------- reserved
//! ```
//!
//! On the way out, each link allocates a channel for the data that will come back; on the way back, one for the data
//! that will go out, and tells the previous hop (an explicit route with labels in both directions: RFC 3209, RFC
//! 3473). The host may send data once it has the answer: after a round trip, in which every link has worked twice. An
//! application that writes the tables itself ([`super::connection`]) sends data right behind its control cells.
//!
//! | missing, compared with RSVP | why |
//! |---|---|
//! | refreshes, admission | only the time of set-up is compared; both would add to it |
//! | a processor of its own | a link handles these cells where it handles control cells, which flatters them |
//!
//! Both ends are clients of switches; the numbers of channels come from a block that applications do not use.

use super::connection::Route;
use super::half::{Fate, Half, Slot};
use super::{header, is_control};
use lastmeter_wire::atm::PayloadType;
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::reservation::{Message, Op, VCI_RESERVATION};

/// A cell with this message, which leaves its switch by this port.
///
/// # Errors
/// If its path is too long for a cell.
pub fn cell_of(message: &Message, port: u8) -> Result<VunetCell, lastmeter_wire::Error> {
    let header = header(VCI_RESERVATION, PayloadType::OamEndToEnd);
    let mut cell = VunetCell::new(header, &message.emit()?, true);
    cell.set_port(port);
    Ok(cell)
}

/// The message in a cell of the reserved channel.
pub fn message_in(cell: &VunetCell) -> Option<Message> {
    let ours = cell.vci() == VCI_RESERVATION && is_control(cell);
    ours.then(|| Message::parse(cell.payload()).ok()).flatten()
}

/// The request for a path along `route`, for data back on the channel `label`, or its end.
///
/// # Errors
/// If the path is too long for a cell.
pub fn request(
    op: Op,
    route: &Route,
    token: u32,
    label: u16,
) -> Result<VunetCell, lastmeter_wire::Error> {
    let mut ports: Vec<(u8, u8)> = route.hops.iter().map(|hop| (hop.ahead, hop.back)).collect();
    ports.push((0, route.last_back));
    cell_of(&Message { op, token, at: 0, label, ports }, route.first)
}

/// The answer to a request of a peer that wants to receive data on the channel `label`, with the channel and the
/// port on which it sends. `None` for everything else.
pub fn reply(cell: &VunetCell, label: u16) -> Option<(VunetCell, (u16, u8))> {
    let path = message_in(cell).filter(|message| message.op == Op::Path)?;
    let &(_, port) = path.ports.last().filter(|_| usize::from(path.at) == path.links())?;
    let sends_on = (path.label, port);
    let message = Message { op: Op::Reserved, label, ..path };
    Some((cell_of(&message, port).ok()?, sends_on))
}

impl Half {
    /// A message from the switch.
    pub(super) fn asked(&mut self, cell: VunetCell) -> Fate {
        let Some(mut message) = message_in(&cell) else { return Fate::Drop("damaged reservation") };
        self.totals.controls += 1;
        let at = usize::from(message.at);
        let port = match message.op {
            Op::Path | Op::Tear if at < message.links() => message.ports[at].1,
            Op::Reserved if at > 0 => message.ports[at - 1].0,
            _ => return Fate::Drop("reservation that has passed its links"),
        };
        if message.op == Op::Tear {
            self.forget(message.token);
        } else {
            let Some(label) = self.take(message.token, message.label, port) else {
                return Fate::Drop("no channel left");
            };
            message.label = label;
        }
        cell_of(&message, 0).map_or(Fate::Drop("damaged reservation"), Fate::Wire)
    }

    /// A message that the other half has handled.
    pub(super) fn passed(&mut self, cell: VunetCell) -> Fate {
        let Some(mut message) = message_in(&cell) else { return Fate::Drop("damaged reservation") };
        let at = usize::from(message.at);
        let port = match message.op {
            Op::Path | Op::Tear if at < message.links() => {
                message.at += 1;
                if message.op == Op::Tear {
                    self.forget(message.token);
                }
                message.ports[at].0
            }
            Op::Reserved if at > 0 => {
                message.at -= 1;
                message.ports[at - 1].1
            }
            _ => return Fate::Drop("reservation that has passed its links"),
        };
        cell_of(&message, port).map_or(Fate::Drop("damaged reservation"), Fate::Switch)
    }

    /// A channel for data that comes over the wire, which leaves by `port` on the channel `to`.
    fn take(&mut self, token: u32, to: u16, port: u8) -> Option<u16> {
        let labels = self.labels?;
        let mut all = (0..labels.count).map(|place| labels.first + place);
        let free = all.find(|&vci| !self.slot(vci).used)?;
        *self.slot_mut(free) = Slot { new_vci: to, port, used: true, token };
        self.totals.written += 1;
        Some(free)
    }

    /// Frees the channels of a reservation.
    fn forget(&mut self, token: u32) {
        let Some(labels) = self.labels else { return };
        let (first, count) = (usize::from(labels.first), usize::from(labels.count));
        for slot in self.table.iter_mut().skip(first).take(count) {
            if slot.used && slot.token == token {
                *slot = Slot::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::card::{Card, Side};
    use super::super::connection::tests::row;
    use super::super::data_cell;
    use super::super::site::{End, Site};
    use super::super::vci::Block;
    use super::*;

    /// The last available channels.
    const LABELS: Block = Block { first: 65_528, count: 8 };

    fn reserving(switches: usize) -> (Site, Route) {
        let (mut site, route) = row(switches);
        for card in &mut site.cards {
            *card = Card::reserving(card.number(), LABELS);
        }
        (site, route)
    }

    fn one(ends: Vec<End>) -> VunetCell {
        match &ends[..] {
            [End::Client(_, cell)] => *cell,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_69_a_path_is_reserved_hop_by_hop_carries_data_both_ways_and_is_freed() {
        for switches in 1..=9 {
            let (mut site, route) = reserving(switches);
            let path = request(Op::Path, &route, 5, 100).unwrap();
            let at_peer = one(site.send(0, path));
            let (answer, (back_vci, back_port)) = reply(&at_peer, 200).unwrap();
            let reserved = one(site.send(1, answer));
            let message = message_in(&reserved).unwrap();
            assert_eq!((message.op, message.at, message.token), (Op::Reserved, 0, 5));
            let there = one(site.send(0, data_cell(message.label, route.first, true, &[1; 48])));
            assert_eq!(there.vci(), 200);
            let back = one(site.send(1, data_cell(back_vci, back_port, true, &[2; 48])));
            assert_eq!(back.vci(), 100);
            let used: usize = site.cards.iter().map(Card::used).sum();
            assert_eq!(used, 2 * (switches - 1));
            let torn = one(site.send(0, request(Op::Tear, &route, 5, 100).unwrap()));
            assert!(reply(&torn, 200).is_none() && message_in(&torn).is_some());
            assert!(site.cards.iter().all(|card| card.used() == 0));
        }
    }

    #[test]
    fn a_link_without_channels_left_reserves_nothing() {
        let (mut site, route) = reserving(2);
        for token in 0..8 {
            one(site.send(0, request(Op::Path, &route, token, 100).unwrap()));
        }
        let ends = site.send(0, request(Op::Path, &route, 9, 100).unwrap());
        assert_eq!(ends, [End::Lost("no channel left")]);
        assert_eq!(site.cards[0].entry(Side::B, LABELS.first).new_vci, 100);
    }
}
