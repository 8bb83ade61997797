//! Text of trees and lists.

use jobset_objects::PartialPod;
use serde_json::{Value, json};

use super::*;
use crate::args::OutputFormat;
use crate::output::{View, rendered};
use crate::testing::{condition, group, held, job, jobset, merge, plain, pod, ready, running, unschedulable, view};

fn status(synced: i32, deprecated: i32, restarts: i32) -> Value {
    json!({"syncedEpoch": synced, "deprecatedEpoch": deprecated, "groupRestarts": restarts,
           "restartsCountTowardsMax": restarts, "replicatedJobsStatus": ready(1, 2)})
}

/// All Pods of `train`, each with this status.
fn pods(epoch: Option<&str>, status: &Value) -> Vec<PartialPod> {
    let jobs = [("train-driver-0", 1), ("train-workers-0", 2), ("train-workers-1", 2)];
    let of = |(job, count): (&str, usize)| {
        (0..count).map(|index| pod(job, index, epoch, status, &Value::Null)).collect::<Vec<_>>()
    };
    jobs.into_iter().flat_map(of).collect()
}

fn jobs(ready: i32) -> Vec<jobset_objects::PartialJob> {
    vec![job("workers", 1, 2, ready * 2), job("driver", 0, 1, ready), job("workers", 0, 2, ready * 2)]
}

#[test]
fn tree_running_jobset_shows_all_pods() {
    let conditions = [
        condition("RestartingJobSet", false, "JobsReady", "all jobs are ready"),
        condition("Suspended", false, "ResumeJobs", "jobset is\nresumed"),
    ];
    let mut status = status(4, 3, 3);
    status["conditions"] = json!(conditions);
    let report = report(&jobset(status, &Value::Null), &jobs(1), &pods(Some("4"), &running()));
    insta::assert_snapshot!(plain(&report, &view()));
}

#[test]
fn tree_closed_barrier_shows_epochs() {
    let mut status = status(4, 4, 4);
    status["conditions"] = json!([condition(
        "RestartingJobSet",
        true,
        "InPlaceRestart",
        "in place, from epoch 4 to 5: Pod train-workers-0-1-x7k2m failed"
    )]);
    let mut pods = pods(Some("5"), &held());
    pods[0] = pod("train-driver-0", 0, Some("4"), &running(), &Value::Null);
    let lost = json!({"spec": {"nodeName": null}});
    pods[4] = pod("train-workers-1", 1, None, &unschedulable("0/2 nodes are available"), &lost);
    // A replaced Pod, and a Pod of an earlier JobSet of the same name.
    pods.push(pod(
        "train-workers-1",
        1,
        Some("4"),
        &json!({"phase": "Failed", "reason": "Evicted"}),
        &json!({"metadata": {"name": "train-workers-1-1-old", "creationTimestamp": "2026-11-22T06:00:00Z"}}),
    ));
    pods.push(pod(
        "train-workers-0",
        0,
        Some("9"),
        &running(),
        &json!({"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-uid": "u0"}}}),
    ));
    let report = report(&jobset(status, &Value::Null), &jobs(1), &pods);
    insta::assert_snapshot!(plain(&report, &View { wide: true, ..view() }));
    insta::assert_snapshot!("waits_as_json", rendered(&report, OutputFormat::Json, &view()).unwrap());
}

/// A JobSet of a thousand Pods, one of which is late.
fn large() -> JobSetTree {
    let patch = json!({"spec": {"replicatedJobs": [group("workers", 2, 500)]}});
    let names = ["train-workers-0", "train-workers-1"];
    let mut pods: Vec<PartialPod> = names
        .iter()
        .flat_map(|job| (0..500).map(move |index| pod(job, index, Some("2"), &running(), &Value::Null)))
        .collect();
    pods[321] = pod("train-workers-0", 321, None, &unschedulable("no room"), &json!({"spec": {"nodeName": null}}));
    let jobs = [job("workers", 0, 500, 499), job("workers", 1, 500, 500)];
    report(&jobset(json!({"syncedEpoch": 2, "deprecatedEpoch": 1, "groupRestarts": 1}), &patch), &jobs, &pods)
}

#[test]
fn tree_pods_alike_are_folded() {
    insta::assert_snapshot!(plain(&large(), &view()));
    let whole = plain(&large(), &View { pods: true, ..view() });
    assert_eq!(whole.lines().filter(|line| line.contains("-x7k2m")).count(), 1000);
}

#[test]
fn tree_recreate_strategy_has_no_epochs() {
    let patch = json!({"spec": {"failurePolicy": {"restartStrategy": "Recreate"}}});
    let counts = json!([{"name": "driver", "succeeded": 1}, {"name": "workers", "ready": 1, "failed": 1}]);
    let status = json!({"restarts": 2, "replicatedJobsStatus": counts});
    let mut jobs = jobs(1);
    let failed = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": ""}]);
    jobs[0].status.conditions = serde_json::from_value(failed).unwrap();
    insta::assert_snapshot!(plain(&report(&jobset(status, &patch), &jobs, &[]), &view()));
}

#[test]
fn tree_state_has_colour() {
    use crate::output::Report as _;

    let text = report(&jobset(status(1, 0, 0), &Value::Null), &jobs(1), &pods(Some("1"), &running())).text(&view());
    assert!(text.contains("\u{1b}[32mRunning\u{1b}[0m"), "{text:?}");
    let failed = json!({"conditions": [condition("Failed", true, "FailedJobs", "no")]});
    let text = report(&jobset(failed, &Value::Null), &[], &[]).text(&view());
    assert!(text.contains("\u{1b}[1m\u{1b}[31mFailed\u{1b}[0m"), "{text:?}");
}

#[test]
fn tree_without_replicas_has_state_no_jobs() {
    let patch = json!({"spec": {"replicatedJobs": [group("driver", 0, 1), group("workers", 0, 2)]}});
    let report = report(&jobset(json!({}), &patch), &[], &[]);
    assert_eq!(report.state, JobSetState::NoJobs);
    let text = plain(&report, &view());
    assert!(text.contains("driver   NoJobs  0/0"), "{text}");
    assert_eq!(report.barrier, None);
}

fn some() -> Vec<jobset_api::JobSet> {
    let other = |name: &str, namespace: &str, patch: Value| {
        let mut all = json!({"metadata": {"name": name, "namespace": namespace}});
        merge(&mut all, &patch);
        all
    };
    vec![
        jobset(status(4, 3, 3), &Value::Null),
        jobset(json!({"conditions": [condition("Failed", true, "FailedJobs", "no")]}), &other("bad", "ml", json!({}))),
        jobset(
            json!({"conditions": [condition("Completed", true, "AllJobsCompleted", "")]}),
            &other("done", "ml", json!({"spec": {"failurePolicy": null}})),
        ),
        jobset(Value::Null, &other("queued", "a", json!({"spec": {"suspend": true}}))),
        jobset(Value::Null, &other("new", "a", json!({}))),
        jobset(Value::Null, &other("remote", "a", json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}))),
    ]
}

#[test]
fn list_of_jobsets_has_columns_of_scope() {
    insta::assert_snapshot!("list_of_all_namespaces", plain(&list(&some(), None), &View { wide: true, ..view() }));
    insta::assert_snapshot!("list_of_one_namespace", plain(&list(&some()[..3], Some("ml")), &view()));
    assert_eq!(plain(&list(&[], Some("ml")), &view()), "There is no JobSet in namespace ml.\n");
}
