//! How many requests are made: so many a second, and so many at once after a pause. Watches do not count: there are few,
//! and one that waits its turn lets the store age.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Request;

use super::count::is_watch;

/// Shared by all who use a client.
#[derive(Clone, Debug)]
pub(super) struct Limiter(Arc<Mutex<Bucket>>);

impl Limiter {
    pub(super) fn new(qps: NonZeroU32, burst: NonZeroU32) -> Self {
        Self(Arc::new(Mutex::new(Bucket::new(qps, burst))))
    }

    /// Hands the request back when it is its turn.
    pub(super) async fn admit<B>(self, request: Request<B>) -> Result<Request<B>, Infallible> {
        if !is_watch(request.uri()) {
            let wait = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        Ok(request)
    }
}

/// A bucket of tokens, as one instant: when it would be full again.
#[derive(Debug)]
struct Bucket {
    /// Time in which one token comes back.
    refill: Duration,
    /// Time in which an empty bucket becomes full.
    capacity: Duration,
    full_at: Option<Instant>,
}

impl Bucket {
    fn new(qps: NonZeroU32, burst: NonZeroU32) -> Self {
        let refill = Duration::from_secs(1) / qps.get();
        Self { refill, capacity: refill.saturating_mul(burst.get()), full_at: None }
    }

    /// Takes a token; how long to wait for it.
    fn take(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + self.refill;
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now).saturating_sub(self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(qps: u32, burst: u32) -> Bucket {
        Bucket::new(NonZeroU32::new(qps).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    #[test]
    fn a_burst_goes_at_once_and_then_each_waits_for_its_token() {
        let (mut bucket, now) = (bucket(10, 3), Instant::now());
        let waits: Vec<u128> = (0..6).map(|_| bucket.take(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
    }

    #[test]
    fn a_pause_fills_the_bucket_and_no_more_than_that() {
        let (mut bucket, now) = (bucket(10, 3), Instant::now());
        for _ in 0..3 {
            bucket.take(now);
        }
        assert_eq!(bucket.take(now + Duration::from_millis(100)), Duration::ZERO, "one came back");
        let later = now + Duration::from_hours(1);
        let waits: Vec<u128> = (0..4).map(|_| bucket.take(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100]);
    }
}
