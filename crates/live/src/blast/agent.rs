//! The agent: waits on a host for drivers, and sends and counts as they request.

use super::message::{Reply, send};
use super::session;
use crate::error::{Doing, Result, wrong};
use lastmeter_engine::Control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most sessions at once; further drivers are refused.
pub const SESSIONS_MAX: usize = 4;
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

    /// Serves drivers until `control` says stop; `tell` gets a line on each of them.
    ///
    /// # Errors
    /// When it can no longer wait for drivers.
    pub fn serve(&self, control: &Control, tell: &(dyn Fn(&str) + Sync)) -> Result<()> {
        let sessions = AtomicUsize::new(0);
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
                if sessions.fetch_add(1, Ordering::AcqRel) >= SESSIONS_MAX {
                    sessions.fetch_sub(1, Ordering::AcqRel);
                    busy(stream);
                    continue;
                }
                let sessions = &sessions;
                scope.spawn(move || {
                    match session::serve(stream, self.token.as_deref(), control) {
                        Ok(words) => tell(&format!("{from}: {words}")),
                        Err(why) => tell(&format!("{from}: ended early: {why}")),
                    }
                    sessions.fetch_sub(1, Ordering::AcqRel);
                });
            }
            Ok(())
        })
    }
}

fn busy(mut stream: TcpStream) {
    let _ = stream.set_write_timeout(Some(std::time::Duration::from_millis(100)));
    let why = format!("this agent already serves {SESSIONS_MAX} drivers");
    let _ = send(&mut stream, &Reply::Refused { why });
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
