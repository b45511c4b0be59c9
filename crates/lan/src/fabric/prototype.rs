//! A port of the prototype: its virtual output queues, its output queue, its own copy of all ports' backlogs, and
//! the rates that it computes from them. It takes `now`; the caller provides the clock.
//!
//! ```text
//! offer(output, len) --> [ VOQs ] --r(i,j), S L--> Sent::Packet --> arrive(len) --> [ output ] --L--> link
//!                        each period D: Sent::Cell(backlogs) --> hear(cell) at every port, its own too
//! ```
//!
//! [`super::model`] is a whole router in virtual time. This is the work of one of its processors, so that ports
//! can run on separate threads and exchange backlogs in cells (D-122), which a monitor captures (D-124) and from
//! which [`Replay`] computes the rates again (D-125). A port that has been silent for [`AGE_MAX`] periods counts
//! as empty.
//!
//! Source: Kuhns et al., §3.6 and §8.3. Deviation: packets have a length and no content.
//!
//! ```
//! use lastmeter_base::{Bytes, Duration, Rate, Time};
//! use lastmeter_lan::fabric::allocation::Rule;
//! use lastmeter_lan::fabric::model::Options;
//! use lastmeter_lan::fabric::prototype::{Port, Sent};
//! let options = Options {
//!     ports: 8,
//!     link: Rate::from_mbit(70),
//!     speed_up: (2, 1),
//!     period: Duration::from_us(500),
//!     rule: Some(Rule::Responsive { backlog_min: Bytes(1000) }),
//!     room: Bytes::from_mib(8),
//! };
//! let (mut port, mut sent) = (Port::new(options, 0)?, Vec::new());
//! port.offer(Time::START, 3, Bytes(520));
//! port.advance(Time::START + Duration::from_ms(1), &mut sent);
//! assert!(sent.contains(&Sent::Packet { output: 3, len: Bytes(520) }));
//! # Ok::<(), String>(())
//! ```

use super::allocation::{Allocation, Shares, Summary};
use super::model::Options;
use super::voq::{Rules, Voqs};
use lastmeter_base::{Bytes, Time};
use lastmeter_wire::atm::PAYLOAD_LEN;
use lastmeter_wire::control::der::PORTS;
use lastmeter_wire::control::dq::Backlogs;
use std::collections::VecDeque;
use std::sync::Arc;

/// Ports of the prototype: as many as have their backlogs fit into a cell.
pub const PORTS_MAX: usize = PORTS as usize;
/// Periods without a cell after which a port counts as empty.
pub const AGE_MAX: u64 = 3;

/// A transmission of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A packet to an output of the fabric.
    Packet {
        /// The output.
        output: usize,
        /// Its length.
        len: Bytes,
    },
    /// A cell of backlogs to all ports.
    Cell([u8; PAYLOAD_LEN]),
}

/// A port.
#[derive(Debug)]
pub struct Port {
    options: Options,
    allocation: Allocation,
    number: usize,
    voqs: Voqs<()>,
    input_free: Time,
    queue: VecDeque<Bytes>,
    backlog: u64,
    link_free: Time,
    carried: u64,
    lost: u64,
    news: News,
    /// The number of periods reported, and when the next one is due.
    told: u64,
    tells: Time,
    alarms: u64,
}

impl Port {
    /// An idle port.
    ///
    /// # Errors
    /// If there are more ports than fit into a cell, or there are no equations.
    pub fn new(options: Options, number: usize) -> Result<Port, String> {
        let Some(allocation) = options.allocation() else {
            return Err("the prototype needs a set of equations to compute rates".to_owned());
        };
        if options.ports == 0 || options.ports > PORTS_MAX || number >= options.ports {
            return Err(format!("the prototype has 1 to {PORTS_MAX} ports"));
        }
        let Options { period, room, .. } = options;
        let rules = Rules { allocation: Some(allocation), period, room };
        Ok(Port {
            allocation,
            voqs: Voqs::new(rules.into()),
            input_free: Time::START,
            queue: VecDeque::new(),
            backlog: 0,
            link_free: Time::START,
            carried: 0,
            lost: 0,
            news: News::default(),
            told: 0,
            tells: Time::START + options.period,
            alarms: 0,
            options,
            number,
        })
    }

