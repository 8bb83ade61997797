//! When a leader gives the Lease up because its loop stands still: it would renew the Lease for ever, and do nothing.

use std::time::{Duration, Instant};

use crate::shell::serve::STANDS_STILL;

/// Shortest limit, however short the Lease is: the loop takes a turn each [`crate::shell::reconcile::TICK`].
const SHORTEST: Duration = Duration::from_secs(5);

/// Watches the loop of a leader.
#[derive(Debug)]
pub(super) struct Watchdog {
    limit: Duration,
    /// The turn that lasted too long when it was last looked at.
    suspected: Option<Instant>,
}

impl Watchdog {
    /// A leader that stands still is replaced as soon as one that is dead: after the duration of the Lease. That is longer than
    /// the renew deadline, after which a machine that stood still has lost the Lease anyway. It is at most the time after which
    /// the liveness probe fails, which ends the process without releasing the Lease.
    pub(super) fn new(lease_duration: Duration) -> Self {
        Self { limit: lease_duration.clamp(SHORTEST, STANDS_STILL), suspected: None }
    }

    /// For how long the loop stands still, if that is too long. `last_turn` is when it began its last turn; `None` before the
    /// first. Two looks have to find the same turn: the first may come just after the whole process stood still.
    pub(super) fn look(&mut self, last_turn: Option<Instant>, now: Instant) -> Option<Duration> {
        let age = |turn: Instant| now.saturating_duration_since(turn);
        let before = std::mem::replace(&mut self.suspected, last_turn.filter(|turn| age(*turn) > self.limit));
        self.suspected.filter(|turn| before == Some(*turn)).map(age)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::shell::reconcile::TICK;

    const LEASE: Duration = Duration::from_secs(15);

    #[test]
    fn loop_without_turn_for_lease_duration_stands_still() {
        let (mut watchdog, start) = (Watchdog::new(LEASE), Instant::now());
        let mut look = |seconds| watchdog.look(Some(start), start + Duration::from_secs(seconds));
        let looks = [2, 14, 15, 17, 19].map(&mut look);
        assert_eq!(looks, [None, None, None, None, Some(Duration::from_secs(19))]);
    }

    #[test]
    fn loop_with_turn_after_first_look_goes_on() {
        let (mut watchdog, start) = (Watchdog::new(LEASE), Instant::now());
        let frozen = start + Duration::from_mins(5);
        assert_eq!(watchdog.look(Some(start), frozen), None);
        assert_eq!(watchdog.look(Some(frozen), frozen + Duration::from_secs(2)), None);
        assert_eq!(watchdog.look(Some(frozen), frozen + Duration::from_secs(16)), None, "another turn is too long");
    }

    #[test]
    fn loop_that_has_not_begun_does_not_stand_still() {
        let mut watchdog = Watchdog::new(LEASE);
        let later = Instant::now() + Duration::from_hours(1);
        assert_eq!([later, later].map(|now| watchdog.look(None, now)), [None, None]);
    }

    #[rstest]
    #[case::default(15, 15)]
    #[case::short_lease(1, 5)]
    #[case::long_lease(600, 60)]
    fn limit_is_lease_duration_within_bounds(#[case] lease: u64, #[case] limit: u64) {
        assert_eq!(Watchdog::new(Duration::from_secs(lease)).limit, Duration::from_secs(limit));
        // A loop without work takes turns, too.
        assert!(TICK * 3 < SHORTEST);
    }
}
