//! Predicts a transfer from a host's constants, in plain arithmetic.
//!
//! Per message of `m` bytes, with segment size `mss = mtu - 52` (IP and TCP headers, timestamps):
//!
//! ```text
//! handovers  h = m / mss         if m < mss      a segment is handed down when it is full (Nagle)
//!              = 1               beyond           one per send
//! batches    b = m / 64 KiB - 1  if m > 64 KiB    further batches of the same send
//! segments   g = 0 with GSO, m / mss - m / 64 KiB without: packets beyond one per batch
//! sender     S = per-call + per-byte m + per-handover h + per-batch b + per-segment g
//! receiver   R = the same with other-core.receiver
//! other core T = max(S, R): the two ends overlap
//! lockstep   T = S + R + per-window m / window, when a window holds less than two handovers
//! same core  T = both (same-core.both) + per-window m / window
//! goodput    = 8 m / T, at most window / RTT, the relay's rate, and the sender's own rate
//! ```
//!
//! Costs are corrected by those of nearby reference transfers, see [`crate::reference`]. All settings of a
//! host are predicted from the same constants: 5 for the sender and 5 for the receiver on different
//! cores, 5 for both on one core, a copy-in and a copy-out each, a round trip each, and three costs of a
//! full window: 24. Most settings use five or ten of them.

use crate::calibrate::Calibration;
use crate::reference::{self, Nearby};
use crate::transfer::{CopyIn, Pause, Placement, Setting, Workload};
use lastmeter_base::Bytes;
use lastmeter_linux::Result;
use lastmeter_linux::cores;
use serde::{Deserialize, Serialize};

/// Headers in a packet: IPv4 20, TCP 20, timestamp option 12.
pub(crate) const HEADERS: f64 = 52.0;
/// Bytes in the largest batch that TCP hands down (`GSO_MAX_SIZE`).
const BATCH_MAX: f64 = 65_536.0;
/// Bytes of window per byte of `SO_RCVBUF`: the kernel doubles it and then counts 60 % of the memory as
/// data (`tcp_rmem`, scaling ratio of Ethernet frames).
const WINDOW_PER_BUFFER: f64 = 1.2;
/// Ethernet's header, which a relay's token bucket counts too.
const FRAME_HEADER: f64 = 14.0;

/// Windows per message of the small reference for the cost of a full window; the large one has one.
pub(crate) const SMALL_SHARE: f64 = 0.125;

/// Load of other programs, in CPUs, beyond which a calibration's constants are not the host's own.
const BUSY: f64 = 0.5;

/// The largest private cache of a core, as named in [`crate::calibrate::Host`].
const OWN_CACHE: &str = "L2 Unified";

/// The work of one message on the path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Bytes of data.
    pub bytes: f64,
    /// Handovers to the other end: a batch, its acknowledgement, a wake-up.
    pub handovers: f64,
    /// Batches of the same send beyond the first, which find the other end awake.
    pub batches: f64,
    /// Packets beyond one per batch, where batches are cut before the veth pair; none with GSO.
    pub segments: f64,
}

/// Counts the work of one message.
pub fn work_of(setting: &Setting) -> Work {
    let bytes = setting.message.0 as f64;
    let mss = f64::from(setting.mtu) - HEADERS;
    let handovers =
        if bytes >= mss || setting.workload != Workload::Stream { 1.0 } else { bytes / mss };
    // A packet as large as a batch is not cut.
    let cut = (bytes / mss - bytes / BATCH_MAX).max(0.0);
    let segments = if setting.offload { 0.0 } else { cut };
    let batches = (bytes / BATCH_MAX - 1.0).max(0.0);
    Work { bytes, handovers, batches, segments }
}

/// `other-core` or `same-core`, as in the names of constants.
pub(crate) fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::SameCore => "same-core",
        Placement::OtherCore | Placement::Free => "other-core",
    }
}

/// One stage's cost, for the model that replays it. Seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageCost {
    /// `send call`, `transmit and deliver`.
    pub name: String,
    /// What serves it: `sender core`, `receiver core`, `core`.
    pub resource: String,
    /// Once per message.
    pub per_message: f64,
    /// Per byte.
    pub per_byte: f64,
    /// Once per handover, see [`Work`].
    pub per_handover: f64,
    /// Once per batch beyond a message's first.
    pub per_batch: f64,
    /// Bytes in the largest batch.
    pub batch: f64,
    /// Once per packet.
    pub per_packet: f64,
    /// Data bytes in a packet.
    pub packet: f64,
    /// Which part of the transfer it is.
    pub part: Part,
}

