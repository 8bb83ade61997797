//! The agent's variables about progress. An agent that cannot read one of the times does not start, and one that cannot read the pattern
//! sees no steps.

use jobset_protocol::step_pattern::{STEP_PATTERN, StepPattern};
use k8s_openapi::api::core::v1::Container;

use super::environment::{Declared, declared};
use crate::agent::{PROGRESS_PATTERN, STALL_AFTER, STALL_FIRST, stall_time};
use crate::field::{Errors, Path};

/// A variable, whether the agent can read its value, and what the value must be.
type AgentVariable = (&'static str, fn(&str) -> bool, &'static str);

const VARIABLES: [AgentVariable; 3] = [
    (
        STALL_AFTER,
        |text| text == "auto" || stall_time(text).is_some(),
        "auto, or a time from 5s to 720h such as 90s or 20m",
    ),
    (STALL_FIRST, |text| stall_time(text).is_some(), "a time from 5s to 720h such as 90s or 20m"),
    (PROGRESS_PATTERN, |text| StepPattern::parse(text).is_some(), STEP_PATTERN),
];

/// Rejects values that the agent in this container cannot read. A sidecar reads no pattern: it sees no output.
pub(super) fn check(container: &Container, path: &Path<'_>, supervises: bool, errors: &mut Errors) {
    let list = path.child("env");
    for (name, is_valid, must) in VARIABLES.into_iter().filter(|(name, ..)| supervises || *name != PROGRESS_PATTERN) {
        if let Declared::Here(index, value) = declared(container, &[name])
            && !is_valid(value)
        {
            errors.invalid(&list.index(index).child("value"), value, format_args!("must be {must}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::super::testing::{admission_errors, assert_one, in_place};
    use super::*;

    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";

    /// Workers under a supervisor with this variable.
    fn supervised(name: &str, value: &str) -> Vec<String> {
        let command = json!(["/agent/jobset-agent", "supervise", "--", "train"]);
        let worker = json!({ "name": "worker", "command": command, "env": [{ "name": name, "value": value }] });
        admission_errors(&in_place(&[
            (&format!("{POD}/initContainers"), Value::Null),
            (&format!("{POD}/containers"), json!([worker])),
        ]))
    }

    #[rstest]
    #[case::pattern_that_is_too_large(PROGRESS_PATTERN, "(a{999}){999}", false)]
    #[case::empty_pattern(PROGRESS_PATTERN, "", true)]
    #[case::auto(STALL_AFTER, "auto", true)]
    #[case::time_that_agents_do_not_read(STALL_AFTER, "1h30m", false)]
    #[case::first(STALL_FIRST, "2h", true)]
    fn variable_that_agent_cannot_read_is_rejected(#[case] name: &str, #[case] value: &str, #[case] is_accepted: bool) {
        let errors = supervised(name, value);
        if is_accepted {
            assert_eq!(errors, Vec::<String>::new());
        } else {
            let expected = format!("containers[0].env[0].value: Invalid value: {value:?}: must be ");
            assert_one(&errors, &expected);
        }
    }

    #[test]
    fn time_of_sidecar_is_checked_and_its_pattern_is_not() {
        let object = in_place(&[]);
        let mut agent = object.pointer(&format!("{POD}/initContainers/0")).unwrap().clone();
        agent["env"] = json!([]);
        let mut with = |name: &str, value: &str| {
            agent["env"].as_array_mut().unwrap().push(json!({ "name": name, "value": value }));
            admission_errors(&in_place(&[(&format!("{POD}/initContainers"), json!([agent]))]))
        };
        assert_eq!(with(PROGRESS_PATTERN, "("), Vec::<String>::new());
        assert_one(&with(STALL_AFTER, "soon"), r#".value: Invalid value: "soon": must be auto, or a time"#);
    }
}
