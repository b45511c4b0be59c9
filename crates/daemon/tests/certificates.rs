//! Clients that say who they are by certificates: those of others (`nbdinfo`, `qemu-img`, GTK-VNC's viewer), with
//! certificates that an authority has signed, that the file knows, and that are neither (N-20).

use super::disk::Disk;
use super::display::{Running, until, x_server_of};
use super::{PROGRAM, has, said};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Who signs others' certificates.
const AUTHORITIES: [&str; 2] = ["authority", "elsewhere"];

/// Makes a certificate and its key, `NAME.pem` and `NAME.key`, signed by another one of the folder or by itself.
fn make(folder: &Path, name: &str, subject: &str, by: Option<&str>, more: &[&str]) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "30", "-subj", subject, "-keyout", &format!("{name}.key")]);
    openssl.args(["-out", &format!("{name}.pem")]);
    if let Some(by) = by {
        openssl.args(["-CA", &format!("{by}.pem"), "-CAkey", &format!("{by}.key")]);
    }
    if !AUTHORITIES.contains(&name) {
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    for extension in more {
        openssl.args(["-addext", extension]);
    }
    said(&openssl.current_dir(folder).output().unwrap(), 0);
}

/// The fingerprint of a certificate, as people copy it.
fn fingerprint(folder: &Path, name: &str) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &format!("{name}.pem")]);
    let told = said(&openssl.current_dir(folder).output().unwrap(), 0);
    told.trim().rsplit_once('=').unwrap().1.to_owned()
}

/// The certificates of a test: an authority and the server's, and those of clients.
fn all(folder: &Path) {
    make(folder, "authority", "/CN=authority", None, &[]);
    let server = ["subjectAltName=DNS:localhost,IP:127.0.0.1", "extendedKeyUsage=serverAuth"];
    make(folder, "server", "/CN=localhost", Some("authority"), &server);
    let client = "extendedKeyUsage=clientAuth";
    make(folder, "alice", "/O=Example/CN=alice", Some("authority"), &[client]);
    let mail = ["subjectAltName=email:bob,URI:urn:bob", client];
    make(folder, "bob", "/CN=Robert", Some("authority"), &mail);
    make(folder, "nobody", "/CN=mallory", Some("authority"), &[client]);
    // Her own, signed by nobody; and one with alice's name by somebody else.
    make(folder, "carol", "/CN=whatever", None, &[]);
    make(folder, "elsewhere", "/CN=authority", None, &[]);
    make(folder, "forged", "/CN=alice", Some("elsewhere"), &[client]);
    // One that may only be a server's.
    make(folder, "wrong-use", "/CN=alice", Some("authority"), &["extendedKeyUsage=serverAuth"]);
}

