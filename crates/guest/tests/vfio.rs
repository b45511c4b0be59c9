//! Clients of vfio-user in Rust over real sockets, shared memory and eventfds: good ones, and ones that do what no
//! client or driver would.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod bench;

use bench::{AROUND, Bench, bell, file, is_untouched};
use lastmeter_base::{Duration, Stream};
use lastmeter_guest::device::{RECEIVE, TRANSMIT};
use lastmeter_guest::end::GuestEnd;
use lastmeter_guest::hub::End;
use lastmeter_guest::memory::Memory;
use lastmeter_guest::registers::driver::{BUFFER, DESCRIPTORS, MEMORY, Nic, RINGS_AT};
use lastmeter_guest::registers::{CONTROL, ENABLE, ID, LENGTH, MAGIC, RINGS, TAIL};
use lastmeter_guest::vfio::front::Server;
use lastmeter_guest::vfio::message::{Access, Mapping, Request, Vectors};
use lastmeter_guest::vfio::socket::{Message, Socket};
use lastmeter_guest::vhost::message::Region;
use lastmeter_host::adapter::description::Description;
use lastmeter_linux::shared::Foreign;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::SealFlags;
use rustix::io::read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

const CONFIG: u32 = 7;
const EVENTFDS: u32 = 4 | 32;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

fn ram() -> Mapping {
    Mapping { writable: true, offset: AROUND as u64, address: 0, size: MEMORY as u64 }
}

