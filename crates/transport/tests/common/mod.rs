//! Two connections and a network between them that delays, loses, repeats and reorders.

#![allow(dead_code, reason = "each test uses a part")]

use lastmeter_base::{Duration, Stream, Time};
use lastmeter_transport::tcp::{Config, Connection, Segment, State};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What the network does to segments; probabilities of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) loss: f64,
    pub(crate) repeat: f64,
    pub(crate) reorder: f64,
    /// One way.
    pub(crate) delay: Duration,
    /// Bits per second of the way there, with a queue of `queue` segments; `None` for no limit.
    pub(crate) rate: Option<u64>,
    pub(crate) queue: usize,
    /// Segments that find more than this waiting are marked.
    pub(crate) mark_above: usize,
}

impl Weather {
    pub(crate) const FAIR: Weather = Weather {
        loss: 0.0,
        repeat: 0.0,
        reorder: 0.0,
        delay: Duration::from_ms(50),
        rate: None,
        queue: usize::MAX,
        mark_above: usize::MAX,
    };
}

/// What an end does besides being a connection.
pub(crate) struct End {
    pub(crate) tcp: Connection,
    /// Bytes that it still has to send; then it closes.
    pub(crate) left: u64,
    pub(crate) pattern: u64,
    pub(crate) got: Vec<u8>,
    pub(crate) received: u64,
    pub(crate) closes: bool,
}

/// Whether a segment that this end sends is lost.
pub(crate) type Loses = Box<dyn FnMut(usize, &Segment) -> bool>;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) ends: Vec<End>,
    pub(crate) weather: Weather,
    flying: BinaryHeap<Reverse<(Time, u64)>>,
    cargo: BTreeMap<u64, (usize, Segment, Vec<u8>)>,
    count: u64,
    free_at: Time,
    pub(crate) random: Stream,
    /// Called for each segment that is sent: from, segment; true loses it.
    pub(crate) loses: Loses,
    pub(crate) drops: u64,
    pub(crate) marks: u64,
    pub(crate) moved: u64,
}

impl World {
    /// Ends 0 and 1 are peers, 2 and 3, and so on; even ends send over the bottleneck.
    pub(crate) fn new(weather: Weather, seed: u64) -> World {
        World {
            now: Time::START,
            ends: Vec::new(),
            weather,
            flying: BinaryHeap::new(),
            cargo: BTreeMap::new(),
            count: 0,
            free_at: Time::START,
            random: Stream::new(seed, "world"),
            loses: Box::new(|_, _| false),
            drops: 0,
            marks: 0,
            moved: 0,
        }
    }

    pub(crate) fn pair(&mut self, config: Config, bytes: u64) -> usize {
        let iss = self.random.bits() as u32;
        let client = Connection::connect(self.now, config.clone(), iss);
        let server = Connection::listen(config, iss.wrapping_mul(7));
        let at = self.ends.len();
        for (tcp, left) in [(client, bytes), (server, 0)] {
            let (got, pattern) = (Vec::new(), 0);
            self.ends.push(End { tcp, left, pattern, got, received: 0, closes: true });
        }
        at
    }

    /// What byte number `at` of every stream is.
    pub(crate) fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9e37_79b9) >> 11) as u8
    }

    fn turn(&mut self, who: usize) {
        let end = &mut self.ends[who];
        let mut bytes = vec![0; end.tcp.readable() as usize];
        assert_eq!(end.tcp.read(&mut bytes), bytes.len());
        end.received += bytes.len() as u64;
        end.got.extend(bytes);
        while end.left > 0 && end.tcp.writable() > 0 {
            let len = end.left.min(end.tcp.writable()).min(4096);
            let from = end.pattern;
            let bytes: Vec<u8> = (from..from + len).map(World::byte).collect();
            assert_eq!(end.tcp.write(&bytes), bytes.len());
            end.pattern += len;
            end.left -= len;
        }
        if end.left == 0 && end.closes && (who.is_multiple_of(2) || end.tcp.at_end()) {
            end.tcp.close();
        }
        while let Some(segment) = self.ends[who].tcp.transmit(self.now) {
            let mut payload = Vec::new();
            self.ends[who].tcp.payload(&segment, &mut payload);
            self.post(who, segment, payload);
        }
    }

    fn post(&mut self, who: usize, mut segment: Segment, payload: Vec<u8>) {
        self.moved += 1;
        let Weather { loss, repeat, reorder, delay, rate, queue, mark_above } = self.weather;
        if self.random.chance(loss) || (self.loses)(who, &segment) {
            self.drops += 1;
            return;
        }
        let mut at = self.now + delay;
        if let Some(rate) = rate.filter(|_| who.is_multiple_of(2)) {
            let time_for = |bytes| Duration::from_ps(bytes * 8 * 1_000_000_000_000 / rate);
            let time = time_for(segment.packet_len());
            let start = self.free_at.max(self.now);
            // The queue is as long as this many full packets.
            let waiting = (start - self.now).as_ps() / time_for(1500).as_ps();
            if waiting >= queue as u64 {
                self.drops += 1;
                return;
            }
            if waiting >= mark_above as u64 && segment.ecn.is_capable() {
                segment.ecn = lastmeter_base::Ecn::Ce;
                self.marks += 1;
            }
            self.free_at = start + time;
            at = self.free_at + delay;
        }
        let copies = 1 + u64::from(self.random.chance(repeat));
        for _ in 0..copies {
            let late = match self.random.chance(reorder) {
                true => Duration::from_us(self.random.below(60_000)),
                false => Duration::ZERO,
            };
            self.count += 1;
            self.flying.push(Reverse((at + late, self.count)));
            self.cargo.insert(self.count, (who ^ 1, segment, payload.clone()));
        }
    }

    /// Runs until `until`, or until nothing can happen any more.
    pub(crate) fn run(&mut self, until: Time) {
        (0..self.ends.len()).for_each(|who| self.turn(who));
        loop {
            let arrival = self.flying.peek().map(|Reverse((at, _))| *at);
            let timer = self.ends.iter().filter_map(|end| end.tcp.ready_at()).min();
            let Some(next) = arrival.into_iter().chain(timer).min() else { return };
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let Reverse((_, number)) = self.flying.pop().expect("it was there");
                let (to, segment, payload) = self.cargo.remove(&number).expect("it was sent");
                self.ends[to].tcp.receive(self.now, &segment, &payload);
                self.turn(to);
                continue;
            }
            for who in 0..self.ends.len() {
                if self.ends[who].tcp.ready_at().is_some_and(|at| at <= self.now) {
                    self.ends[who].tcp.expire(self.now);
                    self.turn(who);
                }
            }
        }
    }

    /// How long a segment that is sent now waits for the bottleneck.
    pub(crate) fn waiting(&self) -> Duration {
        self.free_at.saturating_since(self.now)
    }

    pub(crate) fn all_closed(&self) -> bool {
        self.ends.iter().all(|end| matches!(end.tcp.state(), State::Closed | State::Listen))
    }
}

pub(crate) mod dialogue;
