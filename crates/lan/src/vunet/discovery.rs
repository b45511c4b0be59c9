//! How a host discovers its network: a daemon that pings every port of every switch in reach, through links that
//! it writes itself.
//!
//! ```text
//! own switch:   a ping to port p with p as the return port is heard only by whatever is at p: the
//!               host itself, if p is its own port. Then every other port, with the host's as the return port.
//! beyond a link: a ping to port p with p as the return port returns only through the link passed,
//!               with its number, if p is that link's own end. Then every other port.
//! ```
//!
//! Switches have no names. A switch is identified by what is at its ports: ends of links (number and side) and
//! clients. A switch found twice closes a loop. Source: Aurora report §3.6 ("topology daemons"), which gives no
//! details.

use super::connection::{Connection, Hop, Route};
use super::control_in;
use super::site::{PORTS_MAX, Site};
use super::vci::SharedFile;
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::vunet::{Control, Entry};
use std::collections::{BTreeMap, VecDeque};

/// What answered at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Found {
    /// A client, by its number.
    Client(u16),
    /// An end of a link, by its number and side.
    Link(u16, u8),
}

/// The path to a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Ports by which cells leave the preceding switches.
    pub ahead: Vec<u8>,
    /// Ports by which cells return: at the host's own switch that of the host, at each further one that of the
    /// link passed.
    pub back: Vec<u8>,
}

impl Way {
    /// The route to what is at `port` of the switch.
    pub fn route(&self, port: u8) -> Route {
        let ahead = [&self.ahead[..], &[port]].concat();
        let hops = ahead[1..].iter().zip(&self.back);
        Route {
            first: ahead[0],
            hops: hops.map(|(&ahead, &back)| Hop { ahead, back }).collect(),
            last_back: self.back.last().copied().unwrap_or(0),
        }
    }
}

/// A host's knowledge of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// What answered at each port of each switch; the host's own switch is the first.
    pub switches: Vec<BTreeMap<u8, Found>>,
    /// The path to each switch.
    pub ways: Vec<Way>,
    /// Cells that the daemon has sent to open connections and to ping.
    pub cells: u64,
}

impl Map {
    /// Links, each with the switches at its ends.
    pub fn links(&self) -> BTreeMap<u16, Vec<usize>> {
        let mut links: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (place, switch) in self.switches.iter().enumerate() {
            for &found in switch.values() {
                if let Found::Link(number, _) = found {
                    links.entry(number).or_default().push(place);
                }
            }
        }
        links
    }
    /// Every client, with its switch and port.
    pub fn clients(&self) -> BTreeMap<u16, (usize, u8)> {
        let mut clients = BTreeMap::new();
        for (place, switch) in self.switches.iter().enumerate() {
            for (&port, &found) in switch {
                if let Found::Client(number) = found {
                    clients.insert(number, (place, port));
                }
            }
        }
        clients
    }
    /// The route to a client; `None` if it was not found.
    pub fn route(&self, client: u16) -> Option<Route> {
        let &(switch, port) = self.clients().get(&client)?;
        Some(self.ways[switch].route(port))
    }
}

/// How a daemon reaches its network.
pub trait Reach {
    /// A connection to whatever is at the end of `route`, as [`Connection::to_control`].
    ///
    /// # Errors
    /// As there.
    fn connect(&mut self, route: Route) -> Result<Connection, String>;
    /// Sends cells, the last of which is a ping, and returns what answers arrive.
    fn ask(&mut self, cells: Vec<VunetCell>) -> Vec<Control>;
    /// Sends the cells that close a connection, and gives its channels back.
    ///
    /// # Errors
    /// If they are not the daemon's.
    fn close(&mut self, connection: &mut Connection) -> Result<(), String>;
}

/// A network without time.
struct Within<'a> {
    site: &'a mut Site,
    client: usize,
    file: &'a mut SharedFile,
}

impl Reach for Within<'_> {
    fn connect(&mut self, route: Route) -> Result<Connection, String> {
        Connection::to_control(route, TOKEN, self.file)
    }
    fn ask(&mut self, cells: Vec<VunetCell>) -> Vec<Control> {
        let heard = self.site.converse(self.client, cells);
        let mine = heard.into_iter().filter(|&(at, _)| at == self.client);
        mine.filter_map(|(_, cell)| control_in(&cell)).collect()
    }
    fn close(&mut self, connection: &mut Connection) -> Result<(), String> {
        self.site.converse(self.client, connection.close());
        let given = self.file.give_back(TOKEN, &connection.vcis());
        given.map_err(|refusal| format!("channels are not the daemon's: {refusal:?}"))
    }
}

/// Runs the daemon of `client`, with channels from its host's file.
///
/// # Errors
/// If nothing answers, or the host has no channels left.
pub fn discover(site: &mut Site, client: usize, file: &mut SharedFile) -> Result<Map, String> {
    explore(&mut Within { site, client, file }, client as u16)
}

