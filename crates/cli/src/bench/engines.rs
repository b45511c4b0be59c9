//! Lookups with N in flight: Figs 26 and 27 of the document on this machine, beside the model of its
//! engines (D-131, D-132, D-134 to D-137).
//!
//! The table has as many routes as the document's and the shape of its engines: strides of 4, no
//! initial array, no end nodes. N keys descend the tree together, and the next batch starts only when all
//! have arrived: each key depends on the previous answers, so that the processor cannot overlap more by
//! itself. A lookup's latency is then the time of its batch.

use super::{Measurement, Setting, engine::Bench, lookup::sum};
use crate::Complaint;
use lastmeter_base::Stream;
use lastmeter_net::lookup::table::{IPV4_LENGTHS, LENGTHS_2001, Table, addresses, generate, load};
use lastmeter_net::lookup::{Options, TreeBitmap};
use lastmeter_repro::compute::fipl::Engines2001;
use std::hint::black_box;
use std::time::Instant;

/// Routes of the document's table, of a full one, and of a quick one.
const ROUTES: usize = 16_564;
const ROUTES_FULL: usize = 900_000;
const ROUTES_QUICK: usize = 2_000;
/// Addresses of a run of the document, and for a table larger than any cache.
const ADDRESSES: usize = 2048;
const ADDRESSES_FULL: usize = 1 << 20;
const SECONDS: f64 = 0.25;
const SECONDS_QUICK: f64 = 0.02;
/// Lookups between two readings of the clock: an update is late by no more than these take.
const BETWEEN: usize = 512;
/// Lookups between two readings of the clock where nothing is updated.
const PASS: usize = 1 << 15;
/// Minimum number of passes or windows, however much other programs disturb them.
const PASSES_MIN: usize = 8;
/// Seconds of a window: ten updates at 1,000 a second, and short enough that some are not disturbed.
const WINDOW: f64 = 0.01;
const PEER: &str = "model of 2001";

/// All of them; the number after `@` is how many lookups are in flight.
pub(crate) const ALL: &[(&str, Bench)] = &[
    ("lookup/engines@1", engines::<1>),
    ("lookup/engines@2", engines::<2>),
    ("lookup/engines@4", engines::<4>),
    ("lookup/engines@8", engines::<8>),
    ("lookup/engines@16", engines::<16>),
    ("lookup/engines@32", engines::<32>),
    ("lookup/engines@64", engines::<64>),
    ("lookup/engines-latency@1", latency::<1>),
    ("lookup/engines-latency@2", latency::<2>),
    ("lookup/engines-latency@4", latency::<4>),
    ("lookup/engines-latency@8", latency::<8>),
    ("lookup/engines-latency@16", latency::<16>),
    ("lookup/engines-latency@32", latency::<32>),
    ("lookup/engines-latency@64", latency::<64>),
    ("lookup/engines-full@1", full::<1>),
    ("lookup/engines-full@8", full::<8>),
    ("lookup/engines-full@64", full::<64>),
    ("lookup/engines-1000-updates@1", updated::<1_000, 1>),
    ("lookup/engines-1000-updates@8", updated::<1_000, 8>),
    ("lookup/engines-1000-updates@64", updated::<1_000, 64>),
    ("lookup/engines-10000-updates@1", updated::<10_000, 1>),
    ("lookup/engines-10000-updates@8", updated::<10_000, 8>),
    ("lookup/engines-10000-updates@64", updated::<10_000, 64>),
    ("lookup/engines-100000-updates@1", updated::<100_000, 1>),
    ("lookup/engines-100000-updates@8", updated::<100_000, 8>),
    ("lookup/engines-100000-updates@64", updated::<100_000, 64>),
];

/// A table, its addresses, and what was found in them.
struct Run {
    table: Table<u32>,
    tree: TreeBitmap<u32>,
    keys: Vec<u32>,
    seconds: f64,
    seed: u64,
}

impl Run {
    fn new(
        routes: usize,
        lengths: &[(u8, u32)],
        (options, count): (Options, usize),
        setting: &Setting<'_>,
    ) -> Result<Run, Complaint> {
        let seed = setting.seed.unwrap_or(1);
        let routes = if setting.quick { ROUTES_QUICK } else { routes };
        let table = generate::<u32>(routes, lengths, seed);
        let tree = load(&table, options)?;
        let keys = addresses(&table, if setting.quick { ADDRESSES } else { count }, seed);
        let seconds = if setting.quick { SECONDS_QUICK } else { SECONDS };
        Ok(Run { table, tree, keys, seconds, seed })
    }
    fn of_2001(setting: &Setting<'_>) -> Result<Run, Complaint> {
        Run::new(ROUTES, LENGTHS_2001, (Options::FIPL, ADDRESSES), setting)
    }

    /// One pass over some keys with `N` in flight: the sum of the next hops.
    fn pass<const N: usize>(&self, keys: &[u32]) -> u64 {
        // Always zero, unknown to compiler and processor: makes each key depend on the previous answers.
        let nothing = black_box(0_u32);
        let (mut hash, mut hops) = (0_u64, [None; N]);
        for keys in keys.as_chunks::<N>().0 {
            let behind = hash as u32 & nothing;
            self.tree.lookup_in_flight(&keys.map(|key| key ^ behind), &mut hops);
            hash = hash.wrapping_add(sum(&hops));
        }
        hash
    }

