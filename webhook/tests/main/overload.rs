//! More than can be done at once, and what goes wrong inside: an answer that says so, and the next request is served.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use jobset_harness::wait;
use jobset_webhook::serve::VALIDATE_PATH;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::abuse::{send, until_closed};
use crate::api_server::good;
use crate::client::{Client, Http, JSON, authority};
use crate::cluster::Plane;
use crate::server::{LIMIT, Server, jobset, review};

/// What is asked for, and what may be answered.
struct Turns {
    asked: Semaphore,
    given: Semaphore,
}

fn turns() -> Arc<Turns> {
    Arc::new(Turns { asked: Semaphore::new(0), given: Semaphore::new(0) })
}

/// Routes that answer when they are allowed to, and one that panics.
fn routes(turns: Arc<Turns>) -> Router {
    let slow = async move |_: Bytes| {
        turns.asked.add_permits(1);
        turns.given.acquire().await.unwrap().forget();
        "done\n"
    };
    let panics = async || -> &'static str { panic!("out of range for {}", "somebody") };
    Router::new().route("/slow", post(slow)).route("/panics", post(panics)).route("/good", post(async || "good\n"))
}

#[tokio::test]
async fn review_without_turn_is_told_to_retry() {
    let turns = turns();
    let server = Server::of(routes(Arc::clone(&turns)), &["--max-concurrent-reviews=1", "--review-wait=100ms"]).await;
    let client = server.client.clone();
    let first = tokio::spawn(async move { client.post("/slow", JSON, "").await });
    let refused = wait::until(LIMIT, "a refusal", async || {
        let answer = server.client.post("/good", JSON, "").await;
        Ok((answer.status == 503).then_some(answer))
    });
    let refused = refused.await.unwrap();
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(
        refused.text(),
        "too many reviews at once: 1, and the turn of this one did not come within 100ms; try again\n"
    );
    turns.given.add_permits(1);
    assert_eq!(first.await.unwrap().text(), "done\n");
    assert_eq!(server.client.post("/good", JSON, "").await.text(), "good\n");
    server.stop().await;
}

/// Makes a JobSet one of nearly 1 MiB, of so many variables, in which one field is not what it should be.
pub(crate) fn unreadable(mut jobset: Value, variables: usize) -> Value {
    let value = "x".repeat((950_000 / variables).saturating_sub("{'name':'V12345','value':''},".len()).max(1));
    let variable = |number| json!({ "name": format!("V{number}"), "value": value });
    let worker = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0];
    worker["env"] = (0..variables).map(variable).collect();
    jobset["spec"]["replicatedJobs"][0]["replicas"] = json!("three");
    jobset
}

/// The service has as many threads as there are here: none of them is held up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unreadable_jobsets_delays_nobody_else() {
    const FLOOD: usize = 20;
    let server = Server::start().await;
    let body = review(&unreadable(jobset(), 33_000)).to_string();
    assert!(body.len() > 900_000 && body.len() < 1 << 20, "{}", body.len());
    let flood: JoinSet<_> = (0..FLOOD)
        .map(|_| {
            let (client, body) = (server.client.clone(), body.clone());
            async move { client.post(VALIDATE_PATH, JSON, body).await }
        })
        .collect();
    let mut flood = pin!(flood.join_all());
    let (mut answered, mut longest) = (0, Duration::ZERO);
    let refused = loop {
        let begin = Instant::now();
        tokio::select! {
            biased;
            refused = &mut flood => break refused,
            () = server.is_unharmed() => {}
        }
        (answered, longest) = (answered + 1, longest.max(begin.elapsed()));
    };
    println!("{answered} reviews beside {FLOOD} unreadable ones, the longest in {} ms", longest.as_millis());
    for answer in refused {
        assert!(answer.status == 200 && answer.text().contains("replicas"), "{answer:?}");
    }
    assert!(answered > FLOOD, "{answered}: others have waited for them");
    server.stop().await;
}

