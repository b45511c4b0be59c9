//! A film as a talker declares it to an 802.1Q network (E-22); its shaping is in `experiments/channels-tsn/repro.toml`.

use super::super::{Computed, Setting, row};
use crate::Error;
use lastmeter_base::{Bytes, Duration};
use lastmeter_transport::channel::contract::Contract;

/// The row for the film's contract.
pub(in super::super) fn rows(_: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let film = Contract {
        message_max: Bytes(15_000),
        interval_min: Duration::from_ms(8),
        burst_max: 3,
        packet_max: Bytes(1500),
        deadline: Duration::from_ms(20),
    };
    let frames = film.tspec().frames_max as f64;
    Ok(vec![row("E-22/tspec", frames)])
}
