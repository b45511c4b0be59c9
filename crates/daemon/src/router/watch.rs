//! `lastmeter router watch`: the routers of a network, side by side (N-50).
//!
//! ```text
//! router a --+
//! router b --+-- a thread each asks for its ports, every second --> table, lines of JSON, a page, Prometheus' format
//! router c --+
//! ```
//!
//! A router that does not answer is shown as such, and those that do are shown on. Rates are between two answers, by
//! the router's own clock. Of each port the page draws what left it over the last two minutes. Pages and metrics are
//! files, replaced as a whole: any web server shows the one, Prometheus' node exporter collects the other.

use super::show::each;
use crate::{Complaint, Report};
use lastmeter_ledger::html::escape;
use lastmeter_linux::{control, files};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most routers, and rates kept of each port.
const ROUTERS_MAX: usize = 256;
const KEPT: usize = 120;
/// How long a sleep is not interrupted.
const NAP: Duration = Duration::from_millis(100);
/// Intervals without an answer after which a router is said not to answer.
const SILENT: f64 = 2.5;

#[derive(clap::Args)]
pub(crate) struct Watch {
    /// Routers: their files, or the folders of their sockets
    #[arg(required = true, num_args = 1..=ROUTERS_MAX)]
    routers: Vec<PathBuf>,
    /// The folder of its sockets and logs, of one router [default: /run/lastmeter/NAME]
    #[arg(long)]
    run: Option<PathBuf>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    every: f64,
    /// End after so many seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// A page that is written at each look
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The same in Prometheus' text format
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
}

/// What a thread has heard of a router.
#[derive(Default)]
struct Heard {
    /// The last two answers.
    before: Option<Value>,
    now: Option<Value>,
    at: Option<Instant>,
    /// What the last question came to, where that is no answer.
    wrong: Option<String>,
}

struct Router {
    name: String,
    socket: PathBuf,
    heard: Arc<Mutex<Heard>>,
    /// Mbit/s that left each port.
    kept: BTreeMap<String, VecDeque<f64>>,
}

/// A port at one look.
#[derive(Clone, Debug, PartialEq)]
struct Port {
    name: String,
    up: bool,
    waiting: u64,
    /// Packets a second in and out, Mbit/s in and out, packets lost a second; unknown at first, and after its port
    /// processor was started again.
    rates: Option<[f64; 5]>,
}

impl Router {
    fn new(path: &Path, run: Option<&Path>) -> Router {
        let folder = match run {
            Some(run) => run.to_owned(),
            None if path.is_dir() => path.to_owned(),
            None => Path::new("/run/lastmeter").join(path.file_stem().unwrap_or_default()),
        };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (heard, kept) = (Arc::default(), BTreeMap::new());
        Router { name, socket: folder.join("control.sock"), heard, kept }
    }

    /// Asks it until `ended`, on a thread of its own: one that hangs delays no other.
    fn ask(&self, every: Duration, ended: &Arc<AtomicBool>) {
        let (socket, heard, ended) = (self.socket.clone(), self.heard.clone(), ended.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let answer = control::ask(&socket, &json!({ "show": "ports" }));
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                match answer {
                    Ok(answer) => {
                        heard.before = heard.now.replace(answer);
                        (heard.at, heard.wrong) = (Some(Instant::now()), None);
                    }
                    Err(wrong) => heard.wrong = Some(wrong),
                }
                drop(heard);
                std::thread::sleep(every);
            }
        });
    }

    /// Its ports and the share of a core it uses; or why there is nothing to see.
    fn look(&mut self, every: Duration) -> Result<(Vec<Port>, Option<f64>), String> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let late = heard.at.is_none_or(|at| at.elapsed() > every.mul_f64(SILENT));
        let now = match (&heard.now, &heard.wrong) {
            (_, Some(wrong)) => return Err(wrong.clone()),
            (Some(now), None) if !late => now,
            _ => return Err("no answer yet".to_owned()),
        };
        let (ports, core) = looked(now, heard.before.as_ref());
        drop(heard);
        for port in &ports {
            let kept = self.kept.entry(port.name.clone()).or_default();
            kept.push_back(port.rates.map_or(0.0, |[.., out, _]| out));
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
        Ok((ports, core))
    }
}

