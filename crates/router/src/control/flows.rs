//! Flows of a running router: what they ask for is looked up, admitted, and told to the port processor; they are
//! reserved, refreshed and released at run time, and expire.
//!
//! ```text
//! flow --> routes: where from, where to --> admission at both ports --> hop, rule --> port processor
//!                                             | refused: as before        ^
//! next node of its route <-- reserve, refresh, release ------------------+   refused there: released here
//! ```
//!
//! Rows: D-44, D-45, D-46, D-47.

use super::routes::reach;
use super::{Control, LOOKS, State};
use crate::admission::Admission;
use crate::config::{Config, Flow, PolicyTo};
use crate::message::{Bound, BoundFlow, Command};
use crate::mpls;
use crate::port_processor::hop::{BLACKHOLE, FIRST, Next, connected};
use crate::rsvp::machine;
use lastmeter_base::Duration;
use lastmeter_lab::document::join;
use lastmeter_linux::control;
use lastmeter_net::lookup::Prefix;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

/// Which flows have to get what they ask for: one that has to and does not is an error, others are left out, and looked
/// at again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strict<'a> {
    /// None.
    No,
    /// No port may refuse those that do not wait already.
    Admission,
    /// As before, and this one gets all, its route too.
    This(&'a str),
}

/// What flows, filters and policies of a configuration mean.
pub(super) struct Resolved {
    pub(super) bound: Bound,
    admission: Admission,
    /// Numbers that stay in use for them.
    pub(super) hops: Vec<u32>,
    refused: BTreeMap<String, String>,
}

impl State {
    /// Looks up where flows, filters and policies lead, and admits the flows. New numbers of hops are appended to
    /// `commands`.
    pub(super) fn resolve(
        &mut self,
        config: &Config,
        strict: Strict<'_>,
        commands: &mut Vec<Command>,
    ) -> Result<Resolved, String> {
        let ports = config.ports.iter().zip(&self.found);
        let ports = ports
            .map(|(port, found)| (port.name.as_str(), port.rate.or(found.line), port.reservable));
        let mut resolved = Resolved {
            bound: Bound::default(),
            admission: Admission::new(ports),
            hops: Vec::new(),
            refused: BTreeMap::new(),
        };
        match self.bind(config, strict, &mut resolved, commands) {
            Ok(()) => Ok(resolved),
            Err(why) => {
                resolved.hops.iter().for_each(|hop| self.rib.release(*hop));
                Err(why)
            }
        }
    }

    fn bind(
        &mut self,
        config: &Config,
        strict: Strict<'_>,
        resolved: &mut Resolved,
        commands: &mut Vec<Command>,
    ) -> Result<(), String> {
        let via = |state: &mut State, via: IpAddr, hops: &mut Vec<u32>, out: &mut Vec<Command>| {
            let number = state.rib.number(vec![reach(&state.attached, via)?], out);
            hops.push(number);
            Ok::<u32, String>(number)
        };
        let hops = &mut resolved.hops;
        for filter in &config.filters {
            let number = match filter.via {
                None => 0,
                Some(to) => {
                    via(self, to, hops, commands).map_err(|why| format!("filters.via: {why}"))?
                }
            };
            resolved.bound.filters.push(number);
        }
        for policy in &config.policies {
            let number = match policy.to {
                PolicyTo::Table(_) => 0,
                PolicyTo::Via(to) => {
                    via(self, to, hops, commands).map_err(|why| format!("policies.via: {why}"))?
                }
            };
            resolved.bound.policies.push(number);
        }
        for table in &config.tables {
            let mut routes = Vec::new();
            for route in config.routes.iter().filter(|route| route.table.as_ref() == Some(table)) {
                let number = match route.via {
                    None => BLACKHOLE,
                    Some(to) => {
                        via(self, to, hops, commands).map_err(|why| format!("routes.via: {why}"))?
                    }
                };
                routes.push((route.prefix, route.len, number));
            }
            resolved.bound.tables.push(routes);
        }
        self.bind_flows(config, strict, resolved, commands)
    }

