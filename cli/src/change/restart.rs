//! What to request of the controller to restart a JobSet, when that makes no sense, and what has become of it.

use jobset_api::restart_request::{HandledRestartRequest, LONGEST_REASON, outcome};
use jobset_api::{JobSet, RestartRequest, labels, validation};

use super::elsewhere;
use super::report::ChangeOutcome;
use crate::output::one_line;

#[derive(Clone, Debug, Default)]
pub(super) struct RestartWish {
    pub reason: Option<String>,
    pub pod: Option<String>,
    pub uncounted: bool,
    /// Who asks, if that is known.
    pub user: Option<String>,
}

impl RestartWish {
    pub(super) fn request(&self, id: String) -> RestartRequest {
        let user = self.user.as_ref().map(|user| format!("by {user}"));
        let reason = match (&self.reason, user) {
            (Some(reason), Some(user)) => format!("{reason} ({user})"),
            (None, Some(user)) => user,
            (reason, None) => reason.clone().unwrap_or_else(|| "by kubectl jobset".to_owned()),
        };
        let reason = one_line(&reason).chars().take(LONGEST_REASON).collect();
        RestartRequest { id, reason: Some(reason), pod: self.pod.clone(), uncounted: self.uncounted }
    }
}

/// Why it makes no sense to request a restart, and what to do instead.
pub(super) fn refusal(jobset: &JobSet, uncounted: bool) -> Option<String> {
    let name = jobset.metadata.name.as_deref().unwrap_or_default();
    if let Some(refusal) = elsewhere::refusal(jobset, "restart") {
        return Some(refusal);
    }
    let status = jobset.status.clone().unwrap_or_default();
    if status.is_finished() {
        return Some("has finished: to run it again, delete it and create it again".to_owned());
    }
    if !validation::cannot_run(jobset).is_empty() {
        return Some(format!(
            "has an invalid specification, and is left alone: correct it first; `kubectl jobset explain {name}` says what is wrong"
        ));
    }
    if jobset.spec.is_suspended() {
        return Some(format!(
            "is suspended, and starts again when it is resumed: `kubectl jobset resume {name}`, unless a queue decides"
        ));
    }
    if let Some(pending) = jobset.pending_restart_request() {
        let key = labels::RESTART_REQUEST;
        return Some(format!(
            "has a request that the controller has not dealt with yet ({}): wait, or withdraw it by `kubectl annotate jobset {name} \
             {key}-`; `kubectl jobset explain {name}` says whether a controller runs",
            pending.id
        ));
    }
    if status.restart_requests.is_none() {
        return Some(
            "was not read by a controller that knows requests of restarts: wait until one runs, or upgrade it; what is requested \
             before is only noted"
                .to_owned(),
        );
    }
    if !uncounted && jobset.counted_restarts_left() == 0 {
        let key = labels::ADDITIONAL_RESTARTS;
        let additional = jobset.additional_restarts().saturating_add(1);
        return Some(format!(
            "would fail by this restart: all counted ones are spent ({}). Add --uncounted, or allow one more before: `kubectl annotate \
             jobset {name} {key}={additional} --overwrite`",
            jobset.restart_limit()
        ));
    }
    None
}

/// What has become of the request, in words.
pub(super) fn result(jobset: &JobSet, handled: &HandledRestartRequest) -> (ChangeOutcome, String) {
    let Some(number) = handled.restart else {
        let outcome = &handled.outcome;
        let why = outcome::words(outcome).unwrap_or("the controller is of another version, which knows why");
        return (ChangeOutcome::Refused, format!("is not restarted ({outcome}): {why}"));
    };
    let name = jobset.metadata.name.as_deref().unwrap_or_default();
    let counted = if handled.uncounted {
        "not counted".to_owned()
    } else {
        let spent = jobset.allowed_restarts().saturating_sub(jobset.counted_restarts_left());
        format!("counted, {spent} of {} are spent", jobset.restart_limit())
    };
    let text = format!(
        "restarts: restart {number} has begun, {counted}; `kubectl jobset wait {name} --for restarted` waits for its end"
    );
    (ChangeOutcome::Done, text)
}

