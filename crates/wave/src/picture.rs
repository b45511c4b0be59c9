//! Pictures in luma and two chromas of half the resolution each way, and how alike two are.

use crate::lifting::Plane;
use lastmeter_wire::wave::{Component, UNIT};

/// The most that PSNR can be said to be, in dB: the noise of rounding to whole numbers, 1/12, is in the original, too.
pub const PSNR_MAX: f64 = 58.92;
/// What is subtracted from each sample before the transform.
pub const MIDDLE: i32 = 128;

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Width in units of 16 pixels.
    pub width: u8,
    /// Height in units of 16 pixels.
    pub height: u8,
    /// Luma and both chromas, row by row.
    pub samples: [Vec<u8>; 3],
}

/// Width and height in units of 16 pixels: 176 by 144.
pub const QCIF: (u8, u8) = (11, 9);
/// 352 by 288.
pub const CIF: (u8, u8) = (22, 18);

impl Picture {
    /// Of medium grey.
    pub fn new(width: u8, height: u8) -> Picture {
        let samples = [Component::Luma, Component::Blue, Component::Red].map(|component| {
            let (width, height) = sides(width, height, component);
            vec![MIDDLE as u8; width * height]
        });
        Picture { width, height, samples }
    }
    /// Width and height of a component in samples.
    pub fn sides(&self, component: Component) -> (usize, usize) {
        sides(self.width, self.height, component)
    }
    /// A component's samples about zero.
    pub fn plane(&self, component: Component) -> Plane {
        let (width, height) = self.sides(component);
        let samples = &self.samples[component as usize];
        let values = samples.iter().map(|&sample| i32::from(sample) - MIDDLE).collect();
        Plane { width, height, values }
    }
    /// Sets a component's samples.
    pub fn set(&mut self, component: Component, plane: &Plane) {
        let samples = self.samples[component as usize].iter_mut();
        for (sample, value) in samples.zip(&plane.values) {
            *sample = (value + MIDDLE).clamp(0, 255) as u8;
        }
    }
    /// How alike the luma of two pictures is, in dB: 10 log10(255^2 / mean square error), at most [`PSNR_MAX`].
    pub fn psnr(&self, other: &Picture) -> f64 {
        let pairs = self.samples[0].iter().zip(&other.samples[0]);
        let sum: u64 = pairs.map(|(&a, &b)| u64::from(a.abs_diff(b)).pow(2)).sum();
        let mean = sum as f64 / self.samples[0].len() as f64;
        (10.0 * (255.0 * 255.0 / mean).log10()).min(PSNR_MAX)
    }
}

fn sides(width: u8, height: u8, component: Component) -> (usize, usize) {
    let shift = u8::from(component != Component::Luma);
    let side = |units: u8| (usize::from(units) * usize::from(UNIT)) >> shift;
    (side(width), side(height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psnr_is_that_of_its_formula() {
        let (grey, mut other) = (Picture::new(1, 1), Picture::new(1, 1));
        assert_eq!(grey.psnr(&other), PSNR_MAX);
        other.samples[0].fill(138);
        // 10 log10(65025 / 100).
        assert!((grey.psnr(&other) - 28.1308).abs() < 1e-4);
    }
}
