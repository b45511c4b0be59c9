//! Longest-prefix filters over 104 bits: destination, source, ports, protocol (D-36).

use super::rule::{Header, Verdict};
use crate::lookup::{Concatenated, Full, NextHop, Options, Prefix, TreeBitmap};

/// Filters, each the first bits of the concatenated fields; the longest match wins.
#[derive(Debug)]
pub struct Longest {
    tree: TreeBitmap<Concatenated>,
    verdicts: Vec<Verdict>,
    free: Vec<NextHop>,
}

impl Default for Longest {
    fn default() -> Longest {
        Longest::new()
    }
}

impl Longest {
    /// No filters.
    pub fn new() -> Longest {
        let options = Options { initial: &[8], ..Options::IPV4 };
        Longest { tree: TreeBitmap::new(options), verdicts: Vec::new(), free: Vec::new() }
    }
    /// Installs a filter, or changes its verdict.
    ///
    /// # Errors
    /// If the tree's memory limit is reached; nothing is changed.
    pub fn insert(&mut self, filter: Prefix<Concatenated>, verdict: Verdict) -> Result<(), Full> {
        let number = self.free.last().copied().or(NextHop::new(self.verdicts.len() as u32 + 1));
        let number = number.ok_or(Full::Words(self.tree.options().words_max))?;
        let old = self.tree.insert(filter, number)?;
        if self.free.pop().is_none() {
            self.verdicts.push(verdict);
        }
        self.verdicts[number.get() as usize - 1] = verdict;
        self.free.extend(old);
        Ok(())
    }
    /// Removes a filter; returns its verdict.
    pub fn remove(&mut self, filter: Prefix<Concatenated>) -> Option<Verdict> {
        let number = self.tree.remove(filter)?;
        self.free.push(number);
        Some(self.verdicts[number.get() as usize - 1])
    }
    /// The verdict of the longest matching filter.
    pub fn classify(&self, header: &Header) -> Option<Verdict> {
        if self.tree.is_empty() {
            return None;
        }
        let Header { dst, src, dst_port, src_port, protocol, .. } = *header;
        let key = Concatenated::new(dst, src, dst_port, src_port, protocol);
        self.tree.lookup(key).map(|number| self.verdicts[number.get() as usize - 1])
    }
}
