//! The scenarios: round trip, queue, room, connections and control of congestion.

use super::{FILE, Found};
use crate::interval;
use lastmeter_base::Duration;
use lastmeter_lab::experiment::Experiment;
use lastmeter_repro::{Error, Shelf};

/// The rate of the bottleneck, in bits per second, and the bytes of a full packet on it.
const RATE: u64 = 10_000_000;
const LINE: u64 = 1538;

/// A setting of `experiments/linux-tcp/path.toml`.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Round trip, queue, connections and control.
    pub name: String,
    /// The control as Linux calls it.
    pub control: &'static str,
    /// How many connections share the link.
    pub connections: u64,
    set: Vec<String>,
}

/// Whose packets are counted: they differ in what a packet's length holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packets {
    Frames,
    Datagrams,
}

/// A round trip in milliseconds, a queue, its room (name, and halves of a bandwidth-delay product), connections.
const PATHS: [(u64, &str, (&str, u64), u64); 6] = [
    (40, "drop-tail", ("1/2", 1), 1),
    (40, "drop-tail", ("1", 2), 1),
    (40, "drop-tail", ("2", 4), 1),
    (100, "drop-tail", ("1/2", 1), 1),
    (40, "drop-tail", ("1", 2), 4),
    (40, "codel", ("4", 8), 4),
];
const CONTROLS: [(&str, &str); 2] = [("Reno", "reno"), ("CUBIC", "cubic")];

/// All twelve, in the order of the table.
pub fn scenarios() -> Vec<Scenario> {
    let both = |path| CONTROLS.map(|control| scenario(path, control));
    PATHS.into_iter().flat_map(both).collect()
}

fn scenario(
    (round_trip, queue, (room, halves), connections): (u64, &'static str, (&str, u64), u64),
    (name, control): (&str, &'static str),
) -> Scenario {
    let packets = RATE / 8 * round_trip * halves / 1000 / LINE / 2;
    let plural = if connections == 1 { "" } else { "s" };
    let mut set = vec![
        format!("links.0.delay={} ms", round_trip / 2),
        format!("links.0.queue={{ {queue} = {{ packets = {packets} }} }}"),
        format!("traffic.transfer.tcp.control={control}"),
        format!("traffic.transfer.tcp.connections={connections}"),
    ];
    // As Linux's: slow start ends early, which only matters before what is counted, and RFC 9438 is not followed in
    // this.
    if control == "cubic" {
        set.push("traffic.transfer.tcp.hystart=true".to_owned());
        set.push("traffic.transfer.tcp.catches-up=false".to_owned());
    }
    let name = format!("{round_trip} ms, {queue} {room}, {connections} connection{plural}, {name}");
    Scenario { name, control, connections, set }
}

impl Scenario {
    /// For a live run.
    pub fn live(&self) -> Experiment {
        self.read(Packets::Frames).expect("the bundled file takes the settings of every scenario")
    }

    /// For a run of the model.
    pub(super) fn model(&self) -> Result<Experiment, Error> {
        self.read(Packets::Datagrams)
    }

    /// One run of the model, for as long.
    ///
    /// # Errors
    /// The run failed.
    pub fn ours(&self, seed: u64, left_out: Duration, lasts: Duration) -> Result<Found, Error> {
        let mut experiment = self.model()?;
        experiment.duration = lasts;
        Found::ours(&experiment, seed, left_out)
    }

    fn read(&self, packets: Packets) -> Result<Experiment, Error> {
        let mut set = self.set.clone();
        if packets == Packets::Datagrams {
            set.push("links.0.framing=38 B".to_owned());
        }
        interval::read(Shelf::builtin().text(FILE)?, FILE, &set)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_scenario_is_an_experiment_live_and_modelled() {
        let all = scenarios();
        for scenario in &all {
            assert_eq!(scenario.live().live_hosts().len(), 2);
            scenario.model().unwrap();
        }
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        assert_eq!((names.len(), all.len()), (12, 12));
        // 10 Mbit/s and 40 ms are 50 kB, of which a half are 16 packets.
        assert!(all[0].set.iter().any(|set| set.contains("packets = 16 ")), "{:?}", all[0].set);
    }
}
