//! The reversible 5/3 wavelet by lifting: whole numbers in, whole numbers out, nothing lost.
//!
//! ```text
//! high[n] = x[2n + 1] - floor((x[2n] + x[2n + 2]) / 2)
//! low[n]  = x[2n] + floor((high[n - 1] + high[n] + 2) / 4)
//! ```
//!
//! At both ends the signal continues as its mirror image about the last sample. In two dimensions rows first, then
//! columns; the next level transforms the low quarter again. Levels lie in one array, low parts first:
//!
//! ```text
//! low | across        each of half the sides
//! ----+-------
//! down| both
//! ```
//!
//! Source: Le Gall & Tabatabai 1988; the lifting steps of ITU-T T.800 (JPEG 2000), Annex F. Oracle: PyWavelets'
//! `bior2.2` without rounding (`tests/oracle.rs`).

/// A rectangle of samples or coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plane {
    /// Its width.
    pub width: usize,
    /// Its height.
    pub height: usize,
    /// Row by row.
    pub values: Vec<i32>,
}

impl Plane {
    /// All zero.
    pub fn new(width: usize, height: usize) -> Plane {
        Plane { width, height, values: vec![0; width * height] }
    }
}

/// Transforms, in place. The sides must be multiples of two to the power of `levels`.
pub fn forward(plane: &mut Plane, levels: u8) {
    let mut scratch = vec![0; plane.width.max(plane.height * COLUMNS)];
    for level in 0..levels {
        let (width, height) = (plane.width >> level, plane.height >> level);
        for y in 0..height {
            let row = &mut plane.values[y * plane.width..][..width];
            split::<1>(row, &mut scratch[..width]);
            row.copy_from_slice(&scratch[..width]);
        }
        columns(plane, width, height, &mut scratch, split::<COLUMNS>);
    }
}

/// Transforms back, in place.
pub fn inverse(plane: &mut Plane, levels: u8) {
    let mut scratch = vec![0; plane.width.max(plane.height * COLUMNS)];
    for level in (0..levels).rev() {
        let (width, height) = (plane.width >> level, plane.height >> level);
        columns(plane, width, height, &mut scratch, merge::<COLUMNS>);
        for y in 0..height {
            let row = &mut plane.values[y * plane.width..][..width];
            merge::<1>(row, &mut scratch[..width]);
            row.copy_from_slice(&scratch[..width]);
        }
    }
}

/// Columns that are transformed together, so that a step is one vector operation.
const COLUMNS: usize = 8;

/// `step` for groups of columns of the upper left part; the last ones are transformed with zeros beside them.
fn columns(
    plane: &mut Plane,
    width: usize,
    height: usize,
    scratch: &mut [i32],
    step: fn(&mut [i32], &mut [i32]),
) {
    let mut group = vec![0; height * COLUMNS];
    for x in (0..width).step_by(COLUMNS) {
        let many = COLUMNS.min(width - x);
        for (y, to) in group.chunks_exact_mut(COLUMNS).enumerate() {
            to[..many].copy_from_slice(&plane.values[y * plane.width + x..][..many]);
        }
        let changed = &mut scratch[..height * COLUMNS];
        step(&mut group, changed);
        for (y, from) in changed.chunks_exact(COLUMNS).enumerate() {
            plane.values[y * plane.width + x..][..many].copy_from_slice(&from[..many]);
        }
    }
}

/// Samples of `MANY` interleaved signals to low ones, then high ones.
fn split<const MANY: usize>(from: &mut [i32], to: &mut [i32]) {
    let half = from.len() / MANY / 2;
    let (low, high) = to.split_at_mut(half * MANY);
    for n in 0..half {
        // The mirror image of the sample beyond the last one is the one before it.
        let after = if n + 1 < half { 2 * n + 2 } else { 2 * n };
        for k in 0..MANY {
            let even = from[2 * n * MANY + k];
            high[n * MANY + k] =
                from[(2 * n + 1) * MANY + k] - ((even + from[after * MANY + k]) >> 1);
        }
        let before = n.saturating_sub(1);
        for k in 0..MANY {
            let sum = high[before * MANY + k] + high[n * MANY + k];
            low[n * MANY + k] = from[2 * n * MANY + k] + ((sum + 2) >> 2);
        }
    }
}

/// Back again.
fn merge<const MANY: usize>(from: &mut [i32], to: &mut [i32]) {
    let half = from.len() / MANY / 2;
    let (low, high) = from.split_at(half * MANY);
    for n in 0..half {
        let before = n.saturating_sub(1);
        for k in 0..MANY {
            let sum = high[before * MANY + k] + high[n * MANY + k];
            to[2 * n * MANY + k] = low[n * MANY + k] - ((sum + 2) >> 2);
        }
    }
    for n in 0..half {
        let after = if n + 1 < half { 2 * n + 2 } else { 2 * n };
        for k in 0..MANY {
            let mean = (to[2 * n * MANY + k] + to[after * MANY + k]) >> 1;
            to[(2 * n + 1) * MANY + k] = high[n * MANY + k] + mean;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost(
            levels in 1u8..=4, width in 1usize..6, height in 1usize..6, seed in any::<u64>(),
        ) {
            let mut stream = lastmeter_base::Stream::new(seed, "pixels");
            let mut plane = Plane::new(width << levels, height << levels);
            plane.values.fill_with(|| stream.below(256) as i32 - 128);
            let before = plane.clone();
            forward(&mut plane, levels);
            // No coefficient needs more bits than a piece has planes.
            prop_assert!(plane.values.iter().all(|value| value.abs() < 2048));
            inverse(&mut plane, levels);
            prop_assert_eq!(plane, before);
        }
    }

    #[test]
    fn what_is_flat_has_no_detail() {
        let mut plane = Plane { width: 32, height: 16, values: vec![77; 512] };
        forward(&mut plane, 4);
        let lows: Vec<usize> = (0..512).filter(|&at| plane.values[at] != 0).collect();
        assert_eq!(lows, [0, 1]);
    }
}
