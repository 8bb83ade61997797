//! Namespaces take turns: whatever one of them sends, and however much, the review of another one is answered.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use hyper::Method;
use jobset_harness::wait;
use jobset_webhook::jobset::Terms;
use jobset_webhook::serve::{MUTATE_PATH, POD_PATH, VALIDATE_PATH, router};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{JSON, Sender, http2, request};
use crate::overload::unreadable;
use crate::server::{LIMIT, Server, jobset, pods_without_cluster, review, with};

const FLOOD: usize = 200;
/// Reviews of the flood that may be answered before that of another namespace: more than are computed at once, and far fewer than
/// there are.
const FEW: usize = 10;
const API_SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn review_in(namespace: &str, object: &Value) -> Value {
    let mut review = review(object);
    review["request"]["namespace"] = json!(namespace);
    review
}

/// A JobSet with 256 patterns of this length, each of which takes long to compile.
fn heavy(number: usize, length: usize) -> Value {
    let pattern = |index: usize| {
        let pattern = format!(r"{number}x{index}(\pL{{20}})");
        format!("{pattern}{}", "y".repeat(length.saturating_sub(pattern.len())))
    };
    let patterns: Vec<_> = (0..256).map(pattern).collect();
    let rule = json!({ "name": "heavy", "action": "FailJobSet", "onJobFailureMessagePatterns": patterns });
    with("/spec/failurePolicy", json!({ "restartStrategy": "InPlaceRestart", "maxRestarts": 3, "rules": [rule] }))
}

fn created(number: usize) -> Value {
    review_in("flood", &heavy(number, 0))
}

fn updated(number: usize) -> Value {
    let mut review = created(number);
    review["request"]["operation"] = json!("UPDATE");
    review["request"]["oldObject"] = heavy(number + 1, 0);
    review
}

fn deleted(number: usize) -> Value {
    let mut review = review_in("flood", &Value::Null);
    review["request"]["operation"] = json!("DELETE");
    review["request"]["oldObject"] = large(number);
    review
}

/// A JobSet with so many variables that it takes long to read.
fn large(number: usize) -> Value {
    let variables = (0..10_000).map(|index| json!({ "name": format!("V{index}X{number}") }));
    let mut large = jobset();
    large["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"] =
        variables.collect();
    large
}

/// Of which one field cannot be read, so that it is read with care.
fn unread(_: usize) -> Value {
    review_in("flood", &unreadable(jobset(), 1_000))
}

/// With a name that is too long for a namespace, or with that of the others.
fn misnamed(number: usize) -> Value {
    review_in(&"other".repeat(1 + number % 2 * 20), &heavy(number, 0))
}