    fn bind_flows(
        &mut self,
        config: &Config,
        strict: Strict<'_>,
        resolved: &mut Resolved,
        commands: &mut Vec<Command>,
    ) -> Result<(), String> {
        if config.flows.is_empty() {
            return Ok(());
        }
        // Who has a reservation keeps it when another asks for one.
        let has = |flow: &&Flow| !self.bound.flows.iter().any(|bound| bound.name == flow.name);
        let mut flows: Vec<&Flow> = config.flows.iter().collect();
        flows.sort_by_key(has);
        let address = |prefix: Prefix<u32>| IpAddr::from(prefix.key().to_be_bytes());
        let ends = flows.iter().flat_map(|flow| {
            let [src, dst] = [flow.packets.src, flow.packets.dst].map(address);
            [src, flow.rsvp.map_or(dst, IpAddr::V4)]
        });
        let link = self.link.as_mut().ok_or("the port processor is being started")?;
        let found = link.lookup(ends.collect())?;
        for (flow, ends) in flows.into_iter().zip(found.chunks_exact(2)) {
            let key = join("flows", &flow.name);
            let this = strict == Strict::This(&flow.name);
            let waits = self.refused.contains_key(&flow.name);
            let ways = self.ways(config, flow, ends[0], ends[1]);
            let (input, next) = match ways {
                Ok(ways) => ways,
                Err(why) if this => return Err(format!("{key}: {why}")),
                Err(why) => {
                    resolved.refused.insert(flow.name.clone(), why);
                    continue;
                }
            };
            let output = next.port();
            if let Some(rate) = flow.rate {
                let admitted = resolved.admission.admit(&flow.name, input, output, rate);
                match admitted {
                    Ok(()) => {}
                    Err(refusal) if this || (strict != Strict::No && !waits) => {
                        return Err(format!("{key}: {refusal}"));
                    }
                    Err(refusal) => {
                        resolved.refused.insert(flow.name.clone(), refusal.to_string());
                        continue;
                    }
                }
            }
            let hop = match next {
                Way::Table(_) | Way::Popped => 0,
                Way::OnLink(port) => connected(port),
                Way::Own(next) => {
                    let number = self.rib.number(vec![next], commands);
                    resolved.hops.push(number);
                    number
                }
            };
            resolved.bound.flows.push(BoundFlow {
                name: flow.name.clone(),
                from: flow.rate.map_or(flow.from, |_| input),
                reserved: flow.rate.and(output),
                hop,
                label: self.next_label(flow),
            });
        }
        resolved.bound.flows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    /// The port where a flow's packets arrive, and their way from here; `source` and `destination` are the hops of its
    /// two ends.
    fn ways(
        &self,
        config: &Config,
        flow: &Flow,
        source: u32,
        destination: u32,
    ) -> Result<(Option<u16>, Way), String> {
        let members = |hop: u32| self.members(config.ports.len() as u16, hop);
        if flow.label.is_some() {
            let way = match flow.via {
                Some(via) => Way::Own(reach(&self.attached, via)?),
                None => Way::Popped,
            };
            return Ok((flow.from, way));
        }
        let input = flow.from.or_else(|| members(source).first().map(|next| next.port));
        if input.is_none() && flow.rate.is_some() {
            return Err(
                "no route leads to its source: say where it arrives, from = \"PORT\"".into()
            );
        }
        if let Some(machine::State::Up(port, next, _)) = self.tunnels.get(&flow.name) {
            return Ok((input, Way::Own(Next { port: *port, address: Some((*next).into()) })));
        }
        let node = flow.route.first().and_then(|node| config.nodes.get(node));
        if let Some(via) = flow.via.or(node.map(|node| node.address)) {
            return Ok((input, Way::Own(reach(&self.attached, via)?)));
        }
        let to = members(destination);
        let Some(first) = to.first() else {
            return Err(match flow.rsvp {
                Some(end) => format!("no route leads to {end}"),
                None => "no route leads to its destination".into(),
            });
        };
        // Of several next routers its packets may take only the one where it is admitted.
        let fixed = flow.pinned || (flow.rate.is_some() && to.len() > 1);
        if let (Some(end), None) = (flow.rsvp, first.address) {
            return Ok((input, Way::Own(Next { port: first.port, address: Some(end.into()) })));
        }
        let fixed = fixed || flow.rsvp.is_some();
        Ok((
            input,
            match (fixed, first.address) {
                (false, _) => Way::Table(first.port),
                (true, None) => Way::OnLink(first.port),
                (true, Some(_)) => Way::Own(*first),
            },
        ))
    }

    /// The next routers of a hop of a router with so many ports.
    pub(super) fn members(&self, ports: u16, hop: u32) -> Vec<Next> {
        match hop {
            1.. if hop < connected(ports) => vec![Next { port: (hop - 1) as u16, address: None }],
            FIRST.. => self.rib.describe(hop).unwrap_or(&[]).to_vec(),
            _ => Vec::new(),
        }
    }

    /// The label with which packets of a flow leave.
    fn next_label(&self, flow: &Flow) -> Option<u32> {
        let told = match self.tunnels.get(&flow.name) {
            Some(machine::State::Up(.., label)) => Some(*label),
            _ => flow.next_label,
        };
        told.filter(|label| *label != mpls::NONE)
    }

    /// What has been resolved is in effect.
    pub(super) fn keep(&mut self, resolved: Resolved) {
        let old = std::mem::replace(&mut self.hops, resolved.hops);
        old.iter().for_each(|hop| self.rib.release(*hop));
        (self.bound, self.admission) = (resolved.bound, resolved.admission);
        self.refused = resolved.refused;
    }

    /// Flows of a new configuration get their time; those that have not changed keep what is left.
    pub(super) fn time(&mut self, config: &Config) {
        let now = Instant::now();
        let mut until = BTreeMap::new();
        for flow in &config.flows {
            let Some(ttl) = flow.ttl else { continue };
            let same = self.config.flows.contains(flow);
            let kept = self.until.get(&flow.name).filter(|_| same).copied();
            until.insert(flow.name.clone(), kept.unwrap_or(now + real(ttl)));
        }
        self.until = until;
    }
}

/// A flow's way.
enum Way {
    /// As the routing table says; now out of this port.
    Table(u16),
    /// To a neighbour on this port.
    OnLink(u16),
    /// To a next router of its own.
    Own(Next),
    /// Its packets lose their label here, and go on as any others.
    Popped,
}

impl Way {
    fn port(&self) -> Option<u16> {
        match self {
            Way::Table(port) | Way::OnLink(port) => Some(*port),
            Way::Own(next) => Some(next.port),
            Way::Popped => None,
        }
    }
}

fn real(time: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(time.as_ps() / 1000)
}

impl Control {
    /// Commands about flows; `None` if it is another.
    pub(super) fn answer_flows(&self, question: &Value) -> Option<Result<Value, String>> {
        if let Some(name) = question["reserve"].as_str() {
            return Some(self.reserve(name, question, true));
        }
        if let Some(name) = question["refresh"].as_str() {
            return Some(self.refresh(name));
        }
        let name = question["release"].as_str()?;
        Some(self.release(name))
    }

