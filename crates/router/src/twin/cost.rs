//! What a packet costs the core of a port processor on this machine: constants from a few short runs, and from them
//! the cost of any configuration.
//!
//! ```text
//! receive (kernel)  = a + b x bytes
//! port processor    = c + d x bytes + e x log2 prefixes + f x log2 (1 + filters) + g x (queue for each flow)
//!                       + h x plugins + i x (crosses)
//! ```
//!
//! Least squares, none negative. A table's cost grows with its logarithm here, since each level of a search is a miss
//! in the caches at most; this is an assumption, as is the classifier's.

use lastmeter_live::calibrate::{Calibration, Constant, Host, Value};
use lastmeter_live::fit::relative;
use std::collections::BTreeMap;

/// What a packet passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Features {
    /// log2 of the prefixes of its table, 0 of a single one.
    pub lookup: f64,
    /// log2 of 1 + filters.
    pub classify: f64,
    /// 1 if its queue tells flows apart.
    pub queue: f64,
    /// How many plugins.
    pub plugins: f64,
    /// 1 if it leaves by a port of another port processor.
    pub cross: f64,
}

/// log2 of a number, 0 of 0.
pub fn doublings(number: usize) -> f64 {
    (number.max(1) as f64).log2()
}

/// A run: what its packets passed, and what they cost.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What they passed.
    pub features: Features,
    /// Bytes of a frame.
    pub len: f64,
    /// CPU seconds of the kernel for a packet that was forwarded.
    pub kernel: f64,
    /// The same of the port processor.
    pub own: f64,
}

/// The constants of a machine, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// The kernel's for each packet that arrives.
    pub receive: f64,
    /// The same for each byte.
    pub receive_byte: f64,
    /// The port processor's for each packet.
    pub forward: f64,
    /// The same for each byte: what it sends is copied.
    pub forward_byte: f64,
    /// For each doubling of the routing table.
    pub lookup: f64,
    /// For each doubling of the filters.
    pub classify: f64,
    /// For a queue that tells flows apart.
    pub queue: f64,
    /// For a plugin that counts.
    pub plugin: f64,
    /// For the way to another port processor.
    pub cross: f64,
    /// From a packet's arrival until a core that sleeps works on it.
    pub wake: f64,
}

/// Names of the constants in a calibration, and whether they are for each byte.
const NAMES: [(&str, bool); 10] = [
    ("router.receive.per-packet", false),
    ("router.receive.per-byte", true),
    ("router.forward.per-packet", false),
    ("router.forward.per-byte", true),
    ("router.lookup.per-doubling", false),
    ("router.classify.per-doubling", false),
    ("router.queue.per-packet", false),
    ("router.plugin.per-packet", false),
    ("router.cross.per-packet", false),
    ("router.wake", false),
];

