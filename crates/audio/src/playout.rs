//! What of a stream is played when: packets in, blocks of samples out. Time is an argument.
//!
//! ```text
//! packet -> too late? twice? -> held, in order of timestamps -> block: played, or concealed where nothing came
//!                                |<-------- delay ------->|
//! ```
//!
//! | parameter | unit | default | meaning |
//! |---|---|---|---|
//! | `rate` | samples/s | | of a channel |
//! | `channels` | | | samples of a frame |
//! | `delay` | time | 60 ms | from a stream's first packet until it is played: what later ones may be late by |
//! | `conceal` | | silence | what is played where nothing came: silence, or what came last, for 40 ms |
//!
//! A packet that is not there when it is due is late if it comes within a second, and lost if it does not. Nothing
//! else is known of a stream's end, so what is missing after the last packet is no loss. Packets that are late or
//! early ten times in a row begin anew, with the delay. A sender whose clock is not the device's fills the buffer or
//! empties it: when the middle of how long before their turn 200 packets come is 5 ms off what it was at first, frames
//! are left out or played twice, one in a block, until it is as it was.
//!
//! Source: RFC 3550, sections 5.1, 6.4.1 and A.1; how playout adapts is our choice.
//!
//! Rows: N-01.

use std::collections::BTreeMap;
use std::time::Duration;

/// The most that is held, and the longest delay.
pub const HELD_MAX: Duration = Duration::from_secs(2);
/// The most packets that are held.
pub const PACKETS_MAX: usize = 4096;
/// Time after which what has not come is lost.
pub const LATE_MAX: Duration = Duration::from_secs(1);
/// The most packets that are waited for, after they were due.
pub const MISSING_MAX: usize = 1024;
/// Packets in a row that come at a wrong time until the stream begins anew.
pub const STRAY_MAX: u32 = 10;
/// For how long the last sound is repeated.
const REPEAT_MAX: Duration = Duration::from_millis(40);
/// Packets of which the middle is taken: two seconds, if each has 10 ms.
const WINDOW: usize = 200;
/// How long before their turn packets come may differ by so much from what it was.
const BAND: Duration = Duration::from_millis(5);
/// The fastest packet is that of the last one to two of these.
const FASTEST: Duration = Duration::from_secs(10);
/// Network times beyond this are clocks that differ.
const NETWORK_MAX: Duration = Duration::from_secs(5);

/// What is played where nothing came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conceal {
    /// Nothing.
    #[default]
    Silence,
    /// The last sound again, for a while.
    Repeat,
}

/// How a stream is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Samples of a channel in a second.
    pub rate: u32,
    /// Samples of a frame.
    pub channels: u16,
    /// From the first packet until it is played.
    pub delay: Duration,
    /// What is played where nothing came.
    pub conceal: Conceal,
}

impl Settings {
    /// Frames in a time.
    pub fn frames(&self, time: Duration) -> usize {
        (time.as_nanos() * u128::from(self.rate) / 1_000_000_000) as usize
    }
}

/// What became of packets and frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came.
    pub packets: u64,
    /// Those that were played.
    pub played: u64,
    /// Packets that never came, or too late to be counted as late.
    pub lost: u64,
    /// Packets that came after they were due.
    pub late: u64,
    /// Packets that came twice, or long after they were due.
    pub twice: u64,
    /// Packets for which there was no room, or that were still to be heard when the stream began anew.
    pub early: u64,
    /// Frames that were played without having come.
    pub concealed: u64,
    /// Frames that were left out, as the sender's clock is faster.
    pub skipped: u64,
    /// Frames that were played twice, as it is slower.
    pub repeated: u64,
    /// How often the stream began anew.
    pub restarts: u64,
    /// Frames that were played, concealed ones included.
    pub frames: u64,
}

impl Counts {
    /// By how much the sender's clock is faster than the device's, in parts of a million, as far as it was followed.
    pub fn drift(&self) -> f64 {
        let off = self.skipped as f64 - self.repeated as f64;
        off / self.frames.max(1) as f64 * 1e6
    }
}

/// A packet as it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number.
    pub sequence: u16,
    /// Of its first frame.
    pub timestamp: u32,
    /// Channels in turn.
    pub samples: Vec<i16>,
    /// Time since 1970, for senders that say when sound was taken.
    pub wall: Duration,
    /// What was spent on it before.
    pub spent: Duration,
}

