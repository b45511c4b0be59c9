//! A set of positions as sorted ranges that do not touch: data that arrived out of order, and data that the
//! peer has reported (the scoreboard).

/// Most ranges stored; data that would need another is not entered, and is retransmitted later.
pub(crate) const RANGES_MAX: usize = 1024;

/// Ranges from a first position to the one after the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    all: Vec<(u64, u64)>,
    covered: u64,
}

impl Ranges {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// How many positions it holds.
    #[inline]
    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }
    pub(crate) fn as_slice(&self) -> &[(u64, u64)] {
        &self.all
    }
    /// The position after the highest.
    pub(crate) fn end(&self) -> Option<u64> {
        self.all.last().map(|&(_, end)| end)
    }
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.covered = 0;
    }

    /// Adds a range; returns how many positions are new.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        // All ranges that touch the new one become part of it.
        let first = match self.all.last() {
            Some(&(_, last)) if last < start => self.all.len(),
            _ => self.all.partition_point(|&(_, right)| right < start),
        };
        let count = self.all[first..].iter().take_while(|&&(left, _)| left <= end).count();
        if count == 0 {
            if self.all.len() >= RANGES_MAX {
                return 0;
            }
            self.all.insert(first, (start, end));
            self.covered += end - start;
            return end - start;
        }
        let touched = &self.all[first..first + count];
        let before: u64 = touched.iter().map(|&(left, right)| right - left).sum();
        let joined = (touched[0].0.min(start), touched[count - 1].1.max(end));
        self.all[first] = joined;
        if count > 1 {
            self.all.drain(first + 1..first + count);
        }
        let new = joined.1 - joined.0 - before;
        self.covered += new;
        new
    }

    /// Forgets all positions below `limit`.
    pub(crate) fn remove_below(&mut self, limit: u64) {
        if self.all.first().is_none_or(|&(start, _)| start >= limit) {
            return;
        }
        let gone = self.all.partition_point(|&(_, end)| end <= limit);
        self.covered -= self.all[..gone].iter().map(|&(left, right)| right - left).sum::<u64>();
        self.all.drain(..gone);
        if let Some(first) = self.all.first_mut().filter(|first| first.0 < limit) {
            self.covered -= limit - first.0;
            first.0 = limit;
        }
    }

    /// The range that contains `position`.
    pub(crate) fn around(&self, position: u64) -> Option<(u64, u64)> {
        let index = self.all.partition_point(|&(_, end)| end <= position);
        self.all.get(index).copied().filter(|&(start, _)| start <= position)
    }

    /// How many positions in `start..end` it holds.
    pub(crate) fn covered_in(&self, start: u64, end: u64) -> u64 {
        let first = self.all.partition_point(|&(_, right)| right <= start);
        let inside = self.all[first..].iter().take_while(|&&(left, _)| left < end);
        inside.map(|&(left, right)| right.min(end) - left.max(start)).sum()
    }

    /// The first gap at or after `from` and below `limit`.
    pub(crate) fn gap(&self, from: u64, limit: u64) -> Option<(u64, u64)> {
        let mut start = from;
        let first = self.all.partition_point(|&(_, right)| right <= from);
        for &(left, right) in &self.all[first..] {
            if start < left {
                break;
            }
            start = right;
        }
        let next = self.all.partition_point(|&(left, _)| left < start);
        let end = self.all.get(next).map_or(limit, |&(left, _)| left.min(limit));
        (start < end).then_some((start, end))
    }

    /// The position below which everything missing counts as lost: more than two full segments, or
    /// three separate ranges, have arrived above it (RFC 6675 §4, `IsLost`).
    pub(crate) fn lost_below(&self, mss: u64, duplicates: usize) -> u64 {
        let bytes_max = (duplicates as u64 - 1) * mss;
        let mut bytes = 0;
        for (number, &(start, end)) in self.all.iter().rev().enumerate() {
            bytes += end - start;
            if number + 1 >= duplicates || bytes > bytes_max {
                return start;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set_of_positions(
            steps in prop::collection::vec((0u64..100, 0u64..20, any::<bool>()), 0..40),
            from in 0u64..120,
        ) {
            let mut ranges = Ranges::default();
            let mut plain = BTreeSet::new();
            for (start, len, removes) in steps {
                if removes {
                    ranges.remove_below(start);
                    plain = plain.split_off(&start);
                } else {
                    let new = (start..start + len).filter(|&at| plain.insert(at)).count();
                    prop_assert_eq!(ranges.insert(start, start + len), new as u64);
                }
                prop_assert_eq!(ranges.covered(), plain.len() as u64);
                let inside = plain.range(from..from + 10).count() as u64;
                prop_assert_eq!(ranges.covered_in(from, from + 10), inside);
                prop_assert!(ranges.as_slice().windows(2).all(|pair| pair[0].1 < pair[1].0));
                let hole = (from..130).find(|at| !plain.contains(at));
                let gap = ranges.gap(from, 130);
                prop_assert_eq!(gap.map(|gap| gap.0), hole);
                if let Some((start, end)) = gap {
                    prop_assert!((start..end).all(|at| !plain.contains(&at)));
                    prop_assert!(end == 130 || plain.contains(&end));
                }
                prop_assert_eq!(ranges.around(from).is_some(), plain.contains(&from));
            }
        }
    }

    #[test]
    fn three_ranges_or_more_than_two_segments_above_a_gap_make_it_lost() {
        let mut ranges = Ranges::default();
        ranges.insert(100, 200);
        assert_eq!(ranges.lost_below(100, 3), 0);
        ranges.insert(300, 400);
        assert_eq!(ranges.lost_below(100, 3), 0, "two full segments");
        ranges.insert(500, 501);
        assert_eq!(ranges.lost_below(100, 3), 100, "three ranges above 100");
        ranges.insert(501, 900);
        assert_eq!(ranges.lost_below(100, 3), 500);
    }
}
