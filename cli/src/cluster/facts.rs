//! Reads the [`Facts`] of an explanation. A resource that the user may not read is left out.

use jobset_api::agent::RELAY_CONFIG_MAP;
use jobset_api::{GROUP, LEASE, labels};
use jobset_objects::{PartialNode, PartialPod};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};

use super::connect::Cluster;
use super::fetch::all;
use crate::error::Error;
use crate::explain::{FactNeeds, Facts};
use crate::leader::Leader;

/// The default namespace of the controller.
const CONTROLLER_NAMESPACE: &str = "jobset-system";

impl Cluster {
    /// The facts about this JobSet.
    pub async fn facts(&self, name: &str) -> Result<Facts, Error> {
        let jobset = self.jobset(name).await?.into();
        let (jobs, pods) = tokio::join!(self.jobs(name), self.pods(name));
        let own = Facts { jobset, jobs: jobs?, pods: pods?, ..Facts::default() };
        let around = self.surroundings(name, &own.needs()).await;
        Ok(Facts { jobset: own.jobset, jobs: own.jobs, pods: own.pods, ..around })
    }

    /// The facts about this JobSet without its own objects.
    pub async fn surroundings(&self, name: &str, needs: &FactNeeds) -> Facts {
        let (refusals, leader, admission) = tokio::join!(self.refusals(), self.leader(), self.admission());
        let refusals = refusals.unwrap_or_default();
        let mut facts = Facts { refusals, leader, admission, now: Timestamp::now(), ..Facts::default() };
        if needs.nodes {
            let api: Api<PartialNode> = Api::all(self.client.clone());
            facts.nodes = all(&api, &ListParams::default(), "list nodes").await.ok();
        }
        if needs.occupants {
            facts.occupants = self.occupants(name).await;
        }
        if needs.relay_ca {
            let api: Api<ConfigMap> = self.api();
            facts.relay_ca = api.get_metadata_opt(RELAY_CONFIG_MAP).await.ok().map(|found| found.is_some());
        }
        for account in &needs.accounts {
            if let Some(denied) = self.denied(account).await {
                facts.denied.insert(account.clone(), denied);
            }
        }
        facts
    }

    /// The Pods of all other JobSets with exclusive placement.
    async fn occupants(&self, name: &str) -> Option<Vec<PartialPod>> {
        let api: Api<PartialPod> = Api::all(self.client.clone());
        let mut pods = all(&api, &ListParams::default().labels(labels::JOB_KEY), "list Pods").await.ok()?;
        let is_own = |pod: &PartialPod| {
            pod.namespace().as_deref() == Some(&self.namespace)
                && pod.labels().get(labels::JOBSET_NAME).is_some_and(|jobset| jobset == name)
        };
        pods.retain(|pod| !is_own(pod) && pod.annotations().contains_key(labels::EXCLUSIVE_TOPOLOGY));
        Some(pods)
    }

    /// The requests of an agent that a ServiceAccount of the namespace is denied; none if the user may not ask.
    async fn denied(&self, account: &str) -> Option<Vec<&'static str>> {
        let mut denied = Vec::new();
        for (verb, group, resource, words) in [
            ("watch", GROUP, "jobsets", "watch JobSets"),
            ("list", GROUP, "jobsets", "list JobSets"),
            ("patch", "", "pods", "patch Pods"),
        ] {
            if !self.may(account, verb, group, resource).await? {
                denied.push(words);
            }
        }
        Some(denied)
    }

    async fn may(&self, account: &str, verb: &str, group: &str, resource: &str) -> Option<bool> {
        let namespace = &self.namespace;
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{namespace}:{account}")),
                groups: Some(groups.map(str::to_owned).to_vec()),
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(namespace.clone()),
                    verb: Some(verb.to_owned()),
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &review).await.ok()?.status.map(|status| status.allowed)
    }

    /// The controller that leads; none if the user may not read Leases, or there is none.
    pub async fn leader(&self) -> Option<Leader> {
        Leader::of(&self.leases().await?, Timestamp::now())
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
