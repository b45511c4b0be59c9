//! Stop-and-Go: packets that arrive in one time frame leave in the next, never before.
//!
//! ```text
//! time  |-- frame 0 --|-- frame 1 --|-- frame 2 --|
//! in       a b            c
//! out                 a b            c               idle in between, even if something waits
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                              |
//! |-----------|---------|----------|------------------------------------------------------|
//! | `frame`   | time    | 1 ms     | length T of a frame; frames begin at multiples of it |
//! | `packets` | packets | no limit | limit on packets held                                |
//! | `bytes`   | size    | no limit | limit on bytes held                                  |
//!
//! Not work-conserving: that keeps traffic as smooth as it arrived, and bounds delay per hop by 2 T.
//!
//! Source: Golestani, A Stop-and-Go Queueing Framework for Congestion Management, SIGCOMM 1990, §3;
//! E-04. Deviation: one frame size; arriving frames need no phase, because links' delays are not
//! rounded to frames here.

use super::flows::{BYTES, Bank, PACKETS, Room, of_bank};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Duration, Packet, Time, here};

/// Stop-and-Go.
#[derive(Debug)]
pub struct StopAndGo {
    bank: Bank,
    frame: Duration,
}

impl StopAndGo {
    /// Empty, with frames of at least a picosecond.
    pub fn new(frame: Duration, room: Room) -> StopAndGo {
        let mut bank = Bank::new(room);
        bank.reach(0);
        StopAndGo { bank, frame: frame.max(Duration::from_ps(1)) }
    }
    /// When the head may go: at the first frame that begins after it arrived.
    fn head_at(&self) -> Option<Time> {
        let entered = self.bank.fifo(0).head()?.entered.as_ps();
        let frame = self.frame.as_ps();
        Some(Time::from_ps((entered / frame + 1).saturating_mul(frame)))
    }
}

impl Queue for StopAndGo {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        if !self.bank.fits(packet.len) {
            return Err(packet);
        }
        packet.entered = now;
        self.bank.push(0, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        if self.head_at()? > now {
            return None;
        }
        self.bank.pop(0)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        self.head_at().map(|at| at.max(now))
    }
    of_bank!(packets, bytes);
}

impl Described for StopAndGo {
    const PAGE: &'static Page = &Page {
        name: "stop-and-go",
        family: Family::Queue,
        what: "Stop-and-Go: packets that arrive in one time frame leave in the next.",
        ports: "in --> [ this frame ] --> [ last frame ] --> out",
        params: &[
            Param::or("frame", ParamKind::Time, "1 ms").is("length of a time frame"),
            PACKETS,
            BYTES,
        ],
        source: "Golestani, SIGCOMM 1990, §3",
        deviations: &["One frame size, and no phase between links."],
        drops: &[FULL],
        example: one_queue!(r#"stop-and-go = { frame = "2 ms", packets = 50 }"#),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> StopAndGo {
        StopAndGo::new(values.get("frame"), Room::from_values(values, site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};

    #[test]
    fn a_packet_leaves_in_the_frame_after_its_arrival() {
        let at = |us| Time::START + Duration::from_us(us);
        let mut queue = StopAndGo::new(Duration::from_us(10), Room::UNLIMITED);
        queue.enqueue(at(3), packet(0, 100)).unwrap();
        queue.enqueue(at(10), packet(1, 100)).unwrap();
        assert!(queue.dequeue(at(9)).is_none());
        assert_eq!(queue.dequeue(at(10)).unwrap().flow.0, 0);
        assert_eq!((queue.dequeue(at(19)).is_none(), queue.ready_at(at(19))), (true, Some(at(20))));
        assert_eq!(queue.dequeue(at(20)).unwrap().flow.0, 1);
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = check::Options { work_conserving: false, ..check::USUAL };
        check::holds(StopAndGo::new(Duration::from_us(7), Room::packets(30)), &options);
    }
}
