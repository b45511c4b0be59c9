//! The CIM's delay equations (E-63 to E-68, E-75).

use super::{Computed, Setting, row};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Duration};
use lastmeter_host::adapter::cim::Cim;

/// Below a frame, at the corner of Eq 5.3, and beyond it.
const SIZES: [(&str, Bytes); 4] = [
    ("1 KB", Bytes::from_kib(1)),
    ("4 KB", Bytes::from_kib(4)),
    ("8 KB", Bytes::from_kib(8)),
    ("64 KB", Bytes::from_kib(64)),
];

type Equation = fn(&Cim, Bytes) -> Duration;

const EQUATIONS: [(&str, &str, Equation); 6] = [
    ("E-64", "T_FC", Cim::transmit_time),
    ("E-65", "T_m at depth 1", Cim::time_alone),
    ("E-66", "T_DMA", Cim::dma_time),
    ("E-67", "T_m at depth 2, in turn", Cim::time_in_turn),
    ("E-68", "T_m at depth 2, overlapped", Cim::time_overlapped),
    ("E-75", "T_m at depth 2, two banks", Cim::time_two_banks),
];

pub(super) fn equations(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let cim = adapter(constants)?;
    let mut computed = vec![
        row("E-63/m_overhead", cim.message_overhead),
        row("E-63/d_segsize", cim.segment),
        row("E-63/d_overhead", cim.segment_overhead),
        row("E-63/s_small", cim.small),
        row("E-63/d_byte-small", cim.per_byte_small),
        row("E-63/d_byte-large", cim.per_byte_large),
        row("E-63/f_framesize", cim.frame),
        row("E-63/f_overhead", cim.transmit_overhead),
        row("E-63/f_framedelay", cim.frame_delay),
    ];
    // §5.1.3.1: the time to a small message's `address ack`, less its DMA.
    let acknowledged: Duration = constants.get("small_message_acknowledged")?;
    let left = acknowledged.saturating_sub(cim.dma_time(constants.get("small_message")?));
    computed.push(row("E-63/m_overhead-44", left));
    for (id, symbol, equation) in EQUATIONS {
        let at = |(name, len)| Computed::new(id, format!("{symbol}, {name}"), equation(&cim, len));
        computed.extend(SIZES.map(at));
    }
    Ok(computed)
}

fn adapter(constants: &Constants) -> Result<Cim, Error> {
    Ok(Cim {
        message_overhead: constants.get("message_overhead")?,
        segment: constants.get("segment")?,
        segment_overhead: constants.get("segment_overhead")?,
        small: constants.get("small")?,
        per_byte_small: constants.get("per_byte_small")?,
        per_byte_large: constants.get("per_byte_large")?,
        frame: constants.get("frame")?,
        transmit_overhead: constants.get("transmit_overhead")?,
        frame_delay: constants.get("frame_delay")?,
    })
}
