//! How a node of the ring handles words, messages, the token and frames: bring-up in two phases, ring identities,
//! stripping, the monitor, and recovery.
//!
//! ```text
//! host    off --power--> FW0 --FW1--> FW1 --RING_UP h--> up, RID h+1     any --FW0, no signal--> FW0
//!                                                                         up --FW1--> FW1
//! master  off --power--> FW0 --FW0--> FW1 --FW1--> RING_UP --RING_UP h--> up, h hosts, token
//!                         ^            |              |                    |
//!                         '------------+--------------+--- too long, FW0 --' (up: FW0, no signal)
//! ```
//!
//! FW0 and FW1 are fill words that the physical layer sends whenever it is idle; here a word is a signal when it
//! changes, and repeated from time to time ([`Node::repeat`]). When FW1 has come around, the master knows that
//! every link works; then one RING_UP message counts the hosts and gives each its ring identity. The master's
//! timeouts are longer than a signal takes around the ring ([`Node::expire`]), and it replaces a token that it has
//! not seen for 2 TTRT.
//!
//! A port connected to another port receives an unsolicited FW1, and a RING_UP that counts no host: each port can
//! then use its whole fibre to the other (J-09).
//!
//! A frame is stripped by its source. The master marks frames that pass, and strips marked ones: a frame whose
//! source is gone goes around at most twice.
//!
//! Source: HPL-93-37 §3.2 and §3.3. The document does not say how a host that is up reacts to FW1, nor how long
//! the master waits; both are our choice. A node that joins or leaves breaks the ring, and its downstream
//! neighbour loses the signal (§3.3, "when a node is added or removed").

use lastmeter_wire::Error;
use lastmeter_wire::jetstream::{self, Header, Kind, RID_MAX};

/// A transmission of a node to its neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// FW0: not every link is known to work.
    Fw0,
    /// FW1: every link so far works.
    Fw1,
    /// RING_UP: the number of hosts that it has visited.
    RingUp(u8),
    /// The token: the right to send.
    Token,
    /// A data frame, of which only the header matters.
    Frame(Header),
}

impl Signal {
    /// The bytes of a message, or of the header of a frame; none for words.
    ///
    /// # Errors
    /// If a ring identity or a count does not fit its field.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        match self {
            Signal::Fw0 | Signal::Fw1 => Ok(Vec::new()),
            Signal::RingUp(hops) => Ok(jetstream::emit_ring_up(*hops)?.to_vec()),
            Signal::Token => {
                let header = jetstream::data_header(0, false);
                Ok(Header { kind: Kind::Token, ..header }.emit()?.to_vec())
            }
            Signal::Frame(header) => Ok(header.emit()?.to_vec()),
        }
    }

    /// Parses the bytes that follow a word.
    ///
    /// # Errors
    /// If they are neither a message nor a frame.
    pub fn parse(bytes: &[u8]) -> Result<Signal, Error> {
        let (header, _) = Header::parse(bytes)?;
        Ok(match header.kind {
            Kind::RingUp => Signal::RingUp(jetstream::parse_ring_up(bytes)?),
            Kind::Token => Signal::Token,
            Kind::Data => Signal::Frame(header),
        })
    }
}

/// State of a node's bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Without power: passes nothing on.
    Off,
    /// Sends FW0.
    Fw0,
    /// Sends FW1.
    Fw1,
    /// The master waits for its own RING_UP.
    RingUp,
    /// The ring works.
    Up,
}

/// What is attached to a switch's port, as far as the port can tell (J-09).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// Another master, or only the port's own cable: no host was counted.
    Switch,
    /// One host, on both fibres.
    Host,
    /// Several hosts.
    Ring(u8),
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Whether it is the master: the switch's port, or the node that was chosen (J-40).
    pub master: bool,
    /// State of bring-up.
    pub state: State,
    /// Its ring identity; the master's is 0.
    pub rid: Option<u8>,
    /// On the master: number of hosts on its ring (J-41).
    pub hosts: Option<u8>,
    /// Whether it has the token.
    pub holds: bool,
    /// Frames addressed to it.
    pub read: u8,
}

impl Node {
    /// A node without power.
    pub fn new(master: bool) -> Node {
        Node { master, state: State::Off, rid: None, hosts: None, holds: false, read: 0 }
    }

    /// Gets power, and begins.
    pub fn power(&mut self) -> Signal {
        self.begin()
    }

    /// It loses its input signal: its upstream neighbour has gone or was replaced.
    pub fn no_signal(&mut self) -> Option<Signal> {
        (self.state != State::Off).then(|| self.begin())
    }

    fn begin(&mut self) -> Signal {
        self.state = State::Fw0;
        self.holds = false;
        self.hosts = None;
        self.rid = self.master.then_some(0);
        Signal::Fw0
    }

