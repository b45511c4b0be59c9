//! Agents and a driver in one process, over loopback.

use super::header::{self, Header, Kind};
use super::message::{LINE_MAX, Lines, Received, Reply, Request, SinkJob, VERSION, send};
use super::traffic::{Format, Pace, PacketRate, Pattern, Sizes, Traffic};
use super::{Agent, At, Flow, Host, Outcome, Plan, run};
use lastmeter_base::{Duration, Quantity};
use lastmeter_engine::Control;
use lastmeter_linux::Error;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as Wait;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Wait = Wait::from_secs(60);

/// Runs `work` with an agent that requires this token, and with the control that stops it.
fn with_agent<T>(token: Option<&str>, work: impl FnOnce(SocketAddr, &Control) -> T) -> T {
    let agent = Agent::bind((Ipv4Addr::LOCALHOST, 0).into(), token.map(str::to_owned)).unwrap();
    let (at, control) = (agent.address().unwrap(), Control::default());
    struct Stop<'a>(&'a Control);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&control);
        scope.spawn(|| super::serve(&agent, &control, &|_| ()).unwrap());
        work(at, &control)
    })
}

fn host(name: &str, at: SocketAddr) -> Host {
    Host { name: name.into(), at: At::Agent(at.to_string()), data: None, token: None }
}

fn traffic(format: Format, packets: u64) -> Traffic {
    Traffic {
        size: Sizes::InTurn(vec![200]),
        pace: Pace::Packets(PacketRate::parse("5 kpps").unwrap()),
        pattern: Pattern::Periodic,
        format,
        start: Duration::ZERO,
        duration: None,
        count: Some(packets),
        offload: true,
        stored: Vec::new(),
    }
}

fn flow(name: &str, from: usize, to: usize, traffic: Traffic) -> Flow {
    Flow { name: name.into(), from, to, traffic }
}

fn plan(hosts: Vec<Host>, flows: Vec<Flow>) -> Plan {
    Plan { seed: 1, drain: Duration::from_ms(300), hosts, flows }
}

fn outcome(plan: &Plan) -> Outcome {
    run(plan, &Control::default(), &|_| ()).unwrap()
}

/// sent = received + damaged + lost, and the sink counted each packet once.
fn balances(outcome: &Outcome) {
    for flow in &outcome.flows {
        let sink = flow.sink.as_ref().unwrap();
        let (lost, damaged) = (flow.lost.unwrap(), sink.damaged);
        assert_eq!(flow.sent, flow.received + damaged + lost, "{flow:?}");
        assert_eq!((sink.duplicated, sink.ancient, sink.foreign), (0, 0, 0), "{flow:?}");
    }
}

#[test]
fn the_counts_of_two_agents_balance() {
    with_agent(None, |a, _| {
        with_agent(None, |b, _| {
            let start = Duration::from_ms(20);
            let poisson = Traffic {
                pattern: Pattern::Poisson,
                size: Sizes::Weighted(vec![(64, 3), (1500, 1)]),
                start,
                ..traffic(Format::Udp, 500)
            };
            let single = Traffic { offload: false, ..traffic(Format::Udp, 500) };
            let flows = vec![
                flow("plain", 0, 1, traffic(Format::Udp, 1000)),
                flow("cells", 1, 0, traffic(Format::Aal5, 1000)),
                flow("poisson", 0, 1, poisson),
                flow("self", 1, 1, single),
            ];
            let outcome = outcome(&plan(vec![host("a", a), host("b", b)], flows));
            assert!(outcome.complete, "{:?}", outcome.notes);
            balances(&outcome);
            for (flow, sent) in outcome.flows.iter().zip([1000, 1000, 500, 500]) {
                assert_eq!((flow.sent, flow.received), (sent, sent), "{flow:?}");
                let (source, sink) = (flow.source.as_ref().unwrap(), flow.sink.as_ref().unwrap());
                assert_eq!(source.bytes, sink.bytes);
                // Both ends share the machine's clock.
                assert!(sink.delay.is_some_and(|delay| delay.max < 10.0));
                assert!(sink.jitter > 0.0 && source.worst_lag > 0.0);
            }
            let plain = outcome.flows[0].source.as_ref().unwrap();
            // 200 B every 200 us.
            assert!((plain.intended_rate.unwrap() / 8e6 - 1.0).abs() < 1e-6, "{plain:?}");
        });
    });
}

