//! Software completion of offloaded work in received frames: checksums and segmentation.
//!
//! ```text
//! | offload header 10 | frame, up to 64 KiB |  -->  frames, each whole
//!
//! flags 1 | gso type 1 | header len 2 | gso size 2 | checksum start 2 | checksum offset 2
//! ```
//!
//! Source: the virtio specification 1.2, section 5.1.6; `linux/virtio_net.h`. TCP over IPv4 is cut
//! into segments here; other kinds of segmentation are never offered to the kernel.

use lastmeter_wire::internet::checksum::Sum;
use std::io;

/// Bytes of the offload header.
pub(crate) const HEADER_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
/// ECN flag, which may be set in addition to the type.
const GSO_ECN: u8 = 0x80;

const ETHERNET_LEN: usize = 14;
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// A header for complete frames: their checksums need no further check.
pub(crate) const WHOLE: [u8; HEADER_LEN] = [DATA_VALID, GSO_NONE, 0, 0, 0, 0, 0, 0, 0, 0];

/// The sum of 16-bit words of RFC 1071, not complemented.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    Sum::of(bytes).value().into()
}

/// The checksum field for a sum.
pub(crate) fn folded(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]).into())
}

/// Makes complete frames from `bytes`, an offload header and a frame, and hands each to `frame`. The
/// caller keeps `scratch`, so that nothing is allocated.
///
/// # Errors
/// When header and frame are inconsistent; then nothing has been handed on.
pub(crate) fn whole(
    bytes: &mut [u8],
    scratch: &mut Vec<u8>,
    frame: &mut dyn FnMut(&[u8]),
) -> io::Result<()> {
    let garbled = || io::Error::from(io::ErrorKind::InvalidData);
    let (header, bytes) = bytes.split_at_mut_checked(HEADER_LEN).ok_or_else(garbled)?;
    let field = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let (flags, gso, gso_size) = (header[0], header[1] & !GSO_ECN, field(4));
    let (start, offset) = (field(6), field(8));
    match gso {
        GSO_NONE => {
            if flags & NEEDS_CHECKSUM != 0 {
                complete(bytes, start, offset).ok_or_else(garbled)?;
            }
            frame(bytes);
            Ok(())
        }
        GSO_TCP4 => segments(bytes, gso_size, scratch, frame).ok_or_else(garbled),
        _ => Err(garbled()),
    }
}

