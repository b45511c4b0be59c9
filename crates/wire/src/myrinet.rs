//! Myrinet packets: a source route consumed on the way, a type, a payload, and a CRC that every hop
//! recomputes.
//!
//! ```text
//! route bytes, top bit set | type 4, top bit clear | payload | CRC-8
//! ```
//!
//! A switch removes the first byte, which selects the output port. The CRC then covers one byte less, so the
//! switch replaces it, preserving any error, so that corruption on any link is still detected at the destination.
//!
//! Source: ANSI/VITA 26-1998; the route byte's lower six bits are a signed distance from the port
//! of entry.
//!
//! ```
//! use lastmeter_wire::myrinet::{self, Packet};
//! let mut packet = myrinet::emit(&[1, -2], 4, b"data")?;
//! assert_eq!(myrinet::hop(&mut packet, 2, 8)?, 3);
//! assert_eq!(myrinet::hop(&mut packet, 3, 8)?, 1);
//! assert_eq!(Packet::parse(&packet)?, Packet { packet_type: 4, payload: b"data" });
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::crc::crc8;
use crate::error::{Error, split};

/// Set in every byte of a route, clear in the first byte after it.
const ROUTE_BIT: u8 = 0x80;
/// A route byte's distance: six bits.
const DELTA_MASK: u8 = 0x3f;
/// Most route bytes that are emitted; the format has no limit.
pub const ROUTE_LEN_MAX: usize = 64;
/// The longest payload that is emitted; the format has no limit.
pub const PAYLOAD_LEN_MAX: usize = 65_536;
const TYPE_LEN: usize = 4;

/// A packet whose route is consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The type of the payload; below 2^31.
    pub packet_type: u32,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// # Errors
    /// If it still has a route, is truncated, or its CRC is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Error> {
        let (&kind, rest) = split::<TYPE_LEN>(bytes, "Myrinet type")?;
        if kind[0] & ROUTE_BIT != 0 {
            return Err(Error::Invalid {
                what: "Myrinet packet not at its end",
                found: kind[0].into(),
            });
        }
        let need = TYPE_LEN + 1;
        let short = Error::Truncated { what: "Myrinet packet", need, have: bytes.len() };
        let (_, payload) = rest.split_last().ok_or(short)?;
        // The CRC over a message followed by its own CRC is zero.
        if crc8(bytes) != 0 {
            return Err(Error::Corrupt { what: "Myrinet packet" });
        }
        Ok(Packet { packet_type: u32::from_be_bytes(kind), payload })
    }
}

/// A packet with the route `deltas`, each a distance of -32 to 31 from the port of entry.
///
/// # Errors
/// If a distance, the route, the type or the payload is too large.
pub fn emit(deltas: &[i8], packet_type: u32, payload: &[u8]) -> Result<Vec<u8>, Error> {
    let too_large = |what, value: usize, max: usize| {
        let (value, max) = (value as u64, max as u64);
        if value > max { Err(Error::DoesNotFit { what, value, max }) } else { Ok(()) }
    };
    too_large("Myrinet route", deltas.len(), ROUTE_LEN_MAX)?;
    too_large("Myrinet type", packet_type as usize, (u32::MAX >> 1) as usize)?;
    too_large("Myrinet payload", payload.len(), PAYLOAD_LEN_MAX)?;
    let mut bytes = Vec::with_capacity(deltas.len() + TYPE_LEN + payload.len() + 1);
    for &delta in deltas {
        too_large("Myrinet route distance", usize::from(delta.unsigned_abs()), 32)?;
        too_large("Myrinet route distance", delta.max(0) as usize, 31)?;
        bytes.push(ROUTE_BIT | delta.cast_unsigned() & DELTA_MASK);
    }
    bytes.extend(packet_type.to_be_bytes());
    bytes.extend(payload);
    bytes.push(crc8(&bytes));
    Ok(bytes)
}

/// Passes a packet that arrived at `port` through a switch of `ports` ports: removes the first route byte,
/// replaces the CRC, and returns the port by which it leaves.
///
/// # Errors
/// If the packet is empty, its first byte is not a route byte (the switch discards it), or there are no ports.
pub fn hop(packet: &mut Vec<u8>, port: u8, ports: u8) -> Result<u8, Error> {
    let [route, .., last] = packet.as_slice() else {
        return Err(Error::Truncated { what: "Myrinet packet", need: 2, have: packet.len() });
    };
    if route & ROUTE_BIT == 0 || ports == 0 {
        return Err(Error::Invalid { what: "Myrinet route byte", found: (*route).into() });
    }
    // Six bits, sign-extended.
    let delta = i16::from(((route & DELTA_MASK) << 2).cast_signed() >> 2);
    let out = (i16::from(port) + delta).rem_euclid(i16::from(ports)) as u8;
    // Preserves errors on the way here: received and correct CRC differ as before.
    let wrong = crc8(&packet[..packet.len() - 1]) ^ last;
    packet.remove(0);
    let body = packet.len() - 1;
    packet[body] = crc8(&packet[..body]) ^ wrong;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn corruption_on_any_link_is_detected_at_the_end(
            route in proptest::collection::vec(-32i8..32, 1..8),
            payload in proptest::collection::vec(any::<u8>(), 0..64),
            at in 0usize..8, bit in 0usize..8, place: prop::sample::Index,
        ) {
            let mut packet = emit(&route, 7, &payload).unwrap();
            let mut port = 0;
            for step in 0..route.len() {
                if step == at {
                    // After the route, so that the packet still finds its way.
                    let from = route.len() - step;
                    let byte = from + place.index(packet.len() - from);
                    packet[byte] ^= 1 << bit;
                }
                port = hop(&mut packet, port, 8).unwrap();
            }
            let parsed = Packet::parse(&packet);
            if at < route.len() {
                prop_assert!(parsed.is_err());
            } else {
                prop_assert_eq!(parsed.unwrap(), Packet { packet_type: 7, payload: &payload });
            }
            let sum: i32 = route.iter().map(|&delta| i32::from(delta)).sum();
            prop_assert_eq!(i32::from(port), sum.rem_euclid(8));
        }
    }

    #[test]
    fn refuses_invalid_routes() {
        assert!(emit(&[-33], 0, &[]).is_err());
        assert!(emit(&[32], 0, &[]).is_err());
        assert!(emit(&[], 1 << 31, &[]).is_err());
        assert!(hop(&mut emit(&[], 0, &[]).unwrap(), 0, 8).is_err());
        assert!(hop(&mut Vec::new(), 0, 8).is_err());
    }
}
