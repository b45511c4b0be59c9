//! The text of logins and negotiations: `key=value`, each ended by a zero byte.
//!
//! ```
//! use lastmeter_wire::iscsi::text;
//! let pairs = text::parse(b"SessionType=Normal\0AuthMethod=CHAP,None\0")?;
//! assert_eq!(pairs[1], ("AuthMethod", "CHAP,None"));
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::Error;

/// The most text of one negotiation step.
pub const TEXT_MAX: usize = 64 << 10;
/// The most pairs in it.
pub const PAIRS_MAX: usize = 256;
/// The longest key (RFC 7143, section 6.1).
pub const KEY_MAX: usize = 63;
/// The longest name of an initiator or target (section 4.2.7).
pub const NAME_MAX: usize = 223;
/// The longest binary value that is read, in bytes.
pub const BINARY_MAX: usize = 1024;

/// Keys and values, in order.
///
/// # Errors
/// If a pair has no key or no `=`, or there are too many.
pub fn parse(data: &[u8]) -> Result<Vec<(&str, &str)>, Error> {
    let wrong = |found: usize| Error::Invalid { what: "iSCSI text", found: found as u64 };
    if data.len() > TEXT_MAX {
        return Err(wrong(data.len()));
    }
    let mut pairs = Vec::new();
    for part in data.split(|byte| *byte == 0).filter(|part| !part.is_empty()) {
        let text = str::from_utf8(part).map_err(|_| wrong(pairs.len()))?;
        let pair = text.split_once('=').filter(|(key, _)| !key.is_empty() && key.len() <= KEY_MAX);
        pairs.push(pair.ok_or(wrong(pairs.len()))?);
        if pairs.len() > PAIRS_MAX {
            return Err(wrong(pairs.len()));
        }
    }
    Ok(pairs)
}

/// Adds a pair.
pub fn emit(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend(key.bytes());
    text.push(b'=');
    text.extend(value.bytes());
    text.push(0);
}

/// A number, decimal or hexadecimal (`0x`).
pub fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// A binary value in hexadecimal (`0x`) or base 64 (`0b`).
pub fn binary(value: &str) -> Option<Vec<u8>> {
    if let Some(digits) = value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        if digits.len() > 2 * BINARY_MAX || digits.is_empty() || !digits.is_ascii() {
            return None;
        }
        // An odd number of digits lacks the first zero.
        let digits = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.to_owned() };
        let bytes = (0..digits.len()).step_by(2);
        return bytes.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect();
    }
    let digits = value.strip_prefix("0b").or(value.strip_prefix("0B"))?.trim_end_matches('=');
    if digits.len() > 4 * BINARY_MAX / 3 || digits.len() % 4 == 1 {
        return None;
    }
    let (mut bytes, mut kept, mut bits) = (Vec::new(), 0u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        kept = (kept << 6 | u32::from(value)) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((kept >> bits) as u8);
        }
    }
    Some(bytes)
}

/// A binary value in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
