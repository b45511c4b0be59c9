//! A film as what a camera of the live VuNet sees, decoded by an `ffmpeg` of its own.
//!
//! The film begins with the first frame that is asked for, and goes on with the camera's signal, whether or not its
//! frames are asked for; its last picture stays.

use lastmeter_lan::vunet::camera::{Pictures, line_len};
use lastmeter_wire::control::vidboard::Command;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

/// The program that decodes.
const DECODER: &str = "ffmpeg";
/// Most bytes of a picture; of a larger one nothing is decoded.
const PICTURE_MAX: usize = 1 << 24;
/// Frames a second of a camera's signal.
const RATE: u32 = 30;

/// Whether films can be shown here.
///
/// # Errors
/// If this one cannot be read, or there is no decoder.
pub(super) fn check(film: &Path) -> Result<(), String> {
    std::fs::File::open(film).map_err(|error| format!("--film: {}: {error}", film.display()))?;
    let mut command = std::process::Command::new(DECODER);
    command.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map_err(|error| format!("--film needs `{DECODER}`: {error}"))?;
    Ok(())
}

/// A film for one viewer.
pub(super) struct Film {
    path: PathBuf,
    decoder: Option<Decoder>,
}

impl Film {
    pub(super) fn new(path: &Path) -> Film {
        Film { path: path.to_owned(), decoder: None }
    }
}

struct Decoder {
    child: Child,
    out: ChildStdout,
    /// The command's width, height and depth.
    form: (u16, u16, u8),
    /// The frame of the signal with which the film began.
    first: u32,
    /// Pictures read, the last of which is `picture`.
    read: u32,
    picture: Vec<u8>,
    next: Vec<u8>,
    over: bool,
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command's pictures are like.
fn form(command: &Command) -> (u16, u16, u8) {
    (command.width, command.height, command.depth)
}

impl Decoder {
    fn begin(film: &Path, first: u32, command: &Command) -> Option<Decoder> {
        let (width, height, depth) = form(command);
        let pixels = match depth {
            8 => "gray",
            24 => "rgb24",
            _ => return None,
        };
        let len = line_len(command) * usize::from(height);
        let len = Some(len).filter(|len| (1..=PICTURE_MAX).contains(len))?;
        let filter = format!("fps={RATE},scale={width}:{height}");
        let mut child = std::process::Command::new(DECODER)
            .args(["-nostdin", "-loglevel", "error", "-threads", "1"])
            .args(["-i", &format!("file:{}", film.display()), "-an", "-vf", &filter])
            .args(["-f", "rawvideo", "-pix_fmt", pixels, "pipe:1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let out = child.stdout.take()?;
        let (picture, next) = (vec![0; len], vec![0; len]);
        Some(Decoder {
            child,
            out,
            form: form(command),
            first,
            read: 0,
            picture,
            next,
            over: false,
        })
    }

    /// Reads on to the picture of this frame of the signal, or to the last one.
    fn advance(&mut self, frame: u32) {
        while !self.over && self.read <= frame.saturating_sub(self.first) {
            match self.out.read_exact(&mut self.next) {
                Ok(()) => std::mem::swap(&mut self.picture, &mut self.next),
                Err(_) => self.over = true,
            }
            self.read += 1;
        }
    }
}

impl Pictures for Film {
    fn lines(&mut self, frame: u32, command: &Command, line: u16, pixels: &mut [u8]) {
        if self.decoder.as_ref().is_none_or(|decoder| decoder.form != form(command)) {
            self.decoder = Decoder::begin(&self.path, frame, command);
        }
        let Some(decoder) = &mut self.decoder else { return };
        decoder.advance(frame);
        let from = usize::from(line) * line_len(command);
        if let Some(lines) = decoder.picture.get(from..from + pixels.len()) {
            pixels.copy_from_slice(lines);
        }
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test says that it skips")]
mod tests {
    use super::*;
    use lastmeter_wire::control::vidboard::{Code, Mode};

    #[test]
    fn a_film_goes_on_with_the_signal_and_its_last_picture_stays() {
        if let Err(why) = check(Path::new("/dev/null")) {
            println!("SKIP: {why}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film.y4m");
        let mut film = b"YUV4MPEG2 W16 H8 F30:1 Ip A1:1 Cmono\n".to_vec();
        for picture in 0..5u8 {
            film.extend_from_slice(b"FRAME\n");
            film.extend((0..128u8).map(|at| at + picture * 20));
        }
        std::fs::write(&path, film).unwrap();
        let command = Command {
            code: Code::VideoRequest,
            depth: 8,
            sequence: 0,
            reply_vci: 1,
            width: 16,
            height: 8,
            lines: 4,
            burst: 1,
            burst_delay: 1,
            frame_delay: 0,
            mode: Mode::OnRequest,
            source: 0,
            crop: (0, 0),
            reply_port: 0,
        };
        let mut film = Film::new(&path);
        // The film begins at frame 70, of which the lower half is asked for; then frames are left out.
        for (frame, line, picture) in [(70, 4, 0u8), (71, 0, 1), (73, 4, 3), (99, 0, 4)] {
            let mut pixels = [0; 64];
            film.lines(frame, &command, line, &mut pixels);
            let expected: Vec<u8> =
                (0..64u8).map(|at| at + 16 * line as u8 + picture * 20).collect();
            assert_eq!(pixels[..], expected[..], "frame {frame}");
        }
        // Another size begins the film anew; a depth that no picture has leaves the pixels alone.
        let mut pixels = [7; 32];
        film.lines(200, &Command { width: 8, ..command }, 0, &mut pixels);
        assert_ne!(pixels, [7; 32]);
        let mut pixels = [7; 32];
        film.lines(201, &Command { width: 8, depth: 16, ..command }, 0, &mut pixels);
        assert_eq!(pixels, [7; 32]);
    }
}
