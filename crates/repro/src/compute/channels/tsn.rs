//! The scheduler of real-time channels beside the shapers of time-sensitive networking, on the same
//! traffic (E-22, E-95): FIFO, strict priority, credit-based (802.1Qav), time-aware (802.1Qbv).

use super::super::vunet::{counters, parse, run};
use super::super::{Computed, Setting};
use super::spread::{Spread, seeds};
use crate::Error;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_engine::{Outcome, PathBook};
use lastmeter_transport::channel::contract::Contract;

const NETWORK: &str = include_str!("../../../../../experiments/channels/experiment.toml");
const PROMISES: &str = "queue = { edd = {} }";
const FIFO: &str = "queue = { drop-tail = { packets = 1000 } }";
/// How many of the network's links are those of hosts.
const HOSTS: usize = 2;
const MESSAGES: &str = "% of messages";

/// What a run showed.
struct Seen {
    outcome: Outcome,
}

impl Seen {
    fn book(&self, class: &str) -> &PathBook {
        let at = self.outcome.paths.iter().position(|path| path.class == class);
        &self.outcome.books.paths[at.expect("the network has this traffic")]
    }
    /// Percent of the messages of some traffic that were late or lost. Those that are on their way at the
    /// end are not due yet.
    fn missed(&self, classes: &[&str]) -> f64 {
        let books = || classes.iter().map(|class| &self.book(class).deadlines);
        let made: u64 = books().map(|of| of.made).sum();
        let met: u64 = books().map(|of| of.met).sum();
        let late: u64 = books().map(|of| of.late).sum();
        let lost: u64 = classes.iter().map(|class| self.book(class).dropped_total().packets).sum();
        100.0 * (late + lost.min(made - met - late)) as f64 / made.max(1) as f64
    }
    /// The mean difference of latency from packet to packet, in microseconds.
    fn jitter(&self, class: &str) -> f64 {
        self.book(class).variation.mean() * 1e6
    }
    /// The longest latency, in microseconds.
    fn worst(&self, class: &str) -> f64 {
        self.book(class).latency.max().as_secs_f64() * 1e6
    }
}

const ALL: [&str; 4] = ["control", "sound", "film", "rival film"];

/// Runs the network with these queues at hosts and at switches, each with its place on the way.
fn seen(
    seed: u64,
    hosts: &dyn Fn(usize) -> String,
    switches: &dyn Fn(usize) -> String,
) -> Result<Seen, Error> {
    let mut text = String::new();
    let mut parts = NETWORK.split(PROMISES);
    text += parts.next().unwrap_or("");
    let mut promised = true;
    for (link, part) in parts.enumerate() {
        // The links of hosts come first on the way, then switch by switch.
        let queue = if link < HOSTS { hosts(0) } else { switches(link + 1 - HOSTS) };
        promised &= queue.contains("edd");
        text += &queue;
        text += part;
    }
    if !promised {
        text = text.replace("promised = true", "promised = false");
    }
    let experiment = parse(&text, &[format!("seed={seed}"), "duration=500 ms".to_owned()])?;
    Ok(Seen { outcome: run(&experiment, true)? })
}

/// The rows of the comparison.
pub(in super::super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut spread = Spread::default();
    for seed in seeds(setting) {
        compare(setting, seed, &mut spread)?;
        end_stations(setting, seed, &mut spread)?;
        seven_hops(setting, seed, &mut spread)?;
    }
    Ok(spread.computed())
}

fn shaped(setting: &Setting<'_>) -> Result<impl Fn(usize) -> String + use<>, Error> {
    let rate = |name: &str| setting.constants.get::<Rate>(name);
    let (a, b) = (rate("slope_a")?, rate("slope_b")?);
    let text = format!("queue = {{ cbs = {{ a = \"{a}\", b = \"{b}\" }} }}");
    Ok(move |_: usize| text.clone())
}

fn gated(setting: &Setting<'_>) -> Result<impl Fn(usize) -> String + use<>, Error> {
    let time = |name: &str| setting.constants.get::<Duration>(name);
    let (cycle, first, second) = (time("cycle")?, time("window_0")?, time("window_1")?);
    let offset = time("offset")?;
    Ok(move |place: usize| {
        let (offset, until) = (offset * place as u64, first + second);
        format!(
            "queue = {{ time-aware = {{ cycle = \"{cycle}\", offset = \"{offset}\", \
             gate-0 = [[\"0 us\", \"{first}\"]], gate-1 = [[\"{first}\", \"{until}\"]] }} }}"
        )
    })
}

