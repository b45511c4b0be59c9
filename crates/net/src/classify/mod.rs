//! Classification: what happens to a packet, from the fields of its header (D-28).
//!
//! ```text
//! header --> flows (exact) --> general match --> longest prefix of 104 bits --> permit
//! ```
//!
//! The first match applies: a flow with a reservation or a pinned route, then the general-match rule with the
//! highest priority, then the longest filter over the concatenated fields; a packet without a match is
//! permitted. A classifier belongs to one interface (D-37), or is given the
//! interface in each header; its owner changes it between batches.
//!
//! Source: WUCS description of the router, §3.3. The order of the three is our choice: the text describes
//! them as one logical operation.
//!
//! ```
//! use lastmeter_net::classify::{Action, Classifier, Filter, Header, Rule, Verdict};
//! let mut classifier = Classifier::new(1);
//! let deny = Verdict::of(Action::Deny);
//! let filter = Filter { protocol: Some(17), ..Filter::all() };
//! let id = classifier.general.install(Rule { filter, priority: 0, verdict: deny })?;
//! let header =
//!     Header { dst: 1, src: 2, dst_port: 53, src_port: 9, protocol: 17, interface: 0 };
//! assert_eq!(classifier.classify(&header), deny);
//! classifier.general.remove(id);
//! assert_eq!(classifier.classify(&header), Verdict::PERMIT);
//! # Ok::<(), lastmeter_net::classify::Refusal>(())
//! ```

pub mod bench;
mod bits;
mod few;
mod field;
pub mod flows;
pub mod general;
pub mod generate;
mod longest;
mod routing;
mod rows;
mod rule;
#[cfg(test)]
mod tests;
pub mod text;
mod trie;

pub use flows::Flows;
pub use general::{General, Match, Refusal, RuleId};
pub use longest::Longest;
pub use routing::Routing;
pub use rule::{Action, Address, Filter, Header, INTERFACES_MAX, Rule, Verdict};

/// Packets that are classified together.
const BATCH: usize = 64;

/// Exact flows, general rules and longest-prefix filters, consulted in this order.
#[derive(Debug)]
pub struct Classifier {
    /// Reserved and pinned flows.
    pub flows: Flows,
    /// General-match rules.
    pub general: General,
    /// Those for IPv6.
    pub general_v6: General<u128>,
    /// Longest-prefix filters.
    pub longest: Longest,
}

impl Classifier {
    /// Without rules; the seed selects the flow table's hash.
    pub fn new(seed: u64) -> Classifier {
        Classifier {
            flows: Flows::new(seed),
            general: General::new(),
            general_v6: General::new(),
            longest: Longest::new(),
        }
    }
    /// The verdict for a packet.
    pub fn classify(&self, header: &Header) -> Verdict {
        let mut verdicts = [Verdict::PERMIT];
        self.classify_batch(std::slice::from_ref(header), &mut verdicts);
        verdicts[0]
    }
    /// The verdicts for many IPv6 packets, for which there are only general rules. Panics if `verdicts` is not as
    /// long as `headers`.
    pub fn classify_batch_v6(&self, headers: &[Header<u128>], verdicts: &mut [Verdict]) {
        assert_eq!(headers.len(), verdicts.len(), "a place for each packet's verdict");
        let mut found = [None; BATCH];
        for (headers, verdicts) in headers.chunks(BATCH).zip(verdicts.chunks_mut(BATCH)) {
            self.general_v6.classify_batch(headers, &mut found[..headers.len()]);
            for (verdict, found) in verdicts.iter_mut().zip(found) {
                *verdict = found.map_or(Verdict::PERMIT, |found: Match| found.verdict);
            }
        }
    }
    /// The verdicts for many packets. Panics if `verdicts` is not as long as `headers`.
    pub fn classify_batch(&self, headers: &[Header], verdicts: &mut [Verdict]) {
        assert_eq!(headers.len(), verdicts.len(), "a place for each packet's verdict");
        for (headers, verdicts) in headers.chunks(BATCH).zip(verdicts.chunks_mut(BATCH)) {
            let mut found = [None; BATCH];
            self.general.classify_batch(headers, &mut found[..headers.len()]);
            for ((header, verdict), found) in headers.iter().zip(verdicts).zip(found) {
                let flow = if self.flows.is_empty() { None } else { self.flows.get(header) };
                let general = flow.or(found.map(|found: Match| found.verdict));
                let any = general.or_else(|| self.longest.classify(header));
                *verdict = any.unwrap_or(Verdict::PERMIT);
            }
        }
    }
}
