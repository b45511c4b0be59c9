//! Rules against a linear scan, while they are added and removed.

use super::generate::{ACCESS_LIST, FIREWALL, IP_CHAIN, headers, rules};
use super::*;
use crate::lookup::{Concatenated, NextHop, Prefix};
use lastmeter_base::Stream;

/// Rules that are scanned linearly.
struct Linear<A = u32>(Vec<(u32, RuleId, Rule<A>)>);

impl<A> Default for Linear<A> {
    fn default() -> Linear<A> {
        Linear(Vec::new())
    }
}

impl<A: Address> Linear<A> {
    fn classify(&self, header: &Header<A>) -> Option<RuleId> {
        let matching = self.0.iter().filter(|(_, _, rule)| rule.filter.matches(header));
        matching.min_by_key(|(priority, id, _)| (*priority, *id)).map(|&(_, id, _)| id)
    }
}

fn agrees<A: Address>(general: &General<A>, linear: &Linear<A>, headers: &[Header<A>]) {
    let mut found = vec![None; headers.len()];
    general.classify_batch(headers, &mut found);
    for (header, found) in headers.iter().zip(found) {
        let rule = linear.classify(header);
        assert_eq!(found.map(|found: Match| found.rule), rule, "{header:x?}");
        let verdict = rule.and_then(|id| general.rule(id)).map(|rule| rule.verdict);
        assert_eq!(found.map(|found| found.verdict), verdict);
    }
}

#[test]
fn equals_a_linear_scan_on_three_kinds_of_sets_d_34() {
    for kind in [ACCESS_LIST, FIREWALL, IP_CHAIN] {
        let set = rules(&kind, 700, 1);
        assert!(set.len() > 600, "{} {}", kind.name, set.len());
        let (mut general, mut linear) = (General::<u32>::new(), Linear::default());
        for rule in &set {
            let id = general.install(rule.clone()).expect("there is room");
            linear.0.push((rule.priority, id, rule.clone()));
        }
        agrees(&general, &linear, &headers(&set, 3_000, 2));
    }
}

/// An address of IPv6 for one of IPv4, so that prefixes nest the same way; the bits between vary.
fn wide(prefix: Prefix<u32>) -> Prefix<u128> {
    let len = if prefix.len() > 16 { 16 + 7 * (prefix.len() - 16) } else { prefix.len() };
    Prefix::new(widened(prefix.key()), len).expect("at most 128")
}
/// Each of the last sixteen bits seven times.
fn widened(address: u32) -> u128 {
    let low = (0..16)
        .rev()
        .fold(0_u128, |bits, at| bits << 7 | if address >> at & 1 == 1 { 0x7f } else { 0 });
    u128::from(address >> 16) << 112 | low
}

#[test]
fn rules_of_ipv6_equal_a_linear_scan_while_they_come_and_go() {
    let mut random = Stream::new(1, "churn v6");
    let (mut general, mut linear) = (General::<u128>::new(), Linear::default());
    let set = [rules(&FIREWALL, 900, 3), rules(&ACCESS_LIST, 900, 3)].concat();
    let packets = headers(&set, 2_000, 4).into_iter().map(|header| {
        let (dst, src) = (widened(header.dst), widened(header.src));
        let Header { dst_port, src_port, protocol, interface, .. } = header;
        Header { dst, src, dst_port, src_port, protocol, interface }
    });
    let packets: Vec<Header<u128>> = packets.collect();
    let mut met = 0;
    for round in 0..4_000 {
        if random.chance(0.6) {
            let Rule { filter, verdict, .. } = &set[random.below(set.len() as u64) as usize];
            let (dst_ports, src_ports) = (filter.dst_ports.clone(), filter.src_ports.clone());
            let (protocol, interface) = (filter.protocol, filter.interface);
            let (dst, src) = (wide(filter.dst), wide(filter.src));
            let filter = Filter { dst, src, dst_ports, src_ports, protocol, interface };
            let rule = Rule { filter, verdict: *verdict, priority: random.below(50) as u32 };
            let id = general.install(rule.clone()).expect("there is room");
            linear.0.push((rule.priority, id, rule));
        } else if !linear.0.is_empty() {
            let (_, id, rule) = linear.0.swap_remove(random.below(linear.0.len() as u64) as usize);
            assert_eq!(general.remove(id), Some(rule));
        }
        if round % 250 == 249 {
            let from = random.below(packets.len() as u64 - 200) as usize;
            agrees(&general, &linear, &packets[from..from + 200]);
            met += packets[from..from + 200].iter().filter_map(|one| linear.classify(one)).count();
        }
    }
    assert!(met > 1000, "{met} of 3200 packets met a rule");
}

