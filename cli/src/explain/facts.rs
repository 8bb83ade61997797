//! The facts of the cluster that rules look at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jobset_api::{JobSet, conditions, labels};
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::candidates::CandidateNode;
use super::capacity::PodRequests;
use super::problem::{self, PodProblem, ProblemKind};
use crate::leader::Leader;
use crate::status::Epochs;

/// A JobSet and the objects that may explain its state.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub jobset: Arc<JobSet>,
    pub jobs: Vec<Arc<PartialJob>>,
    pub pods: Vec<Arc<PartialPod>>,
    /// Events about Jobs of its namespace for which the API server refused Pods.
    pub refusals: Vec<Event>,
    /// The controller that leads; none if the user may not read Leases.
    pub leader: Option<Leader>,
    /// Whether an admission webhook is configured for JobSets; none if the user may not read that.
    pub admission: Option<bool>,
    /// The nodes, if a Pod cannot be scheduled; none if the user may not read them.
    pub nodes: Option<Vec<CandidateNode>>,
    /// The Pods of JobSets that have nodes, in all namespaces, if a leader of exclusive placement cannot be scheduled; none if the
    /// user may not read them.
    pub occupants: Option<Vec<PartialPod>>,
    /// Requests of an agent that its ServiceAccount is denied, such as `watch JobSets`, by the name of the ServiceAccount;
    /// only for agents that have not reported, and only if the user may ask.
    pub denied: BTreeMap<String, Vec<&'static str>>,
    /// Whether the namespace has the ConfigMap by which agents know the relays of the stream; none if the user may not read it, or
    /// the agents do not use the stream.
    pub relay_ca: Option<bool>,
    /// The NetworkPolicies of the namespace; none if the user may not read them, or the agents do not use the stream.
    pub policies: Option<Vec<NetworkPolicy>>,
    /// What a Pod of each replicatedJob asks for, of which one cannot be scheduled, if the user may read it.
    pub requests: BTreeMap<String, PodRequests>,
    /// Warnings of the kubelet and others about Pods of the namespace, if one of its Pods does not start.
    pub warnings: Vec<Event>,
    /// When the objects were read.
    pub now: Timestamp,
}

/// What an explanation has to know beside the JobSet's own objects.
// Each is asked for by itself.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactNeeds {
    /// The nodes: a Pod cannot be scheduled.
    pub nodes: bool,
    /// What a Pod of each of these replicatedJobs asks for: it cannot be scheduled. The names of the Pods by those of the replicatedJobs.
    pub requests: BTreeMap<String, String>,
    /// Warnings about Pods: one does not start.
    pub warnings: bool,
    /// The Pods of other Jobs: a leader of exclusive placement cannot be scheduled.
    pub occupants: bool,
    /// What stands between agents and relays: the agents report over the stream.
    pub stream: bool,
    /// What the ServiceAccounts of these names may do: their agents have not reported.
    pub accounts: BTreeSet<String>,
}

impl Facts {
    /// A `kubectl` command with the namespace of the JobSet.
    pub(super) fn kubectl(&self, command: &str) -> String {
        format!("kubectl {command} -n {}", self.jobset.namespace().unwrap_or_default())
    }

    /// The command that shows the restarts of the JobSet.
    pub(super) fn restarts_command(&self) -> String {
        self.kubectl(&format!("jobset restarts {}", self.jobset.name_any()))
    }

    /// The problems of Pods, each with its Pod.
    pub(super) fn problems(&self) -> impl Iterator<Item = (&PartialPod, PodProblem)> {
        let epochs = Epochs::of(&self.jobset);
        self.pods.iter().filter_map(move |pod| Some((&**pod, problem::of(pod, epochs, self.now)?)))
    }

    /// What the explanation has to know beside the JobSet's own objects.
    pub fn needs(&self) -> FactNeeds {
        let cannot_be_scheduled = || self.pods.iter().filter(|pod| problem::is_unschedulable(pod));
        let group = |pod: &PartialPod| pod.labels().get(labels::REPLICATED_JOB_NAME).cloned();
        let epochs = Epochs::of(&self.jobset);
        let starts =
            |pod: &PartialPod| problem::of(pod, epochs, self.now).is_some_and(|it| it.kind.is_told_by_events());
        FactNeeds {
            requests: cannot_be_scheduled().filter_map(|pod| Some((group(pod)?, pod.name_any()))).collect(),
            warnings: self.pods.iter().any(|pod| starts(pod)),
            nodes: cannot_be_scheduled().next().is_some(),
            occupants: cannot_be_scheduled().any(|pod| problem::leads(pod)),
            stream: epochs.is_some_and(|epochs| epochs.lag.is_some()),
            accounts: self.silent_accounts(),
        }
    }

    /// Whether an agent runs and has not reported.
    pub(super) fn has_silent_agents(&self) -> bool {
        self.problems().any(|(_, problem)| problem.kind == ProblemKind::AgentSilent)
    }

    /// The ServiceAccounts of agents that have not reported.
    fn silent_accounts(&self) -> BTreeSet<String> {
        let problems = self.problems().map(|(_, problem)| problem);
        problems.filter(|it| it.kind == ProblemKind::AgentSilent).map(|it| it.subject).collect()
    }

    /// The condition of this type, if it is true.
    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        let all = &self.jobset.status.as_ref()?.conditions;
        all.iter().find(|condition| condition.type_ == type_ && conditions::is_true(all, type_))
    }
}
