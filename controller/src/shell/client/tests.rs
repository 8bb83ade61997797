//! The layers together, over real connections.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{StatusCode, header};
use futures::stream::{self, Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, timeout};

use super::deadline::{ANSWER, WATCH_MARGIN};
use super::*;
use crate::shell::lease::NotLeading;

/// An API server that answers each request with 429, and counts them.
async fn busy_server(requests: Arc<AtomicUsize>) -> Config {
    server(Router::new().fallback(move || {
        requests.fetch_add(1, Ordering::SeqCst);
        std::future::ready((StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "{}"))
    }))
    .await
}

async fn server(routes: Router) -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Config::new(url.parse().unwrap())
}

#[tokio::test]
async fn write_waiting_for_its_retry_leadership_ends_is_not_sent() {
    let count = Arc::new(AtomicUsize::new(0));
    let clients = Clients::new(busy_server(Arc::clone(&count)).await, &Registry::new()).unwrap();
    let leadership = watch::Sender::new(Leadership::Leading { until: None, clock: None });
    let fast = std::num::NonZeroU32::new(1000).unwrap();
    let limits = ClientArgs { kube_api_qps: fast, kube_api_burst: fast };
    let client = clients.workers(&limits, &leadership.subscribe()).unwrap().urgent;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let list = tokio::spawn({
        let maps = maps.clone();
        async move { maps.list(&ListParams::default()).await }
    });
    let write = tokio::spawn(async move { maps.create(&PostParams::default(), &ConfigMap::default()).await });
    while count.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    leadership.send_replace(Leadership::Standby);
    let answer = tokio::time::timeout(Duration::from_secs(10), write).await.unwrap().unwrap();
    let Err(kube::Error::Service(source)) = answer else { unreachable!("{answer:?}") };
    assert!(source.is::<NotLeading>(), "{source}");
    // Only the read is retried.
    while count.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    list.abort();
}

/// An answer that is being sent. Says when its connection is closed.
struct Answering(mpsc::Sender<()>);

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

/// A client of an API server that begins each answer and sends these parts of its body; when the connection is closed.
async fn client_of_server_sending<S>(
    parts: impl Fn() -> S + Clone + Send + Sync + 'static,
) -> (Client, mpsc::Receiver<()>)
where
    S: Stream<Item = &'static str> + Send + 'static,
{
    let (end, closed) = mpsc::channel(1);
    let routes = Router::new().fallback(move || {
        let answering = Answering(end.clone());
        let parts = parts().map(move |part| {
            let _not_dropped = &answering;
            Ok::<_, Infallible>(part)
        });
        std::future::ready(axum::body::Body::from_stream(parts))
    });
    (Clients::new(server(routes).await, &Registry::new()).unwrap().elector().unwrap(), closed)
}

/// How the answer to this request ends whose head has come, and the durations that its time limit lies between: since the head and
/// since the request. The clock is stopped when the head is there: waiting takes no time.
async fn end_of_answer(client: &Client, path: &str) -> (String, RangeInclusive<Duration>) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let asked = Instant::now();
    let answer = client.send(request).await.unwrap();
    tokio::time::pause();
    let began = Instant::now();
    let body = timeout(Duration::from_hours(1), answer.into_body().collect_bytes()).await;
    let end = body.expect("the answer has no time limit").unwrap_err();
    // Timers are rounded up to their resolution.
    (end.to_string(), began.elapsed().saturating_sub(Duration::from_millis(1))..=asked.elapsed())
}

#[tokio::test]
async fn answer_stalled_in_its_body_ends_at_its_time_limit() {
    let stalled = || stream::iter([r#"{"items": ["#]).chain(stream::pending());
    let (client, mut closed) = client_of_server_sending(stalled).await;
    let (end, after) = end_of_answer(&client, "/api/v1/pods?limit=500").await;
    assert!(end.contains("no whole answer within 65 s"), "{end}");
    assert!(after.contains(&ANSWER), "{after:?}");
    assert_eq!(closed.recv().await, Some(()), "the connection is closed");
}

#[tokio::test]
async fn request_without_answer_ends_at_its_time_limit() {
    let (arrived, mut has_arrived) = mpsc::channel(1);
    let routes = Router::new().fallback(move || {
        let arrived = arrived.clone();
        async move {
            arrived.send(()).await.unwrap();
            std::future::pending::<()>().await;
        }
    });
    let client = Clients::new(server(routes).await, &Registry::new()).unwrap().elector().unwrap();
    let request = Request::get("/api/v1/pods?watch=true&timeoutSeconds=290").body(Body::empty()).unwrap();
    let answer = tokio::spawn(async move { client.send(request).await.map(drop) });
    has_arrived.recv().await.unwrap();
    tokio::time::pause();
    let began = Instant::now();
    let end = timeout(Duration::from_hours(1), answer).await.expect("no time limit").unwrap().unwrap_err();
    assert!(end.to_string().contains("no whole answer within 65 s"), "{end}");
    // Timers are rounded up to their resolution.
    assert!(began.elapsed() <= ANSWER + Duration::from_millis(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn watch_ends_after_its_own_time_limit() {
    let events = || {
        stream::unfold(interval(Duration::from_mins(1)), |mut minutes| async {
            minutes.tick().await;
            Some(("{}\n", minutes))
        })
    };
    let (client, mut closed) = client_of_server_sending(events).await;
    let (end, after) = end_of_answer(&client, "/api/v1/pods?watch=true&timeoutSeconds=290").await;
    let limit = Duration::from_secs(290) + WATCH_MARGIN;
    assert!(end.contains("no whole answer within 305 s"), "{end}");
    assert!(after.contains(&limit), "{after:?}");
    assert_eq!(closed.recv().await, Some(()), "the connection is closed");
}
