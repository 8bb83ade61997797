//! The facts of the cluster that rules look at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jobset_api::{JobSet, conditions};
use jobset_objects::{PartialJob, PartialNode, PartialPod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::problem::{self, ProblemKind};
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
    /// The controller that leads; none if the user may not read Leases, or there is none.
    pub leader: Option<Leader>,
    /// Whether an admission webhook is configured for JobSets; none if the user may not read that.
    pub admission: Option<bool>,
    /// The nodes, if a Pod cannot be scheduled; none if the user may not read them.
    pub nodes: Option<Vec<PartialNode>>,
    /// The Pods of other Jobs with exclusive placement, in all namespaces, if a leader of exclusive placement cannot be
    /// scheduled; none if the user may not read them.
    pub occupants: Option<Vec<PartialPod>>,
    /// Requests of an agent that its ServiceAccount is denied, such as `watch JobSets`, by the name of the ServiceAccount;
    /// only for agents that have not reported, and only if the user may ask.
    pub denied: BTreeMap<String, Vec<&'static str>>,
    /// Whether the namespace has the ConfigMap by which agents know the relays of the stream; none if the user may not read it, or
    /// the agents do not use the stream.
    pub relay_ca: Option<bool>,
    /// When the objects were read.
    pub now: Timestamp,
}

/// What an explanation has to know beside the JobSet's own objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactNeeds {
    /// The nodes: a Pod cannot be scheduled.
    pub nodes: bool,
    /// The Pods of other Jobs: a leader of exclusive placement cannot be scheduled.
    pub occupants: bool,
    /// Whether the namespace knows the relays of the stream, over which the agents report.
    pub relay_ca: bool,
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

    /// What the explanation has to know beside the JobSet's own objects.
    pub fn needs(&self) -> FactNeeds {
        let cannot_be_scheduled = || self.pods.iter().filter(|pod| problem::is_unschedulable(pod));
        FactNeeds {
            nodes: cannot_be_scheduled().next().is_some(),
            occupants: cannot_be_scheduled().any(|pod| problem::leads(pod)),
            relay_ca: Epochs::of(&self.jobset).is_some_and(|epochs| epochs.by_stream),
            accounts: self.silent_accounts(),
        }
    }

    /// The ServiceAccounts of agents that have not reported.
    fn silent_accounts(&self) -> BTreeSet<String> {
        let epochs = Epochs::of(&self.jobset);
        let problems = self.pods.iter().filter_map(|pod| problem::of(pod, epochs));
        problems.filter(|it| it.kind == ProblemKind::AgentSilent).map(|it| it.subject).collect()
    }

    /// The condition of this type, if it is true.
    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        let all = &self.jobset.status.as_ref()?.conditions;
        all.iter().find(|condition| condition.type_ == type_ && conditions::is_true(all, type_))
    }
}
