//! Packet dialogues: what one end receives, and what it must send, line by line.
//!
//! ```text
//! connect | listen            opens it, at 0 ms
//! @ 250                       advances to 250 ms; timers expire on the way
//! @ next 107                  advances to the next timer, within 107 ms
//! < 1:1001 ack 1 win 5000     it receives bytes 1 to 1000
//! > ack 1001                  it sends this, next
//! > 1:4001 ack 1 each 1000    and these: 1:1001, 1001:2001 and so on
//! write 3000 | read 500 | close | abort
//! state ESTABLISHED | window 3000 | ended TimedOut
//! ```
//!
//! Numbers count from the SYN of their side, which is 0. A segment is its flags (`SYN FIN RST ECE
//! CWR`), its data, `ack N`, and, where the line says so, `win N`; blocks are `sack A:B`. Whatever
//! is sent must be in a line. `#` begins a remark.

use lastmeter_base::{Bytes, Duration, Ecn, Time};
use lastmeter_transport::tcp::{CWR, Config, Connection, ECE, Flags, Segment};

const OURS: u32 = 4_294_967_000; // Wraps early.
const THEIRS: u32 = 1_000_000;
const FLAGS: [(&str, Flags); 5] =
    [("SYN", Flags::SYN), ("FIN", Flags::FIN), ("RST", Flags::RST), ("ECE", ECE), ("CWR", CWR)];

struct Stage {
    tcp: Connection,
    now: Time,
    /// The peer's next number, window and clock.
    seq: u32,
    window: u16,
    timestamps: bool,
    /// What was sent, as text.
    said: String,
}

/// Plays a dialogue; a line that does not hold fails, showing all that was said before it.
#[track_caller]
pub(crate) fn play(config: Config, text: &str) -> Connection {
    let mut stage: Option<Stage> = None;
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let "connect" | "listen" = words[0] {
            let tcp = match words[0] {
                "connect" => Connection::connect(Time::START, config.clone(), OURS),
                _ => Connection::listen(config.clone(), OURS),
            };
            let (now, said) = (Time::START, String::new());
            stage = Some(Stage { tcp, now, seq: 0, window: 65_535, timestamps: false, said });
            continue;
        }
        let stage = stage.as_mut().expect("a dialogue begins with connect or listen");
        stage.line(line, &words);
        stage.said += &format!("    {line}\n");
    }
    let mut stage = stage.expect("a dialogue has lines");
    stage.silent("the end");
    stage.tcp
}

impl Stage {
    #[track_caller]
    fn line(&mut self, line: &str, words: &[&str]) {
        if !matches!(words[0], ">" | "state" | "window" | "ended") {
            self.silent(line);
        }
        match words {
            [">", bytes, expected @ .., "each", step] => {
                let (from, to) = bytes.split_once(':').unwrap();
                let [from, to, step] = [from, to, *step].map(|number| number.parse().unwrap());
                for from in (from..to).step_by(step) {
                    let bytes = format!("{from}:{}", from + step);
                    self.line(line, &[&[">", bytes.as_str()], expected].concat());
                }
            }
            [">", expected @ ..] => {
                let segment = self.tcp.transmit(self.now);
                let told = segment.map_or("nothing".to_owned(), |s| self.print(&s, expected));
                let expected = expected.join(" ");
                assert_eq!(told, expected, "at {}, after\n{}", self.now, self.said);
            }
            ["<", words @ ..] => {
                let segment = self.parse(words);
                self.tcp.receive(self.now, &segment, &[]);
            }
            ["@", "next", ms] => {
                self.now = self.tcp.ready_at().expect("a timer");
                let found = self.now.as_ps() / 1_000_000_000;
                assert_eq!(found.to_string(), *ms, "after\n{}", self.said);
                self.tcp.expire(self.now);
            }
            ["@", ms] => self.go_on(ms.parse().expect("milliseconds")),
            ["write", bytes] => {
                let bytes = bytes.parse().expect("bytes");
                assert_eq!(self.tcp.offer(bytes), bytes, "no room to write");
            }
            ["read", bytes] => {
                let bytes = bytes.parse().expect("bytes");
                assert_eq!(self.tcp.consume(bytes), bytes, "after\n{}", self.said);
            }
            ["close"] => self.tcp.close(),
            ["abort"] => self.tcp.abort(),
            ["state", state] => {
                let found = format!("{:?}", self.tcp.state()).to_uppercase();
                assert_eq!(found, state.replace('_', ""), "after\n{}", self.said);
            }
            ["ended", why] => {
                let found = self.tcp.ended().map(|why| format!("{why:?}"));
                assert_eq!(found.as_deref(), Some(*why), "after\n{}", self.said);
            }
            ["window", bytes] => {
                let found = self.tcp.window().congestion.to_string();
                assert_eq!(found, *bytes, "at {}, after\n{}", self.now, self.said);
            }
            _ => panic!("not a line of a dialogue: {line}"),
        }
    }