    /// A packet arrives from outside, for an output.
    pub fn offer(&mut self, now: Time, output: usize, len: Bytes) {
        if output >= self.options.ports || self.voqs.enqueue(now, output, len, ()).is_err() {
            self.lost += len.0;
        }
    }
    /// A packet arrives from the fabric, for this port's link.
    pub fn arrive(&mut self, now: Time, len: Bytes) {
        if self.backlog + len.0 > self.options.room.0 {
            self.lost += len.0;
            return;
        }
        if self.queue.is_empty() {
            self.link_free = self.link_free.max(now);
        }
        self.queue.push_back(len);
        self.backlog += len.0;
    }
    /// A cell of backlogs arrives, from any port. An invalid cell is counted and ignored.
    pub fn hear(&mut self, cell: &[u8; PAYLOAD_LEN]) {
        match Backlogs::parse(cell) {
            Ok(told) if usize::from(told.port) < self.options.ports => self.news.hear(told),
            _ => self.alarms += 1,
        }
    }

    /// Handles everything due by `now`, and returns what it sends. Rates are recomputed from the cells received
    /// when the next period begins.
    pub fn advance(&mut self, now: Time, sent: &mut Vec<Sent>) {
        while self.tells <= now {
            let at = self.tells;
            self.send(at, sent);
            self.leave(at);
            self.allocate(at);
            sent.push(Sent::Cell(self.tell()));
            self.told += 1;
            self.tells += self.options.period;
        }
        self.send(now, sent);
        self.leave(now);
    }

    /// When the next event is due: a packet's end on the link, one for the fabric, or a period.
    pub fn ready_at(&self) -> Time {
        let packet = self.voqs.ready_at().map(|ready| ready.max(self.input_free));
        let link = self.queue.front().map(|&len| self.link_free + self.options.link.time_for(len));
        packet.into_iter().chain(link).fold(self.tells, Time::min)
    }

    fn send(&mut self, now: Time, sent: &mut Vec<Sent>) {
        let capacity = self.options.capacity();
        while let Some(ready) = self.voqs.ready_at().map(|ready| ready.max(self.input_free)) {
            if ready > now {
                return;
            }
            let Some((output, len, ())) = self.voqs.dequeue(ready) else { return };
            self.input_free = ready + capacity.time_for(len);
            sent.push(Sent::Packet { output, len });
        }
    }

    fn leave(&mut self, now: Time) {
        while let Some(&len) = self.queue.front() {
            let gone = self.link_free + self.options.link.time_for(len);
            if gone > now {
                return;
            }
            self.queue.pop_front();
            (self.link_free, self.backlog) = (gone, self.backlog - len.0);
            self.carried += len.0;
        }
    }

    /// Recomputes rates from the cells of all ports.
    fn allocate(&mut self, now: Time) {
        let since = self.told.saturating_sub(AGE_MAX);
        let (summary, rows, missing) = self.news.summary(self.options.ports, since);
        self.alarms += missing;
        let own: Vec<(usize, u64)> = rows[self.number]
            .iter()
            .enumerate()
            .filter_map(|(output, &bytes)| (bytes > 0).then_some((output, bytes)))
            .collect();
        self.voqs.allocate(now, &own, Arc::new(Shares::new(&self.allocation, summary)));
    }

