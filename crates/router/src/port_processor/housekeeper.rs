//! What a port processor's other threads do: open its ports, follow the kernel's links, addresses and neighbours,
//! take the control processor's commands, write the tables.

use super::answer::Own;
use super::copies::Copies;
use super::count::{Counters, STAGES, Stages};
use super::setup::{Current, Places, set_up};
use super::tables::Tables;
use super::{Change, Event, Parts, PortProcessor};
use crate::config::Config;
use crate::message::{self, Bound, Command, Report};
use lastmeter_lab::library::Library;
use lastmeter_live::dataplane::routing::{Follow, Watch, links_and_addresses, resolve};
use lastmeter_live::dataplane::{self, Frames, Shared};
use lastmeter_plugin::host::Host;
use lastmeter_wire::netlink::{Message, masked};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Frames that each port has to receive into.
const RECEIVING: usize = 1024;
/// How long to retry ports that are in use.
const HELD_BY_OTHERS: std::time::Duration = std::time::Duration::from_secs(2);

/// The channel to the port processor's thread.
struct Door {
    changes: Sender<Change>,
    pending: Arc<AtomicBool>,
    wake: OwnedFd,
}

impl Door {
    fn tell(&self, change: Change) {
        if self.changes.send(change).is_ok() {
            // It checks the flag after each batch, and sleeps only while watching the descriptor.
            self.pending.store(true, Ordering::Release);
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
    /// Waits until all changes are in effect.
    fn settle(&self) {
        let (answer, told) = channel();
        self.tell(Change::Settle(answer));
        let _ = told.recv();
    }
}

/// What the threads of a port processor share.
struct House {
    /// The active configuration, and the running plugins.
    current: Mutex<Current>,
    folder: PathBuf,
    /// The folder of its sockets.
    run: PathBuf,
    /// Setups that the port processor was told, the first one counted in.
    setups: Mutex<u64>,
    host: Arc<Host>,
    library: Arc<dyn Library + Send + Sync>,
    shared: Shared,
    tables: Mutex<Tables>,
    door: Door,
    stages: Arc<Stages>,
    copied: Arc<Copies>,
    /// Interfaces by port.
    indices: Vec<u32>,
    end: AtomicBool,
}

impl House {
    /// Changes the tables. Where one has another structure then, the port processor reads that before this returns.
    fn change<R>(&self, work: impl FnOnce(&mut Tables) -> R) -> R {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut tables);
        if let Some(readers) = tables.moved() {
            self.door.tell(Change::Tables(Box::new(readers)));
            self.door.settle();
        }
        result
    }
}

/// A descriptor that becomes readable when written to, twice.
fn bell() -> Result<(OwnedFd, OwnedFd), String> {
    use rustix::event::{EventfdFlags, eventfd};
    let said = |error: std::io::Error| format!("waking up: {error}");
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let one = eventfd(0, flags).map_err(|error| said(error.into()))?;
    let other = one.as_fd().try_clone_to_owned().map_err(said)?;
    Ok((one, other))
}

/// Runs a port processor until it is asked to stop: opens its ports, listens for the control processor at `socket`.
///
/// # Errors
/// If it cannot start.
pub fn run(
    config: Config,
    folder: &Path,
    socket: &Path,
    host: Arc<Host>,
    library: Arc<dyn Library + Send + Sync>,
) -> Result<(), String> {
    let said = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("{what}: {error}")
    };
    let (links, _) = links_and_addresses().map_err(said("the kernel's links"))?;
    let mut interfaces = Vec::new();
    for port in &config.ports {
        let wrong =
            |why: &str| format!("ports.{}: interface {:?} {why}", port.name, port.interface);
        let link = links.iter().find(|link| link.name == port.interface);
        let link = link.ok_or_else(|| wrong("is not there"))?;
        let mac = link.mac.ok_or_else(|| wrong("has no Ethernet address"))?;
        interfaces.push((link.interface, mac));
    }
    let indices: Vec<u32> = interfaces.iter().map(|(index, _)| *index).collect();
    let shared = Shared::new(config.fast).map_err(said("programs for the ports"))?;
    for (number, index) in indices.iter().enumerate() {
        shared.set_port(number as u32, *index).map_err(said("the ports' table"))?;
    }
    let run = socket.parent().unwrap_or(Path::new("."));
    let bound = Bound::default();
    let places = Places { folder, run };
    let (setup, running, _) = set_up(&config, &bound, None, places, &host)?;
    let count = config.frames + interfaces.len() * RECEIVING * 2;
    let (frames, sockets) = open(count, &shared, &interfaces)?;
    let tables = Tables::new(config.lookup);
    let readers = tables.readers();
    let (changes, from_changes) = channel();
    let (events, from_events) = channel();
    let pending = Arc::<AtomicBool>::default();
    let (wake, woken) = bell()?;
    let (attention, attended) = bell()?;
    let counts: Arc<Vec<Counters>> =
        Arc::new(indices.iter().map(|_| Counters::default()).collect());
    let stages = Arc::<Stages>::default();
    let copied = Arc::<Copies>::default();
    let parts = Parts {
        names: config.ports.iter().map(|port| port.name.clone()).collect(),
        sockets,
        frames,
        readers,
        setup,
        fast: config.fast,
        changes: from_changes,
        pending: pending.clone(),
        wake: woken,
        events,
        attention: attended,
        counts,
        stages: stages.clone(),
        copied: copied.clone(),
    };
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).map_err(said(&socket.display().to_string()))?;
    let core = config.core;
    let house = Arc::new(House {
        current: Mutex::new(Current { config, running }),
        folder: folder.to_owned(),
        run: run.to_owned(),
        setups: Mutex::new(1),
        host,
        library,
        shared,
        tables: Mutex::new(tables),
        door: Door { changes, pending, wake },
        stages,
        copied,
        indices,
        end: AtomicBool::new(false),
    });
    let kernel = {
        let house = house.clone();
        std::thread::spawn(move || follow(&house, &attention, &from_events))
    };
    {
        let house = house.clone();
        std::thread::spawn(move || listen(&house, &listener));
    }
    if let Some(core) = core {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|error| format!("core {core}: {error}"))?;
    }
    let mut processor = PortProcessor::new(parts);
    processor.run();
    house.end.store(true, Ordering::Relaxed);
    let _ = kernel.join();
    let _ = std::fs::remove_file(socket);
    Ok(())
}

