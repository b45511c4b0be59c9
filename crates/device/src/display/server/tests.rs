//! Displays with viewers and programs over sockets.

use super::*;
use crate::display::commands::Program;
use crate::display::encoding::rect;
use crate::display::screen::Rows;
use crate::display::viewer::Viewer;
use lastmeter_base::Stream as Random;
use lastmeter_plugin::host::Limits;
use lastmeter_wire::framebuffer::{HEADER_LEN, Header, Operation, status};
use lastmeter_wire::rfb::{Area, Message, PixelFormat, encoding};
use std::io::{Read, Write};

pub(super) const OWNER: &str = "the owner's own token";
pub(super) const GUEST: &str = "a guest of this house";

/// A screen of 160 by 120; a guest has 60 by 40 of it, at 50, 30.
pub(super) fn start() -> Server {
    let text = format!(
        "size = '160x120'\nlisten = '127.0.0.1:0'\ncommands = '127.0.0.1:0'\n\
         datagrams = '127.0.0.1:0'\ninput = ['owner']\nresize = ['owner']\n\
         [regions]\nguest = '60x40+50+30'\n\
         [clients.owner]\ntoken = \"{OWNER}\"\n[clients.guest]\ntoken = '{GUEST}'\nnumber = 7\n"
    );
    serve(&text)
}

pub(super) fn serve(text: &str) -> Server {
    let config = Config::parse(text).expect("sound");
    let host = Host::new(Limits { instances: 4, ..Limits::default() }).expect("a host");
    let display = config.display(Path::new("."), Arc::new(host)).expect("a display");
    Server::start(&config, Path::new("."), display, |_| ()).expect("it listens")
}

pub(super) fn program(server: &Server, token: &str) -> Program<TcpStream> {
    let stream = TcpStream::connect(server.programs.expect("an address")).expect("connected");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    Program::greet(stream, token).expect("let in")
}

pub(super) fn viewer(server: &Server, password: Option<&str>) -> Result<Viewer, String> {
    let stream = TcpStream::connect(server.viewers.expect("an address")).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    Viewer::connect(stream, password)
}

pub(super) fn area(x: u16, y: u16, w: u16, h: u16) -> Rect {
    Rect { x, y, w, h }
}

#[test]
fn a_viewer_sees_what_a_program_draws_in_each_encoding() {
    let server = start();
    let mut program = program(&server, OWNER);
    assert_eq!(program.size, (160, 120));
    for number in [encoding::RAW, encoding::HEXTILE, encoding::ZRLE, encoding::TIGHT] {
        let mut viewer = viewer(&server, Some(OWNER)).expect("let in");
        viewer.send(&Message::Encodings(vec![number, encoding::COPY])).expect("sent");
        viewer.update(false).expect("an update");
        assert_eq!(viewer.pixels, server.display.screen.read(server.display.screen.whole()));
        let mut random = Random::new(u64::from(number.unsigned_abs()), "pixels");
        for _ in 0..30 {
            let colour = random.bits() as u32 & 0x00ff_ffff;
            program.add(Operation::FILL, area(5, 5, 40, 30), &colour.to_le_bytes());
            let noise: Vec<u8> = (0..4 * 300).map(|_| random.bits() as u8).collect();
            program.add(Operation::PUT, area(70, 11, 20, 15), &noise);
            program.add(Operation::BLEND, area(75, 11, 20, 15), &noise);
            // A scroll.
            program.add(Operation::COPY, area(0, 0, 160, 110), &[0, 0, 0, 10]);
            assert_eq!(
                program.ask(Operation::SYNC, area(0, 0, 0, 0), &[]),
                Ok((status::DONE, vec![]))
            );
            viewer.update(true).expect("an update");
            assert_eq!(viewer.pixels, server.display.screen.read(server.display.screen.whole()));
        }
        assert!(viewer.rectangles.0 >= 30, "scrolls are copies: {:?}", viewer.rectangles);
    }
    let (status, pixels) = program.ask(Operation::READ, area(0, 0, 160, 120), &[]).expect("read");
    assert_eq!((status, pixels.len()), (status::DONE, 160 * 120 * 4));
    let ledger = server.display.updates.ledger("display", "0", 0.0);
    assert!(ledger.balance.latency_residual.abs() < 1e-9);
    assert!(ledger.paths[0].totals.delivered.packets >= 120);
}

