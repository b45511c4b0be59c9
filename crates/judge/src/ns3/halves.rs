//! How far apart two halves of the same simulator's runs are.

/// The mean of some values.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// How far the mean of one half of the values is from that of the other, on average over all ways to
/// halve them; of an odd number, one half has one more. Zero for fewer than two.
pub(super) fn apart(values: &[f64]) -> f64 {
    let half = values.len() / 2;
    if half == 0 {
        return 0.0;
    }
    let total: f64 = values.iter().sum();
    let rest = (values.len() - half) as f64;
    let ways = (0..1u32 << values.len()).filter(|way| way.count_ones() as usize == half);
    let (count, sum) = ways.fold((0.0, 0.0), |(count, sum), way| {
        let chosen: f64 =
            values.iter().enumerate().filter(|(at, _)| way >> at & 1 == 1).map(|(_, v)| v).sum();
        (count + 1.0, sum + (chosen / half as f64 - (total - chosen) / rest).abs())
    });
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_halve_counts_alike() {
        assert_eq!(apart(&[3.0; 10]), 0.0);
        assert_eq!(apart(&[3.0]), 0.0);
        // (1 + 2) - (3 + 6), (1 + 3) - (2 + 6), (1 + 6) - (2 + 3), each by two.
        assert_eq!(apart(&[1.0, 2.0, 3.0, 6.0]), 2.0);
        // One of three beside the mean of the others.
        assert_eq!(apart(&[0.0, 0.0, 3.0]), (1.5 + 1.5 + 3.0) / 3.0);
    }
}