    /// The word that it repeats, if it is sending words.
    pub fn repeat(&self) -> Option<Signal> {
        match self.state {
            State::Fw0 => Some(Signal::Fw0),
            State::Fw1 => Some(Signal::Fw1),
            State::Off | State::RingUp | State::Up => None,
        }
    }

    /// The master's timeout: longer than a signal takes around, or 2 TTRT without a token.
    pub fn expire(&mut self) -> Option<Signal> {
        match self.state {
            _ if !self.master => None,
            State::Off | State::Fw0 => None,
            State::Fw1 | State::RingUp => Some(self.begin()),
            State::Up if self.holds => None,
            State::Up => Some(Signal::Token),
        }
    }

    /// Receives a signal; returns what it sends.
    pub fn receive(&mut self, signal: Signal) -> Option<Signal> {
        match (self.state, signal) {
            (State::Off, _) => None,
            (_, Signal::Fw0 | Signal::Fw1 | Signal::RingUp(_)) if self.master => {
                self.receive_as_master(signal)
            }
            (State::Fw0, Signal::Fw0) => None,
            (_, Signal::Fw0) => Some(self.begin()),
            (State::Fw1, Signal::Fw1) => None,
            (_, Signal::Fw1) => {
                self.begin();
                self.state = State::Fw1;
                Some(Signal::Fw1)
            }
            // Without a preceding FW1, the links beyond this node are not known to work.
            (State::Fw0, Signal::RingUp(_)) => None,
            (_, Signal::RingUp(hops)) => self.count(hops),
            (State::Up, Signal::Token) => {
                // A second token at a station that is sending is stripped.
                self.holds = true;
                None
            }
            (State::Up, Signal::Frame(header)) => self.pass(header),
            (State::Fw0 | State::Fw1 | State::RingUp, Signal::Token | Signal::Frame(_)) => None,
        }
    }

    fn receive_as_master(&mut self, signal: Signal) -> Option<Signal> {
        match (self.state, signal) {
            (State::Fw0, Signal::Fw0) => {
                self.state = State::Fw1;
                Some(Signal::Fw1)
            }
            // Hosts send FW1 only after the master's own: another master is at the other end.
            (State::Fw0, Signal::Fw1) => {
                self.state = State::Fw1;
                Some(Signal::Fw1)
            }
            (State::Fw1, Signal::RingUp(0)) => {
                self.hosts = Some(0);
                self.state = State::Up;
                self.holds = true;
                Some(Signal::RingUp(0))
            }
            (State::Fw1, Signal::Fw1) => {
                self.state = State::RingUp;
                Some(Signal::RingUp(0))
            }
            (State::RingUp, Signal::RingUp(hops)) => {
                self.hosts = Some(hops);
                self.state = State::Up;
                self.holds = true;
                None
            }
            // Some link has failed in the meantime.
            (State::RingUp | State::Up, Signal::Fw0) => Some(self.begin()),
            _ => None,
        }
    }

    /// J-39, J-48: the message counts the node, and the count becomes its identity.
    fn count(&mut self, hops: u8) -> Option<Signal> {
        let rid = hops.checked_add(1).filter(|&rid| rid <= RID_MAX)?;
        self.rid = Some(rid);
        self.state = State::Up;
        self.holds = false;
        Some(Signal::RingUp(rid))
    }

    /// A frame passes: it is read (J-34), stripped by its source (J-35), or marked or stripped by the monitor
    /// (J-33).
    fn pass(&mut self, mut header: Header) -> Option<Signal> {
        let what = header.disposition(self.rid, false);
        if what.strip {
            return None;
        }
        self.read = (self.read + u8::from(what.read)).min(1);
        if self.master && header.pass_monitor() {
            return None;
        }
        Some(Signal::Frame(header))
    }

    /// It holds the token, and sends a frame to the station `dst`.
    pub fn send(&self, dst: u8) -> Option<Signal> {
        let src = self.rid.filter(|_| self.holds)?;
        let address_type = jetstream::AddressType::Rid;
        let header = jetstream::data_header(src, true);
        Some(Signal::Frame(Header { address_type, dst, ..header }))
    }

    /// It passes the token on.
    pub fn release(&mut self) -> Option<Signal> {
        std::mem::take(&mut self.holds).then_some(Signal::Token)
    }

    /// What the master has learned of the other end, once the ring is up.
    pub fn attached(&self) -> Option<Attached> {
        Some(match self.hosts? {
            0 => Attached::Switch,
            1 => Attached::Host,
            hosts => Attached::Ring(hosts),
        })
    }
}

