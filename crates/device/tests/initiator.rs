//! Sessions without sockets: an initiator's bytes in, the target's bytes out.

use lastmeter_device::access::{Access, Table};
use lastmeter_device::account::Account;
use lastmeter_device::disk::iscsi::chap;
use lastmeter_device::disk::iscsi::serve::{Connection, serve};
use lastmeter_device::disk::medium::Medium;
use lastmeter_device::disk::scsi::Unit;
use lastmeter_device::disk::{Disk, End, STAGES};
use lastmeter_plugin::host::{Host, Limits};
use lastmeter_plugin::request::Kind;
use lastmeter_wire::iscsi::{
    self, Answer, Ask, HEADER_LEN, NO_TAG, Request, Response, reject, stage, status, text,
};
use lastmeter_wire::scsi::Sense;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

pub(crate) const BLOCKS: u64 = 64;
pub(crate) const TOKEN: &str = "a token of alice";
pub(crate) const TARGET: &str = "iqn.2026-11.local.test:disk";
const CHALLENGE: [u8; chap::LEN] = [9; chap::LEN];

pub(crate) fn disk(policy: Option<&str>) -> Arc<Disk> {
    match policy {
        None => disk_of("[clients.anyone]", Path::new(".")),
        Some(policy) => disk_of(&clients(&format!("expression = '{policy}'")), Path::new(".")),
    }
}

/// Two clients with one policy.
pub(crate) fn clients(policy: &str) -> String {
    format!(
        "[clients.alice]\ntoken = '{TOKEN}'\npolicies = ['own']\n\
         [clients.bob]\ntoken = '{TOKEN} and bob'\npolicies = ['own']\n\
         [policies.own]\n{policy}"
    )
}

/// A disk with these clients, whose modules are in a folder.
pub(crate) fn disk_of(clients: &str, folder: &Path) -> Arc<Disk> {
    let host = Arc::new(Host::new(Limits { instances: 1, ..Limits::default() }).expect("a host"));
    let table: Table = toml::from_str(clients).expect("a table");
    let access = Access::new(table, folder, Kind::Block, host).expect("sound");
    Arc::new(Disk {
        medium: Medium::memory(BLOCKS * 512, 512).expect("memory"),
        access,
        sizes: BTreeMap::new(),
        unit: Unit::new(TARGET, "test"),
        secret: Some("a secret of the disk".to_owned()),
        account: Account::new("disk", &STAGES, 1),
        began: Instant::now(),
    })
}

/// What an initiator would send.
pub(crate) struct Initiator {
    pub(crate) bytes: Vec<u8>,
    pub(crate) number: u32,
    pub(crate) isid: u8,
}

