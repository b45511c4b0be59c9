//! Pairs of events: from when something waits to when it does no longer.
//!
//! ```text
//! asleep --woken--> ready --switch in--> runs --switch out, could go on--> ready
//!    ^                                    |
//!    +-------- switch out, cannot --------+
//! ```
//!
//! A wait counts only where both of its ends were seen, and nothing was lost between them. A thread that is woken
//! before it is off its CPU waits from when it is off; one that is woken while it runs on does not wait. Packets
//! are known by their addresses, which the kernel uses again: what a packet does later replaces what was known
//! of one with the same address.

use super::event::{Event, NET_RX, NET_TX, What};
use std::collections::HashMap;

/// What a thread did, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Thread {
    /// Its process, once it was seen to run.
    pub(super) process: Option<u32>,
    /// From when it was woken until it ran.
    pub(super) woken: Vec<u64>,
    /// From when it had to leave its CPU until it ran again.
    pub(super) displaced: Vec<u64>,
    /// How long it ran.
    pub(super) ran: u64,
}

/// What was seen of an interface, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    /// From when a packet was handed to it until its driver got it.
    pub(super) queued: Vec<u64>,
    /// Packets that were handed to it and never seen to leave: their addresses were used again.
    pub(super) unseen: u64,
}

/// What was seen to wait, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delays {
    /// Nanoseconds observed.
    pub(super) observed: u64,
    /// By the kernel's number.
    pub(super) threads: HashMap<u32, Thread>,
    /// From when a softirq was wanted until it began.
    pub(super) receive: Vec<u64>,
    /// The same of those that free what was sent, and send what had to wait.
    pub(super) transmit: Vec<u64>,
    pub(super) devices: Vec<Device>,
    /// From when a packet was put into a CPU's backlog until the stack took it.
    pub(super) backlog: Vec<u64>,
    /// By process: from when the stack took a packet until a thread began to copy out of it.
    pub(super) sockets: HashMap<u32, Vec<u64>>,
    /// Packets that the stack took.
    pub(super) packets: u64,
    /// Packets that found no room in a socket.
    pub(super) full: u64,
    /// Events.
    pub(super) events: u64,
    /// Events that found no room.
    pub(super) lost: u64,
}

