//! A set of outputs, one bit each.

/// The set; it grows to what is put in.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    #[inline]
    pub(super) fn has(&self, output: usize) -> bool {
        self.0.get(output / 64).is_some_and(|word| word >> (output % 64) & 1 == 1)
    }
    #[inline]
    pub(super) fn set(&mut self, output: usize) {
        if self.0.len() <= output / 64 {
            self.0.resize(output / 64 + 1, 0);
        }
        self.0[output / 64] |= 1 << (output % 64);
    }
    pub(super) fn clear(&mut self, output: usize) {
        if let Some(word) = self.0.get_mut(output / 64) {
            *word &= !(1 << (output % 64));
        }
    }
    pub(super) fn clear_all(&mut self) {
        self.0.fill(0);
    }
}
