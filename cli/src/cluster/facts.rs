//! Reads the [`Facts`] of an explanation. A resource that the user may not read is left out.

use jobset_api::{GROUP, LEASE};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, api::ListParams};

use super::connect::Cluster;
use super::fetch::all;
use crate::error::Error;
use crate::explain::Facts;

/// The default namespace of the controller.
const CONTROLLER_NAMESPACE: &str = "jobset-system";

impl Cluster {
    /// The facts about this JobSet.
    ///
    /// # Errors
    /// If the JobSet, its Jobs or its Pods cannot be read.
    pub async fn facts(&self, name: &str) -> Result<Facts, Error> {
        let jobset = self.jobset(name).await?;
        let (jobs, pods, refusals, leases, admission) =
            tokio::join!(self.jobs(name), self.pods(name), self.refusals(), self.leases(), self.admission());
        Ok(Facts {
            jobset,
            jobs: jobs?,
            pods: pods?,
            refusals: refusals.unwrap_or_default(),
            leases,
            admission,
            now: Timestamp::now(),
        })
    }

    /// Events of the Job controller about Pods that it could not create.
    async fn refusals(&self) -> Result<Vec<Event>, Error> {
        let params = ListParams::default().fields("regarding.kind=Job,reason=FailedCreate");
        all(&self.api(), &params, "list Events of Jobs").await
    }

    async fn leases(&self) -> Option<Vec<Lease>> {
        let params = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        let everywhere: Api<Lease> = Api::all(self.client.clone());
        if let Ok(leases) = all(&everywhere, &params, "list Leases").await {
            return Some(leases);
        }
        let there: Api<Lease> = Api::namespaced(self.client.clone(), CONTROLLER_NAMESPACE);
        there.get_opt(LEASE).await.ok().map(|lease| lease.into_iter().collect())
    }

    async fn admission(&self) -> Option<bool> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let listed = all(&api, &ListParams::default(), "list admission webhooks").await.ok()?;
        let webhooks = listed.iter().flat_map(|configuration| configuration.webhooks.iter().flatten());
        let mut rules = webhooks.flat_map(|webhook| webhook.rules.iter().flatten());
        let is_ours = |group: &String| group == GROUP || group == "*";
        Some(rules.any(|rule| rule.api_groups.iter().flatten().any(is_ours)))
    }
}
