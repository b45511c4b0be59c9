//! Forwarders under saturation: packets that pass through steps on shared resources.
//!
//! ```text
//! always enough packets --> step --> step --> ... --> out, and the next one in
//!                           |cpu     |bus             routes may differ: one for each pair of ports
//! ```
//!
//! A route is a list of [`Step`]s, each with the resource that serves it and its cost per packet. Each route has
//! a window of packets in flight, so the bottleneck is never idle, and the account says how long each step held
//! its resource.
//!
//! So a forwarder is described by data: a processor alone (the null interface, A-129), a device behind a bus
//! (A-131), FLORBs on both sides of a host (A-142), a processor for each port with a central buffer or with a
//! data mover between buffers (A-135, A-136, A-146).
//!
//! Source: "Aurora at MIT", Section 2, §3.1, §3.2, §3.9 and §4.1.

use lastmeter_base::{Bytes, Duration, StageId, Time};
use lastmeter_engine::ResourceId;
use lastmeter_host::resource::{Discipline, Job, Options, Priority, Resource};
use std::sync::Arc;

/// The time of a step for a packet of some length.
pub type Takes = Arc<dyn Fn(Bytes) -> Duration + Send + Sync>;

/// A step of a route.
#[derive(Clone)]
pub struct Step {
    /// Its name.
    pub what: &'static str,
    /// Its resource, by index.
    pub resource: usize,
    /// Its cost.
    pub takes: Takes,
}

impl Step {
    /// A step with a fixed time per packet.
    pub fn fixed(what: &'static str, resource: usize, takes: Duration) -> Step {
        Step { what, resource, takes: Arc::new(move |_| takes) }
    }
    /// A step whose time depends on the packet's length.
    pub fn sized(
        what: &'static str,
        resource: usize,
        takes: impl Fn(Bytes) -> Duration + Send + Sync + 'static,
    ) -> Step {
        Step { what, resource, takes: Arc::new(takes) }
    }
}

/// A forwarder.
#[derive(Clone)]
pub struct Forwarder {
    /// Names of the resources, and how many packets each serves at once.
    pub resources: Vec<(String, u32)>,
    /// For each route, its steps in order; at least one each.
    pub routes: Vec<Vec<Step>>,
    /// Packets in flight on each route; at least 1.
    pub window: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Packets per second.
    pub packets: f64,
    /// Bits per second.
    pub rate: f64,
    /// Utilisation of each resource, over all its units, by name.
    pub resources: Vec<(String, f64)>,
    /// Mean service time of each step per packet, in seconds.
    pub steps: Vec<(&'static str, f64)>,
}

impl Account {
    /// The utilisation of a resource; 0 if there is none of this name.
    pub fn share(&self, name: &str) -> f64 {
        self.resources.iter().find(|(known, _)| known == name).map_or(0.0, |&(_, share)| share)
    }
    /// The busiest resource.
    pub fn limit(&self) -> &str {
        let most = self.resources.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map_or("", |(name, _)| name)
    }
    /// Service time of a step per packet, in seconds; 0 if there is none of this name.
    pub fn step(&self, what: &str) -> f64 {
        self.steps.iter().find(|(known, _)| *known == what).map_or(0.0, |&(_, time)| time)
    }
}

/// A packet in flight.
struct Packet {
    len: Bytes,
    route: usize,
    step: usize,
}

impl Forwarder {
    /// Forwards `count` packets with lengths from `lengths`, over all routes in turn.
    ///
    /// Panics if a route has no step or names a resource that does not exist.
    ///
    /// ```
    /// use lastmeter_base::{Bytes, Duration};
    /// use lastmeter_repro::machines::forward::{Forwarder, Step};
    /// let us = Duration::from_us;
    /// let forwarder = Forwarder {
    ///     resources: vec![("cpu".to_owned(), 1), ("bus".to_owned(), 1)],
    ///     routes: vec![vec![
    ///         Step::fixed("in", 1, us(3)), Step::fixed("IP", 0, us(4)), Step::fixed("out", 1, us(3)),
    ///     ]],
    ///     window: 8,
    /// };
    /// let account = forwarder.run(std::iter::repeat(Bytes(64)), 1000);
    /// assert_eq!(account.limit(), "bus");
    /// assert!((account.packets / (1e6 / 6.0) - 1.0).abs() < 0.01);
    /// ```
    pub fn run(&self, mut lengths: impl Iterator<Item = Bytes>, count: u64) -> Account {
        let options = |units| Options {
            units,
            discipline: Discipline::Priority,
            context_switch: Duration::ZERO,
            interrupt: Duration::ZERO,
        };
        let resource = |(at, &(_, units)): (usize, &(String, u32))| {
            Resource::new(ResourceId(at as u32), options(units))
        };
        let mut resources: Vec<Resource> =
            self.resources.iter().enumerate().map(resource).collect();
        let mut packets: Vec<Packet> = Vec::new();
        let (mut entered, mut left, mut bytes, mut now) = (0, 0, 0, Time::START);
        // Later steps go first, so that packets that are nearly done make room.
        let ask = |resources: &mut Vec<Resource>, now: Time, id: usize, packet: &Packet| {
            let step = &self.routes[packet.route][packet.step];
            let priority = Priority::Thread(u8::try_from(packet.step).unwrap_or(u8::MAX));
            let stage = StageId((packet.route << 8 | packet.step) as u32);
            let work = (step.takes)(packet.len);
            resources[step.resource]
                .submit(now, Job { id, stage, priority, preemptive: false, work });
        };
        for at in 0..self.window * self.routes.len() as u64 {
            let Some(len) = lengths.next().filter(|_| entered < count) else { break };
            entered += 1;
            packets.push(Packet { len, route: at as usize % self.routes.len(), step: 0 });
            ask(&mut resources, now, packets.len() - 1, &packets[packets.len() - 1]);
        }
        while let Some((due, at)) =
            resources.iter().enumerate().filter_map(|(at, r)| Some((r.ready_at()?, at))).min()
        {
            now = due;
            let Some(done) = resources[at].complete(now) else { continue };
            let packet = &mut packets[done.id];
            packet.step += 1;
            if packet.step == self.routes[packet.route].len() {
                (left, bytes) = (left + 1, bytes + packet.len.0);
                let Some(len) = lengths.next().filter(|_| entered < count) else { continue };
                entered += 1;
                (packet.len, packet.step) = (len, 0);
            }
            ask(&mut resources, now, done.id, &packets[done.id]);
        }
        self.account(&resources, left, bytes, now)
    }

