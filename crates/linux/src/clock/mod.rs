//! The wall clock: waits for deadlines and frames at the same time, and records its lateness.
//!
//! ```text
//!          +-- frames to send? flush           +-- a deadline has come --> At
//! wait --> +-- sleep (ppoll) until shortly --> +-- frames have arrived --> Input
//!          '-- spin for the rest               '-- told to stop        --> Stop
//! ```
//!
//! One thread runs the graph, so a wait is the only place where it may sleep. A sleep ends some tens of
//! microseconds late (timer, interrupt, scheduler); spinning for the last part, or always, trades CPU
//! time for punctuality. [`WallClock::lag`] has the lateness of each deadline.
//!
//! Time can be stretched (E-55): with [`WaitOptions::slower`] a second of the model lasts so many, all of the
//! network is as much slower, and this machine's CPUs, which are not, appear as much faster: the CPU speed-up factor of
//! Indiresan 1997, §4.4.2.

use crate::port::Shared;
use lastmeter_base::{Duration, Time};
use lastmeter_engine::{Clock, Control, Distribution, Engine, Error, Wake};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Longest sleep, which bounds how late a stop without an event is noticed.
const SLEEP_MAX: Duration = Duration::from_ms(100);
/// How often a busy-polling clock checks the bell, which costs a system call.
const LOOK_EVERY: Duration = Duration::from_ms(1);

/// The instant that [`Time::START`] stands for.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    at: Instant,
    /// Seconds that a second of the model lasts.
    slower: u32,
}

impl Epoch {
    /// From now on.
    pub fn start() -> Epoch {
        Epoch::stretched(1)
    }
    /// From now on, when a second of the model lasts so many; 0 is as 1.
    pub fn stretched(slower: u32) -> Epoch {
        Epoch { at: Instant::now(), slower: slower.max(1) }
    }
    /// The present of the model, from nanoseconds of the monotonic clock.
    #[inline]
    pub fn now(self) -> Time {
        let nanoseconds = u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX / 1000);
        Time::from_ps(nanoseconds.saturating_mul(1000) / u64::from(self.slower))
    }
    /// How long this time of the model lasts.
    #[inline]
    pub fn real(self, time: Duration) -> Duration {
        Duration::from_ps(time.as_ps().saturating_mul(self.slower.into()))
    }
    /// What this time is in the model.
    #[inline]
    pub(crate) fn modelled(self, time: Duration) -> Duration {
        time / u64::from(self.slower)
    }
    /// Time since `from`, not of the model but real.
    #[inline]
    pub fn since(self, from: Time) -> std::time::Duration {
        let time = self.real(self.now().saturating_since(from));
        std::time::Duration::from_nanos(time.as_ps() / 1000)
    }
}

/// The emulator's niceness where the kernel allows it: only root may.
const PRIORITY: i32 = -20;

/// The session's niceness: the kernel shares cores among sessions first.
const SESSION: &str = "/proc/self/autogroup";

/// While it lives, other programs preempt this one for shorter and less often, as far as permitted.
///
/// A real-time policy would be worse: if anything else waits for the core, the kernel takes it away for
/// 50 ms of each second, in one piece (`fair_server`, since Linux 6.12).
#[derive(Debug)]
pub struct Precedence {
    /// The previous niceness of the session, to which a shell and all that it starts belong.
    session: Option<String>,
    process: bool,
}

impl Precedence {
    /// Takes it for this session, as far as permitted.
    pub fn take() -> Precedence {
        // "/autogroup-12 nice 0"
        let told = std::fs::read_to_string(SESSION).ok();
        let before = told.and_then(|line| line.split_whitespace().last().map(str::to_owned));
        let taken = std::fs::write(SESSION, PRIORITY.to_string()).is_ok();
        Precedence {
            session: before.filter(|_| taken),
            process: setpriority_process(None, PRIORITY).is_ok(),
        }
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        if let Some(before) = &self.session {
            let _ = std::fs::write(SESSION, before);
        }
        if self.process {
            let _ = setpriority_process(None, 0);
        }
    }
}

/// Seconds of CPU time that this thread has used.
pub fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Nanoseconds of the monotonic clock, which all processes of the machine share.
#[inline]
pub fn nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How a clock waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitOptions {
    /// How long before a deadline sleeping ends and spinning starts; [`Duration::MAX`] never
    /// sleeps.
    pub spin: Duration,
    /// The core to pin to.
    pub core: Option<usize>,
    /// A lag beyond this ends the run.
    pub strict: Option<Duration>,
    /// Seconds that a second of the model lasts.
    pub slower: u32,
}

impl WaitOptions {
    /// Sleeps whenever it can, anywhere.
    pub const SLEEPING: WaitOptions =
        WaitOptions { spin: Duration::ZERO, core: None, strict: None, slower: 1 };

