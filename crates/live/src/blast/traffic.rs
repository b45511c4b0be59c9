//! What a flow sends: sizes, pace, pattern, format; and the resulting schedule of departures.

use crate::text::Exact;
use lastmeter_base::{Bytes, Draw, Duration, Quantity, Rate, Stream};
use lastmeter_linux::{Result, wrong};
use lastmeter_wire::aal::aal5;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header;

/// The longest run, and the latest start within it.
pub const RUN_MAX: Duration = Duration::from_secs(3600);
/// The most sizes that one flow cycles through or draws from.
pub const SIZES_MAX: usize = 1_000;
/// The most packets of a plan that have times and sizes of their own, all its flows together.
pub const STORED_MAX: usize = 100_000;
/// The greatest weight of a size.
pub const WEIGHT_MAX: u32 = 1_000_000;
/// Bytes of the headers of IPv4 and UDP, which a size of the format `udp` includes.
pub const HEADERS_V4: usize = 28;
/// Bytes of the headers of IPv6 and UDP.
pub const HEADERS_V6: usize = 48;
/// The longest payload of UDP over IPv4.
const PAYLOAD_MAX: usize = 65_535 - HEADERS_V4;

/// Bytes of the headers of IP and UDP.
pub(super) fn headers_len(ipv6: bool) -> usize {
    if ipv6 { HEADERS_V6 } else { HEADERS_V4 }
}

/// The address of a socket on all interfaces.
pub(super) fn any_address(ipv6: bool) -> IpAddr {
    if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Packets per second, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRate(u64);

impl PacketRate {
    /// Time between two packets, rounded up.
    pub fn gap(self) -> Duration {
        Duration::from_ps(1_000_000_000_000_000_u64.div_ceil(self.0.max(1)))
    }
}

impl Quantity for PacketRate {
    const NAME: &'static str = "packet rate";
    const UNITS: &'static [(&'static str, u64)] =
        &[("pps", 1_000), ("kpps", 1_000_000), ("Mpps", 1_000_000_000)];
    const PROPOSED: [&'static str; 2] = ["kpps", "pps"];
    const ZERO_ALLOWED: bool = false;
    fn from_smallest(count: u64) -> PacketRate {
        PacketRate(count)
    }
}

impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        match rest {
            0 if whole > 0 && whole.is_multiple_of(1_000) => write!(f, "{} kpps", whole / 1_000),
            0 => write!(f, "{whole} pps"),
            _ => write!(f, "{whole}.{rest:03} pps"),
        }
    }
}

impl Exact for PacketRate {
    fn whole(self) -> String {
        self.to_string()
    }
}

/// How long packets are, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Cycled through in order.
    InTurn(Vec<u32>),
    /// Drawn at random, each with its weight.
    Weighted(Vec<(u32, u32)>),
    /// Uniform between the two, inclusive.
    Between(u32, u32),
}

impl Sizes {
    /// The least and the greatest; `None` where there is no size.
    pub fn bounds(&self) -> Option<(u32, u32)> {
        match self {
            Sizes::InTurn(sizes) => Some((*sizes.iter().min()?, *sizes.iter().max()?)),
            Sizes::Weighted(sizes) => {
                let sizes = sizes.iter().map(|&(size, _)| size);
                Some((sizes.clone().min()?, sizes.max()?))
            }
            &Sizes::Between(low, high) => (low <= high).then_some((low, high)),
        }
    }

    /// The only size, if there is just one.
    pub fn constant(&self) -> Option<u32> {
        self.bounds().filter(|(low, high)| low == high).map(|(low, _)| low)
    }
}

/// The rate of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Bits per second.
    Rate(#[serde(with = "crate::text")] Rate),
    /// Packets per second.
    Packets(#[serde(with = "crate::text")] PacketRate),
    /// As fast as the host can.
    Fastest,
    /// Each packet has its own time and size: those of a capture, or drawn by a model.
    Stored,
}

/// When packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// At equal intervals.
    Periodic,
    /// At exponential intervals with the pace's mean.
    Poisson,
    /// At equal intervals for `on`, then silent for `off`; the pace is that of `on`.
    OnOff {
        /// Length of a burst.
        #[serde(with = "crate::text")]
        on: Duration,
        /// Length of the silence after it.
        #[serde(with = "crate::text")]
        off: Duration,
    },
}