    fn account(&self, resources: &[Resource], left: u64, bytes: u64, end: Time) -> Account {
        let seconds = end.since_start().as_secs_f64();
        let mut steps: Vec<(&'static str, f64)> = Vec::new();
        let mut shares = Vec::new();
        for (resource, (name, units)) in resources.iter().zip(&self.resources) {
            let busy: Duration = resource.meters().map(|meter| meter.busy()).sum();
            shares.push((name.clone(), busy.as_secs_f64() / seconds / f64::from(*units)));
            for &(stage, time) in resource.meters().flat_map(|meter| meter.by_stage()) {
                let what = self.routes[stage.0 as usize >> 8][stage.0 as usize & 0xff].what;
                let each = time.as_secs_f64() / left.max(1) as f64;
                match steps.iter_mut().find(|(known, _)| *known == what) {
                    Some((_, sum)) => *sum += each,
                    None => steps.push((what, each)),
                }
            }
        }
        Account {
            packets: left as f64 / seconds,
            rate: bytes as f64 * 8.0 / seconds,
            resources: shares,
            steps,
        }
    }
}

/// How packets move between ports in a forwarder with a processor for each (§3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Every packet is written to one memory and read from it.
    CentralBuffer,
    /// Each port has its own memory; a central mover copies from one to another.
    DataMover,
    /// A switch fabric joins the ports' memories: pairs of ports move at once.
    Fabric,
}

/// A flow forwarder of `ports` ports, each with its own processor, whose packets go from each port to the next one.
///
/// `work` is the processing time of a packet at its port, and `memory` the time to move a packet over one memory.
pub fn per_port(ports: u32, layout: Layout, work: Duration, memory: Takes) -> Forwarder {
    let mut resources: Vec<(String, u32)> =
        (0..ports).map(|port| (format!("processor {port}"), 1)).collect();
    let middle = resources.len();
    match layout {
        Layout::CentralBuffer => resources.push(("memory".to_owned(), 1)),
        Layout::DataMover => resources.push(("data mover".to_owned(), 1)),
        Layout::Fabric => {}
    }
    let memories = resources.len();
    if layout != Layout::CentralBuffer {
        resources.extend((0..ports).map(|port| (format!("memory {port}"), 1)));
    }
    let step = |what, resource| Step { what, resource, takes: memory.clone() };
    let route = |port: u32| {
        let here = memories + port as usize;
        let next = memories + ((port + 1) % ports) as usize;
        let process = Step::fixed("process", port as usize, work);
        match layout {
            Layout::CentralBuffer => vec![step("in", middle), process, step("out", middle)],
            Layout::DataMover => {
                vec![step("in", here), process, step("move", middle), step("out", next)]
            }
            Layout::Fabric => vec![step("in", here), process, step("out", next)],
        }
    };
    Forwarder { resources, routes: (0..ports).map(route).collect(), window: 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_us(us)
    }

    fn rate(ports: u32, layout: Layout) -> f64 {
        let forwarder = per_port(ports, layout, us(10), Arc::new(|_| us(4)));
        forwarder.run(std::iter::repeat(Bytes(100)), 20_000).packets
    }

    #[test]
    fn a_136_a_central_buffer_limits_ports_that_a_fabric_does_not() {
        // Each packet crosses the one memory twice: 125,000 per second for any number of ports.
        assert!((rate(8, Layout::CentralBuffer) / 125_000.0 - 1.0).abs() < 0.01);
        // A mover moves it once: twice as many.
        assert!((rate(8, Layout::DataMover) / 250_000.0 - 1.0).abs() < 0.01);
        // With a fabric the ports' own processors limit, at 100,000 per second each.
        assert!((rate(8, Layout::Fabric) / 800_000.0 - 1.0).abs() < 0.01);
        assert!((rate(1, Layout::CentralBuffer) / 100_000.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_resource_that_limits_is_never_idle_and_none_is_used_more_than_all_the_time() {
        let forwarder = per_port(4, Layout::DataMover, us(10), Arc::new(|_| us(4)));
        let account = forwarder.run(std::iter::repeat(Bytes(100)), 20_000);
        assert_eq!(account.limit(), "data mover");
        assert!(account.share("data mover") > 0.99);
        assert!(account.resources.iter().all(|&(_, share)| share <= 1.0 + 1e-9));
        assert!((account.step("process") - 10e-6).abs() < 1e-12);
    }

    #[test]
    fn a_few_lengths_are_forwarded_and_no_more() {
        let forwarder = per_port(2, Layout::CentralBuffer, us(1), Arc::new(|_| us(1)));
        let account = forwarder.run([Bytes(10), Bytes(20), Bytes(30)].into_iter(), 100);
        assert!((account.rate / account.packets - 8.0 * 20.0).abs() < 1e-6);
    }
}
