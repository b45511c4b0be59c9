//! Transfers with tickets: what one moves, and each misuse, which is refused.
//!
//! Rows: N-03, N-25.

use lastmeter_device::transfer::identity::{Identity, Key};
use lastmeter_device::transfer::tickets::{COMMENT, LIFETIME_MAX, seconds};
use lastmeter_device::transfer::{Channel, Listening, TRANSFERS_MAX, present};
use lastmeter_device::{camera, disk, display};
use lastmeter_plugin::host::{Host, Limits};
use lastmeter_plugin::trust;
use lastmeter_wire::rfb::Area;
use lastmeter_wire::ticket::{BODY_MAX, From, Kind, RATE_MIN, Signed, Ticket, To, parse_record};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Alice, who owns devices, and a folder for each of them.
struct Owner {
    folder: TempDir,
    public: String,
    secret: String,
}

fn host() -> Arc<Host> {
    Arc::new(Host::new(Limits { instances: 8, ..Limits::default() }).unwrap())
}

/// What a device told about refused transfers.
type Said = Arc<Mutex<Vec<String>>>;

fn listener() -> (Said, impl Fn(&str) + Send + Sync + 'static) {
    let said = Said::default();
    let own = said.clone();
    (said, move |why: &str| own.lock().unwrap().push(why.to_owned()))
}

impl Owner {
    fn new() -> Owner {
        let (public, secret) = trust::new_keys("alice").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("issuers");
        std::fs::create_dir(&keys).unwrap();
        std::fs::write(keys.join("alice.pub"), &public).unwrap();
        Owner { folder, public, secret }
    }
    /// The part of a device's file about transfers.
    fn section(&self, name: &str) -> String {
        format!(
            "[transfer]\nlisten = '127.0.0.1:0'\nidentity = '{name}.identity'\nkeys = 'issuers'\n"
        )
    }
    fn disk(&self, name: &str, more: &str) -> (disk::server::Server, Listening, Said) {
        let text = format!("memory = true\nsize = '8 MiB'\n{}{more}", self.section(name));
        let config = disk::server::Config::parse(&text).unwrap();
        let made = config.disk(self.folder.path(), host()).unwrap();
        let (said, tell) = listener();
        let server = disk::server::Server::start(&config, self.folder.path(), made, tell).unwrap();
        let transfers = server.transfers.unwrap();
        (server, transfers, said)
    }
    fn sign(&self, ticket: &Ticket) -> Signed {
        sign(&self.secret, ticket)
    }
}

fn sign(secret: &str, ticket: &Ticket) -> Signed {
    let bytes = ticket.emit().unwrap();
    let signature = trust::sign_as(secret, None, COMMENT, &bytes).unwrap();
    Signed { ticket: bytes, signature }
}

/// A ticket for a MiB of each disk, from its beginning to the fourth MiB.
fn ticket(from: Listening, to: Listening) -> Ticket {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Ticket {
        id: u128::from(number).to_be_bytes(),
        expires: seconds() + 600,
        rate: 0,
        interval: 0,
        source: from.key,
        destination: to.key,
        source_address: from.address.to_string(),
        destination_address: to.address.to_string(),
        from: From::Blocks { offset: 0, length: MIB },
        to: To::Blocks { offset: 4 * MIB, length: MIB },
    }
}

fn shown(signed: &Signed) -> Result<u64, String> {
    present(signed, |_| {})
}

fn fill(server: &disk::server::Server) -> Vec<u8> {
    let data: Vec<u8> = (0..2 * MIB).map(|at| (at * 7 / 5 % 251) as u8 + 1).collect();
    server.disk.medium.write(0, &data, false).unwrap();
    data
}

fn read(server: &disk::server::Server) -> Vec<u8> {
    let mut all = vec![0; server.disk.medium.size() as usize];
    server.disk.medium.read(0, &mut all).unwrap();
    all
}

/// Whether nothing was written on a disk.
fn is_blank(server: &disk::server::Server) -> bool {
    read(server).iter().all(|byte| *byte == 0)
}

