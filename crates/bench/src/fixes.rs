//! `lastmeter bench fixes`: which fix of ATOMIC-2 removes which bottleneck, on this machine (N-43).
//!
//! ```text
//! data --copied twice more?--> hashed by MD5? --> UDP --10 Mbit/s, or none--> hashed? --copied twice more?
//! ```
//!
//! Every set of three fixes: the network, the hash, the copies. What is sent is a window of datagrams of 8 KiB, each
//! acknowledged, between two threads of this program over loopback. The slow network is a pause after each datagram as
//! long as its bytes take at 10 Mbit/s. Where the network is fixed, a processor limits: the throughput is what the
//! busier end carries in a second of its CPU time, which other programs on the machine do not lengthen. The best of a
//! few rounds counts.
//!
//! Rows: N-43.

use crate::auth::{self, Hash, PACKET_LEN};
use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_linux::clock::thread_cpu;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Fixes, in the bits of a set's number.
const NETWORK: usize = 1;
const HASH: usize = 2;
const COPIES: usize = 4;
const SETS: usize = 8;

pub(crate) const ALL: &[(&str, Bench)] = &[("fixes", |setting| matrix(setting))];

/// Ethernet of then, in bits per second.
const SLOW: f64 = 10e6;
/// Datagrams on the way.
const WINDOW: u64 = 8;
/// Datagrams whose data are sent in rotation: more than the near caches hold.
const SOURCE: usize = 512;
/// Copies that a fix saves at either end: into the system and out of it.
const EXTRA: usize = 2;
const ROUNDS: usize = 3;
/// Datagrams of a run: with the slow network a third of a second.
const DATAGRAMS: u64 = 6000;
const DATAGRAMS_SLOW: u64 = 50;
/// Before a datagram counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one end does with a packet.
struct End {
    hash: Option<Hash>,
    buffers: Vec<Vec<u8>>,
}

impl End {
    fn new(set: usize) -> End {
        let copies = if set & COPIES == 0 { EXTRA } else { 0 };
        let hash = (set & HASH == 0).then(auth::md5);
        End { hash, buffers: vec![vec![1; SOURCE * PACKET_LEN]; copies] }
    }

    /// Copies and hashes a packet; its tag.
    fn pass(&mut self, number: u64, packet: &[u8]) -> u64 {
        let from = (number as usize % SOURCE) * PACKET_LEN;
        for buffer in &mut self.buffers {
            buffer[from..from + packet.len()].copy_from_slice(packet);
        }
        self.hash.as_mut().map_or(0, |hash| hash(number, packet))
    }
}

/// Receives so many; CPU seconds.
fn receive(socket: &UdpSocket, mut end: End, datagrams: u64) -> Result<f64, Complaint> {
    let mut buffer = vec![0; 8 + PACKET_LEN];
    let began = thread_cpu();
    for number in 0..datagrams {
        let (len, sender) = socket.recv_from(&mut buffer)?;
        if len < buffer.len() || end.pass(number, &buffer[8..]).to_be_bytes() != buffer[..8] {
            return Err(Complaint(format!("datagram {number} is not what was sent")));
        }
        socket.send_to(&(number + 1).to_be_bytes(), sender)?;
    }
    Ok(thread_cpu() - began)
}

/// Sends so many, and waits until all are acknowledged; seconds of the clock and of the CPU.
fn send(
    socket: &UdpSocket,
    mut end: End,
    (datagrams, slow): (u64, bool),
    data: &[u8],
) -> Result<(f64, f64), Complaint> {
    let mut buffer = vec![0; 8 + PACKET_LEN];
    let (mut acknowledged, mut word) = (0_u64, [0; 8]);
    let (began, used) = (Instant::now(), thread_cpu());
    for sent in 0..datagrams {
        while sent - acknowledged >= WINDOW {
            socket.recv(&mut word)?;
            acknowledged = u64::from_be_bytes(word);
        }
        let from = (sent as usize % SOURCE) * PACKET_LEN;
        let packet = &data[from..from + PACKET_LEN];
        buffer[..8].copy_from_slice(&end.pass(sent, packet).to_be_bytes());
        buffer[8..].copy_from_slice(packet);
        socket.send(&buffer)?;
        if slow {
            let due = Duration::from_secs_f64((sent + 1) as f64 * bits(1) / SLOW);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    while acknowledged < datagrams {
        socket.recv(&mut word)?;
        acknowledged = u64::from_be_bytes(word);
    }
    Ok((began.elapsed().as_secs_f64(), thread_cpu() - used))
}

fn bits(datagrams: u64) -> f64 {
    datagrams as f64 * (PACKET_LEN * 8) as f64
}

/// The throughput of a set, in bits per second.
fn run(set: usize, quick: bool, data: &[u8]) -> Result<f64, Complaint> {
    let (receiver, sender) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    sender.connect(receiver.local_addr()?)?;
    for socket in [&receiver, &sender] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    let slow = set & NETWORK == 0;
    let datagrams = match (slow, quick) {
        (true, _) => DATAGRAMS_SLOW,
        (false, false) => DATAGRAMS,
        (false, true) => DATAGRAMS / 4,
    };
    // Their memory is touched before anything counts.
    let (here, there) = (End::new(set), End::new(set));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| receive(&receiver, there, datagrams));
        let (lasted, sending) = send(&sender, here, (datagrams, slow), data)?;
        let receiving = other.join().map_err(|_| Complaint("the receiver ended".to_owned()))??;
        Ok(bits(datagrams) / if slow { lasted } else { sending.max(receiving) })
    })
}

/// All sets: the value is that of all fixes, the note has the others.
fn matrix(setting: &Setting) -> Result<Measurement, Complaint> {
    let data: Vec<u8> = (0..SOURCE * PACKET_LEN).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut best = [0.0_f64; SETS];
    for _ in 0..ROUNDS {
        for (set, best) in best.iter_mut().enumerate() {
            *best = best.max(run(set, setting.quick, &data)?);
        }
    }
    let name = |set: usize| {
        let fixes = [(NETWORK, "network"), (HASH, "hash"), (COPIES, "copies")];
        let has = fixes.iter().filter(|(bit, _)| set & bit != 0).map(|(_, name)| *name);
        let has: Vec<&str> = has.collect();
        if has.is_empty() { "none".to_owned() } else { has.join("+") }
    };
    let each =
        best.iter().enumerate().map(|(set, rate)| format!("{} {:.1}", name(set), rate / 1e6));
    let note = format!("Mbit/s by fixes: {}", each.collect::<Vec<_>>().join(", "));
    let mut all = Measurement::new("fixes", best[SETS - 1], "bit/s", String::new(), note);
    all.beside("without any", best[0]);
    Ok(all)
}
