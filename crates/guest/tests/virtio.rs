//! A network adapter of virtio by vfio-user over real sockets, shared memory and eventfds: drivers that do as Linux
//! does, and what no client or driver would do.

use crate::bench::Bench;
use crate::bench::client::{Client, Driver, MEMORY, PATIENCE, hostile, noise, number};
use lastmeter_base::{Duration, Stream};
use lastmeter_guest::device::{RECEIVE, TRANSMIT};
use lastmeter_guest::driver::{LENGTH, Nic};
use lastmeter_guest::end::GuestEnd;
use lastmeter_guest::hub::End;
use lastmeter_guest::ring::Place;
use lastmeter_guest::vfio::front::Server;
use lastmeter_guest::vfio::function::Function;
use lastmeter_guest::virtio::field::{RINGS, STATUS};
use lastmeter_guest::virtio::{FEATURES, NEEDS_RESET, VECTORS, driver};
use lastmeter_host::adapter::description::Description;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

/// Found, its features chosen, ready.
const READY: u64 = 15;

/// QEMU and a driver.
struct Guest {
    client: Client,
    nic: Nic,
}

impl Guest {
    fn places(&self) -> [Place; 2] {
        self.nic.rings.each_ref().map(|ring| ring.place)
    }

    fn start(&mut self, features: u64, places: [Place; 2]) {
        driver::start(features, &places, &mut |at, data| {
            self.client.write(0, at, data).unwrap();
        });
    }

    fn ring(&mut self, which: usize) {
        driver::ring(which, &mut |at, data| {
            self.client.write(0, at, data).unwrap();
        });
    }
}

impl Driver for Guest {
    fn connect(path: &Path) -> Guest {
        let mut client = Client::connect(path, VECTORS.into());
        assert_eq!(client.read(RINGS, 2), 2);
        let nic = Nic::new(&client.memory).unwrap();
        let mut guest = Guest { client, nic };
        guest.start(FEATURES, guest.places());
        assert_eq!(guest.client.read(STATUS, 1), READY);
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
            let left = patience.checked_sub(begun.elapsed())?;
            self.client.interrupted(1 + RECEIVE, left);
        }
    }

    fn misbehave(&mut self, random: &mut Stream) -> bool {
        misbehave(self, random)
    }
}

/// Ends that are such adapters.
fn adapter(card: &Description) -> impl Fn(UnixListener) -> GuestEnd {
    move |listener| {
        let front = Box::new(Server::new(Function::virtio([2; 6])));
        GuestEnd::behind(front, listener, card.clone()).unwrap()
    }
}

#[test]
fn a_03_two_drivers_exchange_frames_through_virtio_in_real_time() {
    let mut card = Description::plain("three milliseconds a message, each way");
    card.host.per_message = Duration::from_ms(3);
    let bench = Bench::start("virtio-pair", adapter(&card));
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
    for end in &hub.ends {
        let account = end.device().unwrap().account();
        assert_eq!((account.frames, account.raised), ([5, 5], [5, 5]), "a vector for each ring");
    }
}

#[test]
fn a_driver_is_told_that_its_ring_is_broken_and_begins_anew() {
    let bench = Bench::start("virtio-broken", adapter(&Description::plain("no time at all")));
    let [mut guest, mut peer] = bench.paths.each_ref().map(|path| Guest::connect(path));
    let (transmit, memory) = (&mut guest.nic.rings[TRANSMIT], &guest.client.memory);
    transmit.describe(memory, 0, (u64::MAX, 100), (0, 0)).unwrap();
    transmit.offer(memory, 0).unwrap();
    guest.ring(TRANSMIT);
    assert!(guest.client.interrupted(0, PATIENCE), "by the vector for changes");
    assert_eq!(guest.client.read(STATUS, 1), READY | u64::from(NEEDS_RESET));
    for place in guest.places() {
        guest.client.memory.write(place.available, &[0; 4]).unwrap();
        guest.client.memory.write(place.used, &[0; 4]).unwrap();
    }
    guest.nic = Nic::new(&guest.client.memory).unwrap();
    guest.start(FEATURES, guest.places());
    assert!(guest.send(&[1; 60]));
    assert_eq!(peer.receive(PATIENCE), Some(vec![1; 60]));
    let hub = bench.stop();
    let End::Guest(end) = &hub.ends[0] else { unreachable!() };
    assert_eq!(end.refused.len(), 1, "{:?}", end.refused);
}

/// Something that no client or driver does; `false` if the session is to end.
fn misbehave(guest: &mut Guest, random: &mut Stream) -> bool {
    let which = random.below(2) as usize;
    let place = guest.nic.rings[which].place;
    match random.below(12) {
        // Descriptors: loops, tables, anything anywhere.
        0..=2 => {
            let (flags, next) = (random.below(8) as u16, number(random, u64::from(LENGTH)) as u16);
            let piece = (number(random, MEMORY as u64), number(random, 4096) as u32);
            let slot = random.below(u64::from(LENGTH)) as u16;
            let (ring, memory) = (&mut guest.nic.rings[which], &guest.client.memory);
            ring.describe(memory, slot, piece, (flags, next)).unwrap();
            ring.offer(memory, slot).unwrap();
            guest.ring(which);
        }
        // An index that jumps.
        3 => {
            let index = random.below(1 << 16) as u16;
            guest.client.memory.store(place.available + 2, index).unwrap();
            guest.ring(which);
        }
        // Noise in all of a ring.
        4 => {
            let noise: Vec<u8> = (0..8192).map(|_| random.below(256) as u8).collect();
            guest.client.memory.write(place.descriptors, &noise).unwrap();
            guest.ring(which);
        }
        // Any field, any width, any value.
        5 | 6 => {
            let offset =
                if random.below(2) == 0 { random.below(0x40) } else { random.below(0x4000) };
            let data = noise(random, 8);
            let _ = guest.client.write(0, offset, &data);
            let count = 1 + random.below(4) as u32;
            guest.client.read(offset.min(0x3ff0), count);
        }
        // Rings that are somewhere else, with other features.
        7 => {
            let odd = random.below(3) == 0;
            let features = if odd { number(random, u64::MAX) } else { FEATURES };
            let places = guest.places().map(|place| {
                let [descriptors, available, used] = [0; 3].map(|_| number(random, MEMORY as u64));
                let length = [0, 3, 16, 256, 257][random.below(5) as usize];
                let elsewhere = Place { length, descriptors, available, used };
                if random.below(2) == 0 { elsewhere } else { place }
            });
            guest.start(features, places);
            guest.ring(which);
        }
        _ => return guest.client.misbehave(random),
    }
    true
}

#[test]
fn a_hostile_driver_of_virtio_touches_nothing_and_stops_nobody() {
    hostile::<Guest>("virtio", &adapter(&Description::plain("no time at all")));
}
