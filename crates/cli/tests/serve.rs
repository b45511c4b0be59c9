//! `lastmeter serve` as a browser sees it: over a socket, with each run in its own process.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    child: Child,
    at: String,
    token: Option<String>,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A server of an empty folder on any free port.
fn serve(arguments: &[&str]) -> Server {
    serve_with(arguments, &std::env::temp_dir())
}

/// The same, with its temporary files in this folder.
fn serve_with(arguments: &[&str], temporary: &Path) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let open = if arguments.contains(&"--token") { None } else { Some("--no-token") };
    let mut child = Command::new(env!("CARGO_BIN_EXE_lastmeter"))
        .args(["serve", "--json", "--threads", "1", "--listen", "127.0.0.1:0"])
        .args(open)
        .args(arguments)
        .arg(folder.path())
        .env("TMPDIR", temporary)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(said["schema"], "lastmeter.serve/1");
    let url = said["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let (at, rest) = url.split_once('/').unwrap();
    let token = rest.strip_prefix("?token=").map(str::to_owned);
    Server { child, at: at.to_owned(), token, _folder: folder }
}

impl Server {
    /// Sends these bytes and reads the response until the server closes the connection.
    fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A server that rejects the header may close before the body is written.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(answer.len());
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let body = answer.get(end + 4..).unwrap_or_default().to_vec();
        Answer { status, head, body }
    }

    fn with(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let json = "content-type: application/json\r\n";
        let head = format!(
            "{method} {path} HTTP/1.1\r\nconnection: close\r\n{headers}{json}content-length: \
             {length}\r\n\r\n"
        );
        self.raw((head + body).as_bytes())
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.with(method, path, &format!("host: {}\r\n", self.at), &body)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null)
    }

    fn begin(&self, text: &str) -> u64 {
        let body = json!({ "experiment": "bundled/mm1", "text": text, "note": "a test" });
        let answer = self.ask("POST", "/api/runs", &body);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()["id"].as_u64().unwrap()
    }

    /// The processes that the server has started with this argument.
    fn children(&self, argument: &str) -> Vec<String> {
        // Each is a child of one of the server's threads.
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let tasks = tasks.into_iter().flatten().flatten();
        let all = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
        let all: String = all.filter_map(Result::ok).collect();
        let is_one = |child: &&str| {
            let line = std::fs::read_to_string(format!("/proc/{child}/cmdline"));
            line.is_ok_and(|line| line.contains(argument))
        };
        all.split_whitespace().filter(is_one).map(str::to_owned).collect()
    }

    /// What the server and its finished processes have used of the processor.
    fn processor_time(&self) -> Duration {
        /// The kernel's unit for programs (`USER_HZ`), and the place of `utime` after the name.
        const TICK: Duration = Duration::from_millis(10);
        const UTIME: usize = 11;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(UTIME).take(4);
        TICK * fields.map(|ticks| ticks.parse::<u32>().unwrap()).sum::<u32>()
    }

    fn until_child(&self, argument: &str) -> String {
        let began = Instant::now();
        loop {
            if let Some(child) = self.children(argument).pop() {
                return child;
            }
            assert!(began.elapsed() < PATIENCE, "no child with {argument}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until a run has one of these statuses; returns its record.
    fn until(&self, id: u64, stands: &[&str]) -> Value {
        let began = Instant::now();
        loop {
            let record = self.get(&format!("/api/runs/{id}")).json();
            if stands.contains(&record["stands"].as_str().unwrap()) {
                return record;
            }
            assert!(began.elapsed() < PATIENCE, "{record}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

/// The bundled M/M/1 queue, with this duration.
fn mm1(duration: &str) -> String {
    let text = lastmeter_lab::library::experiment("mm1").unwrap();
    let line = text.lines().find(|line| line.starts_with("duration")).unwrap();
    text.replace(line, &format!("duration = \"{duration}\""))
}

#[test]
fn a_run_is_started_viewed_compared_and_deleted() {
    let server = serve(&[]);
    let id = server.begin(&mm1("2 ms"));
    let record = server.until(id, &["done", "failed"]);
    assert_eq!(record["stands"], "done", "{record}");
    assert_eq!(record["note"], "a test");
    let ledger = server.get(&format!("/runs/{id}/ledger.json"));
    assert!(ledger.head.contains("content-disposition: attachment"));
    let ledger = ledger.json();
    let view = server.get(&format!("/api/runs/{id}/ledger")).json();
    assert_eq!(view["duration"], ledger["duration"]);
    assert_eq!(view["paths"]["rows"][0]["stages"], ledger["paths"][0]["stages"]);
    assert_eq!(record["figures"]["goodput"], view["totals"]["goodput"]);
    // The points of the time series add up to the whole.
    let course = server.get(&format!("/api/runs/{id}/points")).json();
    let points = course["points"].as_array().unwrap();
    let mut before = 0.0;
    let mut bits = 0.0;
    for point in points {
        let at = point["at"].as_f64().unwrap();
        bits += point["goodput"].as_f64().unwrap() * (at - before);
        before = at;
    }
    let whole = view["totals"]["goodput"].as_f64().unwrap() * before;
    assert!((bits - whole).abs() < 1e-6 * whole && points.len() > 1, "{bits} {whole}");
    let page = server.get(&format!("/runs/{id}/ledger.html"));
    assert!(page.head.contains("sandbox") && page.head.contains("default-src 'none'"));
    let compared = server.get(&format!("/api/compare?first={id}&second={id}")).json();
    assert_eq!(
        (&compared["same"], &compared["totals"]["rows"][0]["change"]),
        (&json!(true), &json!("same"))
    );
    assert_eq!(server.ask("DELETE", &format!("/api/runs/{id}"), &json!({})).status, 200);
    assert_eq!(server.get(&format!("/api/runs/{id}")).status, 404);
    assert_eq!(server.get(&format!("/runs/{id}/ledger.json")).status, 404);
}

#[test]
fn the_server_survives_failed_and_killed_runs() {
    let server = serve(&[]);
    // The problem of an invalid text has its location.
    let id = server.begin("duration = \"1 s\"\n[nodes]\na = { hots = {} }\n");
    let record = server.until(id, &["failed"]);
    let problem = &record["problems"][0];
    assert_eq!((&problem["line"], &problem["suggestion"]), (&json!(3), &json!("host")), "{record}");
    assert_eq!(problem["file"], "mm1");
    // A run whose process is killed fails; the server stays.
    let id = server.begin(&mm1("200 s"));
    server.until(id, &["running"]);
    let child = server.until_child("--worker");
    assert!(Command::new("kill").args(["-9", &child]).status().unwrap().success());
    let record = server.until(id, &["failed"]);
    assert!(record["words"].as_str().unwrap().contains("signal: 9"), "{record}");
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn a_run_can_be_followed_and_a_stopped_run_keeps_its_results() {
    let server = serve(&[]);
    let id = server.begin(&mm1("200 s"));
    let mut stream = TcpStream::connect(&server.at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET /api/events?run={id} HTTP/1.1\r\nhost: {}\r\n\r\n", server.at);
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut news = || {
        let line = lines.find(|line| line.starts_with("data: {")).unwrap();
        serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap()).unwrap()
    };
    let live = std::iter::repeat_with(&mut news).find(|one| one["view"].is_object()).unwrap();
    assert_eq!(live["record"]["stands"], "running");
    assert!(live["view"]["totals"]["delivered"].as_u64().unwrap() > 0);
    assert!(live["progress"]["share"].as_f64().unwrap() < 1.0);
    assert_eq!(server.ask("POST", &format!("/api/runs/{id}/stop"), &json!({})).status, 200);
    let record = server.until(id, &["stopped", "failed"]);
    assert_eq!(record["stands"], "stopped", "{record}");
    let over = std::iter::repeat_with(&mut news).find(|one| one["record"]["stands"] == "stopped");
    assert!(over.is_some());
    let view = server.get(&format!("/api/runs/{id}/ledger")).json();
    assert_eq!(view["provenance"]["partial"], true);
    assert!(view["duration"].as_f64().unwrap() < 200.0);
}

#[test]
fn runs_beyond_the_limit_wait() {
    let server = serve(&["--at-once", "1"]);
    let (first, second) = (server.begin(&mm1("200 s")), server.begin(&mm1("1 ms")));
    server.until(first, &["running"]);
    assert_eq!(server.until(second, &["waiting", "running"])["stands"], "waiting");
    assert_eq!(server.ask("DELETE", &format!("/api/runs/{first}"), &json!({})).status, 409);
    server.ask("POST", &format!("/api/runs/{first}/stop"), &json!({}));
    assert_eq!(server.until(second, &["done", "failed"])["stands"], "done");
    // The queue is limited, too.
    server.begin(&mm1("200 s"));
    let body = json!({ "experiment": "bundled/mm1", "text": mm1("1 ms") });
    let mut refused = 0;
    for _ in 0..40 {
        refused += u32::from(server.ask("POST", "/api/runs", &body).status == 429);
    }
    assert!((7..=9).contains(&refused), "{refused}");
}

#[test]
fn foreign_requests_are_refused() {
    let server = serve(&[]);
    let host = format!("host: {}\r\n", server.at);
    assert_eq!(server.with("GET", "/", "host: evil.example\r\n", "").status, 421);
    for second in ["host: evil.example\r\n", &host] {
        assert_eq!(server.with("GET", "/", &format!("{host}{second}"), "").status, 421);
    }
    assert_eq!(server.with("GET", "http://evil.example/", &host, "").status, 421);
    let body = json!({ "experiment": "bundled/mm1", "text": "" }).to_string();
    let foreign = format!("{host}origin: http://evil.example\r\n");
    assert_eq!(server.with("POST", "/api/runs", &foreign, &body).status, 403);
    assert_eq!(server.get("/api/experiments/file/../../etc/passwd").status, 404);
    assert_eq!(server.ask("POST", "/", &json!({})).status, 405);
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-security-policy: default-src 'self'"), "{}", page.head);
    assert!(!page.head.contains("access-control"), "{}", page.head);
}

#[test]
fn oversized_requests_are_refused() {
    let server = serve(&[]);
    let long = "x".repeat(3 << 20);
    assert_eq!(server.ask("POST", "/api/check", &json!({ "text": long })).status, 413);
    let text = "x".repeat((1 << 20) + 1);
    let body = json!({ "experiment": "bundled/mm1", "text": text });
    assert_eq!(server.ask("POST", "/api/runs", &body).status, 413);
    let head =
        format!("GET / HTTP/1.1\r\nhost: {}\r\nx: {}\r\n\r\n", server.at, "y".repeat(1 << 20));
    assert_eq!(server.raw(head.as_bytes()).status, 431);
    let many = "x: y\r\n".repeat(100);
    let answer = server.with("GET", "/", &format!("host: {}\r\n{many}", server.at), "");
    assert_eq!(answer.status, 431);
    assert_eq!(server.get("/").status, 200);
}

/// Texts of nearly a mebibyte: names that are unknown as keys, as nodes, as kinds and as ends of links.
fn unknown_names() -> [String; 4] {
    let many = |count: usize, one: fn(usize) -> String| (0..count).map(one).collect::<String>();
    let start = "duration = \"1 s\"\n[nodes]\na = { host = {} }\n";
    let link = "[[links]]\nbetween = [";
    [
        "duration = \"1 s\"\n".to_owned() + &many(60_000, |i| format!("key{i} = 1\n")),
        start.to_owned() + &many(40_000, |i| format!("n{i} = {{ hots = {{}} }}\n")),
        start.to_owned() + link + &many(60_000, |i| format!("\"name{i}\",")) + "]\n",
        start.to_owned()
            + &many(15_000, |i| format!("n{i} = {{ host = {{}} }}\n"))
            + link
            + &many(60_000, |i| format!("\"m{i}\","))
            + "]\n",
    ]
}

#[test]
fn a_text_with_60000_unknown_names_is_checked_in_a_second() {
    let server = serve(&[]);
    for (number, text) in unknown_names().iter().enumerate() {
        assert!(text.len() > 600_000 && text.len() < 1 << 20, "{}", text.len());
        let body = json!({ "experiment": "bundled/mm1", "text": text });
        // Other programs may have the processor: the best of some, and what it took of the processor.
        let best = (0..5).map(|_| {
            let (began, used) = (Instant::now(), server.processor_time());
            let answer = server.ask("POST", "/api/check", &body);
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
            let problems = answer.json()["problems"].as_array().unwrap().len();
            assert!((1..=100).contains(&problems), "{problems} problems");
            (began.elapsed().min(server.processor_time() - used), began.elapsed())
        });
        let (best, elapsed) = best.min().unwrap();
        println!("text {number}: {best:?} of processor time, {elapsed:?} in all");
        assert!(best < Duration::from_secs(1), "text {number}: {best:?}");
    }
}

/// An experiment whose check takes long: thousands of nodes in a chain.
fn long_check() -> Value {
    let mut text = "duration = \"1 s\"\n[nodes]\n".to_owned();
    (0..12_000).for_each(|i| text += &format!("n{i} = {{ router = {{}} }}\n"));
    (0..11_999).for_each(|i| text += &format!("[[links]]\nbetween = [\"n{i}\", \"n{}\"]\n", i + 1));
    json!({ "experiment": "bundled/mm1", "text": text })
}

#[test]
fn a_check_ends_with_its_client_and_the_page_is_served_meanwhile() {
    let server = serve(&[]);
    let body = long_check().to_string();
    let head = format!(
        "POST /api/check HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        server.at,
        body.len()
    );
    let mut stream = TcpStream::connect(&server.at).unwrap();
    stream.write_all((head + &body).as_bytes()).unwrap();
    let child = server.until_child("--checker");
    // It is stopped here, so that it would go on for as long as its client waits.
    assert!(Command::new("kill").args(["-STOP", &child]).status().unwrap().success());
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.children("--checker").len(), 1);
    drop(stream);
    let began = Instant::now();
    while !server.children("--checker").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(4), "the check outlives its client");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_check_has_a_time_limit() {
    let server = serve(&[]);
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| server.ask("POST", "/api/check", &long_check()));
        let child = server.until_child("--checker");
        assert!(Command::new("kill").args(["-STOP", &child]).status().unwrap().success());
        let answer = answer.join().unwrap();
        assert_eq!(answer.status, 503);
        let fault = answer.json()["fault"].as_str().unwrap().to_owned();
        assert!(fault.contains("took more than 5s"), "{fault}");
    });
    assert!(server.children("--checker").is_empty());
}

#[test]
fn a_termination_signal_ends_the_server_within_two_seconds() {
    // What it does: a run, a check that hangs, a stream of events, silent connections.
    let attempt = || {
        let temporary = tempfile::tempdir().unwrap();
        let mut server = serve_with(&[], temporary.path());
        let id = server.begin(&mm1("200 s"));
        server.until(id, &["running"]);
        let worker = server.until_child("--worker");
        let mut events = TcpStream::connect(&server.at).unwrap();
        let head = format!("GET /api/events HTTP/1.1\r\nhost: {}\r\n\r\n", server.at);
        events.write_all(head.as_bytes()).unwrap();
        let _silent = TcpStream::connect(&server.at).unwrap();
        let body = long_check().to_string();
        let mut check = TcpStream::connect(&server.at).unwrap();
        let head = format!(
            "POST /api/check HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            server.at,
            body.len()
        );
        check.write_all((head + &body).as_bytes()).unwrap();
        let checker = server.until_child("--checker");
        assert!(Command::new("kill").args(["-STOP", &checker]).status().unwrap().success());
        let pid = server.child.id().to_string();
        let began = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = server.child.wait().unwrap();
        let took = began.elapsed();
        assert_eq!(status.code(), Some(0));
        for child in [&worker, &checker] {
            let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let gone = state.is_empty() || state.contains(") Z ");
            assert!(gone, "{child} is left behind: {state}");
        }
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
        took
    };
    let best = (0..3).map(|_| attempt()).min().unwrap();
    println!("ended after {best:?}");
    assert!(best < Duration::from_secs(2), "{best:?}");
}

#[test]
fn two_servers_do_not_share_a_folder_and_a_killed_one_leaves_none() {
    let space = tempfile::tempdir().unwrap();
    let out = space.path().join("out");
    let (out, temporary) = (out.to_str().unwrap(), space.path().join("tmp"));
    std::fs::create_dir(&temporary).unwrap();
    let mut first = serve_with(&["--out", out], &temporary);
    let id = first.begin(&mm1("1 ms"));
    first.until(id, &["done"]);
    let second = Command::new(env!("CARGO_BIN_EXE_lastmeter"))
        .args(["serve", "--listen", "127.0.0.1:0", "--out", out])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another `lastmeter serve`"), "{said}");
    // Killed, it leaves its lock file, which nobody holds.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let third = serve_with(&["--out", out], &temporary);
    assert_eq!(third.get(&format!("/api/runs/{id}")).json()["stands"], "done");
    assert_eq!(third.begin(&mm1("1 ms")), id + 1);
    // The same for temporary folders.
    let count = || std::fs::read_dir(&temporary).unwrap().count();
    let mut killed = serve_with(&[], &temporary);
    assert_eq!(count(), 1);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let living = serve_with(&[], &temporary);
    assert_eq!(count(), 1, "the folder of the killed server is still there");
    let next = serve_with(&[], &temporary);
    assert_eq!(count(), 2, "the folder of a living server is gone");
    drop((living, next));
}

#[test]
fn silent_connections_do_not_hold_all_places() {
    let server = serve(&[]);
    let silent: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(&server.at).unwrap()).collect();
    // Some that began a request and do not go on.
    let halves = (0..100).map(|_| {
        let mut stream = TcpStream::connect(&server.at).unwrap();
        let head = "POST /api/check HTTP/1.1\r\ncontent-length: 1000\r\n\r\nhalf";
        stream.write_all(head.as_bytes()).unwrap();
        stream
    });
    let halves: Vec<TcpStream> = halves.collect();
    let began = Instant::now();
    assert_eq!(server.get("/").status, 200);
    // Well below the time after which a silent one is given up.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop((silent, halves));
}

#[test]
fn a_run_that_needs_too_much_memory_fails_and_says_why() {
    let server = serve(&["--memory", "1536 MiB", "--at-once", "1"]);
    // Far more customers than the desk can serve, for a long time.
    let text = mm1("100 s").replace("6.4 Gbit/s", "60 Gbit/s");
    let id = server.begin(&text);
    let record = server.until(id, &["failed", "done"]);
    let words = record["words"].as_str().unwrap();
    assert!(words.contains("it needed more than"), "{record}");
    assert_eq!(server.get("/").status, 200);
    let id = server.begin(&mm1("1 ms"));
    assert_eq!(server.until(id, &["failed", "done"])["stands"], "done");
}

#[test]
fn only_the_link_with_the_token_gives_access() {
    let server = serve(&["--token"]);
    let token = server.token.clone().unwrap();
    assert_eq!(server.get("/").status, 401);
    assert_eq!(server.get("/api/runs").status, 401);
    assert_eq!(server.get(&format!("/api/runs?token={token}")).status, 401);
    let welcome = server.get(&format!("/?token={token}"));
    assert_eq!(welcome.status, 303);
    let cookie = welcome.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let headers = format!("host: {}\r\ncookie: {cookie}\r\n", server.at);
    assert_eq!(server.with("GET", "/api/runs", &headers, "").status, 200);
}
