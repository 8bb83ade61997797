//! Quantities of Kubernetes, such as `1.5Gi` and `100m`, as numbers. Different texts can stand for the same quantity.

/// The quantity in billionths, the precision of Kubernetes. `None` if the text is not a quantity, or if the quantity is
/// out of range or needs a higher precision.
pub fn nanos(text: &str) -> Option<i128> {
    let end = text.find(|at: char| !(at.is_ascii_digit() || matches!(at, '+' | '-' | '.'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (factor, exponent) = scale(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let exponent = exponent.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let amount = digits.checked_mul(factor)?;
    if exponent >= 0 { amount.checked_mul(power) } else { (amount % power == 0).then_some(amount / power) }
}

/// The multiplier of a suffix: a factor and a power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1", "1000m")]
    #[case("0.5", "500m")]
    #[case(".5", "0.50")]
    #[case("1Gi", "1024Mi")]
    #[case("1.5Gi", "1536Mi")]
    #[case("1k", "1e3")]
    #[case("2E", "2000P")]
    #[case("1E3", "1000")]
    #[case("-1", "-1000m")]
    #[case("+1", "1")]
    #[case("1n", "0.001u")]
    #[case("8Ei", "8192Pi")]
    fn nanos_of_equal_quantities_are_equal(#[case] one: &str, #[case] other: &str) {
        assert!(nanos(one).is_some());
        assert_eq!(nanos(one), nanos(other));
    }

    #[rstest]
    #[case("1000", "1024")]
    #[case("1M", "1Mi")]
    #[case("1m", "1M")]
    #[case("1", "-1")]
    fn nanos_of_different_quantities_differ(#[case] one: &str, #[case] other: &str) {
        assert_ne!(nanos(one), nanos(other));
    }

    #[rstest]
    #[case("")]
    #[case("Gi")]
    #[case("1x")]
    #[case("1.2.3")]
    #[case("1-")]
    #[case("1e")]
    #[case("1e999999999999")]
    #[case("1e2147483647")]
    #[case("0.1n")]
    #[case("99999999999999999999999999999999999999999Ei")]
    fn nanos_of_invalid_quantity_are_none(#[case] text: &str) {
        assert_eq!(nanos(text), None);
    }
}
