//! What the other threads of the port processors' process do: start them, follow the kernel's links, addresses and
//! neighbours, take the control processor's commands, write the tables. All changes go to all port processors.

mod kernel;

use super::copies::Copies;
use super::count::{Counters, Stages};
use super::crossing::{AllPassed, Crossing};
use super::known::Entered;
use super::setup::{Current, Places, set_up};
use super::start::{Making, Up, bring_up, shares};
use super::state::{Pause, Seen, add_handled, cpu_of, together};
use super::tables::Tables;
use super::{Change, Event, Setup};
use crate::config::Config;
use crate::in_band::Asked;
use crate::message::{self, Bound, Command, Report};
use lastmeter_lab::library::Library;
use lastmeter_linux::dataplane::routing::{Follow, Watch, links_and_addresses, resolve};
use lastmeter_linux::dataplane::{Frames, Shared};
use lastmeter_plugin::host::Host;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The channel to a port processor's thread.
struct Door {
    changes: Sender<Change>,
    pending: Arc<AtomicBool>,
    wake: OwnedFd,
}

impl Door {
    /// Whether it is still there.
    fn tell(&self, change: Change) -> bool {
        let sent = self.changes.send(change).is_ok();
        if sent {
            // It checks the flag after each batch, and sleeps only while watching the descriptor.
            self.pending.store(true, Ordering::Release);
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
        sent
    }
}

/// A port processor as its process knows it.
struct Worker {
    name: String,
    ports: Vec<u16>,
    core: Option<usize>,
    door: Door,
    counts: Arc<Vec<Counters>>,
    stages: Arc<Stages>,
    /// Why it has ended.
    ended: Mutex<Option<String>>,
    /// Whether the control processor knows that.
    told: AtomicBool,
}

/// What the threads of the process share.
pub(super) struct House {
    /// The active configuration, and the running plugins.
    current: Mutex<Current>,
    folder: PathBuf,
    /// The folder of its sockets.
    run: PathBuf,
    pub(super) host: Arc<Host>,
    library: Arc<dyn Library + Send + Sync>,
    pub(super) shared: Shared,
    /// Flows of the programs at the ports.
    pub(super) entered: Entered,
    tables: Mutex<Tables>,
    workers: Vec<Worker>,
    pub(super) copied: Arc<Copies>,
    passed: AllPassed,
    /// Interfaces by port: their numbers and Ethernet addresses.
    pub(super) interfaces: Vec<(u32, [u8; 6])>,
    /// How the port processors came up.
    ups: Mutex<Vec<Up>>,
    end: AtomicBool,
    /// What packets have asked, and at which ports.
    asked: Mutex<Vec<(u16, Asked)>>,
    /// Messages of RSVP, and at which ports they arrived.
    signals: Mutex<Vec<(u16, Vec<u8>)>>,
}

/// Limit on them, until the control processor takes them.
const ASKED_MAX: usize = 64;
/// The same of messages of RSVP.
const SIGNALS_MAX: usize = 1024;

impl House {
    /// Changes the tables. Where one has another structure then, the port processors read that before this returns.
    fn change<R>(&self, work: impl FnOnce(&mut Tables) -> R) -> R {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut tables);
        if tables.moved().is_some() {
            self.tell(|| Change::Tables(Box::new(tables.readers())));
            self.settle();
        }
        result
    }
    /// Tells all port processors.
    fn tell(&self, change: impl Fn() -> Change) {
        for worker in &self.workers {
            worker.door.tell(change());
        }
    }
    /// Something has changed that may matter to known flows: the programs at the ports forget them. The change must
    /// have been told, or be in the tables.
    fn forget(&self) {
        self.entered.forget(&self.shared);
    }
    /// Waits until all changes are in effect.
    fn settle(&self) {
        let (answer, told) = channel();
        self.tell(|| Change::Settle(answer.clone()));
        drop(answer);
        // Until each has answered, or has ended.
        while told.recv().is_ok() {}
    }
    pub(super) fn places(&self) -> Places<'_> {
        Places { folder: &self.folder, run: &self.run }
    }
    /// A port processor has ended: it was told to, or failed.
    pub(super) fn ended(&self, number: usize, failed: Option<String>) {
        let why = failed.map_or("it was told to".to_owned(), |why| format!("it failed: {why}"));
        let worker = &self.workers[number];
        *worker.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        // Nothing goes to its ports any more.
        self.forget();
    }
    /// Port processors that have ended since this was asked last, and why.
    fn news(&self) -> Vec<String> {
        let ended = |worker: &Worker| {
            let why = worker.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
            let is_new = !worker.told.swap(true, Ordering::Relaxed);
            is_new.then(|| format!("{} has ended, its ports are down: {why}", worker.name))
        };
        self.workers.iter().filter_map(ended).collect()
    }
    fn indices(&self) -> impl Iterator<Item = u32> {
        self.interfaces.iter().map(|(index, _)| *index)
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

/// Runs port processors until they are asked to stop: opens their ports, listens for the control processor at `socket`.
///
/// # Errors
/// If they cannot start, or all have failed.
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
    let shared = Shared::new(config.fast).map_err(said("programs for the ports"))?;
    for (number, (index, _)) in interfaces.iter().enumerate() {
        shared.set_port(number as u32, *index).map_err(said("the ports' table"))?;
    }
    let (events, from_events) = channel();
    let (attention, attended) = bell()?;
    let bells: Vec<(OwnedFd, OwnedFd)> =
        config.processors.iter().map(|_| bell()).collect::<Result<_, _>>()?;
    let (wakes, woken): (Vec<OwnedFd>, Vec<OwnedFd>) = bells.into_iter().unzip();
    let ways = Crossing::between(&config, &wakes).map_err(said("waking up"))?;
    let (crossings, passed) = ways;
    let memory = Frames::shared(&shares(&config)).map_err(said("memory"))?;
    let tables = Tables::new(config.lookup);
    let (mut workers, mut makings) = (Vec::new(), Vec::new());
    let each = memory.into_iter().zip(wakes).zip(woken).zip(crossings).enumerate();
    for (number, (((frames, wake), woken), crossing)) in each {
        let processor = &config.processors[number];
        let (changes, from_changes) = channel();
        let pending = Arc::<AtomicBool>::default();
        let counts: Arc<Vec<Counters>> =
            Arc::new(interfaces.iter().map(|_| Counters::default()).collect());
        let stages = Arc::<Stages>::default();
        workers.push(Worker {
            name: processor.name.clone(),
            ports: processor.ports.clone(),
            core: processor.core,
            door: Door { changes, pending: pending.clone(), wake },
            counts: counts.clone(),
            stages: stages.clone(),
            ended: Mutex::default(),
            told: AtomicBool::new(false),
        });
        makings.push(Making {
            number,
            frames,
            readers: tables.readers(),
            changes: from_changes,
            pending,
            wake: woken,
            events: events.clone(),
            attention: attended.as_fd().try_clone_to_owned().map_err(said("waking up"))?,
            counts,
            stages,
            crossing,
        });
    }
    let _ = std::fs::remove_file(socket);
    let config = Arc::new(config);
    let house = Arc::new(House {
        current: Mutex::new(Current { config: (*config).clone(), running: BTreeMap::new() }),
        folder: folder.to_owned(),
        run: socket.parent().unwrap_or(Path::new(".")).to_owned(),
        host,
        library,
        shared,
        entered: Entered::default(),
        tables: Mutex::new(tables),
        workers,
        copied: Arc::default(),
        passed,
        interfaces,
        ups: Mutex::default(),
        end: AtomicBool::new(false),
        asked: Mutex::default(),
        signals: Mutex::default(),
    });
    let (threads, ups, running) = bring_up(&house, &config, makings)?;
    house.current.lock().unwrap_or_else(PoisonError::into_inner).running = running;
    *house.ups.lock().unwrap_or_else(PoisonError::into_inner) = ups;
    let listener = UnixListener::bind(socket).map_err(said(&socket.display().to_string()))?;
    let kernel = {
        let house = house.clone();
        std::thread::spawn(move || follow(&house, &attention, &from_events))
    };
    {
        let house = house.clone();
        std::thread::spawn(move || listen(&house, &listener));
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
    house.end.store(true, Ordering::Relaxed);
    let _ = kernel.join();
    let _ = std::fs::remove_file(socket);
    let ended = house.news().join("\n");
    if ended.contains("it failed") { Err(ended) } else { Ok(()) }
}

/// Follows the kernel, and executes the port processor's requests.
fn follow(house: &House, attention: &OwnedFd, events: &Receiver<Event>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut known = kernel::Known::default();
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
                Event::Asked { port, asked } => {
                    let mut all = house.asked.lock().unwrap_or_else(PoisonError::into_inner);
                    if all.len() < ASKED_MAX {
                        all.push((port, asked));
                    }
                }
                Event::Signal { port, packet } => {
                    let mut all = house.signals.lock().unwrap_or_else(PoisonError::into_inner);
                    if all.len() < SIGNALS_MAX {
                        all.push((port, packet));
                    }
                }
                Event::Flow { key, to, generation } => {
                    house.entered.enter(&house.shared, &key, &to, generation);
                }
            }
        }
        for (port, address) in asked {
            let _ = resolve(house.interfaces[usize::from(port)].0, address);
        }
        let whole = following.poll(|message| kernel::heard(house, &mut known, message));
        if !matches!(whole, Ok(true)) {
            // Changes were lost, or the socket failed: read the current state again.
            watch = None;
        }
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
                house.settle();
                settled = true;
            }
            _ => {}
        }
        if matches!(command, Command::Sync) {
            for news in house.news() {
                if message::write(&mut reply, &Report::Ended(news)).is_err() {
                    return;
                }
            }
        }
        let report = match command {
            Command::Sync => Some(Report::Done),
            Command::Asked => {
                let mut all = house.asked.lock().unwrap_or_else(PoisonError::into_inner);
                Some(Report::Asked(std::mem::take(&mut *all)))
            }
            Command::Signals => {
                let mut all = house.signals.lock().unwrap_or_else(PoisonError::into_inner);
                Some(Report::Signals(std::mem::take(&mut *all)))
            }
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
            house.forget();
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
            let ports = house.interfaces.len();
            if number < super::hop::FIRST || to.iter().any(|next| usize::from(next.port) >= ports) {
                return Err(format!("hop {number}: no such number or port"));
            }
            house.tell(|| Change::Hop(number, to.clone()));
        }
        Command::Stop { processor, fail } => {
            let worker = house.workers.iter().find(|worker| worker.name == processor);
            let worker = worker.ok_or_else(|| {
                let names: Vec<&str> = house.workers.iter().map(|own| own.name.as_str()).collect();
                format!("no port processor is called `{processor}`: there are {}", names.join(", "))
            })?;
            if !worker.door.tell(if fail { Change::Fail } else { Change::End }) {
                return Err(format!("`{processor}` has ended already"));
            }
        }
        Command::Refuse { port, asked } => {
            // Any of them finds the way.
            let tell = |worker: &Worker| worker.door.tell(Change::Refuse(port, asked));
            house.workers.iter().any(tell);
        }
        Command::Signal { port, to, packet } => {
            // Of a port whose port processor has ended nobody hears.
            if let Some(owner) = house.workers.iter().find(|own| own.ports.contains(&port)) {
                owner.door.tell(Change::Signal(port, to, packet));
            }
        }
        Command::End => house.tell(|| Change::End),
        Command::Sync
        | Command::Asked
        | Command::Signals
        | Command::Show(_)
        | Command::Lookup(_)
        | Command::Configure { .. } => {}
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
    let names = |config: &Config| -> Vec<(String, String, bool)> {
        config.ports.iter().map(|p| (p.name.clone(), p.interface.clone(), p.labels)).collect()
    };
    if names(&config) != names(&current.config) {
        let what = "ports, and whether they take labels,";
        return Err(format!("{what} change only when the router is started again"));
    }
    if (&config.processors, config.fabric) != (&current.config.processors, current.config.fabric) {
        let what = "port processors and the fabric";
        return Err(format!("{what} change only when the router is started again"));
    }
    let mut setups: Vec<Setup> = Vec::new();
    let mut made = (BTreeMap::new(), Vec::new());
    for number in 0..house.workers.len() {
        let host = (&*house.host, number);
        let (setup, running, took) = set_up(&config, &bound, Some(&current), house.places(), host)?;
        setups.push(setup);
        made = (running, took);
    }
    house.change(|tables| tables.prefer(config.lookup))?;
    let (running, mut took) = made;
    let began = std::time::Instant::now();
    for (worker, setup) in house.workers.iter().zip(setups) {
        worker.door.tell(Change::Setup(Box::new(setup)));
    }
    house.settle();
    took.push(("bind".to_owned(), began.elapsed().as_secs_f64()));
    house.forget();
    *current = Current { config, running };
    Ok(took)
}

