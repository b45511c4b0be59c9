//! What `lastmeter why -- COMMAND` costs the command: iperf3 observed and alone, alternating.

use super::{Measurement, Setting};
use crate::Complaint;
use lastmeter_live::observe;
use lastmeter_live::statistics::Spread;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Pairs of runs.
const ROUNDS: usize = 5;
const ROUNDS_QUICK: usize = 1;
/// Seconds of each run.
const SECONDS: &str = "1";
/// How long the server may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// A server that is killed when this is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start() -> Result<Server, String> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let port = free.local_addr().map_err(|error| error.to_string())?.port();
        drop(free);
        let child = Command::new("iperf3")
            .args(["-s", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|_| "iperf3 is not installed".to_owned())?;
        let server = Server { child, port };
        let until = Instant::now() + READY_WITHIN;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > until {
                return Err("iperf3's server did not start listening".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn client(&self) -> Command {
        let mut command = Command::new("iperf3");
        let port = self.port.to_string();
        command.args(["-c", "127.0.0.1", "-p", &port, "-t", SECONDS, "-J", "--logfile"]);
        command
    }
}

/// The client's throughput in bit/s, from its log file.
fn rate(log: &std::path::Path) -> Result<f64, String> {
    let text = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
    let _ = std::fs::remove_file(log); // The next run appends to it.
    let answer: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let rate = &answer["end"]["sum_received"]["bits_per_second"];
    rate.as_f64().ok_or_else(|| format!("iperf3 reports {}", answer["error"]))
}

fn measure(rounds: usize) -> Result<(Spread, Spread, f64), String> {
    let server = Server::start()?;
    let log = std::env::temp_dir().join(format!("lastmeter-iperf3-{}.json", std::process::id()));
    let (mut observed, mut alone, mut cost) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..rounds {
        let seen = observe::run(server.client().arg(&log)).map_err(|error| error.to_string())?;
        observed.push(rate(&log)?);
        cost = cost.max(seen.cost);
        let status = server.client().arg(&log).status().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("iperf3 exited with {status}"));
        }
        alone.push(rate(&log)?);
    }
    Ok((Spread::of(observed), Spread::of(alone), cost))
}

/// Goodput of iperf3 over the loopback interface, observed and alone.
pub(super) fn observed(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let rounds = if setting.quick { ROUNDS_QUICK } else { ROUNDS };
    let result =
        |value, note: String| Measurement::new("why/observed", value, "bit/s", String::new(), note);
    Ok(match measure(rounds) {
        Ok((observed, alone, cost)) => {
            let note = format!(
                "median of {rounds}; observing cost at most {:.1} % of one CPU; runs alone spread \
                 by {:.1} %",
                cost * 100.0,
                alone.relative() * 100.0
            );
            let mut result = result(observed.median, note);
            result.beside("iperf3 alone", alone.median);
            result
        }
        Err(why) => result(0.0, format!("not measured: {why}")),
    })
}
