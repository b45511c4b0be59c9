//! Displays whose clients use more than plain RFB: TLS, WebSocket, sizes, cursors, parts of parts, DTP.

use super::tests::{GUEST, OWNER, area, program, serve, start, viewer};
use super::*;
use crate::display::commands::Program;
use crate::display::datagrams::Transactions;
use crate::display::screen::Rows;
use crate::display::viewer::{Proof, Viewer};
use crate::transactions::lossy;
use lastmeter_base::Stream as Random;
use lastmeter_wire::framebuffer::{Operation, status};
use lastmeter_wire::rfb::{Message, encoding};
use lastmeter_wire::websocket::{Head, opcode};
use std::io::{Read, Write};

/// A certificate of localhost and its key, made by `openssl`; nothing if it is not installed.
#[allow(clippy::print_stdout, reason = "tests say what they skip")]
pub(super) fn certificate(folder: &Path) -> bool {
    let mut command = std::process::Command::new("openssl");
    command
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-keyout", "key.pem", "-out", "certificate.pem", "-days", "30"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(folder);
    let made = command.output().is_ok_and(|output| output.status.success());
    if !made {
        println!("SKIP: no openssl that makes certificates");
    }
    made
}

pub(super) fn in_folder(text: &str, folder: &Path) -> Server {
    let config = Config::parse(text).expect("sound");
    let host = Host::new(lastmeter_plugin::host::Limits {
        instances: 4,
        ..lastmeter_plugin::host::Limits::default()
    });
    let display = config.display(folder, Arc::new(host.expect("a host"))).expect("a display");
    Server::start(&config, folder, display, |_| ()).expect("it listens")
}

#[test]
fn viewers_are_let_in_by_tls_with_a_whole_token() {
    let folder = tempfile::tempdir().expect("a folder");
    if !certificate(folder.path()) {
        return;
    }
    let text = format!(
        "size = '64x48'\nlisten = '127.0.0.1:0'\nweb = '127.0.0.1:0'\n\
         [tls]\ncertificate = 'certificate.pem'\nkey = 'key.pem'\n\
         [clients.owner]\ntoken = \"{OWNER}\"\n[clients.anyone]\n"
    );
    let server = in_folder(&text, folder.path());
    let whole = server.display.screen.whole();
    server.display.screen.put(whole, Rows::new(&(0..64 * 48).collect::<Vec<u32>>(), 64));
    let trusted = tls::client(&folder.path().join("certificate.pem"), None).expect("a certificate");
    let prove = |token: Option<&str>, trusted: &Arc<rustls::ClientConfig>, name: &str| {
        let stream = TcpStream::connect(server.viewers.expect("an address")).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let tls = Some((trusted.clone(), name.to_owned()));
        Viewer::prove(stream, &Proof { token: token.map(str::to_owned), tls })
    };
    for token in [None, Some(OWNER)] {
        let mut viewer = prove(token, &trusted, "127.0.0.1").expect("let in");
        let known = vec![encoding::ZRLE, encoding::FENCE, encoding::CONTINUOUS];
        viewer.send(&Message::Encodings(known)).expect("sent");
        viewer.update(false).expect("an update");
        assert_eq!(viewer.pixels, server.display.screen.read(whole));
        server.display.screen.fill(area(1, 1, 5, 5), 0x00ab_cdef);
        viewer.update(true).expect("an update");
        assert_eq!(viewer.pixels, server.display.screen.read(whole));
        server.display.screen.put(whole, Rows::new(&(0..64 * 48).collect::<Vec<u32>>(), 64));
    }
    // Only the first 8 characters agree: enough for VNC's way, not for this one.
    assert!(prove(Some("the owne"), &trusted, "127.0.0.1").is_err());
    assert!(prove(None, &trusted, "elsewhere.example").is_err(), "the certificate has other names");
    let other = tempfile::tempdir().expect("a folder");
    assert!(certificate(other.path()));
    let stranger = tls::client(&other.path().join("certificate.pem"), None).expect("a certificate");
    assert!(prove(None, &stranger, "127.0.0.1").is_err(), "nobody it trusts");
    // The time until a viewer has drawn is in the ledger.
    let ledger = server.display.updates.ledger("display", "0", 0.0);
    assert!(ledger.paths[0].stages[4].service_mean() > 0.0);
    // A browser's page comes by https on the same port as by http.
    let mut stream = TcpStream::connect(server.web.expect("an address")).expect("connected");
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").expect("a name");
    let mut client = rustls::ClientConnection::new(trusted, name).expect("a client");
    let mut tls = rustls::Stream::new(&mut client, &mut stream);
    tls.write_all(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut answer = [0; 12];
    tls.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 404");
}

fn frame(data: &[u8]) -> Vec<u8> {
    let mask = [9, 8, 7, 6];
    let head =
        Head { last: true, opcode: opcode::BINARY, mask: Some(mask), len: data.len() as u64 };
    let mixed = data.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]);
    head.emit().into_iter().chain(mixed).collect()
}

