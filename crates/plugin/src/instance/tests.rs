//! What instances do with good and bad plugins.

use super::*;
use crate::host::{Host, Limits};
use crate::request::{Body, Kind};
use crate::state::LINE_LEN_MAX;

/// A packet plugin whose room is at 1024, with this text in its module and this body of `lm_process`; the body has
/// the locals `$d` (a descriptor) and `$end`.
fn module(text: &str, each: &str) -> Vec<u8> {
    let room = 16 + 64 * (64 + 64);
    let text = format!(
        r#"(module
        {text}
        (memory (export "memory") 1)
        (global (export "lm_plugin") i32 (i32.const 16))
        (data (i32.const 16) "LMRQ\01\00\01\00\00\04\00\00\{:02x}\{:02x}\00\00\40\00\00\00")
        (func (export "lm_process") (param $batch i32) (result i32) (local $d i32) (local $end i32)
          (local.set $d (i32.add (local.get $batch) (i32.const 16)))
          (local.set $end (i32.add (local.get $d)
            (i32.mul (i32.load (local.get $batch)) (i32.const 64))))
          (loop $next
            {each}
            (local.set $d (i32.add (local.get $d) (i32.const 64)))
            (br_if $next (i32.lt_u (local.get $d) (local.get $end))))
          (i32.const 0)))"#,
        room & 0xff,
        room >> 8
    );
    wat::parse_str(&text).unwrap()
}

const ALLOW: &str = "(i32.store8 offset=1 (local.get $d) (i32.const 1))";

fn at(ms: u64) -> Time {
    Time::from_ps(0) + Duration::from_ms(ms)
}

fn packet(data: &[u8]) -> Request<'_> {
    Request {
        body: Body::Packet { interface: 1 },
        flow: 5,
        arrival: at(0),
        mark: 7,
        length: data.len() as u32,
        data,
    }
}

fn instance(bytes: &[u8], fail: Fail) -> Result<(Host, Instance), Refusal> {
    let host = Host::new(Limits { instances: 4, ..Limits::default() })?;
    let class = host.load("test", bytes, Some(Kind::Packet))?;
    let instance = Instance::new(class, "test", b"", fail, 1, at(0))?;
    Ok((host, instance))
}

fn ask(instance: &mut Instance, now: Time, packets: usize) -> Vec<Verdict> {
    let data = [0x45; 100];
    let requests = vec![packet(&data); packets];
    let mut answers = Answers::default();
    instance.process(now, &requests, &mut answers);
    answers.answers.iter().map(|answer| answer.verdict).collect()
}

#[test]
fn requests_are_decided_in_batches() {
    let (_host, mut plugin) = instance(&module("", ALLOW), Fail::Closed).unwrap();
    assert_eq!(ask(&mut plugin, at(0), 130), vec![Verdict::Allow; 130]);
    assert_eq!(plugin.counters().batches, 3);
    assert_eq!(plugin.counters().requests, 130);
}

#[test]
fn changed_data_and_marks_come_back() {
    let each = "(i32.store8 offset=1 (local.get $d) (i32.const 3))
        (i64.store offset=40 (local.get $d) (i64.const 99))
        (i32.store offset=16 (local.get $d) (i32.const 3))
        (i32.store8 (i32.load offset=12 (local.get $d)) (i32.const 0xaa))";
    let (_host, mut plugin) = instance(&module("", each), Fail::Closed).unwrap();
    let data = [1, 2, 3, 4];
    let mut answers = Answers::default();
    plugin.process(at(0), &[packet(&data)], &mut answers);
    let answer = answers.answers[0];
    assert_eq!((answer.verdict, answer.mark), (Verdict::Changed, 99));
    assert_eq!(answers.data(&answer), [0xaa, 2, 3]);
}

