//! Play-out without a network and without waiting, and a device that listens on the loopback interface. Rows: N-01.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say what they cannot decide")]

use lastmeter_audio::client::Client;
use lastmeter_audio::playout::{
    Arrival, Conceal, Counts, HELD_MAX, Played, Playout, STRAY_MAX, Settings,
};
use lastmeter_audio::server::{Config, Server};
use lastmeter_base::Stream;
use lastmeter_plugin::host::{Host, Limits};
use lastmeter_wire::fuzz::mutate;
use lastmeter_wire::{rtp, wav};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Frames of a packet and of a block: 10 ms.
const BLOCK: usize = 80;
const SETTINGS: Settings = Settings {
    rate: 8000,
    channels: 1,
    delay: Duration::from_millis(50),
    conceal: Conceal::Silence,
};

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// The sound of packet `number`: no sample of it is like another, none is silent.
fn sound(number: usize) -> Vec<i16> {
    (0..BLOCK).map(|at| ((number * BLOCK + at) % 32_000) as i16 + 1).collect()
}

/// Packet `number`, whose timestamps and numbers come around on the way.
fn arrival(number: usize) -> Arrival {
    Arrival {
        sequence: 65_530u16.wrapping_add(number as u16),
        timestamp: (u32::MAX - 200).wrapping_add((number * BLOCK) as u32),
        samples: sound(number),
        wall: Duration::ZERO,
        spent: ms(1),
    }
}

/// A device that pulls a block each 10 ms, and what it has heard.
struct Device {
    playout: Playout,
    heard: Vec<i16>,
    played: Vec<Played>,
    blocks: u64,
}

impl Device {
    fn new(settings: Settings) -> Device {
        let playout = Playout::new(settings);
        Device { playout, heard: Vec::new(), played: Vec::new(), blocks: 0 }
    }
    /// Plays what is due until an instant.
    fn until(&mut self, now: Duration) {
        while ms(10) * (self.blocks as u32 + 1) <= now {
            self.blocks += 1;
            let mut out = [0; BLOCK];
            let at = ms(10) * self.blocks as u32;
            self.playout.pull(&mut out, at, |one| self.played.push(one));
            self.heard.extend(out);
        }
    }
    /// Packets that come at these times, in milliseconds; then the end.
    fn run(mut self, packets: &[(usize, u64)]) -> Device {
        let mut packets = packets.to_vec();
        packets.sort_by_key(|(_, at)| *at);
        for (number, at) in &packets {
            self.until(ms(*at));
            self.playout.receive(arrival(*number), ms(*at));
        }
        let last = packets.last().map_or(0, |(_, at)| *at);
        self.until(ms(last) + HELD_MAX + SETTINGS.delay + ms(1500));
        self.playout.end();
        self
    }
    fn counts(&self) -> Counts {
        self.playout.counts
    }
    /// What is heard of a number of packets, some of which are missing.
    fn hears(&self, packets: usize, missing: &[usize]) {
        let mut wanted: Vec<i16> = (0..packets).flat_map(sound).collect();
        missing.iter().for_each(|number| wanted[number * BLOCK..][..BLOCK].fill(0));
        let start = self.heard.iter().position(|sample| *sample != 0).expect("sound");
        assert!(self.heard[start..].starts_with(&wanted));
        assert!(self.heard[start + wanted.len()..].iter().all(|sample| *sample == 0));
    }
}

#[test]
fn what_comes_in_time_is_heard_in_order_after_the_delay() {
    // Each is up to 40 ms late, so some overtake others; one comes twice.
    let mut packets: Vec<(usize, u64)> =
        (0..50).map(|number| (number, number as u64 * 10 + [0, 40, 25, 3][number % 4])).collect();
    packets.push((7, 75));
    let device = Device::new(SETTINGS).run(&packets);
    device.hears(50, &[]);
    let Counts { packets, played, twice, lost, late, concealed, .. } = device.counts();
    assert_eq!((packets, played, twice, lost, late, concealed), (51, 50, 1, 0, 0, 0));
    // The first waits for the delay, and then for the next block.
    assert_eq!(device.played[0].held, ms(50));
    assert!(device.played.iter().all(|one| one.spent == ms(1) && one.bytes == 160));
    // Beyond the fastest: 40, 25 and 3 ms later than the first.
    let network: Vec<u128> = device.played[..4].iter().map(|it| it.network.as_millis()).collect();
    assert_eq!((network, device.playout.is_whole), (vec![0, 40, 25, 3], false));
}

