//! Classification compared with DPDK's on the same rules and packets.

use super::{Measurement, peer};
use crate::Complaint;
use lastmeter_net::classify::bench::input;
use std::fmt::Write;

/// How long the peer repeats its passes.
const SECONDS: f64 = 0.5;
const SECONDS_QUICK: f64 = 0.05;

/// Adds `rte_acl`'s result to a case that classifies; leaves any other case as it is.
///
/// # Errors
/// `rte_acl` matches other rules than ours.
pub(crate) fn beside(result: &mut Measurement, quick: bool) -> Result<(), Complaint> {
    let Some((rules, headers)) = input(&result.bench, quick) else { return Ok(()) };
    let seconds = if quick { SECONDS_QUICK } else { SECONDS };
    match peer::dpdk_classify(&rules, &headers, seconds) {
        Ok(acl) => {
            if format!("{:016x}", acl.sum) != result.hash {
                return Err(Complaint("rte_acl and this classifier disagree".into()));
            }
            result.beside("rte_acl", acl.lookups);
            let _ = write!(result.note, "; rte_acl rebuilds in {:.3} s", acl.build);
        }
        Err(why) => result.beside_if_there("rte_acl", Err(why)),
    }
    Ok(())
}
