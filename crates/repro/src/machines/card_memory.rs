//! A card's memory in equal blocks, which keeps sent data until it is acknowledged: Afterburner.
//!
//! ```text
//! Tx_free --socket layer fills it, summing--> [block] --header in a block of its own--> Tx_ready --> link
//!    ^-----------------------------acknowledged------------------------------------------- (kept)
//! link --> Rx_ready --protocol, then the block mover--> application        Rx_ready --> Rx_free
//! ```
//!
//! A packet takes blocks for its data and one for its header. Without a free block, the writer waits and an arriving
//! packet is refused. So the memory is sized by the bandwidth-delay product: unacknowledged data stays on the card.
//!
//! | Option     | Unit   | Meaning                                        |
//! |------------|--------|------------------------------------------------|
//! | `memory`   | size   | of the card                                    |
//! | `block`    | size   | a power of two, 2 KiB to 64 KiB                |
//! | `transmit` | blocks | of them for sending; the rest is for receiving |
//!
//! The memory is written like any other, and summed on the way ([`CardMemory::copy_in`]): each block keeps the
//! sum of its data. A segment's checksum continues its header's sum by those and touches no data (the split
//! checksum); only a block that is cut, after a partial acknowledgement, is read again.
//!
//! Source: Watson et al., "AAL5 at a Gigabit for a Kilobuck", HPL-93-37, section 4.2 (J-69 to J-76).
//!
//! ```
//! use lastmeter_base::Bytes;
//! use lastmeter_repro::machines::card_memory::{CardMemory, Options};
//! let (memory, block) = (Bytes::from_mib(1), Bytes::from_kib(16));
//! let mut card = CardMemory::new(Options { memory, block, transmit: 32 })?;
//! assert_eq!(card.blocks(Bytes::from_kib(14)), 2);
//! let packet = card.write(Bytes::from_kib(14)).expect("there is room");
//! card.transmit(packet);
//! assert_eq!(card.transmit_free(), 30); // Kept until it is acknowledged.
//! card.acknowledged(packet);
//! assert_eq!(card.transmit_free(), 32);
//! // The same with bytes: what the checksum covers is not read a second time.
//! let data = vec![7; 14 * 1024];
//! let packet = card.copy_in(&data).expect("there is room");
//! let (sum, read_again) = card.sum(packet, 0..data.len()).expect("the packet is there");
//! assert_eq!((sum, read_again), (lastmeter_wire::internet::checksum::Sum::of(&data), 0));
//! # Ok::<(), String>(())
//! ```

use lastmeter_base::{Bytes, Rate};
use lastmeter_wire::internet::checksum::{self, Sum};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Smallest and largest block.
pub const BLOCK: (Bytes, Bytes) = (Bytes::from_kib(2), Bytes::from_kib(64));

/// Dimensions of a card's memory; see the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Total memory.
    pub memory: Bytes,
    /// Size of a block.
    pub block: Bytes,
    /// Blocks for sending.
    pub transmit: u64,
}

/// A packet on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(u64);

/// Counters of a card (J-50).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets written by the socket layer.
    pub written: u64,
    /// Writes that had to wait for blocks.
    pub waited: u64,
    /// Packets sent by the link, retransmissions included.
    pub transmitted: u64,
    /// Acknowledged packets.
    pub acknowledged: u64,
    /// Packets received.
    pub arrived: u64,
    /// Arriving packets refused for want of room.
    pub refused: u64,
    /// Received packets that the block mover took away.
    pub moved: u64,
}

/// A packet that is kept until it is acknowledged.
#[derive(Debug, Default)]
struct Unacknowledged {
    blocks: u64,
    /// The copied data; empty where only lengths count.
    data: Vec<u8>,
    /// The sum of each block's data, taken during the copy.
    sums: Vec<Sum>,
}

/// Blocks and their four lists.
#[derive(Debug)]
pub struct CardMemory {
    options: Options,
    transmit_free: u64,
    /// Packets that wait for the link.
    transmit_ready: VecDeque<PacketId>,
    /// Blocks of packets that were written and not yet acknowledged.
    kept: BTreeMap<PacketId, Unacknowledged>,
    receive_free: u64,
    receive_ready: VecDeque<(PacketId, u64)>,
    numbers: u64,
    counters: Counters,
}

