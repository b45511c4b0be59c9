//! Where the microphone's sound comes from, and who hears it. Nothing is captured while nobody listens.
//!
//! ```text
//! none                                           there is no microphone
//! tone:440                                       a sine of so many hertz, at half of the range
//! file:PATH                                      a WAV file, from the beginning again after its end
//! program:arecord -q -t raw -f S16_LE -r 48000   samples of 16 bits, little-endian, channels in turn
//! ```

use super::sink::{words, working};
use super::{Audio, FILE_MAX, block, said, time, wall};
use lastmeter_linux::files;
use lastmeter_wire::wav::{self, Format};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Blocks that wait for a listener: half a second.
const QUEUE: usize = 50;
/// How often a device without listeners looks whether it should end.
const LOOK: Duration = Duration::from_millis(200);
/// A source that is later than this leaves blocks out.
const STALL: Duration = Duration::from_secs(1);

/// A block of samples.
pub(super) struct Block {
    /// The number of its first frame since the device began.
    pub(super) position: u64,
    /// Channels in turn.
    pub(super) samples: Vec<i16>,
    /// When its first frame was taken.
    pub(super) taken: Instant,
    /// The same, since 1970.
    pub(super) wall: Duration,
}

/// A source by its description, which was checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    None,
    Tone(f64),
    File(PathBuf),
    Program(Vec<String>, PathBuf),
}

impl Source {
    /// # Errors
    /// If there is none of this name.
    pub(super) fn named(name: &str, folder: &Path, format: Format) -> Result<Source, String> {
        let most = f64::from(format.rate) / 2.0;
        match name.split_once(':') {
            None if name == "none" => Ok(Source::None),
            Some(("tone", hertz)) => {
                let hertz = hertz.parse().ok().filter(|hertz| (1.0..=most).contains(hertz));
                hertz
                    .map(Source::Tone)
                    .ok_or(format!("microphone: {name:?}: from 1 to {most} hertz"))
            }
            Some(("file", path)) => {
                let path = folder.join(path);
                read(&path, format)?;
                Ok(Source::File(path))
            }
            Some(("program", line)) => {
                Ok(Source::Program(words("microphone", line)?, working(folder)))
            }
            _ => {
                let known = "\"none\", \"tone:440\", \"file:PATH\", \"program:arecord -q -t raw \
                             -f S16_LE -r 48000\"";
                Err(format!("microphone: {name:?}: write {known}"))
            }
        }
    }
    fn open(&self, format: Format) -> Result<Box<dyn Capture>, String> {
        Ok(match self {
            Source::None => return Err("there is no microphone".to_owned()),
            Source::Tone(hertz) => {
                let step = std::f64::consts::TAU * hertz / f64::from(format.rate);
                Box::new(Tone { step, at: 0, channels: format.channels.into() })
            }
            Source::File(path) => Box::new(Loop { samples: read(path, format)?, at: 0 }),
            Source::Program(words, folder) => {
                let child = Command::new(&words[0])
                    .args(&words[1..])
                    .current_dir(folder)
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()
                    .map_err(|error| format!("{}: {error}", words[0]))?;
                Box::new(Program { child })
            }
        })
    }
}

/// The samples of a WAV file that has the device's format.
fn read(path: &Path, format: Format) -> Result<Vec<i16>, String> {
    let place = |why: String| format!("microphone: {}: {why}", path.display());
    let bytes = files::read(path, FILE_MAX).map_err(|error| format!("microphone: {error}"))?;
    let (found, samples) = wav::parse(&bytes).map_err(|error| place(error.to_string()))?;
    if found != format {
        return Err(place(format!(
            "{} samples/s and {} channels; the device has {} and {}",
            found.rate, found.channels, format.rate, format.channels
        )));
    }
    if samples.is_empty() {
        return Err(place("it has no samples".to_owned()));
    }
    Ok(samples)
}

/// Gives samples.
trait Capture: Send {
    fn capture(&mut self, out: &mut [i16]) -> Result<(), String>;
    /// Whether it takes as long as its sound does.
    fn is_live(&self) -> bool {
        false
    }
}

struct Tone {
    step: f64,
    at: u64,
    channels: usize,
}

impl Capture for Tone {
    fn capture(&mut self, out: &mut [i16]) -> Result<(), String> {
        for frame in out.chunks_mut(self.channels) {
            let angle = self.step * self.at as f64;
            frame.fill((angle.sin() * f64::from(i16::MAX / 2)) as i16);
            self.at += 1;
        }
        Ok(())
    }
}

