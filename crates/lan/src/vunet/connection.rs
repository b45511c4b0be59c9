//! A connection as its application sees it: opened, verified, refreshed and closed with control cells that travel
//! in the data stream.
//!
//! ```text
//!        f0        f1        f2            data forward: a channel for each link
//! host -----> L1 -----> L2 -----> peer
//!      <-----    <-----    <-----
//!        b0        b1        b2            data back
//!        c2 ----> 5 (L2's control channel)    a channel to reach each link but the first
//! ```
//!
//! To reach link k the application uses a separate channel, which the preceding links forward and the last of them
//! maps to the control channel. Cells stay in order, so the entries of link k are in place when the next cell
//! arrives there: the path is opened like a wormhole, without waiting for answers, and data may follow at once.
//!
//! From time to time a daemon reads back the entries of every link, near to far; if one differs, or no answer
//! came, it writes them again ([`Connection::verify`], [`Connection::receive`]).
//!
//! Source: Aurora report §3.6. The use of separate channels for control is ours.

use super::card::READ_MAX;
use super::vci::SharedFile;
use super::{control_cell, control_in};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::vunet::{Control, ENTRIES_MAX, Entry, Op, VCI_CONTROL};

/// Most links of a connection.
pub const LINKS_MAX: usize = 64;

/// A link on the path, by ports of the switches at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Port by which cells leave the switch after the link.
    pub ahead: u8,
    /// Port by which returning cells leave the switch before the link.
    pub back: u8,
}

/// The path from a host to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Port by which cells leave the host's own switch.
    pub first: u8,
    /// The links.
    pub hops: Vec<Hop>,
    /// Port by which returning cells leave the peer's switch.
    pub last_back: u8,
}

/// Results of verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Links whose entries were read and correct.
    pub right: u64,
    /// Links whose entries were wrong.
    pub wrong: u64,
    /// Links that did not answer in time.
    pub silent: u64,
    /// Links written again.
    pub refreshed: u64,
    /// Whether the peer has answered a ping.
    pub peer: bool,
}

/// One application's connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    route: Route,
    token: u32,
    /// Forward channels, one for each link and one for the peer.
    ahead: Vec<u16>,
    /// Return channels, the host's first.
    back: Vec<u16>,
    /// The channels that reach each link but the first.
    reach: Vec<u16>,
    /// The channel on which the peer receives.
    peer: u16,
    sequence: u16,
    /// Reads not yet answered: number, link, expected entries.
    asked: Vec<(u16, usize, Vec<Entry>)>,
    /// Results of verification.
    pub seen: Seen,
}

impl Connection {
    /// A connection of the application `token`, with channels from its host's file.
    ///
    /// # Errors
    /// If the path is too long, or there are too few channels.
    pub fn new(route: Route, token: u32, file: &mut SharedFile) -> Result<Connection, String> {
        let links = route.hops.len();
        if links > LINKS_MAX {
            return Err(format!("a connection passes at most {LINKS_MAX} links, not {links}"));
        }
        let reached = links.saturating_sub(1);
        let mut vcis = file
            .allocate(token, 2 * (links + 1) + reached)
            .ok_or("no channels are left for another connection")?;
        let reach = vcis.split_off(2 * (links + 1));
        let back = vcis.split_off(links + 1);
        let (sequence, asked, seen) = (0, Vec::new(), Seen::default());
        let (ahead, peer) = (vcis, 0);
        let opened = Connection { route, token, ahead, back, reach, peer, sequence, asked, seen };
        Ok(Connection { peer: opened.ahead[links], ..opened })
    }

    /// A connection that ends at the control channel of whatever is there, to identify it.
    ///
    /// # Errors
    /// As [`Connection::new`].
    pub fn to_control(
        route: Route,
        token: u32,
        file: &mut SharedFile,
    ) -> Result<Connection, String> {
        Connection::new(route, token, file).map(|one| Connection { peer: VCI_CONTROL, ..one })
    }

