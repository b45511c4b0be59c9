//! The program at a router's port: what is for this host goes to the kernel, known flows go on at once, all else goes
//! to the port processor.
//!
//! ```text
//! frame --> to another host, ARP, multicast, link-local, an address of ours --------> kernel
//!       --> with a label, or a message of RSVP, where the port takes them ----------> AF_XDP socket
//!       --> exact flow known, packet without fault --> TTL, checksum, addresses --> the other port
//!       --> the same, but the port processor has work with it --> hint in front --> AF_XDP socket
//!       --> any other IPv4 or IPv6 packet ----------------------------------------> AF_XDP socket
//! ```
//!
//! A packet that needs more than forwarding (a TTL that ends, options, a fragment, a wrong checksum, too long for the
//! next link) is never taken by the fast path, so that the port processor sees and counts it: the verdicts are the
//! same with and without. Flows are entered by the port processor, with what it found out about their first packets.
//! Those that it cannot leave to the fast path (a plugin's, reserved ones, those of a shaped line) come up with a hint:
//! the number under which it knows them, as an FPX hands classified packets to its processor on a circuit of their own.
//!
//! Every frame is counted once: here what goes on at once or to the kernel, by the socket what it takes or has no
//! room for.
//!
//! Rows: D-12, D-94.

use crate::bpf::{self, Hook, If, Kind, Label, Map, PASS, Program, Size, to_socket};
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most ports of a router.
pub const PORTS_MAX: u32 = 64;
/// The most addresses of this host.
const LOCAL_MAX: u32 = 4096;
/// The most flows of the fast path.
pub const FLOWS_MAX: u32 = 1 << 16;

const LOOKUP: i32 = 1;
const ADJUST_META: i32 = 54;
const REDIRECT_MAP: i32 = 51;
pub(super) const ABORTED: i32 = 0;
/// A protocol of IP.
const RSVP: i32 = 46;
/// The context's fields.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
pub(super) const CONTEXT: u8 = 6;
pub(super) const PACKET: u8 = 7;
const END: u8 = 8;
const WORD: u8 = 9;
pub(super) const STACK: u8 = 10;

/// Bytes of a hint, which lies in front of its frame.
pub(super) const HINT: usize = 4;
/// Bytes of a port's counts.
const COUNTS: usize = 24;
/// Where they are.
const FORWARDED: u32 = 0;
const FORWARDED_BYTES: u32 = 8;
const TO_KERNEL: u32 = 16;

/// A flow as the fast path tells it from others: addresses, ports, protocol, and the port of the router where it
/// arrives, as that may have filters and plugins of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Source and destination address, as in the packet.
    pub addresses: [u8; 8],
    /// Source and destination port, as in the packet.
    pub ports: [u8; 4],
    /// TCP or UDP.
    pub protocol: u8,
    /// The router's port at which it arrives, below [`PORTS_MAX`].
    pub arrives: u8,
}

impl FlowKey {
    fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.addresses);
        bytes[8..12].copy_from_slice(&self.ports);
        (bytes[12], bytes[13]) = (self.protocol, self.arrives);
        bytes
    }
}

/// Where packets of a flow go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHop {
    /// The port's number among the router's.
    pub port: u32,
    /// The longest IP packet that fits there.
    pub mtu: u32,
    /// Destination and source address of the frame.
    pub macs: [u8; 12],
}

/// What becomes of the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowTo {
    /// They go on at once.
    Hop(FlowHop),
    /// They go to the port processor, with this in front of them.
    Socket(NonZeroU32),
}

/// Frames of a port that its program handled by itself; all others went to the port processor's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Forwarded by the fast path.
    pub forwarded: FlowCount,
    /// Handed to the kernel.
    pub to_kernel: u64,
}

/// Packets and bytes that the fast path forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP.
    pub bytes: u64,
}

/// What the programs of all ports of a router share.
#[derive(Debug)]
pub struct Shared {
    local: Map<4, 4>,
    local_v6: Map<16, 4>,
    flows: Map<16, 40>,
    devices: Map<4, 4>,
    counts: Map<4, { COUNTS * PORTS_MAX as usize }>,
    fast: bool,
}

/// A port of a router.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    /// Its number among the router's, below [`PORTS_MAX`].
    pub port: u32,
    /// The number of its interface in this namespace.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Whether frames with labels (MPLS) and messages of RSVP go to the port processor, not to the kernel.
    pub labels: bool,
}

