//! The relations, each with the experiments for which it does not hold.

use super::text::{entry, list, table, tree, value, written};
use super::{Exceptions, Reason, Subject, Totals, hold, parse, run, totals};
use lastmeter_base::kind::{Nested, Param, ParamKind, Value, Values};
use lastmeter_base::{Draw, Duration, PerByte, Rate};
use lastmeter_host::profile::Profile;
use lastmeter_lab::build::Changes;
use lastmeter_lab::document::{Content, Item};
use lastmeter_lab::experiment::{Experiment, Network};
use lastmeter_lab::kinds::Registry;
use std::sync::Arc;

fn of(experiment: &Experiment) -> Totals {
    totals(&run(experiment, &Changes::NONE, 1))
}

/// The experiment read from a rewritten file, shortened like the subject.
fn reread(subject: &Subject, root: &Item) -> Experiment {
    let mut experiment = parse(&subject.name, &written(root)).unwrap();
    experiment.duration = subject.experiment.duration;
    experiment
}

/// The subject's totals, and those with its file rewritten.
fn rewritten(subject: &Subject, rewrite: impl Fn(&mut Item)) -> Option<[Totals; 2]> {
    let mut root = tree(&subject.text);
    rewrite(&mut root);
    Some([subject.totals.clone(), of(&reread(subject, &root))])
}

#[test]
fn a_rewritten_file_gives_the_same_totals() {
    hold("the same file", 50, &[], |subject| rewritten(subject, |_| ()));
}

#[test]
fn the_totals_do_not_depend_on_the_number_of_parts() {
    let parted =
        |subject: &Subject, parts| totals(&run(&subject.experiment, &Changes::NONE, parts));
    hold("two parts", 50, &[], |subject| Some([subject.totals.clone(), parted(subject, 2)]));
    hold("four parts", 50, &[], |subject| Some([subject.totals.clone(), parted(subject, 4)]));
}

/// Two more hosts with a link and traffic of their own.
fn beside(subject: &Subject, first: bool) -> Option<[Totals; 2]> {
    let [before, mut after] = rewritten(subject, |root| {
        let at = |len: usize| if first { 0 } else { len };
        let nodes = table(root, "nodes");
        for name in ["unrelated-a", "unrelated-b"] {
            nodes.insert(at(nodes.len()), entry(name, value("{ host = {} }")));
        }
        let link = "{ between = [\"unrelated-a\", \"unrelated-b\"], rate = \"1 Gbit/s\" }";
        let links = list(root, "links");
        links.insert(at(links.len()), value(link));
        let traffic = "{ name = \"unrelated\", from = \"unrelated-a\", to = \"unrelated-b\", \
                       poisson = { rate = \"50 Mbit/s\", size = \"1500 B\" } }";
        let all = list(root, "traffic");
        all.insert(at(all.len()), value(traffic));
    })?;
    assert!(after.remove("unrelated-a->unrelated-b unrelated").unwrap().offered.0 > 0);
    Some([before, after])
}

#[test]
fn an_unrelated_flow_declared_last_changes_nothing() {
    hold("unrelated, last", 50, &[], |subject| beside(subject, false));
}

#[test]
fn an_unrelated_flow_declared_first_changes_nothing() {
    hold("unrelated, first", 50, &[], |subject| beside(subject, true));
}

#[test]
fn the_order_of_nodes_does_not_matter() {
    hold("order of nodes", 50, &[], |subject| {
        rewritten(subject, |root| table(root, "nodes").reverse())
    });
}

#[test]
fn the_order_of_links_does_not_matter() {
    hold(
        "order of links",
        27,
        &[
            (
                Reason::Other("stations stand on the ring in the order of their links"),
                &["afterburner-jetstream", "jetstream-faults/lan"],
            ),
            (
                Reason::Other("a switch's ports are numbered in the order of its links"),
                &["aurora-deployment"],
            ),
        ],
        |subject| {
            (subject.experiment.links.len() > 1).then(|| {
                rewritten(subject, |root| {
                    let links = list(root, "links");
                    single_chains(links);
                    links.reverse();
                })
            })?
        },
    );
}

#[test]
fn the_order_of_traffic_does_not_matter() {
    hold(
        "order of traffic",
        18,
        &[(
            Reason::Other(
                "channels are admitted one after the other, in the order of their traffic",
            ),
            &["channels"],
        )],
        |subject| {
            (subject.experiment.traffic.len() > 1)
                .then(|| rewritten(subject, |root| list(root, "traffic").reverse()))?
        },
    );
}

