//! One measured constant of a host, and its form in a profile: text with a unit.

use crate::reference::Reference;
use crate::statistics::Spread;
use lastmeter_base::{Bytes, Duration, PerByte, Quantity, Rate};
use lastmeter_linux::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A value with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Seconds.
    Time(f64),
    /// Seconds per byte.
    PerByte(f64),
    /// Bytes per second.
    Rate(f64),
    /// Bytes.
    Size(u64),
}

impl Value {
    /// In SI units: seconds, seconds per byte, bytes per second, bytes.
    pub fn si(self) -> f64 {
        match self {
            Value::Time(v) | Value::PerByte(v) | Value::Rate(v) => v,
            Value::Size(v) => v as f64,
        }
    }

    /// Text with a unit, four significant digits.
    pub fn to_text(self) -> String {
        match self {
            Value::Time(v) => scaled(v, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]),
            Value::PerByte(v) => scaled(v, &[(1e-6, "us/B"), (1e-9, "ns/B"), (1e-12, "ps/B")]),
            Value::Rate(v) => scaled(v, &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")]),
            Value::Size(v) => crate::text::Exact::exact(Bytes(v)),
        }
    }

    /// Reads what [`Value::to_text`] writes, and every other unit of the base quantities.
    pub fn parse(text: &str) -> std::result::Result<Value, String> {
        let text = text.trim();
        if text.ends_with("/B") {
            let value = PerByte::parse(text).map_err(|e| e.to_string())?;
            return Ok(Value::PerByte(value.as_fs() as f64 * 1e-15));
        }
        if text.ends_with("/s") {
            let value = Rate::parse(text).map_err(|e| e.to_string())?;
            return Ok(Value::Rate(value.as_bits() as f64 / 8.0));
        }
        if text.ends_with('B') {
            return Bytes::parse(text).map(|b| Value::Size(b.0)).map_err(|e| e.to_string());
        }
        let value = Duration::parse(text).map_err(|e| e.to_string())?;
        Ok(Value::Time(value.as_ps() as f64 * 1e-12))
    }
}

/// `value` in the largest of `units` that leaves a whole part, else in the smallest.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let last = units[units.len() - 1];
    let (size, unit) = units.iter().copied().find(|(size, _)| value >= *size).unwrap_or(last);
    let number = value / size;
    let digits = (3 - number.abs().max(1.0).log10().floor() as i32).max(0) as usize;
    format!("{number:.digits$} {unit}")
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_text())
    }
}
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Value, D::Error> {
        Value::parse(&String::deserialize(d)?).map_err(de::Error::custom)
    }
}

/// A constant of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    /// The value with its unit.
    pub value: Value,
    /// How it was measured, one sentence.
    pub method: String,
    /// Interquartile range over median; for a fitted constant, the fit's mean relative error.
    pub spread: f64,
    /// Number of measurements.
    pub samples: u32,
}

impl Constant {
    /// A time from many batches. Other programs can only add to a time, so the value is the lower quartile,
    /// and the spread shows how much they added.
    pub(crate) fn time(spread: Spread, method: &str) -> Constant {
        Constant::from(Value::Time(spread.low), spread, method)
    }

    /// A rate from many batches: by the same reasoning, the upper quartile.
    pub(crate) fn rate(spread: Spread, method: &str) -> Constant {
        Constant::from(Value::Rate(spread.high), spread, method)
    }

    fn from(value: Value, spread: Spread, method: &str) -> Constant {
        Constant::new(value, spread.relative(), spread.samples, method)
    }

    /// A constant with this relative spread.
    pub(crate) fn new(
        value: Value,
        spread: f64,
        samples: usize,
        method: impl Into<String>,
    ) -> Constant {
        // Four digits; more would be false precision.
        let spread = (spread * 1e4).round() / 1e4;
        Constant { value, method: method.into(), spread, samples: samples as u32 }
    }
}

