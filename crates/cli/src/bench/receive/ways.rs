//! The ways to receive that are measured: what the kernel can be told, what an adapter would be told, and the policies
//! of the thesis.
//!
//! Rows: E-106.

use lastmeter_base::{Bytes, Duration};
use lastmeter_host::receive::admission::{Budgets, EarlyDrop, Tags};
use lastmeter_host::receive::backoff::Parameters;
use lastmeter_host::receive::control::{Adapter, Command, Driver};
use lastmeter_host::receive::dim::{Coalescing, Dim, Mode};
use lastmeter_host::receive::lazy::Lazy;
use lastmeter_host::receive::napi::{Moderation, Napi, Options};
use lastmeter_host::receive::suspension::{self, Suspension};
use lastmeter_host::receive::{Admission, Policy};
use lastmeter_live::receive::{Busy, Kernel, LEN, Softirq};
use lastmeter_repro::reception::Era;

/// A way to receive.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) how: How,
    /// What it is, in a line.
    pub(super) what: &'static str,
}

/// By whom.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// The kernel, up to a UDP socket.
    Kernel(Kernel),
    /// Our receiver, from a ring.
    Own(fn() -> Box<dyn Policy>, Option<fn() -> Box<dyn Admission>>),
}

impl Way {
    pub(super) fn era(&self) -> Era {
        match self.how {
            How::Kernel(_) => Era::Now,
            How::Own(..) if OF_TODAY.iter().any(|way| way.name == self.name) => Era::Now,
            How::Own(..) => Era::Then,
        }
    }
}

/// Polls before a veth's interrupts would be enabled, and the flush timeout; an example of
/// `Documentation/networking/napi.rst`.
const DEFERRED: Option<(u32, u64)> = Some((2, 200_000));

const KERNEL: Kernel =
    Kernel { softirq: Softirq::Apart, merged: false, deferred: None, busy: None, suspended: None };

/// What the kernel can be told.
pub(super) const OF_KERNEL: &[Way] = &[
    Way {
        name: "softirq",
        how: How::Kernel(Kernel { softirq: Softirq::Steered, ..KERNEL }),
        what: "softirqs on the receiver's core (RPS)",
    },
    Way { name: "softirq, apart", how: How::Kernel(KERNEL), what: "softirqs on the source's core" },
    Way {
        name: "GRO",
        how: How::Kernel(Kernel { softirq: Softirq::Steered, merged: true, ..KERNEL }),
        what: "datagrams merged on the source's core, softirqs on the receiver's",
    },
    Way {
        name: "threaded NAPI",
        how: How::Kernel(Kernel { softirq: Softirq::Threaded, ..KERNEL }),
        what: "a thread of the kernel on the receiver's core",
    },
    Way {
        name: "deferred",
        how: How::Kernel(Kernel { softirq: Softirq::Threaded, deferred: DEFERRED, ..KERNEL }),
        what: "the same, interrupts deferred by two polls, flushed after 200 us",
    },
    Way {
        name: "busy polling",
        how: How::Kernel(Kernel {
            deferred: DEFERRED,
            busy: Some(Busy { lasts: 200, budget: 64 }),
            ..KERNEL
        }),
        what: "the receiver polls the interface in its calls (SO_PREFER_BUSY_POLL)",
    },
    Way {
        name: "suspended",
        how: How::Kernel(Kernel {
            deferred: SUSPENDING,
            busy: Some(Busy { lasts: 64, budget: 64 }),
            suspended: Some(SUSPENDED),
            ..KERNEL
        }),
        what: "the same with epoll, no interrupts while it finds something (irq-suspend-timeout)",
    },
];

/// Of the measurements that come with `irq-suspend-timeout`: empty polls, flush timeout, and how long interrupts stay
/// suspended, in nanoseconds (Linux, `Documentation/networking/napi.rst`).
const SUSPENDING: Option<(u32, u64)> = Some((100, 20_000));
const SUSPENDED: u64 = 20_000_000;

/// Between two polls by a clock, and until interrupts are enabled again.
const INTERVAL: Duration = Duration::from_us(200);
/// `I_min` and `I_max` of adaptive backoff.
const BACKOFF: (Duration, Duration) = (Duration::from_us(50), Duration::from_us(500));
/// Packets in a batch: as many as take longer than an interval.
const QUOTA: u64 = 128;
/// More packets than a ring has: what exceeds a budget is to be seen by the host, not dropped by the ring.
const ALL: u64 = 1 << 12;
/// Packets before the application's turn, where polling is continuous.
const TURN: u64 = 8;

/// A cooperation of adapter and driver, by the commands of Table 7.1.
fn by(commands: &[Command], poll_quota: u64, interval: Duration) -> Box<dyn Policy> {
    let mut adapter = Adapter::default();
    commands.iter().for_each(|command| adapter.control(*command));
    adapter.policy(Driver { poll_quota, interval })
}

