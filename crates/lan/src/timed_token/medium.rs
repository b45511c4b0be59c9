//! A whole timed-token ring: which station holds the token, what is queued where, and when each frame is sent.
//!
//! ```text
//!         .--> coming --> held: synchronous, then asynchronous --.
//!         |      ^                                               |
//!         |      '-- the next station, a hop later <-------------+
//!         '-- watchdog, 2 TTRT and a handler later <-- lost <----'
//! ```
//!
//! One station sends at a time (J-11). A frame goes around once and is stripped by its source, which has passed
//! the token on by then. So the ring needs no event for each station that a frame passes: it reaches its
//! destination at its end plus the propagation delay. The frames that a station may send in one visit are
//! scheduled together, back to back; frames that arrive meanwhile are considered when the last of them ends. While
//! all queues are empty, the token circulates without events.
//!
//! A station at which the token is late may send only synchronous frames; the timers are in [`super::station`].
//! The master detects a lost token 2 TTRT after it last saw it, and issues a new one after the time of its
//! interrupt handler (J-42).

use super::station::{Grant, Station};
use lastmeter_base::{Bytes, Duration, Packet, Rate, Time};
use lastmeter_engine::Series;
use std::collections::VecDeque;

/// The master and fifteen hosts (J-08): a ring identity has four bits.
pub const STATIONS_MAX: usize = 16;

/// Samples per target rotation time in the record of token holders.
const HOLDERS_A_TARGET: u64 = 64;

/// The classes of service (J-13, J-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Guaranteed time in every rotation.
    Synchronous,
    /// The remaining time, round robin.
    Asynchronous,
}

/// A ring; station 0 is its master.
#[derive(Clone, Debug)]
pub struct Options {
    /// TTRT.
    pub target: Duration,
    /// Rate of the ring.
    pub rate: Rate,
    /// Delay from each station to the next, the station's own latency included.
    pub hops: Vec<Duration>,
    /// Synchronous time of each station per rotation.
    pub allotments: Vec<Duration>,
    /// Time to send the token.
    pub token: Duration,
    /// Line time of a frame in addition to its packet: headers and the gap.
    pub framing: Bytes,
    /// Most frames per class that wait at a station.
    pub packets_max: usize,
    /// From detecting a lost token to issuing a new one: the interrupt response time.
    pub handler: Duration,
}

/// A frame in transmission.
#[derive(Debug)]
pub struct Sent {
    /// The packet.
    pub packet: Packet,
    /// The station that sends it.
    pub station: usize,
    /// When its first bit leaves.
    pub started: Time,
    /// When its last bit leaves.
    pub ended: Time,
    /// Its class.
    pub class: Class,
}

/// Statistics of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Frames sent.
    pub frames: u64,
    /// Total line time.
    pub time: Duration,
    /// The longest time for which a frame at the head of a queue waited for the token.
    pub access_max: Duration,
}

/// Statistics of the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotations {
    /// Rotations seen, over all stations.
    pub count: u64,
    /// Their sum, in picoseconds.
    pub sum: u128,
    /// The longest.
    pub max: Duration,
    /// Visits to a station whose TRT had expired twice: the bound of 2 TTRT was violated.
    pub broken: u64,
    /// Tokens that were lost.
    pub lost: u64,
    /// The longest time without a token, from the loss to its replacement.
    pub recovery_max: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Token {
    /// On its way; it arrives at a station at that time.
    Coming(usize, Time),
    /// Held by a station, which sends until that time.
    Held { station: usize, class: Class, left: Grant, free_at: Time },
    /// Lost; the master issues a new one at that time.
    Lost(Time),
}

/// The queue of one station in one class.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Packet>,
    /// When the last frame from it ended.
    free_at: Time,
}

/// A ring in virtual time: a machine that its user advances.
#[derive(Debug)]
pub struct Medium {
    options: Options,
    stations: Vec<Station>,
    queues: Vec<[Queue; 2]>,
    /// Propagation delay from station 0 to each station.
    from_master: Vec<Duration>,
    /// Latency of the ring, including the token.
    latency: Duration,
    token: Token,
    /// Visits since a station last had something to send.
    idle_visits: usize,
    last_visit: Vec<Option<Time>>,
    waiting: u64,
    /// Whether the token will be lost when next passed on.
    lose: bool,
    /// Stations that are on the ring; others neither send nor receive.
    members: Vec<bool>,
    /// Totals of each class.
    pub services: [Service; 2],
    /// Statistics of the token.
    pub rotations: Rotations,
    /// Rotations of the token as the master sees them, in picoseconds.
    pub rotation_times: Series,
    /// The holder of the token during the first rotations.
    pub holders: Series,
}

