//! A sending host as in chapter 6: policers, handlers on a processor, optionally a link scheduler, and an
//! adapter (E-79).
//!
//! ```text
//! messages --> police --> handlers, EDD --> [link scheduler, EDD] --> adapter --> network
//!              slots        C_cpu             at most P there         any Description
//! ```
//!
//! A packet takes a slot of its channel when its message arrives, and releases it when it is sent. It is late if
//! it is sent after its message's logical arrival + d.

use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_engine::Distribution;
use lastmeter_host::adapter::description::Description;
use lastmeter_host::adapter::transmitter::{Order, Transmitter, What};
use lastmeter_transport::channel::admission::host::HandlerCosts;
use lastmeter_transport::channel::handlers::{Handlers, Made, Message, Regulation};
use lastmeter_transport::channel::policing::{Excess, Police, Verdict};
use lastmeter_transport::channel::scheduler::{self, Scheduler};
use std::collections::HashMap;

/// A host and its adapter.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) regulation: Regulation,
    pub(super) real_time: HandlerCosts,
    pub(super) best_effort: HandlerCosts,
    /// Most packets on the adapter, if the host schedules the link itself.
    pub(super) schedules: Option<u64>,
    pub(super) adapter: Description,
}

/// A channel, or best effort if there is no deadline.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) interval: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) packet_max: Bytes,
    /// Slots for waiting packets.
    pub(super) slots: u64,
    /// Arrival times and lengths of messages, in order.
    pub(super) messages: Vec<(Time, Bytes)>,
}

/// Results for a flow's packets, of messages that arrived within the measured span.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Packets made of its messages.
    pub(super) packets: u64,
    /// Packets that found no slot.
    pub(super) dropped: u64,
    /// Packets sent after their deadline, or not by the end of the run.
    pub(super) late: u64,
    /// Packets sent by their deadline.
    pub(super) in_time: u64,
    /// Bytes sent within the span, whenever their message arrived.
    pub(super) bytes: u64,
    /// Time from a packet's transmission to its deadline; zero if it was late. The adapter sees packets and their
    /// deadlines, and data points are counted in packets (§6.3.1).
    pub(super) laxity: Distribution,
    /// Time from a message's arrival to the transmission of its last packet.
    pub(super) delay: Distribution,
}

/// Measurements of a run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) flows: Vec<Sent>,
    /// Fewest and most packets sent per turn of the token, over turns that were used to the end.
    pub(super) turns: (u64, u64),
    pub(super) span: Duration,
}

impl Run {
    /// Throughput of some flows in bytes per second.
    pub(super) fn throughput(&self, of: impl Fn(usize) -> bool) -> f64 {
        let flows = self.flows.iter().enumerate().filter(|&(at, _)| of(at));
        flows.map(|(_, sent)| sent.bytes).sum::<u64>() as f64 / self.span.as_secs_f64()
    }
    /// Percentage of some flows' packets that were late or dropped.
    pub(super) fn missed(&self, of: impl Fn(usize) -> bool) -> f64 {
        let flows = self.flows.iter().enumerate().filter(|&(at, _)| of(at));
        let (missed, all) = flows.fold((0, 0), |(missed, all), (_, sent)| {
            (missed + sent.late + sent.dropped, all + sent.packets)
        });
        100.0 * missed as f64 / all.max(1) as f64
    }
}

struct System<'a> {
    flows: &'a [Flow],
    handlers: Handlers,
    police: Vec<Police>,
    scheduler: Option<Scheduler<Made>>,
    adapter: Transmitter,
    orders: HashMap<u64, Made>,
    made: u64,
    came: Vec<Vec<Time>>,
    sent: Vec<Sent>,
    span: (Time, Time),
    now: Time,
    /// A link pause longer than this separates turns of the token.
    gap: Duration,
    sent_at: Option<Time>,
    turn: u64,
    turns: Vec<u64>,
}

/// Run time after the measured span, so that its packets can leave: longer than any burst takes at its
/// channel's rate, such as 12 messages of 50 ms.
const DRAIN: Duration = Duration::from_secs(2);

