//! The hosts of a live run: network namespaces of its own, their interfaces, and the programs that
//! run in them.
//!
//! ```text
//! namespace of a host   TAP:  [ eth0 ]-------------------- descriptor --> Port
//!                       veth: [ eth0 ]--[ lm0 ]<-- packet or XDP socket --> Port
//!                                       namespace of the switch
//! ```
//!
//! Helper processes hold the namespaces, and hand over the descriptors of TAPs and packet sockets; the
//! graph itself runs in this process, with its privileges. Whatever ends this process ends the helpers
//! and everything that they created. Programs started in a namespace may outlive that: they carry the
//! run's mark in their environment, and both the end of the run and the start of the next one
//! ([`clean`]) kill those whose run is over.

use crate::flood::{Flood, Flooded};
use crate::namespace::{Enter, Isolation, with_fewest_privileges};
use crate::worker::{Reply, Request, Worker, reply};
use lastmeter_linux::files::{private_folder, regular};
use lastmeter_linux::link::{self, Offloads};
use lastmeter_linux::port::{Offload, Packet, Port, Tap, Xdp};
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The interface that a host has.
pub const INTERFACE: &str = "eth0";
/// The environment variable that marks a run's programs.
const MARK: &str = "LASTMETER_LIVE_RUN";
/// The MTU of every created interface.
pub const MTU: u32 = 1500;

/// How frames are exchanged with a host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TAP interface.
    Tap(Offload),
    /// A veth pair with a packet socket at our end.
    Packet,
    /// A veth pair with an AF_XDP socket at our end.
    Xdp,
}

/// A host to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Prefix length of the address.
    pub prefix: u8,
}

/// The created hosts.
pub struct Site {
    hosts: Vec<(HostOptions, Worker)>,
    switch: Option<Worker>,
    isolation: Isolation,
    kind: Kind,
    run: Run,
}

impl Site {
    /// Creates the hosts, with the fewest privileges that work, and returns the port of each.
    ///
    /// # Errors
    /// When neither user namespaces nor root are available.
    pub fn open(hosts: &[HostOptions], kind: Kind) -> Result<(Site, Vec<Box<dyn Port>>)> {
        with_fewest_privileges("making network namespaces", |isolation| {
            Site::open_as(hosts, kind, isolation)
        })
    }

    /// Creates the hosts with exactly this isolation.
    ///
    /// # Errors
    /// When privileges are missing.
    pub fn open_as(
        hosts: &[HostOptions],
        kind: Kind,
        isolation: Isolation,
    ) -> Result<(Site, Vec<Box<dyn Port>>)> {
        let run = Run::begin()?;
        let mut site = Site { hosts: Vec::new(), switch: None, isolation, kind, run };
        let mut ports = Vec::new();
        for host in hosts {
            let mut worker = site.worker()?;
            worker.done(&Request::OnlyIpv4)?;
            site.hosts.push((host.clone(), worker));
        }
        if matches!(kind, Kind::Packet | Kind::Xdp) {
            let mut switch = site.worker()?;
            switch.done(&Request::OnlyIpv4)?;
            site.switch = Some(switch);
        }
        for index in 0..hosts.len() {
            ports.push(site.port(index)?);
        }
        Ok((site, ports))
    }

    /// Namespaces with these names that have only their loopback interface, until [`Site::join`] connects them.
    ///
    /// # Errors
    /// When neither user namespaces nor root are available.
    pub fn apart(names: &[String]) -> Result<Site> {
        let open = |isolation| Site::apart_as(names, isolation);
        with_fewest_privileges("making network namespaces", open)
    }

    /// [`Site::apart`] with exactly this isolation.
    ///
    /// # Errors
    /// When privileges are missing.
    pub fn apart_as(names: &[String], isolation: Isolation) -> Result<Site> {
        let run = Run::begin()?;
        let (hosts, kind) = (Vec::new(), Kind::Packet);
        let mut site = Site { hosts, switch: None, isolation, kind, run };
        for name in names {
            let mut worker = site.worker()?;
            worker.done(&Request::OnlyIpv4)?;
            let (name, address) = (name.clone(), Ipv4Addr::LOCALHOST);
            site.hosts.push((HostOptions { name, address, prefix: 8 }, worker));
        }
        Ok(site)
    }

