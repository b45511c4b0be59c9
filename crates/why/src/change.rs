//! One thing changed, by name: `mtu=4000`, `streams=2`, `cpu=2`.
//!
//! Soft changes give another setting, which can be run; hard ones give another host, which can only
//! be predicted.

use lastmeter_base::{Bytes, Quantity};
use lastmeter_lab::document::nearest;
use lastmeter_live::calibrate::{Calibration, Value};
use lastmeter_live::transfer::{CopyIn, Placement, Setting, Workload};

/// One change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Messages of this size.
    Message(Bytes),
    /// IP packets of this size.
    Mtu(u32),
    /// GSO and GRO: segments travel in batches, or individually.
    Offload(bool),
    /// TCP's checksums: left to the adapter, or computed by the processors (J-51).
    Checksum(bool),
    /// The send buffer.
    SendBuffer(Bytes),
    /// The receive buffer.
    ReceiveBuffer(Bytes),
    /// Both socket buffers.
    Buffers(Bytes),
    /// How data enters the socket.
    CopyIn(CopyIn),
    /// Whether the receiver reads its data.
    CopyOut(bool),
    /// On which cores the ends run.
    Placement(Placement),
    /// The number of streams.
    Streams(u32),
    /// Processors faster by this factor; memory unchanged.
    Cpu(f64),
    /// Memory faster by this factor.
    Memory(f64),
    /// Entering the kernel costs nothing.
    NoCalls,
}

/// Name, an example, and the meaning of each change.
pub const NAMES: [(&str, &str, &str); 14] = [
    ("message", "message=256KiB", "the size of each send"),
    ("mtu", "mtu=9000", "the size of IP packets, 576 to 65535 B"),
    ("offload", "offload=off", "GSO and GRO: segments travel in batches, or individually"),
    ("checksum", "checksum=off", "TCP's checksums: by the adapter, or by the processors"),
    ("send-buffer", "send-buffer=1MiB", "SO_SNDBUF"),
    ("receive-buffer", "receive-buffer=1MiB", "SO_RCVBUF"),
    ("buffers", "buffers=4MiB", "both socket buffers"),
    ("zero-copy", "zero-copy=sendfile", "send by reference; `zero-copy=flag` is MSG_ZEROCOPY"),
    ("touch", "touch=off", "the receiver leaves the data in the kernel (MSG_TRUNC)"),
    ("core", "core=same", "both ends on one core, or `core=other`"),
    ("streams", "streams=2", "parallel connections"),
    ("cpu", "cpu=2", "speed of processors, as a factor"),
    ("memory", "memory=2", "speed of memory, as a factor"),
    ("calls", "calls=none", "entering the kernel costs nothing"),
];