/// Ports and the core between two answers.
fn looked(now: &Value, before: Option<&Value>) -> (Vec<Port>, Option<f64>) {
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or(0.0);
    let seconds = before.map(|before| number(now, "elapsed") - number(before, "elapsed"));
    let seconds = seconds.filter(|seconds| *seconds > 0.0);
    let ports = each(now, "ports").map(|port| {
        let name = port["name"].as_str().unwrap_or("?").to_owned();
        let then = before
            .and_then(|before| each(before, "ports").find(|then| then["name"] == port["name"]));
        let rates = seconds.zip(then).and_then(|(seconds, then)| {
            let rate = |of: fn(&Value) -> u64| {
                let more = of(&port["counts"]).checked_sub(of(&then["counts"]))?;
                Some(more as f64 / seconds)
            };
            Some([
                rate(|counts| count(counts, "received"))?,
                rate(|counts| count(counts, "sent"))?,
                rate(|counts| count(counts, "received-bytes"))? * 8e-6,
                rate(|counts| count(counts, "sent-bytes"))? * 8e-6,
                rate(lost)?,
            ])
        });
        let waiting = port["waiting"].as_u64().unwrap_or(0);
        Port { name, up: port["up"] == json!(true), waiting, rates }
    });
    let core = seconds
        .zip(before)
        .map(|(seconds, before)| ((number(now, "cpu") - number(before, "cpu")) / seconds).max(0.0));
    (ports.collect(), core)
}

fn count(counts: &Value, name: &str) -> u64 {
    counts[name].as_u64().unwrap_or(0)
}

/// Packets that were dropped for any reason, or were lost before they were taken.
fn lost(counts: &Value) -> u64 {
    let all = counts.as_object().into_iter().flatten();
    let dropped = all.filter(|(name, _)| name.starts_with("dropped/"));
    count(counts, "overrun") + dropped.filter_map(|(_, count)| count.as_u64()).sum::<u64>()
}

type Looked = Vec<(String, Result<(Vec<Port>, Option<f64>), String>)>;

/// Until a signal or its time is over.
pub(super) fn watch(arguments: &Watch, json: bool) -> Result<Report, Complaint> {
    if arguments.run.is_some() && arguments.routers.len() > 1 {
        return Err(Complaint(
            "--run is the folder of one router; name the folders instead".into(),
        ));
    }
    if !(0.05..=3600.0).contains(&arguments.every) {
        return Err(Complaint("--every is between 0.05 and 3600 seconds".to_owned()));
    }
    let every = Duration::from_secs_f64(arguments.every);
    let files = arguments.routers.iter();
    let mut routers: Vec<Router> =
        files.map(|path| Router::new(path, arguments.run.as_deref())).collect();
    let names: BTreeSet<&str> = routers.iter().map(|router| router.name.as_str()).collect();
    if names.len() < routers.len() {
        return Err(Complaint(
            "two routers have the same name: that of a file or folder".to_owned(),
        ));
    }
    let ended = crate::signals()?;
    routers.iter().for_each(|router| router.ask(every, &ended));
    let began = Instant::now();
    // The first answers come before the first look.
    pause(every / 2, &ended);
    while !ended.load(Ordering::Relaxed) {
        if arguments.seconds.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds) {
            break;
        }
        let looked = routers.iter_mut().map(|router| (router.name.clone(), router.look(every)));
        let looked: Looked = looked.collect();
        let line = match json {
            true => format!("{}\n", to_json(&looked)),
            false => table(&looked),
        };
        crate::print(&line)?;
        if let Some(path) = &arguments.out {
            write(path, &page(&looked, &routers, arguments.every))?;
        }
        if let Some(path) = &arguments.metrics {
            write(path, &metrics(&routers))?;
        }
        let left = arguments.seconds.map(|seconds| seconds - began.elapsed().as_secs_f64());
        let left = left.and_then(|left| Duration::try_from_secs_f64(left.max(0.0)).ok());
        pause(left.map_or(every, |left| every.min(left)), &ended);
    }
    ended.store(true, Ordering::Relaxed);
    Ok(Report { text: String::new(), json: Vec::new(), good: true })
}