/// Brings a ring up, in order and without loss: each node gets power and signals go around; when none is in
/// transit, a word is repeated or the master's timeout expires. The master is `nodes[0]`. Returns how many RING_UP
/// messages the master sent, or `None` if the ring does not come up.
pub fn bring_up(nodes: &mut [Node]) -> Option<u32> {
    /// Most repeated words and timeouts before it is given up.
    const TRIES: usize = 8;
    let (count, mut messages) = (nodes.len(), 0);
    for _ in 0..TRIES {
        for from in 0..count {
            let mut signal = nodes[from].repeat();
            let mut at = from;
            while let Some(under_way) = signal {
                messages += u32::from(under_way == Signal::RingUp(0));
                at = (at + 1) % count;
                signal = nodes[at].receive(under_way);
            }
        }
        if nodes[0].state == State::Up {
            return Some(messages);
        }
        for node in &mut *nodes {
            node.expire();
        }
    }
    None
}

#[cfg(test)]
mod explore;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_jetstreams_format() {
        let frame = Signal::Frame(jetstream::data_header(3, true));
        for signal in [Signal::RingUp(0), Signal::RingUp(15), Signal::Token, frame] {
            assert_eq!(Signal::parse(&signal.emit().unwrap()), Ok(signal));
        }
        assert!(Signal::RingUp(16).emit().is_err() && Signal::parse(&[0xff, 0, 0]).is_err());
    }

    fn ring(hosts: usize) -> Vec<Node> {
        let mut nodes: Vec<Node> = (0..=hosts).map(|at| Node::new(at == 0)).collect();
        for node in &mut nodes {
            node.power();
        }
        nodes
    }

    fn bring_up(hosts: usize) -> Vec<Node> {
        let mut nodes = ring(hosts);
        assert_eq!(super::bring_up(&mut nodes), Some(1));
        nodes
    }

    #[test]
    fn j_39_j_41_one_message_gives_all_identities_and_returns_with_their_number() {
        for hosts in 1..=15u8 {
            let nodes = bring_up(hosts.into());
            assert_eq!(nodes[0].hosts, Some(hosts));
            assert!(nodes[0].holds);
            let rids: Vec<Option<u8>> = nodes.iter().map(|node| node.rid).collect();
            assert_eq!(rids, (0..=hosts).map(Some).collect::<Vec<_>>());
        }
        assert_eq!(bring_up(1)[0].attached(), Some(Attached::Host));
        assert_eq!(bring_up(9)[0].attached(), Some(Attached::Ring(9)));
    }

    #[test]
    fn j_09_two_ports_find_each_other_in_any_order_and_after_any_single_loss() {
        let mut random = lastmeter_base::Stream::new(1, "ports");
        for round in 0..2000 {
            let mut ports = [Node::new(true), Node::new(true)];
            let mut links: [std::collections::VecDeque<Signal>; 2] = Default::default();
            let mut losses = round % 2;
            for _ in 0..400 {
                let at = random.below(2) as usize;
                let sent = match links[1 - at].pop_front() {
                    Some(_) if losses > 0 && random.chance(0.2) => {
                        losses -= 1;
                        None
                    }
                    Some(signal) => ports[at].receive(signal),
                    None if ports[at].state == State::Off => Some(ports[at].power()),
                    // No signal is in transit: words are repeated, and now and then a timeout expires.
                    None if links[at].is_empty() && random.chance(0.2) => ports[at].expire(),
                    None if links[at].is_empty() => ports[at].repeat(),
                    None => None,
                };
                // There is no token between ports.
                links[at].extend(sent.filter(|&signal| signal != Signal::Token));
            }
            let attached = ports.each_ref().map(Node::attached);
            assert_eq!(attached, [Some(Attached::Switch); 2], "round {round}: {ports:?}");
        }
    }

    #[test]
    fn j_08_a_sixteenth_host_keeps_the_ring_down() {
        let mut nodes = ring(16);
        assert_eq!(super::bring_up(&mut nodes), None);
        assert_eq!(nodes[0].hosts, None);
    }

    #[test]
    fn j_61_a_node_without_power_keeps_the_ring_down_and_a_hub_bypasses_it() {
        let mut nodes = ring(4);
        nodes[2] = Node::new(false);
        assert_eq!(super::bring_up(&mut nodes), None);
        nodes.remove(2);
        assert_eq!(super::bring_up(&mut nodes), Some(1));
        assert_eq!(nodes[0].hosts, Some(3));
    }

    #[test]
    fn j_40_a_node_without_identity_reads_everything() {
        let header = jetstream::data_header(7, true);
        assert!(header.disposition(None, false).read);
        assert_eq!(Node::new(false).rid, None);
    }

    #[test]
    fn j_34_a_frame_is_read_by_its_destination() {
        let mut nodes = bring_up(3);
        let mut signal = nodes[0].send(2).unwrap();
        for node in &mut nodes[1..] {
            signal = node.receive(signal).unwrap();
        }
        let read: Vec<u8> = nodes.iter().map(|node| node.read).collect();
        assert_eq!(read, [0, 0, 1, 0]);
        assert_eq!(nodes[0].receive(signal), None, "its source strips it");
    }
}
