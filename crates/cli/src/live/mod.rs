//! `lastmeter live`: programs behind a modelled network, in real time.
//!
//! Rows: A-161.

mod channels;
mod guest;
mod programs;
mod validate;
pub(crate) mod vunet;

use crate::emulate::{self, Demand, Options, Report, Trial};
use crate::world::{self, Disk};
use crate::{Common, Complaint, Ended, daemon, output, results, run};
use lastmeter_base::{Duration, Quantity};
use lastmeter_engine::Control;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::run::has_plugins;
use lastmeter_ledger as report;
use lastmeter_linux::clock::WaitOptions;
use lastmeter_linux::port::Offload;
use lastmeter_live::site::Kind;
use std::path::PathBuf;
use std::sync::Arc;

/// Run programs behind a modelled network, in real time, and certify that it kept up.
///
/// EXPERIMENT is a TOML file, a folder with an experiment.toml, or the name of a bundled one. Its
/// hosts with `live = true` become network namespaces with an interface `eth0`; COMMAND, or a shell,
/// runs in the first of them, and the run ends with it. Nothing outside these namespaces is
/// touched, and nothing is left behind. Requires unprivileged user namespaces, or root.
///
/// An experiment with plugins and Wave Video, such as `wave-video`, runs with live routers in namespaces (root): plain
/// queueing, then with the plugins, each beside the model.
///
/// An experiment with real-time channels, such as `channels-three`, runs as processes in namespaces that send each
/// other datagrams: establishment, admission, scheduling and policing as in the model, beside it.
///
/// One with a VuNet, such as `aurora-deployment`, runs as a process for each switch, end of a link, camera and host,
/// which exchange cells between namespaces. There, COMMAND runs at the first host that looks at a camera, and
/// `vunet:` and a camera's name in it become an address at which its pictures come over the network; it then takes the
/// place of what the run would measure.
///
/// With --guest, EXPERIMENT is an adapter: a file like those of profiles/devices, or the name of a bundled one. COMMAND
/// runs in a Linux guest (QEMU, `make guest`) whose virtio network adapter is served here and takes the time that the
/// description says: doorbells, descriptors, DMA, the network, interrupts. The other end is a namespace, `peer`, with
/// the address 10.77.0.1, where `iperf3 -s` runs unless `--in peer` says otherwise.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The file, the folder, or the name of a bundled experiment; with --guest, of an adapter
    experiment: String,
    /// Run COMMAND in a Linux guest on an adapter that takes its time
    #[arg(long, conflicts_with = "validate")]
    guest: bool,
    /// With --guest: the other end is a guest, too, behind an adapter of the same kind; `--in peer` runs in it
    #[arg(long, requires = "guest")]
    two_guests: bool,
    /// With --guest: how it reaches the adapter [default: vhost]
    #[arg(long, value_name = "BUS", requires = "guest")]
    bus: Option<Bus>,
    /// With --two-guests: copy only the first BYTES of each frame; all of it takes its time. The guests are told that
    /// checksums are right
    #[arg(long, value_name = "BYTES", requires = "two_guests", value_parser = headers())]
    headers: Option<u32>,
    /// With --guest: further words for the guest kernel's command line, as idle=poll
    #[arg(long, value_name = "WORDS", requires = "guest")]
    kernel: Option<String>,
    /// With --guest: propagation delay of the cable between both ends [default: 0 s]
    #[arg(long, value_name = "TIME", requires = "guest")]
    propagation: Option<String>,
    /// Override one value of the file; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Run the command after the next `--` in this live host, in addition to COMMAND in the first; may be
    /// given several times, each with its own `--`
    #[arg(long = "in", value_name = "HOST")]
    host: Vec<String>,
    /// Have a camera of a VuNet see a film, which ffmpeg decodes; may be given several times
    #[arg(long = "film", value_name = "CAMERA=FILE")]
    films: Vec<String>,
    /// Use an interface of this machine for a live host instead of making a namespace
    #[arg(long, value_name = "HOST=IFACE")]
    attach: Vec<String>,
    /// How frames enter and leave [default: tap-tso; packet for --search]: `tap-tso` (TAP with
    /// segmentation offload, as with a real adapter), `tap` (only checksum offload), `tap-plain` (no
    /// offload), `packet` (veth and AF_PACKET), `xdp` (veth and AF_XDP, requires root)
    #[arg(long, value_name = "KIND")]
    port: Option<String>,
    /// Busy-poll instead of sleeping: takes a core, keeps time better
    #[arg(long)]
    busy: bool,
    /// Sleep, but poll for this long before each deadline
    #[arg(long, value_name = "TIME", conflicts_with = "busy")]
    spin: Option<String>,
    /// Pin the emulator to this core, and programs to the others
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Tolerated lateness of a departure [default: 100 us with --busy, else 1 ms]
    #[arg(long, value_name = "TIME")]
    tolerance: Option<String>,
    /// Stretch time: a second of the experiment lasts N, so that this machine's CPUs appear N times as fast. Programs
    /// see real time; all that is reported is the experiment's
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = slower())]
    slower: u32,
    /// Stop at the first departure that is later than tolerated
    #[arg(long)]
    strict: bool,
    /// Repeat the run in virtual time with the same arrivals, and compare each departure
    #[arg(long)]
    twin: bool,
    /// Find the highest rate that this machine certifies with 1500-byte packets, busy-polling
    #[arg(long)]
    search: bool,
    /// Measure a link at many rates, delays and queues with ping and iperf3, busy-polling; --quick does
    /// 10 ms only
    #[arg(long, conflicts_with = "search")]
    validate: bool,
    /// Write ledger.json, ledger.html and tables in Parquet into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Also print the layers of each path: what a stage is for, the jitter it adds, and how many packets wait there
    #[arg(long)]
    layers: bool,
    /// For how long to run channels [default: the experiment's duration], or the guest at most [default: 60]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Capture a link's packets in a pcapng file, for Wireshark; may be given several times
    #[arg(long = "pcap", value_name = "LINK=FILE")]
    pcaps: Vec<String>,
    /// The command to run in the first host [default: a shell]; everything after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How a guest reaches its adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Bus {
    /// As QEMU's virtio-net, with the stock driver
    Vhost,
    /// As a PCI device with an interrupt for each ring: with registers of its own and our driver, or, if the
    /// description has driver = "virtio", with the stock driver
    Vfio,
}

