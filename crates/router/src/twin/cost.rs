//! What a packet costs a core of a router on this machine: constants from short runs, and from them the cost of any
//! configuration.
//!
//! ```text
//! kernel, receiving  = r(bytes)
//! port processor     = f(bytes) + e x log2 prefixes + c x log2 (1 + filters) + q x (queue for each flow)
//!                        + p x plugins + x x (crosses)
//!
//! r, f: cost |             _o----o    measured at some lengths with nothing else (o), straight between them: bytes are
//!            |  o---o-----/           copied, and the kernel takes memory for a frame in sizes of powers of two
//!            +--------------------- bytes
//! ```
//!
//! What each other thing costs is what it adds to a packet of the length at which it was measured. A table's cost grows
//! with its logarithm here, since each level of a search is a miss in the caches at most; this is an assumption, as is
//! the classifier's.

use lastmeter_live::calibrate::{Calibration, Constant, Host, Value};
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

/// How many there are of these.
const FEATURES: usize = 5;

impl Features {
    fn each(&self) -> [f64; FEATURES] {
        let Features { lookup, classify, queue, plugins, cross } = *self;
        [lookup, classify, queue, plugins, cross]
    }
}

/// log2 of a number, 0 of 0.
pub fn doublings(number: usize) -> f64 {
    (number.max(1) as f64).log2()
}

/// A cost by the length of a frame: straight between the lengths that were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Bytes and seconds; both ascend, seconds not strictly.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Through bytes and seconds. A longer frame does not cost less: where a measurement says so, that is taken for
    /// noise, and its neighbours and it have their mean.
    pub fn through(mut points: Vec<(f64, f64)>) -> Curve {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Pool adjacent violators: blocks of points with their sum.
        let mut blocks: Vec<(f64, usize)> = Vec::new();
        for (_, seconds) in &points {
            let mut last = (*seconds, 1);
            while let Some(before) =
                blocks.pop_if(|(sum, count)| *sum / *count as f64 > last.0 / last.1 as f64)
            {
                last = (last.0 + before.0, last.1 + before.1);
            }
            blocks.push(last);
        }
        let means = blocks.into_iter().flat_map(|(sum, count)| vec![sum / count as f64; count]);
        let points = points.iter().zip(means).map(|((bytes, _), seconds)| (*bytes, seconds));
        Curve { points: points.collect() }
    }

    /// Seconds for so many bytes. Below all lengths it is that of the shortest, beyond them it goes on as it ended.
    pub fn at(&self, len: f64) -> f64 {
        let Some(first) = self.points.first() else { return 0.0 };
        let above = self.points.partition_point(|(bytes, _)| *bytes <= len);
        let [low, high] = match (above, self.points.len()) {
            (0, _) | (_, 1) => return first.1,
            (above, count) => {
                let high = above.min(count - 1);
                [self.points[high - 1], self.points[high]]
            }
        };
        low.1 + (high.1 - low.1) * (len - low.0) / (high.0 - low.0).max(1.0)
    }

    /// The line that has the values of the curve at these two lengths: seconds for a packet and for a byte.
    pub fn line(&self, one: f64, other: f64) -> [f64; 2] {
        let (short, long) = (one.min(other), one.max(other));
        if long - short < 1.0 {
            return [self.at(one), 0.0];
        }
        let byte = (self.at(long) - self.at(short)) / (long - short);
        // A curve that rises more and more steeply: the longer one counts.
        match self.at(short) - byte * short {
            packet if packet >= 0.0 => [packet, byte],
            _ => [0.0, self.at(long) / long],
        }
    }
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
    /// How far apart the routers were of which this is the fastest: fastest less slowest, of the fastest.
    pub spread: f64,
    /// How many routers.
    pub routers: u32,
}

/// The constants of a machine, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// The kernel's for each packet that arrives, by its length.
    pub receive: Curve,
    /// The port processor's for each packet: what it sends is copied.
    pub forward: Curve,
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

/// Names in a calibration: of the two curves, before and after the bytes of a frame; of what else a packet passes.
const CURVES: [&str; 2] = ["router.receive.", "router.forward."];
const BYTES: &str = "-bytes";
const NAMES: [&str; FEATURES] = [
    "router.lookup.per-doubling",
    "router.classify.per-doubling",
    "router.queue.per-packet",
    "router.plugin.per-packet",
    "router.cross.per-packet",
];
const WAKE: &str = "router.wake";