#[test]
#[ignore = "a minute: make test-long"]
fn equals_a_linear_scan_on_a_million_headers() {
    for kind in [ACCESS_LIST, FIREWALL, IP_CHAIN] {
        for count in [1_000, 10_000] {
            let set = rules(&kind, count, 1);
            let mut general = General::<u32>::new();
            let ids = set.iter().map(|rule| general.install(rule.clone()).expect("there is room"));
            let ids: Vec<RuleId> = ids.collect();
            let packets = headers(&set, 1_000_000, 2);
            let mut found = vec![None; 1_000];
            for packets in packets.chunks(1_000) {
                general.classify_batch(packets, &mut found);
                for (header, found) in packets.iter().zip(&found) {
                    // The rules are in order of priority.
                    let first = set.iter().position(|rule| rule.filter.matches(header));
                    assert_eq!(
                        found.map(|found| found.rule),
                        first.map(|at| ids[at]),
                        "{header:x?}"
                    );
                }
            }
        }
    }
}

#[test]
fn equals_a_linear_scan_while_rules_are_added_and_removed_d_37() {
    let mut random = Stream::new(1, "churn");
    let (mut general, mut linear) = (General::<u32>::new(), Linear::default());
    let set = [rules(&FIREWALL, 900, 3), rules(&ACCESS_LIST, 900, 3)].concat();
    let packets = headers(&set, 4_000, 4);
    for round in 0..5_000 {
        if random.chance(0.6) {
            let mut rule = set[random.below(set.len() as u64) as usize].clone();
            // Few priorities, so that many rules have the same.
            rule.priority = random.below(50) as u32;
            if random.chance(0.1) {
                rule.filter.interface = Some(random.below(3) as u16);
            }
            let id = general.install(rule.clone()).expect("there is room");
            linear.0.push((rule.priority, id, rule));
        } else if !linear.0.is_empty() {
            let (_, id, rule) = linear.0.swap_remove(random.below(linear.0.len() as u64) as usize);
            assert_eq!(general.remove(id), Some(rule));
            assert_eq!(general.remove(id), None);
        }
        if round % 250 == 0 {
            let from = random.below(packets.len() as u64 - 200) as usize;
            agrees(&general, &linear, &packets[from..from + 200]);
        }
    }
    while let Some((_, id, _)) = linear.0.pop() {
        general.remove(id).expect("it was installed");
        if linear.0.len() % 300 == 0 {
            agrees(&general, &linear, &packets[..100]);
        }
    }
    assert!(general.is_empty());
}

#[test]
fn equals_a_linear_scan_as_few_blocks_become_many_and_few_again() {
    let mut random = Stream::new(7, "order");
    for in_order in [true, false] {
        let mut set = rules(&IP_CHAIN, 2_300, 5);
        let packets = headers(&set, 200, 6);
        if !in_order {
            set.iter_mut().for_each(|rule| rule.priority = random.below(1 << 20) as u32);
        }
        let (mut general, mut linear) = (General::<u32>::new(), Linear::default());
        // The rules that go are those of the lowest precedence, at the end those of the highest.
        for (count, few) in [(900, true), (2_300, false), (400, true), (800, true), (60, true)] {
            while linear.0.len() != count {
                if linear.0.len() < count {
                    let rule = set[linear.0.len()].clone();
                    let id = general.install(rule.clone()).expect("there is room");
                    linear.0.push((rule.priority, id, rule));
                } else {
                    linear.0.sort_unstable_by_key(|&(priority, id, _)| (priority, id));
                    let at = if count == 60 { 0 } else { linear.0.len() - 1 };
                    general.remove(linear.0.remove(at).1).expect("it was installed");
                }
                if linear.0.len() % 30 == 0 {
                    agrees(&general, &linear, &packets);
                }
            }
            assert_eq!(general.store.ranks.few > 0, few, "{count} rules");
        }
    }
}

