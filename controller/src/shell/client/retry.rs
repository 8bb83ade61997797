//! Retries requests that the API server has answered with 429 Too Many Requests. It has not begun such a request, so no request
//! is carried out twice.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use tokio::time::{Instant, Sleep, sleep};
use tower::BoxError;
use tower::retry::Policy;

/// Attempts before the answer 429 is returned.
const ATTEMPTS: u32 = 10;
/// Delay without a `Retry-After`.
const DEFAULT: Duration = Duration::from_secs(1);
/// Longest delay before jitter.
const LONGEST: Duration = Duration::from_secs(10);
/// Longest time from the first answer 429 to the last attempt. Then the JobSet may be planned again, from a newer state.
const RETRIED_FOR: Duration = Duration::from_secs(30);

/// Waits for `Retry-After` with jitter, because other requests are answered with 429 in the same second. The policy of kube has no
/// jitter at its longest delay: requests that have met once meet again. It also retries after 503 and 504, where the engine makes
/// another plan.
#[derive(Clone, Debug, Default)]
pub(super) struct RetryAfter {
    attempts: u32,
    /// When the first attempt was answered.
    first: Option<Instant>,
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for RetryAfter {
    type Future = Sleep;

    fn retry(
        &mut self,
        _request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let answer = result.as_ref().ok()?;
        self.attempts += 1;
        let until = *self.first.get_or_insert_with(Instant::now) + RETRIED_FOR;
        let delay = delay(answer.status(), answer.headers()).filter(|_| self.attempts < ATTEMPTS)?;
        let delay = delay.mul_f64(1.0 + fastrand::f64());
        (Instant::now() + delay <= until).then(|| sleep(delay))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<_, Response<B>, _>::clone_request(&mut RetryPolicy::default(), request)
    }
}

/// The delay before the next attempt; `None` if the request is not retried.
fn delay(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Some(seconds.map_or(DEFAULT, Duration::from_secs).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(429, Some("3"), Some(3))]
    #[case(429, Some("3600"), Some(10))]
    #[case(429, Some("tomorrow"), Some(1))]
    #[case(429, None, Some(1))]
    #[case(200, None, None)]
    #[case(409, None, None)]
    #[case(503, Some("3"), None)]
    fn answer_429_is_retried_after_delay(
        #[case] status: u16,
        #[case] after: Option<&str>,
        #[case] seconds: Option<u64>,
    ) {
        let headers = after.map(|after| (RETRY_AFTER, after.parse().unwrap())).into_iter().collect();
        assert_eq!(delay(StatusCode::from_u16(status).unwrap(), &headers), seconds.map(Duration::from_secs));
    }

    #[tokio::test]
    async fn answer_429_to_all_attempts_is_returned() {
        let answer = || Response::builder().status(429).body(()).map_err(BoxError::from);
        let mut policy = RetryAfter::default();
        let delays = (0..20).map_while(|_| policy.retry(&mut Request::new(Body::empty()), &mut answer())).count();
        assert_eq!(delays, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn long_retry_after_of_429_is_capped() {
        let answer = || Response::builder().status(429).header(RETRY_AFTER, "3600").body(()).map_err(BoxError::from);
        let (mut policy, begin) = (RetryAfter::default(), Instant::now());
        while let Some(delay) = policy.retry(&mut Request::new(Body::empty()), &mut answer()) {
            delay.await;
        }
        let after = begin.elapsed();
        assert!((LONGEST..=RETRIED_FOR).contains(&after), "{after:?}");
    }
}
