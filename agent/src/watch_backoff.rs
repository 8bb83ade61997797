//! The back-off between two watch requests.
//!
//! An event alone does not reset the back-off. An API server, or a proxy before it, may end each watch after the first event;
//! thousands of agents would then request a watch several times a second. So two counters run: failures in a row without an
//! event, and short watches in a row that had events. Each counts for itself, so an agent whose API server answers again
//! after a long outage begins with short waits.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::after_failures;

/// A watch that runs this long after its first event resets both counters.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Failures or short watches in a row after which the log warns.
const WARN_AFTER: u32 = 3;

/// The state of the back-off between watch requests.
#[derive(Debug, Default)]
pub(crate) struct WatchBackoff {
    /// When the current watch had its first event.
    first_event: Option<Instant>,
    /// Requests in a row without an event.
    failures: u32,
    /// Watches in a row that had an event and ended before [`STABLE_AFTER`].
    short_watches: u32,
    /// The log has warned since the last stable watch.
    warned: bool,
}

impl WatchBackoff {
    pub(crate) fn on_event(&mut self) {
        self.failures = 0;
        self.first_event.get_or_insert_with(Instant::now);
    }

    /// Takes note that the watch has ended. Returns the wait before the next request, without jitter; it is never shorter than
    /// `retry_after`, which the API server asked for.
    pub(crate) fn on_end(&mut self, retry_after: Option<Duration>) -> Duration {
        let first_event = self.first_event.take();
        if first_event.is_some_and(|first_event| first_event.elapsed() >= STABLE_AFTER) {
            *self = Self::default();
        }
        let earlier = self.failures.max(self.short_watches);
        let count = if first_event.is_some() { &mut self.short_watches } else { &mut self.failures };
        *count = count.saturating_add(1);
        after_failures(earlier, retry_after)
    }

    /// Whether the log should warn that watches do not last. Returns true once, until a watch is stable again.
    pub(crate) fn should_warn(&mut self) -> bool {
        let due = self.failures.max(self.short_watches) >= WARN_AFTER;
        due && !std::mem::replace(&mut self.warned, due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waits in milliseconds after these watches: whether a watch had an event, and how many seconds it then ran.
    async fn waits(backoff: &mut WatchBackoff, watches: &[(bool, u64)]) -> Vec<u128> {
        let mut waits = Vec::new();
        for (event, seconds) in watches {
            if *event {
                backoff.on_event();
            }
            tokio::time::advance(Duration::from_secs(*seconds)).await;
            waits.push(backoff.on_end(None).as_millis());
        }
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn wait_doubles_until_a_watch_is_stable() {
        let mut backoff = WatchBackoff::default();
        assert_eq!(waits(&mut backoff, &[(false, 0); 4]).await, [200, 400, 800, 1_600]);
        let answers_again = waits(&mut backoff, &[(true, 0); 4]).await;
        assert_eq!(answers_again, [200, 400, 800, 1_600], "the API server answers again");
        assert_eq!(waits(&mut backoff, &[(true, 1), (false, 0), (true, 1)]).await, [3_200, 5_000, 5_000]);
        assert_eq!(waits(&mut backoff, &[(true, 60), (false, 0)]).await, [200, 400]);
        assert_eq!(waits(&mut backoff, &[(true, 0); 9]).await[8], 5_000);
    }

    #[tokio::test(start_paused = true)]
    async fn warning_is_due_once_until_a_watch_is_stable() {
        let mut backoff = WatchBackoff::default();
        for _ in 0..2 {
            let mut warnings = Vec::new();
            for _ in 0..5 {
                waits(&mut backoff, &[(false, 0)]).await;
                warnings.push(backoff.should_warn());
            }
            assert_eq!(warnings, [false, false, true, false, false]);
            waits(&mut backoff, &[(true, 60)]).await;
        }
    }
}
