//! Execution attempts (KEP-1282): each execution has a number, in the status and in annotations of Jobs and Pods.

use anyhow::Result;
use jobset_api::{conditions, labels};
use jobset_harness::wait;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, Space, in_place};
use crate::jobsets::{group, jobset, with};
use crate::program::Program;
use crate::workload::recreated;

const ON: &str = "--feature-gates=ExecutionAttemptsTracking=true";

fn attempt(object: &impl ResourceExt) -> Option<&str> {
    object.annotations().get(labels::EXECUTION_ATTEMPT).map(String::as_str)
}

/// The Pods of a JobSet once there are so many, all of this execution, and their Jobs as well.
async fn executed(space: &Space, name: &str, count: usize, wanted: &str) -> Result<Vec<Pod>> {
    let is_so = |pods: &[Pod]| pods.len() == count && pods.iter().all(|pod| attempt(pod) == Some(wanted));
    let pods = space.pods_where(name, &format!("of execution {wanted}"), is_so).await?;
    for pod in &pods {
        let job = space.job(&pod.labels()["batch.kubernetes.io/job-name"]).await?;
        assert_eq!(attempt(&job), Some(wanted), "{}", job.name_any());
    }
    space
        .status_once(name, &format!("in execution {wanted}"), |status| {
            status.execution_attempts.map(|it| it.to_string()).as_deref() == Some(wanted)
        })
        .await?;
    Ok(pods)
}

async fn suspend_and_resume(space: &Space, name: &str) -> Result<()> {
    // The condition outlives the Pods of the last resumption for a moment. It would be taken for that of this suspension.
    let is_suspended = |it: &Condition| it.type_ == conditions::SUSPENDED && it.status == "True";
    space.status_once(name, "resumed", |status| !status.conditions.iter().any(is_suspended)).await?;
    space.suspend(name, true).await?;
    space.condition(name, conditions::SUSPENDED, "True").await?;
    space.suspend(name, false).await
}