/// The folder with a client's certificate as GnuTLS's clients want it.
fn as_gnutls(folder: &Path, name: &str) -> PathBuf {
    let own = folder.join(format!("{name}.gnutls"));
    std::fs::create_dir_all(&own).unwrap();
    std::fs::copy(folder.join("authority.pem"), own.join("ca-cert.pem")).unwrap();
    if name != "none" {
        std::fs::copy(folder.join(format!("{name}.pem")), own.join("client-cert.pem")).unwrap();
        std::fs::copy(folder.join(format!("{name}.key")), own.join("client-key.pem")).unwrap();
    }
    own
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

const TLS: &str =
    "[tls]\ncertificate = 'server.pem'\nkey = 'server.key'\nclients = 'authority.pem'\n";

/// Each client gets its own size, which says who the disk takes it for.
fn disk_file(port: u16, carol: &str) -> String {
    format!(
        "memory = true\nsize = '1 MiB'\nlisten = '127.0.0.1:{port}'\nsocket = 'disk.sock'\n{TLS}\
         [sizes]\nalice = '64 KiB'\nbob = '128 KiB'\ncarol = '256 KiB'\n\
         [clients.alice]\n[clients.bob]\ntoken = 'a-long-secret'\n\
         [clients.carol]\ncertificate = '{carol}'\n"
    )
}

#[test]
fn nbds_clients_are_known_by_their_certificates_n_20() {
    if !["nbdinfo", "qemu-img", "openssl"].into_iter().all(has) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    all(folder);
    let port = free_port();
    let text = disk_file(port, &fingerprint(folder, "carol"));
    let _disk = Disk::begin(folder, &text, Command::new(PROGRAM));
    let size = |export: &str, name: &str| {
        let own = as_gnutls(folder, name);
        let place = format!("nbds://127.0.0.1:{port}/{export}?tls-certificates={}", own.display());
        let told = Command::new("nbdinfo").args(["--size", &place]).output().unwrap();
        let text = String::from_utf8_lossy(&told.stdout).trim().to_owned();
        told.status.success().then_some(text)
    };
    let is = |bytes: &str| Some(bytes.to_owned());
    assert_eq!(size("", "alice"), is("65536"), "by the name in the subject");
    assert_eq!(size("alice", "alice"), is("65536"));
    assert_eq!(size("", "bob"), is("131072"), "by an alternative name");
    assert_eq!(size("a-long-secret", "bob"), is("131072"));
    assert_eq!(size("", "carol"), is("262144"), "by the fingerprint");
    assert_eq!(size("a-long-secret", "none"), is("131072"), "by the token");
    // A certificate and something else that contradicts it; nothing; no client's name; somebody else's signature; a
    // certificate for servers.
    for (export, name) in [
        ("a-long-secret", "alice"),
        ("bob", "alice"),
        ("alice", "none"),
        ("", "none"),
        ("", "nobody"),
        ("", "forged"),
        ("", "wrong-use"),
    ] {
        assert_eq!(size(export, name), None, "{export:?} with the certificate of {name}");
    }
    let credentials = |name: &str| {
        let own = as_gnutls(folder, name);
        // Nobody signed carol's, which QEMU would find out before it asks.
        let checks = if name == "carol" { "off" } else { "on" };
        let dir = own.display();
        format!("tls-creds-x509,id=tls,endpoint=client,sanity-check={checks},dir={dir}")
    };
    let image = format!(
        "driver=nbd,server.type=inet,server.host=127.0.0.1,server.port={port},tls-creds=tls"
    );
    let info = |name: &str| {
        let mut qemu = Command::new("qemu-img");
        qemu.args(["info", "--object", &credentials(name), "--image-opts", &image]);
        qemu.output().unwrap()
    };
    assert!(said(&info("alice"), 0).contains("64 KiB"));
    assert!(said(&info("carol"), 0).contains("256 KiB"));
    assert!(!info("nobody").status.success() && !info("forged").status.success());
}

/// What `openssl s_client` gets from a server of TLS with a client's certificate: it shows any, whoever signed it.
fn https(folder: &Path, port: u16, name: &str) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}")]);
    openssl.args(["-CAfile", "authority.pem", "-verify_return_error"]);
    openssl.args(["-cert", &format!("{name}.pem"), "-key", &format!("{name}.key")]);
    openssl.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = openssl.stderr(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(
        &mut child.stdin.take().unwrap(),
        b"GET /none HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    )
    .ok();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).starts_with("HTTP/1.1 404")
}

