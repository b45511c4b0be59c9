//! Where the speaker's sound goes: nowhere, into a WAV file, or to a program through a pipe.
//!
//! ```text
//! null                                        nothing hears it
//! file:PATH                                   a WAV file, which holds what was played while there was a stream
//! program:aplay -q -t raw -f S16_LE -r 48000  samples of 16 bits, little-endian, channels in turn
//! ```
//!
//! A program that takes them more slowly than they are played misses what does not fit into its queue.

use lastmeter_wire::wav::{DATA_MAX, Format, header};
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

/// Blocks that wait for a program: half a second.
const QUEUE: usize = 50;
/// Bytes of a file after which its header says how long it is.
const SETTLED: u64 = 1 << 16;

/// Takes blocks.
pub(super) trait Sink: Send {
    /// Takes a block; false if it is lost.
    fn write(&mut self, block: &[i16]) -> bool;
    /// No stream is left.
    fn pause(&mut self) {}
}

struct Null;

impl Sink for Null {
    fn write(&mut self, _: &[i16]) -> bool {
        true
    }
}

/// A WAV file, which is right at any time but for the last bytes.
struct Wav {
    file: BufWriter<File>,
    format: Format,
    bytes: u32,
    settled: u32,
}

impl Wav {
    fn settle(&mut self) -> std::io::Result<()> {
        self.settled = self.bytes;
        self.file.rewind()?;
        self.file.write_all(&header(self.format, self.bytes))?;
        self.file.seek(std::io::SeekFrom::End(0))?;
        self.file.flush()
    }
}

impl Sink for Wav {
    fn write(&mut self, block: &[i16]) -> bool {
        let bytes: Vec<u8> = block.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let room = DATA_MAX - self.bytes;
        if bytes.len() as u64 > room.into() || self.file.write_all(&bytes).is_err() {
            return false;
        }
        self.bytes += bytes.len() as u32;
        u64::from(self.bytes - self.settled) < SETTLED || self.settle().is_ok()
    }
    fn pause(&mut self) {
        let _ = self.settle();
    }
}

impl Drop for Wav {
    fn drop(&mut self) {
        let _ = self.settle();
    }
}

/// A program, which is started when there is something to hear, and again if it ends.
struct Program {
    words: Vec<String>,
    folder: PathBuf,
    running: Option<(Child, SyncSender<Vec<u8>>)>,
}

impl Program {
    fn start(&self) -> std::io::Result<(Child, SyncSender<Vec<u8>>)> {
        let mut child = Command::new(&self.words[0])
            .args(&self.words[1..])
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let mut pipe = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let (blocks, queue) = sync_channel::<Vec<u8>>(QUEUE);
        std::thread::Builder::new().spawn(move || {
            while let Ok(block) = queue.recv() {
                if pipe.write_all(&block).is_err() {
                    return;
                }
            }
        })?;
        Ok((child, blocks))
    }
    fn stop(&mut self) {
        // Its input ends, and then it does; if it does not, the next one does not wait for it.
        if let Some((mut child, blocks)) = self.running.take() {
            drop(blocks);
            std::thread::spawn(move || child.wait());
        }
    }
}

impl Sink for Program {
    fn write(&mut self, block: &[i16]) -> bool {
        if self.running.is_none() {
            self.running = self.start().ok();
        }
        let Some((_, blocks)) = &self.running else { return false };
        let bytes = block.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        match blocks.try_send(bytes) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Disconnected(_)) => {
                self.stop();
                false
            }
        }
    }
    fn pause(&mut self) {
        self.stop();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The words of a program's line.
pub(super) fn words(key: &str, line: &str) -> Result<Vec<String>, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match words.is_empty() {
        true => Err(format!("{key}: write the program after `program:`")),
        false => Ok(words),
    }
}

/// A sink by its description, which was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    File(PathBuf),
    Program(Vec<String>, PathBuf),
}

impl Kind {
    /// Files are in `folder`.
    ///
    /// # Errors
    /// If there is none of this name.
    pub(super) fn named(name: &str, folder: &Path) -> Result<Kind, String> {
        match name.split_once(':') {
            None if name == "null" => Ok(Kind::Null),
            Some(("file", path)) => Ok(Kind::File(folder.join(path))),
            Some(("program", line)) => Ok(Kind::Program(words("speaker", line)?, working(folder))),
            _ => {
                let known =
                    "\"null\", \"file:PATH\", \"program:aplay -q -t raw -f S16_LE -r 48000\"";
                Err(format!("speaker: {name:?}: write {known}"))
            }
        }
    }
    /// Begins to take sound.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub(super) fn open(self, format: Format) -> Result<Box<dyn Sink>, String> {
        match self {
            Kind::Null => Ok(Box::new(Null)),
            Kind::File(path) => {
                let place = |error| format!("speaker: {}: {error}", path.display());
                let file = BufWriter::new(File::create(&path).map_err(place)?);
                let mut wav = Wav { file, format, bytes: 0, settled: 0 };
                wav.settle().map_err(place)?;
                Ok(Box::new(wav))
            }
            Kind::Program(words, folder) => Ok(Box::new(Program { words, folder, running: None })),
        }
    }
}

/// A folder as a program's working directory.
pub(super) fn working(folder: &Path) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}
