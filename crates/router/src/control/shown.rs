//! What can be seen of flows: their shares of the lines, their ways, their labels.

use super::State;
use crate::admission::{Account, Side, delay_bound};
use crate::rsvp::machine;
use lastmeter_base::{Bytes, Rate};
use serde_json::{Value, json};
use std::time::Instant;

impl State {
    /// Completes what the port processor says of flows.
    pub(super) fn show_flows(&self, shown: &mut Value) {
        let now = Instant::now();
        let name = |port: u16| &self.config.ports[usize::from(port)].name;
        let flows = self.config.flows.iter().map(|flow| {
            let own = shown["flows"].as_array().into_iter().flatten();
            let own = own.into_iter().find(|own| own["name"] == json!(flow.name));
            let bound = self.bound.flows.iter().find(|bound| bound.name == flow.name);
            let left = self.until.get(&flow.name).map(|at| at.saturating_duration_since(now));
            json!({
                "name": flow.name,
                "from": bound.and_then(|bound| bound.from).map(name),
                "to": bound.and_then(|bound| bound.reserved).map(name),
                "next": bound.map(|bound| self.next(bound.hop)),
                "rate": flow.rate.map(Rate::as_bits),
                "route": flow.route,
                "functions": flow.functions,
                "label": flow.label,
                "next-label": bound.and_then(|bound| bound.label),
                "rsvp": flow.rsvp,
                "seconds-left": left.map(|left| left.as_secs_f64()),
                "packets": own.map(|own| own["packets"].clone()),
                "reserved": own.map(|own| own["reserved"].clone()),
                "waits": self.refused.get(&flow.name).cloned().or_else(|| self.asks(&flow.name)),
            })
        });
        let flows: Vec<Value> = flows.collect();
        let accounts = (0..self.config.ports.len() as u16).flat_map(|port| {
            [Side::Input, Side::Output].map(|side| account(&self.admission.account(port, side)))
        });
        let accounts: Vec<Value> = accounts.collect();
        (shown["flows"], shown["accounts"]) = (json!(flows), json!(accounts));
    }

    /// Why a flow has no tunnel that is to have one.
    fn asks(&self, flow: &str) -> Option<String> {
        match self.tunnels.get(flow)? {
            machine::State::Up(..) => None,
            machine::State::Asked(why) => {
                Some(why.clone().unwrap_or("its tunnel is being asked for".to_owned()))
            }
        }
    }

    /// Paths of RSVP, and its messages.
    pub(super) fn show_signals(&self) -> Value {
        let (paths, counts) = &self.signalled;
        let paths = paths.iter().map(|path| {
            json!({
                "flow": path.flow,
                "end": path.session.end,
                "tunnel": path.session.tunnel,
                "begin": path.session.extended,
                "path": path.sender.path,
                "before": path.peers[0],
                "behind": path.peers[1],
                "label": path.labels[0],
                "next-label": path.labels[1],
                "admitted": path.admitted,
            })
        });
        json!({
            "paths": paths.collect::<Vec<_>>(),
            "received": counts.received,
            "wrong": counts.wrong,
            "sent": counts.sent,
            "expired": counts.expired,
        })
    }

    /// A hop for people; null where the routing table decides.
    fn next(&self, hop: u32) -> Value {
        let name = |port: u16| self.config.ports.get(usize::from(port)).map(|port| &port.name);
        match self.rib.describe(hop) {
            Some([next, ..]) => json!({ "port": name(next.port), "via": next.address }),
            _ if hop == 0 => Value::Null,
            _ => json!({ "port": name((hop - 1) as u16), "via": null }),
        }
    }

    /// What was reserved for a flow.
    pub(super) fn granted(&self, name: &str) -> Value {
        let flow = self.config.flows.iter().find(|flow| flow.name == name);
        let bound = self.bound.flows.iter().find(|bound| bound.name == name);
        let (Some(flow), Some(bound)) = (flow, bound) else { return Value::Null };
        let mut told = json!({ "reserved": name, "next": self.next(bound.hop) });
        if let Some(machine::State::Up(_, via, label)) = self.tunnels.get(name) {
            told["tunnel"] = json!({ "end": flow.rsvp, "via": via, "label": label });
        }
        let side =
            |port: Option<u16>, side| port.map(|port| account(&self.admission.account(port, side)));
        if let (Some(rate), Some(output)) = (flow.rate, bound.reserved) {
            told["input"] = json!(side(bound.from, Side::Input));
            told["output"] = json!(side(Some(output), Side::Output));
            let port = &self.config.ports[usize::from(output)];
            let found = &self.found[usize::from(output)];
            let longest = Bytes(found.mtu.into()) + port.framing;
            let line = port.rate.or(found.line);
            let bound = line.map(|line| delay_bound(rate, flow.burst, line, longest));
            told["delay-bound"] = json!(bound.map(|bound| bound.as_ps() as f64 / 1e12));
        }
        told
    }
}

fn account(account: &Account) -> Value {
    json!({
        "port": account.port,
        "side": if account.side == Side::Input { "input" } else { "output" },
        "line": account.line,
        "reservable": account.reservable,
        "taken": account.taken,
        "free": account.free(),
    })
}
