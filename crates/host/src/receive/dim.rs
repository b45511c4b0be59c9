//! Linux's dynamic interrupt moderation: the adapter's coalescing adapts to the measured traffic (E-106).
//!
//! | state       | sample differs from the previous one           | next |
//! |-------------|------------------------------------------------|------|
//! | left, right | worse or the same: turn round; otherwise a step further | on top, or tired after ten steps |
//! | on top      | leave it: left, or right from the lowest profile | left or right |
//! | tired       | wait for ten samples, then leave as from the top | left or right |
//!
//! A sample covers 64 events. More bytes are better; if bytes are the same (within 10 %), more packets are better;
//! if those are the same, fewer events are.
//!
//! Source: Linux, `lib/dim/dim.c`, `net_dim.c`, `include/linux/dim.h`: their rules; the code is our own.

use lastmeter_base::{Bytes, Duration, Time};

/// Interrupt after a time or a number of packets, whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// Time since the oldest packet; zero: at once.
    pub time: Duration,
    /// Number of packets; zero: no such limit.
    pub packets: u64,
}

impl Coalescing {
    /// An interrupt for each packet.
    pub const NONE: Coalescing = Coalescing { time: Duration::ZERO, packets: 0 };

    const fn of(us: u64, packets: u64) -> Coalescing {
        Coalescing { time: Duration::from_us(us), packets }
    }
}

/// When the coalescing timer starts: at the last event or at the last completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At the event (EQE).
    Event,
    /// At the completion (CQE).
    Completion,
}

/// Profiles per mode.
pub const PROFILES: usize = 5;
/// The profile that a device starts with.
pub const PROFILE_START: usize = 1;
/// Events per sample.
pub const EVENTS: u64 = 64;
/// Steps in one direction, or samples spent waiting, before turning.
const TIRED: u32 = 10;
/// Counts that differ by more than this are not the same, in percent.
const SIGNIFICANT: u64 = 10;

const RECEIVE_EVENT: [Coalescing; PROFILES] = [
    Coalescing::of(1, 256),
    Coalescing::of(8, 256),
    Coalescing::of(64, 256),
    Coalescing::of(128, 256),
    Coalescing::of(256, 256),
];
const RECEIVE_COMPLETION: [Coalescing; PROFILES] = [
    Coalescing::of(2, 256),
    Coalescing::of(8, 128),
    Coalescing::of(16, 64),
    Coalescing::of(32, 64),
    Coalescing::of(64, 64),
];
const TRANSMIT_EVENT: [Coalescing; PROFILES] = [
    Coalescing::of(1, 128),
    Coalescing::of(8, 128),
    Coalescing::of(32, 128),
    Coalescing::of(64, 128),
    Coalescing::of(128, 128),
];
const TRANSMIT_COMPLETION: [Coalescing; PROFILES] = [
    Coalescing::of(5, 128),
    Coalescing::of(8, 64),
    Coalescing::of(16, 32),
    Coalescing::of(32, 32),
    Coalescing::of(64, 32),
];

/// Profile `at` of reception.
pub fn receive_profile(mode: Mode, at: usize) -> Coalescing {
    match mode {
        Mode::Event => RECEIVE_EVENT[at],
        Mode::Completion => RECEIVE_COMPLETION[at],
    }
}

/// Profile `at` of transmission.
pub fn transmit_profile(mode: Mode, at: usize) -> Coalescing {
    match mode {
        Mode::Event => TRANSMIT_EVENT[at],
        Mode::Completion => TRANSMIT_COMPLETION[at],
    }
}

/// Counts at an instant, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Interrupts.
    pub events: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: Bytes,
}

/// Rates of a sample per millisecond, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Events.
    pub events: u64,
}

impl Rates {
    /// The rates between two samples; `None` if they are less than a microsecond apart.
    fn between(start: &Sample, end: &Sample) -> Option<Rates> {
        let us = end.at.saturating_since(start.at).as_ps() / 1_000_000;
        let rate = |count: u64| (count * 1000).div_ceil(us);
        (us > 0).then(|| Rates {
            bytes: rate(end.bytes.0 - start.bytes.0),
            packets: rate(end.packets - start.packets),
            events: rate(end.events - start.events),
        })
    }
}

/// How a sample compares with the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Better.
    Better,
    /// Worse.
    Worse,
    /// Neither.
    Same,
}

