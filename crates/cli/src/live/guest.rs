//! `lastmeter live ADAPTER --guest`: a real guest on an adapter that does not exist.
//!
//! ```text
//! guest 10.77.0.2 --vhost-user--> [ adapter as described ] --cable--> eth0 10.77.0.1 of the peer, a namespace
//!                                                          --cable--> [ the same ] --> guest 10.77.0.1
//! ```
//!
//! With `--bus vfio` it is a PCI device: with registers of its own, and our driver, or, where the description has
//! `driver = "virtio"`, with those of virtio and the stock driver.
//!
//! Rows: A-03, E-44, E-60, E-97.

use super::{Arguments, Bus, stop_on_signal, time};
use crate::emulate::{self, Demand};
use crate::world::{self, Disk};
use crate::{Common, Complaint, Ended, output, results, run};
use lastmeter_base::{Bytes, Duration};
use lastmeter_engine::Control;
use lastmeter_guest::device::Device;
use lastmeter_guest::end::{GuestEnd, PortEnd};
use lastmeter_guest::hub::{End, Hub};
use lastmeter_guest::kit::{self, Guest, Kit, Network};
use lastmeter_guest::ledger::{ledger, sampled};
use lastmeter_guest::predict::{LONGEST, PING, predict};
use lastmeter_guest::vfio::front::Server;
use lastmeter_guest::vfio::function::Function;
use lastmeter_host::adapter::description::{self, Description, Side, Synchronisation};
use lastmeter_lab::document::Override;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile::device;
use lastmeter_ledger::{self as report, Ledger, Provenance, Source};
use lastmeter_linux::clock::Precedence;
use lastmeter_linux::port::{Counts, Offload, Port};
use lastmeter_live::session::{LineReport, Measured};
use lastmeter_live::site::{HostOptions, Kind, Site};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The name of the other end, for `--in`.
const PEER: &str = "peer";
/// Its address.
const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The guest's, with the length of the prefix.
const GUEST_ADDRESS: &str = "10.77.0.2/24";
const PREFIX: u8 = 24;
/// Their Ethernet addresses, which differ.
const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0x4c, 0x4d, 2];
const PEER_MAC: [u8; 6] = [0x52, 0x54, 0, 0x4c, 0x4d, 1];
/// The driver of an adapter with registers of its own.
const DRIVER: &str = "lastmeter_nic";
/// What the peer runs unless it is told something else.
const SERVER: [&str; 2] = ["iperf3", "-s"];
/// The time that a second guest may take to start.
const READY: std::time::Duration = std::time::Duration::from_secs(30);
/// The time that a guest has unless `--seconds` says otherwise.
const SECONDS: u64 = 60;
/// QEMU's niceness where the kernel allows it: before other programs, after the adapter.
const NICE: i32 = -10;
/// The longest description of an adapter.
const TEXT_MAX: u64 = 1 << 20;

/// An adapter's description, and where it is from.
struct Adapter {
    card: Description,
    source: Source,
}

