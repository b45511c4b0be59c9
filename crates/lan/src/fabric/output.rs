//! The output side of a switch: the lines out of the fabric, the output queues, and their links.
//!
//! ```text
//! in 0 --> [ line 0 ] --S L--> [ output queue 0 ] --L--> out 0         out n: B(0), each period
//!     '--> [ line 1 ] --S L--> [ output queue 1 ] --L--> out 1         out n + 1: B(1)
//! ```
//!
//! Line and queue are both FIFO, and nothing else leads to the queue. So when a packet reaches the switch, it is
//! known when it will leave the line, whether the queue will have room then, and when it will leave the link: one
//! event for all three. A packet that will find no room is kept until that instant and then dropped (`full`).

use super::port::{Directory, RECORD_LEN, WORD_BACKLOG};
use lastmeter_base::{Bytes, Duration, Packet, PathId, Rate, StageId, Time};
use lastmeter_base::{prefetch, prefetch_end, prefetch_lines};
use lastmeter_engine::{
    Context, Element, Foreseen, Foresight, Look, Meter, PortId, Report, ResourceId, TimerId,
};
use lastmeter_net::fifo::Pace;
use std::collections::{BTreeMap, VecDeque};

/// A line or link: its rate and resource.
pub type Line = (Rate, ResourceId);

/// Parameters of the outputs of a switch.
pub struct Options {
    /// The routes to the ports.
    pub directory: Directory,
    /// Port number of the first output in the fabric.
    pub first: usize,
    /// For each output, the line out of the fabric and the link.
    pub ports: Vec<(Line, Line)>,
    /// Capacity of each output queue.
    pub room: Bytes,
    /// D and the path of records, if backlogs are exchanged.
    pub tells: Option<(Duration, PathId)>,
    /// The lines out of the fabric in the books.
    pub line: StageId,
    /// The output queues and their links in the books.
    pub queue: StageId,
}

/// The outputs of a switch.
pub struct Outputs {
    options: Options,
    ports: Vec<Port>,
    /// Service times of the last packet on the line and on the link.
    paces: [Pace; 2],
    /// When backlogs are sent next.
    next: Time,
    /// Packets on a line to a queue that will be full, by arrival there.
    doomed: BTreeMap<(Time, u64), Packet>,
    /// For each output, packets and bytes for which its queue has had or will have no room.
    turned_away: Vec<(u64, Bytes)>,
    refused: u64,
}

/// A line out of the fabric, and its output queue: two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
struct Port {
    line: Way,
    line_rate: Rate,
    link_rate: Rate,
    queue: Queue,
}

const _: () = assert!(size_of::<Port>() == 128);

/// A line; its packets are stored in the queue that it leads to.
#[derive(Debug, Default)]
struct Way {
    free_at: Time,
    /// Busy time until `free_at`.
    busy: Duration,
}

impl Way {
    /// A packet arrives; returns when its service begins.
    #[inline]
    fn accept(&mut self, now: Time, service: Duration) -> Time {
        let begins = self.free_at.max(now);
        self.free_at = begins + service;
        // That is `service`, unless it ends beyond the range of time.
        self.busy += self.free_at - begins;
        begins
    }

    /// Records the line's work up to the end of a run, in which it served these packets and bytes.
    fn enter(
        &self,
        out: &mut Report,
        (served, moved): (u64, Bytes),
        stage: StageId,
        line: ResourceId,
    ) {
        let now = out.now();
        let busy = self.busy - self.free_at.saturating_since(now);
        let stage = (served > 0).then_some((stage, busy));
        out.meter(&Meter::of(line, now, stage, now.since_start() - busy, moved));
    }
}

const PERIOD: TimerId = TimerId(0);
const REFUSE: TimerId = TimerId(1);

impl Outputs {
    /// Empty outputs.
    pub fn new(options: Options) -> Outputs {
        let port = |&((line_rate, _), (link_rate, _)): &(Line, Line)| Port {
            line: Way::default(),
            queue: Queue::default(),
            line_rate,
            link_rate,
        };
        let ports: Vec<Port> = options.ports.iter().map(port).collect();
        let paces = [Pace::new(Rate::from_bits(1)); 2];
        let turned_away = vec![(0, Bytes::ZERO); ports.len()];
        let (next, doomed, refused) = (Time::START, BTreeMap::new(), 0);
        Outputs { options, ports, paces, next, doomed, turned_away, refused }
    }

