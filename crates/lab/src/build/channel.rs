//! Real-time channels: established before the run, link by link, or refused with the reason if a link cannot
//! guarantee the requested delay (E-15 to E-26).
//!
//! ```text
//! traffic, in the order of the file --> admission at each link of its route --> delay bounds for queues
//!                                              |
//!                                              '-- or the error, reported at the traffic
//! ```
//!
//! What-ifs do not repeat admission: faster links keep the same bounds.

use super::Builder;
use super::host::Paths;
use crate::document::Fault;
use crate::experiment::Traffic;
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Duration, FlowId, Rate};
use lastmeter_engine::site::{Router, own};
use lastmeter_net::queue::{self, Edd, Promise};
use lastmeter_transport::channel::admission::Method;
use lastmeter_transport::channel::admission::route::{self, Admission, Refusal};
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::kind;
use std::collections::BTreeMap;

/// The guarantees given by links so far.
#[derive(Default)]
struct Links {
    /// The index of each hop's admission control.
    known: BTreeMap<usize, usize>,
    all: Vec<Admission>,
}

/// A request for a channel.
struct Asking {
    contract: Contract,
    /// The hops from source to destination.
    hops: Vec<usize>,
    /// The parts of the deadline spent in the sending and in the receiving host.
    hosts: (Duration, Duration),
}

impl Builder<'_, '_> {
    /// Establishes every channel, or reports why it cannot be.
    pub(super) fn establish(&mut self, paths: &[Paths]) {
        let flows = self.flows;
        let mut links = Links::default();
        for (index, flow) in flows.all.iter().enumerate() {
            let entry = &self.experiment.traffic[flow.traffic];
            if !kind::is(&entry.kind) {
                continue;
            }
            let bounds = self.asking(index).and_then(|asking| {
                let bounds = match entry.kind.values.get("promised") {
                    true => self.promised(&mut links, &asking)?,
                    false => self.equal_parts(&asking),
                };
                Ok((asking, bounds))
            });
            match bounds {
                Ok((asking, bounds)) => {
                    let of = (index, paths[flow.traffic].there, FlowId(flow.number));
                    self.promise(of, &asking, &bounds);
                }
                Err(fault) => self.reporter.report(&entry.kind_mark, &entry.key, fault),
            }
        }
    }

    fn asking(&self, flow: usize) -> Result<Asking, Fault> {
        let flow = &self.flows.all[flow];
        let Traffic { kind: Nested { values, .. }, values: common, .. } =
            &self.experiment.traffic[flow.traffic];
        let deadline = common.given::<Duration>("deadline").ok_or_else(|| {
            let right = "state when its messages are due: deadline = \"20 ms\"";
            Fault::new("a channel needs a deadline", right)
        })?;
        let contract = kind::contract(values, deadline);
        contract
            .check()
            .map_err(|flaw| Fault::new(flaw.to_string(), "declare a consistent contract"))?;
        let hosts: (Duration, Duration) = (values.get("sender"), values.get("receiver"));
        if hosts.0 + hosts.1 >= deadline {
            let found =
                format!("the hosts take {} and {} of the deadline of {deadline}", hosts.0, hosts.1);
            return Err(Fault::new(found, "leave time for the links"));
        }
        let (mut node, mut hops) = (flow.from, Vec::new());
        while node != flow.to {
            let hop = self.flows.tables[&node][&flow.to];
            hops.push(hop);
            node = self.network.hops[hop].to;
        }
        Ok(Asking { contract, hops, hosts })
    }

    /// A link as admission control sees it; `None` if it has no rate, and so no queueing delay.
    fn link(&self, hop: usize) -> Result<Option<(Link, Method)>, Fault> {
        let hop = &self.network.hops[hop];
        let values = self.link_values(hop);
        let Some(rate) = values.given::<Rate>("rate") else { return Ok(None) };
        // As it will be built: a what-if admits channels anew.
        let rate = self.names.rate(&hop.name, rate);
        let refused = |queue: &str| {
            let found = format!("`{}` has a {queue} queue, which guarantees no delay", hop.name);
            let right = "write queue = { edd = {} } there, or promised = false here";
            Fault::new(found, right)
        };
        let queue = values.given::<Nested>("queue").ok_or_else(|| refused("drop-tail"))?;
        if !queue::is::<Edd>(&queue) {
            return Err(refused(queue.page.name));
        }
        let method = match queue.values.get::<String>("admission").as_str() {
            "edf" => Method::Edf,
            _ => Method::DOrder,
        };
        let framing = values.given("framing").unwrap_or(Bytes::ZERO);
        let link = Link {
            rate,
            per_packet: rate.time_for(framing),
            packet_max: queue.values.get("longest"),
            outstanding: 1,
            propagation: values.get("delay"),
            horizon: queue.values.get("horizon"),
            skew: Duration::ZERO,
        };
        Ok(Some((link, method)))
    }

    /// The part of the deadline taken by hops without a rate.
    fn wireless(&self, hops: &[usize]) -> Duration {
        let link = |&hop: &usize| self.link_values(&self.network.hops[hop]);
        let without = hops.iter().map(link).filter(|values| !values.has("rate"));
        without.map(|values| values.get::<Duration>("delay")).sum()
    }

