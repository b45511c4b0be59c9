//! The stages of a path as layers: what each is for, how much jitter it adds, and how many packets its buffer holds.
//!
//! * Function (A-42): movement, processing or delivery, the taxonomy of "Aurora at MIT", §3.2.5. A processor
//!   delivers in the stage next to an application and processes in its other stages; wires, buses and engines move.
//! * Jitter (A-68): the 99th percentile of a visit less its median, summed over waiting, service and being blocked: at
//!   most what the layer adds.
//! * Waiting (A-115): how many packets wait there on average, by Little's law; the buffers of a path, of switches and
//!   hosts, are one chain.
//!
//! All of it follows from what a ledger has, modelled or live; what it does not have is absent.

use crate::{Ledger, Path, Stage, Times};

/// What a stage is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Function {
    /// Between a network and a host's memory, or on the way.
    Movement,
    /// Of protocols, by a processor.
    Processing,
    /// From or to an application.
    Delivery,
}

impl Function {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Function::Movement => "movement",
            Function::Processing => "processing",
            Function::Delivery => "delivery",
        }
    }
}

/// A stage as a layer.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// The stage.
    pub stage: &'a Stage,
    /// What it is for.
    pub function: Function,
    /// Mean seconds of a delivered packet.
    pub time: f64,
    /// Seconds of jitter that it adds, at most; `None` where no distribution is known.
    pub jitter: Option<f64>,
    /// Packets that wait there, on average; `None` where waiting is not known.
    pub waiting: Option<f64>,
}

/// The layers of a path, in its order.
///
/// ```
/// use lastmeter_ledger::layers::{Function, layers};
/// use lastmeter_ledger::{Count, Ledger, Path, Provenance, Resource, Stage, Times, Totals};
/// let some = Count { packets: 100, bytes: 1000 };
/// let at = |name: &str, resource: &str| Stage {
///     wait: Some(Times { mean: 0.01, p50: Some(0.0), p99: Some(0.05) }),
///     ..Stage::new(name, Some(resource), some)
/// };
/// let stages = vec![at("wire", "w"), at("protocol in", "cpu"), at("deliver", "cpu")];
/// let path = Path::new("a->b", "x", stages, Totals::new(some, 0.0));
/// let resources = ["w", "cpu"].map(|name| Resource::new(name, if name == "w" { "wire" } else { "cpu" }, 0.1, None));
/// let ledger = Ledger::new("x", 2.0, vec![path], resources.to_vec(), Provenance::default());
/// let layers = layers(&ledger, &ledger.paths[0]);
/// let functions = layers.iter().map(|layer| layer.function).collect::<Vec<_>>();
/// assert_eq!(functions, [Function::Movement, Function::Processing, Function::Delivery]);
/// // 100 packets in 2 s, each of which waits for 10 ms.
/// assert_eq!(layers[0].waiting, Some(0.5));
/// assert_eq!(layers[0].jitter, Some(0.05));
/// ```
pub fn layers<'a>(ledger: &Ledger, path: &'a Path) -> Vec<Layer<'a>> {
    let on_cpu: Vec<bool> = path.stages.iter().map(|stage| runs_on_cpu(ledger, stage)).collect();
    // An application is in front of the first processor of a path and behind the last.
    let ends = [on_cpu.iter().position(|&cpu| cpu), on_cpu.iter().rposition(|&cpu| cpu)];
    let first_is_application = on_cpu.first() == Some(&true);
    let layer = |(at, stage): (usize, &'a Stage)| {
        let next_to_application =
            ends[1] == Some(at) || (first_is_application && ends[0] == Some(at));
        let function = match (on_cpu[at], next_to_application) {
            (false, _) => Function::Movement,
            (true, false) => Function::Processing,
            (true, true) => Function::Delivery,
        };
        let delivered = path.totals.delivered.packets as f64;
        let waiting = stage.wait.filter(|_| ledger.duration > 0.0);
        Layer {
            stage,
            function,
            time: stage.mean(),
            jitter: jitter(stage),
            waiting: waiting.map(|times| times.mean * delivered / ledger.duration),
        }
    };
    path.stages.iter().enumerate().map(layer).collect()
}