/// The state, or a part of it.
fn show(house: &House, what: &str) -> Value {
    if what == "boot" {
        let ups = house.ups.lock().unwrap_or_else(PoisonError::into_inner);
        return ups.iter().map(Up::shown).collect();
    }
    if let Some(address) = what.strip_prefix("route ") {
        let found = address.parse().ok().and_then(|address| {
            house.tables.lock().unwrap_or_else(PoisonError::into_inner).lookup(address)
        });
        return json!({ "address": address, "hop": found });
    }
    let mut state = state(house);
    state["routes"] = {
        let tables = house.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let ((v4, v6), bytes) = (tables.len(), tables.bytes());
        json!({ "v4": v4, "v6": v6, "bytes": bytes, "lookup": tables.structures() })
    };
    state["copies"] = json!(house.copied.made.load(Ordering::Relaxed));
    state["copies-lost"] = json!(house.copied.lost.load(Ordering::Relaxed));
    state["cpu"] = json!(cpu_of(rustix::time::ClockId::ProcessCPUTime));
    if what == "copies" {
        let hex = |frame: &[u8]| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let copies = house
            .copied
            .take()
            .into_iter()
            .map(|copy| json!({ "at": copy.at, "port": copy.port, "frame": hex(&copy.frame) }));
        state["frames"] = copies.collect();
    }
    state
}

