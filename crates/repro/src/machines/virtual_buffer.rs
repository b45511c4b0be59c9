//! The virtual buffer of a switch port and its host: how long an interface may be deaf.
//!
//! ```text
//! cells --> [switch port, 256] --interface--> [host buffer] --processor--> application
//!   drop: port full      while attached, not deaf       while it is given the time
//! ```
//!
//! Three attachments of the interface differ in who moves a cell out of the port:
//!
//! | attachment | moves cells | does not move them |
//! |---|---|---|
//! | [`Attachment::Memory`] | a device | while the driver swaps its buffer (deaf), or there is no room |
//! | [`Attachment::Interrupt`] | the processor | from the first cell until the interrupt is served |
//! | [`Attachment::Registers`] | the application | between its time slices |
//!
//! Cells that find the port full are lost; no others are. While a handler moves cells the processor does nothing else.
//!
//! Source: "Aurora at MIT", §3.5.1, §4.2.1, §5.4.2 with Fig 16 and §5.4.3 (A-65, A-92, A-115, A-125,
//! A-126). Deviation: each cell takes its mean time; nothing but interrupt latency is drawn.

use lastmeter_base::{Draw, Duration, Stream, Time};

/// Periodic windows: closed for the first part of every period, open for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// From one closing to the next; zero if always open.
    pub period: Duration,
    /// How long it stays closed; less than `period`.
    pub closed: Duration,
}

impl Windows {
    /// Always open.
    pub const ALWAYS: Windows = Windows { period: Duration::ZERO, closed: Duration::ZERO };

    /// The first instant from `now` on at which it is open.
    ///
    /// ```
    /// use lastmeter_base::{Duration, Time};
    /// use lastmeter_repro::machines::virtual_buffer::Windows;
    /// let us = Duration::from_us;
    /// let slices = Windows { period: us(10), closed: us(4) };
    /// assert_eq!(slices.opens(Time::START + us(11)), Time::START + us(14));
    /// assert_eq!(slices.opens(Time::START + us(15)), Time::START + us(15));
    /// ```
    pub fn opens(&self, now: Time) -> Time {
        if self.period.is_zero() {
            return now;
        }
        let into = Duration::from_ps(now.as_ps() % self.period.as_ps());
        now + self.closed.saturating_sub(into)
    }
}

/// How the interface is attached to the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Attachment {
    /// A device moves cells to memory, except while it is deaf.
    Memory {
        /// When it is deaf.
        deaf: Windows,
    },
    /// The processor moves cells once an interrupt is served.
    Interrupt {
        /// From the first cell until then.
        latency: Draw,
    },
    /// The application moves them, from registers, while it runs.
    Registers,
}

/// Parameters of a virtual buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Capacity of the switch port in cells.
    pub port: u64,
    /// Capacity of the host in cells.
    pub host: u64,
    /// How the interface is attached.
    pub attachment: Attachment,
    /// Time to move a cell out of the port.
    pub transfer: Duration,
    /// Processor time per cell after that.
    pub process: Duration,
    /// When the application has the processor.
    pub slices: Windows,
}

/// Counts of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrived.
    pub offered: u64,
    /// Lost at the full port.
    pub lost: u64,
    /// Delivered to the application.
    pub delivered: u64,
    /// Largest backlog of the port.
    pub port_most: u64,
    /// Largest backlog of port and host together.
    pub most: u64,
}

/// The virtual buffer.
#[derive(Debug)]
pub struct VirtualBuffer {
    options: Options,
    stream: Stream,
    port: u64,
    host: u64,
    /// When the cell that is leaving the port will have left.
    moving: Option<Time>,
    /// When the current cell will be processed.
    processing: Option<Time>,
    /// When the interrupt is served.
    served: Time,
    counts: Counts,
}

impl VirtualBuffer {
    /// An empty buffer; interrupt latencies are drawn from `stream`.
    pub fn new(options: Options, stream: Stream) -> VirtualBuffer {
        VirtualBuffer {
            options,
            stream,
            port: 0,
            host: 0,
            moving: None,
            processing: None,
            served: Time::START,
            counts: Counts::default(),
        }
    }

    /// A cell arrives, after all events due by `now`.
    pub fn arrive(&mut self, now: Time) {
        self.advance(now);
        self.counts.offered += 1;
        if self.port == self.options.port {
            self.counts.lost += 1;
            return;
        }
        if let (0, Attachment::Interrupt { latency }) = (self.port, &self.options.attachment) {
            self.served = now + latency.sample(&mut self.stream);
        }
        self.port += 1;
        self.counts.port_most = self.counts.port_most.max(self.port);
        self.counts.most = self.counts.most.max(self.port + self.host);
        self.turn(now);
    }

    /// The time of the next event.
    pub fn ready_at(&self) -> Option<Time> {
        [self.moving, self.processing].into_iter().flatten().min()
    }

