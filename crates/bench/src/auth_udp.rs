//! `lastmeter bench auth/udp`: the ladder of authentication between two programs on UDP sockets.
//!
//! ```text
//! sender: copy, sum, header, hash --UDP--> receiver: hash again, compare     a window of datagrams, acknowledged
//! ```
//!
//! Both ends are threads of this program over loopback, so rates are those of the slower end with the kernel's own
//! copies between. The tag is in a header in front of each datagram; `trailer` puts it behind the data, `chained` makes
//! each depend on the one before. `null-checksum` computes at the sender only, `aha-swapped` reads words in the other
//! byte order: what it costs more than `aha` is the reordering.
//!
//! Rows: N-84, N-85.

use crate::auth::{self, HEADER_LEN, Hash, PACKET_LEN};
use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_wire::internet::checksum::Sum;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Where the tag is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// Nowhere.
    None,
    /// In a header in front.
    Header,
    /// The same, and only the sender hashes.
    Unverified,
    /// Behind the data.
    Trailer,
    /// In front, and dependent on the one before.
    Chained,
}

pub(crate) const ALL: &[(&str, Bench)] = &[
    ("auth/udp/none", |s| udp(s, "auth/udp/none", auth::nothing, Tag::None)),
    ("auth/udp/header", |s| udp(s, "auth/udp/header", auth::nothing, Tag::Header)),
    ("auth/udp/null-checksum", |s| {
        udp(s, "auth/udp/null-checksum", auth::checksum, Tag::Unverified)
    }),
    ("auth/udp/checksum", |s| udp(s, "auth/udp/checksum", auth::checksum, Tag::Header)),
    ("auth/udp/aha", |s| udp(s, "auth/udp/aha", auth::aha, Tag::Header)),
    ("auth/udp/aha-swapped", |s| udp(s, "auth/udp/aha-swapped", auth::aha_swapped, Tag::Header)),
    ("auth/udp/bucket", |s| udp(s, "auth/udp/bucket", auth::bucket, Tag::Header)),
    ("auth/udp/md5", |s| udp(s, "auth/udp/md5", auth::md5, Tag::Header)),
    ("auth/udp/md5-trailer", |s| udp(s, "auth/udp/md5-trailer", auth::md5, Tag::Trailer)),
    ("auth/udp/md5-chained", |s| udp(s, "auth/udp/md5-chained", auth::md5, Tag::Chained)),
    ("auth/udp/sha256", |s| udp(s, "auth/udp/sha256", auth::sha256, Tag::Header)),
    ("auth/udp/blake3", |s| udp(s, "auth/udp/blake3", auth::blake3, Tag::Header)),
    ("auth/udp/aes-gmac", |s| udp(s, "auth/udp/aes-gmac", auth::aes_gmac, Tag::Header)),
];

/// Datagrams on the way: what a socket's buffer holds by default.
const WINDOW: u64 = 8;
const TAG_LEN: usize = 8;
/// Before a datagram counts as lost.
const PATIENCE: Duration = Duration::from_millis(500);
const SECONDS: f64 = 0.6;
const SECONDS_QUICK: f64 = 0.05;

/// The bytes of a datagram that its tag covers, and where the tag is.
fn parts(tag: Tag, len: usize) -> (std::ops::Range<usize>, Option<usize>) {
    match tag {
        Tag::None => (0..len, None),
        Tag::Header | Tag::Unverified | Tag::Chained => (HEADER_LEN..len, Some(12)),
        Tag::Trailer => (0..len - TAG_LEN, Some(len - TAG_LEN)),
    }
}

fn len(tag: Tag) -> usize {
    PACKET_LEN
        + match tag {
            Tag::None => 0,
            Tag::Trailer => TAG_LEN,
            _ => HEADER_LEN,
        }
}

/// The tag of a datagram; `before` is that of the one before.
fn tag_of(hash: &mut Hash, tag: Tag, number: u64, data: &[u8], before: u64) -> u64 {
    let digest = hash(number, data);
    if tag == Tag::Chained { digest ^ before.rotate_left(1) } else { digest }
}

/// What the receiver found.
#[derive(Default)]
struct Verified {
    right: u64,
    wrong: u64,
}