impl Change {
    /// Reads `NAME=VALUE`.
    ///
    /// # Errors
    /// Says what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Change, String> {
        let known = || NAMES.iter().map(|(name, ..)| *name);
        let Some((name, value)) = text.split_once('=') else {
            let example = known().zip(NAMES).find(|(name, _)| *name == text.trim());
            let example = example.map_or("mtu=4000", |(_, (_, example, _))| example);
            return Err(format!("`{text}` changes nothing: write `{example}`"));
        };
        let (name, value) = (name.trim(), value.trim());
        let size = || Bytes::parse(value).map_err(|error| error.to_string());
        let wrong = |right: &str| Err(format!("`{name}` cannot be `{value}`: write {right}"));
        let factor = || match value.parse::<f64>() {
            Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
            _ => Err(format!("`{name}` cannot be `{value}`: write a factor, such as `{name}=2`")),
        };
        Ok(match (name, value) {
            ("message", _) => Change::Message(size()?),
            ("mtu", _) => match value.trim_end_matches(['B', ' ']).parse() {
                Ok(mtu) => Change::Mtu(mtu),
                Err(_) => return wrong("bytes, as `mtu=4000`"),
            },
            ("offload", "on") => Change::Offload(true),
            ("offload", "off") => Change::Offload(false),
            ("checksum", "on") => Change::Checksum(true),
            ("checksum", "off") => Change::Checksum(false),
            ("touch", "on") => Change::CopyOut(true),
            ("touch", "off") => Change::CopyOut(false),
            ("offload" | "touch" | "checksum", _) => return wrong("`on` or `off`"),
            ("send-buffer", _) => Change::SendBuffer(size()?),
            ("receive-buffer", _) => Change::ReceiveBuffer(size()?),
            ("buffers", _) => Change::Buffers(size()?),
            ("zero-copy", "sendfile") => Change::CopyIn(CopyIn::SendFile),
            ("zero-copy", "flag") => Change::CopyIn(CopyIn::ZeroCopy),
            ("zero-copy", "off") => Change::CopyIn(CopyIn::Copy),
            ("zero-copy", _) => return wrong("`sendfile`, `flag` or `off`"),
            ("core", "same") => Change::Placement(Placement::SameCore),
            ("core", "other") => Change::Placement(Placement::OtherCore),
            ("core", "free") => Change::Placement(Placement::Free),
            ("core", _) => return wrong("`same`, `other` or `free`"),
            ("streams", _) => match value.parse() {
                Ok(streams) => Change::Streams(streams),
                Err(_) => return wrong("a number, such as `streams=2`"),
            },
            ("cpu", _) => Change::Cpu(factor()?),
            ("memory", _) => Change::Memory(factor()?),
            ("calls", "none") => Change::NoCalls,
            ("calls", _) => return wrong("`none`"),
            _ => {
                let hint = nearest(name, known()).map_or_else(
                    || format!("the names are {}", known().collect::<Vec<_>>().join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(format!("there is no change `{name}`: {hint}"));
            }
        })
    }

    /// Whether it can be applied to a transfer on this machine.
    pub fn is_soft(&self) -> bool {
        !matches!(self, Change::Cpu(_) | Change::Memory(_) | Change::NoCalls)
    }

    /// Whether the constants of a calibration say what it brings.
    pub fn is_predicted(&self) -> bool {
        !matches!(self, Change::Checksum(_))
    }

    /// Whether a program is still useful with it: not reading the data only measures
    /// what reading costs.
    pub fn is_useful(&self) -> bool {
        self.is_soft() && !matches!(self, Change::CopyOut(false))
    }

    /// The setting with this change; hard changes leave it as it is.
    pub fn setting(&self, setting: &Setting) -> Setting {
        let mut changed = setting.clone();
        match *self {
            Change::Message(size) => changed.message = size,
            Change::Mtu(mtu) => changed.mtu = mtu,
            Change::Offload(on) => changed.offload = on,
            Change::Checksum(on) => changed.own_checksums = !on,
            Change::SendBuffer(size) => changed.send_buffer = Some(size),
            Change::ReceiveBuffer(size) => changed.receive_buffer = Some(size),
            Change::Buffers(size) => {
                changed.send_buffer = Some(size);
                changed.receive_buffer = Some(size);
            }
            Change::CopyIn(how) => changed.copy_in = how,
            Change::CopyOut(on) => changed.copy_out = on,
            Change::Placement(placement) => changed.placement = placement,
            Change::Streams(streams) => changed.streams = streams,
            Change::Cpu(_) | Change::Memory(_) | Change::NoCalls => {}
        }
        changed
    }

    /// The host with this change; soft changes leave it as it is.
    pub fn host(&self, calibration: &Calibration) -> Calibration {
        let mut changed = calibration.clone();
        match *self {
            Change::Cpu(factor) => faster_cpu(&mut changed, factor),
            Change::Memory(factor) => faster_memory(&mut changed, factor),
            Change::NoCalls => {
                let is_call = |name: &str| name.ends_with(".per-call");
                scale(&mut changed, is_call, 0.0);
            }
            _ => {}
        }
        changed
    }

    /// In words.
    pub fn words(&self) -> String {
        match *self {
            Change::Message(size) => format!("messages of {size}"),
            Change::Mtu(mtu) => format!("MTU {mtu}"),
            Change::Offload(true) => "GSO and GRO on".to_owned(),
            Change::Offload(false) => "GSO and GRO off".to_owned(),
            Change::Checksum(true) => "checksums by the adapter".to_owned(),
            Change::Checksum(false) => "checksums by the processors".to_owned(),
            Change::SendBuffer(size) => format!("send buffer {size}"),
            Change::ReceiveBuffer(size) => format!("receive buffer {size}"),
            Change::Buffers(size) => format!("both buffers {size}"),
            Change::CopyIn(CopyIn::Copy) => "copy into the socket".to_owned(),
            Change::CopyIn(CopyIn::SendFile) => "zero-copy: sendfile".to_owned(),
            Change::CopyIn(CopyIn::ZeroCopy) => "zero-copy: MSG_ZEROCOPY".to_owned(),
            Change::CopyOut(true) => "data read".to_owned(),
            Change::CopyOut(false) => "data not touched".to_owned(),
            Change::Placement(Placement::SameCore) => "both ends on one core".to_owned(),
            Change::Placement(Placement::OtherCore) => "ends on different cores".to_owned(),
            Change::Placement(Placement::Free) => "scheduler chooses cores".to_owned(),
            Change::Streams(1) => "one stream".to_owned(),
            Change::Streams(streams) => format!("{streams} streams"),
            Change::Cpu(factor) => format!("CPU {factor} times as fast"),
            Change::Memory(factor) => format!("memory {factor} times as fast"),
            Change::NoCalls => "no system calls".to_owned(),
        }
    }

    /// As an argument of `--what-if`.
    pub fn key(&self) -> String {
        let size = |size: Bytes| size.to_string().replace(' ', "");
        let on = |on: bool| if on { "on" } else { "off" };
        match *self {
            Change::Message(s) => format!("message={}", size(s)),
            Change::Mtu(mtu) => format!("mtu={mtu}"),
            Change::Offload(o) => format!("offload={}", on(o)),
            Change::Checksum(o) => format!("checksum={}", on(o)),
            Change::SendBuffer(s) => format!("send-buffer={}", size(s)),
            Change::ReceiveBuffer(s) => format!("receive-buffer={}", size(s)),
            Change::Buffers(s) => format!("buffers={}", size(s)),
            Change::CopyIn(CopyIn::Copy) => "zero-copy=off".to_owned(),
            Change::CopyIn(CopyIn::SendFile) => "zero-copy=sendfile".to_owned(),
            Change::CopyIn(CopyIn::ZeroCopy) => "zero-copy=flag".to_owned(),
            Change::CopyOut(o) => format!("touch={}", on(o)),
            Change::Placement(Placement::SameCore) => "core=same".to_owned(),
            Change::Placement(Placement::OtherCore) => "core=other".to_owned(),
            Change::Placement(Placement::Free) => "core=free".to_owned(),
            Change::Streams(n) => format!("streams={n}"),
            Change::Cpu(factor) => format!("cpu={factor}"),
            Change::Memory(factor) => format!("memory={factor}"),
            Change::NoCalls => "calls=none".to_owned(),
        }
    }
}

/// The changes tried by default: one step of each parameter in
/// the direction that usually helps, or back if it is already there.
pub fn candidates(setting: &Setting) -> Vec<Change> {
    let message = setting.message;
    let mut all = vec![
        Change::Message(Bytes(message.0.saturating_mul(4))),
        Change::Message(Bytes((message.0 / 4).max(1))),
        Change::Mtu(if setting.mtu < 9000 { 9000 } else { 1500 }),
        Change::Mtu(65_535),
        Change::Offload(!setting.offload),
        Change::Buffers(Bytes::from_mib(4)),
        Change::Buffers(Bytes::from_kib(64)),
        Change::Streams(setting.streams + 1),
        Change::Placement(match setting.placement {
            Placement::SameCore => Placement::OtherCore,
            _ => Placement::SameCore,
        }),
        Change::Cpu(1.1),
        Change::Cpu(2.0),
        Change::Memory(2.0),
        Change::NoCalls,
    ];
    if setting.copy_in == CopyIn::Copy {
        all.push(Change::CopyIn(CopyIn::SendFile));
    }
    if setting.copy_out && setting.workload != Workload::RequestResponse {
        all.push(Change::CopyOut(false));
    }
    if setting.workload == Workload::RequestResponse {
        // In the model the round trip is a single constant, system calls included.
        all.retain(|change| *change != Change::NoCalls);
    }
    all.retain(|change| {
        let changed = change.setting(setting);
        changed.check().is_ok() && (!change.is_soft() || changed != *setting)
    });
    all
}

fn scale(calibration: &mut Calibration, is: impl Fn(&str) -> bool, factor: f64) {
    for (name, constant) in &mut calibration.constants {
        if is(name) {
            constant.value = scaled(constant.value, factor);
        }
    }
}

fn scaled(value: Value, factor: f64) -> Value {
    match value {
        Value::Time(seconds) => Value::Time(seconds * factor),
        Value::PerByte(seconds) => Value::PerByte(seconds * factor),
        other => other,
    }
}

/// Each fit's cost per byte, and how much of it is copies.
fn per_byte(calibration: &Calibration) -> Vec<(String, f64, f64)> {
    let value = |name: String| calibration.constants.get(&name).map_or(0.0, |c| c.value.si());
    let mut all = Vec::new();
    for place in ["other-core", "same-core"] {
        let copy_in = value(format!("path.{place}.copy-in"));
        let copy_out = value(format!("path.{place}.copy-out"));
        for (side, copies) in
            [("sender", copy_in), ("receiver", copy_out), ("both", copy_in + copy_out)]
        {
            let name = format!("path.{place}.{side}.per-byte");
            let whole = value(name.clone());
            all.push((name, whole, copies.min(whole)));
        }
    }
    all
}

fn set(calibration: &mut Calibration, name: &str, seconds: f64) {
    if let Some(constant) = calibration.constants.get_mut(name) {
        constant.value = Value::PerByte(seconds);
    }
}

/// All but the copies: a faster processor does not wait less for memory.
fn faster_cpu(calibration: &mut Calibration, factor: f64) {
    let bytes = per_byte(calibration);
    let is_own = |name: &str| {
        let path = name.starts_with("path.") && !name.contains(".copy-");
        path || name.starts_with("context.") || name.starts_with("wake.")
    };
    scale(calibration, is_own, 1.0 / factor);
    for (name, whole, copies) in bytes {
        set(calibration, &name, copies + (whole - copies) / factor);
    }
}

/// The copies alone.
fn faster_memory(calibration: &mut Calibration, factor: f64) {
    let bytes = per_byte(calibration);
    scale(calibration, |name| name.contains(".copy-"), 1.0 / factor);
    for (name, whole, copies) in bytes {
        set(calibration, &name, whole - copies + copies / factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_example_round_trips() {
        for (_, example, _) in NAMES {
            assert_eq!(Change::parse(example).unwrap().key(), example);
        }
    }

    #[test]
    fn an_error_suggests_a_correction() {
        let error = |text: &str| Change::parse(text).unwrap_err();
        assert_eq!(error("mtuu=4"), "there is no change `mtuu`: did you mean `mtu`?");
        assert_eq!(error("mtu"), "`mtu` changes nothing: write `mtu=9000`");
        assert!(error("message=10").contains("no unit"));
        assert!(error("cpu=-1").contains("a factor"));
    }

    #[test]
    fn candidates_can_be_run_and_change_something() {
        for change in candidates(&Setting::PLAIN) {
            assert!(change.setting(&Setting::PLAIN).check().is_ok());
            assert!(!change.is_soft() || change.setting(&Setting::PLAIN) != Setting::PLAIN);
        }
    }
}
