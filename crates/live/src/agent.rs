//! An agent: waits on a host for drivers of other hosts, and gives each that connects a session of its own.

use lastmeter_engine::Control;
use lastmeter_linux::{Doing, Result, wrong};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most runs at once; further drivers are refused. A driver counts once it has the right token and names
/// its sinks.
pub const SESSIONS_MAX: usize = 4;
/// The most connections that do not count yet; one more, and the oldest of them is closed.
pub const WAITING_MAX: usize = 32;
/// The longest token.
pub const TOKEN_LEN_MAX: usize = 256;
/// How often it checks for a stop.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// An agent that listens.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
    token: Option<String>,
}

impl Agent {
    /// Listens on this address; a token is required unless it is a loopback address.
    ///
    /// # Errors
    /// The address is not available, or the token is missing or malformed.
    pub fn bind(at: SocketAddr, token: Option<String>) -> Result<Agent> {
        if let Some(token) = &token {
            check_token(token)?;
        } else if !at.ip().is_loopback() {
            let found = format!("missing, and {} is not a loopback address", at.ip());
            return wrong("token", found, "given by --token or --token-file");
        }
        let listener = TcpListener::bind(at)
            .doing(|| format!("listening on {at} (port 0 picks any free one)"))?;
        listener.set_nonblocking(true).doing(|| format!("listening on {at}"))?;
        Ok(Agent { listener, token })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().doing("reading the agent's address")
    }

    /// The token that it requires.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Gives each driver a `session` until `control` says stop; `tell` gets a line on each of them.
    ///
    /// # Errors
    /// When it can no longer wait for drivers.
    pub(crate) fn serve_each(
        &self,
        control: &Control,
        tell: &(dyn Fn(&str) + Sync),
        session: &Session<'_>,
    ) -> Result<()> {
        let slots = Slots::default();
        std::thread::scope(|scope| {
            while !control.stopped() {
                let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
                let found = match poll(&mut polled, Some(&LOOK_EVERY)) {
                    Ok(found) => found,
                    Err(rustix::io::Errno::INTR) => 0,
                    Err(error) => return Err(error).doing("waiting for drivers"),
                };
                // A driver that has left again is not an error of this agent.
                let Some((stream, from)) =
                    (found > 0).then(|| self.listener.accept().ok()).flatten()
                else {
                    continue;
                };
                if stream.set_nonblocking(false).is_err() {
                    continue;
                }
                // Without a second descriptor there is no room for another driver either.
                let Some(slot) = slots.enter(&stream) else { continue };
                scope.spawn(move || match session(stream, self.token.as_deref(), &slot) {
                    Ok(words) => tell(&format!("{from}: {words}")),
                    Err(why) => tell(&format!("{from}: ended early: {why}")),
                });
            }
            Ok(())
        })
    }
}

/// Serves one driver until it is done or gone; a summary of the session, or why it ended early.
pub(crate) type Session<'a> =
    dyn Fn(TcpStream, Option<&str>, &Slot<'_>) -> std::result::Result<String, String> + Sync + 'a;

/// Who is connected: runs, and those who have not shown yet that they may have one.
#[derive(Default)]
struct Slots(Mutex<Connected>);

#[derive(Default)]
struct Connected {
    running: usize,
    /// Oldest first, each with its number.
    waiting: VecDeque<(u64, TcpStream)>,
    last: u64,
}

/// A connection's place; it is free again when this is dropped.
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    number: u64,
    runs: Cell<bool>,
}

impl Slots {
    fn connected(&self) -> MutexGuard<'_, Connected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, stream: &TcpStream) -> Option<Slot<'_>> {
        let stream = stream.try_clone().ok()?;
        let mut connected = self.connected();
        connected.last += 1;
        let number = connected.last;
        connected.waiting.push_back((number, stream));
        if connected.waiting.len() > WAITING_MAX
            && let Some((_, oldest)) = connected.waiting.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        Some(Slot { slots: self, number, runs: Cell::new(false) })
    }
}

impl Slot<'_> {
    /// Takes the place of a run.
    ///
    /// # Errors
    /// There is none, or the connection has been closed.
    pub(crate) fn take(&self) -> std::result::Result<(), String> {
        let mut connected = self.slots.connected();
        if connected.running >= SESSIONS_MAX {
            return Err(format!("this agent already serves {SESSIONS_MAX} drivers"));
        }
        let at = connected.waiting.iter().position(|&(number, _)| number == self.number);
        let at = at.ok_or("too many connections: this one waited longest")?;
        connected.waiting.remove(at);
        connected.running += 1;
        self.runs.set(true);
        Ok(())
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut connected = self.slots.connected();
        connected.waiting.retain(|&(number, _)| number != self.number);
        connected.running -= usize::from(self.runs.get());
    }
}

/// Rejects a malformed token.
///
/// # Errors
/// It is empty, too long, or has spaces.
pub fn check_token(token: &str) -> Result<()> {
    let fits = (1..=TOKEN_LEN_MAX).contains(&token.len());
    match fits && token.chars().all(|c| c.is_ascii_graphic()) {
        true => Ok(()),
        false => {
            let right = format!("1 to {TOKEN_LEN_MAX} printable characters without spaces");
            wrong("token", format!("{} characters", token.chars().count()), right)
        }
    }
}
