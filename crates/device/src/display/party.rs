//! A display in transfers: it takes frames, and draws them as if the issuer's program did.

use super::commands::execute;
use super::gate::{Display, Gate};
use crate::access::Access;
use crate::account::Account;
use crate::transfer::{Give, Party, Take};
use lastmeter_wire::framebuffer::{DATA_MAX, Header, Operation, status};
use lastmeter_wire::rfb::Area;
use lastmeter_wire::ticket::{Cargo, Ticket, To};

impl Party for Display {
    fn access(&self) -> &Access {
        &self.access
    }
    fn account(&self) -> &Account {
        &self.commands
    }
    fn give<'a>(&'a self, _: &str, _: &Ticket) -> Result<Box<dyn Give + 'a>, String> {
        Err("a display gives nothing".to_owned())
    }
    fn take<'a>(&'a self, client: &str, ticket: &Ticket) -> Result<Box<dyn Take + 'a>, String> {
        let To::Area(area) = ticket.to else { return Err("a display has no blocks".to_owned()) };
        let gate = Gate::new(self, client)?;
        let (x, y) = (u32::from(area.x) + u32::from(area.w), u32::from(area.y) + u32::from(area.h));
        if x > gate.region.w.into() || y > gate.region.h.into() {
            let (w, h) = (gate.region.w, gate.region.h);
            return Err(format!("outside of the issuer's screen ({w} by {h})"));
        }
        let frame = match ticket.cargo() {
            Ok(Cargo::Pixels { frame, .. }) => {
                usize::try_from(frame).ok().filter(|it| *it <= DATA_MAX)
            }
            _ => Some(0),
        };
        let frame = frame.ok_or("an area larger than a command can have")?;
        let client = client.to_owned();
        Ok(Box::new(Taking { display: self, gate, client, area, frame, pixels: Vec::new() }))
    }
}

/// An area in which frames appear.
struct Taking<'a> {
    display: &'a Display,
    gate: Gate<'a>,
    client: String,
    area: Area,
    /// Bytes of a frame of pixels; 0: each piece is a JPEG.
    frame: usize,
    /// Those of the next frame that have come.
    pixels: Vec<u8>,
}

impl Taking<'_> {
    fn draw(&mut self, operation: Operation, data: &[u8]) -> Result<(), String> {
        let length = data.len() as u32;
        let header = Header { operation, flags: 0, tag: 0, area: self.area, length };
        let lap = self.display.commands.begin();
        self.gate.fit();
        let (state, _) = execute(self.display, &mut self.gate, &self.client, (&header, data), lap);
        match state {
            status::DONE | status::CLIPPED => Ok(()),
            status::DENIED => Err("a policy denies it".to_owned()),
            _ => Err("not a picture of this area".to_owned()),
        }
    }
}

impl Take for Taking<'_> {
    fn put(&mut self, piece: &[u8]) -> Result<(), String> {
        if self.frame == 0 {
            return self.draw(Operation::JPEG, piece);
        }
        let mut rest = piece;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(self.frame - self.pixels.len()));
            self.pixels.extend(now);
            rest = later;
            if self.pixels.len() == self.frame {
                let pixels = std::mem::take(&mut self.pixels);
                self.draw(Operation::PUT, &pixels)?;
                self.pixels = pixels;
                self.pixels.clear();
            }
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}
