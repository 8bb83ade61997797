//! Fills in what a new JobSet leaves open. What is set stays as it is.
//!
//! A default goes only into a part of the object that was sent ([`crate::patch::diff`] says why): a replicatedJob without
//! a Job specification or a Pod specification gets none there.

use jobset_api::effective::{MAX_BACKOFF_LIMIT, REPLACE_FAILED};
use jobset_api::{
    JobSetSpec, JobTemplateSpec, Operator, RestartStrategy, RetentionPolicy, StartupPolicy, StartupPolicyOrder,
    SuccessPolicy, VolumeRetentionPolicy,
};

/// The specification with its defaults. Applying them again changes nothing.
pub fn apply(spec: &JobSetSpec) -> JobSetSpec {
    let mut spec = spec.clone();
    let strategy = spec.restart_strategy();
    for replicated_job in &mut spec.replicated_jobs {
        job(&mut replicated_job.template.spec, strategy);
    }
    policies(&mut spec);
    network(&mut spec);
    claims(&mut spec);
    spec
}

fn job(job: &mut JobTemplateSpec, strategy: RestartStrategy) {
    if *job == JobTemplateSpec::default() {
        return;
    }
    job.completion_mode.get_or_insert_with(|| "Indexed".to_owned());
    let in_place = strategy == RestartStrategy::InPlaceRestart;
    if in_place {
        // KEP-467, "Implementation - Webhook validation".
        job.backoff_limit.get_or_insert(MAX_BACKOFF_LIMIT);
        job.pod_replacement_policy.get_or_insert_with(|| REPLACE_FAILED.to_owned());
    }
    // Kubernetes refuses a podFailurePolicy with OnFailure. In place, restart rules decide, container by container.
    let never = in_place || job.pod_failure_policy.is_some();
    if let Some(pod) = &mut job.template.spec
        && pod.restart_policy.as_deref().unwrap_or_default().is_empty()
    {
        pod.restart_policy = Some(if never { "Never" } else { "OnFailure" }.to_owned());
    }
}

fn policies(spec: &mut JobSetSpec) {
    spec.success_policy
        .get_or_insert_with(|| SuccessPolicy { operator: Operator::All, target_replicated_jobs: Vec::new() });
    spec.startup_policy
        .get_or_insert(StartupPolicy { startup_policy_order: StartupPolicyOrder::AnyOrder });
    let rules = spec.failure_policy.iter_mut().flat_map(|policy| &mut policy.rules);
    for (index, rule) in rules.enumerate() {
        if rule.name.as_deref().unwrap_or_default().is_empty() {
            rule.name = Some(format!("failurePolicyRule{index}"));
        }
    }
}

fn network(spec: &mut JobSetSpec) {
    let network = spec.network.get_or_insert_default();
    network.enable_dns_hostnames.get_or_insert(true);
    network.publish_not_ready_addresses.get_or_insert(true);
}

fn claims(spec: &mut JobSetSpec) {
    for policy in &mut spec.volume_claim_policies {
        policy
            .retention_policy
            .get_or_insert_with(|| VolumeRetentionPolicy { when_deleted: Some(RetentionPolicy::Delete) });
    }
}
