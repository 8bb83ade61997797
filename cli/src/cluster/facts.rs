//! Reads the [`Facts`] of an explanation. A resource that the user may not read is left out.

use std::fmt::Debug;

use jobset_api::agent::RELAY_CONFIG_MAP;
use jobset_api::{GROUP, LEASE, labels};
use jobset_objects::{FAILED_CREATE, PartialPod};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::connect::Cluster;
use super::fetch::all;
use crate::error::Error;
use crate::explain::{FactNeeds, Facts, PodRequests};
use crate::leader::Leader;

/// The default namespace of the controller.
const CONTROLLER_NAMESPACE: &str = "jobset-system";

impl Cluster {
    pub async fn facts(&self, name: &str) -> Result<Facts, Error> {
        let jobset = self.jobset(name).await?.into();
        let (jobs, pods) = tokio::join!(self.jobs(name), self.pods(name));
        let own = Facts { jobset, jobs: jobs?, pods: pods?, now: Timestamp::now(), ..Facts::default() };
        let around = self.surroundings(&own.needs()).await;
        Ok(Facts { jobset: own.jobset, jobs: own.jobs, pods: own.pods, ..around })
    }

    /// The facts about this JobSet without its own objects.
    pub async fn surroundings(&self, needs: &FactNeeds) -> Facts {
        let (refusals, leader, admission) = tokio::join!(self.refusals(), self.leader(), self.admission());
        let refusals = refusals.unwrap_or_default();
        let mut facts = Facts { refusals, leader, admission, now: Timestamp::now(), ..Facts::default() };
        if needs.nodes {
            facts.nodes = self.nodes().await;
        }
        for (group, pod) in &needs.requests {
            let api: Api<Pod> = self.api();
            let pod = api.get_opt(pod).await.ok().flatten().and_then(|pod| pod.spec);
            facts.requests.extend(pod.map(|pod| (group.clone(), PodRequests::of(&pod))));
        }
        if needs.warnings {
            let params = ListParams::default().fields("regarding.kind=Pod,type=Warning");
            facts.warnings = all(&self.api(), &params, "list Events of Pods").await.unwrap_or_default();
        }
        if needs.occupants {
            facts.occupants = self.occupants().await;
        }
        if needs.stream {
            let api: Api<ConfigMap> = self.api();
            facts.relay_ca = api.get_metadata_opt(RELAY_CONFIG_MAP).await.ok().map(|found| found.is_some());
            facts.policies = all(&self.api(), &ListParams::default(), "list NetworkPolicies").await.ok();
        }
        for account in &needs.accounts {
            if let Some(denied) = self.denied(account).await {
                facts.denied.insert(account.clone(), denied);
            }
        }
        facts
    }

    /// All nodes, with the fields that the caller reads; none if the user may not list them.
    pub async fn nodes<K>(&self) -> Option<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        all(&Api::all(self.client.clone()), &ListParams::default(), "list nodes").await.ok()
    }

    /// The Pods of all JobSets that keep a leader of exclusive placement away, by the labels that its anti-affinity reads.
    async fn occupants(&self) -> Option<Vec<PartialPod>> {
        let api: Api<PartialPod> = Api::all(self.client.clone());
        let selector = format!("{},{}", labels::JOB_KEY, labels::PRIORITY);
        let mut pods = all(&api, &ListParams::default().labels(&selector), "list Pods").await.ok()?;
        pods.retain(|pod| pod.spec.node_name.is_some() && !pod.has_ended());
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

    /// The controller that leads; none if the user may not read Leases.
    pub async fn leader(&self) -> Option<Leader> {
        Some(Leader::of(&self.leases().await?, Timestamp::now()))
    }

    /// Events of the Job controller about Pods that it could not create.
    async fn refusals(&self) -> Result<Vec<Event>, Error> {
        let params = ListParams::default().fields(&format!("regarding.kind=Job,reason={FAILED_CREATE}"));
        all(&self.api(), &params, "list Events of Jobs").await
    }

    async fn leases(&self) -> Option<Vec<Lease>> {
        let params = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        let everywhere: Api<Lease> = Api::all(self.client.clone());
        if let Ok(leases) = all(&everywhere, &params, "list Leases").await {
            return Some(leases);
        }
        let there: Api<Lease> = Api::namespaced(self.client.clone(), CONTROLLER_NAMESPACE);
        // It may be in a namespace that the user may not read.
        there.get_opt(LEASE).await.ok()?.map(|lease| vec![lease])
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
