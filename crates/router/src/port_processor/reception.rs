//! When a port processor takes packets from its ports: in its own way, or by a policy of the models
//! (`experiments/router-overload`), which are the same machines with the wall clock.
//!
//! | `receive`    | sleeps until                                    | takes at once                         |
//! |--------------|-------------------------------------------------|---------------------------------------|
//! | `mixed`      | packets arrive; 40 us once there are many       | up to 64 of each port                 |
//! | `interrupts` | packets arrive                                  | one for each call of poll(2)          |
//! | `polling`    | never                                           | up to 64                              |
//! | `timed`      | a clock of 50 us                                | up to 64                              |
//! | `explicit`   | packets arrive; not before 50 us if it is busy  | up to 64                              |
//! | `backoff`    | packets arrive, seldomer while frames are short | up to 64; one while frames are short  |
//!
//! What stands for an interrupt is a call of poll(2) that finds a packet. A packet is forwarded as soon as it is taken,
//! so there is no application that reception could starve: what a policy can waste is time between packets.
//!
//! Source: Indiresan 1997, §7.2 and §8.2. Rows: E-133.

use super::line::Line;
use super::{BATCH, IDLE, PortProcessor};
use lastmeter_base::{Duration, Time};
use lastmeter_host::receive::backoff::{Backoff, Parameters};
use lastmeter_host::receive::explicit::Explicit;
use lastmeter_host::receive::interrupt::Interrupt;
use lastmeter_host::receive::polling::Polling;
use lastmeter_host::receive::timed::Timed;
use lastmeter_host::receive::{Expired, Handled, Policy, View};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The clock's period, and for how long interrupts are off: what 64 packets take here, our choice.
const PERIOD: Duration = Duration::from_us(50);
/// The longest time between interrupts that backoff reaches: our choice.
const PERIOD_MAX: Duration = Duration::from_ms(1);

/// The kernel is asked no more often what it dropped: each call takes as long as a third of a packet.
const OVERRUNS_EACH: Duration = Duration::from_ms(10);

/// How packets are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receive {
    /// Our own way.
    #[default]
    Mixed,
    /// A wake-up for each packet (E-100).
    Interrupts,
    /// Without a pause (E-101).
    Polling,
    /// By a clock (E-102).
    Timed,
    /// Interrupts that are off while it is busy (E-103).
    Explicit,
    /// Interrupts that come less often under overload (E-104).
    Backoff,
}

impl Receive {
    /// All, as `router.toml` names them.
    pub const NAMES: &[&str] = &["mixed", "interrupts", "polling", "timed", "explicit", "backoff"];
    /// The one of this name.
    pub fn named(name: &str) -> Option<Receive> {
        let all = [
            Receive::Mixed,
            Receive::Interrupts,
            Receive::Polling,
            Receive::Timed,
            Receive::Explicit,
            Receive::Backoff,
        ];
        Receive::NAMES.iter().zip(all).find(|(known, _)| **known == name).map(|(_, one)| one)
    }
    fn policy(self) -> Option<Box<dyn Policy>> {
        let quota = BATCH as u64;
        Some(match self {
            Receive::Mixed => return None,
            Receive::Interrupts => Box::new(Interrupt),
            Receive::Polling => Box::new(Polling { quota }),
            Receive::Timed => Box::new(Timed::new(PERIOD, quota)),
            Receive::Explicit => Box::new(Explicit::new(quota, PERIOD)),
            // b and r of Table 7.3.
            Receive::Backoff => Box::new(Backoff::new(Parameters {
                period_min: PERIOD,
                period_max: PERIOD_MAX,
                factor: (3, 2),
                restore: (4, 5),
                quota,
            })),
        })
    }
}

/// The policies of the ports.
pub(super) struct Reception {
    pub(super) receive: Receive,
    /// None of our own way.
    ports: Vec<Option<Box<dyn Policy>>>,
}

impl Reception {
    pub(super) fn new(receive: Receive, ports: usize) -> Reception {
        Reception { receive, ports: (0..ports).map(|_| receive.policy()).collect() }
    }
}

/// For what a port that has nothing to do waits.
enum Rest {
    /// Packets.
    Packets,
    /// An instant.
    Until(Time),
}

impl PortProcessor {
    /// Takes what the policies allow now, and forwards it; how many packets.
    pub(super) fn receive(&mut self, now: Time) -> usize {
        let mut taken = 0;
        for port in 0..self.ports.len() {
            taken += match self.reception.ports[port].take() {
                None => self.batch(port as u16, now, BATCH),
                Some(mut policy) => {
                    let view = self.view();
                    let mut due = false;
                    // Interrupts of the clock that it missed, too.
                    while policy.timer().is_some_and(|timer| timer <= now) {
                        due |= matches!(policy.expired(now, &view), Expired::ClockThen(_));
                    }
                    let may = policy.interrupt_at(now, &view).is_some_and(|due| due <= now);
                    if may && self.has_packets(port) {
                        policy.interrupted(now, &view);
                        due = true;
                    }
                    let taken = if due { self.quota(port, &mut *policy, now) } else { 0 };
                    self.reception.ports[port] = Some(policy);
                    taken
                }
            };
        }
        taken
    }

