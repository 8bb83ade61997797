//! `restartPolicyRules` of the containers, in the names of Kubernetes and of KEP-467 ([`crate::restart_rules`]). The
//! schema of the CRD does not check them. Without this rule, a wrong name is found only when the Jobs are created.

use std::ptr;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};

use super::subject::{Subject, for_each_container};
use crate::field::{Errors, Path};
use crate::restart_rules::{
    ExitCodes, MAX_RULES, NEVER, RESTART, RESTART_ALL_CONTAINERS, RESTART_POD, TERMINATE, compile, compile_agent,
    is_agent_sidecar,
};

/// Maximum number of exit codes of a rule in Kubernetes 1.36.
const CODES: usize = 255;

const ACTIONS: &str = "\"Restart\", \"RestartAllContainers\" (or \"RestartPod\"), \"Terminate\"";
const OPERATORS: &str = "\"In\", \"NotIn\"";
const POLICY: &str = "must be set beside restartPolicyRules: it says what happens on exits that no rule matches";
const TOO_MANY_RULES: &str = "must have at most 20 items, as Kubernetes allows";
const TOO_MANY_OF_AGENT: &str = "must have at most 19 items, since the agent gets one more, RestartAllContainers on all \
                                 failures: Kubernetes allows 20";
const TOO_MANY_CODES: &str = "must have at most 255 items, as Kubernetes allows";
const EXIT_CODES: &str = "must say which exit codes the rule is for";

/// Rejects rules that Kubernetes does not know, and a `Terminate` that cannot be compiled.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    subject.for_each_pod(spec, |pod, path| {
        for_each_container(pod, path, |container, path| self::container(container, pod, path, errors));
    });
}

fn container(container: &Container, pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    if rules.is_empty() {
        return;
    }
    if container.restart_policy.is_none() {
        errors.required(&path.child("restartPolicy"), POLICY);
    }
    let list = path.child("restartPolicyRules");
    if rules.len() > MAX_RULES {
        // To check more rules would take too long.
        errors.too_many(&list, rules.len(), TOO_MANY_RULES);
        return;
    }
    for (index, rule) in rules.iter().enumerate() {
        names(rule, &list.index(index), errors);
    }
    terminate(container, pod, rules, &list, errors);
    let is_agent = is_agent_sidecar(container) && pod.init_containers.iter().flatten().any(|it| ptr::eq(it, container));
    if is_agent && compile_agent(rules).len() > MAX_RULES {
        errors.too_many(&list, rules.len(), TOO_MANY_OF_AGENT);
    }
}

fn names(rule: &ContainerRestartRule, path: &Path<'_>, errors: &mut Errors) {
    if ![RESTART, RESTART_ALL_CONTAINERS, RESTART_POD, TERMINATE].contains(&rule.action.as_str()) {
        errors.not_supported(&path.child("action"), &rule.action, ACTIONS);
    }
    let path = path.child("exitCodes");
    let Some(exit_codes) = &rule.exit_codes else {
        errors.required(&path, EXIT_CODES);
        return;
    };
    if ExitCodes::of(rule).is_none() {
        errors.not_supported(&path.child("operator"), &exit_codes.operator, OPERATORS);
    }
    let values = exit_codes.values.as_deref().unwrap_or_default().len();
    if values > CODES {
        errors.too_many(&path.child("values"), values, TOO_MANY_CODES);
    }
}

/// Kubernetes has no action `Terminate`. Its codes are removed from later rules, so that no rule matches them and the
/// policy of the container decides.
fn terminate(
    container: &Container,
    pod: &PodSpec,
    rules: &[ContainerRestartRule],
    list: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(index) = rules.iter().position(|rule| rule.action == TERMINATE) else { return };
    let path = list.index(index);
    // The last rule of an agent restarts the whole Pod on every failure, so its policy decides on no failure.
    let policy = container.restart_policy.as_deref().or(pod.restart_policy.as_deref()).unwrap_or_default();
    if policy != NEVER && !is_agent_sidecar(container) {
        let required = format_args!(
            "cannot be carried out with restartPolicy {policy:?}, which restarts the container after every exit that no \
             rule matches: set restartPolicy of the container to \"Never\", or write the exit codes that restart it"
        );
        errors.invalid(&path.child("action"), TERMINATE, required);
        return;
    }
    let longest = |rules: &[ContainerRestartRule]| {
        let codes = rules.iter().filter_map(|rule| rule.exit_codes.as_ref()?.values.as_ref());
        codes.map(Vec::len).max().unwrap_or_default()
    };
    if longest(rules) <= CODES && longest(&compile(rules)) > CODES {
        let required = "cannot be carried out: the rules after it would have to leave out more than the 255 exit codes \
                        that Kubernetes allows. Leave out fewer";
        errors.invalid(&path.child("action"), TERMINATE, required);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admission_errors, assert_one, in_place};

    #[test]
    fn restart_rules_of_agent_leave_room_for_one_more() {
        let pointer = "/spec/replicatedJobs/1/template/spec/template/spec/initContainers/0/restartPolicyRules";
        let rule = json!({ "action": "RestartPod", "exitCodes": { "operator": "In", "values": [81] } });
        let rules = |count: usize| in_place(&[(pointer, json!(vec![rule.clone(); count]))]);
        assert_eq!(admission_errors(&rules(19)), Vec::<String>::new());
        assert_one(
            &admission_errors(&rules(20)),
            "restartPolicyRules: Too many: 20: must have at most 19 items, since the agent",
        );
    }
}