/// A packet whose first frame is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Played {
    /// From when its sound was taken until it came, as far as that is known.
    pub network: Duration,
    /// What was spent on it before it was held.
    pub spent: Duration,
    /// For how long it was held.
    pub held: Duration,
    /// Its bytes.
    pub bytes: u64,
}

struct Held {
    sequence: u64,
    arrived: Duration,
    network: Duration,
    spent: Duration,
    samples: Vec<i16>,
}

/// The least of the last while.
#[derive(Clone, Copy, Default)]
struct Fastest {
    began: Duration,
    now: Option<i128>,
    before: Option<i128>,
}

impl Fastest {
    /// A transit time in nanoseconds, by two clocks; how much more it is than the least.
    fn beyond(&mut self, transit: i128, now: Duration) -> Duration {
        if now >= self.began + FASTEST {
            (self.began, self.before, self.now) = (now, self.now, None);
        }
        let least = self.now.map_or(transit, |known| known.min(transit));
        self.now = Some(least);
        let least = self.before.map_or(least, |before| before.min(least));
        Duration::from_nanos(u64::try_from(transit - least).unwrap_or(0))
    }
}

/// A stream's place in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has come.
    Empty,
    /// Is played from this instant on.
    Waits(Duration),
    /// The frame that is played next.
    Plays(i64),
}

/// A stream.
pub struct Playout {
    /// How it is played.
    pub settings: Settings,
    /// What became of it.
    pub counts: Counts,
    state: State,
    held: BTreeMap<i64, Held>,
    /// Frames in it.
    depth: usize,
    /// The last timestamp and the last number, without an end to their range.
    position: Option<i64>,
    number: Option<u64>,
    /// The number of the last packet that was played.
    last: Option<u64>,
    missing: BTreeMap<u64, Duration>,
    strays: u32,
    /// Frames without sound since the last that had some.
    gap: u64,
    /// The last packet that was played to its end, and the last frame.
    sound: Vec<i16>,
    frame: Vec<i16>,
    /// How many frames before their turn the last packets came, and the middle of the first of them.
    margins: Vec<i64>,
    usual: Option<i64>,
    owed: i64,
    /// When the last block was due.
    pulled: Duration,
    fastest: Fastest,
    /// Time since 1970 at which the frame at this timestamp was taken.
    said: Option<(Duration, u32)>,
    /// Whether network times are from when sound was taken, rather than beyond the fastest packet.
    pub is_whole: bool,
}

