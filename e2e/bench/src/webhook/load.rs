//! The load: reviews sent one after the other, or at a rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::{Request, header};
use kube::Client;
use kube::client::Body;

use super::review::Review;

/// Longest wait for one answer: far beyond what API servers wait.
const LIMIT: Duration = Duration::from_mins(1);

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
        let request = Request::post(self.review.webhook.path())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(self.review.body.clone()))
            .context("not a request")?;
        let answer = async {
            let response = self.clients[connection % self.clients.len()].send(request).await?;
            let status = response.status();
            let body = response.into_body().collect_bytes().await?;
            ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
            self.review.check(&body)
        };
        let answered = tokio::time::timeout(LIMIT, answer).await.context("a review was not answered in time")?;
        answered.context("a review was not answered as it is to be")
    }
}

/// Sends so many reviews in all, on each connection one after the other.
///
/// # Errors
/// If one is not answered, or answered wrongly.
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

/// Sends reviews at a rate, whether or not earlier ones are answered, and gives how long each took: from the instant at
/// which it was to be sent, so that what waits behind a slow one counts as slow.
///
/// # Errors
/// If one is not answered, or answered wrongly.
pub(super) async fn paced(target: &Target, per_second: u32, time: Duration) -> Result<Vec<Duration>> {
    let period = Duration::from_secs(1) / per_second;
    let count = u32::try_from(time.as_nanos() / period.as_nanos()).context("too long")?;
    let (runtime, target) = (tokio::runtime::Handle::current(), target.clone());
    // A thread of its own: the runtime's timer is no finer than a millisecond.
    let pace = move || {
        let start = Instant::now();
        let send = |index: u32| {
            let due = start + period * index;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let target = target.clone();
            runtime.spawn(async move { target.ask(index as usize).await.map(|()| due.elapsed()) })
        };
        (0..count).map(send).collect::<Vec<_>>()
    };
    let answers = tokio::task::spawn_blocking(pace).await.context("sending was aborted")?;
    let answers = try_join_all(answers).await.context("a review was aborted")?;
    answers.into_iter().collect()
}

/// The smallest time within which this share of all is; zero if there are none.
pub(super) fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let within = |count: usize| super::number(count) >= share * super::number(sorted.len());
    (1..=sorted.len()).find(|count| within(*count)).map_or(Duration::ZERO, |count| sorted[count - 1])
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(0, 0.99, 0)]
    #[case::one(1, 0.5, 1)]
    #[case::ninety_nine_of_a_hundred(100, 0.99, 99)]
    #[case::one_of_ten_is_beyond(10, 0.99, 10)]
    #[case::half(100, 0.5, 50)]
    #[case::all(100, 1.0, 100)]
    fn percentile_is_a_time_that_was_seen(#[case] times: u64, #[case] share: f64, #[case] wanted: u64) {
        let times: Vec<Duration> = (1..=times).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, share), Duration::from_millis(wanted));
    }
}
