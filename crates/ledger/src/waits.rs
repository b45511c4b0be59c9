//! How long data and threads waited between the stages, by the kernel's own events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What waited while the kernel's events were recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// Seconds for which they were recorded.
    pub observed: f64,
    /// In how many looks.
    pub looks: u32,
    /// Events recorded.
    pub events: u64,
    /// Events that found no room; what waited meanwhile is left out.
    pub lost: u64,
    /// Seconds of CPU time that recording took, for each second observed; absent where that could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Packets that the machine's network stack took meanwhile.
    pub packets: u64,
    /// Packets that found no room in a socket.
    pub socket_full: u64,
    /// What waited, and for what; what was not seen to wait has no row.
    pub rows: Vec<Wait>,
}

/// How long something waited, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// What waited, and for what.
    pub name: String,
    /// How many waits.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Waits {
    /// How the rows came about.
    ///
    /// ```
    /// use lastmeter_ledger::Waits;
    /// let (rows, cost) = (Vec::new(), Some(0.012));
    /// let (looks, events, packets, lost) = (1, 40_000, 12_034, 0);
    /// let waits = Waits { observed: 0.3, looks, events, lost, cost, packets, socket_full: 0, rows };
    /// let words = "300 ms observed, 40 000 events, 0 lost, 12 034 packets, recording took 1.2 % of a CPU";
    /// assert_eq!(waits.facts().join(", "), words);
    /// ```
    pub fn facts(&self) -> Vec<String> {
        use crate::figures::{count, plural, share, time};
        let observed = time(self.observed);
        let mut facts = vec![match self.looks {
            0 | 1 => format!("{observed} observed"),
            looks => format!("{observed} observed in {looks} looks"),
        }];
        facts.push(plural(self.events, "event"));
        facts.push(format!("{} lost", count(self.lost)));
        facts.push(plural(self.packets, "packet"));
        if self.socket_full > 0 {
            facts.push(format!("{} without room in a socket", count(self.socket_full)));
        }
        facts.push(match self.cost {
            Some(cost) => format!("recording took {} of a CPU", share(cost)),
            None => "what recording cost is not known".to_owned(),
        });
        facts
    }
}