    /// Connects two of the hosts by a veth pair, whose interfaces are called `w` and its number; returns their
    /// addresses, which only the two ends know.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn join(&mut self, number: u8, ends: [usize; 2], mtu: u32) -> Result<[Ipv4Addr; 2]> {
        let name = format!("w{number}");
        let peer = self.hosts[ends[1]].1.pid();
        let pair = Request::Pair { name: name.clone(), peer_name: name.clone(), peer, mtu };
        self.hosts[ends[0]].1.done(&pair)?;
        let addresses = [1, 2].map(|end| Ipv4Addr::new(10, 79, number, end));
        for (host, address) in ends.into_iter().zip(addresses) {
            let worker = &mut self.hosts[host].1;
            worker.done(&Request::Address { interface: name.clone(), address, prefix: 24 })?;
            worker.done(&Request::BringUp { interface: name.clone(), mtu })?;
        }
        Ok(addresses)
    }

    /// A helper with a network namespace; all helpers of a run share one user namespace.
    fn worker(&self) -> Result<Worker> {
        let mut worker = Worker::spawn()?;
        let enter = match (self.isolation, self.hosts.first()) {
            (Isolation::UserNamespace, None) => Enter::NewUser,
            (Isolation::UserNamespace, Some((_, first))) => Enter::JoinUser(first.pid()),
            _ => Enter::NetworkOnly,
        };
        worker.done(&Request::Enter(enter))?;
        Ok(worker)
    }

    /// A host's helper.
    pub(crate) fn helper(&mut self, host: usize) -> &mut Worker {
        &mut self.hosts[host].1
    }

    fn port(&mut self, index: usize) -> Result<Box<dyn Port>> {
        let (host, worker) = &mut self.hosts[index];
        let interface = INTERFACE.to_owned();
        let port: Box<dyn Port> = match self.kind {
            Kind::Tap(offload) => {
                let fd = worker.descriptor(&Request::Tap { name: interface.clone(), offload })?;
                Box::new(Tap::new(fd, offload))
            }
            Kind::Packet | Kind::Xdp => {
                let switch = self.switch.as_mut().expect("packet ports have a switch");
                let name = format!("lm{index}");
                switch.done(&Request::Pair {
                    name: name.clone(),
                    peer_name: interface.clone(),
                    peer: worker.pid(),
                    mtu: MTU,
                })?;
                switch.done(&Request::BringUp { interface: name.clone(), mtu: MTU })?;
                // A frame that passes through a packet socket loses its partial-checksum flag, and
                // a super-packet would pass as one frame.
                let offloads = Offloads { segmentation: false, gro: false, checksum: false };
                worker.done(&Request::Offloads { interface: interface.clone(), offloads })?;
                let what = || format!("a ring for {}", host.name);
                match self.kind {
                    Kind::Xdp => {
                        let index = switch.count(&Request::Index { interface: name.clone() })?;
                        let link = switch.descriptor(&Request::XdpLink { interface: name })?;
                        let fd = switch.descriptor(&Request::XdpSocket)?;
                        Box::new(Xdp::new(fd, link, index as u32, false).doing(what)?)
                    }
                    _ => {
                        let fd = switch.descriptor(&Request::PacketSocket { interface: name })?;
                        Box::new(Packet::new(fd, MTU).doing(what)?)
                    }
                }
            }
        };
        let (address, prefix) = (host.address, host.prefix);
        worker.done(&Request::Address { interface: interface.clone(), address, prefix })?;
        worker.done(&Request::BringUp { interface, mtu: MTU })?;
        Ok(port)
    }

    /// How the hosts are isolated.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Lets these cores process what the hosts receive; returns whether that was permitted, which requires root.
    pub(crate) fn steer(&mut self, cores: &[usize]) -> bool {
        let one = |(_, host): &(HostOptions, Worker)| {
            let interface = INTERFACE.to_owned();
            let request = Request::Steer { pid: host.pid(), interface, cores: cores.to_vec() };
            // A helper of its own: it keeps the privileges that a host's helper has given up.
            Worker::spawn().and_then(|mut worker| worker.done(&request)).is_ok()
        };
        self.hosts.iter().all(one)
    }

    /// Starts a program in a host, on these cores. With `alone` it gets a process group of its own, which ends
    /// with the run; otherwise it shares the terminal.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(
        &mut self,
        host: usize,
        mut command: Command,
        alone: bool,
        cores: &[usize],
    ) -> Result<Child> {
        let (options, worker) = &self.hosts[host];
        let open = |kind: &str| -> Result<OwnedFd> {
            let path = format!("/proc/{}/ns/{kind}", worker.pid());
            File::open(&path).map(OwnedFd::from).doing(|| format!("opening {path}"))
        };
        let mut joined = Vec::new();
        if self.isolation == Isolation::UserNamespace {
            joined.push(open("user")?);
        }
        joined.push(open("net")?);
        sys::run_inside(&mut command, joined, cores);
        command.env(MARK, self.run.mark());
        command.env("LASTMETER_HOST", &options.name);
        if alone {
            command.process_group(0);
        }
        let program = command.get_program().to_string_lossy().into_owned();
        command.spawn().doing(|| format!("starting `{program}` in {}", options.name))
    }

    /// Frames that a host's interface dropped because we did not take them in time.
    pub(crate) fn dropped(&mut self, host: usize) -> Result<u64> {
        self.count(host, link::Count::SendDropped)
    }

    /// Frames that have arrived at a host's interface.
    pub(crate) fn received(&mut self, host: usize) -> Result<u64> {
        self.count(host, link::Count::Received)
    }

    fn count(&mut self, host: usize, count: link::Count) -> Result<u64> {
        let interface = INTERFACE.to_owned();
        self.hosts[host].1.count(&Request::Count { interface, count })
    }

    /// Starts to send frames from a host; [`Site::flooded`] returns the result.
    pub(crate) fn flood(&mut self, host: usize, flood: Flood) -> Result<()> {
        self.hosts[host].1.ask(&Request::Flood(flood))
    }

    /// Waits until a host has sent its frames.
    pub(crate) fn flooded(&mut self, host: usize) -> Result<Flooded> {
        let worker = &mut self.hosts[host].1;
        Ok(reply!(worker, "send frames", Reply::Flooded(flooded) => flooded))
    }
}

