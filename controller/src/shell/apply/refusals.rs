//! What was refused in a pass, and is not sent again in the same pass.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::Done;
use crate::engine::Request;
use crate::shell::error::Error;

/// The shared requests that were refused in a pass. Of those who share one, only they are refused who are under way when
/// the first answer comes.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashSet<Request>>);

impl Refusals {
    /// Makes a request, unless the one that it shares was refused.
    pub(super) async fn unless_refused<F>(
        &self,
        shared: Option<&Request>,
        make: impl FnOnce() -> F,
    ) -> Result<Done, Error>
    where
        F: Future<Output = Result<Done, Error>>,
    {
        let Some(shared) = shared else { return make().await };
        if self.known(|refused| refused.contains(shared)) {
            return Ok(Done::Unsent);
        }
        let answer = make().await;
        if answer.as_ref().is_err_and(Error::refuses_jobs) {
            self.known(|refused| refused.insert(shared.clone()));
        }
        answer
    }

    fn known<T>(&self, look: impl FnOnce(&mut HashSet<Request>) -> T) -> T {
        // Whoever panicked held no half-done work.
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::stream::{self, StreamExt};
    use kube::core::Status;

    use super::*;
    use crate::engine::Key;
    use crate::shell::apply::NOTHING;

    fn refused() -> Error {
        let job = Key { namespace: "ml".to_owned(), name: "train-w-0".to_owned() };
        Error::CreateJob(job, kube::Error::Api(Status::failure("no containers", "").with_code(422).boxed()))
    }

    /// How many of a hundred requests of this kind are sent, ten at a time.
    async fn sent(refusals: &Refusals, shared: Option<Request>, answer: impl Fn() -> Result<Done, Error>) -> usize {
        let sent = Cell::new(0);
        let make = || async {
            sent.set(sent.get() + 1);
            tokio::task::yield_now().await;
            answer()
        };
        let requests = stream::iter((0..100).map(|_| refusals.unless_refused(shared.as_ref(), make)));
        requests.buffered(10).for_each(|_| async {}).await;
        sent.get()
    }

    #[tokio::test]
    async fn only_what_is_under_way_is_refused_with_the_first() {
        let (refusals, jobs) = (Refusals::default(), |group: &str| Some(Request::Jobs(group.to_owned())));
        assert_eq!(sent(&refusals, jobs("w"), || Err(refused())).await, 10);
        assert_eq!(sent(&refusals, jobs("driver"), || Ok(NOTHING)).await, 100);
        assert_eq!(sent(&refusals, None, || Err(refused())).await, 100);
    }
}
