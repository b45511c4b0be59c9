//! The control processor, which no packet passes. It boots the port processor, follows FRR and the kernel, and takes
//! commands through a Unix socket. Restarted after a crash, it finds the port processor forwarding, sends it all
//! routes again, and sweeps stale ones.
//!
//! ```text
//! configuration --> port processor found or started --> routes --> ready     stages of a ledger (D-23 to D-26)
//! ```
//!
//! Rows: D-05, D-24, D-27, D-37, D-40.

use crate::config::Config;
use crate::link::{Link, Start, connect};
use crate::message::Command;
use crate::port_processor::hop::Next;
use crate::port_processor::tables::Network;
use crate::rib::{Rib, Source, To};
use lastmeter_lab::library::Library;
use lastmeter_live::dataplane::routing::{Follow, Watch, links_and_addresses};
use lastmeter_live::files;
use lastmeter_wire::netlink::{self, Address, Gateway, Message, Route, masked};
use lastmeter_wire::routes::Routes;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Silence of FRR after which the routes that it has not announced since connecting are stale.
pub const QUIET: Duration = Duration::from_secs(10);
/// How long a restarted control processor waits for FRR to connect.
pub const CONNECTS: Duration = Duration::from_secs(120);
/// Limit on prefixes.
pub const PREFIXES_MAX: usize = 8 << 20;
/// Limit on the size of a file of routes.
const TABLE_LEN_MAX: usize = 512 << 20;
/// Limit on the configurations kept for rollback.
const HISTORY_MAX: usize = 100;

/// A stage of booting, and how long it took.
pub type Boot = Vec<(&'static str, f64)>;

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
    /// When stale routes are removed, if there may be any.
    sweep_at: Option<Instant>,
    fpm_messages: u64,
    started: u32,
}

/// A running control processor.
pub struct Control {
    state: Mutex<State>,
    file: PathBuf,
    folder: PathBuf,
    run: PathBuf,
    library: Arc<dyn Library + Send + Sync>,
    end: AtomicBool,
}