#[test]
fn the_lowest_priority_number_wins_then_the_first_installed() {
    let mut general = General::<u32>::new();
    let rule = |priority, queue| Rule {
        filter: Filter::all(),
        priority,
        verdict: Verdict::of(Action::Reserved { queue }),
    };
    let header = Header { dst: 1, src: 2, dst_port: 3, src_port: 4, protocol: 5, interface: 6 };
    let late = general.install(rule(7, 1)).expect("room");
    let first = general.install(rule(5, 2)).expect("room");
    let second = general.install(rule(5, 3)).expect("room");
    for (id, next) in [(first, Some(second)), (second, Some(late)), (late, None)] {
        assert_eq!(general.classify(&header).map(|found| found.rule), Some(id));
        general.remove(id);
        assert_eq!(general.classify(&header).map(|found| found.rule), next);
    }
}

#[test]
fn refuses_invalid_rules_and_rules_that_do_not_fit() {
    let mut general = General::<u32>::new();
    let rule = |filter| Rule { filter, priority: 0, verdict: Verdict::PERMIT };
    #[expect(clippy::reversed_empty_ranges, reason = "the test needs an invalid range")]
    let empty = Filter { dst_ports: 2..=1, ..Filter::all() };
    assert_eq!(general.install(rule(empty)), Err(Refusal::Ports));
    let far = Filter { interface: Some(INTERFACES_MAX), ..Filter::all() };
    assert_eq!(general.install(rule(far)), Err(Refusal::Interface(INTERFACES_MAX)));
    let installed = (0..).take_while(|_| general.install(rule(Filter::all())).is_ok()).count();
    assert_eq!((installed, general.len()), (bits::BLOCK * bits::BLOCKS_MAX, installed));
    assert_eq!(general.install(rule(Filter::all())), Err(Refusal::Full));
}

#[test]
fn a_verdict_carries_what_the_rule_says_d_29_to_d_33() {
    let mut classifier = Classifier::new(1);
    let header = Header { dst: 1, src: 2, dst_port: 3, src_port: 4, protocol: 17, interface: 0 };
    assert_eq!(classifier.classify(&header).action, Action::Permit);
    let concatenated = Concatenated::new(1, 2, 3, 4, 17);
    let longest = |len| Prefix::new(concatenated, len).expect("at most 104");
    let active = Verdict { copy: true, ..Verdict::of(Action::Active { instance: 4 }) };
    classifier.longest.insert(longest(0), Verdict::of(Action::Deny)).expect("room");
    classifier.longest.insert(longest(104), active).expect("room");
    assert_eq!(classifier.classify(&header), active);
    let other = Header { protocol: 6, ..header };
    assert_eq!(classifier.classify(&other).action, Action::Deny);
    let general = Rule {
        filter: Filter { protocol: Some(17), ..Filter::all() },
        priority: 1,
        verdict: Verdict::of(Action::Deny),
    };
    classifier.general.install(general).expect("room");
    assert_eq!(classifier.classify(&header).action, Action::Deny);
    let pinned = Verdict {
        action: Action::Reserved { queue: 3 },
        next_hop: NextHop::new(9),
        pinned: true,
        copy: false,
    };
    assert_eq!(classifier.flows.insert(header, pinned), Ok(None));
    assert_eq!(classifier.classify(&header), pinned);
    assert_eq!(classifier.longest.remove(longest(104)), Some(active));
    assert_eq!(classifier.flows.remove(&header), Some(pinned));
    assert_eq!(classifier.classify(&header).action, Action::Deny);
}
