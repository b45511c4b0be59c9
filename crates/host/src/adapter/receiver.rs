//! An adapter's receive path as a machine: any adapter that a [`Description`] can describe (E-43, E-60, E-97, E-98).
//!
//! ```text
//! frame --> [ buffers ] --> initialization --> wait for host buffers --> DMA, buffer by buffer --> read end
//!   '-- dropped: no buffer      read, read ack       [`Receiver::place`]    address, address ack
//! ```
//!
//! | field of the description | effect |
//! |---|---|
//! | `buffers.memory` | a frame that finds no room is dropped: a network cannot wait |
//! | `host.per_message` | the duration of initialization |
//! | `transfer`, `pcie` | the duration of each buffer's DMA |
//! | `queueing.stages` | 3: initialization and DMA are concurrent; else one at a time |
//!
//! Source: Indiresan 1997, Figs 5.2, 5.4, 7.2 and 7.3. Deviations: the source gives reception no constants of its own,
//! so initialization takes as long as that of a transmission; what is received does not wait for what is sent.

use super::description::{Description, InterfaceKind, Side};
use super::transmitter::Span;
use lastmeter_base::{Bytes, Time};
use std::collections::VecDeque;

/// Frames whose commands are recorded.
const DRAWN: u64 = 4;

/// A frame in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number, in order of arrival.
    pub id: u64,
    /// Its length.
    pub len: Bytes,
    /// When it arrived.
    pub arrived: Time,
    /// Initialization.
    pub initialization: Span,
    /// From the first buffer's DMA to the last's.
    pub transfer: Span,
}

/// A frame on the adapter.
#[derive(Clone, Copy, Debug)]
struct Frame {
    id: u64,
    len: Bytes,
    arrived: Time,
    initialization: Span,
}

/// A frame on its way into host memory.
#[derive(Clone, Debug)]
struct Moving {
    frame: Frame,
    span: Span,
    /// What is left to move, the present buffer first.
    parts: VecDeque<Bytes>,
    /// When the present buffer is done.
    due: Time,
}

