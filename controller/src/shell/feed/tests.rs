use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::{Uri, header};
use futures::StreamExt as _;
use kube::Config;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::shell::client::Clients;

/// A list as the API server was asked for it.
#[derive(Clone, Debug)]
struct Asked {
    resource: String,
    query: String,
    accept: String,
}

impl Asked {
    fn limit(&self) -> u32 {
        parameter(&self.query, "limit").and_then(|limit| limit.parse().ok()).unwrap_or(u32::MAX)
    }
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// Of each list there are three pages of one object each.
fn page(uri: &Uri) -> Value {
    let number: usize =
        parameter(uri.query().unwrap_or_default(), "continue").map_or(0, |token| token.parse().unwrap());
    let next = if number < 2 { (number + 1).to_string() } else { String::new() };
    let labels = json!({(labels::JOBSET_NAME): "train"});
    let metadata =
        json!({"name": number.to_string(), "namespace": "ml", "uid": "u", "resourceVersion": "7", "labels": labels});
    json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": [{"metadata": metadata, "spec": {"replicatedJobs": []}}]})
}

/// A client of a server that has such lists, and what it was asked for.
async fn client() -> (Client, Arc<Mutex<Vec<Asked>>>) {
    let lists: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let asked = Arc::clone(&lists);
    let routes = Router::new().fallback(move |request: Request| {
        let uri = request.uri();
        let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        asked.lock().unwrap().push(Asked {
            resource: uri.path().rsplit('/').next().unwrap_or_default().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            accept: accept.to_owned(),
        });
        std::future::ready(page(uri).to_string())
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let clients = Clients::new(Config::new(url.parse().unwrap()), &Registry::new()).unwrap();
    (clients.elector().unwrap(), lists)
}

/// Checks the size of the pages, and that of some kinds nothing but metadata is asked for.
fn check(lists: &[Asked]) {
    for asked in lists {
        let of_cluster = ["nodes", "priorityclasses"].contains(&asked.resource.as_str());
        assert!(asked.limit() <= if of_cluster { PAGE_OF_CLUSTER } else { PAGE }, "{asked:?}");
        let only_metadata = ["services", "persistentvolumeclaims", "rolebindings"].contains(&asked.resource.as_str());
        assert_eq!(asked.accept.contains("as=PartialObjectMetadataList"), only_metadata, "{asked:?}");
    }
}

#[tokio::test]
async fn objects_of_one_jobset_are_listed_in_small_pages() {
    let (client, lists) = client().await;
    let key = Key { namespace: "ml".to_owned(), name: "train".to_owned() };
    let listed = list(&client, &key).await.unwrap();
    let of = |kind: Kind| {
        let is_one = |event: &&WatchEvent| matches!(event, WatchEvent::Put { view, .. } if view.kind() == kind);
        listed.iter().filter(is_one).count()
    };
    let kinds = [Kind::JobSet, Kind::Job, Kind::Pod, Kind::Service, Kind::Claim, Kind::RoleBinding];
    assert_eq!(kinds.map(of), [3; 6]);
    let lists = lists.lock().unwrap();
    assert_eq!(lists.len(), 18);
    check(&lists);
}

#[tokio::test]
async fn all_objects_are_listed_in_small_pages() {
    let (client, lists) = client().await;
    let mut events = feed(&client, None);
    let mut complete = 0;
    while complete < 9 {
        complete += usize::from(matches!(events.next().await, Some(WatchEvent::ListingEnded(_))));
    }
    let lists: Vec<Asked> =
        lists.lock().unwrap().iter().filter(|it| !it.query.contains("watch=true")).cloned().collect();
    assert_eq!(lists.len(), 27, "{lists:?}");
    check(&lists);
}

#[test]
fn page_of_largest_objects_takes_some_hundred_megabytes() {
    // etcd takes no larger request, and the client copies the text of an answer once.
    let (largest, copies) = (3 << 19, 2);
    assert!(PAGE * largest * copies <= 101 << 20);
}
