//! What a session wants next: one frame, some, or a rate. Time is an argument.
//!
//! A receiver that asks for frames sets the pace itself (closed loop): nothing is sent until it asks again. At a rate
//! (open loop) frames leave whether or not they arrive; a turn that comes while the last frame is still being sent is
//! skipped, and counted. A session ends when its receiver is silent for [`LEASE`].

use lastmeter_wire::camera::{Code, Command};
use std::time::Duration;

/// Time after which a silent receiver gets nothing more.
pub const LEASE: Duration = Duration::from_secs(10);
/// The most frames a second.
pub const RATE_MAX: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Nothing,
    Frames(u32),
    Every(Duration),
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for a command, at most so long.
    Idle(Duration),
    /// Wait so long: the next frame is not due.
    Wait(Duration),
    /// Take a frame.
    Take,
    /// The receiver is silent.
    Over,
}

/// The state of a session.
#[derive(Clone, Debug)]
pub struct Pace {
    sequence: Option<u16>,
    want: Want,
    due: Duration,
    heard: Duration,
    /// Turns that were missed.
    pub skipped: u32,
}

impl Pace {
    /// A session that begins.
    pub fn new(now: Duration) -> Pace {
        Pace { sequence: None, want: Want::Nothing, due: now, heard: now, skipped: 0 }
    }
    /// A command comes; false if it came before, and so changes nothing.
    pub fn command(&mut self, command: &Command, now: Duration) -> bool {
        self.heard = self.heard.max(now);
        let is_new =
            self.sequence.is_none_or(|last| (command.sequence.wrapping_sub(last) as i16) > 0);
        if !is_new {
            return false;
        }
        self.sequence = Some(command.sequence);
        match command.code {
            Code::Frames if command.frames == 0 => self.want = Want::Nothing,
            Code::Frames => (self.want, self.due) = (Want::Frames(command.frames), now),
            Code::Rate if command.millihertz == 0 => self.want = Want::Nothing,
            Code::Rate => {
                let rate = f64::from(command.millihertz.min(RATE_MAX * 1000)) / 1000.0;
                let every = Want::Every(Duration::from_secs_f64(1.0 / rate));
                // A rate that stays keeps its step.
                if self.want != every {
                    (self.want, self.due) = (every, now);
                }
            }
            Code::Stop => self.want = Want::Nothing,
            Code::Diagnose => {}
        }
        true
    }
    /// What to do.
    pub fn next(&self, now: Duration) -> Next {
        let left = (self.heard + LEASE).saturating_sub(now);
        if left.is_zero() {
            return Next::Over;
        }
        match self.want {
            Want::Nothing => Next::Idle(left),
            _ if now >= self.due => Next::Take,
            _ => Next::Wait((self.due - now).min(left)),
        }
    }
    /// Whether nothing is wanted until the next command.
    pub fn is_idle(&self) -> bool {
        self.want == Want::Nothing
    }
    /// A frame was taken, or none was to be had.
    pub fn took(&mut self) {
        match &mut self.want {
            Want::Nothing => {}
            Want::Frames(1) => self.want = Want::Nothing,
            Want::Frames(left) => *left -= 1,
            Want::Every(interval) => self.due += *interval,
        }
    }
    /// All of it was sent: turns that passed meanwhile are skipped.
    pub fn sent(&mut self, now: Duration) {
        let Want::Every(interval) = self.want else { return };
        if now > self.due + interval {
            let missed = (now - self.due).as_nanos() / interval.as_nanos().max(1);
            self.due += interval * u32::try_from(missed).unwrap_or(u32::MAX);
            self.skipped = self.skipped.saturating_add(u32::try_from(missed).unwrap_or(u32::MAX));
        }
    }
    /// Its receiver is known to be there: a connection is open.
    pub fn heard(&mut self, now: Duration) {
        self.heard = self.heard.max(now);
    }
}
