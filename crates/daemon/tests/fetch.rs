//! Fetching from servers that are good, wrong, slow or malicious.

use crate::{PROGRAM, has, plugin, said};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of ours, ended with the test.
struct Server(Child, String);

impl Server {
    fn new(folder: &Path) -> Server {
        let mut child = Command::new(PROGRAM)
            .args(["plugin", "serve", "shop", "--listen", "127.0.0.1:0"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server(child, line.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with keys of alice, and a policy signed by her as versions 1.0.0 and 1.1.0.
pub(crate) fn shop() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("small.lisp"), "(< length 1000)").unwrap();
    let run = |arguments: &[&str]| said(&plugin(path, arguments), 0);
    run(&["build", "small.lisp", "--kind", "packet"]);
    run(&["key", "alice", "--keys", "keys"]);
    for version in ["1.0.0", "1.1.0"] {
        let sign = ["--name", "small", "--version", version, "--into", "shop"];
        run(&[&["sign", "small.wasm", "--key", "alice.key"], &sign[..]].concat());
    }
    folder
}

fn fetch(folder: &Path, server: &str, more: &[&str], status: i32) -> String {
    let arguments = ["fetch", server, "small", "--keys", "keys", "--patience", "2"];
    said(&plugin(folder, &[&arguments, more].concat()), status)
}

#[test]
fn the_newest_version_is_fetched_and_older_ones_refused_unless_asked() {
    let folder = shop();
    let path = folder.path();
    let server = Server::new(path);
    let text = fetch(path, &server.1, &[], 0);
    for stage in ["index", "signature", "module", "verify", "compile", "configure", "bind"] {
        assert!(text.contains(&format!("  {stage} ")), "{stage} is not in:\n{text}");
    }
    assert!(fetch(path, &server.1, &["--version", "1.0.0"], 1).contains("older than 1.1.0"));
    fetch(path, &server.1, &["--version", "1.0.0", "--rollback", "--out", "got.wasm"], 0);
    assert!(path.join("got.wasm").exists());
    assert!(fetch(path, &server.1, &["--version", "2.0.0"], 1).contains("404"));
    assert!(fetch(path, &server.1, &["--kind", "block"], 1).contains("wanted for block"));
    let audit = std::fs::read_to_string(path.join("keys/audit.jsonl")).unwrap();
    let events: Vec<String> = audit
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["event"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(events, ["load", "unload", "refuse", "load", "unload", "refuse", "refuse"]);
}

#[test]
fn a_module_that_was_touched_is_refused_and_not_kept() {
    let folder = shop();
    let path = folder.path();
    let server = Server::new(path);
    let module = path.join("shop/small/1.1.0.wasm");
    let signature = path.join("shop/small/1.1.0.wasm.minisig");
    let (good, good_signature) =
        (std::fs::read(&module).unwrap(), std::fs::read(&signature).unwrap());
    let refused = |word: &str| {
        let text = fetch(path, &server.1, &["--out", "got.wasm"], 1);
        assert!(text.contains(word), "{text}");
        assert!(!path.join("got.wasm").exists());
    };
    std::fs::write(&module, &good[..good.len() - 1]).unwrap();
    refused("does not fit");
    std::fs::write(&module, vec![0; 1 << 21]).unwrap();
    // Our server does not even read it.
    refused("404");
    std::fs::write(&module, &good).unwrap();
    std::fs::copy(path.join("shop/small/1.0.0.wasm.minisig"), &signature).unwrap();
    refused("signed as");
    std::fs::remove_file(&signature).unwrap();
    refused("404");
    std::fs::write(&signature, "untrusted comment: x\nx\n").unwrap();
    refused("not a signature");
    said(&plugin(path, &["key", "mallory", "--keys", "elsewhere"]), 0);
    let sign = ["sign", "small.wasm", "--key", "mallory.key", "--name", "small", "--version"];
    said(&plugin(path, &[&sign[..], &["1.1.0", "--into", "shop"]].concat()), 0);
    refused("none of the 1 here");
    std::fs::write(&signature, good_signature).unwrap();
    fetch(path, &server.1, &["--out", "got.wasm"], 0);
}

#[test]
fn what_stalls_or_never_ends_is_given_up() {
    let folder = shop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let endless = std::thread::spawn(move || {
        // First one that never answers, then one that never stops.
        let (silent, _) = listener.accept().unwrap();
        let (mut talker, _) = listener.accept().unwrap();
        let _ = talker.read(&mut [0; 1024]);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = talker.write_all(head.as_bytes());
        let chunk = [&b"10000\r\n"[..], &[b'a'; 0x10000], b"\r\n"].concat();
        while talker.write_all(&chunk).is_ok() {}
        drop(silent);
    });
    let began = Instant::now();
    assert!(fetch(folder.path(), &address, &[], 1).contains("timeout"));
    let text = fetch(folder.path(), &address, &[], 1);
    assert!(text.contains("refused"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(20));
    endless.join().unwrap();
}

#[test]
fn minisign_and_we_accept_each_others_signatures() {
    let folder = shop();
    let path = folder.path();
    if !has("minisign") {
        return;
    }
    let run = |arguments: &[&str]| {
        let output = Command::new("minisign").args(arguments).current_dir(path).output().unwrap();
        said(&output, 0)
    };
    run(&["-V", "-p", "keys/alice.pub", "-m", "shop/small/1.1.0.wasm"]);
    // And the other way round: its keys and its signature.
    run(&["-G", "-W", "-p", "keys/bob.pub", "-s", "bob.key"]);
    let comment = "lastmeter:request/1 small 1.1.0";
    run(&["-S", "-s", "bob.key", "-m", "shop/small/1.1.0.wasm", "-t", comment]);
    let server = Server::new(path);
    assert!(fetch(path, &server.1, &[], 0).contains("signed by bob"));
}