/// Makes each chain of links an entry of its own.
fn single_chains(links: &mut Vec<Item>) {
    let chains = |link: Item| {
        let between = link.get("between").unwrap();
        if between.items().iter().all(|end| end.items().is_empty()) {
            return vec![link];
        }
        let one = |chain: &Item| {
            let mut link = link.clone();
            let at = table(&mut link, "").iter_mut().find(|entry| entry.key == "between");
            at.unwrap().item = chain.clone();
            link
        };
        between.items().iter().map(one).collect()
    };
    *links = std::mem::take(links).into_iter().flat_map(chains).collect();
}

/// The strings in a list.
fn names(item: &Item) -> Vec<String> {
    let text = |item: &Item| match &item.content {
        Content::Text(text) => text.clone(),
        _ => panic!("no text"),
    };
    item.items().iter().map(text).collect()
}

#[test]
fn a_link_can_be_written_the_other_way_round() {
    hold("links the other way round", 50, &[], |subject| {
        rewritten(subject, |root| {
            let links = list(root, "links");
            single_chains(links);
            for link in links {
                let between = table(link, "").iter_mut().find(|entry| entry.key == "between");
                let Content::List(ends) = &mut between.unwrap().item.content else { continue };
                ends.reverse();
            }
        })
    });
}

/// Kinds that are independent of who their neighbours are.
const CUTTABLE: &[&str] = &["host", "router", "station", "loss", "jitter"];

/// Puts a router without cost into every link between such nodes: the first half of the link has all of its cost.
fn cut(subject: &Subject) -> Option<[Totals; 2]> {
    let Experiment { nodes, links, .. } = &subject.experiment;
    let cuttable = |end: &str| {
        let end = links.iter().flat_map(|link| &link.between).find(|known| known.name == end);
        CUTTABLE.contains(&nodes[end.unwrap().node].kind.page.name)
    };
    let members =
        |end: &str| nodes.iter().find(|node| node.name == end).and_then(|node| node.count);
    let mut root = tree(&subject.text);
    let (mut routers, mut pieces) = (Vec::new(), Vec::new());
    single_chains(list(&mut root, "links"));
    for link in std::mem::take(list(&mut root, "links")) {
        let ends = names(link.get("between").unwrap());
        for pair in ends.windows(2) {
            let joined = |between: [&str; 2], link: &Item| {
                let mut link = link.clone();
                let at = table(&mut link, "").iter_mut().find(|entry| entry.key == "between");
                at.unwrap().item = value(&format!("{between:?}"));
                link
            };
            if !pair.iter().all(|end| cuttable(end)) {
                pieces.push(joined([&pair[0], &pair[1]], &link));
                continue;
            }
            let name = format!("cut-{}", routers.len());
            let count = members(&pair[0]).or(members(&pair[1]));
            let count = count.map_or(String::new(), |count| format!(", count = {count}"));
            routers.push(entry(&name, value(&format!("{{ router = {{}}{count} }}"))));
            pieces.push(joined([&pair[0], &name], &link));
            pieces.push(value(&format!("{{ between = [\"{name}\", \"{}\"] }}", pair[1])));
        }
    }
    if routers.is_empty() {
        return None;
    }
    *list(&mut root, "links") = pieces;
    table(&mut root, "nodes").extend(routers);
    // Stages then have other names: their waits, service times and delays are still in the sums.
    let mut both = [subject.totals.clone(), of(&reread(subject, &root))];
    both.iter_mut().flat_map(|totals| totals.values_mut()).for_each(|path| path.stages.clear());
    Some(both)
}

#[test]
fn a_link_cut_in_two_costs_the_same() {
    hold(
        "cut",
        26,
        &[(
            Reason::Ties,
            &[
                "ack-compression/cheater",
                "channels-tsn/seven-hops",
                "dumbbell",
                "qsdrr/hops",
                "qsdrr/single",
                "tcp-over-cells/packets",
            ],
        )],
        cut,
    );
}

/// The subject with one thing twice as fast: by a what-if, and by rewriting the file.
fn faster(
    subject: &Subject,
    resources: impl Fn(&str) -> bool,
    change: impl Fn(&mut Experiment),
) -> [Totals; 2] {
    let known = run(&subject.experiment, &Changes::NONE, 1).resources;
    let known = known.into_iter().map(|resource| resource.name).filter(|name| resources(name));
    let changes = Changes { speed: known.map(|name| (name, (2, 1))).collect(), ..Changes::NONE };
    let mut changed = subject.experiment.clone();
    change(&mut changed);
    [totals(&run(&subject.experiment, &changes, 1)), of(&changed)]
}