/// Completes the checksum at `start + offset`, over everything from `start`: the field already holds the
/// sum of the pseudo-header.
fn complete(bytes: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let at = start.checked_add(offset)?;
    if at + 2 > bytes.len() {
        return None;
    }
    let checksum = folded(sum(&bytes[start..]));
    // In UDP zero means no checksum; elsewhere both forms of zero are equivalent (RFC 768).
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// Cuts a TCP segment over IPv4 into segments of at most `size` bytes of data.
fn segments(
    bytes: &[u8],
    size: usize,
    scratch: &mut Vec<u8>,
    frame: &mut dyn FnMut(&[u8]),
) -> Option<()> {
    let ip = ETHERNET_LEN;
    if half(bytes, 12)? != 0x0800 || bytes.get(ip)? >> 4 != 4 || size == 0 {
        return None;
    }
    let tcp = ip + usize::from(bytes[ip] & 0xf) * 4;
    let data = tcp + usize::from(bytes.get(tcp + 12)? >> 4) * 4;
    if tcp < ip + 20 || data < tcp + 20 || data > bytes.len() || bytes.get(ip + 9) != Some(&6) {
        return None;
    }
    let number = u32::from_be_bytes(bytes[tcp + 4..tcp + 8].try_into().ok()?);
    let identification = half(bytes, ip + 4)? as u16;
    let flags = bytes[tcp + 13];
    let count = (bytes.len() - data).div_ceil(size).max(1);
    for index in 0..count {
        let from = data + index * size;
        let to = (from + size).min(bytes.len());
        scratch.clear();
        scratch.extend_from_slice(&bytes[..data]);
        scratch.extend_from_slice(&bytes[from..to]);
        let total = (scratch.len() - ip) as u16;
        scratch[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
        let own = identification.wrapping_add(index as u16);
        scratch[ip + 4..ip + 6].copy_from_slice(&own.to_be_bytes());
        let own = number.wrapping_add((index * size) as u32);
        scratch[tcp + 4..tcp + 8].copy_from_slice(&own.to_be_bytes());
        // FIN and PSH belong on the last one, CWR on the first.
        let without = if index + 1 < count { FIN_PSH } else { 0 } | if index > 0 { CWR } else { 0 };
        scratch[tcp + 13] = flags & !without;
        checksums(scratch, ip, tcp);
        frame(scratch);
    }
    Some(())
}

/// Writes the checksums of an IPv4 header at `ip` and a TCP header at `tcp`.
fn checksums(bytes: &mut [u8], ip: usize, tcp: usize) {
    bytes[ip + 10..ip + 12].fill(0);
    let checksum = folded(sum(&bytes[ip..tcp]));
    bytes[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    bytes[tcp + 16..tcp + 18].fill(0);
    let pseudo = sum(&bytes[ip + 12..ip + 20]) + 6 + (bytes.len() - tcp) as u64;
    let checksum = folded(pseudo + sum(&bytes[tcp..]));
    bytes[tcp + 16..tcp + 18].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp_frame(data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend((40 + data.len() as u16).to_be_bytes());
        bytes.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0, 80, 1, 0, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 0x50, 0x19, 1, 0]);
        bytes.extend([0; 4]);
        bytes.extend_from_slice(data);
        checksums(&mut bytes, 14, 34);
        bytes
    }

    fn is_whole(frame: &[u8]) -> bool {
        let pseudo = sum(&frame[26..34]) + 6 + (frame.len() - 34) as u64;
        folded(sum(&frame[14..34])) == 0 && folded(pseudo + sum(&frame[34..])) == 0
    }

    proptest! {
        #[test]
        fn segments_carry_the_data_in_order_with_valid_checksums(
            data in prop::collection::vec(any::<u8>(), 0..9000), size in 1u16..1500,
        ) {
            let mut bytes = vec![0, GSO_TCP4, 0, 0];
            bytes.extend(size.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(tcp_frame(&data));
            let (mut got, mut next) = (Vec::new(), 0xffff_fff0u32);
            whole(&mut bytes, &mut Vec::new(), &mut |frame| {
                assert!(is_whole(frame));
                assert!(frame.len() - 54 <= usize::from(size));
                let number = u32::from_be_bytes(frame[38..42].try_into().unwrap());
                assert_eq!(number, next);
                next = next.wrapping_add((frame.len() - 54) as u32);
                got.extend_from_slice(&frame[54..]);
            }).unwrap();
            prop_assert_eq!(got, data);
        }

        #[test]
        fn any_bytes_are_accepted_or_rejected_without_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), gso in 0u8..5,
        ) {
            if bytes.len() > 24 {
                bytes[1] = gso;
                bytes[22..25].copy_from_slice(&[8, 0, 0x45]);
            }
            let _ = whole(&mut bytes, &mut Vec::new(), &mut |_| ());
        }

        #[test]
        fn a_completed_checksum_is_correct(data in prop::collection::vec(any::<u8>(), 0..1500)) {
            let expected = tcp_frame(&data);
            let mut bytes = vec![NEEDS_CHECKSUM, 0, 0, 0, 0, 0];
            bytes.extend(34u16.to_ne_bytes());
            bytes.extend(16u16.to_ne_bytes());
            bytes.extend(&expected);
            // The kernel leaves the sum of the pseudo-header in the field.
            let pseudo = !folded(sum(&expected[26..34]) + 6 + (expected.len() - 34) as u64);
            bytes[60..62].copy_from_slice(&pseudo.to_be_bytes());
            let mut got = Vec::new();
            whole(&mut bytes, &mut Vec::new(), &mut |frame| got = frame.to_vec()).unwrap();
            prop_assert!(is_whole(&got));
        }
    }
}
