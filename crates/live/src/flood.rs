//! A generator of frames at a steady rate, to find out what a live run can carry.
//!
//! It sends through a packet socket in a host's namespace, so that there is no protocol between the
//! requested rate and the interface; the receiving host's stack drops the frames, whose EtherType is
//! experimental, and its interface counts them. Hostile frames look like those of real protocols until
//! they are parsed.

use crate::clock::Epoch;
use crate::cores;
use crate::error::{Doing, Result};
use crate::link::index_of;
use crate::port::memory::Headers;
use crate::site::INTERFACE;
use crate::sys::set_words;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;

/// IEEE 802 local experimental Ethernet type 1 (IEEE 802-2014 §9.2.4).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Most frames in one system call.
const BURST: usize = 32;
const PACKET_QDISC_BYPASS: i32 = 20;

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
    let fd = crate::sys::packet_socket(index_of(INTERFACE)?).doing(what)?;
    set_words(fd.as_fd(), libc::SOL_PACKET, PACKET_QDISC_BYPASS, &[1]).doing(what)?;
    let mut frames: Vec<Vec<u8>> = (0..BURST).map(|_| frame(flood.len)).collect();
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

fn frame(len: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    bytes.extend(ETHERTYPE);
    bytes.resize(len.max(bytes.len()), 0x55);
    bytes
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
