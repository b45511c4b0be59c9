//! What a change brings: times the present rate, with a band, from what was read.
//!
//! Each figure rests on how the time or the bytes divide now, and on what is known of the change: half of a
//! sleep saves half of the time slept, twice the pacing cap is twice the rate, a quarter of the loss is the window
//! that CUBIC has then. Nothing is fitted. The band has the error of the shares (they are shares of a number of
//! looks) and what the formulas leave out. Where something decides that nobody saw, there is no figure, and the
//! reason is said.

use super::Cause;
use super::advice::Lift;
use super::facts::COMPUTES;
use lastmeter_live::observe::Witnesses;
use serde::Serialize;

/// Times the rate beyond which a gain is not worth a figure: something else limits long before.
const GAIN_MAX: f64 = 100.0;
/// What the formulas leave out, of a gain.
const MODEL: f64 = 0.1;
/// Of a gain that other limits may take a part of: what may be missing.
const LESS: f64 = 0.2;
/// Standard errors from the middle of a band to its ends.
const ERRORS: f64 = 2.0;
/// Of all CPUs, the share that must be idle for a program to gain by moving there.
const IDLE: f64 = 0.2;
/// Seconds to copy a byte into the kernel and out of it, on any machine of this century at most.
const COPY: f64 = 0.5e-9;
/// A writer that waits for room goes on when a third of the buffer is free.
const WRITABLE: f64 = 2.0 / 3.0;
/// Then it fills a buffer of the kernel's, of this many bytes at most, whatever room there is.
pub(super) const PIECE: f64 = 65_536.0;
/// Of CUBIC (RFC 9438, sections 4.1 and 4.6): the factor after a loss, and the constant C.
const CUBIC: (f64, f64) = (0.7, 0.4);

/// Times the present rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// At least.
    pub low: f64,
    /// Most likely.
    pub expected: f64,
    /// At most.
    pub high: f64,
}

/// A gain, or why there is no figure.
pub type Predicted = Result<Gain, &'static str>;

impl Gain {
    /// Between these, and what the formulas leave out on either side.
    fn between(low: f64, expected: f64, high: f64) -> Predicted {
        if !expected.is_finite() || expected > GAIN_MAX {
            return Err("it is too much for a figure: something else limits long before");
        }
        let low = low.min(expected) * (1.0 - MODEL);
        Ok(Gain { low, expected, high: high.max(expected) * (1.0 + MODEL) })
    }

    fn times(expected: f64) -> Predicted {
        Gain::between(expected, expected, expected)
    }

    /// Where other limits may come in before all of it is reached.
    fn up_to(expected: f64) -> Predicted {
        Gain::between(expected * (1.0 - LESS), expected, expected)
    }

    /// What is gained if `part` of a `share` of the time is saved, where the share was found in so many looks.
    fn saving(part: f64, share: f64, looks: u32) -> Predicted {
        let share = share.clamp(0.0, 1.0);
        let error = ERRORS * (share * (1.0 - share) / f64::from(looks.max(1))).sqrt();
        let gain = |share: f64| 1.0 / (1.0 - part * share.clamp(0.0, 1.0)).max(1e-3);
        Gain::between(gain(share - error), gain(share), gain(share + error))
    }

    /// In words.
    pub fn words(&self) -> String {
        format!("expect {:.1} times the rate, {:.1} to {:.1}", self.expected, self.low, self.high)
    }
}