    /// The delay bound at each hop of a route; zero for hops without a rate.
    fn promised(&self, links: &mut Links, asking: &Asking) -> Result<Vec<Duration>, Fault> {
        let (mut places, mut wires) = (Vec::new(), Vec::new());
        for &hop in &asking.hops {
            self.passes(self.network.hops[hop].to)?;
            let Some(link) = self.link(hop)? else { continue };
            let place = *links.known.entry(hop).or_insert_with(|| {
                links.all.push(Admission::from(link));
                links.all.len() - 1
            });
            places.push(place);
            wires.push(hop);
        }
        let (before, after) = asking.hosts;
        let taken = before + after + self.wireless(&asking.hops);
        let deadline = asking.contract.deadline;
        let within = Contract { deadline: deadline.saturating_sub(taken), ..asking.contract };
        let bounds = route::establish(&mut links.all, &places, &within)
            .map_err(|refusal| self.refused(links, (&places, &wires), &within, refusal))?;
        let mut bounds = bounds.into_iter();
        let bound = |hop: &usize| match wires.contains(hop) {
            true => bounds.next().unwrap_or(Duration::ZERO),
            false => Duration::ZERO,
        };
        Ok(asking.hops.iter().map(bound).collect())
    }

    /// Admission control covers links, and nodes that forward at once.
    fn passes(&self, node: usize) -> Result<(), Fault> {
        let single = &self.network.nodes[node];
        let kind = &self.experiment.nodes[single.declared].kind;
        if !single.forwards || own::<Router>(kind).is_some() {
            return Ok(());
        }
        let (name, kind) = (&single.name, kind.page.name);
        let found = format!("admission control does not cover `{name}`, a {kind}");
        Err(Fault::new(found, "route the channel over routers, or write promised = false"))
    }

    /// Why a channel is refused, and what would be accepted.
    fn refused(
        &self,
        links: &Links,
        (places, wires): (&[usize], &[usize]),
        contract: &Contract,
        refusal: Refusal,
    ) -> Fault {
        let (Refusal::TooLong { at } | Refusal::Full { at } | Refusal::Late { at, .. }) = refusal;
        let (name, link) = (&self.network.hops[wires[at]].name, &links.all[places[at]]);
        let promised = 100.0 * link.reservations.utilisation();
        match refusal {
            Refusal::TooLong { .. } => {
                let (packet, longest) = (contract.packet_max, link.link.packet_max);
                let found =
                    format!("its packets have {packet}, but `{name}` admits at most {longest}");
                Fault::new(found, "shorten `packet`, or lengthen `longest` of the link's edd")
            }
            Refusal::Full { .. } => {
                let demand = link.demand(contract);
                let share = 100.0 * demand.cost.as_secs_f64() / demand.interval.as_secs_f64();
                let found = format!(
                    "`{name}` refuses it: it needs {share:.1} % of the link, {promised:.1} % is \
                     reserved, and no delay bound up to its interval of {} can be guaranteed",
                    demand.interval
                );
                let right = "send less, declare it before other channels, or try \
                             admission = \"edf\" on the link; promised = false runs it without \
                             a guarantee";
                Fault::new(found, right)
            }
            Refusal::Late { least, left, .. } => {
                let others = places[at + 1..].iter().map(|&place| &links.all[place]);
                let least_of = |link: &Admission| Some(link.bound(contract)? + link.fixed());
                let rest: Duration = others.filter_map(least_of).sum();
                let wanted = contract.deadline + least.saturating_sub(left) + rest;
                let found = format!(
                    "`{name}` refuses it: the least delay that it can guarantee is {least}, and \
                     only {left} of the deadline is left there"
                );
                let right = format!(
                    "the links together need a deadline of at least {wanted}; promised = false \
                     runs it without a guarantee"
                );
                Fault::new(found, right)
            }
        }
    }

    /// An equal part of the deadline for each link with a rate, without a guarantee.
    fn equal_parts(&self, asking: &Asking) -> Vec<Duration> {
        let has_wire = |hop: &usize| self.link_values(&self.network.hops[*hop]).has("rate");
        let wires = asking.hops.iter().filter(|hop| has_wire(hop)).count() as u64;
        let links = asking.hops.iter().map(|&hop| &self.network.hops[hop]);
        let delays: Duration =
            links.map(|hop| self.link_values(hop).get::<Duration>("delay")).sum();
        let left =
            asking.contract.deadline.saturating_sub(delays + asking.hosts.0 + asking.hosts.1);
        let part = left / wires.max(1);
        asking.hops.iter().map(|hop| if has_wire(hop) { part } else { Duration::ZERO }).collect()
    }