/// What to say when the controller has not dealt with the request in time.
pub(super) fn timed_out(name: &str, id: &str) -> String {
    let key = labels::RESTART_REQUEST;
    format!(
        "has the request {id}, and no controller has dealt with it in time. It stays, and is carried out once when one leads; withdraw \
         it by `kubectl annotate jobset {name} {key}-`. `kubectl jobset explain {name}` says whether a controller runs"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn jobset(status: &Value, more: &Value) -> JobSet {
        let mut jobset = json!({
            "metadata": {"name": "train", "annotations": {"jobset.sigs.k8s.io/restart-budget": "Shared"}},
            "spec": {"replicatedJobs": [], "failurePolicy": {"maxRestarts": 2}}, "status": status});
        json_patch::merge(&mut jobset, more);
        serde_json::from_value(jobset).unwrap()
    }

    #[rstest]
    #[case::possible(json!({"restartRequests": []}), json!({}), None)]
    #[case::finished(json!({"terminalState": "Failed"}), json!({}), Some("has finished: to run it again, delete it"))]
    #[case::invalid(json!({"restartRequests": []}), json!({"spec": {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["typo"]}}}), Some("has an invalid specification, and is left alone"))]
    #[case::suspended(json!({"restartRequests": []}), json!({"spec": {"suspend": true}}), Some("is suspended, and starts again"))]
    #[case::elsewhere(json!(null), json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}), Some("is managed by another"))]
    #[case::unread(json!(null), json!({}), Some("was not read by a controller"))]
    #[case::pending(json!({"restartRequests": []}), json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/restart-request": "{\"id\":\"a\"}"}}}), Some("has a request that the controller has not dealt with yet (a)"))]
    #[case::spent(json!({"restartRequests": [], "restartsCountTowardsMax": 2}), json!({}), Some("would fail by this restart: all counted ones are spent (maxRestarts 2). Add --uncounted"))]
    fn restart_without_sense_is_refused_with_advice(
        #[case] status: Value,
        #[case] more: Value,
        #[case] expected: Option<&str>,
    ) {
        let found = refusal(&jobset(&status, &more), false);
        match expected {
            Some(expected) => assert!(found.as_ref().is_some_and(|text| text.starts_with(expected)), "{found:?}"),
            None => assert_eq!(found, None),
        }
    }

    #[test]
    fn uncounted_restart_needs_no_budget() {
        let spent = jobset(&json!({"restartRequests": [], "restartsCountTowardsMax": 2}), &json!({}));
        assert_eq!(refusal(&spent, true), None);
    }

    #[rstest]
    #[case::all(Some("NCCL watchdog"), Some("alice"), "NCCL watchdog (by alice)")]
    #[case::user(None, Some("alice"), "by alice")]
    #[case::nothing(None, None, "by kubectl jobset")]
    #[case::lines(Some("a\nb"), None, "a b")]
    fn request_says_who_asks_in_one_line(
        #[case] reason: Option<&str>,
        #[case] user: Option<&str>,
        #[case] expected: &str,
    ) {
        let [reason, user] = [reason, user].map(|text| text.map(str::to_owned));
        let request = RestartWish { reason, user, ..RestartWish::default() }.request("a".to_owned());
        assert_eq!(request.reason.as_deref(), Some(expected));
        assert_eq!(RestartRequest::parse(&request.to_text()), Ok(request));
    }

    #[rstest]
    #[case::counted(json!({"restart": 3}), "restarts: restart 3 has begun, counted, 1 of maxRestarts 2 are spent; `kubectl")]
    #[case::uncounted(json!({"restart": 3, "uncounted": true}), "restarts: restart 3 has begun, not counted; `kubectl")]
    #[case::noted(json!({"outcome": "TooSoon"}), "is not restarted (TooSoon): the last uncounted restart")]
    #[case::of_another_version(json!({"outcome": "Later"}), "is not restarted (Later): the controller is of another version")]
    fn result_is_told_in_words(#[case] handled: Value, #[case] expected: &str) {
        let mut whole = json!({"id": "a", "outcome": "CarriedOut", "time": "2026-01-01T00:00:00.000000Z"});
        json_patch::merge(&mut whole, &handled);
        let jobset = jobset(&json!({"restartsCountTowardsMax": 1}), &json!({}));
        let (_, text) = result(&jobset, &serde_json::from_value(whole).unwrap());
        assert!(text.starts_with(expected), "{text}");
    }
}