fn receive(socket: &UdpSocket, mut hash: Hash, tag: Tag) -> Verified {
    let (mut found, mut buffer, mut before) = (Verified::default(), vec![0; len(tag)], 0);
    // An empty datagram is the end, as is silence.
    while let Ok((got, sender)) = socket.recv_from(&mut buffer) {
        if got == 0 {
            break;
        }
        let (covered, at) = parts(tag, got);
        let number = found.right + found.wrong;
        let is_right = match at {
            None => true,
            Some(_) if tag == Tag::Unverified => true,
            Some(at) => {
                let expected = tag_of(&mut hash, tag, number, &buffer[covered], before);
                before = expected;
                buffer[at..at + TAG_LEN] == expected.to_be_bytes()
            }
        };
        *(if is_right { &mut found.right } else { &mut found.wrong }) += 1;
        if (number + 1).is_multiple_of(WINDOW / 2) {
            let _ = socket.send_to(&(number + 1).to_be_bytes(), sender);
        }
    }
    found
}

/// Sends for so long; returns the datagrams that were acknowledged.
fn send(socket: &UdpSocket, mut hash: Hash, tag: Tag, seconds: f64) -> std::io::Result<u64> {
    let data: Vec<u8> = (0..64 * PACKET_LEN).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut buffer = vec![0; len(tag)];
    let (covered, at) = parts(tag, buffer.len());
    let start = if tag == Tag::Trailer { 0 } else { covered.start };
    let (mut sent, mut acknowledged, mut before) = (0u64, 0u64, 0);
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < seconds {
        while sent - acknowledged >= WINDOW {
            let mut word = [0; 8];
            socket.recv(&mut word)?;
            acknowledged = acknowledged.max(u64::from_be_bytes(word));
        }
        let from = (sent as usize % 64) * PACKET_LEN;
        buffer[start..start + PACKET_LEN].copy_from_slice(&data[from..from + PACKET_LEN]);
        // As TCP does, whatever else is done.
        std::hint::black_box(Sum::of(&buffer[start..start + PACKET_LEN]).value());
        if let Some(at) = at {
            let digest = tag_of(&mut hash, tag, sent, &buffer[covered.clone()], before);
            before = digest;
            buffer[at..at + TAG_LEN].copy_from_slice(&digest.to_be_bytes());
        }
        socket.send(&buffer)?;
        sent += 1;
    }
    socket.send(&[])?;
    Ok(acknowledged)
}

fn udp(
    setting: &Setting,
    name: &str,
    hash: fn() -> Hash,
    tag: Tag,
) -> Result<Measurement, Complaint> {
    let seconds = if setting.quick { SECONDS_QUICK } else { SECONDS };
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    for socket in [&receiver, &sender] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    let (acknowledged, found) = std::thread::scope(|scope| {
        let verified = scope.spawn(|| receive(&receiver, hash(), tag));
        let acknowledged = send(&sender, hash(), tag, seconds);
        (acknowledged, verified.join())
    });
    let found = found.map_err(|_| Complaint("the receiver ended".to_owned()))?;
    if found.wrong > 0 {
        return Err(Complaint(format!("{name}: {} tags are wrong", found.wrong)));
    }
    let rate = (acknowledged? as usize * PACKET_LEN) as f64 / seconds;
    let note = format!("8 KiB datagrams over loopback, {} verified", found.right);
    Ok(Measurement::new(name, rate, "B/s", String::new(), note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_makes_a_tag_wrong_wherever_it_is_n_84() {
        for tag in [Tag::Header, Tag::Trailer, Tag::Chained] {
            for hash in [auth::checksum, auth::aha, auth::md5, auth::sha256, auth::blake3] {
                let mut buffer = vec![7u8; len(tag)];
                let (covered, _) = parts(tag, buffer.len());
                let right = tag_of(&mut hash(), tag, 3, &buffer[covered.clone()], 9);
                assert_eq!(right, tag_of(&mut hash(), tag, 3, &buffer[covered.clone()], 9));
                buffer[covered.start + 100] ^= 1;
                assert_ne!(right, tag_of(&mut hash(), tag, 3, &buffer[covered], 9));
            }
        }
    }

    #[test]
    fn a_chain_depends_on_what_came_before_and_nothing_else_does() {
        let of = |tag, before| tag_of(&mut auth::md5(), tag, 1, &[1, 2, 3], before);
        assert_ne!(of(Tag::Chained, 1), of(Tag::Chained, 2));
        assert_eq!(of(Tag::Header, 1), of(Tag::Header, 2));
    }
}
