//! The ends of a cable: a guest behind an adapter, or an interface of this machine.

use crate::device::{Departure, Device, Interrupt};
use crate::memory::Memory;
use crate::vhost::front::Backend;
use crate::vhost::message::Region;
use lastmeter_base::Time;
use lastmeter_host::adapter::description::Description;
use lastmeter_linux::port::{Counts, Port};
use lastmeter_linux::shared::Foreign;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// Most messages of QEMU that are handled before the clock is looked at again.
pub(crate) const MESSAGES_MAX: usize = 32;
/// Most frames taken from an interface before the clock is looked at again.
const BATCH: usize = 64;

/// How a guest reaches its adapter: the sessions of a protocol, one after the other.
pub trait Front: Send {
    /// A client has connected.
    fn connect(&mut self, stream: UnixStream);

    /// What is waited for; nothing while no client is connected.
    fn waits(&self) -> Vec<BorrowedFd<'_>>;

    /// Handles what the client and the guest have said. What is refused is added in words.
    fn hear(&mut self, now: Time, device: &mut Device, refused: &mut Vec<String>);

    /// The guest's memory.
    fn memory(&self) -> &Memory;

    /// Interrupts the guest for a ring.
    fn interrupt(&mut self, ring: usize);
}

/// A guest's end: a socket on which QEMU may connect, and the adapter.
pub struct GuestEnd {
    listener: UnixListener,
    front: Box<dyn Front>,
    /// The adapter.
    pub device: Device,
    /// What was refused, and why sessions ended, but for QEMU's going.
    pub refused: Vec<String>,
    /// Sessions that began.
    pub sessions: u64,
}

/// Reasons that are kept.
const REASONS_MAX: usize = 16;

impl GuestEnd {
    /// Waits for QEMU on a socket, to serve its virtio-net.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(listener: UnixListener, card: Description) -> io::Result<GuestEnd> {
        GuestEnd::behind(Box::new(Backend::default()), listener, card)
    }

    /// Waits for a client of `front` on a socket.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn behind(
        front: Box<dyn Front>,
        listener: UnixListener,
        card: Description,
    ) -> io::Result<GuestEnd> {
        listener.set_nonblocking(true)?;
        let (device, refused) = (Device::new(card), Vec::new());
        Ok(GuestEnd { listener, front, device, refused, sessions: 0 })
    }

    /// What is waited for: QEMU, and the doorbells of running rings.
    pub fn waits(&self) -> Vec<BorrowedFd<'_>> {
        let waits = self.front.waits();
        if waits.is_empty() { vec![self.listener.as_fd()] } else { waits }
    }

    /// Handles what QEMU and the guest have said.
    pub fn hear(&mut self, now: Time) {
        if self.front.waits().is_empty() {
            let Ok((stream, _)) = self.listener.accept() else { return };
            self.front.connect(stream);
            self.sessions += 1;
        } else {
            let mut new = Vec::new();
            self.front.hear(now, &mut self.device, &mut new);
            let room = REASONS_MAX.saturating_sub(self.refused.len());
            self.refused.extend(new.into_iter().take(room));
        }
    }

    /// Handles everything due by `now`.
    pub fn advance(&mut self, now: Time) {
        self.device.advance(now, self.front.memory());
    }

    /// A frame has arrived.
    pub fn arrive(&mut self, arrival: Departure) {
        self.device.arrive(arrival.at, arrival.frame, self.front.memory());
    }

    /// Interrupts the guest.
    pub fn interrupt(&mut self, interrupt: Interrupt) {
        self.front.interrupt(interrupt.ring);
    }
}

/// Memory of QEMU as memory of this process.
pub(crate) fn map(region: &Region, descriptor: &OwnedFd) -> Result<Foreign, String> {
    let len = usize::try_from(region.size).map_err(|_| "longer than any memory".to_owned())?;
    Foreign::map(descriptor.as_fd(), region.offset, len).map_err(|why| why.to_string())
}

/// Whether an eventfd was written since the last call.
pub(crate) fn rung(bell: &OwnedFd) -> bool {
    read(bell, &mut [0; 8]).is_ok()
}

/// Writes an eventfd; a full one is rung already.
pub(crate) fn ring_bell(bell: &OwnedFd) {
    let _ = write(bell, &1u64.to_ne_bytes());
}

/// Whether it is an eventfd, which from now on makes nobody wait.
pub(crate) fn is_bell(descriptor: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let is_event = |what: PathBuf| what.as_os_str() == "anon_inode:[eventfd]";
    let flags = fcntl_getfl(descriptor).unwrap_or(OFlags::empty());
    fcntl_setfl(descriptor, flags | OFlags::NONBLOCK).is_ok()
        && std::fs::read_link(path).is_ok_and(is_event)
}

/// An interface of this machine.
pub struct PortEnd {
    port: Box<dyn Port>,
    /// Frames at it.
    pub counts: Counts,
}

impl PortEnd {
    /// On a port.
    pub fn new(port: Box<dyn Port>) -> PortEnd {
        PortEnd { port, counts: Counts::default() }
    }

    /// What is waited for.
    pub fn waits(&self) -> BorrowedFd<'_> {
        self.port.fd()
    }

    /// Takes the frames that have come.
    pub fn take(&mut self, frames: &mut Vec<Vec<u8>>) {
        let mut keep =
            |arrival: lastmeter_linux::port::Arrival<'_>| frames.push(arrival.parts.concat());
        if self.port.receive(BATCH, &mut self.counts, &mut keep).is_err() {
            self.counts.failures += 1;
        }
        self.counts.received += frames.len() as u64;
        self.counts.received_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }

    /// Hands a frame to the kernel.
    pub fn send(&mut self, frame: Vec<u8>) {
        if self.port.send(&[frame], &mut self.counts).is_err() {
            self.counts.failures += 1;
        }
    }
}
