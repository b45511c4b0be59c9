//! A host that is this program, at the other end of an interface of a namespace whose kernel is real.
//!
//! ```text
//! frames, datagrams, segments of the models' TCP --> TAP or veth | eth0 --> the kernel --> a program, in a namespace
//! ```
//!
//! The kernel of the namespace knows this host by its answers to ARP only, so no other protocol interferes.

use crate::Complaint;
use lastmeter_base::Ecn;
use lastmeter_linux::port::{Counts, Offload, Port};
use lastmeter_live::namespace::Isolation;
use lastmeter_live::receive;
use lastmeter_live::site::{HostOptions, Kind, Site};
use lastmeter_transport::tcp::Segment;
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4};
use lastmeter_wire::internet::{arp, ethernet, ipv4, protocol, tcp, udp};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// The namespace's address.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 79, 9, 1);
/// This host's.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 79, 9, 2);
/// This host's Ethernet address: locally administered.
const MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];
const EVERYBODY: [u8; 6] = [0xff; 6];
/// Frames taken at a time.
const BATCH: usize = 64;
/// How long the kernel has to say its Ethernet address.
const PATIENCE: Duration = Duration::from_secs(5);

/// A segment that has come.
pub(super) struct Arrived {
    /// The port of this host.
    pub(super) port: u16,
    pub(super) segment: Segment,
    pub(super) payload: Vec<u8>,
}

fn hosts() -> [HostOptions; 1] {
    [HostOptions { name: "host".to_owned(), address: HOST, prefix: 24 }]
}

pub(super) struct Far {
    /// Of one host, which programs run in.
    pub(super) site: Site,
    port: Box<dyn Port>,
    counts: Counts,
    /// The Ethernet address of its interface.
    peer: [u8; 6],
}

impl Far {
    /// A namespace, and this host before it.
    pub(super) fn open() -> Result<Far, Complaint> {
        Far::at(Site::open(&hosts(), Kind::Tap(Offload::None))?)
    }

    /// The same with a veth pair between them: a frame is taken within the call that sends it. Made as root where
    /// that is possible: programs may do more there, such as open a ring of AF_XDP.
    pub(super) fn by_wire() -> Result<Far, Complaint> {
        let root = Site::open_as(&hosts(), Kind::Packet, Isolation::Root);
        Far::at(root.or_else(|_| Site::open(&hosts(), Kind::Packet))?)
    }

    fn at((site, ports): (Site, Vec<Box<dyn Port>>)) -> Result<Far, Complaint> {
        let port = ports.into_iter().next().ok_or("a site without ports")?;
        let mut far = Far { site, port, counts: Counts::default(), peer: EVERYBODY };
        let began = Instant::now();
        while far.peer == EVERYBODY {
            if began.elapsed() > PATIENCE {
                return Err(Complaint(format!("nobody has the address {HOST}")));
            }
            let (sender, target) = ((MAC, HERE), ([0; 6], HOST));
            let asks = arp::Packet { operation: arp::Packet::REQUEST, sender, target };
            let frame = far.framed(ETHERTYPE_ARP, &asks.emit())?;
            far.send_all(&[frame])?;
            far.wait(Duration::from_millis(20))?;
            far.take_frames(&mut |_, _| {})?;
        }
        Ok(far)
    }

    /// A frame to the host, or to everybody while its address is not known.
    pub(super) fn framed(&self, ethertype: u16, payload: &[u8]) -> Result<Vec<u8>, Complaint> {
        let mut bytes = Vec::with_capacity(ethernet::HEADER_LEN + payload.len());
        let header = ethernet::Header { dst: self.peer, src: MAC, tags: Vec::new(), ethertype };
        header.emit(&mut bytes)?;
        bytes.extend(payload);
        Ok(bytes)
    }

    fn packet(&self, protocol: u8, payload: &[u8]) -> Result<Vec<u8>, Complaint> {
        let mut packet = Vec::with_capacity(ipv4::HEADER_LEN + payload.len());
        ipv4::Header::new(HERE, HOST, protocol).emit(payload.len(), &mut packet)?;
        packet.extend(payload);
        self.framed(ETHERTYPE_IPV4, &packet)
    }

