//! What a run gave, in either simulator, and the metrics of it.

use crate::interval::Interval;
use lastmeter_base::Duration;
use lastmeter_engine::Row;
use lastmeter_lab::experiment::{Experiment, Link};
use lastmeter_repro::Error;
use serde::{Deserialize, Serialize};

/// What is counted is counted from here on; but how long connections took that ended, from the start.
pub(super) const LEFT_OUT: Duration = Duration::from_secs(5);

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Packets that the bottlenecks sent, and that they dropped.
    pub(super) served: u64,
    pub(super) dropped: u64,
    /// Seconds that a packet waited at a bottleneck.
    pub(super) wait: f64,
    /// Of TCP, in the order of the experiment.
    pub(super) classes: Vec<Class>,
}

/// The connections of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Class {
    pub(super) name: String,
    /// Bytes that applications got, of each connection; of connections that end, of all together.
    pub(super) delivered: Vec<u64>,
    /// Connections that ended, and how many seconds they took together.
    pub(super) finished: u64,
    pub(super) took: f64,
}

/// A metric: its name, its unit, its value.
pub(super) type Metric = (String, &'static str, f64);

impl Found {
    /// All metrics of a run of `seconds`.
    pub(super) fn metrics(&self, seconds: f64) -> Vec<Metric> {
        let bytes = |class: &Class| class.delivered.iter().sum::<u64>() as f64;
        let total: f64 = self.classes.iter().map(bytes).sum();
        let (served, dropped) = (self.served as f64, self.dropped as f64);
        let mut all = vec![
            ("goodput".to_owned(), "Mbit/s", total * 8e-6 / (seconds - LEFT_OUT.as_secs_f64())),
            ("loss".to_owned(), "%", 100.0 * dropped / (dropped + served)),
            ("wait".to_owned(), "ms", 1e3 * self.wait),
        ];
        let lasting: Vec<&Class> =
            self.classes.iter().filter(|class| class.finished == 0).collect();
        let each = lasting.iter().flat_map(|class| &class.delivered);
        let (count, sum, squares) = each.fold((0.0, 0.0, 0.0), |(count, sum, squares), &bytes| {
            let bytes = bytes as f64;
            (count + 1.0, sum + bytes, squares + bytes * bytes)
        });
        all.push(("fairness".to_owned(), "", sum * sum / (count * squares)));
        if lasting.len() > 1 {
            let share = |class: &&Class| {
                (format!("share of {}", class.name), "%", 100.0 * bytes(class) / total)
            };
            all.extend(lasting.iter().map(share));
        }
        let ended = self.classes.iter().filter(|class| class.finished > 0);
        all.extend(ended.map(|class| {
            let mean = 1e3 * class.took / class.finished as f64;
            (format!("time of {}", class.name), "ms", mean)
        }));
        all
    }

    /// Of a run here.
    pub(super) fn ours(experiment: &Experiment, seed: u64) -> Result<Found, Error> {
        let run = Interval::run(experiment, seed, LEFT_OUT)?;
        let mut found = Found::default();
        let (mut waited, mut passed) = (0.0, 0.0);
        for link in experiment.links.iter().filter(|link| is_bottleneck(experiment, link)) {
            let name = format!("{}->{}", link.between[0].name, link.between[1].name);
            let stage = format!("{name} transmit");
            let at = run.to.elements.iter().position(|element| element.name == name);
            let at = at.expect("each direction of a link is an element");
            found.served += run.counted(at, "served");
            found.dropped += run.counted(at, "refused") + run.counted(at, "dropped");
            for traffic in &experiment.traffic {
                let of = |of: fn(&Row) -> f64| run.at(&traffic.name, &stage, of);
                waited += of(|row| row.wait.sum() as f64 * 1e-12);
                passed += of(|row| row.passed.packets as f64);
            }
        }
        found.wait = waited / passed;
        let connections = experiment.traffic.iter().filter(|entry| entry.kind.page.name == "tcp");
        for traffic in connections {
            let mut class = Class { name: traffic.name.clone(), ..Class::default() };
            let (sends, receives) =
                (format!(" sends {}", traffic.name), format!(" receives {}", traffic.name));
            for (at, element) in run.to.elements.iter().enumerate() {
                if element.name.ends_with(&receives) {
                    class.delivered.push(run.counted(at, "consumed"));
                } else if element.name.ends_with(&sends) {
                    let took = element.transfers.iter().filter_map(|transfer| {
                        Some(transfer.completed?.saturating_since(transfer.began).as_secs_f64())
                    });
                    took.for_each(|took| {
                        class.finished += 1;
                        class.took += took;
                    });
                }
            }
            found.classes.push(class);
        }
        Ok(found)
    }
}

/// Whether a link is between two routers.
pub(super) fn is_bottleneck(experiment: &Experiment, link: &Link) -> bool {
    link.between.iter().all(|end| experiment.nodes[end.node].kind.page.name == "router")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_what_their_names_say() {
        let class = |name: &str, delivered: &[u64]| Class {
            name: name.to_owned(),
            delivered: delivered.to_vec(),
            ..Class::default()
        };
        let mut classes = vec![class("a", &[3_000_000]), class("b", &[1_000_000])];
        classes.push(Class { finished: 4, took: 2.0, ..class("c", &[1_000_000]) });
        let found = Found { served: 99, dropped: 1, wait: 0.002, classes };
        let metrics = found.metrics(15.0);
        let value = |name: &str| metrics.iter().find(|metric| metric.0 == name).map(|m| m.2);
        assert_eq!(value("goodput"), Some(4.0));
        assert_eq!(value("loss"), Some(1.0));
        assert_eq!(value("wait"), Some(2.0));
        // (3 + 1)^2 / (2 (9 + 1)): those that end are not compared.
        assert_eq!(value("fairness"), Some(0.8));
        assert_eq!(value("share of a"), Some(60.0));
        assert_eq!(value("time of c"), Some(500.0));
        assert_eq!(value("share of c"), None);
    }
}
