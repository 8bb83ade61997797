//! The agent as the worker's supervisor: it starts the worker in its own container when the barrier lifts.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::environment::{Declared, declared};
use crate::agent::{FATAL_EXIT_CODES, exit_codes};
use crate::field::{Errors, Path};
use crate::restart_rules::{NEVER, final_codes};

const LIVENESS: &str = "must not be set with the agent as supervisor: the kubelet would kill the agent while its worker \
                        waits at the barrier. Leave it out, or use the agent as a sidecar";
const STARTUP: &str = "must not be set with the agent as supervisor: the kubelet would kill the agent while its worker \
                       waits at the barrier. Leave it out and use a readinessProbe, or use the agent as a sidecar";
const CODES: &str = "must be exit codes from 1 to 255, such as 2,3,64-78";
const SHARED: &str = "must not be true with the agent as supervisor: it must be the first process of the container, so \
                      that it can stop all processes of the worker. Leave it out, or use the agent as a sidecar";

/// Rejects Pods in which the agent is not the first process of its container.
pub(super) fn check(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    for (field, set) in [("shareProcessNamespace", pod.share_process_namespace), ("hostPID", pod.host_pid)] {
        if set == Some(true) {
            errors.invalid(&path.child(field), true, SHARED);
        }
    }
}

/// Rejects probes that would kill a waiting worker.
pub(super) fn check_container(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    if container.liveness_probe.is_some() {
        errors.forbidden(&path.child("livenessProbe"), LIVENESS);
    }
    if container.startup_probe.is_some() {
        errors.forbidden(&path.child("startupProbe"), STARTUP);
    }
    fatal_codes(container, path, errors);
}

/// An exit code with which the agent ends the container must not restart the container.
fn fatal_codes(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    let Declared::Here(index, value) = declared(container, &[FATAL_EXIT_CODES]) else { return };
    let list = path.child("env");
    let item = list.index(index);
    let path = item.child("value");
    let Some(fatal) = exit_codes(value) else {
        errors.invalid(&path, value, CODES);
        return;
    };
    if container.restart_policy.as_deref().is_some_and(|policy| policy != NEVER) {
        return;
    }
    let final_codes = final_codes(container.restart_policy_rules.as_deref().unwrap_or_default());
    if let Some(restarted) = fatal.into_iter().find(|code| !final_codes.contains(code)) {
        let required = format_args!(
            "must not contain {restarted}, with which the container restarts alone: take it out of its \
             restartPolicyRules, or from this list"
        );
        errors.invalid(&path, value, required);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use crate::validation::testing::{admission_errors, assert_one, in_place};

    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";

    fn errors(containers: Value) -> Vec<String> {
        let containers = (&*format!("{POD}/containers"), containers);
        admission_errors(&in_place(&[(&format!("{POD}/initContainers"), Value::Null), containers]))
    }

    fn worker() -> Value {
        json!({ "name": "worker", "command": ["/agent/jobset-agent", "supervise", "--", "train"] })
    }

    #[test]
    fn second_supervisor_of_pod_is_rejected() {
        let other = json!({ "name": "other", "command": worker()["command"] });
        let expected = r#"containers: Invalid value: ["worker","other"]: must contain one"#;
        assert_one(&errors(json!([worker(), other])), expected);
    }

    fn with_codes(codes: &str, rules: Value) -> Vec<String> {
        let mut worker = worker();
        worker["env"] = json!([{ "name": "FATAL_EXIT_CODES", "value": codes }]);
        worker["restartPolicy"] = json!("Never");
        worker["restartPolicyRules"] = rules;
        errors(json!([worker]))
    }

    fn restart(operator: &str, values: &[i32]) -> Value {
        json!([{ "action": "Restart", "exitCodes": { "operator": operator, "values": values } }])
    }

    #[rstest]
    #[case::of_those_that_are_not_restarted_some("3", restart("In", &[1, 137]))]
    #[case::no_rules("1-255", json!([]))]
    fn fatal_codes_without_restart_rule_are_accepted(#[case] codes: &str, #[case] rules: Value) {
        assert_eq!(with_codes(codes, rules), Vec::<String>::new());
    }

    #[rstest]
    #[case::success("0", restart("NotIn", &[0]), "must be exit codes from 1 to 255")]
    #[case::no_list("3;4", restart("NotIn", &[0]), r#"env[0].value: Invalid value: "3;4": must be exit codes"#)]
    #[case::backwards("9-3", restart("NotIn", &[0]), "must be exit codes from 1 to 255")]
    fn fatal_codes_with_restart_rule_or_malformed_are_rejected(
        #[case] codes: &str,
        #[case] rules: Value,
        #[case] expected: &str,
    ) {
        assert_one(&with_codes(codes, rules), expected);
    }
}
