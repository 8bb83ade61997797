//! The certificates of an installation from before `jobset-certs`, and reviews while it is taken over.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_api::JobSet;
use jobset_certs::material::{CA_CERTIFICATES, Data, with_new_serving};
use jobset_certs::{Lifetimes, Names, issue};
use jobset_harness::cluster::Cluster;
use jobset_harness::install::{self, kubectl};
use jobset_harness::progress::progress;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

const SECRET: &str = "jobset-webhook-server-cert";
/// From one review to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// CA and certificate as the webhook stored them then: in one Secret, of which all replicas serve the certificate.
pub(super) struct Certificates<'a> {
    cluster: &'a Cluster,
    stored: Data,
}

impl<'a> Certificates<'a> {
    /// Stores them in a new namespace.
    pub(super) async fn store(cluster: &'a Cluster) -> Result<Self> {
        let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
        let names = Names::of_service("jobset-webhook-service", install::NAMESPACE)?;
        let stored = with_new_serving(&issue::authority(now, &lifetimes)?, &names, now, &lifetimes)?;
        kubectl(cluster, &["create", "namespace", install::NAMESPACE]).await?;
        let mut secret = Secret { data: Some(stored.clone()), ..Secret::default() };
        secret.metadata.name = Some(SECRET.to_owned());
        let certificates = Self { cluster, stored };
        certificates.secrets().create(&PostParams::default(), &secret).await?;
        Ok(certificates)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.cluster.client(), install::NAMESPACE)
    }

    /// Puts the CA into the caBundles.
    pub(super) async fn publish(&self) -> Result<()> {
        let bundle = json!(self.stored[CA_CERTIFICATES]);
        for (configuration, webhooks) in [
            (
                "mutatingwebhookconfiguration/jobset-mutating-webhook-configuration",
                &["mjobset.kb.io", "mpod.kb.io"][..],
            ),
            ("validatingwebhookconfiguration/jobset-validating-webhook-configuration", &["vjobset.kb.io"]),
        ] {
            let webhook = |name: &&str| json!({"name": name, "clientConfig": {"caBundle": bundle}});
            let patch = json!({"webhooks": webhooks.iter().map(webhook).collect::<Vec<Value>>()}).to_string();
            kubectl(self.cluster, &["patch", configuration, "-p", &patch]).await?;
        }
        Ok(())
    }

    /// What is done while JobSets are reviewed, none of which may be refused.
    pub(super) async fn asked_throughout<T>(&self, change: impl Future<Output = Result<T>>) -> Result<T> {
        let jobsets: Api<JobSet> = Api::namespaced(self.cluster.client(), "default");
        let jobset: JobSet = serde_json::from_value(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "review"}, "spec": {},
        }))?;
        let params = PostParams { dry_run: true, ..PostParams::default() };
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
                    jobsets.create(&params, &jobset).await.with_context(|| format!("review {reviews}"))?;
                    reviews += 1;
                }
            }
        }
    }

    /// Nothing was issued again.
    pub(super) async fn are_as_stored(&self) -> Result<()> {
        let found = self.secrets().get(SECRET).await?.data.context("it is empty")?;
        ensure!(found == self.stored, "CA or certificate have changed");
        Ok(())
    }
}
