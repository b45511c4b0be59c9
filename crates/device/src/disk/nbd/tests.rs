//! Sessions without sockets: bytes in, bytes out.

use super::*;
use crate::access::{Access, Table};
use crate::account::Account;
use crate::disk::STAGES;
use crate::disk::medium::Medium;
use crate::disk::scsi::Unit;
use lastmeter_base::Stream;
use lastmeter_plugin::host::{Host, Limits};
use lastmeter_plugin::request::Kind as Asking;
use lastmeter_wire::nbd::SIMPLE_LEN;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

const BLOCKS: u64 = 64;
const TOKEN: &str = "a token of alice";

fn disk(policy: Option<&str>) -> Arc<Disk> {
    let host = Arc::new(Host::new(Limits { instances: 1, ..Limits::default() }).expect("a host"));
    let text = match policy {
        None => "[clients.anyone]".to_owned(),
        Some(policy) => format!(
            "[clients.alice]\ntoken = '{TOKEN}'\npolicies = ['own']\n\
             [policies.own]\nexpression = '{policy}'"
        ),
    };
    let table: Table = toml::from_str(&text).expect("a table");
    let access = Access::new(table, Path::new("."), Asking::Block, host).expect("sound");
    Arc::new(Disk {
        medium: Medium::memory(BLOCKS * 512, 512).expect("memory"),
        access,
        sizes: BTreeMap::new(),
        unit: Unit::new("iqn.2026-11.local.test:disk", "test"),
        secret: None,
        account: Account::new("disk", &STAGES, 1),
        began: Instant::now(),
    })
}

/// What the server says to these bytes, and how it ended.
fn session(disk: &Arc<Disk>, input: &[u8]) -> (Vec<u8>, End) {
    let (mut output, mut input) = (Vec::new(), BufReader::new(input));
    let end = serve(disk, &mut input, &mut output, &Encryption::Absent, || ());
    (output, end)
}

fn greeting() -> Vec<u8> {
    vec![0, 0, 0, 3]
}

fn option(kind: Kind, data: &[u8]) -> Vec<u8> {
    let header = nbd::Option { kind, length: data.len() as u32 }.emit();
    [&header[..], data].concat()
}

fn go(name: &str) -> Vec<u8> {
    let wanted = Wanted { name: name.to_owned(), information: Vec::new() };
    option(Kind::GO, &wanted.emit())
}

fn request(command: Command, lba: u64, blocks: u32) -> Vec<u8> {
    let (offset, length) = (lba.wrapping_mul(512), blocks.wrapping_mul(512));
    Request { flags: 0, command, cookie: 9, offset, length }.emit().to_vec()
}

/// What follows the options of a session without chunks: replies and their data.
fn replies(output: &[u8]) -> &[u8] {
    let magic = 0x6744_6698u32.to_be_bytes();
    let at = output.windows(4).position(|four| four == magic);
    at.map_or(&[], |at| &output[at..])
}

#[test]
fn what_was_written_is_read() {
    let disk = disk(None);
    let mut input = greeting();
    input.extend(go(""));
    input.extend(request(Command::WRITE, 3, 1));
    input.extend([0xab; 512]);
    input.extend(request(Command::FLUSH, 0, 0));
    input.extend(request(Command::READ, 2, 2));
    input.extend(request(Command::DISCONNECT, 0, 0));
    let (output, end) = session(&disk, &input);
    assert_eq!(end, End::Closed);
    let replies = replies(&output);
    assert_eq!(replies.len(), 16 + 16 + 16 + 1024);
    assert_eq!(replies[48..48 + 512], [0; 512]);
    assert_eq!(replies[48 + 512..], [0xab; 512]);
    assert_eq!(disk.account.done(), 3);
}

