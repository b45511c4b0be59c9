//! A disk as its clients see it: those of others (`nbdinfo`, `qemu-img`) where they are installed, and killed while it writes.
//!
//! Rows: N-32.

use super::{PROGRAM, has, said};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FILE: &str = "\
file = 'disk.img'\nsize = '1 MiB'\nsocket = 'disk.sock'\n\
[sizes]\nalice = '64 KiB'\n\
[clients.alice]\ntoken = 'a-long-secret'\npolicies = ['first']\n\
[clients.anyone]\npolicies = ['look']\n\
[policies.first]\nexpression = '(or (= operation flush) (within lba 0 128))'\n\
[policies.look]\nexpression = '(read-only)'\n";

struct Disk(Child);

impl Disk {
    fn start(folder: &Path) -> Disk {
        std::fs::write(folder.join("disk.toml"), FILE).unwrap();
        let child = Command::new(PROGRAM)
            .args(["disk", "run"])
            .arg(folder.join("disk.toml"))
            .args(["--ledger"])
            .arg(folder.join("ledger.json"))
            .stdout(Stdio::null())
            .spawn();
        let disk = Disk(child.unwrap());
        let began = Instant::now();
        while UnixStream::connect(folder.join("disk.sock")).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "the disk did not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        disk
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client that has chosen an export.
fn client(folder: &Path, export: &str) -> UnixStream {
    let mut stream = UnixStream::connect(folder.join("disk.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&[0, 0, 0, 3]).unwrap();
    // The old way to choose an export: size and flags come back.
    let mut option = b"IHAVEOPT\0\0\0\x01".to_vec();
    option.extend((export.len() as u32).to_be_bytes());
    option.extend(export.as_bytes());
    stream.write_all(&option).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

/// A request of one block, and the error that comes back.
fn block(
    stream: &mut UnixStream,
    command: u16,
    flags: u16,
    lba: u64,
    data: &mut [u8; 512],
) -> Option<u32> {
    let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
    request.extend(flags.to_be_bytes());
    request.extend(command.to_be_bytes());
    request.extend(7u64.to_be_bytes());
    request.extend((lba * 512).to_be_bytes());
    request.extend(512u32.to_be_bytes());
    if command == 1 {
        request.extend_from_slice(data);
    }
    stream.write_all(&request).ok()?;
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).ok()?;
    let error = u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]);
    if command == 0 && error == 0 {
        stream.read_exact(data).ok()?;
    }
    Some(error)
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const FUA: u16 = 1;

#[test]
fn each_client_may_do_what_its_owner_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::start(folder.path());
    let (mut alice, mut anyone) =
        (client(folder.path(), "a-long-secret"), client(folder.path(), ""));
    let mut data = [0x77; 512];
    assert_eq!(block(&mut alice, WRITE, 0, 5, &mut data), Some(0));
    assert_eq!(block(&mut alice, WRITE, 0, 128, &mut data), Some(28), "beyond her part");
    assert_eq!(block(&mut anyone, WRITE, 0, 5, &mut data), Some(1), "read only");
    data.fill(0);
    assert_eq!(block(&mut anyone, READ, 0, 5, &mut data), Some(0));
    assert_eq!(data, [0x77; 512]);
    let show = Command::new(PROGRAM)
        .args(["disk", "show", "--json"])
        .arg(folder.path().join("disk.toml"))
        .output();
    let ledger: serde_json::Value = serde_json::from_str(&said(&show.unwrap(), 0)).unwrap();
    let path = &ledger["paths"][0];
    assert_eq!(path["totals"]["delivered"]["packets"], 2, "{path:#}");
    assert_eq!(path["totals"]["dropped"]["packets"], 2);
    assert_eq!(path["stages"][1]["drops"]["a policy denies it"], 1, "{path:#}");
    said(&Command::new("kill").arg(disk.0.id().to_string()).output().unwrap(), 0);
    assert!(disk.0.wait().unwrap().success());
    assert!(folder.path().join("ledger.json").exists(), "saved at the end");
    assert!(!folder.path().join("disk.sock").exists());
}

/// Killed at any instant: what was answered with FUA is there afterwards, and every block is whole.
#[test]
fn what_was_durable_outlives_a_kill() {
    let kills =
        std::env::var("LASTMETER_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let folder = tempfile::tempdir().unwrap();
    let mut wanted = [0u8; 128];
    for round in 1..=kills {
        let disk = Disk::start(folder.path());
        let mut alice = client(folder.path(), "a-long-secret");
        let mut data = [0; 512];
        for (lba, byte) in wanted.iter().enumerate() {
            assert_eq!(block(&mut alice, READ, 0, lba as u64, &mut data), Some(0));
            assert!(data.iter().all(|found| *found == data[0]), "block {lba} is torn");
            // One write may have been done and not answered.
            assert!(data[0] == *byte || data[0] == (*byte).wrapping_add(1), "block {lba}");
        }
        for (lba, byte) in wanted.iter_mut().enumerate() {
            assert_eq!(block(&mut alice, READ, 0, lba as u64, &mut data), Some(0));
            *byte = data[0];
        }
        let pid = disk.0.id().to_string();
        let kill = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(500 + 700 * (round % 7)));
            Command::new("kill").args(["-9", &pid]).output().unwrap();
        });
        for step in 0u64.. {
            let lba = (step * 37 + round) % 128;
            let next = wanted[lba as usize].wrapping_add(1);
            let flags = if step % 2 == 0 { FUA } else { 0 };
            match block(&mut alice, WRITE, flags, lba, &mut [next; 512]) {
                Some(0) => wanted[lba as usize] = next,
                other => {
                    assert_eq!(other, None, "it was killed");
                    break;
                }
            }
        }
        kill.join().unwrap();
    }
}

