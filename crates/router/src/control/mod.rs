//! The control processor, which no packet passes. It boots the port processor, follows FRR and the kernel, admits
//! flows, and takes commands through a Unix socket. Restarted after a crash, it finds the port processor forwarding,
//! sends it all routes again, and sweeps stale ones.
//!
//! ```text
//! configuration --> discovery --> plugins --> port processor found or started --> routes --> flows --> ready
//!                                                                      stages of a ledger (D-23 to D-26)
//! ```
//!
//! Rows: D-05, D-24, D-27, D-37, D-40.

mod audit;
mod discovery;
mod drawing;
mod flows;
mod follow;
pub mod functions;
mod in_band;
mod in_step;
mod routes;
mod shown;
mod signal;

use crate::admission::Admission;
use crate::config::Config;
use crate::link::{Link, Start, connect};
use crate::message::{Bound, Command};
use crate::port_processor::tables::Network;
use crate::rib::{Rib, Source};
use crate::rsvp::machine;
use functions::{Fetched, Functions};
use lastmeter_base::Rate;
use lastmeter_lab::library::Library;
use lastmeter_linux::dataplane::routing::links_and_addresses;
use lastmeter_wire::netlink::{Address, masked};
use routes::{own_routes, port_of};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a restarted control processor waits for FRR to connect.
pub const CONNECTS: Duration = Duration::from_secs(120);
/// Limit on prefixes.
pub const PREFIXES_MAX: usize = 8 << 20;
/// Limit on the configurations kept for rollback.
const HISTORY_MAX: usize = 100;

/// How often flows are looked at whose route may have changed.
const LOOKS: Duration = Duration::from_secs(1);