/// A write that comes in pieces, a read that is sent from the medium, and one that is copied, over a socket.
#[test]
fn long_requests_come_whole_over_a_socket() {
    let disk = disk(None);
    let data: Vec<u8> = (0..40 * 512u32).map(|at| (at % 251) as u8).collect();
    let mut input = [greeting(), go("")].concat();
    input.extend(request(Command::WRITE, 8, 40));
    input.extend(&data);
    input.extend(request(Command::READ, 0, BLOCKS as u32));
    input.extend(request(Command::READ, 8, 1));
    input.extend(request(Command::DISCONNECT, 0, 0));
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let client = std::thread::spawn(move || {
        theirs.write_all(&input).expect("sent");
        let mut output = Vec::new();
        theirs.read_to_end(&mut output).expect("received");
        output
    });
    let mut reader = BufReader::new(ours.try_clone().expect("a socket"));
    let end = serve(&disk, &mut reader, &mut BufWriter::new(ours), &Encryption::Absent, || ());
    assert_eq!(end, End::Closed);
    drop(reader);
    let output = client.join().expect("it ends");
    let (first, rest) = replies(&output).split_at(2 * SIMPLE_LEN);
    assert_eq!(first[SIMPLE_LEN..][..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    let (all, last) = rest.split_at(BLOCKS as usize * 512);
    assert_eq!((&all[..4096], &all[4096..4096 + data.len()]), (&[0; 4096][..], &data[..]));
    assert_eq!(last[SIMPLE_LEN..], data[..512]);
}

#[test]
fn nobody_is_let_in_without_a_token() {
    let disk = disk(Some("(allow)"));
    for name in ["", "anyone", "alice", "a token of alicf"] {
        let mut input = greeting();
        input.extend(go(name));
        input.extend(option(Kind::LIST, &[]));
        input.extend(request(Command::READ, 0, 1));
        let (output, end) = session(&disk, &input);
        assert!(matches!(end, End::Wrong(_)), "a request is no option");
        assert!(replies(&output).is_empty(), "{name}");
        assert!(!output.windows(5).any(|five| five == b"alice"), "tokens and names are not listed");
    }
    let (output, end) = session(&disk, &[greeting(), go(TOKEN)].concat());
    assert_eq!(end, End::Closed);
    assert!(output.ends_with(&nbd::option_reply(Kind::GO, reply::ACK, &[])));
}

#[test]
fn requests_that_make_no_sense_are_answered_and_others_are_served_after_them() {
    let disk = disk(None);
    let code = |bytes: Vec<u8>| {
        let input = [greeting(), go(""), bytes, request(Command::READ, 0, 1)].concat();
        let (output, _) = session(&disk, &input);
        let replies = replies(&output);
        assert_eq!(replies.len(), 16 + 16 + 512, "the next request is served");
        u32::from_be_bytes([replies[4], replies[5], replies[6], replies[7]])
    };
    assert_eq!(code(request(Command::READ, BLOCKS, 1)), error::INVALID);
    assert_eq!(code(request(Command::READ, u64::MAX / 512, 8)), error::INVALID);
    assert_eq!(
        code([request(Command::WRITE, BLOCKS - 1, 2), vec![0; 1024]].concat()),
        error::SPACE
    );
    assert_eq!(code(request(Command(77), 0, 1)), error::UNSUPPORTED);
    assert_eq!(code(request(Command::STATUS, 0, 1)), error::INVALID, "no context was chosen");
    let odd = Request { flags: 0, command: Command::TRIM, cookie: 1, offset: 5, length: 512 };
    assert_eq!(code(odd.emit().to_vec()), error::INVALID);
    let huge = Request { flags: 0, command: Command::READ, cookie: 1, offset: 0, length: u32::MAX };
    let (_, end) = session(&disk, &[greeting(), go(""), huge.emit().to_vec()].concat());
    assert!(matches!(end, End::Wrong(_)), "it would take memory");
}

/// Random commands against a policy, beside a model of what the owner allowed: nothing outside is read or changed.
#[test]
fn no_command_escapes_its_policy() {
    let count = std::env::var("LASTMETER_COMMANDS").ok().and_then(|text| text.parse().ok());
    let rounds: u64 = count.unwrap_or(20_000) / 100;
    let mut random = Stream::new(7, "commands");
    for round in 0..rounds {
        let (first, len) = (random.below(BLOCKS), 1 + random.below(BLOCKS / 2));
        let end = (first + len).min(BLOCKS);
        let read_only = round % 3 == 0;
        let policy = match read_only {
            true => format!("(and (read-only) (within lba {first} {end}))"),
            false => format!("(or (= operation flush) (within lba {first} {end}))"),
        };
        let disk = disk(Some(&policy));
        // What is outside must neither change nor be seen.
        let secret = [0x5e; 512];
        (0..BLOCKS).for_each(|lba| disk.medium.write(lba * 512, &secret, false).expect("written"));
        let inside = |lba: u64| (first..end).contains(&lba);
        (first..end)
            .for_each(|lba| disk.medium.write(lba * 512, &[1; 512], false).expect("written"));
        let mut input = [greeting(), go(TOKEN)].concat();
        for _ in 0..100 {
            let command =
                [Command::READ, Command::WRITE, Command::TRIM, Command::ZEROES, Command::FLUSH];
            let command = command[random.below(5) as usize];
            let (lba, blocks) = (random.below(BLOCKS + 4), 1 + random.below(6) as u32);
            input.extend(request(command, lba, blocks));
            if command == Command::WRITE {
                input.extend(vec![2; blocks as usize * 512]);
            }
        }
        let (output, _) = session(&disk, &input);
        assert!(!replies(&output).windows(64).any(|bytes| bytes == &secret[..64]), "{policy}");
        let mut bytes = [0; 512];
        for lba in 0..BLOCKS {
            disk.medium.read(lba * 512, &mut bytes).expect("read");
            let untouched = if inside(lba) { [1; 512] } else { secret };
            if !inside(lba) || read_only {
                assert_eq!(bytes, untouched, "{policy}: block {lba}");
            }
        }
    }
}

#[test]
fn no_stream_of_bytes_does_harm() {
    let count = std::env::var("LASTMETER_STREAMS").ok().and_then(|text| text.parse().ok());
    let disk = disk(None);
    let mut random = Stream::new(3, "streams");
    for _ in 0..count.unwrap_or(3000) {
        let mut input = greeting();
        for _ in 0..random.below(4) {
            let kind = Kind(random.below(12) as u32);
            let data: Vec<u8> = (0..random.below(40)).map(|_| random.below(256) as u8).collect();
            input.extend(option(kind, &data));
        }
        if random.below(2) == 0 {
            input.extend(go(""));
        }
        input.extend((0..random.below(200)).map(|_| random.below(256) as u8));
        let at = random.below(input.len() as u64) as usize;
        input[at] ^= 1 << random.below(8);
        let (output, _) = session(&disk, &input);
        assert!(output.len() < 1 << 20);
    }
}

/// What a server that has a certificate for nobody says to these bytes.
fn encrypting(required: bool, input: &[u8]) -> (Vec<u8>, End) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let nobody = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
    let config = Arc::new(config.with_no_client_auth().with_cert_resolver(nobody));
    let encryption = match required {
        true => Encryption::Required(config),
        false => Encryption::Offered(config),
    };
    let (mut output, mut input) = (Vec::new(), BufReader::with_capacity(28, input));
    let end = serve(&disk(None), &mut input, &mut output, &encryption, || ());
    (output, end)
}

/// The types of the replies to options.
fn types(mut output: &[u8]) -> Vec<u32> {
    let mut types = Vec::new();
    output = &output[18..];
    while let Some((head, rest)) = output.split_at_checked(20) {
        let field = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| head[at + n]));
        types.push(field(12));
        output = rest.get(field(16) as usize..).unwrap_or_default();
    }
    types
}

