//! A real Linux guest (`make guest`) on a disk: its kernel attaches it by its own NBD driver and keeps a file system on
//! it, and another one boots from it, by QEMU's clients of NBD and iSCSI (N-32).

use super::disk::Disk;
use super::{PROGRAM, has, said};
use lastmeter_guest::kit::{Ended, Guest, Kit, Options};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A busy machine takes several times what a quiet one does.
const LIMIT: Duration = Duration::from_secs(180);
const TOKEN: &str = "a-long-secret";

/// The kit, if it has these modules; else a test says that it skips.
fn kit(modules: &[&str]) -> Option<Kit> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest");
    let kit = Kit::at(&folder).map_err(|error| println!("SKIP: {error}")).ok()?;
    match modules.iter().find(|module| !kit.has_module(module)) {
        None => Some(kit),
        Some(module) => {
            println!("SKIP: the guest's kernel has no module {module}: make guest");
            None
        }
    }
}

/// Files of a guest, by name.
type Files = Vec<(String, Vec<u8>)>;

/// A program of this host with its libraries, as files of a guest, and how it is run there.
fn program(name: &str) -> Option<(Files, String)> {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let path = folders.iter().map(|folder| format!("{folder}/{name}"));
    let Some(path) = path.into_iter().find(|path| Path::new(path).exists()) else {
        println!("SKIP: no {name}");
        return None;
    };
    let libraries = said(&Command::new("ldd").arg(&path).output().unwrap(), 0);
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    let mut files = vec![(name.to_owned(), std::fs::read(&path).unwrap())];
    let mut loader = String::new();
    for path in paths {
        let file = path.rsplit('/').next().unwrap().to_owned();
        if file.starts_with("ld-linux") {
            loader.clone_from(&file);
        }
        files.push((file, std::fs::read(path).unwrap()));
    }
    Some((files, format!("/{loader} --library-path / /{name}")))
}

fn names(modules: &[&str]) -> Vec<String> {
    modules.iter().map(|name| (*name).to_owned()).collect()
}

fn ran(kit: &Kit, options: &Options) -> Ended {
    let ended = Guest::start(kit, options).unwrap().wait().unwrap();
    println!("{:.1} s from start to end", ended.lasted.as_secs_f64());
    assert_eq!(ended.status, 0, "{}\n{}", ended.output, ended.console);
    ended
}

/// The host's own view of a file system and of a file in it.
fn on_host(image: &Path, file: &str) -> String {
    let check = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(image).output().unwrap();
    said(&check, 0);
    let request = format!("cat {file}");
    let cat = Command::new("/usr/sbin/debugfs").args(["-R", &request]).arg(image).output().unwrap();
    assert!(cat.status.success());
    String::from_utf8(cat.stdout).unwrap()
}

#[test]
fn a_guests_kernel_keeps_a_file_system_on_it_by_its_own_nbd_driver_n_32() {
    let modules = ["nbd"];
    let Some(kit) = kit(&modules) else { return };
    let programs = ["nbd-client", "mke2fs", "e2fsck"].map(program);
    let [Some(client), Some(make), Some(check)] = programs else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "file = 'disk.img'\nsize = '64 MiB'\nlisten = '127.0.0.1:{port}'\nsocket = 'disk.sock'\n\
         [clients.alice]\ntoken = '{TOKEN}'\n"
    );
    let _disk = Disk::begin(folder.path(), &text, Command::new(PROGRAM));
    // 200 files of 100 KB; what is read back came from the disk, as the kernel has forgotten the device meanwhile.
    let command = format!(
        "set -e\n\
         attach() {{ {nbd} -N {TOKEN} 10.0.2.2 {port} /dev/nbd0; }}\n\
         attach\n\
         cat /sys/block/nbd0/size\n\
         {make} -q -t ext4 /dev/nbd0\n\
         mkdir /mnt\n\
         mount -t ext4 /dev/nbd0 /mnt\n\
         dd if=/dev/urandom of=/tmp/data bs=100k count=1 2>/dev/null\n\
         for at in $(seq 200); do cp /tmp/data /mnt/$at; done\n\
         echo written by the guest > /mnt/hello\n\
         sync\n\
         umount /mnt\n\
         {check} -fn /dev/nbd0\n\
         {nbd} -d /dev/nbd0\n\
         attach\n\
         mount -t ext4 /dev/nbd0 /mnt\n\
         for at in $(seq 200); do cmp /tmp/data /mnt/$at; done\n\
         umount /mnt\n\
         {nbd} -d /dev/nbd0\n",
        nbd = client.1,
        make = make.1,
        check = check.1,
    );
    let network = ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="];
    let options = Options {
        address: Some("10.0.2.15/24".to_owned()),
        modules: Some([kit.modules().unwrap(), names(&modules)].concat()),
        command,
        files: [client.0, make.0, check.0].concat(),
        limit: LIMIT,
        qemu: names(&network),
        ..Options::default()
    };
    let ended = ran(&kit, &options);
    assert!(ended.output.contains("\n131072\n"), "blocks of 512 bytes: {}", ended.output);
    let show = Command::new(PROGRAM)
        .args(["disk", "show", "--json"])
        .arg(folder.path().join("disk.toml"))
        .output();
    let ledger: serde_json::Value = serde_json::from_str(&said(&show.unwrap(), 0)).unwrap();
    let totals = &ledger["paths"][0]["totals"];
    println!("the guest's file system asked the disk for {}", totals["delivered"]);
    // There and back.
    assert!(totals["delivered"]["bytes"].as_u64().unwrap() > 2 * 200 * 100 * 1024, "{totals}");
    assert_eq!(totals["dropped"]["packets"], 0);
    assert_eq!(on_host(&folder.path().join("disk.img"), "/hello"), "written by the guest\n");
}

