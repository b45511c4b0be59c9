//! Whom a certificate is for: the names in an X.509 certificate, in DER.
//!
//! ```text
//! certificate  30 { 30 { [a0 version] 02 number | 30 algorithm | 30 issuer | 30 validity | 30 subject | 30 key |
//!                        [others] [a3 { 30 { extension ... } }] } | algorithm | signature }
//! subject      31 { 30 { 06 kind | text } ... } ...          the kind 2.5.4.3 is a common name
//! extension    30 { 06 kind | [01 critical] | 04 { value } } the kind 2.5.29.17 is alternative names:
//! value        30 { 81 mail | 82 host | 86 URI | others ... }
//! ```
//!
//! Signatures, dates and uses are not checked: whoever relies on these names must have verified the certificate.
//!
//! Source: RFC 5280 §4.1 and §4.2.1.6. Deviation: texts that are neither UTF-8, ASCII nor printable are skipped.
//!
//! Rows: N-20.

use crate::error::Error;

/// The longest certificate.
pub const CERTIFICATE_MAX: usize = 64 << 10;
/// Limit on the names in a certificate.
pub const NAMES_MAX: usize = 256;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// Texts: UTF-8, printable, IA5 (ASCII).
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Mail, host and URI among alternative names.
const ALTERNATIVES: [u8; 3] = [0x81, 0x82, 0x86];
/// 2.5.4.3 and 2.5.29.17.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

const WHAT: &str = "certificate";

/// Values in DER, one after the other.
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let have = self.0.len();
        let short = Error::Truncated { what: WHAT, need: count, have };
        let (taken, rest) = self.0.split_at_checked(count).ok_or(short)?;
        self.0 = rest;
        Ok(taken)
    }
    /// The next one: its tag and content. Lengths have as few bytes as possible, as DER requires.
    fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let head = self.take(2)?;
        let (tag, first) = (head[0], head[1]);
        if tag & 0x1f == 0x1f {
            return Err(Error::Invalid { what: "certificate's tag", found: tag.into() });
        }
        let (length, least) = match first {
            0..=0x7f => (usize::from(first), 0),
            0x81 => (usize::from(self.take(1)?[0]), 0x80),
            0x82 => {
                let length = self.take(2)?;
                (usize::from(u16::from_be_bytes([length[0], length[1]])), 0x100)
            }
            _ => return Err(Error::Invalid { what: "certificate's length", found: first.into() }),
        };
        if length < least {
            return Err(Error::Invalid { what: "certificate's length", found: length as u64 });
        }
        Ok(Some((tag, self.take(length)?)))
    }
    /// The content of the next one, which has this tag.
    fn expect(&mut self, wanted: u8) -> Result<&'a [u8], Error> {
        match self.next()? {
            Some((tag, content)) if tag == wanted => Ok(content),
            Some((tag, _)) => Err(Error::Invalid { what: "certificate's tag", found: tag.into() }),
            None => Err(Error::Truncated { what: WHAT, need: 2, have: 0 }),
        }
    }
    /// Skips the next one, if it has this tag.
    fn pass(&mut self, optional: u8) -> Result<(), Error> {
        if self.0.first() == Some(&optional) { self.next().map(|_| ()) } else { Ok(()) }
    }
}

/// Names found.
#[derive(Default)]
struct Found<'a>(Vec<&'a str>);