/// The host that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The CPU's model name.
    pub model: String,
    /// CPUs on which the program may run.
    pub cores: u32,
    /// The kernel's release.
    pub kernel: String,
    /// Seconds since 1970 when it was measured.
    pub date: u64,
    /// Load of other programs, in CPUs including ready threads, while the path was measured: three of four
    /// runs that count had less. Above 0.5 the path's constants are those of a busy machine.
    pub others: f64,
    /// How the hosts of the transfers were isolated.
    pub isolation: crate::namespace::Isolation,
    /// Sizes of the caches of the first core, by name: `L1 Data`, `L2 Unified`.
    pub caches: std::collections::BTreeMap<String, Value>,
}

impl Host {
    /// This machine, now: what it is, not how it was measured.
    ///
    /// # Errors
    /// When the machine does not identify itself.
    pub fn here(others: f64, isolation: crate::namespace::Isolation) -> Result<Host> {
        Ok(Host {
            model: super::cpu_model()?,
            cores: lastmeter_linux::cores::allowed()?.len() as u32,
            kernel: crate::transfer::kernel()?,
            date: crate::transfer::date(),
            others: (others * 100.0).round() / 100.0,
            isolation,
            caches: super::caches(),
        })
    }
    /// Whether this is the machine and the kernel on which the program runs.
    ///
    /// # Errors
    /// When the machine does not identify itself.
    pub fn is_here(&self) -> Result<bool> {
        let cores = lastmeter_linux::cores::allowed()?.len() as u32;
        Ok(self.model == super::cpu_model()?
            && self.cores == cores
            && self.kernel == crate::transfer::kernel()?)
    }
}

/// A measured host: what `lastmeter calibrate` writes and every prediction reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The host.
    pub host: Host,
    /// Its constants by name, such as `memory.copy.dram` or `path.other-core.sender.per-call`.
    pub constants: std::collections::BTreeMap<String, Constant>,
    /// The reference transfers behind the path's constants, by placement and side, such as
    /// `other-core.sender`; without them predictions use only the fit.
    #[serde(default)]
    pub references: std::collections::BTreeMap<String, Vec<Reference>>,
}

impl Calibration {
    /// The constant `name` in SI units.
    ///
    /// # Errors
    /// Says which constant the profile lacks.
    pub fn si(&self, name: &str) -> Result<f64> {
        let constant = self.constants.get(name).ok_or_else(|| Error::Profile {
            place: format!("constants.{name}"),
            message: "is missing; `lastmeter calibrate` measures it".to_owned(),
        })?;
        Ok(constant.value.si())
    }

    /// As a TOML profile.
    ///
    /// # Errors
    /// Never for a calibration that was measured.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self)
            .map_err(|e| Error::Profile { place: "writing".to_owned(), message: e.to_string() })
    }

    /// Reads a TOML profile.
    ///
    /// # Errors
    /// Says where the text is wrong.
    pub fn from_toml(text: &str) -> Result<Calibration> {
        toml::from_str(text)
            .map_err(|e| Error::Profile { place: "reading".to_owned(), message: e.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_values_as_people_do() {
        let cases = [
            (Value::Time(0.31e-6), "310.0 ns"),
            (Value::Time(12.5e-6), "12.50 us"),
            (Value::PerByte(31e-12), "31.00 ps/B"),
            (Value::Rate(12.34e9), "12.34 GB/s"),
            (Value::Size(1 << 20), "1 MiB"),
            (Value::Time(0.0), "0.000 ns"),
        ];
        for (value, text) in cases {
            assert_eq!(value.to_text(), text);
            let back = Value::parse(text).unwrap();
            assert!((back.si() - value.si()).abs() <= 1e-3 * value.si(), "{text}: {back:?}");
        }
    }

    #[test]
    fn a_bare_number_is_rejected() {
        assert!(Value::parse("12").unwrap_err().contains("no unit"));
    }
}
