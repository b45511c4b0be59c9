//! A client at the display: its part of the screen, and its owner's policies in front of what it does.

use super::screen::Screen;
use crate::access::Access;
use crate::account::Account;
use lastmeter_base::{Duration, Time};
use lastmeter_plugin::chain::{Chain, Effect, Outcome};
use lastmeter_plugin::request::{Body, Rect, Request};
use std::collections::BTreeMap;
use std::time::Instant;

/// Stages of an update's path, from what was drawn to what is sent.
pub const UPDATE_STAGES: [(&str, &str); 4] =
    [("wait", "viewer"), ("policy", "cpu"), ("encode", "cpu"), ("send", "network")];
/// Stages of a command's path.
pub const COMMAND_STAGES: [(&str, &str); 3] =
    [("receive", "network"), ("policy", "cpu"), ("draw", "cpu")];
/// The first bytes of a command, which its policies see.
const SEEN_MAX: usize = 128;

/// A display: what all of its clients share.
pub struct Display {
    /// Its name.
    pub name: String,
    /// Its pixels.
    pub screen: Screen,
    /// Who may use it.
    pub access: Access,
    /// Clients' parts of the screen, where that is not all.
    pub regions: BTreeMap<String, Rect>,
    /// Clients who get keys and the pointer, if they ask.
    pub input: Vec<String>,
    /// The best quality of JPEG.
    pub quality: u8,
    /// The account of updates.
    pub updates: Account,
    /// The account of commands.
    pub commands: Account,
    /// When it began: the policies' clock.
    pub began: Instant,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not on the client's screen.
    Outside,
    /// A policy denied it.
    Denied(String),
}

/// A client at a display.
pub struct Gate<'a> {
    display: &'a Display,
    /// The part of the screen that it has; its corner is the client's origin.
    pub region: Rect,
    /// What policies see.
    pub number: u32,
    chain: Chain,
    marks: Vec<u64>,
    outcomes: Vec<Outcome>,
}

impl<'a> Gate<'a> {
    /// A client by its name.
    ///
    /// # Errors
    /// If nobody is called so, or a policy cannot be made.
    pub fn new(display: &'a Display, client: &str) -> Result<Gate<'a>, String> {
        let whole = display.screen.whole();
        let region = display.regions.get(client).map_or(whole, |region| region.meet(whole));
        let chain = display.access.chain(client, now(display))?;
        let number = display.access.number(client);
        let marks = vec![0; chain.len()];
        Ok(Gate { display, region, number, chain, marks, outcomes: Vec::new() })
    }
    /// A rectangle of the client's screen, if it is there, as the screen has it.
    fn place(&self, rect: Rect) -> Option<Rect> {
        let own = Rect { x: 0, y: 0, ..self.region };
        // Inside its own screen, so sums are those of the whole screen.
        rect.within(own).then(|| {
            if rect.is_empty() {
                return Rect { x: self.region.x, y: self.region.y, ..rect };
            }
            Rect { x: rect.x + self.region.x, y: rect.y + self.region.y, ..rect }
        })
    }
    /// Where on the client's screen a rectangle is that lies in its region.
    pub fn own(&self, rect: Rect) -> Rect {
        Rect {
            x: rect.x.saturating_sub(self.region.x),
            y: rect.y.saturating_sub(self.region.y),
            ..rect
        }
    }
    /// What the client may do of this, on the screen: where, and where a copy comes from. All of it lies in its region,
    /// whatever its policies say.
    ///
    /// # Errors
    /// Why nothing.
    pub fn ask(
        &mut self,
        operation: u16,
        rect: Rect,
        from: (u16, u16),
        value: u32,
        data: &[u8],
    ) -> Result<(Rect, (u16, u16)), Refusal> {
        let place = self.place(rect).ok_or(Refusal::Outside)?;
        let source = Rect { x: from.0, y: from.1, ..rect };
        let copies = operation == lastmeter_plugin::request::framebuffer::COPY;
        let from = match copies {
            true => {
                self.place(source).map(|source| (source.x, source.y)).ok_or(Refusal::Outside)?
            }
            false => (0, 0),
        };
        if self.chain.is_empty() {
            return Ok((place, from));
        }
        let request = Request {
            body: Body::Framebuffer { operation, rect: place, from, value },
            flow: self.number.into(),
            arrival: now(self.display),
            mark: 0,
            length: u32::try_from(data.len()).unwrap_or(u32::MAX),
            data: &data[..data.len().min(SEEN_MAX)],
        };
        let now = request.arrival;
        self.chain.process(now, &[request], &mut self.marks, &mut self.outcomes);
        match self.outcomes.first().map(|outcome| &outcome.effect) {
            Some(Effect::Framebuffer { rect, from }) => {
                let source = Rect { x: from.0, y: from.1, ..*rect };
                let inside = rect.within(self.region) && (!copies || source.within(self.region));
                inside.then_some((*rect, *from)).ok_or(Refusal::Outside)
            }
            Some(Effect::Denied { by, .. }) => {
                Err(Refusal::Denied(self.chain.name(*by).unwrap_or("a policy").to_owned()))
            }
            _ => Err(Refusal::Denied("a policy".to_owned())),
        }
    }
}

impl Refusal {
    /// In words.
    pub fn words(&self) -> &str {
        match self {
            Refusal::Outside => "outside of the client's screen",
            Refusal::Denied(name) => name,
        }
    }
}

fn now(display: &Display) -> Time {
    Time::START + Duration::from_secs_f64(display.began.elapsed().as_secs_f64())
}
