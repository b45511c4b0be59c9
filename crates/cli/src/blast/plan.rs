//! Plans of `lastmeter blast`: the hosts and the flows between them.
//!
//! ```text
//! PLAN.toml --> Document --> lastmeter_live::blast::Plan --> the driver
//!                       '--> Problems, each with file, line and key
//! ```
//!
//! | of the plan | default  | meaning                                                            |
//! |-------------|----------|--------------------------------------------------------------------|
//! | `seed`      | 1        | seed of the random streams                                         |
//! | `drain`     | 500 ms   | how long sinks wait for packets in flight                          |
//!
//! | of a `[[host]]` | default | meaning                                                         |
//! |-----------------|---------|-----------------------------------------------------------------|
//! | `name`          | -       | its name in flows                                               |
//! | `at`            | -       | its agent: `"10.0.0.1:7400"`, or `"here"`: the driver's process |
//! | `data`          | as `at` | the address to which packets go                                 |
//! | `token-file`    | none    | the file that holds the agent's token                           |
//!
//! | of a `[[flow]]` | default    | meaning                                                          |
//! |-----------------|------------|------------------------------------------------------------------|
//! | `name`          | -          | its name in the table                                            |
//! | `from`, `to`    | -          | the hosts                                                        |
//! | `size`          | -          | `"1500 B"`, or as below                                          |
//! | `rate`          | -          | bits of packets per second, or                                   |
//! | `packets`       | -          | packets per second: `"900 kpps"`, or                             |
//! | `fastest`       | -          | `true`: as fast as the host can                                  |
//! | `pattern`       | `periodic` | or `poisson`, or `on-off`: at that pace for `on`, silent for `off` |
//! | `duration`, `count` | -      | how long, and how many packets at most; at least one of them     |
//! | `start`         | 0 s        | after the run's start                                            |
//! | `format`        | `udp`      | size of the IP packet; or `aal5`: size of the frame in a CPCS-PDU |
//! | `offload`       | `true`     | whether packets may be sent in batches (UDP GSO)                 |
//! | `traffic`       | none       | in place of size and rate: packets of a kind of traffic of the models |
//!
//! Sizes are taken in turn (`["64 B", "1500 B"]`), drawn with weights (`[["64 B", 7], ["1500 B", 1]]`), or
//! drawn between two (`{ uniform = ["64 B", "1500 B"] }`).
//!
//! Packets of `traffic = { tcplib = { every = "50 ms", rate = "1 Mbit/s" } }` are drawn before the run, the same for
//! the same seed (A-145); those of `traffic = { replay = { capture = "FILE" } }` have the times and lengths of a
//! capture (E-52). Their content is that of all packets of `blast`, so that loss and delay are measured; shorter ones
//! than that needs are sent with the least size.
//!
//! ```
//! use lastmeter::blast::plan;
//! use lastmeter_lab::library::Builtin;
//! let text = b"
//! host = [{ name = 'a', at = 'here' }]
//! flow = [{ name = 'f', from = 'a', to = 'a', size = '1500 B', rate = '1 Gbit/s', count = 10 }]";
//! let plan = plan::plan("plan.toml", text, &Builtin).unwrap();
//! assert_eq!(plan.flows[0].name, "f");
//! ```

use super::stored;
use lastmeter_base::kind::{Family, Nested, Param, ParamKind, Value, Values};
use lastmeter_base::{Bytes, Duration};
use lastmeter_lab::document::{
    Content, Decoder, Document, Entry, Fault, Item, Problem, Shape, join, quantity,
};
use lastmeter_lab::experiment::elements;
use lastmeter_lab::library::Library;
use lastmeter_linux::Error;
use lastmeter_live::blast::traffic::{Format, Pace, Pattern, Sizes, Traffic};
use lastmeter_live::blast::{At, Flow, Host, Plan, TOKEN_LEN_MAX, check_token};
use std::io::Read;

/// The greatest integer below which a reader that parses JSON numbers as floating point is exact.
const SEED_MAX: u64 = 1 << 53;

const PLAN: &[Param] = &[
    Param::or("seed", ParamKind::Integer { min: 0, max: SEED_MAX }, "1").is("of random streams"),
    Param::or("drain", ParamKind::Time, "500 ms").is("how long sinks wait for packets in flight"),
];

