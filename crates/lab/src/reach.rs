//! Which host can carry a rate over an adapter, and how many times as fast the others would have to be (J-88).
//!
//! Each host profile that the adapter fits sends a bulk transfer to an identical host, in the longest packets that
//! both support, with everything but the adapter made 1 to [`TIMES_MAX`] times as fast.

use crate::build::Changes;
use crate::experiment::{Experiment, HOSTS};
use crate::historic::Pair;
use crate::run::{Failure, Runner, changed};
use lastmeter_base::{Duration, Rate};
use lastmeter_ledger::Ledger;
use serde::Serialize;

/// The greatest speed-up of a host.
pub const TIMES_MAX: u64 = 100;
/// Steps of the search: tenths of the host's speed.
const STEPS: u64 = 10;
const LENGTH: Duration = Duration::from_ms(300);

/// The throughput of one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Carried {
    /// Its profile.
    pub host: String,
    /// Goodput in bit/s at the host's own speed.
    pub goodput: f64,
    /// The speed-up at which it reaches the target; `None` if it never does.
    pub times: Option<f64>,
    /// Goodput in bit/s at that speed-up, or at the greatest.
    pub reached: f64,
    /// The resource with the highest utilisation then.
    pub limit: String,
}

/// Every host that `adapter` fits, fastest first: the first is the first to reach `target`.
///
/// ```
/// use lastmeter_base::Rate;
/// use lastmeter_lab::library::Builtin;
/// use lastmeter_lab::run::{Runner, Watch};
/// use lastmeter_lab::reach::hosts;
/// let watch = Watch::default();
/// let runner =
///     Runner { parallel: &lastmeter_engine::Serial, threads: 1, library: &Builtin, watch: &watch };
/// let hosts = hosts("myrinet", Rate::from_mbit(200), runner).unwrap();
/// let sparc = hosts.iter().find(|one| one.host == "sparc20-71").unwrap();
/// // 90 Mbit/s as it is; a packet's time on the bus belongs to the adapter, and does not get shorter.
/// assert!(sparc.times.is_none_or(|times| times > 2.2));
/// ```
///
/// # Errors
/// If there is no such adapter, or a profile contains an error.
pub fn hosts(adapter: &str, target: Rate, runner: Runner<'_>) -> Result<Vec<Carried>, Failure> {
    let library = runner.library;
    let (mut carried, mut refused) = (Vec::new(), None);
    for host in library.names(HOSTS) {
        match Pair::read(&host, adapter, library) {
            Ok(pair) if pair.host.socket_buffer.is_some() => {
                carried.push(one(&host, &pair, target, runner)?);
            }
            Ok(_) => {}
            // If an adapter fits no host, its profile is at fault.
            Err(problems) => refused = Some(problems),
        }
    }
    if let (true, Some(problems)) = (carried.is_empty(), refused) {
        return Err(Failure::Problems(problems));
    }
    carried.sort_by(|a, b| b.goodput.total_cmp(&a.goodput));
    Ok(carried)
}

fn one(host: &str, pair: &Pair, target: Rate, runner: Runner<'_>) -> Result<Carried, Failure> {
    let buffer = pair.host.socket_buffer.unwrap_or(pair.adapter.packet_max);
    let packet = pair.adapter.packet_max.min(buffer);
    let text = pair.experiment(packet, packet, LENGTH).map_err(Failure::Problems)?;
    let parsed = Experiment::parse(host, text, &[], runner.library).map_err(Failure::Problems)?;
    let at = |tenths: u64| -> Result<(f64, String), Failure> {
        let mut changes = Changes::NONE;
        for side in ["sender", "receiver"] {
            let own = pair.host.resources.iter();
            let speeds = own.map(|known| (format!("{side}.{}", known.name), (tenths, STEPS)));
            changes.speed.extend(speeds);
        }
        let ledger = changed(&parsed, &changes, runner)?;
        // Without acknowledgements.
        let goodput = ledger.paths.first().map_or(0.0, |path| path.totals.goodput);
        Ok((goodput, limit(&ledger)))
    };
    let enough = target.as_bits() as f64;
    let (goodput, now) = at(STEPS)?;
    let most = at(TIMES_MAX * STEPS)?;
    let host = host.to_owned();
    if goodput >= enough {
        return Ok(Carried { host, goodput, times: Some(1.0), reached: goodput, limit: now });
    }
    if most.0 < enough {
        return Ok(Carried { host, goodput, times: None, reached: most.0, limit: most.1 });
    }
    // More speed never lowers throughput: bisect between too slow and fast enough.
    let (mut slow, mut fast, mut found) = (STEPS, TIMES_MAX * STEPS, most);
    while fast - slow > 1 {
        let middle = u64::midpoint(slow, fast);
        let tried = at(middle)?;
        if tried.0 >= enough {
            (fast, found) = (middle, tried);
        } else {
            slow = middle;
        }
    }
    let times = Some(fast as f64 / STEPS as f64);
    Ok(Carried { host, goodput, times, reached: found.0, limit: found.1 })
}

/// The resource with the highest utilisation.
fn limit(ledger: &Ledger) -> String {
    let used = |one: &&lastmeter_ledger::Resource| one.utilisation();
    let most = ledger.resources.iter().max_by(|a, b| used(a).total_cmp(&used(b)));
    most.map_or(String::new(), |one| one.name.clone())
}
