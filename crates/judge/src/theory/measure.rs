//! The parameters of an experiment, and the measurements of one run of it.

use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Draw, Duration, Rate};
use lastmeter_engine::Row;
use lastmeter_lab::experiment::{Experiment, Traffic};
use lastmeter_repro::Error;

use super::formulas::Moments;
use crate::interval::{self, Interval};

/// The share of the duration that is discarded as warm-up: one in this many.
const LEFT_OUT: u64 = 10;

/// The parameters of an experiment, in seconds and as queueing theory needs them. A missing one is an error in the
/// table of cases.
pub(super) struct Given(pub(super) Experiment);

impl Given {
    /// A file of `experiments/theory`, with these settings.
    pub(super) fn read(text: &str, file: &str, set: &[&str]) -> Result<Given, Error> {
        interval::read(text, file, set).map(Given)
    }

    fn traffic(&self, name: &str) -> &Traffic {
        let named = self.0.traffic.iter().find(|traffic| traffic.name == name);
        named.expect("each case names traffic of its file")
    }

    fn node(&self, name: &str) -> &Nested {
        let named = self.0.nodes.iter().find(|node| node.name == name);
        &named.expect("each case names nodes of its file").kind
    }

    /// Bits per second of a link, by number from 0.
    pub(super) fn line(&self, link: usize) -> f64 {
        self.0.links[link].values.get::<Rate>("rate").as_bits() as f64
    }

    /// Propagation delay of a link.
    pub(super) fn delay(&self, link: usize) -> f64 {
        self.0.links[link].values.get::<Duration>("delay").as_secs_f64()
    }

    /// Length of a transfer's packets or responses in bits.
    pub(super) fn bits(&self, traffic: &str, what: &str) -> f64 {
        self.traffic(traffic).kind.values.get::<Bytes>(what).0 as f64 * 8.0
    }

    /// Packets per second at a given bit rate, and the moments of their lengths in bits.
    pub(super) fn offered(&self, traffic: &str) -> (f64, Moments) {
        let values = &self.traffic(traffic).kind.values;
        let sizes: Vec<(Bytes, u64)> = values.get("size");
        let weights = sizes.iter().map(|&(_, weight)| weight).sum::<u64>() as f64;
        let shares =
            sizes.iter().map(|&(len, weight)| (len.0 as f64 * 8.0, weight as f64 / weights));
        let lengths = Moments::mix(shares);
        (values.get::<Rate>("rate").as_bits() as f64 / lengths.first, lengths)
    }

    /// Packets per second of a traffic, and the moments of a link's service time for them.
    pub(super) fn served(&self, traffic: &str, link: usize) -> (f64, Moments) {
        let ((lambda, lengths), rate) = (self.offered(traffic), self.line(link));
        (lambda, Moments { first: lengths.first / rate, second: lengths.second / (rate * rate) })
    }

    /// The mean service time of a station.
    pub(super) fn service(&self, station: &str) -> f64 {
        self.node(station).values.get::<Draw>("service").mean()
    }

    /// The longest queue of a station.
    pub(super) fn room(&self, station: &str) -> u64 {
        self.node(station).values.get::<Nested>("queue").values.get("packets")
    }

    /// The loss probability of a packet.
    pub(super) fn chance(&self, node: &str) -> f64 {
        self.node(node).values.get("probability")
    }

    /// Bursts per second over all members of `from`, and the bits per burst.
    pub(super) fn bursts(&self, traffic: &str) -> (f64, f64) {
        let entry = self.traffic(traffic);
        let values = &entry.kind.values;
        let (on, off) = (values.get::<Draw>("on").mean(), values.get::<Draw>("off").mean());
        let len = values.get::<Vec<(Bytes, u64)>>("size")[0].0;
        let gap = values.get::<Rate>("rate").time_for(len).as_secs_f64();
        let members = self.0.nodes[entry.from.node].count.unwrap_or(1);
        (members as f64 / (on + off), (on / gap).round() * len.0 as f64 * 8.0)
    }

    /// The window of a transfer.
    pub(super) fn window(&self, traffic: &str) -> u64 {
        self.traffic(traffic).kind.values.get("window")
    }

    fn left_out(&self) -> Duration {
        self.0.duration.scale_ceil(1, LEFT_OUT)
    }

    /// The measured interval.
    pub(super) fn seconds(&self) -> f64 {
        (self.0.duration.saturating_sub(self.left_out())).as_secs_f64()
    }

    /// Runs it with this seed.
    pub(super) fn run(&self, seed: u64) -> Result<Interval, Error> {
        Interval::run(&self.0, seed, self.left_out())
    }
}

impl Interval {
    fn delivered(&self, class: &str) -> f64 {
        self.grown(class, |_, book| book.delivered.packets as f64)
    }

    /// Total end-to-end delay in seconds of packets that arrived in the interval.
    fn latencies(&self, class: &str) -> f64 {
        self.grown(class, |_, book| book.latency.sum() as f64 / 1e12)
    }

    /// Mean end-to-end delay of packets that arrived in the interval.
    pub(super) fn latency(&self, class: &str) -> f64 {
        self.latencies(class) / self.delivered(class)
    }

    /// The mean number in flight: their total delay over the interval's length (Little 1961).
    pub(super) fn number(&self, class: &str) -> f64 {
        self.latencies(class) / self.seconds()
    }

    /// The share of offered packets that was dropped.
    pub(super) fn loss(&self, class: &str) -> f64 {
        let dropped = self.grown(class, |_, book| book.dropped_total().packets as f64);
        dropped / self.grown(class, |_, book| book.offered.packets as f64)
    }

    /// Arrivals per second.
    pub(super) fn throughput(&self, class: &str) -> f64 {
        self.delivered(class) / self.seconds()
    }

    /// The mean queueing delay at a stage.
    pub(super) fn wait(&self, class: &str, stage: &str) -> f64 {
        let waits = self.at(class, stage, |row| row.wait.sum() as f64 / 1e12);
        waits / self.at(class, stage, |row| row.passed.packets as f64)
    }

    /// The mean time at a stage, queueing and service, over these classes together.
    pub(super) fn stay(&self, classes: [&str; 2], stage: &str) -> f64 {
        let sum = |of: fn(&Row) -> f64| -> f64 {
            classes.iter().map(|class| self.at(class, stage, of)).sum()
        };
        sum(|row| row.time() as f64 / 1e12) / sum(|row| row.passed.packets as f64)
    }
}
