//! A host as a node: how experiments describe it, and the stages between its applications and its links.
//!
//! ```text
//! applications <--> links                                              without a profile
//! applications <-- [ one CPU, commands, adapter ] <-- link i           with a way to receive
//! applications <--> [ machine ] <--> links                             with a profile
//! ```

use crate::assembly::{FROM_APPLICATIONS, FROM_LINKS, TO_APPLICATIONS, TO_LINKS, of_profile};
use crate::element::Host;
use crate::profile::{Profile, StageProfile};
use crate::receive;
use lastmeter_base::kind::{Family, Kind, Misfit, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{Cost, Duration, PerByte, here, one_way};
use lastmeter_engine::site::{Applications, Between, HostKind, Inputs, Site};
use lastmeter_engine::{ElementId, Error, PortId, ResourceKind};
use lastmeter_net::plugin;

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "host",
    family: Family::Node,
    what: "A computer that sends and receives; without a profile, its processing takes no time.",
    ports: "applications <--> host <--> links",
    params: &[
        Param::optional("profile", ParamKind::Profile("hosts"), "an ideal host")
            .is("the kind of host, with its processors and buses"),
        Param::optional(
            "adapter",
            ParamKind::Profile("adapters"),
            "whatever the host's profile has",
        )
        .is("its network adapter, whose stages are between those of the host and the links"),
        Param::optional("message", ParamKind::BUFFER, "each packet is a message").is(
            "how much its applications send or read at once; a stage's cost per message is spread \
             over that many bytes",
        ),
        Param::optional(
            "reception",
            ParamKind::Nested(Family::Reception),
            "receiving costs what the profile says, in its order",
        )
        .is("how it receives: with interrupts, by polling, or in between; only in models. With a \
             profile, this schedules its receive stages, at their costs"),
        Param::or("live", ParamKind::Flag, "false").is(
            "whether `lastmeter live` makes it a network namespace in which programs run; in a \
             model, the file's traffic from or to it represents theirs",
        ),
        Param::optional(
            "address",
            ParamKind::Text,
            "10.77.0.1/24 for the first live host, 10.77.0.2/24 for the second, and so on",
        )
        .is("its IPv4 address and prefix length, when live"),
        Param::optional(
            "dscp",
            ParamKind::Integers { min: 0, max: 63 },
            "all its packets have class 0",
        )
        .is("the code point of class 0, 1, ... of its packets, when live; those with any other \
             have the class after the last"),
        plugin::OF_HOST[0],
        plugin::OF_HOST[1],
        plugin::OF_HOST[2],
        plugin::OF_HOST[3],
    ],
    deviations: &["It forwards nothing; routers do."],
    counters: &[("received", "packets received")],
    drops: &[
        ("full", "packets that a stage of its profile had no room for"),
        ("no route", "packets to a destination that none of its links leads to"),
        ("no receiver", "packets of flows without a receiver on this host"),
        ("denied", "packets that its plugin denied, or could not decide about"),
    ],
    example: one_way! {
        "10 ms", "alice" [] "bob",
        [r#"rate = "1 Gbit/s""#],
        "both ways" [r#"request = { size = "100 B", response = "1000 B", window = 4 }"#]
    },
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind { page: PAGE, fit, maker: &HostKind { build } };

fn fit(values: &Values) -> Result<(), Misfit> {
    plugin::fit_host(values)?;
    if values.has("dscp") && values.given("live") != Some(true) {
        let found = "packets of a host that is not live have no code points".to_owned();
        return Err(Misfit::new("dscp", found, "add live = true, or leave it out"));
    }
    if let Some(way) = values.given::<Nested>("reception").filter(|_| values.has("profile")) {
        return receive::kind::fit_profile(&way);
    }
    let without = ["adapter", "message"].into_iter().find(|name| values.has(name));
    match without.filter(|_| !values.has("profile")) {
        None => Ok(()),
        Some(name) => {
            let found = format!("a host without a profile has no costs, and no `{name}`");
            Err(Misfit::new(name, found, "give the host a profile, too: profile = \"...\""))
        }
    }
}

/// The parameter that names the outermost of a host's profiles; the others are read as part of it.
pub fn profiled(values: &Values) -> Option<&'static str> {
    ["adapter", "profile"].into_iter().find(|param| values.has(param))
}

fn build(
    values: &Values,
    site: &mut Site<'_>,
    applications: Applications,
) -> Result<Between, Error> {
    let receives = applications.receive && !applications.live;
    let plugin = if receives { plugin::of_host(values, site)? } else { None };
    let cost = plugin.as_ref().map(|plugin| plugin.cost);
    let between = stages(values, site, applications, cost)?;
    let Some(plugin) = plugin else { return Ok(between) };
    let element = plugin.add(site, !values.has("profile"))?;
    let to = (element, PortId(0));
    let inputs = match between.receive {
        None => Inputs::One(to),
        Some((inputs, outputs)) => {
            for (from, port) in outputs {
                site.graph.connect(from, port, to.0, to.1)?;
            }
            inputs
        }
    };
    Ok(Between { receive: Some((inputs, vec![to])), send: between.send })
}

/// A host with a last receive stage for the plugin, on the processor of the stage before it.
fn with_plugin(profile: &Profile, cost: Duration) -> Result<Profile, Error> {
    let last = profile.receive.iter().rev().find(|stage| {
        let on = profile.resources.iter().find(|resource| resource.name == stage.resource);
        on.is_some_and(|resource| resource.kind == ResourceKind::Cpu)
    });
    let last = last.ok_or_else(|| "no receive stage of its profile runs on a processor".to_owned());
    let stage = StageProfile {
        name: plugin::STAGE.to_owned(),
        cost: Cost { per_packet: cost, per_byte: PerByte::ZERO },
        per_message: Duration::ZERO,
        per_pdu: Duration::ZERO,
        random: None,
        batch: false,
        interrupts: 0,
        buses: Vec::new(),
        copies: 0,
        touches: 0,
        queue: None,
        source: "the cost of the plugin".to_owned(),
        ..last?.clone()
    };
    let mut profile = profile.clone();
    profile.receive.push(stage);
    Ok(profile)
}

/// All of a host but its plugin, which costs each packet so much.
fn stages(
    values: &Values,
    site: &mut Site<'_>,
    applications: Applications,
    plugin: Option<Duration>,
) -> Result<Between, Error> {
    let Applications { receive, live, links } = applications;
    let way = values.given::<Nested>("reception").filter(|_| receive && !live);
    let Some(param) = profiled(values) else {
        return way.map_or(Ok(Between::default()), |way| receiving(site, &way, links));
    };
    let mut profile = site.profile::<Profile>(param)?;
    if let Some(cost) = plugin {
        profile = with_plugin(&profile, cost)?.into();
    }
    let way = way.as_ref().map(|way| (way, links));
    let machine = of_profile(site, &profile, values.given("message"), way)?;
    let host = site.graph.add(format!("{} works", site.name), Host::new(machine))?;
    let inputs = match way {
        Some((_, links)) => each(host, FROM_LINKS, links),
        None => Inputs::One((host, FROM_LINKS)),
    };
    let (sends, receives) = (!profile.send.is_empty(), !profile.receive.is_empty());
    Ok(Between {
        send: sends.then_some(((host, FROM_APPLICATIONS), (host, TO_LINKS))),
        receive: receives.then(|| (inputs, vec![(host, TO_APPLICATIONS)])),
    })
}

/// Reception on a host without a profile.
fn receiving(site: &mut Site<'_>, way: &Nested, links: usize) -> Result<Between, Error> {
    let cpu = site.resource("cpu", ".cpu", ResourceKind::Cpu);
    let reception = receive::site::reception(site, way, (&cpu, links), None);
    let machine = receive::alone(cpu.id, reception);
    let host = site.graph.add(format!("{} takes", site.name), Host::new(machine))?;
    let outputs = (0..links as u16).map(|link| (host, PortId(link))).collect();
    Ok(Between { send: None, receive: Some((each(host, PortId(0), links), outputs)) })
}

fn each(host: ElementId, first: PortId, links: usize) -> Inputs {
    Inputs::Each((first.0..).take(links).map(|link| (host, PortId(link))).collect())
}