impl Initiator {
    pub(crate) fn new() -> Initiator {
        Initiator { bytes: Vec::new(), number: 1, isid: 1 }
    }
    pub(crate) fn pdu(&mut self, request: Request, data: &[u8]) {
        let request = Request { data_len: data.len() as u32, ..request };
        self.bytes.extend(request.emit());
        self.bytes.extend(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
    pub(crate) fn login(
        &mut self,
        (current, next): (u8, u8),
        transit: bool,
        pairs: &[(&str, &str)],
    ) {
        let mut text = Vec::new();
        pairs.iter().for_each(|(key, value)| text::emit(&mut text, key, value));
        let mut ask = Ask::login(current, next, [0x80, 0, 0, 0, 0, self.isid]);
        if let Ask::Login { transit: moves, .. } = &mut ask {
            *moves = transit;
        }
        let number = self.number;
        self.pdu(
            Request { immediate: true, command_number: number, task: 1, ..Request::new(ask) },
            &text,
        );
    }
    /// A login as anyone, with these keys.
    pub(crate) fn begin(&mut self, more: &[(&str, &str)]) {
        let names = [("InitiatorName", "iqn.2026-11.local.test:a"), ("TargetName", TARGET)];
        let all: Vec<(&str, &str)> = names.iter().chain(more).copied().collect();
        self.login((stage::OPERATIONAL, stage::FULL), true, &all);
    }
    /// A login as alice.
    pub(crate) fn begin_alice(&mut self, token: &str, more: &[(&str, &str)]) {
        self.begin_as("alice", token, more);
    }
    pub(crate) fn begin_as(&mut self, client: &str, token: &str, more: &[(&str, &str)]) {
        let names = [
            ("InitiatorName", "iqn.2026-11.local.test:a"),
            ("TargetName", TARGET),
            ("AuthMethod", "CHAP,None"),
        ];
        self.login((stage::SECURITY, 0), false, &names);
        self.login((stage::SECURITY, 0), false, &[("CHAP_A", "7,5")]);
        let response = text::hexadecimal(&chap::response(CHALLENGE[0], token, &CHALLENGE));
        let mut proof = vec![("CHAP_N", client), ("CHAP_R", response.as_str())];
        proof.extend(more);
        self.login((stage::SECURITY, stage::OPERATIONAL), true, &proof);
        self.login((stage::OPERATIONAL, stage::FULL), true, &[("InitialR2T", "No")]);
    }
    pub(crate) fn command(&mut self, task: u32, cdb: &[u8], expected: u32, data: Option<&[u8]>) {
        let cdb = std::array::from_fn(|at| cdb.get(at).copied().unwrap_or(0));
        let (last, attribute) = (true, 0);
        let (writes, reads) = (data.is_some(), data.is_none() && expected > 0);
        let ask = Ask::Command { last, reads, writes, attribute, expected, cdb };
        let request = Request { task, command_number: self.number, ..Request::new(ask) };
        self.number = self.number.wrapping_add(1);
        self.pdu(request, data.unwrap_or(&[]));
    }
    pub(crate) fn data_out(
        &mut self,
        task: u32,
        transfer: u32,
        (number, offset): (u32, u32),
        last: bool,
        data: &[u8],
    ) {
        let ask = Ask::DataOut { last, transfer, number, offset };
        self.pdu(Request { task, ..Request::new(ask) }, data);
    }
}

/// What the target says to these bytes, and how the session ended.
pub(crate) fn session(disk: &Arc<Disk>, bytes: &[u8]) -> (Vec<(Response, Vec<u8>)>, End) {
    let (raw, end) = raw_session(disk, bytes);
    (responses(&raw), end)
}

pub(crate) fn raw_session(disk: &Arc<Disk>, bytes: &[u8]) -> (Vec<u8>, End) {
    let (mut output, mut input) = (Vec::new(), BufReader::new(bytes));
    let clients = Arc::new(AtomicUsize::new(1));
    let connection = Connection {
        portal: "127.0.0.1:3260".to_owned(),
        challenge: CHALLENGE,
        number: 0,
        clients,
        close: Box::new(|| ()),
    };
    let end = serve(disk, &mut input, &mut output, connection, || ());
    (output, end)
}

pub(crate) fn responses(mut raw: &[u8]) -> Vec<(Response, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((header, rest)) = raw.split_first_chunk::<HEADER_LEN>() {
        let (_, len) = iscsi::lengths(header);
        let response = Response::parse(header).expect("a response");
        all.push((response, rest[..len].to_vec()));
        raw = &rest[iscsi::padded(len)..];
    }
    all
}

/// The status and data of a command.
pub(crate) fn result(all: &[(Response, Vec<u8>)], tag: u32) -> (u8, Vec<u8>, Option<Sense>) {
    let mut data = Vec::new();
    for (response, bytes) in all.iter().filter(|(response, _)| response.task == tag) {
        match response.answer {
            Answer::DataIn { status, offset, .. } => {
                assert_eq!(offset as usize, data.len(), "in order");
                data.extend(bytes);
                if let Some(status) = status {
                    return (status, data, None);
                }
            }
            Answer::Command { status, .. } => {
                return (status, data, bytes.get(2..).and_then(Sense::parse));
            }
            _ => {}
        }
    }
    panic!("no result of {tag} among {all:?}")
}

pub(crate) const TEST: [u8; 1] = [0];
pub(crate) fn read(lba: u8, blocks: u8) -> [u8; 10] {
    [0x28, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}
pub(crate) fn write(lba: u8, blocks: u8) -> [u8; 10] {
    [0x2a, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}

#[test]
fn what_was_written_is_read() {
    let disk = disk(None);
    let mut initiator = Initiator::new();
    initiator.begin(&[("InitialR2T", "No"), ("MaxRecvDataSegmentLength", "512")]);
    initiator.command(2, &TEST, 0, None);
    initiator.command(3, &write(3, 1), 512, Some(&[0xab; 512]));
    initiator.command(4, &[0x35], 0, None);
    initiator.command(5, &read(2, 2), 1024, None);
    let (all, end) = session(&disk, &initiator.bytes);
    assert_eq!(end, End::Closed);
    // What a new session must know first.
    assert_eq!(result(&all, 2), (2, vec![], Some(Sense::POWER_ON)));
    assert_eq!(result(&all, 3).0, 0);
    let (status, data, _) = result(&all, 5);
    assert_eq!((status, &data[..512], &data[512..]), (0, &[0; 512][..], &[0xab; 512][..]));
    let parts = all.iter().filter(|(r, _)| matches!(r.answer, Answer::DataIn { .. })).count();
    assert_eq!(parts, 2, "the initiator takes 512 bytes at once");
    assert_eq!(disk.account.done(), 3);
    let numbers: Vec<u32> = all
        .iter()
        .filter(|(r, _)| !matches!(r.answer, Answer::DataIn { status: None, .. }))
        .map(|(response, _)| response.status_number)
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

#[test]
fn data_that_a_command_lacks_are_asked_for() {
    let disk = disk(None);
    let mut initiator = Initiator::new();
    initiator.begin(&[("MaxBurstLength", "1024"), ("FirstBurstLength", "512")]);
    initiator.command(2, &TEST, 0, None);
    initiator.command(3, &write(0, 4), 2048, Some(&[1; 512]));
    initiator.data_out(3, 1, (0, 512), false, &[2; 512]);
    initiator.data_out(3, 1, (1, 1024), true, &[3; 512]);
    initiator.data_out(3, 2, (0, 1536), true, &[4; 512]);
    initiator.command(4, &read(0, 4), 2048, None);
    let (all, _) = session(&disk, &initiator.bytes);
    let ready = |(response, _): &(Response, Vec<u8>)| match response.answer {
        Answer::Ready { transfer, number, offset, length } => {
            Some((transfer, number, offset, length))
        }
        _ => None,
    };
    let asked: Vec<_> = all.iter().filter_map(ready).collect();
    assert_eq!(asked, [(1, 0, 512, 1024), (2, 1, 1536, 512)]);
    let (_, data, _) = result(&all, 4);
    let expected: Vec<u8> = (1..=4).flat_map(|byte| [byte; 512]).collect();
    assert_eq!(data, expected);
}

#[test]
fn data_out_of_order_end_their_command_and_only_it() {
    let disk = disk(None);
    for (number, offset, len) in [(1, 0, 512), (0, 512, 512), (0, 0, 1024), (0, 0, 100)] {
        let mut initiator = Initiator::new();
        initiator.begin(&[]);
        initiator.command(2, &TEST, 0, None);
        initiator.command(3, &write(0, 1), 512, Some(&[]));
        initiator.data_out(3, 1, (number, offset), true, &vec![7; len]);
        initiator.command(4, &read(0, 1), 512, None);
        let (all, _) = session(&disk, &initiator.bytes);
        let (status, _, sense) = result(&all, 3);
        assert_eq!(
            (status, sense.map(|sense| sense.key)),
            (2, Some(11)),
            "{number} {offset} {len}"
        );
        assert_eq!(result(&all, 4).1, [0; 512], "nothing was written");
    }
}

#[test]
fn nobody_is_let_in_without_a_token_and_the_disk_shows_its_own() {
    let disk = disk(Some("(allow)"));
    let status = |initiator: &Initiator| {
        let (all, end) = session(&disk, &initiator.bytes);
        let mut statuses = all.iter().rev().filter_map(|(response, _)| match response.answer {
            Answer::Login { status, .. } => Some(status),
            _ => None,
        });
        (statuses.next().expect("an answer"), end)
    };
    let mut anyone = Initiator::new();
    anyone.begin(&[]);
    let (refused, end) = status(&anyone);
    assert_eq!(refused, status::AUTHENTICATION);
    assert!(matches!(end, End::Wrong(_)));
    let mut wrong = Initiator::new();
    wrong.begin_alice("a token of alicf", &[]);
    assert_eq!(status(&wrong).0, status::AUTHENTICATION);
    let mut alice = Initiator::new();
    alice.begin_alice(TOKEN, &[]);
    assert_eq!(status(&alice), (status::SUCCESS, End::Closed));
    // Mutual: the disk answers a challenge of the initiator, but not its own.
    let mut mutual = Initiator::new();
    mutual.begin_alice(TOKEN, &[("CHAP_I", "3"), ("CHAP_C", "0x0102")]);
    let (all, _) = session(&disk, &mutual.bytes);
    let shown = text::hexadecimal(&chap::response(3, "a secret of the disk", &[1, 2]));
    let has = |(_, text): &(Response, Vec<u8>)| {
        text::parse(text).is_ok_and(|pairs| pairs.contains(&("CHAP_R", shown.as_str())))
    };
    assert!(all.iter().any(has), "{all:?}");
    let mut reflected = Initiator::new();
    let own = text::hexadecimal(&CHALLENGE);
    reflected.begin_alice(TOKEN, &[("CHAP_I", "9"), ("CHAP_C", own.as_str())]);
    assert_eq!(status(&reflected).0, status::AUTHENTICATION);
    // A name that is not there.
    let mut other = Initiator::new();
    let names =
        [("InitiatorName", "iqn.2026-11.local.test:a"), ("TargetName", "iqn.2026-11.local.test:b")];
    other.login((stage::OPERATIONAL, stage::FULL), true, &names);
    assert_eq!(status(&other).0, status::NOT_FOUND);
    let mut nobody = Initiator::new();
    nobody.login((stage::OPERATIONAL, stage::FULL), true, &[]);
    assert_eq!(status(&nobody).0, status::MISSING);
}

#[test]
fn a_discovery_tells_the_target_and_takes_no_commands() {
    let disk = disk(None);
    let mut initiator = Initiator::new();
    let names = [("InitiatorName", "iqn.2026-11.local.test:a"), ("SessionType", "Discovery")];
    initiator.login((stage::OPERATIONAL, stage::FULL), true, &names);
    let ask = Ask::Text { last: true, continues: false, transfer: NO_TAG };
    let number = initiator.number;
    initiator.number += 1;
    initiator.pdu(
        Request { task: 2, command_number: number, ..Request::new(ask) },
        b"SendTargets=All\0",
    );
    initiator.command(3, &TEST, 0, None);
    let (all, _) = session(&disk, &initiator.bytes);
    let told = text::parse(&all[1].1).expect("text");
    assert_eq!(told, [("TargetName", TARGET), ("TargetAddress", "127.0.0.1:3260,1")]);
    assert!(matches!(all[2].0.answer, Answer::Reject { reason: reject::PROTOCOL }));
}

#[test]
fn digests_are_sent_and_checked() {
    let disk = disk(None);
    let command = |corrupt: bool| {
        let mut initiator = Initiator::new();
        initiator.begin(&[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]);
        let login = initiator.bytes.len();
        initiator.command(2, &write(0, 1), 512, Some(&[5; 512]));
        let mut bytes = initiator.bytes[..login].to_vec();
        let (header, data) = initiator.bytes[login..].split_at(HEADER_LEN);
        bytes.extend(header);
        bytes.extend(iscsi::digest(header));
        bytes.extend(data);
        bytes.extend(iscsi::digest(data));
        if corrupt {
            let last = bytes.len() - 10;
            bytes[last] ^= 1;
        }
        raw_session(&disk, &bytes)
    };
    let (raw, end) = command(false);
    assert_eq!(end, End::Closed);
    let (_, text) = &responses(&raw)[0];
    let at = HEADER_LEN + iscsi::padded(text.len());
    let (header, rest) = raw[at..].split_first_chunk::<HEADER_LEN>().expect("an answer");
    assert_eq!(rest[..4], iscsi::digest(header));
    assert!(matches!(
        Response::parse(header).map(|response| response.answer),
        Ok(Answer::Command { status: 2, .. })
    ));
    let (raw, end) = command(true);
    assert!(matches!(end, End::Wrong(why) if why.contains("corrupted")));
    let header = raw[at..].first_chunk().expect("it is said");
    let reject = Response::parse(header).map(|response| response.answer);
    assert_eq!(reject, Ok(Answer::Reject { reason: reject::DATA_DIGEST }));
}

/// The parameters of a copy within the disk.
pub(crate) fn copy_list(own: [u8; 8], from: u8, to: u8, blocks: u8) -> Vec<u8> {
    let mut list = vec![1, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend([0xe4, 0, 0, 0, 1, 3, 0, 8]);
    list.extend(own);
    list.resize(16 + 32, 0);
    list.extend([2, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, blocks]);
    list.extend([0, 0, 0, 0, 0, 0, 0, from, 0, 0, 0, 0, 0, 0, 0, to]);
    list
}

/// Software write protection, a mode parameter, binds copies, too.
#[test]
fn what_is_protected_is_not_written() {
    let disk = disk(None);
    disk.medium.write(512, &[3; 512], false).expect("written");
    let mut initiator = Initiator::new();
    initiator.begin(&[]);
    initiator.command(2, &TEST, 0, None);
    let mut control = [0; 16];
    (control[4], control[5]) = (0x0a, 10);
    // Reordering, software write protection, an unlimited busy time.
    (control[7], control[8], control[12], control[13]) = (0x10, 8, 0xff, 0xff);
    initiator.command(3, &[0x15, 0x10, 0, 0, 16, 0], 16, Some(&control));
    let list = copy_list(disk.unit.designator(), 1, 5, 1);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    initiator.command(4, &cdb, list.len() as u32, Some(&list));
    initiator.command(5, &write(5, 1), 512, Some(&[1; 512]));
    initiator.command(6, &read(5, 1), 512, None);
    let (all, _) = session(&disk, &initiator.bytes);
    assert_eq!(result(&all, 3), (0, vec![], None));
    let protected = Some(Sense::SOFTWARE_PROTECTED);
    assert_eq!((result(&all, 4).2, result(&all, 5).2), (protected, protected));
    assert_eq!(result(&all, 6).1, [0; 512]);
}

#[test]
fn blocks_are_copied_within_the_disk() {
    let disk = disk(None);
    disk.medium.write(512, &[3; 512], false).expect("written");
    let mut initiator = Initiator::new();
    initiator.begin(&[]);
    initiator.command(2, &TEST, 0, None);
    let list = copy_list(disk.unit.designator(), 1, 5, 1);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    initiator.command(3, &cdb, list.len() as u32, Some(&list));
    initiator.command(4, &read(5, 1), 512, None);
    let (all, _) = session(&disk, &initiator.bytes);
    assert_eq!(result(&all, 3), (0, vec![], None));
    assert_eq!(result(&all, 4).1, [3; 512]);
}

/// What an initiator means whose data are longer or shorter than its command says is not known: nothing is written.
#[test]
fn data_of_a_wrong_length_change_nothing() {
    let long = |code: u8, blocks: u8| [code, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, blocks, 0, 0];
    for (cdb, len) in
        [(long(0x93, 8), 1024), (long(0x93, 8), 256), (long(0x89, 1), 512), (long(0x89, 1), 1536)]
    {
        let disk = disk(None);
        let mut initiator = Initiator::new();
        initiator.begin(&[]);
        initiator.command(2, &TEST, 0, None);
        let mut data = vec![0; 512];
        data.resize(len.max(512), 7);
        initiator.command(3, &cdb, len as u32, Some(&data[..len]));
        initiator.command(4, &read(0, BLOCKS as u8), BLOCKS as u32 * 512, None);
        let (all, _) = session(&disk, &initiator.bytes);
        let sense = result(&all, 3).2.map(|sense| (sense.key, sense.code));
        assert_eq!(sense, Some((5, 0x24)), "{cdb:02x?} with {len} bytes");
        assert!(result(&all, 4).1.iter().all(|byte| *byte == 0), "{cdb:02x?} with {len} bytes");
    }
}

/// A reservation of an initiator binds clients of NBD, too.
#[test]
fn a_reservation_outlives_its_session_and_binds_all_others() {
    let disk = disk(None);
    let mut initiator = Initiator::new();
    initiator.begin(&[]);
    initiator.command(2, &TEST, 0, None);
    let persistent = |action: u8, kind: u8| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let mut keys = [0; 24];
    keys[15] = 7;
    initiator.command(3, &persistent(0, 0), 24, Some(&keys));
    keys.rotate_right(8);
    initiator.command(4, &persistent(1, 1), 24, Some(&keys[..24]));
    let (all, _) = session(&disk, &initiator.bytes);
    assert_eq!(result(&all, 3), (0, vec![], None));
    assert_eq!(result(&all, 4).0, 0x18, "the key is at the wrong place");
    let mut keys = [0; 24];
    keys[7] = 7;
    let mut initiator = Initiator::new();
    initiator.begin(&[]);
    initiator.command(2, &TEST, 0, None);
    initiator.command(3, &persistent(1, 1), 24, Some(&keys));
    assert_eq!(result(&session(&disk, &initiator.bytes).0, 3).0, 0);
    // Another initiator reads, and does not write.
    let mut other = Initiator::new();
    other.isid = 2;
    other.begin(&[]);
    other.command(2, &TEST, 0, None);
    other.command(3, &read(0, 1), 512, None);
    other.command(4, &write(0, 1), 512, Some(&[1; 512]));
    let (all, _) = session(&disk, &other.bytes);
    assert_eq!((result(&all, 3).0, result(&all, 4).0), (0, 0x18));
    use lastmeter_wire::nbd;
    let mut client = vec![0, 0, 0, 3];
    let wanted = nbd::Wanted { name: String::new(), information: Vec::new() }.emit();
    client.extend(nbd::Option { kind: nbd::Kind::GO, length: wanted.len() as u32 }.emit());
    client.extend(wanted);
    let (flags, cookie, offset, length) = (0, 1, 0, 512);
    let command = nbd::Command::WRITE;
    client.extend(nbd::Request { flags, command, cookie, offset, length }.emit());
    client.extend([1; 512]);
    let (mut input, mut output) = (BufReader::new(&client[..]), Vec::new());
    lastmeter_device::disk::nbd::serve(&disk, &mut input, &mut output, &Default::default(), || ());
    assert!(output.ends_with(&nbd::simple(nbd::error::PERMISSION, 1)));
    let mut bytes = [9; 512];
    disk.medium.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 512]);
}
