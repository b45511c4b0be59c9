//! Base quantities in JSON and TOML: exact text with a unit, so that a setting reads back as written.

use lastmeter_base::{Bytes, Duration, Quantity, Rate};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A quantity that can be written without rounding.
pub(crate) trait Exact: Quantity + Copy + PartialEq + std::fmt::Display {
    /// Whole count and unit.
    fn whole(self) -> String;
    /// Text that reads back to the same value: Display rounds large sizes that are not binary multiples.
    fn exact(self) -> String {
        let text = self.to_string();
        let is_exact = Self::parse(&text).is_ok_and(|read| read == self);
        if is_exact { text } else { self.whole() }
    }
}

impl Exact for Bytes {
    fn whole(self) -> String {
        format!("{} B", self.0)
    }
}

impl Exact for Duration {
    fn whole(self) -> String {
        format!("{} ps", self.as_ps())
    }
}

impl Exact for Rate {
    fn whole(self) -> String {
        format!("{} bit/s", self.as_bits())
    }
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
        value.map(Exact::exact).serialize(s)
    }

    pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(d)?;
        text.map(|text| T::parse(&text)).transpose().map_err(D::Error::custom)
    }
}