/// Opens the ports. A process killed a moment ago may still hold them.
fn open(
    count: usize,
    shared: &Shared,
    interfaces: &[(u32, [u8; 6])],
) -> Result<(Frames, Vec<dataplane::Socket>), String> {
    let began = std::time::Instant::now();
    loop {
        let mut frames = Frames::new(count).map_err(|error| format!("memory: {error}"))?;
        match dataplane::frames::open(&mut frames, shared, interfaces, RECEIVING) {
            Ok(sockets) => return Ok((frames, sockets)),
            Err(error)
                if error.kind() == std::io::ErrorKind::ResourceBusy
                    && began.elapsed() < HELD_BY_OTHERS =>
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(error) => return Err(format!("opening the ports (are you root?): {error}")),
        }
    }
}

/// Follows the kernel, and executes the port processor's requests.
fn follow(house: &House, attention: &OwnedFd, events: &Receiver<Event>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut known = Known::default();
    let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut watch = None;
    while !house.end.load(Ordering::Relaxed) {
        let Some(following) = &mut watch else {
            watch = Watch::new(Follow { routes: false }).ok();
            if watch.is_none() {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            continue;
        };
        {
            let mut polled = [
                PollFd::from_borrowed_fd(following.fd(), PollFlags::IN),
                PollFd::new(attention, PollFlags::IN),
            ];
            let _ = poll(&mut polled, Some(&timeout));
        }
        let _ = rustix::io::read(attention, &mut [0u8; 8]);
        let mut asked = BTreeSet::new();
        while let Ok(event) = events.try_recv() {
            match event {
                Event::Resolve { port, address } => {
                    asked.insert((port, address));
                }
                Event::Flow { key, hop, setup } => {
                    let setups = house.setups.lock().unwrap_or_else(PoisonError::into_inner);
                    if setup == *setups {
                        let _ = house.shared.set_flow(&key, &hop);
                    }
                }
            }
        }
        for (port, address) in asked {
            let _ = resolve(house.indices[usize::from(port)], address);
        }
        let whole = following.poll(|message| heard(house, &mut known, message));
        if !matches!(whole, Ok(true)) {
            // Changes were lost, or the socket failed: read the current state again.
            watch = None;
        }
    }
}

/// The kernel's state.
#[derive(Default)]
struct Known {
    /// Addresses of each port.
    addresses: BTreeMap<u16, BTreeSet<(IpAddr, u8)>>,
    /// Ethernet addresses of neighbours.
    neighbours: BTreeMap<(u16, IpAddr), [u8; 6]>,
}

/// Handles a change in the kernel.
fn heard(house: &House, known: &mut Known, message: Message) {
    let port = |interface: u32| {
        house.indices.iter().position(|index| *index == interface).map(|at| at as u16)
    };
    match message {
        Message::Link(there, link) => {
            let (Some(port), Some(mac)) = (port(link.interface), link.mac) else { return };
            let longest = (dataplane::frames::FRAME_MAX - super::parse::ETHERNET) as u32;
            let mtu = link.mtu.min(longest) as u16;
            house.door.tell(Change::Link(port, there && link.up, mtu, mac));
            house.shared.clear_flows();
        }
        Message::Neighbour(there, neighbour) => {
            let Some(port) = port(neighbour.interface) else { return };
            let mac = neighbour.reachable().filter(|_| there);
            house.door.tell(Change::Neighbour(port, neighbour.address, mac));
            let before = match mac {
                Some(mac) => known.neighbours.insert((port, neighbour.address), mac),
                None => known.neighbours.remove(&(port, neighbour.address)),
            };
            // The fast path still has the neighbour's old address.
            if before.is_some() && before != mac {
                house.shared.clear_flows();
            }
        }
        Message::Address(there, address) => {
            // An address of any interface is for this host.
            match there {
                true => drop(house.shared.add_local(address.address)),
                false => house.shared.remove_local(address.address),
            }
            let Some(port) = port(address.interface) else { return };
            let own = known.addresses.entry(port).or_default();
            match there {
                true => own.insert((address.address, address.len)),
                false => own.remove(&(address.address, address.len)),
            };
            let network = (masked(address.address, address.len), address.len);
            let is_local = matches!(address.address, IpAddr::V6(v6) if v6.segments()[0] == 0xfe80);
            if !is_local {
                let _ = house.change(|tables| tables.attach(network, there.then_some(port)));
            }
            let first =
                |wanted: fn(&IpAddr) -> bool| own.iter().map(|(address, _)| *address).find(wanted);
            let v4 = first(IpAddr::is_ipv4);
            let v6 = own
                .iter()
                .map(|(address, _)| *address)
                .find(|address| matches!(address, IpAddr::V6(v6) if v6.segments()[0] != 0xfe80));
            let own = Own {
                v4: v4.and_then(|a| if let IpAddr::V4(a) = a { Some(a) } else { None }),
                v6: v6.and_then(|a| if let IpAddr::V6(a) = a { Some(a) } else { None }),
            };
            house.door.tell(Change::Own(port, own));
            house.shared.clear_flows();
        }
        _ => {}
    }
}

/// Serves one control processor after another.
fn listen(house: &Arc<House>, listener: &UnixListener) {
    while let Ok((stream, _)) = listener.accept() {
        // Two connections: one for commands, and one for queries.
        let house = house.clone();
        std::thread::spawn(move || obey(&house, stream));
    }
}

fn obey(house: &House, stream: UnixStream) {
    let Ok(mut reply) = stream.try_clone() else { return };
    let mut reader = std::io::BufReader::with_capacity(1 << 16, stream);
    let (mut changed, mut settled) = (false, true);
    while let Ok(Some(command)) = message::read::<Command>(&mut reader) {
        changed |= matches!(command, Command::Route { .. } | Command::Hop { .. });
        // A hop is defined before the routes that use it.
        match command {
            Command::Hop { .. } | Command::Configure { .. } => settled = false,
            Command::Route { .. } | Command::Sync if !settled => {
                house.door.settle();
                settled = true;
            }
            _ => {}
        }
        let report = match command {
            Command::Sync => Some(Report::Done),
            Command::Show(what) => Some(Report::Shown(show(house, &what).to_string())),
            Command::Lookup(addresses) => {
                let tables = house.tables.lock().unwrap_or_else(PoisonError::into_inner);
                let hop = |address| tables.lookup(address).unwrap_or(0);
                Some(Report::Found(addresses.into_iter().map(hop).collect()))
            }
            Command::Configure { text, bound } => Some(match configure(house, &text, bound) {
                Ok(took) => Report::Took(took),
                Err(why) => Report::Wrong(why),
            }),
            other => done(house, other).err().map(Report::Wrong),
        };
        if report.is_some_and(|report| message::write(&mut reply, &report).is_err()) {
            return;
        }
        // Fast-path flows may have new routes; flush once for all changes that arrived together.
        if changed && reader.buffer().is_empty() {
            house.shared.clear_flows();
            changed = false;
        }
    }
}

fn done(house: &House, command: Command) -> Result<(), String> {
    match command {
        Command::Begin => house.change(Tables::begin),
        Command::Finish => drop(house.change(Tables::finish)?),
        Command::Route { prefix, len, hop } => {
            house.change(|tables| tables.route((prefix, len), hop))?;
        }
        Command::Hop { number, to } => {
            let ports = house.indices.len();
            if number < super::hop::FIRST || to.iter().any(|next| usize::from(next.port) >= ports) {
                return Err(format!("hop {number}: no such number or port"));
            }
            house.door.tell(Change::Hop(number, to));
        }
        Command::End => house.door.tell(Change::End),
        Command::Sync | Command::Show(_) | Command::Lookup(_) | Command::Configure { .. } => {}
    }
    Ok(())
}

/// Applies a configuration, or changes nothing; how long its stages took.
fn configure(house: &House, text: &str, bound: Bound) -> Result<Vec<(String, f64)>, String> {
    let config =
        Config::parse("router.toml", text.as_bytes(), &*house.library).map_err(|problems| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })?;
    let mut current = house.current.lock().unwrap_or_else(PoisonError::into_inner);
    let names = |config: &Config| -> Vec<(String, String)> {
        config.ports.iter().map(|p| (p.name.clone(), p.interface.clone())).collect()
    };
    if names(&config) != names(&current.config) {
        return Err("ports change only when the router is started again".to_owned());
    }
    let places = Places { folder: &house.folder, run: &house.run };
    let made = set_up(&config, &bound, Some(&current), places, &house.host)?;
    house.change(|tables| tables.prefer(config.lookup))?;
    let (setup, running, mut took) = made;
    let began = std::time::Instant::now();
    *house.setups.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    house.door.tell(Change::Setup(Box::new(setup)));
    house.door.settle();
    took.push(("bind".to_owned(), began.elapsed().as_secs_f64()));
    house.shared.clear_flows();
    *current = Current { config, running };
    Ok(took)
}