/// A stage of booting, and how long it took.
pub type Boot = Vec<(&'static str, f64)>;
/// The stage in which port processors come up.
const BRING_UP: &str = "port processor";

/// What a port's interface says of itself.
#[derive(Clone, Debug)]
struct Found {
    /// The kernel's number of it.
    index: u32,
    mac: Option<[u8; 6]>,
    mtu: u32,
    /// Its line rate, if it tells.
    line: Option<Rate>,
}

struct State {
    config: Config,
    /// What is running, as text.
    text: String,
    history: Vec<String>,
    rib: Rib,
    link: Option<Link>,
    /// Ports by the kernel's number of their interface.
    ports: HashMap<u32, u16>,
    /// Networks to which ports are attached.
    attached: Vec<(Network, u16)>,
    boot: Boot,
    /// How each port processor came up.
    ups: Value,
    /// Changes of routes that could not be made, until they are in the audit log.
    refusals: Vec<String>,
    /// How long changes of routes take.
    in_step: in_step::InStep,
    /// When stale routes are removed, if there may be any.
    sweep_at: Option<Instant>,
    fpm_messages: u64,
    started: u32,
    /// What the ports' interfaces say of themselves.
    found: Vec<Found>,
    /// What is reserved of each port.
    admission: Admission,
    /// What the port processor was told about flows, filters and policies, and the hops that stay for it.
    bound: Bound,
    hops: Vec<u32>,
    /// Flows without what they asked for, and why.
    refused: BTreeMap<String, String>,
    /// Until when flows stay that are not refreshed.
    until: BTreeMap<String, Instant>,
    /// Modules from code servers, by plugin.
    fetched: BTreeMap<String, Fetched>,
    /// Routers that have said who they are, by port.
    heard: Vec<Vec<discovery::Heard>>,
    /// This host's addresses, and the ports that have them.
    own: Vec<(Ipv4Addr, Option<u16>)>,
    /// Tunnels that begin here, by flow.
    tunnels: BTreeMap<String, machine::State>,
    /// Paths of RSVP, and its messages.
    signalled: (Vec<machine::Shown>, machine::Counts),
}

/// A running control processor.
pub struct Control {
    state: Mutex<State>,
    file: PathBuf,
    folder: PathBuf,
    run: PathBuf,
    library: Arc<dyn Library + Send + Sync>,
    functions: Box<dyn Functions>,
    /// Changes are made one after another.
    changing: Mutex<()>,
    end: AtomicBool,
    /// Other routers have been told that it ends.
    left: AtomicBool,
}

impl Control {
    /// Boots: reads `file`, finds or starts the port processor, and sends it the state. `run` is the folder of its
    /// sockets and logs; `functions` fetches plugins that are on code servers.
    ///
    /// # Errors
    /// Errors in the file, or if the port processor cannot be started.
    pub fn boot(
        file: &Path,
        run: &Path,
        library: Arc<dyn Library + Send + Sync>,
        functions: Box<dyn Functions>,
        start: &Start,
    ) -> Result<Arc<Control>, String> {
        let began = Instant::now();
        let mut boot = Boot::new();
        let mut last = began;
        let mut lap = |boot: &mut Boot, stage| {
            let now = Instant::now();
            boot.push((stage, (now - last).as_secs_f64()));
            last = now;
        };
        let place = |error: std::io::Error| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(place)?;
        let config = parse(file, &text, &*library)?;
        let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
        let mut rib = Rib::default();
        lap(&mut boot, "configuration");
        let found = links_and_addresses().map_err(|error| format!("the kernel's links: {error}"));
        let (links, addresses) = found?;
        let mut ports = HashMap::new();
        let mut found = Vec::new();
        for (number, port) in config.ports.iter().enumerate() {
            let link = links.iter().find(|link| link.name == port.interface);
            let link = link.ok_or_else(|| {
                format!("ports.{}: interface {:?} is not there", port.name, port.interface)
            })?;
            ports.insert(link.interface, number as u16);
            let (index, line) = (link.interface, line_rate(&port.interface));
            found.push(Found { index, mac: link.mac, mtu: link.mtu, line });
        }
        let of_port = |address: &Address| {
            let network = (masked(address.address, address.len), address.len);
            ports.get(&address.interface).map(|port| (network, *port))
        };
        let attached: Vec<(Network, u16)> = addresses.iter().filter_map(of_port).collect();
        let own = addresses.iter().filter_map(|address| match address.address {
            IpAddr::V4(v4) => Some((v4, ports.get(&address.interface).copied())),
            IpAddr::V6(_) => None,
        });
        let own = own.collect();
        lap(&mut boot, "discovery");
        let mut fetched = BTreeMap::new();
        // A server that is gone does not keep a router from starting again with what it had.
        functions::fetch(&*functions, &config, (&folder, run), true, &mut fetched)?;
        if !fetched.is_empty() {
            lap(&mut boot, "plugins");
        }
        let adopted = Link::open(&run.join("data.sock")).is_ok();
        let mut link = connect(run, start)?;
        lap(&mut boot, BRING_UP);
        let ups = link.show("boot")?;
        let mut commands = Vec::new();
        for (network, to) in own_routes(&config, &folder, &attached)? {
            rib.set(network, Source::File, Some((to, 0)), &mut commands);
        }
        lap(&mut boot, "routes");
        let control = Arc::new(Control {
            state: Mutex::new(State {
                config,
                history: Vec::new(),
                rib,
                link: Some(link),
                ports,
                attached,
                boot: Boot::new(),
                ups,
                refusals: Vec::new(),
                in_step: in_step::InStep::default(),
                sweep_at: None,
                fpm_messages: 0,
                started: u32::from(!adopted),
                text: text.clone(),
                found,
                admission: Admission::default(),
                bound: Bound::default(),
                hops: Vec::new(),
                refused: BTreeMap::new(),
                until: BTreeMap::new(),
                fetched,
                heard: Vec::new(),
                own,
                tunnels: BTreeMap::new(),
                signalled: (Vec::new(), machine::Counts::default()),
            }),
            file: file.to_owned(),
            folder,
            run: run.to_owned(),
            library,
            functions,
            changing: Mutex::new(()),
            end: AtomicBool::new(false),
            left: AtomicBool::new(false),
        });
        {
            let mut state = control.lock();
            let mut all = vec![Command::Begin];
            all.extend(commands);
            let waits = adopted && (state.config.fpm.is_some() || state.config.kernel_routes);
            if !waits {
                all.push(Command::Finish);
            }
            let link = state.link.as_mut().ok_or("no port processor")?;
            link.order(&all)?;
            lap(&mut boot, "tables");
            // What flows ask for may depend on routes that FRR has not told yet: they are looked at again.
            let mut commands = Vec::new();
            let config = state.config.clone();
            let resolved = state.resolve(&config, flows::Strict::No, &mut commands)?;
            if adopted || !resolved.bound.is_empty() {
                let bound = resolved.bound.clone();
                commands.push(Command::Configure { text, bound });
                state.link.as_mut().ok_or("no port processor")?.order(&commands)?;
            }
            state.keep(resolved);
            state.time(&config);
            lap(&mut boot, "flows");
            state.boot = boot;
            let patience = if state.config.fpm.is_some() { CONNECTS } else { state.quiet() };
            state.sweep_at = waits.then(|| Instant::now() + patience);
        }
        let event = if adopted { "adopt" } else { "start" };
        control.audit(event, &json!({ "file": file.display().to_string() }));
        Ok(control)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether it was asked to stop.
    pub fn ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }
    /// Stops; with `whole`, stops the port processor too.
    pub fn end(&self, whole: bool) {
        self.end.store(true, Ordering::Relaxed);
        if whole {
            self.leave();
            if let Some(link) = &mut self.lock().link {
                let _ = link.send(&[Command::End]);
            }
        }
    }
    /// A line of the audit log.
    fn audit(&self, event: &str, what: &Value) {
        let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let line = json!({ "at": at.map_or(0, |at| at.as_secs()), "event": event, "what": what });
        let _ = audit::append(&self.run, &line.to_string(), audit::BYTES_MAX);
    }

    /// Supervises the port processor and stale routes until asked to stop. `start` restarts the port processor.
    pub fn supervise(&self, start: &Start) {
        let mut looked = Instant::now();
        let mut discovery = discovery::Discovery::new();
        while !self.ended() {
            std::thread::sleep(Duration::from_millis(100));
            self.discover(&mut discovery);
            self.expire();
            if looked.elapsed() >= LOOKS {
                looked = Instant::now();
                self.look_again();
            }
            let mut state = self.lock();
            if state.sweep_at.is_some_and(|at| Instant::now() >= at) {
                state.sweep_at = None;
                let mut commands = Vec::new();
                let swept = state.rib.sweep(Source::Fpm, &mut commands);
                commands.push(Command::Finish);
                state.tell(&commands);
                self.audit("sweep", &json!(swept));
            }
            let lost = match state.link.as_mut().map(|link| link.sync(&[])) {
                Some(Ok(mut wrong)) => {
                    wrong.append(&mut state.refusals);
                    wrong.iter().for_each(|why| self.audit("refused", &json!(why)));
                    None
                }
                Some(Err(error)) => Some(error.to_string()),
                None => Some("it cannot be reached".to_owned()),
            };
            let ended = state.link.as_mut().map(|link| std::mem::take(&mut link.ended));
            for which in ended.unwrap_or_default() {
                self.audit("port processor", &json!(which));
            }
            if let Some(why) = lost.filter(|_| !self.ended()) {
                self.audit("port processor", &json!(format!("ended ({why}); starting another")));
                let started = connect(&self.run, start);
                if let Err(why) = &started {
                    self.audit("port processor", &json!(why));
                }
                state.link = started.ok();
                if let Some(Ok(ups)) = state.link.as_mut().map(|link| link.show("boot")) {
                    state.ups = ups;
                }
                state.started += 1;
                let mut all = vec![Command::Begin];
                state.rib.all(&mut all);
                let (text, bound) = (state.text.clone(), state.bound.clone());
                all.extend([Command::Finish, Command::Configure { text, bound }]);
                state.tell(&all);
            }
        }
        discovery.end();
    }

    /// Answers a query or executes a command: `{"show": WHAT}`, `{"set": KEY, "to": VALUE}`, `{"get": KEY}`,
    /// `{"reload": true}`, `{"rollback": N}`, `{"reserve": NAME, "flow": {...}}`, `{"refresh": NAME}`,
    /// `{"release": NAME}`, `{"end": true}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn answer(&self, question: &Value) -> Result<Value, String> {
        if let Some(what) = question["show"].as_str() {
            return self.show(what);
        }
        if let Some(key) = question["get"].as_str() {
            let state = self.lock();
            let table: toml::Table = state.text.parse().map_err(|error| format!("{error}"))?;
            let mut value = toml::Value::Table(table);
            for part in key.split('.').filter(|part| !part.is_empty()) {
                value = value.get(part).cloned().ok_or(format!("nothing is called {key:?}"))?;
            }
            return serde_json::to_value(value).map_err(|error| error.to_string());
        }
        if let Some(key) = question["set"].as_str() {
            let to = question["to"].as_str().ok_or("give the value as text in `to`")?;
            let _changing = self.alone();
            let text = self.changed(key, to)?;
            self.configure(text, flows::Strict::Admission)?;
            self.audit("set", &json!({ "key": key, "to": to }));
            return Ok(json!({ "set": key }));
        }
        if question["reload"] == json!(true) {
            let text = std::fs::read_to_string(&self.file)
                .map_err(|error| format!("{}: {error}", self.file.display()))?;
            let _changing = self.alone();
            self.configure(text, flows::Strict::Admission)?;
            self.audit("reload", &json!(self.file.display().to_string()));
            return Ok(json!({ "reloaded": self.file.display().to_string() }));
        }
        if let Some(steps) = question["rollback"].as_u64() {
            let _changing = self.alone();
            let (at, text) = {
                let state = self.lock();
                let at = state.history.len().checked_sub(steps.max(1) as usize);
                let at =
                    at.ok_or(format!("only {} changes can be taken back", state.history.len()))?;
                (at, state.history[at].clone())
            };
            self.configure(text, flows::Strict::Admission)?;
            self.lock().history.truncate(at);
            self.audit("rollback", &json!(steps));
            return Ok(json!({ "rolled-back": steps }));
        }
        if let Some(answer) = self.answer_flows(question) {
            return answer;
        }
        if let Some(processor) = question["stop"].as_str() {
            let fail = question["fail"] == json!(true);
            let mut state = self.lock();
            let link = state.link.as_mut().ok_or("the port processor is being started")?;
            link.order(&[Command::Stop { processor: processor.to_owned(), fail }])?;
            self.audit("stop", &json!({ "processor": processor, "fail": fail }));
            return Ok(json!({ "stopped": processor }));
        }
        if question["end"] == json!(true) {
            self.audit("end", &json!(null));
            self.end(true);
            return Ok(json!({ "ended": true }));
        }
        Err("ask with one of show, get, set, reload, rollback, reserve, refresh, release, stop, end"
            .to_owned())
    }

    /// The running configuration with one value changed; `to` is TOML or plain text.
    fn changed(&self, key: &str, to: &str) -> Result<String, String> {
        let mut table: toml::Table =
            self.lock().text.parse().map_err(|error| format!("{error}"))?;
        let parsed = format!("value = {to}").parse::<toml::Table>();
        let value = parsed.ok().and_then(|table| table.get("value").cloned());
        let value = value.unwrap_or_else(|| toml::Value::String(to.to_owned()));
        let mut parts: Vec<&str> = key.split('.').collect();
        let last =
            parts.pop().filter(|last| !last.is_empty()).ok_or("give a key: ports.east.rate")?;
        let mut place = &mut table;
        for part in parts {
            let entry = place.entry(part).or_insert(toml::Value::Table(toml::Table::new()));
            place = entry.as_table_mut().ok_or(format!("{part} is not a table"))?;
        }
        place.insert(last.to_owned(), value);
        toml::to_string(&table).map_err(|error| error.to_string())
    }

    /// Nobody else changes anything meanwhile.
    fn alone(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a configuration, or changes nothing; returns how long each stage took.
    fn configure(
        &self,
        text: String,
        strict: flows::Strict<'_>,
    ) -> Result<Vec<(String, f64)>, String> {
        let config = parse(Path::new("router.toml"), &text, &*self.library)?;
        let mut fetched = self.lock().fetched.clone();
        let functions = &*self.functions;
        let mut took =
            functions::fetch(functions, &config, (&self.folder, &self.run), false, &mut fetched)?;
        let mut state = self.lock();
        let routes = own_routes(&config, &self.folder, &state.attached)?;
        let began = Instant::now();
        let mut commands = Vec::new();
        let resolved = state.resolve(&config, strict, &mut commands)?;
        took.push(("admission".to_owned(), began.elapsed().as_secs_f64()));
        let bound = resolved.bound.clone();
        commands.push(Command::Configure { text: text.clone(), bound });
        let link = state.link.as_mut().ok_or("the port processor is being started");
        let ordered = link.map_err(ToOwned::to_owned).and_then(|link| {
            link.order(&commands)?;
            Ok(std::mem::take(&mut link.took))
        });
        match ordered {
            Ok(stages) => took.extend(stages),
            Err(why) => {
                resolved.hops.iter().for_each(|hop| state.rib.release(*hop));
                return Err(why);
            }
        }
        let mut commands = Vec::new();
        state.rib.begin(Source::File);
        for (network, to) in routes {
            state.rib.set(network, Source::File, Some((to, 0)), &mut commands);
        }
        state.rib.sweep(Source::File, &mut commands);
        let old = std::mem::replace(&mut state.text, text);
        state.history.push(old);
        if state.history.len() > HISTORY_MAX {
            state.history.remove(0);
        }
        state.time(&config);
        (state.config, state.fetched) = (config, fetched);
        state.keep(resolved);
        let link = state.link.as_mut().ok_or("the port processor is being started")?;
        let heard = Instant::now();
        link.order(&commands)?;
        if !commands.is_empty() {
            state.in_step.measured(heard);
        }
        Ok(took)
    }

    fn show(&self, what: &str) -> Result<Value, String> {
        let mut state = self.lock();
        if what == "boot" {
            let stages = state.boot.iter().map(|(stage, s)| match *stage {
                BRING_UP => json!({ "stage": stage, "seconds": s, "processors": state.ups }),
                _ => json!({ "stage": stage, "seconds": s }),
            });
            return Ok(json!(stages.collect::<Vec<_>>()));
        }
        if what == "configuration" {
            return Ok(json!(state.text));
        }
        if what == "neighbours" {
            return Ok(state.neighbours());
        }
        let link = state.link.as_mut().ok_or("the port processor is being started")?;
        let mut shown = link.show(what)?;
        if what == "flows" || what == "labels" {
            state.show_flows(&mut shown);
        }
        if what == "labels" {
            shown["rsvp"] = state.show_signals();
        }
        if what == "drawing" {
            shown["drawing"] = state.drawn();
        }
        if let Some(hop) = shown["hop"].as_u64() {
            let next = state.rib.describe(hop as u32).unwrap_or(&[]).to_vec();
            let ports = &state.config.ports;
            let told = next.iter().map(|next| {
                let port = ports.get(usize::from(next.port)).map(|port| port.name.as_str());
                json!({ "port": port, "via": next.address })
            });
            shown["next"] = json!(told.collect::<Vec<_>>());
        }
        shown["control"] = json!({
            "routes": state.rib.len(),
            "hops": state.rib.hops(),
            "changes": state.rib.changes,
            "fpm-messages": state.fpm_messages,
            "in-step": state.in_step.shown(),
            "port-processors-started": state.started,
        });
        Ok(shown)
    }
}

impl State {
    /// Sends changes to the port processor; if it has died, [`Control::supervise`] starts another, which gets the
    /// complete state.
    fn tell(&mut self, commands: &[Command]) {
        if commands.is_empty() {
            return;
        }
        if let Some(link) = &mut self.link
            && link.send(commands).is_err()
        {
            self.link = None;
        }
    }
    /// Sends changes of routes that were heard of then, and now and then waits until they are in effect.
    fn tell_routes(&mut self, commands: &[Command], heard: Instant) {
        if commands.is_empty() || !self.in_step.wants() {
            return self.tell(commands);
        }
        match self.link.as_mut().map(|link| link.sync(commands)) {
            Some(Ok(wrong)) => {
                self.refusals.extend(wrong);
                self.in_step.measured(heard);
            }
            Some(Err(_)) => self.link = None,
            None => {}
        }
    }
    /// Silence of FRR after which the routes that it has not announced since connecting are stale.
    fn quiet(&self) -> Duration {
        Duration::from_nanos(self.config.stale_routes.as_ps() / 1000)
    }
    /// The port through which an address is reached, if it is on an attached network.
    fn port_of(&self, address: IpAddr) -> Option<u16> {
        port_of(&self.attached, address)
    }
}

/// The rate of an interface's line as its driver tells it.
fn line_rate(interface: &str) -> Option<Rate> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let mbit: u64 = text.trim().parse().ok()?;
    const UNKNOWN: u64 = u32::MAX as u64;
    (mbit > 0 && mbit < UNKNOWN).then(|| Rate::from_mbit(mbit))
}

fn parse(file: &Path, text: &str, library: &dyn Library) -> Result<Config, String> {
    let name =
        file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Config::parse(&name, text.as_bytes(), library).map_err(|problems| {
        problems.iter().map(|problem| problem.render(false)).collect::<Vec<_>>().join("\n")
    })
}