/// A Pod that leads, and that takes long to read and to copy.
fn pod(number: usize) -> Value {
    let variables = large(number)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"].clone();
    let labels = json!({ "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/job-key": "k" });
    let annotations = json!({
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack", "batch.kubernetes.io/job-completion-index": "0" });
    review_in(
        "flood",
        &json!({ "apiVersion": "v1", "kind": "Pod", "spec": variables,
        "metadata": { "name": "p", "labels": labels, "annotations": annotations } }),
    )
}

/// Reviews that are on their way, over as few connections as they fit on.
struct Flood {
    _answers: JoinSet<()>,
    answered: Arc<AtomicUsize>,
}

impl Flood {
    const STREAMS: usize = 100;

    async fn send(server: &Server, from: Ipv4Addr, path: &'static str, reviews: impl Iterator<Item = Value>) -> Self {
        let (mut answers, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        let reviews: Vec<_> = reviews.map(|review| review.to_string()).collect();
        for reviews in reviews.chunks(Self::STREAMS) {
            let sender = connected(server, from).await;
            for review in reviews {
                let (mut sender, answered) = (sender.clone(), Arc::clone(&answered));
                let review = request(Method::POST, path, JSON, review.clone());
                answers.spawn(async move {
                    if sender.send_request(review).await.is_ok() {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        Self { _answers: answers, answered }
    }

    fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    async fn has_begun(&self) {
        let begun = async || Ok((self.answered() > 0).then_some(()));
        wait::until(LIMIT * 3, "the first answer", begun).await.unwrap();
    }
}

async fn connected(server: &Server, from: Ipv4Addr) -> Sender {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let connection = socket.connect(server.address).await.unwrap();
    http2(server.client.connect_over(connection).await.unwrap()).await.unwrap().0
}

/// The review of a JobSet of 40 kB in a namespace of its own is admitted.
async fn ordinary_is_admitted(sender: &mut Sender) {
    let mut ordinary = with("/spec", json!({}));
    ordinary["metadata"]["annotations"] = json!({ "note": "x".repeat(40_000) });
    let body = review_in("other", &ordinary).to_string();
    let answer = sender.send_request(request(Method::POST, VALIDATE_PATH, JSON, body));
    let answer = timeout(LIMIT, answer).await.expect("the other namespace has its turn").unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    assert!(status == 200 && text.contains(r#""allowed":true"#), "{status}: {text}");
}

#[rstest]
#[case::created(API_SERVER, VALIDATE_PATH, FLOOD, created)]
#[case::updated(API_SERVER, VALIDATE_PATH, FLOOD, updated)]
#[case::deleted(API_SERVER, VALIDATE_PATH, 50, deleted)]
#[case::filled_in(API_SERVER, MUTATE_PATH, 50, |number| review_in("flood", &large(number)))]
#[case::unreadable(API_SERVER, VALIDATE_PATH, 50, unread)]
#[case::pods(API_SERVER, POD_PATH, 50, pod)]
#[case::misnamed(STRANGER, VALIDATE_PATH, FLOOD, misnamed)]
#[case::of_many_namespaces(STRANGER, VALIDATE_PATH, FLOOD, |number| review_in(&format!("n{number}"), &heavy(number, 0)))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_review_beside_heavy_flood_waits_for_few(
    #[case] from: Ipv4Addr,
    #[case] path: &'static str,
    #[case] count: usize,
    #[case] of_flood: fn(usize) -> Value,
) {
    let routes = router(Terms::default()).merge(pods_without_cluster());
    let server = Server::of(routes, &["--review-wait=10m", "--max-body-memory=512"]).await;
    let mut other = connected(&server, API_SERVER).await;
    ordinary_is_admitted(&mut other).await;
    let flood = Flood::send(&server, from, path, (0..count).map(of_flood)).await;
    flood.has_begun().await;
    let before = flood.answered();
    ordinary_is_admitted(&mut other).await;
    let ahead = flood.answered() - before;
    assert!(ahead <= FEW, "{ahead} of {count} were answered first");
    // Nobody waits for the rest, so none of it is computed.
    drop(flood);
    server.stop_unharmed().await;
}

#[rstest]
#[case::of_one_namespace(API_SERVER, |_| "flood".to_owned())]
#[case::of_stranger(STRANGER, |number| format!("n{number}"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_review_beside_bodies_that_fill_memory_is_admitted(
    #[case] from: Ipv4Addr,
    #[case] namespace: fn(usize) -> String,
) {
    let server = Server::with(&["--review-wait=10m", "--max-body-memory=8"]).await;
    let mut other = connected(&server, API_SERVER).await;
    // A dozen of a megabyte, and many that fit into what these leave.
    let length = |number: usize| if number < 12 { 3800 } else { 100 };
    let reviews = (0..100).map(|number| review_in(&namespace(number), &heavy(number, length(number))));
    let flood = Flood::send(&server, from, VALIDATE_PATH, reviews).await;
    // Those for which there is no memory are told to try again.
    flood.has_begun().await;
    for _ in 0..10 {
        ordinary_is_admitted(&mut other).await;
    }
    drop(flood);
    server.stop().await;
}