/// The content of the UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Header and fill. Sizes are those of the IP packet.
    Udp,
    /// An AAL5 CPCS-PDU with padding, length and CRC-32 (ITU-T I.363.5 §9.2), sent without UDP's
    /// checksum over IPv4, so that AAL5 must detect damage. Sizes are those of the frame in it.
    Aal5,
}

impl Format {
    /// Its name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Format::Udp => "udp",
            Format::Aal5 => "aal5",
        }
    }

    /// The possible sizes over IPv4; over IPv6 the minimum is 20 bytes more.
    pub fn sizes(self) -> (u32, u32) {
        let least = header::LEN as u32;
        match self {
            Format::Udp => (least + HEADERS_V4 as u32, 65_535),
            Format::Aal5 => {
                let cells = PAYLOAD_MAX / 48 * 48;
                (least, (cells - aal5::TRAILER_LEN) as u32)
            }
        }
    }

    /// Bytes in the UDP payload of a packet of this size; `None` if the header does not fit.
    pub fn payload(self, size: u32, ipv6: bool) -> Option<usize> {
        let size = size as usize;
        match self {
            Format::Udp => {
                let payload = size.checked_sub(headers_len(ipv6))?;
                (header::LEN..=PAYLOAD_MAX).contains(&payload).then_some(payload)
            }
            Format::Aal5 => {
                let fits = size >= header::LEN && aal5::pdu_len(size) <= PAYLOAD_MAX;
                fits.then(|| aal5::pdu_len(size))
            }
        }
    }
}

/// What one flow sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Traffic {
    /// How long packets are.
    pub size: Sizes,
    /// How fast.
    pub pace: Pace,
    /// When.
    pub pattern: Pattern,
    /// In what format.
    pub format: Format,
    /// How long after the run's start.
    #[serde(with = "crate::text")]
    pub start: Duration,
    /// How long; until `count` if not given.
    #[serde(with = "crate::text::optional", default)]
    pub duration: Option<Duration>,
    /// How many packets at most.
    #[serde(default)]
    pub count: Option<u64>,
    /// Whether packets of one size may be sent in batches (UDP GSO).
    pub offload: bool,
    /// For [`Pace::Stored`]: of each packet, nanoseconds since the one before it, and its size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored: Vec<(u64, u32)>,
}

impl Traffic {
    /// Rejects traffic that cannot be sent.
    ///
    /// # Errors
    /// Names the parameter, what was found and what would be right.
    pub fn check(&self) -> Result<()> {
        let many = match &self.size {
            Sizes::InTurn(sizes) => sizes.len(),
            Sizes::Weighted(sizes) => sizes.len(),
            Sizes::Between(..) => 1,
        };
        let Some((low, high)) = self.size.bounds().filter(|_| many <= SIZES_MAX) else {
            let right = format!("1 to {SIZES_MAX} sizes, or two in rising order");
            let found = match self.size {
                Sizes::Between(low, high) => format!("{low} B to {high} B"),
                _ => format!("{many} sizes"),
            };
            return wrong("size", found, right);
        };
        if let Sizes::Weighted(sizes) = &self.size
            && !sizes.iter().all(|&(_, weight)| (1..=WEIGHT_MAX).contains(&weight))
        {
            return wrong("size", "a weight", format!("1 to {WEIGHT_MAX}"));
        }
        let (least, most) = self.format.sizes();
        if low < least || high > most {
            let found = if low < least { low } else { high };
            return wrong("size", format!("{found} B"), format!("{least} B to {most} B"));
        }
        self.check_stored(low, high)?;
        if self.pace == Pace::Fastest && self.pattern != Pattern::Periodic {
            let found = "set for a flow without a rate";
            return wrong("pattern", found, "periodic, or the flow needs a rate");
        }
        if let Pattern::OnOff { on, off } = self.pattern
            && (on == Duration::ZERO || on > RUN_MAX || off > RUN_MAX)
        {
            return wrong("on", format!("{on}"), format!("more than 0 and at most {RUN_MAX}"));
        }
        let ends = self.duration.filter(|&duration| duration > Duration::ZERO);
        if (self.duration.is_some() && ends.is_none()) || ends.is_some_and(|ends| ends > RUN_MAX) {
            let found = self.duration.unwrap_or(Duration::ZERO).to_string();
            return wrong("duration", found, format!("more than 0 and at most {RUN_MAX}"));
        }
        if self.start > RUN_MAX {
            return wrong("start", self.start.to_string(), format!("at most {RUN_MAX}"));
        }
        match self.count {
            None if ends.is_none() => {
                wrong("duration", "missing", "given as a time, or `count` as a number")
            }
            Some(0) => wrong("count", "0", "at least 1"),
            _ => Ok(()),
        }
    }

