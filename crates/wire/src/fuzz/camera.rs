//! The camera's formats, and the names by which it is found.

use crate::{camera, dns, requests};

/// A camera's commands and pieces: what parses is emitted as it was.
pub fn fuzz_camera(input: &[u8]) {
    if let Ok(command) = camera::Command::parse(input) {
        assert_eq!(command.emit().as_deref(), Ok(input));
    }
    if let Ok((piece, data)) = camera::Piece::parse(input) {
        assert!(piece.offset as usize + data.len() <= camera::FRAME_MAX);
        let mut again = Vec::new();
        piece.emit(data, &mut again);
        assert_eq!(camera::Piece::parse(&again), Ok((piece, data)));
    }
}

/// Datagrams of cells: whatever comes, memory is bounded, and a piece after it arrives.
pub fn fuzz_camera_cells(input: &[u8]) {
    use camera::cells::{Cells, datagram, segment};
    let (mut receiver, mut cells, mut count) = (Cells::new(7), Vec::new(), 0);
    let _ = receiver.receive(input, |piece| assert!(!piece.is_empty()));
    // The first ends whatever may have begun.
    (0..2).for_each(|_| segment(7, b"piece", &mut cells).expect("it is short"));
    receiver
        .receive(&datagram(&cells), |piece| count += usize::from(piece == b"piece"))
        .expect("whole cells");
    assert!(count > 0);
}

/// H.264: a unit comes out of its packets as it went in.
pub fn fuzz_camera_h264(input: &[u8]) {
    use camera::h264::{Part, Splitter, open, payloads};
    let _ = open(input);
    let mut splitter = Splitter::default();
    splitter.push(input).expect("it is short");
    let mut units: Vec<_> = std::iter::from_fn(|| splitter.next()).collect();
    units.extend(splitter.rest());
    assert!(units.iter().map(Vec::len).sum::<usize>() <= input.len());
    for unit in units.iter().filter(|unit| matches!(camera::h264::kind(unit), 1..=23)) {
        let mut joined = Vec::new();
        for payload in payloads(unit, 64) {
            match open(&payload).expect("it is ours") {
                Part::Whole(bytes) => joined.extend_from_slice(bytes),
                Part::Piece { first, header, bytes } => {
                    joined.extend(first.then_some(header));
                    joined.extend_from_slice(bytes);
                }
            }
        }
        assert_eq!(joined, *unit);
    }
}

/// DNS: what parses is emitted and parsed to the same.
pub fn fuzz_dns(input: &[u8]) {
    let Ok(message) = dns::Message::parse(input) else { return };
    let again = message.emit().expect("it was parsed");
    assert_eq!(dns::Message::parse(&again), Ok(message));
}

/// A JPEG that RTP can carry comes out of its packets as it went in.
pub fn fuzz_camera_rtp(input: &[u8]) {
    use camera::rtp::{Payload, Scan};
    let _ = Payload::parse(input);
    let Ok(scan) = Scan::of(input) else { return };
    let (mut data, mut ended) = (Vec::<u8>::new(), false);
    for (bytes, is_last) in scan.payloads(200) {
        assert!(bytes.len() <= 200 && !ended);
        let payload = Payload::parse(&bytes).expect("it is ours");
        let found = (payload.offset as usize, payload.width, payload.height);
        assert_eq!(found, (data.len(), scan.width, scan.height));
        data.extend(payload.data);
        ended = is_last;
    }
    assert!(ended && data == scan.data);
}

/// Requests in text: none is longer than what came.
pub fn fuzz_camera_text(input: &[u8]) {
    if let Ok(Some((item, len))) = requests::parse(input) {
        assert!(len <= input.len() && len > 0);
        let requests::Item::Request(request) = item else { return };
        request.header("transport").map(requests::Transport::choose);
    }
}
