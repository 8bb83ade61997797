//! Ordinary weather: API servers restart, connections break, watches end. It is reported when it begins and when it is
//! over, however many requests it costs in between, and once a minute at most.

use std::error::Error;
use std::time::{Duration, Instant};

use kube::runtime::utils::Backoff;
use tracing::{debug, info, warn};

/// Shortest time between two reports of a beginning.
const PAUSE: Duration = Duration::from_mins(1);

/// Whether requests of one sort succeed at present.
#[derive(Debug, Default)]
pub(super) struct Weather {
    spell: Option<Spell>,
    last_reported: Option<Instant>,
}

/// A time in which requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spell {
    since: Instant,
    failures: u64,
    reported: bool,
}

impl Weather {
    /// A request failed, and is tried again.
    pub(super) fn turns(&mut self, what: &str, error: &(dyn Error + 'static)) {
        if self.failed(Instant::now()) {
            warn!(what, error, "requests fail, trying again until they succeed");
        } else {
            debug!(what, error, "a request failed");
        }
    }

    /// A request succeeded.
    pub(super) fn clears(&mut self, what: &str) {
        match self.spell.take() {
            Some(Spell { since, failures, reported: true }) => {
                info!(what, failures, after = ?since.elapsed(), "requests succeed again");
            }
            Some(Spell { failures, .. }) => debug!(what, failures, "requests succeed again"),
            None => {}
        }
    }

    /// Whether to report this failure.
    fn failed(&mut self, now: Instant) -> bool {
        if let Some(spell) = &mut self.spell {
            spell.failures += 1;
            return false;
        }
        let reported = self.last_reported.is_none_or(|last| now >= last + PAUSE);
        if reported {
            self.last_reported = Some(now);
        }
        self.spell = Some(Spell { since: now, failures: 1, reported });
        reported
    }
}

/// How long to wait before what failed is tried again: jittered, and never so long that a group which restarts waits for
/// an API server that is back.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
}

impl Patience {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(5);
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = Self::FIRST.saturating_mul(1 << self.failures.min(16)).min(Self::LONGEST);
        self.failures += 1;
        Some(wait.mul_f64(0.5 + 0.5 * fastrand::f64()))
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_of_failures_is_reported_once_and_the_next_after_a_minute() {
        let (mut weather, now) = (Weather::default(), Instant::now());
        assert_eq!([weather.failed(now), weather.failed(now), weather.failed(now)], [true, false, false]);
        assert_eq!(weather.spell, Some(Spell { since: now, failures: 3, reported: true }));
        weather.clears("");
        let soon = now + Duration::from_secs(59);
        assert!(!weather.failed(soon));
        assert_eq!(weather.spell, Some(Spell { since: soon, failures: 1, reported: false }));
        weather.clears("");
        assert!(weather.failed(now + PAUSE));
    }

    #[test]
    fn patience_grows_to_seconds_and_begins_anew_after_a_success() {
        let mut patience = Patience::default();
        let waits: Vec<Duration> = patience.by_ref().take(40).collect();
        assert!(waits[0] <= Duration::from_millis(200) && waits[0] >= Duration::from_millis(100), "{waits:?}");
        assert!(waits[39] <= Duration::from_secs(5) && waits[39] >= Duration::from_millis(2500), "{waits:?}");
        patience.reset();
        assert!(patience.next().unwrap() <= Duration::from_millis(200));
    }
}
