//! The rate limit of the clients: requests per second, and a burst after a pause. Watches are not limited: there are few, and a
//! watch that waits lets the engine's state age.
//!
//! Bulk requests leave a part of the burst to urgent requests, and none of them takes a token in advance.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Request;

use super::count::is_watch;
use crate::engine::Urgency;

/// Bulk requests leave one of this many tokens of the burst.
const RESERVED: u32 = 5;

/// Shared by the clients of both urgencies.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    bucket: Arc<Mutex<Bucket>>,
    /// Held by the bulk request that takes the next token.
    bulk: Arc<tokio::sync::Mutex<()>>,
}

impl Limiter {
    pub(super) fn new(qps: NonZeroU32, burst: NonZeroU32) -> Self {
        Self { bucket: Arc::new(Mutex::new(Bucket::new(qps, burst))), bulk: Arc::default() }
    }

    /// Returns the request when it may be sent.
    pub(super) async fn admit<B>(self, request: Request<B>, urgency: Urgency) -> Result<Request<B>, Infallible> {
        if is_watch(request.uri()) {
            return Ok(request);
        }
        match urgency {
            Urgency::Urgent => tokio::time::sleep(self.bucket(|bucket| bucket.take(Instant::now()))).await,
            Urgency::Bulk => {
                let _turn = self.bulk.lock().await;
                while let Err(wait) = self.bucket(|bucket| bucket.take_unreserved(Instant::now())) {
                    tokio::time::sleep(wait).await;
                }
            }
        }
        Ok(request)
    }

    fn bucket<T>(&self, take: impl FnOnce(&mut Bucket) -> T) -> T {
        take(&mut self.bucket.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A token bucket, kept as the instant at which it is full again.
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

    /// Takes a token. Returns how long to wait for it.
    fn take(&mut self, now: Instant) -> Duration {
        let full_at = self.full_after_next(now);
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now).saturating_sub(self.capacity)
    }

    /// Takes a token for a bulk request that is present and not reserved, or returns how long to wait before the next attempt.
    fn take_unreserved(&mut self, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_after_next(now);
        let unreserved = self.capacity.saturating_sub(self.capacity / RESERVED).max(self.refill);
        let wait = full_at.saturating_duration_since(now).saturating_sub(unreserved);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.full_at = Some(full_at);
        Ok(())
    }

    fn full_after_next(&self, now: Instant) -> Instant {
        self.full_at.map_or(now, |full_at| full_at.max(now)) + self.refill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(qps: u32, burst: u32) -> Bucket {
        Bucket::new(NonZeroU32::new(qps).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    #[test]
    fn bucket_after_each_pause_admits_one_burst_at_once() {
        let (mut bucket, now) = (bucket(10, 3), Instant::now());
        for at in [now, now + Duration::from_hours(1)] {
            let waits: Vec<u128> = (0..6).map(|_| bucket.take(at).as_millis()).collect();
            assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        }
    }

    #[test]
    fn bucket_bulk_requests_leave_a_fifth_of_the_burst() {
        let (mut bucket, now) = (bucket(10, 5), Instant::now());
        let taken = (0..10).filter(|_| bucket.take_unreserved(now).is_ok()).count();
        assert_eq!((taken, bucket.take_unreserved(now)), (4, Err(Duration::from_millis(100))));
        assert_eq!([bucket.take(now), bucket.take(now)].map(|wait| wait.as_millis()), [0, 100]);
        assert_eq!(bucket.take_unreserved(now + Duration::from_millis(200)), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take_unreserved(now + Duration::from_millis(300)), Ok(()));
    }

    #[test]
    fn bucket_of_one_token_admits_bulk_requests() {
        let (mut bucket, now) = (bucket(10, 1), Instant::now());
        assert_eq!(bucket.take_unreserved(now), Ok(()));
        assert_eq!(bucket.take_unreserved(now), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take_unreserved(now + Duration::from_millis(100)), Ok(()));
    }
}
