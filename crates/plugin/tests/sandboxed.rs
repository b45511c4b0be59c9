//! `plugins/wave-scaler`, compiled and in its sandbox, as a filter of the congested link (`lastmeter_wave::study`).

use lastmeter_base::Time;
use lastmeter_plugin::host::{Class, Host, Limits};
use lastmeter_plugin::instance::{Fail, Instance, Queue};
use lastmeter_plugin::request::{Answers, Body, Policy, Request};
use lastmeter_plugin::{Kind, Verdict};
use lastmeter_wave::study::{Filter, Waiting};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// What the stream may have in the queue.
pub(crate) const ROOM: u64 = 24_000;

/// The module, compiled as `lastmeter plugin build` does; `None` where clang or lld is missing.
pub(crate) fn module(name: &str) -> Option<Vec<u8>> {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let out = std::env::temp_dir().join(format!("wave-{name}-{}.wasm", std::process::id()));
    let mut clang = Command::new("clang");
    clang.args(["--target=wasm32-unknown-unknown", "-std=c11", "-O2", "-nostdlib"]);
    clang.args(["-ffreestanding", "-mbulk-memory", "-Wl,--no-entry"]);
    clang.args(["-Wl,--strip-all", "-Wl,--export=lm_plugin", "-Wl,--stack-first"]);
    clang.arg("-I").arg(plugins.join("include")).arg("-o").arg(&out);
    let built = clang.arg(plugins.join("wave-scaler/plugin.c")).status();
    if !built.is_ok_and(|status| status.success()) {
        println!("SKIP: clang and lld do not build plugins here");
        return None;
    }
    let module = std::fs::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    Some(module)
}

/// The plugin's class.
pub(crate) fn class(module: &[u8]) -> Arc<Class> {
    let host = Host::new(Limits::default()).unwrap();
    host.load("wave-scaler", module, Some(Kind::Packet)).unwrap()
}

/// An instance.
pub(crate) struct Scaler {
    instance: Instance,
    answers: Answers,
}

impl Scaler {
    /// With an empty state; `room` is what the stream may have in the queue, in bytes.
    pub(crate) fn new(class: &Arc<Class>, room: u64) -> Scaler {
        let config = format!("5005 0 {room} 50");
        let instance =
            Instance::new(class.clone(), "scaler", config.as_bytes(), Fail::Closed, 1, Time::START);
        Scaler { instance: instance.unwrap(), answers: Answers::default() }
    }
    /// Decides about a packet of `len` bytes of which these are the first.
    pub(crate) fn decide(&mut self, now: Time, data: &[u8], len: u32, waiting: &Waiting) -> bool {
        let Waiting { len: waits, share, rate } = *waiting;
        self.instance.set_queues([Some(Queue { len: waits, share, rate })]);
        let body = Body::Packet { interface: 0 };
        let request = Request { body, flow: 1, arrival: now, mark: 0, length: len, data };
        self.instance.process(now, &[request], &mut self.answers);
        assert!(self.instance.is_running(), "{:?}", self.instance.last_failure());
        self.answers.answers[0].verdict == Verdict::Allow
    }
}

impl Filter for Scaler {
    fn passes(&mut self, now: Time, packet: &[u8], waiting: &Waiting) -> bool {
        self.decide(now, packet, packet.len() as u32, waiting)
    }
}