    /// There is nothing else to do: whether a policy goes on looking.
    pub(super) fn idles(&mut self, now: Time) -> bool {
        let mut goes_on = false;
        for port in 0..self.ports.len() {
            let Some(mut policy) = self.reception.ports[port].take() else { continue };
            if policy.idle(now, &self.view()).is_some() {
                goes_on |= self.quota(port, &mut *policy, now) > 0;
            }
            goes_on |= policy.spins();
            self.reception.ports[port] = Some(policy);
        }
        goes_on
    }

    /// For what a port waits.
    fn rest(&mut self, port: usize, now: Time) -> Rest {
        let view = self.view();
        let Some(policy) = &mut self.reception.ports[port] else { return Rest::Packets };
        match (policy.timer(), policy.interrupt_at(now, &view)) {
            (Some(timer), _) => Rest::Until(timer),
            (None, Some(due)) if due > now => Rest::Until(due),
            (None, _) => Rest::Packets,
        }
    }

    /// Sleeps until packets arrive, something changes, or a shaper's next packet is due.
    pub(super) fn wait(&mut self) {
        let now = self.now();
        if let Some(crossing) = &self.crossing {
            crossing.lies_down();
            // What came before that would not wake it up.
            if self.pass_on(now) > 0 {
                return self.get_up();
            }
        }
        let due = self.ports.iter().filter_map(|port| port.output.ready_at(now));
        let crosses = self.crossing.as_ref().and_then(|crossing| crossing.ready_at(now));
        let mut due = due.chain(crosses).min();
        // Ports whose packets would wake it up.
        let mut awaited = Vec::with_capacity(self.lines.len());
        for port in 0..self.lines.len() {
            match self.rest(port, now) {
                Rest::Packets => awaited.push(port),
                Rest::Until(instant) => due = Some(due.map_or(instant, |due| due.min(instant))),
            }
        }
        let sending = self.lines.iter().flatten().any(|socket| socket.waiting() > 0);
        let most = if sending || !self.held.is_empty() { IDLE / 100 } else { IDLE };
        let wait = due.map_or(most, |due| {
            let wait = due.saturating_since(now).as_ps() / 1000;
            most.min(std::time::Duration::from_nanos(wait))
        });
        if wait.is_zero() {
            return self.get_up();
        }
        let mut polled: Vec<PollFd<'_>> = awaited
            .iter()
            .filter_map(|port| self.lines[*port].as_ref()?.fd())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        polled.push(PollFd::new(&self.wake, PollFlags::IN));
        let timeout =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let _ = poll(&mut polled, Some(&timeout));
        if polled.last().is_some_and(|last| !last.revents().is_empty()) {
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
        if now >= self.overruns_at {
            self.overruns();
            self.overruns_at = now + OVERRUNS_EACH;
        }
        self.get_up();
    }

    /// Takes as many packets of a port as its policy says.
    fn quota(&mut self, port: usize, policy: &mut dyn Policy, now: Time) -> usize {
        let mut view = self.view();
        let mut most = 0;
        while most < BATCH && policy.proceed(now, &view, most as u64) {
            most += 1;
            view.buffers_free = view.buffers_free.saturating_sub(1);
        }
        let taken = self.batch(port as u16, now, most);
        let view = self.view();
        let _ = policy.finished(now, &view, taken as u64);
        taken
    }

    /// What a policy sees. Whether packets are there, only an interrupt says.
    fn view(&self) -> View {
        View {
            pending: 1,
            oldest: None,
            buffers_free: self.frames.free_count() as u64,
            buffers: self.frames_all,
            backlog: 0,
            application_idle: true,
            ahead: Duration::ZERO,
            handled: Handled::default(),
        }
    }

    fn has_packets(&self, port: usize) -> bool {
        let fd = self.lines[port].as_ref().map(Line::fd);
        match fd {
            None => false,
            // A null device always has some.
            Some(None) => true,
            Some(Some(fd)) => {
                let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
                let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
                let _ = poll(&mut polled, Some(&at_once));
                !polled[0].revents().is_empty()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_policy_but_our_own_way() {
        for name in Receive::NAMES {
            let receive = Receive::named(name).unwrap();
            assert_eq!(receive.policy().is_none(), *name == "mixed");
        }
        assert_eq!(Receive::named("none"), None);
    }
}
