//! Large JobSets that cannot be read, through the API server; and probes while every thread that reviews is busy.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

use crate::api_server::{good, refusal};
use crate::cluster::{LIMIT, Plane};
use crate::overload::unreadable;

const FLOOD: usize = 20;
const FLOOD_LIMIT: Duration = LIMIT.saturating_mul(4);

/// Few enough: for 33,000 of them in each of the flood, the API server needs 5 GB of memory, and longer than it gives a request.
const VARIABLES: usize = 1_000;

/// The schema refuses them, after the webhook has let them through. While they keep coming, it answers everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_unreadable_jobsets_are_rejected_and_delay_nobody() -> Result<()> {
    let plane = Plane::start().await?;
    let (small, large) = (good("small"), unreadable(good("large"), VARIABLES));
    let replica = plane.admission().await?;
    let refused = AtomicUsize::new(0);
    let others = async {
        while refused.load(Relaxed) < FLOOD {
            let begin = Instant::now();
            plane.dry_run(&small).await.context("beside the flood")?;
            println!("a JobSet beside {FLOOD} unreadable ones: {} ms", begin.elapsed().as_millis());
        }
        anyhow::Ok(())
    };
    tokio::select! {
        _ = join_all((0..FLOOD).map(|_| ask_again_and_again(&plane, &large, &refused))) => {}
        admitted = timeout(FLOOD_LIMIT, others) => admitted.context("too few of the flood were refused")??,
    }
    plane.end(replica).await
}

/// Asks for a JobSet as soon as it was refused. Counts the refusals by the schema.
async fn ask_again_and_again(plane: &Plane, jobset: &Value, refused: &AtomicUsize) -> Infallible {
    loop {
        let status = refusal(plane.dry_run(jobset).await);
        if status.code == 422 {
            assert!(status.message.contains("spec.replicatedJobs[0].replicas"), "{status:?}");
            refused.fetch_add(1, Relaxed);
        } else {
            // The API server has 34 s for each, and may have spent them on the others before it asks the webhook.
            let late = status.code == 504 || status.message.contains("context deadline exceeded");
            assert!(late, "{status:?}");
        }
    }
}

/// What is at this path, asked for by this thread alone.
fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("no answer from {path}"))?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_and_metrics_are_answered_while_all_threads_are_busy() -> Result<()> {
    const THREADS: usize = 2;
    let replica = Plane::shared().await?.replica().await?;
    replica.ready().await?;
    let (done, (busy, is_busy)) = (Arc::new(Barrier::new(THREADS + 1)), channel());
    for _ in 0..THREADS {
        let (done, busy) = (Arc::clone(&done), busy.clone());
        tokio::spawn(async move {
            busy.send(()).ok();
            done.wait();
        });
    }
    for _ in 0..THREADS {
        is_busy.recv_timeout(LIMIT).context("a thread is not busy")?;
    }
    // This is no thread of the runtime, which does nothing now.
    let answers = [(replica.health, "/healthz"), (replica.health, "/readyz"), (replica.metrics, "/metrics")];
    let answers = answers.map(|(address, path)| get(address, path));
    done.wait();
    for answer in answers {
        let answer = answer?;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    replica.stop().await
}