#[test]
fn two_hosts_in_this_process_at_full_speed() {
    let here = |name: &str| Host { at: At::Here, ..host(name, ([127, 0, 0, 1], 1).into()) };
    let fastest = Traffic {
        pace: Pace::Fastest,
        size: Sizes::InTurn(vec![64]),
        count: Some(20_000),
        ..traffic(Format::Udp, 1)
    };
    let outcome = outcome(&plan(vec![here("a"), here("b")], vec![flow("all", 0, 1, fastest)]));
    assert!(outcome.complete && outcome.kept_up, "{:?}", outcome.notes);
    balances(&outcome);
    let source = outcome.flows[0].source.as_ref().unwrap();
    assert_eq!((source.packets, source.intended_rate), (20_000, None));
}

#[test]
fn only_the_right_token_is_accepted() {
    with_agent(Some("right-token"), |at, _| {
        let with = |token: Option<&str>| {
            let host = Host { token: token.map(str::to_owned), ..host("a", at) };
            let flows = vec![flow("f", 0, 0, traffic(Format::Udp, 10))];
            run(&plan(vec![host], flows), &Control::default(), &|_| ())
        };
        for wrong in [None, Some("right-tokem"), Some("right-token2")] {
            let error = with(wrong).unwrap_err().to_string();
            assert!(error.contains("wrong token"), "{error}");
        }
        assert_eq!(with(Some("right-token")).unwrap().flows[0].received, 10);
    });
}

#[test]
fn beyond_loopback_a_token_is_required() {
    let any: SocketAddr = ([0, 0, 0, 0], 0).into();
    let error = Agent::bind(any, None).unwrap_err().to_string();
    assert!(error.contains("`token` is missing") && error.contains("--token"), "{error}");
    assert!(Agent::bind(any, Some(String::new())).is_err());
    assert!(Agent::bind(any, Some("has space".into())).is_err());
    Agent::bind(any, Some("secret".into())).unwrap();
}

#[test]
fn a_stopped_run_reports_what_was_sent() {
    with_agent(None, |at, _| {
        let long = Traffic {
            count: None,
            duration: Some(Duration::from_secs(600)),
            ..traffic(Format::Udp, 1)
        };
        let control = Control::default();
        let stop = |share: f64| {
            // A thousandth of ten minutes.
            if share > 0.001 {
                control.stop();
            }
        };
        let plan = plan(vec![host("a", at)], vec![flow("long", 0, 0, long)]);
        let outcome = run(&plan, &control, &stop).unwrap();
        assert!(!outcome.complete && outcome.notes[0].contains("stopped before its end"));
        balances(&outcome);
        let source = outcome.flows[0].source.as_ref().unwrap();
        assert!(source.interrupted && source.packets > 0, "{source:?}");
    });
}

#[test]
fn a_stopped_agent_reports_its_counts() {
    with_agent(None, |a, _| {
        with_agent(None, |b, stop| {
            let long = |name, from, to| {
                let long = Traffic { count: Some(4_000), ..traffic(Format::Udp, 1) };
                flow(name, from, to, long)
            };
            let flows = vec![long("out", 1, 0), long("in", 0, 1), long("own", 0, 0)];
            let tell = |share: f64| {
                if share > 0.0001 {
                    stop.stop();
                }
            };
            let plan = plan(vec![host("a", a), host("b", b)], flows);
            let outcome = run(&plan, &Control::default(), &tell).unwrap();
            assert!(!outcome.complete);
            assert!(outcome.notes[0].contains("agent of `b`"), "{:?}", outcome.notes);
            assert!(outcome.flows[0].source.as_ref().unwrap().interrupted);
            assert!(outcome.flows.iter().all(|flow| flow.sink.is_some()));
            assert_eq!((outcome.flows[2].sent, outcome.flows[2].lost), (4_000, Some(0)));
        });
    });
}

/// An agent that answers each request properly up to `begin`, and then does `last`.
fn false_agent(listener: &TcpListener, last: impl FnOnce(&mut TcpStream)) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut lines = Lines::new(stream.try_clone().unwrap(), LINE_MAX);
    loop {
        let Ok(Received::Message(ask)) = lines.next(PATIENCE) else { return };
        let answer = match ask {
            Request::Hello { .. } => Reply::Hello { version: VERSION, clock: "own".into(), now: 0 },
            Request::Prepare { .. } => Reply::Prepared { ports: Vec::new() },
            Request::Aim { .. } => Reply::Aimed {},
            _ => return last(&mut stream),
        };
        send(&mut stream, &answer).unwrap();
    }
}

