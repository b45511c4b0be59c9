//! A disk as its clients see it: those of others (`nbdinfo`, `qemu-img`) where they are installed, and killed while it writes.
//!
//! Rows: N-32.

use super::attempts::in_time;
use super::initiator::Initiator;
use super::{PROGRAM, has, said};
use lastmeter_wire::scsi::Sense;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FILE: &str = "\
file = 'disk.img'\nsize = '1 MiB'\nsocket = 'disk.sock'\n\
[iscsi]\nlisten = '127.0.0.1:0'\n\
[sizes]\nalice = '64 KiB'\n\
[clients.alice]\ntoken = 'a-long-secret'\npolicies = ['first']\n\
[clients.anyone]\npolicies = ['look']\n\
[policies.first]\nexpression = '(or (= operation flush) (within lba 0 128))'\n\
[policies.look]\nexpression = '(read-only)'\n";

/// The program, and its iSCSI address: host, port, target, unit.
pub(crate) struct Disk(Child, pub(crate) String);

impl Disk {
    fn start(folder: &Path) -> Disk {
        Disk::begin(folder, FILE, Command::new(PROGRAM))
    }
    /// With this configuration, and this command before `disk run`.
    pub(crate) fn begin(folder: &Path, text: &str, mut command: Command) -> Disk {
        std::fs::write(folder.join("disk.toml"), text).unwrap();
        let child = command
            .args(["disk", "run"])
            .arg(folder.join("disk.toml"))
            .args(["--ledger"])
            .arg(folder.join("ledger.json"))
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        // What it serves, a line each; the first is iSCSI's.
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let portal = line.trim().strip_prefix("serving iscsi://").unwrap_or_default().to_owned();
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let disk = Disk(child, portal);
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

/// How often a disk is killed in a test.
fn kills() -> u64 {
    std::env::var("LASTMETER_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Kills a disk while it is written to.
fn kill_soon(disk: &Disk, round: u64) -> std::thread::JoinHandle<()> {
    let pid = disk.0.id().to_string();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(500 + 700 * (round % 7)));
        Command::new("kill").args(["-9", &pid]).output().unwrap();
    })
}

/// Killed at any instant: what was answered with FUA is there afterwards, and every block is whole.
#[test]
fn what_was_durable_outlives_a_kill() {
    let kills = kills();
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
        let kill = kill_soon(&disk, round);
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

/// The same over iSCSI, with up to four blocks at once and flushes between: of the write that was not answered, each
/// block is the old or the new one; all others are as they were answered.
#[test]
fn what_initiators_wrote_outlives_a_kill() {
    const OPEN: &str = "file = 'disk.img'\nsize = '64 KiB'\nsocket = 'disk.sock'\n\
        [iscsi]\nlisten = '127.0.0.1:0'\n";
    let folder = tempfile::tempdir().unwrap();
    let (mut wanted, mut unanswered) = ([0u8; 128], (0..0, 0u8));
    for round in 1..=kills() {
        let disk = Disk::begin(folder.path(), OPEN, Command::new(PROGRAM));
        let mut initiator = Initiator::open(&disk.1);
        for (lba, byte) in wanted.iter_mut().enumerate() {
            let mut data = [0; 512];
            assert_eq!(initiator.read(lba as u32, &mut data), Some(Ok(())));
            assert!(data.iter().all(|found| *found == data[0]), "block {lba} is torn");
            let (range, new) = &unanswered;
            let is_new = range.contains(&lba) && data[0] == *new;
            assert!(is_new || data[0] == *byte, "round {round}, block {lba}: {}", data[0]);
            *byte = data[0];
        }
        let kill = kill_soon(&disk, round);
        for step in 0.. {
            let (lba, count) = ((step * 37 + round) as usize % 124, 1 + step as usize % 4);
            let byte = (step * 7 + round) as u8;
            let data = vec![byte; 512 * count];
            unanswered = (lba..lba + count, byte);
            let ended = initiator.write(lba as u32, step % 3 == 0, &data);
            if ended.is_none() || step % 5 == 0 && initiator.flush().is_none() {
                break;
            }
            assert_eq!(ended, Some(Ok(())));
            wanted[unanswered.0.clone()].fill(byte);
        }
        kill.join().unwrap();
    }
}

const FAILING: &str = "file = 'small/disk.img'\nsize = '4 MiB'\nsocket = 'disk.sock'\n\
    [iscsi]\nlisten = '127.0.0.1:0'\n";

/// Writes beyond what the kernel lets the program write, and reads of what somebody has cut off.
#[test]
fn a_medium_that_fails_is_told_and_the_disk_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("small")).unwrap();
    let file = std::fs::File::create(folder.path().join("small/disk.img")).unwrap();
    file.set_len(4 << 20).unwrap();
    let mut limited = Command::new("sh");
    // Half a MiB, or one, by the shell.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\"", PROGRAM]);
    let disk = Disk::begin(folder.path(), FAILING, limited);
    let mut initiator = Initiator::open(&disk.1);
    assert_eq!(initiator.write(0, true, &[1; 512]), Some(Ok(())));
    assert_eq!(initiator.write(6000, false, &[2; 512]), Some(Err(Sense::WRITE_ERROR)));
    let mut nbd = client(folder.path(), "");
    assert_eq!(block(&mut nbd, WRITE, 0, 6000, &mut [2; 512]), Some(5), "EIO");
    file.set_len(1 << 20).unwrap();
    let mut data = [9; 512];
    assert_eq!(initiator.read(6000, &mut data), Some(Err(Sense::READ_ERROR)));
    assert_eq!(block(&mut nbd, READ, 0, 6000, &mut data), Some(5), "EIO");
    assert_eq!((initiator.flush(), initiator.read(0, &mut data)), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(data, [1; 512]);
    assert_eq!(block(&mut nbd, READ, 0, 0, &mut data), Some(0));
}

/// A sparse disk on a file system that has no room for all of it.
#[test]
fn a_full_medium_is_told_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("small")).unwrap();
    let mount = "mount -t tmpfs -o size=256k none \"$0/small\"";
    let can = Command::new("unshare").args(["-m", "sh", "-c", mount]).arg(folder.path()).output();
    if !can.is_ok_and(|can| can.status.success()) {
        println!("SKIP: no mounts (needs root)");
        return;
    }
    let mut within = Command::new("unshare");
    let script = format!("{mount} && exec {PROGRAM} \"$@\"");
    within.args(["-m", "sh", "-c", &script]).arg(folder.path());
    let disk = Disk::begin(folder.path(), FAILING, within);
    let mut initiator = Initiator::open(&disk.1);
    let byte = |lba: u32| (lba % 251) as u8 + 1;
    let mut room = 0;
    let ended = loop {
        let ended = initiator.write(room, false, &[byte(room); 512]);
        if ended != Some(Ok(())) {
            break ended;
        }
        room += 1;
    };
    assert_eq!(ended, Some(Err(Sense::NO_ROOM)));
    assert!((256..=512).contains(&room), "{room} blocks of 512 bytes in 256 KiB");
    let mut nbd = client(folder.path(), "");
    assert_eq!(block(&mut nbd, WRITE, 0, 8000, &mut [2; 512]), Some(28), "ENOSPC");
    assert_eq!(initiator.flush(), Some(Ok(())));
    for lba in 0..room {
        let mut data = [0; 512];
        assert_eq!(initiator.read(lba, &mut data), Some(Ok(())));
        assert_eq!(data, [byte(lba); 512], "block {lba}");
    }
    // Others still have their places.
    assert_eq!(initiator.write(0, true, &[7; 512]), Some(Ok(())));
}

