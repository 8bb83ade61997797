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
        let (part, name) = (Part::Action(own.clone()), own.name().to_owned());
        let take = move |answers: &mut Answers, answer| answers.take_late(own.clone(), shared.clone(), answer);
        self.push_part(part, name, answer, take);
    }

    pub(super) fn push_status(&mut self, name: &str, answer: BoxFuture<'static, Result<JobSet, ApplyError>>) {
        self.push_part(Part::Status, name.to_owned(), answer, Answers::take_status);
    }

    fn push_part<T: 'static>(
        &mut self,
        part: Part,
        name: String,
        answer: BoxFuture<'static, Result<T, ApplyError>>,
        take: impl Fn(&mut Answers, Result<T, ApplyError>) + Send + 'static,
    ) {
        let answers_to = move |answer| {
            let mut answers = Answers::default();
            take(&mut answers, answer);
            answers
        };
        let cut = answers_to(Err(ApplyError::CutShort(name)));
        self.0.push(SlowRequest { part, answers: answer.map(answers_to).boxed(), cut });
    }

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
