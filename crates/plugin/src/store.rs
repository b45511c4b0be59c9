//! What a plugin keeps across reloads: a few keys and values, bounded.

use std::collections::BTreeMap;

/// The most keys.
pub const KEYS_MAX: usize = 1024;
/// The most bytes of keys and values together.
pub const BYTES_MAX: usize = 64 << 10;
/// The longest key.
pub const KEY_LEN_MAX: usize = 64;

/// Keys and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Store {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }
    /// Sets a value, or removes it if it is empty; false, without effect, if that would exceed a limit.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        if key.len() > KEY_LEN_MAX {
            return false;
        }
        let before = self.values.get(key).map_or(0, |value| key.len() + value.len());
        if value.is_empty() {
            self.values.remove(key);
            self.bytes -= before;
            return true;
        }
        let after = self.bytes - before + key.len() + value.len();
        if after > BYTES_MAX || (before == 0 && self.values.len() >= KEYS_MAX) {
            return false;
        }
        self.bytes = after;
        self.values.insert(key.to_vec(), value.to_vec());
        true
    }
    /// Bytes of keys and values.
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// In the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_stays_within_its_bounds() {
        let mut store = Store::default();
        assert!(store.put(b"a", &[1; 100]));
        assert_eq!(store.len(), 101);
        assert!(!store.put(b"b", &[1; BYTES_MAX]), "too large");
        assert!(!store.put(&[1; KEY_LEN_MAX + 1], b"x"), "too long a key");
        assert_eq!(store.get(b"a"), Some(&[1; 100][..]));
        assert!(store.put(b"a", b""));
        assert!(store.is_empty());
        let stored = (0..2000u32).filter(|n| store.put(&n.to_le_bytes(), b"1")).count();
        assert_eq!(stored, KEYS_MAX);
        assert_eq!(
            store.len(),
            store.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
        );
    }
}
