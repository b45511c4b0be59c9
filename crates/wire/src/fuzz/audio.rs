//! Sound's formats: RTP with its reports, WAV files, descriptions, and what devices answer.

use crate::{requests, rtp, sdp, wav};

/// RTP: what is left of a packet was in it; a header without extras and a report come back as they were.
pub fn fuzz_rtp(input: &[u8]) {
    if let Ok(packet) = rtp::Packet::parse(input) {
        assert!(packet.payload.len() + rtp::RTP_LEN <= input.len());
        let rtp::Packet { kind, is_last, sequence, timestamp, source, .. } = packet;
        let head = rtp::header(kind, is_last, sequence, timestamp, source);
        let again = [&head[..], packet.payload].concat();
        assert_eq!(rtp::Packet::parse(&again), Ok(packet));
        if let Ok(samples) = rtp::samples(packet.payload) {
            let mut bytes = Vec::new();
            rtp::emit_samples(&samples, &mut bytes);
            assert_eq!(bytes, packet.payload);
        }
    }
    if let Ok(report) = rtp::Report::parse(input) {
        assert_eq!(rtp::Report::parse(&report.emit()), Ok(report));
        if let Some(time) = report.since_1970() {
            // Nanoseconds are coarser than 2^-32 s.
            assert!(report.clock - rtp::Report::clock_of(time) <= 5);
        }
    }
}

/// WAV: no more samples than bytes, and they come back as they were.
pub fn fuzz_wav(input: &[u8]) {
    let Ok((format, samples)) = wav::parse(input) else { return };
    assert!(samples.len() * 2 + wav::HEADER_LEN <= input.len());
    let mut again = wav::header(format, samples.len() as u32 * 2).to_vec();
    samples.iter().for_each(|sample| again.extend(sample.to_le_bytes()));
    assert_eq!(wav::parse(&again), Ok((format, samples)));
}

/// SDP: a stream that is found is described as itself.
pub fn fuzz_sdp(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(sound) = sdp::Sound::parse(text) {
        assert_eq!(sdp::Sound::parse(&sound.lines(5004)), Ok(sound));
    }
}

/// Answers of RTSP: none is longer than what came.
pub fn fuzz_rtsp_answer(input: &[u8]) {
    if let Ok(Some((answer, len))) = requests::response(input) {
        assert!(len <= input.len() && answer.body.len() <= requests::BODY_MAX);
        answer.header("transport").map(requests::server_port);
    }
}
