//! Reads the [`Facts`] of an explanation. A resource that the user may not read is left unknown.

use jobset_api::{GROUP, LEASE};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, api::ListParams};

use super::connect::Cluster;
use super::pages::all;
use crate::error::Error;
use crate::explain::{ControllerLease, Facts, Readable};

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

    async fn leases(&self) -> Readable<Vec<ControllerLease>> {
        let params = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        let everywhere: Api<Lease> = Api::all(self.client.clone());
        let listed = if let Ok(leases) = all(&everywhere, &params, "list Leases").await {
            leases
        } else {
            let there: Api<Lease> = Api::namespaced(self.client.clone(), CONTROLLER_NAMESPACE);
            let Ok(lease) = there.get_opt(LEASE).await else { return Readable::Unknown };
            lease.into_iter().collect()
        };
        Readable::Known(listed.into_iter().map(seen).collect())
    }

    async fn admission(&self) -> Readable<bool> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let Ok(listed) = all(&api, &ListParams::default(), "list admission webhooks").await else {
            return Readable::Unknown;
        };
        let webhooks = listed.iter().flat_map(|configuration| configuration.webhooks.iter().flatten());
        let mut rules = webhooks.flat_map(|webhook| webhook.rules.iter().flatten());
        let is_ours = |group: &String| group == GROUP || group == "*";
        Readable::Known(rules.any(|rule| rule.api_groups.iter().flatten().any(is_ours)))
    }
}

fn seen(lease: Lease) -> ControllerLease {
    let spec = lease.spec.unwrap_or_default();
    ControllerLease {
        namespace: lease.metadata.namespace.unwrap_or_default(),
        holder: spec.holder_identity,
        renewed: spec.renew_time.map(|time| time.0),
        seconds: spec.lease_duration_seconds.unwrap_or(15),
    }
}
