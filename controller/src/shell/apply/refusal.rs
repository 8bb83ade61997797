//! Reads why a Job has no Pods.

use jobset_objects::{FAILED_CREATE, last_observed, why_refused};
use jobset_store::Kind;
use k8s_openapi::api::events::v1::Event;

use super::{Actor, Done};
use crate::shell::error::ApplyError;

impl Actor {
    /// Fails with what the API server refuses to the Job controller, if that is the last that the Job controller says of the Job. What
    /// may not be read is not known.
    pub(super) async fn find_refusal(&self, job: &str, uid: &str) -> Result<Done, ApplyError> {
        let found = self.events_about(Kind::Job, job, uid, "").await?.unwrap_or_default();
        match last_refusal(&found) {
            Some(event) => {
                let object = format!("{}/{job}", self.key.namespace);
                Err(ApplyError::PodsRefused { object, reason: why_refused(event).to_owned() })
            }
            None => Ok(Done::Provided),
        }
    }
}

/// The refusal that is the last of these Events. In one second, the Job controller may create some Pods and be refused others.
fn last_refusal(events: &[Event]) -> Option<&Event> {
    let is_refusal = |event: &Event| event.reason.as_deref() == Some(FAILED_CREATE);
    let last = events.iter().max_by_key(|event| (last_observed(event), is_refusal(event)))?;
    is_refusal(last).then_some(last)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::refused(&[("SuccessfulCreate", 1), ("FailedCreate", 2)], true)]
    #[case::some_of_them(&[("FailedCreate", 1), ("SuccessfulCreate", 1)], true)]
    #[case::no_more(&[("FailedCreate", 1), ("SuccessfulCreate", 2)], false)]
    #[case::none(&[], false)]
    fn refusal_counts_if_it_is_the_last_event(#[case] events: &[(&str, i64)], #[case] expected: bool) {
        let event = |(reason, second): &(&str, i64)| -> Event {
            let time = format!("2026-01-01T00:00:0{second}Z");
            serde_json::from_value(json!({"eventTime": null, "reason": reason, "deprecatedLastTimestamp": time}))
                .unwrap()
        };
        let events: Vec<Event> = events.iter().map(event).collect();
        assert_eq!(last_refusal(&events).is_some(), expected);
    }
}