struct Loop {
    samples: Vec<i16>,
    at: usize,
}

impl Capture for Loop {
    fn capture(&mut self, out: &mut [i16]) -> Result<(), String> {
        for sample in out {
            *sample = self.samples[self.at];
            self.at = (self.at + 1) % self.samples.len();
        }
        Ok(())
    }
}

/// A process; it is ended with the source.
struct Program {
    child: Child,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Capture for Program {
    fn capture(&mut self, out: &mut [i16]) -> Result<(), String> {
        let pipe = self.child.stdout.as_mut().ok_or("the program has no output")?;
        let mut bytes = vec![0; out.len() * 2];
        pipe.read_exact(&mut bytes).map_err(|_| "the program gives no more sound")?;
        let (pairs, _) = bytes.as_chunks::<2>();
        out.iter_mut().zip(pairs).for_each(|(out, pair)| *out = i16::from_le_bytes(*pair));
        Ok(())
    }
    fn is_live(&self) -> bool {
        true
    }
}

/// Who listens.
#[derive(Default)]
pub(super) struct Microphone {
    listeners: Mutex<Vec<SyncSender<Arc<Block>>>>,
    came: Condvar,
}

impl Microphone {
    fn lock(&self) -> MutexGuard<'_, Vec<SyncSender<Arc<Block>>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The next blocks, until the receiver is dropped or the source ends.
    pub(super) fn listen(&self) -> Receiver<Arc<Block>> {
        let (blocks, queue) = sync_channel(QUEUE);
        self.lock().push(blocks);
        self.came.notify_one();
        queue
    }
    /// How many listen.
    pub(super) fn listeners(&self) -> usize {
        self.lock().len()
    }
    /// Whether somebody listens, after a while at the most.
    fn wait(&self) -> bool {
        let listeners = self.lock();
        if !listeners.is_empty() {
            return true;
        }
        let waited = self.came.wait_timeout(listeners, LOOK);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }
    /// Gives a block to all; how many had no room for it.
    fn give(&self, block: &Arc<Block>) -> u64 {
        let mut slow = 0;
        self.lock().retain(|listener| match listener.try_send(block.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                slow += 1;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
        slow
    }
}

/// Captures while somebody listens, on a thread of its own, which ends with the device.
pub(super) fn start(
    audio: &Arc<Audio>,
    source: Source,
    tell: impl Fn(&str) + Send + Sync + 'static,
) {
    let weak = Arc::downgrade(audio);
    std::thread::spawn(move || {
        while let Some(audio) = Weak::upgrade(&weak) {
            if !audio.microphone.wait() {
                continue;
            }
            let opened = source.open(audio.format);
            drop(audio);
            let ended = opened.and_then(|mut capture| listened(&weak, &mut *capture));
            if let (Err(why), Some(audio)) = (ended, Weak::upgrade(&weak)) {
                tell(&format!("microphone: {why}"));
                audio.microphone.lock().clear();
            }
        }
    });
}

/// Captures until nobody listens.
fn listened(weak: &Weak<Audio>, capture: &mut dyn Capture) -> Result<(), String> {
    let (mut began, mut count, mut first) = (Instant::now(), 0u64, None);
    loop {
        let Some(audio) = Weak::upgrade(weak) else { return Ok(()) };
        if audio.microphone.listeners() == 0 {
            return Ok(());
        }
        let (format, frames) = (audio.format, block(audio.format));
        let since = began.saturating_duration_since(audio.began);
        let start = *first
            .get_or_insert((since.as_nanos() * u128::from(format.rate) / 1_000_000_000) as u64);
        let mut samples = vec![0; frames * usize::from(format.channels)];
        let length = time(frames as u64, format.rate);
        count += 1;
        if !capture.is_live() {
            // A block is there when its last frame has been taken.
            let due = began + time(count * frames as u64, format.rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if due.elapsed() > STALL {
                (began, count, first) = (Instant::now(), 0, None);
                continue;
            }
        }
        capture.capture(&mut samples)?;
        let (now, clock) = (Instant::now(), wall());
        let due = began + time(count * frames as u64, format.rate);
        let late =
            if capture.is_live() { Duration::ZERO } else { now.saturating_duration_since(due) };
        let age = length + late;
        let position = start + (count - 1) * frames as u64;
        let taken = now.checked_sub(age).unwrap_or(now);
        let block = Block { position, samples, taken, wall: clock.saturating_sub(age) };
        let slow = audio.microphone.give(&Arc::new(block));
        audio.said.lose(said::CAPTURE, "the listener is too slow", slow, false);
    }
}
