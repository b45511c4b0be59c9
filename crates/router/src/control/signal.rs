//! Tunnels that RSVP sets up (D-43): what other routers ask is admitted here, by the same code as what people reserve;
//! what flows of this router ask is told to others.
//!
//! ```text
//! port processor: a message --> machine: paths, reservations --> admitted: a flow with a label, `lsp-...`
//!                                  ^ flows with `rsvp`       \--> messages, by the port processor
//! ```
//!
//! One thread has the machine; whoever reserves waits for what it notes of the tunnel. Only ports with `labels` take
//! part.

use super::{Control, flows};
use crate::message::Command;
use crate::rsvp::machine::{Admit, Ground, Machine, State, Tunnel};
use lastmeter_base::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it looks whether there are messages.
const LOOKS: Duration = Duration::from_millis(5);
/// The same if no port takes part.
const RARELY: Duration = Duration::from_millis(200);
/// How long whoever reserves waits for other routers.
const ANSWERS: Duration = Duration::from_secs(10);
/// How long the end of a router waits until others have been told.
const LEAVES: Duration = Duration::from_millis(500);
/// A tunnel that could not begin is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// The router, as the machine sees it.
struct Here<'a> {
    control: &'a Control,
    /// Whether flows have to be looked at, as their tunnels are others.
    changed: bool,
}

impl Ground for Here<'_> {
    fn is_own(&self, address: Ipv4Addr) -> bool {
        self.control.lock().own.iter().any(|(own, _)| *own == address)
    }
    fn address(&self, port: u16) -> Option<Ipv4Addr> {
        let state = self.control.lock();
        let takes = state.config.ports.get(usize::from(port))?.labels;
        let own = state.own.iter().find(|(_, at)| takes && *at == Some(port));
        own.map(|(address, _)| *address)
    }
    fn way(&mut self, to: Ipv4Addr) -> Option<(u16, Ipv4Addr)> {
        let mut state = self.control.lock();
        let hop = *state.link.as_mut()?.lookup(vec![to.into()]).ok()?.first()?;
        let next = state.members(state.config.ports.len() as u16, hop).into_iter().next()?;
        match next.address {
            None => Some((next.port, to)),
            Some(IpAddr::V4(address)) => Some((next.port, address)),
            Some(IpAddr::V6(_)) => None,
        }
    }
    fn admit(&mut self, wanted: &Admit) -> Result<(), String> {
        let Admit { flow: name, label, from, next, rate, burst } = wanted;
        let from = {
            let state = self.control.lock();
            state.config.ports.get(usize::from(*from)).map(|port| port.name.clone())
        };
        let mut flow = json!({
            "label": label,
            "from": from,
            "rate": format!("{} bit/s", rate.as_bits()),
            "burst": format!("{} B", burst.0),
        });
        if let Some((via, label)) = next {
            (flow["via"], flow["next-label"]) = (json!(via), json!(label));
        }
        let reserved = self.control.reserve(name, &json!({ "reserve": name, "flow": flow }), false);
        if let Err(why) = &reserved {
            self.control.audit("rsvp refused", &json!({ "flow": name, "why": why }));
        }
        reserved.map(drop)
    }
    fn has(&self, flow: &str) -> bool {
        self.control.lock().config.flows.iter().any(|own| own.name == flow)
    }
    fn release(&mut self, flow: &str, why: &str) {
        self.control.take_back("rsvp", flow, why);
    }
    fn tell(&mut self, flow: &str, state: Option<State>) {
        self.changed = true;
        let mut own = self.control.lock();
        match state {
            Some(state) => drop(own.tunnels.insert(flow.to_owned(), state)),
            None => drop(own.tunnels.remove(flow)),
        }
    }
    fn send(&mut self, port: u16, to: Ipv4Addr, packet: Vec<u8>) {
        self.control.lock().tell(&[Command::Signal { port, to: to.into(), packet }]);
    }
}

