//! `ttlSecondsAfterFinished`, and `managedBy`: a JobSet that another controller runs is left alone.

use anyhow::Result;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::fixture::{LIMIT, Space, next};
use crate::jobsets::{feature, group, jobset, with};

/// Waits until the JobSet is gone, and with it all that belonged to it.
async fn gone(space: &Space, jobset: &str) -> Result<()> {
    let labels = ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={jobset}"));
    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    wait::until_met(LIMIT, format!("{jobset} to be gone"), || async {
        let found = space.jobsets().get_opt(jobset).await?.is_some();
        let jobs = space.jobs().list(&labels).await?.items.len();
        let pods = space.all_pods().list(&labels).await?.items.len();
        let services = services.list(&labels).await?.items.len();
        let left = (found, jobs, pods, services);
        Ok(if left == (false, 0, 0, 0) { Check::Met(()) } else { Check::Unmet(format!("{left:?}")) })
    })
    .await
}

#[tokio::test]
async fn a_jobset_goes_with_all_that_is_its_own_some_time_after_its_end() -> Result<()> {
    let space = Space::new("ttl").await?;
    space.create(feature("ttl")?).await?;
    space
        .create(with(jobset("kept", &[group("w", 1, 1)]), &json!({"spec": {"ttlSecondsAfterFinished": 3600}})))
        .await?;
    let mut history = space.history("ttl").await?;
    space.complete_job("ttl-workers-0", 1).await?;
    space.complete_job("kept-w-0", 1).await?;
    // It says first how it ended.
    while next(&mut history).await?.status.is_none_or(|status| status.terminal_state != "Completed") {}
    gone(&space, "ttl").await?;
    space.condition("kept", "Completed", "True").await?;
    space.jobs_of("kept", &["kept-w-0"]).await?;
    Ok(())
}

#[tokio::test]
async fn jobset_managed_by_another_past_its_ttl_is_left_alone() -> Result<()> {
    let space = Space::new("managed-by").await?;
    space.create(feature("managed-by")?).await?;
    space.settle().await?;
    let jobset = space.jobsets().get("managed-by").await?;
    assert_eq!(jobset.status, None);
    space.jobs_of("managed-by", &[]).await?;
    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    assert!(services.get_opt("managed-by").await?.is_none());
    assert_eq!(space.warnings().await?, Vec::<String>::new());

    // Its manager says that it has failed.
    let end = json!({"type": "Failed", "status": "True", "reason": "Elsewhere", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"terminalState": "Failed", "conditions": [end]}});
    space.jobsets().patch_status("managed-by", &PatchParams::default(), &Patch::Merge(status)).await?;
    space.edit("managed-by", json!({"spec": {"ttlSecondsAfterFinished": 60}})).await?;
    space.settle().await?;
    let jobset = space.jobsets().get("managed-by").await?;
    assert_eq!(jobset.metadata.deletion_timestamp, None);
    Ok(())
}

#[tokio::test]
async fn a_jobset_that_names_this_controller_is_run() -> Result<()> {
    let space = Space::new("managed-here").await?;
    let here = json!({"metadata": {"name": "here"}, "spec": {"managedBy": "jobset.sigs.k8s.io/jobset-controller"}});
    space.create(with(feature("managed-by")?, &here)).await?;
    space.pods_of("here-workers-0", 1).await?;
    Ok(())
}
