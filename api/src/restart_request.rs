//! Restarts on request: the annotation [`RESTART_REQUEST`](crate::labels::RESTART_REQUEST), and what the status keeps of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::is_false;
use crate::{JobSet, JobSetStatus, LaterFields, is_dns1123_subdomain, syntax};

/// Maximum number of bytes of the annotation.
const LONGEST: usize = 2048;
/// Maximum number of characters of a reason.
pub const LONGEST_REASON: usize = 256;
/// Maximum number of requests that the status keeps. A manifest with an earlier request may be applied again for as long as it is kept.
pub const KEPT: usize = 32;

const ID: &str = "must consist of letters, digits, '-', '_' and '.', begin and end with a letter or digit, and have at most 63 \
                  characters. Give each request another one: a request with a known ID is not carried out again";
const REASON: &str = "must be one line of at most 256 characters";
const POD: &str = "must be the name of a Pod of the JobSet";

/// A request to restart the whole group.
///
/// It is JSON: `{"id":"alert-4711","reason":"NCCL watchdog","pod":"train-w-0-3-x7k2p","uncounted":true}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestartRequest {
    /// Identifies the request. The controller carries each ID out once.
    #[serde(default)]
    pub id: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Name of the Pod on account of which the group is to restart. If it is not there, the request is outdated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Whether the restart does not count towards `maxRestarts`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub uncounted: bool,
}

/// What is wrong with a request: the field, its value if there is one, and what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the field; `None` for the request as a whole.
    pub field: Option<&'static str>,
    /// The value; `None` if it is missing.
    pub found: Option<String>,
    /// What is required.
    pub required: String,
}

/// At least one problem.
pub type Problems = Vec<Problem>;

impl RestartRequest {
    /// Reads the value of the annotation.
    ///
    /// # Errors
    /// If it is not JSON, has unknown fields, or a field is not what it must be.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let whole = |required: String| vec![Problem { field: None, found: Some(text.to_owned()), required }];
        if text.len() > LONGEST {
            return Err(whole(format!("must have at most {LONGEST} bytes")));
        }
        let no_object = |error: &dyn std::fmt::Display| {
            let example = r#"{"id":"alert-4711","reason":"NCCL watchdog"}"#;
            whole(format!("must be JSON with the fields id, reason, pod and uncounted, as {example}: {error}"))
        };
        // serde takes a list of values for an object, too.
        if text.trim_start().starts_with('[') {
            return Err(no_object(&"a list is no request"));
        }
        let request: Self = serde_json::from_str(text).map_err(|error| no_object(&error))?;
        let problems = request.problems();
        if problems.is_empty() { Ok(request) } else { Err(problems) }
    }

    fn problems(&self) -> Problems {
        let mut problems = Vec::new();
        let mut check = |holds: bool, field, found: Option<&String>, required: &str| {
            if !holds {
                problems.push(Problem { field: Some(field), found: found.cloned(), required: required.to_owned() });
            }
        };
        let Self { id, reason, pod, uncounted: _ } = self;
        check(syntax::is_label_key(id) && !id.contains('/'), "id", Some(id).filter(|id| !id.is_empty()), ID);
        let is_line = |text: &String| text.chars().count() <= LONGEST_REASON && !text.contains(char::is_control);
        check(reason.as_ref().is_none_or(is_line), "reason", reason.as_ref(), REASON);
        check(pod.as_deref().is_none_or(is_dns1123_subdomain), "pod", pod.as_ref(), POD);
        problems
    }

    /// The value of the annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What has become of a request. Texts, so that a status with the words of another version can be read.
pub mod outcome {
    /// The restart has begun.
    pub const CARRIED_OUT: &str = "CarriedOut";
    /// No counted restart is left, so the JobSet has failed.
    pub const BUDGET_SPENT: &str = "BudgetSpent";
    /// The request was there before the controller knew the JobSet, or had lost what it knew.
    pub const FOUND: &str = "Found";
    /// The JobSet has completed or failed.
    pub const FINISHED: &str = "Finished";
    /// The JobSet is suspended.
    pub const SUSPENDED: &str = "Suspended";
    /// The specification is invalid, and the controller does nothing for the JobSet.
    pub const INVALID: &str = "Invalid";
    /// No worker has started yet.
    pub const NOT_STARTED: &str = "NotStarted";
    /// The group restarts, resumes, or is about to, and its workers have not started again.
    pub const RESTARTING: &str = "AlreadyRestarting";
    /// The JobSet is about to complete.
    pub const SUCCEEDING: &str = "Succeeding";
    /// No Pod of the JobSet has this name, or none any more.
    pub const POD_NOT_FOUND: &str = "PodNotFound";
    /// The JobSet has more Jobs or Pods than it may have, so that Jobs that were deleted would not be created again.
    pub const TOO_LARGE: &str = "TooLarge";
    /// The last uncounted restart on request was a short time ago.
    pub const TOO_SOON: &str = "TooSoon";

