//! Where frames come from: the test pattern, or `ffmpeg` in a process of its own.
//!
//! ```text
//! pattern          drawn when it is asked for
//! file:PATH        decoded as it is asked for, from the beginning again after its end
//! v4l2:/dev/video0 a camera of this host, which does not wait
//! x11::0           an X screen, which does not wait
//! ```

use super::frame::{Layout, Pixels};
use super::pattern::{HEIGHT_MIN, Pattern, WIDTH_MIN};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Gives frames.
pub trait Source: Send {
    /// The next one.
    ///
    /// # Errors
    /// If there are no more.
    fn capture(&mut self, number: u32, clock: u64) -> Result<Pixels, String>;
    /// Whether its frames come whether or not they are wanted.
    fn is_live(&self) -> bool {
        false
    }
}

impl Source for Pattern {
    fn capture(&mut self, number: u32, clock: u64) -> Result<Pixels, String> {
        Ok(self.draw(number, clock))
    }
}

/// Frames from a process; it is ended with the source.
struct Decoder {
    child: Child,
    empty: Pixels,
    is_live: bool,
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Source for Decoder {
    fn capture(&mut self, _number: u32, _clock: u64) -> Result<Pixels, String> {
        let mut pixels = self.empty.clone();
        let out = self.child.stdout.as_mut().ok_or("ffmpeg has no output")?;
        out.read_exact(&mut pixels.bytes)
            .map_err(|error| format!("source: ffmpeg gives no more frames: {error}"))?;
        Ok(pixels)
    }
    fn is_live(&self) -> bool {
        self.is_live
    }
}

/// A source by its name.
///
/// # Errors
/// If there is none of this name, or ffmpeg cannot be run.
pub fn open(
    name: &str,
    folder: &Path,
    layout: Layout,
    (width, height): (u16, u16),
    rate: f64,
) -> Result<Box<dyn Source>, String> {
    let (rate, size) = (format!("{rate}"), format!("{width}x{height}"));
    let input: Vec<String> = match name.split_once(':') {
        None if name == "pattern" => {
            if width < WIDTH_MIN || height < HEIGHT_MIN {
                return Err(format!(
                    "size: a pattern has at least {WIDTH_MIN}x{HEIGHT_MIN} pixels"
                ));
            }
            return Ok(Box::new(Pattern::new(layout, width, height)));
        }
        Some(("file", path)) => {
            let path = folder.join(path);
            std::fs::File::open(&path)
                .map_err(|error| format!("source: {}: {error}", path.display()))?;
            let path = format!("file:{}", path.display());
            ["-stream_loop", "-1", "-i", &path].map(str::to_owned).to_vec()
        }
        Some(("v4l2", device)) => {
            let options = ["-f", "v4l2", "-framerate", &rate, "-video_size", &size, "-i", device];
            options.map(str::to_owned).to_vec()
        }
        Some(("x11", screen)) => {
            let options =
                ["-f", "x11grab", "-framerate", &rate, "-video_size", &size, "-i", screen];
            options.map(str::to_owned).to_vec()
        }
        _ => {
            let known = "\"pattern\", \"file:PATH\", \"v4l2:/dev/video0\", \"x11::0\"";
            return Err(format!("source: {name:?}: write {known}"));
        }
    };
    let is_live = !name.starts_with("file:");
    let format = if layout == Layout::Grey { "gray" } else { "rgb24" };
    let filter = format!("fps={rate},scale={width}:{height}");
    let child = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-fflags", "nobuffer"])
        .args(input)
        .args(["-an", "-vf", &filter, "-f", "rawvideo", "-pix_fmt", format, "pipe:1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("source: ffmpeg: {error}"))?;
    Ok(Box::new(Decoder { child, empty: Pixels::new(layout, width, height), is_live }))
}
