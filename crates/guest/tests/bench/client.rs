//! What QEMU is to an adapter of vfio-user: a client with memory and vectors, good or bad.

use super::{AROUND, Bench, bell, file, is_untouched};
use lastmeter_base::Stream;
use lastmeter_guest::end::GuestEnd;
use lastmeter_guest::hub::End;
use lastmeter_guest::memory::Memory;
use lastmeter_guest::vfio::message::{Access, Mapping, Request, Vectors};
use lastmeter_guest::vfio::socket::{Message, Socket};
use lastmeter_guest::vhost::message::Region;
use lastmeter_linux::shared::Foreign;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::SealFlags;
use rustix::io::read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the guest's memory.
pub(crate) const MEMORY: usize = 0x20_0000;
/// The region of the configuration space.
pub(crate) const CONFIG: u32 = 7;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const EVENTFDS: u32 = 4 | 32;
const MSI_X: u32 = 2;

fn ram() -> Mapping {
    Mapping { writable: true, offset: AROUND as u64, address: 0, size: MEMORY as u64 }
}

/// Until there is something to read; `false` if nothing comes.
fn comes(fd: &impl AsFd, left: Duration) -> bool {
    let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// A client.
pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) file: OwnedFd,
    pub(crate) memory: Memory,
    vectors: Vec<OwnedFd>,
    number: u16,
}

impl Client {
    /// Connects to a function with so many vectors, which may reach the memory then.
    pub(crate) fn connect(path: &Path, vectors: u32) -> Client {
        let socket = Socket::new(UnixStream::connect(path).unwrap()).unwrap();
        let file = file(MEMORY, SealFlags::SHRINK | SealFlags::GROW);
        let mut memory = Memory::new();
        let mapped = Foreign::map(file.as_fd(), AROUND as u64, MEMORY).unwrap();
        assert!(memory.add(Region { guest: 0, size: MEMORY as u64, user: 0, offset: 0 }, mapped));
        let bells: Vec<OwnedFd> = (0..vectors).map(|_| bell()).collect();
        let copies: Vec<OwnedFd> = bells.iter().map(|bell| bell.try_clone().unwrap()).collect();
        let mut client = Client { socket, file, memory, vectors: bells, number: 0 };
        let hello = Request::Version { major: 0, minor: 0, capabilities: b"{}\0".to_vec() };
        client.ask(&hello, &[]).unwrap();
        let file = client.file.try_clone().unwrap();
        client.ask(&Request::Map(ram()), &[&file]).unwrap();
        let all = Vectors { flags: EVENTFDS, index: MSI_X, start: 0, count: vectors };
        client.ask(&Request::SetIrqs(all), &copies.iter().collect::<Vec<_>>()).unwrap();
        // The memory, the bus, MSI-X.
        client.write(CONFIG, 4, &[6, 0]).unwrap();
        client.write(CONFIG, 0x42, &[(vectors - 1) as u8, 0x80]).unwrap();
        client
    }