/// The state of all port processors, at one moment.
fn state(house: &House) -> Value {
    let current = house.current.lock().unwrap_or_else(PoisonError::into_inner);
    let names: Vec<String> = current.config.ports.iter().map(|port| port.name.clone()).collect();
    let ended = |worker: &Worker| -> Option<String> {
        worker.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    };
    let alive = house.workers.iter().filter(|worker| ended(worker).is_none()).count();
    let pause = Arc::new(Pause::new(alive));
    let asked: Vec<Receiver<Value>> = house
        .workers
        .iter()
        .map(|worker| {
            let (answer, told) = channel();
            worker.door.tell(Change::Show(answer, pause.clone()));
            told
        })
        .collect();
    let states: Vec<Option<Value>> = asked.into_iter().map(|told| told.recv().ok()).collect();
    let whole = pause.was_whole();
    let seen: Vec<Seen<'_>> = house
        .workers
        .iter()
        .zip(states)
        .map(|(worker, state)| Seen {
            name: &worker.name,
            ports: &worker.ports,
            core: worker.core,
            state,
            ended: ended(worker),
            counts: &worker.counts,
            stages: &worker.stages,
        })
        .collect();
    let mut shown = together(&names, &seen, &house.passed);
    shown["at-one-moment"] = json!(whole);
    add_handled(&mut shown, &house.shared);
    shown
}