/// An adapter that receives.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, PerByte, Time};
/// use lastmeter_host::adapter::description::Description;
/// use lastmeter_host::adapter::receiver::Receiver;
/// let mut card = Description::plain("10 us, then 1 ns a byte");
/// card.host.per_message = Duration::from_us(10);
/// card.transfer.per_byte = PerByte::from_fs(1_000_000);
/// let mut adapter = Receiver::new(card);
/// assert!(adapter.arrive(Time::START, Bytes(1500)));
/// adapter.advance(adapter.ready_at().unwrap());
/// assert_eq!(adapter.announced(), Some(Bytes(1500)));
/// let now = Time::START + Duration::from_us(10);
/// adapter.place(now, &[Bytes(1500)]);
/// assert_eq!(adapter.ready_at(), Some(now + Duration::from_ns(1500)));
/// ```
pub struct Receiver {
    card: Description,
    numbers: u64,
    used: Bytes,
    waiting: VecDeque<Frame>,
    initializing: Option<(Time, Frame)>,
    announced: VecDeque<Frame>,
    placed: VecDeque<(Frame, VecDeque<Bytes>)>,
    moving: Option<Moving>,
    done: Vec<Received>,
    commands: Vec<(Time, u64, Side, &'static str)>,
}

impl Receiver {
    /// An idle adapter.
    pub fn new(card: Description) -> Receiver {
        Receiver {
            card,
            numbers: 0,
            used: Bytes::ZERO,
            waiting: VecDeque::new(),
            initializing: None,
            announced: VecDeque::new(),
            placed: VecDeque::new(),
            moving: None,
            done: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// A frame arrives; `false` if there is no buffer for it.
    #[must_use]
    pub fn arrive(&mut self, now: Time, len: Bytes) -> bool {
        if len.0 > self.card.buffers.memory.0.saturating_sub(self.used.0) {
            return false;
        }
        self.used += len;
        let initialization = Span::default();
        self.waiting.push_back(Frame { id: self.numbers, len, arrived: now, initialization });
        self.numbers += 1;
        self.start(now);
        true
    }

    /// The length of the frame that waits for buffers of the host.
    pub fn announced(&self) -> Option<Bytes> {
        self.announced.front().map(|frame| frame.len)
    }

    /// The host has buffers for the announced frame, to be filled with this many bytes each.
    ///
    /// Panics if no frame is announced.
    pub fn place(&mut self, now: Time, parts: &[Bytes]) {
        let frame = self.announced.pop_front().expect("a frame is announced");
        self.placed.push_back((frame, parts.iter().copied().collect()));
        self.start(now);
    }

    /// The host refuses the announced frame. Panics if there is none.
    pub fn refuse(&mut self) {
        let frame = self.announced.pop_front().expect("a frame is announced");
        self.used -= frame.len;
    }

    /// When the next event is due.
    pub fn ready_at(&self) -> Option<Time> {
        let initialized = self.initializing.map(|(at, _)| at);
        initialized.into_iter().chain(self.moving.as_ref().map(|moving| moving.due)).min()
    }

    /// Whether frames will be done without anything from the host.
    pub fn is_busy(&self) -> bool {
        self.moving.is_some() || !self.placed.is_empty()
    }

    /// Frames on the adapter.
    pub fn held(&self) -> u64 {
        let lists = self.waiting.len() + self.announced.len() + self.placed.len();
        let active = u64::from(self.initializing.is_some()) + u64::from(self.moving.is_some());
        lists as u64 + active
    }

    /// Handles everything due by `now`. Buffers for a frame that is announced meanwhile come from the next
    /// [`Receiver::place`], so their owner calls this for each event separately.
    pub fn advance(&mut self, now: Time) {
        while let Some(due) = self.ready_at().filter(|&due| due <= now) {
            if self.moving.as_ref().is_some_and(|moving| moving.due == due) {
                self.moved(due);
            } else if let Some((at, mut frame)) = self.initializing.take() {
                let span = &mut frame.initialization;
                (span.to, span.served) = (at, at - span.from);
                self.say(at, frame.id, Side::Host, "read ack");
                self.announced.push_back(frame);
            }
            self.start(due);
        }
    }

    /// Takes the frames that are in host memory since the last call.
    pub fn received(&mut self) -> impl Iterator<Item = Received> + use<> {
        std::mem::take(&mut self.done).into_iter()
    }

    /// The commands of the first frames: when, frame, side, command (Figs 5.2 and 7.2).
    pub fn commands(&self) -> &[(Time, u64, Side, &'static str)] {
        &self.commands
    }

    /// Records a command that this interface has.
    fn say(&mut self, at: Time, id: u64, side: Side, word: &'static str) {
        let host = &self.card.host;
        let rings = host.kind == InterfaceKind::Rings;
        let known = match word {
            "write back" => rings,
            "address ack" => host.transfer_ack && !rings,
            _ => !rings,
        };
        if id < DRAWN && known {
            self.commands.push((at, id, side, word));
        }
    }

    /// The present buffer is full.
    fn moved(&mut self, now: Time) {
        let Some(mut moving) = self.moving.take() else { return };
        let id = moving.frame.id;
        moving.parts.pop_front();
        self.say(now, id, Side::Adapter, "address ack");
        if let Some(&next) = moving.parts.front() {
            self.say(now, id, Side::Host, "address");
            moving.due = now + self.card.part_time(next);
            self.moving = Some(moving);
            return;
        }
        self.say(now, id, Side::Adapter, "read end");
        self.say(now, id, Side::Adapter, "write back");
        let Frame { id, len, arrived, initialization } = moving.frame;
        self.used -= len;
        let transfer = Span { to: now, served: now - moving.span.from, ..moving.span };
        self.done.push(Received { id, len, arrived, initialization, transfer });
    }

    /// Begins everything that can begin.
    fn start(&mut self, now: Time) {
        let together = self.card.queueing.stages > 2;
        if self.moving.is_none()
            && (together || self.initializing.is_none())
            && let Some((frame, parts)) = self.placed.pop_front()
        {
            let first = parts.front().copied().unwrap_or_default();
            let bus = super::pcie::reception_time(&self.card, frame.len).unwrap_or_default();
            let due = now + bus + self.card.part_time(first);
            self.say(now, frame.id, Side::Host, "address");
            let span = Span { from: now, ..Span::default() };
            self.moving = Some(Moving { frame, span, parts, due });
        }
        if self.initializing.is_none()
            && (together || self.moving.is_none())
            && let Some(mut frame) = self.waiting.pop_front()
        {
            frame.initialization.from = now;
            self.say(now, frame.id, Side::Adapter, "read");
            self.initializing = Some((now + self.card.host.per_message, frame));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::description::cim;
    use super::*;
    use lastmeter_base::Duration;
    use proptest::prelude::*;

    fn us(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }

    /// Receives frames, each in buffers of `room`; returns when each was done.
    fn run(adapter: &mut Receiver, frames: &[(Time, u64)], room: u64) -> Vec<Received> {
        let mut done = Vec::new();
        let mut frames = frames.iter().peekable();
        loop {
            let next = frames.peek().map(|frame| frame.0);
            let Some(now) = adapter.ready_at().into_iter().chain(next).min() else { return done };
            adapter.advance(now);
            while let Some(&(_, len)) = frames.next_if(|frame| frame.0 == now) {
                assert!(adapter.arrive(now, Bytes(len)));
            }
            while let Some(len) = adapter.announced() {
                let parts = (0..len.0.div_ceil(room)).map(|n| Bytes(room.min(len.0 - n * room)));
                adapter.place(now, &parts.collect::<Vec<_>>());
            }
            done.extend(adapter.received());
        }
    }

    #[test]
    fn e_60_the_commands_are_those_of_fig_5_2_each_at_its_time() {
        let mut adapter = Receiver::new(cim());
        run(&mut adapter, &[(Time::START, 4096)], 2048);
        let said: Vec<_> =
            adapter.commands().iter().map(|&(.., side, word)| (side, word)).collect();
        assert_eq!(said, cim().reception(2));
        let half = cim().transfer_time(Bytes(2048));
        let at: Vec<Time> = adapter.commands().iter().map(|command| command.0).collect();
        let (one, two) = (us(1280) + half, us(1280) + half * 2);
        assert_eq!(at, [us(0), us(1280), us(1280), one, one, two, two]);
    }

    #[test]
    fn e_97_the_generic_adapter_says_four_commands() {
        let mut generic = cim();
        generic.host.transfer_ack = false;
        let mut adapter = Receiver::new(generic.clone());
        run(&mut adapter, &[(Time::START, 1024)], 2048);
        let said: Vec<_> =
            adapter.commands().iter().map(|&(.., side, word)| (side, word)).collect();
        assert_eq!(said, generic.reception(1));
    }

    #[test]
    fn stages_decide_whether_the_next_frame_is_initialized_during_a_transfer() {
        let last = |stages: u64| {
            let mut card = cim();
            card.queueing.stages = stages;
            let frames = [(us(0), 4096), (us(0), 4096)];
            run(&mut Receiver::new(card), &frames, 4096)[1].transfer.to
        };
        // 1280 us, and 1748.48 us of transfer, which the second initialization overlaps, or not.
        assert_eq!(last(3), us(0) + Duration::from_ns(1_280_000 + 2 * 1_748_480));
        assert_eq!(last(2), us(0) + Duration::from_ns(2 * 1_280_000 + 2 * 1_748_480));
    }

    #[test]
    fn e_42_a_frame_without_a_buffer_is_dropped_and_one_without_host_buffers_waits() {
        let mut card = cim();
        card.buffers.memory = Bytes(5000);
        let mut adapter = Receiver::new(card);
        assert!(adapter.arrive(us(0), Bytes(4096)) && !adapter.arrive(us(1), Bytes(1024)));
        adapter.advance(us(99_000));
        assert_eq!((adapter.announced(), adapter.ready_at()), (Some(Bytes(4096)), None));
        assert!(!adapter.is_busy() && adapter.held() == 1);
        adapter.refuse();
        assert!(adapter.arrive(us(99_000), Bytes(4999)), "its room is free again");
    }

    proptest! {
        #[test]
        fn frames_are_received_in_order_and_never_early(
            lens in prop::collection::vec((0u64..5000, 1u64..9000), 1..40),
            stages in 1u64..4,
        ) {
            let mut card = cim();
            card.queueing.stages = stages;
            let mut at = Time::START;
            let frames: Vec<(Time, u64)> = lens.iter().map(|&(gap, len)| {
                at += Duration::from_us(gap);
                (at, len)
            }).collect();
            let done = run(&mut Receiver::new(card.clone()), &frames, 10_000);
            prop_assert_eq!(done.len(), frames.len());
            let mut before = Time::START;
            for (n, (one, frame)) in done.iter().zip(&frames).enumerate() {
                prop_assert_eq!((one.id, one.len.0, one.arrived), (n as u64, frame.1, frame.0));
                let least = card.host.per_message + card.transfer_time(one.len);
                prop_assert!(one.transfer.to >= frame.0 + least && one.transfer.to >= before);
                prop_assert_eq!(one.transfer.served, card.transfer_time(one.len));
                before = one.transfer.to;
            }
        }
    }
}