#[tokio::test]
async fn each_resume_and_each_restart_of_all_jobs_is_another_execution() -> Result<()> {
    let fixture = Fixture::start_with(&[ON]).await?;
    let policy =
        json!({"maxRestarts": 9, "rules": [{"action": "RestartJob", "onJobFailureReasons": ["FailedIndexes"]}]});
    let suspended = json!({"spec": {"suspend": true}});
    fixture.create(with(recreated("train", &policy, &[("w", 2), ("x", 1)]), &suspended)).await?;
    fixture.condition("train", conditions::SUSPENDED, "True").await?;
    assert_eq!(fixture.status("train").await?.execution_attempts, None, "it has never run");
    fixture.suspend("train", false).await?;
    executed(&fixture, "train", 3, "0").await?;

    suspend_and_resume(&fixture, "train").await?;
    executed(&fixture, "train", 3, "1").await?;
    fixture.fail_job("train-w-0", "BackoffLimitExceeded").await?;
    executed(&fixture, "train", 3, "2").await?;
    // One Job that is recreated alone belongs to the same execution.
    let before = fixture.job("train-x-0").await?;
    fixture.fail_job("train-x-0", "FailedIndexes").await?;
    fixture.job_after(&before).await?;
    executed(&fixture, "train", 3, "2").await?;
    suspend_and_resume(&fixture, "train").await?;
    executed(&fixture, "train", 3, "3").await?;
    assert_eq!(fixture.status("train").await?.restarts, 1);

    // In place, a restart is none; a resume is one.
    fixture.create(in_place("in-place", 2, 9)).await?;
    let pods = executed(&fixture, "in-place", 2, "0").await?;
    for pod in &pods {
        fixture.report(pod, "1").await?;
    }
    fixture.in_epoch("in-place", (1, 0, 0, 0)).await?;
    for pod in &pods {
        fixture.report(pod, "2").await?;
    }
    fixture.in_epoch("in-place", (2, 1, 1, 1)).await?;
    executed(&fixture, "in-place", 2, "0").await?;
    suspend_and_resume(&fixture, "in-place").await?;
    executed(&fixture, "in-place", 2, "1").await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn jobset_that_ran_before_the_gate_goes_on_from_its_restarts() -> Result<()> {
    let mut fixture = Fixture::start().await?;
    fixture.create(recreated("train", &json!({"maxRestarts": 9}), &[("w", 2)])).await?;
    fixture.pods("train", 2, "0").await?;
    fixture.fail_job("train-w-0", "BackoffLimitExceeded").await?;
    let before = fixture.pods("train", 2, "1").await?;
    assert!(before.iter().all(|pod| attempt(pod).is_none()));
    assert_eq!(fixture.status("train").await?.execution_attempts, None);

    fixture.controller.signal(rustix::process::Signal::KILL)?;
    fixture.controller.ended().await?;
    fixture.controller = Program::start(&fixture.plane, "successor", &[ON, "--leader-elect=false"])?;
    fixture.status_once("train", "numbered", |status| status.execution_attempts == Some(1)).await?;
    suspend_and_resume(&fixture, "train").await?;
    executed(&fixture, "train", 2, "2").await?;

    // Off again: the next one changes neither the status nor the Jobs.
    fixture.controller.signal(rustix::process::Signal::KILL)?;
    fixture.controller.ended().await?;
    fixture.controller = Program::start(&fixture.plane, "third", &["--leader-elect=false"])?;
    suspend_and_resume(&fixture, "train").await?;
    fixture.condition("train", conditions::SUSPENDED, "False").await?;
    executed(&fixture, "train", 2, "2").await?;
    fixture.plane.stop().await
}

/// Has the API server refuse every status of a second execution, or accept it again.
async fn refuse_second_execution(fixture: &Fixture, refuse: bool) -> Result<()> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(fixture.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fixture.client.clone());
    if refuse {
        let statuses = json!({"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
                              "resources": ["jobsets/status"]});
        let rule = "!has(object.status.executionAttempts) || object.status.executionAttempts < 1";
        let policy = json!({"metadata": {"name": "first"}, "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [statuses]}, "validations": [{"expression": rule}]}});
        let binding =
            json!({"metadata": {"name": "first"}, "spec": {"policyName": "first", "validationActions": ["Deny"]}});
        policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    } else {
        bindings.delete("first", &DeleteParams::default()).await?;
        policies.delete("first", &DeleteParams::default()).await?;
    }
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let second = Patch::Merge(json!({"status": {"executionAttempts": 1}}));
    wait::until(LIMIT, "the policy to be known", || async {
        let is_refused = fixture.jobsets().patch_status("train", &dry, &second).await.is_err();
        Ok((is_refused == refuse).then_some(()))
    })
    .await
}

#[tokio::test]
async fn refused_status_and_a_new_leader_count_a_resume_once() -> Result<()> {
    let mut fixture = Fixture::start_with(&[ON]).await?;
    fixture.create(jobset("train", &[group("w", 2, 1)])).await?;
    executed(&fixture, "train", 2, "0").await?;
    fixture.suspend("train", true).await?;
    fixture.condition("train", conditions::SUSPENDED, "True").await?;
    refuse_second_execution(&fixture, true).await?;
    fixture.suspend("train", false).await?;
    fixture.note("Refused", "cannot write the status of JobSet default/train").await?;
    for job in ["train-w-0", "train-w-1"] {
        let job = fixture.job(job).await?;
        let suspended = job.spec.as_ref().and_then(|spec| spec.suspend);
        assert_eq!((suspended, attempt(&job)), (Some(true), Some("0")), "no Job runs before its number is stored");
    }
    assert_eq!(fixture.status("train").await?.execution_attempts, Some(0));

    fixture.controller.signal(rustix::process::Signal::KILL)?;
    fixture.controller.ended().await?;
    refuse_second_execution(&fixture, false).await?;
    fixture.controller = Program::start(&fixture.plane, "successor", &[ON, "--leader-elect=false"])?;
    executed(&fixture, "train", 2, "1").await?;
    fixture.condition("train", conditions::SUSPENDED, "False").await?;
    fixture.settle().await?;
    assert_eq!(fixture.status("train").await?.execution_attempts, Some(1));
    fixture.plane.stop().await
}
