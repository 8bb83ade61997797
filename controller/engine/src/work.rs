//! What the engine asks of the shell, and what the shell answers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use jobset_api::{JobSet, JobSetStatus};
use jobset_rules::{Action, Fact, Note};
use jobset_store::{Key, PodWarning, Versions};
use k8s_openapi::jiff::Timestamp;

use crate::Urgency;
use crate::progress::UnderWay;
use crate::refusals::Request;
use crate::slow::Part;

/// A point in time by both clocks: the one that cannot be set, for waits, and the one of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For waits.
    pub instant: Instant,
    pub time: Timestamp,
}

impl Now {
    /// The present time.
    pub fn read() -> Self {
        Self { instant: Instant::now(), time: Timestamp::now() }
    }

    /// The time at a later instant, by a clock that is not set in between.
    pub fn after(self, later: Instant) -> Timestamp {
        self.time.checked_add(later.saturating_duration_since(self.instant)).unwrap_or(Timestamp::MAX)
    }
}

/// Requests for one JobSet. The shell sends them in the order of a [`Plan`](jobset_rules::Plan), and calls `Engine::finish` when
/// each of them is answered or slow.
#[derive(Debug)]
pub struct Work {
    /// The JobSet.
    pub key: Key,
    /// Number of the work. An answer with another number than the work under way is ignored.
    pub number: u64,
    /// The observed JobSet, on which the requests are based.
    pub jobset: Arc<JobSet>,
    /// The actions, at most [`super::SLICE`].
    pub actions: Vec<Action>,
    /// The status to write, if it changes.
    pub status: Option<JobSetStatus>,
    /// The urgency of the status write. What restarts wait for is urgent also in bulk work; counts for people are not.
    pub status_urgency: Urgency,
    /// Bulk work takes only a part of the connections and of the client's rate limit.
    pub urgency: Urgency,
    /// What an earlier status write has caused whose answer was lost.
    pub confirmed: Option<Confirmed>,
}

impl Work {
    /// A work of these actions, without a status.
    pub(super) fn new(key: &Key, under_way: &UnderWay, jobset: Arc<JobSet>, actions: Vec<Action>) -> Self {
        let (number, urgency) = (under_way.number, under_way.urgency);
        let (key, status_urgency) = (key.clone(), urgency);
        Self { key, number, jobset, actions, status: None, status_urgency, urgency, confirmed: None }
    }
}

/// The consequences of a written status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Confirmed {
    pub facts: Vec<Fact>,
    /// Events to create or to count.
    pub events: Vec<EventWrite>,
}

/// One write of an Event on a JobSet.
#[derive(Clone, Debug, PartialEq)]
pub enum EventWrite {
    /// Create an Event of this name. An Event of the same name is the same Event.
    Create { name: String, note: Note, stored: Stored },
    /// Count another occurrence in the series of an Event.
    Repeat {
        name: String,
        /// How often it has occurred.
        times: u32,
    },
    /// Send no Event: the budget of the JobSet is spent.
    Drop { note: Note },
}

/// The numbers of the status that programs read in the annotations of an Event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stored {
    /// `status.groupRestarts`.
    pub group_restarts: i32,
    /// `status.restartsCountTowardsMax`.
    pub counted: i32,
    /// `status.syncedEpoch`.
    pub epoch: i32,
}

impl Stored {
    pub fn of(status: &JobSetStatus) -> Self {
        Self {
            group_restarts: status.group_restarts,
            counted: status.restarts_count_towards_max,
            epoch: status.synced_epoch,
        }
    }
}

/// How requests of a [`Work`] ended. A request that is in none of the fields was not sent.
#[derive(Debug, Default)]
pub struct Outcome {
    pub written: Versions,
    /// The requests that failed, in the order of the actions.
    pub failures: Vec<(Request, RequestError)>,
    /// The requests whose object exists and belongs to another owner, which serves as well.
    pub provided: Vec<Request>,
    pub warning: Option<PodWarning>,
    pub accepted: HashSet<Request>,
    /// Whether the status was written, `false` if there was none to write; `None` if this is not about the status.
    pub status: Option<Result<bool, RequestError>>,
    /// The JobSet with the status that was written.
    pub stored: Option<JobSet>,
    /// The requests that are slow. `Engine::answer` takes each of their answers in.
    pub unanswered: Vec<Part>,
}

/// A failed request, as far as it decides what happens next.
#[derive(Clone, Debug)]
pub struct RequestError {
    /// What the failure means for the next reconciliation.
    pub failure: Failure,
    /// What the user has to know.
    pub note: Option<Note>,
}

/// What a failure means for the next reconciliation, the least hindrance first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// The API server refuses the object, or its name is taken. Trying again alone does not help.
    Refused,
    /// The request was based on an outdated state. The next event corrects it.
    Outdated,
    /// The API server did not answer, or could not carry out the request. The request may have been carried out.
    Transient,
}

/// What follows from an [`Outcome`], besides the next reconciliation.
#[derive(Debug, Default)]
pub struct Effects {
    /// The consequences of the status write, if its answer says that it was carried out.
    pub confirmed: Confirmed,
    /// The worst failure; `None` if everything was carried out.
    pub failure: Option<Failure>,
    pub began: Option<Instant>,
}
