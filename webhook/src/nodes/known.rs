//! Reads JobSets at the API server: one request for many Pods.
//!
//! A Job controller creates hundreds of Pods of one JobSet within a second. The first of them has the JobSet read; the others wait for
//! the same answer, and it counts for Pods that come soon after. A read goes on when those who wait for it give up.
//!
//! A move may be missed by this time at most: the controller writes `status.avoidedNodes` before it removes the Pod, and the Job
//! controller gathers events for a second before it creates the successor.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use jobset_program::lock;
use kube::{Api, Client};
use tokio::time::{Instant, timeout};

use super::JobSetKey;
use super::avoidance::AvoidingJobSet;
use crate::party;
use crate::places::Places;
use crate::pod::refusal::ReadError;

/// For how long an answer counts, from the beginning of the request.
const COUNTS_FOR: Duration = Duration::from_millis(500);
/// How long a read may take, with the wait for its place: less than the shortest timeout that the webhook can be registered with.
const READ_LIMIT: Duration = Duration::from_millis(800);
/// Number of JobSets that are read at the same time. Namespaces take turns. An answer may have three megabytes.
const READS: usize = 16;
/// Number of JobSets of which an answer is kept. What comes beyond is read for each Pod.
const KEPT: usize = 4096;

/// What the API server says of a JobSet; `None` if there is none of this name.
pub type Found = Result<Option<Arc<AvoidingJobSet>>, Arc<ReadError>>;

#[derive(Clone)]
pub struct KnownJobSets(Arc<Inner>);

struct Inner {
    client: Client,
    reads: Arc<Places>,
    known: Mutex<HashMap<JobSetKey, Answer>>,
}

/// An answer, or the wait for it.
struct Answer {
    asked: Instant,
    found: Shared<BoxFuture<'static, Found>>,
}

impl KnownJobSets {
    pub fn new(client: Client) -> Self {
        Self(Arc::new(Inner { client, reads: Places::new(READS), known: Mutex::default() }))
    }

    /// The answer that counts, if it has come.
    pub fn now(&self, key: &JobSetKey) -> Option<Found> {
        let known = lock(&self.0.known);
        known.get(key).filter(|answer| answer.counts()).and_then(|answer| answer.found.peek().cloned())
    }

    /// The answer that counts, or a new one.
    pub async fn read(&self, key: &JobSetKey) -> Found {
        let found = self.answer(key);
        found.await
    }

    fn answer(&self, key: &JobSetKey) -> Shared<BoxFuture<'static, Found>> {
        let mut known = lock(&self.0.known);
        known.retain(|_, answer| answer.counts());
        if let Some(answer) = known.get(key) {
            return answer.found.clone();
        }
        let asked = tokio::spawn(self.clone().ask(key.clone()));
        let found = asked.map(|found| found.unwrap_or_else(|_| Err(Arc::new(ReadError::Late(READ_LIMIT)))));
        let found = found.boxed().shared();
        if known.len() < KEPT {
            known.insert(key.clone(), Answer { asked: Instant::now(), found: found.clone() });
        }
        found
    }

    /// Nobody's name is in the answer, nor in the path of the request: [`super::jobset`] has seen to it that both are names.
    async fn ask(self, key: JobSetKey) -> Found {
        let jobsets: Api<AvoidingJobSet> = Api::namespaced(self.0.client.clone(), &key.namespace);
        let read = async {
            let _place = self.0.reads.take(party::of_namespace(&key.namespace)).await;
            jobsets.get_opt(&key.name).await
        };
        match timeout(READ_LIMIT, read).await {
            Ok(found) => found.map(|jobset| jobset.map(Arc::new)).map_err(|error| Arc::new(ReadError::Failed(error))),
            Err(_) => Err(Arc::new(ReadError::Late(READ_LIMIT))),
        }
    }
}

impl Answer {
    fn counts(&self) -> bool {
        self.asked.elapsed() < COUNTS_FOR
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Request, Response};
    use futures::future::join_all;
    use kube::client::Body;
    use tower::BoxError;

    use super::*;

    /// How many requests are under way, and how many were at most.
    #[derive(Default)]
    struct UnderWay {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    /// A request that nobody answers.
    struct Unanswered(Arc<UnderWay>);

    impl Unanswered {
        fn begin(under_way: &Arc<UnderWay>) -> Self {
            let now = under_way.now.fetch_add(1, Ordering::Relaxed) + 1;
            under_way.most.fetch_max(now, Ordering::Relaxed);
            Self(Arc::clone(under_way))
        }
    }

    impl Drop for Unanswered {
        fn drop(&mut self) {
            self.0.now.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// JobSets at an API server that never answers.
    fn unanswered() -> (KnownJobSets, Arc<UnderWay>) {
        let under_way = Arc::new(UnderWay::default());
        let counted = Arc::clone(&under_way);
        let service = tower::service_fn(move |_: Request<Body>| {
            let request = Unanswered::begin(&counted);
            async move {
                let _request = request;
                std::future::pending::<Result<Response<Body>, BoxError>>().await
            }
        });
        (KnownJobSets::new(Client::new(service, "default")), under_way)
    }

    fn key(namespace: &str, name: &str) -> JobSetKey {
        JobSetKey { namespace: namespace.into(), name: name.into() }
    }

    #[tokio::test]
    async fn jobsets_are_read_sixteen_at_once() {
        let (known, under_way) = unanswered();
        let keys: Vec<_> = (0..40).map(|index| key(&format!("n{index}"), "train")).collect();
        let found = join_all(keys.iter().map(|key| known.read(key))).await;
        assert!(found.iter().all(|found| matches!(found.as_ref().map_err(|error| &**error), Err(ReadError::Late(_)))));
        assert_eq!(under_way.most.load(Ordering::Relaxed), READS);
    }

    #[tokio::test]
    async fn namespace_alone_reads_half_as_many() {
        let (known, under_way) = unanswered();
        let keys: Vec<_> = (0..40).map(|index| key("ml", &format!("train-{index}"))).collect();
        join_all(keys.iter().map(|key| known.read(key))).await;
        assert_eq!(under_way.most.load(Ordering::Relaxed), READS / 2);
    }

    #[tokio::test]
    async fn read_whose_asker_gives_up_answers_next() {
        let (known, under_way) = unanswered();
        let train = key("ml", "train");
        let mut asked = Box::pin(known.read(&train));
        assert!(futures::poll!(&mut asked).is_pending());
        drop(asked);
        assert!(known.now(&train).is_none());
        assert!(known.read(&train).await.is_err());
        assert_eq!(under_way.most.load(Ordering::Relaxed), 1);
    }
}
