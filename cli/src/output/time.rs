//! Times and durations as text.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long ago a time was, in at most two units. The format is that of `kubectl get`.
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    let Some(then) = then else { return "unknown".to_owned() };
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}s", seconds % 60),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format!("{hours}h{}m", minutes % 60),
        28_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

/// A duration in seconds, with two decimal places below 100 s.
pub fn seconds(duration: SignedDuration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds.abs() < 100.0 { format!("{seconds:.2} s") } else { format!("{seconds:.0} s") }
}

/// The time of day, in UTC.
pub fn clock(time: Timestamp) -> String {
    time.strftime("%H:%M:%S%.3f").to_string()
}

/// Until when a wait lasts, and for how long still; none if it is over.
pub fn until(end: Timestamp, now: Timestamp) -> Option<String> {
    let left = end.duration_since(now);
    (end > now).then(|| format!("until {} UTC, for {}", clock(end), seconds(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_any_time_has_format_of_kubectl() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ages = [-3, 0, 119, 120, 599, 600, 10_799, 10_800, 28_800, 172_800]
            .map(|seconds| age(Timestamp::from_second(1_000_000 - seconds).ok(), now));
        assert_eq!(ages, ["0s", "0s", "119s", "2m0s", "9m59s", "10m", "179m", "3h0m", "8h", "2d"]);
        assert_eq!(age(None, now), "unknown");
    }

    #[test]
    fn seconds_long_duration_has_no_decimal_places() {
        let texts = [1, 99_994, 123_456].map(|millis| seconds(SignedDuration::from_millis(millis)));
        assert_eq!(texts, ["0.00 s", "99.99 s", "123 s"]);
    }
}
