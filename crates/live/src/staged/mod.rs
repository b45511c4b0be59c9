//! Bottlenecks made on purpose: two programs between two hosts of our own, with one thing wrong, looked at
//! as any other programs would be.
//!
//! ```text
//! [ sender: its work, its buffer ]--( relay: rate, delay, loss )--[ (proxy) --> receiver: its work, its buffer ]
//! ```
//!
//! | module  | has                                                              |
//! |---------|------------------------------------------------------------------|
//! | `act`   | the two programs and the proxy, which run until they are ended   |
//! | `work`  | what they do for each message: sleep, compute, disk, pipe, cipher |
//! | `quota` | a control group with a quota, removed afterwards                 |
//!
//! Everything ends with the observation: the programs are killed, their namespaces vanish with them.

pub(crate) mod act;
pub(crate) mod work;

pub use crate::relay::Way;
pub use work::Work;

use crate::namespace::{Enter, Hosts, INTERFACE, Isolation};
use crate::observe::{Observation, both};
use crate::relay;
use crate::worker::{Reply, Request, Worker, reply};
use lastmeter_linux::cores;
use lastmeter_linux::quota::Quota;
use lastmeter_linux::{Error, Result, wrong};
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// What the two programs say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// Message after message.
    Stream,
    /// Each message waits for a reply of this many bytes.
    Request {
        /// Bytes of the reply.
        reply: usize,
    },
    /// The same, but each message is written in two pieces (a header, then the rest).
    TwoWrites,
    /// A new connection for each message.
    Connect,
    /// The same, and its name is looked up first; the name server takes this many microseconds.
    LookUp {
        /// Microseconds for each answer.
        us: u64,
    },
    /// Datagrams.
    Udp,
    /// No network at all: each does its own work, and that is all.
    Alone,
}

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// What it does for each message.
    pub work: Work,
    /// `SO_SNDBUF` of the sender, `SO_RCVBUF` of the receiver.
    pub buffer: Option<usize>,
    /// `SO_MAX_PACING_RATE`, bits per second.
    pub pacing: Option<u64>,
    /// `TCP_NODELAY`.
    pub no_delay: bool,
    /// Bytes of each read of the receiver, where they are fewer than a message.
    pub piece: Option<usize>,
}

impl Side {
    /// One that does nothing but send or receive.
    pub const PLAIN: Side =
        Side { work: Work::None, buffer: None, pacing: None, no_delay: false, piece: None };
}

/// On which cores the programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cores {
    /// Each on its own.
    Apart,
    /// Both on one.
    One,
    /// Each on its own, and the protocols of both on a third (RPS).
    Steered,
}

/// One end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The one that sends most.
    Sender,
    /// The other.
    Receiver,
}

/// A play of two programs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Play {
    /// What they say.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub message: usize,
    /// Connections, each with a thread at both ends.
    pub connections: usize,
    /// The sender.
    pub sender: Side,
    /// The receiver.
    pub receiver: Side,
    /// BBR instead of CUBIC.
    pub bbr: bool,
    /// Three duplicates are a loss whatever was learnt of the order (RFC 5681, section 3.2), as before RACK.
    pub rigid: bool,
    /// What lies between, out and back; `None` is a plain pair of interfaces.
    pub path: Option<(Way, Way)>,
    /// Bytes of an IP packet.
    pub mtu: u32,
    /// Segments travel in batches.
    pub offload: bool,
    /// Where they run.
    pub cores: Cores,
    /// A program that keeps the core of this end busy.
    pub hog: Option<End>,
    /// The CPU time that the control group of this end gets, of a core.
    pub quota: Option<(End, f64)>,
    /// A program between, which passes every byte on, and its work.
    pub proxy: Option<Work>,
    /// Other programs keep every core busy, and these ones have no priority over them.
    pub load: bool,
    /// Seconds of looking.
    pub seconds: f64,
}

impl Play {
    /// A stream of 64 KiB messages without anything wrong.
    pub const PLAIN: Play = Play {
        pattern: Pattern::Stream,
        message: 64 << 10,
        connections: 1,
        sender: Side::PLAIN,
        receiver: Side::PLAIN,
        bbr: false,
        rigid: false,
        path: None,
        mtu: 1500,
        offload: true,
        cores: Cores::Apart,
        hog: None,
        quota: None,
        proxy: None,
        load: false,
        seconds: 2.0,
    };
}

/// The part of one program.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    pub(crate) play: Play,
    pub(crate) part: Part,
    pub(crate) core: Option<usize>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Listens here and replies with its port.
    Receiver(std::net::Ipv4Addr),
    /// Listens at an address and passes everything on to the second.
    Proxy(std::net::Ipv4Addr, SocketAddrV4),
    /// Connects to.
    Sender(SocketAddrV4),
}

/// A play that runs until it is dropped.
pub struct Running {
    hosts: Hosts,
    seconds: f64,
    /// The proxy and those who keep cores busy.
    _helpers: Vec<Worker>,
    // It comes last: the group must be empty to be removed.
    quota: Option<Quota>,
}