/// Reads the length of headers: those of Ethernet, IP and TCP are not longer.
fn headers() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(64..)
}

/// Reads a factor of time. At its greatest a day of an experiment lasts three years.
fn slower() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1000)
}

const EXAMPLES: &str = "\
Examples:
  lastmeter live emulated-link                           a shell in the first host
  lastmeter live emulated-link -- ping -c 5 10.77.0.2
  lastmeter live emulated-link --busy --in bob -- iperf3 -s -1 -- iperf3 -c 10.77.0.2
  lastmeter live my.toml --set links.0.rate='100 Mbit/s' --twin -- ./my-program
  lastmeter live emulated-link --slower 8 --set links.0.rate='10 Gbit/s'
  lastmeter live emulated-link --search --pin 1
  lastmeter live emulated-link --validate --pin 1
  lastmeter live wave-video --out out
  lastmeter live channels-three --seconds 60
  lastmeter live aurora-deployment --set duration='5 s'
  lastmeter live aurora-deployment --film board.7=a.mp4 --in host.9 -- ffplay vunet:board.7
  lastmeter live profiles/devices/simple-nic.toml --guest -- iperf3 -c 10.77.0.1
  lastmeter live cim --guest --set queueing.depth=4 -- ping -c 20 10.77.0.1
  lastmeter live simple-nic --guest --bus vfio -- ping -c 20 10.77.0.1
  lastmeter live simple-nic --guest --bus vfio --set host-interface.driver=virtio -- ping 10.77.0.1
  lastmeter live pcie4 --two-guests --guest --propagation '5 ms' -- ping -c 20 10.77.0.1
  lastmeter live my.toml --attach alice=eth1 --attach bob=eth2";

