//! Subsessions of media: transfers of pictures or files, as fast as the source can send, then silence.
//!
//! ```text
//! |<-------- lasting ------->|<-------- between ------->|<-------- lasting ------->|
//! unit     unit     unit                                unit     unit     unit
//! ||||     ||||     ||||                                ||||     ||||     ||||       at `rate`
//!   `every`
//! ```

use super::{Maker, Setting, Traffic, packets};
use crate::source::Pattern;
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Rate};

const PAGE: &Page = &Page {
    name: "subsessions",
    family: Family::Traffic,
    what: "Pictures or files in trains of packets at the available rate, with silence in between.",
    ports: "(units, in subsessions) --> out",
    params: &[
        Param::required("unit", ParamKind::BUFFER).is("a picture, or a file: what is sent at once"),
        Param::required("size", ParamKind::PACKET)
            .is("length of a packet; a unit's last is shorter"),
        Param::required("rate", ParamKind::Rate).is("bit rate of the packets within a unit"),
        Param::required("every", ParamKind::Time).is("time from the start of a unit to the next"),
        Param::required("lasting", ParamKind::Time).is("length of a subsession; 0 s: one unit"),
        Param::required("between", ParamKind::Time)
            .is("time from the end of a subsession to the next"),
    ],
    source: "\"Aurora at MIT\", §5.5 and Table 11: video is captured at a low average rate and \
             sent in bursts at the available rate",
    deviations: &["Units and subsessions have constant lengths; real ones vary."],
    counters: &[("sent", "packets made")],
    example: r#"
duration = "2 s"
[nodes]
camera = { host = {} }
screen = { host = {} }
[[links]]
between = ["camera", "screen"]
rate = "500 Mbit/s"
[[traffic]]
name = "ten pictures a second"
from = "camera"
to = "screen"
[traffic.subsessions]
unit = "76800 B"
size = "1 KiB"
rate = "100 Mbit/s"
every = "100 ms"
lasting = "1 s"
between = "500 ms"
"#,
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let subsessions = Subsessions {
        unit: values.get("unit"),
        packet: values.get("size"),
        rate: values.get("rate"),
        every: values.get("every"),
        lasting: values.get("lasting"),
        between: values.get("between"),
    };
    Ok(Traffic::Source(Pattern::Replay(Box::new(subsessions.packets()?))))
}

/// Subsessions that would begin later are not made, so that no sum overflows the range of time.
const FAR: u64 = u64::MAX / 4;

/// A class of media traffic.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate};
/// use lastmeter_net::traffic::Subsessions;
/// let pictures = Subsessions {
///     unit: Bytes(2500), packet: Bytes(1000), rate: Rate::from_mbit(8),
///     every: Duration::from_ms(10), lasting: Duration::from_ms(20), between: Duration::from_ms(80),
/// };
/// let mut ms = pictures.packets()?.map(|(at, len)| (at.as_ps() / 1_000_000_000, len.0));
/// let first: Vec<_> = ms.by_ref().take(4).collect();
/// assert_eq!(first, [(0, 1000), (1, 1000), (2, 500), (10, 1000)]);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subsessions {
    /// A picture, or a file.
    pub unit: Bytes,
    /// Its packets.
    pub packet: Bytes,
    /// Bit rate within a unit.
    pub rate: Rate,
    /// Time from the start of a unit to the next.
    pub every: Duration,
    /// Length of a subsession.
    pub lasting: Duration,
    /// Time from the end of a subsession to the next.
    pub between: Duration,
}

impl Subsessions {
    /// Units of one subsession.
    pub fn units(&self) -> u64 {
        self.lasting.as_ps().div_ceil(self.every.as_ps().max(1)).max(1)
    }

    /// Bytes of one subsession.
    pub fn bytes(&self) -> Bytes {
        self.unit * self.units()
    }

    /// Time from the start of a subsession to the next: never less than its units take.
    pub fn period(&self) -> Duration {
        let last = self.every * (self.units() - 1) + self.rate.time_for(self.unit);
        last.max(self.lasting) + self.between
    }

    /// When each packet is sent, counted from the start, and its length; an endless sequence.
    ///
    /// # Errors
    /// A unit or a packet is empty, or a unit takes longer than the time until the next.
    pub fn packets(self) -> Result<impl Iterator<Item = (Duration, Bytes)> + Send, String> {
        if self.unit == Bytes(0) || self.packet == Bytes(0) {
            return Err("units and packets of 0 B are empty: write at least 1 B".to_owned());
        }
        if self.units() > 1 && self.rate.time_for(self.unit) > self.every {
            return Err(format!(
                "a unit of {} takes {} at {}, and the next begins after {}: write a longer `every`",
                self.unit,
                self.rate.time_for(self.unit),
                self.rate,
                self.every
            ));
        }
        let of_unit = self.unit.0.div_ceil(self.packet.0);
        let of_session = of_unit * self.units();
        Ok((0u64..).map_while(move |number| {
            let (session, within) = (number / of_session, number % of_session);
            let (unit, packet) = (within / of_unit, within % of_unit);
            let before = Bytes(packet * self.packet.0);
            let begins = self.period().as_ps().checked_mul(session).filter(|ps| *ps < FAR)?;
            let at = Duration::from_ps(begins) + self.every * unit + self.rate.time_for(before);
            Some((at, self.packet.min(Bytes(self.unit.0 - before.0))))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_127_every_subsession_has_its_bytes_and_packets_come_in_order(
            unit in 1u64..5000, packet in 1u64..1500, every in 5u64..50, lasting in 0u64..200,
            between in 0u64..100,
        ) {
            let ms = Duration::from_ms;
            let class = Subsessions {
                unit: Bytes(unit),
                packet: Bytes(packet),
                rate: Rate::from_mbit(80),
                every: ms(every),
                lasting: ms(lasting),
                between: ms(between),
            };
            let of_session = unit.div_ceil(packet) * class.units();
            let packets: Vec<_> = class.packets().unwrap().take(3 * of_session as usize).collect();
            for (number, session) in packets.chunks(of_session as usize).enumerate() {
                let sum: u64 = session.iter().map(|&(_, len)| len.0).sum();
                prop_assert_eq!(Bytes(sum), class.bytes());
                prop_assert_eq!(session[0].0, class.period() * number as u64);
            }
            prop_assert!(packets.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        }
    }

    #[test]
    fn units_that_cannot_be_sent_in_time_are_refused() {
        let class = Subsessions {
            unit: Bytes(10_000),
            packet: Bytes(1000),
            rate: Rate::from_mbit(1),
            every: Duration::from_ms(10),
            lasting: Duration::from_secs(1),
            between: Duration::ZERO,
        };
        let refusal = class.packets().err().unwrap_or_default();
        assert!(refusal.contains("write a longer `every`"), "{refusal}");
    }
}
