//! How soon a watch that has ended is asked for again.
//!
//! An event is progress, but not all of it: an API server, or a proxy before it, that ends each watch after the first event
//! would be asked several times a second by each of thousands of agents. So failures without an event are counted, and watches
//! that had events and did not last, each by itself: whoever comes back after a long absence begins with short waits.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::after_failures;

/// A watch that has lasted so long since its first event was well.
const LASTS: Duration = Duration::from_secs(10);
/// Watches in a row that are not, after which somebody should know.
const TELLS: u32 = 3;

/// What is known of the watches until now.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the present one had its first event.
    heard: Option<Instant>,
    /// Requests in a row that no event answered.
    failures: u32,
    /// Watches in a row that had events and did not last.
    short: u32,
    told: bool,
}

impl Pace {
    /// An event has come.
    pub(crate) fn hears(&mut self) {
        self.failures = 0;
        self.heard.get_or_insert_with(Instant::now);
    }

    /// The watch has ended. Gives the wait before the next one, never shorter than the API server asked for.
    pub(crate) fn ended(&mut self, retry_after: Option<Duration>) -> Duration {
        let heard = self.heard.take();
        if heard.is_some_and(|heard| heard.elapsed() >= LASTS) {
            *self = Self::default();
        }
        let earlier = self.failures.max(self.short);
        let count = if heard.is_some() { &mut self.short } else { &mut self.failures };
        *count = count.saturating_add(1);
        after_failures(earlier, retry_after)
    }

    /// Whether it is time to say that watches do not last: once, until one does.
    pub(crate) fn tells(&mut self) -> bool {
        let tells = self.failures.max(self.short) >= TELLS;
        tells && !std::mem::replace(&mut self.told, tells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waits in milliseconds after watches that had an event, or had none, and then lasted so many seconds.
    async fn waits(pace: &mut Pace, watches: &[(bool, u64)]) -> Vec<u128> {
        let mut waits = Vec::new();
        for (event, seconds) in watches {
            if *event {
                pace.hears();
            }
            tokio::time::advance(Duration::from_secs(*seconds)).await;
            waits.push(pace.ended(None).as_millis());
        }
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_until_a_watch_lasts() {
        let mut pace = Pace::default();
        assert_eq!(waits(&mut pace, &[(false, 0); 4]).await, [200, 400, 800, 1_600]);
        assert_eq!(waits(&mut pace, &[(true, 0); 4]).await, [200, 400, 800, 1_600], "it answers again");
        assert_eq!(waits(&mut pace, &[(true, 1), (false, 0), (true, 1)]).await, [3_200, 6_400, 6_400]);
        assert_eq!(waits(&mut pace, &[(true, 60), (false, 0)]).await, [200, 400]);
        assert_eq!(waits(&mut pace, &[(true, 0); 9]).await[8], 15_000);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_told_once_until_a_watch_lasts() {
        let mut pace = Pace::default();
        for _ in 0..2 {
            let mut told = Vec::new();
            for _ in 0..5 {
                waits(&mut pace, &[(false, 0)]).await;
                told.push(pace.tells());
            }
            assert_eq!(told, [false, false, true, false, false]);
            waits(&mut pace, &[(true, 60)]).await;
        }
    }
}
