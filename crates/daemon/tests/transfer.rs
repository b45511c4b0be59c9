//! A transfer between two disks on a network, with a ticket of an owner whose host is on the same network and carries
//! none of it. Needs root and `ip`.
//!
//! Rows: N-03, N-25.

use super::router::ip;
use super::{PROGRAM, said};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// What the owner's interface may carry, both ways.
const OWNER_BYTES_MAX: u64 = 100 << 10;
/// Bytes that are written and compared at once.
const PIECE: usize = 1 << 20;

/// MiB of the transfer.
fn size() -> u64 {
    std::env::var("LASTMETER_TRANSFER").ok().and_then(|text| text.parse().ok()).unwrap_or(64)
}

/// Hosts on a switch: the owner's and those of two devices.
struct Hosts {
    names: [String; 4],
    children: Vec<Child>,
}

impl Hosts {
    fn new() -> Option<Hosts> {
        let own = std::process::id();
        let names = ["owner", "a", "b", "switch"].map(|part| format!("lm-transfer-{own}-{part}"));
        let root = Command::new("ip").args(["netns", "add", &names[3]]).output();
        if !root.is_ok_and(|output| output.status.success()) {
            println!("SKIP: no right to make network namespaces, or no `ip`");
            return None;
        }
        let hosts = Hosts { names, children: Vec::new() };
        let [.., switch] = &hosts.names;
        let bridge = ["-n", switch.as_str(), "link", "add", "br0", "type", "bridge"];
        if !Command::new("ip").args(bridge).output().is_ok_and(|output| output.status.success()) {
            println!("SKIP: the kernel has no bridges");
            return None;
        }
        ip(&format!("-n {switch} link set br0 up"));
        for (number, name) in hosts.names[..3].iter().enumerate() {
            ip(&format!("netns add {name}"));
            ip(&format!("link add e0 netns {name} type veth peer name p{number} netns {switch}"));
            ip(&format!("-n {switch} link set p{number} master br0 up"));
            ip(&format!("-n {name} addr add 10.3.0.{}/24 dev e0", number + 1));
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set e0 up"));
        }
        Some(hosts)
    }
    fn inside(&self, which: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[which], program]);
        command
    }
    /// Starts the disk of this folder on host `which`; its key and address.
    fn disk(&mut self, which: usize, folder: &Path) -> String {
        let mut command = self.inside(which, PROGRAM);
        command.args(["disk", "run"]).arg(folder.join("disk.toml"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        self.children.push(child);
        loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "the disk did not begin");
            if let Some(device) = line.strip_prefix("transfers with ") {
                let device = device.trim().to_owned();
                std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
                return device;
            }
        }
    }
    /// Bytes that a host's interface has carried, both ways.
    fn carried(&self, which: usize) -> u64 {
        let count = |what: &str| {
            let path = format!("/sys/class/net/e0/statistics/{what}_bytes");
            let told = said(&self.inside(which, "cat").arg(path).output().unwrap(), 0);
            told.trim().parse::<u64>().unwrap()
        };
        count("rx") + count("tx")
    }
    fn owner(&self, folder: &Path, arguments: &[&str]) -> Output {
        let mut command = self.inside(0, PROGRAM);
        command.current_dir(folder).args(arguments).output().unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// Bytes of a file's piece, unlike those of any other.
fn piece(number: u64) -> Vec<u8> {
    let mut random = lastmeter_base::Stream::new(number, "piece");
    (0..PIECE / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

#[test]
fn a_transfer_with_a_ticket_passes_its_owner_by_n_03_n_25() {
    let Some(mut hosts) = Hosts::new() else { return };
    let (folder, mib) = (tempfile::tempdir().unwrap(), size());
    let [owner, a, b] = ["owner", "a", "b"].map(|name| folder.path().join(name));
    [&owner, &a, &b].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let key = ["plugin", "key", "alice", "--keys", "../issuers", "--secret", "."];
    std::fs::create_dir(folder.path().join("issuers")).unwrap();
    said(&hosts.owner(&owner, &key), 0);
    let page = include_str!("../../../docs/transfer.md");
    let section = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    for (number, folder) in [(2, &a), (3, &b)] {
        let section = section
            .replace("10.3.0.2", &format!("10.3.0.{number}"))
            .replace("\"issuers\"", "\"../issuers\"");
        let text = format!("file = 'disk.img'\nsize = '{} MiB'\n{section}", mib + 1);
        std::fs::write(folder.join("disk.toml"), text).unwrap();
    }
    let mut image = File::create(a.join("disk.img")).unwrap();
    (0..mib).for_each(|number| image.write_all(&piece(number)).unwrap());
    let (from, to) = (hosts.disk(1, &a), hosts.disk(2, &b));
    let read = format!("0 B+{mib} MiB");
    let make =
        ["disk", "ticket", "copy.ticket", "--key", "alice.key", "--from", &from, "--to", &to];
    let range = ["--read", &read, "--write", "1 MiB", "--valid", "1 h"];
    said(&hosts.owner(&owner, &[&make[..], &range].concat()), 0);
    let show = said(&hosts.owner(&owner, &["disk", "transfer", "copy.ticket", "--show"]), 0);
    assert!(show.contains("10.3.0.2:10811") && show.contains("valid for 3"), "{show}");
    let before = [0, 1, 2].map(|host| hosts.carried(host));
    let told = said(&hosts.owner(&owner, &["disk", "transfer", "copy.ticket"]), 0);
    assert!(told.contains(&format!("transferred {} B", mib << 20)), "{told}");
    let after = [0, 1, 2].map(|host| hosts.carried(host));
    let carried: Vec<u64> =
        after.iter().zip(before).map(|(after, before)| after - before).collect();
    println!(
        "{mib} MiB; interfaces carried: owner {} B, source {} B, destination {} B; {told}",
        carried[0], carried[1], carried[2]
    );
    assert!(carried[0] < OWNER_BYTES_MAX, "{} B passed the owner", carried[0]);
    assert!(carried[1] > mib << 20 && carried[2] > mib << 20, "the devices' own interfaces");
    let mut image = File::open(b.join("disk.img")).unwrap();
    let mut found = vec![0; PIECE];
    image.read_exact(&mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 0), "nothing before the range");
    for number in 0..mib {
        image.read_exact(&mut found).unwrap();
        assert!(found == piece(number), "MiB {number}");
    }
    // Again: refused, by the program's words and its status.
    let again = said(&hosts.owner(&owner, &["disk", "transfer", "copy.ticket"]), 1);
    assert!(again.contains("refused: ticket: used before"), "{again}");
}