    fn tell(&mut self, cx: &mut Context<'_>, (period, path): (Duration, PathId)) {
        for (place, port) in self.ports.iter().enumerate() {
            let mut record = cx.make(path, RECORD_LEN);
            record.transport[WORD_BACKLOG] = port.queue.waiting(cx.now()).1.0;
            cx.send(PortId((self.ports.len() + place) as u16), record);
        }
        self.next += period;
        cx.arm(PERIOD, self.next);
    }

    /// Packets and bytes waiting for the line of each output at the end of a run.
    fn waiting_for_lines(&self, now: Time) -> Vec<(u64, Bytes)> {
        let mut waiting = vec![(0, Bytes::ZERO); self.ports.len()];
        let mut add = |place: usize, arrives: Time, len: Bytes| {
            if arrives.saturating_since(now) > self.ports[place].line_rate.time_for(len) {
                waiting[place].0 += 1;
                waiting[place].1 += len;
            }
        };
        for (place, port) in self.ports.iter().enumerate() {
            port.queue.pending.iter().for_each(|one| add(place, one.arrives, one.len));
        }
        for (&(arrives, _), packet) in &self.doomed {
            let port = self.options.directory.port(packet.destination);
            port.into_iter().for_each(|port| add(port - self.options.first, arrives, packet.len));
        }
        waiting
    }

    fn refuse(&mut self, cx: &mut Context<'_>) {
        while let Some(first) = self.doomed.first_entry().filter(|one| one.key().0 <= cx.now()) {
            self.refused += 1;
            cx.drop(first.remove(), Some(self.options.queue), "full");
        }
        if let Some((&(at, _), _)) = self.doomed.first_key_value() {
            cx.arm(REFUSE, at);
        }
    }
}

impl Element for Outputs {
    fn start(&mut self, cx: &mut Context<'_>) {
        if let Some((period, _)) = self.options.tells {
            self.next = Time::START + period;
            cx.arm(PERIOD, self.next);
        }
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let port = self.options.directory.port(packet.destination);
        let place = port.expect("an input forwards only packets with a route") - self.options.first;
        let Port { line, queue, line_rate, link_rate } = &mut self.ports[place];
        let (now, len) = (cx.now(), packet.len);
        let [line_pace, link_pace] = &mut self.paces;
        let service = line_pace.time_at(*line_rate, len);
        let begins = line.accept(now, service);
        let (arrives, collecting) = (line.free_at, cx.collecting());
        if collecting {
            packet.visit(self.options.line, begins - now, service, Duration::ZERO);
        }
        packet.entered = arrives;
        let service = link_pace.time_at(*link_rate, len);
        let Some(begins) = queue.accept(now, arrives, service, (len, self.options.room)) else {
            let (packets, bytes) = &mut self.turned_away[place];
            (*packets, *bytes) = (*packets + 1, *bytes + len);
            self.doomed.insert((arrives, packet.id), packet);
            self.refuse(cx);
            return;
        };
        if collecting {
            packet.visit(self.options.queue, begins - arrives, service, Duration::ZERO);
        }
        cx.send_at(PortId(place as u16), packet, queue.free_at);
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        match (timer, self.options.tells) {
            (REFUSE, _) => self.refuse(cx),
            (_, Some(tells)) => self.tell(cx, tells),
            (_, None) => {}
        }
    }
    fn timers(&self) -> u32 {
        2
    }
    fn runs_ahead(&self) -> bool {
        true
    }
    fn foresees(&self) -> Foresight {
        Foresight::Steps
    }
    #[inline]
    fn foresee(&self, next: Foreseen<'_>, look: Look) -> Option<PortId> {
        let Foreseen::Packet(_, packet) = next else { return None };
        let port = self.options.directory.port(packet.destination)?;
        let place = port.checked_sub(self.options.first)?;
        let port = self.ports.get(place)?;
        match look {
            Look::First => prefetch_lines::<2, _>(port),
            Look::Last => port.queue.prefetch(),
        }
        Some(PortId(place as u16))
    }
    fn report(&self, out: &mut Report) {
        out.held(self.doomed.len() as u64);
        let (mut served, mut most) = (0, 0);
        let waiting = self.waiting_for_lines(out.now());
        let ports = self.ports.iter().zip(&self.options.ports);
        let ports = ports.zip(self.turned_away.iter().zip(waiting));
        for ((port, ((_, line), (_, link))), (turned_away, waiting)) in ports {
            let Queue { accepted, moved, .. } = port.queue;
            out.waiting(waiting.0);
            let packets = accepted + turned_away.0 - waiting.0;
            let line_served = (packets, moved + turned_away.1 - waiting.1);
            port.line.enter(out, line_served, self.options.line, *line);
            served += packets + port.queue.enter(out, self.options.queue, *link);
            most = most.max(port.queue.waiting_most);
        }
        out.count("served", served);
        out.count("refused", self.refused);
        out.count("packets_most", most);
    }
}

