//! Loss in bursts: a channel that is good or bad, and loses packets with a probability in each.
//!
//! ```text
//!            p, for each packet
//!       .----------------->.
//!     good                bad        loses with 1-k when good, with 1-h when bad
//!       '<-----------------'
//!            r
//! ```
//!
//! In the long run it is bad for p/(p+r) of the packets, for 1/r in a row on average.
//!
//! Source: Gilbert, Capacity of a burst-noise channel, BSTJ 39, 1960; Elliott, Estimates of error
//! rates for codes on burst-noise channels, BSTJ 42, 1963. Deviation: packets for bits.

use super::{Judge, PROBABILITY, TOWARD, Verdict, filter};
use lastmeter_base::kind::{Family, Kind, Page, Param, Values};
use lastmeter_base::{Stream, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};

const PAGE: &Page = &Page {
    name: "gilbert-elliott",
    family: Family::Node,
    what: "Loses packets in bursts: a channel that is good or bad for a number of packets.",
    ports: "any in --> (good | bad) --> link towards the destination",
    params: &[
        Param::required("good-to-bad", PROBABILITY).is("p, that a good channel turns bad"),
        Param::required("bad-to-good", PROBABILITY).is("r, that a bad channel turns good"),
        Param::or("loss-good", PROBABILITY, "0.0").is("1-k, that a good channel loses a packet"),
        Param::or("loss-bad", PROBABILITY, "1.0").is("1-h, that a bad channel loses a packet"),
        TOWARD,
    ],
    source: "Gilbert, BSTJ 39, 1960; Elliott, BSTJ 42, 1963",
    deviations: &["The channel changes state before each packet; it is good at first."],
    counters: &[("passed", "packets sent on"), ("lost", "packets lost")],
    drops: &[("lost", "packets that the channel lost")],
    example: one_way!("radio", "gilbert-elliott = { good-to-bad = 0.01, bad-to-good = 0.3 }"),
    ..Page::at(here!())
};

/// A channel with two states.
#[derive(Clone, Copy, Debug)]
pub struct GilbertElliott {
    /// p: that a good channel turns bad before a packet.
    pub good_to_bad: f64,
    /// r: that a bad channel turns good before a packet.
    pub bad_to_good: f64,
    /// 1-k: that a good channel loses a packet.
    pub loss_good: f64,
    /// 1-h: that a bad channel loses a packet.
    pub loss_bad: f64,
    /// Whether it is bad.
    pub bad: bool,
}

impl GilbertElliott {
    /// Gilbert's channel, which loses nothing while it is good and everything while it is bad.
    pub fn gilbert(good_to_bad: f64, bad_to_good: f64) -> GilbertElliott {
        GilbertElliott { good_to_bad, bad_to_good, loss_good: 0.0, loss_bad: 1.0, bad: false }
    }
}

impl Judge for GilbertElliott {
    const HIT: &'static str = "lost";
    fn judge(&mut self, _now: Time, random: &mut Stream) -> Verdict {
        let turns = if self.bad { self.bad_to_good } else { self.good_to_bad };
        self.bad ^= random.chance(turns);
        match random.chance(if self.bad { self.loss_bad } else { self.loss_good }) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let channel = GilbertElliott {
        good_to_bad: values.get("good-to-bad"),
        bad_to_good: values.get("bad-to-good"),
        loss_good: values.get("loss-good"),
        loss_bad: values.get("loss-bad"),
        bad: false,
    };
    filter(PAGE, values, site, channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u32 = 400_000;

    /// Lengths of runs of lost packets.
    fn bursts(channel: &mut GilbertElliott, random: &mut Stream) -> Vec<u32> {
        let mut bursts = Vec::new();
        let mut burst = 0;
        for _ in 0..PACKETS {
            match channel.judge(Time::START, random) {
                Verdict::Drop => burst += 1,
                _ if burst > 0 => bursts.push(std::mem::take(&mut burst)),
                _ => {}
            }
        }
        bursts
    }

    #[test]
    fn bursts_are_geometric_and_the_loss_is_what_the_chain_says() {
        for (seed, p, r) in [(1, 0.01, 0.25), (2, 0.002, 0.1), (3, 0.2, 0.5)] {
            let mut channel = GilbertElliott::gilbert(p, r);
            let bursts = bursts(&mut channel, &mut Stream::new(seed, "channel"));
            let lost: u32 = bursts.iter().sum();
            let (count, mean) = (bursts.len() as f64, f64::from(lost) / bursts.len() as f64);
            // A geometric length has standard deviation sqrt(1-r)/r; four of the mean's own.
            let bound = 4.0 * (1.0 - r).sqrt() / r / count.sqrt();
            assert!((mean - 1.0 / r).abs() < bound, "{mean} +- {bound}, not {}", 1.0 / r);
            let single = bursts.iter().filter(|&&burst| burst == 1).count() as f64 / count;
            assert!((single - r).abs() < 4.0 * (r * (1.0 - r) / count).sqrt(), "{single}");
            // The variance of the share of a two-state chain exceeds the binomial one by
            // (2-p-r)/(p+r).
            let (share, loss) = (p / (p + r), f64::from(lost) / f64::from(PACKETS));
            let variance = share * (1.0 - share) * (2.0 - p - r) / (p + r) / f64::from(PACKETS);
            assert!((loss - share).abs() < 4.0 * variance.sqrt(), "{loss}, not {share}");
        }
    }

    #[test]
    fn each_state_has_its_own_probability() {
        let mut random = Stream::new(5, "channel");
        let mut channel =
            GilbertElliott { loss_good: 0.1, loss_bad: 0.7, ..GilbertElliott::gilbert(0.5, 0.5) };
        let mut lost = [[0u32; 2]; 2];
        for _ in 0..PACKETS {
            let verdict = channel.judge(Time::START, &mut random);
            lost[usize::from(channel.bad)][usize::from(verdict == Verdict::Drop)] += 1;
        }
        for (state, probability) in [(0, 0.1), (1, 0.7)] {
            let [passed, lost] = lost[state];
            super::super::check::binomial_agrees(lost.into(), (passed + lost).into(), probability);
        }
    }
}
