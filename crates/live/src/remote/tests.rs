//! Sessions between drivers and agents, with hostile ones on either side.

use super::driver::{Addresses, Peer, Transfer};
use super::message::{Reply, Request, VERSION};
use super::{Agent, proof, serve};
use crate::lines::{LINE_MAX, Lines, Received, send};
use crate::transfer::{Placement, Setting};
use lastmeter_engine::Control;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const TOKEN: &str = "0123456789abcdef";

/// An agent for as long as `driver` runs.
fn with_agent<T>(driver: impl FnOnce(std::net::SocketAddr) -> T) -> T {
    let agent = Agent::bind((Ipv4Addr::LOCALHOST, 0).into(), Some(TOKEN.to_owned())).unwrap();
    let at = agent.address().unwrap();
    let control = Control::default();
    std::thread::scope(|scope| {
        struct Stop<'a>(&'a Control);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        scope.spawn(|| serve(&agent, &control, &|_| ()).unwrap());
        let _stop = Stop(&control);
        driver(at)
    })
}

fn addresses(at: impl ToString) -> Addresses {
    Addresses { to: at.to_string(), data: None }
}

#[test]
fn a_driver_with_the_token_learns_the_offset_of_the_same_clock() {
    with_agent(|at| {
        let mut peer = Peer::connect(&addresses(at), TOKEN).unwrap();
        peer.begin().unwrap();
        let clocks = peer.clocks().unwrap();
        // It is one clock, however slow the machine.
        assert!(clocks.offset().abs() <= clocks.error() + 1e-9, "{clocks:?}");
        assert!(clocks.wall.seconds.abs() <= clocks.wall.error + 1e-6, "{clocks:?}");
        peer.alive().unwrap();
    });
}

#[test]
fn the_token_is_required_and_never_sent() {
    with_agent(|at| {
        let why = Peer::connect(&addresses(at), "fedcba9876543210").err().unwrap().to_string();
        assert!(why.contains("wrong token"), "{why}");
        let short = Peer::connect(&addresses(at), "short").err().unwrap().to_string();
        assert!(short.contains("16 or more"), "{short}");
    });
    // What a listener in between would see.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let driver = std::thread::spawn(move || Peer::connect(&addresses(at), TOKEN).err().unwrap());
    let mut stream = listener.accept().unwrap().0;
    let nonce = "1".repeat(32);
    send(&mut stream, &Reply::Challenge { version: VERSION, nonce }).unwrap();
    let mut heard = [0; 4096];
    let len = stream.read(&mut heard).unwrap();
    let heard = String::from_utf8_lossy(&heard[..len]).into_owned();
    assert!(heard.contains("proof") && !heard.contains(TOKEN), "{heard}");
    // It cannot show that it has the token, so the driver leaves.
    let (proof, name, machine) = ("0".repeat(64), "a".to_owned(), "b".to_owned());
    send(&mut stream, &Reply::Hello { proof, name, machine }).unwrap();
    let why = driver.join().unwrap().to_string();
    assert!(why.contains("does not have the token"), "{why}");
}

/// What an agent says last to one who sends these bytes, and how long it took.
fn rebuffed(at: std::net::SocketAddr, bytes: &[u8]) -> (String, Duration) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(at).unwrap();
    let _ = stream.write_all(bytes);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    (String::from_utf8_lossy(&heard).into_owned(), begun.elapsed())
}

#[test]
fn an_agent_tells_hostile_drivers_why_it_leaves_and_serves_the_next() {
    with_agent(|at| {
        let replay = format!(
            "{{\"ask\":\"hello\",\"version\":1,\"nonce\":\"2\",\"proof\":\"{}\"}}\n",
            proof(TOKEN, "driver", "1", "2")
        );
        let long = vec![b'x'; 8 << 10];
        let cases: [(&[u8], &str); 6] = [
            (b"GET / HTTP/1.1\r\n\r\n", "refused"),
            (b"\xff\xfe\x00\n", "refused"),
            (b"{\"ask\":\"clock\"}\n", "hello comes first"),
            (&long, "more than 4096 bytes"),
            (replay.as_bytes(), "wrong token"),
            (b"{\"ask\":\"he", "no message"),
        ];
        std::thread::scope(|scope| {
            for (bytes, right) in cases {
                scope.spawn(move || {
                    let (words, took) = rebuffed(at, bytes);
                    // One that was sent more than it read may reset the connection.
                    let fits = words.contains(right) || (bytes.len() > 4096 && took.as_secs() < 5);
                    assert!(fits, "{right}: {words}");
                    assert!(took < Duration::from_secs(15), "{right}: {took:?}");
                });
            }
        });
        Peer::connect(&addresses(at), TOKEN).unwrap().begin().unwrap();
    });
}

