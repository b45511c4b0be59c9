//! ns-3's side: what its program is told, what it answers, and how that is kept.
//!
//! ```text
//! experiment --description--> peers/ns3_path.cc --JSON--> Found --line--> experiments/ns3/ns3-3.37.csv
//! ```

use super::Half;
use super::found::{Class, Found, LEFT_OUT, is_bottleneck};
use crate::kept;
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Draw, Duration, Rate};
use lastmeter_lab::experiment::{End, Experiment, Traffic};
use lastmeter_repro::Error;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What `peers/ns3_path.cc` reads; the top of that file says what each word is.
pub(super) fn description(experiment: &Experiment, half: Half, seed: u64) -> String {
    let seconds = experiment.duration.as_secs_f64();
    let from = LEFT_OUT.as_secs_f64();
    let mut text = format!("run {seconds} {from} {seed} {}\n", half.mended());
    for link in &experiment.links {
        let rate = link.values.get::<Rate>("rate").as_bits();
        let delay = link.values.get::<Duration>("delay").as_ps() / 1000;
        let bottleneck = u8::from(is_bottleneck(experiment, link));
        let queue = queue(&link.values.get::<Nested>("queue"));
        for (a, b) in pairs(experiment, &link.between[0], &link.between[1]) {
            let _ = writeln!(text, "link {a} {b} {rate} {delay} {bottleneck} {queue}");
        }
    }
    for traffic in &experiment.traffic {
        for (a, b) in pairs(experiment, &traffic.from, &traffic.to) {
            let _ = writeln!(text, "{}", flow(traffic, &a, &b));
        }
    }
    text
}

fn queue(queue: &Nested) -> String {
    let number = |name| queue.values.given::<f64>(name).unwrap_or_default();
    let (min, max) = match queue.page.name {
        "red" => (number("min"), number("max")),
        _ => (0.0, 0.0),
    };
    format!("{} {} {min} {max}", queue.page.name, queue.values.get::<u64>("packets"))
}

fn flow(traffic: &Traffic, a: &str, b: &str) -> String {
    let (name, values) = (&traffic.name, &traffic.kind.values);
    if traffic.kind.page.name != "tcp" {
        let size = values.get::<Vec<(Bytes, u64)>>("size")[0].0.0;
        return format!("udp {name} {a} {b} {} {size}", values.get::<Rate>("rate").as_bits());
    }
    let control = values.get::<String>("control");
    let connections = values.get::<u64>("connections");
    let bytes = match values.given::<Draw<Bytes>>("bytes") {
        Some(Draw::Constant(bytes)) => bytes.0,
        // ns-3 is given no random sizes.
        _ => 0,
    };
    let spread = values.get::<Duration>("spread").as_ps() / 1000;
    format!("tcp {name} {a} {b} {control} {connections} {bytes} {spread}")
}

/// The members of two ends that belong together.
fn pairs(experiment: &Experiment, a: &End, b: &End) -> Vec<(String, String)> {
    let member = |end: &End, at: u64| match experiment.nodes[end.node].count {
        Some(_) => format!("{}.{at}", end.name),
        None => end.name.clone(),
    };
    let count = |end: &End| experiment.nodes[end.node].count.unwrap_or(1);
    (0..count(a).max(count(b))).map(|at| (member(a, at), member(b, at))).collect()
}

/// Reads the program's answer.
pub(super) fn answer(text: &str) -> Result<Found, String> {
    let answer: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let number = |of: &Value, key: &str| of[key].as_f64().ok_or(format!("no number `{key}`"));
    let served = number(&answer, "served")?;
    let mut found = Found {
        served: served as u64,
        dropped: number(&answer, "dropped")? as u64,
        wait: number(&answer, "waited")? / served,
        classes: Vec::new(),
    };
    for class in answer["classes"].as_array().ok_or("no list `classes`")? {
        let delivered: Option<Vec<u64>> =
            class["delivered"].as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
        let mut delivered = delivered.ok_or("no list `delivered`")?;
        let finished = number(class, "finished")? as u64;
        if finished > 0 {
            delivered = vec![delivered.iter().sum()];
        }
        found.classes.push(Class {
            name: class["name"].as_str().ok_or("no `name`")?.to_owned(),
            delivered,
            finished,
            took: number(class, "took")?,
        });
    }
    Ok(found)
}

/// Where what ns-3 gave is kept.
pub(super) const FILE: &str = "experiments/ns3/ns3-3.37.csv";

