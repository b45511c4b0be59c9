//! What is between an adapter and the other end: a full-duplex cable.
//!
//! ```text
//! adapter --departure--> [ propagation ] --> other end
//! adapter <-- [ propagation ] <--[ at the network's rate ]<-- other end
//! ```
//!
//! An adapter's transmitter has already taken the time on the network; what comes from an end without one, an interface
//! of this machine, is sent as fast as the adapter's network allows, one frame after the other.

use crate::device::Departure;
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_engine::Distribution;
use lastmeter_host::adapter::description::Description;
use std::collections::VecDeque;

/// Most bytes that wait in front of a cable.
const WAITING_MAX: u64 = 16 << 20;

/// One direction.
#[derive(Debug)]
pub struct Cable {
    propagation: Duration,
    /// When it can take the next frame.
    free: Time,
    frames: VecDeque<Departure>,
    bytes: u64,
    /// Waiting for the cable.
    pub wait: Distribution,
    /// Time on the cable, without propagation.
    pub service: Distribution,
    /// Frames that found no room.
    pub lost: u64,
}

impl Cable {
    /// An empty one.
    pub fn new(propagation: Duration) -> Cable {
        let (wait, service) = (Distribution::default(), Distribution::default());
        let frames = VecDeque::new();
        Cable { propagation, free: Time::START, frames, bytes: 0, wait, service, lost: 0 }
    }

    /// A frame whose last bit has left an adapter.
    pub fn carry(&mut self, departure: Departure) {
        self.push(departure.at, departure.frame);
    }

    /// A frame that an end without an adapter wants to send, at the rate of the `card`'s network.
    pub fn send(&mut self, now: Time, frame: Vec<u8>, card: &Description) {
        let service = card.wire_time(Bytes(frame.len() as u64));
        let begins = self.free.max(now);
        if self.push(begins + service, frame) {
            self.free = begins + service;
            self.wait.record(begins - now);
            self.service.record(service);
        }
    }

    fn push(&mut self, at: Time, frame: Vec<u8>) -> bool {
        let len = frame.len() as u64;
        if self.bytes + len > WAITING_MAX {
            self.lost += 1;
            return false;
        }
        self.bytes += len;
        self.frames.push_back(Departure { at: at + self.propagation, frame });
        true
    }

    /// When the next frame arrives.
    pub fn ready_at(&self) -> Option<Time> {
        self.frames.front().map(|frame| frame.at)
    }

    /// The next frame that has arrived by now.
    pub fn take(&mut self, now: Time) -> Option<Departure> {
        let departure = self.frames.pop_front_if(|frame| frame.at <= now)?;
        self.bytes -= departure.frame.len() as u64;
        Some(departure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Rate;

    fn us(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }

    #[test]
    fn frames_follow_each_other_at_the_networks_rate() {
        let mut card = Description::plain("8 Mbit/s: a byte a microsecond");
        card.network.rate = Some(Rate::from_bits(8_000_000));
        card.network.framing = Bytes(20);
        let mut cable = Cable::new(Duration::from_us(5));
        cable.send(us(10), vec![0; 100], &card);
        cable.send(us(20), vec![1; 80], &card);
        cable.send(us(900), vec![2; 80], &card);
        assert_eq!(cable.take(us(134)), None);
        let mut at = Vec::new();
        while let Some(due) = cable.ready_at() {
            at.push((due, cable.take(due).unwrap().frame[0]));
        }
        assert_eq!(at, [(us(135), 0), (us(235), 1), (us(1005), 2)]);
        assert_eq!(
            (cable.wait.max(), cable.service.max()),
            (us(110) - Time::START, us(120) - Time::START)
        );
    }

    #[test]
    fn what_has_left_an_adapter_only_propagates() {
        let mut cable = Cable::new(Duration::from_us(5));
        cable.carry(Departure { at: us(1), frame: vec![0; 1 << 20] });
        assert_eq!(cable.ready_at(), Some(us(6)));
        (0..20).for_each(|_| cable.carry(Departure { at: us(2), frame: vec![0; 1 << 20] }));
        assert_eq!(cable.lost, 5, "16 MiB wait at most");
    }
}
