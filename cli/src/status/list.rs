//! All JobSets of one namespace or of all.

use jobset_api::{JobSet, RestartStrategy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::Serialize;

use super::report::Restarts;
use super::state::{self, State};
use crate::output::{Report, Table, View, age, paint};

/// JobSets, by namespace and name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List {
    /// Where they are; none where it is all namespaces.
    pub namespace: Option<String>,
    /// The JobSets.
    pub jobsets: Vec<Item>,
}

/// One JobSet, in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// Jobs that are ready or have succeeded.
    pub jobs_ready: i64,
    /// Jobs that there should be.
    pub jobs: i64,
    /// How often it has restarted.
    pub restarts: Restarts,
    /// How it restarts.
    pub strategy: RestartStrategy,
    /// The epoch whose workers may run.
    pub synced_epoch: i32,
    /// Pods that run at once.
    pub pods: i64,
    /// When it was created.
    pub created: Option<Time>,
}

/// The list of these JobSets.
pub fn list(jobsets: &[JobSet], namespace: Option<&str>) -> List {
    let mut items: Vec<Item> = jobsets.iter().map(item).collect();
    items.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    List { namespace: namespace.map(str::to_owned), jobsets: items }
}

fn item(jobset: &JobSet) -> Item {
    let (jobs_ready, jobs) = state::jobs(jobset);
    Item {
        namespace: jobset.namespace().unwrap_or_default(),
        name: jobset.name_any(),
        state: state::state(jobset),
        jobs_ready,
        jobs,
        restarts: Restarts::of(jobset),
        strategy: jobset.spec.restart_strategy(),
        synced_epoch: jobset.status.as_ref().map_or(0, |status| status.synced_epoch),
        pods: jobset.spec.expected_pods(),
        created: jobset.metadata.creation_timestamp.clone(),
    }
}

impl Report for List {
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
                paint(super::render::style(item.state), item.state.as_str()),
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
        table.render()
    }
}