fn backoff() -> Box<dyn Policy> {
    // Factors of §7.3.6.
    let parameters = Parameters {
        period_min: BACKOFF.0,
        period_max: BACKOFF.1,
        factor: (3, 2),
        restore: (4, 5),
        quota: QUOTA,
    };
    by(&[Command::BackoffEnable(parameters)], QUOTA, Duration::ZERO)
}

fn interrupts() -> Box<dyn Policy> {
    by(&[Command::BackoffDisable, Command::ModeIntr], 1, Duration::ZERO)
}

fn early() -> Box<dyn Admission> {
    Box::new(EarlyDrop)
}

/// The policies of the thesis, in our receiver.
pub(super) const OF_THESIS: &[Way] = &[
    Way {
        name: "interrupts",
        how: How::Own(interrupts, None),
        what: "one for each packet; dropped after the protocol where no buffer is free",
    },
    Way {
        name: "interrupts, early drop",
        how: How::Own(interrupts, Some(early)),
        what: "dropped before the protocol",
    },
    Way {
        name: "continuous polling",
        how: How::Own(|| by(&[Command::ModePoll], TURN, Duration::ZERO), Some(early)),
        what: "8 packets, then the application",
    },
    Way {
        name: "timed polling",
        how: How::Own(|| by(&[Command::ModePoll], QUOTA, INTERVAL), Some(early)),
        what: "128 packets each 200 us",
    },
    Way {
        name: "explicit management",
        how: How::Own(|| by(&[Command::HostIntrCtrlOn], QUOTA, INTERVAL), Some(early)),
        what: "interrupts off for 200 us after 128 packets, or until idle",
    },
    Way {
        name: "adaptive backoff",
        how: How::Own(backoff, Some(early)),
        what: "50 to 500 us between interrupts, by 1.5 and 0.8",
    },
    Way {
        name: "lazy processing",
        how: How::Own(|| Box::new(Lazy::Adapter), Some(early)),
        what: "the application does the protocol; full rings drop on the adapter",
    },
];

fn napi(moderation: Moderation) -> Box<dyn Policy> {
    Box::new(Napi::new(Options { moderation, ..Options::LINUX }))
}

/// What a veth pair cannot be told, because it has no interrupts: Linux's rules, in our receiver.
pub(super) const OF_TODAY: &[Way] = &[
    Way {
        name: "coalescing",
        how: How::Own(
            || {
                let (time, packets) = (Duration::from_us(50), 64);
                napi(Moderation::Fixed(Coalescing { time, packets }))
            },
            None,
        ),
        what: "NAPI, an interrupt after 50 us or 64 packets",
    },
    Way {
        name: "DIM",
        how: How::Own(|| napi(Moderation::Dynamic(Mode::Completion, Dim::default())), None),
        what: "NAPI, the same adapted to the traffic: 2 to 64 us",
    },
    Way {
        name: "suspension",
        how: How::Own(|| Box::new(Suspension::new(suspension::Options::LINUX)), None),
        what: "no interrupts while the application finds something",
    },
];

/// Flow 0, one in four packets, is more important than the others.
pub(super) const TAGGED: (Way, &[u8]) = (
    Way {
        name: "tags",
        how: How::Own(
            backoff,
            Some(|| Box::new(Tags { free_min: vec![0, super::own::BUFFERS / 2] })),
        ),
        what: "half of the buffers are for one packet in four",
    },
    &[0, 1, 1, 1],
);

/// Flow 3 sends five times as much as each of the others.
pub(super) const BUDGETED: (Way, &[u8]) = (
    Way {
        name: "budgets",
        how: How::Own(|| by(&[Command::HostIntrCtrlOn], ALL, INTERVAL), Some(budgets)),
        what: "a fifth of the capacity for each of four flows",
    },
    &[0, 1, 2, 3, 3, 3, 3, 3],
);

/// In each millisecond, a fifth of what the work allows.
fn budgets() -> Box<dyn Admission> {
    let period = Duration::from_ms(1);
    let budget = period.as_ps() / (5 * Duration::from_secs_f64(super::WORK.as_secs_f64()).as_ps());
    Box::new(Budgets::new(period, budget))
}

/// The adapter's own source (`CTRL_CREATE_PERIODIC`): packets a second at a gap.
pub(super) fn periodic(rate: f64) -> f64 {
    let mut adapter = Adapter::default();
    let gap = Duration::from_secs_f64(1.0 / rate);
    adapter.control(Command::CreatePeriodic(gap, Bytes(LEN as u64)));
    adapter.traffic().map_or(0.0, |traffic| 1.0 / traffic.gap.mean())
}
