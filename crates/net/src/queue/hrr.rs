//! Hierarchical round robin: slots of a frame belong to classes, or to a slower frame below.
//!
//! ```text
//! level 0   | a | a | b | . | a | a | b | . |      frame of 4 slots, one of them for level 1
//!                         |               |
//! level 1                 c               d        frame of 2 slots, one each 4 slots of level 0
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                    |
//! |-----------|---------|----------|------------------------------------------------------------|
//! | `slots`   | numbers | required | slots of class 0, 1, ... in each frame of its level        |
//! | `levels`  | numbers | all 0    | level of class 0, 1, ...; level 0 has the fastest frame    |
//! | `down`    | numbers | all 1    | slots that each frame of level 0, 1, ... gives to the next |
//! | `slot`    | size    | 1500 B   | longest packet; a slot lasts its transmission time         |
//! | `packets` | packets | no limit | limit on packets in all classes                            |
//! | `bytes`   | size    | no limit | limit on bytes in all classes                              |
//! | `each`    | packets | no limit | limit on packets of one class                              |
//!
//! A frame of level l has the slots of its classes, then those for level l + 1. A class sends one packet
//! in each of its slots, and never more per frame, so that traffic stays smooth at the time scale of its level:
//! not work-conserving. Classes beyond those listed are best effort and share one queue, served in slots whose class
//! has nothing to send. A packet longer than a slot is refused. Slots begin at multiples of the slot time
//! at the link's rate (1 Gbit/s if it has none). O(levels) per packet; finding the next usable slot
//! after an idle one is O(classes), at most 255.
//!
//! Source: Kalmanek, Kanakia & Keshav, Rate Controlled Servers for Very High-Speed Networks, GLOBECOM
//! 1990, §3; E-04. Deviation: a slot carries one packet of any length that fits, where the paper has
//! cells; the order of slots in a frame (classes as listed, then the next level) is ours.

use super::flows::{BYTES, Bank, By, Classifier, EACH, PACKETS, Room, of_bank};
use super::{Described, Queue, Site};
use lastmeter_base::kind::{Family, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, Rate, Time, here};

/// Limit on classes with slots; one more is best effort.
const CLASSES_MAX: usize = 255;
/// Limit on levels.
const LEVELS_MAX: u64 = 8;
/// Limit on the slots of a class, and on those that a level gives to the next.
const SLOTS_MAX: u64 = 1024;

/// One level's frame.
#[derive(Clone, Debug, Default)]
struct Frame {
    /// Its own slots, each with its class.
    own: Vec<u8>,
    /// Slots for the next level.
    down: u64,
}

impl Frame {
    fn own(&self) -> u64 {
        self.own.len() as u64
    }
    fn slots(&self) -> u64 {
        self.own() + self.down
    }
}

/// Which class each slot belongs to.
#[derive(Clone, Debug)]
pub struct Frames {
    levels: Vec<Frame>,
    /// Level, first slot in its frame, and number of slots of each class.
    classes: Vec<(usize, u64, u64)>,
}

