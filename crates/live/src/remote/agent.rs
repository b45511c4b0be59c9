//! An agent's session with one driver.

use super::ends::{At, Job};
use super::message::{ADDRESSES_MAX, PAIRS_MAX, Reply, Request, Seen, VERSION, check};
use super::watch::Playing;
use super::{check_token, proof};
use crate::agent::{Agent, Slot};
use crate::lines::{LINE_FIRST_MAX, LINE_MAX, Lines, Received, send};
use crate::observe;
use crate::transfer::Setting;
use crate::transfer::meter::now;
use lastmeter_engine::Control;
use lastmeter_linux::Error;
use lastmeter_linux::token::{self, same};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Timeout for the first message.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Timeout between two messages.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How often a session checks whether the agent is to stop.
const TICK: Duration = Duration::from_millis(250);
/// How much longer than asked for a transfer may take, in seconds.
const LATE_MAX: f64 = 30.0;
/// The longest look at somebody's connections, in seconds.
const WATCH_MAX: f64 = 24.0 * 3600.0;

/// Serves drivers until `control` says stop; `tell` gets a line on each of them.
///
/// # Errors
/// The agent has no token or one that can be guessed, or can no longer wait for drivers.
pub fn serve(
    agent: &Agent,
    control: &Control,
    tell: &(dyn Fn(&str) + Sync),
) -> lastmeter_linux::Result<()> {
    check_token(agent.token().unwrap_or_default())?;
    let transferring = AtomicBool::new(false);
    agent.serve_each(control, tell, &|stream, token, slot| {
        session(stream, token.unwrap_or_default(), slot, control, &transferring)
    })
}

fn session(
    mut stream: TcpStream,
    token: &str,
    slot: &Slot<'_>,
    control: &Control,
    transferring: &AtomicBool,
) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    stream.set_nodelay(true).map_err(text)?;
    let lines = Lines::new(stream.try_clone().map_err(text)?, LINE_FIRST_MAX);
    let ends = (stream.local_addr().map_err(text)?.ip(), stream.peer_addr().map_err(text)?.ip());
    let session = Session { stream: &mut stream, lines, control, ends, transferring };
    let ended = session.run(token, slot);
    if let Err(why) = &ended {
        let _ = send(&mut stream, &Reply::Refused { why: why.clone() });
    }
    ended
}

struct Session<'a> {
    stream: &'a mut TcpStream,
    lines: Lines,
    control: &'a Control,
    /// Our address and the driver's.
    ends: (IpAddr, IpAddr),
    /// Whether some session of this agent has a transfer.
    transferring: &'a AtomicBool,
}

/// The place of the one transfer, free again when dropped.
struct Only<'a>(&'a AtomicBool);