pub(crate) fn live(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    results::prepare(arguments.out.as_deref())?;
    let control = Arc::new(Control::default());
    if arguments.validate {
        stop_on_signal(&control)?;
        return validate::validate(common, arguments, &control);
    }
    if arguments.guest {
        return guest::live(common, arguments, &control);
    }
    let found = world::experiment(&arguments.experiment)?;
    let disk = Disk::new(found.folder);
    arguments.pcaps.iter().try_for_each(|text| disk.add_tap(text))?;
    let overrides = run::overrides(common, &arguments.sets)?;
    let experiment = Experiment::parse(&found.name, &found.text, &overrides, &disk)
        .map_err(|problems| run::complaint(common, &problems))?;
    if has_plugins(&experiment) {
        return with_routers(common, arguments);
    }
    stop_on_signal(&control)?;
    if channels::has(&experiment) {
        return channels::run(common, arguments, &experiment, &control);
    }
    if vunet::is_vunet(&experiment) && experiment.live_hosts().is_empty() {
        arguments.only_by_itself("is a VuNet", "processes of its own run it", true)?;
        let programs = programs::programs(common, arguments, false)?;
        let (out, films) = (arguments.out.as_deref(), &arguments.films[..]);
        let wishes = vunet::Wishes { out, films, programs };
        return vunet::live(common, &experiment, wishes, &disk, &control);
    }
    if !arguments.films.is_empty() {
        let right = "name an experiment with vunet-switch nodes";
        return Err(Complaint(format!("--film is for cameras of a VuNet: {right}")));
    }
    if arguments.seconds.is_some() {
        let right = "its run ends with its command; write --set duration='10 s' for the longest";
        return Err(Complaint(format!(
            "--seconds is for channels, and `{}` has none: {right}",
            arguments.experiment
        )));
    }
    let options = options(common, arguments)?;
    if arguments.search {
        return search(common, &experiment, &options, &disk, &control);
    }
    let report = emulate::run(&experiment, &options, &disk, &control)
        .map_err(|failure| run::failed(common, failure))?;
    let resources = report.ledger.resources.iter();
    let links: Vec<&str> =
        resources.filter(|r| r.kind == "wire").map(|r| r.name.as_str()).collect();
    disk.check_taps(&links)?;
    show(common, &report, arguments.layers);
    results::offer(arguments.out.as_deref(), &report.ledger)?;
    Ok(ended(&report))
}

impl Arguments {
    /// Refuses what is of no use to an experiment that brings its own processes, and maybe takes programs besides.
    fn only_by_itself(&self, what: &str, why: &str, takes_programs: bool) -> Result<(), Complaint> {
        let Arguments { host, attach, port, busy, spin, pin, tolerance, films, .. } = self;
        let Arguments { strict, twin, search, pcaps, command, seconds, layers, slower, .. } = self;
        let programs = !takes_programs && [host, command, films].iter().any(|it| !it.is_empty());
        let lists = programs || !attach.is_empty() || !pcaps.is_empty();
        let texts = [port, spin, tolerance].iter().any(|text| text.is_some());
        let numbers = pin.is_some() || seconds.is_some() || *slower > 1;
        if lists || texts || numbers || *busy || *strict || *twin || *search || *layers {
            let more = if takes_programs { ", --film, --in, a command" } else { "" };
            let right = format!("{why}; give only --set and --out{more}");
            return Err(Complaint(format!("`{}` {what}: {right}", self.experiment)));
        }
        Ok(())
    }
}

/// Has an experiment with plugins run by `lastmeterd`, with its live routers and programs of its own.
fn with_routers(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    arguments.only_by_itself(
        "has plugins",
        "live routers and programs of its own run it",
        false,
    )?;
    let seed = common.seed.map(|seed| format!("seed={seed}"));
    let mut words = vec!["live".to_owned(), arguments.experiment.clone()];
    let sets = arguments.sets.iter().cloned().chain(seed);
    words.extend(sets.flat_map(|set| ["--set".to_owned(), set]));
    if let Some(out) = &arguments.out {
        words.extend(["--out".to_owned(), out.display().to_string()]);
    }
    daemon::run(common, "wave", &daemon::Arguments::of(words))
}