/// Runs a command in a guest.
pub(super) fn live(
    common: &Common,
    arguments: &Arguments,
    control: &Arc<Control>,
) -> Result<Ended, Complaint> {
    arguments.only_a_guest()?;
    let Adapter { card, source } = adapter(common, arguments)?;
    let spin = match &arguments.spin {
        Some(text) => time(text)?,
        None if arguments.busy => Duration::MAX,
        None => Duration::ZERO,
    };
    let mut demand = if arguments.busy { Demand::BUSY } else { Demand::SLEEPING };
    if let Some(text) = &arguments.tolerance {
        demand.tolerance = time(text)?;
    }
    let kit = Kit::find().map_err(|why| Complaint(why.to_string()))?;
    stop_on_signal(control)?;
    let _precedence = Precedence::take();
    let folder = kit::Folder::new().map_err(|why| Complaint(why.to_string()))?;
    let propagation = match &arguments.propagation {
        Some(text) => time(text)?,
        None => Duration::ZERO,
    };
    let bus = arguments.bus.unwrap_or(Bus::Vhost);
    let own = bus == Bus::Vfio && card.host.driver == description::Driver::Own;
    if own && arguments.headers.is_some() {
        let right = "leave out --bus vfio, or write driver = \"virtio\" in [host-interface]";
        let why = "only a driver of virtio can be told that they are right";
        return Err(Complaint(format!("--headers leaves checksums wrong, and {why}: {right}")));
    }
    if (bus == Bus::Vfio && !kit.has_vfio()) || (own && !kit.has_module(DRIVER)) {
        let what = "a QEMU with vfio-user, or the driver of its device,";
        return Err(Complaint(kit::Error::Missing(what.to_owned()).to_string()));
    }
    let (first, network) = end(&folder, bus, ("device", GUEST_MAC), card.clone())?;
    let options = kit::Options {
        network,
        mac: Some(words(GUEST_MAC)),
        modules: own.then(|| vec![DRIVER.to_owned()]),
        address: Some(GUEST_ADDRESS.to_owned()),
        command: script(&command(common, arguments)?),
        kernel: arguments.kernel.clone().unwrap_or_default(),
        nice: Some(NICE),
        limit: std::time::Duration::from_secs(arguments.seconds.unwrap_or(SECONDS)),
        ..kit::Options::default()
    };
    let mut site = None;
    let (second, peer_network) = match arguments.two_guests {
        true => end(&folder, bus, ("peer", PEER_MAC), card)
            .map(|(end, network)| (end, Some(network)))?,
        false => (End::Port(PortEnd::new(interface(&mut site)?)), None),
    };
    let mut ends = [first, second];
    if let Some(most) = arguments.headers {
        for end in &mut ends {
            if let End::Guest(guest) = end {
                guest.device.copy_headers(Bytes(most.into()));
            }
        }
    }
    let mut hub = Hub::new(ends, propagation);
    hub.slower = arguments.slower;
    let hub = hub.start(spin);
    let hub = hub.map_err(|error| fault("starting the adapter", error))?;
    let lines = peer_lines(common, arguments)?;
    let mut others = Vec::new();
    let mut peer = None;
    if let Some(network) = peer_network {
        let mut scripts: Vec<String> = lines.iter().map(|words| script(words)).collect();
        if scripts.is_empty() {
            scripts.push(script(&SERVER.map(str::to_owned)));
        }
        let its = kit::Options {
            network,
            mac: Some(words(PEER_MAC)),
            address: Some(format!("{PEER_ADDRESS}/{PREFIX}")),
            command: scripts.join(" & "),
            // It is there before the other starts, and until that ends.
            limit: options.limit + READY,
            ..options.clone()
        };
        peer = Some(ready(&kit, &its)?);
    } else if let Some(site) = &mut site {
        others = peers(common, lines, site)?;
    }
    let ended = in_guest(common, &kit, &options, control);
    drop(peer);
    for other in &mut others {
        let _ = other.kill();
        let _ = other.wait();
    }
    let hub = hub.stop().ok_or_else(|| Complaint("the adapter's thread has panicked".into()))?;
    for end in &hub.ends {
        if let End::Guest(guest) = end {
            guest.refused.iter().for_each(|why| output::note(&format!("refused: {why}")));
        }
    }
    let ended = ended?;
    let level = Provenance::new(env!("CARGO_PKG_VERSION"), "L0");
    let provenance = Provenance {
        experiment: Source { name: format!("live --guest {}", source.name), ..source.clone() },
        profiles: vec![source],
        host: Some(emulate::machine()),
        ..level
    };
    let Some(mut ledger) = ledger(&hub, 0, PEER, provenance) else { return Ok(Ended::Short) };
    ledger.certificate = Some(emulate::certificate(&measured(&hub, &ended), demand));
    ledger.notes.extend(sampled(&ended.report));
    if let Some(device) = hub.ends[1].device() {
        let [received, sent] = device.account().frames;
        ledger.notes.push(format!("The peer's adapter: {sent} frames sent, {received} received."));
    }
    ledger.notes.push(format!(
        "The guest lasted {:.1} s from start to end, its start included.",
        ended.lasted.as_secs_f64()
    ));
    if hub.slower > 1 {
        ledger.notes.push(format!(
            "A second of the adapter lasted {0} of the guest's: times here are the adapter's, \
             what the command says is the guest's. The guest's processor appears {0} times \
             as fast.",
            hub.slower
        ));
    }
    show(common, &ledger, &ended, &hub);
    results::offer(arguments.out.as_deref(), &ledger)?;
    let kept_up = ledger.certificate.as_ref().is_some_and(|one| one.kept_up);
    Ok(match (ended.status, kept_up) {
        (0, true) => Ended::Done,
        (0, false) => Ended::Short,
        (status, _) => Ended::Status(status.clamp(1, 255) as u8),
    })
}

impl Arguments {
    /// Refuses what is of no use with a guest.
    fn only_a_guest(&self) -> Result<(), Complaint> {
        let Arguments { attach, port, strict, twin, search, films, layers, pcaps, .. } = self;
        let lists = [attach, films, pcaps].iter().any(|list| !list.is_empty());
        let flags = *strict || *twin || *search || *layers;
        if lists || flags || port.is_some() || self.pin.is_some() {
            let right = "give --set, --seconds, --busy, --spin, --tolerance, --slower, --out, \
                         --in, a command";
            return Err(Complaint(format!("--guest runs a guest on an adapter: {right}")));
        }
        Ok(())
    }
}

