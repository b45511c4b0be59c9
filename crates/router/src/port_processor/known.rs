//! Flows that the program at a port takes off a port processor, or hands to it with what is known of them.
//!
//! ```text
//!          32 packets by rules and tables
//! flow --> only addresses, ports and protocol decide -----------> the program forwards it: the fast path
//!      --> it has a plugin, a reservation, a rule's next hop,
//!          or its line is shaped -------------------------------> its packets come with a hint: no rules, no lookup
//! ```
//!
//! A hint is the place of a flow in a table, and not trusted: packet and place must agree on the flow and the port
//! where it arrives, and nothing may have changed since it was noted. So a wrong hint, or an old one left in a frame's
//! memory, costs time and changes no verdict. Flows of a set are counted side by side; when there are more of them than
//! it has places, they take those from one another, and are forwarded all the same.
//!
//! Source: description of the Dynamically Extensible Router, §4.2: with an FPX in front of it, the processor gets
//! packets that are classified and looked up, on a circuit of their own.
//!
//! Rows: D-94, D-127.

use super::count::Counters;
use super::forward::Work;
use super::parse::{Addresses, Seen};
use super::{Event, PortProcessor};
use lastmeter_linux::dataplane::{FlowHop, FlowKey, FlowTo, Shared};
use lastmeter_wire::internet::protocol;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Packets of a flow after which it is noted.
const AFTER: u8 = 32;
/// Flows that are counted, and places for what is known of them.
pub(super) const PLACES: usize = 1 << 15;
/// Places of a set. With one, a thirtieth of 1024 flows whose packets take turns reset each other's counts for ever;
/// with four, hardly any of some thousand flows do.
const WAYS: usize = 4;

/// What rules and tables say of a flow.
#[derive(Clone, Copy)]
pub(super) struct Known {
    key: FlowKey,
    /// When that was so.
    generation: u64,
    hop: u32,
    pinned: bool,
    plugin: Option<u32>,
    flow: Option<u32>,
}

/// A flow as programs at ports tell it from others, if they do.
fn key(port: u16, seen: &Seen) -> Option<FlowKey> {
    let Addresses::V4(src, dst) = seen.addresses else { return None };
    let has_ports = seen.protocol == protocol::TCP || seen.protocol == protocol::UDP;
    if !has_ports || seen.is_fragment || seen.has_options {
        return None;
    }
    let mut addresses = [0; 8];
    addresses[..4].copy_from_slice(&src.to_be_bytes());
    addresses[4..].copy_from_slice(&dst.to_be_bytes());
    let mut ports = [0; 4];
    ports[..2].copy_from_slice(&seen.ports.0.to_be_bytes());
    ports[2..].copy_from_slice(&seen.ports.1.to_be_bytes());
    Some(FlowKey { addresses, ports, protocol: seen.protocol, arrives: u8::try_from(port).ok()? })
}

/// Flows whose packets are counted, in sets of [`WAYS`] places: tags, and how many packets came.
pub(super) struct Candidates(Vec<[(u32, u8); WAYS]>);

impl Candidates {
    pub(super) fn new(places: usize) -> Candidates {
        Candidates(vec![[(0, 0); WAYS]; places / WAYS])
    }
    /// Counts a packet of a flow; its place if there were [`AFTER`], and then counts anew. What was counted in another
    /// generation does not count. A flow that has no place takes that of the one with the fewest packets; of those
    /// with as few, rather one that is not `used`.
    fn count(&mut self, hash: u64, generation: u64, used: impl Fn(usize) -> bool) -> Option<usize> {
        let set = hash as usize % self.0.len().max(1);
        let ways = self.0.get_mut(set)?;
        let tag = (hash >> 32) as u32 ^ (generation as u32).wrapping_mul(0x9e37_79b9);
        let own = ways.iter().position(|(other, _)| *other == tag);
        let fewest = || (0..WAYS).min_by_key(|way| (ways[*way].1, used(WAYS * set + way)));
        let way = own.or_else(fewest)?;
        let (candidate, count) = &mut ways[way];
        if *candidate != tag {
            (*candidate, *count) = (tag, 0);
        }
        *count += 1;
        if *count < AFTER {
            return None;
        }
        *count = 0;
        Some(WAYS * set + way)
    }
}