    /// The cores left for others: all but the pinned one, unless that is the only one.
    ///
    /// # Errors
    /// When the kernel does not report them.
    pub fn others(&self) -> crate::Result<Vec<usize>> {
        let all = crate::cores::allowed()?;
        let others: Vec<usize> =
            all.iter().copied().filter(|&core| Some(core) != self.core).collect();
        Ok(if others.is_empty() { all } else { others })
    }

    /// Whether it never sleeps.
    pub fn is_busy(&self) -> bool {
        self.spin == Duration::MAX
    }
}

/// A clock that waits for real time and for frames.
pub struct WallClock {
    /// Lateness with which deadlines were noticed.
    pub lag: Distribution,
    /// Time spent waiting, asleep or spinning.
    pub waited: std::time::Duration,
    /// How often it waited.
    pub waits: u64,
    /// The lag that ended a strict run.
    pub violation: Option<(Time, Duration)>,
    epoch: Epoch,
    waiting: WaitOptions,
    lines: Vec<Shared>,
    control: Arc<Control>,
    /// Becomes readable when the run must end.
    bell: Option<OwnedFd>,
    looked: Time,
    /// Time spent sending waiting frames.
    flushed: std::time::Duration,
    /// The thread's previous CPU affinity.
    before: CpuSet,
    _precedence: Precedence,
    stopping: bool,
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

impl WallClock {
    /// A clock that counts from `epoch`, reports frames on `lines`, and ends when `control` says
    /// so; `bell` is a descriptor that becomes readable then.
    pub fn new(
        epoch: Epoch,
        waiting: WaitOptions,
        lines: Vec<Shared>,
        control: Arc<Control>,
        bell: Option<OwnedFd>,
    ) -> crate::Result<WallClock> {
        let before = crate::cores::set()?;
        crate::cores::pin(waiting.core)?;
        // By default the kernel may extend a sleep by up to 50 us to wake up less often.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        Ok(WallClock {
            lag: Distribution::default(),
            waited: std::time::Duration::ZERO,
            waits: 0,
            violation: None,
            epoch,
            waiting,
            lines,
            control,
            bell,
            looked: Time::START,
            flushed: std::time::Duration::ZERO,
            before,
            _precedence: Precedence::take(),
            stopping: false,
        })
    }

    /// Runs a graph up to and including `end`. The engine's loop is compiled for its clock: here, it is optimised
    /// whatever the profile of the program.
    ///
    /// # Errors
    /// As [`Engine::run_until`].
    pub fn run(&mut self, engine: &mut Engine, end: Time) -> Result<(), Error> {
        engine.run_until(end, self)
    }

    /// Sends waiting frames, and returns whether frames have arrived.
    fn serve_lines(&mut self) -> bool {
        let mut ready = false;
        for line in &self.lines {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            if line.has_outgoing() {
                let before = line.sending;
                let worst = line.flush();
                self.flushed += line.sending - before;
                if self.waiting.strict.is_some_and(|limit| worst > limit)
                    && self.violation.is_none()
                {
                    self.violation = Some((self.epoch.now(), worst));
                }
            }
            ready |= line.ready();
        }
        ready
    }

    fn look_at_bell(&self) {
        let Some(bell) = &self.bell else { return };
        let mut polled = [PollFd::new(bell, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&at_once)).is_ok_and(|found| found > 0) {
            self.control.stop();
        }
    }

    fn shall_stop(&self) -> bool {
        self.control.stopped() || self.violation.is_some()
    }

    /// Sleeps until shortly before `deadline` or until frames arrive.
    fn sleep(&mut self, deadline: Time) -> bool {
        let now = self.epoch.now();
        let until = self.epoch.real(deadline.saturating_since(now));
        let until = until.saturating_sub(self.waiting.spin);
        let nanoseconds = until.min(SLEEP_MAX).as_ps() / 1000;
        let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds as _ };
        let guards: Vec<_> =
            self.lines.iter().map(|l| l.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(guards.len() + 1);
        let mut whose = Vec::with_capacity(guards.len());
        for (index, line) in guards.iter().enumerate() {
            if let Some(fd) = line.fd() {
                polled.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                whose.push(index);
            }
        }
        if let Some(bell) = &self.bell {
            polled.push(PollFd::new(bell, PollFlags::IN));
        }
        let found = poll(&mut polled, Some(&timeout)).unwrap_or(0);
        let failed: Vec<usize> = polled
            .iter()
            .zip(&whose)
            .filter(|(polled, _)| polled.revents().intersects(PollFlags::ERR | PollFlags::HUP))
            .map(|(_, &index)| index)
            .collect();
        drop(polled);
        let mut guards = guards;
        failed.into_iter().for_each(|index| guards[index].fail());
        found > 0
    }
}

