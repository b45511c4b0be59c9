//! A client of the audio device: the owner's policies for its packets, in both directions.
//!
//! ```text
//! client -- RTP --> policies --> play-out           microphone --> policies -- RTP --> client
//! ```
//!
//! Policies are those of packets: they see each as an IP packet with UDP, also if it came in a connection, and can let
//! it pass, drop it or change its sound.

use super::Audio;
use lastmeter_plugin::chain::{Chain, Effect};
use lastmeter_plugin::request::{Body, Request};
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::{ipv4, ipv6, protocol, udp};
use lastmeter_wire::rtp::RTP_LEN;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A client at the device, in one direction.
pub(super) struct Gate {
    audio: Arc<Audio>,
    number: u32,
    chain: Chain,
    marks: Vec<u64>,
    from: SocketAddr,
    to: SocketAddr,
}

impl Gate {
    /// A client by its name, whose packets go from one address to another.
    ///
    /// # Errors
    /// If there is no client of this name, or a policy cannot be made.
    pub(super) fn new(
        audio: &Arc<Audio>,
        client: &str,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Result<Gate, String> {
        let chain = audio.access.chain(client, audio.now())?;
        let (number, marks) = (audio.access.number(client), vec![0; chain.len()]);
        Ok(Gate { audio: audio.clone(), number, chain, marks, from, to })
    }
    /// Whether a packet passes; a policy may change what is in it, but not RTP's header.
    ///
    /// # Errors
    /// The name of the policy that denies it.
    pub(super) fn pass(&mut self, packet: &mut [u8]) -> Result<(), String> {
        if self.chain.is_empty() {
            return Ok(());
        }
        let whole = datagram(self.from, self.to, packet).map_err(|error| error.to_string())?;
        let now = self.audio.now();
        let request = Request {
            body: Body::Packet { interface: 0 },
            flow: self.number.into(),
            arrival: now,
            mark: 0,
            length: u32::try_from(whole.len()).unwrap_or(u32::MAX),
            data: &whole,
        };
        let outcome = self.chain.decide(now, &request, &mut self.marks);
        match outcome.effect {
            Effect::Packet { .. } => {}
            Effect::Denied { by, .. } => {
                return Err(self.chain.name(by).unwrap_or("a policy").to_owned());
            }
            _ => return Err("a policy".to_owned()),
        }
        if let Some(changed) = outcome.data {
            let start = whole.len() - packet.len() + RTP_LEN;
            let (Some(changed), Some(sound)) = (changed.get(start..), packet.get_mut(RTP_LEN..))
            else {
                return Ok(());
            };
            let len = changed.len().min(sound.len());
            sound[..len].copy_from_slice(&changed[..len]);
        }
        Ok(())
    }
}

/// A packet as it travels over UDP.
fn datagram(
    from: SocketAddr,
    to: SocketAddr,
    payload: &[u8],
) -> Result<Vec<u8>, lastmeter_wire::Error> {
    let mut packet = Vec::new();
    let datagram = match (from.ip().to_canonical(), to.ip().to_canonical()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let sum = |len| Sum::ipv4(src, dst, protocol::UDP, len);
            let datagram = udp::emit(from.port(), to.port(), payload, sum)?;
            let header = ipv4::Header::new(src, dst, protocol::UDP);
            header.emit(datagram.len(), &mut packet)?;
            datagram
        }
        (src, dst) => {
            let six = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            let (src, dst) = (six(src), six(dst));
            let sum = |len: u16| Sum::ipv6(src, dst, protocol::UDP, len.into());
            let datagram = udp::emit(from.port(), to.port(), payload, sum)?;
            packet.extend(ipv6::Header::new(src, dst, protocol::UDP).emit(datagram.len())?);
            datagram
        }
    };
    packet.extend(datagram);
    Ok(packet)
}
