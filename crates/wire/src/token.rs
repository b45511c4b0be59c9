//! FDDI tokens: six symbols of five bits, between frames.
//!
//! ```text
//! J K | frame control, two data symbols | T T        thirty bits, then two of zero to the byte
//! ```
//!
//! Source: ISO 9314-2 §3.3.2 (token) and §7.3 (frame control); ISO 9314-1 table 1 (symbols). The two bits of
//! padding are our choice: the line has none.
//!
//! ```
//! use lastmeter_wire::token::Token;
//! let token = Token { restricted: false };
//! assert_eq!(Token::parse(token.emit())?, token);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::Error;

/// Codes of the data symbols 0 to F.
const DATA: [u8; 16] = [
    0b11110, 0b01001, 0b10100, 0b10101, 0b01010, 0b01011, 0b01110, 0b01111, 0b10010, 0b10011,
    0b10110, 0b10111, 0b11010, 0b11011, 0b11100, 0b11101,
];
const J: u8 = 0b11000;
const K: u8 = 0b10001;
const T: u8 = 0b01101;
const SYMBOLS: u32 = 6;
const SYMBOL_BITS: u32 = 5;
const PADDING_BITS: u32 = 32 - SYMBOLS * SYMBOL_BITS;
/// Frame control of an unrestricted token, which any station may use.
const CONTROL_FREE: u8 = 0x80;
/// Frame control of a restricted token, for one dialogue.
const CONTROL_RESTRICTED: u8 = 0xc0;

/// A token: the right to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Only the stations of one dialogue may send asynchronous frames.
    pub restricted: bool,
}

impl Token {
    /// The symbols, first bit first.
    pub fn emit(self) -> [u8; 4] {
        let control = if self.restricted { CONTROL_RESTRICTED } else { CONTROL_FREE };
        let (high, low) = (DATA[usize::from(control >> 4)], DATA[usize::from(control & 0xf)]);
        let symbols = [J, K, high, low, T, T];
        let bits = symbols.iter().fold(0, |bits, &code| bits << SYMBOL_BITS | u32::from(code));
        (bits << PADDING_BITS).to_be_bytes()
    }

    /// # Errors
    /// If the symbols are not those of a token.
    pub fn parse(bytes: [u8; 4]) -> Result<Token, Error> {
        let known = [false, true].map(|restricted| Token { restricted });
        let found = u32::from_be_bytes(bytes).into();
        let token = known.into_iter().find(|token| token.emit() == bytes);
        token.ok_or(Error::Invalid { what: "token's symbols", found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_with_jk_and_ends_with_tt() {
        // 11000 10001 10010 11110 01101 01101 00
        assert_eq!(Token { restricted: false }.emit(), [0xc4, 0x65, 0xe6, 0xb4]);
        assert!(Token::parse([0; 4]).is_err());
    }
}
