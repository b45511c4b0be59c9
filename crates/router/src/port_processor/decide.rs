//! What a batch of packets gets: verdicts of rules, decisions of plugins on either side, next hops.
//!
//! Rows: D-29, D-31, D-32, D-38, D-66.

use super::count::{Counters, Reason};
use super::forward::{BATCH, Work, destination};
use super::parse::{Addresses, Seen};
use super::plugin::{Passing, Wish};
use super::{Going, PortProcessor};
use lastmeter_base::Time;
use lastmeter_linux::dataplane::Frame;
use lastmeter_net::classify::{Action, Address, Header, Verdict};
use lastmeter_net::lookup::NextHop;

/// The headers of a batch's packets of one family.
struct Headers<A> {
    all: [Header<A>; BATCH],
    /// Which packets they are.
    places: [usize; BATCH],
    count: usize,
}

impl<A: Address> Headers<A> {
    fn new(port: u16) -> Headers<A> {
        let any = A::from_left(0);
        let (dst_port, src_port, protocol) = (0, 0, 0);
        let none = Header { dst: any, src: any, dst_port, src_port, protocol, interface: port };
        Headers { all: [none; BATCH], places: [0; BATCH], count: 0 }
    }
    fn put(&mut self, at: usize, (src, dst): (A, A), seen: &Seen) {
        let (src_port, dst_port) = seen.ports;
        let header = &mut self.all[self.count];
        (header.dst, header.src, header.dst_port, header.src_port) = (dst, src, dst_port, src_port);
        header.protocol = seen.protocol;
        self.places[self.count] = at;
        self.count += 1;
    }
}

impl PortProcessor {
    pub(super) fn classify(&mut self, port: u16, work: &mut [Work]) {
        let Some(rules) = &self.rules else { return };
        let (mut v4, mut v6) = (Headers::<u32>::new(port), None::<Headers<u128>>);
        let some_v6 = !rules.general_v6.is_empty();
        for (at, one) in work.iter().enumerate().filter(|(_, one)| !one.hinted) {
            let seen = &one.passing.seen;
            match seen.addresses {
                Addresses::V4(src, dst) => v4.put(at, (src, dst), seen),
                Addresses::V6(src, dst) if some_v6 => {
                    v6.get_or_insert_with(|| Headers::new(port)).put(at, (src, dst), seen);
                }
                Addresses::V6(..) => {}
            }
        }
        let mut verdicts = [Verdict::PERMIT; BATCH];
        let (count, places) = (v4.count, v4.places);
        rules.classify_batch(&v4.all[..count], &mut verdicts[..count]);
        let mut verdicts_v6 = [Verdict::PERMIT; BATCH];
        if let Some(Headers { all, count, .. }) = &v6 {
            rules.classify_batch_v6(&all[..*count], &mut verdicts_v6[..*count]);
        }
        for (verdict, at) in verdicts[..count].iter().zip(places) {
            self.judge(port, &mut work[at], verdict);
        }
        if let Some(Headers { places, count, .. }) = v6 {
            for (verdict, at) in verdicts_v6[..count].iter().zip(places) {
                self.judge(port, &mut work[at], verdict);
            }
        }
    }

    /// What becomes of a packet with this verdict.
    fn judge(&mut self, port: u16, one: &mut Work, verdict: &Verdict) {
        if verdict.copy {
            (one.plain, one.same) = (false, false);
            self.copied.put(port, self.frames.bytes(one.passing.frame));
        }
        match verdict.action {
            Action::Permit => {}
            Action::Deny => {
                one.gone = true;
                self.frames.free(one.passing.frame);
                self.counts[usize::from(port)].drop(Reason::Filtered);
            }
            Action::Reserved { queue } => {
                self.treatments[queue as usize].seen += 1;
                one.flow = Some(queue);
                one.plain = false;
            }
            Action::Active { instance } => {
                one.plugin = Some(instance);
                one.plain = false;
            }
        }
        if let Some(hop) = verdict.next_hop {
            (one.hop, one.pinned) = (hop.get(), verdict.pinned);
            one.plain = false;
        }
    }

