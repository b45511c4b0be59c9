//! Search for the highest rate that a machine certifies.
//!
//! ```text
//! first host --[ generator ]--> links at the rate tried --> second host's interface, which counts
//! ```
//!
//! Every link of the experiment gets the rate under test, and frames of 1514 bytes (packets of 1500) are
//! generated at exactly that rate. The rate is doubled until the run does not keep up, then bisected. A
//! run's reported loss is checked against independent counts: the generator's, and the receiving
//! interface's.

use super::{Options, Report, refused, run};
use lastmeter_base::kind::Value;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_engine::Control;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Library;
use lastmeter_lab::run::Failure;
use lastmeter_ledger::Certificate;
use lastmeter_live::flood::Flood;
use serde_json::json;
use std::sync::Arc;

/// A packet of 1500 bytes with its Ethernet header.
const FRAME: Bytes = Bytes(1514);
/// The first rate tried.
const FIRST: u64 = 250_000_000;
/// No machine of today carries this with such packets on one core.
const LAST: u64 = 400_000_000_000;
/// The search ends when the rates that pass and fail are this close.
const CLOSE: f64 = 1.04;
/// How often a rate is tried before it counts as too high: other programs may disturb one try.
const TRIES: usize = 2;
/// How long a trial lasts.
const LASTS: f64 = 1.0;
/// Time for frames in flight to arrive, in addition to the delays of the links.
const SETTLES: Duration = Duration::from_ms(300);

/// The trial of one rate.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Bits per second of each link.
    pub rate: f64,
    /// The emulator's certificate.
    pub certificate: Certificate,
    /// Frames that the generator sent, those it had no time for, and frames that the other host's interface
    /// received.
    pub frames: [u64; 3],
    /// Frames that the modelled queues dropped, as they should.
    pub dropped: u64,
}

impl Trial {
    /// The share of frames that did not come out, by the counts at both ends.
    pub fn shortfall(&self) -> f64 {
        let [sent, _, received] = self.frames;
        1.0 - (received + self.dropped) as f64 / sent.max(1) as f64
    }
    /// Whether the generator reached the requested rate: otherwise the trial is void.
    pub fn was_offered(&self) -> bool {
        let [sent, behind, _] = self.frames;
        (behind as f64) < 0.02 * (sent + behind) as f64
    }
    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "rate": self.rate,
            "kept_up": self.certificate.kept_up,
            "offered": self.was_offered(),
            "frames": { "sent": self.frames[0], "behind": self.frames[1],
                        "received": self.frames[2], "dropped": self.dropped },
            "shortfall": { "stated": self.certificate.shortfall, "counted": self.shortfall() },
            "certificate": self.certificate,
        })
    }
}

/// The result of the search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The highest rate that was certified.
    pub best: Option<Trial>,
    /// The lowest rate that was not; `None` where the generator was the limit.
    pub above: Option<Trial>,
    /// A rate well above the certified one, to check a failing run's own report.
    pub beyond: Option<Trial>,
}

/// Tries one rate.
///
/// # Errors
/// As [`run`].
pub fn trial(
    experiment: &Experiment,
    rate: u64,
    options: &Options,
    library: &dyn Library,
    control: &Arc<Control>,
) -> Result<Trial, Failure> {
    let mut experiment = experiment.clone();
    let (mut framing, mut delay) = (Bytes::ZERO, Duration::ZERO);
    for link in &mut experiment.links {
        link.values.insert("rate", Value::Rate(Rate::from_bits(rate)));
        framing = framing.max(link.values.given("framing").unwrap_or(Bytes::ZERO));
        delay += link.values.get::<Duration>("delay");
    }
    let frame_rate = rate as f64 / (8.0 * (FRAME + framing).0 as f64);
    let others = options.manner.others().map_err(refused)?;
    let core = others.first().copied().filter(|_| options.manner.core.is_some());
    let flood = Flood {
        rate: frame_rate,
        len: FRAME.0 as usize,
        lasts: LASTS,
        hostile: false,
        core,
        ..Flood::default()
    };
    experiment.duration = Duration::from_secs_f64(LASTS) + SETTLES + delay;
    let options = Options { flood: Some(flood), programs: Vec::new(), ..options.clone() };
    let Report { ledger, measured, .. } = run(&experiment, &options, library, control)?;
    let certificate = ledger.certificate.expect("a live run has a certificate");
    let flooded = measured.flooded.unwrap_or_default();
    let received = measured.received.get(1).copied().unwrap_or(0);
    let dropped = ledger.paths.iter().map(|path| path.totals.dropped_packets()).sum();
    let frames = [flooded.sent, flooded.behind + flooded.refused, received];
    Ok(Trial { rate: rate as f64, certificate, frames, dropped })
}

