//! Distributed queueing between the ports of a running router: each input keeps a queue for each output, all are told
//! everybody's backlogs each period, and each input computes from them how fast its queues may be drained.
//!
//! ```text
//! input i --> [ VOQ i,0 | ... | VOQ i,N-1 ] --r(i,j)--> output j
//!   each period D: B(i,j), B(i) --> board <-- B(h,j), B(j) of all others
//! ```
//!
//! The queues and the equations are those of the model (`lastmeter_lan::fabric`). The broadcast is a table in memory
//! of which each port processor writes the rows of its own ports. Lines may have different rates: bytes are counted as
//! on the fastest one, which leaves every share of the equations as it is, since each is of one output.
//!
//! A port processor that has nothing waiting tells that once, and sleeps.
//!
//! Rows: D-50 to D-58, D-65.

use super::crossing::Inside;
use super::parse::ETHERNET;
use crate::config::Config;
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_lan::fabric::allocation::{Allocation, Rule, Shares, Summary};
use lastmeter_lan::fabric::voq::{Rules, Voqs};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Backlogs as they were told last: for each port, at its output and at its input for each output.
#[derive(Debug)]
pub struct Board {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    output: AtomicU64,
    inputs: Vec<AtomicU64>,
}

impl Board {
    /// For so many ports, without backlogs.
    pub fn new(ports: usize) -> Board {
        let row = |_| Row {
            output: AtomicU64::new(0),
            inputs: (0..ports).map(|_| AtomicU64::new(0)).collect(),
        };
        Board { rows: (0..ports).map(row).collect() }
    }
    fn tell(&self, port: usize, output: u64, inputs: &[(usize, u64)]) {
        let row = &self.rows[port];
        row.output.store(output, Relaxed);
        row.inputs.iter().for_each(|input| input.store(0, Relaxed));
        inputs.iter().for_each(|(to, bytes)| row.inputs[*to].store(*bytes, Relaxed));
    }
    fn summary(&self) -> Summary {
        let mut summary = Summary::empty(self.rows.len());
        for (port, row) in self.rows.iter().enumerate() {
            summary.output[port] = row.output.load(Relaxed);
            summary.add(row.inputs.iter().map(|input| input.load(Relaxed)).enumerate());
        }
        summary
    }
}

/// The virtual output queues of a port, and what it told last.
struct Input {
    port: usize,
    queues: Voqs<Inside>,
    told: Vec<(usize, u64)>,
}

/// The inputs of a port processor.
pub struct Distributed {
    allocation: Allocation,
    period: Duration,
    inputs: Vec<Input>,
    board: Arc<Board>,
    /// L of the fastest line.
    fastest: Rate,
    /// Each line's rate, and the line time of a packet beyond its bytes.
    lines: Vec<(Rate, Bytes)>,
    /// When backlogs are told next.
    next: Time,
    /// Whether there was anything to tell last time.
    active: bool,
    periods: u64,
    late: u64,
}