#[test]
fn formats_of_viewers_are_kept() {
    let server = start();
    server.display.screen.fill(area(0, 0, 160, 120), 0x00ff_8040);
    for format in [
        PixelFormat {
            bits: 16,
            depth: 16,
            big_endian: false,
            max: [31, 63, 31],
            shift: [11, 5, 0],
        },
        PixelFormat { shift: [0, 8, 16], ..PixelFormat::NATIVE },
    ] {
        let mut viewer = viewer(&server, Some(OWNER)).expect("let in");
        viewer.send(&Message::Format(format)).expect("sent");
        viewer.send(&Message::Encodings(vec![encoding::ZRLE])).expect("sent");
        viewer.update(false).expect("an update");
        assert_eq!(viewer.pixels[0], format.colour(format.pixel(0x00ff_8040)));
    }
}

#[test]
fn updates_come_without_asking_when_they_are_wanted() {
    let server = start();
    let mut viewer = viewer(&server, Some(OWNER)).expect("let in");
    let known = vec![encoding::ZRLE, encoding::CONTINUOUS, encoding::FENCE];
    viewer.send(&Message::Encodings(known)).expect("sent");
    viewer.send(&Message::Continuous { enable: true, area: viewer.whole() }).expect("sent");
    viewer.receive().expect("the first");
    for colour in 1..20 {
        server.display.screen.fill(area(3, 3, 4, 4), colour);
        viewer.receive().expect("an update");
        assert_eq!(viewer.pixels[3 * 160 + 3], colour);
    }
}

#[test]
fn keys_and_the_pointer_reach_the_owner_and_nobody_else() {
    let server = start();
    let mut owner = program(&server, OWNER);
    assert_eq!(owner.ask(Operation::LISTEN, area(0, 0, 0, 0), &[]), Ok((0, vec![])));
    let mut guest = program(&server, GUEST);
    assert_eq!(guest.ask(Operation::LISTEN, area(0, 0, 0, 0), &[]), Ok((1, vec![])));
    let mut viewer = viewer(&server, Some(GUEST)).expect("let in");
    assert_eq!(viewer.size, (60, 40));
    viewer.send(&Message::Pointer { buttons: 1, x: 60, y: 0 }).expect("sent, beyond its screen");
    viewer.send(&Message::Pointer { buttons: 1, x: 59, y: 9 }).expect("sent");
    viewer.send(&Message::Key { down: true, key: 97 }).expect("sent");
    let (header, data) = owner.receive().expect("an event");
    let place = (header.area.x, header.area.y);
    assert_eq!((header.operation.0, place), (Operation::POINTER.0 | 128, (109, 39)));
    assert_eq!(data, [1, 0, 0, 0, 0, 0, 0, 7]);
    let (header, data) = owner.receive().expect("an event");
    assert_eq!((header.operation.0, data[0], data[7]), (Operation::KEY.0 | 128, 1, 97));
}

#[test]
fn who_shows_nothing_is_anyone_or_refused() {
    let server = start();
    assert!(viewer(&server, None).err().is_some_and(|why| why.contains("proof")));
    assert!(viewer(&server, Some("a wrong one")).err().is_some_and(|why| why.contains("password")));
    let server = serve(
        "size = '40x40'\nlisten = '127.0.0.1:0'\ncommands = '127.0.0.1:0'\n\
         [clients.anyone]\npolicies = ['look']\n\
         [policies.look]\nexpression = '(= operation update)'\n",
    );
    viewer(&server, None).expect("let in").update(false).expect("an update");
    let mut program = program(&server, "");
    let fill = program.ask(Operation::FILL, area(0, 0, 1, 1), &[1, 2, 3, 0]);
    assert_eq!(fill, Ok((status::DENIED, vec![])));
    let ledger = server.display.commands.ledger("display", "0", 0.0);
    assert_eq!(ledger.paths[0].stages[1].drops["look"], 1);
}

