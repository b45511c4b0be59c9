//! Words of messages, least significant byte first; bytes that are missing make a word 0.

/// The 16 bits at an offset.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let word = bytes.get(at..at + 2).and_then(|word| word.try_into().ok());
    word.map(u16::from_le_bytes).unwrap_or_default()
}

/// The 32 bits at an offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map(u32::from_le_bytes).unwrap_or_default()
}

/// The 64 bits at an offset.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map(u64::from_le_bytes).unwrap_or_default()
}
