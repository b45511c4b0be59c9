//! DTP over UDP: transactions that are executed once and in order, whatever is lost.
//!
//! The owner keeps up to a window of requests outstanding; each response acknowledges. A device that misses a request
//! says so (NAK), and answers one that it has already executed from what it kept. What nobody answers is sent again
//! after 5 ms, then after twice as long each time, as the device may be busy: up to 80 ms.
//!
//! Source: ISI final report §3.a has the function; windows and times are ours.

use super::Exchanged;
use crate::channel;
use crate::worker::Reply;
use lastmeter_base::Duration as Time;
use lastmeter_engine::Distribution;
use lastmeter_linux::clock::nanoseconds;
use lastmeter_linux::{Doing, Result};
use lastmeter_wire::dtp::{Flags, Packet};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Until a request is sent again, at first and at most, in nanoseconds.
const PATIENCE: u64 = 5_000_000;
const PATIENCE_MAX: u64 = 80_000_000;
/// Most requests outstanding, and responses kept.
const WINDOW_MAX: u16 = 256;
/// The longest datagram.
const LEN_MAX: usize = 2048;
const OWNER: u16 = 1;
const DEVICE: u16 = 2;

/// The owner's side, without a socket.
#[derive(Debug)]
pub struct Owner {
    window: u16,
    next: u16,
    /// Number, when first sent, when last sent.
    outstanding: VecDeque<(u16, u64, u64)>,
    done: u64,
    again: u64,
}

impl Owner {
    /// One that keeps at most so many requests outstanding.
    pub fn new(window: u16) -> Owner {
        let window = window.clamp(1, WINDOW_MAX);
        Owner { window, next: 0, outstanding: VecDeque::new(), done: 0, again: 0 }
    }

    /// Transactions answered.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Requests that were sent again.
    pub fn again(&self) -> u64 {
        self.again
    }

    /// The number of a new request, if one may be sent. Times are in nanoseconds.
    pub fn request(&mut self, now: u64) -> Option<u16> {
        // A gap at the front must not let the window run ahead of what the device keeps.
        let oldest = self.outstanding.front().map_or(self.next, |(number, ..)| *number);
        if self.next.wrapping_sub(oldest) >= self.window {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.outstanding.push_back((number, now, now));
        Some(number)
    }

    /// How long the answered transaction took.
    pub fn answered(&mut self, packet: &Packet<'_>, now: u64) -> Option<u64> {
        let at = self.outstanding.iter().position(|(number, ..)| *number == packet.sequence)?;
        if !packet.flags.response {
            return None;
        }
        self.done += 1;
        self.outstanding.remove(at).map(|(_, first, _)| now.saturating_sub(first))
    }

    /// Marks a request as sent again, if it is outstanding.
    pub fn missed(&mut self, number: u16, now: u64) -> bool {
        let found = self.outstanding.iter_mut().find(|(one, ..)| *one == number);
        let Some((_, _, last)) = found else { return false };
        *last = now;
        self.again += 1;
        true
    }

    /// The request that nobody has answered for too long.
    pub fn overdue(&mut self, now: u64) -> Option<u16> {
        let late = |(_, first, last): &&(u16, u64, u64)| {
            let patience = (last - first).clamp(PATIENCE, PATIENCE_MAX);
            now.saturating_sub(*last) > patience
        };
        let number = self.outstanding.iter().find(late)?.0;
        self.missed(number, now).then_some(number)
    }
}

/// What a device does with a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Executes it.
    Execute,
    /// Answers again what it has executed.
    Repeat,
    /// Says that it misses the one after this.
    Missing(u16),
}

/// The device's side, without a socket.
#[derive(Debug, Default)]
pub struct Device {
    expected: u16,
    executed: u64,
}

impl Device {
    /// What becomes of a request with this number.
    pub fn react(&mut self, number: u16) -> Reaction {
        let ahead = number.wrapping_sub(self.expected);
        if ahead == 0 {
            self.expected = self.expected.wrapping_add(1);
            self.executed += 1;
            Reaction::Execute
        } else if ahead < u16::MAX / 2 {
            Reaction::Missing(self.expected.wrapping_sub(1))
        } else {
            Reaction::Repeat
        }
    }
}

pub(super) fn device(
    address: Ipv4Addr,
    lasts: Duration,
    parent: &mut UnixStream,
) -> Result<Exchanged> {
    let what = "answering transactions";
    let socket = UdpSocket::bind((address, 0)).doing(what)?;
    socket.set_read_timeout(Some(Duration::from_millis(10))).doing(what)?;
    let port = socket.local_addr().doing(what)?.port();
    channel::send(parent, &Reply::Listening { port }).doing("telling the port")?;
    let (from, until) = (nanoseconds(), nanoseconds() + lasts.as_nanos() as u64);
    let (mut device, mut repeated) = (Device::default(), 0);
    let mut buffer = [0; LEN_MAX];
    while nanoseconds() < until {
        let Ok((len, owner)) = socket.recv_from(&mut buffer) else { continue };
        let Ok(packet) = Packet::parse(&buffer[..len]) else { continue };
        if !packet.flags.request {
            continue;
        }
        let response = Flags { response: true, ack: true, ..Flags::default() };
        let missing = Flags { nak: true, ack: true, ..Flags::default() };
        let (flags, acknowledged) = match device.react(packet.sequence) {
            Reaction::Execute => (response, packet.sequence),
            Reaction::Repeat => {
                repeated += 1;
                (response, packet.sequence)
            }
            Reaction::Missing(last) => (missing, last),
        };
        // The commands of this device return what they were given.
        let data = if flags.response { packet.data } else { &[] };
        let sequence = packet.sequence;
        let answer = Packet { src: DEVICE, dst: OWNER, sequence, acknowledged, flags, data };
        if let Ok(bytes) = answer.emit() {
            // What is lost here is asked for again.
            let _ = socket.send_to(&bytes, owner);
        }
    }
    let lasted = (nanoseconds() - from) as f64 / 1e9;
    Ok(Exchanged { done: device.executed, again: repeated, lasted, ..Exchanged::default() })
}