impl Control {
    /// Boots: reads `file`, finds or starts the port processor, and sends it the state. `run` is the folder of its
    /// sockets and logs.
    ///
    /// # Errors
    /// Errors in the file, or if the port processor cannot be started.
    pub fn boot(
        file: &Path,
        run: &Path,
        library: Arc<dyn Library + Send + Sync>,
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
        for (number, port) in config.ports.iter().enumerate() {
            let link = links.iter().find(|link| link.name == port.interface);
            let link = link.ok_or_else(|| {
                format!("ports.{}: interface {:?} is not there", port.name, port.interface)
            })?;
            ports.insert(link.interface, number as u16);
        }
        let of_port = |address: &Address| {
            let network = (masked(address.address, address.len), address.len);
            ports.get(&address.interface).map(|port| (network, *port))
        };
        let attached: Vec<(Network, u16)> = addresses.iter().filter_map(of_port).collect();
        lap(&mut boot, "discovery");
        let adopted = Link::open(&run.join("data.sock")).is_ok();
        let link = connect(run, start)?;
        lap(&mut boot, "port processor");
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
                sweep_at: None,
                fpm_messages: 0,
                started: u32::from(!adopted),
                text: text.clone(),
            }),
            file: file.to_owned(),
            folder,
            run: run.to_owned(),
            library,
            end: AtomicBool::new(false),
        });
        {
            let mut state = control.lock();
            let mut all = vec![Command::Begin];
            if adopted {
                all.push(Command::Configure(text));
            }
            all.extend(commands);
            let waits = adopted && (state.config.fpm.is_some() || state.config.kernel_routes);
            if !waits {
                all.push(Command::Finish);
            }
            let link = state.link.as_mut().ok_or("no port processor")?;
            link.order(&all)?;
            lap(&mut boot, "tables");
            state.boot = boot;
            let patience = if state.config.fpm.is_some() { CONNECTS } else { QUIET };
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
        if whole && let Some(link) = &mut self.lock().link {
            let _ = link.send(&[Command::End]);
        }
    }
    /// A line of the audit log.
    fn audit(&self, event: &str, what: &Value) {
        let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let line = json!({ "at": at.map_or(0, |at| at.as_secs()), "event": event, "what": what });
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.run.join("audit.jsonl"));
        if let Ok(mut file) = file {
            let _ = writeln!(file, "{line}");
        }
    }

    /// Serves FRR: one connection after another, each with a full set of routes followed by changes.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn serve_fpm(self: &Arc<Control>) -> Result<(), String> {
        let Some(address) = self.lock().config.fpm else { return Ok(()) };
        let listener =
            TcpListener::bind(address).map_err(|error| format!("fpm: {address}: {error}"))?;
        let control = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                control.audit("fpm", &json!("connected"));
                {
                    let mut state = control.lock();
                    state.rib.begin(Source::Fpm);
                    state.sweep_at = Some(Instant::now() + QUIET);
                }
                let why = control.hear_fpm(stream);
                control.audit("fpm", &json!(why));
            }
        });
        Ok(())
    }

    /// Reads one connection of FRR to its end; returns why it ended.
    fn hear_fpm(&self, mut stream: TcpStream) -> String {
        let mut buffer = vec![0; 1 << 18];
        let mut filled = 0;
        loop {
            let len = match stream.read(&mut buffer[filled..]) {
                Ok(0) => return "closed".to_owned(),
                Ok(len) => len,
                Err(error) => return error.to_string(),
            };
            filled += len;
            let mut routes = Vec::new();
            let mut at = 0;
            loop {
                match netlink::fpm(&buffer[at..filled]) {
                    Ok(Some((messages, len))) => {
                        let heard = netlink::each(messages, |message| routes.push(message));
                        if let Err(error) = heard {
                            return error.to_string();
                        }
                        at += len;
                    }
                    Ok(None) => break,
                    Err(error) => return error.to_string(),
                }
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
            if let Err(why) = self.hear(Source::Fpm, routes) {
                return why;
            }
        }
    }

    /// Routes of a source, sent to the port processor together.
    fn hear(&self, source: Source, messages: Vec<Message>) -> Result<(), String> {
        let mut state = self.lock();
        let mut commands = Vec::new();
        // FRR does not mark the end of its full set: silence for a while does.
        if source == Source::Fpm && state.sweep_at.is_some() {
            state.sweep_at = Some(Instant::now() + QUIET);
        }
        for message in messages {
            let Message::Route(there, route) = message else { continue };
            state.fpm_messages += u64::from(source == Source::Fpm);
            const MAIN: u32 = 254;
            if route.table != MAIN && route.table != 0 {
                continue;
            }
            let network = (route.prefix, route.len);
            let to = there.then(|| to(&state, &route)).flatten();
            if to.is_some() && state.rib.len() >= PREFIXES_MAX {
                return Err(format!("more than {PREFIXES_MAX} prefixes"));
            }
            state.rib.set(network, source, to.map(|to| (to, route.metric)), &mut commands);
        }
        state.tell(&commands);
        Ok(())
    }

    /// Follows the kernel's main table, if configured.
    pub fn follow_kernel(self: &Arc<Control>) {
        if !self.lock().config.kernel_routes {
            return;
        }
        let control = self.clone();
        std::thread::spawn(move || {
            while !control.ended() {
                let Ok(mut watch) = Watch::new(Follow { routes: true }) else { return };
                control.lock().rib.begin(Source::Kernel);
                let mut swept = false;
                loop {
                    let mut heard = Vec::new();
                    let whole = watch.poll(|message| {
                        // The kernel's local table is not for forwarding.
                        if let Message::Route(_, route) = &message
                            && route.kind != 2
                            && route.kind != 3
                        {
                            heard.push(message);
                        }
                    });
                    let _ = control.hear(Source::Kernel, heard);
                    if !matches!(whole, Ok(true)) || control.ended() {
                        break;
                    }
                    if watch.is_complete() && !swept {
                        swept = true;
                        let mut state = control.lock();
                        let mut commands = Vec::new();
                        state.rib.sweep(Source::Kernel, &mut commands);
                        state.tell(&commands);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
    }

    /// Supervises the port processor and stale routes until asked to stop. `start` restarts the port processor.
    pub fn supervise(&self, start: &Start) {
        while !self.ended() {
            std::thread::sleep(Duration::from_millis(100));
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
                Some(Ok(wrong)) => {
                    wrong.iter().for_each(|why| self.audit("refused", &json!(why)));
                    None
                }
                Some(Err(error)) => Some(error.to_string()),
                None => Some("it cannot be reached".to_owned()),
            };
            if let Some(why) = lost.filter(|_| !self.ended()) {
                self.audit("port processor", &json!(format!("ended ({why}); starting another")));
                let started = connect(&self.run, start);
                if let Err(why) = &started {
                    self.audit("port processor", &json!(why));
                }
                state.link = started.ok();
                state.started += 1;
                let mut all = vec![Command::Begin, Command::Configure(state.text.clone())];
                state.rib.all(&mut all);
                all.push(Command::Finish);
                state.tell(&all);
            }
        }
    }

    /// Answers a query or executes a command: `{"show": WHAT}`, `{"set": KEY, "to": VALUE}`, `{"get": KEY}`,
    /// `{"reload": true}`, `{"rollback": N}`, `{"end": true}`.
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
            let text = self.changed(key, to)?;
            self.configure(text)?;
            self.audit("set", &json!({ "key": key, "to": to }));
            return Ok(json!({ "set": key }));
        }
        if question["reload"] == json!(true) {
            let text = std::fs::read_to_string(&self.file)
                .map_err(|error| format!("{}: {error}", self.file.display()))?;
            self.configure(text)?;
            self.audit("reload", &json!(self.file.display().to_string()));
            return Ok(json!({ "reloaded": self.file.display().to_string() }));
        }
        if let Some(steps) = question["rollback"].as_u64() {
            let (at, text) = {
                let state = self.lock();
                let at = state.history.len().checked_sub(steps.max(1) as usize);
                let at =
                    at.ok_or(format!("only {} changes can be taken back", state.history.len()))?;
                (at, state.history[at].clone())
            };
            self.configure(text)?;
            self.lock().history.truncate(at);
            self.audit("rollback", &json!(steps));
            return Ok(json!({ "rolled-back": steps }));
        }
        if question["end"] == json!(true) {
            self.audit("end", &json!(null));
            self.end(true);
            return Ok(json!({ "ended": true }));
        }
        Err("ask with one of show, get, set, reload, rollback, end".to_owned())
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

    /// Applies a configuration, or changes nothing.
    fn configure(&self, text: String) -> Result<(), String> {
        let config = parse(Path::new("router.toml"), &text, &*self.library)?;
        let mut state = self.lock();
        let routes = own_routes(&config, &self.folder, &state.attached)?;
        let link = state.link.as_mut().ok_or("the port processor is being started")?;
        link.order(&[Command::Configure(text.clone())])?;
        let mut commands = Vec::new();
        state.rib.begin(Source::File);
        for (network, to) in routes {
            state.rib.set(network, Source::File, Some((to, 0)), &mut commands);
        }
        state.rib.sweep(Source::File, &mut commands);
        let link = state.link.as_mut().ok_or("the port processor is being started")?;
        link.order(&commands)?;
        let old = std::mem::replace(&mut state.text, text);
        state.history.push(old);
        if state.history.len() > HISTORY_MAX {
            state.history.remove(0);
        }
        state.config = config;
        Ok(())
    }

    fn show(&self, what: &str) -> Result<Value, String> {
        let mut state = self.lock();
        if what == "boot" {
            let stages =
                state.boot.iter().map(|(stage, s)| json!({ "stage": stage, "seconds": s }));
            return Ok(json!(stages.collect::<Vec<_>>()));
        }
        if what == "configuration" {
            return Ok(json!(state.text));
        }
        let link = state.link.as_mut().ok_or("the port processor is being started")?;
        let mut shown = link.show(what)?;
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
    /// The port through which an address is reached, if it is on an attached network.
    fn port_of(&self, address: IpAddr) -> Option<u16> {
        port_of(&self.attached, address)
    }
}

fn port_of(attached: &[(Network, u16)], address: IpAddr) -> Option<u16> {
    let holds = |(network, len): &Network| {
        network.is_ipv4() == address.is_ipv4() && masked(address, *len) == *network
    };
    let of = attached.iter().filter(|(network, _)| holds(network));
    of.max_by_key(|((_, len), _)| *len).map(|(_, port)| *port)
}

/// The target of a route of the kernel or FRR; `None` if not through our ports.
fn to(state: &State, route: &Route) -> Option<To> {
    match route.kind {
        6 => return Some(To::Blackhole),
        7 => return Some(To::Unreachable),
        8 => return Some(To::Prohibited),
        _ => {}
    }
    let next = |gateway: &Gateway| {
        let port = match gateway.interface {
            0 => state.port_of(gateway.address?)?,
            interface => *state.ports.get(&interface)?,
        };
        Some(Next { port, address: gateway.address })
    };
    let next: Vec<Next> = route.gateways.iter().filter_map(next).collect();
    (!next.is_empty()).then_some(To::Next(next))
}

/// Routes of the file and of its table.
fn own_routes(
    config: &Config,
    folder: &Path,
    attached: &[(Network, u16)],
) -> Result<Vec<(Network, To)>, String> {
    let reach = |via: IpAddr| {
        let port = port_of(attached, via);
        port.map(|port| Next { port, address: Some(via) })
            .ok_or(format!("{via} is on no network to which a port is attached"))
    };
    let mut all = Vec::new();
    for route in &config.routes {
        let to = match route.via {
            Some(via) => To::Next(vec![reach(via).map_err(|why| format!("routes.via: {why}"))?]),
            None => To::Blackhole,
        };
        all.push(((route.prefix, route.len), to));
    }
    if let Some(file) = &config.table {
        let place = |why: String| format!("{file}: {why}");
        let bytes = files::read(&folder.join(file), TABLE_LEN_MAX)?;
        let routes = Routes::parse(&bytes).map_err(|error| place(error.to_string()))?;
        if routes.next_hops.is_empty() && !routes.routes.is_empty() {
            return Err(place("next hops must be addresses of routers: 10.2.0.9".to_owned()));
        }
        let hops = routes.next_hops.iter().map(|via| Ok(To::Next(vec![reach(*via)?])));
        let hops: Vec<To> = hops.collect::<Result<_, String>>().map_err(place)?;
        for route in &routes.routes {
            let network = (route.prefix.address(), route.prefix.len());
            all.push((network, hops[route.next_hop as usize - 1].clone()));
        }
    }
    Ok(all)
}

fn parse(file: &Path, text: &str, library: &dyn Library) -> Result<Config, String> {
    let name =
        file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Config::parse(&name, text.as_bytes(), library).map_err(|problems| {
        problems.iter().map(|problem| problem.render(false)).collect::<Vec<_>>().join("\n")
    })
}
