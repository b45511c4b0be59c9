//! A camera in transfers: it gives frames as JPEG, as the issuer's policies let them pass.

use super::gate::{Camera, Gate, stage};
use crate::access::Access;
use crate::account::Account;
use crate::transfer::{Give, Party, Take};
use lastmeter_wire::camera::{Code, Command};
use lastmeter_wire::ticket::{From, Ticket};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Time after which the destination hears that there is no frame yet.
const PATIENCE: Duration = Duration::from_secs(10);

impl Party for Camera {
    fn access(&self) -> &Access {
        &self.access
    }
    fn account(&self) -> &Account {
        &self.account
    }
    fn give<'a>(&'a self, client: &str, ticket: &Ticket) -> Result<Box<dyn Give + 'a>, String> {
        let From::Frames { count, width, height } = ticket.from else {
            return Err("a camera has no blocks".to_owned());
        };
        let gate = Gate::new(self, client)?;
        let command = Command { code: Code::Frames, width, height, ..Command::default() };
        Ok(Box::new(Giving { camera: self, gate, command, left: count, last: None }))
    }
    fn take<'a>(&'a self, _: &str, _: &Ticket) -> Result<Box<dyn Take + 'a>, String> {
        Err("a camera takes nothing".to_owned())
    }
}

/// Frames that are left to give.
struct Giving<'a> {
    camera: &'a Camera,
    gate: Gate<'a>,
    command: Command,
    left: u32,
    /// The number of the last one.
    last: Option<u32>,
}

impl Give for Giving<'_> {
    fn next(&mut self, piece: &mut Vec<u8>) -> Result<bool, String> {
        piece.clear();
        if self.left == 0 {
            return Ok(false);
        }
        let (camera, wanted) = (self.camera, Instant::now());
        let Some(frame) = camera.store.next(self.last, PATIENCE)? else { return Ok(true) };
        self.last = Some(frame.number);
        let mut lap = camera.account.begin_at(Some(wanted));
        lap.served(stage::CAPTURE);
        match self.gate.make(&self.command, &frame, &mut lap) {
            Ok(made) => {
                piece.extend(&made.bytes);
                camera.bytes.fetch_add(made.bytes.len() as u64, Relaxed);
                camera.account.end(lap, made.bytes.len() as u64);
                self.left -= 1;
            }
            // A policy lets some frames pass only: the next one may.
            Err(refusal) => camera.account.refuse(refusal.words()),
        }
        Ok(true)
    }
}