impl Distributed {
    /// The inputs of one port processor, if the file has a fabric.
    pub fn new(config: &Config, processor: usize, board: &Arc<Board>) -> Option<Distributed> {
        let fabric = config.fabric?;
        let rates = config.ports.iter().filter_map(|port| port.rate);
        let fastest = rates.max_by_key(|rate| rate.as_bits())?;
        let backlog_min = fabric.backlog_min;
        let rule = if fabric.responsive { Rule::Responsive { backlog_min } } else { Rule::Base };
        // In millionths: a rate is whole bits a second.
        const PARTS: u64 = 1_000_000;
        let speed_up = (fabric.speed_up * PARTS as f64) as u64;
        let capacity = fastest.scale_floor(speed_up, PARTS);
        let allocation = Allocation { rule, ports: config.ports.len(), capacity };
        let room = Bytes(u64::MAX / 2);
        let rules = Arc::new(Rules { allocation: Some(allocation), period: fabric.period, room });
        let own = config.processors[processor].ports.iter();
        let input = |port: &u16| Input {
            port: usize::from(*port),
            queues: Voqs::new(rules.clone()),
            told: Vec::new(),
        };
        let lines = config.ports.iter().map(|port| (port.rate.unwrap_or(fastest), port.framing));
        Some(Distributed {
            allocation,
            period: fabric.period,
            inputs: own.map(input).collect(),
            board: board.clone(),
            fastest,
            lines: lines.collect(),
            next: Time::START,
            active: false,
            periods: 0,
            late: 0,
        })
    }
    /// Lines have other rates.
    pub(super) fn set_line(&mut self, port: usize, rate: Option<Rate>, framing: Bytes) {
        self.lines[port] = (rate.unwrap_or(self.fastest), framing);
    }
    /// Bytes from the IP header on, of so many packets, as bytes on the fastest line.
    fn scaled(&self, port: usize, bytes: u64, packets: u64) -> u64 {
        let (rate, framing) = self.lines[port];
        let bytes = bytes + packets * framing.0;
        if rate == self.fastest {
            return bytes;
        }
        let all = u128::from(bytes) * u128::from(self.fastest.as_bits());
        u64::try_from(all / u128::from(rate.as_bits().max(1))).unwrap_or(u64::MAX / 4)
    }
    /// A packet that arrived at port `from` waits for port `to`.
    pub(super) fn enqueue(&mut self, now: Time, from: u16, to: usize, len: u16, inside: Inside) {
        let len = Bytes(self.scaled(to, len.into(), 1));
        // What this router says itself about a packet from elsewhere counts as if it came from a port here.
        let own = self.inputs.iter().position(|input| input.port == usize::from(from));
        let queued = self.inputs[own.unwrap_or(0)].queues.enqueue(now, to, len, inside);
        debug_assert!(queued.is_ok(), "the caller limits what waits");
    }
    /// The next packet that may leave, and its output.
    pub(super) fn dequeue(&mut self, now: Time) -> Option<(usize, Inside)> {
        let next = |input: &mut Input| input.queues.dequeue(now);
        self.inputs.iter_mut().find_map(next).map(|(output, _, inside)| (output, inside))
    }
    /// Packets that wait.
    pub(super) fn packets(&self) -> u64 {
        self.inputs.iter().map(|input| input.queues.packets()).sum()
    }
    /// When a packet may leave, or backlogs are to be told.
    pub(super) fn ready_at(&self) -> Option<Time> {
        let tells = (self.active || self.packets() > 0).then_some(self.next);
        let ready = self.inputs.iter().filter_map(|input| input.queues.ready_at());
        ready.chain(tells).min()
    }
    /// Tells backlogs and computes rates, if a period has passed. `outputs` says what waits at the output of a port:
    /// bytes of frames, and packets.
    pub(super) fn advance(&mut self, now: Time, outputs: impl Fn(usize) -> (u64, u64)) {
        if now < self.next || (!self.active && self.packets() == 0 && self.is_quiet(&outputs)) {
            return;
        }
        if self.active && now > self.next + self.period / 2 {
            self.late += 1;
        }
        self.periods += 1;
        self.next = if self.active && self.next + self.period > now {
            self.next + self.period
        } else {
            now + self.period
        };
        self.active = false;
        for at in 0..self.inputs.len() {
            let port = self.inputs[at].port;
            let (bytes, packets) = outputs(port);
            let bytes = bytes.saturating_sub(packets * ETHERNET as u64);
            let output = self.scaled(port, bytes, packets);
            let Input { queues, told, .. } = &mut self.inputs[at];
            queues.list_backlogs(told);
            self.active |= output > 0 || !told.is_empty();
            self.board.tell(port, output, told);
        }
        let shares = Arc::new(Shares::new(&self.allocation, self.board.summary()));
        for Input { queues, told, .. } in &mut self.inputs {
            queues.allocate(now, told, shares.clone());
        }
    }
    fn is_quiet(&self, outputs: &impl Fn(usize) -> (u64, u64)) -> bool {
        self.inputs.iter().all(|input| outputs(input.port).1 == 0)
    }
    /// What can be seen of it.
    pub(super) fn shown(&self) -> Value {
        let rates = self.inputs.iter().map(|input| {
            let rate = |to: usize| input.queues.rate(to);
            let backlog = |to: usize| input.queues.backlog(to).0;
            json!({
                "port": input.port,
                "backlogs": (0..self.lines.len()).map(backlog).collect::<Vec<_>>(),
                "rates": (0..self.lines.len()).map(rate).collect::<Vec<_>>(),
            })
        });
        json!({
            "periods": self.periods,
            "late": self.late,
            "inputs": rates.collect::<Vec<_>>(),
        })
    }
}

/// Who ends has no backlog any more.
impl Drop for Distributed {
    fn drop(&mut self) {
        self.inputs.iter().for_each(|input| self.board.tell(input.port, 0, &[]));
    }
}