fn runs_on_cpu(ledger: &Ledger, stage: &Stage) -> bool {
    let Some(name) = &stage.resource else { return false };
    ledger.resources.iter().any(|known| known.name == *name && known.kind == "cpu")
}

fn jitter(stage: &Stage) -> Option<f64> {
    let spread = |times: Times| Some((times.p99? - times.p50?).max(0.0));
    let parts = [stage.wait, stage.service, stage.blocked];
    let known: Vec<f64> = parts.into_iter().flatten().filter_map(spread).collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

/// Seconds that a packet spends in each function, in their order.
pub fn by_function(layers: &[Layer<'_>]) -> [(Function, f64); 3] {
    [Function::Movement, Function::Processing, Function::Delivery].map(|function| {
        let own = layers.iter().filter(|layer| layer.function == function);
        (function, own.map(|layer| layer.time).sum())
    })
}

/// Packets that wait in all buffers of a path together; `None` where nothing is known.
pub fn chain(layers: &[Layer<'_>]) -> Option<f64> {
    let known: Vec<f64> = layers.iter().filter_map(|layer| layer.waiting).collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Count, Provenance, Resource, Totals};

    fn ledger(stages: &[(&str, &str, f64)], duration: f64) -> Ledger {
        let some = Count { packets: 1000, bytes: 1_000_000 };
        let stage = |&(name, resource, wait): &(&str, &str, f64)| Stage {
            wait: Some(Times { mean: wait, p50: Some(wait / 2.0), p99: Some(wait * 3.0) }),
            service: Some(Times { mean: 0.001, p50: Some(0.001), p99: Some(0.001) }),
            ..Stage::new(name, Some(resource), some)
        };
        let stages = stages.iter().map(stage).collect();
        let path = Path::new("a->b", "x", stages, Totals::new(some, 1e6));
        let kinds = [("a.cpu", "cpu"), ("wire", "wire"), ("b.cpu", "cpu")];
        let resources = kinds.map(|(name, kind)| Resource::new(name, kind, 0.5, None)).to_vec();
        Ledger::new("x", duration, vec![path], resources, Provenance::default())
    }

    const STAGES: [(&str, &str, f64); 5] = [
        ("copy out", "a.cpu", 0.0),
        ("protocol out", "a.cpu", 0.002),
        ("transmit", "wire", 0.004),
        ("protocol in", "b.cpu", 0.006),
        ("copy in", "b.cpu", 0.001),
    ];

    #[test]
    fn a_42_what_is_next_to_an_application_delivers() {
        let ledger = ledger(&STAGES, 10.0);
        let layers = layers(&ledger, &ledger.paths[0]);
        let names: Vec<&str> = layers.iter().map(|layer| layer.function.name()).collect();
        assert_eq!(names, ["delivery", "processing", "movement", "processing", "delivery"]);
        let [movement, processing, delivery] = by_function(&layers).map(|(_, time)| time);
        assert!((movement - 0.005).abs() < 1e-12 && (processing - 0.010).abs() < 1e-12);
        assert!((delivery - 0.003).abs() < 1e-12);
    }

    #[test]
    fn a_68_the_jitter_of_a_layer_is_the_spread_of_its_visits() {
        let mut ledger = ledger(&STAGES, 10.0);
        ledger.paths[0].stages[0].wait = None;
        ledger.paths[0].stages[0].service = Some(Times::mean(0.001));
        let layers = layers(&ledger, &ledger.paths[0]);
        assert_eq!(layers[0].jitter, None, "no distribution is known");
        assert!((layers[3].jitter.unwrap() - 0.015).abs() < 1e-12, "three times less half of 6 ms");
    }

    /// Little's law: 100 packets a second, which wait for 13 ms in all.
    #[test]
    fn a_115_the_buffers_of_a_path_are_one_chain() {
        let ledger = ledger(&STAGES, 10.0);
        let layers = layers(&ledger, &ledger.paths[0]);
        assert!((chain(&layers).unwrap() - 1.3).abs() < 1e-12, "{:?}", chain(&layers));
        assert!((layers[2].waiting.unwrap() - 0.4).abs() < 1e-12);
    }
}