    /// Asks, and waits for the answer: its payload, or the number of an error.
    pub(crate) fn ask(&mut self, request: &Request, fds: &[&OwnedFd]) -> Result<Vec<u8>, u32> {
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

    pub(crate) fn write(&mut self, region: u32, at: u64, data: &[u8]) -> Result<Vec<u8>, u32> {
        let access = Access { region, offset: at, count: data.len() as u32 };
        self.ask(&Request::Write(access, data.to_vec()), &[])
    }

    /// Reads up to 8 bytes of the region with registers.
    pub(crate) fn read(&mut self, offset: u64, count: u32) -> u64 {
        let access = Access { region: 0, offset, count };
        let answer = self.ask(&Request::Read(access), &[]).unwrap();
        answer[16..].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    /// Waits for an interrupt; `false` if none comes.
    pub(crate) fn interrupted(&self, vector: usize, left: Duration) -> bool {
        let came = comes(&self.vectors[vector], left);
        let _ = read(&self.vectors[vector], &mut [0; 8]);
        came
    }

    /// Something that no client does; `false` if the session is to end.
    pub(crate) fn misbehave(&mut self, random: &mut Stream) -> bool {
        match random.below(4) {
            // Regions and configuration: odd places, odd lengths.
            0 => {
                let (region, offset) = (random.below(12) as u32, number(random, 0x4100));
                let data = noise(random, 300);
                let _ = self.write(region, offset, &data);
                let count = number(random, 5000) as u32;
                let _ = self.ask(&Request::Read(Access { region, offset, count }), &[]);
            }
            // Memory that is taken away, is shorter than stated, may shrink, or is no memory.
            1 => {
                let (address, size) = (number(random, 1 << 22), number(random, 1 << 22));
                let all = random.below(4) == 0;
                let _ = self.ask(&Request::Unmap { address: 0, size: MEMORY as u64, all }, &[]);
                let unsealed = file(MEMORY, SealFlags::GROW);
                let fds = [self.file.try_clone().unwrap(), unsealed, bell()];
                let fd = &fds[random.below(3) as usize];
                let mapping = Mapping { size, address, offset: number(random, 1 << 17), ..ram() };
                let _ = self.ask(&Request::Map(mapping), &[fd]);
                let _ = self.ask(&Request::Unmap { address, size, all }, &[]);
                let _ = self.ask(&Request::Map(ram()), &[&fds[0]]);
            }
            // Interrupts that are none, or no eventfd.
            2 => {
                let (reader, _writer) = rustix::pipe::pipe().unwrap();
                let [flags, index, start, count] =
                    [64, 6, 4, 4].map(|most| number(random, most) as u32);
                let odd = Vectors { flags, index, start, count };
                let _ = self.ask(&Request::SetIrqs(odd), &[&reader]);
                let one = Vectors { flags: EVENTFDS, index: MSI_X, start: 0, count: 1 };
                assert_eq!(self.ask(&Request::SetIrqs(one), &[&reader]), Err(22));
            }
            // What is no message ends the session, and nothing else.
            _ => {
                let bytes = noise(random, 64);
                let _ = self.socket.send(&bytes);
                return false;
            }
        }
        true
    }
}

/// A number below `most`, or a special one.
pub(crate) fn number(random: &mut Stream, most: u64) -> u64 {
    match random.below(8) {
        0 => u64::MAX - random.below(64),
        1 => random.below(u64::MAX),
        2 => MEMORY as u64 - random.below(64),
        _ => random.below(most),
    }
}

pub(crate) fn noise(random: &mut Stream, most: u64) -> Vec<u8> {
    (0..1 + random.below(most)).map(|_| random.below(256) as u8).collect()
}

/// A client with a driver.
pub(crate) trait Driver {
    /// Connects, and starts both rings.
    fn connect(path: &Path) -> Self;
    fn client(&self) -> &Client;
    /// Whether its ring had room.
    fn send(&mut self, frame: &[u8]) -> bool;
    /// The next frame, after an interrupt.
    fn receive(&mut self, patience: Duration) -> Option<Vec<u8>>;
    /// Something that no client or driver does; `false` if the session is to end.
    fn misbehave(&mut self, random: &mut Stream) -> bool;
}

/// A hostile client, beside two good ones on other adapters: for two seconds, or as many as `LASTMETER_HOSTILE` says.
pub(crate) fn hostile<D: Driver>(name: &str, end: &impl Fn(UnixListener) -> GuestEnd) {
    let seconds = std::env::var("LASTMETER_HOSTILE").ok();
    let seconds = seconds.map_or(2.0, |text| text.parse().unwrap());
    let [bad, good] = ["bad", "good"].map(|which| Bench::start(&format!("{name}-{which}"), end));
    let [mut alice, mut bob] = good.paths.each_ref().map(|path| D::connect(path));
    let mut peer = D::connect(&bad.paths[1]);
    let mut random = Stream::new(36, name);
    let (begun, mut sessions, mut steps, mut served) = (Instant::now(), 0u64, 0u64, 0u64);
    while begun.elapsed().as_secs_f64() < seconds {
        let mut guest = D::connect(&bad.paths[0]);
        sessions += 1;
        for _ in 0..1 + random.below(60) {
            if !guest.misbehave(&mut random) {
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
        assert!(is_untouched(&guest.client().file, MEMORY), "what is around the guest's memory");
    }
    for other in [&alice, &bob, &peer] {
        assert!(is_untouched(&other.client().file, MEMORY));
    }
    let hub = bad.stop();
    let End::Guest(end) = &hub.ends[0] else { unreachable!() };
    assert!(sessions > 1 && served > 1 && !end.refused.is_empty());
    println!("{sessions} sessions, {steps} misdeeds, {served} frames of others; {:?}", end.refused);
}