pub(super) fn owner(
    address: Ipv4Addr,
    port: u16,
    window: u16,
    len: usize,
    lasts: Duration,
) -> Result<Exchanged> {
    let what = "asking a device";
    let socket = UdpSocket::bind("0.0.0.0:0").doing(what)?;
    socket.connect((address, port)).doing(what)?;
    socket.set_read_timeout(Some(Duration::from_nanos(PATIENCE / 2))).doing(what)?;
    let data = vec![0x5a; len.min(LEN_MAX - lastmeter_wire::dtp::HEADER_LEN)];
    let send = |sequence: u16| {
        let flags = Flags { request: true, ..Flags::default() };
        let packet =
            Packet { src: OWNER, dst: DEVICE, sequence, acknowledged: 0, flags, data: &data };
        if let Ok(bytes) = packet.emit() {
            let _ = socket.send(&bytes);
        }
    };
    let (mut owner, mut times) = (Owner::new(window), Distribution::default());
    let (from, until) = (nanoseconds(), nanoseconds() + lasts.as_nanos() as u64);
    let mut buffer = [0; LEN_MAX];
    let mut now = from;
    while now < until {
        while let Some(number) = owner.request(now) {
            send(number);
        }
        let received = socket.recv(&mut buffer);
        now = nanoseconds();
        if let Some(packet) = received.ok().and_then(|len| Packet::parse(&buffer[..len]).ok()) {
            if packet.flags.nak {
                let number = packet.acknowledged.wrapping_add(1);
                if owner.missed(number, now) {
                    send(number);
                }
            } else if let Some(took) = owner.answered(&packet, now) {
                times.record(Time::from_ns(took));
            }
        }
        if let Some(number) = owner.overdue(now) {
            send(number);
        }
    }
    let mut exchanged = Exchanged {
        done: owner.done,
        again: owner.again,
        lasted: (now - from) as f64 / 1e9,
        ..Exchanged::default()
    };
    if times.count() > 0 {
        exchanged.p50 = times.percentile(0.5).as_secs_f64();
        exchanged.p99 = times.percentile(0.99).as_secs_f64();
    }
    Ok(exchanged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of which a third is lost, in either direction.
    fn run(window: u16, lose: impl Fn(u64) -> bool) -> (Owner, Vec<u16>) {
        let (mut owner, mut device) = (Owner::new(window), Device::default());
        let (mut executed, mut line, mut now) = (Vec::new(), VecDeque::new(), 0u64);
        let mut sent = 0u64;
        for _ in 0..200_000 {
            now += 100_000;
            line.extend(std::iter::from_fn(|| owner.request(now)));
            line.extend(owner.overdue(now));
            let Some(number) = line.pop_front() else { continue };
            sent += 1;
            if lose(sent) {
                continue;
            }
            let reaction = device.react(number);
            if reaction == Reaction::Execute {
                executed.push(number);
            }
            sent += 1;
            if lose(sent) {
                continue;
            }
            let flags = Flags {
                response: !matches!(reaction, Reaction::Missing(_)),
                nak: matches!(reaction, Reaction::Missing(_)),
                ..Flags::default()
            };
            if let Reaction::Missing(last) = reaction {
                let missing = last.wrapping_add(1);
                if owner.missed(missing, now) {
                    line.push_back(missing);
                }
            } else {
                let (src, dst, acknowledged) = (DEVICE, OWNER, number);
                let packet = Packet { src, dst, sequence: number, acknowledged, flags, data: &[] };
                owner.answered(&packet, now);
            }
        }
        (owner, executed)
    }

    #[test]
    fn each_transaction_is_executed_once_and_in_order_whatever_is_lost_n_05() {
        for window in [1, 3, 16] {
            let (owner, executed) =
                run(window, |sent| sent.wrapping_mul(0x9e37_79b9) >> 16 & 3 == 0);
            assert!(executed.len() > 1_000, "{window}: {}", executed.len());
            let in_order = executed.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1));
            assert!(in_order, "{window}");
            assert!(owner.done <= executed.len() as u64 && owner.again > 0);
            assert!(executed.len() as u64 - owner.done <= u64::from(window));
        }
    }

    #[test]
    fn without_loss_nothing_is_sent_again() {
        let (owner, executed) = run(8, |_| false);
        assert_eq!(owner.again, 0);
        // Numbers have wrapped.
        assert!(executed.len() > usize::from(u16::MAX));
    }
}
