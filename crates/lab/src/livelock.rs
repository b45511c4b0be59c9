//! Receive livelock: a CPU so busy receiving that applications get almost nothing.

use lastmeter_host::receive::{APPLICATION, RECEPTION};
use lastmeter_ledger::{Confidence, Ledger, Resource, Verdict};

/// A CPU busy for less than this has time left.
const FULL: f64 = 0.99;
/// An application with a smaller share of the CPU than this gets almost nothing.
const STARVED: f64 = 0.05;

/// The shares of a resource's time spent on reception and on applications.
pub fn shares_of(resource: &Resource) -> (f64, f64) {
    let share = |role: &str| resource.by_role.get(role).copied().unwrap_or(0.0);
    (share(RECEPTION), share(APPLICATION))
}

/// The verdict of receive livelock, for a host that does nothing but receive.
pub fn livelock(ledger: &Ledger) -> Option<Verdict> {
    let of = |resource: &Resource| {
        let (reception, application) = shares_of(resource);
        let used = resource.utilisation();
        let starved = used >= FULL && application < STARVED && reception > application;
        starved.then(|| (resource.name.clone(), used, reception, application))
    };
    let (name, utilisation, reception, application) = ledger.resources.iter().find_map(of)?;
    let words = format!(
        "Receive livelock: {name} spends {} on reception, in interrupts and the protocol, and the \
         application gets {}.",
        percent(reception),
        percent(application)
    );
    let (resource, confidence) = (Some(name), Confidence::High);
    Some(Verdict { resource, utilisation: Some(utilisation), confidence, runner_up: None, words })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