impl Running {
    /// Starts `play`.
    ///
    /// # Errors
    /// When namespaces or the control group that it needs cannot be made, or a program failed.
    pub fn start(play: &Play) -> Result<Running> {
        let cores = Places::of(play)?;
        let mut hosts = Hosts::open(play.path.is_some())?;
        hosts.configure(play.mtu, play.offload, false)?;
        let mut helpers = Vec::new();
        if play.load {
            hosts.sender.done(&Request::Ordinary)?;
            hosts.receiver.done(&Request::Ordinary)?;
            for core in cores::allowed()? {
                helpers.push(spin(core, true)?);
            }
        }
        if let Some(end) = play.hog {
            helpers.push(spin(cores.of_end(end), play.load)?);
        }
        if play.cores == Cores::Steered {
            for pid in [hosts.sender.pid(), hosts.receiver.pid()] {
                let (interface, cores) = (INTERFACE.to_owned(), vec![cores.steered]);
                Worker::spawn()?.done(&Request::Steer { pid, interface, cores })?;
            }
        }
        let quota = play.quota.map(|(end, share)| match end {
            End::Sender => Quota::of(hosts.sender.pid(), share),
            End::Receiver => Quota::of(hosts.receiver.pid(), share),
        });
        let quota = quota.transpose()?;
        if let (Some(relay), Some((out, back))) = (&mut hosts.relay, play.path) {
            relay.done(&Request::Relay(relay::Job { out, back }))?;
        }
        begin(play, &mut hosts, &cores, &mut helpers)?;
        Ok(Running { hosts, seconds: play.seconds, _helpers: helpers, quota })
    }

    /// Looks at the sender and at the receiver for a while.
    ///
    /// # Errors
    /// When the kernel refuses socket diagnostics, or a program failed.
    pub fn look(&mut self) -> Result<[Observation; 2]> {
        let seen = both([self.pid(End::Sender), self.pid(End::Receiver)], self.seconds)?;
        for end in [&mut self.hosts.sender, &mut self.hosts.receiver] {
            if let Some(found) = end.complaint() {
                return Err(Error::Worker { doing: "play its part".to_owned(), found });
            }
        }
        Ok(seen)
    }

    /// Lets it run for a while that nobody looks at.
    pub fn settle(&self, time: std::time::Duration) {
        std::thread::sleep(time);
    }

    /// Takes the quota of its control group away.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn lift_quota(&self) -> Result<()> {
        self.quota.as_ref().map_or(Ok(()), |quota| quota.set(None))
    }

    /// The process of one end.
    pub fn pid(&self, end: End) -> u32 {
        match end {
            End::Sender => self.hosts.sender.pid(),
            End::Receiver => self.hosts.receiver.pid(),
        }
    }
}

fn begin(play: &Play, hosts: &mut Hosts, cores: &Places, helpers: &mut Vec<Worker>) -> Result<()> {
    let address = hosts.receiver_address();
    let role = |part, core| Request::Act(Box::new(Role { play: *play, part, core: Some(core) }));
    hosts.receiver.ask(&role(Part::Receiver(address), cores.receiver))?;
    let mut port = reply!(hosts.receiver, "listen", Reply::Listening { port } => port);
    if play.proxy.is_some() {
        let mut proxy = Worker::spawn()?;
        let user = hosts.isolation == Isolation::UserNamespace;
        if hosts.isolation != Isolation::Loopback {
            proxy.done(&Request::Enter(Enter::Join { pid: hosts.receiver.pid(), user }))?;
        }
        let to = SocketAddrV4::new(address, port);
        proxy.ask(&role(Part::Proxy(address, to), cores.receiver))?;
        port = reply!(proxy, "listen", Reply::Listening { port } => port);
        helpers.push(proxy);
    }
    hosts.sender.ask(&role(Part::Sender(SocketAddrV4::new(address, port)), cores.sender))?;
    reply!(hosts.sender, "connect", Reply::Connected => ());
    Ok(())
}

fn spin(core: usize, ordinary: bool) -> Result<Worker> {
    let mut worker = Worker::spawn()?;
    if ordinary {
        worker.done(&Request::Ordinary)?;
    }
    worker.done(&Request::Spin { core: Some(core) })?;
    Ok(worker)
}

/// The cores of a play.
struct Places {
    sender: usize,
    receiver: usize,
    steered: usize,
}

impl Places {
    fn of(play: &Play) -> Result<Places> {
        let allowed = cores::allowed()?;
        let first = *allowed.first().expect("a process may run somewhere");
        let second = *allowed.get(1).unwrap_or(&first);
        Ok(match play.cores {
            Cores::Apart => Places { sender: first, receiver: second, steered: first },
            Cores::One => Places { sender: second, receiver: second, steered: first },
            Cores::Steered => {
                let Some(&steered) = allowed.get(2) else {
                    let found = format!("{} cores", allowed.len());
                    return wrong("cores", found, "three for protocols on a core of their own");
                };
                Places { sender: first, receiver: second, steered }
            }
        })
    }

    fn of_end(&self, end: End) -> usize {
        match end {
            End::Sender => self.sender,
            End::Receiver => self.receiver,
        }
    }
}
