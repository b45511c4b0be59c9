//! A generator of frames at a steady rate, to find out what a live run can carry.
//!
//! It sends through a packet socket in a host's namespace, so that there is no protocol between the
//! requested rate and the interface; the receiving host's stack drops the frames, whose EtherType is
//! experimental, and its interface counts them. Hostile frames look like those of real protocols until
//! they are parsed. Stamped frames say which flow they are of and when they were sent; UDP datagrams reach a socket.

use crate::site::INTERFACE;
use lastmeter_linux::clock::{Epoch, nanoseconds};
use lastmeter_linux::cores;
use lastmeter_linux::link::index_of;
use lastmeter_linux::port::Headers;
use lastmeter_linux::sys::set_words;
use lastmeter_linux::{Doing, Result};
use lastmeter_wire::internet::checksum::Sum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

/// IEEE 802 local experimental Ethernet type 1 (IEEE 802-2014 §9.2.4).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Most frames in one system call.
const BURST: usize = 32;
const PACKET_QDISC_BYPASS: i32 = 20;

/// What to send.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flood {
    /// Frames per second.
    pub rate: f64,
    /// Bytes of each, Ethernet header included.
    pub len: usize,
    /// Seconds.
    pub lasts: f64,
    /// Whether the frames are garbage of all lengths up to `len`.
    pub hostile: bool,
    /// The core to pin to.
    pub core: Option<usize>,
    /// The flows of the frames, in turn. Frames are stamped if there are any.
    pub flows: Vec<u8>,
    /// UDP datagrams to this socket, instead of frames that no protocol knows.
    pub to: Option<Target>,
}

/// A socket, and its interface's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The Ethernet address.
    pub mac: [u8; 6],
    /// The source's address.
    pub src: Ipv4Addr,
    /// The socket's address.
    pub dst: Ipv4Addr,
    /// The socket's port.
    pub port: u16,
}

/// Says which flow a frame is of, and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The flow.
    pub flow: u8,
    /// Nanoseconds of the monotonic clock.
    pub sent: u64,
}

const STAMPED: [u8; 4] = *b"LMST";

impl Stamp {
    /// Bytes of a stamp.
    pub const LEN: usize = 16;

    /// The stamp at the beginning of a payload.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Stamp> {
        let bytes: [u8; Stamp::LEN] = payload.get(..Stamp::LEN)?.try_into().ok()?;
        let [a, b, c, d, flow, _, _, _, sent @ ..] = bytes;
        ([a, b, c, d] == STAMPED).then(|| Stamp { flow, sent: u64::from_be_bytes(sent) })
    }

    fn write(self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&STAMPED);
        payload[4..8].copy_from_slice(&[self.flow, 0, 0, 0]);
        payload[8..Stamp::LEN].copy_from_slice(&self.sent.to_be_bytes());
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flooded {
    /// Frames that the interface accepted.
    pub sent: u64,
    /// Frames that it refused.
    pub refused: u64,
    /// Frames not sent for lack of time.
    pub behind: u64,
}

/// Sends in the calling thread's namespace until the time is over.
pub(crate) fn run(flood: &Flood) -> Result<Flooded> {
    cores::pin(flood.core)?;
    let what = "sending frames";
    let fd = lastmeter_linux::sys::packet_socket(index_of(INTERFACE)?).doing(what)?;
    set_words(fd.as_fd(), libc::SOL_PACKET, PACKET_QDISC_BYPASS, &[1]).doing(what)?;
    let template = frame(flood);
    let mut frames: Vec<Vec<u8>> = vec![template; BURST];
    let mut headers = Headers::new(BURST);
    let (mut flooded, mut asked, mut state) = (Flooded::default(), 0u64, 1u64);
    let epoch = Epoch::start();
    loop {
        let elapsed = epoch.now().since_start().as_secs_f64();
        let due = (elapsed.min(flood.lasts) * flood.rate) as u64;
        let burst = (due - asked).min(BURST as u64) as usize;
        if burst == 0 {
            if elapsed >= flood.lasts {
                break;
            }
            std::hint::spin_loop();
            continue;
        }
        // Frames still due at the end are those not sent for lack of time.
        if elapsed >= flood.lasts {
            flooded.behind = due - asked;
            break;
        }
        if flood.hostile {
            frames[..burst].iter_mut().for_each(|frame| garble(frame, flood.len, &mut state));
        } else if !flood.flows.is_empty() {
            let sent = nanoseconds();
            for (at, frame) in (asked..).zip(&mut frames[..burst]) {
                let flow = flood.flows[(at % flood.flows.len() as u64) as usize];
                stamp(frame, flood.to.is_some(), Stamp { flow, sent });
            }
        }
        match headers.send_all(fd.as_fd(), &frames[..burst]) {
            Ok(sent) => {
                flooded.sent += sent as u64;
                asked += sent as u64;
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
                let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
            }
            Err(_) => {
                flooded.refused += 1;
                asked += 1;
            }
        }
    }
    Ok(flooded)
}