/// A display that has begun.
fn display(folder: &Path, text: &str, port: u16) -> Running {
    std::fs::write(folder.join("display.toml"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["display", "run", "display.toml"]).current_dir(folder).stdout(Stdio::null());
    let display = Running(command.spawn().unwrap());
    until("the display did not begin", || TcpStream::connect(("127.0.0.1", port)).ok());
    display
}

#[test]
fn viewers_are_known_by_their_certificates_n_20() {
    if !has("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    all(folder);
    let (port, web, commands) = (free_port(), free_port(), free_port());
    // A region of its own for each says who the display takes a viewer for.
    let text = format!(
        "size = '320x200'\nlisten = '127.0.0.1:{port}'\nweb = '127.0.0.1:{web}'\nquality = 0\n\
         commands = '127.0.0.1:{commands}'\n{TLS}\
         [regions]\nalice = '64x48+10+20'\nbob = '32x24'\ncarol = '16x12'\n\
         [clients.alice]\n[clients.bob]\ntoken = 'a-long-secret'\n\
         [clients.carol]\ncertificate = '{}'\n",
        fingerprint(folder, "carol")
    );
    let _display = display(folder, &text, port);
    let shot = |name: &str, token: Option<&str>| {
        let mut shot = Command::new(PROGRAM);
        shot.args(["display", "shot", &format!("127.0.0.1:{port}"), "seen.png"]);
        shot.args(["--trust", "authority.pem"]).current_dir(folder);
        if name != "none" {
            let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
            shot.args(["--certificate", &certificate, "--key", &key]);
        }
        if let Some(token) = token {
            shot.args(["--token", token]);
        }
        let told = shot.output().unwrap();
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        told.status.success().then(|| text.trim().trim_start_matches("seen.png: ").to_owned())
    };
    let is = |text: &str| Some(text.to_owned());
    assert_eq!(shot("alice", None), is("64 by 48 pixels"));
    assert_eq!(shot("bob", None), is("32 by 24 pixels"));
    assert_eq!(shot("bob", Some("a-long-secret")), is("32 by 24 pixels"));
    assert_eq!(shot("carol", None), is("16 by 12 pixels"));
    assert_eq!(shot("none", Some("a-long-secret")), is("32 by 24 pixels"));
    assert_eq!(shot("alice", Some("a-long-secret")), None, "it is bob's");
    for name in ["none", "nobody", "forged", "wrong-use"] {
        assert_eq!(shot(name, None), None, "{name}");
    }
    // The same of programs that draw: on all of alice's part, and not on more.
    let draw = |name: &str, token: &str, width: &str| {
        let mut draw = Command::new(PROGRAM);
        draw.args(["display", "draw", &format!("127.0.0.1:{commands}"), "--token", token]);
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        draw.args(["--trust", "authority.pem", "--certificate", &certificate, "--key", &key]);
        draw.args(["fill", "0", "0", width, "48", "ff8000"]).current_dir(folder);
        draw.output().unwrap().status.code()
    };
    assert_eq!(draw("alice", "", "64"), Some(0));
    assert_eq!(draw("alice", "", "65"), Some(1), "outside of its part");
    assert_eq!(draw("alice", "a-long-secret", "32"), Some(2), "the token is bob's");
    assert_eq!(draw("forged", "", "64"), Some(2));
    // Browsers show theirs before they ask for a page.
    assert!(https(folder, web, "alice") && https(folder, web, "carol"));
    assert!(!https(folder, web, "nobody") && !https(folder, web, "forged"));
}

/// GTK-VNC's viewer, which looks for certificates in its user's folder, where libvirt's clients do: it shows the
/// display of alice, who has no token.
#[test]
fn gtk_vncs_viewer_shows_its_certificate_n_20() {
    if !has("openssl") || !has("gvncviewer") {
        return;
    }
    let Some((_server, screen)) = x_server_of((640, 480)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    all(folder);
    let hidden = "mount -t tmpfs none /root && cp -r \"$0\" /root/.pki";
    let can = Command::new("unshare").args(["-m", "sh", "-c", hidden]).arg(folder).output();
    if !can.is_ok_and(|can| can.status.success()) {
        println!("SKIP: no mounts (needs root)");
        return;
    }
    let port = free_port();
    let text =
        format!("size = '64x48'\nlisten = '127.0.0.1:{port}'\nquality = 0\n{TLS}[clients.alice]\n");
    let _display = display(folder, &text, port);
    let shows = |name: &str| -> bool {
        let own = folder.join(format!("{name}.pki"));
        for (from, to) in [
            ("authority.pem".to_owned(), "CA/cacert.pem"),
            (format!("{name}.pem"), "gvncviewer/clientcert.pem"),
            (format!("{name}.key"), "gvncviewer/private/clientkey.pem"),
        ] {
            std::fs::create_dir_all(own.join(to).parent().unwrap()).unwrap();
            std::fs::copy(folder.join(from), own.join(to)).unwrap();
        }
        let mut command = Command::new("unshare");
        let script = format!("{hidden} && exec gvncviewer 127.0.0.1:{}", port - 5900);
        command.args(["-m", "sh", "-c", &script]).arg(own).env("DISPLAY", &screen);
        let mut viewer =
            Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let updates = || {
            let mut show = Command::new(PROGRAM);
            show.args(["display", "show", "display.toml", "--json"]).current_dir(folder);
            let told = said(&show.output().unwrap(), 0);
            let ledger: serde_json::Value = serde_json::from_str(&told).unwrap();
            ledger["paths"][0]["totals"]["delivered"]["packets"].as_u64().unwrap()
        };
        let (before, began) = (updates(), Instant::now());
        // A viewer that is refused ends.
        while began.elapsed() < Duration::from_secs(20) && viewer.0.try_wait().unwrap().is_none() {
            if updates() > before {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    };
    assert!(shows("alice"), "it gets updates");
    assert!(!shows("nobody") && !shows("forged"));
}

#[test]
fn mistakes_about_certificates_are_told_with_their_place() {
    if !has("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make(folder, "server", "/CN=localhost", None, &[]);
    make(folder, "other", "/CN=localhost", None, &[]);
    std::fs::write(folder.join("empty.pem"), "").unwrap();
    let tls = "[tls]\ncertificate = 'server.pem'\nkey = 'server.key'\n";
    let check = |device: &str, clients: &str| {
        let head = match device {
            "disk" => "memory = true\nsize = '4 KiB'\nlisten = '127.0.0.1:0'\n",
            _ => "size = '10x10'\nlisten = '127.0.0.1:0'\n",
        };
        std::fs::write(folder.join("device.toml"), format!("{head}{clients}")).unwrap();
        let mut check = Command::new(PROGRAM);
        check.args([device, "check", "device.toml"]).current_dir(folder);
        check.output().unwrap()
    };
    let signed = format!("{tls}clients = 'server.pem'\n[clients.alice]\n");
    let digits = "0b".repeat(32);
    for device in ["disk", "display"] {
        said(&check(device, &signed), 0);
        said(&check(device, &format!("{tls}[clients.alice]\ncertificate = '{digits}'\n")), 0);
        for (text, place) in [
            (
                signed.replace("clients = 's", "clients = 'absent-s"),
                "tls.clients: absent-server.pem",
            ),
            (signed.replace("clients = 'server", "clients = 'empty"), "no certificate in it"),
            (signed.replace("certificate = 's", "certificate = 'x"), "tls.certificate: xerver.pem"),
            (signed.replace("server.key", "other.key"), "tls.key: other.key"),
            (signed.replace("[clients.alice]", ""), "tls.clients: there is no [clients.NAME]"),
            (format!("{tls}[clients.alice]\n"), "clients.alice: give a `token` or `certificate`"),
            (
                format!("{tls}[clients.alice]\ncertificate = 'server.pem'\n"),
                "clients.alice.certificate: \"server.pem\" is no SHA-256",
            ),
            (
                format!("[clients.alice]\ncertificate = '{digits}'\n"),
                "clients.alice.certificate: certificates are shown in TLS",
            ),
        ] {
            let told = said(&check(device, &text), 2);
            assert!(told.contains("device.toml: ") && told.contains(place), "{device}: {told}");
        }
    }
}
