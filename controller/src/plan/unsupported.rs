//! Words of the API that this controller does not carry out yet. A JobSet that uses one is not started: running it as
//! if the word were not there would be worse than not running it.

use std::ops::ControlFlow;

use jobset_api::{FailurePolicyAction, JobSetSpec, RestartStrategy, StartupPolicyOrder, conditions, labels};

use super::Pass;

/// Condition of a JobSet that is not started.
const UNSUPPORTED: &str = "Unsupported";

pub(super) fn refuse(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let jobset = &pass.seen.jobset;
    let mut fields = fields(&jobset.spec);
    let annotated = jobset.metadata.annotations.iter().flatten().any(|(key, _)| key == labels::EXCLUSIVE_TOPOLOGY);
    if annotated {
        fields.push(format!("metadata.annotations[{}]", labels::EXCLUSIVE_TOPOLOGY));
    }
    let in_place = jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    if in_place && !pass.settings.gates.in_place_restart {
        fields.push("spec.failurePolicy.restartStrategy: the feature gate InPlaceRestart is off".to_owned());
    }
    if fields.is_empty() {
        if conditions::is_true(&pass.status.conditions, UNSUPPORTED) {
            pass.set_condition(UNSUPPORTED, false, "Supported", "nothing of the specification is left out");
        }
        return ControlFlow::Continue(());
    }
    let running = !pass.seen.jobs.is_empty();
    let effect = if running { "runs on without it" } else { "not started" };
    let message = format!("{effect}: this version does not carry out {}", fields.join(", "));
    if pass.set_condition(UNSUPPORTED, true, "NotImplemented", &message) {
        pass.warn("NotImplemented", message);
    }
    // What already runs is not left without its failure policy.
    if running { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

fn fields(spec: &JobSetSpec) -> Vec<String> {
    use FailurePolicyAction::{FailJobSet, RestartJobSet, RestartJobSetAndIgnoreMaxRestarts};

    let mut fields = Vec::new();
    let mut add = |unsupported: bool, field: String| {
        if unsupported {
            fields.push(field);
        }
    };
    add(spec.is_suspended(), "spec.suspend".to_owned());
    let order = spec.startup_policy.as_ref().map(|policy| policy.startup_policy_order);
    add(order == Some(StartupPolicyOrder::InOrder), "spec.startupPolicy.startupPolicyOrder: InOrder".to_owned());
    add(!spec.volume_claim_policies.is_empty(), "spec.volumeClaimPolicies".to_owned());
    add(spec.ttl_seconds_after_finished.is_some(), "spec.ttlSecondsAfterFinished".to_owned());
    for (index, group) in spec.replicated_jobs.iter().enumerate() {
        let path = format!("spec.replicatedJobs[{index}]");
        add(!group.depends_on.is_empty(), format!("{path}.dependsOn"));
        let metadata = group.template.metadata.as_ref();
        let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
        let exclusive = annotations.is_some_and(|annotations| annotations.contains_key(labels::EXCLUSIVE_TOPOLOGY));
        add(exclusive, format!("{path}.template.metadata.annotations[{}]", labels::EXCLUSIVE_TOPOLOGY));
        let reasons = group.template.spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
        let has_reason = reasons.into_iter().any(|rule| rule.set_condition_reason.is_some());
        add(has_reason, format!("{path}.template.spec.podFailurePolicy.rules[].setConditionReason"));
    }
    for (index, rule) in spec.failure_policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        let supported = matches!(rule.action, FailJobSet | RestartJobSet | RestartJobSetAndIgnoreMaxRestarts);
        add(!supported, format!("spec.failurePolicy.rules[{index}].action: {:?}", rule.action));
    }
    fields
}