    /// Adds a flow, or refreshes one that is the same; and where its route names further nodes that take reservations,
    /// there, too. What a packet asked for (not `by_hand`) is no change that `rollback` takes back.
    pub(super) fn reserve(
        &self,
        name: &str,
        question: &Value,
        by_hand: bool,
    ) -> Result<Value, String> {
        let given = |key: &str| {
            let value = toml::Value::try_from(&question[key]);
            value.map_err(|error| format!("`{key}`: {error}"))
        };
        let flow = given("flow")?;
        let changing = self.alone();
        let mut table: toml::Table =
            self.lock().text.parse().map_err(|error| format!("{error}"))?;
        let mut add = |list: &str, name: &str, value: toml::Value| {
            let all = table.entry(list).or_insert(toml::Value::Table(toml::Table::new()));
            all.as_table_mut().map(|all| all.insert(name.to_owned(), value))
        };
        let old = add("flows", name, flow.clone()).flatten();
        if old.as_ref() == Some(&flow) {
            drop(changing);
            return self.refresh(name);
        }
        if !question["plugins"].is_null() {
            let plugins = given("plugins")?;
            for (name, plugin) in plugins.as_table().ok_or("`plugins`: not a table")? {
                add("plugins", name, plugin.clone());
            }
        }
        let text = toml::to_string(&table).map_err(|error| error.to_string())?;
        let began = Instant::now();
        let took = self.configure(text, Strict::This(name))?;
        let mut told = {
            let mut state = self.lock();
            if !by_hand {
                state.history.pop();
            }
            state.granted(name)
        };
        let mut stages: Vec<Value> = took
            .into_iter()
            .map(|(stage, seconds)| json!({ "stage": stage, "seconds": seconds }))
            .collect();
        // The next node may ask us in turn.
        drop(changing);
        let mut ask = question.clone();
        let further = self.signalled(name).or_else(|| self.next_node(name, &mut ask));
        match further {
            None => {}
            Some(Ok((node, theirs))) => {
                let stage = theirs["stage"].as_str().map_or(format!("node {node}"), str::to_owned);
                stages.push(json!({ "stage": stage, "seconds": theirs["seconds"] }));
                if theirs["stage"].is_null() {
                    told["then"] = theirs;
                } else {
                    told = self.lock().granted(name);
                }
            }
            Some(Err(why)) => {
                let _changing = self.alone();
                self.withdraw(name, old)?;
                let shown = json!({ "flow": name, "why": why });
                self.audit("reserve refused", &shown);
                return Err(format!("{why}; what this router had granted was taken back"));
            }
        }
        told["stages"] = json!(stages);
        told["seconds"] = json!(began.elapsed().as_secs_f64());
        self.audit("reserve", &json!({ "flow": name, "granted": told }));
        Ok(told)
    }

