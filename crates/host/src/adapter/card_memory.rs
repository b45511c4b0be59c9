//! A card's memory in equal blocks, which keeps what is sent until it is acknowledged: Afterburner.
//!
//! ```text
//! Tx_free --socket layer fills it, summing--> [block] --header in a block of its own--> Tx_ready --> link
//!    ^-----------------------------acknowledged------------------------------------------- (kept)
//! link --> Rx_ready --protocol, then the block mover--> application        Rx_ready --> Rx_free
//! ```
//!
//! A packet takes its data's blocks and one for its header. Where no block is free, the writer waits and
//! a packet that arrives is not taken. So memory is sized by rate and delay: what is on its way and
//! unacknowledged stands on the card.
//!
//! | Option     | Unit   | Meaning                                        |
//! |------------|--------|------------------------------------------------|
//! | `memory`   | size   | of the card                                    |
//! | `block`    | size   | a power of two, 2 KiB to 64 KiB                |
//! | `transmit` | blocks | of them for sending; the rest is for receiving |
//!
//! Source: Watson et al., "AAL5 at a Gigabit for a Kilobuck", HPL-93-37, section 4.2 (J-69 to J-76).
//!
//! ```
//! use lastmeter_base::Bytes;
//! use lastmeter_host::adapter::card_memory::{CardMemory, Options};
//! let (memory, block) = (Bytes::from_mib(1), Bytes::from_kib(16));
//! let mut card = CardMemory::new(Options { memory, block, transmit: 32 })?;
//! assert_eq!(card.blocks(Bytes::from_kib(14)), 2);
//! let packet = card.write(Bytes::from_kib(14)).expect("there is room");
//! card.transmit(packet);
//! assert_eq!(card.transmit_free(), 30); // Kept until it is acknowledged.
//! card.acknowledged(packet);
//! assert_eq!(card.transmit_free(), 32);
//! # Ok::<(), String>(())
//! ```

use lastmeter_base::{Bytes, Rate};
use std::collections::{BTreeMap, VecDeque};

/// The smallest and the largest block.
pub const BLOCK: (Bytes, Bytes) = (Bytes::from_kib(2), Bytes::from_kib(64));

/// What a card's memory is; see the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of the card.
    pub memory: Bytes,
    /// A block.
    pub block: Bytes,
    /// Blocks for sending.
    pub transmit: u64,
}

/// A packet on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(u64);

/// Blocks and their four lists.
#[derive(Debug)]
pub struct CardMemory {
    options: Options,
    transmit_free: u64,
    /// Packets that wait for the link.
    transmit_ready: VecDeque<PacketId>,
    /// Blocks of packets that were written and not acknowledged yet.
    kept: BTreeMap<PacketId, u64>,
    receive_free: u64,
    receive_ready: VecDeque<(PacketId, u64)>,
    numbers: u64,
}

impl CardMemory {
    /// An empty card.
    ///
    /// # Errors
    /// The block is no power of two within [`BLOCK`], or there are fewer blocks than for sending.
    pub fn new(options: Options) -> Result<CardMemory, String> {
        let Options { memory, block, transmit } = options;
        if !block.0.is_power_of_two() || block < BLOCK.0 || block > BLOCK.1 {
            return Err(format!("a block of {block} is no power of two from 2 KiB to 64 KiB"));
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
        })
    }

    /// Blocks of a packet with so much data, its header's included.
    pub fn blocks(&self, data: Bytes) -> u64 {
        data.0.div_ceil(self.options.block.0) + 1
    }

    /// The socket layer copies a packet's data into free blocks; `None` where it has to wait for some.
    pub fn write(&mut self, data: Bytes) -> Option<PacketId> {
        let blocks = self.blocks(data);
        self.transmit_free = self.transmit_free.checked_sub(blocks)?;
        let packet = self.next();
        self.kept.insert(packet, blocks);
        self.transmit_ready.push_back(packet);
        Some(packet)
    }

    /// The link sends the packet that is ready first; again if it is `packet` that was lost.
    pub fn transmit(&mut self, packet: PacketId) -> bool {
        self.transmit_ready.retain(|&ready| ready != packet);
        self.kept.contains_key(&packet)
    }

    /// The packet that the link is to send next.
    pub fn ready(&self) -> Option<PacketId> {
        self.transmit_ready.front().copied()
    }

    /// The peer has a packet: its blocks are free. Of one that is not here nothing happens.
    pub fn acknowledged(&mut self, packet: PacketId) {
        if let Some(blocks) = self.kept.remove(&packet) {
            self.transmit_ready.retain(|&ready| ready != packet);
            self.transmit_free += blocks;
        }
    }

    /// A packet comes from the link; whether there was room.
    pub fn arrive(&mut self, data: Bytes) -> bool {
        let blocks = self.blocks(data);
        let Some(free) = self.receive_free.checked_sub(blocks) else { return false };
        self.receive_free = free;
        let packet = self.next();
        self.receive_ready.push_back((packet, blocks));
        true
    }

    /// The block mover has moved the oldest packet into the host's memory; whether there was one.
    pub fn moved(&mut self) -> bool {
        let Some((_, blocks)) = self.receive_ready.pop_front() else { return false };
        self.receive_free += blocks;
        true
    }

    /// Free blocks for sending.
    pub fn transmit_free(&self) -> u64 {
        self.transmit_free
    }

    /// Free blocks for receiving.
    pub fn receive_free(&self) -> u64 {
        self.receive_free
    }

    /// Packets of `data` that can be on their way at once.
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
                let kept: u64 = card.kept.values().sum();
                let received: u64 = card.receive_ready.iter().map(|(_, blocks)| blocks).sum();
                prop_assert_eq!(card.transmit_free + kept, 40);
                prop_assert_eq!(card.receive_free + received, 24);
                prop_assert!(card.transmit_ready.iter().all(|packet| card.kept.contains_key(packet)));
            }
        }
    }
}