#[tokio::test]
async fn flood_of_slow_bodies_displaces_itself_alone() {
    const FLOOD: usize = 30;
    let turns = turns();
    let server = Server::of(routes(Arc::clone(&turns)), &["--max-connections=10", "--body-timeout=1m"]).await;
    let client = Client { http: Http::One, ..server.client.clone() };
    let mut begun = client.connect().await.unwrap();
    let head =
        |path: &str| format!("POST {path} HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
    let continues = async |stream: &mut (dyn AsyncRead + Unpin + Send)| {
        let mut interim = [0; 25];
        timeout(LIMIT, stream.read_exact(&mut interim)).await.unwrap().unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    };
    begun.write_all(head("/slow").as_bytes()).await.unwrap();
    continues(&mut begun).await;
    begun.write_all(b"{}").await.unwrap();
    let mut flood = Vec::new();
    for number in 0..FLOOD {
        let mut stream = client.connect().await.expect("somebody makes room");
        stream.write_all(head("/good").as_bytes()).await.unwrap();
        continues(&mut stream).await;
        stream.write_all(b"{").await.unwrap();
        flood.push(stream);
        if number % 10 == 9 {
            assert_eq!(client.post("/good", JSON, "{}").await.text(), "good\n");
        }
    }
    // All but those that have a place are closed.
    for stream in &mut flood[..FLOOD - 9] {
        until_closed(stream).await;
    }
    turns.given.add_permits(1);
    let mut answer = [0; 15];
    timeout(LIMIT, begun.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    drop((flood, begun));
    server.stop().await;
}

#[tokio::test]
async fn bodies_above_memory_are_told_to_retry() {
    let turns = turns();
    let server = Server::of(routes(Arc::clone(&turns)), &["--max-body-memory=8"]).await;
    let client = server.client.clone();
    let greedy = tokio::spawn(async move { client.post("/slow", JSON, vec![b' '; 7_900_000]).await });
    timeout(LIMIT, turns.asked.acquire()).await.unwrap().unwrap().forget();
    // For as long as it is worked on, nobody takes its memory.
    let large = vec![b' '; 600_000];
    let refused = server.client.post("/good", JSON, large.clone()).await;
    assert_eq!((refused.status.as_u16(), &refused.headers["retry-after"]), (503, &"1".parse().unwrap()));
    let reason = "too many requests at once: they and their answers fill 8 MiB (--max-body-memory); try again\n";
    assert_eq!(refused.text(), reason);
    assert_eq!(server.client.post("/good", JSON, "small").await.status, 200, "what fits is served");
    turns.given.add_permits(1);
    assert_eq!(greedy.await.unwrap().text(), "done\n");
    assert_eq!(server.client.post("/good", JSON, large).await.text(), "good\n", "the memory is back");
    server.stop().await;
}

#[tokio::test]
async fn body_in_work_keeps_memory_when_client_leaves() {
    const LENGTH: usize = 7_900_000;
    let (begun, (end, ends)) = (Arc::new(Semaphore::new(0)), std::sync::mpsc::channel::<()>());
    let (work, ends) = (Arc::clone(&begun), Arc::new(Mutex::new(ends)));
    let kept = async move |body: Bytes| {
        let (work, ends) = (Arc::clone(&work), Arc::clone(&ends));
        let work = move || {
            work.add_permits(1);
            ends.lock().unwrap().recv().unwrap();
            body.len().to_string()
        };
        tokio::task::spawn_blocking(work).await.unwrap()
    };
    let router = routes(turns()).route("/kept", post(kept));
    let server =
        Server::of(router, &["--max-body-memory=8", "--max-concurrent-reviews=1", "--review-wait=100ms"]).await;
    let mut client = Client { http: Http::One, ..server.client.clone() }.connect().await.unwrap();
    let head = format!("POST /kept HTTP/1.1\r\nhost: h\r\ncontent-length: {LENGTH}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    send(&mut client, &vec![b' '; LENGTH]).await;
    timeout(LIMIT, begun.acquire()).await.unwrap().unwrap().forget();
    drop(client);

    let good = async |length: usize| server.client.post("/good", JSON, vec![b' '; length]).await;
    let turn_is_free = async || Ok((good(1).await.status == 200).then_some(()));
    wait::until(LIMIT, "the service to see that the client is gone", turn_is_free).await.unwrap();
    let refused = good(600_000).await;
    assert!(refused.status == 503 && refused.text().contains("fill 8 MiB"), "{refused:?}");
    end.send(()).unwrap();
    let memory_is_free = async || Ok((good(600_000).await.status == 200).then_some(()));
    wait::until(LIMIT, "the memory to be back", memory_is_free).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn large_bodies_have_one_turn_and_half_the_memory() {
    let turns = turns();
    let flags = ["--max-body-memory=16", "--review-wait=100ms"];
    let server = Server::of(routes(Arc::clone(&turns)), &flags).await;
    let client = server.client.clone();
    let first = tokio::spawn(async move { client.post("/slow", JSON, vec![b' '; 6_000_000]).await });
    timeout(LIMIT, turns.asked.acquire()).await.unwrap().unwrap().forget();
    let refused = async |length: usize| {
        let answer = server.client.post("/good", JSON, vec![b' '; length]).await;
        (answer.status.as_u16(), answer.text().to_owned())
    };
    let no_turn = "reviews of over 1048576 bytes have one turn, and none ended within 100ms; try again\n";
    assert_eq!(refused(1_100_000).await, (503, no_turn.to_owned()));
    let no_memory = "too many large requests at once: their bodies fill 8388608 bytes; try again\n";
    assert_eq!(refused(2_500_000).await, (503, no_memory.to_owned()));
    assert_eq!(server.client.post("/good", JSON, vec![b' '; 1_000_000]).await.text(), "good\n", "it is not large");
    turns.given.add_permits(1);
    assert_eq!(first.await.unwrap().text(), "done\n");
    assert_eq!(server.client.post("/good", JSON, vec![b' '; 2_500_000]).await.text(), "good\n");
    server.stop().await;
}

#[tokio::test]
async fn the_api_server_tries_again_when_it_is_told_to() -> Result<()> {
    const LENGTH: usize = 8 << 20;
    let plane = Plane::start().await?;
    let replica = plane.admission_with(&["--max-body-memory=8", "--body-timeout=3s", "--displace-after=60s"]).await?;
    let client = Client { http: Http::One, ..Client::new(replica.address, authority(&plane.material().await?)) };
    let mut greedy = client.connect().await?;
    let head = format!("POST {VALIDATE_PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: {LENGTH}\r\n\r\n");
    greedy.write_all(head.as_bytes()).await?;
    greedy.write_all(&vec![b' '; LENGTH - 1]).await?;
    greedy.flush().await?;
    wait::until(LIMIT, "a refusal", async || {
        Ok((client.post(VALIDATE_PATH, JSON, "large").await.status == 503).then_some(()))
    })
    .await?;
    // Until the greedy one has had its time.
    plane.dry_run(&good("meanwhile")).await?;
    plane.end(replica).await
}

#[tokio::test]
async fn panic_is_answered_with_500_on_open_connection() {
    let server = Server::of(routes(turns()), &[]).await;
    for http in [Http::One, Http::Two] {
        let client = Client { http, ..server.client.clone() };
        let answer = client.post("/panics", JSON, "").await;
        assert_eq!((answer.status.as_u16(), answer.text()), (500, "an internal error, which is in the log\n"));
        assert_eq!(client.post("/good", JSON, "").await.text(), "good\n");
    }
    assert_eq!(server.client.post(VALIDATE_PATH, JSON, "").await.status, 404);
    server.stop().await;
}