    /// The frame of a segment from a port of this host to one of the other.
    pub(super) fn segment(
        &self,
        ports: (u16, u16),
        segment: &Segment,
        payload: &[u8],
    ) -> Result<Vec<u8>, Complaint> {
        let pseudo = |len| Sum::ipv4(HERE, HOST, protocol::TCP, len);
        self.packet(protocol::TCP, &segment.emit(ports, payload, pseudo)?)
    }

    /// The frame of a datagram, from and to a port of this number.
    pub(super) fn datagram(&self, port: u16, payload: &[u8]) -> Result<Vec<u8>, Complaint> {
        let pseudo = |len| Sum::ipv4(HERE, HOST, protocol::UDP, len);
        self.packet(protocol::UDP, &udp::emit(port, port, payload, pseudo)?)
    }

    /// Sends frames.
    pub(super) fn send_all(&mut self, frames: &[Vec<u8>]) -> Result<(), Complaint> {
        let mut sent = 0;
        while sent < frames.len() {
            sent += self.port.send(&frames[sent..], &mut self.counts)?;
        }
        Ok(())
    }

    /// Takes what has arrived, and answers ARP; hands on types and payloads.
    pub(super) fn take_frames(
        &mut self,
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> Result<(), Complaint> {
        let mut frames: Vec<Vec<u8>> = Vec::new();
        self.port.receive(BATCH, &mut self.counts, &mut |arrival| {
            frames.push(arrival.parts.concat());
        })?;
        for frame in frames {
            // A broken frame is nobody's.
            let Ok(frame) = ethernet::Frame::parse(&frame) else { continue };
            match frame.header.ethertype {
                ETHERTYPE_ARP => self.resolve(frame.payload)?,
                ethertype => each(ethertype, frame.payload),
            }
        }
        Ok(())
    }

    /// Takes the segments that have arrived intact.
    pub(super) fn take(&mut self, each: &mut dyn FnMut(Arrived)) -> Result<(), Complaint> {
        self.take_frames(&mut |ethertype, payload| {
            let is_ipv4 = ethertype == ETHERTYPE_IPV4;
            arrived(payload).filter(|_| is_ipv4).into_iter().for_each(&mut *each);
        })
    }

    fn resolve(&mut self, payload: &[u8]) -> Result<(), Complaint> {
        let Ok(packet) = arp::Packet::parse(payload) else { return Ok(()) };
        if packet.sender.1 == HOST {
            self.peer = packet.sender.0;
        }
        if packet.operation != arp::Packet::REQUEST || packet.target.1 != HERE {
            return Ok(());
        }
        let operation = arp::Packet::REPLY;
        let reply = arp::Packet { operation, sender: (MAC, HERE), target: packet.sender };
        let frame = self.framed(ETHERTYPE_ARP, &reply.emit())?;
        self.send_all(&[frame])
    }

    /// Waits until something arrives, or for so long.
    pub(super) fn wait(&self, lasts: Duration) -> Result<(), Complaint> {
        Ok(receive::wait([self.port.fd()].into_iter(), lasts)?)
    }
}

/// The segment in a packet for this host.
fn arrived(packet: &[u8]) -> Option<Arrived> {
    let ip = ipv4::Packet::parse(packet).ok()?;
    if ip.header().protocol != protocol::TCP || ip.dst() != HERE || ip.is_fragment() {
        return None;
    }
    let bytes = tcp::Segment::parse(ip.payload).ok()?;
    let len = u16::try_from(ip.payload.len()).ok()?;
    if !bytes.is_intact(Sum::ipv4(ip.src(), ip.dst(), protocol::TCP, len)) {
        return None;
    }
    let segment = Segment::from_wire(&bytes, Ecn::NotCapable);
    Some(Arrived { port: bytes.header.dst, segment, payload: bytes.payload.to_vec() })
}
