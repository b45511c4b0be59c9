//! Initiators that mean harm, or do what no sane one does.
//!
//! Rows: N-31.

use crate::initiator::{
    BLOCKS, Initiator, TARGET, TEST, TOKEN, clients, copy_list, disk, disk_of, raw_session, read,
    result, session, write,
};
use lastmeter_base::Stream;
use lastmeter_device::disk::End;
use lastmeter_device::disk::iscsi::QUEUE;
use lastmeter_device::disk::scsi::Unit;
use lastmeter_plugin::expression::Expression;
use lastmeter_plugin::request::Kind;
use lastmeter_wire::iscsi::{Ask, NO_TAG, Request, function};

/// Rounds of which one has its policy in WebAssembly.
const COMPILED: u64 = 16;

/// Random commands against a policy, beside a model of what the owner allowed: nothing outside is read or changed.
#[test]
fn no_command_escapes_its_policy() {
    let count = std::env::var("LASTMETER_COMMANDS").ok().and_then(|text| text.parse().ok());
    let rounds: u64 = count.unwrap_or(20_000) / 100;
    let mut random = Stream::new(7, "commands");
    let folder = tempfile::tempdir().unwrap();
    let mut done = 0;
    for round in 0..rounds {
        let (first, len) = (random.below(BLOCKS), 1 + random.below(BLOCKS / 2));
        let end = (first + len).min(BLOCKS);
        let read_only = round % 3 == 0;
        let policy = match read_only {
            true => format!("(and (read-only) (within lba {first} {end}))"),
            false => format!("(or (= operation flush) (within lba {first} {end}))"),
        };
        let disk = if round % COMPILED == 1 {
            let module = Expression::new("own", Kind::Block, &policy).expect("sound").compile();
            std::fs::write(folder.path().join("own.wasm"), module).unwrap();
            disk_of(&clients("module = 'own.wasm'"), folder.path())
        } else {
            disk(Some(&policy))
        };
        let secret = [0x5e; 512];
        let fill = |lba: u64, byte: u8| disk.medium.write(lba * 512, &[byte; 512], false);
        (0..BLOCKS).for_each(|lba| fill(lba, 0x5e).expect("written"));
        (first..end).for_each(|lba| fill(lba, 1).expect("written"));
        let mut initiator = Initiator::new();
        initiator.begin_alice(TOKEN, &[]);
        initiator.command(1000, &TEST, 0, None);
        for task in 0..100 {
            random_command(&mut random, &mut initiator, task);
        }
        let (output, _) = raw_session(&disk, &initiator.bytes);
        assert!(!output.windows(64).any(|bytes| bytes == &secret[..64]), "{policy}");
        let mut bytes = [0; 512];
        for lba in 0..BLOCKS {
            disk.medium.read(lba * 512, &mut bytes).expect("read");
            let inside = (first..end).contains(&lba);
            if !inside || read_only {
                assert_eq!(bytes, if inside { [1; 512] } else { secret }, "{policy}: block {lba}");
            }
        }
        done += disk.account.done();
    }
    // Of a hundred, about ten are allowed and make sense.
    assert!(done > 5 * rounds, "{done} commands were done in {rounds} rounds of 100");
}

/// A command of any kind, with data if it takes some.
fn random_command(random: &mut Stream, initiator: &mut Initiator, task: u32) {
    let (lba, blocks) = (random.below(BLOCKS + 2) as u8, 1 + random.below(5) as u8);
    let len = usize::from(blocks) * 512;
    let long = |code: u8, flags: u8, count: u8| {
        [code, flags, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, count, 0, 0]
    };
    let data = vec![2; len];
    match random.below(12) {
        0 => initiator.command(task, &read(lba, blocks), len as u32, None),
        1 => initiator.command(task, &write(lba, blocks), len as u32, Some(&data)),
        2 => {
            initiator.command(task, &long(0x93, 8 * (task % 2) as u8, blocks), 512, Some(&[0; 512]))
        }
        3 => initiator.command(task, &long(0x93, 0, blocks), 512, Some(&[2; 512])),
        4 => initiator.command(task, &long(0x93, 1, blocks), 0, None),
        5 => {
            let both = [[0x5e; 512], [2; 512]].concat();
            initiator.command(task, &long(0x89, 0, 1), 1024, Some(&both));
        }
        6 => initiator.command(task, &long(0x8b, 0, blocks), len as u32, Some(&data)),
        7 => {
            let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, lba];
            list.extend([0, 0, 0, blocks, 0, 0, 0, 0]);
            initiator.command(task, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24], 24, Some(&list));
        }
        8 => initiator.command(task, &long(0x8e, 0, blocks), len as u32, Some(&data)),
        9 => initiator.command(task, &long(0x9e, 0x12, 64), 64, None),
        10 => {
            let own = Unit::new(TARGET, "test").designator();
            let list = copy_list(own, lba, random.below(BLOCKS) as u8, blocks);
            let len = list.len() as u32;
            initiator.command(task, &long(0x83, 0, len as u8), len, Some(&list));
        }
        _ => {
            let cdb: [u8; 16] = std::array::from_fn(|_| random.below(256) as u8);
            initiator.command(task, &cdb, 512, Some(&data[..512]));
        }
    }
}

