//! H.264 of a file, passed through to viewers by RTSP as it is: not decoded, not encoded.
//!
//! ```text
//! file -> ffmpeg, which copies -> units -> RTP (RFC 6184)       a process for each viewer
//! ```
//!
//! A frame policy cannot see what is not decoded, so only clients without policies may have it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use lastmeter_wire::camera::h264::{self, Splitter, begins_picture};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Its payload type, of those that a session defines.
pub(super) const KIND: u8 = 96;
/// Units that are looked through for parameters.
const UNITS_MAX: usize = 64;

/// A file's units, at the pace of its clock.
pub(super) struct Units {
    child: Child,
    splitter: Splitter,
}

impl Drop for Units {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Units {
    /// Of a file, from the beginning again after its end.
    pub(super) fn open(file: &Path) -> Result<Units, String> {
        let child = Command::new("ffmpeg")
            .args(["-nostdin", "-loglevel", "error", "-re", "-stream_loop", "-1", "-i"])
            .arg(format!("file:{}", file.display()))
            .args(["-an", "-c:v", "copy", "-bsf:v", "h264_mp4toannexb", "-f", "h264"])
            .args(["-flush_packets", "1", "pipe:1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("ffmpeg: {error}"))?;
        Ok(Units { child, splitter: Splitter::default() })
    }
    /// The next one.
    pub(super) fn next(&mut self) -> Result<Vec<u8>, String> {
        let mut block = vec![0; 1 << 16];
        loop {
            if let Some(unit) = self.splitter.next() {
                return Ok(unit);
            }
            let out = self.child.stdout.as_mut().ok_or("ffmpeg has no output")?;
            let count = out.read(&mut block).map_err(|error| error.to_string())?;
            if count == 0 {
                return Err("ffmpeg gives no H.264".to_owned());
            }
            self.splitter.push(&block[..count]).map_err(|error| error.to_string())?;
        }
    }
}

/// What a viewer must know before the first picture: the parameters of the sequence and of its pictures.
pub(super) struct Parameters {
    sequence: Vec<u8>,
    picture: Vec<u8>,
}

impl Parameters {
    /// Reads them from a file's beginning.
    pub(super) fn read(file: &Path) -> Result<Parameters, String> {
        let (mut units, mut sequence, mut picture) = (Units::open(file)?, None, None);
        for _ in 0..UNITS_MAX {
            let unit = units.next()?;
            match h264::kind(&unit) {
                h264::SEQUENCE if unit.len() >= 4 => sequence = Some(unit),
                h264::PICTURE => picture = Some(unit),
                _ => {}
            }
            if let (Some(sequence), Some(picture)) = (&sequence, &picture) {
                return Ok(Parameters { sequence: sequence.clone(), picture: picture.clone() });
            }
        }
        Err("the file's H.264 has no parameters".to_owned())
    }
    /// The lines of a description (SDP).
    pub(super) fn describe(&self) -> String {
        let profile: String = self.sequence[1..4].iter().map(|it| format!("{it:02X}")).collect();
        let (sequence, picture) = (BASE64.encode(&self.sequence), BASE64.encode(&self.picture));
        format!(
            "m=video 0 RTP/AVP {KIND}\r\na=rtpmap:{KIND} H264/90000\r\n\
             a=fmtp:{KIND} packetization-mode=1;\
             profile-level-id={profile};sprop-parameter-sets={sequence},{picture}\r\n"
        )
    }
}

/// Gathers units to pictures: whatever comes before a slice that begins a picture belongs to it.
#[derive(Default)]
pub(super) struct Pictures {
    units: Vec<Vec<u8>>,
    has_slice: bool,
}

impl Pictures {
    /// Adds a unit; returns the picture that was complete before it.
    pub(super) fn add(&mut self, unit: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        let is_slice = matches!(h264::kind(&unit), 1..=h264::KEY);
        let ends = self.has_slice && (!is_slice || begins_picture(&unit));
        let whole = ends.then(|| std::mem::take(&mut self.units));
        self.has_slice = is_slice || self.has_slice && !ends;
        self.units.push(unit);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_written_as_others_read_them() {
        let known = Parameters { sequence: vec![0x67, 0x42, 0xc0, 0x1e], picture: vec![0x68, 1] };
        let text = known.describe();
        assert!(
            text.contains("profile-level-id=42C01E;sprop-parameter-sets=Z0LAHg==,aAE="),
            "{text}"
        );
    }

    #[test]
    fn pictures_are_whole() {
        let mut pictures = Pictures::default();
        let (parameters, first, second) = (vec![0x67, 1], vec![0x65, 0x80], vec![0x41, 0x20]);
        assert_eq!(pictures.add(parameters.clone()), None);
        assert_eq!(pictures.add(first.clone()), None);
        // The second slice of the same picture, then another picture.
        assert_eq!(pictures.add(second.clone()), None);
        let next = vec![0x41, 0x9a];
        assert_eq!(pictures.add(next.clone()), Some(vec![parameters.clone(), first, second]));
        assert_eq!(pictures.add(parameters), Some(vec![next]));
    }
}
