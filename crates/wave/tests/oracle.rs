//! The transform beside PyWavelets', whose coefficients are kept in `data` (`data/pywavelets.py` made them).

use lastmeter_wave::lifting::{Plane, forward};

#[test]
fn the_transform_is_pywavelets_but_for_rounding() {
    let (width, height) = (48, 32);
    let values = (0..width * height).map(|at| {
        let (x, y) = ((at % width) as i32, (at / width) as i32);
        (x * 37 + y * 91 + x * y * 13) % 256 * 64 - 8192
    });
    let mut plane = Plane { width, height, values: values.collect() };
    forward(&mut plane, 3);
    let text = include_str!("data/pywavelets.csv");
    let theirs: Vec<f64> = text.split([',', '\n']).filter_map(|value| value.parse().ok()).collect();
    assert_eq!(theirs.len(), plane.values.len());
    let largest = theirs.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    assert!(largest > 4000.0);
    for (at, (ours, theirs)) in plane.values.iter().zip(theirs).enumerate() {
        // Each step rounds once, three levels of two directions.
        assert!((f64::from(*ours) - theirs).abs() < 3.0, "{at}: {ours}, {theirs}");
    }
}
