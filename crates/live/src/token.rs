//! Access tokens.

use crate::error::{Doing, Result};
use std::fs::File;
use std::io::Read;

/// Random bytes of a token, written as twice as many hexadecimal digits.
pub const LEN: usize = 16;

/// A random token.
///
/// # Errors
/// The system provides no random numbers.
pub fn random() -> Result<String> {
    let mut bytes = [0; LEN];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.doing("reading random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A random number.
///
/// # Errors
/// As for [`random`].
pub fn number() -> Result<u64> {
    // Half of the digits of a token.
    Ok(u64::from_str_radix(&random()?[..LEN], 16).expect("hexadecimal digits"))
}

/// Compares in constant time.
pub fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_each_equals_itself() {
        let (one, two) = (random().unwrap(), random().unwrap());
        assert_eq!(one.len(), 2 * LEN);
        assert!(same(&one, &one) && !same(&one, &two) && !same(&one, &one[1..]));
    }
}