const HOST: &[Param] = &[
    Param::required("name", ParamKind::Text).is("its name in flows"),
    Param::required("at", ParamKind::Text).is("its agent's address and port, or \"here\""),
    Param::optional("data", ParamKind::Text, "where its agent is").is("where its packets go"),
    Param::optional("token-file", ParamKind::Text, "none").is("the file with its agent's token"),
];

const FLOW: &[Param] = &[
    Param::required("name", ParamKind::Text).is("its name"),
    Param::required("from", ParamKind::Text).is("the host that sends"),
    Param::required("to", ParamKind::Text).is("the host that receives"),
    Param::optional("rate", ParamKind::Rate, "another pace").is("bits of packets per second"),
    Param::or("fastest", ParamKind::Flag, "false").is("as fast as the host can"),
    Param::or("pattern", ParamKind::Choice(&["periodic", "poisson", "on-off"]), "periodic")
        .is("when packets leave"),
    Param::optional("on", ParamKind::Time, "no bursts").is("length of a burst"),
    Param::optional("off", ParamKind::Time, "no bursts").is("length of the silence after a burst"),
    Param::optional("duration", ParamKind::Time, "until `count`").is("how long it sends"),
    Param::optional("count", ParamKind::COUNT, "until `duration`").is("packets at most"),
    Param::or("start", ParamKind::Time, "0 s").is("after the run's start"),
    Param::or("format", ParamKind::Choice(&["udp", "aal5"]), "udp").is("format of its packets"),
    Param::or("offload", ParamKind::Flag, "true").is("send packets in batches (UDP GSO)"),
    Param::optional("traffic", ParamKind::Nested(Family::Traffic), "its size and rate")
        .is("packets of a kind of traffic of the models, in place of size and rate"),
];

/// Reads a plan; `file` is what messages call it. Tokens are read through `library`.
///
/// # Errors
/// Everything that is wrong with it, in the order of the file.
pub fn plan(file: &str, text: &[u8], library: &dyn Library) -> Result<Plan, Vec<Problem>> {
    let Document { root, reporter } = Document::parse(file, text)?;
    let mut decoder = Decoder { reporter, library };
    let shape = Shape { what: "the plan", params: PLAN, kind: None, besides: &["host", "flow"] };
    let (_, values) = decoder.table(&shape, &root, "");
    let hosts = hosts(&mut decoder, &root);
    let seed = values.given("seed").unwrap_or(0);
    let flows = flows(&mut decoder, &root, &hosts, seed);
    let drain: Duration = values.given("drain").unwrap_or(Duration::ZERO);
    let plan = Plan { seed, drain, hosts, flows };
    // Problems already reported would be errors here, too.
    if decoder.reporter.is_empty()
        && let Err(error) = plan.check()
    {
        refuse(&mut decoder, &root, "", error);
    }
    match decoder.reporter.is_empty() {
        true => Ok(plan),
        false => Err(decoder.reporter.into_problems()),
    }
}

/// Reports an error of the library that runs plans, at its place in the file.
fn refuse(decoder: &mut Decoder<'_>, item: &Item, key: &str, error: Error) {
    let (name, fault) = match error {
        Error::Setting { name, found, expected } => {
            let right = format!("it must be {expected}");
            (name, Fault::new(format!("`{name}` is {found}"), right))
        }
        other => ("", Fault::new(other.to_string(), String::new())),
    };
    let place = item.get(name);
    let key = if place.is_some() { join(key, name) } else { key.to_owned() };
    decoder.report(&place.unwrap_or(item).mark, &key, fault);
}

/// The tables under `name`, each with its key; reports if there are none.
fn tables<'a>(
    decoder: &mut Decoder<'_>,
    root: &'a Item,
    name: &str,
    example: &str,
) -> Vec<(String, &'a Item)> {
    let found = elements(decoder, root, name);
    if found.is_empty() && decoder.reporter.is_empty() {
        let fault = Fault::new(format!("the plan has no {name}"), format!("add {example}"));
        decoder.report(&root.mark, name, fault);
    }
    let key = |(index, item): (usize, &'a Item)| (join(name, &index.to_string()), item);
    found.into_iter().enumerate().map(key).collect()
}

/// Reports a duplicate or invalid name.
fn check_name<'a>(
    decoder: &mut Decoder<'_>,
    item: &Item,
    key: &str,
    mut before: impl Iterator<Item = &'a String>,
) {
    let Some(name) = item.text("name") else { return };
    let (found, right) = match name {
        "" => ("the name is empty".to_owned(), "write one, like name = \"a\""),
        name if before.any(|known| known == name) => {
            (format!("`{name}` appears twice"), "give each its own name")
        }
        _ => return,
    };
    let mark = &item.get("name").unwrap_or(item).mark;
    decoder.report(mark, &join(key, "name"), Fault::new(found, right));
}