    /// Processes all events due by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some(due) = self.ready_at().filter(|&due| due <= now) {
            if self.moving == Some(due) {
                self.moving = None;
                self.port -= 1;
                match self.options.attachment {
                    Attachment::Registers => self.counts.delivered += 1,
                    _ => self.host += 1,
                }
            } else {
                self.processing = None;
                self.host -= 1;
                self.counts.delivered += 1;
            }
            self.turn(due);
        }
    }

    /// Starts whatever can start.
    fn turn(&mut self, now: Time) {
        let Options { host, transfer, process, slices, .. } = self.options;
        if self.moving.is_none() && self.port > 0 {
            let (from, takes) = match &self.options.attachment {
                Attachment::Memory { deaf } => (deaf.opens(now), transfer),
                Attachment::Interrupt { .. } => (now.max(self.served), transfer),
                Attachment::Registers => (slices.opens(now), transfer + process),
            };
            if self.host < host {
                self.moving = Some(from + takes);
            }
        }
        let handler = matches!(self.options.attachment, Attachment::Interrupt { .. });
        let free = !(handler && self.moving.is_some() && now >= self.served);
        if self.processing.is_none() && self.host > 0 && free {
            self.processing = Some(slices.opens(now) + process);
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Cells that are neither lost nor delivered.
    pub fn held(&self) -> u64 {
        self.port + self.host
    }
}

/// Bursts of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Cells per burst.
    pub cells: u64,
    /// From one cell of a burst to the next.
    pub gap: Duration,
    /// From the start of one burst to the start of the next.
    pub period: Duration,
}

/// Offers `bursts` bursts to a fresh buffer and lets it drain; returns the counts.
///
/// ```
/// use lastmeter_base::{Duration, Stream};
/// use lastmeter_repro::machines::virtual_buffer::{Attachment, Bursts, Options, Windows, offer};
/// let us = Duration::from_us;
/// let options = Options {
///     port: 256, host: 1000, transfer: us(2), process: us(4), slices: Windows::ALWAYS,
///     attachment: Attachment::Memory { deaf: Windows::ALWAYS },
/// };
/// let bursts = Bursts { cells: 1000, gap: us(2), period: us(5000) };
/// assert_eq!(offer(options, bursts, 3, Stream::new(1, "example")).lost, 0);
/// ```
pub fn offer(options: Options, bursts: Bursts, count: u64, stream: Stream) -> Counts {
    let mut buffer = VirtualBuffer::new(options, stream);
    for burst in 0..count {
        let begin = Time::START + bursts.period * burst;
        for cell in 0..bursts.cells {
            buffer.arrive(begin + bursts.gap * cell);
        }
    }
    while let Some(due) = buffer.ready_at() {
        buffer.advance(due);
    }
    buffer.counts()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(us: u64) -> Duration {
        Duration::from_us(us)
    }

    fn options(attachment: Attachment) -> Options {
        Options {
            port: 256,
            host: 10_000,
            attachment,
            transfer: us(2),
            process: us(4),
            slices: Windows::ALWAYS,
        }
    }

    fn lost(attachment: Attachment, bursts: Bursts) -> u64 {
        offer(options(attachment), bursts, 4, Stream::new(1, "test")).lost
    }

    #[test]
    fn a_115_the_switch_absorbs_what_comes_while_the_interface_is_deaf() {
        // A cell each 2 us: 256 fit while it is deaf for 512 us, 257 do not.
        let bursts = Bursts { cells: 2000, gap: us(2), period: us(20_000) };
        let deaf = |length| Attachment::Memory {
            deaf: Windows { period: us(20_000), closed: us(length) },
        };
        assert_eq!(lost(deaf(508), bursts), 0);
        assert!(lost(deaf(530), bursts) > 0);
    }

    #[test]
    fn a_126_registers_lose_between_time_slices_what_memory_absorbs() {
        let bursts = Bursts { cells: 1000, gap: us(10), period: us(20_000) };
        let slices = Windows { period: us(20_000), closed: us(10_000) };
        let run = |attachment| {
            let options = Options { slices, ..options(attachment) };
            offer(options, bursts, 4, Stream::new(1, "test")).lost
        };
        assert_eq!(run(Attachment::Memory { deaf: Windows::ALWAYS }), 0);
        assert!(run(Attachment::Registers) > 1000);
    }

    #[test]
    fn a_92_a_late_interrupt_loses_what_the_port_cannot_hold() {
        let bursts = Bursts { cells: 1000, gap: us(8), period: us(20_000) };
        let latency = |length| Attachment::Interrupt { latency: Draw::Constant(us(length)) };
        assert_eq!(lost(latency(100), bursts), 0);
        assert!(lost(latency(5_000), bursts) > 0);
    }

    proptest! {
        #[test]
        fn every_cell_is_delivered_lost_or_held(
            cells in 1u64..600, gap in 1u64..20, closed in 0u64..400, latency in 0u64..800,
            kind in 0..3, room in 1u64..400,
        ) {
            let attachment = match kind {
                0 => Attachment::Memory { deaf: Windows { period: us(900), closed: us(closed) } },
                1 => Attachment::Interrupt { latency: Draw::Uniform(us(0), us(latency)) },
                _ => Attachment::Registers,
            };
            let slices = Windows { period: us(1000), closed: us(closed) };
            let options = Options { host: room, slices, ..options(attachment) };
            let mut buffer = VirtualBuffer::new(options, Stream::new(7, "test"));
            for cell in 0..cells {
                buffer.arrive(Time::START + us(gap) * cell);
                let counts = buffer.counts();
                prop_assert!(counts.port_most <= 256);
                prop_assert_eq!(counts.offered, counts.lost + counts.delivered + buffer.held());
            }
            while let Some(due) = buffer.ready_at() {
                buffer.advance(due);
            }
            prop_assert_eq!(buffer.held(), 0);
        }
    }
}
