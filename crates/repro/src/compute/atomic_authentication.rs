//! ATOMIC-2's authentication: the ladder of Fig 12, and an upper bound on the speed of MD5 (N-16, N-17, N-83
//! to N-87, N-92).

use super::atomic::{ATOMIC, SAME, TCP, UDP, cost, mbit, rate, transfer};
use super::{Computed, Setting, row, together};
use crate::Error;
use crate::machines::dependency::{Instructions, md5};
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_ledger::Ledger;
use lastmeter_ledger::plots::{Plot, Series};

struct Step {
    /// Its name in Fig 12.
    name: &'static str,
    rate: f64,
    ledger: Ledger,
}

/// The steps of Fig 12, in its order.
fn ladder(setting: &Setting<'_>) -> Result<Vec<Step>, Error> {
    let constants = setting.constants;
    let per_byte = |name: &str| constants.get::<PerByte>(name);
    let (touch, md5, swap) = (per_byte("touch")?, per_byte("md5")?, per_byte("swap")?);
    let packet: Bytes = constants.get("packet")?;
    let optimised = md5.scale_ceil(constants.get("md5_optimised")?, 100);
    let without_swap = PerByte::from_fs(optimised.as_fs().saturating_sub(swap.as_fs()));
    let (aha, rogaway) = (per_byte("aha")?, per_byte("rogaway")?);
    let steps = [
        ("No-AH", "transfer", PerByte::ZERO),
        ("Null-AH", "null", PerByte::ZERO),
        ("Null-Cksum", "sender", PerByte::ZERO),
        ("Cksum", "both", PerByte::ZERO),
        ("AHA", "both", aha),
        ("Rogaway", "both", rogaway),
        ("NBO-MD5-OPT", "both", without_swap),
        ("md5-opt", "both", optimised),
        ("md5", "both", md5),
    ];
    let step = |(name, run, hash): (&'static str, &str, PerByte)| {
        let [_, hash] = cost(Duration::ZERO, PerByte::from_fs(touch.as_fs() + hash.as_fs()));
        let ledger = transfer(setting, run, (TCP, ATOMIC), packet, &[("hash", hash)])?;
        Ok(Step { name, rate: ledger.paths[0].totals.goodput, ledger })
    };
    steps.into_iter().map(step).collect()
}

pub(super) fn authentication(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let ladder = ladder(setting)?;
    let named = |name: &str| {
        let missing = || failed(format!("there is no step `{name}`"));
        ladder.iter().find(|step| step.name == name).ok_or_else(missing)
    };
    let packet: Bytes = setting.constants.get("packet")?;
    let (none, slowest) = (named("No-AH")?, named("md5")?);
    let (null, checksum) = (named("Null-AH")?.rate, named("Cksum")?.rate);
    let (sender, aha) = (named("Null-Cksum")?.rate, named("AHA")?.rate);
    // Hashing at the sender alone does not belong in the order: its receiver has less to do.
    let both: Vec<f64> =
        ladder.iter().filter(|step| step.name != "Null-Cksum").map(|step| step.rate).collect();
    let unchecked = rate(setting, "unchecked", (TCP, ATOMIC), packet, &[])?;
    let share = |ledger: &Ledger, of: &dyn Fn(&str) -> bool| {
        let cpu = ledger.resources.iter().find(|resource| resource.name == "sender.cpu");
        let stages = cpu.into_iter().flat_map(|cpu| &cpu.by_stage);
        stages.filter(|(stage, _)| of(stage)).map(|(_, share)| share).sum::<f64>()
    };
    let hashing = share(&slowest.ledger, &|stage| stage.ends_with("hash out"));
    let touching = share(&none.ledger, &|stage| !stage.contains("protocol"));
    Ok(vec![
        row("N-83/authentication", mbit(none.rate)),
        row("N-83/md5", mbit(slowest.rate)),
        row("N-84/algorithms", (ladder.len() as f64, "algorithms")),
        row("N-84/step-slower", both.windows(2).all(|pair| pair[1] < pair[0])),
        row("N-84/hashing-sender", sender >= checksum * (1.0 - SAME)),
        row("N-85/data-touching", checksum < null * 0.95),
        row("N-85/hash-limits", hashing > 0.5),
        row("N-86/alternate", mbit(aha)),
        row("N-86/alternate-hash", (aha / slowest.rate, "times")),
        row("N-16", unchecked > none.rate * 1.05),
        row("N-17", touching > 0.5),
    ])
}