fn hosts(decoder: &mut Decoder<'_>, root: &Item) -> Vec<Host> {
    let example = "[[host]], and below it name = \"a\" and at = \"10.0.0.1:7400\"";
    let (mut hosts, library): (Vec<Host>, _) = (Vec::new(), decoder.library);
    for (key, item) in tables(decoder, root, "host", example) {
        let shape = Shape { what: "a host", params: HOST, kind: None, besides: &[] };
        let (_, values) = decoder.table(&shape, item, &key);
        check_name(decoder, item, &key, hosts.iter().map(|host| &host.name));
        let mut wrong = |name: &str, fault: Fault| {
            let mark = &item.get(name).unwrap_or(item).mark;
            decoder.report(mark, &join(&key, name), fault);
        };
        let at = values.given::<String>("at").and_then(|text| {
            let at = At::parse(&text);
            if at.is_none() {
                let found = format!("`{text}` is not an agent");
                wrong("at", Fault::new(found, "write \"10.0.0.1:7400\", or \"here\""));
            }
            at
        });
        let data = values.given::<String>("data").and_then(|text| {
            let data = text.parse().ok();
            if data.is_none() {
                let found = format!("`{text}` is not an address");
                wrong("data", Fault::new(found, "write one without a port, like \"10.0.0.1\""));
            }
            data
        });
        let token = values.given::<String>("token-file").and_then(|path| {
            token(library, &path).map_err(|fault| wrong("token-file", fault)).ok()
        });
        // A host with errors still has a name, so that flows to it are not errors as well.
        let name = values.given("name").unwrap_or_default();
        hosts.push(Host { name, at: at.unwrap_or(At::Here), data, token });
    }
    hosts
}

fn token(library: &dyn Library, path: &str) -> Result<String, Fault> {
    let right = "name a file with the agent's token";
    let file = library.open(path).map_err(|error| Fault::new(error, right))?;
    let mut text = String::new();
    let read = file.take(TOKEN_LEN_MAX as u64 + 2).read_to_string(&mut text);
    read.map_err(|error| Fault::new(format!("cannot read `{path}`: {error}"), right))?;
    let token = text.trim_end();
    check_token(token).map_err(|error| Fault::new(format!("`{path}`: {error}"), right))?;
    Ok(token.to_owned())
}

fn flows(decoder: &mut Decoder<'_>, root: &Item, hosts: &[Host], seed: u64) -> Vec<Flow> {
    let example = "[[flow]], and below it name, from, to, size, rate and duration";
    let mut flows: Vec<Flow> = Vec::new();
    for (key, item) in tables(decoder, root, "flow", example) {
        let besides = &["size", "packets"];
        let shape = Shape { what: "a flow", params: FLOW, kind: None, besides };
        let before = decoder.reporter.len();
        let (_, values) = decoder.table(&shape, item, &key);
        check_name(decoder, item, &key, flows.iter().map(|flow| &flow.name));
        let ends = ["from", "to"].map(|which| end(decoder, item, &key, hosts, which));
        let format = match values.given::<String>("format").as_deref() {
            Some("aal5") => Format::Aal5,
            _ => Format::Udp,
        };
        let size = item.get("size").map(|size| sizes(decoder, size, &join(&key, "size")));
        let drawn = item.get("traffic").map(|place| {
            let kind = values.given::<Nested>("traffic")?;
            let drawn = stored::packets(&kind, &values, format, seed, decoder.library);
            let drawn = drawn.and_then(|drawn| match pace_given(item).next() {
                Some(name) => Err(Fault::new(format!("`{name}` beside `traffic`"), ALONE)),
                None => Ok(drawn),
            });
            let report = |fault| decoder.report(&place.mark, &join(&key, "traffic"), fault);
            drawn.map_err(report).ok()
        });
        if let Some(stored) = drawn {
            if let (Some(stored), [Some(from), Some(to)]) = (stored, ends) {
                let name = values.given("name").unwrap_or_default();
                flows.push(Flow {
                    name,
                    from,
                    to,
                    traffic: stored::traffic(stored, &values, format),
                });
            }
            continue;
        }
        if size.is_none() {
            let fault = Fault::new("a flow lacks `size`", "add size = \"1500 B\"");
            decoder.report(&item.mark, &key, fault);
        }
        let pace = pace(decoder, item, &key, &values);
        let pattern = pattern(decoder, item, &key, &values);
        let (Some(Some(size)), Some(pace), Some(pattern), [Some(from), Some(to)]) =
            (size, pace, pattern, ends)
        else {
            continue;
        };
        let traffic = Traffic {
            size,
            pace,
            pattern,
            format,
            start: values.given("start").unwrap_or(Duration::ZERO),
            duration: values.given("duration"),
            count: values.given("count"),
            offload: values.given("offload").unwrap_or(true),
            stored: Vec::new(),
        };
        if decoder.reporter.len() == before
            && let Err(error) = traffic.check()
        {
            refuse(decoder, item, &key, error);
        }
        let name = values.given("name").unwrap_or_default();
        flows.push(Flow { name, from, to, traffic });
    }
    flows
}

