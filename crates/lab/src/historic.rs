//! A bulk transfer between two historic hosts, described by profiles: what limited it, and what would have helped.
//!
//! ```text
//! sender [host + adapter] == the adapter's link ==> receiver [host + adapter]
//!        messages of `message`, in packets of `packet`, within the host's socket buffer
//! ```
//!
//! An adapter can be combined with the link of another, `afterburner+jetstream`: the stages of the first and the
//! link of the second (J-77).
//!
//! Enough packets are in flight to fill the socket buffer. Deviations: every packet is acknowledged, not every
//! second one; one read of the receiver takes everything in its buffer.

use crate::document::{Fault, Problem, nearest, shorten};
use crate::experiment::{ADAPTERS, Experiment, HOSTS};
use crate::library::Library;
use crate::profile;
use crate::run::{Failure, Runner, Search, explain};
use lastmeter_base::{Bytes, Duration};
use lastmeter_host::copies::{self, Stack};
use lastmeter_host::profile::{self as host, Adapter, Profile};
use lastmeter_ledger::{Connection, Ledger, Part};

/// How long the modelled transfer runs: thousands of packets, of which the start-up is far below 1 %.
pub const DURATION: Duration = Duration::from_secs(2);

/// A host with its adapter, checked to fit together.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The host's name.
    pub host_name: String,
    /// The host, without the adapter.
    pub host: Profile,
    /// The adapter's name, without that of the link if it is combined with another's.
    pub adapter_name: String,
    /// The adapter, with that link.
    pub adapter: Adapter,
}

/// Models a bulk transfer between two such hosts and explains it, with verdict and what-ifs.
///
/// ```
/// use lastmeter_base::Bytes;
/// use lastmeter_lab::library::Builtin;
/// use lastmeter_lab::run::{Runner, Watch};
/// use lastmeter_lab::historic::historic;
/// let watch = Watch::default();
/// let runner =
///     Runner { parallel: &lastmeter_engine::Serial, threads: 1, library: &Builtin, watch: &watch };
/// let (message, packet) = (Bytes::from_kib(4), Bytes::from_kib(14));
/// let ledger = historic("hp9000-730", "afterburner", message, packet, runner).unwrap();
/// let limit = ledger.verdict.unwrap().resource;
/// assert_eq!(limit.as_deref(), Some("receiver.card-to-memory"));
/// ```
///
/// # Errors
/// If there are no such profiles, or they do not fit each other, the message or the packet; says why.
pub fn historic(
    host: &str,
    adapter: &str,
    message: Bytes,
    packet: Bytes,
    runner: Runner<'_>,
) -> Result<Ledger, Failure> {
    let problems = Failure::Problems;
    let pair = Pair::read(host, adapter, runner.library).map_err(problems)?;
    let text = pair.experiment(message, packet, DURATION).map_err(problems)?;
    let name = format!("{host} with {adapter}");
    let experiment = Experiment::parse(&name, text, &[], runner.library).map_err(problems)?;
    let mut ledger = explain(&experiment, Search::Rounds, 0, runner)?.ledger;
    // Acknowledgements are not payload.
    let delivered = ledger.paths.first().map_or(0.0, |path| path.totals.goodput);
    ledger.connection = connection(&pair.adapter, delivered);
    Ok(ledger)
}

/// What connects a host, part by part, if anything of it is known (J-02, N-53).
fn connection(adapter: &Adapter, delivered: f64) -> Option<Connection> {
    let own = Part {
        name: "adapter".to_owned(),
        hosts: 1,
        price: adapter.price.map(|price| price as f64),
        power: adapter.power,
    };
    let shared = |part: &host::Part| {
        let share = |value: Option<f64>| value.map(|value| value / part.hosts as f64);
        let (price, power) = (share(part.price), share(part.power));
        Part { name: part.name.clone(), hosts: part.hosts, price, power }
    };
    let parts: Vec<Part> =
        std::iter::once(own).chain(adapter.connection.iter().map(shared)).collect();
    let known = parts.iter().any(|part| part.price.is_some() || part.power.is_some());
    known.then_some(Connection { delivered, parts })
}

/// The copies that a host makes with an adapter, `hp9000-730+afterburner`, drawn as text or as SVG (J-66).
///
/// ```
/// use lastmeter_lab::library::Builtin;
/// let drawn = lastmeter_lab::historic::copies("hp9000-730+afterburner", false, &Builtin).unwrap();
/// assert!(drawn.contains("send: copies 1, passes over data 1"));
/// ```
///
/// # Errors
/// If there are no such profiles, or they do not fit each other.
pub fn copies(name: &str, svg: bool, library: &dyn Library) -> Result<String, Vec<Problem>> {
    let (host, adapter) = name.split_once('+').unwrap_or((name, ""));
    let pair = Pair::read(host, adapter, library)?;
    let stack = Stack::of(&pair.host, &pair.adapter);
    Ok(if svg { copies::svg(&stack) } else { copies::text(&stack) })
}

