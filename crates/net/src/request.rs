//! Requests and responses: sources that wait for responses, and the responder.
//!
//! ```text
//! client  out 0 --> requests                      responder  in 0 --> requests
//!         in 0  <-- responses                                out 0 <-- responses
//! ```
//!
//! With a window of one this is request and response; with a large window and small responses, a bulk
//! transfer: as fast as the path allows, with at most a window in flight.

use crate::sink::Check;
use crate::source::Flow;
use lastmeter_base::{Bytes, Draw, Packet, Time};
use lastmeter_engine::{Context, Distribution, Element, PortId, Report, TimerId};
use std::collections::{BTreeMap, VecDeque};

/// Sends requests and waits for their responses.
pub struct Client {
    flow: Flow,
    options: ClientOptions,
    check: Check,
    /// When each request in flight was sent, by its number in the flow.
    waiting: BTreeMap<u64, Time>,
    /// When each request that the window allows may be sent: after the think time, or at once.
    allowed: VecDeque<Time>,
    sent: u64,
    responses: u64,
    lost: u64,
    times: Distribution,
}

/// The options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Length of a request.
    pub size: Bytes,
    /// Most requests in flight.
    pub window: u64,
    /// From a response to the request that it triggers.
    pub think: Draw,
    /// A request without a response after this long is given up, which frees its place in the window.
    pub timeout: lastmeter_base::Duration,
    /// Not before this.
    pub start: Time,
    /// No request after this.
    pub stop: Time,
    /// No more requests than this.
    pub packets: u64,
}

const SEND: TimerId = TimerId(0);
const TIMEOUT: TimerId = TimerId(1);

impl Client {
    /// A client that has not sent yet.
    pub fn new(flow: Flow, options: ClientOptions) -> Client {
        Client {
            flow,
            check: Check::default(),
            waiting: BTreeMap::new(),
            allowed: (0..options.window).map(|_| options.start).collect(),
            options,
            sent: 0,
            responses: 0,
            lost: 0,
            times: Distribution::default(),
        }
    }

    fn send_allowed(&mut self, cx: &mut Context<'_>) {
        while self.may_send(cx.now()) && self.allowed.pop_front_if(|at| *at <= cx.now()).is_some() {
            let packet = self.flow.packet(cx, self.sent, self.options.size);
            self.waiting.insert(self.sent, cx.now());
            self.sent += 1;
            cx.send(PortId(0), packet);
        }
        if let Some(&at) = self.allowed.front().filter(|&&at| self.may_send(at)) {
            cx.arm(SEND, at);
        }
        self.arm_timeout(cx);
    }

    fn may_send(&self, at: Time) -> bool {
        self.sent < self.options.packets && at <= self.options.stop
    }

    fn arm_timeout(&self, cx: &mut Context<'_>) {
        // Requests are sent in order, so the first is the oldest.
        match self.waiting.first_key_value() {
            Some((_, &sent)) => cx.arm(TIMEOUT, sent + self.options.timeout),
            None => cx.disarm(TIMEOUT),
        }
    }

    fn allow(&mut self, at: Time) {
        // Think times differ, so a later response may trigger an earlier request.
        let place = self.allowed.partition_point(|&other| other <= at);
        self.allowed.insert(place, at);
    }
}

impl Element for Client {
    fn start(&mut self, cx: &mut Context<'_>) {
        cx.arm(SEND, self.options.start);
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        self.check.packet(cx, &packet);
        if let Some(sent) = self.waiting.remove(&packet.seq) {
            self.responses += 1;
            self.times.record(cx.now() - sent);
            let think = self.options.think.sample(cx.rng());
            self.allow(cx.now() + think);
        }
        cx.deliver(packet);
        self.send_allowed(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        if timer == TIMEOUT {
            while let Some((_, &sent)) = self.waiting.first_key_value()
                && sent + self.options.timeout <= cx.now()
            {
                self.waiting.pop_first();
                self.lost += 1;
                self.allow(cx.now());
            }
        }
        self.send_allowed(cx);
    }
    fn timers(&self) -> u32 {
        2
    }
    fn report(&self, out: &mut Report) {
        out.count("requests", self.sent);
        out.count("responses", self.responses);
        out.count("given_up", self.lost);
        out.count("response_time_mean_ps", (self.times.mean() * 1e12) as u64);
        out.count("response_time_p99_ps", self.times.percentile(0.99).as_ps());
    }
}

/// Answers every request.
pub struct Responder {
    check: Check,
    /// The path and destination of responses, by path and flow of requests.
    answers: BTreeMap<(u32, u32), (Flow, Bytes)>,
    answered: u64,
}

impl Responder {
    /// A responder without flows; requests of unknown flows are received and not answered.
    pub fn new() -> Responder {
        Responder { check: Check::default(), answers: BTreeMap::new(), answered: 0 }
    }
    /// Requests of `requests` are answered with `size` bytes as `responses`.
    pub fn answer(&mut self, requests: &Flow, responses: Flow, size: Bytes) {
        self.answers.insert((requests.path.0, requests.flow.0), (responses, size));
    }
}

impl Default for Responder {
    fn default() -> Responder {
        Responder::new()
    }
}

impl Element for Responder {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        self.check.packet(cx, &packet);
        let answer = self.answers.get(&(packet.path.0, packet.flow.0));
        let seq = packet.seq;
        cx.deliver(packet);
        if let Some((flow, size)) = answer {
            let response = flow.packet(cx, seq, *size);
            self.answered += 1;
            cx.send(PortId(0), response);
        }
    }
    fn timers(&self) -> u32 {
        0
    }
    fn report(&self, out: &mut Report) {
        out.count("answered", self.answered);
    }
}