impl Site {
    /// The hosts whose helper has ended: nothing holds their namespace any more.
    pub(crate) fn lost(&mut self) -> Vec<String> {
        let hosts = self.hosts.iter_mut();
        let ended = hosts.filter_map(|(host, worker)| worker.ended().then(|| host.name.clone()));
        let mut lost: Vec<String> = ended.collect();
        if self.switch.as_mut().is_some_and(Worker::ended) {
            lost.push("the switch".to_owned());
        }
        lost
    }

    /// The namespaces that the helpers hold, which no other may be mistaken for while they do.
    fn namespaces(&self) -> BTreeSet<PathBuf> {
        let kinds: &[&str] = match self.isolation {
            Isolation::UserNamespace => &["net", "user"],
            _ => &["net"],
        };
        let workers = self.hosts.iter().map(|(_, worker)| worker).chain(&self.switch);
        let all = workers.flat_map(|worker| {
            let of = |kind| fs::read_link(format!("/proc/{}/ns/{kind}", worker.pid())).ok();
            kinds.iter().filter_map(of)
        });
        // A helper that ended before it had entered its namespaces would name ours.
        let ours = |kind: &&str| fs::read_link(format!("/proc/self/ns/{kind}")).ok();
        let ours: BTreeSet<PathBuf> = kinds.iter().filter_map(ours).collect();
        all.filter(|name| !ours.contains(name)).collect()
    }

