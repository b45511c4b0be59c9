//! The budgets of Jetstream's ring (J-16 to J-21).

use super::{Computed, Setting};
use crate::repro::Error;
use lastmeter_base::Duration;
use lastmeter_net::ring::budget::Ring;

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
    Ok(vec![
        Computed::new("J-16", "token declared lost after", ring.token_lost_after()),
        Computed::new("J-17", "T_transmit", ring.transmit()),
        Computed::new("J-18", "T_prop", ring.propagation()),
        Computed::new("J-19", "T_overrun", ring.overrun()),
        Computed::new("J-20", "T_synch at most", synchronous),
        Computed::new("J-20", "synchronous bandwidth", ring.synchronous_rate(synchronous)),
        Computed::new("J-20", "synchronous access delay", ring.access_max_synchronous()),
        Computed::new("J-21", "asynchronous access delay", ring.access_max_asynchronous()),
    ])
}
