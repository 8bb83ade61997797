//! `sleep`, twenty times as fast: this program under that name, in the image for examples that would sleep for minutes.

use std::time::Duration;

/// How many seconds pass in one.
const SPEED: f64 = 20.0;

/// How long to sleep for the arguments of `sleep`: seconds, with `s`, `m`, `h` or `d` or without.
///
/// # Errors
/// The argument that is no time.
pub(crate) fn parse(args: &[String]) -> Result<Duration, String> {
    let seconds = |arg: &String| {
        let (number, unit) = match arg.char_indices().last() {
            Some((at, 's')) => (&arg[..at], 1.0),
            Some((at, 'm')) => (&arg[..at], 60.0),
            Some((at, 'h')) => (&arg[..at], 3600.0),
            Some((at, 'd')) => (&arg[..at], 86_400.0),
            _ => (arg.as_str(), 1.0),
        };
        let seconds = number.parse::<f64>().ok().map(|number| number * unit / SPEED);
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        time.ok_or_else(|| format!("sleep: invalid time interval {arg:?}"))
    };
    args.iter().map(seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_arguments_are_parsed_as_by_sleep() {
        let parse = |args: &[&str]| parse(&args.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parse(&["10"]), Ok(Duration::from_millis(500)));
        assert_eq!(parse(&["100s"]), Ok(Duration::from_secs(5)));
        assert_eq!(parse(&["1m", "20"]), Ok(Duration::from_secs(4)));
        assert!(parse(&["soon"]).unwrap_err().contains("\"soon\""));
        assert!(parse(&["-1"]).is_err());
    }
}
