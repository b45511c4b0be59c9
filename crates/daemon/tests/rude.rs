//! What a rude user does to every command of devices: a full disk, clients that neither speak nor read.

use super::{PROGRAM, said};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const DISK: &str = "memory = true\nsize = '64 KiB'\nsocket = 'disk.sock'\n\
    [clients.anyone]\npolicies = ['look']\n[policies.look]\nexpression = '(read-only)'\n";
const DISPLAY: &str = "size = '64x48'\nsocket = 'display.sock'\n\
    [clients.anyone]\npolicies = ['look']\n[policies.look]\nexpression = '(= operation update)'\n";
const CAMERA: &str = "source = 'pattern'\nsize = '128x96'\nrate = 1\nlisten = '127.0.0.1:0'\n\
    [clients.anyone]\n";
const AUDIO: &str = "microphone = 'tone:440'\nlisten = '127.0.0.1:0'\n[clients.anyone]\n";
const ROUTER: &str = "[ports.a]\ninterface = 'eth0'\n";

/// Commands that print: those that run a device until it is ended do so before they serve.
const PRINTING: &[&[&str]] = &[
    &["disk", "check", "disk.toml"],
    &["disk", "run", "disk.toml"],
    &["display", "check", "display.toml"],
    &["display", "run", "display.toml"],
    &["camera", "check", "camera.toml"],
    &["camera", "run", "camera.toml"],
    &["audio", "check", "audio.toml"],
    &["audio", "run", "audio.toml"],
    &["router", "check", "router.toml"],
    &["router", "--help"],
    &["wave", "--help"],
    &["plugin", "new", "counter", "--kind", "packet"],
    &["plugin", "build", "small.lisp", "--kind", "packet"],
    &["plugin", "check", "small.wasm"],
    &["plugin", "check", "small.wasm", "--json"],
    &["plugin", "serve", "."],
    &["model", "--", "run", "mm1", "--quick", "--no-what-ifs"],
    &["--help"],
    &["--version"],
];

fn run(folder: &Path, arguments: &[&str], out: Stdio) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(out);
    command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_full_disk_is_an_error_of_every_command() {
    let space = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("disk.toml", DISK),
        ("display.toml", DISPLAY),
        ("camera.toml", CAMERA),
        ("audio.toml", AUDIO),
        ("router.toml", ROUTER),
        ("small.lisp", "(< length 1000)"),
    ] {
        std::fs::write(space.path().join(name), text).unwrap();
    }
    let help = said(&run(space.path(), &["--help"], Stdio::piped()), 0);
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        assert!(PRINTING.iter().any(|tried| tried[0] == name), "`{name}` is not tried");
    }
    for arguments in PRINTING {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let words = said(&run(space.path(), arguments, full.into()), 2);
        assert!(words.contains("No space left on device"), "{arguments:?}: {words}");
    }
}

#[test]
fn control_characters_of_files_do_not_reach_the_terminal() {
    let space = tempfile::tempdir().unwrap();
    let evil = "\"a\\u001b]0;pwned\\u0007\"";
    std::fs::write(space.path().join("disk.toml"), format!("{DISK}[clients.{evil}]\n")).unwrap();
    std::fs::write(space.path().join("router.toml"), format!("[ports.{evil}]\nx = 1\n")).unwrap();
    for arguments in [&["disk", "check", "disk.toml"], &["router", "check", "router.toml"]] {
        let out = run(space.path(), arguments, Stdio::piped());
        for bytes in [out.stdout, out.stderr] {
            let text = String::from_utf8(bytes).unwrap();
            assert!(!text.contains(['\u{1b}', '\u{7}']), "{arguments:?}: {text:?}");
        }
    }
}

/// A code server, ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn clients_that_do_not_speak_or_do_not_read_keep_nobody_waiting() {
    let space = tempfile::tempdir().unwrap();
    let index = vec![b'#'; 1 << 20];
    std::fs::write(space.path().join("index.toml"), &index).unwrap();
    // A link, which would lead out of the folder.
    std::fs::create_dir(space.path().join("small")).unwrap();
    std::os::unix::fs::symlink("../index.toml", space.path().join("small/1.0.0.wasm")).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["plugin", "serve", ".", "--listen", "127.0.0.1:0"]).current_dir(space.path());
    let mut server = Server(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let unread: Vec<TcpStream> = (0..100).map(|_| ask("/index.toml")).collect();
    let began = Instant::now();
    let mut answer = Vec::new();
    ask("/index.toml").read_to_end(&mut answer).unwrap();
    let head = answer.len() - index.len();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer[head..] == index[..]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    for (request, status) in [("/small/1.0.0.wasm", "404"), ("nonsense with words", "400")] {
        let mut answer = String::new();
        ask(request).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    drop((silent, unread));
}