/// A part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// System calls.
    Calls,
    /// Copying from the application.
    CopyIn,
    /// Protocols, the hop, and waking the receiver.
    Delivery,
    /// Copying to the application.
    CopyOut,
}

impl Part {
    /// How often it copies the data.
    pub fn copies(self) -> u32 {
        u32::from(matches!(self, Part::CopyIn | Part::CopyOut))
    }
}

impl StageCost {
    /// Seconds for a message with this work.
    pub fn per_message(&self, work: &Work) -> f64 {
        self.per_message
            + self.per_byte * work.bytes
            + self.per_handover * work.handovers
            + self.per_batch * work.batches
            + self.per_packet * work.segments
    }
}

/// A transfer's predicted use of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// `sender core`, `window`, `rate`.
    pub resource: String,
    /// The goodput that it alone would allow, in bits per second.
    pub allows: f64,
    /// Predicted goodput over that.
    pub utilisation: f64,
}

/// A predicted transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Bits per second.
    pub goodput: f64,
    /// Messages per second.
    pub message_rate: f64,
    /// Each resource; the first is the limit.
    pub uses: Vec<Use>,
    /// The costs behind it, in path order.
    pub stages: Vec<StageCost>,
    /// Expected relative error: the fit's own, or more where the model has no measurement.
    pub uncertainty: f64,
    /// Why it may be wrong.
    pub notes: Vec<String>,
}

/// The stages of the path from this host's constants.
pub(crate) fn stages(calibration: &Calibration, setting: &Setting) -> Result<Vec<StageCost>> {
    let place = placement_name(setting.placement);
    let sides: &[(&str, &str)] = match setting.placement {
        Placement::SameCore => &[("both", "core")],
        _ => &[("sender", "sender core"), ("receiver", "receiver core")],
    };
    let packet = f64::from(setting.mtu) - HEADERS;
    let saved_out = calibration.si(&format!("path.{place}.copy-out"))?;
    let saved_in = calibration.si(&format!("path.{place}.copy-in"))?;
    let mut all = Vec::new();
    for (side, resource) in sides {
        let ratio = nearby(calibration, setting, side).ratio;
        let constant = |what: &str| calibration.si(&format!("path.{place}.{side}.{what}"));
        let constant = |what: &str| constant(what).map(|value| value * ratio);
        let (call, byte) = (constant("per-call")?, constant("per-byte")?);
        let (handover, batch) = (constant("per-handover")?, constant("per-batch")?);
        let segment = constant("per-segment")?;
        let (copy_in, copy_out) = match *side {
            "sender" => (saved_in * ratio, 0.0),
            "receiver" => (0.0, saved_out * ratio),
            _ => (saved_in * ratio, saved_out * ratio),
        };
        // The fit's cost per byte is the copies and the rest per byte.
        let copies = (copy_in + copy_out).min(byte);
        let share = if copy_in + copy_out > 0.0 { copies / (copy_in + copy_out) } else { 0.0 };
        let stage = |name: &str, part, per_message, per_byte| StageCost {
            name: name.to_owned(),
            part,
            resource: (*resource).to_owned(),
            per_message,
            per_byte,
            per_handover: 0.0,
            per_batch: 0.0,
            batch: (setting.message.0 as f64).min(BATCH_MAX),
            per_packet: 0.0,
            packet,
        };
        let named =
            |what: &str| if *side == "both" { what.to_owned() } else { format!("{side}: {what}") };
        all.push(stage(&named("calls"), Part::Calls, call, 0.0));
        if copy_in > 0.0 && setting.copy_in == CopyIn::Copy {
            all.push(stage("copy in", Part::CopyIn, 0.0, copy_in * share));
        }
        all.push(StageCost {
            per_handover: handover,
            per_batch: batch,
            per_packet: segment,
            ..stage(&named("protocol and delivery"), Part::Delivery, 0.0, byte - copies)
        });
        if copy_out > 0.0 && setting.copy_out {
            all.push(stage("copy out", Part::CopyOut, 0.0, copy_out * share));
        }
    }
    Ok(all)
}

