//! Flows that packets set up, without a round trip before them (D-49): what port processors have seen is admitted here,
//! by the same code as what people reserve.
//!
//! ```text
//! port processor: a packet with the option, which goes on at once --> admitted: rule, reservation
//!                                                                  \-> refused: told to the flow's both ends
//! ```
//!
//! Only ports with `in-band` take part. A refusal counts only if it comes by a port that the flow uses.

use super::Control;
use crate::in_band::{Asked, What};
use crate::message::Command;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How often it looks whether packets have asked.
const LOOKS: Duration = Duration::from_millis(5);
/// The same if no port takes part.
const RARELY: Duration = Duration::from_millis(200);
/// Limit on flows that packets have set up.
const FLOWS_MAX: usize = 256;

impl Control {
    /// Serves packets that ask, as long as the router runs.
    pub fn serve_in_band(self: &Arc<Control>) {
        let control = self.clone();
        std::thread::spawn(move || {
            while !control.ended() {
                let asked = {
                    let mut state = control.lock();
                    let some = state.config.ports.iter().any(|port| port.in_band);
                    let link = state.link.as_mut().filter(|_| some);
                    link.map(|link| link.asked())
                };
                let Some(Ok(asked)) = asked else {
                    std::thread::sleep(RARELY);
                    continue;
                };
                asked.iter().for_each(|(port, asked)| control.asked(*port, asked));
                std::thread::sleep(LOOKS);
            }
        });
    }

    fn asked(&self, port: u16, asked: &Asked) {
        let name = asked.flow.name();
        // Which ports the flow has here, if it is known.
        let (known, ports, count, from) = {
            let state = self.lock();
            let own = state.config.flows.iter().find(|flow| flow.name == name);
            let bound = state.bound.flows.iter().find(|flow| flow.name == name);
            let out = bound.and_then(|bound| bound.reserved);
            let all = state.config.flows.iter().filter(|flow| flow.name.starts_with("in-band-"));
            let Some(from) = state.config.ports.get(usize::from(port)) else { return };
            let ports = [own.and_then(|flow| flow.from), out];
            (own.is_some(), ports, all.count(), from.name.clone())
        };
        match asked.what {
            What::SetUp if known && ports[0] != Some(port) => {}
            What::SetUp if !known && count >= FLOWS_MAX => {
                self.refuse(port, asked, &format!("{FLOWS_MAX} flows are set up in band"));
            }
            What::SetUp => {
                let flow = json!({
                    "match": asked.flow.filter(),
                    "from": from,
                    "rate": format!("{} bit/s", asked.rate().as_bits()),
                    "burst": format!("{} B", asked.burst().0),
                    "ttl": asked.ttl().to_string(),
                });
                let question = json!({ "reserve": name, "flow": flow });
                if let Err(why) = self.reserve(&name, &question, false) {
                    self.refuse(port, asked, &why);
                }
            }
            What::Over if known && ports[0] == Some(port) => {
                self.take_back("in-band", &name, "over")
            }
            What::Refused if known && ports.contains(&Some(port)) => {
                self.take_back("in-band", &name, "refused elsewhere");
            }
            What::Over | What::Refused => {}
        }
    }

    /// Tells both ends of a flow, and so all routers on its way, that it is refused.
    fn refuse(&self, port: u16, asked: &Asked, why: &str) {
        self.audit("in-band refused", &json!({ "flow": asked.flow.name(), "why": why }));
        self.lock().tell(&[Command::Refuse { port, asked: *asked }]);
    }
}