impl Costs {
    /// The constants of runs: with nothing, at any lengths, and with one thing more than that.
    pub fn of(samples: &[Sample], wake: f64) -> Costs {
        let bare: Vec<&Sample> =
            samples.iter().filter(|one| one.features == Features::default()).collect();
        let curve = |of: fn(&Sample) -> f64| {
            Curve::through(bare.iter().map(|sample| (sample.len, of(sample))).collect())
        };
        let (receive, forward) = (curve(|one| one.kernel), curve(|one| one.own));
        let each = |feature: usize| {
            let with = samples.iter().filter(|one| one.features.each()[feature] > 0.0);
            let costs = with.map(|one| {
                let more = one.kernel + one.own - receive.at(one.len) - forward.at(one.len);
                more.max(0.0) / one.features.each()[feature]
            });
            let costs: Vec<f64> = costs.collect();
            costs.iter().sum::<f64>() / costs.len().max(1) as f64
        };
        let [lookup, classify, queue, plugin, cross] = [0, 1, 2, 3, 4].map(each);
        Costs { lookup, classify, queue, plugin, cross, wake, receive, forward }
    }
    fn each(&self) -> [f64; FEATURES] {
        let Costs { lookup, classify, queue, plugin, cross, .. } = *self;
        [lookup, classify, queue, plugin, cross]
    }
    /// Seconds of all cores for a packet of so many bytes.
    pub fn packet(&self, features: &Features, len: f64) -> f64 {
        let more = self.each().into_iter().zip(features.each()).map(|(cost, count)| cost * count);
        self.receive.at(len) + self.forward.at(len) + more.sum::<f64>()
    }
    /// As a calibration of this machine.
    pub fn calibration(&self, host: Host, samples: &[Sample]) -> Calibration {
        let mut constants = BTreeMap::new();
        let mut add = |name: String, seconds: f64, what: &str, of: &dyn Fn(&Sample) -> bool| {
            let of = samples.iter().filter(|sample| of(sample));
            let (spread, routers) = of.fold((0.0_f64, 0), |(spread, routers), one| {
                (spread.max(one.spread), routers + one.routers)
            });
            let constant = Constant {
                value: Value::Time(seconds),
                method: format!(
                    "{what}; fastest of routers started anew, more offered than they forward"
                ),
                spread: (spread * 1e4).round() / 1e4,
                samples: routers,
            };
            constants.insert(name, constant);
        };
        let is_bare = |sample: &Sample| sample.features == Features::default();
        for (curve, name, what) in [
            (&self.receive, CURVES[0], "CPU time of the kernel's threads that receive and deliver"),
            (&self.forward, CURVES[1], "CPU time of the router's process"),
        ] {
            for (len, seconds) in &curve.points {
                let at = |sample: &Sample| is_bare(sample) && sample.len == *len;
                add(format!("{name}{len}{BYTES}"), *seconds, what, &at);
            }
        }
        for (feature, (name, value)) in NAMES.into_iter().zip(self.each()).enumerate() {
            let with = |sample: &Sample| sample.features.each()[feature] > 0.0;
            add(name.to_owned(), value, "CPU time of all that it adds to", &with);
        }
        let idle = "half of a round trip through an idle router, less hosts and work".to_owned();
        let value = Value::Time(self.wake);
        let wake = Constant { value, method: idle, spread: 0.0, samples: 1 };
        constants.insert(WAKE.to_owned(), wake);
        Calibration { host, constants, references: BTreeMap::new() }
    }
    /// Those of a calibration.
    ///
    /// # Errors
    /// Which one is missing.
    pub fn of_calibration(calibration: &Calibration) -> Result<Costs, String> {
        let missing = |name: &str| {
            format!("constants.{name:?} is missing: `router twin --calibrate` measures it")
        };
        let curve = |name: &str| {
            let points = calibration.constants.iter().filter_map(|(own, constant)| {
                let len: u32 = own.strip_prefix(name)?.strip_suffix(BYTES)?.parse().ok()?;
                Some((f64::from(len), constant.value.si()))
            });
            let points: Vec<_> = points.collect();
            match points.is_empty() {
                true => Err(missing(&format!("{name}60{BYTES}"))),
                false => Ok(Curve::through(points)),
            }
        };
        let one = |name: &str| {
            calibration.constants.get(name).map(|own| own.value.si()).ok_or_else(|| missing(name))
        };
        let [receive, forward] = CURVES;
        let [lookup, classify, queue, plugin, cross] = NAMES;
        Ok(Costs {
            receive: curve(receive)?,
            forward: curve(forward)?,
            lookup: one(lookup)?,
            classify: one(classify)?,
            queue: one(queue)?,
            plugin: one(plugin)?,
            cross: one(cross)?,
            wake: one(WAKE)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTHS: [f64; 4] = [60.0, 128.0, 600.0, 1514.0];

    /// The runs of a calibration of a machine with these constants.
    fn sampled(costs: &Costs) -> Vec<Sample> {
        let none = Features::default();
        let bare = LENGTHS.map(|len| (none, len));
        let more = [
            (Features { lookup: 19.8, ..none }, 60.0),
            (Features { classify: 10.0, ..none }, 60.0),
            (Features { queue: 1.0, ..none }, 60.0),
            (Features { plugins: 1.0, ..none }, 60.0),
            (Features { cross: 1.0, ..none }, 60.0),
        ];
        let sample = |(features, len): (Features, f64)| {
            let kernel = costs.receive.at(len);
            let own = costs.packet(&features, len) - kernel;
            Sample { features, len, kernel, own, spread: 0.01, routers: 3 }
        };
        bare.into_iter().chain(more).map(sample).collect()
    }

    fn host() -> Host {
        Host {
            model: "none".to_owned(),
            cores: 2,
            kernel: "6".to_owned(),
            date: 0,
            others: 0.0,
            isolation: lastmeter_live::namespace::Isolation::Root,
            caches: BTreeMap::new(),
        }
    }

    proptest! {
        /// Constants that made the samples are found again, and survive a calibration's file.
        #[test]
        fn what_made_the_samples_is_found_again(ns in prop::collection::vec(1.0..900.0f64, 14)) {
            let curve = |ns: &[f64]| {
                let mut sum = 0.0;
                let seconds = ns.iter().map(|ns| { sum += ns * 1e-9; sum });
                Curve::through(LENGTHS.into_iter().zip(seconds).collect())
            };
            let each: Vec<f64> = ns[8..].iter().map(|ns| ns * 1e-9).collect();
            let made = Costs {
                receive: curve(&ns[..4]),
                forward: curve(&ns[4..8]),
                lookup: each[0],
                classify: each[1],
                queue: each[2],
                plugin: each[3],
                cross: each[4],
                wake: each[5],
            };
            let samples = sampled(&made);
            let found = Costs::of(&samples, made.wake);
            let text = found.calibration(host(), &samples).to_toml().expect("text");
            let read = Calibration::from_toml(&text).expect("as written");
            let read = Costs::of_calibration(&read).expect("all constants");
            for (from, by) in [(&found, 1e-6), (&read, 2e-3)] {
                for (found, made) in from.each().into_iter().zip(made.each()) {
                    prop_assert!((found - made).abs() <= by * made + 2e-12, "{found} {made}");
                }
                for len in [60.0, 128.0, 200.0, 1000.0, 1514.0] {
                    let [found, made] = [from, &made].map(|one| one.packet(&Features::default(), len));
                    prop_assert!((found - made).abs() <= by * made, "{len}: {found} {made}");
                }
            }
        }

        /// No measurement makes a longer frame cheaper, and lines have the values of the curve at both ends.
        #[test]
        fn a_curve_never_falls_and_a_line_meets_it_twice(
            ns in prop::collection::vec(1.0..900.0f64, 1..8),
            one in 14.0..2000.0f64,
            other in 14.0..2000.0f64,
        ) {
            let points = ns.iter().enumerate().map(|(at, ns)| (60.0 + 200.0 * at as f64, *ns));
            let curve = Curve::through(points.collect());
            let (mean, sum) = (ns.iter().sum::<f64>(), curve.points.iter().map(|point| point.1).sum::<f64>());
            prop_assert!((mean - sum).abs() < 1e-6 * mean);
            prop_assert!(curve.at(one.min(other)) <= curve.at(one.max(other)) + 1e-9);
            let [packet, byte] = curve.line(one, other);
            prop_assert!(packet >= 0.0 && byte >= 0.0);
            let (short, long) = (one.min(other), one.max(other));
            if long - short >= 1.0 {
                prop_assert!((packet + byte * long - curve.at(long)).abs() < 1e-6 * curve.at(long));
                let off = (packet + byte * short - curve.at(short)).abs();
                prop_assert!(packet == 0.0 || off < 1e-6 * curve.at(long), "{off}");
            }
        }
    }

    #[test]
    fn a_curve_is_straight_between_its_lengths() {
        let curve = Curve::through(vec![(500.0, 4.0), (100.0, 2.0), (900.0, 4.0)]);
        for (len, seconds) in [(60.0, 2.0), (100.0, 2.0), (300.0, 3.0), (500.0, 4.0), (2000.0, 4.0)]
        {
            assert_eq!(curve.at(len), seconds, "{len}");
        }
        assert_eq!(Curve::through(vec![(60.0, 1.0)]).at(900.0), 1.0);
        assert_eq!(Curve::default().at(60.0), 0.0);
        // The middle two are the wrong way round.
        let noisy = Curve::through(vec![(60.0, 1.0), (128.0, 3.0), (600.0, 2.0), (1514.0, 4.0)]);
        assert_eq!([noisy.at(128.0), noisy.at(600.0), noisy.at(1514.0)], [2.5, 2.5, 4.0]);
    }

    #[test]
    fn a_calibration_without_a_constant_says_which() {
        let text = "[host]\nmodel = 'x'\ncores = 1\nkernel = '6'\ndate = 0\nothers = 0.0\n\
                    isolation = 'Root'\n[host.caches]\n[constants]\n";
        let calibration = Calibration::from_toml(text).expect("a calibration");
        let wrong = Costs::of_calibration(&calibration).unwrap_err();
        assert!(wrong.contains("router.receive.60-bytes"), "{wrong}");
    }
}
