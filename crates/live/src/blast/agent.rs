//! The agent: waits on a host for drivers, and sends and counts as they say.

use super::message::{Answer, send};
use super::session;
use crate::error::{Doing, Error, Result};
use lastmeter_engine::Control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most sessions at once; further drivers are told to come again.
pub const SESSIONS_MAX: usize = 4;
/// The longest token.
pub const TOKEN_LEN_MAX: usize = 256;
/// How soon a stop is noticed.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// An agent that listens.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
    token: Option<String>,
}

impl Agent {
    /// Listens at this address; a token must be given where others than this machine can ask.
    ///
    /// # Errors
    /// The address cannot be had, or a token is missing or no token.
    pub fn bind(at: SocketAddr, token: Option<String>) -> Result<Agent> {
        if let Some(token) = &token {
            check_token(token)?;
        } else if !at.ip().is_loopback() {
            let found = format!("missing, and {} is not on this machine alone", at.ip());
            let expected = "given, as --token or --token-file, for whoever may ask".to_owned();
            return Err(Error::Setting { name: "token", found, expected });
        }
        let listener = TcpListener::bind(at)
            .doing(|| format!("listening at {at} (port 0 takes any free one)"))?;
        listener.set_nonblocking(true).doing(|| format!("listening at {at}"))?;
        Ok(Agent { listener, token })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().doing(|| "asking for the agent's address".to_owned())
    }

    /// Serves drivers until `control` says stop; `tell` hears what each of them did.
    ///
    /// # Errors
    /// When nobody can be waited for any more.
    pub fn serve(&self, control: &Control, tell: &(dyn Fn(&str) + Sync)) -> Result<()> {
        let sessions = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            while !control.stopped() {
                let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
                let found = match poll(&mut polled, Some(&LOOK_EVERY)) {
                    Ok(found) => found,
                    Err(rustix::io::Errno::INTR) => 0,
                    Err(error) => return Err(error).doing(|| "waiting for drivers".to_owned()),
                };
                // A driver that has gone again is no fault of this agent.
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
    let why = format!("this agent serves {SESSIONS_MAX} drivers already");
    let _ = send(&mut stream, &Answer::Refused { why });
}

/// Refuses a token that would be none.
///
/// # Errors
/// It is empty, too long, or has spaces.
pub fn check_token(token: &str) -> Result<()> {
    let fits = (1..=TOKEN_LEN_MAX).contains(&token.len());
    match fits && token.chars().all(|c| c.is_ascii_graphic()) {
        true => Ok(()),
        false => Err(Error::Setting {
            name: "token",
            found: format!("{} characters", token.chars().count()),
            expected: format!("1 to {TOKEN_LEN_MAX} printed characters without spaces"),
        }),
    }
}
