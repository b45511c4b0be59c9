//! Helper processes: the program runs itself again and serves requests over its standard input.
//!
//! A worker is marked by an environment variable and asks the kernel to kill it with the thread that
//! started it, so it cannot outlive the measurement, however that ends.

use crate::channel;
use crate::namespace::{self, Enter};
use crate::relay;
use crate::task::{self, Entry};
use crate::transfer::{receiver, sender};
use lastmeter_linux::link::{self, Offloads};
use lastmeter_linux::{Doing, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Tells the program that it is a helper; its value is the parent's process id.
const MARKER: &str = "LASTMETER_LIVE_WORKER";

/// The command that starts this program again, where it is not an executable of its own.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command that starts this program again, where an interpreter runs it: it must call
/// [`enter_if_asked`]. Only the first call has effect.
pub fn is_started_by(command: Vec<OsString>) {
    let _ = PROGRAM.set(command);
}

/// The niceness of helpers where the kernel allows it.
const PRIORITY: i32 = -20;

/// A request to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Get namespaces.
    Enter(Enter),
    /// Make a veth pair.
    Pair { name: String, peer_name: String, peer: u32, mtu: u32 },
    /// Bring an interface up with an MTU.
    BringUp { interface: String, mtu: u32 },
    /// Give an interface an address.
    Address { interface: String, address: Ipv4Addr, prefix: u8 },
    /// Switch an interface's offloads.
    Offloads { interface: String, offloads: Offloads },
    /// Listen, reply with the port, then receive until the sender ends.
    Receive(receiver::Job),
    /// Connect and send.
    Send(sender::Job),
    /// Forward frames until told to stop.
    Relay(relay::Job),
    /// Stop the relay.
    Stop,
    /// Measure memory and kernel.
    Calibrate,
    /// Create a TAP interface and hand over its descriptor.
    Tap { name: String, offload: lastmeter_linux::port::Offload },
    /// Open a packet socket on an interface and hand over its descriptor.
    PacketSocket { interface: String },
    /// Redirect an interface's frames to an AF_XDP socket, and hand over the link that keeps the program
    /// attached; the socket comes with the next request, which must be `XdpSocket`.
    XdpLink { interface: String },
    /// See `XdpLink`.
    XdpSocket,
    /// The index of an interface.
    Index { interface: String },
    /// Disable IPv6 in this namespace.
    OnlyIpv4,
    /// Let cores other than the emulator's process what another helper's interface receives.
    Steer { pid: u32, interface: String, cores: Vec<usize> },
    /// A kernel counter of an interface.
    Count { interface: String, count: link::Count },
    /// Send frames.
    Flood(crate::flood::Flood),
    /// Show it the interfaces of its namespace in /sys.
    SeeInterfaces,
    /// An interface's Ethernet address.
    Mac { interface: String },
    /// Set how the kernel receives at an interface.
    Knobs { interface: String, kernel: crate::receive::Kernel, core: usize, first: bool },
    /// Be one end of a transfer between two machines.
    Far(crate::remote::Job),
    /// Ask or answer in short exchanges.
    Exchange(crate::exchange::Part),
    /// Receive datagrams, with work for each.
    Take(crate::receive::Job),
    /// Count what can be done on a core that others use.
    Compete { core: usize, after: Duration, lasts: Duration, first: bool },
    /// Play a part until killed.
    Act(Box<crate::staged::Role>),
    /// Give up the priority over other programs.
    Ordinary,
    /// Do a task that another crate defines.
    Task { name: String, job: serde_json::Value },
    /// A word to a task that is being done.
    Word(serde_json::Value),
    /// Burn the CPU of this core until killed.
    Spin { core: Option<usize> },
}

/// A worker's reply.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It is done.
    Done,
    /// The receiver listens at this port.
    Listening { port: u16 },
    /// The sender is connected on every stream and waits to start.
    Connected,
    /// One end's measurements.
    End(crate::transfer::End),
    /// The relay's statistics.
    Relayed(relay::Relayed),
    /// The constants of memory and kernel, by name.
    Calibrated(Vec<(String, crate::calibrate::Constant)>),
    /// A descriptor follows.
    Descriptor,
    /// A count.
    Count(u64),
    /// What was sent.
    Flooded(crate::flood::Flooded),
    /// An Ethernet address.
    Mac([u8; 6]),
    /// What was received.
    Taken(crate::receive::Taken),
    /// What an end of short exchanges did.
    Exchanged(crate::exchange::Exchanged),
    /// A rate a second.
    Rate(f64),
    /// What came of a task that another crate defines.
    Report(serde_json::Value),
    /// It failed.
    Failed { message: String, os_error: Option<i32> },
}

/// Turns this process into a helper if it was started as one; then it never returns.
///
/// Call it first in `main`, before any thread is started, with the tasks of other crates that helpers may be given.
pub fn enter_if_asked(tasks: &[Entry]) {
    let Ok(parent) = std::env::var(MARKER) else { return };
    let ended = serve(&parent, tasks);
    std::process::exit(i32::from(ended.is_err()));
}

fn die_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).doing("tying its life to the parent's")
}

