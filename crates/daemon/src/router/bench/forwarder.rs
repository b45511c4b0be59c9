//! Two forwarders that do the least: each frame of one interface gets new addresses and a hop less, and leaves by the
//! other. What they cost is the kernel's share of any router that gets its frames in the same way.
//!
//! ```text
//! frames:   r0 --> AF_XDP, memory shared with the kernel --> the same memory --> AF_XDP --> r1
//! packets:  r0 --> AF_PACKET, a ring shared with the kernel --> sendmmsg in batches of 64 --> r1
//! ```
//!
//! Both run in real time, as our port processor does.

use lastmeter_linux::dataplane::frames::open;
use lastmeter_linux::dataplane::{Frames, Interface, Shared};
use lastmeter_linux::port::{BATCH, Counts, Packet, Port as _};
use lastmeter_linux::sys::schedule_in_real_time;
use lastmeter_router::port_processor::RECEIVING;
use lastmeter_wire::internet::checksum::update;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::BorrowedFd;

/// Ethernet addresses of the router's two ends, and of the next router, in the bench.
const IN: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OUT: [u8; 6] = [2, 0, 0, 0, 0, 3];
const NEXT: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
/// Frames of the memory.
const FRAMES: usize = 8192;
/// The longest packet of the interfaces.
const MTU: u32 = 1500;
/// A sleeping forwarder looks up so often: what the kernel has sent comes back without a call.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Time to live and checksum of a packet of IPv4, in its frame.
const TTL: usize = 14 + 8;
const CHECKSUM: usize = 14 + 10;

/// New addresses, and a hop less; whether there was one left.
fn readdress(frame: &mut [u8]) -> bool {
    if frame.len() < 34 || frame[TTL] <= 1 {
        return false;
    }
    frame[..6].copy_from_slice(&NEXT);
    frame[6..12].copy_from_slice(&OUT);
    let word = |at: usize, frame: &[u8]| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (sum, old) = (word(CHECKSUM, frame), word(TTL, frame));
    frame[TTL] -= 1;
    let sum = update(sum, old, word(TTL, frame));
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

fn sleep(fd: BorrowedFd<'_>) {
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&LOOK));
}

/// By frames in memory that is shared with the kernel; `ready` is called before the first. Returns only if it fails.
pub(super) fn by_frames(
    from: u32,
    to: u32,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mut frames = Frames::new(FRAMES)?;
    let shared = Shared::new(false)?;
    let interface = |port, index, mac| Interface { port, index, mac, labels: false };
    let both = [interface(0, from, IN), interface(1, to, OUT)];
    let mut sockets = open(&mut frames, &shared, &both, RECEIVING)?;
    let (Some(mut output), Some(mut input)) = (sockets.pop(), sockets.pop()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    schedule_in_real_time(true)?;
    ready()?;
    let mut arrived = Vec::new();
    loop {
        input.receive(BATCH, &mut frames, &mut arrived);
        if arrived.is_empty() {
            sleep(input.fd());
        }
        for frame in arrived.drain(..) {
            if output.room() > 0 && readdress(frames.bytes_mut(frame)) {
                output.put(frame);
            } else {
                frames.free(frame);
            }
        }
        if output.waiting() > 0 {
            output.flush()?;
            output.reclaim(&mut frames);
        }
    }
}

/// By packet sockets; `ready` is called before the first. Returns only if it fails.
pub(super) fn by_packets(
    from: u32,
    to: u32,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mut input = Packet::new(Packet::open(from)?, MTU)?;
    let mut output = Packet::new(Packet::open(to)?, MTU)?;
    let (mut counts, mut frames, mut count) = (Counts::default(), vec![Vec::new(); BATCH], 0);
    schedule_in_real_time(true)?;
    ready()?;
    loop {
        input.receive(BATCH, &mut counts, &mut |arrival| {
            let frame: &mut Vec<u8> = &mut frames[count];
            frame.clear();
            arrival.parts.iter().for_each(|part| frame.extend_from_slice(part));
            count += usize::from(readdress(frame));
        })?;
        if count == 0 {
            sleep(input.fd());
        }
        let mut sent = 0;
        while sent < count {
            sent += output.send(&frames[sent..count], &mut counts)?;
        }
        count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::readdress;
    use lastmeter_wire::internet::checksum::Sum;

    #[test]
    fn a_packet_that_goes_on_has_a_hop_less_and_a_right_checksum() {
        for ttl in [2u8, 64, 255] {
            for other in [0u8, 1, 0x7f, 0xff] {
                let mut frame = [0u8; 60];
                frame[14] = 0x45;
                (frame[22], frame[23]) = (ttl, other);
                let sum = Sum::of(&frame[14..34]).checksum();
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
                assert!(readdress(&mut frame));
                assert_eq!(frame[22], ttl - 1);
                assert!(Sum::of(&frame[14..34]).is_intact(), "{ttl} {other}");
            }
        }
        assert!(!readdress(&mut [0; 60]), "no hop left");
        assert!(!readdress(&mut [64; 20]), "too short");
    }
}
