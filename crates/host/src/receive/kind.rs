//! The ways to receive that an experiment can name: `host = { reception = { backoff = {} } }`.
//!
//! To add one, write its policy, and a line in [`KINDS`]. All ways share the costs of the host and of the
//! interface. A profile provides both ([`Division`]); without one, the defaults are Table 7.2 of Indiresan 1997
//! with `Load = 1000`, and the assumptions of `experiments/livelock`.

use super::admission::EarlyDrop;
use super::backoff::{Backoff, Parameters};
use super::dim::{Coalescing, Dim, Mode};
use super::division::Division;
use super::explicit::Explicit;
use super::interrupt::Interrupt;
use super::lazy::Lazy;
use super::napi::{self, Deferral, Moderation, Napi};
use super::polling::Polling;
use super::shares::Shares;
use super::suspension::{self, Suspension};
use super::timed::Timed;
use super::{Commands, Costs, InterfaceOptions, Policy, Scheduling};
use lastmeter_base::kind::{Family, Kind, Misfit, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{Duration, here};

/// Makes the policy of a way to receive.
pub struct Maker(pub fn(&Values) -> Box<dyn Policy>);

const TIME: ParamKind = ParamKind::Time;
const PACKETS: ParamKind = ParamKind::Integer { min: 1, max: 1 << 20 };
const PORTS: &str =
    "links --> [adapter] --commands--> one CPU: interrupts, protocol --> application";

/// Costs of reception on a host without a profile, and the parameters that override them.
macro_rules! costs {
    ($($field:ident: $us:literal, $name:literal, $profile:literal, $what:literal;)*) => {
        /// Table 7.2 of Indiresan 1997 with `Load = 1000`, and the assumptions of `experiments/livelock`: `C_ri`
        /// in halves, and a tenth of it to find the socket. The values are repeated here from
        /// `profiles/constants/livelock.toml` because the pages show them; a test compares the two.
        pub const DEFAULT: Costs = Costs { $($field: Duration::from_us($us)),* };
        const COSTS: &[Param] = &[$(
            Param::optional($name, TIME, concat!($us, " us; ", $profile)).is($what)
        ),*];
    };
}
costs! {
    interrupt: 28, "interrupt", "with a profile, its value",
        "to enter and leave an interrupt handler";
    switch: 20, "switch", "with a profile, 0 s", "to switch to a polling thread and back";
    wake: 0, "wake", "with a profile, 0 s", "to wake the application when its queue was empty";
    accept: 200, "accept", "with a profile, its value",
        "protocol work with a packet's first command";
    demultiplex: 40, "demultiplex", "with a profile, 0 s",
        "the part of accept and protocol that finds the socket";
    protocol: 200, "protocol", "with a profile, its value",
        "protocol work with a packet's last command";
    application: 347, "application", "with a profile, its value",
        "the application's processing of a packet";
    cache_miss: 90, "cache-miss", "with a profile, its value",
        "the saving on that if no reception came in between";
    look: 0, "look", "with a profile, 0 s", "cost of polling an empty interface";
}

/// Parameters that a host's profile determines.
const OF_PROFILES: &[&str] = &["accept", "protocol", "application", "cache-miss", "commands"];
/// Default capacity of an adapter or its ring, and of the host's receive buffers, in packets.
pub const BUFFERS: u64 = 128;
/// From acceptance into the memory of a host without a profile: 256 words of 100 ns, by VME DMA.
pub const TRANSFER: Duration = Duration::from_us(26);

/// The parameters shared by all ways, then the way's own.
macro_rules! params {
    ($($own:expr),* $(,)?) => {
        &[
            COSTS[0], COSTS[1], COSTS[2], COSTS[3], COSTS[4], COSTS[5], COSTS[6], COSTS[7],
            COSTS[8],
            Param::optional("slice", TIME, "each thread runs until it has nothing to do")
                .is("fair scheduling of threads: each runs for at least this long"),
            Param::optional(
                "commands",
                ParamKind::Choice(&["two", "one"]),
                "two; with a profile, its value, or else one",
            )
            .is("commands per packet: two, and the host provides each buffer, or one, from a ring"),
            Param::optional("adapter-buffers", PACKETS, "the value in its profile, or else 128")
                .is("capacity of the adapter or its ring in packets"),
            Param::or("announced", PACKETS, "16").is("most packets announced to the host at once"),
            Param::optional("buffers", PACKETS, "the value in its profile, or else 128")
                .is("receive buffers of the host"),
            Param::optional("transfer", TIME, "26 us; with a profile, 0 s besides its stages")
                .is("from acceptance of a packet until it is in host memory"),
            Param::or("early-drop", ParamKind::Flag, "true")
                .is("whether a packet without a buffer is refused before protocol processing"),
            Param::or("drop-in-adapter", ParamKind::Flag, "false")
                .is("whether the adapter drops it, at no cost to the host"),
            $($own),*
        ]
    };
}

macro_rules! example {
    ($name:literal) => {
        concat!(
            "duration = \"200 ms\"\n[nodes]\nsource = { host = {} }\n",
            "host = { host = { reception = { ",
            $name,
            " = {} } } }\n[[links]]\nbetween = [\"source\", \"host\"]\nrate = \"100 Mbit/s\"\n\
             [[traffic]]\nname = \"1000 packets/s\"\nfrom = \"source\"\nto = \"host\"\n\
             constant = { rate = \"8 Mbit/s\", size = \"1000 B\" }\n"
        )
    };
}

macro_rules! page {
    ($name:literal, $what:literal, $source:expr, $params:expr) => {
        &Page {
            name: $name,
            family: Family::Reception,
            what: $what,
            ports: PORTS,
            params: $params,
            source: $source,
            deviations: &["Each link of the host is a separate interface; all share one CPU."],
            drops: &[
                ("adapter full", "packets that the adapter or its ring had no room for"),
                ("refused by the adapter", "packets without a buffer, with `drop-in-adapter`"),
                ("refused", "packets without a buffer, with `early-drop`"),
                ("no buffer", "packets without a buffer, after protocol processing"),
            ],
            example: example!($name),
            ..Page::at(here!())
        }
    };
}

const QUOTA_8: Param = Param::or("quota", PACKETS, "8").is("most commands handled in a row");
const QUOTA_60: Param = Param::or("quota", PACKETS, "60").is("most commands handled per interrupt");
const MIN: Param = Param::or("min", TIME, "1 ms").is("the shortest period between interrupts");
const MAX: Param = Param::or("max", TIME, "20 ms").is("the longest period between interrupts");

/// All ways to receive.
pub static KINDS: &[Kind] = &[
    Kind {
        page: page!(
            "interrupts",
            "Reception with an interrupt for each command.",
            "Indiresan 1997, section 7.2.2",
            params!()
        ),
        fit,
        maker: &Maker(|_| Box::new(Interrupt)),
    },
    Kind {
        page: page!(
            "polling",
            "Reception by a thread that polls continuously, alternating with the application.",
            "Indiresan 1997, section 7.2.2",
            params!(QUOTA_8)
        ),
        fit,
        maker: &Maker(|values| Box::new(Polling { quota: values.get("quota") })),
    },
    Kind {
        page: page!(
            "timed-polling",
            "Reception by a polling thread that a periodic clock wakes.",
            "Indiresan 1997, section 7.2.2",
            params!(QUOTA_8, Param::or("period", TIME, "2 ms").is("between clock ticks"))
        ),
        fit,
        maker: &Maker(|values| Box::new(Timed::new(values.get("period"), values.get("quota")))),
    },
    Kind {
        page: page!(
            "explicit",
            "Reception with interrupts that the host disables and enables.",
            "Indiresan 1997, section 7.2.2",
            params!(
                QUOTA_8,
                Param::or("interval", TIME, "2 ms")
                    .is("interrupts are disabled for at most this long")
            )
        ),
        fit,
        maker: &Maker(|values| {
            Box::new(Explicit::new(values.get("quota"), values.get("interval")))
        }),
    },
    Kind {
        page: page!(
            "backoff",
            "Reception with an adapter that interrupts less often while the host is overloaded.",
            "Indiresan 1997, section 7.2.3",
            params!(
                QUOTA_60,
                MIN,
                MAX,
                Param::or("factor", ParamKind::Number { min: 1.001, max: 1000.0 }, "1.5")
                    .is("factor by which the period grows"),
                Param::or("restore", ParamKind::Number { min: 0.001, max: 0.999 }, "0.8")
                    .is("factor by which it shrinks"),
            )
        ),
        fit,
        maker: &Maker(|values| {
            let ratio = |name| ((values.get::<f64>(name) * 1000.0).round() as u64, 1000);
            Box::new(Backoff::new(Parameters {
                period_min: values.get("min"),
                period_max: values.get("max"),
                factor: ratio("factor"),
                restore: ratio("restore"),
                quota: values.get("quota"),
            }))
        }),
    },
    Kind {
        page: page!(
            "shares",
            "Reception that gives each interface its reserved share under overload.",
            "ours, for a question that Indiresan 1997, section 7.4.4, leaves open",
            params!(
                QUOTA_60,
                Param::or("min", TIME, "10 ms").is("the shortest period under overload"),
                MAX,
                Param::or("reservation", TIME, "2 ms")
                    .is("time between packets at each interface's reserved rate"),
            )
        ),
        fit,
        maker: &Maker(|values| {
            let (min, max) = (values.get("min"), values.get("max"));
            Box::new(Shares::new(min, max, values.get("quota")))
        }),
    },
    Kind {
        page: page!(
            "lazy",
            "Reception with protocol processing in the application's context.",
            "Druschel and Banga, OSDI 1996, as described by Indiresan 1997, section 7.1",
            params!(
                Param::or("demultiplexes", ParamKind::Choice(&["software", "adapter"]), "software")
                    .is("what finds the socket; the adapter also drops packets if it is full")
            )
        ),
        fit,
        maker: &Maker(|values| {
            Box::new(match values.get::<String>("demultiplexes").as_str() {
                "software" => Lazy::Software,
                _ => Lazy::Adapter,
            })
        }),
    },
    Kind {
        page: page!(
            "napi",
            "Reception as in Linux: an interrupt starts polling, and is disabled meanwhile.",
            "Linux, net/core/dev.c and Documentation/networking/napi.rst",
            params!(
                Param::or("weight", PACKETS, "64").is("packets per poll"),
                Param::or("budget", PACKETS, "300").is("packets per softirq"),
                Param::or("budget-time", TIME, "2 ms").is("time per softirq"),
                Param::or("threaded", ParamKind::Flag, "false").is("whether a thread polls"),
                Param::or("defer-polls", ParamKind::Integer { min: 0, max: 1000 }, "0")
                    .is("empty polls before interrupts are enabled again"),
                Param::or("defer-interval", TIME, "200 us").is("time between these polls"),
                Param::optional("coalesce-time", TIME, "an interrupt at once")
                    .is("the adapter interrupts this long after the oldest packet"),
                Param::or("coalesce-packets", ParamKind::Integer { min: 0, max: 1 << 20 }, "0")
                    .is("with `coalesce-time`: or when this many packets wait; 0: no such limit"),
            )
        ),
        fit,
        maker: &Maker(|values| Box::new(Napi::new(linux(values)))),
    },
    Kind {
        page: page!(
            "dim",
            "Reception as in Linux, with dynamic interrupt moderation.",
            "Linux, lib/dim",
            params!(
                Param::or("mode", ParamKind::Choice(&["completion", "event"]), "completion")
                    .is("when the coalescing timer starts")
            )
        ),
        fit,
        maker: &Maker(|values| {
            let mode = match values.get::<String>("mode").as_str() {
                "event" => Mode::Event,
                _ => Mode::Completion,
            };
            let moderation = Moderation::Dynamic(mode, Dim::default());
            Box::new(Napi::new(napi::Options { moderation, ..napi::Options::LINUX }))
        }),
    },
    Kind {
        page: page!(
            "suspension",
            "Reception as in Linux, with interrupts suspended while the application polls.",
            "Linux 6.13, Documentation/networking/napi.rst, IRQ suspension",
            params!(
                Param::or("weight", PACKETS, "64").is("packets per poll"),
                Param::or("suspend", TIME, "20 ms").is("longest time without a poll"),
                Param::or("interval", TIME, "200 us")
                    .is("from an empty poll until interrupts are enabled"),
            )
        ),
        fit,
        maker: &Maker(|values| {
            Box::new(Suspension::new(suspension::Options {
                weight: values.get("weight"),
                suspend: values.get("suspend"),
                interval: values.get("interval"),
            }))
        }),
    },
];

fn linux(values: &Values) -> napi::Options {
    let polls = values.get::<u64>("defer-polls") as u32;
    let interval = values.get("defer-interval");
    let packets = values.get("coalesce-packets");
    let coalescing = values.given("coalesce-time").map(|time| Coalescing { time, packets });
    napi::Options {
        weight: values.get("weight"),
        budget: values.get("budget"),
        budget_time: values.get("budget-time"),
        threaded: values.get("threaded"),
        deferral: (polls > 0).then_some(Deferral { polls, interval }),
        moderation: Moderation::Fixed(coalescing.unwrap_or(Coalescing::NONE)),
    }
}

/// Whether the values of a way fit each other.
///
/// # Errors
/// The first value that does not fit, and what would be right.
pub fn fit(values: &Values) -> Result<(), Misfit> {
    let costs = costs(values, None);
    let at_most = |name: &'static str, is: Duration, most: Duration, of: &str| match is > most {
        true => Err(Misfit::new(name, format!("it exceeds {of}"), "write a smaller value")),
        false => Ok(()),
    };
    let positive = |name: &'static str| match values.given::<Duration>(name) {
        Some(Duration::ZERO) => {
            Err(Misfit::new(name, "a period of zero".to_owned(), "write a time, like \"1 ms\""))
        }
        _ => Ok(()),
    };
    at_most("cache-miss", costs.cache_miss, costs.application, "the application's work")?;
    let receives = costs.accept + costs.protocol;
    at_most("demultiplex", costs.demultiplex, receives, "accept and protocol together")?;
    ["min", "period", "reservation"].into_iter().try_for_each(positive)?;
    match (values.given::<Duration>("min"), values.given("max")) {
        (Some(min), Some(max)) => at_most("min", min, max, "`max`"),
        _ => Ok(()),
    }
}

