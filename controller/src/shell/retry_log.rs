//! The log of transient errors: API servers restart, connections break, watches end. A series of failed requests is logged
//! when it begins and when it ends, however many requests fail in between. At most one begin a minute is logged.

use std::error::Error;
use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

/// Shortest time between two logged begins.
const PAUSE: Duration = Duration::from_mins(1);

/// The log of transient errors of one kind of request.
#[derive(Debug, Default)]
pub(super) struct RetryLog {
    series: Option<FailureSeries>,
    last_logged: Option<Instant>,
}

/// A series of failed requests without a success in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailureSeries {
    since: Instant,
    failures: u64,
    /// Whether the begin was logged. Then the end is logged as well.
    logged: bool,
}

impl RetryLog {
    /// Records that a request failed. The caller retries it.
    pub(super) fn failed(&mut self, what: &str, error: &(dyn Error + 'static)) {
        if self.begins_logged_series(Instant::now()) {
            warn!(what, error, "requests fail, trying again until they succeed");
        } else {
            debug!(what, error, "a request failed");
        }
    }

    /// Records that a request succeeded.
    pub(super) fn succeeded(&mut self, what: &str) {
        match self.series.take() {
            Some(FailureSeries { since, failures, logged: true }) => {
                info!(what, failures, after = ?since.elapsed(), "requests succeed again");
            }
            Some(FailureSeries { failures, .. }) => debug!(what, failures, "requests succeed again"),
            None => {}
        }
    }

    /// Counts a failure. Returns whether to log it: it begins a series, and the last logged begin is a minute ago.
    fn begins_logged_series(&mut self, now: Instant) -> bool {
        if let Some(series) = &mut self.series {
            series.failures += 1;
            return false;
        }
        let logged = self.last_logged.is_none_or(|last| now >= last + PAUSE);
        if logged {
            self.last_logged = Some(now);
        }
        self.series = Some(FailureSeries { since: now, failures: 1, logged });
        logged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_series_is_logged_once_and_the_next_after_a_minute() {
        let (mut log, now) = (RetryLog::default(), Instant::now());
        assert_eq!(
            [log.begins_logged_series(now), log.begins_logged_series(now), log.begins_logged_series(now)],
            [true, false, false]
        );
        assert_eq!(log.series, Some(FailureSeries { since: now, failures: 3, logged: true }));
        log.succeeded("");
        let soon = now + Duration::from_secs(59);
        assert!(!log.begins_logged_series(soon));
        assert_eq!(log.series, Some(FailureSeries { since: soon, failures: 1, logged: false }));
        log.succeeded("");
        assert!(log.begins_logged_series(now + PAUSE));
    }
}