/// The first program of the initial file system: the disk becomes the root, and a program on it the first process.
const INIT: &str = "#!/bin/busybox sh\n\
    export PATH=/bin\n/bin/busybox --install -s /bin\n\
    mount -t proc proc /proc\nmount -t devtmpfs devtmpfs /dev\n\
    . /guest.conf\n\
    for module in $MODULES; do insmod /lib/modules/$module.ko || echo \"insmod $module failed\"; done\n\
    mkdir /new\nmount -t ext4 -o ro /dev/vda /new\numount /proc\nmount -o move /dev /new/dev\n\
    exec switch_root /new /init\n";

/// The first process on the disk: it writes, checks the file system that it came from, and ends the guest.
fn first_process(check: &str) -> String {
    format!(
        "#!/busybox sh\n/busybox mount -t proc proc /proc\n/busybox stty raw -echo < /dev/ttyS1\n\
         /busybox stty raw -echo < /dev/ttyS2\nexec 3> /dev/ttyS1 > /dev/ttyS2 2>&1\n\
         echo \"ready 0\" >&3\nwork() {{\n\
         /busybox mount -o remount,rw / || return 1\n\
         echo \"booted from $(/busybox sed -n 's,^\\(/dev/[a-z]*\\) / .*,\\1,p' /proc/mounts)\" > /hello || return 2\n\
         /busybox cat /hello\n/busybox sync\n/busybox mount -o remount,ro / || return 3\n\
         {check} -fn /dev/vda || return 4\n}}\nwork\necho \"exit $?\" >&3\n\
         for port in 1 2; do /busybox stty raw -echo < /dev/ttyS$port; done\n/busybox reboot -f\n"
    )
}

#[test]
fn a_guest_boots_from_it_and_checks_its_file_system_n_32() {
    let modules = ["virtio_blk"];
    let Some(kit) = kit(&modules) else { return };
    let Some((mut files, check)) = program("e2fsck") else { return };
    if !has("qemu-img") {
        return;
    }
    let drivers = Command::new("qemu-img").args(["info", "iscsi://"]).output().unwrap();
    let told = String::from_utf8_lossy(&drivers.stderr).into_owned();
    let has_iscsi = !told.contains("Unknown protocol") && !told.contains("Unknown driver");
    if !has_iscsi {
        println!("SKIP in part: qemu-img without iSCSI (qemu-block-extra)");
    }
    files.push(("busybox".to_owned(), std::fs::read("/bin/busybox").unwrap()));
    files.push(("init".to_owned(), first_process(&check).into_bytes()));
    for protocol in ["nbd", "iscsi"].into_iter().filter(|name| *name == "nbd" || has_iscsi) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for name in ["dev", "proc"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for (name, bytes) in &files {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(root.join(name), bytes).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(root.join(name), mode).unwrap();
        }
        let image = folder.path().join("disk.img");
        let mut make = Command::new("/usr/sbin/mke2fs");
        make.args(["-q", "-t", "ext4", "-d"]).arg(&root).arg(&image).arg("64M");
        said(&make.output().unwrap(), 0);
        let text = format!(
            "file = 'disk.img'\nsocket = 'disk.sock'\n[iscsi]\nlisten = '127.0.0.1:0'\n\
             [clients.alice]\ntoken = '{TOKEN}'\n"
        );
        let disk = Disk::begin(folder.path(), &text, Command::new(PROGRAM));
        let drive = match protocol {
            "nbd" => {
                let socket = folder.path().join("disk.sock");
                format!("nbd+unix:///{TOKEN}?socket={}", socket.display())
            }
            _ => format!("iscsi://alice%{TOKEN}@{}", disk.1),
        };
        let options = Options {
            modules: Some([kit.modules().unwrap(), names(&modules)].concat()),
            files: vec![("init".to_owned(), INIT.as_bytes().to_vec())],
            limit: LIMIT,
            qemu: names(&[
                "-drive",
                &format!("file={drive},format=raw,if=none,id=disk"),
                "-device",
                "virtio-blk-pci,drive=disk",
            ]),
            ..Options::default()
        };
        let ended = ran(&kit, &options);
        assert!(ended.output.starts_with("booted from /dev/vda\n"), "{}", ended.output);
        drop(disk);
        assert_eq!(on_host(&image, "/hello"), "booted from /dev/vda\n", "{protocol}");
    }
}
