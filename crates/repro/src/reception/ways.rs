//! Reception policies by name, each with the parameters of its document.

use super::Setup;
use lastmeter_base::Duration;
use lastmeter_host::receive::admission::EarlyDrop;
use lastmeter_host::receive::backoff::{Backoff, Parameters};
use lastmeter_host::receive::dim::{Coalescing, Dim, Mode};
use lastmeter_host::receive::explicit::Explicit;
use lastmeter_host::receive::interrupt::Interrupt;
use lastmeter_host::receive::lazy::Lazy;
use lastmeter_host::receive::napi::{self, Deferral, Moderation, Napi};
use lastmeter_host::receive::polling::Polling;
use lastmeter_host::receive::shares::Shares;
use lastmeter_host::receive::suspension::{self, Suspension};
use lastmeter_host::receive::timed::Timed;
use lastmeter_host::receive::{InterfaceOptions, Policy};

/// The origin of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// The thesis and what it cites.
    Then,
    /// Linux.
    Now,
    /// This project.
    Ours,
}

/// A policy with its parameters. Times are multiples of `unit`: 1 ms on the host of 1997, less on a faster one, so
/// that a quota is the same share of the host's time.
#[derive(Clone, Copy)]
pub struct Way {
    /// Its name.
    pub name: &'static str,
    /// Its origin.
    pub era: Era,
    /// The interface under it.
    pub interface: fn(&Setup, Duration) -> InterfaceOptions,
}

fn with(setup: &Setup, policy: impl Policy + 'static) -> InterfaceOptions {
    setup.interface(Box::new(policy))
}

/// Without early drop: a packet that finds no buffer is dropped after all its protocol work.
fn late(setup: &Setup, policy: impl Policy + 'static) -> InterfaceOptions {
    InterfaceOptions { accepts: None, ..with(setup, policy) }
}

/// §7.3.6: backoff 1.5, restore 0.8; 1 to 20 ms (§7.4.3); 60 commands, which is 1500 packets/s at the longest period.
fn backoff(unit: Duration) -> Backoff {
    let (period_min, period_max) = (unit, unit * 20);
    Backoff::new(Parameters { period_min, period_max, factor: (3, 2), restore: (4, 5), quota: 60 })
}

/// Policies of the thesis.
pub fn of_1997() -> Vec<Way> {
    let way = |name, interface| Way { name, era: Era::Then, interface };
    vec![
        way("interrupts", |s, _| late(s, Interrupt)),
        way("interrupts, early drop", |s, _| with(s, Interrupt)),
        way("interrupts, drop in adapter", |s, _| InterfaceOptions {
            takes: Some(Box::new(EarlyDrop)),
            ..with(s, Interrupt)
        }),
        way("continuous polling", |s, _| with(s, Polling { quota: 8 })),
        way("timed polling", |s, unit| with(s, Timed::new(unit * 2, 8))),
        way("explicit management", |s, unit| with(s, Explicit::new(8, unit * 2))),
        way("adaptive backoff", |s, unit| with(s, backoff(unit))),
        way("lazy processing, software", |s, _| with(s, Lazy::Software)),
        way("lazy processing, adapter", |s, _| InterfaceOptions {
            takes: Some(Box::new(EarlyDrop)),
            ..with(s, Lazy::Adapter)
        }),
        Way {
            name: "exact shares (ours)",
            era: Era::Ours,
            interface: |s, unit| with(s, Shares::new(unit * 10, unit * 20, 60)),
        },
    ]
}

fn linux(options: napi::Options) -> Napi {
    Napi::new(options)
}

/// Policies of Linux. Packets that find the socket buffer full are dropped after their protocol work, as in
/// `sock_queue_rcv_skb`.
pub fn of_today() -> Vec<Way> {
    let way = |name, interface| Way { name, era: Era::Now, interface };
    vec![
        way("NAPI", |s, _| late(s, linux(napi::Options::LINUX))),
        way("NAPI, threaded", |s, _| {
            late(s, linux(napi::Options { threaded: true, ..napi::Options::LINUX }))
        }),
        way("NAPI, deferred", |s, _| {
            // Documentation/networking/napi.rst gives these as an example.
            let deferral = Some(Deferral { polls: 2, interval: Duration::from_us(200) });
            late(s, linux(napi::Options { deferral, ..napi::Options::LINUX }))
        }),
        way("coalescing 50 us, 64", |s, _| {
            let coalescing = Coalescing { time: Duration::from_us(50), packets: 64 };
            let moderation = Moderation::Fixed(coalescing);
            late(s, linux(napi::Options { moderation, ..napi::Options::LINUX }))
        }),
        way("DIM", |s, _| {
            let moderation = Moderation::Dynamic(Mode::Completion, Dim::default());
            late(s, linux(napi::Options { moderation, ..napi::Options::LINUX }))
        }),
        way("interrupt suspension", |s, _| late(s, Suspension::new(suspension::Options::LINUX))),
    ]
}
