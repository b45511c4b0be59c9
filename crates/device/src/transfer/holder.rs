//! The holder's side: it shows a ticket to its source, and waits for the end.

use super::channel::{Channel, FLUSH, number, words};
use super::identity::Identity;
use lastmeter_wire::ticket::{Kind, Signed, Ticket};

/// Shows a ticket to its source; the bytes that were transferred. `progress` is called with those so far.
///
/// # Errors
/// Why it was refused, or where it failed.
pub fn present(signed: &Signed, mut progress: impl FnMut(u64)) -> Result<u64, String> {
    let ticket = Ticket::parse(&signed.ticket).map_err(|error| error.to_string())?;
    let identity = Identity::ephemeral()?;
    let mut source = Channel::connect(&identity, &ticket.source_address, ticket.source)?;
    source.say(Kind::Present, &signed.emit().map_err(|error| error.to_string())?)?;
    source.wait(FLUSH + FLUSH / 10);
    let mut body = Vec::new();
    loop {
        match source.next(&mut body)? {
            Kind::Accepted => {}
            Kind::Progress => progress(number(&body)),
            Kind::Done => return Ok(number(&body)),
            Kind::Refused => return Err(words(&body)),
            _ => return Err("the source answers nonsense".to_owned()),
        }
    }
}
