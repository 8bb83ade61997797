//! Requests that have no answer yet, after their works have ended.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use jobset_api::JobSet;
use jobset_engine::{Part, Request, RequestId};
use jobset_store::Key;
use tokio_util::sync::CancellationToken;

use super::{Answers, Done};
use crate::shell::error::ApplyError;

/// The slow requests of one work.
#[derive(Default)]
pub(in crate::shell) struct SlowRequests(Vec<SlowRequest>);

struct SlowRequest {
    part: Part,
    answers: BoxFuture<'static, Answers>,
    /// The answers if it is cut short.
    cut: Answers,
}

impl SlowRequests {
    /// An action that is slow. `shared` is the request that it shares with others.
    pub(super) fn push(
        &mut self,
        own: Request,
        shared: Option<Request>,
        answer: BoxFuture<'static, Result<Done, ApplyError>>,
    ) {
        let mut cut = Answers::default();
        cut.take_late(own.clone(), shared.clone(), Err(ApplyError::CutShort(own.name().to_owned())));
        let part = Part::Action(own.clone());
        let answers = async move {
            let mut answers = Answers::default();
            answers.take_late(own, shared, answer.await);
            answers
        };
        self.0.push(SlowRequest { part, answers: answers.boxed(), cut });
    }

    /// A status write that is slow.
    pub(super) fn push_status(&mut self, name: &str, answer: BoxFuture<'static, Result<JobSet, ApplyError>>) {
        let mut cut = Answers::default();
        cut.take_status(Err(ApplyError::CutShort(name.to_owned())));
        let answers = async move {
            let mut answers = Answers::default();
            answers.take_status(answer.await);
            answers
        };
        self.0.push(SlowRequest { part: Part::Status, answers: answers.boxed(), cut });
    }

    /// What they are.
    pub(in crate::shell) fn parts(&self) -> Vec<Part> {
        self.0.iter().map(|request| request.part.clone()).collect()
    }
}

/// The answer to a slow request.
pub(in crate::shell) struct LateAnswer {
    pub(in crate::shell) key: Key,
    pub(in crate::shell) id: RequestId,
    pub(in crate::shell) jobset: Arc<JobSet>,
    pub(in crate::shell) answers: Answers,
}

/// The slow requests of all works. Dropped, they are not waited for: whether they are carried out, nobody knows.
#[derive(Default)]
pub(in crate::shell) struct LateAnswers {
    pending: FuturesUnordered<BoxFuture<'static, LateAnswer>>,
    cuts: HashMap<RequestId, CancellationToken>,
}

impl LateAnswers {
    /// Waits for the answers to these requests, too.
    pub(in crate::shell) fn extend(&mut self, key: &Key, work: u64, jobset: &Arc<JobSet>, slow: SlowRequests) {
        for SlowRequest { part, answers, cut } in slow.0 {
            let (key, id, jobset) = (key.clone(), RequestId { work, part }, Arc::clone(jobset));
            let token = CancellationToken::new();
            self.cuts.insert(id.clone(), token.clone());
            self.pending.push(Box::pin(async move {
                let answers = token.run_until_cancelled(answers).await.unwrap_or(cut);
                LateAnswer { key, id, jobset, answers }
            }));
        }
    }

    /// Cuts a request short. Its answer says that it has none.
    pub(in crate::shell) fn cut(&self, id: &RequestId) {
        if let Some(token) = self.cuts.get(id) {
            token.cancel();
        }
    }

    /// The next answer; `None` if no request is slow.
    pub(in crate::shell) async fn next(&mut self) -> Option<LateAnswer> {
        let late = self.pending.next().await?;
        self.cuts.remove(&late.id);
        Some(late)
    }
}