impl Frames {
    /// The n-th class has `slots[n]` slots in each frame of level `levels[n]` (else 0); level l gives
    /// `down[l]` slots (else 1) to the next.
    ///
    /// # Errors
    /// No class or too many, more levels than classes, slots for a level that does not exist.
    ///
    /// ```
    /// use lastmeter_net::queue::Frames;
    /// let frames = Frames::new(&[2, 1, 1, 1], &[0, 0, 1, 1], &[])?;
    /// assert_eq!(frames.share(0), 0.5);
    /// assert_eq!(frames.share(2), 0.125);
    /// # Ok::<(), lastmeter_base::kind::Misfit>(())
    /// ```
    pub fn new(slots: &[u64], levels: &[u64], down: &[u64]) -> Result<Frames, Misfit> {
        if slots.is_empty() || slots.len() > CLASSES_MAX {
            let found = format!("{} classes have slots", slots.len());
            return Err(Misfit::new(SLOTS, found, format!("list 1 to {CLASSES_MAX}")));
        }
        if levels.len() > slots.len() {
            let found = format!("{} levels for {} classes", levels.len(), slots.len());
            return Err(Misfit::new(LEVELS, found, "write one for each class"));
        }
        let last = levels.iter().copied().max().unwrap_or(0).min(LEVELS_MAX - 1) as usize;
        if down.len() > last {
            let found = format!("there is no level {} to give slots to", last + 1);
            return Err(Misfit::new(DOWN, found, "list it in `levels`, or leave this out").at(last));
        }
        let mut frames = vec![Frame::default(); last + 1];
        for (level, frame) in frames[..last].iter_mut().enumerate() {
            frame.down = down.get(level).copied().unwrap_or(1).clamp(1, SLOTS_MAX);
        }
        let mut classes = Vec::new();
        for (class, &count) in slots.iter().enumerate() {
            let level = levels.get(class).map_or(0, |&level| (level as usize).min(last));
            let (count, own) = (count.clamp(1, SLOTS_MAX), &mut frames[level].own);
            classes.push((level, own.len() as u64, count));
            own.extend((0..count).map(|_| class as u8));
        }
        Ok(Frames { levels: frames, classes })
    }
    fn from_values(values: &Values) -> Result<Frames, Misfit> {
        let list = |name| values.given::<Vec<u64>>(name).unwrap_or_default();
        Frames::new(&list(SLOTS), &list(LEVELS), &list(DOWN))
    }
    /// The share of all slots that class `class` has.
    pub fn share(&self, class: usize) -> f64 {
        let (level, _, count) = self.classes[class];
        let above = self.levels[..level].iter();
        let given: f64 = above.map(|frame| frame.down as f64 / frame.slots() as f64).product();
        given * count as f64 / self.levels[level].slots() as f64
    }
    /// The class that slot `slot`, counted from the start, belongs to.
    fn owner(&self, mut slot: u64) -> usize {
        for frame in &self.levels {
            let (turn, place) = (slot / frame.slots(), slot % frame.slots());
            match frame.own.get(place as usize) {
                Some(&class) => return usize::from(class),
                None => slot = turn * frame.down + (place - frame.own()),
            }
        }
        unreachable!("the last level has no next one")
    }
    /// The first slot from `slot` on that belongs to `class`.
    fn next(&self, class: usize, slot: u64) -> u64 {
        let (level, first, count) = self.classes[class];
        // How many slots of its level come before, in total.
        let before = self.levels[..level].iter().fold(slot, |slot, frame| {
            let (turn, place) = (slot / frame.slots(), slot % frame.slots());
            turn * frame.down + place.saturating_sub(frame.own())
        });
        let slots = self.levels[level].slots();
        let (turn, place) = (before / slots, before % slots);
        let next = match place {
            early if early < first => turn * slots + first,
            inside if inside < first + count => before,
            _ => (turn + 1) * slots + first,
        };
        self.levels[..level].iter().rev().fold(next, |next, frame| {
            next / frame.down * frame.slots() + frame.own() + next % frame.down
        })
    }
}

const SLOTS: &str = "slots";
const LEVELS: &str = "levels";
const DOWN: &str = "down";

/// Hierarchical round robin.
#[derive(Debug)]
pub struct Hrr {
    bank: Bank,
    classifier: Classifier,
    frames: Frames,
    slot: Bytes,
    slot_time: Duration,
    each: u64,
    /// The first slot that is not used yet.
    unused: u64,
}

impl Hrr {
    /// Empty; a slot carries a packet of up to `slot` at `rate`.
    pub fn new(frames: Frames, slot: Bytes, rate: Rate, room: Room, each: u64) -> Hrr {
        let classes = frames.classes.len();
        let mut bank = Bank::new(room);
        bank.reach(classes);
        let classifier = Classifier::new(By::Class, Some(classes + 1));
        let slot_time = rate.time_for(slot).max(Duration::from_ps(1));
        Hrr { bank, classifier, frames, slot, slot_time, each, unused: 0 }
    }
    fn slot_at(&self, now: Time) -> u64 {
        (now.as_ps() / self.slot_time.as_ps()).max(self.unused)
    }
    fn best_effort(&self) -> usize {
        self.frames.classes.len()
    }
}