    fn tell(&self) -> [u8; PAYLOAD_LEN] {
        let mut inputs = [0; PORTS_MAX];
        for (output, bytes) in self.voqs.backlogs() {
            inputs[output] = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        let output = u32::try_from(self.backlog).unwrap_or(u32::MAX);
        Backlogs { port: self.number as u8, sequence: self.told as u16, output, inputs }.emit()
    }

    /// Backlog of its input for an output, in bytes.
    pub fn waiting(&self, output: usize) -> u64 {
        self.voqs.backlog(output).0
    }
    /// Backlog of its output, in bytes.
    pub fn backlog(&self) -> u64 {
        self.backlog
    }
    /// The current rate from its input to an output, in bits per second.
    pub fn rate(&self, output: usize) -> u64 {
        self.voqs.rate(output).unwrap_or(0)
    }
    /// Bytes that its link has carried.
    pub fn carried(&self) -> u64 {
        self.carried
    }
    /// Bytes dropped by full queues.
    pub fn lost(&self) -> u64 {
        self.lost
    }
    /// Times that a port had been silent for too long or a cell was invalid.
    pub fn alarms(&self) -> u64 {
        self.alarms
    }
}

/// Each port's backlogs for each output.
type Rows = [[u64; PORTS_MAX]; PORTS_MAX];

/// The last cell of each port, and its unwrapped period number.
#[derive(Clone, Debug, Default)]
struct News([Option<(u64, Backlogs)>; PORTS_MAX]);

impl News {
    fn hear(&mut self, told: Backlogs) {
        let place = &mut self.0[usize::from(told.port) % PORTS_MAX];
        // The sequence number wraps; a cell belongs to the first later period that matches.
        let number = match place {
            None => u64::from(told.sequence),
            Some((last, _)) => {
                let ahead = told.sequence.wrapping_sub(*last as u16);
                *last + u64::from(ahead)
            }
        };
        *place = Some((number, told));
    }

    /// Sums, each port's backlogs, and how many ports have been silent since period `since`; silent ports count as
    /// empty.
    fn summary(&self, ports: usize, since: u64) -> (Summary, Rows, u64) {
        let (mut summary, mut rows) = (Summary::empty(ports), [[0; PORTS_MAX]; PORTS_MAX]);
        let mut missing = 0;
        for (port, told) in self.0.iter().enumerate().take(ports) {
            let Some((_, told)) = told.filter(|&(number, _)| number >= since) else {
                missing += u64::from(since > 0);
                continue;
            };
            summary.output[port] = told.output.into();
            rows[port] = told.inputs.map(u64::from);
            summary.add(rows[port].into_iter().enumerate().take(ports));
        }
        (summary, rows, missing)
    }
}

/// Every port's allocation, recomputed from captured cells alone (D-125). For a missing cell, the port's previous
/// report is used.
///
/// ```
/// use lastmeter_base::{Bytes, Rate};
/// use lastmeter_lan::fabric::allocation::{Allocation, Rule};
/// use lastmeter_lan::fabric::prototype::Replay;
/// use lastmeter_wire::control::dq::Backlogs;
/// let rule = Rule::Responsive { backlog_min: Bytes(1000) };
/// let mut replay = Replay::new(Allocation { rule, ports: 8, capacity: Rate::from_mbit(140) });
/// let told = Backlogs { port: 0, sequence: 0, output: 0, inputs: [0; 8] };
/// assert!(replay.cell(&told).is_none(), "seven ports have not yet reported");
/// ```
#[derive(Debug)]
pub struct Replay {
    allocation: Allocation,
    news: News,
    /// The current period, and how many of its cells have arrived.
    period: Option<u64>,
    heard: usize,
}

/// One period of a replay, in bytes and bits per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its number, from 0.
    pub number: u64,
    /// B(j).
    pub output: Vec<u64>,
    /// B(i,j).
    pub inputs: Vec<Vec<u64>>,
    /// r(i,j).
    pub rates: Vec<Vec<u64>>,
}

impl Replay {
    /// No cell has arrived yet.
    pub fn new(allocation: Allocation) -> Replay {
        Replay { allocation, news: News::default(), period: None, heard: 0 }
    }

    /// Takes the next cell of a capture. Returns a period when all its cells have arrived, or a cell of a later
    /// period.
    pub fn cell(&mut self, told: &Backlogs) -> Option<Period> {
        let ports = self.allocation.ports.min(PORTS_MAX);
        if usize::from(told.port) >= ports {
            return None;
        }
        // Cells of the previous period may be missing when the next one begins; the last report is used.
        let unfinished = self.period.filter(|_| self.heard > 0);
        let before = unfinished.map(|before| self.computed(before));
        self.news.hear(*told);
        let number = self.news.0[usize::from(told.port)].map_or(0, |(number, _)| number);
        match self.period {
            Some(period) if number < period => None,
            Some(period) if number == period => {
                self.heard += 1;
                (self.heard == ports).then(|| {
                    self.heard = 0;
                    self.computed(number)
                })
            }
            _ => {
                (self.period, self.heard) = (Some(number), 1);
                before
            }
        }
    }