#[test]
fn losing_an_agent_keeps_the_reports_of_the_others() {
    with_agent(None, |a, _| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts = vec![host("a", a), host("b", listener.local_addr().unwrap())];
        let flows = vec![
            flow("dead", 1, 0, traffic(Format::Udp, 10)),
            flow("alive", 0, 0, traffic(Format::Udp, 1000)),
        ];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                false_agent(&listener, |stream| {
                    let progress = Reply::Progress { sent: vec![5], received: Vec::new() };
                    send(stream, &progress).unwrap();
                });
            });
            let outcome = outcome(&plan(hosts, flows));
            assert!(!outcome.complete && !outcome.kept_up);
            assert!(outcome.notes[0].contains("agent of `b`"), "{:?}", outcome.notes);
            assert!(outcome.notes[0].contains("is gone"), "{:?}", outcome.notes);
            let [dead, alive] = &outcome.flows[..] else { panic!("two flows") };
            assert_eq!((dead.sent, dead.lost), (5, None));
            assert!(dead.source.is_none() && dead.sink.is_some());
            // Without a common clock there is no delay.
            assert!(dead.sink.as_ref().is_some_and(|sink| sink.delay.is_none()));
            assert_eq!((alive.sent, alive.lost), (1000, Some(0)));
        });
    });
}

#[test]
fn a_malicious_agent_is_rejected_with_a_short_message() {
    let answers: [&[u8]; 5] = [
        b"{\"answer\":\"sent\",\"sources\":[{\"flow\":65535}]}\n",
        b"{\"answer\":\"received\",\"sinks\":[],\"leaving\":false}\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"{\"answer\":\"progress\",\"sent\":[18446744073709551615,1,2],\"received\":[9,9]}\n",
        &[b'['; 3 << 20],
    ];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts = vec![host("b", listener.local_addr().unwrap())];
        // A flow from a host to itself has a sink there, so the agent should name a port.
        let flows = vec![flow("f", 0, 0, traffic(Format::Udp, 10))];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.write_all(answer);
            });
            let error = run(&plan(hosts, flows), &Control::default(), &|_| ()).unwrap_err();
            assert!(matches!(error, Error::Agent { .. }), "{error}");
            assert!(error.to_string().len() < 600, "{error}");
        });
    }
}

/// A driver whose requests the test chooses.
struct Hand {
    stream: TcpStream,
    lines: Lines,
}

impl Hand {
    fn new(at: SocketAddr) -> Hand {
        let stream = TcpStream::connect(at).unwrap();
        let lines = Lines::new(stream.try_clone().unwrap(), LINE_MAX);
        Hand { stream, lines }
    }
    fn say(&mut self, ask: &Request) -> Reply {
        send(&mut self.stream, ask).unwrap();
        self.hear()
    }
    fn hear(&mut self) -> Reply {
        match self.lines.next(PATIENCE) {
            Ok(Received::Message(Reply::Progress { .. })) => self.hear(),
            Ok(Received::Message(answer)) => answer,
            _ => panic!("no answer"),
        }
    }
}

const HELLO: Request = Request::Hello { version: VERSION, token: None };

fn sink(flow: u16) -> SinkJob {
    let (size_max, ipv6, at) = (1500, false, None);
    SinkJob { flow, format: Format::Aal5, size_max, ipv6, at, same_clock: true }
}

#[test]
fn damaged_aal5_frames_and_stray_packets_are_counted_separately() {
    with_agent(None, |at, _| {
        let mut hand = Hand::new(at);
        assert!(matches!(hand.say(&HELLO), Reply::Hello { .. }));
        let prepare = Request::Prepare { run: 77, sinks: vec![sink(4)] };
        let Reply::Prepared { ports } = hand.say(&prepare) else { panic!("a port") };
        assert_eq!(hand.say(&Request::Aim { sources: Vec::new() }), Reply::Aimed {});
        let begin = Request::Begin { at: None, after: 0 };
        assert!(matches!(hand.say(&begin), Reply::Sent { .. }));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", ports[0])).unwrap();
        for seq in 0..10 {
            let header = Header { kind: Kind::Data, flow: 4, len: 500, run: 77, seq, sent: 0 };
            let mut pdu = Vec::new();
            header::emit(Format::Aal5, &header, &mut pdu);
            match seq {
                3 => pdu[200] ^= 0x10,
                // One cell is missing.
                4 => drop(pdu.drain(48..96)),
                5 => {
                    pdu.clear();
                    let header = Header { run: 78, ..header };
                    header::emit(Format::Aal5, &header, &mut pdu);
                }
                // This one arrives twice.
                6 => drop(socket.send(&pdu).unwrap()),
                7 => pdu.clear(),
                _ => {}
            }
            socket.send(&pdu).unwrap();
        }
        let Reply::Received { sinks, leaving } = hand.say(&Request::Finish { drain: 200_000_000 })
        else {
            panic!("a report")
        };
        assert!(!leaving);
        let report = &sinks[0];
        assert_eq!((report.packets, report.bytes), (6, 3000), "{report:?}");
        assert_eq!((report.damaged, report.foreign, report.duplicated), (3, 1, 1));
    });
}

