//! A session over a socket: QEMU's virtio-net.

use super::message::Request;
use super::session::{Session, Wrong};
use super::socket::{Message, Socket};
use crate::device::{Device, RECEIVE, TRANSMIT};
use crate::end::{Front, MESSAGES_MAX, is_bell, map, ring_bell, rung};
use crate::memory::Memory;
use lastmeter_base::Time;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The device's side.
#[derive(Debug, Default)]
pub struct Backend {
    socket: Option<Socket>,
    session: Session<OwnedFd>,
}

impl Backend {
    /// Handles a message; the error says why the session ends.
    fn message(&mut self, now: Time, message: Message, device: &mut Device) -> Result<(), String> {
        let said = |wrong: Wrong| wrong.to_string();
        let request = message.request.map_err(|fault| said(fault.into()))?;
        if let Request::SetKick(..) | Request::SetCall(..) | Request::SetError(..) = request
            && !message.descriptors.iter().all(is_bell)
        {
            return Err("a doorbell or an interrupt that is no eventfd".to_owned());
        }
        device.advance(now, self.session.memory());
        let descriptors = message.descriptors;
        let reply = self.session.handle(now, &request, descriptors, &map, device).map_err(said)?;
        let Some(socket) = &self.socket else { return Ok(()) };
        let done = || message.needs_reply.then(|| 0u64.to_le_bytes().to_vec());
        match reply.or_else(done) {
            Some(payload) => {
                socket.reply(message.number, &payload).map_err(|error| error.to_string())
            }
            None => Ok(()),
        }
    }
}

impl Front for Backend {
    fn connect(&mut self, stream: UnixStream) {
        self.socket = Socket::new(stream).ok();
    }

    fn waits(&self) -> Vec<BorrowedFd<'_>> {
        let kicks = [RECEIVE, TRANSMIT].into_iter().filter_map(|ring| self.session.kick(ring));
        let socket = self.socket.iter().map(AsFd::as_fd);
        socket.chain(kicks.map(AsFd::as_fd)).collect()
    }

    fn hear(&mut self, now: Time, device: &mut Device, refused: &mut Vec<String>) {
        for _ in 0..MESSAGES_MAX {
            let Some(socket) = &mut self.socket else { break };
            let handled = match socket.receive() {
                Ok(None) => break,
                Ok(Some(message)) => self.message(now, message, device),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(String::new()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = handled {
                self.socket = None;
                self.session.reset(device);
                refused.extend(Some(why).filter(|why| !why.is_empty()));
            }
        }
        for ring in [RECEIVE, TRANSMIT] {
            if self.session.kick(ring).is_some_and(rung) {
                device.doorbell(now, ring, self.session.memory());
            }
        }
        for (ring, error) in self.session.broken(device) {
            let why = device.broken(ring).map(|why| why.to_string());
            refused.push(format!("ring {ring}: {}", why.unwrap_or_default()));
            error.iter().for_each(|error| ring_bell(error));
        }
    }

    fn memory(&self) -> &Memory {
        self.session.memory()
    }

    fn interrupt(&mut self, ring: usize) {
        self.session.call(ring).iter().for_each(|call| ring_bell(call));
    }
}
