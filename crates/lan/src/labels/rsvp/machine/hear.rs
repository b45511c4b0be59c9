//! What a router does with each message of RSVP-TE. `None`: it is not what the protocol allows, or of a path that is
//! not known here.

use super::super::message::{Fault, Kind, Message, PAYLOAD_IP, fault};
use super::{Ground, HOPS, Key, Machine, PATHS_MAX, Path, Peer, State, Told, Wanted, flow_name};
use crate::labels::mpls;
use lastmeter_base::Time;
use std::net::Ipv4Addr;

/// Whether an address can be that of the router next to this one at a port. Routers of a tunnel are neighbours, as its
/// labels pass no others; so a stranger cannot have messages sent to hosts that it names as its hop.
fn is_neighbour(port: u16, address: Ipv4Addr, ground: &mut dyn Ground) -> bool {
    !ground.is_own(address) && ground.way(address) == Some((port, address))
}

impl Machine {
    pub(super) fn path(
        &mut self,
        now: Time,
        port: u16,
        m: &Message,
        g: &mut dyn Ground,
    ) -> Option<()> {
        let (hop, sender, traffic) = (m.hop?, m.sender?, m.traffic?);
        let key = (m.session, sender);
        if m.hops <= 1 || g.address(port).is_none() || !is_neighbour(port, hop.address, g) {
            return None;
        }
        let before = Peer { port, hop };
        let asked = m.route.clone().unwrap_or_default();
        if !self.paths.contains_key(&key) {
            if self.paths.len() >= PATHS_MAX {
                return None;
            }
            let path = Path {
                flow: flow_name(&key),
                begins: None,
                name: None,
                traffic,
                hops: 0,
                before: Some(before),
                behind: None,
                route: Vec::new(),
                asked: asked.clone(),
                until: None,
                told: None,
                label: None,
                admitted: false,
                path_at: now,
                resv_at: now,
            };
            self.paths.insert(key, path);
        }
        let path = self.paths.get_mut(&key).filter(|path| path.begins.is_none())?;
        let same = path.hops == m.hops - 1
            && (path.before, path.traffic, &path.asked) == (Some(before), traffic, &asked);
        // Another port or another rate is another reservation.
        let differs = (path.before.map(|old| old.port), path.traffic) != (Some(port), traffic);
        path.name.clone_from(&m.name);
        path.until = Some(Machine::until(now, m.refresh));
        (path.before, path.traffic, path.hops, path.asked) =
            (Some(before), traffic, m.hops - 1, asked);
        if differs {
            self.unreserve(key, "it was asked for anew", g);
        }
        let path = self.paths.get(&key)?;
        if m.payload != Some(PAYLOAD_IP) {
            self.complain(key, before, (fault::ROUTING, fault::BAD_PAYLOAD), g);
            self.remove(key, "its packets are not of IP", g);
            return Some(());
        }
        let first = path.asked.first();
        if first.is_some_and(|step| step.len == 32 && !g.is_own(step.address)) {
            self.complain(key, before, (fault::ROUTING, fault::BAD_FIRST), g);
            self.remove(key, "its route does not begin here", g);
            return Some(());
        }
        let ends = matches!(Machine::find(&path.asked, m.session.end, g), Ok(None));
        if !ends {
            if !same || path.behind.is_none() {
                self.onward(now, key, g);
            }
            return Some(());
        }
        if !(path.admitted && g.has(&path.flow))
            && let Err(why) = self.admit(now, key, g)
        {
            self.complain(key, before, why, g);
        }
        Some(())
    }

