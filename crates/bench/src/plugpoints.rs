//! `lastmeter bench plugpoints`: one stream through every kind of host interface, in the model and, where this machine
//! has the interface, live (A-03).
//!
//! ```text
//! experiments/plugpoints: source --1400 B, 1400 B, ...--> [ adapter | host ]     one pair of these for each interface
//!
//!          frames of 200 B, live --> what a packet costs --> model --> frames of 1400 B, predicted
//!                                                                                 | beside
//!                                                      live --------> frames of 1400 B, measured
//! ```
//!
//! Each interface is a pair of bundled profiles, so what is known of it is data. Of those that the kernel has, the
//! model's two costs of a packet are measured in the same minute, with frames of 200 B, and bytes cost what the host's
//! calibration says of copies, reads and checksums; so nothing is fitted to frames of 1400 B. `delivery` says
//! how CPU time is measured.
//!
//! Rows: A-03.

use crate::delivery::{self, Cost, LEN, Way, costs};
use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_engine::Serial;
use lastmeter_lab::document::{Override, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{self, Builtin};
use lastmeter_lab::run::{Runner, Search, Watch, explain};

pub(crate) const ALL: &[(&str, Bench)] = &[
    ("plugpoints/vup", |setting| bench(setting, "vup")),
    ("plugpoints/vupboard", |setting| bench(setting, "vupboard")),
    ("plugpoints/dma", |setting| bench(setting, "dma")),
    ("plugpoints/vudboard", |setting| bench(setting, "vudboard")),
    ("plugpoints/cop3", |setting| bench(setting, "cop3")),
    ("plugpoints/osiris", |setting| bench(setting, "osiris")),
    ("plugpoints/virtio", |setting| bench(setting, "virtio")),
    ("plugpoints/af-xdp", |setting| bench(setting, "af-xdp")),
    ("plugpoints/af-packet", |setting| bench(setting, "af-packet")),
    ("plugpoints/udp-socket", |setting| bench(setting, "udp-socket")),
    ("plugpoints/tcp-socket", |setting| bench(setting, "tcp-socket")),
];

/// The bundled experiment, and its receiver.
pub const EXPERIMENT: &str = "plugpoints";
const RECEIVER: &str = "receiver";
/// Bytes of data in the frames that the model's costs of a packet are measured with.
const LEN_MEASURED: usize = 200;
/// The stages of an adapter of the kernel's, by what [`Cost`] has of them.
const TO_SOCKET: &str = "to the socket";
const IN_PROGRAM: &str = "in the program";

/// A kind of host interface: where the network meets the host.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    /// What it is.
    pub kind: &'static str,
    /// Where it is attached.
    pub attached: &'static str,
    /// The profile of the host.
    pub host: &'static str,
    /// The profile of the adapter.
    pub adapter: &'static str,
    /// How this machine has it.
    live: Option<Way>,
}