    /// Asks the first node of a flow's route, if it takes reservations, about the rest of the route; its name and its
    /// answer.
    fn next_node(
        &self,
        name: &str,
        question: &mut Value,
    ) -> Option<Result<(String, Value), String>> {
        let (node, socket, rest) = {
            let state = self.lock();
            let flow = state.config.flows.iter().find(|flow| flow.name == name)?;
            // Those further on are asked by RSVP.
            if flow.rsvp.is_some() {
                return None;
            }
            let (node, rest) = flow.route.split_first()?;
            let socket = state.config.nodes.get(node)?.control.clone()?;
            (node.clone(), socket, rest.to_vec())
        };
        if let Some(flow) = question["flow"].as_object_mut() {
            // Where it arrives there is for that node to find out; its functions are called once, here.
            ["from", "via", "functions"].iter().for_each(|key| drop(flow.remove(*key)));
            flow.insert("route".to_owned(), json!(rest));
        }
        if let Some(whole) = question.as_object_mut() {
            whole.remove("plugins");
        }
        let answer = control::ask(&self.folder.join(Path::new(&socket)), question);
        Some(answer.map(|told| (node.clone(), told)).map_err(|why| format!("node {node}: {why}")))
    }

    /// A flow lasts as long again as it was set up for.
    fn refresh(&self, name: &str) -> Result<Value, String> {
        let left = {
            let mut state = self.lock();
            let flow = state.config.flows.iter().find(|flow| flow.name == name);
            let flow = flow.ok_or_else(|| format!("there is no flow {name:?}"))?;
            let left = flow.ttl.map(real);
            let until = left.map(|left| (name.to_owned(), Instant::now() + left));
            state.until.extend(until);
            left
        };
        if let Some(Err(why)) = self.next_node(name, &mut json!({ "refresh": name })) {
            return Err(why);
        }
        Ok(json!({ "refreshed": name, "seconds-left": left.map(|left| left.as_secs_f64()) }))
    }

    fn release(&self, name: &str) -> Result<Value, String> {
        // Asked first: afterwards nobody knows its route.
        let then = self.next_node(name, &mut json!({ "release": name }));
        let _changing = self.alone();
        let text = self.without(&[name])?;
        self.configure(text, Strict::No)?;
        self.audit("release", &json!(name));
        let then = then.map(|told| told.map_or_else(|why| json!(why), |(node, _)| json!(node)));
        Ok(json!({ "released": name, "then": then }))
    }

