//! The adapter's control interface: the commands of Table 7.1, under the names there (E-99).
//!
//! | command | effect |
//! |---|---|
//! | `CTRL_CREATE_PERIODIC`, `CTRL_CLEAR_PERIODIC` | start and stop a stream of periodic packets |
//! | `CTRL_MODE_POLL`, `CTRL_MODE_INTR` | never interrupt; interrupt (default) |
//! | `CTRL_HOST_INTR_CTRL_ON`, `_OFF` | the host enables and disables interrupts; the adapter decides (default) |
//! | `CTRL_BACKOFF_ENABLE`, `_DISABLE` | back off under overload; do not |
//!
//! Source: Indiresan 1997, Table 7.1 and §7.2.1. The document does not say what happens when two modes are on at
//! once; here the last command wins.

use super::backoff::{Backoff, Parameters};
use super::explicit::Explicit;
use super::interrupt::Interrupt;
use super::polling::Polling;
use super::timed::Timed;
use super::trial::Arrivals;
use super::{Bytes, Duration, Policy, Time};
use lastmeter_base::Draw;

/// A control command with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Create a periodic packet generation process.
    CreatePeriodic(Duration, Bytes),
    /// Terminate that process.
    ClearPeriodic,
    /// The adapter does not interrupt.
    ModePoll,
    /// The adapter interrupts.
    ModeIntr,
    /// The host enables and disables interrupts.
    HostIntrCtrlOn,
    /// The adapter decides when to interrupt.
    HostIntrCtrlOff,
    /// Back off under overload.
    BackoffEnable(Parameters),
    /// Do not back off under overload.
    BackoffDisable,
}

/// The names of Table 7.1, in its order.
pub const NAMES: [&str; 8] = [
    "CTRL_CREATE_PERIODIC",
    "CTRL_CLEAR_PERIODIC",
    "CTRL_MODE_POLL",
    "CTRL_MODE_INTR",
    "CTRL_HOST_INTR_CTRL_ON",
    "CTRL_HOST_INTR_CTRL_OFF",
    "CTRL_BACKOFF_ENABLE",
    "CTRL_BACKOFF_DISABLE",
];

impl Command {
    /// As Table 7.1 calls it.
    pub fn name(&self) -> &'static str {
        NAMES[match self {
            Command::CreatePeriodic(..) => 0,
            Command::ClearPeriodic => 1,
            Command::ModePoll => 2,
            Command::ModeIntr => 3,
            Command::HostIntrCtrlOn => 4,
            Command::HostIntrCtrlOff => 5,
            Command::BackoffEnable(_) => 6,
            Command::BackoffDisable => 7,
        }]
    }
}

/// The host's own parameters, which no command sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Most commands handled in a row.
    pub poll_quota: u64,
    /// The period of a polling clock, or the interval until interrupts are enabled again; zero means continuous
    /// polling.
    pub interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Poll,
    Interrupt,
    Host,
    Backoff(Parameters),
}

/// An adapter's mode and traffic, as set by commands.
///
/// ```
/// use lastmeter_base::{Bytes, Duration};
/// use lastmeter_host::receive::control::{Adapter, Command};
/// let mut adapter = Adapter::default();
/// adapter.control(Command::CreatePeriodic(Duration::from_us(500), Bytes(1024)));
/// assert!(adapter.traffic().is_some());
/// adapter.control(Command::ClearPeriodic);
/// assert!(adapter.traffic().is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapter {
    mode: Mode,
    periodic: Option<(Duration, Bytes)>,
}

impl Default for Adapter {
    fn default() -> Adapter {
        Adapter { mode: Mode::Interrupt, periodic: None }
    }
}

impl Adapter {
    /// Executes a command.
    pub fn control(&mut self, command: Command) {
        self.mode = match command {
            Command::CreatePeriodic(gap, len) => {
                self.periodic = Some((gap, len));
                return;
            }
            Command::ClearPeriodic => {
                self.periodic = None;
                return;
            }
            Command::ModePoll => Mode::Poll,
            Command::HostIntrCtrlOn => Mode::Host,
            Command::BackoffEnable(parameters) => Mode::Backoff(parameters),
            Command::ModeIntr | Command::HostIntrCtrlOff | Command::BackoffDisable => {
                Mode::Interrupt
            }
        };
    }

    /// The traffic that it generates.
    pub fn traffic(&self) -> Option<Arrivals> {
        let (gap, len) = self.periodic?;
        Some(Arrivals { gap: Draw::Constant(gap), len, flows: 1, start: Time::START + gap })
    }

    /// The resulting cooperation of adapter and driver.
    pub fn policy(&self, driver: Driver) -> Box<dyn Policy> {
        let Driver { poll_quota: quota, interval } = driver;
        match self.mode {
            Mode::Interrupt => Box::new(Interrupt),
            Mode::Poll if interval.is_zero() => Box::new(Polling { quota }),
            Mode::Poll => Box::new(Timed::new(interval, quota)),
            Mode::Host => Box::new(Explicit::new(quota, interval)),
            Mode::Backoff(parameters) => Box::new(Backoff::new(parameters)),
        }
    }
}
