//! CHAP (RFC 1994; RFC 7143, section 12.1.3): a client shows that it has its token without sending it.

use md5::{Digest, Md5};

/// Bytes of a challenge, and of a response.
pub const LEN: usize = 16;
/// The number of MD5, the only algorithm that all initiators have.
pub const MD5: &str = "5";

/// The response to a challenge.
pub fn response(identifier: u8, secret: &str, challenge: &[u8]) -> [u8; LEN] {
    let mut hash = Md5::new();
    hash.update([identifier]);
    hash.update(secret.as_bytes());
    hash.update(challenge);
    hash.finalize().into()
}

/// Whether two responses are the same, in a time that says nothing about where they differ.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_is_the_hash_of_identifier_secret_and_challenge() {
        // MD5("message digest"), RFC 1321, appendix A.5.
        let expected = 0xf96b_697d_7cb7_938d_525a_2f31_aaf1_61d0_u128.to_be_bytes();
        assert_eq!(response(b'm', "essage ", b"digest"), expected);
        assert!(same(&expected, &expected) && !same(&expected, &expected[1..]));
    }
}