#[test]
fn hostile_drivers_are_refused_and_the_agent_keeps_serving() {
    with_agent(None, |at, _| {
        let refused = |asks: &[Request], why: &str| {
            let mut hand = Hand::new(at);
            let mut last = None;
            asks.iter().for_each(|ask| last = Some(hand.say(ask)));
            match last {
                Some(Reply::Refused { why: found }) => assert!(found.contains(why), "{found}"),
                other => panic!("{other:?} instead of {why}"),
            }
        };
        let prepare = |sinks: Vec<SinkJob>| Request::Prepare { run: 1, sinks };
        refused(&[Request::Stop {}], "hello comes first");
        refused(
            &[Request::Hello { version: 9, token: None }],
            &format!("version {VERSION}, not 9"),
        );
        refused(&[HELLO, Request::Aim { sources: Vec::new() }], "expected prepare");
        refused(&[HELLO, prepare((0..65).map(sink).collect())], "at most 64");
        refused(&[HELLO, prepare(vec![SinkJob { size_max: 0, ..sink(0) }])], "packets of 0 B");
        refused(&[HELLO, prepare(vec![SinkJob { size_max: u32::MAX, ..sink(0) }])], "no packets");
        let far = Request::Begin { at: Some(u64::MAX), after: u64::MAX };
        let aim = |sources| Request::Aim { sources };
        refused(&[HELLO, prepare(vec![]), aim(vec![]), far], "too far ahead");
        // Without a sink that replies, a source sends nothing but probes.
        let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
        let job = super::message::SourceJob {
            flow: 0,
            name: "f".into(),
            seed: 1,
            to: victim.local_addr().unwrap(),
            traffic: traffic(Format::Udp, 10),
        };
        refused(&[HELLO, prepare(vec![]), aim(vec![job.clone()])], "no packet reaches");
        let mut job = job;
        job.traffic.size = Sizes::InTurn(Vec::new());
        refused(&[HELLO, prepare(vec![]), aim(vec![job])], "`size` is 0 sizes");
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100_000], b"{}\n", b"\n"] {
            let mut hand = Hand::new(at);
            let _ = hand.stream.write_all(garbage);
            // Refused, or the connection was closed before all was sent.
            let _ = hand.lines.next::<Reply>(PATIENCE);
        }
        let mut hand = Hand::new(at);
        assert!(matches!(hand.say(&HELLO), Reply::Hello { .. }));
    });
}

#[test]
fn an_agent_limits_its_concurrent_drivers() {
    with_agent(None, |at, _| {
        let prepare = Request::Prepare { run: 1, sinks: Vec::new() };
        let mut some: Vec<Hand> = (0..super::SESSIONS_MAX).map(|_| Hand::new(at)).collect();
        for hand in &mut some {
            assert!(matches!(hand.say(&HELLO), Reply::Hello { .. }));
            assert!(matches!(hand.say(&prepare), Reply::Prepared { .. }));
        }
        let mut more = Hand::new(at);
        assert!(matches!(more.say(&HELLO), Reply::Hello { .. }));
        let answer = more.say(&prepare);
        assert!(matches!(answer, Reply::Refused { why } if why.contains("already")));
        // One that leaves makes room.
        drop(some.pop());
        let began = std::time::Instant::now();
        loop {
            let mut next = Hand::new(at);
            next.say(&HELLO);
            if matches!(next.say(&prepare), Reply::Prepared { .. }) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "the place is not free again");
        }
    });
}

#[test]
fn silent_and_unauthenticated_connections_hold_no_places() {
    with_agent(Some("right-token"), |at, _| {
        // Some say nothing, some have the wrong token and stay, and all of them are there.
        let silent: Vec<TcpStream> =
            (0..4 * super::WAITING_MAX).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut wrong: Vec<Hand> = (0..4).map(|_| Hand::new(at)).collect();
        for hand in &mut wrong {
            let ask = Request::Hello { version: VERSION, token: Some("wrong-token".into()) };
            assert!(matches!(hand.say(&ask), Reply::Refused { .. }));
        }
        let host = Host { token: Some("right-token".into()), ..host("a", at) };
        let flows = vec![flow("f", 0, 0, traffic(Format::Udp, 10))];
        assert_eq!(outcome(&plan(vec![host], flows)).flows[0].received, 10);
        drop((silent, wrong));
    });
}