/// What `lift` brings where `cause` limits.
///
/// # Errors
/// Why there is no figure.
pub fn of(cause: Cause, lift: Lift, w: &Witnesses) -> Predicted {
    use Cause::*;
    let looks = w.program_looks.max(w.looks);
    match (lift, cause) {
        (Lift::Work(part), _) => less_work(cause, 1.0 - part, w),
        (Lift::SendBuffer(ask), SendBuffer) => send_buffer(2.0 * ask as f64, w),
        // A sender sees the window, which is about half of the buffer.
        (Lift::ReceiveBuffer(ask), ReceiveBuffer) => {
            let now = if w.sends { w.window } else { w.receive_buffer / 2 };
            let gain = ask as f64 / f64::from(now.max(1));
            // A window moves by whole segments (RFC 1122, section 4.2.3.3); a small one loses a part of one.
            let window = if w.sends { w.window } else { w.receive_window };
            let whole = f64::from(w.segment) / f64::from(window.max(w.segment).max(1));
            Gain::between(gain * (1.0 - LESS), gain, gain * (1.0 + whole))
        }
        (Lift::Pacing(rate), PacingCap) => {
            w.pacing_max.map_or(Err("the cap is not known"), |cap| Gain::up_to(rate as f64 / cap))
        }
        (Lift::NoDelay, Nagle) => no_delay(w),
        (Lift::Bbr, _) => Err("what the path carries is not known until something fills it"),
        // A copy whose data another core has in its cache takes longer, or less long.
        (Lift::Affinity, SharedCpu) if w.user.is_none_or(|user| user < COMPUTES) => {
            Err("its CPU time is for moving data, which takes another time on another core")
        }
        (Lift::Affinity, SharedCpu) if w.idle < IDLE => Err("no other core is idle"),
        // The other core may have work of its own.
        (Lift::Affinity, SharedCpu) => Gain::up_to((w.run + w.wait) / w.run.max(0.01)),
        (Lift::Quota, Throttled) => {
            Gain::saving(1.0, w.throttled.unwrap_or(0.0), looks.saturating_mul(10))
        }
        (Lift::Link(factor), LinkRate | Policer) => Gain::up_to(factor),
        (Lift::Connections(_), LinkRate | Policer) => Gain::times(1.0),
        // Each has a window, a buffer and a cap of its own.
        (Lift::Connections(count), Loss) => by_losses(f64::from(count), w),
        (Lift::Connections(count), CongestionWindow | SendBuffer | ReceiveBuffer | PacingCap) => {
            Gain::up_to(f64::from(count))
        }
        (Lift::Connections(count), RoundTrips | Nagle | ConnectionSetUp | NameLookUp) => {
            // One core can do so much.
            Gain::up_to(f64::from(count).min(1.0 / w.run.max(0.01)))
        }
        // The least round trip is the path's; what is more is a queue's, or of whoever answers late.
        (Lift::Trip(part), SendBuffer | ReceiveBuffer) => {
            Gain::times(1.0 / (1.0 - (1.0 - part) * of_the_path(w)).max(1e-3))
        }
        (Lift::Trip(part), RoundTrips) => {
            Gain::saving((1.0 - part) * of_the_path(w), w.receive + w.poll, looks)
        }
        (Lift::Loss(part), Loss) => match w.bbr_rate {
            None => by_losses(cubic(w.lost * part, w.rtt) / cubic(w.lost, w.rtt), w),
            Some(_) => Err("BBR does not slow down for loss"),
        },
        (Lift::KeepOpen, ConnectionSetUp) => keep_open(w),
        (Lift::NoLookUp, NameLookUp) => Gain::saving(1.0, w.names, looks),
        (Lift::Message(factor), SmallMessages) => {
            let each = w.payload * 8.0 / w.rate.max(1.0);
            Gain::up_to(factor * each / (each + (factor - 1.0) * w.payload * COPY))
        }
        _ => Err("something else limits"),
    }
}

/// If `part` of what the program does itself is saved.
fn less_work(cause: Cause, part: f64, w: &Witnesses) -> Predicted {
    use Cause::*;
    let looks = w.program_looks.max(1);
    match cause {
        SenderSleeps | ReceiverSleeps => Gain::saving(part, w.timer.max(w.empty * w.poll), looks),
        SenderDisk | ReceiverDisk => disk(part, w),
        SenderPipe => Gain::saving(part, w.pipe - w.pipe_write, looks),
        ReceiverPipe => Gain::saving(part, w.pipe_write, looks),
        // The kernel counts this time; it is not looked for.
        SenderComputes | ReceiverComputes => {
            let user = w.user.ok_or("the time in user mode is not known")?;
            Gain::times(1.0 / (1.0 - part * w.run * user).max(1e-3))
        }
        // All that arrives is read at best.
        DatagramOverflow => {
            let own = Gain::saving(part, w.timer.max(w.disk).max(w.pipe).max(w.run), looks)?;
            let most = 1.0 / (1.0 - w.overflowed).max(1e-3);
            Gain::between(own.low.min(most), own.expected.min(most), own.high.min(most))
        }
        _ => Err("what the program does itself does not limit"),
    }
}

