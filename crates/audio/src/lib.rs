//! Sound on the network: a speaker to which clients send, and a microphone to which they listen, by RTSP and RTP.
//!
//! ```text
//! client -> network -> policy -> buffer -> mix -> sink        a thread for each client, one that plays
//!                      its own   its own   all of them
//! source -> capture -> policy -> network -> client            one that captures, a thread for each listener
//! ```
//!
//! Rows: N-01.

pub mod client;
mod gate;
mod microphone;
mod outgoing;
pub mod playout;
pub mod server;
mod session;
mod sink;
mod speaker;

use lastmeter_base::Time;
use lastmeter_device::access::Access;
use lastmeter_device::account::Account;
use lastmeter_ledger::{Confidence, Ledger, Verdict};
use lastmeter_wire::sdp::{DYNAMIC, Sound};
use lastmeter_wire::wav::Format;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant, SystemTime};

/// Stages of a packet's path to the speaker, from when its sound was taken until it is handed to the sink.
pub const SPEAKER: [(&str, &str); 5] = [
    ("network", "network"),
    ("policy", "cpu"),
    ("buffer", "buffer"),
    ("mix", "cpu"),
    ("sink", "sink"),
];
/// Stages of a packet's path from the microphone, from when its first sample was taken until it is sent.
pub const MICROPHONE: [(&str, &str); 3] =
    [("capture", "source"), ("policy", "cpu"), ("network", "network")];

/// Numbers of the speaker's stages.
mod heard {
    pub(super) const NETWORK: usize = 0;
    pub(super) const POLICY: usize = 1;
    pub(super) const BUFFER: usize = 2;
    pub(super) const MIX: usize = 3;
    pub(super) const SINK: usize = 4;
}
/// Numbers of the microphone's stages.
mod said {
    pub(super) const CAPTURE: usize = 0;
    pub(super) const POLICY: usize = 1;
    pub(super) const NETWORK: usize = 2;
}

/// Bytes of an RTP packet: an Ethernet frame's without fragments.
const PACKET: usize = 1400;
/// The longest datagram that is taken.
const DATAGRAM_MAX: usize = 9216;
/// The longest file of sound that is played or sent.
pub const FILE_MAX: usize = 256 << 20;
/// Blocks in a second.
const BLOCKS: u32 = 100;

/// Frames of a block: 10 ms.
pub fn block(format: Format) -> usize {
    (format.rate / BLOCKS).max(1) as usize
}

/// Samples of a packet: a block, or as much of it as fits.
fn packet(format: Format) -> usize {
    let channels = usize::from(format.channels);
    let most = (PACKET - lastmeter_wire::rtp::RTP_LEN) / (2 * channels);
    block(format).min(most) * channels
}

/// Time of so many frames.
fn time(frames: u64, rate: u32) -> Duration {
    let nanoseconds = u128::from(frames) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Time since 1970.
fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// An audio device, shared by all its clients.
pub struct Audio {
    /// Its name.
    pub name: String,
    /// Samples of both directions.
    pub format: Format,
    /// Who may send and listen.
    pub access: Access,
    /// The account of packets that were played.
    pub heard: Account,
    /// The account of packets of the microphone.
    pub said: Account,
    /// Clients that are connected.
    pub clients: Arc<AtomicUsize>,
    speaker: speaker::Speaker,
    microphone: microphone::Microphone,
    began: Instant,
}

impl Audio {
    /// What it takes and gives, with a payload type that a description explains.
    pub fn sound(&self) -> Sound {
        let Format { rate, channels } = self.format;
        Sound { kind: DYNAMIC, rate, channels }
    }
    fn now(&self) -> Time {
        let since = self.began.elapsed().as_secs_f64();
        Time::START + lastmeter_base::Duration::from_secs_f64(since)
    }
    /// Each client's packets so far, and what became of them.
    pub fn streams(&self) -> Value {
        let (streams, clipped, stalls) = self.speaker.counts();
        let by_client: BTreeMap<&String, Value> = streams
            .iter()
            .map(|(client, it)| {
                let value = json!({
                    "packets": it.packets, "played": it.played, "lost": it.lost, "late": it.late,
                    "twice": it.twice, "early": it.early, "frames": it.frames,
                    "concealed": it.concealed, "skipped": it.skipped, "repeated": it.repeated,
                    "restarts": it.restarts, "drift_ppm": it.drift(),
                });
                (client, value)
            })
            .collect();
        json!({
            "clients": by_client, "playing": self.speaker.playing(), "clipped": clipped,
            "stalls": stalls, "listeners": self.microphone.listeners(),
        })
    }
    /// The description (SDP, RFC 8866) of the microphone, at the address of a client.
    pub fn describe(&self, track: &str) -> String {
        let name: String = self.name.chars().filter(|it| !it.is_control()).collect();
        format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns={name}\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
             a=control:*\r\n{}a=control:{track}\r\n",
            self.sound().lines(0)
        )
    }
    /// The ledger of what was played, with its verdict. `cpu` is the CPU time used, in seconds.
    pub fn ledger(&self, title: &str, version: &str, cpu: f64) -> Ledger {
        let mut ledger = self.heard.ledger(title, version, cpu);
        ledger.verdict = Some(verdict(&ledger));
        if !self.speaker.is_whole() {
            let note = "senders do not say when sound was taken: `network` is beyond the fastest";
            ledger.notes.push(note.to_owned());
        }
        ledger
    }
    /// The ledger of the microphone.
    pub fn microphone(&self, title: &str, version: &str, cpu: f64) -> Ledger {
        self.said.ledger(title, version, cpu)
    }
}

