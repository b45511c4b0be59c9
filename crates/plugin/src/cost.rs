//! What a request costs a module, as `lastmeter plugin bench --save` keeps it beside the module.
//!
//! ```toml
//! module = "9f2c..."                 # SHA-256: the measurement holds for this module only
//! machine = "Intel(R) Xeon(R) ..."
//! batched = "8.1 ns"                 # for each of 64 requests in one call
//! single = "21 ns"                   # for a request in a call of its own
//! ```
//!
//! A model charges `batched`: a busy device asks about many requests at once.

use crate::host::Hash;
use lastmeter_base::Duration;
use lastmeter_base::text::Quantity;
use serde::{Deserialize, Serialize};

/// The longest such file.
pub const COST_LEN_MAX: usize = 4096;

/// A measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The hash of the module.
    pub module: String,
    /// The processor.
    pub machine: String,
    /// For each request of a full batch.
    pub batched: String,
    /// For a request alone.
    pub single: String,
}

impl Cost {
    /// Measured of this module.
    pub fn of(module: Hash, machine: &str, batched: Duration, single: Duration) -> Cost {
        let (batched, single) = (batched.to_string(), single.to_string());
        Cost { module: module.to_string(), machine: machine.to_owned(), batched, single }
    }
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Cost, String> {
        if text.len() > COST_LEN_MAX {
            return Err(format!("{} bytes of measured cost; at most {COST_LEN_MAX}", text.len()));
        }
        toml::from_str(text).map_err(|error| error.to_string())
    }
    /// As a file.
    pub fn emit(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
    /// What a model charges for a request to this module.
    ///
    /// # Errors
    /// If it was measured of another module, or is no time.
    pub fn charged(&self, module: Hash) -> Result<Duration, String> {
        if Hash::parse(&self.module) != Some(module) {
            let found = &self.module;
            return Err(format!("the cost was measured of module {found}, not of {module}"));
        }
        Duration::parse(&self.batched).map_err(|error| format!("`batched`: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_counts_for_its_own_module_only() {
        let (module, other) = (Hash::of(b"a"), Hash::of(b"b"));
        let cost = Cost::of(module, "a machine", Duration::from_ps(8100), Duration::from_ns(21));
        let read = Cost::parse(&cost.emit()).unwrap();
        assert_eq!(read, cost);
        assert_eq!(read.charged(module), Ok(Duration::from_ps(8100)));
        assert!(read.charged(other).unwrap_err().contains("measured of module"));
        assert!(Cost::parse("module = 1").is_err());
    }
}
