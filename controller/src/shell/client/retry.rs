//! Repeats what the API server refused because it has too much to do. It has not begun such a request, so that nothing is
//! done twice.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use tokio::time::{Sleep, sleep};
use tower::BoxError;
use tower::retry::Policy;

/// Tries that are made before the refusal is handed on.
const TRIES: u32 = 10;
/// Wait when the API server names none.
const UNASKED: Duration = Duration::from_secs(1);
/// Longest time to wait, before jitter, whatever the API server asks for.
const LONGEST: Duration = Duration::from_secs(30);

/// Waits as long as `Retry-After` says, and a little longer: others were refused in the same second.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitAsAsked {
    refused: u32,
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for WaitAsAsked {
    type Future = Sleep;

    fn retry(
        &mut self,
        _request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let answer = result.as_ref().ok()?;
        self.refused += 1;
        let wait = asked(answer.status(), answer.headers()).filter(|_| self.refused < TRIES)?;
        Some(sleep(wait.mul_f64(1.0 + fastrand::f64())))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<_, Response<B>, _>::clone_request(&mut RetryPolicy::default(), request)
    }
}

/// How long the API server asks to wait; `None` if it did not refuse for lack of capacity.
fn asked(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Some(seconds.map_or(UNASKED, Duration::from_secs).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(429, Some("3"), Some(3))]
    #[case(429, Some("3600"), Some(30))]
    #[case(429, Some("tomorrow"), Some(1))]
    #[case(429, None, Some(1))]
    #[case(200, None, None)]
    #[case(409, None, None)]
    #[case(503, Some("3"), None)]
    fn only_a_lack_of_capacity_is_waited_for(
        #[case] status: u16,
        #[case] after: Option<&str>,
        #[case] seconds: Option<u64>,
    ) {
        let headers = after.map(|after| (RETRY_AFTER, after.parse().unwrap())).into_iter().collect();
        assert_eq!(asked(StatusCode::from_u16(status).unwrap(), &headers), seconds.map(Duration::from_secs));
    }

    #[tokio::test]
    async fn a_request_that_is_always_refused_is_handed_on_in_the_end() {
        let refused = || Response::builder().status(429).body(()).map_err(BoxError::from);
        let mut policy = WaitAsAsked::default();
        let waits = (0..20).map_while(|_| policy.retry(&mut Request::new(Body::empty()), &mut refused())).count();
        assert_eq!(waits, 9);
    }
}
