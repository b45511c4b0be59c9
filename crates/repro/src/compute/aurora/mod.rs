//! Aurora's hosts and forwarders.
//!
//! | file | experiment | machines |
//! |---|---|---|
//! | [`interfaces`] | `aurora-host-interfaces` | host and adapter profiles, the virtual buffer |
//! | [`functions`] | the same | division of labour between board and processor |
//! | [`boards`] | the same | the VupBoard's registers, the VudBoard's buses |
//! | [`coprocessor`] | `aurora-coprocessor` | cells moved word by word, TURBOchannel |
//! | [`vidboard`] | `aurora-vidboard` | boards, and the host that displays their pictures |
//! | [`traffic`] | `aurora-traffic-classes` | generators of Table 11 |
//! | [`forwarding`] | `aurora-forwarding` | the x-kernel's forwarder, flow forwarders |
//! | [`florb`] | `aurora-florb` | the micro-sequencer in a host, and as two ports of a router |
//! | [`memory`] | `aurora-memory-multiple` | a host limited by its memory |

pub(super) mod boards;
pub(super) mod coprocessor;
pub(super) mod florb;
pub(super) mod forwarding;
pub(super) mod functions;
pub(super) mod interfaces;
pub(super) mod memory;
pub(super) mod traffic;
pub(super) mod vidboard;

use super::{Setting, Value};
use crate::machines::turbochannel::Bus;
use crate::sweep::formula::Val;
use crate::{Constants, Error};
use lastmeter_base::{Bytes, PerByte};
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile;
use lastmeter_ledger::Ledger;

/// The ledger of `run` of `repro.toml` with this host and adapter; the link has the rate of the adapter's profile.
fn receives(
    setting: &Setting<'_>,
    run: &str,
    (host, adapter): (&str, &str),
    packet: Bytes,
    more: &[(&str, Val)],
) -> Result<Ledger, Error> {
    let file = format!("adapters/{adapter}.toml");
    let text = Builtin.profile("adapters", adapter).map_err(|found| wrong("aurora", found))?;
    let link = profile::link(&file, text.as_bytes()).map_err(Error::Problems)?;
    let own = [
        ("host", host.into()),
        ("adapter", adapter.into()),
        ("packet", packet.0.into()),
        ("rate", link.rate.as_bits().into()),
    ];
    setting.ledger(run, &[&own, more].concat())
}

/// The ledger of a transfer between two such hosts.
fn transfers(
    setting: &Setting<'_>,
    run: &str,
    (host, adapter): (&str, &str),
    packet: Bytes,
) -> Result<Ledger, Error> {
    let given = [("host", host.into()), ("adapter", adapter.into()), ("packet", packet.0.into())];
    setting.ledger(run, &given)
}

/// TURBOchannel, as `profiles/constants/turbochannel.toml` has it.
fn bus(constants: &Constants) -> Result<Bus, Error> {
    Ok(Bus {
        cycle: constants.get("turbo_cycle")?,
        write: constants.get("dma_write_overhead")?,
        read: constants.get("dma_read_overhead")?,
        burst: constants.get("dma_burst")?,
    })
}

/// An error of the computation `name`.
fn wrong(name: &'static str, message: impl Into<String>) -> Error {
    Error::Computation { name, message: message.into() }
}

/// Goodput of the stream in bits per second; acknowledgements do not count.
fn goodput(ledger: &Ledger) -> f64 {
    ledger.paths[0].totals.goodput
}

/// The resource that the verdict names.
fn limit(ledger: &Ledger) -> &str {
    ledger.verdict.as_ref().and_then(|verdict| verdict.resource.as_deref()).unwrap_or("")
}

/// The busiest resource: if both ends limit equally, no single change shows it.
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

/// Whether two costs agree to the digits with which they are written.
fn alike(a: PerByte, b: PerByte) -> bool {
    let (a, b) = (a.as_fs() as f64, b.as_fs() as f64);
    (a - b).abs() <= 1e-3 * b
}