/// An access to a disk takes CPU time besides the time asleep, and nobody saw how much. Of a sender, accesses are what
/// happens while its sockets are empty.
fn disk(part: f64, w: &Witnesses) -> Predicted {
    let (least, most) = (w.disk, (w.disk + w.run + w.wait).min(1.0));
    let likely = if w.sends { w.empty.clamp(least, most) } else { (least + most) / 2.0 };
    let gain = |share: f64| 1.0 / (1.0 - part * share).max(1e-3);
    Gain::between(gain(least), gain(likely), gain(most))
}

/// The share of a round trip that is the path's.
fn of_the_path(w: &Witnesses) -> f64 {
    (w.rtt_min / w.rtt.max(1e-9)).clamp(0.0, 1.0)
}

/// With a send buffer of `size` as the kernel counts it, all of which is in flight. A writer adds pieces until it is
/// exceeded, so there is half a piece more on average; acknowledgements that come in bursts keep it full, those
/// that come evenly let it fall to where the writer goes on.
fn send_buffer(size: f64, w: &Witnesses) -> Predicted {
    let now = (w.rate * w.rtt.max(w.rtt_min) / 8.0).max(1.0);
    let of = |size: f64| (size + PIECE / 2.0) / now;
    Gain::between(of(WRITABLE * size), of(size), of(size + PIECE / 2.0))
}

/// Without Nagle's algorithm an exchange takes a round trip, and the CPU time that it takes now.
fn no_delay(w: &Witnesses) -> Predicted {
    let exchanges = w.data_out / w.out_over_in.max(1e-3);
    match exchanges > 0.0 && w.rtt_min > 0.0 {
        true => Gain::up_to(1.0 / (exchanges * w.rtt_min + w.run).clamp(1e-3, 1.0)),
        false => Err("how many exchanges there are is not known"),
    }
}

/// Without handshakes. How many are made is counted, and each takes the least round trip or more; looks tell how many
/// are made at once, and what they take in all.
fn keep_open(w: &Witnesses) -> Predicted {
    let all = w.opened * w.rtt_min;
    let at_once = (all / w.connect.max(0.05)).round().max(1.0);
    let least = (all / at_once).min(0.99);
    let error = ERRORS * (w.connect * (1.0 - w.connect) / f64::from(w.program_looks.max(1))).sqrt();
    let gain = |share: f64| 1.0 / (1.0 - share.clamp(least, 0.99));
    Gain::between(gain(least), gain(w.connect), gain(w.connect + error))
}

/// A gain where losses decide, which are few: the rate goes with the root of their number.
fn by_losses(gain: f64, w: &Witnesses) -> Predicted {
    let losses = w.lost * w.data_out * w.seconds;
    if losses < 4.0 {
        return Err("too few losses were seen to tell how often they come");
    }
    // Now, and in as long a time after the change.
    let error = ERRORS * 0.5 * (2.0 / losses).sqrt();
    Gain::between(gain * (1.0 - error).max(0.5), gain, gain * (1.0 + error))
}