impl CardMemory {
    /// An empty card.
    ///
    /// # Errors
    /// The block is not a power of two within [`BLOCK`], or there are fewer blocks than `transmit`.
    pub fn new(options: Options) -> Result<CardMemory, String> {
        let Options { memory, block, transmit } = options;
        if !block.0.is_power_of_two() || block < BLOCK.0 || block > BLOCK.1 {
            return Err(format!("a block of {block} is not a power of two from 2 KiB to 64 KiB"));
        }
        let all = memory.0 / block.0;
        if all < transmit {
            return Err(format!("{memory} are {all} blocks, and {transmit} are for sending"));
        }
        Ok(CardMemory {
            options,
            transmit_free: transmit,
            transmit_ready: VecDeque::new(),
            kept: BTreeMap::new(),
            receive_free: all - transmit,
            receive_ready: VecDeque::new(),
            numbers: 0,
            counters: Counters::default(),
        })
    }

    /// Blocks for a packet with this much data, its header's included.
    pub fn blocks(&self, data: Bytes) -> u64 {
        data.0.div_ceil(self.options.block.0) + 1
    }

    /// The socket layer takes free blocks for a packet's data; `None` if it has to wait.
    pub fn write(&mut self, data: Bytes) -> Option<PacketId> {
        self.keep(data, Vec::new(), Vec::new())
    }

    /// The same with the data: copied once, and each block summed during the copy (J-68, J-70).
    pub fn copy_in(&mut self, data: &[u8]) -> Option<PacketId> {
        let mut memory = vec![0; data.len()];
        let block = self.options.block.0 as usize;
        let copied = data.chunks(block).zip(memory.chunks_mut(block));
        let sums: Result<Vec<Sum>, _> = copied.map(|(from, to)| checksum::copy(from, to)).collect();
        let sums = sums.expect("both are cut alike");
        self.keep(Bytes(data.len() as u64), memory, sums)
    }

    fn keep(&mut self, len: Bytes, data: Vec<u8>, sums: Vec<Sum>) -> Option<PacketId> {
        let blocks = self.blocks(len);
        let Some(free) = self.transmit_free.checked_sub(blocks) else {
            self.counters.waited += 1;
            return None;
        };
        self.transmit_free = free;
        self.counters.written += 1;
        let packet = self.next();
        self.kept.insert(packet, Unacknowledged { blocks, data, sums });
        self.transmit_ready.push_back(packet);
        Some(packet)
    }

    /// The data of a packet that is still kept.
    pub fn data(&self, packet: PacketId) -> Option<&[u8]> {
        self.kept.get(&packet).map(|kept| &kept.data[..])
    }

    /// The sum of a part of a packet's data, and how many bytes had to be read for it: none of blocks that lie
    /// wholly in it. `None` if the packet is not kept or too short.
    pub fn sum(&self, packet: PacketId, part: Range<usize>) -> Option<(Sum, usize)> {
        let kept = self.kept.get(&packet)?;
        kept.data.get(part.clone())?;
        let block = self.options.block.0 as usize;
        let (mut sum, mut read, mut at) = (Sum::ZERO, 0, part.start);
        while at < part.end {
            let start = at - at % block;
            let end = (start + block).min(kept.data.len());
            let to = end.min(part.end);
            let known = kept.sums.get(at / block).filter(|_| at == start && to == end);
            let next = known.copied().unwrap_or_else(|| Sum::of(&kept.data[at..to]));
            read += if known.is_some() { 0 } else { to - at };
            sum = sum.and_after(at - part.start, next);
            at = to;
        }
        Some((sum, read))
    }

    /// The link sends the first ready packet, or again `packet`, which was lost.
    pub fn transmit(&mut self, packet: PacketId) -> bool {
        self.transmit_ready.retain(|&ready| ready != packet);
        let is_here = self.kept.contains_key(&packet);
        self.counters.transmitted += u64::from(is_here);
        is_here
    }

    /// The next packet for the link.
    pub fn ready(&self) -> Option<PacketId> {
        self.transmit_ready.front().copied()
    }

    /// A packet is acknowledged: its blocks are freed. An unknown one is ignored.
    pub fn acknowledged(&mut self, packet: PacketId) {
        if let Some(kept) = self.kept.remove(&packet) {
            self.transmit_ready.retain(|&ready| ready != packet);
            self.transmit_free += kept.blocks;
            self.counters.acknowledged += 1;
        }
    }

    /// A packet arrives from the link; returns whether there was room.
    pub fn arrive(&mut self, data: Bytes) -> bool {
        let blocks = self.blocks(data);
        let Some(free) = self.receive_free.checked_sub(blocks) else {
            self.counters.refused += 1;
            return false;
        };
        self.receive_free = free;
        self.counters.arrived += 1;
        let packet = self.next();
        self.receive_ready.push_back((packet, blocks));
        true
    }