    /// The running configuration without these flows, and without plugins that were added for them alone.
    pub(super) fn without(&self, names: &[&str]) -> Result<String, String> {
        let mut table: toml::Table =
            self.lock().text.parse().map_err(|error| format!("{error}"))?;
        let flows = table.get_mut("flows").and_then(toml::Value::as_table_mut);
        let flows = flows.ok_or("there are no flows")?;
        for name in names {
            flows.remove(*name).ok_or_else(|| format!("there is no flow {name:?}"))?;
        }
        if let Some(plugins) = table.get_mut("plugins").and_then(toml::Value::as_table_mut) {
            let own = |plugin: &str| names.iter().any(|name| is_of(plugin, name));
            plugins.retain(|plugin, _| !own(plugin));
        }
        toml::to_string(&table).map_err(|error| error.to_string())
    }

    /// Takes back the reservation that was just made, as if it had not been asked for: the flow is what it was before.
    fn withdraw(&self, name: &str, before: Option<toml::Value>) -> Result<(), String> {
        let text = match before {
            None => self.without(&[name])?,
            Some(flow) => {
                let mut table: toml::Table =
                    self.lock().text.parse().map_err(|error| format!("{error}"))?;
                let flows = table.get_mut("flows").and_then(toml::Value::as_table_mut);
                flows.ok_or("there are no flows")?.insert(name.to_owned(), flow);
                toml::to_string(&table).map_err(|error| error.to_string())?
            }
        };
        self.configure(text, Strict::No)?;
        let mut state = self.lock();
        let len = state.history.len().saturating_sub(2);
        state.history.truncate(len);
        Ok(())
    }

    /// Ends flows that nobody has refreshed.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        if self.lock().until.values().all(|until| *until > now) {
            return;
        }
        let _changing = self.alone();
        let due: Vec<String> = {
            let state = self.lock();
            let due = state.until.iter().filter(|(_, until)| **until <= now);
            due.map(|(name, _)| name.clone()).collect()
        };
        let names: Vec<&str> = due.iter().map(String::as_str).collect();
        let ended = self.without(&names).and_then(|text| self.configure(text, Strict::No));
        match ended {
            Ok(_) => {
                // A flow that ended by itself is no change to be taken back.
                self.lock().history.pop();
                self.audit("expire", &json!(due));
            }
            Err(why) => {
                let later = due.iter().map(|name| (name.clone(), now + LOOKS));
                self.lock().until.extend(later);
                self.audit("expire", &json!({ "flows": due, "wrong": why }));
            }
        }
    }

    /// Looks whether routes have changed under flows, or flows can be admitted now that could not before.
    pub(super) fn look_again(&self) {
        let _changing = self.alone();
        let mut state = self.lock();
        if state.config.flows.is_empty() || state.link.is_none() {
            return;
        }
        let (config, mut commands) = (state.config.clone(), Vec::new());
        let Ok(resolved) = state.resolve(&config, Strict::No, &mut commands) else { return };
        if resolved.bound == state.bound && resolved.refused == state.refused {
            resolved.hops.iter().for_each(|hop| state.rib.release(*hop));
            return;
        }
        let (text, bound) = (state.text.clone(), resolved.bound.clone());
        let told: Vec<&String> = bound.flows.iter().map(|flow| &flow.name).collect();
        let shown = json!({ "admitted": told, "refused": resolved.refused });
        commands.push(Command::Configure { text, bound });
        let link = state.link.as_mut();
        match link.map(|link| link.order(&commands)) {
            Some(Ok(())) => {
                state.keep(resolved);
                self.audit("flows", &shown);
            }
            Some(Err(why)) => {
                resolved.hops.iter().for_each(|hop| state.rib.release(*hop));
                self.audit("flows", &json!({ "wrong": why }));
            }
            None => {}
        }
    }
}

/// Whether a plugin was added for this flow alone, by its name.
fn is_of(plugin: &str, flow: &str) -> bool {
    plugin.strip_prefix(flow).is_some_and(|rest| rest.starts_with("--"))
}