/// Simulates from the start, and measures messages that arrive within the span. A link pause longer than `gap`
/// separates turns of the token.
pub(super) fn run(host: &Host, flows: &[Flow], span: (Time, Time), gap: Duration) -> Run {
    let to = span.1 + DRAIN;
    let costs = [host.best_effort, host.real_time];
    let between = host.real_time.packets_between;
    let mut handlers = Handlers::new(host.regulation, between, host.real_time.switch);
    for flow in flows {
        handlers.handler(flow.deadline.is_some(), &costs[usize::from(flow.deadline.is_some())]);
    }
    let police = |flow: &Flow| Police::new(flow.interval, flow.slots, Excess::Drop);
    let mut system = System {
        flows,
        handlers,
        police: flows.iter().map(police).collect(),
        scheduler: host.schedules.map(|outstanding| {
            Scheduler::new(scheduler::Options { horizon: Duration::ZERO, outstanding })
        }),
        adapter: Transmitter::new(host.adapter.clone()),
        orders: HashMap::new(),
        made: 0,
        came: vec![Vec::new(); flows.len()],
        sent: vec![Sent::default(); flows.len()],
        span,
        now: Time::START,
        gap,
        sent_at: None,
        turn: 0,
        turns: Vec::new(),
    };
    let mut messages: Vec<(Time, usize, Bytes)> = Vec::new();
    for (at, flow) in flows.iter().enumerate() {
        let inside = flow.messages.iter().take_while(|&&(when, _)| when <= to);
        messages.extend(inside.map(|&(when, len)| (when, at, len)));
    }
    messages.sort();
    let mut next = messages.into_iter().peekable();
    loop {
        let message = next.peek().map(|&(at, ..)| at);
        let due = [message, system.handlers.ready_at(), system.adapter.ready_at(), system.waits()];
        let Some(now) = due.into_iter().flatten().min().filter(|&now| now <= to) else { break };
        while let Some((_, flow, len)) = next.next_if(|&(at, ..)| at <= now) {
            system.message(now, flow, len);
        }
        system.advance(now);
    }
    system.close()
}

impl System<'_> {
    /// When the link scheduler next has a packet for the adapter.
    fn waits(&self) -> Option<Time> {
        self.scheduler.as_ref()?.ready_at(self.now)
    }

    fn measured(&self, came: Time) -> bool {
        (self.span.0..self.span.1).contains(&came)
    }

    fn message(&mut self, now: Time, at: usize, len: Bytes) {
        let flow = &self.flows[at];
        let most = flow.packet_max.0;
        let packets = len.0.div_ceil(most).max(1);
        let (logical, enter) = match self.police[at].message(now, packets) {
            Verdict::Enter { logical, packets } => (logical, packets),
            Verdict::Drop | Verdict::Wait => (now, 0),
        };
        if self.measured(now) {
            self.sent[at].packets += packets;
            self.sent[at].dropped += packets - enter;
        }
        if enter > 0 {
            let lens = (0..enter).map(|n| Bytes((len.0 - n * most).min(most)));
            let id = self.came[at].len() as u64;
            self.came[at].push(now);
            let deadline = flow.deadline.map_or(Time::MAX, |d| logical + d);
            let message = Message { id, logical, deadline, packets: lens.collect() };
            self.handlers.message(now, at, message);
        }
    }

    fn advance(&mut self, now: Time) {
        for made in self.handlers.advance(now) {
            match &mut self.scheduler {
                None => self.order(now, made),
                Some(scheduler) => match made.deadline {
                    Time::MAX => scheduler.enqueue_best_effort(made),
                    deadline => scheduler.enqueue_real_time(made.logical, deadline, made),
                },
            }
        }
        self.adapter.advance(now);
        let events: Vec<_> = self.adapter.events().collect();
        for event in events {
            if event.what == What::TransmitAck {
                self.left(event.at, event.order.id);
            }
        }
        self.now = now;
        while let Some(made) = self.scheduler.as_mut().and_then(|s| s.dequeue(now)) {
            self.order(now, made);
        }
    }

    fn order(&mut self, now: Time, made: Made) {
        let id = self.made;
        self.made += 1;
        self.orders.insert(id, made);
        let class = u8::from(made.deadline != Time::MAX);
        let order = Order { class, due: made.deadline, ..Order::new(id, made.len) };
        let given = self.adapter.submit(now, order);
        assert!(given.is_ok(), "the adapter has room for every slot");
    }

    fn left(&mut self, at: Time, id: u64) {
        let made = self.orders.remove(&id).expect("only what was ordered is sent");
        self.turn(at);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.sent();
        }
        self.police[made.handler].left();
        let came = self.came[made.handler][made.message as usize];
        let (measured, inside) = (self.measured(came), self.measured(at));
        let sent = &mut self.sent[made.handler];
        sent.bytes += if inside { made.len.0 } else { 0 };
        if measured {
            sent.in_time += u64::from(at <= made.deadline);
            if made.deadline < Time::MAX {
                sent.laxity.record(made.deadline.saturating_since(at));
            }
            if made.last {
                sent.delay.record(at - came);
            }
        }
    }

    /// Counts packets per turn of the token.
    fn turn(&mut self, at: Time) {
        if self.sent_at.is_some_and(|last| at - last > self.gap) {
            if self.measured(at) {
                self.turns.push(self.turn);
            }
            self.turn = 0;
        }
        self.turn += 1;
        self.sent_at = Some(at);
    }

    fn close(mut self) -> Run {
        let (from, until) = self.span;
        for sent in &mut self.sent {
            // Packets of the span that have not left by now are late.
            sent.late = sent.packets - sent.dropped - sent.in_time;
        }
        let span = until - from;
        let turns = || self.turns.iter().skip(1).copied();
        Run {
            flows: self.sent,
            turns: (turns().min().unwrap_or(0), turns().max().unwrap_or(0)),
            span,
        }
    }
}
