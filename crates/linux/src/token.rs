//! Access tokens.

use crate::error::{Doing, Result};
use sha2::{Digest, Sha256};
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

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// HMAC-SHA256 (RFC 2104) of a text, in hexadecimal digits: a proof that its sender has the token, which it does not
/// tell.
pub fn proof(token: &str, text: &str) -> String {
    let mut key = [0; BLOCK];
    match token.as_bytes() {
        long if long.len() > BLOCK => key[..32].copy_from_slice(&Sha256::digest(long)),
        short => key[..short.len()].copy_from_slice(short),
    }
    let pad = |with: u8| key.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares in constant time.
pub fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case 2 of RFC 4231.
    #[test]
    fn a_proof_is_that_of_the_standard() {
        let short = proof("Jefe", "what do ya want for nothing?");
        assert_eq!(short, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = "x".repeat(131);
        assert_ne!(proof(&long, "a"), proof(&long, "b"));
        assert_eq!(proof(&long, "a").len(), 64);
    }

    #[test]
    fn tokens_differ_and_each_equals_itself() {
        let (one, two) = (random().unwrap(), random().unwrap());
        assert_eq!(one.len(), 2 * LEN);
        assert!(same(&one, &one) && !same(&one, &two) && !same(&one, &one[1..]));
    }
}