/// The top of a file that holds what ns-3 gave.
pub const HEADER: &str = "\
# What ns-3 3.37 (Debian's libns3-dev) gave: a peer's measurement, not a published value.
# By crates/cli/peers/ns3_path.cc, with `lastmeter repro ns3 --measure FILE`; `mended` is which
# faults of ns-3 (crates/cli/peers/ns3_mended.h) were mended, 0 for none: as it is shipped.
# A class: its name, bytes that applications got of each connection, connections that ended, and the
# seconds that those took together.
scenario;mended;seed;served;dropped;wait in s;classes
";

/// A run of ns-3: which, and what it gave.
pub(super) type Kept = BTreeMap<(String, u32, u64), Found>;

/// One line of the file.
pub(super) fn line(scenario: &str, half: Half, seed: u64, found: &Found) -> String {
    let Found { served, dropped, wait, classes } = found;
    let class = |class: &Class| {
        let bytes: Vec<String> = class.delivered.iter().map(u64::to_string).collect();
        format!("{} {} {} {:.6}", class.name, bytes.join("+"), class.finished, class.took)
    };
    let classes: Vec<String> = classes.iter().map(class).collect();
    let mended = half.mended();
    format!("{scenario};{mended};{seed};{served};{dropped};{wait:.9};{}\n", classes.join(", "))
}

/// Reads the file.
pub(super) fn kept(text: &str, file: &str) -> Result<Kept, Error> {
    kept::read(text, file, "ns-3", run)
}

fn run(line: &str) -> Option<((String, u32, u64), Found)> {
    let [scenario, mended, seed, served, dropped, wait, classes] =
        line.split(';').collect::<Vec<_>>().try_into().ok()?;
    let class = |text: &str| {
        let [name, delivered, finished, took] =
            text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let delivered: Option<Vec<u64>> =
            delivered.split('+').map(|bytes| bytes.parse().ok()).collect();
        Some(Class {
            name: name.to_owned(),
            delivered: delivered?,
            finished: finished.parse().ok()?,
            took: took.parse().ok()?,
        })
    };
    let classes: Option<Vec<Class>> = classes.split(", ").map(class).collect();
    let found = Found {
        served: served.parse().ok()?,
        dropped: dropped.parse().ok()?,
        wait: wait.parse().ok()?,
        classes: classes?,
    };
    Some(((scenario.to_owned(), mended.parse().ok()?, seed.parse().ok()?), found))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;
    use crate::ns3::scenarios::scenarios;
    use lastmeter_repro::Shelf;

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let class = |name: &str, delivered: Vec<u64>, finished, took| Class {
            name: name.to_owned(),
            delivered,
            finished,
            took,
        };
        let classes = vec![class("short", vec![7], 3, 0.25), class("long", vec![1, 2], 0, 0.0)];
        let found = Found { served: 10, dropped: 2, wait: 0.125, classes };
        let text = format!("{HEADER}{}", line("a, b 1/4, c", Half::Mended, 3, &found));
        let read = kept(&text, "here").unwrap();
        assert_eq!(read[&("a, b 1/4, c".to_owned(), Half::Mended.mended(), 3)], found);
    }

    #[test]
    fn a_line_that_is_no_run_says_where_it_is() {
        let error = kept(&format!("{HEADER}nothing\n"), "here").unwrap_err().to_string();
        assert!(error.contains("here") && error.contains("nothing"), "{error}");
    }

    #[test]
    fn an_answer_is_read() {
        let text = r#"{"served": 4, "dropped": 1, "waited": 2.0, "classes": [
            {"name": "a", "finished": 0, "took": 0.0, "delivered": [5, 6]},
            {"name": "b", "finished": 2, "took": 1.5, "delivered": [5, 6]}]}"#;
        let found = answer(text).unwrap();
        assert_eq!((found.served, found.wait), (4, 0.5));
        assert_eq!(found.classes[0].delivered, [5, 6]);
        assert_eq!((found.classes[1].delivered[0], found.classes[1].finished), (11, 2));
        assert!(answer("{}").is_err());
    }

    #[test]
    fn a_description_names_every_host_link_and_flow() {
        let all = scenarios();
        let named = |name: &str| all.iter().find(|scenario| scenario.name == name).unwrap();
        let experiment = |name| named(name).experiment(&Shelf::builtin()).unwrap();
        let text = description(&experiment("short flows, fq-codel 1, CUBIC"), Half::Shipped, 4);
        for line in [
            "run 25 5 4 0",
            "link r1 r2 10000000 18000000 1 fq-codel 33 0 0",
            "link r2 receiver.1 100000000 1000000 0 drop-tail 10000 0 0",
            "tcp short client server cubic 100 30000 20000000000",
            "tcp long sender.1 receiver.1 cubic 1 0 1000000000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        let text = description(&experiment("mixed, red 1, NewReno"), Half::Mended, 1);
        for line in [
            "link r1 r2 10000000 18000000 1 red 33 8.25 24.75",
            "udp others source.3 sink.3 1000000 1000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