    pub(super) fn plugins(&mut self, port: u16, work: &mut [Work], now: Time) {
        for at in 0..self.ports[usize::from(port)].plugins.len() {
            let plugin = self.ports[usize::from(port)].plugins[at];
            self.pass(plugin, port, work, |_| true, now);
        }
        if work.iter().any(|one| one.plugin.is_some()) {
            for plugin in 0..self.plugins.len() {
                let wanted = Some(plugin as u32);
                if work.iter().any(|one| one.plugin == wanted) {
                    self.pass(plugin, port, work, |one| one.plugin == wanted, now);
                }
            }
        }
        let functions = |flow: u32| !self.treatments[flow as usize].functions.is_empty();
        let mut flows: Vec<u32> =
            work.iter().filter_map(|one| one.flow).filter(|flow| functions(*flow)).collect();
        flows.sort_unstable();
        flows.dedup();
        for flow in flows {
            for at in 0..self.treatments[flow as usize].functions.len() {
                let plugin = self.treatments[flow as usize].functions[at];
                self.pass(plugin, port, work, |one| one.flow == Some(flow), now);
            }
        }
    }

    /// Packets for which `which` holds pass a plugin.
    fn pass(
        &mut self,
        plugin: usize,
        port: u16,
        work: &mut [Work],
        which: impl Fn(&Work) -> bool,
        now: Time,
    ) {
        let mut packets = std::mem::take(&mut self.passing);
        let mut wishes = std::mem::take(&mut self.wishes);
        packets.clear();
        wishes.clear();
        packets.extend(work.iter().filter(|one| !one.gone && which(one)).map(|one| one.passing));
        if self.plugins[plugin].asks_queues() {
            for run in packets.chunk_by(|one, other| one.hash == other.hash) {
                self.show_queues(plugin, run[0]);
                self.plugins[plugin].pass(now, port, run, &mut self.frames, &mut wishes);
            }
        } else {
            self.plugins[plugin].pass(now, port, &packets, &mut self.frames, &mut wishes);
        }
        let asked = work.iter_mut().filter(|one| !one.gone && which(one));
        for (one, wish) in asked.zip(&wishes) {
            one.plain = false;
            match *wish {
                Wish::Pass => {}
                Wish::Deny => {
                    one.gone = true;
                    self.frames.free(one.passing.frame);
                    self.counts[usize::from(port)].drop(Reason::Plugin);
                }
                Wish::Changed(seen) => {
                    // Elsewhere now: a next hop that a rule gave is for where it went before.
                    if seen.addresses != one.passing.seen.addresses && !one.pinned {
                        one.hop = 0;
                    }
                    one.same &= seen.is_same_flow(&one.passing.seen);
                    (one.passing.seen, one.passing.hash) = (seen, seen.hash());
                }
                Wish::Port(to) => one.port = Some(to),
                Wish::Flow(to) => one.queue = Some(to),
                Wish::Copy(to) => {
                    if let Some(copy) = copied(&mut self.frames, one.passing.frame) {
                        Counters::add(&self.counts[usize::from(port)].made, 1);
                        let passing = Passing { frame: copy, ..one.passing };
                        self.copies.push((passing, to));
                    }
                }
            }
        }
        (self.passing, self.wishes) = (packets, wishes);
        let mut copies = std::mem::take(&mut self.copies);
        for (passing, to) in copies.drain(..) {
            self.send_to_port(port, &passing, to, now);
        }
        self.copies = copies;
    }

    /// Tells a plugin what a packet's flow has in the queue of each port, and what it is granted there.
    fn show_queues(&mut self, plugin: usize, Passing { seen, hash, .. }: Passing) {
        let (pool, class) = (&mut self.pool, class(&seen));
        let ports = self.ports.iter();
        let queues = ports.map(|out| out.output.granted(flow(hash, out.flows), class, pool));
        self.plugins[plugin].set_queues(queues);
    }

    pub(super) fn lookup(&mut self, port: u16, work: &mut [Work]) {
        let mut keys = [0u32; BATCH];
        let mut hops = [None::<NextHop>; BATCH];
        let mut places = [0; BATCH];
        let mut count = 0;
        let policies = !self.policies.rules.is_empty();
        for (at, one) in work.iter_mut().enumerate() {
            if policies && !one.gone {
                // A policy may ask for more than the addresses and ports of a known flow.
                (one.plain, one.same) = (false, false);
                if one.hop == 0 {
                    one.hop = self.policies.hop(port, &one.passing.seen);
                }
            }
            if one.gone || one.hop != 0 {
                continue;
            }
            match one.passing.seen.addresses {
                Addresses::V4(_, dst) => {
                    (keys[count], places[count]) = (dst, at);
                    count += 1;
                }
                Addresses::V6(_, dst) => one.hop = self.v6.lookup(dst).map_or(0, NextHop::get),
            }
        }
        self.v4.lookup_batch(&keys[..count], &mut hops[..count]);
        for (hop, at) in hops[..count].iter().zip(&places) {
            work[*at].hop = hop.map_or(0, NextHop::get);
        }
    }