/// What can set the delay, and what that means.
const LIMITS: [(&str, &str); 4] = [
    ("network", "packets are on their way"),
    ("buffer", "packets wait until they are played"),
    ("cpu", "the device decides and mixes"),
    ("sink", "the sink takes them no faster"),
];
/// A share of packets that are not heard in time above which the sound is spoilt.
const SPOILT: f64 = 0.01;
/// A lead over the next one by less than this leaves it open which one sets the delay.
const LEAD: f64 = 0.1;

/// What spoils the sound, or else sets the delay from mouth to ear.
fn verdict(ledger: &Ledger) -> Verdict {
    let nothing = |words: &str| Verdict {
        resource: None,
        utilisation: None,
        confidence: Confidence::Low,
        runner_up: None,
        words: words.to_owned(),
    };
    let Some(path) = ledger.paths.first() else { return nothing("nothing was sent") };
    let offered = path.totals.offered.map_or(0, |count| count.packets);
    if offered == 0 {
        return nothing("nobody has sent sound");
    }
    let dropped = |stage: usize| {
        let drops = path.stages.get(stage).map(|stage| stage.drops.values().sum::<u64>());
        drops.unwrap_or(0) as f64 / offered as f64
    };
    let (lost, late, full) =
        (dropped(heard::NETWORK), dropped(heard::BUFFER), dropped(heard::SINK));
    let spoilt = |name: &str, share: f64, words: String| Verdict {
        resource: Some(name.to_owned()),
        utilisation: Some(share),
        confidence: Confidence::High,
        runner_up: None,
        words,
    };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    if full > SPOILT && full > lost + late {
        let words = format!("sink spoils the sound: it did not take {} of packets", percent(full));
        return spoilt("sink", full, words);
    }
    if lost + late > SPOILT {
        let words = format!(
            "network spoils the sound: {} of packets were lost, {} came too late; a longer `delay` \
             helps against the latter",
            percent(lost),
            percent(late)
        );
        return spoilt("network", lost + late, words);
    }
    let seconds = LIMITS.map(|(name, _)| {
        let own = SPEAKER.iter().zip(&path.stages).filter(|((_, resource), _)| *resource == name);
        own.map(|(_, stage)| stage.service_mean()).sum::<f64>()
    });
    let total: f64 = seconds.iter().sum();
    if total == 0.0 {
        return nothing("nothing was played");
    }
    let mut order: Vec<usize> = (0..LIMITS.len()).collect();
    order.sort_by(|one, other| seconds[*other].total_cmp(&seconds[*one]));
    let share = |at: usize| seconds[order[at]] / total;
    let ((name, meaning), (runner_up, _)) = (LIMITS[order[0]], LIMITS[order[1]]);
    Verdict {
        resource: Some(name.to_owned()),
        utilisation: Some(share(0)),
        confidence: if share(0) - share(1) < LEAD { Confidence::Low } else { Confidence::High },
        runner_up: Some(runner_up.to_owned()),
        words: format!(
            "{name} sets the delay from mouth to ear: {meaning}; {:.0} % of {:.1} ms, then \
             {runner_up} {:.0} %",
            share(0) * 100.0,
            total * 1e3,
            share(1) * 100.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(lost: u64, times: &[(usize, u64)]) -> Option<String> {
        let account = Account::new("speaker", &SPEAKER, 1);
        for _ in 0..100 - lost {
            let mut lap = account.begin();
            times.iter().for_each(|(stage, ms)| lap.add(*stage, Duration::from_millis(*ms)));
            account.end(lap, 960);
        }
        account.lose(heard::NETWORK, "lost on the way", lost, false);
        verdict(&account.ledger("audio", "0", 0.0)).resource
    }

    #[test]
    fn what_sets_the_delay_and_what_spoils_the_sound_is_named() {
        let usual = [(heard::NETWORK, 2), (heard::BUFFER, 60), (heard::SINK, 1)];
        assert_eq!(account(0, &usual).as_deref(), Some("buffer"));
        let far = [(heard::NETWORK, 150), (heard::BUFFER, 60)];
        assert_eq!(account(1, &far).as_deref(), Some("network"));
        assert_eq!(account(5, &usual).as_deref(), Some("network"));
        let silence = Account::new("speaker", &SPEAKER, 1).ledger("audio", "0", 0.0);
        assert_eq!(verdict(&silence).resource, None);
    }

    #[test]
    fn packets_are_blocks_unless_these_are_too_long() {
        let of = |rate, channels| packet(Format { rate, channels });
        assert_eq!((of(48_000, 1), of(44_100, 1), of(8000, 2)), (480, 441, 160));
        assert_eq!(of(48_000, 2), 694, "347 frames of 4 bytes, and 12 of RTP");
        assert_eq!((of(1000, 1), block(Format { rate: 1000, channels: 2 })), (10, 10));
    }
}
