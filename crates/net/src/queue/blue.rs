//! Blue: a drop probability that rises with loss and falls when the link idles, whatever the queue's length.
//!
//! ```text
//! in --> (drop or mark with p) --> [ newest | ... | oldest ] --> out
//!              ^ p += increment on overflow      ^ p -= decrement when the link goes idle
//! ```
//!
//! | Parameter   | Unit    | Default  | Meaning                                                       |
//! |-------------|---------|----------|---------------------------------------------------------------|
//! | `increment` | 1       | 0.0025   | d1, step by which p rises                                     |
//! | `decrement` | 1       | 0.00025  | d2, step by which p falls                                     |
//! | `freeze`    | time    | 100 ms   | time between changes of p                                     |
//! | `high`      | packets | none     | a queue longer than this also counts as loss (L in the paper) |
//! | `separate`  | flag    | false    | separate freeze times for rise and fall (reference code)      |
//! | `ecn`       | flag    | false    | mark instead of dropping if both ends support ECN             |
//! | `packets`   | packets | no limit | limit on packets held                                         |
//! | `bytes`     | size    | no limit | limit on bytes held                                           |
//!
//! Source: Feng, Kandlur, Saha & Shin, BLUE, University of Michigan CSE-TR-387-99, 1999, Fig. 2, and
//! IEEE/ACM ToN 10(4), 2002; defaults are those of its reference code (configuration B2).
//!
//! Deviation: a queue here is not called when its link goes idle, so that moment is computed: when
//! the last packet has been sent at the link's rate (at once if the rate is not known). p falls, as of
//! that moment, at the next arrival.
//!
//! Rows: D-75.

use super::flows::{BYTES, Bank, PACKETS, Room, of_bank};
use super::red::{ECN, MARKED, PROBABILITY};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Duration, Ecn, Packet, Rate, Stream, Time};

/// Parameters of Blue; see the table above.
#[derive(Clone, Debug)]
pub struct BlueOptions {
    /// Step by which p rises.
    pub increment: f64,
    /// Step by which p falls.
    pub decrement: f64,
    /// Minimum time between changes of p.
    pub freeze: Duration,
    /// A longer queue also counts as loss.
    pub high: Option<u64>,
    /// Whether rise and fall freeze separately.
    pub separate: bool,
    /// Whether packets are marked.
    pub ecn: bool,
    /// The link's rate, where it has one.
    pub rate: Option<Rate>,
    /// The hard limit.
    pub room: Room,
}

impl BlueOptions {
    /// Configuration B2 of the paper.
    pub fn usual(room: Room) -> BlueOptions {
        BlueOptions {
            increment: 0.0025,
            decrement: 0.00025,
            freeze: Duration::from_ms(100),
            high: None,
            separate: false,
            ecn: false,
            rate: None,
            room,
        }
    }
}

/// A first-in, first-out queue with Blue.
#[derive(Debug)]
pub struct Blue {
    bank: Bank,
    options: BlueOptions,
    random: Stream,
    p: f64,
    /// When p last rose and last fell; the same instant for both unless they freeze separately.
    rose: Option<Time>,
    fell: Option<Time>,
    /// When the link goes idle, unless something arrives first.
    idle_at: Option<Time>,
    marked: u64,
}

impl Blue {
    /// Empty, with p = 0, drawing from `random`.
    pub fn new(options: BlueOptions, random: Stream) -> Blue {
        let mut bank = Bank::new(options.room);
        bank.reach(0);
        Blue { bank, options, random, p: 0.0, rose: None, fell: None, idle_at: None, marked: 0 }
    }
    fn thawed(&self, now: Time, last: Option<Time>) -> bool {
        last.is_none_or(|last| now.saturating_since(last) > self.options.freeze)
    }
    fn note_loss(&mut self, now: Time) {
        if self.thawed(now, self.rose) {
            self.p = (self.p + self.options.increment).min(1.0);
            self.rose = Some(now);
            if !self.options.separate {
                self.fell = self.rose;
            }
        }
    }
    fn note_idle(&mut self, at: Time) {
        self.idle_at = None;
        if self.thawed(at, self.fell) {
            self.p = (self.p - self.options.decrement).max(0.0);
            self.fell = Some(at);
            if !self.options.separate {
                self.rose = self.fell;
            }
        }
    }
}

