//! `lastmeter live --validate`: settings of a link, each measured by ping and iperf3.
//!
//! Both are real programs and know nothing of the model. Expected: a ping takes twice the delay; a TCP
//! transfer gets the rate less headers, where the queue and the time suffice for TCP to use it.

use super::{Arguments, options};
use crate::emulate::{self, Options, Started};
use crate::world::{self, Disk};
use crate::{Common, Complaint, Ended, output, run};
use lastmeter_engine::Control;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Bits per second.
const RATES: [u64; 3] = [10_000_000, 100_000_000, 1_000_000_000];
/// Milliseconds each way.
const DELAYS: [u64; 4] = [1, 10, 50, 200];
/// Data of a full TCP segment with timestamps, and the bytes of its frame on the line: 1500 bytes of IP
/// packet hold 20 of IP, 20 of TCP and 12 of options (RFC 7323); Ethernet adds 38.
const DATA: f64 = 1448.0;
const LINE: f64 = 1538.0;
/// Bits on the line of a ping's frame: 98 bytes and 24 of framing.
const PING_BITS: f64 = 8.0 * (98.0 + 24.0);
/// Tolerances: how much more than twice delay and line time a ping may take, in seconds, and how much of
/// the rate less headers may be missing.
const PING_MORE: f64 = 100e-6;
const GOODPUT_LESS: f64 = 0.03;

/// A setting.
struct Setting {
    rate: u64,
    delay: u64,
    queue: &'static str,
    congestion: &'static str,
}

impl Setting {
    /// The queue as TOML.
    fn queue(&self) -> String {
        let rate = self.rate;
        match self.queue {
            "token-bucket" => format!(
                "{{ token-bucket = {{ rate = \"{rate} bit/s\", burst = \"15 kB\", queue = \
                 {{ drop-tail = {{ packets = 2000 }} }} }} }}"
            ),
            "drop-tail 100" => "{ drop-tail = { packets = 100 } }".to_owned(),
            "red" => "{ red = {} }".to_owned(),
            _ => {
                // Room for a bandwidth-delay product (Villamizar and Song, CCR 24(5), 1994).
                let product = self.rate / 8 * (2 * self.delay) / 1000 / 1538;
                format!("{{ drop-tail = {{ packets = {} }} }}", product.max(100))
            }
        }
    }

    /// Seconds for which iperf3 sends: long enough for slow start over a long path.
    fn lasts(&self) -> u64 {
        4 + self.delay / 10
    }

    /// Seconds at the start that do not count.
    fn omitted(&self) -> u64 {
        1 + self.delay / 25
    }

    /// Whether TCP can be expected to fill the link: a queue of a bandwidth-delay product.
    fn fills(&self) -> bool {
        self.queue == "bdp"
    }
}

fn settings(quick: bool) -> Vec<Setting> {
    let mut all = Vec::new();
    for rate in RATES {
        for delay in DELAYS {
            if quick && delay != 10 {
                continue;
            }
            for queue in ["bdp", "token-bucket", "drop-tail 100", "red"] {
                if queue == "bdp" || delay == 10 {
                    all.push(Setting { rate, delay, queue, congestion: "cubic" });
                }
            }
            if delay <= 50 {
                all.push(Setting { rate, delay, queue: "drop-tail 100", congestion: "reno" });
                if delay != 10 {
                    all.push(Setting { rate, delay, queue: "drop-tail 100", congestion: "cubic" });
                }
            }
        }
    }
    all
}

/// Reports the programs that are missing.
fn missing() -> Option<&'static str> {
    let found = |program: &&str| {
        let mut command = Command::new(program);
        command.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok()
    };
    ["ping", "iperf3"].into_iter().find(|program| !found(program))
}

pub(super) fn validate(
    common: &Common,
    arguments: &Arguments,
    control: &Arc<Control>,
) -> Result<Ended, Complaint> {
    if let Some(program) = missing() {
        output::note(&format!("SKIP: `{program}` is required and not installed"));
        return Ok(Ended::Done);
    }
    let found = world::experiment(&arguments.experiment)?;
    let disk = Disk::new(found.folder);
    let options = options(common, arguments)?;
    let mut all_well = true;
    if !common.json {
        output::print(HEAD);
    }
    for setting in settings(common.quick) {
        if control.stopped() {
            break;
        }
        let texts = [
            format!("links.0.rate={} bit/s", setting.rate),
            format!("links.0.delay={} ms", setting.delay),
            format!("links.0.queue={}", setting.queue()),
        ];
        let overrides: Result<Vec<Override>, _> =
            texts.iter().chain(&arguments.sets).map(|text| Override::parse(text)).collect();
        let overrides = overrides.map_err(|problem| run::complaint(common, &problem))?;
        let experiment = Experiment::parse(&found.name, &found.text, &overrides, &disk)
            .map_err(|problems| run::complaint(common, &problems))?;
        let row = measure(common, &setting, &experiment, &options, &disk)?;
        all_well &= row.well;
        output::print(&if common.json {
            row.json(&setting).to_string()
        } else {
            row.text(&setting)
        });
    }
    Ok(if all_well { Ended::Done } else { Ended::Short })
}