#[test]
fn what_is_late_or_lost_is_silence_and_counted() {
    let packets: Vec<(usize, u64)> = (0..60)
        .filter(|number| ![20, 21, 40].contains(number))
        // Number 30 is due at 350 ms.
        .map(|number| (number, number as u64 * 10 + if number == 30 { 70 } else { 0 }))
        .collect();
    let device = Device::new(SETTINGS).run(&packets);
    device.hears(60, &[20, 21, 30, 40]);
    let Counts { packets, played, lost, late, concealed, restarts, .. } = device.counts();
    assert_eq!((packets, played, lost, late), (57, 56, 3, 1));
    assert_eq!((concealed, restarts), (4 * BLOCK as u64, 0));
    // Repeated instead: the packet before, for at most 40 ms.
    let packets: Vec<(usize, u64)> =
        (0..20).filter(|it| !(10..16).contains(it)).map(|it| (it, it as u64 * 10)).collect();
    let device = Device::new(Settings { conceal: Conceal::Repeat, ..SETTINGS }).run(&packets);
    let start = device.heard.iter().position(|sample| *sample != 0).expect("sound");
    let gap = &device.heard[start + 10 * BLOCK..][..6 * BLOCK];
    assert_eq!(gap[..4 * BLOCK], sound(9).repeat(4));
    assert!(gap[4 * BLOCK..].iter().all(|sample| *sample == 0));
    assert_eq!(device.counts().concealed, 6 * BLOCK as u64);
}

#[test]
fn a_sender_that_says_when_it_took_sound_is_timed_from_then() {
    let mut device = Device::new(SETTINGS);
    let epoch = Duration::from_secs(1_764_200_000);
    device.playout.report(epoch, arrival(0).timestamp);
    for number in 0..5 {
        let at = ms(number as u64 * 10 + 30);
        device.until(at);
        device.playout.receive(Arrival { wall: epoch + at, ..arrival(number) }, at);
    }
    device.until(ms(300));
    assert!(device.playout.is_whole);
    assert!(device.played.len() == 5 && device.played.iter().all(|it| it.network == ms(30)));
    // A clock that is an hour wrong is not believed.
    device.playout.report(epoch - Duration::from_secs(3600), arrival(0).timestamp);
    device.playout.receive(Arrival { wall: epoch + ms(310), ..arrival(6) }, ms(310));
    assert!(!device.playout.is_whole);
}

#[test]
fn a_pause_or_a_jump_begins_anew_with_the_delay() {
    // Three seconds of silence, after which timestamps go on as if there had been none.
    let mut packets: Vec<(usize, u64)> = (0..20).map(|it| (it, it as u64 * 10)).collect();
    packets.extend((20..40).map(|it| (it, it as u64 * 10 + 3000)));
    let device = Device::new(SETTINGS).run(&packets);
    let Counts { played, lost, late, concealed, .. } = device.counts();
    assert_eq!((played, lost, late, concealed), (40, 0, 0, 0), "silence is no loss");
    // The way becomes 200 ms longer: after some packets that are late, the rest is heard.
    let packets: Vec<(usize, u64)> =
        (0..100).map(|it| (it, it as u64 * 10 + if it < 30 { 0 } else { 200 })).collect();
    let device = Device::new(SETTINGS).run(&packets);
    let Counts { packets, played, late, restarts, .. } = device.counts();
    assert_eq!((packets, restarts), (100, 1));
    assert!(late <= u64::from(STRAY_MAX) && played + late == 100, "{:?}", device.counts());
    // A sender whose timestamps jump is soon heard again, too.
    let mut device = Device::new(SETTINGS);
    for number in 0..100usize {
        let at = ms(number as u64 * 10);
        device.until(at);
        let mut packet = arrival(number);
        packet.timestamp = packet.timestamp.wrapping_add(if number < 50 { 0 } else { 1 << 30 });
        device.playout.receive(packet, at);
    }
    device.until(ms(1500));
    let Counts { played, early, .. } = device.counts();
    assert!(early > 0 && played + early >= 99, "{:?}", device.counts());
}

