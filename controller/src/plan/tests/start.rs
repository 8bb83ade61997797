//! What is created.

use serde_json::json;

use super::fixture::{job, jobs_of, jobset, observed, reasons, reconcile};
use super::world::World;
use crate::plan::{Action, Plan};
use crate::store::{ControllerRef, JobView};

#[test]
fn a_new_jobset_gets_its_service_and_its_jobs() {
    let plan = reconcile(&World::without_service(jobset(&json!({}), &json!(null))));
    assert!(matches!(plan.actions[0], Action::CreateService(_)), "DNS names come before the Pods that use them");
    assert_eq!(jobs_of(&plan), ["+train-w-0", "+train-w-1"]);
}

#[test]
fn a_second_pass_over_what_the_first_made_does_nothing() {
    let seen = observed(jobset(&json!({}), &json!(null)), [("train-w-0", job(0, None)), ("train-w-1", job(0, None))]);
    let first = reconcile(&seen);
    let second = reconcile(&seen.with_status(first.status.clone()));
    assert_eq!(second, Plan { status: first.status, ..Plan::default() });
}

#[test]
fn a_job_of_another_owner_is_left_alone_and_one_of_a_predecessor_is_waited_for() {
    let owned_by =
        |kind: &str| ControllerRef { kind: kind.to_owned(), name: "train".to_owned(), uid: "old".to_owned() };
    let foreign = |kind: &str| JobView { controller: Some(owned_by(kind)), ..job(0, None) };
    let jobs = [("train-w-0", foreign("CronJob")), ("train-w-1", foreign("JobSet"))];
    let plan = reconcile(&observed(jobset(&json!({}), &json!(null)), jobs));
    assert_eq!((jobs_of(&plan), reasons(&plan)), (vec![], vec!["JobCreationFailed"]));
    assert!(plan.notes[0].message.contains("train-w-0"), "{}", plan.notes[0].message);
}

#[test]
fn a_large_jobset_takes_its_turn_with_others() {
    let group = json!({"name": "a", "replicas": 100_000, "template": {"spec": {}}});
    let plan = reconcile(&observed(jobset(&json!({"replicatedJobs": [group]}), &json!(null)), []));
    assert_eq!(jobs_of(&plan).len(), 1000);
}