    /// The channels that it uses, to give them back.
    pub fn vcis(&self) -> Vec<u16> {
        [&self.ahead[..], &self.back, &self.reach].concat()
    }
    /// Channel and port on which the host sends.
    pub fn send_on(&self) -> (u16, u8) {
        let vci = if self.route.hops.is_empty() { self.peer } else { self.ahead[0] };
        (vci, self.route.first)
    }
    /// Channel on which the host receives from the peer.
    pub fn hear_on(&self) -> u16 {
        self.back[0]
    }
    /// Channel and port on which the peer sends.
    pub fn peer_sends_on(&self) -> (u16, u8) {
        (self.back[self.route.hops.len()], self.route.last_back)
    }
    /// Channel on which the peer receives.
    pub fn peer_hears_on(&self) -> u16 {
        self.peer
    }
    /// The application to which its entries belong.
    pub fn token(&self) -> u32 {
        self.token
    }
    /// Number of links.
    pub fn links(&self) -> usize {
        self.route.hops.len()
    }

    /// All entries of link `link`, from 0.
    fn entries(&self, link: usize) -> Vec<Entry> {
        let Hop { ahead: port, back } = self.route.hops[link];
        let valid = Entry::VALID;
        let last = link + 1 == self.links();
        let new_vci = if last { self.peer } else { self.ahead[link + 1] };
        let mut entries = vec![
            Entry { vci: self.ahead[link], new_vci, port, flags: valid },
            Entry {
                vci: self.back[link + 1],
                new_vci: self.back[link],
                port: back,
                flags: valid | Entry::BACK,
            },
        ];
        // Channels that reach later links; the last link before one maps its channel to the control channel.
        for (target, &vci) in (1..).zip(&self.reach).filter(|&(target, _)| target > link) {
            let new_vci = if target == link + 1 { VCI_CONTROL } else { vci };
            entries.push(Entry { vci, new_vci, port, flags: valid });
        }
        entries
    }

    /// The channel that ends at link `link`.
    fn control_of(&self, link: usize) -> u16 {
        if link == 0 { VCI_CONTROL } else { self.reach[link - 1] }
    }

    fn emit(&mut self, vci: u16, op: Op, entries: Vec<Entry>) -> VunetCell {
        self.sequence = self.sequence.wrapping_add(1);
        let control = Control { op, sequence: self.sequence, token: self.token, entries };
        let cell = control_cell(vci, self.route.first, &control);
        cell.expect("a connection writes no more entries than fit a cell")
    }

    fn write(&mut self, link: usize, flags_cleared: u8) -> Vec<VunetCell> {
        let entries = self.entries(link);
        let vci = self.control_of(link);
        let cleared = |entry: &Entry| Entry { flags: entry.flags & !flags_cleared, ..*entry };
        let chunks: Vec<Vec<Entry>> =
            entries.chunks(ENTRIES_MAX).map(|chunk| chunk.iter().map(cleared).collect()).collect();
        chunks.into_iter().map(|entries| self.emit(vci, Op::Write, entries)).collect()
    }

    /// Opens it: writes the entries of every link, near to far, and pings the peer.
    pub fn open(&mut self) -> Vec<VunetCell> {
        let mut cells: Vec<VunetCell> =
            (0..self.links()).flat_map(|link| self.write(link, 0)).collect();
        let (new_vci, port) = self.peer_sends_on();
        let to = Entry { vci: 0, new_vci, port, flags: 0 };
        let (vci, _) = self.send_on();
        cells.push(self.emit(vci, Op::Ping, vec![to]));
        cells
    }

    /// Closes it: clears the entries of every link, far to near.
    pub fn close(&mut self) -> Vec<VunetCell> {
        self.asked.clear();
        (0..self.links()).rev().flat_map(|link| self.write(link, Entry::VALID)).collect()
    }

