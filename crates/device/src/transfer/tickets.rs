//! Which tickets a device takes: those of its issuers, for itself, in time, once.
//!
//! ```text
//! signature of an issuer? -> for this device? -> not expired? -> the issuer's own rights (the device) -> not used?
//! ```
//!
//! Identifiers of used tickets are in a file, so that a ticket is used up across restarts, too.

use super::identity::Key;
use lastmeter_linux::files;
use lastmeter_plugin::trust::Trust;
use lastmeter_wire::ticket::{ID_LEN, Signed, Ticket};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The trusted comment of a ticket's signature: no signature of anything else is one of a ticket.
pub const COMMENT: &str = "lastmeter:ticket/1";
/// The longest time for which a ticket is made, in seconds.
pub const LIFETIME_MAX: u64 = 30 * 86_400;
/// Tickets that were used and have not expired, at most.
pub const USED_MAX: usize = 100_000;
/// A used ticket is remembered for so long after it has expired: clocks are set back, too.
const GRACE: u64 = 86_400;
/// Bytes of a line: expiry, a space, the identifier, the line's end.
const LINE_MAX: usize = 20 + 1 + 2 * ID_LEN + 1;

/// Seconds since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Which end of a transfer a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It gives.
    Source,
    /// It takes.
    Destination,
}

/// The issuers that a device trusts, and the tickets that it has seen.
pub struct Tickets {
    own: Key,
    trust: Trust,
    path: PathBuf,
    used: Mutex<BTreeMap<[u8; ID_LEN], u64>>,
}

fn line(id: &[u8; ID_LEN], expires: u64) -> String {
    let mut line = format!("{expires} ");
    id.iter().for_each(|byte| {
        let _ = write!(line, "{byte:02x}");
    });
    line.push('\n');
    line
}

fn parse(line: &str) -> Option<([u8; ID_LEN], u64)> {
    let (expires, id) = line.split_once(' ')?;
    let digits = id.len() == 2 * ID_LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(id, 16).ok().filter(|_| digits)?;
    Some((number.to_be_bytes(), expires.parse().ok()?))
}

/// The file has exactly what the table has.
fn rewrite(path: &Path, used: &BTreeMap<[u8; ID_LEN], u64>) -> std::io::Result<()> {
    let text: String = used.iter().map(|(id, expires)| line(id, *expires)).collect();
    files::replace(path, text.as_bytes())
}

impl Tickets {
    /// Reads what was used before from the file `path`, which is made if it is missing.
    ///
    /// # Errors
    /// If the file cannot be read or written, or has something else in it.
    pub fn new(own: Key, trust: Trust, path: &Path, now: u64) -> Result<Tickets, String> {
        let mut used = BTreeMap::new();
        if path.exists() {
            let bytes = files::read(path, (USED_MAX + 1) * LINE_MAX)?;
            let text = String::from_utf8_lossy(&bytes);
            let mut lines = text.split_inclusive('\n').peekable();
            while let Some(found) = lines.next() {
                // A line that was cut off by a fall was not answered, either.
                let whole = found.ends_with('\n');
                match parse(found.trim_end()).filter(|_| whole) {
                    Some((id, expires)) => drop(used.insert(id, expires)),
                    None if !whole && lines.peek().is_none() => {}
                    None => return Err(format!("{}: {found:?} is no used ticket", path.display())),
                }
            }
        }
        used.retain(|_, expires| now < expires.saturating_add(GRACE));
        let place = |error| format!("{}: {error}", path.display());
        rewrite(path, &used).map_err(place)?;
        Ok(Tickets { own, trust, path: path.to_owned(), used: Mutex::new(used) })
    }
    /// A ticket that this device takes in its role at this time, and who issued it. It is not used up by that.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check(
        &self,
        signed: &Signed,
        role: Role,
        now: u64,
    ) -> Result<(Ticket, String), &'static str> {
        // Nothing in a ticket is looked at before its signature.
        let checked = self.trust.check(&signed.ticket, COMMENT, &signed.signature);
        let issuer = checked.map_err(|_| "ticket: not signed by an issuer")?;
        let ticket = Ticket::parse(&signed.ticket).map_err(|_| "ticket: malformed")?;
        let named = match role {
            Role::Source => ticket.source,
            Role::Destination => ticket.destination,
        };
        if named != self.own {
            return Err("ticket: for another device");
        }
        if ticket.expires <= now {
            return Err("ticket: expired");
        }
        if ticket.expires - now > LIFETIME_MAX {
            return Err("ticket: valid for too long");
        }
        if self.lock().contains_key(&ticket.id) {
            return Err("ticket: used before");
        }
        Ok((ticket, issuer))
    }
    /// Uses a ticket up, durably.
    ///
    /// # Errors
    /// If it was used, also at this instant by somebody else, or that cannot be remembered.
    pub fn use_up(&self, ticket: &Ticket, now: u64) -> Result<(), &'static str> {
        let mut used = self.lock();
        if used.contains_key(&ticket.id) {
            return Err("ticket: used before");
        }
        if used.len() >= USED_MAX {
            used.retain(|_, expires| now < expires.saturating_add(GRACE));
            let rewritten = rewrite(&self.path, &used);
            rewritten.map_err(|_| "ticket: its use cannot be remembered")?;
        }
        if used.len() >= USED_MAX {
            return Err("ticket: too many were used");
        }
        let text = line(&ticket.id, ticket.expires);
        let file = File::options().append(true).create(true).open(&self.path);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_data()
        });
        // What may have been written counts as used.
        used.insert(ticket.id, ticket.expires);
        written.map_err(|_| "ticket: its use cannot be remembered")
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<[u8; ID_LEN], u64>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
