//! The certificates of an installation, and reviews while it is taken over.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_api::JobSet;
use jobset_harness::cluster::Cluster;
use jobset_harness::install;
use jobset_harness::progress::progress;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::time::MissedTickBehavior;

const SECRET: &str = "jobset-webhook-server-cert";
/// From one review to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// CA and certificate of the webhook, as they were stored before.
pub(super) struct Certificates<'a> {
    cluster: &'a Cluster,
    stored: BTreeMap<String, ByteString>,
}

impl<'a> Certificates<'a> {
    /// Those that are stored now.
    pub(super) async fn read(cluster: &'a Cluster) -> Result<Self> {
        let stored = stored(cluster).await?;
        ensure!(!stored.is_empty(), "no certificate is stored");
        Ok(Self { cluster, stored })
    }

    /// Nothing was issued again.
    pub(super) async fn are_as_stored(&self) -> Result<()> {
        ensure!(stored(self.cluster).await? == self.stored, "CA or certificate have changed");
        Ok(())
    }
}

/// What is done while JobSets are reviewed, none of which may be refused.
pub(crate) async fn reviewed_throughout<T>(cluster: &Cluster, change: impl Future<Output = Result<T>>) -> Result<T> {
    let (mut change, mut reviews, mut ticks) = (pin!(change), 0, tokio::time::interval(PAUSE));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            changed = &mut change => {
                progress(&format!("{reviews} reviews meanwhile, none refused"));
                ensure!(reviews > 0, "nothing was reviewed");
                return changed;
            }
            _ = ticks.tick() => {
                review(cluster).await.with_context(|| format!("review {reviews}"))?;
                reviews += 1;
            }
        }
    }
}

/// Has a JobSet reviewed, which is not created.
async fn review(cluster: &Cluster) -> Result<()> {
    let jobsets: Api<JobSet> = Api::namespaced(cluster.client(), "default");
    let jobset: JobSet = serde_json::from_value(json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "review"}, "spec": {},
    }))?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    jobsets.create(&params, &jobset).await.map(drop).context("the JobSet was refused")
}

/// What the Secret with the CA holds.
async fn stored(cluster: &Cluster) -> Result<BTreeMap<String, ByteString>> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), install::NAMESPACE);
    Ok(secrets.get(SECRET).await?.data.unwrap_or_default())
}
