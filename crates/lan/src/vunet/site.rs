//! A VuNet without time: switches, links and clients, through which a cell passes at once to its end.
//!
//! Signalling, daemons and discovery depend on the order of cells and not on their times, so they are tested here,
//! with the same links and messages as in a run.

use super::card::{Action, Card, Side};
use super::connection::pong;
use lastmeter_wire::atm::vunet::VunetCell;
use std::collections::VecDeque;

/// Most ports of a switch.
pub const PORTS_MAX: u8 = 6;
/// Most links that a cell may pass before it is considered to be looping.
const STEPS_MAX: usize = 256;

/// What is attached to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attached {
    /// A host or an appliance, by index.
    Client(usize),
    /// An end of a link, by index.
    Link(usize, Side),
}

/// Where a cell ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// At a client.
    Client(usize, VunetCell),
    /// In a link, which processed it.
    Taken(usize),
    /// Nowhere: a port with nothing attached, a table without an entry, a loop.
    Lost(&'static str),
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Site {
    /// What is attached to each port of each switch.
    pub switches: Vec<[Option<Attached>; PORTS_MAX as usize]>,
    /// Links.
    pub cards: Vec<Card>,
    /// The switch and port of each client.
    pub clients: Vec<(usize, u8)>,
    /// The switch and port of each end of each link.
    pub ends: Vec<[(usize, u8); 2]>,
}

impl Site {
    /// A network with this many switches, with nothing attached.
    pub fn new(switches: usize) -> Site {
        Site { switches: vec![Default::default(); switches], ..Site::default() }
    }

    fn attach(&mut self, switch: usize, what: Attached) -> Option<u8> {
        let free = self.switches.get(switch)?.iter().position(Option::is_none)?;
        self.switches[switch][free] = Some(what);
        Some(free as u8)
    }

    /// Attaches a client; `None` if no port is free.
    pub fn client(&mut self, switch: usize) -> Option<usize> {
        let place = self.clients.len();
        let port = self.attach(switch, Attached::Client(place))?;
        self.clients.push((switch, port));
        Some(place)
    }

    /// Connects two switches; `None` if one of them has no free port.
    pub fn link(&mut self, a: usize, b: usize) -> Option<usize> {
        let place = self.cards.len();
        let at_a = self.attach(a, Attached::Link(place, Side::A))?;
        let Some(at_b) = self.attach(b, Attached::Link(place, Side::B)) else {
            self.switches[a][usize::from(at_a)] = None;
            return None;
        };
        self.cards.push(Card::new(100 + place as u16));
        self.ends.push([(a, at_a), (b, at_b)]);
        Some(place)
    }

    /// Sends a cell from a client into its switch and follows it, and the answers of links, to their ends.
    pub fn send(&mut self, client: usize, cell: VunetCell) -> Vec<End> {
        let mut ends = Vec::new();
        let mut under_way = VecDeque::from([(self.clients[client].0, cell)]);
        for _ in 0..STEPS_MAX {
            let Some((switch, cell)) = under_way.pop_front() else { return ends };
            match self.switches[switch].get(usize::from(cell.port())).copied().flatten() {
                None => ends.push(End::Lost("no port")),
                Some(Attached::Client(client)) => ends.push(End::Client(client, cell)),
                Some(Attached::Link(link, side)) => match self.cards[link].receive(side, cell) {
                    Action::Forward(cell) => {
                        under_way.push_back((self.ends[link][side.other() as usize].0, cell));
                    }
                    Action::Answer(cell) => {
                        under_way.push_back((self.ends[link][side as usize].0, cell));
                    }
                    Action::Taken => ends.push(End::Taken(link)),
                    Action::Drop(reason) => ends.push(End::Lost(reason)),
                },
            }
        }
        ends.push(End::Lost("a loop"));
        ends
    }

    /// Sends cells, and lets clients answer pings, until nothing is in transit. Returns what arrives at `client`,
    /// and what reached other clients.
    pub fn converse(&mut self, client: usize, cells: Vec<VunetCell>) -> Vec<(usize, VunetCell)> {
        let mut heard = Vec::new();
        let mut left: VecDeque<(usize, VunetCell)> =
            cells.into_iter().map(|cell| (client, cell)).collect();
        while let Some((from, cell)) = left.pop_front() {
            for end in self.send(from, cell) {
                let End::Client(at, cell) = end else { continue };
                match pong(&cell, at as u16) {
                    Some(answer) => left.push_back((at, answer)),
                    None => heard.push((at, cell)),
                }
            }
        }
        heard
    }
}