/// Whether a way to receive sets only what the host's profile does not.
///
/// # Errors
/// The first value that the profile determines, and what would be right.
pub fn fit_profile(described: &Nested) -> Result<(), Misfit> {
    match OF_PROFILES.iter().find(|name| described.values.has(name)) {
        None => Ok(()),
        Some(name) => {
            let found = format!("the host's profile determines `{name}`");
            let right = format!("leave out `{name}`, or `profile`");
            Err(Misfit::new("reception", found, right))
        }
    }
}

/// Costs of receiving a packet, in addition to the stages of the host's profile.
pub fn costs(values: &Values, division: Option<&Division<'_>>) -> Costs {
    let otherwise = division.map_or(DEFAULT, Division::costs);
    let time = |name: &str, otherwise| values.given(name).unwrap_or(otherwise);
    Costs {
        interrupt: time("interrupt", otherwise.interrupt),
        switch: time("switch", otherwise.switch),
        wake: time("wake", otherwise.wake),
        accept: time("accept", otherwise.accept),
        demultiplex: time("demultiplex", otherwise.demultiplex),
        protocol: time("protocol", otherwise.protocol),
        application: time("application", otherwise.application),
        cache_miss: time("cache-miss", otherwise.cache_miss),
        look: time("look", otherwise.look),
    }
}

