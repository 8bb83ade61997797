//! The layers together, over real connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{StatusCode, header};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use tokio::net::TcpListener;

use super::*;
use crate::shell::lease::NotLeading;

/// An API server that answers each request with 429, and counts them.
async fn busy_server(requests: Arc<AtomicUsize>) -> Config {
    let routes = Router::new().fallback(move || {
        requests.fetch_add(1, Ordering::SeqCst);
        std::future::ready((StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "{}"))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Config::new(url.parse().unwrap())
}

#[tokio::test]
async fn write_waiting_for_its_retry_leadership_ends_is_not_sent() {
    let count = Arc::new(AtomicUsize::new(0));
    let clients = Clients::new(busy_server(Arc::clone(&count)).await, &Registry::new()).unwrap();
    let leadership = watch::Sender::new(Leadership::Leading { until: None });
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
