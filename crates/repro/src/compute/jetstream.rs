//! The budgets of Jetstream's ring (J-16 to J-21), and a ring of old and new hosts (J-56, J-60).

use super::{Computed, Setting, row};
use crate::Error;
use crate::machines::ring::budget::Ring;
use lastmeter_base::{Bytes, Duration, Packet, Rate, Time};
use lastmeter_lan::timed_token::medium::{Class, Medium, Options};

pub(super) fn budgets(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let ring = Ring {
        rotation_target: constants.get("rotation_target")?,
        rate: constants.get("rate")?,
        nodes: constants.get("nodes")?,
        node_delay: constants.get("node_delay")?,
        metres: constants.get("metres")?,
        metre_delay: constants.get("metre_delay")?,
        frame_max: constants.get("frame_max")?,
    };
    let kept: Duration = constants.get("overrun_kept")?;
    let synchronous = ring.synchronous_max(kept);
    let mut computed = vec![
        row("J-16", ring.token_lost_after()),
        row("J-17", ring.transmit()),
        row("J-18", ring.propagation()),
        row("J-19", ring.overrun()),
        row("J-20/t_synch-most", synchronous),
        row("J-20/synchronous", ring.synchronous_rate(synchronous)),
        row("J-20/synchronous-access", ring.access_max_synchronous()),
        row("J-21", ring.access_max_asynchronous()),
    ];
    computed.extend(mixed(setting)?);
    Ok(computed)
}

/// A timed-token ring on which only propagation and frames take time.
pub(super) fn ring_options(
    target: Duration,
    rate: Rate,
    hops: Vec<Duration>,
    allotments: Vec<Duration>,
    packets_max: usize,
) -> Options {
    let (token, handler, framing) = (Duration::ZERO, Duration::ZERO, Bytes::ZERO);
    Options { target, rate, hops, allotments, token, framing, packets_max, handler }
}

/// One host with the synchronous service among hosts without it; all send more asynchronous frames than the
/// ring carries.
fn mixed(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (target, rate): (Duration, Rate) =
        (constants.get("rotation_target")?, constants.get("rate")?);
    let nodes: u64 = constants.get("nodes")?;
    let (allotment, length): (Duration, Duration) =
        (constants.get("allotment")?, constants.get("length")?);
    let (long, short): (Bytes, Bytes) =
        (constants.get("frame_max")?, constants.get("frame_short")?);
    /// The host with the service.
    const NEW: usize = 5;
    let mut allotments = vec![Duration::ZERO; nodes as usize];
    allotments[NEW] = allotment;
    let hops = vec![constants.get("node_delay")?; nodes as usize];
    let options = ring_options(target, rate, hops, allotments, 4);
    let invalid = |message| Error::Computation { name: "jetstream-budgets", message };
    let mut medium = Medium::new(options, Time::START).map_err(invalid)?;
    let end = Time::START + length;
    let (mut now, mut sent) = (Time::START, vec![[0_u64; 2]; nodes as usize]);
    while now < end {
        for station in 0..nodes as usize {
            // A refusal only means that there is enough to send.
            drop(medium.enqueue(now, station, Class::Asynchronous, Packet::new(long)));
        }
        drop(medium.enqueue(now, NEW, Class::Synchronous, Packet::new(short)));
        now = medium.ready_at().map_or(end, |wake| wake.max(now));
        medium.advance(now, |one| sent[one.station][one.class as usize] += one.packet.len.0);
    }
    let [synchronous, _] = medium.services;
    let guaranteed = rate.scale_floor(allotment.as_ps(), target.as_ps());
    let bits = |class: Class| sent[NEW][class as usize] as f64 * 8.0 / length.as_secs_f64();
    let (reserved, more) = (bits(Class::Synchronous), bits(Class::Asynchronous));
    // A reservation can count on one frame per rotation, and a rotation on at most twice the target.
    let kept = reserved > 0.0 && synchronous.access_max <= target * 2;
    let old = sent.iter().enumerate().filter(|&(station, _)| station != NEW);
    let served = old.clone().all(|(_, sent)| sent[Class::Asynchronous as usize] > 0);
    let plain = old.clone().all(|(_, sent)| sent[Class::Synchronous as usize] == 0);
    Ok(vec![
        row("J-56", kept && served && plain && medium.rotations.broken == 0),
        row("J-60", kept && reserved + more > guaranteed.as_bits() as f64),
    ])
}