#[test]
fn a_forged_echo_does_not_aim_traffic_at_somebody() {
    with_agent(None, |at, _| {
        // The driver knows the run and the flow, and answers in the victim's place, but has not seen the probe.
        let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
        let job = super::message::SourceJob {
            flow: 3,
            name: "f".into(),
            seed: 1,
            to: victim.local_addr().unwrap(),
            traffic: traffic(Format::Udp, 10),
        };
        let mut hand = Hand::new(at);
        assert!(matches!(hand.say(&HELLO), Reply::Hello { .. }));
        hand.say(&Request::Prepare { run: 9, sinks: Vec::new() });
        send(&mut hand.stream, &Request::Aim { sources: vec![job] }).unwrap();
        victim.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut probe = [0; 100];
        let (len, source) = victim.recv_from(&mut probe).unwrap();
        let seen = Header::parse(&probe[..len]).unwrap();
        for seq in (0..20).chain([seen.seq ^ 1]) {
            let echo = Header { kind: Kind::Echo, seq, ..seen };
            victim.send_to(&echo.emit(), source).unwrap();
        }
        // And a plain echo of what it received, as of the service on port 7.
        victim.send_to(&probe[..len], source).unwrap();
        let answer = hand.hear();
        assert!(matches!(answer, Reply::Refused { why } if why.contains("no packet reaches")));
    });
}

#[test]
fn sinks_listen_only_where_their_agent_was_reached() {
    with_agent(None, |at, _| {
        let ask = |place: Option<&str>| {
            let mut hand = Hand::new(at);
            hand.say(&HELLO);
            let place = place.map(|place| place.parse().unwrap());
            let job = SinkJob { at: place, ..sink(0) };
            let answer = hand.say(&Request::Prepare { run: 1, sinks: vec![job] });
            (hand, answer)
        };
        let (_hand, answer) = ask(None);
        let Reply::Prepared { ports } = answer else { panic!("{answer:?}") };
        // The port is free at another address: the sink does not listen there.
        UdpSocket::bind(("127.0.0.2", ports[0])).unwrap();
        assert!(UdpSocket::bind(("127.0.0.1", ports[0])).is_err());
        for (place, why) in [
            ("0.0.0.0", "not the address of a host"),
            ("224.0.0.1", "not the address of a host"),
            ("192.0.2.1", "without a token"),
            ("::1", "version of IP"),
        ] {
            let (_, answer) = ask(Some(place));
            assert!(
                matches!(&answer, Reply::Refused { why: found } if found.contains(why)),
                "{place}: {answer:?}"
            );
        }
    });
}

#[test]
fn a_driver_survives_an_agent_that_floods_it() {
    with_agent(None, |a, _| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts = vec![host("a", a), host("b", listener.local_addr().unwrap())];
        let flows = vec![
            flow("false", 1, 0, traffic(Format::Udp, 10)),
            flow("true", 0, 0, traffic(Format::Udp, 100)),
        ];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                false_agent(&listener, |stream| {
                    let progress = Reply::Progress { sent: vec![u64::MAX; 9], received: vec![1] };
                    let leaving = Reply::Received { sinks: Vec::new(), leaving: true };
                    // Until the driver hangs up.
                    for _ in 0..100_000 {
                        if send(stream, &progress).and_then(|()| send(stream, &leaving)).is_err() {
                            return;
                        }
                    }
                });
            });
            let outcome = outcome(&plan(hosts, flows));
            assert!(!outcome.complete);
            // It said 100,000 times that it leaves, and that is noted once.
            assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
            assert_eq!(outcome.flows[1].received, 100);
        });
    });
}

#[test]
fn a_message_that_is_taken_slowly_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut from, _) = listener.accept().unwrap();
    let (began, over) = (std::time::Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A few bytes at a time, so that no single write times out.
        scope.spawn(|| {
            let mut few = [0; 4096];
            while !over.load(Ordering::Relaxed) {
                let _ = std::io::Read::read(&mut from, &mut few);
                std::thread::sleep(Wait::from_millis(200));
            }
        });
        let many = Reply::Prepared { ports: vec![65_535; 170_000] };
        let sent = (0..100).try_for_each(|_| send(&mut to, &many));
        over.store(true, Ordering::Relaxed);
        assert!(sent.is_err_and(|why| why.contains("has not taken a message")));
        assert!(began.elapsed() < PATIENCE);
    });
}