/// Fell short if no rate is certified.
fn search(
    common: &Common,
    experiment: &Experiment,
    options: &Options,
    disk: &Disk,
    control: &Arc<Control>,
) -> Result<Ended, Complaint> {
    let mut tell = |trial: &Trial| {
        let kept_up = if trial.certificate.kept_up { "kept up" } else { "fell behind" };
        output::note(&format!(
            "{:8.3} Gbit/s  {kept_up:11}  within 100 us {:8.4} %, lost here {:.4} %",
            trial.rate / 1e9,
            trial.certificate.within_100us * 100.0,
            trial.certificate.shortfall * 100.0,
        ));
    };
    let found = emulate::search(experiment, options, disk, control, &mut tell)
        .map_err(|failure| run::failed(common, failure))?;
    match common.json {
        true => output::print(&format!("{:#}", found.json())),
        false => output::print(&found.words()),
    }
    Ok(if found.best.is_some() { Ended::Done } else { Ended::Short })
}

/// A run that did not keep up, or lost an interface, fell short, whatever its program's status; but a program
/// that a signal ended is reported first, as the reason for the rest.
fn ended(report: &Report) -> Ended {
    /// As in shells: above it, the number of a signal.
    const SIGNALS: i32 = 128;
    let kept_up = report.ledger.certificate.as_ref().is_some_and(|one| one.kept_up);
    match report.status {
        Some(status) if status > SIGNALS => Ended::Status(status as u8),
        _ if !kept_up => Ended::Short,
        Some(0) | None => Ended::Done,
        Some(status) => Ended::Status(status as u8),
    }
}

fn show(common: &Common, report: &Report, layers: bool) {
    if !common.json {
        output::print(&report::terminal::render(&report.ledger, output::style()));
        if layers {
            output::print(&report::terminal::render_layers(&report.ledger, output::style()));
        }
        return;
    }
    let mut value = serde_json::to_value(&report.ledger).unwrap_or_default();
    if let Some(twin) = &report.twin {
        value["twin"] = twin.json();
    }
    output::print(&format!("{value:#}"));
}

/// An interrupt ends a run cleanly: what it has measured so far is kept.
fn stop_on_signal(control: &Arc<Control>) -> Result<(), Complaint> {
    let control = Arc::clone(control);
    Ok(ctrlc::set_handler(move || control.stop())?)
}

/// Reads a time with its unit.
fn time(text: &str) -> Result<Duration, Complaint> {
    Duration::parse(text).map_err(|error| Complaint(error.to_string()))
}

fn options(common: &Common, arguments: &Arguments) -> Result<Options, Complaint> {
    let default = if arguments.search { "packet" } else { "tap-tso" };
    let kind = kind(arguments.port.as_deref().unwrap_or(default))?;
    // Only busy-polling shows the best that a machine can do.
    let busy = arguments.busy || arguments.search || arguments.validate;
    let mut demand = if busy { Demand::BUSY } else { Demand::SLEEPING };
    if let Some(text) = &arguments.tolerance {
        demand.tolerance = time(text)?;
    }
    let spin = match &arguments.spin {
        Some(text) => time(text)?,
        None if busy => Duration::MAX,
        None => Duration::ZERO,
    };
    let strict = arguments.strict.then_some(demand.tolerance);
    let attached: Vec<(String, String)> = arguments
        .attach
        .iter()
        .map(|text| {
            let (host, interface) = text.split_once('=').ok_or_else(|| {
                let hint = "write a host and an interface, like --attach alice=eth1";
                Complaint(format!("`{text}` does not name an interface: {hint}"))
            })?;
            Ok((host.to_owned(), interface.to_owned()))
        })
        .collect::<Result<_, Complaint>>()?;
    let programs = programs::programs(common, arguments, attached.is_empty())?;
    let manner = WaitOptions { spin, core: arguments.pin, strict, slower: arguments.slower };
    Ok(Options { kind, attached, manner, demand, programs, twin: arguments.twin, flood: None })
}

fn kind(text: &str) -> Result<Kind, Complaint> {
    Ok(match text {
        "packet" => Kind::Packet,
        "xdp" => Kind::Xdp,
        "tap" => Kind::Tap(Offload::Checksum),
        "tap-plain" => Kind::Tap(Offload::None),
        "tap-tso" => Kind::Tap(Offload::Segmentation),
        _ => {
            let right = "write tap, tap-plain, tap-tso, packet or xdp";
            return Err(Complaint(format!("there is no kind of port `{text}`: {right}")));
        }
    })
}