    /// Requests the entries of every link. Links that have not answered the last request are written again, as far
    /// as they can be reached, nearest first.
    pub fn verify(&mut self) -> Vec<VunetCell> {
        let mut silent: Vec<usize> = self.asked.drain(..).map(|(_, link, _)| link).collect();
        silent.dedup();
        let mut cells = Vec::new();
        for link in silent {
            self.seen.silent += 1;
            cells.extend(self.refresh(link));
        }
        for link in 0..self.links() {
            let hop = self.route.hops[link];
            // Back to the host from the near side of the link.
            let to = Entry { vci: 0, new_vci: self.back[link], port: hop.back, flags: 0 };
            let vci = self.control_of(link);
            for expected in self.entries(link).chunks(READ_MAX) {
                let mut asked = vec![to];
                asked.extend_from_slice(expected);
                cells.push(self.emit(vci, Op::Read, asked));
                self.asked.push((self.sequence, link, expected.to_vec()));
            }
        }
        cells
    }

    fn refresh(&mut self, link: usize) -> Vec<VunetCell> {
        self.seen.refreshed += 1;
        self.write(link, 0)
    }

    /// A control cell arrives back at the host. Returns the cells to send now, with the entries of a link that
    /// were wrong.
    pub fn receive(&mut self, cell: &VunetCell) -> Vec<VunetCell> {
        let reply =
            control_in(cell).filter(|reply| reply.op == Op::ReadReply && reply.token == self.token);
        let Some(reply) = reply else { return Vec::new() };
        if let [Entry { flags: Entry::CLIENT, .. }] = reply.entries[..] {
            self.seen.peer = true;
            return Vec::new();
        }
        let known = self.asked.iter().position(|&(number, ..)| number == reply.sequence);
        let Some(place) = known else { return Vec::new() };
        let (_, link, expected) = self.asked.remove(place);
        if reply.entries == expected {
            self.seen.right += 1;
            return Vec::new();
        }
        self.seen.wrong += 1;
        self.refresh(link)
    }

    /// Whether every link has answered the last verification.
    pub fn settled(&self) -> bool {
        self.asked.is_empty()
    }
}

