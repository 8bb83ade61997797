//! Whether the ValidatingAdmissionPolicy that confines agents is in force. Without it, the role of the agents lets each of them
//! change every Pod of its namespace.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::Api;

use super::Actor;
use crate::shell::error::ApplyError;

/// Name of the policy and of its binding.
const NAME: &str = "jobset-agent";
/// The action of a binding by which the API server denies a request.
const DENY: &str = "Deny";

impl Actor<'_> {
    /// Checks that the policy exists, and that its binding denies what the policy rejects.
    ///
    /// # Errors
    /// If one of them is missing or has no effect, or cannot be read.
    pub(super) async fn require_agent_policy(&self) -> Result<(), ApplyError> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let unread = |object| move |source| ApplyError::PolicyUnread { object, source };
        let policy = policies.get_opt(NAME).await.map_err(unread("ValidatingAdmissionPolicy"))?;
        let binding = bindings.get_opt(NAME).await.map_err(unread("ValidatingAdmissionPolicyBinding"))?;
        let missing = match (policy, binding) {
            (None, _) => "the ValidatingAdmissionPolicy does not exist",
            (_, None) => "its ValidatingAdmissionPolicyBinding does not exist",
            (Some(_), Some(binding)) if !is_in_force(&binding) => "its ValidatingAdmissionPolicyBinding does not deny",
            _ => return Ok(()),
        };
        Err(ApplyError::AgentsUnconfined { missing })
    }
}

fn is_in_force(binding: &ValidatingAdmissionPolicyBinding) -> bool {
    let spec = &binding.spec;
    let denies = spec.validation_actions.iter().any(|action| action == DENY);
    spec.policy_name == NAME && spec.match_resources.is_none() && denies
}
