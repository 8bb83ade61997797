//! The back-off between restarts of a group that keeps failing soon after it began to run.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field::{Bounds, Number};
use crate::{JobSetSpec, RestartStrategy};

const WAIT: Bounds =
    Bounds::between(0, 86400, "it is a wait in seconds. Set initialSeconds to 0 to restart without waits");
const MULTIPLIER: Bounds = Bounds::between(
    1,
    100,
    "each wait is the previous one times this factor. Set it to 1 to wait equally long each time",
);
const STABLE_TIME: Bounds =
    Bounds::between(0, 86400, "workers that have run for so many seconds have run well. Set a time of at most one day");

/// Default of [`RestartBackoff::initial_seconds`].
const INITIAL: i32 = 1;
/// Default of [`RestartBackoff::factor`].
const FACTOR: i32 = 2;
/// Default of [`RestartBackoff::max_seconds`].
const MAX: i32 = 300;
/// Default of [`RestartBackoff::stable_seconds`].
const STABLE: i32 = 60;

/// How long a JobSet waits before a restart, if it keeps failing soon after it began to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartBackoff {
    /// initialSeconds is the first wait, in seconds. 0: no restart waits. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = WAIT.min, max = WAIT.max), extend("default" = INITIAL))]
    pub initial_seconds: Option<i32>,

    /// factor by which each wait is longer than the previous one. 1: all waits are equally long. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = MULTIPLIER.min, max = MULTIPLIER.max), extend("default" = FACTOR))]
    pub factor: Option<i32>,

    /// maxSeconds is the longest wait, in seconds, and at least initialSeconds. Default 300. The flag
    /// `--longest-restart-backoff` of the controller limits it, too; its default is 25 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = WAIT.min, max = WAIT.max), extend("default" = MAX))]
    pub max_seconds: Option<i32>,

    /// stableSeconds is how long the workers must run, in seconds, before a failure counts as the first one again.
    /// Default 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = STABLE_TIME.min, max = STABLE_TIME.max), extend("default" = STABLE))]
    pub stable_seconds: Option<i32>,
}

/// The back-off of a JobSet: all values are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveBackoff {
    /// First wait. Zero: no restart waits.
    pub initial: Duration,
    /// Multiplier of each further wait. At least 1.
    pub factor: u32,
    /// Longest wait.
    pub max: Duration,
    /// A group that has run for this long has run well.
    pub stable: Duration,
}

impl EffectiveBackoff {
    /// The wait before the restart after this many failures in a row, the present one included.
    ///
    /// The first restart in place does not wait. The first three recreations do not wait, because the Go JobSet recreates
    /// without a back-off. Each further restart waits longer.
    pub fn wait(&self, consecutive_failures: i32, strategy: RestartStrategy) -> Duration {
        let at_once = if strategy == RestartStrategy::InPlaceRestart { 1 } else { 3 };
        let Ok(exponent) = u32::try_from(consecutive_failures.saturating_sub(at_once + 1)) else {
            return Duration::ZERO;
        };
        let wait = self.factor.checked_pow(exponent).and_then(|times| self.initial.checked_mul(times));
        wait.map_or(if self.initial.is_zero() { Duration::ZERO } else { self.max }, |wait| wait.min(self.max))
    }
}

impl RestartBackoff {
    pub(crate) fn numbers(&self) -> [Number; 4] {
        [
            ("initialSeconds", self.initial_seconds, WAIT),
            ("factor", self.factor, MULTIPLIER),
            ("maxSeconds", self.max_seconds, WAIT),
            ("stableSeconds", self.stable_seconds, STABLE_TIME),
        ]
    }
}

impl JobSetSpec {
    /// The back-off between restarts, with defaults for absent values.
    pub fn restart_backoff(&self) -> EffectiveBackoff {
        let specified = self.failure_policy.as_ref().and_then(|policy| policy.restart_backoff.as_ref());
        let field = |of: fn(&RestartBackoff) -> Option<i32>, default| specified.and_then(of).unwrap_or(default);
        let number = |of, default, least: u32| u32::try_from(field(of, default)).unwrap_or(least).max(least);
        let seconds = |of, default| Duration::from_secs(number(of, default, 0).into());
        EffectiveBackoff {
            initial: seconds(|it| it.initial_seconds, INITIAL),
            factor: number(|it| it.factor, FACTOR, 1),
            max: seconds(|it| it.max_seconds, MAX),
            stable: seconds(|it| it.stable_seconds, STABLE),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::RestartStrategy::{BlockingRecreate, InPlaceRestart, Recreate};
    use super::*;

    fn waits(backoff: &Value, strategy: RestartStrategy, failures: i32) -> Vec<u64> {
        let spec = json!({"replicatedJobs": [], "failurePolicy": {"restartBackoff": backoff}});
        let backoff = serde_json::from_value::<JobSetSpec>(spec).unwrap().restart_backoff();
        (1..=failures).map(|failures| backoff.wait(failures, strategy).as_secs()).collect()
    }

    #[rstest]
    #[case::in_place(json!(null), InPlaceRestart, &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])]
    #[case::recreate(json!({}), Recreate, &[0, 0, 0, 1, 2, 4])]
    #[case::blocking_recreate(json!({}), BlockingRecreate, &[0, 0, 0, 1])]
    #[case::off(json!({"initialSeconds": 0}), InPlaceRestart, &[0, 0, 0])]
    #[case::constant(json!({"initialSeconds": 5, "factor": 1}), InPlaceRestart, &[0, 5, 5, 5])]
    #[case::short(json!({"factor": 3, "maxSeconds": 7}), InPlaceRestart, &[0, 1, 3, 7, 7])]
    fn wait_grows_with_failures_in_a_row(
        #[case] backoff: Value,
        #[case] strategy: RestartStrategy,
        #[case] expected: &[u64],
    ) {
        assert_eq!(waits(&backoff, strategy, i32::try_from(expected.len()).unwrap()), expected);
    }

    #[test]
    fn wait_after_any_number_of_failures_does_not_overflow() {
        let spec = JobSetSpec::default();
        assert_eq!(spec.restart_backoff().wait(i32::MAX, InPlaceRestart), Duration::from_mins(5));
        assert_eq!(spec.restart_backoff().wait(i32::MIN, InPlaceRestart), Duration::ZERO);
        let off = EffectiveBackoff { initial: Duration::ZERO, ..spec.restart_backoff() };
        assert_eq!(off.wait(i32::MAX, InPlaceRestart), Duration::ZERO);
    }

    #[test]
    fn stored_negative_values_count_as_zero() {
        let backoff = json!({"initialSeconds": -1, "factor": -2, "maxSeconds": -3});
        assert_eq!(waits(&backoff, InPlaceRestart, 4), [0, 0, 0, 0]);
    }
}
