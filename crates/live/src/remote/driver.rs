//! The driver: asks an agent on another host to be the other end of a transfer, or to look at the other ends of
//! somebody's connections.

use super::ends::{At, Job};
use super::message::{self, PAIRS_MAX, Reply, Request, Seen, VERSION, check};
use super::offset::{self, Clocks, Exchange, Offset};
use super::watch::Playing;
use super::{KEY_LEN, PORT, proof};
use crate::lines::{LINE_MAX, Lines, Received, send, shown};
use crate::observe::Observation;
use crate::transfer::Setting;
use crate::transfer::meter::now;
use lastmeter_engine::Control;
use lastmeter_linux::token::{self, same};
use lastmeter_linux::{Error, Result};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Timeout for connecting to an agent.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Timeout for an agent's reply.
const REPLY_MAX: Duration = Duration::from_secs(10);
/// Timeout for the reply to a question that only shows that both are there.
const ALIVE_MAX: Duration = Duration::from_secs(1);
/// Exchanges of a group, of which the shortest tell the offset,
const EXCHANGES: usize = 16;
/// with this pause between two.
const EXCHANGE_EVERY: Duration = Duration::from_millis(4);
/// A group that takes longer than this ends early.
const EXCHANGES_MAX: Duration = Duration::from_secs(2);
/// Seconds after the planned end of a transfer for which data that is still under way is waited for.
const LATE: f64 = 1.0;

/// A transfer of our own.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// How; the placement must be free, and the agent has limits.
    pub setting: Setting,
    /// The agent sends.
    pub reverse: bool,
    /// Whether to sample the CPUs of both ends, where that is allowed.
    pub sample: bool,
}

/// Where the agent is.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The agent: a name or an address, and a port ([`PORT`] if there is none).
    pub to: String,
    /// The address of its host to which data goes, where that is another one.
    pub data: Option<IpAddr>,
}

/// An agent to which a driver is connected.
pub struct Peer {
    to: String,
    stream: TcpStream,
    lines: Lines,
    data: IpAddr,
    /// Whether `data` was given.
    elsewhere: bool,
    /// The agent's host.
    pub name: String,
    /// Its processor and kernel.
    pub machine: String,
    before: Option<(Offset, f64)>,
}

/// The name of this host.
pub(super) fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    shown(name.trim())
}

/// The addresses that a name and perhaps a port stand for.
fn resolve(to: &str) -> std::io::Result<Vec<SocketAddr>> {
    if let Ok(address) = to.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![(address, PORT).into()]);
    }
    match to.contains(':') {
        true => to.to_socket_addrs().map(Iterator::collect),
        false => (to, PORT).to_socket_addrs().map(Iterator::collect),
    }
}

impl Peer {
    /// Connects to an agent, and makes sure that both have the token.
    ///
    /// # Errors
    /// It cannot be reached, has another token, or is no agent.
    pub fn connect(at: &Addresses, token: &str) -> Result<Peer> {
        super::check_token(token)?;
        let fault = |found: String| Error::Agent { host: format!("`{}`", at.to), found };
        let io = |error: std::io::Error| fault(error.to_string());
        let mut tried = Err(fault("the name has no address".to_owned()));
        for address in resolve(&at.to).map_err(io)? {
            tried = TcpStream::connect_timeout(&address, CONNECT_MAX).map_err(|error| {
                fault(format!("{address}: {error}; is `lastmeter why --agent` running there?"))
            });
            if tried.is_ok() {
                break;
            }
        }
        let stream = tried?;
        stream.set_nodelay(true).map_err(io)?;
        let lines = Lines::new(stream.try_clone().map_err(io)?, LINE_MAX);
        let data = at.data.unwrap_or(stream.peer_addr().map_err(io)?.ip()).to_canonical();
        let (name, machine) = (String::new(), String::new());
        let (to, elsewhere) = (at.to.clone(), at.data.is_some());
        let mut peer = Peer { to, stream, lines, data, elsewhere, name, machine, before: None };
        peer.hello(token)?;
        Ok(peer)
    }

