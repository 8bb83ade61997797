//! Whether the ValidatingAdmissionPolicy that confines agents is in force. Without it, the role of the agents lets each of them
//! change every Pod of its namespace.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;

use super::Actor;
use crate::shell::error::ApplyError;

/// Name of the policy and of its binding.
const NAME: &str = "jobset-agent";
/// The action of a binding by which the API server denies a request.
const DENY: &str = "Deny";
/// The policy of failures with which a request is denied that cannot be checked. The API server fills it in.
const FAIL: &str = "Fail";
/// The condition by which the policy knows agents. Another one could leave some of them, or all, unconfined.
const AGENTS: &str = "request.userInfo.username.startsWith('system:serviceaccount:') \
    && authorizer.group('agents.jobset.x-k8s.io').resource('epochs').namespace(request.namespace) \
    .check('report').allowed() \
    && !authorizer.group('').resource('pods').namespace(request.namespace).name(request.name) \
    .check('update').allowed()";

impl Actor {
    /// Checks that the policy exists and says what it has to, and that its binding denies what the policy rejects. Whether its
    /// validations are those that it is shipped with, is not looked at.
    ///
    /// # Errors
    /// If one of them is missing or has no effect, or cannot be read.
    pub(super) async fn require_agent_policy(&self) -> Result<(), ApplyError> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let unread = |object| move |source| ApplyError::PolicyUnread { object, source };
        let policy = policies.get_opt(NAME).await.map_err(unread("ValidatingAdmissionPolicy"))?;
        let binding = bindings.get_opt(NAME).await.map_err(unread("ValidatingAdmissionPolicyBinding"))?;
        match missing(policy.as_ref(), binding.as_ref()) {
            None => Ok(()),
            Some(missing) => Err(ApplyError::AgentsUnconfined { missing }),
        }
    }
}

/// What keeps the policy from confining agents.
fn missing(
    policy: Option<&ValidatingAdmissionPolicy>,
    binding: Option<&ValidatingAdmissionPolicyBinding>,
) -> Option<&'static str> {
    let Some(policy) = policy.and_then(|it| it.spec.as_ref()) else {
        return Some("the ValidatingAdmissionPolicy does not exist");
    };
    let Some(binding) = binding.map(|it| &it.spec) else {
        return Some("its ValidatingAdmissionPolicyBinding does not exist");
    };
    let matches_agents = policy.match_conditions.iter().flatten().all(|it| same(&it.expression, AGENTS));
    let denies = binding.validation_actions.iter().any(|action| action == DENY);
    let everywhere = binding.match_resources.is_none() && binding.param_ref.is_none();
    if policy.failure_policy.as_deref() != Some(FAIL) {
        Some("the ValidatingAdmissionPolicy does not fail closed")
    } else if policy.validations.iter().flatten().next().is_none() {
        Some("the ValidatingAdmissionPolicy has no validations")
    } else if !matches_agents || !policy.match_constraints.as_ref().is_some_and(constrains_all_pods) {
        Some("the ValidatingAdmissionPolicy does not match all agents")
    } else if binding.policy_name != NAME || !denies || !everywhere {
        Some("its ValidatingAdmissionPolicyBinding does not deny")
    } else {
        None
    }
}

/// Whether each update of a Pod is looked at, in all namespaces.
fn constrains_all_pods(constraints: &MatchResources) -> bool {
    let all = |selector: &Option<LabelSelector>| selector.as_ref().is_none_or(|it| *it == LabelSelector::default());
    let has = |list: &Option<Vec<String>>, wanted: &str| list.iter().flatten().any(|it| it == wanted || it == "*");
    let is_for_pods = |rule: &NamedRuleWithOperations| {
        has(&rule.api_groups, "")
            && has(&rule.api_versions, "v1")
            && has(&rule.operations, "UPDATE")
            && has(&rule.resources, "pods")
            && rule.resource_names.as_ref().is_none_or(Vec::is_empty)
            && rule.scope.as_deref() != Some("Cluster")
    };
    all(&constraints.namespace_selector)
        && all(&constraints.object_selector)
        && constraints.exclude_resource_rules.as_ref().is_none_or(Vec::is_empty)
        && constraints.resource_rules.iter().flatten().any(is_for_pods)
}

/// Whether two expressions differ by spaces and line breaks alone, outside of strings: none of these has any.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}