    /// The block mover moves the oldest packet into the host's memory; returns whether there was one.
    pub fn moved(&mut self) -> bool {
        let Some((_, blocks)) = self.receive_ready.pop_front() else { return false };
        self.receive_free += blocks;
        self.counters.moved += 1;
        true
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Free transmit blocks.
    pub fn transmit_free(&self) -> u64 {
        self.transmit_free
    }

    /// Free receive blocks.
    pub fn receive_free(&self) -> u64 {
        self.receive_free
    }

    /// Packets of `data` bytes that can be in flight at once.
    pub fn packets(&self, data: Bytes) -> u64 {
        self.options.transmit / self.blocks(data)
    }

    /// The longest round trip that leaves no gap on a link of `rate` (J-69).
    pub fn round_trip(&self, data: Bytes, rate: Rate) -> lastmeter_base::Duration {
        rate.time_for(Bytes(self.packets(data) * data.0))
    }

    fn next(&mut self) -> PacketId {
        self.numbers += 1;
        PacketId(self.numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_blocks_that_are_no_power_of_two() {
        let with =
            |block| CardMemory::new(Options { memory: Bytes::from_mib(1), block, transmit: 1 });
        assert!(with(Bytes::from_kib(12)).is_err() && with(Bytes::from_kib(1)).is_err());
        assert!(with(Bytes::from_kib(128)).is_err() && with(Bytes::from_kib(2)).is_ok());
    }

    proptest! {
        #[test]
        fn no_block_is_lost(steps in prop::collection::vec((0_u8..5, 1_u64..40_000), 1..400)) {
            let options =
                Options { memory: Bytes::from_mib(1), block: Bytes::from_kib(16), transmit: 40 };
            let mut card = CardMemory::new(options).expect("64 blocks");
            let mut written = VecDeque::new();
            for (step, len) in steps {
                match step {
                    0 => written.extend(card.write(Bytes(len))),
                    1 => drop(card.ready().map(|packet| card.transmit(packet))),
                    2 => if let Some(packet) = written.pop_front() { card.acknowledged(packet) },
                    3 => drop(card.arrive(Bytes(len))),
                    _ => drop(card.moved()),
                }
                let kept: u64 = card.kept.values().map(|kept| kept.blocks).sum();
                let received: u64 = card.receive_ready.iter().map(|(_, blocks)| blocks).sum();
                prop_assert_eq!(card.transmit_free + kept, 40);
                prop_assert_eq!(card.receive_free + received, 24);
                let Counters { written, acknowledged, arrived, moved, .. } = card.counters();
                prop_assert_eq!(card.kept.len() as u64, written - acknowledged);
                prop_assert_eq!(card.receive_ready.len() as u64, arrived - moved);
                prop_assert!(card.transmit_ready.iter().all(|packet| card.kept.contains_key(packet)));
            }
        }

        #[test]
        fn a_part_has_the_sum_of_its_bytes_and_whole_blocks_are_not_read_again(
            data in prop::collection::vec(any::<u8>(), 1..9000),
            cut in (0.0..1.0_f64, 0.0..1.0_f64),
        ) {
            let options = Options { memory: Bytes::from_mib(1), block: BLOCK.0, transmit: 64 };
            let mut card = CardMemory::new(options).expect("512 blocks");
            let packet = card.copy_in(&data).expect("64 blocks are free");
            prop_assert_eq!(card.data(packet), Some(&data[..]));
            let at = |share: f64| (share * data.len() as f64) as usize;
            let (from, to) = (at(cut.0).min(at(cut.1)), at(cut.0).max(at(cut.1)));
            let (sum, read) = card.sum(packet, from..to).expect("it is kept");
            // 0000 and FFFF are the same number.
            let zero = |sum: Sum| if sum.value() == 0xffff { 0 } else { sum.value() };
            prop_assert_eq!(zero(sum), zero(Sum::of(&data[from..to])));
            prop_assert!(read < 2 * BLOCK.0.0 as usize);
            prop_assert_eq!(card.sum(packet, 0..data.len()).map(|(_, read)| read), Some(0));
            prop_assert!(card.sum(packet, 0..data.len() + 1).is_none());
            card.acknowledged(packet);
            prop_assert!(card.sum(packet, 0..1).is_none() && card.data(packet).is_none());
        }
    }
}
