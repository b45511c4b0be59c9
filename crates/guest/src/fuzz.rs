//! Entry points for fuzzing what guests and QEMU send: any bytes in, no panic.
//!
//! | target | what it reads |
//! |---|---|
//! | `fuzz_guest_livelock` | what a program in a guest sends and writes |
//! | `fuzz_guest_report` | what the agent in a guest says |
//! | [`fuzz_guest_rings`] | a guest's rings, and an adapter that serves them |
//! | [`fuzz_vfio_session`] | messages of a client, and the PCI device with registers of its own that they run |
//! | [`fuzz_vhost_session`] | messages of QEMU, and the adapter that they set up |
//! | [`fuzz_virtio_session`] | messages of a client, and the network adapter of virtio that they run |

use crate::device::{Device, RECEIVE, TRANSMIT};
use crate::driver::{LENGTH, MEMORY, Nic};
use crate::memory::Memory;
use crate::ring::Ring;
use crate::vfio::{self, function::Function};
use crate::vhost::message::{HEADER, Header, Region, Request};
use crate::vhost::session::{RINGS, Session};
use lastmeter_base::{Duration, Time};
use lastmeter_host::adapter::description::Description;
use lastmeter_linux::shared::Foreign;
use lastmeter_wire::fuzz::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_guest_livelock", run: crate::livelock::fuzz },
    Target { name: "fuzz_guest_report", run: crate::kit::fuzz },
    Target { name: "fuzz_guest_rings", run: fuzz_guest_rings },
    Target { name: "fuzz_vfio_session", run: fuzz_vfio_session },
    Target { name: "fuzz_vhost_session", run: fuzz_vhost_session },
    Target { name: "fuzz_virtio_session", run: fuzz_virtio_session },
];

/// Most messages of a session.
const MESSAGES_MAX: usize = 64;

fn card() -> Description {
    let mut card = Description::plain("a microsecond a message");
    card.host.per_message = Duration::from_us(1);
    card.queueing.depth = 4;
    card
}

/// Doorbells, frames and time for an adapter, whatever its rings are.
fn serve(device: &mut Device, memory: &Memory, now: Time) {
    for ring in [RECEIVE, TRANSMIT] {
        device.doorbell(now, ring, memory);
    }
    device.arrive(now, vec![1; 60], memory);
    device.advance(now + Duration::from_ms(1), memory);
    device.departures();
    device.interrupts();
}

/// Both rings hold these bytes: the adapter takes chains within memory, or uses the ring no more.
pub fn fuzz_guest_rings(bytes: &[u8]) {
    let Ok(foreign) = Foreign::fresh(MEMORY) else { return };
    let mut memory = Memory::new();
    let region = Region { guest: 0, size: MEMORY as u64, user: 0, offset: 0 };
    assert!(memory.add(region, foreign), "of the same length");
    let Ok(nic) = Nic::new(&memory) else { return };
    let mut device = Device::new(card());
    for ring in [RECEIVE, TRANSMIT] {
        if let Ok(started) = Ring::new(nic.rings[ring].place, 0, &memory) {
            device.start(Time::START, ring, started, &memory);
        }
    }
    let mut now = Time::START;
    // A piece for each look of the adapter.
    for (number, piece) in bytes.chunks(64).enumerate() {
        let place = nic.rings[number % RINGS].place;
        let offset = number as u64 * 48 % (16 * u64::from(LENGTH));
        let _ = memory.write(place.descriptors + offset, piece);
        let _ =
            memory.write(place.available + 4 + number as u64 % 128, &piece[..piece.len().min(16)]);
        let _ = memory.store(place.available + 2, number as u16 * 3);
        now += Duration::from_ms(2);
        serve(&mut device, &memory, now);
    }
}

