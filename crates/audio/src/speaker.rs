//! What is heard: all streams, block by block, as one sum.
//!
//! ```text
//! stream -> play-out --+
//! stream -> play-out --+--> sum, limited to 16 bits --> sink       100 blocks a second, by the device's clock
//! ```

use super::playout::{Arrival, Counts, Played, Playout, Settings};
use super::sink::Sink;
use super::{Audio, block, heard, time};
use lastmeter_device::account::Account;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The most streams at once, those included that have ended and are still heard.
pub(super) const STREAMS_MAX: usize = 16;
/// A device that is later than this leaves blocks out.
const STALL: Duration = Duration::from_secs(1);

/// What happens when several clients send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Several {
    /// All are heard.
    #[default]
    Mix,
    /// The first is heard, others are refused.
    Refuse,
}

/// A client's stream.
pub(super) struct Stream {
    client: String,
    began: Instant,
    playout: Mutex<(Playout, Counts)>,
    ended: AtomicBool,
}

impl Stream {
    fn with<T>(&self, f: impl FnOnce(&mut Playout, &mut Counts) -> T) -> T {
        let mut locked = self.playout.lock().unwrap_or_else(PoisonError::into_inner);
        let (playout, told) = &mut *locked;
        f(playout, told)
    }
    /// A packet came at an instant.
    pub(super) fn receive(&self, arrival: Arrival, at: Instant) {
        let now = at.saturating_duration_since(self.began);
        self.with(|playout, _| playout.receive(arrival, now));
    }
    /// The sender said when it took the frame of a timestamp.
    pub(super) fn report(&self, clock: Duration, timestamp: u32) {
        self.with(|playout, _| playout.report(clock, timestamp));
    }
    /// No more will come; what is held is still heard.
    pub(super) fn end(&self) {
        self.ended.store(true, Relaxed);
    }
}

/// All streams.
pub(super) struct Speaker {
    settings: Settings,
    several: Several,
    streams: Mutex<Vec<Arc<Stream>>>,
    /// Of streams that are over, by client.
    past: Mutex<BTreeMap<String, Counts>>,
    clipped: AtomicU64,
    stalls: AtomicU64,
    /// Whether all senders of late said when sound was taken.
    is_whole: AtomicBool,
}

/// The sum of two.
fn sum(one: Counts, other: Counts) -> Counts {
    Counts {
        packets: one.packets + other.packets,
        played: one.played + other.played,
        lost: one.lost + other.lost,
        late: one.late + other.late,
        twice: one.twice + other.twice,
        early: one.early + other.early,
        concealed: one.concealed + other.concealed,
        skipped: one.skipped + other.skipped,
        repeated: one.repeated + other.repeated,
        restarts: one.restarts + other.restarts,
        frames: one.frames + other.frames,
    }
}