impl Costs {
    /// The constants that fit these runs best, and the mean relative error of each of the two fits.
    pub fn fit(samples: &[Sample], wake: f64) -> (Costs, [f64; 2]) {
        let rows: Vec<Vec<f64>> = samples.iter().map(|sample| vec![1.0, sample.len]).collect();
        let kernel: Vec<f64> = samples.iter().map(|sample| sample.kernel).collect();
        let received = relative(&rows, &kernel);
        let rows = samples.iter().map(|Sample { features: f, len, .. }| {
            vec![1.0, *len, f.lookup, f.classify, f.queue, f.plugins, f.cross]
        });
        let own: Vec<f64> = samples.iter().map(|sample| sample.own).collect();
        let forwarded = relative(&rows.collect::<Vec<_>>(), &own);
        let (r, f) = (&received.factors, &forwarded.factors);
        let all = [r[0], r[1], f[0], f[1], f[2], f[3], f[4], f[5], f[6], wake];
        (Costs::of(all), [received.error, forwarded.error])
    }
    fn of(all: [f64; NAMES.len()]) -> Costs {
        let [receive, receive_byte, forward, forward_byte, lookup, ..] = all;
        let [.., classify, queue, plugin, cross, wake] = all;
        Costs {
            receive,
            receive_byte,
            forward,
            forward_byte,
            lookup,
            classify,
            queue,
            plugin,
            cross,
            wake,
        }
    }
    fn each(&self) -> [f64; NAMES.len()] {
        let Costs { receive, receive_byte, forward, forward_byte, lookup, .. } = *self;
        let Costs { classify, queue, plugin, cross, wake, .. } = *self;
        [receive, receive_byte, forward, forward_byte, lookup, classify, queue, plugin, cross, wake]
    }
    /// Seconds of all cores for a packet of so many bytes.
    pub fn packet(&self, features: &Features, len: f64) -> f64 {
        let Features { lookup, classify, queue, plugins, cross } = *features;
        self.receive
            + self.forward
            + (self.receive_byte + self.forward_byte) * len
            + self.lookup * lookup
            + self.classify * classify
            + self.queue * queue
            + self.plugin * plugins
            + self.cross * cross
    }
    /// As a calibration of this machine.
    pub fn calibration(&self, host: Host, samples: &[Sample], errors: [f64; 2]) -> Calibration {
        let constants = NAMES.into_iter().zip(self.each()).enumerate();
        let constants = constants.map(|(at, ((name, per_byte), value))| {
            let value = if per_byte { Value::PerByte(value) } else { Value::Time(value) };
            let (method, error) = match at {
                0 | 1 => {
                    ("CPU time of the kernel's thread that receives; least squares", errors[0])
                }
                9 => ("half of a round trip through an idle router, less hosts and work", 0.0),
                _ => ("CPU time of the router's process; least squares", errors[1]),
            };
            let spread = (error * 1e4).round() / 1e4;
            let samples = samples.len() as u32;
            let method = format!("{method}; frames offered beyond what it forwards");
            (name.to_owned(), Constant { value, method, spread, samples })
        });
        Calibration { host, constants: constants.collect(), references: BTreeMap::new() }
    }
    /// Those of a calibration.
    ///
    /// # Errors
    /// Which one is missing.
    pub fn of_calibration(calibration: &Calibration) -> Result<Costs, String> {
        let mut all = [0.0; NAMES.len()];
        for (value, (name, _)) in all.iter_mut().zip(NAMES) {
            let constant = calibration.constants.get(name);
            let missing =
                || format!("constants.{name:?} is missing: `router twin --calibrate` measures it");
            *value = constant.ok_or_else(missing)?.value.si();
        }
        Ok(Costs::of(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The runs of a calibration.
    fn runs() -> Vec<(Features, f64)> {
        let none = Features::default();
        vec![
            (none, 60.0),
            (none, 1514.0),
            (Features { lookup: 19.8, ..none }, 60.0),
            (Features { classify: 10.0, ..none }, 60.0),
            (Features { queue: 1.0, ..none }, 60.0),
            (Features { plugins: 1.0, ..none }, 60.0),
            (Features { cross: 1.0, ..none }, 60.0),
        ]
    }
    fn sampled(costs: &Costs) -> Vec<Sample> {
        let sample = |(features, len): (Features, f64)| {
            let kernel = costs.receive + costs.receive_byte * len;
            Sample { features, len, kernel, own: costs.packet(&features, len) - kernel }
        };
        runs().into_iter().map(sample).collect()
    }

    proptest! {
        /// Constants that made the samples are found again, and survive a calibration's file.
        #[test]
        fn the_fit_finds_what_made_the_samples(ns in prop::collection::vec(1.0..900.0f64, 10)) {
            let mut all = [0.0; NAMES.len()];
            all.iter_mut().zip(&ns).for_each(|(to, ns)| *to = ns * 1e-9);
            (all[1], all[3]) = (all[1] / 1e3, all[3] / 1e3);
            let made = Costs::of(all);
            let samples = sampled(&made);
            let (found, errors) = Costs::fit(&samples, made.wake);
            prop_assert!(errors.iter().all(|error| *error < 1e-6), "{errors:?}");
            let near = |a: f64, b: f64, by: f64| (a - b).abs() <= by * b.abs() + 1e-13;
            for (found, made) in found.each().into_iter().zip(made.each()) {
                prop_assert!(near(found, made, 1e-4), "{found} {made}");
            }
            let host = Host {
                model: "none".to_owned(),
                cores: 2,
                kernel: "6".to_owned(),
                date: 0,
                others: 0.0,
                isolation: lastmeter_live::namespace::Isolation::Root,
                caches: BTreeMap::new(),
            };
            let text = found.calibration(host, &samples, errors).to_toml().expect("text");
            let read = Calibration::from_toml(&text).expect("as written");
            let read = Costs::of_calibration(&read).expect("all constants");
            for (read, made) in read.each().into_iter().zip(made.each()) {
                prop_assert!(near(read, made, 2e-3), "{read} {made}");
            }
        }
    }

    #[test]
    fn a_calibration_without_a_constant_says_which() {
        let text = "[host]\nmodel = 'x'\ncores = 1\nkernel = '6'\ndate = 0\nothers = 0.0\n\
                    isolation = 'Root'\n[host.caches]\n[constants]\n";
        let calibration = Calibration::from_toml(text).expect("a calibration");
        let wrong = Costs::of_calibration(&calibration).unwrap_err();
        assert!(wrong.contains("router.receive.per-packet"), "{wrong}");
    }
}