#[test]
fn the_clients_of_others_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let _disk = Disk::start(folder.path());
    let uri = |export: &str| {
        format!("nbd+unix:///{export}?socket={}", folder.path().join("disk.sock").display())
    };
    if has("nbdinfo") {
        let told = said(&Command::new("nbdinfo").arg(uri("a-long-secret")).output().unwrap(), 0);
        assert!(told.contains("65536") && told.contains("structured packets"), "{told}");
        let map = Command::new("nbdinfo").args(["--map", &uri("")]).output().unwrap();
        assert!(said(&map, 0).contains("hole,zero"));
    }
    if has("qemu-img") {
        let told = Command::new("qemu-img").args(["info", &uri("a-long-secret")]).output().unwrap();
        assert!(said(&told, 0).contains("64 KiB"));
        let source = folder.path().join("source.img");
        std::fs::write(&source, vec![0xa5; 65536]).unwrap();
        let copy = |from: &str, to: &str| {
            let convert = ["convert", "-n", "-f", "raw", "-O", "raw", from, to];
            said(&Command::new("qemu-img").args(convert).output().unwrap(), 0)
        };
        copy(&source.to_string_lossy(), &uri("a-long-secret"));
        let image = std::fs::read(folder.path().join("disk.img")).unwrap();
        assert!(image[..65536].iter().all(|byte| *byte == 0xa5));
        assert!(image[65536..].iter().all(|byte| *byte == 0), "nothing beyond her part");
    }
}

#[test]
fn mistakes_are_told_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        std::fs::write(folder.path().join("disk.toml"), text).unwrap();
        let path = folder.path().join("disk.toml");
        said(&Command::new(PROGRAM).args(["disk", "check"]).arg(path).output().unwrap(), 2)
    };
    assert!(check("fil = 'x'").contains("unknown field `fil`"));
    assert!(check("memory = true\nsize = '1000 B'").contains("blocks of 512"));
    assert!(
        check("memory = true\n[sizes]\nbob = '4 KiB'").contains("sizes.bob: there is no client")
    );
    let policy = "memory = true\n[clients.anyone]\npolicies = ['x']\n[policies.x]\nexpression = '(within lbx 0 1)'";
    assert!(check(policy).contains("a block has no `lbx`"));
}