impl Queue for Blue {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        if let Some(at) = self.idle_at.filter(|&at| at < now) {
            self.note_idle(at);
        }
        if !self.bank.fits(packet.len) {
            self.note_loss(now);
            return Err(packet);
        }
        if self.options.high.is_some_and(|high| self.bank.packets > high) {
            self.note_loss(now);
        }
        if self.random.chance(self.p) {
            if !(self.options.ecn && packet.ecn.is_capable()) {
                self.bank.discard(packet, "blue");
                return Ok(());
            }
            packet.ecn = Ecn::Ce;
            self.marked += 1;
        }
        self.idle_at = None;
        self.bank.push(0, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        let packet = self.bank.pop(0);
        match &packet {
            // The link finds nothing to send: it is idle now, whatever was computed.
            None => {
                if self.idle_at.is_some() {
                    self.note_idle(now);
                }
            }
            Some(last) if self.bank.packets == 0 => {
                let busy = self.options.rate.map_or(Duration::ZERO, |rate| rate.time_for(last.len));
                self.idle_at = Some(now + busy);
            }
            Some(_) => {}
        }
        packet
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

impl Described for Blue {
    const PAGE: &'static Page = &Page {
        name: "blue",
        family: Family::Queue,
        what: "Blue: a drop probability that rises with loss and falls when the link is idle.",
        ports: "in --> (drop or mark with p) --> [ newest | ... | oldest ] --> out",
        params: &[
            Param::or("increment", PROBABILITY, "0.0025").is("step by which p rises"),
            Param::or("decrement", PROBABILITY, "0.00025").is("step by which p falls"),
            Param::or("freeze", ParamKind::Time, "100 ms").is("minimum time between changes of p"),
            Param::optional("high", ParamKind::COUNT, "none")
                .is("a queue longer than this also counts as loss"),
            Param::or("separate", ParamKind::Flag, "false").is("rise and fall freeze separately"),
            ECN,
            PACKETS,
            BYTES,
        ],
        source: "Feng, Kandlur, Saha & Shin, CSE-TR-387-99, 1999, Fig. 2; IEEE/ACM ToN 10(4), 2002",
        deviations: &[
            "The moment when the link goes idle is computed from its rate; p falls at the \
            next arrival.",
        ],
        counters: &[MARKED],
        drops: &[FULL, ("blue", "packets dropped at random")],
        example: one_queue!(r#"blue = { packets = 50, freeze = "10 ms" }"#),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Blue {
        let options = BlueOptions {
            increment: values.get("increment"),
            decrement: values.get("decrement"),
            freeze: values.get("freeze"),
            high: values.given::<u64>("high").map(|high| site.buffers.scale(high)),
            separate: values.get("separate"),
            ecn: values.get("ecn"),
            rate: site.rate,
            room: Room::from_values(values, site),
        };
        Blue::new(options, site.stream())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};

    fn blue(options: BlueOptions) -> Blue {
        Blue::new(options, Stream::new(1, "blue"))
    }
    fn at(ms: u64) -> Time {
        Time::START + Duration::from_ms(ms)
    }

    /// The bound that the rule itself gives: one step per freeze time.
    #[test]
    fn a_second_of_continuous_loss_raises_p_by_at_most_ten_increments() {
        let mut queue = blue(BlueOptions::usual(Room::packets(1)));
        queue.enqueue(at(0), packet(0, 1500)).unwrap();
        (0..1000).for_each(|ms| {
            let _ = queue.enqueue(at(ms), packet(0, 1500));
        });
        assert!(queue.p > 8.9 * 0.0025 && queue.p <= 10.0 * 0.0025 + 1e-12, "{}", queue.p);
    }

    #[test]
    fn p_falls_once_per_idle_period_and_never_below_zero() {
        let rate = Some(Rate::from_mbit(12));
        let mut queue = blue(BlueOptions { rate, ..BlueOptions::usual(Room::UNLIMITED) });
        queue.p = 0.0003;
        for (ms, p) in [(0, 0.0003), (200, 0.00005), (201, 0.00005), (400, 0.0)] {
            // 1500 bytes take 1 ms, so the packet at 201 ms finds the link just going idle.
            queue.random = Stream::new(1, "no drop");
            queue.enqueue(at(ms), packet(0, 1500)).unwrap();
            assert!((queue.p - p).abs() < 1e-12, "{ms}: {}", queue.p);
            queue.dequeue(at(ms));
        }
    }

    #[test]
    fn accounts_for_every_packet() {
        let freeze = Duration::from_us(10);
        for ecn in [false, true] {
            let usual = BlueOptions::usual(Room::packets(20));
            let options =
                BlueOptions { freeze, ecn, high: ecn.then_some(10), separate: ecn, ..usual };
            check::holds(blue(options), &check::USUAL);
        }
    }
}
