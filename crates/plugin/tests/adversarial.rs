//! Modules that mean harm: refused when they are loaded, or stopped when they run. None stops the host, reads what is not
//! its own, or outlives its ticks.

use lastmeter_base::{Duration, Time};
use lastmeter_plugin::expression::Expression;
use lastmeter_plugin::host::{Host, Limits, MODULE_LEN_MAX};
use lastmeter_plugin::instance::{Fail, Instance, Queue};
use lastmeter_plugin::request::{Answers, Body, Policy, Request};
use lastmeter_plugin::{Kind, Verdict};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What is there in a module that is good: description, memory, `lm_process`. Each part can be replaced.
const DESCRIPTION: &str = r#"(global (export "lm_plugin") i32 (i32.const 16))
  (data (i32.const 16) "LMRQ\01\00\01\00\00\04\00\00\10\20\00\00\40\00\00\00")"#;
const MEMORY: &str = r#"(memory (export "memory") 1)"#;
const PROCESS: &str = r#"(func (export "lm_process") (param i32) (result i32) (i32.const 0))"#;
const IMPORT: &str = r#"(import "lastmeter:request/1" "#;

fn module(parts: &[&str]) -> Vec<u8> {
    let text = format!("(module {})", parts.join("\n"));
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn with(extra: &str) -> Vec<u8> {
    module(&[extra, MEMORY, DESCRIPTION, PROCESS])
}

fn import(name: &str, of: &str) -> Vec<u8> {
    with(&format!("{IMPORT} \"{name}\" {of})"))
}

fn data(description: &str) -> Vec<u8> {
    let at = format!(
        "(global (export \"lm_plugin\") i32 (i32.const 16)) (data (i32.const 16) {description})"
    );
    module(&[MEMORY, &at, PROCESS])
}

/// Modules that must be refused, with a word of the reason.
fn refused() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let long = [&with("")[..], &[0; MODULE_LEN_MAX]].concat();
    // A custom section that claims more than there is, and one whose length does not end.
    let cut = [&with("")[..], &[0, 0x7f, 1]].concat();
    let endless = [&with("")[..], &[0, 0xff, 0xff, 0xff, 0xff, 0xff]].concat();
    let mut version = with("");
    version[4] = 2;
    vec![
        ("nothing", Vec::new(), "not a WebAssembly module"),
        ("text", b"(module)".to_vec(), "not a WebAssembly module"),
        ("a gzip bomb", [&[0x1f, 0x8b, 8][..], &[0; 64]].concat(), "not a WebAssembly module"),
        ("another version of WebAssembly", version, "core modules are version 1"),
        ("a component", b"\0asm\x0d\0\x01\0".to_vec(), "a component"),
        ("an empty module", b"\0asm\x01\0\0\0".to_vec(), "lm_process"),
        ("too long", long, "at most 1048576"),
        ("a section that is cut short", cut, "cut short"),
        ("a length that does not end", endless, "cut short"),
        ("a start function", with("(func $s (loop (br 0))) (start $s)"), "start function"),
        (
            "files",
            with(r#"(import "wasi_snapshot_preview1" "fd_write" (func))"#),
            "it imports `fd_write`",
        ),
        ("an unknown function", import("lm_open", "(func)"), "not among lm_now"),
        ("a function of another type", import("lm_now", "(func (result i32))"), "lm_now() -> i64"),
        (
            "a memory of the host",
            module(&[&format!("{IMPORT} \"lm_now\" (memory 1))"), DESCRIPTION, PROCESS]),
            "lm_now",
        ),
        ("a global of the host", import("lm_now", "(global i32)"), "lm_now"),
        ("a table of the host", import("lm_now", "(table 1 funcref)"), "lm_now"),
        (
            "an older interface",
            with(r#"(import "lastmeter:request/0" "lm_now" (func (result i64)))"#),
            "made for `lastmeter:request/0`",
        ),
        ("an older description", data(r#""LMRQ\00\00\01\00""#), "version 0"),
        ("a newer description", data(r#""LMRQ\02\00\01\00""#), "version 2"),
        ("no magic", data(r#""XXXX""#), "LMRQ"),
        ("an unknown kind", data(r#""LMRQ\01\00\10\00\00\04\00\00\10\20""#), "kinds"),
        ("a room outside", data(r#""LMRQ\01\00\01\00\00\ff\00\00\10\20""#), "outside"),
        ("a room that wraps", data(r#""LMRQ\01\00\01\00\f8\ff\ff\ff\10\20""#), "outside"),
        (
            "a room without room",
            data(r#""LMRQ\01\00\01\00\00\04\00\00\10\00""#),
            "holds no request",
        ),
        (
            "too much data",
            data(r#""LMRQ\01\00\01\00\00\04\00\00\10\20\00\00\ff\ff\ff\ff""#),
            "at most 4194304",
        ),
        (
            "a description outside",
            module(&[MEMORY, PROCESS, r#"(global (export "lm_plugin") i32 (i32.const -8))"#]),
            "outside",
        ),
        (
            "a description that changes",
            module(&[MEMORY, PROCESS, r#"(global (export "lm_plugin") (mut i32) (i32.const 16))"#]),
            "constant i32",
        ),
        (
            "no memory",
            module(&[PROCESS, "(global (export \"lm_plugin\") i32 (i32.const 16))"]),
            "memory",
        ),
        ("no description", module(&[MEMORY, PROCESS]), "lm_plugin"),
        ("no lm_process", module(&[MEMORY, DESCRIPTION]), "lm_process(i32) -> i32"),
        (
            "lm_process of another type",
            module(&[MEMORY, DESCRIPTION, r#"(func (export "lm_process"))"#]),
            "something else than lm_process",
        ),
        ("an unknown export", with(r#"(func (export "lm_steal"))"#), "lm_steal"),
        (
            "a huge memory",
            module(&[DESCRIPTION, PROCESS, r#"(memory (export "memory") 65536)"#]),
            "does not fit",
        ),
        ("a huge table", with("(table 100000 funcref)"), "does not fit"),
        ("two memories", with("(memory 1)"), "not a valid module"),
        (
            "a memory of 64 bits",
            module(&[DESCRIPTION, PROCESS, r#"(memory (export "memory") i64 1)"#]),
            "not a valid module",
        ),
        (
            "a shared memory",
            module(&[DESCRIPTION, PROCESS, r#"(memory (export "memory") 1 2 shared)"#]),
            "not a valid module",
        ),
        ("data outside of the memory", with(r#"(data (i32.const 70000) "x")"#), "does not fit"),
        (
            "elements outside of the table",
            with("(table 1 funcref) (func $f) (elem (i32.const 5) $f)"),
            "does not fit",
        ),
        ("a tail call", with("(func $f (return_call $f))"), "not a valid module"),
        ("an exception", with("(tag)"), "not a valid module"),
        ("types that do not fit", broken(), "not a valid module"),
    ]
}

/// A function that returns nothing where a number is due.
fn broken() -> Vec<u8> {
    let mut bytes = with("");
    let at = bytes.windows(4).rposition(|code| code == [0, 0x41, 0, 0x0b]).unwrap();
    bytes[at + 1] = 0x01;
    bytes[at + 2] = 0x01;
    bytes
}

#[test]
fn what_must_not_be_loaded_is_refused_with_a_reason() {
    let host = Host::new(Limits { instances: 4, ..Limits::default() }).unwrap();
    for (name, bytes, word) in refused() {
        let refusal = host.load("bad", &bytes, None).map(|_| ()).unwrap_err();
        assert!(refusal.0.contains(word), "{name}: {refusal}");
    }
}

/// The bodies of `lm_process` that must fail, with what is declared before, and the reason that is counted. `$b` is the
/// batch.
const FAILING: &[(&str, &str, &str, &str)] = &[
    ("an endless loop", "", "(loop $l (br $l))", "time"),
    (
        "a loop that calls the host",
        r#"(import "lastmeter:request/1" "lm_now" (func $now (result i64)))"#,
        "(loop $l (drop (call $now)) (br $l))",
        "time",
    ),
    (
        "a flood of lines",
        r#"(import "lastmeter:request/1" "lm_log" (func $log (param i32 i32)))"#,
        "(loop $l (call $log (i32.const 0) (i32.const 65536)) (br $l))",
        "time",
    ),
    (
        "a flood of values",
        r#"(import "lastmeter:request/1" "lm_store_put"
            (func $put (param i32 i32 i32 i32) (result i32))) (global $n (mut i32) (i32.const 0))"#,
        "(loop $l (global.set $n (i32.add (global.get $n) (i32.const 1)))
            (i32.store (i32.const 0) (global.get $n))
            (drop (call $put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 4096)))
            (br $l))",
        "time",
    ),
    ("recursion", "(func $f (call $f))", "(call $f)", "stack"),
    ("recursion of two", "(func $f (call $g)) (func $g (call $f))", "(call $f)", "stack"),
    (
        "large frames",
        "(func $f (param i64 i64 i64 i64) (result i64) (i64.add (local.get 0)
            (call $f (local.get 1) (local.get 2) (local.get 3) (local.get 0))))",
        "(drop (call $f (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4)))",
        "stack",
    ),
    ("memory", "", "(drop (memory.grow (i32.const 60000)))", "memory"),
    ("memory bit by bit", "", "(loop $l (drop (memory.grow (i32.const 1))) (br $l))", "memory"),
    (
        "a table",
        "(table $t 1 funcref)",
        "(drop (table.grow $t (ref.null func) (i32.const 1000000)))",
        "memory",
    ),
    ("unreachable", "", "unreachable", "trap"),
    ("a division by zero", "", "(drop (i32.div_s (i32.const 1) (i32.const 0)))", "trap"),
    (
        "a quotient that overflows",
        "",
        "(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))",
        "trap",
    ),
    ("a number that is none", "", "(drop (i32.trunc_f64_s (f64.const nan)))", "trap"),
    ("a load from outside", "", "(drop (i64.load (i32.const -1)))", "trap"),
    ("a load far outside", "", "(drop (i64.load offset=4294967295 (i32.const -1)))", "trap"),
    ("a store to outside", "", "(i64.store (i32.const 65533) (i64.const -1))", "trap"),
    (
        "a fill of everything",
        "",
        "(memory.fill (i32.const 0) (i32.const 1) (i32.const -1))",
        "trap",
    ),
    (
        "a call of nothing",
        "(table 1 funcref)",
        "(call_indirect (param) (result) (i32.const 0))",
        "trap",
    ),
    (
        "a call of another type",
        "(table 1 funcref) (func $f (param i32)) (elem (i32.const 0) $f)",
        "(call_indirect (param) (result) (i32.const 0))",
        "trap",
    ),
    (
        "a line from outside",
        r#"(import "lastmeter:request/1" "lm_log" (func $log (param i32 i32)))"#,
        "(call $log (i32.const 65000) (i32.const -1))",
        "trap",
    ),
    (
        "a value to outside",
        r#"(import "lastmeter:request/1" "lm_store_get"
            (func $get (param i32 i32 i32 i32) (result i32)))
           (import "lastmeter:request/1" "lm_store_put"
            (func $put (param i32 i32 i32 i32) (result i32)))"#,
        "(drop (call $put (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 8)))
         (drop (call $get (i32.const 0) (i32.const 1) (i32.const 65535) (i32.const 8)))",
        "trap",
    ),
    (
        "a queue to outside",
        r#"(import "lastmeter:request/1" "lm_queue" (func $queue (param i32 i32) (result i32)))"#,
        "(drop (call $queue (i32.const 0) (i32.const -1)))",
        "trap",
    ),
    ("a status", "", "(return (i32.const -7))", "status"),
    ("no verdict", "", "", "verdict"),
    (
        "a verdict out of range",
        "",
        "(i32.store8 offset=17 (local.get $b) (i32.const 255))",
        "verdict",
    ),
    (
        "a verdict of another kind",
        "",
        "(i32.store8 offset=17 (local.get $b) (i32.const 9))",
        "verdict",
    ),
    (
        "an interface out of range",
        "",
        "(i32.store8 offset=17 (local.get $b) (i32.const 4))
         (i32.store offset=20 (local.get $b) (i32.const 65536))",
        "verdict",
    ),
    (
        "data outside",
        "",
        "(i32.store8 offset=17 (local.get $b) (i32.const 3))
         (i32.store offset=28 (local.get $b) (i32.const -1))",
        "verdict",
    ),
    (
        "data of another request",
        "",
        "(i32.store8 offset=17 (local.get $b) (i32.const 3))
         (i32.store offset=28 (local.get $b) (i32.add (i32.const 64)
            (i32.load offset=28 (local.get $b))))",
        "verdict",
    ),
    (
        "more data than there is room for",
        "",
        "(i32.store8 offset=17 (local.get $b) (i32.const 3))
         (i32.store offset=32 (local.get $b) (i32.const 65))",
        "verdict",
    ),
    (
        "more room",
        "",
        "(i32.store8 offset=17 (local.get $b) (i32.const 3))
         (i32.store offset=36 (local.get $b) (i32.const 6500))
         (i32.store offset=32 (local.get $b) (i32.const 6500))",
        "verdict",
    ),
    (
        "a room filled with ones",
        "",
        "(memory.fill (local.get $b) (i32.const 255) (i32.const 8208))",
        "verdict",
    ),
    ("another kind", "", "(i32.store8 offset=16 (local.get $b) (i32.const 2))", "verdict"),
];

/// Ticks until it is dropped.
fn ticking<T>(host: &Host, run: impl FnOnce() -> T) -> T {
    let (ticker, stop) = (host.ticker(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(1));
                ticker.tick();
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        stop.store(true, Ordering::Relaxed);
        result.unwrap()
    })
}

fn packet(data: &[u8]) -> Request<'_> {
    let now = Time::from_ps(0);
    let body = Body::Packet { interface: 0 };
    Request { body, flow: 0, arrival: now, mark: 0, length: data.len() as u32, data }
}

#[test]
fn what_goes_wrong_while_it_runs_costs_its_own_batch() {
    // Ticks go on while other tests have the processor: enough of them for the good neighbour.
    let limits = Limits { instances: 4, ticks: 100, ..Limits::default() };
    let host = Host::new(limits).unwrap();
    let good = Expression::new("good", Kind::Packet, "(= (u8 0) 69)").unwrap().compile();
    let good = host.load("good", &good, Some(Kind::Packet)).unwrap();
    let now = Time::from_ps(0);
    let mut neighbour = Instance::new(good, "good", b"", Fail::Closed, 1, now).unwrap();
    let data = [69; 64];
    let requests = [packet(&data); 8];
    let mut answers = Answers::default();
    ticking(&host, || {
        for (name, before, body, reason) in FAILING {
            let process = format!(
                "(func (export \"lm_process\") (param $b i32) (result i32) {body} (i32.const 0))"
            );
            let bytes = module(&[before, MEMORY, DESCRIPTION, &process]);
            let class = host.load("bad", &bytes, Some(Kind::Packet)).unwrap();
            let mut bad = Instance::new(class, "bad", b"", Fail::Reload, 1, now).unwrap();
            let rate = lastmeter_base::Rate::from_gbit(1);
            bad.set_queues([Some(Queue { len: lastmeter_base::Bytes(0), share: 0, rate })]);
            let began = Instant::now();
            bad.process(now, &requests, &mut answers);
            let took = began.elapsed();
            assert!(took.as_secs() < 5, "{name} took {took:?}");
            let failure = bad.last_failure().unwrap_or_else(|| panic!("{name} did not fail"));
            assert_eq!(failure.reason(), *reason, "{name}: {failure}");
            let denied = |answer: &lastmeter_plugin::request::Answer| {
                answer.verdict == Verdict::Deny { code: 0 }
            };
            assert!(answers.answers.len() == 8 && answers.answers.iter().all(denied), "{name}");
            assert!(bad.kept().len() <= lastmeter_plugin::store::BYTES_MAX);
            assert!(bad.take_log().0.len() <= lastmeter_plugin::instance::LINES_MAX);
            // It comes back after a pause, and fails again, as often as it likes.
            bad.process(now + Duration::from_secs(1), &requests, &mut answers);
            assert_eq!(bad.counters().failures[reason], 2, "{name}");
            neighbour.process(now, &requests, &mut answers);
            assert!(
                answers.answers.iter().all(|answer| answer.verdict == Verdict::Allow),
                "{name}"
            );
        }
    });
    assert!(refused().len() + FAILING.len() >= 40);
}

#[test]
fn initialising_without_end_is_stopped() {
    let host = Host::new(Limits { instances: 4, ..Limits::default() }).unwrap();
    let endless =
        r#"(func (export "lm_init") (param i32 i32) (result i32) (loop $l (br $l)) (i32.const 0))"#;
    let class = host.load("bad", &with(endless), None).unwrap();
    let now = Time::from_ps(0);
    let refusal =
        ticking(&host, || Instance::new(class, "bad", b"", Fail::Open, 1, now)).map(|_| ());
    assert_eq!(refusal.unwrap_err().0, "it took too long");
}

/// The bits of a NaN could tell machines apart.
#[test]
fn a_nan_has_the_same_bits_everywhere() {
    let process = r#"(func (export "lm_process") (param $b i32) (result i32)
        (i32.store8 offset=17 (local.get $b) (i32.const 1))
        (f64.store offset=56 (local.get $b) (f64.add (f64.load offset=40 (local.get $b))
            (f64.const nan:0xdeadbeef)))
        (i32.const 0))"#;
    let host = Host::new(Limits { instances: 4, ..Limits::default() }).unwrap();
    let class = host.load("nan", &module(&[MEMORY, DESCRIPTION, process]), None).unwrap();
    let now = Time::from_ps(0);
    let mut plugin = Instance::new(class, "nan", b"", Fail::Closed, 1, now).unwrap();
    let mut answers = Answers::default();
    plugin.process(now, &[packet(&[])], &mut answers);
    assert_eq!(answers.answers[0].mark, 0x7ff8_0000_0000_0000);
}

/// What one instance wrote cannot be read by the next one in its place.
#[test]
fn memory_is_clean_when_it_is_used_again() {
    let process = r#"(func (export "lm_process") (param $b i32) (result i32)
        (i32.store8 offset=17 (local.get $b) (i32.const 1))
        (i64.store offset=56 (local.get $b) (i64.load (i32.const 60000)))
        (i64.store (i32.const 60000) (i64.const 0x5ec2e7))
        (i32.const 0))"#;
    let host = Host::new(Limits { instances: 2, ..Limits::default() }).unwrap();
    let class = host.load("spy", &module(&[MEMORY, DESCRIPTION, process]), None).unwrap();
    let now = Time::from_ps(0);
    for _ in 0..100 {
        let mut plugin = Instance::new(class.clone(), "spy", b"", Fail::Closed, 1, now).unwrap();
        let mut answers = Answers::default();
        plugin.process(now, &[packet(&[])], &mut answers);
        assert_eq!(answers.answers[0].mark, 0);
        plugin.process(now, &[packet(&[])], &mut answers);
        assert_eq!(answers.answers[0].mark, 0x5e_c2e7);
    }
}
