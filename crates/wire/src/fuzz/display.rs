//! The display's formats: RFB, and the frames of browsers that carry it.

use crate::{rfb, websocket};

/// Messages of RFB: what parses is emitted and parsed to the same.
pub fn fuzz_rfb(input: &[u8]) {
    if let Ok(Some((message, len))) = rfb::Message::parse(input) {
        assert!(len <= input.len());
        let again = message.emit();
        assert_eq!(rfb::Message::parse(&again), Ok(Some((message, again.len()))));
    }
    if let Some(Ok((init, _))) = input.first_chunk().map(rfb::Init::parse) {
        let mut bytes = Vec::new();
        init.format.put(init.format.pixel(0x0080_4020), &mut bytes);
        assert_eq!(bytes.len(), init.format.width());
    }
}

/// Frames of WebSocket: heads are emitted as parsed, and taking bytes one by one gives what taking all does.
pub fn fuzz_websocket(input: &[u8]) {
    if let Ok(Some((head, len))) = websocket::Head::parse(input) {
        assert!(len <= websocket::HEAD_MAX);
        let again = head.emit();
        assert_eq!(websocket::Head::parse(&again), Ok(Some((head, again.len()))));
    }
    let take = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut incoming, mut data, mut said) = (websocket::Incoming::default(), Vec::new(), 0);
        for mut piece in pieces {
            loop {
                match incoming.take(piece, &mut data) {
                    Ok(Some(_)) => (said, piece) = (said + 1, &[]),
                    Ok(None) => break,
                    Err(_) => return (data, said, false),
                }
            }
        }
        (data, said, true)
    };
    let (whole, single) = (take(&mut std::iter::once(input)), take(&mut input.chunks(1)));
    assert!(whole.0.len() <= input.len());
    assert_eq!(whole, single);
}
