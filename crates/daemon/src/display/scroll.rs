//! Detects that a picture scrolled: most of its rows are rows of the previous picture, moved up or down.

use std::collections::HashMap;

/// Rows that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scroll {
    /// The first row where they are now.
    pub(super) to: usize,
    /// The first row where they were.
    pub(super) from: usize,
    /// How many.
    pub(super) rows: usize,
}

/// Fewer rows are not worth a copy.
const ROWS_MIN: usize = 24;

/// A number for each row; the same for rows of the same pixels. None for rows of one colour, which say nothing.
fn marks(pixels: &[u32], width: usize) -> Vec<(u64, bool)> {
    let mix = |mark: &mut u64, pixel: u32| {
        *mark = (*mark ^ u64::from(pixel)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    };
    let mark = |row: &[u32]| {
        // Four at a time, as each step of one waits for the step before.
        let mut marks = [0xcbf2_9ce4_8422_2325; 4];
        let (fours, rest) = row.as_chunks::<4>();
        for four in fours {
            marks.iter_mut().zip(four).for_each(|(mark, pixel)| mix(mark, *pixel));
        }
        marks.iter_mut().zip(rest).for_each(|(mark, pixel)| mix(mark, *pixel));
        let plain = row.iter().fold(0, |any, pixel| any | (pixel ^ row[0])) == 0;
        let join = |all: u64, mark: &u64| (all ^ mark).wrapping_mul(0x0000_0100_0000_01b3);
        (marks.iter().fold(0, |all, mark| join(all, mark).rotate_left(23)), plain)
    };
    pixels.chunks_exact(width).map(mark).collect()
}

/// The longest scroll from one picture to the other, both of this width and as many rows.
pub(super) fn find(old: &[u32], new: &[u32], width: usize) -> Option<Scroll> {
    if width == 0 || old.len() != new.len() {
        return None;
    }
    let (old, new) = (marks(old, width), marks(new, width));
    // Rows that occur once: where they went is where all went.
    let mut places: HashMap<u64, Option<usize>> = HashMap::new();
    for (row, (mark, plain)) in old.iter().enumerate() {
        if !plain {
            places.entry(*mark).and_modify(|place| *place = None).or_insert(Some(row));
        }
    }
    let mut votes: HashMap<isize, usize> = HashMap::new();
    for (row, (mark, _)) in new.iter().enumerate() {
        if let Some(Some(was)) = places.get(mark) {
            *votes.entry(row as isize - *was as isize).or_default() += 1;
        }
    }
    let stayed = votes.remove(&0).unwrap_or(0);
    let (by, count) = votes.into_iter().max_by_key(|(by, count)| (*count, by.abs()))?;
    if count <= stayed {
        return None;
    }
    let mut best: Option<Scroll> = None;
    let mut row = by.max(0) as usize;
    let end = (new.len() as isize + by.min(0)) as usize;
    while row < end {
        let same = |row: &usize| new[*row].0 == old[(*row as isize - by) as usize].0;
        let rows = (row..end).take_while(same).count();
        if rows > best.map_or(ROWS_MIN - 1, |best| best.rows) {
            best = Some(Scroll { to: row, from: (row as isize - by) as usize, rows });
        }
        row += rows + 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(from: u32) -> Vec<u32> {
        (0..100).flat_map(|row| (0..8).map(move |column| (from + row) * 31 + column)).collect()
    }

    #[test]
    fn text_that_moved_up_is_found_and_new_text_is_not() {
        let scroll = find(&picture(0), &picture(16), 8);
        assert_eq!(scroll, Some(Scroll { to: 0, from: 16, rows: 84 }));
        let scroll = find(&picture(16), &picture(0), 8);
        assert_eq!(scroll, Some(Scroll { to: 16, from: 0, rows: 84 }));
        assert_eq!(find(&picture(0), &picture(0), 8), None);
        assert_eq!(find(&picture(0), &picture(1000), 8), None);
        assert_eq!(find(&[], &[], 0), None);
    }
}
