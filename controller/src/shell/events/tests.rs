use std::num::NonZeroU32;

use axum::Router;
use axum::http::{Method, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::args::ClientArgs;
use crate::shell::client::{Clients, Workers};
use crate::shell::lease::Leadership;

fn jobset(namespace: &str) -> JobSet {
    let mut jobset = JobSet::default();
    (jobset.metadata.name, jobset.metadata.namespace) = (Some("train".to_owned()), Some(namespace.to_owned()));
    jobset
}

fn write(number: usize) -> EventWrite {
    let note = Note::warning("EpochInvalid", number.to_string());
    EventWrite::Create { name: format!("train.{number}"), note, stored: Stored::default() }
}

/// Clients of a server that answers each request with 404, and the methods of the requests.
async fn workers(qps: u32, burst: u32) -> (Workers, mpsc::UnboundedReceiver<Method>) {
    let (methods, arrived) = mpsc::unbounded_channel();
    let routes = Router::new().fallback(move |method: Method| {
        methods.send(method).unwrap();
        std::future::ready(StatusCode::NOT_FOUND)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let clients = Clients::new(kube::Config::new(url.parse().unwrap()), &Registry::new()).unwrap();
    let number = |number| NonZeroU32::new(number).unwrap();
    let limits = ClientArgs { kube_api_qps: number(qps), kube_api_burst: number(burst) };
    let leadership = watch::Sender::new(Leadership::Leading { until: None });
    (clients.workers(&limits, &leadership.subscribe()).unwrap(), arrived)
}

#[tokio::test]
async fn urgent_request_behind_many_events_is_sent_before_them() {
    let (workers, mut arrived) = workers(50, 10).await;
    let events = Events::new(workers.bulk, &Registry::new()).unwrap();
    for namespace in 0..100 {
        events.send(&jobset(&namespace.to_string()), vec![write(namespace)]);
    }
    let maps: Api<ConfigMap> = Api::namespaced(workers.urgent, "other");
    let urgent = tokio::spawn(async move { maps.get_opt("a").await });
    let mut before = 0;
    while arrived.recv().await.unwrap() != Method::GET {
        before += 1;
    }
    drop(urgent);
    assert!(before <= 10, "{before} Events are sent before it");
}

#[tokio::test]
async fn events_beyond_limits_are_counted_rest_is_sent() {
    let (workers, mut arrived) = workers(1_000_000, 1_000_000).await;
    let registry = Registry::new();
    let events = Events::new(workers.bulk, &registry).unwrap();
    events.send(&jobset("one"), (0..1_000).map(write).collect());
    events
        .send(&jobset("two"), vec![EventWrite::Drop { note: Note::warning("Refused", "quota".to_owned()) }, write(0)]);
    let dropped = EventLimit::ALL.map(|limit| events.dropped.with_label_values(&[limit.name()]).get());
    assert_eq!(dropped, [1, 500, 0]);
    // The end of the program waits for 5 s only, which a busy machine needs for fewer.
    for _ in 0..501 {
        timeout(Duration::from_mins(1), arrived.recv()).await.unwrap().unwrap();
    }
    events.sent().await;
    assert_eq!(events.queue().clear(), 0);
    assert!(arrived.try_recv().is_err(), "more than 501 were sent");
}

#[test]
fn shortened_long_message_is_cut_between_characters() {
    assert_eq!(shortened("short"), "short");
    let cut = shortened(&"\u{e9}".repeat(LONGEST));
    assert!(cut.len() <= LONGEST && cut.ends_with("..."), "{}", cut.len());
}