    pub(super) fn resv(
        &mut self,
        now: Time,
        port: u16,
        m: &Message,
        g: &mut dyn Ground,
    ) -> Option<()> {
        let (hop, sender, wanted, label) = (m.hop?, m.sender?, m.wanted?, m.label?);
        let key = (m.session, sender);
        let from = Peer { port, hop };
        let Some(path) = self.paths.get_mut(&key) else {
            if !is_neighbour(port, hop.address, g) {
                return None;
            }
            self.refuse(key, from, wanted, (fault::NO_PATH, 0), g);
            return Some(());
        };
        let behind =
            path.behind.filter(|old| old.port == port && old.hop.address == hop.address)?;
        if !mpls::may_be_told(label) {
            self.refuse(key, from, wanted, (fault::ROUTING, fault::BAD_LABEL), g);
            return Some(());
        }
        let until = Machine::until(now, m.refresh);
        let same = path.told.is_some_and(|told| (told.label, told.wanted) == (label, wanted));
        path.told = Some(Told { label, wanted, until });
        let there = path.admitted && (path.begins.is_some() || g.has(&path.flow));
        if same && there {
            return Some(());
        }
        if let Some(tunnel) = &path.begins {
            path.admitted = true;
            g.tell(&tunnel.flow, Some(State::Up(behind.port, behind.hop.address, label)));
            return Some(());
        }
        let before = path.before;
        let was = path.admitted;
        if let Err(why) = self.admit(now, key, g) {
            // What it had was for another label.
            if let Some(path) = self.paths.get_mut(&key) {
                (path.told, path.admitted) = (None, was);
            }
            self.unreserve(key, "its reservation was refused", g);
            self.refuse(key, from, wanted, why, g);
            if let Some(before) = before {
                self.complain(key, before, why, g);
            }
        }
        Some(())
    }
    /// Tells the router behind that its reservation cannot be.
    fn refuse(&mut self, key: Key, to: Peer, wanted: Wanted, why: (u8, u16), g: &mut dyn Ground) {
        let Some(mut message) = Machine::message(Kind::ResvErr, key, to, g) else { return };
        let at = message.hop.map_or(Ipv4Addr::UNSPECIFIED, |hop| hop.address);
        message.fault = Some(Fault { at, flags: 0, code: why.0, value: why.1 });
        message.wanted = Some(wanted);
        self.send(to, &message, g);
    }

    pub(super) fn path_err(
        &mut self,
        port: u16,
        mut m: Message,
        ground: &mut dyn Ground,
    ) -> Option<()> {
        let (key, fault) = ((m.session, m.sender?), m.fault?);
        let path = self.paths.get(&key)?;
        path.behind.filter(|behind| behind.port == port)?;
        match (&path.begins, path.before) {
            (Some(_), _) if path.admitted => {}
            (Some(tunnel), _) => {
                let why = State::Asked(Some(fault.to_string()));
                ground.tell(&tunnel.flow, Some(why));
            }
            (None, Some(before)) => {
                m.hops = HOPS;
                self.send(before, &m, ground);
            }
            (None, None) => {}
        }
        Some(())
    }

    pub(super) fn resv_err(
        &mut self,
        port: u16,
        m: Message,
        ground: &mut dyn Ground,
    ) -> Option<()> {
        let key = (m.session, m.sender?);
        m.fault?;
        let path = self.paths.get(&key)?;
        path.before.filter(|before| before.port == port)?;
        let Some(behind) = path.behind else {
            self.unreserve(key, "a router before refused its reservation", ground);
            return Some(());
        };
        let hop = Machine::message(Kind::ResvErr, key, behind, ground)?.hop;
        self.send(behind, &Message { hop, hops: HOPS, ..m }, ground);
        Some(())
    }

    pub(super) fn path_tear(
        &mut self,
        port: u16,
        m: &Message,
        ground: &mut dyn Ground,
    ) -> Option<()> {
        let key = (m.session, m.sender?);
        let before = self.paths.get(&key)?.before?;
        if before.port != port || before.hop.address != m.hop?.address {
            return None;
        }
        self.remove(key, "it was torn down", ground);
        Some(())
    }

    pub(super) fn resv_tear(
        &mut self,
        port: u16,
        m: &Message,
        ground: &mut dyn Ground,
    ) -> Option<()> {
        let key = (m.session, m.sender?);
        let behind = self.paths.get(&key)?.behind?;
        if behind.port != port || behind.hop.address != m.hop?.address {
            return None;
        }
        self.unreserve(key, "it was released behind", ground);
        Some(())
    }
}