#[test]
fn a_policy_clips() {
    let server = serve(
        "size = '100x100'\nlisten = '127.0.0.1:0'\ncommands = '127.0.0.1:0'\n\
         [clients.anyone]\npolicies = ['window']\n\
         [policies.window]\nexpression = '(clip 20 20 50 50)'\n",
    );
    let mut program = program(&server, "");
    let pixels: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
    let put = program.ask(Operation::PUT, area(0, 0, 100, 100), &pixels);
    assert_eq!(put, Ok((status::CLIPPED, vec![])));
    let seen = server.display.screen.read(area(0, 0, 100, 100));
    for (at, pixel) in seen.iter().enumerate() {
        let inside = (20..70).contains(&(at % 100)) && (20..70).contains(&(at / 100));
        assert_eq!(*pixel, if inside { at as u32 } else { 0 });
    }
    server.display.screen.fill(area(0, 0, 100, 100), 5);
    let mut viewer = viewer(&server, None).expect("let in");
    viewer.update(false).expect("an update");
    assert_eq!(viewer.pixels.iter().filter(|pixel| **pixel == 5).count(), 2500);
}

/// Commands and messages that a stranger sends: a third are well formed.
fn hostile(random: &mut Random) -> Vec<u8> {
    let sides = [0, 1, 7, 40, 59, 60, 61, 110, 160, 1000, 65_535];
    let side = |random: &mut Random| sides[random.below(sides.len() as u64) as usize];
    let [x, y, w, h] = std::array::from_fn(|_| side(random));
    let operation = Operation(random.below(13) as u8);
    let pixels = usize::from(w) * usize::from(h) * 4;
    let sound = match operation {
        Operation::PUT | Operation::BLEND if pixels < 50_000 => pixels,
        Operation::COPY | Operation::FILL => 4,
        _ => 0,
    };
    let length = if random.below(3) == 0 { random.below(40) as usize } else { sound };
    let area = Area { x, y, w, h };
    let tag = random.bits() as u16;
    let header = Header { operation, flags: 0, tag, area, length: length as u32 };
    // Never as red as the owner's marks, which no mixture with it can make either.
    let byte = |at: usize, bits: u64| if at % 4 == 2 { bits as u8 & 0x1f } else { bits as u8 };
    let data = (0..length).map(|at| byte(at, at as u64 ^ random.bits()));
    header.emit().into_iter().chain(data).collect()
}

#[test]
fn who_only_connects_is_no_failure_and_who_stops_within_a_greeting_is() {
    let server = start();
    let serve = |sent: &'static [u8]| {
        commands::serve(&server.display, sent, std::io::sink(), || Ok(None), || ())
    };
    assert_eq!(serve(b""), Ok(()));
    assert!(serve(b"LM").is_err_and(|why| why.contains("the connection ended")));
}

