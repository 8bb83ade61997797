//! Durations on the command line, as Go writes them: `15s`, `500ms`, `1m30s`, `1.5h`. For `value_parser` of clap.

use std::time::Duration;

use jiff::SignedDuration;

/// Reads a duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text.parse().map_err(|_| "must be a duration such as 5s or 1m30s".to_owned())?;
    Duration::try_from(signed).map_err(|_| "must not be negative".to_owned())
}

/// Reads a duration that is not zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|it| if it.is_zero() { Err("must not be zero".to_owned()) } else { Ok(it) })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("15s", 15_000)]
    #[case("500ms", 500)]
    #[case("1m30s", 90_000)]
    #[case("1.5h", 5_400_000)]
    #[case("2m", 120_000)]
    fn duration_as_go_writes_it_is_read(#[case] text: &str, #[case] milliseconds: u64) {
        assert_eq!(positive_duration(text), Ok(Duration::from_millis(milliseconds)));
    }

    #[rstest]
    #[case("15", "such as 5s")]
    #[case("", "such as 5s")]
    #[case("soon", "such as 5s")]
    #[case("-1s", "negative")]
    #[case("0s", "must not be zero")]
    fn duration_invalid_text_is_rejected(#[case] text: &str, #[case] part: &str) {
        let error = positive_duration(text).unwrap_err();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn duration_zero_is_read_where_it_is_allowed() {
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
    }
}
