//! What each port has outside: its line, and the neighbours that have said who they are (D-24).

use super::State;
use lastmeter_live::dataplane::routing::{Follow, Watch};
use lastmeter_wire::netlink::Message;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long the kernel may take to tell its neighbours.
const TELLS: Duration = Duration::from_secs(1);

fn colons(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl State {
    /// Each port with its interface, its line and its neighbours as they are now.
    pub(super) fn neighbours(&self) -> Value {
        let mut heard = Vec::new();
        if let Ok(mut watch) = Watch::new(Follow { routes: false }) {
            let began = Instant::now();
            while !watch.is_complete() && began.elapsed() < TELLS {
                let told = watch.poll(|message| {
                    if let Message::Neighbour(true, neighbour) = message {
                        heard.push(neighbour);
                    }
                });
                if told.is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let ports = self.config.ports.iter().zip(&self.found).map(|(port, found)| {
            let own = heard.iter().filter(|neighbour| neighbour.interface == found.index);
            let own = own.filter_map(|neighbour| {
                let mac = neighbour.reachable()?;
                Some(json!({ "address": neighbour.address, "mac": colons(mac) }))
            });
            json!({
                "port": port.name,
                "interface": port.interface,
                "mac": found.mac.map(colons),
                "mtu": found.mtu,
                "line": port.rate.or(found.line).map(lastmeter_base::Rate::as_bits),
                "neighbours": own.collect::<Vec<_>>(),
            })
        });
        json!({ "ports": ports.collect::<Vec<_>>() })
    }
}
