//! The scenarios: which experiment, with which queue and which control of congestion.

use crate::interval;
use lastmeter_lab::experiment::Experiment;
use lastmeter_repro::{Error, Shelf};

/// An experiment with something set.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// Which experiment, queue, room and control.
    pub(super) name: String,
    /// In `experiments/ns3`.
    file: &'static str,
    set: Vec<String>,
}

/// A network, the links of it that are bottlenecks, their bandwidth-delay product in packets of 1500
/// bytes, and its connections.
struct Network {
    name: &'static str,
    file: &'static str,
    bottlenecks: usize,
    product: u32,
    connections: &'static [&'static str],
}

const ROUND_TRIPS: Network = Network {
    name: "round trips",
    file: "round-trips.toml",
    bottlenecks: 1,
    product: 67,
    connections: &["rtt-20", "rtt-40", "rtt-80", "rtt-120", "rtt-160"],
};

const SERIES: Network = Network {
    name: "series",
    file: "series.toml",
    bottlenecks: 3,
    product: 53,
    connections: &["long", "first", "second", "third"],
};

const SHORT: Network = Network {
    name: "short flows",
    file: "short.toml",
    bottlenecks: 1,
    product: 33,
    connections: &["short", "long"],
};

const MIXED: Network = Network {
    name: "mixed",
    file: "mixed.toml",
    bottlenecks: 1,
    product: 33,
    connections: &["connections"],
};

const QUEUES: [&str; 5] = ["drop-tail", "red", "codel", "fq-codel", "pie"];
/// Room in bandwidth-delay products: the name, and over four.
const ROOMS: [(&str, u32); 3] = [("1/4", 1), ("1", 4), ("4", 16)];
const CONTROLS: [(&str, &str); 2] = [("NewReno", "reno"), ("CUBIC", "cubic")];

/// All of them, in the order of the table.
pub(super) fn scenarios() -> Vec<Scenario> {
    let [reno, cubic] = CONTROLS;
    let [_, one, _] = ROOMS;
    let mut all = Vec::new();
    for queue in QUEUES {
        all.extend(ROOMS.map(|room| scenario(&ROUND_TRIPS, queue, room, reno)));
    }
    all.extend(ROOMS.map(|room| scenario(&ROUND_TRIPS, "drop-tail", room, cubic)));
    all.extend(QUEUES[1..].iter().map(|queue| scenario(&ROUND_TRIPS, queue, one, cubic)));
    all.extend(CONTROLS.map(|control| scenario(&SERIES, "drop-tail", one, control)));
    for queue in ["drop-tail", "fq-codel"] {
        all.extend(CONTROLS.map(|control| scenario(&SHORT, queue, one, control)));
    }
    all.extend(QUEUES.map(|queue| scenario(&MIXED, queue, one, reno)));
    all
}

fn scenario(
    network: &Network,
    queue: &'static str,
    (room, quarters): (&str, u32),
    (control, key): (&str, &str),
) -> Scenario {
    let packets = network.product * quarters / 4 + u32::from(network.product * quarters % 4 > 1);
    let queue_set = match queue {
        // As in `experiments/dumbbell`: thresholds at a quarter and three quarters of the room.
        "red" => {
            let [min, max] = [1.0, 3.0].map(|quarters| f64::from(packets) * quarters / 4.0);
            format!("{{ red = {{ packets = {packets}, min = {min:?}, max = {max:?} }} }}")
        }
        // ns-3's quantum is what its device sends at most.
        "fq-codel" => format!("{{ fq-codel = {{ packets = {packets}, quantum = \"1500 B\" }} }}"),
        queue => format!("{{ {queue} = {{ packets = {packets} }} }}"),
    };
    let mut set: Vec<String> =
        (0..network.bottlenecks).map(|link| format!("links.{link}.queue={queue_set}")).collect();
    let controlled =
        network.connections.iter().map(|name| format!("traffic.{name}.tcp.control={key}"));
    set.extend(controlled);
    let name = format!("{}, {queue} {room}, {control}", network.name);
    Scenario { name, file: network.file, set }
}

impl Scenario {
    pub(super) fn experiment(&self, shelf: &Shelf) -> Result<Experiment, Error> {
        let file = format!("experiments/ns3/{}", self.file);
        interval::read(shelf.text(&file)?, &file, &self.set)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;

    #[test]
    fn every_scenario_is_an_experiment_with_a_name_of_its_own() {
        let (shelf, all) = (Shelf::builtin(), scenarios());
        all.iter().for_each(|scenario| drop(scenario.experiment(&shelf).unwrap()));
        let names: std::collections::BTreeSet<&str> =
            all.iter().map(|scenario| scenario.name.as_str()).collect();
        assert_eq!((names.len(), all.len()), (33, 33));
    }
}