/// Bytes of the headers of Ethernet, IPv4 and UDP.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;

/// A frame before it is stamped.
fn frame(flood: &Flood) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    let stamp = if flood.flows.is_empty() { 0 } else { Stamp::LEN };
    let Some(to) = flood.to else {
        bytes.extend(ETHERTYPE);
        bytes.resize(flood.len.max(bytes.len() + stamp), 0x55);
        return bytes;
    };
    bytes[..6].copy_from_slice(&to.mac);
    let len = flood.len.max(ETHERNET + IPV4 + UDP + stamp);
    let (ip, udp) = ((len - ETHERNET) as u16, (len - ETHERNET - IPV4) as u16);
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend(ip.to_be_bytes());
    // Not to be fragmented, so that all may have the same number and receivers may merge them.
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(to.src.octets());
    bytes.extend(to.dst.octets());
    let sum = Sum::of(&bytes[ETHERNET..]).checksum();
    bytes[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(to.port.to_be_bytes());
    bytes.extend(to.port.to_be_bytes());
    bytes.extend(udp.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.resize(len, 0x55);
    bytes
}

/// Stamps a frame, and makes its checksum right again.
fn stamp(frame: &mut [u8], udp: bool, stamp: Stamp) {
    if !udp {
        return stamp.write(&mut frame[ETHERNET..]);
    }
    let (headers, datagram) = frame.split_at_mut(ETHERNET + IPV4);
    stamp.write(&mut datagram[UDP..]);
    datagram[6..8].fill(0);
    let address = |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|byte| headers[at + byte]));
    let (src, dst) = (address(ETHERNET + 12), address(ETHERNET + 16));
    let sum = Sum::ipv4(src, dst, 17, datagram.len() as u16).and(Sum::of(datagram));
    datagram[6..8].copy_from_slice(&sum.checksum_never_zero().to_be_bytes());
}

/// The kernel itself drops frames without payload, and tagged ones that end with the tag.
const LEN_MIN: usize = 20;

/// Makes a frame of random length and content; half of them start like IP.
fn garble(frame: &mut Vec<u8>, len_max: usize, state: &mut u64) {
    let mut random = || {
        // Xorshift, 64 bits (Marsaglia, Journal of Statistical Software 8(14), 2003, page 4).
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    };
    let len = LEN_MIN + random() as usize % (len_max.max(LEN_MIN + 1) - LEN_MIN);
    frame.clear();
    while frame.len() < len {
        frame.extend(random().to_le_bytes());
    }
    frame.truncate(len);
    let kinds: [[u8; 2]; 4] = [[0x08, 0x00], [0x86, 0xdd], [0x08, 0x06], [0x81, 0x00]];
    let kind = random() as usize % 8;
    if let Some(kind) = kinds.get(kind) {
        frame[12..14].copy_from_slice(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamped_datagram_is_intact_and_says_its_flow() {
        let (src, dst) = (Ipv4Addr::new(10, 92, 0, 1), Ipv4Addr::new(10, 92, 0, 2));
        let to = Some(Target { mac: [2, 0, 0, 0, 0, 1], src, dst, port: 9000 });
        let flood = Flood { len: 106, flows: vec![0], to, ..Flood::default() };
        let mut bytes = frame(&flood);
        let made = Stamp { flow: 3, sent: 12_345_678_901 };
        stamp(&mut bytes, true, made);
        assert_eq!(bytes.len(), 106);
        assert!(Sum::of(&bytes[14..34]).is_intact());
        let udp = Sum::ipv4(src, dst, 17, 72).and(Sum::of(&bytes[34..]));
        assert!(udp.is_intact());
        assert_eq!(Stamp::parse(&bytes[42..]), Some(made));
        assert_eq!(Stamp::parse(&bytes[42..57]), None);
        assert_eq!(Stamp::parse(&[0x55; 64]), None);
    }

    #[test]
    fn frames_of_no_protocol_are_stamped_after_their_type() {
        let mut bytes = frame(&Flood { len: 20, flows: vec![0, 1], ..Flood::default() });
        stamp(&mut bytes, false, Stamp { flow: 1, sent: 7 });
        assert_eq!(Stamp::parse(&bytes[14..]), Some(Stamp { flow: 1, sent: 7 }));
    }
}
