//! Reads the controller's Events about restarts.

use jobset_api::{event, labels};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;

const REPORTER: &str = "jobset-controller";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartStep {
    Began,
    /// In-place restart: the barrier is lifted.
    Lifted,
    /// All Jobs are ready.
    Done,
}

/// An Event about a restart. Old controllers do not write the annotations with the numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct RestartEvent {
    pub(super) step: RestartStep,
    pub(super) at: Timestamp,
    /// `status.groupRestarts` at the Event, which is the number of the restart.
    pub(super) number: Option<i32>,
    pub(super) counted: Option<i32>,
    pub(super) synced: Option<i32>,
    /// Time of the first failure.
    pub(super) failed_at: Option<Timestamp>,
    pub(super) message: String,
}

impl RestartEvent {
    /// Reads an Event; none if it is not about a restart.
    pub fn of(event: &Event) -> Option<Self> {
        if event.reporting_controller.as_deref() != Some(REPORTER) {
            return None;
        }
        let step = match event.reason.as_deref()? {
            event::RESTARTING => RestartStep::Began,
            event::BARRIER_LIFTED => RestartStep::Lifted,
            event::RESTARTED => RestartStep::Done,
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