    /// Stored packets go with the pace that needs them, and their sizes lie within those announced.
    fn check_stored(&self, low: u32, high: u32) -> Result<()> {
        let many = self.stored.len();
        if (self.pace == Pace::Stored) != (many > 0) || many > STORED_MAX {
            let right = format!("1 to {STORED_MAX} packets, in a flow that has them");
            return wrong("traffic", format!("{many} packets"), right);
        }
        if self.pace == Pace::Stored && self.pattern != Pattern::Periodic {
            return wrong("pattern", "set for stored packets", "left out: they have their times");
        }
        match self.stored.iter().find(|(_, size)| !(low..=high).contains(size)) {
            Some((_, size)) => wrong("traffic", format!("a packet of {size} B"), "within `size`"),
            None => Ok(()),
        }
    }

    /// The latest departure of its last packet, after the run's start.
    pub fn ends(&self) -> Duration {
        let lasts = self.duration.unwrap_or(RUN_MAX).as_ps();
        Duration::from_ps(self.start.as_ps().saturating_add(lasts))
    }
}

/// A packet that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When, after the flow's start; always zero for [`Pace::Fastest`].
    pub at: Duration,
    /// How long it is, in bytes.
    pub size: u32,
}

/// The departures of a flow, in order: the same for the same seed and name, on any host.
///
/// The next one is due a gap after the last was due, not after it left, so lateness does not accumulate.
#[derive(Clone, Debug)]
pub struct Schedule {
    traffic: Traffic,
    stream: Stream,
    at: u64,
    made: u64,
    /// The sum of all weights.
    weights: u64,
}

impl Schedule {
    /// Of traffic that [`Traffic::check`] accepts.
    pub fn new(traffic: &Traffic, seed: u64, name: &str) -> Schedule {
        let weights = match &traffic.size {
            Sizes::Weighted(sizes) => sizes.iter().map(|&(_, weight)| u64::from(weight)).sum(),
            _ => 0,
        };
        let stream = Stream::new(seed, name);
        let mut schedule = Schedule { traffic: traffic.clone(), stream, at: 0, made: 0, weights };
        schedule.at = schedule.stored().map_or(0, |(gap, _)| gap.as_ps());
        schedule
    }

    /// The stored packet that is next, and the time since the one before it.
    fn stored(&self) -> Option<(Duration, u32)> {
        let &(gap, size) = self.traffic.stored.get(usize::try_from(self.made).ok()?)?;
        Some((Duration::from_ps(gap.saturating_mul(1000)), size))
    }

    /// When the next packet would be due: a gap after the last.
    pub fn reached(&self) -> Duration {
        Duration::from_ps(self.at)
    }