impl Drop for Only<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Session<'_> {
    fn run(mut self, token: &str, slot: &Slot<'_>) -> Result<String, String> {
        self.hello(token)?;
        slot.take()?;
        self.lines.limit = LINE_MAX;
        let (mut transfers, mut looks) = (0, 0);
        while let Some(request) = self.ask()? {
            match request {
                Request::Clock {} => self.clock()?,
                Request::Transfer { setting, sends, at, sample } => {
                    self.transfer(*setting, sends, at, sample)?;
                    transfers += 1;
                }
                Request::Watch { from } => {
                    self.watch(from)?;
                    looks += 1;
                }
                // The transfer was over before the driver said so.
                Request::Stop {} => {}
                Request::Hello { .. } | Request::Report { .. } => return Err(out_of_turn()),
            }
        }
        Ok(format!("{transfers} transfers, {looks} looks at its connections"))
    }

    /// Each side shows that it has the token.
    fn hello(&mut self, token: &str) -> Result<(), String> {
        let nonce = token::random().map_err(|error| error.to_string())?;
        send(self.stream, &Reply::Challenge { version: VERSION, nonce: nonce.clone() })?;
        let (version, theirs, shown) = match self.lines.next(HELLO_MAX)? {
            Received::Message(Request::Hello { version, nonce, proof }) => (version, nonce, proof),
            Received::Message(_) => return Err("hello comes first".to_owned()),
            Received::Nothing => return Err("no message".to_owned()),
            Received::Closed => return Err("the driver left".to_owned()),
        };
        if version != VERSION {
            return Err(format!("this agent speaks version {VERSION}, not {version}"));
        }
        if !same(&shown, &proof(token, "driver", &nonce, &theirs)) {
            return Err("wrong token".to_owned());
        }
        let machine = observe::host().map_err(|error| error.to_string())?;
        let proof = proof(token, "agent", &theirs, &nonce);
        send(self.stream, &Reply::Hello { proof, name: super::driver::name(), machine })
    }

    fn clock(&mut self) -> Result<(), String> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        send(self.stream, &Reply::Clock { at: now(), wall: wall.as_secs_f64() })
    }

    /// The next request; `None` when the driver has left.
    fn ask(&mut self) -> Result<Option<Request>, String> {
        let mut waited = Duration::ZERO;
        while waited < IDLE_MAX {
            if self.control.stopped() {
                return Err("the agent was stopped".to_owned());
            }
            match self.lines.next(TICK)? {
                Received::Message(request) => return Ok(Some(request)),
                Received::Closed => return Ok(None),
                Received::Nothing => waited += TICK,
            }
        }
        Err("the driver was silent for too long".to_owned())
    }

    fn transfer(
        &mut self,
        setting: Setting,
        sends: bool,
        at: Option<IpAddr>,
        sample: bool,
    ) -> Result<(), String> {
        check(&setting)?;
        if self.transferring.swap(true, Ordering::AcqRel) {
            return Err("this agent already takes part in a transfer: try again".to_owned());
        }
        let only = Only(self.transferring);
        let text = |error: Error| error.to_string();
        let key = token::random().map_err(text)?;
        let lasts = setting.warm_up.as_secs_f64() + setting.duration.as_secs_f64();
        let at = At::Listen(at.unwrap_or(self.ends.0).to_canonical());
        let mut playing =
            Playing::start(Job { setting, sends, at, key: key.clone() }, sample).map_err(text)?;
        let port = playing.port().map_err(text)?;
        send(self.stream, &Reply::Listening { port, key })?;
        let until = now() + lasts + LATE_MAX;
        let mut ended = Ok(());
        let seen = playing.look(|pause| {
            match self.lines.next(Duration::from_secs_f64(pause)) {
                Ok(Received::Nothing) if self.control.stopped() => {
                    ended = Err("the agent was stopped".to_owned());
                }
                Ok(Received::Nothing) if now() < until => return Ok(false),
                Ok(Received::Nothing | Received::Message(Request::Stop {})) => {}
                Ok(Received::Message(_)) => ended = Err(out_of_turn()),
                Ok(Received::Closed) => ended = Err("the driver left".to_owned()),
                Err(why) => ended = Err(why),
            }
            Ok(true)
        });
        ended?;
        // Who has the report may ask for the next transfer at once.
        drop(only);
        send(self.stream, &Reply::Seen(Box::new(seen.map_err(text)?)))
    }

    /// Looks at the connections with the driver's host until the driver asks for the report.
    fn watch(&mut self, from: Vec<IpAddr>) -> Result<(), String> {
        if from.len() > ADDRESSES_MAX {
            return Err(format!("{} addresses; at most {ADDRESSES_MAX}", from.len()));
        }
        let mut addresses: BTreeSet<IpAddr> = from.iter().map(IpAddr::to_canonical).collect();
        addresses.insert(self.ends.1.to_canonical());
        send(self.stream, &Reply::Watching {})?;
        let mut heard = now();
        let until = heard + WATCH_MAX;
        let mut ended = Ok(());
        let seen = observe::peers(&addresses, |pause| {
            match self.lines.next(Duration::from_secs_f64(pause)) {
                Ok(Received::Nothing) if self.control.stopped() => {
                    ended = Err("the agent was stopped".to_owned());
                }
                Ok(Received::Nothing) => {
                    if now() - heard < IDLE_MAX.as_secs_f64() && now() < until {
                        return Ok(None);
                    }
                    ended = Err("the driver was silent for too long".to_owned());
                }
                Ok(Received::Message(Request::Clock {})) => {
                    heard = now();
                    ended = self.clock();
                    if ended.is_ok() {
                        return Ok(None);
                    }
                }
                Ok(Received::Message(Request::Report { pairs })) => return Ok(Some(cut(pairs))),
                Ok(Received::Message(_)) => ended = Err(out_of_turn()),
                Ok(Received::Closed) => ended = Err("the driver left".to_owned()),
                Err(why) => ended = Err(why),
            }
            Ok(Some(Vec::new()))
        });
        ended?;
        let observation = seen.map_err(|error| error.to_string())?;
        let unsampled = Some("the agent does not sample another's process".to_owned());
        let seen = Seen { observation, sampled: None, unsampled, busy: None };
        send(self.stream, &Reply::Seen(Box::new(seen)))
    }
}

fn cut(mut pairs: Vec<(SocketAddr, SocketAddr)>) -> Vec<(SocketAddr, SocketAddr)> {
    pairs.truncate(PAIRS_MAX);
    pairs
}

fn out_of_turn() -> String {
    "this message comes out of turn".to_owned()
}