    fn hello(&mut self, token: &str) -> Result<()> {
        let theirs = match self.answer(REPLY_MAX)? {
            Reply::Challenge { version: VERSION, nonce } => nonce,
            Reply::Challenge { version, .. } => {
                return Err(self.fault(format!("it speaks version {version}, not {VERSION}")));
            }
            other => return Err(self.instead(other)),
        };
        let ours = token::random()?;
        let shown = proof(token, "driver", &theirs, &ours);
        self.ask(&Request::Hello { version: VERSION, nonce: ours.clone(), proof: shown })?;
        match self.answer(REPLY_MAX)? {
            Reply::Hello { proof: shown, name, machine } => {
                if !same(&shown, &proof(token, "agent", &ours, &theirs)) {
                    return Err(self.fault("it does not have the token".to_owned()));
                }
                (self.name, self.machine) = (name, machine);
                Ok(())
            }
            other => Err(self.instead(other)),
        }
    }

    fn fault(&self, found: String) -> Error {
        Error::Agent { host: format!("`{}`", self.to), found }
    }

    fn instead(&self, answer: Reply) -> Error {
        self.fault(match answer {
            Reply::Refused { why } => why,
            _ => "its reply is out of turn".to_owned(),
        })
    }

    fn ask(&mut self, ask: &Request) -> Result<()> {
        send(&mut self.stream, ask).map_err(|error| self.fault(error))
    }

    /// The next message, if there is one within this time.
    fn heard(&mut self, within: Duration) -> Result<Option<Reply>> {
        let heard = self.lines.next::<Value>(within).map_err(|why| self.fault(why))?;
        match heard {
            Received::Message(line) => {
                message::reply(line).map(Some).map_err(|why| self.fault(why))
            }
            Received::Nothing => Ok(None),
            Received::Closed => Err(self.fault("it closed the connection".to_owned())),
        }
    }

    fn answer(&mut self, within: Duration) -> Result<Reply> {
        match self.heard(within)? {
            Some(reply) => Ok(reply),
            None => Err(self.fault(format!("no message within {} s", within.as_secs()))),
        }
    }

    /// One exchange: of the monotonic clocks, and of the wall clocks.
    fn exchange(&mut self, within: Duration) -> Result<[Exchange; 2]> {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (sent, sent_wall) = (now(), wall().as_secs_f64());
        self.ask(&Request::Clock {})?;
        match self.answer(within)? {
            Reply::Clock { at, wall: theirs } => {
                let (answered, answered_wall) = (now(), wall().as_secs_f64());
                Ok([
                    Exchange { sent, theirs: at, answered },
                    Exchange { sent: sent_wall, theirs, answered: answered_wall },
                ])
            }
            other => Err(self.instead(other)),
        }
    }

    /// Shows the agent that its driver is there.
    ///
    /// # Errors
    /// It does not answer.
    pub fn alive(&mut self) -> Result<()> {
        self.exchange(ALIVE_MAX).map(|_| ())
    }

    /// The offset of the agent's clocks, monotonic and wall.
    fn offsets(&mut self) -> Result<[Offset; 2]> {
        let begun = Instant::now();
        let mut all = [Vec::new(), Vec::new()];
        while all[0].len() < EXCHANGES && (all[0].is_empty() || begun.elapsed() < EXCHANGES_MAX) {
            let one = self.exchange(REPLY_MAX)?;
            all.iter_mut().zip(one).for_each(|(all, one)| all.push(one));
            std::thread::sleep(EXCHANGE_EVERY);
        }
        let [monotonic, wall] = all.map(|all| offset::of(&all));
        let set = || self.fault("a clock was set during the exchanges".to_owned());
        Ok([monotonic.ok_or_else(set)?, wall.ok_or_else(set)?])
    }

    /// Compares the clocks, before something is observed.
    ///
    /// # Errors
    /// The agent is gone.
    pub fn begin(&mut self) -> Result<()> {
        let [offset, _] = self.offsets()?;
        self.before = Some((offset, now()));
        Ok(())
    }