/// An output queue and its link; it learns of each packet when the packet enters the line to it.
#[derive(Debug, Default)]
struct Queue {
    free_at: Time,
    /// Packets whose service has not ended, oldest first, after some finished ones not yet removed.
    pending: VecDeque<Pending>,
    /// How many of these will have begun service when the newest arrives.
    begun: usize,
    /// Bytes waiting when the newest has arrived.
    bytes: Bytes,
    /// Busy time until `free_at`.
    busy: Duration,
    moved: Bytes,
    accepted: u64,
    waiting_most: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    arrives: Time,
    begins: Time,
    ends: Time,
    len: Bytes,
}

impl Queue {
    /// A packet that will arrive at `arrives`, after all others; returns when its service begins, or `None` if
    /// there will be no room for it.
    #[inline]
    fn accept(
        &mut self,
        now: Time,
        arrives: Time,
        service: Duration,
        (len, room): (Bytes, Bytes),
    ) -> Option<Time> {
        self.begin(arrives);
        if self.pending.len() == self.pending.capacity() {
            self.forget(now);
        }
        if self.bytes + len > room {
            return None;
        }
        let begins = self.free_at.max(arrives);
        self.free_at = begins + service;
        // That is `service`, unless it ends beyond the range of time.
        self.busy += self.free_at - begins;
        self.moved += len;
        self.accepted += 1;
        self.pending.push_back(Pending { arrives, begins, ends: self.free_at, len });
        self.bytes += len;
        self.begin(arrives);
        let waiting = self.pending.len() - self.begun;
        self.waiting_most = self.waiting_most.max(waiting as u64);
        Some(begins)
    }

    /// Prefetches what [`Queue::accept`] reads.
    #[inline]
    fn prefetch(&self) {
        let (front, back) = self.pending.as_slices();
        prefetch_end(if back.is_empty() { front } else { back });
        self.pending.get(self.begun).into_iter().for_each(prefetch);
    }

    /// Removes the packets whose service ended before `now`.
    #[cold]
    fn forget(&mut self, now: Time) {
        while self.pending.pop_front_if(|first| first.ends < now).is_some() {
            self.begun -= 1;
        }
    }

    /// Begins service of the packets that are due by `at`.
    #[inline]
    fn begin(&mut self, at: Time) {
        while let Some(next) = self.pending.get(self.begun).filter(|next| next.begins <= at) {
            self.bytes -= next.len;
            self.begun += 1;
        }
    }

    /// How many packets have arrived before `now` and wait, and their bytes.
    fn waiting(&self, now: Time) -> (u64, Bytes) {
        let here = |one: &&Pending| one.arrives < now && one.begins >= now;
        let waiting = self.pending.iter().filter(here);
        waiting.fold((0, Bytes::ZERO), |(n, sum), one| (n + 1, sum + one.len))
    }

    /// Records the link's work up to the end of a run; returns how many packets it has served.
    fn enter(&self, out: &mut Report, stage: StageId, link: ResourceId) -> u64 {
        let now = out.now();
        out.waiting(self.waiting(now).0);
        let (mut busy, mut served, mut moved) = (self.busy, self.accepted, self.moved);
        for one in &self.pending {
            busy = busy - one.ends.saturating_since(one.begins.max(now));
            if one.begins > now {
                served -= 1;
                moved -= one.len;
            }
        }
        let stage = (served > 0).then_some((stage, busy));
        out.meter(&Meter::of(link, now, stage, now.since_start() - busy, moved));
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::NodeId;
    use lastmeter_engine::{Graph, Outcome, ResourceInfo, ResourceKind, StageInfo, VirtualClock};
    use proptest::prelude::*;

    /// Sends ten packets of 1500 B at once, and collects what arrives.
    struct Ten(PathId);

    impl Element for Ten {
        fn start(&mut self, cx: &mut Context<'_>) {
            for _ in 0..10 {
                let mut packet = cx.make(self.0, Bytes(1500));
                packet.destination = NodeId(0);
                cx.send(PortId(0), packet);
            }
        }
        fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
            cx.deliver(packet);
        }
    }