/// Predicts a transfer on the calibrated host.
///
/// # Errors
/// When the setting is wrong or the calibration lacks a constant.
pub fn predict(calibration: &Calibration, setting: &Setting) -> Result<Prediction> {
    setting.check()?;
    let stages = stages(calibration, setting)?;
    let mut notes = Vec::new();
    let mut uses = cpu_limits(calibration, setting, &stages, &mut notes)?;
    uses.extend(path_limits(setting));
    uses.sort_by(|a, b| a.1.total_cmp(&b.1));
    let goodput = uses[0].1;
    let sides: &[&str] = match setting.placement {
        Placement::SameCore => &["both"],
        _ => &["sender", "receiver"],
    };
    let errors = sides.iter().map(|side| nearby(calibration, setting, side).error);
    let mut uncertainty = errors.fold(0.0, f64::max);
    if setting.placement == Placement::Free {
        notes
            .push("the scheduler may move the ends; predicted as if on different cores".to_owned());
        uncertainty += 0.3;
    }
    if calibration.host.others > BUSY {
        notes.push("the host was busy with other programs when it was calibrated".to_owned());
        uncertainty += 0.3;
    }
    if setting.workload == Workload::SmallMessages {
        notes.push("all reference transfers used Nagle's algorithm".to_owned());
        uncertainty += 0.2;
    }
    if setting.competitor {
        notes.push("the competitor is assumed to get half of the receiver's core".to_owned());
        uncertainty += 0.2;
    }
    if let Some((window, cache)) = beyond_cache(calibration, setting) {
        let window = Bytes(window as u64);
        notes.push(format!(
            "the window of {window} does not fit the cache of {cache}: such a stream runs at one \
             of two speeds, several times apart, depending on whether the receiver keeps up \
             from the start"
        ));
        uncertainty += 0.4;
    }
    uncertainty += 0.1 * notes.len() as f64;
    let uses = uses
        .into_iter()
        .map(|(resource, allows)| Use { resource, allows, utilisation: goodput / allows })
        .collect();
    Ok(Prediction {
        goodput,
        message_rate: goodput / 8.0 / setting.message.0 as f64,
        uses,
        stages,
        uncertainty,
        notes,
    })
}

/// The correction from the references near a setting, for one side.
fn nearby(calibration: &Calibration, setting: &Setting, side: &str) -> Nearby {
    let name = format!("{}.{side}", placement_name(setting.placement));
    let known = calibration.references.get(&name).map_or(&[][..], Vec::as_slice);
    reference::nearby(known, setting)
}

/// The window in bytes that the buffers allow; `None` where the kernel sizes them itself.
pub(crate) fn window(setting: &Setting) -> Option<f64> {
    let receive = setting.receive_buffer.map(|b| b.0 as f64 * WINDOW_PER_BUFFER);
    // The send buffer's doubling is overhead: about the requested size is data.
    let send = setting.send_buffer.map(|b| b.0 as f64);
    receive.into_iter().chain(send).min_by(f64::total_cmp)
}

/// The window and the sender's private cache, where data waiting between two cores can outgrow it.
fn beyond_cache(calibration: &Calibration, setting: &Setting) -> Option<(f64, Bytes)> {
    let window = window(setting).filter(|_| setting.placement != Placement::SameCore)?;
    let cache = calibration.host.caches.get(OWN_CACHE)?.si();
    (window > cache).then_some((window, Bytes(cache as u64)))
}

/// Bits per second that the cores allow, by name.
fn cpu_limits(
    calibration: &Calibration,
    setting: &Setting,
    stages: &[StageCost],
    notes: &mut Vec<String>,
) -> Result<Vec<(String, f64)>> {
    let bits = setting.message.0 as f64 * 8.0;
    if setting.workload == Workload::RequestResponse {
        return round_trip(calibration, setting, stages, notes);
    }
    let window = window(setting);
    let mut work = work_of(setting);
    if let Some(window) = window {
        // A batch is no larger than the window, and the ends meet at each.
        work.handovers = work.handovers.max(work.bytes / window);
    }
    let sum = |resource: &str| -> f64 {
        let here = stages.iter().filter(|s| s.resource == resource);
        here.map(|s| s.per_message(&work)).sum()
    };
    let (send_delay, receive_delay) = (delay(setting.sender_pause), delay(setting.receiver_pause));
    if setting.placement == Placement::SameCore {
        let turns = match window {
            Some(window) => work.bytes / window * same_core_turn(calibration, setting, window)?,
            None => 0.0,
        };
        let time = sum("core") + turns + send_delay + receive_delay;
        return Ok(vec![("core".to_owned(), bits / time)]);
    }
    let share = if setting.competitor { 2.0 } else { 1.0 };
    let send = sum("sender core") + send_delay;
    let receive = sum("receiver core") * share + receive_delay;
    let pairs = (cores::allowed()?.len() / 2).max(1).min(setting.streams as usize) as f64;
    let mut limits = vec![
        ("sender core".to_owned(), pairs * bits / send),
        ("receiver core".to_owned(), pairs * bits / receive),
    ];
    let batch = (work.bytes / work.handovers).min(BATCH_MAX);
    if let Some(window) = window.filter(|w| *w < 2.0 * batch) {
        let turns = work.bytes / window * calibration.si("path.other-core.per-window")?;
        let time = send + receive + turns;
        let streams = f64::from(setting.streams);
        let overlapped = (streams * bits / time).min(limits[0].1).min(limits[1].1);
        notes.push("the window holds less than two batches: the ends alternate".to_owned());
        limits.push(("window in lockstep".to_owned(), overlapped));
    }
    Ok(limits)
}