impl Clock for WallClock {
    fn wait(&mut self, deadline: Option<Time>) -> Wake {
        let deadline = deadline.unwrap_or(Time::MAX);
        let from = self.epoch.now();
        let flushed = self.flushed;
        self.waits += 1;
        let (wake, now) = loop {
            let ready = self.serve_lines();
            let now = self.epoch.now();
            if now.saturating_since(self.looked) > LOOK_EVERY {
                self.looked = now;
                self.look_at_bell();
            }
            if self.shall_stop() {
                // Time advances to the present first, then it stops.
                let already = std::mem::replace(&mut self.stopping, true);
                break (if already { Wake::Stop } else { Wake::Input(now) }, now);
            }
            if ready {
                break (Wake::Input(now), now);
            }
            if now >= deadline {
                break (Wake::At(now), now);
            }
            if self.epoch.real(deadline.saturating_since(now)) > self.waiting.spin {
                self.sleep(deadline);
            } else {
                std::hint::spin_loop();
            }
        };
        if now >= deadline {
            self.lag.record(now - deadline);
        }
        // Time spent sending is not waiting.
        self.waited += self.epoch.since(from).saturating_sub(self.flushed - flushed);
        wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{Bytes, Packet};
    use lastmeter_engine::{Context, Element, Graph, PortId, TimerId, VirtualClock};
    use std::sync::Mutex;

    fn clock(waiting: WaitOptions) -> WallClock {
        WallClock::new(Epoch::start(), waiting, Vec::new(), Arc::default(), None).unwrap()
    }

    #[test]
    fn a_deadline_is_never_early_asleep_or_spinning() {
        let spins = [Duration::ZERO, Duration::from_us(50), Duration::MAX];
        for spin in spins {
            let mut clock = clock(WaitOptions { spin, ..WaitOptions::SLEEPING });
            let deadline = clock.epoch.now() + Duration::from_us(300);
            let Wake::At(now) = clock.wait(Some(deadline)) else { panic!("no input, no stop") };
            assert!(now >= deadline);
            assert_eq!(clock.lag.count(), 1);
        }
    }

    #[test]
    fn e_55_a_stretched_second_lasts_longer_and_is_a_second_of_the_model() {
        let waiting = WaitOptions { slower: 8, ..WaitOptions::SLEEPING };
        let epoch = Epoch::stretched(waiting.slower);
        let lines = Vec::new();
        let mut clock = WallClock::new(epoch, waiting, lines, Arc::default(), None).unwrap();
        let began = Instant::now();
        let deadline = clock.epoch.now() + Duration::from_ms(1);
        let Wake::At(now) = clock.wait(Some(deadline)) else { panic!("no input, no stop") };
        assert!(now >= deadline && began.elapsed() >= std::time::Duration::from_millis(8));
        // What is told of waiting is real time, and what is late by real time is less in the model.
        assert!(clock.waited >= std::time::Duration::from_millis(7));
        assert_eq!(epoch.modelled(Duration::from_ms(8)), Duration::from_ms(1));
        assert_eq!(epoch.real(Duration::MAX), Duration::MAX, "no overflow");
    }

    #[test]
    fn time_advances_to_the_present_before_a_stop() {
        let mut clock = clock(WaitOptions::SLEEPING);
        clock.control.stop();
        assert!(matches!(clock.wait(None), Wake::Input(_)));
        assert_eq!(clock.wait(None), Wake::Stop);
    }

    /// Sends a packet every 50 us and notes when each comes back, 120 us later.
    struct Beat {
        times: Arc<Mutex<Vec<Time>>>,
        left: u32,
    }

    impl Element for Beat {
        fn start(&mut self, cx: &mut Context<'_>) {
            cx.arm(TimerId(0), Time::START);
        }
        fn expire(&mut self, cx: &mut Context<'_>, _: TimerId) {
            let path = lastmeter_base::PathId(0);
            let packet = cx.make(path, Bytes(1));
            cx.send(PortId(0), packet);
            self.left -= 1;
            if self.left > 0 {
                cx.arm(TimerId(0), cx.now() + Duration::from_us(50));
            }
        }
        fn receive(&mut self, cx: &mut Context<'_>, _: PortId, packet: Packet) {
            self.times.lock().unwrap().push(cx.now());
            cx.deliver(packet);
        }
    }

    #[test]
    fn an_element_sees_the_same_instants_on_both_clocks() {
        let run = |clock: &mut dyn FnMut(&mut lastmeter_engine::Engine)| {
            let times = Arc::new(Mutex::new(Vec::new()));
            let mut graph = Graph::new(1);
            graph.collecting = false;
            graph.path("a", "b");
            let beat = graph.add("beat", Beat { times: Arc::clone(&times), left: 40 }).unwrap();
            let delay = Duration::from_us(120);
            graph.connect_after(beat, PortId(0), beat, PortId(0), delay, None).unwrap();
            clock(&mut graph.build(1).unwrap());
            let times = times.lock().unwrap();
            times.clone()
        };
        let end = Time::START + Duration::from_ms(3);
        let simulated = run(&mut |e| e.run_until(end, &mut VirtualClock::default()).unwrap());
        let real = run(&mut |e| clock(WaitOptions::SLEEPING).run(e, end).unwrap());
        assert_eq!(simulated.len(), 40);
        assert_eq!(simulated, real);
    }
}
