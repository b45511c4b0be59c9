//! Limits made on purpose, found; and nothing left behind.
//!
//! The helpers are this program run again, so it has its own `main`. Needs network namespaces:
//! without the rights each test says `SKIP:` and why.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_live::namespace::Hosts;
use lastmeter_live::transfer::{self, Measurement, Pause, Placement, Relay, Setting, Workload};
use lastmeter_live::verdict::{self, Limit, Network};
use std::panic::{AssertUnwindSafe, catch_unwind};

const SHORT: Setting = Setting { duration: Duration::from_ms(600), ..Setting::PLAIN };

fn main() {
    lastmeter_live::worker::enter_if_asked();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if let Err(e) = Hosts::open(true) {
        println!("SKIP: all tests that need two hosts: {e}");
        return;
    }
    let mut failed = Vec::new();
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w.as_str())) {
            continue;
        }
        println!("test {name}");
        // A machine that others use may spoil one run; a wrong verdict spoils all.
        if !(0..2).any(|_| catch_unwind(AssertUnwindSafe(test)).is_ok()) {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

const TESTS: &[(&str, fn())] = &[
    ("a_receiver_that_sleeps_is_the_receiving_application", receiver_sleeps),
    ("a_sender_that_generates_slowly_is_the_sending_application", sender_generates_slowly),
    ("a_sender_that_paces_itself_is_the_sending_application", sender_paces),
    ("a_64_kib_receive_buffer_over_20_ms_is_the_receiver_window", small_window),
    ("a_small_send_buffer_over_20_ms_is_the_send_buffer", small_send_buffer),
    ("a_busy_loop_beside_the_receiver_is_a_shared_cpu", shared_cpu),
    ("a_token_bucket_is_the_network_rate", token_bucket),
    ("both_ends_on_one_core_share_it", same_core),
    ("a_request_waits_for_its_answer", request_response),
    ("nothing_is_left_behind", nothing_left),
];

fn limit_of(setting: Setting) -> (Limit, Measurement) {
    let m = transfer::run(&setting).unwrap();
    let verdict = verdict::of(&m);
    println!("  {:.4} Gbit/s: {}", m.goodput.windows.median / 1e9, verdict.words);
    (verdict.limit, m)
}

fn receiver_sleeps() {
    let receiver_pause = Pause::Sleep(Duration::from_ms(1));
    let (limit, _) = limit_of(Setting { receiver_pause, ..SHORT });
    assert_eq!(limit, Limit::ReceiverApplication);
}

fn sender_generates_slowly() {
    let sender_pause = Pause::Work(Duration::from_ms(1));
    let (limit, _) = limit_of(Setting { sender_pause, ..SHORT });
    assert_eq!(limit, Limit::SenderApplication);
}

fn sender_paces() {
    let (limit, m) = limit_of(Setting { sender_rate: Some(Rate::from_mbit(200)), ..SHORT });
    assert_eq!(limit, Limit::SenderApplication);
    assert!((m.goodput.mean / 200e6 - 1.0).abs() < 0.05, "{}", m.goodput.mean);
}

fn small_window() {
    let relay = Some(Relay { delay: Duration::from_ms(20), rate: None });
    let receive_buffer = Some(Bytes::from_kib(64));
    let (limit, m) = limit_of(Setting {
        relay,
        receive_buffer,
        warm_up: Duration::from_ms(500),
        duration: Duration::from_ms(1000),
        ..SHORT
    });
    assert_eq!(limit, Limit::ReceiverWindow);
    assert!(m.sender.tcp.rtt_min > 0.040, "{}", m.sender.tcp.rtt_min);
}

fn small_send_buffer() {
    let relay = Some(Relay { delay: Duration::from_ms(20), rate: None });
    let (limit, _) = limit_of(Setting {
        relay,
        send_buffer: Some(Bytes::from_kib(16)),
        receive_buffer: Some(Bytes::from_mib(1)),
        warm_up: Duration::from_ms(500),
        duration: Duration::from_ms(1000),
        ..SHORT
    });
    assert_eq!(limit, Limit::SendBuffer);
}

fn shared_cpu() {
    if lastmeter_live::cores::allowed().unwrap().len() < 2 {
        println!("SKIP: needs two cores");
        return;
    }
    // Small packets make the receiver the busy side, so that its CPU matters.
    let (limit, _) = limit_of(Setting { competitor: true, ..SHORT });
    assert_eq!(limit, Limit::SharedCpu);
}

fn token_bucket() {
    let relay = Some(Relay { delay: Duration::from_ms(1), rate: Some(Rate::from_mbit(100)) });
    let (limit, m) = limit_of(Setting { relay, warm_up: Duration::from_ms(500), ..SHORT });
    assert!(matches!(limit, Limit::Network(Network::Rate(_))), "{limit:?}");
    // 1448 bytes of data in a frame of 1514.
    assert!((m.goodput.mean / 95.6e6 - 1.0).abs() < 0.05, "{}", m.goodput.mean);
}

fn same_core() {
    let (limit, _) = limit_of(Setting { placement: Placement::SameCore, ..SHORT });
    assert_eq!(limit, Limit::SharedCpu);
}

fn request_response() {
    let workload = Workload::RequestResponse;
    let (limit, m) = limit_of(Setting { workload, message: Bytes(256), ..SHORT });
    assert_eq!(limit, Limit::RoundTrip);
    assert!(m.latency.unwrap().p50 > 1e-6);
}

/// Neither processes nor interfaces nor named namespaces.
fn nothing_left() {
    let interfaces = || std::fs::read_to_string("/proc/net/dev").unwrap().lines().count();
    let children = || {
        let path = format!("/proc/self/task/{}/children", std::process::id());
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let before = interfaces();
    drop(Hosts::open(true).unwrap());
    assert_eq!(children(), "");
    assert_eq!(interfaces(), before);
}