impl Delays {
    /// Adds another look.
    pub(super) fn add(&mut self, mut other: Delays) {
        self.observed += other.observed;
        for (number, mut seen) in other.threads {
            let thread = self.threads.entry(number).or_default();
            thread.process = seen.process.or(thread.process);
            thread.woken.append(&mut seen.woken);
            thread.displaced.append(&mut seen.displaced);
            thread.ran += seen.ran;
        }
        self.receive.append(&mut other.receive);
        self.transmit.append(&mut other.transmit);
        for mut seen in other.devices {
            match self.devices.iter_mut().find(|known| known.name == seen.name) {
                Some(known) => {
                    known.queued.append(&mut seen.queued);
                    known.unseen += seen.unseen;
                }
                None => self.devices.push(seen),
            }
        }
        self.backlog.append(&mut other.backlog);
        for (process, mut seen) in other.sockets {
            self.sockets.entry(process).or_default().append(&mut seen);
        }
        self.packets += other.packets;
        self.full += other.full;
        self.events += other.events;
        self.lost += other.lost;
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing was seen of it yet.
    #[default]
    Unknown,
    /// It has a CPU, since then.
    Runs(u64),
    /// It sleeps, since then.
    Sleeps(u64),
    /// It was woken, and is ready since then.
    Woken(u64),
    /// It could go on, and is ready since then.
    Displaced(u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Followed {
    state: State,
    /// Somebody is waking it, since then.
    waking: Option<u64>,
}

/// The state of the matching.
#[derive(Default)]
struct Matcher {
    found: Delays,
    /// Nothing before that is known.
    since: u64,
    threads: HashMap<u32, Followed>,
    /// By CPU and softirq.
    raised: HashMap<(u32, u64), u64>,
    queued: HashMap<u64, (u64, u16)>,
    backlogged: HashMap<u64, u64>,
    received: HashMap<u64, u64>,
    /// By thread: waits of packets out of which it has copied, until it is known from which kind of socket.
    copied: HashMap<u32, Vec<u64>>,
}

/// Finds what waited, among events in whatever order, from one time to another; `devices` are the names of interfaces.
pub(super) fn matched(
    mut events: Vec<Event>,
    (from, until): (u64, u64),
    devices: &[String],
) -> Delays {
    // Those of one time keep the order in which their CPU wrote them.
    events.sort_by_key(|event| event.at);
    let named = |name: &String| Device { name: name.clone(), ..Device::default() };
    let found = Delays {
        observed: until.saturating_sub(from),
        devices: devices.iter().map(named).collect(),
        ..Delays::default()
    };
    let mut matcher = Matcher { found, since: from, ..Matcher::default() };
    for event in events.iter().filter(|event| (from..=until).contains(&event.at)) {
        matcher.take(event);
    }
    for (number, followed) in matcher.threads {
        if let State::Runs(since) = followed.state {
            matcher.found.threads.entry(number).or_default().ran += until.saturating_sub(since);
        }
    }
    matcher.found
}

impl Matcher {
    fn take(&mut self, event: &Event) {
        let Event { at, cpu, process, thread, what } = *event;
        if what == What::Gap {
            return self.forget(at);
        }
        self.found.events += 1;
        // Numbers of processes that this one cannot see are zero or less; thread zero is that of an idle CPU.
        if thread != 0 && i32::try_from(process).is_ok_and(|process| process > 0) {
            self.found.threads.entry(thread).or_default().process = Some(process);
        }
        match what {
            What::Gap => {}
            What::Waking(thread) => self.threads.entry(thread).or_default().waking = Some(at),
            What::Woken(thread) => self.woken(thread, at),
            What::Switch { out, ready, into } => {
                self.leaves(out, ready, at);
                self.enters(into, at);
            }
            What::Raised(softirq) => {
                self.raised.entry((cpu, softirq)).or_insert(at);
            }
            What::Began(softirq) => {
                if let Some(since) = self.raised.remove(&(cpu, softirq)) {
                    match softirq {
                        NET_RX => self.found.receive.push(at - since),
                        NET_TX => self.found.transmit.push(at - since),
                        _ => {}
                    }
                }
            }
            What::Queued { packet, device } => {
                if let Some((_, before)) = self.queued.insert(packet, (at, device))
                    && let Some(before) = self.found.devices.get_mut(usize::from(before))
                {
                    before.unseen += 1;
                }
            }
            What::Started { packet, device } => {
                if let Some((since, same)) = self.queued.remove(&packet)
                    && same == device
                    && let Some(device) = self.found.devices.get_mut(usize::from(device))
                {
                    device.queued.push(at - since);
                }
            }
            What::Backlogged(packet) => {
                self.backlogged.insert(packet, at);
            }
            What::Received(packet) => {
                self.found.packets += 1;
                self.found.backlog.extend(self.backlogged.remove(&packet).map(|since| at - since));
                self.received.insert(packet, at);
            }
            What::Copied(packet) => {
                if let Some(since) = self.received.remove(&packet) {
                    self.copied.entry(thread).or_default().push(at - since);
                }
            }
            What::Taken(counts) => {
                let waits = self.copied.remove(&thread);
                if let Some(mut waits) = waits.filter(|_| counts) {
                    self.found.sockets.entry(process).or_default().append(&mut waits);
                }
            }
            What::Full => self.found.full += 1,
        }
    }

    /// Nothing that began before now has an end that can be trusted.
    fn forget(&mut self, at: u64) {
        for (number, followed) in self.threads.drain() {
            if let State::Runs(since) = followed.state {
                // It ran until it was seen last, at least; how long after that is not known.
                let ran = at.saturating_sub(since);
                self.found.threads.entry(number).or_default().ran += ran;
            }
        }
        self.since = at;
        self.raised.clear();
        self.queued.clear();
        self.backlogged.clear();
        self.received.clear();
        self.copied.clear();
    }

    fn woken(&mut self, thread: u32, at: u64) {
        let followed = self.threads.entry(thread).or_default();
        let begun = followed.waking.take().unwrap_or(at);
        match followed.state {
            State::Unknown => followed.state = State::Woken(begun),
            // Another CPU may have begun to wake it before it was off its own.
            State::Sleeps(since) => followed.state = State::Woken(begun.max(since)),
            // It had not left its CPU: it goes on.
            State::Runs(_) | State::Woken(_) | State::Displaced(_) => {}
        }
    }

    fn leaves(&mut self, thread: u32, ready: bool, at: u64) {
        if thread == 0 {
            return;
        }
        let since = self.since;
        let followed = self.threads.entry(thread).or_default();
        let ran = match followed.state {
            State::Runs(since) => at - since,
            State::Unknown => at - since,
            // It was not off its CPU, whatever was seen of it.
            State::Sleeps(_) | State::Woken(_) | State::Displaced(_) => 0,
        };
        followed.state = if ready { State::Displaced(at) } else { State::Sleeps(at) };
        self.found.threads.entry(thread).or_default().ran += ran;
    }

    fn enters(&mut self, thread: u32, at: u64) {
        if thread == 0 {
            return;
        }
        let followed = self.threads.entry(thread).or_default();
        let seen = self.found.threads.entry(thread).or_default();
        match (followed.state, followed.waking) {
            (State::Woken(since), _) => seen.woken.push(at - since),
            (State::Displaced(since), _) => seen.displaced.push(at - since),
            // Kernels without a record of the waking's end.
            (State::Sleeps(since), Some(begun)) => seen.woken.push(at - begun.max(since)),
            _ => {}
        }
        *followed = Followed { state: State::Runs(at), waking: None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: u32 = 70;
    const READER: u32 = 71;

    fn on(cpu: u32, at: u64, what: What) -> Event {
        Event { at, cpu, process: SHELL, thread: SHELL, what }
    }

    fn by(thread: u32, at: u64, what: What) -> Event {
        Event { at, cpu: 0, process: thread, thread, what }
    }

    fn switch(at: u64, out: u32, ready: bool, into: u32) -> Event {
        Event { process: out, thread: out, ..on(1, at, What::Switch { out, ready, into }) }
    }

    fn found(events: &[Event]) -> Delays {
        matched(events.to_vec(), (0, 1000), &["lm0".to_owned(), "lo".to_owned()])
    }

    #[test]
    fn a_woken_thread_waits_until_it_is_switched_to_in_whatever_order_the_cpus_say_it() {
        let mut events = vec![
            switch(100, READER, false, 0),
            on(0, 200, What::Waking(READER)),
            on(0, 205, What::Woken(READER)),
            switch(230, 0, true, READER),
            switch(300, READER, true, 9),
            switch(340, 9, false, READER),
            switch(390, READER, false, 0),
        ];
        let reader = |events: &[Event]| found(events).threads[&READER].clone();
        let right = Thread {
            process: Some(READER),
            woken: vec![30],
            displaced: vec![40],
            // From the beginning, from 230 to 300, and from 340 to 390.
            ran: 100 + 70 + 50,
        };
        assert_eq!(reader(&events), right);
        events.reverse();
        assert_eq!(reader(&events), right);
    }

    #[test]
    fn a_thread_that_runs_on_although_it_was_woken_does_not_wait() {
        // Woken before it had left its CPU; long after that it sleeps and is woken once more.
        let events = [
            switch(100, 0, true, READER),
            on(0, 110, What::Waking(READER)),
            on(0, 111, What::Woken(READER)),
            switch(500, READER, false, 0),
            on(0, 600, What::Waking(READER)),
            on(0, 601, What::Woken(READER)),
            switch(607, 0, true, READER),
        ];
        assert_eq!(found(&events).threads[&READER].woken, [7]);
        // Woken while it goes to sleep: it waits once it is off its CPU, not before.
        let events = [
            switch(100, 0, true, READER),
            on(0, 490, What::Waking(READER)),
            switch(500, READER, false, 0),
            on(0, 505, What::Woken(READER)),
            switch(520, 0, true, READER),
        ];
        assert_eq!(found(&events).threads[&READER].woken, [20]);
    }

    #[test]
    fn either_record_of_a_waking_is_enough_and_neither_is_not() {
        let asleep = switch(100, READER, false, 0);
        let back = switch(230, 0, true, READER);
        let woken = |how: &[Event]| {
            found(&[&[asleep], how, &[back]].concat()).threads[&READER].woken.clone()
        };
        assert_eq!(woken(&[on(0, 200, What::Waking(READER))]), [30]);
        assert_eq!(woken(&[on(0, 205, What::Woken(READER))]), [25]);
        assert_eq!(woken(&[]), Vec::<u64>::new());
        // It was asleep before the look began.
        let events = [on(0, 200, What::Waking(READER)), on(0, 205, What::Woken(READER)), back];
        assert_eq!(found(&events).threads[&READER].woken, [30]);
    }

    #[test]
    fn a_softirq_waits_on_its_own_cpu_from_when_it_was_wanted_first() {
        let events = [
            on(0, 100, What::Raised(NET_RX)),
            on(1, 103, What::Raised(NET_RX)),
            on(0, 104, What::Raised(NET_RX)),
            on(0, 105, What::Raised(NET_TX)),
            on(1, 106, What::Began(NET_RX)),
            on(0, 110, What::Began(NET_TX)),
            on(0, 112, What::Began(NET_RX)),
            // Wanted before the look began.
            on(0, 120, What::Began(NET_RX)),
        ];
        let found = found(&events);
        assert_eq!((found.receive, found.transmit), (vec![3, 12], vec![5]));
    }

    #[test]
    fn an_address_that_is_used_again_is_another_packet() {
        let queued = |at, device| on(0, at, What::Queued { packet: 5, device });
        let started = |at, device| on(1, at, What::Started { packet: 5, device });
        // One packet through two interfaces; one that is dropped, and another at its address.
        let events = [
            queued(100, 0),
            started(110, 0),
            queued(111, 1),
            started(113, 1),
            queued(200, 0),
            queued(300, 1),
            started(304, 1),
            started(400, 1),
            queued(500, 0),
            started(510, 1),
        ];
        let found = found(&events);
        assert_eq!(found.devices[0].queued, [10]);
        assert_eq!(found.devices[1].queued, [2, 4]);
        assert_eq!([found.devices[0].unseen, found.devices[1].unseen], [1, 0]);
        assert_eq!(found.events, 10);
    }

    #[test]
    fn a_packet_waits_in_the_backlog_and_then_for_its_reader() {
        let events = [
            on(0, 100, What::Backlogged(5)),
            on(0, 101, What::Backlogged(6)),
            on(0, 110, What::Received(5)),
            on(0, 112, What::Received(6)),
            by(READER, 200, What::Copied(5)),
            // The rest of the same packet, and one that was received before the look began.
            by(READER, 201, What::Copied(5)),
            by(READER, 202, What::Copied(4)),
            by(READER, 210, What::Taken(true)),
            // Another thread reads from a pair of local sockets, whose packet has an address that is known.
            by(SHELL, 300, What::Copied(6)),
            by(SHELL, 301, What::Taken(false)),
            by(SHELL, 302, What::Taken(true)),
            on(0, 303, What::Full),
        ];
        let found = found(&events);
        assert_eq!(found.backlog, [10, 11]);
        assert_eq!(found.sockets, HashMap::from([(READER, vec![90])]));
        assert_eq!((found.packets, found.full), (2, 1));
    }

    #[test]
    fn nothing_waits_across_a_gap() {
        let begun = [
            switch(100, READER, false, 0),
            on(0, 110, What::Woken(READER)),
            on(0, 110, What::Raised(NET_RX)),
            on(0, 110, What::Queued { packet: 5, device: 0 }),
            on(0, 110, What::Backlogged(6)),
            on(0, 110, What::Received(7)),
            by(READER, 110, What::Copied(8)),
        ];
        let ended = [
            switch(150, 0, true, READER),
            on(0, 150, What::Began(NET_RX)),
            on(0, 150, What::Started { packet: 5, device: 0 }),
            on(0, 150, What::Received(6)),
            by(READER, 150, What::Copied(7)),
            by(READER, 151, What::Taken(true)),
        ];
        let count = |delays: &Delays| {
            delays.threads[&READER].woken.len()
                + delays.receive.len()
                + delays.devices[0].queued.len()
                + delays.backlog.len()
                + delays.sockets.values().map(Vec::len).sum::<usize>()
        };
        assert_eq!(count(&found(&[&begun[..], &ended].concat())), 5);
        let gap = on(0, 130, What::Gap);
        assert_eq!(count(&found(&[&begun[..], &[gap], &ended].concat())), 0);
    }

    #[test]
    fn only_what_was_within_the_look_counts_and_looks_add_up() {
        let pair = |at| [on(0, at, What::Raised(NET_RX)), on(0, at + 5, What::Began(NET_RX))];
        let events = [pair(10), pair(98), pair(150), pair(196)].concat();
        let mut all = matched(events.clone(), (100, 200), &["lo".to_owned()]);
        assert_eq!((all.receive.as_slice(), all.observed, all.events), (&[5][..], 100, 4));
        let other = matched(events, (0, 50), &["lm0".to_owned(), "lo".to_owned()]);
        all.add(other);
        assert_eq!((all.receive.as_slice(), all.observed, all.events), (&[5, 5][..], 150, 6));
        assert_eq!(all.devices.len(), 2);
    }
}
