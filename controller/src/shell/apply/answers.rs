//! The answers to the requests of a work, as the engine and the log need them.

use jobset_api::JobSet;
use jobset_engine::{Failure, Outcome, Request};
use jobset_store::{Kind, Versions, version};

use super::{Done, SlowRequests};
use crate::shell::error::ApplyError;

/// The answers to requests of a work.
#[derive(Default)]
pub(in crate::shell) struct Answers {
    pub(in crate::shell) outcome: Outcome,
    /// Number of Pods that were released.
    pub(in crate::shell) released: u32,
    pub(in crate::shell) errors: Vec<ApplyError>,
    pub(in crate::shell) slow: SlowRequests,
}

impl Answers {
    /// Takes the answer to an action in. `shared` is the request that it shares with others.
    pub(super) fn take(&mut self, own: Request, shared: Option<Request>, answer: Result<Done, ApplyError>) {
        match answer {
            Ok(Done::Written(versions)) => {
                self.released += u32::from(shared == Some(Request::Releases) && versions != Versions::NONE);
                self.outcome.written.raise(versions);
                self.outcome.accepted.insert(own);
                self.outcome.accepted.extend(shared);
            }
            Ok(Done::Provided) => self.outcome.provided.push(own),
            Ok(Done::Warned(warning)) => {
                self.outcome.provided.push(own);
                self.outcome.warning = Some(warning);
            }
            Err(error) => {
                let refused = shared.clone().filter(|_| error.refuses_shared()).unwrap_or(own);
                self.outcome.failures.push((refused, error.reduced()));
                self.outcome.accepted.extend(shared.filter(|_| matches!(error, ApplyError::Taken { .. })));
                self.errors.push(error);
            }
        }
    }

    /// Takes the answer to a slow action in. What fails then may fail for all that share its request: the same webhook delays them.
    pub(super) fn take_late(&mut self, own: Request, shared: Option<Request>, answer: Result<Done, ApplyError>) {
        match answer {
            Err(error) if error.failure() == Failure::Transient => {
                self.outcome.failures.push((shared.unwrap_or(own), error.reduced_late()));
                self.errors.push(error);
            }
            answer => self.take(own, shared, answer),
        }
    }

    pub(super) fn take_status(&mut self, answer: Result<JobSet, ApplyError>) {
        self.outcome.status = Some(match answer {
            Ok(jobset) => {
                self.outcome.written.raise(Versions::of(Kind::JobSet, version(&jobset)));
                self.outcome.stored = Some(jobset);
                Ok(true)
            }
            Err(error) => {
                let reduced = error.reduced();
                self.errors.push(error);
                Err(reduced)
            }
        });
    }
}
