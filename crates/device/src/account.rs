//! The account of a device: the time of each stage of its request path, kept by the threads that serve requests and
//! turned into a ledger at any time.
//!
//! ```text
//! let mut lap = account.begin();             one request
//! ... decide ...       lap.served(2)         time since the last mark: stage 2 worked
//! account.end(lap, bytes)                    it was answered; or account.refuse("reason")
//! ```
//!
//! Latency is the sum of the stages, which therefore balance by construction. One request in `every` is timed; the rest
//! are only counted. Timing costs 30 ns per mark.
//!
//! Rows: N-04.

use lastmeter_ledger::{
    Confidence, Count, Latency, Ledger, Path, Provenance, Resource, Stage, Times, Totals, Verdict,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limit on the stages of a request path.
pub const STAGES_MAX: usize = 12;
/// Limit on different reasons for refusals; further ones are counted as `other`.
pub const REASONS_MAX: usize = 64;
/// Latencies are counted in bins that are an eighth of a power of two wide.
const BINS: usize = 64 * 8;

/// A device's account. Shared by its threads.
pub struct Account {
    device: String,
    every: u64,
    stages: Vec<(&'static str, &'static str)>,
    /// How often each stage copies a byte, and how often it reads or writes one, where that is known.
    passes: Vec<Option<(u32, u32)>>,
    /// Nanoseconds of each stage.
    sums: Vec<AtomicU64>,
    begun: AtomicU64,
    done: AtomicU64,
    bytes: AtomicU64,
    timed: AtomicU64,
    bins: Vec<AtomicU64>,
    longest: AtomicU64,
    refused: Mutex<BTreeMap<String, u64>>,
    /// What was lost at a stage, and whether it had been counted as answered.
    lost: Mutex<BTreeMap<(usize, &'static str, bool), u64>>,
    began: Instant,
}

/// The times of one request.
pub struct Lap {
    /// Absent if this request is only counted.
    last: Option<Instant>,
    service: [u64; STAGES_MAX],
}

impl Lap {
    fn since(&mut self) -> u64 {
        let Some(last) = self.last else { return 0 };
        let now = Instant::now();
        self.last = Some(now);
        u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX)
    }
    /// Attributes the time since the last mark to this stage.
    pub fn served(&mut self, stage: usize) {
        self.service[stage] += self.since();
    }
    /// Attributes a time that was measured elsewhere to this stage. The time since the last mark stays unattributed.
    pub fn add(&mut self, stage: usize, time: Duration) {
        if self.last.is_some() {
            self.service[stage] += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        }
    }
    /// Seconds of each stage so far.
    pub fn seconds(&self) -> [f64; STAGES_MAX] {
        self.service.map(|nanoseconds| nanoseconds as f64 / 1e9)
    }
}

impl Account {
    /// An account of requests that pass these stages, each with the resource that serves it. One request in `every` is
    /// timed.
    pub fn new(device: &str, stages: &[(&'static str, &'static str)], every: u64) -> Account {
        assert!(stages.len() <= STAGES_MAX && every > 0, "few stages, and some are timed");
        Account {
            device: device.to_owned(),
            every,
            stages: stages.to_vec(),
            passes: vec![None; stages.len()],
            sums: stages.iter().map(|_| AtomicU64::new(0)).collect(),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            timed: AtomicU64::new(0),
            bins: (0..BINS).map(|_| AtomicU64::new(0)).collect(),
            longest: AtomicU64::new(0),
            refused: Mutex::default(),
            lost: Mutex::default(),
            began: Instant::now(),
        }
    }
    /// A stage copies each byte so often, and a processor reads or writes it so often there.
    pub fn passing(mut self, stage: usize, copies: u32, touches: u32) -> Account {
        self.passes[stage] = Some((copies, touches));
        self
    }
    /// A request arrives.
    pub fn begin(&self) -> Lap {
        let number = self.begun.fetch_add(1, Relaxed);
        let last = number.is_multiple_of(self.every).then(Instant::now);
        Lap { last, service: [0; STAGES_MAX] }
    }
    /// A request that has waited since an earlier instant.
    pub fn begin_at(&self, since: Option<Instant>) -> Lap {
        let lap = self.begin();
        Lap { last: lap.last.and(since).or(lap.last), ..lap }
    }
    /// It was answered, and carried this many bytes.
    pub fn end(&self, lap: Lap, bytes: u64) {
        self.done.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        if lap.last.is_none() {
            return;
        }
        self.timed.fetch_add(1, Relaxed);
        let mut total = 0u64;
        for (sum, spent) in self.sums.iter().zip(lap.service) {
            sum.fetch_add(spent, Relaxed);
            total += spent;
        }
        self.bins[bin(total)].fetch_add(1, Relaxed);
        self.longest.fetch_max(total, Relaxed);
    }
    /// It was refused, for this reason. Like dropped packets, it does not count in the times of stages.
    pub fn refuse(&self, reason: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = refused.len() < REASONS_MAX || refused.contains_key(reason);
        *refused.entry(if fits { reason } else { "other" }.to_owned()).or_default() += 1;
    }
    /// So many were lost at a stage, for this reason; `was_done` if they had been counted as answered.
    pub fn lose(&self, stage: usize, reason: &'static str, count: u64, was_done: bool) {
        if count > 0 {
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            *lost.entry((stage, reason, was_done)).or_default() += count;
        }
    }
    /// Requests answered.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }
    /// Requests refused.
    pub fn refused(&self) -> u64 {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
    /// The account so far. `cpu` is the CPU time, in seconds, that the device has used since it began.
    pub fn ledger(&self, title: &str, version: &str, cpu: f64) -> Ledger {
        let elapsed = self.began.elapsed().as_secs_f64().max(1e-9);
        let (done, bytes) = (self.done.load(Relaxed), self.bytes.load(Relaxed));
        let timed = self.timed.load(Relaxed);
        let mean = |sum: &AtomicU64| sum.load(Relaxed) as f64 / timed.max(1) as f64 / 1e9;
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let losses = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let after: u64 = losses.iter().filter(|((_, _, done), _)| *done).map(|(_, it)| it).sum();
        let done = done.saturating_sub(after);
        let passed = Count { packets: done, bytes };
        let lost: u64 = refused.values().sum::<u64>() + losses.values().sum::<u64>();
        let mut stages: Vec<Stage> = Vec::new();
        let all = self.stages.iter().zip(&self.sums).zip(&self.passes);
        for (((name, resource), sum), passes) in all {
            let mut stage = Stage::new(*name, Some(*resource), passed);
            (stage.copies, stage.touches) = passes.unzip();
            stage.service = Some(Times::mean(mean(sum)));
            stages.push(stage);
        }
        let deciding = stages.iter().position(|stage| stage.name == "policy").unwrap_or(0);
        stages[deciding].drops = refused;
        for ((stage, reason, _), count) in losses {
            *stages[stage].drops.entry(reason.to_owned()).or_default() += count;
        }
        let total: f64 = stages.iter().map(Stage::mean).sum();
        let latency = Latency {
            mean: total,
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            max: (timed > 0).then(|| self.longest.load(Relaxed) as f64 / 1e9),
        };
        let totals = Totals {
            offered: Some(Count { packets: done + lost, bytes }),
            dropped: Some(Count { packets: lost, bytes: 0 }),
            latency: Some(latency),
            ..Totals::new(passed, bytes as f64 * 8.0 / elapsed)
        };
        let resources = self.resources(&stages, done as f64 / elapsed);
        let verdict = verdict(&resources, cpu / elapsed);
        let path = Path::new(format!("client->{}", self.device), "requests", stages, totals);
        let mut ledger =
            Ledger::new(title, elapsed, vec![path], resources, Provenance::new(version, "L0"));
        ledger.verdict = Some(verdict);
        ledger.notes.push(format!("used {cpu:.3} CPU seconds in {elapsed:.3} s"));
        if self.every > 1 {
            ledger.notes.push(format!("one request in {} was timed: {timed}", self.every));
        }
        ledger
    }
    /// The utilisation of each resource by the stages, at this request rate.
    fn resources(&self, stages: &[Stage], rate: f64) -> Vec<Resource> {
        let mut shares: BTreeMap<&str, BTreeMap<String, f64>> = BTreeMap::new();
        for ((_, resource), stage) in self.stages.iter().zip(stages) {
            let busy = stage.service_mean() * rate;
            shares.entry(resource).or_default().insert(stage.name.clone(), busy);
        }
        let made = shares.into_iter().map(|(name, by_stage)| {
            let busy: f64 = by_stage.values().sum();
            // Several threads serve at once: the resource has as many units as were busy.
            let units = (busy.ceil() as u32).max(1);
            let by_stage = by_stage.into_iter().map(|(stage, s)| (stage, s / f64::from(units)));
            let resource = Resource::new(name, name, busy / f64::from(units), None);
            Resource { units, by_stage: by_stage.collect(), ..resource }
        });
        made.collect()
    }
    /// A quantile of the timed requests' latencies, in seconds: the middle of its bin.
    fn quantile(&self, share: f64) -> Option<f64> {
        let counts: Vec<u64> = self.bins.iter().map(|bin| bin.load(Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let at = counts.iter().position(|count| {
            seen += count;
            wanted > 0 && seen >= wanted
        })?;
        // The middle of the last bin may be beyond the longest.
        let longest = self.longest.load(Relaxed) as f64;
        Some(((at as f64 + 0.5) / 8.0).exp2().min(longest) / 1e9)
    }
}

/// The bin of a latency.
fn bin(nanoseconds: u64) -> usize {
    let at = (nanoseconds.max(1) as f64).log2() * 8.0;
    (at as usize).min(BINS - 1)
}

/// A resource that is busier than this limits the device.
const LIMITING: f64 = 0.8;

fn verdict(resources: &[Resource], cores: f64) -> Verdict {
    let busiest = resources.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let (name, busy) = busiest.map_or(("nothing", 0.0), |one| (one.name.as_str(), one.busy));
    let limits = busy > LIMITING;
    let most = busiest.and_then(|one| {
        one.by_stage.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(stage, share)| {
            format!("; `{stage}` takes {:.0} %", 100.0 * share / one.busy.max(1e-12))
        })
    });
    let words = if limits {
        format!("{name} limits the device: busy {:.0} %{}", busy * 100.0, most.unwrap_or_default())
    } else {
        format!(
            "nothing of the device limits its clients: {name} is busiest, {:.0} %, and it used \
             {cores:.2} cores",
            busy * 100.0
        )
    };
    Verdict {
        resource: limits.then(|| name.to_owned()),
        utilisation: Some(busy),
        confidence: if limits { Confidence::Medium } else { Confidence::Low },
        runner_up: None,
        words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [(&str, &str); 3] = [("receive", "cpu"), ("policy", "cpu"), ("medium", "disk")];

    #[test]
    fn the_stages_sum_to_the_latency_and_the_requests_balance() {
        let account = Account::new("disk", &STAGES, 1);
        for number in 0..10 {
            let mut lap = account.begin();
            lap.served(0);
            if number % 5 == 4 {
                account.refuse("read only");
                continue;
            }
            lap.served(1);
            std::thread::sleep(std::time::Duration::from_millis(1));
            lap.served(2);
            account.end(lap, 4096);
        }
        let ledger = account.ledger("a disk", "0", 0.0);
        let path = &ledger.paths[0];
        assert_eq!(path.totals.delivered, Count { packets: 8, bytes: 8 * 4096 });
        assert_eq!(path.stages[1].drops["read only"], 2);
        assert_eq!(ledger.balance.latency_residual, 0.0);
        assert!(path.stages[2].service_mean() >= 1e-3, "{:?}", path.stages[2]);
        let latency = path.totals.latency.expect("requests were timed");
        let (p50, max) = (latency.p50.expect("timed"), latency.max.expect("timed"));
        assert!(p50 > 0.9e-3 && p50 < 2.0 * max, "{latency:?}");
    }

    #[test]
    fn what_is_lost_is_named_and_balances() {
        let account = Account::new("camera", &STAGES, 1);
        for _ in 0..5 {
            let mut lap = account.begin();
            lap.add(2, Duration::from_millis(4));
            account.end(lap, 100);
        }
        account.lose(2, "on the way", 2, true);
        account.lose(0, "too late", 3, false);
        let path = &account.ledger("a camera", "0", 0.0).paths[0];
        let count = |count: Option<Count>| count.map(|it| it.packets);
        assert_eq!(path.totals.delivered.packets, 3);
        assert_eq!((count(path.totals.dropped), count(path.totals.offered)), (Some(5), Some(8)));
        assert_eq!((path.stages[2].drops["on the way"], path.stages[0].drops["too late"]), (2, 3));
        assert!((path.stages[2].service_mean() - 4e-3).abs() < 1e-9);
    }

    #[test]
    fn few_are_timed_and_all_are_counted() {
        let account = Account::new("disk", &STAGES, 8);
        (0..80).for_each(|_| account.end(account.begin(), 1));
        assert_eq!((account.done(), account.timed.load(Relaxed)), (80, 10));
    }

    #[test]
    fn reasons_are_bounded() {
        let account = Account::new("disk", &STAGES, 1);
        for number in 0..1000 {
            account.refuse(&format!("reason {number}"));
        }
        assert_eq!(account.refused(), 1000);
        assert!(account.refused.lock().expect("sound").len() <= REASONS_MAX + 1);
    }
}
