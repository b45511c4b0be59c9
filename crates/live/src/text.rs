//! Base quantities in JSON and TOML: exact text with a unit, so that a setting reads back as written.

use lastmeter_base::{Bytes, Duration, Quantity, Rate};
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// A quantity that can be written without rounding.
pub(crate) trait Exact: Quantity {
    /// Whole count and unit.
    fn exact(&self) -> String;
}

impl Exact for Bytes {
    fn exact(&self) -> String {
        let text = self.to_string();
        // Display rounds large sizes that are not binary multiples.
        if Bytes::parse(&text) == Ok(*self) { text } else { format!("{} B", self.0) }
    }
}
impl Exact for Duration {
    fn exact(&self) -> String {
        let text = self.to_string();
        if Duration::parse(&text) == Ok(*self) { text } else { format!("{} ps", self.as_ps()) }
    }
}
impl Exact for Rate {
    fn exact(&self) -> String {
        let text = self.to_string();
        if Rate::parse(&text) == Ok(*self) { text } else { format!("{} bit/s", self.as_bits()) }
    }
}

/// As text that reads back to the same value.
pub(crate) fn exact<T: Exact>(value: &T) -> String {
    value.exact()
}

/// For `#[serde(with = "crate::text")]`.
pub(crate) fn serialize<T: Exact, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&value.exact())
}

/// For `#[serde(with = "crate::text")]`.
pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    T::parse(&String::deserialize(d)?).map_err(D::Error::custom)
}

/// For `#[serde(with = "crate::text::optional")]`.
pub(crate) mod optional {
    use super::*;

    pub(crate) fn serialize<T: Exact, S: Serializer>(
        value: &Option<T>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => s.serialize_some(&value.exact()),
            None => s.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<T>, D::Error> {
        match Option::<String>::deserialize(d)? {
            Some(text) => T::parse(&text).map(Some).map_err(D::Error::custom),
            None => Ok(None),
        }
    }
}