#[test]
fn the_clients_of_others_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::start(folder.path());
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
        initiators(&disk, folder.path());
    }
}

/// The same by iSCSI: QEMU's initiator reads what alice wrote, with her token and not without.
fn initiators(disk: &Disk, folder: &Path) {
    let plain = Command::new("qemu-img").args(["info", "iscsi://"]).output().unwrap();
    let told = String::from_utf8_lossy(&plain.stderr).into_owned();
    if told.contains("Unknown protocol") || told.contains("Unknown driver") {
        println!("SKIP: qemu-img without iSCSI (qemu-block-extra)");
        return;
    }
    let url = |who: &str| format!("iscsi://{who}{}", disk.1);
    let copy = folder.join("copy.img");
    let convert = |who: &str| {
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-f", "raw", "-O", "raw", &url(who)]).arg(&copy);
        convert.output().unwrap()
    };
    said(&convert("alice%a-long-secret@"), 0);
    let read = std::fs::read(&copy).unwrap();
    assert_eq!((read.len(), read.iter().all(|byte| *byte == 0xa5)), (65536, true));
    said(&convert("alice%a-wrong-secret@"), 1);
    // It writes, too, and reads that back; anyone may only look.
    let io = |who: &str, commands: &[&str]| {
        let mut qemu = Command::new("qemu-io");
        qemu.args(["-f", "raw"]);
        commands.iter().for_each(|command| {
            qemu.args(["-c", command]);
        });
        let output = qemu.arg(url(who)).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let told = io(
        "alice%a-long-secret@",
        &[
            "write -P 0x5b 4k 8k",
            "flush",
            "write -z 12k 4k",
            "discard 32k 8k",
            "read -P 0x5b 4k 8k",
        ],
    );
    assert!(told.contains("wrote 8192/8192") && told.contains("read 8192/8192"), "{told}");
    assert!(!told.contains("fail"), "{told}");
    let image = std::fs::read(folder.join("disk.img")).unwrap();
    let is = |part: std::ops::Range<usize>, byte: u8| image[part].iter().all(|own| *own == byte);
    assert!(is(0..4096, 0xa5) && is(4096..12288, 0x5b) && is(12288..16384, 0));
    let told = io("", &["write -P 1 0 512"]);
    assert!(told.contains("fail"), "{told}");
    assert_eq!(std::fs::read(folder.join("disk.img")).unwrap(), image, "anyone wrote");
}

/// The same file read by a program here and over TCP and UDP: rates, shares, CPU time. On a disk as slow as those of the
/// document's time, UDP has the share that it published.
#[test]
fn the_disk_is_measured_beside_a_local_file_over_tcp_and_udp_n_30_n_34() {
    super::camera::tried(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Command::new(PROGRAM);
        bench.args(["disk", "bench", "--quick", "--json", "--local"]).arg(folder.path());
        let told = said(&bench.output().unwrap(), 0);
        let lines: Vec<serde_json::Value> =
            told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let names: Vec<&str> = lines.iter().map(|line| line["bench"].as_str().unwrap()).collect();
        let cells = |medium: &str| {
            ["4k@1", "4k@32", "64k@1", "64k@32"].map(|cell| format!("{medium}-{cell}"))
        };
        let mut all = ["disk", "cache", "1995"].map(cells).concat();
        all.push("1995-in-order-64k@1".to_owned());
        let all = all
            .iter()
            .flat_map(|cell| ["local", "local-udp"].map(|way| format!("disk/{way}-{cell}")));
        assert_eq!(names, all.collect::<Vec<_>>());
        for line in &lines {
            let [value, other, ratio] =
                ["value", "peer_value", "ratio"].map(|key| line[key].as_f64().unwrap());
            assert!(value > 0.0 && other > 0.0 && (ratio - value / other).abs() < 1e-9, "{line}");
            assert_eq!(line["peer"], "local file");
            assert!(line["cpu_per_read"]["local"].as_f64().unwrap() > 0.0, "{line}");
        }
        // A cached read costs less than the same over a network, by far.
        for line in &lines[8..10] {
            assert!(line["ratio"].as_f64() < Some(1.0), "{line}");
        }
        // The published share is of the maximum, which is that in order.
        let line = lines.last().unwrap();
        in_time!(line["ratio"].as_f64() > Some(0.8), "{line}");
    });
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

/// NBD in TLS with the clients of others: a picture of the disk goes there and comes back, and a client that trusts
/// another certificate does not talk.
#[test]
fn nbd_is_encrypted_for_clients_of_others() {
    if !["nbdinfo", "nbdcopy", "qemu-img", "openssl"].into_iter().all(has) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    super::display_viewers::certificate(folder.path(), true);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tls = "[tls]\ncertificate = 'certificate.pem'\nkey = 'key.pem'\n[iscsi]";
    let text = FILE.replace("[iscsi]", &format!("listen = '127.0.0.1:{port}'\n{tls}"));
    let _disk = Disk::begin(folder.path(), &text, Command::new(PROGRAM));
    let ran = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        said(&output, 0)
    };
    for known in ["known", "unknown"] {
        std::fs::create_dir(folder.path().join(known)).unwrap();
    }
    let trusted = folder.path().join("known/ca-cert.pem");
    std::fs::copy(folder.path().join("certificate.pem"), trusted).unwrap();
    super::display_viewers::certificate(&folder.path().join("unknown"), true);
    let other = folder.path().join("unknown/certificate.pem");
    std::fs::rename(other, folder.path().join("unknown/ca-cert.pem")).unwrap();
    let place = |token: &str, known: &str| {
        let folder = folder.path().join(known);
        format!("nbds://127.0.0.1:{port}/{token}?tls-certificates={}", folder.display())
    };
    let alice = place("a-long-secret", "known");
    assert!(ran("nbdinfo", &["--size", &alice]).contains("65536"));
    let lines = ran("nbdinfo", &[&alice]);
    assert!(lines.contains("with TLS") && lines.contains("structured"), "{lines}");
    // More than a record, and no whole number of them.
    let data: Vec<u8> = (0..65536u32).map(|at| (at * at / 7 % 251) as u8).collect();
    let [there, back] = ["there.raw", "back.raw"].map(|name| folder.path().join(name));
    std::fs::write(&there, &data).unwrap();
    ran("nbdcopy", &[there.to_str().unwrap(), &alice]);
    ran("nbdcopy", &[&alice, back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == data, "what comes back is what went there");
    // QEMU, which checks the certificate, too.
    let known = folder.path().join("known");
    let credentials = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", known.display());
    let image = format!(
        "driver=nbd,server.type=inet,server.host=127.0.0.1,server.port={port},\
         export=a-long-secret,tls-creds=tls"
    );
    let lines = ran("qemu-img", &["info", "--object", &credentials, "--image-opts", &image]);
    assert!(lines.contains("64 KiB"), "{lines}");
    // A certificate that is not there is found before the disk runs.
    let wrong = text.replace("'certificate.pem'", "'nothing.pem'");
    std::fs::write(folder.path().join("wrong.toml"), wrong).unwrap();
    let check = Command::new(PROGRAM)
        .args(["disk", "check"])
        .arg(folder.path().join("wrong.toml"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(!check.status.success() && told.contains("nothing.pem"), "{told}");
    // Whoever trusts another certificate goes.
    let stranger = Command::new("nbdinfo").arg(place("a-long-secret", "unknown")).output().unwrap();
    assert!(!stranger.status.success());
}