    /// Kills every program in the run's namespaces, until there is none, but not the helpers.
    fn end_inside(&self) {
        let namespaces = self.namespaces();
        let helpers: BTreeSet<i32> = self
            .hosts
            .iter()
            .map(|(_, worker)| worker)
            .chain(&self.switch)
            .map(|worker| worker.pid() as i32)
            .collect();
        let inside = |pid: i32, folder: &Path| {
            let is_in = |kind: &str| {
                fs::read_link(folder.join("ns").join(kind)).is_ok_and(|ns| namespaces.contains(&ns))
            };
            !helpers.contains(&pid) && (is_in("net") || is_in("user"))
        };
        // What is being started while others are killed is found the next time.
        for _ in 0..ROUNDS_MAX {
            if end_processes(inside) == 0 {
                return;
            }
        }
    }
}

/// How often the programs in a run's namespaces are looked for at its end.
const ROUNDS_MAX: usize = 100;

impl Drop for Site {
    fn drop(&mut self) {
        self.end_inside();
        end_marked(&self.run.mark());
    }
}

/// A port on an interface of this namespace that the user named, which is left unchanged: by AF_XDP
/// if `kind` says so, else by a packet socket.
///
/// # Errors
/// Without the interface, or permission to capture on it.
pub fn attach(interface: &str, kind: Kind) -> Result<Box<dyn Port>> {
    let what = || format!("opening a socket on {interface}");
    let index = link::index_of(interface)?;
    if kind == Kind::Xdp {
        let (fd, link) = Xdp::open(index).doing(what)?;
        return Ok(Box::new(Xdp::new(fd, link, index, true).doing(what)?));
    }
    let fd = Packet::open(index).doing(what)?;
    Ok(Box::new(Packet::new(fd, FRAME_MTU).doing(what)?))
}

/// Room for jumbo frames.
pub const FRAME_MTU: u32 = 9000;

/// The most files of runs of one process number.
const RUNS_MAX: usize = 10_000;

/// The file that represents a run; its lock is held while the run lives.
struct Run {
    path: PathBuf,
    _lock: File,
}

impl Run {
    fn begin() -> Result<Run> {
        let folder = folder();
        let what = || format!("writing into {}", folder.display());
        private_folder(&folder)?;
        clean();
        // A number distinguishes several runs of one process, and from what an ended one left.
        for number in 0..RUNS_MAX {
            let path = folder.join(format!("{}-{number}", std::process::id()));
            let file = match File::create_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created.doing(what)?,
            };
            // A run that starts at the same time may take the new file for one that was left behind.
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && path.exists() {
                return Ok(Run { path, _lock: file });
            }
        }
        Err(io::Error::other(format!("there are {RUNS_MAX} files of other runs"))).doing(what)
    }

    fn mark(&self) -> String {
        mark_of(&self.path)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn mark_of(path: &Path) -> String {
    path.display().to_string()
}

/// The folder of the runs' files, private to the user.
fn folder() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_dir());
    let uid = rustix::process::geteuid().as_raw();
    runtime.map_or_else(
        || PathBuf::from(format!("/tmp/lastmeter-live-{uid}")),
        |folder| folder.join("lastmeter-live"),
    )
}

/// Kills what earlier runs left behind if they could not clean up; returns the number of processes.
/// Does nothing in a folder that others can write to: their files would choose whom to kill.
pub fn clean() -> usize {
    let folder = folder();
    if !folder.exists() || private_folder(&folder).is_err() {
        return 0;
    }
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let mut ended = 0;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let Ok(file) = regular(&path) else { continue };
        // A run whose lock is held is alive.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            ended += end_marked(&mark_of(&path));
            let _ = fs::remove_file(&path);
        }
    }
    ended
}

/// Kills every process that carries this mark.
fn end_marked(mark: &str) -> usize {
    let wanted = format!("{MARK}={mark}");
    end_processes(|_, folder| {
        fs::read(folder.join("environ")).is_ok_and(|environment| {
            environment.split(|&byte| byte == 0).any(|line| line == wanted.as_bytes())
        })
    })
}

/// Kills every process for which this is true of its number and its folder in `/proc`.
fn end_processes(wanted: impl Fn(i32, &Path) -> bool) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let mut ended = 0;
    for entry in entries.filter_map(io::Result::ok) {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        if wanted(pid.as_raw_nonzero().get(), &entry.path()) {
            let _ = kill_process(pid, Signal::KILL);
            ended += 1;
        }
    }
    ended
}