/// A sender whose clock is 200 parts of a million faster or slower: what is held stays the same.
#[test]
fn clocks_that_differ_are_followed() {
    for ppm in [200.0, -200.0, 0.0] {
        let mut device = Device::new(SETTINGS);
        let mut deepest = 0;
        let packets = 30_000;
        for number in 0..packets {
            let at = Duration::from_secs_f64(number as f64 * 0.01 * (1.0 - ppm / 1e6));
            device.until(at);
            device.playout.receive(arrival(number), at);
            deepest = deepest.max(device.playout.depth());
        }
        let counts = device.counts();
        let found = counts.drift();
        assert!((found - ppm).abs() <= 25.0, "{ppm}: {found} {counts:?}");
        // 50 ms, a packet, the band of 5 ms, and what comes while it is noticed.
        assert!(deepest <= 8 * (50 + 10 + 10 + 5), "{ppm}: {deepest}");
        let heard = (counts.late, counts.lost, counts.early, counts.restarts);
        assert_eq!(heard, (0, 0, 0, 0), "{ppm}: {counts:?}");
        assert!(ppm != 0.0 || counts.skipped + counts.repeated == 0);
        assert!(counts.concealed <= BLOCK as u64, "{ppm}: {counts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever comes, and whenever: each packet is accounted for once, a packet that was played lay between its
    /// neighbours, and what is held is bounded.
    #[test]
    fn packets_are_accounted_for(
        steps in prop::collection::vec((0u16..300, any::<bool>(), 0usize..200, 0u64..40), 1..300),
        stereo in any::<bool>(),
    ) {
        let settings = Settings { channels: if stereo { 2 } else { 1 }, ..SETTINGS };
        let mut playout = Playout::new(settings);
        let (mut now, mut played) = (Duration::ZERO, 0);
        let mut out = vec![0; BLOCK * usize::from(settings.channels)];
        let most = settings.frames(HELD_MAX);
        for (number, is_wild, frames, wait) in steps {
            now += ms(wait);
            let step = if is_wild { 40_000_007 } else { 80 };
            let timestamp = u32::from(number).wrapping_mul(step);
            let samples = vec![1; frames];
            let (wall, spent) = (Duration::ZERO, Duration::ZERO);
            let arrival = Arrival { sequence: number, timestamp, samples, wall, spent };
            playout.receive(arrival, now);
            prop_assert!(playout.depth() <= 2 * most);
            playout.pull(&mut out, now, |_| played += 1);
        }
        for _ in 0..600 {
            now += ms(10);
            playout.pull(&mut out, now, |_| played += 1);
        }
        playout.end();
        let counts = playout.counts;
        prop_assert!(playout.is_empty());
        prop_assert_eq!(counts.played, played);
        let known = counts.played + counts.late + counts.twice + counts.early;
        prop_assert!(known <= counts.packets, "{:?}", counts);
    }

    /// Sound that comes in any order and time within the delay is heard as it was sent, whatever its first number is.
    #[test]
    fn jitter_within_the_delay_is_not_heard(
        jitter in prop::collection::vec(0u64..49, 20..80),
    ) {
        let packets: Vec<(usize, u64)> = jitter
            .iter()
            .enumerate()
            .map(|(number, late)| (number, number as u64 * 10 + if number == 0 { 0 } else { *late }))
            .collect();
        let device = Device::new(SETTINGS).run(&packets);
        device.hears(packets.len(), &[]);
        prop_assert_eq!(device.counts().played, packets.len() as u64);
    }
}

/// A device and a client of this process: what it plays is what was sent, and what it hears is what was captured.
#[test]
fn a_device_plays_and_hears_over_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let format = wav::Format { rate: 48_000, channels: 2 };
    let sound: Vec<i16> = (0..48_000).map(|at| (at % 30_000) as i16 + 1).collect();
    let bytes = sound.iter().flat_map(|sample| sample.to_le_bytes());
    let file: Vec<u8> = wav::header(format, 96_000).into_iter().chain(bytes).collect();
    std::fs::write(folder.path().join("room.wav"), &file).unwrap();
    let config = Config::parse(
        "listen = '127.0.0.1:0'\nchannels = 2\ndelay = '500 ms'\nspeaker = 'file:heard.wav'\n\
         microphone = 'file:room.wav'\n[clients.owner]\ntoken = 'the-owners-secret'\n",
    );
    let (config, host) = (config.unwrap(), Arc::new(Host::new(Limits::default()).unwrap()));
    let audio = config.audio(folder.path(), host).unwrap();
    let server = Server::start(&config, folder.path(), audio, |why| println!("{why}")).unwrap();
    let refused = Client::publish(server.address, "another-secret", format).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
    let mono = wav::Format { channels: 1, ..format };
    let refused = Client::publish(server.address, "the-owners-secret", mono).err().unwrap();
    assert!(refused.to_string().contains("the device takes L16/48000/2"), "{refused}");
    let mut client = Client::publish(server.address, "the-owners-secret", format).unwrap();
    // 24,000 frames in packets of 347.
    assert_eq!(client.send(&sound).unwrap(), 70);
    client.close().unwrap();
    let began = std::time::Instant::now();
    while server.audio.streams()["playing"] != 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", server.audio.streams());
        std::thread::sleep(ms(20));
    }
    let streams = server.audio.streams();
    let counts = &streams["clients"]["owner"];
    let heard = wav::parse(&std::fs::read(folder.path().join("heard.wav")).unwrap()).unwrap().1;
    let mut client = Client::listen(server.address, "the-owners-secret").unwrap();
    let said = client.hear(ms(300), ms(500), Conceal::Silence, &AtomicBool::new(false)).unwrap();
    assert_eq!((client.format, said.samples.len()), (format, 2 * 14_400));
    assert!(said.is_whole && said.delay >= 0.5, "{said:?}");
    client.close().unwrap();
    if counts["concealed"] != 0 || said.counts.concealed != 0 {
        println!("UNDECIDED: a busy machine was late: {counts} {:?}", said.counts);
        return;
    }
    assert_eq!((&counts["played"], &counts["lost"]), (&70.into(), &0.into()));
    let start = heard.iter().position(|sample| *sample != 0).expect("sound");
    assert!(heard[start..].starts_with(&sound));
    // It joins a loop, which has a step at its end and in the middle.
    let steps = said.samples.windows(2).filter(|two| two[1] != two[0] + 1).count();
    assert!(steps <= 2, "{steps} steps");
}