#[test]
fn a_failure_costs_its_batch_and_is_counted_by_reason() {
    for (each, reason) in [
        ("unreachable", "trap"),
        ("(i32.store8 offset=1 (local.get $d) (i32.const 9))", "verdict"),
        ("(i32.store offset=12 (local.get $d) (i32.const 0))", "verdict"),
        ("(drop (memory.grow (i32.const 1000)))", "memory"),
        ("(i32.store (i32.const -4) (i32.const 0))", "trap"),
        ("(return (i32.const 3))", "status"),
    ] {
        for (fail, verdict) in
            [(Fail::Open, Verdict::Allow), (Fail::Closed, Verdict::Deny { code: FAILED })]
        {
            let (_host, mut plugin) = instance(&module("", each), fail).unwrap();
            assert_eq!(ask(&mut plugin, at(0), 3), vec![verdict; 3], "{each}");
            assert_eq!(plugin.counters().failures.get(reason), Some(&1), "{each}");
            assert_eq!(plugin.counters().unserved, 3);
            assert!(!plugin.is_running());
        }
    }
}

/// Traps at the third call of each instance's life, and counts calls in its store.
const THIRD: (&str, &str) = (
    r#"(import "lastmeter:request/1" "lm_store_put"
         (func $put (param i32 i32 i32 i32) (result i32)))
       (import "lastmeter:request/1" "lm_store_get"
         (func $get (param i32 i32 i32 i32) (result i32)))
       (global $calls (mut i32) (i32.const 0))"#,
    r#"(i32.store8 (i32.const 8) (i32.const 107))
       (drop (call $get (i32.const 8) (i32.const 1) (i32.const 12) (i32.const 4)))
       (i32.store (i32.const 12) (i32.add (i32.load (i32.const 12)) (i32.const 1)))
       (drop (call $put (i32.const 8) (i32.const 1) (i32.const 12) (i32.const 4)))
       (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
       (if (i32.eq (global.get $calls) (i32.const 3)) (then unreachable))
       (i32.store8 offset=1 (local.get $d) (i32.const 1))"#,
);

#[test]
fn what_was_kept_survives_a_reload_after_a_pause_that_doubles() {
    let (_host, mut plugin) = instance(&module(THIRD.0, THIRD.1), Fail::Reload).unwrap();
    let denied = Verdict::Deny { code: FAILED };
    let mut now = 0;
    for pause in [100, 200, 400, 800] {
        assert_eq!(ask(&mut plugin, at(now), 1), [Verdict::Allow]);
        assert_eq!(ask(&mut plugin, at(now), 1), [Verdict::Allow]);
        assert_eq!(ask(&mut plugin, at(now), 1), [denied]);
        assert_eq!(ask(&mut plugin, at(now + pause - 1), 1), [denied], "too early");
        now += pause;
    }
    assert_eq!(plugin.kept().get(b"k"), Some(&12u32.to_le_bytes()[..]));
    assert_eq!(plugin.counters().reloads, 3);
}

#[test]
fn a_pause_is_at_most_a_minute_and_begins_anew_after_a_good_run() {
    let (_host, mut plugin) = instance(&module("", "unreachable"), Fail::Reload).unwrap();
    let mut now = 0;
    for _ in 0..20 {
        ask(&mut plugin, at(now), 1);
        now += 60_000;
    }
    assert_eq!(plugin.counters().failures["trap"], 20);
    assert_eq!(plugin.pause, PAUSE_MAX);
    plugin.reload(at(now)).unwrap();
    now += 61_000;
    ask(&mut plugin, at(now), 1);
    assert_eq!(plugin.pause, Duration::from_ms(200));
}

#[test]
fn a_crash_never_touches_another_instance() {
    let host = Host::new(Limits { instances: 8, ..Limits::default() }).unwrap();
    let bad = host.load("bad", &module("", "unreachable"), None).unwrap();
    let good = host.load("good", &module("", ALLOW), None).unwrap();
    let new = |class, fail| Instance::new(class, "x", b"", fail, 1, at(0)).unwrap();
    let (mut bad, mut good) = (new(bad, Fail::Reload), new(good, Fail::Closed));
    for round in 0..1000 {
        let now = at(round * 60_000);
        assert_eq!(ask(&mut bad, now, 8), [Verdict::Deny { code: FAILED }; 8]);
        assert_eq!(ask(&mut good, now, 8), [Verdict::Allow; 8]);
    }
    assert_eq!(bad.counters().failures["trap"], 1000);
    assert_eq!(bad.counters().reloads, 999);
    assert_eq!(good.counters().requests, 8000);
}

