//! How the guest's driver receives.
//!
//! Rows: E-106.

/// How the guest's driver receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// An interrupt takes all there is into the protocol's queue.
    Interrupts,
    /// Linux's NAPI.
    Napi,
    /// NAPI with `napi_defer_hard_irqs` and `gro_flush_timeout`.
    Deferred,
    /// NAPI in a thread of its own instead of a softirq (`threaded`).
    Threaded,
    /// NAPI that the program polls in its own calls (`SO_PREFER_BUSY_POLL`), deferred as above.
    Busy,
    /// A thread of the kernel that looks all the time.
    Polling,
    /// A thread of the kernel that looks at intervals.
    Timed,
    /// Adaptive backoff.
    Backoff,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 8] = [
        Mode::Interrupts,
        Mode::Napi,
        Mode::Deferred,
        Mode::Threaded,
        Mode::Busy,
        Mode::Polling,
        Mode::Timed,
        Mode::Backoff,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Interrupts => "interrupts",
            Mode::Napi => "NAPI",
            Mode::Deferred => "NAPI, deferred",
            Mode::Threaded => "threaded NAPI",
            Mode::Busy => "busy polling",
            Mode::Polling => "continuous polling",
            Mode::Timed => "timed polling",
            Mode::Backoff => "adaptive backoff",
        }
    }

    /// What the driver does.
    pub fn what(self) -> &'static str {
        match self {
            Mode::Interrupts => "the handler takes all there is (netif_rx), without a limit",
            Mode::Napi => "interrupts off while there is something, 64 packets a poll",
            Mode::Deferred => "the same, off for 2 empty polls more, 200 us apart",
            Mode::Threaded => "NAPI in a thread of the kernel",
            Mode::Busy => "the program polls for 200 us in its calls, 64 packets a poll",
            Mode::Polling => "a thread, 64 packets at once",
            Mode::Timed => "a thread each 2 ms, up to 32 packets",
            Mode::Backoff => "16 packets, then 0.5 to 10 ms without interrupts, by 1.5 and 0.8",
        }
    }

    /// Parameters of the driver, and settings of its interface.
    pub(super) fn setting(self) -> (&'static str, &'static str) {
        match self {
            Mode::Interrupts => ("mode=interrupt", ""),
            Mode::Napi => ("mode=napi", ""),
            Mode::Deferred | Mode::Busy => (
                "mode=napi",
                "echo 2 > /sys/class/net/eth0/napi_defer_hard_irqs\n\
                 echo 200000 > /sys/class/net/eth0/gro_flush_timeout\n",
            ),
            Mode::Threaded => ("mode=napi", "echo 1 > /sys/class/net/eth0/threaded\n"),
            Mode::Polling => ("mode=poll quota=64", ""),
            Mode::Timed => ("mode=timed period=2000 quota=32", ""),
            Mode::Backoff => ("mode=backoff quota=16 period=500 period_max=10000", ""),
        }
    }

    /// For how many microseconds a call of the program polls.
    pub(super) fn polls_for(self) -> u32 {
        if self == Mode::Busy { 200 } else { 0 }
    }
}
