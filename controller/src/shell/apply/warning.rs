//! Reads what a Pod was warned of last: its node says in Events alone that it cannot make a sandbox, or mount a volume.

use jobset_api::agent;
use jobset_objects::last_observed;
use jobset_store::pods::shorten;
use jobset_store::{Kind, PodWarning};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Actor, Done};
use crate::shell::error::ApplyError;

/// Longest text of a warning, in bytes. Every agent receives the condition.
const LONGEST: usize = 512;
/// By how much the clock of a node may be behind.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);
/// Reason of the Event about a probe.
const UNHEALTHY: &str = "Unhealthy";
/// Reason of the Event about a Pod that had no node.
const FAILED_SCHEDULING: &str = "FailedScheduling";

impl Actor {
    /// The newest warning of the Pod since this time. What may not be read is not known.
    pub(super) async fn find_warning(&self, pod: String, uid: String, since: Timestamp) -> Result<Done, ApplyError> {
        let found = self.events_about(Kind::Pod, &pod, &uid, ",type=Warning").await?;
        let Some(found) = found else { return Ok(Done::Provided) };
        let words = newest(&found, since).map(words).unwrap_or_default();
        Ok(Done::Warned(PodWarning { pod, uid, since, words }))
    }
}

/// The newest of these warnings that may say why the Pod does not start.
fn newest(events: &[Event], since: Timestamp) -> Option<&Event> {
    let earliest = since.checked_sub(CLOCK_SKEW).unwrap_or(since);
    let of_agent = format!("{{{}}}", agent::NAME);
    let is_cause = |event: &&Event| {
        let field = event.regarding.as_ref().and_then(|it| it.field_path.as_deref()).unwrap_or_default();
        // The startup probe of an agent fails as long as the barrier is closed.
        let is_barrier = event.reason.as_deref() == Some(UNHEALTHY) && field.ends_with(&of_agent);
        !is_barrier && event.reason.as_deref() != Some(FAILED_SCHEDULING)
    };
    let recent = events.iter().filter(is_cause).filter(|event| last_observed(event).is_some_and(|at| at >= earliest));
    recent.max_by_key(|event| last_observed(event))
}

/// `FailedMount: MountVolume.SetUp failed for volume "data": secret "s" not found`, in one line.
fn words(event: &Event) -> String {
    let note = event.note.as_deref().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    shorten(&format!("{}: {note}", event.reason.as_deref().unwrap_or_default()), LONGEST)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn event(reason: &str, second: i64, field: &str) -> Value {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        json!({
            "eventTime": null, "reason": reason, "note": format!("{reason} at\n {second}"), "deprecatedLastTimestamp": time,
            "regarding": {"kind": "Pod", "fieldPath": field},
        })
    }

    #[rstest]
    #[case::newest(&[event("FailedMount", 20, ""), event("FailedCreatePodSandBox", 30, "")], Some("FailedCreatePodSandBox: FailedCreatePodSandBox at 30"))]
    #[case::before_the_wait(&[event("FailedMount", 4, "")], None)]
    #[case::by_a_clock_behind(&[event("FailedMount", 5, "")], Some("FailedMount: FailedMount at 5"))]
    #[case::before_it_had_a_node(&[event("FailedMount", 20, ""), event("FailedScheduling", 30, "")], Some("FailedMount: FailedMount at 20"))]
    #[case::barrier(&[event("Unhealthy", 20, "spec.initContainers{jobset-agent}")], None)]
    #[case::other_sidecar(&[event("Unhealthy", 20, "spec.initContainers{proxy}")], Some("Unhealthy: Unhealthy at 20"))]
    fn newest_warning_that_may_be_cause_is_told(#[case] events: &[Value], #[case] expected: Option<&str>) {
        let events: Vec<Event> = events.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect();
        let since = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(newest(&events, since).map(words).as_deref(), expected);
    }
}
