//! From a configuration to what the port processor's thread runs: filters, flows, policies, plugins, queues.

use super::crossing::Crossing;
use super::label::Labels;
use super::parse::ETHERNET;
use super::plugin::Plugin;
use super::policy::{Policies, Table};
use super::reception::Reception;
use super::{PortProcessor, PortSetup, Setup, Slot, Treatment};
use crate::config::{Action, Config, Filter, Flow, Packets};
use crate::message::{Bound, BoundFlow};
use lastmeter_base::{Bytes, Time};
use lastmeter_lan::labels::reserved::Promise;
use lastmeter_linux::files;
use lastmeter_net::classify::text::Either;
use lastmeter_net::classify::{self, Classifier, Header, Rule, Verdict};
use lastmeter_net::lookup::NextHop;
use lastmeter_net::queue::{self, DropTail, Queue};
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::{Hash, Host, MODULE_LEN_MAX};
use lastmeter_plugin::setting::Setting;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// The default queue length of a port, in packets.
const QUEUE: u64 = 1000;
/// Limit on the size of a file of filters.
const RULES_LEN_MAX: usize = 64 << 20;

/// Running plugins: by name, their sources.
pub(super) type Running = BTreeMap<String, (Setting, Option<Hash>)>;

/// What is running.
pub(super) struct Current {
    pub(super) config: Config,
    pub(super) running: Running,
}

/// Where files are.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    /// The folder of the router's file.
    pub(super) folder: &'a Path,
    /// The folder of its sockets, where fetched modules are kept.
    pub(super) run: &'a Path,
}

/// Seconds that stages took.
pub(super) type Took = Vec<(String, f64)>;

/// Queues, filters and plugins of a port processor according to the file. Whatever is unchanged since `before` is kept.
pub(super) fn set_up(
    config: &Config,
    bound: &Bound,
    before: Option<&Current>,
    places: Places<'_>,
    (host, processor): (&Host, usize),
) -> Result<(Setup, Running, Took), String> {
    let mut took = Took::new();
    let (plugins, running) = plugins(config, before, places, host, &mut took)?;
    let began = Instant::now();
    let number = |name: &String| config.plugins.keys().position(|own| own == name).unwrap_or(0);
    let (treatments, promises) = treatments(config, bound, &number)?;
    let rules = rules(config, bound, places.folder, &treatments, &number)?;
    let policies = policies(config, bound)?;
    took.push(("rules".to_owned(), began.elapsed().as_secs_f64()));
    let ports = config.ports.iter().zip(promises).enumerate().map(|(at, (port, reserved))| {
        let old = before.map(|before| &before.config.ports[at]);
        let same = old.is_some_and(|old| {
            old.queue == port.queue && (old.rate, old.framing) == (port.rate, port.framing)
        });
        let mine = config.processors[processor].ports.contains(&(at as u16));
        let queue = || -> Box<dyn Queue> {
            let Some(nested) = &port.queue else {
                return Box::new(DropTail::new(QUEUE, Bytes(u64::MAX)));
            };
            let (rate, name) = (port.rate, port.name.as_str());
            // Packets in it have their Ethernet header.
            let framing = Bytes(port.framing.0.saturating_sub(ETHERNET as u64));
            queue::build(nested, &queue::Site { rate, name, framing, ..queue::Site::ANYWHERE })
        };
        PortSetup {
            queue: (mine && !same).then(queue),
            reserved,
            rate: port.rate,
            framing: port.framing,
            flows: port.flows,
            in_band: port.in_band,
            labels: port.labels,
            plugins: port.plugins.iter().map(number).collect(),
            departing: port.departing.iter().map(number).collect(),
        }
    });
    let ports = ports.collect();
    let treatments = treatments.into_iter().map(|(_, treatment)| treatment).collect();
    let receive = config.receive;
    Ok((Setup { rules, treatments, policies, receive, plugins, ports }, running, took))
}

fn plugins(
    config: &Config,
    before: Option<&Current>,
    Places { folder, run }: Places<'_>,
    host: &Host,
    took: &mut Took,
) -> Result<(Vec<Slot>, Running), String> {
    let (mut plugins, mut running) = (Vec::new(), Running::new());
    for (name, setting) in &config.plugins {
        let place = |why: String| format!("plugins.{name}: {why}");
        let folder = if config.remotes.contains_key(name) { run } else { folder };
        let module = setting.module.as_ref();
        let module = module.map(|file| files::read(&folder.join(file), MODULE_LEN_MAX));
        let module = module.transpose().map_err(place)?;
        let made_from = (setting.clone(), module.as_deref().map(Hash::of));
        let same = before.is_some_and(|before| before.running.get(name) == Some(&made_from));
        plugins.push(match same {
            true => Slot::Keep(name.clone()),
            false => {
                let began = Instant::now();
                let read = |_: &str| Ok(module.clone().unwrap_or_default());
                let program = setting.program(host, Kind::Packet, 1, Time::START, &read);
                let program = program.map_err(place)?;
                took.push((format!("instantiate {name}"), began.elapsed().as_secs_f64()));
                Slot::New(Box::new(Plugin::new(program)))
            }
        });
        running.insert(name.clone(), made_from);
    }
    Ok((plugins, running))
}