/// Compares rates.
///
/// ```
/// use lastmeter_host::receive::dim::{Compared, Rates, compare};
/// let before = Rates { bytes: 1000, packets: 100, events: 50 };
/// assert_eq!(compare(&Rates { events: 40, ..before }, &before), Compared::Better);
/// assert_eq!(compare(&Rates { bytes: 850, ..before }, &before), Compared::Worse);
/// assert_eq!(compare(&Rates { bytes: 1090, ..before }, &before), Compared::Same);
/// ```
pub fn compare(now: &Rates, before: &Rates) -> Compared {
    let more = |now: u64, before: u64| match now > before {
        true => Compared::Better,
        false => Compared::Worse,
    };
    let some = |now: u64| if now > 0 { Compared::Better } else { Compared::Same };
    let differ = |a: u64, b: u64| 100 * a.abs_diff(b) / b > SIGNIFICANT;
    if before.bytes == 0 {
        return some(now.bytes);
    }
    if differ(now.bytes, before.bytes) {
        return more(now.bytes, before.bytes);
    }
    if before.packets == 0 {
        return some(now.packets);
    }
    if differ(now.packets, before.packets) {
        return more(now.packets, before.packets);
    }
    match before.events {
        0 => Compared::Same,
        events if differ(now.events, events) => more(events, now.events),
        _ => Compared::Same,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    OnTop,
    Tired,
    Left,
    Right,
}

/// The algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    state: State,
    profile: usize,
    left: u32,
    right: u32,
    tired: u32,
    before: Rates,
    start: Option<Sample>,
}

#[derive(PartialEq, Eq)]
enum Step {
    Done,
    Tired,
    AtEdge,
}

impl Default for Dim {
    fn default() -> Dim {
        Dim::new(PROFILE_START)
    }
}

impl Dim {
    /// Starts at a profile, parked on top of it like a fresh device.
    pub fn new(profile: usize) -> Dim {
        assert!(profile < PROFILES);
        Dim {
            state: State::OnTop,
            profile,
            left: 0,
            right: 0,
            tired: 0,
            before: Rates::default(),
            start: None,
        }
    }

    /// The current profile.
    pub fn profile(&self) -> usize {
        self.profile
    }

    /// Whether it rests: on top, or tired.
    pub fn parked(&self) -> bool {
        matches!(self.state, State::OnTop | State::Tired)
    }

    /// Takes the counts after an event; decides once per [`EVENTS`]. Returns whether the profile has changed.
    pub fn note(&mut self, sample: Sample) -> bool {
        let Some(start) = self.start else {
            self.start = Some(sample);
            return false;
        };
        if sample.events - start.events < EVENTS {
            return false;
        }
        let Some(rates) = Rates::between(&start, &sample) else { return false };
        self.start = Some(sample);
        let changed = self.decide(&rates);
        if changed {
            self.start = None; // Measured afresh once the profile is in use.
        }
        changed
    }

    /// Decides on a sample. Returns whether the profile has changed.
    pub fn decide(&mut self, now: &Rates) -> bool {
        let (state, profile) = (self.state, self.profile);
        match self.state {
            State::OnTop => {
                if compare(now, &self.before) != Compared::Same {
                    self.leave();
                }
            }
            State::Tired => {
                self.tired = self.tired.saturating_sub(1);
                if self.tired == 0 {
                    self.leave();
                }
            }
            State::Left | State::Right => {
                if compare(now, &self.before) != Compared::Better {
                    self.turn();
                }
                if self.on_top() {
                    self.park_on_top();
                } else {
                    match self.step() {
                        Step::Done => {}
                        Step::Tired => self.park_tired(),
                        Step::AtEdge => self.park_on_top(),
                    }
                }
            }
        }
        if state != State::OnTop || self.state != State::OnTop {
            self.before = *now;
        }
        self.profile != profile
    }

    fn on_top(&self) -> bool {
        match self.state {
            State::Right => self.left > 1 && self.right == 1,
            State::Left => self.right > 1 && self.left == 1,
            State::OnTop | State::Tired => true,
        }
    }

    fn turn(&mut self) {
        match self.state {
            State::Right => (self.state, self.left) = (State::Left, 0),
            State::Left => (self.state, self.right) = (State::Right, 0),
            State::OnTop | State::Tired => {}
        }
    }