/// CUBIC's mean window, in segments, where this share of them is lost (RFC 9438, sections 4.3 and 5.1).
fn cubic(lost: f64, trip: f64) -> f64 {
    let (beta, c) = CUBIC;
    let as_reno = (1.5 / lost).sqrt();
    let own = (c * (3.0 + beta) / (4.0 * (1.0 - beta))).powf(0.25) * (trip / lost).powf(0.75);
    as_reno.max(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(gain: &Gain, value: f64) -> bool {
        (gain.low..=gain.high).contains(&value)
    }

    #[test]
    fn saving_half_of_a_share_gains_what_is_left_of_the_time() {
        let w = Witnesses { timer: 0.8, program_looks: 100, ..Witnesses::default() };
        let gain = of(Cause::SenderSleeps, Lift::Work(0.5), &w).unwrap();
        assert!((gain.expected - 1.0 / 0.6).abs() < 1e-9);
        // Twice the standard error of the share is 0.08: 1.56 to 1.79, and a tenth more.
        assert!((gain.low - 0.9 / 0.64).abs() < 1e-9 && (gain.high - 1.1 / 0.56).abs() < 1e-9);
        assert!(of(Cause::LinkRate, Lift::Work(0.5), &w).is_err());
    }

    #[test]
    fn cubic_is_as_reno_on_short_paths_and_faster_on_long_ones() {
        let gain = |lost: f64, trip: f64| cubic(lost / 4.0, trip) / cubic(lost, trip);
        assert!((gain(0.005, 0.02) - 2.0).abs() < 1e-9);
        assert!((gain(0.0001, 0.2) - 4_f64.powf(0.75)).abs() < 1e-9);
        // RFC 9438, section 5.1: with C = 0.4, 0.1 s and a loss of 10^-4 the mean window is 187 segments.
        assert!((cubic(1e-4, 0.1) - 187.0).abs() < 1.0);
    }

    #[test]
    fn without_nagle_an_exchange_takes_a_round_trip() {
        // Two segments out, one back, 23 exchanges a second: 40 ms wait besides 4 ms.
        let w = Witnesses {
            data_out: 46.0,
            out_over_in: 2.0,
            rtt_min: 0.004,
            run: 0.002,
            ..Witnesses::default()
        };
        let gain = of(Cause::Nagle, Lift::NoDelay, &w).unwrap();
        assert!((gain.expected - 1.0 / 0.094).abs() < 1e-9 && holds(&gain, 10.5));
    }

    #[test]
    fn a_shorter_path_saves_what_is_the_paths_of_a_round_trip() {
        let w = Witnesses {
            rtt_min: 0.02,
            rtt: 0.025,
            receive: 1.0,
            looks: 100,
            ..Witnesses::default()
        };
        let gain = of(Cause::RoundTrips, Lift::Trip(0.5), &w).unwrap();
        assert!((gain.expected - 1.0 / 0.6).abs() < 1e-9, "{gain:?}");
        assert_eq!(of(Cause::ReceiveBuffer, Lift::Trip(0.5), &w).unwrap().expected, gain.expected);
    }

    #[test]
    fn handshakes_are_counted() {
        let w = Witnesses {
            opened: 12.0,
            rtt_min: 0.04,
            connect: 0.45,
            program_looks: 100,
            ..Witnesses::default()
        };
        let gain = of(Cause::ConnectionSetUp, Lift::KeepOpen, &w).unwrap();
        assert!((gain.expected - 1.0 / 0.52).abs() < 1e-9, "a handshake takes no less: {gain:?}");
        // Four at once: each spends as much of its time.
        let four = Witnesses { opened: 48.0, ..w };
        assert_eq!(of(Cause::ConnectionSetUp, Lift::KeepOpen, &four).unwrap(), gain);
        // They take longer than the least round trip.
        let late = Witnesses { connect: 0.6, ..w };
        let gain = of(Cause::ConnectionSetUp, Lift::KeepOpen, &late).unwrap();
        assert!((gain.expected - 2.5).abs() < 1e-9 && holds(&gain, 3.0), "{gain:?}");
    }

    #[test]
    fn what_nobody_saw_has_no_figure() {
        let w = Witnesses { lost: 0.01, data_out: 100.0, seconds: 2.0, ..Witnesses::default() };
        assert!(of(Cause::Loss, Lift::Bbr, &w).unwrap_err().contains("not known"));
        assert!(of(Cause::Loss, Lift::Loss(0.25), &w).unwrap_err().contains("too few"));
        let more = Witnesses { seconds: 100.0, rtt: 0.02, ..w };
        assert!(holds(&of(Cause::Loss, Lift::Loss(0.25), &more).unwrap(), 2.0));
        let asleep = Witnesses { timer: 1.0, program_looks: 100, ..w };
        assert!(of(Cause::SenderSleeps, Lift::Work(0.0), &asleep).is_err());
    }
}