    /// What has become of the request, in words. `None` for the word of another version.
    pub fn words(outcome: &str) -> Option<&'static str> {
        Some(match outcome {
            CARRIED_OUT => "the restart has begun",
            BUDGET_SPENT => "no counted restart was left, so the JobSet has failed",
            FOUND => {
                "it was there when the controller first read this JobSet, as in a manifest that was applied again; \
                 request it again with another id"
            }
            FINISHED => "the JobSet has finished; to run it again, delete it and create it again",
            INVALID => {
                "the specification is invalid, and the JobSet is left alone; see condition Invalid. Request it again with another id \
                 once it is corrected"
            }
            SUSPENDED => "the JobSet is suspended, and starts again when it is resumed",
            NOT_STARTED => "no worker has started yet, so there is nothing to restart",
            RESTARTING => "the group was restarting already, and its workers had not started again",
            SUCCEEDING => "the JobSet is about to complete",
            POD_NOT_FOUND => {
                "no Pod of the JobSet has this name now; if the Pod was replaced, the group has restarted since. \
                 Request it without a Pod, or with one that exists"
            }
            TOO_LARGE => {
                "the JobSet is larger than it may be, and its Jobs would not be created again; see condition Invalid"
            }
            TOO_SOON => {
                "the last uncounted restart on request was less than 10 minutes ago; request a counted one, or wait"
            }
            _ => return None,
        })
    }
}

/// A request of the annotation `jobset.sigs.k8s.io/restart-request` that the controller has dealt with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandledRestartRequest {
    /// id of the request.
    #[schemars(length(max = 63))]
    pub id: String,
    /// outcome is what has become of it, in one word: CarriedOut, or why it was not carried out (BudgetSpent, Found,
    /// Finished, Invalid, Suspended, NotStarted, AlreadyRestarting, Succeeding, PodNotFound, TooLarge, TooSoon).
    #[schemars(length(max = 63))]
    pub outcome: String,
    /// uncounted says whether it asked for a restart that does not count towards maxRestarts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub uncounted: bool,
    /// time is when the controller dealt with it.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub time: MicroTime,
    /// restart is groupRestarts including the restart that was requested. Absent if the request was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<i32>,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

impl HandledRestartRequest {
    /// Whether it was noted and nothing else. One that was found may have been carried out before its record was lost.
    pub fn is_noted(&self) -> bool {
        self.restart.is_none() && self.outcome != outcome::FOUND
    }
}

impl JobSetStatus {
    /// What has become of the request with this ID, if the controller has dealt with it.
    pub fn handled_restart_request(&self, id: &str) -> Option<&HandledRestartRequest> {
        self.restart_requests.as_ref()?.iter().rev().find(|handled| handled.id == id)
    }
}

impl JobSet {
    /// See [`JobSetStatus::handled_restart_request`].
    pub fn handled_restart_request(&self, id: &str) -> Option<&HandledRestartRequest> {
        self.status.as_ref()?.handled_restart_request(id)
    }

    /// The request that the controller has to deal with yet: it is valid, and has an ID that the status does not know.
    pub fn pending_restart_request(&self) -> Option<RestartRequest> {
        let request = self.restart_request()?.ok()?;
        self.handled_restart_request(&request.id).is_none().then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::id_alone(r#"{"id":"a"}"#)]
    #[case::all(r#"{"id":"Alert_47.1-1","reason":"größer: \"x\"","pod":"train-w-0-3-x7k2p","uncounted":true}"#)]
    #[case::longest_id(&format!(r#"{{"id":"{}"}}"#, "a".repeat(63)))]
    #[case::longest_reason(&format!(r#"{{"id":"a","reason":"{}"}}"#, "ä".repeat(256)))]
    fn request_survives_reading_and_writing(#[case] text: &str) {
        let request = RestartRequest::parse(text).unwrap();
        assert_eq!(request.to_text(), text);
    }

    #[rstest]
    #[case::empty("", None)]
    #[case::no_json("please", None)]
    #[case::list("[]", None)]
    #[case::misspelt(r#"{"id":"a","uncouted":true}"#, None)]
    #[case::wrong_type(r#"{"id":7}"#, None)]
    #[case::no_id("{}", Some("id"))]
    #[case::empty_id(r#"{"id":""}"#, Some("id"))]
    #[case::id_with_space(r#"{"id":"a b"}"#, Some("id"))]
    #[case::id_with_slash(r#"{"id":"a/b"}"#, Some("id"))]
    #[case::long_id(&format!(r#"{{"id":"{}"}}"#, "a".repeat(64)), Some("id"))]
    #[case::two_lines(r#"{"id":"a","reason":"b\nc"}"#, Some("reason"))]
    #[case::long_reason(&format!(r#"{{"id":"a","reason":"{}"}}"#, "a".repeat(257)), Some("reason"))]
    #[case::no_pod(r#"{"id":"a","pod":""}"#, Some("pod"))]
    #[case::pod_with_namespace(r#"{"id":"a","pod":"ml/train-0"}"#, Some("pod"))]
    #[case::long(&" ".repeat(100_000), None)]
    fn text_that_is_no_request_names_its_field(#[case] text: &str, #[case] field: Option<&str>) {
        let problems = RestartRequest::parse(text).unwrap_err();
        assert_eq!((problems.len(), problems[0].field), (1, field), "{problems:?}");
    }

    #[test]
    fn outcome_of_other_version_has_no_words() {
        assert_eq!(outcome::words("Deferred"), None);
        assert!(outcome::words(outcome::TOO_SOON).is_some());
    }
}
