//! The ends of a cable: a guest behind an adapter, or an interface of this machine.

use crate::device::{Departure, Device, Interrupt, RECEIVE, TRANSMIT};
use crate::vhost::message::{Region, Request};
use crate::vhost::session::{Session, Wrong};
use crate::vhost::socket::{Message, Socket};
use lastmeter_base::Time;
use lastmeter_host::adapter::description::Description;
use lastmeter_live::port::{Counts, Port};
use lastmeter_live::shared::Foreign;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Most messages of QEMU that are handled before the clock is looked at again.
const MESSAGES_MAX: usize = 32;
/// Most frames taken from an interface before the clock is looked at again.
const BATCH: usize = 64;

/// A guest's end: a socket on which QEMU may connect, and the adapter.
pub struct GuestEnd {
    listener: UnixListener,
    socket: Option<Socket>,
    session: Session<OwnedFd>,
    /// The adapter.
    pub device: Device,
    /// Why sessions ended, but for QEMU's going.
    pub refused: Vec<String>,
    /// Sessions that began.
    pub sessions: u64,
}

/// Reasons that are kept.
const REASONS_MAX: usize = 16;

impl GuestEnd {
    /// Waits for QEMU on a socket.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(listener: UnixListener, card: Description) -> io::Result<GuestEnd> {
        listener.set_nonblocking(true)?;
        let (session, device) = (Session::default(), Device::new(card));
        let refused = Vec::new();
        Ok(GuestEnd { listener, socket: None, session, device, refused, sessions: 0 })
    }

    /// What is waited for: QEMU, and the doorbells of running rings.
    pub fn waits(&self) -> Vec<BorrowedFd<'_>> {
        let socket = self.socket.as_ref().map_or(self.listener.as_fd(), AsFd::as_fd);
        let kicks = [RECEIVE, TRANSMIT].into_iter().filter_map(|ring| self.session.kick(ring));
        std::iter::once(socket).chain(kicks.map(AsFd::as_fd)).collect()
    }

    /// Handles what QEMU and the guest have said.
    pub fn hear(&mut self, now: Time) {
        match &self.socket {
            None => self.accept(),
            Some(_) => self.messages(now),
        }
        for ring in [RECEIVE, TRANSMIT] {
            if self.session.kick(ring).is_some_and(rung) {
                self.device.doorbell(now, ring, self.session.memory());
            }
        }
        for (ring, error) in self.session.broken(&self.device) {
            let why = self.device.broken(ring).map(|why| why.to_string());
            if self.refused.len() < REASONS_MAX {
                self.refused.push(format!("ring {ring}: {}", why.unwrap_or_default()));
            }
            error.iter().for_each(|error| ring_bell(error));
        }
    }

    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        self.socket = Socket::new(stream).ok();
        self.sessions += 1;
    }

    fn messages(&mut self, now: Time) {
        for _ in 0..MESSAGES_MAX {
            let Some(socket) = &mut self.socket else { return };
            let handled = match socket.receive() {
                Ok(None) => return,
                Ok(Some(message)) => self.message(now, message),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(None),
                Err(error) => Err(Some(error.to_string())),
            };
            if let Err(why) = handled {
                self.socket = None;
                self.session.reset(&mut self.device);
                let room = REASONS_MAX.saturating_sub(self.refused.len());
                self.refused.extend(why.into_iter().take(room));
            }
        }
    }

    fn message(&mut self, now: Time, message: Message) -> Result<(), Option<String>> {
        let said = |wrong: Wrong| Some(wrong.to_string());
        let request = message.request.map_err(|fault| said(fault.into()))?;
        if let Request::SetKick(..) | Request::SetCall(..) | Request::SetError(..) = request
            && !message.descriptors.iter().all(is_bell)
        {
            return Err(Some("a doorbell or an interrupt that is no eventfd".to_owned()));
        }
        self.device.advance(now, self.session.memory());
        let descriptors = message.descriptors;
        let reply = self.session.handle(now, &request, descriptors, &map, &mut self.device);
        let reply = reply.map_err(said)?;
        let Some(socket) = &self.socket else { return Ok(()) };
        let done = || message.needs_reply.then(|| 0u64.to_le_bytes().to_vec());
        match reply.or_else(done) {
            Some(payload) => {
                socket.reply(message.number, &payload).map_err(|e| Some(e.to_string()))
            }
            None => Ok(()),
        }
    }

    /// Handles everything due by `now`.
    pub fn advance(&mut self, now: Time) {
        self.device.advance(now, self.session.memory());
    }

    /// A frame has arrived.
    pub fn arrive(&mut self, arrival: Departure) {
        self.device.arrive(arrival.at, arrival.frame, self.session.memory());
    }

    /// Interrupts the guest.
    pub fn interrupt(&self, interrupt: Interrupt) {
        self.session.call(interrupt.ring).iter().for_each(|call| ring_bell(call));
    }
}

/// Memory of QEMU as memory of this process.
fn map(region: &Region, descriptor: &OwnedFd) -> Result<Foreign, String> {
    let len = usize::try_from(region.size).map_err(|_| "longer than any memory".to_owned())?;
    Foreign::map(descriptor.as_fd(), region.offset, len).map_err(|why| why.to_string())
}

/// Whether an eventfd was written since the last call.
fn rung(bell: &OwnedFd) -> bool {
    read(bell, &mut [0; 8]).is_ok()
}

/// Writes an eventfd; a full one is rung already.
fn ring_bell(bell: &OwnedFd) {
    let _ = write(bell, &1u64.to_ne_bytes());
}

/// Whether it is an eventfd, which from now on makes nobody wait.
fn is_bell(descriptor: &OwnedFd) -> bool {
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
            |arrival: lastmeter_live::port::Arrival<'_>| frames.push(arrival.parts.concat());
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