/// Requests and packets in one connection, damaged in every way, from an open device: it goes on, and no place is kept.
#[test]
fn no_stream_of_bytes_ends_a_device_or_keeps_its_places() {
    let config = Config::parse("listen = '127.0.0.1:0'\nmicrophone = 'tone:440'\n").unwrap();
    let host = Arc::new(Host::new(Limits::default()).unwrap());
    let audio = config.audio(std::path::Path::new("."), host).unwrap();
    let folder = std::path::Path::new(".");
    let server = Server::start(&config, folder, audio, |_| {}).unwrap();
    let sound = "v=0\r\nm=audio 0 RTP/AVP 97\r\na=rtpmap:97 L16/48000/1\r\n";
    let setup = "SETUP rtsp://a/ RTSP/1.0\r\nTransport: RTP/AVP/TCP;interleaved=0-1\r\n\r\n";
    let len = sound.len();
    let announce = format!("ANNOUNCE rtsp://a/ RTSP/1.0\r\nContent-Length: {len}\r\n\r\n{sound}");
    let mut sends = format!("{announce}{setup}RECORD rtsp://a/ RTSP/1.0\r\n\r\n").into_bytes();
    for number in 0..8 {
        let head = rtp::header(97, false, number, u32::from(number) * 10, 1);
        sends.extend([b'$', 0, 0, 32].into_iter().chain(head).chain([7; 20]));
    }
    let listens =
        format!("{setup}PLAY rtsp://a/ RTSP/1.0\r\n\r\nTEARDOWN rtsp://a/ RTSP/1.0\r\n\r\n");
    let corpus = [sends, listens.into_bytes()];
    let (mut random, mut input) = (Stream::new(1, "hostile"), Vec::new());
    for number in 0..400 {
        match corpus.get(number) {
            Some(whole) => input.clone_from(whole),
            None => mutate(&mut random, &corpus, &mut input),
        }
        let mut stream = TcpStream::connect(server.address).unwrap();
        // The device may have given it up before all is written.
        let _ = stream.write_all(&input);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        if number < corpus.len() {
            let mut answers = Vec::new();
            stream.read_to_end(&mut answers).unwrap();
            assert!(answers.starts_with(b"RTSP/1.0 200 OK"));
        }
    }
    let began = std::time::Instant::now();
    let places = || server.audio.clients.load(std::sync::atomic::Ordering::Relaxed);
    while places() > 0 || server.audio.streams()["playing"] != 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{} places are kept", places());
        std::thread::sleep(ms(20));
    }
    let counts = server.audio.streams()["clients"]["anyone"].clone();
    assert!(counts["packets"].as_u64() >= Some(8), "the undamaged one was heard: {counts}");
    let format = wav::Format { rate: 48_000, channels: 1 };
    let mut client = Client::publish(server.address, "", format).unwrap();
    assert_eq!(client.send(&[1; 960]).unwrap(), 2);
    client.close().unwrap();
}

