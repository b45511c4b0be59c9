//! Least squares with non-negative factors: no stage has a negative cost.
//!
//! Source: Lawson & Hanson, Solving Least Squares Problems, 1974, §23.3. Deviation: with at most
//! eight factors every subset of them is tried instead of an active set, which needs no tolerance.

/// The result of a fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// One per column, none negative.
    pub factors: Vec<f64>,
    /// Mean over the rows of |predicted - given| / given.
    pub error: f64,
}

/// The most columns: 2^8 subsets are tried.
const COLUMNS_MAX: usize = 8;

/// Fits factors so that `rows` x factors approximates `values`, with errors relative to the values: a
/// short time counts as much as a long one.
///
/// Panics with more than eight columns, or another number of values than rows.
pub fn relative(rows: &[Vec<f64>], values: &[f64]) -> Fit {
    let columns = rows.first().map_or(0, Vec::len);
    assert!(columns <= COLUMNS_MAX, "{columns} columns");
    assert_eq!(rows.len(), values.len(), "a value for each row");
    let scaled: Vec<Vec<f64>> = rows
        .iter()
        .zip(values)
        .map(|(row, value)| row.iter().map(|x| x / value).collect())
        .collect();
    let mut best = (f64::INFINITY, vec![0.0; columns]);
    for subset in 1u32..1 << columns {
        let used: Vec<usize> = (0..columns).filter(|c| subset & (1 << c) != 0).collect();
        let Some(solution) = solve(&scaled, &used) else { continue };
        if solution.iter().any(|f| *f < 0.0) {
            continue;
        }
        let mut factors = vec![0.0; columns];
        for (column, factor) in used.iter().zip(solution) {
            factors[*column] = factor;
        }
        let miss = |row: &Vec<f64>| (dot(row, &factors) - 1.0).powi(2);
        let sum = scaled.iter().map(miss).sum::<f64>();
        if sum < best.0 {
            best = (sum, factors);
        }
    }
    let factors = best.1;
    let miss = |row: &Vec<f64>| (dot(row, &factors) - 1.0).abs();
    let error = scaled.iter().map(miss).sum::<f64>() / rows.len().max(1) as f64;
    Fit { factors, error }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Normal equations for the `used` columns against a right side of ones; `None` if they depend on
/// each other.
fn solve(rows: &[Vec<f64>], used: &[usize]) -> Option<Vec<f64>> {
    let n = used.len();
    // Columns differ by ten orders of magnitude (calls, bytes): each is scaled to length one.
    let length =
        |c: usize| rows.iter().map(|r| r[c] * r[c]).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    let lengths: Vec<f64> = used.iter().map(|&c| length(c)).collect();
    let mut matrix = vec![vec![0.0; n + 1]; n];
    for row in rows {
        for i in 0..n {
            let x = row[used[i]] / lengths[i];
            matrix[i][n] += x;
            for j in 0..n {
                matrix[i][j] += x * row[used[j]] / lengths[j];
            }
        }
    }
    for i in 0..n {
        let pivot = (i..n).max_by(|&a, &b| matrix[a][i].abs().total_cmp(&matrix[b][i].abs()))?;
        matrix.swap(i, pivot);
        if matrix[i][i].abs() < 1e-9 {
            return None;
        }
        for k in 0..n {
            if k != i {
                let factor = matrix[k][i] / matrix[i][i];
                let (source, rest) = (matrix[i].clone(), &mut matrix[k]);
                for (to, from) in rest.iter_mut().zip(&source) {
                    *to -= factor * from;
                }
            }
        }
    }
    Some((0..n).map(|i| matrix[i][n] / matrix[i][i] / lengths[i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_costs_per_call_and_per_byte() {
        let sizes = [1.0, 1e3, 1e5];
        let rows: Vec<Vec<f64>> = sizes.iter().map(|s| vec![1.0, *s]).collect();
        let values: Vec<f64> = sizes.iter().map(|s| 2e-6 + 3e-10 * s).collect();
        let fit = relative(&rows, &values);
        assert!((fit.factors[0] / 2e-6 - 1.0).abs() < 1e-6);
        assert!((fit.factors[1] / 3e-10 - 1.0).abs() < 1e-6);
        assert!(fit.error < 1e-9);
    }

    #[test]
    fn never_gives_a_negative_factor() {
        let rows = vec![vec![1.0, 1.0], vec![1.0, 2.0], vec![1.0, 3.0]];
        let fit = relative(&rows, &[3.0, 2.0, 1.0]);
        assert!(fit.factors.iter().all(|f| *f >= 0.0), "{fit:?}");
    }
}