/// A peer's answer to a ping on a connection: a cell on the return path that the ping names.
pub fn pong(cell: &VunetCell, number: u16) -> Option<VunetCell> {
    let ping = control_in(cell).filter(|control| control.op == Op::Ping)?;
    let to = ping.entries.first()?;
    let entries = vec![Entry { vci: number, new_vci: 0, port: 0, flags: Entry::CLIENT }];
    let answer = Control { op: Op::ReadReply, entries, ..ping };
    control_cell(to.new_vci, to.port, &answer).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::site::{End, Site};
    use super::super::vci::Block;
    use super::super::{card::Side, data_cell};
    use super::*;
    use lastmeter_base::Stream;

    /// Switches in a chain, with a host at the first and a peer at the last.
    pub(in super::super) fn row(switches: usize) -> (Site, Route) {
        let mut site = Site::new(switches);
        site.client(0);
        for switch in 1..switches {
            site.link(switch - 1, switch);
        }
        site.client(switches - 1);
        let (_, host) = site.clients[0];
        let (_, peer) = site.clients[1];
        let mut ahead: Vec<u8> = site.ends.iter().map(|ends| ends[0].1).collect();
        ahead.push(peer);
        let mut back = vec![host];
        back.extend(site.ends.iter().map(|ends| ends[1].1));
        let hops = ahead[1..].iter().zip(&back).map(|(&ahead, &back)| Hop { ahead, back });
        let last_back = *back.last().unwrap();
        (site, Route { first: ahead[0], hops: hops.collect(), last_back })
    }

    fn file() -> SharedFile {
        SharedFile::new(0, Block { first: 1000, count: 1000 })
    }

    /// Sends cells, and passes what comes back to the connection, until nothing does.
    fn talk(site: &mut Site, connection: &mut Connection, mut cells: Vec<VunetCell>) {
        while !cells.is_empty() {
            let heard = site.converse(0, std::mem::take(&mut cells));
            for (at, cell) in heard {
                assert_eq!(at, 0, "nothing reaches another client");
                cells.extend(connection.receive(&cell));
            }
        }
    }

    /// Whether data arrives in both directions.
    fn carries(site: &mut Site, connection: &Connection) -> bool {
        let (vci, port) = connection.send_on();
        let there = site.send(0, data_cell(vci, port, true, &[1; 48]));
        let (vci, port) = connection.peer_sends_on();
        let back = site.send(1, data_cell(vci, port, true, &[2; 48]));
        let came = |ends: &[End], at: usize, vci: u16| match ends {
            [End::Client(client, cell)] => *client == at && cell.vci() == vci,
            _ => false,
        };
        came(&there, 1, connection.peer_hears_on()) && came(&back, 0, connection.hear_on())
    }

    #[test]
    fn a_69_an_application_opens_uses_and_closes_its_connection() {
        for switches in 1..=9 {
            let (mut site, route) = row(switches);
            let mut file = file();
            let mut connection = Connection::new(route, 5, &mut file).unwrap();
            assert!(switches == 1 || !carries(&mut site, &connection));
            let cells = connection.open();
            talk(&mut site, &mut connection, cells);
            assert!(connection.seen.peer && carries(&mut site, &connection), "{switches}");
            let entries: usize = site.cards.iter().map(|card| card.used()).sum();
            let links = switches - 1;
            // Two for data at each link, and those that reach later links.
            assert_eq!(entries, 2 * links + links * links.saturating_sub(1) / 2);
            let cells = connection.close();
            talk(&mut site, &mut connection, cells);
            assert!(site.cards.iter().all(|card| card.used() == 0));
        }
    }

    #[test]
    fn a_71_any_link_that_lost_its_tables_is_refreshed() {
        let mut random = Stream::new(1, "restart");
        for round in 0..60 {
            let (mut site, route) = row(2 + round % 7);
            let mut connection = Connection::new(route, 5, &mut file()).unwrap();
            let cells = connection.open();
            talk(&mut site, &mut connection, cells);
            for card in &mut site.cards {
                if random.chance(0.5) {
                    card.restart();
                }
            }
            // A link beyond another that is being written answers in the next round.
            for _ in 0..2 * site.cards.len() + 1 {
                let cells = connection.verify();
                talk(&mut site, &mut connection, cells);
            }
            let refreshed = connection.seen.refreshed;
            assert!(carries(&mut site, &connection), "round {round}");
            let cells = connection.verify();
            talk(&mut site, &mut connection, cells);
            assert!(connection.settled());
            assert_eq!(connection.seen.refreshed, refreshed, "nothing is left to write");
        }
    }

    #[test]
    fn a_70_connections_of_random_applications_do_not_interfere() {
        let mut random = Stream::new(3, "applications");
        let (mut site, route) = row(5);
        let mut file = file();
        let mut open: Vec<Connection> = Vec::new();
        for token in 0..400 {
            if random.chance(0.4) && !open.is_empty() {
                let mut one = open.swap_remove(random.below(open.len() as u64) as usize);
                let cells = one.close();
                talk(&mut site, &mut one, cells);
                file.give_back(one.token, &one.vcis()).unwrap();
            } else if let Ok(mut one) = Connection::new(route.clone(), token, &mut file) {
                let cells = one.open();
                talk(&mut site, &mut one, cells);
                open.push(one);
            }
            assert!(open.iter().all(|one| carries(&mut site, one)));
        }
        assert!(open.len() > 20 && site.cards.iter().all(|card| card.counts().refused == 0));
    }

    #[test]
    fn cells_that_are_not_an_answer_change_nothing() {
        let (mut site, route) = row(3);
        let mut connection = Connection::new(route, 5, &mut file()).unwrap();
        let before = connection.clone();
        assert_eq!(connection.receive(&data_cell(1000, 0, false, &[3; 48])), []);
        assert_eq!(connection, before);
        assert_eq!(site.cards[0].entry(Side::A, 1000).flags, 0);
        assert_eq!(site.send(0, data_cell(9, 5, false, &[0; 48])), [End::Lost("no port")]);
    }
}
