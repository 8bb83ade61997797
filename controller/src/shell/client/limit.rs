//! The rate limit of the clients: requests per second, and a burst after a pause. Watches are not limited: there are few, and a
//! watch that waits lets the engine's state age.
//!
//! Bulk requests leave a part of the burst to urgent requests, and none of them takes a token in advance. They take their tokens in
//! the order in which they come. Whoever sends many lets namespaces take turns before that.
//!
//! The limit is the client's own, so the time that a request waits for it is not the API server's: [`watched`] tells them apart.

use std::convert::Infallible;
use std::future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Request;
use jobset_engine::Urgency;
use jobset_program::lock;
use tokio::select;
use tokio::sync::watch;
use tokio::task::futures::TaskLocalFuture;

use super::count::is_watch;

/// Bulk requests leave one of this many tokens of the burst.
const RESERVED: u32 = 5;

tokio::task_local! {
    /// When the request under way was sent; `None` while it waits for the rate limit.
    static SENT: watch::Sender<Option<Instant>>;
}

/// A future that sends requests, one after the other, of which [`Unanswered`] tells.
pub(in crate::shell) type Watched<F> = Pin<Box<TaskLocalFuture<watch::Sender<Option<Instant>>, F>>>;

/// Since when the request under way has no answer.
pub(in crate::shell) struct Unanswered(watch::Receiver<Option<Instant>>);

pub(in crate::shell) fn watched<F: Future>(requests: F) -> (Watched<F>, Unanswered) {
    let sent = watch::Sender::default();
    let unanswered = Unanswered(sent.subscribe());
    (Box::pin(SENT.scope(sent, requests)), unanswered)
}

impl Unanswered {
    /// Waits until a request has had no answer for this long. A request that is answered with 429 has none: it is sent again.
    pub(in crate::shell) async fn lasts(mut self, time: Duration) {
        loop {
            let sent = *self.0.borrow_and_update();
            let is_late = async {
                match sent {
                    Some(sent) => tokio::time::sleep_until((sent + time).into()).await,
                    None => future::pending().await,
                }
            };
            select! {
                biased;
                changed = self.0.changed() => if changed.is_err() { future::pending().await },
                () = is_late => return,
            }
        }
    }
}

/// Notes when the request that the present future sends was sent, if that is watched.
fn note_sent(at: Option<Instant>) {
    let _ = SENT.try_with(|sent| sent.send_replace(at));
}

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
        note_sent(None);
        match urgency {
            Urgency::Urgent => tokio::time::sleep(self.bucket(|bucket| bucket.take(Instant::now()))).await,
            Urgency::Bulk => {
                let _turn = self.bulk.lock().await;
                while let Err(wait) = self.bucket(|bucket| bucket.take_unreserved(Instant::now())) {
                    tokio::time::sleep(wait).await;
                }
            }
        }
        note_sent(Some(tokio::time::Instant::now().into_std()));
        Ok(request)
    }

    fn bucket<T>(&self, take: impl FnOnce(&mut Bucket) -> T) -> T {
        take(&mut lock(&self.bucket))
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