#[test]
fn no_stream_of_bytes_does_harm() {
    let count = std::env::var("LASTMETER_STREAMS").ok().and_then(|text| text.parse().ok());
    let disk = disk(None);
    let mut random = Stream::new(3, "streams");
    for _ in 0..count.unwrap_or(3000) {
        let mut initiator = Initiator::new();
        if random.below(4) > 0 {
            initiator.begin(&[("InitialR2T", "No"), ("MaxBurstLength", "1024")]);
        }
        for task in 0..random.below(6) as u32 {
            match random.below(4) {
                0 => initiator.data_out(task, random.below(3) as u32, (0, 0), true, &[1; 512]),
                1 => {
                    let header = std::array::from_fn(|_| random.below(256) as u8);
                    if let Ok(request) = Request::parse(&header) {
                        initiator.pdu(Request { more_headers: 0, ..request }, &[0; 20]);
                    }
                }
                _ => random_command(&mut random, &mut initiator, task),
            }
        }
        let mut bytes = initiator.bytes;
        for _ in 0..random.below(3) {
            let at = random.below(bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        bytes.truncate(random.below(2 * bytes.len() as u64 + 1) as usize);
        let (output, _) = raw_session(&disk, &bytes);
        assert!(output.len() < 1 << 21);
    }
    // Others are served afterwards.
    let mut initiator = Initiator::new();
    initiator.begin(&[]);
    initiator.command(2, &TEST, 0, None);
    initiator.command(3, &read(0, 1), 512, None);
    assert_eq!(result(&session(&disk, &initiator.bytes).0, 3).0, 0);
}

/// More writes than an initiator may have in flight: those beyond end, and the window says that it is closed.
#[test]
fn the_window_closes_when_it_is_full() {
    let disk = disk(None);
    let mut initiator = Initiator::new();
    initiator.begin(&[]);
    initiator.command(1000, &TEST, 0, None);
    (0..QUEUE + 10).for_each(|task| initiator.command(task, &write(0, 1), 512, Some(&[])));
    let ping = Ask::NopOut { transfer: NO_TAG };
    initiator.pdu(Request { immediate: true, task: 2000, ..Request::new(ping) }, b"there?");
    let ask = Ask::Manage { function: function::ABORT_TASK_SET, referenced: 0, number: 0 };
    initiator.pdu(Request { immediate: true, task: 2001, ..Request::new(ask) }, &[]);
    initiator.command(2002, &read(0, 1), 512, None);
    let (all, end) = session(&disk, &initiator.bytes);
    assert_eq!(end, End::Closed);
    let of = |task: u32| all.iter().find(|(response, _)| response.task == task).expect("answered");
    let room = |task: u32| {
        let response = of(task).0;
        response.command_max.wrapping_sub(response.command_expected).wrapping_add(1)
    };
    assert_eq!(result(&all, QUEUE).0, 0x28, "the task set is full");
    assert_eq!((of(2000).1.as_slice(), room(2000)), (&b"there?"[..], 0));
    assert_eq!(room(2001), QUEUE);
    assert_eq!(result(&all, 2002), (0, vec![0; 512], None));
}

/// Names of initiators are claims: whoever takes another client's neither has its reservation nor ends its session.
#[test]
fn a_name_of_another_initiator_is_of_no_use() {
    let disk = disk(Some("(allow)"));
    let mut alice = Initiator::new();
    alice.begin_alice(TOKEN, &[]);
    alice.command(2, &TEST, 0, None);
    let mut keys = [0; 24];
    keys[15] = 7;
    alice.command(3, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24, Some(&keys));
    keys.swap(7, 15);
    alice.command(4, &[0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0], 24, Some(&keys));
    alice.command(5, &read(0, 1), 512, None);
    let (all, _) = session(&disk, &alice.bytes);
    assert_eq!([3, 4, 5].map(|task| result(&all, task).0), [0; 3]);
    let mut bob = Initiator::new();
    bob.begin_as("bob", &format!("{TOKEN} and bob"), &[]);
    bob.command(2, &TEST, 0, None);
    bob.command(5, &read(0, 1), 512, None);
    assert_eq!(result(&session(&disk, &bob.bytes).0, 5).0, 0x18);
    // Both are told with the port's own name, which begins after 8 + 24 + 4 bytes.
    let mut asks = Initiator::new();
    asks.begin_alice(TOKEN, &[]);
    asks.command(2, &TEST, 0, None);
    asks.command(3, &[0x5e, 3, 0, 0, 0, 0, 0, 2, 0, 0], 512, None);
    let (_, told, _) = result(&session(&disk, &asks.bytes).0, 3);
    assert!(told[36..].starts_with(b"iqn.2026-11.local.test:a,i,0x800000000001\0"), "{told:?}");
}