fn fault(doing: &str, error: std::io::Error) -> Complaint {
    Complaint(format!("{doing}: {error}"))
}

/// The described adapter: a file, or a bundled one by name.
fn adapter(common: &Common, arguments: &Arguments) -> Result<Adapter, Complaint> {
    let named = &arguments.experiment;
    let overrides = run::overrides(common, &arguments.sets)?;
    let path = Path::new(named);
    let (text, folder) = match path.is_file() {
        true => (world::read(path, TEXT_MAX, "an adapter")?, path.parent().map(Path::to_owned)),
        false => {
            let text = Builtin.profile(device::FOLDER, named).map_err(|_| {
                let names = Builtin.names(device::FOLDER).join(", ");
                Complaint(format!("there is no adapter `{named}`: name a file, or one of {names}"))
            })?;
            (text.as_bytes().to_vec(), None)
        }
    };
    let card = device::changed(named, &text, &overrides, &Disk::new(folder))
        .map_err(|problems| run::complaint(common, &problems))?;
    if card.host.synchronisation == Synchronisation::Poll {
        let right = "write synchronisation = \"interrupt\" or \"mixed\" in [host-interface]";
        return Err(Complaint(format!("a stock driver needs interrupts: {right}")));
    }
    let changes: String = overrides.iter().map(Override::text).collect();
    let hash = lastmeter_lab::digest([&text[..], changes.as_bytes()].concat());
    Ok(Adapter { card, source: Source { name: named.clone(), hash } })
}

/// The words of the guest's command.
fn command(common: &Common, arguments: &Arguments) -> Result<Vec<String>, Complaint> {
    let programs = super::programs::programs(common, arguments, false)?;
    let leads = programs.into_iter().find(|program| program.leads);
    leads.map(|program| program.words).ok_or_else(|| {
        let right = "write it after `--`, like -- ping -c 5 10.77.0.1";
        Complaint(format!("--guest needs a command to run in the guest: {right}"))
    })
}

/// The words as a line of the guest's shell.
fn script(words: &[String]) -> String {
    words.iter().map(|word| kit::quoted(word)).collect::<Vec<_>>().join(" ")
}