    fn computed(&self, number: u64) -> Period {
        let ports = self.allocation.ports.min(PORTS_MAX);
        let (summary, rows, _) = self.news.summary(ports, 0);
        let row = |input: usize| {
            let own = rows[input].into_iter().enumerate().take(ports);
            let total = self.allocation.total(own, &summary);
            let rate = |output| self.allocation.rate(rows[input][output], output, &summary, total);
            (0..ports).map(rate).collect()
        };
        Period {
            number,
            rates: (0..ports).map(row).collect(),
            inputs: rows[..ports].iter().map(|row| row[..ports].to_vec()).collect(),
            output: summary.output,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocation::Rule;
    use super::*;
    use lastmeter_base::{Duration, Rate};

    const RULE: Rule = Rule::Responsive { backlog_min: Bytes(1000) };

    fn options() -> Options {
        Options {
            ports: 8,
            link: Rate::from_mbit(70),
            speed_up: (2, 1),
            period: Duration::from_us(500),
            rule: Some(RULE),
            room: Bytes::from_mib(8),
        }
    }

    /// D-122 in virtual time: eight ports that exchange nothing but cells fill an output at 70 Mbit/s, and the
    /// rates that a replay computes from their cells are those at which they send (D-124, D-125).
    #[test]
    fn ports_that_exchange_cells_agree_with_the_model_and_with_a_replay() {
        let options = options();
        let mut ports: Vec<Port> =
            (0..8).map(|number| Port::new(options, number).expect("eight ports")).collect();
        let allocation = Allocation { rule: RULE, ports: 8, capacity: options.capacity() };
        let mut replay = Replay::new(allocation);
        let (gap, step) = (options.link.time_for(Bytes(520)), Duration::from_us(20));
        let (mut at, mut next, mut last) = (Time::START, Time::START, None);
        while at < Time::START + Duration::from_ms(100) {
            at += step;
            while next < at {
                (0..4).for_each(|source: usize| ports[source].offer(next, 0, Bytes(520)));
                next += gap;
            }
            let mut all = Vec::new();
            for port in &mut ports {
                port.advance(at, &mut all);
            }
            for sent in all {
                match sent {
                    Sent::Packet { output, len } => ports[output].arrive(at, len),
                    Sent::Cell(cell) => {
                        ports.iter_mut().for_each(|port| port.hear(&cell));
                        let told = Backlogs::parse(&cell).expect("a port emitted it");
                        last = replay.cell(&told).or(last);
                    }
                }
            }
        }
        let megabits = ports[0].backlog() as f64 * 8.0 / 0.1 / 1e6;
        assert!((megabits / 70.0 - 1.0).abs() < 0.03, "B(1) grew by {megabits} Mbit/s");
        let waiting = ports[0].waiting(0) as f64 * 8.0 / 0.1 / 1e6;
        assert!((waiting / 35.0 - 1.0).abs() < 0.03, "B(1,1) grew by {waiting} Mbit/s");
        let last = last.expect("periods have passed");
        for (input, port) in ports.iter().enumerate() {
            for output in 0..8 {
                let (replayed, used) = (last.rates[input][output] as f64, port.rate(output) as f64);
                assert!(
                    (replayed - used).abs() < 0.02 * 140e6,
                    "r({input},{output}) {replayed} {used}"
                );
            }
        }
        assert!(ports.iter().all(|port| port.lost() == 0 && port.alarms() == 0));
    }

    #[test]
    fn a_silent_port_is_treated_as_empty_and_counted() {
        let mut port = Port::new(options(), 0).expect("eight ports");
        let mut sent = Vec::new();
        for period in 1..=10 {
            port.advance(Time::START + Duration::from_us(500) * period, &mut sent);
            let cell = Backlogs { port: 1, sequence: 0, output: 9, inputs: [9; 8] }.emit();
            if period == 1 {
                port.hear(&cell);
            }
        }
        assert!(port.alarms() > 0);
        port.hear(&[255; PAYLOAD_LEN]);
        assert_eq!(port.rate(3), 17_499_999, "all ports are empty: S L / N");
        assert!(Port::new(Options { ports: 9, ..options() }, 0).is_err());
    }
}