    fn step(&mut self) -> Step {
        if self.tired == TIRED {
            return Step::Tired;
        }
        match self.state {
            State::Right if self.profile == PROFILES - 1 => return Step::AtEdge,
            State::Right => (self.profile, self.right) = (self.profile + 1, self.right + 1),
            State::Left if self.profile == 0 => return Step::AtEdge,
            State::Left => (self.profile, self.left) = (self.profile - 1, self.left + 1),
            State::OnTop | State::Tired => {}
        }
        self.tired += 1;
        Step::Done
    }

    fn leave(&mut self) {
        self.state = if self.profile == 0 { State::Right } else { State::Left };
        self.step();
    }

    fn park_on_top(&mut self) {
        (self.left, self.right, self.tired) = (0, 0, 0);
        self.state = State::OnTop;
    }

    fn park_tired(&mut self) {
        (self.left, self.right) = (0, 0);
        self.state = State::Tired;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose traffic is best served by profile `best`: throughput falls with the distance from it.
    fn traffic(profile: usize, best: usize) -> Rates {
        Rates { bytes: 10_000 - 2_000 * profile.abs_diff(best) as u64, packets: 100, events: 100 }
    }

    #[test]
    fn e_106_constant_load_parks_within_ten_samples_and_stays() {
        for best in 0..PROFILES {
            let mut dim = Dim::default();
            let trace: Vec<(usize, bool)> = (0..60)
                .map(|_| {
                    let rates = traffic(dim.profile(), best);
                    dim.decide(&rates);
                    (dim.profile(), dim.parked())
                })
                .collect();
            assert!(trace[..10].iter().any(|&(_, parked)| parked), "best {best}: {trace:?}");
            assert!(trace[40..].iter().all(|&at| at == (best, true)), "best {best}: {trace:?}");
        }
    }

    #[test]
    fn e_106_the_profile_follows_a_change_of_load() {
        let mut dim = Dim::default();
        for _ in 0..40 {
            dim.decide(&traffic(dim.profile(), 0));
        }
        assert_eq!(dim.profile(), 0);
        for _ in 0..60 {
            dim.decide(&traffic(dim.profile(), 4));
        }
        assert_eq!(dim.profile(), 4);
    }

    #[test]
    fn with_the_same_bytes_and_packets_fewer_events_are_better() {
        // Each profile further right halves the interrupts, so the search ends at the right edge.
        let mut dim = Dim::default();
        for _ in 0..60 {
            let rates = Rates { bytes: 1000, packets: 100, events: 1600 >> dim.profile() };
            dim.decide(&rates);
        }
        assert_eq!(dim.profile(), PROFILES - 1);
    }

    #[test]
    fn a_sample_needs_64_events_and_some_time() {
        let mut dim = Dim::default();
        let sample = |us: u64, events: u64| Sample {
            at: Time::START + Duration::from_us(us),
            events,
            packets: events * 4,
            bytes: Bytes(events * 4000),
        };
        assert!(!dim.note(sample(0, 0)));
        assert!(!dim.note(sample(100, 63)));
        assert!(!dim.note(sample(0, 64)), "no time has passed");
        // The first sample is better than nothing: it leaves the top, to the left.
        assert!(dim.note(sample(200, 65)));
        assert_eq!(dim.profile(), 0);
        assert_eq!(
            Rates::between(&sample(0, 0), &sample(1500, 1)),
            Some(Rates { bytes: 2667, packets: 3, events: 1 })
        );
    }

    #[test]
    fn the_profiles_are_those_of_linux() {
        assert_eq!(receive_profile(Mode::Event, 4), Coalescing::of(256, 256));
        assert_eq!(receive_profile(Mode::Completion, 1), Coalescing::of(8, 128));
        assert_eq!(transmit_profile(Mode::Event, 2), Coalescing::of(32, 128));
        assert_eq!(transmit_profile(Mode::Completion, 0), Coalescing::of(5, 128));
    }

    #[test]
    fn no_sequence_of_samples_leaves_the_profiles() {
        let mut dim = Dim::default();
        let mut stream = lastmeter_base::Stream::new(7, "samples");
        for _ in 0..10_000 {
            let mut some = || stream.below(4) * 500;
            let rates = Rates { bytes: some(), packets: some(), events: some() };
            let before = dim.profile();
            dim.decide(&rates);
            assert!(dim.profile() < PROFILES && dim.profile().abs_diff(before) <= 1);
        }
    }
}
