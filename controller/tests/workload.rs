//! JobSets that fail, and restart in one way or the other, as admission leaves them.

use jobset_api::{JobSet, RestartBudget, defaults, labels};
use serde_json::{Value, json};

use crate::fixture::in_place;
use crate::jobsets::{group, jobset, with};

/// A JobSet with this failure policy, without waits between restarts, and replicatedJobs with so many Jobs of one Pod each.
pub(crate) fn recreated(name: &str, policy: &Value, groups: &[(&str, usize)]) -> Value {
    let groups: Vec<Value> = groups.iter().map(|(name, replicas)| group(name, *replicas, 1)).collect();
    let no_waits = json!({"spec": {"failurePolicy": {"restartBackoff": {"initialSeconds": 0, "stableSeconds": 0}}}});
    with(with(jobset(name, &groups), &no_waits), &json!({"spec": {"failurePolicy": policy}}))
}

/// A JobSet of one Job whose workers restart their Pod in place whenever they fail.
pub(crate) fn restarting(name: &str, pods: usize, max_restarts: i32) -> Value {
    let mut jobset = in_place(name, pods, max_restarts);
    let worker = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0];
    worker["restartPolicy"] = json!("Never");
    worker["restartPolicyRules"] =
        json!([{"action": "RestartPod", "exitCodes": {"operator": "NotIn", "values": [0, 42]}}]);
    jobset
}

/// What admission makes of a manifest.
pub(crate) fn admitted(manifest: Value) -> serde_json::Result<Value> {
    let mut jobset: JobSet = serde_json::from_value(manifest)?;
    jobset.spec = defaults::apply(&jobset.spec);
    let budget = RestartBudget::of(&jobset).word().to_owned();
    jobset.metadata.annotations.get_or_insert_default().insert(labels::RESTART_BUDGET.to_owned(), budget);
    serde_json::to_value(jobset)
}
