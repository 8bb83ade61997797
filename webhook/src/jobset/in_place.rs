//! What `restartStrategy: InPlaceRestart` requires of every replicatedJob (KEP-467, "Implementation - Webhook
//! validation"). Without one of these, a failed Pod would fail its Job, two Pods would report for one worker, or the
//! group would wait for ever for a Pod that has no agent.

use jobset_api::effective::{MAX_BACKOFF_LIMIT, REPLACE_FAILED, agent_sidecar};
use jobset_api::{JobSetSpec, JobTemplateSpec, RestartStrategy};

use crate::field::{Errors, Path};

const BACKOFF_LIMIT: &str = "must be 2147483647 with restartStrategy InPlaceRestart, so that failed Pods do not fail \
                             their Job";
const POD_REPLACEMENT_POLICY: &str = "must be \"Failed\" with restartStrategy InPlaceRestart, so that a Pod is \
                                      replaced only after it has fully failed";
const AGENT: &str = "must contain the agent with restartStrategy InPlaceRestart: a sidecar (restartPolicy: Always) \
                     with an entry of restartPolicyRules whose action is RestartPod or RestartAllContainers";

/// Checks every replicatedJob of a JobSet that restarts in place.
pub fn validate(spec: &JobSetSpec, path: &Path<'_>, errors: &mut Errors) {
    if spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        return;
    }
    let replicated_jobs = path.child("replicatedJobs");
    for (index, replicated_job) in spec.replicated_jobs.iter().enumerate() {
        let job = &replicated_job.template.spec;
        let replicated_job = replicated_jobs.index(index);
        let path = replicated_job.child("template.spec");
        backoff_limit(job, &path, errors);
        pod_replacement_policy(job, &path, errors);
        agent(job, &path, errors);
    }
}

fn backoff_limit(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let field = path.child("backoffLimit");
    match job.backoff_limit {
        Some(MAX_BACKOFF_LIMIT) => {}
        Some(found) => errors.invalid(&field, found, BACKOFF_LIMIT),
        None => errors.required(&field, BACKOFF_LIMIT),
    }
}

fn pod_replacement_policy(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let field = path.child("podReplacementPolicy");
    match job.pod_replacement_policy.as_deref() {
        Some(REPLACE_FAILED) => {}
        Some(found) => errors.invalid(&field, found, POD_REPLACEMENT_POLICY),
        None => errors.required(&field, POD_REPLACEMENT_POLICY),
    }
}

fn agent(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let field = path.child("template.spec.initContainers");
    let pod = job.template.spec.as_ref();
    if pod.is_some_and(|pod| agent_sidecar(pod).is_some()) {
        return;
    }
    let found: Vec<_> = pod.and_then(|pod| pod.init_containers.as_ref()).into_iter().flatten().map(|it| &it.name).collect();
    if found.is_empty() {
        errors.required(&field, AGENT);
    } else {
        errors.invalid(&field, found, AGENT);
    }
}