/// Until there is something to read; `false` if nothing comes.
fn comes(fd: &impl AsFd, left: std::time::Duration) -> bool {
    let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// What QEMU and a driver are to an adapter.
struct Client {
    socket: Socket,
    file: OwnedFd,
    memory: Memory,
    nic: Nic,
    vectors: [OwnedFd; 2],
    number: u16,
}

impl Client {
    /// Connects, and starts both rings.
    fn connect(path: &Path) -> Client {
        let socket = Socket::new(UnixStream::connect(path).unwrap()).unwrap();
        let file = file(MEMORY, SealFlags::SHRINK | SealFlags::GROW);
        let mut memory = Memory::new();
        let mapped = Foreign::map(file.as_fd(), AROUND as u64, MEMORY).unwrap();
        assert!(memory.add(Region { guest: 0, size: MEMORY as u64, user: 0, offset: 0 }, mapped));
        let (nic, vectors) = (Nic::default(), [bell(), bell()]);
        let mut client = Client { socket, file, memory, nic, vectors, number: 0 };
        let hello = Request::Version { major: 0, minor: 0, capabilities: b"{}\0".to_vec() };
        client.ask(&hello, &[]).unwrap();
        let file = client.file.try_clone().unwrap();
        client.ask(&Request::Map(ram()), &[&file]).unwrap();
        let bells = client.vectors.each_ref().map(|bell| bell.try_clone().unwrap());
        let vectors = Vectors { flags: EVENTFDS, index: 2, start: 0, count: 2 };
        client.ask(&Request::SetIrqs(vectors), &[&bells[0], &bells[1]]).unwrap();
        client.write(CONFIG, 4, &[6, 0]).unwrap();
        assert_eq!(client.register(ID), MAGIC);
        client.start();
        client
    }

    fn start(&mut self) {
        let mut writes = Vec::new();
        self.nic.start(&self.memory, &mut |at, value| writes.push((at, value))).unwrap();
        self.registers(&writes);
    }

    /// Asks, and waits for the answer: its payload, or the number of an error.
    fn ask(&mut self, request: &Request, fds: &[&OwnedFd]) -> Result<Vec<u8>, u32> {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        self.number = self.number.wrapping_add(1);
        self.socket.ask(self.number, request, &fds).unwrap();
        let Message { header, payload, .. } = self.answer();
        assert_eq!((header.id, header.command), (self.number, request.emit().0));
        header.error.map_or(Ok(payload), Err)
    }

    fn answer(&mut self) -> Message {
        loop {
            if let Some(message) = self.socket.receive().unwrap() {
                assert!(message.header.is_reply);
                return message;
            }
            assert!(comes(&self.socket, PATIENCE), "an answer");
        }
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<Vec<u8>, u32> {
        let access = Access { region, offset, count: data.len() as u32 };
        self.ask(&Request::Write(access, data.to_vec()), &[])
    }

    fn registers(&mut self, writes: &[(u64, u32)]) {
        for (at, value) in writes {
            self.write(0, *at, &value.to_le_bytes()).unwrap();
        }
    }

    fn register(&mut self, offset: u64) -> u32 {
        let access = Access { region: 0, offset, count: 4 };
        let answer = self.ask(&Request::Read(access), &[]).unwrap();
        u32::from_le_bytes(answer[16..].try_into().unwrap())
    }

    fn ring(&mut self, which: usize) {
        self.registers(&[(RINGS[which] + TAIL, self.nic.offered[which].into())]);
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        let sent = self.nic.send(&self.memory, frame).unwrap();
        self.ring(TRANSMIT);
        sent
    }

    /// The next frame, after an interrupt.
    fn receive(&mut self, patience: std::time::Duration) -> Option<Vec<u8>> {
        let begun = Instant::now();
        loop {
            if let Some(frame) = self.nic.receive(&self.memory).unwrap() {
                self.ring(RECEIVE);
                return Some(frame);
            }
            let mut writes = Vec::new();
            self.nic.arm(RECEIVE, &mut |at, value| writes.push((at, value)));
            self.registers(&writes);
            let left = patience.checked_sub(begun.elapsed())?;
            comes(&self.vectors[RECEIVE], left);
            let _ = read(&self.vectors[RECEIVE], &mut [0; 8]);
        }
    }
}

/// Ends that are such adapters.
fn adapter(card: &Description) -> impl Fn(UnixListener) -> GuestEnd {
    move |listener| {
        let front = Box::new(Server::new([2; 6]));
        GuestEnd::behind(front, listener, card.clone()).unwrap()
    }
}

#[test]
fn two_drivers_exchange_frames_through_registers_in_real_time() {
    let mut card = Description::plain("three milliseconds a message, each way");
    card.host.per_message = Duration::from_ms(3);
    let bench = Bench::start("pair", adapter(&card));
    let [mut alice, mut bob] = bench.paths.each_ref().map(|path| Client::connect(path));
    for number in 0..5u8 {
        let begun = Instant::now();
        let frame = vec![number; 100 + usize::from(number)];
        assert!(alice.send(&frame));
        assert_eq!(bob.receive(PATIENCE), Some(frame));
        assert!(bob.send(&[number; 60]));
        assert_eq!(alice.receive(PATIENCE), Some(vec![number; 60]));
        assert!(begun.elapsed().as_micros() >= 12_000, "four messages of 3 ms, never early");
    }
    let hub = bench.stop();
    let frames = hub.ends.iter().map(|end| end.device().unwrap().account().frames);
    assert_eq!(frames.collect::<Vec<_>>(), [[5, 5], [5, 5]]);
    // A vector of its own for each ring; that of a sender is never armed again.
    let raised = hub.ends.iter().map(|end| end.device().unwrap().account().raised);
    assert_eq!(raised.collect::<Vec<_>>(), [[5, 1], [5, 1]]);
}

/// A number below `most`, or a special one.
fn number(random: &mut Stream, most: u64) -> u64 {
    match random.below(8) {
        0 => u64::MAX - random.below(64),
        1 => random.below(u64::MAX),
        2 => MEMORY as u64 - random.below(64),
        _ => random.below(most),
    }
}

fn noise(random: &mut Stream, most: u64) -> Vec<u8> {
    (0..1 + random.below(most)).map(|_| random.below(256) as u8).collect()
}

/// Something that no client or driver does; `false` if the session is to end.
fn misbehave(client: &mut Client, random: &mut Stream) -> bool {
    let which = random.below(2) as usize;
    let slot = random.below(u64::from(DESCRIPTORS));
    match random.below(10) {
        // Descriptors that are anywhere, of any length.
        0..=2 => {
            let (address, len) = (number(random, MEMORY as u64), number(random, 4096) as u32);
            let place = RINGS_AT[which] + 16 * slot;
            client.memory.write(place, &address.to_le_bytes()).unwrap();
            client.memory.write(place + 8, &len.to_le_bytes()).unwrap();
            client.memory.store(place + 12, random.below(3) as u16).unwrap();
            client.nic.offered[which] = client.nic.offered[which].wrapping_add(1);
            client.ring(which);
        }
        // Any register, any value.
        3 | 4 => {
            let register = RINGS[which] + 4 * random.below(8);
            let offset = if random.below(2) == 0 { register } else { 4 * random.below(0x1000) };
            let value = number(random, 600) as u32;
            let _ = client.write(0, offset, &value.to_le_bytes());
            let _ = client.register(offset);
        }
        // A ring that is started anew somewhere.
        5 => {
            let length = [0, 3, 256, 1 << 15, 1 << 16][random.below(5) as usize];
            client.registers(&[
                (RINGS[which] + ENABLE, 0),
                (RINGS[which], number(random, MEMORY as u64) as u32),
                (RINGS[which] + LENGTH, length),
                (RINGS[which] + ENABLE, 1),
                (RINGS[which] + TAIL, number(random, 600) as u32),
            ]);
        }
        // Regions and configuration: odd places, odd lengths.
        6 => {
            let (region, offset) = (random.below(12) as u32, number(random, 0x4100));
            let data = noise(random, 300);
            let _ = client.write(region, offset, &data);
            let count = number(random, 5000) as u32;
            let _ = client.ask(&Request::Read(Access { region, offset, count }), &[]);
        }
        // Memory that is taken away, is shorter than stated, may shrink, or is no memory.
        7 => {
            let (address, size) = (number(random, 1 << 22), number(random, 1 << 22));
            let all = random.below(4) == 0;
            let _ = client.ask(&Request::Unmap { address: 0, size: MEMORY as u64, all }, &[]);
            let unsealed = file(MEMORY, SealFlags::GROW);
            let fds = [client.file.try_clone().unwrap(), unsealed, bell()];
            let fd = &fds[random.below(3) as usize];
            let mapping = Mapping { size, address, offset: number(random, 1 << 17), ..ram() };
            let _ = client.ask(&Request::Map(mapping), &[fd]);
            let _ = client.ask(&Request::Unmap { address, size, all }, &[]);
            let _ = client.ask(&Request::Map(ram()), &[&fds[0]]);
        }
        // Interrupts that are none, or no eventfd.
        8 => {
            let (reader, _writer) = rustix::pipe::pipe().unwrap();
            let [flags, index, start, count] =
                [64, 6, 4, 4].map(|most| number(random, most) as u32);
            let _ =
                client.ask(&Request::SetIrqs(Vectors { flags, index, start, count }), &[&reader]);
            let one = Vectors { flags: EVENTFDS, index: 2, start: 0, count: 1 };
            assert_eq!(client.ask(&Request::SetIrqs(one), &[&reader]), Err(22));
        }
        // What is no message ends the session, and nothing else.
        _ => {
            let bytes = noise(random, 64);
            let _ = client.socket.send(&bytes);
            return false;
        }
    }
    true
}

/// A hostile client for so long, beside two good ones on other adapters.
fn hostile(seconds: f64) {
    let card = Description::plain("no time at all");
    let (bad, good) = (Bench::start("bad", adapter(&card)), Bench::start("good", adapter(&card)));
    let [mut alice, mut bob] = good.paths.each_ref().map(|path| Client::connect(path));
    let mut peer = Client::connect(&bad.paths[1]);
    let mut random = Stream::new(36, "hostile client");
    let (begun, mut sessions, mut steps, mut served) = (Instant::now(), 0u64, 0u64, 0u64);
    while begun.elapsed().as_secs_f64() < seconds {
        let mut client = Client::connect(&bad.paths[0]);
        sessions += 1;
        for _ in 0..1 + random.below(60) {
            if !misbehave(&mut client, &mut random) {
                break;
            }
            steps += 1;
            // Frames into its rings, too, whatever they are by then.
            peer.send(&[7; 200]);
        }
        // The others are served meanwhile.
        let frame = served.to_le_bytes().repeat(10);
        assert!(alice.send(&frame));
        let got = bob.receive(PATIENCE);
        assert_eq!(got, Some(frame), "after {served} frames and {steps} misdeeds");
        served += 1;
        assert!(is_untouched(&client.file, MEMORY), "what is around the guest's memory");
    }
    assert!(
        is_untouched(&alice.file, MEMORY)
            && is_untouched(&bob.file, MEMORY)
            && is_untouched(&peer.file, MEMORY)
    );
    let hub = bad.stop();
    let refused = match &hub.ends[0] {
        End::Guest(guest) => guest.refused.clone(),
        End::Port(_) => unreachable!(),
    };
    assert!(sessions > 1 && served > 1 && !refused.is_empty());
    println!("{sessions} sessions, {steps} misdeeds, {served} frames of others; {refused:?}");
}

/// For two seconds, or as many as `LASTMETER_HOSTILE` says.
#[test]
fn a_hostile_client_touches_nothing_and_stops_nobody() {
    let seconds = std::env::var("LASTMETER_HOSTILE").ok();
    hostile(seconds.map_or(2.0, |text| text.parse().unwrap()));
}

#[test]
fn a_client_that_goes_leaves_the_device_as_after_power_on() {
    let bench = Bench::start("again", adapter(&Description::plain("no time at all")));
    let mut peer = Client::connect(&bench.paths[1]);
    for round in 0..3u8 {
        let mut client = Client::connect(&bench.paths[0]);
        assert!(client.send(&[round; 60]));
        assert_eq!(peer.receive(PATIENCE), Some(vec![round; 60]));
        client.registers(&[(CONTROL, 1)]);
        assert_eq!(
            (client.register(RINGS[0] + ENABLE), client.register(RINGS[1] + LENGTH)),
            (0, 0)
        );
        client.start();
        assert!(client.send(&[round; BUFFER as usize]));
        assert_eq!(peer.receive(PATIENCE), Some(vec![round; BUFFER as usize]));
    }
    assert_eq!(bench.stop().ends[0].device().unwrap().account().frames, [0, 6]);
}
