//! What connects a host to its network, and what that costs for what it delivers.
//!
//! Rows: J-02.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parts that connect a host: its adapter, transceivers, a cable, its part of a port and of a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// What the host gets for them, bit/s.
    pub delivered: f64,
    /// From the host to the switch.
    pub parts: Vec<Part>,
}

/// A part of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// What it is.
    pub name: String,
    /// How many hosts share it.
    pub hosts: u64,
    /// A host's share of its price, in dollars; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
    /// A host's share of its power, in watts; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<f64>,
}

impl Connection {
    /// The sum of what is known of all parts, and of how many parts nothing is; `None` where it is of all.
    ///
    /// ```
    /// use lastmeter_ledger::{Connection, Part};
    /// let part = |name: &str, hosts, price| {
    ///     let name = name.to_owned();
    ///     Part { name, hosts, price, power: None }
    /// };
    /// let parts = vec![part("card", 1, Some(200.0)), part("port", 4, Some(50.0)), part("cable", 1, None)];
    /// let connection = Connection { delivered: 1e8, parts };
    /// assert_eq!(connection.sum(|part| part.price), Some((250.0, 1)));
    /// assert_eq!(connection.per_gbit(250.0), Some(2500.0));
    /// assert_eq!(connection.sum(|part| part.power), None);
    /// ```
    pub fn sum(&self, of: impl Fn(&Part) -> Option<f64>) -> Option<(f64, usize)> {
        let known: Vec<f64> = self.parts.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| (known.iter().sum(), self.parts.len() - known.len()))
    }

    /// For each Gbit/s that is delivered; `None` where nothing is.
    pub fn per_gbit(&self, value: f64) -> Option<f64> {
        (self.delivered > 0.0).then(|| value * 1e9 / self.delivered)
    }

    /// Rows of a table: part, hosts that share it, price, price a Gbit/s, power, power a Gbit/s; the sum last.
    pub(crate) fn rows(&self) -> Vec<[String; 6]> {
        let money = |dollars: f64| match dollars < 10.0 {
            true => format!("${dollars:.2}"),
            false => format!("${dollars:.0}"),
        };
        let watts = |watts: f64| format!("{watts:.2} W");
        let or_not = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let cells = |price: Option<f64>, power: Option<f64>| {
            let per = |value: Option<f64>| value.and_then(|value| self.per_gbit(value));
            [price.map(money), per(price).map(money), power.map(watts), per(power).map(watts)]
                .map(or_not)
        };
        let row = |name: String, hosts: String, [price, each, power, watts]: [String; 4]| {
            [name, hosts, price, each, power, watts]
        };
        let part = |part: &Part| {
            row(part.name.clone(), part.hosts.to_string(), cells(part.price, part.power))
        };
        let mut rows: Vec<_> = self.parts.iter().map(part).collect();
        let (price, power) = (self.sum(|part| part.price), self.sum(|part| part.power));
        let missing = [price, power].into_iter().flatten().map(|(_, missing)| missing).max();
        let name = match missing {
            Some(0) => "together".to_owned(),
            _ => "together, as far as known".to_owned(),
        };
        let value = |sum: Option<(f64, usize)>| sum.map(|(value, _)| value);
        rows.push(row(name, String::new(), cells(value(price), value(power))));
        rows
    }
}