/// Several pairs combined into one.
fn together(pairs: Vec<[Totals; 2]>) -> Option<[Totals; 2]> {
    let numbered = |side: usize| -> Totals {
        let all = pairs.iter().enumerate();
        all.flat_map(|(at, pair)| {
            pair[side].iter().map(move |(name, path)| (format!("{at} {name}"), path.clone()))
        })
        .collect()
    };
    (!pairs.is_empty()).then(|| [numbered(0), numbered(1)])
}

#[test]
fn a_wire_twice_as_fast_is_a_link_of_twice_the_rate() {
    hold("faster wires", 38, &[], |subject| {
        let network = Network::new(&subject.experiment);
        let links = subject.experiment.links.iter().enumerate();
        let rates = links.filter_map(|(at, link)| Some((at, link.values.given::<Rate>("rate")?)));
        let pairs = rates.map(|(at, rate)| {
            let of_link =
                |name: &str| network.hops.iter().any(|hop| hop.link == at && hop.name == name);
            faster(subject, of_link, |experiment| {
                let double = Value::Rate(rate.scale_floor(2, 1));
                experiment.links[at].values.insert("rate", double);
            })
        });
        together(pairs.collect())
    });
}

#[test]
fn a_station_twice_as_fast_has_half_the_service_time() {
    hold("faster stations", 4, &[], |subject| {
        let nodes = subject.experiment.nodes.iter().enumerate();
        let stations = nodes.filter(|(_, node)| node.kind.page.name == "station");
        let pairs = stations.map(|(at, station)| {
            let service: Draw = station.kind.values.get("service");
            faster(
                subject,
                |name| name == station.name,
                |experiment| {
                    let half = Value::Draw(service.scale(1, 2));
                    experiment.nodes[at].kind.values.insert("service", half);
                },
            )
        });
        together(pairs.collect())
    });
}

#[test]
fn a_resource_of_a_host_twice_as_fast_has_half_its_profiles_times() {
    hold("faster hosts", 12, &[], |subject| {
        let mut pairs = Vec::new();
        for (key, profile) in &subject.experiment.profiles {
            let Some(profile) = profile.downcast_ref::<Profile>() else { continue };
            let named = |folder: &str| {
                let named = key.iter().find(|(known, _)| *known == folder);
                named.map(|(_, name)| name.clone())
            };
            let with: Vec<&str> = subject
                .experiment
                .nodes
                .iter()
                .filter(|node| node.kind.page.name == "host")
                .filter(|node| node.kind.values.given::<String>("profile") == named("hosts"))
                .filter(|node| node.kind.values.given::<String>("adapter") == named("adapters"))
                .map(|node| node.name.as_str())
                .collect();
            for resource in &profile.resources {
                let of_host = |name: &str| {
                    let host = name.strip_suffix(resource.name.as_str());
                    let host = host.and_then(|host| host.strip_suffix('.'));
                    host.is_some_and(|host| {
                        with.iter().any(|known| host.split('.').next() == Some(known))
                    })
                };
                pairs.push(faster(subject, of_host, |experiment| {
                    let mut changed = profile.clone();
                    let half = |time: &mut Duration| *time = time.scale_ceil(1, 2);
                    let half_byte = |time: &mut PerByte| *time = time.scale_ceil(1, 2);
                    let mine = changed.resources.iter_mut().find(|one| one.name == resource.name);
                    let mine = mine.unwrap();
                    half(&mut mine.context_switch);
                    half(&mut mine.interrupt);
                    half_byte(&mut mine.per_byte);
                    let stages = changed.send.iter_mut().chain(&mut changed.receive);
                    for stage in stages.filter(|stage| stage.resource == resource.name) {
                        half(&mut stage.cost.per_packet);
                        half_byte(&mut stage.cost.per_byte);
                        half(&mut stage.per_message);
                        half(&mut stage.per_pdu);
                        stage.random = stage.random.as_ref().map(|draw| draw.scale(1, 2));
                    }
                    experiment.profiles.insert(key.clone(), Arc::new(changed));
                }));
            }
        }
        together(pairs)
    });
}

