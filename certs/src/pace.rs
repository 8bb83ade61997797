//! How often one replica may issue certificates because of the time.
//!
//! Two replicas whose clocks are far apart find each other's certificates expired or not yet valid, whatever they issue.
//! Neither can know which clock is right. So each of them lets some time pass after its own issue, and more each time.

use std::time::Duration;

use tokio::time::Instant;

use crate::Lifetimes;
use crate::policy::Cause;

/// Longest first pause. An issue must reach the caBundles and settle before another makes sense.
const PAUSE: Duration = Duration::from_secs(30);
/// First pause, in times that a certificate takes to settle.
const SETTLES: u32 = 6;
/// How much of a serving certificate's lifetime the first pause may take, and how much the longest: it still has to be
/// renewed in time, which is due when a third is left.
const FIRST_PART: u32 = 6;
const LONGEST_PART: u32 = 3;
/// Longest pause, in first pauses.
const LONGEST: u32 = 16;
/// An issue so many pauses after the one before has nothing to do with it.
const UNRELATED: u32 = 4;

/// The pauses between issues of one replica.
#[derive(Clone, Debug)]
pub struct Pace {
    first: Duration,
    longest: Duration,
    pause: Duration,
    last: Option<Instant>,
}

impl Pace {
    /// Nothing was issued yet. `settle` is that of [`crate::Settings`].
    pub fn new(settle: Duration, lifetimes: &Lifetimes) -> Self {
        let first = PAUSE.min(settle * SETTLES).min(lifetimes.serving() / FIRST_PART);
        let longest = (first * LONGEST).min(lifetimes.serving() / LONGEST_PART);
        Self { first, longest, pause: first, last: None }
    }

    /// Whether this replica may issue for that cause now. What is missing or damaged is repaired at once: that depends on
    /// no clock.
    pub fn allows(&self, cause: &Cause, now: Instant) -> bool {
        let of_time = matches!(cause, Cause::Expired | Cause::NotYetValid | Cause::Due);
        !of_time || self.last.is_none_or(|last| now.duration_since(last) >= self.pause)
    }

    /// Counts an issue.
    pub fn issued(&mut self, now: Instant) {
        let related = self.last.is_some_and(|last| now.duration_since(last) < self.pause * UNRELATED);
        self.pause = if related { (self.pause * 2).min(self.longest) } else { self.first };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::material::Defect;

    const SETTLE: Duration = Duration::from_secs(5);

    /// When it is issued within the time, by a replica that always finds a reason to.
    fn issues(mut pace: Pace, within: Duration) -> Vec<u64> {
        let start = Instant::now();
        let mut issued = Vec::new();
        for second in 0..within.as_secs() {
            let now = start + Duration::from_secs(second);
            if pace.allows(&Cause::Expired, now) {
                pace.issued(now);
                issued.push(second);
            }
        }
        issued
    }

    #[test]
    fn of_a_war_of_clocks_few_issues_are_left_and_ever_fewer() {
        let pace = Pace::new(SETTLE, &Lifetimes::default());
        assert_eq!(issues(pace, Duration::from_mins(40)), [0, 30, 90, 210, 450, 930, 1410, 1890, 2370]);
    }

    #[test]
    fn what_is_short_lived_is_still_renewed_in_time() {
        let seconds = Duration::from_secs;
        let pace = Pace::new(SETTLE, &Lifetimes::new(seconds(60), seconds(30)).unwrap());
        assert_eq!(issues(pace, seconds(40)), [0, 5, 15, 25, 35]);
    }

    #[test]
    fn only_the_time_is_waited_with_and_a_later_issue_is_a_first_one_again() {
        let (mut pace, now) = (Pace::new(SETTLE, &Lifetimes::default()), Instant::now());
        for cause in [Cause::Expired, Cause::NotYetValid, Cause::Due] {
            assert!(pace.allows(&cause, now), "the first");
        }
        pace.issued(now);
        for cause in [Cause::Expired, Cause::NotYetValid, Cause::Due] {
            assert!(!pace.allows(&cause, now + PAUSE / 2) && pace.allows(&cause, now + PAUSE));
        }
        assert!(pace.allows(&Cause::Defect(Defect::Unsigned), now));
        let later = now + PAUSE * UNRELATED;
        pace.issued(later);
        assert!(pace.allows(&Cause::Due, later + PAUSE));
    }
}
