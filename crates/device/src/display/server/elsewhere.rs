//! Viewers and programs of other hosts: without TLS neither a password nor a token is accepted from them, nor is
//! anything else but what `[clients.anyone]` may.
//!
//! Here they are on this host, but come to its address in the network, as those of other hosts do.

use super::clients::{certificate, in_folder};
use super::tests::OWNER;
use super::*;
use crate::display::commands::Program;
use crate::display::datagrams::Transactions;
use crate::display::viewer::{Proof, Viewer};
use lastmeter_wire::rfb::{VERSION, security};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};

/// This host's address in the network.
#[allow(clippy::print_stdout, reason = "tests say what they skip")]
fn own_address() -> Option<IpAddr> {
    // Nothing is sent to this address, which is for documents.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    let found =
        socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).and_then(|()| socket.local_addr());
    let found = found.ok().map(|address| address.ip()).filter(|address| !address.is_loopback());
    if found.is_none() {
        println!("SKIP: this host has no address in a network");
    }
    found
}

fn start(folder: &Path, more: &str) -> Server {
    let text = format!(
        "size = '64x48'\nlisten = '0.0.0.0:0'\ncommands = '0.0.0.0:0'\ndatagrams = '0.0.0.0:0'\n\
         [clients.owner]\ntoken = \"{OWNER}\"\n{more}"
    );
    in_folder(&text, folder)
}

/// Where the display is, for who is elsewhere.
fn at(host: IpAddr, address: Option<SocketAddr>) -> SocketAddr {
    SocketAddr::new(host, address.expect("it listens").port())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    stream
}

fn take(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).expect("an answer");
    bytes
}

fn reason(stream: &mut TcpStream) -> String {
    let len = take(stream, 4);
    let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]);
    String::from_utf8(take(stream, len as usize)).expect("text")
}

/// The ways that are offered to a viewer, or why there is none.
fn offered(address: SocketAddr) -> Result<Vec<u8>, String> {
    let mut stream = connect(address);
    take(&mut stream, VERSION.len());
    stream.write_all(&VERSION).expect("sent");
    match take(&mut stream, 1)[0] {
        0 => Err(reason(&mut stream)),
        count => Ok(take(&mut stream, count.into())),
    }
}

/// What a viewer is told that takes a way, offered or not.
fn insists(address: SocketAddr, way: u8) -> String {
    let mut stream = connect(address);
    take(&mut stream, VERSION.len());
    stream.write_all(&VERSION).expect("sent");
    let count = take(&mut stream, 1)[0];
    take(&mut stream, count.into());
    stream.write_all(&[way]).expect("sent");
    assert_eq!(take(&mut stream, 4), [0, 0, 0, 1], "it is refused");
    reason(&mut stream)
}

/// What a viewer of version 3.3 is told, or the way that it has to take.
fn old(address: SocketAddr) -> Result<u32, String> {
    let mut stream = connect(address);
    take(&mut stream, VERSION.len());
    stream.write_all(b"RFB 003.003\n").expect("sent");
    let way = take(&mut stream, 4);
    match u32::from_be_bytes([way[0], way[1], way[2], way[3]]) {
        0 => Err(reason(&mut stream)),
        way => Ok(way),
    }
}

#[test]
fn without_a_certificate_viewers_of_other_hosts_are_refused() {
    let Some(host) = own_address() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), "");
    let near = at(Ipv4Addr::LOCALHOST.into(), server.viewers);
    assert_eq!((offered(near), old(near)), (Ok(vec![security::VNC]), Ok(2)));
    assert_eq!(insists(near, security::NONE), "this display did not offer that way");
    let far = at(host, server.viewers);
    let words = "this display is for viewers on its own host: it has no certificate for TLS, and \
                 VNC's passwords are not safe on a network";
    assert_eq!((offered(far), old(far)), (Err(words.to_owned()), Err(words.to_owned())));
    for token in [None, Some(OWNER)] {
        assert_eq!(Viewer::connect(connect(far), token).err().as_deref(), Some(words));
    }
    // What anyone may is in the clear, and nothing else.
    let server = start(folder.path(), "[clients.anyone]\n");
    let far = at(host, server.viewers);
    assert_eq!((offered(far), old(far)), (Ok(vec![security::NONE]), Ok(1)));
    assert_eq!(insists(far, security::VNC), "this display did not offer that way");
    assert!(Viewer::connect(connect(far), None).is_ok());
}

#[test]
fn with_a_certificate_viewers_and_programs_of_other_hosts_must_encrypt() {
    let folder = tempfile::tempdir().expect("a folder");
    let (Some(host), true) = (own_address(), certificate(folder.path())) else { return };
    let server = start(folder.path(), "[tls]\ncertificate = 'certificate.pem'\nkey = 'key.pem'\n");
    let near = at(Ipv4Addr::LOCALHOST.into(), server.viewers);
    assert_eq!(offered(near), Ok(vec![security::VENCRYPT, security::VNC]));
    let far = at(host, server.viewers);
    assert_eq!(offered(far), Ok(vec![security::VENCRYPT]));
    for way in [security::NONE, security::VNC] {
        assert_eq!(insists(far, way), "this display did not offer that way");
    }
    let words = "this display wants VeNCrypt, which version 3.3 does not have";
    assert_eq!(old(far), Err(words.to_owned()));
    // Inside of TLS the token is accepted; nobody else is. The certificate has the name of loopback.
    let trusted = tls::client(&folder.path().join("certificate.pem"), None).expect("a certificate");
    let prove = |token: Option<&str>| {
        let tls = Some((trusted.clone(), "127.0.0.1".to_owned()));
        Viewer::prove(connect(far), &Proof { token: token.map(str::to_owned), tls }).err()
    };
    assert_eq!(prove(Some(OWNER)), None);
    assert!(prove(Some("a wrong one")).is_some() && prove(None).is_some());
    assert!(Viewer::connect(connect(far), Some(OWNER)).is_err());
    // Programs: a token in the clear is not looked at, whatever carries it.
    let far = at(host, server.programs);
    let words = "the display wants TLS from other hosts";
    assert_eq!(Program::greet(connect(far), OWNER).err().as_deref(), Some(words));
    let secured = crate::duplex::connect(trusted.clone(), "127.0.0.1", connect(far)).expect("TLS");
    assert!(Program::greet(secured, OWNER).is_ok());
    let far = at(host, server.datagrams);
    let words = "the device wants TLS from other hosts, which DTP has not";
    assert_eq!(Transactions::greet(far, OWNER, 1, 1400).err().as_deref(), Some(words));
    let near: IpAddr = Ipv4Addr::LOCALHOST.into();
    assert!(Program::greet(connect(at(near, server.programs)), OWNER).is_ok());
    assert!(Transactions::greet(at(near, server.datagrams), OWNER, 1, 1400).is_ok());
}
