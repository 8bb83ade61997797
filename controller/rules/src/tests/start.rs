//! Creation of children.

use jobset_store::{ControllerRef, JobView};
use serde_json::json;

use super::fixture::{job, jobs_of, jobset, observed, reasons, reconcile};
use super::world::World;
use crate::{Action, Plan};

#[test]
fn new_jobset_creates_service_then_jobs() {
    let plan = reconcile(&World::without_service(jobset(&json!({}), &json!(null))));
    assert!(
        matches!(plan.actions[0], Action::CreateService { .. }),
        "the Service comes before the Pods that use its DNS names"
    );
    assert_eq!(jobs_of(&plan), ["+train-w-0", "+train-w-1"]);
}

#[test]
fn second_reconciliation_without_changes_does_nothing() {
    let world = observed(jobset(&json!({}), &json!(null)), [("train-w-0", job(0, None)), ("train-w-1", job(0, None))]);
    let first = reconcile(&world);
    let second = reconcile(&world.with_status(first.status.clone()));
    assert_eq!(second, Plan { status: first.status, misses_agents: Some(false), ..Plan::default() });
}

#[test]
fn job_name_of_other_owner_warns_of_predecessor_waits() {
    let owned_by =
        |kind: &str| ControllerRef { kind: kind.to_owned(), name: "train".to_owned(), uid: "old".to_owned() };
    let foreign = |kind: &str| JobView { controller: Some(owned_by(kind)), ..job(0, None) };
    let jobs = [("train-w-0", foreign("CronJob")), ("train-w-1", foreign("JobSet"))];
    let plan = reconcile(&observed(jobset(&json!({}), &json!(null)), jobs));
    assert_eq!((jobs_of(&plan), reasons(&plan)), (vec![], vec!["JobCreationFailed"]));
    assert!(plan.notes[0].message.contains("train-w-0"), "{}", plan.notes[0].message);
}

#[test]
fn large_jobset_creates_at_most_200_jobs() {
    let group = json!({"name": "a", "replicas": 20_000, "template": {"spec": {}}});
    let plan = reconcile(&observed(jobset(&json!({"replicatedJobs": [group]}), &json!(null)), []));
    assert_eq!(jobs_of(&plan).len(), 200);
}
