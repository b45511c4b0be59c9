//! What a request costs: native code, a plugin asked in batches of 64, a plugin asked about one at a time, and a
//! component, whose calls take one packet each (with the feature `component`).
//!
//! All count packets by flow, for which they read the addresses in 64 bytes of header. Time is the CPU time of this
//! thread, so that a busy machine matters less; the median of [`ROUNDS`] rounds. `--save` keeps a module's cost beside
//! it, for models.

use super::{Complaint, Report, Ticking, kind, read, write};
use lastmeter_plugin::Kind;
use lastmeter_plugin::cost::Cost;
use lastmeter_plugin::host::{Hash, Limits, MODULE_LEN_MAX};
use lastmeter_plugin::instance::{Fail, Instance};
use lastmeter_plugin::request::{Answers, Body, Policy, Rect, Request};
use serde_json::json;
use std::hint::black_box;
use std::path::PathBuf;

/// The rounds of which the median is given.
const ROUNDS: usize = 5;
/// Requests in memory: more than fit into the nearest cache.
const PACKETS: usize = 4096;
/// Length of the header of each.
const HEADER_LEN: usize = 64;
/// Counters of the plugin: a power of two.
const FLOWS: usize = 1024;
/// Requests that a device hands over at once.
const BATCH: usize = 64;

#[derive(clap::Args)]
pub(crate) struct Bench {
    /// A module to measure instead of ours
    module: Option<PathBuf>,
    /// What it is asked about
    #[arg(long, value_parser = kind, default_value = "packet")]
    kind: Kind,
    /// Its configuration
    #[arg(long, default_value = "")]
    config: String,
    /// Keep the result as MODULE.cost.toml: what a model charges with `cost = "measured"`
    #[arg(long, requires = "module")]
    save: bool,
}

/// Counts packets by flow, in WebAssembly. The counters are at 16384, the room of 64 requests at 1024.
pub(super) const COUNTER: &str = r#"(module
  (memory (export "memory") 1)
  (global (export "lm_plugin") i32 (i32.const 16))
  (data (i32.const 16) "LMRQ\01\00\01\00\00\04\00\00\10\20\00\00\40\00\00\00")
  (func (export "lm_process") (param $batch i32) (result i32)
    (local $d i32) (local $end i32) (local $p i32) (local $c i32)
    (local.set $d (i32.add (local.get $batch) (i32.const 16)))
    (local.set $end (i32.add (local.get $d) (i32.shl (i32.load (local.get $batch)) (i32.const 6))))
    (loop $next
      (local.set $p (i32.load offset=12 (local.get $d)))
      (local.set $c (i32.add (i32.const 16384) (i32.shl (i32.and (i32.const 1023) (i32.xor
        (i32.load offset=12 (local.get $p)) (i32.shr_u (i32.load offset=16 (local.get $p))
        (i32.const 22)))) (i32.const 3))))
      (i64.store (local.get $c) (i64.add (i64.load (local.get $c)) (i64.const 1)))
      (i64.store offset=40 (local.get $d) (i64.load (local.get $c)))
      (i32.store8 offset=1 (local.get $d) (i32.const 1))
      (local.set $d (i32.add (local.get $d) (i32.const 64)))
      (br_if $next (i32.lt_u (local.get $d) (local.get $end))))
    (i32.const 0)))"#;

/// The same as a component: the packet is an argument, and the counter is the result.
#[cfg(feature = "component")]
const COMPONENT: &str = r#"(component
  (core module $counter
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "process") (param $p i32) (param $len i32) (result i64) (local $c i32)
      (local.set $c (i32.add (i32.const 16384) (i32.shl (i32.and (i32.const 1023) (i32.xor
        (i32.load offset=12 (local.get $p)) (i32.shr_u (i32.load offset=16 (local.get $p))
        (i32.const 22)))) (i32.const 3))))
      (i64.store (local.get $c) (i64.add (i64.load (local.get $c)) (i64.const 1)))
      (i64.load (local.get $c))))
  (core instance $i (instantiate $counter))
  (func (export "process") (param "packet" (list u8)) (result u64) (canon lift
    (core func $i "process") (memory $i "memory") (realloc (func $i "realloc")))))"#;

/// The same in Rust; returns the counter.
#[inline]
fn count(counters: &mut [u64; FLOWS], packet: &[u8]) -> u64 {
    let word = |at: usize| {
        packet.get(at..at + 4).map_or(0, |w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
    };
    let counter = &mut counters[(word(12) ^ word(16) >> 22) as usize % FLOWS];
    *counter += 1;
    *counter
}

fn headers() -> Vec<[u8; HEADER_LEN]> {
    let mut random = lastmeter_base::Stream::new(1, "plugin bench");
    let header = |_| {
        let mut header = [0; HEADER_LEN];
        header[0] = 0x45;
        for byte in &mut header[12..20] {
            *byte = random.bits() as u8;
        }
        header
    };
    (0..PACKETS).map(header).collect()
}

/// Nanoseconds for one of `PACKETS`, the median over rounds; and the hash of each round's result, which must not
/// differ between peers.
fn measure(passes: usize, mut pass: impl FnMut() -> u64) -> (f64, u64) {
    let mut hash = pass();
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = crate::sandbox::thread();
            for _ in 0..passes {
                hash = black_box(pass());
            }
            (crate::sandbox::thread() - began).as_secs_f64() * 1e9 / (passes * PACKETS) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[ROUNDS / 2], hash)
}