/// The data of the next so many bytes that a server sends in frames.
fn framed(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut data = Vec::new();
    while data.len() < count {
        let mut head = [0; 2];
        stream.read_exact(&mut head).expect("a frame");
        assert_eq!(head[0], 0x80 | opcode::BINARY);
        let len = match head[1] {
            126 => {
                let mut long = [0; 2];
                stream.read_exact(&mut long).expect("its length");
                u16::from_be_bytes(long).into()
            }
            127 => panic!("a long frame"),
            short => u64::from(short),
        };
        let read = Read::by_ref(stream).take(len).read_to_end(&mut data).expect("its data");
        assert_eq!(read as u64, len);
    }
    data
}

#[test]
fn a_browser_speaks_rfb_in_a_websocket() {
    let server = serve("size = '20x10'\nweb = '127.0.0.1:0'\n");
    let address = server.web.expect("an address");
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let asked = format!(
        "GET /websockify HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n\
         Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: binary\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(framed(&mut stream, 12), lastmeter_wire::rfb::VERSION);
    // In pieces, as a browser may send it.
    for part in lastmeter_wire::rfb::VERSION.chunks(5) {
        stream.write_all(&frame(part)).expect("sent");
    }
    assert_eq!(framed(&mut stream, 2), [1, 1]);
    stream.write_all(&frame(&[1])).expect("sent");
    assert_eq!(framed(&mut stream, 4), [0; 4]);
    stream.write_all(&frame(&[1])).expect("sent");
    let init = framed(&mut stream, 24 + 9);
    assert_eq!(init[..4], [0, 20, 0, 10]);
    let area = Message::Update { incremental: false, area: lastmeter_wire::rfb::Area::default() };
    let mut asked = area.emit();
    asked[6..10].copy_from_slice(&[0, 20, 0, 10]);
    stream.write_all(&frame(&asked)).expect("sent");
    let update = framed(&mut stream, 4 + 12 + 4 * 200);
    assert_eq!((update.len(), &update[..4]), (816, &[0, 0, 0, 1][..]));
    // Without a mask it is refused, and the display goes on.
    let _ = stream.write_all(&[0x82, 1, 3]);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(TcpStream::connect(address).is_ok());
}

#[test]
fn the_screen_changes_its_size_as_its_owner_wishes() {
    let server = start();
    let mut owner = program(&server, OWNER);
    let mut guest = program(&server, GUEST);
    let known = vec![encoding::ZRLE, encoding::EXTENDED_DESKTOP_SIZE];
    let mut own = viewer(&server, Some(OWNER)).expect("let in");
    let mut other = viewer(&server, Some(GUEST)).expect("let in");
    let mut old = viewer(&server, Some(OWNER)).expect("let in");
    for viewer in [&mut own, &mut other] {
        viewer.send(&Message::Encodings(known.clone())).expect("sent");
        viewer.update(false).expect("its size");
    }
    let size = |w, h| area(0, 0, w, h);
    assert_eq!(guest.ask(Operation::RESIZE, size(50, 50), &[]), Ok((status::DENIED, vec![])));
    assert_eq!(owner.ask(Operation::RESIZE, size(9000, 1), &[]), Ok((status::INVALID, vec![])));
    assert_eq!(owner.ask(Operation::RESIZE, size(200, 60), &[]), Ok((status::DONE, vec![])));
    let whole = server.display.screen.whole();
    assert_eq!(whole, size(200, 60));
    server.display.screen.put(whole, Rows::new(&(0..200 * 60).collect::<Vec<u32>>(), 200));
    let sees = |viewer: &mut Viewer, part: Rect| {
        // Updates that were on their way come first.
        for _ in 0..40 {
            viewer.update(false).expect("an update");
            let there = viewer.size == (part.w, part.h);
            if there && viewer.pixels == server.display.screen.read(part) {
                return;
            }
        }
        panic!("{:?} where {part:?} is expected", viewer.size);
    };
    sees(&mut own, whole);
    // The guest's part ends where the screen does.
    sees(&mut other, area(50, 30, 60, 30));
    // A viewer that cannot be told keeps its size, and gets what is on it.
    for _ in 0..2 {
        old.update(false).expect("an update");
    }
    assert_eq!(old.size, (160, 120));
    assert_eq!(old.pixels[59 * 160 + 159], 59 * 200 + 159);
    // A viewer's own wish.
    own.send(&Message::SetSize { w: 120, h: 90, screens: 1 }).expect("sent");
    while own.wished.is_none() {
        own.update(false).expect("an answer");
    }
    assert_eq!((own.wished, own.size), (Some(0), (120, 90)));
    other.send(&Message::SetSize { w: 10, h: 10, screens: 1 }).expect("sent");
    while other.wished.is_none() {
        other.update(false).expect("an answer");
    }
    assert_eq!(other.wished, Some(1), "prohibited");
    // A program draws where the screen still is.
    assert_eq!(guest.ask(Operation::FILL, area(0, 0, 60, 40), &[1, 2, 3, 0]), Ok((0, vec![])));
    let out = owner.ask(Operation::FILL, area(0, 0, 160, 10), &[1, 2, 3, 0]);
    assert_eq!(out, Ok((status::INVALID, vec![])));
}

#[test]
fn the_owners_cursor_is_drawn_by_viewers() {
    let server = start();
    let mut owner = program(&server, OWNER);
    let mut viewer = viewer(&server, Some(GUEST)).expect("let in");
    viewer.send(&Message::Encodings(vec![encoding::ZRLE, encoding::CURSOR])).expect("sent");
    viewer.update(false).expect("an update");
    assert_eq!(viewer.pointer, None);
    let words: [u32; 6] = [0xff00_00ff, 0, 0xff00_ff00, 0, 0x80ff_0000, 0x7fff_ffff];
    let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut guest = program(&server, GUEST);
    let denied = guest.ask(Operation::CURSOR, area(1, 1, 3, 2), &data);
    assert_eq!(denied, Ok((status::DENIED, vec![])));
    let outside = owner.ask(Operation::CURSOR, area(3, 1, 3, 2), &data);
    assert_eq!(outside, Ok((status::INVALID, vec![])), "it points beside itself");
    assert_eq!(owner.ask(Operation::CURSOR, area(1, 1, 3, 2), &data), Ok((status::DONE, vec![])));
    viewer.update(true).expect("the cursor");
    let pixels = vec![Some(0xff), None, Some(0xff00), None, Some(0x00ff_0000), None];
    assert_eq!(viewer.pointer, Some((3, 2, (1, 1), pixels)));
}

/// A guest lends a part of its part to a child, to whom the guest's own policies apply as well.
#[test]
fn parts_lie_in_parts() {
    let text = format!(
        "size = '100x80'\nlisten = '127.0.0.1:0'\ncommands = '127.0.0.1:0'\n\
         [regions]\nchild = '30x20+10+10 in guest'\nguest = '60x40+20+20'\n\
         grandchild = '10x10+5+5 in child'\n\
         [clients.owner]\ntoken = \"{OWNER}\"\n\
         [clients.guest]\ntoken = '{GUEST}'\npolicies = ['left']\n\
         [clients.child]\ntoken = 'a child of the guest'\n\
         [clients.grandchild]\ntoken = 'a child of a child'\n\
         [policies.left]\nexpression = '(clip 20 20 20 40)'\n"
    );
    let server = serve(&text);
    let mut child = program(&server, "a child of the guest");
    assert_eq!(child.size, (30, 20));
    let colour = [7, 0, 0, 0];
    let drawn = child.ask(Operation::FILL, area(0, 0, 30, 20), &colour);
    assert_eq!(drawn, Ok((status::CLIPPED, vec![])));
    for (at, pixel) in server.display.screen.read(area(0, 0, 100, 80)).iter().enumerate() {
        let (x, y) = (at % 100, at / 100);
        // The child's part begins at 30, 30; its guest's policy ends at 40.
        let inside = (30..40).contains(&x) && (30..50).contains(&y);
        assert_eq!(*pixel, if inside { 7 } else { 0 }, "{x} {y}");
    }
    let outside = child.ask(Operation::FILL, area(0, 0, 31, 20), &colour);
    assert_eq!(outside, Ok((status::INVALID, vec![])));
    let mut grandchild = program(&server, "a child of a child");
    assert_eq!(grandchild.size, (10, 10));
    // It begins at 35, 35.
    let copied = grandchild.ask(Operation::COPY, area(0, 0, 5, 5), &[0, 5, 0, 5]);
    assert_eq!(copied, Ok((status::DONE, vec![])));
    let filled = grandchild.ask(Operation::FILL, area(0, 0, 10, 10), &colour);
    assert_eq!(filled, Ok((status::CLIPPED, vec![])));
    // Mistakes.
    let host = Arc::new(Host::new(lastmeter_plugin::host::Limits::default()).expect("a host"));
    let wrong = |regions: &str| {
        let clients =
            "[clients.a]\ntoken = 'twelve or more'\n[clients.b]\ntoken = 'twelve or else'";
        let text = format!("size = '10x10'\n[regions]\n{regions}\n{clients}");
        Config::parse(&text).expect("TOML").display(Path::new("."), host.clone()).err()
    };
    let said = |regions: &str, words: &str| {
        let why = wrong(regions).expect("an error");
        assert!(why.contains(words), "{why}");
    };
    said("a = '5x5 in b'\nb = '5x5 in a'", "parts lie in each other");
    said("a = '5x5 in b'", "\"b\" has no part");
    said("a = '5x5+1+0 in b'\nb = '5x5'", "is not on b's part of 5x5");
}

/// The commands of a picture that depends on their order and number.
fn work(mut add: impl FnMut(Operation, Rect, &[u8])) {
    let mut random = Random::new(3, "work");
    for step in 0..120u32 {
        let (x, y) = (random.below(100) as u16, random.below(80) as u16);
        let noise: Vec<u8> = (0..4 * 20 * 30).map(|_| random.bits() as u8).collect();
        match step % 4 {
            0 => add(Operation::PUT, area(x, y, 20, 30), &noise),
            1 => add(Operation::BLEND, area(x, y, 10, 10), &noise[..400]),
            2 => add(Operation::COPY, area(0, 0, 160, 110), &[0, 0, 0, 10]),
            _ => add(Operation::FILL, area(x, y, 9, 9), &noise[..4]),
        }
    }
}

#[test]
fn n_10_commands_in_transactions_draw_the_same_whatever_is_lost() {
    let (server, other) = (start(), start());
    let mut by_tcp: Program<TcpStream> = program(&other, OWNER);
    work(|operation, at, data| by_tcp.add(operation, at, data));
    by_tcp.ask(Operation::SYNC, Rect::default(), &[]).expect("done");
    let line = lossy(server.datagrams.expect("an address"));
    let mut own = Transactions::greet(line, OWNER, 8, 1400).expect("let in");
    assert_eq!(own.size, (160, 120));
    work(|operation, at, data| own.add(operation, at, data).expect("sent"));
    own.ask(Operation::SYNC, Rect::default(), &[]).expect("done");
    let whole = server.display.screen.whole();
    assert_eq!(server.display.screen.read(whole), other.display.screen.read(whole));
    assert!(own.counts().1 > 10, "a third was lost: {:?}", own.counts());
    let (state, pixels) = own.ask(Operation::READ, area(3, 4, 5, 6), &[]).expect("read");
    let seen = server.display.screen.read(area(3, 4, 5, 6));
    let seen: Vec<u8> = seen.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    assert_eq!((state, pixels), (status::DONE, seen));
}

#[test]
fn transactions_are_confined_and_need_their_cookie() {
    let server = start();
    let address = server.datagrams.expect("an address");
    assert!(Transactions::greet(address, "nobody knows me", 1, 1400).is_err());
    let mut guest = Transactions::greet(address, GUEST, 1, 1400).expect("let in");
    assert_eq!(guest.size, (60, 40));
    let outside = guest.ask(Operation::FILL, area(0, 0, 61, 40), &[9; 4]);
    assert_eq!(outside, Ok((status::INVALID, vec![])));
    assert_eq!(guest.ask(Operation::FILL, area(0, 0, 60, 40), &[9, 0, 0, 0]), Ok((0, vec![])));
    let seen = server.display.screen.read(server.display.screen.whole());
    assert_eq!(seen.iter().filter(|pixel| **pixel == 9).count(), 60 * 40);
    // Noise, and a program that makes its cookie up.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address).expect("connected");
    let mut random = Random::new(9, "noise");
    for round in 0..2000u32 {
        let noise: Vec<u8> = (0..random.below(200)).map(|_| random.bits() as u8).collect();
        let flags = lastmeter_wire::dtp::Flags { request: true, ..Default::default() };
        let token = [&b"LMFB\x02"[..], &[OWNER.len() as u8], OWNER.as_bytes()].concat();
        let fill = lastmeter_wire::framebuffer::Header {
            operation: Operation::FILL,
            flags: 0,
            tag: 0,
            area: lastmeter_wire::rfb::Area { x: 0, y: 0, w: 160, h: 120 },
            length: 4,
        };
        let fill = [&fill.emit()[..], &[5, 5, 5, 0]].concat();
        let data = [token, noise, fill][(round % 3) as usize].clone();
        let packet = lastmeter_wire::dtp::Packet {
            src: 7,
            dst: 2,
            sequence: (round % 3) as u16,
            acknowledged: 0,
            flags,
            data: &data,
        };
        let bytes = packet.emit().expect("short");
        let _ = socket.send(if round % 7 == 0 { &data } else { &bytes });
    }
    assert_eq!(guest.ask(Operation::SYNC, Rect::default(), &[]), Ok((status::DONE, vec![])));
    assert_eq!(server.display.screen.read(server.display.screen.whole()), seen);
}

#[test]
fn a_viewer_is_told_of_a_size_that_changed_before_it_wanted_to_know() {
    let server = start();
    let mut viewer = viewer(&server, Some(OWNER)).expect("let in");
    viewer.update(false).expect("an update");
    server.display.screen.resize(100, 90).expect("resized");
    viewer.update(false).expect("of what both have");
    assert_eq!(viewer.size, (160, 120));
    viewer.send(&Message::Encodings(vec![encoding::ZRLE, encoding::DESKTOP_SIZE])).expect("sent");
    viewer.update(false).expect("the size");
    assert_eq!(viewer.size, (100, 90));
}
