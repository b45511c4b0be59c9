//! Hostile streams of bytes on the viewers' port: none ends the display, keeps a place, or makes it hold more.

use super::tests::{GUEST, OWNER, start, viewer};
use super::*;
use crate::display::viewer::Viewer;
use lastmeter_base::Stream as Random;
use lastmeter_wire::rfb::{Area, Message, PixelFormat, encoding};
use std::io::{ErrorKind, Read, Write};

/// Streams at a time.
const TOGETHER: u64 = 4;
/// Memory that the process may hold more at the end than after its first streams, however many there were.
const GROWTH_MAX: u64 = 48 << 20;
/// Streams after which memory is compared, per thread.
const WARM: u64 = 500;

/// How many streams there are in all; `LASTMETER_STREAMS` says it.
fn streams() -> u64 {
    std::env::var("LASTMETER_STREAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

/// Bytes of memory that the process holds.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

/// A connection. When all ports of this host are used up, by the connections before, the next is free soon.
fn connect(address: SocketAddr) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(
                error.kind() == ErrorKind::AddrNotAvailable && began.elapsed() < PATIENCE,
                "{error}"
            ),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Messages of a viewer, many of them sound; then bytes are changed, cut, repeated.
fn messages(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sides = [0, 1, 60, 160, 1000, 65_535];
    for _ in 0..1 + random.below(8) {
        let [x, y, w, h] = std::array::from_fn(|_| sides[random.below(6) as usize]);
        let area = Area { x, y, w, h };
        let flags = random.bits() as u32;
        bytes.extend(match random.below(9) {
            0 => Message::Format(PixelFormat::NATIVE).emit(),
            1 => {
                let known = [encoding::RAW, encoding::TIGHT, encoding::ZRLE, encoding::FENCE];
                let known = known.iter().map(|one| one ^ random.below(2) as i32);
                Message::Encodings(known.collect()).emit()
            }
            2 => Message::Key { down: flags & 1 != 0, key: flags }.emit(),
            3 => Message::Cut(vec![b'x'; random.below(300) as usize]).emit(),
            4 => Message::Continuous { enable: flags & 1 != 0, area }.emit(),
            5 => Message::Fence { flags, payload: vec![7; random.below(65) as usize] }.emit(),
            _ => Message::Update { incremental: flags & 1 != 0, area }.emit(),
        });
    }
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(3) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at + 1),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

/// One stream, and what comes back until the display closes; false if there was no place for it.
fn stream(address: SocketAddr, random: &mut Random) -> bool {
    let noise = |random: &mut Random| -> Vec<u8> {
        (0..random.below(300)).map(|_| random.bits() as u8).collect()
    };
    // Let in as a client, and nonsense behind it; one in twenty, as these take a turn each way.
    if random.below(20) == 0 {
        let stream = connect(address);
        let own = stream.try_clone().expect("cloned");
        let Ok(mut viewer) = Viewer::connect(stream, Some(GUEST)) else { return false };
        let _ = viewer.noise(&messages(random));
        end(own);
        return true;
    }
    let begin: &[&[u8]] = &[
        b"",
        b"RFB 003.008\n",
        b"RFB 003.008\n\x02",
        b"RFB 003.008\n\x13\0\x02",
        b"RFB 003.003\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ];
    let begin = begin[random.below(begin.len() as u64) as usize];
    let rest = if random.below(2) == 0 { noise(random) } else { messages(random) };
    let mut own = connect(address);
    let _ = own.write_all(&[begin, &rest].concat());
    end(own)
}

/// Says no more, and waits until the display closes; false if it closed without a word.
fn end(mut stream: TcpStream) -> bool {
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let (mut heard, mut bytes) = (false, [0; 16 << 10]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return heard,
            Ok(_) => heard = true,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return heard,
            Err(error) => panic!("the display holds a connection that has ended: {error}"),
        }
    }
}

#[test]
fn no_stream_of_bytes_ends_a_display_keeps_a_place_or_makes_it_grow() {
    let (server, count) = (start(), streams());
    let address = server.viewers.expect("an address");
    let each = (count / TOGETHER).max(WARM);
    let warm = std::sync::Barrier::new(TOGETHER as usize);
    let (mut before, mut refused) = (0, 0);
    let run = |thread: u64| {
        let mut random = Random::new(6143 + thread, "streams");
        let mut refused = 0;
        (0..WARM).for_each(|_| refused += u64::from(!stream(address, &mut random)));
        warm.wait();
        let held = resident();
        for number in WARM..each {
            refused += u64::from(!stream(address, &mut random));
            // Others are served meanwhile.
            if number % 1000 == 0 {
                let mut seen = viewer(&server, Some(OWNER)).expect("let in");
                seen.update(false).expect("an update");
            }
        }
        (held, refused)
    };
    std::thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = (0..TOGETHER).map(|thread| scope.spawn(move || run(thread))).collect();
        for one in all {
            let (held, none) = one.join().expect("no panic");
            before = before.max(held);
            refused += none;
        }
    });
    // Each of them was heard out or told that it is wrong; there were places for all.
    assert!(refused < count / 2, "{refused} of {count} streams were closed without a word");
    let began = Instant::now();
    while server.clients[0].load(Ordering::Relaxed) > 0 {
        assert!(began.elapsed() < PATIENCE + PATIENCE, "places are kept");
        std::thread::sleep(Duration::from_millis(10));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes more after {count} streams");
    viewer(&server, Some(OWNER)).expect("let in").update(false).expect("an update");
}