impl<'a> Found<'a> {
    fn add(&mut self, text: &'a [u8]) -> Result<(), Error> {
        let Ok(text) = std::str::from_utf8(text) else { return Ok(()) };
        if text.is_empty() || text.chars().any(char::is_control) || self.0.contains(&text) {
            return Ok(());
        }
        if self.0.len() == NAMES_MAX {
            let (value, max) = (1 + NAMES_MAX as u64, NAMES_MAX as u64);
            return Err(Error::DoesNotFit { what: "certificate's names", value, max });
        }
        self.0.push(text);
        Ok(())
    }
    /// Common names of a subject.
    fn subject(&mut self, subject: &'a [u8]) -> Result<(), Error> {
        let mut sets = Values(subject);
        while !sets.0.is_empty() {
            let mut attributes = Values(sets.expect(SET)?);
            while !attributes.0.is_empty() {
                let mut attribute = Values(attributes.expect(SEQUENCE)?);
                let kind = attribute.expect(OBJECT)?;
                match attribute.next()? {
                    Some((tag, text)) if kind == COMMON_NAME && TEXTS.contains(&tag) => {
                        self.add(text)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
    /// Alternative names among extensions.
    fn extensions(&mut self, extensions: &'a [u8]) -> Result<(), Error> {
        let mut all = Values(Values(extensions).expect(SEQUENCE)?);
        while !all.0.is_empty() {
            let mut extension = Values(all.expect(SEQUENCE)?);
            let kind = extension.expect(OBJECT)?;
            extension.pass(BOOLEAN)?;
            let value = extension.expect(OCTETS)?;
            if kind != ALTERNATIVE_NAMES {
                continue;
            }
            let mut names = Values(Values(value).expect(SEQUENCE)?);
            while let Some((tag, name)) = names.next()? {
                if ALTERNATIVES.contains(&tag) {
                    self.add(name)?;
                }
            }
        }
        Ok(())
    }
}

/// Its names, each once: common names of the subject, then alternative names of hosts, mail and URIs.
///
/// # Errors
/// If it is not a certificate, or has more than [`NAMES_MAX`] names.
pub fn names(certificate: &[u8]) -> Result<Vec<&str>, Error> {
    if certificate.len() > CERTIFICATE_MAX {
        let (value, max) = (certificate.len() as u64, CERTIFICATE_MAX as u64);
        return Err(Error::DoesNotFit { what: WHAT, value, max });
    }
    let mut all = Values(certificate);
    let mut signed = Values(Values(all.expect(SEQUENCE)?).expect(SEQUENCE)?);
    if !all.0.is_empty() {
        let found = all.0.len() as u64;
        return Err(Error::Invalid { what: "bytes after a certificate", found });
    }
    signed.pass(VERSION)?;
    // Its number; algorithm, issuer and validity.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        signed.expect(tag)?;
    }
    let mut found = Found::default();
    found.subject(signed.expect(SEQUENCE)?)?;
    // Its key, and optional fields.
    signed.expect(SEQUENCE)?;
    while let Some((tag, content)) = signed.next()? {
        if tag == EXTENSIONS {
            found.extensions(content)?;
        }
    }
    Ok(found.0)
}

/// A value in DER; nothing if it is longer than a certificate can be.
pub fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let Ok(length) = u16::try_from(content.len()) else { return Vec::new() };
    let [high, low] = length.to_be_bytes();
    let head = match length {
        0..=0x7f => vec![tag, low],
        0x80..=0xff => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [&head, content].concat()
}

/// The shape of a certificate with these names, but unsigned: for tests.
pub fn unsigned(common: &[&str], alternative: &[&str]) -> Vec<u8> {
    let empty = value(SEQUENCE, &[]);
    let subject = common.iter().flat_map(|name| {
        let attribute = [value(OBJECT, &COMMON_NAME), value(TEXTS[0], name.as_bytes())].concat();
        value(SET, &value(SEQUENCE, &attribute))
    });
    let subject = value(SEQUENCE, &subject.collect::<Vec<u8>>());
    let names = alternative.iter().enumerate();
    let names = names.flat_map(|(at, name)| value(ALTERNATIVES[at % 3], name.as_bytes()));
    let names = value(OCTETS, &value(SEQUENCE, &names.collect::<Vec<u8>>()));
    let critical = value(BOOLEAN, &[0xff]);
    let other = [value(OBJECT, &[0x55, 0x1d, 0x13]), critical, value(OCTETS, &empty)].concat();
    let own = [value(OBJECT, &ALTERNATIVE_NAMES), names].concat();
    let extensions = [value(SEQUENCE, &other), value(SEQUENCE, &own)].concat();
    let signed = [
        value(VERSION, &value(INTEGER, &[2])),
        value(INTEGER, &[7]),
        empty.clone(),
        empty.clone(),
        empty.clone(),
        subject,
        empty.clone(),
        value(EXTENSIONS, &value(SEQUENCE, &extensions)),
    ];
    let signature = value(0x03, &[0]);
    value(SEQUENCE, &[value(SEQUENCE, &signed.concat()), empty, signature].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_found_where_they_belong() {
        let found = unsigned(&["alice", "bob"], &["alice@example.org", "alice", "urn:alice"]);
        let wanted = ["alice", "bob", "alice@example.org", "urn:alice"];
        assert_eq!(names(&found), Ok(wanted.to_vec()), "each once");
        assert_eq!(names(&unsigned(&[], &[])), Ok(vec![]));
        // A name that ends early for some readers does not count.
        assert_eq!(names(&unsigned(&["alice\0.example"], &["a\nb"])), Ok(vec![]));
        let many: Vec<String> = (0..=NAMES_MAX).map(|at| format!("name {at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(matches!(names(&unsigned(&many, &[])), Err(Error::DoesNotFit { .. })));
        assert_eq!(names(&unsigned(&many[1..], &[])).map(|found| found.len()), Ok(NAMES_MAX));
    }

    #[test]
    fn what_is_not_a_certificate_is_refused() {
        let sound = unsigned(&["alice"], &["bob"]);
        assert!((0..sound.len()).all(|end| names(&sound[..end]).is_err()), "cut off");
        assert!(names(&[&sound[..], &[0]].concat()).is_err(), "trailing bytes");
        // A length that DER would write shorter.
        let mut longer = sound.clone();
        longer.splice(1..2, [0x82, 0, sound[1]]);
        assert!(names(&longer).is_err());
        assert!(names(&vec![0x30; CERTIFICATE_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn all_names_come_back(
            common in proptest::collection::vec("[a-z0-9.@ü-]{1,300}", 0..8),
            alternative in proptest::collection::vec("[a-z0-9.@-]{1,300}", 0..8),
        ) {
            let mut wanted: Vec<&str> = Vec::new();
            for name in common.iter().chain(&alternative) {
                if !wanted.contains(&name.as_str()) {
                    wanted.push(name);
                }
            }
            let common: Vec<&str> = common.iter().map(String::as_str).collect();
            let alternative: Vec<&str> = alternative.iter().map(String::as_str).collect();
            let made = unsigned(&common, &alternative);
            prop_assert_eq!(names(&made).unwrap(), wanted);
        }
    }
}