/// A program gets what is played, and what another one says is heard.
#[test]
fn programs_are_ends_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let sound: Vec<i16> = (0..24_000).map(|at| at + 1).collect();
    let raw: Vec<u8> = sound.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    std::fs::write(folder.path().join("room.raw"), &raw).unwrap();
    let config = Config::parse(
        "listen = '127.0.0.1:0'\ndelay = '500 ms'\nspeaker = 'program:tee heard.raw'\n\
         microphone = 'program:cat room.raw'\n",
    );
    let (config, host) = (config.unwrap(), Arc::new(Host::new(Limits::default()).unwrap()));
    let audio = config.audio(folder.path(), host).unwrap();
    let server = Server::start(&config, folder.path(), audio, |why| println!("{why}")).unwrap();
    let mut client =
        Client::publish(server.address, "", wav::Format { rate: 48_000, channels: 1 }).unwrap();
    client.send(&sound).unwrap();
    client.close().unwrap();
    // The program ends with its input, after it has written all of it.
    let began = std::time::Instant::now();
    let heard = loop {
        let heard = std::fs::read(folder.path().join("heard.raw")).unwrap_or_default();
        let start = heard.iter().position(|byte| *byte != 0).unwrap_or(heard.len());
        if server.audio.streams()["playing"] == 0 && heard.len() >= start + raw.len() {
            break heard[start..start + raw.len()].to_vec();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}", server.audio.streams());
        std::thread::sleep(ms(20));
    };
    let mut client = Client::listen(server.address, "").unwrap();
    let said = client.hear(ms(300), ms(500), Conceal::Silence, &AtomicBool::new(false)).unwrap();
    let streams = server.audio.streams();
    if streams["clients"]["anyone"]["concealed"] != 0 || said.counts.concealed != 0 {
        println!("UNDECIDED: a busy machine was late: {streams} {:?}", said.counts);
        return;
    }
    assert!(heard == raw, "the same samples");
    assert_eq!(said.samples, sound[..14_400]);
}