/// An admitted flow's part of the file, its rules, and its treatment's name.
type Treated<'a> = Vec<((&'a Flow, &'a BoundFlow), Treatment)>;

/// What the packets of each admitted flow get, and what each port has promised.
fn treatments<'a>(
    config: &'a Config,
    bound: &'a Bound,
    number: &dyn Fn(&String) -> usize,
) -> Result<(Treated<'a>, Vec<Vec<Promise>>), String> {
    let mut promises: Vec<Vec<Promise>> = config.ports.iter().map(|_| Vec::new()).collect();
    let mut all = Treated::new();
    for one in &bound.flows {
        let flow = config.flows.iter().find(|flow| flow.name == one.name);
        let flow = flow.ok_or_else(|| format!("flows.{}: it is not in the file", one.name))?;
        let reserved = match (one.reserved, flow.rate) {
            (Some(port), Some(rate)) => {
                let own = promises.get_mut(usize::from(port));
                let own = own.ok_or_else(|| format!("flows.{}: no port {port}", one.name))?;
                let (flow, packets) = (flow.name.clone(), flow.queue);
                own.push(Promise { flow, rate, packets });
                Some((port, own.len() as u32 - 1))
            }
            _ => None,
        };
        let functions = flow.functions.iter().map(number).collect();
        let name = flow.name.clone();
        let labels = Labels { arrives: flow.label.zip(flow.from), next: one.label, hop: one.hop };
        all.push(((flow, one), Treatment { name, reserved, functions, labels, seen: 0 }));
    }
    Ok((all, promises))
}

/// The verdict for packets with a treatment, or an action, and a hop of their own.
fn verdict(action: classify::Action, hop: u32, pinned: bool, copy: bool) -> Verdict {
    Verdict { next_hop: NextHop::new(hop), pinned: pinned && hop != 0, copy, ..Verdict::of(action) }
}

/// The flow table's key, if a filter leaves nothing open.
fn exact(filter: &classify::Filter) -> Option<Header> {
    let one = |ports: &std::ops::RangeInclusive<u16>| {
        (ports.start() == ports.end()).then_some(*ports.start())
    };
    let whole = filter.dst.len() == 32 && filter.src.len() == 32;
    Some(Header {
        dst: whole.then_some(filter.dst.key())?,
        src: filter.src.key(),
        dst_port: one(&filter.dst_ports)?,
        src_port: one(&filter.src_ports)?,
        protocol: filter.protocol?,
        interface: filter.interface?,
    })
}

fn rules(
    config: &Config,
    bound: &Bound,
    folder: &Path,
    treatments: &Treated<'_>,
    number: &dyn Fn(&String) -> usize,
) -> Result<Option<Classifier>, String> {
    let mut classifier = Classifier::new(seed());
    let (mut any, mut priority) = (false, 0);
    let mut install = |classifier: &mut Classifier, filter, verdict| {
        (any, priority) = (true, priority + 1);
        let installed = match filter {
            Either::V4(filter) => classifier.general.install(Rule { filter, priority, verdict }),
            Either::V6(filter) => classifier.general_v6.install(Rule { filter, priority, verdict }),
        };
        installed.map(drop).map_err(|refusal| format!("filters: {refusal}"))
    };
    let mut exact_flows = false;
    for (queue, ((flow, one), _)) in treatments.iter().enumerate() {
        // Its packets are told by their label.
        if flow.label.is_some() {
            continue;
        }
        let action = classify::Action::Reserved { queue: queue as u32 };
        let own = flow.via.is_some() || !flow.route.is_empty() || flow.rsvp.is_some();
        let pinned = flow.pinned || own;
        let verdict = verdict(action, one.hop, pinned, flow.copy);
        let filter = classify::Filter { interface: one.from, ..flow.packets.clone() };
        match exact(&filter) {
            Some(header) => {
                exact_flows = true;
                classifier.flows.insert(header, verdict).map_err(|_| "too many flows")?;
            }
            None => install(&mut classifier, Either::V4(filter), verdict)?,
        }
    }
    let mut longest = false;
    for (at, Filter { packets, action, copy, .. }) in config.filters.iter().enumerate() {
        let hop = bound.filters.get(at).copied().unwrap_or(0);
        let flow = |name: &str| treatments.iter().position(|((flow, _), _)| flow.name == *name);
        let verdict = match action {
            Action::Deny => Verdict { copy: *copy, ..Verdict::of(classify::Action::Deny) },
            Action::Permit => verdict(classify::Action::Permit, hop, false, *copy),
            Action::Plugin(name) => {
                let action = classify::Action::Active { instance: number(name) as u32 };
                verdict(action, hop, false, *copy)
            }
            Action::Flow(name) => match flow(name) {
                Some(queue) => {
                    let ((flow, one), _) = &treatments[queue];
                    let action = classify::Action::Reserved { queue: queue as u32 };
                    let hop = if hop == 0 { one.hop } else { hop };
                    verdict(action, hop, flow.pinned, *copy || flow.copy)
                }
                // Not admitted yet: as any other packet.
                None => verdict(classify::Action::Permit, hop, false, *copy),
            },
        };
        match packets {
            Packets::General(filter) => {
                install(&mut classifier, Either::V4(filter.clone()), verdict)?;
            }
            Packets::GeneralV6(filter) => {
                install(&mut classifier, Either::V6(filter.clone()), verdict)?;
            }
            Packets::Longest(prefix) => {
                longest = true;
                let inserted = classifier.longest.insert(*prefix, verdict);
                inserted.map_err(|full| format!("filters: {full}"))?;
            }
        }
    }
    if let Some(file) = &config.rules {
        let text = files::read(&folder.join(file), RULES_LEN_MAX)?;
        let text = String::from_utf8(text).map_err(|error| format!("{file}: {error}"))?;
        let filters =
            classify::text::parse_any(&text).map_err(|error| format!("{file}: {error}"))?;
        for filter in filters {
            install(&mut classifier, filter, Verdict::PERMIT)?;
        }
    }
    Ok((any || exact_flows || longest).then_some(classifier))
}

