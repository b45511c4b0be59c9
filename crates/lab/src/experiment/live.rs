//! The hosts of an experiment that are real under `lastmeter live`.

use super::{Experiment, Network};
use crate::document::{Fault, Mark, Problem};
use lastmeter_base::kind::Values;
use std::net::Ipv4Addr;

/// The most live hosts; there is a path between each two.
pub const LIVE_MAX: usize = 64;
/// The network of live hosts without an address.
const NETWORK: [u8; 3] = [10, 77, 0];
const PREFIX: u8 = 24;

/// A host that is real under `lastmeter live`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveHost {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The length of its network prefix in bits.
    pub prefix: u8,
    /// The code points of its packets' classes.
    pub codes: Vec<u8>,
}

impl Experiment {
    /// The hosts that are real under `lastmeter live`, in order of declaration.
    pub fn live_hosts(&self) -> Vec<LiveHost> {
        let network = Network::new(self);
        let host = |(place, node): (usize, usize)| {
            let single = &network.nodes[node];
            let values = &self.nodes[single.declared].kind.values;
            let [a, b, c] = NETWORK;
            let default = (Ipv4Addr::new(a, b, c, place as u8 + 1), PREFIX);
            let (address, prefix) =
                address(values).and_then(|text| parse(&text).ok()).unwrap_or(default);
            let codes = values.given::<Vec<u64>>("dscp").unwrap_or_default();
            let codes = codes.into_iter().map(|code| code as u8).collect();
            LiveHost { name: single.name.clone(), address, prefix, codes }
        };
        network.live(self).into_iter().take(LIVE_MAX).enumerate().map(host).collect()
    }

    /// What is wrong with its nodes, reported at the first of them.
    pub fn problem_of_nodes(&self, fault: Fault) -> Vec<Problem> {
        let mut reporter = self.reporter.clone();
        let (mark, key) = match self.nodes.first() {
            Some(node) => (node.mark.clone(), format!("nodes.{}", node.name)),
            None => (Mark { source: 0, span: 0..0 }, "nodes".to_owned()),
        };
        reporter.report(&mark, &key, fault);
        reporter.into_problems()
    }
}

/// The address in the file for a host.
pub(super) fn address(values: &Values) -> Option<String> {
    values.given("address")
}

/// Reads `10.1.2.3/24`, or an address alone.
///
/// # Errors
/// If the text is not an address; says what would be right.
pub(super) fn parse(text: &str) -> Result<(Ipv4Addr, u8), &'static str> {
    let right = "write an IPv4 address and the length of its prefix, like \"10.77.0.1/24\"";
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, prefix.parse().map_err(|_| right)?),
        None => (text, PREFIX),
    };
    let address: Ipv4Addr = address.trim().parse().map_err(|_| right)?;
    let unusable = address.is_unspecified() || address.is_multicast() || address.is_broadcast();
    if unusable || !(1..=30).contains(&prefix) {
        return Err(right);
    }
    Ok((address, prefix))
}