impl Control {
    /// Serves RSVP, as long as the router runs.
    pub fn serve_rsvp(self: &Arc<Control>) {
        use std::hash::{BuildHasher, RandomState};
        let seed = RandomState::new().hash_one(0);
        let refresh = self.lock().config.refresh;
        let control = self.clone();
        std::thread::spawn(move || {
            let (began, mut tried) = (Instant::now(), BTreeMap::new());
            let mut machine = Machine::new(seed, refresh);
            while !control.ended() {
                let signals = {
                    let mut state = control.lock();
                    let some = state.config.ports.iter().any(|port| port.labels);
                    machine.set_refresh(state.config.refresh);
                    let link = state.link.as_mut().filter(|_| some);
                    link.map(|link| link.signals())
                };
                let Some(Ok(signals)) = signals else {
                    std::thread::sleep(RARELY);
                    continue;
                };
                let now = || {
                    let passed = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    Time::from_ps(passed.saturating_mul(1000))
                };
                let mut here = Here { control: &control, changed: false };
                for (port, packet) in &signals {
                    machine.receive(now(), *port, packet, &mut here);
                }
                machine.advance(now(), &mut here);
                control.follow_flows(now(), &mut machine, &mut here, &mut tried);
                if here.changed {
                    control.look_again();
                }
                control.lock().signalled = (machine.shown(), machine.counts);
                std::thread::sleep(LOOKS);
            }
            machine.leave(&mut Here { control: &control, changed: false });
            control.left.store(true, Ordering::Relaxed);
        });
    }

    /// Waits until other routers have been told that this one ends.
    pub(super) fn leave(&self) {
        let began = Instant::now();
        let takes_part = self.lock().config.ports.iter().any(|port| port.labels);
        while takes_part && !self.left.load(Ordering::Relaxed) && began.elapsed() < LEAVES {
            std::thread::sleep(LOOKS);
        }
    }

    /// Tunnels begin and end with their flows.
    fn follow_flows(
        &self,
        now: Time,
        machine: &mut Machine,
        here: &mut Here<'_>,
        tried: &mut BTreeMap<String, Instant>,
    ) {
        let (wanted, known): (Vec<Tunnel>, Vec<String>) = {
            let state = self.lock();
            let config = &state.config;
            let admitted = |name: &str| state.bound.flows.iter().any(|flow| flow.name == name);
            let all =
                config.flows.iter().filter(|flow| flow.rsvp.is_some() && admitted(&flow.name));
            let all = all.filter_map(|flow| flow.tunnel(&config.nodes));
            (all.collect(), state.tunnels.keys().cloned().collect())
        };
        let ended = machine.tunnels().filter(|own| {
            // Whoever reserves anew has it forgotten.
            !wanted.contains(own) || !known.contains(&own.flow)
        });
        let ended: Vec<String> = ended.map(|own| own.flow.clone()).collect();
        let stale = known.iter().filter(|name| wanted.iter().all(|own| own.flow != **name));
        for flow in ended.iter().chain(stale) {
            machine.end(flow, here);
            tried.remove(flow);
        }
        for tunnel in wanted {
            let tried_at = tried.get(&tunnel.flow);
            let due = tried_at.is_none_or(|at: &Instant| at.elapsed() >= AGAIN);
            if due && !machine.tunnels().any(|own| *own == tunnel) {
                tried.insert(tunnel.flow.clone(), Instant::now());
                machine.begin(now, &tunnel, here);
            }
        }
    }

    /// What other routers say of a flow's tunnel, which has just been asked for; `None` if it has none.
    pub(super) fn signalled(&self, name: &str) -> Option<Result<(String, Value), String>> {
        let (end, began) = {
            let mut state = self.lock();
            let end = state.config.flows.iter().find(|flow| flow.name == name)?.rsvp?;
            state.tunnels.remove(name);
            (end, Instant::now())
        };
        loop {
            let state = self.lock().tunnels.get(name).cloned();
            match state {
                Some(State::Up(..)) => break,
                Some(State::Asked(Some(why))) => return Some(Err(why)),
                _ if began.elapsed() > ANSWERS || self.ended() => {
                    let seconds = ANSWERS.as_secs();
                    let why = format!("no router towards {end} has answered within {seconds} s");
                    return Some(Err(why));
                }
                _ => std::thread::sleep(LOOKS),
            }
        }
        // Its label is in effect when this returns.
        self.look_again();
        let stage = format!("rsvp as far as {end}");
        let told = json!({ "stage": stage, "seconds": began.elapsed().as_secs_f64() });
        Some(Ok((end.to_string(), told)))
    }

    /// Takes back what others had asked for: `what` asked.
    pub(super) fn take_back(&self, what: &str, name: &str, why: &str) {
        let _changing = self.alone();
        let ended = self.without(&[name]).and_then(|text| self.configure(text, flows::Strict::No));
        if ended.is_ok() {
            // Nobody's change is taken back by `rollback`.
            self.lock().history.pop();
        }
        let wrong = ended.err();
        self.audit(what, &json!({ "ended": name, "why": why, "wrong": wrong }));
    }
}
