//! Transfers between devices (N-03, N-25): whoever holds a ticket that an owner signed makes one device send something
//! straight to another; the data pass neither the holder nor the owner.
//!
//! ```text
//! holder --ticket--> source ==== data, TLS between the devices' own keys ====> destination
//!                      |  tickets: issuer, this device, in time, once              |
//!                      |  the issuer's own policies and size, as for its requests  |
//! ```
//!
//! ```toml
//! [transfer]
//! listen = "10.0.0.1:10811"
//! identity = "disk.identity"   # the device's own key, made at the first start
//! keys = "issuers"             # whose tickets it takes: ALICE.pub is alice's key (plugin key alice)
//! ```
//!
//! A ticket gives nothing that its issuer has not: at each end it is asked of the policies of the client whose name is
//! the issuer's, or of anyone's if there is none.

mod channel;
mod holder;
pub mod identity;
mod session;
pub mod tickets;

pub use channel::{Channel, FLUSH, IDLE, PATIENCE};
pub use holder::present;

use crate::access::{ANYONE, Access};
use crate::account::Account;
use crate::{keys, link};
use identity::Identity;
use lastmeter_wire::ticket::{ID_LEN, Ticket};
use serde::Deserialize;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tickets::{Tickets, seconds};

/// Limit on concurrent transfers and those who ask for them.
pub const TRANSFERS_MAX: usize = 64;
/// Bytes that a source sends at once, at most, but for frames.
pub const PIECE_MAX: usize = 1 << 20;
/// A session's stack; its buffers are elsewhere.
const STACK: usize = 512 << 10;

/// An identifier for a ticket.
///
/// # Errors
/// If the system has no random numbers.
pub fn id() -> Result<[u8; ID_LEN], String> {
    link::unpredictable()
}

/// The part of a device's file about transfers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The address for holders of tickets and other devices.
    pub listen: SocketAddr,
    /// The file of the device's own key.
    pub identity: PathBuf,
    /// The folder of issuers' public keys.
    pub keys: PathBuf,
}

/// What a device gives for a ticket.
pub trait Give {
    /// The next bytes, in place of those in `piece`; none: not yet. False if there are no more.
    ///
    /// # Errors
    /// Why there are none.
    fn next(&mut self, piece: &mut Vec<u8>) -> Result<bool, String>;
}

/// Where a device puts what comes with a ticket.
pub trait Take {
    /// The next bytes, or the next JPEG. Never more than the ticket says.
    ///
    /// # Errors
    /// Why they are not taken.
    fn put(&mut self, piece: &[u8]) -> Result<(), String>;
    /// No more come: all is where it belongs afterwards, also if not all came.
    ///
    /// # Errors
    /// If it is not.
    fn finish(&mut self) -> Result<(), String>;
}

/// A device that takes part in transfers.
pub trait Party: Send + Sync + 'static {
    /// Its clients, among whom are the issuers.
    fn access(&self) -> &Access;
    /// Where refused tickets are counted.
    fn account(&self) -> &Account;
    /// Begins to give what a ticket names, as this client may.
    ///
    /// # Errors
    /// Why not.
    fn give<'a>(&'a self, client: &str, ticket: &Ticket) -> Result<Box<dyn Give + 'a>, String>;
    /// Begins to take what a ticket names, as this client may.
    ///
    /// # Errors
    /// Why not.
    fn take<'a>(&'a self, client: &str, ticket: &Ticket) -> Result<Box<dyn Take + 'a>, String>;
}

/// What sessions share.
struct Shared<P> {
    party: Arc<P>,
    identity: Identity,
    tickets: Tickets,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl<P: Party> Shared<P> {
    /// The client whose rights an issuer's tickets have.
    fn client<'a>(&self, issuer: &'a str) -> Result<&'a str, String> {
        let access = self.party.access();
        let known = [issuer, ANYONE].into_iter().find(|name| access.client(name).is_some());
        known.ok_or(format!("{issuer}, who issued the ticket, is no client"))
    }
}

/// Where a device waits for tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The address, with the assigned port.
    pub address: SocketAddr,
    /// The device's key, by which tickets name it.
    pub key: identity::Key,
}

impl Config {
    /// The device's own key, made if it is missing.
    ///
    /// # Errors
    /// If it cannot be read or made.
    pub fn identity(&self, folder: &Path) -> Result<Identity, String> {
        Identity::at(&folder.join(&self.identity))
            .map_err(|why| format!("transfer.identity: {why}"))
    }
    /// Listens, on its own threads. `tell` is called with what was refused, and why.
    ///
    /// # Errors
    /// If an address or a file cannot be used.
    pub fn start<P: Party>(
        &self,
        folder: &Path,
        party: Arc<P>,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Listening, String> {
        let identity = self.identity(folder)?;
        let trust = keys::read(&folder.join(&self.keys));
        let trust = trust.map_err(|why| format!("transfer.keys: {why}"))?;
        let mut used = folder.join(&self.identity).into_os_string();
        used.push(".used");
        let tickets = Tickets::new(identity.key, trust, Path::new(&used), seconds());
        let tickets = tickets.map_err(|why| format!("transfer: {why}"))?;
        let place = |error| format!("transfer.listen: {}: {error}", self.listen);
        let listener = TcpListener::bind(self.listen).map_err(place)?;
        let address = listener.local_addr().map_err(place)?;
        let (config, key) = (identity.server()?, identity.key);
        let running = Arc::<AtomicUsize>::default();
        let shared = Arc::new(Shared { party, identity, tickets, tell: Box::new(tell) });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (own, config) = (shared.clone(), config.clone());
                link::serve(&running, TRANSFERS_MAX, STACK, move || {
                    let ended = Channel::accept(stream, &config)
                        .and_then(|channel| session::serve(&own, channel));
                    if let Err(why) = ended {
                        (own.tell)(&format!("transfer: {why}"));
                    }
                });
            }
        });
        Ok(Listening { address, key })
    }
}