    /// Packets that wait for the plugins of the ports where they leave pass them, and leave.
    pub(super) fn depart(&mut self, now: Time) {
        // An error about a packet leaves by another port, whose turn may be over; there are no errors about errors.
        for _ in 0..2 {
            for port in 0..self.ports.len() {
                if !self.ports[port].leaving.is_empty() {
                    self.pass_departing(port, now);
                }
            }
        }
    }

    fn pass_departing(&mut self, port: usize, now: Time) {
        let mut leaving = std::mem::take(&mut self.ports[port].leaving);
        for at in 0..self.ports[port].departing.len() {
            let plugin = self.ports[port].departing[at];
            let mut wishes = std::mem::take(&mut self.wishes);
            let mut packets = std::mem::take(&mut self.passing);
            wishes.clear();
            packets.clear();
            packets.extend(leaving.iter().map(|going| going.passing));
            let runs = match self.plugins[plugin].asks_queues() {
                true => |one: &Passing, other: &Passing| one.hash == other.hash,
                false => |_: &Passing, _: &Passing| true,
            };
            for run in packets.chunk_by(runs) {
                if self.plugins[plugin].asks_queues() {
                    self.show_queues(plugin, run[0]);
                }
                self.plugins[plugin].pass(now, port as u16, run, &mut self.frames, &mut wishes);
            }
            let mut wanted = wishes.iter();
            leaving.retain_mut(|going| {
                let wish = wanted.next().copied().unwrap_or(Wish::Pass);
                self.departs(going, wish, now)
            });
            (self.wishes, self.passing) = (wishes, packets);
        }
        for going in leaving.drain(..) {
            self.deliver(Going { departed: true, ..going }, now);
        }
        // What joined meanwhile keeps its place.
        leaving.append(&mut self.ports[port].leaving);
        self.ports[port].leaving = leaving;
    }

    /// What a plugin of the port where it leaves decided about a packet; whether it still leaves there.
    fn departs(&mut self, going: &mut Going, wish: Wish, now: Time) -> bool {
        let arrived = usize::from(going.port);
        match wish {
            Wish::Pass => return true,
            Wish::Deny => {
                self.frames.free(going.passing.frame);
                self.counts[arrived].drop(Reason::Plugin);
                return false;
            }
            Wish::Changed(seen) => {
                (going.passing.seen, going.passing.hash) = (seen, seen.hash());
                return true;
            }
            Wish::Flow(to) => {
                going.queue = Some(to);
                return true;
            }
            Wish::Port(_) | Wish::Copy(_) => {}
        }
        let (to, mut other) = match wish {
            Wish::Port(to) => (to, Some(going.passing)),
            Wish::Copy(to) => {
                let copy = copied(&mut self.frames, going.passing.frame);
                Counters::add(&self.counts[arrived].made, u64::from(copy.is_some()));
                (to, copy.map(|frame| Passing { frame, ..going.passing }))
            }
            _ => return true,
        };
        if let Some(passing) = other.take() {
            let there = usize::from(to) < self.ports.len();
            match there.then(|| self.hops.number(to, destination(&passing.seen))).flatten() {
                // It passes no plugin of that port: two of them could send it to and fro.
                Some(neighbour) => {
                    let going = Going { passing, neighbour, departed: true, ..*going };
                    self.deliver(going, now);
                }
                None => {
                    self.frames.free(passing.frame);
                    self.counts[arrived].drop(Reason::Plugin);
                }
            }
        }
        matches!(wish, Wish::Copy(_))
    }
}

/// The flow of a packet, among so many.
pub(super) fn flow(hash: u64, flows: u32) -> u32 {
    (((hash >> 32) * u64::from(flows)) >> 32) as u32
}

/// The class of a packet.
pub(super) fn class(seen: &Seen) -> u8 {
    seen.traffic_class >> 5
}

/// A copy of a frame.
fn copied(frames: &mut lastmeter_linux::dataplane::Frames, frame: Frame) -> Option<Frame> {
    let bytes = frames.bytes(frame).to_vec();
    frames.make(&bytes)
}