    /// Compares them afterwards.
    ///
    /// # Errors
    /// The agent is gone.
    pub fn clocks(&mut self) -> Result<Clocks> {
        let [after, wall] = self.offsets()?;
        let (before, at) = self.before.unwrap_or((after, now()));
        Ok(Clocks { before, after, apart: now() - at, wall })
    }

    /// Makes a transfer with the agent; what was seen here and there, the latter still by the agent's clock.
    ///
    /// # Errors
    /// The agent refuses, or is gone.
    pub fn transfer(&mut self, asked: &Transfer, control: &Control) -> Result<[Seen; 2]> {
        let setting = asked.setting.clone();
        check(&setting).map_err(|why| self.fault(why))?;
        let lasts = setting.warm_up.as_secs_f64() + setting.duration.as_secs_f64() + LATE;
        self.ask(&Request::Transfer {
            setting: Box::new(setting.clone()),
            sends: asked.reverse,
            at: self.elsewhere.then_some(self.data),
            sample: asked.sample,
        })?;
        let (port, key) = match self.answer(REPLY_MAX)? {
            Reply::Listening { port, key } if key.len() == KEY_LEN => (port, key),
            other => return Err(self.instead(other)),
        };
        let at = At::Connect((self.data, port).into());
        let job = Job { setting, sends: !asked.reverse, at, key };
        let playing = Playing::start(job, asked.sample)?;
        let until = now() + lasts;
        let mut theirs = None;
        let ours = playing.look(|pause| {
            match self.heard(Duration::from_secs_f64(pause))? {
                Some(Reply::Seen(seen)) if theirs.is_none() => theirs = Some(seen),
                Some(other) => return Err(self.instead(other)),
                None => {}
            }
            Ok(control.stopped() || now() >= until)
        })?;
        let theirs = match theirs {
            Some(seen) => seen,
            None => {
                self.ask(&Request::Stop {})?;
                self.seen()?
            }
        };
        Ok([ours, *theirs])
    }

    fn seen(&mut self) -> Result<Box<Seen>> {
        match self.answer(REPLY_MAX)? {
            Reply::Seen(seen) => Ok(seen),
            other => Err(self.instead(other)),
        }
    }

    /// Lets the agent look at the sockets whose other end is at this host.
    ///
    /// # Errors
    /// It refuses, or is gone.
    pub fn watch(&mut self) -> Result<()> {
        let local = self.stream.local_addr().ok().map(|at| at.ip());
        // A socket for datagrams takes the address from which data for that host would leave.
        let any: SocketAddr = match self.data {
            IpAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
            IpAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let routed = UdpSocket::bind(any).and_then(|socket| {
            socket.connect((self.data, PORT))?;
            socket.local_addr()
        });
        let from = local.into_iter().chain(routed.ok().map(|at| at.ip())).collect();
        self.ask(&Request::Watch { from })?;
        match self.answer(REPLY_MAX)? {
            Reply::Watching {} => Ok(()),
            other => Err(self.instead(other)),
        }
    }

    /// What the agent has seen of the other ends of these connections, by the agent's clock.
    ///
    /// # Errors
    /// It is gone.
    pub fn report(&mut self, ours: &Observation) -> Result<Seen> {
        let pair = |one: &crate::observe::Observed| {
            Some((one.remote.parse().ok()?, one.local.parse().ok()?))
        };
        let pairs = ours.connections.iter().filter_map(pair).take(PAIRS_MAX).collect();
        self.ask(&Request::Report { pairs })?;
        self.seen().map(|seen| *seen)
    }

    /// The name of this host, for the ledger.
    pub fn own_name(&self) -> String {
        name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_left_out() {
        let first = |text: &str| resolve(text).unwrap()[0].to_string();
        assert_eq!(first("127.0.0.1"), format!("127.0.0.1:{PORT}"));
        assert_eq!(first("127.0.0.1:9"), "127.0.0.1:9");
        assert_eq!(first("::1"), format!("[::1]:{PORT}"));
        assert_eq!(first("[::1]:9"), "[::1]:9");
        assert!(resolve("host:port").is_err());
    }
}
