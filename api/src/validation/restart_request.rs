//! The annotation for restarts on request ([`RestartRequest`](crate::RestartRequest)).

use super::subject::Subject;
use super::warnings::Warnings;
use crate::JobSet;
use crate::field::{Errors, Path};
use crate::labels::{ADDITIONAL_RESTARTS, RESTART_REQUEST};

const FINISHED: &str =
    "the JobSet has finished, and nothing restarts it: delete it and create it again, or remove the annotation";

/// Rejects a value that is no request.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    let Some(Err(problems)) = subject.jobset.restart_request() else { return };
    let path = Path::annotation(RESTART_REQUEST);
    for problem in problems {
        let field = problem.field.map(|field| path.child(field));
        errors.wrong(field.as_ref().unwrap_or(&path), problem.found, problem.required);
    }
}

/// Rejects a request to a JobSet that has finished, and one in the place of another that the controller has not dealt with: that
/// one would be lost.
pub(super) fn check_update(old: &JobSet, new: &JobSet, errors: &mut Errors) {
    let (Some(status), Some(Ok(request))) = (&old.status, new.restart_request()) else { return };
    let path = Path::annotation(RESTART_REQUEST);
    let pending = old.pending_restart_request();
    if status.restart_requests.is_none()
        || old.handled_restart_request(&request.id).is_some()
        || pending.as_ref() == Some(&request)
    {
        return;
    }
    if status.is_finished() {
        errors.forbidden(&path, FINISHED);
    } else if let Some(pending) = pending {
        let reason = format_args!(
            "the controller has not dealt with request {} yet: wait until status.restartRequests has it, or remove the \
             annotation first to withdraw it",
            pending.id
        );
        errors.forbidden(&path, reason);
    }
}

/// Warns of a request that is not carried out, and of one that fails the JobSet.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    let jobset = subject.jobset;
    let path = Path::annotation(RESTART_REQUEST);
    if jobset.restart_request().is_none() {
        return;
    }
    if !jobset.is_managed_here() {
        warnings
            .push(&path, "has no effect: spec.managedBy names another controller. Request it where the JobSet runs");
        return;
    }
    if jobset.status.as_ref().is_none_or(|status| status.restart_requests.is_none()) {
        warnings.push(&path, "is noted and not carried out: the controller has not read the JobSet before");
        return;
    }
    let Some(request) = jobset.pending_restart_request() else { return };
    if !request.uncounted && jobset.counted_restarts_left() == 0 {
        let text = format_args!(
            "fails the JobSet: all counted restarts are spent ({}). Ask for an uncounted one, or allow more with the annotation \
             {ADDITIONAL_RESTARTS}",
            jobset.restart_limit()
        );
        warnings.push(&path, text);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{assert_one, jobset, read};
    use super::super::{validate_update, warnings};
    use super::*;
    use crate::gates::Gates;

    const FIELD: &str = "metadata.annotations[jobset.sigs.k8s.io/restart-request]";

    /// A JobSet with maxRestarts 3, this request, and this status.
    fn requested(request: &str, status: &Value) -> Value {
        let annotations = if request.is_empty() { json!({}) } else { json!({ RESTART_REQUEST: request }) };
        jobset(&[("/metadata/annotations", annotations), ("/status", status.clone())])
    }

    /// A status that knows the requests with these IDs.
    fn knows(ids: &[&str]) -> Value {
        let handled = |id: &&str| json!({ "id": id, "outcome": "CarriedOut", "time": "2026-01-01T00:00:00.000000Z" });
        json!({ "restartRequests": ids.iter().map(handled).collect::<Vec<_>>() })
    }

    const A: &str = r#"{"id":"a"}"#;
    const B: &str = r#"{"id":"b"}"#;

    fn finished(ids: &[&str]) -> Value {
        let mut status = knows(ids);
        status["terminalState"] = json!("Failed");
        status
    }

    #[rstest]
    #[case::kept(A, A, knows(&[]), "")]
    #[case::over_pending_with_other_reason(A, r#"{"id":"a","reason":"x"}"#, knows(&[]), "Forbidden: the controller has not dealt with request a yet")]
    #[case::over_no_request("x", B, knows(&[]), "")]
    #[case::back_to_known(B, A, knows(&["a", "b"]), "")]
    #[case::of_unread(A, B, Value::Null, "")]
    #[case::of_earlier_release(A, B, json!({ "restarts": 1 }), "")]
    #[case::of_finished("", A, finished(&[]), "Forbidden: the JobSet has finished, and nothing restarts it")]
    #[case::known_of_finished(B, A, finished(&["a"]), "")]
    fn request_update_keeps_what_is_pending(
        #[case] old: &str,
        #[case] new: &str,
        #[case] status: Value,
        #[case] expected: &str,
    ) {
        let (old, new) = (read(&requested(old, &status)), read(&requested(new, &status)));
        let found: Vec<_> = validate_update(&old, &new, Gates::default()).iter().map(ToString::to_string).collect();
        if expected.is_empty() {
            assert_eq!(found, Vec::<String>::new());
        } else {
            assert_one(&found, &format!("{FIELD}: {expected}"));
        }
    }

    fn spent(request: &str) -> Value {
        let mut status = knows(&[]);
        status["restartsCountTowardsMax"] = json!(3);
        requested(request, &status)
    }

    #[rstest]
    #[case::known(requested(A, &knows(&["a"])))]
    #[case::pending(requested(A, &knows(&[])))]
    #[case::uncounted(spent(r#"{"id":"a","uncounted":true}"#))]
    fn request_with_its_effect_gets_no_warning(#[case] object: Value) {
        assert_eq!(warnings(&read(&object)), Vec::<String>::new());
    }
}
