//! What SDP (RFC 8866) says of a stream of sound as L16 in RTP (RFC 3551).
//!
//! ```
//! use lastmeter_wire::sdp::Sound;
//! let text = "v=0\r\nm=audio 0 RTP/AVP 97\r\na=rtpmap:97 L16/48000/1\r\n";
//! assert_eq!(Sound::parse(text)?, Sound { kind: 97, rate: 48_000, channels: 1 });
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::Error;

/// The longest description.
pub const TEXT_MAX: usize = 4096;
/// The payload type that a description defines.
pub const DYNAMIC: u8 = 97;
/// Types that mean L16 without being described: 44.1 kHz with two channels, and with one (RFC 3551, table 4).
const STATIC: [(u8, u16); 2] = [(10, 2), (11, 1)];
const STATIC_RATE: u32 = 44_100;

/// A stream of L16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sound {
    /// The payload type.
    pub kind: u8,
    /// Samples of a channel in a second.
    pub rate: u32,
    /// Samples of a frame.
    pub channels: u16,
}

impl Sound {
    /// The first stream of sound in a description, in its first form.
    ///
    /// # Errors
    /// If there is none, or it is not L16.
    pub fn parse(text: &str) -> Result<Sound, Error> {
        let wrong = |what: &'static str, found: usize| Error::Invalid { what, found: found as u64 };
        if text.len() > TEXT_MAX {
            return Err(wrong("SDP length", text.len()));
        }
        let mut lines = text.lines().skip_while(|line| !line.starts_with("m=audio "));
        let words =
            lines.next().ok_or(wrong("SDP without sound, of lines", text.lines().count()))?;
        let kind = words.split(' ').nth(3).and_then(|word| word.trim().parse::<u8>().ok());
        let kind = kind.filter(|kind| *kind < 128).ok_or(wrong("SDP payload type", words.len()))?;
        let own = lines.take_while(|line| !line.starts_with("m="));
        let mapped = own.filter_map(|line| line.strip_prefix("a=rtpmap:")?.split_once(' '));
        let coding = mapped.filter(|(number, _)| number.parse() == Ok(kind)).map(|it| it.1).next();
        let Some(coding) = coding else {
            let known = STATIC.iter().find(|(number, _)| *number == kind);
            let (_, channels) = known.ok_or(wrong("SDP payload type", kind.into()))?;
            return Ok(Sound { kind, rate: STATIC_RATE, channels: *channels });
        };
        let mut parts = coding.trim().split('/');
        if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case("L16")) {
            return Err(wrong("SDP coding: only L16 is known; payload type", kind.into()));
        }
        let rate = parts.next().and_then(|word| word.parse().ok());
        let channels = parts.next().map_or(Some(1), |word| word.parse().ok());
        match (rate, channels) {
            (Some(rate), Some(channels)) => Ok(Sound { kind, rate, channels }),
            _ => Err(wrong("SDP rate and channels, of payload type", kind.into())),
        }
    }
    /// Its lines of a description, for a port.
    pub fn lines(&self, port: u16) -> String {
        let Sound { kind, rate, channels } = self;
        format!(
            "m=audio {port} RTP/AVP {kind}\r\na=rtpmap:{kind} L16/{rate}/{channels}\r\n\
             a=ptime:10\r\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_l16_are_known_and_nothing_else() {
        let sound = Sound { kind: 96, rate: 8000, channels: 2 };
        let text = format!("v=0\r\nm=video 0 RTP/AVP 26\r\n{}", sound.lines(5004));
        assert_eq!(Sound::parse(&text), Ok(sound));
        let fixed = Sound::parse("m=audio 0 RTP/AVP 10\n");
        assert_eq!(fixed, Ok(Sound { kind: 10, rate: 44_100, channels: 2 }));
        for wrong in [
            "",
            "m=video 0 RTP/AVP 10\n",
            "m=audio 0 RTP/AVP 0\n",
            "m=audio 0 RTP/AVP 200\na=rtpmap:200 L16/8000\n",
            "m=audio 0 RTP/AVP 97\na=rtpmap:97 opus/48000/2\n",
            "m=audio 0 RTP/AVP 97\na=rtpmap:97 L16/fast\n",
            // The definition belongs to another stream of the description.
            "m=audio 0 RTP/AVP 97\nm=audio 0 RTP/AVP 97\na=rtpmap:97 L16/8000\n",
        ] {
            assert!(Sound::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(Sound::parse(&text.repeat(60)).is_err(), "too long");
    }
}
