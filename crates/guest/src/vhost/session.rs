//! What the messages add up to: features, the guest's memory, the state of each ring.
//!
//! ```text
//! SET_MEM_TABLE, SET_VRING_NUM, _ADDR, _BASE --> described --SET_VRING_KICK, _ENABLE--> running
//!                                                    ^--------GET_VRING_BASE, disabled------'
//! ```
//!
//! Descriptors are of any type `F`, so that tests and fuzzing need none. A message that makes no sense ends the
//! session; a ring that makes none is broken, and the guest is told on its error descriptor.

use super::message::{Addresses, Fault, REGIONS_MAX, Region, Request};
use crate::device::{Device, HeaderFormat, RECEIVE, TRANSMIT};
use crate::memory::Memory;
use crate::ring::{Place, Ring};
use crate::virtio::{INDIRECT, MERGED_BUFFERS, VERSION_1};
use lastmeter_base::Time;
use lastmeter_linux::shared::Foreign;
use std::fmt;

/// Rings of an adapter: [`RECEIVE`] and [`TRANSMIT`].
pub const RINGS: usize = 2;

const PROTOCOL: u64 = 1 << 30;
/// What is offered: no checksums, no segmentation, no event indices.
pub const FEATURES: u64 = MERGED_BUFFERS | INDIRECT | PROTOCOL | VERSION_1;
/// What is offered of the protocol: replies on request.
pub const PROTOCOL_FEATURES: u64 = 1 << 3;

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A message.
    Message(Fault),
    /// A feature that was not offered.
    Feature(u64),
    /// A ring that the adapter does not have.
    Ring(u32),
    /// Not as many descriptors as the message needs.
    Descriptors(usize),
    /// A region that cannot be mapped: why.
    Memory(String),
    /// A request that was not offered.
    Request(u32),
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Wrong {
        Wrong::Message(fault)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Message(fault) => fault.fmt(f),
            Wrong::Feature(features) => write!(f, "features {features:#x}, which were not offered"),
            Wrong::Ring(ring) => write!(f, "ring {ring}: there are {RINGS}"),
            Wrong::Descriptors(count) => write!(f, "{count} file descriptors with a message"),
            Wrong::Memory(why) => write!(f, "a region of memory: {why}"),
            Wrong::Request(number) => write!(f, "request {number}, which was not offered"),
        }
    }
}

impl std::error::Error for Wrong {}

/// What is known of a ring.
#[derive(Debug)]
struct Described<F> {
    length: u32,
    addresses: Option<Addresses>,
    base: u16,
    kick: Option<F>,
    call: Option<F>,
    error: Option<F>,
    enabled: bool,
    running: bool,
}

impl<F> Described<F> {
    fn new() -> Described<F> {
        Described {
            length: 0,
            addresses: None,
            base: 0,
            kick: None,
            call: None,
            error: None,
            enabled: false,
            running: false,
        }
    }
}

/// How a region and its descriptor become memory of this process.
pub type Map<'a, F> = &'a dyn Fn(&Region, &F) -> Result<Foreign, String>;

/// A session with one QEMU.
#[derive(Debug)]
pub struct Session<F> {
    memory: Memory,
    rings: [Described<F>; RINGS],
    /// Rings that are known to be broken.
    told: [bool; RINGS],
}

impl<F> Default for Session<F> {
    fn default() -> Session<F> {
        Session {
            memory: Memory::new(),
            rings: [Described::new(), Described::new()],
            told: [false; RINGS],
        }
    }
}

