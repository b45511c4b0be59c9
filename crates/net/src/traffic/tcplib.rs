//! Conversations of four applications, generated as by tcplib from tables of measured ones.
//!
//! ```text
//! conversations begin at random --> telnet | ftp | smtp | nntp --> their packets, merged --> out
//! ```
//!
//! | application | random quantities | packets |
//! |---|---|---|
//! | telnet | packets, data of each, silence before each | short |
//! | ftp, smtp, nntp | bytes of one item | full segments back to back at `rate`, the last is shorter |
//!
//! Every draw comes from the table of a distribution, interpolated linearly between its points as in tcplib.
//!
//! Source: Danzig & Jamin, tcplib, USC-CS-91-495, 1991, which the "Aurora at MIT" report uses in Section 2,
//! §3.9 (A-145). Points of the silences are from tcplib's table as in ns-2 (10,000 values, sorted).
//! Lengths of telnet packets: nine in ten carry fewer than ten bytes (Cáceres et al., SIGCOMM 1991, by
//! Stevens, TCP/IP Illustrated 1, §19.1). Packets of a telnet conversation are those of Paxson & Floyd
//! (1995), bytes of items near those of Paxson (1994), both log-normal and from memory. The shares of
//! conversations are ours: chosen so that half of all packets are interactive, as Cáceres et al. say.

