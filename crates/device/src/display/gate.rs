//! A client of the display: its part of the screen, and the owner's policies for its requests.
//!
//! A client's part may be a part of another client's: then that one's policies are asked after its own, and nothing
//! gets beyond either of them.
//!
//! Rows: N-19.

use super::adapt;
use super::screen::Screen;
use crate::access::Access;
use crate::account::Account;
use lastmeter_base::{Duration, Time};
use lastmeter_plugin::chain::{Chain, Effect, Outcome};
use lastmeter_plugin::request::{Body, Rect, Request};
use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Stages of an update's path, from what was drawn to what is sent.
pub const UPDATE_STAGES: [(&str, &str); 5] = [
    ("wait", "viewer"),
    ("policy", "cpu"),
    ("encode", "cpu"),
    ("send", "network"),
    ("view", "viewer"),
];
/// Of an update's stages: until the viewer says that it has drawn it, if it says so.
pub const VIEW: usize = 4;
/// Stages of a command's path.
pub const COMMAND_STAGES: [(&str, &str); 3] =
    [("receive", "network"), ("policy", "cpu"), ("draw", "cpu")];
/// The number of bytes of a command that policies see.
const SEEN_MAX: usize = 128;
/// Limit on parts within parts.
pub const DEPTH_MAX: usize = 8;

/// A client's part of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// On the whole screen.
    pub region: Rect,
    /// The client of whose part it is a part.
    pub of: Option<String>,
}

/// A display, shared by all its clients.
pub struct Display {
    /// Its name.
    pub name: String,
    /// Its pixels.
    pub screen: Screen,
    /// Its clients.
    pub access: Access,
    /// Clients' parts of the screen, if not all of it.
    pub regions: BTreeMap<String, Part>,
    /// Clients that may subscribe to key and pointer events, and set the cursor.
    pub input: Vec<String>,
    /// Clients that may change the screen's size.
    pub resize: Vec<String>,
    /// Its certificate and key.
    pub tls: Option<Arc<ServerConfig>>,
    /// The limit on JPEG quality.
    pub quality: u8,
    /// How the quality follows what a viewer's link carries.
    pub adapt: adapt::Settings,
    /// The account of updates.
    pub updates: Account,
    /// The account of commands.
    pub commands: Account,
    /// When it started: the zero of the policies' clock.
    pub began: Instant,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not on the client's screen.
    Outside,
    /// A policy denied it.
    Denied(String),
}

/// A client whose policies are asked.
struct Owner {
    part: Option<Rect>,
    chain: Chain,
    marks: Vec<u64>,
}

/// A client at a display.
pub struct Gate<'a> {
    display: &'a Display,
    /// Its part of the screen, whose corner is the client's origin.
    pub region: Rect,
    /// What policies see.
    pub number: u32,
    /// The client itself, then those of whose part its own is a part.
    owners: Vec<Owner>,
    outcomes: Vec<Outcome>,
}

impl<'a> Gate<'a> {
    /// A client by its name.
    ///
    /// # Errors
    /// If there is no client of this name, or a policy cannot be made.
    pub fn new(display: &'a Display, client: &str) -> Result<Gate<'a>, String> {
        let (mut owners, mut name) = (Vec::new(), Some(client));
        while let Some(client) = name.filter(|_| owners.len() < DEPTH_MAX) {
            let chain = display.access.chain(client, now(display))?;
            let part = display.regions.get(client);
            let marks = vec![0; chain.len()];
            owners.push(Owner { part: part.map(|part| part.region), chain, marks });
            name = part.and_then(|part| part.of.as_deref());
        }
        let number = display.access.number(client);
        let region = Rect::default();
        let mut gate = Gate { display, region, number, owners, outcomes: Vec::new() };
        gate.fit();
        Ok(gate)
    }
    /// Its part of the screen, if it is not all of it.
    pub fn part(&self) -> Option<Rect> {
        self.owners.first().and_then(|owner| owner.part)
    }
    /// Follows the size of the screen.
    pub fn fit(&mut self) {
        let whole = self.display.screen.whole();
        self.region = self.part().map_or(whole, |part| part.meet(whole));
    }
    /// A rectangle of the client's screen in coordinates of the whole screen, if it is inside.
    fn place(&self, rect: Rect) -> Option<Rect> {
        let own = Rect { x: 0, y: 0, ..self.region };
        // Inside the client's screen, so the sums are inside the whole screen.
        rect.within(own).then(|| {
            if rect.is_empty() {
                return Rect { x: self.region.x, y: self.region.y, ..rect };
            }
            Rect { x: rect.x + self.region.x, y: rect.y + self.region.y, ..rect }
        })
    }
    /// A rectangle of the region in coordinates of the client's screen.
    pub fn own(&self, rect: Rect) -> Rect {
        Rect {
            x: rect.x.saturating_sub(self.region.x),
            y: rect.y.saturating_sub(self.region.y),
            ..rect
        }
    }
    /// The allowed part of a request, on the whole screen: the rectangle and the source of a copy. All of it is in
    /// the client's region, whatever the policies return.
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
        let request = |rect, from| Request {
            body: Body::Framebuffer { operation, rect, from, value },
            flow: self.number.into(),
            arrival: now(self.display),
            mark: 0,
            length: u32::try_from(data.len()).unwrap_or(u32::MAX),
            data: &data[..data.len().min(SEEN_MAX)],
        };
        let mut allowed = (place, from);
        for owner in self.owners.iter_mut().filter(|owner| !owner.chain.is_empty()) {
            let request = request(allowed.0, allowed.1);
            let now = request.arrival;
            owner.chain.process(now, &[request], &mut owner.marks, &mut self.outcomes);
            let region = owner.part.map_or(self.region, |part| part.meet(self.region));
            allowed = match self.outcomes.first().map(|outcome| &outcome.effect) {
                Some(Effect::Framebuffer { rect, from }) => {
                    let source = Rect { x: from.0, y: from.1, ..*rect };
                    let inside = rect.within(region) && (!copies || source.within(region));
                    inside.then_some((*rect, *from)).ok_or(Refusal::Outside)?
                }
                Some(Effect::Denied { by, .. }) => {
                    let name = owner.chain.name(*by).unwrap_or("a policy").to_owned();
                    return Err(Refusal::Denied(name));
                }
                _ => return Err(Refusal::Denied("a policy".to_owned())),
            };
        }
        Ok(allowed)
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