const HEAD: &str = "\
rate        each way  queue          TCP      ping median    iperf3 goodput   share of rest  kept up
                                                                             after headers";

/// What was measured of one setting.
struct Row {
    ping: Option<f64>,
    iperf: Value,
    goodput: Option<f64>,
    share: Option<f64>,
    certificates: [Value; 2],
    kept_up: bool,
    well: bool,
}

fn measure(
    common: &Common,
    setting: &Setting,
    experiment: &Experiment,
    options: &Options,
    disk: &Disk,
) -> Result<Row, Complaint> {
    let folder = std::env::temp_dir().join(format!("lastmeter-validate-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (ping_file, iperf_file) = (folder.join("ping"), folder.join("iperf"));
    let hosts = experiment.live_hosts();
    let (first, second) = (&hosts[0], &hosts[1]);
    let address = second.address;
    let ping = format!(
        "ping -q -c 3 -i 0.2 {address} > /dev/null; ping -c 60 -i 0.02 {address} > {}",
        ping_file.display()
    );
    // Allow the namespace's TCP the memory that a long path needs.
    let memory = "for way in r w; do echo 4096 131072 268435456 > \
                  /proc/sys/net/ipv4/tcp_${way}mem; done; \
                  echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save;";
    let iperf = format!(
        "{memory} sleep 0.4; iperf3 -c {address} -t {} -O {} -C {} -J > {}",
        setting.lasts(),
        setting.omitted(),
        setting.congestion,
        iperf_file.display()
    );
    let server = format!("{memory} exec iperf3 -s -1");
    let shell = |host: Option<String>, script: &str, leads: bool| Started {
        host,
        words: ["sh", "-c", script].map(str::to_owned).to_vec(),
        leads,
        silent: true,
    };
    let go = |programs: Vec<Started>| {
        let options = Options { programs, ..options.clone() };
        let control = Arc::new(Control::default());
        let report = emulate::run(experiment, &options, disk, &control);
        report.map_err(|failure| run::failed(common, failure))
    };
    let name = |host: &lastmeter_lab::experiment::LiveHost| Some(host.name.clone());
    let pinged = go(vec![shell(name(first), &ping, true)])?;
    let moved = go(vec![shell(name(second), &server, false), shell(name(first), &iperf, true)])?;
    let ping = median_of_ping(&ping_file);
    let iperf: Value = fs::read(&iperf_file)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let _ = fs::remove_dir_all(&folder);
    let goodput = iperf["end"]["sum_received"]["bits_per_second"].as_f64();
    let share = goodput.map(|goodput| goodput / (setting.rate as f64 * DATA / LINE));
    let certificates = [&pinged, &moved]
        .map(|report| serde_json::to_value(&report.ledger.certificate).unwrap_or_default());
    let kept_up = certificates.iter().all(|certificate| certificate["kept_up"] == true);
    let expected = 2.0 * (1e-3 * setting.delay as f64 + PING_BITS / setting.rate as f64);
    let ping_well = ping.is_some_and(|ping| ping <= expected + PING_MORE);
    let goodput_well = !setting.fills() || share.is_some_and(|share| share >= 1.0 - GOODPUT_LESS);
    let well = ping_well && goodput_well && kept_up;
    Ok(Row { ping, iperf, goodput, share, certificates, kept_up, well })
}

/// The median of the times that ping printed, in seconds.
fn median_of_ping(file: &Path) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    let mut times: Vec<f64> = text
        .split("time=")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
        .collect();
    times.sort_by(f64::total_cmp);
    Some(times.get(times.len() / 2)? * 1e-3)
}

impl Row {
    fn text(&self, setting: &Setting) -> String {
        let known = |value: Option<f64>, scale: f64, unit: &str| {
            value.map_or("none".to_owned(), |value| format!("{:.3} {unit}", value * scale))
        };
        format!(
            "{:>4} Mbit/s {:>5} ms  {:<14} {:<7} {:>12}  {:>16}  {:>16}  {}{}",
            setting.rate / 1_000_000,
            setting.delay,
            setting.queue,
            setting.congestion,
            known(self.ping, 1e3, "ms"),
            known(self.goodput, 1e-6, "Mbit/s"),
            known(self.share, 100.0, "%"),
            if self.kept_up { "yes" } else { "no" },
            if self.well { "" } else { "  !" },
        )
    }

    fn json(&self, setting: &Setting) -> Value {
        let stream = &self.iperf["end"]["streams"][0]["sender"];
        json!({
            "rate": setting.rate,
            "delay": setting.delay as f64 * 1e-3,
            "queue": setting.queue,
            "congestion": setting.congestion,
            "ping": self.ping,
            "goodput": self.goodput,
            "share": self.share,
            "retransmits": self.iperf["end"]["sum_sent"]["retransmits"],
            "rtt": {
                "mean": stream["mean_rtt"], "min": stream["min_rtt"], "max": stream["max_rtt"],
            },
            "window_max": stream["max_snd_cwnd"],
            "lasts": setting.lasts(),
            "well": self.well,
            "certificates": self.certificates,
        })
    }
}
