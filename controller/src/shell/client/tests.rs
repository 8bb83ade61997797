//! The layers together, over real connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use prometheus::TextEncoder;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::*;

/// An API server that counts its requests.
struct Server {
    registry: Registry,
    clients: Clients,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Answers the first requests with 429, and the others with an empty list.
    async fn refusing(first: usize) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let routes = Router::new().fallback(move || {
            let refuses = count.fetch_add(1, Ordering::SeqCst) < first;
            std::future::ready(if refuses {
                (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "{}").into_response()
            } else {
                r#"{"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []}"#.into_response()
            })
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let registry = Registry::new();
        let clients = Clients::new(Config::new(url.parse().unwrap()), &registry).unwrap();
        Self { registry, clients, requests }
    }

    fn worker(&self, leadership: &watch::Sender<Leadership>) -> Client {
        let fast = std::num::NonZeroU32::new(1000).unwrap();
        let limits = ClientArgs { kube_api_qps: fast, kube_api_burst: fast };
        self.clients.workers(&limits, &leadership.subscribe()).unwrap().urgent
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn counted(&self, code: &str) -> bool {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        text.contains(&format!(r#"code="{code}""#))
    }
}

#[tokio::test]
async fn request_answered_429_is_retried_and_each_attempt_is_counted() {
    let server = Server::refusing(1).await;
    let client = server.worker(&watch::Sender::default());
    let pods: Api<Pod> = Api::all(client);
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(server.requests(), 2);
    assert!(server.counted("429") && server.counted("200"));
}

#[tokio::test]
async fn write_waiting_for_its_retry_leadership_ends_is_not_sent() {
    let server = Server::refusing(usize::MAX).await;
    let leadership = watch::Sender::new(Leadership::Leading { until: None });
    let maps: Api<ConfigMap> = Api::namespaced(server.worker(&leadership), "default");
    let write = tokio::spawn(async move { maps.create(&PostParams::default(), &ConfigMap::default()).await });
    while server.requests() == 0 {
        tokio::task::yield_now().await;
    }
    leadership.send_replace(Leadership::Standby);
    let answer = tokio::time::timeout(Duration::from_secs(10), write).await.unwrap().unwrap();
    let Err(kube::Error::Service(source)) = answer else { unreachable!("{answer:?}") };
    assert!(source.is::<NotLeading>(), "{source}");
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn standby_reads_and_only_its_election_writes() {
    let server = Server::refusing(0).await;
    let client = server.worker(&watch::Sender::default());
    Api::<Pod>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let map = ConfigMap::default();
    Api::<ConfigMap>::namespaced(client, "default").create(&PostParams::default(), &map).await.unwrap_err();
    assert_eq!(server.requests(), 1);
    let elector = Api::<ConfigMap>::namespaced(server.clients.elector().unwrap(), "default");
    // The answer is no ConfigMap.
    elector.create(&PostParams::default(), &map).await.unwrap_err();
    assert_eq!(server.requests(), 2);
}
