//! Which host carries a rate over an adapter, and how many times as fast the others would have to be (J-88).
//!
//! Each profile of a host that the adapter fits sends a bulk transfer to its like, in the longest packets
//! that both take, with everything that is the host's own, and not the adapter's, 1 to [`TIMES_MAX`] times as fast.

use crate::build::Changes;
use crate::experiment::{Experiment, HOSTS};
use crate::historic::Pair;
use crate::run::{Failure, Runner, changed};
use lastmeter_base::{Duration, Rate};
use lastmeter_ledger::Ledger;
use serde::Serialize;

/// Greatest speed-up of a host.
pub const TIMES_MAX: u64 = 100;
/// Steps of a search: a tenth of the host's speed.
const STEPS: u64 = 10;
const LENGTH: Duration = Duration::from_ms(300);

/// What one host carries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Carried {
    /// Its profile.
    pub host: String,
    /// Bits a second of data, as it is.
    pub goodput: f64,
    /// How many times as fast it reaches the target; `None` where it never does.
    pub times: Option<f64>,
    /// Bits a second at that speed, or at the highest.
    pub reached: f64,
    /// What is in use most then.
    pub limit: String,
}

/// Every host that `adapter` fits, the fastest first: the one at the top is the first to carry `target`.
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
/// // 90 Mbit/s as it is; the packet's way over the bus is the adapter's, and does not get faster.
/// assert!(sparc.times.is_none_or(|times| times > 2.2));
/// ```
///
/// # Errors
/// There is no such adapter, or a profile is wrong.
pub fn hosts(adapter: &str, target: Rate, runner: Runner<'_>) -> Result<Vec<Carried>, Failure> {
    let library = runner.library;
    let (mut carried, mut refused) = (Vec::new(), None);
    for host in library.names(HOSTS) {
        match Pair::read(&host, adapter, library) {
            Ok(pair) if pair.host.socket_buffer.is_some() => {
                carried.push(one(&host, &pair, target, runner)?);
            }
            Ok(_) => {}
            // An adapter that fits no host is wrong itself.
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
    // Speed never costs throughput: halve what lies between too slow and fast enough.
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

/// What is in use most.
fn limit(ledger: &Ledger) -> String {
    let used = |one: &&lastmeter_ledger::Resource| one.utilisation();
    let most = ledger.resources.iter().max_by(|a, b| used(a).total_cmp(&used(b)));
    most.map_or(String::new(), |one| one.name.clone())
}
