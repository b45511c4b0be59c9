//! Both ends of a transfer.
//!
//! ```text
//! source       PRESENT: check -> begin -> connect -> use up -> OFFER -> data, paced -> END -> DONE to the holder
//! destination  OFFER:   check, from that source? -> begin -> use up -> ACCEPTED -> data, no more than it says -> DONE
//! ```

use super::channel::{Channel, FLUSH, number, words};
use super::tickets::{Role, seconds};
use super::{Party, Shared};
use lastmeter_wire::ticket::{BODY_MAX, Cargo, Kind, Signed, Ticket};
use std::time::{Duration, Instant};

/// How often a holder hears how far it is.
const TELL: Duration = Duration::from_secs(1);

/// Serves whoever connects: a holder, or another device.
pub(super) fn serve<P: Party>(shared: &Shared<P>, mut channel: Channel) -> Result<(), String> {
    let mut body = Vec::new();
    let kind = channel.next(&mut body)?;
    channel.settle();
    let done = match kind {
        Kind::Present => give(shared, &mut channel, &body),
        Kind::Offer => take(shared, &mut channel, &body),
        _ => Err("neither a ticket nor an offer".to_owned()),
    };
    match done {
        Ok(bytes) => channel.say(Kind::Done, &bytes.to_be_bytes()),
        Err(why) => {
            channel.refuse(&why);
            shared.party.account().refuse(why.split(" (").next().unwrap_or(&why));
            Err(why)
        }
    }
}

/// Keeps to a rate of bytes and an interval of frames.
struct Pace {
    began: Instant,
    rate: u64,
    interval: Duration,
}

impl Pace {
    fn new(ticket: &Ticket) -> Pace {
        let interval = Duration::from_micros(ticket.interval.into());
        Pace { began: Instant::now(), rate: ticket.rate, interval }
    }
    /// Waits until so many bytes and so many frames may have been sent.
    fn wait(&self, bytes: u64, frames: u64) {
        let mut due = Duration::ZERO;
        if self.rate > 0 {
            due = Duration::try_from_secs_f64(bytes as f64 / self.rate as f64)
                .unwrap_or(Duration::MAX);
        }
        due = due.max(self.interval.saturating_mul(u32::try_from(frames).unwrap_or(u32::MAX)));
        // At most the time of one message or frame, for which the other end is patient.
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
    }
}

/// Frames that have begun when so many bytes, or messages, were sent.
fn frames(cargo: Cargo, bytes: u64, messages: u64) -> u64 {
    match cargo {
        Cargo::Bytes(_) => 0,
        Cargo::Pixels { frame, .. } => bytes / frame,
        Cargo::Pictures { .. } => messages,
    }
}

/// What a ticket allows in all: bytes, messages.
fn most(cargo: Cargo) -> (u64, u64) {
    match cargo {
        Cargo::Bytes(bytes) => (bytes, u64::MAX),
        Cargo::Pixels { frame, count } => (frame.saturating_mul(count), u64::MAX),
        Cargo::Pictures { count } => (u64::from(count) * BODY_MAX as u64, count.into()),
    }
}

fn give<P: Party>(shared: &Shared<P>, holder: &mut Channel, body: &[u8]) -> Result<u64, String> {
    let signed = Signed::parse(body).map_err(|error| error.to_string())?;
    let (ticket, issuer) = shared.tickets.check(&signed, Role::Source, seconds())?;
    let cargo = ticket.cargo().map_err(|error| error.to_string())?;
    let mut giving = shared.party.give(shared.client(&issuer)?, &ticket)?;
    let address = &ticket.destination_address;
    // A destination that is not there leaves the ticket as it was.
    let mut other = Channel::connect(&shared.identity, address, ticket.destination)?;
    shared.tickets.use_up(&ticket, seconds())?;
    other.say(Kind::Offer, body)?;
    let mut answer = Vec::new();
    match other.next(&mut answer)? {
        Kind::Accepted => {}
        Kind::Refused => return Err(format!("the destination ({})", words(&answer))),
        _ => return Err("the destination answers nonsense".to_owned()),
    }
    let _ = holder.say(Kind::Accepted, &[]);
    let (pace, mut told) = (Pace::new(&ticket), Instant::now());
    let (mut bytes, mut messages, mut piece) = (0, 0, Vec::new());
    let sent = loop {
        match giving.next(&mut piece) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(why) => break Err(why),
        }
        if !piece.is_empty() {
            pace.wait(bytes, frames(cargo, bytes, messages));
            (bytes, messages) = (bytes + piece.len() as u64, messages + 1);
        }
        if let Err(why) = other.say(Kind::Data, &piece) {
            break Err(why);
        }
        if told.elapsed() > TELL {
            // The holder may go: it is not needed any more.
            let _ = holder.say(Kind::Progress, &bytes.to_be_bytes());
            told = Instant::now();
        }
    };
    match sent {
        Ok(()) => other.say(Kind::End, &bytes.to_be_bytes())?,
        // A destination that refuses has closed; what it said is still there.
        Err(why) if why.starts_with("sending") => {}
        Err(why) => {
            other.refuse("the source failed");
            return Err(why);
        }
    }
    other.wait(FLUSH);
    match other.next(&mut answer)? {
        Kind::Done if number(&answer) == bytes => Ok(bytes),
        Kind::Refused => Err(format!("the destination ({})", words(&answer))),
        _ => Err("the destination answers nonsense".to_owned()),
    }
}

fn take<P: Party>(shared: &Shared<P>, source: &mut Channel, body: &[u8]) -> Result<u64, String> {
    let signed = Signed::parse(body).map_err(|error| error.to_string())?;
    let (ticket, issuer) = shared.tickets.check(&signed, Role::Destination, seconds())?;
    if source.peer != ticket.source {
        return Err("ticket: from another device than its source".to_owned());
    }
    let cargo = ticket.cargo().map_err(|error| error.to_string())?;
    let mut taking = shared.party.take(shared.client(&issuer)?, &ticket)?;
    shared.tickets.use_up(&ticket, seconds())?;
    source.say(Kind::Accepted, &[])?;
    let (pace, (bytes_most, messages_most)) = (Pace::new(&ticket), most(cargo));
    let (mut bytes, mut messages, mut piece) = (0u64, 0u64, Vec::new());
    let ended = loop {
        let kind = match source.next(&mut piece) {
            Ok(kind) => kind,
            Err(why) => break Err(why),
        };
        match kind {
            Kind::Data if piece.is_empty() => {}
            Kind::Data => {
                // Before it is counted: the time of what came is over when the next may come.
                pace.wait(bytes, frames(cargo, bytes, messages));
                (bytes, messages) = (bytes + piece.len() as u64, messages + 1);
                if bytes > bytes_most || messages > messages_most {
                    break Err("ticket: more came than it allows".to_owned());
                }
                if let Err(why) = taking.put(&piece) {
                    break Err(why);
                }
            }
            Kind::End => {
                let all = matches!(cargo, Cargo::Pictures { .. }) || bytes == bytes_most;
                break match all && number(&piece) == bytes {
                    true => Ok(bytes),
                    false => Err("ticket: less came than it says".to_owned()),
                };
            }
            Kind::Refused => break Err(format!("the source ({})", words(&piece))),
            _ => break Err("the source sends nonsense".to_owned()),
        }
    };
    // What came is made durable, whatever came after it.
    let finished = taking.finish();
    ended.and_then(|bytes| finished.map(|()| bytes))
}
