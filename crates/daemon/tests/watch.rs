//! A network of routers is watched, each with its own hosts. Needs root, `ip` and `ping`.
//!
//! Rows: N-50.

use super::router::Net;
use super::{PROGRAM, said};
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any of it takes, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `router watch --json` prints, a line at each look.
struct Watched {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watched {
    fn start(arguments: &[&str]) -> Watched {
        let mut command = Command::new(PROGRAM);
        command.args(["router", "watch", "--json", "--every", "0.2"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Watched { child, lines }
    }
    /// Reads until a look is so: of each router, in the order of their names on the command line.
    fn until(&mut self, what: &str, is: impl Fn(&[Value]) -> bool) {
        let (began, mut last) = (Instant::now(), String::new());
        while began.elapsed() < PATIENCE {
            last = self.lines.next().unwrap().unwrap();
            let look: Value = serde_json::from_str(&last).unwrap();
            if is(look["routers"].as_array().unwrap()) {
                return;
            }
        }
        panic!("no look in which {what}; the last: {last}");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The most packets a second that left one of its ports.
fn sent(router: &Value) -> f64 {
    let ports = router["ports"].as_array().into_iter().flatten();
    ports.filter_map(|port| port["sent-per-second"].as_f64()).fold(0.0, f64::max)
}

#[test]
fn n_50_a_network_of_routers_is_watched_and_one_that_falls_silent_hides_no_other() {
    let Some(mut busy) = Net::new("watch-busy") else { return };
    let Some(mut other) = Net::new("watch-other") else { return };
    for net in [&mut busy, &mut other] {
        net.write("");
        net.start();
        net.pings("-c 1 10.2.0.2");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let folders = [&busy, &other].map(|net| net.folder.path().to_str().unwrap().to_owned());
    let (page, metrics) = (file("net.html"), file("net.prom"));
    let [first, second] = &folders;
    let mut watched =
        Watched::start(&[first, second, "--out", &page, "--metrics", &metrics, "--seconds", "300"]);
    // Twenty packets a second through one of them, each way.
    let mut pings = Command::new("ip")
        .args(["netns", "exec", &busy.names[0], "ping", "-n", "-q", "-i", "0.05", "10.2.0.2"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    watched.until("both answer, and the packets of one are seen", |routers| {
        routers.iter().all(|one| one["answers"] == true)
            && sent(&routers[0]) > 5.0
            && sent(&routers[1]) < sent(&routers[0])
    });
    said(&other.router("end", &[]), 0);
    watched.until("one does not answer, and the other is seen", |routers| {
        routers[1]["answers"] == false && routers[0]["answers"] == true && sent(&routers[0]) > 5.0
    });
    // Page and metrics are written after the line.
    watched.until("there is another look", |_| true);
    let told = Command::new("kill").arg(watched.child.id().to_string()).status().unwrap();
    assert!(
        told.success() && watched.child.wait().unwrap().success(),
        "it ends when it is told to"
    );
    pings.kill().unwrap();
    pings.wait().unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<polyline") && page.contains("nothing is running there"), "{page}");
    let metrics = std::fs::read_to_string(metrics).unwrap();
    let name = |net: &Net| net.folder.path().file_stem().unwrap().to_str().unwrap().to_owned();
    let (busy, other) = (name(&busy), name(&other));
    for (router, answers) in [(&busy, 1), (&other, 0)] {
        let line = format!("lastmeter_network_up{{router=\"{router}\"}} {answers}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    let of =
        format!("lastmeter_network_packets{{router=\"{busy}\",port=\"east\",count=\"sent\"}} ");
    let sent = metrics.lines().find_map(|line| line.strip_prefix(&of)).unwrap();
    assert!(sent.parse::<u64>().unwrap() > 5, "{metrics}");
}

#[test]
fn n_50_what_cannot_be_watched_is_said() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        said(&command.args(["router", "watch"]).args(arguments).output().unwrap(), 2)
    };
    assert!(run(&["a.toml", "b.toml", "--run", "/tmp"]).contains("--run is the folder of one"));
    assert!(run(&["a.toml", "b/a.toml"]).contains("the same name"));
    assert!(run(&["a.toml", "--every", "0.001"]).contains("between 0.05 and 3600"));
}