/// The cost of a full window on one core in seconds, interpolated between the small and the large reference
/// by the logarithm of the windows per message.
fn same_core_turn(calibration: &Calibration, setting: &Setting, window: f64) -> Result<f64> {
    let small = calibration.si("path.same-core.per-window.small")?;
    let large = calibration.si("path.same-core.per-window.large")?;
    let octaves = |share: f64| share.log2();
    let place = octaves(setting.message.0 as f64 / window) - octaves(SMALL_SHARE);
    let between = (place / -octaves(SMALL_SHARE)).clamp(0.0, 1.0);
    Ok(small + (large - small) * between)
}

fn delay(pause: Pause) -> f64 {
    match pause {
        Pause::None => 0.0,
        Pause::Sleep(d) | Pause::Work(d) => d.as_secs_f64(),
    }
}

fn round_trip(
    calibration: &Calibration,
    setting: &Setting,
    stages: &[StageCost],
    notes: &mut Vec<String>,
) -> Result<Vec<(String, f64)>> {
    let place = placement_name(setting.placement);
    let base = calibration.si(&format!("path.{place}.round-trip"))?;
    let work = work_of(setting);
    // The base has the calls and one handover each way; bytes and further batches are added.
    let more = Work { handovers: work.handovers - 1.0, ..work };
    let extra: f64 = stages.iter().map(|s| s.per_message(&more) - s.per_message).sum();
    let relay = setting.relay.map_or(0.0, |r| 2.0 * r.delay.as_secs_f64());
    let delays = delay(setting.sender_pause) + delay(setting.receiver_pause);
    let trip = base + 2.0 * extra + relay + delays;
    notes.push("a round trip is the calibrated one of 64 B plus the cost of the bytes".to_owned());
    let bits = setting.message.0 as f64 * 8.0 * f64::from(setting.streams);
    Ok(vec![("round trip".to_owned(), bits / trip)])
}

/// Bits per second that windows and rates allow, by name.
fn path_limits(setting: &Setting) -> Vec<(String, f64)> {
    let mut limits = Vec::new();
    let streams = f64::from(setting.streams);
    if let Some(rate) = setting.sender_rate {
        limits.push(("sender's own rate".to_owned(), rate.as_bits() as f64));
    }
    if let Some(relay) = setting.relay {
        let rtt = 2.0 * relay.delay.as_secs_f64();
        if let Some(window) = window(setting).filter(|_| rtt > 0.0) {
            limits.push(("window over round trip".to_owned(), streams * window * 8.0 / rtt));
        }
        if let Some(rate) = relay.rate {
            let data = f64::from(setting.mtu) - HEADERS;
            let frame = f64::from(setting.mtu) + FRAME_HEADER;
            limits.push(("relay's rate".to_owned(), rate.as_bits() as f64 * data / frame));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_larger_than_the_cache_is_noticed() {
        let text = include_str!("../../../profiles/calibrated/epyc-2-cores.toml");
        let calibration = Calibration::from_toml(text).unwrap();
        let with = |buffer| Setting {
            send_buffer: Some(buffer),
            receive_buffer: Some(buffer),
            ..Setting::PLAIN
        };
        let of = |setting: &Setting| beyond_cache(&calibration, setting).map(|(_, cache)| cache);
        assert_eq!(of(&with(Bytes::from_kib(256))), None);
        assert_eq!(of(&with(Bytes::from_mib(4))), Some(Bytes::from_mib(1)));
        let one = Setting { placement: Placement::SameCore, ..with(Bytes::from_mib(4)) };
        assert_eq!(of(&one), None, "one core drains what it sends");
    }
}
