//! The back-off between certificates that one replica issues because of the time.
//!
//! If the clocks of two replicas are far apart, each replica finds the certificate of the other expired or not yet
//! valid. No replica can know which clock is right. So each replica waits after it has issued a certificate, and the
//! wait doubles.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use crate::Lifetimes;
use crate::policy::Cause;

/// Upper limit of the first delay. A certificate must reach the caBundles and settle before another one makes sense.
const FIRST_DELAY: Duration = Duration::from_secs(30);
/// Upper limit of the first delay, as a multiple of the time that a certificate takes to settle.
const SETTLES: u32 = 6;
/// Upper limit of the first delay and of the longest delay, as fractions of the lifetime of a serving certificate.
/// Renewal is due when a third of the lifetime is left, and must still be in time.
const FIRST_FRACTION: u32 = 6;
const LONGEST_FRACTION: u32 = 3;
/// Longest delay, as a multiple of the first delay.
const LONGEST: u32 = 16;
/// The back-off starts again if this many delays have passed since the last certificate.
const UNRELATED: u32 = 4;

/// The back-off of one replica. Delays double from the first to the longest.
#[derive(Debug)]
pub struct IssueBackoff {
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
    /// When the last certificate was issued, and the delay after it.
    last: Option<(Instant, Duration)>,
}

impl IssueBackoff {
    /// The back-off of a replica that has issued no certificate yet. `settle` is [`crate::Settings::settle`].
    pub fn new(settle: Duration, lifetimes: &Lifetimes) -> Self {
        let first = FIRST_DELAY.min(settle * SETTLES).min(lifetimes.serving() / FIRST_FRACTION);
        let longest = (first * LONGEST).min(lifetimes.serving() / LONGEST_FRACTION);
        let builder = ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest).without_max_times();
        Self { builder, delays: builder.build(), last: None }
    }

    /// Whether the replica may issue a certificate for this cause now. Only causes that depend on a clock wait. A
    /// missing or damaged certificate is replaced at once.
    pub fn allows(&self, cause: &Cause, now: Instant) -> bool {
        let depends_on_clock = matches!(cause, Cause::Expired | Cause::NotYetValid | Cause::Due);
        !depends_on_clock || self.last.is_none_or(|(at, delay)| now.duration_since(at) >= delay)
    }

    /// Records that the replica has issued a certificate now.
    pub fn issued(&mut self, now: Instant) {
        if self.last.is_some_and(|(at, delay)| now.duration_since(at) >= delay * UNRELATED) {
            self.delays = self.builder.build();
        }
        self.last = self.delays.next().map(|delay| (now, delay));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::material::Defect;

    const SETTLE: Duration = Duration::from_secs(5);

    /// The seconds at which a replica issues certificates if it always has a cause.
    fn issues(mut backoff: IssueBackoff, within: Duration) -> Vec<u64> {
        let start = Instant::now();
        let mut issued = Vec::new();
        for second in 0..within.as_secs() {
            let now = start + Duration::from_secs(second);
            if backoff.allows(&Cause::Expired, now) {
                backoff.issued(now);
                issued.push(second);
            }
        }
        issued
    }

    #[test]
    fn issues_with_clocks_apart_back_off_to_longest_delay() {
        let backoff = IssueBackoff::new(SETTLE, &Lifetimes::default());
        assert_eq!(issues(backoff, Duration::from_mins(40)), [0, 30, 90, 210, 450, 930, 1410, 1890, 2370]);
    }

    #[test]
    fn issues_with_short_lifetime_stay_within_its_third() {
        let seconds = Duration::from_secs;
        let backoff = IssueBackoff::new(SETTLE, &Lifetimes::new(seconds(60), seconds(30)).unwrap());
        assert_eq!(issues(backoff, seconds(40)), [0, 5, 15, 25, 35]);
    }

    #[test]
    fn backoff_after_issue_delays_clock_causes_and_starts_again_later() {
        let (mut backoff, now) = (IssueBackoff::new(SETTLE, &Lifetimes::default()), Instant::now());
        for cause in [Cause::Expired, Cause::NotYetValid, Cause::Due] {
            assert!(backoff.allows(&cause, now), "the first");
        }
        backoff.issued(now);
        for cause in [Cause::Expired, Cause::NotYetValid, Cause::Due] {
            assert!(!backoff.allows(&cause, now + FIRST_DELAY / 2) && backoff.allows(&cause, now + FIRST_DELAY));
        }
        assert!(backoff.allows(&Cause::Defect(Defect::Unsigned), now));
        let later = now + FIRST_DELAY * UNRELATED;
        backoff.issued(later);
        assert!(backoff.allows(&Cause::Due, later + FIRST_DELAY));
    }
}