/// Finds the highest rate that is certified; `tell` gets each trial.
///
/// # Errors
/// As [`run`].
pub fn search(
    experiment: &Experiment,
    options: &Options,
    library: &dyn Library,
    control: &Arc<Control>,
    tell: &mut dyn FnMut(&Trial),
) -> Result<Search, Failure> {
    let mut attempt = |rate: u64| -> Result<Trial, Failure> {
        let mut tries = 0;
        loop {
            let trial = trial(experiment, rate, options, library, control)?;
            tell(&trial);
            tries += 1;
            let is_final = trial.certificate.kept_up || !trial.was_offered();
            if is_final || tries == TRIES || control.stopped() {
                return Ok(trial);
            }
        }
    };
    let mut found = Search { best: None, above: None, beyond: None };
    let (mut low, mut high) = (0, FIRST);
    while found.above.is_none() && high < LAST && !control.stopped() {
        let trial = attempt(high)?;
        match trial.certificate.kept_up && trial.was_offered() {
            true => {
                found.best = Some(trial);
                (low, high) = (high, high * 2);
            }
            false => found.above = Some(trial),
        }
    }
    while low > 0 && high as f64 > low as f64 * CLOSE && !control.stopped() {
        let rate = low.midpoint(high);
        let trial = attempt(rate)?;
        match trial.certificate.kept_up && trial.was_offered() {
            true => (low, found.best) = (rate, Some(trial)),
            false => (high, found.above) = (rate, Some(trial)),
        }
    }
    if !control.stopped() {
        let trial = trial(experiment, high.saturating_mul(2).min(LAST), options, library, control)?;
        tell(&trial);
        found.beyond = Some(trial);
    }
    Ok(found)
}

impl Search {
    /// The result in a few sentences.
    pub fn words(&self) -> String {
        let gbit = |trial: &Trial| format!("{:.3} Gbit/s", trial.rate / 1e9);
        let Some(best) = &self.best else {
            let above = self.above.as_ref().map(|trial| trial.certificate.words.clone());
            return format!("No rate was certified. {}", above.unwrap_or_default());
        };
        let mut words = format!(
            "Certified up to {} with packets of 1500 bytes: {}.",
            gbit(best),
            best.certificate.words.trim_end_matches('.'),
        );
        match &self.above {
            Some(above) if !above.was_offered() => {
                words += &format!(
                    " At {} the generator was the limit: it sent {:.1} % of the frames.",
                    gbit(above),
                    100.0 * above.frames[0] as f64
                        / (above.frames[0] + above.frames[1]).max(1) as f64,
                );
            }
            Some(above) => {
                words += &format!(" At {}: {}", gbit(above), above.certificate.words);
            }
            None => {}
        }
        if let Some(beyond) = &self.beyond {
            words += &format!(
                " At {} the run reports a shortfall of {:.2} %; by the counts at both ends it is \
                 {:.2} %.",
                gbit(beyond),
                beyond.certificate.shortfall * 100.0,
                beyond.shortfall() * 100.0,
            );
        }
        words
    }
    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let json = |trial: &Option<Trial>| trial.as_ref().map(Trial::json);
        json!({
            "schema": "lastmeter.live-search/1",
            "best": json(&self.best),
            "above": json(&self.above),
            "beyond": json(&self.beyond),
            "words": self.words(),
        })
    }
}