/// The host that `which` names.
fn end(
    decoder: &mut Decoder<'_>,
    item: &Item,
    key: &str,
    hosts: &[Host],
    which: &str,
) -> Option<usize> {
    let name = item.text(which)?;
    let found = hosts.iter().position(|host| host.name == name);
    if found.is_none() {
        let mut names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        names.retain(|name| !name.is_empty());
        names.dedup();
        let right = format!("the hosts are {}", names.join(", "));
        let fault = Fault::unknown(format!("there is no host `{name}`"), right, name, names);
        decoder.report(&item.get(which)?.mark, &join(key, which), fault);
    }
    found
}

const SIZES: &str = "write \"1500 B\", [\"64 B\", \"1500 B\"], [[\"64 B\", 7], [\"1500 B\", 1]] \
                     or { uniform = [\"64 B\", \"1500 B\"] }";

fn sizes(decoder: &mut Decoder<'_>, item: &Item, key: &str) -> Option<Sizes> {
    let one = |decoder: &mut Decoder<'_>, item: &Item| match decoder.value(
        ParamKind::PACKET,
        item,
        key,
    )? {
        Value::Size(Bytes(size)) => u32::try_from(size).ok(),
        _ => None,
    };
    match &item.content {
        Content::List(items) if items.iter().all(|item| !item.is_list()) && !items.is_empty() => {
            let sizes: Vec<_> = items.iter().map(|item| one(decoder, item)).collect();
            sizes.into_iter().collect::<Option<_>>().map(Sizes::InTurn)
        }
        Content::List(_) => match decoder.value(ParamKind::Sizes, item, key)? {
            Value::Sizes(sizes) => {
                let pair = |(Bytes(size), weight)| {
                    Some((u32::try_from(size).ok()?, u32::try_from(weight).ok()?))
                };
                sizes.into_iter().map(pair).collect::<Option<_>>().map(Sizes::Weighted)
            }
            _ => None,
        },
        Content::Table(entries) => match entries.as_slice() {
            [Entry { key: name, item: Item { content: Content::List(pair), .. }, .. }]
                if name == "uniform" && pair.len() == 2 =>
            {
                let (low, high) = (one(decoder, &pair[0]), one(decoder, &pair[1]));
                Some(Sizes::Between(low?, high?))
            }
            _ => {
                let fault = Fault::new("this is not a distribution of sizes", SIZES);
                decoder.report(&item.mark, key, fault);
                None
            }
        },
        _ => one(decoder, item).map(|size| Sizes::InTurn(vec![size])),
    }
}

const ALONE: &str =
    "write one of them: `traffic` brings sizes and times, and needs only `duration`";

/// What is said about sizes and times besides `traffic`.
fn pace_given(item: &Item) -> impl Iterator<Item = &'static str> {
    let names = ["size", "rate", "packets", "fastest", "pattern", "on", "off"];
    names.into_iter().filter(|name| item.get(name).is_some())
}