pub(crate) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let Bench { module, kind, config, save } = arguments;
    let passes = if quick { 20 } else { 1000 };
    let headers = headers();
    let sandbox = Ticking::new(Limits { instances: 4, ..Limits::default() })?;
    let (bytes, name) = match module {
        Some(path) => (read(path, MODULE_LEN_MAX)?, path.display().to_string()),
        None => (wat::parse_str(COUNTER)?, "a counter for each flow".to_owned()),
    };
    let class = sandbox.host.load("bench", &bytes, Some(*kind))?;
    let requests: Vec<Request<'_>> =
        headers.iter().enumerate().map(|(at, header)| request(*kind, at as u32, header)).collect();
    let mut lines = Vec::new();
    let native = if module.is_none() {
        let mut counters = Box::new([0; FLOWS]);
        let (native, hash) = measure(passes, || {
            headers.iter().fold(0, |sum: u64, header| {
                sum.wrapping_add(count(&mut counters, black_box(header)))
            })
        });
        lines.push(("plugin/native", native, hash));
        Some(native)
    } else {
        None
    };
    for (bench, batch) in [("plugin/batched", BATCH), ("plugin/single", 1)] {
        let (now, config) = (sandbox.now(), config.as_bytes());
        let mut instance = Instance::new(class.clone(), "bench", config, Fail::Closed, 1, now)?;
        let mut answers = Answers::default();
        let (cost, hash) = measure(passes, || {
            let mut sum = 0u64;
            for batch in requests.chunks(batch) {
                instance.process(now, batch, &mut answers);
                let marks = answers.answers.iter().map(|answer| answer.mark);
                sum = marks.fold(sum, u64::wrapping_add);
            }
            sum
        });
        if let Some(failure) = instance.last_failure() {
            return Err(Complaint(format!("{name} failed: {failure}")));
        }
        lines.push((bench, cost, hash));
    }
    #[cfg(feature = "component")]
    if module.is_none() {
        let (cost, hash) = component(passes, &headers)?;
        lines.push(("plugin/component", cost, hash));
    }
    if let Some(path) = module.as_ref().filter(|_| *save) {
        let saved = saved(&bytes, lines[0].1, lines[1].1)?;
        write(&path.with_extension("cost.toml"), saved.as_bytes())?;
    }
    let shown = |(bench, cost, _): &(&str, f64, u64)| {
        let bar = "#".repeat((cost / 2.0).round().clamp(1.0, 40.0) as usize);
        format!("{bench:16} {cost:7.1} ns a request  {bar}\n")
    };
    let text = format!(
        "{name}; {BATCH} requests in a batch, epochs on, median of {ROUNDS} rounds\n{}",
        lines.iter().map(shown).collect::<String>()
    );
    let json = lines.iter().map(|(bench, cost, hash)| {
        json!({
            "bench": bench, "value": cost, "unit": "ns", "higher_is_better": false,
            "peer": native.map(|_| "native"), "peer_value": native,
            "ratio": native.map(|native| cost / native), "hash": format!("{hash:016x}"),
            "note": name,
        })
    });
    Ok(Report { text, json: json.collect(), good: true })
}

/// What each packet costs as an argument of a component's function.
#[cfg(feature = "component")]
fn component(passes: usize, headers: &[[u8; HEADER_LEN]]) -> Result<(f64, u64), Complaint> {
    let mut called = lastmeter_plugin::component::Called::new(&wat::parse_str(COMPONENT)?)?;
    // Its type wants data that outlive all calls.
    let headers: &'static [[u8; HEADER_LEN]] = headers.to_vec().leak();
    let mut failed = None;
    let measured = measure(passes, || {
        headers.iter().fold(0, |sum: u64, header| match called.call(black_box(header)) {
            Ok(counter) => sum.wrapping_add(counter),
            Err(why) => {
                failed = Some(why);
                sum
            }
        })
    });
    failed.map_or(Ok(measured), |why| Err(why.into()))
}

/// A module's cost as a file, from nanoseconds.
fn saved(module: &[u8], batched: f64, single: f64) -> Result<String, Complaint> {
    let time = |ns: f64| lastmeter_base::Duration::from_secs_f64(ns * 1e-9);
    let machine = lastmeter_live::calibrate::cpu_model()?;
    Ok(Cost::of(Hash::of(module), &machine, time(batched), time(single)).emit())
}

fn request(kind: Kind, number: u32, data: &[u8]) -> Request<'_> {
    let rect = Rect { x: 0, y: 0, w: 640, h: 480 };
    let body = match kind {
        Kind::Packet => Body::Packet { interface: 0 },
        Kind::Block => {
            Body::Block { operation: 1, lba: u64::from(number) * 8, blocks: 8, initiator: 0 }
        }
        Kind::Framebuffer => Body::Framebuffer { operation: 2, rect, from: (0, 0), value: 0 },
        Kind::Frame => {
            Body::Frame { format: 1, width: 640, height: 480, region: rect, number, quality: 80 }
        }
    };
    let now = lastmeter_base::Time::from_ps(0);
    let length = data.len() as u32;
    Request { body, flow: u64::from(number % 16), arrival: now, mark: 0, length, data }
}