/// The state, or a part of it.
fn show(house: &House, what: &str) -> Value {
    let (answer, told) = channel();
    house.door.tell(Change::Show(answer));
    let mut state = told.recv().unwrap_or_else(|_| json!({}));
    state["routes"] = {
        let tables = house.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let ((v4, v6), bytes) = (tables.len(), tables.bytes());
        json!({ "v4": v4, "v6": v6, "bytes": bytes, "lookup": tables.structures() })
    };
    let packets = house.stages.packets.load(Ordering::Relaxed);
    let spent: Vec<u64> =
        house.stages.spent.iter().map(|spent| spent.load(Ordering::Relaxed)).collect();
    state["stages"] = json!({
        "names": STAGES,
        "spent": spent,
        "packets": packets,
        "queued": house.stages.queued.load(Ordering::Relaxed),
    });
    state["cpu"] = json!(cpu());
    if what == "copies" {
        let hex = |frame: &[u8]| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let copies = house
            .copied
            .take()
            .into_iter()
            .map(|copy| json!({ "at": copy.at, "port": copy.port, "frame": hex(&copy.frame) }));
        state["frames"] = copies.collect();
    }
    if let Some(address) = what.strip_prefix("route ") {
        let found = address.parse().ok().and_then(|address| {
            house.tables.lock().unwrap_or_else(PoisonError::into_inner).lookup(address)
        });
        return json!({ "address": address, "hop": found });
    }
    state
}

/// CPU time of this process, in seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