impl Playout {
    /// A stream of which nothing has come.
    pub fn new(settings: Settings) -> Playout {
        Playout {
            settings,
            counts: Counts::default(),
            state: State::Empty,
            held: BTreeMap::new(),
            depth: 0,
            position: None,
            number: None,
            last: None,
            missing: BTreeMap::new(),
            strays: 0,
            gap: 0,
            sound: Vec::new(),
            frame: Vec::new(),
            margins: Vec::new(),
            usual: None,
            owed: 0,
            pulled: Duration::ZERO,
            fastest: Fastest::default(),
            said: None,
            is_whole: false,
        }
    }
    /// The sender says when it took the frame of a timestamp, as time since 1970.
    pub fn report(&mut self, clock: Duration, timestamp: u32) {
        self.said = Some((clock, timestamp));
    }
    /// Whether there is nothing to play.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
    /// Whether blocks have sound, or stand for sound that is missing.
    pub fn is_playing(&self) -> bool {
        matches!(self.state, State::Plays(_))
    }
    /// How much is held, in frames.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// From when its sound was taken until it came; or how much longer it took than the fastest.
    fn network(&mut self, arrival: &Arrival, now: Duration) -> Duration {
        let nanoseconds = |frames: i64| i128::from(frames) * 1_000_000_000;
        let rate = i128::from(self.settings.rate);
        if let Some((clock, timestamp)) = self.said {
            let since = i64::from(arrival.timestamp.wrapping_sub(timestamp) as i32);
            let taken = clock.as_nanos() as i128 + nanoseconds(since) / rate;
            let took = u64::try_from(arrival.wall.as_nanos() as i128 - taken);
            if let Some(took) = took.ok().map(Duration::from_nanos).filter(|it| *it <= NETWORK_MAX)
            {
                self.is_whole = true;
                return took;
            }
        }
        self.is_whole = false;
        let position = self.position.unwrap_or(0);
        let transit = now.as_nanos() as i128 - nanoseconds(position) / rate;
        self.fastest.beyond(transit, now)
    }
    /// A packet comes.
    pub fn receive(&mut self, mut arrival: Arrival, now: Duration) {
        let channels = usize::from(self.settings.channels);
        let frames = (arrival.samples.len() / channels) as i64;
        if frames == 0 {
            return;
        }
        arrival.samples.truncate(frames as usize * channels);
        self.counts.packets += 1;
        // Numbers and timestamps begin anywhere, and come around.
        let near = self.position.unwrap_or(arrival.timestamp.into());
        let position = near + i64::from(arrival.timestamp.wrapping_sub(near as u32) as i32);
        let near = self.number.unwrap_or(1 << 32 | u64::from(arrival.sequence));
        let off = i64::from(arrival.sequence.wrapping_sub(near as u16) as i16);
        let number = near.saturating_add_signed(off);
        (self.position, self.number) = (Some(position), Some(number));
        let network = self.network(&arrival, now);
        if self.missing.remove(&number).is_some() {
            self.counts.late += 1;
            return self.stray();
        }
        let most = self.settings.frames(HELD_MAX) as i64;
        match self.state {
            State::Empty => self.state = State::Waits(now + self.settings.delay),
            State::Waits(_) => {
                let first = self.held.first_key_value().map_or(position, |(first, _)| *first);
                if (position - first).abs() + frames > most {
                    self.counts.early += 1;
                    return self.stray();
                }
            }
            State::Plays(next) if position < next => {
                match self.last.is_some_and(|last| number <= last) {
                    true => self.counts.twice += 1,
                    false => self.counts.late += 1,
                }
                return self.stray();
            }
            State::Plays(next) if position + frames - next > most => {
                self.counts.early += 1;
                return self.stray();
            }
            State::Plays(next) => self.follow(position - next, now),
        }
        if self.held.contains_key(&position) {
            self.counts.twice += 1;
            return;
        }
        let is_full = self.held.len() >= PACKETS_MAX;
        if is_full || self.depth + frames as usize > 2 * most as usize {
            self.counts.early += 1;
            return;
        }
        self.strays = 0;
        let Arrival { samples, spent, .. } = arrival;
        let held = Held { sequence: number, arrived: now, network, spent, samples };
        self.held.insert(position, held);
        self.depth += frames as usize;
    }
    /// A packet came at a wrong time: after some of them, what follows is taken for a new beginning.
    fn stray(&mut self) {
        self.strays += 1;
        if self.strays >= STRAY_MAX {
            self.forget();
            self.counts.restarts += 1;
        }
    }
    /// Begins anew; what is held is played no more.
    fn forget(&mut self) {
        self.settle(None);
        let unheard = |held: &&Held| self.last.is_none_or(|last| held.sequence > last);
        self.counts.early += self.held.values().filter(unheard).count() as u64;
        self.held.clear();
        self.depth = 0;
        self.margins.clear();
        self.sound.clear();
        (self.state, self.strays, self.gap, self.owed) = (State::Empty, 0, 0, 0);
        (self.position, self.number, self.last, self.usual) = (None, None, None, None);
    }
    /// Those missing since before an instant, or all, are lost.
    fn settle(&mut self, before: Option<Duration>) {
        let had = self.missing.len();
        match before {
            None => self.missing.clear(),
            Some(before) => self.missing.retain(|_, due| *due > before),
        }
        self.counts.lost += (had - self.missing.len()) as u64;
    }
    /// The stream is over: what has not come is lost.
    pub fn end(&mut self) {
        self.settle(None);
    }