impl Pair {
    /// Reads both profiles.
    ///
    /// # Errors
    /// If there are no such profiles, they contain errors, or the adapter needs stages or resources that the host
    /// does not have.
    pub fn read(host: &str, adapter: &str, library: &dyn Library) -> Result<Pair, Vec<Problem>> {
        let (adapter, link) = match adapter.split_once('+') {
            Some((adapter, link)) => (adapter, Some(link)),
            None => (adapter, None),
        };
        let (host_text, adapter_text) =
            (text(library, "--host", HOSTS, host)?, text(library, "--adapter", ADAPTERS, adapter)?);
        let (host_name, adapter_name) = (host.to_owned(), adapter.to_owned());
        let file = format!("{HOSTS}/{host}.toml");
        let host = profile::host(&file, host_text.as_bytes(), library)?;
        let file = format!("{ADAPTERS}/{adapter}.toml");
        let mut adapter = profile::adapter(&file, adapter_text.as_bytes(), &host, library)?;
        if let Some(link) = link {
            let link_text = text(library, "--adapter", ADAPTERS, link)?;
            let link = profile::link(&format!("{ADAPTERS}/{link}.toml"), link_text.as_bytes())?;
            plug(&mut adapter, link);
        }
        Ok(Pair { host_name, host, adapter_name, adapter })
    }

    /// The experiment of a bulk transfer between two such hosts, as a file would describe it.
    ///
    /// # Errors
    /// If the packet or the message is empty, the packet is too long for the adapter or the socket, or the host does
    /// not state its socket buffer.
    pub fn experiment(
        &self,
        message: Bytes,
        packet: Bytes,
        duration: Duration,
    ) -> Result<String, Vec<Problem>> {
        let (longest, adapter) = (self.adapter.packet_max, &self.adapter_name);
        let Some(buffer) = self.host.socket_buffer else {
            let found = format!("`{}` does not give its socket buffer", self.host_name);
            let right = "name a host whose profile has `socket-buffer`: it limits the window";
            return Err(vec![problem("--host", Fault::new(found, right))]);
        };
        if message == Bytes(0) {
            let fault = Fault::new("messages of 0 B carry no data", "write at least 1 B");
            return Err(vec![problem("--message", fault)]);
        }
        let most = longest.min(buffer);
        if packet == Bytes(0) || packet > most {
            let found = format!("{packet} do not fit `{adapter}` in `{}`", self.host_name);
            let right = format!(
                "write 1 B to {most}: the adapter takes packets of up to {longest}, and a socket \
                 buffers {buffer}"
            );
            return Err(vec![problem("--packet", Fault::new(found, right))]);
        }
        Ok(self.text(message, packet, buffer, duration))
    }

    fn text(&self, message: Bytes, packet: Bytes, buffer: Bytes, duration: Duration) -> String {
        let Pair { host_name: host, adapter_name, adapter, .. } = self;
        let Adapter { rate, delay, framing, .. } = adapter;
        let node = |message: Bytes| {
            let names = format!("profile = \"{host}\", adapter = \"{adapter_name}\"");
            format!("{{ host = {{ {names}, message = \"{} B\" }} }}", message.0)
        };
        let title = format!("{host} with {adapter_name}: {message} messages in {packet} packets");
        format!(
            "title = \"{title}\"\n\
             duration = \"{} ps\"\n\
             [nodes]\n\
             sender = {}\n\
             receiver = {}\n\
             [[links]]\n\
             between = [\"sender\", \"receiver\"]\n\
             rate = \"{} bit/s\"\n\
             delay = \"{} ps\"\n\
             framing = \"{} B\"\n\
             [[traffic]]\n\
             name = \"stream\"\n\
             from = \"sender\"\n\
             to = \"receiver\"\n\
             bulk = {{ size = \"{} B\", window = {}, response = \"40 B\" }}\n",
            duration.as_ps(),
            node(message),
            node(buffer),
            rate.as_bits(),
            delay.as_ps(),
            framing.0,
            packet.0,
            buffer.0 / packet.0,
        )
    }
}

/// Replaces an adapter's link by another's.
fn plug(adapter: &mut Adapter, link: profile::Link) {
    adapter.what = format!("{}, with {}", adapter.what, link.what);
    (adapter.rate, adapter.delay, adapter.framing) = (link.rate, link.delay, link.framing);
    adapter.packet_max = adapter.packet_max.min(link.packet_max);
    adapter.price = link.price.or(adapter.price);
    adapter.power = link.power.or(adapter.power);
    if !link.connection.is_empty() {
        adapter.connection = link.connection;
    }
}

/// The text of a profile named by `option`.
fn text(
    library: &dyn Library,
    option: &str,
    folder: &str,
    name: &str,
) -> Result<String, Vec<Problem>> {
    let known = library.names(folder);
    if !known.iter().any(|known| known == name) {
        let found = format!("there is no profile `{}` in {folder}", shorten(name));
        let right = format!("the profiles in {folder} are {}", known.join(", "));
        let suggestion = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        return Err(vec![problem(option, Fault { suggestion, ..Fault::new(found, right) })]);
    }
    let right = "name a readable profile";
    library.profile(folder, name).map_err(|why| vec![problem(option, Fault::new(why, right))])
}

/// An error in an option of the command line.
fn problem(option: &str, fault: Fault) -> Problem {
    Problem {
        file: option.to_owned(),
        line: 1,
        column: 1,
        key: String::new(),
        found: fault.found,
        right: fault.right,
        suggestion: fault.suggestion,
        excerpt: String::new(),
        highlight: 0..0,
    }
}