    fn run(until: Duration) -> Outcome {
        let mut graph = Graph::new(1);
        let path = graph.path("path", "class");
        let mut stage = |name: &str| {
            let name = name.to_owned();
            graph.stage(StageInfo::new(name, None))
        };
        let (line, queue) = (stage("line"), stage("queue"));
        let mut wire = |name: &str| {
            let (name, kind) = (name.to_owned(), ResourceKind::Wire);
            graph.resource(ResourceInfo::new(name, kind))
        };
        // 6 us and 12 us per packet.
        let port = ((Rate::from_gbit(2), wire("line")), (Rate::from_gbit(1), wire("link")));
        let outputs = Outputs::new(Options {
            directory: Directory::of(&[(NodeId(0), 0)]),
            first: 0,
            ports: vec![port],
            room: Bytes(3000),
            tells: None,
            line,
            queue,
        });
        let ten = graph.add("ten", Ten(path)).unwrap();
        let outputs = graph.add("outputs", outputs).unwrap();
        graph.connect(ten, PortId(0), outputs, PortId(0)).unwrap();
        graph.connect(outputs, PortId(0), ten, PortId(0)).unwrap();
        let mut engine = graph.build(1).unwrap();
        engine.run_until(Time::START + until, &mut VirtualClock::default()).unwrap();
        engine.finish().unwrap()
    }

    /// Packets arrive at the queue every 6 us and leave every 12 us. The sixth finds two in front of it at 36 us,
    /// and so do the eighth and the tenth.
    #[test]
    fn a_packet_without_room_is_dropped_on_arrival_at_the_queue() {
        // With the busy times of line and link, in microseconds.
        for (us, dropped, delivered, busy) in [
            (17, 0, 0, [17, 11]),
            (35, 0, 2, [35, 29]),
            (36, 1, 2, [36, 30]),
            (50, 2, 3, [50, 44]),
            (200, 3, 7, [60, 84]),
        ] {
            let outcome = run(Duration::from_us(us));
            let books = &outcome.books;
            assert_eq!((books.dropped, books.delivered), (dropped, delivered), "{us} us");
            let of_each = [0, 1].map(|one: usize| books.resources[one].busy() / 1_000_000);
            assert_eq!(of_each, busy, "{us} us");
        }
    }

    proptest! {
        /// Compared with a plain list of all packets.
        #[test]
        fn a_precomputed_queue_behaves_like_a_queue(
            packets in prop::collection::vec((0u64..40, 1u64..4, 0u64..30), 1..80),
            room in 1u64..12,
        ) {
            let mut queue = Queue::default();
            let mut plain: Vec<(u64, u64, u64)> = Vec::new(); // Arrives, begins, length.
            let (mut now, mut arrives) = (0, 0);
            for (later, len, on_line) in packets {
                now += later;
                arrives = arrives.max(now) + on_line + 1;
                let service = 8 * len;
                let waits: u64 =
                    plain.iter().filter(|one| one.1 > arrives).map(|one| one.2).sum();
                let free = plain.last().map_or(0, |&(_, begins, len)| begins + 8 * len);
                let expected = (waits + len <= room).then(|| free.max(arrives));
                let found = queue.accept(
                    Time::from_ps(now),
                    Time::from_ps(arrives),
                    Duration::from_ps(service),
                    (Bytes(len), Bytes(room)),
                );
                prop_assert_eq!(found, expected.map(Time::from_ps));
                plain.extend(expected.map(|begins| (arrives, begins, len)));
                let here = plain.iter().filter(|one| one.0 < now && one.1 >= now);
                let (count, bytes) = here.fold((0, 0), |(n, sum), one| (n + 1, sum + one.2));
                prop_assert_eq!(queue.waiting(Time::from_ps(now)), (count, Bytes(bytes)));
            }
        }
    }
}