    #[track_caller]
    fn silent(&mut self, before: &str) {
        if let Some(segment) = self.tcp.transmit(self.now) {
            let told = self.print(&segment, &["win"]);
            panic!("at {}: sent `{told}` before `{before}`, after\n{}", self.now, self.said);
        }
    }

    #[track_caller]
    fn go_on(&mut self, ms: u64) {
        let until = Time::START + Duration::from_ms(ms);
        while let Some(at) = self.tcp.ready_at().filter(|&at| at <= until) {
            assert!(at >= self.now, "a timer in the past");
            self.now = at;
            self.tcp.expire(at);
            if at < until {
                self.silent(&format!("@ {ms}"));
            }
        }
        self.now = until;
    }

    fn print(&self, segment: &Segment, expected: &[&str]) -> String {
        let mut words: Vec<String> = FLAGS
            .iter()
            .filter(|(_, flag)| segment.has(*flag))
            .map(|(name, _)| (*name).to_owned())
            .collect();
        let from = segment.seq.wrapping_sub(OURS);
        let places = segment.len > 0 || segment.has(Flags::FIN) || segment.has(Flags::RST);
        if places || expected.iter().any(|word| word.contains(':')) && expected[0] != "ack" {
            words.push(format!("{from}:{}", from.wrapping_add(segment.len.into())));
        }
        if segment.has(Flags::ACK) {
            words.push(format!("ack {}", segment.ack.wrapping_sub(THEIRS)));
        }
        if expected.contains(&"win") {
            words.push(format!("win {}", segment.window));
        }
        if !segment.blocks.is_empty() {
            words.push("sack".to_owned());
            let blocks = segment.blocks.as_slice().iter();
            words.extend(blocks.map(|&(left, right)| {
                format!("{}:{}", left.wrapping_sub(THEIRS), right.wrapping_sub(THEIRS))
            }));
        }
        if expected.contains(&"ect") && segment.ecn == Ecn::Ect0 {
            words.push("ect".to_owned());
        }
        words.join(" ")
    }

    fn parse(&mut self, words: &[&str]) -> Segment {
        let mut segment = Segment { window: self.window, ..Segment::default() };
        let (mut seq, mut old) = (None, false);
        let mut words = words.iter();
        let number = |word: Option<&&str>| -> u32 {
            word.and_then(|word| word.parse().ok()).expect("a number")
        };
        let range = |word: &str| -> Option<(u32, u32)> {
            let (from, to) = word.split_once(':')?;
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        while let Some(&word) = words.next() {
            if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == word) {
                segment.flags = segment.flags.and(*flag);
                continue;
            }
            match word {
                "ack" => {
                    segment.flags = segment.flags.and(Flags::ACK);
                    segment.ack = OURS.wrapping_add(number(words.next()));
                }
                "win" => segment.window = number(words.next()) as u16,
                "mss" => segment.mss = Some(number(words.next()) as u16),
                "scale" => segment.scale = Some(number(words.next()) as u8),
                "sackok" => segment.sack_permitted = true,
                "ts" => self.timestamps = true,
                "old" => old = true,
                "lingers" => segment.opener_lingers = true,
                "ce" => segment.ecn = Ecn::Ce,
                "sack" => {}
                word => {
                    let (from, to) = range(word).expect("a word of a segment");
                    if segment.has(Flags::ACK) && seq.is_some() || words.len() == 0 && from > to {
                        panic!("{word}");
                    }
                    // After `ack` come blocks of ours, before it data of theirs.
                    if segment.has(Flags::ACK) {
                        segment.blocks.push(OURS.wrapping_add(from), OURS.wrapping_add(to));
                    } else {
                        seq = Some(from);
                        segment.len = (to - from) as u16;
                    }
                }
            }
        }
        self.window = segment.window;
        let from = seq.unwrap_or(self.seq);
        segment.seq = THEIRS.wrapping_add(from);
        if self.timestamps {
            let ticks = 1 + (self.now.as_ps() / 1_000_000_000) as u32;
            segment.timestamps = Some((if old { 0 } else { ticks }, 0));
        }
        self.seq = self.seq.max(from.wrapping_add(segment.space() as u32));
        segment
    }
}

/// Segments of 1000 bytes without options that would take room.
pub(crate) fn plain() -> Config {
    Config {
        mss: 1000,
        timestamps: false,
        sack: false,
        scaling: false,
        receive_buffer: Bytes(10_000),
        limited_transmit: false,
        halves_window: false,
        ..Config::modern()
    }
}

/// How most dialogues begin.
const OPEN: &str = "
    connect
    > SYN
    @ 100
    < SYN ack 1 mss 1000
    > ack 1
";

/// A dialogue that continues from there.
pub(crate) fn open(rest: &str) -> String {
    format!("{OPEN}{rest}")
}