const PACES: &str = "write rate = \"1 Gbit/s\", packets = \"900 kpps\" or fastest = true";

fn pace(decoder: &mut Decoder<'_>, item: &Item, key: &str, values: &Values) -> Option<Pace> {
    let said: Vec<&str> = ["rate", "packets", "fastest"]
        .into_iter()
        .filter(|&name| {
            item.get(name).is_some_and(|item| !matches!(item.content, Content::Flag(false)))
        })
        .collect();
    match said.as_slice() {
        ["rate"] => values.given("rate").map(Pace::Rate),
        ["fastest"] => values.given("fastest").and_then(|yes: bool| yes.then_some(Pace::Fastest)),
        [_] => match quantity(item.get("packets")?) {
            Ok(rate) => Some(Pace::Packets(rate)),
            Err(fault) => {
                decoder.report(&item.get("packets")?.mark, &join(key, "packets"), fault);
                None
            }
        },
        [] => {
            let fault = Fault::new("the flow has no rate", PACES);
            decoder.report(&item.mark, key, fault);
            None
        }
        [_, second, ..] => {
            let fault = Fault::new("the flow gives two rates", PACES);
            decoder.report(&item.get(second)?.mark, &join(key, second), fault);
            None
        }
    }
}

fn pattern(decoder: &mut Decoder<'_>, item: &Item, key: &str, values: &Values) -> Option<Pattern> {
    let (on, off) = (values.given("on"), values.given("off"));
    let bursts = match values.given::<String>("pattern")?.as_str() {
        "on-off" => true,
        "poisson" if on.is_none() && off.is_none() => return Some(Pattern::Poisson),
        "periodic" if on.is_none() && off.is_none() => return Some(Pattern::Periodic),
        _ => false,
    };
    if let (true, Some(on), Some(off)) = (bursts, on, off) {
        return Some(Pattern::OnOff { on, off });
    }
    let (name, found) = match bursts {
        true => ("pattern", "on-off traffic requires `on` and `off`"),
        false => (if on.is_some() { "on" } else { "off" }, "the pattern is not on-off"),
    };
    // A value that is not a time has already been reported.
    if !(bursts && item.get("on").is_some() && item.get("off").is_some()) {
        let right = "write pattern = \"on-off\", on = \"1 ms\" and off = \"9 ms\"";
        let mark = &item.get(name).unwrap_or(item).mark;
        decoder.report(mark, &join(key, name), Fault::new(found, right));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Rate;
    use lastmeter_lab::library::Builtin;

    const HEAD: &str =
        "[[host]]\nname = \"a\"\nat = \"here\"\n[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"a\"\n";

    fn read(flow: &str) -> Result<Plan, Vec<Problem>> {
        plan("plan.toml", format!("{HEAD}{flow}\n").as_bytes(), &Builtin)
    }

    #[test]
    fn every_form_of_a_flow_is_parsed() {
        let of = |flow: &str| read(flow).expect(flow).flows.remove(0).traffic;
        let plain = of("size = \"1500 B\"\nrate = \"1 Gbit/s\"\nduration = \"2 s\"");
        assert_eq!(plain.pace, Pace::Rate(Rate::from_gbit(1)));
        assert_eq!((plain.size, plain.pattern), (Sizes::InTurn(vec![1500]), Pattern::Periodic));
        let turn = of("size = [\"64 B\", \"1500 B\"]\npackets = \"900 kpps\"\ncount = 5");
        assert_eq!(turn.size, Sizes::InTurn(vec![64, 1500]));
        let drawn = of("size = [[\"64 B\", 7], [\"1500 B\", 1]]\nfastest = true\ncount = 5");
        assert_eq!(drawn.size, Sizes::Weighted(vec![(64, 7), (1500, 1)]));
        assert_eq!(drawn.pace, Pace::Fastest);
        let bursts = "pattern = \"on-off\"\non = \"1 ms\"\noff = \"9 ms\"";
        let range = "size = { uniform = [\"64 B\", \"9180 B\"] }\nformat = \"aal5\"\n";
        let cells = of(&format!("{range}rate = \"1 Gbit/s\"\nduration = \"1 s\"\n{bursts}"));
        assert_eq!((cells.format, cells.size), (Format::Aal5, Sizes::Between(64, 9180)));
        let (on, off) = (Duration::from_ms(1), Duration::from_ms(9));
        assert_eq!(cells.pattern, Pattern::OnOff { on, off });
    }

    /// The traffic of models between real sockets: tcplib's conversations (A-145), and the packets of a
    /// capture (E-52), each packet with its own time and size.
    #[test]
    fn a_145_and_e_52_packets_of_a_model_and_of_a_capture_are_sent() {
        let head = "[[host]]\nname = \"a\"\nat = \"here\"\n";
        let flow = |name: &str, rest: &str| {
            format!("[[flow]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"a\"\n{rest}\n")
        };
        let drawn = "count = 400\ntraffic = { tcplib = { every = \"2 ms\", rate = \"5 Mbit/s\" } }";
        let capture =
            "traffic = { replay = { capture = \"../../examples/captures/mixed.pcapng\" } }";
        let text = [
            head,
            &flow("drawn", drawn),
            &flow("recorded", &format!("duration = \"700 ms\"\n{capture}")),
        ]
        .concat();
        let plan = plan("plan.toml", text.as_bytes(), &Builtin).unwrap();
        let [drawn, recorded] = [0, 1].map(|at| &plan.flows[at].traffic);
        assert_eq!((drawn.stored.len(), drawn.pace), (400, Pace::Stored));
        // Full segments of 552 bytes, and keystrokes, which are sent with the least size.
        let full = drawn.stored.iter().filter(|&&(_, size)| size == 552).count();
        assert!(full > 40 && drawn.stored.iter().any(|&(_, size)| size == 60), "{full}");
        let control = std::sync::Arc::new(lastmeter_engine::Control::default());
        let outcome = lastmeter_live::blast::run(&plan, &control, &|_| {}).unwrap();
        for (flow, traffic) in outcome.flows.iter().zip([drawn, recorded]) {
            assert_eq!(flow.sent, traffic.stored.len() as u64, "{}", flow.name);
            assert_eq!((flow.received, flow.lost), (flow.sent, Some(0)), "{}", flow.name);
        }
    }

    #[test]
    fn traffic_of_a_model_is_refused_beside_a_size_and_where_blast_has_its_own() {
        let said = |flow: &str| {
            let problems = read(flow).unwrap_err();
            problems.iter().map(|one| format!("{} {}", one.found, one.right)).collect::<String>()
        };
        let tcplib = "traffic = { tcplib = { every = \"2 ms\", rate = \"5 Mbit/s\" } }";
        assert!(said(&format!("count = 5\nsize = \"64 B\"\n{tcplib}")).contains("`size` beside"));
        assert!(said(tcplib).contains("more than 100000 packets"));
        let other = "count = 5\ntraffic = { poisson = { rate = \"1 Mbit/s\", size = \"99 B\" } }";
        assert!(said(other).contains("write tcplib, replay"));
        let lost = "traffic = { replay = { capture = \"nowhere.pcap\" } }";
        assert!(said(lost).contains("no such built-in file"));
    }

    /// N-44: the preset of files sends the same load in files of everyday sizes and of a supercomputer's, which come in
    /// bursts a hundred times as long.
    #[test]
    fn n_44_the_preset_of_files_has_bursts_of_their_sizes() {
        let text = include_bytes!("../../../../experiments/atomic2-services/blast.toml");
        let mut plan = plan("blast.toml", text, &Builtin).unwrap();
        let sent = |at: usize| {
            let stored = &plan.flows[at].traffic.stored;
            let bytes: u64 = stored.iter().map(|&(_, size)| u64::from(size)).sum();
            // A silence of more than a millisecond ends a file.
            let files = 1 + stored.iter().skip(1).filter(|&&(gap, _)| gap > 1_000_000).count();
            (bytes, files)
        };
        assert_eq!([sent(0), sent(1)], [(20_000_000, 200), (20_000_000, 2)]);
        // A tenth of it between real sockets.
        for flow in &mut plan.flows {
            flow.traffic.duration = Some(Duration::from_ms(100));
            flow.traffic.start = Duration::ZERO;
        }
        let control = std::sync::Arc::new(lastmeter_engine::Control::default());
        let outcome = lastmeter_live::blast::run(&plan, &control, &|_| {}).unwrap();
        let everyday = &outcome.flows[0];
        assert!(everyday.sent >= 10 * 67 && everyday.received > 0, "{}", everyday.sent);
    }
}
