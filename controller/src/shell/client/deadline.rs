//! One time limit for each request, from its beginning to the end of the body of its answer. Whoever holds a place or a
//! connection for a request has it back after that time, whatever the API server or the network does.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, Service, ServiceExt as _};

use super::count::is_watch;

/// Longest time until a request is answered, body included. Of a watch: until it begins. The API server itself gives up after a
/// minute.
pub(super) const ANSWER: Duration = Duration::from_secs(65);
/// How much longer than it asks for a watch may last. The watcher of kube waits 5 s longer for the next event of a watch.
pub(super) const WATCH_MARGIN: Duration = Duration::from_secs(15);
/// How long a watch lasts that does not ask for a time: as long as kube asks for.
const WATCH: Duration = Duration::from_secs(290);

/// The request has no whole answer at the end of its time.
#[derive(Debug, thiserror::Error)]
#[error("no whole answer within {} s", .0.as_secs())]
pub(super) struct Late(Duration);

/// Sends a request. Its answer, or the body of its answer, fails when its time is over.
pub(super) async fn limited<S, B>(service: S, request: Request<B>) -> Result<Response<TimedBody>, BoxError>
where
    S: Service<Request<B>, Response = Response<Incoming>>,
    S::Error: Into<BoxError>,
{
    let sent = Instant::now();
    let whole = limit(request.uri());
    let answer = timeout_at(sent + ANSWER, service.oneshot(request)).await.map_err(|_| Late(ANSWER))?;
    Ok(answer.map_err(Into::into)?.map(|body| TimedBody {
        body: Some(body),
        limit: whole,
        deadline: Box::pin(sleep_until(sent + whole)),
    }))
}

/// Longest time of the whole answer.
fn limit(uri: &Uri) -> Duration {
    if !is_watch(uri) {
        return ANSWER;
    }
    let mut parameters = uri.query().into_iter().flat_map(|query| query.split('&'));
    let asked = parameters.find_map(|it| it.strip_prefix("timeoutSeconds=")?.parse::<u32>().ok());
    asked.map_or(WATCH, |seconds| Duration::from_secs(seconds.into())) + WATCH_MARGIN
}

/// The body of an answer, which fails when the time of its request is over. Then the connection is closed.
pub(super) struct TimedBody {
    /// `None` after the failure.
    body: Option<Incoming>,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        // A body that always has another frame is late, too.
        if this.deadline.as_mut().poll(cx).is_pending() {
            return Pin::new(body).poll_frame(cx).map_err(Into::into);
        }
        this.body = None;
        Poll::Ready(Some(Err(Late(this.limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::list("/api/v1/pods?limit=500&timeoutSeconds=290", 65)]
    #[case::watch_of_kube("/api/v1/pods?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true", 305)]
    #[case::short_watch("/api/v1/pods?watch=1&timeoutSeconds=10", 25)]
    #[case::watch_without_time("/api/v1/pods?watch", 305)]
    #[case::watch_without_number("/api/v1/pods?watch=true&timeoutSeconds=long", 305)]
    fn whole_answer_has_time(#[case] uri: &'static str, #[case] seconds: u64) {
        assert_eq!(limit(&Uri::from_static(uri)), Duration::from_secs(seconds));
    }
}