impl<F> Session<F> {
    /// Handles a request; returns the payload of its reply, if it has one.
    ///
    /// # Errors
    /// The session makes no sense any more.
    pub fn handle(
        &mut self,
        now: Time,
        request: &Request,
        descriptors: Vec<F>,
        map: Map<'_, F>,
        device: &mut Device,
    ) -> Result<Option<Vec<u8>>, Wrong> {
        let count = descriptors.len();
        let mut descriptors = descriptors.into_iter();
        let number = |word: u64| Ok(Some(word.to_le_bytes().to_vec()));
        match request {
            Request::Features => return number(FEATURES),
            Request::Protocol => return number(PROTOCOL_FEATURES),
            Request::Rings => return number(1),
            Request::SetFeatures(features) => self.features(*features, device)?,
            Request::SetProtocol(features) => {
                let unknown = features & !PROTOCOL_FEATURES;
                if unknown != 0 {
                    return Err(Wrong::Feature(unknown));
                }
            }
            Request::SetOwner | Request::SetMtu(_) => {}
            Request::ResetOwner => self.reset(device),
            Request::SetMemory(regions) => {
                if count != regions.len() || count > REGIONS_MAX {
                    return Err(Wrong::Descriptors(count));
                }
                let mut memory = Memory::new();
                for (region, descriptor) in regions.iter().zip(descriptors) {
                    let mapped = map(region, &descriptor).map_err(Wrong::Memory)?;
                    if !memory.add(*region, mapped) {
                        return Err(Wrong::Memory("another length than stated".to_owned()));
                    }
                }
                self.memory = memory;
            }
            Request::SetLength(ring, length) => self.ring(*ring)?.length = *length,
            Request::SetAddresses(ring, addresses) => {
                self.ring(*ring)?.addresses = Some(*addresses);
            }
            Request::SetBase(ring, base) => self.ring(*ring)?.base = *base as u16,
            Request::Base(ring) => {
                let base = self.halt(*ring, device)?;
                self.ring(*ring)?.kick = None;
                return number(u64::from(base) << 32 | u64::from(*ring));
            }
            Request::SetKick(ring, has) => {
                let one = one(*has, count, descriptors.next())?;
                self.ring(*ring)?.kick = one;
            }
            Request::SetCall(ring, has) => {
                let one = one(*has, count, descriptors.next())?;
                self.ring(*ring)?.call = one;
            }
            Request::SetError(ring, has) => {
                let one = one(*has, count, descriptors.next())?;
                self.ring(*ring)?.error = one;
            }
            Request::Enable(ring, on) => {
                self.ring(*ring)?.enabled = *on;
                if !*on {
                    self.halt(*ring, device)?;
                }
            }
            Request::SetStatus(_) | Request::Status | Request::Other(_) => {
                return Err(Wrong::Request(request.emit().0));
            }
        }
        self.begin(now, device);
        Ok(None)
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A running ring's doorbell.
    pub fn kick(&self, ring: usize) -> Option<&F> {
        self.rings[ring].kick.as_ref().filter(|_| self.rings[ring].running)
    }

    /// A ring's interrupt.
    pub fn call(&self, ring: usize) -> Option<&F> {
        self.rings[ring].call.as_ref()
    }

    /// Rings that have broken since the last call, and where to report each.
    pub fn broken(&mut self, device: &Device) -> Vec<(usize, Option<&F>)> {
        let mut new = Vec::new();
        for which in [RECEIVE, TRANSMIT] {
            let is_broken = device.broken(which).is_some();
            if is_broken && !self.told[which] {
                let ring = &mut self.rings[which];
                (ring.running, ring.kick) = (false, None);
                new.push(which);
            }
            self.told[which] = is_broken;
        }
        new.into_iter().map(|which| (which, self.rings[which].error.as_ref())).collect()
    }

    /// Ends all that runs.
    pub fn reset(&mut self, device: &mut Device) {
        for which in [RECEIVE, TRANSMIT] {
            device.stop(which);
        }
        *self = Session::default();
    }

    fn ring(&mut self, ring: u32) -> Result<&mut Described<F>, Wrong> {
        self.rings.get_mut(ring as usize).ok_or(Wrong::Ring(ring))
    }

    fn features(&mut self, features: u64, device: &mut Device) -> Result<(), Wrong> {
        let unknown = features & !FEATURES;
        if unknown != 0 {
            return Err(Wrong::Feature(unknown));
        }
        let merges = features & MERGED_BUFFERS != 0;
        device.set_header_format(match (merges, features & VERSION_1 != 0) {
            (true, _) => HeaderFormat::Merged,
            (false, true) => HeaderFormat::Long,
            (false, false) => HeaderFormat::Short,
        });
        // Without the protocol's features nothing says that a ring is enabled.
        if features & PROTOCOL == 0 {
            self.rings.iter_mut().for_each(|ring| ring.enabled = true);
        }
        Ok(())
    }

    /// Stops a ring; returns where it stood.
    fn halt(&mut self, ring: u32, device: &mut Device) -> Result<u16, Wrong> {
        let which = self.ring(ring)?;
        which.running = false;
        let base = device.stop(ring as usize);
        which.base = base.unwrap_or(which.base);
        Ok(which.base)
    }

    /// Starts each ring that has all that it needs.
    fn begin(&mut self, now: Time, device: &mut Device) {
        for (which, ring) in self.rings.iter_mut().enumerate() {
            let ready = ring.kick.is_some() && ring.enabled && !ring.running;
            let (true, Some(at)) = (ready, ring.addresses) else { continue };
            let place = || {
                let [descriptors, available, used] =
                    [at.descriptors, at.available, at.used].map(|user| self.memory.of_user(user));
                let place = Place {
                    length: ring.length,
                    descriptors: descriptors?,
                    available: available?,
                    used: used?,
                };
                Ring::new(place, ring.base, &self.memory)
            };
            // A ring that is described later, or never, simply does not run.
            if let Ok(place) = place() {
                ring.running = true;
                self.told[which] = false;
                device.start(now, which, place, &self.memory);
            }
        }
    }
}

/// The descriptor of a message that says whether it has one.
fn one<F>(has: bool, count: usize, descriptor: Option<F>) -> Result<Option<F>, Wrong> {
    match (has, count) {
        (true, 1) => Ok(descriptor),
        (false, 0) => Ok(None),
        _ => Err(Wrong::Descriptors(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::any_request;
    use super::*;
    use crate::driver::{MEMORY, Nic};
    use lastmeter_base::Duration;
    use lastmeter_host::adapter::description::Description;
    use proptest::prelude::*;

    /// Descriptors of this test are numbers; memory is fresh, and as long as stated.
    fn map(region: &Region, _: &u32) -> Result<Foreign, String> {
        let len = usize::try_from(region.size).ok().filter(|&len| (1..=1 << 22).contains(&len));
        let fresh = |len| Foreign::fresh(len).map_err(|why| why.to_string());
        len.ok_or_else(|| "too long".to_owned()).and_then(fresh)
    }

    fn device() -> Device {
        Device::new(Description::plain("a card"))
    }

    const REGION: Region = Region { guest: 0, size: MEMORY as u64, user: 0x7000_0000, offset: 0 };

    fn tell(session: &mut Session<u32>, device: &mut Device, request: Request, fds: &[u32]) {
        let reply = session.handle(Time::START, &request, fds.to_vec(), &map, device);
        assert!(reply.is_ok(), "{request:?}: {reply:?}");
    }

    /// As QEMU 7.2 does: enabled before the features are set.
    fn started() -> (Session<u32>, Device, Nic) {
        let (mut session, mut device) = (Session::default(), device());
        let mut tell = |request, fds: &[u32]| tell(&mut session, &mut device, request, fds);
        tell(Request::SetOwner, &[]);
        tell(Request::SetProtocol(PROTOCOL_FEATURES), &[]);
        tell(Request::Enable(0, true), &[]);
        tell(Request::Enable(1, true), &[]);
        tell(Request::SetFeatures(VERSION_1 | PROTOCOL), &[]);
        tell(Request::SetMemory(vec![REGION]), &[9]);
        let mut nic = None;
        for ring in 0..2 {
            let place = match &nic {
                None => nic.insert(Nic::new(session.memory()).unwrap()).rings[0].place,
                Some(nic) => nic.rings[1].place,
            };
            let user = |address| address + REGION.user;
            let [descriptors, available, used] =
                [place.descriptors, place.available, place.used].map(user);
            let mut tell = |request, fds: &[u32]| {
                let reply = session.handle(Time::START, &request, fds.to_vec(), &map, &mut device);
                assert_eq!(reply, Ok(None));
            };
            tell(Request::SetLength(ring, place.length), &[]);
            tell(Request::SetBase(ring, 0), &[]);
            tell(Request::SetAddresses(ring, Addresses { descriptors, available, used }), &[]);
            tell(Request::SetKick(ring, true), &[10 + ring]);
            tell(Request::SetCall(ring, true), &[20 + ring]);
            tell(Request::SetError(ring, true), &[30 + ring]);
        }
        (session, device, nic.unwrap())
    }

    #[test]
    fn a_session_in_qemus_order_runs_and_says_where_it_stood() {
        let (mut session, mut device, mut nic) = started();
        assert_eq!(
            (session.kick(0), session.kick(1), session.call(1)),
            (Some(&10), Some(&11), Some(&21))
        );
        assert!(nic.send(session.memory(), &[1; 60]).unwrap());
        let now = Time::START + Duration::from_us(1);
        device.doorbell(now, TRANSMIT, session.memory());
        device.advance(now, session.memory());
        assert_eq!(device.departures().len(), 1);
        let reply = session.handle(Time::START, &Request::Base(1), vec![], &map, &mut device);
        assert_eq!(reply, Ok(Some((1u64 << 32 | 1).to_le_bytes().to_vec())));
        assert_eq!((session.kick(0), session.kick(1)), (Some(&10), None));
        session.reset(&mut device);
        assert_eq!(session.kick(0), None);
    }

    #[test]
    fn a_broken_ring_is_told_once() {
        let (mut session, mut device, mut nic) = started();
        let transmit = &mut nic.rings[1];
        transmit.describe(session.memory(), 0, (u64::MAX, 9), (0, 0)).unwrap();
        transmit.offer(session.memory(), 0).unwrap();
        device.doorbell(Time::START, TRANSMIT, session.memory());
        assert_eq!(session.broken(&device), [(TRANSMIT, Some(&31))]);
        assert_eq!(session.broken(&device), []);
        assert_eq!(session.kick(1), None);
        // Another message does not start it again; another doorbell does.
        tell(&mut session, &mut device, Request::SetOwner, &[]);
        assert!(device.broken(TRANSMIT).is_some());
        tell(&mut session, &mut device, Request::SetBase(1, 1), &[]);
        tell(&mut session, &mut device, Request::SetKick(1, true), &[11]);
        assert_eq!((session.kick(1), device.broken(TRANSMIT)), (Some(&11), None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (mut session, mut device) = (Session::default(), device());
        let mut ask = |request, fds: &[u32]| {
            session.handle(Time::START, &request, fds.to_vec(), &map, &mut device).unwrap_err()
        };
        assert_eq!(ask(Request::SetFeatures(1 << 29), &[]), Wrong::Feature(1 << 29));
        assert_eq!(ask(Request::SetLength(2, 8), &[]), Wrong::Ring(2));
        assert_eq!(ask(Request::SetKick(0, true), &[]), Wrong::Descriptors(0));
        assert_eq!(ask(Request::SetMemory(vec![REGION]), &[1, 2]), Wrong::Descriptors(2));
        let huge = Region { size: u64::MAX, ..REGION };
        assert!(matches!(ask(Request::SetMemory(vec![huge]), &[1]), Wrong::Memory(_)));
        assert_eq!(ask(Request::Other(6), &[]), Wrong::Request(6));
    }

    proptest! {
        #[test]
        fn any_requests_in_any_order_are_handled_or_refused(
            requests in prop::collection::vec((any_request(), 0usize..3), 1..60),
        ) {
            let (mut session, mut device, _) = started();
            for (request, fds) in requests {
                let _ = session.handle(Time::START, &request, vec![1; fds], &map, &mut device);
                for ring in [RECEIVE, TRANSMIT] {
                    device.doorbell(Time::START, ring, session.memory());
                }
                session.broken(&device);
            }
        }
    }
}