/// A session that has shown the token, by hand.
fn session(at: std::net::SocketAddr) -> (TcpStream, Lines) {
    let mut stream = TcpStream::connect(at).unwrap();
    let mut lines = Lines::new(stream.try_clone().unwrap(), LINE_MAX);
    let Ok(Received::Message(Reply::Challenge { nonce, .. })) = lines.next(LONG) else {
        panic!("no challenge")
    };
    let proof = proof(TOKEN, "driver", &nonce, "2");
    let hello = Request::Hello { version: VERSION, nonce: "2".to_owned(), proof };
    send(&mut stream, &hello).unwrap();
    assert!(matches!(lines.next(LONG), Ok(Received::Message(Reply::Hello { .. }))));
    (stream, lines)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_driver_with_the_token_has_limits_too() {
    with_agent(|at| {
        let plain = Setting { placement: Placement::Free, ..Setting::PLAIN };
        let long = lastmeter_base::Duration::from_secs(3600);
        let transfer = |setting: Setting| Request::Transfer {
            setting: Box::new(setting),
            sends: false,
            at: None,
            sample: false,
        };
        let cases = [
            (transfer(Setting { duration: long, ..plain }), "at most 60 s"),
            (transfer(Setting::PLAIN), "placement"),
            (Request::Report { pairs: Vec::new() }, "out of turn"),
            (Request::Watch { from: vec![at.ip(); 17] }, "at most 16"),
        ];
        for (request, right) in cases {
            let (mut stream, mut lines) = session(at);
            send(&mut stream, &request).unwrap();
            let Ok(Received::Message(Reply::Refused { why })) = lines.next(LONG) else {
                panic!("{right}: accepted")
            };
            assert!(why.contains(right), "{right}: {why}");
        }
        Peer::connect(&addresses(at), TOKEN).unwrap().begin().unwrap();
    });
}

/// The error of a driver to whom an agent that has the token says this instead of what it was asked.
fn misled(say: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let agent = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut lines = Lines::new(stream.try_clone().unwrap(), LINE_MAX);
        send(&mut stream, &Reply::Challenge { version: VERSION, nonce: "1".to_owned() }).unwrap();
        let Ok(Received::Message(Request::Hello { nonce, .. })) = lines.next(LONG) else {
            panic!("no hello")
        };
        let proof = proof(TOKEN, "agent", &nonce, "1");
        let (name, machine) = ("a".to_owned(), "b".to_owned());
        send(&mut stream, &Reply::Hello { proof, name, machine }).unwrap();
        say(&mut stream);
        // Until the driver has left.
        let _ = stream.set_read_timeout(Some(LONG));
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut peer = Peer::connect(&addresses(at), TOKEN).unwrap();
    let setting = Setting { placement: Placement::Free, ..Setting::PLAIN };
    let asked = Transfer { setting, reverse: false, sample: false };
    let why = peer.transfer(&asked, &Control::default()).unwrap_err().to_string();
    drop(peer);
    agent.join().unwrap();
    why
}

#[test]
fn a_driver_tells_what_a_hostile_agent_did() {
    let cases: [(&[u8], &str); 6] = [
        (b"HTTP/1.1 400\n", "expected value"),
        (b"{\"answer\":\"watching\"}\n", "out of turn"),
        (b"{\"answer\":\"refused\",\"why\":\"\\u001b[31m\"}\n", "out of bounds"),
        (b"{\"answer\":\"listening\",\"port\":99999,\"key\":\"\"}\n", "99999"),
        (b"{\"answer\":\"listening\",\"port\":1,\"key\":\"short\"}\n", "out of turn"),
        (b"{\"answer\":\"clock\",\"at\":1e300,\"wall\":1}\n", "out of bounds"),
    ];
    for (bytes, right) in cases {
        let why = misled(move |stream| stream.write_all(bytes).unwrap());
        assert!(why.contains(right), "{right}: {why}");
    }
    let endless = misled(|stream| {
        let _ = stream.write_all(&vec![b'x'; LINE_MAX + 10_000]);
    });
    assert!(endless.contains(&format!("more than {LINE_MAX} bytes")), "{endless}");
    let gone = misled(|stream| stream.shutdown(std::net::Shutdown::Both).unwrap());
    assert!(gone.contains("closed"), "{gone}");
}

#[test]
fn a_driver_gives_up_an_agent_that_stops_in_the_middle_of_a_message() {
    let begun = Instant::now();
    let why = misled(|stream| stream.write_all(b"{\"answer\":\"list").unwrap());
    assert!(why.contains("no message within 10 s"), "{why}");
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}