    /// Passes the bounds of a channel to the queues along its route.
    fn promise(
        &mut self,
        (flow, path, id): (usize, lastmeter_base::PathId, FlowId),
        asking: &Asking,
        bounds: &[Duration],
    ) {
        let mut left = asking.contract.deadline.saturating_sub(asking.hosts.0);
        let first = bounds.iter().find(|bound| !bound.is_zero());
        let leaves = first.copied().unwrap_or(asking.contract.interval_min) + asking.hosts.0;
        self.leaves.insert(flow, leaves);
        for (&hop, &bound) in asking.hops.iter().zip(bounds) {
            let hop = &self.network.hops[hop];
            let due = left.saturating_sub(bound);
            if !bound.is_zero() {
                let promise = Promise { path, flow: id, arrives: left, due };
                self.promises.entry(hop.name.clone()).or_default().push(promise);
            }
            left = due.saturating_sub(self.link_values(hop).get("delay"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::build::{Changes, build};
    use crate::close::{Close, close};
    use crate::document::Override;
    use crate::experiment::Experiment;
    use crate::library::Builtin;
    use lastmeter_engine::Serial;
    use lastmeter_ledger::terminal::{Style, render};
    use lastmeter_ledger::{Deadlines, Ledger};

    const NETWORK: &str = include_str!("../../../../experiments/channels/experiment.toml");

    fn experiment(text: &str) -> Experiment {
        let short = [Override::parse("duration=400 ms").unwrap()];
        Experiment::parse("channels", text, &short, &Builtin).unwrap()
    }
    fn ledger(text: &str) -> Ledger {
        let built = build(&experiment(text), &Changes::NONE, &Builtin).map_err(|_| ()).unwrap();
        let mut engine = built.graph.build(1).unwrap();
        engine.run_parallel(built.end, &Default::default(), &Serial).unwrap();
        close(&engine.finish().unwrap(), Close::default())
    }
    fn deadlines(ledger: &Ledger, class: &str) -> Deadlines {
        let path = ledger.paths.iter().find(|path| path.class == class).unwrap();
        path.totals.deadlines.unwrap()
    }
    fn refused(text: &str) -> String {
        let problems = build(&experiment(text), &Changes::NONE, &Builtin).err().unwrap();
        problems.iter().map(|problem| problem.to_string()).collect::<Vec<_>>().join("\n")
    }

    /// E-15, E-18, E-22 to E-24.
    #[test]
    fn every_guaranteed_deadline_is_met_and_shown_in_the_ledger() {
        let ledger = ledger(NETWORK);
        for class in ["control", "sound", "film", "rival film"] {
            let Deadlines { made, met, late } = deadlines(&ledger, class);
            assert_eq!(late, 0, "{class}");
            assert!(met > 0 && made - met <= 3, "{class}: {met} of {made}");
        }
        // One at the start and one at the very end.
        assert_eq!(deadlines(&ledger, "control").made, 401);
        let files = ledger.paths.iter().find(|path| path.class == "files").unwrap();
        assert!(files.totals.deadlines.is_none());
        let text = render(&ledger, Style { width: 100, color: false, unicode: false });
        assert!(text.contains("deadlines 49 of 51 met"), "{text}");
    }

    /// E-26: only the source that sends at three times its rate suffers.
    #[test]
    fn a_source_that_breaks_its_contract_harms_only_itself() {
        let greedy = NETWORK.replacen("burst = 3,", "times = 3.0, burst = 3,", 1);
        assert_ne!(greedy, NETWORK);
        let ledger = ledger(&greedy);
        for class in ["control", "sound", "rival film"] {
            assert_eq!(deadlines(&ledger, class).late, 0, "{class}");
        }
        let film = ledger.paths.iter().find(|path| path.class == "film").unwrap();
        assert!(film.totals.dropped_packets() > 100, "{:?}", film.totals.dropped);
        assert_eq!(film.totals.deadlines.unwrap().late, 0, "everything that is sent is in time");
    }

    /// E-18: admission names the link, and what would be accepted.
    #[test]
    fn a_channel_that_a_link_cannot_guarantee_is_refused_with_the_reason() {
        let late = refused(&NETWORK.replace("deadline = \"1 ms\"", "deadline = \"300 us\""));
        assert!(late.contains("`bridge->listener` refuses it: the least delay"), "{late}");
        assert!(late.contains("at least"), "{late}");
        let full = refused(&NETWORK.replace("interval = \"8 ms\"", "interval = \"2 ms\""));
        assert!(full.contains("refuses it: it needs 61.0 % of the link"), "{full}");
        let jumbo = "packet = \"9000 B\", message = \"15000 B\"";
        let long = refused(&NETWORK.replace("message = \"15000 B\"", jumbo));
        assert!(long.contains("its packets have 9000 B"), "{long}");
        let fifo = refused(&NETWORK.replacen("queue = { edd = {} }", "", 1));
        let found = "`talker->switch` has a drop-tail queue, which guarantees no delay";
        assert!(fifo.contains(found), "{fifo}");
        let without = refused(&NETWORK.replace("deadline = \"1 ms\"\n", ""));
        assert!(without.contains("a channel needs a deadline"), "{without}");
        // Without guarantees nothing is refused.
        let all = NETWORK.replace("promised = true", "promised = false");
        let all = all.replace("deadline = \"1 ms\"", "deadline = \"300 us\"");
        assert!(deadlines(&ledger(&all), "control").late > 0);
    }
}
