//! What each port has outside: its line, the neighbours that the kernel has resolved, and the routers that
//! announce themselves (D-24).
//!
//! ```text
//! port --> LLDP, each second at first, then each 30 s --> line --> the router there: `show neighbours`
//! ```
//!
//! With `lldp = true` a router announces itself, and listens; a neighbour is forgotten when its time to live has
//! expired, or when it announces that it is leaving.

use super::{Control, State};
use crate::lldp::{self, ETHERTYPE, GROUP, Neighbour};
use lastmeter_base::Rate;
use lastmeter_linux::dataplane::announce::Announcer;
use lastmeter_linux::dataplane::routing::{Follow, Watch};
use lastmeter_wire::netlink::Message;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long the kernel may take to tell its neighbours.
const TELLS: Duration = Duration::from_secs(1);
/// Between announcements, and for how long they hold (IEEE 802.1AB-2016 §9.2.5).
const BETWEEN: Duration = Duration::from_secs(30);
const HOLDS: u16 = 120;
/// The first announcements follow each other faster.
const FAST: u32 = 4;
const BETWEEN_FAST: Duration = Duration::from_secs(1);
/// Limit on the routers that are kept for a port.
const HEARD_MAX: usize = 16;
/// Limit on the frames that are read from a port at once.
const AT_ONCE: usize = 64;

fn colons(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A router that was heard, and until when that holds.
pub(super) type Heard = (Neighbour, Instant);

/// A port that says who it is.
struct Port {
    announcer: Announcer,
    mac: [u8; 6],
    interface: String,
    name: String,
}

/// Announcements of this router.
pub(super) struct Discovery {
    ports: Vec<Port>,
    system: String,
    sent: u32,
    next: Instant,
}

impl Discovery {
    pub(super) fn new() -> Discovery {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let system = name.trim().to_owned();
        Discovery { ports: Vec::new(), system, sent: 0, next: Instant::now() }
    }
    /// Says who it is on all ports; for 0 seconds, that it goes.
    fn announce(&self, seconds: u16) {
        for port in &self.ports {
            let Port { announcer, mac, interface, name } = port;
            // An interface that is down has nobody to tell.
            let _ = announcer.send(&lldp::emit(*mac, interface, seconds, name, &self.system));
        }
    }
    /// It says nothing any more.
    pub(super) fn end(&mut self) {
        self.announce(0);
        (self.ports, self.sent) = (Vec::new(), 0);
    }
}

impl Control {
    /// Announces this router where that is due, and listens to others.
    pub(super) fn discover(&self, own: &mut Discovery) {
        let mut state = self.lock();
        if !state.config.lldp {
            if !own.ports.is_empty() {
                own.end();
                state.heard.clear();
            }
            return;
        }
        if own.ports.is_empty() {
            own.next = Instant::now();
            own.ports = match state.announcers() {
                Ok(ports) => ports,
                Err(why) => {
                    // It would fail again each time.
                    state.config.lldp = false;
                    return self.audit("lldp", &json!(why));
                }
            };
        }
        state.heard.resize(own.ports.len(), Vec::new());
        for (port, heard) in own.ports.iter().zip(&mut state.heard) {
            listen(port, heard);
        }
        if Instant::now() >= own.next {
            own.announce(HOLDS);
            own.sent += 1;
            let between = if own.sent < FAST { BETWEEN_FAST } else { BETWEEN };
            own.next = Instant::now() + between;
        }
    }
}

fn listen(port: &Port, heard: &mut Vec<Heard>) {
    let mut room = [0; 1600];
    for _ in 0..AT_ONCE {
        let Ok(Some(len)) = port.announcer.receive(&mut room) else { break };
        let frame = &room[..len.min(room.len())];
        let is_ours =
            frame.len() > 14 && frame[..6] == GROUP && frame[12..14] == ETHERTYPE.to_be_bytes();
        let Ok(neighbour) = lldp::parse(if is_ours { &frame[14..] } else { &[] }) else { continue };
        let same =
            |(old, _): &Heard| (&old.chassis, &old.port) == (&neighbour.chassis, &neighbour.port);
        heard.retain(|old| !same(old));
        if neighbour.seconds > 0 && heard.len() < HEARD_MAX {
            let until = Instant::now() + Duration::from_secs(neighbour.seconds.into());
            heard.push((neighbour, until));
        }
    }
    heard.retain(|(_, until)| *until > Instant::now());
}

impl State {
    fn announcers(&self) -> Result<Vec<Port>, String> {
        let ports = self.config.ports.iter().zip(&self.found).map(|(port, found)| {
            let announcer = Announcer::open(found.index, ETHERTYPE, GROUP);
            let announcer = announcer.map_err(|error| format!("ports.{}: {error}", port.name))?;
            let (interface, name) = (port.interface.clone(), port.name.clone());
            Ok(Port { announcer, mac: found.mac.unwrap_or_default(), interface, name })
        });
        ports.collect()
    }

    /// Each port with its interface, its line and its neighbours as they are now.
    pub(super) fn neighbours(&self) -> Value {
        let mut resolved = Vec::new();
        if let Ok(mut watch) = Watch::new(Follow { routes: false }) {
            let began = Instant::now();
            while !watch.is_complete() && began.elapsed() < TELLS {
                let told = watch.poll(|message| {
                    if let Message::Neighbour(true, neighbour) = message {
                        resolved.push(neighbour);
                    }
                });
                if told.is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let ports = self.config.ports.iter().zip(&self.found).enumerate();
        let ports = ports.map(|(at, (port, found))| {
            let own = resolved.iter().filter(|neighbour| neighbour.interface == found.index);
            let own = own.filter_map(|neighbour| {
                let mac = neighbour.reachable()?;
                Some(json!({ "address": neighbour.address, "mac": colons(mac) }))
            });
            let routers = self.heard.get(at).into_iter().flatten().map(|(router, until)| {
                json!({
                    "system": router.system,
                    "chassis": router.chassis,
                    "port": router.port,
                    "description": router.description,
                    "seconds-left": until.saturating_duration_since(Instant::now()).as_secs(),
                })
            });
            json!({
                "port": port.name,
                "interface": port.interface,
                "mac": found.mac.map(colons),
                "mtu": found.mtu,
                "line": port.rate.or(found.line).map(Rate::as_bits),
                "neighbours": own.collect::<Vec<_>>(),
                "routers": routers.collect::<Vec<_>>(),
            })
        });
        json!({ "ports": ports.collect::<Vec<_>>() })
    }
}
