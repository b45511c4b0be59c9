//! A session over a socket: QEMU's `vfio-user-pci`, or any other client.

use super::function::Function;
use super::message::Request;
use super::session::Session;
use super::socket::{Message, Socket};
use crate::device::{Device, RECEIVE, TRANSMIT};
use crate::end::{Front, MESSAGES_MAX, is_bell, map, ring_bell};
use crate::memory::Memory;
use lastmeter_base::Time;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The device's side.
#[derive(Debug)]
pub struct Server {
    socket: Option<Socket>,
    session: Session<OwnedFd>,
    /// Rings that are known to be broken.
    told: [bool; 2],
}

impl Server {
    /// Of an adapter with these registers.
    pub fn new(function: Function) -> Server {
        Server { socket: None, session: Session::new(function), told: [false; 2] }
    }

    /// Handles a message; the error says why the session ends.
    fn message(
        &mut self,
        now: Time,
        mut message: Message,
        device: &mut Device,
        refused: &mut Vec<String>,
    ) -> Result<(), String> {
        if message.header.is_reply {
            return Err("a reply to nothing".to_owned());
        }
        let descriptors = std::mem::take(&mut message.descriptors);
        let answer = match message.request() {
            Ok(Request::SetIrqs(_)) if !descriptors.iter().all(is_bell) => {
                refused.push("an interrupt that is no eventfd".to_owned());
                Err(super::session::INVALID)
            }
            Ok(request) => {
                let answer = self.session.handle(now, &request, descriptors, &map, device);
                answer.map_err(|wrong| {
                    refused.push(wrong.to_string());
                    wrong.number()
                })
            }
            Err(fault) => {
                refused.push(fault.to_string());
                Err(super::session::INVALID)
            }
        };
        let Some(socket) = self.socket.as_ref().filter(|_| !message.header.no_reply) else {
            return Ok(());
        };
        let answer = answer.as_deref().map_err(|number| *number);
        socket.reply(&message.header, answer).map_err(|error| error.to_string())
    }
}

impl Front for Server {
    fn connect(&mut self, stream: UnixStream) {
        self.socket = Socket::new(stream).ok();
    }

    fn waits(&self) -> Vec<BorrowedFd<'_>> {
        self.socket.iter().map(AsFd::as_fd).collect()
    }

    fn hear(&mut self, now: Time, device: &mut Device, refused: &mut Vec<String>) {
        for _ in 0..MESSAGES_MAX {
            let Some(socket) = &mut self.socket else { break };
            let handled = match socket.receive() {
                Ok(None) => break,
                Ok(Some(message)) => self.message(now, message, device, refused),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(String::new()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = handled {
                self.socket = None;
                self.session.end(device);
                refused.extend(Some(why).filter(|why| !why.is_empty()));
            }
        }
        for ring in [RECEIVE, TRANSMIT] {
            let broken = device.broken(ring);
            if let Some(why) = broken.filter(|_| !self.told[ring]) {
                refused.push(format!("ring {ring}: {why}"));
            }
            self.told[ring] = broken.is_some();
        }
        self.session.trouble(device).into_iter().for_each(ring_bell);
    }

    fn memory(&self) -> &Memory {
        self.session.memory()
    }

    fn interrupt(&mut self, ring: usize) {
        self.session.interrupt(ring).into_iter().for_each(ring_bell);
    }
}
