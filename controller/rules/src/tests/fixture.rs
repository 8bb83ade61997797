//! Builders of JobSets and Jobs, and short forms of plans.

use jobset_api::JobSet;
use jobset_store::{Finished, JobView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::world::World;
use crate::{Action, Plan};

/// A JobSet `train` of two Jobs, with this specification and status merged in.
pub(super) fn jobset(spec: &Value, status: &Value) -> JobSet {
    let mut whole = json!({"replicatedJobs": [
        {"name": "w", "replicas": 2, "template": {"spec": {}}}, {"name": "x", "replicas": 0, "template": {"spec": {}}}]});
    if let (Value::Object(whole), Value::Object(spec)) = (&mut whole, spec.clone()) {
        whole.extend(spec);
    }
    serde_json::from_value(json!({
        "metadata": {
            "name": "train", "namespace": "ml", "uid": "u", "annotations": {"jobset.sigs.k8s.io/restart-budget": "Shared"}},
        "spec": whole, "status": status,
    }))
    .unwrap()
}

pub(super) fn observed(jobset: JobSet, jobs: impl IntoIterator<Item = (&'static str, JobView)>) -> World {
    jobs.into_iter().fold(World::new(jobset), |world, (name, job)| world.job(name, job))
}

pub(super) fn job(attempt: i32, finished: Option<Finished>) -> JobView {
    JobView {
        replicated_job: "w".to_owned(),
        attempt: Some(attempt),
        parallelism: 1,
        pods: 1,
        finished,
        ..JobView::default()
    }
}

pub(super) fn failed(second: i64, reason: &str, message: &str) -> Finished {
    let at = Timestamp::from_second(second).unwrap();
    Finished::Failed { reason: reason.to_owned(), message: message.to_owned(), at }
}

pub(super) fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

pub(super) fn reconcile(world: &World) -> Plan {
    world.plan()
}

/// Names of the Jobs that the plan creates (`+`) and deletes (`-`).
pub(super) fn jobs_of(plan: &Plan) -> Vec<String> {
    let short = |action: &Action| match action {
        Action::CreateJob(job) => Some(format!("+{}", job.name)),
        Action::DeleteJob { name, .. } => Some(format!("-{name}")),
        _ => None,
    };
    plan.actions.iter().filter_map(short).collect()
}

pub(super) fn reasons(plan: &Plan) -> Vec<&str> {
    plan.notes.iter().map(|note| note.reason).collect()
}