/// The demonstration of Netstation's derived display, N-23: whatever a stranger sends, not a pixel outside of its part
/// changes, and none is read.
#[test]
fn a_stranger_stays_in_its_part() {
    let count = std::env::var("LASTMETER_COMMANDS").ok().and_then(|text| text.parse().ok());
    let count: u64 = count.unwrap_or(20_000);
    let server = start();
    let (screen, part) = (&server.display.screen, area(50, 30, 60, 40));
    let marks: Vec<u32> = (0..160 * 120).map(|at| 0x00a0_0000 | at).collect();
    screen.put(screen.whole(), Rows::new(&marks, 160));
    let before = screen.read(screen.whole());
    let mut random = Random::new(1997, "commands");
    let (reader, writer) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let (ours, theirs) = (writer.try_clone().expect("cloned"), reader.try_clone().expect("cloned"));
    let display = server.display.clone();
    let serving =
        std::thread::spawn(move || commands::serve(&display, reader, theirs, || Ok(None), || ()));
    // Pixels of the owner's part are marked; what is read back holds none of them.
    let marked = move |word: &[u8]| {
        let pixel = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let at = (pixel & 0xffff) as usize;
        pixel >> 16 == 0xa0 && at < 160 * 120 && {
            let place = area((at % 160) as u16, (at / 160) as u16, 1, 1);
            !place.within(part)
        }
    };
    let drained = std::thread::spawn(move || {
        let (mut ours, mut head, mut answers) = (std::io::BufReader::new(ours), [0; HEADER_LEN], 0);
        ours.read_exact(&mut head[..5]).expect("greeted");
        while ours.read_exact(&mut head).is_ok() {
            let header = Header::parse(&head);
            let mut data = vec![0; header.length as usize];
            ours.read_exact(&mut data).expect("whole");
            let outside = data.chunks_exact(4).any(marked);
            assert!(!outside, "read from outside: {:?}", rect(header.area));
            answers += 1;
        }
        answers
    });
    let mut guest = std::io::BufWriter::new(writer);
    let greeting = [&b"LMFB\x01"[..], &[GUEST.len() as u8], GUEST.as_bytes()].concat();
    guest.write_all(&greeting).expect("sent");
    for _ in 0..count {
        guest.write_all(&hostile(&mut random)).expect("sent");
    }
    guest.flush().expect("sent");
    guest.get_ref().shutdown(std::net::Shutdown::Write).expect("closed");
    serving.join().expect("no panic").expect("it ended well");
    let after = screen.read(screen.whole());
    let mut changed = 0;
    for (at, (before, after)) in before.iter().zip(&after).enumerate() {
        let place = area((at % 160) as u16, (at / 160) as u16, 1, 1);
        if !place.within(part) {
            assert_eq!(before, after, "at {place:?}");
        }
        changed += usize::from(before != after);
    }
    assert!(changed > 1000, "it did draw in its part: {changed}");
    drop(guest);
    assert!(drained.join().expect("nothing from outside") > 0, "it did read");
}

/// Messages that a stranger's viewer sends; colours stay comparable.
fn prying(random: &mut Random) -> Message {
    let sides = [0, 1, 39, 40, 59, 60, 61, 110, 160, 1000, 65_535];
    let [x, y, w, h] = std::array::from_fn(|_| sides[random.below(sides.len() as u64) as usize]);
    let (area, bits) = (Area { x, y, w, h }, random.bits());
    match random.below(8) {
        0 => {
            let all = [encoding::RAW, encoding::HEXTILE, encoding::ZRLE, encoding::TIGHT];
            let first = all[bits as usize % all.len()];
            let more = [encoding::COPY, encoding::FENCE, encoding::CONTINUOUS, encoding::CURSOR];
            let more = more.into_iter().enumerate().filter(|(at, _)| bits >> (8 + at) & 1 != 0);
            Message::Encodings(std::iter::once(first).chain(more.map(|(_, one)| one)).collect())
        }
        1 => Message::Continuous { enable: bits & 1 != 0, area },
        2 => Message::Fence { flags: bits as u32, payload: vec![7; (bits >> 32) as usize % 65] },
        3 => Message::Key { down: bits & 1 != 0, key: bits as u32 },
        4 => Message::Pointer { buttons: bits as u8, x, y },
        5 => Message::SetSize { w, h, screens: 1 },
        _ => Message::Update { incremental: bits & 1 != 0, area },
    }
}

