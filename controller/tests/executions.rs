//! Execution attempts (KEP-1282): each execution has a number, in the status and in annotations of Jobs and Pods.

use anyhow::Result;
use jobset_api::{conditions, labels};
use jobset_harness::wait;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, Space};
use crate::jobsets::{group, jobset};
use crate::program::Program;

const ON: &str = "--feature-gates=ExecutionAttemptsTracking=true";

fn attempt(object: &impl ResourceExt) -> Option<&str> {
    object.annotations().get(labels::EXECUTION_ATTEMPT).map(String::as_str)
}

/// Waits until there are so many Pods of a JobSet, all of this execution, and their Jobs as well.
async fn executed(space: &Space, name: &str, count: usize, wanted: &str) -> Result<()> {
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
    Ok(())
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