    /// The next block: all of `out` is written. Packets whose first frame is in it are told.
    pub fn pull(&mut self, out: &mut [i16], now: Duration, mut played: impl FnMut(Played)) {
        let channels = usize::from(self.settings.channels);
        let frames = out.len() / channels;
        out.fill(0);
        if let Some(before) = now.checked_sub(LATE_MAX)
            && !self.missing.is_empty()
        {
            self.settle(Some(before));
        }
        if let State::Waits(from) = self.state
            && now >= from
        {
            let first = self.held.first_key_value().map(|(first, _)| *first);
            self.state = first.map_or(State::Empty, State::Plays);
        }
        let State::Plays(mut next) = self.state else { return };
        self.pulled = now;
        let mut at = self.slip(out, &mut next);
        while at < frames {
            let first = self.held.first_key_value();
            let Some((from, held)) = first.filter(|(from, _)| **from <= next) else {
                let until = first.map(|(first, _)| *first);
                let room = frames - at;
                let count = until.map_or(room, |until| room.min((until - next) as usize));
                self.conceal(&mut out[at * channels..(at + count) * channels]);
                (at, next) = (at + count, next + count as i64);
                continue;
            };
            let skip = ((next - *from) as usize * channels).min(held.samples.len());
            let rest = &held.samples[skip..];
            let count = rest.len().min((frames - at) * channels);
            out[at * channels..at * channels + count].copy_from_slice(&rest[..count]);
            if self.last.is_none_or(|last| held.sequence > last) {
                let bytes = held.samples.len() as u64 * 2;
                let Held { sequence, arrived, network, spent, .. } = *held;
                played(Played { network, spent, held: now.saturating_sub(arrived), bytes });
                self.counts.played += 1;
                // Those between were due before this one.
                if let Some(last) = self.last {
                    let first = (last + 1).max(sequence.saturating_sub(MISSING_MAX as u64));
                    self.counts.lost += first - (last + 1);
                    self.missing.extend((first..sequence).map(|number| (number, now)));
                    while self.missing.len() > MISSING_MAX {
                        self.missing.pop_first();
                        self.counts.lost += 1;
                    }
                }
                self.last = Some(sequence);
            }
            if count > 0 {
                self.counts.concealed += std::mem::take(&mut self.gap);
            }
            if count == rest.len() {
                let (_, held) = self.held.pop_first().expect("it was looked at");
                self.depth -= held.samples.len() / channels;
                self.sound = held.samples;
            }
            let count = count / channels;
            (at, next) = (at + count, next + count as i64);
        }
        self.counts.frames += frames as u64;
        // A sender that is silent for as long as the device waits has ended, or begins anew.
        match self.gap as usize > self.settings.frames(HELD_MAX) {
            true => self.forget(),
            false => self.state = State::Plays(next),
        }
        self.frame.clear();
        self.frame.extend(&out[out.len() - channels..]);
    }
    /// What is played where nothing came.
    fn conceal(&mut self, out: &mut [i16]) {
        let channels = usize::from(self.settings.channels);
        if self.settings.conceal == Conceal::Repeat && !self.sound.is_empty() {
            let most = self.settings.frames(REPEAT_MAX) * channels;
            let from = self.gap as usize * channels;
            let room = most.saturating_sub(from).min(out.len());
            for (at, sample) in out[..room].iter_mut().enumerate() {
                *sample = self.sound[(from + at) % self.sound.len()];
            }
        }
        self.gap += (out.len() / channels) as u64;
    }
    /// Notes how many frames before their turn packets come; after a window, how many frames there are too many. Blocks
    /// are due at their times, however late they are asked for.
    fn follow(&mut self, ahead: i64, now: Duration) {
        if self.owed != 0 {
            self.margins.clear();
            return;
        }
        let since = now.as_nanos() as i128 - self.pulled.as_nanos() as i128;
        let passed = since * i128::from(self.settings.rate) / 1_000_000_000;
        self.margins.push(ahead - passed as i64);
        if self.margins.len() < WINDOW {
            return;
        }
        self.margins.sort_unstable();
        let middle = self.margins[WINDOW / 2];
        self.margins.clear();
        let off = middle - *self.usual.get_or_insert(middle);
        if off.unsigned_abs() as usize > self.settings.frames(BAND) {
            self.owed = off;
        }
    }
    /// If frames are owed, leaves one out, or plays the last one again: the frames of the block that this takes.
    fn slip(&mut self, out: &mut [i16], next: &mut i64) -> usize {
        let channels = usize::from(self.settings.channels);
        let way = self.owed.signum();
        self.owed -= way;
        match way {
            1 => {
                *next += 1;
                self.counts.skipped += 1;
                0
            }
            -1 if self.frame.len() == channels => {
                out[..channels].copy_from_slice(&self.frame);
                self.counts.repeated += 1;
                1
            }
            _ => 0,
        }
    }
}
