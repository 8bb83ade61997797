//! The wait before a request is retried.

use std::time::Duration;

/// Wait after the first failure, before jitter.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// Longest wait after a failure, before jitter, which at most doubles it: a group waits for its last agent. An API server that
/// is too busy for thousands of agents asks for longer waits.
const RETRY_CAP: Duration = Duration::from_secs(5);

/// `first * 2^steps`, at most `cap`. A counter alone is the state, so the state machine of the agent stays hashable for the
/// model checker.
pub fn exponential(steps: u32, first: Duration, cap: Duration) -> Duration {
    let factor = 1_u32.checked_shl(steps).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(cap)
}

/// The wait after a failed request, before jitter. `earlier` counts the failures in a row before it. The wait is never
/// shorter than `retry_after`, which the API server asked for.
pub fn after_failures(earlier: u32, retry_after: Option<Duration>) -> Duration {
    exponential(earlier, RETRY_FIRST, RETRY_CAP).max(retry_after.unwrap_or_default())
}

/// A random wait from `base` to twice `base`. Jitter spreads thousands of agents whose requests fail in the same second. It
/// only lengthens, because the wait that the API server asked for is a lower bound.
pub fn jittered(base: Duration) -> Duration {
    base.mul_f64(1.0 + fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_up_to_the_cap() {
        let waits: Vec<u128> = [0, 1, 2, 6, 7, 31, 32, u32::MAX].map(|n| after_failures(n, None).as_millis()).to_vec();
        assert_eq!(waits, [200, 400, 800, 5_000, 5_000, 5_000, 5_000, 5_000]);
    }

    #[test]
    fn wait_is_never_shorter_than_retry_after() {
        assert_eq!(after_failures(0, Some(Duration::from_secs(3))), Duration::from_secs(3));
        assert_eq!(after_failures(9, Some(Duration::from_secs(3))), Duration::from_secs(5));
        assert_eq!(after_failures(9, Some(Duration::from_secs(30))), Duration::from_secs(30));
    }

    #[test]
    fn jitter_only_lengthens() {
        let base = Duration::from_secs(1);
        for _ in 0..1000 {
            let wait = jittered(base);
            assert!(wait >= base && wait < 2 * base, "{wait:?}");
        }
    }
}