/// Writes a file as a whole, so that no reader sees half of it.
fn write(path: &Path, text: &str) -> Result<(), Complaint> {
    let place = |error| Complaint(format!("{}: {error}", path.display()));
    files::replace(path, text.as_bytes()).map_err(place)
}

/// Sleeps, but not beyond a signal.
fn pause(lasts: Duration, ended: &AtomicBool) {
    let until = Instant::now() + lasts;
    while !ended.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(NAP));
    }
}

const HEADS: [&str; 10] = [
    "router",
    "port",
    "link",
    "in/s",
    "out/s",
    "in Mbit/s",
    "out Mbit/s",
    "lost/s",
    "waiting",
    "core",
];

/// The columns of a port after its router's.
fn columns(port: &Port, core: Option<f64>) -> [String; 9] {
    let rate = |at: usize, digits: usize| match port.rates {
        Some(rates) => format!("{:.digits$}", rates[at]),
        None => "-".to_owned(),
    };
    [
        port.name.clone(),
        if port.up { "up" } else { "down" }.to_owned(),
        rate(0, 0),
        rate(1, 0),
        rate(2, 1),
        rate(3, 1),
        rate(4, 0),
        port.waiting.to_string(),
        core.map_or("-".to_owned(), |core| format!("{:.0} %", 100.0 * core)),
    ]
}

fn table(looked: &Looked) -> String {
    let mut text = String::new();
    let mut line = |words: &[&str]| {
        let _ = write!(text, "{:16} {:10} {:5}", words[0], words[1], words[2]);
        words[3..].iter().for_each(|word| {
            let _ = write!(text, " {word:>10}");
        });
        text.push('\n');
    };
    line(&HEADS);
    for (name, router) in looked {
        match router {
            Ok((ports, core)) => ports.iter().for_each(|port| {
                let columns = columns(port, *core);
                let words: Vec<&str> = std::iter::once(name.as_str())
                    .chain(columns.iter().map(String::as_str))
                    .collect();
                line(&words);
            }),
            Err(why) => line(&[name, why, ""]),
        }
    }
    text.push('\n');
    text
}

fn to_json(looked: &Looked) -> Value {
    let routers = looked.iter().map(|(name, router)| match router {
        Err(why) => json!({ "router": name, "answers": false, "why": why }),
        Ok((ports, core)) => {
            let ports = ports.iter().map(|port| {
                let rate = |at: usize| port.rates.map(|rates| rates[at]);
                json!({
                    "port": port.name,
                    "up": port.up,
                    "waiting": port.waiting,
                    "received-per-second": rate(0),
                    "sent-per-second": rate(1),
                    "received-mbit-per-second": rate(2),
                    "sent-mbit-per-second": rate(3),
                    "lost-per-second": rate(4),
                })
            });
            let ports: Vec<Value> = ports.collect();
            json!({ "router": name, "answers": true, "core": core, "ports": ports })
        }
    });
    json!({ "routers": routers.collect::<Vec<_>>() })
}

/// A line of what left a port, its highest rate beside it.
fn drawing(kept: &VecDeque<f64>) -> String {
    let most = kept.iter().copied().fold(0.0, f64::max);
    let points = kept.iter().enumerate().map(|(at, rate)| {
        let height = if most > 0.0 { rate / most } else { 0.0 };
        format!("{},{:.1}", at + KEPT - kept.len(), 20.0 - 19.0 * height)
    });
    let points = points.collect::<Vec<_>>().join(" ");
    format!(
        "<svg width=\"{KEPT}\" height=\"21\" role=\"img\" aria-label=\"at most {most:.1} Mbit/s\">\
         <polyline points=\"{points}\" fill=\"none\" stroke=\"currentColor\"/></svg> {most:.1}"
    )
}