#[test]
fn a_log_is_bounded_and_harmless() {
    let text = r#"(import "lastmeter:request/1" "lm_log" (func $log (param i32 i32)))
        (data (i32.const 64) "\1b[2Jhello")"#;
    let (_host, mut plugin) = instance(
        &module(text, &format!("(call $log (i32.const 64) (i32.const 900)) {ALLOW}")),
        Fail::Closed,
    )
    .unwrap();
    ask(&mut plugin, at(0), 64);
    let (lines, lost) = plugin.take_log();
    assert_eq!((lines.len(), lost), (16, 48));
    assert_eq!(lines[0].chars().count(), LINE_LEN_MAX);
    assert!(lines[0].starts_with(" [2Jhello"), "{lines:?}");
}

#[test]
fn random_numbers_follow_the_seed_and_the_name() {
    let text = r#"(import "lastmeter:request/1" "lm_random" (func $random (result i64)))"#;
    let each = &format!("(i64.store offset=40 (local.get $d) (call $random)) {ALLOW}");
    let host = Host::new(Limits { instances: 4, ..Limits::default() }).unwrap();
    let class = host.load("r", &module(text, each), None).unwrap();
    let draw = |name: &str, seed| {
        let mut plugin =
            Instance::new(class.clone(), name, b"", Fail::Closed, seed, at(0)).unwrap();
        let mut answers = Answers::default();
        plugin.process(at(0), &[packet(&[])], &mut answers);
        answers.answers[0].mark
    };
    assert_eq!(draw("a", 1), draw("a", 1));
    assert_ne!(draw("a", 1), draw("b", 1));
    assert_ne!(draw("a", 1), draw("a", 2));
}

#[test]
fn a_module_is_compiled_once_for_all_that_use_it() {
    let host = Host::new(Limits { instances: 4, ..Limits::default() }).unwrap();
    let bytes = module("", ALLOW);
    let one = host.load("a", &bytes, None).unwrap();
    assert!(Arc::ptr_eq(&one, &host.load("a", &bytes, None).unwrap()));
    let refusal = host.load("a", &bytes, Some(Kind::Block)).unwrap_err();
    assert_eq!(refusal.0, "it handles packet, and is wanted for block");
}

/// Denies everything if configured with one byte, else refuses the configuration.
#[test]
fn a_refused_configuration_leaves_all_as_it_was() {
    let text = r#"(global $verdict (mut i32) (i32.const 1))
        (func (export "lm_configure") (param $at i32) (param $len i32) (result i32)
          (if (i32.ne (local.get $len) (i32.const 1)) (then (return (i32.const 5))))
          (global.set $verdict (i32.load8_u (local.get $at)))
          (i32.const 0))
        (func (export "lm_report") (param $at i32) (param $len i32) (result i32)
          (i32.store8 (local.get $at) (i32.add (i32.const 48) (global.get $verdict)))
          (i32.const 1))"#;
    let each = "(i32.store8 offset=1 (local.get $d) (global.get $verdict))
        (i32.store offset=4 (local.get $d) (i32.const 44))";
    let (_host, mut plugin) = instance(&module(text, each), Fail::Closed).unwrap();
    assert!(plugin.configure(b"ab", at(0)).unwrap_err().0.contains("status 5"));
    assert_eq!(ask(&mut plugin, at(0), 1), [Verdict::Allow]);
    plugin.configure(&[2], at(0)).unwrap();
    assert_eq!(ask(&mut plugin, at(0), 1), [Verdict::Deny { code: 44 }]);
    assert_eq!(plugin.report(at(0)).unwrap(), "2");
    assert!(plugin.configure(&[0; 100_000], at(0)).unwrap_err().0.contains("at most"));
    assert!(plugin.is_running());
}
