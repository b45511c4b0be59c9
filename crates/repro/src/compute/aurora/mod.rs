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

use super::{Setting, Value};
use crate::Error;
use crate::sweep::formula::Val;
use lastmeter_base::{Bytes, PerByte};
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile;
use lastmeter_ledger::Ledger;

/// The ledger of `run` of `repro.toml` with this host and adapter; the link is as fast as the adapter's
/// profile says.
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

/// What of a computation went wrong.
fn wrong(name: &'static str, message: impl Into<String>) -> Error {
    Error::Computation { name, message: message.into() }
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
