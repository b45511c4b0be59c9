//! Viewers behind slow links: more updates of poorer pictures, and exact ones once nothing changes.

use super::tests::{area, serve};
use super::*;
use crate::display::screen::Rows;
use crate::display::viewer::Viewer;
use lastmeter_base::Stream as Random;
use lastmeter_wire::rfb::{Message, encoding};
use std::io::{Read, Write};

/// Width and height of the film.
const SIZE: (u16, u16) = (320, 240);
/// Bytes a second of a slow link.
const RATE: f64 = 100e3;
/// Time between its frames.
const FRAME: Duration = Duration::from_millis(20);
/// How long each viewer looks.
const TIME: Duration = Duration::from_secs(3);
/// A viewer that gets nothing for longer has failed.
const SILENCE: Duration = Duration::from_secs(20);

/// A link to a server that carries so many bytes a second to the viewer, as a bucket of tokens does.
fn link(to: SocketAddr, rate: f64) -> TcpStream {
    /// Bytes carried at once: a packet's.
    const PACKET: usize = 1460;
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let viewer = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (mut near, _) = listener.accept().expect("accepted");
    let mut far = TcpStream::connect(to).expect("connected");
    for stream in [&viewer, &near, &far] {
        stream.set_nodelay(true).expect("set");
    }
    let (mut back, mut there) =
        (near.try_clone().expect("cloned"), far.try_clone().expect("cloned"));
    std::thread::spawn(move || std::io::copy(&mut back, &mut there));
    std::thread::spawn(move || {
        let (mut bytes, mut due) = ([0; PACKET], Instant::now());
        while let Ok(len @ 1..) = far.read(&mut bytes) {
            due = due.max(Instant::now()) + Duration::from_secs_f64(len as f64 / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if near.write_all(&bytes[..len]).is_err() {
                return;
            }
        }
    });
    viewer
}

/// Something like a photograph that moves: smooth, with noise.
fn frame(random: &mut Random, number: u32) -> Vec<u32> {
    let (w, h) = (u32::from(SIZE.0), u32::from(SIZE.1));
    let mut pixel = |x: u32, y: u32| {
        let noise = random.bits() as u32 & 0x000f_0f0f;
        ((x + number) / 2 % 200) << 16 | ((y + 3 * number) % 200) << 8 | ((x + y) / 3 % 200) | noise
    };
    (0..h).flat_map(|y| (0..w).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect()
}

/// What a viewer got of a film.
#[derive(Debug)]
struct Got {
    /// Updates a second.
    rate: f64,
    /// Bytes of an update.
    bytes: f64,
    /// The first step of the last JPEG's quantiser.
    coarseness: u8,
}

/// Looks at the film, and then until all is exact.
fn look(mut viewer: Viewer, server: &Server, known: &[i32], over: &AtomicBool) -> Got {
    viewer.send(&Message::Encodings(known.to_vec())).expect("sent");
    let continuous = known.contains(&encoding::CONTINUOUS);
    viewer.update(false).expect("the first");
    if continuous {
        viewer.send(&Message::Continuous { enable: true, area: viewer.whole() }).expect("sent");
    }
    let next = |viewer: &mut Viewer| match continuous {
        true => viewer.receive().expect("an update"),
        false => viewer.update(true).expect("an update"),
    };
    let (began, bytes, mut updates) = (Instant::now(), viewer.bytes, 0);
    while !over.load(Ordering::Relaxed) {
        next(&mut viewer);
        updates += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    let got = Got {
        rate: f64::from(updates) / seconds,
        bytes: (viewer.bytes - bytes) as f64 / f64::from(updates),
        coarseness: viewer.coarseness.expect("there were JPEGs"),
    };
    let exact = server.display.adapt.still.is_some();
    let (screen, began) = (&server.display.screen, Instant::now());
    while exact && viewer.pixels != screen.read(screen.whole()) {
        assert!(began.elapsed() < SILENCE, "it does not become exact: {got:?}");
        next(&mut viewer);
    }
    got
}

#[allow(clippy::print_stdout, reason = "tests say what they measured and what they skip")]
#[test]
fn a_slow_link_gets_more_updates_of_poorer_pictures_and_then_exact_ones() {
    let start = |more: &str| {
        let (w, h) = SIZE;
        serve(&format!("size = '{w}x{h}'\nlisten = '127.0.0.1:0'\nquality = 90\n[adapt]\n{more}"))
    };
    let (own, fixed) = (start(""), start("lowest = 100\nstill = 'never'"));
    let plain = [encoding::TIGHT, encoding::QUALITY_0 + 9];
    let told = [encoding::TIGHT, encoding::QUALITY_0 + 9, encoding::FENCE, encoding::CONTINUOUS];
    let over = AtomicBool::new(false);
    let looking = |server: &Server, rate: f64, known: &[i32]| {
        let stream = link(server.viewers.expect("an address"), rate);
        stream.set_read_timeout(Some(SILENCE)).expect("set");
        let viewer = Viewer::connect(stream, None).expect("let in");
        look(viewer, server, known, &over)
    };
    let mut drawn = 0.0;
    let got: Vec<Got> = std::thread::scope(|scope| {
        let all = [&plain[..], &told].map(|known| {
            let looking = &looking;
            [(&fixed, RATE), (&own, RATE), (&own, 1e9)]
                .map(|(server, rate)| scope.spawn(move || looking(server, rate, known)))
        });
        let mut random = Random::new(2026, "film");
        let frames: Vec<Vec<u32>> = (0..16).map(|number| frame(&mut random, number)).collect();
        let began = Instant::now();
        for frame in frames.iter().cycle() {
            for server in [&own, &fixed] {
                let whole = area(0, 0, SIZE.0, SIZE.1);
                server.display.screen.put(whole, Rows::new(frame, SIZE.0.into()));
            }
            drawn += 1.0;
            if began.elapsed() > TIME {
                over.store(true, Ordering::Relaxed);
                break;
            }
            std::thread::sleep(FRAME);
        }
        // Those that wait for one more get it.
        for server in [&own, &fixed] {
            server.display.screen.fill(area(3, 3, 20, 20), 0x0012_3456);
        }
        all.into_iter().flatten().map(|one| one.join().expect("it saw all")).collect()
    });
    for of in got.chunks(3) {
        let [fixed, slow, fast] = of else { panic!("three each") };
        println!("as asked for {fixed:?}, adapted {slow:?}, on loopback {fast:?}");
        assert_eq!(fixed.coarseness, 3, "that of quality 90");
        assert!(slow.rate > 1.5 * fixed.rate, "more updates: {of:?}");
        assert!(slow.coarseness >= 2 * fixed.coarseness, "of poorer pictures: {of:?}");
        assert!(slow.coarseness > fast.coarseness, "than on loopback: {of:?}");
        assert!(slow.bytes < fixed.bytes, "with fewer bytes: {of:?}");
        if fast.rate < 0.95 * drawn / TIME.as_secs_f64() {
            println!("SKIP: on this busy machine updates queue on loopback, too");
            continue;
        }
        assert_eq!(fast.coarseness, fixed.coarseness, "as it asked for: {of:?}");
    }
}

/// What asks for no quality gets each pixel as it is, however slow its link.
#[test]
fn a_viewer_that_asks_for_exact_pictures_gets_them_over_a_slow_link() {
    let (w, h) = SIZE;
    let server = serve(&format!("size = '{w}x{h}'\nlisten = '127.0.0.1:0'\n"));
    let stream = link(server.viewers.expect("an address"), 2e6);
    stream.set_read_timeout(Some(SILENCE)).expect("set");
    let mut viewer = Viewer::connect(stream, None).expect("let in");
    viewer.send(&Message::Encodings(vec![encoding::TIGHT])).expect("sent");
    let (mut random, screen) = (Random::new(2026, "film"), &server.display.screen);
    for number in 0..5 {
        screen.put(screen.whole(), Rows::new(&frame(&mut random, number), w.into()));
        viewer.update(true).expect("an update");
        assert_eq!(viewer.pixels, screen.read(screen.whole()));
    }
    assert_eq!(viewer.coarseness, None);
}
