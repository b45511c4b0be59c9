//! Receive livelock: a CPU that is busy receiving, so that applications get next to nothing.

use lastmeter_ledger::{Confidence, Ledger, Resource, Verdict};

/// What stages of reception are called between their host and their own name.
const RECEPTION: &str = " reception: ";
/// What the application's stage is called after its host.
const APPLICATION: &str = " application";
/// A CPU that is busy for less has something left.
const FULL: f64 = 0.99;
/// An application that gets less of the CPU has as good as nothing.
const STARVED: f64 = 0.05;

/// What the stages of a receiving host are called in the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Entering an interrupt.
    pub interrupt: String,
    /// Switching to a thread.
    pub switch: String,
    /// Accepting a packet.
    pub accept: String,
    /// Moving it into memory.
    pub transfer: String,
    /// The protocol.
    pub protocol: String,
    /// The application.
    pub application: String,
    /// Looking whether there is anything.
    pub polling: String,
}

impl Names {
    /// The names at this host.
    pub fn new(host: &str) -> Names {
        let reception = |stage: &str| format!("{host}{RECEPTION}{stage}");
        Names {
            interrupt: reception("interrupt entry"),
            switch: format!("{host} thread switch"),
            accept: reception("first command"),
            transfer: format!("{host} adapter transfer"),
            protocol: reception("protocol"),
            application: format!("{host}{APPLICATION}"),
            polling: reception("polling"),
        }
    }
}

/// A resource's shares in reception and in applications.
pub fn shares_of(resource: &Resource) -> (f64, f64) {
    resource.by_stage.iter().fold(
        (0.0, 0.0),
        |(reception, application), (stage, share)| match stage.as_str() {
            stage if stage.contains(RECEPTION) => (reception + share, application),
            stage if stage.ends_with(APPLICATION) => (reception, application + share),
            _ => (reception, application),
        },
    )
}

/// The verdict on a host that receives and does nothing else, where there is one: receive livelock.
pub fn livelock(ledger: &Ledger) -> Option<Verdict> {
    let of = |resource: &Resource| {
        let (reception, application) = shares_of(resource);
        let used = resource.busy + resource.blocked;
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
    Some(Verdict { resource, utilisation, confidence, runner_up: None, words })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
