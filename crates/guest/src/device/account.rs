//! What passed through an adapter, stage by stage.

use super::{RECEIVE, TRANSMIT};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_engine::Distribution;
use lastmeter_host::adapter::receiver::Received;
use lastmeter_host::adapter::transmitter::Span;
use std::collections::BTreeMap;

/// One stage.
#[derive(Clone, Debug, Default)]
pub struct StageTimes {
    /// From the end of the stage before until service began.
    pub wait: Distribution,
    /// Service.
    pub service: Distribution,
}

impl StageTimes {
    fn record(&mut self, wait: Duration, service: Duration) {
        self.wait.record(wait);
        self.service.record(service);
    }
}

/// What passed.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Of frames sent: the ring, the interface, the transfer, the network's set-up, the network.
    pub sending: [StageTimes; 5],
    /// Of frames received: initialization, transfer, and the wait for their interrupt.
    pub receiving: [StageTimes; 3],
    /// From the doorbell until the frame has left.
    pub sent: Distribution,
    /// From its arrival until the frame is in the guest's memory and an interrupt is due.
    pub received: Distribution,
    /// Frames that the guest offered, or that arrived, by ring.
    pub entered: [u64; 2],
    /// Frames that have left, or are in the guest's memory, by ring.
    pub frames: [u64; 2],
    /// Bytes of frames, by ring.
    pub bytes: [u64; 2],
    /// Of these, bytes that were copied from or to the guest, by ring.
    pub copied: [u64; 2],
    /// Frames lost, by ring and reason.
    pub lost: [BTreeMap<&'static str, u64>; 2],
    /// Doorbells seen, by ring.
    pub doorbells: [u64; 2],
    /// Interrupts raised, by ring.
    pub raised: [u64; 2],
    /// Interrupts that the guest did not want because it polled, by ring.
    pub unwanted: [u64; 2],
    /// When the first frame entered, and the last one was done.
    span: Option<(Time, Time)>,
    /// When the frames in [`Account::received`] that wait for an interrupt had arrived.
    waiting: Vec<Time>,
}

impl Account {
    /// From the first frame to the last.
    pub fn lasted(&self) -> Duration {
        self.span.map_or(Duration::ZERO, |(from, to)| to.saturating_since(from))
    }

    fn spans(&mut self, from: Time, to: Time) {
        let (first, last) = self.span.unwrap_or((from, to));
        self.span = Some((first.min(from), last.max(to)));
    }

    pub(super) fn lose(&mut self, ring: usize, why: &'static str) {
        *self.lost[ring].entry(why).or_default() += 1;
    }

    pub(super) fn sent(&mut self, rung: Time, taken: Time, phases: &[Span; 4], len: Bytes) {
        self.frames[TRANSMIT] += 1;
        self.bytes[TRANSMIT] += len.0;
        self.sending[0].record(taken.saturating_since(rung), Duration::ZERO);
        let mut before = taken;
        for (stage, span) in self.sending[1..].iter_mut().zip(phases) {
            // What interrupted it counts as waiting.
            let all = span.to.saturating_since(before);
            stage.record(all.saturating_sub(span.served), span.served);
            before = span.to;
        }
        self.sent.record(before.saturating_since(rung));
        self.spans(rung, before);
    }

    pub(super) fn received(&mut self, one: &Received, placed: Time) {
        self.frames[RECEIVE] += 1;
        self.bytes[RECEIVE] += one.len.0;
        let Received { arrived, initialization, transfer, .. } = one;
        let wait = initialization.from.saturating_since(*arrived);
        self.receiving[0].record(wait, initialization.served);
        // Until the guest had buffers, and the engine was free.
        let wait = transfer.from.saturating_since(initialization.to);
        debug_assert!(placed <= transfer.from, "a transfer needs buffers");
        self.receiving[1].record(wait, transfer.served);
        self.waiting.push(*arrived);
        self.spans(*arrived, transfer.to);
    }

    /// The guest looks by itself for what is done.
    pub(super) fn polled(&mut self, ring: usize) {
        if ring == RECEIVE {
            self.waiting.clear();
        }
    }

    /// An interrupt for what was done at these instants.
    pub(super) fn interrupt(&mut self, ring: usize, at: Time, reported: &[Time], wanted: bool) {
        let count = if wanted { &mut self.raised } else { &mut self.unwanted };
        count[ring] += 1;
        if ring == RECEIVE {
            for done in reported {
                self.receiving[2].record(at.saturating_since(*done), Duration::ZERO);
            }
            for arrived in self.waiting.drain(..) {
                self.received.record(at.saturating_since(arrived));
            }
        }
    }
}