/// Raises the priority of the transfer over other programs, equally for both ends.
///
/// Only root may; otherwise quiet windows are chosen afterwards, so a refusal is not an error. The
/// kernel shares CPUs first among sessions (`sched_autogroup`), so it starts a session of its own.
pub fn take_priority() {
    // Otherwise its whole present session would gain priority.
    let alone = rustix::process::setsid().is_ok();
    let _ = rustix::process::setpriority_process(None, PRIORITY);
    if alone {
        let _ = std::fs::write("/proc/self/autogroup", PRIORITY.to_string());
    }
}

/// Undoes [`take_priority`]; the session of its own remains.
fn give_up_priority() {
    /// In a user namespace the kernel takes it only a tenth of a second after anybody's last write.
    const ATTEMPTS: usize = 20;
    const PAUSE: Duration = Duration::from_millis(20);
    let _ = rustix::process::setpriority_process(None, 0);
    for _ in 0..ATTEMPTS {
        match std::fs::write("/proc/self/autogroup", "0") {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(PAUSE);
            }
            _ => return,
        }
    }
}

fn serve(parent: &str, tasks: &[Entry]) -> Result<()> {
    die_with_parent()?;
    // The parent may have ended before the line above; then nobody would send the signal.
    let now = rustix::process::getppid().map(|p| p.as_raw_nonzero().to_string());
    if now.as_deref() != Some(parent) {
        return Ok(());
    }
    take_priority();
    let socket = lastmeter_linux::sys::standard_input_socket().doing("taking the socket")?;
    let mut socket = UnixStream::from(socket);
    while let Some(request) = channel::receive(&mut socket).doing("listening")? {
        let reply = match handle(request, &mut socket, tasks) {
            Ok(reply) => reply,
            Err(e) => failed(&e),
        };
        channel::send(&mut socket, &reply).doing("answering")?;
    }
    Ok(())
}

fn failed(error: &Error) -> Reply {
    let os_error = match error {
        Error::System { source, .. } => source.raw_os_error(),
        _ => None,
    };
    Reply::Failed { message: error.to_string(), os_error }
}

fn handle(request: Request, socket: &mut UnixStream, tasks: &[Entry]) -> Result<Reply> {
    match request {
        Request::Enter(how) => {
            namespace::enter(how)?;
            // New credentials may have cleared it.
            die_with_parent()?;
        }
        Request::Pair { name, peer_name, peer, mtu } => {
            link::make_pair(&name, &peer_name, peer, mtu)?;
        }
        Request::BringUp { interface, mtu } => link::bring_up(&interface, Some(mtu))?,
        Request::Address { interface, address, prefix } => {
            link::add_address(&interface, address, prefix)?;
        }
        Request::Offloads { interface, offloads } => offloads.apply(&interface)?,
        Request::Receive(job) => {
            let listening = receiver::listen(&job)?;
            let reply = Reply::Listening { port: listening.port };
            channel::send(socket, &reply).doing("telling the port")?;
            return receiver::run(&job, listening).map(Reply::End);
        }
        Request::Send(job) => {
            let connected = sender::connect(&job)?;
            channel::send(socket, &Reply::Connected).doing("telling the parent")?;
            return sender::run(&job, connected).map(Reply::End);
        }
        Request::Far(job) => return crate::remote::play(&job, socket).map(Reply::End),
        Request::Act(role) => crate::staged::act::act(&role, socket)?,
        Request::Ordinary => give_up_priority(),
        Request::Relay(job) => return relay::run(&job, socket).map(Reply::Relayed),
        // It was too late for what it was meant for.
        Request::Stop | Request::Word(_) => {}
        Request::Task { name, job } => {
            return task::run(tasks, &name, job, socket).map(Reply::Report);
        }
        Request::Tap { name, offload } => {
            let fd = lastmeter_linux::port::Tap::open(&name, offload)
                .doing(|| format!("making {name}"))?;
            return hand_over(socket, &fd);
        }
        Request::PacketSocket { interface } => {
            let index = link::index_of(&interface)?;
            let what = || format!("opening a packet socket on {interface}");
            return hand_over(socket, &lastmeter_linux::port::Packet::open(index).doing(what)?);
        }
        Request::XdpLink { interface } => {
            let index = link::index_of(&interface)?;
            let what = || format!("redirecting the frames of {interface} to AF_XDP");
            let (fd, link) = lastmeter_linux::port::Xdp::open(index).doing(what)?;
            let reply = hand_over(socket, &link)?;
            channel::send(socket, &reply).doing(what)?;
            // The socket comes with the next request.
            let _: Option<Request> = channel::receive(socket).doing(what)?;
            return hand_over(socket, &fd);
        }
        Request::XdpSocket => {}
        Request::Index { interface } => {
            return link::index_of(&interface).map(|index| Reply::Count(index.into()));
        }
        Request::OnlyIpv4 => {
            for which in ["all", "default"] {
                // Without IPv6 there is nothing to disable.
                let _ =
                    std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
            }
        }
        Request::Steer { pid, interface, cores } => crate::steer::steer(pid, &interface, &cores)?,
        Request::Count { interface, count } => {
            return link::count(&interface, count).map(Reply::Count);
        }
        Request::Flood(flood) => return crate::flood::run(&flood).map(Reply::Flooded),
        Request::SeeInterfaces => crate::namespace::see_interfaces()?,
        Request::Mac { interface } => return crate::receive::mac(&interface).map(Reply::Mac),
        Request::Knobs { interface, kernel, core, first } => {
            crate::receive::set(&interface, &kernel, core, first)?;
        }
        Request::Take(job) => {
            if !job.first {
                give_up_priority();
            }
            return crate::receive::take(&job, socket).map(Reply::Taken);
        }
        Request::Exchange(part) => {
            return crate::exchange::play(part, socket).map(Reply::Exchanged);
        }
        Request::Compete { core, after, lasts, first } => {
            return crate::receive::compete(core, after, lasts, first).map(Reply::Rate);
        }
        Request::Calibrate => return crate::calibrate::in_worker().map(Reply::Calibrated),
        Request::Spin { core } => {
            lastmeter_linux::cores::pin(core)?;
            channel::send(socket, &Reply::Done).doing("telling the parent")?;
            loop {
                std::hint::spin_loop();
            }
        }
    }
    Ok(Reply::Done)
}