/// How the host's threads are scheduled.
pub fn scheduling(described: &Nested) -> Scheduling {
    described.values.given("slice").map_or(Scheduling::Cooperative, Scheduling::Fair)
}

/// An interface of the host.
pub fn interface(described: &Nested, division: Option<&Division<'_>>) -> InterfaceOptions {
    let values = &described.values;
    let flag = |name: &str| values.get::<bool>(name);
    let packets =
        |name: &str, profile: Option<u64>| values.given(name).or(profile).unwrap_or(BUFFERS);
    let on_adapter = flag("drop-in-adapter")
        || values.given::<String>("demultiplexes").is_some_and(|who| who == "adapter");
    InterfaceOptions {
        policy: (described.maker::<Maker>().0)(values),
        accepts: flag("early-drop").then(|| Box::new(EarlyDrop) as Box<dyn super::Admission>),
        takes: on_adapter.then(|| Box::new(EarlyDrop) as Box<dyn super::Admission>),
        commands: match values.given::<String>("commands").as_deref() {
            Some("one") => Commands::One,
            Some(_) => Commands::Two,
            None => division.map_or(Commands::Two, Division::commands),
        },
        adapter_buffers: packets("adapter-buffers", division.and_then(Division::adapter_buffers)),
        announced_max: values.get("announced"),
        host_buffers: packets("buffers", division.and_then(Division::buffers)),
        transfer: values.given("transfer").unwrap_or(match division {
            None => TRANSFER,
            Some(_) => Duration::ZERO,
        }),
        reservation: values.given("reservation"),
    }
}