    /// Lookups a second with `N` in flight, the best of many passes, and the hash of a pass.
    fn rate<const N: usize>(&self) -> (f64, u64) {
        let (began, mut best) = (Instant::now(), 0.0_f64);
        // The hash is that of a whole pass.
        let hash = self.pass::<N>(&self.keys);
        for (passes, keys) in self.keys.chunks(PASS).cycle().enumerate() {
            let start = Instant::now();
            black_box(self.pass::<N>(keys));
            best = best.max(keys.len() as f64 / start.elapsed().as_secs_f64());
            if passes > PASSES_MIN && began.elapsed().as_secs_f64() > self.seconds {
                break;
            }
        }
        (best, hash)
    }

    /// Lookups a second while the table is updated at a rate on the same core: the best of several windows,
    /// each with its updates.
    fn while_updated<const N: usize>(&mut self, rate: u32) -> (f64, u64) {
        let mut order = Stream::new(self.seed, "updates");
        let (mut best, mut hash) = (0.0_f64, 0_u64);
        let (began, mut windows) = (Instant::now(), 0);
        while windows < PASSES_MIN || began.elapsed().as_secs_f64() < 2.0 * self.seconds {
            windows += 1;
            let (window, mut done, mut changed) = (Instant::now(), 0_usize, 0.0);
            for at in (0..self.keys.len()).step_by(BETWEEN).cycle() {
                let keys = &self.keys[at..self.keys.len().min(at + BETWEEN)];
                hash = hash.wrapping_add(self.pass::<N>(keys));
                done += keys.len();
                let elapsed = window.elapsed().as_secs_f64();
                while changed < elapsed * f64::from(rate) {
                    let (prefix, hop) = self.table[order.below(self.table.len() as u64) as usize];
                    let removed = self.tree.remove(prefix);
                    // It was there a moment ago, so there is room.
                    let _ = self.tree.insert(prefix, hop);
                    hash = hash.wrapping_add(sum(&[removed]));
                    changed += 2.0;
                }
                if elapsed > WINDOW {
                    best = best.max(done as f64 / window.elapsed().as_secs_f64());
                    break;
                }
            }
        }
        (best, hash)
    }
}

fn result(bench: String, value: f64, unit: &str, hash: u64, note: String) -> Measurement {
    Measurement::new(bench, value, unit, format!("{hash:016x}"), note)
}

/// Adds the model's figure for as many engines, where the document has it.
fn beside<const N: usize>(
    result: &mut Measurement,
    setting: &Setting<'_>,
    of: impl Fn(&Engines2001) -> f64,
) -> Result<(), Complaint> {
    let model = Engines2001::new(setting.seed.unwrap_or(1));
    let model = model.map_err(|error| Complaint(error.to_string()))?;
    if N <= model.engines() {
        result.beside(PEER, of(&model));
    }
    Ok(())
}

fn engines<const N: usize>(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let run = Run::of_2001(setting)?;
    let (rate, hash) = run.rate::<N>();
    let note = format!("{} routes in the engines' shape, {N} lookups in flight", run.table.len());
    let mut result = result(format!("lookup/engines@{N}"), rate, "lookups/s", hash, note);
    beside::<N>(&mut result, setting, |model| model.run(N).rate)?;
    Ok(result)
}

fn latency<const N: usize>(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let run = Run::of_2001(setting)?;
    let (rate, hash) = run.rate::<N>();
    let note = format!("from the key to the answer, {N} lookups in flight");
    let name = format!("lookup/engines-latency@{N}");
    let mut result = result(name, 1e9 * N as f64 / rate, "ns", hash, note).lower_is_better();
    beside::<N>(&mut result, setting, |model| 1e9 * model.run(N).latency)?;
    Ok(result)
}

fn full<const N: usize>(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let run = Run::new(ROUTES_FULL, IPV4_LENGTHS, (Options::IPV4, ADDRESSES_FULL), setting)?;
    let (rate, hash) = run.rate::<N>();
    let note = format!("{} routes in today's shape, {N} lookups in flight", run.table.len());
    Ok(result(format!("lookup/engines-full@{N}"), rate, "lookups/s", hash, note))
}

fn updated<const RATE: u32, const N: usize>(
    setting: &Setting<'_>,
) -> Result<Measurement, Complaint> {
    let mut run = Run::of_2001(setting)?;
    let (without, _) = run.while_updated::<N>(0);
    let (rate, hash) = run.while_updated::<N>(RATE);
    let loss = 100.0 * (1.0 - rate / without);
    let note = format!("{RATE} updates/s on the same core take {loss:.1} % of the lookups");
    let name = format!("lookup/engines-{RATE}-updates@{N}");
    let mut result = result(name, rate, "lookups/s", hash, note);
    beside::<N>(&mut result, setting, |model| model.updated(N, u64::from(RATE)).rate)?;
    Ok(result)
}
