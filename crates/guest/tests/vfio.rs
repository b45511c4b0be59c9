//! `simple-nic` by vfio-user over real sockets, shared memory and eventfds: good drivers, and what no client or driver
//! would do.

use crate::bench::Bench;
use crate::bench::client::{Client, Driver, MEMORY, PATIENCE, hostile, number};
use lastmeter_base::{Duration, Stream};
use lastmeter_guest::device::{RECEIVE, TRANSMIT};
use lastmeter_guest::end::GuestEnd;
use lastmeter_guest::registers::driver::{BUFFER, DESCRIPTORS, Nic, RINGS_AT};
use lastmeter_guest::registers::{CONTROL, ENABLE, ID, LENGTH, MAGIC, RINGS, TAIL};
use lastmeter_guest::vfio::front::Server;
use lastmeter_guest::vfio::function::Function;
use lastmeter_host::adapter::description::Description;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

/// QEMU and a driver.
struct Guest {
    client: Client,
    nic: Nic,
}

impl Guest {
    fn start(&mut self) {
        let mut writes = Vec::new();
        let write = &mut |at, value| writes.push((at, value));
        self.nic.start(&self.client.memory, write).unwrap();
        self.registers(&writes);
    }

    fn registers(&mut self, writes: &[(u64, u32)]) {
        for (at, value) in writes {
            self.client.write(0, *at, &value.to_le_bytes()).unwrap();
        }
    }

    fn register(&mut self, offset: u64) -> u32 {
        self.client.read(offset, 4) as u32
    }

    fn ring(&mut self, which: usize) {
        self.registers(&[(RINGS[which] + TAIL, self.nic.offered[which].into())]);
    }
}

impl Driver for Guest {
    fn connect(path: &Path) -> Guest {
        let mut guest = Guest { client: Client::connect(path, 2), nic: Nic::default() };
        assert_eq!(guest.register(ID), MAGIC);
        guest.start();
        guest
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        let sent = self.nic.send(&self.client.memory, frame).unwrap();
        self.ring(TRANSMIT);
        sent
    }

    fn receive(&mut self, patience: std::time::Duration) -> Option<Vec<u8>> {
        let begun = Instant::now();
        loop {
            if let Some(frame) = self.nic.receive(&self.client.memory).unwrap() {
                self.ring(RECEIVE);
                return Some(frame);
            }
            let mut writes = Vec::new();
            self.nic.arm(RECEIVE, &mut |at, value| writes.push((at, value)));
            self.registers(&writes);
            self.client.interrupted(RECEIVE, patience.checked_sub(begun.elapsed())?);
        }
    }

    fn misbehave(&mut self, random: &mut Stream) -> bool {
        misbehave(self, random)
    }
}

/// Ends that are such adapters.
fn adapter(card: &Description) -> impl Fn(UnixListener) -> GuestEnd {
    move |listener| {
        let front = Box::new(Server::new(Function::simple([2; 6])));
        GuestEnd::behind(front, listener, card.clone()).unwrap()
    }
}

#[test]
fn two_drivers_exchange_frames_through_registers_in_real_time() {
    let mut card = Description::plain("three milliseconds a message, each way");
    card.host.per_message = Duration::from_ms(3);
    let bench = Bench::start("pair", adapter(&card));
    let [mut alice, mut bob] = bench.paths.each_ref().map(|path| Guest::connect(path));
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

/// Something that no client or driver does; `false` if the session is to end.
fn misbehave(guest: &mut Guest, random: &mut Stream) -> bool {
    let which = random.below(2) as usize;
    let slot = random.below(u64::from(DESCRIPTORS));
    match random.below(10) {
        // Descriptors that are anywhere, of any length.
        0..=2 => {
            let (address, len) = (number(random, MEMORY as u64), number(random, 4096) as u32);
            let (place, memory) = (RINGS_AT[which] + 16 * slot, &guest.client.memory);
            memory.write(place, &address.to_le_bytes()).unwrap();
            memory.write(place + 8, &len.to_le_bytes()).unwrap();
            memory.store(place + 12, random.below(3) as u16).unwrap();
            guest.nic.offered[which] = guest.nic.offered[which].wrapping_add(1);
            guest.ring(which);
        }
        // Any register, any value.
        3 | 4 => {
            let register = RINGS[which] + 4 * random.below(8);
            let offset = if random.below(2) == 0 { register } else { 4 * random.below(0x1000) };
            let value = number(random, 600) as u32;
            let _ = guest.client.write(0, offset, &value.to_le_bytes());
            let _ = guest.register(offset);
        }
        // A ring that is started anew somewhere.
        5 => {
            let length = [0, 3, 256, 1 << 15, 1 << 16][random.below(5) as usize];
            guest.registers(&[
                (RINGS[which] + ENABLE, 0),
                (RINGS[which], number(random, MEMORY as u64) as u32),
                (RINGS[which] + LENGTH, length),
                (RINGS[which] + ENABLE, 1),
                (RINGS[which] + TAIL, number(random, 600) as u32),
            ]);
        }
        _ => return guest.client.misbehave(random),
    }
    true
}

#[test]
fn a_hostile_client_touches_nothing_and_stops_nobody() {
    hostile::<Guest>("simple-nic", &adapter(&Description::plain("no time at all")));
}

#[test]
fn a_client_that_goes_leaves_the_device_as_after_power_on() {
    let bench = Bench::start("again", adapter(&Description::plain("no time at all")));
    let mut peer = Guest::connect(&bench.paths[1]);
    for round in 0..3u8 {
        let mut guest = Guest::connect(&bench.paths[0]);
        assert!(guest.send(&[round; 60]));
        assert_eq!(peer.receive(PATIENCE), Some(vec![round; 60]));
        guest.registers(&[(CONTROL, 1)]);
        assert_eq!((guest.register(RINGS[0] + ENABLE), guest.register(RINGS[1] + LENGTH)), (0, 0));
        guest.start();
        assert!(guest.send(&[round; BUFFER as usize]));
        assert_eq!(peer.receive(PATIENCE), Some(vec![round; BUFFER as usize]));
    }
    assert_eq!(bench.stop().ends[0].device().unwrap().account().frames, [0, 6]);
}