const fn modelled(
    kind: &'static str,
    attached: &'static str,
    [host, adapter]: [&'static str; 2],
) -> Interface {
    Interface { kind, attached, host, adapter, live: None }
}

const fn of_the_kernel(
    kind: &'static str,
    attached: &'static str,
    adapter: &'static str,
    way: Way,
) -> Interface {
    Interface { kind, attached, host: "epyc-2-cores", adapter, live: Some(way) }
}

/// All of them, those of the study and those that were built side by side.
pub const INTERFACES: [Interface; 11] = [
    modelled("programmed transfer", "the I/O bus, word by word", ["dec5000-240", "vup"]),
    modelled("programmed, as built", "the I/O bus, word by word", ["dec5000-240", "vupboard"]),
    modelled("DMA", "memory, over the I/O bus", ["dec5000-240", "dma"]),
    modelled("DMA, as built", "memory, over the I/O bus", ["dec5000-240", "vudboard"]),
    modelled("coprocessor", "the processor's registers", ["dec5000-240", "cop3"]),
    modelled("hardware SAR", "memory, over the I/O bus", ["dec5000-240", "osiris"]),
    modelled("virtio", "a ring in a guest's memory", ["qemu-guest", "virtio"]),
    of_the_kernel("AF_XDP", "a ring in the program's memory", "af-xdp", Way::Xdp),
    of_the_kernel("AF_PACKET", "a ring shared with the kernel", "af-packet", Way::Packet),
    of_the_kernel("UDP", "a socket, behind IP", "udp-socket", Way::Udp),
    of_the_kernel("TCP", "a socket, behind IP", "tcp-socket", Way::Tcp),
];

/// What the model says of an interface.
#[derive(Clone, Debug)]
pub struct Account {
    /// In bit/s.
    pub goodput: f64,
    /// CPU seconds for each packet that the host receives.
    pub packet: f64,
    /// CPU seconds for each byte of it.
    pub byte: f64,
    /// How often a processor reads or writes each byte.
    pub touches: u32,
    /// Bytes over memory for each byte delivered.
    pub crossings: f64,
    /// The resource that limits; `None` if the verdict names none.
    pub limit: Option<String>,
    /// The verdict.
    pub words: String,
}

impl Interface {
    /// What exchanges the receiver of the experiment, as in `--set`.
    pub fn set(&self) -> String {
        let Interface { host, adapter, .. } = self;
        let node = format!("{{ profile = \"{host}\", adapter = \"{adapter}\" }}");
        format!("nodes.{RECEIVER}.host={node}")
    }

    /// What the model says with these settings besides.
    ///
    /// # Errors
    /// If a profile, a setting or the model is wrong.
    pub fn account(&self, sets: &[String]) -> Result<Account, Complaint> {
        let text = library::experiment(EXPERIMENT).ok_or("the experiment is not bundled")?;
        let parsed = |set: &String| Override::parse(set).map_err(complaint);
        let sets: Vec<Override> =
            [self.set()].iter().chain(sets).map(parsed).collect::<Result<_, _>>()?;
        let experiment = Experiment::parse(EXPERIMENT, text, &sets, &Builtin).map_err(complaint)?;
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
        let ledger = explain(&experiment, Search::Rounds, 0, runner)?.ledger;
        let path = ledger.paths.first().ok_or("nothing was sent")?;
        let cpu = ledger.resources.iter().find(|one| one.name == format!("{RECEIVER}.cpu"));
        let spent = cpu.ok_or("the host has no cpu")?.utilisation() * ledger.duration;
        let here = path.stages.iter().filter(|stage| stage.place.host.as_deref() == Some(RECEIVER));
        let verdict = ledger.verdict.as_ref();
        Ok(Account {
            goodput: path.totals.goodput,
            packet: spent / path.totals.delivered.packets as f64,
            byte: spent / path.totals.delivered.bytes as f64,
            touches: here.filter_map(|stage| stage.touches).sum(),
            crossings: path.totals.memory_multiple.unwrap_or_default(),
            limit: verdict.and_then(|verdict| verdict.resource.clone()),
            words: verdict.map_or_else(String::new, |verdict| verdict.words.clone()),
        })
    }

    /// The settings with which the model's packets cost this.
    fn costing(&self, cost: Cost) -> Vec<String> {
        let set = |stage: &str, seconds: f64| {
            let time = (seconds * 1e12).round();
            format!("profiles.adapters/{}.receive.{stage}.per-packet={time} ps", self.adapter)
        };
        vec![set(TO_SOCKET, cost.kernel), set(IN_PROGRAM, cost.program)]
    }

    /// The same live, if this machine has it: CPU seconds of a packet as measured, and the model's account of it.
    ///
    /// # Errors
    /// If this machine does not let it be measured.
    pub fn live(&self, quick: bool) -> Option<Result<Live, Complaint>> {
        let way = self.live?;
        let frames = if quick { delivery::FRAMES_QUICK } else { delivery::FRAMES };
        let measured = || {
            let [short, cost] = costs(way, [LEN_MEASURED, LEN], frames)?;
            let model = self.account(&self.costing(short))?;
            let (constants, packet) = ([short.kernel, short.program], cost.sum());
            Ok(Live { constants, parts: [cost.kernel, cost.program], packet, model })
        };
        Some(measured())
    }
}

/// An interface, measured.
#[derive(Clone, Debug)]
pub struct Live {
    /// CPU seconds of a short packet, up to the socket and in the program: the model's constants.
    pub constants: [f64; 2],
    /// The same of a packet of the experiment.
    pub parts: [f64; 2],
    /// Their sum.
    pub packet: f64,
    /// What the model says of a packet of the experiment.
    pub model: Account,
}

impl Live {
    /// Measured by predicted.
    pub fn ratio(&self) -> f64 {
        self.packet / self.model.packet
    }
}

fn complaint(problems: Vec<Problem>) -> Complaint {
    let words = problems.iter().map(Problem::to_string);
    Complaint(words.collect::<Vec<_>>().join("; "))
}

fn bench(setting: &Setting, adapter: &str) -> Result<Measurement, Complaint> {
    let interface = INTERFACES.iter().find(|one| one.adapter == adapter);
    let interface = interface.ok_or("no such interface")?;
    let mut busy = "";
    let live = match interface.live {
        Some(_) => {
            busy = delivery::busy()?;
            interface.live(setting.quick)
        }
        None => None,
    };
    let (live, lacks) = match live {
        Some(Ok(live)) => (Some(live), String::new()),
        Some(Err(Complaint(why))) => (None, format!("; not measured: {why}")),
        None => (None, String::new()),
    };
    let model = match &live {
        Some(live) => live.model.clone(),
        None => interface.account(&[])?,
    };
    let us = |[kernel, program]: [f64; 2]| format!("{:.2} + {:.2} us", kernel * 1e6, program * 1e6);
    let parts = live.as_ref().map_or_else(String::new, |live| {
        let [short, long] = [live.constants, live.parts].map(us);
        format!("; {LEN_MEASURED} B take {short}, {LEN} B {long}")
    });
    let note = format!(
        "{} at {}, {} in {}; model: {:.1} Mbit/s, {:.2} ns/B, touches {}, memory {:.1}, limit {}\
         {parts}{lacks}{busy}",
        interface.kind,
        interface.attached,
        interface.adapter,
        interface.host,
        model.goodput / 1e6,
        model.byte * 1e9,
        model.touches,
        model.crossings,
        model.limit.as_deref().unwrap_or("none"),
    );
    let value = live.as_ref().map_or(model.packet, |live| live.packet);
    let name = format!("plugpoints/{adapter}");
    let mut result = Measurement::new(name, value, "s", String::new(), note).lower_is_better();
    if live.is_some() {
        result.beside("the model", model.packet);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_lab::sweep::{Factor, Plan, Request, Run, design};
    use std::collections::BTreeMap;
    use std::sync::LazyLock;

    const README: &str = include_str!("../../../experiments/plugpoints/README.md");

    /// By the adapter's name.
    static ACCOUNTS: LazyLock<BTreeMap<&str, Account>> = LazyLock::new(|| {
        let account = |one: &Interface| (one.adapter, one.account(&[]).unwrap());
        INTERFACES.iter().map(account).collect()
    });

    /// The cells of each row of the page's first table.
    fn rows() -> Vec<Vec<String>> {
        let lines = README.lines().skip_while(|line| !line.starts_with("| interface |")).skip(2);
        let lines = lines.take_while(|line| line.starts_with('|'));
        let cells =
            |line: &'static str| line.trim_matches('|').split('|').map(|c| c.trim().to_owned());
        lines.map(|line| cells(line).collect()).collect()
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "shown if the test fails")]
    fn a_03_every_interface_runs_and_its_account_is_that_of_the_page() {
        let rows = rows();
        for Interface { kind, attached, host, adapter, .. } in INTERFACES {
            let Account { goodput, packet, byte, touches, crossings, limit, words } =
                &ACCOUNTS[adapter];
            let (rate, packet, byte) = (goodput / 1e6, packet * 1e6, byte * 1e9);
            let limit = limit.as_deref().unwrap_or("none");
            // As a row of the page, where one is to be changed.
            println!(
                "| {kind} | {attached} | `{adapter}`, `{host}` | {rate:.4} | {packet:.4} | {byte:.4} \
                 | {touches} | {crossings:.0} | `{limit}`: {words} |"
            );
        }
        assert_eq!(rows.len(), INTERFACES.len());
        for (row, interface) in rows.iter().zip(INTERFACES) {
            let Account { goodput, packet, byte, touches, crossings, limit, words } =
                &ACCOUNTS[interface.adapter];
            let names = [interface.kind, interface.attached, interface.adapter, interface.host];
            assert_eq!(row[..2], names[..2]);
            assert_eq!(row[2], format!("`{}`, `{}`", names[2], names[3]));
            // As many digits as the page has.
            let near = |cell: &str, value: f64| {
                let printed: f64 = cell.parse().unwrap();
                assert!((printed / value - 1.0).abs() < 0.01, "{names:?}: {printed}, now {value}");
            };
            near(&row[3], goodput / 1e6);
            near(&row[4], packet * 1e6);
            near(&row[5], byte * 1e9);
            assert_eq!(row[6], touches.to_string(), "{names:?}");
            assert_eq!(row[7], format!("{crossings:.0}"), "{names:?}");
            let limit = limit.as_deref().unwrap();
            assert!(row[8].starts_with(&format!("`{limit}`")), "{names:?}: {limit}; {words}");
        }
    }

    #[test]
    fn a_03_orders_follow_from_what_was_published_and_counted() {
        let of = |adapter: &str| &ACCOUNTS[adapter];
        let faster = |pair: [&str; 2]| {
            let [slow, fast] = pair.map(of);
            assert!(slow.goodput < fast.goodput && slow.byte > fast.byte, "{pair:?}");
        };
        // Aurora at MIT, Tables 3 and 4: by the registers, by DMA, over the bus. Table 1: the boards.
        let published = [["vup", "dma"], ["dma", "cop3"], ["vupboard", "vudboard"]];
        // §5.4.1: hardware segmentation brings more. A board has more to do than the study counts.
        let software = [["vudboard", "osiris"], ["vupboard", "vup"], ["vudboard", "dma"]];
        published.into_iter().chain(software).for_each(faster);
        // Two touches of the host itself, or one where the program only reads.
        let touches = |adapter: &str| of(adapter).touches;
        assert_eq!(["osiris", "cop3", "vup", "dma"].map(touches), [2, 3, 3, 4]);
        assert_eq!(["af-xdp", "af-packet", "udp-socket"].map(touches), [3, 3, 3]);
        assert_eq!(["tcp-socket", "virtio", "vudboard", "vupboard"].map(touches), [4, 5, 4, 9]);
    }

    #[test]
    fn a_03_the_pages_sweep_has_every_interface_once() {
        let command = README.split("lastmeter sweep plugpoints --over ").nth(1).unwrap();
        let over = command.split('\'').take(2).collect::<String>();
        let factors = vec![Factor::parse(&over).unwrap()];
        let points = design::grid(&factors).unwrap();
        let text = library::experiment(EXPERIMENT).unwrap().to_owned();
        let (experiment, quick) = (EXPERIMENT.to_owned(), true);
        let request = Request { experiment, text, factors, points, quick, ..Request::default() };
        let plan = Plan::new(request, &Builtin).unwrap();
        assert_eq!(plan.points.len(), INTERFACES.len());
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
        for (point, interface) in (0..).zip(INTERFACES) {
            let run = Run { point, replicate: 0 };
            let row = plan.run(run, runner).unwrap();
            let goodput = row.result.unwrap().goodput;
            let account = interface.account(&["duration=10 ms".to_owned()]).unwrap();
            // The sweep's has the acknowledgements, too: 1 B for 1400.
            let ratio = goodput / account.goodput;
            assert!((1.0..1.001).contains(&ratio), "{}: {ratio}", interface.adapter);
        }
    }
}
