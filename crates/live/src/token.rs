//! Tokens: who has one may ask.

use crate::error::{Doing, Result};
use std::fs::File;
use std::io::Read;

/// A token has this many random bytes, written as twice as many digits.
pub const LEN: usize = 16;

/// A token that nobody can guess.
///
/// # Errors
/// The machine gives no random numbers.
pub fn random() -> Result<String> {
    let mut bytes = [0; LEN];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.doing(|| "asking for random numbers".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares in a time that does not tell where they differ.
pub fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tokens_differ_and_each_is_itself() {
        let (one, two) = (random().unwrap(), random().unwrap());
        assert_eq!(one.len(), 2 * LEN);
        assert!(same(&one, &one) && !same(&one, &two) && !same(&one, &one[1..]));
    }
}