/// A stranger that looks: whatever its viewer sends, no pixel from outside of its part comes back, and none changes.
#[test]
fn a_stranger_sees_its_part_n_23() {
    let count = std::env::var("LASTMETER_COMMANDS").ok().and_then(|text| text.parse().ok());
    let count: u64 = count.unwrap_or(20_000);
    let server = start();
    let (screen, part) = (&server.display.screen, area(50, 30, 60, 40));
    let marks: Vec<u32> = (0..160 * 120).map(|at| 0x00a0_0000 | at).collect();
    screen.put(screen.whole(), Rows::new(&marks, 160));
    let mut stranger = viewer(&server, Some(GUEST)).expect("let in");
    let (mut random, mut sent) = (Random::new(1997, "messages"), 0);
    while sent < count {
        for _ in 0..random.below(16) {
            stranger.send(&prying(&mut random)).expect("sent");
            sent += 1;
        }
        stranger.update(false).expect("an update");
        sent += 1;
        assert_eq!(stranger.size, (part.w, part.h));
        for pixel in &stranger.pixels {
            let at = pixel & 0xffff;
            let place = area((at % 160) as u16, (at / 160) as u16, 1, 1);
            assert!(*pixel == 0 || pixel >> 16 == 0xa0 && place.within(part), "{place:?}");
        }
    }
    // At the end it has its part, as it is.
    stranger.send(&Message::Encodings(vec![encoding::RAW])).expect("sent");
    stranger.send(&Message::Continuous { enable: false, area: Area::default() }).expect("sent");
    let began = Instant::now();
    while stranger.pixels != screen.read(part) {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not see its part");
        stranger.update(false).expect("an update");
    }
    assert_eq!(screen.read(screen.whole()), marks);
}

#[test]
fn hostile_viewers_end_alone() {
    let server = start();
    let mut random = Random::new(6143, "bytes");
    for round in 0..200 {
        let stream = TcpStream::connect(server.viewers.expect("an address")).expect("connected");
        let mut stream = stream;
        let count = random.below(400) as usize;
        let noise: Vec<u8> = (0..count).map(|_| random.bits() as u8).collect();
        let begin: &[u8] = if round % 2 == 0 { b"RFB 003.008\n\x02" } else { b"" };
        let _ = stream.write_all(&[begin, &noise].concat());
    }
    // Let in, then noise.
    for _ in 0..50 {
        let mut viewer = viewer(&server, Some(GUEST)).expect("let in");
        let kinds = [0, 2, 3, 4, 5, 6, 150, 248, 251];
        for _ in 0..20 {
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            let tail: Vec<u8> = (0..random.below(40)).map(|_| random.bits() as u8 & 0x1f).collect();
            if viewer.noise(&[&[kind], &tail[..]].concat()).is_err() {
                break;
            }
        }
    }
    viewer(&server, Some(OWNER)).expect("let in").update(false).expect("an update");
}

#[test]
fn mistakes_are_said_at_their_place() {
    let host = Arc::new(Host::new(Limits { instances: 1, ..Limits::default() }).expect("a host"));
    let wrong = |text: &str| {
        let config = Config::parse(text).expect("it is TOML");
        let display = config.display(Path::new("."), host.clone());
        display
            .and_then(|display| Server::start(&config, Path::new("."), display, |_| ()))
            .err()
            .expect("an error")
    };
    assert!(wrong("listen = '127.0.0.1:0'").contains("give its `size`"));
    assert!(wrong("size = '10'").contains("size: \"10\" is no size: \"640x480\""));
    assert!(wrong("size = '10x9000'").contains("1 to 8192"));
    let part = "size = '10x10'\n[regions]\na = '5x5+6+0'\n[clients.a]\ntoken = 'twelve or more'";
    assert!(wrong(part).contains("regions.a: \"5x5+6+0\" is not on a screen of 10x10"));
    assert!(wrong("size = '10x10'\ninput = ['x']").contains("no client of the name \"x\""));
    assert!(wrong("size = '10x10'\nlisten = '0.0.0.0:0'").contains("add [clients.NAME]"));
    assert!(wrong("size = '10x10'").contains("give `listen"));
}
