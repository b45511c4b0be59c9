//! Short exchanges between two hosts of this machine (network namespaces, or else the loopback interface): transactions
//! of DTP beside Netstation's, and connections of HTTP by who keeps their state.
//!
//! Rows: N-05, N-07, N-72, N-73, N-74.

use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_linux::load;
use lastmeter_live::exchange::{Closes, Exchanged};
use lastmeter_live::namespace::{Hosts, Isolation};
use std::time::Duration;

pub(crate) const ALL: &[(&str, Bench)] = &[
    ("dtp/transactions", transactions),
    ("dtp/round-trip", round_trip),
    ("time-wait/server", |setting| connections(setting, Closes::Server)),
    ("time-wait/client", |setting| connections(setting, Closes::Client)),
    ("time-wait/reset", |setting| connections(setting, Closes::Reset)),
];

/// Netstation between two SPARCstations over Myrinet (§3.a).
const PEER: &str = "Netstation, 1997";
const TRANSACTIONS: f64 = 30_000.0;
const ROUND_TRIP: f64 = 33e-6;
/// Transactions at a time, and bytes of each in either direction.
const WINDOW: u16 = 16;
const LEN: usize = 32;
/// How long it looks for other programs.
const LOOK: Duration = Duration::from_millis(100);

fn lasts(setting: &Setting) -> Duration {
    Duration::from_millis(if setting.quick { 200 } else { 1500 })
}

/// Two hosts, where they are, and whether others disturb them; that is looked for before anything of ours runs.
fn open() -> Result<(Hosts, String), Complaint> {
    let busy = if load::others(LOOK)?.is_busy() { "; BUSY machine" } else { "" };
    let hosts = Hosts::open(false)?;
    let between = match hosts.isolation() {
        Isolation::Loopback => "over loopback",
        _ => "between namespaces",
    };
    Ok((hosts, format!("{between}{busy}")))
}

fn transactions(setting: &Setting) -> Result<Measurement, Complaint> {
    let (mut hosts, place) = open()?;
    let (owner, device) = hosts.transactions(WINDOW, LEN, lasts(setting))?;
    let note = format!(
        "{WINDOW} at a time, {LEN} B each way, p99 {:.0} us, {} sent again, {} executed; {place}",
        owner.p99 * 1e6,
        owner.again,
        device.done
    );
    let mut result =
        Measurement::new("dtp/transactions", owner.rate(), "transactions/s", String::new(), note);
    result.beside(PEER, TRANSACTIONS);
    Ok(result)
}

fn round_trip(setting: &Setting) -> Result<Measurement, Complaint> {
    let (mut hosts, place) = open()?;
    let (owner, _) = hosts.transactions(1, LEN, lasts(setting))?;
    let note = format!("median of one at a time, p99 {:.0} us; {place}", owner.p99 * 1e6);
    let mut result =
        Measurement::new("dtp/round-trip", owner.p50, "s", String::new(), note).lower_is_better();
    result.beside(PEER, ROUND_TRIP);
    Ok(result)
}

fn connections(setting: &Setting, closes: Closes) -> Result<Measurement, Complaint> {
    let (mut hosts, place) = open()?;
    let (clients, server) = hosts.connections(closes, lasts(setting))?;
    let (name, who) = match closes {
        Closes::Server => ("server", "the server closes first"),
        Closes::Client => ("client", "the client closes first, by the answer's length"),
        Closes::Reset => ("reset", "the client ends with a reset"),
    };
    let share = |end: &Exchanged| 100.0 * end.time_wait as f64 / clients.done.max(1) as f64;
    let note = format!(
        "{who}; of 100 connections {:.0} are in TIME_WAIT at the server, {:.0} at the client, \
         {} failed; {place}",
        share(&server),
        share(&clients),
        clients.again,
    );
    let name = format!("time-wait/{name}");
    Ok(Measurement::new(name, clients.rate(), "connections/s", String::new(), note))
}