#[test]
fn a_ticket_moves_what_it_says_from_disk_to_disk_and_nothing_else() {
    let owner = Owner::new();
    let (a, from, _) = owner.disk("a", "");
    let (b, to, _) = owner.disk("b", "");
    let data = fill(&a);
    assert_eq!(shown(&owner.sign(&ticket(from, to))), Ok(MIB));
    let all = read(&b);
    let (at, end) = (4 * MIB as usize, 5 * MIB as usize);
    assert!(all[at..end] == data[..MIB as usize], "what arrived is what was there");
    assert!(all[..at].iter().chain(&all[end..]).all(|byte| *byte == 0), "nothing beside it");
    // Each piece is a request in the accounts of both.
    assert_eq!((a.disk.account.done(), b.disk.account.done()), (1, 1));
    // The other way with a ticket of its own, and an odd number of blocks.
    let back = Ticket {
        from: From::Blocks { offset: 4 * MIB, length: MIB - 512 },
        to: To::Blocks { offset: 7 * MIB + 512, length: MIB - 512 },
        ..ticket(to, from)
    };
    assert_eq!(shown(&owner.sign(&back)), Ok(MIB - 512));
    assert!(read(&a)[7 * MIB as usize + 512..] == data[..MIB as usize - 512]);
}

/// Each with the word by which it is refused.
#[test]
fn each_misuse_of_a_ticket_is_refused() {
    let owner = Owner::new();
    let (a, from, _) = owner.disk("a", "");
    let (b, to, said) = owner.disk("b", "");
    let (c, other, _) = owner.disk("c", "");
    fill(&a);
    let refused = |signed: &Signed, word: &str| {
        let why = shown(signed).expect_err(word);
        assert!(why.contains(word), "{word}: {why}");
    };
    let good = || ticket(from, to);
    let sign = |ticket: Ticket| owner.sign(&ticket);
    // Expired, or made for longer than any ticket may be.
    refused(&sign(Ticket { expires: seconds(), ..good() }), "expired");
    let for_ever = seconds() + LIFETIME_MAX + 60;
    refused(&sign(Ticket { expires: for_ever, ..good() }), "valid for too long");
    // Shown to another device than its source: TLS finds out, and so does the device.
    let elsewhere = Ticket { source_address: other.address.to_string(), ..good() };
    refused(&sign(elsewhere), "another device is there");
    let signed = sign(good());
    refused_by(other, Kind::Present, &signed, "for another device");
    refused_by(to, Kind::Present, &signed, "for another device");
    // Another device at the destination's address.
    let astray = Ticket { destination_address: other.address.to_string(), ..good() };
    refused(&sign(astray), "another device is there");
    // Offered by somebody who is not its source, and to somebody who is not its destination.
    refused_by(to, Kind::Offer, &signed, "from another device than its source");
    refused_by(other, Kind::Offer, &signed, "for another device");
    // Another range and a larger one: beyond the disk, not of whole blocks.
    let length = MIB;
    let range = |offset| From::Blocks { offset, length };
    refused(&sign(Ticket { from: range(8 * MIB), ..good() }), "beyond the end");
    refused(&sign(Ticket { from: range(100), ..good() }), "not whole blocks");
    let beyond = To::Blocks { offset: 7 * MIB + 512, length };
    refused(&sign(Ticket { to: beyond, ..good() }), "the destination (beyond the end");
    // What a disk has not.
    let area = Area { x: 0, y: 0, w: 512, h: 512 };
    refused(&sign(Ticket { to: To::Area(area), ..good() }), "a disk has no screen");
    let frames = From::Frames { count: 1, width: 0, height: 0 };
    refused(&sign(Ticket { from: frames, ..good() }), "a disk has no frames");
    // Altered: any bit of what was signed, or of the signature.
    let signed = sign(good());
    for at in (0..signed.ticket.len()).step_by(11) {
        let mut altered = signed.clone();
        altered.ticket[at] ^= 4;
        refused_by(from, Kind::Present, &altered, "not signed by an issuer");
    }
    let larger = Ticket { from: range(MIB), ..Ticket::parse(&signed.ticket).unwrap() };
    let altered = Signed { ticket: larger.emit().unwrap(), ..signed.clone() };
    refused(&altered, "not signed by an issuer");
    refused_by(to, Kind::Offer, &altered, "not signed by an issuer");
    // Forged: by a stranger, also under the same name; signed as something else.
    let stranger = Owner::new();
    assert_ne!(stranger.public, owner.public);
    refused(&stranger.sign(&good()), "not signed by an issuer");
    let bytes = good().emit().unwrap();
    let signature = trust::sign_as(&owner.secret, None, "lastmeter:other/1", &bytes).unwrap();
    refused(&Signed { ticket: bytes, signature }, "not signed by an issuer");
    // Signed, but no ticket.
    let ticket = b"LMTK\x01 and so on".to_vec();
    let signature = trust::sign_as(&owner.secret, None, COMMENT, &ticket).unwrap();
    refused_by(from, Kind::Present, &Signed { ticket, signature }, "malformed");
    // None of it came to a disk, nor used a ticket up.
    assert!(is_blank(&b) && is_blank(&c));
    assert_eq!((b.disk.account.done(), c.disk.account.done()), (0, 0));
    assert_eq!(shown(&signed), Ok(MIB));
    // Replayed, at either end.
    refused(&signed, "used before");
    refused_by(to, Kind::Offer, &signed, "used before");
    // It is told at the device, too, a moment after the holder.
    let began = Instant::now();
    while !said.lock().unwrap().iter().any(|why| why.contains("used before")) {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", said.lock().unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Shows a ticket to a device, whatever the ticket says of it; the word by which the device refuses it.
fn refused_by(device: Listening, kind: Kind, signed: &Signed, word: &str) {
    let identity = Identity::ephemeral().unwrap();
    let mut channel = Channel::connect(&identity, &device.address.to_string(), device.key).unwrap();
    channel.say(kind, &signed.emit().unwrap()).unwrap();
    let mut body = Vec::new();
    assert_eq!(channel.next(&mut body).unwrap(), Kind::Refused, "{word}");
    let why = String::from_utf8(body).unwrap();
    assert!(why.contains(word), "{word}: {why}");
}

/// A used ticket stays used when the device starts again, and two that come at once are not both taken.
#[test]
fn a_ticket_is_used_once_whatever_happens_between() {
    let owner = Owner::new();
    let (a, from, _) = owner.disk("a", "");
    let (_b, to, _) = owner.disk("b", "");
    fill(&a);
    let signed = owner.sign(&ticket(from, to));
    let together: Vec<_> = (0..8)
        .map(|_| {
            let signed = signed.clone();
            std::thread::spawn(move || shown(&signed))
        })
        .map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(together.iter().filter(|done| done.is_ok()).count(), 1, "{together:?}");
    // The same devices again: their keys and what they have seen are in files.
    let (_a, again, _) = owner.disk("a", "");
    assert_eq!(again.key, from.key);
    refused_by(again, Kind::Present, &signed, "used before");
    let fresh = Ticket { source_address: again.address.to_string(), ..ticket(again, to) };
    assert!(shown(&owner.sign(&fresh)).is_ok());
}

/// A ticket gives no more than its issuer has, at either end.
#[test]
fn the_policies_of_the_issuer_bound_its_tickets() {
    let owner = Owner::new();
    let mine = "[clients.alice]\ntoken = 'a-long-secret'\npolicies = ['first']\n\
        [policies.first]\nexpression = '(or (= operation flush) (within lba 0 2048))'\n\
        [sizes]\nalice = '4 MiB'\n";
    let (a, from, _) = owner.disk("a", mine);
    let (b, to, _) = owner.disk("b", mine);
    fill(&a);
    let first = |offset, place, length| Ticket {
        from: From::Blocks { offset, length },
        to: To::Blocks { offset: place, length },
        ..ticket(from, to)
    };
    assert_eq!(shown(&owner.sign(&first(0, 0, MIB / 2))), Ok(MIB / 2));
    let refused = |ticket: Ticket| shown(&owner.sign(&ticket)).unwrap_err();
    assert_eq!(refused(first(MIB, 0, MIB / 2)), "a policy denies it", "the source's");
    assert_eq!(refused(first(0, MIB, MIB / 2)), "the destination (a policy denies it)");
    assert!(refused(first(4 * MIB, 0, 512)).contains("beyond the end of the issuer's disk"));
    // Of a range of which a policy allows a part, nothing is read.
    let before = read(&b);
    assert_eq!(refused(first(MIB / 2, MIB / 2, MIB)), "a policy denies it");
    assert!(read(&b) == before);
    // An issuer who is no client, where clients are named.
    let (_c, other, _) = owner.disk("c", "[clients.bob]\ntoken = 'another-secret'\n");
    let stranger = Ticket { destination: other.key, ..ticket(from, other) };
    let stranger = Ticket { from: From::Blocks { offset: 0, length: 512 }, ..stranger };
    let stranger = Ticket { to: To::Blocks { offset: 0, length: 512 }, ..stranger };
    assert!(refused(stranger).contains("alice, who issued the ticket, is no client"));
    // A disk that nobody may write.
    let (_d, locked, _) = owner.disk(
        "d",
        "[clients.anyone]\npolicies = ['look']\n\
        [policies.look]\nexpression = '(read-only)'\n",
    );
    let to_locked = Ticket {
        from: From::Blocks { offset: 0, length: 512 },
        to: To::Blocks { offset: 0, length: 512 },
        ..ticket(from, locked)
    };
    assert_eq!(refused(to_locked), "the destination (a policy denies it)");
}

/// A source that keeps its key but not to the ticket: more bytes than it says, or fewer, or none.
#[test]
fn a_source_that_sends_more_or_less_than_the_ticket_says_is_refused() {
    let owner = Owner::new();
    let (b, to, _) = owner.disk("b", "");
    let identity = Identity::ephemeral().unwrap();
    let address = to.address;
    let offered = |ticket: &Ticket| {
        let mut channel = Channel::connect(&identity, &address.to_string(), to.key).unwrap();
        channel.say(Kind::Offer, &owner.sign(ticket).emit().unwrap()).unwrap();
        let mut body = Vec::new();
        assert_eq!(channel.next(&mut body).unwrap(), Kind::Accepted);
        channel
    };
    let dishonest = || Ticket { source: identity.key, ..ticket(to, to) };
    let said = |channel: &mut Channel| {
        let mut body = Vec::new();
        let kind = channel.next(&mut body).unwrap();
        (kind, String::from_utf8_lossy(&body).into_owned())
    };
    let data = vec![7; MIB as usize / 2];
    // More: the third half.
    let mut channel = offered(&dishonest());
    (0..3).for_each(|_| channel.say(Kind::Data, &data).unwrap());
    assert_eq!(said(&mut channel), (Kind::Refused, "ticket: more came than it allows".to_owned()));
    let all = read(&b);
    let inside = 4 * MIB as usize..5 * MIB as usize;
    assert!(all[inside.clone()].iter().all(|byte| *byte == 7), "what it allowed");
    assert!(all[..inside.start].iter().chain(&all[inside.end..]).all(|byte| *byte == 0));
    // Less, or as much as it says in words only.
    for told in [data.len() as u64, MIB] {
        let mut channel = offered(&dishonest());
        channel.say(Kind::Data, &data).unwrap();
        channel.say(Kind::End, &told.to_be_bytes()).unwrap();
        let less = (Kind::Refused, "ticket: less came than it says".to_owned());
        assert_eq!(said(&mut channel), less);
    }
    // Messages that do not belong there.
    let mut channel = offered(&dishonest());
    channel.say(Kind::Present, &[]).unwrap();
    assert_eq!(said(&mut channel).0, Kind::Refused);
    // Not whole blocks.
    let mut channel = offered(&dishonest());
    channel.say(Kind::Data, &data[..100]).unwrap();
    assert_eq!(said(&mut channel), (Kind::Refused, "not whole blocks".to_owned()));
    // Half a transfer, then nothing: it is over, and the ticket is used.
    let half = dishonest();
    let mut channel = offered(&half);
    channel.say(Kind::Data, &data).unwrap();
    drop(channel);
    let mut channel = Channel::connect(&identity, &address.to_string(), to.key).unwrap();
    channel.say(Kind::Offer, &owner.sign(&half).emit().unwrap()).unwrap();
    assert_eq!(said(&mut channel), (Kind::Refused, "ticket: used before".to_owned()));
}

/// The destination keeps the rate, also when the source does not.
#[test]
fn the_rate_of_a_ticket_is_kept_at_both_ends() {
    let owner = Owner::new();
    let (a, from, _) = owner.disk("a", "");
    let (_b, to, _) = owner.disk("b", "");
    fill(&a);
    let began = Instant::now();
    let length = 2 * MIB;
    // Two pieces of a MiB: the second one half a second after the first.
    let slow = Ticket {
        rate: 2 * MIB,
        from: From::Blocks { offset: 0, length },
        to: To::Blocks { offset: 0, length },
        ..ticket(from, to)
    };
    assert_eq!(shown(&owner.sign(&slow)), Ok(length));
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    let identity = Identity::ephemeral().unwrap();
    let hasty = Ticket { source: identity.key, rate: RATE_MIN, ..ticket(from, to) };
    let mut channel = Channel::connect(&identity, &to.address.to_string(), to.key).unwrap();
    let began = Instant::now();
    channel.say(Kind::Offer, &owner.sign(&hasty).emit().unwrap()).unwrap();
    let (mut body, piece) = (Vec::new(), vec![1; RATE_MIN as usize]);
    assert_eq!(channel.next(&mut body).unwrap(), Kind::Accepted);
    // A second's worth, and the beginning of the next second.
    (0..2).for_each(|_| channel.say(Kind::Data, &piece).unwrap());
    channel.say(Kind::End, &0u64.to_be_bytes()).unwrap();
    assert_eq!(channel.next(&mut body).unwrap(), Kind::Refused, "less than it says");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

/// A camera's frames become a film on a disk, which a display shows: three devices, and the owner only signs.
#[test]
fn frames_go_from_camera_to_disk_and_to_a_display_and_pixels_from_disk_to_display() {
    let owner = Owner::new();
    let (disk, blocks, _) = owner.disk("disk", "");
    let text = format!("size = '104x48'\nrate = 100\n{}", owner.section("camera"));
    let config = camera::server::Config::parse(&text).unwrap();
    let made = config.camera(Path::new("."), host()).unwrap();
    let camera = camera::server::Server::start(&config, owner.folder.path(), made, |_| {}).unwrap();
    let text = format!(
        "size = '200x100'\n{}[regions]\nalice = '120x80+50+10'\n\
         [clients.alice]\ntoken = 'a-long-secret'\n",
        owner.section("display")
    );
    let config = display::server::Config::parse(&text).unwrap();
    let made = config.display(owner.folder.path(), host()).unwrap();
    let display =
        display::server::Server::start(&config, owner.folder.path(), made, |_| {}).unwrap();
    let (frames, screen) = (camera.transfers.unwrap(), display.transfers.unwrap());
    // Camera to disk.
    let film = Ticket {
        from: From::Frames { count: 3, width: 0, height: 0 },
        to: To::Blocks { offset: 4096, length: MIB },
        ..ticket(frames, blocks)
    };
    assert!(shown(&owner.sign(&film)).unwrap() > 100);
    let all = read(&disk);
    let mut rest = &all[4096..];
    let mut numbers = Vec::new();
    while let Some((clock, jpeg, more)) = parse_record(rest) {
        assert!(clock > 0);
        let pixels = camera::encode::from_jpeg(jpeg).unwrap();
        assert_eq!((pixels.width, pixels.height), (104, 48));
        numbers.push(pixels.bytes);
        rest = more;
    }
    assert_eq!(numbers.len(), 3, "as many frames as the ticket says");
    // A range that is too small ends it.
    let small = Ticket {
        from: From::Frames { count: 3, width: 0, height: 0 },
        to: To::Blocks { offset: 2 * MIB, length: 4096 },
        ..ticket(frames, blocks)
    };
    let why = shown(&owner.sign(&small)).unwrap_err();
    assert_eq!(why, "the destination (the ticket's range is full)");
    // Camera to display: in the issuer's part of it, and nowhere else.
    let area = Area { x: 10, y: 20, w: 104, h: 48 };
    let live = Ticket {
        from: From::Frames { count: 2, width: 104, height: 48 },
        to: To::Area(area),
        ..ticket(frames, screen)
    };
    assert!(shown(&owner.sign(&live)).is_ok());
    let changed = |display: &display::server::Server| {
        let pixels = display.display.screen.read(display.display.screen.whole());
        let lit = |at: &usize| pixels[*at] & 0x00ff_ffff != 0;
        let all: Vec<(usize, usize)> =
            (0..pixels.len()).filter(lit).map(|at| (at % 200, at / 200)).collect();
        assert!(all.iter().all(|(x, y)| (60..164).contains(x) && (30..78).contains(y)), "{area:?}");
        (all.len(), pixels)
    };
    assert!(changed(&display).0 > 100, "a picture is there");
    // Disk to display: two frames of pixels, the second of which stays, 100 ms later.
    let (one, two) = ([1u8, 2, 3, 0].repeat(104 * 48), [4u8, 5, 6, 0].repeat(104 * 48));
    disk.disk.medium.write(0, &[&one[..], &two].concat(), false).unwrap();
    let show = Ticket {
        interval: 100_000,
        from: From::Blocks { offset: 0, length: 2 * one.len() as u64 },
        to: To::Area(area),
        ..ticket(blocks, screen)
    };
    let began = Instant::now();
    assert_eq!(shown(&owner.sign(&show)), Ok(2 * one.len() as u64));
    assert!(began.elapsed() >= Duration::from_millis(100));
    let (lit, pixels) = changed(&display);
    assert_eq!((lit, pixels[31 * 200 + 61] & 0x00ff_ffff), (104 * 48, 0x0006_0504));
    // Outside the issuer's part, and devices that do not do that.
    let outside = Ticket { to: To::Area(Area { x: 17, ..area }), ..show.clone() };
    let outside = Ticket { id: [250; 16], ..outside };
    let why = shown(&owner.sign(&outside)).unwrap_err();
    assert!(why.contains("outside of the issuer's screen (120 by 80)"), "{why}");
    let nothing = ticket(screen, blocks);
    assert_eq!(shown(&owner.sign(&nothing)), Err("a display gives nothing".to_owned()));
    let nothing = ticket(frames, blocks);
    assert_eq!(shown(&owner.sign(&nothing)), Err("a camera has no blocks".to_owned()));
    let nothing = ticket(blocks, frames);
    let why = shown(&owner.sign(&nothing)).unwrap_err();
    assert_eq!(why, "the destination (a camera takes nothing)");
}

/// Noise, in the clear and inside of TLS; then a transfer as ever.
#[test]
fn no_stream_of_bytes_ends_a_device_or_keeps_its_places() {
    let owner = Owner::new();
    let (a, from, _) = owner.disk("a", "");
    let (b, to, _) = owner.disk("b", "");
    fill(&a);
    let mut random = lastmeter_base::Stream::new(7, "noise");
    let noise = |random: &mut lastmeter_base::Stream| {
        let len = random.below(600) as usize;
        (0..len).map(|_| random.bits() as u8).collect::<Vec<u8>>()
    };
    let mut signed = owner.sign(&ticket(from, to));
    for round in 0..100 {
        if let Ok(mut stream) = TcpStream::connect(to.address) {
            let _ = stream.write_all(&noise(&mut random));
        }
        let identity = Identity::ephemeral().unwrap();
        let Ok(mut channel) = Channel::connect(&identity, &to.address.to_string(), to.key) else {
            continue;
        };
        let kind = Kind::ALL[random.below(8) as usize];
        match round % 3 {
            // Any kind with any body; the bodies of some have a length of their own.
            0 => drop(channel.say(kind, &noise(&mut random))),
            // A ticket with a flipped bit at any place, of its lengths and its signature, too.
            1 => {
                let mut bytes = signed.emit().unwrap();
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
                drop(channel.say(Kind::Present, &bytes));
            }
            // Much longer than any ticket.
            _ => drop(channel.say(Kind::Offer, &vec![0; BODY_MAX / 8])),
        }
    }
    assert!(is_blank(&b));
    // Those who connect and say nothing hold all places; one that goes makes room.
    let mut idle: Vec<TcpStream> = Vec::new();
    for _ in 0..TRANSFERS_MAX + 8 {
        idle.push(TcpStream::connect(to.address).unwrap());
    }
    // Beyond the last place a connection is closed at once.
    let last = idle.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    match last.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
    drop(idle);
    let began = Instant::now();
    loop {
        signed = owner.sign(&ticket(from, to));
        match shown(&signed) {
            Ok(bytes) => break assert_eq!(bytes, MIB),
            Err(why) => assert!(began.elapsed() < Duration::from_secs(20), "{why}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A device's name is its key.
#[test]
fn keys_of_devices_differ() {
    let owner = Owner::new();
    let keys: Vec<Key> = ["a", "b"].map(|name| owner.disk(name, "").1.key).to_vec();
    assert_ne!(keys[0], keys[1]);
}