impl Queue for Hrr {
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        let class = self.classifier.queue_of(&packet);
        let full = !self.bank.fits(packet.len) || self.bank.fifo(class).len() >= self.each;
        if full || packet.len > self.slot {
            return Err(packet);
        }
        self.bank.push(class, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        let slot = now.as_ps() / self.slot_time.as_ps();
        if slot < self.unused {
            return None;
        }
        let owner = self.frames.owner(slot);
        let best_effort = self.best_effort();
        let class = if self.bank.fifo(owner).is_empty() { best_effort } else { owner };
        let packet = self.bank.pop(class)?;
        self.unused = slot + 1;
        Some(packet)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        if self.bank.packets == 0 {
            return None;
        }
        let from = self.slot_at(now);
        let slot = match self.bank.fifo(self.best_effort()).is_empty() {
            false => from,
            true => {
                let waiting =
                    (0..self.best_effort()).filter(|&class| !self.bank.fifo(class).is_empty());
                waiting.map(|class| self.frames.next(class, from)).min()?
            }
        };
        Some(Time::from_ps(slot.saturating_mul(self.slot_time.as_ps())).max(now))
    }
    of_bank!(packets, bytes);
}

impl Described for Hrr {
    const PAGE: &'static Page = &Page {
        name: "hrr",
        family: Family::Queue,
        what: "Hierarchical round robin: slots of a frame for classes, or for a slower frame.",
        ports: "in --> [ queue per class ] --> the class of this slot --> out",
        params: &[
            Param::required(SLOTS, ParamKind::Integers { min: 1, max: SLOTS_MAX })
                .is("slots of class 0, 1, ... in each frame of its level; others are best effort"),
            Param::optional(LEVELS, ParamKind::Integers { min: 0, max: LEVELS_MAX - 1 }, "all 0")
                .is("level of class 0, 1, ...; level 0 has the fastest frame"),
            Param::optional(DOWN, ParamKind::Integers { min: 1, max: SLOTS_MAX }, "all 1")
                .is("slots that each frame of level 0, 1, ... gives to the next"),
            Param::or("slot", ParamKind::PACKET, "1500 B")
                .is("longest packet; a slot lasts its transmission time"),
            PACKETS,
            BYTES,
            EACH,
        ],
        source: "Kalmanek, Kanakia & Keshav, GLOBECOM 1990, §3",
        deviations: &["A slot carries one packet of any length that fits; the paper has cells."],
        drops: &[("full", "packets that arrived when it was full, or longer than a slot")],
        example: one_queue!(
            "hrr = { slots = [3, 1, 1], levels = [0, 1, 1], packets = 50 }",
            "5 Mbit/s"
        ),
        ..Page::at(here!())
    };

    fn fit(values: &Values) -> Result<(), Misfit> {
        Frames::from_values(values).map(drop)
    }
    fn build(values: &Values, site: &Site<'_>) -> Hrr {
        Hrr::new(
            Frames::from_values(values).expect("the values are consistent"),
            values.get("slot"),
            site.rate.unwrap_or(Rate::from_gbit(1)),
            Room::from_values(values, site),
            site.buffers.scale(values.given("each").unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};
    use proptest::prelude::*;

    /// 1000 bytes at 8 Gbit/s: a slot is a microsecond.
    const RATE: Rate = Rate::from_gbit(8);

    fn hrr(frames: Frames) -> Hrr {
        Hrr::new(frames, Bytes(1000), RATE, Room::UNLIMITED, u64::MAX)
    }
    fn at(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }
    /// The class sent in each slot, while `active` are always backlogged.
    fn sent(frames: Frames, active: &[u32], slots: u64) -> Vec<Option<u32>> {
        let mut queue = hrr(frames);
        active.iter().for_each(|&flow| queue.enqueue(at(0), packet(flow, 1000)).unwrap());
        (0..slots)
            .map(|slot| {
                let out = queue.dequeue(at(slot))?;
                assert!(queue.dequeue(at(slot)).is_none(), "one packet per slot");
                queue.enqueue(at(slot), packet(out.flow.0, 1000)).unwrap();
                Some(out.flow.0)
            })
            .collect()
    }

    /// The drawing at the head of this file.
    #[test]
    fn slots_go_to_classes_and_to_the_frame_below_in_their_order() {
        let frames = || Frames::new(&[2, 1, 1, 1], &[0, 0, 1, 1], &[]).unwrap();
        let all = sent(frames(), &[0, 1, 2, 3], 8);
        assert_eq!(all, [0, 0, 1, 2, 0, 0, 1, 3].map(Some));
        // Slots left unused stay idle, except for best effort (class 4).
        let some = sent(frames(), &[1, 3], 8);
        assert_eq!(some, [None, None, Some(1), None, None, None, Some(1), Some(3)]);
        let effort = sent(frames(), &[1, 4], 4);
        assert_eq!(effort, [4, 4, 1, 4].map(Some));
    }

    proptest! {
        /// Kalmanek et al., §3: in each frame of its level a class sends its slots, neither more nor
        /// less while it has packets; and the next slot is the one found by a linear search.
        #[test]
        fn a_class_has_its_slots_in_each_frame_and_no_more(
            slots in prop::collection::vec(1u64..4, 1..6),
            levels in prop::collection::vec(0u64..3, 0..6),
            down in prop::collection::vec(1u64..3, 0..3),
        ) {
            let levels = &levels[..levels.len().min(slots.len())];
            let last = levels.iter().copied().max().unwrap_or(0) as usize;
            let frames = Frames::new(&slots, levels, &down[..down.len().min(last)]).unwrap();
            const SLOTS: u64 = 4000;
            let owners: Vec<usize> = (0..SLOTS).map(|slot| frames.owner(slot)).collect();
            for class in 0..slots.len() {
                let (level, _, count) = frames.classes[class];
                // A frame of this level in slots of the link, if that is a whole number.
                let above: u64 = frames.levels[..level].iter().map(Frame::slots).product();
                let given: u64 = frames.levels[..level].iter().map(|frame| frame.down).product();
                let frame = frames.levels[level].slots() * above;
                if frame * given < SLOTS {
                    let period = (frame * given) as usize;
                    let got = owners[..period].iter().filter(|&&owner| owner == class).count();
                    prop_assert_eq!(got as u64, count * given * given);
                    let share = got as f64 / period as f64;
                    prop_assert!((share - frames.share(class)).abs() < 1e-9);
                }
                for from in 0..200u64 {
                    let walk = owners[from as usize..].iter().position(|&owner| owner == class);
                    let Some(walk) = walk else { continue };
                    prop_assert_eq!(frames.next(class, from), from + walk as u64);
                }
            }
        }
    }

    #[test]
    fn invalid_frames_are_refused() {
        let param = |slots: &[u64], levels: &[u64], down: &[u64]| {
            Frames::new(slots, levels, down).unwrap_err().param
        };
        assert_eq!(param(&[], &[], &[]), "slots");
        assert_eq!(param(&[1], &[0, 1], &[]), "levels");
        assert_eq!(param(&[1, 1], &[0, 1], &[1, 1]), "down");
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = check::Options { work_conserving: false, ..check::USUAL };
        let frames = Frames::new(&[2, 1, 1, 1, 3], &[0, 0, 1, 1, 2], &[2]).unwrap();
        let room = Room::packets(30);
        check::holds(Hrr::new(frames, Bytes(1500), Rate::from_gbit(40), room, 12), &options);
    }
}