/// Flows of the programs at the ports, until something changes.
#[derive(Default)]
pub(super) struct Entered {
    /// Grows after each change that may matter to them: what port processors found out before it does not count.
    pub(super) generation: Arc<AtomicU64>,
    /// Held while a flow is entered, and while all are forgotten.
    entering: Mutex<()>,
}

impl Entered {
    /// Something has changed that may matter to them: the change has been told, or is in the tables.
    pub(super) fn forget(&self, shared: &Shared) {
        let _entering = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation.fetch_add(1, Ordering::Release);
        shared.clear_flows();
    }
    /// Enters a flow, unless something has changed since that was found out.
    pub(super) fn enter(&self, shared: &Shared, key: &FlowKey, to: &FlowTo, generation: u64) {
        let _entering = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        if generation == self.generation.load(Ordering::Acquire) {
            // Without memory for it, its packets take the slow path.
            let _ = shared.set_flow(key, to);
        }
    }
}

impl PortProcessor {
    /// What is known of a packet that has arrived, if its hint is true.
    pub(super) fn take_hint(&mut self, port: u16, one: &mut Work) {
        let hint = self.frames.take_hint(one.passing.frame);
        let place = (hint as usize).wrapping_sub(1);
        let Some(Some(known)) = self.known.get(place) else { return };
        let is_true = known.generation == self.generation
            && key(port, &one.passing.seen).is_some_and(|key| key == known.key);
        if !is_true {
            return;
        }
        (one.hop, one.pinned, one.plugin, one.flow) =
            (known.hop, known.pinned, known.plugin, known.flow);
        (one.hinted, one.plain, one.same) = (true, false, false);
        if let Some(flow) = known.flow {
            self.treatments[flow as usize].seen += 1;
        }
        Counters::add(&self.counts[usize::from(port)].hinted, 1);
    }

