//! Waits made on purpose are seen where they are, and as long as they are.
//!
//! The helpers are this program run again, so it has its own `main`. Needs network namespaces and tracepoints (root):
//! without the rights it prints `SKIP:` and why.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

mod attempts;

use attempts::in_time;
use lastmeter_base::{Bytes, Duration};
use lastmeter_linux::cores;
use lastmeter_live::namespace::{Hosts, Isolation};
use lastmeter_live::transfer::{Pause, Setting, Workload};
use lastmeter_live::waits::{EVENTS_MAX, Wait, Waits};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() {
    lastmeter_live::worker::enter_if_asked(&[]);
    let hosts = Hosts::open_as(Isolation::Root, false).map_err(|error| error.to_string());
    let seen = hosts.and_then(|mut hosts| {
        let seen = hosts.waits(&Setting::PLAIN).map_err(|error| error.to_string());
        seen.and_then(|seen| seen)
    });
    if let Err(why) = seen {
        println!("SKIP: waits between the stages of a transfer: {why}");
        return;
    }
    attempts::run_all(TESTS);
}

const TESTS: &[(&str, fn())] = &[
    ("a_reader_that_shares_its_core_waits_for_it_as_long_as_the_scheduler_says", shared_core),
    ("packets_wait_in_a_token_bucket_for_those_before_them", token_bucket),
    ("packets_wait_in_the_socket_of_a_reader_that_sleeps", sleeping_reader),
    ("small_packets_end_a_look_before_it_costs_too_much", many_events),
];

/// A request and its answer: packets one by one, few a second.
const REQUESTS: Setting =
    Setting { workload: Workload::RequestResponse, message: Bytes(64), ..Setting::PLAIN };

fn seen(hosts: &mut Hosts, setting: &Setting) -> Waits {
    let waits = hosts.waits(setting).unwrap().unwrap();
    for Wait { name, count, p50, p99, max, .. } in &waits.rows {
        println!(
            "  {name}: {count}, {:.1} us, p99 {:.1}, most {:.1}",
            p50 * 1e6,
            p99 * 1e6,
            max * 1e6
        );
    }
    let Waits { observed, events, lost, cost, .. } = &waits;
    println!("  {observed:.3} s, {events} events, {lost} lost, {cost:.3?} of a CPU");
    waits
}

fn row<'a>(waits: &'a Waits, name: &str) -> &'a Wait {
    let found = waits.rows.iter().find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {:?}", waits.rows))
}

/// A busy loop has half of the receiver's core. The scheduler's own account of the same threads, of a run that nobody
/// recorded, says how long they were ready and did not run.
fn shared_core() {
    let mut hosts = Hosts::open_as(Isolation::Root, false).unwrap();
    let setting = Setting { competitor: true, ..Setting::PLAIN };
    let waits = seen(&mut hosts, &setting);
    let busy = waits.busy.iter().find(|busy| busy.name == "receiver").unwrap();
    let share = busy.waited / waits.observed;
    let other = hosts.run(&Setting { duration: Duration::from_ms(300), ..setting }).unwrap();
    let right = other.receiver.activity.wait;
    println!("  {share:.2} of the time ready, {right:.2} by the scheduler's account");
    let longest = |name: &str| {
        let rows = waits.rows.iter().filter(|row| row.name.starts_with(name));
        rows.map(|row| row.max).fold(0.0, f64::max)
    };
    in_time!(longest("receiver for a CPU") >= 1e-3, "it waited {:?}", waits.rows);
    in_time!(right >= 0.2, "the busy loop took {right} of the core");
    in_time!((share - right).abs() <= 0.2, "{share} instead of {right}");
}

/// Does something while a thread on each CPU has nothing else to do.
fn awake<T>(run: impl FnOnce() -> T) -> T {
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = &AtomicBool::new(false);
    std::thread::scope(|threads| {
        // Also if it fails.
        let _ends = Ends(over);
        for core in cores::allowed().unwrap() {
            threads.spawn(move || {
                cores::pin(Some(core)).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        run()
    })
}

/// At 100 Mbit/s 64 KiB take 5 ms, and what is behind them waits as long; without the bucket, hardly at all. The bucket
/// holds the largest packets: it would cut larger ones into others, which are not those that were queued. Its queue
/// holds what a small send buffer lets out, so that none is dropped and nothing waits for a retransmission instead. The
/// CPUs are kept awake: on some virtual machines what a timer's interrupt sends out of idleness is not recorded.
fn token_bucket() {
    let mut hosts = Hosts::open_as(Isolation::Root, false).unwrap();
    let setting = Setting { send_buffer: Some(Bytes::from_kib(64)), ..Setting::PLAIN };
    let queue = "packets in the queue of lm0";
    let before = row(&seen(&mut hosts, &setting), queue).clone();
    let sender = attempts::children();
    let sender = sender.split_whitespace().next().expect("the sender is the first helper");
    let bucket = "qdisc add dev lm0 root tbf rate 100mbit burst 128kb limit 1mb";
    let mut enter = Command::new("nsenter");
    enter.args(["--net", "--target", sender, "tc"]).args(bucket.split(' '));
    match enter.output() {
        Ok(done) if done.status.success() => {}
        other => return println!("SKIP: a token bucket: {other:?}"),
    }
    let after = awake(|| row(&seen(&mut hosts, &setting), queue).clone());
    in_time!(before.p50 < 0.1e-3, "{before:?} without the bucket");
    in_time!(after.p99 >= 0.6e-3, "{after:?} in the bucket");
    in_time!(after.mean >= 0.2e-3, "{after:?} in the bucket");
}

/// It takes 16 KiB, and sleeps 2 ms.
fn sleeping_reader() {
    let mut hosts = Hosts::open_as(Isolation::Root, false).unwrap();
    let message = Bytes::from_kib(16);
    let receiver_pause = Pause::Sleep(Duration::from_ms(2));
    let socket = "packets for the receiver, in its socket";
    let slow = seen(&mut hosts, &Setting { message, receiver_pause, ..Setting::PLAIN });
    let prompt = seen(&mut hosts, &REQUESTS);
    in_time!(row(&slow, socket).p50 >= 2e-3, "{:?} while it sleeps", row(&slow, socket));
    let prompt = row(&prompt, socket);
    in_time!(prompt.p50 < 1e-3, "{prompt:?} while it waits for data");
}

/// The longest look and the most events are as stated, and so is what that can cost.
fn many_events() {
    let mut hosts = Hosts::open_as(Isolation::Root, false).unwrap();
    let waits = seen(&mut hosts, &Setting { offload: false, mtu: 576, ..Setting::PLAIN });
    // What is in the rings at the last two readings still counts: a ring holds 16,384 of the shortest.
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(waits.events <= (EVENTS_MAX + 2 * cpus * 16_384) as u64, "{}", waits.events);
    let spent = waits.cost.unwrap() * waits.observed;
    println!("  {spent:.3} s of CPU time");
    in_time!(waits.observed < 0.4, "{} s", waits.observed);
    in_time!(spent < 0.5, "{spent} s of CPU time");
}
