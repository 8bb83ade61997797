//! A list of the JobSets of one or all namespaces.

use jobset_api::{JobSet, RestartStrategy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::Serialize;

use super::report::RestartCount;
use super::state::{self, JobSetState};
use crate::leader::Leader;
use crate::output::{BAD, Report, Table, View, age, paint};

/// JobSets, sorted by namespace and name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSetList {
    /// The namespace; none for all namespaces.
    pub namespace: Option<String>,
    /// The controller that leads; none if the user may not read Leases, or there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    pub jobsets: Vec<JobSetSummary>,
}

/// A summary of one JobSet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSetSummary {
    pub namespace: String,
    pub name: String,
    pub state: JobSetState,
    /// Jobs that are ready or have succeeded.
    pub jobs_ready: i64,
    pub jobs: i64,
    pub restarts: RestartCount,
    pub strategy: RestartStrategy,
    /// The epoch whose workers may run.
    pub synced_epoch: i32,
    pub pods: i64,
    pub created: Option<Time>,
}

pub fn list(jobsets: &[JobSet], namespace: Option<&str>, leader: Option<Leader>) -> JobSetList {
    let mut items: Vec<JobSetSummary> = jobsets.iter().map(JobSetSummary::of).collect();
    items.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    JobSetList { namespace: namespace.map(str::to_owned), leader, jobsets: items }
}

impl JobSetSummary {
    /// The summary of a JobSet, by its specification and status.
    pub fn of(jobset: &JobSet) -> Self {
        let (jobs_ready, jobs) = state::jobs(jobset);
        Self {
            namespace: jobset.namespace().unwrap_or_default(),
            name: jobset.name_any(),
            state: state::state(jobset),
            jobs_ready,
            jobs,
            restarts: RestartCount::of(jobset),
            strategy: jobset.spec.restart_strategy(),
            synced_epoch: jobset.status.as_ref().map_or(0, |status| status.synced_epoch),
            pods: jobset.spec.expected_pods(),
            created: jobset.metadata.creation_timestamp.clone(),
        }
    }
}

impl Report for JobSetList {
    fn text(&self, view: &View) -> String {
        if self.jobsets.is_empty() {
            let place =
                self.namespace.as_ref().map_or_else(|| "any namespace".to_owned(), |it| format!("namespace {it}"));
            return format!("There is no JobSet in {place}.\n");
        }
        let mut titles = vec!["NAME", "STATE", "JOBS READY", "RESTARTS", "EPOCH", "AGE"];
        if self.namespace.is_none() {
            titles.insert(0, "NAMESPACE");
        }
        if view.wide {
            titles.extend(["STRATEGY", "COUNTED/MAX", "PODS"]);
        }
        let mut table = Table::titled(&titles);
        for item in &self.jobsets {
            let in_place = item.strategy == RestartStrategy::InPlaceRestart;
            let mut row: Vec<String> = vec![
                item.name.clone(),
                paint(super::render::style(item.state), format!("{:?}", item.state)),
                format!("{}/{}", item.jobs_ready, item.jobs),
                item.restarts.total.to_string(),
                if in_place { item.synced_epoch.to_string() } else { "-".to_owned() },
                age(item.created.as_ref().map(|time| time.0), view.now),
            ];
            if self.namespace.is_none() {
                row.insert(0, item.namespace.clone());
            }
            if view.wide {
                row.push(format!("{:?}", item.strategy));
                row.push(format!("{}/{}", item.restarts.counted, item.restarts.max));
                row.push(item.pods.to_string());
            }
            table.push(row);
        }
        let absent = self.leader.as_ref().and_then(|leader| leader.absence(view.now));
        let absent =
            absent.map(|text| paint(BAD, format!("{text}; the states below may be old")) + "\n").unwrap_or_default();
        absent + &table.render()
    }
}