    /// Notes a flow after some packets: the fast path takes it over, or its packets come with a hint.
    pub(super) fn consider(&mut self, port: u16, one: &Work, neighbour: u32) {
        let Some(key) = one.same.then(|| key(port, &one.passing.seen)).flatten() else { return };
        let to = *self.hops.neighbour(neighbour);
        let out = &self.ports[usize::from(to.port)];
        let hop = match (one.plain && out.plain, to.macs) {
            (true, Some(macs)) if out.output.up => {
                Some(FlowHop { port: to.port.into(), mtu: out.mtu.into(), macs })
            }
            (true, _) => return,
            (false, _) => None,
        };
        let used = |place: usize| self.known.get(place).is_some_and(Option::is_some);
        let Some(place) = self.candidates.count(one.passing.hash, self.generation, used) else {
            return;
        };
        let generation = self.generation;
        let to = match hop {
            Some(hop) => FlowTo::Hop(hop),
            None => {
                let Work { hop, pinned, plugin, flow, .. } = *one;
                self.known[place] = Some(Known { key, generation, hop, pinned, plugin, flow });
                FlowTo::Socket(NonZeroU32::MIN.saturating_add(place as u32))
            }
        };
        self.tell(Event::Flow { key, to, generation });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_processor::hop::{FIRST, Next};
    use crate::port_processor::line::Line;
    use crate::port_processor::null::{self, Made, frame};
    use crate::port_processor::{Change, Setup};
    use lastmeter_base::Rate;
    use lastmeter_net::classify::{Action, Classifier, Filter, Rule, Verdict};
    use lastmeter_net::lookup::NextHop;
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::Ordering::Relaxed;

    const FLOW: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
    /// The next router of a rule; the route leads to [`null::NEXT`].
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 8));
    /// The last bytes of their Ethernet addresses.
    const BY_ROUTE: u8 = 9;
    const BY_RULE: u8 = 8;

    fn with_rule(verdict: Verdict) -> impl FnOnce(&mut Setup) {
        move |setup| {
            let mut classifier = Classifier::new(1);
            let rule = Rule { filter: Filter::all(), priority: 1, verdict };
            classifier.general.install(rule).expect("room");
            setup.rules = Some(classifier);
        }
    }
    fn by_rule() -> Verdict {
        Verdict { next_hop: NextHop::new(FIRST + 1), ..Verdict::of(Action::Permit) }
    }
    /// Packets to these addresses arrive again and again.
    fn made(to: &[Ipv4Addr], setup: impl FnOnce(&mut Setup)) -> Made {
        let arriving = to.iter().map(|to| frame(*to)).collect();
        let made = Made::with(&[([192, 0, 2, 0].into(), 24)], arriving, true, setup);
        let made = made.expect("there is memory");
        made.resolve().expect("it runs");
        let next = vec![Next { port: 1, address: Some(OTHER) }];
        made.change(Change::Hop(FIRST + 1, next)).expect("it runs");
        let mac = Some([2, 0, 0, 0, 0, BY_RULE]);
        made.change(Change::Neighbour(1, OTHER, mac)).expect("it runs");
        made
    }
    fn noted(made: &Made) -> Vec<(FlowKey, FlowTo, u64)> {
        let flows = made.events.try_iter().filter_map(|event| match event {
            Event::Flow { key, to, generation } => Some((key, to, generation)),
            _ => None,
        });
        flows.collect()
    }
    /// Packets of both kinds of a few batches, all with this hint: how many hints were true, and where the last went.
    fn passed(made: &mut Made, hint: u32) -> (u64, u8) {
        let Some(Line::Null(arriving)) = &mut made.processor.lines[0] else { panic!("a device") };
        arriving.hint = hint;
        let before = made.counts[0].hinted.load(Relaxed);
        for _ in 0..3 {
            let _ = made.processor.turn();
        }
        let Some(Line::Null(out)) = &made.processor.lines[1] else { panic!("a device") };
        let (mac, _) = *out.departed.last().expect("packets left");
        (made.counts[0].hinted.load(Relaxed) - before, mac)
    }

    #[test]
    fn a_true_hint_stands_for_rules_and_lookup_and_any_other_changes_nothing_d_94() {
        let mut made = made(&[FLOW], with_rule(by_rule()));
        assert_eq!(passed(&mut made, 0), (0, BY_RULE));
        let [(key, FlowTo::Socket(hint), 0), ..] = noted(&made)[..] else { panic!("noted") };
        assert_eq!((key.arrives, key.protocol, &key.addresses[4..]), (0, 17, &FLOW.octets()[..]));
        let hint = hint.get();
        // Without the rule, packets with the hint go as before, and others by their route.
        made.processor.rules = None;
        let (hinted, to) = passed(&mut made, hint);
        assert!(hinted > 64 && to == BY_RULE, "{hinted} {to}");
        for wrong in [0, hint - 1, hint + 1, PLACES as u32, PLACES as u32 + 1, u32::MAX] {
            assert_eq!(passed(&mut made, wrong), (0, BY_ROUTE), "{wrong}");
        }
        // Something has changed since.
        made.processor.generations.fetch_add(1, Relaxed);
        assert_eq!(passed(&mut made, hint), (0, BY_ROUTE));
    }

    #[test]
    fn flows_of_a_set_are_counted_side_by_side_d_94() {
        let mut candidates = Candidates::new(PLACES);
        let sets = (PLACES / WAYS) as u64;
        let hash = |flow: u64| 5 + (flow << 32) + flow * sets;
        let noted = |candidates: &mut Candidates, flows: &[u64], packets: u8| {
            let all = (0..packets).flat_map(|_| flows);
            let counted = all.map(|flow| (*flow, candidates.count(hash(*flow), 0, |_| false)));
            let noted = counted.filter_map(|(flow, place)| Some((flow, place?)));
            noted.collect::<BTreeMap<u64, usize>>()
        };
        assert!(noted(&mut candidates, &[1, 2, 3, 4], AFTER - 1).is_empty());
        let places = noted(&mut candidates, &[1, 2, 3, 4], 1);
        assert!(places.into_values().eq(20..24), "each has a place of its own");
        // Of more, some are noted; then their packets come no more, and there is room for the others.
        let some = noted(&mut candidates, &[5, 6, 7, 8, 9], AFTER);
        assert_eq!(some.len(), WAYS - 1);
        let others: Vec<u64> = (5..10).filter(|flow| !some.contains_key(flow)).collect();
        assert_eq!(noted(&mut candidates, &others, AFTER).len(), 2);
        // What was counted before a change does not count.
        let mut candidates = Candidates::new(PLACES);
        assert!(noted(&mut candidates, &[1], AFTER - 1).is_empty());
        assert_eq!(candidates.count(hash(1), 1, |_| false), None);
        // A place in use is left to its flow.
        for other in 1..=u64::from(AFTER) {
            let place = candidates.count(hash(9), 1, |place| place != 22);
            assert_eq!(place.is_some(), other == u64::from(AFTER));
            assert!(place.is_none_or(|place| place == 22));
        }
        // Places whose flows may have ended keep none from being noted.
        let mut candidates = Candidates::new(PLACES);
        let all = (0..AFTER).flat_map(|_| 1..=4);
        let places = all.filter_map(|flow| candidates.count(hash(flow), 0, |place| place != 23));
        assert_eq!(places.count(), 4);
    }

    #[test]
    fn a_hint_is_for_one_flow_at_one_port_and_until_the_next_setup_d_94() {
        let mut two = made(&[FLOW, Ipv4Addr::new(192, 0, 2, 8)], with_rule(by_rule()));
        let _ = passed(&mut two, 0);
        let notes = noted(&two);
        let of_flow = |to: Ipv4Addr| {
            let found = notes.iter().find(|(key, ..)| key.addresses[4..] == to.octets());
            let Some((_, FlowTo::Socket(hint), _)) = found else { panic!("{notes:?}") };
            hint.get()
        };
        let hint = of_flow(FLOW);
        assert_ne!(hint, of_flow(Ipv4Addr::new(192, 0, 2, 8)));
        let before = two.counts[0].received.load(Relaxed);
        let (hinted, _) = passed(&mut two, hint);
        let received = two.counts[0].received.load(Relaxed) - before;
        assert_eq!(hinted, received / 2, "every other packet is of that flow");
        // Without the rule it is not noted like that again.
        two.processor.rules = None;
        for known in two.processor.known.iter_mut().flatten() {
            known.key.arrives = 1;
        }
        assert_eq!(passed(&mut two, hint), (0, BY_ROUTE));
        let mut one = made(&[FLOW], with_rule(by_rule()));
        let _ = passed(&mut one, 0);
        assert!(one.processor.known.iter().any(Option::is_some));
        one.processor.set_up(null::setup());
        assert!(one.processor.known.iter().all(Option::is_none));
    }

    #[test]
    fn what_decides_about_a_flow_says_how_it_is_noted() {
        let to = |setup: Box<dyn FnOnce(&mut Setup)>| {
            let mut made = made(&[FLOW], setup);
            let _ = passed(&mut made, 0);
            noted(&made).first().map(|(_, to, _)| *to)
        };
        let Some(FlowTo::Hop(hop)) = to(Box::new(|_| ())) else { panic!("the fast path") };
        assert_eq!((hop.port, hop.macs[5], hop.mtu), (1, BY_ROUTE, 1500));
        // A line that is shaped.
        let shaped = |setup: &mut Setup| setup.ports[1].rate = Some(Rate::from_gbit(100));
        assert!(matches!(to(Box::new(shaped)), Some(FlowTo::Socket(_))));
        assert!(matches!(to(Box::new(with_rule(by_rule()))), Some(FlowTo::Socket(_))));
        // Each packet of it is copied.
        let copied = Verdict { copy: true, ..Verdict::PERMIT };
        assert_eq!(to(Box::new(with_rule(copied))), None);
    }
}