    fn size(&mut self) -> u32 {
        if let Some((_, size)) = self.stored() {
            return size;
        }
        match &self.traffic.size {
            Sizes::InTurn(sizes) => sizes[(self.made % sizes.len() as u64) as usize],
            Sizes::Weighted(sizes) => {
                let mut left = self.stream.below(self.weights);
                for &(size, weight) in sizes {
                    match left.checked_sub(u64::from(weight)) {
                        Some(rest) => left = rest,
                        None => return size,
                    }
                }
                unreachable!("a draw is below the sum of the weights")
            }
            &Sizes::Between(low, high) => low + self.stream.below(u64::from(high - low) + 1) as u32,
        }
    }

    fn step(&mut self, size: u32) {
        let gap = match self.traffic.pace {
            Pace::Rate(rate) => rate.time_for(Bytes(u64::from(size))),
            Pace::Packets(rate) => rate.gap(),
            Pace::Fastest | Pace::Stored => Duration::ZERO,
        };
        let gap = match self.traffic.pattern {
            Pattern::Poisson => Draw::Exponential(gap).sample(&mut self.stream),
            _ => gap,
        };
        self.at = self.at.saturating_add(gap.as_ps());
        if let Pattern::OnOff { on, off } = self.traffic.pattern {
            let cycle = on.as_ps().saturating_add(off.as_ps());
            if self.at % cycle >= on.as_ps() {
                self.at = (self.at / cycle + 1).saturating_mul(cycle);
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = Departure;

    fn next(&mut self) -> Option<Departure> {
        let until = self.traffic.duration.unwrap_or(RUN_MAX).as_ps();
        let paced = self.traffic.pace != Pace::Fastest;
        if self.traffic.pace == Pace::Stored && self.stored().is_none() {
            return None;
        }
        if self.traffic.count.is_some_and(|count| self.made >= count) || (paced && self.at >= until)
        {
            return None;
        }
        let at = Duration::from_ps(self.at);
        let size = self.size();
        self.step(size);
        self.made += 1;
        if let Some((gap, _)) = self.stored() {
            self.at = self.at.saturating_add(gap.as_ps());
        }
        Some(Departure { at, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1500 B at 1 Gbit/s: one every 12 us.
    pub(crate) fn plain() -> Traffic {
        Traffic {
            size: Sizes::InTurn(vec![1500]),
            pace: Pace::Rate(Rate::from_gbit(1)),
            pattern: Pattern::Periodic,
            format: Format::Udp,
            start: Duration::ZERO,
            duration: Some(Duration::from_ms(12)),
            count: None,
            offload: true,
            stored: Vec::new(),
        }
    }

    fn departures(traffic: &Traffic) -> Vec<Departure> {
        traffic.check().unwrap();
        Schedule::new(traffic, 1, "flow").collect()
    }

    #[test]
    fn periodic_departures_are_equally_spaced() {
        let all = departures(&plain());
        assert_eq!(all.len(), 1000);
        assert_eq!(all[999], Departure { at: Duration::from_us(12 * 999), size: 1500 });
        let packets = Pace::Packets(PacketRate::parse("900 kpps").unwrap());
        let all = departures(&Traffic { pace: packets, count: Some(10), ..plain() });
        assert_eq!((all.len(), all[1].at.as_ps()), (10, 1_111_112));
    }

    #[test]
    fn poisson_departures_have_the_requested_rate() {
        let traffic = Traffic {
            pattern: Pattern::Poisson,
            duration: Some(Duration::from_secs(2)),
            ..plain()
        };
        let count = departures(&traffic).len() as f64;
        // 166,667 expected; five standard deviations are 2041.
        assert!((count - 166_667.0).abs() < 2_041.0, "{count}");
        let again = departures(&traffic).len() as f64;
        assert_eq!(count, again);
    }

    #[test]
    fn bursts_start_with_each_cycle_and_nothing_leaves_in_between() {
        let (on, off) = (Duration::from_ms(1), Duration::from_ms(3));
        let all = departures(&Traffic { pattern: Pattern::OnOff { on, off }, ..plain() });
        // A millisecond has 84 packets, the first at its beginning, and there are three.
        assert_eq!(all.len(), 3 * 84);
        assert_eq!(all[84].at, Duration::from_ms(4));
        assert!(all.iter().all(|one| one.at.as_ps() % 4_000_000_000 < 1_000_000_000));
    }

    #[test]
    fn e_52_stored_packets_leave_at_their_times_with_their_sizes() {
        let stored = vec![(2_000, 100), (0, 1500), (9_000, 60), (1, 60)];
        let traffic = Traffic {
            size: Sizes::Between(60, 1500),
            pace: Pace::Stored,
            stored: stored.clone(),
            ..plain()
        };
        let all: Vec<(u64, u32)> =
            departures(&traffic).iter().map(|one| (one.at.as_ps() / 1000, one.size)).collect();
        assert_eq!(all, [(2_000, 100), (2_000, 1500), (11_000, 60), (11_001, 60)]);
        let short = Traffic { duration: Some(Duration::from_us(5)), ..traffic.clone() };
        assert_eq!(departures(&short).len(), 2);
        let said = |traffic: Traffic| traffic.check().unwrap_err().to_string();
        assert!(said(Traffic { stored: vec![(0, 1501)], ..traffic.clone() }).contains("1501 B"));
        assert!(said(Traffic { stored: Vec::new(), ..traffic }).contains("1 to 100000 packets"));
        assert!(said(Traffic { stored, ..plain() }).contains("in a flow that has them"));
    }

    #[test]
    fn sizes_are_drawn_by_weight_or_cycled_through() {
        let of = |size| {
            let traffic = Traffic { size, count: Some(8000), duration: None, ..plain() };
            departures(&traffic).into_iter().map(|one| one.size).collect::<Vec<_>>()
        };
        assert_eq!(of(Sizes::InTurn(vec![64, 512, 1500]))[..4], [64, 512, 1500, 64]);
        let drawn = of(Sizes::Weighted(vec![(64, 7), (1500, 1)]));
        let small = drawn.iter().filter(|&&size| size == 64).count();
        assert!((6850..7150).contains(&small), "{small}");
        let between = of(Sizes::Between(64, 66));
        assert!((64..=66).all(|size| between.contains(&size)));
    }

    #[test]
    fn invalid_traffic_is_rejected_with_the_valid_range() {
        let said = |traffic: Traffic| traffic.check().unwrap_err().to_string();
        let sizes = |sizes| Traffic { size: sizes, ..plain() };
        assert_eq!(
            said(sizes(Sizes::InTurn(vec![59]))),
            "`size` is 59 B; it must be 60 B to 65535 B"
        );
        assert!(said(sizes(Sizes::InTurn(vec![]))).contains("1 to 1000 sizes"));
        assert!(said(sizes(Sizes::Between(100, 90))).contains("rising order"));
        assert!(said(Traffic { duration: None, ..plain() }).contains("missing"));
        assert!(said(Traffic { count: Some(0), ..plain() }).contains("at least 1"));
        let pace = Pace::Fastest;
        assert!(said(Traffic { pace, pattern: Pattern::Poisson, ..plain() }).contains("periodic"));
    }

    #[test]
    fn a_packet_rate_round_trips() {
        for text in ["900 kpps", "1 pps", "0.5 pps", "1234567 pps"] {
            let rate = PacketRate::parse(text).unwrap();
            assert_eq!(PacketRate::parse(&rate.to_string()), Ok(rate), "{text}");
        }
        let error = PacketRate::parse("900").unwrap_err().to_string();
        assert!(error.contains("900 kpps"), "{error}");
    }

    #[test]
    fn a_udp_payload_excludes_headers_and_an_aal5_payload_is_whole_cells() {
        assert_eq!(Format::Udp.payload(1500, false), Some(1472));
        assert_eq!(Format::Udp.payload(1500, true), Some(1452));
        assert_eq!(Format::Udp.payload(64, true), None);
        assert_eq!(Format::Aal5.payload(1500, false), Some(1536));
        let (_, most) = Format::Aal5.sizes();
        assert_eq!(Format::Aal5.payload(most, false), Some(65_472));
        assert_eq!(Format::Aal5.payload(most + 1, false), None);
    }
}
