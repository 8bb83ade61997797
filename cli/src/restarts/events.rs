//! What an Event of the controller tells of a restart.

use jobset_api::labels;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;

/// Who reports the Events that are read.
const REPORTER: &str = "jobset-controller";

/// What an Event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The restart begins.
    Began,
    /// In place: the workers may run.
    Lifted,
    /// All Jobs are ready again.
    Done,
}

/// One Event about a restart. Controllers before the annotations have none of the numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub(super) step: Step,
    pub(super) at: Timestamp,
    /// `status.groupRestarts` as it was written with it: the number of the restart.
    pub(super) number: Option<i32>,
    /// `status.restartsCountTowardsMax`.
    pub(super) counted: Option<i32>,
    /// `status.syncedEpoch`.
    pub(super) synced: Option<i32>,
    /// The first failure.
    pub(super) failed_at: Option<Timestamp>,
    pub(super) message: String,
}

impl Told {
    /// What the Event tells, if it is one about a restart.
    pub fn of(event: &Event) -> Option<Self> {
        if event.reporting_controller.as_deref() != Some(REPORTER) {
            return None;
        }
        let step = match event.reason.as_deref()? {
            "Restarting" => Step::Began,
            "BarrierLifted" => Step::Lifted,
            "Restarted" => Step::Done,
            _ => return None,
        };
        let annotation = |key: &str| event.metadata.annotations.as_ref()?.get(key);
        let number = |key: &str| annotation(key).and_then(|value| value.parse().ok());
        let time = event.event_time.as_ref().map(|time| time.0);
        let at = time.or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))?;
        Some(Self {
            step,
            at,
            number: number(labels::EVENT_GROUP_RESTARTS),
            counted: number(labels::EVENT_RESTARTS_COUNT_TOWARDS_MAX),
            synced: number(labels::EVENT_SYNCED_EPOCH),
            failed_at: annotation(labels::EVENT_FAILED_AT).and_then(|value| value.parse().ok()),
            message: event.note.clone().unwrap_or_default(),
        })
    }
}