/// An Ethernet address in words.
fn words(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// An adapter, and how its guest reaches it.
fn end(
    folder: &kit::Folder,
    bus: Bus,
    (name, mac): (&str, [u8; 6]),
    card: Description,
) -> Result<(End, Network), Complaint> {
    let socket = folder.path().join(name);
    let function = match card.host.driver {
        description::Driver::Own => Function::simple(mac),
        description::Driver::Virtio => Function::virtio(mac),
    };
    let made = UnixListener::bind(&socket).and_then(|listener| match bus {
        Bus::Vhost => GuestEnd::new(listener, card),
        Bus::Vfio => GuestEnd::behind(Box::new(Server::new(function)), listener, card),
    });
    let guest = made.map_err(|error| fault("opening a socket", error))?;
    let network = match bus {
        Bus::Vhost => Network::VhostUser(socket),
        Bus::Vfio => Network::VfioUser(socket),
    };
    Ok((End::Guest(Box::new(guest)), network))
}

/// The interface of a namespace, which is made for it.
fn interface(site: &mut Option<Site>) -> Result<Box<dyn Port>, Complaint> {
    let host = HostOptions { name: PEER.to_owned(), address: PEER_ADDRESS, prefix: PREFIX };
    let opened = Site::open(&[host], Kind::Tap(Offload::None));
    let (made, mut ports) = opened.map_err(|error| Complaint(error.to_string()))?;
    *site = Some(made);
    ports.pop().ok_or_else(|| Complaint("the peer has no interface".into()))
}

/// A second guest, whose command is about to start.
fn ready(kit: &Kit, options: &kit::Options) -> Result<Guest, Complaint> {
    let complain = |error: kit::Error| Complaint(format!("the peer: {error}"));
    let mut guest = Guest::start(kit, options).map_err(complain)?;
    guest.until(|guest| guest.report().ready).map_err(complain)?;
    Ok(guest)
}

/// The programs of `--in peer`.
fn peer_lines(common: &Common, arguments: &Arguments) -> Result<Vec<Vec<String>>, Complaint> {
    let programs = super::programs::programs(common, arguments, false)?;
    let others = programs.into_iter().filter(|program| !program.leads);
    others
        .map(|program| match program.host.as_deref() {
            Some(PEER) => Ok(program.words),
            other => {
                let other = other.unwrap_or_default();
                Err(Complaint(format!("there is no host `{other}`: write --in {PEER}")))
            }
        })
        .collect()
}

/// Starts the peer's programs in its namespace, or a server of iperf3 where there is one.
fn peers(
    common: &Common,
    mut lines: Vec<Vec<String>>,
    site: &mut Site,
) -> Result<Vec<Child>, Complaint> {
    let given = !lines.is_empty();
    if !given {
        lines.push(SERVER.map(str::to_owned).to_vec());
    }
    let cores = lastmeter_linux::clock::WaitOptions::SLEEPING.others();
    let cores = cores.map_err(|error| Complaint(error.to_string()))?;
    let mut started = Vec::new();
    for words in lines {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        if common.json || !given {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        match site.spawn(0, command, true, &cores) {
            Ok(child) => started.push(child),
            Err(error) if given => return Err(Complaint(error.to_string())),
            // Whoever needs no server needs none here.
            Err(_) => {}
        }
    }
    Ok(started)
}

/// Runs the guest, and shows what its command writes.
fn in_guest(
    common: &Common,
    kit: &Kit,
    options: &kit::Options,
    control: &Control,
) -> Result<kit::Ended, Complaint> {
    let complain = |error: kit::Error| Complaint(error.to_string());
    let mut guest = Guest::start(kit, options).map_err(complain)?;
    let mut shown = 0;
    let mut show = |text: String, all: bool| {
        let end = if all { text.len() } else { text.rfind('\n').map_or(0, |at| at + 1) };
        if let Some(lines) = text.get(shown..end).filter(|lines| !lines.is_empty() && !common.json)
        {
            output::print(lines.trim_end_matches('\n'));
            shown = end;
        }
    };
    let stopped = guest
        .until(|guest| {
            show(guest.output(), false);
            if control.stopped() {
                return Some(true);
            }
            guest.report().status.map(|_| false)
        })
        .map_err(complain)?;
    if stopped {
        return Err(Complaint("stopped before the guest's command had ended".into()));
    }
    let ended = guest.wait().map_err(complain)?;
    show(ended.output.clone(), true);
    Ok(ended)
}

/// What a certificate is about.
fn measured(hub: &Hub, ended: &kit::Ended) -> Measured {
    let report = &hub.report;
    let counts = match &hub.ends[1] {
        End::Port(port) => port.counts,
        End::Guest(_) => Counts::default(),
    };
    let overruns = counts.refused + counts.overrun + hub.cables.iter().map(|c| c.lost).sum::<u64>();
    let lag = report.lag.clone();
    Measured {
        lines: vec![LineReport { name: PEER.to_owned(), counts, lag: lag.clone(), gone: false }],
        lag,
        deadlines: Default::default(),
        overruns,
        elapsed: report.elapsed,
        receiving: 0.0,
        sending: 0.0,
        waiting: report.waited,
        cpu: report.cpu,
        violation: None,
        steered: false,
        isolation: None,
        status: Some(ended.status),
        led: true,
        lost: Vec::new(),
        flooded: None,
        received: Vec::new(),
        arrivals: Vec::new(),
        departures: Vec::new(),
    }
}

fn show(common: &Common, ledger: &Ledger, ended: &kit::Ended, hub: &Hub) {
    if !common.json {
        return output::print(&report::terminal::render(ledger, output::style()));
    }
    let mut value = serde_json::to_value(ledger).unwrap_or_default();
    value["guest"] = serde_json::json!({
        "status": ended.status,
        "output": ended.output,
        "lasted": ended.lasted.as_secs_f64(),
        "reception": hub.ends[0].device().map(reception),
        "model": hub.ends[0].device().map(model),
    });
    output::print(&format!("{value:#}"));
}

/// The commands of the first receptions, each at its time.
fn reception(device: &Device) -> serde_json::Value {
    let commands = device.receiver().commands().iter().map(|(at, frame, side, command)| {
        let side = if *side == Side::Host { "host" } else { "adapter" };
        let at = at.since_start().as_secs_f64();
        serde_json::json!({ "at": at, "frame": frame, "side": side, "command": command })
    });
    commands.collect()
}

/// What the model says of pings and of the longest frames.
fn model(device: &Device) -> serde_json::Value {
    let rows = [("ping", PING), ("longest", LONGEST)].map(|(name, len)| {
        let row = predict(device.card(), len).map(|found| {
            let (out, into) = (found.out.as_secs_f64(), found.into.as_secs_f64());
            let [frames, taken] = [found.rate, found.into_rate];
            serde_json::json!({
                "bytes": len.0, "out": out, "in": into, "frames": frames, "frames_in": taken,
            })
        });
        (name.to_owned(), row.unwrap_or_default())
    });
    serde_json::Value::Object(rows.into_iter().collect())
}