/// Announces a descriptor and sends it; the caller's `Done` ends the exchange.
fn hand_over(socket: &mut UnixStream, fd: &OwnedFd) -> Result<Reply> {
    let what = "handing a descriptor over";
    channel::send(socket, &Reply::Descriptor).doing(what)?;
    channel::send_descriptor(socket, fd.as_fd()).doing(what)?;
    Ok(Reply::Done)
}

/// The value in a worker's next reply to the request to `doing`, if the reply is of this form.
macro_rules! reply {
    ($worker:expr, $doing:expr, $form:pat => $value:expr) => {
        match $worker.answer($doing)? {
            $form => $value,
            other => return Err($crate::channel::instead($doing, other)),
        }
    };
}
pub(crate) use reply;

/// The command that starts this program again.
///
/// # Errors
/// If the program's file is not known.
pub fn again() -> Result<Command> {
    Ok(match PROGRAM.get().and_then(|words| words.split_first()) {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        None => Command::new(std::env::current_exe().doing("finding this program's file")?),
    })
}

/// A helper process and the socket to it; dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    socket: UnixStream,
}

impl Worker {
    /// Starts this program again as a helper.
    pub(crate) fn spawn() -> Result<Worker> {
        let what = "starting a helper process";
        let (ours, theirs) = UnixStream::pair().doing(what)?;
        let mut command = again()?;
        let child = command
            .env_clear()
            .env(MARKER, std::process::id().to_string())
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .doing(what)?;
        Ok(Worker { child, socket: ours })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself, or was killed.
    pub(crate) fn ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Sends a request without waiting for the reply.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<()> {
        channel::send(&mut self.socket, request).doing("talking to a helper process")
    }

    /// Waits for the next reply to the request to `doing`.
    pub(crate) fn answer(&mut self, doing: &str) -> Result<Reply> {
        let reply = channel::receive(&mut self.socket)
            .doing(|| format!("waiting for a helper process to {doing}"))?;
        match reply {
            Some(Reply::Failed { message, os_error: Some(code) }) => Err(Error::System {
                doing: message,
                source: std::io::Error::from_raw_os_error(code),
            }),
            Some(Reply::Failed { message, os_error: None }) => {
                Err(Error::Worker { doing: doing.to_owned(), found: message })
            }
            Some(reply) => Ok(reply),
            None => Err(channel::instead(doing, "it ended")),
        }
    }

    /// Whether a reply has come, or it has ended.
    pub(crate) fn has_answered(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|found| found > 0)
    }

    /// Why it failed, if it has said so meanwhile, unasked; does not wait.
    pub(crate) fn complaint(&mut self) -> Option<String> {
        self.socket.set_nonblocking(true).ok()?;
        let said = channel::receive(&mut self.socket);
        self.socket.set_nonblocking(false).ok()?;
        match said {
            Ok(Some(Reply::Failed { message, .. })) => Some(message),
            Ok(None) => Some("it ended".to_owned()),
            _ => None,
        }
    }

    /// Makes a request whose reply is a descriptor.
    pub(crate) fn descriptor(&mut self, request: &Request) -> Result<OwnedFd> {
        self.ask(request)?;
        let doing = format!("{request:?}");
        reply!(self, &doing, Reply::Descriptor => ());
        let fd = channel::receive_descriptor(&self.socket).doing(&*doing)?;
        Ok(reply!(self, &doing, Reply::Done => fd))
    }

    /// Makes a request whose reply is a count.
    pub(crate) fn count(&mut self, request: &Request) -> Result<u64> {
        self.ask(request)?;
        Ok(reply!(self, &format!("{request:?}"), Reply::Count(count) => count))
    }

    /// Makes a request whose reply is `Done`.
    pub(crate) fn done(&mut self, request: &Request) -> Result<()> {
        self.ask(request)?;
        reply!(self, &format!("{request:?}"), Reply::Done => ());
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have exited already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