#[test]
fn a_client_of_another_host_is_told_nothing_before_it_encrypts() {
    let curious = [
        greeting(),
        option(Kind::LIST, &[]),
        go(""),
        option(Kind::STRUCTURED, &[]),
        option(Kind::START_TLS, b"x"),
        option(Kind::ABORT, &[]),
    ];
    let (output, end) = encrypting(true, &curious.concat());
    let refused = [reply::TLS_REQUIRED; 3];
    assert_eq!(types(&output), [&refused[..], &[reply::INVALID, reply::ACK]].concat());
    assert_eq!(end, End::Closed);
    // The old way to choose an export has no answer that says no.
    let (output, end) = encrypting(true, &[greeting(), option(Kind::EXPORT_NAME, b"")].concat());
    assert_eq!((output.len(), end), (18, End::Closed));
    // One of this host may do without.
    let (output, _) = encrypting(false, &[greeting(), go("")].concat());
    assert_eq!(types(&output).last(), Some(&reply::ACK));
    // Without a certificate there is nothing to begin.
    let asked = [greeting(), option(Kind::START_TLS, &[]), go("")].concat();
    let (output, _) = session(&disk(None), &asked);
    assert_eq!(types(&output)[0], reply::POLICY);
}

#[test]
fn what_is_no_tls_ends_the_session_and_nothing_else() {
    let ahead = [greeting(), option(Kind::START_TLS, &[])].concat();
    let (_, end) = encrypting(true, &ahead);
    assert_eq!(end, End::Closed, "it goes instead of shaking hands");
    let mut random = Stream::new(1, "no tls");
    for length in 0..200 {
        let noise = (0..length).map(|_| random.below(256) as u8);
        let (_, end) = encrypting(true, &ahead.iter().copied().chain(noise).collect::<Vec<_>>());
        assert!(length < 5 || matches!(end, End::Wrong(_)), "{length}: {end:?}");
    }
}