impl Medium {
    /// A ring whose master issues the token at `now`.
    ///
    /// # Errors
    /// If there are too few or too many stations, or the ring latency exceeds the target.
    pub fn new(options: Options, now: Time) -> Result<Medium, String> {
        let stations = options.hops.len();
        if !(2..=STATIONS_MAX).contains(&stations) {
            return Err(format!("a ring has 2 to {STATIONS_MAX} stations, not {stations}"));
        }
        if options.allotments.len() != stations {
            let allotments = options.allotments.len();
            return Err(format!("{allotments} allotments for {stations} stations"));
        }
        let hop = |hop: &Duration| *hop + options.token;
        let latency: Duration = options.hops.iter().map(hop).sum();
        if latency >= options.target || latency.is_zero() {
            let target = options.target;
            return Err(format!("the ring latency {latency} exceeds the target {target}"));
        }
        let mut way = Duration::ZERO;
        let from_master = options.hops.iter().map(|&hop| {
            let to = way;
            way += hop;
            to
        });
        Ok(Medium {
            from_master: from_master.collect(),
            stations: options
                .allotments
                .iter()
                .map(|&allotment| Station::new(options.target, allotment, now))
                .collect(),
            queues: (0..stations).map(|_| Default::default()).collect(),
            latency,
            token: Token::Coming(0, now),
            idle_visits: 0,
            last_visit: vec![None; stations],
            waiting: 0,
            lose: false,
            members: vec![true; stations],
            services: [Service::default(); 2],
            rotations: Rotations::default(),
            rotation_times: Series::whole_run(),
            holders: Series::beginning(options.target / HOLDERS_A_TARGET),
            options,
        })
    }

    /// Latency of an idle ring.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// Propagation delay from one station to another; from a station to itself, once around.
    pub fn way(&self, from: usize, to: usize) -> Duration {
        let around: Duration = self.options.hops.iter().copied().sum();
        let (start, end) = (self.from_master[from], self.from_master[to]);
        if end > start { end - start } else { around - (start - end) }
    }

    /// Frames queued.
    pub fn packets(&self) -> u64 {
        self.waiting
    }

    /// Line time of a frame.
    #[inline]
    pub fn time_for(&self, len: Bytes) -> Duration {
        self.options.rate.time_for(len + self.options.framing)
    }

    /// Enqueues a frame at a station. The ring has been advanced to `now`.
    ///
    /// # Errors
    /// The frame, if the queue is full, a synchronous one would never fit, or its station is off
    /// the ring.
    pub fn enqueue(
        &mut self,
        now: Time,
        station: usize,
        class: Class,
        mut packet: Packet,
    ) -> Result<(), Packet> {
        let never = class == Class::Synchronous
            && self.time_for(packet.len) > self.stations[station].allotment;
        let queue = &mut self.queues[station][class as usize];
        if never || !self.members[station] || queue.packets.len() >= self.options.packets_max {
            return Err(packet);
        }
        packet.entered = now;
        queue.packets.push_back(packet);
        self.waiting += 1;
        Ok(())
    }

    /// When it should next be advanced; `None` while all queues are empty.
    pub fn ready_at(&self) -> Option<Time> {
        if self.waiting == 0 {
            return None;
        }
        match self.token {
            Token::Held { free_at, .. } => Some(free_at),
            Token::Lost(until) => Some(until),
            Token::Coming(mut station, mut at) => {
                // No station in between has anything to send.
                while self.queues[station].iter().all(|queue| queue.packets.is_empty()) {
                    at += self.options.token + self.options.hops[station];
                    station = self.next(station);
                }
                Some(at)
            }
        }
    }

    #[inline]
    fn next(&self, station: usize) -> usize {
        if station + 1 == self.stations.len() { 0 } else { station + 1 }
    }

    /// Handles everything due, and reports the frames sent.
    #[inline]
    pub fn advance(&mut self, now: Time, mut sent: impl FnMut(Sent)) {
        loop {
            match self.token {
                Token::Coming(station, at) if at <= now => {
                    let at = self.skip_idle(now, at);
                    self.visit(station, at);
                }
                Token::Held { station, class, left, free_at } if free_at <= now => {
                    self.hold(station, class, left, free_at, &mut sent);
                }
                Token::Lost(until) if until <= now => self.token = Token::Coming(0, until),
                _ => return,
            }
        }
    }

    /// If no station had anything to send for two rotations, skips whole rotations.
    fn skip_idle(&mut self, now: Time, at: Time) -> Time {
        let rotations = (now - at).as_ps() / self.latency.as_ps();
        let settled = self.idle_visits >= 2 * self.stations.len();
        if rotations == 0 || self.waiting > 0 || !settled || self.lose {
            return at;
        }
        let skipped = self.latency * rotations;
        for (station, last) in self.stations.iter_mut().zip(&mut self.last_visit) {
            *last = last.map(|last| last + skipped);
            station.idle_until(last.expect("an idle token has visited all"));
        }
        let visits = rotations * self.stations.len() as u64;
        self.rotations.count += visits;
        self.rotations.sum += u128::from(visits) * u128::from(self.latency.as_ps());
        self.rotations.max = self.rotations.max.max(self.latency);
        at + skipped
    }

