//! Namespaces take turns: whatever one of them sends, and however much, the review of another one is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt as _, Full};
use hyper::Method;
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jobset_harness::wait;
use jobset_webhook::serve::VALIDATE_PATH;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{JSON, request};
use crate::overload::unreadable;
use crate::server::{LIMIT, Server, jobset, review, with};

const FLOOD: usize = 200;
/// Reviews of the flood that may be answered before that of another namespace: far more than are computed at once.
const FEW: usize = 10;

/// The review of a JobSet in this namespace.
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
    let mut review = review_in("flood", &heavy(number, 0));
    review["request"]["operation"] = json!("UPDATE");
    review["request"]["oldObject"] = heavy(number + 1, 0);
    review
}

/// Nobody can read it, so it is read with care.
fn unread(_: usize) -> Value {
    review_in("flood", &unreadable(jobset(), 10_000))
}

/// With a name that is too long for a namespace, or not.
fn without_namespace(number: usize) -> Value {
    review_in(&"flood".repeat(1 + number % 2 * 20), &heavy(number, 0))
}

/// Reviews that are on their way, over as few connections as they fit on.
struct Flood {
    _answers: JoinSet<()>,
    answered: Arc<AtomicUsize>,
}

impl Flood {
    const STREAMS: usize = 100;

    async fn send(server: &Server, count: usize, review: impl Fn(usize) -> Value) -> Self {
        let (mut answers, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for first in (0..count).step_by(Self::STREAMS) {
            let sender = connected(server).await;
            for number in first..count.min(first + Self::STREAMS) {
                let (body, mut sender, answered) = (review(number).to_string(), sender.clone(), Arc::clone(&answered));
                answers.spawn(async move {
                    if sender.send_request(request(Method::POST, VALIDATE_PATH, JSON, body)).await.is_ok() {
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

    /// Waits until the first of them is answered, which then is true of few.
    async fn has_begun(&self) {
        let begun = async || Ok((self.answered() > 0).then_some(()));
        wait::until(LIMIT * 3, "the first answer", begun).await.unwrap();
    }
}

async fn connected(server: &Server) -> SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(server.client.connect().await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The review of a JobSet of 40 kB in a namespace of its own is admitted.
async fn ordinary_is_admitted(sender: &mut SendRequest<Full<Bytes>>) {
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
#[case::created(created)]
#[case::updated(updated)]
#[case::unreadable(unread)]
#[case::without_namespace(without_namespace)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_review_beside_heavy_flood_waits_for_few(#[case] of_flood: fn(usize) -> Value) {
    let server = Server::with(&["--review-wait=10m", "--max-body-memory=512"]).await;
    let mut other = connected(&server).await;
    ordinary_is_admitted(&mut other).await;
    let flood = Flood::send(&server, FLOOD, of_flood).await;
    flood.has_begun().await;
    let before = flood.answered();
    ordinary_is_admitted(&mut other).await;
    let ahead = flood.answered() - before;
    assert!(ahead <= FEW, "{ahead} of {FLOOD} were answered first");
    // Nobody waits for the rest, so none of it is computed.
    drop(flood);
    server.is_unharmed().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_review_beside_bodies_that_fill_memory_is_admitted() {
    const ORDINARY: usize = 40;
    let server = Server::with(&["--review-wait=10m", "--max-body-memory=8"]).await;
    let mut other = connected(&server).await;
    // Of a megabyte, and small enough for what these leave.
    let length = |number: usize| if number.is_multiple_of(4) { 3800 } else { 100 };
    let flood = Flood::send(&server, FLOOD, |number| review_in("flood", &heavy(number, length(number)))).await;
    // Those for which there is no memory are told to try again.
    flood.has_begun().await;
    for _ in 0..ORDINARY {
        ordinary_is_admitted(&mut other).await;
    }
    drop(flood);
    server.stop().await;
}
