//! The log of transient errors: API servers restart, connections break, watches end. A series of failed requests is logged
//! when it begins and when it ends, however many requests fail in between. At most one begin a minute is logged.

use std::error::Error;
use std::time::{Duration, Instant};

use kube::runtime::watcher;
use tracing::{debug, info, warn};

/// Shortest time between two logged begins.
const PAUSE: Duration = Duration::from_mins(1);

/// The log of transient errors of one kind of request.
#[derive(Debug, Default)]
pub(super) struct RetryLog {
    /// When the present series of failures began, and whether that was logged. Then its end is logged as well.
    series: Option<(Instant, bool)>,
    last_logged: Option<Instant>,
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
        if let Some((since, true)) = self.series.take() {
            info!(what, after = ?since.elapsed(), "requests succeed again");
        }
    }

    /// Records an event of a watch of `what`, which goes on after an error.
    pub(super) fn watched<K>(&mut self, what: &str, event: &watcher::Result<watcher::Event<K>>) {
        match event {
            Ok(_) => self.succeeded(what),
            // The watch was interrupted for too long.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => debug!(what, "listing again"),
            Err(error) => self.failed(what, error),
        }
    }

    /// Records a failure. Returns whether to log it: it begins a series, and the last logged begin is a minute ago.
    fn begins_logged_series(&mut self, now: Instant) -> bool {
        let logged = self.series.is_none() && self.last_logged.is_none_or(|last| now >= last + PAUSE);
        self.series.get_or_insert((now, logged));
        self.last_logged = if logged { Some(now) } else { self.last_logged };
        logged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_failures_is_logged_once_a_minute() {
        let (mut log, now) = (RetryLog::default(), Instant::now());
        assert_eq!([0, 1, 2].map(|_| log.begins_logged_series(now)), [true, false, false]);
        assert_eq!(log.series, Some((now, true)));
        log.succeeded("");
        let soon = now + Duration::from_secs(59);
        assert!(!log.begins_logged_series(soon));
        assert_eq!(log.series, Some((soon, false)));
        log.succeeded("");
        assert!(log.begins_logged_series(now + PAUSE));
    }
}
