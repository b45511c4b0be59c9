//! Drives the crate by hand: `drive transfer '{"message":"1 MiB"}'` runs one transfer, with the
//! given fields of a setting in place of the plain ones.
#![allow(clippy::print_stdout, clippy::print_stderr, missing_docs)]

use lastmeter_live::transfer::{self, Measurement, Setting};
use serde_json::Value;

fn main() {
    lastmeter_live::worker::enter_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["transfer", json @ ..] => run_transfer(json),
        ["stages", json @ ..] => run_stages(json),
        ["observe", command, rest @ ..] => run_observe(command, rest),
        ["calibrate"] => run_calibrate(),
        ["validate", profile @ ..] => validate(profile),
        ["features", json @ ..] => features(json),
        _ => Err("drive transfer [JSON]...".into()),
    };
    if let Err(e) = result {
        eprintln!("{e}");
        std::process::exit(2);
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn setting(json: &str) -> Result<Setting, Box<dyn std::error::Error>> {
    let mut plain = serde_json::to_value(Setting::PLAIN)?;
    if let (Value::Object(all), Value::Object(given)) = (&mut plain, serde_json::from_str(json)?) {
        all.extend(given);
    }
    Ok(serde_json::from_value(plain)?)
}

fn run_transfer(settings: &[&str]) -> Outcome {
    let settings = if settings.is_empty() { &["{}"] } else { settings };
    for json in settings {
        let m = transfer::run(&setting(json)?)?;
        println!("{json}");
        print(&m);
    }
    Ok(())
}

fn print(m: &Measurement) {
    println!(
        "  {:?} {:.3} Gbit/s (IQR {:.1} %, mean {:.3}), {:.0} messages/s, foreign {:.1} %, out {}",
        m.isolation,
        m.goodput.windows.median / 1e9,
        m.goodput.windows.relative() * 100.0,
        m.goodput.mean / 1e9,
        m.message_rate,
        m.foreign * 100.0,
        m.goodput.disturbed,
    );
    for (name, side) in [("sender", &m.sender), ("receiver", &m.receiver)] {
        let a = side.activity;
        println!(
            "  {name:8} run {:.3} wait {:.3} blocked {:.3} paused {:.3}  user {:.3} sys {:.3}  cs {}/{}  \
             calls {} ({:.0} B)  buffer {}  run/B {:.4} ns",
            a.run,
            a.wait,
            a.blocked,
            a.paused,
            side.user,
            side.system,
            side.voluntary,
            side.involuntary,
            side.calls,
            side.bytes as f64 / side.calls.max(1) as f64,
            side.buffer,
            side.run_per_byte.median * 1e9,
        );
    }
    let t = m.sender.tcp;
    println!(
        "  tcp busy {:.2} rwnd {:.2} sndbuf {:.2} rtt {:.0} us (min {:.0}) cwnd {:.0} unacked {:.1} \
         notsent {:.0} wnd {:.0} mss {} applim {:.2} retrans {} segs {}/{}",
        t.busy,
        t.receiver_window_limited,
        t.send_buffer_limited,
        t.rtt * 1e6,
        t.rtt_min * 1e6,
        t.congestion_window,
        t.unacked,
        t.not_sent,
        t.send_window,
        t.segment,
        t.application_limited,
        t.retransmits,
        t.data_segments_out,
        t.segments_in,
    );
    if let Some(l) = m.latency {
        println!("  latency p50 {:.1} us p99 {:.1} us ({})", l.p50 * 1e6, l.p99 * 1e6, l.count);
    }
    println!(
        "  softirqs {:?} intr {} troubles {:?} relay {:?} {:?}",
        m.counters.softirqs, m.counters.interrupts, m.counters.troubles, m.relay, m.notes
    );
}

/// One line a run for regression: costs and counts per message.
fn features(settings: &[&str]) -> Outcome {
    let mut hosts = lastmeter_live::namespace::Hosts::open(false)?;
    for json in settings {
        let m = hosts.run(&setting(json)?)?;
        let n = m.message_rate * m.elapsed;
        let total = |side: &transfer::Side| {
            side.threads.iter().map(|t| t.samples.last().map_or(0, |s| s.messages)).sum::<u64>()
                as f64
        };
        let all = total(&m.sender);
        println!(
            "{}",
            serde_json::json!({
                "m": m.setting.message.0, "mtu": m.setting.mtu, "off": m.setting.offload,
                "same": m.setting.placement == transfer::Placement::SameCore,
                "out": m.setting.copy_out, "in": m.setting.copy_in, "gbit": m.goodput.windows.median / 1e9,
                "s": m.sender.run_per_byte.median * m.setting.message.0 as f64 * 1e6,
                "r": m.receiver.run_per_byte.median * m.setting.message.0 as f64 * 1e6,
                "srun": m.sender.activity.run, "rrun": m.receiver.activity.run,
                "sleeps": m.receiver.voluntary as f64 / all, "ssleeps": m.sender.voluntary as f64 / all,
                "invol": (m.receiver.involuntary + m.sender.involuntary) as f64 / all,
                "acks": m.sender.tcp.segments_in as f64 / n, "segs": m.sender.tcp.data_segments_out as f64 / n,
                "calls": m.receiver.calls as f64 / n, "rwnd": m.sender.tcp.receiver_window_limited,
                "foreign": m.foreign,
            })
        );
    }
    Ok(())
}

fn run_calibrate() -> Outcome {
    let from = std::time::Instant::now();
    let calibration = lastmeter_live::calibrate::run()?;
    let text = calibration.to_toml()?;
    println!("{text}");
    assert_eq!(lastmeter_live::calibrate::Calibration::from_toml(&text)?.to_toml()?, text);
    eprintln!("took {:.1} s", from.elapsed().as_secs_f64());
    Ok(())
}

/// Ten settings, predicted from a profile (or a fresh calibration) and measured.
fn validate(profile: &[&str]) -> Outcome {
    let calibration = match profile {
        [path] => {
            lastmeter_live::calibrate::Calibration::from_toml(&std::fs::read_to_string(path)?)?
        }
        _ => lastmeter_live::calibrate::run()?,
    };
    let mut hosts = lastmeter_live::namespace::Hosts::open(false)?;
    let mut good = 0;
    for (name, setting) in lastmeter_live::validate::settings() {
        let v = lastmeter_live::validate::one(&mut hosts, &calibration, name, &setting)?;
        good += u32::from(v.error.abs() <= 0.15);
        println!(
            "{:50} predicted {:7.3} measured {:7.3} ({:.3}..{:.3}) Gbit/s error {:+4.0} %  limit {:14} \
             uncertainty {:.2} others {:.2}",
            v.name,
            v.predicted / 1e9,
            v.measured.median / 1e9,
            v.measured.low / 1e9,
            v.measured.high / 1e9,
            v.error * 100.0,
            v.limit,
            v.uncertainty,
            v.others,
        );
    }
    println!("{good} of 10 within 15 %");
    Ok(())
}

fn run_stages(settings: &[&str]) -> Outcome {
    let mut hosts = lastmeter_live::namespace::Hosts::open(false)?;
    for json in settings {
        let found = lastmeter_live::stages::measure(&mut hosts, &setting(json)?)?;
        println!(
            "{json}: total {:.3} us a message, residual {:+.3} us",
            found.total * 1e6,
            found.residual * 1e6
        );
        for stage in &found.stages {
            println!("  {}", lastmeter_live::stages::explain(stage));
        }
        println!("  {:?}", found.notes);
    }
    Ok(())
}

fn run_observe(command: &str, rest: &[&str]) -> Outcome {
    let o = lastmeter_live::observe::run(std::process::Command::new(command).args(rest))?;
    eprintln!("{}", serde_json::to_string_pretty(&o)?);
    Ok(())
}