/// Doubles every time and halves every rate.
fn slower(values: &mut Values, params: &[Param]) {
    let double = |time: Duration| time.scale_ceil(2, 1);
    for Param { name, kind, .. } in params {
        let value = match kind {
            _ if !values.has(name) => continue,
            ParamKind::Time => Value::Time(double(values.get(name))),
            ParamKind::Rate => Value::Rate(values.get::<Rate>(name).scale_floor(1, 2)),
            ParamKind::PerByte => Value::PerByte(values.get::<PerByte>(name).scale_ceil(2, 1)),
            ParamKind::Draw => Value::Draw(values.get::<Draw>(name).scale(2, 1)),
            ParamKind::Nested(_) => {
                let mut nested: Nested = values.get(name);
                slower(&mut nested.values, nested.page.params);
                Value::Nested(Box::new(nested))
            }
            ParamKind::Rates => {
                let rates: Vec<(Duration, Option<Rate>)> = values.get(name);
                let slow = |(at, rate): (Duration, Option<Rate>)| {
                    (double(at), rate.map(|rate| rate.scale_floor(1, 2)))
                };
                Value::Rates(rates.into_iter().map(slow).collect())
            }
            ParamKind::Windows => {
                let windows: Vec<(Duration, Duration)> = values.get(name);
                let long = |(from, to)| (double(from), double(to));
                Value::Windows(windows.into_iter().map(long).collect())
            }
            _ => continue,
        };
        values.insert(name, value);
    }
}

/// The relative tolerance of sums: times are rounded up to picoseconds, and rates down to bits.
const ROUNDED: f64 = 1e-5;

const SCALED: Exceptions<'_> = &[
    (
        Reason::Ties,
        &[
            "ack-compression/cheater",
            "bbr/network",
            "channels",
            "channels-tsn/seven-hops",
            "dumbbell",
            "qsdrr/hops",
            "qsdrr/single",
            "tcp-over-cells/cells",
            "tcp-over-cells/packets",
        ],
    ),
    (
        Reason::Other("a camera sends a fixed number of pictures at its own rate"),
        &[
            "aurora-deployment",
            "desk-area/cells",
            "striping/trunk",
            "striping/zebras",
            "vunet/one",
            "vunet/three",
            "vunet/two",
        ],
    ),
    (Reason::Other("its cables have lengths, and its switches fixed times"), &["atomic-lan"]),
    (Reason::Other("the cost of interrupts is a default, not in the file"), &["overload"]),
    (Reason::Other("its trace has fixed times"), &["wan"]),
    (
        Reason::Other("half of the greatest rate is still a picosecond per packet"),
        &["theory/sharing"],
    ),
];

/// Everything at half the speed takes twice as long.
fn scaled(subject: &Subject) -> Option<[Totals; 2]> {
    let mut slow = subject.experiment.clone();
    if !slow.profiles.is_empty() {
        return None;
    }
    slow.duration = slow.duration.scale_ceil(2, 1);
    let page = |name| Registry::builtin().find(name).unwrap().params;
    for node in &mut slow.nodes {
        slower(&mut node.kind.values, node.kind.page.params);
    }
    for link in &mut slow.links {
        slower(&mut link.values, page("links"));
        link.back.iter_mut().for_each(|back| slower(back, page("back")));
    }
    for traffic in &mut slow.traffic {
        slower(&mut traffic.values, page("traffic"));
        slower(&mut traffic.kind.values, traffic.kind.page.params);
    }
    let fast = subject.totals.clone();
    let mut slow = of(&slow);
    // Differences within the tolerance are removed, so that others show.
    let near = |slow: &mut u128, fast: u128| {
        let off = (*slow as f64 / 2.0 - fast as f64).abs();
        if off <= ROUNDED * fast as f64 + 1.0 {
            *slow = fast;
        }
    };
    for (name, path) in &mut slow {
        let Some(fast) = fast.get(name) else { continue };
        path.latency.iter_mut().zip(fast.latency).for_each(|(slow, fast)| near(slow, fast));
        near(&mut path.variation, fast.variation);
        for (stage, times) in &mut path.stages {
            let Some(fast) = fast.stages.get(stage) else { continue };
            times.iter_mut().zip(fast).for_each(|(slow, fast)| near(slow, *fast));
        }
    }
    Some([fast, slow])
}

#[test]
fn twice_the_times_and_half_the_rates_take_twice_as_long() {
    hold("scaled", 14, SCALED, scaled);
}