impl Speaker {
    pub(super) fn new(settings: Settings, several: Several) -> Speaker {
        Speaker {
            settings,
            several,
            streams: Mutex::default(),
            past: Mutex::default(),
            clipped: 0.into(),
            stalls: 0.into(),
            is_whole: true.into(),
        }
    }
    /// A stream of a client.
    ///
    /// # Errors
    /// If others are heard.
    pub(super) fn admit(&self, client: &str) -> Result<Arc<Stream>, String> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let playing = streams.iter().filter(|stream| !stream.ended.load(Relaxed)).count();
        if self.several == Several::Refuse && playing > 0 {
            return Err("another client is heard".to_owned());
        }
        if streams.len() >= STREAMS_MAX {
            return Err(format!("{STREAMS_MAX} streams are heard, which is the most"));
        }
        let stream = Arc::new(Stream {
            client: client.to_owned(),
            began: Instant::now(),
            playout: Mutex::new((Playout::new(self.settings), Counts::default())),
            ended: false.into(),
        });
        streams.push(stream.clone());
        Ok(stream)
    }
    /// Streams that are heard.
    pub(super) fn playing(&self) -> usize {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
    /// Whether network times are from when sound was taken.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Relaxed)
    }
    /// By client, what became of packets; samples that were limited; and how often the device itself was late.
    pub(super) fn counts(&self) -> (BTreeMap<String, Counts>, u64, u64) {
        // A stream is in one of both at any time.
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.past.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for stream in streams.iter() {
            let own = all.entry(stream.client.clone()).or_default();
            *own = sum(*own, stream.with(|playout, _| playout.counts));
        }
        (all, self.clipped.load(Relaxed), self.stalls.load(Relaxed))
    }

    /// Plays a block, if there is a stream.
    fn play(&self, account: &Account, sink: &mut dyn Sink, out: &mut [i16], at: Instant) {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if streams.is_empty() {
            return;
        }
        let mut over = Vec::new();
        let (mut all, mut played) = (vec![0i32; out.len()], Vec::<Played>::new());
        let begins = Instant::now();
        for stream in &streams {
            let now = at.saturating_duration_since(stream.began);
            let is_over = stream.with(|playout, told| {
                let is_over = stream.ended.load(Relaxed) && playout.is_empty();
                if is_over {
                    playout.end();
                } else {
                    let before = played.len();
                    playout.pull(out, now, |one| played.push(one));
                    if played.len() > before {
                        self.is_whole.store(playout.is_whole, Relaxed);
                    }
                    all.iter_mut().zip(&*out).for_each(|(all, own)| *all += i32::from(*own));
                }
                tell(account, playout.counts, told);
                is_over
            });
            if is_over {
                over.push(stream);
            }
        }
        let mut clipped = 0;
        for (out, all) in out.iter_mut().zip(all) {
            let limited = all.clamp(i16::MIN.into(), i16::MAX.into());
            clipped += u64::from(limited != all);
            *out = limited as i16;
        }
        self.clipped.fetch_add(clipped, Relaxed);
        let mixed = Instant::now();
        let is_taken = sink.write(out);
        let taken = mixed.elapsed();
        if !is_taken {
            account.lose(heard::SINK, "the sink takes no more", played.len() as u64, false);
            played.clear();
        }
        for one in played {
            let mut lap = account.begin();
            lap.add(heard::NETWORK, one.network);
            lap.add(heard::POLICY, one.spent);
            lap.add(heard::BUFFER, one.held);
            lap.add(heard::MIX, mixed - begins);
            lap.add(heard::SINK, taken);
            account.end(lap, one.bytes);
        }
        // Whoever sees that nothing is heard any more finds the sink's file whole.
        if over.len() == streams.len() {
            sink.pause();
        }
        over.into_iter().for_each(|stream| self.remove(stream));
    }
    fn remove(&self, over: &Arc<Stream>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let own = past.entry(over.client.clone()).or_default();
        *own = sum(*own, over.with(|playout, _| playout.counts));
        streams.retain(|stream| !Arc::ptr_eq(stream, over));
    }
}

/// Enters in the account what has been lost since it was told before.
fn tell(account: &Account, counts: Counts, told: &mut Counts) {
    let losses = [
        (heard::NETWORK, "lost on the way", counts.lost, &mut told.lost),
        (heard::BUFFER, "came too late", counts.late, &mut told.late),
        (heard::BUFFER, "came too early", counts.early, &mut told.early),
        (heard::BUFFER, "came twice", counts.twice, &mut told.twice),
    ];
    for (stage, reason, now, before) in losses {
        account.lose(stage, reason, now - *before, false);
        *before = now;
    }
}

/// Plays block after block on a thread of its own, which ends with the device.
pub(super) fn start(audio: &Arc<Audio>, mut sink: Box<dyn Sink>) {
    let (weak, format) = (Arc::downgrade(audio), audio.format);
    let frames = block(format);
    let mut out = vec![0; frames * usize::from(format.channels)];
    std::thread::spawn(move || {
        let (mut began, mut count) = (Instant::now(), 0u64);
        loop {
            count += 1;
            let due = began + time(count * frames as u64, format.rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let Some(audio) = Weak::upgrade(&weak) else { return };
            if due.elapsed() > STALL {
                audio.speaker.stalls.fetch_add(1, Relaxed);
                (began, count) = (Instant::now(), 0);
            }
            audio.speaker.play(&audio.heard, &mut *sink, &mut out, due);
        }
    });
}
