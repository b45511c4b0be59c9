//! The benchmarks of `lastmeter bench emulator`: how many packets a second the emulated adapter can take on this
//! machine (E-53; Indiresan 1997, §4.4.1), with queues in order of arrival and in order of due dates.
//!
//! The card only sends each packet at its line rate, so that what is measured is the emulation: an order
//! submitted, three stages passed, its reports taken. As many packets as the card holds are in flight.

use crate::adapter::description::{Description, Discipline};
use crate::adapter::transmitter::{Order, Transmitter, What};
use lastmeter_base::bench::{Case, Work};
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};

/// Packets of a round.
const PACKETS: u64 = 100_000;
const PACKETS_QUICK: u64 = 1_000;
/// Length of a packet.
const LEN: Bytes = Bytes(1500);

/// The benchmarks of this crate.
pub const CASES: &[Case] = &[
    case("emulator/fifo@2", |quick| rounds(Discipline::Fifo, 2, quick)),
    case("emulator/heap@2", |quick| rounds(Discipline::Edd, 2, quick)),
    case("emulator/fifo@1000", |quick| rounds(Discipline::Fifo, 1000, quick)),
    case("emulator/heap@1000", |quick| rounds(Discipline::Edd, 1000, quick)),
];

const fn case(name: &'static str, prepare: fn(bool) -> Box<dyn FnMut() -> Work>) -> Case {
    let what = "sends a packet through an emulated adapter that holds this many";
    Case { name, unit: "packets", what, prepare }
}

/// The card: a description in which only the queueing matters.
fn card(discipline: Discipline, depth: u64) -> Description {
    let mut card = Description::plain("emulated");
    card.queueing.discipline = discipline;
    card.queueing.depth = depth;
    card.host.qos = discipline == Discipline::Edd;
    card.buffers.memory = LEN * (depth + 1);
    card.network.rate = Some(Rate::from_gbit(100));
    card
}

fn rounds(discipline: Discipline, depth: u64, quick: bool) -> Box<dyn FnMut() -> Work> {
    let packets = if quick { PACKETS_QUICK } else { PACKETS };
    let mut random = Stream::new(1, "emulator");
    let due: Vec<Duration> =
        (0..1 << 12).map(|_| Duration::from_us(10 + random.below(10_000))).collect();
    Box::new(move || {
        let mut card = Transmitter::new(card(discipline, depth));
        let (mut now, mut submitted, mut sent, mut hash) = (Time::START, 0, 0, 0u64);
        while sent < packets {
            while submitted < packets && card.outstanding() < depth {
                let mut order = Order::new(submitted, LEN);
                order.due = now + due[submitted as usize % due.len()];
                card.submit(now, order).expect("there is room for as many as the depth");
                submitted += 1;
            }
            let Some(at) = card.ready_at() else { break };
            now = at;
            card.advance(now);
            for event in card.events() {
                sent += u64::from(event.what == What::TransmitAck);
                hash = hash.rotate_left(5) ^ event.order.id ^ event.at.since_start().as_ps();
            }
        }
        Work { units: sent, hash }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_53_every_packet_is_sent_and_heaps_change_their_order() {
        let hashes: Vec<u64> = CASES.iter().map(|case| (case.prepare)(true)().hash).collect();
        assert_eq!(
            hashes,
            CASES.iter().map(|case| (case.prepare)(true)().hash).collect::<Vec<_>>()
        );
        assert_ne!(
            hashes[2], hashes[3],
            "a heap that holds 1000 packets sends them as they are due"
        );
        assert_eq!(rounds(Discipline::Edd, 2, true)().units, PACKETS_QUICK);
    }
}