fn page(looked: &Looked, routers: &[Router], every: f64) -> String {
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Routers</title>\
         <meta http-equiv=\"refresh\" content=\"{:.0}\"><style>body{{font:15px system-ui;\
         margin:2em;color-scheme:light dark}}td,th{{padding:.2em .8em;text-align:right}}\
         td:first-child,th:first-child{{text-align:left}}</style><h1>Routers</h1><table><tr>",
        every.max(1.0)
    );
    for head in HEADS {
        let _ = write!(text, "<th>{head}");
    }
    text += "<th>out, last looks, at most Mbit/s\n";
    for ((name, look), router) in looked.iter().zip(routers) {
        match look {
            Err(why) => {
                let _ =
                    writeln!(text, "<tr><td>{}<td colspan=\"10\">{}", escape(name), escape(why));
            }
            Ok((ports, core)) => {
                for port in ports {
                    let _ = write!(text, "<tr><td>{}", escape(name));
                    for column in columns(port, *core) {
                        let _ = write!(text, "<td>{}", escape(&column));
                    }
                    let kept = router.kept.get(&port.name).map_or(String::new(), drawing);
                    let _ = writeln!(text, "<td>{kept}");
                }
            }
        }
    }
    text + "</table></html>\n"
}

/// A label's value (Prometheus, exposition formats: backslash, quote and line feed are escaped).
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn metrics(routers: &[Router]) -> String {
    let (mut up, mut packets, mut waiting) = (String::new(), String::new(), String::new());
    for router in routers {
        let heard = router.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let name = label(&router.name);
        let answers = u8::from(heard.wrong.is_none() && heard.now.is_some());
        let _ = writeln!(up, "lastmeter_network_up{{router=\"{name}\"}} {answers}");
        for port in heard.now.iter().flat_map(|now| each(now, "ports")) {
            let of = format!(
                "router=\"{name}\",port=\"{}\"",
                label(port["name"].as_str().unwrap_or("?"))
            );
            for (count, value) in port["counts"].as_object().into_iter().flatten() {
                let count = label(count);
                let _ = writeln!(
                    packets,
                    "lastmeter_network_packets{{{of},count=\"{count}\"}} {value}"
                );
            }
            let _ = writeln!(waiting, "lastmeter_network_waiting{{{of}}} {}", port["waiting"]);
        }
    }
    format!(
        "# TYPE lastmeter_network_up gauge\n{up}# TYPE lastmeter_network_packets counter\n{packets}\
         # TYPE lastmeter_network_waiting gauge\n{waiting}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(elapsed: f64, sent: u64) -> Value {
        let counts = json!({
            "received": 10, "sent": sent, "received-bytes": 0, "sent-bytes": sent * 125, "dropped/full": 4,
            "overrun": 1,
        });
        let port = json!({ "name": "east", "up": true, "waiting": 3, "counts": counts });
        json!({ "elapsed": elapsed, "cpu": elapsed / 4.0, "ports": [port] })
    }

    #[test]
    fn rates_are_between_two_answers_by_the_routers_clock() {
        let (ports, core) = looked(&answer(3.0, 3000), Some(&answer(1.0, 1000)));
        assert_eq!(ports[0].rates, Some([0.0, 1000.0, 0.0, 1.0, 0.0]));
        assert_eq!((ports[0].waiting, core), (3, Some(0.25)));
        // Its port processor began again: nothing is known.
        let (ports, core) = looked(&answer(1.0, 10), Some(&answer(3.0, 3000)));
        assert_eq!((ports[0].rates, core), (None, None));
        assert_eq!(looked(&answer(4.0, 10), Some(&answer(3.0, 3000))).0[0].rates, None);
    }

    #[test]
    fn names_cannot_end_what_they_are_in() {
        assert_eq!(label("a\"b\\\n"), "a\\\"b\\\\\\n");
        let looked = vec![("<a>".to_owned(), Err("<b>".to_owned()))];
        let routers = [Router::new(Path::new("<a>.toml"), None)];
        let page = page(&looked, &routers, 1.0);
        assert!(page.contains("&lt;a&gt;") && !page.contains("<b>"), "{page}");
    }
}
