//! Reception as a whole: conservation, formulas, and the guarantees of every policy.

use super::admission::{Budgets, EarlyDrop, Tags};
use super::backoff::{Backoff, Parameters};
use super::dim::{Coalescing, Dim, Mode};
use super::equations::{self, TABLE_7_2};
use super::explicit::Explicit;
use super::interrupt::Interrupt;
use super::lazy::Lazy;
use super::napi::{Deferral, Moderation, Napi};
use super::polling::Polling;
use super::shares::Shares;
use super::suspension::Suspension;
use super::timed::Timed;
use super::trial::{Arrivals, Outcome, run};
use super::*;
use lastmeter_base::{Draw, StageId};
use lastmeter_engine::{PortId, ResourceId};

const fn us(us: u64) -> Duration {
    Duration::from_us(us)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

const COSTS: Costs = Costs { accept: us(200), protocol: us(200), ..TABLE_7_2 };

fn options(costs: Costs) -> Options {
    let [interrupt, switch, accept, transfer, protocol, application, polling] =
        [0, 1, 2, 3, 4, 5, 6].map(StageId);
    let stages = Stages { interrupt, switch, accept, transfer, protocol, application, polling };
    Options { costs, scheduling: Scheduling::Cooperative, stages, parts: Vec::new(), kernel: 0 }
}

fn host(options: Options, interfaces: Vec<InterfaceOptions>) -> Machine {
    alone(ResourceId(0), Reception::new(options, interfaces))
}

fn interface(policy: impl Policy + 'static) -> InterfaceOptions {
    InterfaceOptions {
        policy: Box::new(policy),
        accepts: Some(Box::new(EarlyDrop)),
        takes: None,
        commands: Commands::Two,
        adapter_buffers: 128,
        announced_max: 16,
        host_buffers: 128,
        transfer: us(26),
        reservation: None,
    }
}

fn at_rate(rate: u64) -> Duration {
    Duration::from_ps(1_000_000_000_000 / rate)
}

fn periodic(rate: u64) -> Arrivals {
    let start = Time::START + us(7);
    Arrivals { gap: Draw::Constant(at_rate(rate)), len: Bytes(1024), flows: 1, start }
}

fn offer(interface: InterfaceOptions, rate: u64) -> Outcome {
    offer_with(options(COSTS), interface, periodic(rate), ms(3_000))
}

fn offer_with(
    options: Options,
    interface: InterfaceOptions,
    arrivals: Arrivals,
    length: Duration,
) -> Outcome {
    let host = host(options, vec![interface]);
    let outcome = run(host, &[arrivals], 1, length / 5, length);
    assert_eq!(outcome.unaccounted, 0, "packets made = processed + dropped + held");
    outcome
}

fn near(measured: f64, expected: f64, share: f64) {
    assert!((measured / expected - 1.0).abs() <= share, "{measured} is not near {expected}");
}

fn backoff(period_max: u64, quota: u64) -> Backoff {
    let (period_min, period_max) = (ms(1), ms(period_max));
    Backoff::new(Parameters { period_min, period_max, factor: (3, 2), restore: (4, 5), quota })
}

#[test]
fn e_110_interrupts_follow_eq_7_2_into_livelock() {
    let without_early_drop = || InterfaceOptions { accepts: None, ..interface(Interrupt) };
    for rate in [1000, 1240] {
        near(offer(without_early_drop(), rate).total(), rate as f64, 1e-3);
    }
    for rate in [1300, 1700, 2100] {
        let by_equation = equations::processed(&TABLE_7_2, rate as f64);
        near(offer(without_early_drop(), rate).total(), by_equation, 5e-3);
    }
    let livelock = offer(without_early_drop(), 2200);
    assert_eq!((livelock.total(), livelock.idle), (0.0, 0.0));
}

#[test]
fn e_100_early_drop_only_delays_livelock() {
    let rates = [1240, 2200, 5500].map(|rate| offer(interface(Interrupt), rate).total());
    near(rates[0], 1240.0, 1e-3);
    assert!(rates[1] > 800.0 && rates[2] == 0.0, "{rates:?}");
}

#[test]
fn e_101_continuous_polling_follows_eq_7_3_and_leaves_no_idle_time() {
    let outcome = offer(interface(Polling { quota: 1 }), 5000);
    near(outcome.total(), equations::polling(&TABLE_7_2, 1), 1e-3);
    assert_eq!(offer(interface(Polling { quota: 1 }), 100).idle, 0.0);
    assert_eq!(outcome.interrupts, 0.0);
}

#[test]
fn several_interfaces_are_polled_in_turn() {
    let both = || (0..2).map(|_| interface(Polling { quota: 8 })).collect();
    for rates in [[4000, 300], [300, 4000]] {
        let host = host(options(COSTS), both());
        let outcome = run(host, &rates.map(periodic), 1, ms(500), ms(2500));
        for (rate, got) in rates.into_iter().zip(outcome.processed) {
            assert!(got >= 0.99 * rate.min(300) as f64, "{got} of {rate} packets/s, {rates:?}");
        }
    }
}

#[test]
fn e_102_timed_polling_with_a_small_quota_handles_q_over_2_i() {
    for (period, quota) in [(1, 1), (1, 2), (2, 3), (2, 5)] {
        let by_equation = equations::timed(&TABLE_7_2, quota, ms(period));
        near(offer(interface(Timed::new(ms(period), quota)), 3000).total(), by_equation, 2e-3);
    }
}

#[test]
fn e_103_explicit_management_does_not_starve_with_a_small_quota() {
    let explicit = |quota| offer(interface(Explicit::new(quota, ms(2))), 3000).total();
    assert!(explicit(1) > 1200.0 && explicit(8) > explicit(1));
    // Without load it interrupts for each command at once.
    let idle = offer(interface(Explicit::new(8, ms(2))), 100);
    assert!(idle.latency.max() < ms(1), "{:?}", idle.latency.max());
}

#[test]
fn e_104_adaptive_backoff_neither_overruns_nor_starves() {
    for rate in [1000, 1600, 3000, 5500] {
        let outcome = offer(interface(backoff(20, 60)), rate);
        assert!(outcome.total() > 0.99 * (rate as f64).min(1500.0), "{rate}: {}", outcome.total());
        // At most the longest period, and until 128 packets and one batch are processed.
        assert!(outcome.latency.max() < ms(20 + 128 + 30), "{:?}", outcome.latency.max());
    }
    assert!(offer(interface(backoff(20, 60)), 1000).latency.max() < ms(1));
}

#[test]
fn e_105_lazy_processing_drops_before_the_protocol() {
    let costs = Costs { demultiplex: us(40), ..TABLE_7_2 };
    let lazy = |lazy: Lazy, rate| {
        let on_adapter = lazy == Lazy::Adapter;
        let drop = || Box::new(EarlyDrop) as Box<dyn Admission>;
        let card = InterfaceOptions {
            accepts: Some(drop()),
            takes: on_adapter.then(drop),
            commands: Commands::One,
            ..interface(lazy)
        };
        offer_with(options(costs), card, periodic(rate), ms(2_000)).total()
    };
    // Drops on the adapter cost nothing; in software each costs an interrupt and a poll.
    near(lazy(Lazy::Adapter, 5500), lazy(Lazy::Adapter, 2000), 0.01);
    let software = [1200, 2200, 5500].map(|rate| lazy(Lazy::Software, rate));
    assert!(software[0] > 1190.0 && software[1] > 1000.0, "{software:?}");
    assert!(software[2] < software[1] && software[2] > 500.0, "{software:?}");
    // Drop on the adapter keeps an interrupt-driven host alive, too.
    let card = InterfaceOptions { takes: Some(Box::new(EarlyDrop)), ..interface(Interrupt) };
    assert!(offer(card, 5500).total() > 100.0);
}

/// A modern host, in round numbers: 1 us per packet.
fn modern(policy: impl Policy + 'static) -> (Options, InterfaceOptions) {
    let costs = Costs {
        interrupt: us(1),
        switch: Duration::from_ns(1_500),
        wake: Duration::from_ns(1_500),
        accept: Duration::ZERO,
        demultiplex: Duration::from_ns(50),
        protocol: Duration::from_ns(500),
        application: Duration::from_ns(500),
        cache_miss: Duration::ZERO,
        look: Duration::from_ns(100),
    };
    let card = InterfaceOptions {
        accepts: None,
        commands: Commands::One,
        adapter_buffers: 1024,
        host_buffers: 1024,
        transfer: us(0),
        ..interface(policy)
    };
    (Options { scheduling: Scheduling::Fair(us(100)), ..options(costs) }, card)
}

fn offer_modern(policy: impl Policy + 'static, rate: u64) -> Outcome {
    let (options, card) = modern(policy);
    let arrivals = Arrivals { gap: Draw::Exponential(at_rate(rate)), ..periodic(rate) };
    offer_with(options, card, arrivals, ms(20))
}

#[test]
fn e_106_napi_polls_under_load_and_interrupts_otherwise() {
    let quiet = offer_modern(Napi::new(napi::Options::LINUX), 10_000);
    near(quiet.interrupts, 10_000.0, 0.2);
    let loaded = offer_modern(Napi::new(napi::Options::LINUX), 5_000_000);
    assert!(loaded.interrupts < 10_000.0, "{}", loaded.interrupts);
    // Beyond its budget a thread takes over, which shares the CPU with the application.
    assert!(loaded.total() > 300_000.0, "{}", loaded.total());
    let threaded = napi::Options { threaded: true, ..napi::Options::LINUX };
    assert!(offer_modern(Napi::new(threaded), 5_000_000).total() > 300_000.0);
}

#[test]
fn e_106_coalescing_deferral_and_suspension_save_interrupts() {
    let rate = 200_000;
    let plain = offer_modern(Napi::new(napi::Options::LINUX), rate);
    let coalesced = napi::Options {
        moderation: Moderation::Fixed(Coalescing { time: us(50), packets: 64 }),
        ..napi::Options::LINUX
    };
    let deferral = Some(Deferral { polls: 2, interval: us(50) });
    let deferred = napi::Options { deferral, ..napi::Options::LINUX };
    let dynamic = napi::Options {
        moderation: Moderation::Dynamic(Mode::Completion, Dim::default()),
        ..napi::Options::LINUX
    };
    for options in [coalesced, deferred, dynamic] {
        let outcome = offer_modern(Napi::new(options.clone()), rate);
        near(outcome.total(), plain.total(), 0.02);
        assert!(outcome.interrupts < 0.7 * plain.interrupts, "{options:?}");
    }
    let suspended = offer_modern(Suspension::new(suspension::Options::LINUX), 900_000);
    assert!(suspended.interrupts < 10_000.0 && suspended.total() > 850_000.0);
}

#[test]
fn e_106_coalescing_never_holds_a_packet_longer_than_its_time() {
    let coalescing = Coalescing { time: us(50), packets: 64 };
    let moderation = Moderation::Fixed(coalescing);
    let options = napi::Options { moderation, ..napi::Options::LINUX };
    let outcome = offer_modern(Napi::new(options), 1_000);
    assert!(outcome.latency.max() <= us(50 + 10), "{:?}", outcome.latency.max());
    assert!(outcome.latency.percentile(0.5) >= us(50));
}

fn two(policy: impl Fn(u64) -> Box<dyn Policy>, quotas: [u64; 2], rate: u64) -> Outcome {
    let card = |reserved: u64| InterfaceOptions {
        policy: policy(reserved * 2 * 20 / 1000),
        reservation: Some(at_rate(reserved)),
        ..interface(Interrupt)
    };
    let host = host(options(COSTS), quotas.map(card).into_iter().collect());
    run(host, &[periodic(rate), periodic(1000)], 1, ms(2_000), ms(8_000))
}

fn strict(quota: u64) -> Box<dyn Policy> {
    let (period_min, period_max) = (ms(1), ms(20));
    let (factor, restore) = ((2, 1), (99, 100));
    Box::new(Backoff::new(Parameters { period_min, period_max, factor, restore, quota }))
}

fn shares(quota: u64) -> Box<dyn Policy> {
    Box::new(Shares::new(ms(10), ms(20), quota))
}

#[test]
fn e_121_backoff_near_1_shares_the_host_as_reserved() {
    let outcome = two(strict, [700, 800], 2000);
    near(outcome.processed[0], 700.0, 0.1);
    near(outcome.processed[1], 800.0, 0.1);
}

#[test]
fn e_125_shares_are_exact_and_no_interface_loses_its_reservation() {
    let outcome = two(shares, [500, 600], 2000);
    near(outcome.processed[0] / outcome.processed[1], 500.0 / 600.0, 0.01);
    assert!(outcome.total() > 1450.0, "{}", outcome.total());
    // When backoff takes from the other interface before that backs off for the first time:
    assert!(two(strict, [300, 1200], 600).processed[1] < 900.0);
    assert!(two(shares, [300, 1200], 600).processed[1] > 995.0);
}

#[test]
fn e_131_the_least_important_packets_are_dropped_first() {
    let tags = Tags { free_min: vec![0, 64] };
    let card = InterfaceOptions { accepts: Some(Box::new(tags)), ..interface(backoff(20, 60)) };
    let arrivals = Arrivals { flows: 2, ..periodic(2000) };
    let outcome = offer_with(options(COSTS), card, arrivals, ms(3_000));
    assert!(outcome.by_flow[0] > 990.0, "{:?}", outcome.by_flow);
    assert!(outcome.by_flow[1] < 500.0, "{:?}", outcome.by_flow);
}

#[test]
fn e_132_a_flow_keeps_its_budget_despite_a_greedy_one() {
    // Flow 0 sends 100 packets per second, flow 1 sends 4000; each has a budget of 2 in 10 ms.
    let offered = |takes: Box<dyn Admission>| {
        let card = InterfaceOptions { takes: Some(takes), ..interface(Interrupt) };
        let mut host = host(options(COSTS), vec![card]);
        let (mut made, mut processed) = (0u64, [0u64; 2]);
        for at in 0..12_300u64 {
            let now = Time::START + us(at * 244);
            host.advance(now);
            let mut packet = Packet::new(Bytes(1024));
            packet.flow = lastmeter_base::FlowId(u32::from(at % 41 != 0));
            made += u64::from(at % 41 == 0);
            host.arrive(now, PortId(0), packet);
            for output in host.outputs() {
                if let crate::machine::Output::Send(_, packet) = output {
                    processed[packet.flow.0 as usize] += 1;
                }
            }
        }
        (processed[0] as f64 / made as f64, processed[1])
    };
    let (kept, others) = offered(Box::new(Budgets::new(ms(10), 2)));
    let (without, _) = offered(Box::new(EarlyDrop));
    assert!(kept > 0.95 && without < 0.9 && others > 500, "{kept} beside {without}, {others}");
}

#[test]
fn e_99_the_control_commands_set_the_mode() {
    use super::control::{Adapter, Command, Driver, NAMES};
    let mut adapter = Adapter::default();
    let driver = Driver { poll_quota: 4, interval: Duration::ZERO };
    assert!(!adapter.policy(driver).spins());
    adapter.control(Command::ModePoll);
    assert!(adapter.policy(driver).spins());
    adapter.control(Command::ModeIntr);
    assert!(!adapter.policy(driver).spins());
    assert_eq!(Command::HostIntrCtrlOff.name(), NAMES[5]);
}

#[test]
fn two_policies_work_on_the_same_host() {
    let host = host(
        options(COSTS),
        vec![interface(Timed::new(ms(2), 8)), interface(Explicit::new(4, ms(2)))],
    );
    let outcome = run(host, &[periodic(400), periodic(300)], 1, ms(100), ms(2_000));
    assert_eq!(outcome.unaccounted, 0);
    near(outcome.processed[0], 400.0, 0.01);
    near(outcome.processed[1], 300.0, 0.01);
}
