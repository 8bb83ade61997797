//! The median, which one slow run does not move.

/// The middle one, or the middle of the two; not a number if there are none.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::median;

    #[rstest]
    #[case::odd(&[3.0, 1.0, 2.0], 2.0)]
    #[case::even(&[4.0, 1.0, 2.0, 3.0], 2.5)]
    #[case::one(&[7.0], 7.0)]
    fn median_is_in_the_middle(#[case] figures: &[f64], #[case] wanted: f64) {
        assert!((median(figures.iter().copied()) - wanted).abs() < 1e-9);
    }
}