/// A stream of messages: each is handled or refused, and the adapter serves whatever they describe.
pub fn fuzz_vhost_session(bytes: &[u8]) {
    let (mut session, mut device) = (Session::<u8>::default(), Device::new(card()));
    let map = |region: &Region, _: &u8| {
        let len = usize::try_from(region.size).ok().filter(|&len| (1..=1 << 20).contains(&len));
        let fresh = |len| Foreign::fresh(len).map_err(|why| why.to_string());
        len.ok_or_else(|| "too long".to_owned()).and_then(fresh)
    };
    let (mut rest, mut now) = (bytes, Time::START);
    for _ in 0..MESSAGES_MAX {
        let Some((header, payload)) = rest.split_first_chunk::<HEADER>() else { return };
        let Ok(header) = Header::parse(header) else { return };
        let Some((payload, after)) = payload.split_at_checked(header.size) else { return };
        rest = after;
        let Ok(request) = Request::parse(header.request, payload) else { return };
        let fds = match &request {
            Request::SetMemory(regions) => regions.len(),
            Request::SetKick(..) | Request::SetCall(..) | Request::SetError(..) => 1,
            _ => 0,
        };
        if session.handle(now, &request, vec![0; fds], &map, &mut device).is_err() {
            session.reset(&mut device);
        }
        now += Duration::from_ms(2);
        serve(&mut device, session.memory(), now);
        session.broken(&device);
    }
}

/// A stream of messages of vfio-user: each is answered or refused, and the device serves whatever they set up.
pub fn fuzz_vfio_session(bytes: &[u8]) {
    vfio_session(Function::simple([2; 6]), bytes);
}

/// The same with a network adapter of virtio.
pub fn fuzz_virtio_session(bytes: &[u8]) {
    vfio_session(Function::virtio([2; 6]), bytes);
}

/// Returns how often the rings' doorbells were heard.
fn vfio_session(function: Function, bytes: &[u8]) -> [u64; 2] {
    let (mut session, mut device) =
        (vfio::session::Session::<u8>::new(function), Device::new(card()));
    let map = |region: &Region, _: &u8| {
        let len = usize::try_from(region.size).ok().filter(|&len| (1..=1 << 20).contains(&len));
        let fresh = |len| Foreign::fresh(len).map_err(|why| why.to_string());
        len.ok_or_else(|| "too long".to_owned()).and_then(fresh)
    };
    let hello = vfio::message::Request::Version { major: 0, minor: 0, capabilities: Vec::new() };
    assert!(session.handle(Time::START, &hello, Vec::new(), &map, &mut device).is_ok(), "first");
    let (mut rest, mut now) = (bytes, Time::START);
    for _ in 0..MESSAGES_MAX {
        let Some((header, payload)) = rest.split_first_chunk() else { break };
        let Ok(header) = vfio::message::Header::parse(header) else { break };
        let Some((payload, after)) = payload.split_at_checked(header.size) else { break };
        rest = after;
        if let Ok(request) = vfio::message::Request::parse(header.command, payload) {
            let fds = vec![0; usize::from(header.id % 3)];
            let _ = session.handle(now, &request, fds, &map, &mut device);
        }
        now += Duration::from_ms(2);
        serve(&mut device, session.memory(), now);
        session.trouble(&device);
        for ring in [RECEIVE, TRANSMIT] {
            session.interrupt(ring);
        }
    }
    session.end(&mut device);
    device.account().doorbells
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_corpus_starts_both_rings_of_virtio() {
        for seed in [
            &include_bytes!("../../../fuzz/corpus/fuzz_virtio_session/00")[..],
            include_bytes!("../../../fuzz/corpus/fuzz_virtio_session/01"),
        ] {
            let doorbells = vfio_session(Function::virtio([2; 6]), seed);
            assert!(doorbells.iter().all(|&count| count > 0), "{doorbells:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_served(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            fuzz_guest_rings(&bytes);
            fuzz_vhost_session(&bytes);
            fuzz_vfio_session(&bytes);
            fuzz_virtio_session(&bytes);
        }
    }
}