use super::{Maker, Setting, Traffic, packets};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Draw, Duration, Rate, Stream};
use lastmeter_base::{here, one_way};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const PAGE: &Page = &Page {
    name: "tcplib",
    family: Family::Traffic,
    what: "Conversations of telnet, ftp, smtp and nntp, drawn from tables of measured ones.",
    ports: "(conversations) --> out",
    params: &[
        Param::required("every", ParamKind::Time).is("time between starts of conversations"),
        Param::required("rate", ParamKind::Rate).is("bit rate of the packets within an item"),
        Param::or("segment", ParamKind::PACKET, "512 B")
            .is("payload of a full packet, which is 40 B longer"),
    ],
    source: "Danzig & Jamin, tcplib, USC-CS-91-495, 1991; Cáceres et al., SIGCOMM 1991; Paxson, \
             IEEE/ACM ToN 2(4), 1994; Paxson & Floyd, IEEE/ACM ToN 3(3), 1995",
    deviations: &[
        "Only telnet's silences are tcplib's own table; items are log-normal, cut off at four \
         standard deviations.",
        "One direction only: the other end sends nothing.",
        "There is no TCP below: packets are sent whether or not earlier ones arrive.",
    ],
    counters: &[("sent", "packets made")],
    example: one_way! {
        "10 s", "campus" [] "world",
        [r#"rate = "10 Mbit/s""#],
        "wide-area traffic" [r#"tcplib = { every = "200 ms", rate = "1 Mbit/s" }"#]
    },
    ..Page::at(here!())
};

/// Headers of TCP and IP.
pub const HEADERS: Bytes = Bytes(40);

/// A distribution: values at given quantiles, ascending, interpolated linearly.
struct Table(&'static [(f64, f64)]);

impl Table {
    fn sample(&self, stream: &mut Stream) -> f64 {
        let share = stream.unit();
        let (mut low, mut from) = (self.0[0].0, self.0[0].1);
        for &(high, to) in self.0 {
            if share < high {
                return from + (to - from) * (share - low) / (high - low);
            }
            (low, from) = (high, to);
        }
        from
    }
}

/// Shares of a normal distribution below this many standard deviations, from -3 to 4.
const NORMAL: [f64; 8] = [0.0013, 0.0228, 0.1587, 0.5, 0.8413, 0.9772, 0.9987, 1.0];

macro_rules! log_normal {
    ($($value:expr),*) => {{
        const VALUES: [f64; 8] = [$($value),*];
        const POINTS: [(f64, f64); 9] = {
            let mut points = [(0.0, VALUES[0]); 9];
            let mut at = 0;
            while at < 8 {
                points[at + 1] = (NORMAL[at], VALUES[at]);
                at += 1;
            }
            points
        };
        Table(&POINTS)
    }};
}

/// Bytes of an item: median 3000 B, a factor of 8 for each standard deviation.
const FTP: Table = log_normal!(6.0, 47.0, 375.0, 3e3, 24e3, 192e3, 1.536e6, 12.288e6);
/// Median 1500 B, a factor of 3.
const SMTP: Table = log_normal!(54.0, 163.0, 495.0, 1500.0, 4547.0, 13_784.0, 41_786.0, 126_673.0);
/// Median 11,500 B, a factor of 8.
const NNTP: Table = log_normal!(22.0, 180.0, 1438.0, 11.5e3, 92e3, 736e3, 5.888e6, 47.104e6);
/// Packets of a telnet conversation: median 100, a factor of 4.7.
const TELNET: Table = log_normal!(1.0, 4.0, 21.0, 100.0, 472.0, 2232.0, 10_542.0, 49_800.0);
/// Data of a telnet packet, in bytes.
const KEYS: Table = Table(&[(0.0, 1.0), (0.6, 2.0), (0.9, 10.0), (0.97, 100.0), (1.0, 512.0)]);
/// Silence before a telnet packet, in seconds.
const SILENCE: Table = Table(&[
    (0.0, 0.0006),
    (0.035, 0.008),
    (0.10, 0.075),
    (0.5, 0.237),
    (0.635, 0.346),
    (0.877, 1.17),
    (0.95, 2.4),
    (0.97, 5.0),
    (0.99, 20.0),
    (0.999, 60.0),
    (1.0, 210.0),
]);

/// An application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Application {
    /// Somebody types.
    Telnet,
    /// A file.
    Ftp,
    /// An e-mail.
    Smtp,
    /// News.
    Nntp,
}

/// Conversations of each, per hundred.
pub const SHARES: [(Application, u64); 4] = [
    (Application::Telnet, 16),
    (Application::Ftp, 25),
    (Application::Smtp, 45),
    (Application::Nntp, 14),
];

/// One conversation: what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conversation {
    /// Its application.
    pub application: Application,
    /// Packets of telnet, bytes of all others.
    left: u64,
}

impl Conversation {
    /// The next one to begin.
    pub fn begin(stream: &mut Stream) -> Conversation {
        let mut left = stream.below(100);
        let application = SHARES.iter().find(|&&(_, share)| match left.checked_sub(share) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        let application = application.expect("the shares are a hundred").0;
        let table = match application {
            Application::Telnet => TELNET,
            Application::Ftp => FTP,
            Application::Smtp => SMTP,
            Application::Nntp => NNTP,
        };
        Conversation { application, left: table.sample(stream) as u64 + 1 }
    }

    /// Packets left to send.
    pub fn packets(&self, segment: Bytes) -> u64 {
        match self.application {
            Application::Telnet => self.left,
            _ => self.left.div_ceil(segment.0),
        }
    }

    /// Its next packet: the silence before it and its data; `None` when it is over.
    pub fn packet(
        &mut self,
        segment: Bytes,
        rate: Rate,
        stream: &mut Stream,
    ) -> Option<(Duration, Bytes)> {
        self.left.checked_sub(1)?;
        match self.application {
            Application::Telnet => {
                self.left -= 1;
                let silence = Duration::from_secs_f64(SILENCE.sample(stream));
                Some((silence, Bytes(KEYS.sample(stream) as u64)))
            }
            _ => {
                let data = segment.min(Bytes(self.left));
                self.left -= data.0;
                Some((rate.time_for(data + HEADERS), data))
            }
        }
    }
}

/// The length of a random packet of such traffic, if half of its packets are interactive and half are full
/// segments, as in the statistics behind tcplib, regardless of conversations.
///
/// ```
/// use lastmeter_base::{Bytes, Stream};
/// use lastmeter_net::traffic::tcplib::length;
/// let mut stream = Stream::new(1, "packets");
/// let full = (0..1000).filter(|_| length(Bytes(512), &mut stream) == Bytes(552)).count();
/// assert!((450..550).contains(&full));
/// ```
pub fn length(segment: Bytes, stream: &mut Stream) -> Bytes {
    match stream.chance(0.5) {
        true => segment + HEADERS,
        false => Bytes(KEYS.sample(stream) as u64) + HEADERS,
    }
}

/// Traffic of one stub network.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate, Stream};
/// use lastmeter_net::traffic::tcplib::{Application, Tcplib};
/// let stub = Tcplib { every: Duration::from_ms(100), rate: Rate::from_mbit(1), segment: Bytes(512) };
/// let packets: Vec<_> = stub.packets(Stream::new(1, "stub")).take(1000).collect();
/// assert!(packets.iter().all(|&(_, len, _)| len > Bytes(40) && len <= Bytes(552)));
/// assert!(packets.iter().any(|&(_, _, of)| of == Application::Telnet));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcplib {
    /// Mean time between starts of conversations.
    pub every: Duration,
    /// Bit rate at which an item is sent.
    pub rate: Rate,
    /// Data of a full packet; at least 1 B.
    pub segment: Bytes,
}

impl Tcplib {
    /// When each packet is sent, its length with headers, and its application; an endless sequence.
    pub fn packets(
        self,
        mut stream: Stream,
    ) -> impl Iterator<Item = (Duration, Bytes, Application)> + Send {
        // The next packet of each conversation; a conversation without one has yet to begin.
        let mut next =
            BinaryHeap::from([Reverse((Duration::ZERO, 0u64, None::<(Conversation, Bytes)>))]);
        let mut begun = 0;
        std::iter::from_fn(move || {
            loop {
                let Reverse((at, number, what)) = next.pop()?;
                let (mut conversation, sent) = match what {
                    Some((conversation, data)) => (conversation, Some(data)),
                    None => {
                        begun += 1;
                        let gap = Draw::Exponential(self.every).sample(&mut stream);
                        next.push(Reverse((at + gap, begun, None)));
                        (Conversation::begin(&mut stream), None)
                    }
                };
                let application = conversation.application;
                if let Some((wait, data)) =
                    conversation.packet(self.segment, self.rate, &mut stream)
                {
                    next.push(Reverse((at + wait, number, Some((conversation, data)))));
                }
                if let Some(data) = sent {
                    return Some((at, data + HEADERS, application));
                }
            }
        })
    }
}

/// The least mean time between starts of conversations. All that are open are kept, and most last for minutes.
const EVERY_MIN: Duration = Duration::from_us(100);

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let tcplib = Tcplib {
        every: values.get("every"),
        rate: values.get("rate"),
        segment: values.get("segment"),
    };
    if tcplib.every < EVERY_MIN {
        return Err(format!(
            "too many conversations would be open at once: write an `every` of {EVERY_MIN} or more"
        ));
    }
    let packets = tcplib.packets(setting.stream.clone()).map(|(at, len, _)| (at, len));
    Ok(Traffic::Source(Pattern::Replay(Box::new(packets))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: Tcplib =
        Tcplib { every: Duration::from_ms(50), rate: Rate::from_mbit(1), segment: Bytes(512) };

    #[test]
    fn a_145_half_of_the_packets_are_interactive() {
        let mut stream = Stream::new(1, "test");
        let (mut interactive, mut all) = (0, 0);
        for _ in 0..100_000 {
            let conversation = Conversation::begin(&mut stream);
            let packets = conversation.packets(Bytes(512));
            all += packets;
            interactive +=
                if conversation.application == Application::Telnet { packets } else { 0 };
        }
        let share = interactive as f64 / all as f64;
        assert!((share - 0.5).abs() < 0.05, "{share}");
    }

    #[test]
    fn a_145_nine_of_ten_keystrokes_carry_less_than_ten_bytes() {
        let mut stream = Stream::new(1, "test");
        let short = (0..20_000).filter(|_| KEYS.sample(&mut stream) < 10.0).count();
        assert!((short as f64 / 20_000.0 - 0.9).abs() < 0.01, "{short}");
    }

    #[test]
    fn silences_have_the_median_and_the_tail_of_the_table() {
        let mut stream = Stream::new(1, "test");
        let mut silences: Vec<f64> = (0..20_001).map(|_| SILENCE.sample(&mut stream)).collect();
        silences.sort_by(f64::total_cmp);
        assert!((silences[10_000] / 0.237 - 1.0).abs() < 0.03, "{}", silences[10_000]);
        // One in a hundred is longer than 20 s, and the table is thin there.
        assert!((12.0..30.0).contains(&silences[19_800]), "{}", silences[19_800]);
    }

    #[test]
    fn packets_come_in_order_and_those_of_an_item_no_faster_than_its_rate() {
        let packets: Vec<_> = STUB.packets(Stream::new(3, "test")).take(20_000).collect();
        assert!(packets.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        let full = packets.iter().filter(|&&(_, len, _)| len == Bytes(552)).count();
        assert!(full > 2000, "{full}");
        // The same stream, the same packets.
        let again: Vec<_> = STUB.packets(Stream::new(3, "test")).take(20_000).collect();
        assert_eq!(packets, again);
    }

    #[test]
    fn an_item_is_split_into_full_segments_and_a_remainder() {
        let mut stream = Stream::new(1, "test");
        let mut item = Conversation { application: Application::Ftp, left: 1200 };
        assert_eq!(item.packets(Bytes(512)), 3);
        let mut lens = Vec::new();
        while let Some((_, data)) = item.packet(Bytes(512), Rate::from_mbit(1), &mut stream) {
            lens.push(data.0);
        }
        assert_eq!(lens, [512, 512, 176]);
    }
}
