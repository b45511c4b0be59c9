//! Guests in Rust over real sockets, shared memory and eventfds: good ones, and ones that do what no driver would.

use crate::bench::{AROUND, Bench, bell, file, is_untouched};
use lastmeter_base::{Duration, Stream};
use lastmeter_guest::device::{RECEIVE, TRANSMIT};
use lastmeter_guest::driver::{LENGTH, MEMORY, Nic};
use lastmeter_guest::end::GuestEnd;
use lastmeter_guest::hub::End;
use lastmeter_guest::memory::Memory;
use lastmeter_guest::vhost::message::{Addresses, Region, Request};
use lastmeter_guest::vhost::session::{FEATURES, PROTOCOL_FEATURES};
use lastmeter_guest::vhost::socket::Socket;
use lastmeter_host::adapter::description::Description;
use lastmeter_linux::shared::Foreign;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::SealFlags;
use rustix::io::{read, write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

/// Where QEMU would see the guest's memory.
const USER: u64 = 0x7f00_0000_0000;

/// What QEMU and a driver are to an adapter.
struct Frontend {
    socket: Socket,
    file: OwnedFd,
    memory: Memory,
    nic: Nic,
    kicks: [OwnedFd; 2],
    calls: [OwnedFd; 2],
}

fn region() -> Region {
    Region { guest: 0, size: MEMORY as u64, user: USER, offset: AROUND as u64 }
}

impl Frontend {
    /// Connects, and starts both rings in QEMU's order.
    fn connect(path: &Path) -> Frontend {
        let socket = Socket::new(UnixStream::connect(path).unwrap()).unwrap();
        let file = file(MEMORY, SealFlags::SHRINK | SealFlags::GROW);
        let mut memory = Memory::new();
        let mapped = Foreign::map(file.as_fd(), AROUND as u64, MEMORY).unwrap();
        assert!(memory.add(region(), mapped));
        let nic = Nic::new(&memory).unwrap();
        let (kicks, calls) = ([bell(), bell()], [bell(), bell()]);
        let front = Frontend { socket, file, memory, nic, kicks, calls };
        front.start();
        front
    }

    fn ask(&self, request: Request, fds: &[&OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        // A hostile guest's session may have ended.
        let _ = self.socket.ask(&request, &fds);
    }

    fn start(&self) {
        self.ask(Request::SetOwner, &[]);
        self.ask(Request::SetProtocol(PROTOCOL_FEATURES), &[]);
        self.ask(Request::Enable(0, true), &[]);
        self.ask(Request::Enable(1, true), &[]);
        self.ask(Request::SetFeatures(FEATURES), &[]);
        self.ask(Request::SetMemory(vec![region()]), &[&self.file]);
        for ring in [RECEIVE, TRANSMIT] {
            let place = self.nic.rings[ring].place;
            let [descriptors, available, used] =
                [place.descriptors, place.available, place.used].map(|at| at + USER);
            let number = ring as u32;
            self.ask(Request::SetLength(number, LENGTH), &[]);
            self.ask(Request::SetBase(number, 0), &[]);
            self.ask(
                Request::SetAddresses(number, Addresses { descriptors, available, used }),
                &[],
            );
            self.ask(Request::SetCall(number, true), &[&self.calls[ring]]);
            self.ask(Request::SetKick(number, true), &[&self.kicks[ring]]);
        }
    }

    fn kick(&self, ring: usize) {
        let _ = write(&self.kicks[ring], &1u64.to_ne_bytes());
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        let sent = self.nic.send(&self.memory, frame).unwrap();
        self.kick(TRANSMIT);
        sent
    }

    /// The next frame, after an interrupt.
    fn receive(&mut self, patience: std::time::Duration) -> Option<Vec<u8>> {
        let begun = Instant::now();
        loop {
            if let Some(frame) = self.nic.receive(&self.memory).unwrap() {
                self.kick(RECEIVE);
                return Some(frame);
            }
            let left = patience.checked_sub(begun.elapsed())?;
            let timeout =
                Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            poll(&mut [PollFd::new(&self.calls[RECEIVE], PollFlags::IN)], Some(&timeout)).unwrap();
            let _ = read(&self.calls[RECEIVE], &mut [0; 8]);
        }
    }
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// Ends that are such adapters.
fn adapter(card: &Description) -> impl Fn(UnixListener) -> GuestEnd {
    move |listener| GuestEnd::new(listener, card.clone()).unwrap()
}

#[test]
fn two_guests_exchange_frames_through_their_adapters_in_real_time() {
    let mut card = Description::plain("three milliseconds a message, each way");
    card.host.per_message = Duration::from_ms(3);
    let bench = Bench::start("pair", adapter(&card));
    let [mut alice, mut bob] = bench.paths.each_ref().map(|path| Frontend::connect(path));
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
    assert!(hub.report.interrupts >= 10);
}

#[test]
fn e_97_a_generic_adapter_receives_by_four_commands_in_real_time() {
    let mut generic = Description::plain("a millisecond, then a microsecond a byte");
    generic.host.handshake = true;
    generic.host.per_message = Duration::from_ms(1);
    generic.transfer.per_byte = lastmeter_base::PerByte::from_fs(1_000_000_000);
    let bench = Bench::start("generic", adapter(&generic));
    let [mut alice, mut bob] = bench.paths.each_ref().map(|path| Frontend::connect(path));
    assert!(alice.send(&[1; 500]));
    assert_eq!(bob.receive(PATIENCE), Some(vec![1; 500]));
    let hub = bench.stop();
    let commands = hub.ends[1].device().unwrap().receiver().commands();
    let said: Vec<_> = commands.iter().map(|&(_, _, side, word)| (side, word)).collect();
    assert_eq!(said, generic.reception(1));
    assert_eq!((said.len(), generic.interrupts(&said)), (4, 2), "Fig 7.2");
    let at: Vec<Duration> = commands.iter().map(|command| command.0 - commands[0].0).collect();
    assert_eq!(at, [0, 1000, 1000, 1500].map(Duration::from_us), "read, ack, address, end");
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

/// Something that no driver does.
fn misbehave(front: &mut Frontend, random: &mut Stream) {
    let ring = random.below(2) as usize;
    let place = front.nic.rings[ring].place;
    match random.below(10) {
        // Descriptors: loops, tables, anything anywhere.
        0..=3 => {
            let flags = random.below(8) as u16;
            let next = number(random, u64::from(LENGTH)) as u16;
            let piece = (number(random, MEMORY as u64), number(random, 4096) as u32);
            let slot = random.below(u64::from(LENGTH)) as u16;
            front.nic.rings[ring].describe(&front.memory, slot, piece, (flags, next)).unwrap();
            front.nic.rings[ring].offer(&front.memory, slot).unwrap();
        }
        // An index that jumps.
        4 => {
            let index = random.below(1 << 16) as u16;
            front.memory.store(place.available + 2, index).unwrap();
        }
        // Noise in all of a ring.
        5 => {
            let noise: Vec<u8> = (0..8192).map(|_| random.below(256) as u8).collect();
            front.memory.write(place.descriptors, &noise).unwrap();
        }
        // Messages, with wrong numbers, lengths and descriptors.
        6 => {
            let wrong = match random.below(6) {
                0 => Request::SetLength(ring as u32, number(random, 300) as u32),
                1 => Request::SetBase(ring as u32, number(random, 300) as u32),
                2 => Request::SetFeatures(number(random, u64::MAX)),
                3 => Request::Enable(number(random, 2) as u32, random.below(2) == 0),
                4 => Request::Other(number(random, 50) as u32),
                _ => {
                    let [descriptors, available, used] =
                        [0; 3].map(|_| USER.wrapping_add(number(random, MEMORY as u64)));
                    Request::SetAddresses(ring as u32, Addresses { descriptors, available, used })
                }
            };
            front.ask(wrong, &[]);
        }
        // Memory that is shorter than stated, may shrink, or is no memory.
        7 => {
            let size = number(random, 1 << 22);
            let region = Region { size, offset: number(random, 1 << 17), ..region() };
            let unsealed = file(MEMORY, SealFlags::GROW);
            let fd = [&front.file, &unsealed, &front.kicks[0]][random.below(3) as usize];
            front.ask(Request::SetMemory(vec![region]), &[fd]);
        }
        // A doorbell at which one would wait.
        8 => {
            let (reader, _writer) = rustix::pipe::pipe().unwrap();
            front.ask(Request::SetKick(ring as u32, true), &[&reader]);
        }
        _ => {
            let noise: Vec<u8> =
                (0..1 + random.below(64)).map(|_| random.below(256) as u8).collect();
            let _ = front.socket.send(&noise, &[]);
        }
    }
    front.kick(RECEIVE);
    front.kick(TRANSMIT);
}

/// A hostile guest for so long, beside two good ones on other adapters.
fn hostile(seconds: f64) {
    let card = Description::plain("no time at all");
    let (bad, good) = (Bench::start("bad", adapter(&card)), Bench::start("good", adapter(&card)));
    let [mut alice, mut bob] = good.paths.each_ref().map(|path| Frontend::connect(path));
    let mut peer = Frontend::connect(&bad.paths[1]);
    let mut random = Stream::new(36, "hostile guest");
    let (begun, mut sessions, mut steps, mut served) = (Instant::now(), 0u64, 0u64, 0u64);
    while begun.elapsed().as_secs_f64() < seconds {
        let mut front = Frontend::connect(&bad.paths[0]);
        sessions += 1;
        for _ in 0..1 + random.below(40) {
            misbehave(&mut front, &mut random);
            steps += 1;
            // Frames into its rings, too, whatever they are by then.
            peer.send(&[7; 200]);
        }
        // The others are served meanwhile.
        let frame = served.to_le_bytes().repeat(10);
        assert!(alice.send(&frame));
        assert_eq!(
            bob.receive(PATIENCE),
            Some(frame),
            "after {served} frames and {steps} misdeeds"
        );
        served += 1;
        assert!(is_untouched(&front.file, MEMORY), "what is around the guest's memory");
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
    println!(
        "{sessions} sessions, {steps} misdeeds, {served} frames of others; refused: {refused:?}"
    );
}

/// For two seconds, or as many as `LASTMETER_HOSTILE` says.
#[test]
fn a_hostile_guest_touches_nothing_and_stops_nobody() {
    let seconds = std::env::var("LASTMETER_HOSTILE").ok();
    hostile(seconds.map_or(2.0, |text| text.parse().unwrap()));
}
