//! A filter: a machine decides what happens to each packet, at once.
//!
//! ```text
//! any in --> (machine: pass, drop, send twice, corrupt) --> out 0
//! ```

use lastmeter_base::{Body, Duration, Packet, StageId, Stream, Time};
use lastmeter_engine::{Context, Element, PortId, Report};

/// The verdict for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes unchanged.
    Pass,
    /// It is dropped.
    Drop,
    /// It passes, followed at once by a copy.
    Twice,
    /// This many of its bits are flipped.
    Corrupt(u32),
}

/// A machine that decides about packets one by one.
pub trait Judge: Send {
    /// The name of the counter, and of the drop, for packets that do not just pass.
    const HIT: &'static str;
    /// What happens to the next packet, which arrives at `now`.
    fn judge(&mut self, now: Time, random: &mut Stream) -> Verdict;
}

/// Applies the decisions of a [`Judge`] to packets.
pub struct Filter<J> {
    judge: J,
    stage: StageId,
    passed: u64,
    hit: u64,
    /// The positions of the bits to flip.
    bits: Vec<u64>,
}

impl<J: Judge> Filter<J> {
    /// A filter whose drops are accounted to `stage`.
    pub fn new(judge: J, stage: StageId) -> Filter<J> {
        Filter { judge, stage, passed: 0, hit: 0, bits: Vec::new() }
    }
}

impl<J: Judge> Element for Filter<J> {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let now = cx.now();
        let verdict = self.judge.judge(now, cx.rng());
        self.hit += u64::from(verdict != Verdict::Pass);
        if verdict == Verdict::Drop {
            cx.drop(packet, Some(self.stage), J::HIT);
            return;
        }
        self.passed += 1;
        // A visit without time, so that its row is in the path's order.
        packet.visit(self.stage, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let copy = (verdict == Verdict::Twice).then(|| copy(cx, &packet));
        if let Verdict::Corrupt(count) = verdict {
            corrupt(&mut packet, count, cx.rng(), &mut self.bits);
        }
        cx.send(PortId(0), packet);
        if let Some(copy) = copy {
            cx.send(PortId(0), copy);
        }
    }
    fn timers(&self) -> u32 {
        0
    }
    fn report(&self, out: &mut Report) {
        out.count("passed", self.passed);
        out.count(J::HIT, self.hit);
    }
}

/// A copy that is a packet of its own in the books.
pub(crate) fn copy(cx: &mut Context<'_>, packet: &Packet) -> Packet {
    let mut copy = cx.make(packet.path, packet.len);
    let Body { len, born, entered, destination, path, flow, seq, .. } = **packet;
    let Body { class, ecn, hops, ends, .. } = **packet;
    (copy.len, copy.born, copy.entered, copy.destination) = (len, born, entered, destination);
    (copy.path, copy.flow, copy.seq) = (path, flow, seq);
    (copy.class, copy.ecn, copy.hops, copy.ends) = (class, ecn, hops, ends);
    copy.visits = packet.visits.clone();
    copy.copy_inner(packet);
    copy
}

/// Flips `count` different bits of the content, or of the tag where there is no content, which a
/// sink notices.
fn corrupt(packet: &mut Packet, count: u32, random: &mut Stream, bits: &mut Vec<u64>) {
    let all = match packet.content.len() {
        0 => u64::BITS.into(),
        len => len as u64 * 8,
    };
    bits.clear();
    // Floyd's sampling without replacement (Bentley & Floyd, CACM 30(9), 1987).
    for last in all.saturating_sub(count.into())..all {
        let bit = random.below(last + 1);
        bits.push(if bits.contains(&bit) { last } else { bit });
    }
    for &bit in bits.iter() {
        match packet.content.get_mut((bit / 8) as usize) {
            Some(byte) => *byte ^= 1 << (bit % 8),
            None => packet.tag ^= 1 << bit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Bytes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exactly_as_many_bits_differ_as_were_to_be_flipped(
            content in prop::collection::vec(any::<u8>(), 0..100),
            count in 1u32..64, seed in 0u64..99,
        ) {
            let mut packet = Packet::new(Bytes(100));
            packet.content.clone_from(&content);
            corrupt(&mut packet, count, &mut Stream::new(seed, "bits"), &mut Vec::new());
            let differing = |a: &[u8], b: &[u8]| -> u32 {
                a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
            };
            let (found, of_tag) = (differing(&content, &packet.content), packet.tag.count_ones());
            let most = 8 * content.len() as u32;
            match content.is_empty() {
                true => prop_assert_eq!((found, of_tag), (0, count)),
                false => prop_assert_eq!((found, of_tag), (count.min(most), 0)),
            }
        }
    }
}
