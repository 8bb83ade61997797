//! `ttlSecondsAfterFinished`: a finished JobSet goes, and the garbage collector deletes what belonged to it.

use anyhow::Result;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::ListParams;
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
async fn finished_jobset_is_deleted_with_children_after_ttl() -> Result<()> {
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
