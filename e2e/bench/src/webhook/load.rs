//! The load: reviews sent one after the other, or at a rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::{Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use tokio::task::JoinSet;

use super::review::Review;
use crate::report::rounded;

/// Longest wait for one answer: far beyond what API servers wait.
const LIMIT: Duration = Duration::from_mins(1);
/// Pause before a review is sent again that the service has no time for.
const AGAIN: Duration = Duration::from_secs(1);

/// A review, and the connections that it is sent over.
#[derive(Clone)]
pub(super) struct Target {
    clients: Vec<Client>,
    pub(super) review: Arc<Review>,
}

impl Target {
    pub(super) fn new(clients: Vec<Client>, review: Review) -> Self {
        Self { clients, review: Arc::new(review) }
    }

    /// Sends the review once and checks the answer.
    async fn ask(&self, connection: usize) -> Result<()> {
        let (status, body) = self.send(connection).await?;
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        self.review.check(&body).context("a review has a wrong answer")
    }

    /// Sends the review until it is answered. As API servers do, it is sent again a second after each answer that says so.
    async fn ask_again(&self) -> Result<()> {
        loop {
            let (status, body) = self.send(0).await?;
            if status != StatusCode::SERVICE_UNAVAILABLE {
                ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
                return self.review.check(&body).context("a review has a wrong answer");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn send(&self, connection: usize) -> Result<(StatusCode, Vec<u8>)> {
        let request = Request::post(self.review.webhook.path())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(self.review.body.clone()))
            .context("not a request")?;
        let answer = async {
            let response = self.clients[connection % self.clients.len()].send(request).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect_bytes().await?.to_vec()))
        };
        tokio::time::timeout(LIMIT, answer).await.context("a review has no answer in time")?
    }
}

/// Sends a number of reviews: on each connection one after the other.
pub(super) async fn in_turn(target: &Target, reviews: usize) -> Result<()> {
    let count = target.clients.len();
    let one_connection = async |connection: usize| {
        for _ in (connection..reviews).step_by(count) {
            target.ask(connection).await?;
        }
        anyhow::Ok(())
    };
    try_join_all((0..count).map(one_connection)).await.map(drop)
}

/// Sends reviews at a rate, whether or not earlier ones are answered, and gives the latency of each from the instant at
/// which it was due: a review that waits behind a slow one counts as slow.
pub(super) async fn paced(target: &Target, per_second: u32, time: Duration) -> Result<Vec<Duration>> {
    let period = Duration::from_secs(1) / per_second;
    let count = u32::try_from(time.as_nanos() / period.as_nanos()).context("too long")?;
    let (runtime, target) = (tokio::runtime::Handle::current(), target.clone());
    // A thread of its own: the runtime's timer is no finer than a millisecond.
    let send = move || {
        let start = Instant::now();
        let send = |index: u32| {
            let due = start + period * index;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let target = target.clone();
            runtime.spawn(async move { target.ask(index as usize).await.map(|()| due.elapsed()) })
        };
        (0..count).map(send).collect::<Vec<_>>()
    };
    let answers = tokio::task::spawn_blocking(send).await.context("sending was aborted")?;
    let answers = try_join_all(answers).await.context("a review was aborted")?;
    answers.into_iter().collect()
}

/// Sends reviews one after the other, beside so many heavy ones that are sent again as soon as they are answered, whatever the
/// answer. Gives the latency of each of the first.
pub(super) async fn beside(target: &Target, heavy: &Target, flood: usize, time: Duration) -> Result<Vec<Duration>> {
    let mut flooding = JoinSet::new();
    for connection in 0..flood {
        let heavy = heavy.clone();
        flooding.spawn(async move { while heavy.send(connection).await.is_ok() {} });
    }
    // Until the service has begun with them.
    heavy.send(0).await?;
    let (start, mut latencies) = (Instant::now(), Vec::new());
    while latencies.is_empty() || start.elapsed() < time {
        let begin = Instant::now();
        target.ask_again().await?;
        latencies.push(begin.elapsed());
    }
    ensure!(flooding.try_join_next().is_none(), "the service does not answer heavy reviews");
    Ok(latencies)
}

/// The percentiles 50, 99 and 100 of some latencies, in milliseconds: each is a latency that was measured.
pub(super) fn percentiles(mut latencies: Vec<Duration>) -> [f64; 3] {
    latencies.sort_unstable();
    [50, 99, 100].map(|percent| {
        let rank = (latencies.len() * percent).div_ceil(100);
        let latency = rank.checked_sub(1).map_or(Duration::ZERO, |index| latencies[index]);
        rounded(latency.as_secs_f64() * 1e3, 1e3)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(0, [0.0, 0.0, 0.0])]
    #[case::one(1, [1.0, 1.0, 1.0])]
    #[case::ten(10, [5.0, 10.0, 10.0])]
    #[case::hundred(100, [50.0, 99.0, 100.0])]
    fn percentiles_are_measured_latencies(#[case] count: u64, #[case] expected: [f64; 3]) {
        let latencies = (1..=count).rev().map(Duration::from_millis).collect();
        assert_eq!(percentiles(latencies).to_vec(), expected.to_vec());
    }
}
