//! Aurora's hosts and forwarders.
//!
//! | file | experiment | machines |
//! |---|---|---|
//! | [`interfaces`] | `aurora-host-interfaces` | host and adapter profiles, the virtual buffer |
//! | [`functions`] | the same | what is done where: the board or the processor |
//! | [`boards`] | the same | the VupBoard's registers, the VudBoard's buses |
//! | [`coprocessor`] | `aurora-coprocessor` | cells moved word by word, TURBOchannel |
//! | [`vidboard`] | `aurora-vidboard` | boards, and the host that shows their pictures |
//! | [`windows`] | the same | the same between elements, as run files have it |
//! | [`traffic`] | `aurora-traffic-classes` | generators of Table 11 |
//! | [`forwarding`] | `aurora-forwarding` | the x-kernel's forwarder, flow forwarders |
//! | [`florb`] | `aurora-florb` | the micro-sequencer in its host, and between two ports |
//! | [`memory`] | `aurora-memory-multiple` | a host whose memory limits |

pub(super) mod boards;
pub(super) mod coprocessor;
pub(super) mod florb;
pub(super) mod forwarding;
pub(super) mod functions;
pub(super) mod interfaces;
pub(super) mod memory;
pub(super) mod traffic;
pub(super) mod vidboard;
pub(super) mod windows;

use super::Value;
use crate::Error;
use lastmeter_base::{Bytes, Duration, PerByte};
use lastmeter_engine::Serial;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::run::{self, Failure, Runner, Watch};
use lastmeter_ledger::Ledger;

/// Packets in flight to a host that receives as fast as it can.
const WINDOW: u64 = 8;

/// The program's own profiles, with a text put in the place of another, or a profile added.
struct Changed<'a> {
    /// `hosts/NAME` or `adapters/NAME`.
    profile: &'a str,
    change: Change<'a>,
}

enum Change<'a> {
    /// This text, which must be there, by that.
    Replace(&'a str, &'a str),
    /// The whole profile.
    Whole(&'a str),
}

impl Library for Changed<'_> {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        if format!("{folder}/{name}") != self.profile {
            return Builtin.profile(folder, name);
        }
        match self.change {
            Change::Whole(text) => Ok(text.to_owned()),
            Change::Replace(from, to) => {
                let text = Builtin.profile(folder, name)?;
                match text.contains(from) {
                    true => Ok(text.replace(from, to)),
                    false => Err(format!("`{from}` does not stand in {folder}/{name}")),
                }
            }
        }
    }
    fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Builtin.names(folder);
        let own = self.profile.strip_prefix(folder).and_then(|name| name.strip_prefix('/'));
        names.extend(own.map(str::to_owned));
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Runs for the computation `name`.
#[derive(Clone, Copy)]
struct Runs<'a> {
    name: &'static str,
    library: &'a dyn Library,
    /// How long a modelled transfer runs: many times what its window takes.
    length: Duration,
}

impl Runs<'_> {
    fn runner<T>(self, run: impl FnOnce(Runner<'_>) -> Result<T, Failure>) -> Result<T, Error> {
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: self.library, watch: &watch };
        run(runner).map_err(|failure| match failure {
            Failure::Problems(problems) => Error::Problems(problems),
            failure => Error::Computation { name: self.name, message: failure.to_string() },
        })
    }

    fn parse(self, text: String) -> Result<Experiment, Error> {
        Experiment::parse(self.name, text, &[], self.library).map_err(Error::Problems)
    }

    /// What a host with an adapter takes from a source that always has more.
    fn receives(self, host: &str, adapter: &str, packet: Bytes) -> Result<Experiment, Error> {
        let pair = Pair::read(host, adapter, self.library).map_err(Error::Problems)?;
        self.parse(format!(
            "title = \"{host} with {adapter} receives\"\n\
             duration = \"{} ps\"\n\
             [nodes]\n\
             source = {{ host = {{}} }}\n\
             receiver = {{ host = {{ profile = \"{host}\", adapter = \"{adapter}\" }} }}\n\
             [[links]]\n\
             between = [\"source\", \"receiver\"]\n\
             rate = \"{} bit/s\"\n\
             [[traffic]]\n\
             name = \"stream\"\n\
             from = \"source\"\n\
             to = \"receiver\"\n\
             bulk = {{ size = \"{} B\", window = {WINDOW}, response = \"1 B\" }}\n",
            self.length.as_ps(),
            pair.adapter.rate.as_bits(),
            packet.0,
        ))
    }

    /// A transfer between two such hosts, as `why --host --adapter` models it.
    fn transfers(self, host: &str, adapter: &str, packet: Bytes) -> Result<Experiment, Error> {
        let pair = Pair::read(host, adapter, self.library).map_err(Error::Problems)?;
        let text = pair.experiment(Bytes::from_kib(4), packet, self.length);
        self.parse(text.map_err(Error::Problems)?)
    }

    fn ledger(self, experiment: &Experiment) -> Result<Ledger, Error> {
        self.runner(|runner| run::ledger(experiment, runner))
    }

    /// With verdict and what-ifs.
    fn explained(self, experiment: &Experiment) -> Result<Ledger, Error> {
        self.runner(|runner| run::explain(experiment, 0, runner)).map(|explained| explained.ledger)
    }

    fn wrong(self, message: String) -> Error {
        Error::Computation { name: self.name, message }
    }
}

/// Bits a second that the stream delivers; acknowledgements do not count.
fn goodput(ledger: &Ledger) -> f64 {
    ledger.paths[0].totals.goodput
}

/// The resource that the verdict names.
fn limit(ledger: &Ledger) -> &str {
    ledger.verdict.as_ref().and_then(|verdict| verdict.resource.as_deref()).unwrap_or("")
}

/// The resource that is in use most: where both ends limit alike, no single change shows it.
pub(crate) fn busiest(ledger: &Ledger) -> &str {
    let in_use = |resource: &lastmeter_ledger::Resource| (resource.utilisation(), resource.busy);
    let most = ledger
        .resources
        .iter()
        .max_by(|a, b| in_use(a).partial_cmp(&in_use(b)).unwrap_or(std::cmp::Ordering::Equal));
    most.map_or("", |resource| resource.name.as_str())
}

fn mbit(bits_per_second: f64) -> Value {
    Value::Number(bits_per_second / 1e6, "Mbit/s")
}

/// Whether two costs are the same but for the digits with which they are written.
fn alike(a: PerByte, b: PerByte) -> bool {
    let (a, b) = (a.as_fs() as f64, b.as_fs() as f64);
    (a - b).abs() <= 1e-3 * b
}