/// What selects the hash of the flow table: senders of packets must not know it.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

fn policies(config: &Config, bound: &Bound) -> Result<Policies, String> {
    // Until the control processor has said what they mean, none applies.
    if bound.policies.len() != config.policies.len() {
        return Ok(Policies::default());
    }
    let tables = bound.tables.iter().map(|routes| Table::new(routes));
    Ok(Policies {
        rules: config.policies.iter().copied().zip(bound.policies.iter().copied()).collect(),
        tables: tables.collect::<Result<_, _>>()?,
    })
}

impl PortProcessor {
    /// From now on packets go this way.
    pub(super) fn set_up(&mut self, setup: Setup) {
        let now = self.now();
        self.setups += 1;
        (self.rules, self.policies) = (setup.rules, setup.policies);
        if setup.receive != self.reception.receive {
            self.reception = Reception::new(setup.receive, self.ports.len());
        }
        let old = std::mem::replace(&mut self.treatments, setup.treatments);
        for flow in old {
            let same = self.treatments.iter_mut().find(|new| new.name == flow.name);
            if let Some(same) = same {
                same.seen = flow.seen;
            }
        }
        let arrives = |(at, own): (usize, &Treatment)| Some((own.labels.arrives?.0, at as u32));
        self.labels = self.treatments.iter().enumerate().filter_map(arrives).collect();
        self.labels.sort_unstable();
        // Reservations and plugins have other numbers now.
        self.known.fill(None);
        self.held.iter_mut().for_each(|held| held.going.reserved = None);
        let mut old: Vec<Plugin> = std::mem::take(&mut self.plugins);
        for slot in setup.plugins {
            let plugin = match slot {
                Slot::New(plugin) => Some(*plugin),
                Slot::Keep(name) => {
                    let at = old.iter().position(|plugin| plugin.name == name);
                    at.map(|at| old.swap_remove(at))
                }
            };
            self.plugins.push(plugin.expect("what is kept was there"));
        }
        for (at, new) in setup.ports.into_iter().enumerate().take(self.ports.len()) {
            let port = &mut self.ports[at];
            if let Some(queue) = new.queue {
                let (frames, count) = (&mut self.frames, &self.counts[at]);
                port.output.set_queue(now, queue, &mut self.pool, frames, count);
            }
            // What the fast path sends would pass by the queues of reservations.
            port.plain = new.rate.is_none() && new.departing.is_empty() && new.reserved.is_empty();
            (port.flows, port.plugins, port.departing) = (new.flows, new.plugins, new.departing);
            (port.in_band, port.labels) = (new.in_band, new.labels);
            if let Some(Crossing { distributed: Some(distributed), .. }) = &mut self.crossing {
                distributed.set_line(at, new.rate, new.framing);
            }
            // The line of another port processor.
            if self.lines[at].is_none() {
                continue;
            }
            let (frames, count) = (&mut self.frames, &self.counts[at]);
            port.output.set_reserved(now, new.reserved, &mut self.pool, frames, count);
            port.output.set_line(new.rate, new.framing);
        }
    }
}