/// Runs the daemon of the client with this number, wherever its network is.
///
/// # Errors
/// If nothing answers, or the host has no channels left.
pub fn explore(reach: &mut dyn Reach, client: u16) -> Result<Map, String> {
    let mut daemon = Daemon { reach, map: Map::default() };
    let start = Way { ahead: Vec::new(), back: vec![0] };
    let own = Found::Client(client);
    let found = daemon.switch(start, own)?.ok_or("nothing answers at any port")?;
    daemon.add(found);
    let mut left = VecDeque::from([0]);
    while let Some(switch) = left.pop_front() {
        let ports = daemon.map.switches[switch].clone();
        for (port, found) in ports {
            let Found::Link(link, side) = found else { continue };
            if daemon.map.links().get(&link).is_some_and(|ends| ends.len() > 1) {
                continue;
            }
            let Way { mut ahead, mut back } = daemon.map.ways[switch].clone();
            ahead.push(port);
            back.push(0);
            let other_end = Found::Link(link, 1 - side);
            if let Some(new) = daemon.switch(Way { ahead, back }, other_end)?
                && !daemon.is_known(&new)
            {
                if daemon.map.switches.len() == SWITCHES_MAX {
                    return Err(format!("there are more than {SWITCHES_MAX} switches"));
                }
                left.push_back(daemon.map.switches.len());
                daemon.add(new);
            }
        }
    }
    Ok(daemon.map)
}

struct Daemon<'a> {
    reach: &'a mut dyn Reach,
    map: Map,
}

const TOKEN: u32 = 0x7000_0001;
/// Most switches that a daemon remembers.
pub const SWITCHES_MAX: usize = 1024;

type Switch = (Way, BTreeMap<u8, Found>);

impl Daemon<'_> {
    fn add(&mut self, (way, ports): Switch) {
        self.map.ways.push(way);
        self.map.switches.push(ports);
    }

    fn is_known(&self, (_, ports): &Switch) -> bool {
        self.map
            .switches
            .iter()
            .any(|known| known.values().any(|one| ports.values().any(|other| other == one)))
    }

    /// Explores a switch, given the path to it without the last return port; `own` is what answers there.
    fn switch(&mut self, mut way: Way, own: Found) -> Result<Option<Switch>, String> {
        let last = way.back.len() - 1;
        for back in 0..PORTS_MAX {
            way.back[last] = back;
            if self.ping(&way, back)? != Some(own) {
                continue;
            }
            let mut ports = BTreeMap::new();
            for port in 0..PORTS_MAX {
                if let Some(found) = self.ping(&way, port)? {
                    ports.insert(port, found);
                }
            }
            return Ok(Some((way, ports)));
        }
        Ok(None)
    }

    /// Opens a connection to what is at `port` of a switch, pings it, and closes the connection.
    fn ping(&mut self, way: &Way, port: u8) -> Result<Option<Found>, String> {
        let mut opened = self.reach.connect(way.route(port))?;
        let opening = opened.open();
        self.map.cells += opening.len() as u64;
        let answers = self.reach.ask(opening);
        self.reach.close(&mut opened)?;
        Ok(answers.iter().find_map(found_in))
    }
}

fn found_in(answer: &Control) -> Option<Found> {
    match answer.entries[..] {
        [Entry { vci, flags: Entry::CLIENT, .. }] => Some(Found::Client(vci)),
        [Entry { vci, port, flags: 0, .. }] => Some(Found::Link(vci, port)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::vci::Block;
    use super::*;
    use lastmeter_base::Stream;

    fn file() -> SharedFile {
        SharedFile::new(0, Block { first: 100, count: 500 })
    }

    /// A random network: a tree of links, plus some more links; at least one client at each switch.
    pub(crate) fn random_site(random: &mut Stream, switches: usize) -> Site {
        let mut site = Site::new(switches);
        for switch in 1..switches {
            while site.link(random.below(switch as u64) as usize, switch).is_none() {}
        }
        for _ in 0..random.below(switches as u64) {
            let (a, b) = (random.below(switches as u64), random.below(switches as u64));
            site.link(a as usize, b as usize);
        }
        for _ in 0..2 * switches {
            site.client(random.below(switches as u64) as usize);
        }
        site
    }

    #[test]
    fn a_72_a_daemon_finds_every_switch_link_and_client_and_leaves_nothing_behind() {
        let mut random = Stream::new(1, "topology");
        for round in 0..40 {
            let mut site = random_site(&mut random, 1 + round % 7);
            if site.clients.is_empty() {
                continue;
            }
            let client = random.below(site.clients.len() as u64) as usize;
            let map = discover(&mut site, client, &mut file()).unwrap();
            assert_eq!(map.switches.len(), site.switches.len(), "round {round}");
            assert_eq!(map.links().len(), site.cards.len());
            assert!(map.links().values().all(|ends| ends.len() == 2));
            assert_eq!(map.clients().len(), site.clients.len());
            let ports = map.clients();
            assert!((0..).zip(&site.clients).all(|(at, &(_, port))| ports[&at].1 == port));
            assert!(site.cards.iter().all(|card| card.used() == 0), "entries are left");
        }
    }

    #[test]
    fn a_72_discovered_routes_lead_to_every_client() {
        let mut random = Stream::new(2, "topology");
        for _ in 0..20 {
            let mut site = random_site(&mut random, 5);
            let mut file = file();
            let map = discover(&mut site, 0, &mut file).unwrap();
            for to in 1..site.clients.len() {
                let route = map.route(to as u16).unwrap();
                let mut connection = Connection::new(route, 7, &mut file).unwrap();
                let cells = connection.open();
                let heard = site.converse(0, cells);
                heard.iter().for_each(|(_, cell)| drop(connection.receive(cell)));
                assert!(connection.seen.peer, "client {to} did not answer");
                let closing = connection.close();
                site.converse(0, closing);
                file.give_back(7, &connection.vcis()).unwrap();
            }
        }
    }
}