    fn visit(&mut self, station: usize, at: Time) {
        let left = self.stations[station].token(at);
        if let Some(last) = self.last_visit[station].replace(at) {
            let rotation = at - last;
            self.rotations.count += 1;
            self.rotations.sum += u128::from(rotation.as_ps());
            self.rotations.max = self.rotations.max.max(rotation);
            self.rotations.broken += u64::from(left.lost);
            if station == 0 {
                self.rotation_times.record(at, rotation.as_ps());
            }
        }
        if self.queues[station].iter().all(|queue| queue.packets.is_empty()) {
            self.idle_visits += 1;
            self.pass(station, at);
        } else {
            self.idle_visits = 0;
            let class = Class::Synchronous;
            self.token = Token::Held { station, class, left, free_at: at };
        }
    }

    /// Sends what a station may send of one class, then of the other one; then passes the token on.
    fn hold(
        &mut self,
        station: usize,
        class: Class,
        mut left: Grant,
        started: Time,
        sent: &mut impl FnMut(Sent),
    ) {
        let mut at = started;
        loop {
            let first = self.queues[station][class as usize].packets.front();
            let Some(time) = first.map(|packet| self.time_for(packet.len)) else { break };
            match class {
                // J-22: a synchronous frame is sent only if it can end within the allotment.
                Class::Synchronous if time > left.synchronous => break,
                Class::Synchronous => left.synchronous = left.synchronous - time,
                // J-23: an asynchronous frame is sent if it can begin in time.
                Class::Asynchronous if left.asynchronous.is_zero() => break,
                Class::Asynchronous => {
                    left.asynchronous = left.asynchronous.saturating_sub(time);
                }
            }
            let sent_frame = self.send(station, class, at, time);
            at = sent_frame.ended;
            sent(sent_frame);
        }
        if at > started {
            self.holders.record_span(started, at, station as u64);
        }
        let more = match class {
            Class::Synchronous => !left.synchronous.is_zero(),
            Class::Asynchronous => !left.asynchronous.is_zero(),
        };
        match class {
            // Frames that arrive during the last one may still be sent, if there is time.
            _ if at > started && more => {
                self.token = Token::Held { station, class, left, free_at: at };
            }
            Class::Synchronous => {
                let class = Class::Asynchronous;
                self.token = Token::Held { station, class, left, free_at: at };
            }
            Class::Asynchronous => self.pass(station, at),
        }
    }

    #[inline]
    fn send(&mut self, station: usize, class: Class, started: Time, time: Duration) -> Sent {
        let queue = &mut self.queues[station][class as usize];
        let packet = queue.packets.pop_front().expect("the queue was found not empty");
        let ended = started + time;
        let access = started - packet.entered.max(queue.free_at);
        queue.free_at = ended;
        self.waiting -= 1;
        let service = &mut self.services[class as usize];
        service.frames += 1;
        service.time += time;
        service.access_max = service.access_max.max(access);
        Sent { packet, station, started, ended, class }
    }

    fn pass(&mut self, station: usize, at: Time) {
        if std::mem::take(&mut self.lose) {
            // The watchdog started when the master last saw the token.
            let seen = self.last_visit[0].unwrap_or(at);
            let found = (seen + self.options.target * 2).max(at);
            let until = found + self.options.handler;
            self.rotations.lost += 1;
            self.rotations.recovery_max = self.rotations.recovery_max.max(until - at);
            self.last_visit.fill(None);
            self.idle_visits = 0;
            self.token = Token::Lost(until);
            return;
        }
        let there = at + self.options.token + self.options.hops[station];
        self.token = Token::Coming(self.next(station), there);
    }

    /// Number of stations, including those off the ring.
    pub fn stations(&self) -> usize {
        self.members.len()
    }

    /// Whether a station is on the ring.
    pub fn is_member(&self, station: usize) -> bool {
        self.members[station]
    }

    /// The ring comes up again at the given time with these stations, and the token starts at the master. Stations
    /// that are not among them lose their queues. Frames in transmission are sent. The ring has been advanced to
    /// the present.
    ///
    /// Propagation is unchanged: a hub forwards around what it bypasses.
    pub fn bring_up(&mut self, members: &[bool], up: Time) -> Vec<Packet> {
        self.members.clear();
        self.members.extend_from_slice(members);
        let mut lost = Vec::new();
        for (queues, _) in self.queues.iter_mut().zip(members).filter(|(_, member)| !**member) {
            queues.iter_mut().for_each(|queue| lost.extend(queue.packets.drain(..)));
        }
        self.waiting -= lost.len() as u64;
        let up = match self.token {
            Token::Held { free_at, .. } => up.max(free_at),
            _ => up,
        };
        let allotments = &self.options.allotments;
        let station = |&allotment: &Duration| Station::new(self.options.target, allotment, up);
        self.stations = allotments.iter().map(station).collect();
        self.last_visit.fill(None);
        self.idle_visits = 0;
        self.token = Token::Lost(up);
        lost
    }

    /// Makes the token get lost when next passed on.
    pub fn lose_token(&mut self) {
        self.lose = true;
    }
}

#[cfg(test)]
#[path = "medium_tests.rs"]
mod tests;