impl Shared {
    /// Without addresses and flows; with or without the fast path.
    ///
    /// # Errors
    /// When the kernel refuses maps: they need `CAP_BPF`.
    pub fn new(fast: bool) -> io::Result<Shared> {
        Ok(Shared {
            local: Map::new(Kind::Hash, LOCAL_MAX)?,
            local_v6: Map::new(Kind::Hash, LOCAL_MAX)?,
            flows: Map::new(Kind::Recent, FLOWS_MAX)?,
            devices: Map::new(Kind::Devices, PORTS_MAX)?,
            counts: Map::new(Kind::Array, 1)?,
            fast,
        })
    }
    /// Packets to this address go to the kernel.
    ///
    /// # Errors
    /// When there are too many.
    pub fn add_local(&self, address: IpAddr) -> io::Result<()> {
        match address {
            IpAddr::V4(v4) => self.local.insert(&v4.octets(), &[1, 0, 0, 0]),
            IpAddr::V6(v6) => self.local_v6.insert(&v6.octets(), &[1, 0, 0, 0]),
        }
    }
    /// They no longer do.
    pub fn remove_local(&self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.local.remove(&v4.octets()),
            IpAddr::V6(v6) => self.local_v6.remove(&v6.octets()),
        };
    }
    /// Port `number` is interface `index`.
    ///
    /// # Errors
    /// When the number is not below [`PORTS_MAX`].
    pub fn set_port(&self, number: u32, index: u32) -> io::Result<()> {
        self.devices.insert(&number.to_ne_bytes(), &index.to_ne_bytes())
    }
    /// Enters a flow, or changes where it goes; its counts begin at zero. When there are [`FLOWS_MAX`], one that has
    /// not been used for long is forgotten.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn set_flow(&self, key: &FlowKey, to: &FlowTo) -> io::Result<()> {
        let mut value = [0; 40];
        match to {
            FlowTo::Hop(hop) => {
                value[..4].copy_from_slice(&hop.port.to_ne_bytes());
                value[4..16].copy_from_slice(&hop.macs);
                value[32..36].copy_from_slice(&hop.mtu.to_ne_bytes());
            }
            FlowTo::Socket(hint) => value[36..].copy_from_slice(&hint.get().to_ne_bytes()),
        }
        self.flows.insert(&key.bytes(), &value)
    }
    /// What the program of a port has handled by itself so far.
    pub fn handled(&self, port: u32) -> Handled {
        let all = self.counts.get(&[0; 4]);
        let count = |at: u32| -> u64 {
            let at = COUNTS * port as usize + at as usize;
            let bytes = all.as_ref().and_then(|all| all.get(at..at + 8)?.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let forwarded = FlowCount { packets: count(FORWARDED), bytes: count(FORWARDED_BYTES) };
        Handled { forwarded, to_kernel: count(TO_KERNEL) }
    }
    /// Removes a flow; what it forwarded.
    pub fn remove_flow(&self, key: &FlowKey) -> Option<FlowCount> {
        let count = self.flow(key);
        self.flows.remove(&key.bytes());
        count
    }
    /// What the fast path forwarded of a flow.
    pub fn flow(&self, key: &FlowKey) -> Option<FlowCount> {
        let value = self.flows.get(&key.bytes())?;
        let at = |at: usize| value[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        Some(FlowCount { packets: at(16), bytes: at(24) })
    }
    /// Removes all flows: where they go may have changed.
    pub fn clear_flows(&self) {
        for key in self.flows.keys() {
            self.flows.remove(&key);
        }
    }
    /// Attaches the program to a port, with `socket` for what the port processor does, for the lifetime of what it
    /// returns.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn attach(
        &self,
        interface: Interface,
        socket: BorrowedFd<'_>,
    ) -> io::Result<Attached> {
        if interface.port >= PORTS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sockets = bpf::sockets(socket)?;
        let program = self.program(&sockets, interface).load_xdp()?;
        let at = |hook| bpf::attach(interface.index, program.as_fd(), hook);
        let link = at(Hook::Driver).or_else(|_| at(Hook::Stack))?;
        Ok(Attached { _link: link, _program: program, _sockets: sockets })
    }

    /// Adds what is in register 3 to a count of the port; changes register 4.
    fn count(&self, p: &mut Program, port: u32, count: u32) {
        p.map_value(4, self.counts.fd(), COUNTS as u32 * port + count);
        p.add_to_memory(4, 0, 3);
    }

    fn program(&self, sockets: &Map<4, 4>, interface: Interface) -> Program {
        let Interface { port, mac, labels, .. } = interface;
        let mut p = Program::default();
        let (socket, kernel, v6) = (p.label(), p.label(), p.label());
        begin(&mut p, 34, socket);
        // Frames to other hosts and to all of them are not for a router to forward (RFC 1812 §5.3.4).
        let [a, b, c, d, e, f] = mac;
        p.load(Size::Half, 3, PACKET, 4);
        p.go_if(3, If::NotEqual, i32::from(u16::from_ne_bytes([e, f])), kernel);
        p.load(Size::Half, 3, PACKET, 2);
        p.go_if(3, If::NotEqual, i32::from(u16::from_ne_bytes([c, d])), kernel);
        p.load(Size::Half, 3, PACKET, 0);
        p.go_if(3, If::NotEqual, i32::from(u16::from_ne_bytes([a, b])), kernel);
        p.load(Size::Half, 3, PACKET, 12);
        p.go_if(3, If::Equal, i32::from(0x86ddu16.to_be()), v6);
        if labels {
            p.go_if(3, If::Equal, i32::from(0x8847u16.to_be()), socket);
        }
        p.go_if(3, If::NotEqual, i32::from(0x0800u16.to_be()), kernel);
        // IPv4: multicast and broadcast are for this host alone.
        p.load(Size::Byte, 3, PACKET, 30);
        p.go_if(3, If::AtLeast, 224, kernel);
        if labels {
            // Also those to addresses of this host: the port processor knows where they arrived.
            p.load(Size::Byte, 3, PACKET, 23);
            p.go_if(3, If::Equal, RSVP, socket);
        }
        p.load(Size::Word, 3, PACKET, 30);
        p.store(Size::Word, STACK, -4, 3);
        find(&mut p, self.local.fd(), -4);
        p.go_if(0, If::NotEqual, 0, kernel);
        if self.fast {
            self.known_flow(&mut p, port, socket);
        }
        p.place(socket);
        to_socket(&mut p, CONTEXT, sockets);
        p.place(v6);
        reach(&mut p, 54, socket);
        p.load(Size::Half, 3, PACKET, 38);
        p.copy(4, 3);
        p.and(4, 0xff);
        p.go_if(4, If::Equal, 0xff, kernel);
        p.and(3, 0xc0ff);
        p.go_if(3, If::Equal, 0x80fe, kernel);
        for word in 0..4 {
            p.load(Size::Word, 3, PACKET, 38 + 4 * word);
            p.store(Size::Word, STACK, -16 + 4 * word, 3);
        }
        find(&mut p, self.local_v6.fd(), -16);
        p.go_if(0, If::Equal, 0, socket);
        p.place(kernel);
        p.set(3, 1);
        self.count(&mut p, port, TO_KERNEL);
        p.set(0, PASS);
        p.exit();
        p
    }

    /// Forwards a packet of a known flow; goes on to `slow` with all others, and with a hint of what is known.
    fn known_flow(&self, p: &mut Program, port: u32, slow: Label) {
        reach(p, 42, slow);
        p.load(Size::Byte, 3, PACKET, 14);
        p.go_if(3, If::NotEqual, 0x45, slow);
        p.load(Size::Byte, 3, PACKET, 22);
        p.go_if(3, If::Below, 2, slow);
        // Neither a fragment nor followed by one: the ports are those of the flow.
        p.load(Size::Half, 3, PACKET, 20);
        p.go_if(3, If::AnyBit, i32::from(0x3fffu16.to_be()), slow);
        let tcp_or_udp = p.label();
        p.load(Size::Byte, 3, PACKET, 23);
        p.store_number(Size::Word, STACK, -4, i32::from_ne_bytes([0, port as u8, 0, 0]));
        p.store(Size::Byte, STACK, -4, 3);
        p.go_if(3, If::Equal, 6, tcp_or_udp);
        p.go_if(3, If::NotEqual, 17, slow);
        p.place(tcp_or_udp);
        // The header's checksum (RFC 1812 §5.2.2).
        p.set(3, 0);
        for at in (14..34).step_by(2) {
            p.load(Size::Half, 4, PACKET, at);
            p.add_register(3, 4);
        }
        for _ in 0..2 {
            p.copy(4, 3);
            p.right(4, 16);
            p.and(3, 0xffff);
            p.add_register(3, 4);
        }
        p.go_if(3, If::NotEqual, 0xffff, slow);
        for (at, word) in [(26, -16), (30, -12), (34, -8)] {
            p.load(Size::Word, 3, PACKET, at);
            p.store(Size::Word, STACK, word, 3);
        }
        find(p, self.flows.fd(), -16);
        p.go_if(0, If::Equal, 0, slow);
        let hinted = p.label();
        p.load(Size::Word, WORD, 0, 36);
        p.go_if(WORD, If::NotEqual, 0, hinted);
        // Its length: within the frame, and within the next link's MTU.
        p.load(Size::Half, 3, PACKET, 16);
        p.swap_half(3);
        p.go_if(3, If::Below, 28, slow);
        p.copy(4, END);
        p.subtract_register(4, PACKET);
        p.add(4, -14);
        p.go_if_register(3, If::Above, 4, slow);
        p.load(Size::Word, 4, 0, 32);
        p.go_if_register(3, If::Above, 4, slow);
        p.add_to_memory(0, 24, 3);
        self.count(p, port, FORWARDED_BYTES);
        p.set(3, 1);
        p.add_to_memory(0, 16, 3);
        self.count(p, port, FORWARDED);
        hop_count(p);
        for word in [0, 4, 8] {
            p.load(Size::Word, 3, 0, 4 + word);
            p.store(Size::Word, PACKET, word, 3);
        }
        p.load(Size::Word, 2, 0, 0);
        p.map(1, self.devices.fd());
        p.set(3, ABORTED);
        p.call(REDIRECT_MAP);
        p.exit();
        // The hint lies in front of the frame, and the socket's copy has it there as well. Where a driver has no room
        // for it, the port processor finds out anew.
        p.place(hinted);
        p.copy(1, CONTEXT);
        p.set(2, -(HINT as i32));
        p.call(ADJUST_META);
        p.go_if(0, If::NotEqual, 0, slow);
        p.load(Size::Word, 2, CONTEXT, DATA_META);
        p.load(Size::Word, 3, CONTEXT, DATA);
        p.copy(4, 2);
        p.add(4, HINT as i32);
        p.go_if_register(4, If::Above, 3, slow);
        p.store(Size::Word, 2, 0, WORD);
        p.go(slow);
    }
}

/// Keeps the context and where its packet is; goes to `label` unless the packet has so many bytes.
pub(super) fn begin(p: &mut Program, bytes: i32, label: Label) {
    p.copy(CONTEXT, 1);
    p.load(Size::Word, PACKET, CONTEXT, DATA);
    p.load(Size::Word, END, CONTEXT, DATA_END);
    reach(p, bytes, label);
}

/// TTL and checksum (RFC 1141): the sum grows by as much as the TTL's half word falls. Changes register 3.
pub(super) fn hop_count(p: &mut Program) {
    p.load(Size::Byte, 3, PACKET, 22);
    p.add(3, -1);
    p.store(Size::Byte, PACKET, 22, 3);
    let carried = p.label();
    p.load(Size::Half, 3, PACKET, 24);
    p.add(3, i32::from(0x0100u16.to_be()));
    p.go_if(3, If::Below, 0xffff, carried);
    p.add(3, 1);
    p.place(carried);
    p.store(Size::Half, PACKET, 24, 3);
}

/// Goes to `label` unless the packet has so many bytes.
fn reach(p: &mut Program, bytes: i32, label: Label) {
    p.copy(2, PACKET);
    p.add(2, bytes);
    p.go_if_register(2, If::Above, END, label);
}

/// Register 0 becomes the value of the key on the stack, or 0.
pub(super) fn find(p: &mut Program, map: BorrowedFd<'_>, key: i32) {
    p.map(1, map);
    p.copy(2, STACK);
    p.add(2, key);
    p.call(LOOKUP);
}

/// A program at an interface, removed when this is dropped.
#[derive(Debug)]
pub(super) struct Attached {
    _link: OwnedFd,
    _program: OwnedFd,
    _sockets: Map<4, 4>,
}