/// Every link with the same discipline.
fn compare(setting: &Setting<'_>, seed: u64, spread: &mut Spread) -> Result<(), Error> {
    let id = "E-22";
    let (cbs, gates) = (shaped(setting)?, gated(setting)?);
    let same = |text: &'static str| move |_: usize| text.to_owned();
    let fifo = seen(seed, &same(FIFO), &same(FIFO))?;
    let priority = "queue = { priority = { levels = 3 } }";
    let priority = seen(seed, &same(priority), &same(priority))?;
    let credit = seen(seed, &cbs, &cbs)?;
    let timed = seen(seed, &gates, &gates)?;
    let channels = seen(seed, &same(PROMISES), &same(PROMISES))?;
    spread.add(id, "channels: missed", channels.missed(&ALL), MESSAGES);
    spread.holds(id, "FIFO: more than half of control missed", fifo.missed(&ALL[..1]) > 50.0);
    spread.add(id, "strict priority: control missed", priority.missed(&ALL[..1]), MESSAGES);
    spread.add(id, "credit-based: control and sound missed", credit.missed(&ALL[..2]), MESSAGES);
    spread.add(id, "credit-based: films missed", credit.missed(&ALL[2..]), MESSAGES);
    spread.add(id, "time-aware: missed", timed.missed(&ALL), MESSAGES);
    spread.add(id, "time-aware: control, jitter", timed.jitter("control"), "us");
    let least = timed.jitter("control");
    let others = [&priority, &credit, &channels].map(|seen| seen.jitter("control"));
    let item = "time-aware: least jitter of control";
    spread.holds(id, item, others.iter().all(|&jitter| jitter >= least));
    spread.add(id, "time-aware: control, worst", timed.worst("control"), "us");
    spread.add(id, "strict priority: control, worst", priority.worst("control"), "us");
    spread.holds(
        id,
        "time-aware: the least for files",
        ["files", "rival files"].iter().all(|class| {
            let bytes = |seen: &Seen| seen.book(class).delivered.bytes;
            [&priority, &credit, &channels].iter().all(|seen| bytes(seen) > bytes(&timed))
        }),
    );
    let most = counters(&credit.outcome, "->", "a_credit_most").into_iter().max().unwrap_or(0);
    spread.add(id, "credit-based: greatest credit of A", most as f64, "bit");
    let least = counters(&credit.outcome, "->", "a_credit_least").into_iter().max().unwrap_or(0);
    spread.add(id, "credit-based: greatest debt of A", least as f64, "bit");
    // The film's contract as a talker declares it to a network of 802.1Q.
    let film = Contract {
        message_max: Bytes(15_000),
        interval_min: Duration::from_ms(8),
        burst_max: 3,
        packet_max: Bytes(1500),
        deadline: Duration::from_ms(20),
    };
    spread.add(
        "E-22",
        "a film as TSpec: MaxFramesPerInterval",
        film.tspec().frames_max as f64,
        "frames",
    );
    Ok(())
}

/// The half that is missing: shapers in the switches, and in the end stations whatever they have.
fn end_stations(setting: &Setting<'_>, seed: u64, spread: &mut Spread) -> Result<(), Error> {
    let id = "E-95";
    let (cbs, gates) = (shaped(setting)?, gated(setting)?);
    let same = |text: &'static str| move |_: usize| text.to_owned();
    let missed = |hosts: &'static str, switches: &dyn Fn(usize) -> String| -> Result<f64, Error> {
        Ok(seen(seed, &same(hosts), switches)?.missed(&ALL[..2]))
    };
    let item = "credit-based switches, FIFO in the hosts: control and sound missed";
    spread.holds(id, item, missed(FIFO, &cbs)? > 1.0);
    let item = "time-aware switches, FIFO in the hosts: control and sound missed";
    spread.holds(id, item, missed(FIFO, &gates)? > 1.0);
    let item = "credit-based switches, channels in the hosts: control and sound missed";
    spread.add(id, item, missed(PROMISES, &cbs)?, MESSAGES);
    Ok(())
}

/// Class A over seven hops of 100 Mbit/s, each shared with floods and with class A of others (802.1BA).
fn seven_hops(setting: &Setting<'_>, seed: u64, spread: &mut Spread) -> Result<(), Error> {
    let hops: usize = setting.constants.get::<u64>("hops")? as usize;
    let slope: Rate = setting.constants.get("slope_hops")?;
    let queue = format!(
        "rate = \"100 Mbit/s\"\nframing = \"24 B\"\nqueue = {{ cbs = {{ a = \"{slope}\" }} }}\n"
    );
    let mut text = "duration = \"300 ms\"\n[nodes]\n".to_owned();
    text += "talker = { host = {} }\nlistener = { host = {} }\n";
    for n in 1..hops {
        text += &format!("s{n} = {{ router = {{}} }}\n");
        text += &format!("from{n} = {{ host = {{}} }}\nto{n} = {{ host = {{}} }}\n");
    }
    let way: Vec<String> = (1..hops).map(|n| format!("\"s{n}\"")).collect();
    text +=
        &format!("[[links]]\nbetween = [\"talker\", {}, \"listener\"]\n{queue}", way.join(", "));
    for n in 1..hops {
        for host in ["from", "to"] {
            text += &format!("[[links]]\nbetween = [\"{host}{n}\", \"s{n}\"]\n{queue}");
        }
    }
    let (stream, flood) = (
        "constant = { rate = \"6 Mbit/s\", size = \"94 B\" }",
        "class = 2\npoisson = { rate = \"95 Mbit/s\", size = \"1500 B\" }",
    );
    let mut add = |name: String, from: String, to: String, what: &str| {
        text += &format!("[[traffic]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\n");
        text += &format!("phase = \"random\"\n{what}\n");
    };
    add("stream".into(), "talker".into(), "listener".into(), stream);
    add("flood".into(), "talker".into(), "to1".into(), flood);
    for n in 1..hops {
        let next = if n + 1 < hops { format!("to{}", n + 1) } else { "listener".to_owned() };
        add(format!("stream {n}"), format!("from{n}"), next.clone(), stream);
        add(format!("flood {n}"), format!("from{n}"), next, flood);
    }
    let experiment = parse(&text, &[format!("seed={seed}")])?;
    let seen = Seen { outcome: run(&experiment, true)? };
    spread.add("E-22", "class A over seven hops, worst", seen.worst("stream") / 1e3, "ms");
    Ok(())
}