/// How fast hashes can be, beside what the project's RFCs report.
pub(super) fn hashes(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    together(setting, &[bounds, rfcs])
}

fn failed(message: String) -> Error {
    Error::Computation { name: "atomic2-authentication", message }
}

/// A processor of RFC 1810: its clock, the integer operations it issues per cycle, its instructions for MD5,
/// and the constant with the measured rate.
struct Processor {
    measured: &'static str,
    mhz: u64,
    width: u64,
    instructions: Instructions,
}

const fn processor(
    measured: &'static str,
    (mhz, width): (u64, u64),
    (rotates, constant, turns): (bool, u64, bool),
) -> Processor {
    Processor { measured, mhz, width, instructions: Instructions { rotates, constant, turns } }
}

/// From the manufacturers' manuals; which of a chip's units execute shifts and logic is ignored.
const PROCESSORS: [Processor; 8] = [
    processor("md5_alpha", (190, 1), (false, 0, false)),
    processor("md5_hp", (50, 1), (true, 1, true)),
    processor("md5_rs6000", (80, 1), (true, 1, true)),
    processor("md5_486", (66, 1), (true, 0, false)),
    processor("md5_pentium", (90, 2), (true, 0, false)),
    processor("md5_sgi", (100, 1), (false, 1, true)),
    processor("md5_ss10", (50, 2), (false, 1, true)),
    processor("md5_ss20", (75, 2), (false, 1, true)),
];
/// Bits of a block.
const BLOCK: f64 = 512.0;

/// How fast MD5 can be (N-87, N-92).
fn bounds(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let (mut below, mut near) = (true, true);
    for one in &PROCESSORS {
        let kernel = md5(one.instructions);
        let (bound, schedule) = (kernel.bound(one.width), kernel.schedule(one.width));
        let measured: Rate = setting.constants.get(one.measured)?;
        let most = one.mhz as f64 * 1e6 * BLOCK / bound as f64;
        below &= (measured.as_bits() as f64) < most;
        near &= schedule as f64 <= bound as f64 * 1.1;
    }
    let alpha = &PROCESSORS[0];
    let measured: Rate = setting.constants.get(alpha.measured)?;
    let cycles = md5(alpha.instructions).schedule(alpha.width) as f64;
    let gain = alpha.mhz as f64 * 1e6 * BLOCK / cycles / measured.as_bits() as f64 - 1.0;
    let pentium = md5(PROCESSORS[4].instructions);
    let over = pentium.schedule(2) as f64 / pentium.bound(2) as f64 - 1.0;
    Ok(vec![
        row("N-87/measured-rates", below),
        row("N-87/schedule-pentium", (over * 100.0, "%")),
        row("N-87/schedules", near),
        row("N-87/alpha", (gain * 100.0, "%")),
    ])
}

/// What the project's own RFCs report (N-92).
fn rfcs(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (clock, bits): (Duration, u64) = (constants.get("pld_clock")?, constants.get("pld_bits")?);
    let longest = constants.get::<Bytes>("atm_packet")?.0;
    let rate = |host: &str| -> Result<f64, Error> {
        let given =
            [("message", longest), ("packet", longest)].map(|(name, len)| (name, len.into()));
        let ledger =
            setting.ledger("transfer", &[&[("host", host.into())], &given[..]].concat())?;
        Ok(ledger.paths[0].totals.goodput)
    };
    let (tcp, udp) = (rate(TCP)?, rate(UDP)?);
    Ok(vec![
        row("N-92/checksum-hardware", (bits as f64 / clock.as_secs_f64() / 1e9, "Gbit/s")),
        row("N-92/tcp-over", mbit(tcp)),
        row("N-92/udp-over", mbit(udp)),
    ])
}

/// Fig 12.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let ladder = ladder(setting)?;
    let points = (1..).zip(&ladder).map(|(place, step)| (f64::from(place), step.rate / 1e6));
    let marks = (1..).zip(&ladder).map(|(place, step)| (f64::from(place), step.name.to_owned()));
    let published = vec![(1.0, 90.0), (5.0, 55.0), (9.0, 30.0)];
    Ok(vec![
        Plot::new(
            "Fig 12: TCP throughput with authentication",
            "Packets of 8 KB between two SPARC 20/71 on Myrinet. The text has three of \
                  the nine values.",
            ("step of the ladder", "throughput, Mbit/s"),
            vec![
                Series { name: "ours".to_owned(), points: points.collect() },
                Series { name: "published (No-AH, AHA, md5)".to_owned(), points: published },
            ],
        )
        .marked(marks.collect()),
    ])
}
